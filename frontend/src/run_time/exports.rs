//! Properties of exported streams, as they are changed at run time. Pure.

use super::Problem;
use crate::broker::facts;
use std::collections::{HashMap, HashSet};
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
    let keys = r#"{"name":"","type":"","values":[]},"#.len();
    values.sum::<usize>() + property.name.len() + property.property_type.len() + keys
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
    if let Some(existing) = first_of_those_there(&before, added) {
        return Err(Problem::Exists(existing.name.clone()));
    }
    before.extend_from_slice(added);
    Ok(before)
}

fn first_of_those_there<'a>(before: &[StreamProperty], added: &'a [StreamProperty]) -> Option<&'a StreamProperty> {
    let places = places(before);
    added.iter().find(|added| places.contains_key(&*added.name))
}

fn replacing(mut before: Vec<StreamProperty>, others: &[StreamProperty]) -> Result<Vec<StreamProperty>, Problem> {
    for (place, other) in places_of(&before, others)?.into_iter().zip(others) {
        if let Some(property) = before.get_mut(place) {
            property.clone_from(other);
        }
    }
    Ok(before)
}

/// Where the properties are whose places others take.
fn places_of(before: &[StreamProperty], others: &[StreamProperty]) -> Result<Vec<usize>, Problem> {
    let places = places(before);
    let place = |other: &StreamProperty| places.get(&*other.name).copied();
    others.iter().map(|other| place(other).ok_or_else(|| Problem::Missing(other.name.clone()))).collect()
}

fn removing(before: &[StreamProperty], names: &[String]) -> Result<Vec<StreamProperty>, Problem> {
    let places = places(before);
    if let Some(missing) = names.iter().find(|name| !places.contains_key(name.as_str())) {
        return Err(Problem::Missing(missing.clone()));
    }
    let names: HashSet<&str> = names.iter().map(String::as_str).collect();
    Ok(before.iter().filter(|property| !names.contains(&*property.name)).cloned().collect())
}

/// Where the properties are, by their names: the first of each.
fn places(properties: &[StreamProperty]) -> HashMap<&str, usize> {
    properties.iter().enumerate().rev().map(|(place, property)| (&*property.name, place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_time::ENTRIES_MAX;
    use streams_api::{ExportSpec, ExportedStream};

    fn property(name: &str, value: &str) -> StreamProperty {
        let (name, values) = (name.to_owned(), vec![value.to_owned()]);
        StreamProperty { name, property_type: "int64".to_owned(), values }
    }

    fn listed(all: &[(&str, &str)]) -> Vec<StreamProperty> {
        all.iter().map(|(name, value)| property(name, value)).collect()
    }

    fn an_export(properties: Vec<StreamProperty>) -> Export {
        let stream = ExportedStream { properties, ..ExportedStream::default() };
        Export::new("flow-3-1", ExportSpec { stream, ..ExportSpec::default() })
    }

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn properties_keep_their_order_whatever_becomes_of_some_and_nothing_is_made_of_what_is_refused() {
        type Expected = Result<&'static [(&'static str, &'static str)], &'static str>;
        let before = [("a", "1"), ("b", "2"), ("c", "3")];
        let add = |all: &[(&str, &str)]| ExportChange::add(listed(all));
        let replace = |all: &[(&str, &str)]| ExportChange::replace(listed(all));
        let remove = |all: &[&str]| ExportChange::remove(owned(all));
        // change -> the properties, or the problem
        let table: [(ExportChange, Expected); 11] = [
            (add(&[("d", "4")]), Ok(&[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")])),
            (add(&[("d", "4"), ("b", "5"), ("a", "6")]), Err("there is a property b already")),
            (add(&[("d", "4"), ("d", "5")]), Err("there are two properties d")),
            (replace(&[("c", "5"), ("a", "4")]), Ok(&[("a", "4"), ("b", "2"), ("c", "5")])),
            // The last counts.
            (replace(&[("b", "4"), ("b", "5")]), Ok(&[("a", "1"), ("b", "5"), ("c", "3")])),
            (replace(&[("a", "4"), ("d", "5"), ("e", "6")]), Err("there is no property d")),
            (remove(&["c", "a", "c"]), Ok(&[("b", "2")])),
            (remove(&["a", "e", "d"]), Err("there is no property e")),
            (ExportChange::Set(listed(&[("z", "1")])), Ok(&[("z", "1")])),
            (
                ExportChange::Edit {
                    remove: owned(&["a"]),
                    replace: listed(&[("b", "5")]),
                    add: listed(&[("a", "6")]),
                },
                Ok(&[("b", "5"), ("c", "3"), ("a", "6")]),
            ),
            (
                ExportChange::Edit { remove: owned(&["a"]), replace: listed(&[("a", "5")]), add: Vec::new() },
                Err("there is no property a"),
            ),
        ];
        for (change, expected) in table {
            let changed = changed(&an_export(listed(&before)), &change);
            let changed = changed.map(|changed| changed.unwrap().properties().unwrap().to_vec());
            let expected = expected.map(listed).map_err(str::to_owned);
            assert_eq!(changed.map_err(|problem| problem.to_string()), expected, "{change:?}");
        }
    }

    #[test]
    fn long_lists_are_changed_as_short_ones_are() {
        let many = 4 * ENTRIES_MAX;
        let name = |number: usize| format!("{}{number:05}", "x".repeat(100));
        let before: Vec<_> = (0..many).map(|number| property(&name(number), "1")).collect();
        let others: Vec<_> = (0..many).rev().map(|number| property(&name(number), "2")).collect();
        let names: Vec<_> = others.iter().map(|other| other.name.clone()).collect();
        let replaced = replacing(before.clone(), &others).unwrap();
        assert!(replaced.iter().all(|property| property.values == ["2"]));
        assert_eq!(removing(&before, &names), Ok(Vec::new()));
        let existing = adding(before, &others[many - 1..]);
        assert_eq!(existing, Err(Problem::Exists(name(0))));
    }

    #[test]
    fn about_as_many_octets_are_counted_as_the_object_gets() {
        for count in [0, 1, 100] {
            let all: Vec<_> = (0..count).map(|number| property(&number.to_string(), "7")).collect();
            let octets = serde_json::to_string(&all).unwrap().len();
            for change in [ExportChange::Set(all.clone()), ExportChange::add(all.clone()), ExportChange::replace(all)] {
                let counted = change.octets();
                assert!(counted.abs_diff(octets) <= 2 + count, "{change:?}: {counted} for {octets}");
            }
        }
    }
}
