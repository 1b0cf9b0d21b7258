//! The pods of a job at a moment, and the difference between two moments.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use streams_api::{ProcessingElement, names};

/// A pod that runs a PE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PePod {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Launch count that it was created for.
    pub launch_count: u64,
    /// Whether it runs.
    pub running: bool,
}

/// The pods of a job by PE id; pods that are being deleted or have ended are left out, and pods of PEs that are gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot(pub BTreeMap<u64, PePod>);

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
    /// What is among these pods of these PEs.
    ///
    /// # Errors
    /// When two of them are of one PE, or one lacks a label.
    pub fn of(pods: &[Pod], pes: &[ProcessingElement]) -> Result<Self> {
        let pes: BTreeSet<_> = pes.iter().filter_map(ResourceExt::uid).collect();
        let mut snapshot = Self::default();
        for pod in pods {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let is_of_one = pod.owner_references().iter().any(|owner| pes.contains(&owner.uid));
            if !is_of_one || pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Failed" | "Succeeded"))
            {
                continue;
            }
            let name = pod.name_any();
            let label = |label: &str| -> Result<u64> {
                let value = pod.labels().get(label).with_context(|| format!("pod {name} has no label {label}"))?;
                value.parse().with_context(|| format!("pod {name}: {label} is {value}"))
            };
            let (id, launch_count) = (label(names::LABEL_PE)?, label(names::LABEL_LAUNCH_COUNT)?);
            let uid = pod.uid().unwrap_or_default();
            let new = PePod { name: name.clone(), uid, launch_count, running: phase == Some("Running") };
            if let Some(other) = snapshot.0.insert(id, new) {
                bail!("PE {id} has two pods: {} and {name}", other.name);
            }
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

    /// PEs that were launched more often since `before` than one change needs: a kept pod never, another pod once. In
    /// words, empty if none.
    pub fn launched_too_often_since(&self, before: &Self) -> Vec<String> {
        let judge = |(id, pe): (&u64, &PePod)| {
            let due = match before.0.get(id) {
                Some(old) if old.uid == pe.uid => old.launch_count,
                Some(old) => old.launch_count + 1,
                None => 1,
            };
            (pe.launch_count != due).then(|| format!("PE {id} has launch count {} instead of {due}", pe.launch_count))
        };
        self.0.iter().filter_map(judge).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Difference, Snapshot};
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;
    use streams_api::{ProcessingElement, ProcessingElementSpec};

    /// PE id, uid, launch count and phase of a pod.
    fn pod((id, uid, launch_count, phase): (u64, &str, u64, &str)) -> Pod {
        let labels = json!({
            "streams.ibm.com/pe": id.to_string(), "streams.ibm.com/launch-count": launch_count.to_string(),
        });
        let owner = json!({"apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement", "name": "p", "uid": format!("pe-{id}")});
        let metadata = json!({"name": format!("p-{uid}"), "uid": uid, "labels": labels, "ownerReferences": [owner]});
        serde_json::from_value(json!({"metadata": metadata, "status": {"phase": phase}})).unwrap()
    }

    fn pes(ids: std::ops::Range<u64>) -> Vec<ProcessingElement> {
        let pe = |id| {
            let mut pe = ProcessingElement::new(&format!("p-{id}"), ProcessingElementSpec { id, ..Default::default() });
            pe.metadata.uid = Some(format!("pe-{id}"));
            pe
        };
        ids.map(pe).collect()
    }

    fn snapshot(pods: &[(u64, &str, u64, &str)]) -> Snapshot {
        Snapshot::of(&pods.iter().copied().map(pod).collect::<Vec<_>>(), &pes(0..9)).unwrap()
    }

    #[test]
    fn a_pe_is_kept_while_its_pod_is() {
        let before = snapshot(&[(0, "a", 1, "Running"), (1, "b", 1, "Running"), (2, "c", 1, "Running")]);
        let after = snapshot(&[(0, "a", 1, "Running"), (1, "x", 2, "Running"), (3, "d", 1, "Pending")]);
        let expected = Difference { kept: vec![0], restarted: vec![1], added: vec![3], removed: vec![2] };
        assert_eq!(after.since(&before), expected);
        assert_eq!((before.running(), after.running()), (3, 2));
        assert_eq!(after.launched_too_often_since(&before), [""; 0]);
    }

    #[test]
    fn a_pod_launched_twice_is_noticed() {
        let before = snapshot(&[(0, "a", 1, "Running"), (1, "b", 4, "Running")]);
        let after = snapshot(&[(0, "x", 3, "Running"), (1, "y", 5, "Running"), (2, "z", 2, "Running")]);
        let expected =
            ["PE 0 has launch count 3 instead of 2".to_owned(), "PE 2 has launch count 2 instead of 1".to_owned()];
        assert_eq!(after.launched_too_often_since(&before), expected);
    }

    #[test]
    fn pods_of_pes_that_are_gone_do_not_count() {
        let pods = [(0, "a", 1, "Running"), (1, "b", 1, "Running")].map(pod);
        let ids = |pes: &[ProcessingElement]| Snapshot::of(&pods, pes).unwrap().0.into_keys().collect::<Vec<_>>();
        assert_eq!((ids(&pes(0..2)), ids(&pes(0..1)), ids(&pes(1..2))), (vec![0, 1], vec![0], vec![1]));
    }

    #[test]
    fn a_pe_has_one_pod_beside_those_that_have_ended() {
        let ended = [(0, "a", 1, "Failed"), (0, "b", 2, "Running")];
        assert_eq!(snapshot(&ended).0.len(), 1);
        let two = [(0, "a", 1, "Running"), (0, "b", 2, "Pending")].map(pod);
        assert_eq!(Snapshot::of(&two, &pes(0..9)).unwrap_err().to_string(), "PE 0 has two pods: p-a and p-b");
    }
}
