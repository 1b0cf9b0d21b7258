//! What happens in the windows, one after the other.
//!
//! Knows: windows and their order. Must not know: how a report is written.

use super::PeApiOptions;
use super::beside::{Beside, Others, resize};
use super::crowd::Crowd;
use super::hostile::{attack, make_good};
use super::line::Lines;
use super::links::Links;
use super::pe::Surroundings;
use super::tally::{Asked, Tally};
use super::topology::Topology;
use super::window::{Beginning, Seen, Window};
use crate::sample::{self, CLEAN, MODEL, Widths};
use crate::soak::consistent_regions::application;
use crate::soak::figures::Durations;
use crate::soak::load::Shape;
use crate::soak::metrics::Figures;
use crate::system::System;
use crate::system::job::ObservedJob;
use anyhow::{Context as _, Result, ensure};
use futures::future::{join, try_join, try_join3};
use kube::Client;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams_api::{ConsistentRegion, ConsistentRegionStatus, JobStatus, condition, names};
use streams_control_plane::ControlPlane;
use streams_control_plane::progress::Progress;
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until};

/// Within which time PEs start: as long as the time between two questions for routes, so that these are spread.
const SPREAD: Duration = Duration::from_secs(60);
/// How long the frontend is away: long enough that each PE has tried to tell something.
const AWAY: Duration = Duration::from_secs(2);
/// How long something else is looked at after the frontend is back.
const AFTER: Duration = Duration::from_secs(15);
/// How often the large job is resized, unless the resize before takes longer.
const EVERY: Duration = Duration::from_secs(8);
/// Seconds between two checkpoints of the region.
const PERIOD: f64 = 5.0;

/// A restart of the frontend.
#[derive(Debug)]
pub(super) struct Restart {
    pub(super) name: &'static str,
    /// From its start until it serves, and until the first resize was committed.
    pub(super) serves: Duration,
    pub(super) resized: Duration,
    /// Until all that PEs had to tell from before was answered.
    pub(super) told: Duration,
    /// From then on until all PEs, which have told something at the same moment, were answered.
    pub(super) storm: Option<Duration>,
    /// Of both.
    pub(super) asked: Asked,
    /// Calls of the frontend since its start.
    pub(super) figures: Figures,
    /// What else was done after it was back, beside the storm if there is one.
    pub(super) beside: Beside,
}

/// A consistent region.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) pes: usize,
    pub(super) checkpoints: u64,
    pub(super) window: Window,
}

/// The services, and the jobs that are measured.
pub(super) struct Stage<'a> {
    control_plane: &'a ControlPlane,
    system: &'a System,
    options: &'a PeApiOptions,
    client: Client,
    others: Others,
    large: ObservedJob,
    widths: Widths,
    tally: Arc<Tally>,
    lines: Lines,
    crowd: Crowd,
}

impl<'a> Stage<'a> {
    /// With all jobs at rest; no PE asks for anything.
    ///
    /// # Errors
    /// When something does not come to rest.
    pub(super) async fn start(
        control_plane: &'a ControlPlane,
        system: &'a System,
        options: &'a PeApiOptions,
    ) -> Result<Self> {
        let client = control_plane.client().await?;
        let progress = Progress::begin(format!("a job of {} PEs", options.pes));
        let others = Others::start(&client, system, &control_plane.namespace("others").await?).await?;
        let shape = Shape::large(options.pes);
        let widths = shape.widths();
        let large = ObservedJob::create(&client, &shape.job(&control_plane.namespace("pes").await?, 0)).await?;
        large.until("rolled out", options.within, is_rolled_out).await?;
        progress.done();
        let (tally, lines) = (Arc::new(Tally::default()), Lines::new(system.frontend()?.pe_api())?);
        let around = Surroundings {
            lines: lines.clone(),
            links: Links::new(Topology::Sensors(widths)),
            tally: Arc::clone(&tally),
            width: Some((CLEAN, [widths.clean, widths.clean.saturating_add(1)])),
            has_region: false,
        };
        let crowd = Crowd::of(&large, around, options.seed).await?;
        let pes = widths.processing_elements();
        eventually("all pods are seen", options.within, || async {
            ensure!(crowd.len() == pes, "{} of {pes}", crowd.len());
            Ok(())
        })
        .await?;
        Ok(Self { control_plane, system, options, client, others, large, widths, tally, lines, crowd })
    }

    /// Wrong answers until now, in words.
    pub(super) fn wrong(&self) -> Vec<String> {
        self.tally.wrong()
    }

    /// A window in which this happens.
    async fn window(
        &self,
        name: &'static str,
        during: impl AsyncFnOnce(&mut Seen, Instant) -> Result<()>,
    ) -> Result<Window> {
        let progress = Progress::begin(name);
        let beginning = Beginning::now(self.control_plane, self.system, &self.tally).await?;
        let mut seen = Seen::default();
        during(&mut seen, Instant::now() + self.options.window).await.context(name)?;
        let window = beginning.end(name, self.control_plane, self.system, &self.tally, seen).await?;
        progress.done();
        Ok(window)
    }

    /// Nothing happens.
    pub(super) async fn rest(&self, name: &'static str) -> Result<Window> {
        self.window(name, async |_, until| {
            sleep_until(until.into()).await;
            Ok(())
        })
        .await
    }

    /// Others ask for something.
    pub(super) async fn others(&self, name: &'static str) -> Result<Window> {
        self.window(name, async |seen, until| {
            seen.beside = self.others.until(until).await;
            Ok(())
        })
        .await
    }

    /// Others ask for something, and a narrow region of the large job is resized, whose neighbour all PEs are connected
    /// with.
    pub(super) async fn resizes(&self, name: &'static str) -> Result<Window> {
        self.window(name, async |seen, until| {
            let Seen { beside, committed, rolled_out, .. } = seen;
            let (others, resized) = join(self.others.until(until), self.resize_narrow(until)).await;
            (*committed, *rolled_out) = resized?;
            *beside = others;
            self.crowd.all_told(self.options.within).await.map(drop)
        })
        .await
    }

    async fn resize_narrow(&self, until: Instant) -> Result<(Durations, Durations)> {
        let (mut committed, mut rolled_out) = (Durations::default(), Durations::default());
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // An even number: the next window begins with the same widths.
        for number in 0.. {
            ticks.tick().await;
            if number % 2 == 0 && Instant::now() >= until {
                break;
            }
            let model = if number % 2 == 0 { 2 } else { 1 };
            let (first, all) = self.resize((MODEL, model), Widths { model, ..self.widths }).await?;
            committed.add(first);
            rolled_out.add(all);
        }
        Ok((committed, rolled_out))
    }

    /// Resizes the large job: how long until that was committed, and rolled out.
    async fn resize(&self, width: (&str, u32), widths: Widths) -> Result<(Duration, Duration)> {
        // Pods that come from now on have the new widths.
        self.crowd.links().change(Topology::Sensors(widths));
        let start = Instant::now();
        let (balancer, within) = (self.others.balancer(), self.options.within);
        resize(balancer, &self.large, width, WaitFor::Committed, within).await?;
        let committed = start.elapsed();
        resize(balancer, &self.large, width, WaitFor::RolledOut, within).await?;
        Ok((committed, start.elapsed()))
    }

    /// The wide region is resized, which replaces nearly all PEs. The window is as long as that takes.
    pub(super) async fn wide_resize(&mut self, name: &'static str, more: bool) -> Result<Window> {
        let clean = Shape::large(self.options.pes).widths().clean + u32::from(more);
        let widths = Widths { clean, ..self.widths };
        self.widths = widths;
        self.window(name, async |seen, _| {
            let (committed, rolled_out) = self.resize((CLEAN, clean), widths).await?;
            seen.committed.add(committed);
            seen.rolled_out.add(rolled_out);
            self.crowd.all_told(self.options.within).await.map(drop)
        })
        .await
    }

    /// All PEs start to ask and to report; the window is as long as it takes until all is known.
    pub(super) async fn wake(&self, name: &'static str) -> Result<Window> {
        self.window(name, async |_, _| {
            self.crowd.wake(SPREAD);
            self.crowd.all_told(self.options.within).await.map(drop)
        })
        .await
    }

    /// As [`Stage::resizes`], beside a PE that does its worst.
    pub(super) async fn hostile(&self, name: &'static str) -> Result<Window> {
        let operator = "Clean[0]";
        let identity = self.crowd.identity(operator)?;
        let window = self
            .window(name, async |seen, until| {
                let others = async { Ok(self.others.until(until).await) };
                let attack = attack(&identity, &self.lines, until);
                let (beside, resized, attack) = try_join3(others, self.resize_narrow(until), attack).await?;
                let (committed, rolled_out) = resized;
                *seen = Seen { beside, committed, rolled_out, attack: Some(attack) };
                Ok(())
            })
            .await?;
        self.crowd.all_told(self.options.within).await?;
        let is = self.crowd.links().connectivity(operator).context("the PE has ended")?;
        ensure!(make_good(&identity, &self.lines, is).await?, "the hostile PE is not answered afterwards");
        Ok(window)
    }

    /// Reports that were lost until now, in words; waits until all is told.
    pub(super) async fn lost(&self) -> Result<Vec<String>> {
        self.crowd.all_told(self.options.within).await?;
        self.crowd.lost().await
    }

    /// The frontend is killed and started again. With a storm, the connections of all PEs break while it is away, and
    /// are mended at the same moment when all have told that. Says which reports were lost, too.
    pub(super) async fn restart(&self, name: &'static str, is_storm: bool) -> Result<(Restart, Vec<String>)> {
        let progress = Progress::begin(name);
        let (within, frontend) = (self.options.within, self.system.frontend()?);
        self.tally.take();
        frontend.process().kill().await?;
        self.crowd.links().cut(is_storm);
        sleep(AWAY).await;
        let start = Instant::now();
        let back = async {
            frontend.start_again().await?;
            let serves = start.elapsed();
            self.others.first_resize(within).await?;
            anyhow::Ok((serves, start.elapsed()))
        };
        let told = async {
            self.crowd.all_told(within).await?;
            anyhow::Ok(start.elapsed())
        };
        let ((serves, resized), told) = try_join(back, told).await?;
        let mut lost = if is_storm { self.crowd.lost().await? } else { Vec::new() };
        let stormed = async {
            if !is_storm {
                return anyhow::Ok(None);
            }
            self.crowd.links().cut(false);
            self.crowd.all_told(within).await.map(Some)
        };
        let (beside, storm) = join(self.others.until(Instant::now() + AFTER), stormed).await;
        let storm = storm?;
        lost.extend(self.lost().await?);
        let (asked, figures) = (self.tally.take(), Figures::of(frontend.http()).await?);
        progress.done();
        Ok((Restart { name, serves, resized, told, storm, asked, figures, beside }, lost))
    }

    /// A job with a consistent region, beside the large one, which rests. Says what went wrong, too.
    pub(super) async fn region(&self, name: &'static str, pes: usize) -> Result<(Region, Vec<String>)> {
        let channels = u32::try_from(pes.saturating_sub(2).max(1))?;
        let bundle = sample::bundle_of(&application(channels, PERIOD, ""))?;
        std::fs::write(self.system.bundles().join("region.sab"), bundle).context("cannot write the bundle")?;
        let mut job = sample::job(&self.control_plane.namespace("region").await?, "region");
        job.spec.bundle.file = Some("region.sab".to_owned());
        job.spec.processing_element = Some(sample::checkpoints());
        let progress = Progress::begin(format!("a consistent region of {pes} PEs"));
        let job = ObservedJob::create(&self.client, &job).await?;
        job.until("a number", self.options.within, |status| status.job_id.context("it has none")).await?;
        let around = Surroundings {
            lines: self.lines.clone(),
            links: Links::new(Topology::Region(channels)),
            tally: Arc::clone(&self.tally),
            width: Some(("Work", [channels; 2])),
            has_region: true,
        };
        let crowd = Crowd::of(&job, around, self.options.seed.wrapping_add(1)).await?;
        crowd.wake(AWAY);
        job.until("rolled out", self.options.within, is_rolled_out).await?;
        eventually("the region has taken a checkpoint", self.options.within, || async {
            let status = region(&job).await?;
            ensure!(status.last_completed_checkpoint.is_some_and(|last| last > 0), "{:?}", status.state);
            Ok(())
        })
        .await?;
        progress.done();
        let (before, resets) = (region(&job).await?.last_completed_checkpoint, crowd.resets());
        let window = self.rest(name).await?;
        let after = region(&job).await?.last_completed_checkpoint;
        let checkpoints = after.unwrap_or_default().saturating_sub(before.unwrap_or_default());
        crowd.all_told(self.options.within).await?;
        let mut failures = crowd.lost().await?;
        if crowd.resets() > resets {
            failures.push(format!("PEs of the region were told {} resets", crowd.resets() - resets));
        }
        if checkpoints == 0 {
            failures.push("the region has taken no checkpoint".to_owned());
        }
        Ok((Region { pes, checkpoints, window }, failures))
    }
}

async fn region(job: &ObservedJob) -> Result<ConsistentRegionStatus> {
    let region: ConsistentRegion = job.api().get(&names::consistent_region(job.name(), 0)).await?;
    region.status.context("nobody drives the region")
}

fn is_rolled_out(status: &JobStatus) -> Result<()> {
    let is_out = status.rollout.as_ref().is_some_and(|rollout| rollout.finished_at.is_some());
    ensure!(is_out && condition::is_true(&status.conditions, condition::READY), "it is not");
    Ok(())
}
