//! What a PE is told by all of its regions (rules consistent-region-6 and consistent-region-7).
//!
//! Knows: regions as the mirror shows them. Must not know: how PEs are reached.
//!
//! Invariant: a document has what the mirror shows when it is made.

use super::ConsistentRegions;
use super::answered::{By, has_got};
use super::members::Member;
use super::read::ReadRegion;
use std::sync::Arc;
use streams_api::names;
use streams_consistent_region::{Document, State};
use streams_kubernetes::Key;

impl ConsistentRegions {
    /// What a PE is told in a launch.
    pub(crate) fn document(&self, pe: &Key, member: &Member, launch: u32) -> Document {
        let message = |region: &u64| {
            let known = self.of_same_job(&pe.sibling(&names::consistent_region(&member.job, *region)), member);
            (*region, known.as_deref().and_then(state).and_then(|state| state.message_for(member.pe, launch)))
        };
        Document::of(member.regions.iter().map(message))
    }

    /// Another region of the PE than this one waits until the PE has asked, perhaps twice, which it does when it has
    /// heard nothing for some seconds.
    pub(crate) fn must_ask(&self, pe: &Key, member: &Member, launch: u32, but: &Key) -> bool {
        let others = member.regions.iter().map(|region| pe.sibling(&names::consistent_region(&member.job, *region)));
        let mut others = others.filter(|region| region != but);
        others.any(|region| {
            let known = self.of_same_job(&region, member);
            let waits_for = known.as_deref().and_then(state).and_then(State::to_be_seen);
            waits_for.is_some_and(|(message, launches)| {
                let is_of_launch = launches.of(member.pe) == Some(launch);
                is_of_launch && !has_got(&self.answered.of(&region), member.pe, Some(launch), message)
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

    /// A region, if it is of the same job as the member. A job that was deleted alone has left both behind.
    fn of_same_job(&self, region: &Key, member: &Member) -> Option<Arc<ReadRegion>> {
        self.read.get(region).filter(|known| known.of_job.is_same(&member.of_job))
    }
}

/// The state of a region, unless it cannot be read.
fn state(region: &ReadRegion) -> Option<&State> {
    region.state.as_ref().ok()
}
