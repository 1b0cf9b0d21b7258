//! Requests to resize as objects: made with kubectl, each with an outcome of its own (rules elasticity-15 to
//! elasticity-18).

use super::fixture::{Fixture, JOB, Moment, WITHIN, resize_of_clean, until_taken, with, with_system};
use super::fusion_down::{IMPATIENT, kill_fusion, start_fusion};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{self, CLEAN, MODEL, SCORE, Widths};
use integration_tests::system::job::ObservedJob;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::num::NonZeroU32;
use streams_api::{
    FusionOptions, InitialWidth, Job, ParallelRegion, Resize, ResizePhase, ResizeStatus, condition, names,
};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::ResizeRequest;
use streams_proto::elasticity::v1::resize_request::WaitFor;

/// Makes a request as `kubectl create` does, without owner, label or status.
async fn create(job: &ObservedJob, name: &str, spec: serde_json::Value) -> Result<Resize> {
    let object = json!({
        "apiVersion": "streams.ibm.com/v1", "kind": "Resize", "metadata": {"name": name}, "spec": spec,
    });
    let request: Resize = serde_json::from_value(object)?;
    Ok(job.api::<Resize>().create(&PostParams::default(), &request).await?)
}

fn spec(job: &ObservedJob, widths: &[(&str, u32)]) -> serde_json::Value {
    let regions: Vec<_> = widths.iter().map(|(name, width)| json!({"name": name, "width": width})).collect();
    json!({"jobName": job.name(), "regions": regions})
}

/// Waits until the request has this phase, and says what it says of itself then.
async fn comes_to(job: &ObservedJob, name: &str, phase: ResizePhase) -> Result<ResizeStatus> {
    eventually(&format!("request {name} is {phase:?}"), WITHIN, || async {
        let request = job.api::<Resize>().get(name).await?;
        ensure!(request.phase() == phase, "{:?}", request.status);
        request.status.context("no status")
    })
    .await
}

async fn bounded(it: &Fixture, region: &str, most: u32) -> Result<ObservedJob> {
    let mut job = it.sample(JOB);
    let bounds = InitialWidth { name: Some(region.to_owned()), max_width: Some(most), ..Default::default() };
    job.spec.parallel_regions = vec![bounds];
    let job = ObservedJob::create(&it.client, &job).await?;
    job.settled(Widths::default(), WITHIN).await?;
    Ok(job)
}

#[tokio::test]
async fn a_width_that_has_just_changed_stays_for_a_while_and_others_do_not() -> Result<()> {
    const COOL_DOWN: u32 = 8;
    with_system("cool-down", async |it| {
        let mut sample = it.sample(JOB);
        let cool_down =
            InitialWidth { name: Some(CLEAN.to_owned()), cool_down_seconds: Some(COOL_DOWN), ..Default::default() };
        sample.spec.parallel_regions = vec![cool_down];
        let job = ObservedJob::create(&it.client, &sample).await?;
        job.settled(Widths::default(), WITHIN).await?;
        let changed_at = || async {
            let status = job.region(CLEAN).await?.status.context("no status")?;
            let last = status.last_resize.context("its width has not changed")?;
            anyhow::Ok((last.to, last.committed_at.context("no time")?.0))
        };
        create(&job, "first", spec(&job, &[(CLEAN, 3)])).await?;
        comes_to(&job, "first", ResizePhase::Written).await?;
        create(&job, "second", spec(&job, &[(CLEAN, 4)])).await?;
        create(&job, "other", spec(&job, &[(SCORE, 3)])).await?;
        let (_, first) = eventually("the region says when its width changed", WITHIN, changed_at).await?;
        comes_to(&job, "other", ResizePhase::Written).await?;
        eventually("the region says what it waits for, or does not any more", WITHIN, || async {
            let request = job.api::<Resize>().get("second").await?.status.context("no status")?;
            let waits = request.reason.as_deref() == Some("CoolingDown");
            ensure!(waits || request.phase >= Some(ResizePhase::Planned), "{request:?}");
            Ok(())
        })
        .await?;
        comes_to(&job, "second", ResizePhase::RolledOut).await?;
        let (_, second) = eventually("the width changed again", WITHIN, || async {
            let changed = changed_at().await?;
            ensure!(changed.0 == 4, "{changed:?}");
            Ok(changed)
        })
        .await?;
        let stayed = second.duration_since(first).as_secs();
        ensure!(stayed >= i64::from(COOL_DOWN) - 1, "the width stayed for {stayed} s");
        let other = job.api::<Resize>().get("other").await?.status.context("no status")?;
        let second = job.api::<Resize>().get("second").await?.status.context("no status")?;
        // Only when the machine is so slow that the cool-down is over by then do both come to one generation.
        let after = other.written_at.as_ref().context("no time")?.0.duration_since(first).as_secs();
        let is_late = after >= i64::from(COOL_DOWN) - 1;
        let is_first = other.generation < second.generation;
        ensure!(is_first || (is_late && other.generation == second.generation), "{other:?} {second:?}");
        Ok(())
    })
    .await
}

/// However long it takes, the cool-down is not over when the request is looked at.
#[tokio::test]
async fn who_waits_for_a_cool_down_hears_until_when_and_a_dry_run_foretells_it() -> Result<()> {
    with_system("cool-down", async |it| {
        let mut sample = it.sample(JOB);
        let cool_down = |seconds| InitialWidth {
            name: Some(CLEAN.to_owned()),
            cool_down_seconds: Some(seconds),
            ..Default::default()
        };
        sample.spec.parallel_regions = vec![cool_down(86_400)];
        let job = ObservedJob::create(&it.client, &sample).await?;
        job.settled(Widths::default(), WITHIN).await?;
        it.resize(&job, &[(CLEAN, 3)], WaitFor::RolledOut).await?;
        let dry =
            |wanted: &[(&str, u32)]| ResizeRequest { dry_run: true, ..job.resize_request(wanted, WaitFor::Committed) };
        for (wanted, waits) in [([(CLEAN, 4)], true), ([(SCORE, 3)], false)] {
            let answer = until_taken(it.frontend()?.balancer().await?, dry(&wanted), WITHIN).await?;
            let warnings = answer.dry_run.context("no dry run")?.warnings;
            ensure!(warnings.iter().any(|warning| warning.contains("coolDownSeconds")) == waits, "{warnings:?}");
        }
        create(&job, "waits", spec(&job, &[(CLEAN, 4)])).await?;
        eventually("the request says what it waits for", WITHIN, || async {
            let request = job.api::<Resize>().get("waits").await?.status.context("no status")?;
            let message = request.message.clone().unwrap_or_default();
            ensure!(request.reason.as_deref() == Some("CoolingDown") && message.contains("stays until"), "{request:?}");
            Ok(())
        })
        .await?;
        it.resize(&job, &[(SCORE, 3)], WaitFor::RolledOut).await?;
        // Without the cool-down it goes on.
        let patch = Patch::Merge(json!({"spec": {"parallelRegions": [cool_down(1)]}}));
        job.api::<Job>().patch(job.name(), &PatchParams::default(), &patch).await?;
        comes_to(&job, "waits", ResizePhase::RolledOut).await?;
        job.settled(Widths { clean: 4, score: 3, ..Widths::default() }, WITHIN).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_request_made_by_hand_is_rolled_out_and_says_what_it_did() -> Result<()> {
    with_system("requests", async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        create(&job, "wider", spec(&job, &[(CLEAN, 3)])).await?;
        let status = comes_to(&job, "wider", ResizePhase::RolledOut).await?;
        let changes = status.changes.context("no changes")?;
        ensure!(status.generation == Some(1) && changes.added == 1 && changes.removed == 0, "{status:?}");
        ensure!(job.region(CLEAN).await?.spec.width == 3, "the spec has another width");
        let changed = Moment::of(&job).await?.since(&before)?;
        ensure!(changed == resize_of_clean(2, 3), "{changed:#?}");
        let request = job.api::<Resize>().get("wider").await?;
        let owner = request.metadata.owner_references.unwrap_or_default();
        ensure!(owner.iter().any(|owner| owner.kind == "Job" && owner.name == job.name()), "{owner:?}");
        // It is what it is.
        let other = json!({"spec": {"regions": [{"name": CLEAN, "width": 4}]}});
        let refused = job.api::<Resize>().patch("wider", &PatchParams::default(), &Patch::Merge(other)).await;
        let said = refused.err().context("its spec was changed")?.to_string();
        ensure!(said.contains("a request cannot be changed"), "{said}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_is_out_of_bounds_is_refused_as_a_whole_and_another_request_goes_on() -> Result<()> {
    with_system("requests", async |it| {
        let job = bounded(it, CLEAN, 5).await?;
        create(&job, "wide", spec(&job, &[(CLEAN, 9), (SCORE, 4)])).await?;
        let status = comes_to(&job, "wide", ResizePhase::Refused).await?;
        ensure!(status.reason.as_deref() == Some("OutOfBounds"), "{status:?}");
        create(&job, "other", spec(&job, &[(SCORE, 3)])).await?;
        comes_to(&job, "other", ResizePhase::RolledOut).await?;
        let widths = Widths::applied(&job.status().await?.applied_widths);
        ensure!(widths == Widths { score: 3, ..Widths::default() }, "{widths:?}");
        let specs = (job.region(CLEAN).await?.spec.width, job.region(SCORE).await?.spec.width);
        ensure!(specs == (2, 3), "specs have {specs:?}");
        Ok(())
    })
    .await
}

/// An edit that the compiler refuses stays in its spec; requests for other regions go on, before and after a restart.
#[tokio::test]
async fn a_region_at_ten_thousand_does_not_make_later_resizes_of_others_fail() -> Result<()> {
    with_system("requests", async |it| {
        let mut job = it.sample(JOB);
        job.spec.fusion = Some(FusionOptions { manual: NonZeroU32::new(3), ..FusionOptions::default() });
        job.spec.parallel_regions = vec![sample::initial_width(SCORE, 100)];
        let job = ObservedJob::create(&it.client, &job).await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        job.set_width(MODEL, 10_000).await?;
        job.until_condition(condition::RESIZE_REJECTED, true, WITHIN).await?;
        create(&job, "other", spec(&job, &[(CLEAN, 3)])).await?;
        comes_to(&job, "other", ResizePhase::RolledOut).await?;
        it.frontend()?.process().kill().await?;
        it.frontend()?.start_again().await?;
        create(&job, "large", spec(&job, &[(CLEAN, 4), (MODEL, 9_999)])).await?;
        let status = comes_to(&job, "large", ResizePhase::Refused).await?;
        ensure!(status.message.as_ref().is_some_and(|said| said.contains("operators")), "{status:?}");
        create(&job, "another", spec(&job, &[(CLEAN, 2)])).await?;
        comes_to(&job, "another", ResizePhase::RolledOut).await?;
        ensure!(job.region(MODEL).await?.spec.width == 10_000, "a spec was written back");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn preconditions_edits_and_newer_requests() -> Result<()> {
    with("requests", 1, &IMPATIENT, async |it| {
        let job = it.submitted().await?;
        let mut wrong = spec(&job, &[(CLEAN, 3), (SCORE, 3)]);
        wrong["regions"][1]["expectedWidth"] = json!(7);
        create(&job, "wrong", wrong).await?;
        let status = comes_to(&job, "wrong", ResizePhase::Refused).await?;
        let words = status.message.unwrap_or_default();
        ensure!(status.reason.as_deref() == Some("WidthMismatch") && words.contains("is 2, not 7"), "{words}");
        let mut early = spec(&job, &[(CLEAN, 3)]);
        early["expectedGeneration"] = json!(4);
        create(&job, "early", early).await?;
        let status = comes_to(&job, "early", ResizePhase::Refused).await?;
        ensure!(status.reason.as_deref() == Some("GenerationMismatch"), "{status:?}");
        // The fusion service is away: requests are admitted, and nothing comes of them.
        kill_fusion(it).await?;
        create(&job, "first", spec(&job, &[(CLEAN, 3)])).await?;
        comes_to_number(&job, "first").await?;
        create(&job, "second", spec(&job, &[(SCORE, 3)])).await?;
        comes_to_number(&job, "second").await?;
        create(&job, "third", spec(&job, &[(MODEL, 3)])).await?;
        comes_to_number(&job, "third").await?;
        create(&job, "fourth", spec(&job, &[(MODEL, 4)])).await?;
        comes_to_number(&job, "fourth").await?;
        let clean = job.region(CLEAN).await?.name_any();
        let (by_somebody, wider) = (PatchParams::apply("somebody"), Patch::Merge(json!({"spec": {"width": 4}})));
        job.api::<ParallelRegion>().patch(&clean, &by_somebody, &wider).await?;
        let status = comes_to(&job, "first", ResizePhase::Superseded).await?;
        ensure!(status.reason.as_deref() == Some("RegionEdited"), "{status:?}");
        let by = status.superseded_by.unwrap_or_default();
        ensure!((by.region.as_str(), by.width, by.manager.as_deref()) == (CLEAN, Some(4), Some("somebody")), "{by:?}");
        let withdraw = json!({"metadata": {"annotations": {names::ANNOTATION_CANCEL_REQUESTED: "yes"}}});
        job.api::<Resize>().patch("second", &PatchParams::default(), &Patch::Merge(withdraw)).await?;
        comes_to(&job, "second", ResizePhase::Cancelled).await?;
        start_fusion(it).await?;
        let fourth = comes_to(&job, "fourth", ResizePhase::RolledOut).await?;
        let third = comes_to(&job, "third", ResizePhase::Superseded).await?;
        ensure!(third.reason.as_deref() == Some("NewerRequest"), "{third:?}");
        ensure!(third.superseded_by.unwrap_or_default().request.as_deref() == Some("fourth"), "who superseded it");
        ensure!(fourth.number == Some(4), "{fourth:?}");
        job.settled(Widths { clean: 4, score: 2, model: 4 }, WITHIN).await.map(drop)
    })
    .await
}

async fn comes_to_number(job: &ObservedJob, name: &str) -> Result<()> {
    eventually(&format!("request {name} is admitted"), WITHIN, || async {
        let request = job.api::<Resize>().get(name).await?;
        ensure!(request.status.as_ref().is_some_and(|status| status.number.is_some()), "{:?}", request.status);
        Ok(())
    })
    .await
}

/// A request that was made before its job is carried out when the job runs; with the job it goes.
#[tokio::test]
async fn a_request_waits_for_its_job_and_goes_with_it() -> Result<()> {
    with_system("requests", async |it| {
        let job = ObservedJob::new(&it.client, &it.namespace, JOB);
        create(&job, "early", spec(&job, &[(CLEAN, 3)])).await?;
        ObservedJob::create(&it.client, &it.sample(JOB)).await?;
        comes_to(&job, "early", ResizePhase::RolledOut).await?;
        job.api::<Job>().delete(JOB, &DeleteParams::background()).await?;
        eventually("the request is gone", WITHIN, || async {
            let left = job.api::<Resize>().list(&ListParams::default()).await?.items;
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await
    })
    .await
}
