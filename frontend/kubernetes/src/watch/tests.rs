//! The mirror follows what the API server tells, and notices when it tells nothing.

use super::*;
use crate::queue::{BackOff, Sharing};
use axum::body::Body as AnyBody;
use futures::stream;
use k8s_openapi::api::core::v1::Service;
use kube::core::ObjectMeta;
use std::sync::atomic::{AtomicUsize, Ordering};
use tower::BoxError;

fn service(namespace: &str, name: &str, version: &str) -> Service {
    let metadata = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        resource_version: Some(version.to_owned()),
        labels: Some([("flow".to_owned(), "sensors".to_owned())].into()),
        ..ObjectMeta::default()
    };
    Service { metadata, ..Service::default() }
}

static INDEXES: [Index<Service>; 1] = [Index { name: "flow", group: flow }];

fn flow(service: &Service) -> Option<String> {
    service.metadata.labels.as_ref()?.get("flow").cloned()
}

/// Events as a watch tells them.
fn told(
    events: impl IntoIterator<Item = Event<Service>>,
) -> impl Stream<Item = watcher::Result<Event<Delivered<Service>>>> {
    stream::iter(events.into_iter().collect::<Vec<_>>()).map(|event| {
        Ok(match event {
            Event::Apply(object) => Event::Apply(Delivered(Ok(object))),
            Event::Delete(object) => Event::Delete(Delivered(Ok(object))),
            Event::Init => Event::Init,
            Event::InitApply(object) => Event::InitApply(Delivered(Ok(object))),
            Event::InitDone => Event::InitDone,
        })
    })
}

/// The names in the mirror and the keys that were woken after each group of events.
async fn play(groups: Vec<Vec<Event<Service>>>) -> Vec<(Vec<String>, Vec<String>)> {
    let metrics = Metrics::new("test");
    let watch: Watch<Service> = Watch::new(&metrics, &INDEXES);
    let filled = latest::Sender::new(0);
    let queue = Queue::new("test", BackOff::default(), Sharing::none(), &metrics);
    watch.wake(&queue, |service| [Key::of(service)]);
    let mut results = Vec::new();
    for group in groups {
        watch.follow(None, false, told(group), trimmed::service, &filled, 1).await;
        let names = watch.keys().iter().map(ToString::to_string).collect();
        let mut woken = Vec::new();
        while queue.depth() > 0 {
            woken.extend(queue.next().await.map(|taken| taken.key().to_string()));
        }
        woken.sort();
        results.push((names, woken));
    }
    assert!(watch.is_synced());
    results
}

#[tokio::test]
async fn a_mirror_follows_the_events_and_wakes_what_changed() {
    let init = |objects: Vec<Service>| {
        let mut events = vec![Event::Init];
        events.extend(objects.into_iter().map(Event::InitApply));
        events.push(Event::InitDone);
        events
    };
    let results = play(vec![
        init(vec![service("n", "a", "1"), service("n", "b", "1")]),
        vec![Event::Apply(service("n", "b", "2")), Event::Apply(service("n", "c", "3"))],
        vec![Event::Delete(service("n", "a", "4"))],
        // The connection was lost: b is the same, c has gone, d is new. A list that is broken off counts for
        // nothing.
        vec![Event::Init, Event::InitApply(service("n", "x", "9"))],
        init(vec![service("n", "b", "2"), service("n", "d", "6")]),
    ])
    .await;
    let expected = [
        ("n/a n/b", "n/a n/b"),
        ("n/a n/b n/c", "n/b n/c"),
        ("n/b n/c", "n/a"),
        ("n/b n/c", ""),
        ("n/b n/d", "n/c n/d"),
    ];
    for ((names, woken), (expected_names, expected_woken)) in results.iter().zip(expected) {
        assert_eq!((names.join(" "), woken.join(" ")), (expected_names.to_owned(), expected_woken.to_owned()));
    }
}

#[test]
fn the_state_before_is_told_if_it_leads_elsewhere() {
    let state = |version: &str, flow: &str, generation: i64| {
        let mut service = service("n", "a", version);
        service.metadata.labels = Some([("flow".to_owned(), flow.to_owned())].into());
        service.metadata.generation = Some(generation);
        service
    };
    // the state after: version, group, number of the spec -> versions that are told
    let table = [
        (state("1", "sensors", 1), ""),
        (state("2", "sensors", 1), "2"),
        (state("2", "sensors", 2), "1 2"),
        (state("2", "others", 1), "1 2"),
    ];
    for (after, expected) in table {
        let watch = Watch::filled(&INDEXES, [state("1", "sensors", 1)]);
        let told = Arc::new(parking_lot::Mutex::new(Vec::new()));
        watch.subscribe({
            let told = Arc::clone(&told);
            move |service: &Service| told.lock().push(service.metadata.resource_version.clone().unwrap())
        });
        // What was there already.
        told.lock().clear();
        watch.insert(after.clone());
        assert_eq!(told.lock().join(" "), expected, "{after:?}");
        let group = Key::new("n", after.metadata.labels.as_ref().unwrap().get("flow").unwrap());
        let found: Vec<_> = watch.of_group("flow", &group).into_iter().map(|(key, _)| key.to_string()).collect();
        assert_eq!(found, ["n/a"], "{after:?}");
        assert_eq!(watch.of_group("flow", &Key::new("n", "sensors")).len(), usize::from(&*group.name == "sensors"));
    }
}

/// Who may delete RoleBindings lets many long objects vanish at once, as often as he likes.
#[test]
fn a_mirror_is_read_while_objects_that_change_or_go_are_unpacked() {
    static WATCH: OnceLock<Watch<Service>> = OnceLock::new();
    static LOOKS: Mutex<Vec<bool>> = Mutex::new(Vec::new());
    static INDEXES: [Index<Service>; 1] = [Index { name: "flow", group: looked_at }];
    fn looked_at(service: &Service) -> Option<String> {
        LOOKS.lock().push(WATCH.get().is_none_or(|watch| watch.shared.store.try_read().is_some()));
        flow(service)
    }
    let watch = WATCH.get_or_init(|| Watch::filled(&INDEXES, ["a", "b", "c"].map(|name| service("n", name, "1"))));
    // Whether others could read at each look at an object.
    let looks = || std::mem::take(&mut *LOOKS.lock());
    looks();
    let mut moved = service("n", "a", "2");
    moved.metadata.labels = None;
    watch.insert(moved);
    assert_eq!(looks(), [true, true], "its group after, and that before");
    watch.remove(&Key::new("n", "b"));
    assert_eq!(looks(), [true]);
    watch.publish(|store| store.to_replace(None, Vec::new()), Departure::Vanished, None);
    assert_eq!((looks(), watch.keys().len()), (vec![true, true], 0));
}

#[tokio::test(start_paused = true)]
async fn an_object_rests_that_nobody_reads_but_with_all_others() {
    let watch: Watch<Service> = Watch::in_form(&Metrics::new("test"), &INDEXES, Form::PackedAtRest);
    let keys = ["a", "b"].map(|name| Key::new("n", name));
    watch.insert(service("n", "a", "1"));
    watch.insert(service("n", "b", "1"));
    let looks = async {
        let read = keys.each_ref().map(|key| Arc::downgrade(&watch.get(key).unwrap()));
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(watch.get(&keys[0]).is_some());
            assert_eq!((watch.list().count(), watch.of_namespace("n").count()), (2, 2));
        }
        read.map(|object| object.upgrade().is_some())
    };
    let are_at_hand = tokio::select! {
        are_at_hand = looks => are_at_hand,
        () = watch.let_rest() => panic!("it has ended"),
    };
    assert_eq!(are_at_hand, [true, false]);
    assert_eq!(watch.get(&keys[1]).map(|object| Key::of(&*object)).as_ref(), Some(&keys[1]));
}

/// How an API server answers watches.
#[derive(Clone, Copy, Debug)]
enum Answers {
    Never,
    WithSilence,
    /// An octet a second of an event that has more than anybody waits for.
    Trickling,
    /// The first ones with silence, this many.
    AtLast(usize),
    /// Each breaks off after 20 s.
    InPart,
    AsItShould,
}

/// Watches begun, failures counted, and what the mirror says of itself, after so many seconds with an API server that
/// lists nothing and answers watches like this.
async fn watch_for(seconds: u64, answers: Answers) -> (usize, u64, Option<String>) {
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_watch = crate::client::is_watch(&request);
        let seconds = request.uri().query().and_then(|query| query.split("timeoutSeconds=").nth(1)).map(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().unwrap()
        });
        let before = count.fetch_add(usize::from(is_watch), Ordering::SeqCst);
        let answers = match answers {
            Answers::AtLast(silent) if before < silent => Answers::WithSilence,
            answers => answers,
        };
        async move {
            let list = r#"{"apiVersion":"v1","kind":"ServiceList","metadata":{"resourceVersion":"1"},"items":[]}"#;
            let body = match (is_watch, answers) {
                (false, _) => AnyBody::from(list),
                (true, Answers::Never) => std::future::pending().await,
                (true, Answers::WithSilence) => AnyBody::from_stream(stream::pending::<Result<String, BoxError>>()),
                (true, Answers::Trickling) => {
                    let event = stream::iter([r#"{"type":"ADDED","object":{"metadata":{"name":""#])
                        .chain(stream::repeat("a"))
                        .flat_map(|part| stream::iter(part.chars()));
                    AnyBody::from_stream(event.then(async |octet: char| {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        Ok::<_, BoxError>(octet.to_string())
                    }))
                }
                (true, Answers::InPart) => {
                    let end = tokio::time::sleep(Duration::from_secs(20));
                    let cut = |()| Err::<String, std::io::Error>(std::io::ErrorKind::UnexpectedEof.into());
                    AnyBody::from_stream(stream::once(end).map(cut))
                }
                (true, Answers::AtLast(_) | Answers::AsItShould) => {
                    let end = tokio::time::sleep(Duration::from_secs(seconds.unwrap_or(3600)));
                    let end = stream::once(end).filter_map(async |()| None::<Result<String, BoxError>>);
                    AnyBody::from_stream(end)
                }
            };
            Ok::<_, BoxError>(http::Response::new(body))
        }
    });
    let metrics = Metrics::new("test");
    let watch: Watch<Service> = Watch::new(&metrics, &INDEXES);
    let (timings, stop) = (Timings::default(), CancellationToken::new());
    let running = watch.run(Client::new(server, "n"), Scope::All, None, trimmed::service, timings, stop);
    let _ = tokio::time::timeout(Duration::from_secs(seconds), running).await;
    assert!(watch.is_synced());
    let failed = metrics.watch_errors.get_or_create(&watch.shared.label).get();
    (begun.load(Ordering::SeqCst), failed, watch.health(timings).1)
}

#[test]
fn failures_of_a_watch_are_counted_from_zero_on() {
    let metrics = Metrics::new("test");
    let _watch: Watch<Service> = Watch::new(&metrics, &INDEXES);
    let text = metrics.text().unwrap();
    for figure in ["watch_errors", "unreadable_objects"] {
        let line = format!("\ntest_{figure}_total{{kind=\"Service\"}} 0\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_begin_or_falls_silent_is_begun_anew_and_the_mirror_says_that_it_is_old() {
    // A watch begins every 10 s, and some more, if none is answered.
    let (begun, failed, problem) = watch_for(60, Answers::Never).await;
    assert!((4..=6).contains(&begun) && failed > 3, "{begun} {failed}");
    assert!(problem.is_some_and(
        |problem| problem.starts_with("nothing heard for 5") || problem.starts_with("nothing heard for 6")
    ));
    // One that has fallen silent is noticed after 34 s. Its beginning was heard.
    assert_eq!(watch_for(33, Answers::WithSilence).await, (1, 0, None));
    assert_eq!(watch_for(40, Answers::WithSilence).await, (2, 1, None));
    // Nothing happens to objects for ten minutes.
    let (begun, failed, problem) = watch_for(600, Answers::AsItShould).await;
    assert!((19..=21).contains(&begun), "{begun}");
    assert_eq!((failed, problem), (0, None));
}

/// Something in between lets the beginnings of answers through, and nothing else. What is heard of it says nothing of
/// the objects.
#[tokio::test(start_paused = true)]
async fn a_mirror_whose_watches_all_fall_silent_is_old_until_one_does_not() {
    // One of them may be a connection that has died.
    assert_eq!(watch_for(60, Answers::AtLast(1)).await, (2, 1, None));
    let silent_for = |problem: Option<String>, seconds: &str| {
        let expected = format!("nothing heard for {seconds}");
        assert!(problem.as_ref().is_some_and(|problem| problem.starts_with(&expected)), "{problem:?}");
    };
    assert_eq!(watch_for(80, Answers::WithSilence).await, (3, 2, None));
    let (begun, failed, problem) = watch_for(100, Answers::WithSilence).await;
    assert_eq!((begun, failed), (3, 2));
    silent_for(problem, "6");
    // One more that begins is not believed, but that it ends as it was asked to.
    let (begun, failed, problem) = watch_for(120, Answers::AtLast(3)).await;
    assert_eq!((begun, failed), (4, 3));
    silent_for(problem, "8");
    assert_eq!(watch_for(140, Answers::AtLast(3)).await, (5, 3, None));
}

/// Something in between lets so little through that no event is ever whole.
#[tokio::test(start_paused = true)]
async fn a_mirror_whose_watches_trickle_is_old_like_one_whose_watches_are_silent() {
    for answers in [Answers::WithSilence, Answers::Trickling] {
        assert_eq!(watch_for(33, answers).await, (1, 0, None), "{answers:?}");
        assert_eq!(watch_for(60, answers).await, (2, 1, None), "{answers:?}");
        let (begun, failed, problem) = watch_for(100, answers).await;
        assert_eq!((begun, failed), (3, 2), "{answers:?}");
        assert!(problem.as_ref().is_some_and(|problem| problem.starts_with("nothing heard for 6")), "{answers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_off_has_failed() {
    assert_eq!(watch_for(70, Answers::InPart).await, (4, 3, None));
}

#[tokio::test]
async fn what_is_gone_was_deleted_or_has_vanished() {
    let watch: Watch<Service> = Watch::new(&Metrics::new("test"), &INDEXES);
    let departed = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let log = Arc::clone(&departed);
    watch.subscribe_to_departures(move |service: &Service, departure| {
        log.lock().push((Key::of(service).to_string(), service.metadata.resource_version.clone(), departure));
    });
    let listed = |objects: &[&str]| {
        let applied = objects.iter().map(|name| Event::InitApply(service("n", name, "1")));
        [Event::Init].into_iter().chain(applied).chain([Event::InitDone]).collect::<Vec<_>>()
    };
    let (first, second) = (listed(&["a", "b", "c"]), listed(&["c"]));
    let deleted = [Event::Delete(service("n", "a", "7"))];
    let events = first.into_iter().chain(deleted).chain(second);
    let filled = latest::Sender::new(0);
    watch.follow(None, false, told(events), trimmed::service, &filled, 1).await;
    // The deleted one as it was at the end.
    let expected = [("n/a", "7", Departure::Deleted), ("n/b", "1", Departure::Vanished)];
    let expected = expected.map(|(key, version, how)| (key.to_owned(), Some(version.to_owned()), how));
    assert_eq!(*departed.lock(), expected);
}

#[tokio::test]
async fn an_object_that_was_made_again_under_its_name_meanwhile_is_told_as_gone() {
    let watch: Watch<Service> = Watch::new(&Metrics::new("test"), &INDEXES);
    let told_of = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let log = Arc::clone(&told_of);
    watch.subscribe(move |service: &Service| log.lock().push((service.metadata.uid.clone().unwrap(), None)));
    let log = Arc::clone(&told_of);
    watch.subscribe_to_departures(move |service: &Service, departure| {
        log.lock().push((service.metadata.uid.clone().unwrap(), Some(departure)));
    });
    let with_uid = |uid: &str, version: &str| {
        let mut service = service("n", "a", version);
        service.metadata.uid = Some(uid.to_owned());
        service
    };
    let listed = |service| [Event::Init, Event::InitApply(service), Event::InitDone];
    let first = listed(with_uid("1", "5"));
    let later = listed(with_uid("2", "9")).into_iter().chain([Event::Apply(with_uid("3", "10"))]);
    let filled = latest::Sender::new(0);
    watch.follow(None, false, told(first.into_iter().chain(later)), trimmed::service, &filled, 1).await;
    let (vanished, told) = (Some(Departure::Vanished), None);
    let expected = [("1", told), ("1", vanished), ("1", told), ("2", told), ("2", vanished), ("2", told), ("3", told)];
    assert_eq!(*told_of.lock(), expected.map(|(uid, departure)| (uid.to_owned(), departure)));
}

#[tokio::test]
async fn a_kind_is_synced_when_every_namespace_is() {
    let watch: Watch<Service> = Watch::new(&Metrics::new("test"), &INDEXES);
    let filled = latest::Sender::new(0);
    for (namespace, synced) in [("m", false), ("n", true)] {
        let events = vec![Event::Init, Event::InitApply(service(namespace, "a", "1")), Event::InitDone];
        watch.follow(Some(namespace), false, told(events), trimmed::service, &filled, 2).await;
        assert_eq!(watch.is_synced(), synced, "{namespace}");
    }
    assert_eq!(watch.keys().len(), 2);
    assert_eq!(watch.of_namespace("m").count(), 1);
    assert_eq!(watch.keys_of_namespace("m"), [Key::new("m", "a")]);
}

#[test]
fn what_is_there_already_is_told_to_a_late_subscriber() {
    let metrics = Metrics::new("test");
    let watch = Watch::filled(&INDEXES, [service("n", "a", "1")]);
    let queue = Queue::new("test", BackOff::default(), Sharing::none(), &metrics);
    watch.wake(&queue, flow);
    assert_eq!(queue.depth(), 1);
    let of_group = || watch.of_group("flow", &Key::new("n", "sensors"));
    assert_eq!(of_group().len(), 1);
    watch.remove(&Key::new("n", "a"));
    assert!(of_group().is_empty());
}

/// A client of an API server that lists these versions, the last of them from then on.
fn lists(versions: &'static [&'static [(&'static str, &'static str)]]) -> Client {
    let count = Arc::new(AtomicUsize::new(0));
    let server = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let at = count.fetch_add(1, Ordering::SeqCst).min(versions.len() - 1);
        let items = versions[at].iter().map(|(name, version)| {
            let metadata = service("n", name, version).metadata;
            serde_json::json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
        });
        let list = serde_json::json!({
            "apiVersion": "meta.k8s.io/v1",
            "kind": "PartialObjectMetadataList",
            "metadata": {"resourceVersion": "9"},
            "items": items.collect::<Vec<_>>(),
        });
        async move { Ok::<_, BoxError>(http::Response::new(AnyBody::from(list.to_string()))) }
    });
    Client::new(server, "n")
}

#[tokio::test(start_paused = true)]
async fn a_mirror_is_brought_up_to_a_moment_and_not_further() {
    // What is there when it begins, and a second later -> what the mirror hears of after 0.1 s each -> when it is
    // brought up, in tenths of a second
    type Row = (&'static [&'static [(&'static str, &'static str)]], &'static [(&'static str, &'static str)], u64);
    let table: [Row; 5] = [
        (&[&[("a", "5"), ("b", "6")]], &[], 0),
        (&[&[("a", "5"), ("b", "7")], &[("a", "9"), ("b", "9")]], &[("a", "8"), ("b", "7")], 2),
        (&[&[("a", "8"), ("c", "7")]], &[("c", "7"), ("a", "9")], 2),
        // It has gone since then, before the mirror heard that it came.
        (&[&[("a", "5"), ("c", "7")], &[("a", "9")]], &[("a", "6")], 10),
        (&[&[]], &[], 0),
    ];
    for (listed, heard, expected) in table {
        let watch = Watch::filled(&INDEXES, [service("n", "a", "5"), service("n", "b", "6")]);
        let (client, begun) = (lists(listed), tokio::time::Instant::now());
        let feed = async {
            for (name, version) in heard {
                tokio::time::sleep(Duration::from_millis(100)).await;
                watch.insert(service("n", name, version));
            }
        };
        let (caught_up, ()) = future::join(
            async {
                watch.catch_up(&client, &Scope::All).await.unwrap();
                begun.elapsed()
            },
            feed,
        )
        .await;
        assert_eq!((caught_up.as_millis() + 20) / 100, u128::from(expected), "{listed:?} {heard:?}");
    }
}

/// A version of an object that cannot be read.
fn unreadable(name: &str, uid: Option<&str>, version: &str) -> Delivered<Service> {
    let mut metadata = service("n", name, version).metadata;
    metadata.uid = uid.map(str::to_owned);
    Delivered(Err(Box::new(Unreadable { reason: "of another form".to_owned(), metadata })))
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_not_waited_for() {
    let watch = Watch::filled(&INDEXES, [service("n", "a", "5")]);
    let (client, filled) = (lists(&[&[("a", "7")]]), latest::Sender::new(0));
    let caught_up = watch.catch_up(&client, &Scope::All);
    let told_later = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let events = stream::iter([Ok(Event::Apply(unreadable("a", None, "7")))]);
        watch.follow(None, false, events, trimmed::service, &filled, 1).await;
    };
    // What nobody can read and was deleted while the connection was lost is forgotten.
    let gone = [Event::Apply(unreadable("gone", None, "3")), Event::Init, Event::InitDone];
    watch.follow(None, false, stream::iter(gone.map(Ok)), trimmed::service, &filled, 1).await;
    assert_eq!(watch.shared.unreadable.lock().version(&Key::new("n", "gone")), None);
    watch.insert(service("n", "a", "5"));
    let both = future::join(caught_up, told_later);
    tokio::time::timeout(Duration::from_millis(500), both).await.unwrap().0.unwrap();
    assert_eq!(watch.get(&Key::new("n", "a")), Some(Arc::new(service("n", "a", "5"))), "its last readable state");
    // Somebody has corrected it.
    watch.follow(None, false, told([Event::Apply(service("n", "a", "8"))]), trimmed::service, &filled, 1).await;
    assert_eq!(watch.shared.unreadable.lock().version(&Key::new("n", "a")), None);
}

#[tokio::test]
async fn what_a_list_says_of_an_object_that_can_be_read_or_not_counts_when_it_is_whole() {
    // how the list ends -> of `a` and `b`: whether it cannot be read, and its version
    let table = [(None, [(false, 5), (true, 6)]), (Some(Event::InitDone), [(true, 9), (false, 9)])];
    for (end, expected) in table {
        let watch = Watch::filled(&INDEXES, ["a", "b"].map(|name| service("n", name, "5")));
        let events = [
            Event::Apply(unreadable("b", None, "6")),
            Event::Init,
            Event::InitApply(unreadable("a", None, "9")),
            Event::InitApply(Delivered(Ok(service("n", "b", "9")))),
        ];
        let (events, filled) = (stream::iter(events.into_iter().chain(end).map(Ok)), latest::Sender::new(0));
        watch.follow(None, false, events, trimmed::service, &filled, 1).await;
        let keys = ["a", "b"].map(|name| Key::new("n", name));
        assert_eq!(keys.map(|key| (watch.is_unreadable(&key), watch.version_of(&key))), expected);
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_to_be_written_again() {
    let applied = |name: &str, uid: &str| {
        let mut service = service("n", name, "1");
        service.metadata.uid = Some(uid.to_owned());
        service.metadata.annotations = Some([("hash", "h"), ("other", "x")].map(|(k, v)| (k.into(), v.into())).into());
        service
    };
    let watch: Watch<Service> = Watch::new(&Metrics::new("test"), &INDEXES).written_again_by("hash");
    let filled = latest::Sender::new(0);
    let events = ["a", "b", "c"].map(|name| Event::Apply(applied(name, "u")));
    watch.follow(None, false, told(events), trimmed::service, &filled, 1).await;
    let told_of = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let log = Arc::clone(&told_of);
    watch.subscribe(move |service: &Service| log.lock().push(Key::of(service).name.to_string()));
    told_of.lock().clear();
    let events = [
        Event::Apply(unreadable("a", Some("u"), "2")),
        // Again and again: nobody is woken by that.
        Event::Apply(unreadable("a", Some("u"), "3")),
        // Another object has the name now.
        Event::Apply(unreadable("b", Some("v"), "2")),
        Event::Delete(unreadable("c", Some("u"), "2")),
        Event::Apply(unreadable("d", Some("u"), "2")),
        Event::Init,
        Event::InitApply(unreadable("a", Some("u"), "3")),
        Event::InitDone,
    ];
    watch.follow(None, false, stream::iter(events.map(Ok)), trimmed::service, &filled, 1).await;
    assert_eq!(*told_of.lock(), ["a", "b", "c"]);
    let shown: Vec<_> = watch.list().map(|shown| (Key::of(&*shown).name.to_string(), shown)).collect();
    let [(name, shown)] = shown.as_slice() else { panic!("{shown:?}") };
    assert_eq!((name.as_str(), shown.metadata.resource_version.as_deref()), ("a", Some("1")));
    assert_eq!(shown.metadata.annotations, Some([("other".to_owned(), "x".to_owned())].into()));
}

/// An API server whose lists have what is not there in any calendar, and fields of a form that is not the kind's.
#[tokio::test(start_paused = true)]
async fn an_object_of_another_form_keeps_no_other_one_from_being_read() {
    let server = tower::service_fn(|request: http::Request<kube::client::Body>| {
        let is_watch = crate::client::is_watch(&request);
        async move {
            let list = r#"{"apiVersion":"v1","kind":"ServiceList","metadata":{"resourceVersion":"9"},"items":[
                {"metadata":{"namespace":"n","name":"a","resourceVersion":"1","managedFields":[
                    {"manager":"m","operation":"Update","time":"9999-12-31T23:59:59Z"}]}},
                {"metadata":{"namespace":"n","name":"b","resourceVersion":"2"},"spec":{"ports":7}},
                {"metadata":{"namespace":"n","name":"c","resourceVersion":"3"}}]}"#;
            let changed = concat!(
                r#"{"type":"MODIFIED","object":{"metadata":{"namespace":"n","name":"c","resourceVersion":"10"},"#,
                r#""spec":[]}}"#,
                "\n",
                r#"{"type":"ADDED","object":{"kind":"Service","metadata":{"namespace":"n","name":"d","#,
                r#""resourceVersion":"11","managedFields":[{"time":"9999-12-31T23:59:59Z"}]}}}"#,
                "\n"
            );
            let changes = stream::once(async move { Ok::<_, BoxError>(changed) }).chain(stream::pending());
            let body = if is_watch { AnyBody::from_stream(changes) } else { AnyBody::from(list) };
            Ok::<_, BoxError>(http::Response::new(body))
        }
    });
    let client = Client::new(server, "n");
    let metrics = Metrics::new("test");
    let watch: Watch<Service> = Watch::new(&metrics, &INDEXES);
    let (timings, stop) = (Timings::default(), CancellationToken::new());
    let running = watch.run(client.clone(), Scope::All, None, trimmed::service, timings, stop);
    let _ = tokio::time::timeout(Duration::from_secs(5), running).await;
    assert_eq!((watch.is_synced(), watch.health(timings).1), (true, None));
    let names: Vec<_> = watch.keys().iter().map(|key| key.name.to_string()).collect();
    assert_eq!(names, ["a", "c", "d"]);
    let unreadable = ["a", "b", "c", "d"].map(|name| watch.shared.unreadable.lock().version(&Key::new("n", name)));
    assert_eq!(unreadable, [None, Some(2), Some(10), None]);
    assert_eq!(metrics.watch_errors.get_or_create(&watch.shared.label).get(), 0);
    // Whoever begins to lead reads the same.
    tokio::time::timeout(Duration::from_secs(1), watch.catch_up(&client, &Scope::All)).await.unwrap().unwrap();
}

/// An API server that tells of a change and a deletion, which something in between garbles; and what there is, if it is
/// asked again.
#[tokio::test(start_paused = true)]
async fn what_a_garbled_part_of_a_watch_has_said_is_seen_nevertheless() {
    let lists = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lists);
    let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_watch = crate::client::is_watch(&request);
        let listed = count.fetch_add(usize::from(!is_watch), Ordering::SeqCst);
        async move {
            let before = r#"{"apiVersion":"v1","kind":"ServiceList","metadata":{"resourceVersion":"9"},"items":[
                {"metadata":{"namespace":"n","name":"a","resourceVersion":"1"}},
                {"metadata":{"namespace":"n","name":"b","resourceVersion":"2"}}]}"#;
            let after = r#"{"apiVersion":"v1","kind":"ServiceList","metadata":{"resourceVersion":"12"},"items":[
                {"metadata":{"namespace":"n","name":"b","resourceVersion":"10"}},
                {"metadata":{"namespace":"n","name":"c","resourceVersion":"12"}}]}"#;
            let garbled = concat!(
                r#"{"type":"MODIFIED","object":{"metadata":{"namespace":"n","name":"b","#,
                r#""resourceVersion":"10"}<html>"#,
                "\n",
                r#"{"type":"DELETED","object":{"metadata":{"namespace":"n","#,
                r#""name":"a","resourceVersion":"11"}<html>"#,
                "\n",
                r#"{"type":"ADDED","object":{"metadata":{"namespace":"n","name":"c","resourceVersion":"12"}}}"#,
                "\n"
            );
            let told = if listed < 2 { garbled } else { "" };
            let changes = stream::once(async move { Ok::<_, BoxError>(told) }).chain(stream::pending());
            let list = if listed == 0 { before } else { after };
            let body = if is_watch { AnyBody::from_stream(changes) } else { AnyBody::from(list) };
            Ok::<_, BoxError>(http::Response::new(body))
        }
    });
    let metrics = Metrics::new("test");
    let watch: Watch<Service> = Watch::new(&metrics, &INDEXES);
    let (timings, stop) = (Timings::default(), CancellationToken::new());
    let running = watch.run(Client::new(server, "n"), Scope::All, None, trimmed::service, timings, stop);
    let _ = tokio::time::timeout(Duration::from_secs(20), running).await;
    let seen = watch.list().map(|seen| (seen.metadata.name.clone(), seen.metadata.resource_version.clone()));
    let expected = [("b", "10"), ("c", "12")].map(|(name, version)| (Some(name.to_owned()), Some(version.to_owned())));
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    // It was seen once, and nothing was listed for any other reason.
    assert_eq!(metrics.watch_errors.get_or_create(&watch.shared.label).get(), 1);
    assert_eq!(lists.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_mirror_whose_list_fails_says_so_whatever_is_heard() {
    let does_fail = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let fails = Arc::clone(&does_fail);
    let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (is_watch, does_fail) = (crate::client::is_watch(&request), fails.load(Ordering::SeqCst));
        async move {
            let list = r#"{"apiVersion":"v1","kind":"ServiceList","metadata":{"resourceVersion":"1"},"items":[]}"#;
            let gone = concat!(
                r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410}}"#,
                "\n"
            );
            let body = match (is_watch, does_fail) {
                (true, _) => {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    gone
                }
                (false, false) => list,
                (false, true) => r#"{"apiVersion":"v1","kind":"ServiceList","metadata":{},"items":7}"#,
            };
            Ok::<_, BoxError>(http::Response::new(AnyBody::from(body)))
        }
    });
    let watch: Watch<Service> = Watch::new(&Metrics::new("test"), &INDEXES);
    let (timings, stop) = (Timings::default(), CancellationToken::new());
    let seen = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let before = watch.health(timings).1;
        does_fail.store(true, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let meanwhile = (watch.health(timings).1, watch.silence() > timings.too_old_after);
        does_fail.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(10)).await;
        (before, meanwhile, watch.health(timings).1)
    };
    let running = watch.run(Client::new(server, "n"), Scope::All, None, trimmed::service, timings, stop);
    let (before, meanwhile, after) = tokio::select! {
        seen = seen => seen,
        () = running => panic!("it has ended"),
    };
    assert_eq!((before, after), (None, None));
    assert!(meanwhile.0.is_some_and(|problem| problem.starts_with("cannot be listed for 5")) && meanwhile.1);
}
