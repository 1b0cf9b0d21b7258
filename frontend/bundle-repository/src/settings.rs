//! How much of everything there may be (rule repository-5).
//!
//! Knows: numbers and their defaults. Must not know: what is done when there is no more.
//!
//! Invariant: with the defaults, clients can make the server take about 110 MiB, whatever they do; those of one tenant
//! a quarter of that.

use std::time::Duration;

/// Bounds of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Connections at the same time. A tenant has a quarter of them at most.
    pub max_connections: usize,
    /// Connections at the same time from one address.
    pub max_connections_per_peer: usize,
    /// The same of an address of which nothing is known: a bootstrap has one.
    pub max_connections_per_stranger: usize,
    /// Bytes of a request, and of requests that were read before they are answered.
    pub max_request_bytes: usize,
    /// Arguments of a request, with the name of the command.
    pub max_arguments: usize,
    /// How long a client may take from the last reply until it has sent its next request as a whole.
    pub idle: Duration,
    /// How long a request may wait until it is known whose client asks.
    pub known: Duration,
    /// How long a request may wait for the repository then.
    pub answer: Duration,
    /// How long a reply may make no progress because the client does not read.
    pub stalled: Duration,
    /// Bundles that are sent at the same time. A tenant is sent a quarter of them at most.
    pub max_transfers: usize,
    /// Bundles that are sent to one address at the same time.
    pub max_transfers_per_peer: usize,
    /// How long a request may wait until fewer bundles are sent.
    pub transfer_wait: Duration,
    /// How long sending a bundle may take as a whole.
    pub transfer: Duration,
    /// Bytes of a bundle that one connection has in memory.
    pub piece_bytes: usize,
    /// Bytes that the kernel may keep of what a client does not read; the kernel doubles it.
    pub send_buffer_bytes: usize,
    /// How long requests that are being answered may go on when the server stops.
    pub grace: Duration,
}

impl Settings {
    /// How long it may take, from the request of a client that reads, until it has its bundle as a whole or is left.
    pub fn longest(&self) -> Duration {
        let waits = [self.known, self.answer, self.transfer_wait, self.transfer];
        waits.into_iter().fold(Duration::ZERO, Duration::saturating_add)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            max_connections_per_peer: 16,
            max_connections_per_stranger: 2,
            max_request_bytes: 16 << 10,
            max_arguments: 64,
            idle: Duration::from_secs(60),
            known: Duration::from_secs(60),
            // Longer than a repository holds a request back by itself: it can say why.
            answer: Duration::from_secs(630),
            stalled: Duration::from_secs(30),
            max_transfers: 128,
            max_transfers_per_peer: 4,
            transfer_wait: Duration::from_secs(600),
            transfer: Duration::from_secs(600),
            piece_bytes: 64 << 10,
            send_buffer_bytes: 128 << 10,
            grace: Duration::from_secs(20),
        }
    }
}
