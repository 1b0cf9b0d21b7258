//! What is particular about a kind of objects.

use kube::Resource;
use std::fmt;
use streams_kubernetes::Key;

/// A kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Kind {
    pub(crate) name: String,
    group: String,
}

/// A kind, a namespace and a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.kind.name, self.key.name)
    }
}

/// How a list is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListType {
    /// It is a value.
    Atomic,
    /// Each value belongs to whoever wrote it.
    Set,
    /// Each item, told by the values of these fields, is an object of its own.
    Map(&'static [&'static str]),
}

impl Kind {
    pub(crate) fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self { name: K::kind(&()).into_owned(), group: K::group(&()).into_owned() }
    }

    /// Not one of Kubernetes itself.
    pub(crate) fn is_custom(&self) -> bool {
        self.group.contains('.') && !self.group.ends_with(".k8s.io")
    }

    /// Whether the status is written apart from the rest.
    pub(crate) fn has_status(&self) -> bool {
        self.is_custom() || matches!(self.name.as_str(), "Pod" | "Node" | "Service")
    }

    /// Whether `metadata.generation` counts changes.
    pub(crate) fn counts_generations(&self) -> bool {
        self.is_custom()
    }

    /// Whether deletion takes a grace period while the object runs on a node.
    pub(crate) fn is_pod(&self) -> bool {
        self.name == "Pod"
    }

    /// Whether the map at this place is a value.
    pub(crate) fn is_atomic(&self, path: &[&str]) -> bool {
        self.name == "Service" && path == ["spec", "selector"]
    }

    /// Whether objects show who owns which fields. Nobody asks that of others.
    pub(crate) fn shows_managers(&self) -> bool {
        self.name == "ConfigMap"
    }

    /// How the list at this place is merged.
    pub(crate) fn list_type(&self, path: &[&str]) -> ListType {
        match (self.name.as_str(), path) {
            (_, ["metadata", "ownerReferences"]) => ListType::Map(&["uid"]),
            (_, ["metadata", "finalizers"]) => ListType::Set,
            (_, ["status", "conditions"]) => ListType::Map(&["type"]),
            ("Service", ["spec", "ports"]) => ListType::Map(&["port", "protocol"]),
            _ => ListType::Atomic,
        }
    }
}
