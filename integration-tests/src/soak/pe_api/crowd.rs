//! The PEs of a job: each of its pods that runs is one, from the address of that pod.
//!
//! Knows: pods and PEs as objects. Must not know: what a PE does. Invariant: whoever runs has a pod that runs.

use super::links::Links;
use super::pe::{Identity, Pe, Surroundings, Told, lock};
use crate::system::job::ObservedJob;
use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams_api::{Connectivity, ProcessingElement, names};
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// How long it takes from a pod that runs to a PE that does, in milliseconds.
const STARTS: std::ops::Range<u64> = 100..1_500;
/// Time between two looks at what has been told.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Objects of a list are read in pages.
const PAGE: u32 = 500;
/// PEs that a message names.
const NAMED: usize = 5;

/// A pod that runs.
#[derive(Debug)]
struct Member {
    identity: Identity,
    /// Nothing, as long as nobody asks and reports.
    voice: Option<Voice>,
}

/// A PE at work. It ends with this value.
#[derive(Debug)]
struct Voice {
    told: Arc<Mutex<Told>>,
    task: AbortHandle,
}

impl Drop for Voice {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
struct Shared {
    job: ObservedJob,
    job_id: u64,
    around: Surroundings,
    members: Mutex<BTreeMap<String, Member>>,
    /// Whether PEs ask and report.
    is_awake: Mutex<bool>,
    /// Operators by the uid of their PE.
    operators: Mutex<BTreeMap<String, String>>,
    random: Mutex<fastrand::Rng>,
}

/// The PEs of a job. They end with this value.
#[derive(Debug)]
pub(super) struct Crowd {
    shared: Arc<Shared>,
    watching: AbortHandle,
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.watching.abort();
        lock(&self.shared.members).clear();
    }
}

impl Crowd {
    /// The PEs of a job, which ask nothing yet.
    ///
    /// # Errors
    /// When the job has no number, or its PEs cannot be listed.
    pub(super) async fn of(job: &ObservedJob, around: Surroundings, seed: u64) -> Result<Self> {
        let job_id = job.status().await?.job_id.context("the job has no number")?;
        let shared = Arc::new(Shared {
            job: job.clone(),
            job_id,
            around,
            members: Mutex::default(),
            is_awake: Mutex::default(),
            operators: Mutex::default(),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
        });
        for pe in shared.elements().await? {
            shared.know(&pe);
        }
        let watching = tokio::spawn(Arc::clone(&shared).watch()).abort_handle();
        Ok(Self { shared, watching })
    }

    /// The connections of the job.
    pub(super) fn links(&self) -> &Links {
        &self.shared.around.links
    }

    /// All PEs start within this time, and whatever starts later does so soon.
    pub(super) fn wake(&self, within: Duration) {
        *lock(&self.shared.is_awake) = true;
        for member in lock(&self.shared.members).values_mut().filter(|member| member.voice.is_none()) {
            let delay = within.mul_f64(lock(&self.shared.random).f64());
            self.shared.start(member, delay);
        }
    }

    /// How many pods run.
    pub(super) fn len(&self) -> usize {
        lock(&self.shared.members).len()
    }

    /// Resets that PEs were told.
    pub(super) fn resets(&self) -> u64 {
        let members = lock(&self.shared.members);
        members.values().filter_map(|member| member.voice.as_ref()).map(|voice| lock(&voice.told).resets).sum()
    }

    /// The PE of an operator.
    ///
    /// # Errors
    /// When it has none that runs.
    pub(super) fn identity(&self, operator: &str) -> Result<Identity> {
        let members = lock(&self.shared.members);
        let found = members.values().find(|member| member.identity.operator == operator);
        found.map(|member| member.identity.clone()).with_context(|| format!("{operator} does not run"))
    }

    /// How many PEs have something to tell that nobody has answered; none, as long as they ask and report nothing.
    fn untold(&self) -> usize {
        if !*lock(&self.shared.is_awake) {
            return 0;
        }
        lock(&self.shared.members).values().filter(|member| !self.has_told(member)).count()
    }

    fn has_told(&self, member: &Member) -> bool {
        let is = self.links().connectivity(&member.identity.operator);
        let said = member.voice.as_ref().and_then(|voice| lock(&voice.told).said);
        is.is_some() && is == said
    }

    /// Waits until every PE has told what there is to tell, and was answered; says how long that took.
    ///
    /// # Errors
    /// When one has not within this time.
    pub(super) async fn all_told(&self, within: Duration) -> Result<Duration> {
        let since = Instant::now();
        while self.untold() > 0 {
            ensure!(since.elapsed() < within, "after {within:?} {} PEs have not told everything", self.untold());
            sleep(LOOK_EVERY).await;
        }
        Ok(since.elapsed())
    }

    /// Reports that were answered and are not in the status of their PE, in words. All PEs must have told everything.
    ///
    /// # Errors
    /// When the PEs cannot be listed.
    pub(super) async fn lost(&self) -> Result<Vec<String>> {
        let elements = self.shared.elements().await?;
        let statuses: BTreeMap<u64, _> = elements.iter().map(|pe| (pe.spec.id, pe.status.as_ref())).collect();
        let mut lost = Vec::new();
        for member in lock(&self.shared.members).values().filter(|member| self.has_told(member)) {
            let Identity { job, pe, launch, .. } = &member.identity;
            let Some(said) = member.voice.as_ref().and_then(|voice| lock(&voice.told).said) else { continue };
            let known = statuses.get(pe).copied().flatten().and_then(|status| status.connectivity.as_ref());
            let known = known.filter(|known| known.launch_count == *launch).map_or(Connectivity::None, |of| of.state);
            if known != said {
                lost.push(format!("PE {pe} of {job} has told {said:?}, its status says {known:?}"));
            }
        }
        Ok(lost)
    }
}

/// A few of them, and how many there are.
pub(super) fn some(words: &[String]) -> String {
    format!("{}: {}", words.len(), words.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; "))
}

impl Shared {
    async fn elements(&self) -> Result<Vec<ProcessingElement>> {
        let api: Api<ProcessingElement> = self.job.api();
        let mut parameters =
            ListParams::default().labels(&format!("{}={}", names::LABEL_JOB, self.job.name())).limit(PAGE);
        let mut all = Vec::new();
        loop {
            let page = api.list(&parameters).await.context("the PEs cannot be listed")?;
            all.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    fn know(&self, pe: &ProcessingElement) {
        if let (Some(uid), Some(operator)) = (pe.uid(), pe.spec.operators.first()) {
            lock(&self.operators).insert(uid, operator.clone());
        }
    }

    /// Follows the pods until it is dropped.
    async fn watch(self: Arc<Self>) {
        let labels = format!("{}={}", names::LABEL_JOB, self.job.name());
        let mut events = pin!(watcher(self.job.api::<Pod>(), Config::default().labels(&labels)).default_backoff());
        let mut listed: BTreeSet<String> = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(pod)) => {
                    listed.extend(pod.uid());
                    self.look(&pod).await;
                }
                Ok(Event::InitDone) => lock(&self.members).retain(|uid, _| listed.contains(uid)),
                Ok(Event::Apply(pod)) => self.look(&pod).await,
                Ok(Event::Delete(pod)) => self.end(&pod.uid().unwrap_or_default()),
                // It is watched again.
                Err(_) => {}
            }
        }
    }

    async fn look(&self, pod: &Pod) {
        let Some(uid) = pod.uid() else { return };
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        if pod.metadata.deletion_timestamp.is_some() || matches!(phase, "Failed" | "Succeeded") {
            return self.end(&uid);
        }
        if phase != "Running" || lock(&self.members).contains_key(&uid) {
            return;
        }
        if let Some(identity) = self.identity(pod, &uid).await {
            let mut member = Member { identity, voice: None };
            if *lock(&self.is_awake) {
                let delay = Duration::from_millis(lock(&self.random).u64(STARTS));
                self.start(&mut member, delay);
            }
            lock(&self.members).insert(uid, member);
        }
    }

    fn end(&self, uid: &str) {
        let gone = lock(&self.members).remove(uid);
        if gone.is_some() {
            self.around.tally.forgive(uid);
        }
    }

    async fn identity(&self, pod: &Pod, uid: &str) -> Option<Identity> {
        let number = |label: &str| pod.labels().get(label)?.parse::<u64>().ok();
        let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true))?;
        let known = lock(&self.operators).get(&owner.uid).cloned();
        if known.is_none() {
            let pe = self.job.api::<ProcessingElement>().get_opt(&owner.name).await.ok()??;
            self.know(&pe);
        }
        Some(Identity {
            namespace: self.job.namespace().to_owned(),
            job: self.job.name().to_owned(),
            job_id: self.job_id,
            pe: number(names::LABEL_PE)?,
            launch: number(names::LABEL_LAUNCH_COUNT)?,
            operator: lock(&self.operators).get(&owner.uid).cloned()?,
            pod: uid.to_owned(),
            address: pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?,
        })
    }

    fn start(&self, member: &mut Member, delay: Duration) {
        let seed = lock(&self.random).u64(..);
        // Without descriptors there is no client: then this PE never tells anything, and that is found out.
        let Ok((pe, told)) = Pe::new(member.identity.clone(), self.around.clone(), seed) else { return };
        let task = tokio::spawn(async move {
            sleep(delay).await;
            pe.run().await;
        });
        member.voice = Some(Voice { told, task: task.abort_handle() });
    }
}
