//! Pods that wait for the bundle of their job (rule pe-24).

use super::*;
use streams_api::{Connectivity, PePhase, ReportedConnectivity, UnavailableBundle, condition};

/// A PE whose pod runs and has asked for its bundle in vain, seen again.
fn waiting(edit: impl FnOnce(&mut PeObservation)) -> PeObservation {
    let mut observed = running();
    observed.status.bundle_unavailable = Some(Box::new(UnavailableBundle::new("BundleNotFound", "gone")));
    edit(&mut observed);
    observed
}

fn connected(launch_count: u64) -> Option<ReportedConnectivity> {
    Some(ReportedConnectivity { state: Connectivity::Full, launch_count, interruptions: 0 })
}

#[test]
fn a_pod_that_waits_for_its_bundle_does_not_run_yet_and_says_why() {
    let observed = waiting(|_| {});
    let decision = decide(&observed);
    assert_eq!(decision.status.phase, Some(PePhase::Starting));
    let ready = condition::get(&decision.status.conditions, condition::READY).unwrap();
    let said = (ready.status.as_str(), ready.reason.as_str(), ready.message.as_str());
    assert_eq!(said, ("False", "BundleNotFound", "the pod waits for its bundle: gone"));
    assert_eq!(decision.wake_at, Some(at(1_800)), "should nobody come to say that it has the bundle");
    // Whoever serves the bundle says so.
    let mut served = PeObservation { status: decision.status, ..observed };
    served.status.bundle_unavailable = None;
    assert_eq!(decide(&served).status.phase, Some(PePhase::Running));
}

#[test]
fn what_was_said_of_the_bundle_goes_with_the_last_pod_that_may_wait_for_it() {
    type Edit = fn(&mut PeObservation);
    let suspended = |observed: &mut PeObservation| {
        observed.job = OwnerJob::There { created_at: None, generation: Some(1), committed_at: None, suspended: true };
    };
    let put_off: Edit = |observed| {
        observed.pods = vec![failed(2)];
        observed.status.consecutive_restarts = 2;
    };
    let given_up: Edit = |observed| {
        observed.pods = vec![failed(2)];
        observed.wanted.policies.restart_failed = false;
    };
    // what else is so -> phase, whether it is still said
    let table: [(&str, Edit, PePhase, bool); 9] = [
        ("the earlier pod was connected", |o| o.status.connectivity = connected(1), PePhase::Starting, true),
        ("the pod is connected", |o| o.status.connectivity = connected(2), PePhase::Running, false),
        ("it runs for half an hour", |o| o.now = at(1_800), PePhase::Running, false),
        ("it is going", |o| o.pods[0].gone_by = Some(at(200)), PePhase::Replacing, true),
        ("it has failed, and is replaced later", put_off, PePhase::BackOff, true),
        ("it has failed, and is not replaced", given_up, PePhase::Failed, false),
        ("it has completed", |o| o.pods[0].stage = ended(false, 0, "Completed"), PePhase::Completed, false),
        ("the job is suspended", suspended, PePhase::Suspended, false),
        ("it is stopped", |o| o.wanted.stop_requested = Some("now".to_owned()), PePhase::Stopped, false),
    ];
    for (what, edit, phase, expected) in table {
        let status = settle(waiting(edit), unseen()).observed.status;
        assert_eq!((status.phase, status.bundle_unavailable.is_some()), (Some(phase), expected), "{what}");
    }
}

#[test]
fn a_pod_that_is_going_is_not_looked_at_for_its_bundle_when_it_has_run_for_half_an_hour() {
    // second of the day -> whether it is still said, when to look again: at the end of half an hour, or of the grace
    // period
    let table = [(100, true, 1_800), (1_799, true, 1_800), (1_800, false, 9_030), (2_000, false, 9_030)];
    for (now, expected, wake) in table {
        let going = waiting(|observed| {
            observed.now = at(now);
            observed.pods[0].gone_by = Some(at(9_000));
        });
        let Settled { observed, last, .. } = settle(going, unseen());
        assert_eq!(observed.status.phase, Some(PePhase::Replacing));
        assert_eq!((observed.status.bundle_unavailable.is_some(), last.wake_at), (expected, Some(at(wake))), "{now}");
    }
}

#[test]
fn a_pod_that_waits_for_its_bundle_is_not_interrupted_by_another_text() {
    for (is_waiting, expected) in [(true, None), (false, Some(1))] {
        let mut observed = waiting(|observed| observed.wanted.runtime_id = "r1".to_owned());
        if !is_waiting {
            observed.status.bundle_unavailable = None;
        }
        let status = settle(observed, unseen()).observed.status;
        assert_eq!((status.launch_count, status.interrupted_for), (3, expected), "{is_waiting}");
    }
}
