//! What a job exports, imports and checkpoints together, as objects: they follow the plan, and come back.

use super::fixture::{Fixture, JOB, WITHIN, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample;
use integration_tests::system::job::ObservedJob;
use integration_tests::system::rights::let_edit;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::DeleteParams;
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use streams_api::{
    ConsistentRegion, Export, ExportType, HostPool, Import, Job, ParallelRegion, ProcessingElement, RegionTrigger,
    condition, names,
};
use streams_control_plane::wait::eventually;

/// Sensors in a consistent region, lanes that import and export, alarms.
const TELEMETRY: &str = include_str!("../../../../fusion-service/tests/applications/telemetry.adl");
const LANE: &str = "Lane";
/// A user with the role `edit`.
const EDITOR: &str = "editor";

/// Puts the application's bundle where jobs find it as `telemetry.sab`, for nodes without tags; without a consistent
/// region its lanes can be resized.
pub(super) fn put_telemetry(it: &Fixture, is_consistent: bool) -> Result<()> {
    let adl = TELEMETRY.replace("<tag name=\"gpu\"/><tag name=\"fast\"/>", "");
    let mut adl = adl.replace("<replicateHostTag name=\"gpu\"/>", "");
    if !is_consistent {
        adl = adl.replace("tag=\"consistentRegion", "tag=\"other");
    }
    std::fs::write(it.system.bundles().join("telemetry.sab"), sample::bundle_of(&adl)?)?;
    Ok(())
}

/// A job of the application.
pub(super) async fn telemetry(it: &Fixture, is_consistent: bool) -> Result<ObservedJob> {
    put_telemetry(it, is_consistent)?;
    let mut job = it.sample(JOB);
    job.spec.bundle.file = Some("telemetry.sab".to_owned());
    let job = ObservedJob::create(&it.client, &job).await?;
    job.until_condition(condition::READY, true, WITHIN).await?;
    Ok(job)
}

/// The id of each PE with one of these operators.
async fn pes_with(job: &ObservedJob, operator: &str) -> Result<BTreeSet<u64>> {
    let pes = job.list::<ProcessingElement>().await?.into_iter();
    let holds = |pe: &ProcessingElement| pe.spec.operators.iter().any(|name| name.ends_with(operator));
    Ok(pes.filter(holds).map(|pe| pe.spec.id).collect())
}

async fn uids<K>(job: &ObservedJob) -> Result<BTreeMap<String, String>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    Ok(job.list::<K>().await?.into_iter().map(|object| (object.name_any(), object.uid().unwrap_or_default())).collect())
}

/// Deletes an object of the job, which then comes back.
async fn returns<K>(job: &ObservedJob, name: &str) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let old = uids::<K>(job).await?.remove(name).with_context(|| format!("{} {name}", K::kind(&())))?;
    job.api::<K>().delete(name, &DeleteParams::background()).await?;
    eventually(&format!("{} {name} is back", K::kind(&())), WITHIN, || async {
        let new = uids::<K>(job).await?.remove(name).context("it is gone")?;
        ensure!(new != old, "it is still the old one");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn they_say_what_the_application_says_and_come_back() -> Result<()> {
    with_system("interfaces", async |it| {
        let job = telemetry(it, true).await?;
        let job_id = job.status().await?.job_id.context("no number")?;
        let lanes = pes_with(&job, ".Clean").await?;
        ensure!(lanes.len() == 2, "{lanes:?}");

        let exports = job.list::<Export>().await?;
        ensure!(exports.iter().map(|export| export.spec.pe_id).collect::<BTreeSet<_>>() == lanes, "{exports:#?}");
        for export in &exports {
            let spec = &export.spec;
            ensure!(export.name_any() == names::export(JOB, spec.pe_id, spec.port_id), "{export:#?}");
            ensure!((spec.job_id, &*spec.application_name) == (job_id, "telemetry::Main"), "{export:#?}");
            ensure!((&*spec.application_scope, spec.export_type) == ("Default", ExportType::ByProperties), "{spec:#?}");
            ensure!(spec.stream.properties.iter().map(|p| &*p.name).eq(["lane"]), "{spec:#?}");
        }
        let imports = job.list::<Import>().await?;
        ensure!(imports.iter().map(|import| import.spec.pe_id).collect::<BTreeSet<_>>() == lanes, "{imports:#?}");
        for import in &imports {
            let spec = &import.spec;
            ensure!(import.name_any() == names::import(JOB, spec.pe_id, spec.port_id), "{import:#?}");
            let asked = spec.streams.property_based_import.as_ref().context("it asks for no properties")?;
            ensure!(asked.subscription.contains("lanes == 2"), "{spec:#?}");
            ensure!(spec.streams.filter.as_ref().is_some_and(|filter| filter.contains("lane ==")), "{spec:#?}");
        }
        let regions = job.list::<ConsistentRegion>().await?;
        let [region] = regions.as_slice() else { anyhow::bail!("{regions:#?}") };
        let spec = &region.spec;
        ensure!(region.name_any() == names::consistent_region(JOB, spec.index), "{region:#?}");
        ensure!((spec.trigger, spec.period_milliseconds) == (RegionTrigger::Periodic, Some(5_000)), "{spec:#?}");
        ensure!(spec.start_operators == ["Sensors"] && spec.max_consecutive_reset_attempts == 5, "{spec:#?}");
        ensure!(spec.pe_ids.iter().copied().collect::<BTreeSet<_>>() == pes_with(&job, "Sensors").await?, "{spec:#?}");

        let service = job.api::<Service>().get(&names::consistent_region_service(JOB)).await?;
        let spec = service.spec.clone().unwrap_or_default();
        let ports: Vec<_> = spec.ports.iter().flatten().map(|port| (port.name.as_deref(), port.port)).collect();
        ensure!(ports == [(Some("sys-api"), 10_000)], "{spec:?}");
        let has_address = spec.cluster_ip.as_deref().is_some_and(|address| address != "None");
        ensure!(has_address && spec.selector.is_none(), "{spec:?}");

        // All objects of the job say which application they were made for.
        let application = |annotations: &BTreeMap<String, String>| {
            let of = |key| annotations.get(key).map(String::as_str);
            (of(names::ANNOTATION_APPLICATION_NAME), of(names::ANNOTATION_APPLICATION_SCOPE))
                == (Some("telemetry::Main"), Some("Default"))
        };
        for pe in job.list::<ProcessingElement>().await? {
            ensure!(application(pe.annotations()) && pe.spec.application_name == "telemetry::Main", "{pe:#?}");
        }
        for annotations in [
            job.list::<Service>().await?.iter().map(|object| object.annotations().clone()).collect::<Vec<_>>(),
            job.list::<HostPool>().await?.iter().map(|object| object.annotations().clone()).collect(),
            job.list::<ParallelRegion>().await?.iter().map(|object| object.annotations().clone()).collect(),
            vec![region.annotations().clone(), exports[0].annotations().clone(), imports[0].annotations().clone()],
        ] {
            ensure!(!annotations.is_empty() && annotations.iter().all(application), "{annotations:#?}");
        }

        // Each says how it stands. Nothing runs here, so the region waits for its PEs.
        eventually("each says how it stands", WITHIN, || async {
            let mut said = Vec::new();
            said.extend(job.list::<Export>().await?.into_iter().map(|o| o.status.unwrap_or_default().conditions));
            said.extend(job.list::<Import>().await?.into_iter().map(|o| o.status.unwrap_or_default().conditions));
            let regions = job.list::<ConsistentRegion>().await?.into_iter();
            said.extend(regions.map(|o| o.status.unwrap_or_default().conditions));
            let reasons = said.iter().filter_map(|conditions| condition::get(conditions, condition::READY));
            let reasons: Vec<&str> = reasons.map(|ready| ready.reason.as_str()).collect();
            let is_told = |reason: &&str| ["Connected", "NoSubscribers", "NoExports", "Starting"].contains(reason);
            ensure!(reasons.len() == exports.len() + imports.len() + 1 && reasons.iter().all(is_told), "{said:?}");
            Ok(())
        })
        .await?;
        let table = it.kubectl(&["get", "stx,sti,stcr"]).await?;
        ensure!(table.contains("STARTED") && table.contains("TRIGGER") && table.contains("SUBSCRIPTION"), "{table}");

        // People change at run time what a stream is like, as the documents say (rule import-5). They may edit what is
        // in the namespace, and are no administrators.
        let_edit(&it.client, &it.namespace, EDITOR).await?;
        let export = exports[0].name_any();
        let as_editor = async |arguments: &[&str]| it.kubectl(&[&["--as", EDITOR][..], arguments].concat()).await;
        eventually("the role edit has what the manifest adds", WITHIN, || async {
            as_editor(&["auth", "can-i", "patch", "streamsexports", "--subresource=status"]).await
        })
        .await?;
        let of_spec = ["patch", "streamsexports", &export, "--type=merge", "-p", r#"{"spec": {"peId": 7}}"#];
        let refused = as_editor(&of_spec).await.err().context("the spec is the operator's")?;
        ensure!(format!("{refused:#}").contains("orbidden"), "{refused:#}");
        let at_run_time =
            |properties: &str| format!(r#"{{"status": {{"runTime": {{"properties": [{properties}]}}}}}}"#);
        let back = r#"[{"op": "remove", "path": "/status/runTime"}]"#.to_owned();
        let rule = r#"{"name": "kind", "type": "rstring", "values": ["\"rule\""]},
            {"name": "lanes", "type": "int64", "values": ["2"]}"#;
        let rows = [
            ("merge", at_run_time(r#"{"name": "level", "type": "int32", "values": ["three"]}"#), "Malformed"),
            ("merge", at_run_time(rule), "Connected"),
            ("json", back, "NoSubscribers"),
        ];
        for (kind, patch, expected) in rows {
            let kind = format!("--type={kind}");
            as_editor(&["patch", "streamsexports", &export, "--subresource=status", &kind, "-p", &patch]).await?;
            eventually("the export says how it stands now", WITHIN, || async {
                let object = job.api::<Export>().get(&export).await?;
                let conditions = object.status.unwrap_or_default().conditions;
                let ready = condition::get(&conditions, condition::READY).context("it says nothing")?;
                ensure!(ready.reason == expected, "{ready:?} instead of {expected}");
                Ok(())
            })
            .await?;
        }

        let pods = uids::<Pod>(&job).await?;
        returns::<Export>(&job, &exports[0].name_any()).await?;
        returns::<Import>(&job, &imports[1].name_any()).await?;
        returns::<ConsistentRegion>(&job, &region.name_any()).await?;
        returns::<Service>(&job, &service.name_any()).await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        ensure!(uids::<Pod>(&job).await? == pods, "pods were touched");

        job.api::<Job>().delete(JOB, &DeleteParams::background()).await?;
        eventually("nothing is left", WITHIN, || async {
            let left = job.inventory().await?.names();
            ensure!(left.is_empty(), "{}", left.join(", "));
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn they_come_and_go_with_the_channels() -> Result<()> {
    with_system("interfaces", async |it| {
        let job = telemetry(it, false).await?;
        ensure!(job.list::<ConsistentRegion>().await?.is_empty(), "there is no consistent region");
        let api = job.api::<Service>();
        ensure!(api.get_opt(&names::consistent_region_service(JOB)).await?.is_none(), "nobody needs the Service");
        let (exports, imports) = (uids::<Export>(&job).await?, uids::<Import>(&job).await?);
        ensure!(!exports.is_empty() && imports.len() == 2, "{exports:?} {imports:?}");

        let with_width = async |width: usize| {
            job.set_width(LANE, u32::try_from(width)?).await?;
            eventually(&format!("{width} lanes export and import"), WITHIN, || async {
                let (exports, imports) = (job.list::<Export>().await?, job.list::<Import>().await?);
                let lanes = pes_with(&job, ".Clean").await?;
                ensure!(lanes.len() == width, "{lanes:?}");
                let ports: BTreeSet<_> = exports.iter().map(|export| export.spec.pe_id).collect();
                // A stream that is split as well is exported at each of its ports.
                ensure!(ports == lanes, "{ports:?}");
                let ports: BTreeSet<_> = imports.iter().map(|import| import.spec.pe_id).collect();
                ensure!(ports == lanes && imports.len() == width, "{ports:?}");
                // The subscription has the number of lanes in it.
                let wanted = format!("lanes == {width}");
                let says = |import: &Import| {
                    import
                        .spec
                        .streams
                        .property_based_import
                        .as_ref()
                        .is_some_and(|by| by.subscription.contains(&wanted))
                };
                ensure!(imports.iter().all(says), "{imports:#?}");
                Ok(())
            })
            .await
        };
        with_width(3).await?;
        let after = uids::<Export>(&job).await?;
        ensure!(
            exports.iter().all(|(name, uid)| after.get(name) == Some(uid)),
            "exports that stay are the same objects"
        );
        with_width(1).await
    })
    .await
}
