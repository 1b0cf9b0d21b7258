//! When is a started program ready? And on which port can it listen?

use super::Process;
use crate::wait::eventually;
use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::future::Future;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Ports that are tried. Below the range from which Linux takes the local ports of connections, which come and go.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
const LINES_SHOWN: usize = 15;
const ATTEMPT: Duration = Duration::from_secs(5);

impl Process {
    /// Waits until `probe` succeeds and gives its value. Fails early when the program ends; either way with the last
    /// lines of its log.
    ///
    /// # Errors
    /// When it ends, or is not ready `within` that time.
    pub async fn ready<T, Probe, Answer>(&self, within: Duration, probe: Probe) -> Result<T>
    where
        Probe: FnMut() -> Answer,
        Answer: Future<Output = Result<T>>,
    {
        let what = format!("{self} is ready");
        let failure = tokio::select! {
            ready = eventually(&what, within, probe) => match ready {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            },
            exit = self.ended() => anyhow::anyhow!("{self} ended with {exit} before it was ready"),
        };
        Err(failure.context(format!("{self} did not start; the end of its log:\n{}", self.last_lines(LINES_SHOWN))))
    }
}

/// A probe: something listens at `address`.
///
/// # Errors
/// When nothing does.
pub async fn accepts_connections(address: SocketAddr) -> Result<()> {
    tokio::net::TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    Ok(())
}

/// A probe: the gRPC server at `address` (plain text) says that `service` serves; an empty name stands for the server
/// as a whole.
///
/// # Errors
/// When it says anything else, or nothing.
pub async fn serves_grpc(address: SocketAddr, service: &str) -> Result<()> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.connect_timeout(ATTEMPT).timeout(ATTEMPT);
    let channel = endpoint.connect().await.with_context(|| format!("cannot connect to {address}"))?;
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer =
        HealthClient::new(channel).check(request).await.with_context(|| format!("no health from {address}"))?;
    match answer.into_inner().status() {
        ServingStatus::Serving => Ok(()),
        status => bail!("{address} is {}", status.as_str_name()),
    }
}

/// Ports that were given away: tests of one process never get the same one, nor does looking for a port get in the way
/// of who was given it.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port of the loopback interface on which nothing listens now, another one at every call. Another process may take
/// it at any time: be ready to start with another.
///
/// # Errors
/// When no port of the range is free.
pub fn free_port() -> Result<u16> {
    let mut given = GIVEN.lock();
    let size = PORTS.end - PORTS.start;
    // The keys of each RandomState are random; no other source of randomness is needed.
    let start = RandomState::new().build_hasher().finish() % u64::from(size);
    let start = u16::try_from(start).unwrap_or_default();
    let port = (0..size)
        .map(|step| PORTS.start + (start + step) % size)
        .find(|port| !given.contains(port) && TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .with_context(|| format!("no port of {PORTS:?} is free"))?;
    given.insert(port);
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::{PORTS, free_port};
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn a_free_port_can_be_bound_and_no_two_agree() {
        let ports: Vec<u16> = (0..20).map(|_| free_port().unwrap()).collect();
        for port in &ports {
            assert!(PORTS.contains(port));
            TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).unwrap();
        }
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len(), "{ports:?}");
    }
}
