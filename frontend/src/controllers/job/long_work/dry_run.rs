//! Dry runs of requests to resize (rule elasticity-24): what a request would come to, with nothing written.
//!
//! A request is admitted as the controller would admit it, and compiled as in [`compile`](super::compile), on top of
//! the committed generation alone; the plan is checked in the same way. Every replica of the frontend can do that, the
//! leader or not: all that is needed is in the mirrors and in the chunks of the plan.
//!
//! Knows: mirrors, chunks, the fusion service. Must not know: what other work the job controller has under way.
//!
//! Bounds: whoever asks for dry runs bounds how many there are; the fusion service does them after everything else.

use super::check;
use super::compile::resize_request;
use super::error::WorkError;
use super::existing_pes::existing_pes;
use super::fetch::ADL_MAX;
use crate::controllers::job::compilation::repeated;
use crate::controllers::job::documents;
use crate::controllers::job::documents::chunks::Document;
use crate::controllers::job::generation::{Generation, GenerationDetails, Target};
use crate::controllers::job::off_thread::{off_thread, off_thread_if_many};
use crate::controllers::job::requests::admission::{admit_all, ended};
use crate::controllers::job::requests::amount_of_unread;
use crate::controllers::job::requests::in_part::{InPart, octets_of, with_regions};
use crate::controllers::job::requests::standing::{Circumstances, is_of};
use crate::fusion;
use crate::made_by_job::is_region_of;
use crate::mirrors::{ByOwner as _, Mirrors};
use crate::settings::JobSettings;
use bytes::Bytes;
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use std::collections::BTreeSet;
use std::sync::Arc;
use streams_api::{
    Job, PePhase, ProcessingElementStatus, Resize, ResizeChanges, ResizePhase, ResizePolicy, StoredPlan,
};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::gate::Priority;
use streams_kubernetes::ownership::is_controlled_by;
use streams_proto::fusion::v1::plan_request::What;
use streams_proto::fusion::v1::resize_request::Policy;
use streams_proto::fusion::v1::{Fate, PlanRequest, PlanResponse, ProcessingElement, Warning};

/// Who plans without carrying out.
pub(crate) trait Planner: Send + Sync {
    /// Plans; contents that are not in the request are not sent.
    fn plan(&self, request: PlanRequest) -> BoxFuture<'_, Result<PlanResponse, fusion::FusionError>>;
}

impl Planner for fusion::Client {
    fn plan(&self, request: PlanRequest) -> BoxFuture<'_, Result<PlanResponse, fusion::FusionError>> {
        Box::pin(self.plan(request))
    }
}

/// What a request would come to.
#[derive(Debug)]
pub(crate) enum Foreseen {
    /// It would end like this: its status says why.
    Refused(Box<Resize>),
    /// Its widths are in force already, in this generation.
    InForce(u64),
    /// A generation.
    Planned(Foresight),
}

/// The generation that a request would come to.
#[derive(Debug)]
pub(crate) struct Foresight {
    /// Its number.
    pub(crate) generation: u64,
    /// What it would do to PEs.
    pub(crate) changes: ResizeChanges,
    /// PEs that would not keep their pods as they are, by id.
    pub(crate) changed: Vec<ProcessingElement>,
    /// What users should know.
    pub(crate) warnings: Vec<Warning>,
}

/// It is not known what a request would come to, and may be later; why, for people.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unforeseen(pub(crate) String);

impl From<streams_kubernetes::Error> for Unforeseen {
    fn from(error: streams_kubernetes::Error) -> Self {
        Self(error.to_string())
    }
}

/// Who foresees.
pub(crate) trait Foresee: Send + Sync {
    /// What this request, which is not stored, would come to if it were made now. It is to be waited for to the end:
    /// what it does on other threads goes on without whoever waits, and is counted by nobody then.
    ///
    /// # Errors
    /// It is not known.
    fn foresee<'a>(&'a self, job: &'a Job, request: Resize) -> BoxFuture<'a, Result<Foreseen, Unforeseen>>;
}

/// Dry runs over the mirrors.
pub(crate) struct DryRuns<C> {
    cluster: C,
    mirrors: Mirrors,
    planner: Arc<dyn Planner>,
    settings: JobSettings,
}

impl<C: Cluster> Foresee for DryRuns<C> {
    fn foresee<'a>(&'a self, job: &'a Job, request: Resize) -> BoxFuture<'a, Result<Foreseen, Unforeseen>> {
        Box::pin(Priority::Telling.of(self.look(job, request)))
    }
}

impl<C: Cluster> DryRuns<C> {
    /// Dry runs of requests of the jobs of these mirrors.
    pub(crate) fn new(cluster: C, mirrors: Mirrors, planner: Arc<dyn Planner>, settings: JobSettings) -> Self {
        Self { cluster, mirrors, planner, settings }
    }

    async fn look(&self, job: &Job, request: Resize) -> Result<Foreseen, Unforeseen> {
        let key = Key::of(job);
        let request = self.admitted(&key, job, request).await?;
        if request.phase() == ResizePhase::Refused {
            return Ok(Foreseen::Refused(Box::new(request)));
        }
        let stored = job.status.as_ref().and_then(|status| status.plan.as_ref());
        let stored = stored.ok_or_else(|| Unforeseen("the job has no plan yet".to_owned()))?;
        let previous = Arc::new(self.generation(&key, stored).await?);
        let mut widths = previous.widths();
        widths.extend(request.spec.regions.iter().map(|wanted| (wanted.name.clone(), wanted.width)));
        if widths == previous.widths() {
            return Ok(Foreseen::InForce(previous.number));
        }
        let rebalances = request.spec.policy == ResizePolicy::Rebalance;
        let policy = if rebalances { Policy::Rebalance } else { Policy::Sticky };
        let existing = existing_pes(&self.mirrors, &key, job, &previous, |_, _| None, BTreeSet::new()).await;
        let existing = existing.map_err(|error| Unforeseen(error.message))?;
        let resize = resize_request(&previous, &widths, policy, existing, None);
        let planned =
            match self.plan(&key, job, PlanRequest { what: Some(What::Resize(resize)), include_plan: true }).await {
                Ok(planned) => planned,
                Err(error) => return refused_or_later(request, error, self.cluster.now()),
            };
        let Some(plan) = planned.plan else {
            return Err(Unforeseen("the fusion service answered without a plan".to_owned()));
        };
        let mut warnings = planned.warnings;
        match check::check(&key.name, &plan, &self.settings, Some(&previous.plan)) {
            Ok(more) => warnings.extend(more.into_iter().chain(check::unmeasured(&plan))),
            Err(error) => return refused_or_later(request, error, self.cluster.now()),
        }
        let target = Target::Resize { widths, rebalances };
        let details = GenerationDetails { nodes: previous.nodes.clone(), ..GenerationDetails::default() };
        let generation = Generation::following(Some(&*previous), target, repeated(&previous), plan, details);
        let (generation, size) = off_thread(move || {
            let size = generation.encoded_len();
            (generation, size)
        })
        .await
        .map_err(|error| Unforeseen(error.to_string()))?;
        if let Err(error) = check::fits(size, self.settings.max_plan_mib) {
            return refused_or_later(request, error, self.cluster.now());
        }
        let stay = self.without_pods(&key).await?;
        Ok(Foreseen::Planned(foresight(generation, &stay, warnings)))
    }

    /// The request with the status that admission would give it now.
    async fn admitted(&self, key: &Key, job: &Job, mut request: Resize) -> Result<Resize, Unforeseen> {
        let now = self.cluster.now();
        let regions = self.mirrors.parallel_regions.kept_of_job(key);
        let others = self.mirrors.resizes.kept_of_job(key);
        let amount = amount_of_unread(others.len(), octets_of(&others)).saturating_add(regions.len());
        let job = job.clone();
        // The newest of them.
        request.metadata.creation_timestamp = Some(Time(now));
        let admitted = off_thread_if_many(amount, move || {
            let regions: Vec<_> = regions.into_iter().filter_map(|(_, region)| region.read()).collect();
            let stays = |meta: &ObjectMeta| is_controlled_by(meta, &job) && meta.deletion_timestamp.is_none();
            let regions: Vec<_> = regions
                .iter()
                .map(|region| &**region)
                .filter(|region| stays(&region.metadata) && is_region_of(region, &job))
                .collect();
            let others = others.into_iter().filter_map(|(_, other)| InPart::of(other));
            let others = others.filter(|other| stays(&other.request().metadata) && is_of(other.request(), &job));
            let others = with_regions(others.collect());
            let requests: Vec<_> = others.iter().map(|other| &**other).chain([&request]).collect();
            let status = job.status.clone().unwrap_or_default();
            let of = Circumstances::new(&job.spec, &status, &regions, &requests);
            let judged = admit_all(&of, status.admitted_resizes, now).into_iter();
            let said = judged.rev().find(|(judged, _)| std::ptr::eq(*judged, &request)).map(|(_, said)| said);
            said.map(|said| Resize { status: Some(said), ..request.clone() })
        });
        let admitted = admitted.await.map_err(|error| Unforeseen(error.to_string()))?;
        let why = "it depends on what becomes of a request that is not committed yet and wants another width of one of \
                   the regions, or on the object of a region, which is missing";
        admitted.ok_or_else(|| Unforeseen(why.to_owned()))
    }

    /// The committed generation.
    async fn generation(&self, key: &Key, stored: &StoredPlan) -> Result<Generation, Unforeseen> {
        let StoredPlan { generation, sha256, chunks, compiler: _ } = stored;
        let limit = self.settings.max_plan_mib << 20;
        let document = Document::Plan { generation: *generation };
        let read = documents::read(&self.cluster, key, &document, sha256, *chunks, limit).await?;
        let bytes = read.map_err(|incomplete| Unforeseen(incomplete.to_string()))?;
        let decoded = off_thread(move || Generation::decode(&bytes)).await;
        let decoded = decoded.map_err(|error| Unforeseen(error.to_string()))?;
        decoded.map_err(|unreadable| Unforeseen(unreadable.to_string()))
    }

    /// Asks the fusion service, which most often knows the ADL already.
    async fn plan(&self, key: &Key, job: &Job, mut request: PlanRequest) -> Result<PlanResponse, WorkError> {
        match self.planner.plan(request.clone()).await {
            Err(fusion::FusionError::InputMissing(_)) => {}
            answer => return Ok(answer?),
        }
        let adl = self.adl(key, job).await?;
        if let Some(What::Resize(resize)) = &mut request.what
            && let Some(blob) = resize.compilation.as_mut().and_then(|compilation| compilation.adl.as_mut())
        {
            blob.content = Some(adl);
        }
        Ok(self.planner.plan(request).await?)
    }

    /// The pinned ADL.
    async fn adl(&self, key: &Key, job: &Job) -> Result<Bytes, WorkError> {
        let stored = job.status.as_ref().and_then(|status| status.adl.as_ref());
        let stored = stored.ok_or_else(|| WorkError::transient("AdlMissing", "the ADL has not been fetched yet"))?;
        let read = documents::read(&self.cluster, key, &Document::Adl, &stored.sha256, stored.chunks, ADL_MAX).await?;
        read.map_err(|incomplete| WorkError::transient("AdlMissing", incomplete.to_string()))
    }

    /// PEs that take another text without a pod: those that have completed, or were stopped, or are suspended (rule
    /// job-53).
    async fn without_pods(&self, key: &Key) -> Result<BTreeSet<u64>, Unforeseen> {
        let pes = self.mirrors.processing_elements.kept_of_job(key);
        let is_suspended = self.mirrors.jobs.get(key).is_some_and(|job| job.spec.suspend);
        let found = off_thread_if_many(pes.len(), move || {
            let is_done = |status: &ProcessingElementStatus| status.stopped || status.phase == Some(PePhase::Completed);
            let pes = pes.into_iter().filter_map(|(_, pe)| pe.read()).filter(|pe| !pe.is_copy());
            let stay = pes.filter(|pe| is_suspended || pe.status.as_ref().is_some_and(is_done));
            stay.map(|pe| pe.spec.id).collect()
        });
        found.await.map_err(|error| Unforeseen(error.to_string()))
    }
}

/// What a generation would do to PEs, of which these take their texts without a pod.
fn foresight(generation: Generation, without_pods: &BTreeSet<u64>, warnings: Vec<Warning>) -> Foresight {
    let (number, mut changes) = (generation.number, generation.changes());
    let mut changed = generation.plan.processing_elements;
    let is_kept = |pe: &ProcessingElement| pe.fate() == Fate::Restarted && without_pods.contains(&pe.id);
    let kept = u32::try_from(changed.iter().filter(|pe| is_kept(pe)).count()).unwrap_or(u32::MAX);
    (changes.kept, changes.restarted) = (changes.kept.saturating_add(kept), changes.restarted.saturating_sub(kept));
    changed.retain(|pe| !matches!(pe.fate(), Fate::Kept | Fate::KeptUnobservable) && !is_kept(pe));
    Foresight { generation: number, changes, changed, warnings }
}

/// What an error of the work means for a request.
fn refused_or_later(
    mut request: Resize,
    error: WorkError,
    now: k8s_openapi::jiff::Timestamp,
) -> Result<Foreseen, Unforeseen> {
    if error.retry || error.recompile {
        return Err(Unforeseen(error.message));
    }
    let before = request.status.take().unwrap_or_default();
    let mut status = ended(before, ResizePhase::Refused, &error.reason, &error.message, now);
    (status.stage, status.code) = (error.stage, error.code);
    request.status = Some(status);
    Ok(Foreseen::Refused(Box::new(request)))
}
