//! What others change of the objects of a job is restored, and no pod notices; what they add stays, but for what means
//! something (rule call-19).
//!
//! Which fields there are is read from the API server: those that it says the frontend manages.

use super::fixture::{Changed, JOB, Moment, WITHIN, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Debug;
use streams_api::{ParallelRegion, ProcessingElement, condition, names};
use streams_control_plane::wait::eventually;

/// Field manager of the job controller (rule name-10).
const OPERATOR: &str = "streams-job-controller";
const USER: &str = "somebody";

trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
}
impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
}

/// The ways to the fields that the frontend manages: names of fields; lists are values.
fn managed<K: Kind>(object: &K) -> BTreeSet<Vec<String>> {
    let mut paths = BTreeSet::new();
    for entry in object.managed_fields().iter().filter(|entry| entry.manager.as_deref() == Some(OPERATOR)) {
        if entry.subresource.is_none()
            && let Some(fields) = &entry.fields_v1
        {
            collect(&fields.0, &mut Vec::new(), &mut paths);
        }
    }
    paths
}

fn collect(fields: &Value, path: &mut Vec<String>, paths: &mut BTreeSet<Vec<String>>) {
    let names =
        fields.as_object().into_iter().flatten().filter_map(|(name, inner)| Some((name.strip_prefix("f:")?, inner)));
    let mut is_leaf = true;
    for (name, inner) in names {
        is_leaf = false;
        path.push(name.to_owned());
        collect(inner, path, paths);
        path.pop();
    }
    if is_leaf && !path.is_empty() {
        paths.insert(path.clone());
    }
}

fn at<'a>(value: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(value, |value, name| &value[name])
}

fn setting(path: &[String], value: Value) -> Value {
    path.iter().rev().fold(value, |inner, name| json!({name: inner}))
}

/// Other values of the field; the API server may refuse some of them.
fn others(value: &Value) -> Vec<Value> {
    let mut others = match value {
        Value::String(text) => vec![json!(format!("{text}x")), json!("Always"), json!("Never"), json!("debug")],
        Value::Number(number) => vec![json!(number.as_u64().unwrap_or(0) + 1)],
        Value::Bool(value) => vec![json!(!value)],
        Value::Array(items) => vec![json!(items.get(1..).unwrap_or_default())],
        _ => vec![json!({"of": "others"})],
    };
    others.retain(|other| other != value);
    others.push(Value::Null);
    others
}

/// The object without what every write changes.
fn essence<K: Kind>(object: &K) -> Result<Value> {
    let mut value = serde_json::to_value(object)?;
    for field in ["resourceVersion", "generation", "managedFields"] {
        value["metadata"].as_object_mut().context("no metadata")?.remove(field);
    }
    value.as_object_mut().context("no object")?.remove("status");
    Ok(value)
}

/// Somebody patches the object; `false` if the API server refuses it.
async fn patch<K: Kind>(job: &ObservedJob, name: &str, patch: &Value) -> Result<bool> {
    let parameters = PatchParams { field_manager: Some(USER.to_owned()), ..PatchParams::default() };
    match job.api::<K>().patch(name, &parameters, &Patch::Merge(patch)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the object is as it was.
async fn restored<K: Kind>(job: &ObservedJob, name: &str, before: &Value, what: &str) -> Result<()> {
    eventually(&format!("{} {name} is restored after {what}", K::kind(&())), WITHIN, || async {
        let now = essence(&job.api::<K>().get(name).await?)?;
        ensure!(now == *before, "it is {now}");
        Ok(())
    })
    .await
}

/// Changes each field that the frontend manages of one of these objects; an object is changed three times at most: a
/// fourth restoration would wait. Gives how many fields were changed.
async fn every_field<K: Kind>(job: &ObservedJob, names: &[String]) -> Result<usize> {
    let objects = names.iter().flat_map(|name| [name, name, name]);
    let model = job.api::<K>().get(names.first().context("there is none")?).await?;
    let mut changed = 0;
    let mut objects = objects.into_iter();
    for path in managed(&model) {
        let place: Vec<&str> = path.iter().map(String::as_str).collect();
        // Names and owners (rule job-30) may not be changed, widths may, and content is another matter.
        if matches!(place.as_slice(), ["metadata", "ownerReferences", ..] | ["spec", "width"] | ["immutable"]) {
            continue;
        }
        let name = objects.next().with_context(|| format!("too few objects for the fields, at {path:?}"))?;
        let before = essence(&job.api::<K>().get(name).await?)?;
        let value = at(&before, &path).clone();
        let mut accepted = None;
        for other in others(&value) {
            let change = setting(&path, other);
            if patch::<K>(job, name, &change).await? {
                accepted = Some(change);
                break;
            }
        }
        // What the API server lets nobody change cannot drift.
        let Some(change) = accepted else { continue };
        restored::<K>(job, name, &before, &change.to_string()).await?;
        changed += 1;
    }
    Ok(changed)
}

async fn no_pod_noticed(job: &ObservedJob, before: &Moment) -> Result<()> {
    job.settled(Widths::default(), WITHIN).await?;
    let changed = Moment::of(job).await?.since(before)?;
    let kept = Widths::default().operators().into_iter().collect();
    ensure!(changed == Changed { kept, ..Changed::default() }, "{changed:#?}");
    Ok(())
}

#[tokio::test]
async fn every_field_that_the_frontend_manages_is_restored_and_no_pod_notices() -> Result<()> {
    with_system("drift", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let inventory = job.inventory().await?;
        let pes: Vec<_> = inventory.processing_elements.iter().map(|pe| pe.name_any()).collect();
        let texts: Vec<_> = inventory.processing_elements.iter().map(|pe| pe.spec.config_map.name.clone()).collect();
        let regions: Vec<_> = job.list::<ParallelRegion>().await?.iter().map(|region| region.name_any()).collect();
        let of_pes = every_field::<ProcessingElement>(&job, &pes).await?;
        let of_services = every_field::<Service>(&job, &pes).await?;
        let of_texts = every_field::<ConfigMap>(&job, &texts).await?;
        let of_regions = every_field::<ParallelRegion>(&job, &regions).await?;
        let of_labels = every_field::<ConfigMap>(&job, &[JOB.to_owned(), JOB.to_owned()]).await?;
        let counts = [of_pes, of_services, of_texts, of_regions, of_labels];
        ensure!(counts.iter().zip([20, 6, 5, 2, 3]).all(|(count, least)| *count >= least), "fields: {counts:?}");
        no_pod_noticed(&job, &before).await
    })
    .await
}

#[tokio::test]
async fn what_others_add_stays_but_for_selectors_and_ports_of_services() -> Result<()> {
    with_system("drift", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let pe = job.pe("Readings").await?;
        let name = pe.name_any();
        let service = essence(&job.api::<Service>().get(&name).await?)?;
        let mut ports = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
        // Two ports of one name: an apply that leaves the other one would be refused.
        if let Some(port) = ports.iter_mut().find(|port| port["name"] == "sys-metrics") {
            port["port"] = json!(4711);
        }
        let others = json!({
            "metadata": {"annotations": {"note": "mine"}, "labels": {"mesh": "on"}},
            "spec": {"ports": ports, "selector": {"mine": "yes"}},
        });
        ensure!(patch::<Service>(&job, &name, &others).await?, "it was refused");
        let mut expected = service;
        expected["metadata"]["annotations"]["note"] = json!("mine");
        expected["metadata"]["labels"]["mesh"] = json!("on");
        eventually("ports and selector are restored", WITHIN, || async {
            let now = essence(&job.api::<Service>().get(&name).await?)?;
            ensure!(now["metadata"] == expected["metadata"], "{now}");
            ensure!(now["spec"]["selector"] == expected["spec"]["selector"], "{now}");
            let names = |service: &Value| -> BTreeSet<String> {
                let ports = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
                ports.iter().map(|port| format!("{} {} {}", port["name"], port["port"], port["protocol"])).collect()
            };
            ensure!(names(&now) == names(&expected), "{now}");
            Ok(())
        })
        .await?;
        ensure!(patch::<ConfigMap>(&job, JOB, &json!({"data": {"more": "mine"}})).await?, "it was refused");
        let labels = json!({"data": {"operator_port_labels.properties": "none"}});
        ensure!(patch::<ConfigMap>(&job, JOB, &labels).await?, "it was refused");
        eventually("port labels are restored, and the other key stays", WITHIN, || async {
            let data = job.api::<ConfigMap>().get(JOB).await?.data.unwrap_or_default();
            ensure!(data.get("more").map(String::as_str) == Some("mine"), "{data:?}");
            ensure!(data.get("operator_port_labels.properties").is_some_and(|labels| labels.len() > 10), "{data:?}");
            Ok(())
        })
        .await?;
        no_pod_noticed(&job, &before).await
    })
    .await
}

#[tokio::test]
async fn what_others_add_to_the_spec_of_a_pe_goes() -> Result<()> {
    with_system("drift", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let pe = job.pe("Readings").await?.name_any();
        let original = essence(&job.api::<ProcessingElement>().get(&pe).await?)?;
        let options = [
            json!({"image": "mine", "environment": {"MINE": "yes"}}),
            json!({"checkpointRepository": {"fileSystem": {"path": "/mine"}}, "resources": {"limits": {"cpu": "2"}}}),
        ];
        for options in options {
            let addition = json!({ "spec": options });
            ensure!(patch::<ProcessingElement>(&job, &pe, &addition).await?, "it was refused");
            restored::<ProcessingElement>(&job, &pe, &original, &addition.to_string()).await?;
        }
        no_pod_noticed(&job, &before).await
    })
    .await
}

#[tokio::test]
async fn an_object_without_its_label_or_made_by_somebody_else_is_not_lost() -> Result<()> {
    with_system("drift", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let pe = job.pe("Readings").await?;
        let text = pe.spec.config_map.name.clone();
        let unlabelled = json!({"metadata": {"labels": {"app": null}}});
        let original = essence(&job.api::<ConfigMap>().get(&text).await?)?;
        let service = essence(&job.api::<Service>().get(&pe.name_any()).await?)?;
        ensure!(patch::<ConfigMap>(&job, &text, &unlabelled).await?, "it was refused");
        ensure!(patch::<Service>(&job, &pe.name_any(), &unlabelled).await?, "it was refused");
        restored::<ConfigMap>(&job, &text, &original, "the loss of its label").await?;
        restored::<Service>(&job, &pe.name_any(), &service, "the loss of its label").await?;

        // Somebody else's text under the same name, with the same labels and owner.
        let api = job.api::<ConfigMap>();
        let mut other = api.get(&text).await?;
        let content = other.data.clone();
        let key = content.as_ref().and_then(|data| data.keys().next()).context("no content")?.clone();
        other.metadata.resource_version = None;
        other.metadata.managed_fields = None;
        other.metadata.uid = None;
        other.data = Some([(key, "<other/>".to_owned())].into());
        for _ in 0..20 {
            api.delete(&text, &DeleteParams::background()).await.ok();
            let parameters = PostParams { field_manager: Some(USER.to_owned()), ..PostParams::default() };
            // The frontend may have been faster.
            if api.create(&parameters, &other).await.is_ok() {
                break;
            }
        }
        eventually("the text is the one of the PE again", WITHIN, || async {
            let map = api.get(&text).await?;
            ensure!(map.data == content, "it is {:?}", map.data);
            Ok(())
        })
        .await?;
        no_pod_noticed(&job, &before).await
    })
    .await
}

/// What of a Service leads somewhere: not what the API server makes of it.
fn leads(service: &Service) -> Result<Value> {
    let mut spec = serde_json::to_value(&service.spec)?;
    let fields = spec.as_object_mut().context("no spec")?;
    // An address is given anew, and families follow from it.
    if fields.get("clusterIP").is_some_and(|address| address != "None") {
        fields.remove("clusterIP");
    }
    ["clusterIPs", "ipFamilies", "ipFamilyPolicy"].into_iter().for_each(|field| drop(fields.remove(field)));
    Ok(spec)
}

#[tokio::test]
async fn services_lead_nowhere_else() -> Result<()> {
    with_system("drift", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let of_pe = job.pe("Readings").await?.name_any();
        let api = job.api::<Service>();
        let restored = async |name: &str, expected: &Value, what: &str| {
            eventually(&format!("Service {name} is restored after {what}"), WITHIN, || async {
                let now = leads(&api.get(name).await?)?;
                ensure!(now == *expected, "it is {now}");
                Ok(())
            })
            .await
        };
        for name in [&*of_pe, names::PE_API_SERVICE] {
            let expected = leads(&api.get(name).await?)?;
            for change in [
                json!({"selector": {"app": "mine"}}),
                json!({"type": "ExternalName", "externalName": "example.com", "ports": null}),
            ] {
                let change = json!({ "spec": change });
                ensure!(patch::<Service>(&job, name, &change).await?, "{name} {change}: it was refused");
                restored(name, &expected, &change.to_string()).await?;
            }
        }
        let expected = leads(&api.get(names::PE_API_SERVICE).await?)?;
        let outside = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        ensure!(patch::<Service>(&job, names::PE_API_SERVICE, &outside).await?, "it was refused");
        restored(names::PE_API_SERVICE, &expected, "another type").await?;

        // Somebody else's Service of the same name, with an address, which can never be taken away.
        let expected = leads(&api.get(&of_pe).await?)?;
        let mut other = serde_json::to_value(api.get(&of_pe).await?)?;
        for field in ["resourceVersion", "managedFields", "uid"] {
            other["metadata"].as_object_mut().context("no metadata")?.remove(field);
        }
        for field in ["clusterIP", "clusterIPs"] {
            other["spec"].as_object_mut().context("no spec")?.remove(field);
        }
        let other = serde_json::from_value(other)?;
        for _ in 0..20 {
            api.delete(&of_pe, &DeleteParams::background()).await.ok();
            let parameters = PostParams { field_manager: Some(USER.to_owned()), ..PostParams::default() };
            // The frontend may have been faster.
            if api.create(&parameters, &other).await.is_ok() {
                break;
            }
        }
        restored(&of_pe, &expected, "it has an address").await?;
        no_pod_noticed(&job, &before).await
    })
    .await
}

#[tokio::test]
async fn port_labels_that_somebody_makes_immutable_follow_a_resize() -> Result<()> {
    with_system("drift", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let original = essence(&job.api::<ConfigMap>().get(JOB).await?)?;
        let change = json!({"immutable": true, "metadata": {"labels": {"mesh": "on"}}});
        ensure!(patch::<ConfigMap>(&job, JOB, &change).await?, "it was refused");
        eventually("the ConfigMap can be changed again", WITHIN, || async {
            let now = essence(&job.api::<ConfigMap>().get(JOB).await?)?;
            ensure!(now["metadata"]["uid"] != original["metadata"]["uid"], "it is {now}");
            ensure!(now["metadata"]["labels"]["mesh"] == "on", "it is {now}");
            ensure!((&now["data"], &now["immutable"]) == (&original["data"], &json!(false)), "it is {now}");
            Ok(())
        })
        .await?;
        no_pod_noticed(&job, &before).await?;
        // As fast as it can be: perhaps the resize finds it so.
        ensure!(patch::<ConfigMap>(&job, JOB, &change).await?, "it was refused");
        job.set_width(CLEAN, 3).await?;
        job.settled(Widths { clean: 3, ..Widths::default() }, WITHIN).await?;
        eventually("the port labels are others", WITHIN, || async {
            let data = essence(&job.api::<ConfigMap>().get(JOB).await?)?["data"].clone();
            ensure!(data != original["data"], "they are {data}");
            Ok(())
        })
        .await
    })
    .await
}

/// Labels and owners say which PE a pod is of, and of which launch (rule pe-25).
#[tokio::test]
async fn what_others_change_of_the_metadata_of_pods_is_restored_and_no_pod_notices() -> Result<()> {
    with_system("drift", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let pods: Vec<Pod> = job.list().await?;
        let label = |label: &str, value: Value| json!({"metadata": {"labels": {label: value}}});
        let changes = [
            label(names::LABEL_APP, Value::Null),
            label(names::LABEL_PE, json!("99")),
            label(names::LABEL_LAUNCH_COUNT, Value::Null),
            label(names::LABEL_LAUNCH_COUNT, json!("0")),
            json!({"metadata": {"annotations": {names::ANNOTATION_PLACEMENT_HASH: null}}}),
            json!({"metadata": {"ownerReferences": null}}),
        ];
        for (change, pod) in changes.iter().zip(pods.iter().cycle()) {
            let name = pod.name_any();
            let original = essence(&job.api::<Pod>().get(&name).await?)?;
            ensure!(patch::<Pod>(&job, &name, change).await?, "{change} was refused");
            restored::<Pod>(&job, &name, &original, &change.to_string()).await?;
        }
        no_pod_noticed(&job, &before).await
    })
    .await
}

#[tokio::test]
async fn somebody_who_insists_is_named() -> Result<()> {
    with_system("drift", async |it| {
        let job = it.submitted().await?;
        let region = job.region(CLEAN).await?.name_any();
        let original = essence(&job.api::<ParallelRegion>().get(&region).await?)?;
        for _ in 0..3 {
            let change = json!({"metadata": {"labels": {"app": "mine"}}});
            ensure!(patch::<ParallelRegion>(&job, &region, &change).await?, "it was refused");
            restored::<ParallelRegion>(&job, &region, &original, "a change").await?;
        }
        let (reason, message) = job.until_told(condition::CONTENDED, &[&region, "metadata.labels.app"], WITHIN).await?;
        ensure!(reason == "ChangedByOthers", "{reason}: {message}");
        Ok(())
    })
    .await
}
