//! Widths, one change of a region after the other.

use super::objects::{jobs, region};
use super::{Cluster, request, send};
use axum::body::Body;
use axum::http::Method;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use streams_api::ParallelRegion;
use streams_kubernetes::Key;
use streams_kubernetes_fake::Server;
use tokio::time::{Instant, sleep};
use tower::ServiceExt as _;

const PATH: &str = "/api/state/job/srcjob/pr/R/width";

fn with_region(server: &Server) {
    jobs(server);
    region(server);
}

fn key() -> Key {
    Key::new("n", "srcjob-0")
}

fn width(cluster: &Cluster) -> u32 {
    cluster.server.get::<ParallelRegion>(&key()).unwrap().spec.width
}

/// The widths that arrive at the API server.
fn arriving(cluster: &Cluster) -> Arc<Mutex<Vec<u64>>> {
    let widths = Arc::<Mutex<Vec<u64>>>::default();
    let seen = Arc::clone(&widths);
    cluster.server.inspect(move |call| {
        let width = call.body.as_ref().and_then(|body| body["spec"]["width"].as_u64());
        seen.lock().extend(width.filter(|_| call.verb.is_write()));
    });
    widths
}

#[tokio::test(start_paused = true)]
async fn a_width_that_takes_too_long_goes_on_and_the_next_one_waits_for_its_end() {
    let mut cluster = Cluster::with(with_region);
    let widths = arriving(&cluster);
    cluster.connection.meanwhile(|call| {
        let is_first = call.body.as_ref().is_some_and(|body| body["spec"]["width"] == 5);
        Box::pin(sleep(Duration::from_millis(if is_first { 1_500 } else { 10 })))
    });
    let since = Instant::now();
    cluster.expect(send(Method::PUT, PATH, "5"), 503, "it takes too long").await;
    assert!(since.elapsed() < Duration::from_secs(1), "the runtime has not given up yet");
    cluster.expect(send(Method::PUT, PATH, "3"), 204, "").await;
    assert_eq!((widths.lock().clone(), width(&cluster)), (vec![5, 3], 3));
    // Nobody has asked for another one.
    cluster.expect(send(Method::PUT, PATH, "5"), 503, "it takes too long").await;
    for _ in 0..20 {
        sleep(Duration::from_millis(100)).await;
        cluster.mirrors.deliver_all();
    }
    assert_eq!(width(&cluster), 5);
}

#[tokio::test(start_paused = true)]
async fn of_a_region_one_width_is_written_at_a_time() {
    let mut cluster = Cluster::with(with_region);
    let (most, now) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let (highest, under_way) = (Arc::clone(&most), Arc::clone(&now));
    cluster.connection.meanwhile(move |_| {
        let (highest, under_way) = (Arc::clone(&highest), Arc::clone(&under_way));
        Box::pin(async move {
            *under_way.lock() += 1;
            let count: usize = *under_way.lock();
            let before = *highest.lock();
            *highest.lock() = count.max(before);
            sleep(Duration::from_millis(10)).await;
            *under_way.lock() -= 1;
        })
    });
    let asking = (3..23).map(|width| {
        let text: String = width.to_string();
        let exchange = send(Method::PUT, PATH, &text);
        let asked = request(&exchange, Body::from(text.clone()));
        tokio::spawn(cluster.router.clone().oneshot(asked))
    });
    let asking: Vec<_> = asking.collect();
    for _ in 0..200 {
        sleep(Duration::from_millis(5)).await;
        cluster.mirrors.deliver_all();
    }
    for answer in asking {
        assert_eq!(answer.await.unwrap().unwrap().status().as_u16(), 204);
    }
    assert_eq!((*most.lock(), *now.lock()), (1, 0));
}

/// The API server says of one that was made again that its uid cannot be changed.
#[tokio::test]
async fn a_region_that_is_gone_by_then_is_absent_and_what_the_api_server_refuses_is_said_in_its_words() {
    for is_made_again in [true, false] {
        let cluster = Cluster::with(with_region);
        cluster.server.remove::<ParallelRegion>(&key());
        if is_made_again {
            region(&cluster.server);
        }
        let (status, words) = cluster.answer_as_shown(send(Method::PUT, PATH, "3")).await;
        assert_eq!((status.as_u16(), &*words), (404, "ParallelRegion srcjob-0 is gone"), "{is_made_again}");
    }
    let cluster = Cluster::with(with_region);
    cluster.server.refuse(|call| {
        let refused = kube::core::Status::failure("no more than 2 here", "Invalid").with_code(422);
        call.verb.is_write().then_some(refused)
    });
    let (status, words) = cluster.answer_as_shown(send(Method::PUT, PATH, "3")).await;
    assert_eq!((status.as_u16(), &*words), (400, "no more than 2 here"));
}
