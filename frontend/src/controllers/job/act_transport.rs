//! Writes and deletes the Secret with which PEs secure their connections (rule job-48).
//!
//! It is read first, whatever was seen of it before: nobody watches it. A write is made only if nobody has changed it
//! since, so that of two writers one goes on with the authority of the other.
//!
//! Knows: the API server, certificates. Must not know: the reasons of a decision. Invariant: no key is logged.

use super::MANAGER;
use super::act::Actor;
use super::transport::certificate::{CertificateError, Names, inspect, issue, renew};
use super::transport::secret;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PropagationPolicy;
use streams_api::names;
use streams_kubernetes::Error;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::error::{is_already_exists, written};
use streams_kubernetes::ownership::{ensure_writable, is_controlled_by};

impl<C: Cluster> Actor<'_, C> {
    /// Makes the Secret, renews its certificate if that is due, or makes new ones if they cannot be used.
    pub(super) async fn apply_transport(&self) -> Result<(), Error> {
        let result = self.write_transport().await;
        // Whatever came of it, what was seen before does not count any more.
        self.remember(|entry| entry.transport = None);
        result
    }

    async fn write_transport(&self) -> Result<(), Error> {
        let cluster = &self.reconciler.cluster;
        let (key, owner) = (&self.snapshot.key, &self.snapshot.owner);
        let days = self.snapshot.job.spec.transport_certificate_validity_in_days;
        let (now, called) = (cluster.now(), Names::of(key));
        let failed = |error: CertificateError| Error::Call(kube::Error::Service(error.into()));
        let existing = cluster.get::<Secret>(&key.sibling(&names::transport_secret(&key.name))).await?;
        let Some(existing) = existing else {
            let secret = secret::secret(&key.name, owner, &issue(called, days, now).map_err(failed)?);
            tracing::info!(job = %key, "made a certificate authority");
            return match cluster.create(&key.namespace, MANAGER, &secret).await {
                // Somebody was faster: the next look finds it.
                Err(error) if is_already_exists(&error) => Ok(()),
                created => created.map(|_| ()).map_err(|error| written(&secret, error)),
            };
        };
        ensure_writable::<Secret>(&existing.metadata, Some(owner))?;
        let usable = secret::material(&existing).and_then(|material| Some((inspect(&material).ok()?, material)));
        let material = match usable {
            Some((certificates, _)) if now < certificates.renew_at(days) => return Ok(()),
            Some((_, material)) => renew(&material, called, days, now).map_err(failed)?,
            None => issue(called, days, now).map_err(failed)?,
        };
        tracing::info!(job = %key, "renewed the certificate");
        let changed = secret::with(&existing, &key.name, owner, &material);
        cluster.replace(MANAGER, &changed).await.map(|_| ()).map_err(|error| written(&changed, error))
    }

    /// Deletes the Secret.
    pub(super) async fn delete_transport(&self) -> Result<(), Error> {
        let key = &self.snapshot.key;
        let name = names::transport_secret(&key.name);
        let existing = self.reconciler.cluster.get_metadata::<Secret>(&key.sibling(&name)).await?;
        let ours = existing.filter(|existing| is_controlled_by(existing, &*self.snapshot.job));
        if let Some(uid) = ours.and_then(|existing| existing.uid) {
            self.writer().delete::<Secret>(&name, Some(&uid), PropagationPolicy::Background).await?;
        }
        self.remember(|entry| entry.transport = None);
        Ok(())
    }
}
