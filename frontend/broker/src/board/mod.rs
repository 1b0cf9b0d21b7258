//! The board: all exports and imports of a namespace, and the matches between them.
//!
//! What is put on it is not tried at once with all that it may match: there may be thousands, and each may cost what a
//! subscription may cost. [`Board::settle`] tries as many as its caller has the time for; or the caller takes
//! [`Board::trials`] and gives back what comes of them, which counts as far as the facts still are what was tried.
//! Until then a fact matches what it matched before, as far as that is still possible.
//!
//! Invariants: a match stands on both sides; once all is tried, and put again that is to be, what matches is what
//! [`matches`](crate::fact::matches) says of every export with every import, though only those are tried that have a
//! key in common, and none again because of a change that the match does not depend on (rule import-2), and what there
//! is no room for is left out of them (rule import-12); [`Changes`] name what has become other, and no more.
//!
//! Knows: facts, what a match needs. Must not know: objects of Kubernetes, time, how PEs are told.

#[cfg(test)]
mod tests;

use crate::asked::{Asked, Moved, NoRoom};
use crate::fact::{Export, Fact, Import, Outcome, PAIR_STEPS, tried};
use crate::ids::{Id, Ids};
use crate::matched::{Matched, Receivers};
use crate::port::{Pe, Port};
use crate::routes::{self, Routes, TooManyRoutes};
use crate::side::Side;
use crate::trial::{Trial, Tried};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Steps for a fact that is asked whether it is still to be tried with another one.
const FORGET_STEPS: usize = 32;

/// All exports and imports of a namespace.
#[derive(Debug, Default)]
pub struct Board {
    exports: Side<Export>,
    imports: Side<Import>,
    /// What imports ask for.
    asked: Asked,
    /// By what exports ask to be found.
    offered: Asked,
}

/// What has become other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// PEs whose routes have.
    pub routes: BTreeSet<Pe>,
    /// PEs of exports and imports that cost too much to be tried with each other and did not, or the other way round;
    /// and of those of both for which there is room and was not, or the other way round.
    pub costs: BTreeSet<Pe>,
    /// What it has taken to find that out, in steps of evaluations.
    pub steps: usize,
    /// What it has taken, in such steps, to note what others match no longer, or see otherwise, without trying them,
    /// and which others get or lose room.
    pub noted: usize,
    /// Input ports whose imports are to be put again as they are, because there is room now for what they ask for, or
    /// none any more. Who does so one after the other is held up no longer than by one.
    pub again: BTreeSet<Port>,
    /// Output ports of which this is so.
    pub exports_again: BTreeSet<Port>,
    /// The first export and import that it panicked to try with each other; they do not match.
    pub panicked: Option<(Port, Port)>,
}

/// A subscription costs too much to be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("costs too much to evaluate for the properties of {first} and {others} more exports, and does not match them")]
pub struct TooCostly {
    /// The first export for which it does.
    pub first: Port,
    /// Number of the others.
    pub others: usize,
}

/// It takes too long to find out which exports an import would get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it takes too long to find out")]
pub struct TooManySteps;

impl Board {
    /// The export is there, in the place of what its port had before. What it matches is still to be tried. Where there
    /// is no room for its properties, it is not found by them ([`Board::export_without_room`]).
    pub fn put_export(&mut self, mut export: Export) -> Changes {
        let port = export.port.clone();
        let without = self.offered.without_room(&port);
        let moved = self.offered.put_export(&mut export);
        let mut changes = with_moved_exports(moved, put(&mut self.exports, &mut self.imports, export));
        if self.offered.without_room(&port) != without {
            changes.costs.insert(port.pe);
        }
        changes
    }

    /// The import is there, in the place of what its port had before. What it matches is still to be tried. Where there
    /// is no room for a part of it, it does not match by that ([`Board::without_room`]).
    pub fn put_import(&mut self, mut import: Import) -> Changes {
        let port = import.port.clone();
        let without = self.asked.without_room(&port);
        let moved = self.asked.put_import(&mut import);
        let mut changes = with_moved(moved, put(&mut self.imports, &mut self.exports, import));
        if self.asked.without_room(&port) != without {
            changes.costs.insert(port.pe);
        }
        changes
    }

    /// The output port is exported no longer.
    pub fn remove_export(&mut self, port: &Port) -> Changes {
        let moved = self.offered.remove(port);
        with_moved_exports(moved, remove(&mut self.exports, &mut self.imports, port))
    }

    /// The input port imports no longer.
    pub fn remove_import(&mut self, port: &Port) -> Changes {
        let moved = self.asked.remove(port);
        with_moved(moved, remove(&mut self.imports, &mut self.exports, port))
    }

    /// Tries what is still to be tried, until nothing is or it has taken so many steps.
    pub fn settle(&mut self, steps: usize) -> Changes {
        let mut changes = Changes::default();
        while changes.steps < steps {
            let Some(trial) = self.untried().next() else { break };
            self.take_over(trial.run(), &mut changes);
        }
        changes
    }

    /// What is to be tried next, at most so many pairs. They are to be tried until the board is told what came of them.
    #[must_use]
    pub fn trials(&self, most: usize) -> Vec<Trial> {
        self.untried().take(most).collect()
    }

    /// Takes over what came of trials. Of what was tried and is another one now, nothing is known by that.
    pub fn learn(&mut self, tried: impl IntoIterator<Item = Tried>) -> Changes {
        let mut changes = Changes::default();
        tried.into_iter().for_each(|tried| self.take_over(tried, &mut changes));
        changes
    }

    fn take_over(&mut self, tried: Tried, changes: &mut Changes) {
        changes.steps += tried.steps();
        let (export, import) = (tried.trial.export.0, tried.trial.import.0);
        if !is_still(&self.exports, &tried.trial.export) || !is_still(&self.imports, &tried.trial.import) {
            return;
        }
        changes.panicked = changes.panicked.take().or_else(|| tried.panicked());
        self.exports.tried(export, import);
        self.imports.tried(import, export);
        note(&mut self.exports, &mut self.imports, (export, import), tried.outcome, changes);
    }

    /// Whether nothing is to be tried.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.exports.is_tried() && self.imports.is_tried()
    }

    /// All that is to be tried. A pair that is to be tried because of both is there once.
    fn untried(&self) -> impl Iterator<Item = Trial> {
        let of_imports = self.imports.untried().map(|(import, export)| (export, import));
        let of_imports = of_imports.filter(|(export, import)| !self.exports.is_untried(*export, *import));
        self.exports.untried().chain(of_imports).filter_map(|(export, import)| {
            let (from, to) = (self.exports.get(export)?, self.imports.get(import)?);
            Some(Trial { export: (export, Arc::clone(&from.fact)), import: (import, Arc::clone(&to.fact)) })
        })
    }

    /// Whether somebody receives what the output port exports.
    #[must_use]
    pub fn has_importers(&self, port: &Port) -> bool {
        is_matched(&self.exports, port)
    }

    /// Whether somebody exports what the input port asks for.
    #[must_use]
    pub fn has_exporters(&self, port: &Port) -> bool {
        is_matched(&self.imports, port)
    }

    /// Input ports that receive what the output port exports, at most so many; and how many there are.
    #[must_use]
    pub fn importers(&self, port: &Port, most: usize) -> (Vec<Port>, usize) {
        others(&self.exports, &self.imports, port, most)
    }

    /// Output ports that send to the input port, at most so many; and how many there are.
    #[must_use]
    pub fn exporters(&self, port: &Port, most: usize) -> (Vec<Port>, usize) {
        others(&self.imports, &self.exports, port, most)
    }

    /// The first output port that would send to the import if it had no filter, and that forbids filters. The import
    /// need not be on the board as it is.
    ///
    /// # Errors
    /// It takes more than about so many steps to find out.
    pub fn forbids_filters(&self, import: &Import, steps: usize) -> Result<Option<&Port>, TooManySteps> {
        let unfiltered = Import { filter: None, ..import.clone() };
        let known = self.imports.at(&import.port).filter(|placed| placed.fact.matches_like(&unfiltered));
        if let Some(placed) = known.filter(|_| self.is_settled()) {
            return Ok(forbidding(&self.exports, placed.matched.iter()).map(|export| &export.port).min());
        }
        let candidates = self.exports.having(&unfiltered.keys());
        let mut candidates: Vec<&Export> = forbidding(&self.exports, candidates.iter()).collect();
        candidates.sort_by(|one, other| one.port.cmp(&other.port));
        let mut all_taken = 0;
        for export in candidates {
            if all_taken >= steps {
                return Err(TooManySteps);
            }
            let (outcome, taken) = tried(export, &unfiltered);
            if outcome == Outcome::Matches {
                return Ok(Some(&export.port));
            }
            all_taken += taken;
        }
        Ok(None)
    }

    /// For which exports the subscription of the input port costs too much.
    #[must_use]
    pub fn too_costly(&self, port: &Port) -> Option<TooCostly> {
        let placed = self.imports.at(port)?;
        let first = facts(&self.exports, &placed.costly).map(|export| &export.port).min()?;
        Some(TooCostly { first: first.clone(), others: placed.costly.len().saturating_sub(1) })
    }

    /// The first part of what the input port asks for that there is no room for.
    #[must_use]
    pub fn without_room(&self, port: &Port) -> Option<NoRoom> {
        self.asked.without_room(port)
    }

    /// What the output port asks to be found by, if there is no room for that.
    #[must_use]
    pub fn export_without_room(&self, port: &Port) -> Option<NoRoom> {
        self.offered.without_room(port)
    }

    /// Number of the job of an output port that is exported.
    #[must_use]
    pub fn job_of_export(&self, port: &Port) -> Option<u64> {
        self.exports.at(port).map(|placed| placed.fact.job_id)
    }

    /// Number of the job of an input port that imports.
    #[must_use]
    pub fn job_of_import(&self, port: &Port) -> Option<u64> {
        self.imports.at(port).map(|placed| placed.fact.job_id)
    }

    /// Number of the job of an input port, if that receives what the PE exports.
    #[must_use]
    pub fn job_that_receives_from(&self, pe: &Pe, port: &Port) -> Option<u64> {
        met(&self.exports, &self.imports, pe, port).map(|import| import.job_id)
    }

    /// Number of the job of an output port, if that sends to what the PE imports.
    #[must_use]
    pub fn job_that_sends_to(&self, pe: &Pe, port: &Port) -> Option<u64> {
        met(&self.imports, &self.exports, pe, port).map(|export| export.job_id)
    }

    /// The output ports of a PE that are exported.
    pub fn exports_of(&self, pe: &Pe) -> impl Iterator<Item = &Port> {
        self.exports.of(pe).map(|placed| &placed.fact.port)
    }

    /// The input ports of a PE that import.
    pub fn imports_of(&self, pe: &Pe) -> impl Iterator<Item = &Port> {
        self.imports.of(pe).map(|placed| &placed.fact.port)
    }

    /// Number of ports of a PE that are exported or import.
    #[must_use]
    pub fn ports_of(&self, pe: &Pe) -> usize {
        self.exports.count_of(pe) + self.imports.count_of(pe)
    }

    /// Number of exports and of imports.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.exports.len(), self.imports.len())
    }

    /// What a PE is told. A PE without exports and imports, or that nobody knows, has no routes.
    ///
    /// # Errors
    /// There are too many.
    pub fn routes(&self, pe: &Pe) -> Result<Routes, TooManyRoutes> {
        Ok(self.matched(pe)?.routes())
    }

    /// What its routes are made of. That takes a small part of the time that it takes to make them.
    ///
    /// # Errors
    /// There are too many.
    pub fn matched(&self, pe: &Pe) -> Result<Matched, TooManyRoutes> {
        let receivers = self.receivers(pe)?;
        Ok(Matched { receivers, senders: matched(&self.imports, &self.exports, pe) })
    }

    /// The part of it that is about its exports.
    ///
    /// # Errors
    /// There are too many routes.
    pub fn receivers(&self, pe: &Pe) -> Result<Receivers, TooManyRoutes> {
        self.can_be_told(pe)?;
        Ok(matched(&self.exports, &self.imports, pe))
    }

    /// Whether the routes of a PE may fit into a message: then they are made in no time.
    ///
    /// # Errors
    /// There are too many.
    pub fn has_few_routes(&self, pe: &Pe) -> Result<bool, TooManyRoutes> {
        self.can_be_told(pe)?;
        Ok(self.weight(pe) < routes::TOO_MANY_FOR_A_MESSAGE)
    }

    /// The message that tells a PE its routes ([`Routes::message`]). If they are too long for one they are not even put
    /// together.
    ///
    /// # Errors
    /// There are too many.
    pub fn message(&self, pe: &Pe) -> Result<String, TooManyRoutes> {
        match self.weight(pe) {
            routes::TOO_MANY_FOR_A_MESSAGE..=routes::MOST => Ok(routes::GET_THEM.to_owned()),
            _ => Ok(self.routes(pe)?.message()),
        }
    }

    /// Whether there are more routes of a PE than it can be told.
    ///
    /// # Errors
    /// There are.
    pub fn can_be_told(&self, pe: &Pe) -> Result<(), TooManyRoutes> {
        if self.weight(pe) > routes::MOST { Err(TooManyRoutes { pe: pe.clone() }) } else { Ok(()) }
    }

    /// What the routes of a PE weigh.
    fn weight(&self, pe: &Pe) -> usize {
        self.exports.load_of(pe) + self.imports.load_of(pe)
    }
}

/// The same changes, and those of who has room.
fn with_moved(Moved { ports, again }: Moved, mut changes: Changes) -> Changes {
    changes.noted += PAIR_STEPS * (ports.len() + again.len());
    changes.costs.extend(ports.into_iter().map(|port| port.pe));
    Changes { again, ..changes }
}

/// The same, if it is about exports.
fn with_moved_exports(moved: Moved, changes: Changes) -> Changes {
    let changes = with_moved(moved, changes);
    Changes { exports_again: changes.again, again: BTreeSet::new(), ..changes }
}

/// Whether the fact in this place matches what the one matches that was tried.
fn is_still<F: Fact>(side: &Side<F>, (id, tried): &(Id, Arc<F>)) -> bool {
    side.get(*id).is_some_and(|now| Arc::ptr_eq(&now.fact, tried) || now.fact.matches_like(tried))
}

fn is_matched<F: Fact>(side: &Side<F>, port: &Port) -> bool {
    side.at(port).is_some_and(|placed| !placed.matched.is_empty())
}

/// The facts in these places.
fn facts<'a, F: Fact>(side: &'a Side<F>, ids: &'a Ids) -> impl Iterator<Item = &'a F> {
    ids.iter().filter_map(|id| side.get(id)).map(|placed| &*placed.fact)
}

/// The facts of a PE that match something, each with what it matches.
fn matched<F: Fact, G: Fact>(near: &Side<F>, far: &Side<G>, pe: &Pe) -> Vec<(Arc<F>, Vec<Arc<G>>)> {
    let matching = near.of(pe).filter(|placed| !placed.matched.is_empty());
    let each = matching.map(|placed| {
        let others = placed.matched.iter().filter_map(|id| far.get(id)).map(|other| Arc::clone(&other.fact));
        (Arc::clone(&placed.fact), others.collect())
    });
    each.collect()
}

/// The fact of a port of the far side, if something of the PE matches it.
fn met<'a, F: Fact, G: Fact>(near: &'a Side<F>, far: &'a Side<G>, pe: &Pe, port: &Port) -> Option<&'a G> {
    let id = far.id(port)?;
    let is_met = near.of(pe).any(|placed| placed.matched.contains(id));
    far.get(id).filter(|_| is_met).map(|placed| &*placed.fact)
}

/// Those of the exports in these places that forbid filters.
fn forbidding(exports: &Side<Export>, ids: impl Iterator<Item = Id>) -> impl Iterator<Item = &Export> {
    let facts = ids.filter_map(|id| exports.get(id)).map(|placed| &*placed.fact);
    facts.filter(|export| !export.allows_filter)
}

/// The ports of the far side that a port matches, at most so many, in order; and how many there are.
fn others<F: Fact, G: Fact>(near: &Side<F>, far: &Side<G>, port: &Port, most: usize) -> (Vec<Port>, usize) {
    let Some(placed) = near.at(port) else { return (Vec::new(), 0) };
    let mut ports: Vec<Port> = facts(far, &placed.matched).take(most).map(|other| other.port().clone()).collect();
    ports.sort();
    (ports, placed.matched.len())
}

/// Puts a fact on the near side. It is to be tried with what it may match, unless it matches what it matched before.
fn put<F: Fact, G: Fact>(near: &mut Side<F>, far: &mut Side<G>, fact: F) -> Changes {
    let mut changes = Changes::default();
    let before = near.at(fact.port());
    let is_matched_alike = before.is_some_and(|before| before.fact.matches_like(&fact));
    let is_shown_alike = before.is_none_or(|before| before.fact.shown() == fact.shown());
    let known = near.id(fact.port());
    if !is_shown_alike && let Some(id) = known {
        show(near, far, (id, fact.weight()), &mut changes);
    }
    match known {
        Some(id) if is_matched_alike => near.replace(id, fact),
        _ => {
            let keys = fact.keys();
            let candidates = far.having(&keys);
            let id = near.put(fact, keys);
            if known.is_some() {
                forget_other(far, id, &mut changes);
                differ(near, far, id, Some(&candidates), &mut changes);
            }
            near.try_with(id, candidates);
        }
    }
    changes
}

/// Those that match the fact see something else of it, which weighs so much.
fn show<F: Fact, G: Fact>(near: &Side<F>, far: &mut Side<G>, (id, weight): (Id, usize), changes: &mut Changes) {
    let Some(placed) = near.get(id) else { return };
    changes.noted += PAIR_STEPS * placed.matched.len();
    for other in placed.matched.iter() {
        far.weigh(other, placed.weight, weight);
        changes.routes.extend(far.get(other).map(|other| other.fact.port().pe.clone()));
    }
}

/// The fact matches nothing any more, but perhaps of those that are still to be tried.
fn differ<F: Fact, G: Fact>(
    near: &mut Side<F>,
    far: &mut Side<G>,
    id: Id,
    untried: Option<&Ids>,
    changes: &mut Changes,
) {
    let Some(placed) = near.get(id) else { return };
    let mut others = placed.matched.clone();
    others.extend(&placed.costly);
    for other in others.iter().filter(|other| untried.is_none_or(|untried| !untried.contains(*other))) {
        note(near, far, (id, other), Outcome::Differs, changes);
        changes.noted += PAIR_STEPS;
    }
}

/// Nothing of the far side is to be tried with this any more.
fn forget_other<G: Fact>(far: &mut Side<G>, id: Id, changes: &mut Changes) {
    changes.noted += FORGET_STEPS * far.untried_len();
    far.forget_other(id);
}

fn remove<F: Fact, G: Fact>(near: &mut Side<F>, far: &mut Side<G>, port: &Port) -> Changes {
    let mut changes = Changes::default();
    if let Some(id) = near.id(port) {
        differ(near, far, id, None, &mut changes);
        forget_other(far, id, &mut changes);
        near.remove(id);
    }
    changes
}

/// Notes on both sides what came of trying these two.
fn note<F: Fact, G: Fact>(
    near: &mut Side<F>,
    far: &mut Side<G>,
    (id, other): (Id, Id),
    outcome: Outcome,
    changes: &mut Changes,
) {
    let (Some(this), Some(that)) = (near.get(id), far.get(other)) else { return };
    let pes = [this.fact.port().pe.clone(), that.fact.port().pe.clone()];
    let (weight, weight_of_other) = (this.weight, that.weight);
    let noted = near.note(id, other, outcome, weight_of_other);
    far.note(other, id, outcome, weight);
    if noted.costly {
        changes.costs.extend(pes.clone());
    }
    if noted.matched {
        changes.routes.extend(pes);
    }
}
