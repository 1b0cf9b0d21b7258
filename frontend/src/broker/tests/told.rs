//! Of which PEs others are told at once, and of which in a turn (rule import-10).

use crate::broker::testing::{Followed, export, import, job, many_ports, suspend};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_kubernetes::Key;

#[test]
fn a_pe_is_told_once_of_an_event_that_is_about_many_of_its_ports() {
    // ports, whether there is a turn before all are looked at
    for (ports, has_rest) in [(2, false), (600, true)] {
        let followed = Followed::new();
        many_ports(&followed, ports, 1);
        let told = Arc::new(Mutex::new(Vec::new()));
        followed.boards.subscribe({
            let (boards, told) = (followed.boards.clone(), Arc::clone(&told));
            move |pe| told.lock().push((pe.name.to_string(), boards.is_settled("n")))
        });
        suspend(&followed);
        assert_eq!(std::mem::take(&mut *told.lock()), [], "{ports}: the event is not over");
        assert_eq!(followed.boards.is_settled("n"), !has_rest, "{ports}");
        followed.settle();
        assert_eq!(*told.lock(), [("in-0".to_owned(), true), ("out-0".to_owned(), true)], "{ports}");
    }
}

/// How many ports are looked at from now on by somebody who is told of PEs, and looks at all ports of each.
fn count_looks(followed: &Followed) -> impl Fn() -> usize {
    let looks = Arc::new(AtomicUsize::new(0));
    followed.boards.subscribe({
        let (boards, looks) = (followed.boards.clone(), Arc::clone(&looks));
        move |pe| _ = looks.fetch_add(boards.exports_of(pe).len() + boards.imports_of(pe).len(), Ordering::Relaxed)
    });
    move || looks.load(Ordering::Relaxed)
}

#[test]
fn a_pe_with_many_ports_is_told_in_turns() {
    const IMPORTS: u32 = 1_000;
    let followed = Followed::new();
    let (boards, mirrors) = (&followed.boards, &followed.mirrors);
    let looks = count_looks(&followed);
    mirrors.jobs.insert(job("in", "u2", Some(2)));
    for port in 0..IMPORTS {
        let mut import = import(&format!("in-0-{port}"), "in", "u2", 2);
        import.spec.port_id = port;
        mirrors.imports.insert(import);
    }
    assert!(boards.is_settled("n"), "whoever asks is answered");
    assert_eq!(looks(), (1..=64).sum::<usize>());
    followed.settle();
    assert_eq!(looks(), (1..=64).sum::<usize>() + IMPORTS as usize);
    let key = Key::new("n", "in-0");
    assert_eq!((boards.exports_of(&key).len(), boards.imports_of(&key).len()), (0, IMPORTS as usize));
}

#[test]
fn many_pes_are_told_in_a_turn_however_few_ports_each_has() {
    // PEs that get what is exported -> whether all are told at once
    for (importers, is_at_once) in [(63, true), (64, false), (1_000, false)] {
        let followed = Followed::new();
        let (boards, mirrors) = (&followed.boards, &followed.mirrors);
        mirrors.jobs.insert(job("out", "u1", Some(1)));
        mirrors.jobs.insert(job("in", "u2", Some(2)));
        for pe in 0..importers {
            let mut import = import(&format!("in-{pe}-0"), "in", "u2", 2);
            import.spec.pe_id = pe;
            mirrors.imports.insert(import);
        }
        let all = importers as usize + 1;
        let looks = count_looks(&followed);
        mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
        assert!(boards.is_settled("n"), "{importers}: whoever asks is answered");
        assert_eq!(looks(), if is_at_once { all } else { 0 }, "{importers}");
        followed.settle();
        assert_eq!((looks(), followed.receivers()), (all, importers as usize));
    }
}
