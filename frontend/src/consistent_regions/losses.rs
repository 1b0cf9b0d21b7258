//! Connections that PEs of regions have told this replica that they lost, while nothing of that is stored (rule
//! pe-api-4). A region must not go on without a reset then: tuples are missing in its next checkpoint (rule
//! consistent-region-2), and no other replica knows it.
//!
//! Knows: who can say of which regions that is so. Must not know: how it is told, and stored.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use streams_kubernetes::Key;
use tokio::time::sleep;

/// How often a replica that ends looks whether there are any.
const LOOK_EVERY: Duration = Duration::from_millis(50);

type Regions = Box<dyn Fn() -> BTreeSet<Key> + Send + Sync>;

/// The regions of which that is so. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(crate) struct UnstoredLosses(Arc<OnceLock<Regions>>);

impl UnstoredLosses {
    /// This knows the regions.
    pub(crate) fn are_known_by(&self, regions: impl Fn() -> BTreeSet<Key> + Send + Sync + 'static) {
        // The first counts; nobody says it twice.
        let _ = self.0.set(Box::new(regions));
    }

    /// The regions, as it is now.
    pub(crate) fn regions(&self) -> BTreeSet<Key> {
        self.0.get().map_or_else(BTreeSet::new, |regions| regions())
    }

    /// Waits until there are none.
    pub(crate) async fn stored(&self) {
        while !self.regions().is_empty() {
            sleep(LOOK_EVERY).await;
        }
    }
}
