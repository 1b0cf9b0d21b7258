//! The rows of the table, one by one: what is observed, what is done.

use super::world::World;
use crate::controllers::job::{
    decide::{Action, Child, Decision, Owned, Propagation, Step, WhichGeneration, decide},
    observed::Observed,
    tasks::{Failure, PublishRequest, Remedy, Slot, Task},
};
use streams_api::condition;

/// What is done, in a word or two.
fn summary(action: &Action) -> String {
    match action {
        Action::Start(task) => match task {
            Task::Fetch(spec_generation) => format!("start fetch {spec_generation}"),
            Task::Compile(request) => format!("start compile {}", request.generation),
            Task::Publish(PublishRequest { pe_ids, .. }) => format!("start publish {pe_ids:?}"),
            Task::Repair(PublishRequest { pe_ids, .. }) => format!("start repair {pe_ids:?}"),
        },
        Action::StoreAgain(stored) => format!("store {stored:?} again"),
        Action::Apply(child, which) => {
            let which = if *which == WhichGeneration::Proposed { "create" } else { "apply" };
            format!("{which} {}", name(&Owned::Child(*child)))
        }
        Action::TakeOver { region, width } => format!("region {region} takes over {width}"),
        Action::Delete(child, Propagation::Background) => format!("delete {}", name(child)),
        Action::Delete(child, Propagation::Foreground) => format!("clear {}", name(child)),
    }
}

fn name(object: &Owned) -> String {
    match object {
        Owned::Child(Child::ProcessingElement(id)) => format!("pe {id}"),
        Owned::Child(Child::Service(id)) => format!("service {id}"),
        Owned::Child(Child::Region(index)) => format!("region {index}"),
        Owned::Child(Child::HostPool(index)) => format!("pool {index}"),
        Owned::Child(Child::JobConfigMap) => "labels".to_owned(),
        Owned::ConfigMap(name) => name.clone(),
    }
}

fn done(observed: &Observed) -> Vec<String> {
    match decide(observed).0 {
        Decision::Step(Step::AllocateJobId) => vec!["number".to_owned()],
        Decision::Step(Step::Record(change)) => vec![change.name().to_owned()],
        Decision::Work(actions) => {
            let mut done: Vec<_> = actions.iter().map(summary).collect();
            done.sort();
            done
        }
    }
}

/// A world in which the controller and the long work have gone on until the next action is `action`; no pod starts.
fn before(mut world: World, action: &str) -> World {
    for _ in 0..100 {
        if done(&world.observe()).iter().any(|summary| summary == action) {
            return world;
        }
        world.step(|_| true).unwrap();
        world.finish_work(false).unwrap();
        world.collect();
    }
    panic!("{action} never comes: {:#?}", world.log);
}

fn running() -> World {
    let mut world = World::new();
    world.settle();
    world
}

fn resized(width: u32) -> World {
    let mut world = running();
    world.resize(0, width);
    world
}

fn failure(remedy: Remedy) -> Failure {
    Failure { remedy, reason: "R".to_owned(), message: "m".to_owned(), stage: None, code: None }
}

#[test]
fn a_submission_goes_through_the_rows_in_order() {
    let steps = [
        ("number", vec!["number"]),
        ("start fetch 1", vec!["start fetch 1"]),
        ("pin the ADL", vec!["pin the ADL"]),
        ("start compile 0", vec!["start compile 0"]),
        ("propose", vec!["propose"]),
        ("start publish [0, 1, 2, 3, 4, 5, 6, 7]", vec!["start publish [0, 1, 2, 3, 4, 5, 6, 7]"]),
    ];
    for (step, expected) in steps {
        assert_eq!(done(&before(World::new(), step).observe()), expected, "{step}");
    }
    let mut expected = vec!["create labels".to_owned(), "create pool 0".to_owned()];
    expected.extend((0..8).flat_map(|id| [format!("create pe {id}"), format!("create service {id}")]));
    expected.extend((0..2).map(|index| format!("create region {index}")));
    expected.sort();
    assert_eq!(done(&before(World::new(), "create labels").observe()), expected, "objects");
    assert_eq!(done(&before(World::new(), "commit").observe()), ["commit"]);
    assert!(done(&running().observe()).is_empty(), "nothing to do");
}

#[test]
fn before_the_commit_of_a_resize_nothing_that_runs_is_touched() {
    assert_eq!(done(&before(resized(4), "start compile 1").observe()), ["start compile 1"]);
    let publish = "start publish [0, 1, 8, 9]";
    assert_eq!(done(&before(resized(4), publish).observe()), [publish]);
    let expected = ["create labels", "create pe 8", "create pe 9", "create service 8", "create service 9"];
    assert_eq!(done(&before(resized(4), "create pe 8").observe()), expected);
    assert_eq!(done(&before(resized(4), "commit").observe()), ["commit"]);
}

#[test]
fn a_request_for_several_regions_is_compiled_as_a_whole_however_far_it_is_taken_over() {
    let mut world = running();
    world.resize_both([4, 3]);
    let take_over = ["region 0 takes over 4", "region 1 takes over 3"];
    assert_eq!(done(&world.observe()), [take_over[0], take_over[1], "start compile 1"]);
    let wanted = world.observe().desired_widths;
    // Only one of them is written before the process dies.
    world.step(|index| index == 1).unwrap();
    world.crash();
    assert_eq!(world.observe().desired_widths, wanted);
    let summary = done(&world.observe());
    assert_eq!(summary.iter().filter(|summary| summary.contains("takes over")).count(), 1, "{summary:?}");
    // Somebody scales the other one meanwhile: that is newer.
    let left: u64 = if summary.contains(&take_over[0].to_owned()) { 0 } else { 1 };
    world.resize(left, 6);
    assert_eq!(done(&world.observe()), ["start compile 1"]);
    assert!(world.observe().desired_widths.values().any(|width| *width == 6));
}

#[test]
fn after_the_commit_existing_pes_are_told_and_what_is_removed_waits_for_them() {
    let mut world = before(resized(1), "commit");
    world.step(|_| true).unwrap();
    let expected = ["apply labels", "apply pe 0", "apply pe 1", "apply pool 0"];
    let summary: Vec<_> = done(&world.observe()).into_iter().filter(|summary| !summary.contains("plan")).collect();
    assert_eq!(summary, expected);
    world.step(|_| true).unwrap();
    assert!(done(&world.observe()).iter().all(|summary| !summary.contains("pe 5")), "it runs until the others do");
    world.run_pods();
    assert!(done(&world.observe()).contains(&"delete pe 5".to_owned()));
    world.step(|_| true).unwrap();
    world.collect();
    assert!(done(&world.observe()).contains(&"delete service 5".to_owned()), "its Service goes after it");
}

#[test]
fn long_work_is_waited_for_retried_or_given_up() {
    let world = before(World::new(), "start compile 0");
    let observed = world.clone().observe();
    let Decision::Work(actions) = decide(&observed).0 else { panic!("a step") };
    let [Action::Start(Task::Compile(key))] = actions.as_slice() else { panic!("{actions:?}") };
    let key = key.clone();
    let later = observed.now.checked_add(k8s_openapi::jiff::SignedDuration::from_secs(7)).unwrap();
    // state of the compilation -> what is done, whether there is trouble to show, whether it looks again by itself at
    // that time
    let table = [
        (Slot::Idle, vec!["start compile 0"], false, false),
        (Slot::Running(key.clone()), vec![], false, false),
        (Slot::Failed(key.clone(), failure(Remedy::Retry(later))), vec![], true, true),
        (Slot::Failed(key.clone(), failure(Remedy::Retry(observed.now))), vec!["start compile 0"], true, false),
        (Slot::Failed(key, failure(Remedy::Correct)), vec!["fail the submission"], false, false),
    ];
    for (slot, expected, trouble, wakes) in table {
        let mut observed = observed.clone();
        observed.tasks.compile = slot.clone();
        let (_, report) = decide(&observed);
        assert_eq!(done(&observed), expected, "{slot:?}");
        assert_eq!(report.trouble.is_some(), trouble, "{slot:?}");
        assert_eq!(report.wake_at == Some(later), wakes, "{slot:?}");
    }
}

#[test]
fn a_spec_that_cannot_be_submitted_is_refused_before_anything_is_done() {
    let mut observed = World::new().observe();
    observed.refusal = Some(failure(Remedy::Correct));
    assert_eq!(done(&observed), ["fail the submission"]);
}

#[test]
fn an_action_that_failed_is_shown() {
    let mut observed = running().observe();
    observed.last_failure = Some(failure(Remedy::Correct));
    assert_eq!(decide(&observed).1.trouble.map(|trouble| trouble.reason), Some("R".to_owned()));
}

#[test]
fn past_its_time_a_submission_starts_over_and_in_the_end_fails() {
    let world = before(World::new(), "commit");
    let mut observed = world.clone().observe();
    observed.now = observed.now.checked_add(k8s_openapi::jiff::SignedDuration::from_secs(300)).unwrap();
    assert_eq!(done(&observed), ["start over"]);
    observed.status.submission_attempts = 3;
    assert_eq!(done(&observed), ["fail the submission"]);
    // Submitted once is submitted for good.
    let mut observed = running().observe();
    observed.now = observed.now.checked_add(k8s_openapi::jiff::SignedDuration::from_secs(3000)).unwrap();
    assert!(done(&observed).is_empty());
}

#[test]
fn a_clean_slate_is_cleared_with_what_depends_on_it_first() {
    let mut world = before(World::new(), "commit");
    world.edit("b", false);
    world.step(|_| true).unwrap();
    // The proposal for the old spec is abandoned before the bundle is fetched again.
    let cleared = before(world, "clear labels");
    let expected: Vec<_> =
        done(&cleared.clone().observe()).into_iter().filter(|summary| summary.starts_with("clear")).collect();
    assert_eq!(
        expected.len(),
        8 + 8 + 8 + 2 + 1 + 1,
        "PEs, Services, texts, regions, the pool, the labels: {expected:?}"
    );
}

#[test]
fn what_users_delete_is_applied_again_unless_it_must_not_start_again() {
    // deleted -> what is done
    let table = [
        (Child::Service(3), "apply service 3"),
        (Child::ProcessingElement(3), "apply pe 3"),
        (Child::Region(1), "apply region 1"),
        (Child::HostPool(0), "apply pool 0"),
        (Child::JobConfigMap, "apply labels"),
    ];
    for (child, expected) in table {
        let mut world = running();
        world.delete(&Owned::Child(child));
        assert!(done(&world.clone().observe()).is_empty(), "{child:?} is still on its way out");
        world.collect();
        assert_eq!(done(&world.observe()), [expected]);
    }
    let mut world = running();
    world.delete(&Owned::Child(Child::ProcessingElement(2)));
    world.collect();
    let observed = world.observe();
    assert!(done(&observed).is_empty());
    assert_eq!(decide(&observed).1.down.into_iter().collect::<Vec<_>>(), [2]);
    world.step(|_| true).unwrap();
    assert!(condition::is_true(&world.status.conditions, condition::DEGRADED));
}
