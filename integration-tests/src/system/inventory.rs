//! All objects of a job, and what is wrong with them once the job has settled.
//!
//! What must be there follows from the widths of the sample application, not from what the operator says: an operator
//! that forgot a PE everywhere would be found out.
//!
//! Knows: the sample application, kinds of objects. Must not know: how a job got there.

use super::snapshot::Snapshot;
use crate::sample::Widths;
use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use streams_api::{
    ConsistentRegion, Export, HostPool, Import, Job, JobStatus, ParallelRegion, PePhase, ProcessingElement, condition,
    names,
};

/// Key of the ConfigMap of a PE: its text.
pub const AADL: &str = "aadl.xml";
/// The same of a text that is large.
const AADL_COMPRESSED: &str = "aadl.xml.gz";

/// The objects of a job.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// PEs.
    pub processing_elements: Vec<ProcessingElement>,
    /// Pods, whatever state they are in.
    pub pods: Vec<Pod>,
    /// Services.
    pub services: Vec<Service>,
    /// ConfigMaps.
    pub config_maps: Vec<ConfigMap>,
    /// Regions.
    pub regions: Vec<ParallelRegion>,
    /// Host pools.
    pub host_pools: Vec<HostPool>,
    /// Exported streams.
    pub exports: Vec<Export>,
    /// Subscriptions.
    pub imports: Vec<Import>,
    /// Consistent regions.
    pub consistent_regions: Vec<ConsistentRegion>,
    /// Secrets.
    pub secrets: Vec<Secret>,
}

impl Inventory {
    /// Kind and name of each object.
    pub fn names(&self) -> Vec<String> {
        fn of<K: Resource<DynamicType = ()>>(objects: &[K]) -> impl Iterator<Item = String> {
            objects.iter().map(|object| format!("{} {}", K::kind(&()), object.name_any()))
        }
        of(&self.processing_elements)
            .chain(of(&self.pods))
            .chain(of(&self.services))
            .chain(of(&self.config_maps))
            .chain(of(&self.regions))
            .chain(of(&self.host_pools))
            .chain(of(&self.exports))
            .chain(of(&self.imports))
            .chain(of(&self.consistent_regions))
            .chain(of(&self.secrets))
            .collect()
    }

    /// ConfigMaps by the part of the job that they hold; the job's own has none.
    pub fn config_maps_of(&self, part: Option<&str>) -> impl Iterator<Item = &ConfigMap> {
        let part = part.map(str::to_owned);
        self.config_maps.iter().filter(move |map| map.labels().get(names::LABEL_PART) == part.as_ref())
    }

    /// Takes out the pods that outlive their PE: of PEs that are gone now and were there `before`, or had left a pod by
    /// then. The answer to a resize does not wait for them. Pods that belong to no PE at all stay.
    pub fn take_outliving_pods(&mut self, before: &Self) -> Vec<Pod> {
        let uids = |pes: &[ProcessingElement]| -> BTreeSet<_> { pes.iter().filter_map(ResourceExt::uid).collect() };
        let mut had = uids(&before.processing_elements);
        had.extend(before.pods.iter().flat_map(|pod| pod.owner_references()).map(|owner| owner.uid.clone()));
        let has = uids(&self.processing_elements);
        let outlives = |pod: &mut Pod| {
            let mut owners = pod.owner_references().iter();
            owners.any(|owner| had.contains(&owner.uid) && !has.contains(&owner.uid))
        };
        self.pods.extract_if(.., outlives).collect()
    }

    /// Content ids by PE id: what the PEs run.
    pub fn contents(&self) -> BTreeMap<u64, String> {
        self.processing_elements.iter().map(|pe| (pe.spec.id, pe.spec.content_id.clone())).collect()
    }

    /// Everything that a settled job of the sample with legacy fusion must not have. In words; empty if all is well.
    pub fn problems(&self, job: &Job, widths: &Widths) -> Vec<String> {
        let status = job.status.clone().unwrap_or_default();
        let mut problems = unfinished(&status, widths);
        self.check_operators(widths, &mut problems);
        self.check_processing_elements(job, &mut problems);
        self.check_pods(&mut problems);
        self.check_services(job, &mut problems);
        self.check_config_maps(job, &status, &mut problems);
        self.check_regions(job, widths, &mut problems);
        for pool in &self.host_pools {
            check_owner("host pool", &pool.metadata, &job.metadata, &mut problems);
        }
        problems
    }

    fn check_operators(&self, widths: &Widths, problems: &mut Vec<String>) {
        let mut there = BTreeMap::new();
        for operator in self.processing_elements.iter().flat_map(|pe| &pe.spec.operators) {
            *there.entry(operator.clone()).or_insert(0) += 1;
        }
        let wanted = widths.operators();
        let names: BTreeSet<_> = there.keys().cloned().collect();
        problems.extend(wanted.difference(&names).map(|operator| format!("operator {operator} is missing")));
        problems.extend(names.difference(&wanted).map(|operator| format!("operator {operator} is too much")));
        let twice = there.iter().filter(|(_, count)| **count > 1);
        problems.extend(twice.map(|(operator, count)| format!("operator {operator} is in {count} PEs")));
    }

    fn check_processing_elements(&self, job: &Job, problems: &mut Vec<String>) {
        for pe in &self.processing_elements {
            let name = pe.name_any();
            let what = format!("PE {name}");
            let (spec, status) = (&pe.spec, pe.status.clone().unwrap_or_default());
            check_owner(&what, &pe.metadata, &job.metadata, problems);
            let mut wrong = |holds: bool, problem: String| {
                if !holds {
                    problems.push(format!("{what}: {problem}"));
                }
            };
            wrong(name == names::processing_element(&job.name_any(), spec.id), format!("has id {}", spec.id));
            wrong(pe.metadata.deletion_timestamp.is_none(), "is being deleted".to_owned());
            wrong(status.phase == Some(PePhase::Running), format!("is {:?}", status.phase));
            wrong(
                status.runtime_id.as_ref() == Some(&spec.runtime_id),
                format!("runs {:?} instead of {}", status.runtime_id, spec.runtime_id),
            );
            wrong(
                status.launch_count == status.created_launch_count,
                format!("launch count {}, created {}", status.launch_count, status.created_launch_count),
            );
            let pod = self.pods.iter().find(|pod| Some(pod.name_any()) == status.pod_name);
            let launch = pod.and_then(|pod| pod.labels().get(names::LABEL_LAUNCH_COUNT)).cloned();
            wrong(
                launch == Some(status.launch_count.to_string()),
                format!("launch count {}, that of its pod {launch:?}", status.launch_count),
            );
        }
    }

    fn check_pods(&self, problems: &mut Vec<String>) {
        let uids: BTreeMap<_, _> = self.processing_elements.iter().map(|pe| (pe.uid(), pe.spec.id)).collect();
        for pod in &self.pods {
            let name = pod.name_any();
            let owner = pod.owner_references().first().map(|owner| owner.uid.clone());
            match uids.get(&owner) {
                Some(id) if pod.labels().get(names::LABEL_PE) == Some(&id.to_string()) => {}
                Some(id) => problems.push(format!("pod {name} belongs to PE {id}, its labels say something else")),
                None => problems.push(format!("pod {name} belongs to no PE")),
            }
            if pod.metadata.deletion_timestamp.is_some() {
                problems.push(format!("pod {name} is being deleted"));
            }
        }
        match Snapshot::of(&self.pods, &self.processing_elements) {
            Ok(snapshot) => {
                let pods: BTreeSet<_> = snapshot.0.iter().filter(|(_, pod)| pod.running).map(|(id, _)| *id).collect();
                let without = self.processing_elements.iter().filter(|pe| !pods.contains(&pe.spec.id));
                problems.extend(without.map(|pe| format!("PE {} has no running pod", pe.name_any())));
                if self.pods.len() > snapshot.0.len() {
                    problems.push(format!("{} pods for {} PEs", self.pods.len(), snapshot.0.len()));
                }
            }
            Err(error) => problems.push(format!("{error:#}")),
        }
    }

    fn check_services(&self, job: &Job, problems: &mut Vec<String>) {
        let wanted: BTreeSet<_> = self.processing_elements.iter().map(|pe| pe.spec.service_name()).collect();
        let there: BTreeSet<_> = self.services.iter().map(ResourceExt::name_any).collect();
        compare("Service", &wanted, &there, problems);
        for service in &self.services {
            check_owner(&format!("Service {}", service.name_any()), &service.metadata, &job.metadata, problems);
        }
    }

    fn check_config_maps(&self, job: &Job, status: &JobStatus, problems: &mut Vec<String>) {
        let name = job.name_any();
        let there = |part| self.config_maps_of(part).map(ResourceExt::name_any).collect::<BTreeSet<_>>();
        let own = BTreeSet::from([names::job_config_map(&name)]);
        compare("ConfigMap of the job", &own, &there(None), problems);
        let adl = status.adl.iter();
        let adl = adl.flat_map(|adl| (0..adl.chunks).map(|chunk| names::adl_chunk(&name, &adl.sha256, chunk)));
        compare("chunk of the ADL", &adl.collect(), &there(Some(names::PART_ADL)), problems);
        let plan = status.plan.iter().flat_map(|plan| {
            (0..plan.chunks).map(|chunk| names::plan_chunk(&name, plan.generation, &plan.sha256, chunk))
        });
        compare("chunk of the plan", &plan.collect(), &there(Some(names::PART_PLAN)), problems);
        let texts = self.processing_elements.iter().map(|pe| pe.spec.config_map.name.clone()).collect();
        compare("ConfigMap with AADL", &texts, &there(Some(names::PART_AADL)), problems);
        for pe in &self.processing_elements {
            let what = format!("ConfigMap {}", pe.spec.config_map.name);
            let Some(map) = self.config_maps.iter().find(|map| map.name_any() == pe.spec.config_map.name) else {
                continue;
            };
            let digest = text(map).map(|text| hex::encode(Sha256::digest(text)));
            if digest.as_ref() != Some(&pe.spec.content_id) {
                problems.push(format!("{what}: its text has digest {digest:?} instead of {}", pe.spec.content_id));
            }
            if map.name_any() != names::aadl_config_map(&name, pe.spec.id, &pe.spec.content_id) {
                problems.push(format!("{what}: is not named after content {}", pe.spec.content_id));
            }
        }
        for map in &self.config_maps {
            let what = format!("ConfigMap {}", map.name_any());
            check_owner(&what, &map.metadata, &job.metadata, problems);
            if map.labels().contains_key(names::LABEL_PART) && map.immutable != Some(true) {
                problems.push(format!("{what}: can be changed"));
            }
        }
    }

    fn check_regions(&self, job: &Job, widths: &Widths, problems: &mut Vec<String>) {
        let wanted = widths.by_region();
        let there = self.regions.iter().map(|region| region.spec.name.clone()).collect();
        compare("region", &wanted.keys().cloned().collect(), &there, problems);
        for region in &self.regions {
            let what = format!("region {}", region.spec.name);
            check_owner(&what, &region.metadata, &job.metadata, problems);
            let (desired, applied) = (region.spec.width, region.status.as_ref().and_then(|status| status.width));
            if wanted.get(&region.spec.name) != Some(&desired) || applied != Some(desired) {
                problems.push(format!("{what}: width {applied:?}, desired {desired}, expected {wanted:?}"));
            }
            if region.name_any() != names::parallel_region(&job.name_any(), region.spec.index) {
                problems.push(format!("{what}: is called {}", region.name_any()));
            }
        }
    }
}

/// The text that a ConfigMap has, compressed or not (rule job-11).
fn text(map: &ConfigMap) -> Option<Vec<u8>> {
    if let Some(text) = map.data.as_ref().and_then(|data| data.get(AADL)) {
        return Some(text.clone().into_bytes());
    }
    let compressed = map.binary_data.as_ref()?.get(AADL_COMPRESSED)?;
    let mut text = Vec::new();
    GzDecoder::new(compressed.0.as_slice()).read_to_end(&mut text).ok()?;
    Some(text)
}

/// What a status says of a job that has not come to rest with these widths. In words; empty if it has.
pub fn unfinished(status: &JobStatus, widths: &Widths) -> Vec<String> {
    let mut unfinished = Vec::new();
    let mut wrong = |holds: bool, problem: String| {
        if !holds {
            unfinished.push(problem);
        }
    };
    let applied: BTreeMap<_, _> = status.applied_widths.iter().map(|w| (w.region.clone(), w.width)).collect();
    let wanted = widths.by_region();
    wrong(applied == wanted, format!("widths {applied:?} are applied instead of {wanted:?}"));
    wrong(status.proposal.is_none(), "a generation is being prepared".to_owned());
    let rollout = status.rollout.clone().unwrap_or_default();
    wrong(
        Some(rollout.generation) == status.generation && rollout.finished_at.is_some() && rollout.pending == 0,
        format!("generation {:?} is not rolled out: {rollout:?}", status.generation),
    );
    let figures = status.statistics.clone().unwrap_or_default();
    let all = u32::try_from(widths.processing_elements()).unwrap_or(u32::MAX);
    wrong(
        (figures.processing_elements, figures.ready_processing_elements) == (all, all),
        format!(
            "{} of {} PEs are ready, {all} are expected",
            figures.ready_processing_elements, figures.processing_elements
        ),
    );
    wrong(condition::is_true(&status.conditions, condition::READY), "it is not Ready".to_owned());
    unfinished
}

fn compare(kind: &str, wanted: &BTreeSet<String>, there: &BTreeSet<String>, problems: &mut Vec<String>) {
    problems.extend(wanted.difference(there).map(|name| format!("{kind} {name} is missing")));
    problems.extend(there.difference(wanted).map(|name| format!("{kind} {name} is too much")));
}

/// The object is controlled by the job and says so in its labels.
fn check_owner(what: &str, object: &ObjectMeta, job: &ObjectMeta, problems: &mut Vec<String>) {
    let owners = object.owner_references.as_deref().unwrap_or_default();
    if !matches!(owners, [owner] if owner.controller == Some(true) && Some(&owner.uid) == job.uid.as_ref()) {
        problems.push(format!("{what}: is not controlled by the job: {owners:?}"));
    }
    let labels = object.labels.clone().unwrap_or_default();
    if labels.get(names::LABEL_APP).map(String::as_str) != Some(names::APP)
        || labels.get(names::LABEL_JOB) != job.name.as_ref()
    {
        problems.push(format!("{what}: has labels {labels:?}"));
    }
}
