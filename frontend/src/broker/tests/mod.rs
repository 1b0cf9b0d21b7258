//! What counts, and what becomes of matches when jobs come and go, are suspended, resized, and made again.

mod long;
mod many;
mod room;
mod told;

use crate::broker::answers::{Says, Standing};
use crate::broker::predecessors::Side;
use crate::broker::testing::{Followed, element, export, import, job, metadata};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use streams_api::names;
use streams_broker::Pe;
use streams_kubernetes::Key;

fn pe(job: &str, id: u64) -> Pe {
    Pe { job: job.into(), id }
}

#[test]
fn what_counts_is_of_a_job_that_is_there() {
    let other_owner = metadata("in-0-0", "in", "another");
    let mut foreign = import("in-0-0", "in", "u2", 2);
    foreign.metadata = serde_json::from_value(other_owner).unwrap();
    let mut going = import("in-0-0", "in", "u2", 2);
    going.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    let mut misnamed = import("in-0-1", "in", "u2", 2);
    misnamed.spec.port_id = 0;
    // what is asked, the import, the importing job -> whether it receives
    let table = [
        ("all is well", import("in-0-0", "in", "u2", 2), Some(job("in", "u2", Some(2))), true),
        ("no job", import("in-0-0", "in", "u2", 2), None, false),
        ("a job without number", import("in-0-0", "in", "u2", 2), Some(job("in", "u2", None)), false),
        ("another number", import("in-0-0", "in", "u2", 3), Some(job("in", "u2", Some(2))), false),
        ("an earlier job of the name", import("in-0-0", "in", "u1", 2), Some(job("in", "u2", Some(2))), false),
        ("not of the job", foreign, Some(job("in", "u2", Some(2))), false),
        ("being deleted", going, Some(job("in", "u2", Some(2))), false),
        ("another name than the port's", misnamed, Some(job("in", "u2", Some(2))), false),
    ];
    for (asked, import, importer, expected) in table {
        for is_job_first in [true, false] {
            let followed = Followed::new();
            followed.mirrors.jobs.insert(job("out", "u1", Some(1)));
            followed.mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
            let put_job = || importer.iter().for_each(|job| followed.mirrors.jobs.insert(job.clone()));
            if is_job_first {
                put_job();
            }
            followed.mirrors.imports.insert(import.clone());
            if !is_job_first {
                put_job();
            }
            assert_eq!(followed.receivers(), usize::from(expected), "{asked}, job first: {is_job_first}");
        }
    }
}

#[test]
fn routes_come_and_go_with_jobs_and_objects_and_nothing_is_kept() {
    let followed = Followed::new();
    let mirrors = &followed.mirrors;
    let both = || ["in-0", "out-0"].map(str::to_owned).to_vec();
    mirrors.jobs.insert(job("out", "u1", Some(1)));
    mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
    mirrors.imports.insert(import("in-0-0", "in", "u2", 2));
    assert_eq!(followed.told(), ["out-0"]);
    mirrors.jobs.insert(job("in", "u2", Some(2)));
    assert_eq!((followed.told(), followed.receivers()), (both(), 1));
    assert_eq!(followed.boards.export(&Key::new("n", "out-0-0")), Standing::Connected);
    // Another status of the job is no reason to tell anybody.
    let mut changed = job("in", "u2", Some(2));
    changed.metadata.resource_version = Some("9".to_owned());
    mirrors.jobs.insert(changed);
    assert_eq!(followed.told(), [""; 0]);
    mirrors.jobs.remove(&Key::new("n", "in"));
    assert_eq!((followed.told(), followed.receivers()), (both(), 0));
    assert_eq!(followed.boards.export(&Key::new("n", "out-0-0")), Standing::Alone);
    mirrors.imports.remove(&Key::new("n", "in-0-0"));
    mirrors.exports.remove(&Key::new("n", "out-0-0"));
    assert_eq!(followed.boards.export(&Key::new("n", "out-0-0")), Standing::Unknown);
    mirrors.jobs.remove(&Key::new("n", "out"));
    assert_eq!(followed.told(), ["out-0"]);
    assert!(followed.boards.namespaces().is_empty());
}

#[test]
fn what_matches_is_of_the_committed_generation_of_a_job_that_does_not_rest() {
    let job_in = |generation: Option<u64>, is_suspended| {
        let mut job = job("in", "u2", Some(2));
        job.status.as_mut().unwrap().generation = generation;
        job.spec.suspend = is_suspended;
        job
    };
    let import_since = |since: Option<&str>| {
        let mut import = import("in-0-0", "in", "u2", 2);
        let since = since.map(|since| (names::ANNOTATION_SINCE_GENERATION.to_owned(), since.to_owned()));
        import.metadata.annotations = Some(since.into_iter().collect());
        import
    };
    let both = || ["in-0", "out-0"].map(str::to_owned).to_vec();
    // the generation that has added the import; the importing job, one after the other: its committed generation,
    // whether it is suspended -> whether it receives
    type Jobs<'a> = &'a [(Option<u64>, bool, bool)];
    let table: [(Option<&str>, Jobs<'_>); 6] = [
        (None, &[(None, false, false), (Some(0), false, true)]),
        (Some("2"), &[(None, false, false), (Some(1), false, false), (Some(2), false, true), (Some(3), false, true)]),
        (Some("2"), &[(Some(3), false, true)]),
        (None, &[(Some(4), false, true), (Some(4), true, false), (Some(5), true, false), (Some(5), false, true)]),
        (Some("1"), &[(Some(0), true, false), (Some(1), true, false), (Some(1), false, true)]),
        // Somebody has written another status, and the job controller its own.
        (Some("2"), &[(Some(2), false, true), (Some(1), false, false), (Some(2), false, true)]),
    ];
    for (since, jobs) in table {
        let followed = Followed::new();
        followed.mirrors.jobs.insert(job("out", "u1", Some(1)));
        followed.mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
        followed.mirrors.imports.insert(import_since(since));
        let mut receives = false;
        for (generation, is_suspended, expected) in jobs {
            let said = format!("{since:?}, {generation:?} of {jobs:?}");
            followed.told();
            followed.mirrors.jobs.insert(job_in(*generation, *is_suspended));
            assert_eq!(followed.receivers(), usize::from(*expected), "{said}");
            let told = followed.told();
            assert!(*expected == receives || told == both(), "{said}: {told:?}");
            receives = *expected;
            // It is there, as an import that nobody sends to.
            let standing = if *expected { Standing::Connected } else { Standing::Alone };
            assert_eq!(followed.boards.import(&Key::of(&import_since(since))), standing, "{said}");
            let since = since.map_or(0, |since| since.parse().unwrap());
            let is_early = generation.is_none_or(|committed| committed < since);
            assert_eq!(followed.boards.namespaces()["n"].lock().early.len(), usize::from(is_early), "{said}");
        }
        followed.mirrors.imports.remove(&Key::new("n", "in-0-0"));
        assert!(followed.boards.namespaces()["n"].lock().early.is_empty(), "nothing is kept");
    }
}

#[test]
fn a_port_matches_once_the_pod_of_its_pe_has_it() {
    // One after the other: the committed generation, that of the PE, whether its text has the port, its runtime id,
    // that of its pod -> whether the import receives.
    type Step<'a> = (u64, u64, bool, &'a str, Option<&'a str>, bool);
    // the generation that has added the port
    let table: [(Option<&str>, &[Step<'_>]); 3] = [
        (
            Some("1"),
            &[
                (0, 0, false, "r0", Some("r0"), false),
                // The PE waits for its turn.
                (1, 0, false, "r0", Some("r0"), false),
                (1, 1, true, "r1", Some("r0"), false),
                (1, 1, true, "r1", None, true),
                (1, 1, true, "r1", Some("r1"), true),
                // A later text has it, too.
                (2, 2, true, "r2", Some("r1"), true),
                (2, 2, true, "r2", None, true),
                (3, 2, true, "r2", Some("r2"), true),
                // The port goes, and its object does not.
                (3, 3, false, "r3", Some("r2"), false),
                (3, 3, false, "r3", Some("r3"), false),
            ],
        ),
        // It has waited for its turn until there was a still later text.
        (
            Some("1"),
            &[
                (1, 0, false, "r0", Some("r0"), false),
                (2, 2, true, "r2", Some("r0"), false),
                (2, 2, true, "r2", None, true),
            ],
        ),
        // An earlier frontend has created it.
        (
            None,
            &[
                (1, 0, true, "r0", Some("r0"), true),
                (1, 1, true, "r1", Some("r0"), true),
                (1, 1, true, "r1", Some("r1"), true),
                (2, 2, false, "r2", Some("r1"), false),
            ],
        ),
    ];
    for (side, is_job_first, (since, steps)) in [Side::Export, Side::Import]
        .into_iter()
        .flat_map(|side| [(side, true), (side, false)])
        .flat_map(|(side, is_job_first)| table.map(|row| (side, is_job_first, row)))
    {
        let followed = Followed::new();
        let mirrors = &followed.mirrors;
        let (mut export, mut import) = (export("out-0-0", "out", "u1", 1), import("in-0-0", "in", "u2", 2));
        let since = since.map(|since| (names::ANNOTATION_SINCE_GENERATION.to_owned(), since.to_owned()));
        let (meta, of) = match side {
            Side::Export => (&mut export.metadata, ("out", "u1", 1)),
            Side::Import => (&mut import.metadata, ("in", "u2", 2)),
        };
        meta.annotations = Some(since.clone().into_iter().collect());
        for (name, uid, id) in [("out", "u1", 1), ("in", "u2", 2)] {
            mirrors.jobs.insert(job(name, uid, Some(id)));
        }
        mirrors.exports.insert(export);
        mirrors.imports.insert(import);
        let mut receives = followed.receivers() == 1;
        for (committed, written, has_port, runtime_id, launched, expected) in steps {
            let said = format!("{side:?} {is_job_first} {since:?} {committed} {written} {runtime_id} {launched:?}");
            followed.told();
            let mut job = job(of.0, of.1, Some(of.2));
            job.status.as_mut().unwrap().generation = Some(*committed);
            let pe = element(of, *written, *has_port, (*runtime_id, *launched));
            if is_job_first {
                mirrors.jobs.insert(job);
                mirrors.processing_elements.insert(pe.clone());
            } else {
                mirrors.processing_elements.insert(pe.clone());
                mirrors.jobs.insert(job);
            }
            assert_eq!(followed.receivers(), usize::from(*expected), "{said}");
            if receives != *expected {
                assert_eq!(followed.told(), ["in-0", "out-0"], "{said}");
            }
            receives = *expected;
            let (of, key) = (Pe { job: of.0.into(), id: 0 }, Key::of(&pe));
            let changed = followed.boards.namespaces()["n"].lock().changed_by_pe(&of, &key, mirrors);
            assert!(changed.is_empty(), "{said}: nothing is looked at twice");
        }
    }
}

/// However many ports it has, and whoever looks at them.
#[test]
fn a_pe_is_read_once_each_time_that_it_has_changed() {
    const PORTS: u32 = 40;
    let followed = Followed::new();
    let mirrors = &followed.mirrors;
    let job_at = |generation: Option<u64>, is_suspended| {
        let mut job = job("out", "u1", Some(1));
        job.status.as_mut().unwrap().generation = generation;
        job.spec.suspend = is_suspended;
        mirrors.jobs.insert(job);
    };
    let put = |version: u32, ports: std::ops::Range<u32>, since: Option<&str>| {
        let since = since.map(|since| (names::ANNOTATION_SINCE_GENERATION.to_owned(), since.to_owned()));
        for port in ports {
            let name = format!("out-0-{port}");
            let (mut export, mut import) = (export(&name, "out", "u1", 1), import(&name, "out", "u1", 1));
            (export.spec.port_id, import.spec.port_id) = (port, port);
            for meta in [&mut export.metadata, &mut import.metadata] {
                meta.resource_version = Some(version.to_string());
                meta.annotations = Some(since.clone().into_iter().collect());
            }
            mirrors.exports.insert(export);
            mirrors.imports.insert(import);
        }
    };
    let pe_at = |generation: u64, ports: u32, runtime_id: &str, launched: Option<&str>| {
        let mut pe = element(("out", "u1", 1), generation, true, (runtime_id, launched));
        pe.spec.exported_ports = (0..ports).collect();
        pe.spec.input_ports = (0..ports).collect();
        mirrors.processing_elements.insert(pe);
    };
    let early_and_reads = || {
        // More is done within a second than whoever is told of events does.
        followed.settle();
        let shared = std::sync::Arc::clone(&followed.boards.namespaces()["n"]);
        let namespace = shared.lock();
        (namespace.early.len(), namespace.texts.reads)
    };
    // Of each port there is an export and an import.
    let (all, added) = (2 * PORTS as usize, PORTS as usize);
    job_at(None, false);
    pe_at(0, PORTS, "r0", Some("r0"));
    put(1, 0..PORTS, None);
    assert_eq!(early_and_reads(), (all, 0), "nothing is committed");
    job_at(Some(0), false);
    assert_eq!(early_and_reads(), (0, 1), "committed");
    job_at(Some(0), true);
    job_at(Some(0), false);
    assert_eq!(early_and_reads(), (0, 1), "suspended for a while");
    put(2, 0..PORTS, None);
    assert_eq!(early_and_reads(), (0, 1), "somebody has written the objects");
    pe_at(0, PORTS, "r0", Some("r0"));
    assert_eq!(early_and_reads(), (0, 2), "somebody has written the PE");
    put(3, PORTS..PORTS + PORTS / 2, Some("1"));
    job_at(Some(1), false);
    assert_eq!(early_and_reads(), (added, 2), "ports are added");
    pe_at(1, PORTS + PORTS / 2, "r1", Some("r0"));
    assert_eq!(early_and_reads(), (added, 3), "the text has them");
    pe_at(1, PORTS + PORTS / 2, "r1", Some("r1"));
    assert_eq!(early_and_reads(), (0, 4), "the pod has them");
    for port in 0..PORTS + PORTS / 2 {
        let key = Key::new("n", &format!("out-0-{port}"));
        mirrors.exports.remove(&key);
        mirrors.imports.remove(&key);
    }
    assert!(followed.boards.namespaces()["n"].lock().texts.are_none(), "nothing is kept");
}

#[test]
fn a_pe_of_an_earlier_job_of_the_name_says_nothing_of_the_ports_of_this_one() {
    let followed = Followed::new();
    let mirrors = &followed.mirrors;
    mirrors.jobs.insert(job("out", "u1", Some(1)));
    mirrors.jobs.insert(job("in", "u2", Some(2)));
    mirrors.processing_elements.insert(element(("out", "u0", 1), 0, false, ("r0", Some("r0"))));
    mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
    mirrors.imports.insert(import("in-0-0", "in", "u2", 2));
    assert_eq!(followed.receivers(), 1);
}

#[test]
fn what_a_suspended_job_exports_nobody_receives() {
    let followed = Followed::new();
    followed.mirrors.jobs.insert(job("in", "u2", Some(2)));
    followed.mirrors.imports.insert(import("in-0-0", "in", "u2", 2));
    followed.mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
    for (is_suspended, expected) in [(false, 1), (true, 0), (false, 1)] {
        let mut exporter = job("out", "u1", Some(1));
        exporter.spec.suspend = is_suspended;
        followed.mirrors.jobs.insert(exporter);
        assert_eq!(followed.receivers(), expected);
        // The same job is there again: nobody has to be told that another one has gone.
        let told = followed.boards.message("n", &pe("in", 0), None).unwrap();
        assert_eq!(told.says, Says::All, "{is_suspended}");
    }
}

#[test]
fn a_pod_that_is_younger_than_a_job_made_again_is_told_all_at_once() {
    let made = |uid: &str, id, created: &str| {
        let mut importer = job("in", uid, Some(id));
        importer.metadata.creation_timestamp = Some(serde_json::from_value(json!(created)).unwrap());
        importer
    };
    let at = |second: i64| Some(Timestamp::from_second(1_767_225_600 + second).unwrap());
    let followed = Followed::new();
    let (boards, mirrors) = (&followed.boards, &followed.mirrors);
    mirrors.jobs.insert(job("out", "u1", Some(1)));
    mirrors.jobs.insert(made("u2", 2, "2026-01-01T00:00:00Z"));
    mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
    let put = |uid: &str, id: u64, ports: u32| {
        for port in 0..ports {
            let mut import = import(&format!("in-0-{port}"), "in", uid, id);
            import.spec.port_id = port;
            mirrors.imports.insert(import);
        }
    };
    // few routes, and more than a message may have
    for ports in [1, 600] {
        mirrors.jobs.insert(made("u2", 2, "2026-01-01T00:00:00Z"));
        put("u2", 2, ports);
        mirrors.jobs.insert(made("u3", 3, "2026-01-01T00:00:10Z"));
        put("u3", 3, ports);
        while !boards.is_settled("n") {
            boards.settle_a_slice();
        }
        let all = if ports == 1 { Says::All } else { Says::Ask };
        // when the pod was created -> what it is told to do, what is left out of its answer
        let table =
            [(at(9), Says::AskTwice, false), (None, Says::AskTwice, false), (at(10), all, true), (at(60), all, true)];
        for (created, says, is_complete) in table {
            let told = boards.to_tell("n", &pe("out", 0), created).unwrap();
            let said = boards.message("n", &pe("out", 0), created).unwrap().says;
            assert_eq!((said, told.left_out.is_empty()), (says, is_complete), "{ports} {created:?}");
            let receivers: usize = told.matched.receivers.iter().map(|(_, to)| to.len()).sum();
            assert_eq!(receivers, if is_complete { ports as usize } else { 0 }, "{ports} {created:?}");
        }
        let told = boards.to_tell("n", &pe("out", 0), at(9)).unwrap();
        boards.has_answered("n", &pe("out", 0), told.left_out);
        assert_eq!(boards.message("n", &pe("out", 0), at(9)).unwrap().says, all, "{ports}");
    }
}
