//! When the first pod of a PE is created, and which launch it is of.

use super::*;
use streams_api::PePhase;

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
    assert_eq!((status.node_name.as_deref(), status.running_since), (Some("node"), time(100)));
}

#[test]
fn what_lies_in_the_future_because_clocks_differ_is_said_at_once() {
    let pending = ObservedPod { stage: Stage::Pending(Explanation::default()), node: None, ..pod(1) };
    let first = PeAction::Record(PeStatusChange::Launch(LaunchReason::First));
    // second in which the pod was created, as the API server says -> what is done in second 3
    let table = [(0, PeAction::Describe), (8, PeAction::Describe), (9, first.clone()), (600, first)];
    for (created, expected) in table {
        let pods = vec![ObservedPod { created_at: Some(at(created)), ..pending.clone() }];
        let observed = PeObservation { now: at(3), pods, may_wait_long: true, ..new() };
        assert_eq!(decide(&observed).action, expected, "{created}");
    }
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
    let table: [(&str, Edit); 10] = [
        ("no crowd", |observed| observed.may_wait_long = false),
        ("late", |observed| observed.now = at(60)),
        ("runs", |observed| observed.pods = vec![pod(1)]),
        ("cannot run", |observed| observed.pods.iter_mut().for_each(|pod| pod.stage = Stage::Pending(why("No")))),
        ("is going", |observed| observed.pods.iter_mut().for_each(|pod| pod.gone_by = Some(at(40)))),
        ("is gone", |observed| observed.first_was_deleted = true),
        ("a restart", |observed| observed.wanted.restart_requested = Some("now".to_owned())),
        ("another text", |observed| observed.wanted.runtime_id = "r1".to_owned()),
        ("other options", |observed| observed.template = Ok(template("t1", "p0"))),
        ("admission", |observed| observed.pods.iter_mut().for_each(|pod| pod.spoilt = Some("metadata".to_owned()))),
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
        others_go_first_until: Some(at(600)),
        ..new()
    };
    // second, until when others go first -> when it is looked at again
    let table = [(3, 600, 13), (9, 600, 19), (10, 600, 40), (75, 600, 105), (115, 600, 120), (29, 33, 33)];
    for (second, until, again) in table {
        let others_go_first_until = Some(at(until));
        let decision = decide(&PeObservation { now: at(second), others_go_first_until, ..of(pod(1)) });
        let expected = (PeAction::Describe, new().status, Some(at(again)), true);
        assert!(decision.wakes_to_tell, "{second}");
        let PeDecision { action, status, wake_at, lets_others_go_first, .. } = decision;
        assert_eq!((action, status, wake_at, lets_others_go_first), expected, "{second} {until}");
    }
    let pending = ObservedPod { stage: Stage::Pending(Explanation::default()), node: None, ..pod(1) };
    assert!(!decide(&of(pending)).lets_others_go_first, "it is on its way itself");

    type Edit = fn(&mut PeObservation);
    let table: [(&str, Edit); 9] = [
        ("nobody else", |observed| observed.others_go_first_until = None),
        ("late", |observed| observed.now = at(120)),
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

/// The launch of the first pod: recorded, or else 1.
fn first_launch(observed: PeObservation) -> u64 {
    let settled = settle(observed, unseen());
    assert_eq!(settled.actions.last(), Some(&PeAction::Create));
    settled.observed.status.launch_count.max(FIRST_LAUNCH)
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
