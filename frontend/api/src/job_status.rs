//! What is known of a job. Written by the job controller only.
//!
//! A generation is written before it is used: `proposal` is what is being written, `plan` what is committed
//! (rule job-14). Phases: rule job-32.
//!
//! Knows: what is stored of a job. Must not know: who decides it, plans.

use super::resize::{CommittedResizes, RefusedEdit, ResizeChanges, UnwrittenWidth};
use super::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is known of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobStatus {
    /// What the job does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<JobPhase>,
    /// `.metadata.generation` whose objects were counted last, or that was noticed while the plan is lost (`Ready` is
    /// false, with the reason `PlanLost`, and of the one that was counted). Once the job has a generation, any other
    /// condition may be of a newer one, and says so in its own `observedGeneration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of the job, unique for the life of its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<u64>,
    /// The application, pinned: once the job has a generation it is fetched again only if it is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adl: Option<StoredAdl>,
    /// Committed generation: 0 after the submission, one more after each resize.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Plan of the committed generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<StoredPlan>,
    /// Plan that is written and not committed yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal: Option<ProposedPlan>,
    /// Widths of the committed generation, by region.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4_096))]
    pub applied_widths: Vec<RegionWidth>,
    /// Regions of the committed generation: what their own status says, and follows from the plan. By index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4_096))]
    pub regions: Vec<CommittedRegion>,
    /// Fusion as it was resolved at the submission; resizes use the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion: Option<ResolvedFusion>,
    /// Redis servers of checkpoints as the runtime wants to be told of them, found at the submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_536))]
    pub redis_configuration: Option<String>,
    /// The certificate with which PEs secure their connections, if they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<TransportStatus>,
    /// How far the committed generation has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// Widths that were refused; not tried again until others are wanted, or bounds, generation or compiler are others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_resize: Option<RejectedResize>,
    /// Widths in the specs of regions that the compiler refused, by region.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub refused_edits: Vec<RefusedEdit>,
    /// The greatest number that a request to resize has got; recorded with each step.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub admitted_resizes: u64,
    /// Requests to resize that are committed and do not say so themselves yet, by generation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub committed_resizes: Vec<CommittedResizes>,
    /// Widths in force for requests to resize that the specs of their regions did not have yet when the last step was
    /// recorded, of each region that of the newest request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4_096))]
    pub unwritten_widths: Vec<UnwrittenWidth>,
    /// PEs of the committed generation that may run an older text than it has for them, because they do not ask for
    /// what has changed; ascending. One that gets another pod has its newest text written first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4_096))]
    pub older_texts: Vec<OlderTexts>,
    /// Figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statistics: Option<Statistics>,
    /// How often the job was submitted.
    #[serde(default)]
    pub submission_attempts: u32,
    /// When the submission that is going on, or the last one, began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submission_started_at: Option<Time>,
    /// How long the frontend has worked on the submission that is going on, or the last one, in milliseconds: time in
    /// queues, pauses, waiting for other services, and time in which no frontend leads do not count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub submission_worked_milliseconds: u64,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl JobStatus {
    /// The generation that has committed the request with this number, as long as the request does not say so itself.
    pub fn commit_of(&self, number: u64) -> Option<&CommittedResizes> {
        self.committed_resizes.iter().find(|committed| committed.resizes.contains(&number))
    }

    /// What is committed of the region with this index. `regions` ascends by index, so that a look at one region of
    /// many costs about the same as at one of few.
    pub fn region(&self, index: u64) -> Option<&CommittedRegion> {
        let at = self.regions.binary_search_by_key(&index, |region| region.index).ok()?;
        self.regions.get(at)
    }

    /// The width of the region with this name in the committed generation. `appliedWidths` ascends by the bytes of
    /// names, for the same reason.
    pub fn applied_width(&self, region: &str) -> Option<u32> {
        let at = self.applied_widths.binary_search_by(|applied| applied.region.as_str().cmp(region)).ok()?;
        self.applied_widths.get(at).map(|applied| applied.width)
    }

    /// Whether the proposal has the widths of the request with this number.
    pub fn proposes(&self, number: u64) -> bool {
        self.proposal.as_ref().is_some_and(|proposal| proposal.resizes.contains(&number))
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a job does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum JobPhase {
    /// Nothing has been done yet.
    #[default]
    Pending,
    /// It is being fetched, compiled, written, or its pods are being created.
    Submitting,
    /// Every pod was created.
    Running,
    /// It runs without some of its PEs.
    Degraded,
    /// It could not be submitted.
    Failed,
    /// It has no pods because a user suspended it.
    Suspended,
}

impl JobPhase {
    /// The word that the status has.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Submitting => "Submitting",
            Self::Running => "Running",
            Self::Degraded => "Degraded",
            Self::Failed => "Failed",
            Self::Suspended => "Suspended",
        }
    }
}

/// An ADL in ConfigMaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredAdl {
    /// SHA-256 of the ADL, lower-case hexadecimal.
    #[schemars(length(min = 64, max = 64))]
    pub sha256: String,
    /// Number of ConfigMaps.
    pub chunks: u32,
    /// Bytes of the ADL.
    pub size: u64,
    /// SHA-256 of the bundle that it came from, lower-case hexadecimal. Jobs that were submitted earlier have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 64, max = 64))]
    pub bundle_sha256: Option<String>,
    /// Name of the bundle that PEs ask for.
    #[schemars(length(max = 253))]
    pub sab_name: String,
    /// `.metadata.generation` of the job whose bundle it came from.
    pub spec_generation: i64,
}

/// A plan in ConfigMaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredPlan {
    /// Generation of the job that it describes.
    pub generation: u64,
    /// SHA-256 of the plan, lower-case hexadecimal.
    #[schemars(length(min = 64, max = 64))]
    pub sha256: String,
    /// Number of ConfigMaps.
    pub chunks: u32,
    /// Version of the compiler that made it.
    #[schemars(length(max = 256))]
    pub compiler: String,
}

/// A plan that is written and not committed yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProposedPlan {
    /// The plan.
    #[serde(flatten)]
    pub plan: StoredPlan,
    /// The widths that it has, by region.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4_096))]
    pub widths: Vec<RegionWidth>,
    /// Numbers of the requests to resize that it carries out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000))]
    pub resizes: Vec<u64>,
    /// What it will do to PEs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ResizeChanges>,
    /// `.metadata.generation` of the job that it was compiled for.
    pub spec_generation: i64,
}

/// The width of a region.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegionWidth {
    /// Logical name of the region's operator.
    #[schemars(length(max = 1024))]
    pub region: String,
    /// Number of channels.
    pub width: u32,
}

/// A region of the committed generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommittedRegion {
    /// Index of the region in the job.
    pub index: u64,
    /// Product of the widths of the region and of those around it.
    pub global_channels: u32,
    /// Generation of the job in which its width was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Its width before, if the committed generation, or an earlier one that it has not told, has changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub width_before: Option<u32>,
    /// Whether a consistent region is in it or next to it, so that it cannot be resized while the job runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub touches_consistent_region: bool,
    /// Ids of the PEs that hold its channels, ascending. Only there while each channel has a PE of its own, and only if
    /// they are few enough for a selector of their pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512))]
    pub channel_pes: Vec<IdRange>,
}

/// Ids that follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdRange {
    /// The first of them.
    pub first: u64,
    /// The last of them.
    pub last: u64,
}

/// PEs with ids that follow each other, which may run an older text than they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OlderTexts {
    /// The first of them.
    pub first: u64,
    /// The last of them.
    pub last: u64,
    /// The generation that changed their texts last.
    #[serde(default)]
    pub generation: u64,
}

/// How operators were grouped into PEs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedFusion {
    /// `automatic`, `legacy` or `manual`.
    #[schemars(length(max = 32))]
    pub mode: String,
    /// Number of PEs that was asked of the fuser; not for legacy fusion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processing_elements: Option<u64>,
    /// How the number was found, for automatic fusion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automatic: Option<AutomaticFusionFigures>,
}

/// How automatic fusion found the number of PEs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutomaticFusionFigures {
    /// Threads that the application needs at least.
    pub threads_min: u64,
    /// Threads that the application can use.
    pub threads_max: u64,
    /// Least number of PEs for them.
    pub low: u64,
    /// Greatest number of PEs for them.
    pub high: u64,
    /// Free CPU of the cluster that was known, in milli-cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_free: Option<u64>,
}

/// The certificate with which the PEs of a job secure their connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransportStatus {
    /// SHA-256 of the certificate of the job's authority, lower-case hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 64, max = 64))]
    pub authority: Option<String>,
    /// Until when the certificate is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Time>,
    /// When it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_at: Option<Time>,
}

/// How far a generation has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// The generation.
    pub generation: u64,
    /// PEs that keep their pod.
    pub kept: u32,
    /// PEs whose pod is replaced.
    pub restarted: u32,
    /// PEs that are new.
    pub added: u32,
    /// PEs that are removed.
    pub removed: u32,
    /// PEs that do not run yet what the generation wants, and those still to be removed.
    pub pending: u32,
    /// When the generation was committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// When an older generation was committed that had not been rolled out yet when a newer one was: the oldest since
    /// when no roll-out has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished_since: Option<MicroTime>,
    /// PEs that are to be removed, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub removals: Vec<Removal>,
    /// When every PE ran, but for those that have completed or stay down, and other PEs, Services and ConfigMaps of the
    /// job were gone. Pods of removed PEs may have ended later, and PEs that finalizers keep may be there still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<MicroTime>,
}

/// PEs with ids that follow each other, which a generation does not have any more. Ids that the committed generation
/// has, and those of PEs that are gone, may be between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    /// The first of them.
    pub first: u64,
    /// The last of them.
    pub last: u64,
    /// The first generation that does not have them.
    pub generation: u64,
    /// When that was committed.
    pub since: MicroTime,
}

/// Widths that were refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectedResize {
    /// Those that the compiler refused, by region.
    #[schemars(length(max = 4_096))]
    pub widths: Vec<RegionWidth>,
    /// Why, as one word in CamelCase.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// Stage of the compiler that refused them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub stage: Option<String>,
    /// The compiler's code of the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub code: Option<String>,
    /// Why, for people.
    #[schemars(length(max = 4096))]
    pub message: String,
}

impl RejectedResize {
    /// Whether it is about these widths.
    pub fn is_of(&self, widths: &BTreeMap<String, u32>) -> bool {
        self.widths.iter().map(|w| (&w.region, w.width)).eq(widths.iter().map(|(region, width)| (region, *width)))
    }
}

/// Figures of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Statistics {
    /// PEs of the committed generation.
    pub processing_elements: u32,
    /// PEs that run what the committed generation wants.
    pub ready_processing_elements: u32,
    /// PEs that have told, from the pod that they have now, that they have all of their connections.
    #[serde(default)]
    pub connected_processing_elements: u32,
    /// PEs that have completed and are not replaced; they do not count as running.
    #[serde(default)]
    pub completed_processing_elements: u32,
    /// Operators.
    #[serde(default)]
    pub operators: u32,
    /// Parallel regions.
    #[serde(default)]
    pub parallel_regions: u32,
    /// Host pools.
    #[serde(default)]
    pub host_pools: u32,
    /// Consistent regions.
    #[serde(default)]
    pub consistent_regions: u32,
    /// Exported streams.
    #[serde(default)]
    pub exports: u32,
    /// Subscriptions.
    #[serde(default)]
    pub imports: u32,
    /// Bytes of AADL text.
    #[serde(default)]
    pub aadl_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_region_is_found_by_its_name_and_by_its_index_and_no_other_one() {
        // Ascending, byte by byte.
        let names = ["A", "A.B", "A.B.C", "A.B2", "A.B[", "AB", "B", "a", "\u{e4}"];
        assert!(names.is_sorted());
        let width = |(name, width): (&&str, u32)| RegionWidth { region: (*name).to_owned(), width };
        let indexes = [0, 2, 3, 7, 40];
        for count in 0..=names.len() {
            let status = JobStatus {
                applied_widths: names.iter().zip(1..).take(count).map(width).collect(),
                regions: indexes.map(|index| CommittedRegion { index, ..CommittedRegion::default() }).into(),
                ..JobStatus::default()
            };
            for (name, width) in names.iter().zip(1_u32..) {
                let expected = status.applied_widths.iter().find(|applied| applied.region == **name);
                assert_eq!(status.applied_width(name), expected.map(|applied| applied.width), "{name} of {count}");
                assert_eq!(expected.is_some(), usize::try_from(width).unwrap() <= count, "{name} of {count}");
            }
            for name in ["", "A.", "A.B1", "Z", "\u{e5}"] {
                assert_eq!(status.applied_width(name), None, "{name} of {count}");
            }
            for index in 0..50 {
                let found = status.region(index).map(|region| region.index);
                assert_eq!(found, Some(index).filter(|index| indexes.contains(index)), "{index}");
            }
        }
    }
}
