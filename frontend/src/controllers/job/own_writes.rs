//! Objects of a job that were written and that the mirrors do not show yet (rule job-1). Pure.
//!
//! A mirror lags behind. Without this, whatever was just written would be written again by the next turn.
//!
//! What is kept of an object ends when the mirror shows it as new as it was written, when it leaves the mirror, and
//! after 30 s: a mirror that takes longer may have missed that the object came and went.

use super::child::Child;
use super::observed::{Children, ObservedObject, ObservedPe};
use super::owned::Owned;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// How long a write counts while the mirror does not show it.
const COUNTS: SignedDuration = SignedDuration::from_secs(30);

/// The newest write of each object.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites(BTreeMap<Owned, OwnWrite>);

/// A write.
#[derive(Debug)]
pub(crate) struct OwnWrite {
    /// Version of the object that came of it.
    pub(crate) version: u64,
    /// When.
    pub(crate) at: Timestamp,
    /// Hash of what was applied.
    pub(crate) applied: String,
    /// Of a PE: its generation, and the name of the ConfigMap that it refers to.
    pub(crate) refers_to: Option<(u64, String)>,
}

impl OwnWrites {
    /// The object was written.
    pub(crate) fn note(&mut self, owned: Owned, write: OwnWrite) {
        self.0.insert(owned, write);
    }

    /// The object is gone.
    pub(crate) fn forget(&mut self, owned: &Owned) {
        self.0.remove(owned);
    }

    /// Whether the object was written and is not shown yet.
    pub(crate) fn has(&self, owned: &Owned) -> bool {
        self.0.contains_key(owned)
    }

    /// When the first of the writes does not count any more.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.0.values().map(OwnWrite::until).min()
    }

    /// Puts into `children` what the mirror does not show yet. `mirrored` is the version that it shows of an object.
    pub(crate) fn add_to(&mut self, children: &mut Children, now: Timestamp, mirrored: impl Fn(&Owned) -> Option<u64>) {
        self.0.retain(|owned, write| {
            now < write.until() && mirrored(owned).is_none_or(|version| version < write.version)
        });
        for (owned, write) in &self.0 {
            let object = ObservedObject { applied: write.applied.clone(), ..ObservedObject::default() };
            match children.object(owned) {
                Some(existing) if existing.deleting => {}
                Some(existing) => {
                    *existing = object;
                    refer(children, owned, write);
                }
                None => insert(children, owned, object, write),
            }
        }
    }
}

/// What a PE that is there refers to since it was written. The mirror may show a status that was written just before,
/// by which the next pod is on its way, and the write later: without this, the PE would be brought back to its older
/// text meanwhile (rule job-51).
fn refer(children: &mut Children, owned: &Owned, write: &OwnWrite) {
    let Owned::Child(Child::ProcessingElement(id)) = owned else { return };
    let Some((generation, config_map)) = &write.refers_to else { return };
    if let Some(pe) = children.processing_elements.get_mut(id) {
        pe.generation = *generation;
        pe.config_map.clone_from(config_map);
    }
}

fn insert(children: &mut Children, owned: &Owned, object: ObservedObject, write: &OwnWrite) {
    match owned {
        Owned::Child(Child::ProcessingElement(id)) => {
            let (generation, config_map) = write.refers_to.clone().unwrap_or_default();
            let pe = ObservedPe { object, generation, config_map, ..ObservedPe::default() };
            children.processing_elements.insert(*id, pe);
        }
        Owned::Child(Child::Service(id)) => drop(children.services.insert(*id, object)),
        Owned::Child(Child::Region(index)) => drop(children.regions.insert(*index, object)),
        Owned::Child(Child::HostPool(index)) => drop(children.host_pools.insert(*index, object)),
        Owned::Child(Child::JobConfigMap) => children.job_config_map = Some(object),
        Owned::Child(
            child @ (Child::Export(_) | Child::Import(_) | Child::ConsistentRegion(_) | Child::ConsistentRegionService),
        ) => drop(children.interfaces.insert(*child, object)),
        // It is read again after each write.
        Owned::Child(Child::TransportSecret) => {}
        // Long work writes them.
        Owned::ConfigMap(_) => {}
    }
}

impl OwnWrite {
    fn until(&self) -> Timestamp {
        self.at.checked_add(COUNTS).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn write(version: u64) -> OwnWrite {
        OwnWrite { version, at: at(0), applied: "new".to_owned(), refers_to: None }
    }

    #[test]
    fn a_write_counts_until_the_mirror_shows_it_or_for_a_while() {
        let owned = Owned::Child(Child::Service(3));
        // version that the mirror shows, now -> hash that counts
        let table = [
            (None, 0, Some("new")),
            (None, 29, Some("new")),
            (None, 30, None),
            (Some(6), 0, Some("new")),
            (Some(7), 0, Some("old")),
            (Some(8), 0, Some("old")),
        ];
        for (mirrored, now, expected) in table {
            let (mut writes, mut children) = (OwnWrites::default(), Children::default());
            writes.note(owned.clone(), write(7));
            if mirrored.is_some() {
                let object = ObservedObject { applied: "old".to_owned(), ..ObservedObject::default() };
                children.services.insert(3, object);
            }
            writes.add_to(&mut children, at(now), |_| mirrored);
            let counts = children.services.get(&3).map(|object| object.applied.as_str());
            assert_eq!(counts, expected, "{mirrored:?} {now}");
            assert_eq!(writes.0.is_empty(), expected != Some("new"), "it is kept no longer than it counts");
        }
    }

    #[test]
    fn a_pe_refers_to_what_was_written_last_until_the_mirror_shows_it() {
        let owned = Owned::Child(Child::ProcessingElement(3));
        let shown =
            ObservedPe { generation: 1, config_map: "older".to_owned(), launched: true, ..ObservedPe::default() };
        // what the mirror shows, its version -> what counts
        let table = [
            (None, None, (2, "newest", false)),
            (Some(&shown), Some(6), (2, "newest", true)),
            (Some(&shown), Some(8), (1, "older", true)),
        ];
        for (mirrored, version, expected) in table {
            let (mut writes, mut children) = (OwnWrites::default(), Children::default());
            children.processing_elements.extend(mirrored.map(|pe| (3, pe.clone())));
            writes.note(owned.clone(), OwnWrite { refers_to: Some((2, "newest".to_owned())), ..write(7) });
            writes.add_to(&mut children, at(0), |_| version);
            let pe = &children.processing_elements[&3];
            assert_eq!((pe.generation, pe.config_map.as_str(), pe.launched), expected, "{version:?}");
        }
    }

    #[test]
    fn what_is_gone_or_going_does_not_come_back() {
        let owned = Owned::Child(Child::Service(3));
        let (mut writes, mut children) = (OwnWrites::default(), Children::default());
        children.services.insert(3, ObservedObject { deleting: true, ..ObservedObject::default() });
        writes.note(owned.clone(), write(7));
        writes.add_to(&mut children, at(0), |_| Some(6));
        assert!(children.services[&3].deleting);
        writes.forget(&owned);
        writes.add_to(&mut Children::default(), at(0), |_| None);
        assert!(writes.0.is_empty() && writes.until().is_none());
    }
}
