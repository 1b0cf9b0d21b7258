//! Pods that are to be replaced and cannot be (rule pe-12).

use super::*;
use streams_api::{PePhase, condition};

#[test]
fn a_pod_that_runs_and_cannot_be_replaced_is_shown_with_why() {
    let said = |observed: &PeObservation| {
        let settled = settle(observed.clone(), unseen());
        assert_eq!(settled.observed.status.launch_count, 2, "its pod stays");
        assert_eq!(settled.observed.status.phase, Some(PePhase::Running));
        let outdated = condition::get(&settled.observed.status.conditions, condition::OUTDATED).cloned();
        (settled.observed, outdated.map(|outdated| (outdated.reason, outdated.message)))
    };
    // why no pod can be created, its text is another one -> what is said
    let to_be_replaced = "the pod is to be replaced, and no other one can be created: why";
    let by_options = "no other pod can be created with the options of the PE as they are: why";
    let table = [
        ("HostPoolMissing", true, Some(to_be_replaced)),
        ("ChangedByOthers", true, Some(to_be_replaced)),
        ("CheckpointVolumeMissing", true, Some(by_options)),
        // Nothing is to be done: what comes back by itself is no matter of the PE.
        ("HostPoolMissing", false, None),
        ("ChangedByOthers", false, None),
        ("CheckpointVolumeMissing", false, Some(by_options)),
    ];
    for (reason, has_other_text, expected) in table {
        let mut observed = running();
        observed.template = Err(Obstacle { reason, message: "why".to_owned() });
        if has_other_text {
            observed.wanted.runtime_id = "r1".to_owned();
        }
        let (mut after, outdated) = said(&observed);
        let expected = expected.map(|message| (reason.to_owned(), message.to_owned()));
        assert_eq!(outdated, expected, "{reason} {has_other_text}");
        // The text is taken back; nothing is to be done.
        after.wanted.runtime_id = "r0".to_owned();
        let still = expected.filter(|(_, message)| message == by_options);
        assert_eq!(said(&after).1, still, "{reason} {has_other_text}");
        // It is corrected.
        after.template = running().template;
        assert_eq!(said(&after).1, None, "{reason} {has_other_text}");
    }
}

/// Pods of an earlier frontend: where they had to run is recorded when the status is written for another reason.
#[test]
fn where_a_pod_had_to_run_is_recorded_with_the_next_spec() {
    let mut observed = running();
    observed.status.placement_hash = None;
    observed.status.observed_generation = observed.wanted.object_generation;
    assert_eq!(settle(observed.clone(), unseen()).observed.status.placement_hash, None);
    observed.wanted.object_generation = observed.wanted.object_generation.map(|generation| generation + 1);
    assert_eq!(settle(observed, unseen()).observed.status.placement_hash.as_deref(), Some("p0"));
}

#[test]
fn a_restart_that_a_policy_permits_later_is_put_off_and_told() {
    let mut observed = running();
    observed.wanted.policies.restart_failed = false;
    observed.pods = vec![failed(2)];
    observed.status.consecutive_restarts = 2;
    let mut after = settle(observed, unseen()).observed;
    assert_eq!(after.status.next_restart_time, None, "the policies do not permit it");
    after.wanted.policies.restart_failed = true;
    let decision = decide(&after);
    assert_eq!(decision.action, PeAction::Record(PeStatusChange::PutOff));
    let told: Vec<_> = decision.notices.iter().map(|notice| (&*notice.reason, notice.note.as_str())).collect();
    assert_eq!(told, [("BackOff", "the next pod is created after 20 s")]);
    assert_eq!(decision.status.next_restart_time, Some(Time(at(120))));
    // It is not permitted after all.
    after.status = decision.status;
    assert_eq!(decide(&after).notices, []);
    after.wanted.policies.restart_failed = false;
    let decision = decide(&after);
    let told: Vec<_> = decision.notices.iter().map(|notice| &*notice.reason).collect();
    assert_eq!((told, decision.status.next_restart_time.clone()), (vec!["NotRestarted"], None));
    after.status = decision.status;
    assert_eq!(decide(&after).notices, [], "it is told once");
}
