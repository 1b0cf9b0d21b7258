//! Addresses for pods on this machine: of 10.77.0.0/16, all of which lead to this machine by one route.
//!
//! The network is divided into blocks of 1024 addresses. An agent has one block, which it claims by the socket of its
//! DNS server, so several agents get on with each other. The first addresses of a block are for the agent and for
//! programs of whoever started it, the others for pods. An address that is given back is given out again last: whoever
//! believes that it is still the old one shall be wrong for as short as possible.
//!
//! The route stays when the agent ends.

use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::process::Command;
use tokio::time::timeout;

/// The network.
const NETWORK: [u8; 2] = [10, 77];
/// Addresses of a block.
const BLOCK: u16 = 1024;
/// Addresses at the beginning of a block that pods do not get.
const RESERVED: u16 = 16;
/// The port of DNS servers.
const DNS_PORT: u16 = 10_053;
/// How long the program `ip` may take.
const ROUTE: Duration = Duration::from_secs(5);

/// The addresses of an agent.
#[derive(Debug)]
pub(crate) struct Addresses {
    first: u16,
    given: Mutex<Given>,
}

#[derive(Debug)]
struct Given {
    used: BTreeSet<u16>,
    next: u16,
    next_reserved: u16,
}

/// The address of a pod. It is given back with this value.
#[derive(Debug)]
pub(crate) struct PodAddress {
    addresses: Arc<Addresses>,
    offset: u16,
}

impl PodAddress {
    /// The address.
    pub(crate) fn get(&self) -> Ipv4Addr {
        self.addresses.at(self.offset)
    }
}

impl Drop for PodAddress {
    fn drop(&mut self) {
        let mut given = self.addresses.given.lock();
        given.used.remove(&self.offset);
    }
}

impl Addresses {
    /// Sees to the route and claims a block: gives the socket for the DNS server, too.
    ///
    /// # Errors
    /// When the route is not there and cannot be added, or all blocks are taken.
    pub(crate) async fn claim() -> Result<(Arc<Self>, UdpSocket)> {
        see_to_the_route().await?;
        let blocks = u16::MAX / BLOCK + 1;
        let begin = fastrand::u16(..blocks);
        for block in 0..blocks {
            let first = (begin.wrapping_add(block) % blocks) * BLOCK;
            if let Ok(socket) = UdpSocket::bind((address(first, 1), DNS_PORT)).await {
                let given = Given { used: BTreeSet::new(), next: RESERVED, next_reserved: 2 };
                return Ok((Arc::new(Self { first, given: Mutex::new(given) }), socket));
            }
        }
        bail!("all blocks of 10.77.0.0/16 are taken by other agents");
    }

    /// The address of the agent, which is that of its nodes.
    pub(crate) fn own(&self) -> Ipv4Addr {
        self.at(1)
    }

    /// The address of the DNS server.
    pub(crate) fn dns(&self) -> SocketAddr {
        (self.own(), DNS_PORT).into()
    }

    /// Another address for a program that is no pod.
    ///
    /// # Errors
    /// When there is none left.
    pub(crate) fn reserve(&self) -> Result<Ipv4Addr> {
        let mut given = self.given.lock();
        if given.next_reserved >= RESERVED {
            bail!("there is no address left for a program");
        }
        given.next_reserved += 1;
        Ok(self.at(given.next_reserved - 1))
    }

    /// An address for a pod.
    ///
    /// # Errors
    /// When all are used.
    pub(crate) fn give(self: &Arc<Self>) -> Result<PodAddress> {
        let mut given = self.given.lock();
        // The last address of the network is left out.
        for _ in RESERVED..BLOCK - 1 {
            let offset = given.next;
            given.next = if offset + 1 >= BLOCK - 1 { RESERVED } else { offset + 1 };
            if given.used.insert(offset) {
                return Ok(PodAddress { addresses: Arc::clone(self), offset });
            }
        }
        bail!("there is no address left for a pod");
    }

    fn at(&self, offset: u16) -> Ipv4Addr {
        address(self.first, offset)
    }
}

fn address(first: u16, offset: u16) -> Ipv4Addr {
    let [high, low] = first.saturating_add(offset).to_be_bytes();
    Ipv4Addr::new(NETWORK[0], NETWORK[1], high, low)
}

/// Adds the route unless it is there.
pub(crate) async fn see_to_the_route() -> Result<()> {
    let usable = || async { UdpSocket::bind((address(0, 1), 0)).await };
    if usable().await.is_ok() {
        return Ok(());
    }
    let arguments = ["route", "replace", "local", "10.77.0.0/16", "dev", "lo"];
    let mut command = Command::new("ip");
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let said = match timeout(ROUTE, command.output()).await {
        Ok(Ok(output)) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Ok(Err(error)) => format!("the program `ip` cannot be run: {error}"),
        Err(_) => format!("not within {ROUTE:?}"),
    };
    let what = || {
        format!(
            "pods cannot have addresses on this machine: `ip {}` did not help ({said}); it has to be run as root once",
            arguments.join(" ")
        )
    };
    usable().await.map(drop).with_context(what)
}

#[cfg(test)]
mod tests {
    use super::{Addresses, BLOCK, Given, RESERVED};
    use parking_lot::Mutex;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn addresses() -> Arc<Addresses> {
        let given = Given { used: BTreeSet::new(), next: RESERVED, next_reserved: 2 };
        Arc::new(Addresses { first: 4 * BLOCK, given: Mutex::new(given) })
    }

    #[test]
    fn an_address_that_is_given_back_is_given_out_last() {
        let addresses = addresses();
        let first = addresses.give().unwrap();
        assert_eq!(first.get().to_string(), "10.77.16.16");
        drop(first);
        let others: Vec<_> = (RESERVED..BLOCK - 2).map(|_| addresses.give().unwrap()).collect();
        assert!(others.iter().all(|other| other.get().to_string() != "10.77.16.16"));
        assert_eq!(addresses.give().unwrap().get().to_string(), "10.77.16.16");
        let _last = addresses.give().unwrap();
        assert!(addresses.give().is_err(), "all are used");
    }

    #[test]
    fn programs_get_other_addresses_than_pods() {
        let addresses = addresses();
        let reserved: Vec<_> = std::iter::from_fn(|| addresses.reserve().ok()).collect();
        assert_eq!((reserved.len(), reserved[0].to_string().as_str()), (14, "10.77.16.2"));
        assert!(!reserved.contains(&addresses.own()));
    }
}
