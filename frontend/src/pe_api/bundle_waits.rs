//! Which PEs have not got the bundle that they ask for, until it is written (rule repository-11).
//!
//! The bootstrap of a pod asks one replica, waits, and can tell nobody else that it does. So the replica that was asked
//! writes into the status of the PE why the bundle cannot be had, and removes that when it is given. What becomes of
//! that is up to the controllers, of whichever replica leads.
//!
//! Many pods may wait at once, and a hostile one asks as often as it can. So what was found out last waits here for its
//! turn, jobs and namespaces take turns, and what is written is decided then: nothing, if the status says so already.
//!
//! Knows: PEs, and what the mirror shows of them. Must not know: how bundles are had, who asks.
//!
//! Invariants: of a PE the last answer counts; few are written at the same time, and of one PE one every [`PAUSE`];
//! what cannot be had is not written [`KEPT_FOR`] after somebody was told so last; nothing is kept of PEs that ask no
//! more, or are gone, and nothing that a pod of one was told is written into another one that is made under its name.

use super::PeApi;
use super::caller::OwnPe;
use super::refusal::Refusal;
use super::workers::Workers;
use super::write::{Change, refusal_of};
use crate::bundles::BundleError;
use crate::bundles::repository::Pods;
use crate::owner::owner_of_child;
use crate::status_changes::StatusChanges;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, ProcessingElement, UnavailableBundle};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{Cluster, troubles_of};
use streams_kubernetes::gate::Priority;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{self, BackOff, Outcome, Queue, Sharing};
use streams_kubernetes::watch::Watch;
use tokio::time::{Instant, timeout};

/// Answers that are written at the same time, and those of one namespace.
const AT_A_TIME: usize = 4;
const OF_NAMESPACE: usize = 2;
/// How soon another answer to the same PE is written.
const PAUSE: Duration = Duration::from_secs(5);
/// By then it was tried again for a pod that still waits, or the pod's successor has asked, perhaps another replica.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// How soon it is looked again whose pod has an address: the mirrors of PEs and jobs may be behind that of pods.
const LOOKED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Answers by PE. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct BundleWaits {
    known: Arc<Mutex<HashMap<Key, Known>>>,
    mirror: Watch<ProcessingElement>,
    queue: Queue<Key>,
    workers: Workers,
}

/// What is known of a PE.
struct Known {
    /// What is to be written, unless it is.
    answer: Option<Answer>,
    /// Nothing is written before.
    quiet_until: Instant,
}

/// What a pod was told.
#[derive(Clone, PartialEq, Eq)]
struct Answer {
    /// The uid of its PE.
    uid: Option<String>,
    launch_count: u64,
    /// Why the bundle cannot be had; `None` if it was given.
    unavailable: Option<UnavailableBundle>,
    at: Instant,
}

/// What workers write with.
struct Work<C> {
    known: Arc<Mutex<HashMap<Key, Known>>>,
    mirror: Watch<ProcessingElement>,
    statuses: StatusChanges<C>,
}

/// What a worker finds.
enum Turn {
    Nothing,
    Later(Duration),
    Write(Answer),
}

impl BundleWaits {
    /// Answers that are written with `statuses`, to PEs that this mirror shows. Its workers run on the runtime around,
    /// and end with the last clone.
    pub(super) fn new<C: Cluster>(
        statuses: &StatusChanges<C>,
        mirror: Watch<ProcessingElement>,
        metrics: &Metrics,
    ) -> Self {
        let sharing = Sharing {
            owner: owner_of_child,
            per_namespace: OF_NAMESPACE,
            not_urgent: AT_A_TIME,
            not_urgent_per_namespace: OF_NAMESPACE,
        };
        let troubles = troubles_of(&statuses.cluster);
        let queue = Queue::new("bundle_waits", BackOff::default(), sharing, metrics).with_troubles(troubles);
        let queue = mirror.refusals().hold_back(queue);
        let known = Arc::<Mutex<HashMap<Key, Known>>>::default();
        let following = Arc::clone(&known);
        mirror.subscribe_to_departures(move |pe, _| {
            if let Entry::Occupied(known) = following.lock().entry(Key::of(pe))
                && known.get().answer.as_ref().is_none_or(|answer| answer.uid == pe.metadata.uid)
            {
                known.remove();
            }
        });
        let statuses = statuses.of(Priority::Telling);
        let work = Arc::new(Work { known: Arc::clone(&known), mirror: mirror.clone(), statuses });
        let workers = queue::run(queue.clone(), AT_A_TIME, move |key: Key| {
            let work = Arc::clone(&work);
            async move { work.write(&key).await }
        });
        Self { known, mirror, queue, workers: Workers::begin(workers) }
    }

    /// The pod of a PE was told that its bundle cannot be had, or was given it.
    fn answered(&self, OwnPe { key: pe, uid, launch_count }: OwnPe, unavailable: Option<UnavailableBundle>) {
        let shown = self.mirror.get(&pe).filter(|pe| pe.metadata.uid == uid);
        let shown = shown.and_then(|pe| pe.status.as_ref()?.bundle_unavailable.clone());
        let is_shown = shown.as_deref() == unavailable.as_ref();
        let answer = Answer { uid, launch_count, unavailable, at: Instant::now() };
        {
            let mut all = self.known.lock();
            match all.get_mut(&pe) {
                // Nothing else waits or is under way.
                Some(known) if is_shown && known.answer.is_none() => return,
                None if is_shown => return,
                Some(known) => known.answer = Some(answer),
                None => drop(all.insert(pe.clone(), Known { answer: Some(answer), quiet_until: Instant::now() })),
            }
        }
        self.queue.add(pe);
    }

    /// Waits until nothing is written any more.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.workers.ended()
    }

    /// PEs of which something is known.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.known.lock().len()
    }
}

impl Pods for PeApi {
    async fn known(&self, address: IpAddr) {
        let mut changes = self.callers.changes();
        self.mirrors.pods.synced().await;
        self.mirrors.processing_elements.synced().await;
        self.mirrors.jobs.synced().await;
        loop {
            changes.mark_unchanged();
            if self.job_of_pod_at(address).is_some() {
                return;
            }
            // Late or not, it is looked again.
            let _ = timeout(LOOKED_AGAIN_AFTER, changes.changed()).await;
        }
    }

    fn job_at(&self, address: IpAddr) -> Option<Arc<Job>> {
        self.job_of_pod_at(address)
    }

    fn unread(&self, address: IpAddr) -> Option<String> {
        self.mirrors.unread(&self.callers.unread(address)?)
    }

    fn is_any_unread(&self) -> bool {
        self.mirrors.refusals.are_there_any()
    }

    fn names_at(&self, address: IpAddr) -> Vec<String> {
        self.sab_names_of_pods_at(address)
    }

    fn answered(&self, address: IpAddr, outcome: Result<(), &BundleError>) {
        let Some(pe) = self.pe_of_pod_at(address) else { return };
        let unavailable = outcome.err().map(|error| UnavailableBundle::new(error.reason(), &error.to_string()));
        self.bundle_waits.answered(pe, unavailable);
    }
}

impl<C: Cluster> Work<C> {
    /// Writes what the PE was told last.
    ///
    /// # Errors
    /// It could not be written, and may be later.
    async fn write(&self, pe: &Key) -> Result<Outcome, Refusal> {
        let answer = match self.turn(pe) {
            Turn::Nothing => return Ok(Outcome::Done),
            Turn::Later(rest) => return Ok(Outcome::Later(rest)),
            Turn::Write(answer) => answer,
        };
        let (now, told) = (self.statuses.cluster.now(), answer.clone());
        let change = Change::new(move |before: &ProcessingElement| Ok(changed(before, &told, now)));
        let made = self.statuses.make(&self.mirror, pe, &change).await;
        let refused = made.err().map(|why| refusal_of::<ProcessingElement>(pe, why));
        if let Some(refusal @ Refusal::Later(_)) = refused {
            return Err(refusal);
        }
        let mut all = self.known.lock();
        if let Some(known) = all.get_mut(pe) {
            known.quiet_until = Instant::now() + PAUSE;
            known.answer.take_if(|next| *next == answer);
        }
        Ok(Outcome::Later(PAUSE))
    }

    /// What is to be done with a PE now.
    fn turn(&self, pe: &Key) -> Turn {
        let mut all = self.known.lock();
        let Some(known) = all.get_mut(pe) else { return Turn::Nothing };
        known.answer.take_if(|answer| answer.unavailable.is_some() && answer.at.elapsed() > KEPT_FOR);
        let rest = known.quiet_until.saturating_duration_since(Instant::now());
        match &known.answer {
            _ if !rest.is_zero() => Turn::Later(rest),
            Some(answer) => Turn::Write(answer.clone()),
            None => {
                all.remove(pe);
                Turn::Nothing
            }
        }
    }
}

/// The PE with what a pod of it was told; nothing, if it is another one, or if it has that, or a later pod, or no pod
/// that may wait for it.
fn changed(before: &ProcessingElement, answer: &Answer, now: Timestamp) -> Option<ProcessingElement> {
    if before.metadata.uid != answer.uid {
        return None;
    }
    let mut status = before.status.clone().unwrap_or_default();
    let unavailable = answer.unavailable.clone().filter(|_| status.may_wait_for_bundle(now)).map(Box::new);
    if status.launch_count > answer.launch_count || status.bundle_unavailable == unavailable {
        return None;
    }
    status.bundle_unavailable = unavailable;
    Some(ProcessingElement { status: Some(status), ..before.clone() })
}
