//! What is known of the objects of a job since they were compared with what was applied to them
//! ([`drift`](super::drift)). It is kept of each object of each job, so it is small.
//!
//! Knows: numbers that stand for objects and versions, and hashes. Must not know: what was compared.

/// What is known of the objects that there were when they were compared last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compared {
    /// In the order of the numbers.
    objects: Box<[KnownObject]>,
}

/// What is known of an object.
#[derive(Clone, Debug)]
pub(crate) struct KnownObject {
    /// Stands for the object ([`Shown::number`](super::mirrored::Shown::number)).
    number: u64,
    /// Stands for the version in which it agreed ([`Shown::fingerprint`](super::mirrored::Shown::fingerprint)). So an
    /// object is compared once for each of its versions.
    agreed: Option<u64>,
    applied: Option<AppliedHash>,
}

/// Hash of what was applied to an object. Annotations have it as text, which takes two and a half times as much memory.
type AppliedHash = [u8; 32];

impl KnownObject {
    /// `applied`: the hash of what was applied to it last, as this process has seen it or done it. What is no such hash
    /// is that of nothing that a generation wants.
    pub(super) fn new(number: u64, agreed: Option<u64>, applied: Option<&str>) -> Self {
        let applied = applied.and_then(|text| {
            let mut hash = AppliedHash::default();
            hex::decode_to_slice(text, &mut hash).ok().map(|()| hash)
        });
        Self { number, agreed, applied }
    }

    /// The object agreed, in this version.
    pub(crate) fn has_agreed(&self, fingerprint: u64) -> bool {
        self.agreed == Some(fingerprint)
    }

    /// Hash of what was applied to it last.
    pub(super) fn applied(&self) -> Option<String> {
        self.applied.map(hex::encode)
    }
}

impl Compared {
    /// Each object once, in any order.
    pub(super) fn of(mut objects: Vec<KnownObject>) -> Self {
        objects.sort_unstable_by_key(|object| object.number);
        Self { objects: objects.into_boxed_slice() }
    }

    /// What is known of the object with this number.
    pub(crate) fn get(&self, number: u64) -> Option<&KnownObject> {
        let found = self.objects.binary_search_by_key(&number, |object| object.number);
        found.ok().and_then(|index| self.objects.get(index))
    }

    /// Nothing is known of any object.
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Of how many objects something is known.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_by_its_number_with_the_hash_that_was_applied() {
        let hash = "0123456789abcdef".repeat(4);
        let known =
            [(7, Some(hash.as_str())), (u64::MAX, None), (0, Some("")), (3, Some("0123")), (5, Some("no hash"))];
        let objects = known.map(|(number, applied)| KnownObject::new(number, Some(number / 2), applied));
        let compared = Compared::of(objects.into());
        assert_eq!(compared.len(), known.len());
        for (number, applied) in known {
            let object = compared.get(number).unwrap();
            assert!(object.has_agreed(number / 2) && !object.has_agreed(number / 2 + 1), "{number}");
            assert_eq!(object.applied(), applied.filter(|text| text.len() == 64).map(str::to_owned), "{number}");
        }
        assert!(compared.get(4).is_none() && Compared::default().get(0).is_none());
    }
}
