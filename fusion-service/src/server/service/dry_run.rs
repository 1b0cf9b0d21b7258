//! Dry runs: what a submission or a resize would give, without being one (rules layout-18 and service-11).
//!
//! They take the way of the real calls up to the result, so that they say the same. What they read is remembered as the
//! real calls would (the parsed ADL, the job that a resize begins from), because the real call may come next; what
//! would come of it is not.

use super::{Adl, Inner, Prior, note_job};
use crate::server::{
    call::Call,
    compiler::Compiler,
    errors::Failure,
    request::{self, Change, Compilation, Question},
};
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_proto::fusion::v1 as pb;

/// What is tried.
struct Trial<C: Compiler> {
    compilation: Compilation,
    from: Beginning<C>,
    /// None for a submission.
    change: Option<Change>,
}

/// What it begins from.
enum Beginning<C: Compiler> {
    Application(Adl<C>),
    Job(Prior<C>),
}

/// What came of it.
struct Tried<C: Compiler> {
    job: C::Job,
    prior: Option<Arc<C::Job>>,
    answer: pb::ResizeResponse,
}

impl<C: Compiler> Inner<C> {
    pub(super) async fn plan(
        self: &Arc<Self>,
        call: &Call,
        message: pb::PlanRequest,
    ) -> Result<pb::PlanResponse, Failure> {
        let (question, include_plan) = request::plan(message)?;
        let trial = self.trial(question)?;
        let inner = Arc::clone(self);
        let work = move |budget: &Budget| Ok(planned(inner.carry_out(&trial, budget)?.answer, include_plan));
        self.admission.run(call.class, &call.budget, work).await
    }

    pub(super) async fn explain(
        self: &Arc<Self>,
        call: &Call,
        message: pb::ExplainRequest,
    ) -> Result<pb::ExplainResponse, Failure> {
        let trial = self.trial(request::explain(message)?)?;
        let inner = Arc::clone(self);
        let work = move |budget: &Budget| {
            let Tried { job, prior, .. } = inner.carry_out(&trial, budget)?;
            inner.stage("explain", || inner.compiler.explain(&job, prior.as_deref(), budget))
        };
        self.admission.run(call.class, &call.budget, work).await
    }

    /// Looks for what is known already. Fails if something is missing.
    fn trial(&self, question: Question) -> Result<Trial<C>, Failure> {
        let (compilation, layout, change) = match question {
            Question::Submit(compilation) => (compilation, None, None),
            Question::Resize(compilation, layout, change) => (compilation, layout, Some(change)),
        };
        note_job(&compilation);
        let from = match layout {
            Some(layout) => {
                let prior = self.prior(&compilation, layout);
                prior.complete()?;
                Beginning::Job(prior)
            }
            None => {
                let adl = self.adl(&compilation.adl);
                adl.complete()?;
                Beginning::Application(adl)
            }
        };
        Ok(Trial { compilation, from, change })
    }

    /// Compiles as the real call would. The result of a submission is told as a resize's, in which everything is new.
    fn carry_out(&self, trial: &Trial<C>, budget: &Budget) -> Result<Tried<C>, Failure> {
        let message = &trial.compilation.message;
        let submit = |adl: &Adl<C>| {
            let application = self.application(adl, budget)?;
            self.stage("submit", || self.compiler.submit(&application, message, budget))
        };
        let (prior, change) = match (&trial.from, &trial.change) {
            (Beginning::Application(adl), None) => {
                let (job, pb::SubmitResponse { plan, warnings }) = submit(adl)?;
                let answer = pb::ResizeResponse { plan, warnings, ..Default::default() };
                return Ok(Tried { job, prior: None, answer });
            }
            (Beginning::Application(adl), Some(change)) => (Arc::new(submit(adl)?.0), change),
            (Beginning::Job(prior), change) => {
                // A layout comes with a resize only.
                let change = change.as_ref().ok_or(Failure::Defect("a layout without a resize"))?;
                (self.job(prior, &trial.compilation, budget)?, change)
            }
        };
        let resized = self.stage("resize", || self.compiler.resize(&prior, message, change, budget));
        let (job, answer) = resized?;
        Ok(Tried { job, prior: Some(prior), answer })
    }
}

/// The answer to a dry run of which this came.
pub(in crate::server) fn planned(answer: pb::ResizeResponse, include_plan: bool) -> pb::PlanResponse {
    let summary = summary(&answer);
    let pb::ResizeResponse { plan, warnings, .. } = answer;
    pb::PlanResponse { summary: Some(summary), warnings, plan: plan.filter(|_| include_plan) }
}

/// A plan in short.
fn summary(answer: &pb::ResizeResponse) -> pb::PlanSummary {
    let mut summary = pb::PlanSummary {
        added_operators: answer.added_operators.len() as u64,
        removed_operators: answer.removed_operators.len() as u64,
        changed_operators: answer.changed_operators.len() as u64,
        ..Default::default()
    };
    let Some(plan) = &answer.plan else { return summary };
    summary.application_name.clone_from(&plan.application_name);
    summary.parallel_regions.clone_from(&plan.parallel_regions);
    summary.automatic = plan.automatic;
    for element in &plan.processing_elements {
        let ids = match element.fate() {
            pb::Fate::Kept => &mut summary.kept,
            pb::Fate::KeptUnobservable => &mut summary.kept_unobservable,
            pb::Fate::Restarted => &mut summary.restarted,
            pb::Fate::Removed => {
                summary.removed.push(element.id);
                continue;
            }
            pb::Fate::Added | pb::Fate::Unspecified => &mut summary.added,
        };
        ids.push(element.id);
        summary.processing_elements += 1;
        summary.operators += element.operators.len() as u64;
        summary.aadl_bytes = summary.aadl_bytes.saturating_add(element.size);
    }
    summary
}
