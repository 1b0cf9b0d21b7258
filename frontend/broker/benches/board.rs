//! What a change costs on a board of 10,000 exports and 10,000 imports, and what is sent because of it.
//!
//! Each PE exports one stream with three properties and imports what has the kind and the price that it wants: one
//! export of a hundred matches an import. Beside that, a board on which the names are what is asked for, and one on
//! which nothing tells exports apart, so that all must be tried.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use spl_expression::{Expression, Limits, Properties, Value};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;
use streams_broker::{Application, Board, Export, Import, NamedStream, Pe, Port, Subscription};

/// Exports, and imports.
const PORTS: u64 = 10_000;
/// Kinds of streams.
const KINDS: u64 = 100;

#[derive(Clone, Copy)]
enum Asked {
    Kind,
    Name,
    Price,
}

fn port(job: &str, id: u64) -> Port {
    Port { pe: Pe { job: job.into(), id }, id: 0 }
}

fn export(id: u64, kind: u64) -> Export {
    let text = |text: String| Value::Rstring(text.into());
    let properties: Properties = [
        ("kind", text(format!("kind-{kind}"))),
        ("price", Value::Int64(i64::try_from(id).unwrap_or_default().into())),
        ("of", text(format!("exporter-{id}"))),
    ]
    .into_iter()
    .collect();
    Export {
        port: port("exporter", id),
        job_id: 1,
        application: Application { name: "demo::Exporter".into(), scope: "Default".into() },
        name: Some(format!("stream-{id}").into()),
        properties: Some(properties.into()),
        allows_filter: true,
    }
}

fn import(id: u64, asked: Asked) -> Import {
    let scope: Arc<str> = "Default".into();
    let subscription = match asked {
        Asked::Kind => Some(format!("kind == \"kind-{}\" && price >= 0", id % KINDS)),
        Asked::Price => Some(format!("price > {}", PORTS)),
        Asked::Name => None,
    };
    let subscription = subscription.and_then(|text| Expression::parse(&text, &Limits::default()).ok());
    let named = NamedStream { application: None, scope: scope.clone(), stream: format!("stream-{id}").into() };
    Import {
        port: port("importer", id),
        job_id: 2,
        port_index: 0,
        named: matches!(asked, Asked::Name).then_some(named).into_iter().collect(),
        subscription: subscription.map(|expression| Subscription { scope, expression: expression.into() }),
        filter: None,
    }
}

fn filled(asked: Asked) -> Board {
    let mut board = Board::default();
    for id in 0..PORTS {
        board.put_export(export(id, id % KINDS));
        board.put_import(import(id, asked));
        board.settle(usize::MAX);
    }
    board
}

/// The PEs that are told when an export becomes another one.
fn put(board: &mut Board) -> BTreeSet<Pe> {
    let mut touched = board.put_export(export(0, 1)).routes;
    touched.extend(board.settle(usize::MAX).routes);
    touched
}

fn board(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("board of 10,000 exports and 10,000 imports");
    group.sample_size(20);
    for (name, asked) in [("kind", Asked::Kind), ("name", Asked::Name), ("price", Asked::Price)] {
        let mut board = filled(asked);
        let touched = put(&mut board);
        let messages: Vec<String> = touched.iter().filter_map(|pe| board.message(pe).ok()).collect();
        let bytes: usize = messages.iter().map(String::len).sum();
        println!("{name}: {} PEs are told, {bytes} bytes", messages.len());
        let mut kind = 1;
        group.bench_function(format!("one property changes, {name} is asked for"), |bencher| {
            bencher.iter(|| {
                kind = (kind + 1) % KINDS;
                board.put_export(export(0, kind));
                black_box(board.settle(usize::MAX))
            });
        });
        group.bench_function(format!("one subscription changes, {name} is asked for"), |bencher| {
            bencher.iter_batched(
                || import(0, asked),
                |import| {
                    board.put_import(import);
                    black_box(board.settle(usize::MAX))
                },
                BatchSize::SmallInput,
            );
        });
    }
    let mut board = filled(Asked::Kind);
    let touched = put(&mut board);
    group.bench_function("the messages of one change, kind is asked for", |bencher| {
        bencher.iter(|| {
            touched.iter().filter_map(|pe| board.message(pe).ok()).map(|message| message.len()).sum::<usize>()
        });
    });
    group.bench_function("filled from nothing, kind is asked for", |bencher| bencher.iter(|| filled(Asked::Kind)));
    group.finish();
}

criterion_group!(benches, board);
criterion_main!(benches);
