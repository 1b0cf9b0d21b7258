//! What the controller remembers of jobs ends with them, whatever they were called (rule call-20).

use super::simulation::{JobSimulation, NAMESPACE, UserDeletion, key, wait_for};
use crate::controllers::job::child::{Child, Port};
use crate::controllers::job::decide::{JobAction, JobDecision};
use crate::controllers::reconciler::reconcile;
use kube::core::ObjectMeta;
use streams_api::{BundleReference, Job, JobSpec};
use streams_kubernetes::Key;

fn remembers(simulation: &JobSimulation) -> usize {
    remembers_of("jobs", simulation)
}

fn remembers_of(what: &str, simulation: &JobSimulation) -> usize {
    let remembered = simulation.leader.reconciler.remembered();
    // In the simulation nobody takes keys from the queues of long work.
    remembered.iter().filter(|(of, _)| *of == what).map(|(_, count)| count).sum()
}

#[test]
fn nothing_is_left_of_a_job_that_is_gone() {
    let mut simulation = JobSimulation::running();
    let remembers = |simulation: &JobSimulation| ["jobs", "job ids"].map(|what| remembers_of(what, simulation));
    assert_eq!(remembers(&simulation), [1, 1]);
    simulation.delete(&UserDeletion::Job);
    simulation.settle();
    assert_eq!(remembers(&simulation), [0, 0], "of the last job of its namespace");
}

#[test]
fn nothing_is_left_of_jobs_however_many_names_there_were() {
    let mut simulation = JobSimulation::new();
    for number in 0..100 {
        let name = format!("job-{number}");
        let job_key = Key::new(NAMESPACE, &name);
        let mut job =
            Job::new(&name, JobSpec::of(BundleReference { name: Some("a.sab".to_owned()), ..Default::default() }));
        job.metadata = ObjectMeta { name: Some(name), namespace: Some(NAMESPACE.to_owned()), ..job.metadata };
        simulation.server.create(&job);
        simulation.leader.catch_up();
        wait_for(reconcile(&*simulation.leader.reconciler, &job_key)).unwrap();
        assert_eq!(remembers(&simulation), 1, "{number}");
        simulation.server.remove::<Job>(&job_key);
        simulation.leader.catch_up();
        // A reconcile that was under way keeps it once more; the one that follows finds nothing.
        let gone = job.metadata.uid.clone().unwrap_or_default();
        simulation.leader.reconciler.memory.with(&job_key, &gone, |_| ());
        wait_for(reconcile(&*simulation.leader.reconciler, &job_key)).unwrap();
        assert_eq!(remembers(&simulation), 0, "{number}");
    }
    wait_for(reconcile(&*simulation.leader.reconciler, &key())).unwrap();
    assert_eq!(remembers(&simulation), 1);
}

/// The mirror has not shown yet that an object was written, and a user deletes it.
#[test]
fn what_was_written_ends_when_the_object_leaves_the_mirror() {
    let mut simulation = JobSimulation::running();
    simulation.delete(&UserDeletion::Service(0));
    simulation.leader.catch_up();
    wait_for(simulation.leader.reconcile()).unwrap();
    assert!(simulation.has_service(0));
    // The mirror hears of both at once.
    simulation.delete(&UserDeletion::Service(0));
    simulation.collect();
    simulation.leader.catch_up();
    wait_for(simulation.leader.reconcile()).unwrap();
    assert!(simulation.has_service(0), "it is not believed to be there still");
}

/// The next generation has the same number, and may want the same: it must not be taken for there.
#[test]
fn what_was_deleted_of_an_abandoned_proposal_is_not_there_though_the_mirror_shows_it() {
    let mut simulation = JobSimulation::running();
    simulation.no_step_after("Export");
    simulation.request("first", &[("R", 4)]);
    simulation.until(|simulation| simulation.export(8).is_some());
    simulation.steps_again();
    simulation.withdraw("first");
    simulation.reconcile();
    assert!(simulation.export(8).is_none() && simulation.status().proposal.is_none());
    let export = Child::Export(Port { pe: 8, id: 0 });
    let observed = simulation.leader.observed();
    assert!(observed.children.interfaces[&export].deleting);
    let (decision, _) = simulation.leader.decided();
    let JobDecision::Work(actions) = &decision else { panic!("{decision:?}") };
    let deletes = |action: &JobAction| matches!(action, JobAction::Delete(..));
    assert!(!actions.iter().any(deletes), "nothing is deleted twice: {actions:?}");
    simulation.leader.catch_up();
    assert!(!simulation.leader.observed().children.interfaces.contains_key(&export));
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn what_agreed_when_it_was_compared_is_known_of_every_object() {
    let mut simulation = JobSimulation::running();
    simulation.reconcile();
    let reconciler = &simulation.leader.reconciler;
    let uid = reconciler.mirrors.jobs.get(&key()).and_then(|job| job.metadata.uid.clone()).unwrap();
    let look = reconciler.last_look(&key(), &uid).unwrap();
    let compared = reconciler.memory.find(&key(), &uid, |entry| entry.compared.clone()).unwrap();
    assert_eq!((look.fingerprints().count(), compared.len()), (look.len(), look.len()));
    assert!(look.fingerprints().all(|(number, fingerprint)| compared.get(number).unwrap().has_agreed(fingerprint)));
}
