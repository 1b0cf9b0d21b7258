//! What a watch tells, for ever (rule call-5).
//!
//! A list comes first, and again whenever something is lost: a watch that goes on from what comes after it would never
//! tell it again. What fails is tried again after a pause, and no list begins sooner than that. A list also comes
//! before a watch that was refused and is let in again: one for each time that it is, and none while it is refused.
//!
//! What has been refused for long is tried rarely: a namespace that is gone may stay among the options for ever, and
//! each call is written into the audit log of the API server.
//!
//! Knows: what the client library makes of the answers of the API server. Must not know: mirrors.

use super::Mirrored;
use super::catch_up::version;
use super::pulse::{LetInAgain, Pulse};
use crate::delivered::Delivered;
use crate::error::is_without_right;
use futures::{Stream, StreamExt, stream};
use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::watcher::{self, Event, ExponentialBackoff, watcher};
use kube::{Api, Resource};
use serde::de::Error as _;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The longest pause before a failed watch is tried again, and that before a mirror is filled anew.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What has been refused for so long is tried rarely.
const RARELY_AFTER: Duration = Duration::from_secs(60);

/// So many times the pause of what is tried rarely is longer: 10 to 20 s, because the jitter adds to it, too.
const RARER: u32 = 5;

/// After so long without a failure, the next pause is short again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The events of a watch whose calls are those of `pulse`. If it `has_refusals`, that the right to it is missing is
/// something heard (rule call-33).
pub(super) fn events<K: Mirrored>(
    api: Api<Delivered<K>>,
    config: watcher::Config,
    pulse: Pulse,
    has_refusals: bool,
) -> impl Stream<Item = watcher::Result<Event<Delivered<K>>>> + Send {
    let begin = move || watcher(api.clone(), config.clone()).boxed();
    let first = (Some(begin()), begin, Course::new(), pulse);
    stream::unfold(first, move |(events, begin, mut course, pulse)| async move {
        if let Some(pause) = course.pause.take() {
            sleep(pause).await;
        }
        let mut events = match events {
            Some(events) => events,
            None => begin(),
        };
        let mut event = course.note(events.next().await?);
        if event.as_ref().is_err_and(is_let_in_again) {
            // There was a pause before this watch.
            events = begin();
            event = course.note(events.next().await?);
        }
        if matches!(event, Ok(Event::InitDone)) {
            pulse.lists();
        }
        let mut goes_on = true;
        if let Err(error) = &event {
            let was_lost = pulse.take_lost();
            if has_refusals && is_refused(error) {
                pulse.beat();
                course.note_refusal();
                if is_of_watch(error) {
                    pulse.refuses();
                }
            }
            goes_on = !(was_lost || has_lost(error));
            course.fails(goes_on);
        }
        Some((event, (goes_on.then_some(events), begin, course, pulse)))
    })
}

/// How a watch has gone so far.
struct Course {
    back_off: ResetTimerBackoff<ExponentialBackoff>,
    /// To be made before the next event.
    pause: Option<Duration>,
    /// The highest version of what the last list had, and of a change since.
    newest: u64,
    /// Since when a list, or the watch after one, is refused.
    refused: Option<Instant>,
}

impl Course {
    fn new() -> Self {
        let back_off = backon::ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(200))
            .with_max_delay(LONGEST_PAUSE)
            .with_jitter()
            .without_max_times();
        let back_off = ResetTimerBackoff::new(ExponentialBackoff::from(back_off), FORGOTTEN_AFTER);
        Self { back_off, pause: None, newest: 0, refused: None }
    }

    /// What is to be told of an event.
    ///
    /// The API server tells changes in the order of their versions, a deletion with the version that it got by that. A
    /// change that is older than another one which was told before it comes of something in between, or of an etcd that
    /// was put back, and may show what has long been replaced. Lists have any order, and a change that is older than
    /// something that was listed came before the list: or else the list has versions that there are not, by which the
    /// mirror would leave out every change until they are reached.
    ///
    /// Only a change is a success: before each list an event says that it begins, and a list that works says nothing of
    /// the watch after it.
    fn note<K: Resource>(&mut self, event: watcher::Result<Event<K>>) -> watcher::Result<Event<K>> {
        match &event {
            Ok(Event::Apply(object) | Event::Delete(object)) => {
                let told = version(object.meta());
                // What has no number cannot be compared.
                if told > 0 && told < self.newest {
                    let newest = self.newest;
                    let message = format!("a change with version {told} came after a state with version {newest}");
                    let error = serde_json::Error::custom(message);
                    return Err(watcher::Error::WatchFailed(kube::Error::SerdeError(error)));
                }
                self.newest = self.newest.max(told);
                self.back_off.reset();
            }
            Ok(Event::Init) => self.newest = 0,
            Ok(Event::InitApply(object)) => self.newest = self.newest.max(version(object.meta())),
            Ok(Event::InitDone) => self.refused = None,
            Err(_) => {}
        }
        event
    }

    /// The right to list or to watch is missing.
    fn note_refusal(&mut self) {
        self.refused.get_or_insert_with(Instant::now);
    }

    /// A failure is told: the watch goes on after it, or begins anew with a list.
    fn fails(&mut self, goes_on: bool) {
        let pause = self.back_off.next().unwrap_or(LONGEST_PAUSE);
        let is_rare = self.refused.is_some_and(|since| since.elapsed() >= RARELY_AFTER);
        if goes_on {
            self.pause = Some(if is_rare { pause * RARER } else { pause.min(LONGEST_PAUSE) });
        } else {
            self.pause = Some(LONGEST_PAUSE);
            self.newest = 0;
        }
    }
}

/// Whether something that a watch has said is lost, or will not be said: the watcher would go on from what comes after
/// it, or ask for the same again for ever.
///
/// A line that is no event, but any JSON object, is taken for a failure that the API server tells of. A version that
/// the API server does not know any more is mostly told within a watch, and the watcher lists by itself; but caches in
/// front of it refuse the whole call, and so does it with what is no version.
fn has_lost(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchFailed(kube::Error::SerdeError(_) | kube::Error::Api(_)) => true,
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => matches!(status.code, 400 | 410 | 422),
        _ => false,
    }
}

/// Whether the API server says that the right to list or to watch is missing.
pub(super) fn is_refused(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => is_without_right(error),
        _ => false,
    }
}

/// Whether no watch could begin. There was a list, after which it goes on.
fn is_of_watch(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(_))
}

/// Whether a watch could begin, but a list is to come before.
fn is_let_in_again(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Service(error)) if error.is::<LetInAgain>())
}

/// Whether the API server does not know any more what has happened since the last event.
fn is_expired(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchError(status) | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            status.code == 410
        }
        _ => false,
    }
}

/// What people are told of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Fails,
    WorksAgain,
}

/// Whether people know that a watch fails: they are told of the first of several failures.
#[derive(Debug, Default)]
pub(super) struct Known {
    fails: bool,
}

impl Known {
    /// What people are to be told because of this event. That a list begins, or has objects, is no success yet. An
    /// expired version is how a watch that was away for long begins anew.
    pub(super) fn hear<K>(&mut self, event: &watcher::Result<Event<K>>) -> Option<News> {
        match event {
            Ok(Event::Init | Event::InitApply(_)) => None,
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => {
                std::mem::take(&mut self.fails).then_some(News::WorksAgain)
            }
            Err(error) if self.fails || is_expired(error) => None,
            Err(_) => {
                self.fails = true;
                Some(News::Fails)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::watch::{Scope, Timings, Watch, trimmed};
    use axum::body::Body as AnyBody;
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Service;
    use kube::Client;
    use kube::client::Body;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;
    use tower::{BoxError, service_fn};

    /// What a mirror has come to.
    struct Seen {
        lists: usize,
        watches: usize,
        failed: u64,
        problem: Option<String>,
        /// Names and versions.
        objects: Vec<String>,
    }

    /// A mirror after so many seconds of an API server that answers like this: whether it is asked for a watch, or else
    /// for a list, and for how many of them before.
    async fn watch_for(seconds: u64, answer: impl Fn(bool, usize) -> Response<AnyBody> + Send + 'static) -> Seen {
        let counts = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
        let [lists, watches] = counts.clone();
        let server = service_fn(move |request: Request<Body>| {
            let is_watch = crate::client::is_watch(&request);
            let count = if is_watch { &watches } else { &lists };
            let answered = answer(is_watch, count.fetch_add(1, Ordering::SeqCst));
            async move { Ok::<_, BoxError>(answered) }
        });
        let metrics = Metrics::new("test");
        let watch: Watch<Service> = Watch::new(&metrics, &[]);
        let (timings, stop) = (Timings::default(), CancellationToken::new());
        let running = watch.run(Client::new(server, "n"), Scope::All, None, trimmed::service, timings, stop);
        let ended = timeout(Duration::from_secs(seconds), running).await;
        assert!(ended.is_err());
        let objects = watch.list().map(|object| {
            let metadata = &object.metadata;
            let (name, version) = (metadata.name.as_deref(), metadata.resource_version.as_deref());
            format!("{} {}", name.unwrap_or_default(), version.unwrap_or_default())
        });
        Seen {
            objects: objects.collect(),
            lists: counts[0].load(Ordering::SeqCst),
            watches: counts[1].load(Ordering::SeqCst),
            failed: metrics.watch_errors.get_or_create(&watch.shared.label).get(),
            problem: watch.health(timings).1,
        }
    }

    fn object(name: &str, version: &str) -> String {
        format!(r#"{{"metadata":{{"namespace":"n","name":"{name}","resourceVersion":"{version}"}}}}"#)
    }

    fn list(version: &str, objects: &[(&str, &str)]) -> Response<AnyBody> {
        let items: Vec<_> = objects.iter().map(|(name, version)| object(name, version)).collect();
        let (metadata, items) = (format!(r#"{{"resourceVersion":"{version}"}}"#), items.join(","));
        let text = format!(r#"{{"apiVersion":"v1","kind":"ServiceList","metadata":{metadata},"items":[{items}]}}"#);
        Response::new(AnyBody::from(text))
    }

    fn refusal(code: u16) -> Response<AnyBody> {
        let status = format!(r#"{{"kind":"Status","status":"Failure","message":"not now","code":{code}}}"#);
        Response::builder().status(code).body(AnyBody::from(status)).unwrap()
    }

    /// A line of a watch.
    fn line(kind: &str, name: &str, version: &str) -> String {
        let object = object(name, version);
        format!(r#"{{"type":"{kind}","object":{object}}}"#) + "\n"
    }

    /// A watch that tells this, and goes on.
    fn told(text: impl Into<String>) -> Response<AnyBody> {
        let text: String = text.into();
        let first = stream::once(async move { Ok::<_, BoxError>(text) });
        Response::new(AnyBody::from_stream(first.chain(stream::pending())))
    }

    /// A watch that tells this, and ends.
    fn all_told(text: impl Into<String>) -> Response<AnyBody> {
        let text: String = text.into();
        Response::new(AnyBody::from(text))
    }

    /// One object, and later another one, too.
    fn two_lists(number: usize) -> Response<AnyBody> {
        if number == 0 { list("9", &[("a", "1")]) } else { list("20", &[("a", "1"), ("b", "20")]) }
    }

    const GONE: &str = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410}}"#;

    #[test]
    fn people_are_told_once_that_a_watch_fails_and_once_that_it_works_again() {
        let failed = |code| Box::new(kube::core::Status::failure("", "").with_code(code));
        let refused = || Err(watcher::Error::InitialListFailed(kube::Error::Api(failed(403))));
        let expired = || Err(watcher::Error::WatchError(failed(410)));
        // Every list begins with an event of its own, whether or not it can be made.
        let events: [watcher::Result<Event<u8>>; 12] = [
            Ok(Event::Init),
            refused(),
            Ok(Event::Init),
            refused(),
            Ok(Event::Init),
            Ok(Event::InitApply(1)),
            Ok(Event::InitDone),
            expired(),
            Ok(Event::Init),
            Ok(Event::InitDone),
            Err(watcher::Error::NoResourceVersion),
            Ok(Event::Apply(1)),
        ];
        let mut known = Known::default();
        let told = events.iter().enumerate().filter_map(|(number, event)| Some((number, known.hear(event)?)));
        let expected = [(1, News::Fails), (6, News::WorksAgain), (10, News::Fails), (11, News::WorksAgain)];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_get_longer_whatever_fails() {
        for code in [401, 403, 404, 410] {
            let seen = watch_for(60, move |_, _| refusal(code)).await;
            assert!((30..=35).contains(&seen.lists) && seen.watches == 0, "{code} {}", seen.lists);
        }
        // Lists are made, but each watch says that its version is too old.
        let seen =
            watch_for(60, |is_watch, number| if is_watch { told(GONE.to_owned() + "\n") } else { two_lists(number) });
        let seen = seen.await;
        assert!((30..=35).contains(&seen.lists), "{}", seen.lists);
        assert_eq!(seen.objects, ["a 1", "b 20"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_mirror_is_filled_anew_if_no_watch_can_begin_at_its_version() {
        // code of the first watch -> lists
        let table = [(400, 2), (410, 2), (422, 2), (401, 1), (403, 1), (404, 1)];
        for (code, expected) in table {
            let answer = move |is_watch, number| match (is_watch, number) {
                (false, _) => two_lists(number),
                (true, 0) => refusal(code),
                (true, _) => told(""),
            };
            let seen = watch_for(20, answer).await;
            assert_eq!((seen.lists, seen.watches, seen.failed), (expected, 2, 1), "{code}");
        }
        let seen = watch_for(20, |is_watch, number| if is_watch { refusal(410) } else { two_lists(number) }).await;
        assert!((9..=11).contains(&seen.lists), "{}", seen.lists);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_at_once_has_failed() {
        let seen = watch_for(70, |is_watch, number| if is_watch { all_told("") } else { two_lists(number) }).await;
        assert!((35..=40).contains(&seen.watches) && seen.failed >= 35, "{} {}", seen.watches, seen.failed);
        assert_eq!(seen.lists, 1);
        let problem = seen.problem.unwrap();
        assert!(problem.starts_with("nothing heard for 6"), "{problem}");
        // One that has delivered something has not, but there is no more than one in a second.
        let bookmark =
            r#"{"type":"BOOKMARK","object":{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"9"}}}"#;
        let answer = move |is_watch, number| if is_watch { all_told(bookmark) } else { two_lists(number) };
        let seen = watch_for(60, answer).await;
        assert!((59..=61).contains(&seen.watches), "{}", seen.watches);
        assert_eq!((seen.lists, seen.failed, seen.problem), (1, 0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_cannot_be_read_takes_nothing_away() {
        let garbled = [
            r#"{"type":"MODIFIED","object":{"ki"#,
            r#"{"type":"MODIFIED","object":{"metadata":{"labels":{}"#,
            r#"{"type":"XMODIFIED","object":{"metadata":{"namespace":"n","name":"b","resourceVersion":"10"}}}"#,
            r#"{"kind":"Status","code":500}"#,
            "{}",
            "<html>",
        ];
        for text in garbled {
            let answer = move |is_watch, number| match (is_watch, number) {
                (false, _) => two_lists(number),
                (true, 0) => told(format!("{text}\n{}", line("ADDED", "c", "11"))),
                (true, _) => told(""),
            };
            let seen = watch_for(20, answer).await;
            assert_eq!((seen.lists, seen.watches, seen.failed), (2, 2, 1), "{text}");
            assert_eq!(seen.objects, ["a 1", "b 20"], "{text}");
        }
        // What breaks off within a line is told again by the next watch.
        let answer = |is_watch, number| match (is_watch, number) {
            (false, _) => two_lists(number),
            (true, 0) => all_told(line("ADDED", "c", "10") + r#"{"type":"MODIFIED","object":{"#),
            (true, _) => told(line("MODIFIED", "c", "11")),
        };
        let seen = watch_for(20, answer).await;
        assert_eq!((seen.lists, seen.watches, seen.failed), (1, 2, 1));
        assert_eq!(seen.objects, ["a 1", "c 11"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_without_an_end_is_given_up() {
        let answer = |is_watch, number| {
            let parts = stream::repeat_with(|| Ok::<_, BoxError>("a".repeat(1 << 20)));
            if is_watch { Response::new(AnyBody::from_stream(parts)) } else { two_lists(number) }
        };
        let seen = watch_for(3, answer).await;
        assert_eq!((seen.lists, seen.watches, seen.failed), (2, 2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_is_older_than_one_before_is_not_believed() {
        let (added, modified, deleted) = ("ADDED", "MODIFIED", "DELETED");
        // lines of the first watch -> whether there is another list
        let table = [
            // As the API server tells them. What has no number says nothing of the order.
            (vec![(modified, "a", "10"), (added, "b", "11"), (deleted, "a", "12")], false),
            (vec![(added, "b", "10"), (modified, "b", "10"), (modified, "b", "x"), (modified, "b", "11")], false),
            (vec![(added, "b", "9"), (modified, "b", "100")], false),
            // An older state, an object that comes back, and a deletion before.
            (vec![(added, "b", "11"), (modified, "b", "12"), (modified, "b", "11")], true),
            (vec![(deleted, "a", "11"), (added, "a", "10")], true),
            (vec![(added, "b", "11"), (deleted, "b", "10")], true),
        ];
        for (lines, expected) in table {
            let text: String = lines.iter().map(|(kind, name, version)| line(kind, name, version)).collect();
            let answer = move |is_watch, number| match (is_watch, number) {
                (false, 0) => two_lists(0),
                // The etcd was put back.
                (false, _) => list("4", &[("a", "1"), ("b", "4")]),
                (true, 0) => told(text.as_str()),
                // After a list everything begins anew, whatever was told before it.
                (true, _) => told(line(modified, "b", "5")),
            };
            let seen = watch_for(20, answer).await;
            let (lists, failed) = if expected { (2, 1) } else { (1, 0) };
            assert_eq!((seen.lists, seen.failed), (lists, failed), "{lines:?}");
        }
    }

    /// The mirror would leave out each change of it.
    #[tokio::test(start_paused = true)]
    async fn a_list_with_versions_that_are_too_high_is_made_again_with_the_first_change() {
        let (added, modified, deleted) = ("ADDED", "MODIFIED", "DELETED");
        // versions of a and b in the first list, the first change -> whether there is another list
        let table = [
            (["1", "9"], (modified, "a", "10"), false),
            (["1", "9"], (modified, "b", "9"), false),
            (["1", "x"], (modified, "b", "10"), false),
            (["1", "10000009"], (modified, "b", "10"), true),
            (["1", "10000009"], (deleted, "b", "10"), true),
            (["10000001", "9"], (added, "c", "10"), true),
        ];
        for (versions, (kind, name, version), expected) in table {
            let answer = move |is_watch, number| match (is_watch, number) {
                (false, 0) => list("9", &[("a", versions[0]), ("b", versions[1])]),
                (false, _) => list("20", &[("a", "1"), ("b", "20")]),
                (true, 0) => told(line(kind, name, version)),
                (true, _) => told(line(modified, "b", "21")),
            };
            let seen = watch_for(20, answer).await;
            let (lists, failed) = if expected { (2, 1) } else { (1, 0) };
            assert_eq!((seen.lists, seen.failed), (lists, failed), "{versions:?} {kind} {name} {version}");
            if expected {
                assert_eq!(seen.objects, ["a 1", "b 21"], "{versions:?} {kind} {name} {version}");
            }
        }
    }
}
