//! Kubernetes Events: what people see in `kubectl describe` and `kubectl events` (rule call-14).
//!
//! Publishing never delays the caller: a bounded number of Events [`waiting`] is taken by a task of its own, several at
//! a time, but one of each namespace; when there are more, one is dropped and counted, a Warning last. The same Event
//! about the same object (reason and note are equal) is published as a series, not as many: one call, if this process
//! has told it not long ago.
//!
//! Knows: Events as the API server keeps them. Must not know: who tells what, and why.
//!
//! Invariants: whoever publishes never waits; what waits, and what is remembered of what was told, is bounded; an Event
//! that nobody will see is counted.

mod told;
mod waiting;

use self::told::Told;
use self::waiting::{TurnEnd, Waiting};
use super::Key;
use super::delivered::Delivered;
use super::error::{Error, absent, is_already_exists, is_no_status, is_not_found, is_too_many, is_unanswered};
use crate::client::tried_once;
use crate::few_lines::FewLines;
use crate::metrics::Metrics;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, Resource};
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Events that wait to be published.
const WAITING_MAX: usize = 1024;
/// Events that are being published at the same time.
const AT_ONCE: usize = 4;
/// Limits of the API server, in bytes.
const NOTE_MAX: usize = 1024;
const REASON_MAX: usize = 128;
const NAME_MAX: usize = 236;

/// Who reports.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The name of the controller, with its domain.
    pub controller: Arc<str>,
    /// The name of this replica.
    pub instance: Arc<str>,
}

/// Something that people should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A person should look at it.
    pub warning: bool,
    /// One word in CamelCase.
    pub reason: Cow<'static, str>,
    /// One sentence.
    pub note: String,
}

impl Notice {
    /// Something happened as it should.
    pub fn normal(reason: impl Into<Cow<'static, str>>, note: impl Into<String>) -> Self {
        Self { warning: false, reason: reason.into(), note: note.into() }
    }

    /// Something a person should look at.
    pub fn warning(reason: impl Into<Cow<'static, str>>, note: impl Into<String>) -> Self {
        Self { warning: true, reason: reason.into(), note: note.into() }
    }
}

/// Publishes Events. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    waiting: Arc<Mutex<Waiting>>,
    /// Wakes the task; it ends when nobody can wake it any more, or after the last word.
    wake: mpsc::Sender<()>,
    last_word: CancellationToken,
    reporter: Reporter,
    lost: Lost,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

impl Events {
    /// A publisher and the work of its task, which ends when the last clone of the publisher is dropped, or after
    /// [`Events::end`].
    pub fn new(
        client: Client,
        reporter: Reporter,
        metrics: &Metrics,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (wake, woken) = mpsc::channel(1);
        let last_word = CancellationToken::new();
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let lost = Lost { metrics: metrics.clone(), lines: Arc::default() };
        let publisher = Self { waiting: Arc::clone(&waiting), wake, last_word, reporter, lost: lost.clone() };
        let last_word = publisher.last_word.clone();
        (publisher, publish_all(client, waiting, (woken, last_word), lost))
    }

    /// Nothing more is to be told: the task ends when all that waits is published, whoever still has a publisher.
    pub fn end(&self) {
        self.last_word.cancel();
    }

    /// Tells people something about an object.
    pub fn publish<K: Resource<DynamicType = ()>>(&self, about: &K, notice: &Notice) {
        let Notice { warning, reason, note } = notice;
        let kind = if *warning { "Warning" } else { "Normal" };
        let event = event(kind, about.object_ref(&()), reason, note, &self.reporter, Timestamp::now());
        let dropped = lock(&self.waiting).add(event, WAITING_MAX);
        // If it is full, the task is about to look.
        let _ = self.wake.try_send(());
        if let Some(dropped) = dropped {
            self.lost.too_many(&dropped);
        }
    }
}

/// Counts Events that nobody will see, and says so now and then: whoever may write objects brings about as many as they
/// like.
#[derive(Clone)]
struct Lost {
    metrics: Metrics,
    lines: Arc<Mutex<FewLines>>,
}

impl Lost {
    /// This one went because too many wait.
    fn too_many(&self, Event { reason, note, .. }: &Event) {
        self.metrics.events_dropped.inc();
        if self.has_room() {
            tracing::warn!(reason, note, "an Event was dropped: too many wait");
        } else {
            tracing::debug!(reason, note, "an Event was dropped: too many wait");
        }
    }

    /// One could not be published. Nothing is wrong if its namespace is being deleted, or gone: nobody reads there.
    fn not_published(&self, namespace: &str, error: kube::Error) {
        let error = Error::from(error);
        // An Event that is gone is created anew: what does not exist is the namespace.
        let is_gone = matches!(&error, Error::Call(error) if is_not_found(error));
        if is_gone || matches!(error, Error::NamespaceTerminating { .. }) {
            tracing::debug!(namespace, %error, "an Event was not published: its namespace goes");
            return;
        }
        self.metrics.events_dropped.inc();
        if self.has_room() {
            tracing::warn!(namespace, %error, "an Event was not published");
        } else {
            tracing::debug!(namespace, %error, "an Event was not published");
        }
    }

    fn has_room(&self) -> bool {
        lock(&self.lines).has_room(Instant::now())
    }
}

/// The beginning of a text, at most `most` bytes of it.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn event(
    kind: &str,
    regarding: ObjectReference,
    reason: &str,
    note: &str,
    reporter: &Reporter,
    now: Timestamp,
) -> Event {
    let (reason, note) = (cut(reason, REASON_MAX), cut(note, NOTE_MAX));
    let object = regarding.name.as_deref().unwrap_or_default();
    let mut hash = Sha256::new();
    for part in [kind, regarding.uid.as_deref().unwrap_or_default(), reason, note, &reporter.instance] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let digest = hex::encode(hash.finalize());
    let name = format!("{}.{}", cut(object, NAME_MAX), cut(&digest, 16));
    Event {
        metadata: ObjectMeta { namespace: regarding.namespace.clone(), name: Some(name), ..ObjectMeta::default() },
        // The version of the object and the time do not belong to the identity of what happened.
        regarding: Some(ObjectReference { resource_version: None, ..regarding }),
        type_: Some(kind.to_owned()),
        reason: Some(reason.to_owned()),
        action: Some(reason.to_owned()),
        note: Some(note.to_owned()),
        event_time: Some(MicroTime(now)),
        reporting_controller: Some(reporter.controller.to_string()),
        reporting_instance: Some(cut(&reporter.instance, REASON_MAX).to_owned()),
        ..Event::default()
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is finished before anything that could panic.
    shared.lock()
}

/// Publishes Events until there are no more, and nobody can or will add one. Those of a namespace that rests then are
/// dropped.
async fn publish_all(
    client: Client,
    waiting: Arc<Mutex<Waiting>>,
    (mut woken, last_word): (mpsc::Receiver<()>, CancellationToken),
    lost: Lost,
) {
    let told = Mutex::new(Told::default());
    let publish = |(namespace, event)| {
        let (client, told) = (&client, &told);
        // Others wait behind it.
        async move {
            let published = tried_once(publish(client, &event, told)).await;
            (namespace, event, published)
        }
    };
    let mut under_way = FuturesUnordered::new();
    // What was added before the last publisher was dropped has woken it.
    let mut is_open = true;
    loop {
        let due = {
            let mut waiting = lock(&waiting);
            while under_way.len() < AT_ONCE
                && let Some(next) = waiting.next(Instant::now())
            {
                under_way.push(publish(next));
            }
            waiting.next_due().filter(|_| under_way.len() < AT_ONCE)
        };
        if !is_open && under_way.is_empty() {
            break;
        }
        let rest = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
        };
        tokio::select! {
            Some((namespace, event, published)) = under_way.next() => {
                let mut waiting = lock(&waiting);
                // There may be too many of its namespace only, or of all: no more of them for a while.
                let may_pass = |error: &kube::Error| is_unanswered(error) || is_too_many(error) || is_no_status(error);
                let has_failed = published.as_ref().is_err_and(may_pass);
                // A failure now and then says nothing of the next try.
                let is_published_again = has_failed && !waiting.fails(&namespace);
                let end = if has_failed { TurnEnd::Failed } else { TurnEnd::Answered };
                waiting.end(&namespace, end, Instant::now());
                match published {
                    Ok(()) => {}
                    Err(error) if is_published_again => {
                        tracing::debug!(namespace, %error, "an Event was not published; will try again");
                        if let Some(dropped) = waiting.put_back(event, WAITING_MAX) {
                            lost.too_many(&dropped);
                        }
                    }
                    Err(error) => lost.not_published(&namespace, error),
                }
            }
            more = woken.recv(), if is_open => is_open = more.is_some(),
            () = last_word.cancelled(), if is_open => is_open = false,
            () = rest => {}
        }
    }
    lost.metrics.events_dropped.inc_by(u64::try_from(lock(&waiting).len()).unwrap_or(u64::MAX));
}

/// Creates the Event, or makes it a series if it happened before.
async fn publish(client: &Client, event: &Event, told: &Mutex<Told>) -> kube::Result<()> {
    let namespace = event.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let key = Key::new(&namespace, event.metadata.name.as_deref().unwrap_or_default());
    let count = lock(told).count(&key);
    let counted = match count {
        Some(count) => repeat(client, &key, count, event).await,
        None => Ok(None),
    };
    let counted = match counted {
        Ok(Some(count)) => Ok(count),
        // It is too old to be kept, or this process does not know it.
        Ok(None) => create(client, &key, event).await,
        Err(error) => Err(error),
    };
    match &counted {
        Ok(count) => lock(told).note(&key, *count),
        // Perhaps it was counted nevertheless: next time the API server is asked.
        Err(_) => lock(told).forget(&key),
    }
    counted.map(|_| ())
}

/// Creates the Event; if there is one of its name, tells that once more. Gives how often it was told now.
async fn create(client: &Client, key: &Key, event: &Event) -> kube::Result<i32> {
    let api: Api<Event> = Api::namespaced(client.clone(), &key.namespace);
    match api.create(&PostParams::default(), event).await {
        Ok(_) => return Ok(1),
        Err(error) if !is_already_exists(&error) => return Err(error),
        Err(_) => {}
    }
    if let Some(existing) = absent(there(client, key).get(&key.name).await)? {
        let (count, last) = match existing.0 {
            Ok(Event { series: Some(series), .. }) => (series.count, Some(series.last_observed_time)),
            Ok(existing) => (1, existing.event_time),
            // It is there, whatever else it says.
            Err(_) => (1, None),
        };
        if is_of_this_try(last.as_ref(), event) {
            return Ok(count);
        }
        if let Some(count) = repeat(client, key, count, event).await? {
            return Ok(count);
        }
    }
    // It was too old to be kept, and has just gone: there is room for another one.
    api.create(&PostParams::default(), event).await.map(|_| 1)
}

/// The Events that are there, whatever others have made of them.
fn there(client: &Client, key: &Key) -> Api<Delivered<Event>> {
    Api::namespaced(client.clone(), &key.namespace)
}

/// Whether what was told last, of this time, was told by an earlier try to tell this Event, whose answer was lost: the
/// time of what happened is the same, as the API server keeps it.
fn is_of_this_try(last: Option<&MicroTime>, event: &Event) -> bool {
    let in_microseconds = |time: Option<&MicroTime>| time.map(|time| time.0.as_microsecond());
    last.is_some() && in_microseconds(last) == in_microseconds(event.event_time.as_ref())
}

/// Tells an Event once more that was told so often. Gives how often it was told now; `None`: it is gone.
async fn repeat(client: &Client, key: &Key, count: i32, event: &Event) -> kube::Result<Option<i32>> {
    let count = count.saturating_add(1);
    let at = event.event_time.clone().unwrap_or(MicroTime(Timestamp::UNIX_EPOCH));
    let series = EventSeries { count, last_observed_time: at };
    let patch = serde_json::json!({ "series": series });
    let patched = there(client, key).patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await;
    Ok(absent(patched)?.map(|_| count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::NOT_A_STATUS;
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::jiff::SignedDuration;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn reporter() -> Reporter {
        Reporter { controller: "example.com/controller".into(), instance: "replica".into() }
    }

    fn named(kind: &str, uid: &str, reason: &str, note: &str) -> String {
        let regarding = ObjectReference {
            name: Some("flow".to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: Some(note.to_owned()),
            ..ObjectReference::default()
        };
        event(kind, regarding, reason, note, &reporter(), Timestamp::UNIX_EPOCH).metadata.name.unwrap()
    }

    #[test]
    fn equal_events_have_one_name_and_others_have_others() {
        let first = named("Warning", "1", "Rejected", "why");
        assert!(first.starts_with("flow."));
        assert_eq!(first, named("Warning", "1", "Rejected", "why"));
        let others = [
            named("Normal", "1", "Rejected", "why"),
            named("Warning", "2", "Rejected", "why"),
            named("Warning", "1", "Other", "why"),
            named("Warning", "1", "Rejected", "why not"),
        ];
        for other in others {
            assert_ne!(first, other);
        }
    }

    #[tokio::test]
    async fn a_warning_is_told_before_a_thousand_normal_events() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&told);
        let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let log = Arc::clone(&log);
            async move {
                let body = request.into_body().collect_bytes().await?;
                let event: Event = serde_json::from_slice(&body).unwrap();
                log.lock().push(event.reason.unwrap());
                Ok::<_, kube::Error>(http::Response::new(axum::body::Body::from(body)))
            }
        });
        let (events, publishing) = Events::new(Client::new(server, "n"), reporter(), &Metrics::new("test"));
        for number in 0..2 * WAITING_MAX {
            events.publish(&ConfigMap::default(), &Notice::normal("Happened", number.to_string()));
        }
        events.publish(&ConfigMap::default(), &Notice::warning("Broken", "look"));
        // Somebody still has a publisher.
        events.end();
        publishing.await;
        let told = told.lock();
        assert_eq!((told.len(), told[0].as_str()), (WAITING_MAX, "Broken"));
    }

    /// An API server that answers so after as many seconds what belongs to the namespace `hangs`, and what it was asked
    /// to publish.
    fn hanging_server(seconds: u64, code: u16) -> (Client, Arc<Mutex<Vec<String>>>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&told);
        let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let log = Arc::clone(&log);
            async move {
                let hangs = request.uri().path().contains("/namespaces/hangs/");
                let body = request.into_body().collect_bytes().await?;
                let event: Event = serde_json::from_slice(&body).unwrap();
                log.lock().push(event.note.unwrap());
                if hangs {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    let status = serde_json::json!({"kind": "Status", "status": "Failure", "code": code}).to_string();
                    let answer = http::Response::builder().status(code).body(axum::body::Body::from(status)).unwrap();
                    return Ok(answer);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok::<_, kube::Error>(http::Response::new(axum::body::Body::from(body)))
            }
        });
        (Client::new(server, "n"), told)
    }

    fn object(namespace: &str, name: &str) -> ConfigMap {
        let (namespace, name) = (Some(namespace.to_owned()), Some(name.to_owned()));
        ConfigMap { metadata: ObjectMeta { namespace, name, ..ObjectMeta::default() }, ..ConfigMap::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_where_events_hang_or_are_too_many_delays_no_other_and_loses_its_own() {
        for (seconds, code) in [(5, 504), (0, 429)] {
            let (client, told) = hanging_server(seconds, code);
            let metrics = Metrics::new("test");
            let (events, publishing) = Events::new(client, reporter(), &metrics);
            let publishing = tokio::spawn(publishing);
            let begun = Instant::now();
            let loud: Vec<ConfigMap> = (0..50).map(|number| object("hangs", &number.to_string())).collect();
            let tell_all = |note: &str| {
                loud.iter().for_each(|about| events.publish(about, &Notice::warning("Broken", note)));
            };
            for round in 0..100 {
                tell_all(&format!("look {round}"));
                events.publish(&object("ours", "job"), &Notice::normal("Happened", format!("ours {round}")));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let count = |of: &str| told.lock().iter().filter(|note| note.starts_with(of)).count();
            assert_eq!(count("ours"), 100, "{code}: all, each of them in its second");
            // Each 5 s or at once, then a rest of 1 s, 2 s, 4 s, 8 s, 16 s, 32 s.
            assert!((6..=8).contains(&count("look")), "{code}: {}", count("look"));
            // Nobody waits for the end of a rest.
            drop(events);
            publishing.await.unwrap();
            assert!(begun.elapsed() < Duration::from_secs(110), "{code}: {:?}", begun.elapsed());
            assert_eq!(metrics.events_dropped.get(), 5_000, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_now_and_then_costs_no_event() {
        for (code, reason) in [(429, ""), (500, ""), (503, ""), (504, ""), (404, NOT_A_STATUS)] {
            let (told, calls) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
            let log = Arc::clone(&told);
            let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
                let (log, calls) = (Arc::clone(&log), Arc::clone(&calls));
                async move {
                    let body = request.into_body().collect_bytes().await?;
                    let number = {
                        let mut calls = calls.lock();
                        *calls += 1;
                        *calls
                    };
                    if number % 5 == 1 {
                        let status = serde_json::json!({
                            "kind": "Status", "status": "Failure", "reason": reason, "code": code,
                        });
                        let answer = http::Response::builder().status(code);
                        return Ok(answer.body(axum::body::Body::from(status.to_string())).unwrap());
                    }
                    let event: Event = serde_json::from_slice(&body).unwrap();
                    log.lock().push(event.note.unwrap());
                    Ok::<_, kube::Error>(http::Response::new(axum::body::Body::from(body)))
                }
            });
            let metrics = Metrics::new("test");
            let (events, publishing) = Events::new(Client::new(server, "n"), reporter(), &metrics);
            let publishing = tokio::spawn(publishing);
            let notes: Vec<String> = (0..20).map(|number| format!("look {number}")).collect();
            for note in &notes {
                events.publish(&object("ours", "job"), &Notice::warning("Broken", note));
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!((&*told.lock(), metrics.events_dropped.get()), (&notes, 0), "{code}");
            drop(events);
            publishing.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_do_not_wait_for_each_other() {
        let (client, told) = hanging_server(5, 504);
        let (events, publishing) = Events::new(client, reporter(), &Metrics::new("test"));
        for namespace in ["a", "b", "c", "d", "e"] {
            for number in 0..10 {
                events.publish(&object(namespace, "job"), &Notice::normal("Happened", number.to_string()));
            }
        }
        drop(events);
        let begun = Instant::now();
        publishing.await;
        assert_eq!(told.lock().len(), 50);
        let took = begun.elapsed();
        assert!(took <= Duration::from_millis(150), "four at a time, of 10 ms each: {took:?}");
    }

    #[tokio::test]
    async fn what_nobody_could_read_is_not_counted() {
        // status, cause, whether it is counted
        let table = [(403, "NamespaceTerminating", 0), (404, "", 0), (403, "", 1), (422, "", 1), (500, "", 1)];
        for (code, cause, expected) in table {
            let server = tower::service_fn(move |_: http::Request<kube::client::Body>| async move {
                let status = serde_json::json!({
                    "kind": "Status", "status": "Failure", "code": code, "message": "no",
                    "reason": if code == 404 { "NotFound" } else { "Forbidden" },
                    "details": {"causes": [{"reason": cause}]},
                });
                let answer = http::Response::builder().status(code);
                Ok::<_, kube::Error>(answer.body(axum::body::Body::from(status.to_string())).unwrap())
            });
            let metrics = Metrics::new("test");
            let (events, publishing) = Events::new(Client::new(server, "n"), reporter(), &metrics);
            events.publish(&object("goes", "job"), &Notice::normal("Happened", "look"));
            drop(events);
            publishing.await;
            assert_eq!(metrics.events_dropped.get(), expected, "{code} {cause}");
        }
    }

    #[tokio::test]
    async fn to_tell_an_event_again_is_one_call() {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&calls);
        // The Event is gone after it was told three times.
        let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let log = Arc::clone(&log);
            async move {
                let method = request.method().clone();
                let body: serde_json::Value =
                    serde_json::from_slice(&request.into_body().collect_bytes().await?).unwrap();
                let count = body["series"]["count"].as_i64();
                let is_gone = log.lock().iter().filter(|(method, _)| method == "PATCH").count() == 2;
                let is_gone = is_gone && method == "PATCH";
                log.lock().push((method.to_string(), count));
                let answer = if is_gone {
                    serde_json::json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})
                } else {
                    serde_json::json!({"metadata": {"name": "e"}})
                };
                let response = http::Response::builder().status(if is_gone { 404 } else { 200 });
                Ok::<_, kube::Error>(response.body(axum::body::Body::from(answer.to_string())).unwrap())
            }
        });
        let client = Client::new(server, "n");
        let told = Mutex::default();
        for _ in 0..5 {
            let event = event("Normal", ObjectReference::default(), "R", "n", &reporter(), Timestamp::UNIX_EPOCH);
            publish(&client, &event, &told).await.unwrap();
        }
        let expected = [
            ("POST", None),
            ("PATCH", Some(2)),
            ("PATCH", Some(3)),
            ("PATCH", Some(4)),
            ("POST", None),
            ("PATCH", Some(2)),
        ];
        let calls = calls.lock();
        assert_eq!(calls.iter().map(|(method, count)| (method.as_str(), *count)).collect::<Vec<_>>(), expected);
    }

    /// The one Event of an API server, which does what is asked for; and what the next answers are instead of its own.
    #[derive(Default)]
    struct OneEvent {
        event: Mutex<Option<serde_json::Value>>,
        /// Status by the number of the call; the call has its effect nevertheless.
        lost: BTreeMap<usize, u16>,
        calls: Mutex<usize>,
    }

    impl OneEvent {
        fn client(self: &Arc<Self>) -> Client {
            let server = Arc::clone(self);
            let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
                let server = Arc::clone(&server);
                async move {
                    let method = request.method().to_string();
                    let body = request.into_body().collect_bytes().await?;
                    let (code, answer) = server.answer(&method, &serde_json::from_slice(&body).unwrap_or_default());
                    let response = http::Response::builder().status(code);
                    Ok::<_, kube::Error>(response.body(axum::body::Body::from(answer.to_string())).unwrap())
                }
            });
            Client::new(service, "n")
        }

        fn answer(&self, method: &str, body: &serde_json::Value) -> (u16, serde_json::Value) {
            let mut calls = self.calls.lock();
            let number = *calls;
            *calls += 1;
            let mut event = self.event.lock();
            let failure = |reason: &str, code: u16| {
                (code, serde_json::json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code}))
            };
            let answer = match (method, &mut *event) {
                ("POST", Some(_)) => failure("AlreadyExists", 409),
                ("POST", none) => {
                    let mut created = body.clone();
                    // As the API server keeps it.
                    let time: MicroTime = serde_json::from_value(body["eventTime"].clone()).unwrap();
                    created["eventTime"] = serde_json::to_value(time).unwrap();
                    (201, none.insert(created).clone())
                }
                ("PATCH", Some(event)) => {
                    event["series"] = body["series"].clone();
                    (200, event.clone())
                }
                (_, Some(event)) => (200, event.clone()),
                (_, None) => failure("NotFound", 404),
            };
            match self.lost.get(&number) {
                Some(code) => failure("InternalError", *code),
                None => answer,
            }
        }

        fn count(&self) -> i64 {
            let event = self.event.lock();
            event.as_ref().map_or(0, |event| event["series"]["count"].as_i64().unwrap_or(1))
        }
    }

    /// What is told, by the microsecond in which it happens.
    fn happened(at: i64) -> Event {
        let now = Timestamp::from_microsecond(at).unwrap().checked_add(SignedDuration::from_nanos(7)).unwrap();
        event("Normal", ObjectReference::default(), "R", "n", &reporter(), now)
    }

    #[tokio::test]
    async fn what_is_tried_again_is_counted_once() {
        // the answers of these calls are lost, what is told (the same again: it is tried again, as the client does) ->
        // how often it was told
        let table: [(&[usize], &[i64], i64); 8] = [
            (&[], &[1, 2, 3], 3),
            (&[0], &[1, 1], 1),
            (&[0], &[1, 1, 2], 2),
            (&[0], &[1, 2], 2),
            // That of the second time is lost, and it is not known whether it was counted: it was.
            (&[1], &[1, 2, 3], 3),
            (&[1], &[1, 2, 2], 2),
            (&[2], &[1, 2, 3, 3, 4], 4),
            (&[0, 3], &[1, 2, 3, 4], 4),
        ];
        for (lost, times, expected) in table {
            let lost = lost.iter().map(|number| (*number, 500)).collect();
            let server = Arc::new(OneEvent { lost, ..OneEvent::default() });
            let (client, told) = (server.client(), Mutex::default());
            for at in times {
                // What was lost is dropped, and counted as such.
                let _ = publish(&client, &happened(*at), &told).await;
            }
            assert_eq!(server.count(), expected, "{times:?}");
        }
    }

    #[tokio::test]
    async fn whoever_begins_again_goes_on_counting_and_what_is_too_old_begins_anew() {
        let server = Arc::new(OneEvent::default());
        let client = server.client();
        for at in 1..=4 {
            publish(&client, &happened(at), &Mutex::default()).await.unwrap();
        }
        assert_eq!(server.count(), 4, "the process has ended each time");
        let told = Mutex::default();
        publish(&client, &happened(5), &told).await.unwrap();
        *server.event.lock() = None;
        publish(&client, &happened(6), &told).await.unwrap();
        assert_eq!(server.count(), 1, "the API server has deleted it");
        publish(&client, &happened(7), &told).await.unwrap();
        assert_eq!(server.count(), 2);
    }

    #[test]
    fn long_texts_are_cut_to_what_the_api_server_takes() {
        let regarding = ObjectReference { name: Some("n".repeat(253)), ..ObjectReference::default() };
        let event = event("Normal", regarding, &"R".repeat(200), &"ä".repeat(2000), &reporter(), Timestamp::UNIX_EPOCH);
        assert!(event.metadata.name.unwrap().len() <= 253);
        assert_eq!(event.reason.unwrap().len(), REASON_MAX);
        assert_eq!(event.note.unwrap().len(), NOTE_MAX);
    }
}
