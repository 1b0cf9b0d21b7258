//! A PE that is stopped, or whose job is suspended, has no pod.

use super::*;
use streams_api::{PePhase, TerminationOutcome};

#[test]
fn while_the_job_is_suspended_no_pod_runs_and_afterwards_each_starts_again() {
    let suspend = |observed: &mut PeObservation, suspended: bool| {
        observed.job = OwnerJob::There { created_at: None, generation: Some(1), committed_at: None, suspended };
    };
    // No policy permits a restart; it is not up to them.
    let mut observed = running();
    observed.wanted.policies = Policies::default();
    observed.status.consecutive_restarts = 3;
    suspend(&mut observed, true);
    let settled = settle(observed, unseen());
    assert_eq!(settled.actions, [PeAction::Record(PeStatusChange::Ended), PeAction::Describe]);
    assert_eq!(settled.deletions, [pod(2).name]);
    let status = &settled.observed.status;
    assert_eq!((status.phase, status.launch_count), (Some(PePhase::Suspended), 2));
    let last = status.last_termination.as_ref().unwrap();
    assert_eq!((last.outcome, last.deleted_by), (TerminationOutcome::Suspended, Some(DeletedBy::Controller)));
    let mut observed = PeObservation { pods: Vec::new(), ..settled.observed };
    observed.wanted.runtime_id = "r1".to_owned();
    observed.wanted.restart_requested = Some("now".to_owned());
    let settled = settle(observed, unseen());
    assert_eq!(settled.actions, [PeAction::Describe], "whatever is asked for");
    let mut observed = settled.observed;
    observed.wanted.restart_requested = None;
    suspend(&mut observed, false);
    let settled = settle(observed, unseen());
    assert_eq!(settled.actions, [PeAction::Record(PeStatusChange::Launch(LaunchReason::Resumed)), PeAction::Create]);
    let status = settled.observed.status;
    assert_eq!((status.launch_count, status.restarts, status.consecutive_restarts), (3, 0, 0));
}

#[test]
fn a_stopped_pe_has_no_pod_whatever_else_is_wanted_and_says_so() {
    let stop = |o: &mut PeObservation| o.wanted.stop_requested = Some("1".to_owned());
    // the PE -> whether its pod is recorded to end, and deleted
    let table: Vec<(&str, PeObservation, bool)> = vec![
        ("it runs", edited(stop), true),
        ("another text", edited(|o| (stop(o), o.wanted.runtime_id = "r1".to_owned()).0), true),
        ("a request to restart", edited(|o| (stop(o), o.wanted.restart_requested = Some("r".to_owned())).0), true),
        ("somebody deletes the pod", edited(|o| (stop(o), o.pods[0].gone_by = Some(at(130))).0), false),
        ("it never had a pod", PeObservation { wanted: edited(stop).wanted, ..new() }, false),
    ];
    for (what, observed, ends) in table {
        let has_pod = !observed.pods.is_empty();
        let settled = settle(observed, unseen());
        let change = if ends { PeStatusChange::Ended } else { PeStatusChange::Stopped };
        assert_eq!(settled.actions, [PeAction::Record(change), PeAction::Describe], "{what}");
        assert_eq!(!settled.deletions.is_empty(), ends, "{what}");
        let status = &settled.observed.status;
        assert!(status.stopped && status.launch_count == if has_pod { 2 } else { 0 }, "{what}: {status:?}");
        let last = status.last_termination.as_ref().map(|last| (last.outcome, last.deleted_by));
        assert_eq!(last, ends.then_some((TerminationOutcome::Stopped, Some(DeletedBy::Controller))), "{what}");
        if ends || !has_pod {
            assert_eq!(status.phase, Some(PePhase::Stopped), "{what}");
            assert_eq!(ready(&settled.observed).1, "StopRequested", "{what}");
        }
    }
    let decision = decide(&edited(stop));
    assert_eq!(decision.notices.iter().map(|notice| &*notice.reason).collect::<Vec<_>>(), ["Stopped"]);
}

#[test]
fn what_ended_before_the_job_was_suspended_stays_ended() {
    // the pod -> outcome that is recorded
    let going = ObservedPod { gone_by: Some(at(130)), ..pod(2) };
    let completed = ObservedPod { stage: ended(false, 0, ""), ..pod(2) };
    let table = [
        (completed, Some(TerminationOutcome::Completed)),
        (failed(2), Some(TerminationOutcome::Failed)),
        (going, None),
    ];
    for (pod, expected) in table {
        let mut observed = edited(|o| o.pods = vec![pod]);
        observed.wanted.policies = Policies::default();
        observed.job = OwnerJob::There { created_at: None, generation: Some(1), committed_at: None, suspended: true };
        let mut observed = settle(observed, unseen()).observed;
        assert_eq!(observed.status.last_termination.as_ref().map(|last| last.outcome), expected);
        observed.job = OwnerJob::There { created_at: None, generation: Some(1), committed_at: None, suspended: false };
        assert_eq!(launched(observed), None);
    }
}
