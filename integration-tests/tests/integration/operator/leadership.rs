//! Two frontends: one leads, both serve the elasticity API, and when the leader dies the other one finishes what it
//! began (rules call-12 and elasticity-8).

use super::fixture::{Fixture, Moment, WITHIN, as_if_undisturbed, until_taken, with};
use super::refused_texts::{RefusedTexts, Texts};
use anyhow::{Result, bail, ensure};
use integration_tests::sample::CLEAN;
use integration_tests::system::Frontend;
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;

const WIDTH: u32 = 5;

/// More than what is said at the end.
const LINES: usize = 50;

/// The frontend that leads and the one that does not.
async fn leader_and_follower(it: &Fixture) -> Result<(&Frontend, &Frontend)> {
    let [one, other] = it.system.frontends() else { bail!("there must be two frontends") };
    eventually("one of the frontends leads", WITHIN, || async {
        let leads = |value: f64| value > 0.5;
        let (a, b) = (one.metric("streams_frontend_leader").await?, other.metric("streams_frontend_leader").await?);
        match (leads(a), leads(b)) {
            (true, false) => Ok((one, other)),
            (false, true) => Ok((other, one)),
            (true, true) => bail!("both lead"),
            (false, false) => bail!("neither leads"),
        }
    })
    .await
}

#[tokio::test]
async fn the_other_one_finishes_a_resize_when_the_leader_is_killed() -> Result<()> {
    with("leadership", 2, &[], async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let (leader, follower) = leader_and_follower(it).await?;
        // The caller asks the one that does not lead, and hears the end of it although the leader dies on the way.
        let balancer = follower.balancer().await?;
        let refused = RefusedTexts::from_now_on(it, Texts::OfOddPes).await?;
        let wanted = job.resize_request(&[(CLEAN, WIDTH)], WaitFor::RolledOut);
        let (answer, killed) = tokio::join!(until_taken(balancer, wanted, WITHIN), async {
            refused.until_reached(&job).await?;
            leader.process().kill().await?;
            refused.lift().await
        });
        killed?;
        let answer = answer?;
        ensure!(answer.generation == Some(1), "{answer:?}");
        as_if_undisturbed(&job, &before, WIDTH).await?;
        ensure!(follower.metric("streams_frontend_leader").await? > 0.5, "nobody leads");

        // The one that was killed comes back and does not get into the way of its successor.
        leader.start_again().await?;
        ensure!(leader.metric("streams_frontend_leader").await? < 0.5, "both lead");
        job.settled(integration_tests::sample::Widths { clean: WIDTH, ..Default::default() }, WITHIN).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_leader_that_is_asked_to_end_hands_over_at_once() -> Result<()> {
    with("leadership", 2, &[], async |it| {
        let job = it.submitted().await?;
        let before = Moment::of(&job).await?;
        let (leader, follower) = leader_and_follower(it).await?;
        let exit = leader.process().stop(WITHIN).await?;
        ensure!(exit.is_success(), "it ended with {exit}");
        let log = leader.process().last_lines(LINES);
        ensure!(log.contains("ended as asked") && !log.contains("did not end in time"), "{log}");
        let wanted = job.resize_request(&[(CLEAN, WIDTH)], WaitFor::RolledOut);
        let answer = until_taken(follower.balancer().await?, wanted, WITHIN).await?;
        ensure!(answer.generation == Some(1), "{answer:?}");
        as_if_undisturbed(&job, &before, WIDTH).await.map(drop)
    })
    .await
}
