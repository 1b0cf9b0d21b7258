//! Objects that were restored not long ago, as somebody else had changed them (rule call-19).

use super::Entry;
use crate::controllers::job::child::Child;
use crate::controllers::job::observed::{Contention, ObservedDrift, ObservedObject};
use crate::controllers::job::owned::Owned;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use streams_kubernetes::Key;

impl Entry {
    /// Objects that others change as often as they are restored.
    pub(crate) fn contended(&self, job: &Key) -> Vec<Contention> {
        let by_others = self.restorations.iter().filter(|(_, restorations)| !restorations.in_vain);
        let contended = by_others.filter_map(|(owned, restorations)| {
            let until = restorations.contended_until()?;
            let object = owned.of_job(&job.name).to_string();
            Some(Contention { object, field: restorations.field.clone(), until })
        });
        contended.collect()
    }

    /// Somebody else had changed this field of the object; it was restored.
    pub(crate) fn restored(&mut self, job: &Key, owned: Owned, field: &str, now: Timestamp) {
        tracing::info!(%job, object = %owned.of_job(&job.name), field, "somebody had changed it; restored");
        self.restorations.entry(owned).or_default().note(field, now);
    }

    /// Objects whose labels others take as often as they are restored. If the mirror does not show one, that is why: it
    /// is as it was restored last, but for the label.
    pub(crate) fn out_of_sight(&mut self) -> Vec<(Child, ObservedObject)> {
        let Self { restorations, relabelled, .. } = self;
        relabelled.retain(|child, _| restorations.contains_key(&Owned::Child(*child)));
        let contended = relabelled.iter().filter_map(|(child, applied)| {
            let restorations = restorations.get(&Owned::Child(*child))?;
            let not_before = Some(restorations.not_before()?);
            let drift = Some(ObservedDrift { field: restorations.field.clone(), not_before, of_content: false });
            Some((*child, ObservedObject { applied: applied.clone(), drift, ..ObservedObject::default() }))
        });
        contended.collect()
    }

    /// ConfigMaps with texts and chunks that are not restored yet because they were restored too often, each with the
    /// time before which it is not.
    pub(crate) fn held_back(&self, now: Timestamp) -> BTreeMap<String, Timestamp> {
        let held_back = self.restorations.iter().filter_map(|(owned, restorations)| match owned {
            Owned::ConfigMap(name) => Some((name.clone(), restorations.not_before().filter(|at| now < *at)?)),
            Owned::Child(_) => None,
        });
        held_back.collect()
    }

    /// Whether the ConfigMap of this name is one of these.
    pub(crate) fn is_held_back(&self, name: &str, now: Timestamp) -> bool {
        let restorations = self.restorations.get(&Owned::ConfigMap(name.to_owned()));
        restorations.and_then(|restorations| restorations.not_before()).is_some_and(|at| now < at)
    }
}
