//! Names of Services lead to pods.

use crate::support::{Fixture, SOON};
use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, QCLASS, QTYPE, Question, RCODE, TYPE};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use streams_control_plane::wait::eventually;
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// Addresses of a name, or the error that the server answers.
async fn ask(server: SocketAddr, name: &str, kind: TYPE) -> Result<Result<BTreeSet<String>, RCODE>> {
    let mut question = Packet::new_query(7);
    question.questions.push(Question::new(Name::new(name)?, QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN), false));
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    socket.send_to(&question.build_bytes_vec()?, server).await?;
    let mut bytes = [0; 4096];
    let length = timeout(SOON, socket.recv(&mut bytes)).await.context("no answer")??;
    let answer = Packet::parse(&bytes[..length])?;
    ensure!(answer.id() == 7, "another answer");
    if answer.rcode() != RCODE::NoError {
        return Ok(Err(answer.rcode()));
    }
    let mut addresses = BTreeSet::new();
    for record in &answer.answers {
        let RData::A(address) = &record.rdata else { bail!("{record:?}") };
        addresses.insert(Ipv4Addr::from(address.address).to_string());
    }
    Ok(Ok(addresses))
}

async fn service(fixture: &Fixture, name: &str, spec: Value) -> Result<()> {
    let service = json!({"metadata": {"name": name}, "spec": spec});
    let services = Api::<Service>::namespaced(fixture.client.clone(), &fixture.namespace);
    services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    Ok(())
}

#[tokio::test]
async fn a_name_leads_to_the_pods_of_a_service_or_to_its_slices() -> Result<()> {
    let Some(fixture) = Fixture::new("names").await? else { return Ok(()) };
    let ports = json!([{"name": "api", "port": 10000}]);
    let headless =
        json!({"clusterIP": "None", "selector": {"app": "peer"}, "publishNotReadyAddresses": true, "ports": ports});
    service(&fixture, "peers", headless).await?;
    service(&fixture, "bare", json!({"ports": ports})).await?;
    let program = fixture.agent.reserve_address()?.to_string();
    let slice = json!({
        "metadata": {"name": "bare-1", "labels": {"kubernetes.io/service-name": "bare"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [program]}],
        "ports": ports.as_array().map(|_| json!([{"name": "api", "port": 10000, "protocol": "TCP"}])),
    });
    let slices = Api::<EndpointSlice>::namespaced(fixture.client.clone(), &fixture.namespace);
    slices.create(&PostParams::default(), &serde_json::from_value(slice)?).await?;

    let mut addresses = BTreeSet::new();
    for name in ["peer-1", "peer-2", "other-1"] {
        fixture.script(name, "exec sleep 1000").await?;
        let pod = fixture.reaches(name, "Running").await?;
        if name.starts_with("peer") {
            addresses.insert(pod.status.and_then(|status| status.pod_ip).context("no address")?);
        }
    }
    let (server, namespace) = (fixture.agent.dns(), fixture.namespace.as_str());
    let leads_to = async |name: &str, wanted: &BTreeSet<String>| {
        eventually(&format!("{name} leads to {wanted:?}"), SOON, || async {
            let found = ask(server, name, TYPE::A).await?;
            ensure!(found.as_ref().ok() == Some(wanted), "{found:?}");
            Ok(())
        })
        .await
    };
    for name in ["peers", "bare"] {
        let wanted = if name == "bare" { BTreeSet::from([program.clone()]) } else { addresses.clone() };
        for domain in ["", ".svc", ".svc.cluster.local"] {
            leads_to(&format!("{name}.{namespace}{domain}"), &wanted).await?;
        }
    }
    fixture.delete("peer-1", &DeleteParams::default()).await?;
    let left = fixture.pods().get("peer-2").await?.status.and_then(|status| status.pod_ip).context("no address")?;
    leads_to(&format!("peers.{namespace}"), &BTreeSet::from([left])).await?;
    assert_eq!(ask(server, &format!("nobody.{namespace}"), TYPE::A).await?, Err(RCODE::NameError));
    let other_kind = ask(server, &format!("peers.{namespace}"), TYPE::AAAA).await?;
    assert_eq!(other_kind, Ok(BTreeSet::new()), "there is such a name, without such addresses");
    Ok(())
}
