//! Which set comes next, and who is at fault, while others ask, change their minds and flood a job.

use super::super::super::tasks::Remedy;
use super::super::apart::DEADLINE_EXCEEDED;
use super::super::wishes::Author;
use super::super::wishes::tests::{edit, request, widths};
use super::*;
use k8s_openapi::jiff::Timestamp;

/// Wishes of a flood.
const FLOOD: u64 = 200;

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

/// Until nobody wants anything, or very many compilations: who wants a width above 100 is told so, what compiles is
/// in force. `change` is what others do during each. Says how many there were until this wish was in force, and
/// in all.
fn flood(good: &Wish, mut wishes: Vec<Wish>, change: impl Fn(u64, &mut Vec<Wish>)) -> (Option<u64>, u64) {
    let regions = ["A", "B", "R", "S"].into_iter().map(str::to_owned).chain((0..FLOOD).map(|n| format!("R{n}")));
    let mut applied: BTreeMap<String, u32> = regions.map(|region| (region, 1)).collect();
    let (mut verdicts, mut after, mut compilations, mut generation) = (Verdicts::default(), None, 0, 1);
    while !wishes.is_empty() && compilations < 2 * FLOOD {
        verdicts.forget(&verdicts.unwanted(&applied, wishes.iter()));
        let set = match search(&applied, &wishes, &verdicts) {
            Found::Fault(at, _) => {
                let fault = wishes.remove(at);
                assert!(fault.widths.values().any(|width| *width > 100), "{fault:?}");
                verdicts.note_fault(fault.widths.keys());
                continue;
            }
            Found::Compile(set) if set.widths == applied => break,
            Found::Compile(set) => set,
        };
        let mut goes_on = verdicts.of(&set) == Some(None);
        if !goes_on {
            compilations += 1;
            let refusal = set.widths.values().any(|width| *width > 100).then(failure);
            // What was wanted of all comes into force though it is not what is wanted by then (rule elasticity-17).
            goes_on = refusal.is_none() && set == combine(&applied, &wishes);
            verdicts.note(generation, set.clone(), refusal);
            change(compilations, &mut wishes);
        }
        if goes_on {
            applied = set.widths;
            generation += 1;
            verdicts.keep_of(generation);
            let is_in_force = |wish: &Wish| wish.widths.iter().all(|(region, width)| applied[region] == *width);
            if wishes.contains(good) && is_in_force(good) {
                after = Some(compilations);
            }
            wishes.retain(|wish| !is_in_force(wish));
        }
    }
    (after, compilations)
}

fn at_most(u: u64) -> impl Fn(Option<u64>) -> bool {
    move |number| number.is_some_and(|number| number <= u)
}

/// "A flood starves a job": each bad one costs little, and nobody else waits for all of them.
#[test]
fn a_flood_of_widths_that_are_refused_delays_others_by_few_compilations() {
    let bad = |n: u64| request(n, &[("R", 10_000 + u32::try_from(n).unwrap())]);
    let of_two = |n: u64| request(n, &[("R", 10_000 + u32::try_from(n).unwrap()), ("S", 9)]);
    let of_its_own = |n: u64| request(n, &[(&format!("R{n}"), 10_000)]);
    let (oldest, newest) = (edit("A", 2), request(1_000, &[("B", 3)]));
    let of_its_region = request(1_000, &[("S", 3)]);
    let none = |_: u64, _: &mut Vec<Wish>| {};
    // who else wants something, the flood -> most compilations until that is in force, and in all
    let table: [(&str, &Wish, &dyn Fn(u64) -> Wish, u64, u64); 6] = [
        ("the oldest", &oldest, &bad, 10, FLOOD + 50),
        ("the newest", &newest, &bad, 10, FLOOD + 50),
        ("two regions", &newest, &of_two, 10, FLOOD + 50),
        ("one of its regions", &of_its_region, &of_two, 10, FLOOD + 50),
        ("many regions, and the oldest", &oldest, &of_its_own, 40, FLOOD + 100),
        ("many regions, and the newest", &newest, &of_its_own, FLOOD + 100, FLOOD + 100),
    ];
    for (case, good, flood_of, delay, most) in table {
        let mut wishes: Vec<Wish> = (0..FLOOD).map(flood_of).collect();
        let at = if *good == oldest { 0 } else { wishes.len() };
        wishes.insert(at, good.clone());
        let (after, compilations) = flood(good, wishes, none);
        assert!(at_most(delay)(after) && compilations <= most, "{case}: {after:?} {compilations}");
    }
}

#[test]
fn wishes_that_change_with_each_compilation_delay_others_by_few_of_them() {
    let (good, bad) = (request(1, &[("S", 3)]), request(2, &[("R", 10_000)]));
    let edited = |first: u32| {
        move |number: u64, wishes: &mut Vec<Wish>| {
            wishes.retain(|wish| !matches!(wish.author, Author::Edit(_)));
            wishes.insert(0, edit("A", first + u32::try_from(number % 50).unwrap()));
        }
    };
    let one_more = |number: u64, wishes: &mut Vec<Wish>| {
        wishes.push(request(1_000 + number, &[("R", 20_000 + u32::try_from(number).unwrap())]));
    };
    // what others do -> most compilations until the good one is in force
    let table: [(&str, Vec<Wish>, &dyn Fn(u64, &mut Vec<Wish>), u64); 3] = [
        ("edits to refused widths", vec![edit("A", 10_000), good.clone()], &edited(10_001), 6),
        ("edits to good widths beside a bad one", vec![edit("A", 2), good.clone(), bad.clone()], &edited(3), 8),
        ("more and more bad ones", vec![good.clone(), bad], &one_more, 8),
    ];
    for (case, wishes, change, delay) in table {
        let (after, _) = flood(&good, wishes, change);
        assert!(at_most(delay)(after), "{case}: {after:?}");
    }
}

fn endless() -> Failure {
    let remedy = Remedy::Retry(Timestamp::UNIX_EPOCH);
    Failure { remedy, reason: DEADLINE_EXCEEDED.to_owned(), ..failure() }
}

/// Each try takes as long as it takes another wish to come. A wish for a width above 100 comes to no end.
#[test]
fn a_wish_with_which_compilations_come_to_no_end_keeps_nobody_waiting() {
    // wishes, oldest first; what comes with each try
    let large = |number| request(number, &[("A", 10_000)]);
    let small = |number: u64| request(number, &[("D", u32::try_from(number).unwrap())]);
    let larger = |number: u64| request(number, &[("A", 10_000 + u32::try_from(number).unwrap())]);
    let table: [(Vec<Wish>, Option<&dyn Fn(u64) -> Wish>); 4] = [
        (vec![large(1), request(2, &[("B", 3)])], None),
        (vec![large(1), request(2, &[("B", 3)])], Some(&small)),
        (vec![edit("B", 3), large(1)], Some(&small)),
        (vec![request(1, &[("B", 3)]), request(2, &[("C", 3)]), large(3), request(4, &[("D", 3)])], Some(&small)),
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
                    wishes.extend(grows.map(|grows| grows(number)));
                }
            }
        };
        assert_eq!((apart.0.widths["A"], &apart.1), (10_000, &endless()), "{before:?}");
        assert!(compiled || before[0].widths.contains_key("A"), "{before:?}");
    }
    // Who is older does not wait for all who want more of the same region.
    let applied = widths(&[("A", 1)]);
    let (mut verdicts, mut wishes) = (Verdicts::default(), vec![request(1, &[("A", 3)]), large(2)]);
    let mut tries = 0;
    while wishes.first().is_some_and(|wish| wish.widths["A"] == 3) {
        match search(&applied, &wishes, &verdicts) {
            Found::Compile(set) if set.widths["A"] == 3 => break,
            Found::Compile(set) => {
                verdicts.note_trouble(1, &applied, &set, &endless());
                tries += 1;
                assert!(tries < 9, "it comes to no end");
                wishes.push(larger(tries));
            }
            Found::Fault(at, _) => drop(wishes.remove(at)),
        }
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
