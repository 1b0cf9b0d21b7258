//! Owner references work, also from objects of a kind of our own, and without the half minute that late kinds would
//! take.

use crate::support::control_plane;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use std::time::{Duration, Instant};
use streams_control_plane::wait::eventually;

/// Well below the 30 s after which the garbage collector looks for new kinds.
const QUICK: Duration = Duration::from_secs(10);
/// However busy the machine is.
const WITHIN: Duration = Duration::from_secs(120);

/// A widget that owns a config map, in a namespace of its own, and beside it a config map that owns another one.
async fn owners_with_dependents() -> Result<(Client, Api<DynamicObject>, Api<ConfigMap>)> {
    let control_plane = control_plane().await?;
    let namespace = control_plane.namespace("garbage").await?;
    let client = control_plane.client().await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("test.streams.ibm.com", "v1", "Widget"));
    let widgets = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &kind);
    let config_maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);

    let widget = widgets.create(&PostParams::default(), &DynamicObject::new("owner", &kind)).await?;
    let owner = json!({
        "apiVersion": "test.streams.ibm.com/v1", "kind": "Widget", "name": "owner",
        "uid": widget.uid().context("no uid")?, "controller": true, "blockOwnerDeletion": true,
    });
    let dependent = json!({"metadata": {"name": "dependent", "ownerReferences": [owner]}});
    config_maps.create(&PostParams::default(), &serde_json::from_value(dependent)?).await?;

    let known = serde_json::from_value(json!({"metadata": {"name": "known"}}))?;
    let known = config_maps.create(&PostParams::default(), &known).await?;
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "known",
        "uid": known.uid().context("no uid")?, "controller": true, "blockOwnerDeletion": true,
    });
    let dependent = json!({"metadata": {"name": "of-known", "ownerReferences": [owner]}});
    config_maps.create(&PostParams::default(), &serde_json::from_value(dependent)?).await?;
    Ok((client, widgets, config_maps))
}

async fn both_go(propagation: DeleteParams) -> Result<()> {
    let (_client, widgets, config_maps) = owners_with_dependents().await?;
    widgets.delete("owner", &propagation).await?;
    config_maps.delete("known", &propagation).await?;
    eventually("an owner of a kind of Kubernetes and its dependent are gone", WITHIN, || async {
        ensure!(config_maps.get_opt("of-known").await?.is_none(), "the dependent is there");
        ensure!(config_maps.get_opt("known").await?.is_none(), "the owner is there");
        Ok(())
    })
    .await?;
    // How long that takes is the machine's affair; ours do not take longer.
    let start = Instant::now();
    eventually("owner and dependent are gone", WITHIN, || async {
        ensure!(config_maps.get_opt("dependent").await?.is_none(), "the dependent is there");
        ensure!(widgets.get_opt("owner").await?.is_none(), "the owner is there");
        Ok(())
    })
    .await?;
    ensure!(start.elapsed() < QUICK, "took {:?} longer", start.elapsed());
    Ok(())
}

#[tokio::test]
async fn dependents_go_after_their_owner() -> Result<()> {
    both_go(DeleteParams::background()).await
}

#[tokio::test]
async fn dependents_go_before_their_owner() -> Result<()> {
    both_go(DeleteParams::foreground()).await
}
