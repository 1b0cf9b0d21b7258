//! A PE as the frontend sees it: asks and reports as the runtime does, and moves nothing.
//!
//! ```text
//!   routes        at the start and after each minute without a message about them, of which there are none here
//!   connectivity  whenever it is another one, until there is an answer; a PE that starts is taken to have none
//!   names         the name of the job before it connects to another PE, believed for ten seconds
//!   regions       what a consistent region says, at the start and every five seconds; that a drain has begun, of the
//!                 operator with which it starts; reports of checkpoints
//! ```
//!
//! The runtime never asks for a width by itself; here each PE does so once, as an operator may.
//!
//! Knows: the contract. Must not know: pods, and who measures.

use super::line::{Line, Lines, Reply};
use super::links::{Links, Presence};
use super::tally::{Answer, Question, Tally};
use anyhow::Result;
use futures::future::join3;
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams_api::Connectivity;
use streams_pe_double::REGIONS_PORT;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout, timeout_at};

/// Routes are asked for again after this time without a message about them.
const ROUTES_EVERY: Duration = Duration::from_secs(60);
/// Regions are asked this often.
const MESSAGES_EVERY: Duration = Duration::from_secs(5);
/// How long the name of a job is believed.
const BELIEVED: Duration = Duration::from_secs(10);
/// Changes within this time are one.
const TOGETHER: Duration = Duration::from_millis(50);
/// Pauses after reports that nobody answered: the first one, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long it takes to connect to a PE that has come, in milliseconds.
const CONNECTS: std::ops::Range<u64> = 50..1_000;
/// How long it takes to write a checkpoint, in milliseconds.
const WRITES: std::ops::Range<u64> = 10..300;
/// How often a report of a checkpoint is tried, and the pause after the first try. It doubles.
const TRIES: (u32, Duration) = (6, Duration::from_millis(200));
/// The operator with which a region starts.
const START: &str = "Source";
/// Longest message of a region.
const MESSAGE: usize = 128;
/// Reports that wait.
const OPEN: usize = 16;

/// Which PE it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) namespace: String,
    pub(super) job: String,
    pub(super) job_id: u64,
    pub(super) pe: u64,
    pub(super) launch: u64,
    /// Its only operator.
    pub(super) operator: String,
    /// Uid of its pod.
    pub(super) pod: String,
    pub(super) address: IpAddr,
}

/// What all PEs of a job have in common.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    pub(super) lines: Lines,
    pub(super) links: Links,
    pub(super) tally: Arc<Tally>,
    /// A region whose width PEs ask for, and the widths that it may have.
    pub(super) width: Option<(&'static str, [u32; 2])>,
    /// Whether the job has a consistent region.
    pub(super) has_region: bool,
}

/// What a PE has told, as it sees it itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    /// What it takes for known: it was answered. Nothing while nobody answers.
    pub(super) said: Option<Connectivity>,
    /// Resets of its regions that it was told.
    pub(super) resets: u64,
}

/// The last message of a region.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Message {
    #[serde(rename = "type")]
    kind: String,
    message: String,
}

/// What is reported to a region: the end of its path, and the body.
type Report = (u32, &'static str, String);

/// A PE at work.
#[derive(Debug)]
pub(super) struct Pe {
    identity: Identity,
    around: Surroundings,
    told: Arc<Mutex<Told>>,
    line: Line,
    /// By which it asks for routes.
    of_routes: Line,
    random: Mutex<fastrand::Rng>,
    named: Mutex<Option<Instant>>,
}

impl Pe {
    /// A PE that does not do anything yet, and what it will tell.
    ///
    /// # Errors
    /// When it cannot call anybody.
    pub(super) fn new(identity: Identity, around: Surroundings, seed: u64) -> Result<(Self, Arc<Mutex<Told>>)> {
        let open = |kept| around.lines.open(identity.address, service(&identity), kept);
        let (line, of_routes) = (open(0)?, open(1)?);
        let told = Arc::new(Mutex::new(Told { said: Some(Connectivity::None), resets: 0 }));
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        let pe = Self { identity, around, told: Arc::clone(&told), line, of_routes, random, named: Mutex::default() };
        Ok((pe, told))
    }

    /// Runs until it is dropped.
    pub(super) async fn run(self) {
        let mut presence = self.around.links.enter(&self.identity.operator);
        self.width().await;
        join3(self.routes(), self.connectivity(&mut presence), self.regions()).await;
    }

    fn milliseconds(&self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(lock(&self.random).u64(range))
    }

    /// Counts an answer, and says whether it was right.
    fn count(&self, question: Question, since: Instant, answer: Option<Answer>) -> bool {
        let answer = answer.unwrap_or(Answer::Missing);
        let is_right = answer == Answer::Right;
        self.around.tally.add(&self.identity.pod, question, since.elapsed(), answer);
        is_right
    }

    async fn ask(&self, line: &Line, question: Question, path: &str, is_right: impl Fn(&str) -> bool) -> bool {
        let since = Instant::now();
        let reply = line.get(path).await;
        let answer = reply.map(|reply| match reply.status {
            200 if is_right(&reply.body) => Answer::Right,
            _ => reply.other(),
        });
        self.count(question, since, answer)
    }

    async fn width(&self) {
        let Some((region, widths)) = self.around.width else { return };
        let is_right = |body: &str| body.parse().is_ok_and(|width| widths.contains(&width));
        let path = format!("/api/state/job/{}/pr/{region}/width", self.identity.job);
        self.ask(&self.line, Question::Width, &path, is_right).await;
    }

    async fn routes(&self) {
        let path = format!("/api/subscriptions/job/{}/pe/{}", self.identity.job, self.identity.pe);
        let none = json!({"exports": {}, "imports": {}});
        let is_right = |body: &str| serde_json::from_str::<Value>(body).is_ok_and(|routes| routes == none);
        loop {
            self.ask(&self.of_routes, Question::Routes, &path, is_right).await;
            sleep(ROUTES_EVERY).await;
        }
    }

    /// Asks for the name of the job, unless it was told shortly before.
    async fn name(&self) {
        let is_known = lock(&self.named).is_some_and(|at| at.elapsed() < BELIEVED);
        if is_known || !self.around.links.sends(&self.identity.operator) {
            return;
        }
        let path = format!("/api/state/job/by-id/{}/name", self.identity.job_id);
        if self.ask(&self.line, Question::JobName, &path, |body| body == self.identity.job).await {
            *lock(&self.named) = Some(Instant::now());
        }
    }

    async fn connectivity(&self, presence: &mut Presence) {
        let path = format!("/api/state/job/{}/pe/{}/connectivity", self.identity.job, self.identity.pe);
        let changes = &mut presence.count;
        let (mut before, mut pause) = (0, PAUSES.0);
        let mut changed = None;
        loop {
            let now = *changes.borrow_and_update();
            if now.there() > before && !now.at_once {
                self.name().await;
                sleep(self.milliseconds(CONNECTS)).await;
            }
            let now = *changes.borrow_and_update();
            before = now.there();
            let is = now.connectivity();
            if lock(&self.told).said != Some(is) {
                let since = *changed.get_or_insert_with(Instant::now);
                match self.tell(&path, is).await {
                    // As the runtime: another answer is noted, and that is all.
                    Some(is_recorded) => {
                        lock(&self.told).said = Some(is);
                        if is_recorded {
                            self.around.tally.known(since.elapsed());
                        }
                        (changed, pause) = (None, PAUSES.0);
                    }
                    None => {
                        // It may have had its effect, or not.
                        lock(&self.told).said = None;
                        let _ = timeout(pause, changes.changed()).await;
                        pause = (pause * 2).min(PAUSES.1);
                        sleep(TOGETHER).await;
                        continue;
                    }
                }
            }
            if changes.changed().await.is_err() {
                return;
            }
            sleep(TOGETHER).await;
        }
    }

    /// Tells the connectivity. Whether it is recorded; nothing, if there is no answer.
    async fn tell(&self, path: &str, is: Connectivity) -> Option<bool> {
        let since = Instant::now();
        let reply = self.line.put(path, format!("\"{is:?}\"")).await;
        let is_answered = reply.is_some();
        let is_right = self.count(Question::Connectivity, since, reply.map(recorded));
        is_answered.then_some(is_right)
    }

    /// What its consistent region says, and reports to it.
    async fn regions(&self) {
        if !self.around.has_region {
            return;
        }
        let Identity { namespace, job, address, .. } = &self.identity;
        let service = format!("streams-{job}-consistentregion-api.{namespace}:10000");
        let words = |error: String| {
            let answer = Answer::Wrong(format!("{address}: {error}"));
            self.around.tally.add(&self.identity.pod, Question::Messages, Duration::ZERO, answer);
        };
        let socket = match UdpSocket::bind((*address, REGIONS_PORT)).await {
            Ok(socket) => socket,
            Err(error) => return words(error.to_string()),
        };
        let line = |kept| self.around.lines.open(*address, service.clone(), kept);
        match line(1).and_then(|asking| Ok((asking, line(0)?))) {
            Ok((asking, line)) => {
                let (reports, open) = mpsc::channel(OPEN);
                futures::future::join(self.listen(&asking, &socket, reports), self.report(&line, open)).await;
            }
            Err(error) => words(format!("{error:#}")),
        }
    }

    async fn listen(&self, line: &Line, socket: &UdpSocket, reports: mpsc::Sender<Report>) {
        let mut last: BTreeMap<u32, Message> = BTreeMap::new();
        let mut message = vec![0; MESSAGE];
        let mut next = tokio::time::Instant::now();
        loop {
            let document = match timeout_at(next, socket.recv(&mut message)).await {
                Ok(Ok(length)) => message.get(..length).map(<[u8]>::to_vec),
                Ok(Err(_)) => None,
                Err(_) => {
                    next += MESSAGES_EVERY;
                    self.messages(line).await
                }
            };
            let Some(document) = document else { continue };
            let Ok(document) = serde_json::from_slice::<BTreeMap<u32, Message>>(&document) else {
                let words = Answer::Wrong(String::from_utf8_lossy(&document).into_owned());
                self.around.tally.add(&self.identity.pod, Question::Messages, Duration::ZERO, words);
                continue;
            };
            for (region, message) in &document {
                if last.get(region) == Some(message) {
                    continue;
                }
                if message.kind == "triggerReset" {
                    lock(&self.told).resets += 1;
                }
                if let Some((what, body)) = answer_to(message)
                    && reports.send((*region, what, body)).await.is_err()
                {
                    return;
                }
            }
            last = document;
        }
    }

    async fn messages(&self, line: &Line) -> Option<Vec<u8>> {
        let since = Instant::now();
        let reply = line.get(&format!("/api/consistentregion/pe/{}", self.identity.pe)).await;
        let answer = reply.as_ref().map(|reply| match reply.status {
            // There are no messages.
            200 | 404 => Answer::Right,
            _ => reply.other(),
        });
        self.count(Question::Messages, since, answer);
        reply.filter(|reply| reply.status == 200).map(|reply| reply.body.into_bytes())
    }

    async fn report(&self, line: &Line, mut open: mpsc::Receiver<Report>) {
        while let Some((region, what, body)) = open.recv().await {
            if what == "checkpoint" && self.identity.operator == START {
                let request = json!({"request": {"seqId": &body, "operator": START}}).to_string();
                let (since, path) = (Instant::now(), format!("/api/consistentregion/region/{region}/drain"));
                let reply = line.put(&path, request).await;
                self.count(Question::Drain, since, reply.map(recorded));
            }
            sleep(self.milliseconds(WRITES)).await;
            let path = format!("/api/consistentregion/region/{region}/pe/{}/{what}", self.identity.pe);
            let (tries, mut pause) = TRIES;
            for _ in 0..tries {
                let since = Instant::now();
                let reply = line.put(&path, body.clone()).await;
                if self.count(Question::Report, since, reply.map(recorded)) {
                    break;
                }
                sleep(pause).await;
                pause *= 2;
            }
        }
    }
}

/// The Service that PEs of a namespace ask.
pub(super) fn service(identity: &Identity) -> String {
    format!("streams-api.{}:10000", identity.namespace)
}

/// The answer to a report.
fn recorded(reply: Reply) -> Answer {
    if reply.status == 204 { Answer::Right } else { reply.other() }
}

/// What a PE reports when it has done what a message says: the end of the path, and the body.
fn answer_to(message: &Message) -> Option<(&'static str, String)> {
    let value = |part: &str, name: &str| part.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
    match message.kind.as_str() {
        "triggerDrain" => Some(("checkpoint", value(&message.message, "seqId")?)),
        "triggerReset" => {
            let (sequence, attempt) = message.message.split_once(';')?;
            let (sequence, attempt) = (value(sequence, "seqId")?, value(attempt, "resetAttempt")?);
            Some(("reset", json!({"progress": {"seqId": sequence, "resetAttempt": attempt}}).to_string()))
        }
        _ => None,
    }
}

/// Locks, also after a panic of another task.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use super::{Message, answer_to};

    #[test]
    fn checkpoints_and_resets_are_reported() {
        for (kind, message, report) in [
            ("triggerDrain", "seqId=3", Some(("checkpoint", "3"))),
            (
                "triggerReset",
                "seqId=2;resetAttempt=1",
                Some(("reset", r#"{"progress":{"resetAttempt":"1","seqId":"2"}}"#)),
            ),
            ("resumeSubmission", "seqId=4;retId=2;pendCkpt=0", None),
            ("drained", "seqId=3", None),
        ] {
            let message = Message { kind: kind.to_owned(), message: message.to_owned() };
            let report = report.map(|(what, body)| (what, body.to_owned()));
            assert_eq!(answer_to(&message), report, "{message:?}");
        }
    }
}
