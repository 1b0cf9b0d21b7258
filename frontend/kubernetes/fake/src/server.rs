//! The server, as a test sees it: what it has, and what others than the process under test do to it.
//!
//! Knows: what there is, who inspects or refuses a call. Must not know: controllers.

use crate::fields::{Owners, normal};
use crate::kind::{Id, Kind};
use crate::state::{State, Stored, UndeclaredField};
use crate::write::UNNAMED;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::DeleteParams;
use kube::core::Status;
use parking_lot::{Mutex, MutexGuard};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use streams_kubernetes::Key;
use streams_kubernetes::cluster::Object;
use streams_kubernetes::delivered::Delivered;
use streams_kubernetes::events::Notice;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads an object, or its metadata.
    Get,
    /// Reads all objects that are selected.
    List,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Replace,
    /// Replaces a status.
    ReplaceStatus,
    /// Applies an object.
    Apply,
    /// Patches an object.
    Merge,
    /// Deletes an object.
    Delete,
}

impl Verb {
    /// Whether it changes something.
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List)
    }
}

/// A call that reaches the server.
#[derive(Clone, Debug)]
pub struct Call {
    /// What it does.
    pub verb: Verb,
    /// The kind of the object.
    pub kind: String,
    /// Namespace and name of the object; for a list without the name.
    pub key: Key,
    /// The field manager, if it writes.
    pub manager: String,
    /// What it carries: the object, the patch, or the parameters of the deletion.
    pub body: Option<Value>,
}

impl Call {
    /// The object that it carries, if it is one of this kind.
    pub fn object<K: Object>(&self) -> Option<K> {
        (K::kind(&()) == self.kind.as_str()).then(|| serde_json::from_value(self.body.clone()?).ok()).flatten()
    }
}

impl Call {
    /// The uid that the object must have, if it deletes one.
    pub fn uid(&self) -> Option<&str> {
        self.body.as_ref().filter(|_| self.verb == Verb::Delete)?["preconditions"]["uid"].as_str()
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {}", self.verb, self.kind, self.key)
    }
}

/// Something that people were told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The kind of the object that it is about.
    pub kind: String,
    /// Its namespace and name.
    pub about: Key,
    /// What was said.
    pub notice: Notice,
}

type Inspector = Arc<dyn Fn(&Call) + Send + Sync>;
type Refusal = Arc<dyn Fn(&Call) -> Option<Status> + Send + Sync>;

/// An API server. Cheap to clone; all clones are the same server.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    announced: Mutex<Vec<Announced>>,
    inspector: Mutex<Option<Inspector>>,
    refusal: Mutex<Option<Refusal>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("version", &self.version()).finish_non_exhaustive()
    }
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// A server without objects, at a time in 2023.
    pub fn new() -> Self {
        let start = Timestamp::from_second(1_700_000_000).unwrap_or(Timestamp::UNIX_EPOCH);
        Self::of(State::new(start))
    }

    fn of(state: State) -> Self {
        let shared = Shared {
            state: Mutex::new(state),
            announced: Mutex::default(),
            inspector: Mutex::default(),
            refusal: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A server with the same objects at the same time, which goes its own way from now on. It knows nothing of what
    /// has happened, and nobody looks at its calls.
    pub fn fork(&self) -> Self {
        Self::of(self.state().without_history())
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.state().now
    }

    /// Lets time pass.
    pub fn advance(&self, duration: Duration) {
        let mut state = self.state();
        let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
        state.now = state.now.checked_add(duration).unwrap_or(Timestamp::MAX);
    }

    /// The version of the last change: as long as it is the same, nothing has changed.
    pub fn version(&self) -> u64 {
        self.state().version()
    }

    /// The object of this name.
    pub fn get<K: Object>(&self, key: &Key) -> Option<K> {
        let object = self.state().objects.get(&id::<K>(key)).map(|stored| stored.object.clone())?;
        delivered(object).0.ok()
    }

    /// All objects of a kind, by namespace and name.
    pub fn list<K: Object>(&self) -> Vec<K> {
        let kind = Kind::of::<K>();
        let state = self.state();
        let objects = state.objects.iter().filter(|(id, _)| id.kind == kind);
        objects.filter_map(|(_, stored)| delivered(stored.object.clone()).0.ok()).collect()
    }

    /// Somebody creates this object. Unlike a call, it sets the status as well.
    ///
    /// # Panics
    /// There is one of this name.
    #[allow(clippy::panic, reason = "a mistake of the test")]
    pub fn create<K: Object>(&self, object: &K) -> K {
        let id = id::<K>(&Key::of(object));
        let wanted = value(object);
        let mut state = self.state();
        if let Err(error) = state.create(&id, UNNAMED, wanted.clone()) {
            panic!("{error}");
        }
        let status = wanted["status"].clone();
        let written =
            if status.is_null() { None } else { self.overwrite(&mut state, &id, |object| object["status"] = status) };
        let written = written.or_else(|| state.objects.get(&id).map(|stored| stored.object.clone()));
        drop(state);
        typed(written.unwrap_or_default())
    }

    /// Somebody changes an object, its status included, whatever version it has. Says whether that changed anything.
    pub fn edit<K: Object>(&self, key: &Key, edit: impl FnOnce(&mut K)) -> bool {
        let id = id::<K>(key);
        let mut state = self.state();
        let version = state.version();
        self.overwrite(&mut state, &id, |object| {
            let mut edited: K = typed(object.clone());
            edit(&mut edited);
            *object = normal(&id.kind, value(&edited));
        });
        state.version() != version
    }

    /// The same of an object as JSON: what becomes of it may be something that cannot be read.
    pub fn edit_json<K: Object>(&self, key: &Key, edit: impl FnOnce(&mut Value)) {
        self.overwrite(&mut self.state(), &id::<K>(key), edit);
    }

    fn overwrite(&self, state: &mut State, id: &Id, edit: impl FnOnce(&mut Value)) -> Option<Value> {
        let before = state.objects.get(id).cloned()?;
        let mut object = before.object.clone();
        edit(&mut object);
        let mut owners: Owners = before.owners.clone();
        let writer = crate::write::updates(UNNAMED, false);
        owners.change(writer, &id.kind, &before.object, &object);
        Some(state.commit(id, Some(&before), Stored { object, owners }))
    }

    /// Somebody deletes an object. Says whether it was there.
    pub fn delete<K: Object>(&self, key: &Key, parameters: &DeleteParams) -> bool {
        self.state().delete(&id::<K>(key), parameters).is_ok()
    }

    /// The object is gone at once, whatever it waits for: by force, or because its kubelet has ended it.
    pub fn remove<K: Object>(&self, key: &Key) {
        self.state().remove(&id::<K>(key));
    }

    /// One round of the garbage collector. Says whether it changed anything.
    pub fn collect_garbage(&self) -> bool {
        self.state().collect_garbage()
    }

    /// Calls `inspect` for every call before it has its effect. It may look at the server, and panic.
    pub fn inspect(&self, inspect: impl Fn(&Call) + Send + Sync + 'static) {
        *self.shared.inspector.lock() = Some(Arc::new(inspect));
    }

    /// Refuses the calls for which `refusal` gives an answer.
    pub fn refuse(&self, refusal: impl Fn(&Call) -> Option<Status> + Send + Sync + 'static) {
        *self.shared.refusal.lock() = Some(Arc::new(refusal));
    }

    /// The definition of this kind is one of an earlier version, which does not declare this field. Whether a field is
    /// declared is asked at every write: an apply that sets it is refused, if `refuses`; every other write loses it.
    pub fn does_not_declare<K: Object>(&self, path: &[&str], refuses: bool) {
        let path = path.iter().map(|name| (*name).to_owned()).collect();
        self.state().undeclared.entry(Kind::of::<K>()).or_default().push(UndeclaredField { path, refuses });
    }

    /// The definitions are those of this version again.
    pub fn declares_everything(&self) {
        self.state().undeclared.clear();
    }

    /// Takes what people were told since the last time.
    pub fn announced(&self) -> Vec<Announced> {
        std::mem::take(&mut *self.shared.announced.lock())
    }

    pub(crate) fn announce(&self, announced: Announced) {
        self.shared.announced.lock().push(announced);
    }

    /// The call arrives: it is looked at, and perhaps refused.
    pub(crate) fn admit(&self, call: &Call) -> Result<(), kube::Error> {
        let refusal = self.shared.refusal.lock().clone();
        if let Some(status) = refusal.and_then(|refusal| refusal(call)) {
            return Err(kube::Error::Api(status.boxed()));
        }
        let inspector = self.shared.inspector.lock().clone();
        if let Some(inspect) = inspector {
            inspect(call);
        }
        Ok(())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }
}

pub(crate) fn id<K: Object>(key: &Key) -> Id {
    Id { kind: Kind::of::<K>(), key: key.clone() }
}

pub(crate) fn value<K: Object>(object: &K) -> Value {
    #[allow(clippy::expect_used, reason = "types of Kubernetes are JSON")]
    serde_json::to_value(object).expect("an object is JSON")
}

/// An object as the API server delivers it: perhaps it cannot be read.
#[allow(clippy::panic, reason = "whatever JSON it is, it is delivered")]
pub(crate) fn delivered<K: DeserializeOwned>(object: Value) -> Delivered<K> {
    match K::deserialize(&object) {
        Ok(object) => Delivered(Ok(object)),
        Err(_) => serde_json::from_value(object).unwrap_or_else(|error| panic!("{error}")),
    }
}

#[allow(clippy::panic, reason = "a mistake of the test: it wrote an object that its own type does not read")]
fn typed<K: Object>(object: Value) -> K {
    serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"))
}
