//! Volumes of a PE and where it sees them. The paths are frozen (rule pod-9).

use super::super::observed::Obstacle;
use super::Parts;
use k8s_openapi::api::core::v1::{
    ConfigMapProjection, ConfigMapVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource, KeyToPath,
    PersistentVolumeClaimVolumeSource, ProjectedVolumeSource, SecretProjection, SecretVolumeSource, Volume,
    VolumeMount, VolumeProjection,
};
use streams_api::mounts::{APP_PROPERTIES, DATA, JOB, RESTRICTED_PROPERTIES};
use streams_api::{AadlConfigMap, DataVolumeClaim, FileSystemCheckpoints, TransportSecurity, names};

pub(super) use streams_api::mounts::TEXT;

/// Where the text is unpacked from, by another container.
pub(super) const PACKED_TEXT: &str = "/etc/config/pe-packed";

/// Volumes, and who sees them where.
#[derive(Default)]
pub(super) struct Volumes {
    pub(super) volumes: Vec<Volume>,
    /// Of the PE's container.
    pub(super) mounts: Vec<VolumeMount>,
    /// Of the container that unpacks the text, if it is packed.
    pub(super) init_mounts: Option<Vec<VolumeMount>>,
}

impl Volumes {
    fn add(&mut self, volume: Volume, path: &str, sub_path: Option<&String>) {
        self.mounts.push(mount(&volume.name, path, sub_path));
        self.volumes.push(volume);
    }
}

/// Whether a volume is not there.
///
/// # Errors
/// Checkpoints are to be kept in a file system that nobody names.
pub(super) fn check(parts: Parts<'_>) -> Result<(), Obstacle> {
    match checkpoints(parts) {
        Some(kept) if kept.volume_claim.is_none() && parts.settings.checkpoint_path.is_none() => Err(Obstacle {
            reason: "CheckpointVolumeMissing",
            message: "checkpoints are to be kept in a file system, but neither volumeClaim nor the frontend's options name a volume"
                .to_owned(),
        }),
        _ => Ok(()),
    }
}

/// All volumes, in a fixed order.
pub(super) fn volumes(parts: Parts<'_>, text: &AadlConfigMap) -> Volumes {
    let spec = &parts.pe.spec;
    let options = &spec.options;
    let mut volumes = Volumes::default();
    add_text(&mut volumes, text);
    volumes.add(job(&spec.job_name, options.transport_security_type), JOB, None);
    let data = (options.data_volume_claim.as_ref(), options.data_path.as_ref().or(parts.settings.data_path.as_ref()));
    add_directory(&mut volumes, "data-volume", DATA, data);
    if let Some(kept) = checkpoints(parts) {
        let source = (kept.volume_claim.as_ref(), parts.settings.checkpoint_path.as_ref());
        add_directory(&mut volumes, "checkpoint-volume", &kept.path, source);
    }
    let secrets = [
        ("app-properties-secret-volume", APP_PROPERTIES, &options.app_properties_secret),
        ("restricted-properties-secret-volume", RESTRICTED_PROPERTIES, &options.restricted_properties_secret),
    ];
    for (name, path, secret) in secrets {
        if let Some(secret) = secret {
            let source = SecretVolumeSource { secret_name: Some(secret.clone()), ..SecretVolumeSource::default() };
            volumes.add(Volume { secret: Some(source), ..named(name) }, path, None);
        }
    }
    volumes
}

fn checkpoints<'a>(parts: Parts<'a>) -> Option<&'a FileSystemCheckpoints> {
    parts.pe.spec.options.checkpoint_repository().and_then(|kept| kept.file_system.as_ref())
}

/// The text of the PE: straight from its ConfigMap, or unpacked from there.
fn add_text(volumes: &mut Volumes, text: &AadlConfigMap) {
    let config_map = ConfigMapVolumeSource { name: text.name.clone(), ..ConfigMapVolumeSource::default() };
    if !text.compressed {
        let volume = Volume { config_map: Some(config_map), ..named("pe-config-volume") };
        return volumes.add(volume, TEXT, None);
    }
    let unpacked = Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..named("pe-config-volume") };
    let packed = Volume { config_map: Some(config_map), ..named("pe-packed-config-volume") };
    volumes.init_mounts = Some(vec![mount(&packed.name, PACKED_TEXT, None), mount(&unpacked.name, TEXT, None)]);
    volumes.add(unpacked, TEXT, None);
    volumes.volumes.push(packed);
}

/// What all PEs of a job share: port labels, and the certificate if they encrypt what they send each other.
fn job(name: &str, security: TransportSecurity) -> Volume {
    let labels = ConfigMapProjection { name: names::job_config_map(name), ..ConfigMapProjection::default() };
    let mut sources = vec![VolumeProjection { config_map: Some(labels), ..VolumeProjection::default() }];
    if security != TransportSecurity::None {
        // Not the key of the authority, which is there as well.
        let item = |key: &str| KeyToPath { key: key.to_owned(), path: key.to_owned(), mode: None };
        let items = [names::TRANSPORT_CERTIFICATE, names::TRANSPORT_KEY].map(item);
        let name = names::transport_secret(name);
        let certificate = SecretProjection { name, items: Some(items.into()), ..SecretProjection::default() };
        sources.push(VolumeProjection { secret: Some(certificate), ..VolumeProjection::default() });
    }
    let projected = ProjectedVolumeSource { sources: Some(sources), default_mode: None };
    Volume { projected: Some(projected), ..named("job-config-volume") }
}

/// A directory of a claim, else of the node, else none.
fn add_directory(
    volumes: &mut Volumes,
    name: &str,
    path: &str,
    (claim, host_path): (Option<&DataVolumeClaim>, Option<&String>),
) {
    if let Some(claim) = claim {
        let source = PersistentVolumeClaimVolumeSource { claim_name: claim.name.clone(), read_only: None };
        volumes.add(Volume { persistent_volume_claim: Some(source), ..named(name) }, path, claim.sub_path.as_ref());
    } else if let Some(host_path) = host_path {
        let source = HostPathVolumeSource { path: host_path.clone(), type_: None };
        volumes.add(Volume { host_path: Some(source), ..named(name) }, path, None);
    }
}

fn named(name: &str) -> Volume {
    Volume { name: name.to_owned(), ..Volume::default() }
}

fn mount(volume: &str, path: &str, sub_path: Option<&String>) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        sub_path: sub_path.cloned(),
        ..VolumeMount::default()
    }
}
