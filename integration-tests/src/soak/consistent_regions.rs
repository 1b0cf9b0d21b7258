//! Kills PEs of consistent regions, and frontends, at every phase of checkpoints and resets; after each recovery no
//! tuple may be lost or counted twice.
//!
//! Four jobs run side by side: the PEs of one report checkpoints when they are written, those of another in two steps;
//! in the third operators say when the region is drained, and ask for resets; and in the fourth two regions share PEs,
//! whose sources rest until their checkpoints are complete.
//! Each round waits until a region is in a phase, kills at once, and waits until the regions have taken a checkpoint
//! that began after that.
//!
//! Knows: what a region shows of itself, and what has arrived at its sink. Must not know: how it is driven.

use super::commit::commit;
use super::figures::Durations;
use super::report;
use crate::running::agent;
use crate::running::pes::Pes;
use crate::sample;
use crate::system::job::ObservedJob;
use crate::system::rights::FrontendRights;
use crate::system::{Programs, SHORT_LEASE, System, SystemOptions};
use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join_all;
use kube::api::{Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use streams_api::{ConsistentRegion, ConsistentRegionStatus, ProcessingElement, condition, crds, names};
use streams_control_plane::process::Supervisor;
use streams_control_plane::progress::Progress;
use streams_control_plane::wait::eventually;
use streams_control_plane::{ControlPlane, Options};
use streams_node_agent::NodeAgent;
use streams_pe_double::status::{SinkStatus, arrivals};
use streams_test_support::application::Sketch;

/// How long anything may take until it counts as stuck.
const WITHIN: Duration = Duration::from_secs(180);
/// How often a region is looked at while a phase is waited for.
const LOOK: Duration = Duration::from_millis(3);
/// A region that takes longer to take a checkpoint again is told of by its name.
const SLOW: Duration = Duration::from_secs(25);
/// Longest wait for a phase. Some are over in a moment.
const PHASE_WITHIN: Duration = Duration::from_secs(20);
/// Channels of a job.
const CHANNELS: u32 = 3;
/// Seconds between two checkpoints.
const PERIOD: f64 = 0.5;
/// Doubles report checkpoints in two steps.
const IN_STEPS: &str = "<envVars><envVar name='PE_DOUBLE_CHECKPOINT_STYLE' value='blocking'/></envVars>";
/// A source drains its region every half a second, and a sink asks for a reset every ten seconds.
const BY_OPERATORS: &str = "<envVars><envVar name='PE_DOUBLE_DRAIN_EVERY' value='100'/>\
    <envVar name='PE_DOUBLE_RESET_EVERY' value='2000'/></envVars>";
/// Doubles report checkpoints in two steps, and sources rest until both are done. They ask more often than the runtime
/// does, and not as often as a region is drained whose PEs are told everything: the messages of two regions are mostly
/// too long for a datagram.
const RESTING: &str = "<envVars><envVar name='PE_DOUBLE_CHECKPOINT_STYLE' value='blocking'/>\
    <envVar name='PE_DOUBLE_RESTS' value='true'/><envVar name='PE_DOUBLE_REGION_POLL_MS' value='2000'/></envVars>";
/// Tuples a second of each source.
const RATE: f64 = 200.0;
/// Operators of a job, each in another PE.
const OPERATORS: [&str; 5] = ["Source", "Work[0]", "Work[1]", "Work[2]", "Sink"];

/// What to do.
#[derive(Debug, Clone)]
pub struct RegionOptions {
    /// How long rounds are begun.
    pub duration: Duration,
    /// Number from which everything random follows.
    pub seed: u64,
}

/// When something is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Processing,
    Draining,
    CheckpointPending,
    Unhealthy,
    Resetting,
}

impl Phase {
    const ALL: [Self; 5] =
        [Self::Processing, Self::Draining, Self::CheckpointPending, Self::Unhealthy, Self::Resetting];

    /// Its name in the status of the region.
    fn name(self) -> &'static str {
        match self {
            Self::Processing => "PROCESSING",
            Self::Draining => "DRAINING",
            Self::CheckpointPending => "CHECKPOINT_PENDING",
            Self::Unhealthy => "UNHEALTHY",
            Self::Resetting => "RESETTING",
        }
    }

    /// Only after a failure.
    fn follows_a_failure(self) -> bool {
        matches!(self, Self::Unhealthy | Self::Resetting)
    }
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victims {
    Pe,
    TwoPes,
    Leader,
    PeAndLeader,
}

impl Victims {
    const ALL: [Self; 4] = [Self::Pe, Self::TwoPes, Self::Leader, Self::PeAndLeader];

    fn name(self) -> &'static str {
        match self {
            Self::Pe => "a PE",
            Self::TwoPes => "two PEs",
            Self::Leader => "the leading frontend",
            Self::PeAndLeader => "a PE and the leading frontend",
        }
    }

    fn pes(self) -> usize {
        match self {
            Self::Leader => 0,
            Self::Pe | Self::PeAndLeader => 1,
            Self::TwoPes => 2,
        }
    }

    fn has_leader(self) -> bool {
        matches!(self, Self::Leader | Self::PeAndLeader)
    }
}

/// What happened.
#[derive(Debug, Default)]
pub struct RegionOutcome {
    commit: String,
    took: Duration,
    /// How often who was killed in which phase.
    kills: BTreeMap<(Phase, Victims), u64>,
    /// From the kill to the end of a checkpoint that began later, for regions of the job that was struck and for those
    /// of the other jobs: without a frontend among the killed, with one that came back at once, and with one that
    /// another took over from.
    recovered: [[Durations; 3]; 2],
    /// Each region that took longer than [`SLOW`], with its round.
    slow: Vec<(Duration, String, String)>,
    /// Per region: tuples at the sink, checkpoints, resets of all PEs, and checkpoints kept by a PE, at most.
    regions: Vec<(String, SinkStatus, u64, u64, usize)>,
}

/// A job.
struct Lane {
    job: ObservedJob,
    /// How many regions it has; each has a sink.
    regions: u64,
    /// Its PEs report checkpoints in two steps.
    is_in_steps: bool,
}

struct Run {
    control_plane: ControlPlane,
    system: System,
    agent: NodeAgent,
    pes: Pes,
    namespace: String,
    random: fastrand::Rng,
    outcome: RegionOutcome,
}

/// Runs it, and gives the report and what went wrong.
///
/// # Errors
/// When the machine cannot give pods addresses, or something does not start.
pub async fn run(supervisor: &Supervisor, options: &RegionOptions) -> Result<(String, Result<()>)> {
    crate::running::possible().await?;
    let begun = Instant::now();
    let mut run = Run::start(supervisor, options).await?;
    let result = run.all(options).await;
    run.outcome.took = begun.elapsed();
    run.outcome.commit = commit();
    let failure = result.as_ref().err().map(|error| format!("{error:#}"));
    let result = result.map_err(|error| error.context(run.system.last_lines(20)));
    Ok((page(options, &run.outcome, failure.as_deref())?, result))
}

impl Run {
    async fn start(supervisor: &Supervisor, options: &RegionOptions) -> Result<Self> {
        let progress = Progress::begin("control plane, node agent and services");
        let cluster = Options { nodes: 0, crds: crds::crds()?, ..Options::default() };
        let control_plane = ControlPlane::start(supervisor, &cluster).await?;
        let client = control_plane.client().await?;
        let rights = FrontendRights::give(&control_plane).await?;
        let programs = Programs::build(supervisor).await?;
        let agent = agent::start(supervisor, &client, &programs, RATE).await?;
        let namespace = control_plane.namespace("regions").await?;
        rights.lease_in(&client, &namespace).await?;
        let checkpoints = agent.state().path().join("checkpoints");
        std::fs::create_dir_all(&checkpoints)?;
        let checkpoints = ["--checkpoint-path".to_owned(), checkpoints.display().to_string()];
        let system = SystemOptions {
            kubeconfig: rights.kubeconfig().to_owned(),
            namespace: Some(namespace.clone()),
            fusion_replicas: 1,
            frontend_replicas: 2,
            frontend_arguments: SHORT_LEASE.map(str::to_owned).into_iter().chain(checkpoints).collect(),
            pe_api: vec![agent.reserve_address()?.into(), agent.reserve_address()?.into()],
            environment: Vec::new(),
        };
        let system = System::start(supervisor, &programs, &system).await?;
        let pes = Pes::new(&client, &namespace, &agent)?;
        progress.done();
        let random = fastrand::Rng::with_seed(options.seed);
        Ok(Self { control_plane, system, agent, pes, namespace, random, outcome: RegionOutcome::default() })
    }

    async fn all(&mut self, options: &RegionOptions) -> Result<()> {
        let client = self.control_plane.client().await?;
        let in_steps = application(CHANNELS, PERIOD, IN_STEPS);
        let driven = with_variables(Sketch::driven(CHANNELS, "15", "20"), BY_OPERATORS);
        let overlapping = Sketch::overlapping(CHANNELS, &PERIOD.to_string(), "15", "20");
        let lanes = [
            self.lane(&client, "plain", &application(CHANNELS, PERIOD, ""), 1, false).await?,
            self.lane(&client, "in-steps", &in_steps, 1, true).await?,
            self.lane(&client, "by-operators", &driven, 1, false).await?,
            self.lane(&client, "overlapping", &with_variables(overlapping, RESTING), 2, true).await?,
        ];
        let until = Instant::now() + options.duration;
        let mut rounds = 0;
        let total = Phase::ALL.len() * Victims::ALL.len();
        while Instant::now() < until || self.outcome.kills.len() < total && rounds < 4 * total {
            // Every phase and victim in turn, in an order of its own each time.
            let missing: Vec<(Phase, Victims)> = Phase::ALL
                .into_iter()
                .flat_map(|phase| Victims::ALL.map(|victims| (phase, victims)))
                .filter(|pair| self.outcome.kills.get(pair).copied().unwrap_or(0) <= rounds as u64 / total as u64)
                .collect();
            let Some((phase, victims)) = self.random.choice(missing) else { break };
            let title = format!("round {}: {}, {}", rounds + 1, phase.name(), victims.name());
            let progress = Progress::begin(title.clone());
            self.round(&lanes, phase, victims, &title).await.context(title)?;
            progress.done();
            rounds += 1;
        }
        let all = Phase::ALL.into_iter().flat_map(|phase| Victims::ALL.map(|victims| (phase, victims)));
        let never: Vec<_> = all.filter(|pair| !self.outcome.kills.contains_key(pair)).collect();
        ensure!(never.is_empty(), "no region was seen in these phases, so nobody was killed there: {never:?}");
        for lane in &lanes {
            let (sinks, pes) = (self.arrived(lane).await?, self.pes.statuses(lane.job.name()).await?);
            for (index, sink) in (0..lane.regions).zip(sinks) {
                let number = u32::try_from(index)?;
                let regions = || pes.values().filter_map(|pe| pe.regions.get(&number));
                let checkpoint = region(&lane.job, index).await?.last_completed_checkpoint.unwrap_or_default();
                let resets = regions().map(|region| region.resets).sum();
                let kept = regions().map(|region| region.kept.len()).max().unwrap_or_default();
                let name = names::consistent_region(lane.job.name(), index);
                self.outcome.regions.push((name, sink, checkpoint, resets, kept));
            }
        }
        Ok(())
    }

    /// A source, three channels and a sink, all in one consistent region, and perhaps others in a second one.
    async fn lane(&self, client: &Client, name: &str, adl: &str, regions: u64, is_in_steps: bool) -> Result<Lane> {
        std::fs::write(self.system.bundles().join(format!("{name}.sab")), sample::bundle_of(adl)?)?;
        let mut job = sample::job(&self.namespace, name);
        job.spec.bundle.file = Some(format!("{name}.sab"));
        job.spec.processing_element = Some(sample::checkpoints());
        let job = ObservedJob::create(client, &job).await?;
        job.until_condition(condition::READY, true, WITHIN).await?;
        self.pes.until_connected(&job, WITHIN).await?;
        let lane = Lane { job, regions, is_in_steps };
        for index in 0..regions {
            until_checkpoint(&lane.job, index, 0).await?;
        }
        Ok(lane)
    }

    async fn round(&mut self, lanes: &[Lane; 4], phase: Phase, victims: Victims, title: &str) -> Result<()> {
        let may_be = lanes.iter().filter(|lane| phase != Phase::CheckpointPending || lane.is_in_steps);
        let may_be: Vec<&Lane> = may_be.collect();
        let Some(Lane { job, .. }) = self.random.choice(may_be) else { return Ok(()) };
        let mut before = Vec::new();
        for lane in lanes {
            forgive(&lane.job).await?;
            before.push((lane, self.arrived(lane).await?));
        }
        if phase.follows_a_failure() {
            let operator = OPERATORS[self.random.usize(..OPERATORS.len())];
            self.kill(job, operator).await?;
        }
        let Some(seen) = in_phase(job, phase).await? else { return Ok(()) };
        let since = Instant::now();
        if victims.has_leader() {
            self.leader().await?.process().kill().await?;
        }
        let first = self.random.usize(..OPERATORS.len());
        for operator in OPERATORS.iter().cycle().skip(first).take(victims.pes()) {
            // One that was killed just before is not there.
            let _ = self.kill(job, operator).await;
        }
        *self.outcome.kills.entry((phase, victims)).or_default() += 1;
        // It comes back and goes on leading, or the other one takes over.
        let is_replaced = victims.has_leader() && self.random.bool();
        if !is_replaced {
            self.start_again().await?;
        }
        // A checkpoint that was under way may be completed; the one after it began later.
        let struck = seen.last_completed_checkpoint.unwrap_or_default();
        let regions = lanes.iter().flat_map(|lane| (0..lane.regions).map(move |index| (&lane.job, index)));
        let recovered = try_join_all(regions.map(|(of, index)| async move {
            let is_struck = std::ptr::eq(of, job);
            let last = match index {
                0 if is_struck => struck,
                _ => region(of, index).await?.last_completed_checkpoint.unwrap_or_default(),
            };
            until_checkpoint(of, index, last + 1).await?;
            anyhow::Ok((is_struck, names::consistent_region(of.name(), index), since.elapsed()))
        }))
        .await?;
        let kind = usize::from(victims.has_leader()) + usize::from(is_replaced);
        for (is_struck, region, took) in recovered {
            self.outcome.recovered[usize::from(!is_struck)][kind].add(took);
            if took > SLOW {
                let what = if is_replaced { format!("{title}, which was replaced") } else { title.to_owned() };
                self.outcome.slow.push((took, region, format!("{what}, of {}", job.name())));
            }
        }
        self.start_again().await?;
        for (lane, before) in before {
            let name = lane.job.name();
            // A reset goes back behind what had arrived before; what comes again takes its time.
            eventually("more has arrived than before", WITHIN, || async {
                let after = self.arrived(lane).await?;
                let mut pairs = before.iter().zip(&after);
                ensure!(pairs.all(|(before, after)| after.highest > before.highest), "{name}: {before:?}, {after:?}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// What has arrived at the sink of each region, at a moment at which everything that was sent has.
    async fn arrived(&self, lane: &Lane) -> Result<Vec<SinkStatus>> {
        let name = lane.job.name();
        let sinks = eventually("nothing is missing at the sinks", WITHIN, || async {
            let mut sinks = arrivals(self.pes.statuses(name).await?.values());
            ensure!(sinks.len() as u64 == lane.regions, "{name}: {sinks:?}");
            for sink in &sinks {
                ensure!(sink.lost == 0 && sink.received > 0, "{name}: {sink:?}");
                ensure!(sink.received == sink.highest + 1, "{name}: {sink:?}");
            }
            // That of region 0 is the first.
            sinks.sort_by_key(|sink| sink.operator != "Sink");
            Ok(sinks)
        })
        .await?;
        ensure!(sinks.iter().all(|sink| sink.doubled == 0), "{name}: counted twice: {sinks:?}");
        self.pes.could_read_all(name).await?;
        Ok(sinks)
    }

    /// Ends the process of an operator's PE, as a crash does.
    async fn kill(&self, job: &ObservedJob, operator: &str) -> Result<()> {
        let pe: ProcessingElement = job.pe(operator).await?;
        let pod = pe.status.and_then(|status| status.pod_name).context("no pod")?;
        self.agent.process(&self.namespace, &pod).with_context(|| format!("{pod} does not run"))?.kill().await?;
        Ok(())
    }

    /// Starts the frontends that do not run.
    async fn start_again(&self) -> Result<()> {
        for frontend in self.system.frontends() {
            if frontend.process().id().is_none() {
                frontend.start_again().await?;
            }
        }
        Ok(())
    }

    async fn leader(&self) -> Result<&crate::system::Frontend> {
        eventually("somebody leads", WITHIN, || async {
            for frontend in self.system.frontends() {
                if frontend.metric("streams_frontend_leader").await.is_ok_and(|leads| leads > 0.0) {
                    return Ok(frontend);
                }
            }
            bail!("nobody leads")
        })
        .await
    }
}

/// The ADL of a source, so many channels and a sink, all in one consistent region that is drained after each period, in
/// seconds. The PEs have these environment variables.
pub(super) fn application(channels: u32, period: f64, variables: &str) -> String {
    with_variables(Sketch::steady(channels, &period.to_string(), "15", "20"), variables)
}

fn with_variables(sketch: Sketch, variables: &str) -> String {
    ["Source", "Work", "Sink"].into_iter().fold(sketch, |sketch, name| sketch.of(name).with(variables)).adl()
}

/// Lets the PEs of a job begin with a clean record, as if each had run for long: one that ends again and again is
/// replaced later each time, by minutes in the end (rule pe-10), and this run is not about that.
async fn forgive(job: &ObservedJob) -> Result<()> {
    let clean = Patch::Merge(json!({"status": {"consecutiveRestarts": 0}}));
    for pe in job.list::<ProcessingElement>().await? {
        job.api::<ProcessingElement>().patch_status(&pe.name_any(), &PatchParams::default(), &clean).await?;
    }
    Ok(())
}

async fn region(job: &ObservedJob, index: u64) -> Result<ConsistentRegionStatus> {
    let region: ConsistentRegion = job.api().get(&names::consistent_region(job.name(), index)).await?;
    region.status.context("nobody drives the region")
}

/// Waits until the first region is in a phase. Gives its status then; none if that took too long.
async fn in_phase(job: &ObservedJob, phase: Phase) -> Result<Option<ConsistentRegionStatus>> {
    let until = Instant::now() + PHASE_WITHIN;
    while Instant::now() < until {
        let status = region(job, 0).await?;
        if status.state.as_deref() == Some(phase.name()) {
            return Ok(Some(status));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(None)
}

/// Waits until a checkpoint later than this one is complete and tuples are processed.
async fn until_checkpoint(job: &ObservedJob, index: u64, after: u64) -> Result<()> {
    eventually("a checkpoint is complete", WITHIN, || async {
        let status = region(job, index).await?;
        let last = status.last_completed_checkpoint.unwrap_or_default();
        let ready = condition::get(&status.conditions, condition::READY);
        let why = ready.map_or("", |ready| &ready.message);
        let is_on = last > after && status.state.as_deref() == Some(Phase::Processing.name());
        ensure!(is_on, "region {index} of {}: {:?}, {last}; {why}", job.name(), status.state);
        Ok(())
    })
    .await
}

fn seconds(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64())
}

fn page(options: &RegionOptions, outcome: &RegionOutcome, failure: Option<&str>) -> Result<String> {
    let mut page = String::from("# Soak: consistent regions\n\n");
    page.push_str(
        "Four jobs of five PEs, three in one consistent region and one in two, move numbered tuples through doubles. \
         The PEs of *in-steps* report checkpoints in two steps; in *by-operators* the source says when the region is \
         drained, and the sink asks for a reset every 2,000 tuples; the PEs of *overlapping* that make tuples, and \
         those that count them, are in two regions, and its sources rest until their checkpoints are complete. Again \
         and again a region is waited for in a phase, and PEs, the leading frontend or both are killed at once. After \
         each recovery the sinks must have every number up to the highest exactly once.\n\n",
    );
    let result = failure.map_or_else(
        || "no tuple was lost or counted twice after any recovery, and no region got stuck".to_owned(),
        |failure| format!("**failed**: {failure}"),
    );
    writeln!(page, "Result: {result}.\n")?;
    let minutes = options.duration.as_secs_f64() / 60.0;
    let command = format!("cargo soak consistent-regions --minutes {minutes} --seed {}", options.seed);
    let more = vec![("jobs, frontends", "4, 2".to_owned()), ("tuples a second of each source", RATE.to_string())];
    report::run(&mut page, &command, &outcome.commit, outcome.took, more)?;
    page.push_str("\n## Who was killed, and when\n\n");
    let header = ["", Victims::Pe.name(), Victims::TwoPes.name(), Victims::Leader.name(), Victims::PeAndLeader.name()];
    let rows = Phase::ALL.map(|phase| {
        let count = |victims| outcome.kills.get(&(phase, victims)).copied().unwrap_or(0).to_string();
        let [pe, two, leader, both] = Victims::ALL.map(count);
        [phase.name().to_owned(), pe, two, leader, both]
    });
    report::table(&mut page, header, rows.into_iter())?;
    page.push_str("\n## From the kill to the end of a checkpoint that began later\n\n");
    let killed = ["PEs", "the frontend, which came back at once", "the frontend, and another one took over"];
    let rows = ["of the same job", "of the other jobs"].iter().zip(&outcome.recovered).flat_map(|(whose, kinds)| {
        killed.iter().zip(kinds).map(move |(name, durations)| {
            let shown = durations.percentiles([50, 90, 100]);
            let text = |index: usize| shown.map_or_else(String::new, |shown| seconds(shown[index]));
            let count = durations.count().to_string();
            [(*name).to_owned(), (*whose).to_owned(), count, text(0), text(1), text(2)]
        })
    });
    report::table(&mut page, ["killed", "regions", "times", "median (s)", "90 % (s)", "longest (s)"], rows)?;
    page.push_str(
        "\nWho takes over takes no step before all PEs have come to it, or for 20 s, because they may still report to the \
         leader before (rule consistent-region-14).\n",
    );
    if !outcome.slow.is_empty() {
        writeln!(page, "\nThese took longer than {} s:\n", SLOW.as_secs())?;
        let rows = outcome.slow.iter().map(|(took, region, round)| [region.clone(), round.clone(), seconds(*took)]);
        report::table(&mut page, ["region", "round", "took (s)"], rows)?;
    }
    page.push_str("\n## The regions at the end\n\n");
    let rows = outcome.regions.iter().map(|(region, sink, checkpoint, resets, kept)| {
        let (lost, doubled) = (sink.lost.to_string(), sink.doubled.to_string());
        let counts = [checkpoint.to_string(), resets.to_string(), kept.to_string()];
        let [checkpoint, resets, kept] = counts;
        [region.clone(), sink.received.to_string(), lost, doubled, checkpoint, resets, kept]
    });
    let header = [
        "region",
        "tuples",
        "lost",
        "doubled",
        "last checkpoint",
        "resets of running PEs",
        "checkpoints kept, at most",
    ];
    report::table(&mut page, header, rows)?;
    Ok(page)
}
