//! The order of a roll-out, and PEs that are restarted in waves (rule job-49).

use super::simulation::{JOB, JobSimulation, NAMESPACE, UserDeletion, wait_for};
use crate::controllers::job::decide::{Child, JobAction, JobDecision, WhichGeneration};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::SignedDuration;
use kube::core::{ObjectMeta, Status};
use streams_api::{MaxUnavailable, PePhase, RolloutOptions, condition, names};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes_fake::Verb;

fn running(max_unavailable: MaxUnavailable) -> JobSimulation {
    let simulation = JobSimulation::running();
    limit(&simulation, max_unavailable);
    simulation
}

fn limit(simulation: &JobSimulation, max_unavailable: MaxUnavailable) {
    simulation.change_spec(|spec| {
        spec.rollout = Some(RolloutOptions { max_unavailable, ..RolloutOptions::default() });
    });
}

/// PEs that the next decision brings to the committed generation.
fn next(simulation: &mut JobSimulation) -> Vec<u64> {
    simulation.leader.catch_up();
    let JobDecision::Work(actions) = simulation.leader.decided().0 else { panic!("a step") };
    let pes = actions.into_iter().filter_map(|action| match action {
        JobAction::Apply(Child::ProcessingElement(id), WhichGeneration::Committed) => Some(id),
        _ => None,
    });
    pes.collect()
}

fn deletes(simulation: &mut JobSimulation) -> bool {
    simulation.leader.catch_up();
    let JobDecision::Work(actions) = simulation.leader.decided().0 else { panic!("a step") };
    actions.iter().any(|action| matches!(action, JobAction::Delete(..)))
}

fn message(simulation: &JobSimulation, kind: &str) -> String {
    condition::get(&simulation.status().conditions, kind).map(|said| said.message.clone()).unwrap_or_default()
}

/// The controller comes to rest while no pod moves.
fn reconcile(simulation: &mut JobSimulation) {
    for _ in 0..5 {
        simulation.reconcile();
        simulation.work();
        simulation.wait(1);
    }
}

#[test]
fn restarted_pes_wait_for_new_ones_and_are_not_more_than_permitted() {
    // may be down -> restarted first, of the source and the sink
    let table = [
        (MaxUnavailable::Count(1), vec![0]),
        (MaxUnavailable::Percent(10), vec![0]),
        (MaxUnavailable::Percent(20), vec![0, 1]),
        (MaxUnavailable::Count(5), vec![0, 1]),
        (MaxUnavailable::default(), vec![0, 1]),
    ];
    for (max_unavailable, first) in table {
        let mut simulation = running(max_unavailable);
        simulation.resize(0, 4);
        simulation.until_committed(1);
        assert_eq!(next(&mut simulation), Vec::<u64>::new(), "the new PEs 8 and 9 do not run yet");
        // Texts are written some time after the last write (rule job-35).
        simulation.wait(6);
        reconcile(&mut simulation);
        let said = message(&simulation, condition::PROGRESSING);
        assert!(said.contains("PEs 0, 1 (RestartedLater): it is restarted when new PEs run: PEs 8, 9"), "{said}");
        simulation.run_pod(8);
        assert_eq!(next(&mut simulation), Vec::<u64>::new(), "one of them runs");
        simulation.run_pod(9);
        assert_eq!(next(&mut simulation), first, "{max_unavailable}");
        simulation.settle();
        simulation.check_at_rest();
    }
}

#[test]
fn who_is_furthest_behind_goes_first_though_generations_come_faster_than_waves() {
    let mut simulation = running(MaxUnavailable::Count(1));
    simulation.resize(0, 4);
    simulation.settle();
    simulation.resize(0, 3);
    simulation.until_committed(2);
    reconcile(&mut simulation);
    simulation.take_down(0);
    simulation.run_pod(0);
    // The next generation is committed before the sink has its turn.
    simulation.server.refuse(|call| {
        let is_sink = call.verb == Verb::Apply && call.kind == "ProcessingElement" && call.key.name.ends_with("-1");
        is_sink.then(|| *Status::failure("not now", "InternalError").with_code(500).boxed())
    });
    simulation.resize(0, 2);
    simulation.until_committed(3);
    simulation.steps_again();
    let runs = [0, 1].map(|id| simulation.pe(id).unwrap().spec.generation);
    assert_eq!((runs, next(&mut simulation)), ([2, 1], vec![1]));
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn the_next_wave_waits_until_the_one_before_runs_whoever_leads() {
    let mut simulation = running(MaxUnavailable::Count(1));
    simulation.resize(0, 1);
    simulation.until_committed(1);
    assert_eq!(next(&mut simulation), [0]);
    simulation.round();
    // Its object is written, its pod runs the old text, then it is going, then the new one is on its way: each seen by
    // a leader who remembers, and by one who does not.
    for step in 0..3 {
        assert_eq!(next(&mut simulation), Vec::<u64>::new(), "step {step}");
        assert!(!deletes(&mut simulation), "what is removed goes last");
        simulation.crash();
        assert_eq!(next(&mut simulation), Vec::<u64>::new(), "step {step}, another leader");
        if step == 1 {
            simulation.take_down(0);
        }
    }
    reconcile(&mut simulation);
    let said = message(&simulation, condition::PROGRESSING);
    assert!(said.contains("PE 1 (RestartedLater): it is restarted when those before it run: PE 0"), "{said}");
    simulation.run_pod(0);
    assert_eq!(next(&mut simulation), [1]);
    simulation.round();
    assert!(!deletes(&mut simulation), "PE 1 does not run its new text");
    simulation.run_pod(1);
    assert!(deletes(&mut simulation));
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn pes_that_are_down_go_first_and_do_not_count() {
    let mut simulation = running(MaxUnavailable::Count(1));
    simulation.break_down(1, PePhase::BackOff);
    simulation.resize(0, 1);
    simulation.until_committed(1);
    assert_eq!(next(&mut simulation), [1]);
    simulation.round();
    // It is still down, for its own reasons.
    assert_eq!(next(&mut simulation), [0]);
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn what_never_runs_with_its_new_text_stops_the_roll_out_and_a_newer_one_goes_on() {
    let mut simulation = running(MaxUnavailable::Count(1));
    simulation.resize(0, 1);
    simulation.until_committed(1);
    simulation.round();
    simulation.take_down(0);
    simulation.break_down(0, PePhase::BackOff);
    reconcile(&mut simulation);
    assert_eq!(next(&mut simulation), Vec::<u64>::new());
    // The time-out removes what earlier generations left, and restarts nothing.
    simulation.wait(301);
    reconcile(&mut simulation);
    assert_eq!(next(&mut simulation), Vec::<u64>::new());
    for kind in [condition::PROGRESSING, condition::RESIZE_DELAYED] {
        let said = message(&simulation, kind);
        assert!(said.contains("PE 0 (BackOff): it failed; PE 1 (RestartedLater)"), "{kind}: {said}");
    }
    assert!(simulation.pe(5).is_none(), "it may hold the room that is waited for");
    // Back: PE 1 runs what is wanted of it.
    simulation.forget_starts();
    simulation.resize(0, 2);
    simulation.until_committed(2);
    assert_eq!(next(&mut simulation), [0, 1], "one is down, the other runs what it should");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.starts().into_keys().collect::<Vec<_>>(), [0, 5]);
    // On: the PE that is down does not count any more.
    simulation.resize(0, 1);
    simulation.until_committed(3);
    simulation.round();
    simulation.take_down(0);
    simulation.break_down(0, PePhase::BackOff);
    simulation.resize(1, 1);
    simulation.until_committed(4);
    assert_eq!(next(&mut simulation), [0]);
    simulation.round();
    assert_eq!(next(&mut simulation), [1]);
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn a_newer_roll_out_counts_what_the_one_before_took_down_as_long_as_it_is_starting() {
    let mut simulation = running(MaxUnavailable::Count(1));
    simulation.resize(0, 1);
    simulation.until_committed(1);
    simulation.round();
    simulation.take_down(0);
    simulation.resize(0, 3);
    simulation.until_committed(2);
    for id in [8, 9] {
        if simulation.pe(id).is_some() {
            simulation.run_pod(id);
        }
    }
    assert_eq!(next(&mut simulation), [0]);
    simulation.round();
    assert_eq!(next(&mut simulation), Vec::<u64>::new(), "PE 0 is on its way");
    simulation.wait(301);
    assert_eq!(next(&mut simulation), [1], "not for ever");
    simulation.settle();
    simulation.check_at_rest();
}

/// The PE controller was slow, and restarted a PE for the text of an older generation when this one was committed.
#[test]
fn a_pe_that_was_taken_down_and_runs_an_older_text_holds_up_nobody() {
    let mut simulation = running(MaxUnavailable::Count(1));
    simulation.resize(0, 1);
    simulation.until_committed(1);
    assert_eq!(next(&mut simulation), [0]);
    simulation.round();
    simulation.resize(1, 1);
    simulation.until_committed(2);
    simulation.run_pod(0);
    assert_eq!(next(&mut simulation), [1], "it is further behind");
    simulation.round();
    assert_eq!(next(&mut simulation), Vec::<u64>::new(), "PE 1 is going");
    simulation.run_pod(1);
    assert_eq!(next(&mut simulation), [0]);
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn a_pe_that_is_about_to_be_replaced_for_an_older_text_counts_and_gets_the_newest_one() {
    let mut simulation = running(MaxUnavailable::Count(1));
    simulation.resize(0, 1);
    simulation.until_committed(1);
    simulation.round();
    simulation.run_pod(0);
    assert_eq!(next(&mut simulation), [1]);
    simulation.round();
    simulation.resize(1, 1);
    simulation.until_committed(2);
    assert_eq!(next(&mut simulation), [1], "PE 0 waits, although its number is smaller");
    simulation.round();
    simulation.forget_starts();
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.starts(), [(0, 1), (1, 1)].into());
}

/// A job with PEs in a host pool that is another one with each width of the first region: PEs 2, 3, 6 and 7.
fn placed(max_unavailable: MaxUnavailable) -> JobSimulation {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.places = true);
    simulation.settle();
    simulation.check_at_rest();
    simulation.forget_starts();
    limit(&simulation, max_unavailable);
    simulation
}

#[test]
fn pes_whose_host_pool_changes_move_in_waves_together_with_those_whose_text_does() {
    // may be down -> restarted together: of the pool, and source and sink
    let table: [(MaxUnavailable, &[&[u64]]); 3] = [
        (MaxUnavailable::Count(1), &[&[0], &[1], &[2], &[3], &[6], &[7]]),
        (MaxUnavailable::Count(4), &[&[0, 1, 2, 3], &[6, 7]]),
        (MaxUnavailable::default(), &[&[0, 1, 2, 3, 6, 7]]),
    ];
    for (max_unavailable, waves) in table {
        let mut simulation = placed(max_unavailable);
        simulation.resize(0, 1);
        simulation.until_committed(1);
        for wave in waves {
            assert_eq!(next(&mut simulation), *wave, "{max_unavailable}");
            // The first round writes the pool as well.
            simulation.round();
            assert_eq!(next(&mut simulation), Vec::<u64>::new(), "their objects are written, {max_unavailable}");
            simulation.crash();
            assert_eq!(next(&mut simulation), Vec::<u64>::new(), "the next leader, {max_unavailable}");
            wave.iter().for_each(|id| simulation.take_down(*id));
            assert_eq!(next(&mut simulation), Vec::<u64>::new(), "their pods are on their way, {max_unavailable}");
            simulation.run_pods();
            let all_started = waves.iter().flat_map(|wave| wave.iter()).take_while(|id| **id <= wave[wave.len() - 1]);
            assert!(simulation.starts().keys().eq(all_started), "{:?}, {max_unavailable}", simulation.starts());
        }
        simulation.settle();
        simulation.check_at_rest();
        assert!(simulation.starts().values().all(|starts| *starts == 1), "{:?}", simulation.starts());
    }
}

#[test]
fn a_pe_that_waits_to_be_moved_stays_where_it_is_when_its_pool_changes_back() {
    let mut simulation = placed(MaxUnavailable::Count(1));
    simulation.resize(0, 1);
    simulation.until_committed(1);
    simulation.round();
    simulation.run_pods();
    simulation.resize(0, 2);
    simulation.until_committed(2);
    simulation.settle();
    simulation.check_at_rest();
    assert!(![2, 3, 6, 7].iter().any(|id| simulation.starts().contains_key(id)), "{:?}", simulation.starts());
}

#[test]
fn a_pe_that_is_down_is_made_again_where_its_pool_says_now() {
    let mut simulation = placed(MaxUnavailable::Count(1));
    simulation.resize(0, 1);
    simulation.until_committed(1);
    simulation.round();
    // It waits for its turn, and fails.
    simulation.break_down(7, PePhase::BackOff);
    assert!(!simulation.run_pod(7), "there is no pool as it had before");
    assert_eq!(next(&mut simulation), [7], "it is its turn at once");
    simulation.round();
    simulation.run_pod(7);
    assert_eq!(simulation.starts(), [(7, 1)].into());
    assert_eq!(next(&mut simulation), Vec::<u64>::new(), "PE 0 does not run yet");
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn pods_that_run_and_have_not_settled_take_their_turns() {
    let mut simulation = running(MaxUnavailable::Count(1));
    simulation.resize(0, 1);
    [0, 1].into_iter().for_each(|id| simulation.unsettle(id));
    simulation.until_committed(1);
    assert_eq!(next(&mut simulation), [0]);
    simulation.round();
    assert_eq!(next(&mut simulation), Vec::<u64>::new(), "PE 0 is going");
    simulation.run_pod(0);
    simulation.unsettle(0);
    assert_eq!(next(&mut simulation), Vec::<u64>::new(), "it has not settled with its new text");
    simulation.run_pod(0);
    assert_eq!(next(&mut simulation), [1]);
    simulation.settle();
    simulation.check_at_rest();
}

/// The PE controller has created the first pod of a PE, and the PE says nothing of it.
pub(super) fn give_pod(simulation: &JobSimulation, id: u64, phase: &str) {
    let pe = simulation.pe(id).unwrap();
    let annotations = [
        (names::ANNOTATION_RUNTIME_ID, pe.spec.runtime_id.clone()),
        (names::ANNOTATION_PLACEMENT_HASH, pe.spec.placement_hash.clone().unwrap()),
    ];
    let name = format!("{}-1", names::processing_element(JOB, id));
    let metadata = ObjectMeta {
        namespace: Some(NAMESPACE.to_owned()),
        name: Some(name.clone()),
        labels: Some(names::pe_labels(JOB, id)),
        annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value)).into()),
        owner_references: Some(vec![controlled_by(&pe)]),
        ..ObjectMeta::default()
    };
    simulation.server.create(&Pod { metadata, ..Pod::default() });
    let named = Key::new(NAMESPACE, &name);
    simulation.server.edit(&named, |pod: &mut Pod| pod.status.get_or_insert_default().phase = Some(phase.to_owned()));
}

/// In a crowd, PEs say late that their first pods run (rule pe-20).
#[test]
fn first_pods_that_run_take_their_turns_although_their_pes_have_not_said_so() {
    // what the pods do -> restarted while the new PEs do not run, and when they do
    let table = [("Pending", vec![0, 1], vec![0, 1]), ("Running", vec![], vec![0])];
    for (phase, at_once, later) in table {
        let mut simulation = JobSimulation::new();
        limit(&simulation, MaxUnavailable::Count(1));
        simulation.until_committed(0);
        simulation.pes().keys().for_each(|id| give_pod(&simulation, *id, phase));
        simulation.resize(0, 4);
        simulation.until_committed(1);
        assert_eq!(next(&mut simulation), at_once, "{phase}");
        for id in [8, 9] {
            simulation.run_pod(id);
        }
        assert_eq!(next(&mut simulation), later, "{phase}");
        simulation.round();
        assert_eq!(next(&mut simulation), Vec::<u64>::new(), "they are going, or on their way: {phase}");
        simulation.crash();
        assert_eq!(next(&mut simulation), Vec::<u64>::new(), "whoever leads: {phase}");
        simulation.settle();
        simulation.check_at_rest();
    }
}

/// Somebody resizes again while pods settle that the roll-out before has replaced.
#[test]
fn pods_that_a_roll_out_has_replaced_and_that_have_not_settled_are_replaced_again_at_once() {
    // may be down -> restarted first by the second roll-out, of the source and the sink, which both change
    for (max_unavailable, first) in [(MaxUnavailable::Count(1), vec![0]), (MaxUnavailable::default(), vec![0, 1])] {
        let mut simulation = running(max_unavailable);
        simulation.resize(0, 1);
        simulation.until_committed(1);
        assert_eq!(next(&mut simulation), first, "{max_unavailable}");
        simulation.round();
        for id in &first {
            simulation.run_pod(*id);
            simulation.unsettle(*id);
        }
        simulation.resize(1, 1);
        simulation.until_committed(2);
        assert_eq!(next(&mut simulation), first, "nobody else is taken down, {max_unavailable}");
        simulation.round();
        assert_eq!(next(&mut simulation), Vec::<u64>::new(), "they are going, {max_unavailable}");
        simulation.settle();
        simulation.check_at_rest();
    }
}

#[test]
fn a_roll_out_has_the_time_besides_that_pods_take_to_settle() {
    let mut simulation = JobSimulation::running();
    simulation.change_spec(|spec| {
        spec.rollout = Some(RolloutOptions { min_ready_seconds: Some(1_000), ..RolloutOptions::default() });
    });
    simulation.resize(0, 1);
    simulation.until_committed(1);
    simulation.round();
    simulation.take_down(0);
    simulation.wait(310);
    reconcile(&mut simulation);
    assert_eq!((message(&simulation, condition::RESIZE_DELAYED), deletes(&mut simulation)), (String::new(), false));
    simulation.wait(1_000);
    reconcile(&mut simulation);
    let said = message(&simulation, condition::RESIZE_DELAYED);
    assert!(said.contains("the roll-out takes longer than 1300 s"), "{said}");
    assert!(simulation.pe(5).is_none());
}

/// Between the write of its object and that of its status nothing says that it is taken down.
#[test]
fn a_pe_that_is_only_moved_counts_from_when_its_object_is_written() {
    let mut simulation = placed(MaxUnavailable::Count(1));
    simulation.resize(0, 1);
    simulation.until_committed(1);
    for id in [0, 1] {
        simulation.round();
        simulation.run_pod(id);
    }
    assert_eq!(next(&mut simulation), [2]);
    simulation.round();
    assert_eq!(next(&mut simulation), Vec::<u64>::new(), "PE 2 is about to be taken down");
    // The mirror has not heard of the write.
    simulation.crash();
    assert_eq!(next(&mut simulation), Vec::<u64>::new(), "whoever leads");
    simulation.settle();
    simulation.check_at_rest();
}

/// The mirrors of texts and of PEs are not equally new.
#[test]
fn a_pe_that_was_written_counts_though_its_text_was_deleted_and_the_write_is_not_shown() {
    let mut simulation = running(MaxUnavailable::Count(1));
    simulation.resize(0, 1);
    simulation.until_committed(1);
    assert_eq!(next(&mut simulation), [0]);
    simulation.round();
    let text = simulation.pe(0).unwrap().spec.config_map.name;
    simulation.delete(&UserDeletion::ConfigMap(text));
    simulation.collect();
    // Everything but PEs.
    simulation.leader.deliver([usize::MAX, 0, usize::MAX, usize::MAX, usize::MAX, usize::MAX]);
    let JobDecision::Work(actions) = simulation.leader.decided().0 else { panic!("a step") };
    let sink = JobAction::Apply(Child::ProcessingElement(1), WhichGeneration::Committed);
    assert!(!actions.contains(&sink), "PE 0 is about to be taken down: {actions:?}");
    simulation.settle();
    simulation.check_at_rest();
}

/// The mirror of PEs is behind while the next generation is committed.
#[test]
fn a_pe_that_was_written_for_the_generation_before_counts_although_the_write_is_not_shown() {
    let mut simulation = running(MaxUnavailable::Count(1));
    simulation.resize(0, 1);
    simulation.until_committed(1);
    assert_eq!(next(&mut simulation), [0]);
    simulation.round();
    simulation.resize(1, 1);
    while simulation.status().generation != Some(2) {
        // Everything but PEs.
        simulation.leader.deliver([usize::MAX, 0, usize::MAX, usize::MAX, usize::MAX, usize::MAX]);
        let _ = wait_for(simulation.leader.round());
        simulation.work();
    }
    let JobDecision::Work(actions) = simulation.leader.decided().0 else { panic!("a step") };
    let applies = |id| actions.contains(&JobAction::Apply(Child::ProcessingElement(id), WhichGeneration::Committed));
    assert_eq!([0, 1].map(applies), [true, false], "PE 0 is going, and gets what is newest: {actions:?}");
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn a_pe_whose_restart_a_user_requests_does_not_wait_for_its_turn() {
    let mut simulation = placed(MaxUnavailable::Count(1));
    simulation.resize(0, 1);
    simulation.until_committed(1);
    simulation.round();
    assert_eq!(next(&mut simulation), Vec::<u64>::new(), "PE 0 is going");
    simulation.request_restart(6, "now");
    assert_eq!(next(&mut simulation), [6], "its pod goes anyway");
    simulation.round();
    simulation.take_down(6);
    simulation.meet_request(6, "now");
    simulation.run_pod(0);
    assert_eq!(next(&mut simulation), Vec::<u64>::new(), "PE 6 counts");
    simulation.run_pod(6);
    assert_eq!(next(&mut simulation), [1]);
    simulation.settle();
    simulation.check_at_rest();
    assert!(simulation.starts().values().all(|starts| *starts == 1), "{:?}", simulation.starts());
}

#[test]
fn past_the_time_out_restarts_and_removals_do_not_wait_for_new_pes() {
    let mut simulation = running(MaxUnavailable::Count(1));
    simulation.services.change(|services| services.refused_pods = [8, 9].into());
    simulation.resize(0, 4);
    simulation.until_committed(1);
    simulation.run_pods();
    reconcile(&mut simulation);
    assert_eq!(next(&mut simulation), Vec::<u64>::new());
    simulation.leader.catch_up();
    let wake_at = simulation.leader.decided().1.wake_at.expect("it looks again by itself");
    let left = wake_at.duration_since(simulation.server.now());
    assert!(left <= SignedDuration::from_secs(300), "{left}");
    simulation.server.advance(left.try_into().unwrap());
    for restarted in [0, 1] {
        assert_eq!(next(&mut simulation), [restarted]);
        simulation.round();
        simulation.run_pods();
    }
    reconcile(&mut simulation);
    let said = message(&simulation, condition::RESIZE_DELAYED);
    assert!(said.contains("PEs 8, 9 (PodRefused)"), "{said}");
    simulation.services.change(|services| services.refused_pods.clear());
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn as_long_as_waves_go_on_what_is_removed_stays_whatever_time_it_takes() {
    let mut simulation = running(MaxUnavailable::Count(1));
    simulation.resize(0, 1);
    simulation.until_committed(1);
    simulation.round();
    simulation.wait(290);
    simulation.run_pod(0);
    simulation.wait(20);
    assert!(!deletes(&mut simulation), "PE 1 still sends to it");
    simulation.wait(300);
    assert!(deletes(&mut simulation), "nothing has moved for long");
}

#[test]
fn what_interrupts_nothing_waits_for_nobody() {
    let mut simulation = running(MaxUnavailable::Count(1));
    // Shares of all PEs change, and the texts of two.
    simulation.give(1000);
    simulation.settle();
    simulation.complete(1);
    simulation.resize(0, 1);
    simulation.until_committed(1);
    assert_eq!(next(&mut simulation), [1, 2, 3, 4, 6, 7], "the completed sink at once, the source after it");
    simulation.round();
    assert_eq!(next(&mut simulation), [0]);
}

#[test]
fn a_suspended_job_is_rolled_out_at_once() {
    let mut simulation = running(MaxUnavailable::Count(1));
    simulation.change_spec(|spec| spec.suspend = true);
    simulation.settle();
    simulation.resize(0, 4);
    simulation.until_committed(1);
    assert_eq!(next(&mut simulation), [0, 1]);
}

/// While waves go on, and a moment after a write that the mirror does not show yet, a PE that runs its older text does
/// not count as one that runs what is wanted.
#[test]
fn a_write_that_is_not_shown_yet_is_not_taken_for_the_end_of_the_roll_out() {
    let mut simulation = running(MaxUnavailable::Count(1));
    simulation.resize(0, 1);
    simulation.until_committed(1);
    simulation.round();
    // The mirror does not hear of the write.
    let (_, report) = simulation.leader.decided();
    assert_eq!((report.pending, report.ready), (2, 5));
    assert!(report.waits.to_string().contains("PE 1 (RestartedLater)"), "{}", report.waits);
}
