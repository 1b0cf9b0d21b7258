//! What users see of a job in particular situations.

use super::world::{Deletion, World, wait_for};
use crate::controllers::job::tasks::TaskKind;
use streams_api::{JobPhase, condition};

fn condition_reason(world: &World, kind: &str) -> Option<String> {
    condition::get(&world.status().conditions, kind).map(|condition| condition.reason.clone())
}

fn is_true(world: &World, kind: &str) -> bool {
    condition::is_true(&world.status().conditions, kind)
}

/// (generation, PEs kept, restarted, added, removed) of the last roll-out.
fn rollout(world: &World) -> (u64, u32, u32, u32, u32) {
    let rollout = world.status().rollout.expect("a generation was committed");
    (rollout.generation, rollout.kept, rollout.restarted, rollout.added, rollout.removed)
}

#[test]
fn a_resize_touches_only_what_changed() {
    let mut world = World::running();
    let before = world.pes();
    world.forget_starts();
    world.resize(0, 4);
    world.settle();
    // Source and sink see the width; two channels are new; PE 2 and 3, and the channels that were there, are not
    // touched.
    assert_eq!(world.starts().into_iter().collect::<Vec<_>>(), [(0, 1), (1, 1), (8, 1), (9, 1)]);
    let after = world.pes();
    for id in 2..8 {
        assert_eq!(after[&id], before[&id], "PE {id}");
    }
    assert_eq!(rollout(&world), (1, 6, 2, 2, 0));
    world.forget_starts();
    world.resize(0, 2);
    world.settle();
    assert_eq!(world.starts().into_keys().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(rollout(&world), (2, 6, 2, 0, 2));
    world.check_at_rest();
}

#[test]
fn what_cannot_be_submitted_fails_until_the_spec_is_corrected() {
    let mut world = World::new();
    world.services.change(|services| services.refuses = true);
    world.settle();
    assert_eq!(world.status().phase, Some(JobPhase::Failed));
    assert!(!is_true(&world, condition::SUBMITTED));
    assert_eq!(condition_reason(&world, condition::SUBMITTED).as_deref(), Some("ApplicationRejected"));
    world.check_at_rest();
    let version = world.server.version();
    world.settle();
    assert_eq!(world.server.version(), version, "it is not tried again");
    world.services.change(|services| services.refuses = false);
    world.edit("corrected");
    world.settle();
    world.check_at_rest();
    let status = world.status();
    assert_eq!((status.phase, status.submission_attempts), (Some(JobPhase::Running), 1));
}

#[test]
fn a_refused_width_leaves_the_running_generation_alone_and_is_not_tried_again() {
    let mut world = World::running();
    let before = world.pes();
    world.server.announced();
    world.services.change(|services| services.refuses = true);
    world.resize(0, 7);
    world.settle();
    assert_eq!(world.status().generation, Some(0));
    assert!(is_true(&world, condition::RESIZE_REJECTED) && is_true(&world, condition::READY));
    assert_eq!(world.pes(), before);
    let version = world.server.version();
    world.settle();
    assert_eq!(world.server.version(), version, "it is not tried again");
    // Whoever leads next knows it as well.
    world.crash();
    world.settle();
    assert_eq!(world.server.version(), version, "nothing is said again");
    let reasons: Vec<_> = world.server.announced().into_iter().map(|announced| announced.notice.reason).collect();
    assert_eq!(reasons, ["ParallelRegionWidthChangeFailure"], "people hear of it once");
    world.services.change(|services| services.refuses = false);
    world.resize(0, 6);
    world.settle();
    assert!(!is_true(&world, condition::RESIZE_REJECTED));
    assert_eq!(world.status().rejected_resize, None);
    world.check_at_rest();
}

#[test]
fn texts_that_are_being_written_are_not_asked_for_again() {
    let mut world = World::new();
    while world.leader.running() != [TaskKind::Publish] {
        world.work();
        world.reconcile();
    }
    world.leader.catch_up();
    let asked_for = world.leader.tasks();
    assert!(asked_for.publish.running().is_some_and(|request| request.pe_ids.len() == 8), "{asked_for:?}");
    // Some of the texts are written, and the mirror shows them.
    world.crash_at_write(3, false);
    wait_for(world.leader.work(TaskKind::Publish));
    world.take_over_from_the_dead();
    assert_eq!(world.texts().len(), 3);
    world.reconcile();
    let rest = world.leader.tasks();
    assert_eq!(rest.publish.running().map(|request| request.pe_ids.len()), Some(5));
    world.delete(&Deletion::Texts);
    world.reconcile();
    assert_eq!(world.leader.tasks(), rest, "it is being worked on");
}

#[test]
fn a_plan_whose_chunks_were_deleted_is_stored_again_or_the_job_says_that_it_is_lost() {
    let mut world = World::running();
    world.delete(&Deletion::Chunks);
    world.settle();
    world.check_at_rest();
    world.delete(&Deletion::Chunks);
    world.collect();
    world.crash();
    let running = world.pes();
    world.resize(0, 5);
    world.settle();
    assert_eq!(world.status().phase, Some(JobPhase::Degraded));
    assert_eq!(condition_reason(&world, condition::DEGRADED).as_deref(), Some("Lost"));
    assert_eq!(world.pes(), running, "what runs is left alone");
}

/// The process that fetched the ADL has it; another one gets it from the bundle when it is needed.
#[test]
fn an_adl_whose_chunks_were_deleted_is_stored_again_by_whoever_has_it() {
    let mut world = World::running();
    world.delete(&Deletion::AdlChunks);
    world.settle();
    world.check_at_rest();
    world.delete(&Deletion::AdlChunks);
    world.crash();
    world.settle();
    assert_eq!(world.chunks().len(), 1, "only the plan");
    world.resize(0, 3);
    world.settle();
    world.check_at_rest();
}

#[test]
fn going_back_to_the_applied_width_ends_a_rejection() {
    let mut world = World::running();
    world.services.change(|services| services.refuses = true);
    world.resize(0, 7);
    world.settle();
    world.resize(0, 2);
    world.settle();
    assert_eq!(world.status().generation, Some(0));
    world.check_at_rest();
    assert!(!is_true(&world, condition::RESIZE_REJECTED));
}

#[test]
fn a_submission_that_takes_too_long_starts_over_and_then_fails() {
    let mut world = World::new();
    world.services.change(|services| services.is_down = true);
    world.settle();
    let status = world.status();
    assert_eq!((status.phase, status.submission_attempts), (Some(JobPhase::Failed), 3));
    let condition = condition::get(&status.conditions, condition::SUBMITTED).unwrap();
    assert_eq!(condition.reason, "TimedOut");
    assert!(condition.message.contains("it is down"), "{}", condition.message);
    world.check_at_rest();
}

#[test]
fn a_submission_without_pods_starts_over_from_a_clean_slate_and_keeps_job_id_and_adl() {
    let mut world = World::new();
    // Without the PE controller.
    for _ in 0..50 {
        world.reconcile();
        world.work();
    }
    let status = world.status();
    assert_eq!(status.generation, Some(0));
    world.wait(301);
    world.reconcile();
    assert_eq!((world.status().generation, world.status().submission_attempts), (None, 2));
    world.reconcile();
    assert!(world.pes().values().all(|pe| pe.metadata.deletion_timestamp.is_some()));
    world.settle();
    world.check_at_rest();
    let after = world.status();
    assert_eq!((after.job_id, after.adl, after.submission_attempts), (status.job_id, status.adl, 2));
}

#[test]
fn a_newer_width_does_not_wait_for_the_pods_of_an_older_one() {
    let mut world = World::running();
    world.resize(0, 5);
    // Until it is committed, with no pod running.
    world.until(|world| world.status().generation == Some(1));
    world.resize(0, 3);
    world.until(|world| world.status().generation == Some(2));
    let never_launched =
        world.pes().into_values().filter(|pe| pe.status.as_ref().is_none_or(|status| status.launch_count == 0));
    assert!(never_launched.count() > 0, "PEs of the older generation are still there");
    world.settle();
    world.check_at_rest();
    assert_eq!(world.status().generation, Some(2));
}

#[test]
fn superseded_proposals_leave_nothing_and_start_nothing() {
    let mut world = World::running();
    world.forget_starts();
    world.resize(0, 9);
    world.until(|world| world.pe(12).is_some());
    let abandoned = world.status().proposal.unwrap().plan.sha256;
    world.resize(0, 3);
    world.settle();
    world.check_at_rest();
    assert_eq!(world.status().generation, Some(1));
    assert_ne!(world.status().plan.unwrap().sha256, abandoned);
    assert_eq!(world.starts().values().sum::<u32>(), 3, "source, sink and one channel: {:?}", world.starts());
}

#[test]
fn what_is_removed_stays_until_the_others_run_but_not_beyond_the_time_out() {
    let mut world = World::running();
    world.resize(0, 1);
    for _ in 0..30 {
        world.reconcile();
        world.work();
    }
    assert_eq!(world.status().generation, Some(1));
    assert!(world.pe(5).is_some(), "source and sink have not been replaced yet");
    world.wait(301);
    world.reconcile();
    world.collect();
    world.reconcile();
    assert!(world.pe(5).is_none());
    let status = world.status();
    let condition = condition::get(&status.conditions, condition::RESIZE_DELAYED).unwrap();
    assert!(condition.message.contains("2 PEs to run"), "{}", condition.message);
    world.settle();
    world.check_at_rest();
    assert!(condition::get(&world.status().conditions, condition::RESIZE_DELAYED).is_none());
}
