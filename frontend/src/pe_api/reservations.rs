//! Reserves the name of an endpoint in its job, so that of two PEs that register it at the same moment one succeeds
//! (rule pe-api-5).
//!
//! The endpoints of a job are in the statuses of its PEs, and no write of two objects is one. So a ConfigMap that is
//! named after job and endpoint decides: the API server creates it once. Whoever has it writes the endpoint into its
//! status then.
//!
//! ```text
//!  nobody's ──create──► reserved by a PE ──► its status has the endpoint ──unregister──► deleted
//!                           │  ▲
//!                           └──┘ taken over, with the version that was read: the PE is gone, or has no such endpoint
//!                                and had the time to write it
//! ```
//!
//! Knows: the API server, who has a reservation. Must not know: requests, mirrors.
//!
//! Invariants: a status gets an endpoint from the PE only that has the reservation and has renewed it less than
//! [`COUNTS`] before; a reservation of a PE that has the endpoint is never taken over.

use super::MANAGER;
use super::refusal::Refusal;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Preconditions};
use kube::core::ObjectMeta;
use serde_json::json;
use std::collections::BTreeMap;
use streams_api::{ProcessingElement, names};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::error::{is_already_exists, is_conflict, is_not_found};
use streams_kubernetes::ownership::{controlled_by, controller};

/// Endpoints that a PE may have at most.
pub(super) const ENDPOINTS_MAX: usize = 100;
/// How long a reservation counts although its PE has no such endpoint: longer than a write may be on its way and the
/// API server works on it (60 s by default).
const COUNTS: SignedDuration = SignedDuration::from_secs(120);
/// Key of the time of the reservation.
const AT: &str = "reservedAt";
/// Others may be faster so often.
const ATTEMPTS: usize = 8;

/// A reservation as it was when this PE had it.
pub(super) struct Reservation {
    key: Key,
    seen: Preconditions,
}

/// A PE that registers an endpoint, or gives one up: what is needed of it meanwhile. The PE itself may be large, and
/// many may wait for their turns.
#[derive(Clone)]
pub(super) struct Registrant {
    /// The PE.
    pub(super) key: Key,
    /// Its number.
    pub(super) id: u64,
    /// How many endpoints it has.
    pub(super) endpoints: usize,
    job: String,
    owner: OwnerReference,
}

impl Registrant {
    /// This PE.
    pub(super) fn of(pe: &ProcessingElement) -> Self {
        let endpoints = pe.status.as_ref().map_or(0, |status| status.endpoints.len());
        Self { key: Key::of(pe), id: pe.spec.id, endpoints, job: pe.spec.job_name.clone(), owner: controlled_by(pe) }
    }

    fn controls(&self, meta: &ObjectMeta) -> bool {
        !self.owner.uid.is_empty() && controller(meta).is_some_and(|owner| owner.uid == self.owner.uid)
    }
}

/// Reserves the name for this PE, or renews its reservation.
///
/// # Errors
/// Another PE has the name, or is just registering it; somebody else has an object of the reservation's name; a call
/// failed.
pub(super) async fn reserve<C: Cluster>(cluster: &C, pe: &Registrant, endpoint: &str) -> Result<Reservation, Refusal> {
    let key = key(pe, endpoint);
    let failed = |error: kube::Error| Refusal::of(&error.into());
    for _ in 0..ATTEMPTS {
        let wanted = reservation(pe, endpoint, cluster.now());
        match cluster.create(&key.namespace, MANAGER, &wanted).await {
            Ok(created) => return Ok(Reservation::of(key, created)),
            Err(error) if is_already_exists(&error) => {}
            Err(error) => return Err(failed(error)),
        }
        let Some(found) = cluster.get::<ConfigMap>(&key).await.map_err(failed)? else { continue };
        if !pe.controls(&found.metadata) {
            may_be_taken_over(cluster, pe, endpoint, &found).await?;
        }
        let patch = json!({
            "metadata": {
                "uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version,
                "labels": wanted.metadata.labels, "ownerReferences": wanted.metadata.owner_references,
            },
            "data": wanted.data,
        });
        match cluster.merge::<ConfigMap>(MANAGER, &key, &patch).await {
            Ok(renewed) => return Ok(Reservation::of(key, renewed)),
            // Somebody was faster.
            Err(error) if is_conflict(&error) || is_not_found(&error) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(Refusal::Later("others write the reservation of this name".to_owned()))
}

/// The reservation of a name, if this PE has it.
///
/// # Errors
/// The call failed.
pub(super) async fn find<C: Cluster>(
    cluster: &C,
    pe: &Registrant,
    endpoint: &str,
) -> Result<Option<Reservation>, Refusal> {
    let key = key(pe, endpoint);
    let found = cluster.get::<ConfigMap>(&key).await.map_err(|error| Refusal::of(&error.into()))?;
    Ok(found.filter(|found| pe.controls(&found.metadata)).map(|found| Reservation::of(key, found)))
}

impl Reservation {
    fn of(key: Key, map: ConfigMap) -> Self {
        let ObjectMeta { uid, resource_version, .. } = map.metadata;
        Self { key, seen: Preconditions { uid, resource_version } }
    }

    /// Gives it back, unless somebody has renewed it or taken it over since: that one needs it. False if the call
    /// fails; what is left over then does not count for long, and goes with the PE.
    pub(super) async fn release<C: Cluster>(self, cluster: &C) -> bool {
        let parameters = DeleteParams { preconditions: Some(self.seen), ..DeleteParams::default() };
        match cluster.delete::<ConfigMap>(&self.key, &parameters).await {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(reservation = %self.key, error = %error, "not given back");
                // Somebody else has it.
                is_conflict(&error) || is_not_found(&error)
            }
        }
    }
}

/// Whether another PE that has the reservation does without the name.
async fn may_be_taken_over<C: Cluster>(
    cluster: &C,
    pe: &Registrant,
    endpoint: &str,
    found: &ConfigMap,
) -> Result<(), Refusal> {
    let job = &pe.job;
    let owner = controller(&found.metadata).filter(|owner| owner.kind == "ProcessingElement");
    let Some(owner) = owner else {
        let name = found.metadata.name.clone().unwrap_or_default();
        return Err(Refusal::Invalid(format!(
            "ConfigMap {name}, which is not of a PE, is in the way of endpoint {endpoint}"
        )));
    };
    let holder = Key::new(found.metadata.namespace.as_deref().unwrap_or_default(), &owner.name);
    let holder = cluster.get::<ProcessingElement>(&holder).await.map_err(|error| Refusal::of(&error.into()))?;
    let Some(holder) = holder.filter(|holder| holder.metadata.uid.as_deref() == Some(&owner.uid)) else {
        return Ok(());
    };
    let has = |words: &str| Refusal::Invalid(format!("PE {} of job {job} {words} endpoint {endpoint}", holder.spec.id));
    let mut endpoints = holder.status.iter().flat_map(|status| &status.endpoints);
    if endpoints.any(|other| other.name == endpoint) {
        return Err(has("has already"));
    }
    let at = found.data.as_ref().and_then(|data| data.get(AT)?.parse::<Timestamp>().ok());
    let is_over = at.is_none_or(|at| cluster.now().duration_since(at) >= COUNTS);
    if is_over { Ok(()) } else { Err(has("is registering")) }
}

fn key(pe: &Registrant, endpoint: &str) -> Key {
    pe.key.sibling(&names::endpoint_reservation(&pe.job, endpoint))
}

fn reservation(pe: &Registrant, endpoint: &str, at: Timestamp) -> ConfigMap {
    let mut labels = names::pe_labels(&pe.job, pe.id);
    // Nobody watches it.
    labels.remove(names::LABEL_APP);
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(names::endpoint_reservation(&pe.job, endpoint)),
            labels: Some(labels),
            owner_references: Some(vec![pe.owner.clone()]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(AT.to_owned(), at.to_string())])),
        ..ConfigMap::default()
    }
}
