//! Why a job is compiled as it is: an account for people, and the same for programs.
//!
//! ```text
//! Compiled, and the Compiled before a resize --explain--> Account --Display--> text
//!                                                                 --Serialize--> JSON
//! ```
//!
//! An [`Account`] has the regions with their widths and where these come from, how fusion came to its number of PEs,
//! and the PEs: what they hold, which constraints decided that, and after a resize what becomes of each and what a
//! running PE can observe of it. PEs that differ only in their channels share a group, so that people can read an
//! account of ten thousand PEs.
//!
//! * `names` shortens sets of operators and numbers, `causes` and `job` put constraints, regions and fusion into
//!   words;
//! * `changes` compares documents of PEs before and after a resize, `elements` groups PEs that are alike;
//! * `text` is the account as text.
//!
//! Knows: all stages. Must not know: gRPC, files.
//!
//! Invariants: a pure function of its arguments; every PE is in exactly one group; what is left out is counted; costs
//! time linear in the topology and in the documents that it compares, of which there is at most [`COMPARED`] bytes.

mod account;
mod causes;
mod changes;
mod elements;
mod job;
mod names;
#[cfg(test)]
mod tests;
mod text;

pub use account::{
    Account, AutomaticFusion, Cause, ConsistentRegion, DocumentChange, Effect, Fusion, Group, HostPool, Region,
    RegionSplitter, Removed, Resize, Totals, Warning, WidthOrigin,
};

use crate::budget::Budget;
use crate::error::Error;
use crate::fuser::{Graph, decisions};
use crate::plan::Compiled;

/// Bytes of documents that one account compares (rule service-26). PEs beyond are explained by the plan's reason alone.
pub const COMPARED: u64 = 256 << 20;

/// Gives the account of a job; `prior` is the job before the resize that made it, if a resize did.
///
/// # Errors
///
/// The budget ends, or a constraint of the job cannot be understood again, which a compiled job does not have.
pub fn explain(now: &Compiled, prior: Option<&Compiled>, budget: &Budget) -> Result<Account, Error> {
    let topology = now.topology();
    let graph = Graph::from_topology(topology)?;
    let fusion = now.fusion(&graph)?;
    let decisions = decisions(&graph, &fusion, now.elements().partition(), budget)?;
    let names = causes::CauseNames { topology, graph: &graph, fusion };
    let prior = prior.filter(|_| now.plan().change.is_some());
    let compared = prior.map(|prior| changes::compare(prior, now, COMPARED, budget)).transpose()?;
    let groups = elements::groups(now, &decisions, &names, compared.as_ref(), budget)?;
    Ok(Account {
        kind: if now.plan().change.is_some() { "resize" } else { "submission" },
        application: now.plan().application_name.clone(),
        scope: now.plan().application_scope.clone(),
        job_name: now.request().job_name.clone(),
        job_id: now.request().job_id,
        compiler: now.plan().compiler.clone(),
        totals: job::totals(now),
        fusion: job::fusion(now, fusion, &decisions),
        regions: job::regions(now, prior),
        host_pools: job::host_pools(now),
        consistent_regions: job::consistent_regions(now),
        causes: names.all(now, &decisions),
        resize: job::resize(now, &groups),
        processing_elements: groups,
        removed: elements::removed(now, prior),
        warnings: job::warnings(now),
    })
}
