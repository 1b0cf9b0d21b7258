//! Writing desired state (rules call-8, call-9, call-10 and call-11).
//!
//! A [`Writer`] combines the calls of a [`Cluster`] into the writes that controllers need: writes that are the same
//! however often they are made, or that fail if another client has written the object since it was read. Objects whose
//! controller is somebody else are never written to, and those with a deletion timestamp only by
//! [`Writer::apply_in_place`].
//!
//! Knows: who controls an object, hashes of what was applied. Must not know: what any kind means, why something is
//! written.

use super::cluster::{Cluster, Conflicts, Manager, Object};
use super::error::{definition, is_already_exists, is_conflict, is_not_found, is_of_quota, outdated, written};
use super::events::Notice;
use super::ownership::{controller, ensure_controlled, ensure_writable, owner_for_people};
use super::{Error, Key, drift, stopwatch};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::runtime::Handle;

/// Reason of Events that say that the API server has definitions of an earlier version (rule call-30).
pub const DEFINITIONS_OUTDATED: &str = "DefinitionsOutdated";

/// How long an object is not created that was just deleted, if a ResourceQuota has no room for it: whatever counts the
/// objects hears of the deletion a moment after the API server has answered it.
const ROOM_WITHIN: [Duration; 3] = [Duration::from_millis(200), Duration::from_millis(500), Duration::from_secs(1)];

/// What [`Writer::apply`] did.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied<K> {
    /// The API server has this object now.
    Written(Box<K>),
    /// The same, of one that the mirror did not show and that lacked this label: if the mirror is filtered by it, no
    /// mirror tells that somebody took it.
    Relabelled(Box<K>, String),
    /// The same desired state was applied before; nothing was sent.
    Unchanged,
}

impl<K> Applied<K> {
    /// The object as the API server has it now, if anything was sent.
    pub fn object(&self) -> Option<&K> {
        match self {
            Self::Written(object) | Self::Relabelled(object, _) => Some(object),
            Self::Unchanged => None,
        }
    }
}

/// An object that [`Writer::create_or_match`] answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Ensured<K> {
    /// It was created just now.
    Created(K),
    /// There was one that matches.
    Found(K),
}

impl<K> Ensured<K> {
    /// The object, as the API server has it.
    pub fn object(self) -> K {
        match self {
            Self::Created(object) | Self::Found(object) => object,
        }
    }
}

/// What [`Writer::create_or_replace`] did about what others have made of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Nothing: there was none of its name, or it is as it should be.
    Nothing,
    /// This field was restored.
    Field(String),
    /// The object was deleted because of this field, and somebody has made it again before it could be restored.
    InVain(String),
}

/// What became of a status that was to be written if nobody has written the object.
#[derive(Debug)]
pub enum StatusWrite<K> {
    /// The API server has this object now.
    Done(K),
    /// It had the very status already: an earlier try was not answered, or another process has decided the same.
    Found(K),
    /// Somebody else has written the object.
    Outrun {
        /// As it is now; `None` if it cannot be read.
        found: Option<K>,
        /// The conflict.
        error: Error,
    },
    /// There is none of its name any more. This is the conflict.
    Gone(Error),
}

impl<K> StatusWrite<K> {
    /// The object with the status.
    ///
    /// # Errors
    /// [`Error::Conflict`]: it has another one.
    pub fn written(self) -> Result<K, Error> {
        match self {
            Self::Done(object) | Self::Found(object) => Ok(object),
            Self::Outrun { error, .. } | Self::Gone(error) => Err(error),
        }
    }
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
    /// Makes the fields that `desired` sets what `desired` says: creates the object, or applies it to the one that is
    /// there.
    ///
    /// The annotation `applied_hash` keeps the hash of what was applied last; a `desired` that has it already says more
    /// than its hash covers. `existing` is the object as a mirror shows it; if it says that the same desired state was
    /// applied last, and has it ([`drift`]), nothing is sent. If the mirror shows none, it is created, which costs the
    /// API server less than an apply. There may be one nevertheless: the mirror is behind, or cannot read it, or
    /// somebody took the label by which it is filtered. That one is asked for. One that is gone by the time that it is
    /// changed is not made again: whoever deleted it may not want that, and the mirror will show it.
    ///
    /// # Errors
    /// [`Error::Terminating`] and [`Error::Foreign`] from the object that is there, before anything is written to it;
    /// [`Error::Conflict`]: somebody wrote the object while ports or fields were removed from it, or it vanished, or
    /// was made by somebody else while it was made again; [`Error::Refused`]; failures of the call.
    pub async fn apply<K: Object, M: Resource + Serialize>(
        &self,
        applied_hash: &str,
        desired: &K,
        existing: Option<&M>,
    ) -> Result<Applied<K>, Error> {
        let hashed = with_hash(applied_hash, desired)?;
        if let Some(existing) = existing {
            ensure_writable::<K>(existing.meta(), controller(desired.meta()))?;
            return self.change_if_different(&hashed, existing).await;
        }
        match self.cluster.create(self.namespace, self.manager, &hashed).await {
            Ok(created) => Ok(Applied::Written(Box::new(created))),
            Err(error) if is_already_exists(&error) => {
                let key = Key::new(self.namespace, &desired.name_any());
                let conflict = || Error::Conflict { kind: K::kind(&()).into_owned(), name: desired.name_any() };
                match self.cluster.get::<K>(&key).await {
                    Ok(existing) => {
                        let existing = existing.ok_or_else(conflict)?;
                        ensure_writable::<K>(existing.meta(), controller(desired.meta()))?;
                        let labels = json!({"metadata": {"labels": desired.labels()}});
                        let other = drift::difference_of_fields::<K, _>(&labels, &existing)?;
                        Ok(match (self.change(&hashed, &existing).await?, other) {
                            (Applied::Written(object), Some(label)) => Applied::Relabelled(object, label),
                            (applied, _) => applied,
                        })
                    }
                    // What cannot be read can be written: it is enough to know whose it is.
                    Err(kube::Error::SerdeError(_)) => {
                        let existing = self.cluster.get_metadata::<K>(&key).await?.ok_or_else(conflict)?;
                        ensure_writable::<K>(&existing, controller(desired.meta()))?;
                        self.force(&hashed, existing.uid).await
                    }
                    Err(error) => Err(error.into()),
                }
            }
            Err(error) => Err(written(&hashed, error)),
        }
    }

    /// The same for an object that a mirror shows, also while somebody deletes it: what it says counts as long as it is
    /// there. It is not made again.
    ///
    /// # Errors
    /// As [`Writer::apply`]; [`Error::Terminating`] only if no write can make it what `desired` says.
    pub async fn apply_in_place<K: Object, M: Resource + Serialize>(
        &self,
        applied_hash: &str,
        desired: &K,
        existing: &M,
    ) -> Result<Applied<K>, Error> {
        let hashed = with_hash(applied_hash, desired)?;
        ensure_controlled::<K>(existing.meta(), controller(desired.meta()))?;
        self.change_if_different(&hashed, existing).await
    }

    async fn change_if_different<K: Object, M: Resource + Serialize>(
        &self,
        desired: &K,
        existing: &M,
    ) -> Result<Applied<K>, Error> {
        let is_as_desired = drift::difference(self.manager, desired, existing)?.is_none();
        if is_as_desired { Ok(Applied::Unchanged) } else { self.change(desired, existing).await }
    }

    /// Applies to the object that is there, and may be written to.
    async fn change<K: Object, M: Resource + Serialize>(&self, desired: &K, existing: &M) -> Result<Applied<K>, Error> {
        if drift::removal_of_surplus(desired, existing)?.is_some() {
            self.remove_surplus(desired).await?;
        }
        self.force(desired, existing.meta().uid.clone()).await
    }

    /// Applies to the object with this uid, and removes what that leaves: what others own in the spec of a custom
    /// resource or of a Service, and annotations that the object was created with. If somebody writes it in between,
    /// that is left to the next comparison. What others have made such that it cannot be changed any more is made
    /// again.
    async fn force<K: Object>(&self, desired: &K, uid: Option<String>) -> Result<Applied<K>, Error> {
        let mut of_uid = desired.clone();
        of_uid.meta_mut().uid.clone_from(&uid);
        let result = self.cluster.apply(self.namespace, self.manager, &of_uid, Conflicts::Force).await;
        let mut object = match result.map_err(|error| written(desired, error)) {
            Ok(object) => object,
            Err(refusal @ Error::Refused { .. }) => return self.make_again(desired, uid.as_ref(), refusal).await,
            Err(error) => return Err(error),
        };
        if let Some(mut patch) = drift::removal_after_apply(self.manager, desired, &object)? {
            patch["metadata"]["uid"] = json!(object.meta().uid);
            patch["metadata"]["resourceVersion"] = json!(object.meta().resource_version);
            let key = Key::new(self.namespace, &desired.name_any());
            let merged = self.cluster.merge::<K>(self.manager, &key, &patch).await;
            object = merged.map_err(|error| written(desired, error))?;
        }
        Ok(Applied::Written(Box::new(object)))
    }

    /// Deletes an object that cannot be changed to what is desired because of what others have made of it, and makes it
    /// again (rule call-19). If the process ends in between, the object is missing, and is made again for that. One
    /// that can be changed was refused for something else: perhaps because it is another one than that with this uid.
    async fn make_again<K: Object>(
        &self,
        desired: &K,
        uid: Option<&String>,
        refusal: Error,
    ) -> Result<Applied<K>, Error> {
        let name = desired.name_any();
        let Some(existing) = self.cluster.get::<K>(&Key::new(self.namespace, &name)).await? else {
            return Err(refusal);
        };
        if uid.is_some() && existing.meta().uid.as_ref() != uid {
            return Err(Error::Conflict { kind: K::kind(&()).into_owned(), name });
        }
        ensure_writable::<K>(existing.meta(), controller(desired.meta()))?;
        let Some(again) = drift::made_again(desired, &existing)? else { return Err(refusal) };
        self.delete::<K>(&name, existing.meta().uid.as_deref(), PropagationPolicy::Background).await?;
        match self.create_again(&again).await {
            Ok(created) => Ok(Applied::Written(Box::new(created))),
            // It is still being deleted, or somebody was faster.
            Err(error) if is_already_exists(&error) => Err(Error::Conflict { kind: K::kind(&()).into_owned(), name }),
            Err(error) => Err(written(desired, error)),
        }
    }

    /// Creates an object that was just deleted. If a quota has no room for it, it may have a moment later.
    async fn create_again<K: Object>(&self, object: &K) -> kube::Result<K> {
        let mut pauses = ROOM_WITHIN.into_iter();
        loop {
            let created = self.cluster.create(self.namespace, self.manager, object).await;
            match pauses.next().filter(|_| created.as_ref().is_err_and(is_of_quota)) {
                Some(pause) => rest(pause).await,
                None => return created,
            }
        }
    }

    /// Removes what an apply would leave in lists that are to have exactly the desired items, by what the API server
    /// has now. It comes before the apply, which would be refused while two ports have one name.
    async fn remove_surplus<K: Object>(&self, desired: &K) -> Result<(), Error> {
        let key = Key::new(self.namespace, &desired.name_any());
        let Some(existing) = self.cluster.get::<K>(&key).await? else { return Ok(()) };
        ensure_writable::<K>(existing.meta(), controller(desired.meta()))?;
        let Some(mut patch) = drift::removal_of_surplus(desired, &existing)? else { return Ok(()) };
        let meta = existing.meta();
        patch["metadata"] = json!({"uid": meta.uid, "resourceVersion": meta.resource_version});
        self.cluster.merge::<K>(self.manager, &key, &patch).await.map_err(|error| written(desired, error))?;
        Ok(())
    }

    /// Makes these fields of an object that exists what `fields` says, whatever else its other fields are; it is not
    /// created. `existing` is the object as a mirror shows it; if somebody has written it since, nothing is written.
    ///
    /// # Errors
    /// As [`Writer::apply`]; [`Error::Conflict`]: it was changed, or is gone.
    pub async fn restore<K: Object>(
        &self,
        owner: &OwnerReference,
        mut fields: Value,
        existing: &ObjectMeta,
    ) -> Result<K, Error> {
        ensure_writable::<K>(existing, Some(owner))?;
        // A merge patch replaces a list as a whole.
        let others = existing.owner_references.iter().flatten().filter(|reference| reference.uid != owner.uid);
        let owners: Vec<&OwnerReference> = others.chain([owner]).collect();
        fields["metadata"]["ownerReferences"] = json!(owners);
        fields["metadata"]["uid"] = json!(existing.uid);
        fields["metadata"]["resourceVersion"] = json!(existing.resource_version);
        let name = existing.name.clone().unwrap_or_default();
        let key = Key::new(self.namespace, &name);
        self.cluster.merge::<K>(self.manager, &key, &fields).await.map_err(|error| {
            let gone = is_not_found(&error) || is_conflict(&error);
            let kind = K::kind(&()).into_owned();
            if gone { Error::Conflict { kind, name } } else { Error::Call(error) }
        })
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
    ) -> Result<Ensured<K>, Error> {
        match self.cluster.create(self.namespace, self.manager, object).await {
            Ok(created) => Ok(Ensured::Created(created)),
            Err(error) if is_already_exists(&error) => {
                let key = Key::new(self.namespace, &object.name_any());
                let Some(existing) = self.cluster.get::<K>(&key).await? else {
                    return Err(Error::Conflict { kind: K::kind(&()).into_owned(), name: object.name_any() });
                };
                ensure_writable::<K>(existing.meta(), controller(object.meta()))?;
                if matches(&existing) {
                    return Ok(Ensured::Found(existing));
                }
                let owner = owner_for_people(existing.meta());
                Err(Error::Foreign { kind: K::kind(&()).into_owned(), name: object.name_any(), owner })
            }
            Err(error) => Err(written(object, error)),
        }
    }

    /// Creates an immutable ConfigMap. If there is one of its name with the same content, whoever wrote it, that one is
    /// kept, and what others changed of its metadata is restored. One with other content is deleted and made again.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::Terminating`]: it is not written to; [`Error::Conflict`]: it vanished meanwhile;
    /// [`Error::Refused`]; failures of the calls.
    pub async fn create_or_replace(&self, desired: &ConfigMap) -> Result<Replaced, Error> {
        match self.cluster.create_unread(self.namespace, self.manager, desired).await {
            Ok(()) => return Ok(Replaced::Nothing),
            Err(error) if is_already_exists(&error) => {}
            Err(error) => return Err(written(desired, error)),
        }
        let key = Key::new(self.namespace, &desired.name_any());
        let Some(existing) = self.cluster.get::<ConfigMap>(&key).await? else {
            return Err(Error::Conflict { kind: ConfigMap::kind(&()).into_owned(), name: desired.name_any() });
        };
        ensure_writable::<ConfigMap>(existing.meta(), controller(desired.meta()))?;
        if let Some(field) = other_content(desired, &existing) {
            let uid = existing.uid();
            self.delete::<ConfigMap>(&desired.name_any(), uid.as_deref(), PropagationPolicy::Background).await?;
            return match self.create_again(desired).await {
                Ok(_) => Ok(Replaced::Field(field)),
                Err(error) if is_already_exists(&error) => Ok(Replaced::InVain(field)),
                Err(error) => Err(written(desired, error)),
            };
        }
        let field = drift::difference(self.manager, desired, &existing)?;
        if field.is_some() {
            // From now on the content belongs to this manager as well: it was seen to be right.
            self.force(desired, existing.uid()).await?;
        }
        Ok(field.map_or(Replaced::Nothing, Replaced::Field))
    }

    /// Writes the whole status of `object`, unless somebody wrote the object since `object` was read: the
    /// `resourceVersion` that it carries must still be the one of the API server.
    ///
    /// # Errors
    /// [`Error::Conflict`]: it was changed, or is gone; read again and decide again. [`Error::Refused`]; failures of
    /// the call. [`Error::Undeclared`]: nothing has changed, because the API server has dropped what is new; the same
    /// would be decided again and again (rule call-30).
    pub async fn replace_status_if_unchanged<K: Object>(&self, object: &K) -> Result<K, Error> {
        let conflict = || Error::Conflict { kind: K::kind(&()).into_owned(), name: object.name_any() };
        if object.meta().resource_version.is_none() {
            // Without a version the API server would overwrite whatever is there.
            return Err(conflict());
        }
        match self.cluster.replace_status(self.manager, object).await {
            Ok(written) => match self.is_in_vain(object, &written)? {
                None => Ok(written),
                Some(field) => {
                    let definition = definition::<K>();
                    let note = outdated(&definition, &field);
                    self.cluster.announce(object, &Notice::warning(DEFINITIONS_OUTDATED, note));
                    Err(Error::Undeclared {
                        kind: K::kind(&()).into_owned(),
                        name: object.name_any(),
                        definition,
                        field,
                    })
                }
            },
            Err(error) if is_not_found(&error) => Err(conflict()),
            Err(error) => Err(written(object, error)),
        }
    }

    /// The same, by somebody who tells of it: after a conflict, the API server is asked what there is. Perhaps an
    /// earlier try of the call had its effect and was not answered.
    ///
    /// # Errors
    /// The same, but for the conflict; the object cannot be read after it.
    pub async fn replace_status_or_find<K: Object>(&self, object: &K) -> Result<StatusWrite<K>, Error> {
        let error = match self.replace_status_if_unchanged(object).await {
            Ok(written) => return Ok(StatusWrite::Done(written)),
            Err(error) if error.is_conflict() => error,
            Err(error) => return Err(error),
        };
        match self.cluster.get::<K>(&Key::of(object)).await {
            Ok(Some(found)) if is_as_sent(object, &found) => Ok(StatusWrite::Found(found)),
            Ok(Some(found)) => Ok(StatusWrite::Outrun { found: Some(found), error }),
            Ok(None) => Ok(StatusWrite::Gone(error)),
            // Whatever it is, it is not what was sent.
            Err(kube::Error::SerdeError(_)) => Ok(StatusWrite::Outrun { found: None, error }),
            Err(error) => Err(error.into()),
        }
    }

    /// The field of the status that the API server has dropped, if it has changed nothing at all.
    fn is_in_vain<K: Object>(&self, sent: &K, answer: &K) -> Result<Option<String>, Error> {
        if sent.meta().resource_version != answer.meta().resource_version {
            return Ok(None);
        }
        drift::dropped_of_status(sent, answer)
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
        match self.delete_if::<K>(name, preconditions, propagation).await {
            Ok(()) => Ok(()),
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the object with this uid, unless somebody has written it since it had this version. Succeeds if it is
    /// gone.
    ///
    /// # Errors
    /// [`Error::Conflict`]: it was changed, or another one has its name; read again and decide again. Failures of the
    /// call.
    pub async fn delete_if_unchanged<K: Object>(
        &self,
        name: &str,
        uid: &str,
        version: &str,
        propagation: PropagationPolicy,
    ) -> Result<(), Error> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: Some(version.to_owned()) };
        match self.delete_if::<K>(name, Some(preconditions), propagation).await {
            Ok(()) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) if is_conflict(&error) => {
                Err(Error::Conflict { kind: K::kind(&()).into_owned(), name: name.to_owned() })
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn delete_if<K: Object>(
        &self,
        name: &str,
        preconditions: Option<Preconditions>,
        propagation: PropagationPolicy,
    ) -> kube::Result<()> {
        let parameters =
            DeleteParams { propagation_policy: Some(propagation), preconditions, ..DeleteParams::default() };
        self.cluster.delete::<K>(&Key::new(self.namespace, name), &parameters).await
    }
}

/// Lets some time pass, in which whoever measures the work waits. Without a runtime, as in a test that polls by hand,
/// none passes.
async fn rest(pause: Duration) {
    if Handle::try_current().is_ok() {
        stopwatch::aside(tokio::time::sleep(pause)).await;
    }
}

/// The field of a ConfigMap's content in which it has something else than is desired.
fn other_content(desired: &ConfigMap, existing: &ConfigMap) -> Option<String> {
    fn of_map<V: PartialEq>(
        part: &str,
        desired: Option<&BTreeMap<String, V>>,
        existing: Option<&BTreeMap<String, V>>,
    ) -> Option<String> {
        let empty = BTreeMap::new();
        let (desired, existing) = (desired.unwrap_or(&empty), existing.unwrap_or(&empty));
        let mut keys = desired.keys().chain(existing.keys());
        keys.find(|key| desired.get(*key) != existing.get(*key)).map(|key| format!("{part}.{key}"))
    }
    of_map("data", desired.data.as_ref(), existing.data.as_ref())
        .or_else(|| of_map("binaryData", desired.binary_data.as_ref(), existing.binary_data.as_ref()))
        .or_else(|| (existing.immutable != Some(true)).then(|| "immutable".to_owned()))
}

/// The object with the hash of what it was without, if it has none.
fn with_hash<K: Object>(applied_hash: &str, desired: &K) -> Result<K, Error> {
    let mut hashed = desired.clone();
    hashed.annotations_mut().insert(applied_hash.to_owned(), hash_of_applied(applied_hash, desired)?);
    Ok(hashed)
}

/// What [`Writer::apply`] says in the annotation `applied_hash` of an object that is to be like this.
///
/// # Errors
/// It cannot be written as JSON.
pub fn hash_of_applied<K: Object>(applied_hash: &str, desired: &K) -> Result<String, Error> {
    match desired.annotations().get(applied_hash) {
        Some(hash) => Ok(hash.clone()),
        None => hash(desired),
    }
}

/// Whether an object has the status that was sent, for the same spec.
fn is_as_sent<K: Object>(sent: &K, found: &K) -> bool {
    let (before, after) = (sent.meta(), found.meta());
    // As they are stored: a time has fewer digits then.
    let status = |object: &K| serde_json::to_value(object).ok()?.get_mut("status").map(Value::take);
    before.uid == after.uid && before.generation == after.generation && status(sent) == status(found)
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

    #[test]
    fn an_object_that_has_a_hash_keeps_it() {
        let map = |annotations: &[(&str, &str)]| {
            let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let metadata = ObjectMeta { annotations: Some(annotations.collect()), ..ObjectMeta::default() };
            ConfigMap { metadata, ..ConfigMap::default() }
        };
        let hash_of = |map: &ConfigMap| with_hash("hash", map).unwrap().annotations()["hash"].clone();
        assert_eq!(hash_of(&map(&[("a", "b")])), hash(&map(&[("a", "b")])).unwrap());
        assert_eq!(hash_of(&map(&[("a", "b"), ("hash", "of a part")])), "of a part");
    }

    #[test]
    fn the_field_of_a_config_map_is_named_that_has_another_content() {
        let map = |text: &str, is_immutable| ConfigMap {
            data: Some(BTreeMap::from([("text".to_owned(), text.to_owned())])),
            immutable: is_immutable,
            ..ConfigMap::default()
        };
        let more = |key: &str| {
            let mut map = map("a", Some(true));
            map.binary_data = Some(BTreeMap::from([(key.to_owned(), Default::default())]));
            map
        };
        let empty = ConfigMap { data: Some(BTreeMap::new()), immutable: Some(true), ..ConfigMap::default() };
        let none = ConfigMap { data: None, ..empty.clone() };
        // wanted, there -> field
        let table = [
            (map("a", Some(true)), map("a", Some(true)), None),
            (map("a", Some(true)), map("b", Some(true)), Some("data.text")),
            (map("a", Some(true)), none.clone(), Some("data.text")),
            (none.clone(), map("a", Some(true)), Some("data.text")),
            (map("a", Some(true)), more("key"), Some("binaryData.key")),
            (map("a", Some(true)), map("a", None), Some("immutable")),
            (map("a", Some(true)), map("a", Some(false)), Some("immutable")),
            (none, empty, None),
        ];
        for (desired, existing, expected) in table {
            assert_eq!(other_content(&desired, &existing).as_deref(), expected, "{desired:?} {existing:?}");
        }
    }
}
