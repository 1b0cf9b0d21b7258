//! How many calls a job costs: what a submission and a resize write, per PE and per kind, so that it cannot grow
//! unnoticed.

use super::fixture::{WITHIN, resize_of_clean, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::Tries;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use streams_api::Resize;
use streams_proto::elasticity::v1::resize_request::WaitFor;

/// Verb and resource -> most calls of a job with `pes` PEs that took so long; of all others there is none, but for
/// those that grow with time alone.
fn most(pes: u64, took: Duration) -> BTreeMap<(&'static str, &'static str), u64> {
    // How far it is, the job says from time to time (rule job-35), and each of its three regions after it.
    let told = took.as_secs() / 5;
    // Numbers besides the PEs: steps of the job, chunks, regions, and what is repeated on a busy machine.
    BTreeMap::from([
        (("create", "streamspes"), pes),
        // One more in a namespace without jobs until then (rule pe-api-8).
        (("create", "services"), pes + 1),
        (("get", "services"), 1),
        // Of both families of addresses.
        (("get", "endpointslices"), 2),
        (("create", "pods"), pes),
        (("create", "configmaps"), pes + 4),
        // This process has created them (rule pe-1).
        (("get", "streamspes"), 6),
        // That the pod was created, that it runs (rule pe-20). On a busy machine some wait in between, and say so.
        (("update", "streamspes/status"), pes * 2 + 4),
        // The steps: job id with the ADL, proposal, commit; that it is submitted, and that it is ready (rule job-50).
        // The job id goes alone on a machine that is busy for a second.
        (("update", "streamsjobs/status"), 6 + told),
        // That all run, of each. On a busy machine some say more before that.
        (("update", "streamsprs/status"), 5 + 3 * told),
        (("create", "streamsprs"), 3),
        (("create", "events"), 6),
    ])
}

/// Writes that may meet another one, which depends on how busy the machine is.
const MET_ANOTHER: u64 = 8;
/// Calls that have nothing to do with one job.
const OF_THE_PROCESS: [&str; 4] = ["leases", "nodes", "customresourcedefinitions", "namespaces"];

#[tokio::test]
async fn a_submission_makes_no_more_calls_than_it_needs() -> Result<()> {
    with_system("calls", async |it| {
        let before = it.frontend()?.calls().await?;
        let begun = Instant::now();
        it.submitted().await?;
        let made = made_since(&before, &it.frontend()?.calls().await?);
        let pes = Widths::default().processing_elements() as u64;
        // Single objects may be read besides: the counter of job ids, chunks.
        compare(&made, &most(pes, begun.elapsed()), [3, 1])?;
        let pods = made.get(&("create".to_owned(), "pods".to_owned())).context("no pod was counted")?;
        ensure!(pods.answered >= pes, "calls are not counted: {made:?}");
        Ok(())
    })
    .await
}

/// Verb and resource -> most calls of one request that makes `Clean` one channel wider or narrower, until it is rolled
/// out; of all others there is none. `until_written`: how long it took until its widths were written.
fn most_of_resize(
    restarted: u64,
    until_written: Duration,
    took: Duration,
) -> BTreeMap<(&'static str, &'static str), u64> {
    // How far it is, the job says from time to time (rule job-35), and each of its three regions after it.
    let told = took.as_secs() / 5;
    // PEs that get a pod: one that is new, too.
    let started = restarted + 1;
    BTreeMap::from([
        (("create", "streamsresizes"), 1),
        // Its region as it is at this moment (rule elasticity-16).
        (("get", "streamsprs"), 1),
        // That it is admitted, written, rolled out; and that it is planned if that takes a second (rule elasticity-17).
        (("update", "streamsresizes/status"), if until_written < Duration::from_secs(1) { 3 } else { 4 }),
        // The proposal, the commit, that it is rolled out, and how many PEs are left before (rule job-50).
        (("update", "streamsjobs/status"), 4 + told),
        // The plan and the texts.
        (("create", "configmaps"), 1 + started),
        // The plan and the texts of the generation before.
        (("delete", "configmaps"), 2 + started),
        // The port labels.
        (("patch", "configmaps"), 1),
        (("create", "services"), 1),
        (("delete", "services"), 1),
        (("create", "streamspes"), 1),
        (("patch", "streamspes"), restarted),
        (("delete", "streamspes"), 1),
        // Its width, once more each time its status is written meanwhile: that it is in force, that all run.
        (("patch", "streamsprs"), 3),
        // That it rolls out, and that all run; of the others only if that takes long.
        (("update", "streamsprs/status"), if took < Duration::from_secs(2) { 4 } else { 8 + 3 * told }),
        (("delete", "pods"), restarted),
        (("create", "pods"), started),
        (("get", "pods"), started),
        (("get", "streamspes"), started),
        // That the pod is replaced, that it was created, that it runs (rule pe-20). On a busy machine some wait in
        // between, and say so.
        (("update", "streamspes/status"), started * 3 + 4),
        (("create", "events"), 12),
        // The same Events again (rule call-14).
        (("patch", "events"), 12),
    ])
}

#[tokio::test]
async fn a_resize_makes_no_more_calls_than_it_needs() -> Result<()> {
    with_system("calls-of-resize", async |it| {
        let job = it.submitted().await?;
        for (from, to) in [(2, 3), (3, 2)] {
            let (before, begun) = (it.frontend()?.calls().await?, Instant::now());
            let restarted = resize_of_clean(from, to).restarted.len() as u64;
            let answer = it.resize(&job, &[(CLEAN, to)], WaitFor::RolledOut).await?;
            job.settled(Widths { clean: to, ..Widths::default() }, WITHIN).await?;
            let made = made_since(&before, &it.frontend()?.calls().await?);
            let took = begun.elapsed();
            let request = job.api::<Resize>().get(&answer.request).await?;
            let written = request.status.and_then(|status| status.written_at).context("it was not written")?;
            let asked = request.metadata.creation_timestamp.context("it was not created")?;
            let until_written = Duration::try_from(written.0.duration_since(asked.0))?;
            compare(&made, &most_of_resize(restarted, until_written, took), [0, 0])
                .with_context(|| format!("from {from} to {to}"))?;
            let commits = made.get(&("update".to_owned(), "streamsjobs/status".to_owned()));
            ensure!(commits.is_some_and(|tries| tries.answered >= 2), "calls are not counted: {made:?}");
        }
        Ok(())
    })
    .await
}

/// By verb and resource.
type Calls = BTreeMap<(String, String), Tries>;

/// What was called between two counts, but for what has nothing to do with one job.
fn made_since(before: &Calls, after: &Calls) -> Calls {
    let made = after.iter().map(|(call, until)| {
        let before = before.get(call).copied().unwrap_or_default();
        let tries = Tries {
            answered: until.answered - before.answered,
            met_another: until.met_another - before.met_another,
            in_vain: until.in_vain - before.in_vain,
        };
        (call.clone(), tries)
    });
    let concerns_jobs = |verb: &str, resource: &str| verb != "watch" && !OF_THE_PROCESS.contains(&resource);
    made.filter(|((verb, resource), tries)| tries.answered + tries.in_vain > 0 && concerns_jobs(verb, resource))
        .collect()
}

/// Fails if there were more calls than these, beside a few that met another write and were repeated. `others`: of each
/// kind that is not among them, how many may read or change an object, and how many do something else. Whatever the API
/// server had no time for may have led to one more of each: it was made again, and met what it had done already. Who
/// meets another write with a status reads the object once, to know whether an earlier try of its own was that write
/// (rule call-9).
fn compare(made: &Calls, most: &BTreeMap<(&str, &str), u64>, others: [u64; 2]) -> Result<()> {
    let statuses_outrun = |resource: &str| {
        made.get(&("update".to_owned(), format!("{resource}/status"))).map_or(0, |tries| tries.met_another)
    };
    let allowed = |verb: &str, resource: &str| {
        let other = if matches!(verb, "get" | "update" | "patch") { others[0] } else { others[1] };
        let more = if verb == "get" { statuses_outrun(resource) } else { 0 };
        most.get(&(verb, resource)).copied().unwrap_or(other) + more
    };
    let row = |((verb, resource), tries): (&(String, String), &Tries)| {
        let Tries { answered, met_another, in_vain } = tries;
        let (once, most) = (answered - met_another, allowed(verb, resource));
        format!("{verb} {resource}: {once} of {most}, {met_another} met another, {in_vain} in vain")
    };
    let table: Vec<String> = made.iter().map(row).collect();
    println!("{table:#?}");
    let in_vain: u64 = made.values().map(|tries| tries.in_vain).sum();
    let is_within = made
        .iter()
        .all(|((verb, resource), tries)| tries.answered - tries.met_another <= allowed(verb, resource) + in_vain);
    let met_another: u64 = made.values().map(|tries| tries.met_another).sum();
    ensure!(is_within && met_another <= MET_ANOTHER + in_vain, "more calls than there should be: {table:#?}");
    Ok(())
}
