//! The keys of the objects of a job.
//!
//! Knows: which kinds there are. Must not know: the objects.

use super::child::{Child, Port};
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
        let suffix = || name.strip_prefix(job)?.strip_prefix('-');
        let number = || suffix()?.parse().ok();
        let port = || {
            let (pe, id) = suffix()?.split_once('-')?;
            Some(Port { pe: pe.parse().ok()?, id: id.parse().ok()? })
        };
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
                Self::Child(Child::ConsistentRegion(suffix()?.strip_prefix("cr")?.parse().ok()?))
            }
            _ => return None,
        })
    }

    /// Kind and name of the object of this job, for people.
    pub(crate) fn of_job(&self, job: &str) -> impl fmt::Display {
        match self {
            Self::Child(Child::ProcessingElement(id)) => format!("PE {}", names::processing_element(job, *id)),
            Self::Child(Child::Service(id)) => format!("Service {}", names::processing_element(job, *id)),
            Self::Child(Child::Region(index)) => format!("region {}", names::parallel_region(job, *index)),
            Self::Child(Child::HostPool(index)) => format!("host pool {}", names::host_pool(job, *index)),
            Self::Child(Child::JobConfigMap) => format!("ConfigMap {}", names::job_config_map(job)),
            Self::Child(Child::Export(port)) => format!("export {}", names::export(job, port.pe, port.id)),
            Self::Child(Child::Import(port)) => format!("import {}", names::import(job, port.pe, port.id)),
            Self::Child(Child::ConsistentRegion(index)) => {
                format!("consistent region {}", names::consistent_region(job, *index))
            }
            Self::Child(Child::ConsistentRegionService) => format!("Service {}", names::consistent_region_service(job)),
            Self::Child(Child::TransportSecret) => format!("Secret {}", names::transport_secret(job)),
            Self::ConfigMap(name) => format!("ConfigMap {name}"),
        }
    }
}
