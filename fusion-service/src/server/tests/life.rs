//! The life cycle of a server: health, metrics, draining.

use super::*;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

#[tokio::test(flavor = "multi_thread")]
async fn pages_tell_how_it_goes() {
    let replica = replica(settings()).await;
    let mut client = replica.client().await;
    submit(&mut client, "job", "2 10").await.unwrap();
    eventually("the call has ended", || replica.server.calls.in_flight.is_empty()).await;
    assert_eq!(replica.page("/healthz").await, ("HTTP/1.1 200 OK".into(), "ok\n".into()));
    assert_eq!(replica.page("/readyz").await, ("HTTP/1.1 200 OK".into(), "ready\n".into()));
    let (status, metrics) = replica.page("/metrics").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    for line in [
        r#"fusion_calls_total{method="Submit",code="OK"} 1"#,
        r#"fusion_stage_duration_seconds_count{stage="queue"} 2"#,
        r#"fusion_stage_duration_seconds_count{stage="parse"} 1"#,
        r#"fusion_queue_depth{class="submit"} 0"#,
        r#"fusion_cache_lookups_total{cache="application",result="miss"} 1"#,
        r#"fusion_cache_bytes{cache="layout"} 1024"#,
    ] {
        assert!(metrics.lines().any(|l| l == line), "no '{line}' in\n{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_says_so_and_finishes_what_was_begun() {
    let replica = replica(Settings { workers: count(2), ..settings() }).await;
    replica.gate.hold("submit");
    let mut client = replica.client().await;
    let call = tokio::spawn(async move { submit(&mut client, "job", "1 1").await });
    replica.begun("submit job").await;

    let mut watches = Vec::new();
    for service in ["", "streams.fusion.v1.FusionService"] {
        let request = HealthCheckRequest { service: service.into() };
        let mut watch = HealthClient::new(replica.channel().await).watch(request).await.unwrap().into_inner();
        assert_eq!(soon(watch.message()).await.unwrap().unwrap().status, SERVING);
        watches.push(watch);
    }
    let (address, gate) = (replica.server.address, Arc::clone(&replica.gate));
    let stopping = tokio::spawn(replica.server.stop(Duration::ZERO, LONG));
    for watch in &mut watches {
        assert_eq!(soon(watch.message()).await.unwrap().unwrap().status, NOT_SERVING);
    }
    let refused = soon(async {
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    refused.await;
    assert!(!stopping.is_finished());
    gate.release("submit");
    soon(call).await.unwrap().unwrap();
    // Watchers of health do not keep it.
    soon(stopping).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn before_it_drains_it_goes_on_for_those_who_have_not_heard() {
    let replica = replica(settings()).await;
    let mut client = replica.client().await;
    let health = replica.server.health.clone();
    let stopping = tokio::spawn(replica.server.stop(LONG, LONG));
    eventually("draining", || !health.is_serving()).await;
    submit(&mut client, "late", "1 1").await.unwrap();
    stopping.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_too_long_is_sent_to_another_replica() {
    let replica = replica(Settings { workers: count(2), ..settings() }).await;
    let mut client = replica.client().await;
    let layout = submit(&mut client, "job", "1 10").await.unwrap().layout;
    replica.gate.hold("submit");
    replica.gate.hold("render");
    let call = {
        let mut client = client.clone();
        tokio::spawn(async move { submit(&mut client, "long", "1 1").await })
    };
    let stream = {
        let mut client = client.clone();
        tokio::spawn(async move { texts(&mut client, render_request("job", "1 10", &layout, &[0])).await })
    };
    replica.begun("submit long").await;
    replica.begun("render job").await;
    let gate = Arc::clone(&replica.gate);
    soon(replica.server.stop(Duration::ZERO, Duration::from_millis(50))).await;
    assert_eq!(soon(call).await.unwrap().unwrap_err().code(), Code::Unavailable);
    assert_eq!(soon(stream).await.unwrap().unwrap_err().code(), Code::Unavailable);
    eventually("the work has ended", || gate.ended_early().len() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_is_told_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("port");
    let replica = replica(settings()).await;
    crate::server::write_port(Some(&file), replica.server.address).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{}\n", replica.server.address.port()));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    assert!(crate::server::write_port(Some(&directory.path().join("a/b")), replica.server.address).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_about_health_are_short() {
    let replica = replica(settings()).await;
    for (bytes, expected) in [(1000, Code::NotFound), (5000, Code::OutOfRange)] {
        let request = HealthCheckRequest { service: "x".repeat(bytes) };
        let status = HealthClient::new(replica.channel().await).check(request).await.unwrap_err();
        assert_eq!(status.code(), expected, "{bytes}: {status}");
    }
}
