//! What a PE is told by all of its regions (rules consistent-region-6 and consistent-region-7).

use super::ConsistentRegions;
use super::members::Member;
use super::stored;
use std::collections::BTreeMap;
use streams_api::names;
use streams_consistent_region::{Document, State};
use streams_kubernetes::Key;

/// States of regions of one namespace, each read once.
#[derive(Default)]
pub(crate) struct States(BTreeMap<Key, Option<State>>);

impl ConsistentRegions {
    /// What a PE is told in a launch.
    pub(crate) fn document(&self, pe: &Key, member: &Member, launch: u32, read: &mut States) -> Document {
        let message = |region: &u64| {
            let key = pe.sibling(&names::consistent_region(&member.job, *region));
            let state = read.0.entry(key.clone()).or_insert_with(|| self.state(&key, member));
            (*region, state.as_ref().and_then(|state| state.message_for(member.pe, launch)))
        };
        Document::of(member.regions.iter().map(message))
    }

    /// The state of a region of the job that controls the member.
    fn state(&self, region: &Key, member: &Member) -> Option<State> {
        let region = self.mirrors.consistent_regions.get(region)?;
        let mut owners = region.metadata.owner_references.iter().flatten();
        let is_of_job = owners.any(|owner| owner.controller == Some(true) && owner.uid == member.job_uid);
        is_of_job.then(|| stored::state(&region).ok())?
    }
}
