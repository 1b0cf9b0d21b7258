//! Automatic fusion: how many PEs a job should have (rule fusion-22).
//!
//! An application needs at least as many threads as it has sources, queues and ports under the dynamic threading model.
//! It can use one more thread for every operator that may run under that model. Divided by the CPUs of a PE, these two
//! numbers give a range of PEs. What the cluster has left decides where in the range the number is; without that figure
//! it is the low end.

use super::graph::Graph;
use get_size2::GetSize;
use serde::Serialize;

/// What automatic fusion knows about CPUs, in thousandths of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpus {
    /// Limit of a PE.
    pub limit: Option<u64>,
    /// Request of a PE.
    pub request: Option<u64>,
    /// The job gives its resources for all PEs together. Then neither limit nor request of a PE is known.
    pub job_wide: bool,
    /// CPUs that schedulable nodes have left. `None` if the frontend cannot read the nodes.
    pub free: Option<u64>,
    /// How much of that the job may take, in thousandths.
    pub share: u32,
}

impl Cpus {
    /// The share if the job gives none: half of what the nodes have left.
    pub const DEFAULT_SHARE: u32 = 500;
    /// One CPU, which a PE has if the job gives neither limit nor request.
    pub const ONE: u64 = 1000;
}

/// The figures of automatic fusion: the number of PEs, and what it was computed from. Accounts show them to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, GetSize)]
pub struct AutomaticFusion {
    /// Threads that the application needs.
    #[serde(rename = "least")]
    pub least_threads: u64,
    /// Threads that it can use.
    #[serde(rename = "most")]
    pub most_threads: u64,
    /// CPUs of a PE, in thousandths.
    #[serde(rename = "milliCpu")]
    pub cpu: u64,
    /// PEs for the least threads.
    pub low: u32,
    /// PEs for the most threads.
    pub high: u32,
    /// PEs for which the cluster has room; `None` if that is not known.
    pub room: Option<u64>,
    /// The number of PEs.
    #[serde(skip)]
    pub count: u32,
}

/// Computes the number of PEs. It is at least 1, and at most the number of operators if there are any.
pub fn automatic(graph: &Graph, cpus: &Cpus) -> AutomaticFusion {
    let (least_threads, most_threads) = threads(graph);
    let operators = u32::try_from(graph.operators().len()).unwrap_or(u32::MAX).max(1);
    let cpu = match (cpus.job_wide, cpus.limit.or(cpus.request)) {
        (false, Some(cpu)) => cpu.max(Cpus::ONE),
        _ => Cpus::ONE,
    };
    let pes = |threads: u64| threads.saturating_mul(Cpus::ONE).div_ceil(cpu);
    let low = clamp(pes(least_threads), 1, operators);
    let high = clamp(pes(most_threads), low, operators);
    let request = cpus.request.filter(|&request| request > 0 && !cpus.job_wide);
    let room = cpus.free.zip(request).map(|(free, request)| {
        let room = u128::from(free) * u128::from(cpus.share) / (1000 * u128::from(request));
        u64::try_from(room).unwrap_or(u64::MAX)
    });
    let count = room.map_or(low, |room| clamp(room, low, high));
    AutomaticFusion { least_threads, most_threads, cpu, low, high, room, count }
}

/// Counts the threads that an application needs, and the threads that it can use, before fusion.
fn threads(graph: &Graph) -> (u64, u64) {
    let (mut least, mut dynamic) = (0, 0);
    for traits in graph.operators().keys().map(|node| graph.traits(node)) {
        let (inputs, queues) = (traits.inputs.len(), traits.inputs.iter().filter(|port| port.threaded).count());
        // A threaded port has a thread of its own under every threading model.
        least += match (inputs, traits.threading.dynamic) {
            (0, _) => 1,
            (_, true) => inputs as u64,
            (_, false) => queues as u64,
        };
        // Without a model, and under `automatic` and `dedicated`, the runtime decides (rule element-9). A source has
        // nothing to schedule.
        dynamic += u64::from(inputs > 0 && !traits.threading.manual);
    }
    (least, least + dynamic)
}

fn clamp(value: u64, low: u32, high: u32) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX).clamp(low, high)
}
