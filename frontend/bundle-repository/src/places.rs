//! How much of something each address has (rule repository-5).
//!
//! Knows: addresses and numbers. Must not know: what is counted.
//!
//! Invariant: an address that has nothing takes no memory.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

type Taken = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// Places, of which every address may have as many.
pub(crate) struct Places {
    each: usize,
    taken: Taken,
}

/// A place that was taken; dropping it gives it back.
pub(crate) struct Place {
    peer: IpAddr,
    taken: Taken,
}

impl Places {
    /// As many for each address.
    pub(crate) fn new(each: usize) -> Self {
        Self { each, taken: Taken::default() }
    }

    /// A place for this address, if it has not all of them.
    pub(crate) fn take(&self, peer: IpAddr) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.get(&peer).copied().unwrap_or_default();
        if count >= self.each {
            return None;
        }
        taken.insert(peer, count + 1);
        Some(Place { peer, taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                taken.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn each_address_has_its_own_places() {
        let (a, b) = (IpAddr::from(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::from(Ipv4Addr::new(10, 0, 0, 2)));
        let places = Places::new(2);
        let first = places.take(a);
        let second = places.take(a);
        assert!(first.is_some() && second.is_some() && places.take(a).is_none() && places.take(b).is_some());
        drop(first);
        assert!(places.take(a).is_some());
        drop(second);
        assert!(places.taken.lock().unwrap().is_empty());
    }
}
