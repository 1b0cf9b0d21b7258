//! Plans and ADLs whose chunks are missing: whoever has the document stores it again, no plan is in force without its
//! chunks, and what is lost is said.

use super::super::simulation::{JobSimulation, UserDeletion, key, wait_for};
use super::{condition_reason, is_true};
use crate::controllers::job::decide::{JobDecision, JobStatusChange, Step};
use crate::controllers::job::documents::chunks::Document;
use streams_api::{Job, JobPhase, PeOptions, TraceLevel, condition};

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
    for kind in [condition::COMPILED, condition::PODS_READY, condition::PROGRESSING] {
        let said = (condition_reason(&simulation, kind), is_true(&simulation, kind));
        assert_eq!(said, (Some("PlanLost".to_owned()), false), "{kind}: nothing becomes of the edits");
    }
    let status = simulation.status();
    for kind in [condition::READY, condition::COMPILED, condition::PROGRESSING] {
        let message = condition::get(&status.conditions, kind).map_or("", |said| said.message.as_str());
        let way_out = "; if nothing brings it back, delete the job and submit it anew";
        assert!(message.contains("the plan of the job is lost") && message.ends_with(way_out), "{kind}: {message}");
    }
    assert_eq!(simulation.pes(), running, "what runs is left alone");
}

#[test]
fn while_the_plan_is_lost_a_refused_width_stays_refused_and_no_pods_are_said_to_be_gone() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.refuses = true);
    simulation.resize(0, 7);
    simulation.settle();
    let refused = simulation.status().refused_edits;
    assert_eq!(refused.len(), 1, "{refused:?}");
    simulation.delete(&UserDeletion::Chunks);
    simulation.collect();
    simulation.crash();
    simulation.change_spec(|spec| spec.suspend = true);
    // No pod goes meanwhile.
    simulation.reconcile();
    let status = simulation.status();
    assert_eq!((status.phase, status.refused_edits), (Some(JobPhase::Suspended), refused));
    assert!(is_true(&simulation, condition::RESIZE_REJECTED) && is_true(&simulation, condition::SUSPENDED));
    for kind in [condition::SUSPENDED, condition::PROGRESSING] {
        assert_eq!(condition_reason(&simulation, kind).as_deref(), Some("PlanLost"), "{kind}");
    }
    assert!(!is_true(&simulation, condition::PROGRESSING));
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
