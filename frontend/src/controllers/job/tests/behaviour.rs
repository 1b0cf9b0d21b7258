//! Single situations, as users see them.

use super::simulation::{JobSimulation, UserDeletion, key, wait_for};
use crate::controllers::job::decide::{JobDecision, JobStatusChange, Step};
use crate::controllers::job::documents::chunks::Document;
use crate::controllers::job::tasks::{Slot, TaskKind};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::core::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::{
    InitialWidth, Job, JobPhase, PeOptions, PePhase, ProcessingElement, PullPolicy, TraceLevel, TransportSecurity,
    condition,
};
use streams_kubernetes_fake::Verb;

fn condition_reason(simulation: &JobSimulation, kind: &str) -> Option<String> {
    condition::get(&simulation.status().conditions, kind).map(|condition| condition.reason.clone())
}

fn is_true(simulation: &JobSimulation, kind: &str) -> bool {
    condition::is_true(&simulation.status().conditions, kind)
}

/// (generation, PEs kept, restarted, added, removed) of the last roll-out.
fn rollout(simulation: &JobSimulation) -> (u64, u32, u32, u32, u32) {
    let rollout = simulation.status().rollout.expect("a generation was committed");
    (rollout.generation, rollout.kept, rollout.restarted, rollout.added, rollout.removed)
}

#[test]
fn a_resize_touches_only_what_changed() {
    let mut simulation = JobSimulation::running();
    let before = simulation.pes();
    simulation.forget_starts();
    simulation.resize(0, 4);
    simulation.settle();
    // Source and sink see the width; two channels are new; PE 2 and 3, and the channels that were there, are not
    // touched.
    assert_eq!(simulation.starts().into_iter().collect::<Vec<_>>(), [(0, 1), (1, 1), (8, 1), (9, 1)]);
    let after = simulation.pes();
    for id in 2..8 {
        assert_eq!(after[&id], before[&id], "PE {id}");
    }
    assert_eq!(rollout(&simulation), (1, 6, 2, 2, 0));
    simulation.forget_starts();
    simulation.resize(0, 2);
    simulation.settle();
    assert_eq!(simulation.starts().into_keys().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(rollout(&simulation), (2, 6, 2, 0, 2));
    simulation.check_at_rest();
}

#[test]
fn what_cannot_be_submitted_fails_until_the_spec_is_corrected() {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.refuses = true);
    simulation.settle();
    assert_eq!(simulation.status().phase, Some(JobPhase::Failed));
    assert!(!is_true(&simulation, condition::SUBMITTED));
    assert_eq!(condition_reason(&simulation, condition::SUBMITTED).as_deref(), Some("ApplicationRejected"));
    simulation.check_at_rest();
    let version = simulation.server.version();
    simulation.settle();
    assert_eq!(simulation.server.version(), version, "it is not tried again");
    simulation.services.change(|services| services.refuses = false);
    simulation.edit("corrected");
    simulation.settle();
    simulation.check_at_rest();
    let status = simulation.status();
    assert_eq!((status.phase, status.submission_attempts), (Some(JobPhase::Running), 1));
}

#[test]
fn a_refused_width_leaves_the_running_generation_alone_and_is_not_tried_again() {
    let mut simulation = JobSimulation::running();
    let before = simulation.pes();
    simulation.server.announced();
    simulation.services.change(|services| services.refuses = true);
    simulation.resize(0, 7);
    simulation.settle();
    assert_eq!(simulation.status().generation, Some(0));
    assert!(is_true(&simulation, condition::RESIZE_REJECTED) && is_true(&simulation, condition::READY));
    assert_eq!(simulation.pes(), before);
    let version = simulation.server.version();
    simulation.settle();
    assert_eq!(simulation.server.version(), version, "it is not tried again");
    // Whoever leads next knows it as well.
    simulation.crash();
    simulation.settle();
    assert_eq!(simulation.server.version(), version, "nothing is said again");
    let reasons: Vec<_> = simulation.server.announced().into_iter().map(|announced| announced.notice.reason).collect();
    assert_eq!(reasons, ["ParallelRegionWidthChangeFailure"], "people hear of it once");
    simulation.services.change(|services| services.refuses = false);
    simulation.resize(0, 6);
    simulation.settle();
    assert!(!is_true(&simulation, condition::RESIZE_REJECTED));
    assert_eq!(simulation.status().rejected_resize, None);
    simulation.check_at_rest();
}

#[test]
fn texts_that_are_being_written_are_not_asked_for_again() {
    let mut simulation = JobSimulation::new();
    while simulation.leader.running() != [TaskKind::Publish] {
        simulation.work();
        simulation.reconcile();
    }
    simulation.leader.catch_up();
    let asked_for = simulation.leader.tasks();
    assert!(asked_for.publish.running().is_some_and(|request| request.pe_ids.len() == 8), "{asked_for:?}");
    // Some of the texts are written, and the mirror shows them.
    simulation.crash_at_write(3, false);
    wait_for(simulation.leader.work(TaskKind::Publish));
    simulation.take_over_from_the_dead();
    assert_eq!(simulation.texts().len(), 3);
    simulation.reconcile();
    let rest = simulation.leader.tasks();
    assert_eq!(rest.publish.running().map(|request| request.pe_ids.len()), Some(5));
    simulation.delete(&UserDeletion::Texts);
    simulation.reconcile();
    assert_eq!(simulation.leader.tasks(), rest, "it is being worked on");
}

#[test]
fn a_plan_whose_chunks_were_deleted_is_stored_again_or_the_job_says_that_it_is_lost() {
    let mut simulation = JobSimulation::running();
    simulation.delete(&UserDeletion::Chunks);
    simulation.settle();
    simulation.check_at_rest();
    simulation.delete(&UserDeletion::Chunks);
    simulation.collect();
    simulation.crash();
    let running = simulation.pes();
    simulation.resize(0, 5);
    let options = PeOptions { runtime_trace_level: TraceLevel::Debug, ..PeOptions::default() };
    simulation.change_spec(|spec| spec.processing_element = Some(options));
    simulation.settle();
    assert_eq!(simulation.status().phase, Some(JobPhase::Degraded));
    assert_eq!(condition_reason(&simulation, condition::READY).as_deref(), Some("PlanLost"));
    let edited = simulation.server.get::<Job>(&key()).unwrap().metadata.generation;
    assert_eq!((simulation.status().observed_generation, edited), (Some(2), Some(2)), "who waits for it goes on");
    assert_eq!(condition_reason(&simulation, condition::DEGRADED).as_deref(), Some("Lost"));
    assert_eq!(simulation.pes(), running, "what runs is left alone");
}

/// The commit makes it the plan in force. If the frontend ends then, there is no other copy.
#[test]
fn a_plan_is_not_committed_while_a_chunk_of_it_is_missing() {
    for runs in [false, true] {
        for ends in [false, true] {
            let mut simulation = if runs { JobSimulation::running() } else { JobSimulation::new() };
            if runs {
                simulation.resize(0, 4);
            }
            let is_commit = |simulation: &JobSimulation| {
                matches!(simulation.leader.decided().0, JobDecision::Step(Step::Record(JobStatusChange::Commit)))
            };
            for _ in 0..40 {
                simulation.leader.catch_up();
                if is_commit(&simulation) {
                    break;
                }
                simulation.round();
                simulation.work();
            }
            let (proposal, generation) = (simulation.status().proposal.unwrap(), simulation.status().generation);
            let document = Document::Plan { generation: proposal.plan.generation };
            let is_of_proposal = |name: &String| document.has_chunk(&proposal.plan.sha256, 1, name);
            let chunk = simulation.chunks().into_iter().find(is_of_proposal).unwrap();
            simulation.delete(&UserDeletion::ConfigMap(chunk));
            simulation.collect();
            simulation.leader.catch_up();
            assert!(!is_commit(&simulation), "{runs}");
            simulation.round();
            assert_eq!(simulation.status().generation, generation, "{runs}");
            if ends {
                simulation.crash();
            }
            simulation.settle();
            simulation.check_at_rest();
            assert_eq!(simulation.status().generation, Some(u64::from(runs)), "{runs} {ends}");
        }
    }
}

/// What was written is known before the mirror shows it.
#[test]
fn a_commit_does_not_wait_until_the_mirror_shows_the_plan() {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 4);
    simulation.leader.catch_up();
    for _ in 0..40 {
        let _ = wait_for(simulation.leader.round());
        simulation.work();
        // Everything but ConfigMaps.
        simulation.leader.deliver([usize::MAX, usize::MAX, usize::MAX, usize::MAX, usize::MAX, 0]);
    }
    assert_eq!(simulation.status().generation, Some(1));
    simulation.settle();
    simulation.check_at_rest();
}

/// The process that fetched the ADL has it; another one gets it from the bundle when it is needed.
#[test]
fn an_adl_whose_chunks_were_deleted_is_stored_again_by_whoever_has_it() {
    let mut simulation = JobSimulation::running();
    simulation.delete(&UserDeletion::AdlChunks);
    simulation.settle();
    simulation.check_at_rest();
    simulation.delete(&UserDeletion::AdlChunks);
    simulation.crash();
    simulation.settle();
    assert_eq!(simulation.chunks().len(), 1, "only the plan");
    simulation.resize(0, 3);
    simulation.settle();
    simulation.check_at_rest();
}

/// An edit before the commit, whichever step it comes after, brings another bundle with the same ADL: PEs ask for that.
#[test]
fn pes_ask_for_the_bundle_that_was_fetched_last() {
    for steps in 0.. {
        let mut simulation = JobSimulation::new();
        for _ in 0..steps {
            simulation.reconcile();
            simulation.work();
        }
        let is_committed = simulation.status().generation.is_some();
        simulation.services.change(|services| services.build = 1);
        simulation.change_spec(|spec| spec.bundle.pull_policy = PullPolicy::Always);
        simulation.settle();
        simulation.check_at_rest();
        let fetched = simulation.status().adl.unwrap().sab_name;
        for (id, pe) in simulation.pes() {
            assert_eq!(pe.spec.options.sab_name.as_ref(), Some(&fetched), "PE {id} after {steps} steps");
        }
        if is_committed {
            return;
        }
    }
}

/// Nobody has the ADL any more, and the bundle has another one by now: the digests say which is meant. A bundle that
/// was kept helps, and so does the right one at its URL: no width is refused because of it.
#[test]
fn another_bundle_never_takes_the_place_of_the_one_that_was_submitted() {
    for keeps_bundles in [false, true] {
        let mut simulation = JobSimulation::running();
        let submitted = simulation.status().adl.unwrap();
        simulation.services.change(|services| {
            services.bundle = 1;
            services.keeps_bundles = keeps_bundles;
        });
        simulation.delete(&UserDeletion::AdlChunks);
        simulation.crash();
        simulation.settle();
        simulation.resize(0, 3);
        if !keeps_bundles {
            for _ in 0..4 {
                simulation.reconcile();
                simulation.work();
                simulation.wait(1);
            }
            let status = simulation.status();
            let said = condition::get(&status.conditions, condition::PROGRESSING).unwrap();
            assert_eq!((said.reason.as_str(), status.generation), ("AdlLost", Some(0)));
            let digest = submitted.bundle_sha256.as_ref().unwrap();
            assert!(said.message.contains(&format!("submitted with the bundle {digest}")), "{}", said.message);
            assert!(is_true(&simulation, condition::BUNDLE_UNAVAILABLE) && status.refused_edits.is_empty());
            simulation.services.change(|services| services.bundle = 0);
        }
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(simulation.status().adl.as_ref(), Some(&submitted));
    }
}

/// It is asked for again, less and less often; the job goes on without an edit.
#[test]
fn a_bundle_that_is_not_there_is_waited_for() {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.has_no_bundle = true);
    let said = |simulation: &JobSimulation| {
        let status = simulation.status();
        let submitted = condition::get(&status.conditions, condition::SUBMITTED).cloned();
        submitted.filter(|submitted| submitted.reason == "BundleNotFound").map(|submitted| submitted.message)
    };
    simulation.until(|simulation| said(simulation).is_some());
    let first = said(&simulation).unwrap();
    assert!(first.starts_with("there is none; so since "), "{first}");
    simulation.server.announced();
    for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300] {
        simulation.wait(seconds - 1);
        simulation.reconcile();
        assert!(!simulation.work(), "it is asked for too early: before {seconds} s");
        simulation.wait(1);
        simulation.reconcile();
        assert_eq!(said(&simulation).as_ref(), Some(&first), "it is still so while it is asked for");
        assert!(simulation.work(), "it is not asked for after {seconds} s");
        simulation.reconcile();
        assert_eq!(said(&simulation).as_ref(), Some(&first), "since when stays");
    }
    // Whoever leads next says the same, and once is enough.
    simulation.crash();
    for _ in 0..3 {
        simulation.reconcile();
        assert_eq!(said(&simulation).as_ref(), Some(&first), "since when stays");
        simulation.work();
    }
    assert!(is_true(&simulation, condition::BUNDLE_UNAVAILABLE));
    assert_eq!(simulation.server.announced(), [], "it is told once");
    let status = simulation.status();
    assert_eq!((status.phase, status.submission_attempts), (Some(JobPhase::Submitting), 1), "the clock stands");
    simulation.wait(2);
    simulation.services.change(|services| services.has_no_bundle = false);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().phase, Some(JobPhase::Running));
    assert!(condition::get(&simulation.status().conditions, condition::BUNDLE_UNAVAILABLE).is_none());
}

#[test]
fn going_back_to_the_applied_width_ends_a_rejection() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.refuses = true);
    simulation.resize(0, 7);
    simulation.settle();
    simulation.resize(0, 2);
    simulation.settle();
    assert_eq!(simulation.status().generation, Some(0));
    simulation.check_at_rest();
    assert!(!is_true(&simulation, condition::RESIZE_REJECTED));
}

#[test]
fn a_newer_width_does_not_wait_for_the_pods_of_an_older_one() {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 5);
    // Until it is committed, with no pod running.
    simulation.until(|simulation| simulation.status().generation == Some(1));
    simulation.resize(0, 3);
    simulation.until(|simulation| simulation.status().generation == Some(2));
    let never_launched =
        simulation.pes().into_values().filter(|pe| pe.status.as_ref().is_none_or(|status| status.launch_count == 0));
    assert!(never_launched.count() > 0, "PEs of the older generation are still there");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(2));
}

/// Writes of the job's status while the new PEs of a resize begin to run, one every 6 s.
fn writes_of_counters(is_crowded: bool) -> usize {
    let mut simulation = JobSimulation::running();
    simulation.leader.connection.crowd(is_crowded);
    simulation.resize(0, 9);
    simulation.until(|simulation| simulation.status().generation == Some(1));
    let mut writes = 0;
    let is_new = |pe: &ProcessingElement| pe.status.as_ref().is_none_or(|status| status.launch_count == 0);
    let added: Vec<_> = simulation.pes().into_values().filter(is_new).collect();
    assert_eq!(added.len(), 7);
    for pe in added {
        simulation.run_pod(pe.spec.id);
        simulation.wait(6);
        let before = simulation.status();
        simulation.reconcile();
        writes += usize::from(simulation.status() != before);
    }
    writes
}

#[test]
fn counters_are_written_less_often_in_a_crowd() {
    let (alone, crowded) = (writes_of_counters(false), writes_of_counters(true));
    assert!(alone >= 6, "{alone}");
    assert!(crowded <= 2, "{crowded}");
}

#[test]
fn a_resize_writes_the_status_of_the_job_for_its_steps_and_its_end() {
    // width -> writes: proposal, commit, finished; that all run while the last one is still there
    for (width, expected) in [(3, 3), (1, 4)] {
        let mut simulation = JobSimulation::running();
        let writes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&writes);
        simulation.server.inspect(move |call| {
            let is_one = call.kind == "Job" && call.verb == Verb::ReplaceStatus;
            count.fetch_add(usize::from(is_one), Ordering::Relaxed);
        });
        simulation.resize(0, width);
        simulation.settle();
        assert_eq!(writes.load(Ordering::Relaxed), expected, "{width}");
    }
}

#[test]
fn a_resize_that_is_being_prepared_for_a_second_says_so() {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 3);
    simulation.reconcile();
    assert_eq!(condition_reason(&simulation, condition::PROGRESSING).as_deref(), Some("Done"));
    simulation.wait(1);
    simulation.reconcile();
    assert_eq!(condition_reason(&simulation, condition::PROGRESSING).as_deref(), Some("PreparingGeneration"));
}

#[test]
fn withdrawn_proposals_leave_nothing_and_start_nothing() {
    let mut simulation = JobSimulation::running();
    simulation.forget_starts();
    simulation.no_step_after("ProcessingElement");
    simulation.request("withdrawn", &[("R", 9)]);
    simulation.until(|simulation| simulation.pe(12).is_some());
    simulation.steps_again();
    let abandoned = simulation.status().proposal.unwrap().plan.sha256;
    simulation.withdraw("withdrawn");
    simulation.resize(0, 3);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(1));
    assert_ne!(simulation.status().plan.unwrap().sha256, abandoned);
    assert_eq!(simulation.starts().values().sum::<u32>(), 3, "source, sink and one channel: {:?}", simulation.starts());
}

#[test]
fn what_is_removed_stays_until_the_others_run_but_not_beyond_the_time_out() {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 1);
    for _ in 0..30 {
        simulation.reconcile();
        simulation.work();
    }
    assert_eq!(simulation.status().generation, Some(1));
    assert!(simulation.pe(5).is_some(), "source and sink have not been replaced yet");
    simulation.wait(301);
    simulation.reconcile();
    simulation.collect();
    simulation.reconcile();
    assert!(simulation.pe(5).is_none());
    let status = simulation.status();
    let condition = condition::get(&status.conditions, condition::RESIZE_DELAYED).unwrap();
    assert!(condition.message.contains("2 PEs to run"), "{}", condition.message);
    simulation.settle();
    simulation.check_at_rest();
    assert!(condition::get(&simulation.status().conditions, condition::RESIZE_DELAYED).is_none());
}

/// What an API server answers to whoever creates something in a namespace that is being deleted.
fn namespace_is_terminating() -> Status {
    let status = serde_json::json!({
        "status": "Failure", "code": 403, "reason": "Forbidden", "message": "it is being terminated",
        "details": {"causes": [{"reason": "NamespaceTerminating", "message": "it is being terminated"}]},
    });
    serde_json::from_value(status).unwrap()
}

#[test]
fn in_a_namespace_that_goes_one_write_is_tried_now_and_then_and_deletions_go_through() {
    let mut simulation = JobSimulation::running();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    simulation.server.refuse(move |call| {
        matches!(call.verb, Verb::Create | Verb::Apply).then(|| {
            count.fetch_add(1, Ordering::SeqCst);
            namespace_is_terminating()
        })
    });
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

#[test]
fn a_plan_is_of_the_spec_that_it_was_asked_for() {
    let mut simulation = JobSimulation::new();
    while simulation.leader.running() != [TaskKind::Compile] {
        simulation.work();
        simulation.reconcile();
    }
    // The worker begins when the spec is another one already; the reconciler has not seen that yet.
    let wide = InitialWidth { name: Some("R".to_owned()), width: Some(5), ..InitialWidth::default() };
    simulation.change_spec(|spec| spec.parallel_regions = vec![wide]);
    simulation.leader.catch_up();
    wait_for(simulation.leader.work(TaskKind::Compile));
    simulation.change_spec(|spec| spec.parallel_regions = Vec::new());
    simulation.settle();
    assert_eq!(simulation.generation().widths().into_values().collect::<Vec<_>>(), [2, 2]);
    simulation.check_at_rest();
}

#[test]
fn a_bundle_is_filed_under_the_spec_that_names_it() {
    let mut simulation = JobSimulation::new();
    while simulation.leader.running() != [TaskKind::Fetch] {
        simulation.reconcile();
    }
    simulation.change_spec(|spec| spec.bundle.name = Some("b.sab".to_owned()));
    simulation.leader.catch_up();
    wait_for(simulation.leader.work(TaskKind::Fetch));
    let progress = simulation.leader.tasks();
    assert!(!matches!(progress.fetch, Slot::Done(..)), "{progress:?}");
    simulation.settle();
    simulation.check_at_rest();
}

/// Reconciles and works while no time passes, and says how often something was written.
fn writes_without_time(simulation: &mut JobSimulation) -> u64 {
    let version = simulation.server.version();
    for _ in 0..60 {
        simulation.reconcile();
        simulation.work();
    }
    simulation.server.version() - version
}

#[test]
fn a_repair_that_no_compiler_can_make_is_tried_again_after_pauses() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| {
        services.compiler = "2".to_owned();
        services.refuses = true;
    });
    simulation.delete(&UserDeletion::Texts);
    simulation.collect();
    let writes = writes_without_time(&mut simulation);
    assert!(writes < 10, "{writes} writes");
    assert_eq!(condition_reason(&simulation, condition::PROGRESSING).as_deref(), Some("ApplicationRejected"));
    assert_eq!(simulation.status().rejected_resize, None, "nobody wanted another width");
    simulation.wait(31);
    simulation.services.change(|services| services.refuses = false);
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn a_plan_whose_texts_nobody_renders_is_made_anew_after_pauses() {
    let mut simulation = JobSimulation::running();
    // One replica compiles, and only another one renders.
    simulation.services.change(|services| services.renders = false);
    simulation.resize(0, 3);
    let writes = writes_without_time(&mut simulation);
    assert!(writes < 20, "{writes} writes");
    assert_eq!(condition_reason(&simulation, condition::PROGRESSING).as_deref(), Some("OtherCompiler"));
    simulation.wait(31);
    simulation.services.change(|services| services.renders = true);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(1));
}

/// The API server refuses such an edit, unless it has the rule only since then.
#[test]
fn an_edit_to_what_is_not_supported_leaves_pes_as_they_are_and_is_told_once() {
    let mut simulation = JobSimulation::running();
    let before = simulation.pes();
    simulation.server.announced();
    simulation.change_spec(|spec| {
        let cpu = [("cpu".to_owned(), Quantity("1e99".to_owned()))];
        spec.resources = Some(ResourceRequirements { limits: Some(cpu.into()), ..ResourceRequirements::default() });
        spec.processing_element =
            Some(PeOptions { transport_security_type: TransportSecurity::Tls12, ..PeOptions::default() });
    });
    simulation.settle();
    assert_eq!(simulation.pes(), before);
    assert_eq!(condition_reason(&simulation, condition::WARNING).as_deref(), Some("NotSupported"));
    assert!(is_true(&simulation, condition::READY));
    // The rest of the spec counts, and widths as well. Whoever leads next knows it.
    simulation.change_spec(|spec| {
        spec.processing_element.as_mut().unwrap().runtime_trace_level = TraceLevel::Debug;
    });
    simulation.crash();
    simulation.resize(0, 4);
    simulation.settle();
    simulation.check_at_rest();
    let resources = &before[&0].spec.options.resources;
    for (id, pe) in simulation.pes() {
        let options = &pe.spec.options;
        assert_eq!(options.transport_security_type, TransportSecurity::None, "PE {id}");
        assert_eq!((options.runtime_trace_level, &options.resources), (TraceLevel::Debug, resources), "PE {id}");
    }
    let warnings = simulation.server.announced().into_iter().filter(|announced| announced.notice.warning);
    let reasons = warnings.map(|announced| announced.notice.reason);
    assert_eq!(reasons.collect::<Vec<_>>(), ["NotSupported"], "people hear of it once");
    simulation.change_spec(|spec| {
        spec.resources = None;
        spec.processing_element = None;
    });
    simulation.settle();
    assert_eq!(condition_reason(&simulation, condition::WARNING), None);
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

#[test]
fn compilations_share_what_they_find_out_about_the_cluster() {
    let mut simulation = JobSimulation::new();
    let lists = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lists);
    simulation.server.refuse(move |call| {
        if call.verb == Verb::List && call.kind == "Pod" {
            count.fetch_add(1, Ordering::SeqCst);
        }
        None
    });
    // seconds later -> readings of all pods so far
    for (edit, (seconds, expected)) in [(0, 1), (9, 1), (1, 2)].into_iter().enumerate() {
        simulation.wait(seconds);
        simulation.edit(&edit.to_string());
        while simulation.leader.running() != [TaskKind::Compile] {
            simulation.work();
            simulation.reconcile();
        }
        wait_for(simulation.leader.work(TaskKind::Compile));
        assert_eq!(lists.load(Ordering::SeqCst), expected, "edit {edit}");
    }
}

/// Reason of a condition, and whether it is true; nothing if it is not there.
fn said(simulation: &JobSimulation, kind: &str) -> Option<(String, bool)> {
    let status = simulation.status();
    condition::get(&status.conditions, kind).map(|condition| (condition.reason.clone(), condition.status == "True"))
}

/// No pod is replaced, and none is started: while PEs are written, and until the PE controller has looked at them.
#[test]
fn an_edit_of_options_changes_nothing_that_is_said_of_pods_while_it_is_carried_out() {
    let runs: fn(&JobSimulation) = |_| {};
    let is_degraded: fn(&JobSimulation) = |simulation| simulation.break_down(3, PePhase::Failed);
    let has_completed: fn(&JobSimulation) = |simulation| simulation.complete(3);
    let is_suspended: fn(&JobSimulation) = |simulation| simulation.change_spec(|spec| spec.suspend = true);
    let is_stopped: fn(&JobSimulation) = |simulation| simulation.stop(3);
    for (number, begin) in [runs, is_degraded, has_completed, is_suspended, is_stopped].into_iter().enumerate() {
        let mut simulation = JobSimulation::running();
        begin(&simulation);
        simulation.settle();
        let is_suspended = number == 3;
        let kinds = [condition::READY, condition::PODS_READY, condition::DEGRADED, condition::SUSPENDED];
        let says = |simulation: &JobSimulation| (simulation.status().phase, kinds.map(|kind| said(simulation, kind)));
        let before = says(&simulation);
        simulation.server.announced();
        let options = PeOptions { runtime_trace_level: TraceLevel::Debug, ..PeOptions::default() };
        simulation.change_spec(|spec| spec.processing_element = Some(options.clone()));
        let is_written = |pe: &ProcessingElement| pe.spec.options.runtime_trace_level == options.runtime_trace_level;
        simulation.server.refuse(|call| {
            let is_late = call.kind == "ProcessingElement" && call.key.name.ends_with("-2");
            is_late.then(|| *Status::failure("not now", "InternalError").with_code(500).boxed())
        });
        simulation.reconcile();
        assert_eq!(says(&simulation), before, "{number}: not all are written");
        assert!(simulation.status().rollout.is_some_and(|rollout| rollout.pending > 0), "{number}: it is not over");
        simulation.server.refuse(|_| None);
        assert!(wait_for(simulation.leader.reconcile()).is_ok());
        assert_eq!(says(&simulation), before, "{number}: the mirror lags behind");
        assert!(simulation.pes().values().all(is_written), "{number}");
        for _ in 0..2 {
            simulation.wait(10);
            simulation.reconcile();
            assert_eq!(says(&simulation), before, "{number}: the PE controller has not looked");
        }
        let is_progressing = if is_suspended { "Suspended" } else { "Done" };
        assert_eq!(said(&simulation, condition::PROGRESSING), Some((is_progressing.to_owned(), false)), "{number}");
        assert_eq!(simulation.status().rollout.map(|rollout| rollout.pending), Some(0), "{number}");
        let told = simulation.server.announced();
        assert!(told.is_empty(), "{number}: {told:?}");
    }
}

#[test]
fn the_share_of_a_pe_that_is_kept_follows_the_number_of_pes_and_restarts_nothing() {
    let mut simulation = JobSimulation::running();
    simulation.give(1_200);
    simulation.settle();
    simulation.forget_starts();
    // width, CPU of the job -> PEs, CPU of each, PEs that restart
    let table = [
        (4, 1_200, 10, 120, vec![0, 1, 8, 9]),
        (4, 1_300, 10, 130, vec![]),
        (2, 1_300, 8, 162, vec![0, 1]),
        (2, 3, 8, 1, vec![]),
    ];
    for (width, milli, pes, each, restarted) in table {
        simulation.give(milli);
        simulation.resize(0, width);
        simulation.settle();
        simulation.check_at_rest();
        let shares: Vec<_> = simulation.shares().into_values().collect();
        assert_eq!(shares, vec![each; pes], "width {width}, {milli}m");
        assert_eq!(simulation.starts().into_keys().collect::<Vec<_>>(), restarted, "width {width}, {milli}m");
        simulation.forget_starts();
    }
}
