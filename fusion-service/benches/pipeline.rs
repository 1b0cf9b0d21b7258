//! Submissions, resizes and rendering of the benchmark applications of the conformance corpus.
//!
//! `cargo bench -p fusion-service --bench pipeline` runs those that take milliseconds; with `STREAMS_BENCH=large` also the large ones. The corpus
//! is looked for in `STREAMS_CORPUS`, then beside the repository; without it there is nothing to measure.

#![allow(clippy::expect_used, reason = "a benchmark may panic")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fusion_service::budget::Budget;
use fusion_service::plan::{Compiled, FusionOption, InUse, Policy, Request, Source, resize, restore, submit};
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;

/// The folder of benchmark applications.
fn folder() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    let corpus = std::env::var_os("STREAMS_CORPUS").map_or(beside, PathBuf::from);
    Some(corpus.join("bench")).filter(|bench| bench.is_dir())
}

fn request(fusion: FusionOption) -> Arc<Request> {
    Arc::new(Request { job_name: "bench".to_owned(), job_id: 1, fusion, ..Request::default() })
}

fn compiled(document: &[u8], fusion: FusionOption) -> Compiled {
    let budget = Budget::default();
    let source = Source::parse(document, &budget).expect("the application is well-formed");
    submit(&source, &request(fusion), &budget).expect("the application compiles")
}

/// The region that is resized, and its width.
fn region(compiled: &Compiled) -> (String, i128) {
    let regions = &compiled.plan().regions;
    let region = &regions[regions.len() / 2].region;
    (region.name.clone(), i128::from(region.width))
}

/// Counts what is written.
struct Count(u64);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += black_box(bytes).len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn pipeline(criterion: &mut Criterion) {
    let Some(folder) = folder() else {
        eprintln!("no corpus: nothing to measure");
        return;
    };
    let large = std::env::var("STREAMS_BENCH").is_ok_and(|size| size == "large");
    let mut shapes = vec![("pipeline", 100), ("pipeline", 300), ("channels", 300), ("channels", 1000)];
    if large {
        shapes.extend([("pipeline", 1000), ("channels", 10_000), ("pipeline", 3000)]);
    }
    let budget = Budget::default();
    for (shape, operators) in shapes {
        let Ok(document) = std::fs::read(folder.join(format!("{shape}-{operators}.adl"))) else { continue };
        for (mode, fusion) in [("legacy", FusionOption::Legacy), ("manual-10", FusionOption::Manual(10))] {
            let job = compiled(&document, fusion.clone());
            let bytes: u64 = job.plan().elements.iter().map(|element| element.bytes).sum();
            let name = format!("{shape}-{operators}/{mode}");
            let mut group = criterion.benchmark_group("submit");
            group.sample_size(10).throughput(Throughput::Bytes(bytes));
            group.bench_function(BenchmarkId::from_parameter(&name), |bencher| {
                bencher.iter(|| compiled(black_box(&document), fusion.clone()));
            });
            group.finish();

            let (region, width) = region(&job);
            let mut group = criterion.benchmark_group("resize");
            group.sample_size(10);
            group.bench_function(BenchmarkId::from_parameter(&name), |bencher| {
                let widths = [(region.clone(), width + 1)];
                bencher.iter(|| resize(black_box(&job), &widths, Policy::Sticky, &InUse::default(), &budget));
            });
            group.finish();

            let mut group = criterion.benchmark_group("restore");
            group.sample_size(10);
            group.bench_function(BenchmarkId::from_parameter(&name), |bencher| {
                let source = Source::parse(&document, &budget).expect("the application is well-formed");
                bencher.iter(|| restore(&source, job.request(), black_box(&job.plan().layout), &budget));
            });
            group.finish();

            let mut group = criterion.benchmark_group("render");
            group.sample_size(10).throughput(Throughput::Bytes(bytes));
            group.bench_function(BenchmarkId::from_parameter(&name), |bencher| {
                bencher.iter(|| {
                    let mut count = Count(0);
                    for element in &job.plan().elements {
                        job.render(element.id, &mut count, &budget).expect("it renders");
                    }
                    assert_eq!(count.0, bytes);
                });
            });
            group.finish();
        }
    }
}

criterion_group!(benches, pipeline);
criterion_main!(benches);
