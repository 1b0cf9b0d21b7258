//! Looks at the Secret for transport security, if it is of concern and was not looked at just now (rule job-48).

use crate::controllers::job::reconciler::JobReconciler;
use crate::controllers::job::transport::{RememberedSighting, Sighting, Transport};
use crate::controllers::times::Clocks;
use k8s_openapi::api::core::v1::Secret;
use kube::core::ObjectMeta;
use streams_api::{Job, JobStatus, TransportSecurity, names};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::ownership::is_controlled_by;

/// What is known of the Secret of a job; `None` if the job has none and never had one. `settled` is what the job was
/// submitted with, if it was.
pub(super) async fn look<C: Cluster>(
    reconciler: &JobReconciler<C>,
    key: &Key,
    job: &Job,
    status: &JobStatus,
    settled: Option<TransportSecurity>,
) -> Option<Transport> {
    let wanted = settled.unwrap_or(job.spec.pe_options().transport_security_type) != TransportSecurity::None;
    if !wanted && status.transport.is_none() {
        return None;
    }
    let days = job.spec.transport_certificate_validity_in_days;
    let sighting = sighting(reconciler, key, job).await;
    Some(Transport { wanted, days, sighting })
}

async fn sighting<C: Cluster>(reconciler: &JobReconciler<C>, key: &Key, job: &Job) -> Option<Sighting> {
    let clocks = Clocks::of(&reconciler.cluster);
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let known = reconciler.memory.with(key, uid, |entry| entry.transport.clone());
    // A process leaves a copy behind if it ends, or a call fails, while it makes the Secret again.
    let looks_for_copy = known.is_none();
    if let Some(known) = known.and_then(|known| known.found(clocks)) {
        return Some(known);
    }
    match read(reconciler, key, looks_for_copy).await {
        Ok((secret, copy)) => {
            let ours = secret.as_ref().filter(|secret| is_controlled_by(&secret.metadata, job));
            let mut seen = Sighting::of(ours, clocks.now);
            if let Some(secret) = &mut seen.secret {
                // That of somebody else stays, and one that is being deleted goes by itself.
                secret.has_copy =
                    copy.is_some_and(|copy| is_controlled_by(&copy, job) && copy.deletion_timestamp.is_none());
            }
            let remembered = RememberedSighting::new(seen.clone(), clocks);
            reconciler.memory.with(key, uid, |entry| entry.transport = Some(remembered));
            Some(seen)
        }
        Err(error) => {
            // Whoever is to write it fails, too, and the job says why.
            tracing::debug!(job = %key, %error, "the Secret for transport security cannot be read");
            None
        }
    }
}

/// The Secret, and what has the name of a copy of it, if that is to be looked for.
async fn read<C: Cluster>(
    reconciler: &JobReconciler<C>,
    key: &Key,
    looks_for_copy: bool,
) -> kube::Result<(Option<Secret>, Option<ObjectMeta>)> {
    let cluster = &reconciler.cluster;
    let secret = cluster.get::<Secret>(&key.sibling(&names::transport_secret(&key.name))).await?;
    let copy = key.sibling(&names::transport_copy(&key.name));
    let copy = if secret.is_some() && looks_for_copy { cluster.get_metadata::<Secret>(&copy).await? } else { None };
    Ok((secret, copy))
}
