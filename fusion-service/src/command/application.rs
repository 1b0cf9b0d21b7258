//! The application that a command works on, and the request of its job: a file, and flags that replace or complete the
//! request.
//!
//! ```text
//! explain, graph, check --flatten--> ApplicationArguments --read--> Application --open--> Source, Request
//! ```
//!
//! Knows: arguments, files. Must not know: what a command does with an application.

use super::options::{ClosedArguments, PolicyName, fusion_type};
use super::request::RequestFile;
use super::terminal::printable;
use super::{CommandFailure, document};
use crate::options::LimitArguments;
use std::path::PathBuf;
use std::sync::Arc;
use streams_bundle::Bundle;
use streams_compiler::budget::Budget;
use streams_compiler::error::{Error, excerpt};
use streams_compiler::fuser::{Cpus, FusionType};
use streams_compiler::plan::{FusionOption, JobState, Policy, Request, Source};
use streams_compiler::topology::ChannelCount;

/// Name of a job without one.
const JOB_NAME: &str = "job";

/// What is compiled.
#[derive(Clone, Debug, clap::Args)]
pub struct ApplicationArguments {
    /// The application: an ADL document or a bundle (.sab).
    #[arg(value_name = "APPLICATION")]
    pub application: PathBuf,
    /// What a job adds to it (JSON, as for the command plan). Flags go before what it says.
    #[arg(long, value_name = "FILE")]
    pub request: Option<PathBuf>,
    /// How operators are grouped: legacy, manual:N, automatic, or automatic:N with the number that was found before
    /// [default: legacy].
    #[arg(long, value_name = "MODE", value_parser = fusion)]
    pub fusion: Option<FusionOption>,
    /// What the channels of parallel regions mean for manual and automatic fusion.
    #[arg(long, value_name = "TYPE", default_value = "noChannelInfluence", value_parser = fusion_type)]
    pub fusion_type: FusionType,
    /// Width of a parallel region at the submission. REGION may be a pattern with *. Repeatable.
    #[arg(long = "width", value_name = "REGION=N", value_parser = width)]
    pub widths: Vec<(String, i128)>,
    /// Parallel region whose operators do not ask for its number of channels. REGION may be a pattern with *.
    /// Repeatable.
    #[arg(long = "ignore-channel-count", value_name = "REGION")]
    pub ignored_counts: Vec<String>,
    /// Submission-time value. Repeatable.
    #[arg(long = "value", value_name = "NAME=TEXT", value_parser = value)]
    pub values: Vec<(String, String)>,
    /// Name of the job [default: job].
    #[arg(long, value_name = "NAME", value_parser = job_name)]
    pub job_name: Option<String>,
    /// Number of the job [default: 0].
    #[arg(long, value_name = "N")]
    pub job_id: Option<u64>,
    /// Then resize a parallel region. Repeatable: one after the other, after those of the request.
    #[arg(long = "resize", value_name = "REGION=N", value_parser = width)]
    pub resizes: Vec<(String, i128)>,
    /// Which operators share a processing element after a resize.
    #[arg(long, value_enum, default_value_t = PolicyName::Sticky)]
    pub policy: PolicyName,
    /// Which of them take nothing new.
    #[command(flatten)]
    pub closed: ClosedArguments,
    /// Bounds on sizes.
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// The files that the arguments name, read.
#[derive(Debug)]
pub struct Application {
    /// What the application is called in messages: the file, as it was given.
    pub name: String,
    /// The ADL document as it was read, or what is wrong with the bundle.
    pub document: Result<Vec<u8>, Error>,
    /// The bundle that the document comes from. The document differs in the attributes that a submission sets.
    pub bundle: Option<Bundle>,
    /// What the job adds, or what is wrong with its configuration.
    pub request: Result<Arc<Request>, Error>,
    /// The request without its configuration. With it, a check can find other problems although the configuration is
    /// wrong.
    pub unconfigured: Arc<Request>,
    /// Pattern of a region, width: one resize after the other.
    pub resizes: Vec<(String, i128)>,
    /// How they distribute operators.
    pub policy: Policy,
    /// What each of them is told of the job.
    pub state: JobState,
    /// Limits of every compilation.
    pub budget: Budget,
}

impl ApplicationArguments {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or the request does not have its form.
    pub fn read(&self) -> Result<Application, CommandFailure> {
        let job = self.request.as_deref().map(RequestFile::read).transpose()?;
        let unnamed = || Request { job_name: JOB_NAME.to_owned(), ..Request::default() };
        let (request, unconfigured, mut resizes) = match job {
            Some(job) => (job.request, job.unconfigured, job.resizes),
            None => (Ok(unnamed()), unnamed(), Vec::new()),
        };
        resizes.extend(self.resizes.iter().cloned());
        let budget = Budget::with_limits(self.limits.limits());
        let document = document::read(&self.application, &budget)?;
        Ok(Application {
            name: self.application.display().to_string(),
            document: document.adl,
            bundle: document.bundle,
            request: request.map(|request| Arc::new(self.add_to(request))),
            unconfigured: Arc::new(self.add_to(unconfigured)),
            resizes,
            policy: self.policy.into(),
            state: self.closed.state(),
            budget,
        })
    }

    /// The request, with what the flags say instead.
    fn add_to(&self, request: Request) -> Request {
        let mut request = Request { fusion_type: self.fusion_type, ..request };
        if let Some(fusion) = &self.fusion {
            request.fusion = fusion.clone();
        }
        if let Some(name) = &self.job_name {
            request.job_name.clone_from(name);
        }
        request.job_id = self.job_id.unwrap_or(request.job_id);
        request.submission_values.extend(self.values.iter().cloned());
        for (region, width) in &self.widths {
            request.widths.retain(|(known, _)| known != region);
            request.widths.push((region.clone(), *width));
        }
        for region in &self.ignored_counts {
            request.channel_counts.retain(|(known, _)| known != region);
            request.channel_counts.push((region.clone(), ChannelCount::Ignored));
        }
        request
    }
}

impl Application {
    /// Parses the document, if the request has no problems of its own.
    ///
    /// # Errors
    ///
    /// The request or the document has problems. The first stage with problems decides (rule layout-14).
    pub fn open(&self) -> Result<(Source, Arc<Request>), Error> {
        let request = self.request.clone()?;
        request.check()?;
        let document = self.document.as_ref().map_err(Clone::clone)?;
        Ok((Source::parse(document, &self.budget)?, request))
    }

    /// The problems for standard error: a line per problem, `file:line:column: [code ]message`.
    pub fn problem_lines(&self, error: &Error) -> String {
        const MOST: usize = 1000;
        let printable = |text: &str| printable(text, MOST);
        let name = printable(&self.name);
        match error.problems() {
            [] => format!("error: {name}: {error}\n"),
            problems => problems
                .iter()
                .map(|problem| match problem.place {
                    Some(_) => format!("error: {name}:{}\n", printable(&problem.to_string())),
                    None => format!("error: {name}: {}\n", printable(&problem.to_string())),
                })
                .collect(),
        }
    }
}

/// `legacy`, `manual:N`, `automatic` or `automatic:N`.
fn fusion(text: &str) -> Result<FusionOption, String> {
    let automatic = |count| {
        let cpus = Cpus { share: Cpus::DEFAULT_SHARE, ..Cpus::default() };
        FusionOption::Automatic { cpus, count }
    };
    let pes = |number: &str| number.parse::<u64>().map_err(|_| format!("\"{}\" is no number of PEs", excerpt(number)));
    match text.split_once(':') {
        None if text == "legacy" => Ok(FusionOption::Legacy),
        None if text == "automatic" => Ok(automatic(None)),
        // The compiler refuses a number that is too small.
        Some(("manual", number)) => Ok(FusionOption::Manual(integer(number)?)),
        Some(("automatic", number)) => Ok(automatic(Some(pes(number)?))),
        _ => Err("legacy, manual:N, automatic or automatic:N".to_owned()),
    }
}

/// `REGION=N`. The compiler reports a number that is no width.
fn width(text: &str) -> Result<(String, i128), String> {
    let (region, number) = text.rsplit_once('=').ok_or("REGION=N")?;
    if region.is_empty() {
        return Err("REGION=N".to_owned());
    }
    Ok((region.to_owned(), integer(number)?))
}

/// An integer of up to 64 bits, as in a request.
fn integer(text: &str) -> Result<i128, String> {
    let number: Option<i128> = text.parse().ok();
    let number = number.filter(|number| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(number));
    number.ok_or_else(|| format!("\"{}\" is no integer of up to 64 bits", excerpt(text)))
}

fn value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("NAME=TEXT".to_owned()),
    }
}

/// As in a request.
fn job_name(text: &str) -> Result<String, String> {
    match text.chars().count() {
        1..=253 => Ok(text.to_owned()),
        _ => Err("1 to 253 characters".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Tool {
        #[command(flatten)]
        application: ApplicationArguments,
    }

    fn arguments(flags: &[&str]) -> Result<ApplicationArguments, String> {
        let all = ["tool", "app.adl"].iter().chain(flags);
        Tool::try_parse_from(all).map(|tool| tool.application).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_go_before_the_request() {
        let widths = |list: &[(&str, i128)]| list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<Vec<_>>();
        let request = Request {
            job_name: "file".to_owned(),
            job_id: 7,
            fusion: FusionOption::Manual(4),
            submission_values: [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())].into(),
            widths: widths(&[("P", 1), ("Q", 2)]),
            channel_counts: vec![("P".to_owned(), ChannelCount::Observed)],
            ..Request::default()
        };
        assert_eq!(arguments(&[]).unwrap().add_to(request.clone()), request);
        let flags =
            ["--job-name=flag", "--job-id=0", "--fusion=legacy", "--fusion-type=channelIsolation", "--value=b=x=y"];
        let flags =
            arguments(&[&flags[..], &["--width=P=9", "--value=c=", "--ignore-channel-count=P"]].concat()).unwrap();
        let expected = Request {
            job_name: "flag".to_owned(),
            job_id: 0,
            fusion: FusionOption::Legacy,
            fusion_type: FusionType::ChannelIsolation,
            submission_values: [("a", "1"), ("b", "x=y"), ("c", "")].map(|(n, v)| (n.to_owned(), v.to_owned())).into(),
            widths: widths(&[("Q", 2), ("P", 9)]),
            channel_counts: vec![("P".to_owned(), ChannelCount::Ignored)],
            ..Request::default()
        };
        assert_eq!(flags.add_to(request), expected);
    }

    #[test]
    fn modes_of_fusion() {
        let mode = |text: &str| arguments(&["--fusion", text]).map(|a| a.fusion.unwrap());
        let automatic = |count| {
            let cpus = Cpus { share: 500, ..Cpus::default() };
            FusionOption::Automatic { cpus, count }
        };
        assert_eq!(mode("legacy"), Ok(FusionOption::Legacy));
        assert_eq!(mode("manual:-2"), Ok(FusionOption::Manual(-2)));
        assert_eq!(mode("automatic"), Ok(automatic(None)));
        assert_eq!(mode("automatic:12"), Ok(automatic(Some(12))));
    }

    #[test]
    fn what_has_another_form_is_refused() {
        for flag in [
            "--fusion=manual",
            "--fusion=manual:x",
            "--fusion=manual:18446744073709551616",
            "--fusion=automatic:-1",
            "--fusion=Legacy",
            "--fusion-type=none",
            "--width=P",
            "--width==3",
            "--width=P=1.5",
            "--resize=P=",
            "--value=a",
            "--value==a",
            "--job-name=",
            "--job-id=-1",
            "--policy=other",
            "--closed-pe=-1",
        ] {
            assert!(arguments(&[flag]).is_err(), "{flag}");
        }
    }
}
