//! What users should know of a job although it stops nothing: the condition `Warning` (rules job-33 and job-52), and
//! what `Ready` says of options that take effect later (rule job-31). Pure.
//!
//! Knows: what PEs, the spec and the plan say. Must not know: how conditions and Events are written.

use crate::controllers::job::observed::{DesiredGeneration, JobObservation, Loaded, PodState};
use crate::controllers::job::waits::{Waits, Words};
use streams_api::condition;

/// How the warning about PEs begins whose options permit no other pod.
pub(crate) const NO_OTHER_POD: &str = "no other pod could be created for PEs that run";

/// How much of each warning is said if all of them do not fit: the beginnings of five do. No more come before those
/// that the commit of a generation tells by itself, unless three options of PEs are refused at once, or two where
/// somebody else has the Service under which PEs ask; what is cut then is told when one of them is corrected.
const BEGINNING_MAX: usize = 800;

/// What is between two warnings.
const SEPARATOR: &str = "; ";

/// What the condition says of these warnings: all of them, or the beginning of each.
pub(crate) fn message(warnings: &[(String, String)]) -> String {
    let join = |said: fn(&str) -> String| {
        let said: Vec<_> = warnings.iter().map(|(_, message)| said(message)).collect();
        said.join(SEPARATOR)
    };
    let whole = join(str::to_owned);
    if whole.len() <= condition::MESSAGE_MAX {
        return whole;
    }
    join(|message| match beginning(message) {
        all if all == message => all.to_owned(),
        part => format!("{part} ..."),
    })
}

/// The part of a warning that is said in any case.
pub(crate) fn beginning(message: &str) -> &str {
    condition::cut(message, BEGINNING_MAX)
}

/// Whether a warning of this message begins so. The words of one may be the end of another one's.
pub(crate) fn has_beginning(message: &str, beginning: &str) -> bool {
    message.starts_with(beginning) || message.contains(&format!("{SEPARATOR}{beginning}"))
}

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

/// How many PEs run with other options than the job has by now, in words (rule job-31); `None` if there are none. That
/// is no warning: it is what an edit of a running job comes to. The number is left out until it is whole: while PEs are
/// still to be written (`is_being_edited`), or have not said of what is written of them what their pods are made from.
pub(crate) fn older_options(observed: &JobObservation, is_being_edited: bool) -> Option<String> {
    let wanted = observed.committed.as_ref().and_then(Loaded::whole);
    let pes = wanted.into_iter().flat_map(|wanted| wanted.processing_elements.keys());
    let current = pes.filter_map(|id| observed.children.processing_elements.get(id)).filter(|pe| !pe.object.deleting);
    let (mut count, mut is_whole) = (0_usize, !is_being_edited);
    for pe in current {
        count += usize::from(pe.has_older_options);
        is_whole &= !pe.is_behind;
    }
    match count {
        0 => None,
        _ if !is_whole => Some("PEs run with older options until they restart, and are being counted".to_owned()),
        1 => Some("1 PE runs with older options until it restarts".to_owned()),
        count => Some(format!("{count} PEs run with older options until they restart")),
    }
}

/// All warnings, as reason and message, while this generation is in force. Those come first that somebody has to
/// correct before a pod ends.
pub(crate) fn warnings(
    observed: &JobObservation,
    in_force: Option<&Loaded>,
    no_other_pods: &Waits,
) -> Vec<(String, String)> {
    let of_generation = in_force.and_then(Loaded::whole).into_iter().flat_map(|wanted| of_generation(observed, wanted));
    let others = observed.spec_warnings.iter().chain(of_generation);
    of_no_other_pods(no_other_pods).into_iter().chain(others.cloned()).collect()
}

/// The warnings of a generation, but for those of what is missing that nobody waits for.
fn of_generation<'a>(
    observed: &'a JobObservation,
    wanted: &'a DesiredGeneration,
) -> impl Iterator<Item = &'a (String, String)> {
    let runs = move |id: &u64| {
        let pe = observed.children.processing_elements.get(id).zip(wanted.processing_elements.get(id));
        pe.is_some_and(|(current, pe)| matches!(current.state(pe), PodState::Ready | PodState::Completed))
    };
    let is_over = move |at: &usize| wanted.waiting.get(at).is_some_and(|waiting| waiting.iter().all(runs));
    wanted.warnings.iter().enumerate().filter(move |(at, _)| !is_over(at)).map(|(_, warning)| warning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_that_do_not_fit_are_all_begun() {
        let warnings = |lengths: &[usize]| -> Vec<(String, String)> {
            let words = ["a", "b", "c", "d", "e"].iter().zip(lengths);
            words.map(|(letter, length)| ("R".to_owned(), letter.repeat(*length))).collect()
        };
        assert_eq!(message(&warnings(&[2, 1])), "aa; b");
        assert_eq!(message(&warnings(&[2_600, 1_000])).len(), 3_602, "all is said that fits");
        for lengths in [&[2_600, 5_000][..], &[10, 5_000], &[900; 5], &[5_000; 5]] {
            let warnings = warnings(lengths);
            let said = message(&warnings);
            assert!(said.len() <= condition::MESSAGE_MAX, "{lengths:?}: {}", said.len());
            assert!(warnings.iter().all(|(_, message)| said.contains(beginning(message))), "{lengths:?}");
        }
    }
}
