//! A parallel region of a running job: its width is what users, autoscalers and load balancers change
//! (rules elasticity-1 and elasticity-6), and what it says of itself that follows from the status of its job: since
//! when it has its width, and its last resize.
//!
//! Knows: the statuses of jobs. Must not know: controllers, the API for load balancers.

use super::job_status::{JobStatus, Rollout};
use super::{names, schema};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest width of a region (rule elasticity-7).
pub const WIDTH_MAX: u32 = 10_000;

/// What is wanted of a region.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "streams.ibm.com",
    version = "v1",
    kind = "ParallelRegion",
    plural = "streamsprs",
    singular = "streamspr",
    shortname = "stpr",
    category = "streams",
    namespaced,
    status = "ParallelRegionStatus",
    derive = "PartialEq",
    doc = "A parallel region of a Streams job. Changing spec.width resizes the running job.",
    scale(
        spec_replicas_path = ".spec.width",
        status_replicas_path = ".status.width",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Job", type_ = "string", json_path = ".spec.jobName", description = "The job."),
    printcolumn(
        name = "Region",
        type_ = "string",
        json_path = ".spec.name",
        description = "Logical name of the region's operator."
    ),
    printcolumn(name = "Width", type_ = "integer", json_path = ".status.width", description = "Width in force."),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.width", description = "Width that is wanted."),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether all pods of the width that is wanted run."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Generation",
        type_ = "integer",
        json_path = ".status.generation",
        description = "Generation of the job that has the width in force.",
        priority = 1
    ),
    printcolumn(
        name = "Rejected",
        type_ = "string",
        json_path = ".status.rejected.message",
        description = "Why the width that is wanted was refused.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ParallelRegionSpec {
    /// Name of the job.
    #[schemars(length(min = 1, max = 56))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("jobName cannot be changed"))]
    pub job_name: String,
    /// Index of the region in the job.
    #[x_kube(validation = Rule::new("self == oldSelf").message("index cannot be changed"))]
    pub index: u64,
    /// Logical name of the operator that is replicated, e.g. `Result.Region1`.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("name cannot be changed"))]
    pub name: String,
    /// Number of channels that is wanted.
    #[schemars(range(min = 1, max = 10_000))]
    pub width: u32,
}

impl ParallelRegion {
    /// Somebody has copied it: it has another name than the job gives to the region of its index (rule name-3).
    pub fn is_copy(&self) -> bool {
        self.metadata.name.as_deref() != Some(&*names::parallel_region(&self.spec.job_name, self.spec.index))
    }

    /// A merge patch that gives the region this width, unless it was changed since it was read. It carries the trace
    /// context of whoever wants the width, for the `metadata.generation` that comes of it; a former one ends.
    pub fn with_width(&self, width: u32, trace_parent: Option<&str>) -> serde_json::Value {
        let is_new = i64::from(self.spec.width != width);
        let generation = self.metadata.generation.map(|before| before.saturating_add(is_new).to_string());
        serde_json::json!({
            "metadata": {
                "resourceVersion": self.metadata.resource_version,
                "annotations": {
                    names::ANNOTATION_TRACE_PARENT: trace_parent,
                    names::ANNOTATION_TRACE_GENERATION: generation.filter(|_| trace_parent.is_some()),
                },
            },
            "spec": { "width": width },
        })
    }

    /// The trace context of whoever wanted the width that the region has now.
    pub fn trace_parent(&self) -> Option<&str> {
        let annotation = |key: &str| self.metadata.annotations.as_ref()?.get(key).map(String::as_str);
        let generation = self.metadata.generation.map(|generation| generation.to_string());
        let is_present = annotation(names::ANNOTATION_TRACE_GENERATION) == generation.as_deref();
        annotation(names::ANNOTATION_TRACE_PARENT).filter(|_| is_present)
    }
}

/// What is known of a region. Written by the region controller only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParallelRegionStatus {
    /// `.metadata.generation` that the status was found out about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of channels of the job's committed generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub width: Option<u32>,
    /// Generation of the job in which the width was applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// For autoscalers, which need one. Selects the pods of the channels while each channel has a PE of its own, so
    /// that counting pods counts channels; otherwise no pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub selector: Option<String>,
    /// Product of the widths of the region and of those around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_channels: Option<u32>,
    /// Why the width that is wanted was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<RejectedWidth>,
    /// The last change of the applied width.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_resize: Option<LastResize>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A change of the applied width (rule elasticity-20).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastResize {
    /// Generation of the job in which the width was applied.
    pub generation: u64,
    /// The width before.
    pub from: u32,
    /// The width since then.
    pub to: u32,
    /// When the generation was committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed_at: Option<MicroTime>,
    /// When that generation, or a newer one, was rolled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolled_out_at: Option<MicroTime>,
}

impl ParallelRegionStatus {
    /// The generation in which the width was applied, once this is the status of the job and `applied` the width in it
    /// of the region with this index (rule elasticity-4). An older frontend has committed without saying it in the
    /// job: then what the region has said counts, and else it was that of the job at the latest.
    pub fn generation_by(&self, job: &JobStatus, index: u64, applied: Option<u32>) -> Option<u64> {
        applied?;
        let said = self.generation.filter(|_| self.width == applied);
        job.region(index).and_then(|region| region.generation).or(said).or(job.generation)
    }

    /// The last change of the width, once this is the status of the job and `applied` the width in it of the region
    /// with this index (rule elasticity-20). What the region has said before counts as long as the job says nothing
    /// newer; one that has not said any width yet has the one that the job says it had.
    pub fn last_resize_by(&self, job: &JobStatus, index: u64, applied: Option<u32>) -> Option<LastResize> {
        let applied = applied?;
        let before = self.width.or_else(|| job.region(index)?.width_before);
        let is_current = |rollout: &&Rollout| Some(rollout.generation) == job.generation;
        let rollout = job.rollout.as_ref().filter(is_current);
        let mut last = match before {
            Some(before) if before != applied => LastResize {
                generation: job.generation?,
                from: before,
                to: applied,
                committed_at: rollout.and_then(|rollout| rollout.started_at.clone()),
                rolled_out_at: None,
            },
            _ => self.last_resize.clone()?,
        };
        if last.rolled_out_at.is_none() {
            let ours = rollout.filter(|rollout| rollout.generation >= last.generation);
            last.rolled_out_at = ours.and_then(|rollout| rollout.finished_at.clone());
        }
        Some(last)
    }
}

/// A width that was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectedWidth {
    /// The width.
    pub width: u32,
    /// Why, as one word in CamelCase.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// Stage of the compiler that refused it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CommittedRegion;
    use k8s_openapi::jiff::Timestamp;

    #[test]
    fn the_last_resize_follows_from_what_the_region_has_said_and_its_job() {
        let at = |second: i64| Some(MicroTime(Timestamp::from_second(second).unwrap()));
        let job = |generation, finished| JobStatus {
            generation: Some(generation),
            rollout: Some(Rollout { generation, started_at: at(10), finished_at: finished, ..Rollout::default() }),
            ..JobStatus::default()
        };
        let last = |generation, from, to, committed_at, rolled_out_at| {
            Some(LastResize { generation, from, to, committed_at, rolled_out_at })
        };
        let open = || last(4, 1, 2, at(5), None);
        let over = || last(4, 1, 2, at(5), at(7));
        let changed = |from, job: JobStatus| JobStatus {
            regions: vec![
                CommittedRegion { index: 1, width_before: Some(9), ..CommittedRegion::default() },
                CommittedRegion { index: 7, width_before: from, ..CommittedRegion::default() },
            ],
            ..job
        };
        // said width, said resize, job, applied width -> the last resize
        let table = [
            // The submission is none, and neither is what was before it.
            (None, None, job(0, at(12)), Some(2), None),
            (Some(2), over(), JobStatus::default(), None, None),
            (Some(2), None, job(4, at(12)), Some(2), None),
            (Some(1), None, job(4, None), Some(2), last(4, 1, 2, at(10), None)),
            (Some(1), over(), job(6, at(12)), Some(3), last(6, 1, 3, at(10), at(12))),
            (Some(2), open(), job(4, None), Some(2), open()),
            // A newer generation, which has the width as well, is rolled out.
            (Some(2), open(), job(5, None), Some(2), open()),
            (Some(2), open(), job(5, at(12)), Some(2), last(4, 1, 2, at(5), at(12))),
            (Some(2), over(), job(5, at(12)), Some(2), over()),
            // It has not said its width before the generation that changed it; afterwards it says what it has said.
            (None, None, changed(Some(1), job(4, None)), Some(2), last(4, 1, 2, at(10), None)),
            (None, None, changed(Some(1), job(4, at(12))), Some(2), last(4, 1, 2, at(10), at(12))),
            (None, None, changed(None, job(4, at(12))), Some(2), None),
            (Some(2), open(), changed(Some(1), job(4, at(12))), Some(2), last(4, 1, 2, at(5), at(12))),
            (Some(2), over(), changed(Some(1), job(4, at(12))), Some(2), over()),
        ];
        for (width, last_resize, job, applied, expected) in table {
            let said = ParallelRegionStatus { width, last_resize, ..ParallelRegionStatus::default() };
            assert_eq!(said.last_resize_by(&job, 7, applied), expected, "{said:?} {job:?}");
        }
    }

    #[test]
    fn the_generation_of_a_width_is_what_the_job_says_of_it() {
        // said width and generation, generation in the job of the width -> the generation; the job is at 4, with 2
        let table = [
            // Another region was resized before this one, or the one before it, has said anything.
            (None, None, Some(0), Some(0)),
            (Some(2), Some(4), Some(0), Some(0)),
            (Some(1), Some(0), Some(4), Some(4)),
            // An older frontend has committed.
            (Some(2), Some(1), None, Some(1)),
            (Some(1), Some(1), None, Some(4)),
            (None, None, None, Some(4)),
        ];
        for (width, generation, of_job, expected) in table {
            let region = |index, generation| CommittedRegion { index, generation, ..CommittedRegion::default() };
            let regions = vec![region(1, Some(3)), region(7, of_job)];
            let job = JobStatus { generation: Some(4), regions, ..JobStatus::default() };
            let said = ParallelRegionStatus { width, generation, ..ParallelRegionStatus::default() };
            assert_eq!(said.generation_by(&job, 7, Some(2)), expected, "{said:?} {job:?}");
            assert_eq!(said.generation_by(&job, 7, None), None, "{said:?} {job:?}");
        }
    }

    #[test]
    fn the_largest_width_is_the_one_of_the_schema() {
        let schema = serde_json::to_value(schemars::schema_for!(ParallelRegionSpec)).unwrap();
        assert_eq!(schema["properties"]["width"]["maximum"], WIDTH_MAX);
    }
}
