//! An object as a mirror keeps it.
//!
//! Kubernetes' types are made for one object at a time: each has a place for every field that there could be, and a
//! piece of memory of its own for each text in it, eight times what the same object takes as JSON. A mirror has
//! thousands of objects and is asked for few of them at a time. So it keeps their JSON, in one piece of memory each, and
//! whoever looks at an object reads it again.
//!
//! Invariant: what is kept can be read. An object whose JSON could not is kept as it is.

use super::Mirrored;
use kube::core::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// How a mirror keeps its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As JSON: for kinds of which there are many.
    Packed,
    /// As they are: for a kind that is asked for much more often than it changes.
    Unpacked,
}

/// An object as a mirror keeps it. Cheap to clone.
pub struct Kept<K>(Content<K>);

enum Content<K> {
    Packed(Arc<[u8]>, PhantomData<fn() -> K>),
    Unpacked(Arc<K>),
}

impl<K> Clone for Kept<K> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Content::Packed(json, kind) => Content::Packed(Arc::clone(json), *kind),
            Content::Unpacked(object) => Content::Unpacked(Arc::clone(object)),
        })
    }
}

impl<K> fmt::Debug for Kept<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Content::Packed(json, _) => write!(f, "Kept({})", String::from_utf8_lossy(json)),
            Content::Unpacked(_) => f.write_str("Kept(unpacked)"),
        }
    }
}

/// The metadata of an object.
#[derive(Deserialize)]
struct Described {
    metadata: ObjectMeta,
}

impl<K: Mirrored> Kept<K> {
    /// Keeps an object.
    pub(super) fn new(object: K, form: Form) -> Self {
        let packed = match form {
            Form::Packed => serde_json::to_vec(&object).ok().filter(|json| serde_json::from_slice::<K>(json).is_ok()),
            Form::Unpacked => None,
        };
        Self(match packed {
            Some(json) => Content::Packed(json.into(), PhantomData),
            None => Content::Unpacked(Arc::new(object)),
        })
    }

    /// The object. There always is one.
    pub fn read(&self) -> Option<Arc<K>> {
        match &self.0 {
            Content::Packed(json, _) => parsed(json).map(Arc::new),
            Content::Unpacked(object) => Some(Arc::clone(object)),
        }
    }

    /// The metadata of the object: less to read than all of it.
    pub fn metadata(&self) -> Option<ObjectMeta> {
        match &self.0 {
            Content::Packed(json, _) => parsed(json).map(|described: Described| described.metadata),
            Content::Unpacked(object) => Some(object.meta().clone()),
        }
    }

    /// Whether two states of an object are known to be the same: they are of one version.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        if let (Content::Packed(one, _), Content::Packed(other, _)) = (&self.0, &other.0)
            && one != other
        {
            return false;
        }
        let version = |kept: &Self| kept.metadata().map(|meta| (meta.uid, meta.resource_version));
        let (version, other) = (version(self), version(other));
        version.as_ref().is_some_and(|(_, version)| version.is_some()) && version == other
    }
}

/// What was written as JSON can be read.
fn parsed<T: DeserializeOwned>(json: &[u8]) -> Option<T> {
    serde_json::from_slice(json).inspect_err(|error| tracing::error!(%error, "a mirrored object cannot be read")).ok()
}
