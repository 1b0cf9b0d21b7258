//! What every part of the frontend that has to do with consistent regions needs: who is in them, what is stored of
//! them, what PEs are told, and what PEs report (the rules of `docs/rules/consistent-region.md`).
//!
//! ```text
//!  mirrors ──► members ──────────────┐
//!                                    ├──► documents ──► PE API, datagrams
//!  mirror of regions ──► stored ─────┘
//!  PE API ──► reports ──► controller (`controllers::consistent_region`) ──► status of the region ──► mirror
//! ```
//!
//! | Module | What it does |
//! |---|---|
//! | [`members`] | PEs of regions, their pods and what these have told |
//! | [`stored`] | between the object and the machine of the crate `streams-consistent-region` |
//! | [`reports`] | what PEs report until it is stored |
//! | [`read`] | regions as they were read last |
//! | [`documents`] | what a PE is told by all of its regions |
//! | [`answered`] | which PEs have asked, and have got what their region waits for them to see |
//! | [`losses`] | of which regions nobody has stored that their PEs have lost connections |
//! | [`hand_over`] | of which regions a report may be lost when another replica takes over |
//!
//! Only the replica that drives the regions answers for them (rule consistent-region-14): PEs take an older document
//! for news. So it says nothing before its mirrors have caught up with the leader before, and nothing once its term has
//! ended.
//!
//! Knows: objects of Kubernetes, the machine. Must not know: HTTP, queues of controllers but that there is one.
//!
//! Invariants: what is told follows from a state that is stored; memory beside the mirrors ends with what it describes.

pub(crate) mod answered;
pub(crate) mod documents;
pub(crate) mod hand_over;
pub(crate) mod losses;
pub(crate) mod members;
pub(crate) mod read;
pub(crate) mod reports;
pub(crate) mod stored;

use self::answered::Answered;
use self::losses::UnstoredLosses;
use self::members::Members;
use self::read::ReadRegions;
use self::reports::Reports;
use crate::mirrors::Mirrors;
use streams_kubernetes::leadership::Term;

/// Consistent regions, as one replica sees them. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct ConsistentRegions {
    /// The mirrors that all of it follows.
    pub(crate) mirrors: Mirrors,
    /// Regions, for whoever asks often.
    pub(crate) read: ReadRegions,
    /// PEs of regions.
    pub(crate) members: Members,
    /// What PEs have reported.
    pub(crate) reports: Reports,
    /// What they have told of lost connections, and nobody has stored.
    pub(crate) losses: UnstoredLosses,
    /// What PEs have got of what they are told.
    pub(crate) answered: Answered,
    /// Whether this replica drives the regions.
    pub(crate) term: Term,
}

impl ConsistentRegions {
    /// The regions of these mirrors, which this replica drives as long as its term lasts.
    pub(crate) fn of(mirrors: &Mirrors, term: Term) -> Self {
        let (mirrors, members) = (mirrors.clone(), Members::of(mirrors));
        let reports = Reports::following(&mirrors.consistent_regions);
        // What PEs have reported while a namespace could not be read was not taken (rule call-33).
        let (missed, of_regions) = (reports.clone(), mirrors.consistent_regions.clone());
        mirrors.refusals.subscribe(move |namespace| {
            let all = of_regions.keys().into_iter().filter(|region| *region.namespace == *namespace);
            all.for_each(|region| drop(missed.heard(&region)));
        });
        let answered = Answered::following(&mirrors.consistent_regions, &mirrors.processing_elements);
        let read = ReadRegions::of(&mirrors.consistent_regions);
        Self { mirrors, read, members, reports, losses: UnstoredLosses::default(), answered, term }
    }

    /// Whether this replica drives the regions now, so that nobody knows more of them.
    pub(crate) fn are_driven_here(&self) -> bool {
        self.reports.are_taken() && self.term.lasts()
    }
}
