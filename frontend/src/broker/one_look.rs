//! A look at one export or import: it is read, put on its board, and what comes of that is told (rule import-10).
//!
//! Knows: how long a look may take, who may wait for that. Must not know: what events are about, whose turn it is.
//!
//! Invariants:
//! * An object is read without the lock of its namespace, so nobody waits for that but callers who look aside, and the
//!   task that looks at long objects: long ones of a namespace are read one after the other. Neither whoever is told of
//!   an event nor a turn ever waits for whoever reads one.
//! * No board is given an earlier arrival of an object after a later one. What is put is what the mirror has then. If
//!   that is a long one that has come while another arrival was read, what was read is put only if it was read alone,
//!   was taken from the mirror after that had begun, and nothing of the object was taken over since.
//! * What has come meanwhile, and was not read, is looked at once more: that is written down under the lock under which
//!   it is noticed.

use crate::broker::allowance::{Allowance, SLICE};
use crate::broker::arrivals::{self, Arrival, EXPORTS, Handling, IMPORTS};
use crate::broker::boards::Boards;
use crate::broker::facts;
use crate::broker::namespace::{Looked, ObjectName};
use crate::broker::predecessors::Side;
use std::collections::BTreeSet;
use std::sync::Arc;
use streams_broker::{Board, Pe};
use streams_kubernetes::Key;
use streams_kubernetes::watch::{Kept, Mirrored};

/// Ports of PEs of which others are told at once. Whoever is told of a PE looks at all of its ports, so if there are
/// more they are told in turns: once of all that has become other by then.
const FEW_PORTS: usize = 64;

/// What whoever looks at an object does if that may take longer than a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfLong {
    /// Asks for a turn in which it is looked at: this thread has others to serve.
    Leave,
    /// Reads it, unless somebody else reads another one of the namespace: then it stays as it is.
    Try,
    /// Reads it, as soon as nobody else reads another one of the namespace.
    Wait,
}

impl Boards {
    /// Takes over what the mirror has of an export or import, and nothing else, however long that takes.
    pub(super) fn look_alone(&self, side: Side, key: &Key) {
        let mut allowance = self.allowance(&key.namespace, &(side, Arc::clone(&key.name)));
        self.look(side, key, &mut allowance, IfLong::Wait);
    }

    /// The same, unless that may take long: then it has a turn. Whether it was taken over.
    pub(super) fn look_if_short(&self, side: Side, key: &Key) -> bool {
        let mut allowance = self.allowance(&key.namespace, &(side, Arc::clone(&key.name)));
        self.look(side, key, &mut allowance, IfLong::Leave)
    }

    /// Whether a look at an export or import may take longer than a slice now. It may have become long a moment later.
    pub(super) fn may_take_long(&self, side: Side, key: &Key) -> bool {
        is_long(self.octets(side, key))
    }

    /// Octets of what is read for a look at an export or import; none if it has gone.
    pub(super) fn octets(&self, side: Side, key: &Key) -> usize {
        let mirrors = &self.shared.mirrors;
        match side {
            Side::Export => arrivals::octets(mirrors.exports.kept(key).as_ref()),
            Side::Import => arrivals::octets(mirrors.imports.kept(key).as_ref()),
        }
    }

    /// What may be done because of this object, or in a turn of which it is the first. Where something else is left of
    /// what was changed before, whoever changes something all the time has nothing more tried. Whoever has changed the
    /// object may see it waiting itself.
    pub(super) fn allowance(&self, name: &str, object: &ObjectName) -> Allowance {
        let is_all = self.read(name, |namespace| namespace.is_settled_but_for(object));
        Allowance { looks: SLICE, tries: if is_all.unwrap_or(true) { SLICE } else { 0 } }
    }

    /// Takes over what the mirror has of an export or import, and tries some of what may match by that. PEs for which
    /// something has become other are told, or will be in a turn. Whether it was taken over, or something later; if
    /// not, it still is to be looked at.
    pub(super) fn look(&self, side: Side, key: &Key, allowance: &mut Allowance, if_long: IfLong) -> bool {
        match side {
            Side::Export => self.look_by(&EXPORTS, key, allowance, if_long),
            Side::Import => self.look_by(&IMPORTS, key, allowance, if_long),
        }
    }

    pub(super) fn look_by<K: Mirrored, F>(
        &self,
        handling: &Handling<K, F>,
        key: &Key,
        allowance: &mut Allowance,
        if_long: IfLong,
    ) -> bool {
        let shared = &self.shared;
        let object = (handling.side, Arc::clone(&key.name));
        let in_mirror = || (handling.mirror)(&shared.mirrors).kept(key);
        let takes_long = |kept: Option<&Kept<K>>| is_long(arrivals::octets(kept));
        let (began, found) = (shared.awaited_looks.begin(), in_mirror());
        let is_found_long = takes_long(found.as_ref());
        if is_found_long && if_long == IfLong::Leave {
            self.leave_to_a_turn(key, object);
            return false;
        }
        let of_long = if is_found_long { self.namespaces().get(&key.namespace).cloned() } else { None };
        if is_found_long && of_long.is_none() {
            // Without a job there it does not count, and a job that comes has all of its objects looked at.
            return true;
        }
        let reading = match &of_long {
            None => None,
            Some(namespace) if if_long == IfLong::Wait => Some(namespace.read_alone(&object)),
            Some(namespace) => {
                let Some(reading) = namespace.try_to_read_alone(&object) else { return false };
                Some(reading)
            }
        };
        let (began, found) =
            if reading.is_some() { (shared.awaited_looks.begin(), in_mirror()) } else { (began, found) };
        let read = Arrival::read(handling, found);
        let (touched, is_latest, was_late) = self.change(&key.namespace, |namespace| {
            let was_late = namespace.late.contains(&object);
            let now = in_mirror();
            let (is_newest, is_now_long) = (read.is(now.as_ref()), takes_long(now.as_ref()));
            let has_long_come = !is_newest && is_now_long;
            // Whoever writes a long one as fast as it can be read has each second one looked at.
            let is_latest = !has_long_come || reading.as_ref().is_some_and(|reading| reading.is_latest(namespace));
            // What was left to be tried before this waits for its turn.
            let (was_settled, was_tried) = (namespace.is_settled(), namespace.board.is_settled());
            let Looked { changes, pe, steps } = if is_latest {
                // What is not long is read at once. A long one that has come meanwhile has a look of its own.
                let arrival = if is_newest || is_now_long { read } else { Arrival::read(handling, now) };
                namespace.take_over(handling, arrival, key, &shared.mirrors)
            } else {
                Looked { steps: read.steps, ..Looked::default() }
            };
            if has_long_come {
                namespace.be_late(object);
                self.have_a_turn(&key.namespace);
            }
            allowance.looks = allowance.looks.saturating_sub(steps + changes.noted);
            let mut touched = namespace.numbered(changes, &shared.last_version);
            if was_tried {
                let settled = namespace.board.settle(allowance.tries);
                allowance.tries = allowance.tries.saturating_sub(settled.steps);
                touched.extend(namespace.numbered(settled, &shared.last_version));
            }
            namespace.forget_old();
            touched.extend(pe.clone());
            // It needs no routes, so it is told at once.
            let gone = pe.filter(|pe| namespace.forget_if_gone(pe)).and_then(|pe| touched.take(&pe));
            if !was_settled || !namespace.is_settled() || !are_few(&namespace.board, &touched) {
                // Nobody can be told routes now, or it takes long. Whoever settles the namespace tells all together.
                self.have_a_turn(&key.namespace);
                namespace.untold.append(&mut touched);
            }
            touched.extend(gone);
            (touched, is_latest, was_late)
        });
        drop(reading);
        if is_latest {
            shared.awaited_looks.end(began, handling.side, key);
        }
        self.tell(&key.namespace, touched);
        if is_latest && was_late {
            self.tell_late(handling.side, key);
        }
        is_latest
    }

    fn leave_to_a_turn(&self, key: &Key, object: ObjectName) {
        self.change(&key.namespace, |namespace| {
            namespace.be_late(object);
            self.have_a_turn(&key.namespace);
        });
    }

    pub(super) fn have_a_turn(&self, namespace: &Arc<str>) {
        self.line().join(namespace);
        self.shared.is_any_unsettled.notify_one();
    }
}

/// Whether a look at an object of so many octets may take longer than a slice. How long it takes is known when it has
/// been read only.
pub(super) fn is_long(octets: usize) -> bool {
    facts::most_steps(octets) > SLICE
}

/// Whether whoever is told of these PEs looks at few ports. Each has one at least.
fn are_few(board: &Board, pes: &BTreeSet<Pe>) -> bool {
    let ports = pes.iter().take(FEW_PORTS + 1).map(|pe| board.ports_of(pe).max(1));
    ports.sum::<usize>() <= FEW_PORTS
}
