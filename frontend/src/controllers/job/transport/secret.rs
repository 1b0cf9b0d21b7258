//! Where the Secret keeps certificates and keys.

use super::certificate::Material;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use std::collections::BTreeMap;
use streams_api::names;

/// The certificates, as a file that PEs see.
pub(crate) use streams_api::names::TRANSPORT_CERTIFICATE as CERTIFICATE;
/// The key of the certificate, as a file that PEs see.
pub(crate) use streams_api::names::TRANSPORT_KEY as KEY;

/// The key of the authority, which no PE sees.
const AUTHORITY_KEY: &str = "authority.key";

/// The Secret of a job.
pub(crate) fn secret(job: &str, owner: &OwnerReference, material: &Material) -> Secret {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let data = [
        (CERTIFICATE, bytes(&material.certificates)),
        (KEY, bytes(&material.key)),
        (AUTHORITY_KEY, bytes(&material.authority_key)),
    ];
    Secret {
        metadata: ObjectMeta {
            name: Some(names::transport_secret(job)),
            labels: Some(names::job_labels(job)),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        data: Some(data.map(|(key, value)| (key.to_owned(), value)).into()),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

/// The Secret that keeps what is in that of a job while that one is made again.
pub(crate) fn copy(job: &str, owner: &OwnerReference, material: &Material) -> Secret {
    let mut copy = secret(job, owner, material);
    copy.metadata.name = Some(names::transport_copy(job));
    copy
}

/// The same Secret as it is made again: nothing that the API server has given the other one, and not immutable.
pub(crate) fn again(secret: Secret) -> Secret {
    let ObjectMeta { name, namespace, labels, annotations, owner_references, finalizers, .. } = secret.metadata;
    let metadata =
        ObjectMeta { name, namespace, labels, annotations, owner_references, finalizers, ..ObjectMeta::default() };
    Secret { metadata, immutable: None, ..secret }
}

/// The same Secret with other certificates and keys; whatever else it has stays.
pub(crate) fn with(secret: &Secret, job: &str, owner: &OwnerReference, material: &Material) -> Secret {
    let wanted = self::secret(job, owner, material);
    let mut changed = secret.clone();
    changed.data.get_or_insert_default().extend(wanted.data.unwrap_or_default());
    changed.metadata.labels.get_or_insert_default().extend(wanted.metadata.labels.unwrap_or_default());
    // The API server keeps them.
    changed.metadata.managed_fields = None;
    changed
}

/// What the Secret keeps; `None` if something of it is missing.
pub(crate) fn material(secret: &Secret) -> Option<Material> {
    let data: &BTreeMap<String, ByteString> = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    Some(Material { certificates: text(CERTIFICATE)?, key: text(KEY)?, authority_key: text(AUTHORITY_KEY)? })
}
