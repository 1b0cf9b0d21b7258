//! Whose turn it is to be sent a bundle (rule repository-5).
//!
//! Knows: tenants, and how many bundles may be sent. Must not know: what is sent, who of a tenant asks.
//!
//! Invariants: a tenant has a quarter of the turns at most, and who waits is in front of nobody of another tenant.
//! Within a tenant the first that waits is the first that gets a turn. Nothing is kept for long of a tenant for whom
//! nobody waits.

use crate::repository::Tenant;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use streams_places::{Place, Places};
use tokio::sync;
use tokio::sync::Notify;

/// Those who wait for a turn of the same tenant, one after the other.
type Line = sync::Mutex<()>;

/// The turns that there are.
pub(crate) struct Turns {
    places: Places<Tenant, ()>,
    lines: Mutex<HashMap<Tenant, Arc<Line>>>,
    freed: Arc<Notify>,
}

/// A turn; dropping it ends it.
pub(crate) struct Turn {
    /// `None` when it has been given back.
    place: Option<Place<Tenant, ()>>,
    freed: Arc<Notify>,
}

impl Turns {
    /// So many at the same time.
    pub(crate) fn new(most: usize) -> Self {
        Self { places: Places::new(most, most), lines: Mutex::default(), freed: Arc::default() }
    }

    /// Waits for a turn of this tenant.
    pub(crate) async fn wait(&self, tenant: &Tenant) -> Turn {
        let line = self.line(tenant);
        let _first = line.lock().await;
        loop {
            // From here on it hears of every turn that ends.
            let freed = self.freed.notified();
            if let Ok(place) = self.places.take(tenant, &()) {
                return Turn { place: Some(place), freed: Arc::clone(&self.freed) };
            }
            freed.await;
        }
    }

    fn line(&self, tenant: &Tenant) -> Arc<Line> {
        let mut lines = self.lines.lock();
        // Nobody waits in the others.
        lines.retain(|_, line| Arc::strong_count(line) > 1);
        Arc::clone(lines.entry(tenant.clone()).or_default())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.place.take());
        // One of each tenant at most.
        self.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn tenant(name: &str) -> Tenant {
        Some(name.into())
    }

    /// What it has come to when it is looked at once more.
    fn now<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn who_waits_is_in_front_of_no_other_tenant_and_gets_what_its_own_gives_back() {
        let turns = Turns::new(4);
        let (crowd, other) = (tenant("crowd"), tenant("other"));
        let mut first = pin!(turns.wait(&crowd));
        let first = now(first.as_mut()).unwrap();
        let (mut second, mut third) = (pin!(turns.wait(&crowd)), pin!(turns.wait(&crowd)));
        assert!(now(second.as_mut()).is_none() && now(third.as_mut()).is_none());
        let _others = [&other, &None].map(|tenant| now(pin!(turns.wait(tenant))).unwrap());
        drop(first);
        assert!(now(third.as_mut()).is_none(), "who came later waits on");
        let second = now(second.as_mut()).unwrap();
        assert!(now(third.as_mut()).is_none());
        drop(second);
        assert!(now(third.as_mut()).is_some());
    }

    #[test]
    fn who_waits_no_more_costs_nobody_a_turn_and_nothing_is_kept_of_it() {
        let turns = Turns::new(1);
        let (crowd, other) = (tenant("crowd"), tenant("other"));
        let first = now(pin!(turns.wait(&crowd))).unwrap();
        let mut waits = Box::pin(turns.wait(&crowd));
        assert!(now(waits.as_mut()).is_none());
        drop(waits);
        drop(first);
        assert!(now(pin!(turns.wait(&other))).is_some());
        assert_eq!(turns.lines.lock().len(), 1, "the last one");
        assert_eq!(turns.places.taken(), 0);
    }
}
