//! Deleting, and what the garbage collector does afterwards.

use crate::error::{conflict, not_found};
use crate::kind::Id;
use crate::state::{State, Stored};
use crate::write::set;
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::{Value, json};

/// The finalizer of an object that waits for its dependents.
const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents are to stay.
const ORPHAN: &str = "orphan";
/// Grace period of pods that name none, in seconds.
const GRACE: i64 = 30;

/// An owner reference, seen from the object that has it.
struct Owned {
    uid: Value,
    blocks: bool,
}

impl State {
    pub(crate) fn delete(&mut self, id: &Id, parameters: &DeleteParams) -> Result<(), kube::Error> {
        let Some(before) = self.objects.get(id).cloned() else { return Err(not_found(id)) };
        let metadata = &before.object["metadata"];
        if let Some(preconditions) = &parameters.preconditions {
            let is_it = |name: &str, expected: &Option<String>| {
                expected.as_ref().is_none_or(|expected| metadata[name].as_str() == Some(expected))
            };
            if !is_it("uid", &preconditions.uid) || !is_it("resourceVersion", &preconditions.resource_version) {
                return Err(conflict(id, "the precondition of the deletion does not hold"));
            }
        }
        let mut finalizers = finalizers(&before.object);
        match &parameters.propagation_policy {
            None => {}
            Some(policy) => {
                finalizers.retain(|finalizer| finalizer != FOREGROUND && finalizer != ORPHAN);
                match policy {
                    PropagationPolicy::Foreground => finalizers.push(FOREGROUND.to_owned()),
                    PropagationPolicy::Orphan => finalizers.push(ORPHAN.to_owned()),
                    PropagationPolicy::Background => {}
                }
            }
        }
        let grace = grace(id, &before.object, parameters);
        if finalizers.is_empty() && grace == 0 {
            if id.kind.is_pod() {
                let mut object = before.object.clone();
                object["metadata"]["deletionTimestamp"] = self.time(0);
                object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
                self.announce(id, Stored { object, owners: before.owners.clone() });
            }
            self.remove(id);
            return Ok(());
        }
        let mut object = before.object.clone();
        set_finalizers(&mut object, &finalizers);
        let former = metadata["deletionGracePeriodSeconds"].as_i64();
        if former.is_none_or(|former| grace < former) {
            let time = self.time(grace);
            let metadata = &mut object["metadata"];
            metadata["deletionTimestamp"] = time;
            metadata["deletionGracePeriodSeconds"] = json!(grace);
            if former.is_none() && id.kind.counts_generations() {
                metadata["generation"] = json!(metadata["generation"].as_i64().unwrap_or(0).saturating_add(1));
            }
        }
        let owners = before.owners.clone();
        self.commit(id, Some(&before), Stored { object, owners });
        Ok(())
    }

    /// One round of the garbage collector. Says whether it changed anything.
    pub(crate) fn collect_garbage(&mut self) -> bool {
        let version = self.version();
        let ids: Vec<Id> = self.objects.keys().cloned().collect();
        for id in ids {
            self.finish_deletion(&id);
            self.collect(&id);
        }
        version != self.version()
    }

    /// Goes on with a foreground or an orphaning deletion.
    fn finish_deletion(&mut self, id: &Id) {
        let Some(stored) = self.objects.get(id).cloned() else { return };
        if !is_deleting(&stored.object) {
            return;
        }
        let uid = stored.object["metadata"]["uid"].clone();
        let finalizers = finalizers(&stored.object);
        if finalizers.iter().any(|finalizer| finalizer == ORPHAN) {
            for dependent in self.dependents(&uid) {
                self.drop_references(&dependent, |owner| *owner == uid);
            }
            self.drop_finalizer(id, &stored, ORPHAN);
        } else if finalizers.iter().any(|finalizer| finalizer == FOREGROUND) && !self.is_blocked(&uid) {
            self.drop_finalizer(id, &stored, FOREGROUND);
        }
    }

    /// Deletes the object if none of its owners stays.
    fn collect(&mut self, id: &Id) {
        let Some(stored) = self.objects.get(id).cloned() else { return };
        let owned = owned(&stored.object);
        if owned.is_empty() || is_deleting(&stored.object) {
            return;
        }
        let (mut stays, mut waits) = (false, false);
        for Owned { uid, .. } in &owned {
            match self.objects.values().find(|owner| owner.object["metadata"]["uid"] == *uid) {
                None => {}
                Some(owner) if waits_for_dependents(&owner.object) => waits = true,
                Some(_) => stays = true,
            }
        }
        if stays {
            let gone: Vec<Value> = owned
                .into_iter()
                .map(|owned| owned.uid)
                .filter(|uid| {
                    let owner = self.objects.values().find(|owner| owner.object["metadata"]["uid"] == *uid);
                    owner.is_none_or(|owner| waits_for_dependents(&owner.object))
                })
                .collect();
            self.drop_references(id, |owner| gone.contains(owner));
            return;
        }
        let foreground = waits && self.is_blocked(&stored.object["metadata"]["uid"]);
        let parameters = if foreground { DeleteParams::foreground() } else { DeleteParams::background() };
        // It exists.
        let _ = self.delete(id, &parameters);
    }

    /// Whether a dependent keeps its owner.
    fn is_blocked(&self, owner: &Value) -> bool {
        let blocks = |stored: &Stored| owned(&stored.object).iter().any(|owned| owned.uid == *owner && owned.blocks);
        self.objects.values().any(blocks)
    }

    fn dependents(&self, owner: &Value) -> Vec<Id> {
        let is_owned = |stored: &Stored| owned(&stored.object).iter().any(|owned| owned.uid == *owner);
        self.objects.iter().filter(|(_, stored)| is_owned(stored)).map(|(id, _)| id.clone()).collect()
    }

    fn drop_references(&mut self, id: &Id, dropped: impl Fn(&Value) -> bool) {
        let Some(stored) = self.objects.get(id).cloned() else { return };
        let mut object = stored.object.clone();
        let kept: Vec<Value> = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let kept: Vec<Value> = kept.into_iter().filter(|reference| !dropped(&reference["uid"])).collect();
        set(&mut object["metadata"], "ownerReferences", if kept.is_empty() { Value::Null } else { json!(kept) });
        self.commit(id, Some(&stored), Stored { object, owners: stored.owners.clone() });
    }

    fn drop_finalizer(&mut self, id: &Id, stored: &Stored, dropped: &str) {
        let mut object = stored.object.clone();
        let kept: Vec<String> = finalizers(&object).into_iter().filter(|finalizer| finalizer != dropped).collect();
        set_finalizers(&mut object, &kept);
        self.commit(id, Some(stored), Stored { object, owners: stored.owners.clone() });
    }
}

/// How long the object may still run: a pod on a node, until its kubelet has ended it.
fn grace(id: &Id, object: &Value, parameters: &DeleteParams) -> i64 {
    let has_ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !id.kind.is_pod() || object["spec"]["nodeName"].is_null() || has_ended {
        return 0;
    }
    let asked = parameters.grace_period_seconds.map(i64::from);
    asked.or(object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(GRACE)
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn waits_for_dependents(object: &Value) -> bool {
    is_deleting(object) && finalizers(object).iter().any(|finalizer| finalizer == FOREGROUND)
}

fn finalizers(object: &Value) -> Vec<String> {
    let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    finalizers.filter_map(|finalizer| finalizer.as_str().map(str::to_owned)).collect()
}

fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    let value = if finalizers.is_empty() { Value::Null } else { json!(finalizers) };
    set(&mut object["metadata"], "finalizers", value);
}

fn owned(object: &Value) -> Vec<Owned> {
    let references = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    references
        .map(|reference| Owned {
            uid: reference["uid"].clone(),
            blocks: reference["blockOwnerDeletion"].as_bool().unwrap_or(false),
        })
        .collect()
}
