//! An object as a mirror keeps it.
//!
//! Kubernetes' types are made for one object at a time: each has a place for every field that there could be, and a
//! piece of memory of its own for each text in it, several times what the same object takes as JSON. A mirror has
//! thousands of objects and is asked for few of them at a time. So it keeps their JSON, packed ([`packed`]) into one
//! piece of memory each, and whoever looks at an object reads it again. Objects of a kind that many ask for at the same
//! time are unpacked once for all of them ([`Form::PackedAtRest`]).
//!
//! Invariants:
//! * what is kept can be read. An object whose JSON could not is kept as it is;
//! * an arrival is the same for whoever reads it, whether it was at hand or rested.
//!
//! [`packed`]: super::packed

use super::Mirrored;
use super::packed::{Packed, Packer};
use kube::core::ObjectMeta;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How a mirror keeps its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As JSON, compressed: for kinds of which there are many.
    Packed,
    /// The same, with the object beside it while somebody reads it time and again: for a kind that is asked for much
    /// while something happens, and then hardly.
    PackedAtRest,
    /// As they are: for a kind of which there are few.
    Unpacked,
}

/// An object as a mirror keeps it. Cheap to clone.
pub struct Kept<K>(Content<K>);

enum Content<K> {
    Packed(Packed, PhantomData<fn() -> K>),
    /// In memory of its own: of all that is packed each would have to have room for it.
    Unpacked(Arc<Unpacked<K>>),
}

enum Unpacked<K> {
    Always(Arc<K>),
    WhileRead(Resting<K>),
}

/// An object that is packed, and is there as it is while it is read.
struct Resting<K> {
    packed: Packed,
    in_use: Mutex<Option<InUse<K>>>,
}

struct InUse<K> {
    object: Arc<K>,
    read_at: Instant,
}

impl<K> Clone for Kept<K> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Content::Packed(packed, kind) => Content::Packed(packed.clone(), *kind),
            Content::Unpacked(unpacked) => Content::Unpacked(Arc::clone(unpacked)),
        })
    }
}

impl<K> fmt::Debug for Kept<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(packed) = self.packed() else { return f.write_str("Kept(unpacked)") };
        let json = packed.unpacked(|json| String::from_utf8_lossy(json).into_owned());
        write!(f, "Kept({})", json.unwrap_or_default())
    }
}

/// The metadata of an object.
#[derive(Deserialize)]
struct Described {
    metadata: ObjectMeta,
}

impl<K> Kept<K> {
    fn packed(&self) -> Option<&Packed> {
        match &self.0 {
            Content::Packed(packed, _) => Some(packed),
            Content::Unpacked(unpacked) => match &**unpacked {
                Unpacked::Always(_) => None,
                Unpacked::WhileRead(resting) => Some(&resting.packed),
            },
        }
    }

    /// The object, if it is there as it is.
    fn at_hand(&self) -> Option<Arc<K>> {
        let Content::Unpacked(unpacked) = &self.0 else { return None };
        match &**unpacked {
            Unpacked::Always(object) => Some(Arc::clone(object)),
            Unpacked::WhileRead(resting) => resting.in_use.lock().as_ref().map(|in_use| Arc::clone(&in_use.object)),
        }
    }

    /// Lets the object rest, packed, if nobody has read it for so long. Whoever has it goes on having it.
    pub(super) fn let_rest(&self, unread_for: Duration) {
        let Content::Unpacked(unpacked) = &self.0 else { return };
        let Unpacked::WhileRead(resting) = &**unpacked else { return };
        // Somebody reads it just now.
        let Some(mut in_use) = resting.in_use.try_lock() else { return };
        let rests = in_use.take_if(|in_use| in_use.read_at.elapsed() >= unread_for);
        drop(in_use);
        drop(rests);
    }
}

impl<K: Mirrored> Kept<K> {
    /// Keeps an object in this form.
    pub(super) fn new(object: Arc<K>, form: Form, packer: &Packer) -> Self {
        let packed = if form == Form::Unpacked { None } else { packed(&*object, packer) };
        Self(match packed {
            Some((packed, _)) if form == Form::Packed => Content::Packed(packed, PhantomData),
            // What has just arrived is about to be read.
            Some((packed, read)) => {
                let in_use = InUse { object: Arc::new(read), read_at: Instant::now() };
                let resting = Resting { packed, in_use: Mutex::new(Some(in_use)) };
                Content::Unpacked(Arc::new(Unpacked::WhileRead(resting)))
            }
            None => Content::Unpacked(Arc::new(Unpacked::Always(object))),
        })
    }

    /// The object. There always is one.
    pub fn read(&self) -> Option<Arc<K>> {
        match &self.0 {
            Content::Packed(packed, _) => parsed(packed).map(Arc::new),
            Content::Unpacked(unpacked) => match &**unpacked {
                Unpacked::Always(object) => Some(Arc::clone(object)),
                Unpacked::WhileRead(resting) => resting.read(),
            },
        }
    }

    /// The same, for who reads many objects once: those that rest go on resting.
    pub fn read_in_passing(&self) -> Option<Arc<K>> {
        self.at_hand().or_else(|| self.packed().and_then(parsed).map(Arc::new))
    }

    /// The metadata of the object: less to read than all of it.
    pub fn metadata(&self) -> Option<ObjectMeta> {
        if let Some(object) = self.at_hand() {
            return Some(object.meta().clone());
        }
        self.packed().and_then(parsed).map(|described: Described| described.metadata)
    }

    /// What a type has of the object that leaves out the rest: that is skipped, and takes no memory.
    pub fn read_part<T: DeserializeOwned>(&self) -> Option<T> {
        if let Some(packed) = self.packed() {
            return parsed(packed);
        }
        let json = serde_json::to_vec(&*self.at_hand()?).ok()?;
        serde_json::from_slice(&json).inspect_err(|error| tracing::error!(%error, "not a part of it")).ok()
    }

    /// Octets of the JSON that whoever reads the object unpacks and parses, at most: none if it is kept as it is.
    /// Nothing is unpacked for that.
    pub fn octets(&self) -> usize {
        self.packed().map_or(0, Packed::plain_len)
    }

    /// Whether both are one arrival of an object. What was read of one is so of the other.
    pub fn is_identical(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Content::Packed(one, _), Content::Packed(other, _)) => one.is_identical(other),
            (Content::Unpacked(one), Content::Unpacked(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Whether both have the same JSON. What is kept as it is has none, and is not compared.
    pub(super) fn has_content_of(&self, other: &Self) -> bool {
        self.packed().zip(other.packed()).is_none_or(|(one, other)| one.is_same(other))
    }
}

impl<K: DeserializeOwned> Resting<K> {
    /// The object, which is at hand from now on. Who asks while it is unpacked waits, and has it from who unpacks it.
    fn read(&self) -> Option<Arc<K>> {
        let mut in_use = self.in_use.lock();
        let object = match in_use.take() {
            Some(in_use) => in_use.object,
            None => Arc::new(parsed(&self.packed)?),
        };
        *in_use = Some(InUse { object: Arc::clone(&object), read_at: Instant::now() });
        Some(object)
    }
}

/// An object packed, and as it will be read.
fn packed<K: Mirrored>(object: &K, packer: &Packer) -> Option<(Packed, K)> {
    let json = serde_json::to_vec(object).ok()?;
    let read = serde_json::from_slice(&json).ok()?;
    Some((packer.pack(&json), read))
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
        Kept::new(Arc::new(serde_json::from_value(value).unwrap()), Form::Packed, &Packer::default())
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
        for (form, octets) in [(Form::Packed, octets), (Form::PackedAtRest, octets), (Form::Unpacked, 0)] {
            // Often enough that there is a dictionary.
            for rests in (0..100).map(|number| number % 2 == 0) {
                let kept = Kept::new(Arc::new(object.clone()), form, &packer);
                if rests {
                    kept.let_rest(Duration::ZERO);
                }
                assert_eq!(kept.metadata().as_ref(), Some(&object.metadata), "{kept:?}");
                assert_eq!(kept.read_in_passing().as_deref(), Some(&object), "{kept:?}");
                assert_eq!(kept.read().as_deref(), Some(&object), "{kept:?}");
                assert_eq!(kept.metadata().as_ref(), Some(&object.metadata), "{kept:?}");
                let part: Option<Described> = kept.read_part();
                assert_eq!(part.map(|part| part.metadata).as_ref(), Some(&object.metadata), "{kept:?}");
                assert_eq!(kept.octets(), octets, "{kept:?}");
            }
        }
    }

    #[test]
    fn what_is_packed_is_compared_by_all_that_it_has() {
        let state = |label: &str| service(json!({"metadata": {"resourceVersion": "1", "labels": {"a": label}}}));
        for (label, expected) in [("x", true), ("y", false)] {
            assert_eq!(state("x").has_content_of(&state(label)), expected, "{label}");
        }
    }

    #[test]
    fn what_is_identical_is_one_arrival() {
        let object = Arc::new(Service::default());
        let packer = Packer::default();
        for form in [Form::Packed, Form::PackedAtRest, Form::Unpacked] {
            let kept = Kept::new(Arc::clone(&object), form, &packer);
            let another = Kept::new(Arc::new(Service::default()), form, &packer);
            let same = kept.clone();
            same.let_rest(Duration::ZERO);
            assert!(kept.is_identical(&same) && !kept.is_identical(&another), "{form:?}");
        }
    }

    #[test]
    fn an_object_is_at_hand_from_when_it_is_read_until_it_rests() {
        let kept = Kept::new(Arc::new(Service::default()), Form::PackedAtRest, &Packer::default());
        let hour = Duration::from_secs(3_600);
        // what is done -> whether the object is at hand then
        type Step = (&'static str, fn(&Kept<Service>, Duration), bool);
        let table: [Step; 9] = [
            ("it arrives", |_, _| {}, true),
            ("it was not unread for so long", |kept, hour| kept.let_rest(hour), true),
            ("it rests", |kept, _| kept.let_rest(Duration::ZERO), false),
            ("it is read in passing", |kept, _| assert!(kept.read_in_passing().is_some()), false),
            ("its metadata are read", |kept, _| assert!(kept.metadata().is_some()), false),
            ("a part is read", |kept, _| assert!(kept.read_part::<Described>().is_some()), false),
            ("it is read", |kept, _| assert!(kept.read().is_some()), true),
            ("it is read in passing again", |kept, _| assert!(kept.read_in_passing().is_some()), true),
            ("it rests again", |kept, _| kept.let_rest(Duration::ZERO), false),
        ];
        for (what, step, expected) in table {
            step(&kept, hour);
            assert_eq!(kept.at_hand().is_some(), expected, "{what}");
        }
    }

    #[test]
    fn who_reads_while_it_is_at_hand_shares_it_and_who_has_it_keeps_it() {
        let kept = Kept::new(Arc::new(Service::default()), Form::PackedAtRest, &Packer::default());
        kept.let_rest(Duration::ZERO);
        let (one, other) = (kept.read().unwrap(), kept.clone().read().unwrap());
        assert!(Arc::ptr_eq(&one, &other));
        kept.let_rest(Duration::ZERO);
        let again = kept.read().unwrap();
        assert!(!Arc::ptr_eq(&one, &again) && one == again);
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
        for form in [Form::Packed, Form::PackedAtRest] {
            let kept = Kept::new(Arc::new(object.clone()), form, &Packer::default());
            kept.let_rest(Duration::ZERO);
            assert_eq!(kept.read().as_deref(), Some(&object), "{form:?}");
            assert_eq!(kept.metadata().as_ref(), Some(&object.metadata), "{form:?}");
        }
    }
}
