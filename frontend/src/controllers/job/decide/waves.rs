//! Which PEs take a new text now, and which later: the order of a roll-out (rule job-49).
//!
//! Everything follows from the objects: a frontend that has just begun to lead goes on in the middle of a wave. What a
//! roll-out took down is said by the PEs themselves ([`ObservedPe::interrupted_for`]).
//!
//! Knows: what PEs run, and what they should. Must not know: why their texts changed.

use super::{Draft, is_submitted, name_taken, roll_out_end, unfinished_end};
use crate::controllers::job::observed::{DesiredGeneration, DesiredPe, JobObservation, ObservedPe, PodState};
use crate::controllers::job::waits::{LATER, Waits, Words};
use crate::controllers::times::after;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;

/// PEs whose objects are not as the generation wants them.
#[derive(Default)]
pub(super) struct Changes {
    /// PEs that nothing interrupts: they have no pod that runs, or it stays, or it goes anyway.
    pub(super) at_once: Vec<u64>,
    /// Some of them take another text, and are down.
    pub(super) are_down: bool,
    /// PEs whose pod runs, and is replaced, each with the generation that it runs: who is furthest behind goes first.
    /// Otherwise those with high ids would wait for ever while generations come faster than waves.
    interrupting: BTreeSet<(u64, u64)>,
}

impl Changes {
    /// Adds a PE, by ascending id; `None` if it does not exist. Says whether its pod is to be replaced.
    pub(super) fn add(&mut self, id: u64, pe: &DesiredPe, current: Option<&ObservedPe>) -> bool {
        let replaced = current.filter(|current| current.is_made_from_other_than(pe) && !current.is_going());
        // If a user has requested a restart, its pod goes anyway, and the next one has what is newest.
        let interrupted = replaced.filter(|current| current.has_running_pod && current.next_pod.is_none());
        if let Some(current) = interrupted {
            self.interrupting.insert((current.generation, id));
        } else {
            self.at_once.push(id);
            self.are_down |= replaced.is_some();
        }
        interrupted.is_some()
    }

    /// The PEs whose objects are to be written now. Of the others, says what they wait for.
    pub(super) fn now(self, observed: &JobObservation, wanted: &DesiredGeneration, draft: &mut Draft) -> Vec<u64> {
        let Self { at_once: mut now, are_down, interrupting } = self;
        let interrupting: Vec<u64> = interrupting.into_iter().map(|(_, id)| id).collect();
        if interrupting.is_empty() {
            return now;
        }
        let end = unfinished_end(observed).filter(|end| observed.now < *end);
        let new = new_pes(observed, wanted);
        let why = if !new.is_empty() && end.is_some() {
            Some(format!("it is restarted when new PEs run: {new}"))
        } else if are_down && end.is_some() {
            Some("it is restarted after those that are down".to_owned())
        } else {
            None
        };
        if let Some(why) = why {
            end.into_iter().for_each(|end| draft.wake(end));
            put_off(&interrupting, &why, draft);
            return now;
        }
        let limit = observed.max_unavailable.of(wanted.processing_elements.len());
        let TakenDown { ids, waits, until } = taken_down(observed, wanted);
        until.into_iter().for_each(|until| draft.wake(until));
        // A pod that has not settled counts already: to replace it again takes nobody else down, and waiting for it
        // would be waiting for itself.
        let (again, mut interrupting): (Vec<u64>, Vec<u64>) = interrupting.into_iter().partition(|id| ids.contains(id));
        let room = limit.saturating_sub(ids.len()).min(interrupting.len());
        let later = interrupting.split_off(room);
        for id in again.iter().chain(&interrupting) {
            draft.report.wait(*id, true, &Words::default());
        }
        now.extend(again);
        now.extend(interrupting);
        let why = if waits.is_empty() {
            "it is restarted when those before it run".to_owned()
        } else {
            format!("it is restarted when those before it run: {waits}")
        };
        put_off(&later, &why, draft);
        now
    }
}

fn put_off(ids: &[u64], why: &str, draft: &mut Draft) {
    let words = Words::of(LATER, why);
    for id in ids {
        draft.report.wait(*id, true, &words);
    }
}

/// PEs that the generation adds, and that do not run yet but will.
fn new_pes(observed: &JobObservation, wanted: &DesiredGeneration) -> Waits {
    let submitted = is_submitted(observed);
    let mut waits = Waits::default();
    for (id, pe) in wanted.processing_elements.iter().filter(|(_, pe)| pe.is_new) {
        match observed.children.processing_elements.get(id) {
            None if submitted && observed.children.stays_away(*id, pe) => {}
            None => {
                let made_again = || Words::of("Deleted", "it is made again");
                waits.add(*id, &name_taken(observed, *id).unwrap_or_else(made_again));
            }
            Some(current) if current.state(pe) == PodState::Pending => waits.add(*id, &current.says),
            Some(_) => {}
        }
    }
    waits
}

/// PEs that roll-outs took down and that do not run again yet.
#[derive(Default)]
struct TakenDown {
    ids: BTreeSet<u64>,
    /// What they say.
    waits: Waits,
    /// When fewer of them may count although nothing has happened.
    until: Option<Timestamp>,
}

fn taken_down(observed: &JobObservation, wanted: &DesiredGeneration) -> TakenDown {
    let end = roll_out_end(observed).filter(|end| observed.now < *end);
    let mut taken_down = TakenDown::default();
    for (id, pe) in &wanted.processing_elements {
        let Some(current) = observed.children.processing_elements.get(id) else { continue };
        if current.is_stopped
            || matches!(current.state(pe), PodState::Ready | PodState::Completed | PodState::Suspended)
        {
            continue;
        }
        let runs_another = current.has_running_pod && current.is_made_from_other_than(pe);
        // Perhaps for the text of an older generation.
        let is_going = current.is_going() || (runs_another && pe.is_written_to(current));
        // One that runs an older text, which it may have got after the commit of this one, waits for its turn: if it
        // counted, perhaps for itself.
        let is_of_this = current.interrupted_for == Some(wanted.generation) && (is_going || !runs_another);
        // A newer generation does not wait for what an older one has broken.
        let is_of_older = current.interrupted_for.is_some() && current.is_starting && end.is_some();
        if is_going || is_of_this || is_of_older {
            taken_down.ids.insert(*id);
            taken_down.waits.add(*id, &current.says);
        }
        if is_of_older && !is_of_this {
            taken_down.until = end;
        }
    }
    taken_down
}

/// When what was removed at a time goes although not every PE has its new text: past the resize time-out. If PEs are
/// restarted one wave after the other, it begins anew with each of them that runs.
pub(super) fn stalls(observed: &JobObservation, wanted: &DesiredGeneration) -> impl Fn(Timestamp) -> Timestamp {
    let time_out = observed.deadlines.roll_out;
    let pes = &wanted.processing_elements;
    let restarted: Vec<_> = pes.iter().filter(|(_, pe)| !pe.is_new && pe.origin == wanted.generation).collect();
    let is_one_wave = restarted.len() <= observed.max_unavailable.of(pes.len());
    let current = |id| observed.children.processing_elements.get(id);
    let running = restarted.into_iter().filter_map(|(id, pe)| Some((current(id)?, pe)));
    let running = running.filter(|(current, pe)| current.state(pe) == PodState::Ready);
    let newest = running.filter_map(|(current, _)| current.running_since).max().filter(|_| !is_one_wave);
    move |since| after(newest.map_or(since, |newest| newest.max(since)), time_out)
}
