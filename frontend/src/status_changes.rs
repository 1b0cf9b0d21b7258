//! Changes the status of one object for somebody who waits, so that the next read of this replica sees it (rules
//! pe-api-3 and import-8).
//!
//! The write is made only if nobody has written the object since it was read; else it is read again and decided again.
//! So it is if nothing is to be written, or the change is refused, by what the mirror shows: another replica may have
//! written what it does not show yet. Nobody is asked if the mirror is known to be as new as the change, which it is if
//! it shows something that this replica has written since. Then the mirror is waited for. A write whose caller has gone
//! goes on without it, and the next change of the object waits for its end: it could have its effect after that.
//!
//! Whoever asks all the time holds up itself: calls take turns by who asks for them ([`asked_by`]), and of one who is
//! known, the calls of few changes of a kind of objects are made at a time. What holds up some of one kind holds up
//! none of another kind here; so it is for the calls themselves, if the cluster of each kind has a gate of its own.
//!
//! What becomes of a long object is decided beside the threads that serve everybody ([`long_objects`]), where it is
//! unpacked as well if the mirror has it. What comes from the API server is parsed, and what goes there written as
//! JSON, by whoever makes the call, as everywhere: long objects, too, as many at a time as the gate of the calls lets
//! through.
//!
//! Knows: clusters, mirrors. Must not know: who asks, what is changed, HTTP, gRPC.
//!
//! [`long_objects`]: crate::long_objects

use crate::fair_semaphore::{FairPermit, FairSemaphore};
use crate::long_objects::LongObjects;
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::cluster::{Cluster, Manager, Object};
use streams_kubernetes::gate::{Asker, Priority, asked_by};
use streams_kubernetes::queue::Owner;
use streams_kubernetes::watch::{Mirrored, Watch};
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};
use tokio::task::JoinError;
use tokio::time::{Instant, timeout};
use tracing::Instrument as _;

/// How long the next change of an object waits until the mirror shows the one before, at most.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

/// Changes of a kind of objects by one who is known whose calls are made at the same time.
const AT_A_TIME: usize = 2;

/// What becomes of an object; nothing, if nothing is to change.
type Decide<K, E> = dyn Fn(&K) -> Result<Option<K>, E> + Send + Sync;
/// What has become of an object, and the object.
type Decided<K, E> = (Result<Option<K>, E>, K);

/// A change of an object. It may be decided more than once, each time on another thread.
pub(crate) struct Change<K, E> {
    decide: Arc<Decide<K, E>>,
    /// Octets of what the object gets.
    octets: usize,
    by: Changer,
    /// What was there by then must be known before nothing is written.
    known_until: Instant,
}

/// Who asks for a change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changer {
    /// Those of a namespace in another one of these groups take turns, in calls and with long objects.
    pub(crate) group: Arc<str>,
    /// Who it is, in all namespaces, if that is known. Those of a group who are known take turns in calls.
    pub(crate) one: Option<Arc<str>>,
}

impl Changer {
    /// Who asks for its calls.
    pub(crate) fn asker(&self) -> Asker {
        Asker { group: Arc::clone(&self.group), one: self.one.clone().unwrap_or_default() }
    }
}

impl<K, E> Change<K, E> {
    /// A change by which an object gets few octets, and that is asked for now.
    pub(crate) fn new(decide: impl Fn(&K) -> Result<Option<K>, E> + Send + Sync + 'static) -> Self {
        Self { decide: Arc::new(decide), octets: 0, by: Changer::default(), known_until: Instant::now() }
    }

    /// The same that changes nothing, or is refused, only by what there was at this moment, or later.
    pub(crate) fn knowing(self, known_until: Instant) -> Self {
        Self { known_until, ..self }
    }

    /// The same of which the object gets so many octets, and for which somebody has asked who takes turns with others.
    pub(crate) fn by(self, by: Changer, octets: usize) -> Self {
        Self { octets, by, ..self }
    }

    /// Who asks for it.
    pub(crate) fn changer(&self) -> &Changer {
        &self.by
    }

    fn owner(&self, key: &Key) -> Owner {
        Owner { namespace: Arc::clone(&key.namespace), object: Arc::clone(&self.by.group) }
    }
}

/// Why a status was not changed.
#[derive(Debug)]
pub(crate) enum Unchanged<E> {
    /// The change was refused.
    Refused(E),
    /// There is no such object, or not any more.
    Gone,
    /// The object cannot be read. Nothing was written.
    Unread(Error),
    /// The API server does not take it. Whether it had an effect is not known if it has not answered.
    Failed(Error),
    /// It was, but the mirror does not show it.
    Unseen,
    /// Nothing was decided: that has panicked, which is logged.
    Undecided,
    /// What comes of it is not known: this process ends.
    Unknown,
}

/// What is read before the first decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    /// What the mirror shows: enough for a write, which the API server refuses if that is not the newest.
    Mirror,
    /// What the API server has: for who may have seen what another replica has written.
    ApiServer,
}

/// Whose turn it is to change an object: one change at a time. Nothing is kept of objects that nobody changes, nor of
/// those who change none. Cheap to clone; all clones are the same turns, and whoever changes the same objects needs
/// them.
#[derive(Clone)]
pub(crate) struct Turns {
    objects: FairSemaphore,
    /// By kind of the objects, too: one that somebody else has for long keeps a changer from no others.
    changers: FairSemaphore,
}

/// The turn of one change. It lasts until what was written is known.
pub(crate) struct Turn {
    _of_object: FairPermit,
    /// Until its calls have ended, if it is known who asks.
    of_changer: Option<FairPermit>,
}

impl Default for Turns {
    fn default() -> Self {
        let of_each = |most| FairSemaphore::new(usize::MAX, most);
        Self { objects: of_each(1), changers: of_each(AT_A_TIME) }
    }
}

impl Turns {
    /// Waits until it is this change's turn.
    async fn take(&self, kind: &str, key: &Key, by: &Changer) -> Turn {
        // This first: nobody keeps others from an object while it waits for itself.
        let of_changer = self.of_changer(kind, by).await;
        Turn { _of_object: self.objects.acquire(&format!("{kind} {key}")).await, of_changer }
    }

    /// Waits until calls are made for few other changes of this kind of objects by the same one.
    async fn of_changer(&self, kind: &str, by: &Changer) -> Option<FairPermit> {
        match &by.one {
            Some(one) => Some(self.changers.acquire(&format!("{kind} {one}")).await),
            None => None,
        }
    }
}

impl Turn {
    /// No calls follow: whoever has asked may change something else of the kind, whenever a mirror shows this.
    pub(crate) fn end_calls(&mut self) {
        self.of_changer = None;
    }
}

/// Changes statuses of objects of a cluster, in the name of one field manager.
#[derive(Clone)]
pub(crate) struct StatusChanges<C> {
    /// The cluster.
    pub(crate) cluster: C,
    /// In whose name.
    pub(crate) manager: Manager,
    /// From what the first decision is made.
    pub(crate) basis: Basis,
    /// What its calls are for, if the cluster makes calls wait for each other.
    pub(crate) priority: Priority,
    /// Whose turn it is.
    pub(crate) turns: Turns,
    /// Where long objects are unpacked, and changes of them decided.
    pub(crate) long_objects: LongObjects,
}

impl<C: Cluster> StatusChanges<C> {
    /// The same, whose calls have this priority.
    pub(crate) fn of(&self, priority: Priority) -> Self {
        Self { priority, ..self.clone() }
    }

    /// Decides when it is this change's turn, and writes the object that `change` makes of the one that is there, with
    /// another status; nothing, if it makes none. Returns what is there then. The mirror shows that, or what is newer.
    ///
    /// # Errors
    /// `change` refuses, or panics; the object is gone; the API server refuses.
    pub(crate) async fn make<K: Object + Mirrored, E: Send + 'static>(
        &self,
        mirror: &Watch<K>,
        key: &Key,
        change: &Change<K, E>,
    ) -> Result<K, Unchanged<E>> {
        let turn = self.turn::<K>(key, &change.by).await;
        self.make_in(turn, mirror, key, change).await
    }

    /// Waits for the turn of somebody to change an object.
    pub(crate) async fn turn<K: Object>(&self, key: &Key, by: &Changer) -> Turn {
        self.turns.take(&K::kind(&()), key, by).await
    }

    /// The object as the API server has it, for somebody who may change something then. It is nobody's turn meanwhile,
    /// but for whoever asks it counts like the calls of a change.
    ///
    /// # Errors
    /// The API server does not answer, or refuses.
    pub(crate) async fn read_for<K: Object>(&self, key: &Key, by: &Changer) -> kube::Result<Option<K>> {
        let _turn = self.turns.of_changer(&K::kind(&()), by).await;
        asked_by(by.asker(), self.priority.of(self.cluster.get::<K>(key))).await
    }

    /// The same as [`Self::make`], by somebody whose turn it is.
    ///
    /// # Errors
    /// Likewise.
    pub(crate) async fn make_in<K: Object + Mirrored, E: Send + 'static>(
        &self,
        mut turn: Turn,
        mirror: &Watch<K>,
        key: &Key,
        change: &Change<K, E>,
    ) -> Result<K, Unchanged<E>> {
        // Before the mirror is read: what it shows then is as new, or newer.
        let mut may_be_old = self.basis == Basis::Mirror && !mirror.is_as_of(key, change.known_until);
        let first = match self.basis {
            Basis::Mirror => self.decided_as_shown(mirror, key, change).await?,
            Basis::ApiServer => match self.read(key, change).await? {
                Some(object) => Some(self.decided(mirror, key, object, change).await?),
                None => None,
            },
        };
        let (mut decided, mut object) = first.ok_or(Unchanged::Gone)?;
        loop {
            let wanted = match decided {
                Ok(Some(wanted)) => Some(wanted),
                Ok(None) | Err(_) if may_be_old => None,
                Ok(None) => {
                    turn.end_calls();
                    return if is_shown(mirror, &object).await { Ok(object) } else { Err(Unchanged::Unseen) };
                }
                Err(refusal) => return Err(Unchanged::Refused(refusal)),
            };
            if let Some(wanted) = wanted {
                let writer = (self.cluster.clone(), self.manager);
                // What is known of the work around does not go along into a task.
                let task = self.priority.of(write_to_its_end(writer, mirror.clone(), key.clone(), wanted, turn));
                let task = asked_by(change.by.asker(), task);
                let Ok((written, is_shown, back)) = tokio::spawn(task.in_current_span()).await else {
                    return Err(Unchanged::Unknown);
                };
                match written {
                    Ok(written) if is_shown => return Ok(written),
                    Ok(_) => return Err(Unchanged::Unseen),
                    Err(Error::Conflict { .. }) => turn = back,
                    Err(error) => return Err(Unchanged::Failed(error)),
                }
            }
            may_be_old = false;
            object = self.newest(key, &object, change).await?;
            (decided, object) = self.decided(mirror, key, object, change).await?;
        }
    }

    /// What becomes of an object, and the object. How long it is, the mirror says, which shows it or is about to: one
    /// that it does not show may be of any length.
    ///
    /// # Errors
    /// The change panicked, or this process ends.
    pub(crate) async fn decided<K: Object + Mirrored, E: Send + 'static>(
        &self,
        mirror: &Watch<K>,
        key: &Key,
        object: K,
        change: &Change<K, E>,
    ) -> Result<Decided<K, E>, Unchanged<E>> {
        let octets = mirror.kept(key).map_or(usize::MAX, |kept| kept.octets().saturating_add(change.octets));
        let decide = Arc::clone(&change.decide);
        let work = move || (decide(&object), object);
        self.long_objects.about(octets, change.owner(key), work).await.map_err(undecided)
    }

    /// The same of the object as the mirror shows it, which is unpacked in the same turn; nothing if it shows none.
    ///
    /// # Errors
    /// Likewise.
    async fn decided_as_shown<K: Object + Mirrored, E: Send + 'static>(
        &self,
        mirror: &Watch<K>,
        key: &Key,
        change: &Change<K, E>,
    ) -> Result<Option<Decided<K, E>>, Unchanged<E>> {
        let Some(kept) = mirror.kept(key) else { return Ok(None) };
        let (octets, decide) = (kept.octets().saturating_add(change.octets), Arc::clone(&change.decide));
        let work = move || {
            let object = Arc::unwrap_or_clone(kept.read()?);
            Some((decide(&object), object))
        };
        self.long_objects.about(octets, change.owner(key), work).await.map_err(undecided)
    }

    /// The object as the API server has it now. Another one of its name is none.
    async fn newest<K: Object, E>(&self, key: &Key, object: &K, change: &Change<K, E>) -> Result<K, Unchanged<E>> {
        let is_same = |now: &K| now.meta().uid == object.meta().uid;
        self.read(key, change).await?.filter(is_same).ok_or(Unchanged::Gone)
    }

    async fn read<K: Object, E>(&self, key: &Key, change: &Change<K, E>) -> Result<Option<K>, Unchanged<E>> {
        let read = self.priority.of(self.cluster.get::<K>(key));
        let read = asked_by(change.by.asker(), read).await;
        read.map_err(|error| Unchanged::Unread(error.into()))
    }
}

/// Why nothing has come of the decision about a long object.
fn undecided<E>(error: JoinError) -> Unchanged<E> {
    if error.is_panic() { Unchanged::Undecided } else { Unchanged::Unknown }
}

/// Writes a status, and waits until the mirror shows what has come of it. It goes on although whoever has asked for it
/// has given up: a write that was not waited for may still have its effect, and the next change of the object must not
/// be decided by what was there before.
async fn write_to_its_end<C: Cluster, K: Object + Mirrored>(
    (cluster, manager): (C, Manager),
    mirror: Watch<K>,
    key: Key,
    wanted: K,
    mut turn: Turn,
) -> (Result<K, Error>, bool, Turn) {
    let writer = Writer { cluster: &cluster, namespace: &key.namespace, manager };
    let begun = Instant::now();
    let written = writer.replace_status_if_unchanged(&wanted).await;
    let there = match &written {
        Err(Error::Conflict { .. }) => None,
        Ok(written) => Some(written.clone()),
        // It may have had its effect.
        Err(_) => cluster.get::<K>(&key).await.ok().flatten(),
    };
    let is_shown = match there {
        Some(there) => {
            turn.end_calls();
            is_shown(&mirror, &there).await
        }
        None => true,
    };
    if let Ok(written) = &written {
        mirror.note_written(begun, wanted.meta(), written);
    }
    (written, is_shown, turn)
}

/// Waits until the mirror shows the object, or a newer one. It may have stopped, and whoever comes next may not wait
/// for ever: then this is false.
pub(crate) async fn is_shown<K: Mirrored>(mirror: &Watch<K>, object: &K) -> bool {
    timeout(SHOWN_WITHIN, mirror.shows(object)).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::tests::LateMirrors;
    use futures::FutureExt as _;
    use streams_api::{Export, ExportSpec, ExportStatus, Import};
    use streams_kubernetes_fake::Server;

    #[tokio::test]
    async fn a_decision_that_panics_leaves_the_object_as_it_is_and_to_others() {
        let server = Server::new();
        let mut export = Export::new("a", ExportSpec::default());
        export.metadata.namespace = Some("n".to_owned());
        export.spec.application_name = "x".repeat(100_000);
        server.create(&export);
        let (mirrors, key) = (LateMirrors::of(&server).mirrors, Key::new("n", "a"));
        let cluster = server.connect();
        let of = |basis| StatusChanges {
            cluster: cluster.clone(),
            manager: Manager("test"),
            basis,
            priority: Priority::Normal,
            turns: Turns::default(),
            long_objects: LongObjects::new(),
        };
        for statuses in [of(Basis::Mirror), of(Basis::ApiServer)] {
            let basis = statuses.basis;
            let panics = Change::<Export, ()>::new(|_| panic!("of this test"));
            let unchanged = statuses.make(&mirrors.exports, &key, &panics).await.unwrap_err();
            assert!(matches!(unchanged, Unchanged::Undecided), "{basis:?}: {unchanged:?}");
            let nothing = Change::<Export, ()>::new(|_| Ok(None));
            let made = statuses.make(&mirrors.exports, &key, &nothing).await;
            assert!(made.is_ok(), "{basis:?}: {:?}", made.err());
        }
        assert_eq!(cluster.writes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_makes_the_calls_of_two_changes_of_a_kind_at_a_time_and_waits_for_no_mirror_with_the_next() {
        let server = Server::new();
        let mut export = Export::new("a", ExportSpec::default());
        export.metadata.namespace = Some("n".to_owned());
        server.create(&export);
        let mirrors = LateMirrors::of(&server).mirrors;
        let statuses = StatusChanges {
            cluster: server.connect(),
            manager: Manager("test"),
            basis: Basis::Mirror,
            priority: Priority::Normal,
            turns: Turns::default(),
            long_objects: LongObjects::new(),
        };
        let [key, other, third] = ["a", "b", "c"].map(|name| Key::new("n", name));
        let by = |one: &str| Changer { group: "job".into(), one: Some(one.into()) };
        let may = |key: &Key, one| statuses.turn::<Export>(key, &by(one)).now_or_never().is_some();
        let held = statuses.turn::<Export>(&other, &by("x")).await;
        assert!(may(&key, "x"));
        let _second = statuses.turn::<Export>(&third, &by("x")).await;
        assert_eq!((may(&key, "x"), may(&key, "y"), may(&other, "y")), (false, true, false));
        assert!(statuses.turn::<Import>(&key, &by("x")).now_or_never().is_some(), "another kind");
        drop(held);
        let observed = |export: &Export| {
            let status = ExportStatus { observed_generation: Some(7), ..ExportStatus::default() };
            Ok(Some(Export { status: Some(status), ..export.clone() }))
        };
        let change = Change::<Export, ()>::new(observed).by(by("x"), 0);
        let made = timeout(Duration::from_secs(1), statuses.make(&mirrors.exports, &key, &change)).await;
        assert!(made.is_err(), "no mirror shows it");
        assert_eq!((may(&other, "x"), may(&key, "y")), (true, false));
    }
}
