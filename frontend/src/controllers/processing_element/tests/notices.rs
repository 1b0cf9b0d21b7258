//! What people are told.

use super::settle;
use super::simulation::{ClusterEvent, PeSimulation};
use std::borrow::Cow;
use streams_api::PePhase;

#[test]
fn people_hear_of_what_happens() {
    let mut simulation = PeSimulation::new();
    settle(&mut simulation);
    let announced = |simulation: &PeSimulation| -> Vec<(bool, Cow<'static, str>)> {
        simulation.notices().into_iter().map(|notice| (notice.warning, notice.reason)).collect()
    };
    assert_eq!(announced(&simulation), [], "the job tells of the first pods");
    simulation.happen(ClusterEvent::End { code: 1 });
    settle(&mut simulation);
    assert_eq!(announced(&simulation), [(true, "PodFailed".into()), (false, "Restarting".into())]);
    simulation.happen(ClusterEvent::End { code: 1 });
    settle(&mut simulation);
    let expected = [(true, "PodFailed".into()), (true, "BackOff".into()), (false, "Restarting".into())];
    assert_eq!(announced(&simulation), expected);
    simulation.happen(ClusterEvent::Vanish);
    settle(&mut simulation);
    assert_eq!(announced(&simulation), [(false, "PodDeleted".into()), (true, "NotRestarted".into())]);
}

/// The client tries again what is not answered: the first try has had its effect, and the next one is a conflict.
#[test]
fn what_was_written_by_a_try_without_an_answer_is_told_like_anything_else() {
    let told = |is_tried_again: bool| {
        let mut simulation = PeSimulation::new();
        if is_tried_again {
            simulation.lose_first_tries();
        }
        settle(&mut simulation);
        for event in [ClusterEvent::End { code: 1 }, ClusterEvent::End { code: 1 }, ClusterEvent::Vanish] {
            simulation.happen(event);
            settle(&mut simulation);
        }
        simulation.notices().into_iter().map(|notice| notice.reason).collect::<Vec<_>>()
    };
    let expected = told(false);
    assert!(expected.len() > 6, "{expected:?}");
    assert_eq!(told(true), expected);
}

#[test]
fn a_refused_pod_is_shown_and_tried_again() {
    let mut simulation = PeSimulation::new();
    simulation.happen(ClusterEvent::Refuse(true));
    assert_eq!(simulation.reconcile(), None);
    simulation.deliver_all();
    let status = simulation.pe().status.unwrap();
    assert_eq!(status.phase, Some(PePhase::Waiting));
    assert_eq!(status.conditions[0].reason, "PodRefused");
    assert_eq!(simulation.notices().last().unwrap().reason, "PodRefused");
    let version = simulation.version();
    assert_eq!(simulation.reconcile(), None);
    assert_eq!(simulation.version(), version, "the same refusal is written once");
    settle(&mut simulation);
    assert_eq!(simulation.pods().len(), 1);
}

#[test]
fn a_refusal_whose_words_change_is_told_once_in_a_while_and_tried_again_when_the_queue_says_so() {
    let mut simulation = PeSimulation::new();
    simulation.happen(ClusterEvent::RefuseInOtherWords);
    simulation.reconcile();
    simulation.deliver_all();
    let first = simulation.pe().status.unwrap().conditions[0].message.clone();
    let version = simulation.version();
    for _ in 0..5 {
        assert_eq!(simulation.reconcile(), None, "the queue says when it is tried again");
        simulation.deliver_all();
    }
    assert_eq!(simulation.version(), version, "nothing is written that would bring the next look");
    simulation.wait(60);
    assert_eq!(simulation.reconcile(), None);
    assert_ne!(simulation.pe().status.unwrap().conditions[0].message, first);
}
