//! The controller over a fake API server: scenarios with a crash at every call, and random walks.

mod creations;
mod crowds;
mod endings;
mod going;
mod memories;
mod metadata;
mod moves;
mod notices;
mod properties;
mod renewals;
mod scenarios;
mod simulation;
mod strays;
mod texts;
mod users;

use self::simulation::PeSimulation;
use streams_api::PePhase;

/// Until nothing changes, with no crash.
fn settle(simulation: &mut PeSimulation) {
    simulation.calm_down();
    simulation.check_rest();
}

/// How often the PE was launched and restarted, and its phase.
fn launches(simulation: &PeSimulation) -> (u64, u64, Option<PePhase>) {
    let status = simulation.pe().status.unwrap_or_default();
    (status.launch_count, status.restarts, status.phase)
}

/// Until nothing more is written, while no time passes.
fn work(simulation: &mut PeSimulation) {
    for _ in 0..8 {
        simulation.deliver_all();
        simulation.reconcile();
    }
}
