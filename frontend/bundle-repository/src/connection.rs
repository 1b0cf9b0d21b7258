//! One client, from its first byte to its last (rules repository-1, repository-5, repository-6 and repository-7).
//!
//! Knows: the order in which things happen on a connection. Must not know: how connections are accepted.
//!
//! Invariants: a request is read when the one before is answered, so that what waits, waits in the kernel. Whatever a
//! client does or does not do, each step has a time by which it ends. Who asks for a bundle and does not get it is left
//! without a reply; who only looks is told why.

use crate::command::{Action, Session, decide};
use crate::counters::{Counted, Counters, RequestEnd, TransferEnd};
use crate::reply::Reply;
use crate::repository::{Found, Refusal, Repository};
use crate::request::{Limits, Malformed, next};
use crate::seats::{Seat, Seats};
use crate::settings::Settings;
use crate::told::{Told, beginning};
use crate::transfer::{send, send_bundle};
use crate::turns::Turns;
use bytes::{BufMut, Bytes, BytesMut};
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use streams_places::Places;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Bytes that are read at once.
const READ: usize = 4096;
/// How long a client may take to read the last reply, before the connection is closed under it.
const PARTING: Duration = Duration::from_secs(1);
/// Bytes that are read and thrown away meanwhile.
const MAX_PARTING: u64 = 1 << 20;

/// What all connections share.
pub(crate) struct Shared<R> {
    pub(crate) repository: R,
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
    /// Connections of each client.
    pub(crate) seats: Seats,
    /// Turns to be sent a bundle.
    turns: Turns,
    /// Those of each address that have a turn or wait for one.
    transfers_of_peers: Places<(), IpAddr>,
    told: Told,
    ids: AtomicI64,
}

/// One client.
struct Client<S> {
    stream: S,
    peer: IpAddr,
    session: Session,
    /// What it has sent and was not looked at yet.
    buffer: BytesMut,
    seat: Option<Seat>,
}

/// Why a connection ends.
enum End {
    /// The client is gone, or its time is over.
    Gone,
    /// What it sent is no request.
    Malformed(Malformed),
    /// The server stops.
    Stopped,
}

/// Why a request has no answer of the repository.
enum Unanswered {
    /// The repository refuses, or takes too long.
    Refused(Refusal),
    /// The client has gone meanwhile.
    Gone,
}

impl<R: Repository> Shared<R> {
    pub(crate) fn new(repository: R, settings: Settings, counters: Counters) -> Self {
        Self {
            repository,
            counters,
            seats: Seats::new(&settings),
            turns: Turns::new(settings.max_transfers),
            transfers_of_peers: Places::new(usize::MAX, settings.max_transfers_per_peer),
            told: Told::default(),
            ids: AtomicI64::new(1),
            settings,
        }
    }

    /// Answers one client until it is gone, or the server stops between two requests.
    pub(crate) async fn converse<S>(&self, stream: S, peer: IpAddr, seat: Option<Seat>, stop: &CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let _counted = Counted::new(&self.counters.connections);
        let session = Session::new(self.ids.fetch_add(1, Ordering::Relaxed));
        let mut client = Client { stream, peer, session, buffer: BytesMut::new(), seat };
        loop {
            let arguments = match self.request(&mut client.stream, &mut client.buffer, stop).await {
                Ok(arguments) => arguments,
                Err(End::Gone | End::Stopped) => return,
                Err(End::Malformed(Malformed(text))) => {
                    self.counters.request(RequestEnd::Malformed);
                    tracing::debug!(%peer, error = text, "what a client sent is no request");
                    let reply = Reply::Error(format!("ERR {text}")).bytes(client.session.protocol);
                    if send(&mut client.stream, &reply, &self.settings).await.is_ok() {
                        part(client.stream).await;
                    }
                    return;
                }
            };
            let action = decide(&arguments, &mut client.session);
            // The arguments keep the buffer that the next request is to be read into.
            drop(arguments);
            let closes = matches!(action, Action::Close(_));
            match self.act(&mut client, action).await {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return,
                Err(error) => {
                    tracing::debug!(%peer, %error, "a client did not take its reply");
                    return;
                }
            }
            if closes {
                part(client.stream).await;
                return;
            }
        }
    }

    /// Reads a request as a whole.
    async fn request(
        &self,
        stream: &mut (impl AsyncRead + Unpin),
        buffer: &mut BytesMut,
        stop: &CancellationToken,
    ) -> Result<Vec<Bytes>, End> {
        let limits = Limits { bytes: self.most(), arguments: self.settings.max_arguments };
        let read = async {
            loop {
                if let Some(arguments) = next(buffer, &limits).map_err(End::Malformed)? {
                    return Ok(arguments);
                }
                // What is no request yet is shorter than the bound.
                let room = limits.bytes.saturating_sub(buffer.len()).clamp(1, READ);
                buffer.reserve(room);
                match stream.read_buf(&mut (&mut *buffer).limit(room)).await {
                    Ok(0) | Err(_) => return Err(End::Gone),
                    Ok(_) => {}
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(End::Stopped),
            read = timeout(self.settings.idle, read) => read.unwrap_or(Err(End::Gone)),
        }
    }

    /// Most bytes of a request.
    fn most(&self) -> usize {
        self.settings.max_request_bytes.max(1)
    }

    /// Does what a request asks for, and replies; breaks off, if the client is to be left.
    async fn act<S>(&self, client: &mut Client<S>, action: Action) -> io::Result<ControlFlow<()>>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let repository = &self.repository;
        let peer = client.peer;
        let reply = match action {
            Action::Reply(reply) | Action::Close(reply) => Ok(reply),
            Action::Send(name) => {
                return match self.ask(client, repository.find(peer, &name)).await {
                    Ok(found) => self.transfer(client, &name, found).await,
                    Err(unanswered) => Ok(self.leave(client, &name, unanswered)),
                };
            }
            Action::Length(name) => self
                .ask(client, repository.find(peer, &name))
                .await
                .map(|found| Reply::Integer(i64::try_from(found.length).unwrap_or(i64::MAX))),
            Action::Has(name) => {
                self.ask(client, repository.names(peer)).await.map(|names| Reply::Integer(names.contains(&name).into()))
            }
            Action::Names => self
                .ask(client, repository.names(peer))
                .await
                .map(|names| Reply::Array(names.into_iter().map(Reply::text).collect())),
            Action::Count => self
                .ask(client, repository.names(peer))
                .await
                .map(|names| Reply::Integer(i64::try_from(names.len()).unwrap_or(i64::MAX))),
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(Unanswered::Gone) => return Ok(ControlFlow::Break(())),
            Err(Unanswered::Refused(refusal)) => {
                let (word, text) = refusal.parts();
                tracing::debug!(%peer, word, text, "a client is refused");
                Reply::Error(format!("{word} {text}"))
            }
        };
        let end = if matches!(reply, Reply::Error(_)) { RequestEnd::Refused } else { RequestEnd::Answered };
        self.counters.request(end);
        send(&mut client.stream, &reply.bytes(client.session.protocol), &self.settings).await?;
        Ok(ControlFlow::Continue(()))
    }

    /// What the repository answers in time, when it is known whose client asks.
    async fn ask<S, T>(
        &self,
        client: &mut Client<S>,
        answer: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Unanswered>
    where
        S: AsyncRead + Unpin,
    {
        let Client { stream, buffer, seat, peer, .. } = client;
        let answered = async {
            // If it is not known in time, the repository says what becomes of it.
            let _ = timeout(self.settings.known, self.repository.known(*peer)).await;
            let has_seat = seat.as_mut().is_none_or(|seat| self.seats.move_to(seat, self.repository.tenant(*peer)));
            if !has_seat {
                return Err(Refusal::NotNow("there are too many connections of this namespace".to_owned()));
            }
            let late = || Refusal::NotNow("the repository does not answer, try again".to_owned());
            timeout(self.settings.answer, answer).await.unwrap_or_else(|_| Err(late()))
        };
        tokio::select! {
            biased;
            answered = answered => answered.map_err(Unanswered::Refused),
            () = gone(stream, buffer, self.most()) => Err(Unanswered::Gone),
        }
    }

    /// Whether people are told of what a client has come to.
    fn is_told_of(&self, peer: IpAddr) -> bool {
        self.told.has_room(&self.repository.tenant(peer), Instant::now())
    }

    /// A client that asked for a bundle does not get it, and gets no reply either: a bootstrap would take the words for
    /// its bundle. Without a reply it ends, and its log says that the connection was closed.
    fn leave<S>(&self, client: &Client<S>, name: &str, unanswered: Unanswered) -> ControlFlow<()> {
        match unanswered {
            Unanswered::Gone => tracing::debug!(peer = %client.peer, bundle = name, "a client waits no longer"),
            Unanswered::Refused(refusal) => {
                self.counters.request(RequestEnd::Refused);
                let (word, why) = refusal.parts();
                let (peer, name, why) = (client.peer, beginning(name), beginning(why));
                if self.is_told_of(peer) {
                    tracing::info!(%peer, bundle = name, word, why, "a client is left without its bundle");
                } else {
                    tracing::debug!(%peer, bundle = name, word, why, "a client is left without its bundle");
                }
            }
        }
        ControlFlow::Break(())
    }

    /// Sends a bundle as soon as there are not too many others.
    async fn transfer<S>(&self, client: &mut Client<S>, name: &str, found: Found) -> io::Result<ControlFlow<()>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let peer = client.peer;
        let busy =
            |whose: &str| Unanswered::Refused(Refusal::NotNow(format!("too many bundles are sent {whose}, try again")));
        let Ok(_place) = self.transfers_of_peers.take(&(), &peer) else {
            return Ok(self.leave(client, name, busy("to this address")));
        };
        let tenant = self.repository.tenant(peer);
        let turn = tokio::select! {
            biased;
            turn = timeout(self.settings.transfer_wait, self.turns.wait(&tenant)) => turn.map_err(|_| busy("now")),
            () = gone(&mut client.stream, &mut client.buffer, self.most()) => Err(Unanswered::Gone),
        };
        let _turn = match turn {
            Ok(turn) => turn,
            Err(unanswered) => return Ok(self.leave(client, name, unanswered)),
        };
        let _counted = Counted::new(&self.counters.running_transfers);
        let sent = send_bundle(&mut client.stream, found, &self.settings).await;
        match &sent {
            Ok(bytes) => {
                self.counters.request(RequestEnd::Answered);
                self.counters.transfer(TransferEnd::Done);
                self.counters.sent_bytes.inc_by(*bytes);
                tracing::debug!(%peer, bundle = name, bytes, "a bundle was sent");
            }
            Err(error) => {
                self.counters.transfer(TransferEnd::Broken);
                if self.is_told_of(peer) {
                    tracing::info!(%peer, bundle = beginning(name), %error, "a bundle was not sent to its end");
                } else {
                    tracing::debug!(%peer, bundle = beginning(name), %error, "a bundle was not sent to its end");
                }
            }
        }
        sent.map(|_| ControlFlow::Continue(()))
    }
}

/// Waits until a client that waits for its reply closes the connection. What it sends meanwhile is for later; when that
/// is as much as a request may have, nothing more is read, and nobody sees it going.
async fn gone(stream: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut, most: usize) {
    loop {
        let room = most.saturating_sub(buffer.len()).min(READ);
        if room == 0 {
            return std::future::pending().await;
        }
        buffer.reserve(room);
        match stream.read_buf(&mut (&mut *buffer).limit(room)).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Closes a connection so that the client gets the last reply, whatever else it has sent.
async fn part(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let last = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(MAX_PARTING), &mut tokio::io::sink()).await
    };
    let _ = timeout(PARTING, last).await;
}
