//! Exports and imports for which there is no room say so, and hear of it when that becomes other (rule import-12).

use crate::broker::answers::{Limit, Standing};
use crate::broker::predecessors::Side;
use crate::broker::testing::{Followed, export, import, job, suspend};
use serde_json::json;
use streams_api::{Export, ExportType, Import};
use streams_kubernetes::Key;

#[test]
fn imports_for_which_there_is_no_room_say_so_until_others_have_gone() {
    let followed = Followed::new();
    let (boards, mirrors) = (&followed.boards, &followed.mirrors);
    mirrors.jobs.insert(job("out", "u1", Some(1)));
    mirrors.jobs.insert(job("in", "u2", Some(2)));
    mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
    let put = |pe: u64, operands: usize| {
        let mut import = import(&format!("in-{pe}-0"), "in", "u2", 2);
        import.spec.pe_id = pe;
        import.spec.streams.property_based_import = serde_json::from_value(json!({
            "subscription": format!("{}n == {pe}", "a|".repeat(operands)), "applicationScope": "Default",
            "importOperName": "In", "index": 0,
        }))
        .unwrap();
        mirrors.imports.insert(import.clone());
        import
    };
    let all: Vec<Import> = (0..120).map(|pe| put(pe, 4_000)).collect();
    let without = |all: &[Import]| {
        let limits = all.iter().filter_map(|import| match boards.import(&Key::of(import)) {
            // They get what they name.
            Standing::Limited { is_connected: true, limit: Limit::NoRoom(why) } => Some(why.to_string()),
            Standing::Connected => None,
            other => panic!("{other:?}"),
        });
        limits.collect::<Vec<String>>()
    };
    followed.settle();
    let refused = without(&all);
    assert!((1..60).contains(&refused.len()), "{}", refused.len());
    assert!(refused[0].starts_with("the subscription of in-"), "{}", refused[0]);
    // Those that ask for little have room.
    let few: Vec<Import> = (120..240).map(|pe| put(pe, 1)).collect();
    followed.settle();
    assert_eq!(without(&few), [""; 0]);
    assert!(without(&all).len() >= refused.len());
    for pe in 0..60 {
        mirrors.imports.remove(&Key::new("n", &format!("in-{pe}-0")));
    }
    followed.settle();
    assert_eq!(without(&all[60..]), [""; 0]);
}

#[test]
fn the_room_of_filters_of_a_job_that_rests_is_there_for_others() {
    let followed = Followed::new();
    let (boards, mirrors) = (&followed.boards, &followed.mirrors);
    for (name, uid, id) in [("out", "u1", 1), ("in", "u2", 2), ("other", "u3", 3)] {
        mirrors.jobs.insert(job(name, uid, Some(id)));
    }
    mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
    let filtered = |job: &str, (uid, id): (&str, u64), pe: u64, octets: usize| {
        let mut import = import(&format!("{job}-{pe}-0"), job, uid, id);
        import.spec.pe_id = pe;
        import.spec.streams.filter = Some(format!("{} == {pe}", "f".repeat(octets)));
        mirrors.imports.insert(import.clone());
        import
    };
    // They have all of the room but some 4,000 bytes.
    let all: Vec<Import> = (0..520).map(|pe| filtered("in", ("u2", 2), pe, 64_000)).collect();
    let other = filtered("other", ("u3", 3), 0, 65_000);
    followed.settle();
    assert!(matches!(
        boards.import(&Key::of(&other)),
        Standing::Limited { is_connected: false, limit: Limit::NoRoom(_) }
    ));
    assert_eq!(boards.import(&Key::of(&all[0])), Standing::Connected);
    suspend(&followed);
    followed.settle();
    assert_eq!(
        (boards.import(&Key::of(&other)), boards.import(&Key::of(&all[0]))),
        (Standing::Connected, Standing::Alone)
    );
}

/// Its properties take some MB unpacked; packed they are nothing.
#[test]
fn exports_for_whose_properties_there_is_no_room_say_so_until_others_have_gone() {
    let followed = Followed::new();
    let (boards, mirrors) = (&followed.boards, &followed.mirrors);
    mirrors.jobs.insert(job("out", "u1", Some(1)));
    let put = |pe: u64, numbers: u64| {
        let mut export = export(&format!("out-{pe}-0"), "out", "u1", 1);
        export.spec.pe_id = pe;
        export.spec.export_type = ExportType::ByProperties;
        let list = |name: u64| {
            let values: Vec<String> = (pe..pe + numbers.min(1_000)).map(|value| value.to_string()).collect();
            json!({"name": format!("p{name}"), "type": "list<int64>", "values": values})
        };
        let lists: Vec<serde_json::Value> = (0..numbers.div_ceil(1_000)).map(list).collect();
        export.spec.stream.properties = serde_json::from_value(json!(lists)).unwrap();
        mirrors.exports.insert(export.clone());
        export
    };
    let all: Vec<Export> = (0..8).map(|pe| put(pe, 100_000)).collect();
    let without = |all: &[Export]| {
        let limits = all.iter().filter_map(|export| match boards.export(&Key::of(export)) {
            Standing::Limited { is_connected: false, limit: Limit::NoRoom(why) } => Some(why.to_string()),
            Standing::Alone => None,
            other => panic!("{other:?}"),
        });
        limits.collect::<Vec<String>>()
    };
    followed.settle();
    let refused = without(&all);
    assert!((1..8).contains(&refused.len()), "{refused:?}");
    assert!(refused[0].starts_with("the list of properties of out-"), "{}", refused[0]);
    // Those with few properties have room.
    let few: Vec<Export> = (8..100).map(|pe| put(pe, 2)).collect();
    followed.settle();
    assert_eq!(without(&few), [""; 0]);
    for pe in 0..4 {
        mirrors.exports.remove(&Key::new("n", &format!("out-{pe}-0")));
    }
    followed.settle();
    assert_eq!(without(&all[4..]), [""; 0]);
}

/// By an event of its job, of which the object itself hears nothing.
#[test]
fn who_has_no_room_any_more_or_asks_for_none_is_told() {
    for side in [Side::Export, Side::Import] {
        let followed = Followed::new();
        let (boards, mirrors) = (&followed.boards, &followed.mirrors);
        let put = |job: &str, (uid, id): (&str, u64), pe: u64, octets: usize| {
            let (name, text) = (format!("{job}-{pe}-0"), format!("{}{pe}", "f".repeat(octets)));
            match side {
                Side::Export => {
                    let mut export = export(&name, job, uid, id);
                    export.spec.pe_id = pe;
                    export.spec.export_type = ExportType::ByProperties;
                    let long = json!([{"name": "a", "type": "rstring", "values": [format!("\"{text}\"")]}]);
                    export.spec.stream.properties = serde_json::from_value(long).unwrap();
                    mirrors.exports.insert(export);
                }
                Side::Import => {
                    let mut import = import(&name, job, uid, id);
                    import.spec.pe_id = pe;
                    import.spec.streams.filter = Some(format!("{text} == 1"));
                    mirrors.imports.insert(import);
                }
            }
        };
        let key = Key::new("n", "other-0-0");
        let standing = || match side {
            Side::Export => boards.export(&key),
            Side::Import => boards.import(&key),
        };
        mirrors.jobs.insert(job("in", "u2", Some(2)));
        (0..530).for_each(|pe| put("in", ("u2", 2), pe, 64_000));
        put("other", ("u3", 3), 0, 65_000);
        followed.settle();
        followed.told();
        // The committed generation of its job, whether that is suspended -> whether it asks for room
        let table = [(None, false, false), (Some(0), false, true), (Some(0), true, false), (Some(0), false, true)];
        for (generation, is_suspended, asks) in table {
            let said = format!("{side:?} {generation:?} {is_suspended}");
            let mut other = job("other", "u3", Some(3));
            other.status.as_mut().unwrap().generation = generation;
            other.spec.suspend = is_suspended;
            mirrors.jobs.insert(other);
            followed.settle();
            match standing() {
                Standing::Limited { is_connected: false, limit: Limit::NoRoom(_) } => assert!(asks, "{said}"),
                standing => assert_eq!((standing, asks), (Standing::Alone, false), "{said}"),
            }
            assert_eq!(followed.told(), ["other-0"], "{said}");
        }
    }
}
