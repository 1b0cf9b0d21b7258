//! Calls follow the EndpointSlices of the fusion service: replicas that come, that are about to go, and that are gone
//! (rule call-15).

use super::fixture::{Fixture, WITHIN, with};
use crate::support::{frontend_rights, programs, supervisor};
use anyhow::{Context as _, Result};
use integration_tests::sample::{CLEAN, Widths};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use streams_control_plane::process::{Process, Program, free_port, serves_grpc};
use streams_proto::elasticity::v1::resize_request::WaitFor;

const SERVICE: &str = "fusion";
/// Where packets to anywhere would leave this machine from; nothing is sent.
const ANYWHERE: &str = "198.51.100.1:9";

/// An address of this machine that a slice may have: the API server refuses loopback.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect(ANYWHERE).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|address| !address.is_loopback())
}

/// A replica of the fusion service that no argument of the frontend names.
async fn replica(it: &Fixture, name: &str, address: IpAddr) -> Result<(SocketAddr, Process)> {
    let address = SocketAddr::new(address, free_port()?);
    let program = Program::new(name, &programs().await?.fusion)
        .arguments(["serve", "--listen", &address.to_string()])
        .without_proxy();
    let process = Process::start(&supervisor(), it.system.state(), program).await?;
    process.ready(WITHIN, || serves_grpc(address, "streams.fusion.v1.FusionService")).await?;
    Ok((address, process))
}

/// Says by a slice how a replica is, as the controller of Kubernetes does for pods.
async fn is_listed(it: &Fixture, name: &str, address: SocketAddr, ready: bool, terminating: bool) -> Result<()> {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": SERVICE}},
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "ports": [{"name": "grpc", "port": address.port(), "protocol": "TCP"}],
        "endpoints": [{
            "addresses": [address.ip()],
            "conditions": {"ready": ready, "serving": true, "terminating": terminating},
        }],
    });
    let slices = Api::<EndpointSlice>::namespaced(it.client.clone(), &it.namespace);
    slices.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&slice)).await?;
    Ok(())
}

#[tokio::test]
async fn calls_follow_the_endpoints_of_the_fusion_service() -> Result<()> {
    let Some(address) = own_address() else {
        eprintln!("this machine has no address but loopback, which no EndpointSlice may have: nothing is tried");
        return Ok(());
    };
    let arguments = ["--fusion-service-endpoints", "{namespace}/fusion:grpc"];
    with("endpoints", 1, &arguments, async |it| {
        frontend_rights().await?.endpoints_in(&it.client, &it.namespace).await?;
        // No slice yet: the replicas of --fusion-service compile it.
        let job = it.submitted().await?;
        for replica in it.system.fusion() {
            replica.kill().await?;
        }
        let resized = async |clean: u32| -> Result<()> {
            it.resize(&job, &[(CLEAN, clean)], WaitFor::RolledOut).await?;
            job.settled(Widths { clean, ..Widths::default() }, WITHIN).await.map(drop)
        };

        let (first_address, first) = replica(it, "fusion-first", address).await?;
        is_listed(it, "first", first_address, true, false).await?;
        resized(3).await?;

        // It is about to go, and another one is not ready yet: it is asked still.
        let (second_address, second) = replica(it, "fusion-second", address).await?;
        is_listed(it, "first", first_address, false, true).await?;
        is_listed(it, "second", second_address, false, false).await?;
        resized(2).await?;

        is_listed(it, "second", second_address, true, false).await?;
        first.kill().await?;
        let slices = Api::<EndpointSlice>::namespaced(it.client.clone(), &it.namespace);
        slices.delete("first", &DeleteParams::default()).await.context("the first slice")?;
        resized(4).await?;
        second.kill().await?;
        Ok(())
    })
    .await
}
