//! The keys of the objects of a job.
//!
//! Knows: which kinds there are. Must not know: the objects.

use super::child::{Child, Port, number_in, suffix};
use kube::Resource;
use std::fmt;
use streams_api::{ConsistentRegion, Export, HostPool, Import, ParallelRegion, ProcessingElement, names};

/// The key of an object of the job that the controller deletes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Owned {
    /// One that the controller applies.
    Child(Child),
    /// A ConfigMap with a text or a chunk, by name. Long work writes it; it is never applied.
    ConfigMap(String),
}

/// What a ConfigMap is for that long work writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It has the text of a PE.
    Text,
    /// It has a piece of the ADL or of a plan.
    Chunk,
}

impl Part {
    /// What the ConfigMap of this name is for (rule name-5), whatever its labels say: others can change them. `None` if
    /// the controller gives no such name: then it is a copy that somebody has made (rule job-30).
    pub(crate) fn of_name(job: &str, name: &str) -> Option<Self> {
        let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        let is_digest = |text: &str| text.len() == names::DIGEST_DIGITS && text.bytes().all(is_digit);
        let is_number = |text: &str| number_in::<u64>(text).is_some();
        let words: Vec<&str> = suffix(job, name)?.split('-').collect();
        match words.as_slice() {
            [pe, digest] if is_number(pe) && is_digest(digest) => Some(Self::Text),
            ["adl", digest, index] if is_digest(digest) && is_number(index) => Some(Self::Chunk),
            ["plan", generation, digest, index] if is_number(generation) && is_digest(digest) && is_number(index) => {
                Some(Self::Chunk)
            }
            _ => None,
        }
    }
}

impl Owned {
    /// The key of the object of this kind and name, if a job of that name can have one.
    pub(crate) fn of_name<K: Resource<DynamicType = ()>>(job: &str, name: &str) -> Option<Self> {
        let number = || number_in(suffix(job, name)?);
        let port = || Port::of_suffix(suffix(job, name)?);
        let kind = K::kind(&());
        Some(match &*kind {
            "ConfigMap" if name == names::job_config_map(job) => Self::Child(Child::JobConfigMap),
            "ConfigMap" => Part::of_name(job, name).map(|_| Self::ConfigMap(name.to_owned()))?,
            "Service" if name == names::consistent_region_service(job) => Self::Child(Child::ConsistentRegionService),
            "Service" => Self::Child(Child::Service(number()?)),
            _ if kind == ProcessingElement::kind(&()) => Self::Child(Child::ProcessingElement(number()?)),
            _ if kind == ParallelRegion::kind(&()) => Self::Child(Child::Region(number()?)),
            _ if kind == HostPool::kind(&()) => Self::Child(Child::HostPool(number()?)),
            _ if kind == Export::kind(&()) => Self::Child(Child::Export(port()?)),
            _ if kind == Import::kind(&()) => Self::Child(Child::Import(port()?)),
            _ if kind == ConsistentRegion::kind(&()) => {
                Self::Child(Child::ConsistentRegion(number_in(suffix(job, name)?.strip_prefix("cr")?)?))
            }
            _ => return None,
        })
    }

    /// Kind and name of the object of this job, for people.
    pub(crate) fn of_job(&self, job: &str) -> impl fmt::Display {
        let child = match self {
            Self::Child(child) => *child,
            Self::ConfigMap(name) => return format!("ConfigMap {name}"),
        };
        let kind = match child {
            Child::ProcessingElement(_) => "PE",
            Child::Service(_) | Child::ConsistentRegionService => "Service",
            Child::Region(_) => "region",
            Child::HostPool(_) => "host pool",
            Child::JobConfigMap => "ConfigMap",
            Child::Export(_) => "export",
            Child::Import(_) => "import",
            Child::ConsistentRegion(_) => "consistent region",
            Child::TransportSecret => "Secret",
        };
        format!("{kind} {}", child.name(job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Service};

    #[test]
    fn the_key_of_an_object_follows_from_its_name() {
        fn of<K: Resource<DynamicType = ()>>(child: Child) -> (Owned, Option<Owned>) {
            (Owned::Child(child), Owned::of_name::<K>("job-1", &child.name("job-1")))
        }
        let port = Port { pe: 7, id: 2 };
        for (key, found) in [
            of::<ProcessingElement>(Child::ProcessingElement(3)),
            of::<Service>(Child::Service(3)),
            of::<ParallelRegion>(Child::Region(4)),
            of::<HostPool>(Child::HostPool(5)),
            of::<ConfigMap>(Child::JobConfigMap),
            of::<Export>(Child::Export(port)),
            of::<Import>(Child::Import(port)),
            of::<ConsistentRegion>(Child::ConsistentRegion(6)),
            of::<Service>(Child::ConsistentRegionService),
        ] {
            assert_eq!(found, Some(key));
        }
    }

    #[test]
    fn a_config_map_is_told_by_its_name() {
        let digest = "0123456789abcdef";
        let of = |name: &str| (name.to_owned(), Part::of_name("job-1", name));
        let table = [
            (of(&names::aadl_config_map("job-1", 0, digest)), Some(Part::Text)),
            (of(&names::aadl_config_map("job-1", u64::MAX, digest)), Some(Part::Text)),
            (of(&names::adl_chunk("job-1", digest, 0)), Some(Part::Chunk)),
            (of(&names::adl_chunk("job-1", digest, u32::MAX)), Some(Part::Chunk)),
            (of(&names::plan_chunk("job-1", u64::MAX, digest, 10)), Some(Part::Chunk)),
            // The job's own, and those of jobs whose names begin or end alike.
            (of(&names::job_config_map("job-1")), None),
            (of(&names::aadl_config_map("job", 1, digest)), None),
            (of(&names::aadl_config_map("job-12", 3, digest)), None),
            (of(&names::aadl_config_map("job-1-2", 3, digest)), None),
            (of(&names::adl_chunk("job-1-adl", digest, 2)), None),
            (of(&names::plan_chunk("a-job-1", 2, digest, 3)), None),
            // Copies.
            (of("a-copy"), None),
            (of("job-1-3-0123456789-copy"), None),
            (of("job-1-3-012345678"), None),
            (of("job-1-3-0123456789a"), None),
            (of("job-1-3-012345678g"), None),
            (of("job-1-03-0123456789"), None),
            (of("job-1-b-0123456789"), None),
            (of("job-1-adl-0123456789"), None),
            (of("job-1-adl-0123456789-00"), None),
            (of("job-1-plan-0123456789-0"), None),
            (of("job-1-plan-01-0123456789-0"), None),
        ];
        for ((name, found), expected) in table {
            assert_eq!(found, expected, "{name}");
            let owned = expected.map(|_| Owned::ConfigMap(name.clone()));
            let own = (name == "job-1").then_some(Owned::Child(Child::JobConfigMap));
            assert_eq!(Owned::of_name::<ConfigMap>("job-1", &name), own.or(owned), "{name}");
        }
    }

    #[test]
    fn the_name_of_a_copy_is_that_of_no_object_of_the_job() {
        let of = |name: &str| {
            [
                Owned::of_name::<ProcessingElement>("job-1", name),
                Owned::of_name::<Export>("job-1", name),
                Owned::of_name::<ConsistentRegion>("job-1", name),
            ]
        };
        let child = |child| Some(Owned::Child(child));
        let table = [
            ("job-1-0", [child(Child::ProcessingElement(0)), None, None]),
            ("job-1-10", [child(Child::ProcessingElement(10)), None, None]),
            ("job-1-03", [None, None, None]),
            ("job-1-00", [None, None, None]),
            ("job-1-3b", [None, None, None]),
            ("job-1-7-20", [None, child(Child::Export(Port { pe: 7, id: 20 })), None]),
            ("job-1-7-02", [None, None, None]),
            ("job-1-07-2", [None, None, None]),
            ("job-1-cr6", [None, None, child(Child::ConsistentRegion(6))]),
            ("job-1-cr06", [None, None, None]),
        ];
        for (name, expected) in table {
            assert_eq!(of(name), expected, "{name}");
        }
    }
}
