//! Conditions: what is true of an object, since when, and why (rule job-33).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// All PEs of the newest generation run, or have completed, and no consistent region has given up (job); the pod runs
/// (PE); the desired width is applied and runs (region).
pub const READY: &str = "Ready";
/// The job has a committed generation, and every pod of it was created.
pub const SUBMITTED: &str = "Submitted";
/// There is a plan of the job, compiled from its application.
pub const COMPILED: &str = "Compiled";
/// Every object that the committed generation needs could be written.
pub const RESOURCES_READY: &str = "ResourcesReady";
/// Every PE has a pod that runs, or has completed.
pub const PODS_READY: &str = "PodsReady";
/// Every PE has told, from the pod that it has now, that it has all of its connections, or has completed.
pub const CONNECTED: &str = "Connected";
/// The bundle that the job waits for cannot be had; since when is the time of the transition.
pub const BUNDLE_UNAVAILABLE: &str = "BundleUnavailable";
/// Something is being changed: a compilation or a roll-out.
pub const PROGRESSING: &str = "Progressing";
/// The desired widths were refused.
pub const RESIZE_REJECTED: &str = "ResizeRejected";
/// A resize takes longer than its time-out; the message says what it waits for.
pub const RESIZE_DELAYED: &str = "ResizeDelayed";
/// A user suspended the job: it has no pods.
pub const SUSPENDED: &str = "Suspended";
/// The job runs without some of its PEs, or one of its consistent regions has given up.
pub const DEGRADED: &str = "Degraded";
/// Somebody else changes what the operator sets, as often as it is restored.
pub const CONTENDED: &str = "Contended";
/// The API server drops or refuses what the operator sets: its custom resource definitions are of an earlier version.
pub const DEFINITIONS_OUTDATED: &str = "DefinitionsOutdated";
/// Something a user should know although it stops nothing.
pub const WARNING: &str = "Warning";
/// No job controls the PE any more: the job was deleted without it, or its owner reference was removed. Its pod runs
/// on, and nobody replaces it. Likewise of a consistent region, which goes on with such PEs.
pub const ORPHANED: &str = "Orphaned";
/// The pod was made from other options than the PE has now, or cannot be replaced although it should be.
pub const OUTDATED: &str = "Outdated";
/// Reason of [`OUTDATED`], unless no other pod could be created.
pub const OPTIONS_CHANGED: &str = "OptionsChanged";
/// Reason of [`READY`] of a job, and of other conditions of it and its regions: what the job consists of is not known,
/// as its plan is lost (rule job-28).
pub const PLAN_LOST: &str = "PlanLost";
/// What whoever hears of a lost plan can do, as a clause after one that names the plan. What is missing is said by the
/// message of [`DEGRADED`].
pub const PLAN_LOST_WAY_OUT: &str = "if nothing brings it back, delete the job and submit it anew";
/// Reason of [`READY`] of a consistent region that has given up, and of [`READY`] and [`DEGRADED`] of its job (rule
/// job-56).
pub const RESET_ATTEMPTS_EXHAUSTED: &str = "ResetAttemptsExhausted";
/// Reason of [`PROGRESSING`] of a job: who compiles and renders cannot be reached, and is asked again (rule job-20).
pub const FUSION_UNAVAILABLE: &str = "FusionUnavailable";
/// Reason of [`READY`] of a PE: its pod runs, and has not been running for long enough.
pub const SETTLING: &str = "Settling";

/// Longest message of a condition; longer ones are cut.
pub const MESSAGE_MAX: usize = 4096;

/// Sets the condition of type `kind`; the time of transition changes only with `status`. Returns whether anything
/// changed.
///
/// Conditions are kept sorted by type, so that equal sets are equal lists.
pub fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    status: bool,
    reason: &str,
    message: &str,
    observed_generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let status = if status { "True" } else { "False" };
    let message = cut(message, MESSAGE_MAX);
    let condition = |since: Time| Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation,
        last_transition_time: since,
    };
    match conditions.iter_mut().find(|existing| existing.type_ == kind) {
        Some(existing) => {
            let since = if existing.status == status { existing.last_transition_time.clone() } else { Time(now) };
            let next = condition(since);
            let changed = *existing != next;
            *existing = next;
            changed
        }
        None => {
            let position = conditions.partition_point(|existing| existing.type_.as_str() < kind);
            conditions.insert(position, condition(Time(now)));
            true
        }
    }
}

/// Removes the condition of type `kind`. Returns whether there was one.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != kind);
    conditions.len() != before
}

/// The condition of type `kind`.
pub fn get<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether the condition of type `kind` is there and `True`.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    get(conditions, kind).is_some_and(|condition| condition.status == "True")
}

/// The condition [`READY`] of a job, if it says that the plan of the job is lost (rule job-28).
pub fn plan_lost(conditions: &[Condition]) -> Option<&Condition> {
    get(conditions, READY).filter(|ready| ready.reason == PLAN_LOST)
}

/// Whether every PE of a job runs what it should, or has completed: it is [`READY`], or nothing but a consistent region
/// keeps it from that (rule job-56).
pub fn are_pes_ready(conditions: &[Condition]) -> bool {
    let ready = get(conditions, READY);
    ready.is_some_and(|ready| ready.status == "True" || ready.reason == RESET_ATTEMPTS_EXHAUSTED)
}

/// The longest prefix of `text` of at most `max` bytes that ends at a character.
pub fn cut(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_time_of_transition_moves_with_the_status_only() {
        let mut conditions = Vec::new();
        // status, reason, time -> changed, since
        let table = [
            (true, "A", 1, true, 1),
            (true, "A", 2, false, 1),
            (true, "B", 3, true, 1),
            (false, "B", 4, true, 4),
            (true, "A", 5, true, 5),
        ];
        for (status, reason, now, changed, since) in table {
            assert_eq!(set(&mut conditions, READY, status, reason, "m", None, at(now)), changed, "{now}");
            assert_eq!(get(&conditions, READY).unwrap().last_transition_time, Time(at(since)), "{now}");
            assert_eq!(is_true(&conditions, READY), status);
        }
        assert!(remove(&mut conditions, READY));
        assert!(!remove(&mut conditions, READY));
    }

    #[test]
    fn conditions_are_sorted_by_type() {
        let mut conditions = Vec::new();
        for kind in [READY, DEGRADED, SUBMITTED, PROGRESSING] {
            set(&mut conditions, kind, true, "R", "", None, at(1));
        }
        let kinds: Vec<_> = conditions.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(kinds, [DEGRADED, PROGRESSING, READY, SUBMITTED]);
    }

    #[test]
    fn a_plan_is_lost_if_the_condition_that_everybody_reads_says_so() {
        // condition, reason -> the plan is lost
        let table = [(READY, PLAN_LOST, true), (READY, "RollingOut", false), (PROGRESSING, PLAN_LOST, false)];
        for (kind, reason, expected) in table {
            let mut conditions = Vec::new();
            set(&mut conditions, kind, false, reason, "m", Some(3), at(1));
            assert_eq!(plan_lost(&conditions), conditions.first().filter(|_| expected), "{kind} {reason}");
        }
        assert_eq!(plan_lost(&[]), None);
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        let table = [("abc", 2, "ab"), ("abc", 3, "abc"), ("abc", 9, "abc"), ("aä", 2, "a"), ("ä", 0, "")];
        for (text, max, expected) in table {
            assert_eq!(cut(text, max), expected);
        }
    }
}
