//! Tests of the whole: every transition, every short history, any sequence of events.

mod history;
mod interrupted;
mod model;
mod properties;
mod transitions;

use crate::event::{Event, Member, Progress};
use crate::health::{Cause, Health, Launches};
use crate::settings::{Settings, Trigger};
use std::time::Duration;

const PERIOD: Duration = Duration::from_secs(30);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(180);
const RESET_TIMEOUT: Duration = Duration::from_secs(90);
/// The operator that may ask for drains.
const OPERATOR: &str = "Source";

fn periodic() -> Settings {
    Settings {
        trigger: Trigger::Periodic { period: PERIOD },
        drain_timeout: DRAIN_TIMEOUT,
        reset_timeout: RESET_TIMEOUT,
        max_consecutive_reset_attempts: 2,
    }
}

fn operator_driven() -> Settings {
    Settings { trigger: Trigger::OperatorDriven { operators: [OPERATOR.to_owned()].into() }, ..periodic() }
}

fn launches<const N: usize>(launches: [(u64, u32); N]) -> Launches {
    launches.into_iter().collect()
}

fn member(pe: u64, launch: u32) -> Member {
    Member { pe, launch }
}

/// PEs 0 and 1 are healthy.
fn healthy() -> Event {
    Event::Health(Health::Healthy(launches([(0, 1), (1, 1)])))
}

fn unhealthy() -> Event {
    Event::Health(Health::Unhealthy(Cause::NotRunning(1)))
}

/// All is written; of a PE in its first launch.
fn done(pe: u64, sequence: u64) -> Event {
    Event::Report(member(pe, 1), Progress::CheckpointDone { sequence })
}

fn blocking_done(pe: u64, sequence: u64) -> Event {
    Event::Report(member(pe, 1), Progress::BlockingCheckpointDone { sequence })
}

fn went_back(pe: u64, sequence: u64, attempt: u32) -> Event {
    Event::Report(member(pe, 1), Progress::ResetDone { sequence, attempt })
}

fn drain(sequence: u64) -> Event {
    Event::Drain { by: member(0, 1), operator: OPERATOR.to_owned(), sequence }
}

fn reset() -> Event {
    Event::Reset { by: None, is_forced: false }
}

fn forced_reset() -> Event {
    Event::Reset { by: None, is_forced: true }
}
