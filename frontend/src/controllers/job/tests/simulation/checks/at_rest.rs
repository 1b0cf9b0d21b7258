//! What must hold when nothing happens any more.
//!
//! Then what runs is what the committed generation wants, all of it and nothing else, and the status says so; or the
//! submission has failed, and nothing of it is left. That is what users end up with, however many crashes there were on
//! the way.

use super::super::services::NOT_RESTARTABLE;
use super::super::{JOB, JobSimulation, NAMESPACE, key};
use super::{names_of, names_of_chunks, texts_of};
use crate::controllers::job::documents::chunks::Document;
use crate::controllers::job::generation::Generation;
use crate::controllers::job::resources::parse_milli;
use crate::controllers::job::transport::certificate::inspect;
use crate::controllers::job::transport::secret::material;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use streams_api::{
    AdmittedRegion, ConsistentRegion, Export, HostPool, Import, Job, JobPhase, JobStatus, ParallelRegion, PePhase,
    ProcessingElement, Resize, TransportSecurity, condition, names,
};
use streams_kubernetes::Key;
use streams_proto::fusion::v1::Plan;

impl JobSimulation {
    /// What must hold when nothing happens any more.
    pub(in super::super::super) fn check_at_rest(&self) {
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
        assert!(certificates.is_good(30, self.server.now()), "it is due, or not valid yet");
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
        let indexes: Vec<u64> = status.regions.iter().map(|region| region.index).collect();
        let planned = self.generation().plan.parallel_regions.iter().map(|region| region.index).collect::<Vec<_>>();
        assert_eq!(indexes, planned, "what regions are described from");
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
}

/// The port labels of the plan, a line each.
fn labels(plan: &Plan) -> String {
    let labels = plan.processing_elements.iter().flat_map(|pe| &pe.port_labels);
    let labels: BTreeMap<_, _> = labels.map(|label| (&label.operator_port_label, &label.pe_port_label)).collect();
    labels.into_iter().map(|(operator, pe)| format!("{operator}={pe}\n")).collect()
}
