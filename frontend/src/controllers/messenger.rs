//! Sends datagrams to PEs, without an answer.
//!
//! Knows: sockets, the ports of PEs. Must not know: what is said.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tokio::net::UdpSocket;

/// Port at which PEs hear of their routes (rule name-7).
pub(crate) const ROUTES: u16 = 10_000;
/// Port at which PEs hear of their consistent regions (rule name-7).
pub(crate) const CONSISTENT_REGIONS: u16 = 10_001;

/// Where messages go.
pub(crate) trait Messenger: Send + Sync + 'static {
    /// Sends a message to the PE at this address, and does not wait for anything.
    ///
    /// # Errors
    /// It cannot be sent. That it was sent does not mean that it arrives.
    fn send(&self, address: IpAddr, message: &str) -> impl Future<Output = io::Result<()>> + Send;
}

/// Sockets of both families, where the host has them.
pub(crate) struct Datagrams {
    port: u16,
    v4: io::Result<UdpSocket>,
    v6: io::Result<UdpSocket>,
}

impl Datagrams {
    /// Opens the sockets, to send to this port. A family that the host does not have is told when somebody is to be
    /// reached by it.
    pub(crate) async fn open(port: u16) -> Self {
        Self {
            port,
            v4: UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await,
            v6: UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await,
        }
    }
}

impl Messenger for Datagrams {
    async fn send(&self, address: IpAddr, message: &str) -> io::Result<()> {
        let socket = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        let socket = socket.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        socket.send_to(message.as_bytes(), (address, self.port)).await?;
        Ok(())
    }
}
