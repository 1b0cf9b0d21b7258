//! Turns of namespaces: what is tried and looked at in them, who waits for them, and who does not.

use super::*;
use crate::broker::answers::{Standing, Untold};
use crate::broker::predecessors::Side;
use crate::broker::testing::{
    Followed, costly_namespace, export, import, job, long_export, many_ports, remove_costly_namespace, suspend,
};
use crate::mirrors::Mirrors;
use futures::FutureExt as _;
use serde_json::json;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use streams_api::{Export, ExportType, Import};
use streams_broker::{Pe, Routes};
use streams_kubernetes::Key;

fn pe(job: &str, id: u64) -> Pe {
    Pe { job: job.into(), id }
}

/// An export that may take longer than a slice to be looked at, and fits into a turn.
fn export_for_a_turn() -> Export {
    let mut export = export("out-0-0", "out", "u1", 1);
    let values = json!([{"name": "a", "type": "rstring", "values": [format!("\"{}\"", "x".repeat(20_000))]}]);
    export.spec.export_type = ExportType::ByProperties;
    export.spec.stream.properties = serde_json::from_value(values).unwrap();
    export
}

#[test]
fn what_a_namespace_asks_for_is_tried_a_little_at_a_time_and_told_when_all_is_known() {
    let followed = Followed::new();
    let boards = &followed.boards;
    costly_namespace(&followed.mirrors, "m", 100);
    // Whoever was told of the changes has tried a slice, and no more.
    assert!(!boards.is_settled("m"));
    assert_eq!(boards.routes("m", &pe("out", 0)), Err(Untold::Unsettled));
    assert_eq!(boards.message("m", &pe("out", 0), None), Err(Untold::Unsettled));
    let mut slices = 0;
    while !boards.is_settled("m") {
        boards.settle_a_slice();
        slices += 1;
    }
    assert!(slices > 20, "{slices}");
    assert_eq!(boards.routes("m", &pe("out", 0)), Ok(Routes::default()));
    assert!(boards.line().waiting().is_empty());
    let key = Key::new("m", "out-0-0");
    let Standing::Limited { is_connected: false, limit } = boards.import(&key) else {
        panic!("nothing is said of the cost");
    };
    let words = "the subscription costs too much to evaluate for the properties of out-0-0 and 99 more exports";
    assert!(limit.to_string().starts_with(words), "{limit}");
    // What has not changed is not tried again.
    let mut same = Import::clone(&followed.mirrors.imports.get(&key).unwrap());
    same.status = serde_json::from_value(json!({"observedGeneration": 7})).unwrap();
    followed.mirrors.imports.insert(same);
    assert!(boards.is_settled("m"));
}

#[test]
fn namespaces_that_are_not_settled_have_turns_and_whoever_is_is_not_held_up() {
    let followed = Followed::new();
    let boards = &followed.boards;
    costly_namespace(&followed.mirrors, "l", 20);
    costly_namespace(&followed.mirrors, "m", 20);
    let mut turns = String::new();
    for _ in 0..6 {
        turns.extend(boards.line().waiting().chars().next());
        boards.settle_a_slice();
    }
    assert_eq!(turns, "lmlmlm");
    followed.mirrors.jobs.insert(job("out", "u1", Some(1)));
    followed.mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
    followed.mirrors.imports.insert(import("in-0-0", "in", "u2", 2));
    followed.mirrors.jobs.insert(job("in", "u2", Some(2)));
    assert_eq!((boards.is_settled("n"), followed.receivers(), boards.is_settled("m")), (true, 1, false));
}

#[test]
fn a_turn_in_which_nothing_is_to_be_tried_waits_for_no_thread_that_makes_way() {
    let tried = tried_in_background(Vec::new()).now_or_never();
    assert!(tried.is_some_and(|tried| tried.is_ok_and(|tried| tried.is_empty())));
}

#[tokio::test]
async fn whoever_waits_for_a_namespace_hears_when_it_is_settled() {
    let followed = Followed::new();
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    followed.boards.subscribe(move |pe| _ = told.send(pe.clone()));
    let stop = CancellationToken::new();
    let settling = tokio::spawn({
        let (boards, stop) = (followed.boards.clone(), stop.clone());
        async move { boards.settle(&stop).await }
    });
    costly_namespace(&followed.mirrors, "m", 20);
    while !followed.boards.is_settled("m") {
        hears.recv().await.unwrap();
    }
    stop.cancel();
    settling.await.unwrap();
}

#[tokio::test]
async fn whoever_settles_a_namespace_looks_at_what_waits_for_that() {
    let followed = Followed::new();
    many_ports(&followed, 600, 1);
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    followed.boards.subscribe_to_settled(move |namespace| _ = told.send(namespace.to_owned()));
    suspend(&followed);
    assert!(!followed.boards.is_settled("n"));
    let stop = CancellationToken::new();
    let settling = tokio::spawn({
        let (boards, stop) = (followed.boards.clone(), stop.clone());
        async move { boards.settle(&stop).await }
    });
    let heard = tokio::time::timeout(Duration::from_secs(60), hears.recv()).await;
    assert_eq!(heard, Ok(Some("n".to_owned())));
    stop.cancel();
    settling.await.unwrap();
    assert_eq!(followed.receivers(), 0);
}

/// A job that exports in the namespace `m`.
fn exporter_elsewhere(mirrors: &Mirrors) {
    let mut exporter = job("out", "u1", Some(1));
    exporter.metadata.namespace = Some("m".to_owned());
    mirrors.jobs.insert(exporter);
}

#[test]
fn what_takes_longer_than_a_turn_holds_up_no_other_namespace() {
    let followed = Followed::new();
    let (boards, mirrors) = (&followed.boards, &followed.mirrors);
    many_ports(&followed, 600, 1);
    exporter_elsewhere(mirrors);
    let mut long = long_export("out-0-0", "out", "u1", 1);
    long.metadata.namespace = Some("m".to_owned());
    mirrors.exports.insert(long.clone());
    suspend(&followed);
    for _ in 0..20 {
        boards.settle_in_a_turn();
    }
    assert_eq!((boards.is_settled("n"), followed.receivers()), (true, 0));
    assert_eq!((boards.export(&Key::of(&long)), boards.line().waiting()), (Standing::Unknown, String::new()));
    assert_eq!((boards.is_settled("m"), boards.long_line().waiting()), (false, "m".to_owned()));
    boards.settle_a_slice();
    assert_eq!((boards.export(&Key::of(&long)), boards.is_settled("m")), (Standing::Alone, true));
}

#[test]
fn no_turn_waits_for_whoever_reads_a_long_object() {
    let followed = Followed::new();
    let (boards, mirrors) = (&followed.boards, &followed.mirrors);
    many_ports(&followed, 600, 1);
    exporter_elsewhere(mirrors);
    let namespace = Arc::clone(&boards.namespaces()["m"]);
    let reading = namespace.read_alone(&(Side::Export, Arc::from("another")));
    let mut written = export_for_a_turn();
    written.metadata.namespace = Some("m".to_owned());
    mirrors.exports.insert(written.clone());
    suspend(&followed);
    let (told, hears) = mpsc::channel();
    let of = boards.clone();
    let settling = thread::spawn(move || {
        let turns = (0..20).filter(|_| of.settle_in_a_turn()).count();
        told.send(turns).unwrap();
    });
    let turns = hears.recv_timeout(Duration::from_secs(10));
    let waiting = (boards.line().waiting(), boards.long_line().waiting());
    drop(reading);
    settling.join().unwrap();
    assert!(turns.is_ok_and(|turns| turns < 20), "{turns:?}: it has no turns in vain");
    assert_eq!((boards.is_settled("n"), followed.receivers()), (true, 0));
    assert_eq!((boards.is_settled("m"), waiting), (false, (String::new(), "m".to_owned())));
    boards.settle_a_slice();
    assert_eq!((boards.export(&Key::of(&written)), boards.is_settled("m")), (Standing::Alone, true));
    assert_eq!(boards.line().waiting(), "m", "whoever waits for it is told in a turn");
}

#[test]
fn a_turn_leaves_what_it_would_have_to_wait_for_and_is_not_the_last() {
    let followed = Followed::new();
    let boards = &followed.boards;
    followed.mirrors.jobs.insert(job("out", "u1", Some(1)));
    followed.mirrors.exports.insert(export_for_a_turn());
    let (turn, _) = boards.next_turn().unwrap();
    assert_eq!((turn.looks, boards.is_settled_by(&turn, Vec::new())), (Looks::InTurn, false));
    // Somebody begins to read another one after the turn was found to be one for looks.
    let namespace = Arc::clone(&boards.namespaces()["n"]);
    let reading = namespace.read_alone(&(Side::Export, Arc::from("another")));
    let (told, hears) = mpsc::channel();
    let of = boards.clone();
    let other = thread::spawn(move || {
        of.end(&turn, false);
        told.send(()).unwrap();
    });
    let heard = hears.recv_timeout(Duration::from_secs(10));
    let next = boards.next_turn().map(|(turn, _)| turn.looks);
    drop(reading);
    other.join().unwrap();
    assert_eq!((heard, next, boards.is_settled("n")), (Ok(()), Some(Looks::Long), false));
}

#[tokio::test]
async fn whoever_settles_a_namespace_looks_at_what_takes_longer_than_a_turn() {
    let followed = Followed::new();
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    followed.boards.subscribe_to_settled(move |namespace| _ = told.send(namespace.to_owned()));
    followed.mirrors.jobs.insert(job("out", "u1", Some(1)));
    let long = long_export("out-0-0", "out", "u1", 1);
    followed.mirrors.exports.insert(long.clone());
    let stop = CancellationToken::new();
    let settling = tokio::spawn({
        let (boards, stop) = (followed.boards.clone(), stop.clone());
        async move { boards.settle(&stop).await }
    });
    let heard = tokio::time::timeout(Duration::from_secs(60), hears.recv()).await;
    assert_eq!((heard, followed.boards.export(&Key::of(&long))), (Ok(Some("n".to_owned())), Standing::Alone));
    stop.cancel();
    settling.await.unwrap();
}

#[test]
fn a_namespace_is_there_for_others_while_it_is_tried() {
    let followed = Followed::new();
    let (boards, mirrors) = (&followed.boards, &followed.mirrors);
    costly_namespace(mirrors, "m", 20);
    let (turn, trials) = boards.next_turn().unwrap();
    assert!(!trials.is_empty());
    // Nobody is waited for: this thread has the lock, if anybody has.
    let asked = mirrors.imports.get(&Key::new("m", "out-0-0")).unwrap();
    assert!(matches!(boards.import(&Key::of(&*asked)), Standing::Limited { is_connected: false, .. }));
    let mut other = Import::clone(&asked);
    other.spec.streams.property_based_import.as_mut().unwrap().subscription = "a != \"y\"".to_owned();
    mirrors.imports.insert(other.clone());
    // What was tried counts no more: the import asks for something else now.
    boards.is_settled_by(&turn, tried_in_a_slice(trials));
    while !boards.is_settled("m") {
        boards.settle_a_slice();
    }
    assert_eq!(boards.exporters(&other, 0).1, 20);
}

#[test]
fn all_are_told_together_when_all_is_known() {
    let followed = Followed::new();
    let boards = &followed.boards;
    costly_namespace(&followed.mirrors, "m", 20);
    assert_eq!(followed.told().len(), 20, "each as it came");
    boards.settle_a_slice();
    assert_eq!((followed.told(), boards.is_settled("m")), (Vec::new(), false));
    // A PE that the board does not know any more needs no routes.
    followed.mirrors.exports.remove(&Key::new("m", "out-7-0"));
    assert_eq!(followed.told(), ["out-7"]);
    while !boards.is_settled("m") {
        boards.settle_a_slice();
    }
    assert_eq!(followed.told().len(), 19);
    assert_eq!(followed.told(), [""; 0]);
}

#[test]
fn whoever_settles_a_namespace_all_hear_of_it() {
    let followed = Followed::new();
    let boards = &followed.boards;
    costly_namespace(&followed.mirrors, "m", 20);
    followed.told();
    // Without the import nothing is left to be tried.
    followed.mirrors.imports.remove(&Key::new("m", "out-0-0"));
    assert_eq!((followed.told(), boards.is_settled("m")), (Vec::new(), true));
    boards.settle_a_slice();
    assert!(followed.told().contains(&"out-0".to_owned()));
    assert!(boards.line().waiting().is_empty());
}

#[test]
fn a_namespace_that_goes_and_comes_back_has_one_turn() {
    let followed = Followed::new();
    let boards = &followed.boards;
    costly_namespace(&followed.mirrors, "l", 20);
    for _ in 0..3 {
        costly_namespace(&followed.mirrors, "m", 20);
        remove_costly_namespace(&followed.mirrors, "m", 20);
        assert!(!boards.namespaces().contains_key("m"));
    }
    costly_namespace(&followed.mirrors, "m", 20);
    assert_eq!(boards.line().waiting(), "lm");
    for _ in 0..4 {
        boards.settle_a_slice();
    }
    assert_eq!(boards.line().waiting(), "lm");
}
