//! Whole lives of a job, and every crash on the way.

use super::world::World;
use crate::controllers::job::{
    decide::{Child, Owned},
    observed::Object,
};
use streams_api::{JobPhase, condition};

/// A life: what the user does whenever nothing happens any more.
type Life = &'static [fn(&mut World)];

const LIVES: [(&str, Life); 8] = [
    ("submission", &[]),
    ("resizes", &[|w| w.resize(0, 5), |w| w.resize(0, 1), |w| (w.resize(0, 3), w.resize(1, 4)).0]),
    ("grown and shrunk back", &[|w| w.resize(1, 6), |w| w.resize(1, 2)]),
    ("several regions at once", &[|w| w.resize_both([5, 1]), |w| w.resize_both([1, 4]), |w| w.resize(1, 2)]),
    (
        "objects deleted by users",
        &[
            |w| w.delete(&Owned::Child(Child::ProcessingElement(1))),
            |w| w.delete(&Owned::Child(Child::Service(0))),
            |w| w.delete(&Owned::Child(Child::JobConfigMap)),
            |w| w.delete(&Owned::Child(Child::HostPool(0))),
            |w| w.delete(&Owned::Child(Child::Region(1))),
            |w| w.children.texts.values_mut().for_each(|object| object.deleting = true),
            // The chunk of the ADL.
            |w| w.children.chunks.values_mut().take(1).for_each(|object| object.deleting = true),
        ],
    ),
    (
        "texts of two compilers",
        &[
            |w| w.resize(0, 3),
            |w| {
                w.compiler = "2".to_owned();
                w.children.texts.values_mut().for_each(|object| object.deleting = true);
            },
            |w| w.resize(0, 4),
        ],
    ),
    (
        "corrected",
        &[|w| {
            if w.status.generation.is_none() {
                w.edit("b", false);
            }
        }],
    ),
    (
        "a PE that must not be started again",
        &[|w| w.delete(&Owned::Child(Child::ProcessingElement(2))), |w| w.resize(0, 4)],
    ),
];

fn live(name: &str, life: Life, crash_at: Option<usize>) -> World {
    let mut world = World::new();
    world.crash_at = crash_at;
    if name == "corrected" {
        world.broken = true;
    }
    world.settle();
    world.check_at_rest();
    for user in life {
        user(&mut world);
        world.settle();
        world.check_at_rest();
    }
    world
}

/// The controller and the long work go on, with no pod starting, until `reached`.
fn until(world: &mut World, reached: impl Fn(&World) -> bool) {
    for _ in 0..100 {
        if reached(world) {
            return;
        }
        world.step(|_| true).unwrap();
        world.finish_work(false).unwrap();
    }
    panic!("not reached: {:#?}", world.log);
}

#[test]
fn a_crash_after_any_write_is_followed_by_the_same_end() {
    for (name, life) in LIVES {
        let whole = live(name, life, None);
        assert!(whole.writes > 10, "{name}: {:?}", whole.log);
        for crash_at in 1..=whole.writes {
            let crashed = live(name, life, Some(crash_at));
            assert_eq!(crashed.visible(), whole.visible(), "{name}, crash after {}", whole.log[crash_at - 1]);
        }
    }
}

#[test]
fn a_resize_touches_only_what_changed() {
    let mut world = live("submission", &[], None);
    let before = world.children.clone();
    world.starts.clear();
    world.resize(0, 4);
    world.settle();
    // Source and sink see the width; two channels are new; PE 2 and 3, and the channels that were there, are not
    // touched.
    assert_eq!(world.starts.iter().map(|(id, n)| (*id, *n)).collect::<Vec<_>>(), [(0, 1), (1, 1), (8, 1), (9, 1)]);
    for id in 2..8 {
        assert_eq!(world.children.processing_elements[&id], before.processing_elements[&id], "PE {id}");
    }
    let rollout = world.status.rollout.clone().unwrap();
    assert_eq!((rollout.generation, rollout.kept, rollout.restarted, rollout.added, rollout.removed), (1, 6, 2, 2, 0));
    world.starts.clear();
    world.resize(0, 2);
    world.settle();
    assert_eq!(world.starts.keys().copied().collect::<Vec<_>>(), [0, 1]);
    let rollout = world.status.rollout.clone().unwrap();
    assert_eq!((rollout.generation, rollout.kept, rollout.restarted, rollout.added, rollout.removed), (2, 6, 2, 0, 2));
    world.check_at_rest();
}

#[test]
fn what_cannot_be_submitted_fails_until_the_spec_is_corrected() {
    let mut world = World::new();
    world.broken = true;
    world.settle();
    assert_eq!(world.status.phase, Some(JobPhase::Failed));
    let condition = condition::get(&world.status.conditions, condition::SUBMITTED).unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "Broken"));
    world.check_at_rest();
    let writes = world.writes;
    world.settle();
    assert_eq!(world.writes, writes, "it is not tried again");
    world.edit("b", false);
    world.settle();
    world.check_at_rest();
    assert_eq!(world.status.phase, Some(JobPhase::Running));
    assert_eq!(world.status.submission_attempts, 1);
}

#[test]
fn a_refused_width_leaves_the_running_generation_alone_and_is_not_tried_again() {
    let mut world = live("submission", &[], None);
    let before = world.children.clone();
    world.broken = true;
    world.resize(0, 7);
    world.settle();
    assert_eq!(world.status.generation, Some(0));
    assert!(condition::is_true(&world.status.conditions, condition::RESIZE_REJECTED));
    assert!(condition::is_true(&world.status.conditions, condition::READY));
    assert_eq!(world.children.processing_elements, before.processing_elements);
    let writes = world.writes;
    world.settle();
    assert_eq!(world.writes, writes, "it is not tried again");
    world.broken = false;
    world.resize(0, 6);
    world.settle();
    assert!(!condition::is_true(&world.status.conditions, condition::RESIZE_REJECTED));
    assert_eq!(world.status.rejected_resize, None);
    world.check_at_rest();
}

#[test]
fn texts_that_are_being_written_are_not_asked_for_again() {
    let mut world = World::new();
    while !world.publishing() {
        world.finish_work(false).unwrap();
        world.step(|_| true).unwrap();
    }
    let asked_for = world.texts_asked_for();
    // The mirror shows some of the texts already.
    world.children.texts.insert(asked_for[0].clone(), Object::default());
    world.step(|_| true).unwrap();
    assert!(world.publishing());
    assert_eq!(world.texts_asked_for(), asked_for);
}

#[test]
fn a_plan_whose_chunks_were_deleted_is_stored_again_or_the_job_says_that_it_is_lost() {
    let mut world = live("submission", &[], None);
    world.children.chunks.values_mut().for_each(|object| object.deleting = true);
    world.settle();
    world.check_at_rest();
    world.children.chunks.values_mut().for_each(|object| object.deleting = true);
    world.collect();
    world.crash();
    let running = world.children.processing_elements.clone();
    world.resize(0, 5);
    world.settle();
    assert_eq!(world.status.phase, Some(JobPhase::Degraded));
    assert_eq!(condition::get(&world.status.conditions, condition::DEGRADED).unwrap().reason, "Lost");
    assert_eq!(world.children.processing_elements, running, "what runs is left alone");
}

#[test]
fn going_back_to_the_applied_width_ends_a_rejection() {
    let mut world = live("submission", &[], None);
    world.broken = true;
    world.resize(0, 7);
    world.settle();
    world.resize(0, 2);
    world.settle();
    assert_eq!(world.status.generation, Some(0));
    world.check_at_rest();
    assert!(!condition::is_true(&world.status.conditions, condition::RESIZE_REJECTED));
}

#[test]
fn a_submission_that_takes_too_long_starts_over_and_then_fails() {
    let mut world = World::new();
    world.services_down = true;
    world.settle();
    assert_eq!(world.status.phase, Some(JobPhase::Failed));
    assert_eq!(world.status.submission_attempts, 3);
    let condition = condition::get(&world.status.conditions, condition::SUBMITTED).unwrap();
    assert_eq!(condition.reason, "TimedOut");
    assert!(condition.message.contains("it is broken"), "{}", condition.message);
    world.check_at_rest();
}

#[test]
fn a_submission_without_pods_starts_over_from_a_clean_slate_and_keeps_job_id_and_adl() {
    let mut world = World::new();
    // Without the PE controller.
    for _ in 0..50 {
        world.step(|_| true).unwrap();
        world.finish_work(false).unwrap();
    }
    assert_eq!(world.status.generation, Some(0));
    let (id, adl) = (world.status.job_id, world.status.adl.clone());
    world.now = world.now.checked_add(k8s_openapi::jiff::SignedDuration::from_secs(301)).unwrap();
    world.step(|_| true).unwrap();
    assert_eq!((world.status.generation, world.status.submission_attempts), (None, 2));
    world.step(|_| true).unwrap();
    assert!(world.children.processing_elements.values().all(|pe| pe.object.deleting));
    world.settle();
    world.check_at_rest();
    assert_eq!((world.status.job_id, world.status.adl.clone()), (id, adl));
    assert_eq!(world.status.submission_attempts, 2);
}

#[test]
fn a_newer_width_does_not_wait_for_the_pods_of_an_older_one() {
    let mut world = live("submission", &[], None);
    world.resize(0, 5);
    // Until it is committed, with no pod running.
    until(&mut world, |world| world.status.generation == Some(1));
    world.resize(0, 3);
    until(&mut world, |world| world.status.generation == Some(2));
    let superfluous = world.children.processing_elements.values().filter(|pe| !pe.launched).count();
    assert!(superfluous > 0, "PEs of the older generation are still there");
    world.settle();
    world.check_at_rest();
    assert_eq!(world.status.generation, Some(2));
}

#[test]
fn superseded_proposals_leave_nothing_and_start_nothing() {
    let mut world = live("submission", &[], None);
    world.starts.clear();
    world.resize(0, 9);
    until(&mut world, |world| world.children.processing_elements.contains_key(&12));
    let abandoned = world.status.proposal.clone().unwrap().plan.sha256;
    world.resize(0, 3);
    world.settle();
    world.check_at_rest();
    assert_eq!(world.status.generation, Some(1));
    assert_ne!(world.status.plan.as_ref().unwrap().sha256, abandoned);
    assert_eq!(world.starts.values().sum::<u32>(), 3, "source, sink and one channel: {:?}", world.starts);
}

#[test]
fn what_is_removed_stays_until_the_others_run_but_not_beyond_the_time_out() {
    let mut world = live("submission", &[], None);
    world.resize(0, 1);
    for _ in 0..30 {
        world.step(|_| true).unwrap();
        world.finish_work(false).unwrap();
    }
    assert_eq!(world.status.generation, Some(1));
    assert!(world.children.processing_elements.contains_key(&5), "source and sink have not been replaced yet");
    world.now = world.now.checked_add(k8s_openapi::jiff::SignedDuration::from_secs(301)).unwrap();
    world.step(|_| true).unwrap();
    world.collect();
    world.step(|_| true).unwrap();
    assert!(!world.children.processing_elements.contains_key(&5));
    let condition = condition::get(&world.status.conditions, condition::RESIZE_DELAYED).unwrap();
    assert!(condition.message.contains("2 PEs to run"), "{}", condition.message);
    world.settle();
    world.check_at_rest();
    assert!(condition::get(&world.status.conditions, condition::RESIZE_DELAYED).is_none());
}
