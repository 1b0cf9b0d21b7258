//! Who asks, and what it may do (rule pe-api-1).
//!
//! Knows: addresses, pods, the names of the Services that lead here. Must not know: what is asked.

use super::PeApi;
use super::refusal::Refusal;
use crate::of_job::OfJob;
use crate::status_changes::Changer;
use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::Method;
use axum::http::header::HOST;
use axum::http::request::Parts;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, ProcessingElement, names};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::{controller, is_controlled_by};
use streams_kubernetes::watch::{Kept, Mirrored};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// How long a caller that nobody knows yet may wait until its address is known. The runtime waits a second in all.
const KNOWN_WITHIN: Duration = Duration::from_millis(500);
/// Who waits for news of any PE does not look at each of a crowd.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Who asks: the namespace that the request is about, and the PEs whose pods have the caller's address.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The namespace.
    pub(crate) namespace: String,
    /// Where it is.
    pub(super) address: IpAddr,
    /// PEs of this namespace that run at the address; usually one, none if a tool asks.
    pes: Vec<Speaker>,
    /// The job whose consistent regions the host of the request names.
    job_of_host: Option<String>,
}

/// The PE of which the caller is the pod.
pub(super) struct OwnPe {
    pub(super) key: Key,
    /// Another one that is made under its name later is another one.
    pub(super) uid: Option<String>,
    /// Launch count of the pod.
    pub(super) launch_count: u64,
}

/// What the mirrors show of a PE, of its job, and of the pods with an address. What was found by it is so as long as
/// they show the same.
struct Sight {
    job: Option<Kept<Job>>,
    element: Option<Kept<ProcessingElement>>,
    pods: Vec<Kept<Pod>>,
}

impl Sight {
    fn is_identical(&self, other: &Self) -> bool {
        are_identical(self.job.as_slice(), other.job.as_slice())
            && are_identical(self.element.as_slice(), other.element.as_slice())
            && are_identical(&self.pods, &other.pods)
    }
}

fn are_identical<K: Mirrored>(one: &[Kept<K>], other: &[Kept<K>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.is_identical(other))
}

/// A PE that may speak for itself and its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Speaker {
    /// Name of the job.
    pub(crate) job: String,
    /// Number of the PE.
    pub(crate) pe: u64,
    /// Launch count of the pod.
    pub(crate) launch_count: u64,
    /// When the pod was created, as the API server says.
    pub(super) pod_created: Option<Timestamp>,
    /// The job that the PE is of.
    of_job: OfJob,
    /// The job of this name, if one is there, is that one, and no later one.
    is_of_present_job: bool,
}

impl Caller {
    /// The job, if the caller speaks for a PE of the job of this name. One that an earlier job of the name has left
    /// behind does not.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn speaks_for(&self, job: &str) -> Result<&OfJob, Refusal> {
        self.may_change(job, |speaker| speaker.job == job && speaker.is_of_present_job)
    }

    /// The caller speaks for a PE of the same job as this one, which may have left both behind.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn speaks_beside(&self, element: &ProcessingElement) -> Result<(), Refusal> {
        let of_job = OfJob::of_child(&element.metadata, element.spec.job_id);
        let job = &element.spec.job_name;
        self.may_change(job, |speaker| speaker.job == *job && speaker.is_of(&of_job)).map(|_| ())
    }

    /// The caller, as one of the PEs of this job that ask for changes: jobs take turns, in each its PEs, and of a PE
    /// few changes are made at a time.
    pub(super) fn changer(&self, job: &str) -> Changer {
        let of_job = self.pes.iter().find(|speaker| speaker.job == job);
        let pe = of_job.map(|speaker| Key::new(&self.namespace, &names::processing_element(job, speaker.pe)));
        Changer { group: job.into(), one: pe.map(|pe| pe.to_string().into()) }
    }

    fn may_change(&self, job: &str, may: impl Fn(&Speaker) -> bool) -> Result<&OfJob, Refusal> {
        let words =
            || Refusal::Forbidden(format!("only PEs of job {job} may change it, from the addresses of their pods"));
        let found = self.pes.iter().find(|speaker| may(speaker));
        found.map(|speaker| &speaker.of_job).ok_or_else(words)
    }

    /// The pod that speaks for this PE.
    ///
    /// # Errors
    /// There is none: somebody else asks.
    pub(crate) fn speaks_as(&self, job: &str, pe: u64) -> Result<&Speaker, Refusal> {
        self.newest(|speaker| speaker.job == job && speaker.pe == pe).ok_or_else(|| Self::only(job, pe))
    }

    /// The pod that speaks for this PE of a job. One of an earlier job of the name does not.
    ///
    /// # Errors
    /// There is none: somebody else asks.
    pub(crate) fn speaks_as_of(&self, (job, of_job): (&str, &OfJob), pe: u64) -> Result<&Speaker, Refusal> {
        let found = self.newest(|speaker| speaker.job == job && speaker.pe == pe && speaker.is_of(of_job));
        found.ok_or_else(|| Self::only(job, pe))
    }

    /// The pod that speaks for one of these PEs of a job. One of an earlier job of the name does not.
    ///
    /// # Errors
    /// There is none: somebody else asks.
    pub(crate) fn speaks_as_one_of(&self, (job, of_job): (&str, &OfJob), pes: &[u64]) -> Result<&Speaker, Refusal> {
        let found = self.newest(|speaker| speaker.job == job && pes.contains(&speaker.pe) && speaker.is_of(of_job));
        let words =
            || Refusal::Forbidden("only PEs of the region may say so, from the addresses of their pods".to_owned());
        found.ok_or_else(words)
    }

    /// The pod of the latest launch of those that speak for such a PE.
    fn newest(&self, is_such: impl Fn(&Speaker) -> bool) -> Option<&Speaker> {
        self.pes.iter().filter(|speaker| is_such(speaker)).max_by_key(|speaker| speaker.launch_count)
    }

    fn only(job: &str, pe: u64) -> Refusal {
        Refusal::Forbidden(format!("only PE {pe} of job {job} may say so, from the address of its pod"))
    }

    /// The job whose consistent regions the request is about: their paths name none.
    ///
    /// # Errors
    /// Nothing says which.
    pub(crate) fn job_of_regions(&self) -> Result<&str, Refusal> {
        if let Some(job) = &self.job_of_host {
            return Ok(job);
        }
        let words = "neither the address of the caller nor the host of the request says which job is meant";
        let (first, rest) = self.pes.split_first().ok_or_else(|| Refusal::Forbidden(words.to_owned()))?;
        if rest.iter().all(|other| other.job == first.job) {
            Ok(&first.job)
        } else {
            Err(Refusal::Forbidden(words.to_owned()))
        }
    }

    /// The caller is a pod of this job, or may be: of that of the name that the mirror of jobs shows, which the mirror
    /// of this one's objects need not show yet. A pod of an earlier job of the name is none.
    pub(super) fn may_be_of(&self, (job, of_job): (&str, &OfJob)) -> bool {
        let mut of_name = self.pes.iter().filter(|speaker| speaker.job == job);
        of_name.any(|speaker| speaker.is_of_present_job || speaker.is_of(of_job))
    }
}

impl Speaker {
    /// The PE is of this job.
    pub(super) fn is_of(&self, of_job: &OfJob) -> bool {
        self.of_job.is_same(of_job)
    }
}

impl FromRequestParts<PeApi> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, api: &PeApi) -> Result<Self, Refusal> {
        let mirrors = &api.mirrors;
        let are_filled = api.boards.are_filled()
            && mirrors.pods.is_synced()
            && mirrors.processing_elements.is_synced()
            && mirrors.parallel_regions.is_synced()
            && mirrors.services.is_synced()
            && mirrors.consistent_regions.is_synced();
        if !are_filled {
            let refusal = Refusal::Later("the mirrors are not filled yet".to_owned());
            // Who tells something would take an answer for the end of it (rule pe-api-4).
            return Err(if is_write(&parts.method) { refusal.unheard(Instant::now()).await } else { refusal });
        }
        let Some(ConnectInfo(address)) = parts.extensions.get::<ConnectInfo<SocketAddr>>() else {
            return Err(Refusal::Forbidden("nobody knows who asks".to_owned()));
        };
        let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
        let named = host.and_then(namespace_of_host);
        let (since, is_write) = (Instant::now(), is_write(&parts.method));
        // Of a namespace that may not be read nothing is known, nor who is in it.
        let unread = |namespace: &str| mirrors.unread(namespace).map(Refusal::Later);
        if let Some(refusal) = named.and_then(unread) {
            return Err(if is_write { refusal.unheard(since).await } else { refusal });
        }
        let pods = if is_write { api.known_soon(address.ip(), named).await } else { api.callers.pods(address.ip()) };
        let namespace = match (pods.first(), named) {
            (_, Some(named)) => named.to_owned(),
            (Some(pod), None) if pods.iter().all(|other| other.namespace == pod.namespace) => pod.namespace.to_string(),
            (Some(_), None) => {
                return Err(Refusal::Forbidden("pods of several namespaces have this address".to_owned()));
            }
            (None, None) if mirrors.refusals.are_there_any() => {
                let words = || "it is not known whose pod asks: some namespaces may not be read".to_owned();
                let of_pod = api.callers.unread(address.ip()).and_then(|namespace| unread(&namespace));
                let refusal = of_pod.unwrap_or_else(|| Refusal::Later(words()));
                return Err(if is_write { refusal.unheard(since).await } else { refusal });
            }
            (None, None) => {
                let words = "no pod of a PE has this address, and the host of the request names no namespace";
                return Err(Refusal::Forbidden(words.to_owned()));
            }
        };
        let of_namespace: Vec<&Key> = pods.iter().filter(|pod| *pod.namespace == *namespace).collect();
        if of_namespace.is_empty() && !pods.is_empty() {
            let refusal = Refusal::Forbidden(format!("the caller is a pod of another namespace than {namespace}"));
            // It may have got the address of that one, and only this replica does not know yet.
            return Err(if is_write { refusal.unheard(since).await } else { refusal });
        }
        let speakers = of_namespace.into_iter().filter_map(|pod| speaker(api, pod));
        let job_of_host = host.and_then(job_of_host).map(str::to_owned);
        Ok(Self { namespace, address: address.ip(), pes: speakers.collect(), job_of_host })
    }
}

/// Whether somebody must speak for a job to do this.
fn is_write(method: &Method) -> bool {
    matches!(*method, Method::PUT | Method::PATCH | Method::DELETE)
}

impl PeApi {
    /// The pods with this address, as soon as the mirror shows one, of this namespace if one is named: a pod may be
    /// faster than the news of its address, and than the news that another pod does not have that any more.
    async fn known_soon(&self, address: IpAddr, namespace: Option<&str>) -> Vec<Key> {
        let mut changes = self.callers.changes();
        let known = async {
            loop {
                changes.mark_unchanged();
                let pods = self.callers.pods(address);
                let is_known = pods.iter().any(|pod| namespace.is_none_or(|namespace| *pod.namespace == *namespace));
                if is_known || changes.changed().await.is_err() {
                    return pods;
                }
            }
        };
        timeout(KNOWN_WITHIN, known).await.unwrap_or_else(|_| self.callers.pods(address))
    }

    /// The caller, as soon as the mirror shows its pod.
    pub(super) async fn caller_soon(&self, caller: Caller) -> Caller {
        if !caller.pes.is_empty() {
            return caller;
        }
        self.known_soon(caller.address, Some(&caller.namespace)).await;
        let pes = self.pods_of(&caller).iter().filter_map(|pod| speaker(self, pod)).collect();
        Caller { pes, ..caller }
    }

    /// The PE of this number, if the caller is its pod, as soon as the mirrors show all of that: a pod may be faster
    /// than the news of its PE.
    ///
    /// # Errors
    /// They do not show it in time: there is no such job or PE, or somebody else asks.
    pub(super) async fn own_pe_soon(&self, caller: &Caller, job: &str, pe: u64) -> Result<OwnPe, Refusal> {
        self.found_soon(caller, (job, pe), || self.own_pe(caller, job, pe)).await
    }

    /// What is found of a PE and of the pods with the caller's address, as soon as the mirrors show it. To look means
    /// to read the PE, which may be large, and anybody can ask. So nobody looks again because of other PEs, which
    /// change all the time (rule pe-api-4).
    ///
    /// # Errors
    /// It is not found in time.
    pub(super) async fn found_soon<T>(
        &self,
        caller: &Caller,
        pe: (&str, u64),
        look: impl Fn() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let (mut addresses, mut elements) = (self.callers.changes(), self.mirrors.processing_elements.changes());
        let mut jobs = self.mirrors.jobs.changes();
        let until = Instant::now() + KNOWN_WITHIN;
        let mut last: Option<(Sight, Refusal)> = None;
        loop {
            addresses.mark_unchanged();
            elements.mark_unchanged();
            jobs.mark_unchanged();
            let sight = self.sight(caller, pe);
            let refusal = match last.take().filter(|(before, _)| before.is_identical(&sight)) {
                Some((_, refusal)) => refusal,
                None => match look() {
                    Ok(found) => return Ok(found),
                    Err(refusal) => refusal,
                },
            };
            if Instant::now() >= until {
                return Err(refusal);
            }
            last = Some((sight, refusal));
            let told = async {
                tokio::select! {
                    told = addresses.changed() => told,
                    told = elements.changed() => told,
                    told = jobs.changed() => told,
                }
            };
            // Nothing changes any more if that fails.
            let is_told = timeout_at(until, told).await.is_ok_and(|told| told.is_ok());
            sleep_until(if is_told { until.min(Instant::now() + LOOK_AGAIN) } else { until }).await;
        }
    }

    /// What the mirrors show now of a PE and of the pods with the caller's address. Nothing of it is read.
    fn sight(&self, caller: &Caller, (job, pe): (&str, u64)) -> Sight {
        let key = |name: &str| Key::new(&caller.namespace, name);
        Sight {
            job: self.mirrors.jobs.kept(&key(job)),
            element: self.mirrors.processing_elements.kept(&key(&names::processing_element(job, pe))),
            pods: self.pods_of(caller).iter().filter_map(|pod| self.mirrors.pods.kept(pod)).collect(),
        }
    }

    /// The pods of the caller's namespace that have its address now.
    fn pods_of(&self, caller: &Caller) -> Vec<Key> {
        let mut pods = self.callers.pods(caller.address);
        pods.retain(|pod| *pod.namespace == *caller.namespace);
        pods
    }

    /// The PE of this number, if the caller is its pod, as the mirrors show it now.
    fn own_pe(&self, caller: &Caller, job: &str, pe: u64) -> Result<OwnPe, Refusal> {
        let (key, element) = self.pe(caller, job, pe)?;
        let mut pods = self.pods_of(caller);
        // The PEs of other pods need not be read.
        pods.retain(|pod| {
            let meta = self.mirrors.pods.kept(pod).and_then(|pod| pod.metadata());
            meta.is_some_and(|meta| is_controlled_by(&meta, &*element))
        });
        let now = Caller { pes: pods.iter().filter_map(|pod| speaker(self, pod)).collect(), ..caller.clone() };
        let launch_count = now.speaks_as(job, element.spec.id)?.launch_count;
        Ok(OwnPe { key, uid: element.metadata.uid.clone(), launch_count })
    }

    /// The job of the PE whose pod has this address. `None` if pods of several jobs have it, or if the mirror of jobs
    /// shows another one of the name, or none: then it is behind, or the job has left the PE behind.
    pub(super) fn job_of_pod_at(&self, address: IpAddr) -> Option<Arc<Job>> {
        let pods = self.callers.pods(address);
        let of_pod = |pod: &Key| {
            let speaker = speaker(self, pod)?;
            Some((pod.sibling(&speaker.job), speaker.of_job))
        };
        let mut jobs = pods.iter().filter_map(of_pod);
        let (name, of_job) = jobs.next()?;
        if !jobs.all(|(other, of_other)| other == name && of_other.is_same(&of_job)) {
            return None;
        }
        self.mirrors.jobs.get(&name).filter(|job| OfJob::of(job).is_same(&of_job))
    }

    /// The names of bundles that the pods with this address ask for. Each pod says which it was told when it was made,
    /// and its PE which another one would be told: that is the same but after an edit, and all that is known of a pod
    /// of an earlier version.
    pub(super) fn sab_names_of_pods_at(&self, address: IpAddr) -> Vec<String> {
        let mut all = Vec::new();
        for key in self.callers.pods(address) {
            let Some(Speaker { job, pe, .. }) = speaker(self, &key) else { continue };
            let pod = self.mirrors.pods.get(&key);
            let element = self.mirrors.processing_elements.get(&key.sibling(&names::processing_element(&job, pe)));
            let told = pod.as_ref().and_then(|pod| pod.metadata.annotations.as_ref()?.get(names::ANNOTATION_SAB_NAME));
            all.extend(told.cloned());
            all.extend(element.as_ref().and_then(|element| element.spec.options.sab_name()).map(str::to_owned));
        }
        all
    }

    /// The PE whose pod has this address. `None` if several pods have it.
    pub(super) fn pe_of_pod_at(&self, address: IpAddr) -> Option<OwnPe> {
        let pods = self.callers.pods(address);
        let [pod] = pods.as_slice() else { return None };
        let Speaker { job, pe, launch_count, .. } = speaker(self, pod)?;
        let meta = self.mirrors.pods.kept(pod)?.metadata()?;
        let uid = controller(&meta).map(|element| element.uid.clone());
        Some(OwnPe { key: pod.sibling(&names::processing_element(&job, pe)), uid, launch_count })
    }
}

/// The PE that controls the pod. A label alone says nothing: anybody can label a pod. Its launch is the one that the PE
/// has recorded for it; its label counts until then. A copy that somebody has made of a PE speaks for nobody.
fn speaker(api: &PeApi, pod: &Key) -> Option<Speaker> {
    let pod = api.mirrors.pods.get(pod)?;
    let meta = &pod.metadata;
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    let element = api.mirrors.processing_elements.get(&Key::new(meta.namespace.as_deref()?, &owner.name))?;
    if !is_controlled_by(meta, &*element) || element.is_copy() {
        return None;
    }
    let recorded = element.status.as_ref().and_then(|status| status.launch_of(meta.uid.as_deref()));
    let labelled = || meta.labels.as_ref()?.get(names::LABEL_LAUNCH_COUNT)?.parse::<u32>().ok().map(u64::from);
    let launch_count = recorded.or_else(labelled)?;
    let (job, of_job) = (element.spec.job_name.clone(), OfJob::of_child(&element.metadata, element.spec.job_id));
    let present = api.mirrors.jobs.get(&Key::new(meta.namespace.as_deref()?, &job));
    let is_of_present_job = present.is_none_or(|present| OfJob::of(&present).is_same(&of_job));
    let pod_created = meta.creation_timestamp.as_ref().map(|created| created.0);
    Some(Speaker { job, pe: element.spec.id, launch_count, pod_created, of_job, is_of_present_job })
}

/// The namespace in the name of a Service that leads here: `streams-api.NAMESPACE...` and
/// `streams-JOB-consistentregion-api.NAMESPACE...`.
fn namespace_of_host(host: &str) -> Option<&str> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let mut labels = name.split('.');
    let service = labels.next()?;
    let is_ours = service == names::PE_API_SERVICE || job_of_host(service).is_some();
    labels.next().filter(|namespace| is_ours && !namespace.is_empty())
}

/// The job in such a name of a Service for consistent regions.
fn job_of_host(host: &str) -> Option<&str> {
    let service = host.split(['.', ':']).next()?;
    service.strip_prefix("streams-")?.strip_suffix("-consistentregion-api").filter(|job| !job.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_request_may_name_a_namespace() {
        // host -> namespace
        let table = [
            ("streams-api.n:10000", Some("n")),
            ("streams-api.n", Some("n")),
            ("streams-api.n.svc.cluster.local:10000", Some("n")),
            ("streams-flow-consistentregion-api.n:10000", Some("n")),
            ("streams-api", None),
            ("streams-api.", None),
            ("streams-api:10000", None),
            ("10.0.0.1:10000", None),
            ("localhost:10000", None),
            ("example.com", None),
        ];
        for (host, expected) in table {
            assert_eq!(namespace_of_host(host), expected, "{host}");
        }
    }
}
