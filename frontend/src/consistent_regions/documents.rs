//! What a PE is told by all of its regions (rules consistent-region-6 and consistent-region-7).
//!
//! Knows: regions as the mirror shows them. Must not know: how PEs are reached.
//!
//! Invariant: a document has what the mirror shows when it is made, also if states were read before.

use super::ConsistentRegions;
use super::answered::{By, was_answered};
use super::members::Member;
use super::stored;
use crate::of_job::OfJob;
use std::collections::BTreeMap;
use streams_api::{ConsistentRegion, names};
use streams_consistent_region::{Document, State};
use streams_kubernetes::Key;
use streams_kubernetes::watch::Kept;

/// States of regions of one namespace, each read once as long as the mirror shows the same.
#[derive(Default)]
pub(crate) struct States(BTreeMap<Key, Read>);

/// What was read of a region.
struct Read {
    kept: Kept<ConsistentRegion>,
    /// The job that it is of, if it was there.
    of_job: Option<OfJob>,
    state: Option<State>,
}

impl Read {
    fn of(kept: Kept<ConsistentRegion>) -> Self {
        let region = kept.read();
        let of_job = region.as_ref().map(|region| OfJob::of_child(&region.metadata, region.spec.job_id));
        let state = region.and_then(|region| stored::state(&region).ok());
        Self { kept, of_job, state }
    }
}

impl ConsistentRegions {
    /// What a PE is told in a launch.
    pub(crate) fn document(&self, pe: &Key, member: &Member, launch: u32, read: &mut States) -> Document {
        let message = |region: &u64| {
            let key = pe.sibling(&names::consistent_region(&member.job, *region));
            let state = self.state(&key, member, read);
            (*region, state.and_then(|state| state.message_for(member.pe, launch)))
        };
        Document::of(member.regions.iter().map(message))
    }

    /// Another region of the PE than this one waits until the PE has asked, which it does when it has heard nothing for
    /// some seconds.
    pub(crate) fn must_ask(&self, pe: &Key, member: &Member, launch: u32, but: &Key, read: &mut States) -> bool {
        let others = member.regions.iter().map(|region| pe.sibling(&names::consistent_region(&member.job, *region)));
        let mut others = others.filter(|region| region != but);
        others.any(|region| {
            let waits_for = self.state(&region, member, read).and_then(State::to_be_seen);
            waits_for.is_some_and(|(message, launches)| {
                let is_of_launch = launches.of(member.pe) == Some(launch);
                is_of_launch && !was_answered(&self.answered.of(&region), member.pe, Some(launch), message)
            })
        })
    }

    /// The pod of a PE has got this document for an answer. If the document is empty, it has heard that.
    pub(crate) fn has_answered(&self, pe: &Key, member: &Member, launch: u32, document: &Document) {
        self.answered.has_come(pe, launch);
        self.note(pe, member, launch, document, By::Answer);
    }

    /// The pod of a PE was sent this document.
    pub(crate) fn has_sent(&self, pe: &Key, member: &Member, launch: u32, document: &Document) {
        self.note(pe, member, launch, document, By::Datagram);
    }

    fn note(&self, pe: &Key, member: &Member, launch: u32, document: &Document, by: By) {
        for region in &member.regions {
            if let Some(message) = document.message(*region) {
                let region = pe.sibling(&names::consistent_region(&member.job, *region));
                self.answered.note(&region, (member.pe, launch), message, by, member.is_in_several());
            }
        }
    }

    /// The state of a region of the same job as the member. A job that was deleted alone has left both behind.
    fn state<'a>(&self, region: &Key, member: &Member, States(read): &'a mut States) -> Option<&'a State> {
        let Some(kept) = self.mirrors.consistent_regions.kept(region) else {
            read.remove(region);
            return None;
        };
        if !read.get(region).is_some_and(|known| known.kept.is_identical(&kept)) {
            read.insert(region.clone(), Read::of(kept));
        }
        let known = read.get(region)?;
        let is_of_job = known.of_job.as_ref().is_some_and(|of_job| of_job.is_same(&member.of_job));
        known.state.as_ref().filter(|_| is_of_job)
    }
}
