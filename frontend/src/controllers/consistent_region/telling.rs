//! Sends PEs their documents (rule consistent-region-7).
//!
//! A PE may be in several regions, which are looked at by several tasks, and it takes an older document for news. So a
//! document is made and sent while nobody else does so for the same PE: what is sent later is never older.
//!
//! Knows: documents, who is driven in which launch. Must not know: why there is something to say.

use crate::consistent_regions::ConsistentRegions;
use crate::controllers::messenger::Messenger;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use streams_api::names;
use streams_consistent_region::Launches;
use streams_kubernetes::Key;
use tokio::sync::Mutex;

/// Turns that PEs share.
const TURNS: u64 = 64;

/// Sends documents, one of a PE at a time.
pub(super) struct Telling<M> {
    messenger: M,
    turns: Vec<Mutex<()>>,
}

impl<M: Messenger> Telling<M> {
    /// Sends through this messenger.
    pub(super) fn through(messenger: M) -> Self {
        Self { messenger, turns: (0..TURNS).map(|_| Mutex::new(())).collect() }
    }

    /// Sends every PE of a region of this job that is driven in its launch its document. Whoever misses it asks within
    /// 6 seconds.
    pub(super) async fn tell(&self, regions: &ConsistentRegions, region: &Key, job: &str, launches: &Launches) {
        for pe in launches.pes() {
            let name = region.sibling(&names::processing_element(job, pe));
            let turn = BuildHasherDefault::<DefaultHasher>::default().hash_one(&name) % TURNS;
            let Some(turn) = usize::try_from(turn).ok().and_then(|turn| self.turns.get(turn)) else { continue };
            let _taken = turn.lock().await;
            // From here on nothing waits but for room in the socket.
            if !regions.are_driven_here() {
                return;
            }
            let Some(member) = regions.members.get(&name) else { continue };
            let launch = launches.of(pe).filter(|launch| *launch == member.facts.launch);
            let (Some(launch), Some(address)) = (launch, member.address) else { continue };
            if regions.must_ask(&name, &member, launch, region) {
                continue;
            }
            let document = regions.document(&name, &member, launch);
            let Some(datagram) = document.datagram() else { continue };
            match self.messenger.send(address, &datagram).await {
                Ok(()) => regions.has_sent(&name, &member, launch, &document),
                Err(error) => {
                    tracing::debug!(%region, pe, %address, %error, "a PE cannot be told of its regions; it will ask");
                }
            }
        }
    }
}
