//! What the elasticity API shows of regions and requests, and how requests are withdrawn (rules elasticity-19 to
//! elasticity-22).

use super::fixture::{Fixture, WITHIN, reason, until_known, until_taken, with, with_system};
use super::fusion_down::{IMPATIENT, kill_fusion, start_fusion};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, MODEL, SCORE, Widths};
use integration_tests::system::job::ObservedJob;
use streams_api::{InitialWidth, Resize};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::dry_run::Fate;
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_proto::elasticity::v1::{
    CancelRequest, CancelResponse, GetRegionRequest, GetResizeRequest, ListRegionsRequest, ListResizesRequest, Region,
    ResizeName, ResizePhase, ResizeRequest, ResizeState,
};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// Requests that somebody tries to withdraw.
const ROUNDS: usize = 15;

fn named(job: &ObservedJob, request: &str) -> Option<ResizeName> {
    let namespace = job.namespace().to_owned();
    Some(ResizeName { namespace, request: request.to_owned(), ..ResizeName::default() })
}

fn of_key(job: &ObservedJob, key: &str) -> Option<ResizeName> {
    let (namespace, job, idempotency_key) = (job.namespace().to_owned(), job.name().to_owned(), key.to_owned());
    Some(ResizeName { namespace, job, idempotency_key, ..ResizeName::default() })
}

async fn region(it: &Fixture, job: &ObservedJob, name: &str) -> Result<Region> {
    let (namespace, job, region) = (it.namespace.clone(), job.name().to_owned(), name.to_owned());
    let answer = it.frontend()?.balancer().await?.get_region(GetRegionRequest { namespace, job, region }).await?;
    Ok(answer.into_inner())
}

async fn resize_state(it: &Fixture, name: Option<ResizeName>) -> Result<ResizeState> {
    let answer = it.frontend()?.balancer().await?.get_resize(GetResizeRequest { name }).await?;
    answer.into_inner().resize.context("no request")
}

/// Withdraws a request, until it is known what becomes of it.
async fn withdraw(
    balancer: &ElasticityServiceClient<Channel>,
    name: &Option<ResizeName>,
) -> Result<CancelResponse, Status> {
    until_known(WITHIN, |left| {
        let (mut balancer, mut request) = (balancer.clone(), Request::new(CancelRequest { name: name.clone() }));
        request.set_timeout(left);
        async move { balancer.cancel(request).await }
    })
    .await
}

#[tokio::test]
async fn a_region_is_shown_with_bounds_ready_channels_and_its_last_resize() -> Result<()> {
    with_system("lists", async |it| {
        let mut sample = it.sample(super::fixture::JOB);
        let bounds =
            InitialWidth { name: Some(CLEAN.to_owned()), min_width: Some(2), max_width: Some(5), ..Default::default() };
        sample.spec.parallel_regions.push(bounds);
        let job = ObservedJob::create(&it.client, &sample).await?;
        job.settled(Widths::default(), WITHIN).await?;
        let clean = region(it, &job, CLEAN).await?;
        ensure!((clean.min_width, clean.max_width, clean.fixed) == (2, 5, false), "{clean:?}");
        ensure!(clean.last_resize.is_none(), "{clean:?}");
        eventually("all channels run", WITHIN, || async {
            let ready = [region(it, &job, CLEAN).await?.ready_width, region(it, &job, MODEL).await?.ready_width];
            ensure!(ready == [Some(2); 2], "{ready:?}");
            Ok(())
        })
        .await?;
        it.resize(&job, &[(CLEAN, 3)], WaitFor::RolledOut).await?;
        // It is the answer of the API, and of the object: whoever leads next says the same.
        let last = region(it, &job, CLEAN).await?.last_resize.context("no resize")?;
        ensure!((last.generation, last.from_width, last.to_width) == (1, 2, 3), "{last:?}");
        let lasted = last.duration.context("no duration")?;
        ensure!((lasted.seconds, lasted.nanos) > (0, 0) && lasted.seconds < 180, "{lasted:?}");
        eventually("the object has it", WITHIN, || async {
            let status = job.region(CLEAN).await?.status.context("no status")?;
            let said = status.last_resize.context("no resize")?;
            ensure!(said.rolled_out_at.is_some() && (said.from, said.to) == (2, 3), "{said:?}");
            Ok(())
        })
        .await?;
        it.frontend()?.process().kill().await?;
        it.frontend()?.start_again().await?;
        ensure!(region(it, &job, CLEAN).await?.last_resize == Some(last), "it was forgotten");
        ensure!(region(it, &job, SCORE).await?.last_resize.is_none());
        // A width that is refused.
        job.set_width(CLEAN, 9).await?;
        eventually("the refusal is shown", WITHIN, || async {
            let clean = region(it, &job, CLEAN).await?;
            ensure!(clean.rejection_reason == "OutOfBounds" && clean.rejection.contains("maxWidth 5"), "{clean:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn regions_and_requests_come_in_pages() -> Result<()> {
    with_system("lists", async |it| {
        let job = it.submitted().await?;
        let mut balancer = it.frontend()?.balancer().await?;
        let (mut token, mut names) = (String::new(), Vec::new());
        for _ in 0..4 {
            let list = ListRegionsRequest {
                namespace: it.namespace.clone(),
                page_size: 1,
                page_token: token,
                ..ListRegionsRequest::default()
            };
            let page = balancer.list_regions(list).await?.into_inner();
            names.extend(page.regions.into_iter().map(|region| region.name));
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        ensure!(names == [CLEAN, SCORE, MODEL], "{names:?}");
        let mut made = Vec::new();
        for width in [3, 4, 5] {
            made.push(it.resize(&job, &[(CLEAN, width)], WaitFor::RolledOut).await?.request);
        }
        let list = |size, token| ListResizesRequest {
            namespace: it.namespace.clone(),
            job: job.name().to_owned(),
            page_size: size,
            page_token: token,
        };
        let first = balancer.list_resizes(list(2, String::new())).await?.into_inner();
        let shown = |resizes: &[ResizeState]| resizes.iter().map(|resize| resize.request.clone()).collect::<Vec<_>>();
        ensure!(shown(&first.resizes) == [made[2].clone(), made[1].clone()], "{first:?}");
        let newest = first.resizes.first().context("no request")?;
        ensure!(newest.phase() == ResizePhase::RolledOut && newest.generation == Some(3), "{newest:?}");
        ensure!(newest.changes.is_some_and(|changes| changes.added == 1) && newest.regions[0].width == 5, "{newest:?}");
        let second = balancer.list_resizes(list(2, first.next_page_token.clone())).await?.into_inner();
        ensure!(shown(&second.resizes) == made[..1] && second.next_page_token.is_empty(), "{second:?}");
        // A token is of one list; there is no such job.
        let mut of_other = list(2, first.next_page_token);
        of_other.job.clear();
        let refused = balancer.list_resizes(of_other).await.err().context("it was taken")?;
        ensure!(refused.code() == Code::InvalidArgument && reason(&refused) == "INVALID_REQUEST", "{refused:?}");
        let stranger = ListResizesRequest { job: "stranger".to_owned(), ..list(2, String::new()) };
        let refused = balancer.list_resizes(stranger).await.err().context("it was listed")?;
        ensure!(refused.code() == Code::NotFound && reason(&refused) == "JOB_NOT_FOUND", "{refused:?}");
        Ok(())
    })
    .await
}

/// The fusion service is away, so nothing comes of a request until somebody withdraws it.
#[tokio::test]
async fn a_request_is_withdrawn_before_it_is_committed_and_not_afterwards() -> Result<()> {
    with("cancel", 1, &IMPATIENT, async |it| {
        let job = it.submitted().await?;
        let balancer = it.frontend()?.balancer().await?;
        kill_fusion(it).await?;
        let keyed = |key: &str, width| ResizeRequest {
            idempotency_key: key.to_owned(),
            ..job.resize_request(&[(CLEAN, width)], WaitFor::Accepted)
        };
        let made = until_taken(balancer.clone(), keyed("k", 3), WITHIN).await?;
        let waiting = tokio::spawn({
            let mut request = keyed("k", 3);
            request.set_wait_for(WaitFor::RolledOut);
            until_taken(balancer.clone(), request, WITHIN)
        });
        let before = resize_state(it, named(&job, &made.request)).await?;
        ensure!(before.phase() == ResizePhase::Pending && before.regions[0].width == 3, "{before:?}");
        for name in [of_key(&job, "k"), named(&job, &made.request)] {
            let answer = withdraw(&balancer, &name).await?;
            let cancelled = answer.resize.context("no request")?;
            ensure!(cancelled.phase() == ResizePhase::Cancelled && cancelled.request == made.request, "{cancelled:?}");
            ensure!(
                (cancelled.code, cancelled.reason.as_str()) == (Code::Aborted.into(), "CANCELLED"),
                "{cancelled:?}"
            );
        }
        let heard = waiting.await?.err().context("it was resized")?;
        ensure!(heard.code() == Code::Aborted && reason(&heard) == "CANCELLED", "{heard:?}");
        ensure!(region(it, &job, CLEAN).await?.desired_width == 2, "its width is still desired");
        start_fusion(it).await?;
        // committed, refused, unknown, and what names no request
        let done = it.resize(&job, &[(CLEAN, 4)], WaitFor::Committed).await?;
        let early = ResizeRequest { expected_generation: Some(9), ..keyed("early", 3) };
        let refused = until_taken(balancer.clone(), early, WITHIN).await.err().context("it was taken")?;
        ensure!(reason(&refused) == "GENERATION_MISMATCH", "{refused:?}");
        let nameless = Some(ResizeName { namespace: it.namespace.clone(), ..ResizeName::default() });
        let table = [
            (named(&job, &done.request), Code::FailedPrecondition, "ALREADY_COMMITTED"),
            (of_key(&job, "early"), Code::FailedPrecondition, "ALREADY_ENDED"),
            (named(&job, "nobody"), Code::NotFound, "RESIZE_NOT_FOUND"),
            (of_key(&job, "nothing"), Code::NotFound, "RESIZE_NOT_FOUND"),
            (nameless, Code::InvalidArgument, "INVALID_REQUEST"),
            (None, Code::InvalidArgument, "INVALID_REQUEST"),
        ];
        for (name, code, expected) in table {
            let status = withdraw(&balancer, &name).await.err().context("it was cancelled")?;
            ensure!((status.code(), reason(&status).as_str()) == (code, expected), "{name:?}: {status:?}");
        }
        job.settled(Widths { clean: 4, ..Widths::default() }, WITHIN).await.map(drop)
    })
    .await
}

/// A dry run says what the real call then does, and leaves nothing behind; every replica can do it.
#[tokio::test]
async fn a_dry_run_foresees_the_resize_and_writes_nothing() -> Result<()> {
    with("foresee", 2, &[], async |it| {
        let job = it.submitted().await?;
        let dry = |width| {
            let request = job.resize_request(&[(CLEAN, width)], WaitFor::Committed);
            ResizeRequest { dry_run: true, ..request }
        };
        let mut foreseen = None;
        for frontend in it.system.frontends() {
            let answer = until_taken(frontend.balancer().await?, dry(3), WITHIN).await?;
            ensure!(answer.generation == Some(1) && answer.request.is_empty(), "{answer:?}");
            ensure!(answer.regions[0].applied_width == Some(2), "{answer:?}");
            ensure!(foreseen.as_ref().is_none_or(|before| *before == answer), "{foreseen:?} and {answer:?}");
            foreseen = Some(answer);
        }
        ensure!(job.list::<Resize>().await?.is_empty() && job.status().await?.generation == Some(0), "it was written");
        let foreseen = foreseen.context("no frontend")?;
        let real = it.resize(&job, &[(CLEAN, 3)], WaitFor::RolledOut).await?;
        ensure!(foreseen.changes == real.changes, "{:?}, and then {:?}", foreseen.changes, real.changes);
        let listed = foreseen.dry_run.context("no dry run")?;
        let of = |fate: Fate| listed.processing_elements.iter().filter(move |pe| pe.fate() == fate);
        ensure!(of(Fate::Added).any(|pe| pe.operators == ["Clean[2]"]) && of(Fate::Added).count() == 1, "{listed:?}");
        let changes = real.changes.context("no changes")?;
        ensure!(of(Fate::Restarted).count() == usize::try_from(changes.restarted)?, "{listed:?}");
        ensure!(of(Fate::Restarted).all(|pe| !pe.reason.is_empty()) && listed.unlisted == 0, "{listed:?}");
        // Widths in force; widths that nobody can have.
        let balancer = it.frontend()?.balancer().await?;
        let same = until_taken(balancer.clone(), dry(3), WITHIN).await?;
        ensure!(same.generation == Some(1) && same.changes.is_none(), "{same:?}");
        let mut wrong = dry(4);
        wrong.regions[0].expected_width = Some(7);
        let million = job.resize_request(&[(SCORE, 100), (MODEL, 10_000)], WaitFor::Committed);
        let huge = ResizeRequest { dry_run: true, ..million };
        for (request, expected, named) in [(wrong, "WIDTH_MISMATCH", "is 3, not 7"), (huge, "REJECTED", "operators")] {
            let answer = until_taken(balancer.clone(), request, WITHIN).await;
            let status = answer.err().context("it was taken")?;
            ensure!(status.code() == Code::FailedPrecondition && reason(&status) == expected, "{status:?}");
            ensure!(status.message().contains(named), "{status:?}");
        }
        Ok(())
    })
    .await
}

/// Whatever a call of `Cancel` answers is what becomes of the request, at whichever moment it comes.
#[tokio::test]
async fn a_request_is_never_both_withdrawn_and_carried_out() -> Result<()> {
    with_system("cancel", async |it| {
        let job = it.submitted().await?;
        let balancer = it.frontend()?.balancer().await?;
        let (mut withdrawn, mut width) = (0, 2);
        let moments = [WaitFor::Accepted, WaitFor::Planned, WaitFor::Committed];
        for moment in moments.into_iter().cycle().take(ROUNDS) {
            let wanted = if width == 2 { 3 } else { 2 };
            let made = until_taken(balancer.clone(), job.resize_request(&[(CLEAN, wanted)], moment), WITHIN).await?;
            let name = named(&job, &made.request);
            let answer = withdraw(&balancer, &name).await;
            let is_withdrawn = match &answer {
                Ok(_) => true,
                Err(status) if reason(status) == "ALREADY_COMMITTED" => false,
                Err(status) => anyhow::bail!("{status:?}"),
            };
            let end = eventually("the request ends", WITHIN, || async {
                let state = resize_state(it, name.clone()).await?;
                let is_end = [ResizePhase::Cancelled, ResizePhase::RolledOut].contains(&state.phase());
                ensure!(is_end, "{state:?}");
                Ok(state.phase())
            })
            .await?;
            ensure!(is_withdrawn == (end == ResizePhase::Cancelled), "{answer:?}, and it is {end:?}");
            (withdrawn, width) = if is_withdrawn { (withdrawn + 1, width) } else { (withdrawn, wanted) };
            let applied = region(it, &job, CLEAN).await?.applied_width;
            ensure!(applied == Some(width), "{applied:?}, not {width}");
        }
        ensure!(job.list::<Resize>().await?.len() == ROUNDS, "{withdrawn} were withdrawn");
        job.settled(Widths { clean: width, ..Widths::default() }, WITHIN).await.map(drop)
    })
    .await
}
