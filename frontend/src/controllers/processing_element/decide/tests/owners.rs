//! PEs and pods that something else controls, or nothing.

use super::*;
use streams_api::{PePhase, condition};

#[test]
fn a_pe_that_was_made_by_hand_is_reported_once() {
    // something controls it -> warnings
    for (controlled, expected) in [(true, vec![]), (false, vec!["JobMissing"])] {
        let mut observed = PeObservation { job: OwnerJob::Missing, ..new() };
        observed.wanted.controlled = controlled;
        let decision = decide(&observed);
        let warnings: Vec<_> = decision.notices.iter().filter(|notice| notice.warning).map(|n| &*n.reason).collect();
        assert_eq!(warnings, expected);
        let again = decide(&PeObservation { status: decision.status, ..observed });
        assert!(again.notices.is_empty(), "it is told once");
    }
}

#[test]
fn a_pe_that_its_job_has_left_behind_runs_on_and_the_first_one_is_told_once() {
    // no PE of the job has a smaller number -> warnings
    for (is_first, expected) in [(true, vec!["Orphaned"]), (false, vec![])] {
        let mut observed = PeObservation { job: OwnerJob::Missing, ..running() };
        (observed.wanted.controlled, observed.wanted.is_first) = (false, is_first);
        observed.wanted.runtime_id = "r1".to_owned();
        let decision = decide(&observed);
        assert_eq!((decision.action, decision.deletions), (PeAction::Describe, Vec::new()));
        let warnings: Vec<_> = decision.notices.iter().filter(|notice| notice.warning).map(|n| &*n.reason).collect();
        assert_eq!(warnings, expected);
        let status = &decision.status;
        assert_eq!(status.phase, Some(PePhase::Running));
        assert!(condition::is_true(&status.conditions, condition::ORPHANED), "{status:?}");
        observed.status = decision.status;
        assert!(decide(&observed).notices.is_empty(), "it is told once");
        // What ends is recorded, and not replaced.
        observed.pods = vec![failed(2)];
        let settled = settle(observed, unseen());
        assert_eq!(settled.actions, [PeAction::Record(PeStatusChange::Ended), PeAction::Describe]);
        assert_eq!(ready(&settled.observed).1, "JobMissing");
        assert!(settled.last.notices.is_empty(), "{:?}", settled.last.notices);
    }
}

#[test]
fn a_pe_whose_owner_reference_was_removed_says_so_and_not_that_its_job_was_deleted() {
    // no PE of the job has a smaller number
    for is_first in [true, false] {
        let mut observed = PeObservation { job: OwnerJob::Estranged, ..running() };
        (observed.wanted.controlled, observed.wanted.is_first) = (false, is_first);
        let decision = decide(&observed);
        let orphaned = condition::get(&decision.status.conditions, condition::ORPHANED).unwrap();
        assert_eq!((orphaned.status.as_str(), orphaned.reason.as_str()), ("True", "OwnerReferenceRemoved"));
        let [notice] = decision.notices.as_slice() else { panic!("{:?}", decision.notices) };
        assert_eq!((&*notice.reason, notice.note.as_str()), ("Orphaned", orphaned.message.as_str()));
        observed.status = decision.status;
        assert!(decide(&observed).notices.is_empty(), "it is told once");
        // The job goes as well, and later the reference is there again.
        observed.job = OwnerJob::Missing;
        let decision = decide(&observed);
        let orphaned = condition::get(&decision.status.conditions, condition::ORPHANED).unwrap();
        assert_eq!((orphaned.reason.as_str(), decision.notices.len()), ("JobDeleted", usize::from(is_first)));
        (observed.job, observed.wanted.controlled) = (running().job, true);
        assert!(condition::get(&decide(&observed).status.conditions, condition::ORPHANED).is_none());
    }
}

#[test]
fn before_a_pe_says_that_its_owner_reference_was_removed_the_job_is_looked_for() {
    // something else controls it by now
    for controlled in [false, true] {
        let mut observed = PeObservation { job: OwnerJob::Doubtful, ..running() };
        (observed.wanted.controlled, observed.wanted.runtime_id) = (controlled, "r1".to_owned());
        assert_eq!(decide(&observed).status, observed.status, "nothing is said yet");
        let settled = settle(observed, unseen());
        assert_eq!((settled.actions, settled.deletions), (vec![PeAction::LookForJob, PeAction::Describe], vec![]));
        let orphaned = condition::get(&settled.observed.status.conditions, condition::ORPHANED).unwrap();
        assert_eq!(orphaned.reason, "OwnerReferenceRemoved");
    }
}

#[test]
fn a_pod_that_the_pe_does_not_control_moves_no_launch_count_but_may_not_run_beside_its_next_pod() {
    let others = |launch| {
        let taken = ObservedPod { other_controller: Some("ReplicaSet web (uid x)".to_owned()), ..pod(launch) };
        [ObservedPod { left_behind: true, ..pod(launch) }, taken]
    };
    for other in others(u64::from(u32::MAX)) {
        let lost = PeObservation { pods: vec![other.clone()], ..new() };
        let decision = decide(&lost);
        assert_eq!((decision.action, decision.deletions), (PeAction::Describe, vec![]), "it is waited for");
        assert_eq!(decision.status.phase, Some(PePhase::Replacing));
        let ended = ObservedPod { stage: ended(false, 0, "Completed"), ..other.clone() };
        assert_eq!(decide(&PeObservation { pods: vec![ended], ..new() }).action, PeAction::Create);
        // The newest that counts is another one.
        let settled = settle(PeObservation { pods: vec![pod(4), other], ..new() }, unseen());
        assert_eq!(settled.observed.status.launch_count, 4);
    }
    for first in others(1) {
        let settled = settle(PeObservation { pods: vec![first], ..new() }, unseen());
        assert_eq!(settled.observed.status.launch_count, 1, "the first is recorded once it is there");
    }
}
