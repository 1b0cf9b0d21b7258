//! An object as a mirror keeps it.
//!
//! Kubernetes' types are made for one object at a time: each has a place for every field that there could be, and a
//! piece of memory of its own for each text in it, several times what the same object takes as JSON. A mirror has
//! thousands of objects and is asked for few of them at a time. So it keeps their JSON, packed ([`packed`]) into one
//! piece of memory each, and whoever looks at an object reads it again.
//!
//! Invariant: what is kept can be read. An object whose JSON could not is kept as it is.
//!
//! [`packed`]: super::packed

use super::Mirrored;
use super::packed::{Packed, Packer};
use kube::core::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// How a mirror keeps its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As JSON, compressed: for kinds of which there are many.
    Packed,
    /// As they are: for a kind that is asked for much more often than it changes.
    Unpacked,
}

/// An object as a mirror keeps it. Cheap to clone.
pub struct Kept<K>(Content<K>);

enum Content<K> {
    Packed(Packed, PhantomData<fn() -> K>),
    Unpacked(Arc<K>),
}

impl<K> Clone for Kept<K> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Content::Packed(packed, kind) => Content::Packed(packed.clone(), *kind),
            Content::Unpacked(object) => Content::Unpacked(Arc::clone(object)),
        })
    }
}

impl<K> fmt::Debug for Kept<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Content::Packed(packed, _) => {
                let json = packed.unpacked(|json| String::from_utf8_lossy(json).into_owned());
                write!(f, "Kept({})", json.unwrap_or_default())
            }
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
    /// Keeps an object; packed if there is a packer.
    pub(super) fn new(object: Arc<K>, packer: Option<&Packer>) -> Self {
        let packed = packer.and_then(|packer| {
            let json = serde_json::to_vec(&*object).ok().filter(|json| serde_json::from_slice::<K>(json).is_ok())?;
            Some(packer.pack(&json))
        });
        Self(match packed {
            Some(packed) => Content::Packed(packed, PhantomData),
            None => Content::Unpacked(object),
        })
    }

    /// The object. There always is one.
    pub fn read(&self) -> Option<Arc<K>> {
        match &self.0 {
            Content::Packed(packed, _) => parsed(packed).map(Arc::new),
            Content::Unpacked(object) => Some(Arc::clone(object)),
        }
    }

    /// The metadata of the object: less to read than all of it.
    pub fn metadata(&self) -> Option<ObjectMeta> {
        match &self.0 {
            Content::Packed(packed, _) => parsed(packed).map(|described: Described| described.metadata),
            Content::Unpacked(object) => Some(object.meta().clone()),
        }
    }

    /// What a type has of the object that leaves out the rest: that is skipped, and takes no memory.
    pub fn read_part<T: DeserializeOwned>(&self) -> Option<T> {
        match &self.0 {
            Content::Packed(packed, _) => parsed(packed),
            Content::Unpacked(object) => {
                let json = serde_json::to_vec(&**object).ok()?;
                serde_json::from_slice(&json).inspect_err(|error| tracing::error!(%error, "not a part of it")).ok()
            }
        }
    }

    /// Octets of the JSON that whoever reads the object unpacks and parses: none if it is kept as it is. Nothing is
    /// unpacked for that.
    pub fn octets(&self) -> usize {
        match &self.0 {
            Content::Packed(packed, _) => packed.plain_len(),
            Content::Unpacked(_) => 0,
        }
    }

    /// Whether both are one arrival of an object. What was read of one is so of the other.
    pub fn is_identical(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Content::Packed(one, _), Content::Packed(other, _)) => one.is_identical(other),
            (Content::Unpacked(one), Content::Unpacked(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Whether two states of an object are known to be the same: they are of one version.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        if let (Content::Packed(one, _), Content::Packed(other, _)) = (&self.0, &other.0)
            && !one.is_same(other)
        {
            return false;
        }
        let version = |kept: &Self| kept.metadata().map(|meta| (meta.uid, meta.resource_version));
        let (version, other) = (version(self), version(other));
        version.as_ref().is_some_and(|(_, version)| version.is_some()) && version == other
    }
}

/// What was written as JSON can be read.
fn parsed<T: DeserializeOwned>(packed: &Packed) -> Option<T> {
    let Some(read) = packed.unpacked(|json| serde_json::from_slice(json)) else {
        tracing::error!("a mirrored object cannot be unpacked");
        return None;
    };
    read.inspect_err(|error| tracing::error!(%error, "a mirrored object cannot be read")).ok()
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
        Kept::new(Arc::new(serde_json::from_value(value).unwrap()), Some(&Packer::default()))
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
        let packer = Packer::default();
        let octets = serde_json::to_vec(&object).unwrap().len();
        for (packer, octets) in [(Some(&packer), octets), (None, 0)] {
            // Often enough that there is a dictionary.
            for _ in 0..100 {
                let kept = Kept::new(Arc::new(object.clone()), packer);
                assert_eq!(kept.read().as_deref(), Some(&object), "{kept:?}");
                assert_eq!(kept.metadata().as_ref(), Some(&object.metadata), "{kept:?}");
                let part: Option<Described> = kept.read_part();
                assert_eq!(part.map(|part| part.metadata).as_ref(), Some(&object.metadata), "{kept:?}");
                assert_eq!(kept.octets(), octets, "{kept:?}");
            }
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

    #[test]
    fn what_is_identical_is_one_arrival() {
        let object = Arc::new(Service::default());
        let packer = Packer::default();
        for packer in [Some(&packer), None] {
            let kept = Kept::new(Arc::clone(&object), packer);
            let another = Kept::new(Arc::new(Service::default()), packer);
            assert!(kept.is_identical(&kept.clone()) && !kept.is_identical(&another));
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
        let kept = Kept::new(Arc::new(object.clone()), Some(&Packer::default()));
        assert_eq!(kept.read().as_deref(), Some(&object));
        assert_eq!(kept.metadata(), Some(object.metadata));
    }
}
