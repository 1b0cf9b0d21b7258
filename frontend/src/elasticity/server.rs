//! The listener of the elasticity API: health, reflection, limits, shutdown.

use super::Elasticity;
use super::view::ClusterView;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use streams_proto::DESCRIPTOR_SET;
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityServiceServer;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codec::CompressionEncoding;
use tonic::transport::Server;

/// Requests in progress on one connection.
const CONCURRENCY: usize = 256;
/// A request names at most some hundred regions.
const MAX_REQUEST: usize = 1 << 20;
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Binds the address; port 0 takes a free one, see [`TcpListener::local_addr`].
///
/// # Errors
/// When the address cannot be bound.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves until `shutdown` is done; requests that wait are then ended after `grace`.
///
/// # Errors
/// When reflection cannot be built or the listener fails.
pub async fn serve<V: ClusterView>(
    listener: TcpListener,
    service: Elasticity<V>,
    shutdown: impl Future<Output = ()> + Send,
    grace: Duration,
) -> anyhow::Result<()> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<ElasticityServiceServer<Elasticity<V>>>().await;
    let reflection = |builder: tonic_reflection::server::Builder<'static>| {
        builder
            .register_encoded_file_descriptor_set(DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // So that a caller who knows nothing can read the details of an error.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
            .with_service_name("streams.elasticity.v1.ElasticityService")
            .with_service_name("grpc.health.v1.Health")
    };
    let elasticity = ElasticityServiceServer::new(service)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Zstd)
        .send_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(MAX_REQUEST);
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let server = Server::builder()
        .concurrency_limit_per_connection(CONCURRENCY)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .add_service(health_service)
        .add_service(reflection(tonic_reflection::server::Builder::configure()).build_v1()?)
        .add_service(reflection(tonic_reflection::server::Builder::configure()).build_v1alpha()?)
        .add_service(elasticity)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async move {
            shutdown.await;
            health.set_not_serving::<ElasticityServiceServer<Elasticity<V>>>().await;
            let _ = stop.send(true);
        });
    let out_of_patience = async move {
        // An error means that the server is gone already.
        if stopped.wait_for(|stopped| *stopped).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        served = server => Ok(served?),
        () = out_of_patience => Ok(()),
    }
}
