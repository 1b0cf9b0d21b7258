//! The invariants, checked before each write of the controller and at rest.
//!
//! A check before a write looks at the cluster as it is at that moment, and at the write.

use super::journal::{Journal, keep};
use super::services::{NOT_RESTARTABLE, SINK, SOURCE, Services};
use super::{JOB, JobSimulation, NAMESPACE, Visible, key};
use crate::controllers::job::documents::chunks::{Document, join};
use crate::controllers::job::generation::Generation;
use crate::controllers::job::objects::port_labels;
use crate::controllers::job::resources::parse_milli;
use crate::controllers::job::transport::certificate::inspect;
use crate::controllers::job::transport::secret::material;
use crate::settings::JobSettings;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streams_api::{
    AdmittedRegion, ConsistentRegion, DesiredWidth, Export, HostPool, Import, Job, JobPhase, JobStatus, ParallelRegion,
    PePhase, ProcessingElement, RequestedWidths, Resize, ResizePhase, StoredPlan, TransportSecurity, TransportStatus,
    condition, names,
};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::Object;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes_fake::{Call, Server, Verb};
use streams_proto::fusion::v1::{Fate, Plan, ProcessingElement as Planned};

/// What is checked before each write.
struct Inspector {
    server: Server,
    services: Arc<Services>,
    journal: Arc<Mutex<Journal>>,
}

impl JobSimulation {
    /// From now on every write is checked, and written down.
    pub(super) fn watch(&self) {
        let inspector = Inspector {
            server: self.server.clone(),
            services: Arc::clone(&self.services),
            journal: Arc::clone(&self.journal),
        };
        self.server.inspect(move |call| inspector.inspect(call));
        self.note_wanted();
    }

    /// Somebody may have changed which widths are wanted.
    pub(super) fn note_wanted(&self) {
        note_wanted(&self.server, &mut self.journal.lock());
    }

    /// The generation that the status has committed.
    pub(in super::super) fn generation(&self) -> Arc<Generation> {
        let plan = self.status().plan.expect("a plan is committed");
        self.journal.lock().generation(&self.server, &plan)
    }

    /// What must hold when nothing happens any more.
    pub(in super::super) fn check_at_rest(&self) {
        let status = self.status();
        if status.phase == Some(JobPhase::Failed) {
            let left = self.server.list::<ProcessingElement>().len() + self.server.list::<Service>().len();
            let left = left + self.server.list::<ParallelRegion>().len() + self.server.list::<HostPool>().len();
            let left = left + self.server.list::<Export>().len() + self.server.list::<Import>().len();
            let left = left + self.server.list::<ConsistentRegion>().len() + self.server.list::<Secret>().len();
            assert_eq!((left, self.texts(), self.chunks()), (0, vec![], vec![]), "nothing half-created stays");
            return;
        }
        let generation = self.generation();
        assert_eq!((status.generation, &status.proposal), (Some(generation.number), &None));
        for request in self.server.list::<Resize>() {
            assert!(request.phase().is_final(), "{} is forgotten: {:?}", request.name_any(), request.status);
        }
        let is_applied = self.wanted() == generation.widths();
        assert_eq!(is_applied, status.rejected_resize.is_none(), "what is desired is applied, or refused");
        let applied: BTreeMap<String, u32> =
            status.applied_widths.iter().map(|applied| (applied.region.clone(), applied.width)).collect();
        assert_eq!(applied, generation.widths());
        self.check_committed_requests(&applied);
        self.check_processing_elements(&generation);
        self.check_shares(&generation);
        let mut services: BTreeSet<String> =
            generation.members().map(|(pe, _)| names::processing_element(JOB, pe.id)).collect();
        services.insert(names::consistent_region_service(JOB));
        assert_eq!(names_of::<Service>(&self.server), services, "Services");
        for (id, pe) in self.pes() {
            let registered = pe.status.iter().flat_map(|status| &status.endpoints);
            let registered = registered.map(|endpoint| (names::user_port(&endpoint.name), endpoint.port.into()));
            assert_eq!(self.user_ports(id), registered.collect(), "ports of users of PE {id}");
        }
        self.check_interfaces(&generation);
        let regions = generation.plan.parallel_regions.iter();
        let regions: BTreeSet<String> = regions.map(|region| names::parallel_region(JOB, region.index)).collect();
        assert_eq!(names_of::<ParallelRegion>(&self.server), regions);
        let pools: Vec<_> = self.server.list::<HostPool>().into_iter().map(|pool| pool.spec.tags).collect();
        let planned: Vec<_> = generation.plan.host_pools.iter().map(|pool| pool.tags.clone()).collect();
        assert_eq!(pools, planned, "host pools");
        assert_eq!(self.port_labels(), labels(&generation.plan), "port labels");
        let texts: BTreeSet<String> = texts_of(&generation);
        assert!(self.texts().iter().all(|text| texts.contains(text)), "texts are left over: {:?}", self.texts());
        let mut chunks = names_of_chunks(&Document::Adl, &status.adl.as_ref().unwrap().sha256, 1);
        let plan = status.plan.as_ref().unwrap();
        chunks.extend(names_of_chunks(&Document::Plan { generation: plan.generation }, &plan.sha256, plan.chunks));
        assert_eq!(self.chunks().into_iter().collect::<BTreeSet<_>>(), chunks);
        self.check_conditions(&status);
    }

    /// The ports of the Service of a PE that operators have opened under a name.
    pub(in super::super) fn user_ports(&self, id: u64) -> BTreeMap<String, i32> {
        let service = self.server.get::<Service>(&Key::new(NAMESPACE, &names::processing_element(JOB, id)));
        let ports = service.and_then(|service| service.spec?.ports).unwrap_or_default();
        let named = ports.into_iter().filter_map(|port| Some((port.name?, port.port)));
        named.filter(|(name, _)| name.starts_with("usr-")).collect()
    }

    fn check_processing_elements(&self, generation: &Generation) {
        let pes = self.pes();
        for (planned, origin) in generation.members() {
            let Some(pe) = pes.get(&planned.id) else {
                assert_eq!(planned.id, NOT_RESTARTABLE, "only what is not restartable may be missing");
                continue;
            };
            assert_eq!((pe.spec.generation, &pe.spec.runtime_id), (origin.generation, &origin.runtime_id), "{pe:?}");
            assert!([&origin.content_id, &planned.content_id].contains(&&pe.spec.content_id), "{pe:?}");
            let text = pe.spec.config_map.name.clone();
            assert!(self.texts().contains(&text), "PE {} has no text {text}", planned.id);
            let status = pe.status.clone().unwrap_or_default();
            let runs = status.runtime_id.as_ref() == Some(&pe.spec.runtime_id)
                && status.placement_hash == pe.spec.placement_hash
                && self.is_placed_as_its_pool_says(pe);
            assert!(
                runs || matches!(status.phase, Some(PePhase::Completed | PePhase::Suspended)),
                "PE {} runs another text, or where it must not",
                planned.id
            );
        }
        let planned: BTreeSet<u64> = generation.members().map(|(pe, _)| pe.id).collect();
        assert!(pes.keys().all(|id| planned.contains(id)), "PEs are left over: {:?}", pes.keys());
    }

    fn check_interfaces(&self, generation: &Generation) {
        let exports = generation.members().flat_map(|(pe, _)| pe.exports.iter().map(|port| (pe.id, port.port_id)));
        let exports = exports.map(|(pe, port)| names::export(JOB, pe, port)).collect();
        assert_eq!(names_of::<Export>(&self.server), exports);
        let imports = generation.members().flat_map(|(pe, _)| pe.imports.iter().map(|port| (pe.id, port.port_id)));
        let imports = imports.map(|(pe, port)| names::import(JOB, pe, port)).collect();
        assert_eq!(names_of::<Import>(&self.server), imports);
        self.check_transport(generation);
        let regions: Vec<_> = self.server.list::<ConsistentRegion>().into_iter().map(|region| region.spec).collect();
        let period = u64::from(generation.widths()["R"]) * 1_000;
        assert_eq!(regions.iter().map(|region| region.period_milliseconds).collect::<Vec<_>>(), [Some(period)]);
    }

    /// A job whose PEs encrypt their connections has a certificate that they can use, and says so.
    fn check_transport(&self, generation: &Generation) {
        let secret = self.server.get::<Secret>(&Key::new(NAMESPACE, &names::transport_secret(JOB)));
        let is_wanted = generation.settled.transport != TransportSecurity::None;
        assert_eq!((secret.is_some(), self.status().transport.is_some()), (is_wanted, is_wanted));
        let Some(secret) = secret else { return };
        let certificates = inspect(&material(&secret).expect("it is complete")).expect("it can be used");
        assert!(self.server.now() < certificates.renew_at(30), "it is due");
        let transport = self.status().transport.unwrap();
        assert_eq!(transport.authority, Some(certificates.authority));
        assert_eq!(transport.not_after.map(|time| time.0), Some(certificates.not_after));
    }

    /// What the PEs would get if all restarted now is what the job says, but for rounding (rule pod-4).
    fn check_shares(&self, generation: &Generation) {
        let given = self.server.get::<Job>(&key()).and_then(|job| job.spec.resources?.requests);
        let Some(given) = given.and_then(|requests| parse_milli(&requests.get("cpu")?.0)) else { return };
        let (shares, pes) = (self.shares(), generation.members().count() as u128);
        let each = (given / pes).max(1);
        assert!(shares.values().all(|share| *share == each), "{given}m over {pes} PEs: {shares:?}");
        assert!(each == 1 || (each * pes <= given && each * pes + pes > given), "{given}m over {pes} PEs: {each}m");
    }

    fn check_conditions(&self, status: &JobStatus) {
        let is_missing = self.pe(NOT_RESTARTABLE).is_none();
        let is_whole = !is_missing && status.phase != Some(JobPhase::Suspended);
        let is_true = |kind| condition::is_true(&status.conditions, kind);
        let said = [condition::SUBMITTED, condition::READY, condition::DEGRADED, condition::PROGRESSING].map(is_true);
        assert_eq!(said, [true, is_whole, is_missing, false], "{:?}", status.conditions);
        let said = [condition::COMPILED, condition::RESOURCES_READY, condition::PODS_READY].map(is_true);
        assert_eq!(said, [true, true, is_whole], "{:?}", status.conditions);
        let rollout = status.rollout.as_ref().unwrap();
        assert!(rollout.finished_at.is_some() && rollout.pending == 0, "{rollout:?}");
        assert_eq!(status.regions.len(), 2, "what regions are described from");
    }

    fn port_labels(&self) -> String {
        let map: Option<ConfigMap> = self.server.get(&Key::new(NAMESPACE, &names::job_config_map(JOB)));
        map.and_then(|map| map.data?.remove(port_labels::FILE)).unwrap_or_default()
    }

    /// What was committed for a request stays, even if the request was deleted, unless somebody has edited the region
    /// since, or a newer request was committed.
    fn check_committed_requests(&self, applied: &BTreeMap<String, u32>) {
        self.note_wanted();
        let journal = self.journal.lock();
        let committed = journal.admitted.iter().filter(|(number, _)| journal.committed.contains(number));
        // Newer ones later.
        let mut last: BTreeMap<&str, (u32, &AdmittedRegion)> = BTreeMap::new();
        for (_, request) in committed {
            let admitted = request.status.iter().flat_map(|status| &status.regions);
            for (wanted, admitted) in request.spec.regions.iter().zip(admitted) {
                last.insert(&wanted.name, (wanted.width, admitted));
            }
        }
        for region in self.server.list::<ParallelRegion>() {
            let Some((width, admitted)) = last.get(region.spec.name.as_str()) else { continue };
            if region.metadata.uid.as_ref() == Some(&admitted.uid) && region.edited() <= admitted.edited {
                assert_eq!((applied.get(&region.spec.name), region.spec.width), (Some(width), *width), "{last:?}");
            }
        }
    }

    /// The widths that are wanted now.
    pub(in super::super) fn wanted(&self) -> BTreeMap<String, u32> {
        wanted(&self.server).unwrap_or_default()
    }

    /// Objects that are there, but for what is counted in the namespace.
    pub(in super::super) fn left(&self) -> Vec<String> {
        let kinds = [
            names_of::<Job>(&self.server),
            names_of::<ProcessingElement>(&self.server),
            names_of::<Service>(&self.server),
            names_of::<ParallelRegion>(&self.server),
            names_of::<HostPool>(&self.server),
            names_of::<Export>(&self.server),
            names_of::<Import>(&self.server),
            names_of::<ConsistentRegion>(&self.server),
            names_of::<Secret>(&self.server),
        ];
        let all = kinds.into_iter().flatten().chain(self.texts()).chain(self.chunks());
        all.chain(Some(self.port_labels()).filter(|labels| !labels.is_empty())).collect()
    }

    /// What the job has become, without numbers that depend on the way: widths, and operators with what their PEs run.
    pub(in super::super) fn shape(&self) -> impl PartialEq + std::fmt::Debug {
        let operators = self.pes().into_values().map(|pe| (pe.spec.operators, pe.spec.restartable));
        let mut operators: Vec<_> = operators.collect();
        operators.sort();
        (self.wanted(), operators)
    }

    /// What users see of the job and its objects, without what a crash may change: times, versions, uids, the number of
    /// the job and what follows from that.
    pub(in super::super) fn visible(&self) -> Visible {
        let mut visible = BTreeMap::new();
        let mut status = self.status();
        let said = status.conditions.iter().map(|c| json!([c.type_, c.status, c.reason]));
        visible.insert("conditions".to_owned(), said.collect());
        status.conditions.clear();
        status.job_id = None;
        status.submission_started_at = None;
        status.submission_worked_milliseconds = 0;
        // Keys are made by chance.
        status.transport.iter_mut().for_each(|transport| *transport = TransportStatus::default());
        status.rollout.iter_mut().for_each(|rollout| (rollout.started_at, rollout.finished_at) = (None, None));
        status.plan.iter_mut().for_each(|plan| plan.sha256.clear());
        visible.insert("status".to_owned(), json!(status));
        for mut pe in self.server.list::<ProcessingElement>() {
            pe.spec.job_id = 0;
            let runs = pe.status.as_ref().map(|status| (status.phase, status.runtime_id.clone()));
            visible.insert(format!("PE {}", pe.name_any()), json!([pe.spec, runs]));
        }
        for service in self.server.list::<Service>() {
            visible.insert(format!("Service {}", service.name_any()), json!(service.spec));
        }
        for region in self.server.list::<ParallelRegion>() {
            visible.insert(format!("region {}", region.name_any()), json!(region.spec));
        }
        for pool in self.server.list::<HostPool>() {
            visible.insert(format!("pool {}", pool.name_any()), json!(pool.spec));
        }
        for map in self.config_maps(&[names::PART_AADL]) {
            visible.insert(format!("text {}", map.name_any()), json!(map.data));
        }
        visible.insert("labels".to_owned(), json!(self.port_labels()));
        visible.insert("chunks".to_owned(), json!(self.chunks().len()));
        visible.insert("starts".to_owned(), json!(self.starts()));
        Visible(visible)
    }
}

fn names_of<K: Object>(server: &Server) -> BTreeSet<String> {
    server.list::<K>().iter().map(|object| object.meta().name.clone().unwrap_or_default()).collect()
}

/// Texts that PEs of the generation may refer to.
fn texts_of(generation: &Generation) -> BTreeSet<String> {
    let texts = generation.members().flat_map(|(pe, origin)| {
        [&pe.content_id, &origin.content_id].map(|content| names::aadl_config_map(JOB, pe.id, content))
    });
    texts.collect()
}

fn names_of_chunks(document: &Document, sha256: &str, chunks: u32) -> BTreeSet<String> {
    (0..chunks).map(|index| document.chunk_name(JOB, sha256, index)).collect()
}

/// The port labels of the plan, a line each.
fn labels(plan: &Plan) -> String {
    let labels = plan.processing_elements.iter().flat_map(|pe| &pe.port_labels);
    let labels: BTreeMap<_, _> = labels.map(|label| (&label.operator_port_label, &label.pe_port_label)).collect();
    labels.into_iter().map(|(operator, pe)| format!("{operator}={pe}\n")).collect()
}

/// The widths that are wanted of the regions of the committed generation: of a region that is there the width that a
/// request wants of it, else that of its spec; of others, and where the job permits no such width, the one that is
/// applied.
fn wanted(server: &Server) -> Option<BTreeMap<String, u32>> {
    let job: Job = server.get(&key())?;
    let status = job.status.as_ref().filter(|status| status.generation.is_some())?;
    let regions = server.list::<ParallelRegion>();
    let request = RequestedWidths::read(&regions);
    let width = |name: &str, applied: u32| {
        let is_meant =
            |region: &&ParallelRegion| region.spec.name == name && region.metadata.deletion_timestamp.is_none();
        let Some(region) = regions.iter().find(is_meant) else { return applied };
        let width = request.as_ref().and_then(|request| request.pending(region)).unwrap_or(region.spec.width);
        let bounds = job.spec.parallel_regions.iter().find(|bounds| bounds.name() == name);
        let is_permitted = bounds.and_then(|bounds| bounds.max_width).is_none_or(|most| width <= most);
        if is_permitted { width } else { applied }
    };
    let applied = status.applied_widths.iter();
    Some(applied.map(|applied| (applied.region.clone(), width(&applied.region, applied.width))).collect())
}

fn note_wanted(server: &Server, journal: &mut Journal) {
    if let Some(wanted) = wanted(server) {
        journal.wanted.insert(wanted);
    }
    for request in server.list::<Resize>() {
        if let Some(number) = request.status.as_ref().and_then(|status| status.number) {
            journal.admitted.insert(number, request);
        }
    }
    let committed = server.get::<Job>(&key()).and_then(|job| job.status).map(|status| status.committed_resizes);
    journal.committed.extend(committed.into_iter().flatten().flat_map(|committed| committed.resizes));
}

impl Journal {
    /// A stored generation. Its chunks must be there when it is asked for first.
    fn generation(&mut self, server: &Server, plan: &StoredPlan) -> Arc<Generation> {
        let StoredPlan { generation, sha256, chunks, .. } = plan;
        let read = || {
            let document = Document::Plan { generation: *generation };
            let chunk = |index| {
                let name = document.chunk_name(JOB, sha256, index);
                let chunk: Option<ConfigMap> = server.get(&Key::new(NAMESPACE, &name));
                chunk.unwrap_or_else(|| panic!("chunk {name} of a plan in the status is missing"))
            };
            let chunks: Vec<_> = (0..*chunks).map(chunk).collect();
            Arc::new(Generation::decode(&join(sha256, &chunks).unwrap().unpack(sha256, u64::MAX).unwrap()).unwrap())
        };
        Arc::clone(self.generations.entry(sha256.clone()).or_insert_with(read))
    }
}

impl Inspector {
    fn inspect(&self, call: &Call) {
        let mut journal = self.journal.lock();
        note_wanted(&self.server, &mut journal);
        if !call.verb.is_write() {
            return;
        }
        keep(&self.server, self.services.state(), &mut journal, &call.to_string());
        if journal.is_late {
            return;
        }
        journal.writes.push(call.to_string());
        let Some(job) = self.server.get::<Job>(&key()) else { return };
        let status = job.status.clone().unwrap_or_default();
        let stored = [status.plan.as_ref(), status.proposal.as_ref().map(|proposal| &proposal.plan)];
        let [committed, proposed] = stored.map(|plan| plan.map(|plan| journal.generation(&self.server, plan)));
        let now = Now { server: &self.server, job: &job, status: &status, committed, proposed };
        match call.verb {
            Verb::ReplaceStatus => now.status_is_replaced(call, &mut journal),
            Verb::Apply | Verb::Create => now.object_is_written(call, &journal),
            Verb::Delete => now.object_is_deleted(call, &journal),
            Verb::Get | Verb::List | Verb::Replace | Verb::Merge => {}
        }
    }
}

/// The cluster when a write arrives.
struct Now<'a> {
    server: &'a Server,
    job: &'a Job,
    status: &'a JobStatus,
    committed: Option<Arc<Generation>>,
    proposed: Option<Arc<Generation>>,
}

impl Now<'_> {
    fn generations(&self) -> impl Iterator<Item = &Generation> {
        [&self.committed, &self.proposed].into_iter().flatten().map(|generation| &**generation)
    }

    fn exports(&self, pe: u64) -> bool {
        self.generations().any(|generation| generation.members().any(|(p, _)| p.id == pe && !p.exports.is_empty()))
    }

    /// Nothing of an earlier attempt counts: everything may be deleted.
    fn is_clean_slate(&self) -> bool {
        self.status.generation.is_none() && self.status.proposal.is_none()
    }

    fn has_pe(&self, id: u64) -> bool {
        self.generations().any(|generation| generation.members().any(|(pe, _)| pe.id == id))
    }

    fn status_is_replaced(&self, call: &Call, journal: &mut Journal) {
        if let Some(request) = call.object::<Resize>() {
            return self.request_says(&request);
        }
        let written: Job = call.object().expect("only the status of the job is written");
        let version = written.metadata.resource_version.clone();
        assert!(version.is_some(), "a status is written by compare-and-swap");
        if version != self.job.metadata.resource_version {
            return;
        }
        let after = written.status.unwrap_or_default();
        if let Some(proposal) = &after.proposal {
            // Panics if the chunks are not there.
            journal.generation(self.server, &proposal.plan);
        }
        if after.generation.is_some() && after.generation != self.status.generation {
            self.is_committed(&after, journal);
            if !journal.is_behind() {
                self.is_complete();
                let plan = after.plan.as_ref().expect("a plan is committed");
                let document = Document::Plan { generation: plan.generation };
                let chunks = names_of_chunks(&document, &plan.sha256, plan.chunks);
                let are_there = chunks.is_subset(&names_of::<ConfigMap>(self.server));
                assert!(are_there, "the plan that is committed is not stored: {chunks:?}");
            }
        }
        let is_finished = |status: &JobStatus| status.rollout.as_ref().is_some_and(|r| r.finished_at.is_some());
        if is_finished(&after) && !is_finished(self.status) && !journal.is_behind() {
            self.nothing_is_superfluous();
        }
    }

    /// A request says that it is in force when the specs of its regions have its widths, or were edited since; and
    /// nothing of a request whose phase is final.
    fn request_says(&self, after: &Resize) {
        let before: Option<Resize> = self.server.get(&Key::of(after));
        let Some(before) = before.filter(|before| before.metadata.resource_version == after.metadata.resource_version)
        else {
            return;
        };
        assert!(!before.phase().is_final(), "{} was over: {:?}", after.name_any(), before.status);
        if after.phase() == ResizePhase::Written {
            let generation = after.status.as_ref().and_then(|status| status.generation);
            assert!(generation.is_some() && generation <= self.status.generation, "{:?}", after.status);
        }
    }

    /// What is committed was proposed, and wanted as a whole.
    fn is_committed(&self, after: &JobStatus, journal: &Journal) {
        let proposed = self.proposed.as_ref().expect("what is committed was proposed");
        assert_eq!(after.generation, Some(proposed.number));
        let widths: BTreeMap<String, u32> =
            after.applied_widths.iter().map(|applied| (applied.region.clone(), applied.width)).collect();
        assert_eq!(widths, proposed.widths());
        let before = self.committed.as_ref().map(|committed| committed.widths()).unwrap_or_default();
        for region in &proposed.plan.parallel_regions {
            let before = before.get(&region.name).copied().filter(|before| *before != region.width);
            let said = after.region(region.index).expect("each region is listed").width_before;
            assert_eq!(said, before, "the width before of {}", region.name);
        }
        let is_first = self.committed.is_none();
        if journal.admitted.is_empty() {
            assert!(is_first || journal.wanted.contains(&widths), "{widths:?} were never wanted: {:?}", journal.wanted);
            return;
        }
        self.is_not_cancelled(&widths, journal);
        // Whom the commit carries out has all of the widths that they want.
        let carried_out = self.status.proposal.as_ref().map(|proposal| proposal.resizes.clone()).unwrap_or_default();
        for (number, request) in &journal.admitted {
            if carried_out.contains(number) {
                let has = |wanted: &DesiredWidth| widths.get(&wanted.name) == Some(&wanted.width);
                assert!(request.spec.regions.iter().all(has), "{:?} of {}", widths, request.name_any());
            }
        }
    }

    /// Of these widths none comes into force that only somebody has wanted who was told that it does not.
    fn is_not_cancelled(&self, widths: &BTreeMap<String, u32>, journal: &Journal) {
        let in_force = self.committed.as_ref().map(|committed| committed.widths()).unwrap_or_default();
        let requests: Vec<Resize> = self.server.list();
        let is_cancelled = |request: &&Resize| request.phase() == ResizePhase::Cancelled;
        let wants = |request: &Resize, of: &DesiredWidth| {
            request.spec.regions.iter().any(|wanted| wanted.name == of.name && wanted.width == of.width)
        };
        let proposal = self.status.proposal.as_ref();
        for request in requests.iter().filter(is_cancelled) {
            let number = request.status.as_ref().and_then(|status| status.number);
            let is_of_proposal =
                proposal.zip(number).is_some_and(|(proposal, number)| proposal.resizes.contains(&number));
            for wanted in request.spec.regions.iter().filter(|_| is_of_proposal) {
                let is_changed = in_force.get(&wanted.name) != Some(&wanted.width);
                let comes = is_changed && widths.get(&wanted.name) == Some(&wanted.width);
                let is_edit = journal.wanted.iter().any(|widths| widths.get(&wanted.name) == Some(&wanted.width));
                let mut others = requests.iter().chain(journal.admitted.values()).filter(|other| !is_cancelled(other));
                let is_wanted = is_edit || others.any(|other| wants(other, wanted));
                assert!(!comes || is_wanted, "{} was cancelled: {widths:?}", request.name_any());
            }
        }
    }

    /// What is committed is all there.
    fn is_complete(&self) {
        let Some(proposed) = &self.proposed else { return };
        let texts = names_of::<ConfigMap>(self.server);
        let services = names_of::<Service>(self.server);
        for (pe, origin) in proposed.members() {
            let refers_to = [&pe.content_id, &origin.content_id].map(|id| names::aadl_config_map(JOB, pe.id, id));
            assert!(refers_to.iter().any(|text| texts.contains(text)), "PE {} has no text", pe.id);
            let name = names::processing_element(JOB, pe.id);
            let is_new = self.committed.as_ref().is_none_or(|before| before.members().all(|(b, _)| b.id != pe.id));
            if is_new {
                let object: Option<ProcessingElement> = self.server.get(&Key::new(NAMESPACE, &name));
                let is_it = object.is_some_and(|object| object.spec.runtime_id == pe.runtime_id);
                assert!(is_it, "new PE {} is not there", pe.id);
                assert!(services.contains(&name), "the Service of PE {} is not there", pe.id);
            }
        }
        // One that was there and that somebody has deleted is made again afterwards.
        let before = self.committed.as_ref().map(|before| before.widths()).unwrap_or_default();
        let regions = names_of::<ParallelRegion>(self.server);
        for region in &proposed.plan.parallel_regions {
            let is_there = regions.contains(&names::parallel_region(JOB, region.index));
            assert!(is_there || before.contains_key(&region.name), "region {}", region.name);
        }
    }

    /// Of what the committed generation does not have, nothing is left but what is on its way out.
    fn nothing_is_superfluous(&self) {
        for pe in self.server.list::<ProcessingElement>() {
            assert!(self.has_pe(pe.spec.id), "PE {} is left", pe.spec.id);
        }
        for service in self.server.list::<Service>() {
            let Some(id) = service.labels().get(names::LABEL_PE) else { continue };
            let id = id.parse().unwrap();
            let is_going = service.metadata.deletion_timestamp.is_some();
            assert!(is_going || self.has_pe(id), "Service of PE {id} is left");
        }
        for export in self.server.list::<Export>() {
            let is_going = export.metadata.deletion_timestamp.is_some();
            assert!(is_going || self.exports(export.spec.pe_id), "export of PE {} is left", export.spec.pe_id);
        }
        let used: BTreeSet<String> = self.generations().flat_map(texts_of).collect();
        for map in self.server.list::<ConfigMap>() {
            let is_text = map.labels().get(names::LABEL_PART).map(String::as_str) == Some(names::PART_AADL);
            let is_going = map.metadata.deletion_timestamp.is_some();
            assert!(!is_text || is_going || used.contains(&map.name_any()), "text {} is left", map.name_any());
        }
    }

    /// Children are written for a stored generation, to objects of the job that stay. Nothing that runs changes before
    /// the commit.
    fn object_is_written(&self, call: &Call, journal: &Journal) {
        let name = call.key.name.to_string();
        if let Some(pe) = call.object::<ProcessingElement>() {
            self.is_ours::<ProcessingElement>(call);
            let is_there = self.server.get::<ProcessingElement>(&call.key).is_some();
            let is_changed =
                call.verb == Verb::Apply && call.body.as_ref().is_some_and(|body| body["metadata"]["uid"].is_string());
            let is_gone = journal.gone.contains(&(self.job.metadata.uid.clone(), pe.spec.id));
            assert!(is_there || is_changed || !is_gone, "{name} is made again, which a user has deleted");
            if !journal.unseen.contains(&pe.spec.id) {
                self.few_are_down(&pe, journal);
            }
            assert!(self.has_pe(pe.spec.id), "{name} is applied before a plan that has it is stored");
            let committed = self.committed.as_ref().and_then(|c| c.members().find(|(p, _)| p.id == pe.spec.id));
            if let Some((planned, origin)) = committed {
                assert_eq!(pe.spec.runtime_id, origin.runtime_id, "{name} is changed before the commit");
                assert!([&origin.content_id, &planned.content_id].contains(&&pe.spec.content_id), "{name}");
            }
        } else if let Some(service) = call.object::<Service>() {
            self.is_ours::<Service>(call);
            let is_known = match service.labels().get(names::LABEL_PE) {
                Some(id) => self.has_pe(id.parse().unwrap()),
                None => self.generations().any(|generation| !generation.plan.consistent_regions.is_empty()),
            };
            assert!(is_known, "Service {name} is applied before a plan that has it is stored");
        } else if let Some(export) = call.object::<Export>() {
            self.is_ours::<Export>(call);
            assert!(self.exports(export.spec.pe_id), "{name} is applied before a plan that has it is stored");
            let has_it = |committed: &&Arc<Generation>| {
                committed.member(export.spec.pe_id).is_some_and(|(pe, _)| !pe.exports.is_empty())
            };
            if let Some(committed) = self.committed.as_ref().filter(|committed| !has_it(committed)) {
                let since = export.annotations().get(names::ANNOTATION_SINCE_GENERATION);
                assert_eq!(since, Some(&(committed.number + 1).to_string()), "{name} would match before the commit");
            }
        } else if let Some(region) = call.object::<ConsistentRegion>() {
            self.is_ours::<ConsistentRegion>(call);
            let generation = if self.committed.is_some() { &self.committed } else { &self.proposed };
            let period = generation.as_ref().map(|generation| u64::from(generation.widths()["R"]) * 1_000);
            assert_eq!(region.spec.period_milliseconds, period, "{name} is changed before the commit");
        } else if let Some(pool) = call.object::<HostPool>() {
            self.is_ours::<HostPool>(call);
            let is_it = |g: &Generation| g.plan.host_pools.iter().any(|p| p.tags == pool.spec.tags);
            let generation = if self.committed.is_some() { &self.committed } else { &self.proposed };
            assert!(generation.as_deref().is_some_and(is_it), "{name} is changed before the commit");
        } else if call.object::<ParallelRegion>().is_some() {
            assert!(self.generations().next().is_some(), "{name} is applied before a plan that has it is stored");
        } else if name == names::job_config_map(JOB) {
            self.is_ours::<ConfigMap>(call);
        }
    }

    /// A PE that runs is restarted only if roll-outs have not taken down too many already (rule job-49), and after the
    /// new ones.
    fn few_are_down(&self, next: &ProcessingElement, journal: &Journal) {
        let Some(committed) = &self.committed else { return };
        if committed.member(next.spec.id).is_none() {
            // No roll-out restarts it.
            return;
        }
        let runs = |pe: &ProcessingElement| {
            let status = pe.status.as_ref().filter(|status| status.phase == Some(PePhase::Running))?;
            Some((status.runtime_id.clone()?, status.placement_hash.clone()))
        };
        let is_to_run = |pe: &ProcessingElement| (pe.spec.runtime_id.clone(), pe.spec.placement_hash.clone());
        let pes: Vec<ProcessingElement> = self.server.list();
        let before = pes.iter().find(|pe| pe.name_any() == next.name_any());
        // The pod of one that refers to another text than it runs goes, whatever is written now; and if a user asks.
        let asks = |before: &ProcessingElement| {
            let asked = before.annotations().get(names::ANNOTATION_RESTART_REQUESTED);
            asked.is_some() && asked != before.status.as_ref().and_then(|status| status.restart_requested.as_ref())
        };
        let stays = |before: &&ProcessingElement| runs(before) == Some(is_to_run(before)) && !asks(before);
        if before.filter(stays).is_none_or(|before| is_to_run(before) == is_to_run(next)) {
            return;
        }
        let is_down = |pe: &&ProcessingElement| {
            let status = pe.status.clone().unwrap_or_default();
            let is_going = runs(pe).is_some_and(|runs| runs != is_to_run(pe));
            let is_back = matches!(status.phase, Some(PePhase::Running | PePhase::Completed | PePhase::Suspended));
            is_going || (status.interrupted_for == Some(committed.number) && !is_back)
        };
        let is_other = |pe: &&ProcessingElement| pe.spec.id != next.spec.id && self.has_pe(pe.spec.id);
        let down: Vec<u64> = pes.iter().filter(is_other).filter(is_down).map(|pe| pe.spec.id).collect();
        let limit = self.job.spec.max_unavailable().of(committed.members().count());
        assert!(down.len() < limit, "PE {} is to be restarted while {down:?} are down", next.spec.id);
        let rollout = self.status.rollout.as_ref();
        let since = rollout.and_then(|rollout| rollout.unfinished_since.as_ref().or(rollout.started_at.as_ref()));
        let is_late = since.map(|since| since.0).is_none_or(|at| self.server.now().duration_since(at).as_secs() >= 300);
        let never_ran = |id: u64| {
            let pe = pes.iter().find(|pe| pe.spec.id == id);
            pe.is_some_and(|pe| pe.status.as_ref().is_none_or(|status| status.running_since.is_none()))
        };
        let new = committed.plan.processing_elements.iter().filter(|pe| pe.fate() == Fate::Added);
        let new: Vec<u64> =
            new.map(|pe| pe.id).filter(|id| !is_late && never_ran(*id) && !journal.unseen.contains(id)).collect();
        assert!(new.is_empty(), "PE {} is to be restarted before {new:?} run", next.spec.id);
    }

    /// An object that is there belongs to the job, and is not on its way out.
    fn is_ours<K: Object>(&self, call: &Call) {
        let Some(existing) = self.server.get::<K>(&call.key).filter(|_| call.verb == Verb::Apply) else { return };
        assert!(is_controlled_by(existing.meta(), self.job), "{call}: it belongs to somebody else");
    }

    /// No pod runs that was made from a text which names this PE, unless such pods took too long to be replaced (rule
    /// job-16).
    fn nobody_sends_to(&self, pe: &Key, journal: &Journal) {
        let Some(removed) = self.server.get::<ProcessingElement>(pe) else { return };
        let id = removed.spec.id;
        let Some(rollout) = &self.status.rollout else { return };
        let listed = rollout.removals.iter().find(|removal| (removal.first..=removal.last).contains(&id));
        let since = listed.map(|removal| removal.since.0).or(rollout.started_at.as_ref().map(|started| started.0));
        let resize = JobSettings::default().resize_seconds;
        if since.is_none_or(|since| self.server.now().duration_since(since).unsigned_abs() >= resize) {
            return;
        }
        for running in self.server.list::<ProcessingElement>() {
            let status = running.status.unwrap_or_default();
            if ![SOURCE, SINK].contains(&running.spec.id) || status.phase != Some(PePhase::Running) {
                continue;
            }
            let is_its_text = |generation: &&Arc<Generation>| {
                generation.members().any(|(pe, origin)| {
                    pe.id == running.spec.id && Some(&origin.runtime_id) == status.runtime_id.as_ref()
                })
            };
            // Other generations may have the same text, with other PEs.
            let mut texts = journal.generations.values().filter(is_its_text).peekable();
            let is_known = texts.peek().is_some() && texts.all(|text| text.members().any(|(pe, _)| pe.id == id));
            assert!(!is_known, "PE {id} is deleted, and PE {} sends to it", running.spec.id);
        }
    }

    /// Nobody refers to what is deleted, and it is the object that was observed.
    fn object_is_deleted(&self, call: &Call, journal: &Journal) {
        let uid = call.body.as_ref().map(|parameters| parameters["preconditions"]["uid"].clone());
        let Some(Value::String(uid)) = uid else { panic!("{call}: whichever object has the name is deleted") };
        let name = call.key.name.to_string();
        let is_it = |uid_of: Option<String>| uid_of.as_deref() == Some(uid.as_str());
        let kind = call.kind.as_str();
        if self.is_clean_slate() {
            return;
        }
        if kind == "ProcessingElement" && is_it(self.uid_of::<ProcessingElement>(&call.key)) {
            let is_in_use = |g: &Generation| g.members().any(|(p, _)| names::processing_element(JOB, p.id) == name);
            assert!(!self.generations().any(is_in_use), "{name} is in use");
            self.nobody_sends_to(&call.key, journal);
        }
        // One with an address has none again only if it is made again.
        let has_address =
            |service: Service| service.spec.is_some_and(|spec| spec.cluster_ip.as_deref() != Some("None"));
        if kind == "Service"
            && is_it(self.uid_of::<Service>(&call.key))
            && !self.server.get::<Service>(&call.key).is_some_and(has_address)
        {
            let is_in_use = |g: &Generation| g.members().any(|(p, _)| names::processing_element(JOB, p.id) == name);
            assert!(!self.generations().any(is_in_use), "Service {name} is in use");
        }
        if kind == "Export" && is_it(self.uid_of::<Export>(&call.key)) {
            let exports = |(p, _): (&Planned, _)| !p.exports.is_empty() && names::export(JOB, p.id, 0) == name;
            assert!(!self.generations().any(|g| g.members().any(exports)), "{name} is in use");
        }
        let made_by_others = |map: ConfigMap| {
            let mut writers = map.managed_fields().iter().filter_map(|entry| entry.manager.as_deref());
            writers.all(|writer| writer != "streams-job-controller")
        };
        if kind == "ConfigMap"
            && is_it(self.uid_of::<ConfigMap>(&call.key))
            && !self.server.get::<ConfigMap>(&call.key).is_some_and(made_by_others)
        {
            let newest =
                |g: &Generation| g.members().any(|(p, _)| names::aadl_config_map(JOB, p.id, &p.content_id) == name);
            assert!(!self.generations().any(newest), "text {name} is in use");
            let mounted = self.server.list::<ProcessingElement>();
            assert!(mounted.iter().all(|pe| pe.spec.config_map.name != name), "{name} is mounted");
            let plans = self.status.plan.iter().chain(self.status.proposal.as_ref().map(|proposal| &proposal.plan));
            for plan in plans {
                let document = Document::Plan { generation: plan.generation };
                let chunks = names_of_chunks(&document, &plan.sha256, plan.chunks);
                assert!(!chunks.contains(&name), "{name} is a chunk of a plan");
            }
        }
    }

    fn uid_of<K: Object>(&self, key: &Key) -> Option<String> {
        self.server.get::<K>(key)?.meta().uid.clone()
    }
}
