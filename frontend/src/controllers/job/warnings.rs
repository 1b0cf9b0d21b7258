//! What users should know of a job although it stops nothing: the condition `Warning` (rules job-33 and job-52). Pure.
//!
//! Knows: what PEs, the spec and the plan say. Must not know: how conditions and Events are written.

use super::observed::{JobObservation, Loaded, PodState};
use super::waits::{Waits, Words};

/// How the warning about PEs begins whose options permit no other pod.
pub(crate) const NO_OTHER_POD: &str = "no other pod could be created for PEs that run";

/// PEs that run what the job wants, and whose options permit no other pod, in their own words.
pub(crate) fn no_other_pods(observed: &JobObservation) -> Waits {
    let mut waits = Waits::default();
    let wanted = observed.committed.as_ref().and_then(Loaded::whole).filter(|_| !observed.suspended);
    for (id, pe) in wanted.into_iter().flat_map(|wanted| &wanted.processing_elements) {
        let current = observed.children.processing_elements.get(id);
        // Of one that does not run what it should, this is said by what it waits for.
        let running = current.filter(|current| current.state(pe) == PodState::Ready);
        if let Some(words) = running.and_then(|current| current.permits_no_pod.as_ref()) {
            waits.add(*id, words);
        }
    }
    waits
}

/// The warning about these PEs, with their reason; `None` if there are none.
pub(crate) fn of_no_other_pods(waits: &Waits) -> Option<(String, String)> {
    let Words { reason, message } = waits.refused()?;
    Some((reason, format!("{NO_OTHER_POD}: {message}")))
}

/// All warnings, as reason and message, while this generation is in force. Those come first that somebody has to
/// correct before a pod ends.
pub(crate) fn warnings(
    observed: &JobObservation,
    in_force: Option<&Loaded>,
    no_other_pods: &Waits,
) -> Vec<(String, String)> {
    let of_generation = in_force.and_then(Loaded::whole).map(|wanted| &wanted.warnings);
    let others = observed.spec_warnings.iter().chain(of_generation.into_iter().flatten());
    of_no_other_pods(no_other_pods).into_iter().chain(others.cloned()).collect()
}
