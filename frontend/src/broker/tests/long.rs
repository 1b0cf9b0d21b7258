//! Exports and imports that take long to be looked at: who looks, who waits for that, and what is put meanwhile
//! (rule import-10).
//!
//! Knows: how an object is read, and may read it as slowly as a test wants. Must not know: turns of several namespaces.
//!
//! Invariant: whoever must not wait is asked on a thread of its own, and waited for within a bound.

use crate::broker::allowance::{Allowance, SLICE};
use crate::broker::answers::Standing;
use crate::broker::arrivals::{EXPORTS, Handling};
use crate::broker::boards::Boards;
use crate::broker::facts::{self, Problem};
use crate::broker::namespace::ObjectName;
use crate::broker::one_look::IfLong;
use crate::broker::predecessors::Side;
use crate::broker::testing::{Followed, export, import, job, long_export, many_ports, suspend};
use crate::mirrors::Mirrors;
use futures::FutureExt as _;
use serde_json::json;
use std::cell::RefCell;
use std::sync::{Arc, Barrier, OnceLock, mpsc};
use std::thread;
use std::time::Duration;
use streams_api::{Export, Import};
use streams_kubernetes::Key;
use streams_kubernetes::metrics::Metrics;

#[test]
fn what_may_take_long_to_be_looked_at_is_looked_at_in_a_turn() {
    let followed = Followed::new();
    let (boards, mirrors) = (&followed.boards, &followed.mirrors);
    let export = long_export("in-0-0", "in", "u2", 2);
    let has_a_turn = || boards.line().waiting() == "n";
    mirrors.jobs.insert(job("in", "u2", Some(2)));
    mirrors.exports.insert(export.clone());
    assert_eq!(
        (boards.export(&Key::of(&export)), boards.is_settled("n"), has_a_turn()),
        (Standing::Unknown, false, true)
    );
    followed.settle();
    assert_eq!((boards.export(&Key::of(&export)), followed.told()), (Standing::Alone, vec!["in-0".to_owned()]));
    // By an event of its job, which is about nothing else.
    suspend(&followed);
    assert_eq!((boards.is_settled("n"), has_a_turn()), (false, true));
    followed.settle();
    // What the board has stays as it was. Who has written it need not wait for the turn, and what goes is gone at once.
    let late = || boards.namespaces()["n"].lock().late.len();
    mirrors.exports.insert(export.clone());
    assert_eq!((boards.is_settled("n"), has_a_turn(), late()), (true, true, 1));
    boards.look_alone(Side::Export, &Key::of(&export));
    assert_eq!((boards.is_settled("n"), late()), (true, 0));
    mirrors.exports.remove(&Key::of(&export));
    assert_eq!((boards.export(&Key::of(&export)), boards.is_settled("n")), (Standing::Unknown, true));
}

thread_local! {
    /// Whoever reads the next export on this thread comes here when it begins, and before it ends.
    static READING: RefCell<Option<Arc<Barrier>>> = const { RefCell::new(None) };
}

fn read_slowly(export: &Export) -> Result<streams_broker::Export, Problem> {
    if let Some(reading) = READING.take() {
        reading.wait();
        reading.wait();
    }
    facts::export(export)
}

const SLOWLY: Handling<Export, streams_broker::Export> = Handling { fact: read_slowly, ..EXPORTS };

/// Somebody looks at the export, and reads it as it was before this, which comes meanwhile.
fn look_slowly(boards: &Boards, key: &Key, meanwhile: &dyn Fn()) {
    let reading = Arc::new(Barrier::new(2));
    let (boards, key, of_reader) = (boards.clone(), key.clone(), Arc::clone(&reading));
    let reader = thread::spawn(move || {
        READING.set(Some(of_reader));
        let mut allowance = Allowance { looks: SLICE, tries: SLICE };
        boards.look_by(&SLOWLY, &key, &mut allowance, IfLong::Wait)
    });
    reading.wait();
    meanwhile();
    reading.wait();
    reader.join().unwrap();
}

/// An export that takes long to be looked at, of this stream.
fn long(stream: &str) -> Export {
    let mut long = long_export("out-0-0", "out", "u1", 1);
    long.spec.stream.name = Some(stream.to_owned());
    long
}

/// The same port exports this stream, and it takes no time to be looked at.
fn short(stream: &str) -> Export {
    let mut short = export("out-0-0", "out", "u1", 1);
    short.spec.stream.name = Some(stream.to_owned());
    short
}

/// An object that somebody reads, and that is none of those that are there.
fn another() -> ObjectName {
    (Side::Export, Arc::from("another"))
}

#[test]
fn nobody_waits_while_an_object_is_read_and_what_comes_meanwhile_is_not_lost() {
    let followed = Followed::new();
    let (boards, mirrors) = (&followed.boards, &followed.mirrors);
    many_ports(&followed, 1, 1);
    let key = Key::new("n", "out-0-0");
    let asked = mirrors.imports.get(&Key::new("n", "in-0-0")).unwrap();
    let look_slowly = |meanwhile: &dyn Fn()| look_slowly(boards, &key, meanwhile);
    look_slowly(&|| {
        let (told, hears) = mpsc::channel();
        let (boards, asked) = (boards.clone(), asked.clone());
        let other = thread::spawn(move || told.send(boards.import(&Key::of(&*asked))).unwrap());
        assert_eq!(hears.recv_timeout(Duration::from_secs(60)), Ok(Standing::Connected));
        other.join().unwrap();
    });
    // One that is not long is looked at by whoever is told of it, and whoever has read the one before leaves it alone.
    look_slowly(&|| mirrors.exports.insert(short("t")));
    assert_eq!((boards.is_settled("n"), followed.receivers()), (true, 0));
    // Of long ones the one that was read counts until the other one is looked at.
    mirrors.exports.insert(long("s"));
    look_slowly(&|| mirrors.exports.insert(long("t")));
    assert_eq!(boards.import(&Key::of(&*asked)), Standing::Connected);
    followed.settle();
    assert_eq!((boards.is_settled("n"), followed.receivers()), (true, 0));
}

#[test]
fn no_board_is_given_an_earlier_arrival_after_a_later_one() {
    type Meanwhile = fn(&Followed, &Key);
    // what is read, what comes before that is put -> whether the namespace is settled then
    let table: [(&str, Export, Meanwhile, bool); 4] = [
        (
            "it is deleted and made again",
            long("s"),
            |Followed { mirrors, .. }, key| {
                mirrors.exports.remove(key);
                mirrors.exports.insert(long("t"));
            },
            false,
        ),
        (
            "a short one is looked at, and a long one comes",
            long("s"),
            |Followed { mirrors, .. }, _| {
                mirrors.exports.insert(short("t"));
                mirrors.exports.insert(long("u"));
            },
            true,
        ),
        (
            "whoever has written a long one looks at it",
            short("s"),
            |Followed { mirrors, boards, .. }, key| {
                mirrors.exports.insert(long("t"));
                boards.look_alone(Side::Export, key);
            },
            true,
        ),
        (
            "all of the namespace goes and comes back",
            long("s"),
            |Followed { mirrors, .. }, key| {
                let import = mirrors.imports.get(&key.sibling("in-0-0")).unwrap();
                mirrors.exports.remove(key);
                mirrors.imports.remove(&key.sibling("in-0-0"));
                ["in", "out"].iter().for_each(|job| mirrors.jobs.remove(&key.sibling(job)));
                mirrors.jobs.insert(job("in", "u2", Some(2)));
                mirrors.imports.insert(Import::clone(&import));
                mirrors.exports.insert(long("t"));
                mirrors.jobs.insert(job("out", "u1", Some(1)));
            },
            false,
        ),
    ];
    let key = Key::new("n", "out-0-0");
    for (said, read, meanwhile, is_settled) in table {
        let followed = Followed::new();
        let (boards, mirrors) = (&followed.boards, &followed.mirrors);
        many_ports(&followed, 1, 1);
        mirrors.exports.insert(read);
        followed.settle();
        let asked = mirrors.imports.get(&key.sibling("in-0-0")).unwrap();
        assert_eq!(boards.import(&Key::of(&*asked)), Standing::Connected, "{said}");
        look_slowly(boards, &key, &|| meanwhile(&followed, &key));
        assert_eq!((boards.import(&Key::of(&*asked)), boards.is_settled("n")), (Standing::Alone, is_settled), "{said}");
        followed.settle();
        assert_eq!((boards.is_settled("n"), followed.receivers()), (true, 0), "{said}");
    }
}

#[test]
fn who_must_not_wait_leaves_what_is_long_while_another_one_is_read() {
    // who looks -> whether the object has a turn that it has asked for
    for (if_long, asks) in [(IfLong::Leave, true), (IfLong::Try, false)] {
        let followed = Followed::new();
        let boards = &followed.boards;
        many_ports(&followed, 1, 1);
        followed.mirrors.exports.insert(long("s"));
        followed.settle();
        let namespace = Arc::clone(&boards.namespaces()["n"]);
        let reading = namespace.read_alone(&another());
        let (told, hears) = mpsc::channel();
        let of = boards.clone();
        let other = thread::spawn(move || {
            let mut allowance = Allowance { looks: SLICE, tries: SLICE };
            told.send(of.look_by(&EXPORTS, &Key::new("n", "out-0-0"), &mut allowance, if_long)).unwrap();
        });
        let heard = hears.recv_timeout(Duration::from_secs(10));
        drop(reading);
        other.join().unwrap();
        let (late, turns) = (namespace.lock().late.len(), boards.line().waiting());
        let expected = if asks { (1, "n") } else { (0, "") };
        assert_eq!((heard, (late, &*turns)), (Ok(false), expected), "{if_long:?}");
    }
}

#[test]
fn whoever_has_written_a_long_object_sees_what_comes_of_it() {
    // whether it looks before whoever is told of the change
    for is_first in [false, true] {
        let mirrors = Mirrors::new(&Metrics::new("test"));
        let of_writer: Arc<OnceLock<Boards>> = Arc::default();
        mirrors.exports.subscribe({
            let boards = Arc::clone(&of_writer);
            move |export: &Export| {
                let boards = boards.get().filter(|_| is_first);
                boards.iter().for_each(|boards| boards.look_alone(Side::Export, &Key::of(export)));
            }
        });
        let boards = of_writer.get_or_init(|| Boards::of(&mirrors));
        mirrors.jobs.insert(job("out", "u1", Some(1)));
        mirrors.jobs.insert(job("in", "u2", Some(2)));
        let mut import = import("in-0-0", "in", "u2", 2);
        import.spec.streams = serde_json::from_value(json!({"propertyBasedImport": {
            "subscription": "a == 1", "applicationScope": "Default", "importOperName": "In", "index": 0,
        }}))
        .unwrap();
        mirrors.imports.insert(import);
        // Also if the board does not have it yet.
        for (a, importers) in [("1", 1), ("2", 0), ("1", 1)] {
            let mut export = long_export("out-0-0", "out", "u1", 1);
            let property = serde_json::from_value(json!({"name": "a", "type": "int64", "values": [a]}));
            export.spec.stream.properties.push(property.unwrap());
            mirrors.exports.insert(export.clone());
            if !is_first {
                boards.look_alone(Side::Export, &Key::of(&export));
            }
            assert_eq!((boards.importers(&export, 9).1, boards.is_settled("n")), (importers, true), "{a} {is_first}");
        }
    }
}

#[test]
fn what_is_written_before_each_turn_holds_up_nothing_else_of_its_namespace() {
    // whether the board has it
    for is_on_board in [true, false] {
        let followed = Followed::new();
        let (boards, mirrors) = (&followed.boards, &followed.mirrors);
        mirrors.jobs.insert(job("a", "u3", Some(3)));
        let mut written = long_export("a-0-0", "a", "u3", 3);
        if !is_on_board {
            written.spec.stream.properties[0].values = vec!["no number".to_owned()];
        }
        mirrors.exports.insert(written.clone());
        many_ports(&followed, 600, 1);
        assert_eq!(followed.receivers(), 600);
        suspend(&followed);
        let waiting = || boards.namespaces()["n"].lock().waiting.len();
        assert!(waiting() > 200, "{}", waiting());
        for _ in 0..10 {
            mirrors.exports.insert(written.clone());
            boards.settle_a_slice();
        }
        let left = if is_on_board { 0 } else { 1 };
        assert!(waiting() <= left, "{is_on_board}: {}", waiting());
        assert!(!is_on_board || boards.is_settled("n"));
        followed.settle();
        assert_eq!(followed.receivers(), 0);
    }
}

#[tokio::test]
async fn whoever_has_written_a_long_object_looks_at_it_beside_the_threads_that_serve() {
    let followed = Followed::new();
    followed.mirrors.jobs.insert(job("in", "u2", Some(2)));
    let export = long_export("in-0-0", "in", "u2", 2);
    followed.mirrors.exports.insert(export.clone());
    // Somebody reads another one.
    let namespace = Arc::clone(&followed.boards.namespaces()["n"]);
    let (reads, is_reading) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let other = thread::spawn(move || {
        let _alone = namespace.read_alone(&another());
        reads.send(()).unwrap();
        ends.recv_timeout(Duration::from_secs(10)).ok()
    });
    is_reading.recv().unwrap();
    let key = Key::of(&export);
    let whose = Arc::default();
    let mut look = Box::pin(followed.boards.look_at_export(&key, &whose));
    assert_eq!((&mut look).now_or_never(), None, "this thread serves others");
    end.send(()).unwrap();
    look.await;
    assert_eq!((other.join().unwrap(), followed.boards.export(&Key::of(&export))), (Some(()), Standing::Alone));
}

#[test]
fn who_leaves_while_a_long_object_is_read_leaves_no_thread_behind() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(2).build().unwrap();
    runtime.block_on(async {
        let followed = Followed::new();
        followed.mirrors.jobs.insert(job("in", "u2", Some(2)));
        let export = long_export("in-0-0", "in", "u2", 2);
        followed.mirrors.exports.insert(export.clone());
        let namespace = Arc::clone(&followed.boards.namespaces()["n"]);
        let reading = namespace.read_alone(&another());
        let (key, whose) = (Key::of(&export), Arc::default());
        for _ in 0..3 {
            assert_eq!(followed.boards.look_at_export(&key, &whose).now_or_never(), None);
        }
        let (served, is_served) = mpsc::channel();
        tokio::task::spawn_blocking(move || served.send(()).unwrap());
        assert_eq!(is_served.recv_timeout(Duration::from_secs(10)), Ok(()));
        drop(reading);
        followed.boards.look_at_export(&key, &whose).await;
        assert_eq!(followed.boards.export(&Key::of(&export)), Standing::Alone);
    });
}

#[tokio::test]
async fn callers_of_a_namespace_take_turns_to_look_and_look_no_more_if_others_have() {
    let followed = Followed::new();
    let boards = &followed.boards;
    followed.mirrors.jobs.insert(job("in", "u2", Some(2)));
    let keys: Vec<Key> = (0..3)
        .map(|pe| {
            let mut export = long_export(&format!("in-{pe}-0"), "in", "u2", 2);
            export.spec.pe_id = pe;
            followed.mirrors.exports.insert(export.clone());
            Key::of(&export)
        })
        .collect();
    let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
    let place = boards.hold_aside("n").await;
    let mut looks: Vec<_> = [(&keys[0], &one), (&keys[0], &one), (&keys[1], &one), (&keys[2], &other)]
        .into_iter()
        .map(|(key, whose)| Box::pin(boards.look_at_export(key, whose)))
        .collect();
    assert!(looks.iter_mut().all(|look| look.now_or_never().is_none()));
    drop(place);
    let (mut first, mut again, of_other) = (looks.remove(0), looks.remove(0), looks.remove(1));
    (&mut first).await;
    // The first one has two more that wait.
    assert_eq!(tokio::time::timeout(Duration::from_secs(10), of_other).await, Ok(()));
    assert_eq!((&mut again).now_or_never(), Some(()), "it was looked at since it was asked for");
    looks.remove(0).await;
    assert!(keys.iter().all(|key| boards.export(key) == Standing::Alone));
    drop(again);
    assert_eq!(boards.shared.awaited_looks.count(), 0);
}

#[test]
fn why_a_board_does_not_know_an_object_is_kept_from_the_look_at_it_while_its_job_is_there() {
    let followed = Followed::new();
    let (boards, mirrors) = (&followed.boards, &followed.mirrors);
    mirrors.jobs.insert(job("in", "u2", Some(2)));
    mirrors.jobs.insert(job("out", "u1", Some(1)));
    let key = Key::new("n", "out-0-0");
    let malformed = || {
        let mut export = long_export("out-0-0", "out", "u1", 1);
        export.spec.stream.properties.truncate(1);
        export.spec.stream.properties[0].values = vec!["no number".to_owned()];
        export
    };
    let is_malformed = || matches!(boards.export(&key), Standing::Malformed(Problem::Property { .. }));
    mirrors.exports.insert(malformed());
    assert!(is_malformed());
    // Nobody has looked at this one.
    mirrors.exports.insert(long("s"));
    assert!(is_malformed());
    followed.settle();
    assert_eq!(boards.export(&key), Standing::Alone);
    mirrors.exports.insert(malformed());
    assert!(is_malformed());
    mirrors.jobs.remove(&Key::new("n", "out"));
    followed.settle();
    assert_eq!(boards.export(&key), Standing::Unknown);
    assert!(boards.namespaces()["n"].lock().problems.is_empty());
}
