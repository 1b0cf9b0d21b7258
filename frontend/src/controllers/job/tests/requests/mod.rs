//! Requests to resize: each has its own outcome, whatever becomes of others (rules elasticity-15 to elasticity-17).

mod admission;
mod cool_downs;
mod held_up;
mod preconditions;
mod refusals;
mod withdrawals;

use super::simulation::{JobSimulation, NOT_RESTARTABLE, UserDeletion, key, wait_for};
use crate::controllers::job::decide::{JobAction, JobDecision};
use crate::controllers::job::generation::Target;
use crate::controllers::job::requests::apart::Apart;
use crate::controllers::job::tasks::{CompileRequest, Slot, TaskKind};
use kube::core::Status;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use streams_api::{InitialWidth, Resize, ResizePhase, ResizePolicy, SupersededBy, WidthOfResize, condition};
use streams_kubernetes_fake::Verb;

fn applied(simulation: &JobSimulation) -> BTreeMap<String, u32> {
    simulation.status().applied_widths.into_iter().map(|applied| (applied.region, applied.width)).collect()
}

fn widths(r: u32, s: u32) -> BTreeMap<String, u32> {
    [("R".to_owned(), r), ("S".to_owned(), s)].into()
}

fn specs(simulation: &JobSimulation) -> [u32; 2] {
    [0, 1].map(|index| simulation.region(index).unwrap().spec.width)
}

/// Phase and reason of a request.
fn end(simulation: &JobSimulation, name: &str) -> (Option<ResizePhase>, String) {
    let status = simulation.outcome(name);
    (status.phase, status.reason.unwrap_or_default())
}

fn is(phase: ResizePhase, reason: &str) -> (Option<ResizePhase>, String) {
    (Some(phase), reason.to_owned())
}

/// Everything goes on for a while, with some seconds between two looks.
fn go_on(simulation: &mut JobSimulation, looks: u32) {
    for _ in 0..looks {
        simulation.reconcile();
        simulation.work();
        simulation.run_pods();
        simulation.collect();
        simulation.wait(5);
    }
}

/// Everything goes on until a wish that is tried alone has just failed, and is not tried for so many seconds.
fn go_on_until_it_rests(simulation: &mut JobSimulation, seconds: i64) {
    for _ in 0..200 {
        simulation.reconcile();
        let observed = simulation.leader.observed();
        let left = |apart: &Apart| apart.until.duration_since(observed.now).as_secs();
        if observed.requests.apart.iter().any(|apart| left(apart) >= seconds) {
            return;
        }
        simulation.work();
        simulation.run_pods();
        simulation.collect();
        simulation.wait(5);
    }
    panic!("nothing is tried less and less often");
}

/// Looks at the job until this width of R is being compiled.
fn until_compiling(simulation: &mut JobSimulation, width: u32) {
    let is_compiling = |simulation: &JobSimulation| match simulation.leader.tasks().compile {
        Slot::Running(CompileRequest { target: Target::Resize { widths, .. }, .. }) => widths.get("R") == Some(&width),
        _ => false,
    };
    for _ in 0..20 {
        if is_compiling(simulation) {
            return;
        }
        simulation.reconcile();
    }
    panic!("{width} is not compiled: {:?}", simulation.leader.tasks());
}

#[test]
fn a_request_goes_all_the_way_as_one_generation_and_is_written_into_the_specs_after_the_commit() {
    let mut simulation = JobSimulation::running();
    simulation.request("both", &[("R", 4), ("S", 3)]);
    simulation.until(|simulation| simulation.outcome("both").number.is_some());
    assert_eq!(simulation.outcome("both").phase, Some(ResizePhase::Pending));
    simulation.until(|simulation| simulation.status().proposes(1));
    assert_eq!(specs(&simulation), [2, 2]);
    simulation.until(|simulation| simulation.outcome("both").phase == Some(ResizePhase::Written));
    assert_eq!((simulation.status().generation, specs(&simulation)), (Some(1), [4, 3]));
    simulation.settle();
    simulation.check_at_rest();
    let status = simulation.outcome("both");
    let changes = status.changes.unwrap();
    assert_eq!((status.phase, status.generation), (Some(ResizePhase::RolledOut), Some(1)));
    assert_eq!((changes.added, changes.removed), (3, 0));
    assert!(status.finished_at.is_some() && status.message.is_none());
    let written = WidthOfResize::of(&simulation.region(0).unwrap()).unwrap();
    assert_eq!((Some(written.number), simulation.region(0).unwrap().edited()), (status.number, 1));
    assert_eq!(simulation.status().admitted_resizes, 1);
}

#[test]
fn the_compiler_begins_before_a_request_is_admitted_and_nothing_else_does() {
    let mut simulation = JobSimulation::running();
    simulation.server.refuse(|call| {
        let is_admission = call.verb == Verb::ReplaceStatus && call.kind == "Resize";
        is_admission.then(|| *Status::failure("not now", "InternalError").with_code(500).boxed())
    });
    simulation.request("early", &[("R", 4)]);
    simulation.reconcile();
    assert_eq!(simulation.leader.running(), [TaskKind::Compile]);
    for _ in 0..5 {
        simulation.work();
        simulation.reconcile();
    }
    assert!(simulation.outcome("early").number.is_none() && simulation.status().proposal.is_none());
    simulation.steps_again();
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(end(&simulation, "early"), is(ResizePhase::RolledOut, ""));
}

#[test]
fn that_a_request_is_planned_is_told_unless_the_commit_follows_at_once() {
    // seconds after the proposal -> phase
    for (seconds, expected) in [(0, ResizePhase::Pending), (1, ResizePhase::Planned)] {
        let mut simulation = JobSimulation::running();
        simulation.no_step_after("ProcessingElement");
        simulation.request("slow", &[("R", 4)]);
        simulation.until(|simulation| simulation.pe(5).is_some() && simulation.status().proposes(1));
        simulation.wait(seconds);
        simulation.reconcile();
        assert_eq!(simulation.outcome("slow").phase, Some(expected), "{seconds}");
        simulation.steps_again();
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(end(&simulation, "slow"), is(ResizePhase::RolledOut, ""));
    }
}

#[test]
fn what_is_out_of_bounds_is_refused_as_a_whole_before_anything_is_written_and_others_go_on() {
    let mut simulation = JobSimulation::new();
    let bounds = InitialWidth { name: Some("R".to_owned()), max_width: Some(5), ..InitialWidth::default() };
    simulation.change_spec(|spec| spec.parallel_regions = vec![bounds]);
    simulation.settle();
    simulation.request("wide", &[("R", 9), ("S", 4)]);
    simulation.settle();
    assert_eq!(end(&simulation, "wide"), is(ResizePhase::Refused, "OutOfBounds"));
    assert!(simulation.outcome("wide").message.unwrap().contains("maxWidth 5"));
    assert_eq!((simulation.status().generation, specs(&simulation)), (Some(0), [2, 2]), "the other region, too");
    assert!(!condition::is_true(&simulation.status().conditions, condition::RESIZE_REJECTED));
    simulation.request("other", &[("S", 4)]);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((end(&simulation, "other"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(2, 4)));
}

fn progressing(simulation: &JobSimulation) -> (String, String, String) {
    let status = simulation.status();
    let said = condition::get(&status.conditions, condition::PROGRESSING).cloned().unwrap();
    (said.status, said.reason, said.message)
}

/// Long work looks at the requests as well, and what the mirror shows by then is forgotten.
#[test]
fn what_was_written_is_known_though_the_mirror_shows_it_while_many_requests_are_read() {
    let mut simulation = JobSimulation::running();
    for number in 0..130 {
        simulation.request(&format!("r{number}"), &[("R", 3)]);
    }
    simulation.leader.catch_up();
    wait_for(simulation.leader.reconcile()).unwrap();
    let reconciler = Arc::clone(&simulation.leader.reconciler);
    let of = key();
    let job = reconciler.mirrors.jobs.get(&of).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let read = runtime.block_on(async {
        let mut reading = pin!(reconciler.read_requests(&of, &job));
        let begun = futures::poll!(reading.as_mut());
        simulation.leader.catch_up();
        assert_eq!(reconciler.requests(&of, &job).len(), 130);
        match begun {
            Poll::Ready(read) => read,
            Poll::Pending => reading.await,
        }
    });
    let read = read.unwrap();
    let numbered = read.iter().filter(|request| request.status.as_ref().is_some_and(|status| status.number.is_some()));
    assert_eq!((read.len(), numbered.count()), (130, 130));
}

/// All of them together may be larger than this process may become.
#[test]
fn what_there_is_no_room_for_is_refused_unread_and_keeps_what_it_wants() {
    let mut simulation = JobSimulation::running();
    let long = "x".repeat(1 << 20);
    let name = |number: usize| format!("r{number:02}");
    (0..20).for_each(|number| simulation.request(&name(number), &[(&*long, 3)]));
    simulation.request("after", &[("R", 3)]);
    simulation.settle();
    for number in 0..20 {
        let reason = if number < 15 { "RegionNotFound" } else { "TooManyRequests" };
        assert_eq!(end(&simulation, &name(number)), is(ResizePhase::Refused, reason), "{number}");
        let request = simulation.server.get::<Resize>(&key().sibling(&name(number))).unwrap();
        assert_eq!(request.spec.regions.len(), 1, "{number}");
    }
    simulation.check_at_rest();
    assert_eq!((end(&simulation, "after"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(3, 2)));
}

#[test]
fn nobody_waits_for_a_request_that_is_written() {
    let mut simulation = JobSimulation::running();
    simulation.request("written", &[("R", 4)]);
    simulation.until(|simulation| simulation.outcome("written").number.is_some());
    assert!(simulation.leader.observed().requests.is_waited_for);
    simulation.until(|simulation| simulation.outcome("written").phase == Some(ResizePhase::Written));
    simulation.reconcile();
    assert!(!simulation.leader.observed().requests.is_waited_for);
    let written_at = simulation.outcome("written").written_at.unwrap();
    simulation.wait(100);
    simulation.settle();
    assert_eq!(simulation.outcome("written").written_at, Some(written_at), "it stays");
}

#[test]
fn of_two_requests_the_newer_one_counts_and_what_it_is_about_is_told() {
    let mut simulation = JobSimulation::running();
    simulation.request("older", &[("R", 4), ("S", 4)]);
    simulation.reconcile();
    simulation.request("newer", &[("S", 5)]);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(end(&simulation, "older"), is(ResizePhase::Superseded, "NewerRequest"));
    let outcome = simulation.outcome("older");
    let (region, request) = ("S".to_owned(), Some("newer".to_owned()));
    let by = SupersededBy { region, width: Some(5), request, manager: None };
    assert_eq!(outcome.superseded_by, Some(by));
    assert!(outcome.message.unwrap().contains("newer"));
    assert_eq!((end(&simulation, "newer"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(2, 5)));
}

#[test]
fn an_edit_after_the_admission_wins() {
    let mut simulation = JobSimulation::running();
    simulation.request("both", &[("R", 4), ("S", 4)]);
    simulation.reconcile();
    assert!(simulation.outcome("both").number.is_some());
    simulation.resize(1, 3);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(end(&simulation, "both"), is(ResizePhase::Superseded, "RegionEdited"));
    let by = simulation.outcome("both").superseded_by.unwrap();
    assert_eq!((by.region.as_str(), by.width, by.request), ("S", Some(3), None));
    assert_eq!((applied(&simulation), specs(&simulation)), (widths(2, 3), [2, 3]));
}

/// The turn that makes the region again admits requests, and its admission sees a region that no mirror shows yet.
#[test]
fn a_region_that_was_made_again_before_the_admission_supersedes_nobody() {
    let mut simulation = JobSimulation::running();
    let mut region = simulation.region(0).unwrap();
    simulation.delete(&UserDeletion::Region(0));
    simulation.collect();
    simulation.leader.catch_up();
    (region.metadata.uid, region.metadata.resource_version) = (None, None);
    simulation.server.create(&region);
    simulation.request("waits", &[("R", 4)]);
    simulation.request("new", &[("S", 3)]);
    simulation.leader.hear_of_requests();
    for _ in 0..3 {
        wait_for(simulation.leader.round()).unwrap();
    }
    assert!(simulation.outcome("new").number.is_some(), "there was an admission");
    assert_eq!(end(&simulation, "waits"), (None, String::new()), "it waits for the region");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(end(&simulation, "waits"), is(ResizePhase::RolledOut, ""));
    assert_eq!(applied(&simulation), widths(4, 3));
}

/// The controller makes it again before it can tell the request.
#[test]
fn a_region_that_was_deleted_was_edited_by_nobody_though_there_is_another_one_of_its_name() {
    let mut simulation = JobSimulation::running();
    simulation.request("both", &[("R", 4), ("S", 4)]);
    simulation.reconcile();
    assert!(simulation.outcome("both").number.is_some());
    let before = simulation.region(1).unwrap().metadata.uid;
    simulation.server.refuse(|call| {
        let tells = call.verb == Verb::ReplaceStatus && call.kind == "Resize";
        tells.then(|| *Status::failure("not now", "InternalError").with_code(500).boxed())
    });
    simulation.delete(&UserDeletion::Region(1));
    for _ in 0..20 {
        simulation.reconcile();
        simulation.collect();
        simulation.wait(1);
    }
    assert!(simulation.region(1).is_some_and(|region| region.metadata.uid != before));
    simulation.steps_again();
    simulation.settle();
    simulation.check_at_rest();
    let by = simulation.outcome("both").superseded_by.unwrap();
    assert_eq!(by, SupersededBy { region: "S".to_owned(), width: None, request: None, manager: None });
}

#[test]
fn what_the_controller_writes_into_a_spec_supersedes_nobody() {
    let mut simulation = JobSimulation::running();
    simulation.request("first", &[("R", 4)]);
    simulation.until(|simulation| simulation.status().proposal.is_some());
    // Admitted before the width of the first is written into the spec.
    simulation.request_if("second", &[("R", 5)], |spec| spec.regions[0].expected_width = Some(4));
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(end(&simulation, "first"), is(ResizePhase::RolledOut, ""));
    assert_eq!(end(&simulation, "second"), is(ResizePhase::RolledOut, ""));
    assert_eq!(["first", "second"].map(|name| simulation.outcome(name).generation), [Some(1), Some(2)]);
    assert_eq!((applied(&simulation), specs(&simulation)), (widths(5, 2), [5, 2]));
}

#[test]
fn what_is_in_force_already_needs_no_generation() {
    let mut simulation = JobSimulation::running();
    simulation.request("same", &[("R", 2), ("S", 2)]);
    simulation.settle();
    let status = simulation.outcome("same");
    assert_eq!((status.phase, status.generation, status.changes), (Some(ResizePhase::RolledOut), Some(0), None));
    assert_eq!(simulation.status().generation, Some(0));
}

#[test]
fn a_width_in_force_is_not_written_over_an_edit_though_its_request_is_gone() {
    let mut simulation = JobSimulation::running();
    simulation.request("committed", &[("R", 4), ("S", 4)]);
    simulation.until(|simulation| simulation.status().generation == Some(1));
    simulation.delete(&UserDeletion::Request("committed".to_owned()));
    simulation.resize(1, 3);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((applied(&simulation), specs(&simulation)), (widths(4, 3), [4, 3]));
}

#[test]
fn in_a_crowd_a_roll_out_waits_for_a_commit_and_not_for_ever() {
    // a crowd, what becomes of an admission, seconds since the roll-out was put off first -> PEs of the generation
    // before are written in the look then
    let table = [
        (false, 409, 0, true),
        (true, 409, 0, false),
        (true, 409, 3, false),
        (true, 409, 4, true),
        // It failed; when that is tried again is not known.
        (true, 500, 0, true),
    ];
    for (is_crowded, code, seconds, expected) in table {
        let mut simulation = JobSimulation::running();
        // No PE is added that others would wait for.
        simulation.request("first", &[("R", 1)]);
        simulation.server.refuse(|call| {
            let is_pe = call.verb == Verb::Apply && call.kind == "ProcessingElement" && call.key.name.ends_with("-0");
            is_pe.then(|| *Status::failure("not now", "InternalError").with_code(500).boxed())
        });
        simulation.until(|simulation| simulation.outcome("first").phase == Some(ResizePhase::Written));
        // Who leads now does not know of the failures.
        simulation.steps_again();
        simulation.crash();
        let generation = |simulation: &JobSimulation| simulation.pe(0).unwrap().spec.generation;
        let before = generation(&simulation);
        simulation.leader.connection.crowd(is_crowded);
        simulation.server.refuse(move |call| {
            let is_admission = call.verb == Verb::ReplaceStatus && call.kind == "Resize";
            let reason = if code == 409 { "Conflict" } else { "InternalError" };
            is_admission.then(|| *Status::failure("not now", reason).with_code(code).boxed())
        });
        simulation.request("second", &[("R", 5)]);
        simulation.reconcile();
        assert_eq!(generation(&simulation) > before, !is_crowded, "{is_crowded} {code}: the first look");
        simulation.wait(seconds);
        simulation.reconcile();
        assert_eq!(generation(&simulation) > before, expected, "{is_crowded} {code} {seconds}");
        simulation.steps_again();
        simulation.settle();
        simulation.check_at_rest();
    }
}

#[test]
fn in_a_crowd_a_roll_out_does_not_wait_for_what_follows_from_its_own_commit() {
    let mut simulation = JobSimulation::running();
    simulation.leader.connection.crowd(true);
    simulation.request("first", &[("R", 1)]);
    simulation.until_committed(1);
    assert_eq!(specs(&simulation), [2, 2], "the width is still to be written");
    simulation.round();
    assert_eq!((specs(&simulation), simulation.pe(0).unwrap().spec.generation), ([1, 2], 1));
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn widths_that_change_all_the_time_keep_none_from_being_committed() {
    let mut simulation = JobSimulation::running();
    for round in 0..60 {
        // Other widths before every look, and before every piece of work.
        simulation.resize(0, 3 + round % 5);
        simulation.reconcile();
        simulation.resize(0, 8 - round % 5);
        simulation.reconcile();
        simulation.resize(1, 2 + round % 4);
        simulation.work();
    }
    let generation = simulation.status().generation.unwrap();
    assert!(generation >= 5, "only generation {generation} was committed");
    simulation.resize(0, 6);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(applied(&simulation), widths(6, 5));
}

#[test]
fn numbers_are_given_in_the_order_of_the_requests() {
    let simulation = &mut JobSimulation::running();
    let names: Vec<String> = (0..20).map(|number| format!("request-{}", 19 - number)).collect();
    for name in &names {
        simulation.request(name, &[("R", 3)]);
    }
    simulation.settle();
    let numbers: Vec<_> = names.iter().map(|name| simulation.outcome(name).number).collect();
    assert_eq!(numbers, (1..=20).map(Some).collect::<Vec<_>>());
    assert!(simulation.server.list::<Resize>().iter().all(|request| request.phase() == ResizePhase::RolledOut));
    assert_eq!(simulation.status().generation, Some(1), "they are one generation");
}

/// The spec has the width of the newer one already, so that nothing is written for it.
#[test]
fn what_an_older_request_left_to_be_written_is_not_written_once_a_newer_one_is_in_force() {
    let mut simulation = JobSimulation::running();
    let at_first = specs(&simulation)[0];
    simulation.server.refuse(|call| {
        let is_width = call.verb.is_write() && call.verb != Verb::ReplaceStatus && call.kind == "ParallelRegion";
        is_width.then(|| *Status::failure("not now", "InternalError").with_code(500).boxed())
    });
    for (name, width, generation) in [("older", at_first + 1, 1), ("newer", at_first, 2)] {
        simulation.request(name, &[("R", width)]);
        simulation.until(|simulation| simulation.status().generation == Some(generation));
        assert_eq!(specs(&simulation)[0], at_first, "nothing is written");
    }
    simulation.steps_again();
    for _ in 0..20 {
        simulation.reconcile();
        simulation.work();
        assert_eq!(specs(&simulation)[0], at_first);
    }
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((specs(&simulation)[0], simulation.status().generation), (at_first, Some(2)));
}

/// The job tells a request that it is in force. Meanwhile somebody makes another one of its name.
#[test]
fn a_request_is_not_told_what_was_meant_for_an_earlier_one_of_its_name() {
    let mut simulation = JobSimulation::running();
    simulation.request("same", &[("R", 4)]);
    let is_told = |simulation: &JobSimulation| match simulation.leader.decided().0 {
        JobDecision::Work(actions) => actions.iter().any(
            |action| matches!(action, JobAction::Tell(_, told) if told.status.phase == Some(ResizePhase::Written)),
        ),
        JobDecision::Step(_) => false,
    };
    for _ in 0..40 {
        simulation.leader.catch_up();
        if is_told(&simulation) {
            break;
        }
        simulation.round();
        simulation.work();
    }
    let (server, name) = (simulation.server.clone(), key().sibling("same"));
    let mut again = server.get::<Resize>(&name).unwrap();
    again.metadata.uid = None;
    again.metadata.resource_version = None;
    again.metadata.managed_fields = None;
    again.spec.regions[0].width = 5;
    again.status = None;
    let round = simulation.leader.round_with(|leader| {
        server.remove::<Resize>(&name);
        server.create(&again);
        leader.hear_of_requests();
    });
    let _ = wait_for(round);
    assert_eq!(simulation.outcome("same").number, None);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((end(&simulation, "same"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(5, 2)));
    assert_eq!((simulation.outcome("same").number, simulation.status().generation), (Some(2), Some(2)));
}

/// Two are admitted together. What the newer one wants is in force.
#[test]
fn nothing_is_compiled_for_a_request_whose_region_a_newer_one_has_as_it_is() {
    let mut simulation = JobSimulation::running();
    simulation.request("older", &[("R", 5)]);
    simulation.wait(1);
    simulation.request("newer", &[("R", 2)]);
    for _ in 0..5 {
        simulation.reconcile();
        assert_eq!(simulation.leader.running(), []);
    }
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(end(&simulation, "older"), is(ResizePhase::Superseded, "NewerRequest"));
    assert_eq!(end(&simulation, "newer"), is(ResizePhase::RolledOut, ""));
    assert_eq!((simulation.status().generation, applied(&simulation)), (Some(0), widths(2, 2)));
}
