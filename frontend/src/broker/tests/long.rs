//! Exports and imports that take long to be looked at (rule import-10).

use crate::broker::allowance::{Allowance, SLICE};
use crate::broker::answers::Standing;
use crate::broker::arrivals::{EXPORTS, Handling};
use crate::broker::facts::{self, Problem};
use crate::broker::testing::{Followed, export, job, long_export, many_ports, suspend};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;
use streams_api::Export;
use streams_kubernetes::Key;

#[test]
fn what_may_take_long_to_be_looked_at_is_looked_at_in_a_turn() {
    let followed = Followed::new();
    let (boards, mirrors) = (&followed.boards, &followed.mirrors);
    let export = long_export("in-0-0", "in", "u2", 2);
    let has_a_turn = || boards.line().waiting() == "n";
    mirrors.jobs.insert(job("in", "u2", Some(2)));
    mirrors.exports.insert(export.clone());
    assert_eq!((boards.export(&export), boards.is_settled("n"), has_a_turn()), (Standing::Unknown, false, true));
    followed.settle();
    assert_eq!((boards.export(&export), followed.told()), (Standing::Alone, vec!["in-0".to_owned()]));
    // By an event of its job, which is about nothing else.
    suspend(&followed);
    assert_eq!((boards.is_settled("n"), has_a_turn()), (false, true));
    followed.settle();
    // Who has written it need not wait for the turn, and what goes is gone at once.
    mirrors.exports.insert(export.clone());
    assert!(!boards.is_settled("n"));
    boards.look_at_export(&Key::of(&export));
    assert!(boards.is_settled("n"));
    mirrors.exports.remove(&Key::of(&export));
    assert_eq!((boards.export(&export), boards.is_settled("n")), (Standing::Unknown, true));
}

/// Whether the next export is read slowly.
static IS_SLOW: AtomicBool = AtomicBool::new(false);
/// Whoever reads it comes here when it begins, and before it ends.
static READING: Barrier = Barrier::new(2);

fn read_slowly(export: &Export) -> Result<streams_broker::Export, Problem> {
    if IS_SLOW.swap(false, Ordering::Relaxed) {
        READING.wait();
        READING.wait();
    }
    facts::export(export)
}

const SLOWLY: Handling<Export, streams_broker::Export> = Handling { fact: read_slowly, ..EXPORTS };

#[test]
fn nobody_waits_while_an_object_is_read_and_what_comes_meanwhile_is_not_lost() {
    let followed = Followed::new();
    let (boards, mirrors) = (&followed.boards, &followed.mirrors);
    many_ports(&followed, 1, 1);
    let key = Key::new("n", "out-0-0");
    let asked = mirrors.imports.get(&Key::new("n", "in-0-0")).unwrap();
    let look_slowly = |meanwhile: &dyn Fn()| {
        let (of, of_other) = (boards.clone(), key.clone());
        let mut allowance = Allowance { looks: SLICE, tries: SLICE };
        IS_SLOW.store(true, Ordering::Relaxed);
        let reader = thread::spawn(move || of.look_by(&SLOWLY, &of_other, &mut allowance));
        READING.wait();
        meanwhile();
        READING.wait();
        reader.join().unwrap();
    };
    look_slowly(&|| {
        let (told, hears) = mpsc::channel();
        let (boards, asked) = (boards.clone(), asked.clone());
        let other = thread::spawn(move || told.send(boards.import(&asked)).unwrap());
        assert_eq!(hears.recv_timeout(Duration::from_secs(60)), Ok(Standing::Connected));
        other.join().unwrap();
    });
    // One that is not long is looked at by whoever is told of it, and whoever has read the one before leaves it alone.
    let mut another = export("out-0-0", "out", "u1", 1);
    another.spec.stream.name = Some("t".to_owned());
    look_slowly(&|| mirrors.exports.insert(another.clone()));
    assert_eq!((boards.is_settled("n"), followed.receivers()), (true, 0));
    // Of long ones the one that was read counts until the other one is looked at.
    let long = |stream: &str| {
        let mut long = long_export("out-0-0", "out", "u1", 1);
        long.spec.stream.name = Some(stream.to_owned());
        long
    };
    mirrors.exports.insert(long("s"));
    look_slowly(&|| mirrors.exports.insert(long("t")));
    assert_eq!(boards.import(&asked), Standing::Connected);
    followed.settle();
    assert_eq!((boards.is_settled("n"), followed.receivers()), (true, 0));
}
