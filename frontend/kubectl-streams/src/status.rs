//! How a job is.

use super::lists::listed;
use super::named::named;
use super::options::StatusOptions;
use super::progress::{is_plan_lost, tell};
use super::words::{one_line, pes, unseen};
use kube::api::ListParams;
use kube::{Client, ResourceExt as _};
use std::io::Write as _;
use streams_api::{Job, ParallelRegion, PePhase, ProcessingElement, Resize, condition, names};
use tabwriter::TabWriter;

/// PEs that do not run, and requests, that are shown; of large jobs there may be many.
const MOST_SHOWN: usize = 20;

/// Everything that is shown.
struct Seen {
    job: Job,
    regions: Vec<ParallelRegion>,
    /// Those that do not run, at least.
    pes: Vec<ProcessingElement>,
    requests: Vec<Resize>,
}

/// Prints how the job is.
pub(crate) async fn show(client: Client, namespace: &str, options: &StatusOptions) -> anyhow::Result<()> {
    let name = &options.job;
    let job: Job = named(&client, namespace, "job", name).await?;
    let of_job = ListParams::default().labels(&format!("{}={name}", names::LABEL_JOB));
    let of_namespace = ListParams::default();
    let (regions, pes, requests) = tokio::try_join!(
        listed(&client, namespace, &of_job, |_: &ParallelRegion| true),
        listed(&client, namespace, &of_job, is_down),
        listed(&client, namespace, &of_namespace, |request: &Resize| request.spec.job_name == *name),
    )?;
    let seen = Seen { job, regions, pes, requests };
    let mut columns = TabWriter::new(std::io::stdout().lock());
    columns.write_all(text(&seen).as_bytes())?;
    columns.flush()?;
    Ok(())
}

/// What is printed, with tabs between columns.
fn text(seen: &Seen) -> String {
    let Seen { job, regions, pes: all_pes, requests } = seen;
    let status = job.status.clone().unwrap_or_default();
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    line(format!("Job:\t{}", job.name_any()));
    line(format!("Phase:\t{}", status.phase.map_or_else(|| unseen("job"), |phase| phase.name().to_owned())));
    if let Some(generation) = status.generation {
        let is_out = status.rollout.as_ref().is_none_or(|rollout| rollout.finished_at.is_some());
        let pending = status.rollout.as_ref().map_or(0, |rollout| rollout.pending);
        let how = if is_out { "rolled out".to_owned() } else { format!("{} to follow", pes(pending)) };
        line(format!("Generation:\t{generation}, {how}"));
    }
    if let Some(statistics) = &status.statistics {
        let (ready, all) = (statistics.ready_processing_elements, statistics.processing_elements);
        let completed = match statistics.completed_processing_elements {
            0 => String::new(),
            1 => ", 1 has completed".to_owned(),
            completed => format!(", {completed} have completed"),
        };
        let so = if is_plan_lost(job) { "; not counted since the plan of the job was lost" } else { "" };
        line(format!("PEs:\t{ready} of {all} run what the job wants{completed}{so}"));
    }
    if !status.conditions.is_empty() {
        line("\nCONDITION\tSTATUS\tREASON\tMESSAGE".to_owned());
        for condition in &status.conditions {
            let (kind, reason) = (&condition.type_, &condition.reason);
            line(format!("{kind}\t{}\t{reason}\t{}", condition.status, one_line(&condition.message)));
        }
    }
    if !regions.is_empty() {
        line("\nREGION\tDESIRED\tAPPLIED\tSTATE".to_owned());
        let mut regions: Vec<_> = regions.iter().collect();
        regions.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        for region in regions {
            line(of_region(job, region));
        }
    }
    let mut down: Vec<_> = all_pes.iter().filter(|pe| is_down(pe)).collect();
    down.sort_by_key(|pe| pe.spec.id);
    if !down.is_empty() {
        line("\nPE\tPHASE\tREASON\tMESSAGE".to_owned());
        for pe in down.iter().take(MOST_SHOWN) {
            line(of_pe(pe));
        }
        if down.len() > MOST_SHOWN {
            line(format!("and {} more", down.len() - MOST_SHOWN));
        }
    }
    // Those that have not been admitted have no number; the newest are of interest.
    let mut requests: Vec<_> = requests.iter().collect();
    requests.sort_by_key(|request| request.creation_timestamp().map(|time| std::cmp::Reverse(time.0)));
    if !requests.is_empty() {
        line("\nRESIZE\tWIDTHS\tHOW FAR".to_owned());
        for request in requests.iter().take(MOST_SHOWN) {
            let widths: Vec<_> =
                request.spec.regions.iter().map(|region| format!("{}={}", region.name, region.width)).collect();
            let far = one_line(&tell(request, Some(job)));
            line(format!("{}\t{}\t{far}", request.name_any(), one_line(&widths.join(","))));
        }
        if requests.len() > MOST_SHOWN {
            line(format!("and {} more", requests.len() - MOST_SHOWN));
        }
    }
    text
}

fn of_region(job: &Job, region: &ParallelRegion) -> String {
    let status = region.status.clone().unwrap_or_default();
    let name = &region.spec.name;
    let applied = job.status.iter().flat_map(|status| &status.applied_widths).find(|applied| applied.region == *name);
    let applied = applied.map_or_else(|| "-".to_owned(), |applied| applied.width.to_string());
    let ready = condition::get(&status.conditions, condition::READY).map(|ready| ready.reason.clone());
    let state = match (&status.rejected, ready) {
        (Some(rejected), _) => format!("width {} refused: {}", rejected.width, one_line(&rejected.message)),
        (None, Some(reason)) => reason,
        (None, None) => "-".to_owned(),
    };
    format!("{}\t{}\t{applied}\t{state}", one_line(name), region.spec.width)
}

/// Whether the PE does not run.
fn is_down(pe: &ProcessingElement) -> bool {
    phase(pe) != Some(PePhase::Running)
}

/// What the PE does.
pub(crate) fn phase(pe: &ProcessingElement) -> Option<PePhase> {
    pe.status.as_ref()?.phase
}

fn of_pe(pe: &ProcessingElement) -> String {
    let conditions = pe.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = condition::get(conditions, condition::READY);
    let (reason, message) =
        ready.map_or(("-", String::new()), |ready| (ready.reason.as_str(), one_line(&ready.message)));
    let phase = phase(pe).map_or_else(|| "-".to_owned(), |phase| format!("{phase:?}"));
    format!("{}\t{phase}\t{reason}\t{message}", pe.spec.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use streams_api::ProcessingElementSpec;

    fn object<K: serde::de::DeserializeOwned>(kind: &str, name: &str, spec: Value, status: Value) -> K {
        let meta = json!({"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"});
        let object = json!({
            "apiVersion": "streams.ibm.com/v1", "kind": kind, "metadata": meta, "spec": spec, "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    fn ready(status: &str, reason: &str, message: &str) -> Value {
        json!([{
            "type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }])
    }

    #[test]
    fn what_people_look_for_is_shown_line_by_line() {
        let rollout = json!({"generation": 3, "kept": 0, "restarted": 1, "added": 1, "removed": 0, "pending": 2});
        let status = json!({
            "phase": "Running", "generation": 3, "rollout": rollout,
            "appliedWidths": [{"region": "Clean", "width": 3}],
            "statistics": {"processingElements": 12, "readyProcessingElements": 10},
            "conditions": ready("False", "RollingOut", "two PEs\nfollow"),
        });
        let pe = |id: u64, phase: &str, reason: &str| {
            let spec = ProcessingElementSpec { job_name: "sensors".to_owned(), id, ..ProcessingElementSpec::default() };
            let spec = serde_json::to_value(spec).unwrap();
            object(
                "ProcessingElement",
                "p",
                spec,
                json!({"phase": phase, "conditions": ready("False", reason, "words")}),
            )
        };
        let region = |name: &str, width: u32, status: Value| {
            object(
                "ParallelRegion",
                name,
                json!({"jobName": "sensors", "name": name, "index": 0, "width": width}),
                status,
            )
        };
        let refused = json!({"rejected": {"width": 9, "reason": "OutOfBounds", "message": "at most 5"}});
        let asked =
            json!({"jobName": "sensors", "regions": [{"name": "Clean", "width": 4}, {"name": "Score", "width": 2}]});
        let seen = Seen {
            job: object("Job", "sensors", json!({"bundle": {"file": "f"}}), status),
            regions: vec![
                region("Score", 9, refused),
                region("Clean", 3, json!({"conditions": ready("True", "AllRunning", "")})),
            ],
            pes: vec![pe(7, "BackOff", "BackOff"), pe(1, "Running", "Running"), pe(2, "Starting", "PodPending")],
            requests: vec![object("Resize", "sensors-x", asked, json!({"phase": "Refused", "message": "at most 5"}))],
        };
        let expected = [
            "Job:\tsensors",
            "Phase:\tRunning",
            "Generation:\t3, 2 PEs to follow",
            "PEs:\t10 of 12 run what the job wants",
            "",
            "CONDITION\tSTATUS\tREASON\tMESSAGE",
            "Ready\tFalse\tRollingOut\ttwo PEs follow",
            "",
            "REGION\tDESIRED\tAPPLIED\tSTATE",
            "Clean\t3\t3\tAllRunning",
            "Score\t9\t-\twidth 9 refused: at most 5",
            "",
            "PE\tPHASE\tREASON\tMESSAGE",
            "2\tStarting\tPodPending\twords",
            "7\tBackOff\tBackOff\twords",
            "",
            "RESIZE\tWIDTHS\tHOW FAR",
            "sensors-x\tClean=4,Score=2\trefused: at most 5",
        ];
        assert_eq!(text(&seen).lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn pes_that_have_completed_are_counted_apart() {
        let completed = json!({"completedProcessingElements": 12});
        for (more, expected) in [
            (json!({}), "0 of 12 run what the job wants"),
            (completed, "0 of 12 run what the job wants, 12 have completed"),
        ] {
            let mut statistics = json!({"processingElements": 12, "readyProcessingElements": 0});
            statistics.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let status = json!({"phase": "Running", "statistics": statistics});
            let job = object("Job", "sensors", json!({"bundle": {"file": "f"}}), status);
            let text = text(&Seen { job, regions: Vec::new(), pes: Vec::new(), requests: Vec::new() });
            let shown = text.lines().find_map(|line| line.strip_prefix("PEs:\t"));
            assert_eq!(shown, Some(expected), "{text}");
        }
    }

    /// The job knows whether the number is whole.
    #[test]
    fn pes_that_run_with_older_options_are_counted_by_the_job_alone() {
        let mut conditions = ready("True", "OptionsChanged", "words");
        conditions[0]["type"] = json!("Outdated");
        let spec = serde_json::to_value(ProcessingElementSpec::default()).unwrap();
        let pe = object("ProcessingElement", "p", spec, json!({"phase": "Running", "conditions": conditions}));
        let said = "1 of 1 PEs run what the job wants; PEs run with older options until they restart, and are being \
                    counted";
        let status = json!({"phase": "Running", "conditions": ready("True", "AllRunning", said)});
        let job = object("Job", "sensors", json!({"bundle": {"file": "f"}}), status);
        let text = text(&Seen { job, regions: Vec::new(), pes: vec![pe], requests: Vec::new() });
        let shown: Vec<_> = text.lines().filter(|line| line.contains("older options")).collect();
        assert_eq!(shown, [format!("Ready\tTrue\tAllRunning\t{said}")], "{text}");
    }

    #[test]
    fn names_of_regions_move_no_cursor_and_end_no_column() {
        let name = "R\u{1b}]0;x\u{7}\n\tS";
        let asked = json!({"jobName": "sensors", "regions": [{"name": name, "width": 4}]});
        let seen = Seen {
            job: object("Job", "sensors", json!({"bundle": {"file": "f"}}), Value::Null),
            regions: vec![object(
                "ParallelRegion",
                "r",
                json!({"jobName": "sensors", "name": name, "index": 0, "width": 3}),
                Value::Null,
            )],
            pes: Vec::new(),
            requests: vec![object("Resize", "sensors-x", asked, json!({"phase": "Refused", "message": "no"}))],
        };
        let text = text(&seen);
        for expected in ["\nR ]0;x   S\t3\t-\t-\n", "\nsensors-x\tR ]0;x   S=4\trefused: no\n"] {
            assert!(text.contains(expected), "{text:?}");
        }
    }

    #[test]
    fn a_job_that_nobody_has_looked_at_is_shown() {
        let job = object("Job", "new", json!({"bundle": {"file": "f"}}), Value::Null);
        let seen = Seen { job, regions: Vec::new(), pes: Vec::new(), requests: Vec::new() };
        let expected = "no frontend has looked at this job yet: is one running, and does it look after this namespace?";
        assert_eq!(text(&seen), format!("Job:\tnew\nPhase:\t{expected}\n"));
    }
}
