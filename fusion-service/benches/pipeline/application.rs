//! What is measured: applications of the corpus, and one that it does not have.

use std::rc::Rc;
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_compiler::plan::{Compiled, FusionOption, Request, Source, submit};
use streams_test_support::application::Sketch;
use streams_test_support::corpus;

/// The largest text that is held in memory to be copied and hashed.
pub(crate) const MOST_TEXT: u64 = 512 << 20;

/// An application to be measured.
pub(crate) struct Application {
    /// Shape and number of physical operators.
    pub(crate) name: &'static str,
    adl: Rc<Vec<u8>>,
}

/// A fusion mode.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    Legacy,
    Manual10,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Manual10 => "manual-10",
        }
    }

    fn option(self) -> FusionOption {
        match self {
            Self::Legacy => FusionOption::Legacy,
            Self::Manual10 => FusionOption::Manual(10),
        }
    }
}

impl Application {
    pub(crate) fn parse(&self) -> Source {
        Source::parse(&self.adl, &Budget::default()).expect("the application is well-formed")
    }

    /// From the ADL text to a compiled job.
    pub(crate) fn submit(&self, mode: Mode) -> Compiled {
        let request = Request { job_name: "bench".to_owned(), job_id: 1, fusion: mode.option(), ..Request::default() };
        submit(&self.parse(), &Arc::new(request), &Budget::default()).expect("the application compiles")
    }
}

/// The region in the middle, with a width one larger than it has.
pub(crate) fn one_more_channel(job: &Compiled) -> (String, i128) {
    let regions = &job.plan().regions;
    let region = &regions[regions.len() / 2].region;
    (region.name.clone(), i128::from(region.width) + 1)
}

/// All applications and modes that this run measures.
pub(crate) fn all() -> impl Iterator<Item = (Application, Mode)> {
    let chosen = std::env::var("STREAMS_BENCH").unwrap_or_default();
    let folder = corpus::benchmarks();
    if folder.is_none() {
        eprintln!("no corpus: its applications are not measured");
    }
    let named = |(name, large): &(&'static str, bool)| match chosen.as_str() {
        "" => !large,
        "large" => true,
        one => *name == one,
    };
    let written = move |(name, _): (&'static str, bool)| {
        let adl = match name {
            "regions-1010" => many_regions(10, 33).into_bytes(),
            "regions-10100" => many_regions(100, 33).into_bytes(),
            _ => std::fs::read(folder.as_deref()?.join(format!("{name}.adl"))).ok()?,
        };
        Some(Rc::new(adl))
    };
    let applications = APPLICATIONS.into_iter().filter(named).collect::<Vec<_>>();
    applications.into_iter().filter_map(move |one| Some((one.0, written(one)?))).flat_map(|(name, adl)| {
        [Mode::Legacy, Mode::Manual10].map(|mode| (Application { name, adl: Rc::clone(&adl) }, mode))
    })
}

/// Names, and whether it is one of the large ones. The number is that of physical operators.
const APPLICATIONS: [(&str, bool); 11] = [
    ("pipeline-30", false),
    ("pipeline-100", false),
    ("pipeline-300", false),
    ("channels-300", false),
    ("channels-1000", false),
    ("regions-1010", false),
    ("pipeline-1000", true),
    ("pipeline-3000", true),
    ("channels-3000", true),
    ("channels-10000", true),
    ("regions-10100", true),
];

/// So many times: source -> parallel region of `width` channels of three operators -> sink.
///
/// The `channels` applications of the corpus have one region, and every document in it says how many channels there
/// are: one more changes all of them. Here one more channel leaves most documents as they are.
fn many_regions(regions: usize, width: usize) -> String {
    let application = (0..regions).fold(Sketch::new(), |sketch, at| {
        let [source, region, sink] = ["Source", "Region", "Sink"].map(|name| format!("{name}{at}"));
        let [first, second, third] = ["A", "B", "C"].map(|name| format!("{region}.{name}"));
        let inside = sketch.composite(&region, 1, 1).op(&first, 1, 1).op(&second, 1, 1).op(&third, 1, 1);
        // Its stream leaves the composite and is named after it.
        let operators = inside.stream(0, &region).op(&source, 0, 1).op(&sink, 1, 0);
        operators.chain(&[&source, &region, &first, &second, &third, &region, &sink]).parallel(&region, width)
    });
    application.adl()
}
