//! How many calls a job costs: what a submission writes, per PE and per kind, so that it cannot grow unnoticed.

use super::fixture::with_system;
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::Widths;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Verb and resource -> most calls of a job with `pes` PEs that took so long; of all others there is none, but for
/// those that grow with time alone.
fn most(pes: u64, took: Duration) -> BTreeMap<(&'static str, &'static str), u64> {
    // How far it is, the job says from time to time (rule job-35), and each of its three regions after it.
    let told = took.as_secs() / 5;
    // Numbers besides the PEs: steps of the job, chunks, regions, and what is repeated on a busy machine.
    BTreeMap::from([
        (("patch", "streamspes"), pes),
        (("create", "services"), pes),
        (("create", "pods"), pes),
        (("create", "configmaps"), pes + 4),
        // This process has created them (rule pe-1).
        (("get", "streamspes"), 6),
        // That the pod was created, that it runs (rule pe-20).
        // A write that meets another one is repeated.
        (("update", "streamspes/status"), pes * 2 + 4),
        // The steps: job id, ADL, proposal, commit; that it is submitted, and that it is ready (rule job-50).
        (("update", "streamsjobs/status"), 8 + told),
        // That all run, of each; some meet another write.
        (("update", "streamsprs/status"), 5 + 3 * told),
        (("create", "streamsprs"), 3),
        (("create", "events"), 6),
    ])
}

/// Calls that have nothing to do with one job.
const OF_THE_PROCESS: [&str; 4] = ["leases", "nodes", "customresourcedefinitions", "namespaces"];

#[tokio::test]
async fn a_submission_makes_no_more_calls_than_it_needs() -> Result<()> {
    with_system("calls", async |it| {
        let before = it.frontend()?.calls().await?;
        let begun = Instant::now();
        it.submitted().await?;
        let after = it.frontend()?.calls().await?;
        let pes = Widths::default().processing_elements() as u64;
        let most = most(pes, begun.elapsed());
        let mut table = String::new();
        let mut too_many = Vec::new();
        for ((verb, resource), count) in &after {
            let made = count - before.get(&(verb.clone(), resource.clone())).copied().unwrap_or(0);
            if made == 0 || verb == "watch" || OF_THE_PROCESS.contains(&resource.as_str()) {
                continue;
            }
            table.push_str(&format!("{verb} {resource}: {made}\n"));
            let allowed = most.get(&(verb.as_str(), resource.as_str())).copied();
            // Single objects may be read: the counter of job ids, chunks.
            let allowed = allowed.unwrap_or(if verb == "get" || verb == "update" || verb == "patch" { 3 } else { 1 });
            if made > allowed {
                too_many.push(format!("{verb} {resource}: {made} instead of {allowed}"));
            }
        }
        println!("{pes} PEs:\n{table}");
        ensure!(too_many.is_empty(), "{too_many:#?}\n{pes} PEs:\n{table}");
        let pods = after.get(&("create".to_owned(), "pods".to_owned())).context("no pod was counted")?;
        ensure!(*pods >= pes, "calls are not counted: {table}");
        Ok(())
    })
    .await
}
