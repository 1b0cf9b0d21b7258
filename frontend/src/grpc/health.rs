//! Who hears of the health of the services, and how long (rules elasticity-8 and elasticity-27).
//!
//! `Watch` needs no token, and nothing ends it but its caller. So an address has so many of these streams, which leaves
//! calls to whoever else comes from there, and they end with this frontend, which would wait for them otherwise.
//!
//! Knows: addresses. Must not know: which services there are, what makes them healthy.
//!
//! Invariant: whoever watches hears that the services are not served any more before the stream ends.

use super::arrival::Arrival;
use super::status::{LATER, status};
use futures::stream::{BoxStream, poll_fn};
use futures::{FutureExt as _, StreamExt as _};
use std::net::IpAddr;
use std::task::Poll;
use streams_places::{Full, Places};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::{HealthReporter, HealthService};
use tonic_types::ErrorDetails;

/// Streams at the same time, of one address a quarter at most.
const STREAMS_MAX: usize = 4_096;

/// What the reporter says, for so many at a time.
pub(super) struct Watched {
    service: HealthService,
    streams: Places<IpAddr, ()>,
    stopping: CancellationToken,
}

/// What answers whoever asks for what this reporter says. Streams end when `stopping` is cancelled.
pub(super) fn server(reporter: &HealthReporter, stopping: CancellationToken) -> HealthServer<Watched> {
    let service = HealthService::from_health_reporter(reporter.clone());
    HealthServer::new(Watched { service, streams: Places::new(STREAMS_MAX, STREAMS_MAX), stopping })
}

fn too_many(full: Full) -> Status {
    let (Full::InAll(count) | Full::OfGroup(count) | Full::OfOne(count) | Full::OfUser(count)) = full;
    let message = format!("{count} callers follow the health of the services already, in all or from this address");
    status(Code::ResourceExhausted, &message, ErrorDetails::with_retry_info(Some(LATER)))
}

#[tonic::async_trait]
impl Health for Watched {
    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn check(&self, call: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        self.service.check(call).await
    }

    async fn watch(&self, call: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let from = call.extensions().get::<Arrival>().map(|arrival| arrival.from);
        let place = from.map(|from| self.streams.take(&from, &())).transpose().map_err(too_many)?;
        let mut said = self.service.watch(call).await?.into_inner();
        let mut end = Box::pin(self.stopping.clone().cancelled_owned());
        let stream = poll_fn(move |context| {
            let _held = &place;
            match said.poll_next_unpin(context) {
                // All is told.
                Poll::Pending => end.poll_unpin(context).map(|()| None),
                next => next,
            }
        });
        Ok(Response::new(stream.boxed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;
    use tonic_health::ServingStatus;
    use tonic_health::pb::health_check_response::ServingStatus as Told;

    fn call(from: [u8; 4]) -> Request<HealthCheckRequest> {
        let mut call = Request::new(HealthCheckRequest::default());
        call.extensions_mut().insert(Arrival { at: Instant::now(), from: from.into(), connection: 1 });
        call
    }

    #[tokio::test]
    async fn whoever_watches_hears_the_end_and_leaves_streams_to_others() {
        let (reporter, stopping) = (HealthReporter::new(), CancellationToken::new());
        let service = HealthService::from_health_reporter(reporter.clone());
        let health = Watched { service, streams: Places::new(8, 8), stopping: stopping.clone() };
        let mut streams = Vec::new();
        for _ in 0..2 {
            streams.push(health.watch(call([10, 0, 0, 1])).await.unwrap().into_inner());
        }
        let refused = health.watch(call([10, 0, 0, 1])).await.err().unwrap();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(health.check(call([10, 0, 0, 1])).await.is_ok());
        assert!(health.watch(call([10, 0, 0, 2])).await.is_ok());
        let mut first = streams.pop().unwrap();
        let mut hears = async || first.next().await.map(|said| said.unwrap().status);
        assert_eq!(hears().await, Some(Told::Serving as i32));
        reporter.set_service_status("", ServingStatus::NotServing).await;
        stopping.cancel();
        assert_eq!([hears().await, hears().await], [Some(Told::NotServing as i32), None]);
        drop(first);
        assert!(health.watch(call([10, 0, 0, 1])).await.is_ok());
    }
}
