//! Stores the chunks of documents again, and restores what can be written of ConfigMaps that nobody applies.
//!
//! Knows: ConfigMaps and chunks. Must not know: why somebody changed them.

use super::Actor;
use crate::controllers::job::decide::{Owned, StoredDocument, WhichGeneration};
use crate::controllers::job::documents::chunks::{Document, digest};
use crate::controllers::job::documents::{self, Written};
use crate::controllers::job::observed::drift;
use crate::controllers::job::off_thread::Thread;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use std::time::Duration;
use streams_kubernetes::Error;
use streams_kubernetes::cluster::Cluster;

impl<C: Cluster> Actor<'_, C> {
    pub(super) async fn store_again(&self, stored: StoredDocument) -> Result<(), Error> {
        let (document, content, sha256) = match stored {
            StoredDocument::Adl => {
                let adl = self.observed.status.adl.as_ref();
                // If it is not in memory, long work gets it from the bundle when it is needed.
                let Some(content) = adl.and_then(|adl| self.reconciler.memory.adl(&adl.sha256)) else { return Ok(()) };
                (Document::Adl, content, adl.map(|adl| &adl.sha256))
            }
            StoredDocument::Plan(of) => {
                let Some((generation, _)) = self.generation(of) else { return Ok(()) };
                let status = &self.observed.status;
                let plan = match of {
                    WhichGeneration::Committed => status.plan.as_ref(),
                    WhichGeneration::Proposed => status.proposal.as_ref().map(|proposal| &proposal.plan),
                };
                let content = bytes::Bytes::from(generation.encode());
                (Document::Plan { generation: generation.number }, content, plan.map(|plan| &plan.sha256))
            }
        };
        if sha256 != Some(&digest(&content)) {
            // Another version of the frontend wrote it. What this one would write has another name, and the clean-up
            // would delete it, again and again.
            tracing::debug!(job = %self.snapshot.key, ?document, "chunks cannot be made again as they were");
            if matches!(stored, StoredDocument::Plan(WhichGeneration::Proposed)) {
                self.remember(|entry| entry.unstorable_plan = sha256.cloned());
                self.look_again(Duration::ZERO);
            }
            return Ok(());
        }
        let held_back = &self.observed.children.held_back;
        let is_left_alone = |name: &str| held_back.contains_key(name);
        let (writer, owner) = (self.writer(), &self.snapshot.owner);
        match documents::write(&writer, &document, owner, content, Thread::Awaited, is_left_alone).await {
            Ok(Written { changed, .. }) => {
                let now = self.reconciler.cluster.now();
                for (name, field) in changed {
                    self.remember(|entry| entry.restored(&self.snapshot.key, Owned::ConfigMap(name), &field, now));
                }
                Ok(())
            }
            Err(documents::WriteError::Kubernetes(error)) => Err(error),
            Err(error) => Err(Error::Call(kube::Error::Service(error.into()))),
        }
    }

    /// Restores what of the ConfigMap with a text or a chunk can be written: its labels and annotations.
    pub(super) async fn restore_metadata(&self, name: &str) -> Result<(), Error> {
        let mirrored = self.reconciler.mirrors.config_maps.get(&self.snapshot.key.sibling(name));
        let (Some(mirrored), Some(desired)) = (mirrored, drift::config_map(self.snapshot, name)) else { return Ok(()) };
        let fields = json!({
            "metadata": {"labels": desired.metadata.labels, "annotations": desired.metadata.annotations},
        });
        let restored = self.writer().restore::<ConfigMap>(&self.snapshot.owner, fields, &mirrored.metadata).await;
        restored.map(|_| self.note_restoration(&Owned::ConfigMap(name.to_owned())))
    }
}
