//! `fusion-service explain`: why an application is compiled as it is, and what its resizes do (rule service-26).

use super::application::{Application, ApplicationArguments};
use super::options::{OutputArguments, OutputFormat};
use super::{CommandFailure, exit};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use streams_compiler::error::{Error, Problem, excerpt};
use streams_compiler::explain::{Account, explain};
use streams_compiler::plan::{self, Compiled};

/// Explains a compilation: parallel regions and where their widths come from, why there are so many processing
/// elements, which constraints decided each, and what every resize does to them and why.
///
/// Exit status 0: every step gave a plan; 3: the application or a resize is at fault, see standard error; 2: arguments,
/// files, or the form of the request.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  fusion-service explain app.adl
  fusion-service explain app.sab --fusion manual:4 --width Work=3 --value ns::Main.topic=news
  fusion-service explain app.adl --fusion automatic --fusion-type channelIsolation
  fusion-service explain app.adl --width Work=3 --resize Work=10 --resize Work=3
  fusion-service explain app.adl --fusion manual:4 --resize Work=10 --closed-pe 0
  fusion-service explain app.adl --request request.json -o json | jq '.steps[-1].processingElements[] | select(.fate == \"restarted\")'")]
pub struct Arguments {
    /// What is compiled.
    #[command(flatten)]
    pub application: ApplicationArguments,
    /// In which form to answer.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// The answer as JSON.
#[derive(Serialize)]
struct ExplainAnswer {
    /// The submission, then the resizes.
    steps: Vec<StepAnswer>,
}

/// One step: the resize, and its account or its problems.
#[derive(Serialize)]
struct StepAnswer {
    /// The resize; none for the submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    resized: Option<Resized>,
    #[serde(flatten)]
    outcome: StepOutcome,
}

#[derive(Serialize)]
struct Resized {
    /// Pattern, as given.
    region: String,
    width: i128,
}

#[derive(Serialize)]
#[serde(untagged)]
enum StepOutcome {
    Explained(Box<Account>),
    Refused { problems: Vec<Problem> },
}

/// Runs the command; see [`Arguments`].
pub fn run(arguments: &Arguments) -> ExitCode {
    exit(explain_application(arguments))
}

/// Whether every step gave a plan.
fn explain_application(arguments: &Arguments) -> Result<bool, CommandFailure> {
    let application = arguments.application.read()?;
    let mut output = BufWriter::new(io::stdout().lock());
    let good = match arguments.output.output {
        OutputFormat::Text => steps(&application, |step, resized, outcome| {
            write_step(&mut output, step, resized, outcome).map_err(unwritable)
        }),
        OutputFormat::Json => {
            let mut answer = ExplainAnswer { steps: Vec::new() };
            let good = steps(&application, |_, resized, outcome| {
                let resized = resized.map(|(region, width)| Resized { region: region.clone(), width: *width });
                let outcome = match outcome {
                    Ok(account) => StepOutcome::Explained(Box::new(account)),
                    Err(error) => StepOutcome::Refused { problems: error.problems().to_vec() },
                };
                answer.steps.push(StepAnswer { resized, outcome });
                Ok(())
            });
            let written = serde_json::to_writer_pretty(&mut output, &answer).map_err(io::Error::from);
            written.and_then(|()| output.write_all(b"\n")).map_err(unwritable)?;
            good
        }
    }?;
    output.flush().map_err(unwritable)?;
    Ok(good)
}

/// A step as text.
fn write_step(
    output: &mut impl Write,
    step: usize,
    resized: Option<&(String, i128)>,
    outcome: Result<Account, Error>,
) -> io::Result<()> {
    if let Some((region, width)) = resized {
        writeln!(output, "\n--- resize {step}: {} = {width} ---\n", excerpt(region))?;
    }
    match outcome {
        Ok(account) => write!(output, "{account}"),
        Err(_) if resized.is_some() => writeln!(output, "refused; the job stays as it was"),
        Err(_) => Ok(()),
    }
}

fn unwritable(error: io::Error) -> CommandFailure {
    CommandFailure::new(format_args!("standard output: {error}"))
}

/// Compiles and explains the submission, then each resize. A resize that is refused leaves the job as it was. Problems
/// go to standard error. Returns whether there were none.
fn steps(
    application: &Application,
    mut report: impl FnMut(usize, Option<&(String, i128)>, Result<Account, Error>) -> Result<(), CommandFailure>,
) -> Result<bool, CommandFailure> {
    let budget = &application.budget;
    let print_problems = |error: &Error| eprint!("{}", application.problem_lines(error));
    let submitted = application.open().and_then(|(source, request)| {
        let compiled = plan::submit(&source, &request, budget)?;
        let account = explain(&compiled, None, budget)?;
        Ok((compiled, account))
    });
    let mut current: Compiled = match submitted {
        Ok((compiled, account)) => {
            report(0, None, Ok(account))?;
            compiled
        }
        Err(error) => {
            print_problems(&error);
            report(0, None, Err(error))?;
            return Ok(false);
        }
    };
    let mut good = true;
    for (number, resize) in (1..).zip(&application.resizes) {
        let widths = std::slice::from_ref(resize);
        let resized = plan::resize(&current, widths, application.policy, &application.state, budget);
        let explained = resized.and_then(|compiled| {
            let account = explain(&compiled, Some(&current), budget)?;
            Ok((compiled, account))
        });
        match explained {
            Ok((compiled, account)) => {
                report(number, Some(resize), Ok(account))?;
                current = compiled;
            }
            Err(error) => {
                good = false;
                print_problems(&error);
                report(number, Some(resize), Err(error))?;
            }
        }
    }
    Ok(good)
}
