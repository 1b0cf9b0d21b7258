//! Properties of exported streams, as they are changed at run time. Pure.

use super::Problem;
use crate::broker::facts;
use streams_api::{Export, ExportAtRunTime, StreamProperty};

/// What is to become of the properties of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExportChange {
    /// These are all.
    Set(Vec<StreamProperty>),
    /// Some are others, in this order.
    Edit {
        /// Names of those that go.
        remove: Vec<String>,
        /// Those that take the place of others of their names.
        replace: Vec<StreamProperty>,
        /// Those that are new.
        add: Vec<StreamProperty>,
    },
    /// They are those of the application.
    Reset,
}

impl ExportChange {
    /// Some properties more.
    pub(crate) fn add(add: Vec<StreamProperty>) -> Self {
        Self::Edit { remove: Vec::new(), replace: Vec::new(), add }
    }

    /// Other values of some properties.
    pub(crate) fn replace(replace: Vec<StreamProperty>) -> Self {
        Self::Edit { remove: Vec::new(), replace, add: Vec::new() }
    }

    /// Some properties less.
    pub(crate) fn remove(remove: Vec<String>) -> Self {
        Self::Edit { remove, replace: Vec::new(), add: Vec::new() }
    }

    /// About as many octets as an export gets by this.
    pub(crate) fn octets(&self) -> usize {
        match self {
            Self::Set(all) => all.iter().map(octets_of).sum(),
            Self::Edit { remove, replace, add } => {
                let removed = remove.iter().map(String::len).sum::<usize>();
                replace.iter().chain(add).map(octets_of).sum::<usize>() + removed
            }
            Self::Reset => 0,
        }
    }
}

/// About as many octets as an object has of a property: each value has quotes and a comma besides.
fn octets_of(property: &StreamProperty) -> usize {
    let values = property.values.iter().map(|value| value.len() + 3);
    values.sum::<usize>() + property.name.len() + property.property_type.len()
}

/// The properties in force.
///
/// # Errors
/// The stream is exported by its name.
pub(crate) fn properties(export: &Export) -> Result<&[StreamProperty], Problem> {
    export.properties().ok_or(Problem::ByName)
}

/// The export after a change. `None` if it is so already.
///
/// # Errors
/// The stream is exported by its name; what is to be added is there, or what is to be replaced or removed is not; the
/// properties would not be well-formed.
pub(crate) fn changed(export: &Export, change: &ExportChange) -> Result<Option<Export>, Problem> {
    let before = properties(export)?;
    let mut status = export.status.clone().unwrap_or_default();
    let after = match change {
        ExportChange::Set(all) => all.clone(),
        ExportChange::Edit { remove, replace, add } => adding(replacing(removing(before, remove)?, replace)?, add)?,
        ExportChange::Reset => {
            let is_changed = status.run_time.take().is_some();
            return Ok(is_changed.then(|| Export { status: Some(status), ..export.clone() }));
        }
    };
    if after == before {
        return Ok(None);
    }
    facts::properties(&after)?;
    status.run_time = Some(ExportAtRunTime { properties: after });
    Ok(Some(Export { status: Some(status), ..export.clone() }))
}

fn adding(mut before: Vec<StreamProperty>, added: &[StreamProperty]) -> Result<Vec<StreamProperty>, Problem> {
    let existing = added.iter().find(|added| before.iter().any(|property| property.name == added.name));
    if let Some(existing) = existing {
        return Err(Problem::Exists(existing.name.clone()));
    }
    before.extend_from_slice(added);
    Ok(before)
}

fn replacing(mut before: Vec<StreamProperty>, others: &[StreamProperty]) -> Result<Vec<StreamProperty>, Problem> {
    for other in others {
        let place = before.iter_mut().find(|property| property.name == other.name);
        *place.ok_or_else(|| Problem::Missing(other.name.clone()))? = other.clone();
    }
    Ok(before)
}

fn removing(before: &[StreamProperty], names: &[String]) -> Result<Vec<StreamProperty>, Problem> {
    if let Some(missing) = names.iter().find(|name| before.iter().all(|property| property.name != **name)) {
        return Err(Problem::Missing(missing.clone()));
    }
    Ok(before.iter().filter(|property| !names.contains(&property.name)).cloned().collect())
}
