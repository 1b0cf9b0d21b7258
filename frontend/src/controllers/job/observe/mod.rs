//! Observes a job, in the mirrors, the stored plans and the memory of the process.
//!
//! | Module | What it is |
//! |---|---|
//! | this one | the observation as a whole |
//! | [`plans`] | the stored plans, and what their generations want |
//! | [`requests`] | the requests to resize as they were written last |
//! | [`wishes`] | what is wanted of the regions, and by whom |
//! | [`warnings`] | what users should know of the spec |
//! | [`objects`] | the objects, as they are and as they should be |
//! | [`unsaid_pods`] | first pods that run although their PEs have not said so yet |
//! | [`transport`] | a look at the Secret for transport security |
//! | [`remembrance`] | what the process remembers, and the mirrors do not show |
//! | [`strangers`] | objects that have the names of the job's, and that it does not control |
//!
//! Knows: where everything is to be found. Must not know: what is decided on it.
//!
//! Invariant: two processes that see the same, and remember nothing, observe the same.

mod objects;
mod plans;
mod remembrance;
pub(super) mod requests;
mod strangers;
mod transport;
mod unsaid_pods;
mod warnings;
mod wishes;

use self::objects::objects;
use self::plans::{Plans, plans_of};
use self::remembrance::{Remembrance, remembered};
use self::strangers::in_the_way;
use self::transport::look;
use self::warnings::spec_warnings;
use self::wishes::wishes;
use super::compilation;
use super::memory::Entry;
use super::observed::snapshot::JobSnapshot;
use super::observed::{Children, Deadlines, JobObservation};
use super::reconciler::JobReconciler;
use super::refusals::NAME_TAKEN;
use super::tasks::{TaskKind, WorkItem};
use super::widths::Widths;
use crate::controllers::times::{Clocks, after, distance};
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, JobStatus};
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::gate::Priority;
use streams_kubernetes::watch::version;
use streams_kubernetes::{Error, Key};

/// How long the number of a job waits for the ADL, so that one write records both (rule job-50).
const UNNUMBERED: Duration = Duration::from_secs(1);
/// The same in a crowd (rule call-25), and while its bundle waits for those of others: that takes few calls.
const UNNUMBERED_IN_A_CROWD: Duration = Duration::from_secs(60);

/// How long the API server, which has said that a job is gone, is not asked for it again (rule call-28).
const GONE: Duration = Duration::from_secs(10);

/// Observes everything that belongs to a job. Reads stored plans that are not in memory.
///
/// # Errors
/// A plan could not be read, for another reason than that chunks are missing. [`Error::Conflict`]: the API server does
/// not have the job any more.
pub(super) async fn observe<C: Cluster>(
    reconciler: &JobReconciler<C>,
    key: &Key,
    job: Arc<Job>,
) -> Result<(JobObservation, JobSnapshot), Error> {
    let job = answered(reconciler, key, job).await?;
    let status = job.status.clone().unwrap_or_default();
    let (plans, snapshot) = plans_of(reconciler, key, &job, &status).await?;
    let transport = look(reconciler, key, &job, &status, plans.settled.as_ref().map(|of| of.transport)).await;
    let now = reconciler.cluster.now();
    let requests = reconciler.all_requests(key, &job, &status).await?;
    let (Widths { desired, refused, to_take_over }, requests) =
        wishes(reconciler, &snapshot, &status, requests, now).await?;
    let spec_warnings = spec_warnings(reconciler, &snapshot, status.plan.as_ref(), &plans.refusals).await?;
    let mut objects = objects(reconciler, &snapshot, &status, &plans, transport.as_ref(), now).await?;
    let unnumbered_until = unnumbered_until(reconciler, key, &snapshot, &status, now);
    let remembered = remembered(reconciler, &snapshot, &status, &plans, &mut objects, now);
    let in_the_way = in_the_way_of(reconciler, &snapshot, &plans, &objects.children, &remembered);
    let observed = JobObservation {
        name: key.name.to_string(),
        now,
        spec_generation: job.metadata.generation.unwrap_or_default(),
        suspended: job.spec.suspend,
        bundle: job.spec.bundle.clone(),
        inputs: compilation::inputs(
            &job,
            status.job_id.unwrap_or_default(),
            status.adl.as_ref().map_or("", |adl| adl.sha256.as_str()),
        ),
        spec_warnings,
        refusal: compilation::refusal(&plans.refusals),
        deadlines: Deadlines {
            submission: job.spec.submission_time_out(),
            resize: reconciler.settings.resize_seconds,
            roll_out: reconciler
                .settings
                .resize_seconds
                .saturating_add(job.spec.min_ready().unwrap_or(reconciler.settings.min_ready_seconds)),
            max_attempts: reconciler.settings.submission_attempts,
        },
        status,
        unnumbered_until,
        worked: remembered.worked,
        committed: plans.committed,
        proposed: plans.proposed,
        desired_widths: desired,
        refused_widths: refused,
        widths_to_take_over: to_take_over,
        requests,
        has_given_up: remembered.has_given_up,
        unanswered_until: remembered.unanswered_until,
        proposed_at: remembered.proposed_at,
        cannot_store_proposal: remembered.cannot_store_proposal,
        job_config_map: objects.job_config_map,
        max_unavailable: job.spec.max_unavailable(),
        children: objects.children,
        transport,
        tasks: remembered.tasks,
        written_until: remembered.written_until,
        last_failure: remembered.last_failure,
        held_up: remembered.held_up,
        refusals_are_over: remembered.refusals_are_over,
        in_the_way,
        contended: remembered.contended,
        outdated: remembered.outdated,
        rewrites: remembered.is_inherited.then(|| reconciler.rewrites.left(now)),
    };
    Ok((observed, snapshot))
}

/// What is in the way of the job, in words, while the name of an object is known to be taken.
fn in_the_way_of<C>(
    reconciler: &JobReconciler<C>,
    snapshot: &JobSnapshot,
    plans: &Plans,
    children: &Children,
    remembered: &Remembrance,
) -> String {
    let is_wanted = |id: &u64| plans.wanted().any(|wanted| wanted.processing_elements.contains_key(id));
    let is_taken = children.taken.iter().any(is_wanted)
        || remembered.last_failure.as_ref().is_some_and(|failure| failure.reason == NAME_TAKEN)
        || remembered.tasks.failures().any(|failure| failure.reason == NAME_TAKEN);
    if is_taken {
        in_the_way(&reconciler.mirrors, &snapshot.key, &snapshot.job, &children.taken)
    } else {
        String::new()
    }
}

/// The job as it is seen; or as the API server has it, once a write that was not answered cannot have its effect any
/// more and is not seen, or if what is seen is older than what was looked at or written before (rule call-28).
///
/// # Errors
/// [`Error::Conflict`]: the API server does not have it any more, and the mirror does not know that yet. Objects that
/// the garbage collector deletes would be made again and again.
async fn answered<C: Cluster>(reconciler: &JobReconciler<C>, key: &Key, job: Arc<Job>) -> Result<Arc<Job>, Error> {
    let uid = job.metadata.uid.clone().unwrap_or_default();
    let seen = version(&job.metadata);
    let clocks = Clocks::of(&reconciler.cluster);
    let gone = || Error::Conflict { kind: Job::kind(&()).into_owned(), name: key.name.to_string() };
    let known = |entry: &mut Entry| {
        (entry.unanswered_until(seen, clocks), entry.is_behind(seen), entry.gone_for(clocks.passed))
    };
    let (until, is_behind, gone_for) = reconciler.memory.find(key, &uid, known).unwrap_or_default();
    if gone_for.is_some_and(|since| since < GONE) {
        return Err(gone());
    }
    let is_over = until.is_some_and(|until| clocks.now >= until);
    if !is_over && !is_behind && gone_for.is_none() {
        return Ok(job);
    }
    let asked = Priority::Awaited.of(reconciler.cluster.get::<Job>(key)).await?;
    if is_over {
        reconciler.memory.find(key, &uid, Entry::was_answered);
    }
    if !reconciler.memory.told(key, &uid, asked, reconciler.cluster.passed()) {
        return Err(gone());
    }
    Ok(reconciler.memory.latest(key, job))
}

/// Until when the number of a job waits for the ADL (rule job-50).
fn unnumbered_until<C: Cluster>(
    reconciler: &JobReconciler<C>,
    key: &Key,
    snapshot: &JobSnapshot,
    status: &JobStatus,
    now: Timestamp,
) -> Option<Timestamp> {
    let since = reconciler.memory.with(key, snapshot.uid(), |entry| {
        let since = &mut entry.unnumbered_since;
        if status.job_id.is_some() {
            *since = None;
            return None;
        }
        Some(*since.get_or_insert(now))
    })?;
    let bundle = WorkItem { job: key.clone(), kind: TaskKind::Fetch };
    let waits = reconciler.cluster.was_crowded(&key.namespace) || reconciler.downloads.is_waiting(&bundle);
    let most = if waits { UNNUMBERED_IN_A_CROWD } else { UNNUMBERED };
    (distance(since, now) < most).then(|| after(since, most))
}
