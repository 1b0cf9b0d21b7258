//! The observation of a job: plain values that the job controller decides by.
//!
//! | Module | What it is |
//! |---|---|
//! | this one | the values |
//! | [`mirrored`] | the objects of a job as the mirrors show them |
//! | [`own_writes`] | what the process has written, and the mirrors do not show yet |
//! | [`desired`] | pure: which objects should exist for a generation, as hashes |
//! | [`compared`] | what is known of the objects since that was looked at |
//! | [`drift`] | pure: what others changed of the objects |
//! | [`snapshot`] | what an observation was made from |
//!
//! The values know: names, hashes and states of the objects of one job. They must not know: specs of objects, mirrors,
//! clients.

pub(crate) mod compared;
pub(crate) mod desired;
pub(crate) mod drift;
pub(super) mod mirrored;
pub(super) mod own_writes;
pub(crate) mod snapshot;

use super::child::Child;
use super::generation::{Settled, Target};
use super::going::GoingObject;
use super::held_up::HoldUp;
use super::objects::TextVersion;
use super::objects::created_region::CreatedRegion;
use super::objects::user_ports::UserPorts;
use super::owned::Owned;
use super::refusals::outdated::UndeclaredField;
use super::requests::Requests;
use super::tasks::{Failure, Tasks};
use super::transport::Transport;
use super::waits::Words;
use super::widths::RefusedWidth;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use streams_api::{
    BundleReference, CommittedRegion, JobStatus, MaxUnavailable, OlderTexts, Placement, ResolvedFusion, Statistics,
};

/// Everything that [`decide`](super::decide::decide) depends on.
#[derive(Clone, Debug)]
pub(crate) struct JobObservation {
    /// The name of the job.
    pub(crate) name: String,
    /// The time.
    pub(crate) now: Timestamp,
    /// `metadata.generation` of the job.
    pub(crate) spec_generation: i64,
    /// The bundle that the job names.
    pub(crate) bundle: BundleReference,
    /// Digest of what compilation depends on in the job's spec.
    pub(crate) inputs: String,
    /// A user suspended the job.
    pub(crate) suspended: bool,
    /// Why the spec cannot be submitted, if the API server accepted something that cannot.
    pub(crate) refusal: Option<Failure>,
    /// What users should know of the spec of a job that runs: reason and message.
    pub(crate) spec_warnings: Vec<(String, String)>,
    /// How long things may take, and how often they are tried.
    pub(crate) deadlines: Deadlines,
    /// The status as it was written last.
    pub(crate) status: JobStatus,
    /// Until then the number of a job that has none waits for the ADL (rule job-50); `None`: it does not wait.
    pub(crate) unnumbered_until: Option<Timestamp>,
    /// How long the frontend has worked on the submission, with what is not in the status yet (rule job-18).
    pub(crate) worked: Duration,
    /// The committed generation; `None` if there is none.
    pub(crate) committed: Option<Loaded>,
    /// The generation that is being prepared; `None` if there is none.
    pub(crate) proposed: Option<Loaded>,
    /// Desired width of every region of the committed generation, by name; empty before there is one.
    pub(crate) desired_widths: BTreeMap<String, u32>,
    /// Desired widths that are refused without compiling, by region; `desired_widths` has the applied ones instead.
    pub(crate) refused_widths: BTreeMap<String, RefusedWidth>,
    /// Widths of a request that are not in the specs of their regions yet, by index of the region. `desired_widths` has
    /// them already.
    pub(crate) widths_to_take_over: BTreeMap<u64, u32>,
    /// Requests to resize, and what the compiler refused.
    pub(crate) requests: Requests,
    /// Since the last commit a compilation was given up for a newer one.
    pub(crate) has_given_up: bool,
    /// Until when the status may name chunks that it is not seen to name: a write of it was not answered. Then the
    /// API server is asked.
    pub(crate) unanswered_until: Option<Timestamp>,
    /// When this process recorded a proposal last.
    pub(crate) proposed_at: Option<Timestamp>,
    /// A chunk of the proposal is gone, and its plan cannot be stored again as it was.
    pub(crate) cannot_store_proposal: bool,
    /// Hash of the job's ConfigMap as it should be now.
    pub(crate) job_config_map: String,
    /// How many PEs a roll-out may have taken down at the same time.
    pub(crate) max_unavailable: MaxUnavailable,
    /// Objects of the job.
    pub(crate) children: Children,
    /// The Secret for transport security, if it is of concern.
    pub(crate) transport: Option<Transport>,
    /// The state of long work.
    pub(crate) tasks: Tasks,
    /// Texts and chunks that were just written count as existing until this time, although the mirror does not show
    /// them. If a user deletes one before the mirror shows it, no change of an object tells: the controller decides
    /// again at this time.
    pub(crate) written_until: Option<Timestamp>,
    /// Why an action of the last reconcile failed; `None` if none did.
    pub(crate) last_failure: Option<Failure>,
    /// What has held up the proposal for longest; `None` if nothing does.
    pub(crate) held_up: Option<HoldUp>,
    /// What was refused to the submission is known to be over, although the status does not say so yet (rule job-41).
    pub(crate) refusals_are_over: bool,
    /// Objects that carry the job's name and that it does not control, in words; only known while a name is taken.
    pub(crate) in_the_way: String,
    /// Objects that somebody else changes again and again (rule call-19).
    pub(crate) contended: Vec<Contention>,
    /// Fields that the API server does not keep (rule call-30).
    pub(crate) outdated: BTreeSet<UndeclaredField>,
    /// Objects that may be rewritten now although the job is as it was when this process began to look after it;
    /// `None` if the job has changed since then: then all may (rule job-45).
    pub(crate) rewrites: Option<usize>,
}

/// An object of which somebody else changes what the controller sets, as often as it is restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contention {
    /// Kind and name.
    pub(crate) object: String,
    /// The field that was restored last.
    pub(crate) field: String,
    /// By then it is over, unless the object has to be restored again.
    pub(crate) until: Timestamp,
}

/// How long things may take, and how often they are tried: from the job's spec and the options of the frontend.
#[derive(Clone, Debug)]
pub(crate) struct Deadlines {
    /// How long a submission may take.
    pub(crate) submission: Duration,
    /// How long a resize may take, as long as it is prepared.
    pub(crate) resize: Duration,
    /// How long its roll-out may take: as long, and as long as a pod must have been running until it counts.
    pub(crate) roll_out: Duration,
    /// How often a job is submitted before it has failed.
    pub(crate) max_attempts: u32,
}

/// A generation that the status names.
#[derive(Clone, Debug)]
pub(crate) enum Loaded {
    /// It was read.
    Whole(Arc<DesiredGeneration>),
    /// Its chunks are not complete; the text says what is missing.
    Lost(String),
}

impl Loaded {
    /// The generation, if it could be read.
    pub(crate) fn whole(&self) -> Option<&DesiredGeneration> {
        match self {
            Self::Whole(wanted) => Some(wanted),
            Self::Lost(_) => None,
        }
    }
}

/// The objects that should exist for a generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DesiredGeneration {
    /// Number of the generation.
    pub(crate) generation: u64,
    /// The target of its compilation.
    pub(crate) target: Option<Target>,
    /// Widths in force, by region.
    pub(crate) widths: BTreeMap<String, u32>,
    /// PEs by id.
    pub(crate) processing_elements: BTreeMap<u64, DesiredPe>,
    /// Regions: names by index.
    pub(crate) regions: BTreeMap<u64, String>,
    /// The regions as the status of the job lists them, without what follows from the generations before it.
    pub(crate) committed_regions: Vec<CommittedRegion>,
    /// Host pools: hash of the desired object by index.
    pub(crate) host_pools: BTreeMap<u64, String>,
    /// Exports, imports, consistent regions and their Service, and the Secret for transport security: hash of the
    /// desired object.
    pub(crate) interfaces: BTreeMap<Child, String>,
    /// PEs whose older text is replaced when they get another pod, as the status of the job lists them.
    pub(crate) older_texts: Vec<OlderTexts>,
    /// Figures for the status.
    pub(crate) statistics: Statistics,
    /// How fusion was resolved.
    pub(crate) fusion: ResolvedFusion,
    /// What was settled at the submission.
    pub(crate) settled: Settled,
    /// What users should know: reason and message.
    pub(crate) warnings: Vec<(String, String)>,
    /// PEs that may wait for what a warning says is missing, by its position. While all of them run, nothing is.
    pub(crate) waiting: BTreeMap<usize, Vec<u64>>,
}

impl DesiredGeneration {
    /// Its regions as the status of the job lists them, if `before` gives the widths before it of those that it
    /// changes, and `brought` the generations that brought the widths which they have, by index.
    pub(crate) fn regions_since(
        &self,
        before: impl Fn(u64) -> Option<u32>,
        brought: impl Fn(u64) -> Option<u64>,
    ) -> Vec<CommittedRegion> {
        let region = |region: &CommittedRegion| CommittedRegion {
            generation: brought(region.index),
            width_before: before(region.index),
            ..region.clone()
        };
        self.committed_regions.iter().map(region).collect()
    }
}

/// A PE that should exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DesiredPe {
    /// The generation that it was last started with.
    pub(crate) origin: u64,
    /// The generation adds it.
    pub(crate) is_new: bool,
    /// Whether it may be created again when a user deleted it.
    pub(crate) restartable: bool,
    /// Hash of what its pod can observe of its text.
    pub(crate) runtime_id: String,
    /// Where its pod may run; `None` is anywhere.
    pub(crate) placement: Option<Box<Placement>>,
    /// Hash of that, and of what its host pool says.
    pub(crate) placement_hash: String,
    /// Its text in this generation.
    pub(crate) text: TextReference,
    /// An older text that a running PE cannot tell from it. It is used as long as it exists.
    pub(crate) carried: Option<TextReference>,
    /// The older text may have another number of channels, which the user says that nobody asks for, and the status of
    /// the job lists the PE: if it gets another pod, it is to have the newest text (rule job-51).
    pub(crate) is_renewed: bool,
    /// Hash of its desired Service, as long as no operator has opened a port under a name.
    pub(crate) service: String,
}

/// A text of a PE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextReference {
    /// Name of its ConfigMap.
    pub(crate) config_map: String,
    /// Hash of the desired PE object that refers to it.
    pub(crate) processing_element: String,
}

impl DesiredPe {
    /// The text that the PE should refer to, among those that exist; `None` while there is none. An older text that a
    /// running PE cannot tell from the newest one is preferred: the PE object stays as it is. `current` is that object.
    pub(crate) fn choose(
        &self,
        children: &Children,
        current: Option<&ObservedPe>,
    ) -> Option<(TextVersion, &TextReference)> {
        let is_whole =
            |text: &TextReference| children.texts.get(&text.config_map).is_some_and(ObservedObject::is_whole);
        // A PE goes on with the text that it refers to while that is restored (rule job-26).
        let is_restored = |text: &TextReference| {
            let refers_to_it = current.is_some_and(|current| current.config_map == text.config_map);
            refers_to_it && *text == self.text && children.is_restored_text(&text.config_map)
        };
        let exists = |text: &TextReference| is_whole(text) || is_restored(text);
        let newest = (TextVersion::Newest, &self.text);
        let carried = self.carried.as_ref().map(|text| (TextVersion::Origin, text));
        // Once it refers to the newest text, it does not go back.
        let has_newest = || current.is_some_and(|current| current.config_map == self.text.config_map);
        let ahead = (self.wants_newest(current) || (self.is_renewed && has_newest())).then_some(newest);
        ahead.into_iter().chain(carried).chain([newest]).find(|(_, text)| exists(text))
    }

    /// The PE gets another pod, which should be made from the newest text (rule job-51).
    pub(crate) fn wants_newest(&self, current: Option<&ObservedPe>) -> bool {
        self.is_renewed && current.is_some_and(|current| current.next_pod.is_some())
    }

    /// That text is not there.
    pub(crate) fn lacks_newest(&self, children: &Children, current: Option<&ObservedPe>) -> bool {
        self.wants_newest(current) && children.lacks_text(&self.text.config_map)
    }

    /// Whether the object was written for this generation, with whichever of its texts, be it that somebody has deleted
    /// that text since.
    pub(crate) fn is_written_to(&self, current: &ObservedPe) -> bool {
        [Some(&self.text), self.carried.as_ref()]
            .into_iter()
            .flatten()
            .any(|text| text.processing_element == current.object.applied)
    }

    /// Whether the object is as it should be.
    pub(crate) fn is_applied_to(&self, current: &ObservedPe, children: &Children) -> bool {
        self.choose(children, Some(current)).is_some_and(|(_, text)| text.processing_element == current.object.applied)
    }
}

/// The objects that the job controls, also those that are being deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Children {
    /// PEs by id.
    pub(crate) processing_elements: BTreeMap<u64, ObservedPe>,
    /// PEs whose names are taken by objects that the job does not control.
    pub(crate) taken: BTreeSet<u64>,
    /// PEs that are there, though nothing is known of them: nobody can read them.
    pub(crate) unreadable: BTreeSet<u64>,
    /// Services by PE id.
    pub(crate) services: BTreeMap<u64, ObservedObject>,
    /// Regions by index.
    pub(crate) regions: BTreeMap<u64, ObservedRegion>,
    /// Host pools by index.
    pub(crate) host_pools: BTreeMap<u64, ObservedObject>,
    /// Exports, imports, consistent regions and their Service, and the Secret for transport security.
    pub(crate) interfaces: BTreeMap<Child, ObservedObject>,
    /// Consistent regions that have given up, by index; none that is being deleted.
    pub(crate) exhausted_regions: BTreeSet<u64>,
    /// The job's own ConfigMap.
    pub(crate) job_config_map: Option<ObservedObject>,
    /// ConfigMaps with AADL, by name.
    pub(crate) texts: BTreeMap<String, ObservedObject>,
    /// ConfigMaps with chunks of the ADL and of plans, by name.
    pub(crate) chunks: BTreeMap<String, ObservedObject>,
    /// ConfigMaps with texts and chunks, by name, that are not restored before this time, which is still to come:
    /// somebody else changes them as often as they are restored (rule call-19). They need not be shown: somebody may
    /// have taken their labels.
    pub(crate) held_back: BTreeMap<String, Timestamp>,
    /// Chunks that were just written and that are not shown yet, by name.
    pub(crate) just_stored: BTreeSet<String>,
    /// Ports that operators have opened under a name.
    pub(crate) user_ports: UserPorts,
}

impl ObservedObject {
    /// It stays, and as far as can be seen its content is what was written.
    pub(crate) fn is_whole(&self) -> bool {
        !self.deleting && !self.drift.as_ref().is_some_and(|drift| drift.of_content)
    }
}

impl Children {
    /// There is no such PE, and none is made again: a user has deleted it, and it must not be started again (rule
    /// job-27). One that cannot be read was not deleted.
    pub(crate) fn stays_away(&self, id: u64, pe: &DesiredPe) -> bool {
        !pe.restartable && !self.processing_elements.contains_key(&id) && !self.unreadable.contains(&id)
    }

    /// The text of this ConfigMap is to be written: there is none, the controller has just deleted it, or somebody else
    /// has written it. Not while others delete it, or it does not go, nor before its time.
    pub(crate) fn lacks_text(&self, name: &str) -> bool {
        let lacks = |text: &ObservedObject| text.just_deleted || (!text.deleting && !text.is_whole());
        let is_lacking = self.texts.get(name).is_none_or(lacks);
        is_lacking && !self.held_back.contains_key(name)
    }

    /// Somebody else has written the text of this ConfigMap, and it is written again, perhaps later.
    fn is_restored_text(&self, name: &str) -> bool {
        match self.texts.get(name) {
            Some(text) => !text.deleting && !text.is_whole(),
            None => self.held_back.contains_key(name),
        }
    }

    /// What somebody has changed of the object with this key.
    pub(crate) fn drift(&self, owned: &Owned) -> Option<&ObservedDrift> {
        self.get(owned)?.drift.as_ref()
    }

    /// There is an object with this key, and nobody has changed it.
    pub(crate) fn has_undrifted(&self, owned: &Owned) -> bool {
        self.get(owned).is_some_and(|object| object.drift.is_none())
    }

    fn get(&self, owned: &Owned) -> Option<&ObservedObject> {
        match owned {
            Owned::Child(Child::ProcessingElement(id)) => self.processing_elements.get(id).map(|pe| &pe.object),
            Owned::Child(Child::Service(id)) => self.services.get(id),
            Owned::Child(Child::Region(index)) => self.regions.get(index).map(|region| &region.object),
            Owned::Child(Child::HostPool(index)) => self.host_pools.get(index),
            Owned::Child(Child::JobConfigMap) => self.job_config_map.as_ref(),
            Owned::Child(child) => self.interfaces.get(child),
            Owned::ConfigMap(name) => self.texts.get(name).or_else(|| self.chunks.get(name)),
        }
    }

    /// The object with this key.
    pub(crate) fn object(&mut self, owned: &Owned) -> Option<&mut ObservedObject> {
        match owned {
            Owned::Child(Child::ProcessingElement(id)) => self.processing_elements.get_mut(id).map(|pe| &mut pe.object),
            Owned::Child(Child::Service(id)) => self.services.get_mut(id),
            Owned::Child(Child::Region(index)) => self.regions.get_mut(index).map(|region| &mut region.object),
            Owned::Child(Child::HostPool(index)) => self.host_pools.get_mut(index),
            Owned::Child(Child::JobConfigMap) => self.job_config_map.as_mut(),
            Owned::Child(child) => self.interfaces.get_mut(child),
            Owned::ConfigMap(name) => {
                let text = self.texts.get_mut(name);
                text.or_else(|| self.chunks.get_mut(name))
            }
        }
    }

    /// Adds an object of a kind whose mirror selects by a label (rule call-6), unless it is known anyway.
    pub(crate) fn add_unseen(&mut self, child: Child, object: ObservedObject) {
        match child {
            Child::Service(id) => {
                self.services.entry(id).or_insert(object);
            }
            Child::ConsistentRegionService => {
                self.interfaces.entry(child).or_insert(object);
            }
            Child::JobConfigMap => {
                self.job_config_map.get_or_insert(object);
            }
            Child::ProcessingElement(_)
            | Child::Region(_)
            | Child::HostPool(_)
            | Child::Export(_)
            | Child::Import(_)
            | Child::ConsistentRegion(_)
            | Child::TransportSecret => {}
        }
    }

    /// Whether there is nothing but chunks.
    pub(crate) fn only_chunks(&self) -> bool {
        self.processing_elements.is_empty()
            && self.services.is_empty()
            && self.regions.is_empty()
            && self.host_pools.is_empty()
            && self.interfaces.is_empty()
            && self.job_config_map.is_none()
            && self.texts.is_empty()
    }
}

/// An object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObservedObject {
    /// Hash of the desired state that was applied last: by what the object says, or if somebody has changed that, by
    /// what is known of it.
    pub(crate) applied: String,
    /// Somebody is deleting it.
    pub(crate) deleting: bool,
    /// It is the controller, and the mirror does not show that yet. Most objects are gone by then.
    pub(crate) just_deleted: bool,
    /// What it says of its deletion; `None` if that is not shown.
    pub(crate) going: Option<Arc<GoingObject>>,
    /// Somebody has changed what the controller set.
    pub(crate) drift: Option<ObservedDrift>,
    /// Of an export or import, the generation that has added it; 0 if it is the first one, or if that is not known.
    pub(crate) since: u64,
}

/// A field of an object that differs from what was applied (rule call-19).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedDrift {
    /// The field.
    pub(crate) field: String,
    /// It is not restored before this time, because it was restored too often.
    pub(crate) not_before: Option<Timestamp>,
    /// It concerns the content of a ConfigMap, which long work writes again.
    pub(crate) of_content: bool,
}

/// A region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObservedRegion {
    /// The object.
    pub(crate) object: ObservedObject,
    /// What it was created as; `None` if it was just created as it is wanted, and is not shown yet.
    pub(crate) created: Option<CreatedRegion>,
    /// When it was created, if it has not said any width yet; `None` also if it is not shown yet.
    pub(crate) silent_since: Option<Timestamp>,
    /// The version of the object that all this is known of; `None` if it is not shown yet.
    pub(crate) version: Option<String>,
}

/// A PE object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObservedPe {
    /// The object.
    pub(crate) object: ObservedObject,
    /// `spec.generation`.
    pub(crate) generation: u64,
    /// Generation of the text that its pod was made from, if it runs; as the mirror shows it, whatever was written
    /// since.
    pub(crate) running_generation: u64,
    /// Name of the ConfigMap that it refers to.
    pub(crate) config_map: String,
    /// A pod was created for it, now or earlier.
    pub(crate) launched: bool,
    /// The state of its pod.
    pub(crate) run: PodState,
    /// Its pod runs, perhaps an older text, and perhaps not for long enough to count as running.
    pub(crate) has_running_pod: bool,
    /// That pod was made from another text than the PE refers to, or must run somewhere else: it is about to be
    /// replaced.
    pub(crate) runs_another: bool,
    /// Since when it runs.
    pub(crate) running_since: Option<Timestamp>,
    /// Its pod is on its way, or waits for the one before it to go.
    pub(crate) is_starting: bool,
    /// When it is to get another pod; `None` as long as the one that it has goes on, or none is to follow.
    pub(crate) next_pod: Option<NextPod>,
    /// A user stopped it.
    pub(crate) is_stopped: bool,
    /// It said last that its pod has completed, and is not replaced, be it with an older spec.
    pub(crate) has_completed: bool,
    /// Hash of what its pod can observe of the text that it was made from.
    pub(crate) runtime_id: Option<String>,
    /// Where its spec says that the pod may run; `None` is anywhere.
    pub(crate) placement: Option<Box<Placement>>,
    /// Hash of where its spec says that the pod must run; `None` if an earlier frontend has written it.
    pub(crate) placement_hash: Option<String>,
    /// Hash of where its pod had to run when it was created; `None` if an earlier frontend has created it.
    pub(crate) pod_placement_hash: Option<String>,
    /// Generation whose roll-out took down a pod that ran.
    pub(crate) interrupted_for: Option<u64>,
    /// Its pod, which runs, has told that it has all of its connections.
    pub(crate) is_connected: bool,
    /// Why a pod of it has not got the bundle that it asks for, if that is so.
    pub(crate) lacks_bundle: Option<Box<Words>>,
    /// What it says of itself, unless it runs.
    pub(crate) says: Words,
    /// What it says of its options, if its pod lives and they permit no other one (rule pe-12).
    pub(crate) permits_no_pod: Option<Words>,
    /// It says that its pod, which lives, was made from other options than it has now (rule pe-12).
    pub(crate) has_older_options: bool,
    /// Its pod lives, and what it says was said before it was written last.
    pub(crate) is_behind: bool,
    /// It is being deleted, no generation has it, and nobody deletes its pods.
    pub(crate) has_pods_left: bool,
}

impl ObservedPe {
    /// The state of its pod for a job that wants this of the PE. What was written a moment ago may not be shown yet.
    pub(crate) fn state(&self, wanted: &DesiredPe) -> PodState {
        match self.run {
            PodState::Ready if self.is_made_from_other_than(wanted) => PodState::Pending,
            run => run,
        }
    }

    /// It stays as it is, with its pod or without one, when its object becomes what the job wants.
    pub(crate) fn stays_as_it_is(&self, wanted: &DesiredPe) -> bool {
        match self.run {
            PodState::Completed | PodState::Suspended => true,
            PodState::Ready => !self.is_made_from_other_than(wanted),
            PodState::Down => self.is_stopped || self.runtime_id.as_ref() == Some(&wanted.runtime_id),
            PodState::Pending => false,
        }
    }

    /// Its pod, which runs, is replaced whatever the job writes now. What others have changed is restored before it has
    /// an effect.
    pub(crate) fn is_going(&self) -> bool {
        self.runs_another && !self.is_stopped && self.object.drift.is_none()
    }

    /// Its pod, if it has one, is replaced when its object becomes what the job wants.
    pub(crate) fn is_made_from_other_than(&self, wanted: &DesiredPe) -> bool {
        self.runtime_id.as_ref() != Some(&wanted.runtime_id) || self.is_moved(wanted)
    }

    /// Its pod must run somewhere else when its object becomes what the job wants.
    fn is_moved(&self, wanted: &DesiredPe) -> bool {
        if let Some(pod) = &self.pod_placement_hash {
            return *pod != wanted.placement_hash;
        }
        // What others have changed of its placement is restored before it has an effect.
        let is_written_otherwise = self.placement != wanted.placement
            || self.placement_hash.as_ref().is_some_and(|written| *written != wanted.placement_hash);
        self.object.drift.is_none() && is_written_otherwise
    }
}

/// When a PE that has no pod which goes on gets another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextPod {
    /// As soon as nothing stands in the way.
    Soon,
    /// Once its job is not suspended any more.
    OnceResumed,
    /// Once a user does not want it to be stopped any more.
    OnceContinued,
}

/// Whether a pod that was made for the one place must be replaced for the other. It is left alone if one of them is not
/// known: an earlier frontend has written it.
pub(crate) fn must_move(pod: Option<&String>, wanted: Option<&String>) -> bool {
    pod.zip(wanted).is_some_and(|(pod, wanted)| pod != wanted)
}

/// Whether that says if a pod must be replaced. Of one that an earlier frontend has made the PE controller finds out.
pub(crate) fn is_place_known(pod: Option<&String>, wanted: Option<&String>) -> bool {
    pod.is_some() || wanted.is_none()
}

/// Where a pod may run, if not anywhere. By which label it is put there moves no pod.
pub(crate) fn placed(placement: &Placement) -> Option<Box<Placement>> {
    let placement = Placement { group: None, ..placement.clone() };
    (!placement.is_empty()).then(|| Box::new(placement))
}

/// The state of the pod of a PE, as far as the job depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PodState {
    /// It does not run the spec of the PE yet, but will.
    #[default]
    Pending,
    /// It runs the spec of the PE.
    Ready,
    /// It ended well and is not replaced, whatever text the PE has by now.
    Completed,
    /// It failed or was deleted, and is not replaced.
    Down,
    /// There is none because the job is suspended.
    Suspended,
}
