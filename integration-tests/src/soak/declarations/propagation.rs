//! In which ways something is deleted.

use kube::api::{DeleteParams, PropagationPolicy};
use serde::{Deserialize, Serialize};

/// What becomes of the objects that belong to an object that is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

impl Propagation {
    /// All.
    pub(super) const ALL: [Self; 3] = [Self::Background, Self::Foreground, Self::Orphan];

    /// The parameters of a deletion.
    pub(super) fn parameters(self) -> DeleteParams {
        let policy = match self {
            Self::Background => PropagationPolicy::Background,
            Self::Foreground => PropagationPolicy::Foreground,
            Self::Orphan => PropagationPolicy::Orphan,
        };
        DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() }
    }
}
