//! Objects that a deleted job has left behind, and the next job of its name (rules job-29 and job-30).

use super::simulation::{JobSimulation, UserDeletion};
use streams_api::{JobPhase, condition};

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
