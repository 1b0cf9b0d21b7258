//! Submissions whose specs are edited before there is a generation (rules job-18 and job-25).

use super::simulation::{JOB, JobSimulation, NAMESPACE, key, wait_for};
use crate::controllers::job::decide::{Child, JobAction, JobDecision, Owned};
use crate::controllers::job::refusals;
use crate::controllers::job::tasks::TaskKind;
use k8s_openapi::api::core::v1::Service;
use kube::core::Status;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::{InitialWidth, Job, JobPhase, JobStatus, ParallelRegion, PeOptions, PullPolicy, condition, names};
use streams_kubernetes::Key;
use streams_kubernetes::events::Notice;
use streams_kubernetes_fake::Verb;

/// Reason and message of a condition.
fn said(status: &JobStatus, kind: &str) -> (String, String) {
    let condition = condition::get(&status.conditions, kind).expect("it is said");
    (condition.reason.clone(), condition.message.clone())
}

fn told(simulation: &JobSimulation) -> Vec<Notice> {
    simulation.server.announced().into_iter().map(|announced| announced.notice).collect()
}

/// Goes on until `reached`, also if that is so only as long as work that is asked for is not done.
fn until(simulation: &mut JobSimulation, reached: impl Fn(&JobSimulation) -> bool) {
    for _ in 0..20 {
        simulation.reconcile();
        if reached(simulation) {
            return;
        }
        simulation.work();
    }
    panic!("it is not reached: {:?}", simulation.leader.tasks());
}

/// Attempts that took too long were those of another spec, and so was the time of the last one.
#[test]
fn a_submission_that_is_corrected_has_all_of_its_time_and_attempts() {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.seconds = 301);
    simulation.until(|simulation| simulation.status().submission_attempts == 2);
    // The second attempt takes too long as well, the third nearly.
    simulation.services.change(|services| services.seconds = 290);
    simulation.until(|simulation| {
        let status = simulation.status();
        status.submission_attempts == 3 && status.proposal.is_some()
    });
    simulation.edit("corrected");
    simulation.services.change(|services| services.seconds = 150);
    simulation.settle();
    simulation.check_at_rest();
    let status = simulation.status();
    assert_eq!((status.phase, status.submission_attempts), (Some(JobPhase::Running), 1), "{:?}", status.conditions);
    let reasons: Vec<_> = told(&simulation).into_iter().map(|notice| notice.reason).collect();
    assert_eq!(reasons, ["SubmissionTimedOut", "SubmissionTimedOut", "SubmissionSucceeded"]);
}

/// What is not compiled anew is not written anew.
#[test]
fn an_edit_of_a_submission_that_changes_nothing_of_its_plan_leaves_what_is_written() {
    let mut simulation = JobSimulation::new();
    simulation.no_more("Service");
    simulation.until(|simulation| simulation.pes().len() == 8);
    let uids =
        |simulation: &JobSimulation| -> Vec<_> { simulation.pes().into_values().map(|pe| pe.metadata.uid).collect() };
    let before = uids(&simulation);
    simulation.change_spec(|spec| spec.submission_time_out_in_seconds = 17);
    simulation.steps_again();
    simulation.settle();
    simulation.check_at_rest();
    let after = uids(&simulation);
    assert_eq!(before, after);
}

/// It takes longer than the time between two edits, and depends on nothing that they change.
#[test]
fn a_compilation_goes_on_over_edits_that_lead_to_it_as_well() {
    let mut simulation = JobSimulation::new();
    until(&mut simulation, |simulation| simulation.leader.running() == [TaskKind::Compile]);
    for time_out in 400..410 {
        simulation.wait(15);
        simulation.change_spec(|spec| spec.submission_time_out_in_seconds = time_out);
        simulation.reconcile();
        assert_eq!(simulation.leader.running(), [TaskKind::Fetch, TaskKind::Compile], "{time_out}");
        wait_for(simulation.leader.work(TaskKind::Fetch));
        simulation.reconcile();
        assert_eq!(simulation.leader.running(), [TaskKind::Compile], "{time_out}");
    }
    simulation.work();
    simulation.reconcile();
    assert!(simulation.status().proposal.is_some(), "it is not compiled once more");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().phase, Some(JobPhase::Running));
}

#[test]
fn a_width_that_was_edited_before_the_commit_counts_after_it_whichever_attempt_is_committed() {
    let mut simulation = JobSimulation::new();
    simulation.no_more("Service");
    simulation.until(|simulation| simulation.region(0).is_some());
    let width = simulation.region(0).unwrap().spec.width + 3;
    simulation.resize(0, width);
    simulation.reconcile();
    simulation.server.announced();
    simulation.edit("another");
    simulation.until(|simulation| simulation.status().proposal.is_none());
    simulation.steps_again();
    simulation.settle();
    simulation.check_at_rest();
    let applied = simulation.status().applied_widths;
    assert_eq!((simulation.region(0).unwrap().spec.width, applied[0].width), (width, width));
    assert!(!told(&simulation).iter().any(|notice| notice.reason == "RegionEditLost"));
}

/// The Event that tells of the failure says that the width goes unless the job is edited first.
#[test]
fn an_edited_width_stays_if_the_job_is_edited_between_its_failure_and_the_deletion() {
    let mut simulation = JobSimulation::new();
    simulation.no_more("Service");
    simulation.until(|simulation| simulation.region(0).is_some());
    let width = simulation.region(0).unwrap().spec.width + 3;
    simulation.resize(0, width);
    simulation.reconcile();
    simulation.steps_again();
    simulation.services.change(|services| services.refuses = true);
    simulation.edit("refused");
    let mut is_told = false;
    for _ in 0..20 {
        simulation.round();
        is_told = told(&simulation).iter().any(|notice| notice.reason == "RegionEditLost");
        if is_told {
            break;
        }
        simulation.work();
        simulation.collect();
    }
    assert!(is_told && simulation.region(0).is_some(), "it has just failed");
    simulation.services.change(|services| services.refuses = false);
    simulation.edit("corrected");
    simulation.settle();
    simulation.check_at_rest();
    let applied = simulation.status().applied_widths;
    assert_eq!((simulation.region(0).unwrap().spec.width, applied[0].width), (width, width));
}

/// A submission that was just corrected: of the first version of the application the region R, number 1, was edited;
/// the second version, of which nothing is fetched yet, has these regions.
fn with_an_edited_region(regions: &[(u64, &'static str)]) -> JobSimulation {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.regions = vec![(0, "S"), (1, "R")]);
    simulation.no_more("Service");
    simulation.until(|simulation| simulation.region(1).is_some());
    let width = simulation.region(1).unwrap().spec.width + 5;
    simulation.resize(1, width);
    simulation.reconcile();
    simulation.steps_again();
    simulation.services.change(|services| (services.bundle, services.regions) = (1, regions.to_vec()));
    simulation.edit("corrected");
    simulation
}

/// Which edits go is told.
fn lost(simulation: &JobSimulation) -> Vec<String> {
    let told = told(simulation).into_iter().filter(|notice| notice.reason == "RegionEditLost");
    told.map(|notice| notice.note.rsplit(": ").next().unwrap_or_default().to_owned()).collect()
}

/// Whatever the API server says to the deletion, which has no effect: it goes when that can be done.
#[test]
fn the_edit_of_a_region_that_goes_is_told_before_it_goes() {
    for code in [403, 504] {
        let mut simulation = with_an_edited_region(&[(0, "R")]);
        let (name, refused) = (names::parallel_region(JOB, 1), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&refused);
        simulation.server.refuse(move |call| {
            let is_it = call.verb == Verb::Delete && call.kind == "ParallelRegion" && *call.key.name == *name;
            counted.fetch_add(usize::from(is_it), Ordering::Relaxed);
            is_it.then(|| Status::failure("no", "No").with_code(code))
        });
        simulation.until(|_| refused.load(Ordering::Relaxed) > 0);
        assert!(simulation.region(1).is_some(), "{code}");
        assert!(lost(&simulation).contains(&"R (number 1)".to_owned()), "{code}");
        simulation.steps_again();
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(lost(&simulation), ["R (number 1)"], "{code}");
    }
}

/// Whichever write is the last of a process, and has its effect.
#[test]
fn the_edit_of_a_region_that_goes_is_told_wherever_a_process_ends() {
    let mut writes = 0;
    loop {
        let mut simulation = with_an_edited_region(&[(0, "R")]);
        let connection = simulation.leader.connection.clone();
        simulation.crash_at_write(writes, true);
        for _ in 0..100 {
            if simulation.status().generation.is_some() {
                break;
            }
            simulation.reconcile();
            simulation.work();
            simulation.collect();
            simulation.wait(1);
        }
        assert_eq!(simulation.status().generation, Some(0), "{writes}");
        assert!(lost(&simulation).contains(&"R (number 1)".to_owned()), "{writes}");
        if !connection.is_broken() {
            break;
        }
        writes += 1;
    }
    assert!(writes > 8, "{writes}");
}

/// The failure has named those that were edited by then.
#[test]
fn an_edit_of_a_region_after_the_submission_has_failed_is_told() {
    let mut simulation = JobSimulation::new();
    simulation.no_more("Service");
    simulation.until(|simulation| simulation.region(0).is_some());
    let refused = serde_json::from_value(json!({"limits": {"requests.example.com/gpu": 1}})).unwrap();
    simulation.change_spec(|spec| {
        spec.processing_element = Some(PeOptions { resources: Some(refused), ..spec.pe_options() });
    });
    for _ in 0..20 {
        if refusals::is_final(&simulation.status()) {
            break;
        }
        simulation.round();
    }
    let region = simulation.region(0).expect("it is about to be deleted");
    assert_eq!(
        (said(&simulation.status(), condition::SUBMITTED).0, lost(&simulation)),
        ("ResourcesInvalid".into(), vec![])
    );
    simulation.resize(0, region.spec.width + 3);
    simulation.settle();
    assert!(simulation.region(0).is_none());
    assert_eq!(lost(&simulation), [format!("{}; scale these regions again", region.spec.name)]);
}

/// One Event names them all, also if some of them go later.
#[test]
fn edits_that_go_with_a_failed_submission_are_told_with_the_failure_and_once_more() {
    const NAMES: &str = "ABCDEFGHIJKLMNOPQRST";
    let all = || 0..NAMES.len();
    // deletions that are refused at first
    for refused in [0, 15] {
        let mut simulation = JobSimulation::new();
        let regions = all().map(|index| (index as u64, &NAMES[index..=index])).collect();
        simulation.services.change(|services| services.regions = regions);
        simulation.no_more("Service");
        simulation.until(|simulation| all().all(|index| simulation.region(index as u64).is_some()));
        for index in all() {
            let width = simulation.region(index as u64).unwrap().spec.width + 3;
            simulation.resize(index as u64, width);
        }
        simulation.reconcile();
        simulation.steps_again();
        simulation.services.change(|services| services.refuses = true);
        simulation.edit("refused");
        let tried = AtomicUsize::new(0);
        simulation.server.refuse(move |call| {
            let is_one = call.verb == Verb::Delete && call.kind == "ParallelRegion";
            let is_refused = is_one && tried.fetch_add(1, Ordering::Relaxed) < refused;
            is_refused.then(|| Status::failure("no", "No").with_code(403))
        });
        simulation.settle();
        assert!(all().all(|index| simulation.region(index as u64).is_none()), "{refused}");
        let named = "A, B, C, D, E, F, G, H, I, J, ...; scale these regions again";
        assert_eq!(lost(&simulation), [named; 2], "{refused}");
    }
}

/// After the commit its width would be taken for that of the region which has its name by then.
#[test]
fn a_region_that_was_edited_goes_before_the_commit_if_the_next_plan_has_it_under_another_number() {
    // Its number is gone, before or after that of its name, or is that of another region.
    let table: [&[(u64, &str)]; 4] = [&[(0, "R")], &[(5, "R")], &[(0, "S"), (5, "R")], &[(1, "S"), (2, "R")]];
    for regions in table {
        let mut simulation = with_an_edited_region(regions);
        simulation.until(|simulation| simulation.status().generation.is_some());
        assert_eq!(lost(&simulation), ["R (number 1)"], "{regions:?}");
        let there = simulation.server.list::<ParallelRegion>().into_iter();
        let there: BTreeMap<u64, String> = there.map(|region| (region.spec.index, region.spec.name)).collect();
        let expected = regions.iter().map(|(index, name)| (*index, (*name).to_owned()));
        assert_eq!(there, expected.collect::<BTreeMap<_, _>>(), "when generation 0 is committed");
        simulation.settle();
        simulation.check_at_rest();
        let status = simulation.status();
        assert_eq!(status.generation, Some(0), "nobody wants another width of {regions:?}");
        assert!(status.applied_widths.iter().all(|applied| applied.width == 2), "{:?}", status.applied_widths);
    }
}

#[test]
fn a_region_that_the_next_plan_does_not_have_and_that_does_not_go_is_named() {
    let mut simulation = with_an_edited_region(&[(0, "R")]);
    let key = Key::new(NAMESPACE, &names::parallel_region(JOB, 1));
    simulation.server.edit(&key, |region: &mut ParallelRegion| {
        region.metadata.finalizers = Some(vec!["example.com/audit".to_owned()]);
    });
    for _ in 0..20 {
        simulation.reconcile();
        simulation.work();
        simulation.collect();
        // What changes the message alone is not written at once.
        simulation.wait(1);
    }
    let status = simulation.status();
    assert!(status.proposal.is_some() && status.generation.is_none(), "it is waited for");
    let (reason, message) = said(&status, condition::SUBMITTED);
    let expected = "waiting for region job-1 to go away, which is being deleted";
    assert_eq!((reason.as_str(), message.as_str()), ("Submitting", expected));
    simulation.server.remove::<ParallelRegion>(&key);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(0));
}

/// An earlier attempt has created it, by a write that had its effect after the commit.
#[test]
fn nobody_wants_anything_by_a_region_that_has_the_name_of_another_one() {
    let mut simulation = JobSimulation::running();
    let mut late = simulation.region(0).unwrap();
    late.metadata.name = Some(names::parallel_region(JOB, 7));
    late.metadata.uid = None;
    late.metadata.resource_version = None;
    late.metadata.managed_fields = None;
    (late.spec.index, late.spec.width, late.status) = (7, late.spec.width + 5, None);
    simulation.server.create(&late);
    simulation.reconcile();
    assert_eq!(simulation.leader.running(), [], "nothing is compiled");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(0));
}

/// The mirror does not show the edit when it is decided that the region goes.
#[test]
fn a_region_that_is_edited_just_before_it_is_deleted_stays() {
    let mut simulation = JobSimulation::new();
    simulation.no_more("Service");
    simulation.until(|simulation| simulation.region(0).is_some());
    simulation.edit("another");
    let region = Owned::Child(Child::Region(0));
    let is_deleted = |action: &JobAction| matches!(action, JobAction::Delete(object, _) if *object == region);
    for _ in 0..20 {
        simulation.leader.catch_up();
        if matches!(simulation.leader.decided().0, JobDecision::Work(actions) if actions.iter().any(is_deleted)) {
            break;
        }
        simulation.round();
        simulation.work();
    }
    let before = simulation.region(0).expect("it is about to be deleted");
    let (server, key) = (simulation.server.clone(), Key::of(&before));
    let width = before.spec.width + 3;
    let result = wait_for(simulation.leader.round_with(|_| {
        server.edit(&key, |region: &mut ParallelRegion| region.spec.width = width);
    }));
    assert!(result.is_err_and(|error| error.is_conflict()), "the job is looked at again, whatever tells of it");
    simulation.leader.catch_up();
    assert!(!simulation.leader.observed().children.regions[&0].object.deleting, "it was not deleted");
    simulation.steps_again();
    simulation.settle();
    simulation.check_at_rest();
    let after = simulation.region(0).unwrap();
    assert_eq!((after.metadata.uid, after.spec.width), (before.metadata.uid, width));
    assert_eq!(simulation.status().applied_widths[0].width, width);
}

/// It takes longer than the time between two edits, and depends on nothing that they change.
#[test]
fn a_download_goes_on_over_edits_that_leave_the_bundle_as_it_is() {
    let mut simulation = JobSimulation::new();
    simulation.reconcile();
    assert_eq!(simulation.leader.running(), [TaskKind::Fetch]);
    let begun = simulation.leader.tasks().fetch;
    for time_out in 400..405 {
        simulation.wait(15);
        simulation.change_spec(|spec| spec.submission_time_out_in_seconds = time_out);
        simulation.reconcile();
        assert_eq!(simulation.leader.tasks().fetch, begun, "{time_out}");
    }
    simulation.work();
    simulation.reconcile();
    assert_eq!(simulation.leader.running(), [TaskKind::Compile], "it is not fetched once more");
    let spec_generation = simulation.server.get::<Job>(&key()).and_then(|job| job.metadata.generation);
    assert_eq!(simulation.status().adl.map(|adl| adl.spec_generation), spec_generation);
    // Another bundle is fetched, and the same one again for an edit that comes when it was recorded.
    simulation.change_spec(|spec| spec.bundle.name = Some("b.sab".to_owned()));
    simulation.reconcile();
    let other = simulation.leader.tasks().fetch;
    assert!(other.running().is_some() && other != begun, "{other:?}");
    simulation.work();
    simulation.reconcile();
    simulation.change_spec(|spec| spec.submission_time_out_in_seconds = 500);
    simulation.reconcile();
    assert!(simulation.leader.running().contains(&TaskKind::Fetch));
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().phase, Some(JobPhase::Running));
}

/// Another bundle may have come to its URL just before the edit.
#[test]
fn a_download_is_begun_anew_by_an_edit_if_the_server_is_always_to_be_asked() {
    let mut simulation = JobSimulation::new();
    simulation.change_spec(|spec| spec.bundle.pull_policy = PullPolicy::Always);
    simulation.reconcile();
    let begun = simulation.leader.tasks().fetch;
    simulation.change_spec(|spec| spec.submission_time_out_in_seconds = 400);
    simulation.reconcile();
    let other = simulation.leader.tasks().fetch;
    assert!(begun.running().is_some() && other.running().is_some() && other != begun, "{other:?}");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().phase, Some(JobPhase::Running));
}

#[test]
fn what_keeps_a_corrected_submission_waiting_is_named() {
    let mut simulation = JobSimulation::new();
    simulation.until(|simulation| simulation.has_service(1));
    let key = Key::new(NAMESPACE, &names::processing_element(JOB, 1));
    simulation.server.edit(&key, |service: &mut Service| {
        service.metadata.finalizers = Some(vec!["example.com/load-balancer".to_owned()]);
    });
    simulation.edit("corrected");
    for _ in 0..12 {
        simulation.reconcile();
        simulation.work();
        simulation.collect();
        // What changes the message alone is not written at once.
        simulation.wait(1);
    }
    let (reason, message) = said(&simulation.status(), condition::SUBMITTED);
    let expected = "waiting for Service job-1 to go away, which is left of an earlier attempt";
    assert_eq!((reason.as_str(), message.as_str()), ("Submitting", expected));
    simulation.server.remove::<Service>(&key);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().phase, Some(JobPhase::Running));
}

/// The compilation that is under way has the spec of before, and its outcome follows from the bounds as well.
#[test]
fn bounds_that_are_edited_while_a_job_is_compiled_or_written_count() {
    let wide = InitialWidth { name: Some("R".to_owned()), width: Some(8), ..InitialWidth::default() };
    let bounds = |max_width| InitialWidth { name: Some("*".to_owned()), max_width, ..InitialWidth::default() };
    let is_compiled = |simulation: &JobSimulation| simulation.leader.running() == [TaskKind::Compile];
    let is_proposed = |simulation: &JobSimulation| simulation.status().proposal.is_some();
    let moments: [fn(&JobSimulation) -> bool; 2] = [is_compiled, is_proposed];
    // bounds at the beginning, when they are edited, to what -> phase in the end
    let table = [
        (Some(4), moments[0], Some(16), JobPhase::Running),
        (Some(16), moments[0], Some(4), JobPhase::Failed),
        (Some(16), moments[1], Some(4), JobPhase::Failed),
        (None, moments[1], Some(4), JobPhase::Failed),
        (None, moments[1], Some(16), JobPhase::Running),
    ];
    for (before, moment, after, expected) in table {
        let mut simulation = JobSimulation::new();
        simulation.change_spec(|spec| spec.parallel_regions = vec![wide.clone(), bounds(before)]);
        until(&mut simulation, moment);
        simulation.change_spec(|spec| spec.parallel_regions = vec![wide.clone(), bounds(after)]);
        // It ends before the frontend has heard of the edit.
        simulation.work();
        simulation.settle();
        let status = simulation.status();
        assert_eq!(status.phase, Some(expected), "{before:?} {after:?}: {:?}", status.conditions);
        if expected == JobPhase::Failed {
            assert_eq!(said(&status, condition::SUBMITTED).0, "OutOfBounds", "{before:?} {after:?}");
        } else {
            assert_eq!(simulation.generation().widths()["R"], 8, "{before:?} {after:?}");
        }
        simulation.check_at_rest();
    }
}
