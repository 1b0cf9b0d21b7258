//! Where peers are: from the label of an operator port or of a PE port to an address, in the steps of the runtime.
//!
//! 1. The label of an operator's input port, `<job id>.<operator>.<port>`, is looked up in the file of port labels.
//!    That gives the label of a PE port, `<PE>.<port>@<job id>`.
//! 2. The name of the job is asked for, and the address of `<job>-<PE>.<namespace>` is looked up. The port is 10000 and
//!    the id of the PE port.
//!
//! What was found is believed for ten seconds.

use crate::aadl::Destination;
use crate::api::Api;
use crate::resolver::Resolver;
use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first of the data ports of a PE.
pub const DATA_PORT: u16 = 10_000;
/// Most entries of a cache.
const REMEMBERED: usize = 4096;

/// A port of a PE, `<PE>.<port>@<job id>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortLabel {
    /// Id of the PE.
    pub pe: u64,
    /// Id of the port.
    pub port: u32,
    /// Id of the job.
    pub job_id: u64,
}

impl fmt::Display for PortLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}@{}", self.pe, self.port, self.job_id)
    }
}

impl FromStr for PortLabel {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = || {
            let (port, job_id) = text.split_once('@')?;
            let (pe, port) = port.split_once('.')?;
            Some(Self { pe: pe.parse().ok()?, port: port.parse().ok()?, job_id: job_id.parse().ok()? })
        };
        parts().with_context(|| format!("{text:?} is no label of a PE port"))
    }
}

/// The TCP port of a PE's input port.
///
/// # Errors
/// When there is none.
pub fn data_port(id: u32) -> Result<u16> {
    let port = u16::try_from(id).ok().and_then(|id| DATA_PORT.checked_add(id));
    port.with_context(|| format!("there is no TCP port for the port {id}"))
}

/// Finds peers.
#[derive(Debug)]
pub(crate) struct Peers {
    api: Api,
    resolver: Arc<Resolver>,
    namespace: String,
    job_id: u64,
    labels: PathBuf,
    read: Cache<(), Arc<BTreeMap<String, String>>>,
    names: Cache<u64, String>,
    addresses: Cache<PortLabel, SocketAddr>,
}

impl Peers {
    /// Finds peers of the job `job_id` in a namespace. The port labels are in the file `labels`.
    pub(crate) fn new(
        api: Api,
        resolver: Arc<Resolver>,
        namespace: String,
        job_id: u64,
        labels: PathBuf,
        believed: Duration,
    ) -> Self {
        let (read, names, addresses) = (Cache::new(believed), Cache::new(believed), Cache::new(believed));
        Self { api, resolver, namespace, job_id, labels, read, names, addresses }
    }

    /// The PE port before an operator's input port.
    ///
    /// # Errors
    /// When the file cannot be read or does not have it.
    pub(crate) async fn label(&self, destination: Destination) -> Result<PortLabel> {
        let labels = match self.read.get(&()) {
            Some(labels) => labels,
            None => {
                let text = tokio::fs::read_to_string(&self.labels).await;
                let text = text.with_context(|| format!("cannot read {}", self.labels.display()))?;
                let labels = Arc::new(properties(&text));
                self.read.put((), Arc::clone(&labels));
                labels
            }
        };
        let key = format!("{}.{}.{}", self.job_id, destination.operator, destination.port);
        labels.get(&key).with_context(|| format!("no PE port is known for the operator port {key}"))?.parse()
    }

    /// The address of a PE port.
    ///
    /// # Errors
    /// When the job or the PE is not known.
    pub(crate) async fn address(&self, label: PortLabel) -> Result<SocketAddr> {
        if let Some(address) = self.addresses.get(&label) {
            return Ok(address);
        }
        let job = self.job(label.job_id).await?;
        let name = format!("{job}-{}.{}", label.pe, self.namespace);
        let address = SocketAddr::new(self.resolver.address(&name).await?, data_port(label.port)?);
        self.addresses.put(label, address);
        Ok(address)
    }

    async fn job(&self, id: u64) -> Result<String> {
        if let Some(name) = self.names.get(&id) {
            return Ok(name);
        }
        let answer = self.api.get(&format!("/api/state/job/by-id/{id}/name")).await?;
        if answer.status != 200 {
            bail!("nobody knows the name of the job {id}: {} {}", answer.status, answer.body);
        }
        ensure!(!answer.body.is_empty(), "the job {id} has an empty name");
        self.names.put(id, answer.body.clone());
        Ok(answer.body)
    }
}

/// What was found out, and when.
#[derive(Debug)]
struct Cache<K, V> {
    believed: Duration,
    entries: Mutex<BTreeMap<K, (Instant, V)>>,
}

impl<K: Ord + Hash, V: Clone> Cache<K, V> {
    fn new(believed: Duration) -> Self {
        Self { believed, entries: Mutex::new(BTreeMap::new()) }
    }

    fn get(&self, key: &K) -> Option<V> {
        let entries = self.entries.lock();
        let (since, value) = entries.get(key)?;
        (since.elapsed() < self.believed).then(|| value.clone())
    }

    fn put(&self, key: K, value: V) {
        let mut entries = self.entries.lock();
        if entries.len() >= REMEMBERED {
            entries.clear();
        }
        entries.insert(key, (Instant::now(), value));
    }
}

/// The entries of a file in the format of Java properties, one a line, without continued lines.
fn properties(text: &str) -> BTreeMap<String, String> {
    let mut entries = BTreeMap::new();
    for line in text.lines().map(str::trim_start).filter(|line| !line.starts_with(['#', '!']) && !line.is_empty()) {
        let mut parts = [String::new(), String::new()];
        let mut part = 0;
        let mut characters = line.chars();
        while let Some(character) = characters.next() {
            let character = match character {
                '\\' => match characters.next() {
                    Some('t') => '\t',
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('f') => '\u{c}',
                    Some('u') => {
                        let digits: String = characters.by_ref().take(4).collect();
                        let code = u32::from_str_radix(&digits, 16).ok();
                        code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
                    }
                    Some(other) => other,
                    None => continue,
                },
                '=' | ':' if part == 0 => {
                    part = 1;
                    continue;
                }
                other => other,
            };
            if let Some(part) = parts.get_mut(part) {
                part.push(character);
            }
        }
        let [key, value] = parts;
        entries.insert(key.trim_end().to_owned(), value.trim_start().to_owned());
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::{PortLabel, data_port, properties};

    #[test]
    fn labels_read_back_as_written() {
        let label = PortLabel { pe: 3, port: 1, job_id: 7 };
        assert_eq!((label.to_string().as_str(), "3.1@7".parse::<PortLabel>().unwrap()), ("3.1@7", label));
        for wrong in ["", "3.1", "3@7", "3.x@7", "3.1@"] {
            assert!(wrong.parse::<PortLabel>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn data_ports_are_numbered_from_10000() {
        assert_eq!((data_port(0).unwrap(), data_port(7).unwrap()), (10_000, 10_007));
        assert!(data_port(55_536).is_err());
    }

    #[test]
    fn properties_are_read_as_java_reads_them() {
        let entries = properties("#c\n7.1.0=0.1@7\n  a\\:b\\ c = x\\u0041\\=y\n\n");
        let entries: Vec<_> = entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(entries, [("7.1.0", "0.1@7"), ("a:b c", "xA=y")]);
    }
}
