//! What PEs tell of their connections, until it is written (rule pe-api-4).
//!
//! If a PE is replaced with which a thousand others are connected, each of those loses a connection and has it again a
//! moment later, and tells both. The API server takes longer for that many writes than the runtime waits, and whatever
//! else is to be written waits beside them. So the last word of each PE waits here for its turn, jobs and namespaces
//! take turns, and what is written is decided then: nothing, if all is as it was before. But a consistent region must
//! not miss that one of its PEs had lost connections, though it has them again: that is counted, and the number written
//! (rule consistent-region-2).
//!
//! What the mirror shows may be older than what a PE has told another replica, also if this one has written it. So of
//! a report that is as the mirror shows, the API server is asked, when it is its turn; but not if the mirror is known
//! to be new enough, by what was written of other PEs meanwhile: where many tell at once, few have to be asked for.
//! Those who wait for the answer look themselves from time to time whether it is, so that what is stored already does
//! not wait until all is written that others have told.
//!
//! Knows: PEs, what the mirror shows of them, who says in which regions they are. Must not know: HTTP, who may tell.
//!
//! Invariants: a PE has one report here at most, which is its last; few are written at the same time, and of a PE that
//! tells something else again and again one after each pause; who is answered without an error has told what is stored,
//! or has told something else since, or is a pod that is over; what nobody waits for is not written [`KEPT_FOR`] after
//! it was told, nor when PEs are led to another replica: they may have told that one something else. That a PE of a
//! consistent region has lost connections is written then, too: it says so once, and to one replica. Nor does that wait
//! for the end of a pause, or long after a failure: a checkpoint may become complete meanwhile. Of which regions it is
//! not stored yet, who ends this replica is told, and the next leader with it. Nothing is kept of PEs
//! that are gone, and nothing that one has told is taken for the word of another one that is made under its name.

use super::refusal::Refusal;
use super::workers::Workers;
use super::write::{Change, WITHIN, refusal_of, too_long};
use crate::consistent_regions::members::Members;
use crate::long_objects::is_long;
use crate::owner::owner_of_child;
use crate::status_changes::{StatusChanges, Unchanged};
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Connectivity, ProcessingElement, ReportedConnectivity};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{Cluster, troubles_of};
use streams_kubernetes::gate::Priority;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{self, BackOff, Outcome, Queue, Sharing};
use streams_kubernetes::watch::Watch;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// Reports that are written at the same time, and those of one namespace. Other writes of PEs go on beside them.
pub(super) const AT_A_TIME: usize = 6;
const OF_NAMESPACE: usize = 4;
/// What another replica had begun to write when the PE was led here has mostly had its effect after that.
const EFFECT: Duration = Duration::from_secs(1);
/// How often somebody who waits looks whether the mirror is known to show what was told.
const LOOK: Duration = Duration::from_millis(100);
/// The longest pause that the runtime makes before it tells again.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// How fast what a PE has told is paid off: one report in this time costs nobody anything.
const EACH: Duration = Duration::from_secs(5);
/// Reports of a PE in a row that are written at once: it has lost connections, and has them again.
const AT_ONCE: u32 = 6;
/// Those after which it has the longest pause.
const MANY: u32 = 18;
/// The pause in between. What is written after it is answered before the runtime gives up.
const PAUSE: Duration = Duration::from_millis(500);

/// When losses of a PE of a region are written that could not be: after 2 s at most, with jitter.
const OF_LOSSES: BackOff = BackOff { first: Duration::from_millis(250), max: Duration::from_secs(1) };

/// Whether PEs are led to other replicas, because this one ends or sees too little.
pub(crate) type LedAway = Arc<dyn Fn() -> bool + Send + Sync>;

/// Reports by PE. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Reports {
    inner: Arc<Mutex<Inner>>,
    mirror: Watch<ProcessingElement>,
    queue: Queue<Key>,
    workers: Workers,
}

#[derive(Default)]
struct Inner {
    waiting: HashMap<Key, Waiting>,
    /// PEs of which something is being written.
    writing: HashSet<Key>,
    paces: HashMap<Key, Pace>,
}

/// What a PE has told last, of which nothing is being written.
#[derive(PartialEq)]
struct LastWord {
    uid: Option<String>,
    report: ReportedConnectivity,
    /// All that are not known to be stored.
    losses: Losses,
}

/// How fast a PE tells.
#[derive(Default)]
struct Pace {
    /// When all that it has told is paid off.
    paid_off: Option<Instant>,
    /// Nothing is written before.
    quiet_until: Option<Instant>,
}

/// The last word of a PE.
struct Waiting {
    /// The uid of the PE.
    uid: Option<String>,
    report: ReportedConnectivity,
    /// When somebody told it.
    told: Instant,
    /// Nothing has been begun for it. If the same was, it does not count: the PE may have told another replica
    /// something else in between.
    is_news: bool,
    /// The PE may have told another replica something else: only what it has lost is written.
    is_withdrawn: bool,
    /// What the PE has told of connections that it lost since a write was begun.
    losses: Losses,
    /// The same of the write that has begun, until that is known to have succeeded.
    begun: Losses,
    /// Writes of losses that have failed since.
    failures: u32,
    answers: Vec<oneshot::Sender<Result<(), Refusal>>>,
}

/// What a PE has told of connections that it lost, though it may have told since that it has them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Losses {
    /// It has told that it does not have all connections: it has lost some if it had all before.
    has_not_all: bool,
    /// It has told so after it had told that it has all.
    has_lost: bool,
}

impl Losses {
    /// What a word says by itself.
    fn of(report: &ReportedConnectivity) -> Self {
        Self { has_not_all: report.state != Connectivity::Full, has_lost: false }
    }

    fn and(self, other: Self) -> Self {
        Self { has_not_all: self.has_not_all || other.has_not_all, has_lost: self.has_lost || other.has_lost }
    }
}

/// What a worker finds.
enum Turn {
    Nothing,
    Later(Duration),
    Write(Writing),
}

/// What is written of the PE with this uid.
struct Writing {
    uid: Option<String>,
    /// What was there by then must be known.
    known_until: Instant,
    report: ReportedConnectivity,
    /// Only what it has lost counts.
    is_withdrawn: bool,
    losses: Losses,
}

/// What workers write with.
struct Work<C> {
    inner: Arc<Mutex<Inner>>,
    mirror: Watch<ProcessingElement>,
    statuses: StatusChanges<C>,
    are_led_away: LedAway,
}

impl Reports {
    /// Reports that are written with `statuses`, of PEs that this mirror shows. Its workers run on the runtime around,
    /// and end with the last clone.
    pub(super) fn new<C: Cluster>(
        statuses: StatusChanges<C>,
        mirror: Watch<ProcessingElement>,
        are_led_away: LedAway,
        metrics: &Metrics,
    ) -> Self {
        let sharing = Sharing {
            owner: owner_of_child,
            per_namespace: OF_NAMESPACE,
            not_urgent: AT_A_TIME,
            not_urgent_per_namespace: OF_NAMESPACE,
        };
        let troubles = troubles_of(&statuses.cluster);
        let queue = Queue::new("connectivity", BackOff::default(), sharing, metrics).with_troubles(troubles);
        let queue = mirror.refusals().hold_back(queue);
        let inner = Arc::<Mutex<Inner>>::default();
        let following = Arc::clone(&inner);
        mirror.subscribe_to_departures(move |pe, _| {
            let key = Key::of(pe);
            let mut inner = following.lock();
            inner.paces.remove(&key);
            if let Entry::Occupied(waiting) = inner.waiting.entry(key)
                && waiting.get().uid == pe.metadata.uid
            {
                let (key, mut waiting) = waiting.remove_entry();
                waiting.answer(&Err(gone(&key)));
            }
        });
        let work = Arc::new(Work { inner: Arc::clone(&inner), mirror: mirror.clone(), statuses, are_led_away });
        let workers = queue::run(queue.clone(), AT_A_TIME, move |key: Key| {
            let work = Arc::clone(&work);
            async move { work.write(&key).await }
        });
        Self { inner, mirror, queue, workers: Workers::begin(workers) }
    }

    /// Waits until what the PE with this uid has told is stored and the mirror shows it, or the PE tells something
    /// else. Who stops waiting has told it nevertheless.
    ///
    /// # Errors
    /// The PE is gone; the API server refuses; nothing comes of it in time.
    pub(super) async fn tell(
        &self,
        pe: &Key,
        uid: Option<String>,
        report: ReportedConnectivity,
    ) -> Result<(), Refusal> {
        let (answer, mut answered) = oneshot::channel();
        let told = Instant::now();
        let new = Waiting {
            uid,
            told,
            is_news: true,
            is_withdrawn: false,
            losses: Losses::of(&report),
            begun: Losses::default(),
            failures: 0,
            report,
            answers: vec![answer],
        };
        if !self.put(pe, new)? {
            return Ok(());
        }
        self.queue.add(pe.clone());
        let looks = async {
            loop {
                match timeout(LOOK, &mut answered).await {
                    Err(_) if self.is_stored(pe, told) => return Ok(Ok(())),
                    Err(_) => {}
                    Ok(answer) => return answer,
                }
            }
        };
        match timeout(WITHIN, looks).await {
            Ok(Ok(answer)) => answer,
            // The worker has ended, or does not come to it.
            Ok(Err(_)) | Err(_) => Err(too_long()),
        }
    }

    /// Whether the last word of the PE is what it has told at this moment, and is known to be stored by what the mirror
    /// shows: then it has been heard, and nothing is written.
    fn is_stored(&self, pe: &Key, told: Instant) -> bool {
        let now = Instant::now();
        if !self.mirror.is_as_of(pe, known_until(told, now)) {
            return false;
        }
        // The mirror is read after that: it shows all that was written of the PE, as nothing is being written.
        let Some(word) = self.inner.lock().last_word(pe, told, now) else { return false };
        let kept = self.mirror.kept(pe).filter(|kept| !is_long(kept.octets()));
        let Some(shown) = kept.and_then(|kept| kept.read()) else { return false };
        if shown.metadata.uid != word.uid || changed(&shown, &word.report, word.losses).is_some() {
            return false;
        }
        let mut inner = self.inner.lock();
        if inner.last_word(pe, told, now) != Some(word) {
            return false;
        }
        if let Some(mut waiting) = inner.waiting.remove(pe) {
            waiting.answer(&Ok(()));
        }
        inner.paces.entry(pe.clone()).or_default().count(now);
        true
    }

    /// Regions of PEs that have told of connections which they lost, as long as nothing of that is known to be stored.
    /// Whoever asks does not keep the workers going, and does so often: no object is read.
    pub(super) fn regions_with_losses(&self, members: Members) -> impl Fn() -> BTreeSet<Key> + Send + Sync + use<> {
        let inner = Arc::clone(&self.inner);
        move || {
            let of_losses = |(pe, waiting): (&Key, &Waiting)| waiting.has_losses().then(|| pe.clone());
            let pes: Vec<Key> = inner.lock().waiting.iter().filter_map(of_losses).collect();
            members.regions_of(&pes)
        }
    }

    /// Waits until nothing is written any more.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.workers.ended()
    }

    /// This is the last word of the PE, and waits now; not if a later pod of the PE has told something.
    ///
    /// # Errors
    /// The PE is gone, and another one of its name has told something.
    fn put(&self, pe: &Key, mut new: Waiting) -> Result<bool, Refusal> {
        let mut inner = self.inner.lock();
        match inner.waiting.entry(pe.clone()) {
            Entry::Occupied(mut before) => {
                let before = before.get_mut();
                if before.uid != new.uid {
                    // One of both is gone.
                    let there = self.mirror.kept(pe).and_then(|pe| pe.metadata());
                    if there.is_some_and(|meta| meta.uid == before.uid) {
                        return Err(gone(pe));
                    }
                    before.answer(&Err(gone(pe)));
                } else if before.report.launch_count > new.report.launch_count {
                    return Ok(false);
                } else if before.report.launch_count == new.report.launch_count {
                    let has_lost = before.report.state == Connectivity::Full && new.losses.has_not_all;
                    new.losses = before.losses.and(Losses { has_lost, ..new.losses });
                    new.begun = before.begun;
                }
                before.answers.retain(|answer| !answer.is_closed());
                new.answers.append(&mut before.answers);
                *before = new;
            }
            Entry::Vacant(none) => {
                none.insert(new);
            }
        }
        Ok(true)
    }

    /// Reports that wait or are being written.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.inner.lock().waiting.len()
    }
}

fn connectivity(pe: &ProcessingElement) -> Option<&ReportedConnectivity> {
    pe.status.as_ref()?.connectivity.as_ref()
}

impl Pace {
    /// Something was written just now, or turned out to be so already.
    fn count(&mut self, now: Instant) {
        let paid_off = self.paid_off.map_or(now, |until| until.max(now)) + EACH;
        let pause = match paid_off.duration_since(now) {
            owed if owed <= EACH * AT_ONCE => Duration::ZERO,
            owed if owed <= EACH * MANY => PAUSE,
            _ => EACH,
        };
        (self.paid_off, self.quiet_until) = (Some(paid_off), Some(now + pause));
    }

    /// How long nothing is written.
    fn rest(&self, now: Instant) -> Duration {
        self.quiet_until.map(|until| until.saturating_duration_since(now)).unwrap_or_default()
    }
}

impl Inner {
    /// The last word of the PE, if it has told that at this moment, nothing is being written of it, and it makes no
    /// pause.
    fn last_word(&self, pe: &Key, told: Instant, now: Instant) -> Option<LastWord> {
        let waiting = self.waiting.get(pe).filter(|waiting| waiting.told == told && !waiting.is_withdrawn)?;
        let is_quiet = self.paces.get(pe).is_none_or(|pace| pace.rest(now).is_zero());
        let (uid, report) = (waiting.uid.clone(), waiting.report.clone());
        let word = LastWord { uid, report, losses: waiting.losses.and(waiting.begun) };
        (is_quiet && !self.writing.contains(pe)).then_some(word)
    }
}

impl<C: Cluster> Work<C> {
    /// Writes what a PE has told last.
    ///
    /// # Errors
    /// It could not be written, and may be later.
    async fn write(&self, pe: &Key) -> Result<Outcome, Refusal> {
        let writing = match self.begin(pe) {
            Turn::Nothing => return Ok(Outcome::Done),
            Turn::Later(rest) => return Ok(Outcome::Again(rest)),
            Turn::Write(writing) => writing,
        };
        let (of, known_until) = (pe.clone(), writing.known_until);
        let change = Change::new(move |before: &ProcessingElement| {
            // Another one under the name has told nothing of this.
            if before.metadata.uid == writing.uid { Ok(writing.changed(before)) } else { Err(gone(&of)) }
        })
        .knowing(known_until);
        let made = self.statuses.of(self.priority(pe)).make(&self.mirror, pe, &change).await;
        self.inner.lock().writing.remove(pe);
        // What the mirror does not show is stored nevertheless.
        let is_stored = matches!(&made, Ok(_) | Err(Unchanged::Unseen));
        self.end(pe, is_stored, made.map(|_| ()).map_err(|why| refusal_of::<ProcessingElement>(pe, why)))
    }

    /// A consistent region goes on when its PEs are connected again; elsewhere it is only told.
    fn priority(&self, pe: &Key) -> Priority {
        if self.is_in_region(pe) { Priority::Normal } else { Priority::Telling }
    }

    fn is_in_region(&self, pe: &Key) -> bool {
        self.mirror.get(pe).is_some_and(|pe| !pe.spec.consistent_regions.is_empty())
    }

    /// Whether the mirror shows a PE of a region that has all connections in this launch.
    fn is_whole_in_region(&self, pe: &Key, launch_count: u64) -> bool {
        self.mirror.get(pe).is_some_and(|pe| {
            let known = connectivity(&pe).filter(|known| known.launch_count == launch_count);
            known.is_some_and(|known| known.state == Connectivity::Full) && !pe.spec.consistent_regions.is_empty()
        })
    }

    /// What is to be done with a PE now: nothing, if it has told no news.
    fn begin(&self, pe: &Key) -> Turn {
        let (are_led_away, now) = ((self.are_led_away)(), Instant::now());
        let mut inner = self.inner.lock();
        let Inner { waiting: all, writing, paces } = &mut *inner;
        let Some(waiting) = all.get_mut(pe) else { return Turn::Nothing };
        let is_awaited = waiting.answers.iter().any(|answer| !answer.is_closed());
        if !is_awaited && (are_led_away || waiting.told.elapsed() > KEPT_FOR) {
            // No other replica knows what a PE has told this one of its losses, and the PE does not say it again.
            if !waiting.has_losses() || !self.is_in_region(pe) {
                all.remove(pe);
                return Turn::Nothing;
            }
            waiting.is_withdrawn = true;
        }
        let rest = paces.get(pe).map(|pace| pace.rest(now)).unwrap_or_default();
        let mut report = waiting.report.clone();
        if !rest.is_zero() {
            if !waiting.has_losses() || !self.is_whole_in_region(pe, report.launch_count) {
                return Turn::Later(rest);
            }
            // Its region must not go on meanwhile. That the PE has all again is written later, or not by this replica.
            if report.state == Connectivity::Full && !waiting.is_withdrawn {
                report.state = Connectivity::Partial;
            }
        }
        waiting.is_news = report != waiting.report;
        waiting.begun = waiting.begun.and(std::mem::take(&mut waiting.losses));
        writing.insert(pe.clone());
        Turn::Write(Writing {
            uid: waiting.uid.clone(),
            known_until: known_until(waiting.told, now),
            report,
            is_withdrawn: waiting.is_withdrawn,
            losses: waiting.begun,
        })
    }

    /// Says what has come of it, unless the PE has told something meanwhile, which is in the queue again, or its last
    /// word waits for the end of a pause.
    fn end(&self, pe: &Key, is_stored: bool, result: Result<(), Refusal>) -> Result<Outcome, Refusal> {
        let mut inner = self.inner.lock();
        let Inner { waiting: all, paces, .. } = &mut *inner;
        if self.mirror.contains(pe) && !matches!(&result, Err(Refusal::Later(_) | Refusal::Absent(_))) {
            paces.entry(pe.clone()).or_default().count(Instant::now());
        }
        let Entry::Occupied(mut entry) = all.entry(pe.clone()) else { return Ok(Outcome::Done) };
        let waiting = entry.get_mut();
        if is_stored {
            waiting.begun = Losses::default();
        }
        if let Err(refusal @ Refusal::Later(_)) = &result {
            waiting.answer(&result);
            if !waiting.has_losses() || !self.is_in_region(pe) {
                return Err(refusal.clone());
            }
            if waiting.failures == 0 {
                tracing::warn!(error = %refusal, "lost connections could not be recorded; will try again");
            }
            let delay = OF_LOSSES.delay(waiting.failures);
            waiting.failures = waiting.failures.saturating_add(1);
            return Ok(Outcome::Again(delay));
        }
        waiting.begun = Losses::default();
        if !waiting.is_news {
            entry.remove().answer(&result);
            return Ok(Outcome::Done);
        }
        let rest = paces.get(pe).map(|pace| pace.rest(Instant::now())).unwrap_or_default();
        Ok(if self.is_in_region(pe) { Outcome::Again(rest) } else { Outcome::Done })
    }
}

impl Waiting {
    /// Whether the PE has told of losses that are not known to be stored.
    fn has_losses(&self) -> bool {
        self.losses.and(self.begun) != Losses::default()
    }

    fn answer(&mut self, result: &Result<(), Refusal>) {
        for answer in self.answers.drain(..) {
            // Whoever has given up is not interested.
            let _ = answer.send(result.clone());
        }
    }
}

impl Writing {
    /// The PE with this; nothing, if it has it.
    fn changed(&self, before: &ProcessingElement) -> Option<ProcessingElement> {
        if !self.is_withdrawn {
            return changed(before, &self.report, self.losses);
        }
        // Beside what is stored of the pod, whoever has written that. It counts only in a region.
        let known = connectivity(before).filter(|known| known.launch_count == self.report.launch_count)?;
        if before.spec.consistent_regions.is_empty() { None } else { changed(before, known, self.losses) }
    }
}

/// What was there by then must be known, of a PE that has told this, to write nothing.
fn known_until(told: Instant, now: Instant) -> Instant {
    told.max(now.checked_sub(EFFECT).unwrap_or(told))
}

/// There is no PE any more that has told something.
fn gone(pe: &Key) -> Refusal {
    refusal_of::<ProcessingElement>(pe, Unchanged::Gone)
}

/// The PE with what a pod of it has told; nothing, if it has that, or a later pod, or if the end of the pod is
/// recorded: nobody would take away what it tells while it goes.
fn changed(before: &ProcessingElement, report: &ReportedConnectivity, losses: Losses) -> Option<ProcessingElement> {
    let mut status = before.status.clone().unwrap_or_default();
    let report = ReportedConnectivity { interruptions: interruptions(before, report, losses), ..report.clone() };
    if status.is_over(report.launch_count) || connectivity(before) == Some(&report) {
        return None;
    }
    status.connectivity = Some(report);
    Some(ProcessingElement { status: Some(status), ..before.clone() })
}

/// How often the pod had lost connections when it has told this: so often as is stored of it, and once more if it has
/// lost some since. One too many resets a region once more, one too few loses tuples. Only regions ask for it, and what
/// is as it was before costs no write otherwise.
fn interruptions(before: &ProcessingElement, report: &ReportedConnectivity, losses: Losses) -> u32 {
    if before.spec.consistent_regions.is_empty() {
        return 0;
    }
    let known = connectivity(before).filter(|known| known.launch_count == report.launch_count);
    let had_all = known.is_some_and(|known| known.state == Connectivity::Full);
    let is_one_more = losses.has_lost || had_all && losses.has_not_all;
    known.map_or(0, |known| known.interruptions).saturating_add(u32::from(is_one_more))
}
