//! Submissions that take long, or that the cluster does not permit (rules job-18, job-19 and job-41).

use super::simulation::{JobSimulation, UserDeletion, key, wait_for};
use crate::controllers::job::generation::Target;
use crate::controllers::job::long_work;
use crate::controllers::job::tasks::{CompileRequest, PublishRequest, Task, TaskKind};
use futures::FutureExt as _;
use kube::core::Status;
use serde_json::json;
use std::collections::BTreeSet;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;
use streams_api::{InitialWidth, Job, JobPhase, JobStatus, PeOptions, condition};
use streams_kubernetes::Key;
use streams_kubernetes::queue::Outcome;
use streams_kubernetes::stopwatch;
use streams_kubernetes_fake::{Call, Verb};

/// Reason and message of a condition.
fn said(status: &JobStatus, kind: &str) -> (String, String) {
    let condition = condition::get(&status.conditions, kind).expect("it is said");
    (condition.reason.clone(), condition.message.clone())
}

fn reasons(simulation: &JobSimulation) -> Vec<String> {
    simulation.server.announced().into_iter().map(|announced| announced.notice.reason.into_owned()).collect()
}

/// In a crowd the bundle waits for others, so the number waits longer for what is in it (rule job-50).
#[test]
fn a_submission_writes_the_status_of_its_job_once_a_step_and_its_number_with_the_adl() {
    // seconds until the bundle is there, in a crowd, a worker fetches it -> writes: the number, unless it is written
    // with the ADL; the ADL; the proposal; the commit; that it is submitted and ready; once as well if that takes two
    let table = [
        (0, false, true, 4),
        (3, false, true, 5),
        (40, true, true, 4),
        (70, true, true, 5),
        // It waits for those of others.
        (3, false, false, 4),
        (40, false, false, 4),
        (70, false, false, 5),
    ];
    for (waits, is_crowded, is_fetched, expected) in table {
        let mut simulation = JobSimulation::new();
        simulation.leader.connection.crowd(is_crowded);
        let downloads = simulation.leader.reconciler.downloads.clone();
        let mut fetched = Vec::new();
        for _ in 0..waits {
            simulation.reconcile();
            if is_fetched {
                fetched.extend(downloads.next().now_or_never().flatten());
            }
            simulation.wait(1);
        }
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(simulation.status_writes(), expected, "{waits} {is_crowded} {is_fetched}");
        assert_eq!(simulation.status().job_id, Some(0));
    }
}

#[test]
fn a_job_whose_number_waits_says_so_when_its_bundle_cannot_be_had_or_takes_long() {
    // no bundle, seconds until somebody looks for it -> reason of what it waits for
    for (has_no_bundle, waits, expected) in [(true, 0, "BundleNotFound"), (false, 61, "Submitting")] {
        let mut simulation = JobSimulation::new();
        simulation.leader.connection.crowd(true);
        simulation.services.change(|services| services.has_no_bundle = has_no_bundle);
        assert_eq!(simulation.reconcile(), Some(Outcome::Again(Duration::from_secs(5))), "is there a crowd still?");
        assert_eq!(simulation.status(), JobStatus::default());
        if waits == 0 {
            simulation.work();
        }
        simulation.wait(waits);
        simulation.reconcile();
        let status = simulation.status();
        assert_eq!((status.job_id, status.phase), (Some(0), Some(JobPhase::Submitting)));
        let (reason, message) = said(&status, condition::SUBMITTED);
        assert_eq!(reason, expected);
        assert!(!message.contains("job id"), "it has one: {message}");
        simulation.services.change(|services| services.has_no_bundle = false);
        simulation.settle();
        simulation.check_at_rest();
    }
}

/// Of many jobs, each is brought to run before the next is compiled (rule call-7).
#[test]
fn texts_of_jobs_that_are_compiled_go_before_compilations_of_others() {
    let simulation = JobSimulation::new();
    let reconciler = &*simulation.leader.reconciler;
    let target = Target::Submission { inputs: "i".to_owned() };
    let compile = Task::Compile(CompileRequest { generation: 0, target });
    let publish = Task::Publish(PublishRequest { plan: "p".to_owned(), pe_ids: vec![0] });
    // The task, whether the job runs.
    let all = [("a", &compile, false), ("b", &compile, false), ("c", &publish, false), ("d", &compile, true)];
    for (name, task, runs) in all {
        long_work::start(reconciler, &Key::new("n", name), name, task, runs);
    }
    let next = || reconciler.long_work.next().now_or_never().flatten();
    let order: Vec<_> = std::iter::from_fn(|| next().map(|taken| taken.key().to_string())).collect();
    assert_eq!(order, ["n/d compile", "n/c publish", "n/a compile", "n/b compile"]);
}

#[test]
fn what_was_done_before_a_job_has_its_number_counts() {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| (services.seconds, services.download_seconds) = (50, 100));
    simulation.until(|simulation| simulation.status().job_id.is_some());
    let status = simulation.status();
    assert!(status.adl.is_some());
    assert_eq!((status.submission_attempts, status.submission_worked_milliseconds / 1_000), (1, 100));
    // What is not in the status is not counted twice.
    simulation.until(|simulation| simulation.status().proposal.is_some());
    assert_eq!(simulation.status().submission_worked_milliseconds / 1_000, 150);
}

#[test]
fn a_submission_that_takes_too_long_starts_over_and_then_fails() {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.seconds = 301);
    simulation.settle();
    let status = simulation.status();
    assert_eq!((status.phase, status.submission_attempts), (Some(JobPhase::Failed), 3));
    let (reason, message) = said(&status, condition::SUBMITTED);
    assert_eq!(reason, "TimedOut");
    assert!(message.contains("3 attempts took more than 300 s of work each"), "{message}");
    assert_eq!(said(&status, condition::PODS_READY).1, "the job has no PEs yet", "they are gone");
    simulation.check_at_rest();
    assert_eq!(reasons(&simulation), ["SubmissionTimedOut", "SubmissionTimedOut", "SubmissionFailed"]);
}

#[test]
fn another_attempt_begins_with_a_clean_slate_and_keeps_job_id_and_adl() {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.seconds = 301);
    simulation.until(|simulation| simulation.status().submission_attempts == 2);
    let status = simulation.status();
    assert!(status.job_id.is_some() && status.adl.is_some() && status.proposal.is_none(), "{status:?}");
    // The second attempt takes too long as well; the third does not.
    simulation.services.change(|services| services.seconds = 299);
    simulation.settle();
    simulation.check_at_rest();
    let after = simulation.status();
    assert_eq!((after.job_id, after.adl, after.submission_attempts), (status.job_id, status.adl, 3));
    assert_eq!(after.phase, Some(JobPhase::Running));
}

/// Texts are being written when it takes too long: what came later would be in the way of the next attempt.
#[test]
fn the_work_of_an_attempt_ends_with_it() {
    let mut simulation = JobSimulation::new();
    // More texts than are written at the same time.
    let wide = InitialWidth { name: Some("R".to_owned()), width: Some(40), ..InitialWidth::default() };
    simulation.change_spec(|spec| spec.parallel_regions = vec![wide]);
    for _ in 0..20 {
        simulation.reconcile();
        if simulation.leader.running() == [TaskKind::Publish] {
            break;
        }
        simulation.work();
    }
    let uid = simulation.server.get::<Job>(&key()).unwrap().metadata.uid.unwrap();
    {
        let leader = &simulation.leader;
        let mut writing = pin!(leader.work(TaskKind::Publish));
        let mut context = Context::from_waker(Waker::noop());
        while simulation.texts().is_empty() {
            assert!(writing.as_mut().poll(&mut context).is_pending());
        }
        leader.reconciler.memory.with(&key(), &uid, |entry| entry.worked(Duration::from_secs(400)));
        for _ in 0..2 {
            assert!(wait_for(leader.round()).is_ok());
        }
        assert_eq!(simulation.status().submission_attempts, 2);
        let before = simulation.texts();
        wait_for(writing);
        assert!(before.len() < 40, "all texts were written at once");
        assert_eq!(simulation.texts(), before);
    }
    simulation.settle();
    simulation.check_at_rest();
}

/// Time of work in several processes adds up; time in which none leads does not count.
#[test]
fn the_clock_survives_the_process_and_stands_while_nobody_leads() {
    // seconds of work in each of two processes -> attempts
    for (seconds, attempts) in [(100, 1), (160, 2)] {
        let mut simulation = JobSimulation::new();
        simulation.services.change(|services| services.seconds = seconds);
        let compiled = |simulation: &JobSimulation| simulation.status().proposal.is_some();
        simulation.until(compiled);
        simulation.crash();
        simulation.wait(5_000);
        // The plan is lost with the process, and made again.
        simulation.delete(&UserDeletion::Chunks);
        simulation.collect();
        simulation.services.change(|services| services.seconds = seconds);
        simulation.until(|simulation| !compiled(simulation));
        simulation.until(|simulation| compiled(simulation) || simulation.status().submission_attempts > 1);
        simulation.services.change(|services| services.seconds = 0);
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(simulation.status().submission_attempts, attempts, "{seconds} s each");
    }
}

#[test]
fn queues_pauses_and_services_that_do_not_answer_do_not_count() {
    let mut simulation = JobSimulation::new();
    let wait = |simulation: &mut JobSimulation| {
        // Nobody has time for what is asked for.
        for _ in 0..10 {
            simulation.wait(100);
            simulation.reconcile();
        }
    };
    for kind in [TaskKind::Fetch, TaskKind::Compile, TaskKind::Publish] {
        while simulation.leader.running() != [kind] {
            simulation.work();
            simulation.reconcile();
        }
        wait(&mut simulation);
        if kind != TaskKind::Publish {
            simulation.services.change(|services| (services.is_down, services.seconds) = (true, 50));
            for _ in 0..20 {
                simulation.work();
                simulation.wait(30);
                simulation.reconcile();
            }
            simulation.services.change(|services| (services.is_down, services.seconds) = (false, 0));
        }
    }
    simulation.until(|simulation| simulation.status().generation.is_some());
    // No pod is created: the PEs wait in their queue.
    wait(&mut simulation);
    let status = simulation.status();
    assert_eq!((status.phase, status.submission_attempts), (Some(JobPhase::Submitting), 1));
    assert!(status.submission_worked_milliseconds < 1_000, "{}", status.submission_worked_milliseconds);
    assert_eq!(said(&status, condition::SUBMITTED).0, "CreatingPods");
    simulation.settle();
    simulation.check_at_rest();
}

/// From now on each call of the controller that is `meant` takes so many seconds: it waits for others, or it is under
/// way.
fn slow_down(simulation: &JobSimulation, seconds: u64, waits: bool, meant: fn(&Call) -> bool) {
    let server = simulation.server.clone();
    simulation.leader.connection.meanwhile(move |call| {
        let (server, is_meant) = (server.clone(), meant(call));
        Box::pin(async move {
            let _pause = waits.then(stopwatch::pause);
            server.advance(Duration::from_secs(if is_meant { seconds } else { 0 }));
        })
    });
}

#[test]
fn what_waits_for_others_between_its_steps_is_not_torn_down() {
    // whether calls wait for those of others, or take their time -> attempts, phase
    let table = [(true, (1, Some(JobPhase::Running))), (false, (3, Some(JobPhase::Failed)))];
    for (waits, expected) in table {
        let mut simulation = JobSimulation::new();
        simulation.change_spec(|spec| spec.submission_time_out_in_seconds = 5);
        simulation.services.change(|services| services.queue_seconds = 100);
        slow_down(&simulation, 1, waits, |_| true);
        simulation.settle();
        simulation.check_at_rest();
        let status = simulation.status();
        assert_eq!((status.submission_attempts, status.phase), expected, "{status:?}");
    }
}

#[test]
fn tries_that_the_cluster_refuses_or_does_not_answer_do_not_count() {
    let is_meant = |call: &Call| matches!(call.verb, Verb::Create | Verb::Apply) && call.kind == "Service";
    // status of the answer
    for code in [403, 422, 504] {
        let mut simulation = JobSimulation::new();
        slow_down(&simulation, 10, false, is_meant);
        simulation.server.refuse(move |call| {
            is_meant(call).then(|| *Status::failure("exceeded quota: q", "Forbidden").with_code(code).boxed())
        });
        simulation.until(|simulation| simulation.pes().len() == 8);
        let pes = simulation.pes();
        for _ in 0..20 {
            simulation.wait(60);
            simulation.reconcile();
            simulation.work();
        }
        assert_eq!((simulation.status().submission_attempts, simulation.pes()), (1, pes), "{code}");
        simulation.leader.connection.alone();
        simulation.server.refuse(|_| None);
        simulation.settle();
        simulation.check_at_rest();
        let status = simulation.status();
        assert_eq!((status.submission_attempts, status.phase), (1, Some(JobPhase::Running)), "{code}");
    }
}

#[test]
fn a_refused_pod_fails_the_submission_once_in_its_own_words_and_nothing_is_torn_down() {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.refused_pods = BTreeSet::from([3, 5]));
    simulation.settle();
    let before = simulation.pes();
    let status = simulation.status();
    assert_eq!((status.phase, status.submission_attempts), (Some(JobPhase::Failed), 1));
    let expected = ("PodRefused".to_owned(), "PEs 3, 5 (PodRefused): pod 3 is not permitted".to_owned());
    for kind in [condition::SUBMITTED, condition::PODS_READY] {
        assert_eq!(said(&status, kind), expected, "{kind}");
    }
    for kind in [condition::READY, condition::PROGRESSING] {
        assert!(said(&status, kind).1.contains(&expected.1), "{kind}: {:?}", said(&status, kind));
    }
    assert_eq!(reasons(&simulation), ["SubmissionFailed"]);
    // Neither time nor another process changes anything.
    for _ in 0..5 {
        simulation.wait(1_000);
        simulation.crash();
        simulation.settle();
    }
    assert_eq!((simulation.status().phase, simulation.pes()), (Some(JobPhase::Failed), before));
    assert!(reasons(&simulation).is_empty(), "it is told once");
    // Its options are edited, and the pods are refused as before.
    simulation.change_spec(|spec| {
        let resources = serde_json::from_value(json!({"limits": {"cpu": "2"}})).unwrap();
        spec.processing_element = Some(PeOptions { resources: Some(resources), ..spec.pe_options() });
    });
    simulation.settle();
    assert_eq!(simulation.status().phase, Some(JobPhase::Failed));
    assert!(simulation.pes().values().all(|pe| pe.spec.options.resources.is_some()));
    assert!(reasons(&simulation).is_empty(), "an edit that changes nothing of the refusal is not told as another one");
    simulation.forget_starts();
    simulation.services.change(|services| services.refused_pods.clear());
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().phase, Some(JobPhase::Running));
    assert_eq!(simulation.starts().into_iter().collect::<Vec<_>>(), [(3, 1), (5, 1)], "the others ran already");
    assert_eq!(reasons(&simulation), ["SubmissionSucceeded"]);
}

#[test]
fn a_quota_that_permits_no_services_fails_the_submission_once_and_lifting_it_goes_on() {
    let mut simulation = JobSimulation::new();
    let words = "services \"job-0\" is forbidden: exceeded quota: q, requested: services=1, used: services=0, limited: services=0";
    simulation.server.refuse(move |call| {
        (matches!(call.verb, Verb::Create | Verb::Apply) && call.kind == "Service")
            .then(|| *Status::failure(words, "Forbidden").with_code(403).boxed())
    });
    simulation.until(|simulation| simulation.status().phase == Some(JobPhase::Failed));
    // The texts are written beside the Services, and PEs follow their texts.
    simulation.until(|simulation| simulation.pes().len() == 8);
    let pes = simulation.pes();
    for kind in [condition::READY, condition::PODS_READY] {
        let (_, message) = said(&simulation.status(), kind);
        let begin = "no PE runs before the first generation is committed; the condition Submitted says";
        assert!(message.starts_with(begin), "there are PEs: {kind}: {message}");
    }
    for _ in 0..5 {
        simulation.wait(1_000);
        simulation.crash();
        simulation.reconcile();
        simulation.reconcile();
    }
    let status = simulation.status();
    assert_eq!((status.phase, status.submission_attempts, status.generation), (Some(JobPhase::Failed), 1, None));
    assert_eq!(said(&status, condition::SUBMITTED), ("QuotaExceeded".to_owned(), words.to_owned()));
    assert_eq!(simulation.pes(), pes, "nothing is torn down");
    assert_eq!(reasons(&simulation), ["SubmissionFailed"]);
    simulation.server.refuse(|_| None);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().submission_attempts, 1);
}

/// The texts take long, and nothing else is left to be written.
#[test]
fn once_a_refusal_is_corrected_the_submission_says_what_it_waits_for_until_another_follows() {
    let mut simulation = JobSimulation::new();
    let refuse = |simulation: &JobSimulation, kind: &'static str| {
        simulation.server.refuse(move |call| {
            let is_write = matches!(call.verb, Verb::Create | Verb::Apply);
            let refusal = || *Status::failure("exceeded quota: q", "Forbidden").with_code(403).boxed();
            (is_write && call.kind == kind).then(refusal)
        });
    };
    let phase_and_reason = |simulation: &JobSimulation| {
        let status = simulation.status();
        (status.phase.unwrap(), said(&status, condition::SUBMITTED).0)
    };
    refuse(&simulation, "Service");
    while simulation.leader.running() != [TaskKind::Publish] {
        simulation.work();
        simulation.reconcile();
    }
    simulation.reconcile();
    assert_eq!(phase_and_reason(&simulation), (JobPhase::Failed, "QuotaExceeded".to_owned()));
    simulation.server.refuse(|_| None);
    for _ in 0..3 {
        simulation.reconcile();
    }
    assert_eq!(phase_and_reason(&simulation), (JobPhase::Submitting, "Submitting".to_owned()));
    refuse(&simulation, "ConfigMap");
    simulation.work();
    for _ in 0..3 {
        simulation.reconcile();
        assert_eq!(phase_and_reason(&simulation), (JobPhase::Failed, "QuotaExceeded".to_owned()));
    }
    assert_eq!(reasons(&simulation), ["SubmissionFailed"; 2]);
    simulation.server.refuse(|_| None);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().submission_attempts, 1);
}

#[test]
fn a_pe_that_has_completed_is_done_and_stays_so_over_resizes() {
    let mut simulation = JobSimulation::running();
    // The source, whose text a resize changes.
    simulation.complete(0);
    simulation.settle();
    let is_true = |simulation: &JobSimulation, kind| condition::is_true(&simulation.status().conditions, kind);
    assert!(is_true(&simulation, condition::READY));
    let figures = |simulation: &JobSimulation| {
        let figures = simulation.status().statistics.unwrap();
        (figures.processing_elements, figures.ready_processing_elements, figures.completed_processing_elements)
    };
    assert_eq!(figures(&simulation), (8, 7, 1));
    let text = simulation.pe(0).unwrap().spec.runtime_id;
    simulation.forget_starts();
    simulation.server.announced();
    simulation.resize(0, 3);
    simulation.settle();
    simulation.check_at_rest();
    assert!(is_true(&simulation, condition::READY) && is_true(&simulation, condition::PODS_READY));
    assert_eq!(simulation.starts().into_keys().collect::<Vec<_>>(), [1, 8], "the sink, and the new channel");
    assert_eq!(figures(&simulation), (9, 8, 1));
    assert_ne!(simulation.pe(0).unwrap().spec.runtime_id, text, "it has the new text");
    let committed = simulation.server.announced().into_iter().find(|a| a.notice.reason == "GenerationCommitted");
    assert_eq!(committed.unwrap().notice.note, "generation 1: 7 PEs kept, 1 restarted, 1 added, 0 removed");
}

#[test]
fn a_job_is_called_completed_once_all_of_its_pes_have_completed() {
    let mut simulation = JobSimulation::running();
    let pes: Vec<u64> = simulation.pes().into_keys().collect();
    // PEs that have completed -> reason and message of Ready, and of PodsReady
    let table = [
        (
            0,
            ("AllRunning", "8 of 8 PEs run what the job wants"),
            ("Running", "every PE has a pod that runs, or has completed"),
        ),
        (
            1,
            ("AllRunning", "7 of 8 PEs run what the job wants, 1 has completed"),
            ("Running", "the pods of 7 PEs run, 1 has completed"),
        ),
        (
            7,
            ("AllRunning", "1 of 8 PEs run what the job wants, 7 have completed"),
            ("Running", "the pods of 1 PE run, 7 have completed"),
        ),
        (
            8,
            ("Completed", "0 of 8 PEs run what the job wants, 8 have completed"),
            ("Completed", "every PE has completed"),
        ),
    ];
    for (completed, ready, pods_ready) in table {
        pes.iter().take(completed).for_each(|id| simulation.complete(*id));
        simulation.settle();
        simulation.wait(60);
        simulation.settle();
        let status = simulation.status();
        for (kind, (reason, message)) in [(condition::READY, ready), (condition::PODS_READY, pods_ready)] {
            assert!(condition::is_true(&status.conditions, kind), "{kind}, {completed}");
            assert_eq!(said(&status, kind), (reason.to_owned(), message.to_owned()), "{kind}, {completed}");
        }
    }
}
