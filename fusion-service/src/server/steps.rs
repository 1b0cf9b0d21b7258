//! Takes a call through its steps: the application, the job that it starts from, the answer.
//!
//! Each step that has not been made before takes a worker. Calls that come to the same step at the same time share it
//! (`single_flight`, rule service-31): applications and jobs are shared by all calls that need them, submissions and
//! resizes by those who ask for exactly the same. A call between two steps has its place in the order of arrival, so
//! calls that have begun do not wait for those that have not, but for moments while one stands aside (rule service-8),
//! and few results wait for their next step.
//!
//! Knows: the methods, workers. Must not know: gRPC, how anything is computed.
//!
//! Invariants: a call that waits for a step, its own or another's, has no worker. An answer is encoded once, however
//! many calls share it. A job that calls have while no worker makes it is in the budget of the cache or of calls. A
//! worker waits for memory half a second at most: a call takes that of a job which is known to be large before.

use super::admission::Admission;
use super::budget::CallBudget;
use super::cache::{JobKey, KeptJob};
use super::call::Call;
use super::class::CallClass;
use super::compiler::Compiler;
use super::digest::Digest;
use super::encoded::Encoded;
use super::errors::Failure;
use super::memory::{Denied, JOB_WAIT, Share};
use super::methods::{Adl, Methods, Origin, Prepared, Prior};
use super::request::Compilation;
use super::single_flight::{Part, SingleFlight};
use std::sync::Arc;
use std::time::Duration;
use streams_compiler::budget::Budget;
use streams_proto::fusion::v1 as pb;
use tokio::runtime::Handle;

/// The way of calls through a server.
pub(crate) struct Steps<C: Compiler> {
    pub(super) methods: Arc<Methods<C>>,
    pub(super) admission: Admission,
    applications: SingleFlight<Digest, Arc<C::Application>>,
    jobs: SingleFlight<JobKey, KeptJob<C>>,
    submissions: SingleFlight<Digest, Encoded>,
    resizes: SingleFlight<(JobKey, Digest), Encoded>,
}

impl<C: Compiler> Steps<C> {
    /// `longest` is the longest time that a call may take.
    pub(super) fn new(methods: Methods<C>, admission: Admission, longest: Duration) -> Self {
        let metrics = Arc::clone(&methods.metrics);
        Self {
            methods: Arc::new(methods),
            admission,
            applications: SingleFlight::new("application", Part::Step, longest, Arc::clone(&metrics)),
            jobs: SingleFlight::new("job", Part::Step, longest, Arc::clone(&metrics)),
            submissions: SingleFlight::new("submit", Part::Answer, longest, Arc::clone(&metrics)),
            resizes: SingleFlight::new("resize", Part::Answer, longest, metrics),
        }
    }

    /// `Submit`.
    pub(super) async fn submit(self: Arc<Self>, call: Call, message: pb::SubmitRequest) -> Result<Encoded, Failure> {
        let submission = self.methods.submit(message)?;
        let key = submission.key();
        let compute = |budget| Arc::clone(&self).compute(call.class, budget, submission);
        self.submissions.ride(key, call.class, &call.budget, compute).await
    }

    /// `Resize`.
    pub(super) async fn resize(self: Arc<Self>, call: Call, message: pb::ResizeRequest) -> Result<Encoded, Failure> {
        let resizing = self.methods.resize(message)?;
        let key = resizing.key();
        let compute = |budget| Arc::clone(&self).compute(call.class, budget, resizing);
        self.resizes.ride(key, call.class, &call.budget, compute).await
    }

    /// `Plan`.
    pub(super) async fn plan(self: Arc<Self>, call: Call, message: pb::PlanRequest) -> Result<Encoded, Failure> {
        let planning = self.methods.plan(message)?;
        self.compute(call.class, call.budget, planning).await
    }

    /// `Explain`.
    pub(super) async fn explain(self: Arc<Self>, call: Call, message: pb::ExplainRequest) -> Result<Encoded, Failure> {
        let explaining = self.methods.explain(message)?;
        self.compute(call.class, call.budget, explaining).await
    }

    /// The job that a call starts from. One that the cache does not hold counts with the calls that have it.
    pub(super) async fn job(
        self: &Arc<Self>,
        class: CallClass,
        budget: &CallBudget,
        prior: &Prior<C>,
        compilation: &Arc<Compilation>,
    ) -> Result<KeptJob<C>, Failure> {
        if let Some(job) = &prior.job {
            return Ok(Arc::clone(job));
        }
        let restore = |budget: CallBudget| {
            let (steps, mut prior, compilation) = (Arc::clone(self), prior.clone(), Arc::clone(compilation));
            async move {
                prior.adl.parsed = Some(steps.application(class, &budget, &prior.adl).await?);
                let reserved = steps.reserve(class, &budget, prior.key).await?;
                let was_known = reserved.is_some();
                let restored = steps.restore(class, &budget, prior.clone(), Arc::clone(&compilation), reserved).await;
                if was_known || !matches!(restored, Err(Failure::NoRoomForJob(_))) {
                    return restored;
                }
                // Now its size is known, so the call can wait for memory without a worker. It keeps what it has
                // received: whoever came again would have to find so much memory twice.
                let Some(reserved) = steps.reserve(class, &budget, prior.key).await? else { return restored };
                steps.restore(class, &budget, prior, compilation, Some(reserved)).await
            }
        };
        self.jobs.ride(prior.key, class, budget, restore).await
    }

    /// Restores a job on a worker, with what was `reserved` for it.
    async fn restore(
        &self,
        class: CallClass,
        budget: &CallBudget,
        prior: Prior<C>,
        compilation: Arc<Compilation>,
        reserved: Option<Share>,
    ) -> Result<KeptJob<C>, Failure> {
        let of_work = budget.work.clone();
        let reserves = |bytes| of_work.iter().for_each(|work| work.reserves(bytes));
        reserves(reserved.as_ref().map_or(0, Share::bytes));
        let (methods, admission) = (Arc::clone(&self.methods), self.admission.clone());
        let (of_call, runtime) = (budget.clone(), Handle::current());
        let work = move |budget: &Budget| {
            let job = methods.job(&prior, &compilation, budget)?;
            let Some(share) = &of_call.memory else { return Ok(job) };
            // Before the worker makes another one: what workers take is bounded by their number.
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    error = of_call.ended() => Err(Failure::from(error)),
                    charged = job.charge(share, reserved) => {
                        charged.map_err(|denied| no_room(&admission, class, denied))
                    }
                }
            })?;
            Ok(job)
        };
        let restored = self.admission.run(class, budget, work).await;
        reserves(0);
        restored
    }

    /// Takes memory for a job before it is restored, if it is known that it was too large to be remembered: without it
    /// the work would be in vain. The call waits for it before those that have not come so far, without a worker. Long
    /// work may wait for its worker for minutes, and takes nothing for so long.
    async fn reserve(&self, class: CallClass, budget: &CallBudget, key: JobKey) -> Result<Option<Share>, Failure> {
        let Some(share) = budget.memory.as_ref().filter(|_| !class.is_long()) else { return Ok(None) };
        let Some(bytes) = self.methods.large_job(key) else { return Ok(None) };
        tokio::select! {
            biased;
            error = budget.ended() => Err(error.into()),
            taken = share.take_for_job(share.lacks_for_job(bytes), JOB_WAIT) => {
                taken.map(Some).map_err(|denied| no_room(&self.admission, class, denied))
            }
        }
    }

    /// The application of a call.
    async fn application(
        self: &Arc<Self>,
        class: CallClass,
        budget: &CallBudget,
        adl: &Adl<C>,
    ) -> Result<Arc<C::Application>, Failure> {
        if let Some(application) = &adl.parsed {
            return Ok(Arc::clone(application));
        }
        let parse = |budget: CallBudget| {
            let (steps, adl) = (Arc::clone(self), adl.clone());
            async move {
                let methods = Arc::clone(&steps.methods);
                steps.admission.run(class, &budget, move |budget| methods.application(&adl, budget)).await
            }
        };
        self.applications.ride(adl.input.digest, class, budget, parse).await
    }

    /// All steps of a call. The worker that computes the answer encodes it, too.
    async fn compute<P: Prepared<C>>(
        self: Arc<Self>,
        class: CallClass,
        budget: CallBudget,
        mut prepared: P,
    ) -> Result<Encoded, Failure> {
        match prepared.origin() {
            Origin::Application(adl) => adl.parsed = Some(self.application(class, &budget, adl).await?),
            Origin::Job(prior, compilation) => {
                let job = self.job(class, &budget, prior, compilation).await?;
                if let Some(work) = &budget.work {
                    work.begins_from(job.bytes());
                }
                prior.job = Some(job);
            }
        }
        let methods = Arc::clone(&self.methods);
        let work = move |budget: &Budget| Ok(Encoded::of(&prepared.compute(&methods, budget)?));
        self.admission.run(class, &budget, work).await
    }
}

/// The failure of a call that begins from a job for which there is no memory.
fn no_room(admission: &Admission, class: CallClass, denied: Denied) -> Failure {
    denied.failure("the job that it begins from", || Failure::NoRoomForJob(admission.overloaded(class)))
}
