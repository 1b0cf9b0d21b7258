//! What a pod has told of its connections goes with the pod (rule pe-api-4).

use super::*;
use streams_api::{Connectivity, PePhase, ReportedConnectivity};

fn connected(launch_count: u64) -> Option<ReportedConnectivity> {
    Some(ReportedConnectivity { state: Connectivity::Full, launch_count, interruptions: 0 })
}

#[test]
fn what_a_pod_has_told_goes_with_the_write_that_says_that_it_is_over() {
    type Edit = fn(&mut PeObservation);
    let put_off: Edit = |observed| {
        observed.pods = vec![failed(2)];
        observed.status.consecutive_restarts = 2;
    };
    let given_up: Edit = |observed| {
        observed.pods = vec![failed(2)];
        observed.wanted.policies.restart_failed = false;
    };
    let suspended: Edit = |observed| {
        observed.job = OwnerJob::There { created_at: None, generation: Some(1), committed_at: None, suspended: true };
    };
    // what becomes of the PE whose pod is connected -> phase, whether that still counts
    let table: [(&str, Edit, PePhase, bool); 10] = [
        ("it runs", |_| {}, PePhase::Running, true),
        ("its pod is going", |o| o.pods[0].gone_by = Some(at(200)), PePhase::Replacing, true),
        ("it has failed, and is replaced", |o| o.pods = vec![failed(2)], PePhase::Starting, false),
        ("it has failed, and is replaced later", put_off, PePhase::BackOff, false),
        ("it has failed, and is not replaced", given_up, PePhase::Failed, false),
        ("it has completed", |o| o.pods[0].stage = ended(false, 0, "Completed"), PePhase::Completed, false),
        ("its pod is gone", |o| o.pods.clear(), PePhase::Starting, false),
        ("it has another text", |o| o.wanted.runtime_id = "r1".to_owned(), PePhase::Replacing, false),
        ("its job is suspended", suspended, PePhase::Suspended, false),
        ("it is stopped", |o| o.wanted.stop_requested = Some("now".to_owned()), PePhase::Stopped, false),
    ];
    for (what, edit, phase, expected) in table {
        let [told, silent] = [connected(2), None].map(|connectivity| {
            let observed = edited(|observed| {
                observed.status.connectivity = connectivity;
                edit(observed);
            });
            settle(observed, unseen())
        });
        let status = &told.observed.status;
        assert_eq!((status.phase, status.connectivity.is_some()), (Some(phase), expected), "{what}");
        assert_eq!(told.actions, silent.actions, "it costs no write of its own: {what}");
    }
}

#[test]
fn what_is_left_of_a_pod_that_is_over_is_taken_away_and_nothing_else() {
    // launch of the pod that has told -> whether it still counts, while that of launch 2 runs
    for (launch_count, expected) in [(1, false), (2, true), (3, true)] {
        let decision = decide(&edited(|observed| observed.status.connectivity = connected(launch_count)));
        assert_eq!((decision.action, decision.status.connectivity.is_some()), (PeAction::Describe, expected));
    }
    // The first pod may be quicker than what is recorded of it.
    let mut first = PeObservation { pods: vec![pod(1)], ..new() };
    first.status.connectivity = connected(1);
    let settled = settle(first, unseen());
    assert_eq!((settled.observed.status.launch_count, settled.observed.status.connectivity), (1, connected(1)));
}
