//! TCP connections between PEs. The sender connects, says who it is, and connects again when the connection breaks; the
//! receiver never writes.

use crate::aadl::Destination;
use crate::api::CALL;
use crate::bundle::connect;
use crate::connections::{Connections, Output, lock};
use crate::frame::{self, Frame};
use crate::peers::{Peers, PortLabel};
use crate::scope::Scope;
use crate::status::OutputStatus;
use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Frames that wait for a connection.
const WAITING: usize = 1024;
/// Frames that are written at once.
const AT_ONCE: usize = 64;
/// How long a full queue is waited for.
const FULL: Duration = Duration::from_secs(2);
/// How long one write may take.
const WRITE: Duration = Duration::from_secs(10);
/// Pauses between tries to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How long the end of an older connection of the same sender is waited for.
const OLDER: Duration = Duration::from_secs(1);
/// Most connections to one port.
const CONNECTIONS: usize = 1024;

/// Where a connection leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To the PE that has this input port of an operator of the job.
    Operator(Destination),
    /// To this PE port.
    Port(PortLabel),
}

/// What all connections of a PE need.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) peers: Peers,
    pub(crate) connections: Arc<Connections>,
    pub(crate) address: IpAddr,
    pub(crate) pe: u64,
    pub(crate) job_id: u64,
}

/// A connection to another PE, as its sender sees it. It ends with this value.
#[derive(Debug)]
pub(crate) struct Link {
    queue: mpsc::Sender<Frame>,
    pub(crate) output: Arc<Output>,
    connections: Arc<Connections>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.connections.remove(&self.output);
    }
}

impl Link {
    /// Connects, as often as need be.
    pub(crate) fn open(scope: &Scope, network: &Arc<Network>, target: Target, described: OutputStatus) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        let own = PortLabel { pe: network.pe, port: described.port, job_id: network.job_id };
        let output = network.connections.add(described);
        scope.spawn(keep(Arc::clone(network), target, own, Arc::clone(&output), waiting));
        Self { queue, output, connections: Arc::clone(&network.connections) }
    }

    /// Sends a frame, if the connection is there and takes it.
    pub(crate) async fn send(&self, frame: Frame) {
        let is_tuple = matches!(frame, Frame::Tuple(_));
        let dropped = if !self.output.is_connected() {
            true
        } else {
            match self.queue.try_send(frame) {
                Ok(()) => false,
                Err(TrySendError::Closed(_)) => true,
                Err(TrySendError::Full(frame)) => !matches!(timeout(FULL, self.queue.send(frame)).await, Ok(Ok(()))),
            }
        };
        if dropped && is_tuple {
            self.output.dropped.fetch_add(1, Ordering::Relaxed);
        } else if dropped {
            self.connections.problem("a marker was not sent, because a connection is not there".to_owned());
        }
    }
}

async fn keep(
    network: Arc<Network>,
    target: Target,
    own: PortLabel,
    output: Arc<Output>,
    mut waiting: mpsc::Receiver<Frame>,
) {
    let mut pause = PAUSES.0;
    while !waiting.is_closed() {
        match establish(&network, target, own, &output).await {
            Ok(stream) => {
                network.connections.opened(&output);
                let broken = pump(stream, &mut waiting, &output).await;
                network.connections.closed(&output);
                match broken {
                    Ok(()) => return,
                    Err(error) => network.connections.problem(format!("a connection broke: {error:#}")),
                }
                pause = PAUSES.0;
            }
            Err(error) => network.connections.problem(format!("no connection: {error:#}")),
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Finds the peer, connects and says who it is.
async fn establish(network: &Network, target: Target, own: PortLabel, output: &Output) -> Result<TcpStream> {
    let label = match target {
        Target::Operator(destination) => network.peers.label(destination).await?,
        Target::Port(label) => label,
    };
    lock(&output.described).to = Some(label.to_string());
    let address = network.peers.address(label).await?;
    let connected = async {
        let mut stream = connect(network.address, address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&frame::encode(&Frame::Hello(own.to_string()))?).await?;
        anyhow::Ok(stream)
    };
    let connected = timeout(CALL, connected).await.unwrap_or_else(|_| bail!("not within {CALL:?}"));
    connected.with_context(|| format!("{label} at {address}"))
}

/// Writes what waits until the connection breaks, or nobody sends any more.
async fn pump(stream: TcpStream, waiting: &mut mpsc::Receiver<Frame>, output: &Output) -> Result<()> {
    let (mut read, write) = stream.into_split();
    let mut write = BufWriter::new(write);
    let mut nothing = [0; 16];
    let mut frames = Vec::with_capacity(AT_ONCE);
    loop {
        frames.clear();
        tokio::select! {
            read = read.read(&mut nothing) => match read? {
                0 => bail!("the peer has closed it"),
                _ => bail!("the peer has written to it"),
            },
            taken = waiting.recv_many(&mut frames, AT_ONCE) => if taken == 0 { return Ok(()) },
        }
        let tuples = frames.iter().filter(|frame| matches!(frame, Frame::Tuple(_))).count() as u64;
        let written = async {
            for frame in &frames {
                write.write_all(&frame::encode(frame)?).await?;
            }
            write.flush().await?;
            anyhow::Ok(())
        };
        match timeout(WRITE, written).await.unwrap_or_else(|_| bail!("a write took longer than {WRITE:?}")) {
            Ok(()) => output.sent.fetch_add(tuples, Ordering::Relaxed),
            Err(error) => {
                output.dropped.fetch_add(tuples, Ordering::Relaxed);
                return Err(error);
            }
        };
    }
}

/// Readers of one port, by sender, with what ends them.
type Readers = Mutex<BTreeMap<PortLabel, JoinHandle<()>>>;

/// Takes connections to one input port.
pub(crate) async fn listen(
    scope: Scope,
    listener: TcpListener,
    port: u32,
    connections: Arc<Connections>,
    arrived: mpsc::Sender<(u32, Frame)>,
) {
    let readers: Arc<Readers> = Arc::default();
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    while let Ok(place) = Arc::clone(&room).acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                connections.problem(format!("the port {port} takes no connection: {error}"));
                sleep(PAUSES.1).await;
                continue;
            }
        };
        let (readers, connections, arrived) = (Arc::clone(&readers), Arc::clone(&connections), arrived.clone());
        let inner = scope.clone();
        scope.spawn(async move {
            if let Err(error) = receive(&inner, stream, port, &readers, &connections, arrived, place).await {
                connections.problem(format!("a connection to the port {port}: {error:#}"));
            }
        });
    }
}

async fn receive(
    scope: &Scope,
    stream: TcpStream,
    port: u32,
    readers: &Readers,
    connections: &Arc<Connections>,
    arrived: mpsc::Sender<(u32, Frame)>,
    place: OwnedSemaphorePermit,
) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let from = match timeout(CALL, frame::read(&mut stream)).await.context("nothing came")?? {
        Some(Frame::Hello(label)) => label.parse::<PortLabel>()?,
        // Somebody wanted to know whether anybody listens.
        None => return Ok(()),
        Some(_) => bail!("the first frame does not say who sends"),
    };
    // Of an older connection of the same sender is taken what has come, so that nothing old comes behind what is new.
    let older = lock(readers).remove(&from);
    if let Some(mut older) = older
        && timeout(OLDER, &mut older).await.is_err()
    {
        older.abort();
        let _ = older.await;
    }
    let counted = Arc::clone(connections);
    let reader = scope.spawn(async move {
        let _place = place;
        let _open = Open::new(Arc::clone(&counted), port, from);
        loop {
            match frame::read(&mut stream).await {
                Ok(Some(frame)) => {
                    if matches!(frame, Frame::Tuple(_)) {
                        counted.input(port, from, |input| input.received += 1);
                    }
                    if arrived.send((port, frame)).await.is_err() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => return counted.problem(format!("a connection from {from} broke: {error:#}")),
            }
        }
    });
    let mut readers = lock(readers);
    readers.retain(|_, reader| !reader.is_finished());
    readers.insert(from, reader);
    Ok(())
}

/// A connection from another PE, as long as it is read.
struct Open {
    connections: Arc<Connections>,
    port: u32,
    from: PortLabel,
}

impl Open {
    fn new(connections: Arc<Connections>, port: u32, from: PortLabel) -> Self {
        connections.input(port, from, |input| {
            input.opened += 1;
            input.connected = true;
        });
        Self { connections, port, from }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.input(self.port, self.from, |input| {
            input.closed += 1;
            input.connected = false;
        });
    }
}
