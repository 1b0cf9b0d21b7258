//! Users, and the PE controller.

use super::{JOB, JobSimulation, NAMESPACE, REGIONS, key};
use crate::controllers::job::decide::Child;
use crate::controllers::job::documents::chunks::digest;
use crate::controllers::job::resources::parse_milli;
use crate::controllers::placement_hash::placement_hash;
use k8s_openapi::api::core::v1::{ConfigMap, ResourceRequirements, Secret, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::{DeleteParams, PropagationPolicy};
use std::collections::BTreeMap;
use streams_api::{
    ConsistentRegion, DesiredWidth, Export, HostPool, Import, Job, JobSpec, ParallelRegion, PeOptions, PePhase,
    ProcessingElement, ProcessingElementStatus, RequestedWidth, RequestedWidths, Resize, ResizeSpec, ResizeStatus,
    SubmissionValue, TransportSecurity, condition, names,
};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::controlled_by;

/// Counts how often each PE was started; of no concern to the controller.
const STARTS: &str = "starts";

/// What a user deletes.
#[derive(Clone, Debug)]
pub(in super::super) enum UserDeletion {
    ProcessingElement(u64),
    Service(u64),
    Region(u64),
    HostPool(u64),
    Interface(Child),
    JobConfigMap,
    /// The request with this name.
    Request(String),
    /// All ConfigMaps with texts.
    Texts,
    /// The ConfigMap with this text or chunk.
    ConfigMap(String),
    /// The ConfigMaps with chunks.
    Chunks,
    /// Those of the ADL.
    AdlChunks,
    /// The job.
    Job,
    /// The job, and nothing of what it controls.
    JobAlone,
}

fn settles(status: &ProcessingElementStatus) -> bool {
    condition::get(&status.conditions, condition::READY).is_some_and(|ready| ready.reason == condition::SETTLING)
}

fn sibling(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

impl JobSimulation {
    pub(in super::super) fn pe(&self, id: u64) -> Option<ProcessingElement> {
        self.server.get(&sibling(&names::processing_element(JOB, id)))
    }

    pub(in super::super) fn pes(&self) -> BTreeMap<u64, ProcessingElement> {
        self.server.list::<ProcessingElement>().into_iter().map(|pe| (pe.spec.id, pe)).collect()
    }

    pub(in super::super) fn region(&self, index: u64) -> Option<ParallelRegion> {
        self.server.get(&sibling(&names::parallel_region(JOB, index)))
    }

    /// ConfigMaps of this part of the job, by name.
    pub(in super::super) fn config_maps(&self, parts: &[&str]) -> Vec<ConfigMap> {
        let is_part = |map: &ConfigMap| {
            let part = map.labels().get(names::LABEL_PART);
            part.is_some_and(|part| parts.contains(&part.as_str()))
        };
        self.server.list::<ConfigMap>().into_iter().filter(is_part).collect()
    }

    pub(in super::super) fn texts(&self) -> Vec<String> {
        self.config_maps(&[names::PART_AADL]).iter().map(ResourceExt::name_any).collect()
    }

    pub(in super::super) fn chunks(&self) -> Vec<String> {
        self.config_maps(&[names::PART_ADL, names::PART_PLAN]).iter().map(ResourceExt::name_any).collect()
    }

    pub(in super::super) fn has_service(&self, pe: u64) -> bool {
        self.server.get::<Service>(&sibling(&names::processing_element(JOB, pe))).is_some()
    }

    pub(in super::super) fn export(&self, pe: u64) -> Option<Export> {
        self.server.get(&sibling(&names::export(JOB, pe, 0)))
    }

    /// A Service that some earlier generation has left.
    pub(in super::super) fn create_superfluous_service(&self, pe: u64) {
        let mut service = Service::default();
        service.metadata.name = Some(names::processing_element(JOB, pe));
        service.metadata.namespace = Some(NAMESPACE.to_owned());
        service.metadata.labels = Some(names::pe_labels(JOB, pe));
        service.metadata.owner_references = self.server.get::<Job>(&key()).map(|job| vec![controlled_by(&job)]);
        self.server.create(&service);
    }

    /// A user scales a region.
    pub(in super::super) fn resize(&self, index: u64, width: u32) {
        self.server.edit(&sibling(&names::parallel_region(JOB, index)), |region: &mut ParallelRegion| {
            region.spec.width = width;
        });
        self.note_wanted();
    }

    /// A request for both regions, once the one before was taken over; not while a region is missing.
    pub(in super::super) fn resize_both(&self, widths: [u32; 2]) {
        let regions: Vec<ParallelRegion> = (0..2).filter_map(|index| self.region(index)).collect();
        let request = RequestedWidths::read(&regions);
        let is_busy = |region| request.as_ref().is_some_and(|request| request.pending(region).is_some());
        let is_going = |region: &ParallelRegion| region.metadata.deletion_timestamp.is_some();
        if regions.len() != REGIONS.len() || regions.iter().any(|region| is_busy(region) || is_going(region)) {
            return;
        }
        let requested = regions.iter().zip(widths).map(|(region, width)| RequestedWidth::of(region, width));
        let request = RequestedWidths { widths: requested.collect(), trace_parent: None };
        self.server.edit(&sibling(&names::parallel_region(JOB, 0)), |region: &mut ParallelRegion| {
            let text = serde_json::to_string(&request).unwrap();
            region.annotations_mut().insert(names::ANNOTATION_REQUESTED_WIDTHS.to_owned(), text);
        });
        self.note_wanted();
    }

    /// Somebody asks for widths, if there is no such request yet.
    pub(in super::super) fn request(&self, name: &str, widths: &[(&str, u32)]) {
        self.request_if(name, widths, |_| {});
    }

    /// The same with preconditions or another policy.
    pub(in super::super) fn request_if(
        &self,
        name: &str,
        widths: &[(&str, u32)],
        change: impl FnOnce(&mut ResizeSpec),
    ) {
        let Some(job) = self.server.get::<Job>(&key()) else { return };
        if self.server.get::<Resize>(&sibling(name)).is_some() {
            return;
        }
        let desired = |(name, width): &(&str, u32)| DesiredWidth {
            name: (*name).to_owned(),
            width: *width,
            expected_width: None,
        };
        let regions = widths.iter().map(desired).collect();
        let mut spec = ResizeSpec { job_name: JOB.to_owned(), regions, ..ResizeSpec::default() };
        change(&mut spec);
        let mut request = Resize::new(name, spec);
        request.metadata.namespace = Some(NAMESPACE.to_owned());
        request.metadata.owner_references = Some(vec![controlled_by(&job)]);
        request.metadata.labels = Some([(names::LABEL_JOB.to_owned(), JOB.to_owned())].into());
        self.server.create(&request);
    }

    /// What a request says of itself.
    pub(in super::super) fn outcome(&self, name: &str) -> ResizeStatus {
        self.server.get::<Resize>(&sibling(name)).and_then(|request| request.status).unwrap_or_default()
    }

    /// Somebody withdraws a request.
    pub(in super::super) fn withdraw(&self, name: &str) {
        self.server.edit(&sibling(name), |request: &mut Resize| {
            request.annotations_mut().insert(names::ANNOTATION_CANCEL_REQUESTED.to_owned(), "yes".to_owned());
        });
    }

    /// A user changes the spec of the job.
    pub(in super::super) fn change_spec(&self, change: impl FnOnce(&mut JobSpec)) {
        self.server.edit(&key(), |job: &mut Job| change(&mut job.spec));
    }

    /// A user wants PEs to encrypt their connections, or not.
    pub(in super::super) fn secure(&self, is_secure: bool) {
        let transport_security_type = if is_secure { TransportSecurity::Tls12 } else { TransportSecurity::None };
        self.change_spec(|spec| {
            spec.processing_element = Some(PeOptions { transport_security_type, ..PeOptions::default() });
        });
    }

    /// A user gives the job this much CPU, in thousandths.
    pub(in super::super) fn give(&self, milli: u32) {
        let cpu = [("cpu".to_owned(), Quantity(format!("{milli}m")))];
        self.change_spec(|spec| {
            spec.resources =
                Some(ResourceRequirements { requests: Some(cpu.into()), ..ResourceRequirements::default() });
        });
    }

    /// The CPU that each PE asks for, in thousandths.
    pub(in super::super) fn shares(&self) -> BTreeMap<u64, u128> {
        let cpu = |pe: ProcessingElement| parse_milli(&pe.spec.options.resources?.requests?.get("cpu")?.0);
        self.pes().into_iter().filter_map(|(id, pe)| Some((id, cpu(pe)?))).collect()
    }

    /// A user changes the spec of a job that is not submitted yet: afterwards the schema refuses it.
    pub(in super::super) fn edit(&self, value: &str) {
        assert!(self.status().generation.is_none(), "the schema refuses it");
        let value = SubmissionValue::Text(value.to_owned());
        self.change_spec(|spec| drop(spec.submission_time_values.insert("value".to_owned(), value)));
    }

    pub(in super::super) fn delete(&self, deletion: &UserDeletion) {
        self.note_wanted();
        match deletion {
            UserDeletion::ProcessingElement(id) => {
                self.note_deletion(*id);
                self.delete_one::<ProcessingElement>(&names::processing_element(JOB, *id))
            }
            UserDeletion::Service(id) => self.delete_one::<Service>(&names::processing_element(JOB, *id)),
            UserDeletion::Region(index) => self.delete_one::<ParallelRegion>(&names::parallel_region(JOB, *index)),
            UserDeletion::HostPool(index) => self.delete_one::<HostPool>(&names::host_pool(JOB, *index)),
            UserDeletion::Interface(child) => self.delete_interface(*child),
            UserDeletion::JobConfigMap => self.delete_one::<ConfigMap>(&names::job_config_map(JOB)),
            UserDeletion::Request(name) => self.delete_one::<Resize>(name),
            UserDeletion::Texts => self.texts().iter().for_each(|name| self.delete_one::<ConfigMap>(name)),
            UserDeletion::ConfigMap(name) => self.delete_one::<ConfigMap>(name),
            UserDeletion::Chunks => self.chunks().iter().for_each(|name| self.delete_one::<ConfigMap>(name)),
            UserDeletion::AdlChunks => {
                self.config_maps(&[names::PART_ADL])
                    .iter()
                    .for_each(|map| self.delete_one::<ConfigMap>(&map.name_any()));
            }
            UserDeletion::Job => self.delete_one::<Job>(JOB),
            UserDeletion::JobAlone => {
                let alone =
                    DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
                self.server.delete::<Job>(&key(), &alone);
            }
        }
        self.note_wanted();
    }

    /// A user creates the job again.
    pub(in super::super) fn create_job(&self) {
        self.server.create(&super::job());
    }

    /// A user deletes what an earlier job has left behind.
    pub(in super::super) fn delete_all_but_the_job(&self) {
        self.delete_all::<ProcessingElement>();
        self.delete_all::<Service>();
        self.delete_all::<ConfigMap>();
        self.delete_all::<ParallelRegion>();
        self.delete_all::<HostPool>();
        self.delete_all::<Export>();
        self.delete_all::<Import>();
        self.delete_all::<ConsistentRegion>();
    }

    fn delete_all<K: streams_kubernetes::cluster::Object>(&self) {
        let ours = |object: &K| object.labels().contains_key(names::LABEL_JOB);
        let names = self.server.list::<K>().into_iter().filter(ours).map(|object| object.name_any());
        names.for_each(|name| self.delete_one::<K>(&name));
    }

    fn delete_interface(&self, child: Child) {
        match child {
            Child::Export(port) => self.delete_one::<Export>(&names::export(JOB, port.pe, port.id)),
            Child::Import(port) => self.delete_one::<Import>(&names::import(JOB, port.pe, port.id)),
            Child::ConsistentRegion(index) => {
                self.delete_one::<ConsistentRegion>(&names::consistent_region(JOB, index));
            }
            Child::TransportSecret => self.delete_one::<Secret>(&names::transport_secret(JOB)),
            other => {
                assert_eq!(other, Child::ConsistentRegionService);
                self.delete_one::<Service>(&names::consistent_region_service(JOB));
            }
        }
    }

    fn delete_one<K>(&self, name: &str)
    where
        K: streams_kubernetes::cluster::Object,
    {
        self.server.delete::<K>(&sibling(name), &DeleteParams::foreground());
    }

    /// The region controller: regions say when their widths changed.
    pub(in super::super) fn describe_regions(&self) {
        let of_job = self.status();
        for region in self.server.list::<ParallelRegion>() {
            let applied = of_job.applied_widths.iter().find(|applied| applied.region == region.spec.name);
            let applied = applied.map(|applied| applied.width);
            self.server.edit(&Key::of(&region), |region: &mut ParallelRegion| {
                let status = region.status.get_or_insert_default();
                let last_resize = status.last_resize_by(&of_job, region.spec.index, applied);
                (status.last_resize, status.width) = (last_resize, applied);
            });
        }
    }

    /// The PE controller: PEs of committed generations are started when they have to run something else. Says whether
    /// there were any.
    pub(in super::super) fn run_pods(&self) -> bool {
        let ids: Vec<u64> = self.pes().into_keys().collect();
        ids.into_iter().fold(false, |changed, id| self.run_pod(id) | changed)
    }

    /// The PE controller looks at one PE. Says whether there was something to do.
    pub(in super::super) fn run_pod(&self, id: u64) -> bool {
        let Some(committed) = self.status().generation else { return false };
        let refused_pods = self.services.state().refused_pods;
        let suspended = self.server.get::<Job>(&key()).is_some_and(|job| job.spec.suspend);
        let mut changed = false;
        if let Some(pe) = self.pe(id) {
            let status = pe.status.clone().unwrap_or_default();
            let is_suspended = suspended && status.phase != Some(PePhase::Completed);
            let was_suspended = status.phase == Some(PePhase::Suspended);
            let is_refused = status.created_launch_count == 0 && refused_pods.contains(&id);
            let said_so = status.phase == Some(PePhase::Waiting);
            let is_other = (&status.runtime_id, &status.placement_hash)
                != (&Some(pe.spec.runtime_id.clone()), &pe.spec.placement_hash);
            let is_blocked = !self.is_placed_as_its_pool_says(&pe);
            let is_current = status.observed_generation == pe.metadata.generation
                && is_refused == said_so
                && is_suspended == was_suspended
                && !matches!(status.phase, Some(PePhase::Starting | PePhase::BackOff))
                // One that never had a phase was held up since it is there.
                && (is_blocked || !is_other || !matches!(status.phase, None | Some(PePhase::Running)));
            let text: Option<ConfigMap> = self.server.get(&sibling(&pe.spec.config_map.name));
            let is_going = pe.metadata.deletion_timestamp.is_some();
            if status.stopped {
                // It takes its text, and nothing more.
                let is_behind = status.observed_generation != pe.metadata.generation;
                self.server.edit(&Key::of(&pe), |pe: &mut ProcessingElement| {
                    pe.status.get_or_insert_default().observed_generation = pe.metadata.generation;
                });
                return is_behind;
            }
            if is_current || is_going || text.is_none() || pe.spec.generation > committed {
                return false;
            }
            self.note_state();
            let now = self.server.now();
            if is_refused || is_suspended || status.phase == Some(PePhase::Completed) {
                self.server.edit(&Key::of(&pe), |pe: &mut ProcessingElement| {
                    let status = pe.status.get_or_insert_default();
                    status.observed_generation = pe.metadata.generation;
                    if is_suspended {
                        status.phase = Some(PePhase::Suspended);
                        let kind = condition::READY;
                        condition::set(&mut status.conditions, kind, false, "JobSuspended", "", None, now);
                    } else if is_refused {
                        status.phase = Some(PePhase::Waiting);
                        let words = format!("pod {id} is not permitted");
                        let kind = condition::READY;
                        condition::set(&mut status.conditions, kind, false, "PodRefused", &words, None, now);
                    }
                });
                return true;
            }
            if is_blocked {
                // Its pod goes on, if it has one, and it gets no other.
                let is_behind = status.observed_generation != pe.metadata.generation;
                self.server.edit(&Key::of(&pe), |pe: &mut ProcessingElement| {
                    pe.status.get_or_insert_default().observed_generation = pe.metadata.generation;
                });
                return is_behind;
            }
            let starts =
                status.created_launch_count == 0 || was_suspended || status.phase == Some(PePhase::BackOff) || is_other;
            if starts {
                self.count_start(id);
            }
            let interrupts = starts && (status.phase == Some(PePhase::Running) || settles(&status));
            self.server.edit(&Key::of(&pe), |pe: &mut ProcessingElement| {
                let status = pe.status.get_or_insert_default();
                if interrupts {
                    status.interrupted_for = Some(committed);
                }
                if starts {
                    status.running_since = Some(Time(now));
                }
                status.phase = Some(PePhase::Running);
                status.observed_generation = pe.metadata.generation;
                status.launch_count += u64::from(starts);
                status.created_launch_count = status.launch_count;
                status.runtime_id = Some(pe.spec.runtime_id.clone());
                status.placement_hash.clone_from(&pe.spec.placement_hash);
                condition::set(&mut status.conditions, condition::READY, true, "Running", "", None, now);
            });
            changed = true;
        }
        changed
    }

    /// The PE and its host pool agree on where its pod must run: no pod is made as long as they do not.
    pub(super) fn is_placed_as_its_pool_says(&self, pe: &ProcessingElement) -> bool {
        let location = pe.spec.placement.pool.as_ref();
        let pool =
            location.map(|location| self.server.get::<HostPool>(&sibling(&names::host_pool(JOB, location.index))));
        match pool {
            Some(None) => false,
            None => pe.spec.placement_hash == Some(placement_hash(&pe.spec.placement, None)),
            Some(Some(pool)) => pe.spec.placement_hash == Some(placement_hash(&pe.spec.placement, Some(&pool.spec))),
        }
    }

    /// The pod of a PE goes if the PE has to run another text, or somewhere else; the next one does not run yet.
    pub(in super::super) fn take_down(&self, id: u64) {
        let committed = self.status().generation;
        let Some(pe) = self.pe(id).filter(|pe| committed.is_some_and(|committed| pe.spec.generation <= committed))
        else {
            return;
        };
        let status = pe.status.clone().unwrap_or_default();
        let is_made_for = (status.runtime_id.as_ref(), status.placement_hash.as_ref())
            == (Some(&pe.spec.runtime_id), pe.spec.placement_hash.as_ref());
        if status.phase != Some(PePhase::Running) || is_made_for || !self.is_placed_as_its_pool_says(&pe) {
            return;
        }
        self.note_state();
        self.server.edit(&sibling(&names::processing_element(JOB, id)), |pe: &mut ProcessingElement| {
            let status = pe.status.get_or_insert_default();
            (status.runtime_id, status.placement_hash, status.running_since) = (None, None, None);
            status.interrupted_for = committed;
        });
        self.break_down(id, PePhase::Starting);
    }

    /// A PE does not run any more, and says so.
    pub(in super::super) fn break_down(&self, id: u64, phase: PePhase) {
        let now = self.server.now();
        self.server.edit(&sibling(&names::processing_element(JOB, id)), |pe: &mut ProcessingElement| {
            let status = pe.status.get_or_insert_default();
            status.observed_generation = pe.metadata.generation;
            status.phase = Some(phase);
            status.running_since = None;
            let words = if phase == PePhase::BackOff { "it failed" } else { "" };
            condition::set(&mut status.conditions, condition::READY, false, &format!("{phase:?}"), words, None, now);
        });
    }

    /// The pod of a PE, which runs, does not count as running yet.
    pub(in super::super) fn unsettle(&self, id: u64) {
        let now = self.server.now();
        self.server.edit(&sibling(&names::processing_element(JOB, id)), |pe: &mut ProcessingElement| {
            let status = pe.status.get_or_insert_default();
            status.phase = Some(PePhase::Starting);
            condition::set(&mut status.conditions, condition::READY, false, condition::SETTLING, "", None, now);
        });
    }

    /// A user stops a PE.
    pub(in super::super) fn stop(&self, id: u64) {
        let now = self.server.now();
        self.server.edit(&sibling(&names::processing_element(JOB, id)), |pe: &mut ProcessingElement| {
            let status = pe.status.get_or_insert_default();
            (status.phase, status.stopped) = (Some(PePhase::Stopped), true);
            let words = "a user stopped the PE";
            condition::set(&mut status.conditions, condition::READY, false, "StopRequested", words, None, now);
        });
    }

    /// A user wants another pod of a PE.
    pub(in super::super) fn request_restart(&self, id: u64, value: &str) {
        self.server.edit(&sibling(&names::processing_element(JOB, id)), |pe: &mut ProcessingElement| {
            pe.annotations_mut().insert(names::ANNOTATION_RESTART_REQUESTED.to_owned(), value.to_owned());
        });
    }

    /// A PE has got the pod that a user has asked for with this value.
    pub(in super::super) fn meet_request(&self, id: u64, value: &str) {
        let is_short = value.len() <= 1_024;
        let met = if is_short { value.to_owned() } else { format!("sha256:{}", digest(value.as_bytes())) };
        self.server.edit(&sibling(&names::processing_element(JOB, id)), |pe: &mut ProcessingElement| {
            pe.status.get_or_insert_default().restart_requested = Some(met);
        });
    }

    /// The pod of a PE ends as it should, and is not replaced.
    pub(in super::super) fn complete(&self, id: u64) {
        let now = self.server.now();
        self.server.edit(&sibling(&names::processing_element(JOB, id)), |pe: &mut ProcessingElement| {
            let status = pe.status.get_or_insert_default();
            status.phase = Some(PePhase::Completed);
            condition::set(&mut status.conditions, condition::READY, false, "PodCompleted", "it is done", None, now);
        });
    }

    fn count_start(&self, id: u64) {
        let counter = Key::new("counters", STARTS);
        if self.server.get::<ConfigMap>(&counter).is_none() {
            let mut map = ConfigMap::default();
            map.metadata.name = Some(STARTS.to_owned());
            map.metadata.namespace = Some("counters".to_owned());
            self.server.create(&map);
        }
        self.server.edit(&counter, |map: &mut ConfigMap| {
            let count = map.data.get_or_insert_default().entry(id.to_string()).or_default();
            *count = (count.parse::<u32>().unwrap_or(0) + 1).to_string();
        });
    }

    /// How often each PE was started since [`JobSimulation::forget_starts`].
    pub(in super::super) fn starts(&self) -> BTreeMap<u64, u32> {
        let counter: Option<ConfigMap> = self.server.get(&Key::new("counters", STARTS));
        let counted = counter.and_then(|counter| counter.data).unwrap_or_default();
        counted.into_iter().map(|(id, count)| (id.parse().unwrap(), count.parse().unwrap())).collect()
    }

    pub(in super::super) fn forget_starts(&self) {
        self.server.remove::<ConfigMap>(&Key::new("counters", STARTS));
    }
}
