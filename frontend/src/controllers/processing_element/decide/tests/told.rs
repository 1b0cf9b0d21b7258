//! What is told of a PE: its phase, its readiness, what holds it up; and when metadata of its pod is restored.

use super::*;
use streams_api::{PePhase, condition};

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
        assert_eq!(super::ready(&observed), (ready.to_owned(), reason.to_owned()));
    }
    assert_eq!(settle(settling(29), unseen()).last.wake_at, Some(at(30)));
}

#[test]
fn a_pod_settles_by_the_clock_of_the_frontend_from_when_it_is_recorded_that_it_runs() {
    // since when it runs as its node says, as the PE has recorded, seconds that it must -> since when as the PE says in
    // second 40, until when it settles
    let table = [
        (600, None, 0, 40, None),
        (600, None, 30, 40, Some(70)),
        (-600, None, 30, 40, Some(70)),
        (600, Some(20), 30, 20, Some(50)),
        (-600, Some(20), 30, 20, Some(50)),
        (600, Some(10), 30, 10, None),
        // The clock of the frontend that has recorded it was ahead.
        (0, Some(600), 0, 40, None),
        (0, Some(600), 30, 40, Some(70)),
    ];
    for (by_node, recorded, min_ready, since, until) in table {
        let observed = edited(|o| {
            (o.status.phase, o.status.running_since) = (None, recorded.and_then(time));
            (o.min_ready, o.now) = (Duration::from_secs(min_ready), at(40));
            o.pods = vec![ObservedPod { stage: Stage::Running(Some(at(by_node))), ..pod(2) }];
        });
        let case = format!("{by_node} {recorded:?} {min_ready}");
        let settled = settle(observed, unseen());
        let status = &settled.observed.status;
        let phase = if until.is_some() { PePhase::Starting } else { PePhase::Running };
        assert_eq!((status.phase, &status.running_since), (Some(phase), &time(since)), "{case}");
        assert_eq!(settled.last.wake_at, until.map(at), "{case}");
        // The next look finds nothing else.
        let later = PeObservation { now: at(41), ..settled.observed.clone() };
        assert_eq!(decide(&later).status, *status, "{case}");
    }
}

#[test]
fn a_pod_that_is_adopted_settles_anew() {
    let observed = edited(|o| {
        (o.status.launch_count, o.pods) = (1, vec![pod(2)]);
        o.min_ready = Duration::from_secs(30);
    });
    let settled = settle(observed, unseen());
    let status = settled.observed.status;
    assert_eq!((status.launch_count, status.running_since, settled.last.wake_at), (2, time(100), Some(at(130))));
}

#[test]
fn what_is_waited_for_of_a_pod_is_named() {
    let unknown = |node: Option<&str>| {
        let (stage, node) = (Stage::Unknown, node.map(str::to_owned));
        edited(|o| {
            o.status.node_name = None;
            o.pods = vec![ObservedPod { stage, node, ..pod(2) }];
        })
    };
    let settling = edited(|o| (o.status.phase, o.min_ready, o.now) = (None, Duration::from_secs(30), at(29)));
    let name = pod(2).name;
    let table = [
        (unknown(Some("n1")), format!("node n1 of pod {name} does not answer")),
        (unknown(None), format!("the node of pod {name} does not answer")),
        (settling, "the pod has not been running for 30 s yet (rollout.minReadySeconds)".to_owned()),
    ];
    for (observed, expected) in table {
        let status = settle(observed, unseen()).observed.status;
        let ready = condition::get(&status.conditions, condition::READY);
        assert_eq!(ready.map(|ready| ready.message.clone()), Some(expected));
    }
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
