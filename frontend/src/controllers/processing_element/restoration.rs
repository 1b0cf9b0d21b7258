//! Restores what others have changed of the metadata of a PE's pod (rules pe-25 and call-19). Somebody else may insist
//! on a change: then pauses grow, as with all that is restored.
//!
//! Knows: how often the metadata of a PE's pods was restored. Must not know: which metadata that is.
//!
//! Invariant: only the pod is written whose uid the PE has recorded, and of it nothing but metadata.

use super::decide::PodToRestore;
use super::metadata::{Wanted, patch, spoilt};
use super::observed::Contention;
use super::reconciler::PeReconciler;
use crate::controllers::restorations::Restorations;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use streams_api::ProcessingElement;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::error::{is_conflict, is_not_found};
use streams_kubernetes::ownership::controller;
use streams_kubernetes::{Error, Key};

/// What restorations so far say of the next one.
pub(super) struct Told {
    /// There is none before.
    pub(super) not_before: Option<Timestamp>,
    /// Somebody else insists. Not if it is the API server that does not let the pod be changed.
    pub(super) contention: Option<Contention>,
}

impl<C: Cluster> PeReconciler<C> {
    /// How often metadata of the PE's pods was restored. Forgets what does not count any more.
    pub(super) fn told_of_restorations(&self, key: &Key, uid: &str, now: Timestamp) -> Told {
        let known = self.restorations.find(key, uid, |restorations| restorations.clone());
        let Some(known) = known else { return Told { not_before: None, contention: None } };
        if !known.count(now) {
            self.restorations.forget(key, uid);
            return Told { not_before: None, contention: None };
        }
        let until = known.contended_until().filter(|_| !known.in_vain);
        let contention = until.map(|until| Contention { field: known.field.clone(), until });
        Told { not_before: known.not_before().filter(|at| now < *at), contention }
    }

    /// Restores the metadata of the pod, if the API server shows that it is spoilt. Whether it did.
    ///
    /// # Errors
    /// Failures of the calls; somebody has written the pod meanwhile. That the API server does not permit it is none:
    /// it is tried again after a pause.
    pub(super) async fn restore(
        &self,
        key: &Key,
        pe: &ProcessingElement,
        spoilt_pod: &PodToRestore,
    ) -> Result<bool, Error> {
        let pod = key.sibling(&spoilt_pod.name);
        let Some(found) = self.cluster.get::<Pod>(&pod).await? else { return Ok(false) };
        let launch = pe.status.as_ref().and_then(|status| status.launch_of(found.metadata.uid.as_deref()));
        let Some(launch) = launch.filter(|_| found.metadata.deletion_timestamp.is_none()) else { return Ok(false) };
        let Some(mut field) = spoilt(found.meta(), pe, launch) else { return Ok(false) };
        // When a PE is deleted without its pod, that is what takes the reference away (rule pe-22).
        let may_own = controller(found.meta()).is_some() || self.is_there(key, pe).await?;
        if !may_own {
            let Some(of_text) = Wanted::of(pe, launch).difference(found.meta()) else { return Ok(false) };
            field = of_text;
        }
        let patch = patch(found.meta(), pe, launch, may_own);
        let (uid, now) = (pe.uid().unwrap_or_default(), self.cluster.now());
        match self.cluster.merge::<Pod>(self.writer(key).manager, &pod, &patch).await {
            Ok(_) => {
                tracing::info!(%pod, field, "somebody had changed it; restored");
                self.restorations.with(key, &uid, Restorations::default, |known| known.note(&field, now));
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 403 || status.code == 422 => {
                tracing::warn!(%pod, field, refused = status.message, "somebody had changed it; it may not be restored");
                self.restorations.with(key, &uid, Restorations::default, |known| known.note_in_vain(&field, now));
                Ok(true)
            }
            Err(error) if is_not_found(&error) => Ok(false),
            Err(error) if is_conflict(&error) => {
                Err(Error::Conflict { kind: Pod::kind(&()).into_owned(), name: spoilt_pod.name.clone() })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the API server has this PE, and nobody deletes it.
    async fn is_there(&self, key: &Key, pe: &ProcessingElement) -> Result<bool, Error> {
        let found = self.cluster.get_metadata::<ProcessingElement>(key).await?;
        Ok(found.is_some_and(|found| found.uid == pe.metadata.uid && found.deletion_timestamp.is_none()))
    }
}
