//! A consistent region takes checkpoints while tuples flow, and after a failure no tuple is lost or counted twice.

use crate::fixture::{Fixture, WITHIN, with_running_pes, with_running_pes_of};
use anyhow::{Context as _, Result, bail, ensure};
use integration_tests::sample;
use integration_tests::system::SHORT_LEASE;
use integration_tests::system::job::ObservedJob;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use streams_api::{ConsistentRegion, ConsistentRegionStatus, ProcessingElement, condition, names};
use streams_control_plane::wait::eventually;
use streams_pe_double::status::{SinkStatus, arrivals};
use streams_test_support::application::Sketch;

const JOB: &str = "regional";
/// The source drains its region after so many tuples, and the sink asks for a reset.
const WISHES: &str = "<envVars><envVar name='PE_DOUBLE_DRAIN_EVERY' value='100'/>\
    <envVar name='PE_DOUBLE_RESET_EVERY' value='450'/></envVars>";
/// PEs are led to another replica as soon as the slices are written: the address of a Service stays.
const LED_AT_ONCE: &str = "<envVars><envVar name='PE_DOUBLE_REGION_ADDRESS_MS' value='0'/></envVars>";

/// A job whose operators are all in one consistent region: a source, three channels and a sink.
async fn regional(it: &Fixture, sketch: &Sketch) -> Result<ObservedJob> {
    std::fs::write(it.system.bundles().join("regional.sab"), sample::bundle_of(&sketch.adl())?)?;
    let mut job = it.sample(JOB);
    job.spec.bundle.file = Some("regional.sab".to_owned());
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
    it.pes.could_read_all(JOB).await?;
    Ok(sink)
}

/// How often the sink has gone back since its process began, and how often it has asked for that.
async fn resets(it: &Fixture) -> Result<[u64; 2]> {
    let pes = it.pes.statuses(JOB).await?;
    let sink = pes.values().find(|pe| pe.operators.iter().any(|operator| operator.name == "Sink"));
    let region = sink.and_then(|pe| pe.regions.get(&0)).context("there is no sink in a region")?;
    Ok([region.resets, region.resets_wanted])
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
        let job = regional(it, &Sketch::steady(3, "1", "30", "10")).await?;
        let mut last = until_checkpoint(&job, 1).await?;
        let mut before = arrived(it, 0).await?;
        // who is killed, and whether the frontend is, too
        let rounds: [(&[&str], bool); 4] =
            [(&["Work[1]"], false), (&["Source"], false), (&["Sink", "Work[0]"], false), (&["Source", "Sink"], true)];
        for (killed, is_frontend_killed) in rounds {
            let [resets_before, _] = resets(it).await?;
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
            let [resets, _] = resets(it).await?;
            let known = if killed.contains(&"Sink") { 0 } else { resets_before };
            ensure!(resets > known, "{killed:?}: nobody was reset");
            println!("{killed:?} killed: checkpoint {last}, {} tuples, none lost or doubled", after.received);
            before = after;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn operators_say_when_their_region_is_drained_and_when_it_is_reset() -> Result<()> {
    with_running_pes("running-driven-regions", async |it| {
        let names = ["Source", "Work", "Sink"].into_iter();
        let sketch = names.fold(Sketch::driven(3, "30", "10"), |sketch, name| sketch.of(name).with(WISHES));
        let job = regional(it, &sketch).await?;
        let mut last = until_checkpoint(&job, 2).await?;
        let mut before = arrived(it, 0).await?;
        for killed in [None, Some("Source"), Some("Work[2]")] {
            if let Some(operator) = killed {
                kill(it, &job, operator).await?;
            }
            last = until_checkpoint(&job, last + 6).await?;
            // The reset that a kill leads to is over.
            let [resets_before, wanted_before] = resets(it).await?;
            eventually("a reset that the sink has asked for", WITHIN, || async {
                let [resets, wanted] = resets(it).await?;
                ensure!(wanted > wanted_before && resets > resets_before, "{wanted} wanted, {resets} carried out");
                Ok(())
            })
            .await?;
            let after = arrived(it, before.highest).await?;
            println!("{killed:?} killed: checkpoint {last}, {} tuples, none lost or doubled", after.received);
            before = after;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_leader_that_is_asked_to_end_hands_over_what_has_lost_nothing_as_it_is() -> Result<()> {
    with_running_pes_of("running-handed-over", 2, &SHORT_LEASE, async |it| {
        let operators = ["Source", "Work", "Sink"].into_iter();
        let sketch = operators.fold(Sketch::driven(3, "30", "10"), |sketch, name| sketch.of(name).with(LED_AT_ONCE));
        let job = regional(it, &sketch).await?;
        eventually("tuples are processed", WITHIN, || async {
            let state = region(&job).await?.state;
            ensure!(state.as_deref() == Some("PROCESSING"), "{state:?}");
            Ok(())
        })
        .await?;
        let before = arrived(it, 0).await?;
        let [resets_before, _] = resets(it).await?;
        let [one, other] = it.system.frontends() else { bail!("there must be two frontends") };
        let (leader, follower) =
            if one.metric("streams_frontend_leader").await? > 0.5 { (one, other) } else { (other, one) };
        let exit = leader.process().stop(WITHIN).await?;
        ensure!(exit.is_success(), "it ended with {exit}");
        // Who drives the region shows what goes on there.
        let (namespace, name) = (&it.namespace, names::consistent_region(JOB, 0));
        let figure = format!(
            "streams_frontend_consistent_region_state{{namespace=\"{namespace}\",consistent_region=\"{name}\"}}"
        );
        eventually("the other one drives the region", WITHIN, || async {
            let state = follower.metric(&figure).await?;
            ensure!((state - 1.0).abs() < 0.5, "it is in state {state}");
            Ok(())
        })
        .await?;
        let [resets_now, _] = resets(it).await?;
        ensure!(resets_now == resets_before, "it was reset");
        // It hears, and is heard.
        let asked = json!({"metadata": {"annotations": {names::ANNOTATION_RESET_REQUESTED: "now"}}});
        job.api::<ConsistentRegion>().patch(&name, &PatchParams::default(), &Patch::Merge(&asked)).await?;
        eventually("it is reset because somebody has asked for it", WITHIN, || async {
            let [resets, _] = resets(it).await?;
            ensure!(resets > resets_before, "{resets}");
            Ok(())
        })
        .await?;
        let after = arrived(it, before.highest).await?;
        println!("handed over: {} tuples, none lost or doubled", after.received);
        Ok(())
    })
    .await
}
