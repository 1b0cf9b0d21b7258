//! What input ports ask for, as it is changed at run time. Pure.

use super::Problem;
use crate::broker::facts;
use streams_api::{Import, ImportAtRunTime, ImportedStreams, NameBasedImport, PropertyBasedImport};
use streams_broker::TooManySteps;

/// The scope of applications that name none.
pub(crate) const DEFAULT_SCOPE: &str = "Default";

/// What is to become of what an input port asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImportChange {
    /// This is all.
    Set(ImportedStreams),
    /// What is given is other than before.
    Edit {
        /// Streams by properties.
        subscription: Option<PropertyBasedImport>,
        /// Which tuples are wanted; all, if this is `Some(None)`.
        filter: Option<Option<String>>,
    },
    /// It is what the application says.
    Reset,
}

/// The import after a change. `None` if it is so already. `forbids` names an export that would send to such an import
/// if it had no filter, and that forbids filters: what was asked for before the change does not matter.
///
/// # Errors
/// The subscription is no expression, or the filter none that PEs can read; a new filter is forbidden, or it takes too
/// long to find out.
pub(crate) fn changed(
    import: &Import,
    change: &ImportChange,
    forbids: impl FnOnce(&streams_broker::Import) -> Result<Option<String>, TooManySteps>,
) -> Result<Option<Import>, Problem> {
    let before = import.streams();
    let mut status = import.status.clone().unwrap_or_default();
    let after = match change {
        ImportChange::Set(all) => all.clone(),
        ImportChange::Edit { subscription, filter } => ImportedStreams {
            name_based_imports: before.name_based_imports.clone(),
            property_based_import: subscription.clone().or_else(|| before.property_based_import.clone()),
            filter: filter.clone().unwrap_or_else(|| before.filter.clone()),
        },
        ImportChange::Reset => {
            let is_changed = status.run_time.take().is_some();
            return Ok(is_changed.then(|| Import { status: Some(status), ..import.clone() }));
        }
    };
    if is_same(&after, before) {
        return Ok(None);
    }
    let is_filter_new = after.filter.is_some() && after.filter != before.filter;
    if let Some(filter) = after.filter.as_ref().filter(|_| is_filter_new) {
        // Also an empty one, which would count as none.
        facts::check_filter(filter)?;
    }
    status.run_time = Some(ImportAtRunTime { streams: after });
    let changed = Import { status: Some(status), ..import.clone() };
    let fact = facts::import(&changed)?;
    if is_filter_new && let Some(export) = forbids(&fact)? {
        return Err(Problem::FilterForbidden(export));
    }
    Ok(Some(changed))
}

/// The streams by name in the order of their numbers.
pub(crate) fn in_order(streams: &ImportedStreams) -> Vec<&NameBasedImport> {
    let numbered = |(number, named): (&String, _)| (number.parse().unwrap_or(u64::MAX), named);
    let mut named: Vec<(u64, &NameBasedImport)> = streams.name_based_imports.iter().map(numbered).collect();
    named.sort_by_key(|(number, _)| *number);
    named.into_iter().map(|(_, named)| named).collect()
}

/// Whether both ask for the same: numbers of streams are only an order.
fn is_same(one: &ImportedStreams, other: &ImportedStreams) -> bool {
    let rest = |streams: &ImportedStreams| (streams.property_based_import.clone(), streams.filter.clone());
    rest(one) == rest(other) && in_order(one) == in_order(other)
}
