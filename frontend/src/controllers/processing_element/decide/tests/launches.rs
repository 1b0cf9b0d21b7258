//! When another launch begins, and when its pod is created.

use super::*;
use streams_api::PePhase;

#[test]
fn a_launch_that_takes_a_running_pod_down_says_for_which_generation() {
    let text = |o: &mut PeObservation| o.wanted.runtime_id = "r1".to_owned();
    let pending = ObservedPod { stage: Stage::Pending(Explanation::default()), ..pod(2) };
    let request = |o: &mut PeObservation| o.wanted.restart_requested = Some("1".to_owned());
    let committed = |generation| OwnerJob::There {
        created_at: None,
        generation: Some(generation),
        committed_at: None,
        suspended: false,
    };
    // what the PE is like -> what the next launch interrupts it for; it was interrupted for 0 before
    let table: Vec<(&str, PeObservation, Option<u64>)> = vec![
        ("text", edited(text), Some(1)),
        ("placement", edited(|o| o.template = Ok(template("t0", "p1"))), Some(1)),
        ("a later generation, which keeps the PE", edited(|o| (text(o), o.job = committed(4)).0), Some(4)),
        ("a request, and text", edited(|o| (text(o), request(o)).0), Some(1)),
        ("a request, and placement", edited(|o| (o.template = Ok(template("t0", "p1")), request(o)).0), Some(1)),
        ("a request", edited(request), Some(0)),
        ("its pod does not run", edited(|o| (text(o), o.pods = vec![pending.clone()]).0), Some(0)),
        ("its pod has ended", edited(|o| (text(o), o.pods = vec![failed(2)]).0), Some(0)),
        ("its pod runs not for long enough", edited(|o| (text(o), o.min_ready = Duration::from_secs(500)).0), Some(1)),
    ];
    for (what, mut observed, expected) in table {
        observed.status.interrupted_for = Some(0);
        let settled = settle(observed, unseen());
        assert_eq!(
            (settled.observed.status.launch_count, settled.observed.status.interrupted_for),
            (3, expected),
            "{what}"
        );
    }
}

#[test]
fn a_pe_that_has_completed_is_not_started_because_its_text_changed() {
    // exit code, restartCompletedPod -> why another pod is asked for
    let table =
        [(0, false, None), (0, true, Some(LaunchReason::TextChanged)), (1, false, Some(LaunchReason::TextChanged))];
    for (code, restart_completed, expected) in table {
        let mut observed = edited(|o| o.pods = vec![ObservedPod { stage: ended(code != 0, code, ""), ..pod(2) }]);
        observed.wanted.policies.restart_failed = false;
        let mut observed = settle(observed, unseen()).observed;
        observed.wanted.runtime_id = "r1".to_owned();
        observed.wanted.policies.restart_completed = restart_completed;
        assert_eq!(launched(observed), expected, "exit code {code}, {restart_completed}");
    }
}

#[test]
fn nothing_at_all_is_done_for_a_pe_or_a_job_that_is_being_deleted() {
    let going: [fn(&mut PeObservation); 2] = [|o| o.wanted.deleting = true, |o| o.job = OwnerJob::Deleting];
    for edit in going {
        for mut observed in [new(), running(), PeObservation { pods: vec![failed(1), failed(2)], ..running() }] {
            edit(&mut observed);
            let decision = decide(&observed);
            assert_eq!(
                (decision.action, decision.deletions, decision.status),
                (PeAction::Describe, Vec::new(), observed.status)
            );
        }
    }
}

#[test]
fn a_running_pod_is_replaced_at_once_for_these_reasons_only() {
    let pending = || Stage::Pending(Explanation::default());
    let table: Vec<(&str, PeObservation, Option<LaunchReason>)> = vec![
        ("nothing changed", running(), None),
        ("text that a running PE cannot tell apart", edited(|o| o.wanted.object_generation = Some(9)), None),
        ("text", edited(|o| o.wanted.runtime_id = "r1".to_owned()), Some(LaunchReason::TextChanged)),
        ("placement", edited(|o| o.template = Ok(template("t0", "p1"))), Some(LaunchReason::PlacementChanged)),
        ("options", edited(|o| o.template = Ok(template("t1", "p0"))), None),
        (
            "options before it ran",
            edited(|o| {
                o.template = Ok(template("t1", "p0"));
                o.pods = vec![ObservedPod { stage: pending(), ..pod(2) }];
            }),
            Some(LaunchReason::OptionsChanged),
        ),
        ("request", edited(|o| o.wanted.restart_requested = Some("1".to_owned())), Some(LaunchReason::Requested)),
        (
            "the same request",
            edited(|o| {
                o.wanted.restart_requested = Some("1".to_owned());
                o.status.restart_requested = Some("1".to_owned());
            }),
            None,
        ),
        ("request withdrawn", edited(|o| o.status.restart_requested = Some("1".to_owned())), None),
    ];
    for (what, observed, expected) in table {
        assert_eq!(launched(observed), expected, "{what}");
    }
}

#[test]
fn a_changed_text_or_a_request_starts_what_had_ended_for_good() {
    let text = ("r1", None);
    let request = ("r0", Some("1"));
    // What has completed is not done again because of its text (rule pe-18).
    for (stage, changes) in
        [(ended(true, 1, "Error"), vec![text, request]), (ended(false, 0, "Completed"), vec![request])]
    {
        let mut observed = running();
        observed.wanted.policies = Policies::default();
        observed.status.consecutive_restarts = 5;
        observed.pods = vec![ObservedPod { stage, ..pod(2) }];
        let observed = settle(observed, unseen()).observed;
        for (runtime_id, request) in changes {
            let mut observed = observed.clone();
            observed.wanted.runtime_id = runtime_id.to_owned();
            observed.wanted.restart_requested = request.map(str::to_owned);
            let status = settle(observed, unseen()).observed.status;
            assert_eq!((status.launch_count, status.consecutive_restarts, status.restarts), (3, 0, 0));
            assert_eq!(status.restart_requested.as_deref(), request);
        }
    }
}

#[test]
fn a_request_before_the_pod_was_created_is_met_by_that_pod() {
    use PeStatusChange::{Created, Launch, RequestMet};
    let asked = || {
        edited(|o| {
            o.status.launch_count = 3;
            o.status.consecutive_restarts = 5;
            o.wanted.restart_requested = Some("1".to_owned());
            o.pods.clear();
        })
    };
    let blocked = PeObservation { job: OwnerJob::Missing, ..asked() };
    // The API server has the pod, although nobody has heard of it; or the pod before still runs.
    let (unnoticed, replacing) = (pod(3), PeObservation { pods: vec![pod(2)], ..asked() });
    let noticed = PeObservation { pods: vec![unnoticed], ..asked() };
    // what is seen -> actions, launch count, request that was acted on
    let table: [(&str, PeObservation, &[PeAction], u64, Option<&str>); 4] = [
        ("not created", asked(), &[PeAction::Look, PeAction::Record(RequestMet), PeAction::Create], 3, Some("1")),
        (
            "not created, waiting",
            replacing,
            &[PeAction::Look, PeAction::Record(RequestMet), PeAction::Describe],
            3,
            Some("1"),
        ),
        ("not created, blocked", blocked, &[PeAction::Describe], 3, None),
        (
            "created",
            noticed,
            &[PeAction::Record(Created), PeAction::Record(Launch(LaunchReason::Requested)), PeAction::Describe],
            4,
            Some("1"),
        ),
    ];
    for (what, observed, actions, launch_count, request) in table {
        let settled = settle(observed, unseen());
        assert_eq!(settled.actions, actions, "{what}");
        let status = settled.observed.status;
        let expected = (launch_count, request, if request.is_some() { 0 } else { 5 });
        let got = (status.launch_count, status.restart_requested.as_deref(), status.consecutive_restarts);
        assert_eq!(got, expected, "{what}");
    }
}

#[test]
fn a_pod_is_created_once_older_ones_have_ended() {
    let asked = |pods: Vec<ObservedPod>| {
        let mut observed = PeObservation { pods, ..running() };
        observed.status.launch_count = 3;
        observed
    };
    let deleting = |by| ObservedPod { gone_by: Some(at(by)), ..pod(2) };
    // pods -> step, deletions, wake-up
    let table: [(Vec<ObservedPod>, PeAction, usize, Option<i64>); 7] = [
        (vec![], PeAction::Create, 0, None),
        (vec![pod(2)], PeAction::Describe, 1, None),
        (vec![deleting(120)], PeAction::Describe, 0, Some(150)),
        (vec![deleting(71)], PeAction::Describe, 0, Some(101)),
        // Its node has not ended it in time: nobody waits any longer.
        (vec![deleting(70)], PeAction::Create, 0, None),
        (vec![failed(2)], PeAction::Create, 1, None),
        (vec![failed(1), pod(2)], PeAction::Describe, 2, None),
    ];
    for (pods, step, deletions, wake) in table {
        let decision = decide(&asked(pods.clone()));
        assert_eq!(
            (decision.action, decision.deletions.len(), decision.wake_at),
            (step, deletions, wake.map(at)),
            "{pods:?}"
        );
    }
    // A pod of an earlier PE of the name is waited for, and left to the garbage collector.
    let decision = decide(&PeObservation { predecessors: vec![pod(7)], ..asked(vec![]) });
    assert_eq!((decision.action, decision.deletions), (PeAction::Describe, Vec::new()));
    assert_eq!(decision.status.phase, Some(PePhase::Replacing));
    // One that an earlier PE of the name has left behind is deleted by nobody else.
    let left_behind = || ObservedPod { left_behind: true, ..pod(7) };
    let decision = decide(&PeObservation { predecessors: vec![left_behind()], ..asked(vec![]) });
    assert_eq!((decision.action, decision.deletions.len()), (PeAction::Describe, 1));
    let decision = decide(&PeObservation { predecessors: vec![left_behind()], ..running() });
    assert_eq!((decision.action, decision.deletions.len()), (PeAction::Describe, 1));
    let missing = PeObservation { job: OwnerJob::Missing, predecessors: vec![left_behind()], ..asked(vec![]) };
    assert_eq!(decide(&missing).deletions, Vec::new());
    // Nothing that runs is deleted as long as nothing can take its place.
    let decision = decide(&PeObservation { job: OwnerJob::Missing, ..asked(vec![pod(2)]) });
    assert_eq!((decision.action, decision.deletions), (PeAction::Describe, Vec::new()));
}

#[test]
fn a_status_that_was_reset_goes_on_with_the_newest_pod() {
    let observed = PeObservation { pods: vec![failed(3), pod(4)], ..new() };
    let settled = settle(observed, unseen());
    assert_eq!(settled.actions, [PeAction::Record(PeStatusChange::Adopted), PeAction::Describe]);
    let status = settled.observed.status;
    assert_eq!((status.launch_count, status.created_launch_count), (4, 4));
}
