//! Who has how many connections (rule repository-5).
//!
//! A pod asks as soon as its container runs, and that may be before anybody knows of its address. Until then its
//! connection is one of those of strangers, then one of its tenant's.
//!
//! Knows: tenants, addresses, numbers. Must not know: sockets, requests.
//!
//! Invariants: a connection has one seat from its beginning to its end. Strangers have a quarter of all seats together,
//! and fewer each than a client that is known: whoever holds some of them holds up pods that are just beginning.

use crate::repository::Tenant;
use crate::settings::Settings;
use std::net::IpAddr;
use streams_places::{Place, Places};

/// All seats.
pub(crate) struct Seats {
    all: Places<Tenant, IpAddr>,
    of_strangers: Places<(), IpAddr>,
}

/// The seat of a connection, until it is dropped.
pub(crate) struct Seat {
    tenant: Tenant,
    peer: IpAddr,
    _place: Place<Tenant, IpAddr>,
    _as_stranger: Option<Place<(), IpAddr>>,
}

impl Seats {
    /// As many as these settings say.
    pub(crate) fn new(settings: &Settings) -> Self {
        let Settings { max_connections, max_connections_per_peer, max_connections_per_stranger, .. } = *settings;
        Self {
            all: Places::new(max_connections, max_connections_per_peer),
            of_strangers: Places::new(max_connections, max_connections_per_stranger),
        }
    }

    /// A seat for a client of this tenant, if there is one.
    pub(crate) fn take(&self, tenant: Tenant, peer: IpAddr) -> Option<Seat> {
        let as_stranger = match tenant {
            Some(_) => None,
            None => Some(self.of_strangers.take(&(), &peer).ok()?),
        };
        let place = self.all.take(&tenant, &peer).ok()?;
        Some(Seat { tenant, peer, _place: place, _as_stranger: as_stranger })
    }

    /// It is known by now that a client is of this tenant. False if the tenant has too many seats; the client keeps its
    /// own.
    pub(crate) fn move_to(&self, seat: &mut Seat, tenant: Tenant) -> bool {
        if seat.tenant == tenant {
            return true;
        }
        let Some(moved) = self.take(tenant, seat.peer) else { return false };
        *seat = moved;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    fn seats() -> Seats {
        Seats::new(&Settings { max_connections: 16, max_connections_per_peer: 3, ..Settings::default() })
    }

    #[test]
    fn a_stranger_has_few_seats_and_all_strangers_a_quarter() {
        let seats = seats();
        let first: Vec<_> = [(); 3].map(|()| seats.take(None, address(1))).into_iter().collect();
        assert_eq!(first.iter().flatten().count(), 2, "of one address");
        let known = Some("a".into());
        let of_known: Vec<_> = [(); 4].map(|()| seats.take(known.clone(), address(1))).into_iter().flatten().collect();
        assert_eq!(of_known.len(), 3, "who is known has more");
        drop(of_known);
        let others: Vec<_> = (2..9).filter_map(|last| seats.take(None, address(last))).collect();
        assert_eq!(others.len() + 2, 4, "of all that are unknown");
        assert!(seats.take(known, address(1)).is_some());
    }

    #[test]
    fn who_becomes_known_leaves_the_seat_of_a_stranger_to_others() {
        let seats = seats();
        let tenant: Tenant = Some("a".into());
        let (mut seat, mut second) = (seats.take(None, address(1)).unwrap(), seats.take(None, address(1)).unwrap());
        assert!(seats.take(None, address(1)).is_none());
        assert!(seats.move_to(&mut seat, tenant.clone()));
        let again = seats.take(None, address(1)).unwrap();
        assert!(seats.move_to(&mut seat, tenant.clone()));
        assert_eq!(seats.all.taken(), 3, "it has one seat");
        // The tenant has as many as it may have.
        let of_tenant = |last| std::iter::from_fn(|| seats.take(tenant.clone(), address(last))).collect::<Vec<_>>();
        let others = [of_tenant(2), of_tenant(3)];
        assert!(!seats.move_to(&mut second, tenant.clone()));
        assert_eq!(seats.of_strangers.taken(), 2, "it stays where it is");
        drop((seat, second, again, others));
        assert_eq!((seats.all.taken(), seats.of_strangers.taken()), (0, 0), "nothing is kept");
    }
}
