//! Widths of parallel regions (rules expansion-1 and expansion-2).
//!
//! Knows: what the ADL, the job and a resize say of a region, and which of it counts. Must not know: channels, what a
//! width costs beyond its limit.

use super::Region;
use crate::budget::{Budget, Limits, Pace};
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use crate::logical::submission::{Bindings, Literal};
use crate::logical::{Application, ParallelRegion, Width};
use smallvec::SmallVec;
use std::collections::HashMap;
use streams_region_names::{Pattern, Patterns, UnexpectedCharacter, is_name_character};

/// The one region that a resize names (rule expansion-3).
///
/// # Errors
///
/// As for [`RegionsByName::find`], without a budget.
pub fn find_region<'a>(regions: &'a [Region], pattern: &str) -> Result<&'a Region, Error> {
    let position = RegionsByName::new(regions).find(pattern, &mut Budget::default().pace())?;
    Ok(&regions[position])
}

/// Finds the regions of patterns: those of a job may be very many, and so may the patterns.
pub(crate) struct RegionsByName<'a> {
    regions: &'a [Region],
    /// The positions of the regions with each name.
    positions: HashMap<&'a str, SmallVec<[usize; 1]>>,
}

impl<'a> RegionsByName<'a> {
    pub(crate) fn new(regions: &'a [Region]) -> Self {
        let mut positions: HashMap<&str, SmallVec<[usize; 1]>> = HashMap::with_capacity(regions.len());
        for (position, region) in regions.iter().enumerate() {
            positions.entry(&region.name).or_default().push(position);
        }
        Self { regions, positions }
    }

    /// The position of the one region that a pattern of a resize matches (rule expansion-3).
    ///
    /// # Errors
    ///
    /// Stage `topology`: the pattern has other characters. Stage `transfer`: no region matches (CDISR1411E), or several
    /// (CDISR1405E). Or the budget ends.
    pub(crate) fn find(&self, pattern: &str, pace: &mut Pace<'_>) -> Result<usize, Error> {
        /// More names than a message has room for.
        const TOLD: usize = 100;
        let parsed = Pattern::parse(pattern).map_err(|unexpected| refused(&unexpected))?;
        match self.matching(&parsed, TOLD, pace)?.as_slice() {
            [position] => Ok(*position),
            [] => {
                let message = format!("no parallel region matches \"{}\"", excerpt(pattern));
                Err(Problem::new(Stage::Transfer, message).code(code::NO_REGION).into())
            }
            several => {
                let names: Vec<&str> = several.iter().map(|position| self.regions[*position].name.as_str()).collect();
                let message = format!(
                    "\"{}\" matches several parallel regions: {}",
                    excerpt(pattern),
                    excerpt(&names.join(", "))
                );
                Err(Problem::new(Stage::Transfer, message).code(code::SEVERAL_REGIONS).into())
            }
        }
    }

    /// Whether any region matches a pattern. None matches what is no pattern.
    pub(crate) fn has_match(&self, pattern: &str, pace: &mut Pace<'_>) -> Result<bool, Error> {
        match Pattern::parse(pattern) {
            Ok(parsed) => Ok(!self.matching(&parsed, 1, pace)?.is_empty()),
            Err(_) => Ok(false),
        }
    }

    /// The positions of the regions that match, `most` of them.
    fn matching(&self, pattern: &Pattern, most: usize, pace: &mut Pace<'_>) -> Result<SmallVec<[usize; 1]>, Error> {
        pace.step()?;
        if let Some(name) = pattern.exact_name() {
            return Ok(self.positions.get(name).cloned().unwrap_or_default());
        }
        let mut matching = SmallVec::new();
        for (position, region) in self.regions.iter().enumerate() {
            pace.steps(matching_steps(&region.name, pattern))?;
            if pattern.matches(&region.name) {
                matching.push(position);
                if matching.len() >= most {
                    break;
                }
            }
        }
        Ok(matching)
    }
}

/// How long comparing a name with a pattern takes, in steps of a [`Pace`]. Both may be long.
fn matching_steps(name: &str, pattern: &Pattern) -> u32 {
    const BYTES_A_STEP: usize = 64;
    u32::try_from(1 + (name.len() + pattern.length()) / BYTES_A_STEP).unwrap_or(u32::MAX)
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
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub(super) fn of(&self, name: &str, pace: &mut Pace<'_>) -> Result<Option<T>, Error> {
        Ok(self.position(name, pace)?.and_then(|position| self.values.get(position)).copied())
    }

    fn position(&self, name: &str, pace: &mut Pace<'_>) -> Result<Option<usize>, Error> {
        self.patterns.try_position(name, |pattern| pace.steps(matching_steps(name, pattern)))
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

/// Says where the widths of regions come from at a submission.
pub struct WidthSources<'a> {
    widths: &'a [(String, i128)],
    /// Nothing if a submission would fail.
    overrides: Option<Overrides<i128>>,
    integers: Integers<'a>,
}

impl<'a> WidthSources<'a> {
    /// At a submission with these widths and values.
    pub fn new(widths: &'a [(String, i128)], bindings: &'a Bindings) -> Self {
        let mut problems = Problems::default();
        let overrides = Overrides::parse(widths, &mut problems);
        Self { widths, overrides: problems.is_empty().then_some(overrides), integers: Integers::new(bindings) }
    }

    /// Where the width of a region comes from, and the width. Nothing if a submission would fail.
    ///
    /// # Errors
    ///
    /// The budget ends.
    pub fn of(
        &mut self,
        region: &ParallelRegion,
        name: &str,
        pace: &mut Pace<'_>,
    ) -> Result<Option<(WidthSource<'a>, i128)>, Error> {
        let Some(overrides) = &self.overrides else { return Ok(None) };
        if let Some((pattern, width)) = overrides.position(name, pace)?.and_then(|position| self.widths.get(position)) {
            return Ok(Some((WidthSource::Job(pattern), *width)));
        }
        Ok(match region.width {
            Width::Absent => None,
            Width::Constant(width) => Some((WidthSource::Constant, i128::from(width))),
            Width::SubmissionValue(index) => {
                let width = self.integers.of(index, pace)?;
                width.map(|width| (WidthSource::SubmissionValue(index), width))
            }
        })
    }
}

/// Submission-time values as integers. Each is read once: it may be long, and many regions may refer to it.
pub(super) struct Integers<'a> {
    bindings: &'a Bindings,
    known: HashMap<u64, Option<i128>>,
}

impl<'a> Integers<'a> {
    pub(super) fn new(bindings: &'a Bindings) -> Self {
        Self { bindings, known: HashMap::new() }
    }

    /// The value of this ADL index. Nothing if there is none, or it is no integer.
    ///
    /// # Errors
    ///
    /// The budget ends.
    fn of(&mut self, index: u64, pace: &mut Pace<'_>) -> Result<Option<i128>, Error> {
        pace.step()?;
        if let Some(known) = self.known.get(&index) {
            return Ok(*known);
        }
        let text = self.bindings.literal(index).unquoted();
        // Each digit takes some nanoseconds.
        pace.steps(text.map_or(0, |text| u32::try_from(text.len() / 8).unwrap_or(u32::MAX)))?;
        let integer = text.and_then(integer);
        self.known.insert(index, integer);
        Ok(integer)
    }
}

/// The width in force: `said` by the job, else submission-time value, else constant.
///
/// # Errors
///
/// Stage `topology`: the region has no width, or one that is not allowed. Or the budget ends.
pub(super) fn resolve(
    region: &ParallelRegion,
    name: &str,
    application: &Application,
    said: Option<i128>,
    integers: &mut Integers<'_>,
    limits: &Limits,
    pace: &mut Pace<'_>,
) -> Result<u32, Error> {
    pace.step()?;
    let problem = |message: String| {
        Problem::new(Stage::Topology, format!("parallel region {}: {message}", excerpt(name))).at(region.place)
    };
    if let Some(character) = name.chars().find(|character| !is_name_character(*character)) {
        return Err(problem(format!("its name has the character {character:?}")).into());
    }
    let width = match (said, &region.width) {
        (Some(width), _) => width,
        (None, Width::Constant(width)) => i128::from(*width),
        (None, Width::Absent) => return Err(problem("it has no width".to_owned()).into()),
        (None, Width::SubmissionValue(index)) => {
            let declared = application.submission_value(*index);
            match (integers.bindings.literal(*index), declared) {
                (Literal::Undeclared, _) | (_, None) => {
                    return Err(problem(format!("its width is the unknown submission-time value {index}")).into());
                }
                (Literal::Absent, Some(value)) => {
                    let name = excerpt(&value.name);
                    return Err(problem(format!("its width, the submission-time value {name}, has no value")).into());
                }
                (Literal::Text(_), Some(value)) => integers.of(*index, pace)?.ok_or_else(|| {
                    let name = excerpt(&value.name);
                    problem(format!("its width, the submission-time value {name}, is no integer"))
                        .code(code::SUBMISSION_PARAMETERS)
                })?,
            }
        }
    };
    if width < 1 {
        return Err(problem(format!("{width} is not a valid width")).code(code::WIDTH).into());
    }
    match u32::try_from(width) {
        Ok(narrow) if u64::from(narrow) <= limits.width => Ok(narrow),
        _ => Err(problem(format!("the width {width} is above the limit of {}", limits.width)).into()),
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
            let budget = Budget::default();
            assert_eq!(overrides(widths).of("P", &mut budget.pace()), Ok(expected), "{widths:?}");
        }
    }

    /// Regions `P0`, `P1` and so on.
    fn regions(count: u32) -> Vec<Region> {
        let name = |number| format!("P{number}");
        let region =
            |index, name| Region { index, name, width: 1, global_max: 1, channel_count: ChannelCount::Observed };
        (0..count).map(|number| region(number.into(), name(number))).collect()
    }

    #[test]
    fn patterns_are_tried_within_the_budget() {
        let cancelled = Budget::cancelled();
        let widths: Vec<(String, i128)> = (0..10_000).map(|number| (format!("*x{number}"), 1)).collect();
        let overrides = Overrides::parse(&widths, &mut Problems::default());
        assert_eq!(overrides.of("P", &mut cancelled.pace()), Err(Error::Cancelled));
        let bindings = Bindings::default();
        let region = ParallelRegion {
            index: 0,
            operator: 0,
            width: Width::Constant(1),
            splitters: Vec::new(),
            replicate_tags: Vec::new(),
            place: crate::error::Place { line: 1, column: 1 },
        };
        let mut sources = WidthSources::new(&widths, &bindings);
        assert_eq!(sources.of(&region, "P", &mut cancelled.pace()), Err(Error::Cancelled));
        assert_eq!(sources.of(&region, "P", &mut Budget::default().pace()), Ok(Some((WidthSource::Constant, 1))));
        let regions = regions(10_000);
        let regions = RegionsByName::new(&regions);
        assert_eq!(regions.find("*x", &mut cancelled.pace()), Err(Error::Cancelled));
        assert_eq!(regions.has_match("*x", &mut cancelled.pace()), Err(Error::Cancelled));
        // A long name counts for more.
        assert_eq!(overrides_of_long_name(&widths[..10], &cancelled), Err(Error::Cancelled));
    }

    #[test]
    fn a_long_pattern_counts_for_more() {
        let cancelled = Budget::cancelled();
        let long = "*x".repeat(1 << 19);
        let overrides = Overrides::parse(&[(long.clone(), 1)], &mut Problems::default());
        assert_eq!(overrides.of("P", &mut cancelled.pace()), Err(Error::Cancelled));
        let regions = regions(100);
        let regions = RegionsByName::new(&regions);
        assert_eq!(regions.find(&long, &mut cancelled.pace()), Err(Error::Cancelled));
        // Stars in a row are one, so no comparison looks at each of them.
        let stars = "*".repeat(1 << 20);
        assert_eq!(regions.has_match(&(stars + "Q"), &mut cancelled.pace()), Ok(false));
    }

    fn overrides_of_long_name(widths: &[(String, i128)], budget: &Budget) -> Result<Option<i128>, Error> {
        let overrides = Overrides::parse(widths, &mut Problems::default());
        overrides.of(&"P".repeat(1 << 20), &mut budget.pace())
    }

    /// A name is looked up: for each of them, not one other region is looked at.
    #[test]
    fn names_are_looked_up() {
        let regions = regions(5_000);
        let (by_name, cancelled) = (RegionsByName::new(&regions), Budget::cancelled());
        let mut pace = cancelled.pace();
        for (position, region) in regions.iter().enumerate() {
            assert_eq!(by_name.find(&format!(" {}", region.name), &mut pace), Ok(position));
        }
        for (pattern, expected) in [("P1", true), ("P*9", true), ("Q", false), ("*Q", false), ("P?", false)] {
            assert_eq!(by_name.has_match(pattern, &mut Budget::default().pace()), Ok(expected), "{pattern}");
        }
        let several = by_name.find("P*", &mut Budget::default().pace()).unwrap_err();
        assert!(several.to_string().contains("matches several parallel regions: P0, P1, P2, "), "{several}");
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
