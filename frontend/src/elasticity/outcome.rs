//! Computes how far a request has come, from the object and its job (rules elasticity-11 and elasticity-12). Pure.
//!
//! The job says first what happens: the generation that commits a request lists its number. The status of the request
//! follows, and stays when later generations are committed. So both are read, and whichever is further counts.
//!
//! A thousand may wait for requests of one job, and each change of it may have all of them look: no text is made before
//! somebody is told.

use std::fmt;
use streams_api::{DesiredWidth, JobStatus, Resize, ResizeChanges, ResizePhase, Rollout, condition};
use streams_proto::elasticity::v1::Changes;
use streams_proto::elasticity::v1::resize_request::WaitFor;

/// How far a request has come.
#[derive(Clone, Debug, PartialEq)]
pub enum ResizeOutcome<'a> {
    /// What the caller waits for has not happened yet.
    Waiting(Waiting<'a>),
    /// It has happened.
    Done {
        /// Generation of the job that has the widths.
        generation: Option<u64>,
        /// What it did to PEs; none when the widths were in force before the request.
        changes: Option<Changes>,
    },
    /// The request ended without its widths.
    Ended(ResizePhase),
}

/// What a request waits for, and, if that is known, why it does not come; for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting<'a> {
    what: What<'a>,
    why: Option<Why<'a>>,
}

#[derive(Clone, Debug, PartialEq)]
enum What<'a> {
    /// To be looked at.
    Look,
    /// To be admitted.
    Admission,
    /// What has to be there before it is admitted.
    Plan,
    /// These widths to be compiled and committed.
    Compilation(&'a [DesiredWidth]),
    /// This generation to be committed.
    Commit(u64),
    /// This generation to be seen.
    Sight(u64),
    /// So many PEs of the generation to follow.
    RollOut { pending: u32, generation: u64 },
}

#[derive(Clone, Debug, PartialEq)]
enum Why<'a> {
    /// Nothing comes of any request.
    LostPlan,
    /// The request or the job says it.
    Said(&'a str),
}

impl fmt::Display for Waiting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::Look => f.write_str("the request to be looked at")?,
            What::Admission => f.write_str("the request to be admitted")?,
            What::Plan => write!(f, "the plan of the job, which is lost: {}", condition::PLAN_LOST_WAY_OUT)?,
            What::Compilation(widths) => {
                match widths {
                    [] => f.write_str("nothing")?,
                    [first] => write!(f, "width {} of {}", first.width, first.name)?,
                    [first, others @ ..] => {
                        write!(f, "width {} of {} and {} more", first.width, first.name, others.len())?;
                    }
                }
                f.write_str(" to be compiled and committed")?;
            }
            What::Commit(generation) => write!(f, "generation {generation} to be committed")?,
            What::Sight(generation) => write!(f, "generation {generation} to be seen")?,
            What::RollOut { pending, generation } => write!(f, "{pending} PEs of generation {generation} to follow")?,
        }
        match &self.why {
            None => Ok(()),
            Some(Why::LostPlan) => write!(f, ": the plan of the job is lost; {}", condition::PLAN_LOST_WAY_OUT),
            Some(Why::Said(why)) => write!(f, ": {why}"),
        }
    }
}

/// Computes how far a request has come for somebody who waits for this.
pub fn assess<'a>(request: &'a Resize, wait_for: WaitFor, job: &'a JobStatus) -> ResizeOutcome<'a> {
    #[cfg(test)]
    tests::ASSESSED.with(|assessed| assessed.set(assessed.get() + 1));
    let Some(status) = &request.status else {
        return admission(What::Look, job);
    };
    let phase = request.phase();
    // What is committed is in force, whoever has written otherwise before the request could say so.
    if let ResizePhase::Refused | ResizePhase::Superseded | ResizePhase::Cancelled = phase
        && committed(request, job).is_none()
    {
        return ResizeOutcome::Ended(phase);
    }
    if status.number.is_none() {
        return admission(What::Admission, job);
    }
    if wait_for == WaitFor::Accepted {
        return ResizeOutcome::Done { generation: None, changes: None };
    }
    let in_force = job.generation.unwrap_or_default();
    let Some((generation, changes)) = committed(request, job) else {
        return match planned(request, job) {
            Some(planned) if wait_for == WaitFor::Planned => {
                ResizeOutcome::Done { generation: Some(planned), changes: None }
            }
            Some(planned) => {
                // It may say what holds that up.
                let why = lost_plan(job).or_else(|| status.message.as_deref().map(Why::Said));
                waiting(What::Commit(planned), why)
            }
            None => {
                // If it waits for something itself, it says so.
                let own = || status.reason.as_ref().map(|_| Why::Said(status.message.as_deref().unwrap_or_default()));
                let why = lost_plan(job).or_else(own).or_else(|| no_compiler(job));
                waiting(What::Compilation(&request.spec.regions), why)
            }
        };
    };
    if in_force < generation {
        // What is seen of the job is behind what is seen of the request.
        return waiting(What::Sight(generation), None);
    }
    if wait_for == WaitFor::RolledOut && !is_rolled_out(request, job) {
        let pending = rollout(job).map_or(0, |rollout| rollout.pending);
        return waiting(What::RollOut { pending, generation: in_force }, lost_plan(job));
    }
    ResizeOutcome::Done { generation: Some(generation), changes: changes.map(of_pes) }
}

/// What of the status of a job the outcomes of its requests follow from. As long as it stays as it is, they do.
pub(super) fn decisive(job: &JobStatus) -> JobStatus {
    JobStatus {
        generation: job.generation,
        proposal: job.proposal.clone(),
        rollout: job.rollout.clone(),
        committed_resizes: job.committed_resizes.clone(),
        conditions: job.conditions.clone(),
        ..JobStatus::default()
    }
}

fn waiting<'a>(what: What<'a>, why: Option<Why<'a>>) -> ResizeOutcome<'a> {
    ResizeOutcome::Waiting(Waiting { what, why })
}

/// Why nothing comes of any request of a job whose plan is lost, whatever it has waited for before, and whatever its
/// status has said of that since (rule job-28).
fn lost_plan(job: &JobStatus) -> Option<Why<'_>> {
    condition::plan_lost(&job.conditions).map(|_| Why::LostPlan)
}

/// What a job says while it cannot reach who compiles (rule job-20).
fn no_compiler(job: &JobStatus) -> Option<Why<'_>> {
    let progressing = condition::get(&job.conditions, condition::PROGRESSING);
    let unreachable = progressing.filter(|progressing| progressing.reason == condition::FUSION_UNAVAILABLE);
    unreachable.map(|progressing| Why::Said(&progressing.message))
}

/// What a request waits for that has no number: this, or the plan of its job.
fn admission<'a>(what: What<'a>, job: &JobStatus) -> ResizeOutcome<'a> {
    let is_lost = condition::plan_lost(&job.conditions).is_some();
    waiting(if is_lost { What::Plan } else { what }, None)
}

/// The generation that has committed a request, and what it did to PEs, as far as either says so.
pub(super) fn committed(request: &Resize, job: &JobStatus) -> Option<(u64, Option<ResizeChanges>)> {
    let status = request.status.as_ref()?;
    match (request.phase(), status.generation) {
        (ResizePhase::Written | ResizePhase::RolledOut, Some(generation)) => Some((generation, status.changes)),
        _ => job.commit_of(status.number?).map(|committed| (committed.generation, Some(committed.changes))),
    }
}

/// Whether somebody has deleted a request before it was committed or ended, and finalizers hold its object: nothing
/// becomes of it any more (rule elasticity-17).
pub(super) fn is_deleted_uncommitted(request: &Resize, job: &JobStatus) -> bool {
    let is_over = request.phase().is_final() || committed(request, job).is_some();
    request.metadata.deletion_timestamp.is_some() && !is_over
}

/// The generation that is about to commit a request.
pub(super) fn planned(request: &Resize, job: &JobStatus) -> Option<u64> {
    let status = request.status.as_ref()?;
    let proposal = job.proposal.as_ref().filter(|_| status.number.is_some_and(|number| job.proposes(number)));
    let proposed = proposal.map(|proposal| proposal.plan.generation);
    proposed.or(status.generation.filter(|_| request.phase() == ResizePhase::Planned))
}

/// What that generation will do to PEs.
pub(super) fn planned_changes(request: &Resize, job: &JobStatus) -> Option<ResizeChanges> {
    let number = request.status.as_ref()?.number?;
    job.proposal.as_ref().filter(|_| job.proposes(number))?.changes
}

/// Whether the generation of a request that is committed, or a newer one, is rolled out.
pub(super) fn is_rolled_out(request: &Resize, job: &JobStatus) -> bool {
    request.phase() == ResizePhase::RolledOut || rollout(job).is_some_and(|rollout| rollout.finished_at.is_some())
}

/// How far the committed generation has come.
pub(super) fn rollout(job: &JobStatus) -> Option<&Rollout> {
    job.rollout.as_ref().filter(|rollout| Some(rollout.generation) == job.generation)
}

/// In the form of the API.
pub(super) fn of_pes(changes: ResizeChanges) -> Changes {
    let ResizeChanges { kept, restarted, added, removed } = changes;
    Changes { kept, restarted, added, removed }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use k8s_openapi::jiff::Timestamp;
    use std::cell::Cell;
    use streams_api::{CommittedResizes, ResizeSpec, ResizeStatus};

    thread_local! {
        /// How often this thread has computed how far a request has come.
        pub(in super::super) static ASSESSED: Cell<usize> = const { Cell::new(0) };
    }

    const CHANGES: ResizeChanges = ResizeChanges { kept: 7, restarted: 1, added: 8, removed: 0 };

    /// Committed generation, whether it is rolled out, the generation that committed request 3.
    fn job(generation: u64, finished: bool, of_request: Option<u64>) -> JobStatus {
        let finished_at = finished.then_some(MicroTime(Timestamp::UNIX_EPOCH));
        let committed =
            of_request.map(|generation| CommittedResizes { generation, resizes: vec![2, 3], changes: CHANGES });
        JobStatus {
            generation: Some(generation),
            // What the newest generation does is not what the request's has done.
            rollout: Some(Rollout { generation, kept: 1, pending: 4, finished_at, ..Rollout::default() }),
            committed_resizes: committed.into_iter().collect(),
            ..JobStatus::default()
        }
    }

    /// What there is to tell: what is waited for in words. It follows from what is decisive of the job.
    fn told(request: &Resize, wait_for: WaitFor, job: &JobStatus) -> Result<ResizeOutcome<'static>, String> {
        let decisive = decisive(job);
        let outcome = assess(request, wait_for, &decisive);
        assert_eq!(outcome, assess(request, wait_for, job));
        match outcome {
            ResizeOutcome::Waiting(what) => Err(what.to_string()),
            ResizeOutcome::Done { generation, changes } => Ok(ResizeOutcome::Done { generation, changes }),
            ResizeOutcome::Ended(phase) => Ok(ResizeOutcome::Ended(phase)),
        }
    }

    fn request(phase: ResizePhase, generation: Option<u64>) -> Resize {
        let regions = vec![DesiredWidth { name: "R".into(), width: 10, expected_width: None }];
        let mut request = Resize::new("r", ResizeSpec { job_name: "flow".into(), regions, ..ResizeSpec::default() });
        let is_committed = matches!(phase, ResizePhase::Written | ResizePhase::RolledOut);
        request.status = Some(ResizeStatus {
            phase: Some(phase),
            number: Some(3),
            generation,
            changes: is_committed.then_some(CHANGES),
            ..ResizeStatus::default()
        });
        request
    }

    #[test]
    fn an_answer_follows_from_the_request_and_its_job() {
        use ResizePhase::{Cancelled, Pending, Planned, Refused, Superseded, Written};
        use WaitFor::{Accepted, Committed, RolledOut};
        let done = |generation, changes: bool| {
            Ok(ResizeOutcome::Done { generation: Some(generation), changes: changes.then(|| of_pes(CHANGES)) })
        };
        let ended = |phase| Ok(ResizeOutcome::Ended(phase));
        let waiting = |what: &str| Err(what.to_owned());
        let mut in_force = request(ResizePhase::RolledOut, Some(4));
        in_force.status.as_mut().unwrap().changes = None;
        let mut new = request(Pending, None);
        new.status = None;
        let now = Timestamp::UNIX_EPOCH;
        let mut unreachable = job(4, true, None);
        let why = "trying again: the fusion service is not available: it shows another certificate";
        condition::set(
            &mut unreachable.conditions,
            condition::PROGRESSING,
            true,
            condition::FUSION_UNAVAILABLE,
            why,
            None,
            now,
        );
        let table = [
            (
                request(Pending, None),
                Committed,
                unreachable.clone(),
                waiting(&format!("width 10 of R to be compiled and committed: {why}")),
            ),
            (request(Planned, Some(5)), Committed, unreachable, waiting("generation 5 to be committed")),
            (new, Accepted, job(4, true, None), waiting("the request to be looked at")),
            (
                request(Pending, None),
                Accepted,
                job(4, true, None),
                Ok(ResizeOutcome::Done { generation: None, changes: None }),
            ),
            (
                request(Pending, None),
                Committed,
                job(4, true, None),
                waiting("width 10 of R to be compiled and committed"),
            ),
            (
                request(Planned, Some(5)),
                WaitFor::Planned,
                job(4, true, None),
                Ok(ResizeOutcome::Done { generation: Some(5), changes: None }),
            ),
            (request(Planned, Some(5)), Committed, job(4, true, None), waiting("generation 5 to be committed")),
            // The job says it first.
            (request(Pending, None), Committed, job(5, false, Some(5)), done(5, true)),
            (request(Planned, Some(5)), RolledOut, job(5, false, Some(5)), waiting("4 PEs of generation 5 to follow")),
            (request(Planned, Some(5)), RolledOut, job(5, true, Some(5)), done(5, true)),
            // Later generations change nothing about the answer.
            (request(Written, Some(5)), RolledOut, job(7, true, None), done(5, true)),
            (request(ResizePhase::RolledOut, Some(5)), RolledOut, job(7, false, None), done(5, true)),
            (request(Written, Some(5)), RolledOut, job(7, false, None), waiting("4 PEs of generation 7 to follow")),
            // The mirror of jobs is behind that of requests.
            (request(Written, Some(5)), Committed, job(4, true, None), waiting("generation 5 to be seen")),
            (in_force, RolledOut, job(4, true, None), done(4, false)),
            (request(Refused, None), Accepted, job(4, true, None), ended(Refused)),
            (request(Refused, None), Committed, job(5, false, Some(5)), done(5, true)),
            (request(Superseded, None), Committed, job(4, true, None), ended(Superseded)),
            (request(Cancelled, None), Committed, job(4, true, None), ended(Cancelled)),
        ];
        for (request, wait_for, job, expected) in table {
            assert_eq!(told(&request, wait_for, &job), expected, "{wait_for:?} {:?} {job:?}", request.status);
        }
    }

    #[test]
    fn who_waits_hears_that_the_plan_is_lost_however_far_the_request_has_come() {
        use WaitFor::{Accepted, Committed, RolledOut};
        let lost = |mut job: JobStatus| {
            let (conditions, now) = (&mut job.conditions, Timestamp::UNIX_EPOCH);
            condition::set(conditions, condition::READY, false, condition::PLAN_LOST, "", None, now);
            condition::set(conditions, condition::PROGRESSING, true, condition::FUSION_UNAVAILABLE, "why", None, now);
            job
        };
        let changed = |mut request: Resize, change: fn(&mut ResizeStatus)| {
            change(request.status.as_mut().unwrap());
            request
        };
        let pending = || request(ResizePhase::Pending, None);
        let new = Resize { status: None, ..pending() };
        let unadmitted = changed(pending(), |status| status.number = None);
        let cooling = changed(pending(), |status| {
            status.reason = Some("CoolingDown".to_owned());
            status.message = Some("the one in force stays for a while".to_owned());
        });
        let held_up =
            changed(request(ResizePhase::Planned, Some(5)), |status| status.message = Some("no quota".to_owned()));
        let widths = "width 10 of R to be compiled and committed";
        let way_out = "if nothing brings it back, delete the job and submit it anew";
        // request, what is waited for, its job -> what it waits for, and why while the plan is lost and otherwise
        let table = [
            (pending(), Committed, job(4, true, None), widths, ""),
            (cooling, Committed, job(4, true, None), widths, ": the one in force stays for a while"),
            (held_up, Committed, job(4, true, None), "generation 5 to be committed", ": no quota"),
            (pending(), RolledOut, job(5, false, Some(5)), "4 PEs of generation 5 to follow", ""),
        ];
        for (request, wait_for, job, what, otherwise) in table {
            let said = Err(format!("{what}{otherwise}"));
            assert_eq!(told(&request, wait_for, &job), said);
            let said = Err(format!("{what}: the plan of the job is lost; {way_out}"));
            assert_eq!(told(&request, wait_for, &lost(job)), said);
        }
        for request in [new, unadmitted] {
            let said = Err(format!("the plan of the job, which is lost: {way_out}"));
            assert_eq!(told(&request, Accepted, &lost(job(4, true, None))), said, "{:?}", request.status);
        }
    }
}
