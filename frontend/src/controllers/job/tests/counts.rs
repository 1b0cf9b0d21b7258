//! What Events count is what happens to PEs, whatever happened before (rule job-53).

use super::simulation::{JobSimulation, SAME_TO_OBSERVERS};
use streams_api::PePhase;

/// What was told for this reason, since Events were looked at last.
fn notes(simulation: &JobSimulation, reason: &str) -> Vec<String> {
    let announced = simulation.server.announced().into_iter();
    announced.filter(|announced| announced.notice.reason == reason).map(|announced| announced.notice.note).collect()
}

fn committed(simulation: &JobSimulation) -> Vec<String> {
    notes(simulation, "GenerationCommitted")
}

fn counts(generation: u64, [kept, restarted, added, removed]: [u32; 4]) -> String {
    let kept = if kept == 1 { "1 PE".to_owned() } else { format!("{kept} PEs") };
    format!("generation {generation}: {kept} kept, {restarted} restarted, {added} added, {removed} removed")
}

/// A generation is committed while no pod is replaced and no pod starts.
fn commit(simulation: &mut JobSimulation, width: u32) -> Vec<String> {
    let next = simulation.status().generation.unwrap() + 1;
    simulation.server.announced();
    simulation.resize(0, width);
    simulation.until_committed(next);
    committed(simulation)
}

#[test]
fn generations_that_follow_each_other_count_each_restart_once() {
    let mut simulation = JobSimulation::running();
    simulation.forget_starts();
    assert_eq!(commit(&mut simulation, 3), [counts(1, [6, 2, 1, 0])]);
    // PE 8 has no pod yet: its first one is made from whatever is newest by then.
    assert_eq!(commit(&mut simulation, 4), [counts(2, [7, 2, 1, 0])]);
    // Source and sink run what is wanted again; two PEs come and go without ever having run.
    assert_eq!(commit(&mut simulation, 2), [counts(3, [8, 0, 0, 2])]);
    simulation.settle();
    simulation.check_at_rest();
    // The two start if the PE controller is quicker than their removal.
    assert!(simulation.starts().into_keys().all(|id| id > 7), "{:?}", simulation.starts());
}

#[test]
fn a_pe_between_two_pods_is_not_restarted_by_the_next_generation() {
    let mut simulation = JobSimulation::running();
    commit(&mut simulation, 3);
    // Others are restarted once the new one runs.
    simulation.run_pod(8);
    while simulation.pe(0).unwrap().spec.generation == 0 {
        simulation.round();
    }
    simulation.take_down(0);
    simulation.forget_starts();
    // The sink still runs its first text.
    assert_eq!(commit(&mut simulation, 4), [counts(2, [8, 1, 1, 0])]);
    simulation.settle();
    let starts: Vec<_> = simulation.starts().into_iter().collect();
    assert_eq!(starts, [(0, 1), (1, 1), (9, 1)], "the next pod of the source, the sink, the new channel");
}

#[test]
fn pes_without_a_pod_to_be_replaced_are_kept() {
    // The source has ended, or was stopped, before it knew of the last generation -> what two generations come to
    let ends: [fn(&JobSimulation); 2] = [|simulation| simulation.complete(0), |simulation| simulation.stop(0)];
    for end in ends {
        let mut simulation = JobSimulation::running();
        end(&simulation);
        simulation.settle();
        assert_eq!(commit(&mut simulation, 3), [counts(1, [7, 1, 1, 0])]);
        // Its object is written, and the PE controller has not looked at it.
        simulation.round();
        assert_ne!(
            simulation.pe(0).unwrap().status.unwrap().observed_generation,
            simulation.pe(0).unwrap().metadata.generation
        );
        assert_eq!(commit(&mut simulation, 4), [counts(2, [8, 1, 1, 0])]);
    }
}

#[test]
fn a_suspended_job_restarts_nothing() {
    let mut simulation = JobSimulation::running();
    simulation.change_spec(|spec| spec.suspend = true);
    simulation.settle();
    simulation.server.announced();
    simulation.resize(0, 3);
    simulation.settle();
    let announced = simulation.server.announced().into_iter().filter(|announced| !announced.notice.warning);
    let notes: Vec<_> = announced.map(|announced| announced.notice.note).collect();
    assert_eq!(notes, [counts(1, [8, 0, 1, 0]), "generation 1 is rolled out".to_owned()]);
}

#[test]
fn a_pe_that_does_not_ask_for_numbers_of_channels_is_kept_also_when_it_gets_its_newest_text() {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.ignores = true);
    simulation.settle();
    assert_eq!(commit(&mut simulation, 3), [counts(1, [6, 2, 1, 0])]);
    simulation.settle();
    simulation.break_down(SAME_TO_OBSERVERS, PePhase::BackOff);
    assert_eq!(commit(&mut simulation, 4), [counts(2, [7, 2, 1, 0])]);
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn a_commit_is_told_once_at_most_and_with_its_numbers_wherever_the_frontend_dies() {
    let mut told = 0;
    for write in 0..12 {
        for has_effect in [false, true] {
            let mut simulation = JobSimulation::running();
            simulation.server.announced();
            simulation.resize(0, 3);
            simulation.crash_at_write(write, has_effect);
            simulation.settle();
            simulation.check_at_rest();
            let notes = committed(&simulation);
            assert!(notes.is_empty() || notes == [counts(1, [6, 2, 1, 0])], "{write} {has_effect}: {notes:?}");
            told += notes.len();
        }
    }
    assert!((12..24).contains(&told), "it is left out only if the frontend dies with the commit: {told}");
}

#[test]
fn pods_that_were_created_are_counted_and_not_those_of_pes_that_were_stopped() {
    let submitted = |simulation: &JobSimulation| notes(simulation, "SubmissionSucceeded");
    let mut simulation = JobSimulation::running();
    assert_eq!(submitted(&simulation), ["Running job job: the pods of 8 PEs were created"]);
    // A resize comes before all pods are there.
    simulation = JobSimulation::new();
    simulation.until_committed(0);
    simulation.run_pod(0);
    simulation.resize(0, 3);
    simulation.until_committed(1);
    simulation.settle();
    assert_eq!(submitted(&simulation), ["Running job job: the pods of 9 PEs were created"]);
    simulation = JobSimulation::new();
    simulation.until_committed(0);
    simulation.stop(1);
    simulation.settle();
    let note = "Running job job: the pods of 7 of 8 PEs were created; the others were stopped";
    assert_eq!(submitted(&simulation), [note]);
}

#[test]
fn a_submission_that_starts_over_counts_its_attempts() {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.seconds = 1_000);
    simulation.settle();
    let announced = simulation.server.announced().into_iter();
    let told: Vec<_> = announced.map(|announced| announced.notice).collect();
    let notes: Vec<_> = told.iter().map(|notice| notice.note.as_str()).collect();
    for (note, attempt) in notes.iter().zip([2, 3]) {
        let begins = format!("the submission took longer than submissionTimeOutInSeconds: attempt {attempt} begins");
        assert!(note.starts_with(&begins), "{told:?}");
    }
    assert!(notes[2].starts_with("3 attempts took more than 300 s of work each"), "{told:?}");
    assert_eq!(notes.len(), 3, "{told:?}");
}

#[test]
fn a_pe_that_waits_for_its_next_pod_or_stays_down_is_kept() {
    // how the source is down when it gets another text, one of the pool when it gets another place -> counts
    for phase in [PePhase::BackOff, PePhase::Waiting] {
        let mut simulation = JobSimulation::running();
        simulation.break_down(0, phase);
        assert_eq!(commit(&mut simulation, 3), [counts(1, [7, 1, 1, 0])], "{phase:?}");
    }
    for phase in [PePhase::BackOff, PePhase::Failed] {
        let mut simulation = JobSimulation::new();
        simulation.services.change(|services| services.places = true);
        simulation.settle();
        simulation.break_down(SAME_TO_OBSERVERS, phase);
        assert_eq!(commit(&mut simulation, 3), [counts(1, [3, 5, 1, 0])], "{phase:?}");
    }
}

#[test]
fn a_pe_whose_place_changes_is_restarted_although_its_text_stays() {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.places = true);
    simulation.settle();
    simulation.complete(SAME_TO_OBSERVERS);
    simulation.settle();
    simulation.forget_starts();
    // The pool has another tag. Source and sink have another text, three more PEs are in the pool and run.
    assert_eq!(commit(&mut simulation, 3), [counts(1, [3, 5, 1, 0])]);
    simulation.settle();
    assert_eq!(simulation.starts().into_iter().collect::<Vec<_>>(), [0, 1, 2, 6, 7, 8].map(|id| (id, 1)));
    simulation.check_at_rest();
}
