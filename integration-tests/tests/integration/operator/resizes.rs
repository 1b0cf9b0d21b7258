//! A resize touches what changed and nothing else: pods compared by uid and launch count (rule job-15).

use super::fixture::{Changed, JOB, Moment, WITHIN, lingers, resize_of_clean, with_system};
use super::fusion_down::{kill_fusion, start_fusion};
use super::quota::{Limited, Quota};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, MODEL, SCORE, Widths};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use streams_api::{ChannelCount, InitialWidth, PePhase, ProcessingElement, names};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;

#[tokio::test]
async fn a_load_balancer_takes_a_region_from_2_to_10_to_4() -> Result<()> {
    with_system("resizes", async |it| {
        let job = it.submitted().await?;
        let mut before = Moment::of(&job).await?;
        for (generation, from, to) in [(1, 2, 10), (2, 10, 4)] {
            let answer = it.resize(&job, &[(CLEAN, to)], WaitFor::RolledOut).await?;
            // Nothing is waited for: the answer says that it is rolled out. Only pods of PEs that were removed may
            // still be there.
            let widths = Widths { clean: to, ..Widths::default() };
            let after = Moment::of(&job).await?;
            let (problems, _) = after.problems_since(&before, &job.get().await?, &widths);
            ensure!(problems.is_empty(), "{problems:#?}");
            let changed = after.since(&before)?;
            ensure!(changed == resize_of_clean(from, to), "{from} -> {to}: {changed:#?}");

            let counts = [&changed.kept, &changed.restarted, &changed.added, &changed.removed].map(Vec::len);
            let said = answer.changes.context("the answer does not say what changed")?;
            let said = [said.kept, said.restarted, said.added, said.removed].map(|count| count as usize);
            ensure!(said == counts, "the answer says {said:?}, the pods {counts:?}");
            ensure!(answer.generation == Some(generation), "{:?}", answer.generation);
            let region = answer.regions.first().context("no region in the answer")?;
            ensure!(region.applied_width == Some(to) && region.rolled_out, "{region:?}");

            job.settled(widths, WITHIN).await?;
            before = Moment::of(&job).await?;
            ensure!(before.pods == after.pods, "pods were touched after the answer");
        }
        Ok(())
    })
    .await
}

/// Operators of `Clean` do not ask how many channels there are: the pods of its channels stay (rule aadl-22).
#[tokio::test]
async fn channels_of_a_region_whose_count_is_ignored_stay_the_same_pods() -> Result<()> {
    with_system("resizes", async |it| {
        let mut job = it.sample(JOB);
        let ignored = InitialWidth {
            name: Some(CLEAN.to_owned()),
            channel_count: Some(ChannelCount::Ignored),
            ..InitialWidth::default()
        };
        job.spec.parallel_regions = vec![ignored];
        let job = ObservedJob::create(&it.client, &job).await?;
        job.settled(Widths::default(), WITHIN).await?;
        let mut before = Moment::of(&job).await?;
        for (from, to) in [(2, 5), (5, 3)] {
            let answer = it.resize(&job, &[(CLEAN, to)], WaitFor::RolledOut).await?;
            let widths = Widths { clean: to, ..Widths::default() };
            job.settled(widths, WITHIN).await?;
            let after = Moment::of(&job).await?;
            let changed = after.since(&before)?;
            let mut expected = resize_of_clean(from, to);
            let (channels, around) = expected.restarted.drain(..).partition(|name| name.starts_with("Clean["));
            expected.restarted = around;
            expected.kept.extend::<Vec<_>>(channels);
            expected.kept.sort();
            ensure!(changed == expected, "{from} -> {to}: {changed:#?}");
            let said = answer.changes.context("the answer does not say what changed")?;
            ensure!(said.kept as usize == expected.kept.len(), "{said:?}");
            before = after;
        }
        // Whoever gets another pod gets its newest text with it, but not if nobody can write that (rule job-51).
        let older = job.pe("Clean[0]").await?.spec.content_id;
        let newest = restarted(&job, "Clean[0]").await?;
        ensure!(newest != older, "it still refers to its older text");
        let older = job.pe("Clean[1]").await?.spec.content_id;
        kill_fusion(it).await?;
        let still = restarted(&job, "Clean[1]").await?;
        ensure!(still == older, "who has written {still}?");
        start_fusion(it).await?;
        let changed = Moment::of(&job).await?.since(&before)?;
        ensure!(changed.restarted == ["Clean[0]", "Clean[1]"], "{changed:#?}");
        Ok(())
    })
    .await
}

/// A user restarts the PE with this operator. Returns the content id that its next pod, which runs, was made from.
async fn restarted(job: &ObservedJob, operator: &str) -> Result<String> {
    let before = job.pe(operator).await?;
    let request = json!({"metadata": {"annotations": {names::ANNOTATION_RESTART_REQUESTED: "now"}}});
    job.api::<ProcessingElement>().patch(&before.name_any(), &PatchParams::default(), &Patch::Merge(request)).await?;
    let launched = before.status.unwrap_or_default().launch_count;
    eventually(&format!("{operator} runs again"), WITHIN, || async {
        let pe = job.pe(operator).await?;
        let status = pe.status.unwrap_or_default();
        ensure!(status.launch_count > launched && status.phase == Some(PePhase::Running), "{status:?}");
        let content_id = status.content_id.context("it does not say what it runs")?;
        ensure!(content_id == pe.spec.content_id, "it was made from {content_id}");
        Ok(content_id)
    })
    .await
}

/// Neither the resize that removes its PE waits for it, nor the one that makes room for new PEs again: they are other
/// PEs, each with a first launch.
#[tokio::test]
async fn a_pod_that_takes_long_to_terminate_holds_up_nothing() -> Result<()> {
    with_system("resizes", async |it| {
        let job = it.submitted().await?;
        let widths = |clean| Widths { clean, ..Widths::default() };
        it.resize(&job, &[(CLEAN, 4)], WaitFor::RolledOut).await?;
        job.settled(widths(4), WITHIN).await?;
        let wide = Moment::of(&job).await?;
        let removed = job.pe("Clean[3]").await?.spec.id;
        let old = wide.pods.0.get(&removed).context("Clean[3] has no pod")?;
        lingers(&job, &old.name, true).await?;
        let still_there = |pods: &[Pod]| pods.iter().any(|pod| pod.uid().as_ref() == Some(&old.uid));

        it.resize(&job, &[(CLEAN, 2)], WaitFor::RolledOut).await?;
        let narrow = Moment::of(&job).await?;
        let (problems, outliving) = narrow.problems_since(&wide, &job.get().await?, &widths(2));
        ensure!(problems.is_empty() && still_there(&outliving), "{problems:#?}");
        let changed = narrow.since(&wide)?;
        ensure!(changed == resize_of_clean(4, 2), "{changed:#?}");

        it.resize(&job, &[(CLEAN, 5)], WaitFor::RolledOut).await?;
        let wide_again = Moment::of(&job).await?;
        let (problems, outliving) = wide_again.problems_since(&narrow, &job.get().await?, &widths(5));
        ensure!(problems.is_empty() && still_there(&outliving), "{problems:#?}");
        let changed = wide_again.since(&narrow)?;
        ensure!(changed == resize_of_clean(2, 5), "{changed:#?}");
        ensure!(!wide_again.pods.0.contains_key(&removed), "PE {removed} came back while its old pod was there");

        lingers(&job, &old.name, false).await?;
        job.settled(widths(5), WITHIN).await?;
        ensure!(Moment::of(&job).await?.pods == wide_again.pods, "pods were touched");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn kubectl_scale_does_the_same() -> Result<()> {
    with_system("resizes", async |it| {
        let job = it.submitted().await?;
        let mut before = Moment::of(&job).await?;
        let region = job.region(CLEAN).await?.metadata.name.context("no name")?;
        for (from, to) in [(2, 4), (4, 3)] {
            it.kubectl(&["scale", &format!("streamspr/{region}"), &format!("--replicas={to}")]).await?;
            job.settled(Widths { clean: to, ..Widths::default() }, WITHIN).await?;
            let after = Moment::of(&job).await?;
            let changed = after.since(&before)?;
            ensure!(changed == resize_of_clean(from, to), "{from} -> {to}: {changed:#?}");
            before = after;
        }
        Ok(())
    })
    .await
}

/// One request, one generation, whose changes the answer counts and which replaces no pod twice.
#[tokio::test]
async fn several_regions_at_once_and_regions_inside_regions() -> Result<()> {
    with_system("resizes", async |it| {
        let job = it.submitted().await?;
        let start = Moment::of(&job).await?;
        let widths = Widths { clean: 3, score: 3, model: 1 };
        let wanted = [(CLEAN, widths.clean), (SCORE, widths.score), (MODEL, widths.model)];
        let answer = it.resize(&job, &wanted, WaitFor::RolledOut).await?;
        ensure!(answer.regions.iter().map(|region| region.applied_width).eq(wanted.map(|(_, width)| Some(width))));
        job.settled(widths, WITHIN).await?;
        ensure!(answer.generation == Some(1) && job.status().await?.generation == Some(1), "{answer:?}");
        let changed = Moment::of(&job).await?.since(&start)?;
        let counts = [&changed.kept, &changed.restarted, &changed.added, &changed.removed].map(Vec::len);
        let said = answer.changes.context("the answer does not say what changed")?;
        let said = [said.kept, said.restarted, said.added, said.removed].map(|count| count as usize);
        ensure!(said == counts, "the answer says {said:?}, the pods {counts:?}");

        // Two requests one after the other, nobody waits for the first: the second is the end, whatever became of the
        // first.
        it.resize(&job, &[(CLEAN, 5), (SCORE, 1), (MODEL, 2)], WaitFor::Accepted).await?;
        it.resize(&job, &wanted, WaitFor::RolledOut).await?;
        job.settled(widths, WITHIN).await?;
        for (region, width) in wanted {
            ensure!(job.region(region).await?.spec.width == width, "the object of {region} has another width");
        }

        // Nothing is left of the way there: back again, and the source next to nothing that changed keeps its pod.
        let before = Moment::of(&job).await?;
        it.resize(&job, &[(MODEL, 2)], WaitFor::RolledOut).await?;
        job.settled(Widths { model: 2, ..widths }, WITHIN).await?;
        let changed = Moment::of(&job).await?.since(&before)?;
        let kept = ["Alarms", "Clean[0]", "Clean[1]", "Clean[2]", "Readings"];
        ensure!(changed.kept == kept, "{changed:#?}");
        ensure!(changed.added.len() == 3 && changed.removed.is_empty(), "{changed:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_width_that_is_in_force_changes_nothing() -> Result<()> {
    with_system("resizes", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let answer = it.resize(&job, &[(CLEAN, 2)], WaitFor::RolledOut).await?;
        ensure!(answer.generation == Some(0) && answer.changes.is_none(), "{answer:?}");
        ensure!(Moment::of(&job).await?.since(&before)? == Changed { kept: kept_all(), ..Changed::default() });
        Ok(())
    })
    .await
}

fn kept_all() -> Vec<String> {
    Widths::default().operators().into_iter().collect()
}

/// The first resize is committed, and its new pods cannot be created. The second is asked for, compiled and committed
/// all the same.
#[tokio::test]
async fn a_newer_resize_does_not_wait_for_the_pods_of_an_older_one() -> Result<()> {
    with_system("resizes", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let quota = Quota::after(it, Limited::Pods, 0).await?;
        let answer = it.resize(&job, &[(CLEAN, 10)], WaitFor::Committed).await?;
        ensure!(answer.generation == Some(1), "{answer:?}");
        let answer = it.resize(&job, &[(CLEAN, 3)], WaitFor::Committed).await?;
        ensure!(answer.generation == Some(2), "{answer:?}");
        quota.lift().await?;
        job.settled(Widths { clean: 3, ..Widths::default() }, WITHIN).await?;
        let after = Moment::of(&job).await?;
        // How often a PE was replaced on the way depends on how far the first had come.
        let difference = after.pods.since(&before.pods);
        ensure!(difference.kept.len() == resize_of_clean(2, 3).kept.len(), "{difference:?}");
        Ok(())
    })
    .await
}
