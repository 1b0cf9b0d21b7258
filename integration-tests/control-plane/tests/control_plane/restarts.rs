//! A control plane of its own, for what would disturb the other tests.

use crate::support::{SOON, supervisor};
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use serde_json::json;
use std::net::{Ipv4Addr, TcpListener};
use streams_control_plane::process::{Exit, free_port};
use streams_control_plane::wait::eventually;
use streams_control_plane::{Component, ControlPlane, Options};

#[tokio::test]
async fn a_taken_port_is_given_up_and_a_killed_api_server_comes_back_with_its_objects() -> Result<()> {
    let port = free_port()?;
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let options = Options { port: Some(port), nodes: 0, ..Options::default() };
    let control_plane = ControlPlane::start(&supervisor(), &options).await?;
    let kubeconfig = std::fs::read_to_string(control_plane.kubeconfig())?;
    assert!(!kubeconfig.contains(&format!(":{port}")), "{kubeconfig}");
    drop(taken);

    let config_maps = Api::<ConfigMap>::namespaced(control_plane.client().await?, "default");
    let config_map = serde_json::from_value(json!({"metadata": {"name": "kept"}}))?;
    let created = config_maps.create(&PostParams::default(), &config_map).await?;
    let api_server = control_plane.process(Component::KubeApiserver)?;
    assert_eq!(api_server.kill().await?, Exit::Signal(9));
    assert!(config_maps.get("kept").await.is_err());
    api_server.start_again().await?;
    eventually("the API server answers again", SOON, || async {
        ensure!(config_maps.get("kept").await?.uid() == created.uid(), "another object");
        Ok(())
    })
    .await?;

    let state = control_plane.state().path().to_owned();
    control_plane.stop().await?;
    assert!(!state.exists());
    Ok(())
}
