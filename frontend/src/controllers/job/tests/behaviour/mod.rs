//! Single situations, as users see them: what runs, what the status says, which Events there are.
//!
//! * [`resizes`] — widths that come into force, and what that touches;
//! * [`refusals`] — what the fusion service refuses, or has none that can do it;
//! * [`bundles`] — bundles that are not there, or are others by now;
//! * [`documents`] — plans and ADLs whose chunks are missing;
//! * [`long_work`] — long work that was begun before something changed, or whose results serve others;
//! * [`edits`] — edits of a job that runs, but for its widths;
//! * [`api_server`] — answers of the API server: in a namespace that is being deleted, and one that is lost.
//!
//! What has many situations of its own, as requests to resize, has a module of its own beside this folder.

mod api_server;
mod bundles;
mod documents;
mod edits;
mod long_work;
mod refusals;
mod resizes;

use super::simulation::JobSimulation;
use streams_api::condition;

/// Reason of a condition; nothing if it is not there.
fn condition_reason(simulation: &JobSimulation, kind: &str) -> Option<String> {
    condition::get(&simulation.status().conditions, kind).map(|condition| condition.reason.clone())
}

fn is_true(simulation: &JobSimulation, kind: &str) -> bool {
    condition::is_true(&simulation.status().conditions, kind)
}
