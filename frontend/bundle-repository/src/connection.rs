//! One client, from its first byte to its last (rules repository-1, repository-5, repository-6 and repository-7).
//!
//! Knows: the order in which things happen on a connection. Must not know: how connections are accepted.
//!
//! Invariants: a request is read when the one before is answered, so that what waits, waits in the kernel. Whatever a
//! client does or does not do, each step has a time by which it ends.

use crate::command::{Action, Session, decide};
use crate::counters::{Counted, Counters};
use crate::reply::Reply;
use crate::repository::{Found, Refusal, Repository};
use crate::request::{Limits, Malformed, next};
use crate::settings::Settings;
use crate::transfer::{send, send_bundle};
use crate::turns::Turns;
use bytes::{BufMut, Bytes, BytesMut};
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use streams_places::Places;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
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
    /// Turns to be sent a bundle.
    turns: Turns,
    /// Those of each address that have a turn or wait for one.
    transfers_of_peers: Places<(), IpAddr>,
    ids: AtomicI64,
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

impl<R: Repository> Shared<R> {
    pub(crate) fn new(repository: R, settings: Settings, counters: Counters) -> Self {
        Self {
            repository,
            counters,
            turns: Turns::new(settings.max_transfers),
            transfers_of_peers: Places::new(usize::MAX, settings.max_transfers_per_peer),
            ids: AtomicI64::new(1),
            settings,
        }
    }

    /// Answers one client until it is gone, or the server stops between two requests.
    pub(crate) async fn converse<S>(&self, mut stream: S, peer: IpAddr, stop: &CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let _counted = Counted::new(&self.counters.connections);
        let mut session = Session::new(self.ids.fetch_add(1, Ordering::Relaxed));
        let mut buffer = BytesMut::new();
        loop {
            let arguments = match self.request(&mut stream, &mut buffer, stop).await {
                Ok(arguments) => arguments,
                Err(End::Gone | End::Stopped) => return,
                Err(End::Malformed(Malformed(text))) => {
                    self.counters.request("malformed");
                    tracing::debug!(%peer, error = text, "what a client sent is no request");
                    let reply = Reply::Error(format!("ERR {text}")).bytes(session.protocol);
                    if send(&mut stream, &reply, &self.settings).await.is_ok() {
                        part(stream).await;
                    }
                    return;
                }
            };
            let action = decide(&arguments, &mut session);
            // The arguments keep the buffer that the next request is to be read into.
            drop(arguments);
            let closes = matches!(action, Action::Close(_));
            if let Err(error) = self.act(&mut stream, peer, action, &session).await {
                tracing::debug!(%peer, %error, "a client did not take its reply");
                return;
            }
            if closes {
                part(stream).await;
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
        let limits = Limits { bytes: self.settings.max_request_bytes.max(1), arguments: self.settings.max_arguments };
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

    /// Does what a request asks for, and replies.
    async fn act(
        &self,
        stream: &mut (impl AsyncWrite + Unpin),
        peer: IpAddr,
        action: Action,
        session: &Session,
    ) -> io::Result<()> {
        let reply = match action {
            Action::Reply(reply) | Action::Close(reply) => reply,
            Action::Send(name) => match self.find(peer, &name).await {
                Ok(found) => return self.transfer(stream, peer, &name, found, session).await,
                Err(reply) => reply,
            },
            Action::Length(name) => match self.find(peer, &name).await {
                Ok(found) => Reply::Integer(i64::try_from(found.length).unwrap_or(i64::MAX)),
                Err(reply) => reply,
            },
            Action::Has(name) => {
                self.names(peer).await.map_or_else(|reply| reply, |names| Reply::Integer(names.contains(&name).into()))
            }
            Action::Names => self
                .names(peer)
                .await
                .map_or_else(|reply| reply, |names| Reply::Array(names.into_iter().map(Reply::text).collect())),
            Action::Count => self
                .names(peer)
                .await
                .map_or_else(|reply| reply, |names| Reply::Integer(i64::try_from(names.len()).unwrap_or(i64::MAX))),
        };
        self.reply(stream, reply, session).await
    }

    async fn reply(&self, stream: &mut (impl AsyncWrite + Unpin), reply: Reply, session: &Session) -> io::Result<()> {
        self.counters.request(if matches!(reply, Reply::Error(_)) { "refused" } else { "answered" });
        send(stream, &reply.bytes(session.protocol), &self.settings).await
    }

    async fn find(&self, peer: IpAddr, name: &str) -> Result<Found, Reply> {
        self.ask(peer, self.repository.find(peer, name)).await
    }

    async fn names(&self, peer: IpAddr) -> Result<Vec<String>, Reply> {
        self.ask(peer, self.repository.names(peer)).await
    }

    /// What the repository answers in time, or the error that the client gets.
    async fn ask<T>(&self, peer: IpAddr, answer: impl Future<Output = Result<T, Refusal>>) -> Result<T, Reply> {
        let late = || Refusal::NotNow("the repository does not answer, try again".to_owned());
        timeout(self.settings.answer, answer).await.unwrap_or_else(|_| Err(late())).map_err(|refusal| {
            let (word, text) = refusal.parts();
            tracing::debug!(%peer, word, text, "a client is refused");
            Reply::Error(format!("{word} {text}"))
        })
    }

    /// Sends a bundle as soon as there are not too many others.
    async fn transfer(
        &self,
        stream: &mut (impl AsyncWrite + Unpin),
        peer: IpAddr,
        name: &str,
        found: Found,
        session: &Session,
    ) -> io::Result<()> {
        let busy = |whose: &str| Reply::Error(format!("TRYAGAIN too many bundles are sent {whose}, try again"));
        let Ok(_place) = self.transfers_of_peers.take(&(), &peer) else {
            return self.reply(stream, busy("to this address"), session).await;
        };
        let tenant = self.repository.tenant(peer);
        let Ok(_turn) = timeout(self.settings.transfer_wait, self.turns.wait(&tenant)).await else {
            return self.reply(stream, busy("now"), session).await;
        };
        let _counted = Counted::new(&self.counters.running_transfers);
        let sent = send_bundle(stream, found, &self.settings).await;
        match &sent {
            Ok(bytes) => {
                self.counters.request("answered");
                self.counters.transfer("done");
                self.counters.sent_bytes.inc_by(*bytes);
                tracing::debug!(%peer, bundle = name, bytes, "a bundle was sent");
            }
            Err(error) => {
                self.counters.transfer("broken");
                tracing::info!(%peer, bundle = name, %error, "a bundle was not sent to its end");
            }
        }
        sent.map(drop)
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
