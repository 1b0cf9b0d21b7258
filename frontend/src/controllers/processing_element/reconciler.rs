//! The reconciler of PEs: implements observing, deciding and acting.
//!
//! An observation comes from mirrors, which lag behind, and from answers of the API server. Therefore:
//! * the status is written by compare-and-swap; after a conflict the controller reads the PE and decides again;
//! * a pod is created only for a PE that was read or written just now, or whose launches are known, so that no pod
//!   comes back whose end was recorded meanwhile; and only if the API server has told that the pods before it are gone,
//!   or says when asked that they are, or have ended;
//! * the API server, not the mirror, is asked whether a pod is gone or was not created yet (rule pe-9).
//!
//! All other writes may be repeated without another effect.

use super::answers::Answers;
use super::counters::Counters;
use super::decide::{PeDecision, decide};
use super::last_seen::LastSeen;
use super::memory::{DeletedPods, OwnWrites, ToldRefusals};
use super::observed::PeObservation;
use crate::controllers::known_launches::KnownLaunches;
use crate::controllers::reconciler::{self, Next};
use crate::controllers::remembered::Remembered;
use crate::controllers::resizing::RollOutTimes;
use crate::controllers::restorations::Restorations;
use crate::controllers::submissions::Submissions;
use crate::mirrors::Mirrors;
use crate::owner::owner_of_child;
use crate::settings::PodSettings;
use std::fmt;
use std::sync::Arc;
use streams_kubernetes::cluster::{Cluster, Manager};
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};

/// Field manager of the PE controller (rule name-10).
const MANAGER: Manager = Manager("streams-processing-elements");

/// Keeps one pod per PE.
pub(crate) struct PeReconciler<C> {
    pub(super) cluster: C,
    pub(super) mirrors: Mirrors,
    pub(super) settings: PodSettings,
    pub(super) times: RollOutTimes,
    pub(super) counters: Counters,
    pub(super) last_seen: Arc<LastSeen>,
    pub(super) own_writes: OwnWrites,
    pub(super) deleted_pods: DeletedPods,
    pub(super) refusals: ToldRefusals,
    /// When it could not be taken back last that a PE was made again.
    pub(super) unforgotten: ToldRefusals,
    /// How often metadata of the pods of a PE was restored, as long as that counts.
    pub(super) restorations: Remembered<Restorations>,
    pub(super) known_launches: KnownLaunches,
    pub(super) submissions: Arc<Submissions>,
}

impl<C> fmt::Debug for PeReconciler<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeReconciler")
    }
}

/// What is kept of pods whose PEs are not known ends after a while.
#[cfg(test)]
pub(super) const UNKNOWN: &str = "pods of PEs that are not known";

#[cfg(test)]
impl<C> PeReconciler<C> {
    /// How much each memory has. Whoever adds a field says here whether it remembers something.
    pub(super) fn remembered(&self) -> Vec<(&'static str, usize)> {
        let Self {
            cluster: _,
            mirrors: _,
            settings: _,
            times: _,
            counters: _,
            last_seen,
            own_writes,
            deleted_pods,
            refusals,
            unforgotten,
            restorations,
            known_launches,
            submissions,
        } = self;
        let (pods, unclaimed, absences) = last_seen.len();
        let (own_writes, known_launches) = (own_writes.len(), known_launches.len());
        vec![
            ("pods seen last", pods),
            (UNKNOWN, unclaimed),
            ("absent pods", absences),
            ("own writes", own_writes),
            ("deleted pods", deleted_pods.len()),
            ("refusals", refusals.len()),
            ("unforgotten", unforgotten.len()),
            ("restorations", restorations.len()),
            ("known launches", known_launches),
            ("submissions", submissions.len()),
        ]
    }
}

impl<C: Cluster> PeReconciler<C> {
    /// A reconciler of the PEs of these mirrors.
    pub(crate) fn new(
        cluster: C,
        mirrors: &Mirrors,
        settings: PodSettings,
        times: RollOutTimes,
        counters: Counters,
        last_seen: Arc<LastSeen>,
        known_launches: KnownLaunches,
    ) -> Self {
        let restorations = Remembered::default();
        restorations.end_with(&mirrors.processing_elements);
        Self {
            cluster,
            mirrors: mirrors.clone(),
            settings,
            times,
            counters,
            last_seen,
            own_writes: OwnWrites::of(&mirrors.processing_elements),
            deleted_pods: DeletedPods::of(&mirrors.processing_elements),
            refusals: ToldRefusals::of(&mirrors.processing_elements),
            unforgotten: ToldRefusals::of(&mirrors.processing_elements),
            restorations,
            known_launches,
            submissions: Submissions::of(&mirrors.jobs, &mirrors.pods),
        }
    }

    /// Writes what belongs to this PE.
    pub(super) fn writer<'a>(&'a self, key: &'a Key) -> Writer<'a, C> {
        Writer { cluster: &self.cluster, namespace: &key.namespace, manager: MANAGER }
    }
}

impl<C: Cluster> reconciler::Reconciler for PeReconciler<C> {
    type Answers = Answers;
    type Observation = PeObservation;
    type Decision = PeDecision;

    async fn observe(&self, key: &Key, answers: &mut Answers) -> Result<Option<PeObservation>, Error> {
        if answers.pe.is_none() {
            let Some(pe) = self.mirrors.processing_elements.get(key) else {
                self.own_writes.forget(key);
                self.deleted_pods.forget(key);
                self.refusals.forget(key);
                self.unforgotten.forget(key);
                self.restorations.forget_all_of(key);
                self.last_seen.forget(key);
                self.known_launches.forget_all_of(key);
                self.submissions.forget(key, &owner_of_child(key).object);
                return Ok(None);
            };
            answers.pe = Some(self.own_writes.newer(key, &pe));
        }
        Ok(self.observed(key, answers))
    }

    fn decide(observed: &PeObservation) -> PeDecision {
        decide(observed)
    }

    async fn act(
        &self,
        key: &Key,
        answers: &mut Answers,
        observed: PeObservation,
        decision: PeDecision,
    ) -> Result<Next, Error> {
        tracing::debug!(action = ?decision.action, deletions = decision.deletions.len(), "decided");
        let priority = self.priority(key, &decision);
        priority.of(self.carry_out(key, answers, &observed, decision)).await
    }
}
