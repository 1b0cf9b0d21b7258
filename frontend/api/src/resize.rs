//! A request to resize: desired widths of one or more regions of a job, whole or not at all (rules elasticity-15 to
//! elasticity-18).
//!
//! A request is an object so that it outlives whoever asked, and the frontend that works on it: its outcome is in its
//! status. The spec never changes. What is edited later, in the spec of a region, is another wish, and a newer one.
//!
//! Knows: the schema, names and bounds of requests. Must not know: what becomes of a request.

use super::{Job, ParallelRegion, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// Requests of a job that are kept at the same time (rule elasticity-18).
pub const RESIZES_MAX: usize = 1_000;
/// How long a request is kept after it ended, and how long it waits for its job (rule elasticity-18).
pub const RESIZES_KEPT: Duration = Duration::from_secs(600);
/// How often it is looked whether a request is still waited for whose roll-out does not end.
pub const RESIZES_LOOKED_AT: Duration = Duration::from_secs(60);

/// Longest idempotency key, in bytes (rule elasticity-10).
pub const KEY_MAX: usize = 256;
/// Hex digits that the name of a request carries: of the digest of its key, or random ones.
const DIGITS: usize = 20;

/// Name of the request of a job with this idempotency key (rule elasticity-10).
pub fn name_of_key(job: &Job, key: &str) -> String {
    let mut digest = Sha256::new();
    digest.update(job.metadata.uid.as_deref().unwrap_or_default());
    digest.update([0]);
    digest.update(key);
    name_with(job, &hex::encode(digest.finalize()))
}

/// A name for a request of a job without a key, which no other request has. Whoever makes the request chooses it, and
/// not the API server: a creation that is tried again finds what its first try has made (rule call-10).
pub fn new_name(job: &Job) -> String {
    // The keys of each RandomState are random; no other source of randomness is needed.
    let random = || RandomState::new().build_hasher().finish();
    name_with(job, &format!("{:016x}{:016x}", random(), random()))
}

fn name_with(job: &Job, digits: &str) -> String {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    format!("{name}-{}", digits.get(..DIGITS).unwrap_or(digits))
}

/// What is asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "streams.ibm.com",
    version = "v1",
    kind = "Resize",
    plural = "streamsresizes",
    singular = "streamsresize",
    shortname = "strz",
    category = "streams",
    namespaced,
    status = "ResizeStatus",
    derive = "PartialEq",
    doc = "A request for widths of parallel regions of a Streams job, and what became of it.",
    printcolumn(name = "Job", type_ = "string", json_path = ".spec.jobName", description = "The job."),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "How far the request has come."
    ),
    printcolumn(
        name = "Generation",
        type_ = "integer",
        json_path = ".status.generation",
        description = "Generation of the job that has the widths."
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.reason",
        description = "Why it ended without its widths, or what it waits for."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Regions",
        type_ = "string",
        json_path = ".spec.regions",
        description = "Regions that it names, and the widths that it wants of them, as JSON.",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.message",
        description = "Why, for people.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self == oldSelf").message("a request cannot be changed: make another one"))]
pub struct ResizeSpec {
    /// Name of the job.
    #[schemars(length(min = 1, max = 56))]
    pub job_name: String,
    /// The widths, of each region at most one.
    #[schemars(length(min = 1, max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub regions: Vec<DesiredWidth>,
    /// Refuse unless this is the committed generation of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_generation: Option<u64>,
    /// What the PEs keep.
    #[serde(default)]
    pub policy: ResizePolicy,
}

impl ResizeSpec {
    /// Whether it asks for the same. Regions have names and no order.
    pub fn wants_the_same_as(&self, other: &Self) -> bool {
        let in_order = |spec: &Self| {
            let mut spec = spec.clone();
            spec.regions.sort_by(|one, other| one.name.cmp(&other.name));
            spec
        };
        in_order(self) == in_order(other)
    }
}

/// The width that is wanted of a region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DesiredWidth {
    /// Logical name of the region's operator, e.g. `Result.Region1`.
    #[schemars(length(min = 1, max = 1024))]
    pub name: String,
    /// Number of channels that is wanted.
    #[schemars(range(min = 1, max = 10_000))]
    pub width: u32,
    /// Refuse the whole request unless this is the region's desired width.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub expected_width: Option<u32>,
}

/// What the PEs keep when widths change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ResizePolicy {
    /// A PE keeps its operators: as few PEs as possible restart.
    #[default]
    Sticky,
    /// Operators are distributed anew: the PEs come out as if the job were submitted with these widths.
    Rebalance,
}

/// How far a request has come. Written by the job controller, and by the resize controller for a request without a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResizeStatus {
    /// How far it has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ResizePhase>,
    /// Its number among the requests of the job, from 1; it has none before it is admitted. Of two requests for one
    /// region the one with the greater number is newer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Its regions as they were when it was admitted: whoever edits one of them later is newer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub regions: Vec<AdmittedRegion>,
    /// Generation of the job that has the widths; before the commit, the one that will have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// What that generation does to PEs; not there if the widths were in force already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ResizeChanges>,
    /// Why it ended without its widths, or what it waits for, as one word in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// The same for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
    /// Who wanted something else; only if it was superseded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<SupersededBy>,
    /// Stage of the compiler that refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub stage: Option<String>,
    /// The compiler's code of the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub code: Option<String>,
    /// When its widths were in force and in the specs of its regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

/// Who wanted something else of a region of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupersededBy {
    /// Logical name of the region's operator.
    #[schemars(length(max = 1024))]
    pub region: String,
    /// The width that is wanted of it instead; none if the region was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Name of the newer request, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub request: Option<String>,
    /// Field manager of whoever edited the width of the region, if it was an edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub manager: Option<String>,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ResizePhase {
    /// It is to be compiled.
    #[default]
    Pending,
    /// A plan has its widths, and is being written.
    Planned,
    /// A generation with its widths is committed, and the specs of its regions have them.
    Written,
    /// That generation, or a newer one, is rolled out.
    RolledOut,
    /// It cannot be carried out.
    Refused,
    /// Somebody asked for something else of one of its regions before it was committed.
    Superseded,
    /// Somebody withdrew it before it was committed.
    Cancelled,
}

impl ResizePhase {
    /// Nothing becomes of the request any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::RolledOut | Self::Refused | Self::Superseded | Self::Cancelled)
    }
}

/// A region as it was when a request was admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmittedRegion {
    /// Logical name of the region's operator.
    #[schemars(length(max = 1024))]
    pub name: String,
    /// uid of the object.
    #[schemars(length(max = 128))]
    pub uid: String,
    /// The `metadata.generation` that the last edit by anybody else than the operator led to.
    pub edited: i64,
}

/// What a generation does to the PEs of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResizeChanges {
    /// PEs that keep their pod.
    pub kept: u32,
    /// PEs whose pod is replaced.
    pub restarted: u32,
    /// PEs that are new.
    pub added: u32,
    /// PEs that are removed.
    pub removed: u32,
}

/// Requests that a generation has committed, as long as they do not say so themselves. Part of the status of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommittedResizes {
    /// The generation.
    pub generation: u64,
    /// Numbers of the requests.
    #[schemars(length(max = 1_000))]
    pub resizes: Vec<u64>,
    /// What the generation does to PEs.
    pub changes: ResizeChanges,
}

/// A width in force for a request that the spec of its region does not have yet: it is written there whatever becomes
/// of the request meanwhile. Part of the status of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnwrittenWidth {
    /// Index of the region in the job.
    pub index: u64,
    /// uid of the region's object.
    #[schemars(length(max = 128))]
    pub uid: String,
    /// The `metadata.generation` that the last edit had led to when the request was admitted: whoever has edited the
    /// region since wants something else.
    pub edited: i64,
    /// Number of the request.
    pub number: u64,
    /// The width.
    pub width: u32,
}

impl UnwrittenWidth {
    /// The spec of the region does not have this width yet, and nobody has edited it since.
    pub fn is_still_unwritten_in(&self, region: &ParallelRegion) -> bool {
        let is_edited = region.metadata.uid.as_ref() != Some(&self.uid) || region.edited() > self.edited;
        // What a mirror shows that is older than the admission says nothing.
        let is_behind = region.metadata.generation.is_none_or(|generation| generation < self.edited);
        let is_written = WidthOfResize::of(region).is_some_and(|written| written.number >= self.number);
        let is_this = region.spec.index == self.index;
        is_this && !is_edited && (is_behind || (!is_written && region.spec.width != self.width))
    }
}

/// A width in the spec of a region that the compiler refused, and what it was refused for: it is asked for again when
/// one of these has changed (rule elasticity-3). Part of the status of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedEdit {
    /// Logical name of the region's operator.
    #[schemars(length(max = 1024))]
    pub region: String,
    /// The width.
    pub width: u32,
    /// uid of the region's object.
    #[schemars(length(max = 128))]
    pub uid: String,
    /// Its `metadata.generation`.
    pub region_generation: i64,
    /// Smallest and greatest width that the job permitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_width: Option<u32>,
    /// See there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_width: Option<u32>,
    /// The generation of the job that was in force.
    pub generation: u64,
    /// Version of the compiler that made it.
    #[schemars(length(max = 256))]
    pub compiler: String,
    /// Why, as one word in CamelCase.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// Stage of the compiler that refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub stage: Option<String>,
    /// The compiler's code of the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub code: Option<String>,
    /// Why, for people.
    #[schemars(length(max = 1024))]
    pub message: String,
}

/// Which width of a region's spec was written for a request: an annotation of regions.
///
/// Such a write is no edit. So that nobody takes it for one, it says which `metadata.generation` it led to; whoever
/// edits the spec afterwards leads to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WidthOfResize {
    /// Number of the request.
    pub number: u64,
    /// The `metadata.generation` that the write led to.
    pub generation: i64,
    /// The one that the last edit by anybody else has led to.
    pub edited: i64,
}

impl WidthOfResize {
    /// What the region says, if it is about its present spec.
    pub fn of(region: &ParallelRegion) -> Option<Self> {
        let annotation = region.metadata.annotations.as_ref()?.get(names::ANNOTATION_WIDTH_OF_RESIZE)?;
        let written: Self = serde_json::from_str(annotation).ok()?;
        (Some(written.generation) == region.metadata.generation).then_some(written)
    }
}

impl ParallelRegion {
    /// The `metadata.generation` that the last edit of the spec by anybody else than the operator led to.
    pub fn edited(&self) -> i64 {
        WidthOfResize::of(self).map_or_else(|| self.metadata.generation.unwrap_or_default(), |written| written.edited)
    }

    /// A merge patch that gives the region the width of a request, unless it was changed since it was read.
    pub fn with_width_of(&self, number: u64, width: u32, trace_parent: Option<&str>) -> serde_json::Value {
        let mut patch = self.with_width(width, trace_parent);
        let is_new = i64::from(self.spec.width != width);
        let generation = self.metadata.generation.unwrap_or_default().saturating_add(is_new);
        let written = WidthOfResize { number, generation, edited: self.edited() };
        let text = serde_json::to_string(&written).unwrap_or_default();
        patch["metadata"]["annotations"][names::ANNOTATION_WIDTH_OF_RESIZE] = text.into();
        patch
    }
}

impl Resize {
    /// How far it has come; a request that nobody has looked at is to be compiled.
    pub fn phase(&self) -> ResizePhase {
        self.status.as_ref().and_then(|status| status.phase).unwrap_or_default()
    }

    /// Somebody wants to withdraw it.
    pub fn is_withdrawn(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.is_some_and(|annotations| annotations.contains_key(names::ANNOTATION_CANCEL_REQUESTED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BundleReference, JobSpec, ParallelRegionSpec};
    use std::collections::BTreeSet;

    /// What the API server makes of a merge patch.
    fn patched(region: &ParallelRegion, patch: serde_json::Value) -> ParallelRegion {
        let mut after = region.clone();
        after.spec.width = serde_json::from_value(patch["spec"]["width"].clone()).unwrap();
        let is_new = after.spec.width != region.spec.width;
        after.metadata.generation = region.metadata.generation.map(|before| before + i64::from(is_new));
        let annotations = after.metadata.annotations.get_or_insert_default();
        for (key, value) in patch["metadata"]["annotations"].as_object().unwrap() {
            match value.as_str() {
                Some(value) => drop(annotations.insert(key.clone(), value.to_owned())),
                None => drop(annotations.remove(key)),
            }
        }
        after
    }

    #[test]
    fn requests_for_the_same_name_their_regions_in_any_order() {
        let spec = |regions: &[(&str, u32)]| {
            let regions = regions.iter().map(|(name, width)| DesiredWidth {
                name: (*name).to_owned(),
                width: *width,
                expected_width: None,
            });
            ResizeSpec { regions: regions.collect(), ..ResizeSpec::default() }
        };
        let wanted = spec(&[("A", 1), ("B", 2)]);
        for (other, expected) in [
            (spec(&[("A", 1), ("B", 2)]), true),
            (spec(&[("B", 2), ("A", 1)]), true),
            (spec(&[("B", 1), ("A", 2)]), false),
            (spec(&[("A", 1)]), false),
            (ResizeSpec { expected_generation: Some(3), ..wanted.clone() }, false),
        ] {
            assert_eq!(wanted.wants_the_same_as(&other), expected, "{other:?}");
        }
    }

    #[test]
    fn a_key_names_one_request_of_one_job() {
        let name = |uid: &str, key| {
            let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
            job.metadata.uid = Some(uid.to_owned());
            name_of_key(&job, key)
        };
        // printf 'u1\0k' | sha256sum
        assert_eq!(name("u1", "k"), "flow-9d96789a340ffdb657e9");
        assert_ne!(name("u1", "k"), name("u1", "l"));
        assert_ne!(name("u1", "k"), name("u2", "k"), "a job that was made again is another one");
    }

    #[test]
    fn without_a_key_each_request_has_a_name_of_its_own() {
        let job = Job::new("flow", JobSpec::of(BundleReference::default()));
        let names: BTreeSet<String> = (0..1_000).map(|_| new_name(&job)).collect();
        assert_eq!(names.len(), 1_000);
        let digits = names.iter().map(|name| name.strip_prefix("flow-").unwrap());
        let is_name = |digits: &str| digits.len() == 20 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        assert!(digits.clone().all(is_name), "{names:?}");
    }

    #[test]
    fn what_is_written_for_requests_is_no_edit() {
        let spec = ParallelRegionSpec { width: 2, ..ParallelRegionSpec::default() };
        let mut region = ParallelRegion::new("flow-0", spec);
        region.metadata.generation = Some(7);
        assert_eq!(region.edited(), 7);
        let first = patched(&region, region.with_width_of(1, 5, None));
        assert_eq!((first.metadata.generation, first.edited()), (Some(8), 7));
        let second = patched(&first, first.with_width_of(4, 6, Some("t")));
        assert_eq!((second.metadata.generation, second.edited()), (Some(9), 7));
        assert_eq!(WidthOfResize::of(&second).map(|written| written.number), Some(4));
        // A user edits it, and leaves the annotation alone.
        let mut edited = second.clone();
        edited.spec.width = 3;
        edited.metadata.generation = Some(10);
        assert_eq!((edited.edited(), WidthOfResize::of(&edited)), (10, None));
        // The spec has the width already.
        let same = patched(&edited, edited.with_width_of(5, 3, None));
        assert_eq!((same.metadata.generation, same.edited()), (Some(10), 10));
        assert_eq!(WidthOfResize::of(&same).map(|written| written.number), Some(5));
    }
}
