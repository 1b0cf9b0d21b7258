//! Starts everything that the process runs, in order, and ends it.
//!
//! ```text
//! client -> mirrors --+--> gRPC APIs, PE API, metrics, probes       every replica, at once
//!                     +--> leadership --> catch up --> controllers  one replica
//! ```
//!
//! SIGTERM or SIGINT: requests and reconciles that are under way are finished, then the Lease is released, then the
//! rest is stopped. The next leader goes on with what is not finished in time. The PE API of a leader lasts longer,
//! until PEs of consistent regions are led to the next one (rule call-32). A lost Lease ends the process at once (rule
//! call-13); so does a second signal. What runs as long as the process does, and ends or panics unasked, ends the
//! process in the same order as a signal: a process of which a part is missing must not lead.
//!
//! | Module | What it does |
//! |---|---|
//! | [`tasks`] | what runs as long as the process does, and notices what ends unasked |
//! | [`base`] | what every replica has before it serves anybody |
//! | [`serving`] | what every replica serves |
//! | [`leading`] | what one replica does |
//! | [`hand_over`] | what a leader does that has ended |
//!
//! Knows: the order of all that. Must not know: what any of it does.

mod base;
mod hand_over;
mod leading;
mod serving;
mod tasks;
#[cfg(test)]
mod tests;

use self::base::Base;
pub(crate) use self::base::MakeClient;
#[cfg(test)]
pub(crate) use self::hand_over::LAST_WORDS;
use self::hand_over::hand_over;
use self::serving::Hearing;
use self::tasks::Tasks;
use crate::controllers::Dependencies;
use crate::options::RunOptions;
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::leadership::Released;
use tokio::time::timeout;

/// How long tasks that only have to notice the end may take.
const LAST_TASKS: Duration = Duration::from_secs(3);

/// Runs until a signal.
///
/// # Errors
/// Something cannot be started, or failed for good; leadership was lost.
pub(crate) async fn run(options: RunOptions, make_client: MakeClient) -> anyhow::Result<()> {
    // Fails only if there is a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut tasks = Tasks::default();

    // Every replica.
    let base = Base::new(&options, make_client, &mut tasks)?;
    serving::probes(&base, &options, &mut tasks).await?;
    let fusion = serving::fusion_client(&base, &options, &mut tasks)?;
    let pe_api_addresses = serving::pe_api_addresses(&base, &options, &mut tasks);
    let (pe_api, hearing) = serving::pes(&base, &options, &mut tasks).await?;
    serving::grpc_apis(&base, &options, &fusion, pe_api.turns(), &mut tasks).await?;
    let bundles = serving::bundles(&base, &options, pe_api, &mut tasks).await?;

    // One replica: the controllers.
    let dependencies = Dependencies {
        client: base.client.clone(),
        regions: base.regions.clone(),
        boards: base.boards.clone(),
        pe_api: pe_api_addresses,
        pe_api_address: options.endpoints.pe_api_address,
        events: base.events.clone(),
        metrics: base.metrics.clone(),
        gate: base.gate.clone(),
        fusion,
        bundles,
        jobs: options.jobs.clone(),
        pods: options.pods.clone(),
        last_seen: Arc::clone(&base.last_seen),
    };
    let mut released = None;
    let lead = async {
        released = leading::lead(&base, &options, dependencies).await?;
        Ok(())
    };
    let patience = options.calls().deadline * 2 + LAST_TASKS;
    // Another replica goes on, if that fails: nothing may be written any more, not even to say good-bye.
    let unasked = tasks.unasked_end_beside(lead, &base.asked_to_stop, patience).await?;

    // One that has no address leads nobody to itself, and one of which a part has ended does not hear all.
    if unasked.is_some() || options.endpoints.pe_api_address.is_none() {
        hearing.ends.cancel();
    }
    end(base, &options, released, hearing, tasks).await;
    if let Some(unasked) = unasked {
        return Err(unasked);
    }
    tracing::info!("ended as asked");
    Ok(())
}

/// Hands over what the next leader must hear, and ends everything.
async fn end(base: Base, options: &RunOptions, released: Option<Released>, hearing: Hearing, mut tasks: Tasks) {
    if let Some(released) = released {
        hand_over(released, &base.regions, &hearing.ends, &hearing.awake).await;
    }
    // While the mirrors go on: what is written is waited for there.
    hearing.end(&base.regions).await;
    base.last.cancel();
    let ended = tasks.end(|| base.events.end());
    if timeout(options.time_outs.grace_seconds + LAST_TASKS, ended).await.is_err() {
        tracing::warn!(tasks = ?tasks.left(), "some tasks did not end in time");
    }
}
