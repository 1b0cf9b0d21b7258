//! Everything but the policies: when a pod is asked for, and when it is created.

use super::*;
use streams_api::{PePhase, TerminationOutcome, condition};

fn launched(observed: PeObservation) -> Option<LaunchReason> {
    settle(observed, unseen()).actions.into_iter().find_map(|step| match step {
        PeAction::Record(PeStatusChange::Launch(reason)) => Some(reason),
        _ => None,
    })
}

fn ready(observed: &PeObservation) -> (String, String) {
    let status = settle(observed.clone(), unseen()).observed.status;
    let ready = condition::get(&status.conditions, condition::READY).unwrap();
    (ready.status.clone(), ready.reason.clone())
}

fn edited(edit: impl FnOnce(&mut PeObservation)) -> PeObservation {
    let mut observed = running();
    edit(&mut observed);
    observed
}

#[test]
fn the_first_pod_is_created_then_recorded() {
    let settled = settle(new(), unseen());
    assert_eq!((settled.actions, &settled.observed.status), (vec![PeAction::Create], &new().status));
    let mut created = PeObservation { pods: vec![pod(1)], ..settled.observed };
    // Whoever requests a restart now means this pod.
    created.wanted.restart_requested = Some("now".to_owned());
    let first = PeAction::Record(PeStatusChange::Launch(LaunchReason::First));
    assert_eq!(settle(created.clone(), unseen()).observed.status.launch_count, 2);
    created.wanted.restart_requested = None;
    let settled = settle(created, unseen());
    assert_eq!(settled.actions, [first, PeAction::Describe]);
    let status = settled.observed.status;
    assert_eq!((status.launch_count, status.created_launch_count, status.phase), (1, 1, Some(PePhase::Running)));
    assert_eq!(status.pod_name, Some(pod(1).name));
    assert_eq!((status.runtime_id.as_deref(), status.content_id.as_deref()), (Some("r0"), Some("c0")));
    assert_eq!((status.node_name.as_deref(), status.running_since), (Some("node"), time(0)));
}

#[test]
fn in_a_crowd_the_first_pod_is_recorded_when_it_runs() {
    let pending = ObservedPod { stage: Stage::Pending(Explanation::default()), node: None, ..pod(1) };
    let of = |pod: ObservedPod| PeObservation { now: at(3), pods: vec![pod], may_wait_long: true, ..new() };
    // second -> when it is looked at again: there may be no crowd any more by then
    for (second, again) in [(3, 13), (29, 39), (55, 60)] {
        let decision = decide(&PeObservation { now: at(second), ..of(pending.clone()) });
        let expected = (PeAction::Describe, new().status, Some(at(again)));
        assert!(decision.wakes_to_tell, "{second}");
        assert_eq!((decision.action, decision.status, decision.wake_at), expected, "{second}");
    }

    type Edit = fn(&mut PeObservation);
    let table: [(&str, Edit); 9] = [
        ("no crowd", |observed| observed.may_wait_long = false),
        ("late", |observed| observed.now = at(60)),
        ("runs", |observed| observed.pods = vec![pod(1)]),
        ("cannot run", |observed| observed.pods.iter_mut().for_each(|pod| pod.stage = Stage::Pending(why("No")))),
        ("is going", |observed| observed.pods.iter_mut().for_each(|pod| pod.gone_by = Some(at(40)))),
        ("is gone", |observed| observed.first_was_deleted = true),
        ("a restart", |observed| observed.wanted.restart_requested = Some("now".to_owned())),
        ("another text", |observed| observed.wanted.runtime_id = "r1".to_owned()),
        ("other options", |observed| observed.template = Ok(template("t1", "p0"))),
    ];
    for (what, edit) in table {
        let mut observed = of(pending.clone());
        edit(&mut observed);
        let action = decide(&observed).action;
        assert_eq!(action, PeAction::Record(PeStatusChange::Launch(LaunchReason::First)), "{what}");
    }
}

#[test]
fn in_a_crowd_a_first_pod_that_runs_is_recorded_when_others_have_theirs() {
    let of = |pod: ObservedPod| PeObservation {
        now: at(3),
        pods: vec![pod],
        may_wait_long: true,
        lets_others_go_first: true,
        ..new()
    };
    for (second, again) in [(3, 13), (29, 39), (55, 60)] {
        let decision = decide(&PeObservation { now: at(second), ..of(pod(1)) });
        let expected = (PeAction::Describe, new().status, Some(at(again)), true);
        assert!(decision.wakes_to_tell, "{second}");
        let PeDecision { action, status, wake_at, lets_others_go_first, .. } = decision;
        assert_eq!((action, status, wake_at, lets_others_go_first), expected, "{second}");
    }
    let pending = ObservedPod { stage: Stage::Pending(Explanation::default()), node: None, ..pod(1) };
    assert!(!decide(&of(pending)).lets_others_go_first, "it is on its way itself");

    type Edit = fn(&mut PeObservation);
    let table: [(&str, Edit); 9] = [
        ("nobody else", |observed| observed.lets_others_go_first = false),
        ("late", |observed| observed.now = at(60)),
        ("ended", |observed| observed.pods = vec![failed(1)]),
        ("is going", |observed| observed.pods.iter_mut().for_each(|pod| pod.gone_by = Some(at(40)))),
        ("is gone", |observed| observed.first_was_deleted = true),
        ("a restart", |observed| observed.wanted.restart_requested = Some("now".to_owned())),
        ("a stop", |observed| observed.wanted.stop_requested = Some("now".to_owned())),
        ("another text", |observed| observed.wanted.runtime_id = "r1".to_owned()),
        ("no bundle", |observed| observed.status.bundle_unavailable = Some(Default::default())),
    ];
    for (what, edit) in table {
        let mut observed = of(pod(1));
        edit(&mut observed);
        let action = decide(&observed).action;
        assert_eq!(action, PeAction::Record(PeStatusChange::Launch(LaunchReason::First)), "{what}");
    }
}

#[test]
fn nothing_is_launched_while_something_is_missing_or_going() {
    let committed = |generation| OwnerJob::There { created_at: None, generation, committed_at: None, suspended: false };
    // the job, the ConfigMap of the text is there -> what is waited for
    let table = [
        (OwnerJob::Missing, true, "JobMissing"),
        (committed(None), true, "GenerationNotCommitted"),
        (committed(Some(0)), true, "GenerationNotCommitted"),
        (committed(Some(1)), false, "TextMissing"),
    ];
    for (job, has_text, reason) in table {
        let edit = |observed: &mut PeObservation| {
            observed.job = job;
            if !has_text {
                observed.template = Err(Obstacle { reason: "TextMissing", message: "m".to_owned() });
            }
        };
        let asked = ProcessingElementStatus { launch_count: 1, ..ProcessingElementStatus::default() };
        for mut observed in [new(), PeObservation { status: asked, ..new() }] {
            edit(&mut observed);
            let settled = settle(observed.clone(), unseen());
            assert_eq!(settled.actions, [PeAction::Describe], "{reason}");
            assert_eq!(settled.observed.status.phase, Some(PePhase::Waiting), "{reason}");
            assert_eq!(ready(&observed), ("False".to_owned(), reason.to_owned()));
        }
        // What runs goes on running, and what ended is recorded and not replaced.
        let mut observed = running();
        edit(&mut observed);
        observed.wanted.runtime_id = "r1".to_owned();
        assert_eq!(settle(observed.clone(), unseen()).actions, [PeAction::Describe], "{reason}");
        observed.pods = vec![failed(2)];
        let settled = settle(observed, unseen());
        assert_eq!(settled.actions, [PeAction::Record(PeStatusChange::Ended), PeAction::Describe], "{reason}");
        assert_eq!(settled.deletions.len(), 1, "{reason}");
    }
}

#[test]
fn what_the_next_write_says_is_not_written_but_what_people_look_for_is() {
    let uncommitted = OwnerJob::There { created_at: None, generation: None, committed_at: None, suspended: false };
    // created, seconds ago; the phase before -> written, when it is looked at again
    let table = [
        (Some(0), None, false, Some(10)),
        (Some(9), None, false, Some(1)),
        (Some(10), None, true, None),
        (None, None, true, None),
        (Some(0), Some(PePhase::Running), true, None),
    ];
    for (age, phase, written, wake) in table {
        let mut observed = PeObservation { job: uncommitted, ..new() };
        observed.wanted.created_at = age.map(|age| at(100 - age));
        observed.now = at(100);
        observed.status.phase = phase;
        let decision = decide(&observed);
        assert_eq!(decision.action, PeAction::Describe);
        assert_eq!(decision.status != observed.status, written, "{age:?} {phase:?}");
        assert_eq!(decision.wake_at, wake.map(|seconds| at(100 + seconds)), "{age:?} {phase:?}");
    }
    // the stage of a pod that has got a node -> written
    let pending = |reason: &str| Stage::Pending(why(reason));
    for (stage, written) in [(pending(""), false), (pending("ImagePullBackOff"), true), (Stage::Running(None), true)] {
        let bound = |node: Option<&str>, stage: &Stage| {
            edited(|o| o.pods = vec![ObservedPod { node: node.map(str::to_owned), stage: stage.clone(), ..pod(2) }])
        };
        let mut before = bound(None, &pending(""));
        before.status.node_name = None;
        let status = settle(before, unseen()).observed.status;
        let decision = decide(&PeObservation { status: status.clone(), ..bound(Some("node"), &stage) });
        assert_eq!(decision.status != status, written, "{stage:?}");
        assert_eq!(decision.status.node_name.is_some(), written, "{stage:?}");
    }
}

#[test]
fn a_pe_that_was_made_by_hand_is_reported_once() {
    // something controls it -> warnings
    for (controlled, expected) in [(true, vec![]), (false, vec!["JobMissing"])] {
        let mut observed = PeObservation { job: OwnerJob::Missing, ..new() };
        observed.wanted.controlled = controlled;
        let decision = decide(&observed);
        let warnings: Vec<_> = decision.notices.iter().filter(|notice| notice.warning).map(|n| &*n.reason).collect();
        assert_eq!(warnings, expected);
        let again = decide(&PeObservation { status: decision.status, ..observed });
        assert!(again.notices.is_empty(), "it is told once");
    }
}

#[test]
fn a_pe_that_its_job_has_left_behind_runs_on_and_the_first_one_is_told_once() {
    // no PE of the job has a smaller number -> warnings
    for (is_first, expected) in [(true, vec!["Orphaned"]), (false, vec![])] {
        let mut observed = PeObservation { job: OwnerJob::Missing, ..running() };
        (observed.wanted.controlled, observed.wanted.is_first) = (false, is_first);
        observed.wanted.runtime_id = "r1".to_owned();
        let decision = decide(&observed);
        assert_eq!((decision.action, decision.deletions), (PeAction::Describe, Vec::new()));
        let warnings: Vec<_> = decision.notices.iter().filter(|notice| notice.warning).map(|n| &*n.reason).collect();
        assert_eq!(warnings, expected);
        let status = &decision.status;
        assert_eq!(status.phase, Some(PePhase::Running));
        assert!(condition::is_true(&status.conditions, condition::ORPHANED), "{status:?}");
        observed.status = decision.status;
        assert!(decide(&observed).notices.is_empty(), "it is told once");
        // What ends is recorded, and not replaced.
        observed.pods = vec![failed(2)];
        let settled = settle(observed, unseen());
        assert_eq!(settled.actions, [PeAction::Record(PeStatusChange::Ended), PeAction::Describe]);
        assert_eq!(ready(&settled.observed).1, "JobMissing");
        assert!(settled.last.notices.is_empty(), "{:?}", settled.last.notices);
    }
}

#[test]
fn a_pe_whose_owner_reference_was_removed_says_so_and_not_that_its_job_was_deleted() {
    // no PE of the job has a smaller number
    for is_first in [true, false] {
        let mut observed = PeObservation { job: OwnerJob::Estranged, ..running() };
        (observed.wanted.controlled, observed.wanted.is_first) = (false, is_first);
        let decision = decide(&observed);
        let orphaned = condition::get(&decision.status.conditions, condition::ORPHANED).unwrap();
        assert_eq!((orphaned.status.as_str(), orphaned.reason.as_str()), ("True", "OwnerReferenceRemoved"));
        let [notice] = decision.notices.as_slice() else { panic!("{:?}", decision.notices) };
        assert_eq!((&*notice.reason, notice.note.as_str()), ("Orphaned", orphaned.message.as_str()));
        observed.status = decision.status;
        assert!(decide(&observed).notices.is_empty(), "it is told once");
        // The job goes as well, and later the reference is there again.
        observed.job = OwnerJob::Missing;
        let decision = decide(&observed);
        let orphaned = condition::get(&decision.status.conditions, condition::ORPHANED).unwrap();
        assert_eq!((orphaned.reason.as_str(), decision.notices.len()), ("JobDeleted", usize::from(is_first)));
        (observed.job, observed.wanted.controlled) = (running().job, true);
        assert!(condition::get(&decide(&observed).status.conditions, condition::ORPHANED).is_none());
    }
}

#[test]
fn before_a_pe_says_that_its_owner_reference_was_removed_the_job_is_looked_for() {
    // something else controls it by now
    for controlled in [false, true] {
        let mut observed = PeObservation { job: OwnerJob::Doubtful, ..running() };
        (observed.wanted.controlled, observed.wanted.runtime_id) = (controlled, "r1".to_owned());
        assert_eq!(decide(&observed).status, observed.status, "nothing is said yet");
        let settled = settle(observed, unseen());
        assert_eq!((settled.actions, settled.deletions), (vec![PeAction::LookForJob, PeAction::Describe], vec![]));
        let orphaned = condition::get(&settled.observed.status.conditions, condition::ORPHANED).unwrap();
        assert_eq!(orphaned.reason, "OwnerReferenceRemoved");
    }
}

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
fn changed_options_are_shown_until_the_pod_is_replaced() {
    let outdated = |observed: &PeObservation| {
        let status = settle(observed.clone(), unseen()).observed.status;
        condition::get(&status.conditions, condition::OUTDATED).map(|condition| condition.status.clone())
    };
    let mut observed = edited(|o| o.template = Ok(template("t1", "p0")));
    assert_eq!(outdated(&observed).as_deref(), Some("True"));
    // Not known: what was said stays.
    observed.status = settle(observed.clone(), unseen()).observed.status;
    let unknown =
        PeObservation { template: Err(Obstacle { reason: "TextMissing", message: String::new() }), ..observed.clone() };
    assert_eq!(outdated(&unknown).as_deref(), Some("True"));
    observed.pods = vec![ObservedPod { template_hash: Some("t1".to_owned()), ..pod(2) }];
    assert_eq!(outdated(&observed), None);
}

#[test]
fn options_with_which_no_pod_can_be_created_are_shown_while_the_old_one_runs() {
    let outdated = |observed: &PeObservation| {
        let status = settle(observed.clone(), unseen()).observed.status;
        condition::get(&status.conditions, condition::OUTDATED).map(|condition| condition.reason.clone())
    };
    let refused = |reason: &'static str| Err(Obstacle { reason, message: "nobody names a volume".to_owned() });
    let table = [
        (refused("CheckpointVolumeMissing"), Some("CheckpointVolumeMissing")),
        (refused("CheckpointRepositoryUnknown"), Some("CheckpointRepositoryUnknown")),
        // What comes back by itself is no matter of options.
        (refused("TextMissing"), None),
        (refused("HostPoolMissing"), None),
    ];
    for (template, expected) in table {
        let observed = edited(|observed| observed.template = template);
        assert_eq!(outdated(&observed).as_deref(), expected, "{expected:?}");
        // It is corrected.
        let mut corrected = settle(observed, unseen()).observed;
        corrected.template = running().template;
        assert_eq!(outdated(&corrected), None, "{expected:?}");
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

/// The launch of the first pod: recorded, or else 1.
fn first_launch(observed: PeObservation) -> u64 {
    let settled = settle(observed, unseen());
    assert_eq!(settled.actions.last(), Some(&PeAction::Create));
    settled.observed.status.launch_count.max(FIRST)
}

#[test]
fn a_pe_that_was_created_again_does_not_start_from_the_beginning() {
    // created, committed, launch counts of pods of the PE before -> first launch count
    let table: [(i64, Option<i64>, &[u64], u64); 7] = [
        (-100, Some(-90), &[], 1),
        (-90, Some(-90), &[], 1),
        // The clock of the API server is ahead.
        (-86, Some(-90), &[], 1),
        (-85, Some(-90), &[], 2),
        (-80, Some(-90), &[], 2),
        (-80, Some(-90), &[4, 7], 8),
        (-80, None, &[], 1),
    ];
    for (created, committed, before, expected) in table {
        let mut observed = new();
        observed.wanted.created_at = Some(at(created));
        observed.job = OwnerJob::There {
            created_at: None,
            generation: Some(1),
            committed_at: committed.map(at),
            suspended: false,
        };
        observed.predecessors = before.iter().map(|launch| failed(*launch)).collect();
        assert_eq!(first_launch(observed), expected, "{created} {committed:?} {before:?}");
    }
    // The job controller says so, of a PE that has waited while another generation was committed.
    let table: [(&[u64], u64); 2] = [(&[], 2), (&[4, 7], 8)];
    for (before, expected) in table {
        let mut observed = new();
        observed.wanted.made_again = true;
        observed.wanted.created_at = Some(at(-90));
        observed.job =
            OwnerJob::There { created_at: None, generation: Some(1), committed_at: Some(at(-10)), suspended: false };
        observed.predecessors = before.iter().map(|launch| failed(*launch)).collect();
        assert_eq!(first_launch(observed), expected, "{before:?}");
    }
    // Pods of an earlier job of the name, which the mirror still shows: when they were created, and the job.
    for (pod_created, job_created, expected) in [(-200, -100, 1), (-100, -100, 8), (-90, -100, 8)] {
        let mut observed = new();
        let created_at = Some(at(job_created));
        observed.job = OwnerJob::There { created_at, generation: Some(1), committed_at: None, suspended: false };
        observed.predecessors = vec![ObservedPod { created_at: Some(at(pod_created)), ..failed(7) }];
        assert_eq!(first_launch(observed), expected, "{pod_created} {job_created}");
    }
}

#[test]
fn a_status_that_was_reset_goes_on_with_the_newest_pod() {
    let observed = PeObservation { pods: vec![failed(3), pod(4)], ..new() };
    let settled = settle(observed, unseen());
    assert_eq!(settled.actions, [PeAction::Record(PeStatusChange::Adopted), PeAction::Describe]);
    let status = settled.observed.status;
    assert_eq!((status.launch_count, status.created_launch_count), (4, 4));
}

#[test]
fn a_pod_that_the_pe_does_not_control_moves_no_launch_count_but_may_not_run_beside_its_next_pod() {
    let others = |launch| {
        let taken = ObservedPod { other_controller: Some("ReplicaSet web (uid x)".to_owned()), ..pod(launch) };
        [ObservedPod { left_behind: true, ..pod(launch) }, taken]
    };
    for other in others(u64::from(u32::MAX)) {
        let lost = PeObservation { pods: vec![other.clone()], ..new() };
        let decision = decide(&lost);
        assert_eq!((decision.action, decision.deletions), (PeAction::Describe, vec![]), "it is waited for");
        assert_eq!(decision.status.phase, Some(PePhase::Replacing));
        let ended = ObservedPod { stage: ended(false, 0, "Completed"), ..other.clone() };
        assert_eq!(decide(&PeObservation { pods: vec![ended], ..new() }).action, PeAction::Create);
        // The newest that counts is another one.
        let settled = settle(PeObservation { pods: vec![pod(4), other], ..new() }, unseen());
        assert_eq!(settled.observed.status.launch_count, 4);
    }
    for first in others(1) {
        let settled = settle(PeObservation { pods: vec![first], ..new() }, unseen());
        assert_eq!(settled.observed.status.launch_count, 1, "the first is recorded once it is there");
    }
}

#[test]
fn that_something_else_controls_the_pod_is_told_once_before_anything_else_of_its_metadata() {
    let taken = |observed: &mut PeObservation| {
        observed.pods[0].other_controller = Some("ReplicaSet web (uid x)".to_owned());
    };
    let told =
        |decision: &PeDecision| -> Vec<String> { decision.notices.iter().map(|notice| notice.note.clone()).collect() };
    let mut observed = edited(taken);
    for is_contended in [false, true] {
        let contention = Contention { field: "metadata.labels.app".to_owned(), until: at(900) };
        observed.contention = is_contended.then_some(contention);
        let decision = decide(&observed);
        let contended = condition::get(&decision.status.conditions, condition::CONTENDED).unwrap();
        assert_eq!((decision.status.phase, &*contended.reason), (Some(PePhase::Running), "ControlledByOthers"));
        assert!(contended.message.contains("metadata.ownerReferences"), "{}", contended.message);
        assert!(contended.message.contains("ReplicaSet web (uid x)"), "{}", contended.message);
        let expected = if is_contended { vec![] } else { vec![contended.message.clone()] };
        assert_eq!(told(&decision), expected, "it is told once");
        observed.status = decision.status;
    }
    // Another one is asked for: this one goes, whoever controls it.
    observed.wanted.restart_requested = Some("now".to_owned());
    let settled = settle(observed, unseen());
    assert_eq!((settled.deletions, settled.observed.status.launch_count), (vec![pod(2).name], 3));
    let status = settled.observed.status;
    assert!(
        condition::get(&status.conditions, condition::CONTENDED).is_none_or(|it| it.reason != "ControlledByOthers")
    );
}

#[test]
fn a_pod_that_is_not_seen_is_looked_for_once() {
    let mut observed = PeObservation { pods: Vec::new(), ..running() };
    observed.wanted.policies = Policies::default();
    assert_eq!(decide(&observed).action, PeAction::Look);
    let mut settled = settle(observed, unseen()).observed;
    settled.vanished = None;
    assert_eq!(decide(&settled).action, PeAction::Describe);
}

#[test]
fn a_pod_counts_as_lost_only_when_the_watch_had_time_to_tell_how_it_went() {
    let observed = PeObservation { pods: Vec::new(), ..running() };
    // since -> waits until
    for (since, until) in [(100, Some(105)), (96, Some(101)), (95, None)] {
        let gone = AbsentPod { since: at(since), ..unseen() };
        let settled = settle(observed.clone(), gone);
        let ended = settled.actions.contains(&PeAction::Record(PeStatusChange::Ended));
        assert_eq!((ended, settled.last.wake_at.filter(|_| !ended)), (until.is_none(), until.map(at)), "{since}");
    }
}

#[test]
fn a_pod_that_is_being_deleted_is_watched_until_it_has_ended() {
    let mut observed = running();
    observed.pods = vec![ObservedPod { gone_by: Some(at(120)), ..pod(2) }];
    let settled = settle(observed, unseen());
    assert!(!settled.last.wakes_to_tell, "a policy waits for it");
    assert_eq!((settled.actions, settled.last.wake_at), (vec![PeAction::Describe], Some(at(150))));
    assert_eq!(settled.observed.status.phase, Some(PePhase::Replacing));
}

#[test]
fn phase_and_readiness_follow_the_pod() {
    let stage = |stage: Stage| edited(|o| o.pods = vec![ObservedPod { stage, ..pod(2) }]);
    let pending = |reason: &str| stage(Stage::Pending(why(reason)));
    let settling = |now| edited(|o| (o.status.phase, o.min_ready, o.now) = (None, Duration::from_secs(30), at(now)));
    let refused = edited(|o| {
        o.status.launch_count = 3;
        o.pods.clear();
        o.refusal = Some(Obstacle { reason: "QuotaExceeded", message: "exceeded quota: q".to_owned() });
    });
    let table = [
        (running(), PePhase::Running, "Running"),
        (pending(""), PePhase::Starting, "PodPending"),
        (pending("Unschedulable"), PePhase::Starting, "Unschedulable"),
        (stage(Stage::Unknown), PePhase::Starting, "PodUnknown"),
        (settling(29), PePhase::Starting, "Settling"),
        (settling(30), PePhase::Running, "Running"),
        (refused, PePhase::Waiting, "QuotaExceeded"),
    ];
    for (observed, phase, reason) in table {
        let status = settle(observed.clone(), unseen()).observed.status;
        assert_eq!(status.phase, Some(phase), "{reason}");
        assert_eq!(status.observed_generation, Some(1));
        let ready = if phase == PePhase::Running { "True" } else { "False" };
        assert_eq!(super::rows::ready(&observed), (ready.to_owned(), reason.to_owned()));
    }
    assert_eq!(settle(settling(29), unseen()).last.wake_at, Some(at(30)));
}

#[test]
fn a_pod_that_counted_as_running_does_not_settle_again_when_it_should_have_been_running_for_longer() {
    let longer = |o: &mut PeObservation| o.min_ready = Duration::from_secs(500);
    let next = |o: &mut PeObservation| (o.status.launch_count, o.pods) = (2, vec![pod(3)]);
    // what becomes of a PE that runs -> its phase
    let table = [
        (edited(longer), PePhase::Running),
        (edited(|o| (longer(o), o.status.phase = Some(PePhase::Starting)).0), PePhase::Starting),
        (edited(|o| (longer(o), next(o)).0), PePhase::Starting),
    ];
    for (observed, expected) in table {
        let status = settle(observed.clone(), unseen()).observed.status;
        assert_eq!(status.phase, Some(expected), "{observed:?}");
    }
}

#[test]
fn metadata_of_the_pod_is_restored_once_nothing_else_is_to_be_done_unless_somebody_insists() {
    let spoilt = |pod: ObservedPod| ObservedPod { spoilt: Some("metadata.labels.app".to_owned()), ..pod };
    let contention = Contention { field: "metadata.labels.app".to_owned(), until: at(900) };
    type Edit = fn(&mut PeObservation);
    // what else is so -> whether it is restored, when to look again
    let table: [(&str, Edit, bool, Option<i64>); 6] = [
        ("nothing", |_| (), true, None),
        ("it was restored too often", |observed| observed.unrestored_until = Some(at(130)), false, Some(130)),
        ("the pod is going", |observed| observed.pods[0].gone_by = Some(at(120)), false, Some(150)),
        ("it is not that of the launch", |observed| observed.status.pod_uid = Some("another".to_owned()), false, None),
        ("another one is asked for", |observed| observed.wanted.runtime_id = "r1".to_owned(), false, None),
        ("it was deleted", |observed| observed.wanted.deleting = true, false, None),
    ];
    for (what, edit, restored, wake) in table {
        let mut observed = edited(|observed| observed.pods = vec![spoilt(pod(2))]);
        edit(&mut observed);
        let decision = decide(&observed);
        assert_eq!((decision.restored.is_some(), decision.wake_at), (restored, wake.map(at)), "{what}");
    }
    let mut observed = edited(|observed| observed.contention = Some(contention));
    let decision = decide(&observed);
    let reasons = |decision: &PeDecision| -> Vec<String> {
        decision.notices.iter().map(|notice| notice.reason.to_string()).collect()
    };
    assert!(condition::is_true(&decision.status.conditions, condition::CONTENDED));
    assert_eq!((reasons(&decision), decision.wake_at), (vec!["Contended".to_owned()], Some(at(900))));
    observed.status = decision.status;
    assert!(decide(&observed).notices.is_empty(), "it is told once");
    observed.contention = None;
    assert!(condition::get(&decide(&observed).status.conditions, condition::CONTENDED).is_none());
}
