//! A board that is kept up to date is the one that is made from scratch; what is tried is bounded.

use super::*;
use crate::asked::{Part, ROOM};
use crate::fact::{Application, NamedStream, Subscription, matches};
use crate::routes::{Published, Publisher, Subscribed, Subscriber};
use proptest::prelude::*;
use proptest::sample::select;
use spl_expression::{Expression, Limits, Properties, Value};
use std::collections::BTreeMap;

const SUBSCRIPTIONS: [&str; 8] = [
    "n == 1",
    "n == 1.0 && t == \"a\"",
    "n > 0 || t == \"b\"",
    "\"a\" in l",
    "1 == 1",
    "!(n == 2)",
    "false",
    "n in l || t == \"a\" && n < 2",
];

fn port() -> impl Strategy<Value = Port> {
    (select(vec!["a", "b"]), 0u64..3, 0u32..2)
        .prop_map(|(job, id, port)| Port { pe: Pe { job: job.into(), id }, id: port })
}

fn text(of: &'static [&'static str]) -> impl Strategy<Value = Arc<str>> {
    select(of).prop_map(Arc::from)
}

fn properties() -> impl Strategy<Value = Properties> {
    let number =
        prop_oneof![(0i64..3).prop_map(|n| Value::Int64(n.into())), (0i64..3).prop_map(|n| Value::Float64(n as f64)),];
    let word = text(&["a", "b"]).prop_map(Value::Rstring);
    let list = prop::collection::vec(text(&["a", "b"]), 0..3)
        .prop_map(|texts| Value::List(spl_expression::List::Rstring(texts.into())));
    (prop::option::of(number), prop::option::of(word), prop::option::of(list)).prop_map(|(n, t, l)| {
        let all = [("n", n), ("t", t), ("l", l)];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    })
}

fn export() -> impl Strategy<Value = Export> {
    let application = (text(&["x", "y"]), text(&["Default", "s"]));
    let application = application.prop_map(|(name, scope)| Application { name, scope });
    let name = prop::option::of(text(&["out", "in"]));
    (port(), 1u64..3, application, name, prop::option::of(properties()), any::<bool>()).prop_map(
        |(port, job_id, application, name, properties, allows_filter)| Export {
            port,
            job_id,
            application,
            name,
            properties: properties.map(Arc::new),
            allows_filter,
        },
    )
}

fn import() -> impl Strategy<Value = Import> {
    let scope = || text(&["Default", "s"]);
    let named = (prop::option::of(text(&["x", "y"])), scope(), text(&["out", "in"]))
        .prop_map(|(application, scope, stream)| NamedStream { application, scope, stream });
    let subscription = (scope(), select(&SUBSCRIPTIONS[..])).prop_map(|(scope, text)| Subscription {
        scope,
        expression: Expression::parse(text, &Limits::default()).unwrap().into(),
    });
    let named = prop::collection::vec(named, 0..2);
    (port(), 1u64..3, 0u32..2, named, prop::option::of(subscription), prop::option::of(text(&["", "f", "g"]))).prop_map(
        |(port, job_id, port_index, named, subscription, filter)| Import {
            port,
            job_id,
            port_index,
            named: named.into(),
            subscription,
            filter,
        },
    )
}

#[derive(Clone, Debug)]
enum Change {
    PutExport(Export),
    PutImport(Import),
    RemoveExport(Port),
    RemoveImport(Port),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => export().prop_map(Change::PutExport),
        3 => import().prop_map(Change::PutImport),
        1 => port().prop_map(Change::RemoveExport),
        1 => port().prop_map(Change::RemoveImport),
    ]
}

/// The routes of all PEs, by trying every export with every import.
fn from_scratch(exports: &BTreeMap<Port, Export>, imports: &BTreeMap<Port, Import>) -> BTreeMap<Pe, Routes> {
    let mut routes: BTreeMap<Pe, Routes> = BTreeMap::new();
    for (export, import) in exports.values().flat_map(|export| imports.values().map(move |import| (export, import))) {
        if !matches(export, import) {
            continue;
        }
        let (from, to) = (&export.port, &import.port);
        let published = routes.entry(from.pe.clone()).or_default().exports.entry(from.to_string());
        let published = published.or_insert(Published { port_id: from.id, entries: BTreeMap::new() });
        published.entries.insert(to.to_string(), Subscriber::of(import));
        let subscribed = routes.entry(to.pe.clone()).or_default().imports.entry(to.to_string());
        let subscribed = subscribed.or_insert(Subscribed { port_id: to.id, entries: BTreeMap::new() });
        subscribed.entries.insert(from.to_string(), Publisher::of(export));
    }
    routes
}

proptest! {
    #[test]
    fn after_every_change_the_board_is_that_of_what_is_there_and_names_whose_routes_changed(
        changes in prop::collection::vec(change(), 1..60)
    ) {
        let mut board = Board::default();
        let (mut exports, mut imports) = (BTreeMap::new(), BTreeMap::new());
        let mut before = BTreeMap::new();
        for change in changes {
            let mut touched = match change.clone() {
                Change::PutExport(export) => {
                    exports.insert(export.port.clone(), export.clone());
                    board.put_export(export)
                }
                Change::PutImport(import) => {
                    imports.insert(import.port.clone(), import.clone());
                    board.put_import(import)
                }
                Change::RemoveExport(port) => {
                    exports.remove(&port);
                    board.remove_export(&port)
                }
                Change::RemoveImport(port) => {
                    imports.remove(&port);
                    board.remove_import(&port)
                }
            };
            while !board.is_settled() {
                touched.routes.extend(board.settle(1).routes);
            }
            let now = from_scratch(&exports, &imports);
            let pes: BTreeSet<&Pe> = before.keys().chain(now.keys()).collect();
            let changed: BTreeSet<Pe> =
                pes.into_iter().filter(|pe| before.get(*pe) != now.get(*pe)).cloned().collect();
            prop_assert_eq!(touched.routes, changed, "{:?}", change);
            for pe in exports.keys().chain(imports.keys()).map(|port| &port.pe) {
                let routes = board.routes(pe).unwrap();
                prop_assert_eq!(board.message(pe).unwrap(), routes.message());
                prop_assert_eq!(routes, now.get(pe).cloned().unwrap_or_default());
            }
            for port in exports.keys() {
                let of_port = now.get(&port.pe).and_then(|routes| routes.exports.get(&port.to_string()));
                let others: Vec<&String> = of_port.iter().flat_map(|of_port| of_port.entries.keys()).collect();
                prop_assert_eq!(board.has_importers(port), !others.is_empty());
                let (ports, count) = board.importers(port, usize::MAX);
                let labels: Vec<String> = ports.iter().map(ToString::to_string).collect();
                prop_assert_eq!((labels.iter().collect::<Vec<_>>(), count), (others, labels.len()));
                let (some, count) = board.importers(port, 1);
                prop_assert_eq!((some.len(), count), (labels.len().min(1), labels.len()));
            }
            for port in imports.keys() {
                let of_port = now.get(&port.pe).and_then(|routes| routes.imports.get(&port.to_string()));
                let others: Vec<&String> = of_port.iter().flat_map(|of_port| of_port.entries.keys()).collect();
                prop_assert_eq!(board.has_exporters(port), !others.is_empty());
                let (ports, count) = board.exporters(port, usize::MAX);
                let labels: Vec<String> = ports.iter().map(ToString::to_string).collect();
                prop_assert_eq!((labels.iter().collect::<Vec<_>>(), count), (others, labels.len()));
                let (some, count) = board.exporters(port, 1);
                prop_assert_eq!((some.len(), count), (labels.len().min(1), labels.len()));
                let import = &imports[port];
                let unfiltered = Import { filter: None, ..import.clone() };
                let forbidding = exports.values().filter(|export| !export.allows_filter);
                let sending = forbidding.filter(|export| matches(export, &unfiltered));
                let forbids = sending.map(|export| &export.port).min();
                prop_assert_eq!(board.forbids_filters(import, usize::MAX), Ok(forbids));
            }
            prop_assert_eq!(board.size(), (exports.len(), imports.len()));
            before = now;
        }
        for port in exports.keys() {
            board.remove_export(port);
        }
        for port in imports.keys() {
            board.remove_import(port);
        }
        prop_assert!(is_empty(&board), "{board:?}");
    }

    #[test]
    fn while_it_settles_the_board_takes_changes_and_ends_as_one_that_was_given_the_last_at_once(
        changes in prop::collection::vec((change(), 0usize..4, 0usize..4, any::<bool>()), 1..60)
    ) {
        let (mut board, mut anew) = (Board::default(), Board::default());
        let (mut exports, mut imports) = (BTreeMap::new(), BTreeMap::new());
        // What was tried apart from the board, and is told when the board may be another one.
        let mut apart = Vec::new();
        for (change, tries, trials, is_told) in changes {
            match change {
                Change::PutExport(export) => {
                    board.put_export(export.clone());
                    exports.insert(export.port.clone(), export);
                }
                Change::PutImport(import) => {
                    board.put_import(import.clone());
                    imports.insert(import.port.clone(), import);
                }
                Change::RemoveExport(port) => {
                    board.remove_export(&port);
                    exports.remove(&port);
                }
                Change::RemoveImport(port) => {
                    board.remove_import(&port);
                    imports.remove(&port);
                }
            }
            if is_told {
                board.learn(apart.drain(..));
            }
            apart.extend(board.trials(trials).into_iter().map(Trial::run));
            for _ in 0..tries {
                board.settle(1);
            }
        }
        board.settle(usize::MAX);
        board.learn(apart);
        exports.values().for_each(|export| _ = anew.put_export(export.clone()));
        imports.values().for_each(|import| _ = anew.put_import(import.clone()));
        anew.settle(usize::MAX);
        for pe in exports.keys().chain(imports.keys()).map(|port| &port.pe) {
            prop_assert_eq!(board.routes(pe).unwrap(), anew.routes(pe).unwrap());
            prop_assert_eq!(board.weight(pe), anew.weight(pe));
            let loads = board.exports.of(pe).map(|placed| placed.load).sum::<usize>();
            let loads = loads + board.imports.of(pe).map(|placed| placed.load).sum::<usize>();
            prop_assert_eq!((board.weight(pe), board.ports_of(pe) > 0), (loads, true));
        }
        for port in exports.keys() {
            board.remove_export(port);
        }
        for port in imports.keys() {
            board.remove_import(port);
        }
        prop_assert!(is_empty(&board), "{board:?}");
    }
}

proptest! {
    /// Replicas see changes in different orders, and put imports again at different times.
    #[test]
    fn with_little_room_the_board_ends_as_one_that_was_given_the_last_in_another_order(
        changes in prop::collection::vec((change(), 0usize..3, any::<bool>()), 1..60), room in 0usize..6_000
    ) {
        let within = || Board { asked: Asked::within(room), offered: Asked::within(room), ..Board::default() };
        let (mut board, mut anew) = (within(), within());
        let (mut exports, mut imports) = (BTreeMap::new(), BTreeMap::new());
        // Those that are to be put again; of exports and imports.
        let mut again = BTreeSet::new();
        let those = |Changes { again, exports_again, .. }: Changes| {
            let exports = exports_again.into_iter().map(|port| (true, port));
            exports.chain(again.into_iter().map(|port| (false, port)))
        };
        type All<'a> = (&'a BTreeMap<Port, Export>, &'a BTreeMap<Port, Import>);
        let put = |board: &mut Board, (exports, imports): All<'_>, (is_export, port): &(bool, Port)| {
            let changes = if *is_export {
                exports.get(port).map(|export| board.put_export(export.clone()))
            } else {
                imports.get(port).map(|import| board.put_import(import.clone()))
            };
            those(changes.unwrap_or_default())
        };
        for (change, puts, is_first) in changes {
            match change {
                Change::PutExport(export) => {
                    again.extend(those(board.put_export(export.clone())));
                    exports.insert(export.port.clone(), export);
                }
                Change::PutImport(import) => {
                    again.extend(those(board.put_import(import.clone())));
                    imports.insert(import.port.clone(), import);
                }
                Change::RemoveExport(port) => {
                    again.extend(those(board.remove_export(&port)));
                    exports.remove(&port);
                }
                Change::RemoveImport(port) => {
                    again.extend(those(board.remove_import(&port)));
                    imports.remove(&port);
                }
            }
            for _ in 0..puts {
                let Some(port) = (if is_first { again.pop_first() } else { again.pop_last() }) else { break };
                again.extend(put(&mut board, (&exports, &imports), &port));
            }
            board.settle(1);
            prop_assert!(board.asked.is_within() && board.offered.is_within(), "{board:?}");
        }
        while let Some(port) = again.pop_last() {
            again.extend(put(&mut board, (&exports, &imports), &port));
        }
        board.settle(usize::MAX);
        let all = exports.keys().rev().map(|port| (true, port.clone()));
        for port in all.chain(imports.keys().rev().map(|port| (false, port.clone()))) {
            let mut again = BTreeSet::from([port]);
            while let Some(port) = again.pop_first() {
                again.extend(put(&mut anew, (&exports, &imports), &port));
            }
        }
        anew.settle(usize::MAX);
        for pe in exports.keys().chain(imports.keys()).map(|port| &port.pe) {
            prop_assert_eq!(board.routes(pe).unwrap(), anew.routes(pe).unwrap());
        }
        for port in imports.keys() {
            prop_assert_eq!(board.without_room(port), anew.without_room(port));
        }
        for port in exports.keys() {
            prop_assert_eq!(board.export_without_room(port), anew.export_without_room(port));
        }
        exports.keys().for_each(|port| _ = board.remove_export(port));
        imports.keys().for_each(|port| _ = board.remove_import(port));
        prop_assert!(is_empty(&board), "{board:?}");
    }
}

/// Whether nothing at all is kept.
fn is_empty(Board { exports, imports, asked, offered }: &Board) -> bool {
    exports.is_empty() && imports.is_empty() && asked.is_empty() && offered.is_empty()
}

fn at(job: &str, id: u64) -> Port {
    Port { pe: Pe { job: job.into(), id }, id: 0 }
}

fn exported(id: u64, properties: &[(&str, Value)]) -> Export {
    Export {
        port: at("out", id),
        job_id: 1,
        application: Application { name: "x".into(), scope: "s".into() },
        name: None,
        properties: Some(Arc::new(properties.iter().map(|(name, value)| (*name, value.clone())).collect())),
        allows_filter: true,
    }
}

fn imported(id: u64, subscription: &str, filter: Option<&str>) -> Import {
    let expression = Arc::new(Expression::parse(subscription, &Limits::default()).unwrap());
    Import {
        port: at("in", id),
        job_id: 2,
        port_index: 0,
        named: Arc::default(),
        subscription: Some(Subscription { scope: "s".into(), expression }),
        filter: filter.map(Arc::from),
    }
}

fn settled(mut changes: Changes, board: &mut Board) -> Changes {
    let settled = board.settle(usize::MAX);
    changes.routes.extend(settled.routes);
    changes.costs.extend(settled.costs);
    Changes { steps: changes.steps + settled.steps, ..changes }
}

/// A board on which one import gets what a hundred exports send.
fn one_of_a_hundred() -> Board {
    let mut board = Board::default();
    for id in 0..100 {
        board.put_export(exported(id, &[("n", Value::Int64(1.into()))]));
    }
    let changes = board.put_import(imported(0, "n > 0", None));
    assert_eq!(settled(changes, &mut board).routes.len(), 101);
    board
}

#[test]
fn what_a_match_does_not_depend_on_is_no_reason_to_try_again() {
    let as_it_is = imported(0, "n > 0", None);
    let numbered = Import { job_id: 3, ..as_it_is.clone() };
    let other = imported(0, "n > 1", None);
    // what is put in the place of the import -> PEs with other routes, whether anything is evaluated
    let table = [(as_it_is, 0, false), (numbered, 100, false), (other, 101, true)];
    for (import, expected, is_tried) in table {
        let mut board = one_of_a_hundred();
        let said = format!("{import:?}");
        let changes = board.put_import(import);
        let changes = settled(changes, &mut board);
        assert_eq!((changes.routes.len(), changes.steps > 0), (expected, is_tried), "{said}");
    }
    let mut board = one_of_a_hundred();
    let numbered = Export { job_id: 3, ..exported(0, &[("n", Value::Int64(1.into()))]) };
    let changes = board.put_export(numbered);
    assert!(board.is_settled());
    assert_eq!(changes.routes, BTreeSet::from([at("in", 0).pe]));
}

#[test]
fn a_filter_that_changes_changes_what_routes_weigh_and_nothing_is_tried() {
    let mut board = one_of_a_hundred();
    // filter -> what the routes of the exporter weigh, whether the import must be tried again
    let short = "n > 1";
    let long = format!("{short}{}", " ".repeat(10 * 128));
    for (filter, expected, is_tried) in [(None, 1, false), (Some(short), 1, true), (Some(&*long), 11, false)] {
        board.put_import(imported(0, "n > 0", filter));
        assert_eq!(board.is_settled(), !is_tried, "{filter:?}");
        board.settle(usize::MAX);
        assert_eq!(board.weight(&at("out", 0).pe), expected, "{filter:?}");
    }
    board.remove_import(&at("in", 0));
    assert_eq!(board.weight(&at("out", 0).pe), 0);
}

#[test]
fn a_settling_board_does_no_more_at_a_time_than_it_is_asked_to() {
    let long = Value::Rstring("x".repeat(65_536).into());
    let mut board = Board::default();
    for id in 0..100 {
        board.put_export(exported(id, &[("a", long.clone())]));
    }
    let subscription = ["hash(a) == 1"; 1_000].join(" || ");
    board.put_import(imported(0, &subscription, None));
    let most = 1 << 20;
    let (mut slices, mut all) = (0, 0);
    while !board.is_settled() {
        let Changes { steps, .. } = board.settle(most);
        // One evaluation more than was asked for, and that is bounded as well.
        assert!(steps < most + 700_000, "{steps}");
        (slices, all) = (slices + 1, all + steps);
    }
    // It would take 6.5 billion without a bound of one evaluation.
    assert!(slices > 30 && all < 70_000_000, "{slices} slices, {all} steps");
    let too_costly = board.too_costly(&at("in", 0)).unwrap();
    assert_eq!((too_costly.first, too_costly.others), (at("out", 0), 99));
    // It does not go on with what costs too much, and says so no longer.
    let changes = board.put_import(imported(0, "hash(a) == 1", None));
    let changes = settled(changes, &mut board);
    assert_eq!((changes.costs.len(), board.too_costly(&at("in", 0))), (101, None));
}

#[test]
fn imports_that_ask_for_the_same_share_a_tree() {
    let mut board = Board::default();
    for id in 0..3 {
        board.put_import(imported(id, if id < 2 { "n == 1" } else { "n == 2" }, None));
    }
    let tree = |board: &Board, id| {
        let subscription = board.imports.at(&at("in", id)).and_then(|placed| placed.fact.subscription.clone());
        subscription.map(|subscription| subscription.expression).unwrap()
    };
    assert!(Arc::ptr_eq(&tree(&board, 0), &tree(&board, 1)));
    assert_eq!(tree(&board, 2).to_string(), "n == 2");
    // One that is put there again has it as well.
    board.put_import(imported(2, "n == 1", None));
    board.put_import(imported(0, "n == 1", Some("f")));
    assert!(Arc::ptr_eq(&tree(&board, 0), &tree(&board, 1)) && Arc::ptr_eq(&tree(&board, 2), &tree(&board, 1)));
}

#[test]
fn ports_that_ask_for_the_same_share_it() {
    let named = |stream: &str| NamedStream { application: None, scope: "s".into(), stream: stream.into() };
    let by_name = |id, streams: &[&str]| Import {
        named: streams.iter().map(|stream| named(stream)).collect(),
        subscription: None,
        ..imported(id, "1 == 1", None)
    };
    let mut board = Board::default();
    for (id, n) in [(0, 1), (1, 1), (2, 2)] {
        board.put_export(exported(id, &[("n", Value::Int64(n.into()))]));
    }
    for (id, stream) in [(0, "a"), (1, "a"), (2, "b")] {
        board.put_import(by_name(id, &[stream, "c"]));
    }
    let properties = |id| board.exports.at(&at("out", id)).and_then(|placed| placed.fact.properties.clone()).unwrap();
    assert!(Arc::ptr_eq(&properties(0), &properties(1)) && !Arc::ptr_eq(&properties(0), &properties(2)));
    let streams = |id| board.imports.at(&at("in", id)).map(|placed| Arc::clone(&placed.fact.named)).unwrap();
    assert!(Arc::ptr_eq(&streams(0), &streams(1)) && !Arc::ptr_eq(&streams(0), &streams(2)));
}

#[test]
fn what_has_no_room_is_not_matched_and_the_rest_is() {
    let number = || [("n", Value::Int64(1.into()))];
    let both = |id| Export { name: Some("out".into()), ..exported(id, &number()) };
    let named = || [NamedStream { application: None, scope: "s".into(), stream: "out".into() }].into();
    let (by_name, by_properties) =
        (Import { named: named(), subscription: None, ..imported(0, "n == 1", None) }, imported(1, "n == 1", None));
    // room of exports, of imports -> exports that the import gets by name, and by properties
    for (offered, asked, expected) in [(ROOM, ROOM, (1, 1)), (0, ROOM, (1, 0)), (ROOM, 0, (0, 0))] {
        let mut board = Board { asked: Asked::within(asked), offered: Asked::within(offered), ..Board::default() };
        board.put_export(both(0));
        board.put_import(by_name.clone());
        board.put_import(by_properties.clone());
        board.settle(usize::MAX);
        let exports = |id| board.exporters(&at("in", id), 0).1;
        assert_eq!((exports(0), exports(1)), expected, "{offered} {asked}");
        let without = [board.export_without_room(&at("out", 0)), board.without_room(&at("in", 0))];
        let parts = without.map(|without| without.map(|without| without.part));
        let of = |room, part| (room == 0).then_some(part);
        assert_eq!(parts, [of(offered, Part::Properties), of(asked, Part::Named)]);
    }
    let mut board = Board { offered: Asked::within(0), ..Board::default() };
    board.put_export(both(0));
    let words = board.export_without_room(&at("out", 0)).unwrap().to_string();
    assert!(words.starts_with("the list of properties of out-0-0 takes "), "{words}");
    assert!(words.contains("all lists of properties of exports of the namespace have 33554432 together"), "{words}");
}

#[test]
fn who_has_no_room_or_asks_for_none_any_more_is_named_itself() {
    let export = || exported(0, &[("n", Value::Int64(1.into()))]);
    let import = || imported(0, "n == 1", None);
    let mut board = Board { asked: Asked::within(0), offered: Asked::within(0), ..Board::default() };
    // whether it asks for something -> whether that is another thing than before
    for (asks, is_other) in [(false, false), (true, true), (true, false), (false, true), (true, true)] {
        let changes = [
            board.put_export(if asks { export() } else { export().for_nobody() }),
            board.put_import(if asks { import() } else { import().of_nothing() }),
        ];
        let named: [BTreeSet<Pe>; 2] = ["out", "in"].map(|job| is_other.then(|| at(job, 0).pe).into_iter().collect());
        assert_eq!(changes.map(|changes| changes.costs), named, "{asks} {is_other}");
    }
}

#[test]
fn what_panics_does_not_match_and_holds_up_nobody() {
    let mut board = Board::default();
    for id in 0..3 {
        board.put_export(exported(id, &[("n", Value::Int64(1.into()))]));
    }
    board.put_import(imported(0, "n == 1", None));
    let panics = |export: &Export, import: &Import| {
        assert_ne!(export.port, at("out", 1), "on purpose");
        tried(export, import)
    };
    let tried: Vec<Tried> = board.trials(9).into_iter().map(|trial| trial.run_by(panics)).collect();
    assert_eq!((tried.len(), board.is_settled()), (3, false));
    let changes = board.learn(tried);
    assert_eq!((changes.panicked, board.is_settled()), (Some((at("out", 1), at("in", 0))), true));
    assert_eq!(board.exporters(&at("in", 0), 9).0, [at("out", 0), at("out", 2)]);
}

#[test]
fn what_was_tried_before_it_became_another_one_counts_no_more() {
    let export = |n: i64| exported(0, &[("n", Value::Int64(n.into()))]);
    let numbered = |n: i64| Export { job_id: 7, ..export(n) };
    // what comes between -> whether the import gets the export before all is tried, whether all is
    let between: [(fn(&mut Board, Export), Export, bool, bool); 4] = [
        (|_, _| (), export(1), true, true),
        (|board, export| _ = board.put_export(export), numbered(1), true, true),
        (|board, export| _ = board.put_export(export), export(2), false, false),
        (|board, export| _ = board.remove_export(&export.port), export(1), false, true),
    ];
    for (change, other, is_matched, is_settled) in between {
        let said = format!("{other:?}");
        let mut board = Board::default();
        board.put_export(export(1));
        board.put_import(imported(0, "n < 2", None));
        let tried: Vec<Tried> = board.trials(1).into_iter().map(Trial::run).collect();
        change(&mut board, other);
        board.learn(tried);
        assert_eq!((board.has_exporters(&at("in", 0)), board.is_settled()), (is_matched, is_settled), "{said}");
    }
}

#[test]
fn what_costs_too_much_for_one_export_goes_with_it_and_leaves_the_others() {
    let long = Value::Rstring("x".repeat(65_536).into());
    let mut board = Board::default();
    board.put_export(exported(0, &[("a", long)]));
    board.put_export(exported(1, &[("a", Value::Rstring("x".into()))]));
    let subscription = format!("{} || a == \"x\"", ["hash(a) == 1"; 10].join(" || "));
    board.put_import(imported(0, &subscription, None));
    board.settle(usize::MAX);
    assert_eq!(board.exporters(&at("in", 0), 9).0, [at("out", 1)]);
    let too_costly = board.too_costly(&at("in", 0)).unwrap().to_string();
    let expected =
        "costs too much to evaluate for the properties of out-0-0 and 0 more exports, and does not match them";
    assert_eq!(too_costly, expected);
    assert_eq!(board.remove_export(&at("out", 0)).costs.len(), 2);
    assert_eq!(board.too_costly(&at("in", 0)), None);
}

#[test]
fn a_filter_is_forbidden_by_what_would_be_sent_without_it() {
    let mut board = Board::default();
    for (id, n, allows_filter) in [(0, 1, true), (1, 1, false), (2, 2, true), (3, 2, false), (4, 2, false)] {
        board.put_export(Export { allows_filter, ..exported(id, &[("n", Value::Int64(n.into()))]) });
    }
    board.put_import(imported(0, "n == 1", None));
    board.put_import(imported(1, "n == 2", Some("f")));
    for settled in [false, true] {
        board.settle(if settled { usize::MAX } else { 0 });
        // port, what it is to ask for -> the export that forbids a filter
        let table = [
            (0, "n == 1", Some(1)),
            (0, "n == 2", Some(3)),
            (0, "n == 3", None),
            (1, "n == 1", Some(1)),
            // What sends nothing only because of the filter before does not allow another one.
            (1, "n == 2", Some(3)),
            // A port of which nothing is on the board.
            (7, "n > 0", Some(1)),
        ];
        for (id, subscription, expected) in table {
            let asked = imported(id, subscription, Some("g"));
            let expected = expected.map(|export| at("out", export));
            let forbids = board.forbids_filters(&asked, 1 << 20);
            assert_eq!(forbids, Ok(expected.as_ref()), "{id} {subscription} {settled}");
        }
    }
}

#[test]
fn who_forbids_filters_is_found_out_within_a_bound_or_from_what_is_known() {
    let long = Value::Rstring("x".repeat(65_536).into());
    let mut board = Board::default();
    for id in 0..100 {
        board.put_export(Export { allows_filter: false, ..exported(id, &[("a", long.clone())]) });
    }
    let costly = format!("{} || a == \"y\"", ["hash(a) == 1"; 3].join(" || "));
    let filtered = imported(0, &costly, Some("f"));
    assert_eq!(board.forbids_filters(&filtered, 1 << 20), Err(TooManySteps));
    // Nothing is tried again that is known.
    board.put_import(imported(0, &costly, None));
    assert_eq!(board.forbids_filters(&filtered, 1 << 20), Err(TooManySteps), "not all is tried yet");
    board.settle(usize::MAX);
    assert_eq!(board.forbids_filters(&filtered, 0), Ok(None));
}

/// One PE that exports so often, and one that imports so often what all of them send.
fn product(exports: u32, imports: u32) -> Board {
    let mut board = Board::default();
    for port in 0..exports {
        let export = exported(0, &[]);
        board.put_export(Export { port: Port { id: port, ..export.port }, ..export });
    }
    for port in 0..imports {
        let import = imported(0, "1 == 1", None);
        board.put_import(Import { port: Port { id: port, ..import.port }, ..import });
    }
    board.settle(usize::MAX);
    board
}

#[test]
fn a_pe_is_told_as_many_routes_as_it_can_have() {
    // exports of a PE, imports of another one -> the message; nothing if there are too many
    let table = [(10, 10, "{\"exports\":"), (20, 50, "deadbeef"), (128, 256, "deadbeef"), (128, 257, "")];
    for (exports, imports, expected) in table {
        let board = product(exports, imports);
        for pe in [at("out", 0).pe, at("in", 0).pe] {
            let (message, routes) = (board.message(&pe), board.routes(&pe));
            assert_eq!(routes.is_ok(), !expected.is_empty(), "{exports} {imports}");
            assert_eq!(board.can_be_told(&pe).is_ok(), !expected.is_empty(), "{exports} {imports}");
            match (message, routes) {
                (Ok(message), Ok(routes)) => {
                    assert_eq!(message, routes.message());
                    let begins_so = pe.job.as_ref() == "in" || message.starts_with(expected);
                    assert!(begins_so, "{exports} {imports}: {message}");
                }
                (message, _) => assert_eq!(message, Err(TooManyRoutes { pe }), "{exports} {imports}"),
            }
        }
    }
    let words = product(128, 257).routes(&at("out", 0).pe).unwrap_err().to_string();
    assert_eq!(words, "PE out-0 has more than 32768 connections that the broker makes, and cannot be told them");
}

#[test]
fn routes_are_made_of_what_was_taken_off_the_board_whatever_becomes_of_that() {
    let mut board = product(2, 3);
    let pes = [at("out", 0).pe, at("in", 0).pe];
    let before = pes.each_ref().map(|pe| (board.matched(pe).unwrap(), board.routes(pe).unwrap()));
    assert!(before.iter().all(|(_, routes)| *routes != Routes::default()));
    board.remove_export(&at("out", 0));
    for (pe, (matched, routes)) in pes.iter().zip(before) {
        assert_eq!(matched.routes(), routes);
        assert_ne!(board.routes(pe).unwrap(), routes);
    }
}

#[test]
fn few_routes_are_those_that_a_message_may_have() {
    // exports of a PE, imports of another one -> whether that are few routes; nothing if there are too many
    let table =
        [(0, 0, Some(true)), (7, 73, Some(true)), (8, 64, Some(false)), (128, 256, Some(false)), (128, 257, None)];
    for (exports, imports, expected) in table {
        let board = product(exports, imports);
        for pe in [at("out", 0).pe, at("in", 0).pe] {
            assert_eq!(board.has_few_routes(&pe).ok(), expected, "{exports} {imports}");
            assert_eq!(board.receivers(&pe).is_ok(), expected.is_some(), "{exports} {imports}");
        }
    }
}

#[test]
fn a_port_that_a_pe_matches_is_found_from_the_port() {
    let mut board = product(2, 3);
    board.put_import(Import { job_id: 7, ..imported(1, "1 == 1", None) });
    board.put_import(imported(2, "1 == 2", None));
    board.settle(usize::MAX);
    let pes = |job: &str| [0, 1, 2].map(|id| at(job, id).pe);
    // input port -> the job of it, if the only exporting PE sends to it
    for (to, expected) in [(at("in", 0), Some(2)), (at("in", 1), Some(7)), (at("in", 2), None), (at("in", 3), None)] {
        let found = pes("out").map(|pe| board.job_that_receives_from(&pe, &to));
        assert_eq!(found, [expected, None, None], "{to}");
    }
    let from_out = pes("in").map(|pe| board.job_that_sends_to(&pe, &at("out", 0)));
    assert_eq!(from_out, [Some(1), Some(1), None]);
    assert_eq!(board.job_that_sends_to(&at("in", 0).pe, &at("in", 0)), None, "no output port");
}

#[test]
fn an_export_with_many_values_is_kept_under_few_keys_and_found_nevertheless() {
    let values: Vec<Arc<str>> = (0..5_000).map(|n| format!("text-{n}").into()).collect();
    let list = Value::List(spl_expression::List::Rstring(values.into()));
    let mut board = Board::default();
    let export = exported(0, &[("l", list)]);
    assert!(export.keys().len() < 10);
    board.put_export(export);
    // subscription -> whether it matches
    let table = [("\"text-4999\" in l", true), ("\"text\" in l", false), ("1 == 1", true), ("m == 1", false)];
    for (subscription, expected) in table {
        board.put_import(imported(0, subscription, None));
        board.settle(usize::MAX);
        assert_eq!(board.has_exporters(&at("in", 0)), expected, "{subscription}");
    }
}

/// A board on which the second of these subscriptions has room, which is the shorter one, and not both.
fn with_room_for_one(long: &str, short: &str) -> Board {
    let bytes = |text: &str| {
        let mut board = Board { asked: Asked::within(0), ..Board::default() };
        board.put_import(imported(0, text, None));
        board.without_room(&at("in", 0)).unwrap().bytes
    };
    Board { asked: Asked::within(bytes(long) + bytes(short) - 1), ..Board::default() }
}

#[test]
fn what_has_no_room_any_more_goes_from_imports_one_at_a_time() {
    const MANY: u64 = 100;
    let (long, short) = (format!("n == 1{}", " || n == 2".repeat(9)), format!("n == 1{}", " || n == 2".repeat(8)));
    let mut board = with_room_for_one(&long, &short);
    let put = |board: &mut Board, id: u64| board.put_import(imported(id, if id < MANY { &long } else { &short }, None));
    let exports = |board: &Board, id| board.exporters(&at("in", id), 0).1;
    for id in 0..MANY {
        board.put_export(exported(id, &[("n", Value::Int64(1.into()))]));
    }
    for id in 0..MANY {
        assert_eq!(put(&mut board, id).again, BTreeSet::new());
    }
    board.settle(usize::MAX);
    // What is put -> whose subscription has room then
    for is_put in [true, false, true] {
        let changes = if is_put { put(&mut board, MANY) } else { board.remove_import(&at("in", MANY)) };
        // Those of which something is removed at once are its own.
        assert!(changes.routes.len() <= 1 + MANY as usize, "{}", changes.routes.len());
        assert!(changes.routes.iter().all(|pe| *pe.job == *"out" || pe.id == MANY), "{:?}", changes.routes);
        assert_eq!((changes.again.len(), changes.costs.len()), (100, 100), "{is_put}");
        let (mut again, mut puts) = (changes.again, 0);
        while let Some(port) = again.pop_first() {
            let changes = put(&mut board, port.pe.id);
            assert!(changes.routes.len() <= 1 + MANY as usize, "{}", changes.routes.len());
            assert!(board.asked.is_within(), "{:?}", board.asked);
            again.extend(changes.again);
            puts += 1;
        }
        board.settle(usize::MAX);
        assert_eq!(puts, MANY + u64::from(is_put));
        let expected =
            [(MANY - 1, !is_put), (0, !is_put), (MANY, is_put)].map(|(id, has)| (id, if has { 100 } else { 0 }));
        for (id, expected) in expected {
            assert_eq!(exports(&board, id), expected, "{id} {is_put}");
        }
    }
}

#[test]
fn what_ends_many_matches_says_what_that_has_taken() {
    let mut board = one_of_a_hundred();
    // import that is put, whether as many exports see something else as are matched
    let table = [(imported(0, "n > 0", None), 0), (imported(0, "n < 0", None), 0), (imported(0, "m > 0", None), 100)];
    for (import, expected) in table {
        let said = format!("{import:?}");
        let changes = board.put_import(import);
        assert_eq!(changes.noted, expected * PAIR_STEPS, "{said}");
        board.put_import(imported(0, "n > 0", None));
        board.settle(usize::MAX);
    }
    assert_eq!(board.put_import(Import { job_id: 3, ..imported(0, "n > 0", None) }).noted, 100 * PAIR_STEPS);
    assert_eq!(board.remove_import(&at("in", 0)).noted, 100 * PAIR_STEPS);
}

#[test]
fn an_import_of_many_streams_is_kept_under_few_keys_and_found_nevertheless() {
    let named = |count: u64| {
        let named = |n| NamedStream { application: None, scope: "s".into(), stream: format!("stream-{n}").into() };
        Import { named: (0..count).map(named).collect(), ..imported(0, "1 == 2", None) }
    };
    assert!(named(1_000).keys().len() < 10);
    // streams that are named, the name of the export -> whether it matches
    let table = [(1_000, "stream-999", true), (1_000, "stream-1000", false), (9, "stream-8", true)];
    for (count, name, expected) in table {
        for is_import_first in [true, false] {
            let mut board = Board::default();
            let export = Export { name: Some(name.into()), properties: None, ..exported(0, &[]) };
            if is_import_first {
                board.put_import(named(count));
            }
            board.put_export(export);
            if !is_import_first {
                board.put_import(named(count));
            }
            board.settle(usize::MAX);
            assert_eq!(board.has_exporters(&at("in", 0)), expected, "{count} {name}");
        }
    }
}
