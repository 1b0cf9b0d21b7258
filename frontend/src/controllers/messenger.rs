//! Sends datagrams to PEs, without an answer.
//!
//! Knows: sockets, the ports of PEs. Must not know: what is said.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::UdpSocket;
use tokio::sync::OnceCell;

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
///
/// Each is opened when it is needed, and tried again as long as that fails: the process may have been short of files
/// for a moment.
pub(crate) struct Datagrams {
    port: u16,
    v4: OnceCell<UdpSocket>,
    v6: OnceCell<UdpSocket>,
    /// Somebody was told that a socket could not be opened.
    is_told: AtomicBool,
}

impl Datagrams {
    /// Sockets that send to this port.
    pub(crate) fn to(port: u16) -> Self {
        Self { port, v4: OnceCell::new(), v6: OnceCell::new(), is_told: AtomicBool::new(false) }
    }

    /// The socket of the family of an address.
    async fn socket(&self, address: IpAddr) -> io::Result<&UdpSocket> {
        let (socket, any) = match address {
            IpAddr::V4(_) => (&self.v4, IpAddr::from(Ipv4Addr::UNSPECIFIED)),
            IpAddr::V6(_) => (&self.v6, IpAddr::from(Ipv6Addr::UNSPECIFIED)),
        };
        self.opened(socket, address, || UdpSocket::bind((any, 0))).await
    }

    /// What is in the cell, or what is opened now.
    async fn opened<'a, Opening: Future<Output = io::Result<UdpSocket>>>(
        &self,
        socket: &'a OnceCell<UdpSocket>,
        address: IpAddr,
        open: impl FnOnce() -> Opening,
    ) -> io::Result<&'a UdpSocket> {
        socket.get_or_try_init(open).await.inspect_err(|error| {
            // PEs ask by themselves, but later; and callers say of each PE only to whoever looks for it.
            if !self.is_told.swap(true, Ordering::Relaxed) {
                tracing::warn!(%address, port = self.port, %error, "PEs cannot be told that there is something new");
            }
        })
    }
}

impl Messenger for Datagrams {
    async fn send(&self, address: IpAddr, message: &str) -> io::Result<()> {
        self.socket(address).await?.send_to(message.as_bytes(), (address, self.port)).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_opened_when_it_is_needed_and_once() {
        let pe = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let datagrams = Datagrams::to(pe.local_addr().unwrap().port());
        assert!(!datagrams.v4.initialized());
        let mut from = Vec::new();
        for message in ["one", "two"] {
            datagrams.send(Ipv4Addr::LOCALHOST.into(), message).await.unwrap();
            let mut received = [0; 16];
            let (length, sender) = pe.recv_from(&mut received).await.unwrap();
            assert_eq!(&received[..length], message.as_bytes());
            from.push(sender);
        }
        assert_eq!(from[0], from[1]);
        assert!(datagrams.v4.initialized() && !datagrams.v6.initialized());
    }

    #[tokio::test]
    async fn a_socket_that_cannot_be_opened_is_tried_again() {
        let pe = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let datagrams = Datagrams::to(pe.local_addr().unwrap().port());
        let (address, no_files) = (Ipv4Addr::LOCALHOST.into(), || async { Err(io::Error::other("no files")) });
        for _ in 0..2 {
            let failed = datagrams.opened(&datagrams.v4, address, no_files).await;
            assert_eq!(failed.unwrap_err().to_string(), "no files");
        }
        datagrams.send(address, "one").await.unwrap();
        let mut received = [0; 16];
        let (length, _) = pe.recv_from(&mut received).await.unwrap();
        assert_eq!(&received[..length], b"one");
    }
}
