//! Applies PEs. One that somebody has deleted, and that is made again, says so (rule pe-6).
//!
//! All PEs of a generation are there when it is committed. So whichever the roll-out does not find was there before,
//! and its operators have run, once all pods of the job were created. Only the object can say that: when its first pod
//! is created, which may be long after, nothing else tells it from a PE that the job has just got.
//!
//! What says it is an annotation that the object is created with, and no part of what is applied: the hash does not
//! cover it, so it makes no difference to what others change, or to what another version of the frontend writes.
//!
//! Knows: the API server. Must not know: launches. Invariant: a PE that was there is never said to be made again.

use super::Actor;
use crate::controllers::job::decide::is_submitted;
use kube::{Resource, ResourceExt};
use streams_api::{ProcessingElement, names};
use streams_kubernetes::Error;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::error::{is_already_exists, written};
use streams_kubernetes::writer::{Applied, hash};

impl<C: Cluster> Actor<'_, C> {
    /// Makes a PE of this generation what is `desired`.
    ///
    /// # Errors
    /// As [`Writer::apply`](streams_kubernetes::writer::Writer::apply), and if it cannot be read whether one that the
    /// mirror does not show says that it was made again: applied without, it would never say so.
    pub(super) async fn apply_pe(
        &self,
        generation: u64,
        desired: &ProcessingElement,
    ) -> Result<Applied<ProcessingElement>, Error> {
        let (cluster, writer) = (&self.reconciler.cluster, self.writer());
        let key = self.snapshot.key.sibling(&desired.name_any());
        let shown = self.reconciler.mirrors.processing_elements.get(&key);
        let is_rolled_out = self.observed.status.generation == Some(generation) && is_submitted(self.observed);
        let (mut found, mut unreadable_says_so) = (None, false);
        if shown.is_none() && is_rolled_out {
            let again = made_again(desired)?;
            match cluster.create(writer.namespace, writer.manager, &again).await {
                Ok(created) => return Ok(Applied::Written(Box::new(created))),
                // The mirror is behind. Perhaps it was made again by a call that was not answered. One that is gone by
                // now is left to the next look: made here, it would not say that it was made again.
                Err(error) if is_already_exists(&error) => {
                    let (kind, name) = (ProcessingElement::kind(&()).into_owned(), desired.name_any());
                    let gone = Error::Conflict { kind, name };
                    match cluster.get::<ProcessingElement>(&key).await {
                        Ok(read) => found = Some(read.ok_or(gone)?),
                        // What cannot be read can be written: its metadata says whether it was made again.
                        Err(kube::Error::SerdeError(_)) => {
                            let meta = cluster.get_metadata::<ProcessingElement>(&key).await?.ok_or(gone)?;
                            let annotations = meta.annotations.unwrap_or_default();
                            unreadable_says_so = annotations.contains_key(names::ANNOTATION_MADE_AGAIN);
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(written(&again, error)),
            }
        }
        let existing = found.as_ref().or(shown.as_deref());
        let says_so = |pe: &ProcessingElement| pe.annotations().contains_key(names::ANNOTATION_MADE_AGAIN);
        let is_made_again = unreadable_says_so || existing.is_some_and(says_so);
        let again = is_made_again.then(|| made_again(desired)).transpose()?;
        let desired = again.as_ref().unwrap_or(desired);
        // On the heap, as all that applies a PE: debug builds need much of the stack of a thread for each call.
        let applied = Box::pin(writer.apply(names::ANNOTATION_APPLIED_HASH, desired, existing)).await?;
        Ok(match (applied, found) {
            // It is not shown yet.
            (Applied::Unchanged, Some(found)) => Applied::Written(Box::new(found)),
            (applied, _) => applied,
        })
    }
}

/// The PE with what says that it is made again, beside the hash of what it is without.
fn made_again(desired: &ProcessingElement) -> Result<ProcessingElement, Error> {
    let mut again = desired.clone();
    let hash = hash(desired)?;
    let added = [(names::ANNOTATION_APPLIED_HASH, hash), (names::ANNOTATION_MADE_AGAIN, "true".to_owned())];
    again.annotations_mut().extend(added.map(|(key, value)| (key.to_owned(), value)));
    Ok(again)
}
