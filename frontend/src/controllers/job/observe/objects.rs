//! The objects of a job, as they are and as they should be.
//!
//! Knows: mirrors, what generations want. Must not know: what this process has written and the mirrors do not show.

use super::plans::{Plans, digests};
use super::strangers::taken;
use super::unsaid_pods;
use crate::controllers::job::child::Child;
use crate::controllers::job::objects::user_ports::{Hashes, UserPorts};
use crate::controllers::job::observed::drift::{self, Difference, WantedObjects};
use crate::controllers::job::observed::mirrored::MirroredChildren;
use crate::controllers::job::observed::snapshot::JobSnapshot;
use crate::controllers::job::observed::{Children, Loaded, ObservedObject};
use crate::controllers::job::off_thread::{OF_AN_OBJECT, not_computed, off_thread, off_thread_if_many};
use crate::controllers::job::owned::Owned;
use crate::controllers::job::reconciler::JobReconciler;
use crate::controllers::job::removed_pods::pods_left;
use crate::controllers::job::transport::{GOOD, Transport};
use crate::mirrors::Mirrors;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streams_api::{JobStatus, names};
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::writer::hash;
use streams_kubernetes::{Error, Key};

/// The objects of a job, as they are and as they should be.
pub(super) struct Objects {
    /// As the mirrors show them.
    pub(super) mirrored: Arc<MirroredChildren>,
    /// What decisions depend on.
    pub(super) children: Children,
    /// What others changed of them.
    pub(super) differences: BTreeMap<Owned, Difference>,
    /// Hash of the job's ConfigMap as it should be.
    pub(super) job_config_map: String,
}

/// Looks at the objects, and compares them with what was applied.
pub(super) async fn objects<C: Cluster>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    status: &JobStatus,
    plans: &Plans,
    transport: Option<&Transport>,
    now: Timestamp,
) -> Result<Objects, Error> {
    let JobSnapshot { key, job, .. } = snapshot;
    let digests = digests(status);
    let job_config_map = job_config_map(reconciler, snapshot, &digests)?;
    let mirrored = reconciler.look_at_children(key, job);
    let user_ports = user_ports(reconciler, snapshot, &digests, &mirrored, now).await?;
    let wanted = WantedObjects {
        snapshot: snapshot.clone(),
        generations: [&plans.committed, &plans.proposed].map(|loaded| match loaded {
            Some(Loaded::Whole(wanted)) => Some(Arc::clone(wanted)),
            _ => None,
        }),
        job_config_map: job_config_map.clone(),
        user_ports: user_ports.clone(),
    };
    let mut differences = differences(reconciler, wanted, &mirrored).await?;
    let mut children = Children { user_ports, ..mirrored.children() };
    let rolled_out = plans.committed.as_ref().and_then(Loaded::whole);
    unsaid_pods::add_to(&mut children, &reconciler.mirrors, key, status, rolled_out);
    add_pods_left(&mut children, &reconciler.mirrors, key, plans);
    let missing = plans.wanted().flat_map(|wanted| wanted.processing_elements.keys());
    let missing = missing.filter(|id| !children.processing_elements.contains_key(id));
    let missing: BTreeSet<u64> = missing.copied().collect();
    children.taken.extend(taken(&reconciler.mirrors, key, job, &missing));
    children.unreadable = missing.into_iter().filter(|id| reconciler.mirrors.has_unreadable_pe(key, *id)).collect();
    add_secret(&mut children, &mut differences, transport, now);
    Ok(Objects { mirrored, children, differences, job_config_map })
}

/// Adds which of the PEs that no generation has, and that are being deleted and do not go, still have pods.
fn add_pods_left(children: &mut Children, mirrors: &Mirrors, job: &Key, plans: &Plans) {
    let is_wanted = |id: &u64| plans.wanted().any(|wanted| wanted.processing_elements.contains_key(id));
    for (id, pe) in children.processing_elements.iter_mut().filter(|(_, pe)| pe.object.going.is_some()) {
        let key = job.sibling(&names::processing_element(&job.name, *id));
        pe.has_pods_left = !is_wanted(id) && !pods_left(mirrors, &key).is_empty();
    }
}

/// Adds the Secret for transport security, which no mirror shows, as it was seen last.
fn add_secret(
    children: &mut Children,
    differences: &mut BTreeMap<Owned, Difference>,
    transport: Option<&Transport>,
    now: Timestamp,
) {
    if let Some(Transport { days, sighting: Some(sighting), .. }) = transport
        && let Some((seen, is_good)) = sighting.secret.as_ref().zip(sighting.is_good(*days, now))
    {
        // One that cannot be written and does not go is only named: it is made again when it is gone.
        let is_stuck = seen.immutable && seen.going.is_some();
        let applied = if is_good || is_stuck { GOOD } else { "" }.to_owned();
        if !is_stuck && seen.is_only_immutable(*days, now) {
            let difference = Difference { field: "immutable".to_owned(), ..Difference::default() };
            differences.insert(Owned::Child(Child::TransportSecret), difference);
        }
        let (deleting, going) = (seen.going.is_some(), seen.going.clone());
        let secret = ObservedObject { applied, deleting, going, ..ObservedObject::default() };
        children.interfaces.insert(Child::TransportSecret, secret);
    }
}

/// Hash of the job's ConfigMap as it should be, computed once for each pair of plans. While one of them is lost, which
/// may be found again, that is not how it should be.
fn job_config_map<C>(reconciler: &JobReconciler<C>, snapshot: &JobSnapshot, digests: &[&str]) -> Result<String, Error> {
    let known = reconciler.memory.with(&snapshot.key, snapshot.uid(), |entry| {
        entry.job_config_map.as_ref().filter(|(of, _)| of == digests).map(|(_, hash)| hash.clone())
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let computed = hash(&snapshot.config_map())?;
    let read = [&snapshot.committed, &snapshot.proposed].into_iter().flatten().count();
    if read == digests.len() {
        let of = digests.iter().map(|digest| (*digest).to_owned()).collect();
        let kept = Some((of, computed.clone()));
        reconciler.memory.with(&snapshot.key, snapshot.uid(), |entry| entry.job_config_map = kept);
    }
    Ok(computed)
}

/// The ports of Services that operators have opened under a name, with the hashes of these Services. They are computed
/// again only when plans or endpoints are others.
async fn user_ports<C>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    digests: &[&str],
    mirrored: &MirroredChildren,
    now: Timestamp,
) -> Result<UserPorts, Error> {
    let (memory, key, uid) = (&reconciler.memory, &snapshot.key, snapshot.uid());
    let (ports, known) = memory.with(key, uid, |entry| {
        let ports = entry.user_ports.follow(&mirrored.endpoints, now);
        let known = entry.user_ports.hashes(digests, &ports.endpoints);
        (ports, known)
    });
    let known = if ports.endpoints.is_empty() { Some(Arc::default()) } else { known };
    if let Some(hashes) = known {
        return Ok(UserPorts { hashes, ..ports });
    }
    // There may be thousands: not on a thread that serves others.
    let (of, endpoints) = (snapshot.clone(), Arc::clone(&ports.endpoints));
    let computed = off_thread(move || {
        let mut hashes = Hashes::new();
        for generation in [&of.committed, &of.proposed].into_iter().flatten() {
            for (id, endpoints) in &*endpoints {
                let Some((pe, _)) = generation.member(*id) else { continue };
                let service = of.builder().service(&generation.plan, pe, endpoints);
                hashes.insert((generation.number, *id), hash(&service)?);
            }
        }
        Ok::<_, Error>(Arc::new(hashes))
    });
    let hashes = computed.await.map_err(not_computed)??;
    memory.with(key, uid, |entry| entry.user_ports.keep(digests, &ports.endpoints, &hashes));
    Ok(UserPorts { hashes, ..ports })
}

/// What differs from what was applied, by object. Thousands of objects are compared when a process begins, and few when
/// somebody waits for a resize of a small job.
async fn differences<C>(
    reconciler: &JobReconciler<C>,
    wanted: WantedObjects,
    mirrored: &Arc<MirroredChildren>,
) -> Result<BTreeMap<Owned, Difference>, Error> {
    let (key, uid) = (wanted.snapshot.key.clone(), wanted.snapshot.uid().to_owned());
    let (before, written) = reconciler.memory.with(&key, &uid, |entry| {
        let written = entry.own_writes.applied(|owned| mirrored.version(owned));
        (std::mem::take(&mut entry.compared), written)
    });
    let mirrored = Arc::clone(mirrored);
    let agrees = |(number, fingerprint): &(u64, u64)| before.get(*number).is_some_and(|it| it.has_agreed(*fingerprint));
    let known = if before.is_empty() { 0 } else { mirrored.fingerprints().filter(agrees).count() };
    let amount = mirrored.len().saturating_add(mirrored.len().saturating_sub(known).saturating_mul(OF_AN_OBJECT));
    let compared = off_thread_if_many(amount, move || drift::differences(&wanted, &mirrored, &before, &written)).await;
    let (found, compared) = compared.map_err(not_computed)??;
    reconciler.memory.with(&key, &uid, |entry| entry.compared = compared);
    Ok(found)
}
