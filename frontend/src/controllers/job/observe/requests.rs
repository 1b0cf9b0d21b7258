//! The requests to resize of a job, as they were written last.
//!
//! The status of a job names requests by their numbers ([`named`]). A process that has just begun to lead may see the
//! job as it is, and requests as they were before they had numbers. What it does not see is not gone: it asks the API
//! server before it says so: by their names if it has seen them before, which costs a call each, else for all requests
//! of the job.
//!
//! How much of them is in memory is bounded ([`in_part`](super::super::requests::in_part)): of one job, and of all jobs
//! together. Where much is to be read, one job is looked at after another; namespaces take turns. Of the answer of the
//! API server there is a small page at a time (rule call-24).
//!
//! Knows: the mirror, what this process has written, the API server. Must not know: what becomes of requests.

use crate::controllers::job::memory::{Entry, FullRequest};
use crate::controllers::job::off_thread::{not_computed, off_thread_if_many};
use crate::controllers::job::reconciler::JobReconciler;
use crate::controllers::job::requests::amount_of_unread;
use crate::controllers::job::requests::in_part::{InPart, LARGE, MUCH, octets_of, room_of, until_shown, with_regions};
use crate::controllers::job::requests::named::{named, names_of};
use crate::controllers::job::requests::standing::is_of;
use crate::fair_semaphore::FairPermit;
use crate::mirrors::{ByOwner as _, trim};
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt as _;
use kube::api::ListParams;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;
use streams_api::{Job, JobStatus, Resize, names};
use streams_kubernetes::cluster::{Cluster, SMALL_PAGE};
use streams_kubernetes::gate::Priority;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes::watch::version;
use streams_kubernetes::{Error, Key};

/// How long an answer of the API server holds.
const ASKED_FOR: SignedDuration = SignedDuration::from_secs(10);

impl<C: Cluster> JobReconciler<C> {
    /// The requests of a job that stay, each as it was written last. Asks the API server for them, if the status names
    /// some that the mirror does not show.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(super) async fn all_requests(&self, key: &Key, job: &Job, status: &JobStatus) -> Result<JobRequests, Error> {
        let uid = job.metadata.uid.clone().unwrap_or_default();
        let now = self.cluster.now();
        let named = named(status);
        let mut missing = named.clone();
        self.memory.with(key, &uid, |entry| {
            let answer = &mut entry.named_requests;
            if answer.until.is_some_and(|until| now >= until) {
                (answer.found, answer.asked, answer.until) = (BTreeSet::new(), BTreeSet::new(), None);
            }
            answer.gone.retain(|number| missing.contains(number));
            missing.retain(|number| !answer.gone.contains(number));
        });
        let requests = self.read_requests(key, job).await?;
        let open = names_of(requests.iter().map(|request| &**request));
        self.memory.with(key, &uid, |entry| entry.named_requests.note_open(open, &named));
        let numbers = |requests: &[Arc<Resize>]| -> BTreeSet<u64> {
            requests.iter().filter_map(|request| request.status.as_ref()?.number).collect()
        };
        if !missing.is_empty() {
            let shown = numbers(&requests);
            missing.retain(|number| !shown.contains(number));
        }
        let is_asked = || self.memory.with(key, &uid, |entry| missing.is_subset(&entry.named_requests.asked));
        if missing.is_empty() || is_asked() {
            return Ok(requests);
        }
        let known: BTreeMap<String, u64> =
            requests.iter().map(|request| (request.name_any(), version(&request.metadata))).collect();
        // Other jobs with large ones need not wait for the API server.
        drop(requests);
        let (mut there, mut latest) = (BTreeSet::new(), Vec::new());
        let mut look = |page: Vec<Resize>| {
            let page: Vec<_> = page.into_iter().filter(|request| is_ours(request, job)).map(trimmed).collect();
            there.extend(numbers(&page));
            let is_latest = |request: &Arc<Resize>| {
                known.get(&request.name_any()).is_none_or(|known| *known < version(&request.metadata))
            };
            latest.extend(page.into_iter().filter(is_latest));
            latest = until_shown(std::mem::take(&mut latest));
        };
        let known_names = self.memory.with(key, &uid, |entry| entry.named_requests.names(&missing));
        let are_read = match known_names {
            Some(names) => self.each_request(key, names, &mut look).await?,
            None => false,
        };
        if !are_read {
            // Anybody may give the label to as many requests as he likes, with as much in each as there is room for.
            let of_job = format!("{}={}", names::LABEL_JOB, key.name);
            let of_job = ListParams::default().labels(&of_job).limit(SMALL_PAGE);
            Priority::Awaited.of(self.cluster.each_page(Some(&*key.namespace), &of_job, look)).await?;
        }
        self.memory.with(key, &uid, |entry| {
            let answer = &mut entry.named_requests;
            answer.until = now.checked_add(ASKED_FOR).ok();
            answer.gone.extend(missing.difference(&there));
            answer.asked.clone_from(&missing);
            for request in latest {
                let name = request.name_any();
                answer.found.insert(name.clone());
                entry.requests.insert(name, request);
            }
        });
        self.read_requests(key, job).await
    }

    /// Calls `look` with each request of these names that the API server has: never is there more than one of them in
    /// memory. Says whether all could be read; in a list one that cannot be is left out.
    ///
    /// # Errors
    /// The API server does not answer. A list would cost it more.
    async fn each_request(
        &self,
        key: &Key,
        names: Vec<String>,
        look: &mut (impl FnMut(Vec<Resize>) + Send),
    ) -> Result<bool, Error> {
        for name in names {
            let key = key.sibling(&name);
            match Priority::Awaited.of(self.cluster.get::<Resize>(&key)).await {
                Ok(read) => look(read.into_iter().collect()),
                Err(kube::Error::SerdeError(_)) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

/// The requests of a job, as far as somebody needs them.
pub(in super::super) struct JobRequests {
    requests: Vec<Arc<Resize>>,
    /// While there are many.
    _turn: Option<FairPermit>,
}

impl Deref for JobRequests {
    type Target = [Arc<Resize>];

    fn deref(&self) -> &[Arc<Resize>] {
        &self.requests
    }
}

/// Whether it is a request of the job that stays.
fn is_ours(request: &Resize, job: &Job) -> bool {
    is_controlled_by(&request.metadata, job) && is_of(request, job) && request.metadata.deletion_timestamp.is_none()
}

/// A request as the mirror keeps it.
fn trimmed(mut request: Resize) -> Arc<Resize> {
    trim::request(&mut request);
    Arc::new(request)
}

/// Whether nothing can be made of a request as it is: it is one of these, whose objects have no room for a status.
fn is_full(full: &BTreeMap<String, FullRequest>, request: &Resize) -> bool {
    let full = request.metadata.uid.as_ref().and_then(|uid| full.get(uid));
    full.is_some_and(|full| full.version == version(&request.metadata))
}

/// What this process has written of the requests of a job.
#[derive(Default)]
struct OwnRequests {
    /// By name, as the API server answered.
    latest: BTreeMap<String, Arc<Resize>>,
    /// Those that the API server has, whether the mirror shows them or not.
    found: BTreeSet<String>,
}

impl<C> JobReconciler<C> {
    /// The requests of a job that stay, each as it was written last: the mirror may not show that yet. Many are read on
    /// a thread that serves nobody else. So are few that are long, and where all of them together are, one job is read
    /// at a time.
    ///
    /// # Errors
    /// Reading panicked.
    pub(in super::super) async fn read_requests(&self, key: &Key, job: &Job) -> Result<JobRequests, Error> {
        let seen = || (self.own_requests(key, job), self.mirrors.resizes.kept_of_job(key));
        let (mut own, mut kept) = seen();
        let mut turn = None;
        if octets_of(&kept) >= MUCH {
            turn = Some(self.large_looks.acquire(&key.namespace).await);
            // What has come meanwhile is there as well.
            (own, kept) = seen();
        }
        let amount = amount_of_unread(kept.len(), octets_of(&kept));
        let read = || kept.into_iter().filter_map(|(_, kept)| InPart::of(kept)).collect::<Vec<_>>();
        let shown = off_thread_if_many(amount, read).await.map_err(not_computed)?;
        let all = self.latest_requests(key, job, own, shown);
        let is_large = room_of(&all) >= LARGE;
        if is_large && turn.is_none() {
            turn = Some(self.large_looks.acquire(&key.namespace).await);
        }
        let read = move || {
            let requests = with_regions(all);
            // What takes little memory once it is read keeps nobody waiting.
            JobRequests { requests, _turn: turn.filter(|_| is_large) }
        };
        off_thread_if_many(amount, read).await.map_err(not_computed)
    }

    /// The same, on this thread.
    #[cfg(test)]
    pub(in super::super) fn requests(&self, key: &Key, job: &Job) -> Vec<Arc<Resize>> {
        let own = self.own_requests(key, job);
        let kept = self.mirrors.resizes.kept_of_job(key);
        let shown = kept.into_iter().filter_map(|(_, kept)| InPart::of(kept)).collect();
        with_regions(self.latest_requests(key, job, own, shown))
    }

    /// What this process has written of the requests of a job, and the mirror has not shown yet. It is to be looked up
    /// before the mirror is: long work looks at the requests as well, and what the mirror shows by then is forgotten.
    fn own_requests(&self, key: &Key, job: &Job) -> OwnRequests {
        let uid = job.metadata.uid.clone().unwrap_or_default();
        let own = |entry: &mut Entry| OwnRequests {
            latest: entry.requests.clone(),
            found: entry.named_requests.found.clone(),
        };
        self.memory.find(key, &uid, own).unwrap_or_default()
    }

    /// The requests of a job that stay, given what this process has written and what the mirror has shown after that.
    fn latest_requests(
        &self,
        key: &Key,
        job: &Job,
        OwnRequests { latest: mut own, found }: OwnRequests,
        shown: Vec<InPart>,
    ) -> Vec<InPart> {
        let mut all: Vec<InPart> = shown.into_iter().filter(|part| is_ours(part.request(), job)).collect();
        let versions: BTreeMap<String, (Option<String>, u64)> = all
            .iter()
            .map(InPart::request)
            .map(|shown| (shown.name_any(), (shown.metadata.uid.clone(), version(&shown.metadata))))
            .collect();
        // What the mirror shows as new or does not have any more is not kept.
        let counts = |name: &String, own: &Resize, found: &BTreeSet<String>| match versions.get(name) {
            Some((uid, shown)) => own.metadata.uid == *uid && version(&own.metadata) > *shown,
            None => found.contains(name),
        };
        let uid = job.metadata.uid.clone().unwrap_or_default();
        let full = self.memory.find(key, &uid, |entry| {
            entry.named_requests.found.retain(|name| !versions.contains_key(name));
            let found = &entry.named_requests.found;
            entry.requests.retain(|name, own| counts(name, own, found));
            entry.full_requests.retain(|uid, full| {
                let shown = versions.get(&full.name);
                shown.is_some_and(|(of, shown)| of.as_ref() == Some(uid) && *shown <= full.version)
            });
            entry.full_requests.clone()
        });
        own.retain(|name, own| counts(name, own, &found));
        for shown in &mut all {
            if let Some(own) = own.remove(&shown.request().name_any()) {
                *shown = InPart::whole(own);
            }
        }
        all.extend(own.into_values().map(InPart::whole));
        let full = full.unwrap_or_default();
        all.retain(|part| !is_full(&full, part.request()));
        all
    }

    /// The request of this name, as [`Self::requests`] has it; the others are not read for it.
    pub(in super::super) fn request(&self, key: &Key, job: &Job, name: &str) -> Option<Arc<Resize>> {
        let shown = self.mirrors.resizes.get(&key.sibling(name)).filter(|request| is_ours(request, job));
        let uid = job.metadata.uid.clone().unwrap_or_default();
        let known = self.memory.find(key, &uid, |entry| {
            let latest = entry.requests.get(name).filter(|latest| {
                let is_newer = |shown: &Arc<Resize>| {
                    latest.metadata.uid == shown.metadata.uid && version(&latest.metadata) > version(&shown.metadata)
                };
                shown.as_ref().map_or_else(|| entry.named_requests.found.contains(name), is_newer)
            });
            latest.or(shown.as_ref()).filter(|request| !is_full(&entry.full_requests, request)).cloned()
        });
        known.unwrap_or(shown)
    }
}
