//! What PEs tell of their connections, until it is written (rule pe-api-4).
//!
//! If a PE is replaced with which a thousand others are connected, each of those loses a connection and has it again a
//! moment later, and tells both. The API server takes longer for that many writes than the runtime waits, and whatever
//! else is to be written waits beside them. So the last word of each PE waits here for its turn, jobs and namespaces
//! take turns, and what is written is decided then: nothing, if all is as it was before.
//!
//! Knows: PEs, and what the mirror shows of them. Must not know: HTTP, who may tell.
//!
//! Invariants: a PE has one report here at most, which is its last; few are written at the same time; who is answered
//! without an error has told what the mirror shows, or has told something else since; what nobody waits for is not
//! written [`KEPT_FOR`] after it was told, nor when PEs are led to another replica: they may have told that one
//! something else.

use super::refusal::Refusal;
use super::write::{WITHIN, refusal_of, too_long};
use crate::owner::owner_of_child;
use crate::status_changes::StatusChanges;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use streams_api::{ProcessingElement, ReportedConnectivity};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::gate::Priority;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{self, BackOff, Outcome, Queue, Sharing};
use streams_kubernetes::watch::Watch;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

/// Reports that are written at the same time, and those of one namespace. Other writes of PEs go on beside them.
pub(super) const AT_A_TIME: usize = 6;
const OF_NAMESPACE: usize = 4;
/// The longest pause that the runtime makes before it tells again.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Whether PEs are led to other replicas, because this one ends or sees too little.
pub(crate) type LedAway = Arc<dyn Fn() -> bool + Send + Sync>;

/// Reports by PE. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Reports {
    waiting: Arc<Mutex<HashMap<Key, Waiting>>>,
    mirror: Watch<ProcessingElement>,
    queue: Queue<Key>,
    _workers: Arc<AbortOnDropHandle<()>>,
}

/// The last word of a PE.
struct Waiting {
    report: ReportedConnectivity,
    /// When somebody told it.
    told: Instant,
    /// It, or what the PE had told before, may have its effect at any moment.
    is_being_written: bool,
    answers: Vec<oneshot::Sender<Result<(), Refusal>>>,
}

/// What workers write with.
struct Work<C> {
    waiting: Arc<Mutex<HashMap<Key, Waiting>>>,
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
        let queue = Queue::new("connectivity", BackOff::default(), sharing, metrics);
        let waiting = Arc::default();
        let work = Arc::new(Work { waiting: Arc::clone(&waiting), mirror: mirror.clone(), statuses, are_led_away });
        let workers = queue::run(queue.clone(), AT_A_TIME, move |key: Key| {
            let work = Arc::clone(&work);
            async move { work.write(&key).await }
        });
        Self { waiting, mirror, queue, _workers: Arc::new(AbortOnDropHandle::new(tokio::spawn(workers))) }
    }

    /// Waits until the mirror shows what the PE has told, or the PE tells something else. Who stops waiting has told it
    /// nevertheless.
    ///
    /// # Errors
    /// The PE is gone; the API server refuses; nothing comes of it in time.
    pub(super) async fn tell(&self, pe: &Key, report: ReportedConnectivity) -> Result<(), Refusal> {
        let Some(answer) = self.put(pe, report) else { return Ok(()) };
        self.queue.add(pe.clone());
        match timeout(WITHIN, answer).await {
            Ok(Ok(answer)) => answer,
            // The worker has ended, or does not come to it.
            Ok(Err(_)) | Err(_) => Err(too_long()),
        }
    }

    /// The report is the last word of the PE. Returns where the answer comes from; nothing, if there is nothing to do.
    fn put(&self, pe: &Key, report: ReportedConnectivity) -> Option<oneshot::Receiver<Result<(), Refusal>>> {
        let (answer, answered) = oneshot::channel();
        // While this is locked no write begins.
        let mut all = lock(&self.waiting);
        let is_shown = || {
            let shown = self.mirror.get(pe).and_then(|pe| pe.status.as_ref()?.connectivity.clone());
            shown.as_ref() == Some(&report)
        };
        match all.entry(pe.clone()) {
            Entry::Occupied(before) if before.get().report.launch_count > report.launch_count => return None,
            Entry::Occupied(before) if !before.get().is_being_written && is_shown() => {
                before.remove().answer(&Ok(()));
                return None;
            }
            Entry::Vacant(_) if is_shown() => return None,
            Entry::Occupied(mut before) => {
                let waiting = before.get_mut();
                waiting.report = report;
                waiting.told = Instant::now();
                waiting.answers.retain(|answer| !answer.is_closed());
                waiting.answers.push(answer);
            }
            Entry::Vacant(none) => {
                let told = Instant::now();
                none.insert(Waiting { report, told, is_being_written: false, answers: vec![answer] });
            }
        }
        Some(answered)
    }

    /// Reports that wait or are being written.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        lock(&self.waiting).len()
    }
}

impl<C: Cluster> Work<C> {
    /// Writes what a PE has told last.
    ///
    /// # Errors
    /// It could not be written, and may be later.
    async fn write(&self, pe: &Key) -> Result<Outcome, Refusal> {
        let Some(report) = self.begin(pe) else { return Ok(Outcome::Done) };
        let change = |before: &ProcessingElement| Ok(changed(before, &report));
        let made = self.statuses.of(self.priority(pe)).make(&self.mirror, pe, &change).await;
        self.end(pe, &report, made.map(|_| ()).map_err(|why| refusal_of::<ProcessingElement>(pe, why)))
    }

    /// A consistent region goes on when its PEs are connected again; elsewhere it is only told.
    fn priority(&self, pe: &Key) -> Priority {
        let is_waited_for = self.mirror.get(pe).is_some_and(|pe| !pe.spec.consistent_regions.is_empty());
        if is_waited_for { Priority::Normal } else { Priority::Telling }
    }

    /// What is to be written; nothing, if that is no news any more.
    fn begin(&self, pe: &Key) -> Option<ReportedConnectivity> {
        let are_led_away = (self.are_led_away)();
        let mut all = lock(&self.waiting);
        let waiting = all.get_mut(pe)?;
        let is_awaited = waiting.answers.iter().any(|answer| !answer.is_closed());
        if !is_awaited && (are_led_away || waiting.told.elapsed() > KEPT_FOR) {
            all.remove(pe);
            return None;
        }
        waiting.is_being_written = true;
        Some(waiting.report.clone())
    }

    /// Says what has come of it, unless the PE has told something else meanwhile: that is in the queue again.
    fn end(&self, pe: &Key, written: &ReportedConnectivity, result: Result<(), Refusal>) -> Result<Outcome, Refusal> {
        let mut all = lock(&self.waiting);
        let Entry::Occupied(mut entry) = all.entry(pe.clone()) else { return Ok(Outcome::Done) };
        let waiting = entry.get_mut();
        waiting.is_being_written = false;
        if let Err(refusal @ Refusal::Later(_)) = &result {
            waiting.answer_now(&result);
            return Err(refusal.clone());
        }
        if waiting.report == *written {
            entry.remove().answer(&result);
        }
        Ok(Outcome::Done)
    }
}

impl Waiting {
    fn answer(mut self, result: &Result<(), Refusal>) {
        self.answer_now(result);
    }

    fn answer_now(&mut self, result: &Result<(), Refusal>) {
        for answer in self.answers.drain(..) {
            // Whoever has given up is not interested.
            let _ = answer.send(result.clone());
        }
    }
}

/// The PE with what a pod of it has told; nothing, if it has that, or a later pod.
fn changed(before: &ProcessingElement, report: &ReportedConnectivity) -> Option<ProcessingElement> {
    let mut status = before.status.clone().unwrap_or_default();
    let is_outlived = status.launch_count > report.launch_count;
    if is_outlived || status.connectivity.as_ref() == Some(report) {
        return None;
    }
    status.connectivity = Some(report.clone());
    Some(ProcessingElement { status: Some(status), ..before.clone() })
}

fn lock(waiting: &Mutex<HashMap<Key, Waiting>>) -> MutexGuard<'_, HashMap<Key, Waiting>> {
    // Nothing that may panic comes between two changes that belong together.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
