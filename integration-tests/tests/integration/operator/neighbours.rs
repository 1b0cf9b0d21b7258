//! What somebody slow does to everybody else: nothing that lasts (rule call-7).

use super::fixture::{WITHIN, with};
use anyhow::{Result, ensure};
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use tokio::net::TcpListener;

/// More jobs than there are workers for downloads and for all other long work together.
const HANGING: usize = 12;
/// Bundles that a frontend fetches at the same time (`--download-workers`).
const DOWNLOAD_WORKERS: usize = 4;
/// After so many seconds a download is given up, and the next one begins (`--bundle-seconds`).
const GIVEN_UP_AFTER: usize = 120;

/// A server that takes connections and never answers; its address, and how many it has taken.
async fn silent_server() -> Result<(String, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            open.push(connection);
        }
    });
    Ok((address, taken))
}

#[tokio::test]
async fn bundles_that_never_come_delay_no_resize() -> Result<()> {
    with("neighbours", 1, &["--allow-http-bundles", "--allow-bundle-address", "127.0.0.1/32"], async |it| {
        let job = it.submitted().await?;
        let (server, taken) = silent_server().await?;
        let since = Instant::now();
        for number in 0..HANGING {
            let mut slow = it.sample(&format!("slow-{number}"));
            slow.spec.bundle.file = None;
            slow.spec.bundle.url = Some(format!("http://{server}/slow-{number}.sab"));
            ObservedJob::create(&it.client, &slow).await?;
        }
        eventually("downloads hang", WITHIN, || async {
            ensure!(taken.load(Ordering::SeqCst) > 0, "nobody asks for a bundle");
            Ok(())
        })
        .await?;
        let answer = it.resize(&job, &[(CLEAN, 4)], WaitFor::RolledOut).await?;
        ensure!(answer.generation == Some(1), "{answer:?}");
        job.settled(Widths { clean: 4, ..Widths::default() }, WITHIN).await?;
        // No more downloads have begun than there are workers: none has ended, and the resize has waited for none. Only
        // on a very busy machine are some given up by now.
        let begun = taken.load(Ordering::SeqCst);
        let turns = 1 + usize::try_from(since.elapsed().as_secs())? / GIVEN_UP_AFTER;
        ensure!(begun <= DOWNLOAD_WORKERS * turns, "{begun} downloads have begun");
        Ok(())
    })
    .await
}
