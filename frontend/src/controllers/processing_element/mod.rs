//! The PE controller: one pod per ProcessingElement, under its restart policies.
//!
//! * `decide` — pure: what to do next, given the PE, its pods and the time.
//! * `pod` — pure: the pod of a PE.
//! * `controller` — observes, decides, acts.
//!
//! Knows: ProcessingElements, their pods, the committed generation of their job. Must not know: plans, widths, the fusion service.
