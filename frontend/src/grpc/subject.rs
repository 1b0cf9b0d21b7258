//! Somebody who calls, as the cluster knows them.
//!
//! Knows: users of Kubernetes. Must not know: how they were found out, what they may.

use super::places::CallerName;
use k8s_openapi::api::authentication::v1::UserInfo;
use std::collections::BTreeMap;

/// Somebody whom the cluster knows: all that decides what it may.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Subject {
    /// The name, such as `system:serviceaccount:NAMESPACE:NAME`.
    pub(crate) name: CallerName,
    pub(crate) uid: Option<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl Subject {
    /// Somebody of whom no more is known than this.
    pub(crate) fn new(name: CallerName, groups: Vec<String>) -> Self {
        Self { name, uid: None, groups, extra: BTreeMap::new() }
    }

    /// Whom a review names, if it names anybody.
    pub(crate) fn of(user: UserInfo) -> Option<Self> {
        let UserInfo { username, uid, groups, extra } = user;
        let name = username.filter(|name| !name.is_empty())?;
        let (groups, extra) = (groups.unwrap_or_default(), extra.unwrap_or_default());
        Some(Self { name: CallerName(name.into()), uid, groups, extra })
    }

    /// Somebody of this name.
    #[cfg(test)]
    pub(crate) fn called(name: &str) -> Self {
        Self::new(CallerName(name.into()), Vec::new())
    }
}
