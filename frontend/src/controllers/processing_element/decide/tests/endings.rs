//! Pods that are not seen, or are being deleted.

use super::*;
use streams_api::PePhase;

#[test]
fn a_pod_that_is_not_seen_is_looked_for_once() {
    let mut observed = PeObservation { pods: Vec::new(), ..running() };
    observed.wanted.policies = Policies::default();
    assert_eq!(decide(&observed).action, PeAction::Look);
    let mut settled = settle(observed, unseen()).observed;
    settled.vanished = None;
    assert_eq!(decide(&settled).action, PeAction::Describe);
}

#[test]
fn a_pod_counts_as_lost_only_when_the_watch_had_time_to_tell_how_it_went() {
    let observed = PeObservation { pods: Vec::new(), ..running() };
    // since -> waits until
    for (since, until) in [(100, Some(105)), (96, Some(101)), (95, None)] {
        let gone = AbsentPod { since: at(since), ..unseen() };
        let settled = settle(observed.clone(), gone);
        let ended = settled.actions.contains(&PeAction::Record(PeStatusChange::Ended));
        assert_eq!((ended, settled.last.wake_at.filter(|_| !ended)), (until.is_none(), until.map(at)), "{since}");
    }
}

#[test]
fn a_pod_that_is_being_deleted_is_watched_until_it_has_ended() {
    let mut observed = running();
    observed.pods = vec![ObservedPod { gone_by: Some(at(120)), ..pod(2) }];
    let settled = settle(observed, unseen());
    assert!(!settled.last.wakes_to_tell, "a policy waits for it");
    assert_eq!((settled.actions, settled.last.wake_at), (vec![PeAction::Describe], Some(at(150))));
    assert_eq!(settled.observed.status.phase, Some(PePhase::Replacing));
}
