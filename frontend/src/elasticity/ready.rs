//! How many channels of regions run (rule elasticity-19). Pure.
//!
//! A job that is ready says it for all of its regions. Else the PEs say it: each names its operators, and the name of
//! an operator in a channel has the number of the channel, counted over all channels of the regions around:
//! `Score[1].Model[3].Filter` is in channel 1 of a region of width 2 if there are two channels of `Score`.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use streams_api::{Job, PePhase, ProcessingElement, condition};

/// Widths of which every PE runs, by region.
#[derive(Debug, Default, PartialEq)]
pub struct ReadyWidths(BTreeMap<String, Option<u32>>);

/// The channels of a region, over all channels of the regions around.
struct Channels {
    width: u32,
    /// A PE names an operator of the channel; one of those that do does not run.
    seen: Vec<(bool, bool)>,
}

impl ReadyWidths {
    /// What the job says for all of its regions, if it does: nothing before its first generation, and all channels
    /// while all of its PEs run.
    pub fn by_job(job: &Job) -> Option<Self> {
        let Some(status) = job.status.as_ref().filter(|status| status.generation.is_some()) else {
            return Some(Self::default());
        };
        let applied = status.applied_widths.iter().map(|applied| (applied.region.clone(), Some(applied.width)));
        condition::are_pes_ready(&status.conditions).then(|| Self(applied.collect()))
    }

    /// What the PEs of a job say. There may be thousands.
    pub fn by_pes<P: Borrow<ProcessingElement>>(job: &Job, pes: impl IntoIterator<Item = P>) -> Self {
        let Some(status) = &job.status else { return Self::default() };
        let applied = status.applied_widths.iter().map(|applied| (applied.region.as_str(), applied.width));
        // The product of the widths of all regions around, and of its own.
        let widths: BTreeMap<&str, u32> = applied.collect();
        let around = |region: &str| {
            let regions = region.match_indices('.').filter_map(|(at, _)| region.get(..at)).chain([region]);
            regions.filter_map(|name| widths.get(name)).fold(1_u32, |all, width| all.saturating_mul(*width))
        };
        let mut channels: BTreeMap<&str, Channels> = widths
            .iter()
            .map(|(region, width)| {
                (*region, Channels { width: *width, seen: vec![(false, false); count(around(region))] })
            })
            .collect();
        let mut is_known = true;
        for pe in pes {
            let pe: &ProcessingElement = pe.borrow();
            if pe.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let runs = runs(pe);
            let has_more = usize::try_from(pe.spec.operator_count).is_ok_and(|count| count > pe.spec.operators.len());
            is_known &= runs || !has_more;
            for operator in &pe.spec.operators {
                for (region, channel) in channels_of(operator) {
                    let seen = channels.get_mut(region.as_str()).and_then(|known| known.seen.get_mut(channel));
                    if let Some((is_there, is_down)) = seen {
                        (*is_there, *is_down) = (true, *is_down || !runs);
                    }
                }
            }
        }
        Self(channels.into_iter().map(|(region, of)| (region.to_owned(), is_known.then(|| of.ready()))).collect())
    }

    /// The ready width of a region; `None` if it is not known.
    pub fn get(&self, region: &str) -> Option<u32> {
        *self.0.get(region)?
    }
}

/// Most channels of a region that are looked at: as many operators as a job may have.
const CHANNELS_MAX: u32 = 200_000;

fn count(channels: u32) -> usize {
    usize::try_from(channels.min(CHANNELS_MAX)).unwrap_or_default()
}

impl Channels {
    /// Channels that run in each channel of the regions around.
    fn ready(&self) -> u32 {
        let width = usize::try_from(self.width).unwrap_or(usize::MAX).max(1);
        let is_ready = |channel: usize| {
            let same = self.seen.iter().skip(channel).step_by(width);
            same.clone().count() > 0 && same.clone().all(|(is_there, is_down)| *is_there && !*is_down)
        };
        u32::try_from((0..width).filter(|channel| is_ready(*channel)).count()).unwrap_or(u32::MAX)
    }
}

/// Whether the PE does what it is for: its pod runs, or it has done all that it had to do.
fn runs(pe: &ProcessingElement) -> bool {
    let Some(status) = &pe.status else { return false };
    match status.phase {
        Some(PePhase::Running) => condition::is_true(&status.conditions, condition::READY),
        Some(PePhase::Completed) => true,
        _ => false,
    }
}

/// The regions that an operator is in, by name without numbers, and its channel in each.
fn channels_of(operator: &str) -> Vec<(String, usize)> {
    let (mut found, mut name, mut rest) = (Vec::new(), String::new(), operator);
    while let Some((before, after)) = rest.split_once('[') {
        let Some((number, after)) = after.split_once(']') else { break };
        name.push_str(before);
        let Ok(channel) = number.parse() else { break };
        found.push((name.clone(), channel));
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use streams_api::{
        BundleReference, JobSpec, JobStatus, ProcessingElementSpec, ProcessingElementStatus, RegionWidth,
    };

    fn job(widths: &[(&str, u32)], ready: bool) -> Job {
        let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
        let applied = widths.iter().map(|(region, width)| RegionWidth { region: (*region).to_owned(), width: *width });
        let mut status = JobStatus { generation: Some(3), applied_widths: applied.collect(), ..JobStatus::default() };
        condition::set(&mut status.conditions, condition::READY, ready, "R", "", None, Timestamp::UNIX_EPOCH);
        job.status = Some(status);
        job
    }

    fn pe(phase: PePhase, operators: &[&str]) -> ProcessingElement {
        let operators: Vec<String> = operators.iter().map(|name| (*name).to_owned()).collect();
        let operator_count = u32::try_from(operators.len()).unwrap();
        let spec = ProcessingElementSpec { operators, operator_count, ..ProcessingElementSpec::default() };
        let mut pe = ProcessingElement::new("flow-1", spec);
        let mut status = ProcessingElementStatus { phase: Some(phase), ..ProcessingElementStatus::default() };
        let runs = phase == PePhase::Running;
        condition::set(&mut status.conditions, condition::READY, runs, "R", "", None, Timestamp::UNIX_EPOCH);
        pe.status = Some(status);
        pe
    }

    fn ready(job: &Job, pes: &[ProcessingElement], region: &str) -> Option<u32> {
        ReadyWidths::by_job(job).unwrap_or_else(|| ReadyWidths::by_pes(job, pes)).get(region)
    }

    #[test]
    fn a_channel_counts_if_each_pe_with_an_operator_of_it_runs() {
        use PePhase::{Completed, Failed, Running, Starting};
        let simple = job(&[("Clean", 3)], false);
        let both = job(&[("Score", 2), ("Score.Model", 2)], false);
        let mut going = pe(Running, &["Clean[2]"]);
        going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let mut large = pe(Starting, &["Source"]);
        large.spec.operator_count = 65;
        let mut large_but_runs = pe(Running, &["Source"]);
        large_but_runs.spec.operator_count = 65;
        let mut new = pe(Running, &["Clean[0]", "Clean[1]", "Clean[2]"]);
        new.status = None;
        let all = || pe(Running, &["Clean[0]", "Clean[1]"]);
        // job, PEs, region -> ready width
        let table = [
            (&simple, vec![all(), pe(Running, &["Clean[2].X"])], "Clean", Some(3)),
            (&simple, vec![all(), pe(Starting, &["Clean[2].X"])], "Clean", Some(2)),
            (&simple, vec![all(), pe(Completed, &["Clean[2].X"])], "Clean", Some(3)),
            // Its PE is not there yet, or not any more.
            (&simple, vec![all()], "Clean", Some(2)),
            (&simple, vec![all(), going], "Clean", Some(2)),
            (&simple, vec![new], "Clean", Some(0)),
            // One of two PEs of a channel.
            (&simple, vec![all(), pe(Running, &["Clean[2].X"]), pe(Failed, &["Clean[0].Y"])], "Clean", Some(2)),
            // Neighbours, and channels of a generation to come, do not count.
            (&simple, vec![all(), pe(Failed, &["Source", "Cleaner[2]", "Clean[3]"])], "Clean", Some(2)),
            // Not all of its operators are known.
            (&simple, vec![all(), large], "Clean", None),
            (&simple, vec![all(), large_but_runs], "Clean", Some(2)),
            // Channel 1 of the inner region is down in one of the channels around.
            (
                &both,
                vec![
                    pe(Running, &["Score[0].Model[0]", "Score[0].Model[1]"]),
                    pe(Running, &["Score[1].Model[2]", "Score[1].Window"]),
                    pe(Starting, &["Score[1].Model[3]"]),
                ],
                "Score.Model",
                Some(1),
            ),
            (&both, vec![pe(Running, &["Score[0].Model[0]"]), pe(Starting, &["Score[1].Model[3]"])], "Score", Some(1)),
        ];
        for (job, pes, region, expected) in table {
            assert_eq!(ready(job, &pes, region), expected, "{region} {pes:?}");
        }
    }

    #[test]
    fn a_job_that_is_ready_speaks_for_its_pes() {
        assert_eq!(ready(&job(&[("Clean", 3)], true), &[], "Clean"), Some(3));
        let mut new = job(&[], false);
        new.status = None;
        assert_eq!(ready(&new, &[], "Clean"), None);
    }
}
