//! What a leader that ends in order says of regions to the next one (rule consistent-region-14): of which something may
//! be lost that their PEs have reported, or told of their connections. Of all others nothing is.
//!
//! A PE reports to the leader before until it is led to the next one. That one stays for a while, and what it hears
//! meanwhile is lost, but not unnoticed. Of a namespace that may not be read nothing was heard: it is named as a whole.
//!
//! Knows: regions with gaps. Must not know: how words reach the next leader, what it does then.

use super::ConsistentRegions;
use std::time::Duration;
use streams_kubernetes::Key;
use streams_kubernetes::leadership::LastWords;
use tokio::time::Instant;

/// Longest words: the Lease has them. Where more regions have gaps, none is said to have none.
const WORDS_MAX: usize = 32 << 10;
/// Stands for all regions of a namespace, behind its name.
const ALL: &str = "/*";
/// Stands behind a region whose PEs have lost connections, which nobody has stored.
const LOST_CONNECTIONS: &str = "!";
/// How long a report takes at most from when its PE has connected until it is heard. PEs give up after a second.
const HEARD_WITHIN: Duration = Duration::from_secs(3);

/// What is known of the reports of a region that this replica is to take over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Gap {
    /// Some may be lost.
    #[default]
    Possible,
    /// The leader before will say it.
    Unknown,
    /// None is: all have come to the leader before, and are stored, or have come here.
    None,
}

impl ConsistentRegions {
    /// What the next leader has to know. Nothing, if that is too much, or this replica has not begun to drive regions,
    /// so that it does not know what the one before has missed: then the next one takes nothing for granted.
    pub(crate) fn last_words(&self) -> Option<String> {
        if !self.reports.were_taken() {
            return None;
        }
        let is_there = |region: &Key| self.mirrors.consistent_regions.contains(region);
        let gaps = self.reports.gaps().into_iter().filter(is_there).map(|region| region.to_string());
        let losses = self.losses.regions().into_iter().filter(is_there);
        let losses = losses.map(|region| region.to_string() + LOST_CONNECTIONS);
        let unread = self.mirrors.refusals.namespaces().into_iter().map(|namespace| namespace + ALL);
        let words = gaps.chain(losses).chain(unread).collect::<Vec<_>>().join(" ");
        (words.len() <= WORDS_MAX).then_some(words)
    }

    /// Whether the leader before has heard that PEs of a region had lost connections, and could not store it. Nothing,
    /// as long as it may still say so.
    pub(crate) fn has_unstored_losses(&self, region: &Key) -> Option<bool> {
        match self.term.last_words() {
            LastWords::None => Some(false),
            LastWords::Awaited { .. } => None,
            LastWords::Said { words, .. } => {
                let named = region.to_string() + LOST_CONNECTIONS;
                Some(words.split(' ').any(|word| word == named))
            }
        }
    }

    /// What is known of a region all of whose PEs come here since this moment, if they do, by a Service with an
    /// address: they come nowhere else since.
    pub(crate) fn gap(&self, region: &Key, since: Option<Instant>) -> Gap {
        // This replica has lost a report itself, whatever the leader before says.
        if self.reports.loss(region).is_some() {
            return Gap::Possible;
        }
        match self.term.last_words() {
            LastWords::None => Gap::Possible,
            LastWords::Awaited { .. } => Gap::Unknown,
            LastWords::Said { words, not_before } => {
                let name = region.to_string();
                let is_named = |word: &str| word.strip_suffix(LOST_CONNECTIONS).unwrap_or(word) == name;
                let is_of = |word: &str| is_named(word) || word.strip_suffix(ALL) == Some(&*region.namespace);
                let has_gap = words.split(' ').any(is_of);
                let were_heard = since.is_some_and(|since| since + HEARD_WITHIN <= not_before);
                if were_heard && !has_gap { Gap::None } else { Gap::Possible }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::Mirrors;
    use streams_api::{ConsistentRegion, ConsistentRegionSpec};
    use streams_consistent_region::Event;
    use streams_kubernetes::leadership::Term;
    use streams_kubernetes::metrics::Metrics;
    use streams_kubernetes::queue::{BackOff, Queue, Sharing};

    fn of(term: Term) -> ConsistentRegions {
        ConsistentRegions::of(&Mirrors::new(&Metrics::new("test")), term)
    }

    fn region(name: &str) -> ConsistentRegion {
        let mut region = ConsistentRegion::new(name, ConsistentRegionSpec::default());
        region.metadata.namespace = Some("n".to_owned());
        region
    }

    #[tokio::test]
    async fn of_regions_that_are_there_those_are_named_that_have_gaps() {
        let regions = of(Term::endless());
        let key = |number: usize| Key::new("n", &format!("flow-cr{number}"));
        for number in 0..3 {
            regions.mirrors.consistent_regions.insert(region(&key(number).name));
        }
        assert_eq!(regions.last_words(), None, "nobody knows what the leader before has missed");
        let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
        regions.reports.open(queue.clone(), []);
        assert_eq!(regions.last_words().as_deref(), Some(""));
        regions.reports.close();
        for number in [2, 0, 7] {
            let event = Event::Reset { by: None, is_forced: false };
            let heard = regions.reports.heard(&key(number));
            assert!(regions.reports.report(heard, 0, event).await.is_err(), "nobody takes it");
        }
        assert_eq!(regions.last_words().as_deref(), Some("n/flow-cr0 n/flow-cr2"));
        let many: Vec<_> = (0..WORDS_MAX / 10).map(key).collect();
        many.iter().for_each(|key| regions.mirrors.consistent_regions.insert(region(&key.name)));
        regions.reports.open(queue, many);
        assert_eq!(regions.last_words(), None);
    }

    #[tokio::test]
    async fn of_a_namespace_that_may_not_be_read_or_could_not_be_all_regions_have_gaps() {
        let regions = of(Term::endless());
        let key = Key::new("n", "flow-cr0");
        regions.mirrors.consistent_regions.insert(region(&key.name));
        let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
        regions.reports.open(queue, []);
        // One that was never read.
        regions.mirrors.pods.refuse("m");
        regions.mirrors.pods.refuse("n");
        assert_eq!(regions.last_words().as_deref(), Some("m/* n/*"));
        regions.mirrors.pods.permit("m");
        regions.mirrors.pods.permit("n");
        assert_eq!(regions.last_words().as_deref(), Some("n/flow-cr0"));
        assert!(regions.reports.loss(&key).is_some());
    }

    #[tokio::test]
    async fn regions_are_named_of_which_nobody_has_stored_that_their_pes_lost_connections() {
        let regions = of(Term::endless());
        let keys = [0, 1].map(|number| Key::new("n", &format!("flow-cr{number}")));
        regions.mirrors.consistent_regions.insert(region(&keys[0].name));
        let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
        regions.reports.open(queue, []);
        regions.losses.are_known_by(move || keys.clone().into());
        assert_eq!(regions.last_words().as_deref(), Some("n/flow-cr0!"), "the other one is gone");
    }

    #[test]
    fn what_the_leader_before_could_not_store_of_losses_is_known_when_it_has_spoken() {
        let (term, key, now) = (Term::default(), Key::new("n", "flow-cr1"), Instant::now());
        let regions = of(term.clone());
        let said = |words: &str| LastWords::Said { words: words.into(), not_before: now };
        let table = [
            (LastWords::None, Some(false)),
            (LastWords::Awaited { until: now + HEARD_WITHIN * 20 }, None),
            (said(""), Some(false)),
            (said("n/flow-cr1 n/*"), Some(false)),
            (said("n/flow-cr10! m/flow-cr1!"), Some(false)),
            (said("n/flow-cr0! n/flow-cr1!"), Some(true)),
        ];
        for (words, expected) in table {
            term.hear(words.clone());
            assert_eq!(regions.has_unstored_losses(&key), expected, "{words:?}");
        }
    }

    #[test]
    fn a_region_has_no_gap_if_the_leader_before_has_stayed_until_its_pes_came_here() {
        let (term, now) = (Term::default(), Instant::now());
        let regions = of(term.clone());
        let key = Key::new("n", "flow-cr1");
        let of_region = |since| regions.gap(&key, since);
        assert_eq!(of_region(Some(now)), Gap::Possible);
        term.hear(LastWords::Awaited { until: now + HEARD_WITHIN * 20 });
        assert_eq!(of_region(Some(now)), Gap::Unknown);
        // words, seconds from when its PEs came until they were said -> what is known
        let table = [
            ("", Some(4), Gap::None),
            ("n/flow-cr10 m/flow-cr1", Some(3), Gap::None),
            ("", Some(2), Gap::Possible),
            ("", None, Gap::Possible),
            ("n/flow-cr0 n/flow-cr1", Some(4), Gap::Possible),
            ("m/* n/*", Some(4), Gap::Possible),
            ("m/* nn/*", Some(4), Gap::None),
            ("n/flow-cr1!", Some(4), Gap::Possible),
            ("n/flow-cr10! m/flow-cr1!", Some(4), Gap::None),
        ];
        for (words, seconds, expected) in table {
            let not_before = now + Duration::from_secs(seconds.unwrap_or(60));
            term.hear(LastWords::Said { words: words.into(), not_before });
            assert_eq!(of_region(seconds.map(|_| now)), expected, "{words} {seconds:?}");
        }
        let not_before = now + Duration::from_secs(60);
        term.hear(LastWords::Said { words: "".into(), not_before });
        assert_eq!(of_region(Some(now)), Gap::None);
        regions.mirrors.consistent_regions.insert(region(&key.name));
        drop(regions.reports.heard(&key));
        assert_eq!(of_region(Some(now)), Gap::Possible, "this replica has lost something");
    }
}
