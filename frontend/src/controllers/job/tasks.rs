//! The state of long work: requests, progress, outputs.
//!
//! There is one [`Slot`] for each kind. A request names exactly what it is for (rule job-4). A reconcile
//! requests work ([`Task`]) and reads the slots later; [`long_work`](super::long_work) does the work and fills the
//! slots.
//!
//! Knows: plain values. Must not know: how work is done, nor why it is requested.

use super::generation::{Generation, Target};
use crate::fusion::RenderedText;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use streams_api::{BundleReference, PullPolicy, ResizeChanges, StoredAdl, StoredPlan};
use streams_kubernetes::Key;
use tokio::sync::OwnedSemaphorePermit;

/// A kind of long work. A job has at most one task of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TaskKind {
    /// See [`Task::Fetch`].
    Fetch,
    /// See [`Task::Compile`].
    Compile,
    /// See [`Task::Publish`].
    Publish,
    /// See [`Task::Repair`].
    Repair,
    /// See [`Task::Renew`].
    Renew,
}

impl fmt::Display for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fetch => "fetch",
            Self::Compile => "compile",
            Self::Publish => "publish",
            Self::Repair => "repair",
            Self::Renew => "renew",
        })
    }
}

/// Long work, as it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Task {
    /// Fetch the bundle that the job names, and write the chunks of its ADL.
    Fetch(FetchRequest),
    /// Compile, and write the chunks of the plan.
    Compile(CompileRequest),
    /// Write texts of the generation that is proposed, or is being proposed.
    Publish(PublishRequest),
    /// Write texts of the committed generation again, without which PEs cannot go on.
    Repair(PublishRequest),
    /// Write the newest texts of PEs that could go on with older ones (rule job-51).
    Renew(RenewRequest),
}

impl Task {
    /// Whether somebody waits for it, if the job runs.
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Fetch(_) | Self::Compile(_) | Self::Publish(_) | Self::Repair(_) => true,
            Self::Renew(request) => request.is_urgent,
        }
    }
}

/// Which bundle to fetch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FetchRequest {
    /// `metadata.generation` of the job that asked for it first.
    pub(crate) spec_generation: i64,
    /// How that names the bundle: nothing else in the spec says what is fetched.
    pub(crate) bundle: BundleReference,
}

/// What to compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompileRequest {
    /// Number of the generation that comes of it.
    pub(crate) generation: u64,
    /// What for.
    pub(crate) target: Target,
}

/// What a compilation gave: a plan whose chunks are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compiled {
    /// The stored plan.
    pub(crate) plan: StoredPlan,
    /// The widths it has.
    pub(crate) widths: BTreeMap<String, u32>,
    /// What it does to the PEs of the generation before.
    pub(crate) changes: ResizeChanges,
    /// PEs that are new or restarted, ascending, each with the name of the ConfigMap that its text belongs in.
    pub(crate) texts: Arc<[(u64, String)]>,
}

/// The plan of a resize whose chunks are being written, and perhaps its texts as well (rule job-3).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BeingStored {
    /// The plan as it will be stored.
    pub(crate) plan: StoredPlan,
    /// What it says: nobody can read it yet.
    pub(crate) generation: Arc<Generation>,
}

/// Small texts that came with the answer of the compiler.
#[derive(Debug)]
pub(crate) struct TextsAtHand {
    /// Digest of the plan that they are of.
    pub(crate) plan: String,
    /// By PE.
    pub(crate) by_pe: BTreeMap<u64, RenderedText>,
    /// Their share of what all jobs together may have at hand.
    _room: OwnedSemaphorePermit,
}

impl TextsAtHand {
    /// Texts of this plan, which have this room.
    pub(super) fn new(plan: String, by_pe: BTreeMap<u64, RenderedText>, room: OwnedSemaphorePermit) -> Self {
        Self { plan, by_pe, _room: room }
    }
}

/// Which texts to write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PublishRequest {
    /// Digest of the plan.
    pub(crate) plan: String,
    /// PEs, ascending.
    pub(crate) pe_ids: Vec<u64>,
}

/// Which newest texts to write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RenewRequest {
    /// The texts.
    pub(crate) texts: PublishRequest,
    /// Their PEs are about to get other pods. If not, they get them when a user says so.
    pub(crate) is_urgent: bool,
}

/// The long work of a job, a slot for each kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tasks {
    /// Fetching the bundle.
    pub(crate) fetch: Slot<FetchRequest, StoredAdl>,
    /// Compiling for a target.
    pub(crate) compile: Slot<CompileRequest, Compiled>,
    /// The plan that the compilation which is under way has given for a resize.
    being_stored: Option<BeingStored>,
    /// Writing texts of the proposal.
    pub(crate) publish: Slot<PublishRequest, ()>,
    /// Writing texts of the committed generation again.
    pub(crate) repair: Slot<PublishRequest, ()>,
    /// Writing newest texts. Nothing but that depends on it, whatever becomes of it.
    pub(crate) renew: Slot<RenewRequest, ()>,
}

impl Tasks {
    /// Nothing was asked for yet.
    pub(crate) fn idle() -> Self {
        Self {
            fetch: Slot::Idle,
            compile: Slot::Idle,
            being_stored: None,
            publish: Slot::Idle,
            repair: Slot::Idle,
            renew: Slot::Idle,
        }
    }

    /// The compilation for this request has given a plan, which is stored from now on. Says whether that compilation is
    /// still wanted.
    pub(crate) fn begin_to_store(&mut self, request: &CompileRequest, plan: BeingStored) -> bool {
        let is_wanted = self.compile.running() == Some(request);
        if is_wanted {
            self.being_stored = Some(plan);
        }
        is_wanted
    }

    /// The generation with the plan of this digest, if that is being stored.
    pub(crate) fn generation_being_stored(&self, sha256: &str) -> Option<Arc<Generation>> {
        let stored = self.being_stored().filter(|stored| stored.plan.sha256 == sha256);
        stored.map(|stored| Arc::clone(&stored.generation))
    }

    /// The plan of a resize that is being stored.
    pub(crate) fn being_stored(&self) -> Option<&BeingStored> {
        self.being_stored.as_ref().filter(|_| self.compile.running().is_some())
    }

    /// Nothing is being stored any more. Returns what was.
    pub(crate) fn end_storing(&mut self) -> Option<StoredPlan> {
        self.being_stored.take().map(|stored| stored.plan)
    }

    /// Whether work of this kind was asked for, and is not over.
    pub(crate) fn is_running(&self, kind: TaskKind) -> bool {
        match kind {
            TaskKind::Fetch => self.fetch.running().is_some(),
            TaskKind::Compile => self.compile.running().is_some(),
            TaskKind::Publish => self.publish.running().is_some(),
            TaskKind::Repair => self.repair.running().is_some(),
            TaskKind::Renew => self.renew.running().is_some(),
        }
    }

    /// A generation is being compiled, or its texts are being written.
    pub(crate) fn is_compiling(&self) -> bool {
        let is_idle = matches!(self.compile, Slot::Idle | Slot::Failed(..));
        !is_idle || !matches!(self.publish, Slot::Idle | Slot::Failed(..))
    }

    /// What has failed may be asked for again at once. What is under way goes on, and what is done stays.
    pub(crate) fn forget_failures(&mut self) {
        self.fetch.forget_failure();
        self.compile.forget_failure();
        self.publish.forget_failure();
        self.repair.forget_failure();
        self.renew.forget_failure();
    }

    /// Why work has failed that is tried again, and that the job cannot do without.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &Failure> {
        [self.fetch.failure(), self.compile.failure(), self.publish.failure(), self.repair.failure()]
            .into_iter()
            .flatten()
    }
}

/// The state of one kind of long work. `R` is the request, `O` the output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Slot<R, O> {
    /// Nothing was asked for, or the output has been used.
    Idle,
    /// The request is queued or being worked on.
    Running(R),
    /// The request was carried out.
    Done(R, O),
    /// The request failed.
    Failed(R, Failure),
}

/// How far the work for one request is.
#[derive(Debug, PartialEq)]
pub(crate) enum Progress<'a, O> {
    /// It was not asked for.
    NotRequested,
    /// It is queued or being worked on.
    Running,
    /// It is done.
    Done(&'a O),
    /// It failed.
    Failed(&'a Failure),
}

impl<R: PartialEq, O> Slot<R, O> {
    /// How far the work for `request` is.
    pub(crate) fn progress_of(&self, request: &R) -> Progress<'_, O> {
        self.progress_if(|of| of == request)
    }
}

impl<R, O> Slot<R, O> {
    /// The request that is queued or being worked on.
    pub(crate) fn running(&self) -> Option<&R> {
        match self {
            Self::Running(request) => Some(request),
            _ => None,
        }
    }

    /// The request that was made last, unless its output has been used.
    pub(crate) fn request(&self) -> Option<&R> {
        match self {
            Self::Idle => None,
            Self::Running(request) | Self::Done(request, _) | Self::Failed(request, _) => Some(request),
        }
    }

    fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(_, failure) => Some(failure),
            _ => None,
        }
    }

    fn forget_failure(&mut self) {
        if self.failure().is_some() {
            *self = Self::Idle;
        }
    }

    fn progress_if(&self, is_meant: impl Fn(&R) -> bool) -> Progress<'_, O> {
        match self {
            Self::Running(of) if is_meant(of) => Progress::Running,
            Self::Done(of, output) if is_meant(of) => Progress::Done(output),
            Self::Failed(of, failure) if is_meant(of) => Progress::Failed(failure),
            _ => Progress::NotRequested,
        }
    }
}

impl Slot<FetchRequest, StoredAdl> {
    /// How far the fetching of this bundle is, also if an earlier spec has asked for it that names the same one, unless
    /// its server is always to be asked: another bundle may have come there just before the edit. Nor is a failure of
    /// then one of now: an edit is how somebody says that it may work by now.
    pub(crate) fn progress_of_bundle(&self, request: &FetchRequest) -> Progress<'_, StoredAdl> {
        let is_of_one_spec = self.failure().is_some() || request.bundle.pull_policy == PullPolicy::Always;
        self.progress_if(|of| if is_of_one_spec { of == request } else { of.bundle == request.bundle })
    }
}

impl Slot<PublishRequest, ()> {
    /// How far the writing of texts of this plan is, whichever PEs were asked for: while texts are being written, the
    /// watch shows fewer and fewer as missing.
    pub(crate) fn progress_of_plan(&self, plan: &str) -> Progress<'_, ()> {
        self.progress_if(|of| of.plan == plan)
    }
}

impl Slot<RenewRequest, ()> {
    /// How far the writing of at least these texts is. What is under way for the plan is given up only for what is more
    /// urgent, not for more texts. A failure is no answer for a text that was not asked for then, or not so urgently.
    pub(crate) fn progress_of_texts(&self, request: &RenewRequest) -> Progress<'_, ()> {
        let RenewRequest { texts, is_urgent } = request;
        let is_under_way = self.running().is_some();
        let has_all = |of: &PublishRequest| texts.pe_ids.iter().all(|id| of.pe_ids.binary_search(id).is_ok());
        self.progress_if(|of| {
            let is_of_plan = of.texts.plan == texts.plan;
            is_of_plan && (of.is_urgent || !is_urgent) && (is_under_way || has_all(&of.texts))
        })
    }
}

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What helps.
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

impl Failure {
    /// It may pass by itself.
    pub(crate) fn is_temporary(&self) -> bool {
        self.remedy != Remedy::Correct
    }
}

/// The remedy of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// A user must change the spec or a width.
    Correct,
    /// Try again at this time.
    Retry(Timestamp),
    /// Compile again, not before this time: no replica runs the compiler of the plan any more.
    Recompile(Timestamp),
}

/// An entry of the queue of long work: one per job and kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WorkItem {
    /// The job.
    pub(crate) job: Key,
    /// The kind of work.
    pub(crate) kind: TaskKind,
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.job, self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_fetched_for_all_specs_that_name_it_and_a_failure_is_of_one_spec() {
        let request = |spec_generation, name: &str, pull_policy| FetchRequest {
            spec_generation,
            bundle: BundleReference { name: Some(name.to_owned()), pull_policy, ..BundleReference::default() },
        };
        let (kept, always) = (PullPolicy::IfNotPresent, PullPolicy::Always);
        let failure =
            Failure { remedy: Remedy::Correct, reason: String::new(), message: String::new(), stage: None, code: None };
        // asked for now, after the same for the spec of generation 3 and the bundle a -> what is under way counts, what
        // is done, what has failed
        let table = [
            (request(3, "a", kept), [true, true, true]),
            (request(4, "a", kept), [true, true, false]),
            (request(3, "b", kept), [false, false, false]),
            (request(4, "b", kept), [false, false, false]),
            (request(3, "a", always), [true, true, true]),
            (request(4, "a", always), [false, false, false]),
        ];
        for (now, expected) in table {
            let before = request(3, "a", now.bundle.pull_policy);
            let slots = [
                Slot::Running(before.clone()),
                Slot::Done(before.clone(), StoredAdl::default()),
                Slot::Failed(before, failure.clone()),
            ];
            let counts = slots.map(|slot| slot.progress_of_bundle(&now) != Progress::NotRequested);
            assert_eq!(counts, expected, "{now:?}");
        }
    }

    #[test]
    fn newest_texts_are_asked_for_unless_as_many_of_them_were_as_urgently() {
        let request = |plan: &str, pe_ids: &[u64], is_urgent| RenewRequest {
            texts: PublishRequest { plan: plan.to_owned(), pe_ids: pe_ids.to_vec() },
            is_urgent,
        };
        let failure = Failure {
            remedy: Remedy::Retry(Timestamp::MAX),
            reason: String::new(),
            message: String::new(),
            stage: None,
            code: None,
        };
        // asked for before, asked for now -> start it although the one before is under way, although it has failed
        let table = [
            (request("p", &[3, 5], true), request("p", &[3, 5], true), false, false),
            (request("p", &[3, 5], true), request("p", &[5], false), false, false),
            (request("p", &[3, 5], true), request("p", &[3, 4], true), false, true),
            (request("p", &[3, 5], false), request("p", &[3, 4], false), false, true),
            (request("p", &[3, 5], false), request("p", &[5], true), true, true),
            (request("o", &[3, 5], true), request("p", &[5], true), true, true),
        ];
        for (before, now, while_under_way, after_failure) in table {
            let case = format!("{before:?} {now:?}");
            let is_started = |slot: Slot<RenewRequest, ()>| slot.progress_of_texts(&now) == Progress::NotRequested;
            assert_eq!(is_started(Slot::Running(before.clone())), while_under_way, "{case}");
            assert_eq!(is_started(Slot::Failed(before, failure.clone())), after_failure, "{case}");
        }
    }
}
