//! What holds before a PE that runs gets what restarts it.
//!
//! A roll-out interrupts few PEs at the same time, and none as long as those that are new do not run (rule job-49).

use super::super::journal::Journal;
use super::writes::Now;
use kube::ResourceExt;
use streams_api::{PePhase, ProcessingElement, names};
use streams_proto::fusion::v1::Fate;

impl Now<'_> {
    /// A PE that runs is restarted only if roll-outs have not taken down too many already (rule job-49), and after the
    /// new ones.
    pub(super) fn few_are_down(&self, next: &ProcessingElement, journal: &Journal) {
        let Some(committed) = &self.committed else { return };
        if committed.member(next.spec.id).is_none() {
            // No roll-out restarts it.
            return;
        }
        let runs = |pe: &ProcessingElement| {
            let status = pe.status.as_ref().filter(|status| status.phase == Some(PePhase::Running))?;
            Some((status.runtime_id.clone()?, status.placement_hash.clone()))
        };
        let is_to_run = |pe: &ProcessingElement| (pe.spec.runtime_id.clone(), pe.spec.placement_hash.clone());
        let pes: Vec<ProcessingElement> = self.server.list();
        let before = pes.iter().find(|pe| pe.name_any() == next.name_any());
        // The pod of one that refers to another text than it runs goes, whatever is written now; and if a user asks.
        let asks = |before: &ProcessingElement| {
            let asked = before.annotations().get(names::ANNOTATION_RESTART_REQUESTED);
            asked.is_some() && asked != before.status.as_ref().and_then(|status| status.restart_requested.as_ref())
        };
        let stays = |before: &&ProcessingElement| runs(before) == Some(is_to_run(before)) && !asks(before);
        if before.filter(stays).is_none_or(|before| is_to_run(before) == is_to_run(next)) {
            return;
        }
        let is_down = |pe: &&ProcessingElement| {
            let status = pe.status.clone().unwrap_or_default();
            let is_going = runs(pe).is_some_and(|runs| runs != is_to_run(pe));
            let is_back = matches!(status.phase, Some(PePhase::Running | PePhase::Completed | PePhase::Suspended));
            is_going || (status.interrupted_for == Some(committed.number) && !is_back)
        };
        let is_other = |pe: &&ProcessingElement| pe.spec.id != next.spec.id && self.has_pe(pe.spec.id);
        let down: Vec<u64> = pes.iter().filter(is_other).filter(is_down).map(|pe| pe.spec.id).collect();
        let limit = self.job.spec.max_unavailable().of(committed.members().count());
        assert!(down.len() < limit, "PE {} is to be restarted while {down:?} are down", next.spec.id);
        let rollout = self.status.rollout.as_ref();
        let since = rollout.and_then(|rollout| rollout.unfinished_since.as_ref().or(rollout.started_at.as_ref()));
        let is_late = since.map(|since| since.0).is_none_or(|at| self.server.now().duration_since(at).as_secs() >= 300);
        let never_ran = |id: u64| {
            let pe = pes.iter().find(|pe| pe.spec.id == id);
            pe.is_some_and(|pe| pe.status.as_ref().is_none_or(|status| status.running_since.is_none()))
        };
        let new = committed.plan.processing_elements.iter().filter(|pe| pe.fate() == Fate::Added);
        let new: Vec<u64> =
            new.map(|pe| pe.id).filter(|id| !is_late && never_ran(*id) && !journal.unseen.contains(id)).collect();
        assert!(new.is_empty(), "PE {} is to be restarted before {new:?} run", next.spec.id);
    }
}
