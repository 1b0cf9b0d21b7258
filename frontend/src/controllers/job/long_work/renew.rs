//! Writes the newest texts of PEs that could go on with older ones (rule job-51).
//!
//! Knows: which failures are those of one text. Must not know: which PEs need another pod.
//!
//! Invariant: every failure is one that may pass. Nothing that runs needs these texts, so none of them is a reason to
//! correct or to compile anything.

use super::publish::{generation, publish, span};
use super::{Assignment, LongWork, WorkError};
use crate::controllers::job::generation::Generation;
use crate::controllers::job::held_up::HeldUp;
use crate::controllers::job::objects::OBJECT_BYTES;
use crate::controllers::job::tasks::{PublishRequest, RenewRequest, Slot, TaskKind, Tasks};
use k8s_openapi::jiff::Timestamp;
use streams_kubernetes::cluster::Cluster;
use streams_process::telemetry;
use tracing::Span;

/// Writes newest texts.
pub(super) struct Renew;

impl LongWork for Renew {
    const KIND: TaskKind = TaskKind::Renew;
    const RESULT_IS_VISIBLE: bool = true;
    type Request = RenewRequest;
    type Output = ();

    fn is_awaited(request: &RenewRequest, _: &HeldUp, _: Timestamp) -> bool {
        request.is_urgent
    }

    fn slot(tasks: &mut Tasks) -> &mut Slot<RenewRequest, ()> {
        &mut tasks.renew
    }

    fn span<C: Cluster>(assignment: &Assignment<'_, C>, request: &RenewRequest) -> Span {
        // Nobody asked for it: it is no part of the trace of the resize (rule name-11).
        span(assignment, &request.texts, telemetry::link_trace)
    }

    async fn perform<C: Cluster>(assignment: &Assignment<'_, C>, request: &RenewRequest) -> Result<(), WorkError> {
        let generation = generation(assignment, &request.texts.plan).await.map_err(passing)?;
        let mut result = Ok(());
        for part in parts(&generation, &request.texts) {
            let written = publish(assignment, &part).await;
            result = result.and(written);
        }
        result.map_err(passing)
    }
}

/// What is written together. A text that may not fit an object is alone: it must not keep others from being written.
/// Such texts come last, because it takes long to render and to measure them.
fn parts(generation: &Generation, request: &PublishRequest) -> Vec<PublishRequest> {
    let is_large = |id: &u64| generation.member(*id).is_some_and(|(pe, _)| pe.size > OBJECT_BYTES as u64);
    let (large, small): (Vec<u64>, Vec<u64>) = request.pe_ids.iter().partition(|id| is_large(id));
    let alone = large.into_iter().map(|id| vec![id]);
    let together = Some(small).filter(|small| !small.is_empty());
    let part = |pe_ids| PublishRequest { plan: request.plan.clone(), pe_ids };
    together.into_iter().chain(alone).map(part).collect()
}

/// The failure as one that may pass. What another try hardly changes is tried less and less often.
fn passing(error: WorkError) -> WorkError {
    WorkError { is_costly: error.is_costly || !error.retry, ..error.or_later() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::generation::{GenerationDetails, Target};
    use crate::controllers::job::tasks::Remedy;
    use streams_proto::fusion::v1::{Compilation, Plan, ProcessingElement};

    #[test]
    fn a_text_that_may_not_fit_is_written_alone_and_last() {
        let large = OBJECT_BYTES as u64 + 1;
        let pe = |id, size| ProcessingElement { id, size, ..ProcessingElement::default() };
        let processing_elements = vec![pe(1, large), pe(2, large - 1), pe(3, 0), pe(4, large)];
        let plan = Plan { processing_elements, ..Plan::default() };
        let (target, compilation) = (Target::Submission { inputs: String::new() }, Compilation::default());
        let generation = Generation::following(None, target, compilation, plan, GenerationDetails::default());
        // wanted -> what is written together
        let table: [(&[u64], &[&[u64]]); 4] =
            [(&[1, 2, 3, 4], &[&[2, 3], &[1], &[4]]), (&[2, 3], &[&[2, 3]]), (&[4], &[&[4]]), (&[], &[])];
        for (wanted, expected) in table {
            let request = PublishRequest { plan: "p".to_owned(), pe_ids: wanted.to_vec() };
            let parts: Vec<_> = parts(&generation, &request).into_iter().map(|part| part.pe_ids).collect();
            assert_eq!(parts, expected, "{wanted:?}");
        }
    }

    #[test]
    fn every_failure_passes_and_hopeless_ones_are_tried_ever_less_often() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        // failure, failures before -> seconds until the next try
        let table = [
            (WorkError::transient("FusionUnavailable", "it is down"), 0, 1),
            (WorkError::transient("FusionUnavailable", "it is down"), 99, 30),
            (WorkError::permanent("TooLarge", "it does not fit"), 0, 1),
            (WorkError::permanent("TooLarge", "it does not fit"), 99, 300),
            (WorkError::recompile("another compiler"), 0, 1),
            (WorkError::recompile("another compiler"), 99, 300),
        ];
        for (error, before, expected) in table {
            let case = format!("{error:?} {before}");
            let Remedy::Retry(at) = passing(error).failure(before, now).remedy else { panic!("{case}") };
            assert_eq!(at.duration_since(now).as_secs(), expected, "{case}");
        }
    }
}
