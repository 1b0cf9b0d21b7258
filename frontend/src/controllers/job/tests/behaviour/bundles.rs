//! Bundles that are not there, or are others by now: they are waited for, and none takes the place of another one.

use super::super::simulation::{JobSimulation, UserDeletion};
use super::is_true;
use streams_api::{JobPhase, PullPolicy, condition};

/// An edit before the commit, whichever step it comes after, brings another bundle with the same ADL: PEs ask for that.
#[test]
fn pes_ask_for_the_bundle_that_was_fetched_last() {
    for steps in 0.. {
        let mut simulation = JobSimulation::new();
        for _ in 0..steps {
            simulation.reconcile();
            simulation.work();
        }
        let is_committed = simulation.status().generation.is_some();
        simulation.services.change(|services| services.build = 1);
        simulation.change_spec(|spec| spec.bundle.pull_policy = PullPolicy::Always);
        simulation.settle();
        simulation.check_at_rest();
        let fetched = simulation.status().adl.unwrap().sab_name;
        for (id, pe) in simulation.pes() {
            assert_eq!(pe.spec.options.sab_name.as_ref(), Some(&fetched), "PE {id} after {steps} steps");
        }
        if is_committed {
            return;
        }
    }
}

/// Nobody has the ADL any more, and the bundle has another one by now: the digests say which is meant. A bundle that
/// was kept helps, and so does the right one at its URL: no width is refused because of it.
#[test]
fn another_bundle_never_takes_the_place_of_the_one_that_was_submitted() {
    for keeps_bundles in [false, true] {
        let mut simulation = JobSimulation::running();
        let submitted = simulation.status().adl.unwrap();
        simulation.services.change(|services| {
            services.bundle = 1;
            services.keeps_bundles = keeps_bundles;
        });
        simulation.delete(&UserDeletion::AdlChunks);
        simulation.crash();
        simulation.settle();
        simulation.resize(0, 3);
        if !keeps_bundles {
            for _ in 0..4 {
                simulation.reconcile();
                simulation.work();
                simulation.wait(1);
            }
            let status = simulation.status();
            let said = condition::get(&status.conditions, condition::PROGRESSING).unwrap();
            assert_eq!((said.reason.as_str(), status.generation), ("AdlLost", Some(0)));
            let digest = submitted.bundle_sha256.as_ref().unwrap();
            assert!(said.message.contains(&format!("submitted with the bundle {digest}")), "{}", said.message);
            assert!(is_true(&simulation, condition::BUNDLE_UNAVAILABLE) && status.refused_edits.is_empty());
            simulation.services.change(|services| services.bundle = 0);
        }
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(simulation.status().adl.as_ref(), Some(&submitted));
    }
}

/// It is asked for again, less and less often; the job goes on without an edit.
#[test]
fn a_bundle_that_is_not_there_is_waited_for() {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.has_no_bundle = true);
    let said = |simulation: &JobSimulation| {
        let status = simulation.status();
        let submitted = condition::get(&status.conditions, condition::SUBMITTED).cloned();
        submitted.filter(|submitted| submitted.reason == "BundleNotFound").map(|submitted| submitted.message)
    };
    simulation.until(|simulation| said(simulation).is_some());
    let first = said(&simulation).unwrap();
    assert!(first.starts_with("there is none; so since "), "{first}");
    simulation.server.announced();
    for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300] {
        simulation.wait(seconds - 1);
        simulation.reconcile();
        assert!(!simulation.work(), "it is asked for too early: before {seconds} s");
        simulation.wait(1);
        simulation.reconcile();
        assert_eq!(said(&simulation).as_ref(), Some(&first), "it is still so while it is asked for");
        assert!(simulation.work(), "it is not asked for after {seconds} s");
        simulation.reconcile();
        assert_eq!(said(&simulation).as_ref(), Some(&first), "since when stays");
    }
    // Whoever leads next says the same, and once is enough.
    simulation.crash();
    for _ in 0..3 {
        simulation.reconcile();
        assert_eq!(said(&simulation).as_ref(), Some(&first), "since when stays");
        simulation.work();
    }
    assert!(is_true(&simulation, condition::BUNDLE_UNAVAILABLE));
    assert_eq!(simulation.server.announced(), [], "it is told once");
    let status = simulation.status();
    assert_eq!((status.phase, status.submission_attempts), (Some(JobPhase::Submitting), 1), "the clock stands");
    simulation.wait(2);
    simulation.services.change(|services| services.has_no_bundle = false);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().phase, Some(JobPhase::Running));
    assert!(condition::get(&simulation.status().conditions, condition::BUNDLE_UNAVAILABLE).is_none());
}
