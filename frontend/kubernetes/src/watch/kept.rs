//! An object as a mirror keeps it.
//!
//! Kubernetes' types are made for one object at a time: each has a place for every field that there could be, and a
//! piece of memory of its own for each text in it, several times what the same object takes as JSON. A mirror has
//! thousands of objects and is asked for few of them at a time. So it keeps their JSON, in one piece of memory each,
//! and whoever looks at an object reads it again.
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
    pub(super) fn new(object: Arc<K>, form: Form) -> Self {
        let packed = match form {
            Form::Packed => serde_json::to_vec(&*object).ok().filter(|json| serde_json::from_slice::<K>(json).is_ok()),
            Form::Unpacked => None,
        };
        Self(match packed {
            Some(json) => Content::Packed(json.into(), PhantomData),
            None => Content::Unpacked(object),
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

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::NamespaceResourceScope;
    use k8s_openapi::api::core::v1::Service;
    use serde::{Serialize, Serializer};
    use serde_json::{Value, json};
    use std::borrow::Cow;

    fn service(value: Value) -> Kept<Service> {
        Kept::new(Arc::new(serde_json::from_value(value).unwrap()), Form::Packed)
    }

    #[test]
    fn what_is_kept_is_read_as_it_was() {
        let object: Service = serde_json::from_value(json!({
            "metadata": {
                "namespace": "n", "name": "s", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-11-22T10:11:12Z", "labels": {"a": "b"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "x", "controller": true}],
            },
            "spec": {"ports": [{"port": 1, "targetPort": 1}, {"port": 2, "targetPort": "name"}]},
        }))
        .unwrap();
        for form in [Form::Packed, Form::Unpacked] {
            let kept = Kept::new(Arc::new(object.clone()), form);
            assert_eq!(kept.read().as_deref(), Some(&object), "{form:?}");
            assert_eq!(kept.metadata().as_ref(), Some(&object.metadata), "{form:?}");
        }
    }

    #[test]
    fn states_of_one_version_are_the_same() {
        let state = |uid: &str, version: Option<&str>, label: &str| {
            service(json!({"metadata": {"uid": uid, "resourceVersion": version, "labels": {"a": label}}}))
        };
        // one state, another one -> the same
        let table = [
            (("u", Some("1"), "x"), ("u", Some("1"), "x"), true),
            (("u", Some("1"), "x"), ("u", Some("2"), "x"), false),
            (("u", Some("1"), "x"), ("v", Some("1"), "x"), false),
            (("u", None, "x"), ("u", None, "x"), false),
            // A mistake of whoever delivers it; looking again does no harm.
            (("u", Some("1"), "x"), ("u", Some("1"), "y"), false),
        ];
        for (one, other, same) in table {
            let (one, other) = (state(one.0, one.1, one.2), state(other.0, other.1, other.2));
            assert_eq!(one.is_same(&other), same, "{one:?} {other:?}");
        }
    }

    /// A kind whose JSON cannot be read.
    #[derive(Clone, Debug, Default, Deserialize, PartialEq)]
    struct Unreadable {
        metadata: ObjectMeta,
    }

    impl Serialize for Unreadable {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_str("what cannot be read")
        }
    }

    impl kube::Resource for Unreadable {
        type DynamicType = ();
        type Scope = NamespaceResourceScope;

        fn kind((): &()) -> Cow<'_, str> {
            "Unreadable".into()
        }
        fn group((): &()) -> Cow<'_, str> {
            "".into()
        }
        fn version((): &()) -> Cow<'_, str> {
            "v1".into()
        }
        fn plural((): &()) -> Cow<'_, str> {
            "unreadables".into()
        }
        fn meta(&self) -> &ObjectMeta {
            &self.metadata
        }
        fn meta_mut(&mut self) -> &mut ObjectMeta {
            &mut self.metadata
        }
    }

    #[test]
    fn an_object_whose_json_cannot_be_read_is_kept_as_it_is() {
        let metadata = ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() };
        let object = Unreadable { metadata };
        let kept = Kept::new(Arc::new(object.clone()), Form::Packed);
        assert_eq!(kept.read().as_deref(), Some(&object));
        assert_eq!(kept.metadata(), Some(object.metadata));
    }
}
