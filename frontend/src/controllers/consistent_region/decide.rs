//! What becomes of a region, and of its status. Pure.
//!
//! Knows: the object, its PEs, what has come of them, the machine. Must not know: clusters, mirrors, how PEs are told.

use super::Memory;
use crate::consistent_regions::answered::{ByPe, has_got, have_all_got};
use crate::consistent_regions::hand_over::Gap;
use crate::consistent_regions::members::MissedAt;
use crate::consistent_regions::reports::{Loss, Waiting};
use crate::consistent_regions::stored;
use crate::controllers::consistent_region_service::Way;
use crate::controllers::user_requests;
use crate::start_hash::Starts as _;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{ConsistentRegion, ConsistentRegionStatus, condition, names};
use streams_consistent_region::health::Cause;
use streams_consistent_region::{Event, Health, Ignored, Settings, State, Time, ToBeTold, Trigger, step};
use streams_kubernetes::events::Notice;
use streams_kubernetes::ownership::controller;

/// How often the words of a condition are written, if nothing else is: while a thousand PEs start, another one is the
/// missing one again and again.
const SAY_AGAIN: Duration = Duration::from_secs(5);

/// How soon a region is looked at again that waits until its PEs have asked, or until they are led here, or of which
/// the leader before may still say something.
const ASKED_AGAIN: Duration = Duration::from_secs(1);
/// How long whoever takes over waits for PEs that do not come, from when they are led here. Where names are looked up,
/// they are kept for 30 seconds at most, as clusters are usually set up. A PE looks up where it reports for each
/// report; where it asks, every 6 seconds, only once a minute.
const DRIVEN_WITHIN: Duration = Duration::from_secs(40);
/// The same, if what they look up stays: they come as soon as the nodes know the slices, and ask every 6 seconds.
const DRIVEN_BY_ADDRESS_WITHIN: Duration = Duration::from_secs(20);

/// How long PEs do not come at most as long as they are led here and run: they ask every 6 seconds, and where names are
/// looked up, they may ask somewhere else for a minute.
const HEARD_WITHIN: Duration = Duration::from_secs(80);
/// How soon a region is looked at again whose PEs do not come.
const HEARD_AGAIN: Duration = Duration::from_secs(6);

/// Why a region takes no step is told when its PEs were not led here for that long, whatever the reason is.
const LED_WITHIN: Duration = Duration::from_secs(40);

/// Reason of the condition, and of the Event, when resets have failed too often.
const EXHAUSTED: &str = condition::RESET_ATTEMPTS_EXHAUSTED;
/// Reason of the condition when what is stored cannot be read.
const UNREADABLE: &str = "RecordUnreadable";
/// Reason of the condition while the spec is not what the job controller has written.
const CHANGED: &str = "ChangedByOthers";
/// Reason of the condition, and of the Event, when times that the application says are too short.
const TOO_SHORT: &str = "TimesTooShort";
/// Reason of the condition while PEs cannot be led to the replica that is to take the region over.
const NOT_LED: &str = "NotLed";
/// Reason of the condition of a region that its job has left behind.
const JOB_DELETED: &str = "JobDeleted";

/// What is known of a region.
pub(crate) struct Observation {
    /// The region.
    pub(super) region: Arc<ConsistentRegion>,
    /// No state is stored of it, though it had one, or was driven by this replica, or its PEs ran before it was made.
    pub(super) has_lost_record: bool,
    /// What its PEs have got of what the region tells them.
    pub(super) answered: ByPe,
    /// Its PEs that are in other regions as well.
    pub(super) in_several: BTreeSet<u64>,
    /// Whether its PEs run and are connected.
    pub(super) health: Health,
    /// One of them did not, or was not, since they were looked at for the last step; though they may now.
    pub(super) was_missing: Option<Cause>,
    /// Whether the leader before has heard of other connections that its PEs lost, and could not store it. Nothing, as
    /// long as it may still say so.
    pub(super) unstored_losses: Option<bool>,
    /// When they were looked at.
    pub(super) looked_at: MissedAt,
    /// What PEs have reported.
    pub(super) reports: Vec<Waiting>,
    /// Each of its PEs has come to this replica, in its launch.
    pub(super) are_pes_led_here: bool,
    /// For how long none of them has come.
    pub(super) silence: Duration,
    /// None had come for so long that something may be lost, and each has since.
    pub(super) come_again: bool,
    /// How its PEs find this replica.
    pub(super) way: Way,
    /// Whether a report to the leader before may be lost, or one to this replica.
    pub(super) gap: Gap,
    /// What this replica has lost last.
    pub(super) loss: Option<Loss>,
    /// What this replica remembers.
    pub(super) memory: Memory,
    /// The time.
    pub(super) now: Timestamp,
}

/// Whether PEs come as they should, if they are led here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AreLed {
    /// As far as can be seen.
    #[default]
    Expected,
    /// Some have not reported what they were told to do in time.
    Late,
    /// All run, and none has come for long, with nothing else that would tell.
    Silent,
}

/// What is to be done.
#[derive(Default)]
pub(crate) struct Decision {
    /// The state from now on; none if the region is not driven.
    pub(super) state: Option<State>,
    /// The region with its status, if that is to be written.
    pub(super) written: Option<ConsistentRegion>,
    /// What people are told if it is written.
    pub(super) notices: Vec<Notice>,
    /// Why nothing came of some events.
    pub(super) ignored: Vec<String>,
    /// No step is taken now, and what PEs have reported counts later.
    pub(super) is_put_off: bool,
    /// Once the state is stored, nothing is missing that was lost before this step.
    pub(super) is_made_up_for: bool,
    /// Whether PEs come.
    pub(super) led: AreLed,
    /// When to look again.
    pub(super) look_again: Option<Duration>,
}

/// Decides for one region.
pub(super) fn decide(observed: &Observation) -> Decision {
    let region = &observed.region;
    if region.metadata.deletion_timestamp.is_some() {
        return Decision { is_put_off: true, ..Decision::default() };
    }
    if region.spec.is_changed_by_others(&region.metadata) {
        return changed_by_others(observed);
    }
    let known = match stored::state(region) {
        Ok(state) => state,
        Err(error) => return unreadable(observed, &error),
    };
    // It was deleted while its PEs ran, and made again, or somebody has taken the record away, or put back an earlier
    // one. If only the mirror is behind, what is written then is refused.
    let is_lost = observed.has_lost_record || known.sequence() < observed.memory.sequence;
    let before = if is_lost { State::of_driven_before(stored::time(observed.now)) } else { known };
    let settings = stored::settings(&region.spec);
    if let Some(wait) = until_led(observed, &settings, &before) {
        return put_off(observed, wait);
    }
    let requested = region.metadata.annotations.as_ref().and_then(|all| all.get(names::ANNOTATION_RESET_REQUESTED));
    let known = region.status.as_ref().and_then(|status| status.reset_requested.as_ref());
    let requested = requested.filter(|requested| user_requests::is_new(Some(requested), known));
    let Steps { state, ignored, wait, is_late, .. } = all_steps(observed, &settings, &before, requested.is_some());

    let mut status = region.status.clone().unwrap_or_default();
    if let Some(requested) = requested {
        status.reset_requested = Some(user_requests::remembered(requested));
    }
    status.observed_generation = region.metadata.generation;
    if state != before || is_lost || status.record.is_none() {
        // A state can always be written.
        let _ = stored::store(&mut status, &state);
    }
    let short = warn(observed, &mut status);
    let is_other = region.status.as_ref() != Some(&status);
    let (is_ready, reason, message) = said(&state, &observed.health, settings.max_consecutive_reset_attempts);
    let (written, say_again) = with_condition(observed, status, is_other, is_ready, reason, &message);
    let due = [state.deadline(&settings), wait].into_iter().flatten().map(|moment| until(moment, observed.now));
    let asked = state.to_be_seen().map(|_| ASKED_AGAIN);
    let told = state.to_be_told(&settings).map(|to_be_told| until(to_be_told.from, observed.now));
    let told = told.map(|wait| if wait.is_zero() { ASKED_AGAIN } else { wait });
    let (led, heard) = heard(observed, &settings, &state, is_late);
    let words = (observed.unstored_losses.is_none() && state.launches().is_some()).then_some(ASKED_AGAIN);
    Decision {
        written,
        notices: notices(&before, &state).into_iter().chain(short).collect(),
        ignored,
        is_put_off: false,
        is_made_up_for: is_made_up_for(&settings, &before, &state, stored::time(observed.now)),
        led,
        look_again: due.chain(say_again).chain(asked).chain(told).chain(heard).chain(words).min(),
        state: Some(state),
    }
}

/// Steps that are taken one after the other.
struct Steps<'a> {
    settings: &'a Settings,
    now: Time,
    state: State,
    /// Why nothing came of what PEs have reported.
    ignored: Vec<String>,
    /// What had to wait comes again then.
    wait: Option<Time>,
    /// Some PE has not reported in time.
    is_late: bool,
}

impl Steps<'_> {
    fn take(&mut self, event: &Event, by: Option<u64>) {
        let next = step(self.settings, &self.state, event, self.now);
        self.state = next.state;
        match (next.ignored, by) {
            (Some(Ignored::TooSoon { until }), _) => self.wait = Some(until),
            (Some(reason), Some(pe)) => self.ignore(event, pe, &reason),
            _ => {}
        }
    }

    fn ignore(&mut self, event: &Event, pe: u64, reason: &Ignored) {
        self.ignored.push(format!("{event:?} of PE {pe}: {reason}"));
    }
}

/// Another replica has driven the region, and this one has not yet.
fn is_to_be_taken_over(observed: &Observation) -> bool {
    let was_driven = observed.region.status.as_ref().is_some_and(|status| status.record.is_some());
    was_driven && !observed.memory.has_taken_over
}

/// Whether it matters to a region that a report is lost.
fn misses_reports(settings: &Settings, state: &State, now: Time) -> bool {
    // One that waits until its PEs have asked waits for no report, and begins to wait anew.
    state.to_be_seen().is_none() && step(settings, state, &Event::TakenOver, now).ignored.is_none()
}

/// Whether whoever takes a region over would reset it if a report may be lost. If tuples are processed while a
/// checkpoint is still being written, it waits for the rest of it.
fn suffers(settings: &Settings, state: &State, now: Time) -> bool {
    state.name() != "CHECKPOINT_PENDING" && misses_reports(settings, state, now)
}

/// Whether nothing is missing any more of what PEs had reported before a step, however much of it is lost: the region
/// waits for no report before the step or after it, a reset begins, or all PEs have reported what it was waiting for.
/// What they report next follows from what they are told after the step (rule consistent-region-14).
fn is_made_up_for(settings: &Settings, before: &State, after: &State, now: Time) -> bool {
    let have_all_reported = is_waiting_for_reports(before) && after.name() == "PROCESSING";
    let [waited, waits] = [before, after].map(|state| misses_reports(settings, state, now));
    !waited || !waits || begins_reset(before, after) || have_all_reported
}

/// How soon a region is looked at again before it is taken over; nothing, if it need not wait. PEs report once what
/// they were told to do. As long as they are led to the leader before, that is lost (rule consistent-region-14), and
/// whether something is, the leader before may still say.
fn until_led(observed: &Observation, settings: &Settings, state: &State) -> Option<Duration> {
    if !is_to_be_taken_over(observed) {
        return None;
    }
    if observed.are_pes_led_here {
        let is_said_later = observed.gap == Gap::Unknown && suffers(settings, state, stored::time(observed.now));
        return is_said_later.then_some(ASKED_AGAIN);
    }
    let within = match observed.way {
        Way::Elsewhere => return Some(ASKED_AGAIN),
        Way::ByName => DRIVEN_WITHIN,
        Way::ByAddress => DRIVEN_BY_ADDRESS_WITHIN,
    };
    let led_at = observed.memory.led_at.unwrap_or(observed.now);
    // If the clock was put back, nobody knows how long that is ago, and nobody waits.
    let passed = Duration::try_from(observed.now.duration_since(led_at)).unwrap_or(within);
    let rest = within.saturating_sub(passed);
    (!rest.is_zero()).then(|| rest.min(ASKED_AGAIN))
}

/// No step is taken for so long. If that is because PEs cannot be led here, which may last, people are told.
fn put_off(observed: &Observation, wait: Duration) -> Decision {
    let (region, since) = (&observed.region, observed.memory.elsewhere_since.unwrap_or(observed.now));
    let passed = Duration::try_from(observed.now.duration_since(since)).unwrap_or_default();
    let is_told = observed.way == Way::Elsewhere && !observed.are_pes_led_here && passed >= LED_WITHIN;
    let (mut written, mut say_again) = (None, None);
    if is_told {
        let (status, service) =
            (region.status.clone().unwrap_or_default(), names::consistent_region_service(&region.spec.job_name));
        // These stay until the region takes a step, which is a while after the slices are written.
        let words = format!(
            "it waits until its PEs come to this leader, and takes no step: for {} s or more the EndpointSlices of \
             Service {service} did not lead them here",
            LED_WITHIN.as_secs()
        );
        (written, say_again) = with_condition(observed, status, false, false, NOT_LED, &words);
    }
    let look_again = say_again.into_iter().chain([wait]).min();
    Decision { written, look_again, is_put_off: true, ..Decision::default() }
}

/// Everything that has happened, one after the other.
fn all_steps<'a>(observed: &Observation, settings: &'a Settings, before: &State, is_reset: bool) -> Steps<'a> {
    let now = stored::time(observed.now);
    let mut steps = Steps { settings, now, state: before.clone(), ignored: Vec::new(), wait: None, is_late: false };
    let pes: BTreeSet<u64> = observed.region.spec.pe_ids.iter().copied().collect();
    // What is lost with a PE, or a connection, that was missing is in no checkpoint which PEs have reported since. What
    // is missing now says so itself, and why.
    let is_healthy = matches!(observed.health, Health::Healthy(_));
    // Connections of which only the leader before has heard are lost as well. A reset that goes on has not failed by
    // them: who takes over begins it again.
    let are_some_lost = is_healthy && observed.unstored_losses == Some(true);
    let begins_again = are_some_lost && before.name() == "RESETTING";
    let lost = pes.first().copied().filter(|_| are_some_lost && !begins_again).map(Cause::WasMissing);
    if let Some(cause) = observed.was_missing.filter(|_| is_healthy).or(lost) {
        steps.take(&Event::Health(Health::Unhealthy(cause)), None);
    }
    // Nothing is lost of it that a reset would make up for.
    let is_whole = observed.gap == Gap::None && suffers(settings, before, now);
    if is_to_be_taken_over(observed) && !is_whole || observed.come_again || begins_again {
        steps.take(&Event::TakenOver, None);
    }
    if steps.state.launches().is_some() {
        steps.take(&Event::Health(observed.health.clone()), None);
    }
    for report in &observed.reports {
        // As long as a region is not healthy, its state does not know who is in it.
        if pes.contains(&report.pe) {
            steps.take(&report.event, Some(report.pe));
        } else {
            steps.ignore(&report.event, report.pe, &Ignored::NotAMember);
        }
    }
    if is_reset {
        steps.take(&Event::Reset { by: None, is_forced: true }, None);
    }
    steps.take(&Event::Health(observed.health.clone()), None);
    let to_be_seen = steps.state.to_be_seen();
    if to_be_seen.is_some_and(|(message, launches)| have_all_got(&observed.answered, launches, message)) {
        steps.take(&Event::SeenByAll, None);
    }
    let to_be_told = steps.state.to_be_told(settings);
    if to_be_told.is_some_and(|ToBeTold { message, launches, .. }| {
        let mut of_others = launches.pes().filter(|pe| observed.in_several.contains(pe));
        of_others.all(|pe| has_got(&observed.answered, pe, launches.of(pe), message))
    }) {
        steps.take(&Event::Told, None);
    }
    let was_waiting = is_waiting_for_reports(&steps.state);
    let attempts_before = attempts(&steps.state);
    steps.take(&Event::Time, None);
    steps.is_late = was_waiting && (attempts(&steps.state) != attempts_before || !is_waiting_for_reports(&steps.state));
    steps
}

fn is_waiting_for_reports(state: &State) -> bool {
    matches!(state.name(), "DRAINING" | "CHECKPOINT_PENDING" | "RESETTING")
}

/// Whether PEs come as they should, and when that is to be looked at again. Where time leads a region on, that tells.
/// An operator may drain one without it, once; if that does not come here, the region would rest for ever (rule
/// consistent-region-14).
fn heard(observed: &Observation, settings: &Settings, state: &State, is_late: bool) -> (AreLed, Option<Duration>) {
    let is_expected = matches!(settings.trigger, Trigger::OperatorDriven { .. }) && state.name() == "PROCESSING";
    let rest = HEARD_WITHIN.saturating_sub(observed.silence);
    match (is_expected, is_late) {
        (true, _) if rest.is_zero() => (AreLed::Silent, Some(HEARD_AGAIN)),
        (true, _) if observed.memory.silent_since.is_some() && !observed.come_again => {
            (AreLed::Expected, Some(ASKED_AGAIN))
        }
        (true, false) => (AreLed::Expected, Some(rest)),
        (_, true) => (AreLed::Late, None),
        (false, false) => (AreLed::Expected, None),
    }
}

/// Conditions that say what is unusual about a region, and what people are told when there is something new.
fn warn(observed: &Observation, status: &mut ConsistentRegionStatus) -> Option<Notice> {
    let Observation { region, now, .. } = observed;
    let (generation, conditions) = (region.metadata.generation, &mut status.conditions);
    if controller(&region.metadata).is_none() {
        let words = "the job was deleted without it; it goes on with the PEs that were left behind";
        condition::set(conditions, condition::ORPHANED, true, JOB_DELETED, words, generation, *now);
    } else {
        condition::remove(conditions, condition::ORPHANED);
    }
    let Some(words) = stored::too_short(&region.spec) else {
        condition::remove(conditions, condition::WARNING);
        return None;
    };
    let is_known = condition::get(conditions, condition::WARNING).is_some_and(|known| known.message == words);
    condition::set(conditions, condition::WARNING, true, TOO_SHORT, &words, generation, *now);
    (!is_known).then(|| Notice::warning(TOO_SHORT, words))
}

/// The region with this status and condition, if that is to be written; else, when its words are.
fn with_condition(
    observed: &Observation,
    mut status: ConsistentRegionStatus,
    is_other: bool,
    is_ready: bool,
    reason: &str,
    message: &str,
) -> (Option<ConsistentRegion>, Option<Duration>) {
    let region = &observed.region;
    let generation = region.metadata.generation;
    let before = condition::get(&status.conditions, condition::READY).cloned();
    let conditions = &mut status.conditions;
    if !condition::set(conditions, condition::READY, is_ready, reason, message, generation, observed.now) && !is_other {
        return (None, None);
    }
    let is_same = before.is_some_and(|before| before.reason == reason && (before.status == "True") == is_ready);
    let said_at = observed.memory.said_at.filter(|_| is_same && !is_other);
    if let Some(said_at) = said_at {
        let wait = until(said_at.after(SAY_AGAIN), observed.now);
        if !wait.is_zero() {
            return (None, Some(wait));
        }
    }
    (Some(ConsistentRegion { status: Some(status), ..(**region).clone() }), None)
}

/// What the condition says of a state (rule consistent-region-13).
fn said(state: &State, health: &Health, attempts_max: u32) -> (bool, &'static str, String) {
    let missing = match health {
        Health::Unhealthy(cause) => cause.to_string(),
        Health::Healthy(_) => String::new(),
    };
    match state.name() {
        "STARTED" => (false, "Starting", missing),
        "UNHEALTHY" => (false, "Unhealthy", missing),
        "RESETTING" => (false, "Resetting", format!("it goes back to checkpoint {}", state.last_completed())),
        "MAXIMUM_RESET_ATTEMPTS_REACHED" => {
            let ask = names::ANNOTATION_RESET_REQUESTED;
            let words = format!("{attempts_max} resets in a row have failed; annotate it with {ask} to reset it");
            (false, EXHAUSTED, words)
        }
        _ => (true, "Processing", String::new()),
    }
}

/// What people are told of a change.
fn notices(before: &State, after: &State) -> Vec<Notice> {
    let mut notices = Vec::new();
    if begins_reset(before, after) {
        let (from, to) = (before.name(), after.last_completed());
        notices.push(Notice::normal("Reset", format!("from {from} back to checkpoint {to}")));
    }
    if after.name() == "MAXIMUM_RESET_ATTEMPTS_REACHED" && before.name() != after.name() {
        let words = format!("too many resets in a row have failed, to checkpoint {}", after.last_completed());
        notices.push(Notice::warning(EXHAUSTED, words));
    }
    notices
}

/// Whether a reset begins, or another attempt of one.
fn begins_reset(before: &State, after: &State) -> bool {
    let is_reset = |state: &State| state.name() == "RESETTING";
    is_reset(after) && (!is_reset(before) || attempts(before) != attempts(after))
}

fn attempts(state: &State) -> u32 {
    state.figures().n_current_reset_attempts
}

/// What is stored cannot be read. The region rests: sequence ids must not begin again while PEs know later ones.
fn unreadable(observed: &Observation, error: &serde_json::Error) -> Decision {
    let status = observed.region.status.clone().unwrap_or_default();
    let words = format!("status.record cannot be read, so the region is not driven: {error}");
    let (written, look_again) = with_condition(observed, status, false, false, UNREADABLE, &words);
    let notices = vec![Notice::warning(UNREADABLE, words)];
    Decision { written, notices, look_again, is_put_off: true, ..Decision::default() }
}

/// Somebody else has changed the spec, which is about to be restored. Until then the region takes no step: with other
/// PEs it would be reset, and again when it has its own (rule consistent-region-13).
fn changed_by_others(observed: &Observation) -> Decision {
    let status = observed.region.status.clone().unwrap_or_default();
    let words = "somebody else than the operator changed its spec; it has to be restored first";
    let (written, look_again) = with_condition(observed, status, false, false, CHANGED, words);
    Decision { written, look_again, is_put_off: true, ..Decision::default() }
}

/// How long it is until a moment; nothing if it has passed.
fn until(moment: Time, now: Timestamp) -> Duration {
    Duration::from_millis(moment.milliseconds_since(stored::time(now)))
}
