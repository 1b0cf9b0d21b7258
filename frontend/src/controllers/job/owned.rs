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

impl Owned {
    /// The key of the object of this kind and name, if a job of that name can have one.
    pub(crate) fn of_name<K: Resource<DynamicType = ()>>(job: &str, name: &str) -> Option<Self> {
        let number = || number_in(suffix(job, name)?);
        let port = || Port::of_suffix(suffix(job, name)?);
        let kind = K::kind(&());
        Some(match &*kind {
            "ConfigMap" if name == names::job_config_map(job) => Self::Child(Child::JobConfigMap),
            "ConfigMap" => Self::ConfigMap(name.to_owned()),
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
