//! What is looked at because of an event, and how much of it (rule import-10).
//!
//! What somebody writes into an object is taken over by whoever is told of it, which may be the task that polls the
//! mirrors of all namespaces. It looks at some of the ports that an event is about, of which a job may have thousands,
//! and tries a little of what may match, and [`Boards::settle`] does the rest, namespace by namespace.
//!
//! Knows: events of the mirrors of exports, imports, jobs and PEs, turns. Must not know: which objects count, how PEs
//! are told.
//!
//! Invariants:
//! * What a board knows of an object is what the mirror has of it, once everybody who was told of a change has looked.
//!   What has not been looked at yet is written down under the lock of the namespace, and so is what the mirror has had
//!   another arrival of meanwhile.
//! * An object is read without the lock of the namespace, so nobody waits for that but who reads another long one of
//!   the namespace: these are read one after the other. What is put may be older than what the mirror has by then: it
//!   is looked at once more.
//! * Of all that an event is about, nobody looks at more than takes a [`SLICE`], nor tries more than another one, but
//!   for the look and the evaluation with which these end; and so it is with all that events about jobs and PEs of a
//!   namespace are about within a second.
//! * What may take longer than a slice to be looked at is not looked at because of an event, but in a turn: whoever has
//!   written long lists into one object holds up nobody but those who ask for the namespace. Callers who wait to see
//!   what they have written look at it themselves, beside the threads that serve everybody.
//! * A long object that the board has is as it was until its turn has come, and so are all routes: the namespace is
//!   settled meanwhile.
//! * A namespace that is not settled, or was not until now, or has somebody to tell or something to look at, has a turn
//!   to come.

use crate::broker::allowance::{Allowance, SLICE};
use crate::broker::arrivals::{self, Arrival, EXPORTS, Handling, IMPORTS};
use crate::broker::boards::{Boards, pe_of};
use crate::broker::facts;
use crate::broker::namespace::{Looked, Namespace, ObjectName};
use crate::broker::predecessors::Side;
use crate::mirrors::Mirrors;
use std::collections::BTreeSet;
use std::sync::Arc;
use streams_api::{Export, Import, Job, ProcessingElement};
use streams_broker::{Board, Pe};
use streams_kubernetes::Key;
use streams_kubernetes::watch::{Kept, Mirrored};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

/// Ports of PEs of which others are told at once. Whoever is told of a PE looks at all of its ports, so if there are
/// more they are told in turns: once of all that has become other by then.
const FEW_PORTS: usize = 64;

/// What a look may take at most that is in a turn, in steps of evaluations: some milliseconds.
const LONGEST_IN_TURN: usize = 4 * SLICE;

/// What may be looked at because of an event.
struct SomeLooks {
    objects: Vec<ObjectName>,
    allowance: Allowance,
    /// Since when that has been a slice of all events.
    since: Instant,
}

impl Boards {
    /// Boards that follow these mirrors.
    pub(crate) fn of(mirrors: &Mirrors) -> Self {
        let boards = Self::new(mirrors);
        mirrors.jobs.subscribe({
            let boards = boards.clone();
            move |job: &Job| boards.look_at_job(&Key::of(job))
        });
        mirrors.exports.subscribe({
            let boards = boards.clone();
            move |export: &Export| boards.look_or_wait(Side::Export, &Key::of(export))
        });
        mirrors.imports.subscribe({
            let boards = boards.clone();
            move |import: &Import| boards.look_or_wait(Side::Import, &Key::of(import))
        });
        mirrors.processing_elements.subscribe({
            let boards = boards.clone();
            move |element: &ProcessingElement| boards.look_at_pe(&Key::of(element))
        });
        boards
    }

    /// Takes over what the mirror has of an export, however long that takes. Whoever has seen it in the mirror may call
    /// this at any time.
    pub(crate) async fn look_at_export(&self, key: &Key) {
        self.look_aside(Side::Export, key).await;
    }

    /// Takes over what the mirror has of an import, however long that takes. Whoever has seen it in the mirror may call
    /// this at any time.
    pub(crate) async fn look_at_import(&self, key: &Key) {
        self.look_aside(Side::Import, key).await;
    }

    /// The same, beside the threads that serve everybody if it may take long.
    async fn look_aside(&self, side: Side, key: &Key) {
        if !self.may_take_long(side, key) {
            return self.look_alone(side, key);
        }
        // The thread has the place, not the caller, who may leave: one of each namespace waits for its turn to read.
        let place = self.shared.aside.acquire(&key.namespace).await;
        let (boards, of) = (self.clone(), key.clone());
        let look = move || {
            let _place = place;
            boards.look_alone(side, &of);
        };
        if let Err(error) = spawn_blocking(look).await {
            // It has a turn as well.
            tracing::error!(%error, %key, "a look has not come to its end");
        }
    }

    /// Takes over what the mirror has of an export or import, and nothing else.
    pub(super) fn look_alone(&self, side: Side, key: &Key) {
        let mut allowance = self.allowance(&key.namespace, &(side, Arc::clone(&key.name)));
        self.look(side, key, &mut allowance);
    }

    /// Takes over what the mirror has of an export or import that somebody has written, unless that may take long: then
    /// it waits for a turn.
    fn look_or_wait(&self, side: Side, key: &Key) {
        if self.may_take_long(side, key) {
            self.change(&key.namespace, |namespace| {
                namespace.be_late((side, Arc::clone(&key.name)));
                self.have_a_turn(&key.namespace);
            });
        } else {
            self.look_alone(side, key);
        }
    }

    fn may_take_long(&self, side: Side, key: &Key) -> bool {
        is_long(self.octets(side, key))
    }

    /// Octets of what is read for a look at an export or import; none if it has gone.
    fn octets(&self, side: Side, key: &Key) -> usize {
        let mirrors = &self.shared.mirrors;
        match side {
            Side::Export => arrivals::octets(mirrors.exports.kept(key).as_ref()),
            Side::Import => arrivals::octets(mirrors.imports.kept(key).as_ref()),
        }
    }

    /// Takes over what the mirror has of a job, and looks at those exports and imports for which that matters.
    fn look_at_job(&self, key: &Key) {
        let some = self.change(&key.namespace, |namespace| {
            let changed = namespace.changed_by_job(key, &self.shared.mirrors);
            if !namespace.waiting_jobs.is_empty() {
                self.have_a_turn(&key.namespace);
            }
            self.let_wait(&key.namespace, namespace, changed)
        });
        self.look_at_some(&key.namespace, some);
    }

    /// Looks at those ports of a PE that its pod has by now and did not, or the other way round.
    fn look_at_pe(&self, key: &Key) {
        let Some(pe) = pe_of(&key.name) else { return };
        let some = self.read(&key.namespace, |namespace| {
            let changed = namespace.changed_by_pe(&pe, key, &self.shared.mirrors);
            self.let_wait(&key.namespace, namespace, changed)
        });
        self.look_at_some(&key.namespace, some.flatten());
    }

    /// Writes down the objects that an event is about. If there are several, the namespace is not settled before all
    /// have been looked at: nobody is told what comes of half an event, and nobody as often as there are objects.
    /// Returns those of which some may be looked at because of the event, and how much that is: who looks gives back
    /// what is left. Nothing is looked at if something of the namespace waits for a turn already, or if events of the
    /// same second have had as much looked at as one may: whoever changes something all the time has nothing more
    /// looked at by that.
    fn let_wait(&self, name: &Arc<str>, namespace: &mut Namespace, objects: Vec<ObjectName>) -> Option<SomeLooks> {
        if objects.is_empty() {
            return None;
        }
        let taken = namespace.is_settled().then(|| namespace.of_events.take(Instant::now()));
        let taken = taken.filter(|(allowance, _)| *allowance != Allowance::default());
        let may_look = taken.is_some_and(|(allowance, _)| allowance.looks > 0);
        let is_for_now = |object: &ObjectName| may_look && !self.may_take_long(object.0, &key_of(name, object));
        let is_one_for_now = matches!(&*objects, [object] if is_for_now(object));
        if !is_one_for_now {
            namespace.waiting.extend(objects.iter().cloned());
            self.have_a_turn(name);
        }
        taken.map(|(allowance, since)| SomeLooks { objects, allowance, since })
    }

    /// Looks at the first of the objects that an event is about, as far as none of them may take long.
    fn look_at_some(&self, namespace: &Arc<str>, some: Option<SomeLooks>) {
        let Some(SomeLooks { objects, mut allowance, since }) = some else { return };
        for object in objects {
            let (side, key) = (object.0, key_of(namespace, &object));
            if allowance.looks == 0 || self.may_take_long(side, &key) {
                break;
            }
            self.look(side, &key, &mut allowance);
        }
        // If the namespace has gone by that, a new one of its name begins with all of it.
        self.read(namespace, |namespace| namespace.of_events.give_back(allowance, since));
    }

    /// Whether an object is too long to be looked at in a turn.
    pub(super) fn is_beyond_turns(&self, name: &Arc<str>, object: &ObjectName) -> bool {
        facts::most_steps(self.octets(object.0, &key_of(name, object))) > LONGEST_IN_TURN
    }

    /// Looks at some of what waits for that. What is too long for the rest of this turn is the first of another one.
    /// What is too long for turns is left, unless this is one of those that are for such.
    pub(super) fn look_at_waiting(&self, name: &Arc<str>, is_for_long: bool) {
        let next = |last: Option<ObjectName>| {
            let next = self.read(name, |namespace| {
                namespace.looked_at_last = last.or(namespace.looked_at_last.take());
                namespace.next_to_look_at()
            });
            next.flatten()
        };
        self.read(name, |namespace| namespace.list_waiting_jobs(name, &self.shared.mirrors));
        let is_for_this = |object: &ObjectName| is_for_long || !self.is_beyond_turns(name, object);
        let mut waits = next(None).filter(is_for_this);
        let mut allowance = waits.as_ref().map_or_else(Allowance::default, |first| self.allowance(name, first));
        while let Some(object) = waits {
            self.look(object.0, &key_of(name, &object), &mut allowance);
            let least = |object: &ObjectName| facts::least_steps(self.octets(object.0, &key_of(name, object)));
            waits = next(Some(object)).filter(|next| is_for_this(next) && least(next) <= allowance.looks);
        }
    }

    /// What may be done because of this object, or in a turn of which it is the first. Where something else is left of
    /// what was changed before, whoever changes something all the time has nothing more tried. Whoever has changed the
    /// object may see it waiting itself.
    fn allowance(&self, name: &str, object: &ObjectName) -> Allowance {
        let is_all = self.read(name, |namespace| namespace.is_settled_but_for(object));
        Allowance { looks: SLICE, tries: if is_all.unwrap_or(true) { SLICE } else { 0 } }
    }

    /// Takes over what the mirror has of an export or import, and tries some of what may match by that. PEs for which
    /// something has become other are told, or will be in a turn.
    fn look(&self, side: Side, key: &Key, allowance: &mut Allowance) {
        match side {
            Side::Export => self.look_by(&EXPORTS, key, allowance),
            Side::Import => self.look_by(&IMPORTS, key, allowance),
        }
    }

    pub(super) fn look_by<K: Mirrored, F>(&self, handling: &Handling<K, F>, key: &Key, allowance: &mut Allowance) {
        let shared = &self.shared;
        let in_mirror = || (handling.mirror)(&shared.mirrors).kept(key);
        let takes_long = |kept: Option<&Kept<K>>| is_long(arrivals::octets(kept));
        let found = in_mirror();
        let of_long = if takes_long(found.as_ref()) { self.namespaces().get(&key.namespace).cloned() } else { None };
        let alone = of_long.as_ref().map(|namespace| namespace.read_alone());
        let read = Arrival::read(handling, if alone.is_some() { in_mirror() } else { found });
        let touched = self.change(&key.namespace, |namespace| {
            let now = in_mirror();
            let (is_newest, is_now_long) = (read.is(now.as_ref()), takes_long(now.as_ref()));
            // What is not long is read at once. A long one that has come meanwhile has a look of its own: whoever
            // writes one as fast as it can be read has each second one looked at.
            let arrival = if is_newest || is_now_long { read } else { Arrival::read(handling, now) };
            // What was left to be tried before this waits for its turn.
            let (was_settled, was_tried) = (namespace.is_settled(), namespace.board.is_settled());
            let Looked { changes, pe, steps } = namespace.take_over(handling, arrival, key, &shared.mirrors);
            if !is_newest && is_now_long {
                namespace.be_late((handling.side, Arc::clone(&key.name)));
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
            touched
        });
        drop(alone);
        self.tell(&key.namespace, touched);
    }

    pub(super) fn have_a_turn(&self, namespace: &Arc<str>) {
        self.line().join(namespace);
        self.shared.is_any_unsettled.notify_one();
    }
}

/// Whether a look at an object of so many octets may take longer than a slice. How long it takes is known when it has
/// been read only.
fn is_long(octets: usize) -> bool {
    facts::most_steps(octets) > SLICE
}

/// The key of an export or import.
fn key_of(namespace: &Arc<str>, (_, name): &ObjectName) -> Key {
    Key { namespace: Arc::clone(namespace), name: Arc::clone(name) }
}

/// Whether whoever is told of these PEs looks at few ports. Each has one at least.
fn are_few(board: &Board, pes: &BTreeSet<Pe>) -> bool {
    let ports = pes.iter().take(FEW_PORTS + 1).map(|pe| board.ports_of(pe).max(1));
    ports.sum::<usize>() <= FEW_PORTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::answers::Untold;
    use crate::broker::testing::{Followed, export, import, job, many_ports, suspend};
    use serde_json::json;
    use streams_api::{ExportType, StreamProperty};

    /// As many as there are in one event, of a job whose ports each fit into a slice.
    #[test]
    fn whoever_is_told_of_a_job_tries_a_slice_of_all_that_its_ports_may_match() {
        const EXPORTS: u64 = 50;
        let followed = Followed::new();
        let (boards, mirrors) = (&followed.boards, &followed.mirrors);
        let exporter = |is_suspended| {
            let mut exporter = job("out", "u1", Some(1));
            exporter.spec.suspend = is_suspended;
            mirrors.jobs.insert(exporter);
        };
        exporter(false);
        mirrors.jobs.insert(job("in", "u2", Some(2)));
        let subscription = ["hash(a) == 1"; 1_000].join(" || ");
        for pe in 0..3 {
            let mut import = import(&format!("in-{pe}-0"), "in", "u2", 2);
            import.spec.pe_id = pe;
            import.spec.streams = serde_json::from_value(json!({"propertyBasedImport": {
                "subscription": subscription, "applicationScope": "Default", "importOperName": "In", "index": 0,
            }}))
            .unwrap();
            mirrors.imports.insert(import);
        }
        followed.settle();
        for pe in 0..EXPORTS {
            let mut export = export(&format!("out-{pe}-0"), "out", "u1", 1);
            export.spec.pe_id = pe;
            export.spec.export_type = ExportType::ByProperties;
            let short = json!([{"name": "a", "type": "rstring", "values": ["\"x\""]}]);
            export.spec.stream.properties = serde_json::from_value(short).unwrap();
            mirrors.exports.insert(export);
        }
        assert!(boards.is_settled("n"), "each of them fits into a slice");
        exporter(true);
        assert!(boards.is_settled("n"), "nothing is left to try");
        exporter(false);
        let mut slices = 0;
        while !boards.is_settled("n") {
            boards.settle_a_slice();
            slices += 1;
        }
        assert!(slices > 10, "{slices}");
    }

    #[test]
    fn of_a_job_with_many_ports_some_are_looked_at_at_once_and_the_others_in_turns() {
        const IMPORTS: u64 = 600;
        let followed = Followed::new();
        let (boards, mirrors) = (&followed.boards, &followed.mirrors);
        mirrors.jobs.insert(job("out", "u1", Some(1)));
        mirrors.jobs.insert(job("in", "u2", Some(2)));
        mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
        for pe in 0..IMPORTS {
            let mut import = import(&format!("in-{pe}-0"), "in", "u2", 2);
            import.spec.pe_id = pe;
            mirrors.imports.insert(import);
        }
        assert_eq!((boards.is_settled("n"), followed.receivers()), (true, 600));
        let mut resting = job("in", "u2", Some(2));
        resting.spec.suspend = true;
        mirrors.jobs.insert(resting);
        let waiting = || boards.namespaces()["n"].lock().waiting.len();
        assert!((300..400).contains(&waiting()), "{}", waiting());
        assert_eq!(boards.message("n", &Pe { job: "out".into(), id: 0 }, None), Err(Untold::Unsettled));
        followed.told();
        let mut turns = 0;
        while !boards.is_settled("n") {
            boards.settle_a_slice();
            turns += 1;
        }
        assert_eq!((turns, waiting(), followed.receivers()), (2, 0, 0));
        boards.settle_a_slice();
        assert!(followed.told().contains(&"out-0".to_owned()));
        assert!(boards.line().waiting().is_empty());
    }

    #[test]
    fn a_look_at_long_texts_is_one_of_few() {
        const EXPORTS: usize = 200;
        let followed = Followed::new();
        let mirrors = &followed.mirrors;
        mirrors.jobs.insert(job("in", "u2", Some(2)));
        let long = json!([{"name": "a", "type": "rstring", "values": [format!("\"{}\"", "x".repeat(60_000))]}]);
        let properties: Vec<StreamProperty> = serde_json::from_value(long).unwrap();
        for pe in 0..EXPORTS {
            let mut export = export(&format!("in-{pe}-0"), "in", "u2", 2);
            export.spec.pe_id = pe as u64;
            export.spec.export_type = ExportType::ByProperties;
            export.spec.stream.properties.clone_from(&properties);
            mirrors.exports.insert(export);
        }
        followed.settle();
        suspend(&followed);
        let waiting = || followed.boards.namespaces()["n"].lock().waiting.len();
        assert_eq!(waiting(), EXPORTS, "each may take long");
        followed.boards.settle_a_slice();
        assert!((EXPORTS - 9..EXPORTS).contains(&waiting()), "{}", waiting());
    }

    /// Whoever may patch its status may write as much into conditions that nobody reads.
    #[test]
    fn a_look_at_an_object_is_as_long_as_the_object_is() {
        const EXPORTS: u64 = 12;
        let followed = Followed::new();
        let mirrors = &followed.mirrors;
        mirrors.jobs.insert(job("in", "u2", Some(2)));
        let condition = |number: usize| {
            json!({
                "type": format!("Of{number}"), "status": "True", "reason": "R", "message": "x".repeat(32_000),
                "lastTransitionTime": "2026-11-22T10:11:13Z",
            })
        };
        let conditions: Vec<serde_json::Value> = (0..10).map(condition).collect();
        for pe in 0..EXPORTS {
            let mut export = export(&format!("in-{pe}-0"), "in", "u2", 2);
            export.spec.pe_id = pe;
            export.status = serde_json::from_value(json!({"conditions": conditions})).unwrap();
            mirrors.exports.insert(export);
        }
        followed.settle();
        suspend(&followed);
        let waiting = || followed.boards.namespaces()["n"].lock().waiting.len();
        for left in (0..=EXPORTS as usize).rev() {
            assert_eq!(waiting(), left);
            followed.boards.settle_a_slice();
        }
        assert!(followed.boards.is_settled("n"));
    }

    #[test]
    fn a_look_that_ends_many_matches_is_one_of_few() {
        let followed = Followed::new();
        many_ports(&followed, 200, 100);
        suspend(&followed);
        let waiting = || followed.boards.namespaces()["n"].lock().waiting.len();
        assert!((140..190).contains(&waiting()), "{}", waiting());
        let mut turns = 0;
        while !followed.boards.is_settled("n") {
            followed.boards.settle_a_slice();
            turns += 1;
        }
        assert!((3..9).contains(&turns), "{turns}");
    }
}
