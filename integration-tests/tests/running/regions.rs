//! A consistent region takes checkpoints while tuples flow, and after a failure no tuple is lost or counted twice.

use crate::fixture::{Fixture, WITHIN, with_running_pes};
use anyhow::{Context as _, Result, bail, ensure};
use integration_tests::sample;
use integration_tests::system::job::ObservedJob;
use streams_api::{ConsistentRegion, ConsistentRegionStatus, ProcessingElement, condition, names};
use streams_control_plane::wait::eventually;
use streams_pe_double::status::{SinkStatus, arrivals};
use streams_test_support::application::Sketch;

const JOB: &str = "steady";

/// A source, three channels and a sink, all in one consistent region.
async fn steady(it: &Fixture) -> Result<ObservedJob> {
    let sketch = Sketch::steady(3, "1", "30", "10");
    std::fs::write(it.system.bundles().join("steady.sab"), sample::bundle_of(&sketch.adl())?)?;
    let mut job = it.sample(JOB);
    job.spec.bundle.file = Some("steady.sab".to_owned());
    job.spec.processing_element = Some(sample::checkpoints());
    let job = ObservedJob::create(&it.client, &job).await?;
    job.until_condition(condition::READY, true, WITHIN).await?;
    it.pes.until_connected(&job, WITHIN).await?;
    Ok(job)
}

async fn region(job: &ObservedJob) -> Result<ConsistentRegionStatus> {
    let region: ConsistentRegion = job.api().get(&names::consistent_region(JOB, 0)).await?;
    region.status.context("nobody drives the region")
}

/// Waits until a checkpoint later than this one is complete and tuples are processed. Returns it.
async fn until_checkpoint(job: &ObservedJob, after: u64) -> Result<u64> {
    eventually("a checkpoint is complete", WITHIN, || async {
        let status = region(job).await?;
        let last = status.last_completed_checkpoint.unwrap_or_default();
        ensure!(last > after && status.state.as_deref() == Some("PROCESSING"), "{:?}, {last}", status.state);
        Ok(last)
    })
    .await
}

/// What has arrived at the sink, at a moment at which everything that was sent has, and more than this number. A reset
/// goes back behind it; what comes again takes its time.
async fn arrived(it: &Fixture, more_than: u64) -> Result<SinkStatus> {
    let sink = eventually("nothing is missing at the sink", WITHIN, || async {
        let mut sinks = arrivals(it.pes.statuses(JOB).await?.values());
        let Some(sink) = sinks.pop().filter(|_| sinks.is_empty()) else { bail!("{sinks:?}") };
        ensure!(sink.lost == 0 && sink.received == sink.highest + 1, "{sink:?}");
        ensure!(sink.highest > more_than, "not more than {more_than}: {sink:?}");
        Ok(sink)
    })
    .await?;
    ensure!(sink.doubled == 0, "{sink:?}");
    Ok(sink)
}

/// Ends the process of an operator's PE, as a crash does.
async fn kill(it: &Fixture, job: &ObservedJob, operator: &str) -> Result<()> {
    let pe: ProcessingElement = job.pe(operator).await?;
    let pod = pe.status.and_then(|status| status.pod_name).context("no pod")?;
    it.agent.process(&it.namespace, &pod).with_context(|| format!("{pod} does not run"))?.kill().await?;
    Ok(())
}

#[tokio::test]
async fn after_pes_and_the_frontend_were_killed_no_tuple_is_lost_or_counted_twice() -> Result<()> {
    with_running_pes("running-regions", async |it| {
        let job = steady(it).await?;
        let mut last = until_checkpoint(&job, 1).await?;
        let mut before = arrived(it, 0).await?;
        // who is killed, and whether the frontend is, too
        let rounds: [(&[&str], bool); 4] =
            [(&["Work[1]"], false), (&["Source"], false), (&["Sink", "Work[0]"], false), (&["Source", "Sink"], true)];
        for (killed, is_frontend_killed) in rounds {
            if is_frontend_killed {
                it.system.frontend()?.process().kill().await?;
            }
            for operator in killed {
                kill(it, &job, operator).await?;
            }
            if is_frontend_killed {
                it.system.frontend()?.start_again().await?;
            }
            last = until_checkpoint(&job, last + 1).await?;
            let after = arrived(it, before.highest).await?;
            let resets: u64 = it
                .pes
                .statuses(JOB)
                .await?
                .values()
                .flat_map(|pe| pe.regions.values())
                .map(|region| region.resets)
                .sum();
            ensure!(resets > 0, "{killed:?}: nobody was reset");
            println!("{killed:?} killed: checkpoint {last}, {} tuples, none lost or doubled", after.received);
            before = after;
        }
        Ok(())
    })
    .await
}
