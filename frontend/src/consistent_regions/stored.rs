//! Between the object of a region and the machine that drives it (rule consistent-region-13).
//!
//! The state of the machine is the field `record` of the status; what people see beside it follows from it.
//!
//! Knows: the object, the machine. Must not know: who asks.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as KubernetesTime;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;
use streams_api::consistent_region::RegionTrigger;
use streams_api::{ConsistentRegion, ConsistentRegionSpec, ConsistentRegionStatus};
use streams_consistent_region::{Settings, State, Time, Trigger};

/// Shortest period and time-outs. With shorter ones a region would be written again and again, and get nowhere.
const SHORTEST: Duration = Duration::from_secs(1);

/// What an application says about a region, as it is in force (rule consistent-region-5).
pub(crate) fn settings(spec: &ConsistentRegionSpec) -> Settings {
    let in_force = |milliseconds| Duration::from_millis(milliseconds).max(SHORTEST);
    let trigger = match spec.trigger {
        RegionTrigger::Periodic => Trigger::Periodic { period: in_force(spec.period_milliseconds.unwrap_or_default()) },
        RegionTrigger::OperatorDriven => {
            Trigger::OperatorDriven { operators: spec.trigger_operators.iter().cloned().collect() }
        }
    };
    Settings {
        trigger,
        drain_timeout: in_force(spec.drain_timeout_milliseconds),
        reset_timeout: in_force(spec.reset_timeout_milliseconds),
        max_consecutive_reset_attempts: spec.max_consecutive_reset_attempts,
    }
}

/// Which of the times that an application says are not in force, in words; nothing if all are.
pub(crate) fn too_short(spec: &ConsistentRegionSpec) -> Option<String> {
    let is_periodic = spec.trigger == RegionTrigger::Periodic;
    let times = [
        ("the period", is_periodic.then(|| spec.period_milliseconds.unwrap_or_default())),
        ("drainTimeout", Some(spec.drain_timeout_milliseconds)),
        ("resetTimeout", Some(spec.reset_timeout_milliseconds)),
    ];
    let short = times.into_iter().filter_map(|(name, time)| {
        let time = time.filter(|time| Duration::from_millis(*time) < SHORTEST)?;
        Some(format!("{name} ({time} ms)"))
    });
    let short: Vec<String> = short.collect();
    let words = || format!("shorter than a second, which is what counts: {}", short.join(", "));
    (!short.is_empty()).then(words)
}

/// The state of a region; that of a new one if nothing is stored.
///
/// # Errors
/// What is stored cannot be read: somebody has edited it, or a newer version has written it.
pub(crate) fn state(region: &ConsistentRegion) -> Result<State, serde_json::Error> {
    let record = region.status.as_ref().and_then(|status| status.record.as_ref());
    record.map_or_else(|| Ok(State::new()), serde::Deserialize::deserialize)
}

/// Puts a state into a status.
///
/// # Errors
/// None: a state can always be written.
pub(crate) fn store(status: &mut ConsistentRegionStatus, state: &State) -> Result<(), serde_json::Error> {
    let figures = state.figures();
    let completed = i64::try_from(figures.last_consistent_state_time_milliseconds).unwrap_or(i64::MAX);
    status.record = Some(serde_json::to_value(state)?);
    status.state = Some(state.name().to_owned());
    status.last_completed_checkpoint = Some(state.last_completed());
    // As all times of Kubernetes, it has whole seconds.
    let completed = Timestamp::from_second(completed.div_euclid(1_000)).ok().filter(|_| completed > 0);
    status.last_completed_time = completed.map(KubernetesTime);
    status.reset_attempts = Some(figures.n_current_reset_attempts);
    Ok(())
}

/// A moment, as the machine has it.
pub(crate) fn time(now: Timestamp) -> Time {
    Time(u64::try_from(now.as_millisecond()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;
    use streams_api::consistent_region::GIVEN_UP;

    #[test]
    fn what_is_stored_is_read_again_and_people_see_what_follows_from_it() {
        let record = json!({
            "sequence": 3, "lastCompleted": 2, "retired": 1, "attempts": 1, "attemptsBefore": 1,
            "phase": {"processing": {"launches": {"1": [0], "2": [1]}, "told": "resumed", "since": 39_000}},
            "measured": {"drains": {"samples": [20], "last": {"sequence": 2, "at": 38_999}}},
        });
        let mut region = ConsistentRegion::new("flow-cr0", ConsistentRegionSpec::default());
        assert_eq!(state(&region).unwrap(), State::new(), "nothing is stored of a new one");
        region.status = Some(ConsistentRegionStatus { record: Some(record.clone()), ..Default::default() });
        let read = state(&region).unwrap();
        let mut status = ConsistentRegionStatus::default();
        store(&mut status, &read).unwrap();
        assert_eq!(status.record.as_ref(), Some(&record));
        let shown = (status.state.as_deref(), status.last_completed_checkpoint, status.reset_attempts);
        assert_eq!(shown, (Some("PROCESSING"), Some(2), Some(1)));
        assert_eq!(status.last_completed_time.map(|time| time.0.as_second()), Some(38));
    }

    #[test]
    fn a_region_that_has_given_up_is_told_from_others_by_its_name() {
        let (given_up, unhealthy) = (json!({"maximumResetAttemptsReached": {}}), json!({"unhealthy": {}}));
        for (phase, expected) in [(given_up, true), (unhealthy, false)] {
            let record = json!({"sequence": 3, "lastCompleted": 2, "phase": phase});
            let state: State = serde_json::from_value(record).unwrap();
            let mut status = ConsistentRegionStatus::default();
            store(&mut status, &state).unwrap();
            assert_eq!(status.state.as_deref() == Some(GIVEN_UP), expected, "{status:?}");
        }
    }

    #[test]
    fn times_that_are_too_short_are_a_second_and_told() {
        let spec = |trigger, period, drain, reset| ConsistentRegionSpec {
            trigger,
            period_milliseconds: period,
            drain_timeout_milliseconds: drain,
            reset_timeout_milliseconds: reset,
            ..ConsistentRegionSpec::default()
        };
        let (periodic, driven) = (RegionTrigger::Periodic, RegionTrigger::OperatorDriven);
        let words = |which: &str| Some(format!("shorter than a second, which is what counts: {which}"));
        // trigger, period, drain and reset time-outs -> words
        let table = [
            (spec(periodic, Some(1_000), 1_000, 1_000), None),
            (spec(driven, None, 1_000, 1_000), None),
            (spec(periodic, Some(0), 1_000, 999), words("the period (0 ms), resetTimeout (999 ms)")),
            (spec(periodic, None, 1_000, 1_000), words("the period (0 ms)")),
            (spec(driven, None, 0, 0), words("drainTimeout (0 ms), resetTimeout (0 ms)")),
        ];
        for (spec, expected) in table {
            assert_eq!(too_short(&spec), expected);
            let settings = settings(&spec);
            assert_eq!((settings.drain_timeout, settings.reset_timeout), (SHORTEST, SHORTEST));
            assert!(matches!(
                settings.trigger,
                Trigger::OperatorDriven { .. } | Trigger::Periodic { period: SHORTEST }
            ));
        }
    }

    #[test]
    fn settings_are_those_of_the_object() {
        let spec = |trigger| ConsistentRegionSpec {
            trigger,
            period_milliseconds: Some(1_500),
            drain_timeout_milliseconds: 2_000,
            reset_timeout_milliseconds: 3_000,
            max_consecutive_reset_attempts: 4,
            trigger_operators: vec!["A.B".to_owned()],
            ..ConsistentRegionSpec::default()
        };
        let table = [
            (RegionTrigger::Periodic, Trigger::Periodic { period: Duration::from_millis(1_500) }),
            (RegionTrigger::OperatorDriven, Trigger::OperatorDriven { operators: BTreeSet::from(["A.B".to_owned()]) }),
        ];
        for (trigger, expected) in table {
            let settings = settings(&spec(trigger));
            assert_eq!(settings.trigger, expected);
            assert_eq!(
                (settings.drain_timeout, settings.reset_timeout),
                (Duration::from_secs(2), Duration::from_secs(3))
            );
            assert_eq!(settings.max_consecutive_reset_attempts, 4);
        }
    }
}
