//! The objects of a job as the mirrors show them: what every look at the job reads of each (rule call-6).
//!
//! Mirrors keep JSON, and a job has thousands of objects. So a look reads the metadata of most of them and all of a PE,
//! and keeps the little that it needs; the whole object is read where it is compared with what was applied. What the
//! look before has read of an object that has not changed since is not read again: a look costs what has changed.
//!
//! Knows: mirrors, names of objects. Must not know: what a job wants of them, how long a look is kept.

use super::{
    Children, NextPod, ObservedObject, ObservedPe, ObservedRegion, PodState, is_place_known, must_move, placed,
};
use crate::controllers::job::child::{Child, Port, number_in, suffix};
use crate::controllers::job::going::GoingObject;
use crate::controllers::job::objects::created_region::CreatedRegion;
use crate::controllers::job::objects::user_ports::{Endpoints, UserPorts};
use crate::controllers::job::owned::{Owned, Part};
use crate::controllers::job::waits::{Words, needs_correction};
use crate::controllers::user_requests::is_new;
use crate::mirrors::{ByOwner, Mirrors};
use crate::start_hash::Starts as _;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use kube::core::ObjectMeta;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use streams_api::consistent_region::GIVEN_UP;
use streams_api::{
    Connectivity, ConsistentRegion, Export, HostPool, Import, Job, ParallelRegion, PePhase, ProcessingElement,
    ProcessingElementStatus, condition, names,
};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes::watch::{ConfigMapMeta, Kept, Mirrored, version};

/// Objects of one kind, by what their names say. The next look has the same of those that have not changed.
type Objects<N, K, O = ObservedObject> = BTreeMap<N, Arc<Shown<K, O>>>;

/// An object of the job.
#[derive(Debug)]
pub(in super::super) struct Shown<K, O = ObservedObject> {
    /// The object.
    pub(in super::super) object: Kept<K>,
    /// Hash of what was applied to it last, if it says so.
    pub(in super::super) applied: Option<Arc<str>>,
    /// Stands for the object, whatever its version.
    pub(in super::super) number: u64,
    /// Stands for the object, its version and that hash.
    pub(in super::super) fingerprint: u64,
    /// What is known of it.
    observed: O,
    version: u64,
}

/// What is known of a consistent region.
#[derive(Debug)]
pub(in super::super) struct ObservedConsistentRegion {
    object: ObservedObject,
    has_given_up: bool,
}

/// What is read of a consistent region: it lists all of its PEs, and its record does so, too.
#[derive(Deserialize)]
struct ConsistentRegionPart {
    metadata: ObjectMeta,
    status: Option<ConsistentRegionState>,
}

#[derive(Deserialize)]
struct ConsistentRegionState {
    state: Option<String>,
}

/// The objects that a job controls. They are told by their names: labels and specs can be changed.
#[derive(Debug, Default)]
pub(in super::super) struct MirroredChildren {
    pub(in super::super) processing_elements: Objects<u64, ProcessingElement, ObservedPe>,
    /// PEs whose names are taken by objects with the labels of the job that it does not control (rule job-30).
    taken: BTreeSet<u64>,
    /// What operators have opened under a name, by PE; only of PEs with such operators.
    pub(in super::super) endpoints: Endpoints,
    pub(in super::super) services: Objects<u64, Service>,
    pub(in super::super) regions: Objects<u64, ParallelRegion, ObservedRegion>,
    pub(in super::super) host_pools: Objects<u64, HostPool>,
    pub(in super::super) exports: Objects<Port, Export>,
    pub(in super::super) imports: Objects<Port, Import>,
    pub(in super::super) consistent_regions: Objects<u64, ConsistentRegion, ObservedConsistentRegion>,
    pub(in super::super) consistent_region_service: Option<Arc<Shown<Service>>>,
    pub(in super::super) job_config_map: Option<Arc<Shown<ConfigMapMeta>>>,
    /// Those with texts and chunks, by name.
    pub(in super::super) config_maps: BTreeMap<String, (Part, Arc<Shown<ConfigMapMeta>>)>,
}

impl<K: Mirrored> Shown<K> {
    /// An object; `None` if this job does not control it.
    fn of(object: Kept<K>, job: &Job) -> Option<Arc<Self>> {
        let meta = object.metadata().filter(|meta| is_controlled_by(meta, job))?;
        Some(Self::new(object, &meta, observed(&meta)))
    }
}

impl<K, O> Shown<K, O> {
    /// What is known of it.
    pub(in super::super) fn observed(&self) -> &O {
        &self.observed
    }

    fn new(object: Kept<K>, meta: &ObjectMeta, observed: O) -> Arc<Self> {
        let applied = applied(meta).map(|hash| Arc::from(hash.as_str()));
        let (number, fingerprint) = (number(&meta.uid), fingerprint(meta, applied.as_deref()));
        Arc::new(Self { object, applied, number, fingerprint, observed, version: version(meta) })
    }
}

/// What was shown before, if it is this arrival of the object.
fn unless_changed<'a, K: Mirrored, O>(
    before: Option<&'a Arc<Shown<K, O>>>,
    object: &Kept<K>,
) -> Option<&'a Arc<Shown<K, O>>> {
    before.filter(|before| before.object.is_identical(object))
}

impl MirroredChildren {
    /// The objects that the mirrors show. `before`: what they showed of the same job before.
    pub(in super::super) fn of(mirrors: &Mirrors, key: &Key, job: &Job, before: &Self) -> Self {
        let of = Selection { key, job };
        let (mut pes, mut taken, mut endpoints) = (BTreeMap::new(), BTreeSet::new(), Endpoints::new());
        for (name, object) in mirrors.processing_elements.kept_of_job(key) {
            let Some(id) = of.number(&name) else { continue };
            if let Some(same) = unless_changed(before.processing_elements.get(&id), &object) {
                endpoints.extend(before.endpoints.get(&id).map(|opened| (id, opened.clone())));
                pes.insert(id, Arc::clone(same));
                continue;
            }
            let Some(pe) = object.read() else { continue };
            if !is_controlled_by(&pe.metadata, job) {
                taken.insert(id);
                continue;
            }
            if let Some(status) = pe.status.as_ref().filter(|status| !status.endpoints.is_empty()) {
                endpoints.insert(id, status.endpoints.clone());
            }
            pes.insert(id, Shown::new(object, &pe.metadata, processing_element(&pe)));
        }
        let consistent_region_service = names::consistent_region_service(&key.name);
        let service = mirrors.services.kept(&key.sibling(&consistent_region_service));
        let consistent_region_service = service.and_then(|service| {
            let same = unless_changed(before.consistent_region_service.as_ref(), &service).cloned();
            same.or_else(|| Shown::of(service, job))
        });
        let own = names::job_config_map(&key.name);
        let (mut job_config_map, mut config_maps) = (None, BTreeMap::new());
        for (name, object) in mirrors.config_maps.kept_of_job(key) {
            if *name.name == *own {
                let same = unless_changed(before.job_config_map.as_ref(), &object).cloned();
                job_config_map = same.or_else(|| Shown::of(object, job));
                continue;
            }
            let known = before.config_maps.get(&*name.name);
            let same = known.filter(|(_, map)| map.object.is_identical(&object)).cloned();
            let map = same.or_else(|| Some((Part::of_name(&key.name, &name.name)?, Shown::of(object, job)?)));
            config_maps.extend(map.map(|map| (name.name.to_string(), map)));
        }
        Self {
            processing_elements: pes,
            taken,
            endpoints,
            services: of.shown(&mirrors.services, |name| of.number(name), &before.services),
            regions: of.regions(mirrors, &before.regions),
            host_pools: of.shown(&mirrors.host_pools, |name| of.number(name), &before.host_pools),
            exports: of.shown(&mirrors.exports, |name| of.port(name), &before.exports),
            imports: of.shown(&mirrors.imports, |name| of.port(name), &before.imports),
            consistent_regions: of.consistent_regions(mirrors, &before.consistent_regions),
            consistent_region_service,
            job_config_map,
            config_maps,
        }
    }

    /// What was read of the PE object of this name, and its number, if it was this arrival of the object.
    pub(in super::super) fn processing_element(
        &self,
        job: &Key,
        name: &Key,
        object: &Kept<ProcessingElement>,
    ) -> Option<(u64, &Shown<ProcessingElement, ObservedPe>)> {
        let id = number_in(suffix(&job.name, &name.name)?)?;
        Some((id, &**unless_changed(self.processing_elements.get(&id), object)?))
    }

    /// What stands for each of the objects, and what for it with its version and what was applied to it.
    pub(in super::super) fn fingerprints(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        fn of<K, O>(shown: &Arc<Shown<K, O>>) -> (u64, u64) {
            (shown.number, shown.fingerprint)
        }
        let Self {
            processing_elements,
            taken: _,
            endpoints: _,
            services,
            regions,
            host_pools,
            exports,
            imports,
            consistent_regions,
            consistent_region_service,
            job_config_map,
            config_maps,
        } = self;
        let pes = processing_elements.values().map(of);
        let others = services.values().map(of).chain(regions.values().map(of)).chain(host_pools.values().map(of));
        let others = others.chain(exports.values().map(of)).chain(imports.values().map(of));
        let others = others.chain(consistent_regions.values().map(of)).chain(consistent_region_service.iter().map(of));
        let maps = job_config_map.iter().map(of).chain(config_maps.values().map(|(_, shown)| of(shown)));
        pes.chain(others).chain(maps)
    }

    /// How many objects there are.
    pub(in super::super) fn len(&self) -> usize {
        let Self {
            processing_elements,
            taken: _,
            endpoints: _,
            services,
            regions,
            host_pools,
            exports,
            imports,
            consistent_regions,
            consistent_region_service,
            job_config_map,
            config_maps,
        } = self;
        let interfaces = exports.len() + imports.len() + consistent_regions.len();
        let single = usize::from(consistent_region_service.is_some()) + usize::from(job_config_map.is_some());
        let parts = regions.len() + host_pools.len() + interfaces + single;
        processing_elements.len() + services.len() + config_maps.len() + parts
    }

    /// What is known of the objects.
    pub(in super::super) fn children(&self) -> Children {
        let maps = |wanted: Part| {
            let maps = self.config_maps.iter().filter(move |(_, (part, _))| *part == wanted);
            maps.map(|(name, (_, map))| (name.clone(), map.observed.clone())).collect()
        };
        let exports = self.exports.iter().map(|(port, export)| (Child::Export(*port), &export.observed));
        let imports = self.imports.iter().map(|(port, import)| (Child::Import(*port), &import.observed));
        let regions = self.consistent_regions.iter();
        let regions = regions.map(|(index, region)| (Child::ConsistentRegion(*index), &region.observed.object));
        let service = self.consistent_region_service.iter();
        let service = service.map(|service| (Child::ConsistentRegionService, &service.observed));
        let interfaces = exports.chain(imports).chain(regions).chain(service);
        let exhausted = self.consistent_regions.iter().filter(|(_, region)| {
            let ObservedConsistentRegion { object, has_given_up } = &region.observed;
            *has_given_up && !object.deleting
        });
        Children {
            processing_elements: known(&self.processing_elements),
            taken: self.taken.clone(),
            unreadable: BTreeSet::new(),
            services: known(&self.services),
            regions: known(&self.regions),
            host_pools: known(&self.host_pools),
            interfaces: interfaces.map(|(child, observed)| (child, observed.clone())).collect(),
            exhausted_regions: exhausted.map(|(index, _)| *index).collect(),
            job_config_map: self.job_config_map.as_ref().map(|map| map.observed.clone()),
            texts: maps(Part::Text),
            chunks: maps(Part::Chunk),
            held_back: BTreeMap::new(),
            just_stored: BTreeSet::new(),
            user_ports: UserPorts::default(),
        }
    }

    /// The version of an object, if it is there.
    pub(in super::super) fn version(&self, owned: &Owned) -> Option<u64> {
        Some(match owned {
            Owned::Child(Child::ProcessingElement(id)) => self.processing_elements.get(id)?.version,
            Owned::Child(Child::Service(id)) => self.services.get(id)?.version,
            Owned::Child(Child::Region(index)) => self.regions.get(index)?.version,
            Owned::Child(Child::HostPool(index)) => self.host_pools.get(index)?.version,
            Owned::Child(Child::JobConfigMap) => self.job_config_map.as_ref()?.version,
            Owned::Child(Child::Export(port)) => self.exports.get(port)?.version,
            Owned::Child(Child::Import(port)) => self.imports.get(port)?.version,
            Owned::Child(Child::ConsistentRegion(index)) => self.consistent_regions.get(index)?.version,
            Owned::Child(Child::ConsistentRegionService) => self.consistent_region_service.as_ref()?.version,
            // Nobody watches it.
            Owned::Child(Child::TransportSecret) | Owned::ConfigMap(_) => return None,
        })
    }

    /// The uid of an object, if it is there. It is read from the object: to be asked of few.
    pub(in super::super) fn uid(&self, owned: &Owned) -> Option<String> {
        let meta = match owned {
            Owned::Child(Child::ProcessingElement(id)) => self.processing_elements.get(id)?.object.metadata(),
            Owned::Child(Child::Service(id)) => self.services.get(id)?.object.metadata(),
            Owned::Child(Child::Region(index)) => self.regions.get(index)?.object.metadata(),
            Owned::Child(Child::HostPool(index)) => self.host_pools.get(index)?.object.metadata(),
            Owned::Child(Child::JobConfigMap) => self.job_config_map.as_ref()?.object.metadata(),
            Owned::Child(Child::Export(port)) => self.exports.get(port)?.object.metadata(),
            Owned::Child(Child::Import(port)) => self.imports.get(port)?.object.metadata(),
            Owned::Child(Child::ConsistentRegion(index)) => self.consistent_regions.get(index)?.object.metadata(),
            Owned::Child(Child::ConsistentRegionService) => self.consistent_region_service.as_ref()?.object.metadata(),
            Owned::ConfigMap(name) => self.config_maps.get(name)?.1.object.metadata(),
            // Nobody watches it.
            Owned::Child(Child::TransportSecret) => None,
        };
        meta?.uid
    }
}

/// The objects of which job.
#[derive(Clone, Copy)]
struct Selection<'a> {
    key: &'a Key,
    job: &'a Job,
}

impl Selection<'_> {
    /// The objects of a kind, by what their names say.
    fn shown<N: Ord, K: Mirrored>(
        self,
        mirror: &impl ByOwner<K>,
        number: impl Fn(&Key) -> Option<N>,
        before: &Objects<N, K>,
    ) -> Objects<N, K> {
        let objects = mirror.kept_of_job(self.key).into_iter();
        let shown = objects.filter_map(|(name, object)| {
            let number = number(&name)?;
            let same = unless_changed(before.get(&number), &object).cloned();
            Some((number, same.or_else(|| Shown::of(object, self.job))?))
        });
        shown.collect()
    }

    /// The regions, by index.
    fn regions(
        self,
        mirrors: &Mirrors,
        before: &Objects<u64, ParallelRegion, ObservedRegion>,
    ) -> Objects<u64, ParallelRegion, ObservedRegion> {
        let shown = mirrors.parallel_regions.kept_of_job(self.key).into_iter().filter_map(|(name, object)| {
            let index = self.number(&name)?;
            if let Some(same) = unless_changed(before.get(&index), &object) {
                return Some((index, Arc::clone(same)));
            }
            let region = object.read().filter(|region| is_controlled_by(&region.metadata, self.job))?;
            let created = Some(CreatedRegion::of(&region));
            let is_silent = region.status.as_ref().is_none_or(|status| status.width.is_none());
            let created_at = region.metadata.creation_timestamp.as_ref().map(|created| created.0);
            let silent_since = created_at.filter(|_| is_silent);
            let version = region.metadata.resource_version.clone();
            let observed = ObservedRegion { object: observed(&region.metadata), created, silent_since, version };
            Some((index, Shown::new(object, &region.metadata, observed)))
        });
        shown.collect()
    }

    /// The consistent regions, by index.
    fn consistent_regions(
        self,
        mirrors: &Mirrors,
        before: &Objects<u64, ConsistentRegion, ObservedConsistentRegion>,
    ) -> Objects<u64, ConsistentRegion, ObservedConsistentRegion> {
        let shown = mirrors.consistent_regions.kept_of_job(self.key).into_iter().filter_map(|(name, object)| {
            let index: u64 = number_in(suffix(&self.key.name, &name.name)?.strip_prefix("cr")?)?;
            if let Some(same) = unless_changed(before.get(&index), &object) {
                return Some((index, Arc::clone(same)));
            }
            let ConsistentRegionPart { metadata, status } = object.read_part()?;
            if !is_controlled_by(&metadata, self.job) {
                return None;
            }
            let has_given_up = status.and_then(|status| status.state).is_some_and(|state| state == GIVEN_UP);
            let observed = ObservedConsistentRegion { object: observed(&metadata), has_given_up };
            Some((index, Shown::new(object, &metadata, observed)))
        });
        shown.collect()
    }

    fn number(self, name: &Key) -> Option<u64> {
        number_in(suffix(&self.key.name, &name.name)?)
    }

    fn port(self, name: &Key) -> Option<Port> {
        Port::of_suffix(suffix(&self.key.name, &name.name)?)
    }
}

fn known<N: Ord + Copy, K, O: Clone>(objects: &Objects<N, K, O>) -> BTreeMap<N, O> {
    objects.iter().map(|(number, object)| (*number, object.observed.clone())).collect()
}

/// Stands for an object.
fn number(uid: &Option<String>) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}

/// Stands for an object, its version and what was applied to it.
fn fingerprint(meta: &ObjectMeta, hash: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&meta.uid, &meta.resource_version, hash).hash(&mut hasher);
    hasher.finish()
}

fn applied(meta: &ObjectMeta) -> Option<&String> {
    meta.annotations.as_ref()?.get(names::ANNOTATION_APPLIED_HASH)
}

fn observed(meta: &ObjectMeta) -> ObservedObject {
    let since = meta.annotations.as_ref().and_then(|annotations| annotations.get(names::ANNOTATION_SINCE_GENERATION));
    ObservedObject {
        applied: applied(meta).cloned().unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
        just_deleted: false,
        going: GoingObject::of(meta),
        drift: None,
        since: since.and_then(|since| since.parse().ok()).unwrap_or_default(),
    }
}

/// What a job has to know of one of its PEs.
pub(in super::super) fn processing_element(pe: &ProcessingElement) -> ObservedPe {
    let status = pe.status.clone().unwrap_or_default();
    let run = match status.phase {
        Some(PePhase::Running) if condition::is_true(&status.conditions, condition::READY) => PodState::Ready,
        Some(PePhase::Completed) => PodState::Completed,
        Some(PePhase::Failed | PePhase::Stopped) => PodState::Down,
        Some(PePhase::Suspended) => PodState::Suspended,
        _ => PodState::Pending,
    };
    let must_move = must_move(status.placement_hash.as_ref(), pe.spec.placement_hash.as_ref());
    // A PE that has completed, is suspended, or was stopped, takes a new text and another place without another pod;
    // one that stays down has no pod that could be in the wrong place. The PE controller need not have seen the spec as
    // it is: nothing else in it has a pod replaced that runs, and what is down is down until it says otherwise.
    let has_same_text = status.runtime_id.as_ref() == Some(&pe.spec.runtime_id);
    let same_content = matches!(run, PodState::Completed | PodState::Suspended)
        || status.stopped
        || (has_same_text && (run == PodState::Down || !must_move));
    // Where the pod had to run is not known if an earlier frontend has made it, before the PE controller has looked.
    let is_seen = status.observed_generation.is_some() && status.observed_generation == pe.metadata.generation;
    let is_placed = is_seen || is_place_known(status.placement_hash.as_ref(), pe.spec.placement_hash.as_ref());
    let run = if same_content && (is_placed || run != PodState::Ready) { run } else { PodState::Pending };
    let no_other_pod = no_other_pod(&status);
    let says = says(&status, run, no_other_pod.as_ref());
    let permits_no_pod = no_other_pod.filter(|words| needs_correction(&words.reason));
    let has_older_options = outdated(&status).is_some_and(|outdated| outdated.reason == condition::OPTIONS_CHANGED);
    let is_behind = has_pod(&status) && !is_seen;
    let settles =
        || condition::get(&status.conditions, condition::READY).is_some_and(|it| it.reason == condition::SETTLING);
    let has_running_pod = match status.phase {
        Some(PePhase::Running) => true,
        Some(PePhase::Starting) => settles(),
        _ => false,
    };
    let is_connected = has_running_pod && status.connectivity() == Connectivity::Full;
    let lacks_bundle = status.bundle_unavailable.as_deref();
    let lacks_bundle = lacks_bundle.map(|missing| Box::new(Words::of(&missing.reason, &missing.message)));
    let requested = pe.annotations().get(names::ANNOTATION_RESTART_REQUESTED);
    let is_requested = is_new(requested, status.restart_requested.as_ref());
    let next_pod = match status.phase {
        Some(PePhase::Suspended) => Some(NextPod::OnceResumed),
        _ if is_requested => Some(NextPod::Soon),
        Some(PePhase::Waiting | PePhase::BackOff | PePhase::Replacing) => Some(NextPod::Soon),
        Some(PePhase::Stopped) if status.stopped => Some(NextPod::OnceContinued),
        Some(PePhase::Starting | PePhase::Running | PePhase::Completed | PePhase::Failed | PePhase::Stopped) | None => {
            None
        }
    };
    // If somebody else has changed it, it is not known for which generation the PE was made.
    let generation = if pe.spec.is_changed_by_others(&pe.metadata) { 0 } else { pe.spec.generation };
    ObservedPe {
        object: observed(&pe.metadata),
        generation,
        running_generation: generation,
        config_map: pe.spec.config_map.name.clone(),
        launched: status.created_launch_count > 0,
        run,
        has_running_pod,
        runs_another: has_running_pod && !same_content,
        running_since: status.running_since.map(|since| since.0),
        is_starting: matches!(status.phase, Some(PePhase::Starting | PePhase::Replacing)),
        next_pod,
        is_stopped: status.stopped,
        has_completed: status.phase == Some(PePhase::Completed) && !is_requested,
        runtime_id: status.runtime_id,
        placement: placed(&pe.spec.placement),
        placement_hash: pe.spec.placement_hash.clone(),
        pod_placement_hash: status.placement_hash,
        interrupted_for: status.interrupted_for,
        is_connected,
        lacks_bundle,
        says,
        permits_no_pod,
        has_older_options,
        is_behind,
        has_pods_left: false,
    }
}

/// What a PE whose pod lives says of what that was made from, or of why it can get no other one (rule pe-12).
fn outdated(status: &ProcessingElementStatus) -> Option<&Condition> {
    // Once the pod has ended, the PE says what it waits for instead.
    let outdated = condition::get(&status.conditions, condition::OUTDATED).filter(|_| has_pod(status));
    outdated.filter(|outdated| outdated.status == "True")
}

/// Whether the PE has a pod that lives, and stays as far as is known.
fn has_pod(status: &ProcessingElementStatus) -> bool {
    matches!(status.phase, Some(PePhase::Running | PePhase::Starting))
}

/// Why a PE whose pod lives can get no other one now, in its own words.
fn no_other_pod(status: &ProcessingElementStatus) -> Option<Words> {
    let outdated = outdated(status).filter(|outdated| outdated.reason != condition::OPTIONS_CHANGED)?;
    Some(Words::of(&outdated.reason, &outdated.message))
}

/// Why a PE does not run what it should, in its own words. If its pod cannot be replaced, that is why, and not how the
/// pod does (rule job-52).
fn says(status: &ProcessingElementStatus, run: PodState, no_other_pod: Option<&Words>) -> Words {
    let ready = condition::get(&status.conditions, condition::READY).filter(|_| run != PodState::Ready);
    match (ready, no_other_pod) {
        (Some(_), Some(words)) if run == PodState::Pending => words.clone(),
        // Its pod runs what the PE had before. The PE controller has not looked at it since.
        (Some(ready), _) if ready.status == "True" => Words::default(),
        (Some(ready), _) => Words::of(&ready.reason, &ready.message),
        (None, _) => Words::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::tests::LateMirrors;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use streams_api::{BundleReference, JobSpec, ProcessingElementSpec, UserEndpoint};
    use streams_kubernetes::ownership::controlled_by;
    use streams_kubernetes_fake::Server;

    #[test]
    fn a_look_reads_only_what_has_changed_and_sees_the_same_as_one_that_reads_everything() {
        let server = Server::new();
        let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
        job.metadata.namespace = Some("n".to_owned());
        let job = server.create(&job);
        let meta = |name: &str, labels| ObjectMeta {
            namespace: Some("n".to_owned()),
            name: Some(name.to_owned()),
            labels: Some(labels),
            owner_references: Some(vec![controlled_by(&job)]),
            ..ObjectMeta::default()
        };
        let [first_text, next_text] =
            ["0123456789", "abcdef0123"].map(|digest| names::aadl_config_map("flow", 0, digest));
        let text = |name: &str| ConfigMap { metadata: meta(name, names::pe_labels("flow", 0)), ..ConfigMap::default() };
        for id in [0, 1] {
            let name = names::processing_element("flow", id);
            let metadata = meta(&name, names::pe_labels("flow", id));
            let mut pe =
                ProcessingElement::new(&name, ProcessingElementSpec { id, ..ProcessingElementSpec::default() });
            pe.metadata = metadata.clone();
            let endpoint = UserEndpoint { name: "web".to_owned(), port: 80, protocol: "TCP".to_owned() };
            pe.status =
                Some(ProcessingElementStatus { endpoints: vec![endpoint], ..ProcessingElementStatus::default() });
            server.create(&pe);
            server.create(&Service { metadata, ..Service::default() });
        }
        server.create(&text(&first_text));
        server.create(&text("flow-copy"));
        server.create(&ConfigMap { metadata: meta("flow", names::job_labels("flow")), ..ConfigMap::default() });
        let mut mirrors = LateMirrors::of(&server);
        let key = Key::new("n", "flow");
        let look = |mirrors: &LateMirrors, before: &MirroredChildren| {
            let seen = MirroredChildren::of(&mirrors.mirrors, &key, &job, before);
            let anew = MirroredChildren::of(&mirrors.mirrors, &key, &job, &MirroredChildren::default());
            let all = |seen: &MirroredChildren| format!("{:?} {:?}", seen.children(), seen.endpoints);
            assert_eq!(all(&seen), all(&anew));
            assert_eq!(seen.len(), anew.len());
            seen
        };
        let first = look(&mirrors, &MirroredChildren::default());
        assert_eq!((first.len(), first.endpoints.len()), (6, 2));
        let again = look(&mirrors, &first);
        let is_same = |id: u64, one: &MirroredChildren, other: &MirroredChildren| {
            Arc::ptr_eq(&one.processing_elements[&id], &other.processing_elements[&id])
        };
        assert!(is_same(0, &first, &again) && is_same(1, &first, &again));
        assert!(Arc::ptr_eq(&first.config_maps[&first_text].1, &again.config_maps[&first_text].1));
        assert!(
            first.job_config_map.as_ref().zip(again.job_config_map.as_ref()).is_some_and(|(a, b)| Arc::ptr_eq(a, b))
        );

        // A PE changes, another one has lost its owner, a text has gone and another one has come.
        server.edit(&key.sibling("flow-0"), |pe: &mut ProcessingElement| pe.spec.generation = 7);
        server.edit(&key.sibling("flow-1"), |pe: &mut ProcessingElement| pe.metadata.owner_references = None);
        server.remove::<ConfigMap>(&key.sibling(&first_text));
        server.create(&text(&next_text));
        mirrors.deliver_all();
        let changed = look(&mirrors, &again);
        assert!(!is_same(0, &first, &changed));
        let name = key.sibling("flow-0");
        let now = mirrors.mirrors.processing_elements.kept(&name).unwrap();
        assert!(first.processing_element(&key, &name, &now).is_none(), "it has changed since");
        assert_eq!(changed.processing_element(&key, &name, &now).map(|(id, _)| id), Some(0));
        assert_eq!(changed.processing_elements.keys().collect::<Vec<_>>(), [&0]);
        assert_eq!(changed.children().taken, [1].into());
        assert!(Arc::ptr_eq(&first.services[&1], &changed.services[&1]));
        assert_eq!(changed.config_maps.keys().collect::<Vec<_>>(), [&next_text]);
    }

    #[test]
    fn a_pe_that_stays_down_is_down_wherever_it_is_to_run() {
        let pe = |phase: &str, ready: &str, text: &str, place: &str, seen: i64| -> ProcessingElement {
            let object = json!({
                "metadata": {"namespace": "n", "name": "flow-0", "generation": 2},
                "spec": {
                    "jobName": "flow", "jobId": 1, "id": 0, "generation": 1, "contentId": "c", "runtimeId": text,
                    "configMap": {"name": "m", "compressed": false}, "operatorCount": 1, "operators": ["o"],
                    "inputPorts": [], "placementHash": place,
                },
                "status": {
                    "phase": phase, "observedGeneration": seen, "launchCount": 1, "createdLaunchCount": 1,
                    "runtimeId": "r0", "placementHash": "p0",
                    "conditions": [{
                        "type": "Ready", "status": ready, "reason": "R", "message": "m",
                        "lastTransitionTime": "2026-11-24T10:11:13Z",
                    }],
                },
            });
            serde_json::from_value(object).unwrap()
        };
        // phase, ready, text and place that are wanted; its pod is of `r0` and `p0` -> what it does for the job
        let table = [
            ("Running", "True", "r0", "p0", PodState::Ready),
            ("Running", "True", "r0", "p1", PodState::Pending),
            ("Running", "True", "r1", "p0", PodState::Pending),
            ("Completed", "False", "r1", "p1", PodState::Completed),
            ("Failed", "False", "r0", "p0", PodState::Down),
            // There is no pod that could be in the wrong place.
            ("Failed", "False", "r0", "p1", PodState::Down),
            ("Failed", "False", "r1", "p1", PodState::Pending),
            ("Stopped", "False", "r0", "p1", PodState::Down),
            ("BackOff", "False", "r0", "p1", PodState::Pending),
            ("Suspended", "False", "r1", "p1", PodState::Suspended),
        ];
        for (phase, ready, text, place, expected) in table {
            // The PE controller has seen the spec, or the one before.
            for seen in [2, 1] {
                let found = processing_element(&pe(phase, ready, text, place, seen)).run;
                assert_eq!(found, expected, "{phase} {text} {place} {seen}");
            }
        }
        // An earlier frontend has made the pod, and it may have to move, or not: the PE controller finds out.
        for (seen, place, expected) in
            [(2, Some("p0"), PodState::Ready), (1, Some("p0"), PodState::Pending), (1, None, PodState::Ready)]
        {
            let mut pe = pe("Running", "True", "r0", "", seen);
            pe.spec.placement_hash = place.map(str::to_owned);
            pe.status.as_mut().unwrap().placement_hash = None;
            assert_eq!(processing_element(&pe).run, expected, "{seen} {place:?}");
        }
    }
}
