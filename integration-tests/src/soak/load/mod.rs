//! How much the operator does at once, and what it costs: many jobs, a large one, each beside a bare client that writes
//! the same objects; and what one tenant notices of another.
//!
//! ```text
//!   phases:  jobs are created, run, are resized; two tenants
//!   bare:    the objects that were there, written by a plain client
//! ```
//!
//! Knows: what users do, objects that are there. Must not know: how the operator makes them.

pub(super) mod bare;
mod phases;
pub mod report;

use self::phases::{Measured, Tenants};
use super::deployed::{as_deployed, room_for};
use crate::sample;
use crate::system::Programs;
use anyhow::Result;
use std::time::{Duration, Instant};
use streams_control_plane::process::Supervisor;

/// Jobs that are created at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// How many.
    pub jobs: usize,
    /// In how many namespaces.
    pub namespaces: usize,
    /// Width of the widest region: from it follows the number of PEs.
    pub clean: u32,
}

impl Shape {
    /// Jobs of the sample application as it is, of 12 PEs.
    pub fn many(jobs: usize, namespaces: usize) -> Self {
        Self { jobs, namespaces, clean: sample::Widths::default().clean }
    }

    /// One job of this number of PEs.
    pub fn large(pes: usize) -> Self {
        Self { jobs: 1, namespaces: 1, clean: Self::clean_for(pes) }
    }
}

/// Options of a run.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// What is measured, one after the other.
    pub shapes: Vec<Shape>,
    /// Calls that the bare client, and whoever creates jobs, makes at the same time.
    pub at_once: usize,
    /// Longest time for each thing that is waited for.
    pub within: Duration,
    /// Resizes of a tenant, alone and beside a hostile one; 0: this is left out.
    pub resizes: usize,
    /// PEs of the hostile tenant's large job.
    pub hostile_pes: usize,
    /// What else the machine did.
    pub beside: String,
}

/// What a run has measured.
#[derive(Debug, Default)]
pub struct LoadOutcome {
    measured: Vec<Measured>,
    tenants: Option<Tenants>,
    /// What went wrong, and when.
    pub failures: Vec<String>,
    took: Duration,
    commit: String,
}

/// Runs it.
///
/// # Errors
/// The run cannot begin. Later failures are in the result.
pub async fn run(
    supervisor: &Supervisor,
    options: &LoadOptions,
    stop: impl Future<Output = ()>,
) -> Result<LoadOutcome> {
    let commit = super::commit::commit();
    let programs = Programs::build(supervisor).await?;
    let most = options.shapes.iter().map(|shape| shape.jobs * shape.widths().processing_elements() * 2).max();
    let most = most.unwrap_or_default().max(4 * options.hostile_pes);
    let start = Instant::now();
    let control_plane = room_for(supervisor, most).await?;
    let mut outcome = LoadOutcome { commit, ..LoadOutcome::default() };
    let everything = async {
        for shape in options.shapes.iter().copied() {
            let measured = async {
                let system = as_deployed(supervisor, &programs, &control_plane).await?;
                phases::measure(&control_plane, system, options, shape).await
            };
            match measured.await {
                Ok(measured) => outcome.measured.push(measured),
                Err(error) => outcome.failures.push(format!("{} jobs of width {}: {error:#}", shape.jobs, shape.clean)),
            }
        }
        if options.resizes > 0 {
            let measured = async {
                let system = as_deployed(supervisor, &programs, &control_plane).await?;
                phases::tenants(&control_plane, &system, options).await
            };
            match measured.await {
                Ok(tenants) => outcome.tenants = Some(tenants),
                Err(error) => outcome.failures.push(format!("two tenants: {error:#}")),
            }
        }
    };
    tokio::select! {
        () = everything => {}
        () = stop => {}
    }
    outcome.took = start.elapsed();
    control_plane.stop().await?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::Shape;

    #[test]
    fn a_large_job_has_the_number_of_pes_that_is_asked_for() {
        for pes in [6, 800, 1_000, 10_000] {
            assert_eq!(Shape::large(pes).widths().processing_elements(), pes);
        }
        assert_eq!(Shape::many(300, 12).widths().processing_elements(), 12);
    }
}
