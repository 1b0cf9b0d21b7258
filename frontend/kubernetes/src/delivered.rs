//! An object as the API server delivers it, whatever others have made of it (rule call-6).
//!
//! Whoever may write an object may write into it what cannot be read here, such as a time that the types of this
//! program do not have. Many objects come in one answer, so reading one of them never fails: the answer has either the
//! object, or why it cannot be read and which one it is.
//!
//! Each object is cut out of its answer as a text, without looking into it, and read on its own.
//!
//! Knows: metadata. Must not know: what follows from an object that cannot be read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Longest reason, in characters.
const REASON_MAX: usize = 200;

/// An object, or why it cannot be read.
#[derive(Clone, Debug)]
pub struct Delivered<K>(pub Result<K, Box<Unreadable>>);

/// An object that cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Unreadable {
    /// Why: bounded, and without texts of the object.
    pub reason: String,
    /// Which object it is, and its version; nothing else.
    pub metadata: ObjectMeta,
}

impl<K: Resource<DynamicType = ()>> Delivered<K> {
    /// The object.
    ///
    /// # Errors
    /// It cannot be read ([`kube::Error::SerdeError`]).
    pub fn readable(self) -> kube::Result<K> {
        self.0.map_err(|unreadable| {
            let name = unreadable.metadata.name.unwrap_or_default();
            let message = format!("{} {name} cannot be read: {}", K::kind(&()), unreadable.reason);
            kube::Error::SerdeError(serde_json::Error::custom(message))
        })
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Delivered<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(read(&text)))
    }
}

impl<K: Resource> Resource for Delivered<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|unreadable| &unreadable.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|unreadable| &mut unreadable.metadata, K::meta_mut)
    }
}

/// Fields of an object, not looked into.
type Fields<'a> = BTreeMap<String, &'a RawValue>;

fn read<K: DeserializeOwned>(text: &RawValue) -> Result<K, Box<Unreadable>> {
    let as_it_is = match parsed(text) {
        Ok(object) => return Ok(object),
        Err(error) => error,
    };
    let error = match mended(text).map(|mended| parsed(&mended)) {
        Some(Ok(object)) => return Ok(object),
        Some(Err(error)) => error,
        None => as_it_is,
    };
    Err(Box::new(Unreadable { reason: reason(&error), metadata: identity(text) }))
}

fn parsed<'a, T: Deserialize<'a>>(text: &'a RawValue) -> serde_json::Result<T> {
    serde_json::from_str(text.get())
}

/// The object without what cannot be read of what anybody may have set who may write it: of who manages its fields,
/// times, and fields that are nested too deeply; and conditions with such times. Whoever says one says it again.
fn mended(object: &RawValue) -> Option<Box<RawValue>> {
    let given: Fields<'_> = parsed(object).ok()?;
    let metadata = given.get("metadata").copied().and_then(with_readable_managers);
    let status = given.get("status").copied().and_then(with_readable_conditions);
    if metadata.is_none() && status.is_none() {
        return None;
    }
    let mut fields = given;
    for (name, part) in [("metadata", &metadata), ("status", &status)] {
        fields.extend(part.as_deref().map(|part| (name.to_owned(), part)));
    }
    to_raw_value(&fields).ok()
}

fn with_readable_managers(metadata: &RawValue) -> Option<Box<RawValue>> {
    let metadata: Fields<'_> = parsed(metadata).ok()?;
    let mut writers: Vec<Fields<'_>> = parsed(metadata.get("managedFields").copied()?).ok()?;
    for writer in &mut writers {
        writer.retain(|field, value| match field.as_str() {
            "time" => parsed::<Time>(value).is_ok(),
            "fieldsV1" => parsed::<Value>(value).is_ok(),
            _ => true,
        });
    }
    with(metadata, "managedFields", &to_raw_value(&writers).ok()?)
}

fn with_readable_conditions(status: &RawValue) -> Option<Box<RawValue>> {
    let status: Fields<'_> = parsed(status).ok()?;
    let mut conditions: Vec<Fields<'_>> = parsed(status.get("conditions").copied()?).ok()?;
    conditions.retain(|condition| {
        let time = condition.get("lastTransitionTime").copied();
        time.is_none_or(|time| parsed::<Option<Time>>(time).is_ok())
    });
    with(status, "conditions", &to_raw_value(&conditions).ok()?)
}

fn with<'a>(mut fields: Fields<'a>, name: &str, value: &'a RawValue) -> Option<Box<RawValue>> {
    fields.insert(name.to_owned(), value);
    to_raw_value(&fields).ok()
}

/// Which object it is.
fn identity(object: &RawValue) -> ObjectMeta {
    let object: Fields<'_> = parsed(object).unwrap_or_default();
    let metadata: Fields<'_> =
        object.get("metadata").copied().and_then(|metadata| parsed(metadata).ok()).unwrap_or_default();
    let text = |name: &str| metadata.get(name).copied().and_then(|text| parsed(text).ok());
    ObjectMeta {
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        ..ObjectMeta::default()
    }
}

/// The text without what is between these places.
fn without(text: &str, from: Option<usize>, to: Option<usize>) -> String {
    let mut text = text.to_owned();
    if let (Some(from), Some(to)) = (from, to)
        && from < to
    {
        text.replace_range(from + 1..to, "...");
    }
    text
}

/// What is wrong. Texts of the object are left out: they may be secrets, and as long as their author likes.
fn reason(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let mut message = without(&message, message.find('"'), message.rfind('"'));
    if message.starts_with("unknown ") {
        // The name of the variant or field is the object's; those that there are instead are not.
        let end = ["`, expected ", "`, there are no "].into_iter().find_map(|words| message.rfind(words));
        message = without(&message, message.find('`'), end.or_else(|| message.rfind('`')));
    }
    message.chars().filter(|character| !character.is_control()).take(REASON_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
    use kube::core::{ObjectList, PartialObjectMeta, WatchEvent};
    use serde_json::json;

    /// A time that RFC 3339 has, and the API server keeps.
    const LATEST: &str = "9999-12-31T23:59:59Z";

    /// Fields that are nested more deeply than JSON is read.
    fn nested() -> String {
        format!("{}{{}}{}", r#"{"f:a":"#.repeat(200), "}".repeat(200))
    }

    /// An object whose writers have a time that cannot be read, and fields that are nested too deeply.
    fn spoilt(kind: &str) -> String {
        let nested = nested();
        format!(
            r#"{{"apiVersion":"v1","kind":"{kind}","metadata":{{"namespace":"n","name":"a","uid":"u",
            "resourceVersion":"7","labels":{{"l":"x"}},"managedFields":[
            {{"manager":"m","operation":"Update","time":"{LATEST}","fieldsV1":{{"f:data":{{"f:k":{{}}}}}}}},
            {{"manager":"o","time":"2026-01-02T03:04:05Z","fieldsV1":{nested}}}]}}}}"#
        )
    }

    fn delivered<K: DeserializeOwned>(text: &str) -> Result<K, Box<Unreadable>> {
        serde_json::from_str::<Delivered<K>>(text).unwrap().0
    }

    #[test]
    fn what_others_have_set_of_the_managers_of_an_object_keeps_nobody_from_reading_it() {
        fn meta<K: DeserializeOwned + Resource>(kind: &str) -> ObjectMeta {
            delivered::<K>(&spoilt(kind)).unwrap().meta().clone()
        }
        for meta in [
            meta::<Pod>("Pod"),
            meta::<Service>("Service"),
            meta::<ConfigMap>("ConfigMap"),
            meta::<PartialObjectMeta<ConfigMap>>("ConfigMap"),
        ] {
            let expected = json!({
                "namespace": "n", "name": "a", "uid": "u", "resourceVersion": "7", "labels": {"l": "x"},
                "managedFields": [
                    {"manager": "m", "operation": "Update", "fieldsV1": {"f:data": {"f:k": {}}}},
                    {"manager": "o", "time": "2026-01-02T03:04:05Z"},
                ],
            });
            assert_eq!(serde_json::to_value(meta).unwrap(), expected);
        }
    }

    #[test]
    fn others_of_an_answer_are_read_and_of_what_cannot_be_read_it_is_known_which_object_it_is() {
        let good = r#"{"metadata":{"name":"b","resourceVersion":"8"},"spec":{"ports":[{"port":1}]}}"#;
        let bad = r#"{"spec":{"ports":[{"port":5000000000}]},"metadata":{"name":"c","uid":7,"resourceVersion":"9"}}"#;
        let list = format!(
            r#"{{"kind":"ServiceList","apiVersion":"v1","metadata":{{"resourceVersion":"9"}},"items":[{},{good},{bad},7]}}"#,
            spoilt("Service")
        );
        let list: ObjectList<Delivered<Service>> = serde_json::from_str(&list).unwrap();
        let names = list.items.iter().map(|item| (item.meta().name.as_deref().unwrap_or("-"), item.0.is_ok()));
        assert_eq!(names.collect::<Vec<_>>(), [("a", true), ("b", true), ("c", false), ("-", false)]);
        let bad = list.items[2].0.as_ref().unwrap_err();
        let expected = json!({"name": "c", "resourceVersion": "9"});
        assert_eq!(serde_json::to_value(&bad.metadata).unwrap(), expected);
        assert!(bad.reason.contains("5000000000"), "{bad}");

        let event = format!(r#"{{"type":"MODIFIED","object":{}}}"#, spoilt("Service").replace('\n', ""));
        let event: WatchEvent<Delivered<Service>> = serde_json::from_str(&event).unwrap();
        assert!(matches!(event, WatchEvent::Modified(Delivered(Ok(_)))), "{event:?}");
    }

    #[test]
    fn why_an_object_cannot_be_read_is_said_in_few_words_and_without_its_texts() {
        let text = format!("secret\n{}", "x".repeat(10_000));
        let object = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": text}]}});
        let error = delivered::<Service>(&object.to_string()).unwrap_err();
        assert!(error.reason.contains("expected i32") && !error.reason.contains("secret"), "{error}");
        let text = Delivered::<Service>(Err(error)).readable().unwrap_err().to_string();
        assert!(text.contains("Service a cannot be read: invalid type") && text.len() < 300, "{text}");
        // what serde says -> what is said
        let table = [
            ("unknown variant `yy`, expected `A` or `B`", "unknown variant `...`, expected `A` or `B`"),
            ("unknown variant `y`y`, expected one of `A`, `B`", "unknown variant `...`, expected one of `A`, `B`"),
            ("unknown field `y\"y`, there are no fields", "unknown field `...`, there are no fields"),
            ("unknown variant `y\n`", "unknown variant `...`"),
            // It is one of this program.
            ("missing field `name`", "missing field `name`"),
        ];
        for (said, expected) in table {
            assert_eq!(reason(&serde_json::Error::custom(said)), expected);
        }
        assert_eq!(reason(&serde_json::Error::custom("y".repeat(10_000))).chars().count(), REASON_MAX);
    }

    #[test]
    fn a_condition_with_a_time_that_cannot_be_read_is_left_out() {
        let condition = |kind: &str, time: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time});
        let object = json!({
            "metadata": {"name": "a"},
            "status": {
                "phase": "Running",
                "conditions": [
                    condition("a", LATEST), condition("b", "2026-01-01T00:00:00Z"),
                    condition("c", "2026-01-01T00:00:00+29:00"), {"type": "d", "status": "False"},
                    {"type": "e", "status": "True", "lastTransitionTime": null},
                ],
            },
        });
        let status = delivered::<Pod>(&object.to_string()).unwrap().status.unwrap();
        let kept = status.conditions.iter().flatten().map(|condition| condition.type_.as_str());
        assert_eq!((status.phase.as_deref(), kept.collect::<Vec<_>>()), (Some("Running"), vec!["b", "d", "e"]));
    }
}
