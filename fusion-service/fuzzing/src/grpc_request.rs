//! Messages of the contract, as a server answers them.
//!
//! Input: one byte, then a message. Of the byte, the lowest two bits say which method is called, the two dry runs being
//! told apart by the fourth; with the third the message is repaired where random bytes would hardly ever be right:
//! digests, the compiler, content that is missing. The answer is checked as a caller would see it, that of a dry run
//! also against what the real call says.

use crate::compilation;
use crate::layout::ADL;
use bytes::Bytes;
use fusion_service::server::direct;
use pb::plan_request::What;
use prost::Message;
use sha2::{Digest, Sha256};
use streams_compiler::plan::Layout;
use streams_proto::fusion::v1 as pb;

/// The lowest two bits.
pub(crate) const METHOD: u8 = 3;
pub(crate) const RESIZE: u8 = 1;
pub(crate) const RENDER: u8 = 2;
pub(crate) const DRY_RUN: u8 = 3;
pub(crate) const REPAIR: u8 = 4;
/// Of a dry run: not Plan.
pub(crate) const EXPLAIN: u8 = 8;
/// Groups of PEs in an account, at most.
const GROUPS: u64 = 1000;
/// What common gRPC libraries accept of a status.
const DETAILS: usize = 8 << 10;

fn blob(content: Bytes) -> pb::Blob {
    pb::Blob { sha256: Bytes::copy_from_slice(&Sha256::digest(&content)), content: Some(content) }
}

fn repair(compilation: &mut Option<pb::Compilation>) -> &mut pb::Compilation {
    let compilation = compilation.get_or_insert_default();
    let content = compilation.adl.take().and_then(|adl| adl.content).filter(|content| !content.is_empty());
    compilation.adl = Some(blob(content.unwrap_or_else(|| Bytes::from_static(ADL.as_bytes()))));
    if compilation.job_name.is_empty() {
        compilation.job_name = "fuzz".to_owned();
    }
    let fusion = compilation.fusion.get_or_insert_default();
    if fusion.mode.is_none() {
        fusion.mode = Some(pb::fusion::Mode::Legacy(pb::fusion::Legacy {}));
    }
    if compilation.submission_values.is_empty() {
        compilation.submission_values.insert("currencies".to_owned(), "EUR,USD".to_owned());
    }
    compilation
}

/// The layout of the message, else that of a submission of its compilation.
fn repair_layout(compilation: &pb::Compilation, layout: &mut Option<pb::Blob>) {
    let content = layout.take().and_then(|layout| layout.content).filter(|content| !content.is_empty());
    let submitted = || {
        let message = pb::SubmitRequest { compilation: Some(compilation.clone()) };
        direct::submit(message, &compilation::budget()).ok().and_then(|answer| answer.plan).map(|plan| plan.layout)
    };
    *layout = content.or_else(submitted).map(blob);
}

fn answered<T>(answer: Result<T, tonic::Status>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(status) => {
            assert!(
                status.details().len() * 4 / 3 + status.message().len() < DETAILS,
                "{} bytes",
                status.details().len()
            );
            assert_ne!(status.code(), tonic::Code::Internal, "{status:?}");
            None
        }
    }
}

/// Checks a plan as a caller would: it survives the wire, and Render gives what it announces.
fn planned(compilation: &pb::Compilation, plan: Option<pb::Plan>) {
    let plan = plan.expect("an answer has a plan");
    assert_eq!(pb::Plan::decode(plan.encode_to_vec().as_slice()).as_ref(), Ok(&plan));
    Layout::from_bytes(&plan.layout, &compilation::budget()).expect("a plan has a layout");
    let present = plan.processing_elements.iter().filter(|pe| pe.fate() != pb::Fate::Removed);
    let present: Vec<&pb::ProcessingElement> = present.collect();
    assert!(plan.processing_elements.is_sorted_by(|a, b| a.id < b.id), "two PEs have one id");
    let message = pb::RenderRequest {
        compilation: Some(compilation.clone()),
        layout: Some(blob(plan.layout.clone())),
        compiler: plan.compiler.clone(),
        pe_ids: present.iter().map(|pe| pe.id).collect(),
    };
    // A layout that was tampered with may name texts that nobody can make.
    let Some(texts) = answered(direct::render(message, &compilation::budget())) else { return };
    assert_eq!(texts.len(), present.len());
    for (text, pe) in texts.iter().zip(present) {
        assert_eq!((text.start.pe_id, &text.start.content_id, text.start.size), (pe.id, &pe.content_id, pe.size));
        assert_eq!((text.text.len() as u64, hex(&text.text)), (pe.size, pe.content_id.clone()));
    }
}

fn hex(text: &[u8]) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the real call says of what a dry run is about, with the digests that a dry run need not have. A resize without
/// a layout is one of what is submitted.
fn really(what: &What) -> Result<pb::ResizeResponse, tonic::Status> {
    let budget = compilation::budget();
    match what.clone() {
        What::Submit(mut message) => {
            complete(message.compilation.as_mut().and_then(|compilation| compilation.adl.as_mut()));
            let pb::SubmitResponse { plan, warnings } = direct::submit(message, &budget)?;
            Ok(pb::ResizeResponse { plan, warnings, ..Default::default() })
        }
        What::Resize(mut message) => {
            complete(message.compilation.as_mut().and_then(|compilation| compilation.adl.as_mut()));
            complete(message.layout.as_mut());
            if message.layout.is_none() {
                let submission = pb::SubmitRequest { compilation: message.compilation.clone() };
                let submitted = direct::submit(submission, &budget).ok().and_then(|answer| answer.plan);
                // An empty layout is refused after everything that is wrong with the message itself.
                message.layout = Some(blob(submitted.map(|plan| plan.layout).unwrap_or_default()));
            }
            direct::resize(message, &budget)
        }
    }
}

fn complete(blob: Option<&mut pb::Blob>) {
    if let Some(pb::Blob { sha256, content: Some(content) }) = blob
        && sha256.is_empty()
    {
        *sha256 = Bytes::copy_from_slice(&Sha256::digest(content));
    }
}

/// Blobs without a digest stay so: a dry run needs none.
fn repair_question(what: &mut Option<What>) {
    let (compilation, layout) = match what.get_or_insert_with(|| What::Submit(pb::SubmitRequest::default())) {
        What::Submit(message) => (&mut message.compilation, None),
        What::Resize(message) => (&mut message.compilation, message.layout.is_some().then_some(&mut message.layout)),
    };
    let bare = |blob: &Option<pb::Blob>| blob.as_ref().is_some_and(|blob| blob.sha256.is_empty());
    let bare_adl = compilation.as_ref().is_some_and(|compilation| bare(&compilation.adl));
    let compilation = repair(compilation);
    if let Some(layout) = layout {
        let bare_layout = bare(layout);
        repair_layout(compilation, layout);
        layout.iter_mut().filter(|_| bare_layout).for_each(|layout| layout.sha256.clear());
    }
    compilation.adl.iter_mut().filter(|_| bare_adl).for_each(|adl| adl.sha256.clear());
}

/// Both dry runs have the same verdict as the real call; what Plan sums up is what the plan has.
fn tried(what: Option<What>, explain: bool) {
    let budget = compilation::budget();
    let Some(asked) = what.clone() else {
        assert!(answered(direct::plan(pb::PlanRequest { what, include_plan: true }, &budget)).is_none());
        return;
    };
    let planned = direct::plan(pb::PlanRequest { what, include_plan: true }, &budget);
    let real = really(&asked);
    let code = |status: &tonic::Status| status.code();
    assert_eq!(planned.as_ref().err().map(code), real.as_ref().err().map(code), "{planned:?} and {real:?}");
    let explained = explain.then(|| {
        let what = match asked {
            What::Submit(message) => pb::explain_request::What::Submit(message),
            What::Resize(message) => pb::explain_request::What::Resize(message),
        };
        direct::explain(pb::ExplainRequest { what: Some(what) }, &budget)
    });
    let planned = answered(planned);
    let summary = planned.as_ref().and_then(|planned| planned.summary.as_ref());
    if let Some(explained) = explained {
        let explained = answered(explained);
        assert_eq!(explained.is_some(), planned.is_some(), "one dry run has a result");
        if let Some((explained, summary)) = explained.zip(summary) {
            told(&explained, summary);
        }
    }
    let (Some(planned), Ok(real)) = (planned, real) else { return };
    let summary = planned.summary.expect("an answer has a summary");
    let plan = planned.plan.expect("the plan was asked for");
    assert_eq!(planned.warnings, real.warnings);
    let mut sum = pb::PlanSummary {
        application_name: plan.application_name.clone(),
        parallel_regions: plan.parallel_regions.clone(),
        automatic: plan.automatic,
        added_operators: real.added_operators.len() as u64,
        removed_operators: real.removed_operators.len() as u64,
        changed_operators: real.changed_operators.len() as u64,
        ..Default::default()
    };
    for pe in &plan.processing_elements {
        match pe.fate() {
            pb::Fate::Unspecified => panic!("PE {} has no fate", pe.id),
            pb::Fate::Added => sum.added.push(pe.id),
            pb::Fate::Kept => sum.kept.push(pe.id),
            pb::Fate::KeptUnobservable => sum.kept_unobservable.push(pe.id),
            pb::Fate::Restarted => sum.restarted.push(pe.id),
            pb::Fate::Removed => sum.removed.push(pe.id),
        }
        sum.operators += pe.operator_indexes.len() as u64;
        sum.processing_elements += u64::from(pe.fate() != pb::Fate::Removed);
        sum.aadl_bytes += pe.size;
    }
    assert_eq!(summary, sum);
    assert_eq!(Some(plan), real.plan, "the real call gives another plan");
}

/// An account is of the plan that the other dry run sums up.
fn told(explained: &pb::ExplainResponse, summary: &pb::PlanSummary) {
    assert_eq!(pb::ExplainResponse::decode(explained.encode_to_vec().as_slice()).as_ref(), Ok(explained));
    let explanation = explained.explanation.as_ref().expect("an answer has an account");
    let totals = explanation.totals.expect("an account has totals");
    assert_eq!(
        (totals.operators, totals.processing_elements, totals.aadl_bytes),
        (summary.operators, summary.processing_elements, summary.aadl_bytes)
    );
    let mut pes: Vec<u64> = explanation.groups.iter().flat_map(|group| &group.pe_ids).copied().collect();
    let mut planned =
        [&summary.added, &summary.kept, &summary.kept_unobservable, &summary.restarted].map(Vec::clone).concat();
    pes.sort_unstable();
    planned.sort_unstable();
    assert_eq!(explanation.groups.len() as u64, explanation.group_count.min(GROUPS));
    assert!(pes == planned || explanation.group_count > GROUPS, "{pes:?} and {planned:?}");
    assert!(explained.text.contains(&format!("{} PE", summary.processing_elements)), "{}", explained.text);
}

/// Runs one input; panics when something does not hold.
pub fn run(data: &[u8]) {
    let Some((kind, message)) = data.split_first() else { return };
    let repairing = kind & REPAIR != 0;
    let budget = compilation::budget();
    match kind & METHOD {
        RESIZE => {
            let Ok(mut message) = pb::ResizeRequest::decode(message) else { return };
            if repairing {
                let compilation = repair(&mut message.compilation);
                repair_layout(compilation, &mut message.layout);
            }
            let compilation = message.compilation.clone().unwrap_or_default();
            if let Some(answer) = answered(direct::resize(message, &budget)) {
                planned(&compilation, answer.plan);
            }
        }
        RENDER => {
            let Ok(mut message) = pb::RenderRequest::decode(message) else { return };
            if repairing {
                let compilation = repair(&mut message.compilation);
                repair_layout(compilation, &mut message.layout);
                if message.compiler.is_empty() {
                    streams_compiler::plan::COMPILER.clone_into(&mut message.compiler);
                }
            }
            let wanted = message.pe_ids.len();
            if let Some(texts) = answered(direct::render(message, &budget)) {
                assert_eq!(texts.len(), wanted);
            }
        }
        DRY_RUN => {
            // Both messages are about the same; Explain has one field less.
            let Ok(mut message) = pb::PlanRequest::decode(message) else { return };
            if repairing {
                repair_question(&mut message.what);
            }
            tried(message.what, kind & EXPLAIN != 0);
        }
        _ => {
            let Ok(mut message) = pb::SubmitRequest::decode(message) else { return };
            if repairing {
                repair(&mut message.compilation);
            }
            let compilation = message.compilation.clone().unwrap_or_default();
            if let Some(answer) = answered(direct::submit(message, &budget)) {
                planned(&compilation, answer.plan);
            }
        }
    }
}
