//! Which set of widths is compiled next, and which wish is at fault when the compiler refuses a set (rule
//! elasticity-3). Pure.
//!
//! All wishes are tried together first. If that is refused, the oldest half of those that count in it is, and so on by
//! bisection, until there is a wish with which a set is refused and without which it is not. A wish that does not count,
//! because a newer one names a region of it, cannot be why the set is refused. Each try is a compilation, one at a time;
//! what came of it is kept in [`Verdicts`], in memory only: a process that has just started tries again. It is kept
//! only as long as wishes may lead to the set: once those at fault have been told, a refusal is not repeated from
//! memory to whoever wants the same later. Its cause may be gone, because not every refusal follows from widths.
//!
//! Whoever floods a job with widths that are refused costs each other wish a few tries, however many there are: once one
//! was refused and all others are, too, those go on at once that share no region with it ([`Faults`]).
//!
//! A compilation that comes to no end is no refusal, but is looked into like one after the second in a row: with care,
//! as it is when many are refused, which is to say that the oldest half is tried before all of them, because others may come and go faster than a try
//! ends, and that whoever is in a half that compiles goes on at once. The wish at fault is tried alone from then on
//! ([`apart`](super::apart)).
//!
//! What was begun and ended because a request of it was withdrawn, again and again, is begun with fewer wishes each
//! time, down to the oldest one alone: whoever makes and withdraws requests keeps nobody waiting who was there before.
//!
//! Knows: wishes, what came of compilations. Must not know: requests, edits, how long something takes.

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
        match self.said.iter_mut().find(|(known, _)| **known == set) {
            Some((_, known)) => {
                if refusal.is_some() || known.as_ref().is_some_and(Failure::is_temporary) {
                    *known = refusal;
                }
            }
            None => self.said.push_back((Arc::new(set), refusal)),
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
        self.endless >= IN_A_ROW || self.faults.are_many()
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
    if all.widths == *applied {
        return Found::Compile(all);
    }
    match verdicts.of(&all) {
        Some(Some(_)) => {}
        None if verdicts.is_careful() => {}
        Some(None) | None => return Found::Compile(all),
    }
    let is_beside = |position: &usize| wishes.get(*position).is_some_and(|wish| !verdicts.faults.is_shared_by(wish));
    let beside: Vec<usize> = (0..wishes.len()).filter(is_beside).collect();
    if beside.len() < wishes.len() {
        let of_beside = counting(wishes, beside.iter().copied());
        let set = union(applied, of_beside.iter().filter_map(|position| wishes.get(*position)));
        let is_refused = matches!(verdicts.of(&set), Some(Some(_)));
        if set.widths != *applied {
            return if is_refused { bisect(applied, wishes, &of_beside, verdicts) } else { Found::Compile(set) };
        }
    }
    bisect(applied, wishes, &counting(wishes, 0..wishes.len()), verdicts)
}

/// Looks for the one at fault among the wishes at these positions, which count together and are not all known to
/// compile; or for what is to be compiled before it is known.
fn bisect(applied: &BTreeMap<String, u32>, wishes: &[Wish], counting: &[usize], verdicts: &Verdicts) -> Found {
    let set = |count: usize| union(applied, counting.iter().take(count).filter_map(|position| wishes.get(*position)));
    let all = set(counting.len());
    let mut refusal = verdicts.of(&all).flatten();
    let most = verdicts.faults.most_at_first(counting.len());
    let (mut good, mut bad) = (0, counting.len());
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
    match (bad.checked_sub(1).and_then(|last| counting.get(last)), refusal) {
        (Some(fault), Some(refusal)) => Found::Fault(*fault, refusal.clone()),
        _ => Found::Compile(all),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tasks::Remedy;
    use super::super::apart::DEADLINE_EXCEEDED;
    use super::super::wishes::tests::{edit, request, widths};
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn failure() -> Failure {
        let (reason, message) = ("Refused".to_owned(), "no".to_owned());
        Failure { remedy: Remedy::Correct, reason, message, stage: None, code: None }
    }

    /// Tries until nobody is at fault and everything is compiled. Says who was at fault, in that order, what was
    /// compiled in the end, and how many compilations it took.
    fn tried(wishes: Vec<Wish>, refuses: impl Fn(&WidthSet) -> bool) -> (Vec<Wish>, WidthSet, usize) {
        tried_with(&mut Verdicts::default(), wishes, refuses)
    }

    /// The same, after these verdicts.
    fn tried_with(
        verdicts: &mut Verdicts,
        mut wishes: Vec<Wish>,
        refuses: impl Fn(&WidthSet) -> bool,
    ) -> (Vec<Wish>, WidthSet, usize) {
        let applied = widths(&[("A", 1), ("B", 1), ("C", 1), ("D", 1)]);
        let (mut asked, mut faults, mut compilations) = (BTreeSet::new(), Vec::new(), 0);
        loop {
            let unwanted = verdicts.unwanted(&applied, wishes.iter());
            let found = search(&applied, &wishes, verdicts);
            verdicts.forget(&unwanted);
            match found {
                Found::Fault(at, _) => {
                    let fault = wishes.remove(at);
                    verdicts.note_fault(fault.widths.keys());
                    faults.push(fault);
                }
                Found::Compile(set) => {
                    let is_last = set == combine(&applied, &wishes);
                    if set.widths == applied || verdicts.of(&set) == Some(None) {
                        return (faults, set, compilations);
                    }
                    assert!(asked.insert(set.clone()), "nothing is asked twice: {set:?}");
                    compilations += 1;
                    let refusal = refuses(&set).then(failure);
                    let is_done = refusal.is_none() && is_last;
                    verdicts.note(1, set.clone(), refusal);
                    if is_done {
                        return (faults, set, compilations);
                    }
                }
            }
        }
    }

    #[test]
    fn who_is_at_fault_costs_nobody_else_anything() {
        let narrow = |set: &WidthSet| set.widths.values().any(|width| *width > 100);
        let few = |set: &WidthSet| set.widths.values().sum::<u32>() > 20;
        let (a, b, c, d) =
            (edit("A", 2), request(1, &[("B", 3)]), request(2, &[("C", 4), ("D", 4)]), request(3, &[("D", 9)]));
        let large = request(4, &[("A", 10_000)]);
        // wishes -> who is at fault, widths in the end, most compilations
        let (faults, set, compilations) = tried(vec![a.clone(), b.clone(), c.clone()], narrow);
        assert_eq!((faults, set.widths, compilations), (vec![], widths(&[("A", 2), ("B", 3), ("C", 4), ("D", 4)]), 1));
        let (faults, set, compilations) = tried(vec![edit("A", 10_000), b.clone(), c.clone()], narrow);
        assert_eq!((faults, set.widths), (vec![edit("A", 10_000)], widths(&[("A", 1), ("B", 3), ("C", 4), ("D", 4)])));
        assert!(compilations <= 4, "{compilations}");
        let (faults, set, _) = tried(vec![a.clone(), b.clone(), c.clone(), large.clone()], narrow);
        assert_eq!((faults, set.widths), (vec![large], widths(&[("A", 2), ("B", 3), ("C", 4), ("D", 4)])));
        // Together they are too much: the newer ones are at fault.
        let (faults, set, _) = tried(vec![a, b, request(2, &[("C", 14)]), d.clone()], few);
        assert_eq!((faults, set.widths), (vec![d], widths(&[("A", 2), ("B", 3), ("C", 14), ("D", 1)])));
    }

    #[test]
    fn the_only_wish_is_refused_by_one_compilation() {
        let (faults, set, compilations) = tried(vec![request(1, &[("A", 2), ("B", 2)])], |_| true);
        assert_eq!((faults.len(), compilations), (1, 1));
        assert_eq!(set.widths, widths(&[("A", 1), ("B", 1), ("C", 1), ("D", 1)]));
    }

    #[test]
    fn wishes_for_the_same_are_refused_by_one_compilation_and_later_ones_by_another() {
        let mut verdicts = Verdicts::default();
        let same = |numbers: [u64; 3]| numbers.map(|number| request(number, &[("A", 2)])).to_vec();
        for numbers in [[1, 2, 3], [4, 5, 6]] {
            let (mut faults, _, compilations) = tried_with(&mut verdicts, same(numbers), |_| true);
            // Of several that name one region the newest counts.
            faults.reverse();
            assert_eq!((faults, compilations), (same(numbers), 1), "{numbers:?}");
            verdicts.begin_anew();
        }
        // The cause is gone.
        let (faults, set, _) = tried_with(&mut verdicts, same([7, 8, 9]), |_| false);
        assert_eq!((faults, set.widths), (vec![], widths(&[("A", 2), ("B", 1), ("C", 1), ("D", 1)])));
    }

    #[test]
    fn what_was_said_is_kept_as_long_as_wishes_may_lead_to_it() {
        let applied = widths(&[("A", 1), ("B", 1)]);
        let (a, both) = (edit("A", 2), request(1, &[("A", 3), ("B", 3)]));
        // widths of A and B, wishes -> unwanted
        let table: [(u32, u32, &[&Wish], bool); 6] = [
            (2, 1, &[&a], false),
            (2, 1, &[&both], true),
            (2, 1, &[], true),
            (2, 3, &[&a, &both], false),
            (3, 3, &[&a], true),
            (1, 1, &[], false),
        ];
        for (a, b, wishes, expected) in table {
            let set = WidthSet { widths: widths(&[("A", a), ("B", b)]), rebalances: false };
            let mut verdicts = Verdicts::default();
            verdicts.note(1, set.clone(), Some(failure()));
            let unwanted = verdicts.unwanted(&applied, wishes.iter().copied());
            assert_eq!(!unwanted.is_empty(), expected, "{set:?} {wishes:?}");
            verdicts.forget(&unwanted);
            assert_eq!(verdicts.of(&set).is_none(), expected);
        }
    }

    #[test]
    fn one_among_a_thousand_is_found_by_few_compilations() {
        let applied: Vec<(String, u32)> = (0..1_000).map(|region| (format!("R{region}"), 1)).collect();
        let applied: BTreeMap<_, _> = applied.into_iter().collect();
        let mut wishes: Vec<Wish> = (0..1_000).map(|n| request(n, &[(&format!("R{n}"), 2)])).collect();
        wishes[617] = request(617, &[("R617", 10_000)]);
        let mut verdicts = Verdicts::default();
        for compilations in 0..20 {
            match search(&applied, &wishes, &verdicts) {
                Found::Fault(at, _) => {
                    assert_eq!((at, compilations), (617, 11));
                    return;
                }
                Found::Compile(set) => {
                    let refusal = (set.widths["R617"] > 100).then(failure);
                    verdicts.note(1, set, refusal);
                }
            }
        }
        panic!("it is not found");
    }

    /// Until nobody wants anything: who wants what is refused is told so, and what compiles is in force. Returns how
    /// many compilations there were until each of the others was in force, and in all.
    fn flood(mut wishes: Vec<Wish>, is_refused: impl Fn(&Wish) -> bool) -> (Vec<usize>, usize) {
        let mut applied: BTreeMap<String, u32> =
            wishes.iter().flat_map(|wish| wish.widths.keys()).map(|region| (region.clone(), 1)).collect();
        let all_refused: Vec<Wish> = wishes.iter().filter(|wish| is_refused(wish)).cloned().collect();
        let refuses = |set: &WidthSet| {
            let has = |wish: &Wish| wish.widths.iter().all(|(region, width)| set.widths.get(region) == Some(width));
            all_refused.iter().any(has)
        };
        let (mut verdicts, mut after, mut compilations, mut generation) = (Verdicts::default(), Vec::new(), 0, 1);
        while !wishes.is_empty() {
            match search(&applied, &wishes, &verdicts) {
                Found::Fault(at, _) => {
                    let fault = wishes.remove(at);
                    assert!(is_refused(&fault), "{fault:?}");
                    verdicts.note_fault(fault.widths.keys());
                }
                Found::Compile(set) if verdicts.of(&set) == Some(None) => {
                    assert_ne!(set.widths, applied);
                    applied = set.widths;
                    generation += 1;
                    verdicts.keep_of(generation);
                    let is_in_force = |wish: &Wish| wish.widths.iter().all(|(region, width)| applied[region] == *width);
                    after.extend(wishes.iter().filter(|wish| is_in_force(wish)).map(|_| compilations));
                    wishes.retain(|wish| !is_in_force(wish));
                }
                Found::Compile(set) => {
                    compilations += 1;
                    let refusal = refuses(&set).then(failure);
                    verdicts.note(generation, set, refusal);
                }
            }
        }
        (after, compilations)
    }

    /// "A flood starves a job": each bad one costs little, and nobody else waits for all of them.
    #[test]
    fn a_flood_of_widths_that_are_refused_delays_others_by_few_compilations() {
        let bad = |n: u64| request(n, &[("R", 10_000 + u32::try_from(n).unwrap())]);
        let of_two = |n: u64| request(n, &[("R", 10_000 + u32::try_from(n).unwrap()), ("S", 9)]);
        let of_its_own = |n: u64| request(n, &[(&format!("R{n}"), 10_000)]);
        let (edit, newest) = (edit("A", 2), [request(1_000, &[("B", 3)])]);
        let between = |flood: &dyn Fn(u64) -> Wish, good: &[Wish]| {
            let mut wishes: Vec<Wish> = (1..500).map(flood).collect();
            wishes.insert(0, edit.clone());
            wishes.extend(good.iter().cloned());
            wishes
        };
        // wishes, oldest first -> most compilations until the edit and each other one is in force, and in all
        let table = [
            ("the oldest", between(&bad, &[]), vec![10], 550),
            ("the newest as well", between(&bad, &newest), vec![10, 10], 550),
            ("two regions", between(&of_two, &newest), vec![10, 10], 550),
            ("one of its regions", between(&of_two, &[request(1_000, &[("S", 3)])]), vec![10, 10], 550),
            ("many regions", between(&of_its_own, &[]), vec![40], 650),
            ("many regions, and the newest", between(&of_its_own, &newest), vec![40, 650], 650),
        ];
        for (case, wishes, delays, most) in table {
            let (after, compilations) = flood(wishes, |wish| wish.widths.values().any(|width| *width > 100));
            assert_eq!(after.len(), delays.len(), "{case}: {after:?}");
            let is_soon = after.iter().zip(&delays).all(|(after, most)| after <= most);
            assert!(is_soon && compilations <= most, "{case}: {after:?} {compilations}");
        }
    }

    fn endless() -> Failure {
        let remedy = Remedy::Retry(Timestamp::UNIX_EPOCH);
        Failure { remedy, reason: DEADLINE_EXCEEDED.to_owned(), ..failure() }
    }

    /// Each try takes as long as it takes another wish to come. A wish for a width above 100 comes to no end.
    #[test]
    fn a_wish_with_which_compilations_come_to_no_end_keeps_nobody_waiting() {
        // wishes, oldest first; whether a new one comes with each try
        let large = |number| request(number, &[("A", 10_000)]);
        let table = [
            (vec![large(1), request(2, &[("B", 3)])], false),
            (vec![large(1), request(2, &[("B", 3)])], true),
            (vec![edit("B", 3), large(1)], true),
            (vec![request(1, &[("B", 3)]), request(2, &[("C", 3)]), large(3), request(4, &[("D", 3)])], true),
        ];
        for (before, grows) in table {
            let applied = widths(&[("A", 1), ("B", 1), ("C", 1), ("D", 1)]);
            let (mut verdicts, mut wishes) = (Verdicts::default(), before.clone());
            let (mut compiled, mut number) = (false, 10);
            let apart = loop {
                match search(&applied, &wishes, &verdicts) {
                    Found::Fault(at, failure) => break (wishes.remove(at), failure),
                    Found::Compile(set) => {
                        assert!(number < 30, "it comes to no end: {before:?}");
                        number += 1;
                        if set.widths["A"] > 100 {
                            verdicts.note_trouble(1, &applied, &set, &endless());
                        } else {
                            compiled = true;
                            // Those of the set are in force, and this is the next generation.
                            wishes.retain(|wish| wish.widths.contains_key("A"));
                            verdicts.keep_of(number);
                        }
                        if grows {
                            wishes.push(request(number, &[("D", u32::try_from(number).unwrap())]));
                        }
                    }
                }
            };
            assert_eq!((apart.0.widths["A"], &apart.1), (10_000, &endless()), "{before:?}");
            assert!(compiled || before[0].widths.contains_key("A"), "{before:?}");
        }
    }

    #[test]
    fn with_each_withdrawal_fewer_wishes_are_compiled_together() {
        let applied = widths(&[("A", 1), ("B", 1)]);
        // The oldest one wants what is in force.
        let mut wishes = vec![request(0, &[("A", 1)]), request(1, &[("B", 3)])];
        wishes.extend((2..8).map(|number| request(number, &[("A", u32::try_from(number).unwrap())])));
        let mut verdicts = Verdicts::default();
        // what happens -> how many of the oldest are compiled together
        let withdrawal: fn(&mut Verdicts) = Verdicts::note_withdrawal;
        let table: [(fn(&mut Verdicts), usize); 8] = [
            (|_| {}, 8),
            (withdrawal, 8),
            (withdrawal, 4),
            (|verdicts| verdicts.note(0, WidthSet::default(), None), 4),
            (withdrawal, 2),
            (|verdicts| (0..100).for_each(|_| verdicts.note_withdrawal()), 2),
            (|verdicts| verdicts.keep_of(1), 8),
            (|verdicts| (0..9).for_each(|_| verdicts.note_withdrawal()), 2),
        ];
        for (happens, expected) in table {
            happens(&mut verdicts);
            let expected = combine(&applied, &wishes[..expected]);
            assert_eq!(search(&applied, &wishes, &verdicts), Found::Compile(expected), "{verdicts:?}");
        }
        verdicts.begin_anew();
        assert_eq!(search(&applied, &wishes, &verdicts), Found::Compile(combine(&applied, &wishes)));
        // Nothing but what is in force.
        verdicts.note_withdrawal();
        verdicts.note_withdrawal();
        let nothing = search(&applied, &wishes[..1], &verdicts);
        assert_eq!(nothing, Found::Compile(WidthSet { widths: applied.clone(), rebalances: false }));
    }

    #[test]
    fn one_compilation_without_an_end_says_nothing_and_two_in_a_row_do() {
        let applied = widths(&[("A", 1), ("B", 1)]);
        let set = |a, b| WidthSet { widths: widths(&[("A", a), ("B", b)]), rebalances: false };
        let unavailable = Failure { reason: "FusionUnavailable".to_owned(), ..endless() };
        let mut verdicts = Verdicts::default();
        // widths, failure -> it counts as a verdict
        let table = [
            (set(9, 1), unavailable.clone(), false),
            (set(9, 1), endless(), false),
            (set(9, 1), unavailable, false),
            // A repair.
            (set(1, 1), endless(), false),
            (set(9, 2), endless(), true),
        ];
        for (set, failure, expected) in table {
            let noted = verdicts.note_trouble(1, &applied, &set, &failure);
            assert_eq!((noted, verdicts.of(&set).is_some()), (expected, expected), "{set:?} {failure:?}");
        }
        // That it compiles is known better.
        verdicts.note(1, set(9, 2), None);
        assert_eq!(verdicts.of(&set(9, 2)), Some(None));
        verdicts.end_care();
        assert!(!verdicts.note_trouble(1, &applied, &set(9, 1), &endless()));
        // One that is tried alone says it at once.
        let wish = request(1, &[("A", 9)]);
        verdicts.set_apart(&[Apart::new(wish.clone(), endless(), Timestamp::UNIX_EPOCH)]);
        assert!(verdicts.note_trouble(1, &applied, &set(9, 1), &endless()));
        assert_eq!(verdicts.of_one(&applied, &wish), Some(&endless()));
    }

    /// That a half compiles does not say that it can be written.
    #[test]
    fn who_is_at_fault_that_a_set_cannot_be_written_is_found_by_writing_halves_of_it() {
        let applied = widths(&[("A", 1), ("B", 1), ("C", 1)]);
        let [bad, b, c] = [("A", 9), ("B", 2), ("C", 2)].map(|wanted| request(u64::from(wanted.1), &[wanted]));
        let cannot_be_written = |set: &WidthSet| set.widths["A"] > 1;
        // wishes, oldest first -> what is compiled until the one at fault is known
        let table = [
            (vec![bad.clone(), b.clone()], 2),
            (vec![b.clone(), bad.clone()], 3),
            (vec![bad.clone(), b.clone(), c.clone()], 3),
        ];
        for (mut wishes, tries) in table {
            let (mut verdicts, mut tried, mut generation) = (Verdicts::default(), 0, 1);
            let at_fault = loop {
                match search(&applied, &wishes, &verdicts) {
                    Found::Fault(at, failure) => break (wishes.remove(at), failure),
                    Found::Compile(set) => {
                        tried += 1;
                        assert!(tried < 9, "{wishes:?}");
                        verdicts.note(generation, set.clone(), None);
                        assert_eq!(search(&applied, &wishes, &verdicts), Found::Compile(set.clone()), "it goes on");
                        if cannot_be_written(&set) {
                            verdicts.note_unwritable(generation, set, endless());
                        } else {
                            // It is in force.
                            wishes.retain(|wish| wish.widths.contains_key("A"));
                            generation += 1;
                            verdicts.keep_of(generation);
                        }
                    }
                }
            };
            assert_eq!((at_fault, tried), ((bad.clone(), endless()), tries));
        }
    }

    #[test]
    fn verdicts_are_of_one_generation_and_refusals_stand() {
        let set = WidthSet { widths: widths(&[("A", 2)]), rebalances: false };
        let mut verdicts = Verdicts::default();
        verdicts.note(1, set.clone(), Some(failure()));
        verdicts.note(1, set.clone(), None);
        assert_eq!(verdicts.of(&set), Some(Some(&failure())));
        verdicts.keep_of(2);
        assert_eq!(verdicts.of(&set), None);
        // regions -> sets that are kept
        for (regions, kept) in [(1, KEPT), (1_000, 65), (3_000, KEPT_OF_MANY)] {
            let mut verdicts = Verdicts::default();
            for width in 0..150 {
                let widths = (0..regions).map(|region| (format!("R{region}"), width)).collect();
                verdicts.note(2, WidthSet { widths, rebalances: false }, None);
            }
            assert_eq!(verdicts.said.len(), kept, "{regions}");
            assert!(verdicts.said.back().is_some_and(|(newest, _)| newest.widths.values().all(|width| *width == 149)));
        }
    }
}
