//! The table, row by row.

mod bundles;
mod connectivity;
mod endings;
mod first_pods;
mod launches;
mod outdated;
mod owners;
mod policies;
mod stops;
mod told;

use super::super::observed::{
    AbsentPod, Contention, Explanation, ObservedPod, Obstacle, OwnerJob, PeObject, PeObservation, PodEnd, Policies,
    Stage, TemplateHashes,
};
use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// Seconds of the day on which everything happens.
fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn time(second: i64) -> Option<Time> {
    Some(Time(at(second)))
}

fn why(reason: &str) -> Explanation {
    Explanation { reason: reason.to_owned(), message: String::new() }
}

fn template(hash: &str, placement: &str) -> TemplateHashes {
    TemplateHashes { hash: hash.to_owned(), placement: placement.to_owned() }
}

/// A pod of a launch that has been running since second 0.
fn pod(launch_count: u64) -> ObservedPod {
    ObservedPod {
        name: crate::pods_of_pe::name("flow-3", "uid", launch_count),
        uid: format!("pod {launch_count}"),
        launch_count,
        content_id: Some("c0".to_owned()),
        runtime_id: Some("r0".to_owned()),
        template_hash: Some("t0".to_owned()),
        placement_hash: Some("p0".to_owned()),
        node: Some("node".to_owned()),
        stage: Stage::Running(Some(at(0))),
        created_at: Some(at(0)),
        gone_by: None,
        asked_to_go_at: None,
        was_going: false,
        disruption: None,
        left_behind: false,
        other_controller: None,
        spoilt: None,
    }
}

fn ended(failed: bool, exit_code: i32, reason: &str) -> Stage {
    let (started_at, finished_at) = (Some(at(0)), Some(at(50)));
    let exit_code = Some(exit_code);
    Stage::Ended(PodEnd { failed, exit_code, why: why(reason), started_at, finished_at, ..PodEnd::default() })
}

/// A pod that failed.
fn failed(launch_count: u64) -> ObservedPod {
    ObservedPod { stage: ended(true, 1, "Error"), ..pod(launch_count) }
}

/// A PE whose pod of launch 2 runs, as seen at second 100; its job has committed generation 1.
fn running() -> PeObservation {
    let status = ProcessingElementStatus {
        launch_count: 2,
        created_launch_count: 2,
        pod_name: Some(pod(2).name),
        content_id: Some("c0".to_owned()),
        runtime_id: Some("r0".to_owned()),
        pod_template_hash: Some("t0".to_owned()),
        node_name: Some("node".to_owned()),
        running_since: time(0),
        ..ProcessingElementStatus::default()
    };
    let wanted = PeObject {
        name: "flow-3".to_owned(),
        uid: "uid".to_owned(),
        object_generation: Some(1),
        created_at: Some(at(-100)),
        controlled: true,
        generation: 1,
        runtime_id: "r0".to_owned(),
        policies: Policies { restart_failed: true, delete_failed: true, ..Policies::default() },
        ..PeObject::default()
    };
    let observed = PeObservation {
        now: at(100),
        wanted,
        status,
        job: OwnerJob::There { created_at: None, generation: Some(1), committed_at: Some(at(-90)), suspended: false },
        template: Ok(template("t0", "p0")),
        pods: vec![pod(2)],
        first_was_deleted: false,
        predecessors: Vec::new(),
        vanished: None,
        refusal: None,
        renewed_by: None,
        min_ready: Duration::ZERO,
        may_wait_long: false,
        others_go_first_until: None,
        unrestored_until: None,
        contention: None,
    };
    let status = decide(&observed).status;
    PeObservation { status, ..observed }
}

/// A PE that has no pod yet.
fn new() -> PeObservation {
    PeObservation { status: ProcessingElementStatus::default(), pods: Vec::new(), ..running() }
}

/// What a PE came to when all actions were taken that need no pod to be created and no time to pass.
#[derive(Debug)]
struct Settled {
    observed: PeObservation,
    actions: Vec<PeAction>,
    deletions: Vec<String>,
    last: PeDecision,
}

/// Takes actions. A pod that is looked for is `gone`, as the API server would say; deletions are written down and not
/// done.
fn settle(mut observed: PeObservation, gone: AbsentPod) -> Settled {
    let (mut actions, mut deletions) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let decision = decide(&observed);
        for deletion in &decision.deletions {
            if !deletions.contains(&deletion.name) {
                deletions.push(deletion.name.clone());
            }
        }
        actions.push(decision.action.clone());
        match decision.action {
            PeAction::Describe | PeAction::Create => {
                let is_later = decision.wake_at.is_none_or(|wake| wake > observed.now);
                assert!(is_later, "it is looked at again and again: {decision:?}");
                if decision.action == PeAction::Describe {
                    observed.status.clone_from(&decision.status);
                }
                return Settled { observed, actions, deletions, last: decision };
            }
            PeAction::Look => observed.vanished = Some(gone.clone()),
            PeAction::LookForJob => observed.job = OwnerJob::Estranged,
            PeAction::Record(_) => {
                if decision.status.launch_count != observed.status.launch_count {
                    observed.vanished = None;
                }
                observed.status = decision.status;
            }
        }
    }
    panic!("no end: {actions:?}");
}

/// The pod is gone, and nobody saw how.
fn unseen() -> AbsentPod {
    AbsentPod { last_seen: None, deletion_seen: false, since: at(0), node_gone: false }
}

/// Why another launch begins, if it does.
fn launched(observed: PeObservation) -> Option<LaunchReason> {
    settle(observed, unseen()).actions.into_iter().find_map(|step| match step {
        PeAction::Record(PeStatusChange::Launch(reason)) => Some(reason),
        _ => None,
    })
}

/// Status and reason of the readiness.
fn ready(observed: &PeObservation) -> (String, String) {
    let status = settle(observed.clone(), unseen()).observed.status;
    let ready = condition::get(&status.conditions, condition::READY).unwrap();
    (ready.status.clone(), ready.reason.clone())
}

/// The PE of [`running`], changed.
fn edited(edit: impl FnOnce(&mut PeObservation)) -> PeObservation {
    let mut observed = running();
    edit(&mut observed);
    observed
}
