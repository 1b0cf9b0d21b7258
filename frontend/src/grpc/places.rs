//! How much may go on at the same time: in all, of one namespace, of one job, and for one caller of it, so that no
//! neighbour takes all of it.
//!
//! Callers choose which namespace they ask about. All namespaces that have nothing are one: made-up names take no
//! places of others.
//!
//! Callers are told apart only if they have said who they are (rule elasticity-29): through a proxy many come from one
//! address.
//!
//! Invariant: a [`Place`] is counted as long as it lives.

use std::sync::Arc;
use streams_kubernetes::Key;
use streams_places as places;

/// Stands for all namespaces that have nothing; no namespace may be called like this.
pub(crate) const NOTHING: &str = "*";

/// The name that a caller has shown to be its own.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct CallerName(pub(crate) Arc<str>);

/// Who takes turns with others of a namespace: a caller that is known, or all that are not.
pub(crate) fn turns_of(caller: Option<&CallerName>) -> Arc<str> {
    caller.map(|CallerName(name)| Arc::clone(name)).unwrap_or_default()
}

/// Counts what goes on, by namespace, job and caller. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Places(places::Places<Arc<str>, Key, CallerName>);

/// The place of something that goes on.
pub(crate) type Place = places::Place<Arc<str>, Key, CallerName>;

/// Why there is no place, as `status` says it: so much goes on already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// How much.
    pub(crate) most: usize,
    /// Of what, as `in all` or `of job flow`.
    pub(crate) of: String,
}

impl Full {
    /// So much goes on `of_one`, for this caller of it, or in or beside this namespace.
    pub(crate) fn new(
        full: places::Full,
        namespace: &str,
        of_one: impl FnOnce() -> String,
        caller: Option<&CallerName>,
    ) -> Self {
        match full {
            places::Full::OfUser(most) => {
                let caller = caller.map_or("somebody", |CallerName(name)| name);
                Self { most, of: format!("of caller {caller} in namespace {namespace}") }
            }
            places::Full::InAll(most) => Self { most, of: "in all".to_owned() },
            places::Full::OfGroup(most) => Self { most, of: format!("of namespace {namespace}") },
            places::Full::OfOne(most) => Self { most, of: of_one() },
        }
    }

    /// The same where a group has nobody to be told apart.
    fn of_group(full: places::Full, of: String) -> Self {
        match full {
            places::Full::InAll(most) => Self { most, of: "in all".to_owned() },
            places::Full::OfGroup(most) | places::Full::OfOne(most) | places::Full::OfUser(most) => Self { most, of },
        }
    }
}

impl Places {
    /// Places for so much in all, and for so much of one job, or of what is of no single job of a namespace. A
    /// namespace has a quarter of all at most.
    pub(crate) fn new(most: usize, most_of_one: usize) -> Self {
        Self(places::Places::new(most, most_of_one))
    }

    /// A place for something of this job, or of the whole namespace, that this caller asks for, if it is known who
    /// calls.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn take(&self, namespace: &str, job: Option<&str>, caller: Option<&CallerName>) -> Result<Place, Full> {
        let one = Key::new(namespace, job.unwrap_or_default());
        let of_one = || job.map_or_else(|| format!("of namespace {namespace}"), |job| format!("of job {job}"));
        let place = self.0.take_for(&one.namespace, &one, caller);
        place.map_err(|full| Full::new(full, namespace, of_one, caller))
    }

    /// A place for something of a namespace that has nothing.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn take_for_nothing(&self, caller: Option<&CallerName>) -> Result<Place, Full> {
        let place = self.0.take_for(&NOTHING.into(), &Key::new(NOTHING, ""), caller);
        place.map_err(|full| Full::of_group(full, "of namespaces that have nothing".to_owned()))
    }

    /// A place for something of the caller of this name, who shares it with nobody: where callers are told apart, and
    /// not namespaces.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn take_for_caller(&self, caller: &Arc<str>) -> Result<Place, Full> {
        let place = self.0.take_for(caller, &Key::new("", ""), None);
        place.map_err(|full| Full::of_group(full, format!("of caller {caller}")))
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
        let mut of_a: Vec<Place> = (0..2).map(|_| places.take("n", Some("a"), None).ok().unwrap()).collect();
        assert_eq!(places.take("n", Some("a"), None).err(), full(2, "of job a"));
        let of_all: Vec<Place> = (0..2).map(|_| places.take("n", None, None).ok().unwrap()).collect();
        assert_eq!(places.take("n", None, None).err(), full(2, "of namespace n"));
        assert_eq!(places.take("n", Some("b"), None).err(), full(4, "of namespace n"), "a quarter of all");
        of_a.pop();
        of_a.push(places.take("n", Some("b"), None).ok().unwrap());
        let of_others = |number| places.take(&format!("m{number}"), None, None).ok();
        let others: Vec<Place> = (0..).map_while(of_others).collect();
        assert_eq!(others.len(), 12);
        assert_eq!(places.take("x", Some("d"), None).err(), full(16, "in all"));
        drop((of_a, of_all, others));
        assert!(places.take("x", Some("d"), None).is_ok());
    }

    #[test]
    fn namespaces_that_have_nothing_share_what_one_may_have() {
        let places = Places::new(16, 8);
        let made_up: Vec<Place> = std::iter::from_fn(|| places.take_for_nothing(None).ok()).collect();
        assert_eq!(made_up.len(), 4, "a quarter of all");
        let full = Full { most: 4, of: "of namespaces that have nothing".to_owned() };
        assert_eq!(places.take_for_nothing(None).err(), Some(full));
        assert!(places.take("n", None, None).is_ok());
    }

    #[test]
    fn a_caller_that_is_known_leaves_places_of_its_job_to_others() {
        let places = Places::new(400, 8);
        let (mine, other) = (CallerName("me".into()), CallerName("you".into()));
        let take = |caller: Option<&CallerName>| places.take("n", Some("a"), caller);
        let of_mine: Vec<Place> = (0..4).map(|_| take(Some(&mine)).ok().unwrap()).collect();
        let full = Full { most: 4, of: "of caller me in namespace n".to_owned() };
        assert_eq!(take(Some(&mine)).err(), Some(full));
        let others: Vec<Place> = std::iter::from_fn(|| take(Some(&other)).ok()).collect();
        let unknown: Vec<Place> = std::iter::from_fn(|| take(None).ok()).collect();
        assert_eq!((of_mine.len(), others.len(), unknown.len()), (4, 2, 2));
    }
}
