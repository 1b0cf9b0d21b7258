//! What a resize does to each PE (rule layout-11).

use super::element::{Fate, PlannedElement};
use super::reason::Reason;
use super::settled::{Earlier, Settled};
use super::{COMPILER, Change, Compiled, Plan, RemovedElement};
use crate::aadl::{self, Elements, Measure};
use crate::budget::Budget;
use crate::error::Error;
use crate::fuser::Pe;
use crate::topology::Difference;
use std::collections::BTreeSet;

/// What was before.
pub(super) struct Prior<'a> {
    /// What the resize does to operators.
    pub(super) difference: Difference,
    /// PEs before.
    pub(super) elements: PriorElements<'a>,
}

impl<'a> Prior<'a> {
    /// Documents that need not be made again, if there can be any.
    pub(super) fn known<'e>(&'e self, now: &'e Elements) -> Option<Known<'e>> {
        let PriorElements::Compiled { before, measured: _, earlier } = &self.elements else { return None };
        let comparable = !by_another_compiler(before.plan()) && aadl::same_job(before.elements(), now);
        comparable.then_some(Known { before, now, earlier })
    }
}

/// Documents of a job that is resized.
pub(super) struct Known<'e> {
    before: &'e Compiled,
    now: &'e Elements,
    earlier: &'e Earlier,
}

impl Known<'_> {
    /// What writes the documents now.
    pub(super) fn writer(&self, budget: &Budget) -> Result<aadl::Writer, Error> {
        let (before, now) = (self.before.topology(), self.now.topology());
        let generations = aadl::Generations { before, now, earlier: self.earlier };
        self.before.writer.again(&generations, self.now, budget)
    }

    /// Ids and size of the document of a PE, if it is the same as before.
    pub(super) fn measure(&self, pe: Pe) -> Option<Measure> {
        let id = self.now.id(pe);
        let before = self.before.elements();
        let same = aadl::same_document(before, before.find(id)?, self.now, pe);
        Some(self.before.plan().element(id).filter(|_| same)?.measure())
    }
}

/// PEs before a resize.
pub(super) enum PriorElements<'a> {
    /// Of a compiled job.
    Compiled {
        /// The job.
        before: &'a Compiled,
        /// If another compiler made it: what their documents are as this one writes them, in order of ids.
        measured: Option<Vec<Measure>>,
        /// What every operator was, if it was there.
        earlier: Earlier,
    },
    /// Only their ids are known.
    Ids(BTreeSet<u64>),
}

/// Says what becomes of each PE; `list` has them by ascending id, and knows it of those that are settled.
pub(super) fn change(prior: Prior<'_>, now: &Elements, settled: &Settled<'_>, list: &mut [PlannedElement]) -> Change {
    let removed = match &prior.elements {
        PriorElements::Ids(ids) => change_of_ids(ids, list),
        PriorElements::Compiled { before, measured, earlier: _ } => {
            change_of_compiled(before, measured.as_deref(), now, settled, list)
        }
    };
    Change { operators: prior.difference, removed }
}

/// Marks every PE that was there before as restarted, because nobody knows its document. Gives what is gone.
fn change_of_ids(ids: &BTreeSet<u64>, list: &mut [PlannedElement]) -> Vec<RemovedElement> {
    for element in list.iter_mut().filter(|element| ids.contains(&element.id)) {
        element.fate = Fate::Restarted;
    }
    let is_gone = |id: &&u64| list.binary_search_by_key(*id, |element| element.id).is_err();
    let gone = |&id: &u64| RemovedElement { id, content_id: [0; 32], runtime_id: [0; 32], reason: None };
    ids.iter().filter(is_gone).map(gone).collect()
}

/// Compares the documents of what is not settled. Gives what is gone.
fn change_of_compiled(
    before: &Compiled,
    measured: Option<&[Measure]>,
    now: &Elements,
    settled: &Settled<'_>,
    list: &mut [PlannedElement],
) -> Vec<RemovedElement> {
    let recorded = &before.plan().elements;
    for (position, element) in list.iter_mut().enumerate() {
        if settled.get(position).is_some() {
            continue;
        }
        let Ok(position) = recorded.binary_search_by_key(&element.id, |recorded| recorded.id) else {
            element.reason = Some(Box::new(Reason::of_added(&element.operators)));
            continue;
        };
        let recorded = &recorded[position];
        let known = measured.and_then(|measured| measured.get(position).copied());
        let known = known.unwrap_or_else(|| recorded.measure());
        element.fate = if known.runtime_id != element.runtime_id {
            Fate::Restarted
        } else if known.content_id == element.content_id && recorded.content_id == element.content_id {
            Fate::Kept
        } else {
            Fate::KeptUnobservable
        };
        if element.fate == Fate::Restarted {
            element.reason = Reason::of_restarted(before, now, element.id).map(Box::new);
        }
    }
    removed(before, now, list)
}

/// PEs of the job before that are not there any more, ascending id.
fn removed(before: &Compiled, now: &Elements, list: &[PlannedElement]) -> Vec<RemovedElement> {
    // Both ascend.
    let mut present = list.iter().map(|element| element.id).peekable();
    let is_gone = |element: &&PlannedElement| {
        while present.next_if(|id| *id < element.id).is_some() {}
        present.next_if(|id| *id == element.id).is_none()
    };
    let gone = |element: &PlannedElement| RemovedElement {
        id: element.id,
        content_id: element.content_id,
        runtime_id: element.runtime_id,
        reason: Reason::of_removed(before, now, element.id),
    };
    before.plan().elements.iter().filter(is_gone).map(gone).collect()
}

/// Whether documents of this plan have to be made again to be compared (rule layout-8).
pub(super) fn by_another_compiler(plan: &Plan) -> bool {
    plan.compiler != COMPILER
}
