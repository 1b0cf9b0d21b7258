//! Leads the PEs of consistent regions to the replica that drives them (rule consistent-region-14).
//!
//! The job controller makes the Service, without a selector and without addresses. Whoever leads writes its own address
//! into the EndpointSlice, and only that: other replicas may be behind. Nobody mirrors slices; but a region whose PEs
//! do not come, though they should, makes the slices of its Service be compared at once.
//!
//! Knows: the Service, where this replica is reached. Must not know: regions.
//!
//! Invariant: a Service that belongs to no job, and that no job has left behind, is left as it is.

#[cfg(test)]
mod tests;

use crate::controllers::endpoint_slices::{COMPARE_AGAIN, Slices, owned_by};
use crate::controllers::reconciler::{self, Next};
use crate::controllers::remembered::Remembered;
use crate::controllers::times::distance;
use crate::mirrors::Mirrors;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, names};
use streams_kubernetes::cluster::{Cluster, Manager};
use streams_kubernetes::ownership::controller;
use streams_kubernetes::queue::{Outcome, Queue};
use streams_kubernetes::watch::Watch;
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};

/// Field manager of this controller.
const MANAGER: Manager = Manager("streams-consistent-region-service-controller");
/// The port of the REST API that PEs of regions use.
const PORTS: [(&str, u16); 1] = [("sys-api", 10_000)];

/// Queues the Services of consistent regions whenever they change.
pub(crate) fn subscribe(mirrors: &Mirrors, queue: &Queue<Key>) {
    mirrors.services.wake(queue, |service: &Service| is_of_regions(service).then(|| Key::of(service)));
}

/// Whether a job has this Service for its consistent regions, or has left it behind: PEs that run on report there.
fn is_of_regions(service: &Service) -> bool {
    let job = match controller(&service.metadata) {
        Some(owner) => (owner.kind == Job::kind(&())).then_some(&owner.name),
        None => service.labels().get(names::LABEL_JOB),
    };
    job.is_some_and(|job| service.metadata.name == Some(names::consistent_region_service(job)))
}

/// How PEs of a job find who drives their regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// As far as this replica has written, they go somewhere else.
    Elsewhere,
    /// They look up its address, and may know another one for a while.
    ByName,
    /// They have an address that stays, and leads here.
    ByAddress,
}

/// Which of these Services this replica has led to itself. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Led {
    services: Watch<Service>,
    /// Services whose slices are compared.
    queue: Queue<Key>,
    /// When the slices of a Service were compared last.
    compared: Remembered<Timestamp>,
}

impl Led {
    /// None yet of the Services of these mirrors, whose slices are compared by whoever takes them out of this queue.
    pub(crate) fn among(mirrors: &Mirrors, queue: Queue<Key>) -> Self {
        let compared = Remembered::default();
        compared.end_with(&mirrors.services);
        Self { services: mirrors.services.clone(), queue, compared }
    }

    /// PEs of a job do not come here, though they should. Somebody may have changed or deleted the slices.
    pub(crate) fn doubt(&self, job: &Key) {
        let key = job.sibling(&names::consistent_region_service(&job.name));
        let Some(service) = self.services.get(&key) else { return };
        // Until that is found out, they count as led here: regions that are to be taken over do not wait for it.
        let is_known = self.compared.find(&key, &service.uid().unwrap_or_default(), |at| *at = Timestamp::UNIX_EPOCH);
        if is_known.is_some() {
            self.queue.add(key);
        }
    }

    /// How the PEs of a job find who drives their regions.
    pub(crate) fn of_job(&self, job: &Key) -> Way {
        let key = job.sibling(&names::consistent_region_service(&job.name));
        let service = self.services.get(&key).filter(|service| is_of_regions(service));
        // Where nobody leads them anywhere, nobody waits until they are led.
        let Some(service) = service.filter(|service| service.metadata.deletion_timestamp.is_none()) else {
            return Way::ByName;
        };
        if self.compared.find(&key, &service.uid().unwrap_or_default(), |_| ()).is_none() {
            return Way::Elsewhere;
        }
        let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
        if matches!(address, "" | "None") { Way::ByName } else { Way::ByAddress }
    }
}

/// Keeps the slices of these Services.
pub(crate) struct ConsistentRegionServiceReconciler<C> {
    cluster: C,
    mirrors: Mirrors,
    /// Where PEs reach this replica, if it knows.
    address: Option<IpAddr>,
    /// When the slices of a Service were compared last.
    compared: Remembered<Timestamp>,
}

impl<C> ConsistentRegionServiceReconciler<C> {
    /// Keeps the slices of the Services of these mirrors, which lead to this address. `led` knows them, too.
    pub(crate) fn new(cluster: C, mirrors: Mirrors, address: Option<IpAddr>, led: &Led) -> Self {
        Self { cluster, mirrors, address, compared: led.compared.clone() }
    }
}

/// A Service, and when its slices were compared.
pub(crate) struct ServiceObservation {
    service: Arc<Service>,
    compared: Option<Timestamp>,
    now: Timestamp,
}

/// What to do with the slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceDecision {
    /// Nothing, and nothing later.
    Nothing,
    /// Nothing for so long.
    Later(Duration),
    /// Compare them, and write what is missing.
    Write,
}

impl<C: Cluster> reconciler::Reconciler for ConsistentRegionServiceReconciler<C> {
    type Answers = ();
    type Observation = ServiceObservation;
    type Decision = ServiceDecision;

    async fn observe(&self, key: &Key, (): &mut ()) -> Result<Option<ServiceObservation>, Error> {
        let Some(service) = self.mirrors.services.get(key).filter(|service| is_of_regions(service)) else {
            self.compared.forget_all_of(key);
            return Ok(None);
        };
        let compared = self.compared.find(key, &service.uid().unwrap_or_default(), |at| *at);
        Ok(Some(ServiceObservation { service, compared, now: self.cluster.now() }))
    }

    fn decide(observed: &ServiceObservation) -> ServiceDecision {
        if observed.service.metadata.deletion_timestamp.is_some() {
            return ServiceDecision::Nothing;
        }
        let age = observed.compared.map(|at| distance(at, observed.now));
        match age.and_then(|age| COMPARE_AGAIN.checked_sub(age)).filter(|rest| !rest.is_zero()) {
            Some(rest) => ServiceDecision::Later(rest),
            None => ServiceDecision::Write,
        }
    }

    async fn act(
        &self,
        key: &Key,
        (): &mut (),
        observed: ServiceObservation,
        decision: ServiceDecision,
    ) -> Result<Next, Error> {
        let next = match decision {
            ServiceDecision::Nothing => Outcome::Done,
            ServiceDecision::Later(rest) => Outcome::Patiently(rest),
            ServiceDecision::Write => {
                let service = &observed.service;
                let slices =
                    Slices { service: key, labels: service.labels().clone(), ports: &PORTS, owner: owned_by(service) };
                let writer = Writer { cluster: &self.cluster, namespace: &key.namespace, manager: MANAGER };
                slices.write(&writer, &BTreeSet::from_iter(self.address)).await?;
                self.compared.keep(key, &service.uid().unwrap_or_default(), observed.now);
                Outcome::Patiently(COMPARE_AGAIN)
            }
        };
        Ok(Next::Rest(next))
    }
}
