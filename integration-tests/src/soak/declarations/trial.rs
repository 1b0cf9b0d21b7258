//! One sequence, from its namespace to the end of it.
//!
//! Knows: steps, oracles. Must not know: which sequences there are.

use super::children::{Child, Lost, Spoilt};
use super::judge::{Oracle, Standing, has_one_of, is_pinned};
use super::propagation::Propagation;
use super::sequence::{End, Sequence, Step};
use super::world::{Answer, JOB, WITHIN, World};
use super::{fields, fresh};
use crate::system::picture::{self, Likeness};
use anyhow::{Context as _, Result, bail, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use streams_api::{ParallelRegion, ProcessingElement, condition, names};
use streams_control_plane::wait::eventually;

/// How long an explanation must stay.
const SAID_FOR: Duration = Duration::from_millis(1_500);
/// How long a job must stay ready: a controller that has not heard of an edit yet says nothing of it.
const READY_FOR: Duration = Duration::from_millis(600);
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// Begins the place of a cause: a PE that is asked to stop.
const STOPPED: &str = "the stopped PE ";

/// What was found to be wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// By which oracle.
    pub oracle: Oracle,
    /// After how many steps.
    pub after: usize,
    /// In words.
    pub what: String,
}

/// A sequence while it is run.
struct Trial<'a> {
    world: &'a World,
    namespace: String,
    /// What the user wants.
    spec: Value,
    exists: bool,
    /// What is wrong with it at the moment, by place.
    causes: BTreeMap<String, Vec<String>>,
    was_bad: bool,
    widths: BTreeMap<String, Value>,
    /// Widths have changed while a PE was stopped.
    resized_beside_stopped: bool,
    restarts: u32,
    lost: Vec<Lost>,
    spoilt: Vec<Spoilt>,
    steps: usize,
}

/// Why a trial ends early: the job is at fault, or the harness.
enum Ended {
    Failure(Failure),
    Broken(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Broken(error.into())
    }
}

/// Runs a sequence: what is wrong, or nothing.
///
/// # Errors
/// When it cannot be run.
pub(super) async fn run(world: &World, sequence: &Sequence) -> Result<Option<Failure>> {
    let namespace = world.namespace().await?;
    let mut trial = Trial {
        world,
        namespace: namespace.clone(),
        spec: json!({}),
        exists: false,
        causes: BTreeMap::new(),
        was_bad: false,
        widths: BTreeMap::new(),
        resized_beside_stopped: false,
        restarts: 0,
        lost: Vec::new(),
        spoilt: Vec::new(),
        steps: 0,
    };
    let ended = trial.whole(sequence).await;
    match ended {
        Ok(()) => Ok(None),
        Err(ended) => {
            // Whatever is left of it.
            let _ = world.leave(&namespace).await;
            match ended {
                Ended::Failure(failure) => Ok(Some(failure)),
                Ended::Broken(error) => Err(error.context(format!("{} in {namespace}", sequence.name))),
            }
        }
    }
}

impl Trial<'_> {
    async fn whole(&mut self, sequence: &Sequence) -> Result<(), Ended> {
        for step in &sequence.steps {
            let begun = self.begin(step).await?;
            self.steps += 1;
            if begun && self.exists {
                self.converge(step).await?;
                self.no_pod_noticed().await?;
            }
        }
        let is_at_rest = !matches!(sequence.steps.last(), Some(Step::Begun(_)));
        if self.exists && self.causes.is_empty() && is_at_rest {
            self.like_a_fresh_one().await?;
        }
        self.end(sequence.end).await
    }

    fn failure(&self, oracle: Oracle, what: String) -> Ended {
        Ended::Failure(Failure { oracle, after: self.steps, what })
    }

    /// Does a step. Says whether there is something to wait for.
    async fn begin(&mut self, step: &Step) -> Result<bool, Ended> {
        match step {
            Step::Create { spec, words, refused } => {
                self.spec = spec.clone();
                let answer = self.world.create(&self.namespace, spec).await?;
                self.exists = self.taken("the spec", answer, words, false)?;
                self.must_be_refused(self.exists && *refused)?;
                if self.exists && !words.is_empty() {
                    self.causes.insert("the spec".to_owned(), words.clone());
                }
                Ok(self.exists)
            }
            Step::Set { at, value, words, refused } => {
                let is_taken = self.set(at, value, words).await?;
                self.must_be_refused(is_taken && *refused)?;
                Ok(is_taken)
            }
            Step::Width { region, width, words } => {
                let answer = self.world.resize(&self.namespace, region, width).await?;
                let is_taken = self.taken(region, answer, words, false)?;
                if is_taken {
                    self.causes.remove(region);
                    self.widths.insert(region.clone(), width.clone());
                    self.resized_beside_stopped |= self.causes.keys().any(|place| place.starts_with(STOPPED));
                    if !words.is_empty() {
                        self.causes.insert(region.clone(), words.clone());
                    }
                }
                Ok(is_taken)
            }
            Step::Restart => {
                self.restarts += 1;
                self.world.restart(&self.namespace, &self.restarts.to_string()).await?;
                self.causes.retain(|place, _| !place.starts_with(STOPPED));
                Ok(true)
            }
            Step::Stop(pe) => {
                self.world.stop(&self.namespace, *pe, json!(format!("after step {}", self.steps))).await?;
                self.causes.insert(format!("{STOPPED}{pe}"), vec!["StopRequested".to_owned()]);
                Ok(true)
            }
            Step::Go(pe) => {
                self.world.stop(&self.namespace, *pe, Value::Null).await?;
                self.causes.remove(&format!("{STOPPED}{pe}"));
                Ok(true)
            }
            Step::Lose(child, propagation) => {
                self.lost.push(Lost::new(self.world, &self.namespace, *child, *propagation).await?);
                if *child == Child::ProcessingElement {
                    // The request goes with the object.
                    self.causes.remove(&format!("{STOPPED}0"));
                }
                Ok(true)
            }
            Step::Spoil { child, number, at, values } => {
                let spoilt = Spoilt::new(self.world, &self.namespace, (*child, *number), at, values).await?;
                self.spoilt.extend(spoilt);
                Ok(true)
            }
            Step::Together(steps) => self.all(steps).await,
            Step::Begun(steps) => self.all(steps).await.map(|_| false),
            Step::Again(propagation) => {
                self.world.delete(&self.namespace, *propagation).await?;
                self.widths.clear();
                self.resized_beside_stopped = false;
                self.causes.retain(|place, _| !place.starts_with(STOPPED));
                let spec = self.spec.clone();
                let again = eventually("the name can be used again", WITHIN, || async {
                    match self.world.create(&self.namespace, &spec).await? {
                        Answer::Taken => Ok(()),
                        Answer::Refused(said) => bail!("{said}"),
                    }
                });
                again.await.map_err(|error| self.failure(Oracle::Deletion, format!("{error:#}")))?;
                if *propagation == Propagation::Orphan {
                    let words = ["taken".to_owned(), "in the way".to_owned()];
                    self.causes.insert("what the job before left".to_owned(), words.into());
                }
                Ok(true)
            }
        }
    }

    /// Does steps at once. Says whether there is something to wait for.
    async fn all(&mut self, steps: &[Step]) -> Result<bool, Ended> {
        let mut begun = false;
        for step in steps {
            begun |= Box::pin(self.begin(step)).await?;
        }
        Ok(begun)
    }

    /// Writes a field; what a refused creation wanted is created with the next field that is written.
    async fn set(&mut self, at: &[String], value: &Value, words: &[String]) -> Result<bool, Ended> {
        let place = at.join(".");
        // What is wrong in a map goes only if its key does.
        let is_corrected = self.causes.contains_key(&place);
        let before = self.spec.pointer(&format!("/{}", at.join("/"))).filter(|_| is_corrected);
        let patch =
            fields::patch(at, &before.map_or_else(|| value.clone(), |before| fields::instead_of(before, value)));
        let wanted = fields::merged(&self.spec, &patch);
        let answer = if self.exists {
            self.world.edit(&self.namespace, &patch).await?
        } else {
            self.world.create(&self.namespace, &wanted).await?
        };
        // A merge patch of nothing changes nothing, so there is nothing to be said of it.
        let words = if self.exists && wanted == self.spec { &[] } else { words };
        let existed = self.exists;
        let is_taken = self.taken(&place, answer, words, value.is_null())?;
        if is_taken || !existed {
            self.spec = wanted;
        }
        if is_taken {
            self.exists = true;
            // Whatever was wrong in there is written anew as well.
            let inner = format!("{place}.");
            self.causes.retain(|other, _| *other != place && *other != "the spec" && !other.starts_with(&inner));
            if !words.is_empty() {
                self.causes.insert(place, words.to_vec());
            }
        }
        Ok(is_taken)
    }

    /// Judges an answer of the API server.
    fn taken(&mut self, place: &str, answer: Answer, words: &[String], removes: bool) -> Result<bool, Ended> {
        self.was_bad |= !words.is_empty();
        let Answer::Refused(said) = answer else { return Ok(true) };
        let parts: Vec<String> = place.split('.').map(str::to_owned).collect();
        let is_told = has_one_of(&said, words) || (!words.is_empty() && has_one_of(&said, &parts));
        match words {
            // What a spec must have cannot be removed, and what it was compiled from cannot be changed.
            [] if is_pinned(&said) || (removes && has_one_of(&said, &parts)) => Ok(false),
            [] => Err(self.failure(Oracle::Convergence, format!("a good value of {place} is refused: {said}"))),
            _ if is_told || is_pinned(&said) => Ok(false),
            _ => Err(self.failure(Oracle::Convergence, format!("the refusal does not name {words:?}: {said}"))),
        }
    }

    fn must_be_refused(&self, is_taken: bool) -> Result<(), Ended> {
        if is_taken {
            let what = "the API server takes a value of another type, or out of its bounds".to_owned();
            return Err(self.failure(Oracle::Convergence, what));
        }
        Ok(())
    }

    /// Waits until the job is ready, or says why it is not.
    async fn converge(&self, step: &Step) -> Result<(), Ended> {
        let deadline = Instant::now() + WITHIN;
        let (mut good_since, mut seen) = (None, String::new());
        while Instant::now() < deadline {
            let job = self.world.job(&self.namespace).await?.context("the job is gone")?;
            let standing = Standing::of(&job);
            let unnoticed = self.unnoticed(step).await?;
            let hidden = standing.hides(&self.causes);
            let is_good = standing.is_seen
                && unnoticed.is_none()
                && if self.causes.is_empty() {
                    standing.is_ready
                } else {
                    hidden.is_empty() || (standing.is_ready && self.is_outdated().await?)
                };
            seen = match (&unnoticed, hidden.is_empty()) {
                (Some(unnoticed), _) => format!("{unnoticed}; {}", standing.says),
                (None, false) => format!("nothing is said of {hidden:?} ({:?}); {}", self.causes, standing.says),
                (None, true) => standing.says,
            };
            let since = *good_since.get_or_insert_with(Instant::now);
            let enough = if self.causes.is_empty() { READY_FOR } else { SAID_FOR };
            match is_good {
                true if since.elapsed() >= enough => return Ok(()),
                true => {}
                false => good_since = None,
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let oracle = if self.was_bad && self.causes.is_empty() { Oracle::Recovery } else { Oracle::Convergence };
        Err(self.failure(oracle, format!("not within {} s: {seen}", WITHIN.as_secs())))
    }

    /// What of the step the operator has not noticed yet, beside the spec of the job.
    async fn unnoticed(&self, step: &Step) -> Result<Option<String>> {
        match step {
            Step::Width { region, .. } => {
                let regions = self.world.list::<ParallelRegion>(&self.namespace).await?;
                let Some(found) = regions.into_iter().find(|found| found.spec.name == *region) else {
                    return Ok(Some(format!("there is no region {region}")));
                };
                let status = found.status.unwrap_or_default();
                let is_noticed = status.observed_generation == found.metadata.generation
                    && (status.width == Some(found.spec.width) || status.rejected.is_some());
                Ok((!is_noticed).then(|| format!("region {region} has width {:?}", status.width)))
            }
            // What waits for a correction does not restart.
            Step::Restart if self.causes.is_empty() => {
                let pes = self.world.list::<ProcessingElement>(&self.namespace).await?;
                // One that is newer than the request was not asked.
                let left = pes.iter().find(|pe| {
                    let asked = pe.annotations().get(names::ANNOTATION_RESTART_REQUESTED);
                    let status = pe.status.clone().unwrap_or_default();
                    asked.is_some() && status.restart_requested.as_ref() != asked
                });
                Ok(left.map(|pe| format!("PE {} has not restarted", pe.spec.id)))
            }
            Step::Together(steps) => {
                for step in steps {
                    if let Some(unnoticed) = Box::pin(self.unnoticed(step)).await? {
                        return Ok(Some(unnoticed));
                    }
                }
                Ok(None)
            }
            _ => self.not_restored().await,
        }
    }

    async fn not_restored(&self) -> Result<Option<String>> {
        for lost in &self.lost {
            if let Some(missing) = lost.missing(self.world, &self.namespace).await? {
                return Ok(Some(missing));
            }
        }
        for spoilt in &self.spoilt {
            if let Some(difference) = spoilt.differs(self.world, &self.namespace).await? {
                return Ok(Some(difference));
            }
        }
        Ok(None)
    }

    /// After everything was restored: nothing that runs was replaced by that.
    async fn no_pod_noticed(&mut self) -> Result<(), Ended> {
        self.lost.clear();
        for spoilt in std::mem::take(&mut self.spoilt) {
            let replaced = spoilt.replaced(self.world, &self.namespace).await?;
            if !replaced.is_empty() {
                let what = format!("pods were replaced because somebody changed an object: {replaced:?}");
                return Err(self.failure(Oracle::SameObjects, what));
            }
        }
        Ok(())
    }

    /// Whether a PE says that it will be as its options say when it restarts.
    async fn is_outdated(&self) -> Result<bool> {
        let pes = self.world.list::<ProcessingElement>(&self.namespace).await?;
        let conditions = |pe: &ProcessingElement| pe.status.clone().unwrap_or_default().conditions;
        Ok(pes.iter().any(|pe| condition::is_true(&conditions(pe), condition::OUTDATED)))
    }

    /// All PEs restart, because options count from then on; then the job must be like one that was never anything else.
    async fn like_a_fresh_one(&mut self) -> Result<(), Ended> {
        self.begin(&Step::Restart).await?;
        self.converge(&Step::Restart).await?;
        let job = self.world.job(&self.namespace).await?.unwrap_or_default();
        let number = job.pointer("/status/jobId").and_then(Value::as_u64).unwrap_or_default();
        let fresh = fresh::picture(self.world, &self.spec, &self.widths, number, true).await;
        let fresh = match fresh {
            Ok(Some(fresh)) => fresh,
            Ok(None) => return Err(self.failure(Oracle::SameObjects, "a fresh job of this spec is refused".to_owned())),
            Err(error) => {
                return Err(
                    self.failure(Oracle::SameObjects, format!("a fresh job of this spec is not ready: {error:#}"))
                );
            }
        };
        let likeness = match (self.widths.is_empty(), self.resized_beside_stopped) {
            (true, _) => Likeness::Whole,
            (false, false) => Likeness::Operators,
            (false, true) => Likeness::OperatorsOfAnyPes,
        };
        let alike = eventually("it is like a fresh one", WITHIN / 3, || async {
            let differences = self.world.picture(&self.namespace).await?.differences(&fresh, likeness);
            ensure!(differences.is_empty(), "{}", differences.join("; "));
            Ok(())
        });
        alike.await.map_err(|error| self.failure(Oracle::SameObjects, format!("{error:#}")))
    }

    /// Deletes the job or its namespace; nothing may stay.
    async fn end(&self, end: End) -> Result<(), Ended> {
        let deleted = async {
            if let End::Job(propagation) = end
                && self.exists
            {
                self.world.delete(&self.namespace, propagation).await?;
                eventually("nothing is left", WITHIN, || async {
                    ensure!(self.world.job(&self.namespace).await?.is_none(), "the job is");
                    let left = picture::names_of(&self.world.client, &self.namespace, JOB).await?;
                    ensure!(propagation == Propagation::Orphan || left.is_empty(), "{}", left.join(", "));
                    Ok(())
                })
                .await?;
            }
            self.world.leave(&self.namespace).await?;
            if end == End::Namespace {
                self.world.gone(&self.namespace).await?;
            }
            anyhow::Ok(())
        };
        deleted.await.map_err(|error| self.failure(Oracle::Deletion, format!("{error:#}")))
    }
}
