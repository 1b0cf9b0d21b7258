//! Requests that are withdrawn or deleted while something is under way for them.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_kubernetes_fake::Fault;

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

/// A job may have ten thousand others, and pages of them take seconds.
#[test]
fn a_request_that_is_deleted_once_the_job_names_it_is_asked_for_by_its_name() {
    // how many calls the API server does not answer first
    for failures in [0, 2] {
        let mut simulation = JobSimulation::running();
        simulation.request("proposed", &[("R", 4)]);
        simulation.until(|simulation| simulation.status().proposal.is_some());
        let (lists, gets) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (listed, got) = (Arc::clone(&lists), Arc::clone(&gets));
        simulation.server.refuse(move |call| {
            let is = |verb| call.kind == "Resize" && call.verb == verb;
            listed.fetch_add(usize::from(is(Verb::List)), Ordering::Relaxed);
            let fails = is(Verb::Get) && got.fetch_add(1, Ordering::Relaxed) < failures;
            fails.then(|| *Status::failure("not now", "InternalError").with_code(500).boxed())
        });
        simulation.delete(&UserDeletion::Request("proposed".to_owned()));
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!((lists.load(Ordering::Relaxed), gets.load(Ordering::Relaxed) > failures), (0, true), "{failures}");
        assert_eq!((simulation.status().generation, specs(&simulation)), (Some(0), [2, 2]), "{failures}");
    }
}

/// The write of the proposal has its effect, and nobody hears of it before the request was told that it is cancelled.
#[test]
fn what_was_told_not_to_come_does_not_come_with_a_proposal_that_nobody_had_seen() {
    for others_want_it in [false, true] {
        let mut simulation = JobSimulation::running();
        simulation.request("asked", &[("R", 4)]);
        for _ in 0..40 {
            simulation.leader.catch_up();
            if simulation.leader.decided().0.plan_to_record().is_some() {
                break;
            }
            simulation.round();
            simulation.work();
        }
        simulation.leader.connection.fail(Fault { after: 0, of_writes: true, has_effect: true, is_last: false });
        assert!(wait_for(simulation.leader.round()).is_err());
        assert!(simulation.status().proposes(1));
        simulation.withdraw("asked");
        simulation.leader.hear_of_requests();
        let _ = wait_for(simulation.leader.round());
        assert_eq!(end(&simulation, "asked"), is(ResizePhase::Cancelled, "Withdrawn"));
        if others_want_it {
            simulation.request("same", &[("R", 4)]);
        }
        simulation.settle();
        simulation.check_at_rest();
        let (generation, width) = if others_want_it { (Some(1), 4) } else { (Some(0), 2) };
        let seen = (simulation.status().generation, applied(&simulation), specs(&simulation));
        assert_eq!(seen, (generation, widths(width, 2), [width, 2]), "{others_want_it}");
        assert_eq!(end(&simulation, "asked"), is(ResizePhase::Cancelled, "Withdrawn"));
    }
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

/// Anybody may give the label of a job to gigabytes of requests that are none of the job.
#[test]
fn who_looks_for_a_request_that_was_deleted_while_it_was_proposed_reads_small_pages() {
    let mut simulation = JobSimulation::running();
    simulation.request("proposed", &[("R", 4)]);
    simulation.until(|simulation| simulation.status().proposal.is_some());
    for number in 0..30 {
        let name = format!("labelled-{number}");
        simulation.request(&name, &[("R", 5)]);
        // Nobody takes it over, refuses or removes it.
        simulation.server.edit(&key().sibling(&name), |request: &mut Resize| {
            for owner in request.metadata.owner_references.iter_mut().flatten() {
                (owner.kind, owner.uid) = ("ConfigMap".to_owned(), "another".to_owned());
            }
        });
    }
    simulation.delete(&UserDeletion::Request("proposed".to_owned()));
    // Whoever leads next has not seen its name.
    simulation.crash();
    simulation.leader.catch_up();
    simulation.leader.observed();
    assert_eq!(simulation.leader.connection.largest_page(), 10);
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
