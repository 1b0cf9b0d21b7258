//! `fusion-service check`: everything that is wrong with an application, with places and excerpts.
//!
//! [`streams_compiler::plan::check`] finds the problems. `excerpt` cuts lines out of the document, `bundled` finds
//! places in the ADL of a bundle.
//!
//! Knows: documents, places in them. Must not know: how a problem is found.

mod bundled;
mod excerpt;

use super::application::{Application, ApplicationArguments};
use super::options::{OutputArguments, OutputFormat};
use super::terminal::printable;
use super::{CommandFailure, exit};
use bundled::BundlePlaces;
use excerpt::{Excerpt, Lines};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use streams_bundle::{BuildId, Bundle};
use streams_compiler::error::{Error, Place, Problem, Problems, Stage};
use streams_compiler::phrase::counted;
use streams_compiler::plan::{self, Checked, Warning};

/// Characters of a file's name, of a message.
const NAME: usize = 200;
const MESSAGE: usize = 600;

/// Says everything that is wrong with an application: all problems of all stages that can be asked.
///
/// One line per problem, `file:line:column: [CODE: ]message [stage]`, and an excerpt of the document. Places in a
/// bundle are those of the ADL in it. Exit status 0: nothing is wrong; 3: the application or the request is at fault;
/// 2: arguments, files, or the form of the JSON input.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  fusion-service check app.adl
  fusion-service check app.sab --value threads=4 --width Work=10 --fusion manual:4
  fusion-service check app.adl --request request.json --resize Work=20 -o json")]
pub struct Arguments {
    /// What is checked.
    #[command(flatten)]
    pub application: ApplicationArguments,
    /// In which form to answer.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Runs the command; see [`Arguments`].
pub fn run(arguments: &Arguments) -> ExitCode {
    exit(checked(arguments))
}

fn checked(arguments: &Arguments) -> Result<bool, CommandFailure> {
    let application = arguments.application.read()?;
    let mut findings = Findings::of(&application)?;
    let document = application.document.as_deref().unwrap_or_default();
    let bundled = application.bundle.as_ref().map(|bundle| bundle.adl().as_bytes());
    if let Some(bundled) = bundled {
        findings.look_into_bundle(document, bundled);
    }
    let lines = Lines::find(bundled.unwrap_or(document), findings.places());
    let text = match arguments.output.output {
        OutputFormat::Text => findings.text(&printable(&application.name, NAME), &lines),
        OutputFormat::Json => findings.json(&printable(&application.name, NAME), &lines)?,
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Nobody reads on.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CommandFailure::new(error)),
        _ => Ok(findings.problems.is_empty()),
    }
}

/// The problems and warnings of the submission and of the resizes after it.
#[derive(Default)]
struct Findings {
    /// Each problem has its step: 0 is the submission.
    problems: Vec<(StepLabel, Problem)>,
    warnings: Vec<(StepLabel, Warning)>,
    /// Numbers of operators and PEs, if the submission has no problems.
    size: Option<(usize, usize)>,
}

/// A step of the chain: its number, and what it is called.
#[derive(Clone, Default)]
struct StepLabel(usize, String);

impl Findings {
    fn of(application: &Application) -> Result<Self, CommandFailure> {
        let mut findings = Self::default();
        // A wrong configuration is only one problem. The request without it may show others.
        let configuration = application.request.as_ref().err();
        let request = application.request.as_ref().unwrap_or(&application.unconfigured);
        let checked = match &application.document {
            Ok(document) => plan::check(document, request, &application.budget).map_err(CommandFailure::new)?,
            Err(bundle) => {
                let option = request.check().err();
                let problems = option.iter().chain([bundle]).flat_map(Error::problems).cloned().collect();
                Checked { compiled: None, problems, warnings: Vec::new() }
            }
        };
        let before = configuration.map_or(&[][..], Error::problems).iter().cloned();
        let submission = StepLabel::default();
        findings.problems = before.chain(checked.problems).map(|problem| (submission.clone(), problem)).collect();
        findings.warnings = checked.warnings.into_iter().map(|warning| (submission.clone(), warning)).collect();
        if let Some(BuildId::Differs { actual }) = application.bundle.as_ref().map(Bundle::build_id) {
            let message = format!("the build id of the bundle is not that of its content, {actual}");
            findings.warnings.push((submission, Warning { reason: "BuildIdDiffers", message }));
        }
        let Some(mut current) = checked.compiled.filter(|_| findings.problems.is_empty()) else { return Ok(findings) };
        findings.size = Some((current.topology().operators.len(), current.plan().elements.len()));
        for (number, (region, width)) in (1..).zip(&application.resizes) {
            let step = StepLabel(number, format!("resize {number} ({}={width})", printable(region, NAME)));
            let widths = [(region.clone(), *width)];
            match plan::resize(&current, &widths, application.policy, &application.state, &application.budget) {
                Ok(resized) => current = resized,
                // A failed resize leaves everything as it was.
                Err(error) => match error.problems() {
                    [] => return Err(CommandFailure::new(error)),
                    problems => findings.problems.extend(problems.iter().map(|p| (step.clone(), p.clone()))),
                },
            }
        }
        Ok(findings)
    }

    fn places(&self) -> impl Iterator<Item = Place> + Clone {
        self.problems.iter().filter_map(|(_, problem)| problem.place)
    }

    /// Whether every stage listed all of its problems. A stage stops at a maximal number of problems.
    fn complete(&self) -> bool {
        let mut counts: BTreeMap<(usize, Stage), usize> = BTreeMap::new();
        self.problems.iter().for_each(|(step, problem)| *counts.entry((step.0, problem.stage)).or_default() += 1);
        counts.values().all(|count| *count < Problems::MOST)
    }

    /// Turns the places of the compiled document into those of the bundle.
    fn look_into_bundle(&mut self, document: &[u8], bundled: &[u8]) {
        let mut places_in_bundle = BundlePlaces::new(document, bundled, self.places());
        for (_, problem) in &mut self.problems {
            problem.place = problem.place.map(|place| places_in_bundle.in_bundle(place));
        }
    }

    fn text(&self, name: &str, lines: &Lines<'_>) -> String {
        let mut text = String::new();
        for (step, problem) in &self.problems {
            let (stage, message) = (problem.stage, step.prefix(&problem.message));
            let code = problem.code.map(|code| format!("{code}: ")).unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = match problem.place {
                Some(place) => {
                    let drawn = lines.excerpt(place).map(|excerpt| excerpt.draw(place.line)).unwrap_or_default();
                    writeln!(text, "{name}:{place}: {code}{message} [{stage}]\n{drawn}")
                }
                None => writeln!(text, "{name}: {code}{message} [{stage}]\n"),
            };
        }
        for (step, warning) in &self.warnings {
            let _ = writeln!(text, "{name}: warning: {} [{}]\n", step.prefix(&warning.message), warning.reason);
        }
        let _ = write!(text, "{name}: ");
        let _ = match self.problems.len() {
            0 => write!(text, "no errors"),
            errors => write!(text, "{}", counted(errors, "error")),
        };
        if !self.complete() {
            text.push_str(" or more");
        }
        if !self.warnings.is_empty() {
            let _ = write!(text, ", {}", counted(self.warnings.len(), "warning"));
        }
        if let Some((operators, elements)) = self.size {
            let _ = write!(text, "; {} in {}", counted(operators, "operator"), counted(elements, "PE"));
        }
        text.push('\n');
        text
    }

    fn json(&self, name: &str, lines: &Lines<'_>) -> Result<String, CommandFailure> {
        let problems = self.problems.iter().map(|(step, problem)| ListedProblem {
            step: step.0,
            stage: problem.stage.name(),
            code: problem.code,
            line: problem.place.map(|place| place.line),
            column: problem.place.map(|place| place.column),
            message: printable(&problem.message, MESSAGE),
            excerpt: problem.place.and_then(|place| lines.excerpt(place)),
        });
        let warnings = self.warnings.iter().map(|(step, warning)| ListedWarning {
            step: step.0,
            reason: warning.reason,
            message: printable(&warning.message, MESSAGE),
        });
        let report = Report {
            file: name,
            good: self.problems.is_empty(),
            complete: self.complete(),
            problems: problems.collect(),
            warnings: warnings.collect(),
            operators: self.size.map(|(operators, _)| operators),
            processing_elements: self.size.map(|(_, elements)| elements),
        };
        let mut text = serde_json::to_string_pretty(&report).map_err(CommandFailure::new)?;
        text.push('\n');
        Ok(text)
    }
}

impl StepLabel {
    /// A message of this step.
    fn prefix(&self, message: &str) -> String {
        let message = printable(message, MESSAGE);
        if self.0 == 0 { message } else { format!("{}: {message}", self.1) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'f> {
    file: &'f str,
    good: bool,
    /// All problems are listed; a stage lists some hundred at most.
    complete: bool,
    problems: Vec<ListedProblem>,
    warnings: Vec<ListedWarning>,
    operators: Option<usize>,
    processing_elements: Option<usize>,
}

#[derive(Serialize)]
struct ListedProblem {
    /// 0 is the submission, 1 the first resize.
    step: usize,
    stage: &'static str,
    code: Option<&'static str>,
    line: Option<u32>,
    column: Option<u32>,
    message: String,
    excerpt: Option<Excerpt>,
}

#[derive(Serialize)]
struct ListedWarning {
    step: usize,
    reason: &'static str,
    message: String,
}
