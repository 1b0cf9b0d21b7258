//! What a stage says when it refuses its input.
//!
//! Every stage returns [`Error`]. If the input is at fault, the error holds *all* problems that the stage can see at
//! once (rule language-6). If the deadline passed or the caller cancelled, the error says nothing about the input. The
//! stages and codes are a contract (rule language-7); the wording is free.
//!
//! Knows: stages by name, codes, places in a document. Must not know: what a stage does, who is told.

use std::fmt;

/// Where in the compilation a problem was found (rules language-7 and layout-14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The choice of the fusion mode.
    FusionOption,
    /// Reading the ADL and binding submission-time values.
    LogicalModel,
    /// Expansion of parallel regions.
    Topology,
    /// Carrying indexes over from the layout of the running job.
    Transfer,
    /// Fusion constraints.
    Compose,
    /// Grouping of operators.
    Fuse,
    /// Writing of AADL documents.
    Aadl,
    /// Data about consistent regions for the controller.
    ConsistentRegions,
    /// One host per PE.
    HostPlacement,
    /// Isolated operators per PE.
    HostIsolation,
    /// One host pool per PE.
    HostPoolLocation,
}

impl Stage {
    /// The stage's name in `error.json` and in gRPC error details.
    pub fn name(self) -> &'static str {
        match self {
            Self::FusionOption => "fusion-option",
            Self::LogicalModel => "logical-model",
            Self::Topology => "topology",
            Self::Transfer => "transfer",
            Self::Compose => "compose",
            Self::Fuse => "fuse",
            Self::Aadl => "aadl",
            Self::ConsistentRegions => "consistent-regions",
            Self::HostPlacement => "host-placement",
            Self::HostIsolation => "host-isolation",
            Self::HostPoolLocation => "host-pool-location",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Message codes of the reference implementation, whose results are the contract (rule language-7). A condition that
/// has one always reports it.
pub mod code {
    /// Not well-formed XML, or no known ADL.
    pub const UNEXPECTED: &str = "CDISA5089E";
    /// A width is no integer.
    pub const SUBMISSION_PARAMETERS: &str = "CDISR1143E";
    /// A required submission-time value is missing.
    pub const SUBMISSION_MISSING: &str = "CDISR1146E";
    /// A submission-time value is given under two spellings.
    pub const SUBMISSION_DUPLICATE: &str = "CDISR1147E";
    /// A supplied name matches several submission-time values.
    pub const SUBMISSION_AMBIGUOUS: &str = "CDISR1148E";
    /// A width below 1.
    pub const WIDTH: &str = "CDISR1164E";
    /// An inconsistent application.
    pub const INCONSISTENT: &str = "CDISR1358E";
    /// Several start operators in an operator-driven consistent region.
    pub const SEVERAL_STARTS: &str = "CDISR1359E";
    /// The display submission-time value has neither value nor default.
    pub const DISPLAY: &str = "CDISR1378E";
    /// A resize names several regions.
    pub const SEVERAL_REGIONS: &str = "CDISR1405E";
    /// A resize names no region.
    pub const NO_REGION: &str = "CDISR1411E";
    /// Fusion constraints that no PE can satisfy.
    pub const CONSTRAINTS: &str = "CDISR3200E";
}

/// A line and column of the ADL, both counted from 1. Columns count bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Place {
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// One thing that is wrong with the input.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// Where in the compilation it was found.
    pub stage: Stage,
    /// One of [`code`], where the condition has one.
    pub code: Option<&'static str>,
    /// Where in the ADL it is, if the ADL is at fault.
    pub place: Option<Place>,
    /// One sentence that names the thing. It never repeats a whole value: see [`excerpt`].
    pub message: String,
}

impl Problem {
    /// Makes a problem without code and place.
    pub fn new(stage: Stage, message: impl Into<String>) -> Self {
        Self { stage, code: None, place: None, message: message.into() }
    }

    /// Sets the code.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// Sets the place.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place {
            write!(f, "{place}: ")?;
        }
        if let Some(code) = self.code {
            write!(f, "{code} ")?;
        }
        f.write_str(&self.message)
    }
}

/// Why a stage gave no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The input is wrong. The list is never empty. Its first problem gives the whole error its stage and code.
    Rejected(Vec<Problem>),
    /// The deadline of the budget passed.
    DeadlineExceeded,
    /// The caller does not want the answer any more.
    Cancelled,
}

impl Error {
    /// The problems, if the input is at fault.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Rejected(problems) => problems,
            Self::DeadlineExceeded | Self::Cancelled => &[],
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::Rejected(vec![problem])
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(problems) => {
                for (i, problem) in problems.iter().enumerate() {
                    if i > 0 {
                        f.write_str("; ")?;
                    }
                    write!(f, "{problem}")?;
                }
                Ok(())
            }
            Self::DeadlineExceeded => f.write_str("the deadline passed before the compilation was done"),
            Self::Cancelled => f.write_str("the compilation was cancelled"),
        }
    }
}

impl std::error::Error for Error {}

/// Collects problems in the order in which a stage finds them: each one once, and at most [`Problems::MOST`].
///
/// A stage that can go on after a problem adds it here and goes on. The first problem gives the whole error its stage
/// and code. So the order in which a stage looks for problems is part of its contract.
#[derive(Clone, Debug, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// The most problems that are kept. Nobody reads more problems of one stage.
    pub const MOST: usize = 100;

    /// Adds a problem, unless it is known already (all channels of an operator tend to have the same one).
    pub fn push(&mut self, problem: Problem) {
        if !self.is_full() && !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    /// Returns the value of a step. If the step refused its input, keeps its problems and returns nothing.
    ///
    /// # Errors
    /// The deadline passed or the caller cancelled.
    pub fn keep<T>(&mut self, result: Result<T, impl Into<Error>>) -> Result<Option<T>, Error> {
        match result.map_err(Into::into) {
            Ok(value) => Ok(Some(value)),
            Err(Error::Rejected(problems)) => {
                self.extend(problems);
                Ok(None)
            }
            Err(ended) => Err(ended),
        }
    }

    /// Whether no problem was added.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether further problems would be dropped, so that a stage can stop looking for them.
    pub fn is_full(&self) -> bool {
        self.0.len() >= Self::MOST
    }

    /// Ends a step.
    ///
    /// # Errors
    /// At least one problem was added. The error holds all of them.
    pub fn into_result(self) -> Result<(), Error> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::Rejected(self.0)) }
    }

    /// The problems.
    pub fn into_vec(self) -> Vec<Problem> {
        self.0
    }
}

impl Extend<Problem> for Problems {
    fn extend<I: IntoIterator<Item = Problem>>(&mut self, problems: I) {
        problems.into_iter().for_each(|problem| self.push(problem));
    }
}

/// The beginning of `text`, short enough for a message, with control characters escaped.
pub fn excerpt(text: &str) -> String {
    const MOST: usize = 80;
    // A resize has an excerpt of almost every operator of some jobs.
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\'' | b'\\');
    if text.len() <= MOST && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_place_code_message() {
        let problem = Problem::new(Stage::Topology, "operator 7: unknown host pool 3")
            .code(code::INCONSISTENT)
            .at(Place { line: 120, column: 15 });
        assert_eq!(problem.to_string(), "120:15: CDISR1358E operator 7: unknown host pool 3");
    }

    #[test]
    fn problems_are_kept_once_and_not_for_ever() {
        let mut problems = Problems::default();
        for number in 0..300 {
            problems.push(Problem::new(Stage::Topology, format!("{}", number / 2)));
        }
        assert!(problems.is_full());
        let problems = problems.into_result().unwrap_err();
        assert_eq!(problems.problems().len(), Problems::MOST);
        assert_eq!(problems.problems()[99].message, "99");
        assert_eq!(Problems::default().keep(Err::<(), _>(Error::Cancelled)), Err(Error::Cancelled));
    }

    #[test]
    fn excerpts_of_plain_texts_are_these_texts() {
        for character in (0..=0x17f).filter_map(char::from_u32) {
            assert_eq!(excerpt(&character.to_string()), character.escape_debug().to_string());
        }
        for length in 78..=82 {
            let text = "x".repeat(length);
            let expected = if length <= 80 { text.clone() } else { format!("{}…", "x".repeat(80)) };
            assert_eq!(excerpt(&text), expected);
        }
    }

    #[test]
    fn excerpts_are_short_and_printable() {
        assert_eq!(excerpt("a\nb"), "a\\nb");
        assert!(excerpt(&"x".repeat(1 << 20)).len() < 100);
    }
}
