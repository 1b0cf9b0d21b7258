//! The compiler against its goals: what a submission costs, what the text costs, what a resize costs.
//!
//! `cargo bench -p fusion-service --bench pipeline` measures what takes milliseconds; with `STREAMS_BENCH=large` also
//! the large applications, with the name of an application only that. A word behind `--` selects groups (`-- resize/`).
//! The applications are those of the conformance corpus, looked for in `STREAMS_CORPUS`, then beside the repository;
//! without them there is nothing to measure. Figures that were kept, and the goals, are in
//! `docs/measurements/compiler.md`.
//!
//! | group | one iteration | throughput is of |
//! |---|---|---|
//! | `submit` | ADL text to plan, ids of all documents included; no text is kept | AADL text |
//! | `submit-and-render` | the same and all texts: what the reference implementation calls a submission | AADL text |
//! | `render` | all texts from the plan | AADL text |
//! | `memcpy`, `sha256` | copying and hashing the same texts: what no compiler can do without | AADL text |
//! | `resize` | one more channel of one region, from the compiled job | - |
//! | `resize-together` | the same with the help of all cores | - |
//! | `layout` | the layout of that job, encoded: what goes out with its plan | - |
//! | `restore-and-resize` | the same from the bytes of a layout, with nothing at hand but the parsed application | - |
//! | `restore` | a compiled job from the bytes of its layout | - |

#![allow(clippy::expect_used, reason = "a benchmark may panic")]

mod application;

use application::{Application, Mode};
use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use sha2::{Digest, Sha256};
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use streams_compiler::budget::{Budget, Cores, SharedWork};
use streams_compiler::plan::{Compiled, JobState, Policy, resize, restore};

/// All cores are idle.
#[derive(Debug)]
struct AllCores;

impl Cores for AllCores {
    fn share(&self, work: &SharedWork<'_>) {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        thread::scope(|scope| {
            for _ in 1..cores {
                scope.spawn(|| work(&|| true));
            }
            work(&|| true);
        });
    }
}

/// Writes all documents and gives their size.
fn render(job: &Compiled) -> u64 {
    let mut count = Count(0);
    for element in &job.plan().elements {
        job.render(element.id, &mut count, &Budget::default()).expect("it renders");
    }
    count.0
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

/// All documents of a job, one after the other.
fn text(job: &Compiled) -> Vec<u8> {
    let mut text = Vec::new();
    for element in &job.plan().elements {
        job.render(element.id, &mut text, &Budget::default()).expect("it renders");
    }
    text
}

/// A group; what takes a second or more is measured a few times only.
fn group<'a>(criterion: &'a mut Criterion, name: &str, bytes: u64) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10);
    if bytes > 0 {
        group.throughput(Throughput::Bytes(bytes));
    }
    group
}

fn benches(criterion: &mut Criterion) {
    for (application, mode) in application::all() {
        let name = format!("{}/{}", application.name, mode.name());
        let job = application.submit(mode);
        let bytes = job.plan().elements.iter().map(|element| element.bytes).sum();
        texts(criterion, &application, mode, &name, &job, bytes);
        resizes(criterion, &application, &name, &job);
    }
}

/// Submissions, and the text by itself.
fn texts(criterion: &mut Criterion, application: &Application, mode: Mode, name: &str, job: &Compiled, bytes: u64) {
    group(criterion, "submit", bytes).bench_function(name, |bencher| {
        bencher.iter(|| application.submit(black_box(mode)));
    });
    group(criterion, "submit-and-render", bytes).bench_function(name, |bencher| {
        bencher.iter(|| {
            let job = application.submit(black_box(mode));
            assert_eq!(render(&job), bytes);
            job
        });
    });
    group(criterion, "render", bytes).bench_function(name, |bencher| {
        bencher.iter(|| assert_eq!(render(black_box(job)), bytes));
    });
    // Held only while it is asked for: it may be gigabytes.
    if bytes <= application::MOST_TEXT {
        let text = text(job);
        let mut copy = vec![0_u8; text.len()];
        group(criterion, "memcpy", bytes).bench_function(name, |bencher| {
            bencher.iter(|| black_box(&mut copy).copy_from_slice(black_box(&text)));
        });
        group(criterion, "sha256", bytes).bench_function(name, |bencher| {
            bencher.iter(|| Sha256::digest(black_box(&text)));
        });
    }
}

/// One more channel of the region in the middle.
fn resizes(criterion: &mut Criterion, application: &Application, name: &str, job: &Compiled) {
    let budget = Budget::default();
    let widths = [application::one_more_channel(job)];
    let again = |job: &Compiled| {
        resize(job, black_box(&widths), Policy::Sticky, &JobState::default(), &budget).expect("it is resized")
    };
    let source = application.parse();
    let layout = &job.layout().to_bytes();
    // Somebody waits for the answer, not for the memory to be given back.
    group(criterion, "resize", 0).bench_function(name, |bencher| {
        bencher.iter_batched(|| (), |()| again(black_box(job)), BatchSize::PerIteration);
    });
    let together = Budget { cores: Some(Arc::new(AllCores)), ..Budget::default() };
    group(criterion, "resize-together", 0).bench_function(name, |bencher| {
        let resized = |()| {
            resize(black_box(job), black_box(&widths), Policy::Sticky, &JobState::default(), &together)
                .expect("it is resized")
        };
        bencher.iter_batched(|| (), resized, BatchSize::PerIteration);
    });
    group(criterion, "layout", 0).bench_function(name, |bencher| {
        bencher.iter(|| black_box(job).layout().to_bytes());
    });
    let restored =
        || restore(&source, job.request(), black_box(layout), &budget).expect("the layout is that of the job");
    group(criterion, "restore-and-resize", 0).bench_function(name, |bencher| {
        let both = |()| {
            let job = restored();
            (again(&job), job)
        };
        bencher.iter_batched(|| (), both, BatchSize::PerIteration);
    });
    group(criterion, "restore", 0).bench_function(name, |bencher| {
        bencher.iter_batched(|| (), |()| restored(), BatchSize::PerIteration);
    });
}

criterion_group!(all, benches);
criterion_main!(all);
