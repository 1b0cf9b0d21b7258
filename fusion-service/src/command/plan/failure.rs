//! `error.json` (rule service-23).

use serde::Serialize;
use streams_compiler::error::{Error, Problem, Stage};

/// Problems that are listed, and characters of a message: the file stays far below 64 KiB.
const MOST_PROBLEMS: usize = 24;
const MOST_CHARACTERS: usize = 600;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ErrorFile {
    kind: &'static str,
    stage: &'static str,
    code: Option<&'static str>,
    message: String,
    line: Option<u32>,
    column: Option<u32>,
    /// All problems that the stage saw, as far as there is room.
    problems: Vec<ErrorEntry>,
    /// How many there are.
    problem_count: usize,
}

#[derive(Serialize)]
struct ErrorEntry {
    stage: &'static str,
    code: Option<&'static str>,
    message: String,
    line: Option<u32>,
    column: Option<u32>,
}

impl ErrorFile {
    pub(super) fn new(error: &Error) -> Self {
        let unfinished = [Problem::new(Stage::LogicalModel, error.to_string())];
        let problems = match error.problems() {
            [] => &unfinished,
            problems => problems,
        };
        let listed: Vec<ErrorEntry> = problems.iter().take(MOST_PROBLEMS).map(listed).collect();
        let first = listed.first();
        Self {
            kind: "user-error",
            stage: first.map_or(Stage::LogicalModel.name(), |first| first.stage),
            code: first.and_then(|first| first.code),
            message: first.map_or_else(String::new, |first| first.message.clone()),
            line: first.and_then(|first| first.line),
            column: first.and_then(|first| first.column),
            problem_count: problems.len(),
            problems: listed,
        }
    }
}

fn listed(problem: &Problem) -> ErrorEntry {
    ErrorEntry {
        stage: problem.stage.name(),
        code: problem.code,
        message: problem.message.chars().take(MOST_CHARACTERS).collect(),
        line: problem.place.map(|place| place.line),
        column: problem.place.map(|place| place.column),
    }
}
