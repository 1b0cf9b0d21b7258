//! PEs whose options permit no other pod: the job says so, in their words, while the pods run that there are (rule
//! job-52). How many PEs have older options (rule job-31).

use super::simulation::{JOB, JobSimulation, NAMESPACE, key, wait_for};
use crate::controllers::job::describe::warnings::{older_options, warnings as warnings_of};
use crate::controllers::job::observed::{Loaded, PodState};
use crate::controllers::job::waits::Waits;
use k8s_openapi::api::core::v1::ResourceRequirements;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{InitialWidth, JobPhase, PeOptions, ProcessingElement, TraceLevel, condition, names};
use streams_kubernetes::Key;

const REASON: &str = "CheckpointVolumeMissing";
const WORDS: &str = "no other pod can be created with the options of the PE as they are: nobody names a volume";

/// The PE says that its options permit no other pod, or does not any more.
fn says(simulation: &JobSimulation, id: u64, reason: Option<&str>) {
    let now = simulation.server.now();
    let key = Key::new(NAMESPACE, &names::processing_element(JOB, id));
    simulation.server.edit(&key, |pe: &mut ProcessingElement| {
        let conditions = &mut pe.status.get_or_insert_default().conditions;
        match reason {
            Some(reason) => drop(condition::set(conditions, condition::OUTDATED, true, reason, WORDS, None, now)),
            None => drop(condition::remove(conditions, condition::OUTDATED)),
        }
    });
}

/// Status, reason and message of a condition.
fn said(simulation: &JobSimulation, kind: &str) -> Option<(bool, String, String)> {
    let status = simulation.status();
    let condition = condition::get(&status.conditions, kind)?;
    Some((condition.status == "True", condition.reason.clone(), condition.message.clone()))
}

fn warnings(simulation: &JobSimulation) -> Vec<(String, String)> {
    let announced = simulation.server.announced().into_iter().map(|announced| announced.notice);
    announced.filter(|notice| notice.warning).map(|notice| (notice.reason.into_owned(), notice.note)).collect()
}

#[test]
fn a_running_pe_whose_options_permit_no_other_pod_is_named() {
    let mut simulation = JobSimulation::running();
    // There is another warning already.
    let unmatched = InitialWidth { name: Some("Nowhere".to_owned()), max_width: Some(9), ..InitialWidth::default() };
    simulation.change_spec(|spec| spec.parallel_regions = vec![unmatched]);
    simulation.settle();
    let of_the_spec = said(&simulation, condition::WARNING);
    assert!(of_the_spec.as_ref().is_some_and(|(_, reason, _)| reason == "UnmatchedRegion"), "{of_the_spec:?}");
    simulation.server.announced();
    says(&simulation, 3, Some(REASON));
    simulation.settle();
    let group = format!("PE 3 ({REASON}): {WORDS}");
    let message = format!("no other pod could be created for PEs that run: {group}");
    let (is_true, reason, warning) = said(&simulation, condition::WARNING).unwrap();
    assert_eq!((is_true, reason.as_str()), (true, REASON));
    assert!(warning.starts_with(&format!("{message}; ")), "it comes before all others: {warning}");
    assert_eq!(warnings(&simulation), [(REASON.to_owned(), message)]);
    for kind in [condition::READY, condition::PODS_READY] {
        let (is_true, _, message) = said(&simulation, kind).unwrap();
        assert!(is_true && message.ends_with(&format!("; no other pod could be created: {group}")), "{kind} {message}");
    }
    assert_eq!(simulation.status().phase, Some(JobPhase::Running), "all of it runs");
    // Another one says so, too; people were told.
    says(&simulation, 5, Some(REASON));
    simulation.wait(60);
    simulation.crash();
    simulation.settle();
    let (_, _, message) = said(&simulation, condition::WARNING).unwrap();
    assert!(message.contains(&format!("PEs 3, 5 ({REASON}): {WORDS}")), "{message}");
    assert_eq!(warnings(&simulation), [], "it is told once");
    for id in [3, 5] {
        says(&simulation, id, None);
    }
    simulation.settle();
    simulation.wait(60);
    simulation.settle();
    assert_eq!(said(&simulation, condition::WARNING), of_the_spec);
    let (_, _, message) = said(&simulation, condition::PODS_READY).unwrap();
    assert_eq!(message, "every PE has a pod that runs, or has completed");
    simulation.check_at_rest();
}

#[test]
fn options_that_come_into_force_with_the_next_pod_are_no_warning_and_ready_says_how_many_pes_have_older_ones() {
    let mut simulation = JobSimulation::running();
    simulation.server.announced();
    let before = simulation.status();
    let (_, _, ready) = said(&simulation, condition::READY).unwrap();
    // PE, what it says of its options -> what the message says besides
    let table = [
        (3, Some(condition::OPTIONS_CHANGED), "; 1 PE runs with older options until it restarts"),
        (5, Some(condition::OPTIONS_CHANGED), "; 2 PEs run with older options until they restart"),
        (3, None, "; 1 PE runs with older options until it restarts"),
        (5, None, ""),
    ];
    for (id, reason, expected) in table {
        says(&simulation, id, reason);
        simulation.settle();
        simulation.wait(60);
        simulation.settle();
        let mut after = simulation.status();
        for changed in after.conditions.iter_mut().filter(|changed| changed.type_ == condition::READY) {
            let message = std::mem::replace(&mut changed.message, ready.clone());
            assert_eq!(message, format!("{ready}{expected}"), "PE {id} {reason:?}");
        }
        assert_eq!(after, before, "nothing else: PE {id} {reason:?}");
    }
    assert_eq!(warnings(&simulation), []);
    simulation.check_at_rest();
}

#[test]
fn how_many_pes_have_older_options_is_written_like_a_counter() {
    let mut simulation = JobSimulation::running();
    let before = simulation.status_writes();
    let pes: Vec<u64> = simulation.pes().into_keys().collect();
    for id in &pes {
        says(&simulation, *id, Some(condition::OPTIONS_CHANGED));
        simulation.reconcile();
        simulation.server.advance(Duration::from_millis(100));
    }
    simulation.settle();
    simulation.wait(60);
    simulation.settle();
    let (_, _, message) = said(&simulation, condition::READY).unwrap();
    assert!(message.ends_with(&format!("; {} PEs run with older options until they restart", pes.len())), "{message}");
    let count = simulation.status_writes() - before;
    assert!((1..=2).contains(&count), "{count} writes for {} PEs", pes.len());
}

/// The PE controller looks at one PE after the other.
#[test]
fn pes_with_older_options_are_counted_once_all_of_them_have_said_what_their_pods_are_made_from() {
    let mut simulation = JobSimulation::running();
    let pes: Vec<u64> = simulation.pes().into_keys().collect();
    let options = PeOptions { runtime_trace_level: TraceLevel::Debug, ..PeOptions::default() };
    simulation.change_spec(|spec| spec.processing_element = Some(options));
    simulation.reconcile();
    let said_after = |simulation: &mut JobSimulation, looked: &[u64]| {
        for id in looked {
            simulation.run_pod(*id);
            says(simulation, *id, Some(condition::OPTIONS_CHANGED));
        }
        simulation.wait(60);
        simulation.reconcile();
        let (is_ready, _, message) = said(simulation, condition::READY).unwrap();
        assert!(is_ready, "{message}");
        message.split_once("; ").map(|(_, said)| said.to_owned())
    };
    assert_eq!(said_after(&mut simulation, &[]), None, "none has said it");
    let counting = "PEs run with older options until they restart, and are being counted";
    assert_eq!(said_after(&mut simulation, &pes[..1]).as_deref(), Some(counting));
    assert_eq!(said_after(&mut simulation, &pes[1..7]).as_deref(), Some(counting));
    let all = format!("{} PEs run with older options until they restart", pes.len());
    assert_eq!(said_after(&mut simulation, &pes[7..]), Some(all));
}

/// Some are yet to be written, and of what is written the mirror shows nothing yet.
#[test]
fn pes_with_older_options_are_being_counted_while_others_are_written() {
    let mut simulation = JobSimulation::running();
    let mut observed = simulation.leader.observed();
    observed.children.processing_elements.get_mut(&3).unwrap().has_older_options = true;
    let counted = Some("1 PE runs with older options until it restarts".to_owned());
    let counting = Some("PEs run with older options until they restart, and are being counted".to_owned());
    assert_eq!((older_options(&observed, false), older_options(&observed, true)), (counted.clone(), counting.clone()));
    // Another one is written.
    let options = PeOptions { runtime_trace_level: TraceLevel::Debug, ..PeOptions::default() };
    simulation.change_spec(|spec| spec.processing_element = Some(options));
    simulation.leader.catch_up();
    assert!(wait_for(simulation.leader.reconcile()).is_ok());
    for is_shown in [false, true] {
        if is_shown {
            simulation.leader.catch_up();
        }
        let mut observed = simulation.leader.observed();
        observed.children.processing_elements.get_mut(&3).unwrap().has_older_options = true;
        assert_eq!(older_options(&observed, false), counting, "{is_shown}");
    }
    simulation.run_pods();
    simulation.leader.catch_up();
    let mut observed = simulation.leader.observed();
    observed.children.processing_elements.get_mut(&3).unwrap().has_older_options = true;
    assert_eq!(older_options(&observed, false), counted);
}

#[test]
fn a_pe_that_cannot_be_restarted_is_named_with_why_and_not_with_how_its_pod_does() {
    let mut simulation = JobSimulation::running();
    let of_the_application = said(&simulation, condition::WARNING);
    says(&simulation, 0, Some(REASON));
    simulation.resize(0, 3);
    simulation.until_committed(1);
    // The PE controller replaces the pods of all others; that of the source runs on.
    for _ in 0..3 {
        for id in [1, 8] {
            simulation.run_pod(id);
        }
        simulation.reconcile();
    }
    simulation.wait(60);
    simulation.reconcile();
    let group = format!("PE 0 ({REASON}): {WORDS}");
    let [ready, pods_ready, progressing] =
        [condition::READY, condition::PODS_READY, condition::PROGRESSING].map(|kind| said(&simulation, kind).unwrap());
    assert_eq!((ready.0, ready.1.as_str()), (false, "RollingOut"));
    assert_eq!(ready.2, format!("8 of 9 PEs run what the job wants; waiting: {group}"));
    assert_eq!(pods_ready, (false, REASON.to_owned(), group.clone()));
    assert_eq!(progressing.2, format!("waiting for 1 PE to run: {group}"));
    assert_eq!(said(&simulation, condition::WARNING), of_the_application, "it is said already");
}

#[test]
fn each_option_of_a_running_job_that_is_refused_is_told_at_once() {
    let mut simulation = JobSimulation::running();
    simulation.server.announced();
    let refused: ResourceRequirements =
        serde_json::from_value(json!({"limits": {"requests.example.com/gpu": 1}})).unwrap();
    simulation.change_spec(|spec| {
        spec.resources = Some(refused.clone());
        spec.processing_element = Some(PeOptions { resources: Some(refused), ..spec.pe_options() });
    });
    simulation.settle();
    let told = warnings(&simulation);
    let begin = ["resources: requests.example.com/gpu", "processingElement.resources: requests.example.com/gpu"];
    assert_eq!(told.len(), begin.len(), "{told:?}");
    let (_, _, said) = said(&simulation, condition::WARNING).unwrap();
    for ((reason, note), begin) in told.iter().zip(begin) {
        assert!(reason == "ResourcesInvalid" && note.starts_with(begin), "{told:?}");
        assert!(said.contains(note), "{said}");
    }
}

#[test]
fn a_node_that_nobody_waits_for_is_no_warning() {
    let simulation = JobSimulation::running();
    let missing = ("HostNotFound".to_owned(), "there was no node n".to_owned());
    let other = ("HostPoolSizeNotEnforced".to_owned(), "pool".to_owned());
    // PEs that are to run on the node, PEs that do not run -> the node is missing
    let table: [(&[u64], &[u64], bool); 4] =
        [(&[], &[3], false), (&[0, 3], &[], false), (&[0, 3], &[5], false), (&[0, 3], &[3], true)];
    for (waiting, down, expected) in table {
        let mut observed = simulation.leader.observed();
        let mut wanted = observed.committed.as_ref().and_then(Loaded::whole).unwrap().clone();
        wanted.warnings = vec![missing.clone(), other.clone()];
        wanted.waiting = [(0, waiting.to_vec())].into();
        for id in down {
            observed.children.processing_elements.get_mut(id).unwrap().run = PodState::Pending;
        }
        let said = warnings_of(&observed, Some(&Loaded::Whole(Arc::new(wanted))), &Waits::default());
        let expected: Vec<_> = expected.then(|| missing.clone()).into_iter().chain([other.clone()]).collect();
        assert_eq!(said, expected, "{waiting:?} {down:?}");
    }
}

#[test]
fn a_job_warns_while_somebody_else_has_the_service_under_which_pes_ask() {
    let mut simulation = JobSimulation::running();
    let warns = |simulation: &mut JobSimulation, is_taken: Option<bool>| {
        if let Some(is_taken) = is_taken {
            simulation.leader.reconciler.pe_api_names.say(NAMESPACE, is_taken);
        }
        simulation.settle();
        said(simulation, condition::WARNING).map(|(_, reason, _)| reason)
    };
    let taken = || Some("ServiceNameTaken".to_owned());
    assert_eq!(warns(&mut simulation, Some(false)), None);
    assert_eq!(warns(&mut simulation, Some(true)), taken());
    // The next leader keeps it until it has looked.
    simulation.crash();
    assert_eq!(warns(&mut simulation, None), taken());
    assert_eq!(warns(&mut simulation, Some(true)), taken());
    assert_eq!(warns(&mut simulation, Some(false)), None);
    let told = warnings(&simulation);
    assert_eq!(told.iter().filter(|(reason, _)| reason == "ServiceNameTaken").count(), 1, "{told:?}");
}

/// There may be as many as a hundred patterns, and thousands of regions.
#[test]
fn entries_are_matched_with_regions_once_for_each_spec_and_plan() {
    let mut simulation = JobSimulation::running();
    let unmatched =
        |name: &str| InitialWidth { name: Some(name.to_owned()), max_width: Some(9), ..InitialWidth::default() };
    let found = |simulation: &JobSimulation| {
        let said = simulation.leader.observed().spec_warnings;
        let job = simulation.leader.reconciler.mirrors.jobs.get(&key()).unwrap();
        let uid = job.metadata.uid.as_deref().unwrap();
        let memory = &simulation.leader.reconciler.memory;
        let known = memory.find(&key(), uid, |entry| entry.entry_warnings.clone()).flatten().unwrap().1;
        assert_eq!(said, *known);
        known
    };
    simulation.change_spec(|spec| spec.parallel_regions = vec![unmatched("Nowhere")]);
    simulation.settle();
    let first = found(&simulation);
    assert!(first[0].1.contains("Nowhere"), "{first:?}");
    assert!(Arc::ptr_eq(&first, &found(&simulation)));
    simulation.change_spec(|spec| spec.parallel_regions = vec![unmatched("Elsewhere")]);
    simulation.settle();
    let second = found(&simulation);
    assert!(second[0].1.contains("Elsewhere"), "{second:?}");
    simulation.resize(0, 3);
    simulation.settle();
    assert!(!Arc::ptr_eq(&second, &found(&simulation)), "another plan");
}
