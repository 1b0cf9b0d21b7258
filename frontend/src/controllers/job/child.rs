//! The keys of the objects of a job that the controller applies.

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

/// A port of a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Port {
    /// Id of the PE.
    pub(crate) pe: u64,
    /// Id of the port.
    pub(crate) id: u32,
}
