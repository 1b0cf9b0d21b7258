//! Brings a mirror up to a moment (rule call-28).
//!
//! A mirror is as old as the last message of the API server. Whoever begins to lead must not decide by a state that the
//! leader before has left behind: what that one has created would look like something that nobody wants. So it asks the
//! API server once which versions there are, and waits until the mirror shows them. A namespace of which the mirror is
//! refused is left out: by what the mirror has of it nobody decides, and what comes later is listed anew.
//!
//! Knows: versions of objects. Must not know: who leads.

use super::{Key, Mirrored, Scope, Watch};
use crate::client::PAGE;
use crate::delivered::Delivered;
use crate::error::is_without_right;
use kube::api::ListParams;
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::{Api, Client, Resource};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long to wait until those that are not shown yet are asked for again: they may be gone.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long a namespace is waited for that may not be listed, while the mirror is not refused: a watch that has begun
/// before goes on for half a minute. Whoever gave the right to watch alone must not keep others waiting.
const UNLISTED_FOR: Duration = Duration::from_secs(60);

/// What there is at a moment.
#[derive(Default)]
struct Versions {
    there: BTreeMap<Key, u64>,
    /// Namespaces that may not be listed.
    unlisted: BTreeSet<String>,
}

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
        let Versions { there: mut behind, mut unlisted } = self.versions(client, scope).await?;
        let mut changes = self.changes();
        let begun = Instant::now();
        let mut again = begun + AGAIN_AFTER;
        loop {
            changes.mark_unchanged();
            behind.retain(|key, listed| self.version_of(key) < *listed);
            if begun.elapsed() >= UNLISTED_FOR
                && let Some(first) = unlisted.first()
            {
                let kind = &self.shared.label.kind;
                tracing::warn!(%kind, namespace = %first, "a namespace cannot be listed: its mirror is not compared");
                behind.retain(|key, _| !unlisted.contains(&*key.namespace));
                unlisted.clear();
            }
            if behind.is_empty() && unlisted.is_empty() {
                return Ok(());
            }
            if timeout_at(again, changes.changed()).await.is_err() {
                let Versions { there, unlisted: still } = self.versions(client, scope).await?;
                behind.retain(|key, _| there.contains_key(key) || still.contains(&*key.namespace));
                behind.extend(there.into_iter().filter(|(key, _)| unlisted.contains(&*key.namespace)));
                unlisted = still;
                let (kind, first) = (&self.shared.label.kind, behind.keys().next().map(ToString::to_string));
                tracing::info!(%kind, behind = behind.len(), first, "waiting until the mirror shows what there is");
                again = Instant::now() + AGAIN_AFTER;
            }
        }
    }

    /// The version that was delivered last, also of an object that cannot be read: it is not waited for.
    pub(super) fn version_of(&self, key: &Key) -> u64 {
        let unreadable = self.shared.unreadable.lock().version(key);
        self.shown_version(key).max(unreadable.unwrap_or_default())
    }

    /// The version that the mirror shows; 0 if it shows none.
    pub(super) fn shown_version(&self, key: &Key) -> u64 {
        self.kept(key).and_then(|kept| kept.metadata()).map_or(0, |metadata| version(&metadata))
    }

    /// The objects of this scope as they are at this moment, but for namespaces of which the mirror is refused.
    async fn versions(&self, client: &Client, scope: &Scope) -> kube::Result<Versions> {
        let mut versions = Versions::default();
        for part in scope.parts() {
            if part.is_some_and(|namespace| self.is_refused(namespace)) {
                continue;
            }
            // kube asks for the metadata of this type, and for nothing else.
            let api: Api<Delivered<PartialObjectMeta<K>>> = match part {
                Some(namespace) => Api::namespaced(client.clone(), namespace),
                None => Api::all(client.clone()),
            };
            let mut parameters = ListParams::default().limit(PAGE);
            loop {
                let page = match (api.list(&parameters).await, part) {
                    (Ok(page), _) => page,
                    (Err(error), Some(namespace)) if is_without_right(&error) => {
                        versions.unlisted.insert(namespace.to_owned());
                        break;
                    }
                    (Err(error), _) => return Err(error),
                };
                versions.there.extend(page.items.iter().map(|object| (Key::of(object), version(object.meta()))));
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => parameters = parameters.continue_token(&token),
                    None => break,
                }
            }
        }
        Ok(versions)
    }
}
