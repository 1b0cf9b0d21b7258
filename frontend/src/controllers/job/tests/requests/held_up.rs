//! Proposals that cannot be written, and what that costs others.

use super::super::in_the_way::put_a_service_in_the_way;
use super::*;
use crate::controllers::job::long_work;
use crate::controllers::job::tasks::{PublishRequest, Task};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Service;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::names;
use streams_kubernetes::Key;

/// Everything goes on for a while, and what is being deleted does not go away.
fn go_on_without_collecting(simulation: &mut JobSimulation, looks: u32) {
    for _ in 0..looks {
        simulation.reconcile();
        simulation.work();
        simulation.run_pods();
        simulation.wait(2);
    }
}

#[test]
fn a_wish_whose_objects_the_cluster_refuses_costs_nobody_anything_who_comes_later() {
    others_go_on([(false, false, "Service"), (true, false, "Export")]);
}

#[test]
fn a_wish_whose_objects_the_cluster_refuses_costs_nobody_anything_who_comes_with_it() {
    others_go_on([(false, true, "ProcessingElement"), (true, true, "Service")]);
}

/// In each case others go on, and the wish comes into force once its objects are permitted. The cases: whether it is an
/// edit, whether the others come with it, the kind of which there may be no more.
fn others_go_on(cases: [(bool, bool, &'static str); 2]) {
    for (is_edit, is_together, kind) in cases {
        let case = format!("{is_edit} {is_together} {kind}");
        let mut simulation = JobSimulation::running();
        simulation.no_more(kind);
        if is_edit {
            simulation.resize(0, 4);
        } else {
            simulation.request("large", &[("R", 4)]);
        }
        if !is_together {
            go_on(&mut simulation, 6);
            let proposal = simulation.status().proposal.expect("alone it is tried all the time");
            assert_eq!(progressing(&simulation).1, "QuotaExceeded", "{case}");
            if !is_edit {
                assert_eq!(end(&simulation, "large"), is(ResizePhase::Planned, "QuotaExceeded"));
                assert!(!simulation.leader.observed().requests.is_waited_for, "nobody goes first because of it");
            }
            go_on(&mut simulation, 6);
            assert_eq!(simulation.status().proposal, Some(proposal), "{case}");
        }
        simulation.request("small", &[("S", 1)]);
        go_on(&mut simulation, 20);
        assert_eq!(end(&simulation, "small"), is(ResizePhase::RolledOut, ""), "{case}");
        assert_eq!(applied(&simulation), widths(2, 1), "{case}");
        if !is_edit {
            let (phase, reason) = end(&simulation, "large");
            assert!(matches!(phase, Some(ResizePhase::Pending | ResizePhase::Planned)), "{case}: {phase:?}");
            assert_eq!(reason, "QuotaExceeded", "{case}");
        }
        simulation.steps_again();
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(applied(&simulation), widths(4, 1), "{case}");
    }
}

/// Everything goes on for a while, and texts are written before their plan is recorded.
fn go_on_with_early_texts(simulation: &mut JobSimulation, looks: u32) {
    for _ in 0..looks {
        simulation.reconcile();
        simulation.work();
        simulation.work();
        simulation.run_pods();
        simulation.collect();
        simulation.wait(5);
    }
}

#[test]
fn a_wish_that_is_tried_alone_makes_way_at_once_though_its_texts_are_refused_before_it_is_proposed() {
    let mut simulation = JobSimulation::running();
    simulation.no_more_texts(&[8]);
    simulation.request("large", &[("R", 4)]);
    simulation.request("small", &[("S", 1)]);
    for _ in 0..12 {
        if end(&simulation, "small") == is(ResizePhase::RolledOut, "") {
            break;
        }
        go_on_with_early_texts(&mut simulation, 1);
    }
    assert_eq!((end(&simulation, "small"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(2, 1)));
    assert_eq!(end(&simulation, "large"), is(ResizePhase::Pending, "QuotaExceeded"));
    // Until it is tried alone.
    for _ in 0..400 {
        simulation.round();
        if simulation.status().proposal.is_some() {
            break;
        }
        simulation.work();
        simulation.work();
        simulation.wait(1);
    }
    let tried = simulation.status().proposal.expect("it is tried again").plan.sha256;
    simulation.request("other", &[("S", 2)]);
    simulation.reconcile();
    let present = simulation.status().proposal.map(|proposal| proposal.plan.sha256);
    assert_ne!(present, Some(tried), "nobody waits for it");
    simulation.until_committed(2);
    assert_eq!(applied(&simulation), widths(2, 2));
    simulation.steps_again();
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(applied(&simulation), widths(4, 2));
}

/// A quota permits no texts, and nobody else waits for the job: they are tried all the time.
#[test]
fn texts_of_a_proposal_that_is_held_up_for_a_while_go_after_what_others_wait_for() {
    let mut simulation = JobSimulation::running();
    simulation.no_more_texts(&[8]);
    simulation.request("large", &[("R", 4)]);
    simulation.until(|simulation| simulation.status().proposal.is_some());
    let of_other = Task::Publish(PublishRequest { plan: "p".to_owned(), pe_ids: vec![0] });
    let order = |simulation: &JobSimulation| -> Vec<String> {
        let next = || simulation.leader.reconciler.long_work.next().now_or_never().flatten();
        std::iter::from_fn(|| next().map(|taken| taken.key().to_string())).collect()
    };
    order(&simulation);
    // seconds until they are tried again -> what is worked on, one after the other
    for (seconds, expected) in [(1, ["n/job publish", "n/other publish"]), (4, ["n/other publish", "n/job publish"])] {
        simulation.wait(seconds);
        long_work::start(&simulation.leader.reconciler, &Key::new("n", "other"), "other", &of_other, false);
        simulation.reconcile();
        assert_eq!(order(&simulation), expected, "{seconds}");
        simulation.work();
    }
    simulation.steps_again();
    simulation.settle();
    simulation.check_at_rest();
}

/// What held up an earlier try says nothing of a later one, though that has the same plan.
#[test]
fn who_asks_again_once_it_is_permitted_is_not_kept_waiting_by_what_was_refused_before() {
    let mut simulation = JobSimulation::running();
    simulation.no_more("Service");
    simulation.request("early", &[("R", 4)]);
    go_on(&mut simulation, 4);
    let refused = simulation.status().proposal.expect("it is tried all the time").plan.sha256;
    simulation.withdraw("early");
    go_on(&mut simulation, 2);
    assert_eq!(simulation.status().proposal, None);
    simulation.steps_again();
    simulation.request("late", &[("R", 4)]);
    for _ in 0..20 {
        if simulation.status().proposal.is_some() {
            break;
        }
        simulation.round();
        simulation.work();
    }
    assert_eq!(simulation.status().proposal.unwrap().plan.sha256, refused);
    simulation.request("other", &[("S", 1)]);
    simulation.until_committed(1);
    assert_eq!(applied(&simulation), widths(4, 2));
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(applied(&simulation), widths(4, 1));
}

#[test]
fn of_two_that_are_tried_alone_the_one_that_is_permitted_by_now_comes_into_force() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.endless_above = 9);
    simulation.no_more("Service");
    simulation.request("large", &[("R", 4)]);
    simulation.request("endless", &[("S", 10)]);
    go_on(&mut simulation, 40);
    assert_eq!(end(&simulation, "endless"), is(ResizePhase::Pending, "FusionDeadlineExceeded"));
    // Once it is proposed again it takes a moment until that is refused.
    for _ in 0..20 {
        if end(&simulation, "large").1 == "QuotaExceeded" {
            break;
        }
        go_on(&mut simulation, 1);
    }
    assert_eq!(end(&simulation, "large").1, "QuotaExceeded");
    simulation.steps_again();
    go_on(&mut simulation, 60);
    assert_eq!(end(&simulation, "large"), is(ResizePhase::RolledOut, ""));
    assert_eq!(applied(&simulation), widths(4, 2));
}

/// It is no use to make way for somebody whose turn has not come.
#[test]
fn a_repair_that_cannot_be_written_does_not_begin_anew_again_and_again() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.endless_above = 9);
    simulation.request("endless", &[("R", 10)]);
    go_on(&mut simulation, 12);
    assert_eq!(end(&simulation, "endless"), is(ResizePhase::Pending, "FusionDeadlineExceeded"));
    // Just after it was tried.
    go_on_until_it_rests(&mut simulation, 50);
    // No replica has the compiler of the plan any more, and a quota permits no texts.
    simulation.services.change(|services| services.compiler = "2".to_owned());
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    simulation.server.refuse(move |call| {
        count.fetch_add(usize::from(call.verb == Verb::ReplaceStatus && call.kind == "Job"), Ordering::SeqCst);
        let number = call.key.name.strip_prefix("job-").and_then(|rest| rest.chars().next());
        let is_text = call.kind == "ConfigMap" && number.is_some_and(|first| first.is_ascii_digit());
        let is_refused = call.verb == Verb::Create && is_text;
        is_refused.then(|| *Status::failure("exceeded quota: q", "Forbidden").with_code(403).boxed())
    });
    simulation.delete(&UserDeletion::Texts);
    simulation.collect();
    for _ in 0..20 {
        simulation.reconcile();
        simulation.work();
    }
    assert!(simulation.status().proposal.is_some(), "the same widths by another compiler");
    let before = written.load(Ordering::SeqCst);
    for _ in 0..20 {
        simulation.wait(2);
        simulation.reconcile();
        simulation.work();
    }
    let statuses = written.load(Ordering::SeqCst) - before;
    assert!(statuses <= 10, "{statuses} statuses in 40 s");
    simulation.steps_again();
    simulation.services.change(|services| services.endless_above = u32::MAX);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(applied(&simulation), widths(10, 2));
}

/// Whoever expects a width waits for what becomes of a request that may still bring another one.
#[test]
fn what_becomes_of_a_precondition_is_known_although_the_cluster_refuses_what_was_asked_for_before() {
    let mut simulation = JobSimulation::running();
    simulation.no_more("Service");
    simulation.request("large", &[("R", 4)]);
    go_on(&mut simulation, 4);
    simulation.request_if("expects", &[("R", 3)], |spec| spec.regions[0].expected_width = Some(2));
    go_on(&mut simulation, 8);
    assert_eq!(end(&simulation, "expects"), is(ResizePhase::Refused, "WidthMismatch"));
    assert_eq!(end(&simulation, "large").1, "QuotaExceeded");
}

#[test]
fn an_edit_whose_objects_the_cluster_refuses_can_be_taken_back() {
    let mut simulation = JobSimulation::running();
    simulation.no_more("Service");
    simulation.resize(0, 4);
    go_on(&mut simulation, 6);
    assert!(simulation.status().proposal.is_some());
    simulation.resize(0, 2);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((simulation.status().generation, applied(&simulation)), (Some(0), widths(2, 2)));
}

/// Texts are refused for good: that the half compiles says nothing about them.
#[test]
fn who_is_at_fault_that_a_text_cannot_be_rendered_is_found_by_writing_it() {
    // Texts are written once their plan is recorded, or before.
    for go_on in [go_on, go_on_with_early_texts] {
        let mut simulation = JobSimulation::running();
        simulation.services.change(|services| services.refused_texts = [8].into());
        simulation.request("adds", &[("R", 3)]);
        simulation.request("good", &[("S", 1)]);
        go_on(&mut simulation, 12);
        assert_eq!(end(&simulation, "adds"), is(ResizePhase::Refused, "LayoutRejected"));
        assert_eq!((end(&simulation, "good"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(2, 1)));
        simulation.settle();
        simulation.check_at_rest();
    }
}

/// What fails beside it is no fault of the proposal, however often others want something else.
#[test]
fn a_proposal_that_can_be_written_commits_although_something_else_fails_in_each_look() {
    let mut simulation = JobSimulation::running();
    simulation.request("untold", &[("S", 3)]);
    simulation.until(|simulation| simulation.outcome("untold").number.is_some());
    simulation.server.refuse(|call| {
        let is_refused = call.verb == Verb::ReplaceStatus && call.kind == "Resize" && &*call.key.name == "untold";
        is_refused.then(|| *Status::failure("it is denied", "Forbidden").with_code(403).boxed())
    });
    let (mut proposals, mut proposed) = (0, None);
    for round in 0_u32..20 {
        simulation.request(&format!("round-{round}"), &[("R", 3 + round % 2)]);
        simulation.reconcile();
        simulation.work();
        simulation.collect();
        simulation.wait(1);
        let present = simulation.status().proposal.map(|proposal| proposal.plan.sha256);
        proposals += usize::from(present.is_some() && present != proposed);
        proposed = present.or(proposed);
    }
    let committed = usize::try_from(simulation.status().generation.unwrap()).unwrap();
    assert!(committed >= 2 && proposals <= committed + 1, "{proposals} proposals, {committed} generations");
    simulation.steps_again();
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(end(&simulation, "untold"), is(ResizePhase::RolledOut, ""));
}

/// It is made again with the width that is committed, and not with the one before, which nobody wants.
#[test]
fn a_region_that_is_deleted_while_its_width_is_proposed_returns_with_the_new_one() {
    for (is_edit, phase) in [(false, Some(ResizePhase::RolledOut)), (true, None)] {
        let mut simulation = JobSimulation::running();
        if is_edit {
            simulation.resize(0, 4);
        } else {
            simulation.request("wider", &[("R", 4)]);
        }
        simulation.until(|simulation| simulation.status().proposal.is_some());
        simulation.delete(&UserDeletion::Region(0));
        simulation.collect();
        simulation.round();
        assert_eq!((simulation.pe(8).is_some(), simulation.status().generation), (true, Some(0)), "{is_edit}");
        assert_eq!(simulation.region(0), None, "{is_edit}");
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!((applied(&simulation), specs(&simulation)), (widths(4, 2), [4, 2]), "{is_edit}");
        assert_eq!(simulation.status().generation, Some(1), "{is_edit}");
        assert_eq!(simulation.outcome("wider").phase, phase);
    }
}

#[test]
fn a_text_of_a_pe_that_stays_holds_up_nothing_while_it_is_being_deleted() {
    let mut simulation = JobSimulation::running();
    let text = simulation.pe(NOT_RESTARTABLE).unwrap().spec.config_map.name;
    simulation.delete(&UserDeletion::ConfigMap(text));
    simulation.request("wide", &[("R", 4)]);
    go_on_without_collecting(&mut simulation, 6);
    assert_eq!(applied(&simulation), widths(4, 2));
    let (_, reason, message) = progressing(&simulation);
    assert!(reason == "RollingOut" && message.contains("with its text is being deleted"), "{message}");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(end(&simulation, "wide"), is(ResizePhase::RolledOut, ""));
}

#[test]
fn a_text_that_is_being_deleted_holds_up_nobody_but_who_needs_it() {
    let mut simulation = JobSimulation::running();
    simulation.request("wide", &[("R", 4)]);
    simulation.settle();
    // Something keeps it when it is cleaned up.
    let text = simulation.pe(8).unwrap().spec.config_map.name;
    simulation.delete(&UserDeletion::ConfigMap(text.clone()));
    simulation.request("narrow", &[("R", 2)]);
    go_on_without_collecting(&mut simulation, 12);
    assert_eq!((applied(&simulation), simulation.pe(8)), (widths(2, 2), None));
    assert!(simulation.texts().contains(&text));
    simulation.request("again", &[("R", 3)]);
    go_on_without_collecting(&mut simulation, 6);
    assert_eq!(end(&simulation, "again"), is(ResizePhase::Planned, "Terminating"));
    assert!(!simulation.leader.is_waited_for(), "nobody goes first because of it");
    let (status, _, message) = progressing(&simulation);
    assert_eq!(status, "True");
    assert!(message.contains(&format!("waiting for ConfigMap {text} to go away")), "{message}");
    simulation.request("other", &[("S", 1)]);
    go_on_without_collecting(&mut simulation, 12);
    assert_eq!(applied(&simulation), widths(2, 1));
    assert_eq!(end(&simulation, "again").1, "Terminating");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((end(&simulation, "again"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(3, 1)));
}

/// Somebody else has it, without the labels of the job: no mirror shows that it is being deleted.
#[test]
fn a_wish_whose_object_has_a_name_that_does_not_become_free_makes_way() {
    let mut simulation = JobSimulation::running();
    let mut foreseen = JobSimulation::resume(&simulation.snapshot());
    foreseen.resize(0, 4);
    foreseen.settle();
    let before = simulation.pes();
    let new = foreseen.pes().into_keys().find(|id| !before.contains_key(id)).unwrap();
    let key = put_a_service_in_the_way(&simulation, new);
    simulation.request("large", &[("R", 4)]);
    go_on(&mut simulation, 6);
    assert_eq!(end(&simulation, "large"), is(ResizePhase::Planned, "Terminating"));
    assert!(simulation.outcome("large").message.unwrap().contains("it may have finalizers"));
    simulation.request("small", &[("S", 1)]);
    go_on(&mut simulation, 20);
    assert_eq!((end(&simulation, "small"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(2, 1)));
    simulation.server.remove::<Service>(&key);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!((end(&simulation, "large"), applied(&simulation)), (is(ResizePhase::RolledOut, ""), widths(4, 1)));
}

#[test]
fn who_expects_a_width_is_judged_however_many_ask_without_expecting_any() {
    let mut simulation = JobSimulation::running();
    let ask = |simulation: &JobSimulation, round: u32| {
        simulation.request(&format!("blind-{round:02}"), &[("R", 2 + round % 2)]);
    };
    (0..2).for_each(|round| ask(&simulation, round));
    simulation.reconcile();
    simulation.request_if("expects", &[("R", 4)], |spec| spec.regions[0].expected_width = Some(2));
    for round in 2..18 {
        simulation.reconcile();
        ask(&simulation, round);
        simulation.wait(1);
        simulation.work();
    }
    assert!(simulation.outcome("expects").phase.is_some(), "it starves");
    simulation.settle();
    simulation.check_at_rest();
}

#[test]
fn an_admission_has_so_many_writes_and_ends_with_one_that_is_not_answered() {
    let mut simulation = JobSimulation::running();
    // What is checked at each write looks at all requests.
    simulation.server.inspect(|_| {});
    for number in 0..260 {
        simulation.request(&format!("r-{number:03}"), &[("R", 3)]);
    }
    let tried = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tried);
    simulation.server.refuse(move |call| {
        let is_refused = call.verb == Verb::ReplaceStatus && call.kind == "Resize";
        counted.fetch_add(usize::from(is_refused), Ordering::SeqCst);
        is_refused.then(|| *Status::failure("not now", "InternalError").with_code(500).boxed())
    });
    simulation.leader.catch_up();
    assert!(wait_for(simulation.leader.round()).is_err());
    assert!(tried.load(Ordering::SeqCst) <= 16, "{tried:?} writes that come to nothing");
    simulation.steps_again();
    let numbered = |simulation: &JobSimulation| {
        let all = simulation.server.list::<Resize>();
        all.iter().filter(|request| request.status.as_ref().is_some_and(|status| status.number.is_some())).count()
    };
    let rounds = [256, 260].map(|_| {
        wait_for(simulation.leader.round()).unwrap();
        numbered(&simulation)
    });
    assert_eq!(rounds, [256, 260]);
}

/// Anybody may write anything there.
#[test]
fn annotations_of_requests_that_nobody_reads_are_not_kept() {
    let mut simulation = JobSimulation::running();
    simulation.request("large", &[("R", 3)]);
    simulation.server.edit(&key().sibling("large"), |request: &mut Resize| {
        let long = [("note".to_owned(), "a".repeat(100_000))];
        request.metadata.annotations = Some(long.into());
        request.metadata.finalizers = Some(vec!["example.com/keeps".to_owned()]);
    });
    simulation.until(|simulation| simulation.outcome("large").number.is_some());
    let kept = simulation.leader.reconciler.requests(&key(), &simulation.server.get(&key()).unwrap());
    let [kept] = kept.as_slice() else { panic!("{kept:?}") };
    let meta = &kept.metadata;
    assert_eq!((meta.annotations.as_ref().map_or(0, BTreeMap::len), &meta.finalizers), (0, &None));
    let labels = meta.labels.as_ref().unwrap();
    assert_eq!(labels.keys().collect::<Vec<_>>(), [names::LABEL_JOB]);
    // What is written of it takes nothing from it.
    let there: Resize = simulation.server.get(&key().sibling("large")).unwrap();
    assert_eq!(there.metadata.annotations.unwrap()["note"].len(), 100_000);
    assert!(there.metadata.finalizers.is_some());
}
