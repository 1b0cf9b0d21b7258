//! What becomes of a pod that ended: the whole truth table of rule pe-7, under every combination of policies.

use super::*;
use streams_api::{PePhase, TerminationOutcome, condition};

/// One row: what happened, and whether another pod follows.
struct Row {
    what: &'static str,
    /// The pod as it is seen; `None`: it is gone.
    pod: Option<ObservedPod>,
    gone: AbsentPod,
    outcome: TerminationOutcome,
    /// By `restartFailedPod`, `restartCompletedPod`, `restartDeletedPod`.
    restarted: fn(bool, bool, bool) -> bool,
}

fn rows() -> Vec<Row> {
    use TerminationOutcome::{Completed, Deleted, Failed, Lost};
    let row = |what, pod, outcome, restarted| Row { what, pod, gone: unseen(), outcome, restarted };
    let gone = |what, last_seen: Option<ObservedPod>, node_gone, outcome, restarted| Row {
        what,
        pod: None,
        gone: AbsentPod { last_seen, deletion_seen: false, since: at(0), node_gone },
        outcome,
        restarted,
    };
    let deleting = |pod: ObservedPod| ObservedPod { gone_by: Some(at(120)), asked_to_go_at: Some(at(90)), ..pod };
    // They end at second 50.
    let deleted_before = |pod: ObservedPod| ObservedPod { gone_by: Some(at(70)), asked_to_go_at: Some(at(40)), ..pod };
    let seen_to_go = |pod: ObservedPod| ObservedPod { was_going: true, ..deleting(pod) };
    let lost = |pod: ObservedPod| ObservedPod { gone_by: Some(at(60)), ..pod };
    let disrupted = |reason: &str, pod: ObservedPod| ObservedPod { disruption: Some(why(reason)), ..pod };
    let completed = || ObservedPod { stage: ended(false, 0, "Completed"), ..pod(2) };
    let pending = || ObservedPod { stage: Stage::Pending(Explanation::default()), ..pod(2) };
    let refused = || {
        let why = why("OutOfcpu");
        let end = PodEnd { failed: true, never_started: true, why, ..PodEnd::default() };
        ObservedPod { stage: Stage::Ended(end), node: None, ..pod(2) }
    };
    vec![
        row("exit code 1", Some(failed(2)), Failed, |f, _, _| f),
        row(
            "killed by its probe",
            Some(ObservedPod { stage: ended(true, 137, "Error"), ..pod(2) }),
            Failed,
            |f, _, _| f,
        ),
        row("evicted by its node", Some(disrupted("TerminationByKubelet", failed(2))), Failed, |f, _, _| f),
        row("exit code 0", Some(completed()), Completed, |_, c, _| c),
        row("exit code 1, and other containers run on", Some(beside_others(failed(2))), Failed, |f, _, _| f),
        row("exit code 0, and other containers run on", Some(beside_others(completed())), Completed, |_, c, _| c),
        row("exit code 0, then deleted", Some(deleting(completed())), Completed, |_, c, d| c || d),
        row("deleted, then exit code 0", Some(deleted_before(completed())), Deleted, |_, c, d| c || d),
        row("deleted, then exit code 0, by another clock", Some(seen_to_go(completed())), Deleted, |_, c, d| c || d),
        row("deleted, then exit code 1", Some(deleted_before(failed(2))), Failed, |f, _, d| f || d),
        row(
            "deleted, then exit code 0, and other containers run on",
            Some(beside_others(deleted_before(completed()))),
            Deleted,
            |_, c, d| c || d,
        ),
        row("deleted, node does not answer", Some(lost(pod(2))), Deleted, |_, _, d| d),
        row("refused by its node", Some(refused()), Failed, |_, _, _| true),
        row(
            "drained, exit code 0",
            Some(deleted_before(disrupted("EvictionByEvictionAPI", completed()))),
            Failed,
            |f, _, d| f || d,
        ),
        row(
            "drained, node does not answer",
            Some(lost(disrupted("DeletionByTaintManager", pod(2)))),
            Failed,
            |f, _, d| f || d,
        ),
        gone("gone while no frontend ran", None, false, Lost, |f, _, d| f || d),
        gone("gone while the connection was down", Some(pod(2)), false, Lost, |f, _, d| f || d),
        Row {
            what: "deleted by force",
            pod: None,
            gone: AbsentPod { last_seen: Some(pod(2)), deletion_seen: true, since: at(100), node_gone: false },
            outcome: Deleted,
            restarted: |_, _, d| d,
        },
        gone("deleted while running", Some(deleting(pod(2))), false, Deleted, |_, _, d| d),
        gone("deleted before it ran", Some(deleting(pending())), false, Deleted, |_, _, d| d),
        gone("gone with its node, unseen", None, true, Failed, |f, _, d| f || d),
        gone("gone with its node", Some(pod(2)), true, Failed, |f, _, d| f || d),
        gone("preempted", Some(deleting(disrupted("PreemptionByScheduler", pod(2)))), false, Failed, |f, _, d| f || d),
        gone("failed, then gone", Some(failed(2)), false, Failed, |f, _, d| f || d),
        gone("completed, then gone", Some(completed()), false, Completed, |_, c, d| c || d),
        gone("deleted, then exit code 0, then gone", Some(deleted_before(completed())), false, Deleted, |_, c, d| {
            c || d
        }),
        gone("completed, then gone with its node", Some(completed()), true, Completed, |_, c, d| c || d),
    ]
}

/// Its PE has ended, and the pod goes on.
fn beside_others(mut pod: ObservedPod) -> ObservedPod {
    if let Stage::Ended(end) = &mut pod.stage {
        end.others_run = true;
    }
    pod
}

fn combinations() -> impl Iterator<Item = (bool, bool, bool, bool)> {
    let of = |bits: u8, bit: u8| bits & (1 << bit) != 0;
    (0..16).map(move |bits| (of(bits, 0), of(bits, 1), of(bits, 2), of(bits, 3)))
}

#[test]
fn the_truth_table() {
    for row in rows() {
        for (restart_failed, restart_completed, restart_deleted, delete_failed) in combinations() {
            let mut observed = running();
            observed.wanted.policies = Policies { restart_failed, restart_completed, restart_deleted, delete_failed };
            observed.pods = row.pod.iter().cloned().collect();
            if row.pod.as_ref().and_then(ObservedPod::end).is_some_and(|end| end.never_started) {
                observed.status.running_since = None;
            }
            let settled = settle(observed, row.gone.clone());
            let case = format!("{}, {restart_failed} {restart_completed} {restart_deleted} {delete_failed}", row.what);
            let status = &settled.observed.status;
            let last = status.last_termination.as_ref().unwrap();
            assert_eq!((last.outcome, last.launch_count), (row.outcome, 2), "{case}");
            let restarted = (row.restarted)(restart_failed, restart_completed, restart_deleted);
            assert_eq!((status.launch_count, status.restarts), if restarted { (3, 1) } else { (2, 0) }, "{case}");
            if !restarted {
                let phase = match row.outcome {
                    TerminationOutcome::Failed | TerminationOutcome::Lost => PePhase::Failed,
                    TerminationOutcome::Completed => PePhase::Completed,
                    TerminationOutcome::Deleted | TerminationOutcome::Stopped => PePhase::Stopped,
                    TerminationOutcome::Suspended => PePhase::Suspended,
                };
                assert_eq!(status.phase, Some(phase), "{case}");
            }
            // Of what ended, failed pods go, restarted or not, and completed ones once another pod follows.
            let there = row.pod.as_ref().is_some_and(|pod| !pod.is_deleting());
            let goes = match row.outcome {
                TerminationOutcome::Failed => delete_failed,
                _ => restarted,
            };
            // So do those that other containers would keep.
            let lingers = row.pod.as_ref().is_some_and(ObservedPod::lingers);
            assert_eq!(!settled.deletions.is_empty(), there && (goes || lingers), "{case}");
        }
    }
}

#[test]
fn a_pod_that_other_containers_keep_is_deleted_and_its_successor_does_not_wait_for_it() {
    // the pod -> phase once its end is recorded, if the policies permit no other
    let completed = ObservedPod { stage: ended(false, 0, "Completed"), ..pod(2) };
    for (ended, phase) in [(failed(2), PePhase::Failed), (completed, PePhase::Completed)] {
        let mut observed = PeObservation { pods: vec![beside_others(ended)], ..running() };
        observed.wanted.policies = Policies::default();
        let first = decide(&observed);
        assert_eq!((first.action, first.deletions.len()), (PeAction::Record(PeStatusChange::Ended), 0));
        assert!(first.notices[0].note.ends_with("so it is deleted"), "{:?}", first.notices);
        let last = first.status.last_termination.clone().unwrap();
        assert_eq!((first.status.phase, last.deleted_by), (Some(phase), Some(DeletedBy::Controller)));
        let mut observed = PeObservation { status: first.status, ..observed };
        let second = decide(&observed);
        assert_eq!((second.action, second.deletions.len()), (PeAction::Describe, 1));
        observed.wanted.restart_requested = Some("now".to_owned());
        let third = decide(&observed);
        assert_eq!(third.action, PeAction::Record(PeStatusChange::Launch(LaunchReason::Requested)));
        observed.status = third.status;
        assert_eq!(decide(&observed).action, PeAction::Create);
        // Kept are those of which nothing runs.
        observed.pods = vec![beside_others(failed(1)), failed(2)];
        let deleted: Vec<_> = decide(&observed).deletions.into_iter().map(|deletion| deletion.name).collect();
        assert_eq!(deleted, [pod(1).name]);
    }
}

#[test]
fn a_pe_whose_pod_was_deleted_and_ended_with_exit_code_0_is_down_until_a_new_text() {
    let completed = ObservedPod { stage: ended(false, 0, "Completed"), ..pod(2) };
    let deleted = ObservedPod { gone_by: Some(at(70)), asked_to_go_at: Some(at(40)), ..completed };
    let mut observed = PeObservation { pods: vec![deleted], ..running() };
    observed.wanted.policies.restart_failed = true;
    let first = decide(&observed);
    assert_eq!((first.action, first.status.phase), (PeAction::Record(PeStatusChange::Ended), Some(PePhase::Stopped)));
    assert_eq!(first.notices.iter().map(|notice| &*notice.reason).collect::<Vec<_>>(), ["PodDeleted", "NotRestarted"]);
    assert!(first.notices[1].note.contains("a new value of its annotation streams.ibm.com/restart-requested"));
    let last = first.status.last_termination.clone().unwrap();
    assert_eq!((last.exit_code, last.deleted_by), (Some(0), Some(DeletedBy::Other)));
    observed.status = first.status;
    assert_eq!(decide(&observed).action, PeAction::Describe);
    observed.wanted.runtime_id = "r1".to_owned();
    assert_eq!(decide(&observed).action, PeAction::Record(PeStatusChange::Launch(LaunchReason::TextChanged)));
}

#[test]
fn a_pod_that_ran_was_not_refused_by_its_node() {
    let why = why("NodeAffinity");
    let end = PodEnd { failed: true, never_started: true, why, ..PodEnd::default() };
    let observed = PeObservation { pods: vec![ObservedPod { stage: Stage::Ended(end), ..pod(2) }], ..running() };
    // since when it ran, as the PE knows -> its node refused it
    for (since, expected) in [(None, true), (time(0), false)] {
        let status = ProcessingElementStatus { running_since: since, ..observed.status.clone() };
        let last = decide(&PeObservation { status, ..observed.clone() }).status.last_termination.unwrap();
        assert_eq!(last.never_started, expected);
    }
}

#[test]
fn a_time_that_no_delay_reaches_is_that_of_another_clock() {
    // restarts in a row, when the next pod was to be created -> when it is
    let table = [(1, 3600, 110), (9, 401, 400), (9, 400, 400), (0, 3600, 100)];
    for (consecutive, written, expected) in table {
        let mut observed = PeObservation { pods: vec![failed(2)], ..running() };
        observed.status.consecutive_restarts = consecutive;
        observed.status = decide(&observed).status;
        observed.status.next_restart_time = time(written);
        let settled = settle(observed, unseen());
        if expected == 100 {
            assert_eq!(settled.observed.status.launch_count, 3, "{consecutive} {written}");
            continue;
        }
        let status = &settled.observed.status;
        assert_eq!((status.launch_count, status.phase), (2, Some(PePhase::BackOff)), "{consecutive} {written}");
        assert_eq!(status.next_restart_time, time(expected), "{consecutive} {written}");
        assert_eq!(settled.last.wake_at, Some(at(expected)), "{consecutive} {written}");
    }
}

#[test]
fn how_a_pod_ended_is_recorded_before_the_pod_is_deleted() {
    let observed = PeObservation { pods: vec![failed(2)], ..running() };
    let first = decide(&observed);
    assert_eq!(first.action, PeAction::Record(PeStatusChange::Ended));
    assert_eq!(first.deletions, []);
    let last = first.status.last_termination.clone().unwrap();
    assert_eq!((last.exit_code, last.reason.as_str(), last.finished_at), (Some(1), "Error", time(50)));
    assert_eq!(last.deleted_by, Some(DeletedBy::Controller));
    let second = decide(&PeObservation { status: first.status, ..observed });
    assert_eq!(second.action, PeAction::Record(PeStatusChange::Launch(LaunchReason::Ended)));
    assert_eq!(second.deletions.len(), 1);
}

#[test]
fn a_pod_whose_newer_text_is_to_be_written_is_not_asked_for_before_and_says_so() {
    let ended = decide(&PeObservation { pods: vec![failed(2)], ..running() }).status;
    let observed = |now| PeObservation {
        status: ended.clone(),
        pods: vec![failed(2)],
        renewed_by: Some(at(105)),
        now: at(now),
        ..running()
    };
    let waits = decide(&observed(104));
    let ready = condition::get(&waits.status.conditions, condition::READY).unwrap();
    assert_eq!((waits.action, waits.wake_at), (PeAction::Describe, Some(at(105))));
    assert_eq!((waits.status.phase, ready.reason.as_str()), (Some(PePhase::Waiting), "TextOutdated"));
    assert_eq!(decide(&observed(105)).action, PeAction::Record(PeStatusChange::Launch(LaunchReason::Ended)));
}

#[test]
fn another_pod_is_needed_once_it_is_known_that_one_is_to_follow() {
    let with = |change: fn(&mut PeObservation)| {
        let mut observed = running();
        change(&mut observed);
        observed
    };
    let stays_down = |mut observed: PeObservation| {
        observed.wanted.policies = Policies::default();
        observed
    };
    let ended = |observed: PeObservation| {
        let observed = PeObservation { pods: vec![failed(2)], ..observed };
        PeObservation { status: decide(&observed).status, ..observed }
    };
    let suspended = |observed: PeObservation| {
        let job =
            OwnerJob::There { created_at: None, generation: Some(1), committed_at: Some(at(-90)), suspended: true };
        PeObservation { job, ..observed }
    };
    let requested = |mut observed: PeObservation| {
        observed.wanted.restart_requested = Some("now".to_owned());
        observed
    };
    let table = [
        ("it runs", running(), false),
        ("its pod is created, and the mirror does not show it", with(|it| it.pods.clear()), false),
        ("its pod ended, and that is not recorded", with(|it| it.pods = vec![failed(2)]), false),
        ("its pod is to be created", with(|it| it.status.launch_count = 3), true),
        ("its pod is created, and that is not recorded", with(|it| it.status.created_launch_count = 1), false),
        ("its first pod is to be created", new(), true),
        ("its first pod is not recorded", PeObservation { pods: vec![pod(1)], ..new() }, false),
        ("its pod ended and is replaced", ended(running()), true),
        ("its pod ended and is replaced later", ended(with(|it| it.status.consecutive_restarts = 3)), true),
        ("its pod ended and is not replaced", ended(stays_down(running())), false),
        ("a restart is requested of one that runs", requested(running()), true),
        ("a restart is requested of one that is down", requested(ended(stays_down(running()))), true),
        ("its job is suspended", suspended(ended(running())), false),
        ("a user has stopped it", with(|it| it.status.stopped = true), false),
        ("a user stops it", ended(with(|it| it.wanted.stop_requested = Some("now".to_owned()))), false),
    ];
    for (what, observed, expected) in table {
        assert_eq!(needs_another_pod(&observed), expected, "{what}");
    }
}

#[test]
fn what_is_left_of_an_ended_pod_and_deleted_by_somebody_counts_as_deleted() {
    // outcome of the pod, deleteFailedPod -> restarted by restartDeletedPod alone, once it is gone
    let completed = ObservedPod { stage: ended(false, 0, "Completed"), ..pod(2) };
    let table = [(failed(2), false, true), (failed(2), true, false), (completed, true, true)];
    for (left, delete_failed, restarted) in table {
        let mut observed = PeObservation { pods: vec![left.clone()], ..running() };
        observed.wanted.policies = Policies { restart_deleted: true, delete_failed, ..Policies::default() };
        let mut observed = settle(observed, unseen()).observed;
        assert_eq!(observed.status.launch_count, 2, "{left:?}");
        observed.pods.clear();
        let settled = settle(observed, unseen());
        assert_eq!(settled.observed.status.launch_count, if restarted { 3 } else { 2 }, "{left:?}");
    }
}

#[test]
fn a_policy_that_changes_applies_to_what_ended_before() {
    let mut observed = PeObservation { pods: vec![failed(2)], ..running() };
    observed.wanted.policies = Policies { delete_failed: false, ..Policies::default() };
    let mut observed = settle(observed, unseen()).observed;
    assert_eq!(observed.status.phase, Some(PePhase::Failed));
    assert_eq!(observed.status.last_termination.as_ref().unwrap().deleted_by, None);

    let mut deleted = observed.clone();
    deleted.wanted.policies.delete_failed = true;
    let settled = settle(deleted, unseen());
    assert_eq!(settled.actions, [PeAction::Record(PeStatusChange::Removed(DeletedBy::Controller)), PeAction::Describe]);
    assert_eq!(settled.deletions, [pod(2).name]);

    observed.wanted.policies.restart_failed = true;
    assert_eq!(decide(&observed).action, PeAction::Record(PeStatusChange::Launch(LaunchReason::Ended)));
}

#[test]
fn how_long_a_pod_ran_is_told_by_one_clock() {
    // when it began and ended as its node says, since when it ran as the PE says -> it ran for long
    let table = [
        (Some(5_000), Some(5_050), Some(0), false),
        (Some(-5_000), Some(-4_950), Some(0), false),
        (Some(5_000), Some(5_600), Some(0), true),
        (Some(-5_000), Some(-4_400), Some(0), true),
        (None, None, Some(0), false),
        (None, None, Some(-500), true),
        (Some(5_000), None, Some(-500), true),
    ];
    for (began, ended, recorded, expected) in table {
        let (started_at, finished_at) = (began.map(at), ended.map(at));
        let end = PodEnd { failed: true, started_at, finished_at, ..PodEnd::default() };
        let mut observed =
            PeObservation { pods: vec![ObservedPod { stage: Stage::Ended(end), ..pod(2) }], ..running() };
        (observed.status.consecutive_restarts, observed.status.running_since) = (9, recorded.and_then(time));
        let decision = decide(&observed);
        assert_eq!(decision.action, PeAction::Record(PeStatusChange::Ended));
        let is_clean = decision.status.consecutive_restarts == 0;
        assert_eq!(is_clean, expected, "{began:?} {ended:?} {recorded:?}");
    }
}

#[test]
fn restarts_in_a_row_are_put_off_until_a_pod_runs_for_long() {
    // restarts in a row, seconds that the pod ran -> delay of the next
    let table = [(0, 50, 0), (1, 50, 10), (2, 50, 20), (5, 50, 160), (9, 599, 300), (9, 600, 0)];
    for (consecutive, ran, delay) in table {
        let end = PodEnd { failed: true, started_at: Some(at(0)), finished_at: Some(at(ran)), ..PodEnd::default() };
        let mut observed =
            PeObservation { pods: vec![ObservedPod { stage: Stage::Ended(end), ..pod(2) }], now: at(ran), ..running() };
        observed.status.consecutive_restarts = consecutive;
        let settled = settle(observed, unseen());
        let status = &settled.observed.status;
        if delay == 0 {
            assert_eq!((status.launch_count, &status.next_restart_time), (3, &None), "{consecutive} {ran}");
            continue;
        }
        assert_eq!((status.launch_count, status.phase), (2, Some(PePhase::BackOff)), "{consecutive} {ran}");
        assert_eq!(status.next_restart_time, time(ran + delay), "{consecutive} {ran}");
        assert_eq!(settled.last.wake_at, Some(at(ran + delay)), "{consecutive} {ran}");
        let later = PeObservation { now: at(ran + delay), ..settled.observed };
        let status = decide(&later).status;
        assert_eq!(
            (status.launch_count, status.consecutive_restarts, status.next_restart_time),
            (3, consecutive + 1, None)
        );
    }
}

#[test]
fn a_restart_that_becomes_permitted_later_is_put_off_from_then() {
    let mut observed = PeObservation { pods: vec![failed(2)], ..running() };
    observed.wanted.policies.restart_failed = false;
    observed.status.consecutive_restarts = 2;
    let mut observed = settle(observed, unseen()).observed;
    assert_eq!(observed.status.next_restart_time, None);
    observed.wanted.policies.restart_failed = true;
    observed.now = at(1000);
    let mut observed = settle(observed, unseen()).observed;
    assert_eq!(observed.status.next_restart_time, time(1020));
    observed.wanted.policies.restart_failed = false;
    let status = settle(observed, unseen()).observed.status;
    assert_eq!((status.next_restart_time, status.phase), (None, Some(PePhase::Failed)));
}

#[test]
fn three_failed_pods_are_kept() {
    let mut observed = running();
    observed.status.launch_count = 6;
    observed.status.created_launch_count = 6;
    observed.pods = (1..=5).map(failed).chain([pod(6)]).collect();
    // deleteFailedPod -> deleted
    let table: [(bool, &[u64]); 2] = [(false, &[1, 2]), (true, &[1, 2, 3, 4, 5])];
    for (delete_failed, expected) in table {
        observed.wanted.policies.delete_failed = delete_failed;
        let deletions: Vec<_> = decide(&observed).deletions.into_iter().map(|deletion| deletion.name).collect();
        assert_eq!(deletions, expected.iter().map(|launch| pod(*launch).name).collect::<Vec<_>>());
    }
    // The newest counts, too, once it has failed.
    observed.wanted.policies = Policies::default();
    observed.pods = (1..=6).map(failed).collect();
    assert_eq!(decide(&observed).deletions.len(), 3);
}
