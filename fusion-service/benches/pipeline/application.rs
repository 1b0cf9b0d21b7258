//! What is measured: applications of the corpus, and one that it does not have.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_compiler::plan::{Compiled, FusionOption, Request, Source, submit};

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
    let folder = folder();
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

/// The folder of benchmark applications.
fn folder() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    let corpus = std::env::var_os("STREAMS_CORPUS").map_or(beside, PathBuf::from);
    Some(corpus.join("bench")).filter(|bench| bench.is_dir())
}

/// So many times: source -> parallel region of `width` channels of three operators -> sink.
///
/// The `channels` applications of the corpus have one region, and every document in it says how many channels there
/// are: one more changes all of them. Here one more channel leaves most documents as they are.
fn many_regions(regions: usize, width: usize) -> String {
    let end = |index: usize, name: &str, kind: &str| {
        format!(r#"<connection operIndex="{index}" operName="{name}" portIndex="0" portKind="{kind}"/>"#)
    };
    let port = |name: &str, stream: &str, connection: &str| {
        format!(
            r#"<port encoding="LE" index="0" isMutable="true" name="{name}" {stream} transport="TCP" tupleTypeIndex="0"><connections>{connection}</connections></port>"#
        )
    };
    let primitive = |index: usize, name: &str, stream: &str, from: Option<String>, to: Option<String>| {
        let input = from.map_or(String::new(), |from| port("In0", "", &from));
        let output = to.map_or(String::new(), |to| port("Out0", &format!(r#"streamName="{stream}""#), &to));
        format!(
            r#"<primitiveOperInstance definitionIndex="0" index="{index}" name="{name}" optimized="true" relocatable="true" restartable="true" singleThreadedOnOutputs="true" sourceIndex="0" startLine="1" endLine="2"><inputPorts>{input}</inputPorts><outputPorts>{output}</outputPorts><envVars/><resources><poolLocation poolIndex="0"/></resources><runtimeConstants/><sharedObject class="{name}"><wrapper>none</wrapper><uri>bin/{name}.so</uri></sharedObject><tracing level="error"/></primitiveOperInstance>"#
        )
    };
    let boundary = |from: String, to: String| {
        format!(
            r#"<port index="0"><incomingConnections>{from}</incomingConnections><outgoingConnections>{to}</outgoingConnections></port>"#
        )
    };
    let main = regions * 5;
    let (mut composites, mut ends, mut parallel) = (String::new(), String::new(), String::new());
    for region in 0..regions {
        let (index, name) = (main + 1 + region, format!("Region{region}"));
        let (first, source, sink) = (region * 5, format!("Source{region}"), format!("Sink{region}"));
        let operators = [format!("{name}.A"), format!("{name}.B"), format!("{name}.C")];
        // Writing to a string cannot fail.
        let _ = write!(
            composites,
            r#"<compositeOperInstance definitionIndex="0" index="{index}" name="{name}" sourceIndex="0" startLine="1" endLine="9"><inputPorts>{}</inputPorts><outputPorts>{}</outputPorts>"#,
            boundary(end(first + 3, &source, "output"), end(first, &operators[0], "input")),
            boundary(end(first + 2, &operators[2], "output"), end(first + 4, &sink, "input")),
        );
        for (at, operator) in operators.iter().enumerate() {
            let from = match at {
                0 => end(index, &name, "input"),
                _ => end(first + at - 1, &operators[at - 1], "output"),
            };
            let to = match operators.get(at + 1) {
                Some(next) => end(first + at + 1, next, "input"),
                None => end(index, &name, "output"),
            };
            let stream = if at == 2 { &name } else { operator };
            composites.push_str(&primitive(first + at, operator, stream, Some(from), Some(to)));
        }
        composites.push_str("</compositeOperInstance>");
        ends.push_str(&primitive(first + 3, &source, &source, None, Some(end(index, &name, "input"))));
        ends.push_str(&primitive(first + 4, &sink, "", Some(end(index, &name, "output")), None));
        let _ = write!(
            parallel,
            r#"<parallelRegion index="{region}" name="{name}"><parallelOperator operIndex="{index}"><splitter iportIndex="0" kind="RoundRobin"/></parallelOperator><parallelWidth><constantWidth>{width}</constantWidth></parallelWidth></parallelRegion>"#
        );
    }
    format!(
        r#"<applicationSet xmlns="http://www.ibm.com/xmlns/prod/streams/application/v4200" name="many::Regions.appset" xmlns:tt="http://www.ibm.com/xmlns/prod/streams/spl/tupleType"><splApplication adlPath="a.adl" applicationDirectory="a" applicationScope="Default" avoidRuntimeYield="auto" buildId="" bundle="a.sab" name="many::Regions" outputDirectory="a" productVersion="4.3.0.0" version="1.0.0"><libraries/><hostpools><hostpool index="0" membershipMode="shared" name="$default"/></hostpools><tupleTypes><tupleType index="0"><attribute name="i" type="x"/><tuple><tt:attr name="i" type="uint64"/></tuple></tupleType></tupleTypes><primitiveOperDefinitions><primitiveOperDefinition index="0" kind="spl.relational::Functor" runtimeType="SPL_CPlusPlus" toolkitIndex="0"/></primitiveOperDefinitions><composites><sourceUris><uri index="0" path="file:///src/Main.spl"/></sourceUris><compositeOperDefinitions><compositeOperDefinition index="0" kind="many::Region" numberOfInputPorts="1" numberOfOutputPorts="1" sourceIndex="0" startLine="1" endLine="9" toolkitIndex="0"><description>d</description></compositeOperDefinition><compositeOperDefinition index="1" kind="many::Regions" numberOfInputPorts="0" numberOfOutputPorts="0" sourceIndex="0" startLine="1" endLine="9" toolkitIndex="0"><description>d</description></compositeOperDefinition></compositeOperDefinitions><compositeOperInstances><compositeOperInstance definitionIndex="1" index="{main}" name="many::Regions" sourceIndex="0" startLine="1" endLine="9">{composites}{ends}</compositeOperInstance></compositeOperInstances></composites><toolkits><toolkit index="0" name="t" uri="file:///t" version="1.0.0"/></toolkits><parallelRegions>{parallel}</parallelRegions></splApplication></applicationSet>"#
    )
}
