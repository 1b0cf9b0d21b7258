//! What one turn of a job has, and what it leaves to the next (rule call-7).

use super::simulation::{JOB, JobSimulation, UserDeletion, key, wait_for};
use crate::controllers::job::child::Port;
use crate::controllers::job::decide::{Child, JobAction, JobDecision};
use crate::controllers::reconciler::Next;
use futures::future::BoxFuture;
use kube::core::Status;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::future::{poll_fn, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
use streams_api::{Export, PeOptions, ResizePhase, TraceLevel, condition, names};
use streams_kubernetes::queue::Outcome;
use streams_kubernetes_fake::{Call, Verb};

/// A job that is narrower than before; nobody needs the PEs any more of which it has had more.
fn with_superfluous_pes() -> (JobSimulation, BTreeSet<u64>) {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 20);
    simulation.settle();
    simulation.resize(0, 1);
    simulation.until_committed(2);
    for _ in 0..3 {
        simulation.round();
        simulation.collect();
    }
    simulation.wait(301);
    let pes = simulation.pes().into_keys().collect();
    (simulation, pes)
}

fn removed(before: &BTreeSet<u64>, simulation: &JobSimulation) -> usize {
    let now = simulation.pes();
    before.iter().filter(|id| !now.contains_key(*id)).count()
}

/// A webhook of the namespace fails for all Services: each such call may take as long as a call may.
#[test]
fn a_turn_ends_with_what_was_not_answered_and_the_next_one_goes_on_after_it() {
    let mut simulation = JobSimulation::new();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    simulation.server.refuse(move |call| {
        let is_refused = call.verb == Verb::Create && call.kind == "Service";
        count.fetch_add(usize::from(is_refused), Ordering::Relaxed);
        is_refused.then(|| *Status::failure("a webhook is down", "InternalError").with_code(500).boxed())
    });
    simulation.until(|_| refused.load(Ordering::Relaxed) > 0);
    for look in 0..12 {
        let before = refused.load(Ordering::Relaxed);
        assert_eq!(simulation.reconcile(), None, "it fails");
        simulation.work();
        let found = refused.load(Ordering::Relaxed) - before;
        assert!((1..=4).contains(&found), "look {look} has tried {found} Services");
        let status = simulation.status();
        let progressing = condition::get(&status.conditions, condition::PROGRESSING).unwrap();
        assert_eq!(progressing.reason, "ApiServer");
    }
    simulation.leader.catch_up();
    let (JobDecision::Work(actions), _) = simulation.leader.decided() else { panic!("a step") };
    let is_service =
        |action: &JobAction| matches!(action, JobAction::Apply(Child::Service(_) | Child::ConsistentRegionService, _));
    assert!(!actions.is_empty() && actions.iter().all(is_service), "all others are there: {actions:?}");
    simulation.steps_again();
    simulation.settle();
    simulation.check_at_rest();
}

/// However many objects there are of the kind that fails.
#[test]
fn what_fails_for_one_kind_of_objects_keeps_none_of_another_kind_waiting() {
    let mut simulation = JobSimulation::running();
    let before = simulation.pes();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    simulation.server.refuse(move |call| {
        let is_refused = call.verb == Verb::Create && call.kind == "Service";
        count.fetch_add(usize::from(is_refused), Ordering::Relaxed);
        is_refused.then(|| *Status::failure("a webhook is down", "InternalError").with_code(500).boxed())
    });
    simulation.resize(0, 60);
    simulation.until(|_| refused.load(Ordering::Relaxed) > 0);
    simulation.change_spec(|spec| {
        let level = TraceLevel::Debug;
        spec.processing_element = Some(PeOptions { runtime_trace_level: level, ..PeOptions::default() });
    });
    for _ in 0..2 {
        assert_eq!(simulation.reconcile(), None, "it fails");
    }
    let pes = simulation.pes();
    assert!(pes.len() > before.len() + 50, "{}: PEs that are new are there", pes.len());
    for id in before.keys() {
        assert_eq!(pes[id].spec.options.runtime_trace_level, TraceLevel::Debug, "PE {id}");
    }
    assert!(refused.load(Ordering::Relaxed) <= 40, "{refused:?} Services were tried");
    simulation.steps_again();
    simulation.settle();
    simulation.check_at_rest();
}

/// A quota permits no Services, and the job lacks more of them than a turn has writes.
#[test]
fn objects_that_are_refused_keep_none_of_what_comes_after_them_waiting() {
    let (mut simulation, ids) = JobSimulation::without_services_in_a_crowd();
    let tried = Arc::new(Mutex::new(BTreeSet::new()));
    let noted = Arc::clone(&tried);
    simulation.server.refuse(move |call| {
        let is_refused = call.verb == Verb::Create && call.kind == "Service";
        is_refused.then(|| {
            noted.lock().insert(call.key.name.clone());
            *Status::failure("exceeded quota: q", "Forbidden").with_code(403).boxed()
        })
    });
    simulation.change_spec(|spec| {
        let level = TraceLevel::Debug;
        spec.processing_element = Some(PeOptions { runtime_trace_level: level, ..PeOptions::default() });
    });
    for look in 0..12 {
        simulation.reconcile();
        let status = simulation.status();
        let progressing = condition::get(&status.conditions, condition::PROGRESSING).unwrap();
        assert_eq!(progressing.reason, "QuotaExceeded", "look {look}");
    }
    for (id, pe) in simulation.pes() {
        assert_eq!(pe.spec.options.runtime_trace_level, TraceLevel::Debug, "PE {id}");
    }
    assert_eq!(tried.lock().len(), ids.len(), "each Service was tried");
    simulation.steps_again();
    simulation.leader.connection.crowd(false);
    simulation.settle();
    simulation.check_at_rest();
}

/// A quota has no room for one Service, and the job lacks more of them than a turn has writes.
#[test]
fn what_was_refused_is_said_while_the_others_of_its_kind_are_written() {
    let (mut simulation, ids) = JobSimulation::without_services_in_a_crowd();
    let first = names::processing_element(JOB, *ids.first().unwrap());
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    simulation.server.refuse(move |call| {
        let is_refused = call.verb == Verb::Create && call.kind == "Service" && *call.key.name == first;
        counted.fetch_add(usize::from(is_refused), Ordering::Relaxed);
        is_refused.then(|| *Status::failure("exceeded quota: q", "Forbidden").with_code(403).boxed())
    });
    for look in 0..6 {
        simulation.reconcile();
        let status = simulation.status();
        let progressing = condition::get(&status.conditions, condition::PROGRESSING).unwrap();
        assert_eq!(progressing.reason, "QuotaExceeded", "look {look}");
        if look == 1 {
            assert_eq!(tries.load(Ordering::Relaxed), 1, "others come first");
        }
    }
    assert!(ids.iter().skip(1).all(|id| simulation.has_service(*id)), "all others are there");
    assert!(tries.load(Ordering::Relaxed) > 1, "it is tried again");
    simulation.steps_again();
    simulation.leader.connection.crowd(false);
    simulation.settle();
    simulation.check_at_rest();
}

/// A policy of the namespace refuses what most of them are told, and that are more than a turn has. What they are told
/// has the time in it.
#[test]
fn requests_hear_that_their_widths_are_written_though_others_before_them_cannot_be_told() {
    let mut simulation = JobSimulation::running();
    // What is checked at each write looks at all requests.
    simulation.server.inspect(|_| {});
    let name = |number: u32| format!("r-{number:03}");
    (0..300).for_each(|number| simulation.request(&name(number), &[("R", 3)]));
    simulation.until(|simulation| (0..300).all(|number| simulation.outcome(&name(number)).number.is_some()));
    let last = name(280);
    simulation.server.refuse(move |call| {
        let is_refused = call.verb == Verb::ReplaceStatus && call.kind == "Resize" && *call.key.name < *last;
        is_refused.then(|| *Status::failure("a policy", "Forbidden").with_code(403).boxed())
    });
    for _ in 0..30 {
        simulation.reconcile();
        simulation.work();
        simulation.run_pods();
        simulation.collect();
        simulation.wait(1);
    }
    let phases = |simulation: &JobSimulation| -> BTreeSet<Option<ResizePhase>> {
        (280..300).map(|number| simulation.outcome(&name(number)).phase).collect()
    };
    assert_eq!(phases(&simulation), [Some(ResizePhase::RolledOut)].into());
    simulation.steps_again();
    simulation.settle();
    assert_eq!(simulation.outcome(&name(0)).phase, Some(ResizePhase::RolledOut));
}

/// What failed after it is over.
#[test]
fn what_makes_way_is_said_and_not_what_has_failed_since_and_is_over() {
    let (mut simulation, ids) = JobSimulation::without_services_in_a_crowd();
    let first = names::processing_element(JOB, *ids.first().unwrap());
    let refuse = |simulation: &JobSimulation, is_webhook_down: bool| {
        let first = first.clone();
        simulation.server.refuse(move |call| {
            let is_of_quota = call.verb == Verb::Create && call.kind == "Service" && *call.key.name == first;
            let is_of_webhook = is_webhook_down && call.verb == Verb::Create && call.kind == "Export";
            let failed = |words: &str, code| *Status::failure(words, "No").with_code(code).boxed();
            match (is_of_quota, is_of_webhook) {
                (true, _) => Some(failed("exceeded quota: q", 403)),
                (false, true) => Some(failed("failed calling webhook", 500)),
                (false, false) => None,
            }
        });
    };
    let reason = |simulation: &JobSimulation| {
        let status = simulation.status();
        condition::get(&status.conditions, condition::PROGRESSING).unwrap().reason.clone()
    };
    refuse(&simulation, true);
    simulation.reconcile();
    assert_eq!(reason(&simulation), "QuotaExceeded");
    let exports = simulation.server.list::<Export>();
    let port = exports.first().map(|export| Port { pe: export.spec.pe_id, id: export.spec.port_id }).unwrap();
    simulation.delete(&UserDeletion::Interface(Child::Export(port)));
    simulation.collect();
    simulation.reconcile();
    assert_eq!(reason(&simulation), "ApiServer", "the webhook is down");
    refuse(&simulation, false);
    simulation.reconcile();
    assert_eq!(reason(&simulation), "QuotaExceeded", "the webhook is up, and the first Service makes way");
    simulation.steps_again();
    simulation.leader.connection.crowd(false);
    simulation.settle();
    simulation.check_at_rest();
}

/// What comes of the turn that deletes the first of these PEs.
fn turn_that_deletes(simulation: &mut JobSimulation, pes: &BTreeSet<u64>) -> Option<Next> {
    (0..5).find_map(|_| {
        simulation.leader.catch_up();
        let next = wait_for(simulation.leader.round()).unwrap();
        simulation.collect();
        (removed(pes, simulation) > 0).then_some(next)
    })
}

#[test]
fn the_rest_of_a_roll_out_comes_after_what_others_wait_for_and_that_of_what_a_commit_waits_for_does_not() {
    let (mut simulation, pes) = with_superfluous_pes();
    simulation.leader.connection.crowd(true);
    let next = turn_that_deletes(&mut simulation, &pes);
    assert_eq!(next, Some(Next::Rest(Outcome::Later(Duration::ZERO))));
    assert_eq!(removed(&pes, &simulation), 8);
    // What was written for a proposal that was withdrawn goes before the next one is written.
    let mut simulation = JobSimulation::running();
    simulation.no_step_after("ProcessingElement");
    simulation.request("withdrawn", &[("R", 20)]);
    simulation.until(|simulation| simulation.pe(25).is_some());
    simulation.steps_again();
    simulation.withdraw("withdrawn");
    simulation.leader.connection.crowd(true);
    let pes = simulation.pes().into_keys().collect();
    let next = turn_that_deletes(&mut simulation, &pes);
    assert_eq!(next, Some(Next::Rest(Outcome::Again(Duration::ZERO))));
}

#[test]
fn requests_that_come_faster_than_looks_do_not_put_deletions_off_for_ever() {
    let (mut simulation, pes) = with_superfluous_pes();
    for second in 0..30 {
        simulation.request(&format!("request-{second}"), &[("R", 1)]);
        simulation.round();
        simulation.collect();
        if second == 2 {
            assert_eq!(removed(&pes, &simulation), 0, "they wait for the admissions");
        }
        simulation.wait(1);
    }
    assert_eq!(removed(&pes, &simulation), 19);
    simulation.settle();
    simulation.check_at_rest();
}

/// What a call waits for that is held until so much else was looked at.
fn held() -> BoxFuture<'static, ()> {
    let mut looks = 0;
    Box::pin(poll_fn(move |context| {
        looks += 1;
        context.waker().wake_by_ref();
        if looks > 1_000 { Poll::Ready(()) } else { Poll::Pending }
    }))
}

/// While such a call waits to be let in, somebody asks for something.
pub(super) fn hurry_at(simulation: &JobSimulation, is_one: impl Fn(&Call) -> bool + Send + Sync + 'static) {
    let hurries = simulation.leader.reconciler.hurries.clone();
    simulation.leader.connection.meanwhile(move |call| {
        if !is_one(call) {
            return Box::pin(ready(()));
        }
        hurries.hurry(&key());
        held()
    });
}

#[test]
fn whoever_asks_does_not_wait_for_deletions_that_wait_for_calls_of_others() {
    for is_crowded in [true, false] {
        let (mut simulation, pes) = with_superfluous_pes();
        simulation.leader.connection.crowd(is_crowded);
        simulation.leader.catch_up();
        hurry_at(&simulation, |call| call.verb == Verb::Delete);
        let next = wait_for(simulation.leader.round());
        assert!(matches!(next, Ok(Next::Observe)), "it looks again at once: {next:?}");
        simulation.leader.connection.alone();
        simulation.collect();
        assert_eq!(removed(&pes, &simulation), 0, "they are left to the next look");
        simulation.request("asked", &[("R", 2)]);
        simulation.reconcile();
        assert_eq!(simulation.outcome("asked").number, Some(1));
        simulation.leader.connection.crowd(false);
        simulation.settle();
        simulation.check_at_rest();
    }
}

#[test]
fn whoever_asks_does_not_wait_for_a_status_that_waits_for_calls_of_others() {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 3);
    simulation.reconcile();
    simulation.wait(1);
    simulation.leader.catch_up();
    let before = simulation.status();
    hurry_at(&simulation, |call| call.verb == Verb::ReplaceStatus && call.kind == "Job");
    let next = wait_for(simulation.leader.round());
    assert!(matches!(next, Ok(Next::Observe)), "it looks again at once: {next:?}");
    assert_eq!(simulation.status(), before);
    simulation.leader.connection.alone();
    simulation.reconcile();
    assert_ne!(simulation.status(), before, "the next look says it");
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn whoever_asks_all_the_time_does_not_keep_turns_from_ending() {
    let (mut simulation, pes) = with_superfluous_pes();
    simulation.leader.connection.crowd(true);
    hurry_at(&simulation, |call| call.verb == Verb::Delete);
    for second in 0..60 {
        simulation.round();
        simulation.collect();
        if second < 4 {
            assert_eq!(removed(&pes, &simulation), 0, "{second} s");
        }
        simulation.wait(1);
    }
    assert_eq!(removed(&pes, &simulation), 19);
    simulation.leader.connection.alone();
    simulation.leader.connection.crowd(false);
    simulation.settle();
    simulation.check_at_rest();
}

/// It is no defect that somebody asks all the time.
#[test]
fn turns_that_end_early_again_and_again_are_not_in_vain() {
    let (mut simulation, _) = with_superfluous_pes();
    simulation.leader.connection.crowd(true);
    simulation.leader.catch_up();
    hurry_at(&simulation, |call| call.verb == Verb::Delete);
    for round in 0..100 {
        let next = wait_for(simulation.leader.round());
        assert!(matches!(next, Ok(Next::Observe)), "{round}: it looks again at once: {next:?}");
    }
    assert!(!simulation.leader.is_in_vain());
    simulation.leader.connection.alone();
    simulation.leader.connection.crowd(false);
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn deletions_do_not_wait_for_an_admission_that_admits_nobody() {
    let (mut simulation, pes) = with_superfluous_pes();
    simulation.leader.catch_up();
    // The mirror still shows it.
    simulation.delete(&UserDeletion::Region(0));
    simulation.collect();
    simulation.request("early", &[("R", 2)]);
    simulation.leader.hear_of_requests();
    let next = wait_for(simulation.leader.round());
    simulation.collect();
    assert!(!matches!(next, Ok(Next::Rest(Outcome::Again(Duration::ZERO)))), "it looks again and again: {next:?}");
    assert_eq!(removed(&pes, &simulation), 19);
    simulation.settle();
    simulation.check_at_rest();
}
