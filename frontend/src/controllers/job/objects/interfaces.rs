//! What a job exports, imports and checkpoints together, as objects (rule job-47).
//!
//! Pure and deterministic, as all [objects](super). These follow from the plan alone: what connects streams and drives
//! consistent regions finds here what it needs of the plan.
//!
//! Knows: the plan. Must not know: who matches what, how regions are driven.

use super::{ChildBuilder, NAME_MAX, SERVICE_TYPE, start_hash};
use crate::controllers::job::child::{Child, Port};
use crate::controllers::job::generation::Generation;
use crate::controllers::job::generation::added_ports::PortUse;
use crate::controllers::job::transport;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use std::collections::BTreeMap;
use streams_api::consistent_region::LISTED_MEMBERS_MAX;
use streams_api::{
    CongestionPolicy, ConsistentRegion, ConsistentRegionSpec, Export, ExportSpec, ExportType, ExportedStream, Import,
    ImportSpec, ImportedStreams, NameBasedImport, PropertyBasedImport, RegionTrigger, StreamProperty,
    TransportSecurity, condition, names,
};
use streams_kubernetes::Error;
use streams_kubernetes::writer::hash;
use streams_proto::fusion::v1::{
    ConsistentRegion as PlannedRegion, Export as PlannedExport, Import as PlannedImport, Plan,
};

/// Port of the consistent regions' API: what the runtime uses.
const API_PORT: i32 = 10_000;

/// Hashes of the desired objects of a generation.
///
/// # Errors
/// An object cannot be written as JSON, which is not possible for these types.
pub(crate) fn interfaces(builder: ChildBuilder<'_>, generation: &Generation) -> Result<BTreeMap<Child, String>, Error> {
    let mut interfaces = BTreeMap::new();
    let plan = &generation.plan;
    for (pe, _) in generation.members() {
        for port in &pe.exports {
            let key = Port { pe: pe.id, id: port.port_id };
            interfaces.insert(Child::Export(key), hash(&builder.export(generation, key, port))?);
        }
        for port in &pe.imports {
            let key = Port { pe: pe.id, id: port.port_id };
            interfaces.insert(Child::Import(key), hash(&builder.import(generation, key, port))?);
        }
    }
    for region in &plan.consistent_regions {
        interfaces.insert(Child::ConsistentRegion(region.index), hash(&builder.consistent_region(plan, region))?);
    }
    if !plan.consistent_regions.is_empty() {
        interfaces.insert(Child::ConsistentRegionService, hash(&builder.consistent_region_service(plan))?);
    }
    if generation.settled.transport != TransportSecurity::None {
        interfaces.insert(Child::TransportSecret, transport::GOOD.to_owned());
    }
    Ok(interfaces)
}

impl ChildBuilder<'_> {
    /// An exported stream.
    pub(crate) fn export(&self, generation: &Generation, port: Port, export: &PlannedExport) -> Export {
        let plan = &generation.plan;
        let property = |property: &streams_proto::fusion::v1::export::Property| StreamProperty {
            name: property.name.clone(),
            property_type: property.r#type.clone(),
            values: property.values.clone(),
        };
        let (application_name, application_scope) = self.application(plan);
        let spec = ExportSpec {
            job_name: self.job().to_owned(),
            job_id: self.job_id,
            application_name,
            application_scope,
            pe_id: port.pe,
            port_id: port.id,
            export_type: if export.name.is_some() { ExportType::ByName } else { ExportType::ByProperties },
            stream: ExportedStream {
                export_oper_name: export.export_operator_name.clone(),
                name: export.name.clone(),
                properties: export.properties.iter().map(property).collect(),
                allow_filter: export.allow_filter,
                congestion_policy: match export.congestion_policy.as_str() {
                    "dropConnection" => CongestionPolicy::DropConnection,
                    _ => CongestionPolicy::Wait,
                },
            },
        };
        let name = names::export(self.job(), port.pe, port.id);
        let mut object = Export::new(&name, spec);
        object.metadata = self.described(plan, name, names::job_labels(self.job()));
        object.metadata.annotations.get_or_insert_default().extend([since(generation, PortUse::Export, port)]);
        object
    }

    /// A subscription.
    pub(crate) fn import(&self, generation: &Generation, port: Port, import: &PlannedImport) -> Import {
        let plan = &generation.plan;
        let by_name = import.by_name.iter().map(|by_name| {
            let import = NameBasedImport {
                application_name: by_name.application_name.clone(),
                application_scope: by_name.application_scope.clone(),
                stream_name: by_name.stream_name.clone(),
                import_oper_name: by_name.import_operator_name.clone(),
            };
            (by_name.key.to_string(), import)
        });
        let by_properties = import.by_properties.as_ref().map(|by_properties| PropertyBasedImport {
            subscription: by_properties.subscription.clone(),
            application_scope: by_properties.application_scope.clone(),
            import_oper_name: by_properties.import_operator_name.clone(),
            index: by_properties.index,
        });
        let (application_name, application_scope) = self.application(plan);
        let spec = ImportSpec {
            job_name: self.job().to_owned(),
            job_id: self.job_id,
            application_name,
            application_scope,
            pe_id: port.pe,
            port_id: port.id,
            port_index: port.id,
            streams: ImportedStreams {
                name_based_imports: by_name.collect(),
                property_based_import: by_properties,
                filter: import.filter.clone(),
            },
        };
        let name = names::import(self.job(), port.pe, port.id);
        let mut object = Import::new(&name, spec);
        object.metadata = self.described(plan, name, names::job_labels(self.job()));
        object.metadata.annotations.get_or_insert_default().extend([since(generation, PortUse::Import, port)]);
        object
    }

    /// A consistent region.
    pub(crate) fn consistent_region(&self, plan: &Plan, region: &PlannedRegion) -> ConsistentRegion {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let listed = |of: fn(&streams_proto::fusion::v1::consistent_region::Member) -> bool| -> Vec<String> {
            let members = region.members.iter().filter(|member| of(member)).take(LISTED_MEMBERS_MAX);
            members.map(|member| condition::cut(&member.operator, NAME_MAX).to_owned()).collect()
        };
        let is_periodic = region.trigger == "periodic";
        let spec = ConsistentRegionSpec {
            job_name: self.job().to_owned(),
            job_id: self.job_id,
            index: region.index,
            logical_index: region.logical_index,
            trigger: if is_periodic { RegionTrigger::Periodic } else { RegionTrigger::OperatorDriven },
            period_milliseconds: is_periodic.then(|| milliseconds(region.period)),
            drain_timeout_milliseconds: milliseconds(region.drain_timeout),
            reset_timeout_milliseconds: milliseconds(region.reset_timeout),
            max_consecutive_reset_attempts: region.max_consecutive_reset_attempts,
            pe_ids: region.pe_ids.clone(),
            operator_count: count(region.members.len()),
            start_operator_count: count(region.members.iter().filter(|member| member.is_start).count()),
            start_operators: listed(|member| member.is_start),
            trigger_operators: listed(|member| member.is_trigger),
        };
        let name = names::consistent_region(self.job(), region.index);
        let annotations = start_hash(&spec);
        let mut object = ConsistentRegion::new(&name, spec);
        object.metadata = self.described(plan, name, names::job_labels(self.job()));
        object.metadata.annotations.get_or_insert_default().extend(annotations);
        object
    }

    /// The Service that PEs of consistent regions talk to. It selects no pods: whoever drives the regions says where it
    /// is. It has an address, so that PEs are led to another replica whatever they have looked up. One that was made
    /// without keeps none: nobody can give it one, and nothing is said of it here.
    pub(crate) fn consistent_region_service(&self, plan: &Plan) -> Service {
        let port = ServicePort {
            name: Some("sys-api".to_owned()),
            protocol: Some("TCP".to_owned()),
            port: API_PORT,
            ..ServicePort::default()
        };
        let mut labels = names::job_labels(self.job());
        labels.insert(names::LABEL_SERVICE.to_owned(), names::SERVICE_CONSISTENT_REGIONS.to_owned());
        Service {
            metadata: self.described(plan, names::consistent_region_service(self.job()), labels),
            spec: Some(ServiceSpec {
                type_: Some(SERVICE_TYPE.to_owned()),
                // Said, so that it is restored: with another one, PEs on nodes without the frontend are led to nobody.
                internal_traffic_policy: Some("Cluster".to_owned()),
                ports: Some(vec![port]),
                ..ServiceSpec::default()
            }),
            status: None,
        }
    }
}

/// The annotation by which an export or import says which generation has added it: until that is committed it matches
/// nothing. The first one is said as well, so that it is restored if others name another one (rule call-19).
fn since(generation: &Generation, of: PortUse, port: Port) -> (String, String) {
    let added = generation.added_ports.since(of, port).unwrap_or_default();
    (names::ANNOTATION_SINCE_GENERATION.to_owned(), added.to_string())
}

/// Seconds as the plan has them, in whole milliseconds.
fn milliseconds(seconds: f64) -> u64 {
    // A cast of a float ends at the bounds of the integer.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates, and nothing is negative")]
    let milliseconds = (seconds * 1000.0).round() as u64;
    milliseconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::generation::{GenerationDetails, Target};
    use crate::start_hash::Starts as _;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::json;
    use streams_api::{BundleReference, JobSpec};
    use streams_proto::fusion::v1::consistent_region::Member;
    use streams_proto::fusion::v1::export::Property;
    use streams_proto::fusion::v1::import::{ByName, ByProperties};
    use streams_proto::fusion::v1::{Compilation, Fate, ProcessingElement};

    fn export() -> PlannedExport {
        PlannedExport {
            port_id: 2,
            export_operator_name: "Out".to_owned(),
            allow_filter: true,
            congestion_policy: "dropConnection".to_owned(),
            by_properties: true,
            properties: vec![Property {
                name: "topic".to_owned(),
                r#type: "rstring".to_owned(),
                values: vec!["\"tech\"".to_owned()],
            }],
            ..PlannedExport::default()
        }
    }

    fn import() -> PlannedImport {
        PlannedImport {
            port_id: 1,
            filter: Some("i > 3".to_owned()),
            by_name: vec![ByName {
                key: 0,
                application_name: "a::B".to_owned(),
                application_scope: "Default".to_owned(),
                stream_name: "s".to_owned(),
                import_operator_name: "In".to_owned(),
            }],
            by_properties: Some(ByProperties {
                subscription: "topic == \"tech\"".to_owned(),
                application_scope: "Default".to_owned(),
                import_operator_name: "In2".to_owned(),
                index: 4,
            }),
            ..PlannedImport::default()
        }
    }

    fn region() -> PlannedRegion {
        let member =
            |operator: &str, is_start, is_trigger| Member { operator: operator.to_owned(), is_start, is_trigger };
        PlannedRegion {
            index: 1,
            logical_index: 0,
            trigger: "periodic".to_owned(),
            period: 1.5,
            drain_timeout: 180.0,
            reset_timeout: 60.25,
            max_consecutive_reset_attempts: 5,
            pe_ids: vec![0, 3],
            members: vec![member("A", true, false), member("B", false, false), member("C", true, true)],
        }
    }

    fn plan() -> Plan {
        Plan { application_name: "demo::Main".to_owned(), application_scope: "Mine".to_owned(), ..Plan::default() }
    }

    /// A generation with PE 3, which exports and imports.
    fn generation(previous: Option<&Generation>) -> Generation {
        let pe = ProcessingElement {
            id: 3,
            exports: vec![export()],
            imports: vec![import()],
            fate: Fate::Restarted.into(),
            ..ProcessingElement::default()
        };
        let plan = Plan { processing_elements: vec![pe], ..plan() };
        let target = Target::Submission { inputs: String::new() };
        Generation::following(previous, target, Compilation::default(), plan, GenerationDetails::default())
    }

    fn built<T: serde::Serialize>(build: impl FnOnce(ChildBuilder<'_>) -> T) -> serde_json::Value {
        let owner = OwnerReference { name: "flow".to_owned(), uid: "u".to_owned(), ..OwnerReference::default() };
        let spec = JobSpec::of(BundleReference::default());
        let builder = ChildBuilder { owner: &owner, job_id: 7, spec: &spec, sab_name: "a.sab" };
        serde_json::to_value(build(builder)).unwrap()
    }

    #[test]
    fn exports_imports_and_regions_say_what_the_plan_says() {
        let common = json!({
            "jobName": "flow", "jobId": 7, "applicationName": "demo::Main", "applicationScope": "Mine",
        });
        let with = |more: serde_json::Value| {
            let mut all = common.clone();
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        let first = generation(None);
        let object = built(|builder| builder.export(&first, Port { pe: 3, id: 2 }, &export()));
        let stream = json!({
            "exportOperName": "Out", "allowFilter": true, "congestionPolicy": "dropConnection",
            "properties": [{"name": "topic", "type": "rstring", "values": ["\"tech\""]}],
        });
        assert_eq!(object["spec"], with(json!({"peId": 3, "portId": 2, "type": "ByProperties", "stream": stream})));
        assert_eq!(object["metadata"]["name"], "flow-3-2");
        let annotations = json!({
            names::ANNOTATION_APPLICATION_NAME: "demo::Main", names::ANNOTATION_APPLICATION_SCOPE: "Mine",
            names::ANNOTATION_SINCE_GENERATION: "0",
        });
        assert_eq!(object["metadata"]["annotations"], annotations);

        let object = built(|builder| builder.import(&first, Port { pe: 3, id: 1 }, &import()));
        let by_name = json!({
            "applicationName": "a::B", "applicationScope": "Default", "streamName": "s", "importOperName": "In",
        });
        let by_properties = json!({
            "subscription": "topic == \"tech\"", "applicationScope": "Default", "importOperName": "In2", "index": 4,
        });
        let streams =
            json!({"nameBasedImports": {"0": by_name}, "propertyBasedImport": by_properties, "filter": "i > 3"});
        assert_eq!(object["spec"], with(json!({"peId": 3, "portId": 1, "portIndex": 1, "streams": streams})));

        let object = built(|builder| builder.consistent_region(&plan(), &region()));
        let expected = json!({
            "jobName": "flow", "jobId": 7, "index": 1, "logicalIndex": 0, "trigger": "periodic",
            "periodMilliseconds": 1500, "drainTimeoutMilliseconds": 180_000, "resetTimeoutMilliseconds": 60_250,
            "maxConsecutiveResetAttempts": 5, "peIds": [0, 3], "operatorCount": 3, "startOperatorCount": 2,
            "startOperators": ["A", "C"], "triggerOperators": ["C"],
        });
        assert_eq!(object["spec"], expected);
        assert_eq!(object["metadata"]["name"], "flow-cr1");
        let region: ConsistentRegion = serde_json::from_value(object).unwrap();
        assert!(region.metadata.annotations.as_ref().unwrap().contains_key(names::ANNOTATION_START_HASH));
        assert!(!region.spec.is_changed_by_others(&region.metadata));
    }

    #[test]
    fn each_says_which_generation_has_added_it_and_what_was_there_stays_as_it_is() {
        let first = Generation { plan: plan(), ..generation(None) };
        let second = generation(Some(&first));
        let third = generation(Some(&second));
        // PE 3 is there from the second generation on -> what its objects say
        for (generation, since) in [(first, "0"), (second, "1"), (third, "1")] {
            let objects = [
                built(|builder| builder.export(&generation, Port { pe: 3, id: 2 }, &export())),
                built(|builder| builder.import(&generation, Port { pe: 3, id: 1 }, &import())),
            ];
            for object in objects {
                let said = &object["metadata"]["annotations"][names::ANNOTATION_SINCE_GENERATION];
                assert_eq!(said, since, "generation {}", generation.number);
            }
        }
    }

    #[test]
    fn a_region_that_an_operator_drives_has_no_period() {
        let driven = PlannedRegion { trigger: "operator driven".to_owned(), period: 0.0, ..region() };
        let object = built(|builder| builder.consistent_region(&plan(), &driven));
        assert_eq!(
            (&object["spec"]["trigger"], &object["spec"]["periodMilliseconds"]),
            (&json!("operatorDriven"), &json!(null))
        );
    }

    #[test]
    fn the_service_of_regions_has_the_name_and_the_port_that_the_runtime_knows() {
        let service = built(|builder| builder.consistent_region_service(&plan()));
        assert_eq!(service["metadata"]["name"], "streams-flow-consistentregion-api");
        let ports = json!([{"name": "sys-api", "protocol": "TCP", "port": 10_000}]);
        let expected = json!({"type": "ClusterIP", "internalTrafficPolicy": "Cluster", "ports": ports});
        assert_eq!(service["spec"], expected);
    }
}
