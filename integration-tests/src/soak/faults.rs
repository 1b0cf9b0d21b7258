//! Faults that a soak run injects: processes are killed, pods fail or are deleted.

use crate::system::job::ObservedJob;
use crate::system::{Frontend, System};
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::fmt;
use std::time::Duration;

/// Longest time for which a killed process stays away.
const LONGEST_ABSENCE: Duration = Duration::from_millis(2_500);

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A frontend is killed and started again.
    Frontend,
    /// All frontends are.
    AllFrontends,
    /// A replica of the fusion service is killed and started again.
    Fusion,
    /// All of them are.
    AllFusion,
    /// A pod fails.
    PodFails,
    /// A pod is deleted.
    PodDeleted,
}

impl Fault {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; 6] =
        [Self::Frontend, Self::AllFrontends, Self::Fusion, Self::AllFusion, Self::PodFails, Self::PodDeleted];
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Frontend => "a frontend killed",
            Self::AllFrontends => "all frontends killed",
            Self::Fusion => "a replica of the fusion service killed",
            Self::AllFusion => "all replicas of the fusion service killed",
            Self::PodFails => "a pod failed",
            Self::PodDeleted => "a pod deleted",
        })
    }
}

/// Injects a fault, and starts killed processes again. Returns whether it hit anything: there may be no pod at the
/// moment.
///
/// # Errors
/// When a process does not end, or does not become ready again.
pub async fn inject(fault: Fault, system: &System, jobs: &[ObservedJob], random: &mut fastrand::Rng) -> Result<bool> {
    let away = LONGEST_ABSENCE.mul_f64(random.f64());
    match fault {
        Fault::Frontend | Fault::AllFrontends => {
            let all = system.frontends().iter().enumerate().collect();
            let hit: Vec<(usize, &Frontend)> = choose(all, fault == Fault::Frontend, random);
            for (_, frontend) in &hit {
                frontend.process().kill().await?;
            }
            tokio::time::sleep(away).await;
            for (_, frontend) in &hit {
                frontend.start_again().await?;
            }
            Ok(true)
        }
        Fault::Fusion | Fault::AllFusion => {
            let hit = choose(system.fusion().enumerate().collect(), fault == Fault::Fusion, random);
            for (_, replica) in &hit {
                replica.kill().await?;
            }
            tokio::time::sleep(away).await;
            for (number, replica) in &hit {
                replica.start_again().await?;
                system.fusion_ready(*number).await?;
            }
            Ok(true)
        }
        Fault::PodFails | Fault::PodDeleted => {
            let Some(job) = random.choice(jobs) else { return Ok(false) };
            let Some(pod) = random.choice(job.snapshot().await?.0.into_values()) else { return Ok(false) };
            let pods = job.api::<Pod>();
            // It may be gone by now: nothing was hit then.
            let hit = if fault == Fault::PodDeleted {
                pods.delete(&pod.name, &DeleteParams::default()).await.map(drop)
            } else {
                let patch = Patch::Merge(json!({"metadata": {"annotations": {"streams-test/fail": "1"}}}));
                pods.patch(&pod.name, &PatchParams::default(), &patch).await.map(drop)
            };
            match hit {
                Ok(()) => Ok(true),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
                Err(error) => Err(error).context("the pod cannot be hit"),
            }
        }
    }
}

/// One of them, or all.
fn choose<T>(mut all: Vec<T>, one: bool, random: &mut fastrand::Rng) -> Vec<T> {
    if one && !all.is_empty() {
        let chosen = random.usize(..all.len());
        all = all.into_iter().skip(chosen).take(1).collect();
    }
    all
}
