//! Explains why a job is compiled as it is, for people and for programs.
//!
//! ```text
//! Compiled, and the Compiled before a resize --explain--> Account --Display--> text
//!                                                                 --Serialize--> JSON
//! ```
//!
//! An [`Account`] lists the regions with their widths and where these come from, why fusion made so many PEs, and the
//! PEs: their operators and the constraints that decided them. After a resize, it also has the fate of each PE and what
//! changed in its document. PEs that differ only in their channels share a group, so that people can read an account of
//! ten thousand PEs.
//!
//! * `names` shortens sets of operators and numbers, `causes` and `job` put constraints, regions and fusion into
//!   words;
//! * `changes` compares documents of PEs before and after a resize, `elements` groups PEs that are alike;
//! * `text` writes the account as text.
//!
//! Knows: all stages. Must not know: gRPC, files.
//!
//! Invariants: the account depends on nothing but the arguments. Every PE is in exactly one group. A list that is cut
//! off has a count beside it. Explaining takes time linear in the topology and in the compared documents, which have at
//! most [`COMPARED`] bytes.

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
    Account, CauseAccount, CauseEffect, ConsistentRegionAccount, DocumentChange, ElementGroup, FusionAccount,
    HostPoolAccount, RegionAccount, RegionSplitter, RemovedGroup, ResizeCounts, Totals, WarningAccount, WidthOrigin,
};

use crate::budget::Budget;
use crate::error::Error;
use crate::fuser::{Graph, decisions};
use crate::plan::Compiled;

/// Most bytes of documents that one account compares (rule service-26). For the other PEs, the account only has the
/// reason of the plan.
pub const COMPARED: u64 = 256 << 20;

/// Makes the account of a job. `prior` is the job before the resize, if a resize made the job.
///
/// # Errors
///
/// The budget ends. Other errors would be defects, because a compiled job has passed all stages.
pub fn explain(now: &Compiled, prior: Option<&Compiled>, budget: &Budget) -> Result<Account, Error> {
    let topology = now.topology();
    let graph = Graph::from_topology(topology, budget)?;
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
        regions: job::regions(now, prior, budget)?,
        host_pools: job::host_pools(now),
        consistent_regions: job::consistent_regions(now),
        causes: names.all(now, &decisions),
        resize: job::resize(now, &groups),
        processing_elements: groups,
        removed: elements::removed(now, prior),
        warnings: job::warnings(now),
    })
}
