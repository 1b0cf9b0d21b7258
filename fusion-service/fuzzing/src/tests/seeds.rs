//! Where fuzzing begins: inputs made from files of this repository and, where it is found, of the conformance corpus.

use crate::{compilation, grpc_request, layout, sab};
use bytes::Bytes;
use pb::plan_request::What;
use prost::Message;
use std::path::{Path, PathBuf};
use streams_compiler::plan::{self, JobState, Policy};
use streams_proto::fusion::v1 as pb;
use streams_test_support::corpus;

/// Larger documents make fuzzing slow.
const LARGEST: usize = 12 << 10;

const EXPRESSIONS: &[&str] = &[
    "kind == \"bargains\" && a > 10 || !b",
    "n == getChannel() + 1 && l[0] in l",
    "(a + 3) * -2 % 7 << 1 >> 2 ^ ~5 | 6 & 3 == 1",
    "(int64)\"12\" + hash('it''s' + c) / 3",
    "(float64)a * 1.5e3 - .5 < d && (rstring)d != \"2.5\"",
    "l[getLocalChannel()] + getMaxChannels() - getLocalMaxChannels()",
    "A_byChannel(P1.H2, 1)_B_getAllChannels()",
    "170141183460469231731687303715884105727 * a",
    "((((((((a))))))))",
    "list, of, 1, 2.5, true, \"x\\\"y\"",
];

const FILTERS: &[&str] = &[
    "kind == \"bargains\" && a > 10 || !b",
    "((5.5 in l) && (d < -1.5)) || (hash == +7l)",
    "((a + -1e-05) * 2 - 1 << 3) != 0 && true",
    "~(a % 5 & 6 ^ 7 | 8) == 18446744073709551615",
    "!(false || l[0] == 007) && ~l[-1] >= -.5E+3",
    "\u{b}s <= \"\\\"\\x7f\\u00e9\\ud83d\\ude00\"\u{c}",
    "(true && b || false)",
    "a -1 == 0",
];

const VALUES: &[&str] = &[
    "text=x",
    "text=dynamic\nns::Main.width=3\nns::Main.list=a,b,,c\nSub.list=\"q\\\nseconds=1.5e1\nabsent=<&>'",
    "Main.text=automatic\nMain.seconds=nan\nstreams::pe.display=:1\nunknown=1",
    "text=a\nns::Main.text=b",
    "text=\nwidth=1",
    "text=\u{1f600}\u{0}\u{fffe}\nns::Main.width=18446744073709551616",
    "pe.display=x\ndisplay=y\nlist=1\ntext=dedicated",
];

/// A name that is the same at every run, and the input.
pub(crate) type Seed = (String, Vec<u8>);

/// The seeds of every target.
pub(crate) fn all() -> Vec<(&'static str, Vec<Seed>)> {
    let adl = documents();
    let sab = bundles(&adl);
    let texts = |texts: &[&str]| (0..).zip(texts).map(|(n, text)| named(n, text.as_bytes().to_vec())).collect();
    vec![
        ("adl", adl),
        ("sab", sab),
        ("expression", texts(EXPRESSIONS)),
        ("filter", texts(FILTERS)),
        ("submission_values", texts(VALUES)),
        ("layout", (0..).zip(layouts()).map(|(n, bytes)| named(n, bytes)).collect()),
        ("grpc_request", (0..).zip(messages()).map(|(n, bytes)| named(n, bytes)).collect()),
    ]
}

fn named(number: u32, input: Vec<u8>) -> Seed {
    (format!("seed-{number:03}"), input)
}

fn documents() -> Vec<Seed> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> = vec![package.join("src/values.adl")];
    let tests = package.join("../tests");
    let folders = [tests.join("applications"), tests.join("golden"), corpus::folder().join("samples")];
    let mut open = folders.to_vec();
    while let Some(folder) = open.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            match path.extension() {
                _ if path.is_dir() => open.push(path),
                Some(extension) if extension == "adl" => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    let mut documents: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).unwrap()).collect();
    documents.extend(corpus::cases().map(|cases| cases.documents()).unwrap_or_default());
    documents.retain(|document| document.len() <= LARGEST);
    (0..).zip(documents).map(|(number, document)| named(number, document)).collect()
}

fn bundles(documents: &[Seed]) -> Vec<Seed> {
    let adl = documents.iter().map(|(_, document)| document).min_by_key(|document| document.len());
    let adl = String::from_utf8_lossy(adl.map(Vec::as_slice).unwrap_or_default()).into_owned();
    let whole = sab::bundle(&adl);
    let (info, tar) = (sab::part(&whole, "bundleInfo.xml"), sab::part(&whole, "tar/bundle.tar"));
    let prefixed = |kind: u8, part: &[u8]| [&[kind], part].concat();
    let inputs = [
        prefixed(b'I', &info),
        prefixed(b'T', &tar),
        prefixed(b'A', adl.as_bytes()),
        sab::archive(&info, &tar),
        sab::bundle("<a/>"),
        whole,
    ];
    (0..).zip(inputs).map(|(number, input)| named(number, input)).collect()
}

/// The fixed job at several widths: messages, and one layout as it is.
fn layouts() -> Vec<Vec<u8>> {
    let job = &layout::JOB;
    let submitted = plan::submit(&job.source, &job.request, &compilation::budget()).unwrap();
    let mut plans = vec![submitted.layout().to_bytes()];
    let mut current = submitted;
    for (region, width, policy) in [
        ("Paid", 4, Policy::Sticky),
        ("Score", 1, Policy::Sticky),
        ("Paid", 1, Policy::Rebalance),
        ("Score", 3, Policy::Sticky),
    ] {
        let widths = [(region.to_owned(), width)];
        current = plan::resize(&current, &widths, policy, &JobState::default(), &compilation::budget()).unwrap();
        plans.push(current.layout().to_bytes());
    }
    let message = |layout: &Vec<u8>| zstd::decode_all(layout.strip_prefix(layout::MAGIC).unwrap()).unwrap();
    let mut inputs: Vec<Vec<u8>> = plans.iter().map(message).collect();
    inputs.extend(plans.into_iter().take(1));
    inputs
}

/// Messages of all methods, with and without repair.
fn messages() -> Vec<Vec<u8>> {
    let width = |region: &str, width| pb::RegionWidth { region: region.to_owned(), width };
    let fusion = |mode, kind: pb::FusionType| Some(pb::Fusion { mode: Some(mode), r#type: kind.into() });
    let automatic =
        pb::fusion::Automatic { cpu_limit: Some(2000), cpu_free: Some(9000), share: 500, ..Default::default() };
    let legacy = pb::Compilation {
        job_name: "job".to_owned(),
        job_id: 3,
        fusion: fusion(pb::fusion::Mode::Legacy(pb::fusion::Legacy {}), pb::FusionType::NoChannelInfluence),
        submission_values: [("currencies".to_owned(), "EUR,\"US\\D\"".to_owned())].into(),
        widths: vec![width("S*", 3), width("Paid", 1)],
        ..Default::default()
    };
    let manual = pb::Compilation {
        fusion: fusion(pb::fusion::Mode::Manual(4), pb::FusionType::ChannelIsolation),
        configuration: Some(pb::Configuration {
            threading_model: Some("dynamic".to_owned()),
            dynamic_thread_count: Some(3),
            dynamic_elastic: Some(false),
            tracing: Some("debug:x".to_owned()),
            data_directory: Some("/d".to_owned()),
        }),
        ..legacy.clone()
    };
    let automatic = pb::Compilation {
        fusion: fusion(pb::fusion::Mode::Automatic(automatic), pb::FusionType::ChannelExlocation),
        adl: Some(pb::Blob {
            sha256: Bytes::new(),
            content: Some(Bytes::from_static(include_bytes!("../values.adl"))),
        }),
        submission_values: [("text".to_owned(), "x".to_owned())].into(),
        ..legacy.clone()
    };
    let ports = pb::resize_request::PortsInUse { pe_id: 1, input_port_ids: vec![0, 5], output_port_ids: vec![1] };
    let mut inputs = Vec::new();
    for kind in [0, grpc_request::REPAIR] {
        let mut add = |method: u8, message: Vec<u8>| inputs.push([&[kind | method], message.as_slice()].concat());
        for compilation in [&legacy, &manual, &automatic] {
            let compilation = Some(compilation.clone());
            let submit = pb::SubmitRequest { compilation: compilation.clone() };
            add(0, submit.encode_to_vec());
            let mut questions = vec![What::Submit(submit)];
            // `Work` is the region of the third application, `Paid` and `Score` are those of the others.
            let resizes = [
                (vec![width("Paid", 5)], pb::resize_request::Policy::Sticky),
                (vec![width("Paid", 1), width("Score", 3)], pb::resize_request::Policy::Rebalance),
                (vec![width("Work", 3)], pb::resize_request::Policy::Unspecified),
            ]
            .map(|(widths, policy)| pb::ResizeRequest {
                compilation: compilation.clone(),
                widths,
                policy: policy.into(),
                pe_ids_in_use: vec![6, 9],
                ports_in_use: vec![ports.clone()],
                closed_pe_ids: vec![1, 9],
                ..Default::default()
            });
            for resize in resizes {
                add(grpc_request::RESIZE, resize.encode_to_vec());
                // With repair, a blob becomes the layout of a submission.
                let running = pb::ResizeRequest { layout: Some(pb::Blob::default()), ..resize.clone() };
                questions.extend([resize, running].map(What::Resize));
            }
            for what in questions {
                let message = pb::PlanRequest { what: Some(what), include_plan: false }.encode_to_vec();
                add(grpc_request::DRY_RUN, message.clone());
                add(grpc_request::DRY_RUN | grpc_request::EXPLAIN, message);
            }
            let render = pb::RenderRequest { compilation, pe_ids: vec![2, 0, 1], ..Default::default() };
            add(grpc_request::RENDER, render.encode_to_vec());
        }
    }
    inputs
}
