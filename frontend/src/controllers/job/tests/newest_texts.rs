//! PEs that do not ask for the number of channels: they go on with their older text, until they get another pod (rule
//! job-51).

use super::simulation::{JobSimulation, NOT_RESTARTABLE, SAME_TO_OBSERVERS, ServiceState, UserDeletion, key};
use crate::controllers::job::decide::{JobAction, JobDecision};
use crate::controllers::job::tasks::Task;
use k8s_openapi::api::core::v1::ConfigMap;
use streams_api::{Job, OlderTexts, PePhase, names};

/// A job whose user says that nobody asks for numbers of channels, resized since its PEs began to run.
fn resized() -> (JobSimulation, String) {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.ignores = true);
    simulation.settle();
    let before = text(&simulation);
    simulation.resize(0, 3);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((text(&simulation), is_newest(&simulation)), (before.clone(), false), "it goes on with its older text");
    assert_eq!(simulation.status().older_texts, [listed(1)]);
    simulation.forget_starts();
    (simulation, before)
}

/// It is listed, because this generation changed its text.
fn listed(generation: u64) -> OlderTexts {
    OlderTexts { first: SAME_TO_OBSERVERS, last: SAME_TO_OBSERVERS, generation }
}

fn text(simulation: &JobSimulation) -> String {
    simulation.pe(SAME_TO_OBSERVERS).unwrap().spec.content_id
}

/// It says that it refers to the newest text that the job has for it.
fn is_newest(simulation: &JobSimulation) -> bool {
    let pe = simulation.pe(SAME_TO_OBSERVERS).unwrap();
    let listed = simulation.status().older_texts;
    let newest = listed.first().map(|listed| names::newest_text(listed.generation, &pe.spec.config_map.name));
    newest.is_some()
        && pe.metadata.annotations.unwrap_or_default().get(names::ANNOTATION_NEWEST_TEXT) == newest.as_ref()
}

/// The controller and the long work go on for a while in which no pod starts.
fn go_on(simulation: &mut JobSimulation) {
    for _ in 0..10 {
        simulation.reconcile();
        simulation.work();
    }
}

#[test]
fn the_newest_text_of_one_generation_is_not_that_of_the_next() {
    let (mut simulation, _) = resized();
    simulation.break_down(SAME_TO_OBSERVERS, PePhase::Waiting);
    simulation.until(is_newest);
    simulation.settle();
    // Between the commit and the roll-out.
    simulation.resize(1, 3);
    while simulation.status().generation != Some(2) {
        simulation.round();
        simulation.work();
    }
    assert_eq!((simulation.status().older_texts, is_newest(&simulation)), (vec![listed(2)], false));
    simulation.break_down(SAME_TO_OBSERVERS, PePhase::Waiting);
    simulation.until(is_newest);
}

#[test]
fn a_pe_that_gets_another_pod_refers_to_its_newest_text_and_others_do_not_change() {
    for phase in [PePhase::Waiting, PePhase::BackOff, PePhase::Replacing] {
        let (mut simulation, before) = resized();
        let others = simulation.pes();
        simulation.break_down(SAME_TO_OBSERVERS, phase);
        simulation.until(is_newest);
        assert_ne!(text(&simulation), before);
        simulation.settle();
        simulation.check_at_rest();
        assert!(is_newest(&simulation), "it does not go back, {phase:?}");
        for (id, pe) in simulation.pes() {
            assert!(id == SAME_TO_OBSERVERS || pe.spec == others[&id].spec, "PE {id}, {phase:?}");
        }
        // The next resize changes its text again, and nothing of what it can see.
        simulation.forget_starts();
        simulation.resize(1, 3);
        simulation.settle();
        simulation.check_at_rest();
        assert!(!simulation.starts().contains_key(&SAME_TO_OBSERVERS), "{phase:?}");
    }
}

#[test]
fn nobody_is_in_a_hurry_for_the_newest_text_of_a_pe_that_a_user_has_to_start() {
    type Event = fn(&JobSimulation);
    let suspend: Event = |simulation| {
        simulation.change_spec(|spec| spec.suspend = true);
        simulation.break_down(SAME_TO_OBSERVERS, PePhase::Suspended);
    };
    let resume: Event = |simulation| simulation.change_spec(|spec| spec.suspend = false);
    let stop: Event = |simulation| simulation.stop(SAME_TO_OBSERVERS);
    let request: Event = |simulation| simulation.request_restart(SAME_TO_OBSERVERS, "now");
    let wait: Event = |simulation| simulation.break_down(SAME_TO_OBSERVERS, PePhase::Waiting);
    let complete: Event = |simulation| simulation.complete(SAME_TO_OBSERVERS);
    // what happens -> whether the newest text is asked for, and urgently
    let table: [(&str, &[Event], Option<bool>); 9] = [
        ("it runs", &[], None),
        ("it waits", &[wait], Some(true)),
        ("a restart is requested", &[request], Some(true)),
        ("it is stopped", &[stop], Some(false)),
        ("it is stopped, and a restart is requested", &[stop, request], Some(true)),
        ("its job is suspended", &[suspend], Some(false)),
        ("its job is resumed", &[suspend, resume], Some(true)),
        ("it has completed", &[complete], None),
        ("it has completed, and a restart is requested", &[complete, request], Some(true)),
    ];
    for (what, events, expected) in table {
        let (mut simulation, before) = resized();
        events.iter().for_each(|event| event(&simulation));
        simulation.reconcile();
        let asked = simulation.leader.tasks().renew.running().map(|request| request.is_urgent);
        assert_eq!(asked, expected, "{what}");
        go_on(&mut simulation);
        assert_eq!(
            (is_newest(&simulation), text(&simulation) == before),
            (expected.is_some(), expected.is_none()),
            "{what}"
        );
    }
}

#[test]
fn a_request_to_restart_that_was_met_is_none_any_more_however_long_it_is() {
    for length in [1, 1_024, 1_025, 100_000] {
        let (mut simulation, before) = resized();
        let value = "v".repeat(length);
        simulation.request_restart(SAME_TO_OBSERVERS, &value);
        simulation.meet_request(SAME_TO_OBSERVERS, &value);
        go_on(&mut simulation);
        assert_eq!((text(&simulation), is_newest(&simulation)), (before, false), "{length} bytes");
    }
}

#[test]
fn without_the_fusion_service_it_keeps_its_older_text_and_nothing_is_compiled_for_it() {
    let (mut simulation, before) = resized();
    let generation = simulation.status().generation;
    simulation.services.change(|services| services.is_down = true);
    simulation.break_down(SAME_TO_OBSERVERS, PePhase::Waiting);
    go_on(&mut simulation);
    assert_eq!(text(&simulation), before);
    // No replica has the compiler of the plan any more: that is no reason to compile the job anew.
    simulation.services.change(|services| (services.is_down, services.renders) = (false, false));
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((text(&simulation), simulation.status().generation), (before, generation));
}

/// What is wrong with the newest text: from now on, and once it is over.
type Hindrance = (fn(&mut ServiceState), fn(&mut ServiceState));

const HINDRANCES: [(&str, Hindrance); 3] = [
    ("it cannot be rendered", (|state| state.refused_texts.extend([SAME_TO_OBSERVERS]), |_| {})),
    ("no replica has its compiler for a while", (|state| state.renders = false, |state| state.renders = true)),
    ("nothing answers for a while", (|state| state.is_down = true, |state| state.is_down = false)),
];

#[test]
fn a_text_that_somebody_deletes_is_written_again_whatever_is_wrong_with_the_newest_text_of_another_pe() {
    for (what, (begin, end)) in HINDRANCES {
        // whether the text is deleted before the newest one was tried
        for is_first in [false, true] {
            let (mut simulation, _) = resized();
            let generation = simulation.status().generation;
            let text = simulation.pe(NOT_RESTARTABLE).unwrap().spec.config_map.name;
            simulation.services.change(begin);
            simulation.break_down(SAME_TO_OBSERVERS, PePhase::Waiting);
            if !is_first {
                go_on(&mut simulation);
            }
            simulation.services.change(end);
            simulation.delete(&UserDeletion::ConfigMap(text.clone()));
            simulation.until(|simulation| simulation.texts().contains(&text));
            simulation.settle();
            simulation.check_at_rest();
            assert_eq!(simulation.status().generation, generation, "nothing is compiled for it: {what}, {is_first}");
        }
    }
}

#[test]
fn a_newest_text_that_cannot_be_written_is_no_trouble_of_the_job() {
    let stopped = |hinder: fn(&mut ServiceState)| {
        let (mut simulation, _) = resized();
        simulation.services.change(hinder);
        simulation.stop(SAME_TO_OBSERVERS);
        go_on(&mut simulation);
        simulation
    };
    let said = |simulation: &JobSimulation| -> Vec<(String, String, String)> {
        let conditions = simulation.status().conditions.into_iter();
        conditions.map(|condition| (condition.type_, condition.status, condition.reason)).collect()
    };
    let version = |simulation: &JobSimulation| simulation.server.get::<Job>(&key()).unwrap().metadata.resource_version;
    let mut healthy = stopped(|_| {});
    healthy.settle();
    let expected = said(&healthy);
    for (what, (begin, _)) in HINDRANCES {
        let mut simulation = stopped(begin);
        let told = version(&simulation);
        for _ in 0..5 {
            assert_eq!(said(&simulation), expected, "{what}");
            simulation.wait(30);
            go_on(&mut simulation);
        }
        assert_eq!(version(&simulation), told, "its status is not written again and again: {what}");
    }
}

#[test]
fn after_a_failure_the_newest_text_is_tried_again_for_the_next_pod() {
    for (what, (begin, end)) in HINDRANCES {
        let (mut simulation, before) = resized();
        simulation.services.change(begin);
        simulation.break_down(SAME_TO_OBSERVERS, PePhase::Waiting);
        go_on(&mut simulation);
        simulation.settle();
        assert_eq!(text(&simulation), before, "{what}");
        simulation.services.change(end);
        simulation.services.change(|services| services.refused_texts.clear());
        simulation.break_down(SAME_TO_OBSERVERS, PePhase::Waiting);
        simulation.wait(30);
        simulation.until(is_newest);
        assert_ne!(text(&simulation), before, "{what}");
    }
}

#[test]
fn if_nobody_says_that_numbers_of_channels_do_not_matter_texts_stay() {
    let mut simulation = JobSimulation::running();
    let before = text(&simulation);
    simulation.resize(0, 3);
    simulation.settle();
    assert_eq!(simulation.status().older_texts, []);
    simulation.break_down(SAME_TO_OBSERVERS, PePhase::BackOff);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((text(&simulation), is_newest(&simulation)), (before, false));
}

/// It is the text that the PE refers to, and its newest one.
#[test]
fn a_newest_text_that_somebody_spoils_is_written_again_once() {
    let (mut simulation, _) = resized();
    simulation.break_down(SAME_TO_OBSERVERS, PePhase::Waiting);
    simulation.until(is_newest);
    let text = simulation.pe(SAME_TO_OBSERVERS).unwrap().spec.config_map.name;
    simulation.server.edit::<ConfigMap>(&key().sibling(&text), |map| {
        map.data = map.data.take().map(|data| data.into_keys().map(|key| (key, "<other/>".to_owned())).collect());
    });
    simulation.leader.catch_up();
    let JobDecision::Work(actions) = simulation.leader.decided().0 else { panic!("a step") };
    let started: Vec<_> = actions.iter().filter(|action| matches!(action, JobAction::Start(_))).collect();
    assert!(matches!(started[..], [JobAction::Start(Task::Repair(_))]), "{started:?}");
}
