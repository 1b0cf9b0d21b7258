//! Writes and deletes the Secret with which PEs secure their connections (rule job-48).
//!
//! It is read first, whatever was seen of it before: nobody watches it. A write is made only if nobody has changed it
//! since, so that of two writers one goes on with the authority of the other.
//!
//! Knows: the API server, certificates. Must not know: the reasons of a decision. Invariant: no key is logged.

use super::MANAGER;
use super::act::Actor;
use super::transport::certificate::{CertificateError, Material, Names, inspect, issue, renew};
use super::transport::secret;
use k8s_openapi::api::core::v1::Secret;
use kube::Resource;
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
        let existing = cluster.get::<Secret>(&key.sibling(&names::transport_secret(&key.name))).await?;
        let Some(existing) = existing else { return self.make_transport().await };
        ensure_writable::<Secret>(&existing.metadata, Some(owner))?;
        self.delete_secret(&names::transport_copy(&key.name)).await?;
        let (material, is_new) = self.current(secret::material(&existing))?;
        let is_immutable = existing.immutable == Some(true);
        if !is_new && !is_immutable {
            return Ok(());
        }
        let changed = secret::with(&existing, &key.name, owner, &material);
        if is_immutable {
            return self.make_transport_again(changed, &material).await;
        }
        tracing::info!(job = %key, "renewed the certificate");
        cluster.replace(MANAGER, &changed).await.map(|_| ()).map_err(|error| written(&changed, error))
    }

    /// This material if its certificate is not due yet, else newer one of the same authority, if that can be used; and
    /// whether it is newer.
    fn current(&self, material: Option<Material>) -> Result<(Material, bool), Error> {
        let days = self.snapshot.job.spec.transport_certificate_validity_in_days;
        let (now, called) = (self.reconciler.cluster.now(), Names::of(&self.snapshot.key));
        let usable = material.and_then(|material| Some((inspect(&material).ok()?, material)));
        let newer = match usable {
            Some((certificates, material)) if now < certificates.renew_at(days) => return Ok((material, false)),
            Some((_, material)) => renew(&material, called, days, now),
            None => issue(called, days, now),
        };
        let newer = newer.map_err(|error: CertificateError| Error::Call(kube::Error::Service(error.into())))?;
        Ok((newer, true))
    }

    /// Makes the Secret, of what a copy has kept if a process has ended while it made the Secret again.
    async fn make_transport(&self) -> Result<(), Error> {
        let cluster = &self.reconciler.cluster;
        let (key, owner) = (&self.snapshot.key, &self.snapshot.owner);
        let name = names::transport_copy(&key.name);
        let copy = cluster.get::<Secret>(&key.sibling(&name)).await?;
        let ours = copy.filter(|copy| is_controlled_by(&copy.metadata, &*self.snapshot.job));
        let (material, _) = self.current(ours.as_ref().and_then(secret::material))?;
        let secret = secret::secret(&key.name, owner, &material);
        tracing::info!(job = %key, has_copy = ours.is_some(), "made the Secret for transport security");
        match cluster.create(&key.namespace, MANAGER, &secret).await {
            Ok(_) if ours.is_some() => self.delete_secret(&name).await,
            Ok(_) => Ok(()),
            // Somebody was faster: the next look finds it.
            Err(error) if is_already_exists(&error) => Ok(()),
            Err(error) => Err(written(&secret, error)),
        }
    }

    /// Makes the Secret again, which cannot be changed. A copy keeps the authority meanwhile: were it lost, PEs would
    /// not trust each other until all of them have read their files anew.
    async fn make_transport_again(&self, changed: Secret, material: &Material) -> Result<(), Error> {
        let cluster = &self.reconciler.cluster;
        let (key, owner) = (&self.snapshot.key, &self.snapshot.owner);
        let copy = secret::copy(&key.name, owner, material);
        cluster.create(&key.namespace, MANAGER, &copy).await.map_err(|error| match error {
            // One of the job would be deleted by now.
            error if is_already_exists(&error) => Error::Foreign {
                kind: Secret::kind(&()).into_owned(),
                name: names::transport_copy(&key.name),
                owner: "somebody else".to_owned(),
            },
            error => written(&copy, error),
        })?;
        let uid = changed.metadata.uid.clone();
        let name = names::transport_secret(&key.name);
        self.writer().delete::<Secret>(&name, uid.as_deref(), PropagationPolicy::Background).await?;
        let again = secret::again(changed);
        tracing::info!(job = %key, "somebody had made the Secret for transport security immutable; made it again");
        match cluster.create(&key.namespace, MANAGER, &again).await {
            Ok(_) => self.delete_secret(&names::transport_copy(&key.name)).await,
            // The next look finds what is there.
            Err(error) if is_already_exists(&error) => {
                Err(Error::Conflict { kind: Secret::kind(&()).into_owned(), name })
            }
            Err(error) => Err(written(&again, error)),
        }
    }

    /// Deletes the Secret, and a copy of it.
    pub(super) async fn delete_transport(&self) -> Result<(), Error> {
        let job = &self.snapshot.key.name;
        for name in [names::transport_copy(job), names::transport_secret(job)] {
            self.delete_secret(&name).await?;
        }
        self.remember(|entry| entry.transport = None);
        Ok(())
    }

    /// Deletes the Secret of this name if it is the job's.
    async fn delete_secret(&self, name: &str) -> Result<(), Error> {
        let existing = self.reconciler.cluster.get_metadata::<Secret>(&self.snapshot.key.sibling(name)).await?;
        let ours = existing.filter(|existing| is_controlled_by(existing, &*self.snapshot.job));
        let Some(uid) = ours.and_then(|existing| existing.uid) else { return Ok(()) };
        self.writer().delete::<Secret>(name, Some(&uid), PropagationPolicy::Background).await
    }
}
