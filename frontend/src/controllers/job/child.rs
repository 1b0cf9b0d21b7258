//! The keys of the objects of a job that the controller applies.
//!
//! Knows: which there are, and how they are called. Must not know: the objects.

use std::str::FromStr;
use streams_api::names;

/// The key of an object of the job that the controller applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Child {
    /// A PE, by id. It refers to the text that [`DesiredPe::choose`](super::observed::DesiredPe::choose) gives.
    ProcessingElement(u64),
    /// The Service of a PE, by its id.
    Service(u64),
    /// A region, by index. It is created; afterwards only what others changed of it is restored, never its width.
    Region(u64),
    /// A host pool, by index.
    HostPool(u64),
    /// The job's own ConfigMap.
    JobConfigMap,
    /// An exported stream.
    Export(Port),
    /// A subscription.
    Import(Port),
    /// A consistent region, by index.
    ConsistentRegion(u64),
    /// The Service that PEs of consistent regions talk to.
    ConsistentRegionService,
    /// The Secret with which PEs secure their connections.
    TransportSecret,
}

impl Child {
    /// The name of the object of the job of this name (rules name-3 and name-5).
    pub(crate) fn name(self, job: &str) -> String {
        match self {
            Self::ProcessingElement(id) | Self::Service(id) => names::processing_element(job, id),
            Self::Region(index) => names::parallel_region(job, index),
            Self::HostPool(index) => names::host_pool(job, index),
            Self::JobConfigMap => names::job_config_map(job),
            Self::Export(port) => names::export(job, port.pe, port.id),
            Self::Import(port) => names::import(job, port.pe, port.id),
            Self::ConsistentRegion(index) => names::consistent_region(job, index),
            Self::ConsistentRegionService => names::consistent_region_service(job),
            Self::TransportSecret => names::transport_secret(job),
        }
    }
}

/// A port of a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Port {
    /// Id of the PE.
    pub(crate) pe: u64,
    /// Id of the port.
    pub(crate) id: u32,
}

impl Port {
    /// The port of the object whose name ends like that.
    pub(crate) fn of_suffix(suffix: &str) -> Option<Self> {
        let (pe, id) = suffix.split_once('-')?;
        Some(Self { pe: number_in(pe)?, id: number_in(id)? })
    }
}

/// What comes after the name of the job in that of an object.
pub(crate) fn suffix<'a>(job: &str, name: &'a str) -> Option<&'a str> {
    name.strip_prefix(job)?.strip_prefix('-')
}

/// The number in the name of an object. The controller writes none with zeros before it: such an object is a copy that
/// somebody has made.
pub(crate) fn number_in<N: FromStr>(text: &str) -> Option<N> {
    let is_as_written = text == "0" || text.starts_with(|digit: char| matches!(digit, '1'..='9'));
    text.parse().ok().filter(|_| is_as_written)
}
