//! Messages of the contract, as a server answers them.
//!
//! Input: one byte, then a message. Of the byte, the lowest two bits say which method is called; with the third the message is repaired
//! where random bytes would hardly ever be right: digests, the compiler, content that is missing. The answer is checked as a caller
//! would see it.

use crate::compilation;
use crate::layout::ADL;
use bytes::Bytes;
use fusion_service::plan::Layout;
use fusion_service::server::direct;
use prost::Message;
use sha2::{Digest, Sha256};
use streams_proto::fusion::v1 as pb;

pub(crate) const REPAIR: u8 = 4;
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
    Layout::from_bytes(&plan.layout).expect("a plan has a layout");
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

pub(crate) fn run(data: &[u8]) {
    let Some((kind, message)) = data.split_first() else { return };
    let repairing = kind & REPAIR != 0;
    let budget = compilation::budget();
    match kind & 3 {
        0 | 3 => {
            let Ok(mut message) = pb::SubmitRequest::decode(message) else { return };
            if repairing {
                repair(&mut message.compilation);
            }
            let compilation = message.compilation.clone().unwrap_or_default();
            if let Some(answer) = answered(direct::submit(message, &budget)) {
                planned(&compilation, answer.plan);
            }
        }
        1 => {
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
        _ => {
            let Ok(mut message) = pb::RenderRequest::decode(message) else { return };
            if repairing {
                let compilation = repair(&mut message.compilation);
                repair_layout(compilation, &mut message.layout);
                if message.compiler.is_empty() {
                    fusion_service::plan::COMPILER.clone_into(&mut message.compiler);
                }
            }
            let wanted = message.pe_ids.len();
            if let Some(texts) = answered(direct::render(message, &budget)) {
                assert_eq!(texts.len(), wanted);
            }
        }
    }
}
