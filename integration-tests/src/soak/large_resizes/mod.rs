//! Large resizes: the largest messages that the contract allows, from many callers at once, to one replica of the
//! fusion service as it is deployed. It must stay within the memory limit of its pod, and everybody must be answered.
//!
//! ```text
//!   message:  a resize of a given size, in pieces that many callers share
//!   replica:  the process, with the arguments and the limit of deploy/
//!   caller:   sends a message until it is answered, and comes again when it is told to
//! ```
//!
//! Each caller has a job and an application of its own, so no answer is made from what another caller has sent. There
//! is no cluster: nothing but the service and its callers.
//!
//! Knows: the contract, limits of the deployment. Must not know: how the service keeps within them.

mod caller;
mod message;
mod replica;
pub mod report;

use self::caller::{Answer, Small};
use self::message::{Encoding, Job, Message, Sizes};
use self::replica::Replica;
use crate::system::Programs;
use anyhow::{Context as _, Result};
use futures::future::{join_all, try_join_all};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams_control_plane::process::Supervisor;
use streams_control_plane::progress::Progress;
use tokio_util::sync::CancellationToken;

/// Submissions at a time, before anything is measured.
const SUBMISSIONS: usize = 2;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct LargeResizeOptions {
    /// Callers at once.
    pub callers: usize,
    /// Bytes of each message, expanded.
    pub bytes: usize,
    /// What is measured, one after the other.
    pub rounds: Vec<Round>,
    /// Longest time until all are answered.
    pub within: Duration,
    /// What else the machine did.
    pub beside: String,
}

/// What all callers of a round send.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// As it is.
    Plain,
    /// As it is, with a layout that is none.
    BrokenLayout,
    /// Compressed with gzip.
    Gzip,
    /// Compressed with zstd.
    Zstd,
}

impl Round {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plain, Self::BrokenLayout, Self::Gzip, Self::Zstd];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::BrokenLayout => "with a broken layout",
            Self::Gzip => "compressed with gzip",
            Self::Zstd => "compressed with zstd",
        }
    }

    fn encoding(self) -> Encoding {
        match self {
            Self::Plain | Self::BrokenLayout => Encoding::Identity,
            Self::Gzip => Encoding::Gzip,
            Self::Zstd => Encoding::Zstd,
        }
    }

    /// The answer that the contract promises.
    fn expected(self) -> Answer {
        match self {
            Self::BrokenLayout => Answer::LayoutRejected,
            Self::Plain | Self::Gzip | Self::Zstd => Answer::Resized,
        }
    }
}

/// What a run has measured.
#[derive(Debug, Default)]
pub struct LargeResizeOutcome {
    measured: Vec<Measured>,
    /// Memory limit of the pod, in bytes.
    limit: u64,
    /// Arguments of the service.
    arguments: Vec<String>,
    /// What went wrong, and when.
    pub failures: Vec<String>,
    took: Duration,
    commit: String,
}

/// One round.
#[derive(Debug)]
struct Measured {
    round: Round,
    callers: Vec<caller::Called>,
    small: Small,
    /// Bytes of a message as it is sent: of the smallest and of the largest.
    sent: (usize, usize),
    /// The most memory that the process ever had, in bytes.
    most: u64,
}

/// Runs it.
///
/// # Errors
/// The run cannot begin. Later failures are in the result.
pub async fn run(
    supervisor: &Supervisor,
    options: &LargeResizeOptions,
    stop: impl Future<Output = ()>,
) -> Result<LargeResizeOutcome> {
    let commit = super::commit::commit();
    let fusion = Programs::build(supervisor).await?.fusion;
    let start = Instant::now();
    let limit = replica::limit()?;
    let arguments = replica::arguments()?;
    let mut outcome = LargeResizeOutcome { commit, limit, arguments, ..LargeResizeOutcome::default() };
    let everything = async {
        let jobs = submitted(supervisor, &fusion, options).await?;
        for round in options.rounds.iter().copied() {
            match measure(supervisor, &fusion, options, &jobs, round).await {
                Ok(measured) => {
                    outcome.failures.extend(measured.failures(limit));
                    outcome.measured.push(measured);
                }
                Err(error) => outcome.failures.push(format!("{}: {error:#}", round.name())),
            }
        }
        anyhow::Ok(())
    };
    tokio::select! {
        ended = everything => ended?,
        () = stop => outcome.failures.push("it was stopped".to_owned()),
    }
    outcome.took = start.elapsed();
    Ok(outcome)
}

/// Submits the jobs to a replica of their own: each needs its layout before it can be resized.
async fn submitted(supervisor: &Supervisor, fusion: &Path, options: &LargeResizeOptions) -> Result<Vec<Arc<Job>>> {
    let progress = Progress::begin(format!("{} jobs are submitted", options.callers));
    let replica = Replica::start(supervisor, fusion).await?;
    let sizes = Sizes::of(options.bytes);
    let submissions = (0..options.callers).map(|number| {
        let (sizes, replica) = (&sizes, &replica);
        async move {
            let job = Job::new(sizes, number);
            let plan = caller::submit(replica.address(), &job).await;
            let plan = plan.with_context(|| format!("job {number} cannot be submitted"))?;
            Ok::<_, anyhow::Error>(Arc::new(job.with_layout(&plan.layout)))
        }
    });
    let jobs = stream::iter(submissions).buffered(SUBMISSIONS).try_collect().await?;
    progress.done();
    Ok(jobs)
}

/// One round with a replica of its own.
async fn measure(
    supervisor: &Supervisor,
    fusion: &Path,
    options: &LargeResizeOptions,
    jobs: &[Arc<Job>],
    round: Round,
) -> Result<Measured> {
    let progress = Progress::begin(format!("{} resizes {}", jobs.len(), round.name()));
    // What takes processors is done before.
    let messages = jobs.iter().map(|job| {
        let job = Arc::clone(job);
        tokio::task::spawn_blocking(move || Message::resize(&job, round == Round::BrokenLayout, round.encoding()))
    });
    let messages: Vec<Message> = try_join_all(messages).await?.into_iter().collect::<Result<_>>()?;
    let sizes = messages.iter().map(Message::sent);
    let sent = (sizes.clone().min().unwrap_or_default(), sizes.max().unwrap_or_default());
    let replica = Replica::start(supervisor, fusion).await?;
    let address = replica.address();
    let until = Instant::now() + options.within;
    let all_answered = CancellationToken::new();
    let small = tokio::spawn(caller::small_resizes(address, all_answered.clone()));
    let callers = messages.into_iter().zip(0..);
    let callers = callers.map(|(message, number)| tokio::spawn(caller::resize(address, message, number, until)));
    let called = join_all(callers).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    all_answered.cancel();
    let small = small.await??;
    let most = replica.most_memory()?;
    progress.done();
    Ok(Measured { round, callers: called, small, sent, most })
}

impl Measured {
    /// Callers that got the answer that the contract promises.
    fn answered(&self) -> usize {
        self.callers.iter().filter(|called| called.answer == self.round.expected()).count()
    }

    fn failures(&self, limit: u64) -> Vec<String> {
        let name = self.round.name();
        let mut failures = Vec::new();
        let wrong: Vec<_> = self.callers.iter().filter(|called| called.answer != self.round.expected()).collect();
        if let Some(first) = wrong.first() {
            failures.push(format!(
                "{name}: {} of {} were not answered as they should, the first: {}",
                wrong.len(),
                self.callers.len(),
                first.answer
            ));
        }
        if self.most > limit {
            failures.push(format!("{name}: the process had {} bytes of {limit}", self.most));
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::caller::{Answer, Called, Small};
    use super::{Measured, Round};
    use std::time::Duration;

    #[test]
    fn a_round_fails_by_answers_and_by_memory() {
        let called = |answer| Called { answer, refusals: 0, after: Duration::ZERO };
        let measured = |round, answers: [Answer; 2], most| Measured {
            round,
            callers: answers.map(called).into(),
            small: Small::default(),
            sent: (0, 0),
            most,
        };
        let other = || Answer::Other("late".to_owned());
        for (round, answers, most, expected) in [
            (Round::Plain, [Answer::Resized, Answer::Resized], 100, 0),
            (Round::Plain, [Answer::Resized, other()], 100, 1),
            (Round::Plain, [Answer::LayoutRejected, other()], 101, 2),
            (Round::BrokenLayout, [Answer::LayoutRejected, Answer::LayoutRejected], 100, 0),
            (Round::BrokenLayout, [Answer::LayoutRejected, Answer::Resized], 100, 1),
            (Round::Gzip, [Answer::Resized, Answer::Resized], 101, 1),
        ] {
            let failures = measured(round, answers, most).failures(100);
            assert_eq!(failures.len(), expected, "{failures:?}");
        }
    }
}
