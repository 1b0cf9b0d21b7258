//! Widths of parallel regions (rules expansion-1 and expansion-2).

use super::Region;
use crate::budget::Limits;
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use crate::logical::submission::{Bindings, Literal};
use crate::logical::{Application, ParallelRegion, Width};
use streams_region_names::{Pattern, Patterns, UnexpectedCharacter, is_name_character};

/// The one region that a resize names (rule expansion-3).
///
/// # Errors
///
/// Stage `topology`: the pattern has other characters. Stage `transfer`: no region matches (CDISR1411E), or several
/// (CDISR1405E).
pub fn find_region<'a>(regions: &'a [Region], pattern: &str) -> Result<&'a Region, Error> {
    let parsed = Pattern::parse(pattern).map_err(|unexpected| refused(&unexpected))?;
    let matching: Vec<&Region> = regions.iter().filter(|region| parsed.matches(&region.name)).collect();
    match matching.as_slice() {
        [region] => Ok(region),
        [] => {
            let message = format!("no parallel region matches \"{}\"", excerpt(pattern));
            Err(Problem::new(Stage::Transfer, message).code(code::NO_REGION).into())
        }
        several => {
            let names: Vec<&str> = several.iter().map(|region| region.name.as_str()).collect();
            let message =
                format!("\"{}\" matches several parallel regions: {}", excerpt(pattern), excerpt(&names.join(", ")));
            Err(Problem::new(Stage::Transfer, message).code(code::SEVERAL_REGIONS).into())
        }
    }
}

/// The problem of a pattern with another character.
fn refused(unexpected: &UnexpectedCharacter) -> Problem {
    let UnexpectedCharacter { pattern, character } = unexpected;
    let message = format!("region pattern \"{}\": unexpected character {character:?}", excerpt(pattern));
    Problem::new(Stage::Topology, message)
}

/// What a job says of its regions: their widths, for example. A job names each of its regions at every resize, and
/// there may be thousands.
pub(super) struct Overrides<T> {
    patterns: Patterns,
    /// By position of the pattern.
    values: Vec<T>,
}

impl<T: Copy> Overrides<T> {
    /// Patterns with a problem say nothing of any region.
    pub(super) fn parse(said: &[(String, T)], problems: &mut Problems) -> Self {
        let (patterns, malformed) = Patterns::parse(said.iter().map(|(pattern, _)| pattern.as_str()));
        problems.extend(malformed.iter().map(refused));
        Self { patterns, values: said.iter().map(|(_, value)| *value).collect() }
    }

    /// What the pattern says that counts for a region (rule expansion-2).
    pub(super) fn of(&self, name: &str) -> Option<T> {
        self.position(name).and_then(|position| self.values.get(position)).copied()
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.patterns.position(name)
    }
}

/// Where the width of a region comes from at a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WidthSource<'a> {
    /// The job, with this pattern.
    Job(&'a str),
    /// The ADL.
    Constant,
    /// The submission-time value of this ADL index.
    SubmissionValue(u64),
}

/// Where the width of a region comes from at a submission with these widths, and the width. Nothing if a submission
/// would fail.
pub fn width_source<'a>(
    region: &ParallelRegion,
    name: &str,
    widths: &'a [(String, i128)],
    bindings: &Bindings,
) -> Option<(WidthSource<'a>, i128)> {
    let mut problems = Problems::default();
    let overrides = Overrides::parse(widths, &mut problems);
    if !problems.is_empty() {
        return None;
    }
    if let Some((pattern, width)) = overrides.position(name).and_then(|position| widths.get(position)) {
        return Some((WidthSource::Job(pattern), *width));
    }
    match region.width {
        Width::Absent => None,
        Width::Constant(width) => Some((WidthSource::Constant, i128::from(width))),
        Width::SubmissionValue(index) => {
            Some((WidthSource::SubmissionValue(index), integer(bindings.literal(index).unquoted()?)?))
        }
    }
}

/// The width in force: override, else submission-time value, else constant.
pub(super) fn resolve(
    region: &ParallelRegion,
    name: &str,
    application: &Application,
    overrides: &Overrides<i128>,
    bindings: &Bindings,
    limits: &Limits,
) -> Result<u32, Problem> {
    let problem = |message: String| {
        Problem::new(Stage::Topology, format!("parallel region {}: {message}", excerpt(name))).at(region.place)
    };
    if let Some(character) = name.chars().find(|character| !is_name_character(*character)) {
        return Err(problem(format!("its name has the character {character:?}")));
    }
    let width = match (overrides.of(name), &region.width) {
        (Some(width), _) => width,
        (None, Width::Constant(width)) => i128::from(*width),
        (None, Width::Absent) => return Err(problem("it has no width".to_owned())),
        (None, Width::SubmissionValue(index)) => {
            let literal = bindings.literal(*index);
            let declared = application.submission_values.iter().find(|value| value.index == *index);
            match (literal, declared) {
                (Literal::Undeclared, _) | (_, None) => {
                    return Err(problem(format!("its width is the unknown submission-time value {index}")));
                }
                (Literal::Absent, Some(value)) => {
                    let name = excerpt(&value.name);
                    return Err(problem(format!("its width, the submission-time value {name}, has no value")));
                }
                (Literal::Text(_), Some(value)) => {
                    integer(literal.unquoted().unwrap_or_default()).ok_or_else(|| {
                        let name = excerpt(&value.name);
                        problem(format!("its width, the submission-time value {name}, is no integer"))
                            .code(code::SUBMISSION_PARAMETERS)
                    })?
                }
            }
        }
    };
    if width < 1 {
        return Err(problem(format!("{width} is not a valid width")).code(code::WIDTH));
    }
    match u32::try_from(width) {
        Ok(narrow) if u64::from(narrow) <= limits.width => Ok(narrow),
        _ => Err(problem(format!("the width {width} is above the limit of {}", limits.width))),
    }
}

/// `[+-]?[0-9]+`, without blanks; clamped to what fits.
fn integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(if text.starts_with('-') { i128::MIN } else { i128::MAX }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::ChannelCount;

    #[test]
    fn a_pattern_with_another_character_is_a_problem_of_the_job() {
        for (widths, expected) in [
            (&[("P", 1), (" P . * ", 2)][..], &[][..]),
            (
                &[("P?", 1), ("*", 2), ("a b-c", 3)],
                &[
                    "region pattern \"P?\": unexpected character '?'",
                    "region pattern \"ab-c\": unexpected character '-'",
                ],
            ),
        ] {
            let widths: Vec<_> = widths.iter().map(|(pattern, width)| ((*pattern).to_owned(), *width)).collect();
            let mut problems = Problems::default();
            Overrides::parse(&widths, &mut problems);
            let problems = problems.into_vec();
            assert!(problems.iter().all(|problem| problem.stage == Stage::Topology));
            assert_eq!(problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn an_exact_name_beats_patterns_and_the_last_wins() {
        let overrides = |widths: &[(&str, i128)]| {
            let widths: Vec<_> = widths.iter().map(|(p, w)| ((*p).to_owned(), *w)).collect();
            Overrides::parse(&widths, &mut Problems::default())
        };
        for (widths, expected) in [
            (&[("P", 1), ("*", 2)][..], Some(1)),
            (&[("*", 2), ("P*", 3)], Some(3)),
            (&[("P", 1), (" P", 4)], Some(4)),
            (&[("Q", 1)], None),
        ] {
            assert_eq!(overrides(widths).of("P"), expected, "{widths:?}");
        }
    }

    #[test]
    fn integers_have_no_blanks() {
        for (text, expected) in
            [("3", Some(3)), ("+3", Some(3)), ("-3", Some(-3)), (" 3", None), ("", None), ("3.0", None), ("+", None)]
        {
            assert_eq!(integer(text), expected, "{text}");
        }
        assert_eq!(integer(&"9".repeat(100)), Some(i128::MAX));
    }

    #[test]
    fn a_resize_names_exactly_one_region() {
        let region = |name: &str| Region {
            index: 0,
            name: name.to_owned(),
            width: 1,
            global_max: 1,
            channel_count: ChannelCount::Observed,
        };
        let regions = [region("P1"), region("P2")];
        assert_eq!(find_region(&regions, "P2").unwrap().name, "P2");
        for (pattern, expected) in [("P3", Some("CDISR1411E")), ("P*", Some("CDISR1405E")), ("P+", None)] {
            assert_eq!(find_region(&regions, pattern).unwrap_err().problems()[0].code, expected, "{pattern}");
        }
    }
}
