//! A client library against the server.

use super::{Running, large};
use crate::Settings;
use bytes::Bytes;
use redis::{AsyncCommands, Client, ConnectionInfo, ErrorKind, IntoConnectionInfo, ProtocolVersion, RedisResult};
use std::time::Duration;

fn client(running: &Running, protocol: ProtocolVersion) -> Client {
    let info: ConnectionInfo = format!("redis://{}", running.address).into_connection_info().unwrap();
    let settings = info.redis_settings().clone().set_protocol(protocol);
    Client::open(info.set_redis_settings(settings)).unwrap()
}

#[tokio::test]
async fn a_client_library_reads_bundles() {
    for protocol in [ProtocolVersion::RESP2, ProtocolVersion::RESP3] {
        let content = large(3 << 20);
        let running = Running::start(Settings::default(), content.clone()).await;
        let mut connection = client(&running, protocol).get_multiplexed_async_connection().await.unwrap();
        let bundle: Vec<u8> = connection.hget("apps", "a.sab").await.unwrap();
        assert!(bundle == content);
        let bundle: Vec<u8> = connection.hget("apps", "pieces.sab").await.unwrap();
        assert!(bundle == content);
        let names: Vec<String> = connection.hkeys("apps").await.unwrap();
        assert_eq!(names, ["a.sab", "late.sab"]);
        let (has, has_not): (bool, bool) =
            (connection.hexists("apps", "a.sab").await.unwrap(), connection.hexists("apps", "x").await.unwrap());
        assert!(has && !has_not);
        let late: RedisResult<u64> =
            redis::cmd("HSTRLEN").arg("apps").arg("late.sab").query_async(&mut connection).await;
        assert_eq!(late.unwrap_err().code(), Some("TRYAGAIN"));
        let none: Option<Vec<u8>> = connection.hget("other", "a.sab").await.unwrap();
        assert_eq!(none, None);
        let written: RedisResult<()> = connection.hset("apps", "a.sab", "x").await;
        assert_eq!(written.unwrap_err().code(), Some("READONLY"));
        let unknown: RedisResult<()> = redis::cmd("FOO").query_async(&mut connection).await;
        assert!(matches!(unknown.unwrap_err().kind(), ErrorKind::Server(_)));
        // What is no bundle would be taken for one.
        let left: RedisResult<Vec<u8>> = connection.hget("apps", "late.sab").await;
        assert!(left.unwrap_err().is_connection_dropped());
        running.stop().await;
    }
}

#[tokio::test]
async fn a_client_library_sends_several_requests_at_once() {
    let running = Running::start(Settings::default(), Bytes::from_static(b"bundle")).await;
    let mut connection = client(&running, ProtocolVersion::RESP2).get_multiplexed_async_connection().await.unwrap();
    let mut pipeline = redis::pipe();
    for _ in 0..2000 {
        pipeline.hget("apps", "a.sab").ping();
    }
    let replies: Vec<String> = pipeline.query_async(&mut connection).await.unwrap();
    assert_eq!(replies.len(), 4000);
    assert!(replies.chunks(2).all(|pair| pair == ["bundle", "PONG"]));
    running.stop().await;
}

#[tokio::test]
async fn many_clients_at_once_get_the_same() {
    let content = large(200_000);
    let settings = Settings { max_connections_per_peer: 1000, max_transfers_per_peer: 1000, ..Settings::default() };
    let running = Running::start(settings, content.clone()).await;
    let clients = (0..100).map(|_| {
        let (client, content) = (client(&running, ProtocolVersion::RESP3), content.clone());
        tokio::spawn(async move {
            let config = redis::AsyncConnectionConfig::new()
                .set_connection_timeout(Some(Duration::from_secs(60)))
                .set_response_timeout(Some(Duration::from_secs(60)));
            let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
            let bundle: Vec<u8> = connection.hget("apps", "pieces.sab").await.unwrap();
            assert!(bundle == content);
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    assert_eq!(running.counters.sent_bytes.get(), 100 * 200_000);
    running.stop().await;
}
