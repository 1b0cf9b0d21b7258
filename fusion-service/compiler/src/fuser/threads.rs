//! How threads run through a PE: injected threaded ports and the single-threaded flags (rules element-10, element-11
//! and element-12).
//!
//! The runtime omits locks where at most one thread can arrive, so the flags must be right. This module propagates the
//! set of threads along the connections. It only tells apart no thread, one thread and several threads, which makes it
//! a data flow over a lattice of height two. It takes time linear in the connections; following each thread by itself
//! would be quadratic.
//!
//! The flags are always computed from those of the ADL, never from the flags of an earlier fusion (rule element-13).

use super::graph::Graph;
use super::partition::{Partition, Pe};
use crate::budget::Pace;
use crate::error::Error;
use get_size2::GetSize;
use smallvec::{SmallVec, smallvec};

/// How many threads execute an operator and leave it, and its threaded ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorThreads {
    /// At most one thread executes it.
    pub single_threaded_on_inputs: bool,
    /// At most one thread submits tuples from it.
    pub single_threaded_on_outputs: bool,
    /// At most one thread reaches other PEs from it; the same for all its ports.
    pub single_threaded_to_others: bool,
    /// By input port: its threaded port, explicit or injected.
    pub threaded_ports: SmallVec<[Option<ThreadedPort>; 2]>,
}

/// A threaded port: a queue with a thread behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, GetSize)]
pub struct ThreadedPort {
    /// Added by fusion, not in the ADL.
    pub injected: bool,
    /// At most one thread fills the queue.
    pub single_threaded_on_input: bool,
}

/// The threads that arrive at some point of the program: none, a known one, or several.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Threads {
    #[default]
    None,
    One(u32),
    Many,
}

impl Threads {
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, threads) | (threads, Self::None) => threads,
            (a, b) if a == b => a,
            _ => Self::Many,
        }
    }

    fn at_most_one(self) -> bool {
        self != Self::Many
    }
}

/// The state of an operator during the propagation.
#[derive(Default)]
struct OperatorState {
    /// Threads that execute it.
    executing: Threads,
    /// Threads that begin in it, apart from those that execute it.
    owned: Threads,
    /// Threads that were passed on to the operators downstream.
    passed_on: Threads,
    queues: SmallVec<[Option<Queue>; 2]>,
}

#[derive(Clone, Copy)]
struct Queue {
    injected: bool,
    filling: Threads,
}

/// Threads of one PE, by position in [`Partition::operators`].
///
/// # Errors
///
/// The budget ends.
pub fn threads(
    graph: &Graph,
    partition: &Partition,
    pe: Pe,
    pace: &mut Pace<'_>,
) -> Result<Vec<OperatorThreads>, Error> {
    let members = partition.operators(pe);
    let mut states: Vec<OperatorState> = members.iter().map(|_| OperatorState::default()).collect();
    let inside = |operator| (partition.pe(operator) == pe).then(|| partition.position(operator));

    for (state, &operator) in states.iter_mut().zip(members) {
        let explicit = |threaded: bool| threaded.then_some(Queue { injected: false, filling: Threads::None });
        state.queues = graph.traits(operator).inputs.iter().map(|port| explicit(port.threaded)).collect();
    }
    for &operator in members {
        // Once for this loop and for the next.
        pace.steps(graph.degree(operator).saturating_add(1))?;
        for connection in graph.outgoing(operator) {
            if let Some(target) = inside(connection.target)
                && (connection.via().is_some() || graph.traits(connection.target).threading.dedicated)
            {
                states[target].queues[connection.target_port as usize]
                    .get_or_insert(Queue { injected: true, filling: Threads::None });
            }
        }
    }

    let mut next = 0;
    let mut thread = || {
        next += 1;
        Threads::One(next)
    };
    for (state, &operator) in states.iter_mut().zip(members) {
        let traits = graph.traits(operator);
        let mut from_others: SmallVec<[bool; 8]> = smallvec![false; traits.inputs.len()];
        for connection in graph.incoming(operator).filter(|connection| partition.pe(connection.source) != pe) {
            from_others[connection.target_port as usize] = true;
        }
        for ((queue, from_others), port) in state.queues.iter_mut().zip(from_others).zip(&traits.inputs) {
            if !from_others && !port.imported {
                continue;
            }
            match queue {
                Some(queue) => queue.filling = queue.filling.join(thread()),
                None => state.executing = state.executing.join(thread()),
            }
        }
        if traits.inputs.is_empty() && !traits.outputs.is_empty() {
            state.owned = state.owned.join(thread());
        }
        if !traits.single_threaded_on_outputs {
            state.owned = state.owned.join(thread());
        }
        for queue in &state.queues {
            if queue.is_some() || !traits.threading.manual {
                state.executing = state.executing.join(thread());
            }
        }
    }

    let mut pending: Vec<usize> = (0..members.len()).collect();
    while let Some(position) = pending.pop() {
        let state = &mut states[position];
        let leaving = state.executing.join(state.owned);
        if leaving == state.passed_on {
            continue;
        }
        state.passed_on = leaving;
        let outgoing = graph.outgoing(members[position]);
        pace.steps(u32::try_from(outgoing.len()).unwrap_or(u32::MAX))?;
        for connection in outgoing {
            let Some(target) = inside(connection.target) else { continue };
            let state = &mut states[target];
            if let Some(queue) = &mut state.queues[connection.target_port as usize] {
                queue.filling = queue.filling.join(leaving);
            } else if !graph.traits(connection.target).threading.dynamic {
                let executing = state.executing.join(leaving);
                if executing != state.executing {
                    state.executing = executing;
                    pending.push(target);
                }
            }
        }
    }

    let flags = states.iter().zip(members).map(|(state, &operator)| {
        let traits = graph.traits(operator);
        let single = state.executing.at_most_one() && (traits.threading.manual || traits.inputs.len() <= 1);
        let threaded_port = |queue: &Queue| ThreadedPort {
            injected: queue.injected,
            single_threaded_on_input: queue.filling.at_most_one(),
        };
        OperatorThreads {
            single_threaded_on_inputs: single,
            single_threaded_on_outputs: single && traits.single_threaded_on_outputs,
            single_threaded_to_others: state.passed_on.at_most_one(),
            threaded_ports: state.queues.iter().map(|queue| queue.as_ref().map(threaded_port)).collect(),
        }
    });
    Ok(flags.collect())
}
