//! Texts that come with the answer to a resize, because they are few and small: the caller needs them at once, and a
//! call of its own to render them would take longer than all of this (rule service-34).
//!
//! Knows: plans, texts, how large an answer may be. Must not know: how a text is made.
//!
//! Invariant: an answer that is small without texts is small with them.

use super::Methods;
use crate::server::compiler::Compiler;
use crate::server::encoded::SMALL;
use crate::server::errors::Failure;
use prost::Message as _;
use streams_compiler::budget::Budget;
use streams_proto::fusion::v1 as pb;
use streams_proto::fusion::v1::resize_response::Text;

/// Bytes that a text takes beside its content, at most: keys and lengths, and the id of its PE.
const BESIDE_CONTENT: u64 = 32;

impl<C: Compiler> Methods<C> {
    /// The texts of all PEs that this answer adds or restarts; none if they have more than `max_bytes` together, or the
    /// answer would not be small with them.
    pub(super) fn texts(
        &self,
        job: &C::Job,
        answer: &pb::ResizeResponse,
        max_bytes: u64,
        budget: &Budget,
    ) -> Result<Vec<Text>, Failure> {
        let pes = answer.plan.iter().flat_map(|plan| &plan.processing_elements);
        let changed: Vec<_> = pes.filter(|pe| matches!(pe.fate(), pb::Fate::Added | pb::Fate::Restarted)).collect();
        let bytes = changed.iter().fold(0_u64, |bytes, pe| bytes.saturating_add(pe.size));
        let is_small = || {
            let beside = BESIDE_CONTENT.saturating_mul(changed.len() as u64);
            let answer = answer.encoded_len() as u64;
            answer.saturating_add(beside).saturating_add(bytes) <= SMALL as u64
        };
        if changed.is_empty() || bytes > max_bytes || !is_small() {
            return Ok(Vec::new());
        }
        self.stage("render", || {
            let text = |pe: &pb::ProcessingElement| {
                let mut content = Vec::new();
                self.compiler.render(job, pe.id, &mut content, budget)?;
                self.metrics.rendered(content.len() as u64);
                Ok(Text { pe_id: pe.id, content: content.into() })
            };
            changed.into_iter().map(text).collect()
        })
    }
}
