//! How many streams there may be: in all, and of one job or namespace (rule elasticity-23).
//!
//! Invariant: a [`Place`] is counted as long as it lives.

use super::errors;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use streams_kubernetes::Key;
use tonic::Status;

/// Streams at the same time, in all.
const MOST: usize = 1024;
/// Of one job, or of one namespace as a whole.
const MOST_OF_ONE: usize = 64;

/// Counts streams. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(super) struct Places {
    taken: Arc<Mutex<HashMap<Key, usize>>>,
}

/// The place of a stream.
pub(super) struct Place {
    places: Places,
    of: Key,
}

impl Places {
    /// A place for a stream over this job, or over the whole namespace.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn take(&self, namespace: &str, job: Option<&str>) -> Result<Place, Status> {
        let of = Key::new(namespace, job.unwrap_or_default());
        let mut taken = self.taken();
        if taken.values().sum::<usize>() >= MOST {
            return Err(errors::too_many_watching(MOST, "in all"));
        }
        let of_one = taken.entry(of.clone()).or_default();
        if *of_one >= MOST_OF_ONE {
            let what = job.map_or_else(|| format!("namespace {namespace}"), |job| format!("job {job}"));
            return Err(errors::too_many_watching(MOST_OF_ONE, &format!("of {what}")));
        }
        *of_one += 1;
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
    use tonic_types::StatusExt as _;

    #[test]
    fn there_are_so_many_streams_of_one_job_and_in_all_and_whoever_leaves_makes_room() {
        let places = Places::default();
        let mut of_job: Vec<Place> = (0..MOST_OF_ONE).map(|_| places.take("n", Some("a")).unwrap()).collect();
        let refused = places.take("n", Some("a")).err().unwrap();
        let details = refused.get_error_details();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert_eq!(details.error_info().unwrap().reason, "TOO_MANY_WATCHING");
        assert!(details.retry_info().is_some() && refused.message().contains("of job a"), "{refused:?}");
        let of_namespace = places.take("n", None).unwrap();
        of_job.pop();
        of_job.push(places.take("n", Some("a")).unwrap());
        let others: Vec<Place> = (0..MOST - MOST_OF_ONE - 1)
            .map(|number| places.take("n", Some(&format!("b{}", number / MOST_OF_ONE))).unwrap())
            .collect();
        assert!(places.take("m", Some("c")).err().unwrap().message().contains("in all"));
        drop((of_job, of_namespace, others));
        assert!(places.taken().is_empty(), "nothing is kept of those that left");
        assert!(places.take("m", Some("c")).is_ok());
    }
}
