//! Objects that a deleted job has left behind, and the next job of its name; and objects that somebody takes away from
//! a job (rules job-29 and job-30).

use super::simulation::{JOB, JobSimulation, NAMESPACE, NOT_RESTARTABLE, UserDeletion};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use streams_api::{JobPhase, ProcessingElement, condition, names};
use streams_kubernetes::Key;

fn submitted(simulation: &JobSimulation) -> Option<(String, String)> {
    let status = simulation.status();
    condition::get(&status.conditions, condition::SUBMITTED).map(|said| (said.reason.clone(), said.message.clone()))
}

#[test]
fn a_job_of_the_same_name_adopts_nothing_and_says_what_is_in_the_way() {
    let mut simulation = JobSimulation::running();
    simulation.delete(&UserDeletion::JobAlone);
    simulation.settle();
    assert_eq!(simulation.status(), Default::default(), "the job is gone");
    let (pes, left) = (simulation.pes(), simulation.left());
    assert!(pes.len() == 8 && pes.values().all(|pe| pe.metadata.owner_references.is_none()));
    simulation.create_job();
    simulation.until(|simulation| {
        submitted(simulation).is_some_and(|(reason, message)| reason == "NameTaken" && message.contains("in the way"))
    });
    let (_, message) = submitted(&simulation).unwrap();
    for listed in [
        "8 ProcessingElements (job-0, job-1, job-2, job-3, job-4, ...)",
        "9 Services (job-0, ",
        " ConfigMaps (job, job-",
        "2 ParallelRegions (job-0, job-1)",
        "1 HostPools (job-0)",
        "2 Exports (job-4-0, job-5-0)",
        "1 Imports (job-1-0)",
        "1 ConsistentRegions (job-cr0)",
    ] {
        assert!(message.contains(listed), "{listed}: {message}");
    }
    assert_eq!(simulation.status().phase, Some(JobPhase::Failed));
    assert_eq!(simulation.pes(), pes, "nothing is adopted");
    let now = simulation.left();
    assert!(left.iter().all(|object| now.contains(object)), "{left:?} {now:?}");
    simulation.delete_all_but_the_job();
    simulation.settle();
    simulation.check_at_rest();
}

/// Nothing of it says any more whose it was, but its name.
#[test]
fn a_pe_that_loses_its_labels_as_well_is_in_the_way_and_not_deleted() {
    let mut simulation = JobSimulation::running();
    let key = Key::new(NAMESPACE, &names::processing_element(JOB, NOT_RESTARTABLE));
    simulation.server.edit(&key, |pe: &mut ProcessingElement| {
        (pe.metadata.owner_references, pe.metadata.labels) = (None, None);
    });
    simulation.reconcile();
    let degraded = condition::get(&simulation.status().conditions, condition::DEGRADED).cloned().unwrap();
    let expected = "PE 2 (NameTaken): the job does not control the object of its name; in the way: 1 \
                    ProcessingElements (job-2)";
    assert!(degraded.message.contains(expected), "{degraded:?}");
}

#[test]
fn a_pe_whose_owner_reference_is_changed_is_in_the_way_and_not_deleted() {
    let own = |simulation: &JobSimulation, id: u64, owners: Option<Vec<OwnerReference>>| {
        let key = Key::new(NAMESPACE, &names::processing_element(JOB, id));
        let change = |pe: &mut ProcessingElement| pe.metadata.owner_references = owners;
        simulation.server.edit(&key, change);
    };
    let restartable = 4;
    for is_removed in [true, false] {
        let mut simulation = JobSimulation::running();
        let owners = simulation.pe(NOT_RESTARTABLE).unwrap().metadata.owner_references;
        let only_named = owners.clone().map(|owners| {
            owners.into_iter().map(|owner| OwnerReference { controller: Some(false), ..owner }).collect()
        });
        let changed = if is_removed { None } else { only_named };
        own(&simulation, NOT_RESTARTABLE, changed.clone());
        simulation.reconcile();
        let said = |simulation: &JobSimulation, kind| {
            let status = simulation.status();
            condition::get(&status.conditions, kind).map(|said| said.message.clone()).unwrap_or_default()
        };
        let expected = "PE 2 (NameTaken): the job does not control the object of its name; in the way: 1 \
                        ProcessingElements (job-2)";
        let degraded = said(&simulation, condition::DEGRADED);
        assert!(degraded.contains(expected), "{degraded}");
        own(&simulation, restartable, changed);
        let (before, _) = (simulation.pes(), simulation.reconcile());
        let progressing = said(&simulation, condition::PROGRESSING);
        assert!(progressing.contains("in the way: 2 ProcessingElements (job-2, job-4)"), "{progressing}");
        assert_eq!(simulation.pes(), before, "nothing is adopted");
        for id in [NOT_RESTARTABLE, restartable] {
            own(&simulation, id, owners.clone());
        }
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(said(&simulation, condition::DEGRADED), "");
    }
}
