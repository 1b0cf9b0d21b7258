//! How much may go on at the same time: in all, of one namespace, and of one job, so that no neighbour takes all of it.
//!
//! Invariant: a [`Place`] is counted as long as it lives.

use std::sync::Arc;
use streams_kubernetes::Key;
use streams_places as places;

/// Counts what goes on, by namespace and job. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Places(places::Places<Arc<str>, Key>);

/// The place of something that goes on.
pub(crate) type Place = places::Place<Arc<str>, Key>;

/// Why there is no place, as `status` says it: so much goes on already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// How much.
    pub(crate) most: usize,
    /// Of what, as `in all` or `of job flow`.
    pub(crate) of: String,
}

impl Full {
    /// So much goes on `of_one`, or in or beside this namespace.
    pub(crate) fn new(full: places::Full, namespace: &str, of_one: impl FnOnce() -> String) -> Self {
        match full {
            places::Full::InAll(most) => Self { most, of: "in all".to_owned() },
            places::Full::OfGroup(most) => Self { most, of: format!("of namespace {namespace}") },
            places::Full::OfOne(most) => Self { most, of: of_one() },
        }
    }
}

impl Places {
    /// Places for so much in all, and for so much of one job, or of what is of no single job of a namespace. A
    /// namespace has a quarter of all at most.
    pub(crate) fn new(most: usize, most_of_one: usize) -> Self {
        Self(places::Places::new(most, most_of_one))
    }

    /// A place for something of this job, or of the whole namespace.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn take(&self, namespace: &str, job: Option<&str>) -> Result<Place, Full> {
        let one = Key::new(namespace, job.unwrap_or_default());
        let of_one = || job.map_or_else(|| format!("of namespace {namespace}"), |job| format!("of job {job}"));
        self.0.take(&one.namespace, &one).map_err(|full| Full::new(full, namespace, of_one))
    }
}

#[cfg(test)]
impl Places {
    /// How much goes on.
    pub(crate) fn taken(&self) -> usize {
        self.0.taken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_of_one_job_of_one_namespace_and_in_all() {
        let places = Places::new(16, 2);
        let full = |most, of: &str| Some(Full { most, of: of.to_owned() });
        let mut of_a: Vec<Place> = (0..2).map(|_| places.take("n", Some("a")).ok().unwrap()).collect();
        assert_eq!(places.take("n", Some("a")).err(), full(2, "of job a"));
        let of_all: Vec<Place> = (0..2).map(|_| places.take("n", None).ok().unwrap()).collect();
        assert_eq!(places.take("n", None).err(), full(2, "of namespace n"));
        assert_eq!(places.take("n", Some("b")).err(), full(4, "of namespace n"), "a quarter of all");
        of_a.pop();
        of_a.push(places.take("n", Some("b")).ok().unwrap());
        let of_others = |number| places.take(&format!("m{number}"), None).ok();
        let others: Vec<Place> = (0..).map_while(of_others).collect();
        assert_eq!(others.len(), 12);
        assert_eq!(places.take("x", Some("d")).err(), full(16, "in all"));
        drop((of_a, of_all, others));
        assert!(places.take("x", Some("d")).is_ok());
    }
}
