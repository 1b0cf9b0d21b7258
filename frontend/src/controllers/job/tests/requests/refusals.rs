//! Widths that the compiler refuses or does not come to an end with, and regions that are not there.

use super::*;
use std::time::Duration;
use streams_kubernetes::queue::Outcome;

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

#[test]
fn a_width_whose_plan_nobody_can_read_is_refused_alone_and_not_tried_again() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.too_large_above = 9);
    simulation.request("good", &[("R", 4)]);
    simulation.request("large", &[("S", 10)]);
    simulation.settle();
    assert_eq!(end(&simulation, "large"), is(ResizePhase::Refused, "TooLarge"));
    assert_eq!((end(&simulation, "good"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(4, 2)));
    simulation.check_at_rest();
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
    go_on_until_it_rests(&mut simulation, 10);
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
    go_on_until_it_rests(&mut simulation, 10);
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

/// What looked like its fault was none, and nobody else waits.
#[test]
fn a_wish_that_is_tried_alone_comes_into_force_soon_after_compilations_come_to_an_end_again() {
    for is_edit in [false, true] {
        let mut simulation = JobSimulation::running();
        simulation.services.change(|services| services.endless_above = 9);
        if is_edit {
            simulation.resize(0, 10);
        } else {
            simulation.request("wide", &[("R", 10)]);
        }
        go_on(&mut simulation, 4);
        assert_eq!(simulation.leader.observed().requests.apart.len(), 1, "{is_edit}");
        simulation.services.change(|services| services.endless_above = u32::MAX);
        // Half a minute.
        go_on(&mut simulation, 6);
        assert_eq!(applied(&simulation), widths(10, 2), "{is_edit}");
        simulation.settle();
        simulation.check_at_rest();
    }
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

/// It fits when it is made, and not with a status.
#[test]
fn a_request_without_room_for_its_status_holds_up_nobody() {
    // how the API server says so
    let table = [(413, "Request entity too large: limit is 3145728"), (500, "etcdserver: request is too large")];
    for (code, words) in table {
        let mut simulation = JobSimulation::running();
        simulation.server.refuse(move |call| {
            let is_told = call.verb == Verb::ReplaceStatus && &*call.key.name == "large";
            is_told.then(|| *Status::failure(words, "Unknown").with_code(code).boxed())
        });
        simulation.request("large", &[("R", 4)]);
        simulation.request("good", &[("S", 3)]);
        go_on(&mut simulation, 12);
        assert_eq!((end(&simulation, "good"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(2, 3)));
        assert_eq!(end(&simulation, "large"), (None, String::new()), "{words}");
        let requests = simulation.leader.observed().requests;
        assert!(!requests.has_new && !requests.is_waited_for, "{words}: nobody goes first because of it");
        let last_failure = simulation.leader.observed().last_failure;
        assert_eq!(last_failure, None, "{words}");
        // Somebody makes room.
        simulation.steps_again();
        simulation.server.edit(&key().sibling("large"), |request: &mut Resize| {
            request.metadata.annotations = Some([("room".to_owned(), "there is".to_owned())].into());
        });
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!((end(&simulation, "large"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(4, 3)));
    }
}

/// Each would have a place of those that the job may have, for ever.
#[test]
fn a_request_without_room_for_its_status_goes_after_a_while() {
    for is_other_process in [false, true] {
        let mut simulation = JobSimulation::running();
        simulation.server.refuse(|call| {
            let is_told = call.verb == Verb::ReplaceStatus && &*call.key.name == "large";
            is_told.then(|| *Status::failure("Request entity too large", "Unknown").with_code(413).boxed())
        });
        simulation.request("large", &[("R", 4)]);
        let request = |simulation: &JobSimulation| simulation.server.get::<Resize>(&key().sibling("large"));
        go_on(&mut simulation, 4);
        let created = request(&simulation).unwrap().metadata.creation_timestamp.unwrap().0;
        let age = simulation.server.now().duration_since(created).as_secs();
        simulation.wait(599 - u64::try_from(age).unwrap());
        if is_other_process {
            simulation.crash();
        }
        let outcome = simulation.reconcile();
        let is_soon = matches!(outcome, Some(Outcome::Again(delay)) if delay <= Duration::from_secs(1));
        assert!(is_soon, "it looks again by itself: {outcome:?}");
        assert!(request(&simulation).is_some());
        simulation.wait(1);
        simulation.reconcile();
        simulation.collect();
        assert_eq!(request(&simulation), None);
        simulation.reconcile();
        assert_eq!(simulation.leader.observed().last_failure, None);
    }
}

#[test]
fn a_request_of_a_job_whose_submission_has_failed_can_be_withdrawn_and_ends_after_a_while() {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.refuses = true);
    simulation.settle();
    for name in ["withdrawn", "waits"] {
        simulation.request(name, &[("R", 4)]);
    }
    simulation.withdraw("withdrawn");
    simulation.reconcile();
    assert_eq!(end(&simulation, "withdrawn"), is(ResizePhase::Cancelled, "Withdrawn"));
    assert_eq!(end(&simulation, "waits"), (None, String::new()));
    simulation.settle();
    assert_eq!(end(&simulation, "waits"), is(ResizePhase::Refused, "NotSubmitted"));
}
