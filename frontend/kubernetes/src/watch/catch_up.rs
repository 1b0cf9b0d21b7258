//! Brings a mirror up to a moment (rule call-28).
//!
//! A mirror is as old as the last message of the API server. Whoever begins to lead must not decide by a state that the
//! leader before has left behind: what that one has created would look like something that nobody wants. So it asks the
//! API server once which versions there are, and waits until the mirror shows them.
//!
//! Knows: versions of objects. Must not know: who leads.

use super::{Key, Mirrored, Scope, Watch};
use crate::client::PAGE;
use crate::delivered::Delivered;
use kube::api::ListParams;
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::{Api, Client, Resource};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long to wait until those that are not shown yet are asked for again: they may be gone.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The version of an object as a number: versions of one object count up. Kubernetes guarantees it since 1.35, and etcd
/// does it anyway.
pub fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

impl<K: Mirrored> Watch<K> {
    /// Waits until the mirror shows this object as it was written, or later, or does not show it any more.
    pub async fn shows(&self, written: &K) {
        let key = Key::of(written);
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            let shown = self.get(&key);
            if shown.is_none_or(|shown| version(shown.meta()) >= version(written.meta())) {
                return;
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until the mirror shows each object of this scope as it was when this began, or as it was later.
    ///
    /// # Errors
    /// The API server does not say which objects there are.
    pub async fn catch_up(&self, client: &Client, scope: &Scope) -> kube::Result<()> {
        let mut behind = versions::<K>(client, scope).await?;
        let mut changes = self.changes();
        let mut again = Instant::now() + AGAIN_AFTER;
        loop {
            changes.mark_unchanged();
            behind.retain(|key, listed| self.version_of(key) < *listed);
            if behind.is_empty() {
                return Ok(());
            }
            if timeout_at(again, changes.changed()).await.is_err() {
                let there = versions::<K>(client, scope).await?;
                behind.retain(|key, _| there.contains_key(key));
                let (kind, first) = (&self.shared.label.kind, behind.keys().next().map(ToString::to_string));
                tracing::info!(%kind, behind = behind.len(), first, "waiting until the mirror shows what there is");
                again = Instant::now() + AGAIN_AFTER;
            }
        }
    }

    /// The version that was delivered last, also of an object that cannot be read: it is not waited for.
    fn version_of(&self, key: &Key) -> u64 {
        let unreadable = self.shared.unreadable.lock().version(key);
        let shown = self.kept(key).and_then(|kept| kept.metadata()).map_or(0, |metadata| version(&metadata));
        shown.max(unreadable.unwrap_or_default())
    }
}

/// The objects of this scope as they are at this moment.
async fn versions<K: Mirrored>(client: &Client, scope: &Scope) -> kube::Result<BTreeMap<Key, u64>> {
    let mut versions = BTreeMap::new();
    for part in scope.parts() {
        // kube asks for the metadata of this type, and for nothing else.
        let api: Api<Delivered<PartialObjectMeta<K>>> = match part {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let mut parameters = ListParams::default().limit(PAGE);
        loop {
            let page = api.list(&parameters).await?;
            versions.extend(page.items.iter().map(|object| (Key::of(object), version(object.meta()))));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => break,
            }
        }
    }
    Ok(versions)
}
