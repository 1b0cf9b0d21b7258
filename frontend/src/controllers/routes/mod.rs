//! Tells PEs of their routes when they have become others (rule import-6).
//!
//! A message is one datagram to the pod of the PE, without an answer; a PE that misses it asks again after a minute. So
//! nothing is written anywhere: what a PE was told last is remembered as long as this replica leads, and a new leader
//! tells everybody once. A PE that is told to ask may ask a replica that does not know the routes yet, so it is told
//! again.
//!
//! Knows: boards, addresses of pods. Must not know: what matches what.
//!
//! Invariants: nobody is told anything before the boards have all that there is, and know what of it matches; until
//! then nothing is read of a PE, however often it is looked at. Nothing is kept of PEs that are gone. A pod is told
//! that its PE controls, and no other, and only while it is known which text it runs.

#[cfg(test)]
mod tests;

use crate::broker::answers::{Message, Says, Untold};
use crate::broker::texts;
use crate::broker::{Boards, UntilSettled};
use crate::controllers::messenger::Messenger;
use crate::controllers::reconciler::{self, Next};
use crate::mirrors::{Mirrors, address_of, pe_of};
use crate::pods_of_pe;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use streams_api::ProcessingElement;
use streams_broker::{Pe, TooManyRoutes};
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes::queue::{Outcome, Queue};
use streams_kubernetes::{Error, Key};
use tokio::time::Instant;

/// How soon PEs that were told to ask are told again, each time.
const LONG: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(8)];
/// The same, of those that must not be told all of their routes until they have asked. What answers the last one of a
/// row may be a replica that has not answered the PE before, and leaves out what the PE has by now: there is another
/// one a second later. At the end they may be told, whatever has been lost (rule import-11).
const INCOMPLETE: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(7),
    Duration::from_secs(1),
    Duration::from_secs(60),
];
/// How soon a message is sent again that could not be sent.
const AGAIN: Duration = Duration::from_secs(5);
/// How soon to look again for boards that are not filled.
const UNFILLED: Duration = Duration::from_millis(200);
/// How soon to look again for a board that is not settled. Whoever settles it says so; this is in case nobody does.
const UNSETTLED: Duration = Duration::from_secs(60);
/// How soon to look again for the text of a pod.
const UNKNOWN: Duration = Duration::from_secs(1);

/// Queues every PE whose routes, or the addresses of whose pods, may be others; and all that export or import, at the
/// beginning. Those that wait for their boards are queued when these are settled.
pub(crate) fn subscribe(mirrors: &Mirrors, boards: &Boards, queue: &Queue<Key>) -> UntilSettled {
    let to = queue.clone();
    boards.subscribe(move |pe| to.add(pe.clone()));
    let (to, known) = (queue.clone(), boards.clone());
    mirrors.pods.subscribe(move |pod: &Pod| {
        if let Some(pe) = pe_of(pod).filter(|pe| known.knows(pe)) {
            to.add(pe);
        }
    });
    let to = queue.clone();
    mirrors.processing_elements.subscribe_to_departures(move |pe: &ProcessingElement, _| to.add(Key::of(pe)));
    let to = queue.clone();
    let until_settled = UntilSettled::new(boards, move |pe| to.add(pe));
    for pe in boards.pes() {
        queue.add(pe);
    }
    until_settled
}

/// What a PE was told last, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    addresses: BTreeSet<IpAddr>,
    /// Which routes it was told: the words are the same for all that are too long for a message.
    version: u64,
    /// When it is told again, if it was told to ask.
    again: Option<Again>,
}

/// A PE is told again that it should ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    at: Instant,
    /// Waits before the next times.
    then: &'static [Duration],
}

impl Again {
    /// What follows when something of this kind was said the first time.
    fn after_first(says: Says, now: Instant) -> Option<Self> {
        match says {
            Says::All => None,
            Says::Ask => Self::after(&LONG, now),
            Says::AskTwice => Self::after(&INCOMPLETE, now),
        }
    }

    /// The next time, after the first of these waits.
    fn after(waits: &'static [Duration], now: Instant) -> Option<Self> {
        let (wait, then) = waits.split_first()?;
        Some(Self { at: now + *wait, then })
    }
}

/// Tells PEs.
pub(crate) struct RoutesReconciler<M> {
    mirrors: Mirrors,
    boards: Boards,
    until_settled: UntilSettled,
    messenger: M,
    told: Mutex<BTreeMap<Key, Told>>,
}

impl<M> RoutesReconciler<M> {
    /// Tells the PEs of these mirrors what the boards say. Those whose boards are not settled wait there.
    pub(crate) fn new(mirrors: Mirrors, boards: Boards, until_settled: UntilSettled, messenger: M) -> Self {
        Self { mirrors, boards, until_settled, messenger, told: Mutex::new(BTreeMap::new()) }
    }

    /// Where the pods of a PE are that may be told. Labels, which anybody can give to a pod, say nothing.
    fn pods(&self, key: &Key, element: &ProcessingElement) -> PodsToTell {
        let pods = pods_of_pe::read(&self.mirrors, key, element).filter(|pod| is_controlled_by(&pod.metadata, element));
        let mut found = PodsToTell::default();
        let mut created = Vec::new();
        for pod in pods {
            let Some(address) = address_of(&pod) else { continue };
            if texts::is_known(&pod.metadata, element) {
                found.addresses.insert(address);
                created.push(pod.metadata.creation_timestamp.as_ref().map(|at| at.0));
            } else {
                // One that is going need not be told any more.
                found.is_any_unknown |= pod.metadata.deletion_timestamp.is_none();
            }
        }
        // A moment that is not known is less than all others.
        found.created = created.into_iter().min().flatten();
        found
    }
}

/// The pods of a PE.
#[derive(Default)]
struct PodsToTell {
    /// Where those are whose texts are known.
    addresses: BTreeSet<IpAddr>,
    /// When the oldest of these was created, if that is known.
    created: Option<Timestamp>,
    /// There is another one, whose text is not known yet: it must not be told of ports that it does not have.
    is_any_unknown: bool,
}

/// What is known of a PE.
pub(crate) enum RoutesObservation {
    /// The boards do not have everything yet.
    Unfilled,
    /// What matches in its namespace is being found out.
    Unsettled,
    /// What it is to be told.
    Known(KnownRoutes),
}

/// What a PE is to be told, and what it was told.
pub(crate) struct KnownRoutes {
    is_on_board: bool,
    addresses: BTreeSet<IpAddr>,
    is_any_unknown: bool,
    message: Result<Message, TooManyRoutes>,
    told: Option<Told>,
    now: Instant,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RoutesDecision {
    /// Wait until the boards have everything.
    Fill,
    /// Wait until it is known what matches.
    Settle,
    /// Whoever is there knows already, or cannot be told.
    Nothing,
    /// Whoever is there was told to ask, and is told again then; or it is not known yet what it may be told.
    Wait(Duration),
    /// These addresses do not know this. What is given follows: they are told again.
    Tell(Message, BTreeSet<IpAddr>, Option<Again>),
}

impl<M: Messenger> reconciler::Reconciler for RoutesReconciler<M> {
    type Answers = ();
    type Observation = RoutesObservation;
    type Decision = RoutesDecision;

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<RoutesObservation>, Error> {
        let Some(kept) = self.mirrors.processing_elements.kept(key) else {
            self.told.lock().remove(key);
            self.until_settled.forget(key);
            return Ok(None);
        };
        if !self.boards.are_filled() {
            return Ok(Some(RoutesObservation::Unfilled));
        }
        if !self.boards.is_settled(&key.namespace) {
            return Ok(Some(RoutesObservation::Unsettled));
        }
        let Some(element) = kept.read() else { return Ok(None) };
        let pe = Pe { job: Arc::from(&*element.spec.job_name), id: element.spec.id };
        let PodsToTell { addresses, created, is_any_unknown } = self.pods(key, &element);
        let message = match self.boards.message(&key.namespace, &pe, created) {
            Ok(message) => Ok(message),
            Err(Untold::TooMany(too_many)) => Err(too_many),
            Err(Untold::Unsettled) => return Ok(Some(RoutesObservation::Unsettled)),
        };
        Ok(Some(RoutesObservation::Known(KnownRoutes {
            is_on_board: self.boards.knows(key),
            addresses,
            is_any_unknown,
            message,
            told: self.told.lock().get(key).cloned(),
            now: Instant::now(),
        })))
    }

    fn decide(observed: &RoutesObservation) -> RoutesDecision {
        let observed = match observed {
            RoutesObservation::Unfilled => return RoutesDecision::Fill,
            RoutesObservation::Unsettled => return RoutesDecision::Settle,
            RoutesObservation::Known(known) => known,
        };
        // It asks by itself when it starts; that was before, if it is on the board no more.
        if !observed.is_on_board && observed.told.is_none() {
            return RoutesDecision::Nothing;
        }
        let nothing = || if observed.is_any_unknown { RoutesDecision::Wait(UNKNOWN) } else { RoutesDecision::Nothing };
        // Its exports and imports say so.
        let Ok(message) = &observed.message else { return RoutesDecision::Nothing };
        let told = observed.told.as_ref().filter(|told| told.version == message.version);
        let knows = |address: &IpAddr| told.is_some_and(|told| told.addresses.contains(address));
        let ignorant: BTreeSet<IpAddr> = observed.addresses.iter().filter(|address| !knows(address)).copied().collect();
        if !ignorant.is_empty() {
            let again = Again::after_first(message.says, observed.now);
            return RoutesDecision::Tell(message.clone(), ignorant, again);
        }
        let Some(again) = told.and_then(|told| told.again) else { return nothing() };
        let wait = again.at.saturating_duration_since(observed.now);
        if !wait.is_zero() {
            return RoutesDecision::Wait(if observed.is_any_unknown { wait.min(UNKNOWN) } else { wait });
        }
        // By now it may be all that there is to say.
        let next = Again::after(again.then, observed.now).filter(|_| message.says != Says::All);
        RoutesDecision::Tell(message.clone(), observed.addresses.clone(), next)
    }

    async fn act(
        &self,
        key: &Key,
        (): &mut (),
        observed: RoutesObservation,
        decision: RoutesDecision,
    ) -> Result<Next, Error> {
        let (known, message, ignorant, again) = match (observed, decision) {
            (RoutesObservation::Known(known), RoutesDecision::Tell(message, ignorant, again)) => {
                (known, message, ignorant, again)
            }
            (_, RoutesDecision::Wait(wait)) => return Ok(Next::Rest(Outcome::Again(wait))),
            (_, RoutesDecision::Fill) => return Ok(Next::Rest(Outcome::Again(UNFILLED))),
            (_, RoutesDecision::Settle) if self.until_settled.wait(key) => {
                return Ok(Next::Rest(Outcome::Again(UNSETTLED)));
            }
            // It has been settled meanwhile.
            (_, RoutesDecision::Settle) => return Ok(Next::Observe),
            (_, RoutesDecision::Nothing | RoutesDecision::Tell(..)) => return Ok(Next::Rest(Outcome::Done)),
        };
        let mut failed = BTreeSet::new();
        for address in ignorant {
            if let Err(error) = self.messenger.send(address, &message.text).await {
                tracing::debug!(%key, %address, %error, "a PE cannot be told its routes; will try again");
                failed.insert(address);
            }
        }
        let KnownRoutes { addresses, is_on_board, is_any_unknown, now, .. } = known;
        let is_all = failed.is_empty();
        if is_all && !is_on_board {
            self.told.lock().remove(key);
        } else {
            let addresses = addresses.difference(&failed).copied().collect();
            self.told.lock().insert(key.clone(), Told { addresses, version: message.version, again });
        }
        let failed_again = (!is_all).then_some(AGAIN);
        let told_again = again.filter(|_| is_on_board).map(|again| again.at.saturating_duration_since(now));
        let known_soon = is_any_unknown.then_some(UNKNOWN);
        let next = failed_again.into_iter().chain(told_again).chain(known_soon).min();
        Ok(Next::Rest(next.map_or(Outcome::Done, Outcome::Again)))
    }
}
