//! Why a change at run time is refused.

use crate::broker::facts;
use streams_broker::TooManySteps;

/// Why a change at run time is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// The stream is exported by its name.
    #[error("the stream is exported by its name and has no properties")]
    ByName,
    /// A property that is to be added is there.
    #[error("there is a property {0} already")]
    Exists(String),
    /// A property that is to be replaced or removed is not there.
    #[error("there is no property {0}")]
    Missing(String),
    /// A board could not know the object as it would be.
    #[error(transparent)]
    Fact(#[from] facts::Problem),
    /// The export that has this name sends to the port, or would, and forbids filters.
    #[error("export {0}, which sends to the port, forbids filters")]
    FilterForbidden(String),
    /// Which exports would send to the port is not found out in time.
    #[error(
        "it takes too long to find out whether an export that would send to the port forbids filters: ask for the \
         streams without a filter first, and for the filter when that is in force"
    )]
    FilterUndecided,
}

impl From<TooManySteps> for Problem {
    fn from(TooManySteps: TooManySteps) -> Self {
        Self::FilterUndecided
    }
}
