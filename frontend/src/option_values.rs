//! Values of options, in the words of people: times, parts, lists of namespaces.
//!
//! Knows: forms and bounds. Must not know: which option has a value, which clap says in front of what is said here.
//!
//! What nothing could work with is refused at once. Otherwise nothing would say which option it was: with no time at
//! all for a call, every call of the API server ends as if that did not answer.

use std::str::FromStr;
use std::time::Duration;
use streams_kubernetes::object_names::check_namespace;

/// The longest time, in seconds: a day.
const LONGEST: f64 = 86_400.0;
/// The shortest time, in seconds, of whatever needs some. People write 0 for no bound at all.
const SHORTEST: f64 = 0.1;

/// A time in seconds, e.g. `2` or `0.5`, that something needs.
///
/// # Errors
/// A sentence that says what is wrong with the text.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    between(SHORTEST, text)
}

/// A time in seconds that may be none at all.
///
/// # Errors
/// A sentence that says what is wrong with the text.
pub(crate) fn seconds_or_none(text: &str) -> Result<Duration, String> {
    between(0.0, text)
}

fn between(shortest: f64, text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is not a number of seconds"))?;
    if !(shortest..=LONGEST).contains(&seconds) {
        return Err(format!("{text} is not between {shortest} and {LONGEST} seconds"));
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// A part of something.
///
/// # Errors
/// A sentence that says what is wrong with the text.
pub(crate) fn part(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err(format!("'{text}' is not between 0 and 1")),
    }
}

/// The namespaces of one value, with commas between them. An empty value has none, as where a variable is given without
/// anything in it; a comma is no empty value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namespaces(pub(crate) Vec<String>);

impl FromStr for Namespaces {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let names = text.split(',').map(|name| {
            // People write a blank after a comma.
            let name = name.trim();
            check_namespace(name).map(|()| name.to_owned()).map_err(|why| format!("'{name}': {why}"))
        });
        names.collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_bounds_and_none_at_all_is_one_only_where_that_means_something() {
        let day = Duration::from_secs(86_400);
        // text -> a time that is needed, one that may be none
        let table = [
            ("0.5", Some(Duration::from_millis(500)), Some(Duration::from_millis(500))),
            ("0.1", Some(Duration::from_millis(100)), Some(Duration::from_millis(100))),
            ("86400", Some(day), Some(day)),
            ("0.05", None, Some(Duration::from_millis(50))),
            ("0", None, Some(Duration::ZERO)),
            ("-1", None, None),
            ("86401", None, None),
            ("1e19", None, None),
            ("inf", None, None),
            ("NaN", None, None),
            ("", None, None),
            ("soon", None, None),
        ];
        for (text, needed, or_none) in table {
            assert_eq!((seconds(text).ok(), seconds_or_none(text).ok()), (needed, or_none), "{text}");
        }
        assert_eq!(seconds("0").unwrap_err(), "0 is not between 0.1 and 86400 seconds");
        assert_eq!(seconds_or_none("1e19").unwrap_err(), "1e19 is not between 0 and 86400 seconds");
    }

    #[test]
    fn namespaces_are_named_and_what_is_no_name_is_refused_by_its_own() {
        // text -> names, or the name that is refused
        let table: [(&str, Result<&[&str], &str>); 12] = [
            ("", Ok(&[])),
            ("team-a", Ok(&["team-a"])),
            ("team-a,7", Ok(&["team-a", "7"])),
            ("team-a, team-b", Ok(&["team-a", "team-b"])),
            (" team-a ,\tteam-b\n", Ok(&["team-a", "team-b"])),
            (",", Err("''")),
            (" ", Err("''")),
            ("team-a,", Err("''")),
            ("team-a,,team-b", Err("''")),
            ("team-a team-b", Err("'team-a team-b'")),
            ("team-a,Team-B", Err("'Team-B'")),
            ("team-a,*", Err("'*'")),
        ];
        for (text, expected) in table {
            match (text.parse::<Namespaces>(), expected) {
                (Ok(Namespaces(names)), Ok(expected)) => assert_eq!(names, expected, "{text:?}"),
                (Err(why), Err(name)) => {
                    assert!(why.starts_with(&format!("{name}: the name of a namespace is needed")), "{text:?}: {why}");
                }
                (parsed, _) => panic!("{text:?}: {parsed:?}"),
            }
        }
    }
}
