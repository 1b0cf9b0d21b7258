//! Writing desired state (rules call-8, call-9, call-10 and call-11).
//!
//! A [`Writer`] combines the calls of a [`Cluster`] into the writes that controllers need: writes that are the same
//! however often they are made, or that fail if another client has written the object since it was read. Objects with a
//! deletion timestamp, or whose controller is somebody else, are never written to.

use super::cluster::{Cluster, Conflicts, Manager, Object};
use super::error::{is_already_exists, is_conflict, is_not_found, written};
use super::ownership::{controller, ensure_writable, owner_for_people};
use super::{Error, Key};
use kube::ResourceExt;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::core::ObjectMeta;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// What [`Writer::apply`] did.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied<K> {
    /// The API server has this object now.
    Written(Box<K>),
    /// The same desired state was applied before; nothing was sent.
    Unchanged,
}

/// Writes objects of one namespace in the name of one field manager.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a, C> {
    /// Where to.
    pub cluster: &'a C,
    /// The namespace.
    pub namespace: &'a str,
    /// Who writes.
    pub manager: Manager,
}

impl<C: Cluster> Writer<'_, C> {
    /// Makes the fields that `desired` sets what `desired` says, by server-side apply.
    ///
    /// The annotation `applied_hash` keeps the hash of what was applied last. `existing` is the metadata of the object
    /// as far as it is known (from a mirror); if it says that the same desired state was applied last, nothing is sent.
    ///
    /// # Errors
    /// [`Error::Terminating`] and [`Error::Foreign`] from `existing`, before anything is sent; [`Error::Refused`];
    /// failures of the call.
    pub async fn apply<K: Object>(
        &self,
        applied_hash: &str,
        desired: &K,
        existing: Option<&ObjectMeta>,
    ) -> Result<Applied<K>, Error> {
        let hash = hash(desired)?;
        if let Some(existing) = existing {
            ensure_writable::<K>(existing, controller(desired.meta()))?;
            let applied = existing.annotations.as_ref().and_then(|annotations| annotations.get(applied_hash));
            if applied == Some(&hash) {
                return Ok(Applied::Unchanged);
            }
        }
        let mut desired = desired.clone();
        desired.annotations_mut().insert(applied_hash.to_owned(), hash);
        let result = self.cluster.apply(self.namespace, self.manager, &desired, Conflicts::Force).await;
        result.map(|object| Applied::Written(Box::new(object))).map_err(|error| written(&desired, error))
    }

    /// Creates the object, or finds that there is one of its name that `matches`: then an earlier attempt had
    /// succeeded.
    ///
    /// # Errors
    /// [`Error::Foreign`] if there is one that does not match, [`Error::Terminating`] if it is being deleted,
    /// [`Error::Conflict`] if it vanished meanwhile; [`Error::Refused`]; failures of the calls.
    pub async fn create_or_match<K: Object>(
        &self,
        object: &K,
        matches: impl Fn(&K) -> bool + Send,
    ) -> Result<K, Error> {
        match self.cluster.create(self.namespace, self.manager, object).await {
            Ok(created) => Ok(created),
            Err(error) if is_already_exists(&error) => {
                let key = Key::new(self.namespace, &object.name_any());
                let Some(existing) = self.cluster.get::<K>(&key).await? else {
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

    /// Writes the whole status of `object`, unless somebody wrote the object since `object` was read: the
    /// `resourceVersion` that it carries must still be the one of the API server.
    ///
    /// # Errors
    /// [`Error::Conflict`]: it was changed, or is gone; read again and decide again. [`Error::Refused`]; failures of
    /// the call.
    pub async fn replace_status_if_unchanged<K: Object>(&self, object: &K) -> Result<K, Error> {
        let conflict = || Error::Conflict { kind: K::kind(&()).into_owned(), name: object.name_any() };
        if object.meta().resource_version.is_none() {
            // Without a version the API server would overwrite whatever is there.
            return Err(conflict());
        }
        match self.cluster.replace_status(self.manager, object).await {
            Ok(written) => Ok(written),
            Err(error) if is_not_found(&error) => Err(conflict()),
            Err(error) => Err(written(object, error)),
        }
    }

    /// Deletes the object with this uid. Succeeds if it is gone, or if another one has its name.
    ///
    /// # Errors
    /// Failures of the call.
    pub async fn delete<K: Object>(
        &self,
        name: &str,
        uid: Option<&str>,
        propagation: PropagationPolicy,
    ) -> Result<(), Error> {
        let preconditions = uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let parameters =
            DeleteParams { propagation_policy: Some(propagation), preconditions, ..DeleteParams::default() };
        match self.cluster.delete::<K>(&Key::new(self.namespace, name), &parameters).await {
            Ok(()) => Ok(()),
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
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
    use super::*;
    use k8s_openapi::api::core::v1::Service;

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
