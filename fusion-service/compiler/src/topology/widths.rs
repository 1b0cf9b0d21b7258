//! Widths of parallel regions and the patterns that select regions (rules expansion-1 and expansion-2).

use super::Region;
use crate::budget::Limits;
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use crate::logical::submission::{Bindings, Literal};
use crate::logical::{Application, ParallelRegion, Width};
use std::collections::HashMap;

/// A pattern of region names: names, `.`, `[n]` and `*`; blanks are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// Stage `topology`: a character that is in no operator name.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let text: String = text.chars().filter(|c| !c.is_ascii_whitespace() && *c != '\x0b').collect();
        match text.chars().find(|c| !(in_name(*c) || matches!(c, '[' | ']' | '*'))) {
            None => Ok(Self { text }),
            Some(c) => {
                let message = format!("region pattern \"{}\": unexpected character {c:?}", excerpt(&text));
                Err(Problem::new(Stage::Topology, message).into())
            }
        }
    }

    /// Whether it can match only one name.
    pub fn is_exact(&self) -> bool {
        !self.text.contains('*')
    }

    /// Whether it matches the whole of `name`; a `*` stands for any characters.
    pub fn matches(&self, name: &str) -> bool {
        let mut pieces = self.text.split('*');
        let Some(rest) = pieces.next().and_then(|first| name.strip_prefix(first)) else { return false };
        let Some(last) = pieces.next_back() else { return rest.is_empty() };
        let Some(mut rest) = rest.strip_suffix(last) else { return false };
        for piece in pieces {
            let Some(at) = rest.find(piece) else { return false };
            rest = rest.get(at + piece.len()..).unwrap_or_default();
        }
        true
    }
}

/// Whether names of regions may have this character. A region with another could not be selected, not even to keep its
/// width.
fn in_name(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '.')
}

/// The one region that a resize names (rule expansion-3).
///
/// # Errors
///
/// Stage `topology`: the pattern has other characters. Stage `transfer`: no region matches (CDISR1411E), or several
/// (CDISR1405E).
pub fn find_region<'a>(regions: &'a [Region], pattern: &str) -> Result<&'a Region, Error> {
    let parsed = Pattern::parse(pattern)?;
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

/// The overrides of a job, ready to be asked. A job names each of its regions at every resize, and there may be
/// thousands.
pub(super) struct Overrides {
    /// By position, those that are a name: a text that equals the name of a region matches it and nothing else.
    names: HashMap<String, usize>,
    patterns: Vec<(usize, Pattern)>,
    widths: Vec<i128>,
}

impl Overrides {
    /// Patterns with a problem are left out.
    pub(super) fn parse(widths: &[(String, i128)], problems: &mut Problems) -> Result<Self, Error> {
        let mut overrides = Self { names: HashMap::new(), patterns: Vec::new(), widths: Vec::new() };
        for (position, (pattern, width)) in widths.iter().enumerate() {
            overrides.widths.push(*width);
            let Some(pattern) = problems.keep(Pattern::parse(pattern))? else { continue };
            if pattern.is_exact() {
                overrides.names.insert(pattern.text, position);
            } else {
                overrides.patterns.push((position, pattern));
            }
        }
        Ok(overrides)
    }

    /// The override for a region.
    fn of(&self, name: &str) -> Option<i128> {
        self.position(name).and_then(|position| self.widths.get(position)).copied()
    }

    /// Which override a region has: an exact name before patterns, then the last one (rule expansion-2).
    fn position(&self, name: &str) -> Option<usize> {
        let pattern = || self.patterns.iter().rev().find(|(_, pattern)| pattern.matches(name));
        self.names.get(name).copied().or_else(|| pattern().map(|(position, _)| *position))
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

/// Where the width of a region comes from at a submission with these widths, and what it is there. Nothing where a
/// submission would fail.
pub fn width_source<'a>(
    region: &ParallelRegion,
    name: &str,
    widths: &'a [(String, i128)],
    bindings: &Bindings,
) -> Option<(WidthSource<'a>, i128)> {
    let mut problems = Problems::default();
    let overrides = Overrides::parse(widths, &mut problems).ok().filter(|_| problems.is_empty())?;
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
    overrides: &Overrides,
    bindings: &Bindings,
    limits: &Limits,
) -> Result<u32, Problem> {
    let problem = |message: String| {
        Problem::new(Stage::Topology, format!("parallel region {}: {message}", excerpt(name))).at(region.place)
    };
    if let Some(character) = name.chars().find(|character| !in_name(*character)) {
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

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("P", "P", true),
            ("P", "PQ", false),
            (" P . Q ", "P.Q", true),
            ("P.Q", "PxQ", false),
            ("*", "P.Q", true),
            ("*Q", "P.Q", true),
            ("P*", "P", true),
            ("P*P", "P", false),
            ("*P*", "aPb", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXcYb", false),
            ("a*b*b", "ab", false),
            ("**", "", true),
            ("", "", true),
            ("P[1]", "P", false),
            ("P[1]", "P[1]", true),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_have_few_characters() {
        for pattern in ["P?", "P|Q", "a-b", "(P)", "P+", "\\", "$"] {
            assert_eq!(Pattern::parse(pattern).unwrap_err().problems()[0].stage, Stage::Topology, "{pattern}");
        }
    }

    #[test]
    fn an_exact_name_beats_patterns_and_the_last_wins() {
        let overrides = |widths: &[(&str, i128)]| {
            let widths: Vec<_> = widths.iter().map(|(p, w)| ((*p).to_owned(), *w)).collect();
            Overrides::parse(&widths, &mut Problems::default()).unwrap()
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
        let region = |name: &str| Region { index: 0, name: name.to_owned(), width: 1, global_max: 1 };
        let regions = [region("P1"), region("P2")];
        assert_eq!(find_region(&regions, "P2").unwrap().name, "P2");
        for (pattern, expected) in [("P3", Some("CDISR1411E")), ("P*", Some("CDISR1405E")), ("P+", None)] {
            assert_eq!(find_region(&regions, pattern).unwrap_err().problems()[0].code, expected, "{pattern}");
        }
    }
}
