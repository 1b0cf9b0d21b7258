//! The listener of the elasticity API: health, reflection, limits, shutdown.

use super::Elasticity;
use super::view::ClusterView;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use streams_proto::DESCRIPTOR_SET;
use streams_proto::elasticity::v1::elasticity_service_server::ElasticityServiceServer;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codec::CompressionEncoding;
use tonic::transport::Server;
use tonic_health::server::HealthReporter;

/// Calls at a time on one connection. Those that wait for a resize are counted in all (`MOST_WAITING`), so that they
/// are not in front of others.
const CONCURRENCY: u32 = 1024;
/// How often is looked whether what the service sees is still fresh.
const LOOK: Duration = Duration::from_secs(1);
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

/// Serves until `shutdown` is done. Then health says so, requests that wait are ended at once, and others have `grace`.
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
    let (view, stopping) = (Arc::clone(&service.view), service.stopping.clone());
    let watched = report_health::<V>(health.clone(), view);
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
        .max_concurrent_streams(CONCURRENCY)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .add_service(health_service)
        .add_service(reflection(tonic_reflection::server::Builder::configure()).build_v1()?)
        .add_service(reflection(tonic_reflection::server::Builder::configure()).build_v1alpha()?)
        .add_service(elasticity)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async move {
            tokio::select! {
                () = shutdown => {}
                never = watched => match never {},
            }
            health.set_not_serving::<ElasticityServiceServer<Elasticity<V>>>().await;
            stopping.cancel();
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

/// Lets health say whether what the service sees can be relied on.
async fn report_health<V: ClusterView>(health: HealthReporter, view: Arc<V>) -> Infallible {
    let mut said = None;
    loop {
        let problem = view.too_old();
        if said != Some(problem.is_none()) {
            said = Some(problem.is_none());
            match problem {
                None => health.set_serving::<ElasticityServiceServer<Elasticity<V>>>().await,
                Some(problem) => {
                    tracing::warn!(problem, "the elasticity API does not see the cluster as it is");
                    health.set_not_serving::<ElasticityServiceServer<Elasticity<V>>>().await;
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}
