//! Names of objects (rules name-3 and name-5), and the keys and values of labels (rule name-6) and annotations
//! (rule name-8).
//!
//! Nothing selects by generation: who belongs to a generation is said by the plan.
//!
//! Two parts of these rules are not here: names of pods (rule name-4, `controllers/processing_element/pod` of the
//! frontend) and Services (rule name-7, `controllers/job/objects/mod.rs`).

use std::collections::BTreeMap;

/// Label of every object that the operator makes for a job; value [`APP`]. Unprefixed, so that Services can select by
/// it.
pub const LABEL_APP: &str = "app";
/// Value of [`LABEL_APP`].
pub const APP: &str = "streams";
/// Label of PEs and of what a single PE needs (its pod, Service and ConfigMap); value [`SERVICE_PE`].
pub const LABEL_SERVICE: &str = "svc";
/// Value of [`LABEL_SERVICE`].
pub const SERVICE_PE: &str = "pe";
/// Value of [`LABEL_SERVICE`] of the Service that PEs of consistent regions talk to.
pub const SERVICE_CONSISTENT_REGIONS: &str = "consistent-region-operator";
/// Value of [`LABEL_SERVICE`] of the Service under which PEs reach the frontend.
pub const SERVICE_PE_API: &str = "instance-operator";
/// Label with the name of the job.
pub const LABEL_JOB: &str = "streams.ibm.com/job";
/// Label with the number of the PE in its job, decimal.
pub const LABEL_PE: &str = "streams.ibm.com/pe";
/// Label of pods: the PE's launch count that the pod was created for, decimal.
pub const LABEL_LAUNCH_COUNT: &str = "streams.ibm.com/launch-count";
/// Label of ConfigMaps that store what a job is made of; values [`PART_ADL`], [`PART_PLAN`], [`PART_AADL`].
pub const LABEL_PART: &str = "streams.ibm.com/part";
/// A chunk of the application's ADL.
pub const PART_ADL: &str = "adl";
/// A chunk of a plan.
pub const PART_PLAN: &str = "plan";
/// The AADL of a PE.
pub const PART_AADL: &str = "aadl";

/// Annotation that a user sets on a PE to any new value to have its pod replaced.
pub const ANNOTATION_RESTART_REQUESTED: &str = "streams.ibm.com/restart-requested";
/// Annotation of a PE that was deleted by somebody, that the job controller has made again, and that has not been
/// launched since.
pub const ANNOTATION_MADE_AGAIN: &str = "streams.ibm.com/made-again";
/// Annotation that a user sets on a PE to any new value to stop it for good.
pub const ANNOTATION_STOP_REQUESTED: &str = "streams.ibm.com/stop-requested";
/// Annotation of exports and imports: the generation that has added them. They match nothing before it is committed.
pub const ANNOTATION_SINCE_GENERATION: &str = "streams.ibm.com/since-generation";
/// Annotation that a user sets on a consistent region to any new value to have it reset, also after it has given up.
pub const ANNOTATION_RESET_REQUESTED: &str = "streams.ibm.com/reset-requested";
/// Annotation with the hash of the desired state that was applied last.
pub const ANNOTATION_APPLIED_HASH: &str = "streams.ibm.com/applied-hash";
/// Annotation of PEs, host pools and consistent regions: hash of what pods are replaced for, or regions reset. Who else
/// changes that does not know the hash.
pub const ANNOTATION_START_HASH: &str = "streams.ibm.com/start-hash";
/// Annotation with the SHA-256 of a PE's AADL text.
pub const ANNOTATION_CONTENT_ID: &str = "streams.ibm.com/content-id";
/// Annotation with the hash of what a running PE can observe of its AADL.
pub const ANNOTATION_RUNTIME_ID: &str = "streams.ibm.com/runtime-id";
/// Annotation of ProcessingElements that may run an older text, and refer to the newest one that there is of them:
/// which one that is ([`newest_text`]).
pub const ANNOTATION_NEWEST_TEXT: &str = "streams.ibm.com/newest-text";
/// Annotation of chunks: SHA-256 of the whole, lower-case hexadecimal.
pub const ANNOTATION_SHA256: &str = "streams.ibm.com/sha256";
/// Annotation of chunks: position of the chunk, from 0.
pub const ANNOTATION_CHUNK_INDEX: &str = "streams.ibm.com/chunk-index";
/// Annotation of chunks: number of chunks of the whole.
pub const ANNOTATION_CHUNK_COUNT: &str = "streams.ibm.com/chunk-count";
/// Annotation with the W3C trace context of the request that an object was last changed for.
pub const ANNOTATION_TRACE_PARENT: &str = "streams.ibm.com/traceparent";
/// Annotation of jobs and requests to resize: what other systems keep of that trace (`tracestate` of W3C).
pub const ANNOTATION_TRACE_STATE: &str = "streams.ibm.com/tracestate";
/// Annotation of regions: `metadata.generation` that the trace context belongs to. Whoever edits the width later is not
/// part of that trace.
pub const ANNOTATION_TRACE_GENERATION: &str = "streams.ibm.com/traceparent-generation";
/// Annotation with the name of the application that an object was made for.
pub const ANNOTATION_APPLICATION_NAME: &str = "streams.ibm.com/application-name";
/// Annotation with the scope of that application.
pub const ANNOTATION_APPLICATION_SCOPE: &str = "streams.ibm.com/application-scope";
/// Annotation of regions: see [`super::requested_widths`].
pub const ANNOTATION_REQUESTED_WIDTHS: &str = "streams.ibm.com/requested-widths";
/// Annotation of regions: see [`super::WidthOfResize`].
pub const ANNOTATION_WIDTH_OF_RESIZE: &str = "streams.ibm.com/width-of-resize";
/// Annotation of requests to resize, by users: any value withdraws the request.
pub const ANNOTATION_CANCEL_REQUESTED: &str = "streams.ibm.com/cancel-requested";
/// Annotation of requests to resize: stands for the caller of the elasticity API who has asked, if that is known.
pub const ANNOTATION_REQUESTED_BY: &str = "streams.ibm.com/requested-by";

/// Annotation of pods: hash of where the pod was to run.
pub const ANNOTATION_PLACEMENT_HASH: &str = "streams.ibm.com/placement-hash";
/// Annotation of pods: hash of the pod template, without what belongs to one launch, one text or one place.
pub const ANNOTATION_POD_TEMPLATE_HASH: &str = "streams.ibm.com/pod-template-hash";
/// Annotation of pods: the name of the bundle that the pod asks for.
pub const ANNOTATION_SAB_NAME: &str = "streams.ibm.com/sab-name";
/// Annotation of jobs, by users: the redis servers of checkpoints as the runtime wants to be told of them, where none
/// were found at the submission.
pub const ANNOTATION_REDIS_CONFIGURATION: &str = "streams.ibm.com/redis-configuration";

/// Field manager of `spec.width` of regions that was asked for through the elasticity API.
pub const ELASTICITY_MANAGER: &str = "streams-elasticity";

/// ConfigMap, one per namespace, that counts job ids.
pub const JOB_IDS: &str = "streams-job-ids";

/// Longest name of a job (rule name-2): the names of its Services (`<job>-<peId>`) must fit a DNS label.
pub const JOB_NAME_MAX: usize = 56;

/// Hexadecimal digits of a digest that object names carry.
pub const DIGEST_DIGITS: usize = 10;

/// Name of a PE and of its Service.
pub fn processing_element(job: &str, pe_id: u64) -> String {
    format!("{job}-{pe_id}")
}

/// Name of a parallel region.
pub fn parallel_region(job: &str, index: u64) -> String {
    format!("{job}-{index}")
}

/// Name of a host pool.
pub fn host_pool(job: &str, index: u64) -> String {
    format!("{job}-{index}")
}

/// Name of an exported stream; `port_id` is that of the output port.
pub fn export(job: &str, pe_id: u64, port_id: u32) -> String {
    format!("{job}-{pe_id}-{port_id}")
}

/// Name of a subscription; `port_id` is that of the input port.
pub fn import(job: &str, pe_id: u64, port_id: u32) -> String {
    format!("{job}-{pe_id}-{port_id}")
}

/// Name of a consistent region.
pub fn consistent_region(job: &str, index: u64) -> String {
    format!("{job}-cr{index}")
}

/// Name of the Service that the PEs of a job's consistent regions talk to. The runtime knows it.
pub fn consistent_region_service(job: &str) -> String {
    format!("streams-{job}-consistentregion-api")
}

/// Name of the Service under which PEs reach the frontend, in every namespace with jobs. The runtime knows it.
pub const PE_API_SERVICE: &str = "streams-api";

/// Name of a port of a PE's Service that an operator has opened under a name. The runtime knows it.
pub fn user_port(name: &str) -> String {
    format!("usr-{name}")
}

/// Name of the ConfigMap that reserves the name of an endpoint in its job. No name of a job has a dot, so no other
/// object of any job has such a name.
pub fn endpoint_reservation(job: &str, endpoint: &str) -> String {
    format!("{job}.{}", user_port(endpoint))
}

/// Longest name of an endpoint: a port of a Service has a name of 63 octets at most, four of them are `usr-`.
pub const ENDPOINT_MAX: usize = 59;

/// Whether a port of a Service can be named after an endpoint of this name: [`user_port`] is a DNS label.
pub fn is_endpoint(name: &str) -> bool {
    let is_inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=ENDPOINT_MAX).contains(&name.len())
        && name.chars().all(|c| is_inside(c) || c == '-')
        && name.ends_with(is_inside)
        && !name.contains("--")
}

/// Name of the job's own ConfigMap (port labels).
pub fn job_config_map(job: &str) -> String {
    job.to_owned()
}

/// Name of the Secret with the certificate that the PEs of a job present to each other.
pub fn transport_secret(job: &str) -> String {
    format!("{job}-transport")
}

/// Name of the Secret that keeps what is in that one while it is made again.
pub fn transport_copy(job: &str) -> String {
    format!("{}-copy", transport_secret(job))
}

/// Key of [`transport_secret`]: the certificate, and the authority that has signed it. The runtime knows it.
pub const TRANSPORT_CERTIFICATE: &str = "transport.cert";
/// Key of that Secret: the key of the certificate. The runtime knows it.
pub const TRANSPORT_KEY: &str = "transport.key";

/// Name of the ConfigMap with a PE's AADL.
pub fn aadl_config_map(job: &str, pe_id: u64, content_id: &str) -> String {
    format!("{job}-{pe_id}-{}", short(content_id))
}

/// What a PE says that refers to the newest text of it: the generation that changed its text last, and the ConfigMap
/// with that text. So it says nothing of a text of a later generation, or if it refers to another one.
pub fn newest_text(generation: u64, config_map: &str) -> String {
    format!("{generation}/{config_map}")
}

/// Name of the ConfigMap with one chunk of the ADL; `sha256` is lower-case hexadecimal.
pub fn adl_chunk(job: &str, sha256: &str, index: u32) -> String {
    format!("{job}-adl-{}-{index}", short(sha256))
}

/// Name of the ConfigMap with one chunk of a plan; `sha256` is lower-case hexadecimal.
pub fn plan_chunk(job: &str, generation: u64, sha256: &str, index: u32) -> String {
    format!("{job}-plan-{generation}-{}-{index}", short(sha256))
}

fn short(digest: &str) -> &str {
    digest.get(..DIGEST_DIGITS).unwrap_or(digest)
}

/// Labels of an object that belongs to a job as a whole.
pub fn job_labels(job: &str) -> BTreeMap<String, String> {
    [(LABEL_APP, APP), (LABEL_JOB, job)].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Labels of an object that belongs to one PE.
pub fn pe_labels(job: &str, pe_id: u64) -> BTreeMap<String, String> {
    let mut labels = job_labels(job);
    labels.insert(LABEL_SERVICE.to_owned(), SERVICE_PE.to_owned());
    labels.insert(LABEL_PE.to_owned(), pe_id.to_string());
    labels
}

/// Labels that the Service of a PE selects pods by.
pub fn pe_selector(job: &str, pe_id: u64) -> BTreeMap<String, String> {
    let mut labels = job_labels(job);
    labels.insert(LABEL_PE.to_owned(), pe_id.to_string());
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_the_job_and_what_tells_objects_apart() {
        let digest = "0123456789abcdef";
        let table = [
            (processing_element("flow", 3), "flow-3"),
            (parallel_region("flow", 0), "flow-0"),
            (host_pool("flow", 1), "flow-1"),
            (export("flow", 3, 1), "flow-3-1"),
            (import("flow", 3, 0), "flow-3-0"),
            (consistent_region("flow", 2), "flow-cr2"),
            (consistent_region_service("flow"), "streams-flow-consistentregion-api"),
            (job_config_map("flow"), "flow"),
            (transport_secret("flow"), "flow-transport"),
            (transport_copy("flow"), "flow-transport-copy"),
            (endpoint_reservation("flow", "web"), "flow.usr-web"),
            (aadl_config_map("flow", 3, digest), "flow-3-0123456789"),
            (aadl_config_map("flow", 3, "short"), "flow-3-short"),
            (adl_chunk("flow", digest, 2), "flow-adl-0123456789-2"),
            (plan_chunk("flow", 7, digest, 0), "flow-plan-7-0123456789-0"),
        ];
        for (actual, expected) in table {
            assert_eq!(actual, expected);
        }
    }

    #[test]
    fn an_endpoint_can_be_the_name_of_a_port() {
        let longest = "a".repeat(ENDPOINT_MAX);
        // name -> whether it can be
        let table = [
            ("web", true),
            ("a-1", true),
            ("-a", true),
            (&*longest, true),
            ("", false),
            ("a-", false),
            ("a--b", false),
            ("A", false),
            ("a.b", false),
            ("\u{e9}", false),
        ];
        for (name, expected) in table {
            assert_eq!(is_endpoint(name), expected, "{name}");
        }
        assert!(!is_endpoint(&format!("{longest}a")));
        assert_eq!(user_port(&longest).len(), 63);
    }

    #[test]
    fn the_longest_job_name_leaves_room_for_the_service_of_a_pe() {
        let job = "j".repeat(JOB_NAME_MAX);
        assert!(processing_element(&job, 199_999).len() <= 63);
    }
}
