//! The services as they are deployed: one frontend for all namespaces, with the rights of its manifest; and a control
//! plane with room for many pods.

use crate::sample;
use crate::system::rights::FrontendRights;
use crate::system::{LONG_LEASE, Programs, System, SystemOptions};
use anyhow::Result;
use std::collections::BTreeMap;
use streams_api::crds;
use streams_control_plane::process::Supervisor;
use streams_control_plane::progress::Progress;
use streams_control_plane::{Component, ControlPlane};

/// Pods that fit on one of kwok's nodes.
const PODS_PER_NODE: u32 = 500;

/// A control plane whose nodes have room for so many pods.
///
/// # Errors
/// When it does not start.
pub(super) async fn room_for(supervisor: &Supervisor, pods: usize) -> Result<ControlPlane> {
    room_with(supervisor, pods, BTreeMap::new()).await
}

/// The same, with more arguments for its programs.
///
/// # Errors
/// When it does not start.
pub(super) async fn room_with(
    supervisor: &Supervisor,
    pods: usize,
    arguments: BTreeMap<Component, Vec<String>>,
) -> Result<ControlPlane> {
    let progress = Progress::begin("control plane");
    let cluster = streams_control_plane::Options {
        crds: crds::crds()?,
        nodes: u16::try_from(pods / PODS_PER_NODE as usize + 2)?,
        pods_per_node: PODS_PER_NODE,
        arguments,
        ..streams_control_plane::Options::default()
    };
    let control_plane = ControlPlane::start(supervisor, &cluster).await?;
    progress.done();
    Ok(control_plane)
}

/// Starts them, with the bundle of the sample application. Bundles may come from loopback, where runs have their
/// servers.
///
/// # Errors
/// When one of them does not start.
pub(super) async fn as_deployed(
    supervisor: &Supervisor,
    programs: &Programs,
    control_plane: &ControlPlane,
) -> Result<System> {
    as_deployed_with(supervisor, programs, control_plane, More::default()).await
}

/// What a run wants beside that.
#[derive(Debug, Default)]
pub(super) struct More<'a> {
    /// Arguments of the frontend.
    pub(super) arguments: &'a [&'a str],
    /// Environment variables of both services.
    pub(super) environment: &'a [(String, String)],
}

/// The same, with more of what a run wants.
///
/// # Errors
/// When one of them does not start.
pub(super) async fn as_deployed_with(
    supervisor: &Supervisor,
    programs: &Programs,
    control_plane: &ControlPlane,
    more: More<'_>,
) -> Result<System> {
    let own = ["--allow-http-bundles", "--allow-bundle-address", "127.0.0.1/32", "--lease-namespace", "default"];
    let arguments = LONG_LEASE.iter().chain(&own).chain(more.arguments);
    let rights = FrontendRights::give(control_plane).await?;
    rights.lease_in(&control_plane.client().await?, "default").await?;
    let options = SystemOptions {
        kubeconfig: rights.kubeconfig().to_owned(),
        namespace: None,
        fusion_replicas: 2,
        frontend_replicas: 1,
        frontend_arguments: arguments.map(|&argument| argument.to_owned()).collect(),
        pe_api: Vec::new(),
        environment: more.environment.to_vec(),
    };
    let system = System::start(supervisor, programs, &options).await?;
    sample::write_bundle(system.bundles())?;
    Ok(system)
}
