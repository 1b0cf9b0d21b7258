//! What jobs may write into exports and imports, as the broker reads it and PEs are told (rules import-1 to import-4).
//!
//! Input: changes of a board of three jobs: exports and imports that come, change and go, with texts of any form. What
//! it checks, after each change: the PEs that are named are those whose routes have become others; at the end: a board
//! that was given the same at once has the same routes; an export and an import are connected exactly if they match;
//! what a PE is told fits into what it reads of a message, and says its routes.

use arbitrary::{Result, Unstructured};
use serde_json::Value as Json;
use spl_expression::{Expression, Limits, Properties, PropertyType, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streams_broker::fact::matches;
use streams_broker::{Application, Board, Export, Import, NamedStream, Pe, Port, Routes, Subscription};

/// Most changes of an input.
const CHANGES: usize = 40;
/// Bytes that a PE reads of a message.
const MESSAGE: usize = 16_384;
/// Names, so that some are the same.
const NAMES: [&str; 4] = ["a", "b", "Default", ""];
/// Forms of properties, and texts of subscriptions that such properties may have.
const TYPES: [&str; 6] = ["rstring", "int64", "float64", "boolean", "list<rstring>", "list<int64>"];
const SUBSCRIPTIONS: [&str; 6] = ["a == 1", "a > b || b == \"x\"", "a in [1, 2]", "!b", "1 == 1", "a[0] == \"x\""];

/// All that was put on a board last, by port.
#[derive(Default)]
struct Put {
    exports: BTreeMap<Port, Export>,
    imports: BTreeMap<Port, Import>,
}

/// Runs one input; panics when something does not hold.
pub fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let (mut board, mut put) = (Board::default(), Put::default());
    for _ in 0..CHANGES {
        if input.is_empty() {
            break;
        }
        let before = all_routes(&board);
        // The input ends in the midst of a change.
        let Ok(named) = change(&mut input, &mut board, &mut put) else { break };
        let after = all_routes(&board);
        let others: BTreeSet<Pe> = after.iter().filter(|(pe, routes)| before[pe] != **routes).map(of).collect();
        assert_eq!(named, others, "who is told of a change");
    }
    let mut anew = Board::default();
    for export in put.exports.values() {
        anew.put_export(export.clone());
    }
    for import in put.imports.values() {
        anew.put_import(import.clone());
    }
    anew.settle(usize::MAX);
    let routes = all_routes(&board);
    assert_eq!(routes, all_routes(&anew), "the same, given at once");
    assert_eq!(board.size(), (put.exports.len(), put.imports.len()));
    for (output, export) in &put.exports {
        for (port, import) in &put.imports {
            let to = routes[&output.pe].exports.get(&output.to_string());
            let from = routes[&port.pe].imports.get(&port.to_string());
            let is_sent = to.is_some_and(|to| to.entries.contains_key(&port.to_string()));
            let is_awaited = from.is_some_and(|from| from.entries.contains_key(&output.to_string()));
            let expected = matches(export, import);
            assert_eq!((is_sent, is_awaited), (expected, expected), "{export:?} {import:?}");
        }
    }
    for routes in routes.values() {
        told(routes);
    }
}

fn of((pe, _): (&Pe, &Routes)) -> Pe {
    pe.clone()
}

/// The routes of all PEs that there may be.
fn all_routes(board: &Board) -> BTreeMap<Pe, Routes> {
    let pes = ["x", "x-1", "y"].into_iter().flat_map(|job| (0..3).map(move |id| Pe { job: job.into(), id }));
    pes.map(|pe| (pe.clone(), board.routes(&pe).expect("few routes"))).collect()
}

/// A message is the document, if a PE can read that whole, and the document is one.
fn told(routes: &Routes) {
    let (document, message) = (routes.document(), routes.message());
    assert!(message.len() < MESSAGE, "{} bytes", message.len());
    assert!(message == document || message == "deadbeef" && document.len() >= MESSAGE, "{document}");
    let read: Json = serde_json::from_str(&document).expect("a document can be read");
    let filters = |port: &Json| -> Vec<String> {
        let entries = port["entries"].as_object().expect("entries");
        entries.values().map(|entry| entry["filter"].as_str().expect("a filter").to_owned()).collect()
    };
    for (label, port) in &routes.exports {
        let told = &read["exports"][label];
        assert_eq!(told["portId"], port.port_id);
        let expected: Vec<String> = port.entries.values().map(|entry| entry.filter.clone()).collect();
        assert_eq!(filters(told), expected);
    }
    for (label, port) in &routes.imports {
        let entries = read["imports"][label]["entries"].as_object().expect("entries");
        assert_eq!(entries.len(), port.entries.len());
    }
}

/// Makes the next change; says whom the board names.
fn change(input: &mut Unstructured<'_>, board: &mut Board, put: &mut Put) -> Result<BTreeSet<Pe>> {
    let job = *input.choose(&["x", "x-1", "y"])?;
    let port = Port { pe: Pe { job: job.into(), id: input.int_in_range(0..=2)? }, id: input.int_in_range(0..=1)? };
    let mut named = match input.int_in_range(0..=5)? {
        0 => {
            put.exports.remove(&port);
            board.remove_export(&port)
        }
        1 => {
            put.imports.remove(&port);
            board.remove_import(&port)
        }
        2 | 3 => {
            let export = export(input, port.clone())?;
            put.exports.insert(port, export.clone());
            board.put_export(export)
        }
        _ => {
            let import = import(input, port.clone())?;
            put.imports.insert(port, import.clone());
            board.put_import(import)
        }
    };
    named.routes.extend(board.settle(usize::MAX).routes);
    Ok(named.routes)
}

fn text(input: &mut Unstructured<'_>) -> Result<Arc<str>> {
    if input.ratio(3_u8, 4_u8)? {
        return Ok(Arc::from(*input.choose(&NAMES)?));
    }
    Ok(Arc::from(input.arbitrary::<&str>()?))
}

fn maybe<'a, T>(
    input: &mut Unstructured<'a>,
    of: impl FnOnce(&mut Unstructured<'a>) -> Result<T>,
) -> Result<Option<T>> {
    if input.arbitrary()? { of(input).map(Some) } else { Ok(None) }
}

fn export(input: &mut Unstructured<'_>, port: Port) -> Result<Export> {
    Ok(Export {
        port,
        job_id: input.arbitrary()?,
        application: Application { name: text(input)?, scope: text(input)? },
        name: maybe(input, text)?,
        properties: maybe(input, properties)?.map(Arc::new),
        allows_filter: input.arbitrary()?,
    })
}

/// Properties as they are written; what is none is left out.
fn properties(input: &mut Unstructured<'_>) -> Result<Properties> {
    let mut properties = Properties::new();
    for _ in 0..input.int_in_range(0..=3)? {
        let (name, kind) = (text(input)?, *input.choose(&TYPES)?);
        let values = (0..input.int_in_range(0..=2)?).map(|_| input.arbitrary::<&str>().map(str::to_owned));
        let values = values.collect::<Result<Vec<_>>>()?;
        let declared: PropertyType = kind.parse().expect("a type");
        if let Ok(value) = Value::parse(declared, &values) {
            properties.insert(&*name, value);
        }
    }
    Ok(properties)
}

fn import(input: &mut Unstructured<'_>, port: Port) -> Result<Import> {
    let (mut named, job_id, port_index) = (Vec::new(), input.arbitrary()?, input.arbitrary()?);
    for _ in 0..input.int_in_range(0..=2)? {
        named.push(NamedStream { application: maybe(input, text)?, scope: text(input)?, stream: text(input)? });
    }
    let subscription = maybe(input, |input| {
        let scope = text(input)?;
        let words = if input.arbitrary()? { *input.choose(&SUBSCRIPTIONS)? } else { input.arbitrary::<&str>()? };
        let expression = Expression::parse(words, &Limits::default()).ok();
        Ok(expression.map(|expression| Subscription { scope, expression: expression.into() }))
    })?;
    let filter = maybe(input, |input| Ok(Arc::from(input.arbitrary::<&str>()?.repeat(input.int_in_range(1..=200)?))))?;
    Ok(Import { port, job_id, port_index, named: named.into(), subscription: subscription.flatten(), filter })
}
