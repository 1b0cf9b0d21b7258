//! All connections of a PE, those that are there and those that should be: what it counts of them, and what follows for
//! its connectivity.

use crate::peers::PortLabel;
use crate::status::{Connectivity, InputStatus, OutputStatus, Problems};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::watch;

/// Problems that are kept in words.
const PROBLEMS: usize = 20;
/// Most connections from others that are remembered.
const INPUTS: usize = 4096;

/// What is counted of a connection to another PE.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// What does not count, and what was found out last.
    pub(crate) described: Mutex<OutputStatus>,
    connected: AtomicBool,
    opened: AtomicU64,
    closed: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) filtered: AtomicU64,
}

impl Output {
    /// Whether it is there.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    /// Whether it is there, or was.
    pub(crate) fn was_connected(&self) -> bool {
        self.opened.load(Ordering::Acquire) > 0
    }

    fn status(&self) -> OutputStatus {
        let described = lock(&self.described).clone();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        OutputStatus {
            connected: self.is_connected(),
            opened: count(&self.opened),
            closed: count(&self.closed),
            sent: count(&self.sent),
            dropped: count(&self.dropped),
            filtered: count(&self.filtered),
            ..described
        }
    }
}

/// The connections of a PE.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    outputs: Mutex<Vec<Arc<Output>>>,
    inputs: Mutex<BTreeMap<(u32, PortLabel), InputStatus>>,
    static_inputs: Mutex<BTreeSet<PortLabel>>,
    imported: Mutex<BTreeSet<PortLabel>>,
    problems: Mutex<Problems>,
    changed: watch::Sender<u64>,
}

impl Connections {
    /// Says when a connection has come or gone.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn change(&self) {
        self.changed.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// Adds a connection to another PE.
    pub(crate) fn add(&self, described: OutputStatus) -> Arc<Output> {
        let output = Arc::new(Output { described: Mutex::new(described), ..Output::default() });
        lock(&self.outputs).push(Arc::clone(&output));
        self.change();
        output
    }

    /// Removes one.
    pub(crate) fn remove(&self, output: &Arc<Output>) {
        lock(&self.outputs).retain(|other| !Arc::ptr_eq(other, output));
        self.change();
    }

    /// A connection to another PE has come.
    pub(crate) fn opened(&self, output: &Output) {
        output.opened.fetch_add(1, Ordering::AcqRel);
        output.connected.store(true, Ordering::Release);
        self.change();
    }

    /// It has gone.
    pub(crate) fn closed(&self, output: &Output) {
        output.connected.store(false, Ordering::Release);
        output.closed.fetch_add(1, Ordering::AcqRel);
        self.change();
    }

    /// PE ports of the job that send to this PE.
    pub(crate) fn expect(&self, peers: BTreeSet<PortLabel>) {
        *lock(&self.static_inputs) = peers;
    }

    /// Changes of which PE ports this PE imports the streams.
    pub(crate) fn import(&self, change: impl FnOnce(&mut BTreeSet<PortLabel>)) {
        change(&mut lock(&self.imported));
        self.change();
    }

    /// Something of a connection from another PE.
    pub(crate) fn input(&self, port: u32, from: PortLabel, what: impl FnOnce(&mut InputStatus)) {
        let mut inputs = lock(&self.inputs);
        if inputs.len() >= INPUTS {
            inputs.retain(|_, input| input.connected);
        }
        let input = inputs.entry((port, from)).or_insert_with(|| InputStatus {
            port,
            from: from.to_string(),
            ..InputStatus::default()
        });
        let connected = input.connected;
        what(input);
        if connected != input.connected {
            self.change();
        }
    }

    /// Whether all connections to other PEs of the job have been there once.
    pub(crate) fn have_all_been_there(&self) -> bool {
        lock(&self.outputs).iter().all(|output| output.was_connected() || lock(&output.described).kind != "static")
    }

    /// How many of the connections are there.
    pub(crate) fn connectivity(&self) -> Connectivity {
        let connected: BTreeSet<PortLabel> =
            lock(&self.inputs).iter().filter(|(_, input)| input.connected).map(|((_, from), _)| *from).collect();
        let expected: BTreeSet<PortLabel> = lock(&self.static_inputs).union(&lock(&self.imported)).copied().collect();
        let outputs = lock(&self.outputs);
        let all = outputs.len() + expected.len();
        let there = outputs.iter().filter(|output| output.is_connected()).count()
            + expected.iter().filter(|label| connected.contains(label)).count();
        match there {
            _ if there == all => Connectivity::Full,
            0 => Connectivity::None,
            _ => Connectivity::Partial,
        }
    }

    /// Something went wrong.
    pub(crate) fn problem(&self, problem: String) {
        let mut problems = lock(&self.problems);
        problems.count += 1;
        if problems.last.last() == Some(&problem) {
            return;
        }
        if problems.last.len() >= PROBLEMS {
            problems.last.remove(0);
        }
        problems.last.push(problem);
    }

    /// What the status page says of connections: to others, from others; and what went wrong.
    pub(crate) fn status(&self) -> (Vec<OutputStatus>, Vec<InputStatus>, Problems) {
        let outputs = lock(&self.outputs).iter().map(|output| output.status()).collect();
        let inputs = lock(&self.inputs).values().cloned().collect();
        (outputs, inputs, lock(&self.problems).clone())
    }
}

/// Locks, also after a panic of another task.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
