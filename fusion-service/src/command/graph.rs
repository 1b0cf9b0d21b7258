//! `fusion-service graph`: pictures of an application, and of what a resize does to it.

use super::application::{Application, ApplicationArguments};
use super::{CommandFailure, exit};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use streams_compiler::error::Error;
use streams_compiler::plan::{self, Compiled, Source};
use streams_graph::{Drawing, DrawingLimits, Widths};

/// Draws an application as a graph: as written, as it runs, or as processing elements.
///
/// With --resize, what the last resize does shows as a difference: processing elements and operators are kept,
/// restarted, added or removed. What is too much for one picture is folded ("channels 1–9, like channel 0"). Exit
/// status 0: drawn; 3: the application is at fault; 2: arguments and files.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  fusion-service graph app.sab --out app.svg
  fusion-service graph app.adl --view physical --width Work=3 --format mermaid
  fusion-service graph app.adl --fusion manual:4 --resize Work=4 --out resize.svg
  fusion-service graph app.adl --view logical --format dot | dot -Tpng -o app.png")]
pub struct Arguments {
    /// What is compiled.
    #[command(flatten)]
    pub application: ApplicationArguments,
    /// What is drawn.
    #[arg(long, value_enum, default_value_t = View::Fused)]
    pub view: View,
    /// How it is written [default: as the name of the --out file ends; svg without an ending].
    #[arg(long, short = 'o', value_enum)]
    pub format: Option<Format>,
    /// Where to write [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Boxes in one picture, those around others included; what is more is folded.
    #[arg(long, value_name = "N", default_value_t = DrawingLimits::BOXES,
        value_parser = clap::value_parser!(u32).range(2..=20_000))]
    pub max_nodes: u32,
}

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum View {
    /// The application as written: composites and parallel regions.
    Logical,
    /// The application as it runs: every channel, with composites.
    Physical,
    /// The application as processing elements.
    Fused,
}

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For Graphviz.
    Dot,
    /// For Mermaid, which many wikis show.
    Mermaid,
    /// A picture for browsers and documents.
    Svg,
}

impl Format {
    /// As the name of a file ends; a picture, if it has no ending.
    fn of(path: &Path) -> Result<Self, CommandFailure> {
        let Some(ending) = path.extension() else { return Ok(Self::Svg) };
        match ending.to_ascii_lowercase().to_str() {
            Some("dot" | "gv") => Ok(Self::Dot),
            Some("mmd" | "mermaid") => Ok(Self::Mermaid),
            Some("svg") => Ok(Self::Svg),
            _ => {
                let known = "the name ends in none of .svg, .dot, .gv, .mmd and .mermaid: say which --format is wanted";
                Err(CommandFailure::at(path, known))
            }
        }
    }
}

/// Runs the command; see [`Arguments`].
pub fn run(arguments: &Arguments) -> ExitCode {
    exit(draw(arguments))
}

/// Whether there is a picture.
fn draw(arguments: &Arguments) -> Result<bool, CommandFailure> {
    let format = match (arguments.format, &arguments.out) {
        (Some(format), _) => format,
        (None, Some(path)) => Format::of(path)?,
        (None, None) => Format::Svg,
    };
    let application = arguments.application.read()?;
    let mut limits = DrawingLimits::of_boxes(arguments.max_nodes as usize);
    if format == Format::Mermaid {
        limits.edges = limits.edges.min(streams_graph::MOST_MERMAID_EDGES);
    }
    let drawing = match drawing(&application, arguments.view, limits) {
        Ok(drawing) => drawing,
        Err(error) => {
            eprint!("{}", application.problem_lines(&error));
            return Ok(false);
        }
    };
    let text = match format {
        Format::Dot => drawing.to_dot(),
        Format::Mermaid => drawing.to_mermaid(),
        Format::Svg => drawing.to_svg(),
    };
    match &arguments.out {
        Some(path) => std::fs::write(path, text).map_err(|error| CommandFailure::at(path, error))?,
        None => match std::io::stdout().lock().write_all(text.as_bytes()) {
            // The reader has closed the pipe.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            written => written.map_err(|error| CommandFailure::new(format!("standard output: {error}")))?,
        },
    }
    Ok(true)
}

/// The picture, or what is wrong with the application.
fn drawing(application: &Application, view: View, limits: DrawingLimits) -> Result<Drawing, Error> {
    let budget = &application.budget;
    if view == View::Logical && application.resizes.is_empty() {
        // An application that lacks submission-time values can be drawn as written, with the widths of the ADL.
        let source = match application.open() {
            Ok((source, request)) => {
                if let Ok(now) = plan::submit(&source, &request, budget) {
                    return logical(&now, None, limits, application);
                }
                source
            }
            Err(error) => match &application.document {
                Ok(document) => Source::parse(document, budget).map_err(|_| error)?,
                Err(_) => return Err(error),
            },
        };
        return streams_graph::logical(&source.application, Widths::default(), limits, budget);
    }
    let (now, before) = compile(application)?;
    match view {
        View::Logical => logical(&now, before.as_ref(), limits, application),
        View::Physical => streams_graph::physical(&now, before.as_ref(), limits, budget),
        View::Fused => streams_graph::fused(&now, before.as_ref(), limits, budget),
    }
}

fn logical(
    now: &Compiled,
    before: Option<&Compiled>,
    limits: DrawingLimits,
    application: &Application,
) -> Result<Drawing, Error> {
    let topology = now.topology();
    let before = before.map(|before| before.topology().regions.as_slice()).unwrap_or_default();
    streams_graph::logical(
        &topology.application,
        Widths { before, now: &topology.regions },
        limits,
        &application.budget,
    )
}

/// The job after all resizes, and before the last one if there is one.
fn compile(application: &Application) -> Result<(Compiled, Option<Compiled>), Error> {
    let budget = &application.budget;
    let (source, request) = application.open()?;
    let mut now = plan::submit(&source, &request, budget)?;
    let mut before = None;
    for step in &application.resizes {
        let widths = std::slice::from_ref(step);
        let after = plan::resize(&now, widths, application.policy, &application.state, budget)?;
        before = Some(std::mem::replace(&mut now, after));
    }
    Ok((now, before))
}
