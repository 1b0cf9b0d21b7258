//! Fields that the API server does not keep, because it has custom resource definitions of an earlier version (rule
//! call-30). Pure.
//!
//! No permission is needed to see that: the API server refuses to apply such a field, or its answer lacks it.
//!
//! Invariant: there is at most one entry for each field of a definition.

use super::pause::Pause;
use crate::controllers::job::child::Child;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use streams_api::{ConsistentRegion, Export, HostPool, Import, ParallelRegion, ProcessingElement};
use streams_kubernetes::Error;
use streams_kubernetes::error::definition;

/// How long a field counts as refused or dropped after it was seen to be. Longer than any pause between two tries.
const COUNTS: SignedDuration = SignedDuration::from_mins(30);

/// A field of a definition that the API server does not keep.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UndeclaredField {
    /// Name of the definition.
    pub(crate) definition: String,
    /// The field.
    pub(crate) field: String,
}

/// An object that could not be applied because of a field.
#[derive(Clone, Debug)]
struct RefusedApply {
    kind: String,
    name: String,
    field: String,
    child: Child,
    pause: Pause,
    /// Until when it counts.
    until: Timestamp,
}

/// What was seen of the definitions while objects of a job were written.
#[derive(Debug, Default)]
pub(crate) struct OutdatedDefinitions {
    /// By definition: what could not be applied last.
    refused: BTreeMap<String, RefusedApply>,
    /// Fields that were dropped, the object that it was seen of last, and until when that counts.
    dropped: BTreeMap<UndeclaredField, (Child, Timestamp)>,
}

impl OutdatedDefinitions {
    /// An apply of this object failed; remembered, if because of a field that is not declared.
    pub(crate) fn failed(&mut self, error: &Error, child: Child, now: Timestamp) {
        let Error::Undeclared { kind, name, definition, field } = error else { return };
        let before = self.refused.get(definition).map(|refused| refused.pause);
        if before.is_some_and(|pause| pause.left(now).is_some()) {
            // Those that were on their way together are one refusal.
            return;
        }
        let (kind, name, field) = (kind.clone(), name.clone(), field.clone());
        let until = now.checked_add(COUNTS).unwrap_or(Timestamp::MAX);
        let refused = RefusedApply { kind, name, field, child, pause: Pause::after(before, now), until };
        self.refused.insert(definition.clone(), refused);
    }

    /// The object was written without this field.
    pub(crate) fn dropped(&mut self, undeclared: UndeclaredField, child: Child, now: Timestamp) {
        self.refused.remove(&undeclared.definition);
        let until = now.checked_add(COUNTS).unwrap_or(Timestamp::MAX);
        self.dropped.insert(undeclared, (child, until));
    }

    /// The object was written with all of its fields. Others may have fields that this one has not.
    pub(crate) fn kept(&mut self, child: Child) {
        self.refused.retain(|_, refused| refused.child != child);
        self.dropped.retain(|_, (of, _)| *of != child);
    }

    /// Objects like this one are not applied now, because of what became of the last one.
    pub(crate) fn pauses(&self, child: Child, now: Timestamp) -> Option<Error> {
        let definition = definition_of(child)?;
        let RefusedApply { kind, name, field, pause, .. } = self.refused.get(&definition)?.clone();
        pause.left(now).is_some().then_some(Error::Undeclared { kind, name, definition, field })
    }

    /// All fields that the API server does not keep.
    pub(crate) fn fields(&mut self, now: Timestamp) -> BTreeSet<UndeclaredField> {
        self.dropped.retain(|_, (_, until)| now < *until);
        self.refused.retain(|_, refused| now < refused.until);
        let refused = self.refused.iter().map(|(definition, refused)| {
            let (definition, field) = (definition.clone(), refused.field.clone());
            UndeclaredField { definition, field }
        });
        refused.chain(self.dropped.keys().cloned()).collect()
    }
}

/// Name of the definition of the kind of this object; `None` if it is one of Kubernetes itself.
fn definition_of(child: Child) -> Option<String> {
    match child {
        Child::ProcessingElement(_) => Some(definition::<ProcessingElement>()),
        Child::Region(_) => Some(definition::<ParallelRegion>()),
        Child::HostPool(_) => Some(definition::<HostPool>()),
        Child::Export(_) => Some(definition::<Export>()),
        Child::Import(_) => Some(definition::<Import>()),
        Child::ConsistentRegion(_) => Some(definition::<ConsistentRegion>()),
        Child::Service(_) | Child::JobConfigMap | Child::ConsistentRegionService | Child::TransportSecret => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn undeclared(field: &str) -> UndeclaredField {
        UndeclaredField { definition: definition::<ProcessingElement>(), field: field.to_owned() }
    }

    #[test]
    fn after_a_refusal_no_object_of_the_kind_is_applied_for_longer_and_longer() {
        let mut outdated = OutdatedDefinitions::default();
        let UndeclaredField { definition, field } = undeclared("spec.a");
        let refusal = Error::Undeclared { kind: "K".to_owned(), name: "a".to_owned(), definition, field };
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            // As many as are on their way at the same time.
            for _ in 0..16 {
                outdated.failed(&refusal, Child::ProcessingElement(3), at(now));
            }
            let length = (1..).find(|second| outdated.pauses(Child::ProcessingElement(7), at(now + second)).is_none());
            pauses.extend(length);
            assert!(
                outdated.pauses(Child::Service(7), at(now)).is_none()
                    && outdated.pauses(Child::Region(7), at(now)).is_none()
            );
            now += length.unwrap();
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(outdated.fields(at(now)), BTreeSet::from([undeclared("spec.a")]));
        // One that may not have the field.
        outdated.kept(Child::ProcessingElement(4));
        assert_eq!(outdated.fields(at(now)), BTreeSet::from([undeclared("spec.a")]));
        outdated.kept(Child::ProcessingElement(3));
        assert!(outdated.fields(at(now)).is_empty());
    }

    #[test]
    fn a_refusal_of_an_object_that_is_written_no_more_counts_for_a_while() {
        let mut outdated = OutdatedDefinitions::default();
        let UndeclaredField { definition, field } = undeclared("spec.a");
        let refusal = Error::Undeclared { kind: "K".to_owned(), name: "a".to_owned(), definition, field };
        outdated.failed(&refusal, Child::ProcessingElement(3), at(0));
        for (second, expected) in [(1799, 1), (1800, 0)] {
            assert_eq!(outdated.fields(at(second)).len(), expected, "{second}");
        }
    }

    #[test]
    fn a_field_counts_as_dropped_until_the_object_is_written_with_it_or_for_a_while() {
        let mut outdated = OutdatedDefinitions::default();
        outdated.dropped(undeclared("spec.a"), Child::ProcessingElement(1), at(0));
        outdated.dropped(undeclared("spec.b"), Child::ProcessingElement(2), at(60));
        outdated.kept(Child::ProcessingElement(3));
        assert!(outdated.pauses(Child::ProcessingElement(1), at(61)).is_none(), "others are applied");
        assert_eq!(outdated.fields(at(61)), BTreeSet::from([undeclared("spec.a"), undeclared("spec.b")]));
        outdated.kept(Child::ProcessingElement(1));
        assert_eq!(outdated.fields(at(1859)), BTreeSet::from([undeclared("spec.b")]));
        assert!(outdated.fields(at(1860)).is_empty());
    }
}
