//! Values of fields: good ones, which a job must become ready with, and bad ones, with the words by which a user is
//! told.
//!
//! What the schema alone says (types, bounds, words to choose from) is found in it. What it does not say, such as which
//! regions the application has or which Secrets there are, stands in a table here.
//!
//! Knows: schemas, the sample application, what is there in a namespace. Must not know: sequences.

use super::fields::Field;
use serde_json::{Value, json};

/// Name of the Secret and of the volume claim that every namespace of a run has.
pub(super) const EXISTING: &str = "existing";
/// A bundle that the frontend's directory has beside that of the sample: the same application.
pub(super) const COPY: &str = "copy.sab";
/// Another one: an application that has all kinds of objects.
pub(super) const ALL_KINDS: &str = "all-kinds.sab";
/// A file in the frontend's directory that is no bundle.
pub(super) const BROKEN: &str = "broken.sab";
/// A Secret goes with an https URL only, which no run has.
const WITHOUT_GOOD: &str = "bundle.secret";
/// Services that every namespace of a run has, and how many redis servers each of them has.
pub(super) const REDIS: [(&str, u32); 3] = [("redis", 1), ("redis-other", 1), ("redis-of-three", 3)];
/// Stands in values for the address of the server of bundles.
pub(super) const SERVER: &str = "http://SERVER";

/// A value that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bad {
    /// The value.
    pub(super) value: Value,
    /// One of these must be in what the user is told.
    pub(super) words: Vec<String>,
    /// The schema refuses it.
    pub(super) refused: bool,
}

/// Values of a field.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Values {
    /// What the rest of the spec must be like for the field to mean something: a merge patch.
    pub(super) context: Value,
    /// A job becomes ready with any of these.
    pub(super) good: Vec<Value>,
    /// Refused, or explained.
    pub(super) bad: Vec<Bad>,
}

/// The values of a field of a job's spec.
pub(super) fn of(field: &Field) -> Values {
    let mut values = table(field).unwrap_or_default();
    if !field.is_inner() {
        let of_schema = of_schema(field);
        if values.good.is_empty() && field.name != WITHOUT_GOOD {
            values.good = of_schema.good;
        }
        values.bad.extend(of_schema.bad);
    }
    for bad in &mut values.bad {
        if bad.words.is_empty() {
            bad.words.push(field.last().to_owned());
        }
    }
    if values.context.is_null() {
        values.context = json!({});
    }
    values
}

/// What a schema says by itself.
fn of_schema(field: &Field) -> Values {
    let schema = &field.schema;
    let number = |key: &str| schema.get(key).and_then(Value::as_f64).map(|number| number as i64);
    let mut values = Values::default();
    let mut bad = |value: Value| values.bad.push(Bad { value, words: Vec::new(), refused: true });
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        values.good.clone_from(words);
        bad(json!("no-such-word"));
        bad(json!(7));
        return values;
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => {
            values.good = vec![json!(true), json!(false)];
            bad(json!("perhaps"));
        }
        Some("integer") => {
            let (least, most) = (number("minimum").unwrap_or(0), number("maximum").unwrap_or(i64::from(i32::MAX)));
            values.good = vec![json!(least + 2), json!(least), json!(most)];
            bad(json!(least - 1));
            bad(json!(most + 1));
            bad(json!("many"));
            bad(json!(1.5));
        }
        Some("string") => {
            values.good = vec![json!("a"), json!("b-2")];
            bad(json!(""));
            bad(json!({"not": "a string"}));
            if let Some(most) = number("maxLength") {
                let most = usize::try_from(most).unwrap_or_default();
                bad(json!("a".repeat(most + 1)));
            }
        }
        _ => bad(json!([])),
    }
    values
}

/// What no schema says.
fn table(field: &Field) -> Option<Values> {
    let last = field.last();
    let name = field.name.as_str();
    let values = match name {
        "bundle.file" => values(
            json!({}),
            [json!(COPY), json!(crate::sample::SAB)],
            [(json!("../up.sab"), "file"), (json!("missing.sab"), "missing.sab"), (json!(BROKEN), "broken")],
        ),
        "bundle.name" => values(
            json!({}),
            [json!("other.Name.sab"), json!("short")],
            [(json!("-begins-badly"), "name"), (json!("a b"), "name")],
        ),
        "bundle.url" => values(
            json!({"bundle": {"file": null, "url": format!("{SERVER}/demo.Served.sab")}}),
            [
                json!(format!("{SERVER}/other/demo.Renamed.sab")),
                json!(format!("{SERVER}/again/demo.Served.sab?token=hidden")),
            ],
            [
                (json!("ftp://example.com/a.sab"), "url"),
                (json!(format!("{SERVER}/missing.sab")), "missing.sab"),
                (json!("http://127.0.0.1:1/nobody.sab"), "nobody.sab"),
                (json!("https://no-such-host.invalid/a.sab"), "no-such-host.invalid"),
            ],
        ),
        "bundle.secret" => values(
            json!({"bundle": {"file": null, "url": format!("{SERVER}/demo.Served.sab")}}),
            [],
            [(json!("Not A Name"), "secret"), (json!("no-such-secret"), "no-such-secret")],
        ),
        _ if name.starts_with("fusion.") => fusion(last),
        _ if name.starts_with("threadingModel.") => threading(name),
        _ if name.starts_with("parallelRegions[]") => regions(last),
        _ if name.ends_with("resources.limits{}") || name.ends_with("resources.requests{}") => quantities(name),
        "submissionTimeValues{}" => values(
            json!({}),
            [json!({"cleaners": "3"}), json!({"cleaners": 1, "lowest": "0.5"}), json!({"cleaners": 2})],
            [
                (json!({"cleaners": "many"}), "cleaners"),
                (json!({"cleaners": ["2"]}), "cleaners"),
                (json!({"lowest": 1.5}), "lowest"),
            ],
        ),
        _ if last == "image" => values(
            json!({}),
            [json!("registry.example.com/team/runtime:6.1"), json!("runtime")],
            [(json!("UPPER/Case:bad tag"), "image")],
        ),
        _ if last.ends_with("Secret") => {
            values(json!({}), [json!(EXISTING), json!("made-later")], [(json!("Not A Name"), last), (json!("-"), last)])
        }
        "processingElement.dataVolumeClaim.name" => claim(json!({})),
        "processingElement.dataVolumeClaim.subPath" => {
            sub_path(json!({"processingElement": {"dataVolumeClaim": {"name": EXISTING}}}))
        }
        "processingElement.dataPath" => values(
            json!({}),
            [json!("/data/streams"), json!("/data/other")],
            [(json!("data"), "dataPath"), (json!("/a/../b"), "dataPath")],
        ),
        _ if name.contains(".checkpoint") => checkpoints(name),
        "processingElement.sabName" | "processingElement.bundleName" => {
            values(json!({}), [json!("own.sab"), json!("other.sab")], [])
        }
        "processingElement.buildType" => values(json!({}), [json!("release"), json!("debug")], []),
        // What is suspended is not ready, and says so.
        "suspend" => values(json!({}), [json!(false)], [(json!(true), "suspended")]),
        "rollout.maxUnavailable" => values(
            json!({}),
            [json!(1), json!("25%"), json!("100%")],
            [json!(0), json!("0%"), json!("101%"), json!("some")].map(|value| (value, "maxUnavailable")),
        ),
        // What takes a day to be ready is not ready in time.
        "rollout.minReadySeconds" => values(
            json!({}),
            [json!(1), json!(0), json!(2)],
            [json!(-1), json!(86_401), json!("long")].map(|value| (value, "minReadySeconds")),
        ),
        // Without TLS there is no certificate.
        "transportCertificateValidityInDays" => values(
            json!({"processingElement": {"transportSecurityType": "TLSv1.2"}}),
            [json!(2), json!(3_650), json!(30)],
            [],
        ),
        "submissionTimeOutInSeconds" => values(json!({}), [json!(600), json!(86_400)], []),
        _ => return None,
    };
    Some(values)
}

fn values<const G: usize, const B: usize>(context: Value, good: [Value; G], bad: [(Value, &str); B]) -> Values {
    let bad = bad.into_iter().map(|(value, word)| Bad { value, words: vec![word.to_owned()], refused: false });
    Values { context, good: good.into(), bad: bad.collect() }
}

/// Kinds of fusion exclude each other; the base of a run has `manual`.
fn fusion(last: &str) -> Values {
    let alone = |field: &str| match field {
        "manual" => json!({}),
        _ => json!({"fusion": {"manual": null}}),
    };
    match last {
        "type" => {
            values(json!({}), [json!("channelIsolation"), json!("channelExlocation"), json!("noChannelInfluence")], [])
        }
        "manual" => values(alone(last), [json!(5), json!(1)], []),
        "automatic" => values(alone(last), [json!(true)], [(json!(false), "automatic")]),
        _ => values(alone(last), [json!(true)], []),
    }
}

fn threading(name: &str) -> Values {
    match name {
        "threadingModel.dynamic.elastic" => {
            values(json!({"threadingModel": {"dynamic": {}}}), [json!(true), json!(false)], [])
        }
        "threadingModel.dynamic.threadCount" => {
            values(json!({"threadingModel": {"dynamic": {}}}), [json!(3), json!(1)], [])
        }
        _ => values(json!({}), [json!(true)], []),
    }
}

fn regions(last: &str) -> Values {
    let list = |entry: Value| json!([entry]);
    match last {
        "name" => values(
            json!({}),
            [list(json!({"name": "Clean", "width": 3})), list(json!({"name": "Score*", "width": 1}))],
            [(list(json!({"name": "", "width": 3})), "name"), (list(json!({"width": 3})), "name")],
        ),
        "alias" => values(
            json!({}),
            [list(json!({"alias": "Clean", "width": 1}))],
            [(list(json!({"alias": "Clean", "name": "Clean", "width": 3})), "alias")],
        ),
        "width" => values(
            json!({}),
            [list(json!({"name": "Clean", "width": 4})), list(json!({"name": "Clean", "width": 1}))],
            [
                (list(json!({"name": "Clean", "width": 0})), "width"),
                (list(json!({"name": "Clean", "width": 10_001})), "width"),
            ],
        ),
        // Without a width: the application says 2.
        "minWidth" => values(
            json!({}),
            [list(json!({"name": "Clean", "minWidth": 2})), list(json!({"name": "Clean", "minWidth": 1}))],
            [
                (list(json!({"name": "Clean", "minWidth": 5, "maxWidth": 3})), "minWidth"),
                (list(json!({"name": "Cleen", "minWidth": 2})), "Cleen"),
            ],
        ),
        "coolDownSeconds" => values(
            json!({}),
            [list(json!({"name": "Clean", "coolDownSeconds": 5})), list(json!({"name": "*", "coolDownSeconds": 0}))],
            [
                (list(json!({"name": "Clean", "coolDownSeconds": 86_401})), "coolDownSeconds"),
                (list(json!({"name": "Cleen", "coolDownSeconds": 5})), "Cleen"),
            ],
        ),
        "channelCount" => values(
            json!({}),
            [
                list(json!({"name": "Clean", "channelCount": "Ignored"})),
                list(json!({"alias": "*", "channelCount": "Observed"})),
            ],
            [
                (list(json!({"name": "Clean", "channelCount": "Sometimes"})), "channelCount"),
                (list(json!({"name": "Cleen", "channelCount": "Ignored"})), "Cleen"),
            ],
        ),
        _ => values(
            json!({}),
            [list(json!({"name": "Clean", "maxWidth": 3})), list(json!({"name": "*", "maxWidth": 8}))],
            [(list(json!({"name": "Clean", "maxWidth": "3"})), last)],
        ),
    }
}

fn quantities(name: &str) -> Values {
    let place: Vec<&str> = name.trim_end_matches("{}").split('.').collect();
    let word = place.last().copied().unwrap_or_default();
    values(
        json!({}),
        [json!({"cpu": "300m", "memory": "384Mi"}), json!({"memory": "1Gi"}), json!({"cpu": 2})],
        [
            (json!({"cpu": "a lot"}), word),
            (json!({"memory": "-1"}), word),
            (json!({"cpus": 1}), word),
            (json!({"cpu": 1, "hugepages-2Mi": "3Mi"}), word),
            (json!({"example.com/device": "500m"}), word),
            // A request without a limit is refused, and the resources named; with one no node has it.
            (json!({"example.com/device": 1_000}), if word == "limits" { "example.com/device" } else { "resources" }),
        ],
    )
}

fn claim(context: Value) -> Values {
    values(context, [json!(EXISTING)], [(json!("Not A Name"), "name"), (json!("no-such-claim"), "no-such-claim")])
}

fn sub_path(context: Value) -> Values {
    values(context, [json!("jobs/a"), json!("b")], [(json!("/abs"), "subPath"), (json!("a/../b"), "subPath")])
}

/// Under either name of the option.
fn checkpoints(name: &str) -> Values {
    let option = if name.contains("checkpointDataStore") { "checkpointDataStore" } else { "checkpointRepository" };
    let with = |store: Value| json!({"processingElement": {option: store}});
    let file_system = |inner: Value| with(json!({"fileSystem": inner}));
    let redis = |service: &str, replicas: u32, shards: u32| {
        with(json!({"redis": {"replicaCount": replicas, "shardCount": shards, "service": service}}))
    };
    let existing = json!({"volumeClaim": {"name": EXISTING}});
    let [one, other, three] = REDIS.map(|(service, _)| service);
    match name.rsplit_once('.').map_or(name, |(_, last)| last) {
        "path" => values(
            file_system(existing),
            [json!("/checkpoints/here"), json!("/c")],
            [(json!("/a:b"), "path"), (json!("c"), "path"), (json!("/data/"), "path")],
        ),
        "name" => claim(json!({})),
        "subPath" => sub_path(file_system(existing)),
        // A submission waits for as many servers as it needs, no more and no less.
        "replicaCount" => values(
            redis(three, 3, 1),
            [json!(3)],
            [(json!(2), "replicaCount"), (json!(5), three), (json!(1), three), (json!(999), three)],
        ),
        "shardCount" => values(redis(three, 1, 3), [json!(3)], [(json!(2), three), (json!(4), three)]),
        "shuffle" => values(redis(one, 1, 1), [json!(true), json!(false)], []),
        "restrictedProperty" => values(redis(one, 1, 1), [json!("password"), json!("other")], []),
        _ => values(
            redis(one, 1, 1),
            [json!(one), json!(other)],
            [(json!("no-such-service"), "no-such-service"), (json!("Not A Name"), "service")],
        ),
    }
}

/// Fields without an effect that a run could see, and why.
pub(super) const WITHOUT_EFFECT: [(&str, &str); 12] = [
    (
        "suspend",
        "`false` says the default explicitly; what `true` does is judged as something that keeps a job from being ready",
    ),
    ("bundle.pullPolicy", "what a second submission asks of a server: tests `bundles`"),
    ("bundle.secret", "goes by https only: tests `bundles`"),
    ("fusion.automatic", "says the default explicitly"),
    (
        "parallelRegions[].coolDownSeconds",
        "when a width may change again: test `requests`, tests of rule elasticity-25",
    ),
    ("rollout.maxUnavailable", "how many PEs are down at the same time in a resize: tests `waves`"),
    ("rollout.minReadySeconds", "when a pod counts as running: tests `waves`"),
    ("submissionTimeOutInSeconds", "how long a submission is waited for: tests of rule job-18"),
    ("threadingModel.manual", "the application declares its threads; it is the default where it does"),
    ("threadingModel.automatic", "the runtime's choice, which is the default of the application"),
    ("processingElement.checkpointRepository.redis.shuffle", "the order of servers is random: tests of Redis"),
    ("processingElement.checkpointDataStore.redis.shuffle", "the order of servers is random: tests of Redis"),
];

#[cfg(test)]
mod tests {
    use super::super::fields::{Field, of_spec};
    use super::{WITHOUT_EFFECT, of};
    use serde_json::json;

    #[test]
    fn every_field_has_values_and_something_to_say_of_bad_ones() {
        let fields = of_spec("Job").unwrap();
        for field in &fields {
            let values = of(field);
            assert!(!values.good.is_empty() || field.name == super::WITHOUT_GOOD, "{field} has no good value");
            assert!(!values.bad.is_empty(), "{field} has no bad value");
            assert!(values.bad.iter().all(|bad| !bad.words.is_empty()), "{field}");
        }
        for (name, _) in WITHOUT_EFFECT {
            assert!(fields.iter().any(|field| field.name == name), "{name} is listed, but there is no such field");
        }
    }

    #[test]
    fn bounds_of_the_schema_are_tried_from_both_sides() {
        let schema = json!({"type": "integer", "minimum": 1, "maximum": 9});
        let field = Field { name: "unheard.of".to_owned(), at: vec!["unheard".to_owned(), "of".to_owned()], schema };
        let values = of(&field);
        assert_eq!(values.good, [json!(3), json!(1), json!(9)]);
        let bad: Vec<_> = values.bad.into_iter().map(|bad| bad.value).collect();
        assert_eq!(bad, [json!(0), json!(10), json!("many"), json!(1.5)]);
    }
}
