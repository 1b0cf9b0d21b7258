//! What is not said of first pods while there is a crowd (rule pe-20).

use super::scenarios::{launches, settle};
use super::simulation::PeSimulation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use streams_api::{PePhase, ProposedPlan, ResizeChanges};

#[test]
fn many_pes_that_a_job_gets_are_a_crowd_of_their_own() {
    // PEs that it gets, the roll-out is over -> launches that are recorded when there is the first pod
    for (added, is_over, expected) in [(63, false, 1), (64, false, 0), (64, true, 1)] {
        let mut simulation = PeSimulation::new();
        simulation.edit_job(|status| {
            let rollout = status.rollout.get_or_insert_default();
            rollout.added = added;
            rollout.finished_at = is_over.then_some(MicroTime(Timestamp::UNIX_EPOCH));
        });
        simulation.reconcile();
        assert_eq!((launches(&simulation).0, simulation.pods().len()), (expected, 1), "{added} {is_over}");
        settle(&mut simulation);
        assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Running)), "{added} {is_over}");
    }
    // PEs that it is about to get -> what is said when the commit takes more than 10 s
    for (added, expected) in [(63, Some(PePhase::Waiting)), (64, None)] {
        let mut simulation = PeSimulation::new();
        simulation.edit_job(|status| {
            let changes = Some(ResizeChanges { added, ..ResizeChanges::default() });
            (status.generation, status.rollout) = (None, None);
            status.proposal = Some(ProposedPlan { changes, ..ProposedPlan::default() });
        });
        simulation.wait(12);
        simulation.reconcile();
        assert_eq!(launches(&simulation), (0, 0, expected), "{added}");
    }
}
