//! Streams of the elasticity API over real connections (rule elasticity-23).

use super::fixture::{Fixture, WITHIN, reason, with};
use super::fusion_down::{IMPATIENT, kill_fusion, start_fusion};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, MODEL, SCORE, Widths};
use integration_tests::system::job::ObservedJob;
use std::time::Duration;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_proto::elasticity::v1::{
    ResizeName, ResizePhase, WatchRegionsRequest, WatchRegionsResponse, WatchResizeRequest, WatchResizeResponse,
};
use tokio::time::timeout;
use tonic::{Code, Request, Status, Streaming};
use tonic_types::StatusExt as _;

async fn follow(it: &Fixture, job: &ObservedJob, request: &str) -> Result<Streaming<WatchResizeResponse>> {
    let (namespace, job) = (it.namespace.clone(), job.name().to_owned());
    let name = Some(ResizeName { namespace, job, request: request.to_owned(), ..ResizeName::default() });
    Ok(it.frontend()?.balancer().await?.watch_resize(WatchResizeRequest { name }).await?.into_inner())
}

async fn follow_regions(it: &Fixture, within: Duration) -> Result<Streaming<WatchRegionsResponse>> {
    let mut request = Request::new(WatchRegionsRequest { namespace: it.namespace.clone(), job: String::new() });
    request.set_timeout(within);
    Ok(it.frontend()?.balancer().await?.watch_regions(request).await?.into_inner())
}

/// The next message, or `None` at the end.
async fn next<T>(stream: &mut Streaming<T>) -> Result<Option<T>> {
    Ok(timeout(WITHIN, stream.message()).await.context("nothing is told")??)
}

/// How a stream ends that has no end of its own.
async fn end_of<T>(stream: &mut Streaming<T>) -> Result<Status> {
    loop {
        match timeout(WITHIN, stream.message()).await.context("it does not end")? {
            Ok(message) => ensure!(message.is_some(), "it ended without a word"),
            Err(status) => return Ok(status),
        }
    }
}

fn phase(message: &WatchResizeResponse) -> ResizePhase {
    message.resize.as_ref().map_or(ResizePhase::Unspecified, |resize| resize.phase())
}

#[tokio::test]
async fn a_request_is_followed_from_the_first_look_to_the_last_pe() -> Result<()> {
    with("streams", 1, &IMPATIENT, async |it| {
        let job = it.submitted().await?;
        kill_fusion(it).await?;
        let made = it.resize(&job, &[(CLEAN, 3)], WaitFor::Accepted).await?;
        let mut stream = follow(it, &job, &made.request).await?;
        let first = next(&mut stream).await?.context("nothing is told")?;
        ensure!(phase(&first) == ResizePhase::Pending && first.progress.is_none(), "{first:?}");
        start_fusion(it).await?;
        let mut told = vec![first];
        while let Some(message) = next(&mut stream).await? {
            told.push(message);
        }
        let phases: Vec<_> = told.iter().map(phase).collect();
        ensure!(phases.is_sorted() && phases.last() == Some(&ResizePhase::RolledOut), "{phases:?}");
        ensure!(phases.contains(&ResizePhase::Committed), "{phases:?}");
        for message in &told {
            let resize = message.resize.as_ref().context("no request")?;
            // Whatever is said of PEs is the same before the commit and after it.
            let changes = resize.changes.filter(|changes| changes.added != 1 || changes.restarted == 0);
            ensure!(changes.is_none() && resize.generation.is_none_or(|generation| generation == 1), "{resize:?}");
            let is_committed = matches!(resize.phase(), ResizePhase::Committed | ResizePhase::RolledOut);
            ensure!(message.progress.is_some() == is_committed, "{message:?}");
            ensure!(resize.changes.is_some() == (resize.phase() != ResizePhase::Pending), "{message:?}");
        }
        let last = told.last().and_then(|message| message.progress).context("no progress")?;
        ensure!((last.generation, last.pending) == (1, 0), "{last:?}");
        // Whoever comes late hears the end, once.
        let mut late = follow(it, &job, &made.request).await?;
        let end = next(&mut late).await?.context("nothing is told")?;
        ensure!(phase(&end) == ResizePhase::RolledOut && next(&mut late).await?.is_none(), "{end:?}");
        let unknown = follow(it, &job, "nobody").await.err().context("it is followed")?;
        let unknown = unknown.downcast::<Status>()?;
        ensure!((unknown.code(), reason(&unknown).as_str()) == (Code::NotFound, "RESIZE_NOT_FOUND"), "{unknown:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn regions_are_followed_until_the_time_is_over_or_the_frontend_ends() -> Result<()> {
    with("streams", 1, &[], async |it| {
        let job = it.submitted().await?;
        let mut stream = follow_regions(it, WITHIN).await?;
        let first = next(&mut stream).await?.context("nothing is told")?;
        let names: Vec<_> = first.regions.iter().map(|region| region.name.as_str()).collect();
        ensure!(names == [CLEAN, SCORE, MODEL] && first.complete && first.deleted.is_empty(), "{first:?}");
        it.resize(&job, &[(CLEAN, 3)], WaitFor::RolledOut).await?;
        loop {
            let message = next(&mut stream).await?.context("it ended")?;
            let clean = message.regions.iter().find(|region| region.name == CLEAN);
            if let Some(clean) = clean.filter(|clean| clean.rolled_out && clean.ready_width == Some(3)) {
                ensure!(clean.last_resize.as_ref().is_some_and(|last| last.duration.is_some()), "{clean:?}");
                break;
            }
        }
        // The reader's time.
        let mut hasty = follow_regions(it, Duration::from_secs(2)).await?;
        let end = end_of(&mut hasty).await?;
        ensure!((end.code(), reason(&end).as_str()) == (Code::DeadlineExceeded, "STILL_WAITING"), "{end:?}");
        // SIGTERM.
        let frontend = it.frontend()?;
        let stopping = frontend.process().stop(WITHIN);
        let (stopped, end) = tokio::join!(stopping, end_of(&mut stream));
        stopped?;
        let end = end?;
        ensure!((end.code(), reason(&end).as_str()) == (Code::Unavailable, "SHUTTING_DOWN"), "{end:?}");
        ensure!(end.get_error_details().retry_info().is_some(), "{end:?}");
        frontend.start_again().await?;
        job.settled(Widths { clean: 3, ..Widths::default() }, WITHIN).await.map(drop)
    })
    .await
}
