//! What there is to tell of a request to resize. Pure.

use super::words::{pes, unseen};
use streams_api::{Job, Resize, ResizePhase, condition};

/// Reasons of a job's condition Progressing that say that it goes on as it should.
const GOES_ON: [&str; 4] = ["Submitting", "PreparingGeneration", "RollingOut", "Suspending"];

/// Whether no frontend has said anything of the request.
pub(crate) fn is_unseen(request: &Resize) -> bool {
    request.status.as_ref().and_then(|status| status.phase).is_none()
}

/// A sentence about how far the request is; the job says how far its roll-out is, and what keeps it.
pub(crate) fn tell(request: &Resize, job: Option<&Job>) -> String {
    let status = request.status.clone().unwrap_or_default();
    let said = status.message.as_deref().filter(|message| !message.is_empty());
    let because = |text: &str| said.map_or_else(|| text.to_owned(), |said| format!("{text}: {said}"));
    let generation = status.generation.map(|generation| format!("generation {generation}"));
    let generation = generation.as_deref().unwrap_or("its generation");
    let changes = status.changes.map_or_else(String::new, |changes| {
        let streams_api::ResizeChanges { kept, restarted, added, removed } = changes;
        format!(": {} kept, {restarted} restarted, {added} added, {removed} removed", pes(kept))
    });
    let kept_by = job.and_then(trouble).map_or_else(String::new, |trouble| format!("; {trouble}"));
    match request.phase() {
        // Whatever it has said before.
        ResizePhase::Pending if job.is_some_and(is_plan_lost) => {
            format!("no width is changed while the plan of the job is lost; {}", condition::PLAN_LOST_WAY_OUT)
        }
        ResizePhase::Pending if is_unseen(request) => unseen("request"),
        ResizePhase::Pending => because("waiting to be compiled"),
        ResizePhase::Planned => format!("{generation} is being written{changes}{kept_by}"),
        ResizePhase::Written => {
            let rollout = job.and_then(|job| job.status.as_ref()?.rollout.as_ref());
            match rollout.filter(|rollout| rollout.finished_at.is_none()) {
                Some(rollout) => {
                    format!("{generation} is committed{changes}; {} to follow{kept_by}", pes(rollout.pending))
                }
                None => format!("{generation} is committed{changes}"),
            }
        }
        ResizePhase::RolledOut => format!("{generation} is rolled out{changes}"),
        ResizePhase::Refused => because("refused"),
        ResizePhase::Superseded => because("superseded"),
        ResizePhase::Cancelled => because("cancelled"),
    }
}

/// What keeps a job from going on, in its own words: the API server refuses what it needs, for example, or nothing is
/// tried because its plan is lost.
fn trouble(job: &Job) -> Option<&str> {
    let progressing = condition::get(&job.status.as_ref()?.conditions, condition::PROGRESSING)?;
    let is_tried_again = progressing.status == "True" && !GOES_ON.contains(&progressing.reason.as_str());
    let is_trouble = is_tried_again || progressing.reason == condition::PLAN_LOST;
    is_trouble.then_some(progressing.message.as_str())
}

/// Whether it is not known what the job consists of.
pub(crate) fn is_plan_lost(job: &Job) -> bool {
    job.status.as_ref().is_some_and(|status| condition::plan_lost(&status.conditions).is_some())
}

/// Whether the request has come as far as this, or never will.
pub(crate) fn has_come_to(request: &Resize, phase: ResizePhase) -> Option<bool> {
    let now = request.phase();
    let is_bad = matches!(now, ResizePhase::Refused | ResizePhase::Superseded | ResizePhase::Cancelled);
    if is_bad { Some(false) } else { (now >= phase).then_some(true) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn request(status: Value) -> Resize {
        let spec = json!({"jobName": "sensors", "regions": [{"name": "Clean", "width": 4}]});
        let object = json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Resize",
            "metadata": {"name": "r"}, "spec": spec, "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    fn job(pending: u32, finished: Option<&str>) -> Job {
        let rollout = json!({
            "generation": 3, "kept": 9, "restarted": 2, "added": 2, "removed": 0, "pending": pending,
            "finishedAt": finished,
        });
        let object = json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Job",
            "metadata": {"name": "sensors"}, "spec": {"bundle": {"file": "f"}}, "status": {"rollout": rollout},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_keeps_a_job_is_told_with_the_request_that_waits_for_it() {
        let stuck = |reason: &str, status: &str| {
            let mut job = job(1, None);
            let progressing = json!([{
                "type": "Progressing", "status": status, "reason": reason, "message": "trying again: exceeded quota",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
            job.status.as_mut().unwrap().conditions = serde_json::from_value(progressing).unwrap();
            job
        };
        let of = |phase: &str| request(json!({"phase": phase, "generation": 2}));
        let (planned, written) = ("generation 2 is being written", "generation 2 is committed; 1 PE to follow");
        let why = "; trying again: exceeded quota";
        for (reason, status, added) in [
            ("QuotaExceeded", "True", why),
            ("QuotaExceeded", "False", ""),
            ("PlanLost", "False", why),
            ("RollingOut", "True", ""),
        ] {
            let job = stuck(reason, status);
            assert_eq!(tell(&of("Planned"), Some(&job)), format!("{planned}{added}"), "{reason}");
            assert_eq!(tell(&of("Written"), Some(&job)), format!("{written}{added}"), "{reason}");
        }
    }

    #[test]
    fn who_waits_for_a_job_whose_plan_is_lost_is_told_so() {
        let lost = "no width is changed while the plan of the job is lost; if nothing brings it back, delete the job and \
                    submit it anew";
        let new = || Value::Null;
        let admitted = || json!({"phase": "Pending", "number": 3});
        let cooling = || json!({"phase": "Pending", "number": 3, "reason": "CoolingDown", "message": "until then"});
        for (reason, status, expected) in [
            ("PlanLost", new(), lost),
            ("PlanLost", admitted(), lost),
            ("PlanLost", cooling(), lost),
            ("R", new(), "no frontend"),
            ("R", admitted(), "waiting to be compiled"),
            ("R", cooling(), "waiting to be compiled: until then"),
        ] {
            let mut job = job(0, None);
            let said = json!([{"type": "Ready", "status": "False", "reason": reason, "message": "",
                               "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
            job.status.as_mut().unwrap().conditions = serde_json::from_value(said).unwrap();
            let told = tell(&request(status), Some(&job));
            assert!(told.starts_with(expected), "{told}");
        }
    }

    #[test]
    fn every_phase_is_told_and_known_to_be_the_end_or_not() {
        let changes = json!({"kept": 9, "restarted": 2, "added": 2, "removed": 0});
        let of = |phase: &str| json!({"phase": phase, "generation": 3, "changes": changes});
        let because = |phase: &str| json!({"phase": phase, "reason": "R", "message": "why"});
        let counts = ": 9 PEs kept, 2 restarted, 2 added, 0 removed";
        let (rolling, done) = (job(4, None), job(0, Some("2026-01-01T00:00:00Z")));
        // status, job -> sentence; is it written, is it rolled out?
        let table = [
            (Value::Null, None, unseen("request"), None, None),
            (json!({"phase": "Pending"}), None, "waiting to be compiled".to_owned(), None, None),
            (because("Pending"), None, "waiting to be compiled: why".to_owned(), None, None),
            (of("Planned"), None, format!("generation 3 is being written{counts}"), None, None),
            (
                of("Written"),
                Some(&rolling),
                format!("generation 3 is committed{counts}; 4 PEs to follow"),
                Some(true),
                None,
            ),
            (of("Written"), Some(&done), format!("generation 3 is committed{counts}"), Some(true), None),
            (of("RolledOut"), None, format!("generation 3 is rolled out{counts}"), Some(true), Some(true)),
            (because("Refused"), None, "refused: why".to_owned(), Some(false), Some(false)),
            (because("Superseded"), None, "superseded: why".to_owned(), Some(false), Some(false)),
            (json!({"phase": "Cancelled"}), None, "cancelled".to_owned(), Some(false), Some(false)),
        ];
        for (status, job, sentence, is_written, is_rolled_out) in table {
            let request = request(status);
            assert_eq!(tell(&request, job), sentence);
            assert_eq!(has_come_to(&request, ResizePhase::Written), is_written, "{sentence}");
            assert_eq!(has_come_to(&request, ResizePhase::RolledOut), is_rolled_out, "{sentence}");
        }
    }
}
