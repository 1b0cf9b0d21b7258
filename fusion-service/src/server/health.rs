//! Whether this replica takes requests: the gRPC health protocol and the same as a flag (rule service-14).
//!
//! Knows: names of services. Must not know: why.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use streams_proto::fusion::v1::fusion_service_server::SERVICE_NAME;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

/// The health of one server.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    reporter: HealthReporter,
    serving: Arc<AtomicBool>,
}

impl Health {
    /// Serving, as a whole and by the name of the service.
    pub(crate) async fn new() -> Self {
        let health = Self { reporter: HealthReporter::new(), serving: Arc::default() };
        health.set(true).await;
        health
    }

    /// The gRPC health service.
    pub(crate) fn service(&self) -> HealthServer<HealthService> {
        HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()))
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Acquire)
    }

    /// Sets the health and sends it to all watchers.
    pub(crate) async fn set(&self, serving: bool) {
        self.serving.store(serving, Ordering::Release);
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in ["", SERVICE_NAME] {
            self.reporter.set_service_status(name, status).await;
        }
    }
}
