//! Submission-time values: binds the values that a job gives to those that the ADL declares
//! (rules model-6, model-7 and model-8).
//!
//! A job may give a value under three spellings: its name, `composite.name`, and the part of the latter behind its last
//! `:`. The text of a value is an SPL literal. The compiler does not evaluate it; the operator that reads it knows its
//! type.

use super::{Application, SubmissionValue};
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use std::collections::BTreeMap;

/// The display for X windows. The runtime treats this value in a way of its own (rule model-9).
const DISPLAY: &str = "streams::pe.display";

/// The literal of every submission-time value of an application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    /// By index, ascending: a given value, else the default of the ADL, as an SPL literal.
    literals: Vec<(u64, Option<String>)>,
    display: Option<String>,
    ignored: Vec<String>,
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
        match self.literals.binary_search_by_key(&index, |(index, _)| *index) {
            Ok(at) => match self.literals.get(at) {
                Some((_, Some(text))) => Literal::Text(text),
                _ => Literal::Absent,
            },
            Err(_) => Literal::Undeclared,
        }
    }

    /// `streams::pe.display` without its quotes; empty when the application has none (rule model-9).
    pub fn display(&self) -> &str {
        let text = self.display.as_deref().unwrap_or_default();
        text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
    }

    /// Names that the job gives and the ADL does not declare. They are ignored (CDISR1149W).
    pub fn ignored(&self) -> &[String] {
        &self.ignored
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
    let (bindings, problems) = bind_given(application, given);
    problems.into_result().map(|()| bindings)
}

/// Binds as [`bind`] does and gives missing values a stand-in. The stand-in reads as a text, a number and a width, so
/// that later stages find no problems that only follow from the missing value.
pub(crate) fn bind_given(application: &Application, given: &BTreeMap<String, String>) -> (Bindings, Problems) {
    const STAND_IN: &str = "1";
    let mut problems = Vec::new();
    let mut display_missing = Vec::new();
    let mut matches: BTreeMap<&str, u32> = given.keys().map(|name| (name.as_str(), 0)).collect();
    let mut bindings = Bindings::default();
    for value in &application.submission_values {
        let mut found = None;
        let mut twice = false;
        let mut display = false;
        for spelling in spellings(value) {
            display |= spelling == DISPLAY;
            if let Some((text, count)) = given.get(&spelling).zip(matches.get_mut(spelling.as_str())) {
                *count += 1;
                twice |= found.is_some();
                found.get_or_insert(text);
            }
        }
        let name = excerpt(&qualified(value));
        let problem = |code, what: &str| {
            Problem::new(Stage::LogicalModel, format!("the submission-time value {name} {what}"))
                .code(code)
                .at(value.place)
        };
        if twice {
            problems.push(problem(code::SUBMISSION_DUPLICATE, "is given under more than one spelling"));
        } else if found.is_none() && value.required {
            problems.push(problem(code::SUBMISSION_MISSING, "is required, but it is not given"));
        }
        let stand_in = (found.is_none() && value.required).then(|| quoted(STAND_IN, value.list));
        let default = || value.default.clone();
        let literal = found.map(|text| quoted(text, value.list)).or_else(default);
        if display && literal.is_none() {
            display_missing.push(problem(code::DISPLAY, "has neither a value nor a default"));
        }
        if value.name == DISPLAY || qualified(value) == DISPLAY {
            bindings.display.clone_from(&literal);
        }
        bindings.literals.push((value.index, stand_in.or(literal)));
    }
    problems.sort_by_key(|problem| problem.place);
    for (name, count) in matches {
        if name != DISPLAY && count == 0 {
            bindings.ignored.push(name.to_owned());
        } else if name != DISPLAY && count > 1 {
            let message = format!("{} names {count} submission-time values", excerpt(name));
            problems.push(Problem::new(Stage::LogicalModel, message).code(code::SUBMISSION_AMBIGUOUS));
        }
    }
    // A missing display comes before everything else (rule model-9).
    let mut all = Problems::default();
    all.extend(display_missing.into_iter().chain(problems));
    (bindings, all)
}

/// The SPL literal of a given text (rule model-8): a list is split at every comma, nothing is trimmed.
fn quoted(text: &str, list: bool) -> String {
    let quote = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    if list { format!("[{}]", text.split(',').map(quote).collect::<Vec<_>>().join(",")) } else { quote(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

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
            Ok(bindings) => Ok(bindings.literals.into_iter().map(|(_, literal)| literal).collect()),
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
}
