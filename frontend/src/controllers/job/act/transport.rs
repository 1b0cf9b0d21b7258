//! Writes and deletes the Secret with which PEs secure their connections (rule job-48).
//!
//! It is read first, whatever was seen of it before: nobody watches it. A write is made only if nobody has changed it
//! since, so that of two writers one goes on with the authority of the other.
//!
//! Knows: the API server, certificates. Must not know: the reasons of a decision. Invariant: no key is logged.

use super::Actor;
use crate::controllers::job::MANAGER;
use crate::controllers::job::transport::certificate::{CertificateError, Material, Names, inspect, issue, renew};
use crate::controllers::job::transport::secret;
use k8s_openapi::api::core::v1::Secret;
use kube::Resource;
use kube::api::PropagationPolicy;
use std::time::Duration;
use streams_api::names;
use streams_kubernetes::Error;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::error::{is_already_exists, written};
use streams_kubernetes::ownership::{ensure_controlled, ensure_writable, is_controlled_by};

/// When the Secret is looked at again of which nothing had to be written after all: somebody else has, or what was seen
/// before was not so. At once, whoever is wrong about it would ask the API server without end.
const UNWRITTEN: Duration = Duration::from_secs(5);

/// Whether anything was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrote {
    Yes,
    No,
}

impl Wrote {
    fn or(self, other: Self) -> Self {
        if self == Self::Yes { self } else { other }
    }
}

impl<C: Cluster> Actor<'_, C> {
    /// Makes the Secret, renews its certificate if that is due, or makes new ones if they cannot be used.
    pub(super) async fn apply_transport(&self) -> Result<(), Error> {
        let result = self.write_transport().await;
        self.look_at_transport_again(*result.as_ref().unwrap_or(&Wrote::No));
        result.map(|_| ())
    }

    /// What was seen of the Secret before does not count any more. No change of an object tells what comes of a write.
    fn look_at_transport_again(&self, wrote: Wrote) {
        self.remember(|entry| entry.transport = None);
        self.look_again(if wrote == Wrote::Yes { Duration::ZERO } else { UNWRITTEN });
    }

    async fn write_transport(&self) -> Result<Wrote, Error> {
        let cluster = &self.reconciler.cluster;
        let (key, owner) = (&self.snapshot.key, &self.snapshot.owner);
        let existing = cluster.get::<Secret>(&key.sibling(&names::transport_secret(&key.name))).await?;
        let Some(existing) = existing else { return self.make_transport().await };
        // PEs read it as long as it is there, and need a certificate that is valid, whoever deletes it.
        ensure_controlled::<Secret>(&existing.metadata, Some(owner))?;
        let is_immutable = existing.immutable == Some(true);
        if is_immutable {
            // One that is being deleted is made again when it is gone, with the authority that the copy keeps.
            ensure_writable::<Secret>(&existing.metadata, Some(owner))?;
        }
        let deleted = self.delete_secret(&names::transport_copy(&key.name)).await?;
        let (material, is_new) = self.current(secret::material(&existing))?;
        if !is_new && !is_immutable {
            return Ok(deleted);
        }
        let changed = secret::with(&existing, &key.name, owner, &material);
        if is_immutable {
            return self.make_transport_again(changed, &material).await;
        }
        tracing::info!(job = %key, "renewed the certificate");
        cluster.replace(MANAGER, &changed).await.map(|_| Wrote::Yes).map_err(|error| written(&changed, error))
    }

    /// This material if its certificate can be used and is not due yet, else newer one of the same authority, if that
    /// can be used; and whether it is newer. What this process makes is valid by its own clock, so that it is not made
    /// again and again, whatever that clock says.
    fn current(&self, material: Option<Material>) -> Result<(Material, bool), Error> {
        let days = self.snapshot.job.spec.transport_certificate_validity_in_days;
        let (now, called) = (self.reconciler.cluster.now(), Names::of(&self.snapshot.key));
        let usable = material.and_then(|material| Some((inspect(&material).ok()?, material)));
        let usable = usable.filter(|(certificates, _)| certificates.has_valid_authority(now));
        let newer = match usable {
            Some((certificates, material)) if certificates.is_good(days, now) => return Ok((material, false)),
            Some((_, material)) => renew(&material, called, days, now),
            None => issue(called, days, now),
        };
        let newer = newer.map_err(|error: CertificateError| Error::Call(kube::Error::Service(error.into())))?;
        Ok((newer, true))
    }

    /// Makes the Secret, of what a copy has kept if a process has ended while it made the Secret again.
    async fn make_transport(&self) -> Result<Wrote, Error> {
        let cluster = &self.reconciler.cluster;
        let (key, owner) = (&self.snapshot.key, &self.snapshot.owner);
        let name = names::transport_copy(&key.name);
        let copy = cluster.get::<Secret>(&key.sibling(&name)).await?;
        let ours = copy.filter(|copy| is_controlled_by(&copy.metadata, &*self.snapshot.job));
        let (material, _) = self.current(ours.as_ref().and_then(secret::material))?;
        let secret = secret::secret(&key.name, owner, &material);
        tracing::info!(job = %key, has_copy = ours.is_some(), "made the Secret for transport security");
        match cluster.create(&key.namespace, MANAGER, &secret).await {
            Ok(_) if ours.is_some() => self.delete_secret(&name).await.map(|_| Wrote::Yes),
            Ok(_) => Ok(Wrote::Yes),
            // Somebody was faster: the next look finds it.
            Err(error) if is_already_exists(&error) => {
                Err(Error::Conflict { kind: Secret::kind(&()).into_owned(), name: names::transport_secret(&key.name) })
            }
            Err(error) => Err(written(&secret, error)),
        }
    }

    /// Makes the Secret again, which cannot be changed. A copy keeps the authority meanwhile: were it lost, PEs would
    /// not trust each other until all of them have read their files anew.
    async fn make_transport_again(&self, changed: Secret, material: &Material) -> Result<Wrote, Error> {
        let cluster = &self.reconciler.cluster;
        let (key, owner) = (&self.snapshot.key, &self.snapshot.owner);
        let copy = secret::copy(&key.name, owner, material);
        match cluster.create(&key.namespace, MANAGER, &copy).await {
            Ok(_) => {}
            // One of the job would be deleted by now, or is about to go.
            Err(error) if is_already_exists(&error) => {
                let name = names::transport_copy(&key.name);
                if let Some(existing) = cluster.get_metadata::<Secret>(&key.sibling(&name)).await? {
                    ensure_writable::<Secret>(&existing, Some(owner))?;
                }
                return Err(Error::Conflict { kind: Secret::kind(&()).into_owned(), name });
            }
            Err(error) => return Err(written(&copy, error)),
        }
        let uid = changed.metadata.uid.clone();
        let name = names::transport_secret(&key.name);
        self.writer().delete::<Secret>(&name, uid.as_deref(), PropagationPolicy::Background).await?;
        let again = secret::again(changed);
        tracing::info!(job = %key, "somebody had made the Secret for transport security immutable; made it again");
        match cluster.create(&key.namespace, MANAGER, &again).await {
            Ok(_) => self.delete_secret(&names::transport_copy(&key.name)).await.map(|_| Wrote::Yes),
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
        let mut wrote = Wrote::No;
        for name in [names::transport_copy(job), names::transport_secret(job)] {
            wrote = wrote.or(self.delete_secret(&name).await?);
        }
        self.look_at_transport_again(wrote);
        Ok(())
    }

    /// Deletes the Secret of this name if it is the job's, and nobody is deleting it.
    async fn delete_secret(&self, name: &str) -> Result<Wrote, Error> {
        let existing = self.reconciler.cluster.get_metadata::<Secret>(&self.snapshot.key.sibling(name)).await?;
        let ours = existing.filter(|existing| is_controlled_by(existing, &*self.snapshot.job));
        let stays = ours.filter(|existing| existing.deletion_timestamp.is_none());
        let Some(uid) = stays.and_then(|existing| existing.uid) else { return Ok(Wrote::No) };
        self.writer().delete::<Secret>(name, Some(&uid), PropagationPolicy::Background).await.map(|()| Wrote::Yes)
    }
}
