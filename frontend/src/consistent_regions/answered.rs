//! Which PEs have been answered with what their region waits for them to see, or told at least (rule
//! consistent-region-8), and which come here at all (rule consistent-region-14).
//!
//! A PE does not say what it has seen. That a datagram was sent does not say that it has come: a network policy may
//! let none through. And an answer may be lost: a PE that gets no processor for a second does not read it, and asks
//! the same again. But a PE that has heard a datagram asks no sooner than 5 seconds later. So a region that must know
//! that its PEs go on waits until each of them has been answered so long after a datagram, or twice. And a PE that has
//! asked this replica, or reported to it, comes here with what it reports next, too.
//!
//! Knows: which messages regions wait for, and when PEs ask. Must not know: who answers.
//!
//! Invariants: a message to go on that a checkpoint waits for never counts because of one datagram or answer alone;
//! nothing is kept of messages for which no region waits, nor of regions and PEs that are gone.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use streams_api::{ConsistentRegion, ProcessingElement};
use streams_consistent_region::{Launches, Message};
use streams_kubernetes::Key;
use streams_kubernetes::watch::Watch;
use tokio::time::Instant;

/// Between two answers of which one arrives: what keeps a PE from reading the first one is over by then. PEs ask again
/// 5 seconds after an answer.
const APART: Duration = Duration::from_secs(4);

/// From a datagram to the next question of a PE that has heard it, which is 5 seconds, less what it takes until the
/// datagram is known to be sent.
const SILENT: Duration = Duration::from_millis(4_900);

/// What PEs have got, by their numbers.
pub(crate) type ByPe = BTreeMap<u64, Got>;

/// The message of a region that a PE has got last, in a launch, as far as anybody but the PE can say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Got {
    launch: u32,
    message: Message,
    /// When a datagram with it was sent last.
    sent_at: Option<Instant>,
    /// When the PE was answered with it first.
    answered_at: Option<Instant>,
    /// It was answered with it [`SILENT`] after a datagram, or [`APART`] from another answer.
    is_seen: bool,
}

impl Got {
    /// In no way so far.
    fn nothing(launch: u32, message: Message) -> Self {
        Self { launch, message, sent_at: None, answered_at: None, is_seen: false }
    }

    fn note(&mut self, by: By) {
        match by {
            By::Answer => {
                let is_longer_ago = |at: Option<Instant>, time| at.is_some_and(|at| at.elapsed() >= time);
                self.is_seen |= is_longer_ago(self.sent_at, SILENT) || is_longer_ago(self.answered_at, APART);
                self.answered_at.get_or_insert_with(Instant::now);
            }
            By::Datagram => self.sent_at = Some(Instant::now()),
        }
    }

    /// Whether the region may go on. Who is told that a checkpoint is complete without having seen that it should go
    /// on would rest.
    fn is_enough(&self) -> bool {
        let must_be_seen = matches!(self.message, Message::ResumeSubmission { is_pending: true, .. });
        !must_be_seen || self.is_seen
    }
}

/// How a PE has got a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// It has asked. What it was answered may be lost, too.
    Answer,
    /// It was sent a datagram, which may be lost.
    Datagram,
}

/// What PEs have got, by region. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Answered {
    mirror: Watch<ConsistentRegion>,
    elements: Watch<ProcessingElement>,
    regions: Arc<Mutex<HashMap<Key, ByPe>>>,
    /// PEs that have come, each in its last launch, and when it came last.
    pes: Arc<Mutex<HashMap<Key, (u32, Instant)>>>,
}

impl Answered {
    /// Nothing yet. What is kept of a region or PE ends when it leaves its mirror.
    pub(crate) fn following(regions: &Watch<ConsistentRegion>, elements: &Watch<ProcessingElement>) -> Self {
        let (mirror, elements) = (regions.clone(), elements.clone());
        let answered = Self { mirror, elements, regions: Arc::default(), pes: Arc::default() };
        let following = answered.clone();
        regions.subscribe_to_departures(move |region, _| following.forget(&Key::of(region)));
        let pes = Arc::clone(&answered.pes);
        answered.elements.subscribe_to_departures(move |pe, _| {
            lock(&pes).remove(&Key::of(pe));
        });
        answered
    }

    /// A PE was answered in this launch, whatever its regions have to say, or a report of it was taken.
    pub(crate) fn has_come(&self, pe: &Key, launch: u32) {
        let mut pes = self.pes();
        // Nobody would forget one that has gone meanwhile.
        if self.elements.contains(pe) {
            pes.insert(pe.clone(), (launch, Instant::now()));
        }
    }

    /// When a PE came to this replica last in this launch, if it did.
    pub(crate) fn came_at(&self, pe: &Key, launch: u32) -> Option<Instant> {
        self.pes().get(pe).filter(|(of, _)| *of == launch).map(|(_, at)| *at)
    }

    /// A PE, which may be in other regions as well, has got this message of a region.
    pub(crate) fn note(&self, region: &Key, (pe, launch): (u64, u32), message: Message, by: By, is_in_others: bool) {
        let is_waited_for = match message {
            Message::ResumeSubmission { is_pending, .. } => is_pending || is_in_others,
            Message::Drained { .. } => is_in_others,
            _ => false,
        };
        let mut regions = self.regions();
        if !is_waited_for {
            if let Some(of_region) = regions.get_mut(region) {
                of_region.remove(&pe);
            }
        } else if self.mirror.contains(region) {
            // Asked under the lock: nobody would forget one that has gone meanwhile, and another one of its name would
            // find what its PEs have not been told.
            let of_region = regions.entry(region.clone()).or_default();
            let got = of_region.entry(pe).or_insert_with(|| Got::nothing(launch, message));
            if (got.launch, got.message) != (launch, message) {
                *got = Got::nothing(launch, message);
            }
            got.note(by);
        }
    }

    /// What the PEs of a region have got.
    pub(crate) fn of(&self, region: &Key) -> ByPe {
        self.regions().get(region).cloned().unwrap_or_default()
    }

    /// The region is gone.
    pub(crate) fn forget(&self, region: &Key) {
        self.regions().remove(region);
    }

    /// Regions and PEs of which something is kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.regions().len() + self.pes().len()
    }

    fn regions(&self) -> MutexGuard<'_, HashMap<Key, ByPe>> {
        lock(&self.regions)
    }

    fn pes(&self) -> MutexGuard<'_, HashMap<Key, (u32, Instant)>> {
        lock(&self.pes)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock()
}

/// Whether a PE has got this message in this launch, so that its region may go on.
pub(crate) fn has_got(answered: &ByPe, pe: u64, launch: Option<u32>, message: Message) -> bool {
    let got = answered.get(&pe).filter(|got| Some(got.launch) == launch && got.message == message);
    got.is_some_and(Got::is_enough)
}

/// Whether all PEs of these launches have.
pub(crate) fn have_all_got(answered: &ByPe, launches: &Launches, message: Message) -> bool {
    launches.pes().all(|pe| has_got(answered, pe, launches.of(pe), message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::indexes;
    use streams_api::{ConsistentRegionSpec, ProcessingElementSpec};
    use tokio::time::advance;

    fn region(name: &str) -> ConsistentRegion {
        let mut region = ConsistentRegion::new(name, ConsistentRegionSpec::default());
        region.metadata.namespace = Some("n".to_owned());
        region
    }

    /// Of two regions that are there.
    fn nothing() -> Answered {
        let regions = ["flow-cr0", "flow-cr1"].map(region);
        Answered::following(&Watch::filled(indexes(), regions), &Watch::filled(indexes(), []))
    }

    #[tokio::test(start_paused = true)]
    async fn all_have_got_a_message_when_each_has_in_its_launch_and_this_one() {
        let resume = |sequence, is_pending| Message::ResumeSubmission { sequence, retired: 0, is_pending };
        let (answered, key) = (nothing(), Key::new("n", "flow-cr0"));
        let launches: Launches = [(0, 1), (1, 2)].into_iter().collect();
        // PE, launch, what it is told in both ways -> all have got it
        let table = [
            (0, 1, resume(3, true), false),
            (1, 1, resume(3, true), false),
            (1, 2, resume(2, true), false),
            (1, 2, resume(3, true), true),
            (0, 1, resume(4, false), false),
            (0, 1, resume(3, true), true),
        ];
        for (pe, launch, message, expected) in table {
            for by in [By::Datagram, By::Answer] {
                answered.note(&key, (pe, launch), message, by, false);
                advance(Duration::from_secs(5)).await;
            }
            assert_eq!(have_all_got(&answered.of(&key), &launches, resume(3, true)), expected, "{pe} {launch}");
        }
        answered.note(&Key::new("n", "flow-cr1"), (0, 1), Message::Drained { sequence: 2 }, By::Answer, false);
        assert_eq!(answered.len(), 1);
        answered.forget(&key);
        assert_eq!(answered.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_five_seconds_after_a_datagram_and_else_some_after_another_one() {
        const DATAGRAM: By = By::Datagram;
        const ANSWER: By = By::Answer;
        let key = Key::new("n", "flow-cr0");
        let resume = |sequence| Message::ResumeSubmission { sequence, retired: 0, is_pending: true };
        // what a PE gets, after so many seconds each, in a launch and with a sequence id -> whether that is enough
        let table: [(&[(u64, u32, u64, By)], bool); 15] = [
            (&[(0, 1, 3, ANSWER)], false),
            (&[(0, 1, 3, DATAGRAM)], false),
            (&[(0, 1, 3, DATAGRAM), (9, 1, 3, DATAGRAM)], false),
            // Whoever has heard the datagram does not ask yet.
            (&[(0, 1, 3, DATAGRAM), (4, 1, 3, ANSWER)], false),
            (&[(0, 1, 3, DATAGRAM), (5, 1, 3, ANSWER)], true),
            (&[(0, 1, 3, DATAGRAM), (3, 1, 3, DATAGRAM), (3, 1, 3, ANSWER)], false),
            (&[(0, 1, 3, DATAGRAM), (3, 1, 3, ANSWER), (5, 1, 3, ANSWER)], true),
            (&[(0, 1, 3, ANSWER), (9, 1, 3, DATAGRAM)], false),
            (&[(0, 1, 3, ANSWER), (3, 1, 3, ANSWER)], false),
            (&[(0, 1, 3, ANSWER), (4, 1, 3, ANSWER)], true),
            (&[(0, 1, 3, ANSWER), (2, 1, 3, ANSWER), (2, 1, 3, ANSWER)], true),
            (&[(0, 2, 3, DATAGRAM), (5, 1, 3, ANSWER)], false),
            (&[(0, 2, 3, ANSWER), (5, 1, 3, ANSWER)], false),
            (&[(0, 1, 2, DATAGRAM), (5, 1, 3, ANSWER)], false),
            (&[(0, 1, 2, ANSWER), (5, 1, 3, ANSWER)], false),
        ];
        for (got, expected) in table {
            let answered = nothing();
            for (after, launch, sequence, by) in got {
                advance(Duration::from_secs(*after)).await;
                answered.note(&key, (0, *launch), resume(*sequence), *by, true);
            }
            assert_eq!(has_got(&answered.of(&key), 0, Some(1), resume(3)), expected, "{got:?}");
        }
    }

    /// A document was made while it was there, and is sent when it is gone.
    #[test]
    fn nothing_is_kept_of_a_region_that_has_gone_meanwhile() {
        let regions = Watch::filled(indexes(), [region("flow-cr0")]);
        let answered = Answered::following(&regions, &Watch::filled(indexes(), []));
        let (key, message) = (Key::new("n", "flow-cr0"), Message::Drained { sequence: 2 });
        for (is_there, expected) in [(true, 1), (false, 0)] {
            if !is_there {
                regions.remove(&key);
            }
            answered.note(&key, (0, 1), message, By::Datagram, true);
            assert_eq!(answered.len(), expected, "{is_there}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_datagram_or_answer_tells_what_may_be_missed_and_not_what_must_be_seen() {
        let resume = |is_pending| Message::ResumeSubmission { sequence: 3, retired: 0, is_pending };
        let (drain, drained) = (Message::TriggerDrain { sequence: 3 }, Message::Drained { sequence: 2 });
        let key = Key::new("n", "flow-cr0");
        // what a PE that is in other regions or not has got -> what counts
        let table: [(bool, &[(Message, By)], Option<Message>); 12] = [
            (true, &[(resume(false), By::Datagram)], Some(resume(false))),
            (true, &[(resume(false), By::Answer)], Some(resume(false))),
            (false, &[(resume(false), By::Answer)], None),
            (true, &[(resume(true), By::Datagram)], None),
            (false, &[(resume(true), By::Answer)], None),
            (true, &[(resume(true), By::Datagram), (resume(true), By::Answer)], Some(resume(true))),
            (true, &[(resume(false), By::Datagram), (drain, By::Datagram)], None),
            (true, &[(resume(true), By::Answer), (drain, By::Datagram)], None),
            (true, &[(drain, By::Datagram), (resume(false), By::Datagram)], Some(resume(false))),
            (true, &[(resume(true), By::Answer), (drained, By::Datagram)], Some(drained)),
            (true, &[(drained, By::Answer), (drain, By::Datagram)], None),
            (false, &[(resume(true), By::Answer), (drained, By::Answer)], None),
        ];
        for (is_in_others, got, expected) in table {
            let answered = nothing();
            for (message, by) in got {
                answered.note(&key, (0, 1), *message, *by, is_in_others);
                advance(Duration::from_secs(5)).await;
            }
            let counts = answered.of(&key).get(&0).filter(|got| got.is_enough()).map(|got| got.message);
            assert_eq!(counts, expected, "{is_in_others} {got:?}");
        }
    }

    #[test]
    fn a_pe_comes_in_the_launch_in_which_it_has_asked_last() {
        let element = |uid: &str| {
            let mut pe = ProcessingElement::new("flow-0", ProcessingElementSpec::default());
            (pe.metadata.namespace, pe.metadata.uid) = (Some("n".to_owned()), Some(uid.to_owned()));
            pe
        };
        let elements = Watch::filled(indexes(), [element("1")]);
        let (answered, pe) = (Answered::following(&Watch::filled(indexes(), []), &elements), Key::new("n", "flow-0"));
        let comes = || [1, 2].map(|launch| answered.came_at(&pe, launch).is_some());
        assert_eq!(comes(), [false, false]);
        answered.has_come(&pe, 1);
        assert_eq!(comes(), [true, false]);
        answered.has_come(&pe, 2);
        assert_eq!(comes(), [false, true]);
        // It is made again: its launches begin anew.
        elements.insert(element("2"));
        assert_eq!((comes(), answered.len()), ([false, false], 0));
        answered.has_come(&pe, 1);
        assert_eq!(comes(), [true, false]);
        elements.remove(&pe);
        assert_eq!(answered.len(), 0);
        // A report that was on its way.
        answered.has_come(&pe, 1);
        assert_eq!((comes(), answered.len()), ([false, false], 0));
    }
}
