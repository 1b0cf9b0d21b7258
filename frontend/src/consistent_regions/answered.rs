//! Which PEs have been answered with what their region waits for them to see, or told at least (rule
//! consistent-region-8), and which come here at all (rule consistent-region-14).
//!
//! A PE does not say what it has seen, and a datagram that was sent may be lost. But a PE that has asked has got the
//! answer. So a region that must know that its PEs go on waits until each of them has asked. And a PE that has asked
//! this replica, or reported to it, comes here with what it reports next, too.
//!
//! Knows: which messages regions wait for. Must not know: who answers.
//!
//! Invariants: of a message to go on that a checkpoint waits for, only what the pod of a PE has got for an answer is
//! here; nothing is kept of messages for which no region waits, nor of regions and PEs that are gone.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use streams_api::{ConsistentRegion, ProcessingElement};
use streams_consistent_region::{Launches, Message};
use streams_kubernetes::Key;
use streams_kubernetes::watch::Watch;
use tokio::time::Instant;

/// PEs that were answered, each in a launch, with a message.
pub(crate) type ByPe = BTreeMap<u64, (u32, Message)>;

/// How a PE has got a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// It has asked.
    Answer,
    /// It was sent a datagram, which may be lost.
    Datagram,
}

/// What PEs have got for an answer, by region. Cheap to clone; all clones are the same.
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
        let is_waited_for = match (message, by) {
            (Message::ResumeSubmission { is_pending: true, .. }, By::Answer) => true,
            // It may be lost, and says nothing of what was answered before.
            (Message::ResumeSubmission { is_pending: true, .. }, By::Datagram) => return,
            (Message::ResumeSubmission { is_pending: false, .. } | Message::Drained { .. }, _) => is_in_others,
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
            regions.entry(region.clone()).or_default().insert(pe, (launch, message));
        }
    }

    /// The PEs of a region that were answered, or told.
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

/// Whether a PE was answered with this message in this launch.
pub(crate) fn was_answered(answered: &ByPe, pe: u64, launch: Option<u32>, message: Message) -> bool {
    answered.get(&pe).is_some_and(|(of, answer)| Some(*of) == launch && *answer == message)
}

/// Whether all PEs of these launches were.
pub(crate) fn were_all_answered(answered: &ByPe, launches: &Launches, message: Message) -> bool {
    launches.pes().all(|pe| was_answered(answered, pe, launches.of(pe), message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::indexes;
    use streams_api::{ConsistentRegionSpec, ProcessingElementSpec};

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

    #[test]
    fn all_are_answered_when_each_is_in_its_launch_and_with_this_message() {
        let resume = |sequence, is_pending| Message::ResumeSubmission { sequence, retired: 0, is_pending };
        let (answered, key) = (nothing(), Key::new("n", "flow-cr0"));
        let launches: Launches = [(0, 1), (1, 2)].into_iter().collect();
        // PE, launch, answer -> all were answered
        let table = [
            (0, 1, resume(3, true), false),
            (1, 1, resume(3, true), false),
            (1, 2, resume(2, true), false),
            (1, 2, resume(3, true), true),
            (0, 1, resume(4, false), false),
            (0, 1, resume(3, true), true),
        ];
        for (pe, launch, message, expected) in table {
            answered.note(&key, (pe, launch), message, By::Answer, false);
            assert_eq!(were_all_answered(&answered.of(&key), &launches, resume(3, true)), expected, "{pe} {launch}");
        }
        answered.note(&Key::new("n", "flow-cr1"), (0, 1), Message::Drained { sequence: 2 }, By::Answer, false);
        assert_eq!(answered.len(), 1);
        answered.forget(&key);
        assert_eq!(answered.len(), 0);
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

    #[test]
    fn a_datagram_tells_what_may_be_missed_and_is_no_answer() {
        let resume = |is_pending| Message::ResumeSubmission { sequence: 3, retired: 0, is_pending };
        let (drain, drained) = (Message::TriggerDrain { sequence: 3 }, Message::Drained { sequence: 2 });
        let key = Key::new("n", "flow-cr0");
        // what a PE that is in other regions or not has got -> what counts
        let table: [(bool, &[(Message, By)], Option<Message>); 11] = [
            (true, &[(resume(false), By::Datagram)], Some(resume(false))),
            (true, &[(resume(false), By::Answer)], Some(resume(false))),
            (false, &[(resume(false), By::Answer)], None),
            (true, &[(resume(true), By::Datagram)], None),
            (true, &[(resume(true), By::Answer), (resume(true), By::Datagram)], Some(resume(true))),
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
            }
            let counts = answered.of(&key).get(&0).map(|(_, message)| *message);
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
