//! When a mirror last heard of the API server (rule call-18).
//!
//! A watch that delivers nothing looks like a kind whose objects do not change. So every watch is ended by the API
//! server after a while and begun anew; whoever hears nothing for longer has lost the connection, or something in
//! between keeps what it is told. An API server that has too much to do says how long it wants to be left alone.
//!
//! After a watch that was refused none begins before there was another list (rule call-33): the API server begins to
//! answer also where it does not have the version any more from which the watch is to go on, and says that only then.
//!
//! Knows: calls and their answers. Must not know: objects.

use super::lines::Lines;
use crate::client::{is_watch, retry_after};
use axum::body::{Body as AnyBody, BodyDataStream, Bytes};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch as latest;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tower::{BoxError, service_fn};

/// The longest that the API server is left alone because it asks for it: meanwhile the mirror gets older, and whoever
/// asks may be a proxy that knows nothing of the API server.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// How much later than it was asked to an API server may end a watch. The watcher waits for 5 s, and then takes silence
/// for an end.
const MAY_END_LATE: Duration = Duration::from_secs(4);

/// So many watches in a row may fall silent until the beginning of another one says nothing any more: a connection may
/// die, but whoever lets beginnings through may keep all that follows.
const MAY_FALL_SILENT: u32 = 2;

/// A watch that ends before has told nothing by that; and no other one begins before, if it has delivered something.
const SHORT: Duration = Duration::from_secs(1);

/// How long a watch waits for the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// After so many seconds the API server ends a watch, which is then begun anew. One that delivers nothing for a few
    /// seconds longer is given up.
    pub renewed_after_seconds: u32,
    /// A watch whose answer does not begin within this time is given up.
    pub starts_within: Duration,
    /// A mirror that has heard nothing for this time is too old.
    pub too_old_after: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            renewed_after_seconds: 30,
            starts_within: Duration::from_secs(10),
            too_old_after: Duration::from_secs(50),
        }
    }
}

/// A watch was not answered.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not begin to answer within {0:?}")]
struct NotStarted(Duration);

/// A watch delivers nothing, or no whole event, and does not end either.
#[derive(Debug, thiserror::Error)]
#[error("no event was delivered for {0:?}, nor did the watch end as it was asked to")]
struct Silent(Duration);

/// A watch has ended in the middle of its answer. What was met is only told: of some of that the watcher makes an end
/// without a word.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off ({0})")]
struct BrokenOff(String);

/// A watch has ended without having delivered anything, long before it was asked to.
#[derive(Debug, thiserror::Error)]
#[error("the watch ended at once, and nothing was delivered")]
struct EndedAtOnce;

/// The API server lets a watch begin, and has refused one since the last list.
#[derive(Debug, thiserror::Error)]
#[error("the watch may begin again, but what there is must be listed before")]
pub(super) struct LetInAgain;

/// When something was heard last, and when the API server may be asked again. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Pulse {
    heard: Arc<Mutex<Heard>>,
    /// Another number whenever the answer to a watch has begun.
    begun: latest::Sender<u64>,
}

#[derive(Debug)]
struct Heard {
    last: Instant,
    /// Not before this, it has said.
    again: Instant,
    /// How many watches have fallen silent, or ended at once, since one has delivered something, or ended later.
    silent: u32,
    /// Whether a line of a watch could not be read, which nobody has been told yet.
    lost: bool,
    /// Whether a watch was refused since the last list.
    refused: bool,
}

impl Pulse {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let heard = Arc::new(Mutex::new(Heard { last: now, again: now, silent: 0, lost: false, refused: false }));
        Self { heard, begun: latest::Sender::new(0) }
    }

    /// Marked as changed whenever the answer to a watch has begun.
    pub(super) fn begun(&self) -> latest::Receiver<u64> {
        self.begun.subscribe()
    }

    /// The API server was heard.
    pub(super) fn beat(&self) {
        self.lock().last = Instant::now();
    }

    /// The answer to a watch begins.
    fn begins(&self) {
        let mut heard = self.lock();
        if heard.silent < MAY_FALL_SILENT {
            heard.last = Instant::now();
        }
        drop(heard);
        self.begun.send_modify(|number| *number = number.wrapping_add(1));
    }

    /// A watch delivers an event, or ends.
    fn delivers(&self) {
        let mut heard = self.lock();
        heard.last = Instant::now();
        heard.silent = 0;
    }

    /// A watch has fallen silent, or ended at once.
    fn misses(&self) {
        let mut heard = self.lock();
        heard.silent = heard.silent.saturating_add(1);
    }

    /// The API server does not want to be asked for so long.
    fn rest(&self, wished: Duration) {
        self.lock().again = Instant::now() + wished.min(LONGEST_REST);
    }

    /// A watch that began then has ended. If that was just now, the next one has to wait.
    fn ends(&self, begun: Instant) {
        let mut heard = self.lock();
        heard.again = heard.again.max(begun + SHORT);
    }

    /// A line of a watch could not be read.
    fn loses(&self) {
        self.lock().lost = true;
    }

    /// Whether a line of a watch could not be read since this was asked last.
    pub(super) fn take_lost(&self) -> bool {
        std::mem::take(&mut self.lock().lost)
    }

    /// A watch was refused: what the mirror has gets older until there is another list.
    pub(super) fn refuses(&self) {
        self.lock().refused = true;
    }

    /// A list is made.
    pub(super) fn lists(&self) {
        self.lock().refused = false;
    }

    /// How long nothing was heard.
    pub(super) fn silence(&self) -> Duration {
        self.lock().last.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        // Nothing under the lock can panic.
        self.heard.lock()
    }

    /// A client whose answers are noted: the beginning of each, every part of a list, and every event of a watch.
    pub(super) fn of_calls(&self, client: Client, timings: Timings) -> Client {
        let namespace = client.default_namespace().to_owned();
        let pulse = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (client, pulse) = (client.clone(), pulse.clone());
            async move {
                let again = pulse.lock().again;
                sleep_until(again).await;
                let is_watch = is_watch(&request);
                // Every other call has a deadline of its own.
                let answer = if is_watch {
                    let within = timings.starts_within;
                    timeout(within, client.send(request)).await.map_err(|_| NotStarted(within))?
                } else {
                    client.send(request).await
                };
                let answer = answer?;
                if !answer.status().is_success() {
                    if let Some(wished) = retry_after(answer.headers()) {
                        pulse.rest(wished);
                    }
                    return Ok(answer.map(AnyBody::new));
                }
                if is_watch && pulse.lock().refused {
                    return Err(BoxError::from(LetInAgain));
                }
                if is_watch {
                    pulse.begins();
                } else {
                    pulse.beat();
                }
                let part = move |body: Body| {
                    let parts = AnyBody::new(body).into_data_stream();
                    if is_watch {
                        let within = Duration::from_secs(timings.renewed_after_seconds.into()) + MAY_END_LATE;
                        AnyBody::from_stream(pulse.of_watch(parts, within))
                    } else {
                        AnyBody::from_stream(parts.inspect_ok(move |_| pulse.beat()))
                    }
                };
                Ok::<Response<AnyBody>, BoxError>(answer.map(part))
            }
        });
        Client::new(service, namespace)
    }

    /// The parts of a watch. It fails when no line of it ends `within` this time, or when it ends at once: by itself
    /// the watcher would begin it anew without a word. It fails at a line that the client library would leave out, too,
    /// and at one that has no end. What arrives of a line tells nothing before its end does: something in between may
    /// let through so little that it never comes.
    fn of_watch(self, parts: BodyDataStream, within: Duration) -> impl Stream<Item = Result<Bytes, BoxError>> {
        let begun = Instant::now();
        stream::unfold(Some((parts, self, Lines::default(), begun)), move |going_on| async move {
            let (mut parts, pulse, mut lines, mut told) = going_on?;
            let failure: BoxError = match timeout_at(told + within, parts.next()).await {
                Ok(Some(Ok(part))) => match lines.read(&part) {
                    Ok(ends_one) => {
                        if ends_one {
                            pulse.delivers();
                            told = Instant::now();
                        }
                        return Some((Ok(part), Some((parts, pulse, lines, told))));
                    }
                    Err(garbled) => {
                        pulse.loses();
                        garbled.into()
                    }
                },
                Ok(Some(Err(error))) => BrokenOff(error.to_string()).into(),
                // The next watch is told this line again.
                Ok(None) if lines.is_within_one() => BrokenOff("within a line".to_owned()).into(),
                Ok(None) if begun.elapsed() < SHORT && !lines.has_text() => {
                    pulse.misses();
                    EndedAtOnce.into()
                }
                Ok(None) => {
                    pulse.delivers();
                    pulse.ends(begun);
                    return None;
                }
                Err(_) => {
                    pulse.misses();
                    Silent(within).into()
                }
            };
            Some((Err(failure), None))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{ListParams, WatchParams};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::sleep;

    /// How many calls an API server gets in two minutes that refuses all of them, and asks to be left alone for so many
    /// seconds. Somebody tries again every second.
    async fn calls(wished: Option<&'static str>, is_watch: bool) -> usize {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let server = service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            let mut answer = Response::builder().status(429);
            if let Some(seconds) = wished {
                answer = answer.header("retry-after", seconds);
            }
            let answer = answer.body(AnyBody::from("Too many requests, please try again later.")).unwrap();
            async { Ok::<_, BoxError>(answer) }
        });
        let client = Pulse::new().of_calls(Client::new(server, "n"), Timings::default());
        let api: Api<ConfigMap> = Api::all(client);
        let trying = async {
            loop {
                if is_watch {
                    assert!(api.watch(&WatchParams::default(), "0").await.is_err());
                } else {
                    assert!(api.list(&ListParams::default()).await.is_err());
                }
                sleep(Duration::from_secs(1)).await;
            }
        };
        let ended: Result<(), _> = timeout(Duration::from_millis(119_500), trying).await;
        assert!(ended.is_err());
        asked.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_asks_for_it_is_left_alone_but_not_for_ever() {
        // seconds that it asks for -> calls
        let table = [
            (None, 120),
            (Some("0"), 120),
            (Some("soon"), 120),
            (Some("4"), 30),
            (Some("10"), 24),
            (Some("18446744073709551615"), 24),
        ];
        for (wished, expected) in table {
            for is_watch in [true, false] {
                assert_eq!(calls(wished, is_watch).await, expected, "{wished:?} {is_watch}");
            }
        }
    }
}
