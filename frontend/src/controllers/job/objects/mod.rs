//! The objects of a job as they should be: desired states, made from its spec and a generation.
//!
//! Pure and deterministic: the same inputs give the same objects, so the hash of an object says whether it has been
//! applied. Names are those of rules name-3 and name-5.
//!
//! | Object | Name | Changes |
//! |---|---|---|
//! | ProcessingElement | `<job>-<peId>` | with the plan, the options of the job, and its share of job-wide resources |
//! | Service | `<job>-<peId>` | with the input ports of the PE, and the ports that its operators have opened |
//! | ParallelRegion | `<job>-<index>` | to take over a request (rule elasticity-5); its width belongs to users |
//! | HostPool | `<job>-<index>` | with the plan |
//! | ConfigMap of the job | `<job>` | with every generation |
//! | Export, Import, ConsistentRegion | rule name-3 | with the plan ([`interfaces`]) |
//! | ConfigMap with an AADL | `<job>-<peId>-<digest>` | never: it is named after its content |
//!
//! | Module | What it is |
//! |---|---|
//! | this one | most of the objects |
//! | [`interfaces`] | exports, imports, consistent regions and their Service |
//! | [`port_labels`] | the file of port labels, in the ConfigMap of the job |
//! | [`user_ports`] | ports of Services that operators have opened under a name |
//! | [`created_region`] | what a region was created as |
//! | [`planned_regions`] | which objects stand for regions of a generation |
//! | [`oversized`] | what of a plan does not fit the objects |
//!
//! Knows: the spec, generations, names. Must not know: mirrors, clients, what is there already.

pub(super) mod created_region;
pub(crate) mod interfaces;
pub(super) mod oversized;
pub(super) mod planned_regions;
pub(super) mod port_labels;
pub(super) mod user_ports;

use super::compilation::default_resources;
use super::generation::places::node;
use super::generation::{Generation, Origin};
use super::resources;
use crate::controllers::placement_hash::placement_hash;
use crate::start_hash::Starts;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZeroU32;
use streams_api::processing_element::LISTED_OPERATORS_MAX;
use streams_api::{
    AadlConfigMap, HostPool, HostPoolSpec, JobSpec, MembershipMode, ParallelRegion, ParallelRegionSpec, PeOptions,
    Placement, PoolLocation, ProcessingElement, ProcessingElementSpec, UserEndpoint, condition, names,
};
use streams_proto::fusion::v1::{
    HostPool as PlannedPool, ParallelRegion as PlannedRegion, Placement as PlannedPlacement, Plan,
    ProcessingElement as Planned,
};

/// Larger texts are stored compressed.
pub(crate) const COMPRESSED_ABOVE: u64 = 256 << 10;
/// What one object may hold, with room for the rest of it.
pub(crate) const OBJECT_BYTES: usize = 1_000_000;
/// Highest port id: it listens on 10000 plus its id.
pub(crate) const PORT_ID_MAX: u32 = 65_535 - BASE_PORT;
/// Longest name of an operator, region or pool that an object shows (schema).
pub(crate) const NAME_MAX: usize = 1024;

/// Type of all Services: one of another type leads elsewhere, or can be reached from elsewhere.
pub(crate) const SERVICE_TYPE: &str = "ClusterIP";

const BASE_PORT: u32 = 10_000;
const NOTIFICATION_PORT: i32 = 10_000;
const CONSISTENT_REGION_PORT: i32 = 10_001;
const METRICS_PORT: i32 = 9_696;

/// Builds the children of a job: has what they have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildBuilder<'a> {
    /// The reference to the job.
    pub(crate) owner: &'a OwnerReference,
    /// Number of the job.
    pub(crate) job_id: u64,
    /// Its spec, with the options in force (rule job-39).
    pub(crate) spec: &'a JobSpec,
    /// Name of the bundle that PEs ask for.
    pub(crate) sab_name: &'a str,
}

/// Which text a PE refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextVersion {
    /// The one it had to start with last.
    Origin,
    /// The one of the generation; a running PE cannot tell it from the other.
    Newest,
}

impl ChildBuilder<'_> {
    /// Name of the job.
    pub(crate) fn job(&self) -> &str {
        &self.owner.name
    }

    fn metadata(&self, name: String, labels: BTreeMap<String, String>) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            labels: Some(labels),
            owner_references: Some(vec![self.owner.clone()]),
            ..ObjectMeta::default()
        }
    }

    /// The metadata of an object that says which application it was made for.
    pub(crate) fn described(&self, plan: &Plan, name: String, labels: BTreeMap<String, String>) -> ObjectMeta {
        let (application, scope) = self.application(plan);
        let annotations =
            [(names::ANNOTATION_APPLICATION_NAME, application), (names::ANNOTATION_APPLICATION_SCOPE, scope)];
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value)).into();
        ObjectMeta { annotations: Some(annotations), ..self.metadata(name, labels) }
    }

    /// Name and scope of the application, as long as objects can show them.
    pub(crate) fn application(&self, plan: &Plan) -> (String, String) {
        let shown = |text: &str| condition::cut(text, NAME_MAX).to_owned();
        (shown(&plan.application_name), shown(&plan.application_scope))
    }

    /// A PE of a generation.
    pub(crate) fn processing_element(
        &self,
        generation: &Generation,
        pe: &Planned,
        origin: &Origin,
        version: TextVersion,
    ) -> ProcessingElement {
        let (content_id, size) = match version {
            TextVersion::Origin => (&origin.content_id, origin.size),
            TextVersion::Newest => (&pe.content_id, pe.size),
        };
        let operators =
            pe.operators.iter().take(LISTED_OPERATORS_MAX).map(|name| condition::cut(name, NAME_MAX).to_owned());
        let (application_name, application_scope) = self.application(&generation.plan);
        let placement = pe.placement.as_ref().map(|placed| placement(placed, origin, &generation.nodes));
        let placement = placement.unwrap_or_default();
        let pool = placement.pool.as_ref().and_then(|location| generation.host_pool(location.index));
        let pool = pool.map(|pool| self.host_pool_spec(generation, pool));
        let placement_hash = Some(placement_hash(&placement, pool.as_ref()));
        let spec = ProcessingElementSpec {
            job_name: self.job().to_owned(),
            job_id: self.job_id,
            application_name,
            application_scope,
            id: pe.id,
            generation: origin.generation,
            content_id: content_id.clone(),
            runtime_id: origin.runtime_id.clone(),
            config_map: AadlConfigMap {
                name: names::aadl_config_map(self.job(), pe.id, content_id),
                compressed: size > COMPRESSED_ABOVE,
            },
            operator_count: u32::try_from(pe.operators.len()).unwrap_or(u32::MAX),
            operators: operators.collect(),
            restartable: pe.restartable,
            input_ports: pe.port_labels.iter().map(|label| label.port_id).collect(),
            exported_ports: pe.exports.iter().map(|export| export.port_id).collect(),
            consistent_regions: pe.consistent_regions.clone(),
            placement,
            placement_hash,
            environment: pe.environment.clone(),
            options: self.options(generation.shares()),
        };
        let mut annotations = start_hash(&spec);
        if version == TextVersion::Newest && origin.content_id != pe.content_id && generation.ignores_channels() {
            let newest = names::newest_text(origin.text_generation, &spec.config_map.name);
            annotations.insert(names::ANNOTATION_NEWEST_TEXT.to_owned(), newest);
        }
        if !origin.trace_parent.is_empty() {
            annotations.insert(names::ANNOTATION_TRACE_PARENT.to_owned(), origin.trace_parent.clone());
        }
        let mut object = ProcessingElement::new(&names::processing_element(self.job(), pe.id), spec);
        let name = names::processing_element(self.job(), pe.id);
        object.metadata = self.described(&generation.plan, name, names::pe_labels(self.job(), pe.id));
        object.metadata.annotations.get_or_insert_default().extend(annotations);
        object
    }

    /// The options of a PE, those of the job filled in (rule pod-12), each under its first name (rule pod-11). It gets
    /// one of `shares` equal parts of job-wide resources.
    pub(crate) fn options(&self, shares: NonZeroU32) -> PeOptions {
        let mut options = self.spec.pe_options();
        options.image_pull_policy = options.image_pull_policy.or(Some(self.spec.image_pull_policy));
        options.image_pull_secret = options.image_pull_secret.or_else(|| self.spec.image_pull_secret.clone());
        options.sab_name = Some(options.sab_name().unwrap_or(self.sab_name).to_owned());
        options.bundle_name = None;
        options.checkpoint_repository = options.checkpoint_repository.or(options.checkpoint_data_store.take());
        let whole = self.spec.resources.as_ref().and_then(resources::saying_something);
        let share = whole.and_then(|whole| resources::share(&whole, shares).ok());
        let own = || options.resources.as_ref().and_then(resources::saying_something);
        options.resources = share.or_else(own).or_else(|| Some(default_resources()));
        options
    }

    /// The Service of a PE (rule name-7): a name in DNS, whether the pod is ready or not, because peers wait for each
    /// other. It has ports for these endpoints as well, as far as a Service can have them.
    pub(crate) fn service(&self, plan: &Plan, pe: &Planned, endpoints: &[UserEndpoint]) -> Service {
        let port = |name: String, protocol: &str, port: i32| ServicePort {
            name: Some(name),
            protocol: Some(protocol.to_owned()),
            port,
            ..ServicePort::default()
        };
        let inputs = pe.port_labels.iter().filter_map(|label| {
            let number = i32::try_from(label.port_id.checked_add(BASE_PORT)?).ok()?;
            Some(port(format!("sys-{}", label.port_id), "TCP", number))
        });
        let mut ports: Vec<_> = inputs.collect();
        ports.push(port("sys-metrics".to_owned(), "TCP", METRICS_PORT));
        ports.push(port("sys-notifications".to_owned(), "UDP", NOTIFICATION_PORT));
        ports.push(port("sys-consistentregion".to_owned(), "UDP", CONSISTENT_REGION_PORT));
        for (name, protocol, number) in user_ports::of_service(endpoints) {
            // The API server refuses two ports with one number and protocol, and the port of the system is the one that
            // peers need: a resize may have given the PE an input port with the number of an endpoint.
            let is_taken = ports.iter().any(|port| port.port == number && port.protocol.as_deref() == Some(protocol));
            if !is_taken {
                ports.push(port(name, protocol, number));
            }
        }
        let name = names::processing_element(self.job(), pe.id);
        Service {
            metadata: self.described(plan, name, names::pe_labels(self.job(), pe.id)),
            spec: Some(ServiceSpec {
                type_: Some(SERVICE_TYPE.to_owned()),
                cluster_ip: Some("None".to_owned()),
                publish_not_ready_addresses: Some(true),
                selector: Some(names::pe_selector(self.job(), pe.id)),
                ports: Some(ports),
                ..ServiceSpec::default()
            }),
            status: None,
        }
    }

    /// A region as it is created.
    pub(crate) fn region(&self, plan: &Plan, region: &PlannedRegion) -> ParallelRegion {
        let name = names::parallel_region(self.job(), region.index);
        let spec = ParallelRegionSpec {
            job_name: self.job().to_owned(),
            index: region.index,
            name: region.name.clone(),
            width: region.width,
        };
        let mut object = ParallelRegion::new(&name, spec);
        object.metadata = self.described(plan, name, names::job_labels(self.job()));
        object
    }

    /// A host pool.
    pub(crate) fn host_pool(&self, generation: &Generation, pool: &PlannedPool) -> HostPool {
        let name = names::host_pool(self.job(), pool.index);
        let spec = self.host_pool_spec(generation, pool);
        let annotations = start_hash(&spec);
        let mut object = HostPool::new(&name, spec);
        object.metadata = self.described(&generation.plan, name, names::job_labels(self.job()));
        object.metadata.annotations.get_or_insert_default().extend(annotations);
        object
    }

    fn host_pool_spec(&self, generation: &Generation, pool: &PlannedPool) -> HostPoolSpec {
        HostPoolSpec {
            job_name: self.job().to_owned(),
            index: pool.index,
            // New plans have no longer ones; that of a job that runs may be older than this limit.
            name: condition::cut(&pool.name, NAME_MAX).to_owned(),
            membership_mode: if pool.exclusive { MembershipMode::Exclusive } else { MembershipMode::Shared },
            size: pool.size,
            hosts: pool.hosts.iter().map(|host| node(host, &generation.nodes).to_owned()).collect(),
            tags: pool.tags.clone(),
        }
    }

    /// The job's own ConfigMap.
    pub(crate) fn config_map(&self, committed: Option<&Plan>, proposed: Option<&Plan>) -> ConfigMap {
        let labels = port_labels::render(committed, proposed);
        ConfigMap {
            metadata: self.metadata(names::job_config_map(self.job()), names::job_labels(self.job())),
            data: Some(BTreeMap::from([(port_labels::FILE.to_owned(), labels)])),
            // Set, so that whoever makes it immutable changes something that is restored: it changes with resizes.
            immutable: Some(false),
            ..ConfigMap::default()
        }
    }

    /// The ConfigMap with the text of a PE.
    pub(crate) fn text(&self, pe_id: u64, content_id: &str, text: StoredText) -> ConfigMap {
        let mut labels = names::pe_labels(self.job(), pe_id);
        labels.insert(names::LABEL_PART.to_owned(), names::PART_AADL.to_owned());
        let mut metadata = self.metadata(names::aadl_config_map(self.job(), pe_id, content_id), labels);
        metadata.annotations = Some(BTreeMap::from([(names::ANNOTATION_CONTENT_ID.to_owned(), content_id.to_owned())]));
        let (data, binary_data) = match text {
            StoredText::Plain(text) => (Some(BTreeMap::from([("aadl.xml".to_owned(), text)])), None),
            StoredText::Compressed(bytes) => {
                (None, Some(BTreeMap::from([("aadl.xml.gz".to_owned(), ByteString(bytes))])))
            }
        };
        ConfigMap { metadata, immutable: Some(true), data, binary_data }
    }
}

/// The annotation by which a change by somebody else shows, of what pods are replaced for or regions reset.
pub(super) fn start_hash(spec: &impl Starts) -> BTreeMap<String, String> {
    BTreeMap::from([(names::ANNOTATION_START_HASH.to_owned(), spec.start_hash())])
}

/// A text in the form in which a ConfigMap holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredText {
    /// As it is.
    Plain(String),
    /// Compressed by gzip.
    Compressed(Vec<u8>),
}

impl StoredText {
    /// The form of this text: compressed if it is large (rule job-11). `None` if it is not UTF-8.
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        if Self::is_plain(text) {
            return String::from_utf8(text.to_vec()).ok().map(Self::Plain);
        }
        // Without a time: the same text gives the same bytes.
        let mut encoder = flate2::GzBuilder::new().mtime(0).write(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).ok()?;
        encoder.finish().ok().map(Self::Compressed)
    }

    /// In place of a text of so many bytes, where only is asked in which form it is stored.
    pub(crate) fn without_content(bytes: u64) -> Self {
        if bytes > COMPRESSED_ABOVE { Self::Compressed(Vec::new()) } else { Self::Plain(String::new()) }
    }

    /// Whether this text is stored as it is.
    pub(crate) fn is_plain(text: &[u8]) -> bool {
        text.len() as u64 <= COMPRESSED_ABOVE
    }

    /// Bytes that it takes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(text) => text.len(),
            Self::Compressed(bytes) => bytes.len(),
        }
    }
}

/// Hosts by the names of their nodes.
fn placement(planned: &PlannedPlacement, origin: &Origin, nodes: &BTreeMap<String, String>) -> Placement {
    Placement {
        host: planned.host.as_ref().map(|host| node(host, nodes).to_owned()),
        co_locations: planned.co_locations.clone(),
        ex_locations: planned.ex_locations.clone(),
        isolation: planned.isolation.as_ref().map(|name| condition::cut(name, NAME_MAX).to_owned()),
        pool: planned.pool.as_ref().map(|pool| PoolLocation { index: pool.index, in_pool_index: pool.in_pool_index }),
        group: (!origin.group.is_empty()).then(|| origin.group.clone()),
        joined: (origin.joined > 0).then_some(origin.joined),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::generation::{GenerationDetails, Target};
    use serde_json::{Value, json};
    use streams_proto::fusion::v1::placement::Pool;
    use streams_proto::fusion::v1::{Compilation, Fate, PortLabel};

    fn spec(spec: Value) -> JobSpec {
        let mut spec = spec;
        spec["bundle"] = json!({"name": "a.sab"});
        serde_json::from_value(spec).unwrap()
    }

    fn owner() -> OwnerReference {
        OwnerReference {
            api_version: "streams.ibm.com/v1".to_owned(),
            kind: "Job".to_owned(),
            name: "flow".to_owned(),
            uid: "u".to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    fn planned() -> Planned {
        Planned {
            id: 3,
            fate: Fate::Added.into(),
            content_id: "ab".repeat(32),
            runtime_id: "r".to_owned(),
            size: 10,
            operators: vec!["A".to_owned(), "B".to_owned()],
            restartable: true,
            port_labels: vec![PortLabel { port_id: 2, ..PortLabel::default() }],
            placement: Some(PlannedPlacement {
                host: Some("10.0.0.1".to_owned()),
                pool: Some(Pool { index: 1, in_pool_index: Some(4) }),
                ..PlannedPlacement::default()
            }),
            ..Planned::default()
        }
    }

    /// Two generations: in the second the text of the PE is another one that a running PE cannot tell from the first.
    fn second(size: u64) -> Generation {
        let target = Target::Submission { inputs: String::new() };
        let following = |previous: Option<&Generation>, pe: Planned| {
            let plan = Plan {
                processing_elements: vec![pe],
                application_name: "demo::Main".to_owned(),
                application_scope: "Default".to_owned(),
                ..Plan::default()
            };
            let nodes = BTreeMap::from([("10.0.0.1".to_owned(), "node-a".to_owned())]);
            let circumstances =
                GenerationDetails { nodes, trace_parent: "t".to_owned(), ..GenerationDetails::default() };
            Generation::following(previous, target.clone(), Compilation::default(), plan, circumstances)
        };
        let first = following(None, planned());
        let pe = Planned { fate: Fate::KeptUnobservable.into(), content_id: "cd".repeat(32), size, ..planned() };
        following(Some(&first), pe)
    }

    fn pe_of(spec: &JobSpec, generation: &Generation, version: TextVersion) -> ProcessingElement {
        let owner = owner();
        let builder = ChildBuilder { owner: &owner, job_id: 7, spec, sab_name: "a.sab" };
        let (pe, origin) = generation.members().next().unwrap();
        builder.processing_element(generation, pe, origin, version)
    }

    #[test]
    fn a_pe_has_everything_that_its_pod_is_made_from() {
        let spec = spec(json!({
            "imagePullPolicy": "IfNotPresent", "imagePullSecret": "s",
            "processingElement": {"restartFailedPod": false, "runtimeTraceLevel": "DEBUG"},
        }));
        let object = pe_of(&spec, &second(10), TextVersion::Origin);
        let expected = json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement",
            "metadata": {
                "name": "flow-3",
                "annotations": {
                    "streams.ibm.com/start-hash": object.spec.start_hash(), "streams.ibm.com/traceparent": "t",
                    "streams.ibm.com/application-name": "demo::Main",
                    "streams.ibm.com/application-scope": "Default",
                },
                "labels": {"app": "streams", "svc": "pe", "streams.ibm.com/job": "flow", "streams.ibm.com/pe": "3"},
                "ownerReferences": [owner()],
            },
            "spec": {
                "jobName": "flow", "jobId": 7, "applicationName": "demo::Main", "applicationScope": "Default", "id": 3, "generation": 0, "contentId": "ab".repeat(32), "runtimeId": "r",
                "configMap": {"name": "flow-3-ababababab", "compressed": false},
                "operatorCount": 2, "operators": ["A", "B"], "restartable": true, "inputPorts": [2],
                "placement": {"host": "node-a", "pool": {"index": 1, "inPoolIndex": 4}},
                "placementHash": placement_hash(&object.spec.placement, None),
                "imagePullPolicy": "IfNotPresent", "imagePullSecret": "s", "sabName": "a.sab",
                "transportSecurityType": "none", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                "allowPtrace": false, "runWithValgrind": false, "runtimeTraceLevel": "DEBUG", "deleteFailedPod": true,
                "restartCompletedPod": false, "restartDeletedPod": false, "restartFailedPod": false,
                "initialProbeDelayInSeconds": 30, "probeFailureThreshold": 1, "probeIntervalInSeconds": 10,
            },
        });
        assert_eq!(serde_json::to_value(&object).unwrap(), expected);
    }

    #[test]
    fn another_text_that_a_running_pe_cannot_see_changes_nothing_but_the_name_of_the_text() {
        let spec = spec(json!({}));
        let generation = second(COMPRESSED_ABOVE + 1);
        let (origin, mut newest) =
            (pe_of(&spec, &generation, TextVersion::Origin), pe_of(&spec, &generation, TextVersion::Newest));
        assert_eq!(newest.spec.content_id, "cd".repeat(32));
        assert_eq!(newest.spec.config_map, AadlConfigMap { name: "flow-3-cdcdcdcdcd".to_owned(), compressed: true });
        newest.spec.content_id.clone_from(&origin.spec.content_id);
        newest.spec.config_map.clone_from(&origin.spec.config_map);
        newest.metadata.annotations.clone_from(&origin.metadata.annotations);
        assert_eq!(newest, origin);
    }

    #[test]
    fn resources_are_the_share_of_the_job_else_those_of_the_options_else_the_default() {
        // job-wide, of the options -> of a PE that is one of four
        let table = [
            (json!(null), json!(null), json!({"requests": {"cpu": "100m", "memory": "128Mi"}})),
            (json!(null), json!({"limits": {"cpu": "2"}}), json!({"limits": {"cpu": "2"}})),
            (json!(null), json!({"limits": {"cpu": "2"}, "requests": {}}), json!({"limits": {"cpu": "2"}})),
            (json!(null), json!({}), json!({"requests": {"cpu": "100m", "memory": "128Mi"}})),
            (json!({}), json!(null), json!({"requests": {"cpu": "100m", "memory": "128Mi"}})),
            (json!({"limits": {}}), json!({"limits": {"cpu": "9"}}), json!({"limits": {"cpu": "9"}})),
            (json!({"limits": {"cpu": "2"}}), json!(null), json!({"limits": {"cpu": "500m"}})),
            (json!({"requests": {"cpu": "1"}}), json!({"limits": {"cpu": "9"}}), json!({"requests": {"cpu": "250m"}})),
        ];
        for (whole, own, expected) in table {
            let mut value = json!({"processingElement": {}});
            if !whole.is_null() {
                value["resources"] = whole.clone();
            }
            if !own.is_null() {
                value["processingElement"]["resources"] = own.clone();
            }
            let spec = spec(value);
            let owner = owner();
            let builder = ChildBuilder { owner: &owner, job_id: 7, spec: &spec, sab_name: "a.sab" };
            let resources = builder.options(NonZeroU32::new(4).unwrap()).resources.unwrap();
            assert_eq!(serde_json::to_value(resources).unwrap(), expected, "{whole} {own}");
        }
    }

    #[test]
    fn options_under_two_names_are_written_under_the_first() {
        let kept = json!({"fileSystem": {"path": "/c"}});
        let defaults = pe_of(&spec(json!({})), &second(10), TextVersion::Origin).spec.options;
        for name in ["checkpointRepository", "checkpointDataStore"] {
            let spec = spec(json!({"processingElement": {name: kept, "bundleName": "b.sab"}}));
            let options = pe_of(&spec, &second(10), TextVersion::Origin).spec.options;
            let expected = PeOptions {
                sab_name: Some("b.sab".to_owned()),
                checkpoint_repository: Some(serde_json::from_value(kept.clone()).unwrap()),
                ..defaults.clone()
            };
            assert_eq!(options, expected, "{name}");
        }
    }

    #[test]
    fn a_service_is_a_name_for_its_pe_whether_it_is_ready_or_not() {
        let (spec, owner) = (spec(json!({})), owner());
        let service = ChildBuilder { owner: &owner, job_id: 7, spec: &spec, sab_name: "a.sab" };
        let service = service.service(&Plan::default(), &planned(), &[]);
        let expected = json!({
            "type": "ClusterIP", "clusterIP": "None", "publishNotReadyAddresses": true,
            "selector": {"app": "streams", "streams.ibm.com/job": "flow", "streams.ibm.com/pe": "3"},
            "ports": [
                {"name": "sys-2", "port": 10002, "protocol": "TCP"},
                {"name": "sys-metrics", "port": 9696, "protocol": "TCP"},
                {"name": "sys-notifications", "port": 10000, "protocol": "UDP"},
                {"name": "sys-consistentregion", "port": 10001, "protocol": "UDP"},
            ],
        });
        assert_eq!(serde_json::to_value(service.spec.unwrap()).unwrap(), expected);
        assert_eq!(service.metadata.name.as_deref(), Some("flow-3"));
    }

    #[test]
    fn a_service_has_the_ports_of_users_after_those_of_the_system_and_no_port_twice() {
        let (spec, owner) = (spec(json!({})), owner());
        let builder = ChildBuilder { owner: &owner, job_id: 7, spec: &spec, sab_name: "a.sab" };
        let endpoint = |name: &str, port: u16, protocol: &str| UserEndpoint {
            name: name.to_owned(),
            port,
            protocol: protocol.to_owned(),
        };
        let endpoints = [
            endpoint("web", 80, "TCP"),
            endpoint("also-web", 80, "TCP"),
            endpoint("dns", 80, "UDP"),
            // Ports of the system: of an input port, which a resize may have added, and others.
            endpoint("input", 10_002, "TCP"),
            endpoint("notified", 10_000, "UDP"),
            endpoint("free", 10_000, "TCP"),
        ];
        let service = builder.service(&Plan::default(), &planned(), &endpoints);
        let ports = service.spec.unwrap().ports.unwrap().into_iter().skip(4);
        let ports: Vec<_> =
            ports.map(|port| (port.name.unwrap(), port.port, port.protocol.unwrap(), port.node_port)).collect();
        let expected = [("usr-also-web", 80, "TCP"), ("usr-dns", 80, "UDP"), ("usr-free", 10_000, "TCP")];
        assert_eq!(ports, expected.map(|(name, port, kind)| (name.to_owned(), port, kind.to_owned(), None)));
    }

    /// Its plan may be older than the limit.
    #[test]
    fn an_object_of_a_host_pool_has_room_for_the_name_of_one_that_a_job_has() {
        let (spec, owner) = (spec(json!({})), owner());
        let builder = ChildBuilder { owner: &owner, job_id: 7, spec: &spec, sab_name: "a.sab" };
        for (length, expected) in [(NAME_MAX, NAME_MAX), (NAME_MAX + 1, NAME_MAX)] {
            let pool = PlannedPool { name: "p".repeat(length), ..PlannedPool::default() };
            assert_eq!(builder.host_pool(&second(10), &pool).spec.name.len(), expected);
        }
    }

    #[test]
    fn a_text_is_named_after_its_content() {
        let (spec, owner) = (spec(json!({})), owner());
        let builder = ChildBuilder { owner: &owner, job_id: 7, spec: &spec, sab_name: "a.sab" };
        let plain = builder.text(3, &"ab".repeat(32), StoredText::Plain("<pe/>".to_owned()));
        assert_eq!(plain.metadata.name.as_deref(), Some("flow-3-ababababab"));
        assert_eq!((plain.immutable, plain.data.unwrap()["aadl.xml"].as_str()), (Some(true), "<pe/>"));
        let compressed = builder.text(3, &"ab".repeat(32), StoredText::Compressed(vec![1]));
        assert!(compressed.data.is_none() && compressed.binary_data.unwrap().contains_key("aadl.xml.gz"));
    }
}
