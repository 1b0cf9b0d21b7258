//! The custom resources of group `streams.ibm.com/v1` as Rust types, and the schemas the API server checks them with
//! (rule name-1).
//!
//! | Kind | What it is | `.spec` belongs to | `.status` belongs to |
//! |---|---|---|---|
//! | [`Job`] | an application that should run | the user | the job controller |
//! | [`ProcessingElement`] | a part of the application, run by one pod | the job controller | the PE controller |
//! | [`ParallelRegion`] | an operator in several channels | users, autoscalers (`width`) | the region controller |
//! | [`Resize`] | a request for widths of regions | whoever asks | the job controller |
//! | [`HostPool`] | a named set of hosts that PEs may be placed on | the job controller | the host pool controller |
//! | [`Export`] | an exported stream | the job controller | the standing controller |
//! | [`Import`] | a subscription | the job controller | the standing controller |
//! | [`ConsistentRegion`] | operators that checkpoint together | the job controller | a controller of its own |
//!
//! The types of a Job are spread over several modules:
//!
//! | Module | What it has |
//! |---|---|
//! | [`job`] | the kind, its spec, and what of it cannot be changed |
//! | [`bundle`], [`fusion`], [`rollout`], [`threading_model`], [`submission_value`] | parts of that spec |
//! | [`pe_options`] | options of PEs, which the spec of a Job and of each PE has |
//! | [`job_status`] | its status |
//!
//! The other kinds are in [`processing_element`], [`parallel_region`], [`resize`], [`host_pool`], [`export`],
//! [`import`] and [`consistent_region`]. What several kinds have:
//!
//! | Module | What it has |
//! |---|---|
//! | [`names`] | names of objects, labels and annotations |
//! | [`mounts`] | where PEs see their volumes |
//! | [`condition`] | conditions of a status |
//! | [`requested_widths`] | a request for widths of several regions, kept as an annotation |
//! | [`crds`] | the manifests |
//! | `schema` | bounded schemas of foreign types |
//!
//! Knows: fields, defaults, names, labels, what the API server can refuse by itself (structural schemas and CEL).
//! Must not know: how any of it is brought about.
//!
//! Invariants:
//! * Every list, map and string of a schema is bounded: the API server computes the cost of CEL rules from the bounds.
//! * No property is nullable. The API server drops an explicit `null` before it validates, so `null` means "not set"
//!   everywhere.
//! * Version v1 changes by addition only.
//! * [`crds`] is the only source of the manifests in `deploy/crds`.

#![allow(clippy::duplicated_attributes, reason = "columns of a table have the same properties")]
#![allow(unreachable_pub, reason = "KubeSchema derives a copy of a type inside a function")]

pub mod bundle;
pub mod condition;
pub mod consistent_region;
pub mod crds;
pub mod export;
pub mod fusion;
pub mod host_pool;
pub mod import;
pub mod job;
pub mod job_status;
pub mod mounts;
pub mod names;
pub mod parallel_region;
pub mod pe_options;
pub mod processing_element;
pub mod requested_widths;
pub mod resize;
pub mod rollout;
mod schema;
pub mod submission_value;
pub mod threading_model;

pub use bundle::{BundleReference, PullPolicy};
pub use consistent_region::{ConsistentRegion, ConsistentRegionSpec, ConsistentRegionStatus, RegionTrigger};
pub use export::{
    CongestionPolicy, Export, ExportAtRunTime, ExportSpec, ExportStatus, ExportType, ExportedStream, StreamProperty,
};
pub use fusion::{FusionMode, FusionOptions, FusionType};
pub use host_pool::{HostPool, HostPoolSpec, HostPoolStatus, MembershipMode};
pub use import::{
    Import, ImportAtRunTime, ImportSpec, ImportStatus, ImportedStreams, NameBasedImport, PropertyBasedImport,
};
pub use job::{ChannelCount, InitialWidth, Job, JobSpec};
pub use job_status::{
    AutomaticFusionFigures, CommittedRegion, IdRange, JobPhase, JobStatus, OlderTexts, ProposedPlan, RegionWidth,
    RejectedResize, Removal, ResolvedFusion, Rollout, Statistics, StoredAdl, StoredPlan, TransportStatus,
};
pub use parallel_region::{LastResize, ParallelRegion, ParallelRegionSpec, ParallelRegionStatus, RejectedWidth};
pub use pe_options::{
    BuildType, CheckpointRepository, DataVolumeClaim, FileSystemCheckpoints, ImagePullPolicy, PeOptions,
    RedisCheckpoints, TraceLevel, TransportSecurity,
};
pub use processing_element::{
    AadlConfigMap, Connectivity, DeletedBy, PePhase, Placement, PoolLocation, ProcessingElement, ProcessingElementSpec,
    ProcessingElementStatus, ReportedConnectivity, Termination, TerminationOutcome, UnavailableBundle, UserEndpoint,
};
pub use requested_widths::{RequestedWidth, RequestedWidths};
pub use resize::{
    AdmittedRegion, CommittedResizes, DesiredWidth, RefusedEdit, Resize, ResizeChanges, ResizePhase, ResizePolicy,
    ResizeSpec, ResizeStatus, SupersededBy, UnwrittenWidth, WidthOfResize,
};
pub use rollout::{MaxUnavailable, RolloutOptions};
pub use submission_value::SubmissionValue;
pub use threading_model::{DynamicThreading, ThreadingModel, ThreadingOptions};

/// API group of the custom resources.
pub const GROUP: &str = "streams.ibm.com";

/// Version of the custom resources.
pub const VERSION: &str = "v1";
