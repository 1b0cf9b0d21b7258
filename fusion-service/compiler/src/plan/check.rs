//! Finds all problems of an application that any stage can find (rule layout-15).
//!
//! A compilation ends at the first stage with problems, because the next stage has no input. Much of what later stages
//! check does not depend on that stage, though. An invalid fusion option does not affect the document, and a missing
//! submission-time value does not affect connections. So [`check`] runs each later stage whose problems would not
//! follow from those found before:
//!
//! ```text
//! fusion option │ document ─► values ─► expansion ─► constraints ─► fusion ─► documents, consistent regions, placement
//!               │    coherent? ──────────▲ stand-ins      ▲ needs a whole topology and a fusion option
//! ```
//!
//! Invariant: the first problem is the first one of [`submit`](super::submit), too.

use super::request::{BoundRequest, CheckedFusion, FusionOption, Request, Source, warnings};
use super::{Compiled, Warning, assemble};
use crate::adl;
use crate::budget::Budget;
use crate::error::{Error, Problem, Problems};
use crate::fuser::FusionType;
use crate::logical::submission::{Bindings, bind_given};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// What a check found.
#[derive(Debug)]
pub struct Checked {
    /// The compiled job, if there are no problems.
    pub compiled: Option<Compiled>,
    /// All problems, in the order of the stages.
    pub problems: Vec<Problem>,
    /// Parts of the request without effect, as far as the stages got.
    pub warnings: Vec<Warning>,
}

/// Problems of several stages; each stage has its own bound on their number.
#[derive(Default)]
struct StageProblems(Vec<Problem>);

impl StageProblems {
    /// Returns the result of a stage. If the stage refused its input, keeps its problems and returns nothing.
    fn keep<T>(&mut self, result: Result<T, Error>) -> Result<Option<T>, Error> {
        let mut own = Problems::default();
        let value = own.keep(result)?;
        self.0.extend(own.into_vec());
        Ok(value)
    }
}

/// Compiles an application for a new job and returns the job or all problems.
///
/// # Errors
///
/// The budget ends.
pub fn check(document: &[u8], request: &Arc<Request>, budget: &Budget) -> Result<Checked, Error> {
    let mut found = StageProblems::default();
    let mut bindings = None;
    let compiled = stages(document, request, budget, &mut found, &mut bindings)?;
    let compiled = compiled.filter(|_| found.0.is_empty());
    let warnings = match (&compiled, &bindings) {
        (Some(compiled), _) => compiled.plan().warnings.clone(),
        (None, Some(bindings)) => warnings(request, bindings, None, budget)?,
        (None, None) => Vec::new(),
    };
    Ok(Checked { compiled, problems: found.0, warnings })
}

fn stages(
    document: &[u8],
    request: &Arc<Request>,
    budget: &Budget,
    found: &mut StageProblems,
    known: &mut Option<Bindings>,
) -> Result<Option<Compiled>, Error> {
    let fusion = found.keep(request.fusion.check(request.fusion_type, None))?;
    let adl::Reading { application, problems, coherent, values_coherent } = adl::read(document, budget)?;
    found.0.extend(problems);
    let Some(application) = application else { return Ok(None) };
    let digest = Sha256::digest(document).into();
    let source = Source { application: Arc::new(application), digest, bytes: document.len() };
    let mut bindings = Bindings::default();
    if values_coherent {
        let (bound, problems) = bind_given(&source.application, &request.submission_values, budget)?;
        found.0.extend(problems.into_vec());
        *known = Some(bound.clone());
        bindings = bound;
    }
    if !coherent {
        return Ok(None);
    }
    let bound = BoundRequest::with_bindings(bindings, request);
    let Some(topology) = found.keep(bound.expand(&source, request.widths.clone(), budget))? else { return Ok(None) };
    let Some(fusion) = fusion else {
        // Every fusion option has the same constraints, so legacy fusion finds their problems.
        let legacy: CheckedFusion = FusionOption::Legacy.check(FusionType::NoChannelInfluence, None)?;
        found.keep(assemble::from_scratch(bound, topology, &legacy, budget))?;
        return Ok(None);
    };
    let Some(assembled) = found.keep(assemble::from_scratch(bound, topology, &fusion, budget))? else {
        return Ok(None);
    };
    found.keep(assembled.finish(&source, request, budget))
}
