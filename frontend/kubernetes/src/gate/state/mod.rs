//! Who is let in next. Reads no clock and never waits.
//!
//! Knows: calls by namespace and priority, how their tries ended, how long they took. Must not know: futures, what a
//! call does.
//!
//! Invariants: those of [`gate`](super) are kept here. Nothing is kept of a namespace without calls, but for a moment
//! and for its troubles. No more is kept of those who have left without a call than of those who wait, but for a few.

use super::pace::Pace;
use super::troubles::{SLOW, Troubles};
use crate::queue::turns::{Owner, Turns};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::ops::Sub;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Calls that go before one of a lower priority, if such a call waits.
const IN_A_ROW: u32 = 8;
/// How long somebody who makes no call counts as going on: a moment later the next one may come.
const GOING_ON: Duration = Duration::from_secs(1);
/// A crowd counts as one for so long after it was last seen. Without it, whoever asks between two calls would be told
/// that there is none.
const CROWDED_FOR: Duration = Duration::from_secs(2);
/// While urgent calls take longer than usual, a patient one that has ended keeps its place for so many times as long as
/// it took: what it has set in motion at others (the scheduler, kubelets, other controllers) has to be served, too. One
/// that frees something for others does not.
const RESTS_FOR: u32 = 2;
/// At most.
const RESTS_AT_MOST: Duration = Duration::from_millis(250);
/// An urgent call that has waited so long does not make way for awaited ones any more.
const OVERDUE: Duration = Duration::from_secs(1);
/// So many may have left, beside one for each that waits, before what is kept of them is dropped: it takes as long as
/// there are of both.
pub(super) const LEFT_MAX: usize = 8;

/// What a call is for. The first goes first (rule call-22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Somebody waits for what is wanted to come into force.
    Awaited,
    /// Somebody waits for what is in force to run.
    Urgent,
    /// It ends something, so that others can go on.
    Freeing,
    /// It lets something run for the first time for which everything else is there.
    Launching,
    /// All others.
    #[default]
    Normal,
    /// It prepares something that does not run yet. What is prepared already goes first.
    Preparing,
    /// It only says how far things are.
    Telling,
}

impl Priority {
    const ALL: [Self; 7] =
        [Self::Awaited, Self::Urgent, Self::Freeing, Self::Launching, Self::Normal, Self::Preparing, Self::Telling];

    /// It is not somebody that waits for it.
    pub(super) fn is_patient(self) -> bool {
        self > Self::Urgent
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Awaited => "awaited",
            Self::Urgent => "urgent",
            Self::Freeing => "freeing",
            Self::Launching => "launching",
            Self::Normal => "normal",
            Self::Preparing => "preparing",
            Self::Telling => "telling",
        }
    }
}

/// Calls that are under way at the same time, at most (rule call-23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All of them.
    pub all: usize,
    /// Of a namespace that is alone, or the only one that makes calls for which somebody waits: those.
    pub alone: usize,
    /// Of a namespace while others make such calls, too.
    pub beside_others: usize,
    /// That nobody waits for while others are going on and take no longer than usual. If they do: one. So many urgent
    /// ones are there while awaited ones are going on and take longer than usual, unless they wait for long.
    pub patient: usize,
    /// Awaited ones, while urgent ones wait; not more than half of what a namespace may have that is alone.
    pub awaited: usize,
}

impl Limits {
    /// The parts of this number of calls.
    pub fn of(all: usize) -> Self {
        let part = |parts: usize, of: usize| (all * parts / of).max(1);
        Self { all: all.max(1), alone: part(2, 3), beside_others: part(1, 4), patient: part(1, 6), awaited: part(1, 2) }
    }

    /// Of all namespaces together whose calls fail, or take long, by themselves: such calls keep their places for
    /// seconds. If there are no other namespaces, or all were in trouble, it is hardly them; they leave some for
    /// whoever comes.
    fn in_trouble(self, are_all: bool) -> usize {
        let most = if are_all { self.all.saturating_sub(self.patient) } else { self.all / 3 };
        most.max(1)
    }
}

/// What the end of a call, or of a try of it, says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Nothing.
    Nothing,
    /// It failed because of what it asked for.
    Failed,
    /// It read something, was answered at its first try, and took so long.
    Read(Duration),
    /// The same of a write, which the API server asks others about.
    Wrote(Duration),
}

/// How many calls are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UnderWay {
    awaited: usize,
    urgent: usize,
    patient: usize,
}

impl UnderWay {
    fn all(self) -> usize {
        self.awaited + self.urgent + self.patient
    }

    fn of(&mut self, priority: Priority) -> &mut usize {
        match priority {
            Priority::Awaited => &mut self.awaited,
            Priority::Urgent => &mut self.urgent,
            Priority::Freeing | Priority::Launching | Priority::Normal | Priority::Preparing | Priority::Telling => {
                &mut self.patient
            }
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            awaited: self.awaited + other.awaited,
            urgent: self.urgent + other.urgent,
            patient: self.patient + other.patient,
        }
    }
}

impl Sub for UnderWay {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            awaited: self.awaited - other.awaited,
            urgent: self.urgent - other.urgent,
            patient: self.patient - other.patient,
        }
    }
}

/// Calls that wait, and how many are under way.
pub(super) struct State<W> {
    limits: Limits,
    /// By priority.
    waiting: [Turns<W>; Priority::ALL.len()],
    /// How many wait, and how many have left without a call since what is kept of them was dropped.
    waiting_in_all: usize,
    left: usize,
    /// Namespaces that make calls, or did a moment ago.
    namespaces: HashMap<Arc<str>, Calls>,
    /// How many of them make calls that somebody waits for.
    impatient: usize,
    under_way: UnderWay,
    /// Since when urgent calls wait, about: as if the first that came were the first that is let in.
    urgent_since: VecDeque<Instant>,
    /// Until when there counts as having been a crowd for all, and for single namespaces.
    crowded_until: Option<Instant>,
    crowded_of: HashMap<Arc<str>, Instant>,
    /// Until when calls count as going on that somebody waits for, and awaited ones.
    urgent_until: Option<Instant>,
    awaited_until: Option<Instant>,
    /// Of calls that somebody waits for, and of awaited ones.
    pace: Pace,
    awaited_pace: Pace,
    troubles: Troubles,
    /// Calls that were let in while one of a lower priority waited, since one of those had its turn.
    in_a_row: u32,
    /// By priority: calls of higher ones that were let in while one of it waited, since one of it was.
    passed_over: [u32; Priority::ALL.len()],
}

/// The calls of a namespace.
struct Calls {
    waiting: usize,
    under_way: UnderWay,
    /// Of both, those that somebody waits for.
    impatient: usize,
    /// Of those that wait, those that nobody waits for.
    patient_waiting: usize,
    until: Instant,
    impatient_until: Option<Instant>,
}

impl Calls {
    /// Whether it makes calls that somebody waits for, or did a moment ago.
    fn is_impatient(&self, now: Instant) -> bool {
        self.impatient > 0 || self.impatient_until.is_some_and(|until| now < until)
    }
}

/// Whether another call of one priority may be made.
#[derive(Clone, Copy)]
struct Room {
    /// Of a namespace that is in no trouble. What those that are in trouble have under way is not in its way.
    usual: bool,
    /// Of one that is in trouble.
    in_trouble: bool,
}

/// What a namespace may have of the calls that nobody waits for, while they have a bound.
#[derive(Clone, Copy)]
struct PatientPart {
    /// Of a namespace while others want some.
    most: usize,
    /// Namespaces that wait for such a call, could have it, and are in no trouble.
    waiting: usize,
}

impl PatientPart {
    /// Whether a namespace that waits for such a call may have it. Its calls may be slow, so it never has all that
    /// others wait for.
    fn permits(self, calls: &Calls) -> bool {
        calls.under_way.patient < self.most || self.waiting <= 1
    }
}

impl<W> State<W> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: std::array::from_fn(|_| Turns::new()),
            waiting_in_all: 0,
            left: 0,
            namespaces: HashMap::new(),
            impatient: 0,
            under_way: UnderWay::default(),
            urgent_since: VecDeque::new(),
            crowded_until: None,
            crowded_of: HashMap::new(),
            urgent_until: None,
            awaited_until: None,
            pace: Pace::default(),
            awaited_pace: Pace::default(),
            troubles: Troubles::default(),
            in_a_row: 0,
            passed_over: [0; Priority::ALL.len()],
        }
    }

    /// A call waits, that one of those asks for who take turns within its owner.
    pub(super) fn ask(&mut self, owner: Owner, one: Arc<str>, priority: Priority, waiter: W, now: Instant) {
        self.wait(owner, priority, now, |turns, owner| turns.push_of(owner, one, waiter));
    }

    /// A call that was let in before waits once more, before others that the same one asks for.
    pub(super) fn ask_again(&mut self, owner: Owner, one: Arc<str>, priority: Priority, waiter: W, now: Instant) {
        self.wait(owner, priority, now, |turns, owner| turns.push_first_of(owner, one, waiter));
    }

    /// Somebody waits no more. Of those who have left without a call, those that do not count any more are dropped
    /// before they are many: a namespace whose calls hang has no turn in which they were.
    pub(super) fn wait_no_more(&mut self, has_call: bool, now: Instant, counts: impl Fn(&W) -> bool) {
        self.waiting_in_all -= 1;
        if has_call {
            return;
        }
        self.left += 1;
        if self.left <= self.waiting_in_all + LEFT_MAX {
            return;
        }
        self.left = 0;
        for priority in Priority::ALL {
            let mut gone = Vec::new();
            if let Some(turns) = self.waiting.get_mut(priority as usize) {
                turns.retain_of(|namespace, waiter| {
                    let is_wanted = counts(waiter);
                    if !is_wanted {
                        gone.push(Arc::clone(namespace));
                    }
                    is_wanted
                });
            }
            self.count_no_more(gone, priority, now);
        }
    }

    /// Calls of these namespaces wait no more, and were not let in.
    fn count_no_more(&mut self, gone: Vec<Arc<str>>, priority: Priority, now: Instant) {
        if priority == Priority::Urgent {
            let left = gone.len().min(self.urgent_since.len());
            drop(self.urgent_since.drain(..left));
        }
        for namespace in gone {
            let calls = self.calls(&namespace, priority, now);
            calls.waiting -= 1;
            calls.impatient -= usize::from(!priority.is_patient());
            calls.patient_waiting -= usize::from(priority.is_patient());
        }
    }

    fn wait(&mut self, owner: Owner, priority: Priority, now: Instant, push: impl FnOnce(&mut Turns<W>, Owner)) {
        self.waiting_in_all += 1;
        let calls = self.calls(&owner.namespace, priority, now);
        calls.waiting += 1;
        calls.impatient += usize::from(!priority.is_patient());
        calls.patient_waiting += usize::from(priority.is_patient());
        self.note_urgent(priority, now);
        if priority == Priority::Urgent {
            self.urgent_since.push_back(now);
        }
        if let Some(turns) = self.waiting.get_mut(priority as usize) {
            push(turns, owner);
        }
    }

    /// The next call that is let in, if one may. Those that do not count any more are dropped.
    pub(super) fn next(&mut self, now: Instant, counts: impl Fn(&W) -> bool) -> Option<W> {
        let next = self.find_next(now, counts);
        if next.is_none() {
            self.note_crowd(now);
        }
        next
    }

    fn find_next(&mut self, now: Instant, counts: impl Fn(&W) -> bool) -> Option<W> {
        self.forget_who_is_gone(now);
        if self.under_way.all() >= self.limits.all {
            return None;
        }
        let mut is_due_blocked = false;
        for priority in self.due() {
            if let Some(waiter) = self.next_of(priority, now, &counts) {
                // One that has been passed over more often stays due: whoever goes instead does not take its turn.
                self.note_let_in(priority);
                self.in_a_row = if is_due_blocked { IN_A_ROW } else { 0 };
                return Some(waiter);
            }
            is_due_blocked = true;
        }
        for priority in Priority::ALL {
            if let Some(waiter) = self.next_of(priority, now, &counts) {
                let does_pass_over = self.note_let_in(priority);
                self.in_a_row = if does_pass_over { self.in_a_row.saturating_add(1) } else { 0 };
                return Some(waiter);
            }
        }
        None
    }

    /// The priorities whose turn it is before higher ones; that which was passed over most often is the first.
    fn due(&self) -> Vec<Priority> {
        if self.in_a_row < IN_A_ROW {
            return Vec::new();
        }
        let passed_over = |priority: Priority| self.passed_over.get(priority as usize).copied().unwrap_or_default();
        let mut due: Vec<_> = Priority::ALL.into_iter().filter(|&priority| passed_over(priority) >= IN_A_ROW).collect();
        due.sort_by_key(|&priority| Reverse(passed_over(priority)));
        due
    }

    /// A call of this priority was let in. Returns whether it went before one of a lower priority.
    fn note_let_in(&mut self, priority: Priority) -> bool {
        let mut does_pass_over = false;
        for ((other, turns), passed_over) in Priority::ALL.into_iter().zip(&self.waiting).zip(&mut self.passed_over) {
            if other == priority || turns.is_empty() {
                *passed_over = 0;
            } else if other > priority {
                *passed_over = passed_over.saturating_add(1);
                does_pass_over = true;
            }
        }
        does_pass_over
    }

    fn next_of(&mut self, priority: Priority, now: Instant, counts: impl Fn(&W) -> bool) -> Option<W> {
        if !self.waits(priority) {
            return None;
        }
        let patient = if self.pace.is_slow() { 1 } else { self.limits.patient };
        let room = self.room(priority, patient, now);
        let most = self.most_of_one(priority);
        let has_part = priority.is_patient() && self.urgent_until.is_some();
        let part = has_part.then(|| self.patient_part(patient, most, now));
        let (namespaces, troubles) = (&self.namespaces, &self.troubles);
        let permits = |namespace: &str, calls: &Calls| {
            if troubles.has(namespace, now) {
                room.in_trouble
            } else {
                room.usual && part.is_none_or(|part| part.permits(calls))
            }
        };
        let may = |namespace: &str, calls: &Calls| calls.under_way.all() < most && permits(namespace, calls);
        let mut popped = None;
        let mut gone = Vec::new();
        let turns = self.waiting.get_mut(priority as usize)?;
        let waiter = turns.pop_of(
            |namespace| namespaces.get(namespace).is_none_or(|calls| may(namespace, calls)),
            |namespace, waiter| {
                let is_wanted = counts(waiter);
                if is_wanted {
                    popped = Some(Arc::clone(namespace));
                } else {
                    gone.push(Arc::clone(namespace));
                }
                is_wanted
            },
        );
        self.count_no_more(gone, priority, now);
        let (waiter, namespace) = (waiter?, popped?);
        if priority == Priority::Urgent {
            self.urgent_since.pop_front();
        }
        let calls = self.calls(&namespace, priority, now);
        calls.waiting -= 1;
        calls.patient_waiting -= usize::from(priority.is_patient());
        *calls.under_way.of(priority) += 1;
        *self.under_way.of(priority) += 1;
        Some(waiter)
    }

    /// Calls of a namespace that may be under way when it gets another one of this priority.
    fn most_of_one(&self, priority: Priority) -> usize {
        if self.is_alone(priority) { self.limits.alone } else { self.limits.beside_others }
    }

    /// Whoever is waited for shares with others that are; the calls of all the rest have their bound.
    fn is_alone(&self, priority: Priority) -> bool {
        let beside = if priority.is_patient() { self.namespaces.len() } else { self.impatient };
        beside <= 1
    }

    /// Whether another call of this priority may be made while `patient` ones may that nobody waits for.
    fn room(&self, priority: Priority, patient: usize, now: Instant) -> Room {
        let awaited = self.limits.awaited;
        let awaited = if self.is_alone(priority) { awaited.min(self.limits.alone / 2) } else { awaited };
        let is_held_up = self.awaited_until.is_some() && self.awaited_pace.is_slow() && !self.is_urgent_overdue(now);
        let has_room = |beside: UnderWay, patient: usize| match priority {
            Priority::Awaited => beside.awaited < awaited.max(1) || !self.waits(Priority::Urgent),
            Priority::Urgent => !is_held_up || beside.urgent < self.limits.patient,
            Priority::Freeing | Priority::Launching | Priority::Normal | Priority::Preparing | Priority::Telling => {
                self.urgent_until.is_none() || beside.patient < patient
            }
        };
        let is_in_trouble = |namespace: &Arc<str>| self.troubles.has(namespace, now);
        let of_troubled = || self.namespaces.iter().filter(|(namespace, _)| is_in_trouble(namespace));
        let in_trouble = of_troubled().fold(UnderWay::default(), |sum, (_, calls)| sum.and(calls.under_way));
        // Lists of all namespaces are nobody's.
        let are_all = self.namespaces.keys().all(|namespace| namespace.is_empty() || is_in_trouble(namespace))
            || of_troubled().all(|(namespace, _)| self.troubles.has_with_all(namespace, now));
        let part = if are_all { patient } else { patient.div_ceil(2) };
        let beside = if priority.is_patient() { in_trouble } else { self.under_way };
        Room {
            usual: has_room(self.under_way - in_trouble, patient),
            in_trouble: in_trouble.all() < self.limits.in_trouble(are_all) && has_room(beside, part),
        }
    }

    /// An urgent call has waited for so long that it makes way for nobody.
    fn is_urgent_overdue(&self, now: Instant) -> bool {
        self.urgent_since.front().is_some_and(|since| now.duration_since(*since) >= OVERDUE)
    }

    /// What a namespace may have of `patient` calls, and of `most` calls in all.
    fn patient_part(&self, patient: usize, most: usize, now: Instant) -> PatientPart {
        let others = self.namespaces.iter().filter(|(namespace, _)| !self.troubles.has(namespace, now));
        let waiting = others.filter(|(_, calls)| calls.patient_waiting > 0 && calls.under_way.all() < most);
        // Rounded up: two that wait have all.
        PatientPart { most: patient.div_ceil(2), waiting: waiting.count() }
    }

    /// Whether calls of this namespace wait, or are about to: because others do, or most of those that may be under way
    /// are.
    pub(super) fn is_crowded(&self, of: &str, now: Instant) -> bool {
        self.is_crowded_for_all(now) || self.namespaces.get(of).is_some_and(|calls| calls.waiting > 0)
    }

    /// Whoever waits for others of its own namespace only, or because that is in trouble, makes no crowd for others.
    fn is_crowded_for_all(&self, now: Instant) -> bool {
        let most = self.most_of_one(Priority::Normal);
        let waits_for_others = |(namespace, calls): (&Arc<str>, &Calls)| {
            calls.waiting > 0 && calls.under_way.all() < most && !self.troubles.has(namespace, now)
        };
        4 * self.under_way.all() >= 3 * self.limits.all || self.namespaces.iter().any(waits_for_others)
    }

    /// Whether there is a crowd for this namespace, or was one a moment ago.
    pub(super) fn was_crowded(&self, of: &str, now: Instant) -> bool {
        let was = |until: Option<Instant>| until.is_some_and(|until| now < until);
        self.is_crowded(of, now) || was(self.crowded_until) || was(self.crowded_of.get(of).copied())
    }

    fn note_crowd(&mut self, now: Instant) {
        let until = now + CROWDED_FOR;
        if self.is_crowded_for_all(now) {
            self.crowded_until = Some(until);
        }
        for (namespace, _) in self.namespaces.iter().filter(|(_, calls)| calls.waiting > 0) {
            self.crowded_of.insert(Arc::clone(namespace), until);
        }
    }

    /// Whether calls of this namespace fail, or take long, by themselves.
    pub(super) fn is_in_trouble(&self, namespace: &str, now: Instant) -> bool {
        self.troubles.has(namespace, now)
    }

    /// How long a call of this priority that has ended, and took so long, keeps its place before it
    /// [leaves](Self::leave).
    pub(super) fn rest(&self, priority: Priority, took: Duration) -> Option<Duration> {
        let sets_in_motion = priority > Priority::Freeing;
        let makes_room = sets_in_motion && self.urgent_until.is_some() && self.pace.is_slow();
        makes_room.then(|| took.saturating_mul(RESTS_FOR).min(RESTS_AT_MOST))
    }

    /// A call has ended, or a try of it, which says this. Returns how long it took, if that says something of the API
    /// server.
    pub(super) fn heard(&mut self, namespace: &Arc<str>, said: Said, now: Instant) -> Option<Duration> {
        match said {
            Said::Nothing => return None,
            Said::Failed => self.troubles.failed(namespace, now),
            Said::Read(_) => {}
            Said::Wrote(took) => self.troubles.wrote(namespace, took, now),
        }
        let (Said::Read(took) | Said::Wrote(took)) = said else { return None };
        // Perhaps it was not the API server that took so long, and others that make calls suffer if it counts.
        let is_late = matches!(said, Said::Wrote(_)) && took >= SLOW && self.pace.is_outrun_by(took);
        let is_doubtful = is_late && self.namespaces.len() > 1;
        (!is_doubtful && !self.troubles.has(namespace, now)).then_some(took)
    }

    /// A call that was let in has ended. It took so long, if that says something of the API server.
    pub(super) fn leave(&mut self, namespace: &Arc<str>, priority: Priority, now: Instant, took: Option<Duration>) {
        if let Some(took) = took.filter(|_| !priority.is_patient()) {
            self.pace.note(took, now);
            if priority == Priority::Awaited {
                self.awaited_pace.note(took, now);
            }
        }
        let calls = self.calls(namespace, priority, now);
        calls.impatient -= usize::from(!priority.is_patient());
        *calls.under_way.of(priority) -= 1;
        *self.under_way.of(priority) -= 1;
        self.note_urgent(priority, now);
    }

    fn note_urgent(&mut self, priority: Priority, now: Instant) {
        if !priority.is_patient() {
            self.urgent_until = Some(now + GOING_ON);
        }
        if priority == Priority::Awaited {
            self.awaited_until = Some(now + GOING_ON);
        }
    }

    /// The calls of a namespace, which makes one of this priority now.
    fn calls(&mut self, namespace: &Arc<str>, priority: Priority, now: Instant) -> &mut Calls {
        let until = now + GOING_ON;
        let calls = self.namespaces.entry(Arc::clone(namespace));
        let calls = calls.or_insert(Calls {
            waiting: 0,
            under_way: UnderWay::default(),
            impatient: 0,
            patient_waiting: 0,
            until,
            impatient_until: None,
        });
        calls.until = until;
        if !priority.is_patient() {
            calls.impatient_until = Some(until);
        }
        calls
    }

    fn forget_who_is_gone(&mut self, now: Instant) {
        self.troubles.forget_what_is_past(now);
        self.pace.forget_what_is_past(now);
        self.awaited_pace.forget_what_is_past(now);
        self.crowded_of.retain(|_, until| now < *until);
        self.namespaces.retain(|_, calls| calls.waiting + calls.under_way.all() > 0 || now < calls.until);
        self.impatient = self.namespaces.values().filter(|calls| calls.is_impatient(now)).count();
        let awaited = self.under_way.awaited > 0 || self.waits(Priority::Awaited);
        let urgent = awaited || self.under_way.urgent > 0 || self.waits(Priority::Urgent);
        self.urgent_until = self.urgent_until.filter(|until| now < *until || urgent);
        self.awaited_until = self.awaited_until.filter(|until| now < *until || awaited);
        // What took long says nothing about calls that come after a pause.
        if self.urgent_until.is_none() {
            self.pace.pause();
        }
        if self.awaited_until.is_none() {
            self.awaited_pace.pause();
        }
    }

    fn waits(&self, priority: Priority) -> bool {
        self.waiting.get(priority as usize).is_some_and(|turns| !turns.is_empty())
    }
}

#[cfg(test)]
mod tests;
