//! Where a pod may run, in the words of the scheduler (rule placement-1).
//!
//! | Asked for | Expressed as |
//! |---|---|
//! | a host | node affinity: name of the node, never `nodeName`, which bypasses the scheduler |
//! | a pool with hosts | node affinity: one term per host; with an index, the host at this place |
//! | a pool with tags | node affinity: a label per tag; for a single tag also the label `streams.ibm.com/hostpool` |
//! | an index of a pool without hosts | pod affinity among the PEs of the job with this index |
//! | an exclusive pool | pod anti-affinity to PEs of other jobs, in all namespaces |
//! | co-location, ex-location | pod affinity, anti-affinity among the PEs of the job with the token |
//! | a group of several tokens | pod affinity among its PEs, instead of those for the tokens |
//! | isolation | pod anti-affinity to the other PEs of the job |
//!
//! All of it is required when a pod is scheduled. Annotations show tokens to people.

use crate::controllers::token_labels::{Kind, key, pool_index, value};
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodAffinity, PodAffinityTerm,
    PodAntiAffinity,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use streams_api::{
    HostPoolSpec, MembershipMode, Placement, ProcessingElement, ProcessingElementSpec, condition, names,
};

/// Label of a node for one tag of host pools is this and the tag.
const TAG_PREFIX: &str = "hostpool.streams.ibm.com/";
/// Label of a node with its only tag.
const SINGLE_TAG: &str = "streams.ibm.com/hostpool";
/// Nodes are told apart by this label.
const TOPOLOGY: &str = "kubernetes.io/hostname";
/// Label of a namespace with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Longest annotation with tokens.
const SHOWN_MAX: usize = 4096;

/// A placement in the words of the scheduler.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Expressed {
    /// What the pod asks for.
    pub(crate) affinity: Option<Affinity>,
    /// What others refer to it by.
    pub(crate) labels: BTreeMap<String, String>,
    /// The same for people.
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Key of the label that a node of a pool with this tag has.
pub(crate) fn tag_label(tag: &str) -> String {
    format!("{TAG_PREFIX}{tag}")
}

/// Puts the placement of a PE into the words of the scheduler; `pool` is that of the placement.
pub(crate) fn express(pe: &ProcessingElement, pool: Option<&HostPoolSpec>) -> Expressed {
    let spec = &pe.spec;
    let placement = &spec.placement;
    let mut words = Words { spec, expressed: Expressed::default(), near: BTreeSet::new(), apart: Vec::new() };
    for (kind, tokens) in [(Kind::CoLocation, &placement.co_locations), (Kind::ExLocation, &placement.ex_locations)] {
        let tokens: BTreeSet<&str> = tokens.iter().map(String::as_str).collect();
        for token in &tokens {
            words.token(kind, token);
        }
        words.show(kind, &tokens);
    }
    if let (Some(location), Some(pool)) = (&placement.pool, pool) {
        if let Some(index) = location.in_pool_index.filter(|_| pool.hosts.is_empty()) {
            let token = pool_index(location.index, index);
            words.token(Kind::PoolIndex, &token);
            words.show(Kind::PoolIndex, &BTreeSet::from([token.as_str()]));
        }
        if pool.membership_mode == MembershipMode::Exclusive {
            words.no_other_job(&pe.namespace().unwrap_or_default());
        }
    }
    if placement.isolation.is_some() {
        words.no_other_pe();
    }
    if let Some(group) = &placement.group {
        words.group(group);
    }
    let near: Vec<_> = words.near.iter().map(|key| term(words.with_label(key), None)).collect();
    let Words { mut expressed, apart, .. } = words;
    let node_affinity = nodes(placement, pool);
    let pod_affinity = (!near.is_empty()).then(|| PodAffinity {
        required_during_scheduling_ignored_during_execution: Some(near),
        ..PodAffinity::default()
    });
    let pod_anti_affinity = (!apart.is_empty()).then(|| PodAntiAffinity {
        required_during_scheduling_ignored_during_execution: Some(apart),
        ..PodAntiAffinity::default()
    });
    let affinity = Affinity { node_affinity, pod_affinity, pod_anti_affinity };
    expressed.affinity = (affinity != Affinity::default()).then_some(affinity);
    expressed
}

struct Words<'a> {
    spec: &'a ProcessingElementSpec,
    expressed: Expressed,
    /// Keys of labels of the pods to be near to.
    near: BTreeSet<String>,
    apart: Vec<PodAffinityTerm>,
}

impl Words<'_> {
    /// The pod carries the token, and wants to be near those that do, or apart from them (rule placement-7).
    fn token(&mut self, kind: Kind, token: &str) {
        let key = key(kind, token);
        match kind {
            Kind::CoLocation | Kind::PoolIndex => {
                self.near.insert(key.clone());
            }
            Kind::ExLocation => self.apart.push(term(self.with_label(&key), None)),
        }
        self.carry(key);
    }

    /// The pod wants to be near those of its group, and nothing else (rule placement-7).
    fn group(&mut self, key: &str) {
        self.near = [key.to_owned()].into();
        self.carry(key.to_owned());
    }

    fn carry(&mut self, key: String) {
        let value = value(&key).to_owned();
        self.expressed.labels.insert(key, value);
    }

    /// PEs of the job with the label of this key.
    fn with_label(&self, key: &str) -> LabelSelector {
        let job = (names::LABEL_JOB.to_owned(), self.spec.job_name.clone());
        let labels = [job, (key.to_owned(), value(key).to_owned())];
        LabelSelector { match_labels: Some(labels.into()), match_expressions: None }
    }

    fn show(&mut self, kind: Kind, tokens: &BTreeSet<&str>) {
        if !tokens.is_empty() {
            let text = tokens.iter().copied().collect::<Vec<_>>().join(", ");
            self.expressed.annotations.insert(kind.prefix().to_owned(), condition::cut(&text, SHOWN_MAX).to_owned());
        }
    }

    /// No other PE of the job (rule placement-8).
    fn no_other_pe(&mut self) {
        let labels = names::job_labels(&self.spec.job_name);
        let other = requirement(names::LABEL_PE, "NotIn", &self.spec.id.to_string());
        let selector = LabelSelector { match_labels: Some(labels), match_expressions: Some(vec![other]) };
        self.apart.push(term(selector, None));
    }

    /// No PE of another job, in whatever namespace; a job of another namespace may have the same name
    /// (rule placement-6).
    fn no_other_job(&mut self, namespace: &str) {
        let pes = [(names::LABEL_APP, names::APP), (names::LABEL_SERVICE, names::SERVICE_PE)];
        let pes: BTreeMap<_, _> = pes.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let job = &self.spec.job_name;
        let selector = |operator| LabelSelector {
            match_labels: Some(pes.clone()),
            match_expressions: Some(vec![requirement(names::LABEL_JOB, operator, job)]),
        };
        let elsewhere = LabelSelector {
            match_labels: None,
            match_expressions: Some(vec![requirement(NAMESPACE_NAME, "NotIn", namespace)]),
        };
        self.apart.push(term(selector("NotIn"), Some(LabelSelector::default())));
        self.apart.push(term(selector("In"), Some(elsewhere)));
    }
}

fn term(pods: LabelSelector, namespaces: Option<LabelSelector>) -> PodAffinityTerm {
    PodAffinityTerm {
        label_selector: Some(pods),
        namespace_selector: namespaces,
        topology_key: TOPOLOGY.to_owned(),
        ..PodAffinityTerm::default()
    }
}

fn requirement(key: &str, operator: &str, value: &str) -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(vec![value.to_owned()]),
    }
}

/// The nodes that will do (rules placement-1 and placement-3). Alternatives of the host, of the pool's hosts and of its
/// tags are combined: all must hold.
fn nodes(placement: &Placement, pool: Option<&HostPoolSpec>) -> Option<NodeAffinity> {
    let host = placement.host.iter().map(|host| named(host)).collect();
    let (hosts, tags) = match pool {
        None => (Vec::new(), Vec::new()),
        Some(pool) => {
            let index = placement.pool.as_ref().and_then(|location| location.in_pool_index);
            let hosts = match (index, u64::try_from(pool.hosts.len())) {
                // Plans that are stored may have an index that is refused by now: it counts on from the first host.
                (Some(index), Ok(count)) if count > 0 => {
                    usize::try_from(index % count).ok().and_then(|chosen| pool.hosts.get(chosen)).into_iter().collect()
                }
                _ => pool.hosts.iter().collect::<Vec<_>>(),
            };
            (hosts.into_iter().map(|host| named(host)).collect(), tagged(&pool.tags))
        }
    };
    let terms = [host, hosts, tags].into_iter().filter(|alternatives| !alternatives.is_empty()).reduce(both)?;
    Some(NodeAffinity {
        required_during_scheduling_ignored_during_execution: Some(NodeSelector { node_selector_terms: terms }),
        ..NodeAffinity::default()
    })
}

fn both(one: Vec<NodeSelectorTerm>, other: Vec<NodeSelectorTerm>) -> Vec<NodeSelectorTerm> {
    let join = |a: &Option<Vec<NodeSelectorRequirement>>, b: &Option<Vec<NodeSelectorRequirement>>| {
        let all: Vec<_> = a.iter().chain(b).flatten().cloned().collect();
        (!all.is_empty()).then_some(all)
    };
    let pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
    pairs
        .map(|(a, b)| NodeSelectorTerm {
            match_expressions: join(&a.match_expressions, &b.match_expressions),
            match_fields: join(&a.match_fields, &b.match_fields),
        })
        .collect()
}

fn named(node: &str) -> NodeSelectorTerm {
    let name = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    NodeSelectorTerm { match_expressions: None, match_fields: Some(vec![name]) }
}

/// Nodes that have all of these tags (rule placement-4).
fn tagged(tags: &[String]) -> Vec<NodeSelectorTerm> {
    let labelled = |requirements| NodeSelectorTerm { match_expressions: Some(requirements), match_fields: None };
    let tags: BTreeSet<&str> = tags.iter().map(String::as_str).collect();
    let exists =
        |tag: &&str| NodeSelectorRequirement { key: tag_label(tag), operator: "Exists".to_owned(), values: None };
    let all: Vec<_> = tags.iter().map(exists).collect();
    let mut only = tags.iter();
    match (only.next(), only.next()) {
        (None, _) => Vec::new(),
        (Some(tag), None) => {
            let single = NodeSelectorRequirement {
                key: SINGLE_TAG.to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![(*tag).to_owned()]),
            };
            vec![labelled(all), labelled(vec![single])]
        }
        (Some(_), Some(_)) => vec![labelled(all)],
    }
}
