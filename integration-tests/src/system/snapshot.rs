//! The pods of a job at a moment, and what two moments differ in.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use streams_frontend::api::names;

/// A pod that runs a PE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningPe {
    /// Uid of the pod.
    pub uid: String,
    /// Launch count that the pod was created for.
    pub launch_count: String,
    /// Whether it runs.
    pub running: bool,
}

/// The pods of a job by PE id; pods that are being deleted are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot(pub BTreeMap<u64, RunningPe>);

/// What happened between two moments, by PE id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// The same pod.
    pub kept: Vec<u64>,
    /// Another pod.
    pub restarted: Vec<u64>,
    /// A pod that was not there.
    pub added: Vec<u64>,
    /// No pod any more.
    pub removed: Vec<u64>,
}

impl Snapshot {
    /// The pods of a job now.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn take(client: &Client, namespace: &str, job: &str) -> Result<Self> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let selector = format!("{}={job}", names::LABEL_JOB);
        let pods = pods.list(&ListParams::default().labels(&selector)).await?;
        let mut snapshot = Self::default();
        for pod in pods.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let Some(id) = pod.labels().get(names::LABEL_PE).and_then(|id| id.parse().ok()) else { continue };
            let running = RunningPe {
                uid: pod.uid().unwrap_or_default(),
                launch_count: pod.labels().get(names::LABEL_LAUNCH_COUNT).cloned().unwrap_or_default(),
                running: pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running"),
            };
            snapshot.0.insert(id, running);
        }
        Ok(snapshot)
    }

    /// Number of pods that run.
    pub fn running(&self) -> usize {
        self.0.values().filter(|pe| pe.running).count()
    }

    /// What happened since `before`.
    pub fn since(&self, before: &Self) -> Difference {
        let mut difference = Difference::default();
        for (id, pe) in &self.0 {
            match before.0.get(id) {
                Some(old) if old.uid == pe.uid => difference.kept.push(*id),
                Some(_) => difference.restarted.push(*id),
                None => difference.added.push(*id),
            }
        }
        difference.removed = before.0.keys().filter(|id| !self.0.contains_key(id)).copied().collect();
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::{Difference, RunningPe, Snapshot};

    fn snapshot(pods: &[(u64, &str)]) -> Snapshot {
        let pe = |uid: &str| RunningPe { uid: uid.to_owned(), launch_count: "1".to_owned(), running: true };
        Snapshot(pods.iter().map(|(id, uid)| (*id, pe(uid))).collect())
    }

    #[test]
    fn a_pe_is_kept_while_its_pod_is() {
        let before = snapshot(&[(0, "a"), (1, "b"), (2, "c")]);
        let after = snapshot(&[(0, "a"), (1, "x"), (3, "d")]);
        let expected = Difference { kept: vec![0], restarted: vec![1], added: vec![3], removed: vec![2] };
        assert_eq!(after.since(&before), expected);
    }
}
