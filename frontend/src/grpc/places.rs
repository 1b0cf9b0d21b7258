//! How much may go on at the same time: in all, and of one job or namespace, so that no neighbour takes all of it.
//!
//! Invariant: a [`Place`] is counted as long as it lives.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use streams_kubernetes::Key;

/// Counts what goes on. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Places {
    most: usize,
    most_of_one: usize,
    taken: Arc<Mutex<HashMap<Key, usize>>>,
}

/// The place of something that goes on.
pub(crate) struct Place {
    places: Places,
    of: Key,
}

/// Why there is no place, as `status` says it: so much goes on already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// How much.
    pub(crate) most: usize,
    /// Of what, as `in all` or `of job flow`.
    pub(crate) of: String,
}

impl Places {
    /// Places for so much in all, and for so much of one job, or of one namespace as a whole.
    pub(crate) fn new(most: usize, most_of_one: usize) -> Self {
        Self { most, most_of_one, taken: Arc::default() }
    }

    /// A place for something of this job, or of the whole namespace.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn take(&self, namespace: &str, job: Option<&str>) -> Result<Place, Full> {
        let of = Key::new(namespace, job.unwrap_or_default());
        let mut taken = self.taken();
        if taken.values().sum::<usize>() >= self.most {
            return Err(Full { most: self.most, of: "in all".to_owned() });
        }
        if taken.get(&of).is_some_and(|count| *count >= self.most_of_one) {
            let of = job.map_or_else(|| format!("of namespace {namespace}"), |job| format!("of job {job}"));
            return Err(Full { most: self.most_of_one, of });
        }
        *taken.entry(of.clone()).or_default() += 1;
        drop(taken);
        Ok(Place { places: self.clone(), of })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Key, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(count) = taken.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_of_one_job_and_in_all_and_whoever_leaves_makes_room() {
        let places = Places::new(7, 2);
        let mut of_job: Vec<Place> = (0..2).map(|_| places.take("n", Some("a")).ok().unwrap()).collect();
        let full = |most, of: &str| Some(Full { most, of: of.to_owned() });
        assert_eq!(places.take("n", Some("a")).err(), full(2, "of job a"));
        let of_namespace: Vec<Place> = (0..2).map(|_| places.take("n", None).ok().unwrap()).collect();
        assert_eq!(places.take("n", None).err(), full(2, "of namespace n"));
        of_job.pop();
        of_job.push(places.take("n", Some("a")).ok().unwrap());
        let others: Vec<Place> = ["b", "b", "c"].map(|job| places.take("n", Some(job)).ok().unwrap()).into();
        assert_eq!(places.take("m", Some("d")).err(), full(7, "in all"));
        drop((of_job, of_namespace, others));
        assert!(places.taken().is_empty(), "nothing is kept of those that left");
        assert!(places.take("m", Some("d")).is_ok());
    }
}
