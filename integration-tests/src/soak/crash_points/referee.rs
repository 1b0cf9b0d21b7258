//! Says what becomes of each call of a frontend: it counts those that matter and strikes at one of them.
//!
//! Knows: calls as they are asked about. Must not know: operations, frontends as processes.

use crate::faults::{Asked, Verdict};
use anyhow::{Context as _, Result};
use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Where a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blow {
    /// The process is killed before a write is sent.
    KilledBefore,
    /// The process is killed after a write was answered.
    KilledAfter,
    /// A call is answered with this status.
    Status(u16),
    /// The connection breaks.
    Reset,
    /// Nobody answers.
    TimeOut,
    /// What was asked for happens, and the answer is lost.
    AnswerLost,
    /// The process stops before a write is sent, and sends it when another one leads.
    Frozen,
    /// The API server is killed before a write reaches it, and started again.
    ApiServerKilled,
    /// The same with etcd.
    EtcdKilled,
}

impl Blow {
    /// The process is killed.
    pub const KILLS: [Self; 2] = [Self::KilledBefore, Self::KilledAfter];
    /// The API server, or the way to it, fails.
    pub const FAULTS: [Self; 8] = [
        Self::Status(429),
        Self::Status(500),
        Self::Status(503),
        Self::Status(504),
        Self::Status(409),
        Self::Reset,
        Self::TimeOut,
        Self::AnswerLost,
    ];

    /// The control plane fails, for everybody.
    pub const OUTAGES: [Self; 2] = [Self::ApiServerKilled, Self::EtcdKilled];
    /// All that there are.
    pub const ALL: [Self; 13] = {
        let [a, b] = Self::KILLS;
        let [c, d, e, f, g, h, i, j] = Self::FAULTS;
        let [k, l] = Self::OUTAGES;
        [a, b, Self::Frozen, c, d, e, f, g, h, i, j, k, l]
    };

    /// Whether it strikes at writes only, whose numbers are counted apart from those of calls.
    pub fn is_of_writes(self) -> bool {
        !Self::FAULTS.contains(&self)
    }

    fn verdict(self) -> Verdict {
        match self {
            Self::KilledBefore => Verdict::DieBefore,
            Self::KilledAfter => Verdict::DieAfter,
            Self::Status(code) => Verdict::Status(code),
            Self::Reset => Verdict::Reset,
            Self::TimeOut => Verdict::Hang,
            Self::AnswerLost => Verdict::LoseAnswer,
            Self::Frozen => Verdict::Freeze,
            Self::ApiServerKilled | Self::EtcdKilled => Verdict::Pass,
        }
    }
}

impl fmt::Display for Blow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KilledBefore => formatter.write_str("killed before"),
            Self::KilledAfter => formatter.write_str("killed after"),
            Self::Status(code) => write!(formatter, "answered {code}"),
            Self::Reset => formatter.write_str("connection reset"),
            Self::TimeOut => formatter.write_str("no answer"),
            Self::AnswerLost => formatter.write_str("answer lost"),
            Self::Frozen => formatter.write_str("frozen"),
            Self::ApiServerKilled => formatter.write_str("API server killed"),
            Self::EtcdKilled => formatter.write_str("etcd killed"),
        }
    }
}

/// What watches are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Watches {
    /// As they are.
    #[default]
    Good,
    /// What they tell comes so many milliseconds late.
    Late(u64),
    /// Each breaks off after so many pieces.
    BreakOff(usize),
}

#[derive(Debug, Default)]
struct State {
    watches: Watches,
    /// Calls are counted.
    counts: bool,
    /// Where to strike, from 1 on: among the writes for a kill, else among all calls.
    strikes_at: Option<(usize, Blow)>,
    /// Calls so far, and how many of them were writes.
    calls: Vec<String>,
    writes: usize,
    /// The call that was struck.
    struck: Option<String>,
}

/// The referee of the frontends of one lane.
#[derive(Debug)]
pub struct Referee {
    // Holds the socket.
    directory: TempDir,
    shared: Arc<Shared>,
    serving: AbortHandle,
}

/// What those who ask and the lane have in common.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// What has struck, until the next operation begins.
    struck: watch::Sender<Option<Blow>>,
    /// An outage has begun: the call that it strikes may go.
    is_out: watch::Sender<bool>,
}

impl Drop for Referee {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// What happened between two moments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// Method and path of each call that counts, in their order.
    pub calls: Vec<String>,
    /// How many of them were writes.
    pub writes: usize,
    /// The one that was struck.
    pub struck: Option<String>,
}

impl Referee {
    /// Begins to answer. All calls pass.
    ///
    /// # Errors
    /// When there can be no socket.
    pub fn start() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let listener = UnixListener::bind(socket(directory.path())).context("no socket for the referee")?;
        let shared = Arc::<Shared>::default();
        let answering = Arc::clone(&shared);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&answering);
                tokio::spawn(async move {
                    // Whoever asked may be dead by now.
                    let _ = answer(stream, &shared).await;
                });
            }
        });
        Ok(Self { directory, shared, serving: serving.abort_handle() })
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        socket(self.directory.path())
    }

    /// From now on watches are like this, once they begin anew.
    pub fn watches(&self, watches: Watches) {
        self.state().watches = watches;
    }

    /// Whether watches tell everything at once.
    pub fn watches_are_good(&self) -> bool {
        self.state().watches == Watches::Good
    }

    /// How late watches tell everything.
    pub fn lateness(&self) -> Duration {
        match self.state().watches {
            Watches::Late(milliseconds) => Duration::from_millis(milliseconds),
            Watches::Good | Watches::BreakOff(_) => Duration::ZERO,
        }
    }

    /// Counts from now on, and strikes at the n-th call.
    pub fn begin(&self, strikes_at: Option<(usize, Blow)>) {
        self.shared.struck.send_replace(None);
        self.shared.is_out.send_replace(false);
        let mut state = self.state();
        *state = State { watches: state.watches, counts: true, strikes_at, ..State::default() };
    }

    /// Waits until something strikes.
    pub async fn strikes(&self) -> Blow {
        let mut struck = self.shared.struck.subscribe();
        loop {
            if let Some(blow) = *struck.borrow_and_update() {
                return blow;
            }
            if struck.changed().await.is_err() {
                // Cannot be: the sender is part of this value.
                std::future::pending::<()>().await;
            }
        }
    }

    /// An outage that has struck has begun.
    pub fn is_out(&self) {
        self.shared.is_out.send_replace(true);
    }

    /// Whether it has struck.
    pub fn has_struck(&self) -> bool {
        self.state().struck.is_some()
    }

    /// Stops counting; nothing is struck any more.
    pub fn end(&self) -> Counted {
        let mut state = self.state();
        let next = State { watches: state.watches, ..State::default() };
        let ended = std::mem::replace(&mut *state, next);
        Counted { calls: ended.calls, writes: ended.writes, struck: ended.struck }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("referee")
}

async fn answer(stream: UnixStream, shared: &Shared) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let asked = serde_json::from_str(&line)?;
    let (verdict, struck) = {
        let mut state = shared.state.lock();
        let before = state.struck.is_some();
        let verdict = state.judge(&asked);
        let strikes = !before && state.struck.is_some();
        (verdict, state.strikes_at.filter(|_| strikes).map(|(_, blow)| blow))
    };
    if let Some(blow) = struck {
        shared.struck.send_replace(Some(blow));
        if Blow::OUTAGES.contains(&blow) {
            let mut is_out = shared.is_out.subscribe();
            // The frontend's own deadline ends a call that waits for too long.
            let _ = is_out.wait_for(|is_out| *is_out).await;
        }
    }
    let mut line = serde_json::to_vec(&verdict)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    Ok(())
}

impl State {
    fn judge(&mut self, asked: &Asked) -> Verdict {
        let (path, query) = asked.uri.split_once('?').unwrap_or((&asked.uri, ""));
        if query.split('&').any(|part| part.starts_with("watch=")) {
            return match self.watches {
                Watches::Good => Verdict::Pass,
                Watches::Late(milliseconds) => Verdict::Late(milliseconds),
                Watches::BreakOff(after) => Verdict::BreakOff(after),
            };
        }
        // Leadership and Events are no part of what is done for a job.
        let is_beside = ["/leases", "/events"].iter().any(|resource| path.contains(resource));
        let is_write = asked.method != "GET";
        if !self.counts || is_beside {
            return Verdict::Pass;
        }
        let call = format!("{} {path}", asked.method);
        self.calls.push(call.clone());
        self.writes += usize::from(is_write);
        // Only a write is in conflict with another one.
        let strikes = |blow: Blow| is_write || !(blow.is_of_writes() || blow == Blow::Status(409));
        let number = |blow: Blow| if blow.is_of_writes() { self.writes } else { self.calls.len() };
        match self.strikes_at {
            Some((at, blow)) if self.struck.is_none() && at == number(blow) && strikes(blow) => {
                self.struck = Some(call);
                blow.verdict()
            }
            _ => Verdict::Pass,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, uri: &str) -> Asked {
        Asked { method: method.to_owned(), uri: uri.to_owned() }
    }

    #[test]
    fn the_call_of_this_number_is_struck_and_no_other() {
        let mut state = State { counts: true, strikes_at: Some((2, Blow::KilledAfter)), ..State::default() };
        // call -> what becomes of it
        let table = [
            (asked("GET", "/api/v1/pods?limit=5"), Verdict::Pass),
            (asked("POST", "/api/v1/namespaces/n/pods"), Verdict::Pass),
            (asked("PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"), Verdict::Pass),
            (asked("POST", "/apis/events.k8s.io/v1/namespaces/n/events"), Verdict::Pass),
            (asked("PATCH", "/api/v1/namespaces/n/services/s"), Verdict::DieAfter),
            (asked("PATCH", "/api/v1/namespaces/n/services/t"), Verdict::Pass),
        ];
        for (asked, expected) in table {
            assert_eq!(state.judge(&asked), expected, "{asked:?}");
        }
        assert_eq!(state.struck.as_deref(), Some("PATCH /api/v1/namespaces/n/services/s"));
        assert_eq!((state.calls.len(), state.writes), (4, 3));
        // Of all calls the first is a read: it is in conflict with nobody, but it may get no answer.
        for (blow, expected) in [(Blow::Status(409), Verdict::Pass), (Blow::Reset, Verdict::Reset)] {
            let mut state = State { counts: true, strikes_at: Some((1, blow)), ..State::default() };
            assert_eq!(state.judge(&asked("GET", "/api/v1/pods?limit=5")), expected, "{blow}");
        }
    }

    #[tokio::test]
    async fn a_call_that_an_outage_strikes_goes_when_it_has_begun() {
        let referee = Referee::start().unwrap();
        referee.begin(Some((1, Blow::EtcdKilled)));
        let ask = async {
            let mut stream = BufReader::new(UnixStream::connect(referee.socket()).await.unwrap());
            let line = serde_json::to_string(&asked("POST", "/api/v1/namespaces/n/pods")).unwrap();
            stream.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_line(&mut answer).await.unwrap();
            serde_json::from_str::<Verdict>(&answer).unwrap()
        };
        let mut ask = std::pin::pin!(ask);
        let blow = tokio::select! {
            blow = referee.strikes() => blow,
            verdict = &mut ask => panic!("{verdict:?} before the outage"),
        };
        assert_eq!(blow, Blow::EtcdKilled);
        referee.is_out();
        assert_eq!(ask.await, Verdict::Pass);
        referee.begin(None);
        assert!(futures::FutureExt::now_or_never(referee.strikes()).is_none());
    }

    #[test]
    fn watches_are_disturbed_as_they_are_to_be() {
        let watch = asked("GET", "/api/v1/pods?watch=true&resourceVersion=7");
        let mut state = State { watches: Watches::Late(5), ..State::default() };
        assert_eq!(state.judge(&watch), Verdict::Late(5));
        state.watches = Watches::BreakOff(2);
        assert_eq!(state.judge(&watch), Verdict::BreakOff(2));
        assert!(state.calls.is_empty());
    }
}
