//! Whose turn it is: keys that wait, handed out in turn to namespaces, within a namespace to the objects in it, and
//! within an object to those who are told apart there.
//!
//! Knows: who a key belongs to. Must not know: what becomes of keys, time.
//!
//! Invariants: a namespace or an object without a waiting key takes no memory. Between two keys of one namespace each
//! other namespace that waits, and may, gets one; so do the objects within a namespace, and those who are told apart
//! within an object. Keys of one of these, or of an object where nobody is told apart, come out in the order in which
//! they went in. Patient keys come after the others of their namespace, whatever object those belong to, but for one in
//! nine.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Who a key belongs to, for sharing workers fairly (rule call-7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The namespace.
    pub namespace: Arc<str>,
    /// What all the keys of one thing in the namespace have in common, for example the name of a job.
    pub object: Arc<str>,
}

/// Keys of a namespace that are handed out before a patient one of it, if such a key waits.
const BEFORE_PATIENT: u32 = 8;

/// Keys that wait, or whatever else waits for its turn.
pub struct Turns<T> {
    namespaces: Ring<Namespace<T>>,
}

// Derived, it would ask for items that have a default.
impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { namespaces: Ring::default() }
    }
}

/// Keys of an object, by whom they are told apart; all under the empty name if they are not.
type OfObject<T> = Ring<VecDeque<T>>;

/// Keys of a namespace, by object.
struct Namespace<T> {
    usual: Ring<OfObject<T>>,
    patient: Ring<OfObject<T>>,
    /// Keys that went before patient ones since one of those had its turn.
    in_a_row: u32,
}

impl<T> Default for Namespace<T> {
    fn default() -> Self {
        Self { usual: Ring::default(), patient: Ring::default(), in_a_row: 0 }
    }
}

impl<T> Namespace<T> {
    fn pop(&mut self, mut counts: impl FnMut(&T) -> bool) -> Option<T> {
        let Self { usual, patient, in_a_row } = self;
        let is_patients_turn = *in_a_row >= BEFORE_PATIENT;
        let mut pop = |objects: &mut Ring<OfObject<T>>| {
            objects.pop(|_, ones| ones.pop(|_, items| next(items, &mut counts), VecDeque::is_empty), Ring::is_empty)
        };
        if !is_patients_turn && let Some(item) = pop(usual) {
            *in_a_row = if patient.is_empty() { 0 } else { *in_a_row + 1 };
            return Some(item);
        }
        *in_a_row = 0;
        pop(patient).or_else(|| pop(usual))
    }

    fn is_empty(&self) -> bool {
        self.usual.is_empty() && self.patient.is_empty()
    }
}

impl<T> Turns<T> {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The item waits, behind those of its object.
    pub fn push(&mut self, owner: Owner, item: T) {
        self.push_of(owner, Arc::default(), item);
    }

    /// The item waits, behind those of its object that are of this one, too.
    pub(crate) fn push_of(&mut self, owner: Owner, one: Arc<str>, item: T) {
        self.namespaces.entry(owner.namespace).usual.entry(owner.object).entry(one).push_back(item);
    }

    /// The item waits, before those of its object that are of this one, too.
    pub(crate) fn push_first_of(&mut self, owner: Owner, one: Arc<str>, item: T) {
        self.namespaces.entry(owner.namespace).usual.entry(owner.object).entry(one).push_front(item);
    }

    /// Others of the namespace go first.
    pub(crate) fn push_patient(&mut self, owner: Owner, item: T) {
        self.namespaces.entry(owner.namespace).patient.entry(owner.object).entry(Arc::default()).push_back(item);
    }

    /// The next item that `counts`, of a namespace that `may` have a turn. Items that do not count are dropped on the
    /// way and cost nobody a turn.
    pub fn pop(&mut self, may: impl Fn(&str) -> bool, counts: impl Fn(&T) -> bool) -> Option<T> {
        self.pop_of(may, |_, item| counts(item))
    }

    /// Drops all items that do not count. What is left keeps its order.
    pub fn retain(&mut self, mut counts: impl FnMut(&T) -> bool) {
        self.retain_of(|_, item| counts(item));
    }

    /// [`Turns::retain`]; `counts` hears of which namespace the item is.
    pub(crate) fn retain_of(&mut self, mut counts: impl FnMut(&Arc<str>, &T) -> bool) {
        let of_namespace = |namespace: &Arc<str>, keys: &mut Namespace<T>| {
            let mut counts = |item: &T| counts(namespace, item);
            for objects in [&mut keys.usual, &mut keys.patient] {
                let of_object = |_: &Arc<str>, ones: &mut OfObject<T>| {
                    ones.retain(|_, items| items.retain(&mut counts), VecDeque::is_empty)
                };
                objects.retain(of_object, Ring::is_empty);
            }
        };
        self.namespaces.retain(of_namespace, Namespace::is_empty);
    }

    /// [`Turns::pop`]; `counts` hears of which namespace the item is.
    pub(crate) fn pop_of(
        &mut self,
        may: impl Fn(&str) -> bool,
        mut counts: impl FnMut(&Arc<str>, &T) -> bool,
    ) -> Option<T> {
        self.namespaces.pop(
            |namespace, keys| if may(namespace) { keys.pop(|item| counts(namespace, item)) } else { None },
            Namespace::is_empty,
        )
    }

    /// Nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }

    /// The namespaces of which something waits, or of which something was left that does not count any more.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &Arc<str>> {
        self.namespaces.order.iter()
    }
}

fn next<T>(items: &mut VecDeque<T>, mut counts: impl FnMut(&T) -> bool) -> Option<T> {
    while let Some(item) = items.pop_front() {
        if counts(&item) {
            return Some(item);
        }
    }
    None
}

/// Parts by name that take turns. A part that is empty is removed.
struct Ring<P> {
    order: VecDeque<Arc<str>>,
    parts: HashMap<Arc<str>, P>,
}

impl<P> Default for Ring<P> {
    fn default() -> Self {
        Self { order: VecDeque::new(), parts: HashMap::new() }
    }
}

impl<P: Default> Ring<P> {
    fn entry(&mut self, name: Arc<str>) -> &mut P {
        let order = &mut self.order;
        self.parts.entry(name).or_insert_with_key(|name| {
            order.push_back(Arc::clone(name));
            P::default()
        })
    }

    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Changes all parts, and removes those that are empty then.
    fn retain(&mut self, mut change: impl FnMut(&Arc<str>, &mut P), is_empty: impl Fn(&P) -> bool) {
        let parts = &mut self.parts;
        self.order.retain(|name| {
            let Some(part) = parts.get_mut(name) else { return false };
            change(name, part);
            let has_something = !is_empty(part);
            if !has_something {
                parts.remove(name);
            }
            has_something
        });
    }

    /// Asks the parts in turn until one gives something. That one, if it has more, comes last from then on; those that
    /// were asked before and have something left keep their places.
    fn pop<T>(
        &mut self,
        mut pop: impl FnMut(&Arc<str>, &mut P) -> Option<T>,
        is_empty: impl Fn(&P) -> bool,
    ) -> Option<T> {
        let mut at = 0;
        while at < self.order.len() {
            let name = &self.order[at];
            let (popped, empty) = match self.parts.get_mut(name) {
                Some(part) => (pop(name, part), is_empty(part)),
                None => (None, true),
            };
            if popped.is_none() && !empty {
                at += 1;
                continue;
            }
            if let Some(name) = self.order.remove(at) {
                if empty {
                    self.parts.remove(&name);
                } else {
                    self.order.push_back(name);
                }
            }
            if popped.is_some() {
                return popped;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn turns(items: &[(&str, &str, u32)]) -> Turns<u32> {
        let mut turns = Turns::new();
        for (namespace, object, item) in items {
            turns.push(Owner { namespace: (*namespace).into(), object: (*object).into() }, *item);
        }
        turns
    }

    fn rest(turns: &mut Turns<u32>) -> Vec<u32> {
        std::iter::from_fn(|| turns.pop(|_| true, |_| true)).collect()
    }

    #[test]
    fn namespaces_take_turns_and_so_do_objects_within_them() {
        let table: [(&[(&str, &str, u32)], &[u32]); 4] = [
            (&[("a", "x", 1), ("a", "x", 2), ("a", "x", 3)], &[1, 2, 3]),
            (&[("a", "x", 1), ("a", "x", 2), ("b", "y", 3)], &[1, 3, 2]),
            (&[("a", "x", 1), ("a", "x", 2), ("a", "y", 3)], &[1, 3, 2]),
            (&[("a", "x", 1), ("a", "x", 2), ("a", "y", 3), ("b", "x", 4), ("b", "x", 5)], &[1, 4, 3, 5, 2]),
        ];
        for (items, expected) in table {
            assert_eq!(rest(&mut turns(items)), expected, "{items:?}");
        }
    }

    #[test]
    fn what_comes_first_goes_before_others_of_its_object_only() {
        let mut turns = turns(&[("a", "x", 1), ("a", "y", 2), ("b", "x", 3)]);
        turns.push_first_of(Owner { namespace: "a".into(), object: "x".into() }, Arc::default(), 4);
        turns.push_first_of(Owner { namespace: "c".into(), object: "x".into() }, Arc::default(), 5);
        assert_eq!(rest(&mut turns), [4, 3, 5, 2, 1]);
    }

    #[test]
    fn those_who_are_told_apart_within_an_object_take_turns_and_its_turns_are_no_more_for_that() {
        let mut turns = turns(&[("a", "y", 20), ("a", "y", 21), ("a", "y", 22)]);
        let owner = || Owner { namespace: "a".into(), object: "x".into() };
        for (one, item) in [("p", 1), ("p", 2), ("p", 3), ("q", 4), ("r", 5), ("r", 6)] {
            turns.push_of(owner(), one.into(), item);
        }
        turns.push_first_of(owner(), "r".into(), 7);
        assert_eq!(rest(&mut turns), [20, 1, 21, 4, 22, 7, 2, 5, 3, 6]);
        turns.push_of(owner(), "p".into(), 1);
        turns.push_of(owner(), "q".into(), 2);
        turns.retain(|item| item % 2 == 0);
        assert_eq!(rest(&mut turns), [2]);
        assert!(turns.namespaces.parts.is_empty());
    }

    #[test]
    fn a_namespace_that_may_not_keeps_its_place() {
        let mut turns = turns(&[("a", "x", 1), ("b", "x", 2), ("b", "x", 3)]);
        assert_eq!(turns.pop(|namespace| namespace != "a", |_| true), Some(2));
        assert_eq!(turns.pop(|namespace| namespace == "c", |_| true), None);
        assert_eq!(rest(&mut turns), [1, 3]);
    }

    #[test]
    fn what_does_not_count_costs_no_turn_and_leaves_nothing_behind() {
        let mut turns = turns(&[("a", "x", 1), ("a", "x", 2), ("b", "x", 3), ("c", "x", 5)]);
        assert_eq!(turns.pop(|_| true, |item| item % 2 == 0), Some(2));
        assert_eq!(turns.pop(|_| true, |item| item % 2 == 0), None);
        assert!(turns.namespaces.is_empty() && turns.namespaces.parts.is_empty());
    }

    #[test]
    fn what_is_kept_of_all_that_wait_comes_in_its_order_and_the_rest_leaves_nothing_behind() {
        let of_all = [("a", "x", 1), ("a", "y", 2), ("a", "y", 4), ("b", "x", 3), ("c", "x", 6), ("c", "x", 8)];
        let mut turns = turns(&of_all);
        turns.push_patient(Owner { namespace: "a".into(), object: "z".into() }, 10);
        turns.retain(|item| item % 2 == 0);
        assert_eq!(turns.namespaces.parts.len(), 2);
        assert_eq!(rest(&mut turns), [2, 6, 4, 8, 10]);
        turns.push(Owner { namespace: "a".into(), object: "x".into() }, 1);
        turns.retain(|_| false);
        assert!(turns.is_empty() && turns.namespaces.parts.is_empty());
    }

    #[test]
    fn patient_keys_come_after_the_others_of_their_namespace_but_for_one_in_nine() {
        let owner = |namespace: &str, object: &str| Owner { namespace: namespace.into(), object: object.into() };
        let mut turns = turns(&[("b", "x", 100)]);
        (1..=3).for_each(|item| turns.push_patient(owner("a", "x"), item));
        (11..=30).for_each(|item| turns.push(owner("a", "y"), item));
        let order: Vec<u32> = rest(&mut turns).into_iter().filter(|item| *item != 100).collect();
        let expected: Vec<u32> =
            [(11..=18), (1..=1), (19..=26), (2..=2), (27..=30), (3..=3)].into_iter().flatten().collect();
        assert_eq!(order, expected);
    }

    #[test]
    fn patient_keys_of_a_namespace_wait_for_no_other_namespace() {
        let mut turns = turns(&[("a", "x", 1), ("a", "x", 2), ("a", "x", 3)]);
        turns.push_patient(Owner { namespace: "b".into(), object: "x".into() }, 4);
        assert_eq!(rest(&mut turns), [1, 4, 2, 3]);
    }

    proptest! {
        #[test]
        fn everything_comes_out_once_and_nobody_waits_for_more_than_a_turn_of_each(
            owners in prop::collection::vec((0..4u8, 0..3u8, any::<bool>()), 1..60),
        ) {
            let mut turns = Turns::new();
            for (at, (namespace, object, patient)) in owners.iter().enumerate() {
                let owner = Owner { namespace: namespace.to_string().into(), object: object.to_string().into() };
                if *patient { turns.push_patient(owner, at) } else { turns.push(owner, at) }
            }
            let order: Vec<usize> = std::iter::from_fn(|| turns.pop(|_| true, |_| true)).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..owners.len()).collect::<Vec<_>>());
            // At every moment no namespace is ahead of another, that still waits, by more than one.
            let mut given = [0_usize; 4];
            let mut left = [0_usize; 4];
            owners.iter().for_each(|(namespace, ..)| left[usize::from(*namespace)] += 1);
            for item in order {
                let namespace = usize::from(owners[item].0);
                given[namespace] += 1;
                left[namespace] -= 1;
                for other in 0..4 {
                    prop_assert!(left[other] == 0 || given[namespace] <= given[other] + 1);
                }
            }
        }
    }
}
