//! Checks messages against the contract (rule service-3).
//!
//! Callers are not trusted. What can be checked without the application is checked here, before anything is looked up
//! or computed. What only the compiler can know (a region that does not exist, a width that is too large) the compiler
//! checks, with its own stages and codes.
//!
//! Knows: the contract. Must not know: the compiler.
//!
//! Invariants: in a message that was checked, digests have 32 bytes; content is within its limit and apart from the
//! message; enumerations have known values; lists and texts are bounded; no name and no id occurs twice where it must
//! have one meaning.

use super::digest::Digest;
use super::errors::{Failure, Malformed};
use bytes::Bytes;
use prost::Message as _;
use std::collections::HashSet;
use std::hash::Hash;
use streams_compiler::error::excerpt;
use streams_proto::fusion::v1 as pb;

/// Bytes of the content of a blob.
const CONTENT: usize = 64 << 20;
/// Bytes of a text, as everywhere (rule service-13).
const TEXT: usize = 1 << 20;
/// Bytes of all submission-time values together.
const VALUES: usize = 16 << 20;
/// Characters of a job's name.
const JOB_NAME: usize = 253;
/// Entries of one list: as many as a job can have operators.
const ENTRIES: usize = 200_000;
/// What is wrong with a value that was there before.
const TWICE: &str = "occurs twice";

/// A blob of a message: a digest, and the content if the caller sent it (rule service-2). The two have not been
/// compared yet.
#[derive(Clone, Debug)]
pub(crate) struct BlobInput {
    pub(crate) digest: Digest,
    pub(crate) content: Option<Bytes>,
}

/// A compilation and its ADL.
#[derive(Debug)]
pub(crate) struct Compilation {
    pub(crate) adl: BlobInput,
    /// Without the content of the ADL.
    pub(crate) message: pb::Compilation,
}

/// What a resize asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resize {
    pub(crate) widths: Vec<pb::RegionWidth>,
    /// `POLICY_UNSPECIFIED` has been replaced by what it means.
    pub(crate) policy: pb::resize_request::Policy,
    pub(crate) pe_ids_in_use: Vec<u64>,
    pub(crate) ports_in_use: Vec<pb::resize_request::PortsInUse>,
    pub(crate) closed_pe_ids: Vec<u64>,
    /// Bytes of texts that the answer may have.
    pub(crate) max_text_bytes: u64,
}

impl Resize {
    /// Covers all of it. What is said in another order has another digest.
    pub(crate) fn digest(&self) -> Digest {
        let Self { widths, policy, pe_ids_in_use, ports_in_use, closed_pe_ids, max_text_bytes } = self.clone();
        let message = pb::ResizeRequest {
            compilation: None,
            layout: None,
            widths,
            policy: policy.into(),
            pe_ids_in_use,
            ports_in_use,
            closed_pe_ids,
            max_text_bytes,
        };
        Digest::of(&message.encode_to_vec())
    }
}

impl BlobInput {
    /// Compares content that was sent with its digest; `field` is where it was.
    pub(crate) fn verify(&self, field: &str) -> Result<(), Failure> {
        match &self.content {
            Some(content) if Digest::of(content) != self.digest => {
                Err(Failure::malformed(format!("{field}.sha256"), "is not the digest of the content"))
            }
            _ => Ok(()),
        }
    }
}

/// A request to submit.
pub(crate) fn submit(message: pb::SubmitRequest) -> Result<Compilation, Failure> {
    let mut problems = Malformed::default();
    let compilation = compilation(message.compilation, &mut problems);
    finish(compilation, problems)
}

/// A request to resize.
pub(crate) fn resize(mut message: pb::ResizeRequest) -> Result<(Compilation, BlobInput, Resize), Failure> {
    let mut problems = Malformed::default();
    let compilation = compilation(message.compilation.take(), &mut problems);
    let layout = blob(message.layout.take(), "layout", &mut problems);
    let resize = resize_of(message, &mut problems);
    finish(compilation.zip(layout).map(|(compilation, layout)| (compilation, layout, resize)), problems)
}

/// What a request asks for, apart from the job that it is about.
fn resize_of(message: pb::ResizeRequest, problems: &mut Malformed) -> Resize {
    widths(&message.widths, "widths", problems);
    for (position, width) in message.widths.iter().enumerate() {
        if width.region.contains('*') {
            problems.add(format!("widths[{position}].region"), "is a pattern; a resize names its regions exactly");
        }
    }
    let policy = match pb::resize_request::Policy::try_from(message.policy) {
        Ok(pb::resize_request::Policy::Unspecified) => pb::resize_request::Policy::Sticky,
        Ok(policy) => policy,
        Err(_) => {
            problems.add("policy", format!("has the unknown value {}", message.policy));
            pb::resize_request::Policy::Sticky
        }
    };
    entries(message.pe_ids_in_use.len(), "pe_ids_in_use", problems);
    once(message.pe_ids_in_use.iter(), "pe_ids_in_use", "", problems);
    let ports = message.ports_in_use.iter().map(|p| p.input_port_ids.len() + p.output_port_ids.len() + 1).sum();
    entries(ports, "ports_in_use", problems);
    once(message.ports_in_use.iter().map(|ports| ports.pe_id), "ports_in_use", "pe_id", problems);
    for (position, ports) in message.ports_in_use.iter().take(ENTRIES).enumerate() {
        for (ids, part) in [(&ports.input_port_ids, "input_port_ids"), (&ports.output_port_ids, "output_port_ids")] {
            if let Some(twice) = repeated(ids.iter()) {
                problems.add(format!("ports_in_use[{position}].{part}[{twice}]"), TWICE);
            }
        }
    }
    entries(message.closed_pe_ids.len(), "closed_pe_ids", problems);
    once(message.closed_pe_ids.iter(), "closed_pe_ids", "", problems);
    let pb::ResizeRequest { widths, pe_ids_in_use, ports_in_use, closed_pe_ids, max_text_bytes, .. } = message;
    Resize { widths, policy, pe_ids_in_use, ports_in_use, closed_pe_ids, max_text_bytes }
}

/// The call that a dry run tries.
#[derive(Debug)]
pub(crate) enum DryRun {
    /// A submission.
    Submit(Compilation),
    /// A resize of the job with this layout. Without a layout it is the job that a submission now would give.
    Resize(Compilation, Option<BlobInput>, Resize),
}

/// Checks a request to plan. Returns the dry run, and whether the answer is to have the whole plan.
pub(crate) fn plan(message: pb::PlanRequest) -> Result<(DryRun, bool), Failure> {
    use pb::plan_request::What;
    let dry_run = match message.what {
        Some(What::Submit(message)) => try_submit(message),
        Some(What::Resize(message)) => try_resize(message),
        None => Err(Failure::malformed("what", "is missing, or is one that this replica does not know")),
    };
    Ok((dry_run?, message.include_plan))
}

/// A request to explain.
pub(crate) fn explain(message: pb::ExplainRequest) -> Result<DryRun, Failure> {
    use pb::explain_request::What;
    match message.what {
        Some(What::Submit(message)) => try_submit(message),
        Some(What::Resize(message)) => try_resize(message),
        None => Err(Failure::malformed("what", "is missing, or is one that this replica does not know")),
    }
}

fn try_submit(mut message: pb::SubmitRequest) -> Result<DryRun, Failure> {
    let mut problems = Malformed::default();
    fill_digest(message.compilation.as_mut().and_then(|compilation| compilation.adl.as_mut()));
    let compilation = compilation(message.compilation, &mut problems);
    finish(compilation.map(DryRun::Submit), problems.under("submit"))
}

fn try_resize(mut message: pb::ResizeRequest) -> Result<DryRun, Failure> {
    let mut problems = Malformed::default();
    fill_digest(message.compilation.as_mut().and_then(|compilation| compilation.adl.as_mut()));
    fill_digest(message.layout.as_mut());
    let compilation = compilation(message.compilation.take(), &mut problems);
    let layout = match message.layout.take() {
        Some(layout) => blob(Some(layout), "layout", &mut problems).map(Some),
        None => Some(None),
    };
    let resize = resize_of(message, &mut problems);
    let dry_run = compilation.zip(layout).map(|(compilation, layout)| DryRun::Resize(compilation, layout, resize));
    finish(dry_run, problems.under("resize"))
}

/// Fills in the digest of content that was sent without one: a person who writes a request by hand need not compute it
/// (rule service-11).
fn fill_digest(blob: Option<&mut pb::Blob>) {
    let Some(pb::Blob { sha256, content: Some(content) }) = blob else { return };
    if sha256.is_empty() && content.len() <= CONTENT {
        *sha256 = Digest::of(content).to_bytes();
    }
}

/// A request to render a plan of the compiler `version`.
pub(crate) fn render(
    message: pb::RenderRequest,
    version: &'static str,
) -> Result<(Compilation, BlobInput, Vec<u64>), Failure> {
    let mut problems = Malformed::default();
    let compilation = compilation(message.compilation, &mut problems);
    let layout = blob(message.layout, "layout", &mut problems);
    entries(message.pe_ids.len(), "pe_ids", &mut problems);
    once(message.pe_ids.iter(), "pe_ids", "", &mut problems);
    let request = finish(compilation.zip(layout), problems)?;
    if message.compiler != version {
        return Err(Failure::OtherCompiler { theirs: message.compiler, ours: version });
    }
    Ok((request.0, request.1, message.pe_ids))
}

/// Returns the value, or the problems. A value is only absent if there are problems.
fn finish<T>(value: Option<T>, problems: Malformed) -> Result<T, Failure> {
    match value {
        Some(value) if problems.violations.is_empty() => Ok(value),
        _ => Err(problems.into()),
    }
}

fn compilation(message: Option<pb::Compilation>, problems: &mut Malformed) -> Option<Compilation> {
    let Some(mut message) = message else {
        problems.add("compilation", "is missing");
        return None;
    };
    let adl = blob(message.adl.take(), "compilation.adl", problems);
    let characters = message.job_name.chars().count();
    if characters == 0 || characters > JOB_NAME {
        problems.add("compilation.job_name", format!("has {characters} characters; it needs 1 to {JOB_NAME}"));
    }
    fusion(message.fusion.as_ref(), problems);
    submission_values(&message, problems);
    let configuration = message.configuration.iter();
    let texts = configuration.flat_map(|c| [&c.threading_model, &c.tracing, &c.data_directory]);
    if texts.flatten().any(|text| text.len() > TEXT) {
        problems.add("compilation.configuration", format!("has a text of more than {TEXT} bytes"));
    }
    widths(&message.widths, "compilation.widths", problems);
    channel_counts(&message.channel_counts, problems);
    let adl = adl?;
    message.adl = Some(pb::Blob { sha256: adl.digest.to_bytes(), content: None });
    Some(Compilation { adl, message })
}

fn fusion(fusion: Option<&pb::Fusion>, problems: &mut Malformed) {
    let Some(fusion) = fusion else {
        problems.add("compilation.fusion", "is missing");
        return;
    };
    match &fusion.mode {
        None => problems.add("compilation.fusion.mode", "is missing, or is one that this replica does not know"),
        Some(pb::fusion::Mode::Automatic(automatic)) if automatic.share > 1000 => {
            problems.add("compilation.fusion.automatic.share", format!("is {}; at most 1000", automatic.share));
        }
        Some(_) => {}
    }
    if pb::FusionType::try_from(fusion.r#type).is_err() {
        problems.add("compilation.fusion.type", format!("has the unknown value {}", fusion.r#type));
    }
}

fn submission_values(message: &pb::Compilation, problems: &mut Malformed) {
    const FIELD: &str = "compilation.submission_values";
    entries(message.submission_values.len(), FIELD, problems);
    let mut bytes = 0_usize;
    for (name, value) in &message.submission_values {
        bytes = bytes.saturating_add(name.len()).saturating_add(value.len());
        if name.is_empty() {
            problems.add(FIELD, "has an empty name");
        }
        if name.len().max(value.len()) > TEXT {
            problems.add(format!("{FIELD}['{}']", excerpt(name)), format!("has more than {TEXT} bytes"));
        }
    }
    if bytes > VALUES {
        problems.add(FIELD, format!("have {bytes} bytes; at most {VALUES}"));
    }
}

fn blob(blob: Option<pb::Blob>, field: &str, problems: &mut Malformed) -> Option<BlobInput> {
    let Some(blob) = blob else {
        problems.add(field, "is missing");
        return None;
    };
    if let Some(content) = &blob.content
        && content.len() > CONTENT
    {
        problems.add(format!("{field}.content"), format!("has {} bytes; at most {CONTENT}", content.len()));
    }
    let digest = Digest::from_bytes(&blob.sha256);
    if digest.is_none() {
        problems.add(format!("{field}.sha256"), format!("has {} bytes; a SHA-256 has 32", blob.sha256.len()));
    }
    Some(BlobInput { digest: digest?, content: blob.content })
}

fn widths(widths: &[pb::RegionWidth], field: &str, problems: &mut Malformed) {
    entries(widths.len(), field, problems);
    for (position, width) in widths.iter().enumerate() {
        if width.region.is_empty() || width.region.len() > TEXT {
            let bytes = width.region.len();
            problems.add(format!("{field}[{position}].region"), format!("has {bytes} bytes; it needs 1 to {TEXT}"));
        }
    }
    once(widths.iter().map(|width| &width.region), field, "region", problems);
}

fn channel_counts(counts: &[pb::RegionChannelCount], problems: &mut Malformed) {
    const FIELD: &str = "compilation.channel_counts";
    entries(counts.len(), FIELD, problems);
    for (position, count) in counts.iter().enumerate() {
        if count.region.is_empty() || count.region.len() > TEXT {
            let bytes = count.region.len();
            problems.add(format!("{FIELD}[{position}].region"), format!("has {bytes} bytes; it needs 1 to {TEXT}"));
        }
        if pb::ChannelCount::try_from(count.channel_count).is_err() {
            let message = format!("has the unknown value {}", count.channel_count);
            problems.add(format!("{FIELD}[{position}].channel_count"), message);
        }
    }
    once(counts.iter().map(|count| &count.region), FIELD, "region", problems);
}

fn entries(count: usize, field: &str, problems: &mut Malformed) {
    if count > ENTRIES {
        problems.add(field, format!("has {count} entries; at most {ENTRIES}"));
    }
}

/// Reports the first value that occurs twice.
fn once<T: Eq + Hash>(values: impl Iterator<Item = T>, field: &str, part: &str, problems: &mut Malformed) {
    if let Some(position) = repeated(values) {
        let dot = if part.is_empty() { "" } else { "." };
        problems.add(format!("{field}[{position}]{dot}{part}"), TWICE);
    }
}

/// The position of the first value that was there before.
fn repeated<T: Eq + Hash>(values: impl Iterator<Item = T>) -> Option<usize> {
    let mut seen = HashSet::new();
    values.take(ENTRIES).position(|value| !seen.insert(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pb::resize_request::{Policy, PortsInUse};
    use tonic::Code;
    use tonic_types::StatusExt;

    fn blob(content: &'static [u8]) -> Option<pb::Blob> {
        Some(pb::Blob { sha256: Digest::of(content).to_bytes(), content: Some(Bytes::from_static(content)) })
    }

    fn compilation() -> pb::Compilation {
        let mode = pb::fusion::Mode::Legacy(pb::fusion::Legacy {});
        pb::Compilation {
            adl: blob(b"adl"),
            job_name: "job".into(),
            fusion: Some(pb::Fusion { mode: Some(mode), r#type: 0 }),
            ..Default::default()
        }
    }

    fn width(region: &str, width: i64) -> pb::RegionWidth {
        pb::RegionWidth { region: region.into(), width }
    }

    fn count(region: &str, channel_count: i32) -> pb::RegionChannelCount {
        pb::RegionChannelCount { region: region.into(), channel_count }
    }

    fn resize_request() -> pb::ResizeRequest {
        pb::ResizeRequest {
            compilation: Some(compilation()),
            layout: blob(b"layout"),
            widths: vec![width("P", 3)],
            ..Default::default()
        }
    }

    fn render_request() -> pb::RenderRequest {
        pb::RenderRequest {
            compilation: Some(compilation()),
            layout: blob(b"layout"),
            compiler: "1".into(),
            pe_ids: vec![2, 1],
        }
    }

    /// The fields that a request is refused for.
    fn fields<T>(result: Result<T, Failure>) -> Vec<String> {
        match result {
            Ok(_) => Vec::new(),
            Err(failure) => {
                let status = failure.status();
                assert_eq!(status.code(), Code::InvalidArgument);
                status.get_details_bad_request().unwrap().field_violations.into_iter().map(|v| v.field).collect()
            }
        }
    }

    #[test]
    fn content_is_taken_apart_from_the_message() {
        let request = submit(pb::SubmitRequest { compilation: Some(compilation()) }).unwrap();
        assert_eq!(request.adl.content.as_deref(), Some(b"adl".as_slice()));
        assert_eq!(request.adl.digest, Digest::of(b"adl"));
        let left = request.message.adl.unwrap();
        assert_eq!((left.content, left.sha256), (None, Digest::of(b"adl").to_bytes()));
    }

    #[test]
    fn malformed_compilations() {
        type Change = fn(&mut pb::Compilation);
        let cases: &[(&str, Change)] = &[
            ("compilation.adl", |c| c.adl = None),
            ("compilation.adl.sha256", |c| c.adl.as_mut().unwrap().sha256.truncate(31)),
            ("compilation.adl.content", |c| c.adl.as_mut().unwrap().content = Some(vec![0; CONTENT + 1].into())),
            ("compilation.job_name", |c| c.job_name.clear()),
            ("compilation.job_name", |c| c.job_name = "x".repeat(254)),
            ("compilation.fusion", |c| c.fusion = None),
            ("compilation.fusion.mode", |c| c.fusion.as_mut().unwrap().mode = None),
            ("compilation.fusion.type", |c| c.fusion.as_mut().unwrap().r#type = 99),
            ("compilation.fusion.automatic.share", |c| {
                let automatic = pb::fusion::Automatic { share: 1001, ..Default::default() };
                c.fusion.as_mut().unwrap().mode = Some(pb::fusion::Mode::Automatic(automatic));
            }),
            ("compilation.submission_values", |c| drop(c.submission_values.insert(String::new(), "1".into()))),
            ("compilation.submission_values['a']", |c| {
                drop(c.submission_values.insert("a".into(), "x".repeat(TEXT + 1)));
            }),
            ("compilation.configuration", |c| {
                c.configuration.get_or_insert_default().tracing = Some("x".repeat(TEXT + 1));
            }),
            ("compilation.widths[0].region", |c| c.widths = vec![width("", 1)]),
            ("compilation.widths[2].region", |c| c.widths = vec![width("a", 1), width("b", 1), width("a", 2)]),
            ("compilation.channel_counts[0].region", |c| c.channel_counts = vec![count("", 1)]),
            ("compilation.channel_counts[1].region", |c| c.channel_counts = vec![count("a", 1), count("a", 2)]),
            ("compilation.channel_counts[0].channel_count", |c| c.channel_counts = vec![count("a", 3)]),
            ("compilation.widths", |c| c.widths = (0..=ENTRIES).map(|i| width(&i.to_string(), 1)).collect()),
        ];
        for (field, change) in cases {
            let mut compilation = compilation();
            change(&mut compilation);
            assert_eq!(fields(submit(pb::SubmitRequest { compilation: Some(compilation) })), [*field]);
        }
        assert_eq!(fields(submit(pb::SubmitRequest { compilation: None })), ["compilation"]);
        let nothing = submit(pb::SubmitRequest { compilation: Some(pb::Compilation::default()) });
        assert_eq!(fields(nothing), ["compilation.adl", "compilation.job_name", "compilation.fusion"]);
    }

    #[test]
    fn malformed_resizes() {
        type Change = fn(&mut pb::ResizeRequest);
        let cases: &[(&str, Change)] = &[
            ("compilation", |r| r.compilation = None),
            ("layout", |r| r.layout = None),
            ("layout.sha256", |r| r.layout.as_mut().unwrap().sha256 = vec![0; 33].into()),
            ("widths[1].region", |r| r.widths.push(width("Q*", 1))),
            ("widths[1].region", |r| r.widths.push(width("P", 4))),
            ("policy", |r| r.policy = 17),
            ("pe_ids_in_use", |r| r.pe_ids_in_use = (0..=ENTRIES as u64).collect()),
            ("pe_ids_in_use[2]", |r| r.pe_ids_in_use = vec![7, 8, 7, 8]),
            ("closed_pe_ids", |r| r.closed_pe_ids = (0..=ENTRIES as u64).collect()),
            ("closed_pe_ids[1]", |r| r.closed_pe_ids = vec![7, 7]),
            ("ports_in_use", |r| {
                let input_port_ids = (0..ENTRIES as u32).collect();
                r.ports_in_use = vec![PortsInUse { input_port_ids, ..Default::default() }];
            }),
            ("ports_in_use[1].pe_id", |r| r.ports_in_use = vec![PortsInUse::default(); 2]),
            ("ports_in_use[0].input_port_ids[1]", |r| {
                r.ports_in_use = vec![PortsInUse { input_port_ids: vec![3, 3], ..Default::default() }];
            }),
            ("ports_in_use[1].output_port_ids[3]", |r| {
                let ports = |pe_id| PortsInUse { pe_id, ..Default::default() };
                // The same id may be that of an input and of an output, and of ports of two PEs.
                let (input_port_ids, output_port_ids) = (vec![1, 2], vec![1, 2]);
                let first = PortsInUse { input_port_ids, output_port_ids, ..ports(1) };
                r.ports_in_use = vec![first, PortsInUse { output_port_ids: vec![1, 2, 3, 2], ..ports(2) }];
            }),
        ];
        for (field, change) in cases {
            let mut request = resize_request();
            change(&mut request);
            assert_eq!(fields(resize(request)), [*field]);
        }
        let (_, _, change) = resize(resize_request()).unwrap();
        assert_eq!(change.policy, Policy::Sticky);
    }

    #[test]
    fn the_digest_of_a_resize_covers_all_that_it_asks_for() {
        let ports = |pe_id, input, output| PortsInUse { pe_id, input_port_ids: input, output_port_ids: output };
        let base = Resize {
            widths: vec![width("P", 3)],
            policy: Policy::Sticky,
            pe_ids_in_use: vec![7],
            ports_in_use: vec![ports(7, vec![1], vec![2])],
            closed_pe_ids: vec![5],
            max_text_bytes: 5,
        };
        type Change<'a> = &'a dyn Fn(&mut Resize);
        let changes: [(&str, Change<'_>); 15] = [
            ("nothing", &|_| {}),
            ("another region", &|r| r.widths[0].region = "Q".into()),
            ("another width", &|r| r.widths[0].width = 4),
            ("one region more", &|r| r.widths.push(width("Q", 3))),
            ("no region", &|r| r.widths.clear()),
            ("policy", &|r| r.policy = Policy::Rebalance),
            ("another id in use", &|r| r.pe_ids_in_use[0] = 8),
            ("no id in use", &|r| r.pe_ids_in_use.clear()),
            ("ports of another PE", &|r| r.ports_in_use[0].pe_id = 8),
            ("another input port", &|r| r.ports_in_use[0].input_port_ids[0] = 2),
            ("another output port", &|r| r.ports_in_use[0].output_port_ids[0] = 1),
            ("no ports in use", &|r| r.ports_in_use.clear()),
            ("another closed PE", &|r| r.closed_pe_ids[0] = 6),
            ("no closed PE", &|r| r.closed_pe_ids.clear()),
            ("other texts", &|r| r.max_text_bytes = 6),
        ];
        let digests = changes.map(|(name, change)| {
            let mut resize = base.clone();
            change(&mut resize);
            (name, resize.digest())
        });
        for (i, (name, digest)) in digests.iter().enumerate() {
            assert!(digests[..i].iter().all(|(_, other)| other != digest), "{name}");
        }
        // What is not said is the same as what it means.
        let said = |policy: Policy| {
            let request = pb::ResizeRequest { policy: policy.into(), ..resize_request() };
            resize(request).unwrap().2.digest()
        };
        assert_eq!(said(Policy::Unspecified), said(Policy::Sticky));
        assert_ne!(said(Policy::Sticky), said(Policy::Rebalance));
    }

    #[test]
    fn malformed_renders() {
        let with = |change: fn(&mut pb::RenderRequest)| {
            let mut request = render_request();
            change(&mut request);
            render(request, "1")
        };
        assert_eq!(fields(with(|r| r.layout = None)), ["layout"]);
        assert_eq!(fields(with(|r| r.pe_ids = vec![3, 4, 3])), ["pe_ids[2]"]);
        assert!(matches!(with(|r| r.compiler = "0".into()), Err(Failure::OtherCompiler { .. })));
        assert_eq!(with(|_| {}).unwrap().2, [2, 1]);
    }

    #[test]
    fn dry_runs_are_easier_to_ask_for() {
        use pb::{explain_request, plan_request};
        let by_hand = || {
            let mut compilation = compilation();
            compilation.adl.as_mut().unwrap().sha256.clear();
            compilation
        };
        let what = plan_request::What::Submit(pb::SubmitRequest { compilation: Some(by_hand()) });
        let (question, include) = plan(pb::PlanRequest { what: Some(what), include_plan: true }).unwrap();
        let DryRun::Submit(compilation) = question else { panic!("{question:?}") };
        assert_eq!((compilation.adl.digest, include), (Digest::of(b"adl"), true));

        let request = pb::ResizeRequest { compilation: Some(by_hand()), layout: None, ..resize_request() };
        let what = Some(explain_request::What::Resize(request));
        let DryRun::Resize(_, None, change) = explain(pb::ExplainRequest { what }).unwrap() else { panic!() };
        assert_eq!((change.widths.len(), change.policy), (1, Policy::Sticky));

        assert_eq!(fields(plan(pb::PlanRequest::default())), ["what"]);
        assert_eq!(fields(explain(pb::ExplainRequest::default())), ["what"]);
        let mut request = resize_request();
        request.layout = Some(pb::Blob::default());
        request.widths.push(width("Q*", 1));
        let what = Some(plan_request::What::Resize(request));
        let wrong = plan(pb::PlanRequest { what, include_plan: false });
        assert_eq!(fields(wrong), ["resize.layout.sha256", "resize.widths[1].region"]);
    }

    #[test]
    fn a_million_problems_are_as_cheap_as_a_few() {
        let mut compilation = compilation();
        compilation.widths = vec![pb::RegionWidth::default(); 1_000_000];
        let failure = submit(pb::SubmitRequest { compilation: Some(compilation) }).unwrap_err();
        let Failure::Malformed(malformed) = &failure else { panic!("{failure:?}") };
        assert!(malformed.violations.len() < 100);
        let violations = failure.status().get_details_bad_request().unwrap().field_violations;
        assert!(violations.last().unwrap().description.starts_with("and "), "{violations:?}");
    }
}
