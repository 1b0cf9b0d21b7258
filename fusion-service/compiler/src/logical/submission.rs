//! Submission-time values: binds the values that a job gives to those that the ADL declares
//! (rules model-6, model-7 and model-8).
//!
//! A job may give a value under three spellings: its name, `composite.name`, and the part of the latter behind its last
//! `:`. The text of a value is an SPL literal. The compiler does not evaluate it; the operator that reads it knows its
//! type.
//!
//! Knows: names, literals. Must not know: what a value is for.

use super::{Application, SubmissionValue};
use crate::budget::Budget;
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use crate::heap::{self, share_if_any};
use get_size2::{GetSize, GetSizeTracker};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The display for X windows. The runtime treats this value in a way of its own (rule model-9).
const DISPLAY: &str = "streams::pe.display";

/// The literal of every submission-time value of an application. The generations of a job share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings(Arc<Bound>);

#[derive(Debug, Default, PartialEq, Eq, GetSize)]
struct Bound {
    /// Ascending index.
    values: Vec<BoundValue>,
    #[get_size(size_fn = share_if_any)]
    display: Option<Arc<str>>,
    ignored: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, GetSize)]
struct BoundValue {
    index: u64,
    /// A given value, else the default of the ADL, as an SPL literal.
    #[get_size(size_fn = share_if_any)]
    literal: Option<Arc<str>>,
}

/// A value that the job gives. Nothing says how many declarations it fits, nor how long it is, so they share its
/// literals.
struct GivenValue<'g> {
    text: &'g str,
    /// Spellings of declarations that it is given under.
    fits: u32,
    /// Its literal, and the one that it has as a list.
    literals: [Option<Arc<str>>; 2],
}

impl<'g> GivenValue<'g> {
    fn new(text: &'g str) -> Self {
        Self { text, fits: 0, literals: [None, None] }
    }

    fn literal(&mut self, list: bool) -> Arc<str> {
        let known = &mut self.literals[usize::from(list)];
        Arc::clone(known.get_or_insert_with(|| quoted(self.text, list).into()))
    }
}

/// What a submission-time value stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Literal<'a> {
    /// There is no value of this index.
    Undeclared,
    /// It is optional, has no default and was not given.
    Absent,
    /// An SPL literal, with its quotes.
    Text(&'a str),
}

impl<'a> Literal<'a> {
    /// The literal without its first and last character: the text inside its quotes.
    pub fn unquoted(self) -> Option<&'a str> {
        let Self::Text(text) = self else { return None };
        let mut characters = text.chars();
        characters.next();
        characters.next_back();
        Some(characters.as_str())
    }
}

impl Bindings {
    /// The literal of the value with this ADL index.
    pub fn literal(&self, index: u64) -> Literal<'_> {
        let values = &self.0.values;
        match values.binary_search_by_key(&index, |value| value.index) {
            Ok(at) => match values.get(at).and_then(|value| value.literal.as_deref()) {
                Some(text) => Literal::Text(text),
                None => Literal::Absent,
            },
            Err(_) => Literal::Undeclared,
        }
    }

    /// `streams::pe.display` without its quotes; empty when the application has none (rule model-9).
    pub fn display(&self) -> &str {
        let text = self.0.display.as_deref().unwrap_or_default();
        text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
    }

    /// Names that the job gives and the ADL does not declare. They are ignored (CDISR1149W).
    pub fn ignored(&self) -> &[String] {
        &self.0.ignored
    }
}

impl GetSize for Bindings {
    /// Counts the whole value for every generation, because the other generations may be dropped first.
    fn get_heap_size_with_tracker<Tracker: GetSizeTracker>(&self, tracker: Tracker) -> (usize, Tracker) {
        (size_of::<Bound>() + heap::size(&*self.0), tracker)
    }
}

/// The spellings of a value, each once: its name, qualified, partly qualified.
fn spellings(value: &SubmissionValue) -> impl Iterator<Item = String> {
    let qualified = qualified(value);
    let partly = qualified.rsplit(':').next().map(str::to_owned).filter(|partly| *partly != qualified);
    [Some(value.name.clone()), Some(qualified), partly].into_iter().flatten()
}

fn qualified(value: &SubmissionValue) -> String {
    format!("{}.{}", value.composite, value.name)
}

/// Binds the values that a job gives.
///
/// # Errors
///
/// Stage `logical-model`: the display has no value (CDISR1378E); values missing (CDISR1146E) or given under two
/// spellings (CDISR1147E), in the order of the document; names that fit several values (CDISR1148E).
pub fn bind(application: &Application, given: &BTreeMap<String, String>) -> Result<Bindings, Error> {
    bind_within(application, given, &Budget::default())
}

/// The same within a budget.
pub(crate) fn bind_within(
    application: &Application,
    given: &BTreeMap<String, String>,
    budget: &Budget,
) -> Result<Bindings, Error> {
    let (bindings, problems) = bind_given(application, given, budget)?;
    problems.into_result().map(|()| bindings)
}

/// Binds as [`bind`] does and gives missing values a stand-in. The stand-in reads as a text, a number and a width, so
/// that later stages find no problems that only follow from the missing value.
///
/// # Errors
///
/// The budget ends.
pub(crate) fn bind_given(
    application: &Application,
    given: &BTreeMap<String, String>,
    budget: &Budget,
) -> Result<(Bindings, Problems), Error> {
    const STAND_IN: &str = "1";
    let mut pace = budget.pace();
    let mut problems = Vec::new();
    let mut display_missing = Vec::new();
    let mut given: BTreeMap<&str, GivenValue<'_>> =
        given.iter().map(|(name, text)| (name.as_str(), GivenValue::new(text))).collect();
    let mut bound = Bound::default();
    for value in &application.submission_values {
        pace.steps(8)?;
        let mut found = None;
        let mut twice = false;
        let mut display = false;
        for spelling in spellings(value) {
            display |= spelling == DISPLAY;
            if let Some(given) = given.get_mut(spelling.as_str()) {
                given.fits += 1;
                twice |= found.is_some();
                found.get_or_insert_with(|| given.literal(value.list));
            }
        }
        let problem = |code, what: &str| {
            let name = excerpt(&qualified(value));
            Problem::new(Stage::LogicalModel, format!("the submission-time value {name} {what}"))
                .code(code)
                .at(value.place)
        };
        if twice {
            problems.push(problem(code::SUBMISSION_DUPLICATE, "is given under more than one spelling"));
        } else if found.is_none() && value.required {
            problems.push(problem(code::SUBMISSION_MISSING, "is required, but it is not given"));
        }
        let stand_in = (found.is_none() && value.required).then(|| quoted(STAND_IN, value.list).into());
        let literal = found.or_else(|| value.default.as_deref().map(Arc::from));
        if display && literal.is_none() {
            display_missing.push(problem(code::DISPLAY, "has neither a value nor a default"));
        }
        if value.name == DISPLAY || qualified(value) == DISPLAY {
            bound.display.clone_from(&literal);
        }
        bound.values.push(BoundValue { index: value.index, literal: stand_in.or(literal) });
    }
    problems.sort_by_key(|problem| problem.place);
    for (name, GivenValue { fits, .. }) in given {
        if name != DISPLAY && fits == 0 {
            bound.ignored.push(name.to_owned());
        } else if name != DISPLAY && fits > 1 {
            let message = format!("{} names {fits} submission-time values", excerpt(name));
            problems.push(Problem::new(Stage::LogicalModel, message).code(code::SUBMISSION_AMBIGUOUS));
        }
    }
    // A missing display comes before everything else (rule model-9).
    let mut all = Problems::default();
    all.extend(display_missing.into_iter().chain(problems));
    Ok((Bindings(Arc::new(bound)), all))
}

/// The SPL literal of a given text (rule model-8): a list is split at every comma, nothing is trimmed.
fn quoted(text: &str, list: bool) -> String {
    let quote = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    if list { format!("[{}]", text.split(',').map(quote).collect::<Vec<_>>().join(",")) } else { quote(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application(values: &str) -> Application {
        let document = format!(
            r#"<applicationSet xmlns="http://www.ibm.com/xmlns/prod/streams/application/v4200"><splApplication name="A"
                applicationScope="" applicationDirectory="" outputDirectory="" buildId="" bundle="" productVersion="4.3"
                avoidRuntimeYield="auto"><hostpools/><tupleTypes/><primitiveOperDefinitions/><toolkits/><composites>
                <compositeOperInstances><compositeOperInstance name="A" index="0" definitionIndex="0"/></compositeOperInstances>
                </composites><submissionTimeValues>{values}</submissionTimeValues></splApplication></applicationSet>"#
        );
        crate::adl::parse(document.as_bytes(), &Budget::default()).unwrap()
    }

    fn value(index: u32, kind: &str, composite: &str, name: &str, rest: &str) -> String {
        format!(
            r#"<submissionTimeValue index="{index}" kind="{kind}" compositeName="{composite}" name="{name}" {rest}/>"#
        )
    }

    /// The literals by index, or the codes of the problems.
    fn bound(values: &[String], given: &[(&str, &str)]) -> Result<Vec<Option<String>>, Vec<&'static str>> {
        let given = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        match bind(&application(&values.concat()), &given) {
            Ok(bindings) => {
                Ok(bindings.0.values.iter().map(|value| value.literal.as_deref().map(str::to_owned)).collect())
            }
            Err(error) => Err(error.problems().iter().map(|problem| problem.code.unwrap()).collect()),
        }
    }

    #[test]
    fn three_spellings_are_accepted() {
        let values = [value(0, "named", "apps.parallel::Work", "width1", r#"defaultValue="&quot;1&quot;""#)];
        for (name, expected) in [
            ("width1", "\"5\""),
            ("apps.parallel::Work.width1", "\"5\""),
            ("Work.width1", "\"5\""),
            ("parallel::Work.width1", "\"1\""),
            ("Width1", "\"1\""),
        ] {
            assert_eq!(bound(&values, &[(name, "5")]), Ok(vec![Some(expected.to_owned())]), "{name}");
        }
    }

    #[test]
    fn literals_are_quoted() {
        let values =
            [value(0, "named", "C", "a", ""), value(1, "namedList", "C", "b", ""), value(2, "named", "C", "c", "")];
        let given = [("a", r#"x\"y""#), ("b", "1, 2,,")];
        let expected = vec![Some(r#""x\\\"y\"""#.to_owned()), Some(r#"["1"," 2","",""]"#.to_owned()), None];
        assert_eq!(bound(&values, &given), Ok(expected));
    }

    #[test]
    fn problems_come_in_the_order_of_the_table() {
        let required = r#"required="true" defaultValue="&quot;1&quot;""#;
        let first = value(1, "named", "C", "a", required);
        let second = value(0, "named", "C", "b", required);
        for (values, given, expected) in [
            (vec![first.clone(), second.clone()], vec![], vec!["CDISR1146E", "CDISR1146E"]),
            (vec![first.clone(), second.clone()], vec![("b", "1"), ("C.b", "1")], vec!["CDISR1146E", "CDISR1147E"]),
            (vec![second.clone(), first.clone()], vec![("b", "1"), ("C.b", "1")], vec!["CDISR1147E", "CDISR1146E"]),
            (
                vec![value(0, "named", "C", "l", ""), value(2, "named", "D", "l", ""), first.clone()],
                vec![("l", "1")],
                vec!["CDISR1146E", "CDISR1148E"],
            ),
            (vec![first, value(0, "named", "streams::pe", "display", "")], vec![], vec!["CDISR1378E", "CDISR1146E"]),
        ] {
            assert_eq!(bound(&values, &given), Err(expected));
        }
    }

    #[test]
    fn the_display_loses_one_pair_of_quotes() {
        let values = value(0, "named", "streams::pe", "display", "");
        let given = [("streams::pe.display".to_owned(), ":0".to_owned())].into_iter().collect();
        let bindings = bind(&application(&values), &given).unwrap();
        assert_eq!(bindings.display(), ":0");
        assert_eq!(bindings.literal(0), Literal::Text("\":0\""));
        assert_eq!(bindings.literal(1), Literal::Undeclared);
    }

    #[test]
    fn unknown_names_are_ignored_and_told() {
        let given = [("x".to_owned(), "1".to_owned())].into_iter().collect();
        assert_eq!(bind(&application(""), &given).unwrap().ignored(), ["x"]);
    }

    /// A document has room for 900,000 declarations, and a value may have a megabyte.
    #[test]
    fn declarations_share_the_literals_of_a_value() {
        let declared = |kind: &str, composite: &str, name: &str| {
            let values: Vec<String> = (0..1_000).map(|index| value(index, kind, composite, name, "")).collect();
            application(&values.concat())
        };
        let given = |name: &str| [(name.to_owned(), "\"".repeat(1 << 20))].into();
        for kind in ["named", "namedList"] {
            let (bindings, problems) = bind_given(&declared(kind, "C", "x"), &given("x"), &Budget::default()).unwrap();
            let problem = &problems.into_vec()[0];
            assert_eq!(problem.to_string(), "CDISR1148E x names 1000 submission-time values");
            let bytes = heap::size(&bindings);
            assert!((2 << 20..3 << 20).contains(&bytes), "{kind}: {bytes}");
        }
        // Nobody minds how many values the display names.
        let bindings = bind(&declared("named", "streams::pe", "display"), &given(DISPLAY)).unwrap();
        assert_eq!(bindings.display().len(), 2 << 20);
        let bytes = heap::size(&bindings);
        assert!((2 << 20..3 << 20).contains(&bytes), "{bytes}");
    }

    #[test]
    fn values_are_bound_within_the_budget() {
        let values: Vec<String> = (0..2_000).map(|index| value(index, "named", "C", "x", "")).collect();
        let bound = bind_within(&application(&values.concat()), &BTreeMap::new(), &Budget::cancelled());
        assert_eq!(bound, Err(Error::Cancelled));
    }
}
