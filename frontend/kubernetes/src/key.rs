//! The key of an object: its namespace and name.

use kube::Resource;
use std::fmt;
use std::sync::Arc;

/// Namespace and name of an object. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// The object `name` of `namespace`.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of a namespaced object. An object without namespace or name, which the API server never delivers, has
    /// empty ones.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }

    /// Another object of the same namespace.
    pub fn sibling(&self, name: &str) -> Self {
        Self { namespace: Arc::clone(&self.namespace), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
