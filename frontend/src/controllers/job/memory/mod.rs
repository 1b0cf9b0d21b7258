//! The memory of the process between two reconciles of a job: results of long work, plans that were read, its own last
//! writes.
//!
//! Correctness does not depend on it: a process that has just started reads the plans again and does the work again.
//!
//! | Module | What it is |
//! |---|---|
//! | this one | what is kept of a job |
//! | [`jobs`] | what is kept of all jobs, and when it ends |
//! | [`results`] | what came of long work, until it is used or nobody wants it |
//! | [`compiled_for`] | who wants what is being compiled |
//! | [`writes`] | what was just written or deleted, and writes that were not answered |
//! | [`restored`] | objects that were restored not long ago |
//! | [`failures`] | failures in a row |
//! | [`in_vain`] | actions that came to nothing or were refused, and make way for others |
//! | [`plans`] | the plans of all jobs: unpacked, packed, or dropped |
//! | [`rounds`] | rounds without an end, of which nothing comes |
//!
//! Knows: what is kept, and for how long. Must not know: how it is computed.

mod compiled_for;
mod failures;
pub(crate) mod in_vain;
mod jobs;
pub(crate) mod plans;
mod restored;
mod results;
mod rounds;
mod writes;

use self::failures::Failures;
use self::in_vain::InVain;
use self::plans::PlansOfJob;
use self::rounds::Rounds;
use super::child::Child;
use super::held_up::HeldUp;
use super::objects::user_ports::KnownEndpoints;
use super::observed::compared::Compared;
use super::observed::own_writes::OwnWrites;
use super::owned::Owned;
use super::refusals::Refusals;
use super::refusals::outdated::OutdatedDefinitions;
use super::refusals::pause::{Going, Pause};
use super::requests::Verdicts;
use super::requests::named::NamedRequests;
use super::requests::observe::Begun;
use super::tasks::{Failure, TaskKind, Tasks, TextsAtHand};
use super::transport::RememberedSighting;
use crate::controllers::restorations::Restorations;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use streams_api::{Job, JobSpec, Resize};
use tokio_util::sync::CancellationToken;

pub(crate) use self::jobs::Memory;

/// The memory of one job.
pub(crate) struct Entry {
    /// The state of long work.
    pub(crate) tasks: Tasks,
    /// The attempt to submit the job that it is of.
    pub(crate) attempt: Option<Attempt>,
    /// Texts that came with a plan, until they are written, or could not be, or the plan comes to nothing.
    pub(crate) texts_at_hand: Option<TextsAtHand>,
    /// Cancels the long work that is under way, by kind.
    pub(crate) cancel: BTreeMap<TaskKind, CancellationToken>,
    /// Failures of long work in a row, by kind.
    pub(crate) failures: BTreeMap<TaskKind, Failures>,
    /// The job as the API server answered the last write; the mirror may be older.
    latest: Option<Arc<Job>>,
    /// The version of the job that was looked at, or written, last.
    seen: u64,
    /// Generations that were read, or compiled.
    pub(crate) plans: PlansOfJob,
    /// The spec with the options in force, and the `metadata.generation` of the job that it follows from; only while
    /// some options are refused.
    pub(crate) in_force: Option<(i64, Arc<JobSpec>)>,
    /// What users should know of the entries for regions in the spec, and the `metadata.generation` of the job and the
    /// digest of the plan that it follows from.
    pub(crate) entry_warnings: Option<EntryWarnings>,
    /// Hash of the job's ConfigMap as it should be, and the plans it was computed for.
    pub(crate) job_config_map: Option<(Vec<String>, String)>,
    /// What was seen last of the Secret for transport security.
    pub(crate) transport: Option<RememberedSighting>,
    /// ConfigMaps with texts that were just written.
    written: BTreeMap<String, Timestamp>,
    /// Those with chunks of plans.
    stored: BTreeMap<String, Timestamp>,
    /// The plan of a proposal, by its digest, of which a chunk is gone and that cannot be stored again as it was.
    pub(crate) unstorable_plan: Option<String>,
    /// Why an action of the last reconcile failed.
    pub(crate) last_failure: Option<Failure>,
    /// What was refused to the submission since the last step.
    pub(crate) refusals: Refusals,
    /// What holds the proposal up.
    pub(crate) held_up: HeldUp,
    /// How long the job was worked on while it was being submitted, as far as its status does not have it yet
    /// (rule job-18).
    pub(crate) unrecorded_work: Duration,
    /// How much of it the status had when it was looked at last.
    recorded_work: Duration,
    /// When the status was last written.
    pub(crate) described: Option<Timestamp>,
    /// Since when the number of the job waits for the ADL (rule job-50).
    pub(crate) unnumbered_since: Option<Timestamp>,
    /// Since when something is left to the next write (rule job-50).
    pub(crate) unsaid_since: Option<Timestamp>,
    /// Since when the roll-out waits for what comes before a commit (rule call-27).
    pub(crate) put_off_since: Option<Timestamp>,
    /// Since when deletions wait for admissions of requests (rule call-7).
    pub(crate) deletions_put_off_since: Option<Timestamp>,
    /// Since when turns end early for whoever is in a hurry (rule call-27).
    pub(crate) ended_early_since: Option<Timestamp>,
    /// Rounds that follow each other without an end.
    pub(crate) rounds: Rounds,
    /// What came to nothing in the last turns, or was refused.
    pub(crate) in_vain: InVain,
    /// The namespace is being deleted: nothing is created for a while.
    pub(crate) pause: Option<Pause>,
    /// Objects in the way are being deleted: when they are looked for again.
    pub(crate) going: Option<Going>,
    /// Ports of Services that operators have opened under a name.
    pub(crate) user_ports: KnownEndpoints,
    /// Objects that were written or deleted and that the mirrors do not show like that yet.
    pub(crate) own_writes: OwnWrites,
    /// What is known of the job's objects since they were compared; only of those that there are.
    pub(crate) compared: Compared,
    /// Objects that were restored not long ago.
    pub(crate) restorations: BTreeMap<Owned, Restorations>,
    /// Of those that had lost a label, and that no mirror may have shown because of it: the hash of what was applied to
    /// each.
    pub(crate) relabelled: BTreeMap<Child, String>,
    /// Numbers of the regions whose edits go with a failed submission, of those of which that was told before they are
    /// deleted, and the `metadata.generation` of the job whose submission it is.
    pub(crate) lost_edits: Option<(i64, BTreeSet<u64>)>,
    /// Fields that the API server does not keep.
    pub(crate) outdated: OutdatedDefinitions,
    /// Requests to resize as the API server answered the last write of each; only of those that the mirror has and
    /// shows an older state of.
    pub(crate) requests: BTreeMap<String, Arc<Resize>>,
    /// Requests whose status does not fit into their object any more, by uid: nothing can be made of them before
    /// somebody changes them.
    pub(crate) full_requests: BTreeMap<String, FullRequest>,
    /// What the API server has said of requests that the status of the job names and the mirror did not show.
    pub(crate) named_requests: NamedRequests,
    /// The greatest number that this process has given to a request.
    pub(crate) last_resize: u64,
    /// What the compiler said about sets of widths.
    pub(crate) verdicts: Verdicts,
    /// The generation that a compilation was for which was given up for a newer one.
    pub(crate) given_up_for: Option<u64>,
    /// The widths that are being compiled, and those that are about to be, with who they are begun for.
    compiled_for: BTreeMap<BTreeMap<String, u32>, Begun>,
    /// A write of the job whose outcome nobody knows: the version that it follows, and how much time had passed when
    /// nobody waited for it any more.
    unanswered: Option<(u64, Duration)>,
    /// How much time had passed when the API server said last that it does not have the job any more, if it has.
    gone: Option<Duration>,
    /// When a proposal was recorded last.
    pub(crate) proposed_at: Option<Timestamp>,
    /// `metadata.generation` and the digest of the plan of a job that was rolled out when this process looked at it
    /// first; `Some(None)` once it is another one.
    pub(crate) inherited: Option<Option<(Option<i64>, Option<String>)>>,
}

/// A request whose status does not fit into its object: what is to be known of it, since all of it takes long to read.
#[derive(Clone, Debug)]
pub(crate) struct FullRequest {
    pub(crate) name: String,
    /// The version that is so large.
    pub(crate) version: u64,
    pub(crate) created: Option<Timestamp>,
}

/// Number and begin of an attempt to submit a job.
pub(crate) type Attempt = (u32, Timestamp);

/// Reasons and messages, and what they follow from.
pub(crate) type EntryWarnings = ((Option<i64>, String), Arc<Vec<(String, String)>>);

impl Entry {
    fn new(plans: PlansOfJob) -> Self {
        Self {
            tasks: Tasks::idle(),
            attempt: None,
            texts_at_hand: None,
            cancel: BTreeMap::new(),
            failures: BTreeMap::new(),
            latest: None,
            seen: 0,
            plans,
            in_force: None,
            entry_warnings: None,
            job_config_map: None,
            transport: None,
            written: BTreeMap::new(),
            stored: BTreeMap::new(),
            unstorable_plan: None,
            last_failure: None,
            refusals: Refusals::default(),
            held_up: HeldUp::default(),
            unrecorded_work: Duration::ZERO,
            recorded_work: Duration::ZERO,
            described: None,
            unnumbered_since: None,
            unsaid_since: None,
            put_off_since: None,
            deletions_put_off_since: None,
            ended_early_since: None,
            rounds: Rounds::default(),
            in_vain: InVain::default(),
            pause: None,
            going: None,
            user_ports: KnownEndpoints::default(),
            own_writes: OwnWrites::default(),
            compared: Compared::default(),
            restorations: BTreeMap::new(),
            relabelled: BTreeMap::new(),
            lost_edits: None,
            outdated: OutdatedDefinitions::default(),
            requests: BTreeMap::new(),
            full_requests: BTreeMap::new(),
            named_requests: NamedRequests::default(),
            last_resize: 0,
            verdicts: Verdicts::default(),
            given_up_for: None,
            compiled_for: BTreeMap::new(),
            unanswered: None,
            gone: None,
            proposed_at: None,
            inherited: None,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        for token in self.cancel.values() {
            token.cancel();
        }
    }
}
