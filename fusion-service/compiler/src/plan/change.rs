//! What a resize does to each PE (rule layout-11).

use super::element::{Fate, PlannedElement};
use super::reason::Reason;
use super::{COMPILER, Compiled, RemovedElement, ResizeChange};
use crate::aadl::{self, Measure};
use crate::budget::{Budget, Pace};
use crate::elements::{Elements, Unchanged};
use crate::error::Error;
use crate::fuser::Pe;
use crate::topology::{ChangedOperatorNames, ChangedOperators, Generations, IgnoredCounts};
use std::collections::BTreeSet;
use std::ops::Range;

/// What a compilation starts from.
pub(super) enum Prior<'b> {
    /// Nothing: the job is new, or is restored from its layout.
    None,
    /// A compiled job, which is resized.
    Job(Predecessor<'b>),
    /// The ids of the PEs before, of which nothing else is known, and the names of the operators that the resize
    /// changes.
    Ids(BTreeSet<u64>, ChangedOperatorNames),
}

/// The generation before a resize, compared with the one that the resize makes.
pub(super) struct Predecessor<'b> {
    pub(super) job: &'b Compiled,
    pub(super) generations: &'b Generations<'b>,
    /// What the resize does to operators.
    changes: ChangedOperators,
    /// PEs of the new generation that are as they were.
    pub(super) unchanged: Unchanged,
    /// If another version of the compiler made the job: ids and sizes of its documents as this version writes them, in
    /// order of PE ids.
    measured: Option<Vec<Measure>>,
}

impl<'b> Predecessor<'b> {
    /// Finds the PEs of `now` that are unchanged.
    pub(super) fn new(
        job: &'b Compiled,
        generations: &'b Generations<'b>,
        changes: ChangedOperators,
        now: &Elements,
        budget: &Budget,
    ) -> Result<Self, Error> {
        // If another version of the compiler made the plan, this one measures the documents again, so that it compares
        // its own documents (rule layout-8).
        let measured = match job.plan.compiler != COMPILER {
            true => Some(job.writer.measure_all(&job.elements, |_| None, budget)?),
            false => None,
        };
        let unchanged = match measured.is_none() && generations.share_repeated_parts() {
            true => {
                let exceptions = aadl::referring_to_distant_operators(&now.topology().application);
                Unchanged::find(&job.elements, generations, now, &exceptions, budget)?
            }
            false => Unchanged::default(),
        };
        Ok(Self { job, generations, changes, unchanged, measured })
    }

    /// The entry of the PE at this position in the plan before, if the PE is unchanged.
    pub(super) fn unchanged(&self, position: usize) -> Option<&'b PlannedElement> {
        self.job.plan.elements.get(self.unchanged.get(position)?)
    }
}

impl<'b> Prior<'b> {
    /// The job before, if there is one.
    pub(super) fn job(&self) -> Option<&Predecessor<'b>> {
        match self {
            Self::Job(predecessor) => Some(predecessor),
            Self::None | Self::Ids(..) => None,
        }
    }

    /// PEs that are not unchanged, ascending id.
    pub(super) fn open(&self, now: &Elements) -> Vec<Pe> {
        self.job().map_or_else(|| now.pes().to_vec(), |predecessor| predecessor.unchanged.others(now))
    }

    /// The names of the operators that the resize changes; none if there was no generation before.
    pub(super) fn changed_operators(&self) -> Option<ChangedOperatorNames> {
        match self {
            Self::None => None,
            Self::Ids(_, difference) => Some(difference.clone()),
            Self::Job(Predecessor { generations, changes, .. }) => {
                Some(changes.names(generations.before(), generations.now()))
            }
        }
    }

    /// Sets the fate and the reason of each PE in `list`, which has them by ascending id. Unchanged PEs have theirs
    /// already. `operators` are the names of [`Prior::changed_operators`]. Returns nothing if there was no generation
    /// before.
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub(super) fn change(
        &self,
        now: &Elements,
        list: &mut [PlannedElement],
        operators: Option<ChangedOperatorNames>,
        budget: &Budget,
    ) -> Result<Option<ResizeChange>, Error> {
        let removed = match self {
            Self::None => Vec::new(),
            Self::Ids(ids, _) => change_of_ids(ids, list),
            Self::Job(predecessor) => change_of_job(predecessor, now, list, budget)?,
        };
        Ok(operators.map(|operators| ResizeChange { operators, removed, closed: Vec::new() }))
    }
}

/// Marks every PE that existed before as restarted, because its document is not known. Returns the removed PEs.
fn change_of_ids(ids: &BTreeSet<u64>, list: &mut [PlannedElement]) -> Vec<RemovedElement> {
    for element in list.iter_mut().filter(|element| ids.contains(&element.id)) {
        element.fate = Fate::Restarted;
    }
    let is_gone = |id: &&u64| list.binary_search_by_key(*id, |element| element.id).is_err();
    let gone = |&id: &u64| RemovedElement { id, content_id: [0; 32], runtime_id: [0; 32], reason: None };
    ids.iter().filter(is_gone).map(gone).collect()
}

/// Compares the documents of PEs that are not unchanged. Returns the removed PEs.
fn change_of_job(
    predecessor: &Predecessor<'_>,
    now: &Elements,
    list: &mut [PlannedElement],
    budget: &Budget,
) -> Result<Vec<RemovedElement>, Error> {
    let ignored = IgnoredCounts::new(&now.topology().regions);
    let is_open = |position: &usize| predecessor.unchanged.get(*position).is_none();
    let open: Vec<usize> = (0..list.len()).filter(is_open).collect();
    let elements: &[PlannedElement] = list;
    let some = |positions: Range<usize>| -> Result<Vec<_>, Error> {
        let mut pace = budget.pace();
        let some = open.get(positions).unwrap_or_default().iter().filter_map(|&position| elements.get(position));
        some.map(|element| change_of_element(predecessor, now, element, &ignored, &mut pace)).collect()
    };
    let changes = budget.in_chunks(open.len(), some)?;
    for (&position, (fate, reason)) in open.iter().zip(changes) {
        if let Some(element) = list.get_mut(position) {
            (element.fate, element.reason) = (fate, reason);
        }
    }
    removed(predecessor.job, now, list, &mut budget.pace())
}

/// What the resize does to a PE that is not unchanged, and why.
fn change_of_element(
    predecessor: &Predecessor<'_>,
    now: &Elements,
    element: &PlannedElement,
    ignored: &IgnoredCounts,
    pace: &mut Pace<'_>,
) -> Result<(Fate, Option<Box<Reason>>), Error> {
    let before = predecessor.job;
    let recorded = &before.plan.elements;
    let Ok(position) = recorded.binary_search_by_key(&element.id, |recorded| recorded.id) else {
        return Ok((Fate::Added, Some(Box::new(Reason::of_added(&element.operators)))));
    };
    let recorded = &recorded[position];
    let known = predecessor.measured.as_ref().and_then(|measured| measured.get(position).copied());
    let known = known.unwrap_or_else(|| recorded.measure());
    Ok(if known.runtime_id != element.runtime_id {
        (Fate::Restarted, Reason::of_restarted(before, now, element.id, ignored, pace)?.map(Box::new))
    } else if known.content_id == element.content_id && recorded.content_id == element.content_id {
        (Fate::Kept, None)
    } else {
        (Fate::KeptUnobservable, None)
    })
}

/// PEs of the generation before that do not exist any more, ascending id.
fn removed(
    before: &Compiled,
    now: &Elements,
    list: &[PlannedElement],
    pace: &mut Pace<'_>,
) -> Result<Vec<RemovedElement>, Error> {
    // Both ascend.
    let mut present = list.iter().map(|element| element.id).peekable();
    let is_gone = |element: &&PlannedElement| {
        while present.next_if(|id| *id < element.id).is_some() {}
        present.next_if(|id| *id == element.id).is_none()
    };
    let gone = |element: &PlannedElement| {
        pace.steps(u32::try_from(8 * element.operators.len()).unwrap_or(u32::MAX))?;
        Ok(RemovedElement {
            id: element.id,
            content_id: element.content_id,
            runtime_id: element.runtime_id,
            reason: Reason::of_removed(before, now, element.id),
        })
    };
    before.plan().elements.iter().filter(is_gone).map(gone).collect()
}
