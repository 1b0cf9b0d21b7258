//! Makes of an Export or Import what a board knows of it (rule import-5).
//!
//! Knows: the fields of both kinds. Must not know: which of them count.

use spl_expression::{Expression, Limits, Properties, PropertyType, Value, ValueError, is_no_filter};
use std::sync::Arc;
use streams_api::{Export, Import, ImportedStreams, StreamProperty};
use streams_broker::{self as broker, Application, NamedStream, Pe, Port, Subscription};

/// Steps for a look at an object, however short that is: it is unpacked, read, and put on the board.
const LOOK_STEPS: usize = 4 << 10;
/// Steps for an octet of an object, if it has many: it is unpacked, read, copied, and told from others.
const OCTET_STEPS: usize = 4;
/// Steps for an octet of an expression that is read: it becomes a tree, of which is found out what it needs.
const EXPRESSION_STEPS: usize = 64;
/// Steps for a stream that is named, or a value of a property.
const ENTRY_STEPS: usize = 256;
/// Octets that the shortest value of a property has in its object: quotes and a comma. A stream that is named has more.
const ENTRY_OCTETS: usize = 3;

/// Why a board cannot know an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// A property that is none.
    #[error("property {name}: {error}")]
    Property {
        /// Its name.
        name: String,
        /// What is wrong.
        error: ValueError,
    },
    /// There are two of this name.
    #[error("there are two properties {0}")]
    Twice(String),
    /// A subscription that is no expression.
    #[error("subscription: {0}")]
    Subscription(spl_expression::Error),
    /// A filter that PEs cannot read, or take for something else.
    #[error("filter: {0}")]
    Filter(spl_expression::Error),
}

/// The properties, as expressions see them.
///
/// # Errors
/// One of them has another form than its type, or there are two of a name.
pub(crate) fn properties(listed: &[StreamProperty]) -> Result<Properties, Problem> {
    let mut properties = Properties::new();
    for property in listed {
        let value = property.property_type.parse::<PropertyType>();
        let value = value.and_then(|declared| Value::parse(declared, &property.values));
        let value = value.map_err(|error| Problem::Property { name: property.name.clone(), error })?;
        if properties.get(&property.name).is_some() {
            return Err(Problem::Twice(property.name.clone()));
        }
        properties.insert(&property.name, value);
    }
    Ok(properties)
}

/// The expression of a subscription.
///
/// # Errors
/// It is none, or a board would keep more of it than could be evaluated.
pub(crate) fn subscription(text: &str) -> Result<Expression, Problem> {
    Expression::parse(text, &Limits::of_evaluation()).map_err(Problem::Subscription)
}

/// What PEs are told of a filter.
enum ToldFilter {
    /// Nothing: every tuple passes.
    None,
    /// This text.
    Text(Arc<str>),
    /// There is no text for it: no tuple passes.
    PassesNothing,
}

impl ToldFilter {
    /// What PEs are told of the filter with this text. Constants are left out: PEs take them for names of attributes,
    /// find none, and send all tuples (rule expression-15).
    ///
    /// # Errors
    /// They cannot read it: one that is sent such a filter ends. Or they take it for something else.
    fn of(text: &str) -> Result<Self, Problem> {
        let filter = Expression::parse_filter(text, &Limits::default()).map_err(Problem::Filter)?;
        if filter.check_meaning().is_ok() {
            return Ok(Self::Text(Arc::from(text)));
        }
        let filter = filter.without_constants();
        match filter.constant() {
            Some(true) => Ok(Self::None),
            Some(false) => Ok(Self::PassesNothing),
            None => {
                filter.check_meaning().map_err(Problem::Filter)?;
                Ok(Self::Text(filter.to_string().into()))
            }
        }
    }
}

/// Whether a filter may be set: PEs can read it, and take it for what it says (rule expression-15).
///
/// # Errors
/// It may not.
pub(crate) fn check_new_filter(text: &str) -> Result<(), Problem> {
    let filter = Expression::parse_filter(text, &Limits::default());
    filter.and_then(|filter| filter.check_meaning()).map_err(Problem::Filter)
}

/// The output port of an export.
pub(crate) fn output_port(export: &Export) -> Port {
    let spec = &export.spec;
    Port { pe: Pe { job: Arc::from(&*spec.job_name), id: spec.pe_id }, id: spec.port_id }
}

/// The input port of an import.
pub(crate) fn input_port(import: &Import) -> Port {
    let spec = &import.spec;
    Port { pe: Pe { job: Arc::from(&*spec.job_name), id: spec.pe_id }, id: spec.port_id }
}

/// What a look at an object with so many octets takes at least, in steps of evaluations.
pub(super) fn least_steps(octets: usize) -> usize {
    LOOK_STEPS.max(OCTET_STEPS * octets)
}

/// What it takes at most, whatever the octets are: the dearest are those of short values.
pub(super) fn most_steps(octets: usize) -> usize {
    least_steps(octets) + EXPRESSION_STEPS.max(ENTRY_STEPS.div_ceil(ENTRY_OCTETS)) * octets
}

/// What it takes besides to read an export, about. What is not in force is read, too.
pub(super) fn steps_of_export(object: &Export) -> usize {
    let changed = object.status.as_ref().and_then(|status| status.run_time.as_ref());
    let changed = changed.into_iter().flat_map(|changed| &changed.properties);
    let of_property = |property: &StreamProperty| ENTRY_STEPS * (1 + property.values.len());
    object.spec.stream.properties.iter().chain(changed).map(of_property).sum()
}

/// What it takes besides to read an import, about. What is not in force is read, too.
pub(super) fn steps_of_import(object: &Import) -> usize {
    let changed = object.status.as_ref().and_then(|status| status.run_time.as_ref());
    let all = std::iter::once(&object.spec.streams).chain(changed.map(|changed| &changed.streams));
    let of_named = |streams: &ImportedStreams| ENTRY_STEPS * streams.name_based_imports.len();
    all.map(of_named).sum::<usize>() + EXPRESSION_STEPS * octets_of_expressions(object.streams())
}

fn octets_of_expressions(streams: &ImportedStreams) -> usize {
    let subscription = streams.property_based_import.as_ref().map_or(0, |import| import.subscription.len());
    subscription + streams.filter.as_ref().map_or(0, String::len)
}

/// What a board knows of an export.
///
/// # Errors
/// A property in force is none.
pub(crate) fn export(object: &Export) -> Result<broker::Export, Problem> {
    let spec = &object.spec;
    Ok(broker::Export {
        port: output_port(object),
        job_id: spec.job_id,
        application: Application {
            name: Arc::from(&*spec.application_name),
            scope: Arc::from(&*spec.application_scope),
        },
        name: spec.stream.name.as_deref().map(Arc::from),
        properties: object.properties().map(properties).transpose()?.map(Arc::new),
        allows_filter: spec.stream.allow_filter,
    })
}

/// What a board knows of an import.
///
/// # Errors
/// The subscription in force is no expression, or, if it is one, the filter none that PEs can read.
pub(crate) fn import(object: &Import) -> Result<broker::Import, Problem> {
    let spec = &object.spec;
    let streams = object.streams();
    let named = streams.name_based_imports.values().map(|named| NamedStream {
        // An import that names no application takes the stream of any.
        application: Some(&*named.application_name).filter(|name| !name.is_empty()).map(Arc::from),
        scope: Arc::from(&*named.application_scope),
        stream: Arc::from(&*named.stream_name),
    });
    let by_properties = streams.property_based_import.as_ref().map(|import| {
        let expression = subscription(&import.subscription)?;
        Ok(Subscription { scope: Arc::from(&*import.application_scope), expression: Arc::new(expression) })
    });
    let subscription = by_properties.transpose()?;
    let mut import = broker::Import {
        port: input_port(object),
        job_id: spec.job_id,
        port_index: spec.port_index,
        named: named.collect(),
        subscription,
        filter: None,
    };
    match streams.filter.as_deref().filter(|filter| !is_no_filter(filter)).map(ToldFilter::of).transpose()? {
        None | Some(ToldFilter::None) => {}
        Some(ToldFilter::Text(text)) => import.filter = Some(text),
        Some(ToldFilter::PassesNothing) => return Ok(import.of_nothing()),
    }
    Ok(import)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};
    use std::collections::BTreeMap;
    use streams_api::{ExportSpec, ImportSpec};

    fn an_export(more: &Json, status: &Json) -> Export {
        let mut spec = json!({
            "jobName": "flow", "jobId": 7, "applicationName": "demo::Main", "applicationScope": "Mine",
            "peId": 3, "portId": 2, "type": "ByProperties", "stream": {"exportOperName": "Out"},
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut export = Export::new("flow-3-2", serde_json::from_value::<ExportSpec>(spec).unwrap());
        export.status = serde_json::from_value(status.clone()).unwrap();
        export
    }

    fn an_import(streams: &Json, status: &Json) -> Import {
        let spec = json!({
            "jobName": "flow", "jobId": 7, "applicationName": "demo::Main", "applicationScope": "Mine",
            "peId": 3, "portId": 1, "portIndex": 1, "streams": streams,
        });
        let mut import = Import::new("flow-3-1", serde_json::from_value::<ImportSpec>(spec).unwrap());
        import.status = serde_json::from_value(status.clone()).unwrap();
        import
    }

    fn property(name: &str, kind: &str, values: &[&str]) -> Json {
        json!({"name": name, "type": kind, "values": values})
    }

    #[test]
    fn properties_in_force_are_those_of_the_run_time_else_those_of_the_application() {
        let with = |properties: &[Json]| json!({"stream": {"exportOperName": "Out", "properties": properties}});
        let changed = |properties: &[Json]| json!({"runTime": {"properties": properties}});
        let named = json!({"type": "ByName", "stream": {"exportOperName": "Out", "name": "s"}});
        let (a, b) = (|| property("n", "int64", &["1"]), || property("n", "int64", &["2"]));
        // spec, status -> value of n; None if there are no properties at all
        let table = [
            (with(&[a()]), json!(null), Ok(Some("1"))),
            (with(&[a()]), changed(&[b()]), Ok(Some("2"))),
            (with(&[a()]), changed(&[]), Ok(Some(""))),
            (with(&[]), json!(null), Ok(Some(""))),
            (named.clone(), json!(null), Ok(None)),
            (named, changed(&[b()]), Ok(None)),
            (with(&[a(), b()]), json!(null), Err("there are two properties n")),
            (with(&[a()]), changed(&[property("n", "int", &["1"])]), Err("property n: \"int\" is no type")),
            (with(&[property("n", "int64", &["x"])]), json!(null), Err("property n: \"x\" is no value")),
            (with(&[property("n", "int64", &[])]), json!(null), Err("property n: a property of type int64 has one")),
            (with(&[property("n", "rstring", &["\""])]), json!(null), Err("property n: \"\\\"\" is no value")),
        ];
        for (spec, status, expected) in table {
            let found = export(&an_export(&spec, &status));
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    let value = found.properties.map(|all| all.get("n").map(ToString::to_string).unwrap_or_default());
                    assert_eq!(value.as_deref(), expected, "{spec} {status}");
                }
                (Err(found), Err(expected)) => assert!(found.to_string().starts_with(expected), "{found}"),
                (found, expected) => panic!("{found:?} {expected:?}: {spec} {status}"),
            }
        }
    }

    /// What a problem says, without the place in the text, which stands before the sentence.
    fn without_place(problem: &Problem) -> String {
        let said = problem.to_string();
        let placed = said.split_once(": at offset ");
        let sentence = placed.and_then(|(field, placed)| Some((field, placed.split_once(": ")?.1)));
        sentence.map_or_else(|| said.clone(), |(field, sentence)| format!("{field}: {sentence}"))
    }

    #[test]
    fn an_import_asks_for_what_it_was_changed_to_else_for_what_the_application_says() {
        let by = |text: &str| {
            json!({"propertyBasedImport":
                {"subscription": text, "applicationScope": "S", "importOperName": "In", "index": 0}})
        };
        let named = json!({"filter": "", "nameBasedImports": {"0":
            {"applicationName": "", "applicationScope": "S", "streamName": "s", "importOperName": "In"}}});
        let mut both = by("a =");
        // A board would keep more than 1 MB of it.
        let long = "a|".repeat(32_767) + "b";
        both["filter"] = json!("a == b");
        // spec, status -> subscription and whether a stream is named of any application
        let table = [
            (by("a == 1"), json!(null), Ok((Some("a == 1"), false))),
            (by("a == 1"), json!({"runTime": {"streams": by("b")}}), Ok((Some("b"), false))),
            (by("a == 1"), json!({"runTime": {"streams": {}}}), Ok((None, false))),
            (named, json!(null), Ok((None, true))),
            (by("a ="), json!(null), Err("subscription: ")),
            (by(""), json!(null), Err("subscription: ")),
            (by(&long), json!(null), Err("subscription: more than 8192 operands and operators")),
            // A PE that is sent this ends; whoever has written it.
            (json!({"filter": "lane = 7"}), json!(null), Err("filter: unexpected character '='")),
            // Whoever leaves the filter as it is hears what is wrong with the rest.
            (by("b"), json!({"runTime": {"streams": both}}), Err("subscription: ")),
            (by("b"), json!({"runTime": {"streams": {"filter": "a == b"}}}), Err("filter: the right side has to be")),
        ];
        for (streams, status, expected) in table {
            let found = import(&an_import(&streams, &status)).map(|import| {
                let is_of_any = import.named.iter().any(|named| named.application.is_none());
                (import.subscription.map(|subscription| subscription.expression.to_string()), is_of_any)
            });
            match (found, expected) {
                (Ok((subscription, is_of_any)), Ok(expected)) => {
                    assert_eq!((subscription.as_deref(), is_of_any), expected, "{streams} {status}");
                }
                (Err(found), Err(expected)) => assert!(without_place(&found).starts_with(expected), "{found}"),
                (found, expected) => panic!("{found:?} {expected:?}: {streams} {status}"),
            }
        }
    }

    #[test]
    fn what_pes_are_told_of_a_filter_has_no_constants() {
        // filter -> what PEs are told, and whether the stream is asked for
        let table = [
            ("", Ok((None, true))),
            (" \t", Ok((None, true))),
            ("a < -1.5", Ok((Some("a < -1.5"), true))),
            ("hash == 5 && true", Ok((Some("hash == 5"), true))),
            ("true && a < -1e-05", Ok((Some("a < -1.0E-5"), true))),
            ("a == 1", Ok((Some("a == 1"), true))),
            ("a  ==  1", Ok((Some("a  ==  1"), true))),
            ("(a == 1) && true", Ok((Some("(a == 1)"), true))),
            ("false || a == true", Ok((Some("a == true"), true))),
            ("a == 1 || true", Ok((None, true))),
            ("true", Ok((None, true))),
            ("false", Ok((None, false))),
            ("false && (a == 1)", Ok((None, false))),
            ("!(a == 1 && true)", Ok((Some("!(a == 1)"), true))),
            ("a * 1.5 > 3 || true", Ok((None, true))),
            ("true == 1", Err("filter: PEs take true and false")),
            ("a * 1.5 > 3", Err("filter: PEs calculate with integers only")),
            ("a % 0 == 1 && true", Err("filter: PEs do not divide by zero")),
            ("!(a == 1 && b == 2)", Err("filter: ! stands before one attribute or one comparison")),
            ("a == b", Err("filter: the right side has to be")),
            ("a == - 1.5", Err("filter: an operand is expected")),
        ];
        for (filter, expected) in table {
            let streams = json!({"filter": filter, "nameBasedImports": {"0":
                {"applicationName": "", "applicationScope": "S", "streamName": "s", "importOperName": "In"}}});
            let told = import(&an_import(&streams, &json!(null)));
            let told = told.map(|import| (import.filter.clone(), !import.named.is_empty()));
            match (told, expected) {
                (Ok((told, asks)), Ok(expected)) => assert_eq!((told.as_deref(), asks), expected, "{filter}"),
                (Err(problem), Err(expected)) => assert!(without_place(&problem).starts_with(expected), "{problem}"),
                (told, expected) => panic!("{told:?} {expected:?}: {filter}"),
            }
        }
    }

    #[test]
    fn no_look_takes_more_than_its_octets_let_fear() {
        let octets = |object: Json| object.to_string().len();
        let with = |properties: &[Json]| json!({"stream": {"exportOperName": "Out", "properties": properties}});
        let of_run_time = |properties: &[Json]| json!({"runTime": {"properties": properties}});
        let (empty, many) = (|| property("", "", &[]), || property("", "", &[""; 1_000]));
        let lists: Vec<Json> = (0..100).map(|_| many()).collect();
        let exports = [
            (with(&[]), json!(null)),
            (with(&[empty()]), json!(null)),
            (with(&vec![empty(); 1_000]), json!(null)),
            (with(&[many()]), of_run_time(&[many()])),
            (with(&[]), of_run_time(&lists)),
        ];
        for (spec, status) in exports {
            let export = an_export(&spec, &status);
            let octets = octets(json!(export));
            let steps = least_steps(octets) + steps_of_export(&export);
            assert!(steps <= most_steps(octets), "{octets} octets: {steps}");
        }
        let named: BTreeMap<String, Json> = (0..1_000)
            .map(|number| {
                let named =
                    json!({"applicationName": "", "applicationScope": "", "streamName": "", "importOperName": ""});
                (number.to_string(), named)
            })
            .collect();
        let long = json!({"filter": "f".repeat(60_000), "nameBasedImports": named, "propertyBasedImport":
            {"subscription": "s".repeat(60_000), "applicationScope": "", "importOperName": "", "index": 0}});
        for (streams, status) in
            [(json!({}), json!(null)), (json!({}), json!({"runTime": {"streams": long}})), (long, json!(null))]
        {
            let import = an_import(&streams, &status);
            let octets = octets(json!(import));
            let steps = least_steps(octets) + steps_of_import(&import);
            assert!(steps <= most_steps(octets), "{octets} octets: {steps}");
        }
    }

    #[test]
    fn ports_are_those_of_the_objects_names() {
        let (empty, none) = (json!({}), json!(null));
        assert_eq!(output_port(&an_export(&empty, &none)).to_string(), "flow-3-2");
        assert_eq!(input_port(&an_import(&empty, &none)).to_string(), "flow-3-1");
    }
}
