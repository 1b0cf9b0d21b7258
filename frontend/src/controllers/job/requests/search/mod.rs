//! Which set of widths is compiled next, and which wish is at fault when the compiler refuses a set (rule
//! elasticity-3). Pure.
//!
//! All wishes are tried together first. If that is refused, the oldest half of those that count in it is, and so on by
//! bisection, until there is a wish with which a set is refused and without which it is not. A wish that does not
//! count, because a newer one names a region of it, cannot be why the set is refused. Each try is a compilation, one at
//! a time; what came of it is kept in [`Verdicts`], in memory only: a process that has just started tries again. It is
//! kept only as long as wishes may lead to the set: once those at fault have been told, a refusal is not repeated from
//! memory to whoever wants the same later. Its cause may be gone, because not every refusal follows from widths.
//!
//! Whoever floods a job with widths that are refused costs each other wish a few tries, however many there are: once
//! one was refused and all others are, too, those go on at once that share no region with it. So they do beside a
//! region whose width changes with each try ([`Faults`]). When many were refused, care is taken, which is to say that
//! the oldest half is tried before all of them, because others may come and go faster than a try ends, and that whoever
//! is in a half that compiles goes on at once.
//!
//! A compilation that comes to no end is no refusal, but is looked into with the same care after the second in a row;
//! and what does not count is tried as well, because who is older cannot wait for so long until all who are newer were
//! tried. The wish at fault is tried alone from then on ([`apart`](super::apart)).
//!
//! What was begun and ended because a request of it was withdrawn, again and again, is begun with fewer wishes each
//! time, down to the oldest one alone: whoever makes and withdraws requests keeps nobody waiting who was there before.
//!
//! Knows: wishes, what came of compilations. Must not know: requests, edits, how long something takes.

#[cfg(test)]
mod tests;

use super::super::tasks::Failure;
use super::apart::{Apart, may_be_of_widths};
use super::faults::Faults;
use super::wishes::{WidthSet, Wish, combine, counting, union};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter::successors;
use std::sync::Arc;

/// Verdicts that are kept, and of jobs with many regions, as each has a width of all of them: both are more than a
/// search takes.
const KEPT: usize = 128;
const KEPT_OF_MANY: usize = 32;
/// From so many widths on a job has many regions.
const MANY: usize = 1 << 16;
/// Compilations in a row that came to no end, from which on one says something about its set; and compilations and
/// proposals that were withdrawn, from which on fewer wishes are compiled together.
const IN_A_ROW: u32 = 2;

/// What the compiler said about sets of widths that may follow the committed generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Verdicts {
    /// The generation that would come of them.
    generation: u64,
    /// In the order in which they came. Each look has a copy, and a set may have thousands of regions.
    said: VecDeque<(Arc<WidthSet>, Option<Failure>)>,
    /// Compilations of several wishes that came to no end since all of them were compiled last.
    endless: u32,
    /// Compilations and proposals for this generation that ended because a request of them was withdrawn.
    withdrawn: u32,
    /// Wishes that are tried alone.
    apart: Vec<Apart>,
    /// Wishes that were refused for this generation.
    faults: Faults,
}

impl Verdicts {
    /// A set was compiled, or was refused. A refusal stands: texts may be refused of what was compiled.
    pub(crate) fn note(&mut self, generation: u64, set: WidthSet, refusal: Option<Failure>) {
        self.keep_of(generation);
        let set = Arc::new(set);
        if refusal.is_some() {
            self.faults.note_set(&set);
        }
        match self.said.iter_mut().find(|(known, _)| *known == set) {
            Some((_, known)) => {
                if refusal.is_some() || known.as_ref().is_some_and(Failure::is_temporary) {
                    *known = refusal;
                }
            }
            None => self.said.push_back((set, refusal)),
        }
        let widths: usize = self.said.iter().map(|(set, _)| set.widths.len()).sum();
        if self.said.len() > KEPT || (widths > MANY && self.said.len() > KEPT_OF_MANY) {
            self.said.pop_front();
        }
    }

    /// The compilation of a set has failed and may be tried again. Returns whether that is taken for a verdict: it came
    /// to no end, and not for the first time.
    pub(crate) fn note_trouble(
        &mut self,
        generation: u64,
        applied: &BTreeMap<String, u32>,
        set: &WidthSet,
        failure: &Failure,
    ) -> bool {
        // What is in force already is compiled only to repair it.
        if !may_be_of_widths(failure) || set.widths == *applied {
            return false;
        }
        let is_alone = |apart: &Apart| combine(applied, std::slice::from_ref(&apart.wish)) == *set;
        if !self.apart.iter().any(is_alone) {
            self.endless = self.endless.saturating_add(1);
            if self.endless < IN_A_ROW {
                return false;
            }
        }
        self.note(generation, set.clone(), Some(failure.clone()));
        true
    }

    /// What was compiled for a set cannot be written. That a set compiles does not show that it can be: from now on the
    /// oldest half goes on as soon as it compiles, and what becomes of it says where to look.
    pub(crate) fn note_unwritable(&mut self, generation: u64, set: WidthSet, failure: Failure) {
        self.endless = self.endless.max(IN_A_ROW);
        self.note(generation, set, Some(failure));
    }

    /// All wishes but those that are tried alone were compiled, or there are none: the next trouble is the first one.
    pub(crate) fn end_care(&mut self) {
        self.endless = 0;
    }

    /// What was begun for several wishes ends because a request of it was withdrawn.
    pub(crate) fn note_withdrawal(&mut self) {
        self.withdrawn = self.withdrawn.saturating_add(1);
    }

    /// Nothing is wanted but what is in force: whoever comes next has waited for nobody.
    pub(crate) fn begin_anew(&mut self) {
        (self.withdrawn, self.faults) = (0, Faults::default());
    }

    /// From now on these wishes are tried alone, and no others.
    pub(crate) fn set_apart(&mut self, apart: &[Apart]) {
        self.apart = apart.to_vec();
    }

    /// Whether this wish is tried alone, and what is known of that.
    pub(super) fn apart(&self, wish: &Wish) -> Option<&Apart> {
        self.apart.iter().find(|apart| apart.wish == *wish)
    }

    /// The wish that is tried alone came to no end, again.
    pub(super) fn of_one(&self, applied: &BTreeMap<String, u32>, wish: &Wish) -> Option<&Failure> {
        self.of(&combine(applied, std::slice::from_ref(wish)))?.filter(|failure| failure.is_temporary())
    }

    /// A wish is refused that names these regions: nobody else waits until all others of them are looked into.
    pub(crate) fn note_fault<'a>(&mut self, regions: impl Iterator<Item = &'a String>) {
        self.faults.note(regions);
    }

    fn is_careful(&self) -> bool {
        self.comes_to_no_end() || self.faults.are_many()
    }

    /// Compilations come to no end, or what was compiled cannot be written.
    fn comes_to_no_end(&self) -> bool {
        self.endless >= IN_A_ROW
    }

    /// Those of the wishes, oldest first, that are compiled together: all, unless what was begun was withdrawn again
    /// and again. As many as something comes of, and about the same though more wishes come.
    fn together<'a>(&self, applied: &BTreeMap<String, u32>, wishes: &'a [Wish]) -> &'a [Wish] {
        let halvings = self.withdrawn.saturating_sub(IN_A_ROW.saturating_sub(1));
        if halvings == 0 {
            return wishes;
        }
        let least = wishes.len().next_power_of_two().checked_shr(halvings).unwrap_or_default().max(1);
        let counts = successors(Some(least), |count| count.checked_mul(2));
        let mut parts = counts.map_while(|count| wishes.get(..count));
        parts.find(|part| combine(applied, part).widths != *applied).unwrap_or(wishes)
    }

    /// Forgets what was said about sets that would be another generation, and what ended before that was committed.
    pub(crate) fn keep_of(&mut self, generation: u64) {
        if self.generation != generation {
            (self.generation, self.said, self.withdrawn) = (generation, VecDeque::new(), 0);
            self.faults = Faults::default();
        }
    }

    /// Sets to which these wishes cannot lead, whichever of them count.
    pub(super) fn unwanted<'a>(
        &self,
        applied: &BTreeMap<String, u32>,
        wishes: impl Iterator<Item = &'a Wish>,
    ) -> Vec<Arc<WidthSet>> {
        if self.said.is_empty() {
            return Vec::new();
        }
        let wanted: BTreeSet<(&String, &u32)> = wishes.flat_map(|wish| &wish.widths).collect();
        let is_wanted = |region, width| applied.get(region) == Some(width) || wanted.contains(&(region, width));
        let sets = self.said.iter().map(|(set, _)| set);
        sets.filter(|set| !set.widths.iter().all(|(region, width)| is_wanted(region, width))).map(Arc::clone).collect()
    }

    /// Forgets what was said about these sets.
    pub(crate) fn forget(&mut self, sets: &[Arc<WidthSet>]) {
        self.said.retain(|(set, _)| !sets.contains(set));
    }

    /// What was said about a set: nothing, or that it compiles, or why it does not.
    pub(super) fn of(&self, set: &WidthSet) -> Option<Option<&Failure>> {
        self.said.iter().find(|(known, _)| **known == *set).map(|(_, refusal)| refusal.as_ref())
    }
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    /// This set is to be compiled, or what was compiled for it to be used; if it is what is applied, nothing is.
    Compile(WidthSet),
    /// The wish at this position is refused.
    Fault(usize, Failure),
}

/// Looks for the set that comes next, given the applied widths and the wishes, oldest first.
pub(crate) fn search(applied: &BTreeMap<String, u32>, wishes: &[Wish], verdicts: &Verdicts) -> Found {
    let wishes = verdicts.together(applied, wishes);
    let all = combine(applied, wishes);
    let said = verdicts.of(&all);
    if all.widths == *applied || said == Some(None) {
        return Found::Compile(all);
    }
    // What is known to be refused is the same as at the last look.
    let unsteady = if said.is_none() { verdicts.faults.unsteady(&all) } else { BTreeSet::new() };
    let all_first = said.is_none() && !verdicts.is_careful();
    if all_first && unsteady.is_empty() {
        return Found::Compile(all);
    }
    let is_steady = |wish: &Wish| !wish.widths.keys().any(|region| unsteady.contains(region.as_str()));
    let is_beside = |wish: &Wish| is_steady(wish) && !verdicts.faults.is_shared_by(wish);
    let everybody: Vec<usize> = (0..wishes.len()).collect();
    let of_beside = everybody.iter().copied().filter(|position| wishes.get(*position).is_some_and(is_beside));
    let beside: Vec<usize> = of_beside.collect();
    let set = combined(applied, wishes, &beside);
    if beside.len() < everybody.len() && set.widths != *applied {
        let is_halved = match verdicts.of(&set) {
            Some(refusal) => refusal.is_some(),
            None => verdicts.comes_to_no_end(),
        };
        return if is_halved { bisect(applied, wishes, beside, verdicts) } else { Found::Compile(set) };
    }
    if all_first { Found::Compile(all) } else { bisect(applied, wishes, everybody, verdicts) }
}

/// What the wishes at these positions, oldest first, come to together.
fn combined(applied: &BTreeMap<String, u32>, wishes: &[Wish], positions: &[usize]) -> WidthSet {
    let counting = counting(wishes, positions.iter().copied());
    union(applied, counting.into_iter().filter_map(|position| wishes.get(position)))
}

/// Looks for the one at fault among the wishes at these positions, oldest first, which are not known to compile
/// together; or for what is to be compiled before it is known.
fn bisect(applied: &BTreeMap<String, u32>, wishes: &[Wish], mut positions: Vec<usize>, verdicts: &Verdicts) -> Found {
    // What comes to no end takes long, so an older wish for the same region does not wait for the newer ones.
    if !verdicts.comes_to_no_end() {
        positions = counting(wishes, positions.into_iter());
    }
    let set = |count: usize| combined(applied, wishes, positions.get(..count).unwrap_or(&positions));
    let all = set(positions.len());
    let mut refusal = verdicts.of(&all).flatten();
    let most = verdicts.faults.most_at_first(positions.len());
    let (mut good, mut bad) = (0, positions.len());
    while bad - good > 1 {
        // The same for a while though more wishes come.
        let middle = good + most.min((bad - good).next_power_of_two() / 2);
        let half = set(middle);
        if half.widths == *applied {
            good = middle;
            continue;
        }
        match verdicts.of(&half) {
            None => return Found::Compile(half),
            Some(None) if verdicts.is_careful() => return Found::Compile(half),
            Some(None) => good = middle,
            Some(failure) => (bad, refusal) = (middle, failure),
        }
    }
    match (bad.checked_sub(1).and_then(|last| positions.get(last)), refusal) {
        (Some(fault), Some(refusal)) => Found::Fault(*fault, refusal.clone()),
        _ => Found::Compile(all),
    }
}
