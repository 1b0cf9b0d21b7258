//! Writing desired state (rules call-8, call-9, call-10 and call-11).
//!
//! Objects with a deletion timestamp, or whose controller is somebody else, are never written to.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    core::ObjectMeta,
};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use super::{
    Error,
    error::{absent, is_already_exists, is_not_found, written},
};

/// In whose name [`apply`] writes.
#[derive(Clone, Copy, Debug)]
pub struct FieldManager {
    /// The name of the field manager.
    pub name: &'static str,
    /// The annotation in which it keeps the hash of the desired state that it applied last.
    pub applied_hash: &'static str,
}

/// What [`apply`] did.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied<K> {
    /// The API server has this object now.
    Written(Box<K>),
    /// The same desired state was applied before; nothing was sent.
    Unchanged,
}

/// Makes the fields that `desired` sets what `desired` says, by server-side apply in the name of `manager`.
///
/// `existing` is the metadata of the object as far as it is known (from a mirror). If it says that the same desired
/// state was applied last, nothing is sent.
///
/// # Errors
/// [`Error::Terminating`] and [`Error::Foreign`] from `existing`, before anything is sent; [`Error::Refused`]; failures
/// of the call.
pub async fn apply<K>(
    api: &Api<K>,
    manager: FieldManager,
    desired: &K,
    existing: Option<&ObjectMeta>,
) -> Result<Applied<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let hash = hash(desired)?;
    if let Some(existing) = existing {
        ensure_writable::<K>(existing, controller(desired.meta()))?;
        let applied = existing.annotations.as_ref().and_then(|annotations| annotations.get(manager.applied_hash));
        if applied == Some(&hash) {
            return Ok(Applied::Unchanged);
        }
    }
    let mut desired = desired.clone();
    desired.annotations_mut().insert(manager.applied_hash.to_owned(), hash);
    let parameters = PatchParams::apply(manager.name).force();
    let result = api.patch(&desired.name_any(), &parameters, &Patch::Apply(&desired)).await;
    result.map(|object| Applied::Written(Box::new(object))).map_err(|error| written(&desired, error))
}

/// Creates the object in the name of `manager`, or finds that there is one of its name that `matches`: then an earlier
/// attempt had succeeded.
///
/// # Errors
/// [`Error::Foreign`] if there is one that does not match, [`Error::Terminating`] if it is being deleted,
/// [`Error::Conflict`] if it vanished meanwhile; [`Error::Refused`]; failures of the call.
pub async fn create_or_match<K>(
    api: &Api<K>,
    manager: &str,
    object: &K,
    matches: impl Fn(&K) -> bool,
) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    match api.create(&by(manager), object).await {
        Ok(created) => Ok(created),
        Err(error) if is_already_exists(&error) => {
            let Some(existing) = absent(api.get(&object.name_any()).await)? else {
                return Err(Error::Conflict { kind: K::kind(&()).into_owned(), name: object.name_any() });
            };
            ensure_writable::<K>(existing.meta(), controller(object.meta()))?;
            if matches(&existing) {
                return Ok(existing);
            }
            let owner = owner_for_people(existing.meta());
            Err(Error::Foreign { kind: K::kind(&()).into_owned(), name: object.name_any(), owner })
        }
        Err(error) => Err(written(object, error)),
    }
}

/// Writes the whole status of `object` in the name of `manager`, unless somebody wrote the object since `object` was
/// read: the `resourceVersion` that it carries must still be the one of the API server.
///
/// # Errors
/// [`Error::Conflict`]: it was changed, or is gone; read again and decide again. [`Error::Refused`]; failures of the
/// call.
pub async fn replace_status_if_unchanged<K>(api: &Api<K>, manager: &str, object: &K) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let conflict = || Error::Conflict { kind: K::kind(&()).into_owned(), name: object.name_any() };
    if object.meta().resource_version.is_none() {
        // Without a version the API server would overwrite whatever is there.
        return Err(conflict());
    }
    match api.replace_status(&object.name_any(), &by(manager), object).await {
        Ok(written) => Ok(written),
        Err(error) if is_not_found(&error) => Err(conflict()),
        Err(error) => Err(written(object, error)),
    }
}

/// Deletes the object with this uid. Succeeds if it is gone, or if another one has its name.
///
/// # Errors
/// Failures of the call.
pub async fn delete<K>(api: &Api<K>, name: &str, uid: Option<&str>, propagation: PropagationPolicy) -> Result<(), Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let preconditions = uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    let parameters = DeleteParams { propagation_policy: Some(propagation), preconditions, ..DeleteParams::default() };
    match api.delete(name, &parameters).await {
        Ok(_) => Ok(()),
        Err(error) if is_not_found(&error) || super::error::is_conflict(&error) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

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
    let kind = || K::kind(&()).into_owned();
    let name = || existing.name.clone().unwrap_or_default();
    if existing.deletion_timestamp.is_some() {
        return Err(Error::Terminating { kind: kind(), name: name() });
    }
    if let Some(wanted) = wanted
        && controller(existing).map(|reference| &reference.uid) != Some(&wanted.uid)
    {
        return Err(Error::Foreign { kind: kind(), name: name(), owner: owner_for_people(existing) });
    }
    Ok(())
}

fn by(manager: &str) -> PostParams {
    PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() }
}

pub(crate) fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

pub(crate) fn owner_for_people(meta: &ObjectMeta) -> String {
    match controller(meta) {
        Some(owner) => format!("{} {} (uid {})", owner.kind, owner.name, owner.uid),
        None => "nobody".to_owned(),
    }
}

/// SHA-256 of the object as JSON, lower-case hexadecimal. Maps of the types are sorted, so equal objects have equal
/// hashes.
pub fn hash<K: Serialize>(object: &K) -> Result<String, Error> {
    let json = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    Ok(hex::encode(Sha256::digest(json)))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

    use super::*;

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
        }
    }

    #[test]
    fn equal_objects_have_equal_hashes() {
        let service = |name: &str| Service {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            ..Service::default()
        };
        assert_eq!(hash(&service("a")).unwrap(), hash(&service("a")).unwrap());
        assert_ne!(hash(&service("a")).unwrap(), hash(&service("b")).unwrap());
    }
}
