//! What is looked at because of an event, and how much of it (rule import-10).
//!
//! What somebody writes into an object is taken over by whoever is told of it, which may be the task that polls the
//! mirrors of all namespaces. It looks at some of the ports that an event is about, of which a job may have thousands,
//! and tries a little of what may match, and [`Boards::settle`] does the rest, namespace by namespace.
//!
//! Knows: events of the mirrors of exports, imports, jobs and PEs, turns. Must not know: which objects count, how one
//! is looked at, how PEs are told.
//!
//! Invariants:
//! * What a board knows of an object is what the mirror has of it, once everybody who was told of a change has looked.
//!   What has not been looked at yet is written down under the lock of the namespace, and so is what the mirror has had
//!   another arrival of meanwhile.
//! * Of all that an event is about, nobody looks at more than takes a [`SLICE`], nor tries more than another one, but
//!   for the look and the evaluation with which these end; and so it is with all that events about jobs and PEs of a
//!   namespace are about within a second.
//! * What may take longer than a slice to be looked at is not looked at because of an event, but in a turn: whoever has
//!   written long lists into one object holds up nobody but those who ask for the namespace. Callers who wait to see
//!   what they have written look at it themselves, beside the threads that serve everybody: one of a namespace at a
//!   time, so whoever has to wait for such a look waits for that one only. Callers of a namespace take turns, and one
//!   for whom somebody else has looked meanwhile looks no more.
//! * A long object that the board has is as it was until its turn has come, and so are all routes: the namespace is
//!   settled meanwhile.
//! * A namespace that is not settled, or was not until now, or has somebody to tell or something to look at, has a turn
//!   to come.

use crate::broker::allowance::{Allowance, SLICE};
use crate::broker::boards::{Boards, pe_of};
use crate::broker::facts;
use crate::broker::namespace::{Namespace, ObjectName};
use crate::broker::one_look::{IfLong, is_long};
use crate::broker::predecessors::Side;
use crate::mirrors::Mirrors;
use std::sync::Arc;
use streams_api::{Export, Import, Job, ProcessingElement};
use streams_kubernetes::Key;
use streams_kubernetes::queue::Owner;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

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
            move |export: &Export| _ = boards.look_if_short(Side::Export, &Key::of(export))
        });
        mirrors.imports.subscribe({
            let boards = boards.clone();
            move |import: &Import| _ = boards.look_if_short(Side::Import, &Key::of(import))
        });
        mirrors.processing_elements.subscribe({
            let boards = boards.clone();
            move |element: &ProcessingElement| boards.look_at_pe(&Key::of(element))
        });
        mirrors.refusals.subscribe({
            let boards = boards.clone();
            // Whoever waits until it is known what matches there is told in a turn.
            move |namespace| boards.have_a_turn(&Arc::from(namespace))
        });
        boards
    }

    /// Takes over what the mirror has of an export, however long that takes. Whoever has seen it in the mirror may call
    /// this at any time, for somebody who takes turns with others of the namespace.
    pub(crate) async fn look_at_export(&self, key: &Key, whose: &Arc<str>) {
        self.look_aside(Side::Export, key, whose).await;
    }

    /// Takes over what the mirror has of an import, however long that takes. Whoever has seen it in the mirror may call
    /// this at any time, for somebody who takes turns with others of the namespace.
    pub(crate) async fn look_at_import(&self, key: &Key, whose: &Arc<str>) {
        self.look_aside(Side::Import, key, whose).await;
    }

    /// The same, beside the threads that serve everybody if it may take long.
    async fn look_aside(&self, side: Side, key: &Key, whose: &Arc<str>) {
        // It may be long a moment later.
        if !self.may_take_long(side, key) && self.look_if_short(side, key) {
            return;
        }
        let awaited = self.shared.awaited_looks.wait(side, key);
        // The thread has the place, not the caller, who may leave: one of each namespace waits for its turn to read.
        let owner = Owner { namespace: Arc::clone(&key.namespace), object: Arc::clone(whose) };
        let place = self.shared.aside.acquire_for(owner).await;
        if awaited.is_made() {
            return;
        }
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

    /// Looks at the first of the objects that an event is about, as far as none of them may take long. One that has
    /// become long since they were written down is left to a turn by the look. If it is one of several, it waits as
    /// they do.
    fn look_at_some(&self, namespace: &Arc<str>, some: Option<SomeLooks>) {
        let Some(SomeLooks { objects, mut allowance, since }) = some else { return };
        for object in objects {
            if allowance.looks == 0 {
                break;
            }
            let key = key_of(namespace, &object);
            if !self.look(object.0, &key, &mut allowance, IfLong::Leave) {
                break;
            }
        }
        // If the namespace has gone by that, a new one of its name begins with all of it.
        self.read(namespace, |namespace| namespace.of_events.give_back(allowance, since));
    }

    /// Whether an object is too long to be looked at in a turn, or would have the turn wait for whoever reads another
    /// long one of the namespace.
    pub(super) fn is_beyond_turns(&self, name: &Arc<str>, object: &ObjectName) -> bool {
        let octets = self.octets(object.0, &key_of(name, object));
        facts::most_steps(octets) > LONGEST_IN_TURN || (is_long(octets) && self.is_being_read(name))
    }

    /// Whether somebody reads a long object of a namespace. Nobody is waited for.
    fn is_being_read(&self, name: &Arc<str>) -> bool {
        self.namespaces().get(name).is_some_and(|namespace| namespace.is_being_read())
    }

    /// Looks at some of what waits for that. What is too long for the rest of this turn is the first of another one.
    /// What is beyond turns is left, unless this is one of those that are for such: these wait until nobody else reads
    /// a long object of the namespace, once. What nobody has looked at after that stays, and has another turn.
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
        let mut if_long = if is_for_long { IfLong::Wait } else { IfLong::Try };
        while let Some(object) = waits {
            let has_looked = self.look(object.0, &key_of(name, &object), &mut allowance, if_long);
            if_long = IfLong::Try;
            let least = |object: &ObjectName| facts::least_steps(self.octets(object.0, &key_of(name, object)));
            let may_be_next = |next: &ObjectName| is_for_this(next) && least(next) <= allowance.looks;
            // The others come first, however often this one cannot be looked at.
            waits = next(Some(object)).filter(|next| has_looked && may_be_next(next));
        }
    }
}

/// The key of an export or import.
fn key_of(namespace: &Arc<str>, (_, name): &ObjectName) -> Key {
    Key { namespace: Arc::clone(namespace), name: Arc::clone(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::answers::Untold;
    use crate::broker::testing::{Followed, export, import, job, long_export, many_ports, suspend};
    use serde_json::json;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;
    use streams_api::{ExportType, StreamProperty};
    use streams_broker::Pe;

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

    /// Its length was asked for a moment ago.
    #[test]
    fn whoever_is_told_of_an_event_waits_for_nobody_who_reads_a_long_object() {
        let followed = Followed::new();
        let boards = &followed.boards;
        followed.mirrors.jobs.insert(job("in", "u2", Some(2)));
        followed.mirrors.exports.insert(long_export("in-0-0", "in", "u2", 2));
        followed.settle();
        let namespace = Arc::clone(&boards.namespaces()["n"]);
        let reading = namespace.read_alone(&(Side::Export, Arc::from("another")));
        let (told, hears) = mpsc::channel();
        let of = boards.clone();
        let other = thread::spawn(move || {
            let objects = vec![(Side::Export, Arc::from("in-0-0"))];
            let (allowance, since) = (Allowance { looks: SLICE, tries: SLICE }, Instant::now());
            of.look_at_some(&Arc::from("n"), Some(SomeLooks { objects, allowance, since }));
            told.send(()).unwrap();
        });
        let heard = hears.recv_timeout(Duration::from_secs(10));
        drop(reading);
        other.join().unwrap();
        assert_eq!((heard, boards.line().waiting()), (Ok(()), "n".to_owned()));
        // The event was about nothing else, so what is known stays known.
        let late = boards.namespaces()["n"].lock().late.len();
        assert_eq!((late, boards.is_settled("n")), (1, true));
    }
}
