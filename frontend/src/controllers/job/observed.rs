//! What the job controller sees before it decides: plain values, no client, no store.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;

use streams_api::{JobStatus, ResolvedFusion, Statistics, StoredAdl, StoredPlan};

use super::{decide::Change, generation::Target};

/// Everything that [`decide`](super::decide::decide) looks at.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    /// The time.
    pub(crate) now: Timestamp,
    /// `metadata.generation` of the job.
    pub(crate) spec_generation: i64,
    /// Digest of what compilation depends on in the job's spec.
    pub(crate) inputs: String,
    /// Why the spec cannot be submitted, if the API server accepted something that cannot.
    pub(crate) refusal: Option<Failure>,
    /// Limits of the job and of the frontend.
    pub(crate) limits: Limits,
    /// What was recorded last.
    pub(crate) status: JobStatus,
    /// The committed generation; `None` if there is none.
    pub(crate) committed: Option<Loaded>,
    /// The generation that is being prepared; `None` if there is none.
    pub(crate) proposed: Option<Loaded>,
    /// Desired width of every region of the committed generation, by name; empty before there is one.
    pub(crate) desired_widths: BTreeMap<String, u32>,
    /// Widths that are wanted and never compiled, by region; `desired_widths` has the applied ones in their place.
    pub(crate) refused_widths: BTreeMap<String, RefusedWidth>,
    /// Widths that a request wants (`desired_widths` has them) and that the specs of regions do not have yet, by index of the region.
    pub(crate) widths_to_take_over: BTreeMap<u64, u32>,
    /// Hash of the job's ConfigMap as it should be now.
    pub(crate) job_config_map: String,
    /// Objects of the job.
    pub(crate) children: Children,
    /// Long work: what is going on, and what came of it.
    pub(crate) work: Work,
    /// What the last attempt to do something failed with.
    pub(crate) obstacle: Option<Failure>,
}

/// A width that is refused without asking the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedWidth {
    /// The width.
    pub(crate) width: u32,
    /// One word in CamelCase.
    pub(crate) reason: &'static str,
    /// One sentence.
    pub(crate) message: String,
}

/// Limits of a submission.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// How long a submission may take.
    pub(crate) submission: Duration,
    /// How long a resize may take.
    pub(crate) resize: Duration,
    /// How often a job is submitted before it has failed.
    pub(crate) max_attempts: u32,
}

/// A generation that the status names.
#[derive(Clone, Debug)]
pub(crate) enum Loaded {
    /// It is there.
    Whole(Arc<Wanted>),
    /// Its chunks are not complete; the text says what is missing.
    Lost(String),
}

impl Loaded {
    /// The generation, if it could be read.
    pub(crate) fn whole(&self) -> Option<&Wanted> {
        match self {
            Self::Whole(wanted) => Some(wanted),
            Self::Lost(_) => None,
        }
    }
}

/// What should exist for a generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wanted {
    /// Number of the generation.
    pub(crate) generation: u64,
    /// What it was compiled for.
    pub(crate) target: Option<Target>,
    /// Widths in force, by region.
    pub(crate) widths: BTreeMap<String, u32>,
    /// PEs by id.
    pub(crate) processing_elements: BTreeMap<u64, WantedPe>,
    /// Regions: names by index.
    pub(crate) regions: BTreeMap<u64, String>,
    /// Host pools: hash of the desired object by index.
    pub(crate) host_pools: BTreeMap<u64, String>,
    /// How many PEs have which fate.
    pub(crate) fates: Fates,
    /// Figures for the status.
    pub(crate) statistics: Statistics,
    /// How fusion was resolved.
    pub(crate) fusion: ResolvedFusion,
    /// What users should know: reason and message.
    pub(crate) warnings: Vec<(String, String)>,
}

/// How many PEs have which fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fates {
    /// Pod stays.
    pub(crate) kept: u32,
    /// Pod is replaced.
    pub(crate) restarted: u32,
    /// New.
    pub(crate) added: u32,
    /// Gone.
    pub(crate) removed: u32,
}

/// A PE that should exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedPe {
    /// Generation that it last had to start with.
    pub(crate) origin: u64,
    /// Whether it may be created again when a user deleted it.
    pub(crate) restartable: bool,
    /// Its text in this generation.
    pub(crate) text: Text,
    /// An older text that a running PE cannot tell from it; it is used as long as it is there.
    pub(crate) carried: Option<Text>,
    /// Hash of its desired Service.
    pub(crate) service: String,
}

/// A text of a PE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text {
    /// Name of its ConfigMap.
    pub(crate) config_map: String,
    /// Hash of the desired PE object that refers to it.
    pub(crate) processing_element: String,
}

impl WantedPe {
    /// The text that the PE should refer to; `None` until one is there.
    pub(crate) fn choose(&self, children: &Children) -> Option<&Text> {
        let there = |text: &&Text| children.texts.get(&text.config_map).is_some_and(|object| !object.deleting);
        self.carried.as_ref().filter(there).or_else(|| Some(&self.text).filter(there))
    }
}

/// Objects that belong to the job (controlled by it), whoever is deleting them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Children {
    /// PEs by id.
    pub(crate) processing_elements: BTreeMap<u64, Pe>,
    /// Services by PE id.
    pub(crate) services: BTreeMap<u64, Object>,
    /// Regions by index.
    pub(crate) regions: BTreeMap<u64, Object>,
    /// Host pools by index.
    pub(crate) host_pools: BTreeMap<u64, Object>,
    /// The job's own ConfigMap.
    pub(crate) job_config_map: Option<Object>,
    /// ConfigMaps with AADL, by name.
    pub(crate) texts: BTreeMap<String, Object>,
    /// ConfigMaps with chunks of the ADL and of plans, by name.
    pub(crate) chunks: BTreeMap<String, Object>,
}

impl Children {
    /// Whether there is nothing but chunks.
    pub(crate) fn only_chunks(&self) -> bool {
        self.processing_elements.is_empty()
            && self.services.is_empty()
            && self.regions.is_empty()
            && self.host_pools.is_empty()
            && self.job_config_map.is_none()
            && self.texts.is_empty()
    }
}

/// An object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Object {
    /// Hash of the desired state that was applied last.
    pub(crate) applied: String,
    /// Somebody is deleting it.
    pub(crate) deleting: bool,
}

/// A PE object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pe {
    /// The object.
    pub(crate) object: Object,
    /// `spec.generation`.
    pub(crate) generation: u64,
    /// Name of the ConfigMap that it refers to.
    pub(crate) config_map: String,
    /// A pod was created for it, now or earlier.
    pub(crate) launched: bool,
    /// How its pod is.
    pub(crate) run: Run,
}

/// How the pod of a PE is, as far as a job cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Run {
    /// It does not run yet what its spec wants, but will.
    #[default]
    Pending,
    /// It runs what its spec wants.
    Ready,
    /// It ended well and is not replaced.
    Completed,
    /// It failed or was deleted, and is not replaced.
    Down,
}

/// Long work of a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Work {
    /// Fetching the bundle, for a generation of the spec.
    pub(crate) fetch: Slot<i64, StoredAdl>,
    /// Compiling for a target.
    pub(crate) compile: Slot<Compilation, Compiled>,
    /// Writing texts of the proposal.
    pub(crate) publish: Slot<Publish, ()>,
    /// Writing texts of the committed generation again.
    pub(crate) repair: Slot<Publish, ()>,
}

impl Work {
    /// Nothing going on, nothing found out.
    pub(crate) fn idle() -> Self {
        Self { fetch: Slot::Idle, compile: Slot::Idle, publish: Slot::Idle, repair: Slot::Idle }
    }

    /// Forgets what has served its purpose once `change` is recorded: results are used once.
    pub(crate) fn used(&mut self, change: &Change) {
        match change {
            Change::JobId(_) | Change::Commit => {}
            Change::Adl(_) => self.fetch = Slot::Idle,
            Change::Propose { .. } | Change::Abandon | Change::RejectResize(_) => {
                self.compile = Slot::Idle;
                self.publish = Slot::Idle;
            }
            Change::FailSubmission(_) | Change::StartOver | Change::SubmitAgain => *self = Self::idle(),
        }
    }
}

/// What to compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compilation {
    /// Number of the generation that comes of it.
    pub(crate) generation: u64,
    /// What for.
    pub(crate) target: Target,
}

/// What compiling gave: a plan whose chunks are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compiled {
    /// The stored plan.
    pub(crate) plan: StoredPlan,
    /// The widths it has.
    pub(crate) widths: BTreeMap<String, u32>,
}

/// Which texts to write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Publish {
    /// Digest of the plan.
    pub(crate) plan: String,
    /// PEs, ascending.
    pub(crate) pe_ids: Vec<u64>,
}

/// One kind of long work: for which key it was last done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Slot<K, R> {
    /// Not asked for.
    Idle,
    /// Going on.
    Running(K),
    /// Done.
    Done(K, R),
    /// Failed.
    Failed(K, Failure),
}

/// What is known of the work for one key.
#[derive(Debug, PartialEq)]
pub(crate) enum About<'a, R> {
    /// Nothing.
    Nothing,
    /// It is going on.
    Running,
    /// It is done.
    Done(&'a R),
    /// It failed.
    Failed(&'a Failure),
}

impl<K: PartialEq, R> Slot<K, R> {
    /// What is known of the work for `key`.
    pub(crate) fn about(&self, key: &K) -> About<'_, R> {
        self.about_one(|of| of == key)
    }
}

impl<K, R> Slot<K, R> {
    fn about_one(&self, is_it: impl Fn(&K) -> bool) -> About<'_, R> {
        match self {
            Self::Running(of) if is_it(of) => About::Running,
            Self::Done(of, result) if is_it(of) => About::Done(result),
            Self::Failed(of, failure) if is_it(of) => About::Failed(failure),
            _ => About::Nothing,
        }
    }
}

impl Slot<Publish, ()> {
    /// What is known of writing texts of this plan, whichever: while they are being written, fewer and fewer are missing.
    pub(crate) fn about_plan(&self, plan: &str) -> About<'_, ()> {
        self.about_one(|of| of.plan == plan)
    }
}

/// Why long work gave no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What to do about it.
    pub(crate) remedy: Remedy,
    /// One word in CamelCase.
    pub(crate) reason: String,
    /// One sentence.
    pub(crate) message: String,
    /// Stage of the compiler.
    pub(crate) stage: Option<String>,
    /// The compiler's code.
    pub(crate) code: Option<String>,
}

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Somebody must change what is wanted.
    Correct,
    /// Try again at this time.
    Retry(Timestamp),
    /// Compile anew: the plan's compiler is gone.
    Recompile,
}
