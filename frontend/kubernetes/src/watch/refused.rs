//! The part of a mirror that the API server does not let this process read (rule call-33).
//!
//! Only watches of the namespaces that are looked after have such parts ([`Scope::Namespaces`](super::Scope)). What the
//! mirror has of one stays. A part is whole again once a watch begins: with the right to list alone, nothing would be
//! heard of what changes. A watch that was refused begins after another list only ([`events`](mod@super::events)).
//!
//! Knows: that a list or a watch is refused, that a watch begins. Must not know: what others do as long as one is
//! refused.

use super::{Mirrored, Refusals, Watch};
use crate::error::with_causes;
use crate::metrics::NamespaceLabels;
use kube::runtime::watcher;
use std::collections::btree_map::Entry;
use std::future::pending;
use std::time::Duration;
use tokio::sync::watch as latest;
use tokio::time::Instant;

impl<K: Mirrored> Watch<K> {
    /// The same mirror, which is decided by together with all others that say it here. Before it is filled.
    #[must_use]
    pub fn among(self, refusals: &Refusals) -> Self {
        let _ = self.shared.refusals.set(refusals.clone());
        self
    }

    /// Namespaces that may not be read, of all kinds that are decided by together.
    pub fn refusals(&self) -> &Refusals {
        self.shared.refusals.get_or_init(Refusals::default)
    }

    /// This kind may not be read in a namespace. Whether that is news.
    pub fn refuse(&self, namespace: &str) -> bool {
        let is_new = match self.shared.refused.lock().entry(namespace.to_owned()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(Instant::now());
                true
            }
        };
        if is_new {
            self.figure(namespace, 1);
            self.refusals().begin(namespace, &self.shared.label.kind);
        }
        is_new
    }

    /// This kind may be read again, and the mirror has what there is. Whether it could not be before.
    pub fn permit(&self, namespace: &str) -> bool {
        let was_refused = self.shared.refused.lock().remove(namespace).is_some();
        if was_refused {
            self.figure(namespace, -1);
            self.refusals().end(namespace, &self.shared.label.kind);
        }
        was_refused
    }

    /// Whether this kind may not be read in a namespace.
    pub(super) fn is_refused(&self, namespace: &str) -> bool {
        self.shared.refused.lock().contains_key(namespace)
    }

    fn figure(&self, namespace: &str, change: i64) {
        let label = NamespaceLabels { namespace: namespace.to_owned() };
        self.shared.metrics.refused_kinds.get_or_create(&label).inc_by(change);
    }

    /// The API server has refused to list, or to watch, this namespace.
    pub(super) fn note_refused(&self, namespace: &str, error: &watcher::Error) {
        // It was heard.
        self.shared.unlisted.lock().remove(&Some(namespace.to_owned()));
        let (kind, text) = (&self.shared.label.kind, with_causes(error));
        if self.refuse(namespace) {
            self.shared.metrics.watch_errors.get_or_create(&self.shared.label).inc();
            tracing::warn!(%kind, namespace, error = text, "may not read a namespace: its jobs are not looked after");
        } else {
            tracing::debug!(%kind, namespace, error = text, "may not read a namespace: its jobs are not looked after");
        }
    }

    /// Permits a namespace whenever a watch of it begins, for ever: the mirror has the list before it. See
    /// [`Self::fill`].
    pub(super) async fn permit_when_watched(
        &self,
        namespace: Option<&str>,
        mut begun: latest::Receiver<u64>,
        filled: &latest::Sender<usize>,
        parts: usize,
    ) {
        if let Some(namespace) = namespace {
            while begun.changed().await.is_ok() {
                if self.permit(namespace) {
                    tracing::info!(kind = %self.shared.label.kind, namespace, "may read a namespace again");
                    // It may be the first of all that may be read.
                    self.fill(false, filled, parts);
                }
            }
        }
        pending().await
    }

    /// The mirror is filled once each of its watches was listed or refused for the `first` time, unless all are
    /// refused. `filled` counts these.
    pub(super) fn fill(&self, first: bool, filled: &latest::Sender<usize>, parts: usize) {
        if first {
            filled.send_modify(|count| *count += 1);
        }
        if *filled.borrow() == parts && self.shared.refused.lock().len() < parts {
            self.shared.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
        }
    }

    /// How long all namespaces may not be read; nothing, as long as one may be.
    pub(super) fn refused_everywhere_for(&self) -> Duration {
        let parts = self.shared.pulses.read().len();
        let refused = self.shared.refused.lock();
        let since = refused.values().max().filter(|_| refused.len() == parts);
        since.map(Instant::elapsed).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use crate::client::is_watch;
    use crate::metrics::Metrics;
    use crate::watch::{Departure, Scope, Timings, trimmed};
    use axum::body::Body as AnyBody;
    use futures::{StreamExt as _, stream};
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Service;
    use kube::Client;
    use kube::client::Body;
    use parking_lot::Mutex;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::{sleep, timeout};
    use tokio_util::sync::CancellationToken;
    use tower::{BoxError, service_fn};

    const FORBIDDEN: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,
        "message":"services is forbidden: User \"u\" cannot list resource \"services\" in the namespace \"b\""}"#;
    const EXPIRED: &str =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}"#;
    const EXPIRED_WITHIN: &str =
        "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"status\":\"Failure\",\"code\":410}}\n";
    const OF_A_GATEWAY: &str = "<html>403 Forbidden</html>";

    /// What an API server has in namespace b, and lets this process do there. In a it lets it do all.
    #[derive(Clone, Copy)]
    struct OfB {
        may_list: bool,
        may_watch: bool,
        object: &'static str,
        refusal: &'static str,
        /// What a watch is told at first that is to go on from what was before. Nothing: it is refused.
        of_old: Option<&'static str>,
    }

    impl OfB {
        fn with(may_list: bool, may_watch: bool, object: &'static str) -> Self {
            Self { may_list, may_watch, object, refusal: FORBIDDEN, of_old: None }
        }
    }

    fn server(of_b: &Arc<Mutex<OfB>>) -> Client {
        counting_server(of_b, &Arc::default())
    }

    /// Counts the lists of b, and the watches.
    fn counting_server(of_b: &Arc<Mutex<OfB>>, calls: &Arc<[AtomicUsize; 2]>) -> Client {
        let (of_b, calls) = (Arc::clone(of_b), Arc::clone(calls));
        let server = service_fn(move |request: Request<Body>| {
            let OfB { may_list, may_watch, object, refusal, of_old } = *of_b.lock();
            let (is_of_a, is_watch) = (request.uri().path().contains("/namespaces/a/"), is_watch(&request));
            let may = is_of_a || if is_watch { may_watch } else { may_list };
            calls[usize::from(is_watch)].fetch_add(usize::from(!is_of_a), Ordering::Relaxed);
            // What there is now has a version of its own, and what came before is not known any more.
            let version = if is_of_a { 1 } else { 1 + usize::from(object == "z") };
            let query = request.uri().query().unwrap_or_default();
            let is_old = is_watch && !query.split('&').any(|part| part == format!("resourceVersion={version}"));
            async move {
                if !may {
                    let refused = Response::builder().status(403).body(AnyBody::from(refusal)).unwrap();
                    return Ok::<_, BoxError>(refused);
                }
                let (namespace, name) = if is_of_a { ("a", "x") } else { ("b", object) };
                if is_old && of_old.is_none() {
                    return Ok(Response::builder().status(410).body(AnyBody::from(EXPIRED)).unwrap());
                }
                let metadata = format!(r#"{{"namespace":"{namespace}","name":"{name}","resourceVersion":"1"}}"#);
                let body = if is_watch {
                    // It ends as it was asked to.
                    let end = stream::once(sleep(Duration::from_secs(30)));
                    let end = end.filter_map(async |()| None::<Result<&'static str, BoxError>>);
                    AnyBody::from_stream(stream::iter(of_old.filter(|_| is_old).map(Ok)).chain(end))
                } else {
                    AnyBody::from(format!(
                        r#"{{"apiVersion":"v1","kind":"ServiceList","metadata":{{"resourceVersion":"{version}"}},
                            "items":[{{"metadata":{metadata}}}]}}"#
                    ))
                };
                Ok(Response::new(body))
            }
        });
        Client::new(server, "n")
    }

    fn scope(namespaces: &[&str]) -> Scope {
        Scope::Namespaces(namespaces.iter().map(|namespace| (*namespace).to_owned()).collect())
    }

    /// Whether it is filled, what is wrong with it, namespaces that may not be read, keys.
    fn seen(watch: &Watch<Service>) -> (bool, Option<String>, String, String) {
        let keys: Vec<_> = watch.keys().iter().map(Key::to_string).collect();
        (watch.is_synced(), watch.health(Timings::default()).1, watch.refusals().namespaces().join(" "), keys.join(" "))
    }

    /// Fills the mirror while `looks` goes on.
    async fn beside(watch: &Watch<Service>, client: &Client, scope: &Scope, looks: impl Future<Output = ()>) {
        let (client, scope, stop) = (client.clone(), scope.clone(), CancellationToken::new());
        tokio::select! {
            () = looks => {}
            () = watch.run(client, scope, None, trimmed::service, Timings::default(), stop) => panic!("it has ended"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_may_not_be_read_keeps_no_other_one_from_being_read() {
        let of_b = Arc::new(Mutex::new(OfB::with(false, false, "y")));
        let (client, scope, metrics) = (server(&of_b), scope(&["a", "b"]), Metrics::new("test"));
        let watch: Watch<Service> = Watch::new(&metrics, &[]);
        let departed = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&departed);
        watch.subscribe_to_departures(move |service: &Service, departure| {
            log.lock().push((Key::of(service).to_string(), departure));
        });
        // Seconds, whether b may be read meanwhile, what is there -> whether it is refused then, what is shown.
        let table = [
            (1, false, "y", "b", "a/x"),
            (120, false, "y", "b", "a/x"),
            // What has been refused for long is tried every 20 s, or more often.
            (25, true, "y", "", "a/x b/y"),
            // The watch that has begun before is ended after half a minute.
            (40, false, "z", "b", "a/x b/y"),
            (120, false, "z", "b", "a/x b/y"),
            (25, true, "z", "", "a/x b/z"),
        ];
        let looks = async {
            for (seconds, may_read, object, refused, shown) in table {
                *of_b.lock() = OfB::with(may_read, may_read, object);
                sleep(Duration::from_secs(seconds)).await;
                let row = format!("{seconds} {may_read} {object}");
                assert_eq!(seen(&watch), (true, None, refused.to_owned(), shown.to_owned()), "{row}");
                assert!(watch.silence() < Duration::from_secs(40), "{row}");
                // Whoever begins to lead waits for nobody.
                timeout(Duration::from_secs(1), watch.catch_up(&client, &scope)).await.unwrap().unwrap();
            }
        };
        beside(&watch, &client, &scope, looks).await;
        assert_eq!(*departed.lock(), [("b/y".to_owned(), Departure::Vanished)]);
        // It was told twice, and is over; the version from which the watch goes on then was too old.
        assert_eq!(metrics.watch_errors.get_or_create(&watch.shared.label).get(), 3);
        let text = metrics.text().unwrap();
        assert!(text.contains("\ntest_refused_kinds{namespace=\"b\"} 0\n"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_missed_is_listed_once_before_the_namespace_counts_again() {
        // Where the version is not known any more, and where what was missed is told late.
        for of_old in [None, Some(EXPIRED_WITHIN), Some("")] {
            let of_b = Arc::new(Mutex::new(OfB { of_old, ..OfB::with(true, true, "y") }));
            let calls = Arc::default();
            let (client, scope) = (counting_server(&of_b, &calls), scope(&["a", "b"]));
            let watch: Watch<Service> = Watch::new(&Metrics::new("test"), &[]);
            let shown = Arc::new(Mutex::new(Vec::new()));
            let (mirror, log) = (watch.clone(), Arc::clone(&shown));
            watch.refusals().subscribe(move |namespace| log.lock().push((namespace.to_owned(), seen(&mirror).3)));
            let looks = async {
                // The watch that has begun before is ended after half a minute.
                for (seconds, may_read, object) in [(5, true, "y"), (120, false, "z"), (40, true, "z")] {
                    *of_b.lock() = OfB { of_old, ..OfB::with(may_read, may_read, object) };
                    sleep(Duration::from_secs(seconds)).await;
                }
            };
            beside(&watch, &client, &scope, looks).await;
            assert_eq!(*shown.lock(), [("b".to_owned(), "a/x b/z".to_owned())], "{of_old:?}");
            let [lists, _] = &*calls;
            assert_eq!(lists.load(Ordering::Relaxed), 2, "{of_old:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_right_to_list_or_to_watch_alone_is_none() {
        // may list, may watch -> what is shown
        for (may_list, may_watch, shown) in [(true, false, "a/x b/y"), (false, true, "a/x")] {
            let of_b = Arc::new(Mutex::new(OfB::with(may_list, may_watch, "y")));
            let calls = Arc::default();
            let (client, scope, metrics) = (counting_server(&of_b, &calls), scope(&["a", "b"]), Metrics::new("test"));
            let watch: Watch<Service> = Watch::new(&metrics, &[]);
            let looks = async {
                for _ in 0..100 {
                    sleep(Duration::from_secs(1)).await;
                    assert_eq!(seen(&watch), (true, None, "b".to_owned(), shown.to_owned()), "{may_list} {may_watch}");
                }
            };
            beside(&watch, &client, &scope, looks).await;
            assert_eq!(metrics.watch_errors.get_or_create(&watch.shared.label).get(), 1, "{may_list} {may_watch}");
            // Lists that are permitted cost something.
            let [lists, _] = &*calls;
            assert!(!may_list || lists.load(Ordering::Relaxed) == 1, "{} lists", lists.load(Ordering::Relaxed));
        }
        // Nobody keeps a leader from beginning by leaving it the right to watch alone.
        let of_b = Arc::new(Mutex::new(OfB::with(true, true, "y")));
        let (client, scope) = (server(&of_b), scope(&["a", "b"]));
        let watch: Watch<Service> = Watch::new(&Metrics::new("test"), &[]);
        let looks = async {
            sleep(Duration::from_secs(5)).await;
            of_b.lock().may_list = false;
            let begun = Instant::now();
            watch.catch_up(&client, &scope).await.unwrap();
            assert!((60..=62).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
            assert_eq!(seen(&watch), (true, None, String::new(), "a/x b/y".to_owned()));
        };
        beside(&watch, &client, &scope, looks).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_been_refused_for_a_minute_is_tried_rarely() {
        // Lists are refused, or only watches.
        for may_list in [false, true] {
            let of_b = Arc::new(Mutex::new(OfB::with(may_list, false, "y")));
            let calls = Arc::default();
            let (client, scope) = (counting_server(&of_b, &calls), scope(&["a", "b"]));
            let watch: Watch<Service> = Watch::new(&Metrics::new("test"), &[]);
            let refused = &calls[usize::from(may_list)];
            let looks = async {
                sleep(Duration::from_secs(60)).await;
                let before = refused.load(Ordering::Relaxed);
                assert!((30..=36).contains(&before), "{may_list} {before}");
                sleep(Duration::from_secs(600)).await;
                let after = refused.load(Ordering::Relaxed) - before;
                assert!((29..=61).contains(&after), "{may_list} {after}");
            };
            beside(&watch, &client, &scope, looks).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_may_be_read_and_where_it_is_not_the_api_server_who_says_so_nobody_is_ready() {
        let of_a_gateway = OfB { refusal: OF_A_GATEWAY, ..OfB::with(false, false, "y") };
        let forbidden = OfB::with(false, false, "y");
        // the scope, what it meets -> namespaces that may not be read
        let table = [
            (Scope::All, forbidden, ""),
            (Scope::Alone("b".to_owned()), forbidden, ""),
            (scope(&["b"]), forbidden, "b"),
            (scope(&["a", "b"]), of_a_gateway, ""),
        ];
        for (scope, of_b, refused) in table {
            let of_b = Arc::new(Mutex::new(of_b));
            let client = server(&of_b);
            let watch: Watch<Service> = Watch::new(&Metrics::new("test"), &[]);
            let looks = async {
                sleep(Duration::from_secs(120)).await;
                let (is_synced, problem, refusals, _) = seen(&watch);
                let expected = (false, Some("not filled yet".to_owned()), refused.to_owned());
                assert_eq!((is_synced, problem, refusals), expected, "{scope:?}");
                assert!(watch.silence() > Duration::from_secs(50), "{scope:?}");
                // The rights come late.
                *of_b.lock() = OfB::with(true, true, "y");
                sleep(Duration::from_secs(25)).await;
                let (is_synced, problem, refusals, _) = seen(&watch);
                assert_eq!((is_synced, problem, refusals), (true, None, String::new()), "{scope:?}");
            };
            beside(&watch, &client, &scope, looks).await;
        }
        // The only one may not be read any more.
        let of_b = Arc::new(Mutex::new(OfB::with(true, true, "y")));
        let (client, scope) = (server(&of_b), scope(&["b"]));
        let watch: Watch<Service> = Watch::new(&Metrics::new("test"), &[]);
        let looks = async {
            sleep(Duration::from_secs(5)).await;
            *of_b.lock() = OfB::with(false, false, "y");
            sleep(Duration::from_secs(50)).await;
            assert_eq!(seen(&watch), (true, None, "b".to_owned(), "b/y".to_owned()));
            sleep(Duration::from_secs(50)).await;
            let problem = seen(&watch).1.unwrap();
            assert!(problem.starts_with("may not be read in any namespace for "), "{problem}");
            *of_b.lock() = OfB::with(true, true, "y");
            sleep(Duration::from_secs(25)).await;
            assert_eq!(seen(&watch), (true, None, String::new(), "b/y".to_owned()));
        };
        beside(&watch, &client, &scope, looks).await;
    }
}
