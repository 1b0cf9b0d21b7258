//! Work that has failed again and again makes way: whoever waits for it does not wait for more failures. None of its
//! calls goes first then, whatever they are for (rule call-22).
//!
//! Knows: whether the work that is going on makes way. Must not know: what work is, which calls go first.

use std::cell::Cell;
use std::future::Future;
use tokio::task_local;

task_local! {
    static MAKES_WAY: Cell<bool>;
}

/// A worker that does one work after the other, each of which may make way. The work itself is large: it is not moved
/// for this.
pub(crate) fn worker<F: Future>(works: F) -> impl Future<Output = F::Output> {
    MAKES_WAY.scope(Cell::new(false), works)
}

/// The work that begins now makes way, or does not.
pub(crate) fn begin(makes_way: bool) {
    // Not all work is done by such a worker.
    let _ = MAKES_WAY.try_with(|work| work.set(makes_way));
}

/// Whether the work that is going on makes way.
pub(crate) fn makes_way() -> bool {
    MAKES_WAY.try_with(Cell::get).unwrap_or(false)
}
