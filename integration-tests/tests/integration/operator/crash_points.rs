//! A sample of `cargo soak crash-points`: the frontend is killed at some of its writes, and some of its calls fail,
//! each at another place of the life of a job.

use crate::support::{control_plane, supervisor};
use anyhow::{Result, ensure};
use integration_tests::soak::crash_points::{self, Blow, CrashPointOptions, Operation, Watches};
use integration_tests::system::Programs;
use std::time::Duration;

#[tokio::test]
async fn a_frontend_that_is_struck_comes_to_the_same_end() -> Result<()> {
    let programs = Programs::build_with_faults(&supervisor()).await?;
    let options = CrashPointOptions {
        lanes: 2,
        frontends: 1,
        // About thirty points, of all operations and of all kinds.
        every: 97,
        offset: 11,
        blows: Blow::KILLS.into_iter().chain(Blow::FAULTS).collect(),
        watches: Watches::Good,
        operations: Operation::ALL.into(),
        within: Duration::from_secs(45),
    };
    let stop = std::future::pending();
    let outcome = crash_points::run(control_plane().await?, &supervisor(), &programs, &options, stop).await?;
    let tried: usize = outcome.points.values().map(|[tried, ..]| tried).sum();
    ensure!(tried > 0, "no point was tried: {:?}", outcome.calls);
    let failures: Vec<_> =
        outcome.failures.iter().map(|(point, struck, what)| format!("{point:?} ({struck}): {what}")).collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}
