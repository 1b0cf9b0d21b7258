//! The pod of a PE (rules pod-1 and pod-3), built from the PE alone and from what its job was given: its host pool, its
//! redis servers.
//!
//! Two hashes tell pods apart that were made from other options (rule pod-2): [`observed::TemplateHashes::hash`] covers
//! everything but the launch, the text and the place; [`observed::TemplateHashes::placement`] covers the place. The
//! second is over what is asked for, not over how it is expressed, because another value restarts the PE, and a new
//! version of the frontend must not. It covers the number of the host pool, too, which a resize keeps as long as names
//! of pools are unique (rule expansion-25).
//!
//! What running PEs rely on is frozen: variables and their order, mount paths, the program, user and group.
//!
//! Knows: the API of pods, options. Must not know: status, policies, time. Invariant: the same input, the same bytes.

mod container;
mod environment;
pub(crate) mod placement;
mod volumes;

#[cfg(test)]
mod tests;

use crate::controllers::placement_hash::placement_hash;
use crate::pods_of_pe;
use crate::settings::PodSettings;
use k8s_openapi::api::core::v1::{
    LocalObjectReference, Pod, PodDNSConfig, PodDNSConfigOption, PodSecurityContext, PodSpec,
};
use kube::ResourceExt;
use kube::core::ObjectMeta;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use streams_api::{AadlConfigMap, HostPoolSpec, ProcessingElement, names};
use streams_kubernetes::ownership::controlled_by;

pub(crate) use self::container::PE as CONTAINER;
use super::observed::{self, Obstacle};

/// User that the runtime image is made for.
const USER: i64 = 2098;
/// Its group.
const GROUP: i64 = 2015;

/// What a pod is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    /// The PE.
    pub(crate) pe: &'a ProcessingElement,
    /// The host pool of its placement, if it has one.
    pub(crate) pool: Option<&'a HostPoolSpec>,
    /// The redis servers of its checkpoints, if they are kept there, as the runtime wants to be told of them.
    pub(crate) redis: Option<&'a str>,
    /// What applies where the PE says nothing.
    pub(crate) settings: &'a PodSettings,
}

/// Everything of a pod but its launch.
#[derive(Clone, Debug)]
pub(crate) struct PodTemplate<'a> {
    parts: Parts<'a>,
    placement: placement::Expressed,
    hashes: observed::TemplateHashes,
}

impl<'a> PodTemplate<'a> {
    /// Prepares the pod of a PE.
    ///
    /// # Errors
    /// Says what the pod lacks.
    pub(crate) fn of(parts: Parts<'a>) -> Result<Self, Obstacle> {
        let spec = &parts.pe.spec;
        if spec.placement.pool.is_some() && parts.pool.is_none() {
            return Err(Obstacle {
                reason: "HostPoolMissing",
                message: "the host pool of the PE does not exist".to_owned(),
            });
        }
        volumes::check(parts)?;
        environment::check(parts)?;
        let placement = placement_hash(&spec.placement, parts.pool);
        if spec.placement_hash.as_ref().is_some_and(|wanted| *wanted != placement) {
            // If the pool is ahead, the job gives the PE its turn, and at once if it does not run; if the PE is, the
            // mirror is about to show the pool. A pod that was made now would have to move in a moment.
            return Err(Obstacle {
                reason: "HostPoolChanged",
                message: "the host pool of the PE is not as the job wants it for this PE; one of the two follows"
                    .to_owned(),
            });
        }
        let plain = AadlConfigMap::default();
        let hashes = observed::TemplateHashes { hash: hash(&pod_spec(parts, &plain, 0)), placement };
        Ok(Self { parts, placement: placement::express(parts.pe, parts.pool), hashes })
    }

    /// Hashes of what it says.
    pub(crate) fn hashes(&self) -> &observed::TemplateHashes {
        &self.hashes
    }

    /// The pod of a launch.
    pub(crate) fn pod(&self, launch_count: u64) -> Pod {
        let Parts { pe, .. } = self.parts;
        let spec = &pe.spec;
        let mut labels = names::pe_labels(&spec.job_name, spec.id);
        labels.insert(names::LABEL_LAUNCH_COUNT.to_owned(), launch_count.to_string());
        labels.extend(self.placement.labels.clone());
        let mut annotations: BTreeMap<String, String> = [
            (names::ANNOTATION_CONTENT_ID, spec.content_id.as_str()),
            (names::ANNOTATION_RUNTIME_ID, spec.runtime_id.as_str()),
            (names::ANNOTATION_POD_TEMPLATE_HASH, self.hashes.hash.as_str()),
            (names::ANNOTATION_PLACEMENT_HASH, self.hashes.placement.as_str()),
            // The PE may get another one while this pod still asks (rule repository-3).
            (names::ANNOTATION_SAB_NAME, spec.options.sab_name().unwrap_or_default()),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        if let Some(trace) = pe.annotations().get(names::ANNOTATION_TRACE_PARENT) {
            annotations.insert(names::ANNOTATION_TRACE_PARENT.to_owned(), trace.clone());
        }
        annotations.extend(self.placement.annotations.clone());
        let metadata = ObjectMeta {
            name: Some(pods_of_pe::name(&pe.name_any(), &pe.uid().unwrap_or_default(), launch_count)),
            namespace: pe.namespace(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![controlled_by(pe)]),
            ..ObjectMeta::default()
        };
        let affinity = self.placement.affinity.clone();
        let spec = PodSpec { affinity, ..pod_spec(self.parts, &spec.config_map, launch_count) };
        Pod { metadata, spec: Some(spec), status: None }
    }
}

fn pod_spec(parts: Parts<'_>, text: &AadlConfigMap, launch_count: u64) -> PodSpec {
    let volumes = volumes::volumes(parts, text);
    let secret = parts.pe.spec.options.image_pull_secret.as_ref();
    let single_request_reopen =
        PodDNSConfigOption { name: Some("single-request-reopen".to_owned()), ..PodDNSConfigOption::default() };
    PodSpec {
        restart_policy: Some("Never".to_owned()),
        security_context: Some(PodSecurityContext {
            run_as_user: Some(USER),
            run_as_group: Some(GROUP),
            ..PodSecurityContext::default()
        }),
        // The runtime does not talk to the API server.
        automount_service_account_token: Some(false),
        // Two questions over one socket get lost where connections are tracked slowly.
        dns_config: Some(PodDNSConfig { options: Some(vec![single_request_reopen]), ..PodDNSConfig::default() }),
        image_pull_secrets: secret.map(|name| vec![LocalObjectReference { name: name.clone() }]),
        init_containers: volumes.init_mounts.map(|mounts| vec![container::unpack(parts, mounts)]),
        containers: vec![container::pe(parts, launch_count, volumes.mounts)],
        volumes: Some(volumes.volumes),
        ..PodSpec::default()
    }
}

/// SHA-256 of a value as JSON, lower-case hexadecimal. Maps of the types are sorted, so equal values have equal hashes.
fn hash(value: &impl Serialize) -> String {
    // Fails for maps with keys that are no text only; then nothing is told apart, which restarts nothing.
    let json = serde_json::to_vec(value).unwrap_or_default();
    hex::encode(Sha256::digest(json))
}
