//! When and from where a call has arrived. It travels with the call.

use std::net::IpAddr;
use tokio::time::Instant;

/// Of a call, as the listener has seen it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// When its head was read.
    pub(crate) at: Instant,
    /// The address at the other end of its connection: the caller's, or that of a proxy.
    pub(crate) from: IpAddr,
    /// The number of its connection, which no other one of the listener has.
    pub(crate) connection: u64,
}
