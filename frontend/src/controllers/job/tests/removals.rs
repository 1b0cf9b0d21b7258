//! What goes while one generation is committed after the other, and none of them is rolled out (rules job-16 and
//! job-49).

use super::in_the_way::{delete_and_keep, does_not_go, keep, let_go, resources_ready};
use super::simulation::{JOB, JobSimulation, NAMESPACE, key, wait_for};
use super::waves::give_pod;
use crate::controllers::job::child::Port;
use crate::controllers::job::decide::{Child, JobAction, JobDecision, Owned, WhichGeneration, decide};
use crate::controllers::job::observed::{DesiredGeneration, JobObservation, Loaded, ObservedObject, ObservedPe};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::SignedDuration;
use std::collections::BTreeSet;
use std::sync::Arc;
use streams_api::{Job, ProcessingElement, names};
use streams_kubernetes::Key;

/// Brings the objects to what is decided, with no pod starting.
fn write(simulation: &mut JobSimulation) {
    for _ in 0..3 {
        simulation.round();
        simulation.collect();
    }
}

fn removed(before: &BTreeSet<u64>, simulation: &JobSimulation) -> Vec<u64> {
    let now = simulation.pes();
    before.iter().copied().filter(|id| !now.contains_key(id)).collect()
}

#[test]
fn a_pe_goes_when_every_other_runs_a_text_that_does_not_know_it_whatever_was_committed_since() {
    let mut simulation = JobSimulation::running();
    let first: BTreeSet<u64> = simulation.pes().into_keys().collect();
    simulation.resize(0, 1);
    simulation.until_committed(1);
    write(&mut simulation);
    // The source runs the text of generation 1, the sink still that of generation 0.
    simulation.take_down(0);
    simulation.run_pod(0);
    simulation.resize(0, 4);
    simulation.until_committed(2);
    write(&mut simulation);
    assert_eq!(removed(&first, &simulation), Vec::<u64>::new(), "the sink still knows it");
    // The sink runs the newest text, the source that of generation 1, the new channels nothing.
    simulation.take_down(1);
    simulation.run_pod(1);
    write(&mut simulation);
    assert_eq!(removed(&first, &simulation), [5]);
    assert!(!simulation.has_service(5));
    assert!(simulation.export(5).is_none(), "others would try to connect to it");
    let rollout = simulation.status().rollout.unwrap();
    assert!(rollout.finished_at.is_none() && rollout.unfinished_since.is_some(), "{rollout:?}");
    simulation.settle();
    simulation.check_at_rest();
    let rollout = simulation.status().rollout.unwrap();
    assert!(rollout.unfinished_since.is_none() && rollout.removals.is_empty(), "{rollout:?}");
}

#[test]
fn a_pe_does_not_go_because_others_were_written_and_the_mirror_still_shows_them_running() {
    let mut simulation = JobSimulation::running();
    let first: BTreeSet<u64> = simulation.pes().into_keys().collect();
    simulation.resize(0, 1);
    simulation.until_committed(1);
    simulation.leader.catch_up();
    for _ in 0..6 {
        let _ = wait_for(simulation.leader.round());
        // Everything but PEs.
        simulation.leader.deliver([usize::MAX, 0, usize::MAX, usize::MAX, usize::MAX, usize::MAX]);
    }
    let written = simulation.pes();
    assert_eq!([0, 1].map(|id| written[&id].spec.generation), [1, 1], "they have their new texts");
    let goes = |id: &u64| written.get(id).is_none_or(|pe| pe.metadata.deletion_timestamp.is_some());
    assert_eq!(first.iter().copied().find(goes), None, "nobody runs them yet");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(removed(&first, &simulation), [5]);
}

#[test]
fn exports_and_imports_go_with_the_ports_of_their_pes() {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 4);
    simulation.until_committed(1);
    simulation.leader.catch_up();
    let mut observed = simulation.leader.observed();
    let committed = observed.committed.as_ref().and_then(Loaded::whole).unwrap().clone();
    // PE 1 is about to be restarted, PE 2 stays, PE 77 is gone.
    let left: Vec<Child> = [1, 2, 77]
        .map(|pe| Port { pe, id: 9 })
        .into_iter()
        .flat_map(|port| [Child::Export(port), Child::Import(port)])
        .collect();
    let object = ObservedObject { applied: "earlier".to_owned(), ..ObservedObject::default() };
    observed.children.interfaces.extend(left.iter().map(|child| (*child, object.clone())));
    let deleted = |observed: &JobObservation| -> Vec<u64> {
        let JobDecision::Work(actions) = decide(observed).0 else { panic!("a step") };
        let of = |action: &JobAction| match action {
            JobAction::Delete(Owned::Child(Child::Export(port) | Child::Import(port)), _) => Some(port.pe),
            _ => None,
        };
        actions.iter().filter_map(of).collect()
    };
    assert_eq!(deleted(&observed), [2, 77, 2, 77]);
    // A proposal has one of them again.
    let mut next = DesiredGeneration { generation: 2, ..committed.clone() };
    next.interfaces.insert(Child::Export(Port { pe: 2, id: 9 }), "next".to_owned());
    let proposing = JobObservation { proposed: Some(Loaded::Whole(Arc::new(next))), ..observed.clone() };
    assert_eq!(deleted(&proposing), [77, 2, 77]);
    // Those of PE 1 were for a proposal that is abandoned.
    let mut abandoned = observed.clone();
    for child in [Child::Export(Port { pe: 1, id: 9 }), Child::Import(Port { pe: 1, id: 9 })] {
        abandoned.children.interfaces.get_mut(&child).unwrap().since = 2;
    }
    assert_eq!(deleted(&abandoned), [1, 2, 77, 1, 2, 77]);
    // PE 1 has its new text.
    let wanted = committed.processing_elements[&1].text.processing_element.clone();
    observed.children.processing_elements.get_mut(&1).unwrap().object.applied = wanted;
    assert_eq!(deleted(&observed), [1, 2, 77, 1, 2, 77]);
    observed.children.processing_elements.get_mut(&1).unwrap().object.applied = "earlier".to_owned();
    observed.children.processing_elements.get_mut(&1).unwrap().object.deleting = true;
    assert_eq!(deleted(&observed), [1, 2, 77, 1, 2, 77]);
}

#[test]
fn what_a_proposal_exports_says_so_before_it_is_there() {
    let mut simulation = JobSimulation::running();
    let since = |simulation: &JobSimulation, pe| {
        simulation.export(pe)?.metadata.annotations?.remove(names::ANNOTATION_SINCE_GENERATION)
    };
    simulation.resize(0, 4);
    simulation.no_step_after("Export");
    simulation.until(|simulation| simulation.export(8).is_some());
    assert_eq!((simulation.status().generation, since(&simulation, 8).as_deref()), (Some(0), Some("1")));
    simulation.steps_again();
    simulation.settle();
    // All that goes on later leaves it as it is.
    simulation.resize(0, 5);
    simulation.settle();
    assert_eq!((simulation.status().generation, since(&simulation, 8).as_deref()), (Some(2), Some("1")));
    assert_eq!(since(&simulation, 5).as_deref(), Some("0"));
}

/// A proposal has it again, because whoever listed the ids in use had not heard of all, and is withdrawn.
#[test]
fn a_pe_that_comes_back_for_a_proposal_goes_when_no_other_sends_to_it_and_nothing_is_committed_before() {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 1);
    simulation.until_committed(1);
    write(&mut simulation);
    simulation.services.change(|services| services.gives_again = true);
    simulation.request("comes-back", &[("R", 2)]);
    simulation.no_step_after("ProcessingElement");
    simulation.until(|simulation| simulation.pe(5).is_some_and(|pe| pe.spec.generation == 2));
    simulation.steps_again();
    simulation.withdraw("comes-back");
    simulation.crash();
    write(&mut simulation);
    assert!(simulation.status().proposal.is_none() && simulation.pe(5).is_some(), "source and sink still send to it");
    // Another proposal does not want it.
    simulation.resize(1, 1);
    for _ in 0..10 {
        simulation.reconcile();
        simulation.work();
    }
    let status = simulation.status();
    assert_eq!((status.generation, status.proposal.is_some()), (Some(1), true), "it would take part in this one");
    for id in [0, 1] {
        assert!(simulation.pe(5).is_some(), "PE {id} still sends to it");
        simulation.run_pod(id);
        write(&mut simulation);
    }
    assert!(simulation.pe(5).is_none());
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(2));
}

#[test]
fn a_pe_goes_past_the_time_out_after_its_own_removal() {
    let mut simulation = JobSimulation::running();
    let first: BTreeSet<u64> = simulation.pes().into_keys().collect();
    simulation.resize(0, 1);
    simulation.until_committed(1);
    write(&mut simulation);
    simulation.wait(200);
    simulation.resize(0, 4);
    simulation.until_committed(2);
    write(&mut simulation);
    simulation.wait(90);
    write(&mut simulation);
    assert_eq!(removed(&first, &simulation), Vec::<u64>::new());
    simulation.wait(11);
    write(&mut simulation);
    assert_eq!(removed(&first, &simulation), [5]);
}

#[test]
fn restarts_do_not_wait_for_new_pes_of_one_generation_after_the_other() {
    let mut simulation = JobSimulation::running();
    for (generation, width) in [(1, 4), (2, 5), (3, 6)] {
        simulation.resize(0, width);
        simulation.until_committed(generation);
        simulation.leader.catch_up();
        let JobDecision::Work(actions) = simulation.leader.decided().0 else { panic!("a step") };
        let source = JobAction::Apply(Child::ProcessingElement(0), WhichGeneration::Committed);
        assert_eq!(actions.contains(&source), generation == 3, "generation {generation}");
        simulation.wait(155);
    }
}

#[test]
fn texts_that_nobody_needs_are_bounded_although_nothing_is_rolled_out() {
    let mut simulation = JobSimulation::running();
    let mut most = 0;
    for generation in 1..22 {
        simulation.resize_both([7, 5].map(|widths| 1 + u32::try_from((generation + 1) % widths).unwrap()));
        simulation.until_committed(generation);
        most = most.max(simulation.texts().len());
    }
    let pes = simulation.pes().len();
    assert!((64..64 + 3 * pes).contains(&most), "{most} texts, {pes} PEs");
    simulation.leader.catch_up();
    let (decision, _) = simulation.leader.decided();
    let JobDecision::Work(actions) = decision else { panic!("a step") };
    let deletes_pe = |action: &JobAction| matches!(action, JobAction::Delete(Owned::Child(_), _));
    assert!(!actions.iter().any(deletes_pe), "they may still be sent to");
    simulation.settle();
    simulation.check_at_rest();
}

/// Other jobs have their turns in between (rule call-27).
#[test]
fn a_turn_has_few_deletions_in_a_crowd_and_the_next_one_others() {
    for (is_crowded, expected) in [(false, 19), (true, 8)] {
        let mut simulation = JobSimulation::running();
        simulation.resize(0, 20);
        simulation.settle();
        simulation.resize(0, 1);
        simulation.until_committed(2);
        write(&mut simulation);
        simulation.leader.connection.crowd(is_crowded);
        simulation.wait(301);
        let before: BTreeSet<u64> = simulation.pes().into_keys().collect();
        simulation.round();
        simulation.collect();
        assert_eq!(removed(&before, &simulation).len(), expected, "{is_crowded}");
        simulation.leader.connection.crowd(false);
        simulation.settle();
        simulation.check_at_rest();
    }
}

/// It was created late, when another proposal of the same number was committed: nobody knows it.
#[test]
fn a_pe_of_an_abandoned_proposal_goes_at_once_though_its_generation_is_committed() {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 4);
    simulation.until_committed(1);
    simulation.leader.catch_up();
    let mut observed = simulation.leader.observed();
    for (generation, expected) in [(0, false), (1, true), (2, true)] {
        let pe = ObservedPe { generation, ..observed.children.processing_elements[&2].clone() };
        observed.children.processing_elements.insert(77, pe);
        let JobDecision::Work(actions) = decide(&observed).0 else { panic!("a step") };
        let is_it =
            |action: &JobAction| matches!(action, JobAction::Delete(Owned::Child(Child::ProcessingElement(77)), _));
        assert_eq!(actions.iter().any(is_it), expected, "{generation}");
    }
}

/// Whatever others have made of it.
#[test]
fn a_pe_of_the_committed_generation_is_of_no_abandoned_proposal() {
    let mut simulation = JobSimulation::running();
    simulation.leader.catch_up();
    let running = simulation.leader.observed();
    let pe = ObservedPe { generation: 99, ..running.children.processing_elements[&0].clone() };
    // the PE, the plan is lost -> it is deleted
    for (id, is_lost, expected) in [(0, false, false), (77, false, true), (0, true, false), (77, true, false)] {
        let mut observed = running.clone();
        observed.children.processing_elements.insert(id, pe.clone());
        if is_lost {
            observed.committed = Some(Loaded::Lost("gone".to_owned()));
        }
        let JobDecision::Work(actions) = decide(&observed).0 else { panic!("a step") };
        let pe = Owned::Child(Child::ProcessingElement(id));
        let is_it = |action: &JobAction| matches!(action, JobAction::Delete(deleted, _) if *deleted == pe);
        assert_eq!(actions.iter().any(is_it), expected, "{id} {is_lost}");
    }
}

fn key_of(id: u64) -> Key {
    Key::new(NAMESPACE, &names::processing_element(JOB, id))
}

fn is_going(simulation: &JobSimulation, id: u64) -> bool {
    simulation.pe(id).is_some_and(|pe| pe.metadata.deletion_timestamp.is_some())
}

/// Nobody knows for how long it does.
#[test]
fn a_removed_pe_that_something_keeps_is_named_and_no_generation_waits_for_it() {
    let mut simulation = JobSimulation::running();
    keep::<ProcessingElement>(&simulation, &key_of(5));
    simulation.resize(0, 1);
    simulation.settle();
    assert!(is_going(&simulation, 5));
    let rollout = simulation.status().rollout.unwrap();
    assert!(rollout.finished_at.is_some() && rollout.pending == 0, "{rollout:?}");
    assert_eq!(resources_ready(&simulation), does_not_go(Child::ProcessingElement(5)));
    simulation.wait(400);
    simulation.resize(0, 4);
    simulation.until_committed(2);
    assert_eq!(simulation.status().rollout.unwrap().unfinished_since, None);
    simulation.leader.catch_up();
    let JobDecision::Work(actions) = simulation.leader.decided().0 else { panic!("a step") };
    for id in [0, 1] {
        let restart = JobAction::Apply(Child::ProcessingElement(id), WhichGeneration::Committed);
        assert!(!actions.contains(&restart), "PE {id} is restarted, and the new PEs do not run");
    }
    simulation.settle();
    assert_eq!(resources_ready(&simulation), does_not_go(Child::ProcessingElement(5)));
    let_go::<ProcessingElement>(&simulation, &key_of(5));
    simulation.settle();
    simulation.check_at_rest();
    assert!(!simulation.has_service(5));
}

/// Kubernetes deletes its pods after its object.
#[test]
fn the_pod_of_a_removed_pe_that_something_keeps_is_deleted_whoever_leads() {
    let mut simulation = JobSimulation::running();
    keep::<ProcessingElement>(&simulation, &key_of(5));
    give_pod(&simulation, 5, "Running");
    simulation.resize(0, 1);
    for _ in 0..50 {
        if is_going(&simulation, 5) {
            break;
        }
        simulation.round();
        simulation.work();
        simulation.run_pods();
    }
    assert!(is_going(&simulation, 5) && simulation.server.list::<Pod>().len() == 1);
    simulation.crash();
    simulation.settle();
    assert!(simulation.server.list::<Pod>().is_empty());
    // Another one was on its way, of which the job does not hear.
    let wake_at = simulation.leader.decided().1.wake_at.unwrap();
    assert!(wake_at.duration_since(simulation.server.now()).as_secs() <= 60, "{wake_at}");
    give_pod(&simulation, 5, "Pending");
    simulation.settle();
    assert!(simulation.server.list::<Pod>().is_empty());
    let_go::<ProcessingElement>(&simulation, &key_of(5));
    simulation.settle();
    simulation.check_at_rest();
}

/// It is made again only when its object is gone.
#[test]
fn the_pod_of_a_pe_that_somebody_deletes_and_that_something_keeps_is_left_while_the_job_has_the_pe() {
    let mut simulation = JobSimulation::running();
    give_pod(&simulation, 5, "Running");
    delete_and_keep::<ProcessingElement>(&simulation, &key_of(5));
    simulation.settle();
    assert!(is_going(&simulation, 5) && simulation.server.list::<Pod>().len() == 1);
    // A resize removes it.
    simulation.resize(0, 1);
    simulation.settle();
    assert!(is_going(&simulation, 5) && simulation.server.list::<Pod>().is_empty());
    let_go::<ProcessingElement>(&simulation, &key_of(5));
    simulation.settle();
    simulation.check_at_rest();
}

/// The leader before was ahead.
#[test]
fn a_roll_out_that_begins_in_the_future_begins_when_somebody_sees_that() {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 1);
    simulation.until_committed(1);
    let hour = SignedDuration::from_hours(1);
    let now = simulation.server.now();
    simulation.server.edit(&key(), |job: &mut Job| {
        let rollout = job.status.as_mut().and_then(|status| status.rollout.as_mut()).unwrap();
        (rollout.started_at, rollout.unfinished_since) = (Some(MicroTime(now + hour)), Some(MicroTime(now + hour)));
        rollout.removals.iter_mut().for_each(|removal| removal.since = MicroTime(now + hour));
        assert!(!rollout.removals.is_empty());
    });
    write(&mut simulation);
    let times = |simulation: &JobSimulation| {
        let rollout = simulation.status().rollout.unwrap();
        let since = rollout.removals.into_iter().map(|removal| removal.since.0);
        let of_all = rollout.started_at.into_iter().chain(rollout.unfinished_since);
        of_all.map(|at| at.0).chain(since).collect::<Vec<_>>()
    };
    let found = times(&simulation);
    assert!(found.iter().all(|at| *at <= simulation.server.now()), "{found:?}");
    simulation.wait(10);
    write(&mut simulation);
    assert_eq!(times(&simulation), found, "it goes on from then");
}
