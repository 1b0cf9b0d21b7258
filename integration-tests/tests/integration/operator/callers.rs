//! Many callers of the elasticity API that wait: nobody is in front of others, each hears in its own time what is still
//! missing, and all of them when the frontend ends (rules elasticity-8 and elasticity-11).

use super::fixture::{ALL, WITHIN, reason, until_taken, with_system};
use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use integration_tests::sample::CLEAN;
use rustix::process::Signal;
use std::time::Duration;
use streams_api::Resize;
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_proto::elasticity::v1::{GetRegionRequest, ResizeRequest};
use tokio::time::timeout;
use tonic::Code;
use tonic_types::StatusExt as _;

const WAITERS: usize = 200;
/// As a caller with little time has.
const SHORT: Duration = Duration::from_secs(10);
/// A wait that ends at once ends long before the frontend's grace is over (20 s).
const AT_ONCE: Duration = Duration::from_secs(15);

#[tokio::test]
async fn who_waits_is_in_front_of_nobody_and_hears_why_when_it_ends() -> Result<()> {
    with_system("callers", async |it| {
        let job = it.submitted().await?;
        // Nothing comes into force any more.
        for replica in it.system.fusion() {
            replica.kill().await?;
        }
        let one_connection = it.frontend()?.balancer().await?;
        let resize = |key: &str, within: Duration| {
            let wanted = job.resize_request(&[(CLEAN, 5)], WaitFor::Committed);
            let wanted = ResizeRequest { idempotency_key: key.to_owned(), ..wanted };
            until_taken(one_connection.clone(), wanted, within)
        };
        let keys = (0..WAITERS).map(|number| format!("waiter-{number}"));
        let mut waiters: FuturesUnordered<_> = keys.map(|key| resize(&key, ALL)).collect();
        let others = async {
            // On a busy machine it may take longer than this caller has until its request is admitted.
            eventually("a caller hears what is missing", WITHIN, || async {
                let status = resize("short", SHORT).await.err().context("it came into force")?;
                ensure!(status.code() == Code::DeadlineExceeded && reason(&status) == "STILL_WAITING", "{status:?}");
                ensure!(status.message().contains("width 5 of Clean to be compiled"), "{}", status.message());
                Ok(())
            })
            .await?;
            let get = GetRegionRequest {
                namespace: it.namespace.clone(),
                job: job.name().to_owned(),
                region: CLEAN.to_owned(),
            };
            let region = timeout(AT_ONCE, one_connection.clone().get_region(get)).await??.into_inner();
            ensure!(region.desired_width == 5 && region.applied_width == Some(2), "{region:?}");
            eventually("all have asked", WITHIN, || async {
                let requests = job.list::<Resize>().await?.len();
                ensure!(requests == WAITERS + 1, "{requests} requests");
                Ok(())
            })
            .await
        };
        tokio::select! {
            result = others => result?,
            ended = waiters.next() => anyhow::bail!("one did not wait: {ended:?}"),
        }

        it.frontend()?.process().signal(Signal::TERM)?;
        let all = async {
            while let Some(ended) = waiters.next().await {
                let status = ended.err().context("it came into force")?;
                ensure!(status.code() == Code::Unavailable && reason(&status) == "SHUTTING_DOWN", "{status:?}");
                ensure!(status.get_error_details().retry_info().is_some(), "{status:?}");
            }
            anyhow::Ok(())
        };
        timeout(AT_ONCE, all).await.context("they still wait")??;
        let ended = it.frontend()?.process().ended().await;
        ensure!(ended.is_success(), "{ended:?}");
        // For the end of the test.
        it.frontend()?.start_again().await?;
        Ok(())
    })
    .await
}
