//! The job controller: from a Job to PEs, and from one width to the next.
//!
//! ```text
//! mirrors, stored plans, memory --observe--> Observed --decide--> Decision --act--> objects, status
//!        ^                                                            |
//!        +---- results <---- fetch, compile, publish (long work) <----+
//! ```
//!
//! | Module | What it is |
//! |---|---|
//! | [`reconcile`] | one look at a job: the three steps |
//! | [`observe`], [`act`] | the first and the last of them, with mirrors and calls |
//! | [`decide`] | pure: what to do next, as a table |
//! | [`observed`], [`tasks`] | plain values: the observation of a job; the state of its long work |
//! | [`describe`] | pure: what the status and Events say; the status after a step |
//! | [`waits`], [`refusals`] | pure: which PEs wait for what; what only the cluster can refuse |
//! | [`held_up`] | pure: what keeps a proposal from being written, and since when |
//! | [`going`] | pure: objects that are being deleted and do not go |
//! | [`removed_pods`] | pods of PEs that were removed and do not go |
//! | [`generation`] | pure: a plan and what belongs to it |
//! | [`objects`] | pure: the objects themselves; [`child`] and [`owned`] have their keys |
//! | [`documents`] | ADL and plans, cut into ConfigMaps |
//! | [`compilation`] | pure: what of the spec is compiled |
//! | [`in_force`], [`running_options`] | pure: options of a running job of which some are refused; those of its PEs |
//! | [`redis_list`] | pure: the list of redis servers, and whether it is what is asked for |
//! | [`widths`], [`cool_down`] | pure: desired and refused widths; until when a width stays |
//! | [`requests`] | requests to resize: who wants what, what comes next, what becomes of it |
//! | [`resources`] | pure: shares of job-wide resources |
//! | [`transport`] | certificates of PEs, and the Secret that has them |
//! | [`reconciler`] | the struct that they work on: cluster, mirrors, services, memory |
//! | [`controller`] | wakes the reconciler and runs the workers |
//! | [`long_work`], [`services`], [`off_thread`] | long work; the services and threads that it uses |
//! | [`hurries`] | who waits for the end of a turn |
//! | [`memory`] | what the process remembers |
//!
//! The trait that the reconciler implements is [`crate::controllers::reconciler::Reconciler`].
//!
//! # Life of a generation
//!
//! The order is that of rule job-2. Each line is one write, or several writes in any order; 1 to 3 store something and
//! then record it. After a crash at any of them the job comes to the same end (rule job-1):
//! 1. the number of the job, unless the ADL is there soon: then it is recorded with that (rule job-50);
//! 2. the ADL in chunks, then its name in the status: pinned; not fetched again once there is a generation
//!    (rule job-6);
//! 3. the plan in chunks, then `status.proposal`;
//! 4. the texts of new and restarted PEs, in ConfigMaps named after their content; those of a resize beside 3, from
//!    when the plan is known (rule job-3);
//! 5. host pools, regions, exports, imports, consistent regions, Services, port labels, and the *new* PEs, whose pods
//!    do not start yet;
//! 6. the commit: `status.generation`, by compare-and-swap;
//! 7. the roll-out: every existing PE object is brought to the plan (rule job-15), in waves (rule job-49); the PE
//!    controller replaces a pod only if its PE has another runtime id, or another placement (rule pe-3);
//! 8. what neither plan nor proposal refers to is deleted. Then the generation is rolled out: pods of deleted PEs,
//!    which Kubernetes ends, are not waited for, and their PEs' ids are not given away while they are there.
//!
//! Knows: Kubernetes objects and plans. Must not know: ADL, AADL, how a pod is made.
//!
//! Invariants:
//! * preparing a generation changes no object of the committed one but port labels, and region widths that are taken
//!   over (rule job-12);
//! * the next generation does not write to a PE whose origin and placement stay, as long as the text of the origin
//!   exists, but for its share of job-wide resources (rule pod-4);
//! * objects that have another controller are never written to, and those that are being deleted only if PEs that run
//!   read them (rule job-26).
//!
//! Knows: the parts and their order. Must not know: ADL, how a generation is compiled.

mod act;
pub(crate) mod child;
pub(crate) mod compilation;
pub(crate) mod controller;
pub(crate) mod cool_down;
pub(crate) mod decide;
pub(crate) mod describe;
pub(crate) mod documents;
pub(crate) mod generation;
pub(crate) mod going;
pub(crate) mod held_up;
mod hurries;
pub(crate) mod in_force;
pub(crate) mod long_work;
pub(crate) mod memory;
pub(crate) mod objects;
pub(crate) mod observe;
pub(crate) mod observed;
mod off_thread;
pub(crate) mod owned;
mod reconcile;
mod reconciler;
pub(crate) mod redis_list;
pub(crate) mod refusals;
mod removed_pods;
pub(crate) mod requests;
pub(crate) mod resources;
mod running_options;
pub(crate) mod services;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
pub(crate) mod transport;
pub(crate) mod waits;
pub(crate) mod widths;

use streams_kubernetes::cluster::Manager;

/// Field manager of the job controller.
pub(crate) const MANAGER: Manager = Manager("streams-job-controller");
