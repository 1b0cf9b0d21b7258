//! Writes declarations in sequences, as *Acto* does: each field that users can write is set, changed, made invalid,
//! corrected and removed, alone and with others at random, on a real control plane with the real services. What comes
//! of it is judged by [`Oracle`]s that know what users wrote, and nothing of how the operator works.
//!
//! ```text
//!   fields  --> what there is to write, from the schemas        values  --> good and bad values of it
//!      \----------> sequence: steps, each field alone; random: all fields <--/
//!                   sections, scenarios, spoils: what else users do
//!                      |
//!   world  <--> trial: one sequence in a namespace of its own --> judge: what is wrong
//!                children: objects of a job that users delete and change
//!                fresh: jobs to compare with
//! ```
//!
//! Knows: schemas, what users wrote, what they are told. Must not know: how the operator works.

mod children;
mod effects;
mod fields;
mod fresh;
mod judge;
mod propagation;
mod random;
pub mod report;
mod scenarios;
mod sections;
mod sequence;
mod spoils;
mod trial;
mod values;
mod world;

pub use self::judge::Oracle;
use self::sequence::Sequence;
pub use self::trial::Failure;
use self::values::WITHOUT_EFFECT;
use self::world::World;
use super::deployed::as_deployed;
use crate::system::Programs;
use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use streams_api::crds;
use streams_control_plane::ControlPlane;
use streams_control_plane::process::Supervisor;
use streams_control_plane::progress::Progress;
use tokio::sync::Mutex;

/// How often a sequence that failed is run again to find a shorter one.
const SHORTENED: usize = 12;
/// Stands for the effects of all fields, whose names begin with those of the fields.
const EFFECTS: &str = "effects";

/// Options of a run.
#[derive(Debug, Clone)]
pub struct DeclarationOptions {
    /// How long new sequences are begun; each field alone comes first.
    pub duration: Duration,
    /// Seed of the random sequences.
    pub seed: u64,
    /// Sequences at the same time.
    pub at_once: usize,
    /// Only sequences whose name begins like this (`random`: all random ones, `effects`: the effect of each field), or
    /// one in JSON.
    pub only: Option<String>,
}

/// What a run has found.
#[derive(Debug, Default)]
pub struct DeclarationOutcome {
    /// Fields that were tried.
    pub fields: usize,
    /// Sequences of one field that were run, sequences of many, and fields whose effect was looked for.
    pub run: [usize; 3],
    /// Sequences that there are of one field, and fields; more than were run if time was over.
    pub planned: [usize; 2],
    /// What failed, by name of the sequence: the sequence as JSON, and what was wrong.
    pub failures: BTreeMap<String, (String, Failure)>,
    /// What could not be run, and why.
    pub broken: BTreeMap<String, String>,
    /// Fields that are known to have no effect that a run can see, and why.
    pub excepted: BTreeMap<String, String>,
    /// How long it took.
    pub took: Duration,
    /// The commit that was tried, as it was when the run began.
    pub commit: String,
    /// Where the logs are, if something failed.
    pub logs: Option<PathBuf>,
}

/// What is tried in one go.
enum Work {
    Alone(Sequence),
    Random(Sequence),
    /// A field: its name, a spec without it, and values with the specs that have them.
    Effect(String, Value, Vec<(Value, Value)>),
}

/// Runs it.
///
/// # Errors
/// The run cannot begin, or a part of the system does not end. What is wrong with the operator is in the result.
pub async fn run(
    supervisor: &Supervisor,
    options: &DeclarationOptions,
    stop: impl Future<Output = ()>,
) -> Result<DeclarationOutcome> {
    let commit = super::commit::commit();
    let programs = Programs::build(supervisor).await?;
    let progress = Progress::begin("control plane and services");
    let control_plane = ControlPlane::start(
        supervisor,
        &streams_control_plane::Options { crds: crds::crds()?, nodes: 4, ..streams_control_plane::Options::default() },
    )
    .await?;
    let system = as_deployed(supervisor, &programs, &control_plane).await?;
    let world = World::new(control_plane, system.bundles()).await?;
    progress.done();

    let start = Instant::now();
    let fields = fields::of_spec("Job")?;
    let work = work(options, &fields)?;
    let outcome = DeclarationOutcome {
        fields: fields.len(),
        planned: [
            work.iter().filter(|work| matches!(work, Work::Alone(_))).count(),
            work.iter().filter(|work| matches!(work, Work::Effect(..))).count(),
        ],
        commit,
        ..DeclarationOutcome::default()
    };
    let outcome = Mutex::new(outcome);
    let progress = Progress::begin(format!("declarations of {} fields", fields.len()));
    let deadline = start + options.duration;
    let over = std::sync::atomic::AtomicBool::new(false);
    let is_over = || over.load(std::sync::atomic::Ordering::Relaxed) || Instant::now() > deadline;
    let random = (options.only.as_deref().is_none_or(|only| only == "random"))
        .then(|| (0..).map(|number| Work::Random(random::random(options.seed, number, &fields))));
    let all = work.into_iter().chain(random.into_iter().flatten());
    let (world_, outcome_, progress_) = (&world, &outcome, &progress);
    let everything = stream::iter(all.take_while(|_| !is_over()))
        .map(|work| -> BoxFuture<'_, ()> { Box::pin(try_one(world_, outcome_, progress_, work, deadline)) })
        .buffer_unordered(options.at_once)
        .collect::<Vec<()>>();
    let stop = async {
        stop.await;
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        std::future::pending::<()>().await
    };
    tokio::select! {
        _ = everything => {}
        () = stop => {}
    }
    progress.done();
    let mut outcome = outcome.into_inner();
    outcome.took = start.elapsed();
    if !outcome.failures.is_empty() || !outcome.broken.is_empty() {
        system.state().leave();
        outcome.logs = Some(system.state().path().to_owned());
    }
    drop(system);
    world.control_plane.stop().await?;
    Ok(outcome)
}

/// What is tried first: each field alone, and its effect.
fn work(options: &DeclarationOptions, fields: &[fields::Field]) -> Result<Vec<Work>> {
    if let Some(text) = options.only.as_deref().filter(|text| text.starts_with('{')) {
        return Ok(vec![Work::Alone(
            serde_json::from_str(text).context("--sequence is neither a name nor a sequence")?,
        )]);
    }
    if let Some(number) = options.only.as_deref().and_then(|name| name.strip_prefix("random/")) {
        let number = number.parse().context("random sequences have numbers")?;
        return Ok(vec![Work::Random(random::random(options.seed, number, fields))]);
    }
    let is_asked_for = |name: &str| options.only.as_ref().is_none_or(|only| name.starts_with(only.as_str()));
    let are_effects_asked_for = options.only.as_deref() == Some(EFFECTS);
    let sequences = sequence::alone(fields)
        .into_iter()
        .chain(sections::all()?)
        .chain(scenarios::all()?)
        .filter(|sequence| is_asked_for(&sequence.name));
    let mut work: Vec<_> = sequences.map(Work::Alone).collect();
    for field in fields {
        let values = values::of(field);
        let with = |value: &Value| (value.clone(), sequence::with(&values.context, field, value));
        let specs: Vec<_> = values.good.iter().map(with).collect();
        let name = format!("{field}/has an effect");
        if !specs.is_empty() && (are_effects_asked_for || is_asked_for(&name)) {
            work.push(Work::Effect(field.name.clone(), sequence::base_for(&values.context), specs));
        }
    }
    Ok(work)
}

async fn try_one(
    world: &World,
    outcome: &Mutex<DeclarationOutcome>,
    progress: &Progress,
    work: Work,
    deadline: Instant,
) {
    let (index, name, text, result) = match &work {
        Work::Alone(sequence) | Work::Random(sequence) => {
            let index = usize::from(matches!(work, Work::Random(_)));
            let result = trial::run(world, sequence).await;
            (index, sequence.name.clone(), serde_json::to_string(sequence).unwrap_or_default(), result)
        }
        Work::Effect(field, without, with) => {
            let text = serde_json::to_string(with).unwrap_or_default();
            (2, format!("{field}/has an effect"), text, effect(world, outcome, field, without, with).await)
        }
    };
    let failure = match result {
        Ok(failure) => failure,
        Err(error) => {
            outcome.lock().await.broken.insert(name.clone(), format!("{error:#}"));
            None
        }
    };
    if let Some(failure) = failure {
        eprintln!("FAILED {name}: {}: {}\n  {text}", failure.oracle, failure.what);
        outcome.lock().await.failures.insert(name.clone(), (text, failure.clone()));
        if let Work::Random(sequence) = &work
            && let Some((shorter, failure)) = shorten(world, sequence, &failure, deadline).await
        {
            let text = serde_json::to_string(&shorter).unwrap_or_default();
            eprintln!("SHORTER {name}: {}\n  {text}", failure.what);
            outcome.lock().await.failures.insert(name, (text, failure));
        }
    }
    let mut outcome = outcome.lock().await;
    if let Some(count) = outcome.run.get_mut(index) {
        *count += 1;
    }
    let [alone, random, effects] = outcome.run;
    let failed = outcome.failures.len();
    progress.at(format!("{alone} sequences of one field, {random} of many, {effects} effects, {failed} failed"));
}

/// Looks for a value of the field with which a job differs from one without; each value must show where it belongs.
async fn effect(
    world: &World,
    outcome: &Mutex<DeclarationOutcome>,
    field: &str,
    without: &Value,
    with: &[(Value, Value)],
) -> Result<Option<Failure>> {
    let failed = |what: String| Ok(Some(Failure { oracle: Oracle::Effect, after: 0, what }));
    for (value, spec) in with.iter().filter(|_| effects::is_listed(field)) {
        let Some(picture) = fresh::picture(world, spec, &BTreeMap::new(), 0, true).await? else {
            return failed(format!("{value} is refused"));
        };
        if let Some(what) = effects::unshown(field, value, &picture) {
            return failed(what);
        }
    }
    for (_, spec) in with {
        if fresh::differ(world, without, spec).await? {
            return Ok(None);
        }
    }
    // Whatever a job is compared with must have the one value that there can be.
    if with.len() == 1 && effects::is_listed(field) {
        return Ok(None);
    }
    if let Some((_, reason)) = WITHOUT_EFFECT.iter().find(|(name, _)| *name == field) {
        outcome.lock().await.excepted.insert(field.to_owned(), (*reason).to_owned());
        return Ok(None);
    }
    failed("pods, texts, Services and conditions are the same with the field and without it".to_owned())
}

/// A shorter sequence that fails by the same oracle, if one is found until then.
async fn shorten(
    world: &World,
    sequence: &Sequence,
    failure: &Failure,
    deadline: Instant,
) -> Option<(Sequence, Failure)> {
    let (mut shortest, mut tries) = (None, 0);
    let mut current = sequence.clone();
    'shorter: loop {
        for candidate in sequence::shorter(&current) {
            tries += 1;
            if tries > SHORTENED || Instant::now() > deadline {
                return shortest;
            }
            if let Ok(Some(found)) = trial::run(world, &candidate).await
                && found.oracle == failure.oracle
            {
                current = candidate;
                shortest = Some((current.clone(), found));
                continue 'shorter;
            }
        }
        return shortest;
    }
}
