//! Widths that cannot be: refused with a reason where the user looks, what runs is not touched, and the next good width
//! goes through (rules elasticity-2 and elasticity-3).

use super::fixture::{Fixture, JOB, Moment, WITHIN, resize_of_clean, until_taken, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{self, CLEAN, MODEL, SCORE, Widths};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use streams_api::{FusionOptions, InitialWidth, JobStatus, ParallelRegion, Resize, ResizePhase, condition};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_proto::elasticity::v1::{GetRegionRequest, Region};
use tonic::Code;
use tonic_types::StatusExt as _;

/// A request for these widths is refused as a whole: the caller hears it, the request says it, and nothing else has
/// changed, neither specs nor pods.
async fn refused(it: &Fixture, job: &ObservedJob, wanted: &[(&str, u32)], words: &[&str]) -> Result<()> {
    let before = Moment::of(job).await?;
    let was = job.status().await?;
    let specs = || async {
        let regions = job.list::<ParallelRegion>().await?;
        anyhow::Ok(regions.into_iter().map(|region| (region.spec.name, region.spec.width)).collect::<BTreeMap<_, _>>())
    };
    let wide = specs().await?;
    let request = job.resize_request(wanted, WaitFor::Committed);
    let answer = until_taken(it.frontend()?.balancer().await?, request, WITHIN).await;
    let status = answer.err().context("it was committed")?;
    let details = status.get_error_details();
    let info = details.error_info().context("no details")?;
    ensure!(status.code() == Code::FailedPrecondition && info.reason == "REJECTED", "{status:?}");
    let named = |text: &str| words.iter().all(|word| text.contains(word));
    ensure!(named(status.message()), "{:?} does not name {words:?}", status.message());
    let request = job.api::<Resize>().get(info.metadata.get("request").context("which request?")?).await?;
    let said = request.status.clone().unwrap_or_default();
    ensure!(request.phase() == ResizePhase::Refused && said.reason == info.metadata.get("cause").cloned(), "{said:?}");
    ensure!(specs().await? == wide, "a refused request has written a spec");
    let is = job.status().await?;
    ensure!((is.generation, &is.applied_widths) == (was.generation, &was.applied_widths), "{is:?}");
    let conditions = |of: &JobStatus| {
        [condition::READY, condition::RESIZE_REJECTED].map(|name| condition::is_true(&of.conditions, name))
    };
    ensure!(conditions(&is) == conditions(&was), "{:?}", is.conditions);
    for (region, _) in wanted {
        let shown = shown(it, job, region).await?;
        ensure!(Some(&shown.desired_width) == wide.get(*region), "{shown:?}");
    }
    ensure!(Moment::of(job).await?.pods == before.pods, "pods were touched");
    Ok(())
}

async fn shown(it: &Fixture, job: &ObservedJob, region: &str) -> Result<Region> {
    let (namespace, name) = (it.namespace.clone(), job.name().to_owned());
    let get = GetRegionRequest { namespace, job: name, region: region.to_owned() };
    Ok(it.frontend()?.balancer().await?.get_region(get).await?.into_inner())
}

/// An edit of a spec to this width is refused: job and region say it, and no pod notices.
async fn refused_edit(it: &Fixture, job: &ObservedJob, region: &str, width: u32, words: &[&str]) -> Result<()> {
    let before = Moment::of(job).await?;
    let was = job.status().await?;
    job.set_width(region, width).await?;
    let named = |text: &str| words.iter().all(|word| text.contains(word));
    job.until("the condition says so", WITHIN, |status| {
        let rejected = condition::get(&status.conditions, condition::RESIZE_REJECTED).context("no condition")?;
        ensure!(rejected.status == "True" && named(&rejected.message), "{rejected:?}");
        Ok(())
    })
    .await?;
    eventually("the region says so, too", WITHIN, || async {
        let shown = shown(it, job, region).await?;
        ensure!(shown.desired_width == width && Some(shown.desired_width) != shown.applied_width, "{shown:?}");
        ensure!(named(&shown.rejection), "{shown:?}");
        let conditions = job.region(region).await?.status.unwrap_or_default().conditions;
        ensure!(condition::is_true(&conditions, condition::RESIZE_REJECTED), "{conditions:?}");
        Ok(())
    })
    .await?;
    let object = job.region(region).await?;
    for about in [job.name().to_owned(), object.metadata.name.unwrap_or_default()] {
        eventually(&format!("a Warning Event about {about}"), WITHIN, || async {
            let events = job.events().await?;
            ensure!(events.iter().any(|(kind, _, note)| kind == "Warning" && named(note)), "{events:?}");
            Ok(())
        })
        .await?;
    }
    let is = job.status().await?;
    ensure!((is.generation, &is.applied_widths) == (was.generation, &was.applied_widths), "{is:?}");
    ensure!(condition::is_true(&is.conditions, condition::READY), "what runs is not Ready any more");
    ensure!(Moment::of(job).await?.pods == before.pods, "pods were touched");
    Ok(())
}

/// 100 channels of `Score` with 10,000 of `Score.Model` each are more operators than the compiler takes; 100 with 2 are
/// not.
#[tokio::test]
async fn the_compiler_refuses_what_is_too_large() -> Result<()> {
    with_system("bad-resizes", async |it| {
        let mut job = it.sample(JOB);
        job.spec.fusion = Some(FusionOptions { manual: NonZeroU32::new(3), ..FusionOptions::default() });
        job.spec.parallel_regions = vec![sample::initial_width(SCORE, 100)];
        let job = ObservedJob::create(&it.client, &job).await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        refused(it, &job, &[(MODEL, 10_000)], &["operators"]).await?;
        refused_edit(it, &job, MODEL, 10_000, &["operators"]).await?;

        let answer = it.resize(&job, &[(MODEL, 1)], WaitFor::RolledOut).await?;
        ensure!(answer.generation == Some(1), "{answer:?}");
        let status = job.status().await?;
        ensure!(!condition::is_true(&status.conditions, condition::RESIZE_REJECTED), "still refused");
        ensure!(status.rejected_resize.is_none(), "{status:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_bounds_of_the_job_hold() -> Result<()> {
    with_system("bad-resizes", async |it| {
        let mut job = it.sample(JOB);
        let bounds =
            InitialWidth { name: Some("Cl*".to_owned()), min_width: Some(2), max_width: Some(4), ..Default::default() };
        job.spec.parallel_regions = vec![bounds];
        let job = ObservedJob::create(&it.client, &job).await?;
        job.settled(Widths::default(), WITHIN).await?;
        let before = Moment::of(&job).await?;
        refused(it, &job, &[(CLEAN, 5)], &["4"]).await?;
        // The other region keeps its width, whether it is asked for before or after.
        refused(it, &job, &[(CLEAN, 9), (SCORE, 4)], &["4"]).await?;
        refused(it, &job, &[(SCORE, 4), (CLEAN, 9)], &["4"]).await?;
        refused_edit(it, &job, CLEAN, 1, &["2"]).await?;
        it.resize(&job, &[(CLEAN, 3)], WaitFor::RolledOut).await?;
        job.settled(Widths { clean: 3, ..Widths::default() }, WITHIN).await?;
        let changed = Moment::of(&job).await?.since(&before)?;
        ensure!(changed == resize_of_clean(2, 3), "{changed:#?}");
        Ok(())
    })
    .await
}

/// A width that was refused stays desired and is not tried again; one that is refused must not keep another region from
/// being resized.
#[tokio::test]
async fn a_refused_region_does_not_hold_up_another() -> Result<()> {
    with_system("bad-resizes", async |it| {
        let mut job = it.sample(JOB);
        let bounds = InitialWidth { name: Some(SCORE.to_owned()), max_width: Some(3), ..Default::default() };
        job.spec.parallel_regions = vec![bounds];
        let job = ObservedJob::create(&it.client, &job).await?;
        job.settled(Widths::default(), WITHIN).await?;
        refused_edit(it, &job, SCORE, 4, &["3"]).await?;
        let answer = it.resize(&job, &[(CLEAN, 3)], WaitFor::RolledOut).await?;
        ensure!(answer.generation == Some(1), "{answer:?}");
        let widths = Widths::applied(&job.status().await?.applied_widths);
        ensure!(widths == Widths { clean: 3, ..Widths::default() }, "{widths:?}");
        it.resize(&job, &[(SCORE, 3)], WaitFor::RolledOut).await?;
        job.settled(Widths { clean: 3, score: 3, model: 2 }, WITHIN).await.map(drop)
    })
    .await
}

/// What a region says of itself: its conditions but for their generation, and how often people heard of a refusal.
async fn said(job: &ObservedJob, region: &str) -> Result<(Vec<(String, String, String, String)>, i32)> {
    let object = job.region(region).await?;
    let about = object.metadata.name.clone();
    let conditions = object.status.context("no status")?.conditions.into_iter();
    let conditions = conditions.map(|c| (c.type_, c.status, c.reason, c.last_transition_time.0.to_string()));
    let events = job.api::<Event>().list(&ListParams::default()).await?.items.into_iter();
    let refusals = events.filter(|event| {
        event.reason.as_deref() == Some("ParallelRegionWidthChangeFailure")
            && event.regarding.as_ref().and_then(|regarding| regarding.name.as_ref()) == about.as_ref()
    });
    Ok((conditions.collect(), refusals.map(|event| event.series.map_or(1, |series| series.count)).sum()))
}

/// A region's status follows from the region and its job, not from what a process remembers (rule elasticity-4).
/// Whoever leads after a restart says the same, people do not hear of it twice, and a load balancer that asks for it
/// hears of it as well.
#[tokio::test]
async fn a_refused_width_is_still_refused_when_the_frontend_is_started_again() -> Result<()> {
    with_system("bad-resizes", async |it| {
        let mut job = it.sample(JOB);
        let bounds = InitialWidth { name: Some(SCORE.to_owned()), max_width: Some(3), ..Default::default() };
        job.spec.parallel_regions = vec![bounds];
        let job = ObservedJob::create(&it.client, &job).await?;
        job.settled(Widths::default(), WITHIN).await?;
        refused_edit(it, &job, SCORE, 4, &["3"]).await?;
        let before = said(&job, SCORE).await?;
        ensure!(before.1 == 1, "{before:?}");
        it.frontend()?.process().kill().await?;
        it.frontend()?.start_again().await?;
        // Whoever leads now has looked at the job and its regions when another width is in force.
        it.resize(&job, &[(CLEAN, 3)], WaitFor::RolledOut).await?;
        let after = said(&job, SCORE).await?;
        ensure!(after == before, "{after:?} after the restart, {before:?} before");
        refused(it, &job, &[(SCORE, 4)], &["3"]).await
    })
    .await
}
