//! Carrying a case out.

use super::exchange::Action;
use super::{Answer, Case, Exchange, Sample, SampleKind};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::api::{DeleteParams, Preconditions};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{Cluster, Conflicts, Manager, Object};

/// How to wait for what a server does by itself.
pub trait Patience {
    /// Waits a little. Says whether it is worth to look again.
    fn wait(&mut self) -> impl Future<Output = bool> + Send;
}

/// What the server has said about an object.
struct Seen {
    uid: String,
    first_version: String,
    version: String,
}

/// Carries out a case in a namespace of its own.
///
/// # Errors
/// An answer is another one than the case says.
pub async fn run<C: Cluster>(cluster: &C, namespace: &str, case: &Case, patience: &mut impl Patience) -> Result<()> {
    let mut seen = BTreeMap::new();
    for (number, exchange) in case.exchanges.iter().enumerate() {
        let result = match exchange.kind {
            SampleKind::ConfigMap => carry_out::<C, ConfigMap>(cluster, namespace, exchange, &mut seen, patience).await,
            SampleKind::Sample => carry_out::<C, Sample>(cluster, namespace, exchange, &mut seen, patience).await,
            SampleKind::Pod => carry_out::<C, Pod>(cluster, namespace, exchange, &mut seen, patience).await,
            SampleKind::Secret => carry_out::<C, Secret>(cluster, namespace, exchange, &mut seen, patience).await,
            SampleKind::Service => carry_out::<C, Service>(cluster, namespace, exchange, &mut seen, patience).await,
        };
        result.with_context(|| format!("{}: exchange {}: {:?}", case.name, number + 1, exchange.action))?;
    }
    Ok(())
}

async fn carry_out<C: Cluster, K: Object>(
    cluster: &C,
    namespace: &str,
    exchange: &Exchange,
    seen: &mut BTreeMap<String, Seen>,
    patience: &mut impl Patience,
) -> Result<()> {
    loop {
        let answer = call::<C, K>(cluster, namespace, exchange, seen).await;
        let judged = judge(exchange, answer, seen);
        // Only what is read may become what it should be.
        let reads = matches!(exchange.action, Action::Get(_) | Action::Collected(_));
        if judged.is_ok() || !reads || !patience.wait().await {
            return judged;
        }
    }
}

async fn call<C: Cluster, K: Object>(
    cluster: &C,
    namespace: &str,
    exchange: &Exchange,
    seen: &BTreeMap<String, Seen>,
) -> kube::Result<Option<Value>> {
    // Managers live as long as the program.
    let manager = Manager(exchange.manager);
    let key = |name: &str| Key::new(namespace, name);
    let written = |object: K| Some(json(&object));
    let object = |object: &Value| {
        let mut object = filled(object, seen);
        object["metadata"]["namespace"] = json!(namespace);
        serde_json::from_value::<K>(object).map_err(kube::Error::SerdeError)
    };
    match &exchange.action {
        Action::Create(body) => cluster.create(namespace, manager, &object(body)?).await.map(written),
        Action::Replace(body) => cluster.replace(manager, &object(body)?).await.map(written),
        Action::ReplaceStatus(body) => cluster.replace_status(manager, &object(body)?).await.map(written),
        Action::Apply { object: body, force } => {
            let conflicts = if *force { Conflicts::Force } else { Conflicts::Fail };
            cluster.apply(namespace, manager, &object(body)?, conflicts).await.map(written)
        }
        Action::Merge(name, patch) => cluster.merge::<K>(manager, &key(name), &filled(patch, seen)).await.map(written),
        Action::Delete { name, propagation, uid, version, grace } => {
            let text = |text: &Option<&str>| text.map(|text| fill(text, seen));
            let (uid, resource_version) = (text(uid), text(version));
            let preconditions =
                (uid.is_some() || resource_version.is_some()).then_some(Preconditions { uid, resource_version });
            let propagation_policy = propagation.clone();
            let parameters = DeleteParams {
                preconditions,
                propagation_policy,
                grace_period_seconds: *grace,
                ..DeleteParams::default()
            };
            cluster.delete::<K>(&key(name), &parameters).await?;
            Ok(cluster.get::<K>(&key(name)).await?.and_then(written))
        }
        Action::Get(name) | Action::Collected(name) => Ok(cluster.get::<K>(&key(name)).await?.and_then(written)),
    }
}

fn json<K: Object>(object: &K) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

fn judge(exchange: &Exchange, answer: kube::Result<Option<Value>>, seen: &mut BTreeMap<String, Seen>) -> Result<()> {
    match (&exchange.answer, answer) {
        (Answer::Refused(code, reason), Err(kube::Error::Api(status))) => {
            ensure!((status.code, status.reason.as_str()) == (*code, *reason), "was refused otherwise: {status:?}");
            Ok(())
        }
        (_, Err(error)) => Err(anyhow!(error)),
        (Answer::Nothing, Ok(None)) => Ok(()),
        (Answer::Has(fields), Ok(Some(mut object))) => {
            note(&object, seen)?;
            object["metadata"]["managedFields"] = writers_of_data(&object);
            has(fields, &object, seen)
        }
        (Answer::Unchanged, Ok(Some(object))) => {
            let before = seen.get(text(&object, "name")).map(|seen| seen.version.clone());
            let now = note(&object, seen)?;
            ensure!(before.as_ref() == Some(&now), "the version was {before:?} and is {now}");
            Ok(())
        }
        (expected, answer) => bail!("expected {expected:?}, got {answer:?}"),
    }
}

/// The keys of a ConfigMap's data that each manager owns.
fn writers_of_data(object: &Value) -> Value {
    let mut writers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let keys = entry["fieldsV1"]["f:data"].as_object().into_iter().flat_map(|keys| keys.keys());
        let keys = keys.filter_map(|key| key.strip_prefix("f:"));
        writers.entry(entry["manager"].as_str().unwrap_or_default()).or_default().extend(keys);
    }
    json!(writers)
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"][name].as_str().unwrap_or_default()
}

/// Keeps what the server says of an object. Versions must grow. Gives the version.
fn note(object: &Value, seen: &mut BTreeMap<String, Seen>) -> Result<String> {
    let (uid, version) = (text(object, "uid").to_owned(), text(object, "resourceVersion").to_owned());
    let number = |version: &str| version.parse::<u64>().with_context(|| format!("version {version:?}"));
    let known = seen.entry(text(object, "name").to_owned()).or_insert_with(|| Seen {
        uid: uid.clone(),
        first_version: version.clone(),
        version: version.clone(),
    });
    ensure!(number(&known.version)? <= number(&version)?, "version {version} after {}", known.version);
    if known.uid != uid {
        *known = Seen { uid, first_version: version.clone(), version: version.clone() };
    }
    known.version.clone_from(&version);
    Ok(version)
}

/// Whether the object has these fields.
fn has(fields: &Value, object: &Value, seen: &BTreeMap<String, Seen>) -> Result<()> {
    match (fields, object) {
        (Value::Object(fields), object) => {
            for (name, field) in fields {
                has(field, &object[name], seen).with_context(|| name.clone())?;
            }
            Ok(())
        }
        (Value::String(any), Value::String(_)) if any == "<any>" => Ok(()),
        (fields, object) => {
            let fields = filled(fields, seen);
            ensure!(fields == *object, "expected {fields}, got {object}");
            Ok(())
        }
    }
}

fn filled(value: &Value, seen: &BTreeMap<String, Seen>) -> Value {
    match value {
        Value::String(text) => Value::String(fill(text, seen)),
        Value::Array(items) => items.iter().map(|item| filled(item, seen)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), filled(value, seen))).collect())
        }
        value => value.clone(),
    }
}

/// `<uid a>`, `<version a>`, `<first version a>`.
fn fill(text: &str, seen: &BTreeMap<String, Seen>) -> String {
    let inside = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
    let found = inside.and_then(|inside| inside.rsplit_once(' ')).and_then(|(what, name)| {
        let seen = seen.get(name)?;
        match what {
            "uid" => Some(&seen.uid),
            "version" => Some(&seen.version),
            "first version" => Some(&seen.first_version),
            _ => None,
        }
    });
    found.map_or_else(|| text.to_owned(), Clone::clone)
}
