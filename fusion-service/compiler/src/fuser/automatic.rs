//! Automatic fusion: how many PEs a job should have (rule fusion-22).
//!
//! An application needs at least as many threads as it has sources, queues and ports under the dynamic threading model.
//! It can use one more thread for every operator that may run under that model. Divided by the CPUs of a PE, these two
//! numbers give a range of PEs. What the cluster has left decides where in the range the number is; without that figure
//! it is the low end.

use super::graph::Graph;
use get_size2::GetSize;
use serde::Serialize;

/// CPUs, in thousandths, that bear on the number of PEs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpus {
    /// Limit of a PE.
    pub limit: Option<u64>,
    /// Request of a PE.
    pub request: Option<u64>,
    /// Resources are given for the whole job and divided among its PEs, so that none of the above is known.
    pub job_wide: bool,
    /// What schedulable nodes have left; `None` if the cluster cannot be seen.
    pub free: Option<u64>,
    /// How much of that the job may take, in thousandths.
    pub share: u32,
}

impl Cpus {
    /// Half of what is left.
    pub const DEFAULT_SHARE: u32 = 500;
    /// One CPU: what a PE has if nothing is said.
    pub const ONE: u64 = 1000;
}

/// How the number of PEs came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, GetSize)]
pub struct Automatic {
    /// Threads the application needs.
    pub least_threads: u64,
    /// Threads it can use.
    pub most_threads: u64,
    /// CPUs of a PE, in thousandths.
    pub cpu: u64,
    /// PEs for the least threads.
    pub low: u32,
    /// PEs for the most threads.
    pub high: u32,
    /// PEs for which the cluster has room; `None` if that is not known.
    pub room: Option<u64>,
    /// The number of PEs.
    pub count: u32,
}

/// Computes the number of PEs. At least 1, and at most the number of operators if there are any.
pub fn automatic(graph: &Graph, cpus: &Cpus) -> Automatic {
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
    Automatic { least_threads, most_threads, cpu, low, high, room, count }
}

/// Threads that an application needs, and threads that it can use, before fusion.
fn threads(graph: &Graph) -> (u64, u64) {
    let (mut least, mut dynamic) = (0, 0);
    for traits in graph.operators().keys().map(|node| graph.traits(node)) {
        let (inputs, queues) = (traits.inputs.len(), traits.inputs.iter().filter(|port| port.threaded).count());
        // A queue has its own thread under any model.
        least += match (inputs, traits.threading.dynamic) {
            (0, _) => 1,
            (_, true) => inputs as u64,
            (_, false) => queues as u64,
        };
        // No model, `automatic` and `dedicated` leave it to the runtime (rule element-9). A source has nothing to
        // schedule.
        dynamic += u64::from(inputs > 0 && !traits.threading.manual);
    }
    (least, least + dynamic)
}

fn clamp(value: u64, low: u32, high: u32) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX).clamp(low, high)
}
