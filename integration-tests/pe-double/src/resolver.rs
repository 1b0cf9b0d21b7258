//! Addresses of names: from a DNS server at any port, or from a file.

use anyhow::{Context as _, Result, bail};
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, TYPE};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// A question is asked again after this time, once.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(400);
/// How often a question is asked.
const ASKED: u32 = 2;
/// Largest answer.
const ANSWER: usize = 4096;

/// Finds addresses.
#[derive(Debug)]
pub(crate) enum Resolver {
    /// Asks a server.
    Dns { server: SocketAddr, from: IpAddr, id: AtomicU16 },
    /// Reads a file with a line `ADDRESS NAME` for each name.
    Hosts(PathBuf),
}

impl Resolver {
    /// Asks `server`, from the address `from`.
    pub(crate) fn dns(server: SocketAddr, from: IpAddr) -> Self {
        Self::Dns { server, from, id: AtomicU16::new(1) }
    }

    /// The first address of a name.
    ///
    /// # Errors
    /// When it has none, or nobody answers.
    pub(crate) async fn address(&self, name: &str) -> Result<IpAddr> {
        let found = match self {
            Self::Dns { server, from, id } => {
                let id = id.fetch_add(1, Ordering::Relaxed);
                let mut found = Err(anyhow::anyhow!("never asked"));
                for _ in 0..ASKED {
                    found = match timeout(ASKED_AGAIN_AFTER, ask(*server, *from, id, name)).await {
                        Ok(found) => found,
                        Err(_) => Err(anyhow::anyhow!("{server} does not answer")),
                    };
                    if found.is_ok() {
                        break;
                    }
                }
                found
            }
            Self::Hosts(path) => match tokio::fs::read_to_string(path).await {
                Ok(text) => in_hosts(&text, name),
                Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
            },
        };
        found.with_context(|| format!("{name} has no address"))
    }
}

fn in_hosts(text: &str, name: &str) -> Result<IpAddr> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let found = lines.filter(|(_, listed)| listed.trim() == name).find_map(|(address, _)| address.parse().ok());
    found.context("the file of names does not have it")
}

/// Asks once for the IPv4 addresses of a name and takes the first one.
async fn ask(server: SocketAddr, from: IpAddr, id: u16, name: &str) -> Result<IpAddr> {
    let mut question = Packet::new_query(id);
    question.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name)?;
    question.questions.push(Question::new(name, QTYPE::TYPE(TYPE::A), QCLASS::CLASS(CLASS::IN), false));
    let socket = UdpSocket::bind((from, 0)).await?;
    socket.connect(server).await?;
    socket.send(&question.build_bytes_vec()?).await?;
    let mut bytes = vec![0; ANSWER];
    loop {
        let length = socket.recv(&mut bytes).await?;
        let answer = Packet::parse(bytes.get(..length).unwrap_or_default())?;
        if answer.id() != id {
            continue;
        }
        for record in &answer.answers {
            if let RData::A(address) = &record.rdata {
                return Ok(Ipv4Addr::from(address.address).into());
            }
        }
        bail!("{server} answers {:?} without an address", answer.rcode());
    }
}
