//! What others make of the metadata of a pod: labels, annotations and who controls it (rules pe-22 and pe-25).

use super::simulation::{ClusterEvent, PeSimulation};
use super::{launches, settle, work};
use streams_api::{PePhase, condition, names};

const fn unlabelled(label: &'static str) -> ClusterEvent {
    ClusterEvent::Unlabel { going: false, label }
}

const fn relabelled(label: &'static str, value: &'static str) -> ClusterEvent {
    ClusterEvent::Relabel { label, value }
}

/// What somebody makes of the metadata of a running pod.
const SPOILT: [&[ClusterEvent]; 15] = [
    &[unlabelled(names::LABEL_APP)],
    &[unlabelled(names::LABEL_SERVICE)],
    &[unlabelled(names::LABEL_JOB)],
    &[unlabelled(names::LABEL_PE)],
    &[unlabelled(names::LABEL_LAUNCH_COUNT)],
    &[relabelled(names::LABEL_JOB, "0")],
    &[relabelled(names::LABEL_PE, "99")],
    &[relabelled(names::LABEL_LAUNCH_COUNT, "0")],
    &[relabelled(names::LABEL_LAUNCH_COUNT, "99")],
    &[relabelled(names::LABEL_LAUNCH_COUNT, "18446744073709551615")],
    &[relabelled(names::LABEL_LAUNCH_COUNT, "99"), relabelled(names::LABEL_LAUNCH_COUNT, "2")],
    &[ClusterEvent::Unannotate(names::ANNOTATION_PLACEMENT_HASH)],
    &[ClusterEvent::Disown],
    &[ClusterEvent::Disown, unlabelled(names::LABEL_LAUNCH_COUNT)],
    &[ClusterEvent::Disown, unlabelled(names::LABEL_JOB), unlabelled(names::LABEL_APP)],
];

/// A PE whose second pod runs.
fn second_launch() -> PeSimulation {
    let mut simulation = PeSimulation::new();
    settle(&mut simulation);
    simulation.happen(ClusterEvent::Text { generation: false });
    settle(&mut simulation);
    simulation.notices();
    simulation
}

/// When somebody changes it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    /// The controller looks after each change.
    Seen,
    /// It looks after all of them.
    AtOnce,
    /// No frontend runs.
    Unseen,
}

fn is_not_ended_by(events: &[ClusterEvent], when: When) {
    let mut simulation = second_launch();
    let pod = simulation.pods()[0].metadata.uid.clone();
    for event in events {
        match when {
            When::Unseen => simulation.happen_unseen(*event),
            When::Seen | When::AtOnce => simulation.happen(*event),
        }
        if when == When::Seen {
            work(&mut simulation);
        }
    }
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)), "{events:?} {when:?}");
    assert_eq!(simulation.pods().iter().map(|pod| pod.metadata.uid.clone()).collect::<Vec<_>>(), [pod]);
    // Who changes it for the third time insists on it.
    let told: Vec<_> = simulation.notices().into_iter().map(|notice| notice.reason).collect();
    let insists = when == When::Seen && events.len() > 2;
    assert!(told.is_empty() || (insists && told == ["Contended"]), "{events:?} {told:?}");
}

#[test]
fn what_others_make_of_the_metadata_of_a_running_pod_ends_nothing_and_is_restored() {
    for events in SPOILT {
        is_not_ended_by(events, When::AtOnce);
        if events.len() > 1 {
            is_not_ended_by(events, When::Seen);
        }
    }
}

#[test]
fn what_others_make_of_the_metadata_of_a_running_pod_while_no_frontend_runs_is_restored() {
    for events in SPOILT {
        is_not_ended_by(events, When::Unseen);
    }
}

#[test]
fn a_crash_while_the_metadata_of_a_pod_is_restored_is_made_up_for() {
    for events in SPOILT.iter().skip(2).step_by(4) {
        for calls in 0..4 {
            let mut simulation = second_launch();
            events.iter().for_each(|event| simulation.happen(*event));
            simulation.deliver_all();
            simulation.crash_after(calls, calls % 2 == 0);
            simulation.reconcile();
            settle(&mut simulation);
            assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)), "{events:?} {calls}");
        }
    }
}

/// It is gone before anybody looks.
#[test]
fn how_a_pod_ended_is_known_whatever_others_have_made_of_its_metadata() {
    let is_watched = |event: &ClusterEvent| match event {
        ClusterEvent::Unlabel { label, .. } | ClusterEvent::Relabel { label, .. } => *label != names::LABEL_APP,
        _ => true,
    };
    for events in SPOILT.iter().filter(|events| events.iter().all(is_watched)) {
        let mut simulation = second_launch();
        for event in events.iter().chain(&[ClusterEvent::Drain, ClusterEvent::Finish { said: true, code: 1 }]) {
            simulation.happen(*event);
            simulation.deliver_all();
        }
        settle(&mut simulation);
        assert_eq!(launches(&simulation), (3, 1, Some(PePhase::Running)), "{events:?}");
    }
}

/// The answer to its creation is lost, and the one that has created it knows nothing of it. Nor does it know what the
/// pod was made from but by its annotations.
#[test]
fn a_pod_that_is_spoilt_before_it_is_recorded_is_taken_for_that_of_its_launch() {
    let is_of_origin = |event: &ClusterEvent| matches!(event, ClusterEvent::Unannotate(_));
    for events in SPOILT.iter().filter(|events| !events.iter().any(is_of_origin)) {
        let mut simulation = PeSimulation::new();
        simulation.lose_answer_after(1, true);
        simulation.reconcile();
        let pod = simulation.pods()[0].metadata.uid.clone();
        events.iter().for_each(|event| simulation.take_place(*event));
        settle(&mut simulation);
        let expected = (1, 0, Some(PePhase::Running));
        assert_eq!((launches(&simulation), simulation.pe().status.unwrap().pod_uid), (expected, pod), "{events:?}");
    }
}

/// What the PE says of somebody who insists on other metadata of its pod.
fn contended(simulation: &PeSimulation) -> Option<String> {
    let status = simulation.pe().status.unwrap_or_default();
    condition::get(&status.conditions, condition::CONTENDED).map(|contended| contended.message.clone())
}

/// The first pod and the next ones would be replaced for ever, as if it were not known what they were made from.
#[test]
fn admission_that_drops_annotations_of_pods_replaces_none_and_is_told() {
    let annotations = [
        names::ANNOTATION_CONTENT_ID,
        names::ANNOTATION_RUNTIME_ID,
        names::ANNOTATION_POD_TEMPLATE_HASH,
        names::ANNOTATION_PLACEMENT_HASH,
    ];
    for (annotation, is_crowded) in
        annotations.into_iter().flat_map(|annotation| [(annotation, false), (annotation, true)])
    {
        let mut simulation = PeSimulation::new();
        simulation.crowd(is_crowded);
        simulation.admission_drops(Some(annotation));
        simulation.reconcile();
        work(&mut simulation);
        simulation.take_place(ClusterEvent::Run);
        work(&mut simulation);
        assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Running)), "{annotation} {is_crowded}");
        let message = contended(&simulation).unwrap();
        assert!(message.contains(&format!("metadata.annotations.{annotation};")), "{message}");
        // The same of the next launch.
        simulation.take_place(ClusterEvent::Text { generation: false });
        work(&mut simulation);
        while simulation.pods().len() > 1
            || simulation.pods().iter().any(|pod| pod.metadata.deletion_timestamp.is_some())
        {
            simulation.take_place(ClusterEvent::Finish { said: true, code: 0 });
            work(&mut simulation);
        }
        simulation.take_place(ClusterEvent::Run);
        work(&mut simulation);
        assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)), "{annotation} {is_crowded}");
        let told: Vec<_> = simulation.notices().into_iter().map(|notice| notice.reason).collect();
        assert_eq!(told, ["Contended", "Restarting"], "{annotation} {is_crowded}");
        simulation.admission_drops(None);
        settle(&mut simulation);
        assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)), "{annotation} {is_crowded}");
        assert_eq!(contended(&simulation), None, "{annotation} {is_crowded}");
    }
}

/// Then only its annotations say what it was made from.
#[test]
fn admission_that_drops_an_annotation_of_a_pod_whose_creation_was_not_answered_costs_one_launch() {
    let mut simulation = PeSimulation::new();
    simulation.admission_drops(Some(names::ANNOTATION_RUNTIME_ID));
    simulation.lose_answer_after(1, true);
    simulation.reconcile();
    assert_eq!(simulation.pods().len(), 1);
    for _ in 0..4 {
        work(&mut simulation);
    }
    simulation.admission_drops(None);
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)));
}

/// Kubernetes, or a controller, may come to own it. The simulation checks that no two pods run at once.
#[test]
fn a_pod_that_something_else_controls_is_told_of_and_goes_before_the_next_one_comes() {
    for (is_unseen, is_hidden) in [(false, false), (true, false), (false, true)] {
        let mut simulation = second_launch();
        let pod = simulation.pods()[0].metadata.uid.clone();
        if is_unseen {
            simulation.happen_unseen(ClusterEvent::GiveAway);
        } else {
            simulation.happen(ClusterEvent::GiveAway);
        }
        work(&mut simulation);
        assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)));
        let message = contended(&simulation).unwrap();
        assert!(message.contains("metadata.ownerReferences") && message.contains("ConfigMap flow-3-text"), "{message}");
        work(&mut simulation);
        let told: Vec<_> = simulation.notices().into_iter().map(|notice| (notice.warning, notice.reason)).collect();
        assert_eq!(told, [(true, "Contended".into())]);
        simulation.happen(ClusterEvent::Request(1));
        if is_hidden {
            // The mirror does not show it when the next launch has been recorded.
            simulation.deliver_all();
            simulation.meanwhile(0, unlabelled(names::LABEL_APP));
        }
        settle(&mut simulation);
        assert_eq!((launches(&simulation), simulation.pods().len()), ((3, 0, Some(PePhase::Running)), 1));
        assert_ne!(simulation.pods()[0].metadata.uid, pod);
        assert_eq!(contended(&simulation), None);
    }
}

/// The answer to its creation is lost, and something else controls it before anybody sees it.
#[test]
fn a_pod_that_is_given_away_before_it_is_recorded_gets_no_other_one_beside_it() {
    let mut simulation = PeSimulation::new();
    simulation.lose_answer_after(1, true);
    simulation.reconcile();
    simulation.happen(ClusterEvent::GiveAway);
    work(&mut simulation);
    assert_eq!(simulation.pods().len(), 1);
    simulation.happen(ClusterEvent::Request(1));
    settle(&mut simulation);
    assert_eq!((launches(&simulation), simulation.pods().len()), ((2, 0, Some(PePhase::Running)), 1));
}

#[test]
fn with_somebody_who_changes_the_metadata_of_a_pod_again_and_again_nobody_writes_in_turn_for_ever() {
    let mut simulation = second_launch();
    let is_spoilt = |simulation: &PeSimulation| {
        let labels = simulation.pods()[0].metadata.labels.clone().unwrap();
        labels.get(names::LABEL_PE).map(String::as_str) != Some("3")
    };
    // Once in 20 s, for 10 min.
    let mut restored = 0;
    for _ in 0..30 {
        simulation.happen(relabelled(names::LABEL_PE, "4"));
        work(&mut simulation);
        restored += u32::from(!is_spoilt(&simulation));
        simulation.wait(20);
        let was_spoilt = is_spoilt(&simulation);
        work(&mut simulation);
        restored += u32::from(was_spoilt && !is_spoilt(&simulation));
    }
    assert!((5..=7).contains(&restored), "{restored}: three times at once, then after 1, 2 and 4 min");
    assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)));
    let message = contended(&simulation).unwrap();
    assert!(message.contains("metadata.labels.streams.ibm.com/pe;"), "{message}");
    let told: Vec<_> = simulation.notices().into_iter().map(|notice| (notice.warning, notice.reason)).collect();
    assert_eq!(told, [(true, "Contended".into())]);
    settle(&mut simulation);
    assert!(!is_spoilt(&simulation));
    assert_eq!(contended(&simulation), None, "it is over");
}

#[test]
fn a_pod_that_may_not_be_changed_is_left_alone_and_tried_again_after_a_pause() {
    let mut simulation = second_launch();
    simulation.happen(ClusterEvent::Refuse(true));
    simulation.happen(unlabelled(names::LABEL_LAUNCH_COUNT));
    work(&mut simulation);
    let calls = simulation.calls();
    for _ in 0..5 {
        simulation.deliver_all();
        assert!(simulation.reconcile().is_some(), "it is no failure");
    }
    assert_eq!(simulation.calls(), calls);
    assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)));
    simulation.happen(ClusterEvent::Refuse(false));
    simulation.wait(60);
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)));
}
