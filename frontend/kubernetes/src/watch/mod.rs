//! Shared watches: one per kind and process, however many controllers read it (rule call-5).
//!
//! A [`Watch`] is a mirror of the objects of a kind, with the indexes that its owner asks for. It wakes queues when an
//! object changes. The mirror is as old as the last message of the API server. A write that was decided by it must
//! carry a `resourceVersion`, or be the same however often it is made.
//!
//! Invariants:
//! * A reader sees a list and its replacement, never a half-filled mirror; nothing counts before [`Watch::synced`].
//! * Nobody who reads waits until objects are unpacked, however long they are, and however many change or vanish.
//! * Subscribers are called after the mirror has changed, also for an object that vanished while the connection was
//!   down, even if another one has its name by then. [`Departure`] tells such an object from one whose deletion the API
//!   server reported.
//! * A mirror can be brought up to a moment ([`Watch::catch_up`]), for who must not decide by an older state; and it is
//!   known to be up to one if it shows what was written after that ([`Watch::is_as_of`]).
//! * Of a namespace that the API server does not let this process read, a mirror keeps what it has, and says so
//!   ([`Watch::refusals`]); it is whole again once it was listed anew and a watch has begun after that.
//! * A mirror knows how long it has heard nothing ([`Watch::silence`]); a watch that does not begin, or falls silent,
//!   is begun anew (rule call-18).
//! * Objects are trimmed before they are kept ([`trimmed`]): nothing may be applied from a mirror. What is left of them
//!   is kept as compressed JSON ([`Kept`]) and read by whoever asks for it. Whoever looks at all objects leaves those
//!   packed that rest ([`Form::PackedAtRest`]).
//! * An object that cannot be read (a newer version wrote it, or somebody something) keeps its last readable state, and
//!   is counted; all others are read.
//!
//! Knows: how the API server tells of changes. Must not know: what any kind means; indexes, and what is trimmed, are
//! said by its owner.

mod as_of;
mod catch_up;
mod events;
mod kept;
mod lines;
mod packed;
mod pulse;
mod refusals;
mod refused;
mod store;
#[cfg(test)]
mod tests;
pub mod trimmed;
mod unreadable;

use self::as_of::Moments;
pub use self::catch_up::version;
use self::events::{Known, News, events, is_refused};
pub use self::kept::{Form, Kept};
use self::packed::Packer;
use self::pulse::Pulse;
pub use self::pulse::Timings;
pub use self::refusals::Refusals;
use self::store::{Arrival, Change, Replacement, Store};
pub use self::trimmed::ConfigMapMeta;
use self::unreadable::UnreadableObjects;
use super::Key;
use super::client::PAGE;
use super::delivered::{Delivered, Unreadable};
use super::error::with_causes;
use super::queue::{Queue, QueueKey};
use crate::metrics::{Metrics, WatchLabels};
use futures::{Stream, StreamExt, future};
use kube::core::NamespaceResourceScope;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch as latest;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// An object rests that nobody has read for so long. Whoever reads it next unpacks it, as every object of other kinds,
/// so this need not be longer than what happens in a row. It must be shorter than the time between two looks at a part
/// of it, each of which asks for the whole: every part is looked at again from time to time, one after the other
/// (rule call-21).
const RESTS: Duration = Duration::from_secs(5);

/// Which namespaces are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of the cluster.
    All,
    /// These. One that may not be read is refused (rule call-33).
    Namespaces(Vec<String>),
    /// This one. That it may not be read is a failure like others: no jobs are looked after by what is there.
    Alone(String),
}

impl Scope {
    /// The scopes of single watches: `None` is the cluster.
    fn parts(&self) -> Vec<Option<&str>> {
        match self {
            Self::All => vec![None],
            Self::Namespaces(names) => names.iter().map(|name| Some(name.as_str())).collect(),
            Self::Alone(name) => vec![Some(name.as_str())],
        }
    }

    /// Whether the namespace is watched.
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(names) => names.iter().any(|name| name == namespace),
            Self::Alone(name) => name == namespace,
        }
    }

    /// Whether a namespace that may not be read is refused.
    fn has_refusals(&self) -> bool {
        matches!(self, Self::Namespaces(_))
    }
}

/// A way to find objects: by the group that each says in its metadata, or its spec, that it belongs to.
#[derive(Debug)]
pub struct Index<K> {
    /// The name of the index; another one for each index of a mirror.
    pub name: &'static str,
    /// The group of an object in its namespace, if it belongs to one.
    pub group: fn(&K) -> Option<String>,
}

type Subscriber<K> = Box<dyn Fn(&K) + Send + Sync>;
type DepartureSubscriber<K> = Box<dyn Fn(&K, Departure) + Send + Sync>;

/// How it is known that an object is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The API server told of its deletion.
    Deleted,
    /// It was there before the connection was lost, and is not there any more.
    Vanished,
}

/// A shared watch. Cheap to clone; all clones are the same watch.
pub struct Watch<K: 'static> {
    shared: Arc<SharedWatch<K>>,
}

struct SharedWatch<K: 'static> {
    store: RwLock<Store<K>>,
    indexes: &'static [Index<K>],
    form: Form,
    packer: Packer,
    subscribers: RwLock<Vec<Subscriber<K>>>,
    departure_subscribers: RwLock<Vec<DepartureSubscriber<K>>>,
    synced: latest::Sender<bool>,
    changes: latest::Sender<u64>,
    unreadable: Mutex<UnreadableObjects>,
    moments: Mutex<Moments>,
    /// The annotation that what cannot be read loses.
    written_again_by: OnceLock<&'static str>,
    /// One for each watch of this kind.
    pulses: RwLock<Vec<Pulse>>,
    /// Since when the list fails, of each watch of this kind that begins with one.
    unlisted: Mutex<BTreeMap<Option<String>, Instant>>,
    /// Since when this kind may not be read, by namespace.
    refused: Mutex<BTreeMap<String, Instant>>,
    /// The same of all kinds that are decided by together.
    refusals: OnceLock<Refusals>,
    metrics: Metrics,
    label: WatchLabels,
}

impl<K: 'static> Clone for Watch<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Mirrored> Watch<K> {
    /// An empty mirror that [`Watch::run`] fills.
    pub fn new(metrics: &Metrics, indexes: &'static [Index<K>]) -> Self {
        Self::in_form(metrics, indexes, Form::Packed)
    }

    /// An empty mirror that keeps objects in this form.
    pub fn in_form(metrics: &Metrics, indexes: &'static [Index<K>], form: Form) -> Self {
        // So that an alert sees the first one of each kind.
        let label = WatchLabels { kind: K::kind(&()).into_owned() };
        metrics.watch_errors.get_or_create(&label).inc_by(0);
        metrics.unreadable_objects.get_or_create(&label).inc_by(0);
        let shared = SharedWatch {
            store: RwLock::new(Store::new(indexes)),
            indexes,
            form,
            packer: Packer::default(),
            subscribers: RwLock::new(Vec::new()),
            departure_subscribers: RwLock::new(Vec::new()),
            synced: latest::Sender::new(false),
            changes: latest::Sender::new(0),
            unreadable: Mutex::default(),
            moments: Mutex::default(),
            written_again_by: OnceLock::new(),
            pulses: RwLock::new(Vec::new()),
            unlisted: Mutex::default(),
            refused: Mutex::default(),
            refusals: OnceLock::new(),
            metrics: metrics.clone(),
            label,
        };
        Self { shared: Arc::new(shared) }
    }

    /// What cannot be read any more loses this annotation in its last readable state: whoever writes objects of this
    /// kind, and tells by the annotation what was written last, finds that this one is to be written again.
    pub fn written_again_by(self, annotation: &'static str) -> Self {
        let _ = self.shared.written_again_by.set(annotation);
        self
    }

    /// The object of this name.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.kept(key)?.read()
    }

    /// The object of this name, to be read in part.
    pub fn kept(&self, key: &Key) -> Option<Kept<K>> {
        self.store().get(key)
    }

    /// Whether there is an object of this name.
    pub fn contains(&self, key: &Key) -> bool {
        self.kept(key).is_some()
    }

    /// Whether there is an object of this name that cannot be read. Perhaps the mirror has a state of it from before.
    pub fn is_unreadable(&self, key: &Key) -> bool {
        self.shared.unreadable.lock().version(key).is_some()
    }

    /// The keys of all objects, by namespace and name.
    pub fn keys(&self) -> Vec<Key> {
        self.store().keys()
    }

    /// The keys of the objects of a namespace, by name.
    pub fn keys_of_namespace(&self, namespace: &str) -> Vec<Key> {
        self.store().keys_of_namespace(namespace)
    }

    /// The key of an object as the mirror has it: whoever keeps it with the object takes no memory for its texts.
    pub fn own_key(&self, key: &Key) -> Option<Key> {
        self.store().own_key(key)
    }

    /// All objects, by namespace and name. Each is read when it is its turn, in passing.
    pub fn list(&self) -> impl Iterator<Item = Arc<K>> + use<K> {
        let objects = self.store().list();
        objects.into_iter().filter_map(|object| object.read_in_passing())
    }

    /// Whether there is any object in a namespace.
    pub fn has_namespace(&self, namespace: &str) -> bool {
        self.store().has_namespace(namespace)
    }

    /// The objects of a namespace, by name. Each is read when it is its turn, in passing.
    pub fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = Arc<K>> + use<K> {
        self.kept_of_namespace(namespace).into_iter().filter_map(|object| object.read_in_passing())
    }

    /// The same, to be read in part.
    pub fn kept_of_namespace(&self, namespace: &str) -> Vec<Kept<K>> {
        self.store().of_namespace(namespace)
    }

    /// The objects of a group, by name, to be read in part. `index` names one of those that the mirror was made with.
    pub fn of_group(&self, index: &str, group: &Key) -> Vec<(Key, Kept<K>)> {
        self.store().of_group(index, group)
    }

    /// How many objects a group has, and no more than `most` of them: it takes as long as counting to that.
    pub fn count_in_group(&self, index: &str, group: &Key, most: usize) -> usize {
        self.store().count_in_group(index, group, most)
    }

    /// Adds to `queue` the keys that `keys` derives from an object whenever it changes or goes: from its state after as
    /// well as before, if that has other groups or another spec. Objects that are there already count as changed.
    pub fn wake<T: QueueKey, I>(&self, queue: &Queue<T>, keys: impl Fn(&K) -> I + Send + Sync + 'static)
    where
        I: IntoIterator<Item = T>,
    {
        let queue = queue.clone();
        self.subscribe(move |object| {
            for key in keys(object) {
                queue.add(key);
            }
        });
    }

    /// Calls `subscriber` with the state after each change, and with every object that is there already. If the state
    /// before has other groups or another spec, or nothing comes after it, `subscriber` is called with that first:
    /// what belonged to the object by it must hear of the change as well. It must not block.
    pub fn subscribe(&self, subscriber: impl Fn(&K) + Send + Sync + 'static) {
        // First the subscription, then what is there: an object may be told twice, but none is left out.
        let subscriber = Arc::new(subscriber);
        let later = Arc::clone(&subscriber);
        let mut subscribers = self.shared.subscribers.write();
        subscribers.push(Box::new(move |object| later(object)));
        drop(subscribers);
        for object in self.list() {
            subscriber(&object);
        }
    }

    /// Calls `subscriber` with the last state of each object that is gone from the mirror, before all others hear of
    /// it. Of one that vanished while the connection was down, nobody was told how it went. It must not block.
    pub fn subscribe_to_departures(&self, subscriber: impl Fn(&K, Departure) + Send + Sync + 'static) {
        let mut subscribers = self.shared.departure_subscribers.write();
        subscribers.push(Box::new(subscriber));
    }

    /// A number that is another one after every change.
    pub fn changes(&self) -> latest::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Whether the mirror has been filled once.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// How long nothing was heard of the API server, or no list could be read, at most: with several watches, of the
    /// one of which that is true for the longest time. That a namespace may not be read is something heard, but not
    /// that none may be.
    pub fn silence(&self) -> Duration {
        let silence = self.shared.pulses.read().iter().map(Pulse::silence).max().unwrap_or_default();
        silence.max(self.unlisted_for()).max(self.refused_everywhere_for())
    }

    /// How long no list could be read: what was heard meanwhile says nothing of the objects.
    fn unlisted_for(&self) -> Duration {
        self.shared.unlisted.lock().values().map(Instant::elapsed).max().unwrap_or_default()
    }

    /// The kind, and why the mirror must not be relied on, if so: it is not filled yet, or too old (rule call-18).
    pub fn health(&self, timings: Timings) -> (String, Option<String>) {
        let silence = self.silence();
        let problem = if !self.is_synced() {
            Some("not filled yet".to_owned())
        } else if self.unlisted_for() > timings.too_old_after {
            Some(format!("cannot be listed for {} s", self.unlisted_for().as_secs()))
        } else if self.refused_everywhere_for() > timings.too_old_after {
            Some(format!("may not be read in any namespace for {} s", self.refused_everywhere_for().as_secs()))
        } else if silence > timings.too_old_after {
            Some(format!("nothing heard for {} s", silence.as_secs()))
        } else {
            None
        };
        (self.shared.label.kind.clone(), problem)
    }

    /// Waits until the mirror has been filled once.
    pub async fn synced(&self) {
        // The sender lives as long as `self`.
        let _ = self.shared.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Fills the mirror and keeps it filled until `stop`. `selector` is a label selector; `trim` leaves of an object
    /// what is kept of it (one of [`trimmed`]).
    ///
    /// Failures are counted and tried again after 0.2 s doubling to 2 s, or later if the API server says so, or has
    /// refused the namespace for a minute; the first of several in a row is logged. A call that the API server ended,
    /// that has fallen silent, or whose version is too old, is made again without losing anything; so it is after a
    /// line that cannot be read, or is older than another.
    pub async fn run(
        &self,
        client: Client,
        scope: Scope,
        selector: Option<&str>,
        trim: Trim<K>,
        timings: Timings,
        stop: CancellationToken,
    ) {
        // The watcher gives up a stream that delivers nothing for 5 s longer.
        let timeout = Some(timings.renewed_after_seconds);
        let label_selector = selector.map(str::to_owned);
        let config = watcher::Config { label_selector, timeout, page_size: Some(PAGE), ..watcher::Config::default() };
        let (parts, has_refusals) = (scope.parts(), scope.has_refusals());
        let pulses: Vec<Pulse> = parts.iter().map(|_| Pulse::new()).collect();
        self.shared.pulses.write().clone_from(&pulses);
        *self.shared.moments.lock() = Moments::of(&scope);
        let filled = latest::Sender::new(0usize);
        let watches = parts.iter().zip(&pulses).map(|(part, pulse)| {
            let client = pulse.of_calls(client.clone(), timings);
            let api: Api<Delivered<K>> = match part {
                Some(namespace) => Api::namespaced(client, namespace),
                None => Api::all(client),
            };
            let events = events(api, config.clone(), pulse.clone(), has_refusals);
            let following = self.follow(*part, has_refusals, events, trim, &filled, parts.len());
            let permitting = self.permit_when_watched(*part, pulse.begun(), &filled, parts.len());
            async move {
                tokio::select! {
                    () = following => {}
                    () = permitting => {}
                }
            }
        });
        tokio::select! {
            _ = future::join_all(watches) => {}
            () = self.let_rest() => {}
            () = stop.cancelled() => {}
        }
    }

    /// Lets objects rest that nobody reads, for ever.
    async fn let_rest(&self) {
        if self.shared.form != Form::PackedAtRest {
            return future::pending().await;
        }
        loop {
            sleep(RESTS).await;
            let objects = self.store().list();
            objects.iter().for_each(|object| object.let_rest(RESTS));
        }
    }

    /// Puts the events of one watch into the mirror. `has_refusals`: that the right to it is missing is no failure.
    /// `filled` counts the watches of this kind that have been filled once.
    async fn follow(
        &self,
        namespace: Option<&str>,
        has_refusals: bool,
        events: impl Stream<Item = watcher::Result<Event<Delivered<K>>>> + Send,
        trim: Trim<K>,
        filled: &latest::Sender<usize>,
        parts: usize,
    ) {
        let mut events = std::pin::pin!(events);
        let mut first = true;
        let mut known = Known::default();
        let mut listed = Vec::new();
        while let Some(event) = events.next().await {
            let refused = namespace.filter(|_| has_refusals && event.as_ref().is_err_and(is_refused));
            let news = if refused.is_some() { None } else { known.hear(&event) };
            if news == Some(News::WorksAgain) {
                tracing::info!(kind = %self.shared.label.kind, "watch works again");
            }
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    listed.push(read(object, trim).map(|object| self.arrival(Arc::new(object))))
                }
                Ok(Event::InitDone) => {
                    let listed = std::mem::take(&mut listed).into_iter();
                    let listed: Vec<_> = listed.map(|listed| self.note_listed(listed)).collect();
                    self.shared.unlisted.lock().remove(&namespace.map(str::to_owned));
                    self.shared
                        .unreadable
                        .lock()
                        .retain(namespace, listed.iter().filter_map(|listed| listed.as_ref().err()));
                    self.publish(|store| store.to_replace(namespace, listed), Departure::Vanished, None);
                    self.fill(std::mem::take(&mut first), filled, parts);
                }
                Ok(Event::Apply(object)) => self.deliver(object, trim),
                Ok(Event::Delete(object)) => {
                    let key = Key::of(&object);
                    // The state at the end may be another one than the last that was told.
                    if let Ok(mut object) = object.0 {
                        trim(&mut object);
                        self.insert(object);
                    }
                    self.shared.unreadable.lock().forget(&key);
                    self.remove(&key);
                }
                Err(error) => {
                    if let Some(namespace) = refused {
                        self.note_refused(namespace, &error);
                        self.fill(std::mem::take(&mut first), filled, parts);
                        continue;
                    }
                    self.shared.metrics.watch_errors.get_or_create(&self.shared.label).inc();
                    if matches!(error, watcher::Error::InitialListFailed(_)) {
                        self.shared.unlisted.lock().entry(namespace.map(str::to_owned)).or_insert_with(Instant::now);
                    }
                    let (kind, text) = (&self.shared.label.kind, with_causes(&error));
                    if news == Some(News::Fails) {
                        tracing::warn!(%kind, error = text, "watch failed; will try again");
                    } else {
                        tracing::debug!(%kind, error = text, "watch failed; will try again");
                    }
                }
            }
        }
    }

    /// Notes which objects of a list can be read and which cannot. The list is whole by then: one that breaks off says
    /// nothing of any object, since the mirror does not get the others.
    fn note_listed(&self, listed: Result<Arrival<K>, (Key, Box<Unreadable>)>) -> Result<Arrival<K>, Key> {
        match listed {
            Ok(arrival) => {
                self.shared.unreadable.lock().forget(&arrival.key);
                Ok(arrival)
            }
            Err((key, unreadable)) => {
                self.cannot_read(&key, &unreadable);
                Err(key)
            }
        }
    }

    /// An object cannot be read: its last readable state stays, if it is one of this object.
    fn cannot_read(&self, key: &Key, unreadable: &Unreadable) {
        let kind = &self.shared.label.kind;
        self.shared.metrics.unreadable_objects.get_or_create(&self.shared.label).inc();
        if self.shared.unreadable.lock().note(key, version(&unreadable.metadata), Instant::now()) {
            tracing::error!(%kind, %key, error = %unreadable, "object cannot be read");
        } else {
            tracing::debug!(%kind, %key, error = %unreadable, "object cannot be read");
        }
        if let Some(shown) = self.get(key) {
            let uid = &unreadable.metadata.uid;
            if uid.is_some() && *uid != shown.meta().uid {
                self.publish(|store| store.to_delete(key), Departure::Vanished, None);
            } else if let Some(annotation) = self.shared.written_again_by.get() {
                let mut shown = K::clone(&shown);
                let annotations = shown.meta_mut().annotations.as_mut();
                if annotations.is_some_and(|annotations| annotations.remove(*annotation).is_some()) {
                    self.insert(shown);
                }
            }
        }
        // Who waits for the object hears that it has come.
        self.shared.changes.send_modify(|number| *number = number.wrapping_add(1));
    }

    /// `change` finds out what becomes of which objects. `departure` is how objects go that the change takes out;
    /// `arrived` is the object if the change brings just one.
    fn publish(&self, change: impl FnOnce(&Store<K>) -> Vec<Change<K>>, departure: Departure, arrived: Option<&K>) {
        let (changes, size) = {
            // Others read meanwhile, and nobody changes anything.
            let store = self.shared.store.upgradable_read();
            let changes = change(&store);
            if changes.is_empty() {
                return;
            }
            let mut store = RwLockUpgradableReadGuard::upgrade(store);
            (store.carry_out(changes), store.len())
        };
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        self.shared.metrics.watched_objects.get_or_create(&self.shared.label).set(size);
        self.shared.changes.send_modify(|number| *number = number.wrapping_add(1));
        let departures = self.shared.departure_subscribers.read();
        let subscribers = self.shared.subscribers.read();
        for Replacement { before, after, is_in_place } in changes {
            let before = before.filter(|_| !is_in_place).and_then(|kept| kept.read_in_passing());
            let arrived = arrived.filter(|_| after.is_some());
            let read = after.filter(|_| arrived.is_none()).and_then(|kept| kept.read_in_passing());
            let after = read.as_deref().or(arrived);
            if let (Some(gone), None) = (&before, after) {
                departures.iter().for_each(|subscriber| subscriber(gone, departure));
            }
            for object in [before.as_deref(), after].into_iter().flatten() {
                for subscriber in subscribers.iter() {
                    subscriber(object);
                }
            }
        }
    }

    /// What the mirror is to keep of an object; made before others have to wait for the mirror.
    fn arrival(&self, object: Arc<K>) -> Arrival<K> {
        Store::arrival(self.shared.indexes, self.shared.form, &self.shared.packer, object)
    }

    fn store(&self) -> RwLockReadGuard<'_, Store<K>> {
        // A panic while the lock is held leaves a mirror that the next list replaces.
        self.shared.store.read()
    }

    /// A mirror that is filled by hand: what reads mirrors can be tested without an API server.
    pub fn filled(indexes: &'static [Index<K>], objects: impl IntoIterator<Item = K>) -> Self {
        let watch = Self::new(&Metrics::new("test"), indexes);
        for object in objects {
            watch.insert(object);
        }
        watch.has_everything();
        watch
    }

    /// A mirror that is filled by hand has everything that there is.
    pub fn has_everything(&self) {
        *self.shared.moments.lock() = Moments::of(&Scope::All);
        self.shared.synced.send_replace(true);
    }

    /// An object arrives, or one that cannot be read.
    pub fn deliver(&self, object: Delivered<K>, trim: Trim<K>) {
        match read(object, trim) {
            Ok(object) => {
                self.shared.unreadable.lock().forget(&Key::of(&object));
                self.insert(object);
            }
            Err((key, unreadable)) => self.cannot_read(&key, &unreadable),
        }
    }

    /// Puts an object into the mirror as if it had been delivered.
    pub fn insert(&self, object: K) {
        let object = Arc::new(object);
        let arrival = self.arrival(Arc::clone(&object));
        // Nobody was told how another one went whose name it has.
        self.publish(|store| store.to_apply(arrival), Departure::Vanished, Some(&object));
    }

    /// Lets all objects rest, as if nobody had read them for long. Nothing else does in a mirror filled by hand.
    pub fn rest(&self) {
        self.store().list().iter().for_each(|object| object.let_rest(Duration::ZERO));
    }

    /// Takes an object from the mirror as if its deletion had been delivered.
    pub fn remove(&self, key: &Key) {
        self.publish(|store| store.to_delete(key), Departure::Deleted, None);
    }
}

/// What is kept of an object; or the key of one that cannot be read, and why.
fn read<K: Mirrored>(delivered: Delivered<K>, trim: Trim<K>) -> Result<K, (Key, Box<Unreadable>)> {
    let key = Key::of(&delivered);
    match delivered.0 {
        Ok(mut object) => {
            trim(&mut object);
            Ok(object)
        }
        Err(unreadable) => Err((key, unreadable)),
    }
}

/// What a kind must be able to do to be kept in a mirror; a bound with a name.
pub trait Mirrored:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + serde::Serialize
    + serde::de::DeserializeOwned
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
}
impl<T> Mirrored for T where
    T: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static
{
}

/// Leaves of an object what is kept of it.
pub type Trim<K> = fn(&mut K);
