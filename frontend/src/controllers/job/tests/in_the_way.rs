//! Objects in the way that are being deleted and that finalizers keep: of somebody else, which no mirror shows, so that
//! nothing tells when they are gone (rule job-30); and the job's own, which a user has deleted (rule job-26).

use super::simulation::{JOB, JobSimulation, NAMESPACE, UserDeletion};
use crate::controllers::job::child::{Child, Port};
use crate::controllers::job::objects::port_labels;
use crate::controllers::job::owned::Owned;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::DeleteParams;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use streams_api::{Export, HostPool, ParallelRegion, condition, names};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::Object;
use streams_kubernetes::queue::Outcome;
use streams_kubernetes_fake::Verb;

/// Somebody else has a Service of the name of that of this PE, without the labels of the job, and has deleted it;
/// something keeps it. Gives its key.
pub(super) fn put_a_service_in_the_way(simulation: &JobSimulation, pe: u64) -> Key {
    let key = Key::new(NAMESPACE, &names::processing_element(JOB, pe));
    let mut service = Service::default();
    service.metadata.name = Some(key.name.to_string());
    service.metadata.namespace = Some(NAMESPACE.to_owned());
    service.metadata.finalizers = Some(vec!["example.com/load-balancer".to_owned()]);
    simulation.server.create(&service);
    simulation.server.delete::<Service>(&key, &DeleteParams::default());
    assert!(simulation.server.get::<Service>(&key).is_some(), "something keeps it");
    key
}

/// What keeps an object of the job that was deleted.
const FINALIZER: &str = "example.com/backup";

/// Somebody gives the object a finalizer.
pub(super) fn keep<K: Object>(simulation: &JobSimulation, key: &Key) {
    let keep = |object: &mut K| object.meta_mut().finalizers = Some(vec![FINALIZER.to_owned()]);
    assert!(simulation.server.edit(key, keep), "there is none: {key}");
}

/// Somebody deletes the object, and a finalizer of somebody keeps it.
pub(super) fn delete_and_keep<K: Object>(simulation: &JobSimulation, key: &Key) {
    keep::<K>(simulation, key);
    simulation.server.delete::<K>(key, &DeleteParams::default());
    assert!(simulation.server.get::<K>(key).is_some(), "something keeps it");
}

/// Nothing keeps the object any more.
pub(super) fn let_go<K: Object>(simulation: &JobSimulation, key: &Key) {
    simulation.server.edit(key, |object: &mut K| object.meta_mut().finalizers = None);
    assert!(simulation.server.get::<K>(key).is_none(), "it goes");
}

/// Whether all objects of the job are written, with reason and message.
pub(super) fn resources_ready(simulation: &JobSimulation) -> (String, String, String) {
    let status = simulation.status();
    let ready = condition::get(&status.conditions, condition::RESOURCES_READY).unwrap();
    (ready.status.clone(), ready.reason.clone(), ready.message.clone())
}

/// What is said of an object of the job that does not go.
pub(super) fn does_not_go(child: Child) -> (String, String, String) {
    let owned = Owned::Child(child);
    let object = owned.of_job(JOB);
    let message = format!("{object} is being deleted and does not go away: it has the finalizer {FINALIZER}");
    ("False".to_owned(), "Terminating".to_owned(), message)
}

#[test]
fn what_somebody_deletes_of_a_job_that_runs_is_named_as_long_as_it_does_not_go() {
    type Change = fn(&JobSimulation, &Key);
    let table: [(Child, Change, Change); 6] = [
        (Child::Service(1), delete_and_keep::<Service>, let_go::<Service>),
        (Child::Region(0), delete_and_keep::<ParallelRegion>, let_go::<ParallelRegion>),
        (Child::HostPool(0), delete_and_keep::<HostPool>, let_go::<HostPool>),
        (Child::JobConfigMap, delete_and_keep::<ConfigMap>, let_go::<ConfigMap>),
        (Child::Export(Port { pe: 5, id: 0 }), delete_and_keep::<Export>, let_go::<Export>),
        (Child::ConsistentRegionService, delete_and_keep::<Service>, let_go::<Service>),
    ];
    for (child, delete_and_keep, let_go) in table {
        let mut simulation = JobSimulation::running();
        let key = Key::new(NAMESPACE, &child.name(JOB));
        delete_and_keep(&simulation, &key);
        simulation.reconcile();
        assert_eq!(resources_ready(&simulation).1, "Applied", "{child:?}: most often it goes at once");
        simulation.settle();
        assert_eq!(resources_ready(&simulation), does_not_go(child));
        simulation.crash();
        simulation.settle();
        assert_eq!(resources_ready(&simulation), does_not_go(child), "whoever leads says so");
        let_go(&simulation, &key);
        simulation.settle();
        simulation.check_at_rest();
    }
}

/// New PEs, and those that are restarted, look up where the new operators are.
#[test]
fn port_labels_are_written_although_somebody_has_deleted_the_config_map_that_has_them() {
    let mut simulation = JobSimulation::running();
    let key = Key::new(NAMESPACE, &names::job_config_map(JOB));
    let labels = |simulation: &JobSimulation| -> BTreeMap<String, String> {
        let map: ConfigMap = simulation.server.get(&key).unwrap();
        let text = map.data.unwrap().remove(port_labels::FILE).unwrap();
        text.lines().filter_map(|line| line.split_once('=')).map(|(of, at)| (of.to_owned(), at.to_owned())).collect()
    };
    let mut foreseen = JobSimulation::resume(&simulation.snapshot());
    foreseen.resize(0, 4);
    foreseen.settle();
    let expected = labels(&foreseen);
    assert_ne!(labels(&simulation), expected);
    delete_and_keep::<ConfigMap>(&simulation, &key);
    simulation.resize(0, 4);
    simulation.until_committed(1);
    let at_the_commit = labels(&simulation);
    assert!(expected.keys().all(|of| at_the_commit.contains_key(of)), "{at_the_commit:?}, of {expected:?}");
    simulation.settle();
    assert_eq!(labels(&simulation), expected);
    assert_eq!(resources_ready(&simulation), does_not_go(Child::JobConfigMap));
    let_go::<ConfigMap>(&simulation, &key);
    simulation.settle();
    simulation.check_at_rest();
}

/// Everything goes on until nothing more can be done. Gives what the last look came to.
fn go_on(simulation: &mut JobSimulation) -> Option<Outcome> {
    let mut outcome = None;
    for _ in 0..12 {
        outcome = simulation.reconcile();
        simulation.work();
        simulation.run_pods();
        simulation.collect();
    }
    outcome
}

#[test]
fn what_is_in_the_way_and_being_deleted_is_named_and_looked_for_until_it_is_gone() {
    for is_submission in [true, false] {
        let mut simulation = if is_submission { JobSimulation::new() } else { JobSimulation::running() };
        if !is_submission {
            simulation.delete(&UserDeletion::Service(1));
            simulation.collect();
        }
        let key = put_a_service_in_the_way(&simulation, 1);
        for look in 0..20 {
            let outcome = go_on(&mut simulation);
            // A pause is a second longer than the time since it was found.
            let longest = Duration::from_secs(5 * look + 1);
            let is_soon = matches!(outcome, Some(Outcome::Later(delay)) if delay <= longest);
            assert!(is_soon, "{is_submission} {look}: {outcome:?}");
            let status = simulation.status();
            let ready = condition::get(&status.conditions, condition::RESOURCES_READY).unwrap();
            let said = (ready.status.as_str(), ready.reason.as_str(), ready.message.as_str());
            assert_eq!(said, ("False", "Terminating", "Service job-1 is being deleted"), "{is_submission} {look}");
            assert_eq!(status.generation.is_none(), is_submission);
            simulation.wait(5);
        }
        // Nobody hears of it.
        simulation.server.remove::<Service>(&key);
        simulation.settle();
        simulation.check_at_rest();
        assert!(simulation.has_service(1), "{is_submission}");
    }
}

#[test]
fn of_several_that_are_in_the_way_one_that_is_gone_is_made_again_and_the_other_is_named() {
    let mut simulation = JobSimulation::running();
    let keys = [0, 1].map(|pe| {
        simulation.delete(&UserDeletion::Service(pe));
        simulation.collect();
        put_a_service_in_the_way(&simulation, pe)
    });
    go_on(&mut simulation);
    simulation.server.remove::<Service>(&keys[0]);
    assert!(!simulation.has_service(0), "nobody hears of it");
    let Some(Outcome::Later(delay)) = simulation.reconcile() else { panic!("it is not looked for") };
    simulation.server.advance(delay);
    simulation.reconcile();
    assert!(simulation.has_service(0));
    let status = simulation.status();
    let ready = condition::get(&status.conditions, condition::RESOURCES_READY).unwrap();
    assert_eq!((ready.reason.as_str(), ready.message.as_str()), ("Terminating", "Service job-1 is being deleted"));
    simulation.server.remove::<Service>(&keys[1]);
    simulation.settle();
    simulation.check_at_rest();
}

/// For as long as nobody knows whether anything comes of that for now.
#[test]
fn what_is_in_the_way_of_a_width_is_looked_for_as_urgently_as_somebody_waits_for_the_width() {
    for (is_edit, do_others_wait) in [(false, false), (false, true), (true, false), (true, true)] {
        let case = format!("{is_edit} {do_others_wait}");
        let mut simulation = JobSimulation::running();
        put_a_service_in_the_way(&simulation, first_new_pe(&simulation, 4));
        if is_edit {
            simulation.resize(0, 4);
        } else {
            simulation.request("large", &[("R", 4)]);
        }
        simulation.until(|simulation| simulation.status().proposal.is_some());
        for second in 0..15 {
            if second == 2 && do_others_wait {
                simulation.request("small", &[("S", 1)]);
            }
            let mut outcome = simulation.reconcile();
            if second == 0 {
                simulation.work();
                simulation.run_pods();
                outcome = simulation.reconcile();
            }
            match outcome {
                Some(Outcome::Again(delay)) if second < 5 => {
                    assert!(delay <= Duration::from_secs(5), "{case} {second}")
                }
                // What others want is done.
                _ if second < 8 || do_others_wait => assert!(second >= 5, "{case} {second}: {outcome:?}"),
                Some(Outcome::Later(_)) => {}
                _ => panic!("{case} {second}: {outcome:?}"),
            }
            simulation.wait(1);
        }
    }
}

/// Nothing is proposed yet.
#[test]
fn what_is_in_the_way_is_looked_for_urgently_while_a_width_is_compiled_that_somebody_waits_for() {
    let mut simulation = JobSimulation::running();
    simulation.delete(&UserDeletion::Service(1));
    simulation.collect();
    put_a_service_in_the_way(&simulation, 1);
    let outcome = go_on(&mut simulation);
    assert!(matches!(outcome, Some(Outcome::Later(_))), "nobody waits: {outcome:?}");
    simulation.request("waits", &[("R", 4)]);
    for _ in 0..3 {
        simulation.reconcile();
    }
    assert!(simulation.leader.observed().requests.is_waited_for && simulation.status().proposal.is_none());
    let outcome = simulation.reconcile();
    assert!(matches!(outcome, Some(Outcome::Again(_))), "{outcome:?}");
}

/// The first PE that the job has if the first region gets this width.
fn first_new_pe(simulation: &JobSimulation, width: u32) -> u64 {
    let mut foreseen = JobSimulation::resume(&simulation.snapshot());
    foreseen.resize(0, width);
    foreseen.settle();
    let before = simulation.pes();
    foreseen.pes().into_keys().find(|id| !before.contains_key(id)).unwrap()
}

/// In a crowd a turn has eight writes. All of them are found to be going, but for the last one.
#[test]
fn what_is_free_waits_a_second_a_turn_for_what_does_not_go_and_is_more_than_a_turn_has() {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 20);
    simulation.settle();
    simulation.leader.connection.crowd(true);
    let ids: Vec<u64> = simulation.pes().into_keys().collect();
    ids.iter().for_each(|id| simulation.delete(&UserDeletion::Service(*id)));
    simulation.collect();
    let (last, others) = ids.split_last().unwrap();
    others.iter().for_each(|id| drop(put_a_service_in_the_way(&simulation, *id)));
    let (turns, mut waited) = (ids.len().div_ceil(8), Duration::ZERO);
    assert!(turns >= 3, "{ids:?}");
    for _ in 0..turns {
        let outcome = simulation.reconcile();
        if simulation.has_service(*last) {
            break;
        }
        let Some(Outcome::Later(delay)) = outcome else { panic!("{outcome:?}") };
        simulation.server.advance(delay);
        waited += delay;
    }
    assert!(simulation.has_service(*last), "{ids:?}");
    assert!(waited < Duration::from_secs(turns as u64), "{waited:?}");
    let delays: Vec<Duration> = (0..2 * turns)
        .map(|_| {
            let Some(Outcome::Later(delay)) = simulation.reconcile() else { panic!("they are not looked for") };
            simulation.server.advance(delay);
            delay
        })
        .collect();
    // Each time that everything was tried, they are twice as long.
    let is_doubled = |pair: &[Duration]| pair[1] == pair[0] || pair[1] == 2 * pair[0];
    assert!(delays.windows(2).all(is_doubled), "{delays:?}");
    assert!(delays[turns] >= Duration::from_secs(4), "{delays:?}");
}

/// Each time all of them are tried.
#[test]
fn what_does_not_go_is_looked_for_less_and_less_often_and_after_what_others_wait_for() {
    let mut simulation = JobSimulation::running();
    for pe in [0, 1] {
        simulation.delete(&UserDeletion::Service(pe));
        simulation.collect();
        put_a_service_in_the_way(&simulation, pe);
    }
    let tried = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tried);
    simulation.server.refuse(move |call| {
        counted.fetch_add(usize::from(call.verb == Verb::Create && call.kind == "Service"), Ordering::Relaxed);
        None
    });
    go_on(&mut simulation);
    tried.store(0, Ordering::Relaxed);
    let (mut waited, mut delays) = (Duration::ZERO, Vec::new());
    while waited < Duration::from_secs(600) {
        let outcome = simulation.reconcile();
        let Some(Outcome::Later(delay)) = outcome else { panic!("{outcome:?} after {delays:?}") };
        simulation.server.advance(delay);
        waited += delay;
        delays.push(delay);
    }
    let tried = tried.load(Ordering::Relaxed);
    assert!(tried <= 2 * delays.len() && delays.len() <= 20, "{tried} tries, after {delays:?}");
    assert_eq!(delays.last(), Some(&Duration::from_secs(60)), "{delays:?}");
    // Another one is looked for soon.
    simulation.server.remove::<Service>(&Key::new(NAMESPACE, &names::processing_element(JOB, 0)));
    let key = Key::new(NAMESPACE, &names::processing_element(JOB, 1));
    simulation.server.remove::<Service>(&key);
    simulation.settle();
    simulation.check_at_rest();
    simulation.delete(&UserDeletion::Service(1));
    simulation.collect();
    put_a_service_in_the_way(&simulation, 1);
    let outcome = go_on(&mut simulation);
    assert!(matches!(outcome, Some(Outcome::Later(delay)) if delay <= Duration::from_secs(1)), "{outcome:?}");
}
