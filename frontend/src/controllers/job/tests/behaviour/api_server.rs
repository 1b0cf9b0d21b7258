//! Answers of the API server: in a namespace that is being deleted (rule job-37), and one that is lost.

use super::super::simulation::{JobSimulation, UserDeletion, key, wait_for};
use super::super::turns::hurry_at;
use super::condition_reason;
use crate::controllers::reconciler::Next;
use futures::FutureExt as _;
use kube::core::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::{Job, condition};
use streams_kubernetes_fake::Verb;

/// What an API server answers to whoever creates something in a namespace that is being deleted.
fn namespace_is_terminating() -> Status {
    let status = serde_json::json!({
        "status": "Failure", "code": 403, "reason": "Forbidden", "message": "it is being terminated",
        "details": {"causes": [{"reason": "NamespaceTerminating", "message": "it is being terminated"}]},
    });
    serde_json::from_value(status).unwrap()
}

/// The namespace is being deleted from now on. Counts what is refused because of that.
fn terminate_namespace(simulation: &JobSimulation) -> Arc<AtomicUsize> {
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    simulation.server.refuse(move |call| {
        matches!(call.verb, Verb::Create | Verb::Apply).then(|| {
            count.fetch_add(1, Ordering::SeqCst);
            namespace_is_terminating()
        })
    });
    refused
}

#[test]
fn in_a_namespace_that_goes_one_write_is_tried_now_and_then_and_deletions_go_through() {
    let mut simulation = JobSimulation::running();
    let refused = terminate_namespace(&simulation);
    for id in 0..8 {
        simulation.delete(&UserDeletion::Service(id));
    }
    simulation.collect();
    // Whatever is deleted wakes the job.
    for _ in 0..20 {
        simulation.reconcile();
        simulation.work();
    }
    assert_eq!(refused.load(Ordering::SeqCst), 1);
    simulation.create_superfluous_service(77);
    simulation.reconcile();
    assert!(!simulation.has_service(77), "it is deleted");
    assert_eq!(refused.load(Ordering::SeqCst), 1);
    for _ in 0..60 {
        simulation.wait(1);
        simulation.reconcile();
        simulation.work();
    }
    let tried = refused.load(Ordering::SeqCst);
    assert!((4..=8).contains(&tried), "the pauses grow: {tried}");
    assert_eq!(condition_reason(&simulation, condition::PROGRESSING).as_deref(), Some("NamespaceTerminating"));
    // It was another namespace, or it stays after all.
    simulation.server.refuse(|_| None);
    simulation.settle();
    simulation.check_at_rest();
}

/// Somebody asks for something before the turn after a pause has tried anything.
#[test]
fn a_turn_that_tries_nothing_does_not_end_the_pauses_of_a_namespace_that_goes() {
    let mut simulation = JobSimulation::running();
    let refused = terminate_namespace(&simulation);
    simulation.delete(&UserDeletion::Service(0));
    simulation.collect();
    simulation.reconcile();
    simulation.wait(2);
    simulation.leader.catch_up();
    hurry_at(&simulation, |call| matches!(call.verb, Verb::Create | Verb::Apply));
    let next = wait_for(simulation.leader.round());
    assert!(matches!(next, Ok(Next::Observe)), "it looks again at once: {next:?}");
    simulation.leader.connection.alone();
    // seconds that pass -> how often a write was refused: after 1 s, and then after 2 s
    for (passed, expected) in [(0, 2), (1, 2), (1, 3)] {
        simulation.wait(passed);
        simulation.reconcile();
        assert_eq!(refused.load(Ordering::SeqCst), expected, "{passed}");
    }
}

/// The client tries again what is not answered: the first try has had its effect, and the next one is a conflict.
#[test]
fn a_status_that_was_written_by_a_try_without_an_answer_is_told_like_any_other() {
    let told = |is_tried_again: bool| {
        let mut simulation = JobSimulation::new();
        if is_tried_again {
            let server = simulation.server.clone();
            simulation.leader.connection.meanwhile(move |call| {
                let sent = call.object::<Job>().filter(|_| call.verb == Verb::ReplaceStatus);
                let version = server.get::<Job>(&key()).and_then(|job| job.metadata.resource_version);
                if let Some(sent) = sent.filter(|sent| sent.metadata.resource_version == version) {
                    server.edit(&key(), |job: &mut Job| job.status = sent.status);
                }
                async {}.boxed()
            });
        }
        simulation.settle();
        simulation.request("wide", &[("R", 3)]);
        simulation.settle();
        simulation.services.change(|services| services.widest = 4);
        simulation.resize(0, 5);
        simulation.settle();
        simulation.change_spec(|spec| spec.suspend = true);
        simulation.settle();
        simulation.leader.connection.alone();
        simulation.server.announced().into_iter().map(|announced| announced.notice.reason).collect::<Vec<_>>()
    };
    let expected = told(false);
    assert!(expected.len() > 4, "{expected:?}");
    assert_eq!(told(true), expected);
}
