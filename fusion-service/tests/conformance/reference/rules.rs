//! Steps whose expected files show a defect of the reference implementation, and how they are judged instead.
//!
//! The corpus marks them: `meta.json` and `error.json` of a case name the defects, `check/affected.json` adds those
//! found later. Each defect has a rule that says what this project does instead.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use streams_test_support::documents::tree::Node;

/// How a defect is judged.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rule {
    /// What the defect distorts is taken out of both documents; soundness is asked for besides.
    pub(crate) mask: Option<fn(&mut Node)>,
    /// Keys of the context that are not compared.
    pub(crate) skip: &'static [&'static str],
    /// No comparison, only soundness.
    pub(crate) sound: bool,
    /// A user error is right too: with this code, or with any (`Some("")`).
    pub(crate) error: Option<&'static str>,
    /// A user error is the only right outcome.
    pub(crate) only_error: bool,
    /// Concerns resizes only.
    pub(crate) resizes: bool,
    /// Judged by the chain.
    pub(crate) chain: bool,
}

/// What is done instead of a defect, with the rule that says so.
pub(crate) fn reason(defect: &str) -> &'static str {
    match defect {
        "10.1" => "splitters of a port are listed in their order (rule expansion-16)",
        "10.2" => "connections without splitter are left alone when splitters are renumbered (rule expansion-17)",
        "10.3" => "two paths between two ports are one connection, before and after a resize (rule expansion-15)",
        "10.4" => "a composite's input port may be unconnected (rule expansion-13)",
        "10.5" => "consistent regions of a resize describe the result (rule expansion-28)",
        "10.7" => "every channel of a parallel composite has the composite's threading model (rule expansion-21)",
        "10.8" => "fusion sees the merged consistent region; the smallest index survives a merge (rule expansion-29)",
        "10.9" => "several start operators in an operator-driven region are an error (rule expansion-30)",
        "10.12" => {
            "a splitter into a region has one channel per channel, also where nothing is connected (rule expansion-16)"
        }
        "10.13" => "thread flags and injected ports are computed afresh (rule element-13)",
        "adl-1" | "adl-1-partition" => "isolation=\"false\" does not isolate (rule model-13)",
        "adl-9" => "an import without filter does not clear the filter of another one on the port (rule expansion-26)",
        "adl-10" => "an Export behind a merger is exported from every channel, or refused (rule expansion-27)",
        "adl-11" => "location placeholders are substituted without parallel regions too (rule expansion-23)",
        "adl-12" => "an integer compared with a float in a subscription keeps its side (rule expression-6)",
        "8.4" => "a connected input port without splitter entry is an error (rule model-11)",
        "11.4" => "a rejected width is not kept (rule layout-7)",
        _ => "a defect without a reason of ours",
    }
}

/// The rule of a defect; none for those that do not show in single steps.
pub(crate) fn rule(defect: &str) -> Option<Rule> {
    let none = Rule::default();
    Some(match defect {
        // A second top-level splitter behind a nested tree.
        "10.1" | "10.4" | "10.8" | "adl-1-partition" => Rule { sound: true, ..none },
        // Renumbering of splitters beside plain connections; two paths between two ports; an unconnected region.
        "10.2" | "10.3" | "10.12" => Rule { sound: true, resizes: true, ..none },
        // Consistent regions of a resize describe the result.
        "10.5" => Rule { mask: Some(consistent), skip: &["consistentRegions"], error: Some(""), resizes: true, ..none },
        // Every channel of a composite has its threading model.
        "10.7" => Rule { mask: Some(threading), ..none },
        // Several start operators of an operator-driven region.
        "10.9" => Rule { error: Some("CDISR1359E"), ..none },
        // Thread flags are computed afresh.
        "10.13" => Rule { mask: Some(threads), resizes: true, ..none },
        // A rejected width is not kept.
        "11.4" => Rule { resizes: true, chain: true, ..none },
        // No splitter entry for a connected port.
        "8.4" => Rule { only_error: true, ..none },
        // `isolation="false"` is false.
        "adl-1" => Rule { mask: Some(isolation), skip: &["hostIsolation", "hostIsolationLabels"], ..none },
        // An import without filter does not clear the filter of another one.
        "adl-9" => Rule { mask: Some(filters), skip: &["imports"], ..none },
        // An Export behind a merger is not lost.
        "adl-10" => Rule { mask: Some(exports), skip: &["exports"], error: Some("CDISR1358E"), ..none },
        // Placeholders are substituted without regions too.
        "adl-11" => {
            Rule { mask: Some(locations), skip: &["hostPlacement", "hostCoLocations", "hostExLocations"], ..none }
        }
        // Integer with float in a subscription.
        "adl-12" => Rule { mask: Some(subscriptions), skip: &["imports"], ..none },
        _ => return None,
    })
}

fn remove(root: &mut Node, tags: &[&str], names: &[&str]) {
    root.visit(&mut |node| {
        if tags.contains(&node.tag.as_str()) {
            node.attributes.retain(|name, _| !names.contains(&name.as_str()));
        }
    });
}

fn drop_annotation(root: &mut Node, tag: &str) {
    root.drop_if(&|node| node.tag == "phy:annotation" && node.get("tag") == Some(tag));
}

fn threads(root: &mut Node) {
    root.drop_if(&|node| node.tag == "app:threadedPort" && node.get("isInjected") == Some("true"));
    let flags =
        ["singleThreadedOnInputs", "singleThreadedOnOutputs", "singleThreadedOnInput", "singleThreadedOnOutput"];
    remove(root, &["app:operInstance", "app:threadedPort", "aug:outputPort"], &flags);
}

fn threading(root: &mut Node) {
    threads(root);
    drop_annotation(root, "threading");
}

fn consistent(root: &mut Node) {
    drop_annotation(root, "consistentRegionEntry");
}

fn filters(root: &mut Node) {
    remove(root, &["aug:importedStreams"], &["filter"]);
}

fn subscriptions(root: &mut Node) {
    filters(root);
    remove(root, &["app:propertyBasedImport"], &["subscription"]);
}

fn locations(root: &mut Node) {
    root.drop_if(&|node| matches!(node.tag.as_str(), "app:coLocation" | "app:exLocation" | "app:hostLocation"));
}

fn exports(root: &mut Node) {
    root.drop_if(&|node| {
        node.tag == "aug:outputPort"
            && node.child("aug:exportedStream").is_some()
            && node.all("aug:staticConnection").is_empty()
    });
    root.drop_if(&|node| node.tag == "aug:exportedStream");
}

fn isolation(root: &mut Node) {
    remove(root, &["app:resources"], &["isolation"]);
}

/// `check/affected.json`.
pub(crate) struct Affected(Value);

impl Affected {
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        Self(serde_json::from_str(&text).unwrap_or_default())
    }

    /// Defects by step.
    pub(crate) fn of(&self, case: &str) -> BTreeMap<usize, Vec<String>> {
        let steps = self.0["steps"][case].as_object();
        let texts = |list: &Value| {
            let list = list.as_array().cloned().unwrap_or_default();
            list.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        steps.into_iter().flatten().filter_map(|(step, list)| Some((step.parse().ok()?, texts(list)))).collect()
    }
}
