//! PEs and their ports, and how PEs write them.
//!
//! Knows: names of jobs, numbers. Must not know: what is exported or imported.

use std::fmt;
use std::sync::Arc;

/// A PE of a namespace. `Display` writes the name of its object and its Service, `<job>-<number>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pe {
    /// Name of the job.
    pub job: Arc<str>,
    /// Number of the PE in the job.
    pub id: u64,
}

impl fmt::Display for Pe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.job, self.id)
    }
}

/// An output port that is exported, or an input port that imports; the two are numbered apart. `Display` writes the
/// label by which PEs tell ports, `<job>-<PE>-<port>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// The PE.
    pub pe: Pe,
    /// Number of the port among the output, or input, ports of the PE.
    pub id: u32,
}

impl fmt::Display for Port {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.pe, self.id)
    }
}
