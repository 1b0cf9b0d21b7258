//! A job moves tuples, and goes on while it is resized.

use crate::fixture::{WITHIN, made, received, with_running_pes};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::CLEAN;
use integration_tests::system::job::ObservedJob;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use streams_api::{ParallelRegion, condition};
use streams_control_plane::wait::eventually;
use streams_pe_double::status::Status;

const JOB: &str = "sensors";

/// Connections that broke between PEs which are in both, in the same launch.
fn broken(before: &BTreeMap<u64, Status>, after: &BTreeMap<u64, Status>) -> Vec<String> {
    let same = |pe: &u64| before.get(pe).zip(after.get(pe)).is_some_and(|(a, b)| a.launch == b.launch);
    let stayed: BTreeSet<u64> = before.keys().copied().filter(same).collect();
    let pe_of = |label: &str| label.split('.').next().and_then(|pe| pe.parse::<u64>().ok());
    let mut broken = Vec::new();
    for pe in &stayed {
        for now in &after[pe].outputs {
            let Some(to) = now.to.as_deref().filter(|to| pe_of(to).is_some_and(|to| stayed.contains(&to))) else {
                continue;
            };
            let was = before[pe].outputs.iter().find(|output| output.port == now.port && output.to == now.to);
            if was.is_some_and(|was| was.closed != now.closed || was.opened != now.opened) {
                broken.push(format!("from PE {pe} to {to}: {now:?}"));
            }
        }
    }
    broken
}

#[tokio::test]
async fn every_channel_gets_tuples_after_each_resize_and_pes_that_stay_keep_their_connections() -> Result<()> {
    with_running_pes("running-resizes", async |it| {
        let job = ObservedJob::create(&it.client, &it.sample(JOB)).await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        let mut before = it.until_connected(&job).await?;
        for width in [6, 3] {
            let (since, arrived) = (Instant::now(), received(&before));
            job.set_width(CLEAN, width).await?;
            eventually("the width is applied", WITHIN, || async {
                let region: ParallelRegion = job.region(CLEAN).await?;
                let applied = region.status.and_then(|status| status.width);
                ensure!(applied == Some(width), "{applied:?}");
                Ok(())
            })
            .await?;
            job.until_condition(condition::READY, true, WITHIN).await?;
            let connected = it.until_connected(&job).await?;
            let rolled_out = since.elapsed();
            eventually("every PE gets or makes tuples", WITHIN, || async {
                let after = it.statuses(JOB).await?;
                ensure!(after.len() == connected.len(), "{} of {} PEs", after.len(), connected.len());
                for (pe, status) in &after {
                    let earlier = connected.get(pe).context("a new PE")?;
                    let moved = |status: &Status| -> u64 {
                        status.operators.iter().map(|operator| operator.made + operator.taken).sum()
                    };
                    ensure!(moved(status) > moved(earlier), "PE {pe} stands still: {:?}", status.operators);
                }
                Ok(())
            })
            .await?;
            let flowing = since.elapsed();
            let after = it.statuses(JOB).await?;
            let broken = broken(&before, &after);
            ensure!(broken.is_empty(), "to width {width}: {broken:#?}");
            println!(
                "width {width}: connected after {rolled_out:.1?}, tuples in every PE after {flowing:.1?}; {} made, {} \
                 arrived, {} of them since the resize began; {} PEs",
                made(&after),
                received(&after),
                received(&after).saturating_sub(arrived),
                after.len()
            );
            before = after;
        }
        Ok(())
    })
    .await
}
