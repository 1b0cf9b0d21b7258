//! What fills a mirror in place of a watch: as late as a test wants.

use crate::kind::Kind;
use crate::select;
use crate::server::{Server, delivered};
use crate::state::LogEntry;
use serde_json::Value;
use std::collections::BTreeSet;
use streams_kubernetes::Key;
use streams_kubernetes::delivered::Delivered;
use streams_kubernetes::watch::{Mirrored, Trim, Watch};

/// The connection between a server and a mirror: knows up to where the mirror has heard of changes.
pub struct Mirror<K: Mirrored> {
    server: Server,
    watch: Watch<K>,
    trim: Trim<K>,
    /// Selects by labels; an object that is not selected (any more) is not there.
    selector: Option<String>,
    delivered: usize,
}

impl<K: Mirrored> Mirror<K> {
    /// Fills the mirror with the objects that there are now; what happens from now on waits for [`Mirror::deliver`].
    /// `trim` leaves of an object what is kept of it (one of [`trimmed`](streams_kubernetes::watch::trimmed)).
    pub fn new(server: &Server, watch: &Watch<K>, trim: Trim<K>) -> Self {
        Self::selecting(server, watch, trim, None)
    }

    /// The same of the objects that a label selector selects.
    pub fn selecting(server: &Server, watch: &Watch<K>, trim: Trim<K>, selector: Option<&str>) -> Self {
        let selector = selector.map(str::to_owned);
        let (server, watch) = (server.clone(), watch.clone());
        let mut mirror = Self { server, watch, trim, selector, delivered: 0 };
        mirror.fill();
        mirror
    }

    /// The connection was lost: the mirror gets a list in place of the changes that it missed.
    pub fn fill(&mut self) {
        let kind = Kind::of::<K>();
        let objects: Vec<Value> = {
            let state = self.server.state();
            self.delivered = state.changes(&kind).len();
            let of_kind = state.objects.iter().filter(|(id, _)| id.kind == kind);
            of_kind.map(|(_, stored)| stored.object.clone()).filter(|object| self.selects(object)).collect()
        };
        let objects: Vec<Delivered<K>> = objects.into_iter().map(delivered).collect();
        let listed: BTreeSet<Key> = objects.iter().map(Key::of).collect();
        for gone in self.watch.keys().into_iter().filter(|key| !listed.contains(key)) {
            self.watch.remove(&gone);
        }
        for object in objects {
            self.watch.deliver(object, self.trim);
        }
        self.watch.has_everything();
    }

    /// Changes that the mirror has not heard of.
    pub fn waiting(&self) -> usize {
        self.server.state().changes(&Kind::of::<K>()).len() - self.delivered
    }

    /// Tells the mirror of the next changes, at most so many. Says how many there were.
    pub fn deliver(&mut self, most: usize) -> usize {
        let kind = Kind::of::<K>();
        let changes: Vec<LogEntry> =
            self.server.state().changes(&kind).iter().skip(self.delivered).take(most).cloned().collect();
        self.delivered += changes.len();
        let count = changes.len();
        for change in changes {
            match change {
                LogEntry::Written(object) if self.selects(&object) => self.watch.deliver(delivered(object), self.trim),
                LogEntry::Written(object) | LogEntry::Removed(object) => {
                    self.watch.remove(&Key::of(&delivered::<K>(object)));
                }
            }
        }
        count
    }

    fn selects(&self, object: &Value) -> bool {
        self.selector.as_ref().is_none_or(|selector| select::by_labels(selector, object))
    }
}
