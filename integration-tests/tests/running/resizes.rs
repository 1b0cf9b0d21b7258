//! A job moves tuples, and goes on while its regions are resized.

use crate::fixture::{Fixture, WITHIN, with_running_pes};
use anyhow::{Result, ensure};
use integration_tests::running::connections::{Statuses, Stayed};
use integration_tests::running::ledger::Ledger;
use integration_tests::sample::{CLEAN, MODEL, SCORE, Widths};
use integration_tests::system::job::ObservedJob;
use std::time::Instant;
use streams_api::{ParallelRegion, condition};
use streams_control_plane::wait::eventually;

const JOB: &str = "sensors";

/// What is asked for, one after the other, in one region and in two at once; and how many PEs stay at least. Operators
/// of a region may ask how many channels it has, so all of them restart.
const STEPS: [(&[(&str, u32)], usize); 7] = [
    (&[(CLEAN, 6)], 7),
    (&[(CLEAN, 3)], 7),
    (&[(SCORE, 6)], 1),
    (&[(SCORE, 3)], 1),
    (&[(MODEL, 6)], 5),
    (&[(MODEL, 3), (CLEAN, 6)], 1),
    (&[(SCORE, 2), (CLEAN, 3)], 0),
];

/// A job of the sample whose tuples are followed through resizes.
struct Resized<'a> {
    it: &'a Fixture,
    job: ObservedJob,
    widths: Widths,
    statuses: Statuses,
    ledger: Ledger,
}

impl<'a> Resized<'a> {
    async fn begin(it: &'a Fixture) -> Result<Self> {
        let job = ObservedJob::create(&it.client, &it.sample(JOB)).await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        let connected = it.pes.until_connected(&job, WITHIN).await?;
        let statuses = it.pes.until_moving(JOB, &connected, WITHIN).await?;
        Ok(Self { it, job, widths: Widths::default(), statuses, ledger: Ledger::default() })
    }

    /// Asks for widths and waits until they are rolled out and tuples are everywhere.
    async fn resize(&mut self, wanted: &[(&str, u32)], stay: usize) -> Result<()> {
        let Self { it, job, widths, statuses: before, ledger } = self;
        ledger.running(before.values().cloned());
        let (since, earlier) = (Instant::now(), ledger.tuples());
        for (region, width) in wanted {
            widths.set(region, *width);
            job.set_width(region, *width).await?;
        }
        eventually("the widths are applied", WITHIN, || async {
            for region in job.list::<ParallelRegion>().await? {
                let wanted = wanted.iter().find(|(name, _)| *name == region.spec.name);
                let applied = region.status.and_then(|status| status.width);
                ensure!(wanted.is_none_or(|(_, width)| applied == Some(*width)), "{}: {applied:?}", region.spec.name);
            }
            Ok(())
        })
        .await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        let connected = it.pes.until_connected(job, WITHIN).await?;
        let connected_after = since.elapsed();
        let expected = widths.processing_elements();
        ensure!(connected.len() == expected, "{} PEs run, {expected} should", connected.len());
        let after = it.pes.until_moving(JOB, &connected, WITHIN).await?;
        let moving_after = since.elapsed();
        let stayed = Stayed::between(before, &after);
        ensure!(stayed.broken.is_empty(), "{wanted:?}: {:#?}", stayed.broken);
        let kept = after.iter().filter(|(pe, now)| before.get(pe).is_some_and(|was| was.launch == now.launch)).count();
        ensure!(kept >= stay, "{wanted:?}: {kept} PEs stayed, {stay} should");
        ledger.running(after.values().cloned());
        let ended = it.pes.ended(JOB);
        ensure!(!ended.is_empty(), "{wanted:?}: no PE has said at its end what it had counted");
        ledger.ended(ended);
        let tuples = ledger.tuples() - earlier;
        ensure!(tuples.arrived > 0, "{wanted:?}: nothing has arrived since it was asked for");
        println!(
            "{wanted:?}: {} PEs, {kept} of them stayed with {} connections, all connected after {connected_after:.1?}, \
             tuples in each after {moving_after:.1?}; {tuples}",
            after.len(),
            stayed.connections,
        );
        *before = after;
        Ok(())
    }
}

#[tokio::test]
async fn every_channel_gets_tuples_after_each_resize_and_pes_that_stay_keep_their_connections() -> Result<()> {
    with_running_pes("running-resizes", async |it| {
        let mut resized = Resized::begin(it).await?;
        for (wanted, stay) in STEPS {
            resized.resize(wanted, stay).await?;
        }
        resized.job.settled(resized.widths, WITHIN).await?;
        Ok(())
    })
    .await
}
