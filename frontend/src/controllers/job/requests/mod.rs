//! Requests to resize: what is wanted of the regions of a job, by whom, and what becomes of it (rules elasticity-15 to
//! elasticity-18).
//!
//! ```text
//! regions, requests, status --standing--> what is in force, proposed, open, over
//!                                             |
//!                    wishes: edits, then requests, oldest first
//!                                             |
//!                    search: the set to compile next, or who is at fault
//! ```
//!
//! | Module | What it is |
//! |---|---|
//! | [`standing`] | how far each request has come, and which widths are still to be written into specs |
//! | [`wishes`] | edits and requests in their order, and the widths that a number of them want together |
//! | [`search`] | which of them is at fault when the compiler refuses a set; what it said about sets |
//! | [`admission`] | whether a request is admitted, and as what |
//! | [`refused_edits`] | widths in specs that the compiler refused, and what they were refused for |
//! | [`named`] | requests that the status names, and the mirror may not show yet |
//! | [`observe`] | all of it for one look at a job |
//!
//! All of it is pure. Knows: requests, regions, the status of the job. Must not know: plans, clients.
//!
//! Invariants:
//! * a request is committed by the write that commits the generation: `status.proposal.resizes` become
//!   `status.committedResizes` then, so no crash can part the two;
//! * `spec.width` is written for a request only when its widths are in force;
//! * nothing is written to a request whose phase is final.

pub(crate) mod admission;
pub(crate) mod named;
pub(crate) mod observe;
pub(crate) mod refused_edits;
pub(crate) mod search;
pub(crate) mod standing;
pub(crate) mod wishes;

pub(crate) use self::observe::Requests;
pub(crate) use self::search::Verdicts;
