//! PEs whose pods wait for the bundle of the job: the job says so, and since when, whichever replica they have asked
//! (rule job-43).

use super::simulation::{JOB, JobSimulation, NAMESPACE};
use streams_api::{PePhase, ProcessingElement, UnavailableBundle, condition, names};
use streams_kubernetes::Key;

const KIND: &str = condition::BUNDLE_UNAVAILABLE;
const REPLACED: &str = "demo.sab was replaced: the job was submitted with the bundle 12 (SHA-256), now it is 34";

/// The pod of the PE has not got its bundle, or has: what the PE says by then.
fn says(simulation: &JobSimulation, id: u64, unavailable: Option<(&str, &str)>) {
    let now = simulation.server.now();
    let key = Key::new(NAMESPACE, &names::processing_element(JOB, id));
    simulation.server.edit(&key, |pe: &mut ProcessingElement| {
        let status = pe.status.get_or_insert_default();
        let has_it = unavailable.is_none();
        let (reason, message) = unavailable.unwrap_or(("Running", "the pod runs"));
        status.bundle_unavailable = unavailable.map(|(reason, why)| Box::new(UnavailableBundle::new(reason, why)));
        status.phase = Some(if has_it { PePhase::Running } else { PePhase::Starting });
        condition::set(&mut status.conditions, condition::READY, has_it, reason, message, None, now);
    });
}

/// Reason and message of the condition, and since when it is there.
fn said(simulation: &JobSimulation) -> Option<(String, String, i64)> {
    let status = simulation.status();
    let condition = condition::get(&status.conditions, KIND)?;
    assert_eq!(condition.status, "True");
    Some((condition.reason.clone(), condition.message.clone(), condition.last_transition_time.0.as_second()))
}

fn warnings(simulation: &JobSimulation) -> Vec<(String, String)> {
    let announced = simulation.server.announced().into_iter().map(|announced| announced.notice);
    announced.filter(|notice| notice.warning).map(|notice| (notice.reason.into_owned(), notice.note)).collect()
}

#[test]
fn a_job_whose_pods_wait_for_their_bundle_says_why_and_since_when() {
    let mut simulation = JobSimulation::running();
    assert_eq!((said(&simulation), warnings(&simulation)), (None, vec![]));
    says(&simulation, 3, Some(("BundleUnavailable", REPLACED)));
    simulation.settle();
    let now = simulation.server.now();
    let (reason, message, since) = said(&simulation).unwrap();
    let group = format!("PE 3 (BundleUnavailable): {REPLACED}");
    assert_eq!((reason.as_str(), since), ("BundleUnavailable", now.as_second()));
    assert_eq!(message, format!("pods wait for their bundle: {group}; so since {now:.0}"));
    assert_eq!(warnings(&simulation), [(reason, message)]);
    // Neither time nor another leader, another PE or another spec begins anew.
    simulation.wait(60);
    simulation.crash();
    says(&simulation, 5, Some(("BundleUnavailable", REPLACED)));
    simulation.change_spec(|spec| spec.rollout = Some(streams_api::rollout::RolloutOptions::default()));
    simulation.settle();
    simulation.wait(60);
    simulation.settle();
    let (_, message, after) = said(&simulation).unwrap();
    assert!(message.contains(&format!("PEs 3, 5 (BundleUnavailable): {REPLACED}; so since {now:.0}")), "{message}");
    assert_eq!((after, warnings(&simulation)), (since, vec![]), "it is told once");
    // A step in between takes nothing away.
    simulation.resize(0, 4);
    simulation.until_committed(1);
    assert_eq!(said(&simulation).unwrap().2, since);
    // Another reason is told.
    for id in [3, 5] {
        says(&simulation, id, Some(("BundleNotFound", "the server answers 404")));
    }
    simulation.settle();
    assert_eq!(said(&simulation).unwrap().2, since);
    let told: Vec<_> = warnings(&simulation).into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(told, ["BundleNotFound"]);
    // The last one has it.
    says(&simulation, 3, None);
    simulation.settle();
    assert!(said(&simulation).is_some());
    says(&simulation, 5, None);
    simulation.settle();
    assert_eq!(said(&simulation), None);
    simulation.check_at_rest();
}

#[test]
fn what_a_job_does_not_need_any_more_it_does_not_wait_for() {
    // what happens to the job
    type Change = fn(&mut JobSimulation);
    let table: [(&str, Change); 2] = [
        ("suspended", |simulation| simulation.change_spec(|spec| spec.suspend = true)),
        ("without the PE", |simulation| simulation.resize(0, 1)),
    ];
    for (what, change) in table {
        let mut simulation = JobSimulation::running();
        simulation.resize(0, 4);
        simulation.settle();
        let last = *simulation.pes().keys().next_back().unwrap();
        says(&simulation, last, Some(("BundleUnavailable", REPLACED)));
        simulation.settle();
        assert!(said(&simulation).is_some(), "{what}");
        change(&mut simulation);
        simulation.settle();
        assert_eq!(said(&simulation), None, "{what}");
    }
}
