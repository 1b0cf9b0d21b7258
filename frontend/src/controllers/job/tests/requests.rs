//! Requests to resize: each has its own outcome, whatever becomes of others (rules elasticity-15 to elasticity-17).

use super::simulation::{JobSimulation, UserDeletion, key, wait_for};
use crate::controllers::job::generation::Target;
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

/// A job whose region R, with this cool-down, has just got another width.
fn cooling(seconds: u32) -> JobSimulation {
    let mut simulation = JobSimulation::new();
    let cool_down =
        InitialWidth { name: Some("R".to_owned()), cool_down_seconds: Some(seconds), ..InitialWidth::default() };
    simulation.change_spec(|spec| spec.parallel_regions = vec![cool_down]);
    simulation.settle();
    simulation.describe_regions();
    simulation.request("first", &[("R", 3)]);
    simulation.until(|simulation| simulation.outcome("first").phase == Some(ResizePhase::Written));
    simulation.describe_regions();
    simulation
}

#[test]
fn requests_for_a_width_that_has_just_changed_wait_and_others_do_not() {
    let mut simulation = cooling(30);
    let begun = simulation.server.now();
    simulation.request("second", &[("R", 4)]);
    simulation.request("both", &[("R", 5), ("S", 5)]);
    simulation.request("other", &[("S", 3)]);
    simulation.until(|simulation| simulation.outcome("other").phase == Some(ResizePhase::Written));
    simulation.run_pods();
    assert_eq!(applied(&simulation), widths(3, 3));
    assert_eq!(end(&simulation, "second"), is(ResizePhase::Pending, "CoolingDown"));
    assert!(simulation.outcome("second").message.unwrap().contains("width of R changed"));
    // It survives the frontend.
    simulation.crash();
    simulation.reconcile();
    assert_eq!((simulation.status().generation, simulation.leader.running()), (Some(2), vec![]));
    simulation.settle();
    simulation.check_at_rest();
    assert!(simulation.server.now().duration_since(begun).as_secs() >= 29);
    assert_eq!(end(&simulation, "second"), is(ResizePhase::RolledOut, ""));
    // A newer one for one of its regions has not waited.
    assert_eq!(end(&simulation, "both"), is(ResizePhase::Superseded, "NewerRequest"));
    assert_eq!(applied(&simulation), widths(4, 3));
}

#[test]
fn a_request_for_several_regions_waits_as_a_whole_for_the_cool_down_of_one() {
    let mut simulation = cooling(30);
    simulation.request("both", &[("R", 5), ("S", 5)]);
    for _ in 0..10 {
        simulation.reconcile();
        simulation.work();
        simulation.run_pods();
    }
    assert_eq!(
        (end(&simulation, "both"), applied(&simulation)),
        (is(ResizePhase::Pending, "CoolingDown"), widths(3, 2))
    );
    assert_eq!(end(&simulation, "first"), is(ResizePhase::RolledOut, ""));
    simulation.request("last", &[("R", 4), ("S", 4)]);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((end(&simulation, "last"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(4, 4)));
}

#[test]
fn a_request_for_the_width_in_force_does_not_wait_for_a_newer_one_that_waits() {
    let mut simulation = cooling(600);
    go_on(&mut simulation, 8);
    assert_eq!(end(&simulation, "first"), is(ResizePhase::RolledOut, ""));
    simulation.request("same", &[("R", 3)]);
    simulation.request("newer", &[("R", 5)]);
    go_on(&mut simulation, 4);
    assert_eq!(end(&simulation, "newer"), is(ResizePhase::Pending, "CoolingDown"));
    assert_eq!(end(&simulation, "same"), is(ResizePhase::RolledOut, ""));
    // What is wanted is not in force, and the job says until when.
    let (status, reason, message) = progressing(&simulation);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "CoolingDown"));
    assert!(message.contains(" stays until "), "{message}");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((progressing(&simulation).1.as_str(), applied(&simulation)), ("Done", widths(5, 2)));
}

#[test]
fn an_edit_waits_for_the_cool_down_too_and_the_job_looks_again_by_itself() {
    let mut simulation = cooling(30);
    simulation.settle();
    let begun = simulation.status().rollout.unwrap().started_at.unwrap().0;
    simulation.resize_both([5, 4]);
    simulation.until(|simulation| simulation.status().generation == Some(2));
    assert_eq!(applied(&simulation), widths(3, 4));
    simulation.resize(0, 1);
    simulation.run_pods();
    simulation.reconcile();
    let wake_at = simulation.leader.decided().1.wake_at.expect("it looks again by itself");
    assert!(wake_at.duration_since(begun).as_secs() <= 30, "{wake_at}");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(applied(&simulation), widths(1, 4), "the newest edit");
    // Without the option, at once.
    simulation.describe_regions();
    simulation.change_spec(|spec| spec.parallel_regions.clear());
    simulation.resize(0, 2);
    simulation.until(|simulation| simulation.status().generation == Some(4));
    assert_eq!(applied(&simulation), widths(2, 4));
}

#[test]
fn a_width_that_the_compiler_refuses_costs_nobody_else_anything() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.widest = 9);
    // Somebody has edited a spec, which stays as it is.
    simulation.resize(0, 10);
    simulation.settle();
    assert_eq!((simulation.status().generation, specs(&simulation)), (Some(0), [10, 2]));
    for (name, width, expected) in
        [("a", 4, is(ResizePhase::RolledOut, "")), ("b", 11, is(ResizePhase::Refused, "ApplicationRejected"))]
    {
        simulation.request(name, &[("S", width)]);
        simulation.settle();
        assert_eq!(end(&simulation, name), expected, "{name}");
    }
    assert_eq!((applied(&simulation), specs(&simulation)), (widths(2, 4), [10, 4]));
    let refused = simulation.status().refused_edits;
    assert_eq!(refused.iter().map(|refused| (refused.region.as_str(), refused.width)).collect::<Vec<_>>(), [("R", 10)]);
    assert_eq!(simulation.outcome("b").message.as_deref(), Some("11 is too wide"));
    simulation.resize(0, 3);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(applied(&simulation), widths(3, 4));
}

#[test]
fn all_at_once_the_one_at_fault_is_found_and_the_others_are_one_generation() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.widest = 9);
    simulation.request("good", &[("R", 4)]);
    simulation.request("large", &[("S", 10)]);
    simulation.settle();
    assert_eq!(end(&simulation, "large"), is(ResizePhase::Refused, "ApplicationRejected"));
    assert_eq!((end(&simulation, "good"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(4, 2)));
    assert_eq!(simulation.status().generation, Some(1));
    simulation.check_at_rest();
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

fn progressing(simulation: &JobSimulation) -> (String, String, String) {
    let status = simulation.status();
    let said = condition::get(&status.conditions, condition::PROGRESSING).cloned().unwrap();
    (said.status, said.reason, said.message)
}

#[test]
fn a_request_whose_compilation_comes_to_no_end_costs_nobody_else_anything_and_is_tried_again() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.endless_above = 9);
    simulation.request("endless", &[("R", 10)]);
    simulation.request("good", &[("S", 3)]);
    go_on(&mut simulation, 12);
    assert_eq!((end(&simulation, "good"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(2, 3)));
    assert_eq!(end(&simulation, "endless"), is(ResizePhase::Pending, "FusionDeadlineExceeded"));
    assert!(simulation.outcome("endless").message.unwrap().contains("it takes too long"));
    let (status, reason, message) = progressing(&simulation);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "FusionDeadlineExceeded"));
    assert!(message.starts_with("the request endless is tried alone"), "{message}");
    assert!(!simulation.leader.observed().requests.is_waited_for, "nobody goes first because of it");
    assert!(simulation.leader.decided().1.wake_at.is_some(), "it looks again by itself");
    // Others go on at once, also while it is being tried.
    for width in [4, 5, 6] {
        simulation.wait(60);
        simulation.reconcile();
        let name = format!("more-{width}");
        simulation.request(&name, &[("S", width)]);
        go_on(&mut simulation, 10);
        assert_eq!(end(&simulation, &name), is(ResizePhase::RolledOut, ""), "{name}");
    }
    simulation.services.change(|services| services.endless_above = 20);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((end(&simulation, "endless"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(10, 6)));
}

#[test]
fn an_edit_whose_compilation_comes_to_no_end_costs_nobody_else_anything_either() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.endless_above = 9);
    simulation.resize(0, 10);
    go_on(&mut simulation, 1);
    // Others ask for more while each try is under way.
    for width in 3..9 {
        simulation.request(&format!("width-{width}"), &[("S", width)]);
        go_on(&mut simulation, 1);
    }
    go_on(&mut simulation, 8);
    assert_eq!((applied(&simulation), specs(&simulation)), (widths(2, 8), [10, 8]));
    assert_eq!(
        (progressing(&simulation).1, simulation.status().refused_edits),
        ("FusionDeadlineExceeded".into(), vec![])
    );
    // What is refused in the end is refused like everything else.
    simulation.services.change(|services| (services.endless_above, services.widest) = (u32::MAX, 9));
    simulation.settle();
    assert_eq!(simulation.status().refused_edits.len(), 1);
    simulation.resize(0, 4);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(applied(&simulation), widths(4, 8));
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
fn a_precondition_is_judged_when_it_is_known_what_becomes_of_those_before() {
    // what becomes of the one before, which wants 10 -> the end of the one that expects the width before
    type Row = (&'static str, fn(&mut JobSimulation), (Option<ResizePhase>, String), BTreeMap<String, u32>);
    let table: [Row; 3] = [
        (
            "refused",
            |simulation| simulation.services.change(|services| services.widest = 9),
            is(ResizePhase::RolledOut, ""),
            widths(3, 2),
        ),
        ("withdrawn", |simulation| simulation.withdraw("before"), is(ResizePhase::RolledOut, ""), widths(3, 2)),
        ("committed", |_| {}, is(ResizePhase::Refused, "WidthMismatch"), widths(10, 2)),
    ];
    for (what, become_so, expected, in_force) in table {
        let mut simulation = JobSimulation::running();
        simulation.request("before", &[("R", 10)]);
        simulation.reconcile();
        assert!(simulation.outcome("before").number.is_some());
        become_so(&mut simulation);
        for (name, width) in [("expects-it", 2), ("expects-another", 7)] {
            simulation.request_if(name, &[("R", 3)], |spec| spec.regions[0].expected_width = Some(width));
        }
        if what != "withdrawn" {
            simulation.reconcile();
            assert_eq!(end(&simulation, "expects-it"), (None, String::new()), "{what}: not yet");
            let version = simulation.server.version();
            simulation.reconcile();
            assert_eq!(simulation.server.version(), version, "{what}: nothing is written meanwhile");
            let never = is(ResizePhase::Refused, "WidthMismatch");
            assert_eq!(end(&simulation, "expects-another"), never, "{what}: it never was");
        }
        simulation.settle();
        assert_eq!((end(&simulation, "expects-it"), applied(&simulation)), (expected, in_force), "{what}");
    }
}

#[test]
fn preconditions_hold_for_all_regions_or_nothing_happens() {
    let mut simulation = JobSimulation::running();
    simulation.request_if("width", &[("R", 4), ("S", 4)], |spec| spec.regions[1].expected_width = Some(7));
    simulation.request_if("generation", &[("R", 4)], |spec| spec.expected_generation = Some(3));
    simulation.request("nowhere", &[("R", 4), ("T", 4)]);
    simulation.settle();
    assert_eq!(end(&simulation, "width"), is(ResizePhase::Refused, "WidthMismatch"));
    assert_eq!(end(&simulation, "generation"), is(ResizePhase::Refused, "GenerationMismatch"));
    assert_eq!(end(&simulation, "nowhere"), is(ResizePhase::Refused, "RegionNotFound"));
    assert_eq!((simulation.status().generation, applied(&simulation)), (Some(0), widths(2, 2)));
    simulation.request_if("holds", &[("R", 4), ("S", 4)], |spec| {
        spec.regions[0].expected_width = Some(2);
        spec.expected_generation = Some(0);
        spec.policy = ResizePolicy::Rebalance;
    });
    simulation.settle();
    assert_eq!((end(&simulation, "holds"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(4, 4)));
    simulation.check_at_rest();
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
fn a_request_is_withdrawn_before_the_commit_and_not_later() {
    let mut simulation = JobSimulation::running();
    simulation.request("proposed", &[("R", 4)]);
    simulation.until(|simulation| simulation.status().proposal.is_some());
    simulation.withdraw("proposed");
    simulation.settle();
    assert_eq!(end(&simulation, "proposed"), is(ResizePhase::Cancelled, "Withdrawn"));
    assert_eq!((simulation.status().generation, specs(&simulation)), (Some(0), [2, 2]));
    simulation.request("committed", &[("R", 4)]);
    simulation.until(|simulation| simulation.status().generation == Some(1));
    simulation.withdraw("committed");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((end(&simulation, "committed"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(4, 2)));
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

/// A compilation for which another one was given up is proposed, whatever is wanted by then; but not what was withdrawn
/// or refused meanwhile.
#[test]
fn what_nobody_wants_any_more_is_not_committed_because_another_compilation_was_given_up() {
    let mut simulation = JobSimulation::running();
    simulation.request("first", &[("R", 3)]);
    until_compiling(&mut simulation, 3);
    simulation.request("second", &[("R", 4)]);
    until_compiling(&mut simulation, 4);
    simulation.withdraw("second");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(end(&simulation, "second"), is(ResizePhase::Cancelled, "Withdrawn"));
    assert_eq!(end(&simulation, "first"), is(ResizePhase::RolledOut, ""));
    assert_eq!((simulation.status().generation, applied(&simulation)), (Some(1), widths(3, 2)));

    let mut simulation = JobSimulation::running();
    simulation.request("first", &[("R", 3)]);
    until_compiling(&mut simulation, 3);
    simulation.request("second", &[("R", 4)]);
    until_compiling(&mut simulation, 4);
    simulation.delete(&UserDeletion::Request("second".to_owned()));
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((simulation.status().generation, applied(&simulation)), (Some(1), widths(3, 2)));

    let mut simulation = JobSimulation::running();
    simulation.request("other", &[("S", 3)]);
    until_compiling(&mut simulation, 2);
    simulation.resize(0, 9);
    until_compiling(&mut simulation, 9);
    let bounded = InitialWidth { name: Some("R".to_owned()), max_width: Some(8), ..InitialWidth::default() };
    simulation.change_spec(|spec| spec.parallel_regions = vec![bounded]);
    simulation.settle();
    assert_eq!(end(&simulation, "other"), is(ResizePhase::RolledOut, ""));
    assert_eq!((simulation.status().generation, applied(&simulation)), (Some(1), widths(2, 3)));
}

/// Newer wishes are no reason to give up a second compilation.
#[test]
fn a_compilation_for_which_another_was_given_up_comes_before_newer_wishes() {
    let mut simulation = JobSimulation::running();
    simulation.request("first", &[("R", 3)]);
    until_compiling(&mut simulation, 3);
    simulation.request("second", &[("R", 4)]);
    until_compiling(&mut simulation, 4);
    simulation.request("third", &[("R", 5)]);
    simulation.until(|simulation| simulation.status().generation == Some(1));
    assert_eq!(applied(&simulation), widths(4, 2));
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(applied(&simulation), widths(5, 2));
}

#[test]
fn a_request_that_is_deleted_is_withdrawn_before_the_commit_and_in_force_after_it() {
    let mut simulation = JobSimulation::running();
    simulation.request("proposed", &[("R", 4)]);
    simulation.until(|simulation| simulation.status().proposal.is_some());
    simulation.delete(&UserDeletion::Request("proposed".to_owned()));
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((simulation.status().generation, specs(&simulation)), (Some(0), [2, 2]));
    // It is deleted before its widths are written into specs, and the frontend ends, or goes on.
    for (generation, ends) in [(1, false), (2, true)] {
        let (name, wanted) = (format!("committed-{generation}"), 3 + generation as u32);
        simulation.server.refuse(|call| {
            let is_width = call.verb == Verb::Merge && call.kind == "ParallelRegion";
            is_width.then(|| *Status::failure("not now", "InternalError").with_code(500).boxed())
        });
        simulation.request(&name, &[("R", wanted), ("S", wanted)]);
        simulation.until(|simulation| simulation.status().generation == Some(generation));
        assert_eq!(simulation.status().unwritten_widths.len(), 2);
        simulation.delete(&UserDeletion::Request(name));
        simulation.steps_again();
        if ends {
            simulation.crash();
        }
        // What is expected of the width is what is in force.
        let next = format!("next-{generation}");
        simulation.request_if(&next, &[("S", wanted)], |spec| spec.regions[0].expected_width = Some(wanted));
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(end(&simulation, &next), is(ResizePhase::RolledOut, ""));
        assert_eq!((applied(&simulation), specs(&simulation)), (widths(wanted, wanted), [wanted, wanted]));
        assert_eq!(simulation.status().generation, Some(generation));
    }
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
fn a_refused_width_is_judged_again_when_something_else_has_changed() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.widest = 9);
    simulation.resize(0, 10);
    simulation.settle();
    assert_eq!(simulation.status().refused_edits.len(), 1);
    // Nobody asks, as long as nothing changes.
    simulation.services.change(|services| services.widest = 20);
    simulation.crash();
    simulation.settle();
    assert_eq!(applied(&simulation), widths(2, 2));
    simulation.request("other", &[("S", 3)]);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((applied(&simulation), simulation.status().refused_edits), (widths(10, 3), vec![]));
}

#[test]
fn a_refusal_is_not_repeated_from_memory_once_it_was_told() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.widest = 9);
    simulation.request("first", &[("R", 10)]);
    simulation.request("same", &[("R", 10)]);
    simulation.settle();
    for name in ["first", "same"] {
        assert_eq!(end(&simulation, name), is(ResizePhase::Refused, "ApplicationRejected"), "{name}");
    }
    simulation.resize(0, 11);
    simulation.settle();
    assert_eq!(simulation.status().refused_edits.len(), 1);
    // The cause is gone, and nobody has committed anything.
    simulation.services.change(|services| services.widest = 20);
    let bounds = InitialWidth { name: Some("R".to_owned()), max_width: Some(50), ..InitialWidth::default() };
    simulation.change_spec(|spec| spec.parallel_regions = vec![bounds]);
    simulation.settle();
    assert_eq!((simulation.status().generation, applied(&simulation)), (Some(1), widths(11, 2)));

    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.widest = 9);
    simulation.request("first", &[("R", 10)]);
    simulation.settle();
    simulation.services.change(|services| services.widest = 20);
    simulation.request("again", &[("R", 10)]);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((end(&simulation, "again"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(10, 2)));
}

#[test]
fn each_refused_edit_is_told_once_in_its_own_words() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.widest = 9);
    simulation.server.announced();
    // region, width -> what is told, what the job says then
    let table = [
        (0, 10, &["10 is too wide"][..], Some("10 is too wide")),
        (1, 11, &["11 is too wide"], Some("11 is too wide")),
        // The other one is still refused, and that was told.
        (1, 2, &[], Some("10 is too wide")),
        (0, 2, &[], None),
    ];
    for (index, width, told, expected) in table {
        simulation.resize(index, width);
        simulation.settle();
        let notes: Vec<_> = simulation.server.announced().into_iter().map(|announced| announced.notice.note).collect();
        assert_eq!(notes, told, "{index} {width}");
        let rejected = simulation.status().rejected_resize.map(|rejected| rejected.message);
        assert_eq!(rejected.as_deref(), expected, "{index} {width}");
    }
}

#[test]
fn the_job_names_what_the_compiler_refuses_and_what_is_refused_without_it() {
    let mut simulation = JobSimulation::new();
    let bounds = InitialWidth { name: Some("S".to_owned()), max_width: Some(5), ..InitialWidth::default() };
    simulation.change_spec(|spec| spec.parallel_regions = vec![bounds]);
    simulation.settle();
    simulation.services.change(|services| services.widest = 9);
    let of_bounds = "width 6 of S is greater than its maxWidth 5";
    let of_both = format!("10 is too wide; {of_bounds}");
    // widths -> reason, message
    let table = [([2, 6], "OutOfBounds", of_bounds), ([10, 6], "ApplicationRejected", &of_both), ([2, 2], "", "")];
    for (widths, reason, message) in table {
        simulation.resize(0, widths[0]);
        simulation.resize(1, widths[1]);
        simulation.settle();
        // What differs in words only is said after a while.
        simulation.wait(5);
        simulation.settle();
        let said = condition::get(&simulation.status().conditions, condition::RESIZE_REJECTED).cloned();
        let said = said.map(|said| (said.reason, said.message)).unwrap_or_default();
        assert_eq!(said, (reason.to_owned(), message.to_owned()), "{widths:?}");
    }
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

/// What is expected may be withdrawn, so each waits for what becomes of the one before.
#[test]
fn of_requests_that_come_together_each_expects_what_the_one_before_brings() {
    let simulation = &mut JobSimulation::running();
    // name, expected width, wanted width
    for (name, expected, wanted) in [("first", 2, 4), ("too-late", 2, 5), ("second", 4, 6)] {
        simulation.request_if(name, &[("R", wanted)], |spec| spec.regions[0].expected_width = Some(expected));
    }
    simulation.settle();
    let ends = ["first", "too-late", "second"].map(|name| end(simulation, name));
    let in_force = is(ResizePhase::RolledOut, "");
    assert_eq!(ends, [in_force.clone(), is(ResizePhase::Refused, "WidthMismatch"), in_force]);
    assert_eq!((simulation.status().generation, applied(simulation)), (Some(2), widths(6, 2)));
}

#[test]
fn a_precondition_does_not_hold_because_of_a_width_that_never_comes() {
    // what becomes of the request that wants the expected width -> the end of the one that expects it, generation
    let table = [
        (true, is(ResizePhase::Refused, "WidthMismatch"), 0, widths(2, 2)),
        (false, is(ResizePhase::RolledOut, ""), 2, widths(9, 2)),
    ];
    for (is_withdrawn, expected, generation, in_force) in table {
        let mut simulation = JobSimulation::running();
        simulation.request("wants", &[("R", 5)]);
        simulation.reconcile();
        simulation.request_if("expects", &[("R", 9)], |spec| spec.regions[0].expected_width = Some(5));
        simulation.reconcile();
        if is_withdrawn {
            simulation.withdraw("wants");
        }
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(end(&simulation, "expects"), expected, "{is_withdrawn}");
        assert_eq!((simulation.status().generation, applied(&simulation)), (Some(generation), in_force));
    }
}

#[test]
fn of_two_who_expect_the_same_generation_one_comes_into_force() {
    // widths of the second one: of another region, and those that are in force by then
    for second in [[("S", 4)], [("R", 3)]] {
        let mut simulation = JobSimulation::running();
        simulation.request("first", &[("R", 3)]);
        until_compiling(&mut simulation, 3);
        simulation.work();
        simulation.reconcile();
        assert!(simulation.status().proposes(1));
        simulation.request_if("second", &second, |spec| spec.expected_generation = Some(0));
        simulation.reconcile();
        assert!(simulation.outcome("second").number.is_some() && simulation.status().generation == Some(0));
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(end(&simulation, "first"), is(ResizePhase::RolledOut, ""));
        assert_eq!(end(&simulation, "second"), is(ResizePhase::Refused, "GenerationMismatch"), "{second:?}");
        assert_eq!((simulation.status().generation, applied(&simulation)), (Some(1), widths(3, 2)));
    }
    // Together they are one generation.
    let mut simulation = JobSimulation::running();
    for (name, region) in [("first", "R"), ("second", "S")] {
        simulation.request_if(name, &[(region, 3)], |spec| spec.expected_generation = Some(0));
    }
    simulation.settle();
    let outcomes = ["first", "second"].map(|name| simulation.outcome(name));
    assert_eq!(
        outcomes.map(|outcome| (outcome.phase, outcome.generation)),
        [(Some(ResizePhase::RolledOut), Some(1)); 2]
    );
}

/// What is being compiled, if anything is.
fn compiling(simulation: &JobSimulation) -> Option<Target> {
    simulation.leader.tasks().compile.running().map(|request| request.target.clone())
}

/// Each round somebody asks for another width, and then withdraws what was asked for in the round before. What is being
/// compiled is done with the round, if it was before.
#[test]
fn who_makes_and_withdraws_requests_keeps_nobody_waiting() {
    let mut simulation = JobSimulation::running();
    simulation.request("waits", &[("S", 3)]);
    for round in 0_u32..12 {
        let before = compiling(&simulation);
        simulation.request(&format!("round-{round}"), &[("R", 3 + round % 5)]);
        simulation.reconcile();
        if let Some(last) = round.checked_sub(1) {
            simulation.withdraw(&format!("round-{last}"));
        }
        simulation.reconcile();
        let present = compiling(&simulation);
        if present.is_none() || present == before {
            simulation.work();
        }
    }
    assert!(simulation.status().generation >= Some(1), "nothing is committed");
    assert_eq!(applied(&simulation)["S"], 3);
    simulation.settle();
    simulation.check_at_rest();
}

/// Who withdraws a request for what is in force takes nothing away from others.
#[test]
fn a_proposal_that_others_want_as_well_stays_when_a_request_of_it_is_withdrawn() {
    for name in ["same", "less"] {
        let mut simulation = JobSimulation::running();
        simulation.request("waits", &[("S", 3)]);
        simulation.request("same", &[("S", 3)]);
        simulation.request("less", &[("R", 2)]);
        simulation.until(|simulation| simulation.status().proposal.is_some());
        let proposal = simulation.status().proposal.unwrap();
        assert_eq!(proposal.resizes, [1, 2, 3]);
        simulation.withdraw(name);
        simulation.until(|simulation| simulation.status().generation == Some(1));
        assert_eq!(simulation.status().plan, Some(proposal.plan), "{name}");
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(end(&simulation, name), is(ResizePhase::Cancelled, "Withdrawn"), "{name}");
        assert_eq!((end(&simulation, "waits"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(2, 3)));
    }
}

#[test]
fn a_request_for_a_region_whose_object_does_not_come_back_ends() {
    let mut simulation = JobSimulation::running();
    // It stays until it is collected.
    simulation.delete(&UserDeletion::Region(1));
    simulation.reconcile();
    simulation.request("lacks", &[("S", 3)]);
    simulation.reconcile();
    assert!(!simulation.leader.observed().requests.is_waited_for, "nobody goes first because of it");
    assert!(simulation.leader.decided().1.wake_at.is_some(), "it looks again by itself");
    assert_eq!(end(&simulation, "lacks"), (None, String::new()));
    simulation.wait(600);
    simulation.reconcile();
    simulation.reconcile();
    assert_eq!(end(&simulation, "lacks"), is(ResizePhase::Refused, "RegionNotFound"));
    assert!(simulation.outcome("lacks").message.unwrap().contains("missing for too long"));
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
