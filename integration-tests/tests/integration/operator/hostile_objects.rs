//! What a tenant writes that nobody can read stops no one else (rules call-6 and call-28).

use super::fixture::{JOB, WITHIN, with_system};
use crate::support::control_plane;
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Client, Error};
use serde_json::{Value, json};
use streams_api::{Job, ProcessingElement};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;

/// A time that the API server keeps, and that is beyond the last one of the types here.
const LATEST: &str = "9999-12-31T23:59:59Z";

/// Somebody creates an object whose managed fields have that time.
async fn create(client: &Client, url: &str, version: &str, mut object: Value) -> Result<()> {
    object["metadata"]["managedFields"] = json!([{
        "manager": "tenant", "operation": "Update", "apiVersion": version, "time": LATEST, "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {"f:none": {}}}},
    }]);
    let request = Request::new(url).create(&PostParams::default(), serde_json::to_vec(&object)?)?;
    let created = client.request_text(request).await.with_context(|| format!("{object}"))?;
    ensure!(created.contains(LATEST), "the API server has not kept the time: {created}");
    Ok(())
}

#[tokio::test]
async fn objects_that_cannot_be_read_stop_neither_mirrors_nor_leaders_nor_submissions() -> Result<()> {
    with_system("hostile-objects", async |it| {
        let job = it.submitted().await?;
        let elsewhere = control_plane().await?.namespace("hostile-tenant").await?;
        let (here, pods) =
            (format!("/api/v1/namespaces/{}/configmaps", it.namespace), format!("/api/v1/namespaces/{elsewhere}/pods"));
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hostile", "labels": {"app": "streams"}},
            "data": {"a": "b"},
        });
        create(&it.client, &here, "v1", map).await?;
        let resize = json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Resize", "metadata": {"name": "hostile"},
            "spec": {"jobName": "nobody", "regions": [{"name": "R", "width": 3}]},
        });
        let resizes = format!("/apis/streams.ibm.com/v1/namespaces/{}/streamsresizes", it.namespace);
        create(&it.client, &resizes, "streams.ibm.com/v1", resize).await?;
        // Whoever submits a job looks at the pods of all tenants.
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hostile"},
            "spec": {"containers": [{"name": "c", "image": "none"}]},
        });
        create(&it.client, &pods, "v1", pod).await?;

        it.frontend()?.process().kill().await?;
        it.frontend()?.start_again().await?;
        eventually("the frontend leads", WITHIN, || async {
            ensure!(it.frontend()?.metric("streams_frontend_leader").await? > 0.5, "it does not");
            Ok(())
        })
        .await?;
        it.resize(&job, &[(CLEAN, 3)], WaitFor::RolledOut).await?;
        let other = ObservedJob::create(&it.client, &it.sample("other")).await?;
        other.settled(Widths::default(), WITHIN).await?;
        let delete = Request::new(pods).delete("hostile", &DeleteParams::default().grace_period(0))?;
        it.client.request_text(delete).await?;
        Ok(())
    })
    .await
}

/// What the API server says to this patch of an object.
fn refusal<K>(patched: kube::Result<K>) -> Result<String> {
    match patched {
        Err(Error::Api(status)) if status.code == 422 => Ok(status.message.clone()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok("nothing".to_owned()),
    }
}

#[tokio::test]
async fn what_the_types_do_not_have_is_refused() -> Result<()> {
    with_system("hostile-objects", async |it| {
        let job = it.submitted().await?;
        let parameters = PatchParams::default();
        let pe = job.pe("Readings").await?.metadata.name.context("a PE without a name")?;
        let number = Patch::Merge(json!({"spec": {"operatorCount": 5_000_000_000_u64}}));
        let said = refusal(job.api::<ProcessingElement>().patch(&pe, &parameters, &number).await)?;
        ensure!(said.contains("operatorCount"), "{said}");
        for time in [LATEST, "2026-11-27T00:00:00", "2026-11-27T00:00:00+26:00", "2026-11-27T00:00:00-00:60"] {
            let condition = json!({
                "type": "Mine", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": time,
            });
            let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
            let said = refusal(job.api::<Job>().patch_status(JOB, &parameters, &status).await)?;
            ensure!(said.contains("lastTransitionTime"), "{time}: {said}");
        }
        Ok(())
    })
    .await
}
