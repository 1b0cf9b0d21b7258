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

impl ImportChange {
    /// About as many octets as an import gets by this.
    pub(crate) fn octets(&self) -> usize {
        match self {
            Self::Set(ImportedStreams { name_based_imports, property_based_import, filter }) => {
                let of_named = |(number, named): (&String, &NameBasedImport)| {
                    let keys =
                        r#""":{"applicationName":"","applicationScope":"","streamName":"","importOperName":""},"#;
                    let application = named.application_name.len() + named.application_scope.len();
                    keys.len() + number.len() + application + named.stream_name.len() + named.import_oper_name.len()
                };
                let named = name_based_imports.iter().map(of_named).sum::<usize>();
                named + octets_of(property_based_import.as_ref()) + filter.as_ref().map_or(0, String::len)
            }
            Self::Edit { subscription, filter } => {
                octets_of(subscription.as_ref()) + filter.iter().flatten().map(String::len).sum::<usize>()
            }
            Self::Reset => 0,
        }
    }
}

fn octets_of(subscription: Option<&PropertyBasedImport>) -> usize {
    let of_import = |import: &PropertyBasedImport| {
        let keys = r#"{"subscription":"","applicationScope":"","importOperName":"","index":0}"#;
        keys.len() + import.subscription.len() + import.application_scope.len() + import.import_oper_name.len()
    };
    subscription.map_or(0, of_import)
}

/// The import after a change. `None` if it is so already. `forbids` names an export that would send to such an import
/// if it had no filter, and that forbids filters: what was asked for before the change does not matter.
///
/// # Errors
/// The subscription is no expression, or a new filter none that may be set; it is forbidden, or it takes too long to
/// find out.
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
        facts::check_new_filter(filter)?;
    }
    status.run_time = Some(ImportAtRunTime { streams: after });
    let changed = Import { status: Some(status), ..import.clone() };
    match facts::import(&changed) {
        // Whoever changes something else is not to blame for a filter that is there. The import says it.
        Err(facts::Problem::Filter(_)) if !is_filter_new => Ok(Some(changed)),
        Err(problem) => Err(problem.into()),
        Ok(fact) => match is_filter_new.then(|| forbids(&fact)).transpose()?.flatten() {
            Some(export) => Err(Problem::FilterForbidden(export)),
            None => Ok(Some(changed)),
        },
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn an_import(filter: &str) -> Import {
        let by_properties = json!({"subscription": "a", "applicationScope": "S", "importOperName": "In", "index": 0});
        let spec = json!({
            "jobName": "flow", "jobId": 7, "applicationName": "A", "applicationScope": "S", "peId": 3, "portId": 1,
            "portIndex": 1, "streams": {"propertyBasedImport": by_properties, "filter": filter},
        });
        Import::new("flow-3-1", serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn about_as_many_octets_are_counted_as_the_object_gets() {
        let named = json!({
            "applicationName": "A", "applicationScope": "S", "streamName": "s", "importOperName": "In",
        });
        let subscription = json!({"subscription": "a", "applicationScope": "S", "importOperName": "In", "index": 0});
        let hundred: serde_json::Map<_, _> = (0..100).map(|number| (number.to_string(), named.clone())).collect();
        let table = [
            json!({"nameBasedImports": {"0": named}}),
            json!({"nameBasedImports": hundred}),
            json!({"propertyBasedImport": subscription}),
            json!({"filter": "x == 1"}),
        ];
        for streams in table {
            let octets = streams.to_string().len();
            let counted = ImportChange::Set(serde_json::from_value(streams.clone()).unwrap()).octets();
            assert!(counted.abs_diff(octets) <= 30, "{streams}: {counted} for {octets}");
        }
        let subscription = serde_json::from_value::<PropertyBasedImport>(subscription).unwrap();
        let edit = ImportChange::Edit { subscription: Some(subscription.clone()), filter: None };
        assert_eq!(edit.octets(), serde_json::to_string(&subscription).unwrap().len());
    }

    #[test]
    fn a_filter_that_is_there_refuses_nothing_else() {
        let subscribe = |text: &str| {
            let mut other = an_import("").spec.streams.property_based_import.unwrap();
            other.subscription = text.to_owned();
            Some(other)
        };
        let filter = |text: &str| Some(Some(text.to_owned()));
        // filter that is there, other subscription, other filter -> the problem
        let table = [
            ("x = 1", subscribe("b"), None, None),
            ("x = 1", subscribe("b"), filter("x = 1"), None),
            ("x = 1", subscribe("b ="), None, Some("subscription: ")),
            ("x = 1", subscribe("b"), filter("x = 2"), Some("filter: ")),
            ("x = 1", None, filter("x == 1"), None),
            ("x = 1", None, Some(None), None),
            ("x = 1", subscribe("b"), Some(None), None),
            // PEs send all.
            ("x && true", subscribe("b"), None, None),
            ("", None, filter("x && true"), Some("filter: at offset 5: PEs take true and false for names")),
            ("", None, filter("true"), Some("filter: at offset 0: PEs take true and false for names")),
            ("", None, filter("false || x == 1"), Some("filter: at offset 0: PEs take true and false for names")),
            ("", None, filter("x == true"), None),
        ];
        for (before, subscription, filter, expected) in table {
            let case = format!("{before} {subscription:?} {filter:?}");
            let change = ImportChange::Edit { subscription, filter };
            match (changed(&an_import(before), &change, |_| Ok(None)), expected) {
                (Ok(changed), None) => assert!(changed.unwrap().status.unwrap().run_time.is_some(), "{case}"),
                (Err(problem), Some(expected)) => assert!(problem.to_string().starts_with(expected), "{problem}"),
                (found, _) => panic!("{case}: {found:?}"),
            }
        }
        // What is forbidden stays forbidden.
        let change = ImportChange::Edit { subscription: None, filter: filter("x == 1") };
        let forbidden = changed(&an_import("x = 1"), &change, |_| Ok(Some("out".to_owned())));
        assert_eq!(forbidden, Err(Problem::FilterForbidden("out".to_owned())));
    }
}
