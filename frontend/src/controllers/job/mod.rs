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
//! | [`observed`], [`tasks`] | plain values: the observation of a job; the state of its long work |
//! | [`decide`] | pure: what to do next, as a table |
//! | [`transition`] | pure: the status after a step |
//! | [`waits`], [`refusals`] | pure: which PEs wait for what; what only the cluster can refuse |
//! | [`held_up`] | pure: what keeps a proposal from being written, and since when |
//! | [`warnings`] | pure: what users should know although it stops nothing |
//! | [`describe`], [`events`] | pure: phase, conditions and counters of the status; Events |
//! | [`generation`] | pure: a plan and what belongs to it |
//! | [`added_ports`] | pure: since which generation a job exports and imports at its ports |
//! | [`places`], [`missing_nodes`] | pure: where its PEs must run, and together with which; nodes that do not exist |
//! | [`desired`] | pure: which objects should exist for a generation, as hashes |
//! | [`children`], [`interfaces`] | pure: the objects themselves; [`child`] and [`owned`] have their keys |
//! | [`oversized`] | pure: what of a plan does not fit them |
//! | [`user_ports`] | pure: ports of Services that operators have opened under a name |
//! | [`drift`] | pure: what others changed of the objects |
//! | [`outdated`], [`pause`] | pure: fields that the API server does not keep; how long nothing is tried |
//! | [`compilation`] | pure: what of the spec is compiled |
//! | [`in_force`], [`running_options`] | pure: options of a running job of which some are refused; those of its PEs |
//! | [`widths`], [`cool_down`] | pure: desired and refused widths; until when a width stays |
//! | [`requests`] | requests to resize: who wants what, what comes next, what becomes of it |
//! | [`regions`], [`created_region`] | pure: what the status says of regions; what one was created as |
//! | [`resources`] | pure: shares of job-wide resources |
//! | [`port_labels`] | pure: the file of port labels |
//! | [`chunks`] | pure: documents cut into ConfigMaps |
//! | [`transport`] | certificates of PEs, and the Secret that has them |
//! | [`act_status`] | writes of the status, and which of them are put off |
//! | [`act_requests`], [`observe_requests`] | writes about requests to resize; the requests as they were written last |
//! | [`act_interfaces`], [`act_transport`], [`observe_transport`] | writes of particular children; a look at a Secret |
//! | [`snapshot`] | what an observation was made from |
//! | [`observe`], [`act`], [`reconcile`] | carry observe, decide and act out, with mirrors and calls |
//! | [`unsaid_pods`] | first pods that run although their PEs have not said so yet |
//! | [`reconciler`] | the struct that they work on: cluster, mirrors, services, memory |
//! | [`controller`] | wakes the reconciler and runs the workers |
//! | [`long_work`], [`services`], [`off_thread`] | long work; the services and threads that it uses |
//! | [`shared_look`] | what was found of the whole cluster a moment ago |
//! | [`documents`], [`plans`] | reads and writes documents in chunks; generations in memory |
//! | [`job_id`] | gives out job ids |
//! | [`memory`], [`own_writes`] | what the process remembers |
//! | [`rewrites`] | how many objects a new version of the frontend may rewrite now |
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
//! * objects that are being deleted, or that have another controller, are never written to.

mod act;
mod act_interfaces;
mod act_order;
mod act_processing_elements;
mod act_requests;
mod act_status;
mod act_transport;
mod added_ports;
pub(crate) mod child;
pub(crate) mod children;
pub(crate) mod chunks;
pub(crate) mod compilation;
pub(crate) mod controller;
pub(crate) mod cool_down;
mod created_region;
pub(crate) mod decide;
pub(crate) mod describe;
pub(crate) mod desired;
pub(crate) mod documents;
pub(crate) mod drift;
pub(crate) mod events;
pub(crate) mod generation;
pub(crate) mod held_up;
pub(crate) mod in_force;
pub(crate) mod in_vain;
pub(crate) mod interfaces;
pub(crate) mod job_id;
pub(crate) mod long_work;
pub(crate) mod memory;
mod mirrored;
mod missing_nodes;
pub(crate) mod observe;
mod observe_requests;
mod observe_transport;
pub(crate) mod observed;
mod off_thread;
pub(crate) mod outdated;
mod oversized;
mod own_writes;
pub(crate) mod owned;
mod pause;
mod places;
pub(crate) mod plans;
mod port_labels;
mod reconcile;
mod reconciler;
pub(crate) mod refusals;
pub(crate) mod regions;
pub(crate) mod requests;
pub(crate) mod resources;
mod rewrites;
mod running_options;
pub(crate) mod services;
mod shared_look;
pub(crate) mod snapshot;
mod strangers;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
pub(crate) mod transition;
pub(crate) mod transport;
mod unsaid_pods;
mod user_ports;
pub(crate) mod waits;
pub(crate) mod warnings;
pub(crate) mod widths;

use streams_kubernetes::cluster::Manager;

/// Field manager of the job controller.
pub(crate) const MANAGER: Manager = Manager("streams-job-controller");
