//! Users stop PEs and suspend jobs.

use super::simulation::{ClusterEvent, PeSimulation};
use super::{launches, settle};
use kube::ResourceExt as _;
use streams_api::PePhase;
use streams_api::names::ANNOTATION_MADE_AGAIN;

/// A crash at every call while the pod is deleted, and while it starts again.
#[test]
fn a_stopped_pe_goes_on_when_that_is_taken_back_or_a_restart_is_requested_whichever_call_is_the_last() {
    for goes_on in [ClusterEvent::Stop(None), ClusterEvent::Request(2)] {
        for calls in 0..8 {
            for after_effect in [false, true] {
                for crash_on_start in [false, true] {
                    let mut simulation = PeSimulation::new();
                    settle(&mut simulation);
                    simulation.notices();
                    simulation.happen(ClusterEvent::Stop(Some(1)));
                    simulation.deliver_all();
                    if !crash_on_start {
                        simulation.crash_after(calls, after_effect);
                    }
                    settle(&mut simulation);
                    assert!(simulation.pods().is_empty());
                    assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Stopped)));
                    let told: Vec<_> = simulation.notices().into_iter().map(|notice| notice.reason).collect();
                    assert!(told.iter().filter(|reason| *reason == "Stopped").count() <= 1, "{told:?}");
                    simulation.happen(goes_on);
                    simulation.deliver_all();
                    if crash_on_start {
                        simulation.crash_after(calls, after_effect);
                    }
                    settle(&mut simulation);
                    assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)));
                    // The same request again stops it only if it was taken back meanwhile.
                    simulation.happen(ClusterEvent::Stop(Some(1)));
                    settle(&mut simulation);
                    let is_stopped = launches(&simulation).2 == Some(PePhase::Stopped);
                    assert_eq!(is_stopped, goes_on == ClusterEvent::Stop(None));
                }
            }
        }
    }
}

/// A crash at every call while the pod is deleted, and while it starts again.
#[test]
fn a_suspended_job_has_no_pods_and_resumes_whichever_call_is_the_last() {
    for calls in 0..8 {
        for after_effect in [false, true] {
            for crash_on_resume in [false, true] {
                let mut simulation = PeSimulation::new();
                settle(&mut simulation);
                simulation.notices();
                simulation.happen(ClusterEvent::Suspend(true));
                simulation.deliver_all();
                if !crash_on_resume {
                    simulation.crash_after(calls, after_effect);
                }
                for _ in 0..6 {
                    simulation.reconcile();
                    simulation.happen(ClusterEvent::Finish { said: true, code: 137 });
                    simulation.deliver_all();
                }
                assert!(simulation.pods().is_empty());
                assert_eq!(launches(&simulation), (1, 0, Some(PePhase::Suspended)));
                simulation.happen(ClusterEvent::Suspend(false));
                simulation.deliver_all();
                if crash_on_resume {
                    simulation.crash_after(calls, after_effect);
                }
                settle(&mut simulation);
                assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)));
            }
        }
    }
}

/// Nothing is left of its pods, and the time of the newest commit says nothing of a PE that has waited over it.
#[test]
fn a_pe_that_is_made_again_while_its_job_is_suspended_does_not_begin_anew_after_another_commit() {
    let mut simulation = PeSimulation::new();
    settle(&mut simulation);
    simulation.happen(ClusterEvent::Suspend(true));
    for _ in 0..6 {
        simulation.deliver_all();
        simulation.reconcile();
        simulation.happen(ClusterEvent::Finish { said: true, code: 137 });
    }
    assert!(simulation.pods().is_empty());
    simulation.happen(ClusterEvent::MakeAgain);
    simulation.commit_after_making_again();
    simulation.reconcile();
    assert_eq!(launches(&simulation), (0, 0, Some(PePhase::Suspended)));
    let says_so = |simulation: &PeSimulation| simulation.pe().annotations().contains_key(ANNOTATION_MADE_AGAIN);
    assert!(says_so(&simulation), "nothing else does");
    simulation.happen(ClusterEvent::Suspend(false));
    settle(&mut simulation);
    assert_eq!(launches(&simulation), (2, 0, Some(PePhase::Running)));
    assert!(!says_so(&simulation), "its launch count does");
}

/// A policy of the namespace lets nobody change PEs, or what asks for it does not answer.
#[test]
fn a_pe_that_cannot_be_told_that_it_was_launched_is_looked_after_like_any_other() {
    for code in [400, 403, 500] {
        let mut simulation = PeSimulation::new();
        settle(&mut simulation);
        simulation.happen(ClusterEvent::MakeAgain);
        simulation.commit_after_making_again();
        settle_refusing(&mut simulation, code);
        simulation.happen(ClusterEvent::End { code: 1 });
        let tried = settle_refusing(&mut simulation, code);
        assert_eq!(launches(&simulation), (3, 1, Some(PePhase::Running)), "{code}");
        assert!(tried <= 3, "{code}: {tried} times");
    }
}

/// Settles while nobody may patch PEs. How often that was tried.
fn settle_refusing(simulation: &mut PeSimulation, code: u16) -> usize {
    let tried = simulation.refuse_patches(code);
    settle(simulation);
    tried.load(std::sync::atomic::Ordering::Relaxed)
}
