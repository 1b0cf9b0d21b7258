//! Drives consistent regions: their PEs checkpoint, and go back, together (the rules of
//! `docs/rules/consistent-region.md`).
//!
//! ```text
//!  members, reports, time ──► decide: steps of the machine ──► act: status ──► mirror ──► reports are answered,
//!                                                                                         PEs are told
//! ```
//!
//! | Module | What it does |
//! |---|---|
//! | [`decide`] | what becomes of a region, and of its status |
//! | [`telling`] | sends PEs what they are told |
//! | [`figures`] | the metrics of regions |
//!
//! What follows from a state happens when the mirror shows it: then it is stored, and whoever asks hears nothing older.
//!
//! Knows: regions, who is in them. Must not know: what a step does, HTTP.
//!
//! Invariants: nobody is told anything that is not stored, or by a replica whose term has ended; a write never replaces
//! a state that was not looked at; a region that another replica has driven takes no step before what its PEs report
//! comes here; nothing is kept of regions that are gone.

mod decide;
mod figures;
mod telling;
#[cfg(test)]
mod tests;

use self::decide::AreLed;
pub(crate) use self::decide::{Decision, Observation};
pub(crate) use self::figures::RegionFigures;
use self::telling::Telling;
use crate::consistent_regions::hand_over::Gap;
use crate::consistent_regions::members::{MembersSeen, MissedAt};
use crate::consistent_regions::reports::Waiting;
use crate::consistent_regions::{ConsistentRegions, stored};
use crate::controllers::consistent_region_service::{Led, Way};
use crate::controllers::messenger::Messenger;
use crate::controllers::reconciler::{self, Next};
use crate::controllers::remembered::Remembered;
use crate::mirrors::ByOwner as _;
use crate::of_job::OfJob;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as KubernetesTime;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::time::Duration;
use streams_api::{ConsistentRegion, Job, names};
use streams_consistent_region::health::Cause;
use streams_consistent_region::{Message, State, Time, health};
use streams_kubernetes::cluster::{Cluster, Manager};
use streams_kubernetes::queue::{Outcome, Queue};
use streams_kubernetes::writer::{StatusWrite, Writer};
use streams_kubernetes::{Error, Key};
use tokio::time::{Instant, timeout};

/// Field manager of this controller.
const MANAGER: Manager = Manager("streams-consistent-region-controller");
/// How long to wait until the mirror shows what was written. It is told later if that takes longer.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

/// Queues every region that changes, or one of whose PEs or pods does; and those of a job that is suspended or resumed.
pub(crate) fn subscribe(regions: &ConsistentRegions, queue: &Queue<Key>) {
    let to = queue.clone();
    regions.members.subscribe(move |region| to.add(region.clone()));
    regions.mirrors.consistent_regions.wake(queue, |region: &ConsistentRegion| [Key::of(region)]);
    // There may be no pod that goes because of that, or comes.
    let (to, mirrors, suspended) = (queue.clone(), regions.mirrors.clone(), Mutex::new(BTreeSet::new()));
    regions.mirrors.jobs.subscribe(move |job: &Job| {
        let key = Key::of(job);
        let is_suspended = mirrors.jobs.get(&key).is_some_and(|job| job.spec.suspend);
        let mut suspended = suspended.lock();
        let is_other = if is_suspended { suspended.insert(key.clone()) } else { suspended.remove(&key) };
        drop(suspended);
        if is_other {
            mirrors.consistent_regions.kept_of_job(&key).into_iter().for_each(|(region, _)| to.add(region));
        }
    });
}

/// What this replica remembers of a region that it drives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// When it found that its PEs are led here.
    led_at: Option<Timestamp>,
    /// When it found that they are not.
    elsewhere_since: Option<Timestamp>,
    /// When it found that they have come.
    come_at: Option<Instant>,
    /// When one of them came last, or none had to.
    heard_at: Option<Instant>,
    /// When it found that they do not come any more. Until all have come again, something may be lost.
    silent_since: Option<Instant>,
    /// It has said to the region that it drives it.
    has_taken_over: bool,
    /// It knows whether the leader before could not store that PEs had lost connections, and has taken a step since.
    has_heard_losses: bool,
    /// The sequence id of the state that was stored last, or was found so.
    sequence: u64,
    /// When its PEs were looked at for the last step. If there was none, what counts is when this replica began.
    looked_at: Option<MissedAt>,
    /// What PEs were told last.
    told: Option<Message>,
    /// When the words of the condition were written last.
    said_at: Option<Time>,
}

/// Drives regions.
pub(crate) struct ConsistentRegionReconciler<C, M> {
    cluster: C,
    regions: ConsistentRegions,
    led: Led,
    telling: Telling<M>,
    figures: RegionFigures,
    memory: Remembered<Memory>,
    /// When this replica began to drive regions.
    begun: MissedAt,
}

impl<C, M: Messenger> ConsistentRegionReconciler<C, M> {
    /// Drives these regions, whose PEs are led here, and tells PEs through this messenger.
    pub(crate) fn new(cluster: C, regions: ConsistentRegions, led: Led, messenger: M, figures: RegionFigures) -> Self {
        let memory = Remembered::default();
        memory.end_with(&regions.mirrors.consistent_regions);
        let begun = regions.members.now();
        Self { cluster, regions, led, telling: Telling::through(messenger), figures, memory, begun }
    }

    /// Puts back reports that were not stored, unless the region has gone meanwhile.
    fn put_back(&self, key: &Key, region: &ConsistentRegion, reports: Vec<Waiting>) {
        let is_there = || {
            let shown = self.regions.mirrors.consistent_regions.kept(key).and_then(|shown| shown.metadata());
            shown.is_some_and(|shown| shown.uid == region.metadata.uid)
        };
        self.regions.reports.put_back(key, reports, is_there);
    }
}

impl<C: Cluster, M: Messenger> reconciler::Reconciler for ConsistentRegionReconciler<C, M> {
    type Answers = ();
    type Observation = Observation;
    type Decision = Decision;

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<Observation>, Error> {
        let Some(region) = self.regions.mirrors.consistent_regions.get(key) else {
            self.regions.reports.forget(key);
            self.regions.answered.forget(key);
            self.figures.remove(key);
            return Ok(None);
        };
        let pes: BTreeSet<u64> = region.spec.pe_ids.iter().copied().collect();
        // Before the reports are taken: what is lost later is not made up for by what comes of these.
        let loss = self.regions.reports.loss(key);
        // Before PEs are looked at: what they have told of their connections before they reported shows then.
        let reports = self.regions.reports.take(key);
        // Of a job that was deleted alone, the region and its PEs are left, and belong together as before.
        let of_job = OfJob::of_child(&region.metadata, region.spec.job_id);
        let (job, members) = (key.sibling(&region.spec.job_name), &self.regions.members);
        let MembersSeen { facts, missed, at: looked_at } = members.look(&job, &of_job, pes.iter().copied());
        let status = region.status.as_ref();
        let has_record = status.is_some_and(|status| status.record.is_some());
        let is_taken_away = !has_record && status.is_some_and(|status| status.state.is_some());
        let created = region.metadata.creation_timestamp.as_ref().filter(|_| !has_record);
        let is_older = |created: &KubernetesTime| members.ran_before(&job, &of_job, pes.iter().copied(), created.0);
        let uid = region.uid().unwrap_or_default();
        let mut memory = self.memory.find(key, &uid, |memory| memory.clone()).unwrap_or_default();
        let came_at = |pe: &u64| {
            let name = job.sibling(&names::processing_element(&job.name, *pe));
            facts.get(pe).and_then(|facts| self.regions.answered.came_at(&name, facts.launch))
        };
        let came: Vec<Option<Instant>> = pes.iter().map(came_at).collect();
        memory.heard_at = came.iter().flatten().copied().max().max(memory.heard_at).or_else(|| Some(Instant::now()));
        let all_came_after = |since: Instant| came.iter().all(|at| at.is_some_and(|at| at > since));
        let now = self.cluster.now();
        let last_look = memory.looked_at.unwrap_or(self.begun);
        let unstored_losses = if memory.has_heard_losses { Some(false) } else { self.regions.has_unstored_losses(key) };
        let missed = missed.filter(|(at, _)| *at > last_look).map(|(_, pe)| pe);
        let are_pes_led_here = memory.has_taken_over || came.iter().all(Option::is_some);
        let (mut way, mut gap) = (Way::ByName, Gap::Possible);
        if !memory.has_taken_over {
            way = self.led.of_job(&job);
            if way == Way::Elsewhere {
                memory.elsewhere_since.get_or_insert(now);
            } else {
                memory.elsewhere_since = None;
                memory.led_at.get_or_insert(now);
            }
            if way == Way::ByAddress {
                if are_pes_led_here {
                    memory.come_at.get_or_insert_with(Instant::now);
                }
                gap = self.regions.gap(key, memory.come_at);
            }
        }
        Ok(Some(Observation {
            has_lost_record: is_taken_away || created.is_some_and(is_older) || memory.has_taken_over && !has_record,
            answered: self.regions.answered.of(key),
            in_several: members.in_several(&job, &of_job, pes.iter().copied()),
            health: health(&pes, |pe| facts.get(&pe).copied()),
            was_missing: missed.map(Cause::WasMissing),
            unstored_losses,
            looked_at,
            reports,
            come_again: memory.silent_since.is_some_and(all_came_after),
            silence: memory.heard_at.map(|at| at.elapsed()).unwrap_or_default(),
            are_pes_led_here,
            way,
            gap,
            loss,
            memory,
            now,
            region,
        }))
    }

    fn decide(observed: &Observation) -> Decision {
        decide::decide(observed)
    }

    async fn act(&self, key: &Key, (): &mut (), observed: Observation, decision: Decision) -> Result<Next, Error> {
        let Observation { region, mut reports, mut memory, now, loss, looked_at, come_again, unstored_losses, .. } =
            observed;
        let now = stored::time(now);
        let Decision { state, written, notices, ignored, is_put_off, is_made_up_for, led, look_again } = decision;
        for reason in ignored {
            tracing::debug!(%key, reason, "nothing comes of what a consistent region was told");
        }
        let mut is_shown = true;
        let mut stored = None;
        if let Some(written) = written {
            let writer = Writer { cluster: &self.cluster, namespace: &key.namespace, manager: MANAGER };
            match writer.replace_status_or_find(&written).await.and_then(StatusWrite::written) {
                Ok(written) => stored = Some(written),
                Err(error) => {
                    self.put_back(key, &region, reports);
                    return Err(error);
                }
            }
        }
        if is_put_off {
            self.put_back(key, &region, std::mem::take(&mut reports));
        } else {
            self.regions.reports.expect(key, state.as_ref().map_or(0, State::missing_reports));
        }
        if let Some(written) = stored {
            memory.said_at = Some(now);
            for notice in notices {
                tracing::info!(%key, reason = &*notice.reason, note = notice.note);
                self.cluster.announce(&written, &notice);
            }
            let shown = self.regions.mirrors.consistent_regions.shows(&written);
            is_shown = timeout(SHOWN_WITHIN, shown).await.is_ok();
        }
        reports.into_iter().for_each(|report| report.answer());
        if let Some(state) = state {
            if !memory.has_taken_over {
                self.regions.reports.take_over(key);
            }
            if let Some(loss) = loss.filter(|_| is_made_up_for) {
                self.regions.reports.make_up_for(key, loss);
            }
            memory.silent_since = memory.silent_since.filter(|_| !come_again && !is_made_up_for);
            if led == AreLed::Silent {
                memory.silent_since.get_or_insert_with(Instant::now);
                // An operator may have drained the region: the next leader has to know.
                drop(self.regions.reports.heard(key));
            }
            if led != AreLed::Expected {
                self.led.doubt(&key.sibling(&region.spec.job_name));
            }
            if state.launches().is_none() {
                memory.heard_at = None;
            }
            memory.has_taken_over = true;
            memory.has_heard_losses |= unstored_losses.is_some();
            memory.sequence = state.sequence();
            memory.looked_at = Some(looked_at);
            // A region of a job that rests is not unwell: its pods are gone because somebody wants it so.
            let job = self.regions.mirrors.jobs.get(&key.sibling(&region.spec.job_name));
            if job.is_some_and(|job| job.spec.suspend) {
                self.figures.remove(key);
            } else {
                self.figures.show(key, &state.figures());
            }
            // Until the mirror shows it, whoever asks would hear something older. It wakes this region when it does.
            if is_shown && memory.told != state.message() && self.regions.are_driven_here() {
                if let Some(launches) = state.launches() {
                    self.telling.tell(&self.regions, key, &region.spec.job_name, launches).await;
                }
                memory.told = state.message();
            }
        }
        self.memory.keep(key, &region.uid().unwrap_or_default(), memory);
        Ok(Next::Rest(look_again.map_or(Outcome::Done, Outcome::Again)))
    }
}
