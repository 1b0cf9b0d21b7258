//! Checks a plan before it is stored.
//!
//! Pure. Knows: what Kubernetes takes, and what whoever runs the frontend allows. Must not know: how plans are made.

use super::error::WorkError;
use crate::controllers::job::generation::missing_nodes;
use crate::controllers::job::objects::oversized::oversized;
use crate::controllers::job::objects::{OBJECT_BYTES, PORT_ID_MAX, port_labels};
use crate::fusion::MAX_TEXT;
use crate::settings::JobSettings;
use std::cmp::Reverse;
use std::net::IpAddr;
use streams_api::names;
use streams_kubernetes::object_names::check_object;
use streams_proto::fusion::v1::{Fate, Plan, ProcessingElement, Warning};

/// Longest name of a job with consistent regions: a Service is named after it (rule name-7).
const CONSISTENT_JOB_NAME_MAX: usize = 34;
/// Longest name of a Service.
const SERVICE_NAME_MAX: usize = 63;
/// Longest name part of a label key.
const LABEL_NAME_MAX: usize = 63;
/// The version of an ADL that only an option lets through.
const OLD_ADL: &str = "v4000";

/// What must not be submitted, what Kubernetes would refuse later, and what users should know (rule job-22). `name` is
/// that of the job, `previous` the plan in force.
pub(super) fn check(
    name: &str,
    plan: &Plan,
    settings: &JobSettings,
    previous: Option<&Plan>,
) -> Result<Vec<Warning>, WorkError> {
    let mut warnings = Vec::new();
    let mut warn = |reason: &str, message: String| warnings.push(Warning { reason: reason.to_owned(), message });
    if plan.adl_version == OLD_ADL && previous.is_none() && !settings.allow_adl_v4000 {
        let message = "the application is described by an ADL of version v4000, which the runtime may not understand: \
                       compile it with a newer compiler, or have the frontend started with --allow-adl-v4000";
        return Err(WorkError::permanent("AdlVersionRefused", message));
    }
    if !plan.consistent_regions.is_empty() && name.len() > CONSISTENT_JOB_NAME_MAX {
        let message =
            format!("the name of a job with consistent regions may have {CONSISTENT_JOB_NAME_MAX} characters");
        return Err(WorkError::permanent("NameTooLong", message));
    }
    let live = || plan.processing_elements.iter().filter(|pe| pe.fate() != Fate::Removed);
    for pe in live() {
        if let Some(label) = pe.port_labels.iter().find(|label| label.port_id > PORT_ID_MAX) {
            let message =
                format!("PE {} has port id {}, which makes no port number; use more PEs", pe.id, label.port_id);
            return Err(WorkError::permanent("PortOutOfRange", message));
        }
        let service = names::processing_element(name, pe.id);
        if service.len() > SERVICE_NAME_MAX {
            let message = format!(
                "the Service of PE {} would have the name {service}, of more than {SERVICE_NAME_MAX} characters",
                pe.id
            );
            return Err(WorkError::permanent("NameTooLong", message));
        }
        if let Some(variable) = pe.environment.keys().find(|variable| !is_variable(variable)) {
            let message = format!(
                "an operator of PE {} asks for the environment variable {variable:?}, which no pod may have",
                pe.id
            );
            return Err(WorkError::permanent("EnvironmentInvalid", message));
        }
    }
    // What a job has had from when nobody refused it does not keep it from being resized.
    let known = previous.map(missing_nodes::named).unwrap_or_default();
    let mut new_hosts = missing_nodes::named(plan).into_iter().filter(|host| !known.contains(host));
    if let Some(host) = new_hosts.find(|host| host.parse::<IpAddr>().is_err() && check_object(host).is_err()) {
        let message = format!("{host:?} is no address and no name that a node can have");
        return Err(WorkError::permanent("HostNameInvalid", message));
    }
    for pool in &plan.host_pools {
        if let Some(tag) = pool.tags.iter().find(|tag| !is_label_name(tag)) {
            let message = format!("tag {tag:?} of host pool {} makes no label of a node", pool.name);
            return Err(WorkError::permanent("HostTagInvalid", message));
        }
        if let Some(size) = pool.size.filter(|_| pool.hosts.is_empty()) {
            warn("HostPoolSizeNotEnforced", format!("host pool {} may have more than its {size} hosts", pool.name));
        }
    }
    if let Some(message) = oversized(plan, previous) {
        return Err(WorkError::permanent("TooLarge", message));
    }
    // Texts that are there already need not be rendered.
    if let Some(pe) = plan.processing_elements.iter().filter(is_new).find(|pe| pe.size > MAX_TEXT as u64) {
        let (id, size) = (pe.id, pe.size);
        let message = format!("the AADL of PE {id} has {size} bytes, more than {} MiB; use more PEs", MAX_TEXT >> 20);
        return Err(WorkError::permanent("TooLarge", message));
    }
    let max_generation_mib = settings.max_generation_mib;
    let bytes = live().map(|pe| pe.size).fold(0, u64::saturating_add);
    if bytes > max_generation_mib.saturating_mul(1 << 20) {
        let message = format!("the job has {bytes} bytes of AADL, more than {max_generation_mib} MiB; use more PEs");
        return Err(WorkError::permanent("TooLarge", message));
    }
    let labels = port_labels::render(Some(plan), None).len();
    if labels > OBJECT_BYTES {
        let message = format!("the port labels of the job take {labels} bytes, more than one ConfigMap; use fewer PEs");
        return Err(WorkError::permanent("TooLarge", message));
    }
    // Until the commit both are there (rule job-13).
    let both = previous.map_or(0, |previous| port_labels::render(Some(previous), Some(plan)).len());
    if both > OBJECT_BYTES {
        let message = format!(
            "the port labels of the job take {both} bytes, more than one ConfigMap, with those that it has now: resize \
             in two steps, first what gets narrower"
        );
        return Err(WorkError::permanent("TooLarge", message));
    }
    Ok(warnings)
}

/// What a dry run says of texts of which only rendering shows whether they fit, because they are compressed then
/// (rule elasticity-24). Texts of PEs that keep theirs are there already.
pub(super) fn unmeasured(plan: &Plan) -> Option<Warning> {
    let is_large = |pe: &&ProcessingElement| pe.size > OBJECT_BYTES as u64;
    let large: Vec<_> = plan.processing_elements.iter().filter(is_new).filter(is_large).collect();
    let largest = large.iter().max_by_key(|pe| (pe.size, Reverse(pe.id)))?;
    let message = format!(
        "the AADL of PE {} has {} bytes, the most of {} that have more than a ConfigMap holds ({OBJECT_BYTES}): whether \
         they fit when they are compressed is only known once they are rendered; if not, the resize is refused",
        largest.id,
        largest.size,
        large.len()
    );
    Some(Warning { reason: "TextMayNotFit".to_owned(), message })
}

/// Whether the PE needs a text that there was not.
fn is_new(pe: &&ProcessingElement) -> bool {
    matches!(pe.fate(), Fate::Added | Fate::Restarted)
}

/// Refuses a plan that nobody could read again (rule job-8). `bytes` is its size before compression.
pub(super) fn fits(bytes: usize, max_plan_mib: u64) -> Result<(), WorkError> {
    if bytes as u64 <= max_plan_mib << 20 {
        return Ok(());
    }
    let message = format!("the plan of the job has {bytes} bytes, more than {max_plan_mib} MiB; use fewer PEs");
    Err(WorkError::permanent("TooLarge", message))
}

/// Whether a pod can have a variable of this name: in the widest grammar that Kubernetes has had.
fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=')
}

/// Whether `hostpool.streams.ibm.com/<tag>` is a label key (rule placement-4).
fn is_label_name(tag: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let at_the_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    tag.len() <= LABEL_NAME_MAX
        && tag.chars().all(inside)
        && at_the_end(tag.chars().next())
        && at_the_end(tag.chars().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use streams_proto::fusion::v1::{ConsistentRegion, Export, HostPool, Placement, PortLabel};

    fn planned_pe() -> ProcessingElement {
        let port_labels = vec![PortLabel::default()];
        ProcessingElement { fate: Fate::Added.into(), port_labels, size: 100, ..ProcessingElement::default() }
    }

    #[test]
    fn new_texts_that_may_be_too_large_are_told_with_the_largest() {
        let pe =
            |id, fate: Fate, size| ProcessingElement { id, fate: fate.into(), size, ..ProcessingElement::default() };
        let large = OBJECT_BYTES as u64 + 1;
        // PEs -> what is said
        let table: [(&[ProcessingElement], Option<&str>); 4] = [
            (&[pe(1, Fate::Added, large - 1)], None),
            (&[pe(1, Fate::Kept, large), pe(2, Fate::KeptUnobservable, large), pe(3, Fate::Removed, large)], None),
            (&[pe(1, Fate::Restarted, large)], Some("PE 1 has 1000001 bytes, the most of 1 ")),
            (
                &[pe(1, Fate::Added, large), pe(2, Fate::Added, 9 * large), pe(3, Fate::Added, 5)],
                Some("PE 2 has 9000009 bytes, the most of 2 "),
            ),
        ];
        for (pes, expected) in table {
            let said = unmeasured(&Plan { processing_elements: pes.to_vec(), ..Plan::default() });
            assert_eq!(said.is_some(), expected.is_some(), "{pes:?}");
            assert!(said.is_none_or(|said| said.message.contains(expected.unwrap())));
        }
    }

    #[test]
    fn a_new_text_that_nobody_would_render_is_refused() {
        let most = MAX_TEXT as u64;
        // size of the AADL, what becomes of the PE -> part of the refusal
        let table = [
            (most, Fate::Added, None),
            (most + 1, Fate::Added, Some("the AADL of PE 7 has 16777217 bytes, more than 16 MiB; use more PEs")),
            (most + 1, Fate::Restarted, Some("more than 16 MiB")),
            (most + 1, Fate::Kept, None),
            (most + 1, Fate::KeptUnobservable, None),
            (u64::MAX, Fate::Kept, Some("of AADL, more than 4096 MiB")),
        ];
        for (size, fate, expected) in table {
            let pe = |id, size| ProcessingElement { id, fate: fate.into(), size, ..planned_pe() };
            let plan = Plan { processing_elements: vec![pe(3, 1), pe(7, size)], ..Plan::default() };
            let said = check("j", &plan, &JobSettings::default(), None).err();
            assert_eq!(said.is_some(), expected.is_some(), "{size} {fate:?}: {said:?}");
            let is_right = |said: &WorkError| !said.retry && said.reason == "TooLarge";
            assert!(said.is_none_or(|said| is_right(&said) && said.message.contains(expected.unwrap())), "{size}");
        }
    }

    #[test]
    fn what_kubernetes_would_refuse_later_is_refused_now() {
        let plan = |change: fn(&mut Plan)| {
            let mut plan = Plan { processing_elements: vec![planned_pe()], ..Plan::default() };
            change(&mut plan);
            plan
        };
        let settings = JobSettings { max_generation_mib: 1, ..JobSettings::default() };
        let long = "j".repeat(35);
        // job, plan -> reason of the refusal, reasons of the warnings
        let host = |host: &str| Placement { host: Some(host.to_owned()), ..Placement::default() };
        let on = |name: &str| {
            let pe = ProcessingElement { placement: Some(host(name)), ..planned_pe() };
            Plan { processing_elements: vec![pe], ..Plan::default() }
        };
        let with = |variable: &str| {
            let environment = BTreeMap::from([(variable.to_owned(), String::new())]);
            Plan { processing_elements: vec![ProcessingElement { environment, ..planned_pe() }], ..Plan::default() }
        };
        let (longest, much) = ("j".repeat(56), "n".repeat(254));
        let table: [(&str, Plan, Result<&[&str], &str>); 23] = [
            (&longest, plan(|p| p.processing_elements[0].id = 999_999), Ok(&[])),
            (&longest, plan(|p| p.processing_elements[0].id = 1_000_000), Err("NameTooLong")),
            ("j", on("node-1.example.com"), Ok(&[])),
            ("j", on("10.0.0.1"), Ok(&[])),
            ("j", on("2001:DB8::1"), Ok(&[])),
            ("j", on("Node"), Err("HostNameInvalid")),
            ("j", on("node_1"), Err("HostNameInvalid")),
            ("j", on("a..b"), Err("HostNameInvalid")),
            ("j", on(&much), Err("HostNameInvalid")),
            (
                "j",
                plan(|p| {
                    p.host_pools.push(HostPool {
                        name: "p".to_owned(),
                        hosts: vec!["-".to_owned()],
                        ..HostPool::default()
                    })
                }),
                Err("HostNameInvalid"),
            ),
            ("j", with("PATH TO.x-y"), Ok(&[])),
            ("j", with(""), Err("EnvironmentInvalid")),
            ("j", with("a=b"), Err("EnvironmentInvalid")),
            ("j", with("na\u{ef}ve"), Err("EnvironmentInvalid")),
            ("j", plan(|_| ()), Ok(&[])),
            ("j", plan(|p| p.processing_elements[0].port_labels[0].port_id = 55_536), Err("PortOutOfRange")),
            ("j", plan(|p| p.processing_elements[0].port_labels[0].port_id = 55_535), Ok(&[])),
            ("j", plan(|p| p.processing_elements[0].size = 2 << 20), Err("TooLarge")),
            ("j", plan(|p| p.consistent_regions.push(ConsistentRegion::default())), Ok(&[])),
            (&long, plan(|p| p.consistent_regions.push(ConsistentRegion::default())), Err("NameTooLong")),
            ("j", plan(|p| p.processing_elements[0].exports.push(Export::default())), Ok(&[])),
            (
                "j",
                plan(|p| p.host_pools.push(HostPool { tags: vec!["a b".to_owned()], ..HostPool::default() })),
                Err("HostTagInvalid"),
            ),
            (
                "j",
                plan(|p| p.host_pools.push(HostPool { name: "p".to_owned(), size: Some(2), ..HostPool::default() })),
                Ok(&["HostPoolSizeNotEnforced"]),
            ),
        ];
        for (name, plan, expected) in table {
            match check(name, &plan, &settings, None) {
                Ok(warnings) => {
                    let reasons: Vec<_> = warnings.iter().map(|warning| warning.reason.as_str()).collect();
                    assert_eq!(Ok(reasons.as_slice()), expected, "{plan:?}");
                }
                Err(error) => {
                    assert!(!error.retry);
                    assert_eq!(Err(error.reason.as_str()), expected, "{plan:?}");
                }
            }
        }
    }

    #[test]
    fn a_job_that_has_a_host_of_no_node_is_resized_as_long_as_there_is_none_more() {
        let with_pool = |hosts: &[&str]| {
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            let host_pools = vec![HostPool { name: "p".to_owned(), hosts, ..HostPool::default() }];
            Plan { processing_elements: vec![planned_pe()], host_pools, ..Plan::default() }
        };
        // hosts in force, if the job runs; those of the plan -> what is said
        type Hosts<'a> = &'a [&'a str];
        let table: [(Option<Hosts<'_>>, Hosts<'_>, Option<&str>); 4] = [
            (None, &["a", "NODE_B"], Some("\"NODE_B\" is no address")),
            (Some(&["a", "NODE_B"]), &["a", "NODE_B"], None),
            (Some(&["a", "NODE_B"]), &["NODE_B", "NODE_C"], Some("\"NODE_C\" is no address")),
            (Some(&["a"]), &["a", "NODE_B"], Some("\"NODE_B\" is no address")),
        ];
        let settings = JobSettings { max_generation_mib: 1, ..JobSettings::default() };
        for (previous, hosts, expected) in table {
            let said = check("j", &with_pool(hosts), &settings, previous.map(with_pool).as_ref()).err();
            assert_eq!(said.is_some(), expected.is_some(), "{previous:?} {hosts:?} {said:?}");
            assert!(said.is_none_or(|said| said.message.starts_with(expected.unwrap())), "{previous:?} {hosts:?}");
        }
    }

    /// Until the commit the ConfigMap has the labels of both plans.
    #[test]
    fn port_labels_have_to_fit_together_with_those_in_force() {
        let labelled = |operators: &[(&str, usize)]| {
            let port_labels = operators.iter().map(|(operator, bytes)| PortLabel {
                operator_port_label: operator.repeat(*bytes),
                ..PortLabel::default()
            });
            let pe = ProcessingElement { port_labels: port_labels.collect(), ..planned_pe() };
            Plan { processing_elements: vec![pe], ..Plan::default() }
        };
        let settings = JobSettings { max_generation_mib: 1, ..JobSettings::default() };
        // in force, planned -> what is said
        let table = [
            (None, labelled(&[("b", 999_998)]), None),
            (None, labelled(&[("b", 999_999)]), Some("use fewer PEs")),
            (Some(labelled(&[("a", 600_000)])), labelled(&[("b", 399_996)]), None),
            (Some(labelled(&[("a", 600_000)])), labelled(&[("b", 399_997)]), Some("resize in two steps")),
            (Some(labelled(&[("a", 600_000), ("b", 1)])), labelled(&[("a", 600_000), ("c", 1)]), None),
        ];
        for (previous, plan, expected) in table {
            let said = check("j", &plan, &settings, previous.as_ref()).err();
            assert_eq!(said.is_some(), expected.is_some(), "{said:?}");
            let is_right = |said: &WorkError| !said.retry && said.reason == "TooLarge";
            assert!(said.is_none_or(|said| is_right(&said) && said.message.contains(expected.unwrap())));
        }
    }

    #[test]
    fn tags_are_parts_of_label_keys() {
        for (tag, expected) in
            [("a", true), ("A-b_c.9", true), ("", false), ("-a", false), ("a.", false), ("a/b", false)]
        {
            assert_eq!(is_label_name(tag), expected, "{tag}");
        }
        assert!(is_label_name(&"a".repeat(63)) && !is_label_name(&"a".repeat(64)));
    }

    #[test]
    fn a_plan_that_nobody_could_read_again_is_refused() {
        assert!(fits(1 << 20, 1).is_ok());
        let error = fits((1 << 20) + 1, 1).unwrap_err();
        assert!(!error.retry && error.reason == "TooLarge", "{error:?}");
    }

    #[test]
    fn an_old_adl_is_submitted_only_where_an_option_allows_it() {
        // version, option, submission -> taken
        let table = [
            ("v4200", false, true, true),
            ("v4000", false, true, false),
            ("v4000", true, true, true),
            // It runs already.
            ("v4000", false, false, true),
            // The compiler is older than the field.
            ("", false, true, true),
        ];
        for (version, allow_adl_v4000, is_submission, expected) in table {
            let plan = Plan { adl_version: version.to_owned(), ..Plan::default() };
            let settings = JobSettings { allow_adl_v4000, ..JobSettings::default() };
            let previous = (!is_submission).then(Plan::default);
            match check("j", &plan, &settings, previous.as_ref()) {
                Ok(_) => assert!(expected, "{version} {allow_adl_v4000} {is_submission}"),
                Err(error) => {
                    assert!(!expected && !error.retry && error.reason == "AdlVersionRefused", "{error:?}");
                }
            }
        }
    }
}
