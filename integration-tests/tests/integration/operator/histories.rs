//! Many callers at once: what each was told, and an order of their requests that explains all of it (rules
//! elasticity-10 to elasticity-17).
//!
//! The order is that of the numbers which requests get when they are admitted. [`problems`] looks whether it explains
//! the history: who had an answer before another one asked comes first; a request is in force as a whole or not at all;
//! a precondition held at its place; the last one counts. What was refused by the compiler, or withdrawn, was never
//! there: it is no reason to refuse anybody else, nor to admit anybody.

use super::fixture::{ALL, WITHIN, until_known, until_taken, with_system};
use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use futures::future::join_all;
use integration_tests::sample::{CLEAN, MODEL, SCORE, Widths};
use integration_tests::system::job::ObservedJob;
use kube::ResourceExt as _;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use streams_api::{Resize, ResizePhase};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_proto::elasticity::v1::{CancelRequest, ResizeName, ResizeRequest};
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

const CALLERS: u32 = 200;
/// Callers of whom a half asks for what the compiler refuses, or withdraws.
const UNSTEADY: u32 = 40;
/// Requests of the flood: more than are admitted together, fewer than are kept of a job.
const FLOOD: u32 = 300;

type RegionWidths = BTreeMap<String, u32>;

/// What one caller asked for and was told.
#[derive(Clone, Debug)]
struct Call {
    /// Widths by region.
    wanted: RegionWidths,
    /// The width that the caller expected of its only region.
    expected: Option<u32>,
    /// The generation that it expected.
    expected_generation: Option<u64>,
    /// When it asked first, and when it was answered.
    from: Instant,
    to: Instant,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    /// In force: number of the request, generation.
    InForce(u64, u64),
    /// Number of a request that was admitted and gave way to a newer one.
    Superseded(u64),
    /// Number of a request that was admitted and ended without its widths, be it refused by the compiler or withdrawn.
    Ended(u64),
    /// The precondition on the width does not hold.
    Mismatch,
    /// The precondition on the generation does not hold, or did not any more when it was to be carried out.
    OtherGeneration,
    /// Something else, which nobody expects here.
    Other(String),
}

impl Call {
    fn number(&self) -> Option<u64> {
        match self.outcome {
            Outcome::InForce(number, _) | Outcome::Superseded(number) | Outcome::Ended(number) => Some(number),
            Outcome::Mismatch | Outcome::OtherGeneration | Outcome::Other(_) => None,
        }
    }
}

/// What of a history the order of the numbers does not explain. `before` are the widths before the first call, `after`
/// those that are in force after the last. The job is of generation 0 before the first call.
fn problems(calls: &[Call], before: &RegionWidths, after: &RegionWidths) -> Vec<String> {
    let mut problems: Vec<String> = calls
        .iter()
        .filter_map(|call| match &call.outcome {
            Outcome::Other(told) => Some(format!("not documented: {told}")),
            _ => None,
        })
        .collect();
    let mut numbered: Vec<(u64, &Call)> = calls.iter().filter_map(|call| Some((call.number()?, call))).collect();
    numbered.sort_by_key(|(number, _)| *number);
    let mut applied = before.clone();
    let mut generations: BTreeMap<u64, BTreeMap<&str, u32>> = BTreeMap::new();
    for (at, (number, call)) in numbered.iter().enumerate() {
        let (earlier, later) = numbered.split_at(at);
        if earlier.last().is_some_and(|(last, _)| last == number) {
            problems.push(format!("{number} was given twice"));
        }
        if let Some((other, _)) = earlier.iter().find(|(_, other)| call.to < other.from) {
            problems.push(format!("{number} was answered before {other} was asked for"));
        }
        let (region, width) =
            call.wanted.first_key_value().map_or(("", 0), |(region, width)| (region.as_str(), *width));
        // Nobody is admitted by what may still be refused, withdrawn or superseded.
        if call.expected.is_some_and(|expected| applied.get(region) != Some(&expected)) {
            problems.push(format!("{number} expects {:?} of {region}, not {:?}", call.expected, applied.get(region)));
        }
        match call.outcome {
            Outcome::InForce(_, generation) => {
                // It is in the next generation, or in force in the one that it expects.
                if call.expected_generation.is_some_and(|expected| !(expected..=expected + 1).contains(&generation)) {
                    problems.push(format!("{number} expects {:?}, and is {generation}", call.expected_generation));
                }
                for (region, width) in &call.wanted {
                    let same = generations.entry(generation).or_default().insert(region, *width);
                    if same.is_some_and(|same| same != *width) {
                        problems.push(format!("generation {generation} has two widths of {region}"));
                    }
                }
                if let Some((other, _)) = earlier.iter().find(|(_, other)| {
                    let concerns = other.wanted.keys().any(|region| call.wanted.contains_key(region));
                    concerns && matches!(other.outcome, Outcome::InForce(_, newer) if newer > generation)
                }) {
                    problems.push(format!("{number} is older than {other} in the order of generations"));
                }
                applied.extend(call.wanted.clone());
            }
            Outcome::Superseded(_) => {
                let names = |(_, other): &(u64, &Call)| {
                    let concerns = other.wanted.keys().any(|region| call.wanted.contains_key(region));
                    concerns && !matches!(other.outcome, Outcome::Ended(_))
                };
                if !later.iter().skip(1).any(names) {
                    problems.push(format!("{number} for {region}: {width} gave way to none"));
                }
            }
            Outcome::Ended(_) | Outcome::Mismatch | Outcome::OtherGeneration | Outcome::Other(_) => {}
        }
    }
    for call in calls.iter().filter(|call| call.outcome == Outcome::Mismatch) {
        let (Some(expected), Some(region)) = (call.expected, call.wanted.keys().next()) else { continue };
        let has_other = |other: &Call| {
            let is_in_time =
                other.from < call.to && matches!(other.outcome, Outcome::InForce(..) | Outcome::Superseded(_));
            is_in_time && other.wanted.get(region).is_some_and(|width| *width != expected)
        };
        if before.get(region) == Some(&expected) && !calls.iter().any(has_other) {
            problems.push(format!("{region} was {expected} all the time, and somebody who expects that was refused"));
        }
    }
    for call in calls.iter().filter(|call| matches!(call.outcome, Outcome::OtherGeneration)) {
        let Some(expected) = call.expected_generation else { continue };
        let is_newer = |other: &Call| {
            other.from < call.to && matches!(other.outcome, Outcome::InForce(_, generation) if generation > expected)
        };
        if !calls.iter().any(is_newer) {
            problems.push(format!("nothing came after generation {expected}, and somebody who expects it was refused"));
        }
    }
    if applied != *after {
        problems.push(format!("the last requests in force come to {applied:?}, and in force are {after:?}"));
    }
    problems
}

/// Asks as one caller.
async fn ask(balancer: ElasticityServiceClient<Channel>, request: ResizeRequest) -> (Call, Option<String>) {
    let wanted = request.regions.iter().map(|desired| (desired.region.clone(), desired.width)).collect();
    let expected = request.regions.iter().find_map(|desired| desired.expected_width);
    let expected_generation = request.expected_generation;
    let from = Instant::now();
    let answer = until_taken(balancer, request, ALL).await;
    let to = Instant::now();
    let call = |outcome| Call { wanted, expected, expected_generation, from, to, outcome };
    match answer {
        // The number is filled in once all have been answered.
        Ok(answer) => (call(Outcome::InForce(0, answer.generation.unwrap_or_default())), Some(answer.request)),
        Err(status) => {
            let details = status.get_error_details();
            let info = details.error_info();
            let request = info.and_then(|info| info.metadata.get("request").cloned());
            let outcome = match info.map_or("", |info| info.reason.as_str()) {
                "SUPERSEDED" => Outcome::Superseded(0),
                "REJECTED" | "CANCELLED" => Outcome::Ended(0),
                "WIDTH_MISMATCH" => Outcome::Mismatch,
                "GENERATION_MISMATCH" => Outcome::OtherGeneration,
                _ => Outcome::Other(format!("{status:?}")),
            };
            (call(outcome), request)
        }
    }
}

/// Asks, and withdraws as soon as the request is admitted. What becomes of it is found out once all have been answered.
async fn ask_and_withdraw(
    balancer: ElasticityServiceClient<Channel>,
    mut request: ResizeRequest,
) -> (Call, Option<String>) {
    request.set_wait_for(WaitFor::Accepted);
    let namespace = request.namespace.clone();
    let (mut call, made) = ask(balancer.clone(), request).await;
    if let (Outcome::InForce(..), Some(request)) = (&call.outcome, &made) {
        let name = Some(ResizeName { namespace, request: request.clone(), ..ResizeName::default() });
        let withdrawn = until_known(ALL, |_| {
            let (mut balancer, name) = (balancer.clone(), name.clone());
            async move { balancer.cancel(CancelRequest { name }).await }
        });
        // That it came too late is an answer, too.
        drop(withdrawn.await);
        (call.to, call.outcome) = (Instant::now(), Outcome::Ended(0));
    }
    (call, made)
}

/// Gives each call the number of its request.
async fn numbered(job: &ObservedJob, told: Vec<(Call, Option<String>)>) -> Result<Vec<Call>> {
    // That it was too late to withdraw one is said by the job at first (rule elasticity-17).
    let requests = eventually("it is decided what becomes of each request", ALL, || async {
        let requests = job.list::<Resize>().await?;
        let open = requests.iter().filter(|request| request.phase() < ResizePhase::Written).count();
        ensure!(open == 0, "{open} of {} are open", requests.len());
        Ok(requests)
    })
    .await?;
    let requests: BTreeMap<String, Resize> =
        requests.into_iter().map(|request| (request.name_any(), request)).collect();
    let status = |name: &Option<String>| {
        let name = name.as_ref().context("an answer without the name of its request")?;
        let status = requests.get(name).and_then(|request| request.status.as_ref());
        status.with_context(|| format!("{name} says nothing"))
    };
    let number = |name: &Option<String>| status(name)?.number.with_context(|| format!("{name:?} has no number"));
    let with_number = |(call, name): (Call, Option<String>)| {
        let outcome = match call.outcome {
            Outcome::InForce(_, generation) => Outcome::InForce(number(&name)?, generation),
            Outcome::Superseded(_) => Outcome::Superseded(number(&name)?),
            // Somebody who withdrew it may have been too late.
            Outcome::Ended(_) => match (status(&name)?.phase, status(&name)?.generation) {
                (Some(ResizePhase::Superseded), _) => Outcome::Superseded(number(&name)?),
                (Some(ResizePhase::Refused | ResizePhase::Cancelled), _) => Outcome::Ended(number(&name)?),
                (_, Some(generation)) => Outcome::InForce(number(&name)?, generation),
                (phase, None) => Outcome::Other(format!("{name:?} is {phase:?}")),
            },
            other => other,
        };
        Ok(Call { outcome, ..call })
    };
    told.into_iter().map(with_number).collect()
}

async fn applied(job: &ObservedJob) -> Result<RegionWidths> {
    let status = job.status().await?;
    Ok(status.applied_widths.into_iter().map(|applied| (applied.region, applied.width)).collect())
}

#[tokio::test]
async fn what_200_callers_are_told_at_once_is_explained_by_one_order() -> Result<()> {
    with_system("histories", async |it| {
        let job = it.submitted().await?;
        let balancer = it.frontend()?.balancer().await?;
        let calls = (0..CALLERS).map(|number| {
            let clean = 1 + number / 4 % 5;
            let widths = match number % 4 {
                0 => vec![(CLEAN, clean)],
                1 => vec![(SCORE, 1 + number / 4 % 2)],
                2 => vec![(CLEAN, clean), (SCORE, 1 + number / 8 % 2)],
                _ => vec![(MODEL, 1 + number / 4 % 2)],
            };
            let mut request = job.resize_request(&widths, WaitFor::Committed);
            if number % 8 == 1 {
                request.expected_generation = Some(0);
            }
            if number % 4 == 3 {
                // One after the other can have it, and waits for that; but some expect what never is.
                for desired in &mut request.regions {
                    desired.expected_width = Some(if number % 40 == 3 { 9 } else { 3 - desired.width });
                }
            }
            ask(balancer.clone(), request)
        });
        let told = join_all(calls).await;
        let calls = numbered(&job, told).await?;
        let after = applied(&job).await?;
        let problems = problems(&calls, &Widths::default().by_region(), &after);
        ensure!(problems.is_empty(), "{problems:#?}\n{calls:#?}");
        let count = |is: fn(&Outcome) -> bool| calls.iter().filter(|call| is(&call.outcome)).count();
        let in_force = count(|outcome| matches!(outcome, Outcome::InForce(..)));
        let mismatched = count(|outcome| *outcome == Outcome::Mismatch);
        ensure!(in_force >= 2 && mismatched >= 1, "{in_force} in force, {mismatched} mismatched");
        job.settled(Widths::applied(&job.status().await?.applied_widths), WITHIN).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_is_refused_or_withdrawn_costs_nobody_else_a_precondition() -> Result<()> {
    with_system("histories-unsteady", async |it| {
        let job = it.submitted().await?;
        let balancer = it.frontend()?.balancer().await?;
        let before = Widths::default();
        let calls = (0..UNSTEADY).map(|number| {
            let expecting = |region, width| {
                let mut request = job.resize_request(&[(region, width)], WaitFor::Committed);
                request.regions[0].expected_width = Some(width);
                ask(balancer.clone(), request).boxed()
            };
            match number % 4 {
                // A million operators.
                0 => ask(balancer.clone(), job.resize_request(&[(SCORE, 100), (MODEL, 10_000)], WaitFor::Committed))
                    .boxed(),
                1 => expecting(MODEL, before.model),
                2 => {
                    let request = job.resize_request(&[(CLEAN, 3 + number / 4 % 2)], WaitFor::Accepted);
                    ask_and_withdraw(balancer.clone(), request).boxed()
                }
                _ => expecting(CLEAN, before.clean),
            }
        });
        let told = join_all(calls).await;
        let calls = numbered(&job, told).await?;
        let problems = problems(&calls, &before.by_region(), &applied(&job).await?);
        ensure!(problems.is_empty(), "{problems:#?}\n{calls:#?}");
        let refused = calls.iter().filter(|call| call.wanted.contains_key(SCORE));
        ensure!(refused.clone().all(|call| matches!(call.outcome, Outcome::Ended(_))), "a million operators");
        let expecting = calls.iter().filter(|call| call.wanted.get(MODEL) == Some(&before.model));
        let is_fine = |call: &Call| matches!(call.outcome, Outcome::InForce(..) | Outcome::Superseded(_));
        ensure!(expecting.clone().all(is_fine), "{calls:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn after_a_flood_every_request_has_ended_and_the_last_widths_run() -> Result<()> {
    with_system("flood", async |it| {
        let job = it.submitted().await?;
        let balancer = it.frontend()?.balancer().await?;
        let flood = (0..FLOOD).map(|number| {
            let region = [CLEAN, SCORE, MODEL][number as usize % 3];
            let request = job.resize_request(&[(region, 1 + number / 3 % 3)], WaitFor::Accepted);
            ask(balancer.clone(), request)
        });
        for (call, _) in join_all(flood).await {
            let is_expected = matches!(call.outcome, Outcome::InForce(..) | Outcome::Superseded(_));
            ensure!(is_expected, "{call:?}");
        }
        let last = [(CLEAN, 3), (SCORE, 2), (MODEL, 1)];
        until_taken(balancer, job.resize_request(&last, WaitFor::RolledOut), ALL).await?;
        job.settled(Widths { clean: 3, score: 2, model: 1 }, ALL).await?;
        eventually("all requests have ended", ALL, || async {
            let requests = job.list::<Resize>().await?;
            let open = requests.iter().filter(|request| !request.phase().is_final()).count();
            ensure!(open == 0, "{open} of {} are open", requests.len());
            let ends = [ResizePhase::RolledOut, ResizePhase::Superseded];
            ensure!(requests.iter().all(|request| ends.contains(&request.phase())), "refused for nothing");
            Ok(())
        })
        .await?;
        // However many asked, each generation carries out what was newest.
        let generation = job.status().await?.generation.unwrap_or_default();
        ensure!(generation < u64::from(FLOOD) / 4, "{generation} generations");
        Ok(())
    })
    .await
}

/// Each of the flood is refused by the compiler, and each for another width. One who wants something of another region
/// does not wait until all of them are.
#[tokio::test]
async fn a_flood_of_refused_widths_keeps_no_other_region_waiting() -> Result<()> {
    with_system("refused-flood", async |it| {
        let job = it.submitted().await?;
        let balancer = it.frontend()?.balancer().await?;
        let refused = (0..FLOOD).map(|number| {
            // A million operators, nearly.
            let wanted = [(SCORE, 100), (MODEL, 10_000 - number)];
            ask(balancer.clone(), job.resize_request(&wanted, WaitFor::Accepted))
        });
        let other = async {
            until_taken(balancer.clone(), job.resize_request(&[(CLEAN, 3)], WaitFor::Committed), ALL).await?;
            let requests = job.list::<Resize>().await?;
            anyhow::Ok(requests.iter().filter(|request| !request.phase().is_final()).count())
        };
        let (told, open) = tokio::join!(join_all(refused), other);
        for (call, _) in told {
            // It is accepted, perhaps not refused yet.
            ensure!(matches!(call.outcome, Outcome::InForce(..) | Outcome::Ended(_)), "{call:?}");
        }
        let open = open?;
        // The other one counts until it is rolled out.
        ensure!(open > 1, "{open} of {FLOOD} were open when the other one was committed");
        job.settled(Widths { clean: 3, ..Widths::default() }, ALL).await?;
        eventually("the flood is refused", ALL, || async {
            let requests = job.list::<Resize>().await?;
            let refused = requests.iter().filter(|request| request.phase() == ResizePhase::Refused).count();
            ensure!(refused == FLOOD as usize, "{refused} of {} are refused", requests.len());
            Ok(())
        })
        .await
    })
    .await
}

#[cfg(test)]
mod checker {
    use super::*;

    fn call(wanted: &[(&str, u32)], expected: Option<u32>, from: u64, to: u64, outcome: Outcome) -> Call {
        let start = Instant::now();
        let start = |seconds| start + Duration::from_secs(seconds);
        let wanted = wanted.iter().map(|(region, width)| ((*region).to_owned(), *width)).collect();
        Call { wanted, expected, expected_generation: None, from: start(from), to: start(to), outcome }
    }

    /// The same for somebody who expects this generation.
    fn of_generation(expected: u64, call: Call) -> Call {
        Call { expected_generation: Some(expected), ..call }
    }

    #[test]
    fn histories_that_no_order_explains_are_found() {
        use Outcome::{Ended, InForce, Mismatch, Other, OtherGeneration, Superseded};
        let widths = |a, b| RegionWidths::from([("A".to_owned(), a), ("B".to_owned(), b)]);
        // history, widths in force after it -> the beginning of each problem
        let table: [(Vec<Call>, RegionWidths, &[&str]); 15] = [
            (vec![], widths(1, 1), &[]),
            (
                vec![
                    call(&[("A", 2)], None, 0, 5, InForce(1, 1)),
                    call(&[("A", 3), ("B", 3)], None, 1, 4, Superseded(2)),
                    call(&[("B", 2)], Some(1), 2, 5, InForce(3, 1)),
                    call(&[("B", 2)], Some(1), 3, 6, Mismatch),
                ],
                widths(2, 2),
                &[],
            ),
            (vec![call(&[("A", 2)], None, 0, 1, InForce(1, 1))], widths(1, 1), &["the last requests"]),
            (vec![call(&[("A", 2)], None, 0, 1, Superseded(1))], widths(1, 1), &["1 for A: 2 gave way to none"]),
            (
                vec![call(&[("A", 2)], None, 0, 1, InForce(2, 1)), call(&[("A", 3)], None, 5, 6, InForce(1, 2))],
                widths(2, 1),
                &["2 was answered before 1", "2 is older than 1"],
            ),
            (
                vec![call(&[("A", 2)], None, 0, 1, InForce(1, 1)), call(&[("A", 3)], None, 0, 1, InForce(2, 1))],
                widths(3, 1),
                &["generation 1 has two widths"],
            ),
            (
                vec![call(&[("A", 2)], Some(1), 0, 1, InForce(1, 1)), call(&[("A", 3)], Some(1), 0, 1, InForce(2, 2))],
                widths(3, 1),
                &["2 expects Some(1)"],
            ),
            (
                vec![call(&[("A", 2)], None, 0, 1, InForce(1, 1)), call(&[("B", 2)], None, 0, 1, InForce(1, 1))],
                widths(2, 2),
                &["1 was given twice"],
            ),
            (vec![call(&[("A", 2)], None, 0, 1, Other("oops".to_owned()))], widths(1, 1), &["not documented: oops"]),
            (
                // Those that ended, or gave way, were never there.
                vec![
                    call(&[("A", 9)], None, 0, 5, Ended(1)),
                    call(&[("A", 2)], Some(9), 1, 4, Superseded(2)),
                    call(&[("A", 3)], Some(2), 2, 5, InForce(3, 1)),
                    call(&[("A", 2)], Some(1), 3, 6, Mismatch),
                ],
                widths(3, 1),
                &["2 expects Some(9)", "3 expects Some(2)"],
            ),
            (
                vec![
                    of_generation(0, call(&[("A", 2)], None, 0, 5, InForce(1, 1))),
                    of_generation(0, call(&[("A", 3)], None, 0, 5, OtherGeneration)),
                    of_generation(1, call(&[("A", 2)], None, 6, 7, InForce(2, 1))),
                ],
                widths(2, 1),
                &[],
            ),
            (
                vec![
                    of_generation(0, call(&[("A", 2)], None, 0, 5, InForce(1, 1))),
                    of_generation(0, call(&[("B", 3)], None, 0, 5, InForce(2, 2))),
                ],
                widths(2, 3),
                &["2 expects Some(0), and is 2"],
            ),
            (
                vec![of_generation(0, call(&[("A", 3)], None, 0, 5, OtherGeneration))],
                widths(1, 1),
                &["nothing came after generation 0"],
            ),
            (
                vec![call(&[("A", 9)], None, 0, 5, Ended(1)), call(&[("A", 2)], Some(1), 1, 2, Mismatch)],
                widths(1, 1),
                &["A was 1 all the time"],
            ),
            (
                vec![call(&[("A", 2)], None, 0, 1, Superseded(1)), call(&[("A", 3)], None, 0, 5, Ended(2))],
                widths(1, 1),
                &["1 for A: 2 gave way to none"],
            ),
        ];
        for (calls, after, expected) in table {
            let found = problems(&calls, &widths(1, 1), &after);
            assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.starts_with(expected), "{found} {expected}");
            }
        }
    }
}
