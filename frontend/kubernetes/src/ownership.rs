//! Owner references: which object controls another one, and whether a controller may write to it (rule call-8).
//!
//! Objects whose controller is somebody else are never written to, and those with a deletion timestamp only where their
//! readers go on with them.

use super::Error;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};

/// A reference that makes `owner` the controller of an object; its deletion deletes the object (rule name-9).
pub fn controlled_by<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Whether `owner` is the controller of the object with this metadata.
pub fn is_controlled_by<K: Resource<DynamicType = ()>>(meta: &ObjectMeta, owner: &K) -> bool {
    let uid = owner.meta().uid.as_deref();
    uid.is_some() && controller(meta).map(|reference| reference.uid.as_str()) == uid
}

/// The object may be written to by somebody who wants `controller` to be its controller.
///
/// # Errors
/// [`Error::Terminating`], [`Error::Foreign`].
pub fn ensure_writable<K: Resource<DynamicType = ()>>(
    existing: &ObjectMeta,
    wanted: Option<&OwnerReference>,
) -> Result<(), Error> {
    if existing.deletion_timestamp.is_some() {
        let name = existing.name.clone().unwrap_or_default();
        return Err(Error::Terminating { kind: K::kind(&()).into_owned(), name });
    }
    ensure_controlled::<K>(existing, wanted)
}

/// The same, but that the object may be on its way out.
///
/// # Errors
/// [`Error::Foreign`].
pub fn ensure_controlled<K: Resource<DynamicType = ()>>(
    existing: &ObjectMeta,
    wanted: Option<&OwnerReference>,
) -> Result<(), Error> {
    if let Some(wanted) = wanted
        && controller(existing).map(|reference| &reference.uid) != Some(&wanted.uid)
    {
        let (kind, name) = (K::kind(&()).into_owned(), existing.name.clone().unwrap_or_default());
        return Err(Error::Foreign { kind, name, owner: owner_for_people(existing) });
    }
    Ok(())
}

/// The reference to the controller of the object with this metadata.
pub fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

/// What controls the object with this metadata, for people.
pub fn owner_for_people(meta: &ObjectMeta) -> String {
    match controller(meta) {
        Some(owner) => format!("{} {} (uid {})", owner.kind, owner.name, owner.uid),
        None => "nobody".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    fn owner(uid: &str) -> OwnerReference {
        OwnerReference {
            uid: uid.to_owned(),
            controller: Some(true),
            kind: "Job".to_owned(),
            ..OwnerReference::default()
        }
    }

    #[test]
    fn what_is_going_or_belongs_to_somebody_else_is_not_written_to() {
        // owner, being deleted, wanted owner -> error
        let table = [
            (Some("a"), false, Some("a"), None),
            (Some("a"), false, None, None),
            (None, false, None, None),
            (None, false, Some("a"), Some("belongs to nobody")),
            (Some("b"), false, Some("a"), Some("belongs to Job")),
            (Some("a"), true, Some("a"), Some("is being deleted")),
            (Some("b"), true, Some("a"), Some("is being deleted")),
        ];
        for (existing, going, wanted, expected) in table {
            let meta = ObjectMeta {
                name: Some("x".to_owned()),
                owner_references: existing.map(|uid| vec![owner(uid)]),
                deletion_timestamp: going.then_some(Time(Timestamp::UNIX_EPOCH)),
                ..ObjectMeta::default()
            };
            let wanted = wanted.map(owner);
            let error = ensure_writable::<Service>(&meta, wanted.as_ref()).err().map(|error| error.to_string());
            match (&error, expected) {
                (None, None) => {}
                (Some(error), Some(part)) => assert!(error.contains(part), "{error}"),
                _ => panic!("{error:?}, expected {expected:?}"),
            }
            let is_controlled = wanted.is_none() || existing == Some("a");
            assert_eq!(ensure_controlled::<Service>(&meta, wanted.as_ref()).is_ok(), is_controlled, "{existing:?}");
        }
    }
}
