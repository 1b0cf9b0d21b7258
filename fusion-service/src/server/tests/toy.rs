//! A compiler for tests: its results are obvious, and a test can stop each of its steps and let it go on.

use crate::server::compiler::{Compiler, Measure};
use crate::server::digest::Digest;
use crate::server::errors::Failure;
use crate::server::request::Resize;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use streams_compiler::budget::Budget;
use streams_compiler::error::{Error, Problem, Stage};
use streams_proto::fusion::v1 as pb;

/// Where steps wait while they are held, and what they did.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held: BTreeSet<&'static str>,
    begun: Vec<String>,
    ended_early: Vec<String>,
    job_bytes: u64,
}

impl Gate {
    /// From now on jobs say that they take so many bytes besides their layout.
    pub(crate) fn weigh(&self, job_bytes: u64) {
        self.state.lock().job_bytes = job_bytes;
    }

    /// From now on this step does not get through: `submit` of all jobs, `submit a` of one.
    pub(crate) fn hold(&self, step: &'static str) {
        self.state.lock().held.insert(step);
    }

    pub(crate) fn release(&self, step: &'static str) {
        self.state.lock().held.remove(step);
        self.changed.notify_all();
    }

    /// Steps that began, with the job: `submit a`.
    pub(crate) fn begun(&self) -> Vec<String> {
        self.state.lock().begun.clone()
    }

    /// Steps that ended because of their budget.
    pub(crate) fn ended_early(&self) -> Vec<String> {
        self.state.lock().ended_early.clone()
    }

    /// As a stage of the compiler would: asks the budget now and then.
    fn pass(&self, step: &'static str, job: &str, budget: &Budget) -> Result<(), Failure> {
        let of_job = format!("{step} {job}");
        self.state.lock().begun.push(of_job.clone());
        while self.is_held(step, &of_job) {
            // The answer may take long.
            if let Err(error) = budget.check() {
                self.state.lock().ended_early.push(of_job);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Whether a step is held even after a moment.
    fn is_held(&self, step: &str, of_job: &str) -> bool {
        let is_held = |state: &State| state.held.iter().any(|held| [step, of_job].contains(held));
        let mut state = self.state.lock();
        let moment = Duration::from_millis(2);
        self.changed.wait_while_for(&mut state, |state| is_held(state), moment);
        is_held(&state)
    }
}

/// Compiles `PES BYTES`: so many PEs with texts of so many bytes.
#[derive(Debug, Default)]
pub(crate) struct Toy {
    pub(crate) gate: Arc<Gate>,
}

#[derive(Debug)]
pub(crate) struct ToyApplication {
    pes: u64,
    bytes: usize,
}

#[derive(Debug)]
pub(crate) struct ToyJob {
    application: Arc<ToyApplication>,
    name: String,
    layout: String,
    measures: Vec<Measure>,
}

impl Toy {
    fn job(application: &Arc<ToyApplication>, compilation: &pb::Compilation, layout: String) -> (ToyJob, pb::Plan) {
        let mut job = ToyJob {
            application: Arc::clone(application),
            name: compilation.job_name.clone(),
            layout: layout.clone(),
            measures: Vec::new(),
        };
        let measure = |id| Measure { content_id: Digest::of(&job.text(id)), size: application.bytes as u64 };
        job.measures = (0..application.pes).map(measure).collect();
        let pe = |(id, measure): (u64, &Measure)| pb::ProcessingElement {
            id,
            content_id: measure.content_id.to_string(),
            size: measure.size,
            ..Default::default()
        };
        let plan = pb::Plan {
            compiler: "toy".into(),
            adl_sha256: compilation.adl.clone().unwrap_or_default().sha256,
            layout: Bytes::from(layout),
            processing_elements: (0..).zip(&job.measures).map(pe).collect(),
            ..Default::default()
        };
        (job, plan)
    }
}

impl ToyJob {
    pub(crate) fn text(&self, pe: u64) -> Vec<u8> {
        let line = format!("{} {} {pe}\n", self.name, self.layout);
        let mut text = line.repeat(self.application.bytes.div_ceil(line.len())).into_bytes();
        text.truncate(self.application.bytes);
        text
    }
}

fn rejected(message: &str) -> Failure {
    Error::from(Problem::new(Stage::LogicalModel, message)).into()
}

impl Compiler for Toy {
    type Application = ToyApplication;
    type Job = ToyJob;

    fn version(&self) -> &'static str {
        "toy"
    }

    fn parse(&self, adl: &[u8], budget: &Budget) -> Result<ToyApplication, Failure> {
        self.gate.pass("parse", "", budget)?;
        let text = std::str::from_utf8(adl).map_err(|_| rejected("not UTF-8"))?;
        assert_ne!(text, "panic", "the compiler has a defect");
        let (pes, bytes) = text.split_once(' ').ok_or_else(|| rejected("not two numbers"))?;
        match (pes.parse(), bytes.parse()) {
            (Ok(pes), Ok(bytes)) => Ok(ToyApplication { pes, bytes }),
            _ => Err(rejected("not two numbers")),
        }
    }

    fn submit(
        &self,
        application: &Arc<ToyApplication>,
        compilation: &pb::Compilation,
        budget: &Budget,
    ) -> Result<(ToyJob, pb::SubmitResponse), Failure> {
        self.gate.pass("submit", &compilation.job_name, budget)?;
        let (job, plan) = Self::job(application, compilation, format!("layout of {}", compilation.job_name));
        Ok((job, pb::SubmitResponse { plan: Some(plan), warnings: Vec::new() }))
    }

    fn resize(
        &self,
        prior: &ToyJob,
        compilation: &pb::Compilation,
        resize: &Resize,
        budget: &Budget,
    ) -> Result<(ToyJob, pb::ResizeResponse), Failure> {
        self.gate.pass("resize", &compilation.job_name, budget)?;
        let mut layout = prior.layout.clone();
        for width in &resize.widths {
            layout.push_str(&format!(" {}={}", width.region, width.width));
        }
        let (job, plan) = Self::job(&prior.application, compilation, layout);
        Ok((job, pb::ResizeResponse { plan: Some(plan), ..Default::default() }))
    }

    fn explain(&self, job: &ToyJob, prior: Option<&ToyJob>, budget: &Budget) -> Result<pb::ExplainResponse, Failure> {
        self.gate.pass("explain", &job.name, budget)?;
        let before = prior.map_or("nothing", |prior| &prior.layout);
        Ok(pb::ExplainResponse { explanation: None, text: format!("{before} -> {}", job.layout) })
    }

    fn restore(
        &self,
        application: &Arc<ToyApplication>,
        compilation: &pb::Compilation,
        layout: &[u8],
        budget: &Budget,
    ) -> Result<ToyJob, Failure> {
        self.gate.pass("restore", &compilation.job_name, budget)?;
        let layout = String::from_utf8(layout.to_vec()).ok().filter(|layout| layout.starts_with("layout"));
        let layout = layout.ok_or_else(|| Failure::LayoutRejected("is damaged".into()))?;
        Ok(Self::job(application, compilation, layout).0)
    }

    fn measure(&self, job: &ToyJob, pe: u64) -> Option<Measure> {
        job.measures.get(usize::try_from(pe).ok()?).cloned()
    }

    fn render(&self, job: &ToyJob, pe: u64, sink: &mut dyn io::Write, budget: &Budget) -> Result<(), Failure> {
        self.gate.pass("render", &job.name, budget)?;
        for piece in job.text(pe).chunks(10_000) {
            budget.check()?;
            sink.write_all(piece).map_err(|_| Error::Cancelled)?;
        }
        Ok(())
    }

    fn application_size(&self, _: &ToyApplication, adl_bytes: usize) -> u64 {
        adl_bytes as u64
    }

    fn job_size(&self, job: &ToyJob) -> u64 {
        job.layout.len() as u64 + self.gate.state.lock().job_bytes
    }
}
