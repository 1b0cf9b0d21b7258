//! Dry runs: they compute the result of a submission or a resize without carrying it out
//! (rules layout-18 and service-11).
//!
//! A dry run computes its result as the real call does, so both answer the same. It puts the parsed ADL and the job
//! that a resize starts from into the caches, because the real call may come next and read them. It does not put its
//! result there.

use super::content::{Adl, Prior};
use super::{Methods, Origin, Prepared, note_job};
use crate::server::cache::KeptJob;
use crate::server::compiler::Compiler;
use crate::server::errors::Failure;
use crate::server::request::{self, Compilation, DryRun, Resize};
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_proto::fusion::v1 as pb;

/// `Plan`, whose content has been found.
pub(in crate::server) struct Planning<C: Compiler> {
    trial: Trial<C>,
    include_plan: bool,
}

/// `Explain`, whose content has been found.
pub(in crate::server) struct Explaining<C: Compiler> {
    trial: Trial<C>,
}

/// What is tried.
#[allow(clippy::large_enum_variant, reason = "there is one per call")]
enum Trial<C: Compiler> {
    Submit(Compilation, Adl<C>),
    Resize(Arc<Compilation>, Base<C>, Resize),
}

/// The job that a resize starts from.
enum Base<C: Compiler> {
    /// The job that a submission of this application gives.
    Submission(Adl<C>),
    /// A job that runs.
    Job(Prior<C>),
}

/// What a dry run gave.
struct DryRunResult<C: Compiler> {
    job: C::Job,
    prior: Option<KeptJob<C>>,
    /// The answer. That to a submission has the form of a resize that adds every PE.
    answer: pb::ResizeResponse,
}

impl<C: Compiler> Methods<C> {
    /// `Plan`.
    pub(in crate::server) fn plan(&self, message: pb::PlanRequest) -> Result<Planning<C>, Failure> {
        let (dry_run, include_plan) = request::plan(message)?;
        Ok(Planning { trial: self.prepare(dry_run)?, include_plan })
    }

    /// `Explain`.
    pub(in crate::server) fn explain(&self, message: pb::ExplainRequest) -> Result<Explaining<C>, Failure> {
        Ok(Explaining { trial: self.prepare(request::explain(message)?)? })
    }

    /// Looks up what the caches know.
    ///
    /// # Errors
    ///
    /// Content of the call was neither sent nor cached.
    fn prepare(&self, dry_run: DryRun) -> Result<Trial<C>, Failure> {
        Ok(match dry_run {
            DryRun::Submit(compilation) => {
                note_job(&compilation);
                let adl = Adl::find(&self.caches, &compilation.adl)?;
                Trial::Submit(compilation, adl)
            }
            DryRun::Resize(compilation, layout, resize) => {
                note_job(&compilation);
                let base = match layout {
                    Some(layout) => Base::Job(Prior::find(&self.caches, &compilation, layout)?),
                    None => Base::Submission(Adl::find(&self.caches, &compilation.adl)?),
                };
                Trial::Resize(Arc::new(compilation), base, resize)
            }
        })
    }

    /// Compiles as the real call would.
    fn carry_out(&self, trial: &Trial<C>, budget: &Budget) -> Result<DryRunResult<C>, Failure> {
        match trial {
            Trial::Submit(compilation, adl) => {
                let (job, pb::SubmitResponse { plan, warnings }) = self.compile(adl, compilation, budget)?;
                let answer = pb::ResizeResponse { plan, warnings, ..Default::default() };
                Ok(DryRunResult { job, prior: None, answer })
            }
            Trial::Resize(compilation, base, resize) => {
                let prior = match base {
                    Base::Submission(adl) => self.keep(self.compile(adl, compilation, budget)?.0),
                    Base::Job(prior) => self.job(prior, compilation, budget)?,
                };
                let (job, answer) = self.recompile(&prior, compilation, resize, budget)?;
                Ok(DryRunResult { job, prior: Some(prior), answer })
            }
        }
    }
}

impl<C: Compiler> Trial<C> {
    fn origin(&mut self) -> Origin<'_, C> {
        match self {
            Self::Submit(_, adl) | Self::Resize(_, Base::Submission(adl), _) => Origin::Application(adl),
            Self::Resize(compilation, Base::Job(prior), _) => Origin::Job(prior, compilation),
        }
    }
}

impl<C: Compiler> Prepared<C> for Planning<C> {
    type Answer = pb::PlanResponse;

    fn origin(&mut self) -> Origin<'_, C> {
        self.trial.origin()
    }

    fn compute(self, methods: &Methods<C>, budget: &Budget) -> Result<pb::PlanResponse, Failure> {
        Ok(planned(methods.carry_out(&self.trial, budget)?.answer, self.include_plan))
    }
}

impl<C: Compiler> Prepared<C> for Explaining<C> {
    type Answer = pb::ExplainResponse;

    fn origin(&mut self) -> Origin<'_, C> {
        self.trial.origin()
    }

    fn compute(self, methods: &Methods<C>, budget: &Budget) -> Result<pb::ExplainResponse, Failure> {
        let DryRunResult { job, prior, .. } = methods.carry_out(&self.trial, budget)?;
        let prior = prior.as_deref().map(|prior| &**prior);
        methods.stage("explain", || methods.compiler.explain(&job, prior, budget))
    }
}

/// The answer of `Plan`.
fn planned(answer: pb::ResizeResponse, include_plan: bool) -> pb::PlanResponse {
    let summary = summary(&answer);
    let pb::ResizeResponse { plan, warnings, .. } = answer;
    pb::PlanResponse { summary: Some(summary), warnings, plan: plan.filter(|_| include_plan) }
}

/// The numbers of a plan.
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
