//! The Service `streams-api` in every namespace with jobs or PEs, under which PEs reach the frontend (rule pe-api-8).
//!
//! The Service selects no pods, because the frontend runs in another namespace. Its EndpointSlices, one a family of
//! addresses, list the replicas of the frontend, wherever these are.
//!
//! Knows: namespaces with jobs or PEs, addresses of the frontend. Must not know: what is served there.
//!
//! Invariants: a Service of this name that somebody else has made is left as it is. What others change of ours is
//! restored, and with growing pauses if they insist (rule call-19).

mod desired;
#[cfg(test)]
mod tests;

use crate::controllers::endpoint_slices::{COMPARE_AGAIN, Slices};
use crate::controllers::pe_api_names::{Concerned, PeApiNames, SERVICE_NAME_TAKEN};
use crate::controllers::reconciler::{self, Next};
use crate::controllers::remembered::Remembered;
use crate::controllers::restorations::Restorations;
use crate::mirrors::Mirrors;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::PropagationPolicy;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, ProcessingElement, names};
use streams_kubernetes::cluster::{Cluster, Manager};
use streams_kubernetes::events::Notice;
use streams_kubernetes::few_lines::FewLines;
use streams_kubernetes::queue::{Outcome, Queue};
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};
use tokio::sync::watch as latest;
use tokio::time::Instant;

/// Field manager of this controller.
const MANAGER: Manager = Manager("streams-pe-api-controller");
/// Reason of the Event that says that somebody else changes the Service as often as it is restored.
const CONTENDED: &str = "Contended";
/// Whatever uid the Service has: somebody may insist on what can only be undone by making it again.
const ANY_UID: &str = "";
/// How long a deletion that was not answered may still have its effect: longer than the API server works on a request.
const UNANSWERED: SignedDuration = SignedDuration::from_secs(120);
/// When a Service of somebody else is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The addresses of the frontend's replicas, told again and again; empty as long as none is known.
pub(crate) type Addresses = latest::Receiver<BTreeSet<IpAddr>>;

/// Queues the namespaces of jobs, and of Services of this name, whenever they change; and of PEs where there is no job:
/// jobs leave them behind, and they go after their jobs.
pub(crate) fn subscribe(mirrors: &Mirrors, queue: &Queue<Key>) {
    mirrors.jobs.wake(queue, |job: &Job| [key_of(&Key::of(job))]);
    let jobs = mirrors.jobs.clone();
    mirrors.processing_elements.wake(queue, move |pe: &ProcessingElement| {
        let key = key_of(&Key::of(pe));
        Some(key).filter(|key| !jobs.has_namespace(&key.namespace))
    });
    mirrors
        .services
        .wake(queue, |service: &Service| Some(Key::of(service)).filter(|key| *key.name == *names::PE_API_SERVICE));
}

/// Queues all namespaces with jobs or PEs whenever the frontend has other addresses, until nobody tells of them any
/// more.
pub(crate) async fn follow(mirrors: Mirrors, mut addresses: Addresses, queue: Queue<Key>) {
    while addresses.changed().await.is_ok() {
        let all = mirrors.jobs.keys().into_iter().chain(mirrors.processing_elements.keys());
        let namespaces: BTreeSet<Key> = all.map(|key| key_of(&key)).collect();
        namespaces.into_iter().for_each(|key| queue.add(key));
    }
}

/// The key of the Service in the namespace of a job or PE.
fn key_of(user: &Key) -> Key {
    user.sibling(names::PE_API_SERVICE)
}

/// The slices of the Service of this key.
fn slices_of(key: &Key) -> Slices<'_> {
    Slices { service: key, labels: desired::labels(), ports: &desired::PORTS, owner: None }
}

/// Keeps the Service and its slices.
pub(crate) struct PeApiServiceReconciler<C> {
    cluster: C,
    mirrors: Mirrors,
    addresses: Addresses,
    /// What the slices of a namespace had when they were compared last.
    written: Mutex<BTreeMap<Key, Written>>,
    /// How often a Service was restored, as long as it is needed.
    restored: Remembered<Restored>,
    /// Of Services of somebody else: who writes one again and again brings about as many as they like.
    lines: Mutex<FewLines>,
    /// Who is told where somebody else has the Service, and the jobs that say so.
    told: Option<(PeApiNames, Queue<Key>)>,
}

/// Restorations of a Service.
#[derive(Clone, Debug, Default)]
struct Restored {
    restorations: Restorations,
    /// What the API server answered to the last write. One that changes nothing is no restoration: a mirror that is
    /// behind may show what was restored already.
    version: Option<String>,
}

/// What slices had, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    addresses: BTreeSet<IpAddr>,
    at: Timestamp,
    /// Until then slices may go that were there all along: a deletion of them has failed.
    may_go_until: Option<Timestamp>,
}

impl Written {
    /// Whether slices that were to have these addresses need not be compared now.
    fn is_known(&self, addresses: &BTreeSet<IpAddr>, now: Timestamp) -> bool {
        let may_have_gone = self.may_go_until.is_some_and(|until| self.at < until && until <= now);
        let age = now.duration_since(self.at);
        self.addresses == *addresses
            && !may_have_gone
            && age < SignedDuration::try_from(COMPARE_AGAIN).unwrap_or(SignedDuration::MAX)
    }
}

impl<C> PeApiServiceReconciler<C> {
    /// Keeps the Services of these mirrors.
    pub(crate) fn new(cluster: C, mirrors: Mirrors, addresses: Addresses) -> Self {
        let (written, restored) = (Mutex::new(BTreeMap::new()), Remembered::default());
        Self { cluster, mirrors, addresses, written, restored, lines: Mutex::default(), told: None }
    }

    /// The same, telling where somebody else has the Service; jobs that are to say something else are put into the
    /// queue.
    pub(crate) fn telling(self, names: PeApiNames, jobs: Queue<Key>) -> Self {
        Self { told: Some((names, jobs)), ..self }
    }

    /// Somebody else has the Service of this namespace, or nobody has any more.
    fn tell(&self, namespace: &str, is_taken: bool) {
        let Some((names, jobs)) = &self.told else { return };
        match names.say(namespace, is_taken) {
            Concerned::These(concerned) => concerned.into_iter().for_each(|job| jobs.add(job)),
            Concerned::All => {
                let concerned = self.mirrors.jobs.keys_of_namespace(namespace);
                concerned.into_iter().for_each(|job| jobs.add(job));
            }
        }
    }
}

/// What a namespace has.
pub(crate) struct PeApiServiceObservation {
    /// PEs that their job has left behind run on, connect again, and may start anew.
    is_needed: bool,
    service: Option<Arc<Service>>,
    addresses: BTreeSet<IpAddr>,
    written: Option<Written>,
    /// What is there is not restored before, as somebody else insists on it.
    unrestored_until: Option<Timestamp>,
    now: Timestamp,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeApiServiceDecision {
    /// The Service is to be as it should, and its slices as well.
    Write {
        /// The slices have other addresses, or were not compared for long.
        slices: bool,
    },
    /// Nobody needs it any more. It may be there although it is not seen: somebody may have taken the label by which
    /// the mirror knows it.
    Delete,
}

impl<C: Cluster> reconciler::Reconciler for PeApiServiceReconciler<C> {
    type Answers = ();
    type Observation = PeApiServiceObservation;
    type Decision = PeApiServiceDecision;

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<PeApiServiceObservation>, Error> {
        let now = self.cluster.now();
        let not_before = |known: &mut Restored| known.restorations.not_before();
        Ok(Some(PeApiServiceObservation {
            is_needed: self.mirrors.jobs.has_namespace(&key.namespace)
                || self.mirrors.processing_elements.has_namespace(&key.namespace),
            service: self.mirrors.services.get(key),
            addresses: self.addresses.borrow().clone(),
            written: self.written.lock().get(key).cloned(),
            unrestored_until: self.restored.find(key, ANY_UID, not_before).flatten().filter(|at| now < *at),
            now,
        }))
    }

    fn decide(observed: &PeApiServiceObservation) -> PeApiServiceDecision {
        if !observed.is_needed {
            return PeApiServiceDecision::Delete;
        }
        let is_known = |written: &Written| written.is_known(&observed.addresses, observed.now);
        let slices = observed.service.is_none() || !observed.written.as_ref().is_some_and(is_known);
        PeApiServiceDecision::Write { slices }
    }

    async fn act(
        &self,
        key: &Key,
        (): &mut (),
        observed: PeApiServiceObservation,
        decision: PeApiServiceDecision,
    ) -> Result<Next, Error> {
        let writer = Writer { cluster: &self.cluster, namespace: &key.namespace, manager: MANAGER };
        match decision {
            PeApiServiceDecision::Delete => {
                let ours = self.ours(key, observed.service.as_ref()).await?;
                let may_have_slices = ours.is_some() || observed.written.is_some();
                if may_have_slices {
                    // Should a deletion fail, and the Service be needed again, slices are not what was written.
                    let may_go_until = observed.now.checked_add(UNANSWERED).ok();
                    let unknown = Written { addresses: BTreeSet::new(), at: Timestamp::MIN, may_go_until };
                    self.written.lock().insert(key.clone(), unknown);
                    // The Service last: as long as it is there, somebody remembers that there may be slices.
                    slices_of(key).delete(&writer).await?;
                }
                if let Some(ours) = ours {
                    let uid = ours.metadata.uid.as_deref();
                    writer.delete::<Service>(&key.name, uid, PropagationPolicy::Background).await?;
                }
                self.written.lock().remove(key);
                self.restored.forget_all_of(key);
                if let Some((names, _)) = &self.told {
                    names.forget(&key.namespace);
                }
            }
            PeApiServiceDecision::Write { slices } => {
                let may_go_until = observed.written.as_ref().and_then(|written| written.may_go_until);
                let may_go_until = may_go_until.filter(|until| observed.now < *until);
                let existing = self.existing(key, observed.service).await?;
                self.tell(&key.namespace, matches!(existing, Existing::Taken));
                let existing = match existing {
                    Existing::Taken => return Ok(Next::Rest(Outcome::Again(LOOK_AGAIN))),
                    Existing::Ours(existing) => Some(existing),
                    Existing::None => None,
                };
                let pause = observed.unrestored_until.filter(|_| existing.is_some());
                if pause.is_none() {
                    let service = desired::service(key);
                    let applied = writer.apply(names::ANNOTATION_APPLIED_HASH, &service, existing.as_deref()).await?;
                    if let Some(service) = applied.object() {
                        self.note_written(key, service, existing.is_some(), observed.now);
                    }
                }
                if slices {
                    slices_of(key).write(&writer, &observed.addresses).await?;
                    let written = Written { addresses: observed.addresses, at: observed.now, may_go_until };
                    self.written.lock().insert(key.clone(), written);
                }
                let compared_again = may_go_until.map_or(COMPARE_AGAIN, |until| {
                    let left = Duration::try_from(until.duration_since(observed.now)).unwrap_or_default();
                    left.min(COMPARE_AGAIN)
                });
                return Ok(Next::Rest(match pause {
                    Some(until) => {
                        Outcome::Again(Duration::try_from(until.duration_since(observed.now)).unwrap_or_default())
                    }
                    None => Outcome::Patiently(compared_again),
                }));
            }
        }
        Ok(Next::Rest(Outcome::Done))
    }
}

impl<C: Cluster> PeApiServiceReconciler<C> {
    /// The Service, if this frontend or another one has made it: as the mirror shows it, else as the API server does,
    /// because it may have lost its labels.
    async fn ours(&self, key: &Key, shown: Option<&Arc<Service>>) -> Result<Option<Arc<Service>>, Error> {
        if let Some(shown) = shown.filter(|shown| desired::is_ours(shown)) {
            return Ok(Some(Arc::clone(shown)));
        }
        let found = self.cluster.get::<Service>(key).await?;
        Ok(found.filter(desired::is_ours).map(Arc::new))
    }

    /// What there is of the name. The mirror may be behind, or somebody has taken the labels of the Service: then the
    /// API server is asked.
    async fn existing(&self, key: &Key, shown: Option<Arc<Service>>) -> Result<Existing, Error> {
        if let Some(shown) = shown.filter(|shown| desired::is_ours(shown)) {
            return Ok(Existing::Ours(shown));
        }
        let Some(service) = self.cluster.get::<Service>(key).await? else { return Ok(Existing::None) };
        if desired::is_ours(&service) {
            return Ok(Existing::Ours(Arc::new(service)));
        }
        if self.lines.lock().has_room(Instant::now()) {
            tracing::warn!(%key, "somebody else has a Service of this name: PEs of this namespace cannot be served");
        } else {
            tracing::debug!(%key, "somebody else has a Service of this name: PEs of this namespace cannot be served");
        }
        let note = "the name of this Service is needed for the PEs of jobs in this namespace: delete it, and make it \
                    again under another name";
        self.cluster.announce(&service, &Notice::warning(SERVICE_NAME_TAKEN, note));
        Ok(Existing::Taken)
    }

    /// The API server has this Service now. If there was one that others have changed, it was restored. Who insists on
    /// the change is told once.
    fn note_written(&self, key: &Key, service: &Service, was_there: bool, now: Timestamp) {
        let begins = self.restored.with(key, ANY_UID, Restored::default, |Restored { restorations, version }| {
            let is_changed = *version != service.resource_version();
            *version = service.resource_version();
            if !was_there || !is_changed {
                return false;
            }
            let was_contended = restorations.contended_until().is_some_and(|until| now < until);
            restorations.note(&key.name, now);
            !was_contended && restorations.contended_until().is_some()
        });
        if begins {
            let note = "somebody else changes this Service as often as the operator restores it: it is restored after \
                        pauses, and meanwhile PEs may not find the operator";
            self.cluster.announce(service, &Notice::warning(CONTENDED, note));
        }
    }
}

/// What there is of the name of the Service.
enum Existing {
    None,
    /// This frontend, or another one, has made it.
    Ours(Arc<Service>),
    /// Somebody else has it.
    Taken,
}
