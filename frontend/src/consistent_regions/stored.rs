//! Between the object of a region and the machine that drives it.
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

/// What an application says about a region.
pub(crate) fn settings(spec: &ConsistentRegionSpec) -> Settings {
    let trigger = match spec.trigger {
        RegionTrigger::Periodic => {
            Trigger::Periodic { period: Duration::from_millis(spec.period_milliseconds.unwrap_or_default()) }
        }
        RegionTrigger::OperatorDriven => {
            Trigger::OperatorDriven { operators: spec.trigger_operators.iter().cloned().collect() }
        }
    };
    Settings {
        trigger,
        drain_timeout: Duration::from_millis(spec.drain_timeout_milliseconds),
        reset_timeout: Duration::from_millis(spec.reset_timeout_milliseconds),
        max_consecutive_reset_attempts: spec.max_consecutive_reset_attempts,
    }
}

/// The state of a region; that of a new one if nothing is stored.
///
/// # Errors
/// What is stored cannot be read: somebody has edited it, or a newer version has written it.
pub(crate) fn state(region: &ConsistentRegion) -> Result<State, serde_json::Error> {
    let record = region.status.as_ref().and_then(|status| status.record.as_ref());
    record.map_or_else(|| Ok(State::new()), |record| serde::Deserialize::deserialize(record))
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
