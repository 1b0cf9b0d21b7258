//! The rows of the decision table, one by one: the observation, and the actions.

use super::simulation::{JobSimulation, NOT_RESTARTABLE, UserDeletion, wait_for};
use crate::controllers::job::child::Port;
use crate::controllers::job::decide::{
    Child, JobAction, JobDecision, Owned, Propagation, Step, WhichGeneration, decide,
};
use crate::controllers::job::observed::JobObservation;
use crate::controllers::job::tasks::{Failure, PublishRequest, Remedy, RenewRequest, Slot, Task, TaskKind};
use crate::controllers::reconciler::Next;
use kube::core::Status;
use std::collections::BTreeSet;
use std::time::Duration;
use streams_api::{PeOptions, TraceLevel, condition};
use streams_kubernetes::queue::Outcome;
use streams_kubernetes_fake::{Fault, Verb};

/// What is done, in a word or two.
fn summary(action: &JobAction) -> String {
    match action {
        JobAction::Start(task) => match task {
            Task::Fetch(request) => format!("start fetch {}", request.spec_generation),
            Task::Compile(request) => format!("start compile {}", request.generation),
            Task::Publish(PublishRequest { pe_ids, .. }) => format!("start publish {pe_ids:?}"),
            Task::Repair(PublishRequest { pe_ids, .. }) => format!("start repair {pe_ids:?}"),
            Task::Renew(RenewRequest { texts, .. }) => format!("start renew {:?}", texts.pe_ids),
        },
        JobAction::StoreAgain(stored) => format!("store {stored:?} again"),
        JobAction::Apply(child, which) => {
            let which = if *which == WhichGeneration::Proposed { "create" } else { "apply" };
            format!("{which} {}", name(&Owned::Child(*child)))
        }
        JobAction::RestoreMetadata(name) => format!("restore {name}"),
        JobAction::Admit => "admit".to_owned(),
        JobAction::Tell(name, told) => format!("tell {name} {:?}", told.status.phase.unwrap_or_default()),
        JobAction::WriteWidth(write) => format!("write {} into region {}", write.width, write.index),
        JobAction::TakeOver { region, width } => format!("region {region} takes over {width}"),
        JobAction::Delete(child, Propagation::Background) => format!("delete {}", name(child)),
        JobAction::Delete(child, Propagation::Foreground) => format!("clear {}", name(child)),
        JobAction::EndPods(id) => format!("end pods of {id}"),
    }
}

fn name(object: &Owned) -> String {
    match object {
        Owned::Child(Child::ProcessingElement(id)) => format!("pe {id}"),
        Owned::Child(Child::Service(id)) => format!("service {id}"),
        Owned::Child(Child::Region(index)) => format!("region {index}"),
        Owned::Child(Child::HostPool(index)) => format!("pool {index}"),
        Owned::Child(Child::JobConfigMap) => "labels".to_owned(),
        Owned::Child(Child::Export(port)) => format!("export {}", port.pe),
        Owned::Child(Child::Import(port)) => format!("import {}", port.pe),
        Owned::Child(Child::ConsistentRegion(index)) => format!("consistent region {index}"),
        Owned::Child(Child::ConsistentRegionService) => "service of consistent regions".to_owned(),
        Owned::Child(Child::TransportSecret) => "secret".to_owned(),
        Owned::ConfigMap(name) => name.clone(),
    }
}

fn done(observed: &JobObservation) -> Vec<String> {
    match decide(observed).0 {
        JobDecision::Step(Step::AllocateJobId(None)) => vec!["number".to_owned()],
        JobDecision::Step(Step::AllocateJobId(Some(_))) => vec!["number and pin the ADL".to_owned()],
        JobDecision::Step(Step::Record(change)) => vec![change.name().to_owned()],
        JobDecision::Step(Step::RecordAndStart(change, task)) => {
            vec![change.name().to_owned(), summary(&JobAction::Start(*task))]
        }
        JobDecision::Step(Step::RefuseRequest(_, name, _)) => vec![format!("refuse {name}")],
        JobDecision::Work(actions) => {
            let mut done: Vec<_> = actions.iter().map(summary).collect();
            done.sort();
            done
        }
    }
}

/// What the leader would do now.
fn next(simulation: &mut JobSimulation) -> Vec<String> {
    simulation.leader.catch_up();
    done(&simulation.leader.observed())
}

/// The simulation after the controller and the long work have gone on until the next action is `action`; no pod starts.
fn before(mut simulation: JobSimulation, action: &str) -> JobSimulation {
    for _ in 0..100 {
        if next(&mut simulation).iter().any(|summary| summary == action) {
            return simulation;
        }
        simulation.round();
        simulation.work();
        simulation.collect();
    }
    panic!("{action} never comes");
}

fn resized(width: u32) -> JobSimulation {
    let simulation = JobSimulation::running();
    simulation.resize(0, width);
    simulation
}

fn failure(remedy: Remedy) -> Failure {
    Failure { remedy, reason: "R".to_owned(), message: "m".to_owned(), stage: None, code: None }
}

#[test]
fn a_submission_goes_through_the_rows_in_order() {
    let steps = [
        ("start fetch 1", vec!["start fetch 1"]),
        ("number and pin the ADL", vec!["number and pin the ADL"]),
        ("start compile 0", vec!["start compile 0"]),
        ("propose", vec!["propose"]),
    ];
    for (step, expected) in steps {
        assert_eq!(next(&mut before(JobSimulation::new(), step)), expected, "{step}");
    }
    // What refers to no text comes with the texts.
    let publish = "start publish [0, 1, 2, 3, 4, 5, 6, 7]";
    let mut expected = ["create labels", "create pool 0", publish].map(str::to_owned).to_vec();
    expected.extend((0..8).map(|id| format!("create service {id}")));
    expected.extend((0..2).map(|index| format!("create region {index}")));
    let interfaces = ["export 4", "export 5", "import 1", "consistent region 0", "service of consistent regions"];
    expected.extend(interfaces.map(|interface| format!("create {interface}")));
    expected.sort();
    assert_eq!(next(&mut before(JobSimulation::new(), publish)), expected, "objects");
    let pes: Vec<_> = (0..8).map(|id| format!("create pe {id}")).collect();
    assert_eq!(next(&mut before(JobSimulation::new(), "create pe 0")), pes);
    assert_eq!(next(&mut before(JobSimulation::new(), "commit")), ["commit"]);
    assert!(next(&mut JobSimulation::running()).is_empty(), "nothing to do");
}

#[test]
fn before_the_commit_of_a_resize_nothing_that_runs_is_touched() {
    assert_eq!(next(&mut before(resized(4), "start compile 1")), ["start compile 1"]);
    let expected = ["create export 8", "create export 9", "create labels", "create service 8", "create service 9"];
    // The texts are begun while the plan is stored, in a crowd with the proposal. The rest follows as soon as that is
    // recorded.
    let with_the_proposal = ["propose", "start publish [0, 1, 8, 9]"];
    for (is_crowded, step) in [(false, &with_the_proposal[..1]), (true, &with_the_proposal[..])] {
        let simulation = resized(4);
        simulation.leader.connection.crowd(is_crowded);
        let mut simulation = before(simulation, "propose");
        assert_eq!(next(&mut simulation), step, "{is_crowded}");
        assert_eq!(simulation.leader.running().contains(&TaskKind::Publish), !is_crowded);
        simulation.round();
        assert_eq!(simulation.leader.running(), [TaskKind::Publish], "{is_crowded}");
        assert_eq!(next(&mut simulation), expected, "{is_crowded}");
    }
    // With the PEs, if the texts are there by then.
    let mut expected = expected.to_vec();
    expected.splice(3..3, ["create pe 8", "create pe 9"]);
    assert_eq!(next(&mut before(resized(4), "create pe 8")), expected);
    assert_eq!(next(&mut before(resized(4), "commit")), ["commit"]);
}

#[test]
fn texts_of_a_proposal_that_is_not_recorded_serve_the_next_one_or_go() {
    // the width by the next look -> what is done for it
    let table: [(u32, &[&str]); 3] = [(4, &["propose"]), (5, &["start compile 1"]), (2, &[])];
    for (width, expected) in table {
        let mut simulation = before(resized(4), "propose");
        let refused = Fault { after: 0, of_writes: true, has_effect: false, is_last: false };
        simulation.leader.connection.fail(refused);
        assert_eq!(simulation.reconcile(), None, "the proposal is not recorded");
        simulation.work();
        simulation.leader.catch_up();
        let observed = simulation.leader.observed();
        assert!(
            observed.status.proposal.is_none() && observed.children.texts.len() > 8,
            "texts are there nevertheless"
        );
        simulation.resize(0, width);
        let summary = next(&mut simulation);
        let others = summary.iter().filter(|summary| !summary.starts_with("delete "));
        assert_eq!(others.collect::<Vec<_>>(), expected, "{width}");
        simulation.settle();
        let observed = simulation.leader.observed();
        let used = observed.children.processing_elements.values().map(|pe| &pe.config_map).collect::<BTreeSet<_>>();
        let there = observed.children.texts.keys().collect::<BTreeSet<_>>();
        assert_eq!((used, observed.desired_widths.values().next()), (there, Some(&width)), "{width}");
    }
}

#[test]
fn texts_are_written_until_it_is_certain_that_nobody_wants_them() {
    let mut simulation = before(resized(4), "propose");
    simulation.leader.connection.fail(Fault { after: 0, of_writes: true, has_effect: false, is_last: false });
    assert_eq!(simulation.reconcile(), None, "the record of the proposal is not answered");
    simulation.resize(0, 2);
    simulation.reconcile();
    assert_eq!(simulation.leader.running(), [TaskKind::Publish], "it may have its effect yet");
    simulation.wait(121);
    // The first look deletes the plan, the next one finds that there is none.
    simulation.reconcile();
    simulation.reconcile();
    assert_eq!(simulation.leader.running(), []);
}

#[test]
fn a_request_for_several_regions_is_compiled_as_a_whole_however_far_it_is_taken_over() {
    let mut simulation = JobSimulation::running();
    simulation.resize_both([4, 3]);
    let take_over = ["region 0 takes over 4", "region 1 takes over 3"];
    assert_eq!(next(&mut simulation), [take_over[0], take_over[1], "start compile 1"]);
    let wanted = simulation.leader.observed().desired_widths;
    // Only one of them is written before the process dies.
    simulation.crash_at_write(1, false);
    simulation.round();
    assert_eq!(simulation.leader.observed().desired_widths, wanted);
    let summary = next(&mut simulation);
    assert_eq!(summary.iter().filter(|summary| summary.contains("takes over")).count(), 1, "{summary:?}");
    // Somebody scales the other one meanwhile: that is newer.
    let left: u64 = if summary.contains(&take_over[0].to_owned()) { 0 } else { 1 };
    simulation.resize(left, 6);
    assert_eq!(next(&mut simulation), ["start compile 1"]);
    assert!(simulation.leader.observed().desired_widths.values().any(|width| *width == 6));
}

#[test]
fn after_the_commit_existing_pes_get_their_specs_and_what_is_removed_waits_for_them() {
    let mut simulation = before(resized(1), "commit");
    simulation.round();
    let expected = ["apply consistent region 0", "apply labels", "apply pe 0", "apply pe 1", "apply pool 0"];
    let summary: Vec<_> = next(&mut simulation).into_iter().filter(|summary| !summary.contains("plan")).collect();
    assert_eq!(summary, expected);
    simulation.round();
    assert!(next(&mut simulation).iter().all(|summary| !summary.contains("pe 5")), "it runs until the others do");
    simulation.run_pods();
    let summary = next(&mut simulation);
    assert!(summary.contains(&"delete pe 5".to_owned()) && summary.contains(&"delete export 5".to_owned()));
    simulation.round();
    simulation.collect();
    assert!(next(&mut simulation).contains(&"delete service 5".to_owned()), "its Service goes after it");
}

#[test]
fn long_work_is_waited_for_retried_or_given_up() {
    let simulation = before(JobSimulation::new(), "start compile 0");
    let observed = simulation.leader.observed();
    let JobDecision::Work(actions) = decide(&observed).0 else { panic!("a step") };
    let [JobAction::Start(Task::Compile(key))] = actions.as_slice() else { panic!("{actions:?}") };
    let key = key.clone();
    let later = observed.now.checked_add(k8s_openapi::jiff::SignedDuration::from_secs(7)).unwrap();
    let in_a_day = observed.now.checked_add(k8s_openapi::jiff::SignedDuration::from_hours(24)).unwrap();
    // state of the compilation -> what is done, whether there is trouble to show, whether it looks again by itself at
    // that time
    let table = [
        (Slot::Idle, vec!["start compile 0"], false, false),
        (Slot::Running(key.clone()), vec![], false, false),
        (Slot::Failed(key.clone(), failure(Remedy::Retry(later))), vec![], true, true),
        (Slot::Failed(key.clone(), failure(Remedy::Retry(observed.now))), vec!["start compile 0"], true, false),
        // A clock was put back since.
        (Slot::Failed(key.clone(), failure(Remedy::Retry(in_a_day))), vec!["start compile 0"], true, false),
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
    let mut observed = JobSimulation::new().leader.observed();
    observed.refusal = Some(failure(Remedy::Correct));
    assert_eq!(done(&observed), ["fail the submission"]);
}

/// The write had its effect, so nothing is left to do, and no change of an object brings another look.
#[test]
fn an_action_that_failed_is_shown_until_nothing_fails() {
    let mut simulation = JobSimulation::running();
    simulation.delete(&UserDeletion::Service(5));
    simulation.collect();
    simulation.leader.connection.fail(Fault { after: 0, of_writes: true, has_effect: true, is_last: false });
    let says_trouble = |simulation: &JobSimulation| {
        let status = simulation.status();
        let progressing = condition::get(&status.conditions, condition::PROGRESSING).cloned();
        progressing.is_some_and(|said| said.message.contains("trying again"))
    };
    assert_eq!(simulation.reconcile(), None, "the answer is lost");
    assert!(says_trouble(&simulation));
    assert_eq!(simulation.reconcile(), Some(Outcome::Done));
    assert!(!says_trouble(&simulation));
}

#[test]
fn a_conflict_hides_no_other_failure() {
    let mut simulation = JobSimulation::running();
    for id in [5, 6] {
        simulation.delete(&UserDeletion::Service(id));
    }
    simulation.collect();
    simulation.server.refuse(|call| {
        let is_created =
            |name: &str| call.verb == Verb::Create && call.kind == "Service" && call.key.name.ends_with(name);
        let conflict = || Status::failure("somebody was faster", "Conflict").with_code(409);
        let quota = || Status::failure("exceeded quota: q", "Forbidden").with_code(403);
        is_created("-5").then(conflict).or_else(|| is_created("-6").then(quota))
    });
    assert_eq!(simulation.reconcile(), None);
    let status = simulation.status();
    let resources_ready = condition::get(&status.conditions, condition::RESOURCES_READY).unwrap();
    assert_eq!((resources_ready.status.as_str(), resources_ready.reason.as_str()), ("False", "QuotaExceeded"));
    simulation.server.refuse(|_| None);
    simulation.settle();
    simulation.check_at_rest();
}

/// The user edits options, and takes that back before the mirror shows what was written for it.
#[test]
fn what_the_mirror_shows_as_it_should_be_again_is_waited_for_and_not_looked_at_again_at_once() {
    let mut simulation = before(resized(4), "commit");
    for level in [TraceLevel::Debug, PeOptions::default().runtime_trace_level] {
        simulation.change_spec(|spec| {
            spec.processing_element = Some(PeOptions { runtime_trace_level: level, ..PeOptions::default() });
        });
        simulation.leader.deliver([usize::MAX, 0, 0, 0, 0, 0]);
        let next = wait_for(simulation.leader.round()).unwrap();
        assert_eq!(next == Next::Observe, level == TraceLevel::Debug, "{level:?}: {next:?}");
    }
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn past_its_time_a_submission_starts_over_and_in_the_end_fails() {
    let simulation = before(JobSimulation::new(), "commit");
    let mut observed = simulation.leader.observed();
    observed.now = observed.now.checked_add(k8s_openapi::jiff::SignedDuration::from_secs(3000)).unwrap();
    assert_eq!(done(&observed), ["commit"], "time that passes is not time of work");
    observed.worked = Duration::from_secs(300);
    assert_eq!(done(&observed), ["start over"]);
    // why the last action failed -> what is done
    let reasons =
        [("NameTaken", "commit"), ("QuotaExceeded", "commit"), ("ApiServer", "commit"), ("Internal", "start over")];
    for (reason, expected) in reasons {
        let last_failure = Failure { reason: reason.to_owned(), ..failure(Remedy::Retry(observed.now)) };
        let observed = JobObservation { last_failure: Some(last_failure), ..observed.clone() };
        assert_eq!(done(&observed), [expected], "{reason}");
    }
    observed.status.submission_attempts = 3;
    assert_eq!(done(&observed), ["fail the submission"]);
    observed.spec_generation += 1;
    assert_eq!(done(&observed), ["begin anew"], "that was the time of another spec");
    // The commit ends the clock.
    let mut simulation = before(JobSimulation::new(), "commit");
    simulation.round();
    simulation.leader.catch_up();
    let mut observed = simulation.leader.observed();
    observed.worked = Duration::from_secs(3000);
    assert!(done(&observed).is_empty(), "{:?}", done(&observed));
}

#[test]
fn a_clean_slate_is_cleared_with_what_depends_on_it_first() {
    let mut simulation = before(JobSimulation::new(), "commit");
    simulation.edit("another");
    simulation.round();
    // The proposal for the old spec is abandoned before the bundle is fetched again.
    let mut simulation = before(simulation, "clear labels");
    let cleared: Vec<_> = next(&mut simulation).into_iter().filter(|summary| summary.starts_with("clear")).collect();
    let expected = 8 + 8 + 8 + 2 + 1 + 1 + 2 + 1 + 2;
    let of = "PEs, Services, texts, regions, the pool, the labels, exports, the import, the consistent region with its Service";
    assert_eq!(cleared.len(), expected, "{of}: {cleared:?}");
}

#[test]
fn what_users_delete_is_applied_again_unless_it_must_not_start_again() {
    // deleted -> what is done
    let table = [
        (UserDeletion::Service(3), "apply service 3"),
        (UserDeletion::ProcessingElement(3), "apply pe 3"),
        (UserDeletion::Region(1), "apply region 1"),
        (UserDeletion::HostPool(0), "apply pool 0"),
        (UserDeletion::JobConfigMap, "apply labels"),
        (UserDeletion::Interface(Child::Export(Port { pe: 5, id: 0 })), "apply export 5"),
        (UserDeletion::Interface(Child::Import(Port { pe: 1, id: 0 })), "apply import 1"),
        (UserDeletion::Interface(Child::ConsistentRegion(0)), "apply consistent region 0"),
        (UserDeletion::Interface(Child::ConsistentRegionService), "apply service of consistent regions"),
    ];
    for (deletion, expected) in table {
        let mut simulation = JobSimulation::running();
        simulation.delete(&deletion);
        assert!(next(&mut simulation).is_empty(), "{deletion:?} is still on its way out");
        simulation.collect();
        assert_eq!(next(&mut simulation), [expected]);
    }
    let mut simulation = JobSimulation::running();
    simulation.delete(&UserDeletion::ProcessingElement(NOT_RESTARTABLE));
    simulation.collect();
    assert!(next(&mut simulation).is_empty());
    let down = simulation.leader.decided().1.down.to_string();
    assert!(down.starts_with(&format!("PE {NOT_RESTARTABLE} (Deleted)")), "{down}");
    assert!(down.ends_with("they run again once the job is deleted and submitted anew"), "{down}");
    simulation.round();
    assert!(condition::is_true(&simulation.status().conditions, condition::DEGRADED));
}
