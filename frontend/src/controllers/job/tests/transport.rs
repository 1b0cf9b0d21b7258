//! The certificates of a job over its life.

use super::in_the_way::{delete_and_keep, does_not_go, keep, let_go, resources_ready};
use super::simulation::{JobSimulation, UserDeletion, key};
use crate::controllers::job::decide::{Child, JobDecision};
use crate::controllers::job::transport::certificate::{Names, issue, renew};
use crate::controllers::job::transport::secret as stored;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use streams_api::{Job, TransportSecurity, condition, names};
use streams_kubernetes::queue::Outcome;

const DAY: u64 = 86_400;

fn secure() -> JobSimulation {
    let mut simulation = JobSimulation::new();
    simulation.secure(true);
    simulation.settle();
    simulation.check_at_rest();
    simulation
}

fn secret(simulation: &JobSimulation) -> Option<Secret> {
    simulation.server.get(&key().sibling(&names::transport_secret(&key().name)))
}

/// Authority, end and uid of the Secret.
fn seen(simulation: &JobSimulation) -> (String, Timestamp, String) {
    let transport = simulation.status().transport.unwrap();
    let uid = secret(simulation).unwrap().metadata.uid.unwrap();
    (transport.authority.unwrap(), transport.not_after.unwrap().0, uid)
}

fn reasons(simulation: &JobSimulation) -> BTreeSet<String> {
    simulation.server.announced().into_iter().map(|announced| announced.notice.reason.into_owned()).collect()
}

#[test]
fn a_certificate_is_renewed_in_time_by_the_same_authority_and_kept_over_resizes() {
    let mut simulation = secure();
    let first = seen(&simulation);
    simulation.resize(0, 4);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(seen(&simulation), first, "a resize leaves it alone");
    simulation.wait(19 * DAY);
    simulation.settle();
    assert_eq!(seen(&simulation), first);
    simulation.wait(DAY);
    simulation.settle();
    simulation.check_at_rest();
    let second = seen(&simulation);
    assert!(second.0 == first.0 && second.2 == first.2 && second.1 > first.1, "{first:?} {second:?}");
    assert!(reasons(&simulation).contains("TransportCertificateRenewed"));
    // Another validity comes into force at once.
    simulation.change_spec(|spec| spec.transport_certificate_validity_in_days = 2);
    simulation.settle();
    let third = seen(&simulation);
    assert!(third.0 == first.0 && third.1 < second.1, "{second:?} {third:?}");
    assert!(!reasons(&simulation).contains("TransportAuthorityReplaced"));
}

#[test]
fn the_leader_wakes_by_itself_when_the_certificate_is_due() {
    let simulation = secure();
    let due = simulation.status().transport.unwrap().renew_at.unwrap().0;
    let observed = simulation.leader.observed();
    let wake = simulation.leader.decided().1.wake_at.unwrap();
    assert!(wake > observed.now && wake <= due, "{wake} {due}");
}

/// The clock of the frontend that has made them was ahead, and was put right, or another one leads.
#[test]
fn what_is_not_valid_yet_is_made_again_once_and_the_authority_only_if_it_is_not_valid_either() {
    let (minute, day) = (60, 86_400);
    // seconds by which the clock was ahead that has made the authority, and the certificate -> there is another
    // certificate, another authority
    let table = [
        (0, 0, false, false),
        (0, 4 * minute, false, false),
        (60 * minute, 60 * minute, true, false),
        (0, 400 * day, true, false),
        (2 * day, 2 * day, true, true),
    ];
    for (of_authority, of_certificate, is_other, has_other_authority) in table {
        let mut simulation = secure();
        let (job, now) = (key(), simulation.server.now());
        let ahead = |seconds: i64| now + SignedDuration::from_secs(seconds);
        let first = issue(Names::of(&job), 30, ahead(of_authority)).unwrap();
        let made = renew(&first, Names::of(&job), 30, ahead(of_certificate)).unwrap();
        let owner = OwnerReference::default();
        edit_secret(&simulation, |secret| secret.data = stored::secret(&job.name, &owner, &made).data);
        simulation.wait(61);
        simulation.settle();
        simulation.check_at_rest();
        let case = format!("{of_authority} {of_certificate}");
        let kept = stored::material(&secret(&simulation).unwrap()).unwrap();
        assert_eq!(kept.certificates != made.certificates, is_other, "{case}");
        assert_eq!(kept.authority_key != made.authority_key, has_other_authority, "{case}");
        let seen_now = seen(&simulation);
        assert!(seen_now.1 <= simulation.server.now() + SignedDuration::from_hours(24 * 31), "{case}");
        // A leader whose clock is right finds nothing to do.
        let writes = simulation.leader.connection.writes();
        simulation.wait(61);
        simulation.settle();
        assert_eq!(simulation.leader.connection.writes(), writes, "{case}");
        assert_eq!(seen(&simulation), seen_now, "{case}");
    }
}

/// PEs run on, and open new connections with it.
#[test]
fn a_certificate_is_renewed_and_a_lost_one_replaced_while_the_plan_of_the_job_is_lost() {
    let mut simulation = secure();
    let first = seen(&simulation);
    simulation.delete(&UserDeletion::Chunks);
    simulation.collect();
    simulation.crash();
    simulation.settle();
    let ready = condition::get(&simulation.status().conditions, condition::READY).cloned().unwrap();
    assert_eq!((ready.reason.as_str(), seen(&simulation)), ("PlanLost", first.clone()), "nothing is due");
    simulation.wait(20 * DAY);
    simulation.settle();
    let second = seen(&simulation);
    assert!(second.0 == first.0 && second.2 == first.2 && second.1 > first.1, "{first:?} {second:?}");
    assert!(reasons(&simulation).contains("TransportCertificateRenewed"));
    // Another validity comes into force at once.
    simulation.change_spec(|spec| spec.transport_certificate_validity_in_days = 2);
    simulation.settle();
    let third = seen(&simulation);
    assert!(third.0 == first.0 && third.1 < second.1, "{second:?} {third:?}");
    simulation.delete(&UserDeletion::Interface(Child::TransportSecret));
    simulation.collect();
    simulation.wait(61);
    simulation.settle();
    assert_ne!(seen(&simulation).0, first.0, "pods that start need one");
}

/// It is there for who knows how long, and PEs go on with it.
#[test]
fn a_certificate_is_renewed_although_somebody_has_deleted_the_secret_that_has_it() {
    let mut simulation = secure();
    let first = seen(&simulation);
    let name = key().sibling(&names::transport_secret(&key().name));
    delete_and_keep::<Secret>(&simulation, &name);
    simulation.wait(20 * DAY);
    simulation.settle();
    let second = seen(&simulation);
    assert!(second.0 == first.0 && second.2 == first.2 && second.1 > first.1, "{first:?} {second:?}");
    assert_eq!(resources_ready(&simulation), does_not_go(Child::TransportSecret));
    let_go::<Secret>(&simulation, &name);
    simulation.wait(61);
    simulation.settle();
    simulation.check_at_rest();
    assert_ne!(seen(&simulation).2, first.2, "it is made again");
}

/// The authority is in the copy until the Secret can be made again.
#[test]
fn an_immutable_secret_that_does_not_go_is_made_again_with_its_authority_once_it_has_gone() {
    let mut simulation = secure();
    let before = seen(&simulation);
    let name = key().sibling(&names::transport_secret(&key().name));
    edit_secret(&simulation, |secret| secret.immutable = Some(true));
    keep::<Secret>(&simulation, &name);
    let copy = key().sibling(&names::transport_copy(&key().name));
    simulation.wait(61);
    simulation.settle();
    simulation.wait(61);
    simulation.settle();
    assert_eq!(resources_ready(&simulation), does_not_go(Child::TransportSecret));
    assert!(simulation.server.get::<Secret>(&copy).is_some(), "it is deleted before it is needed");
    let writes = simulation.leader.connection.writes();
    simulation.wait(61);
    simulation.settle();
    assert_eq!(simulation.leader.connection.writes(), writes, "nothing can be done");
    let_go::<Secret>(&simulation, &name);
    simulation.wait(61);
    simulation.settle();
    simulation.check_at_rest();
    let after = seen(&simulation);
    assert!(after.0 == before.0 && after.2 != before.2, "{before:?} {after:?}");
    assert!(!reasons(&simulation).contains("TransportAuthorityReplaced"));
    assert!(simulation.server.get::<Secret>(&copy).is_none());
}

/// The schema refuses that an edit asks for it.
#[test]
fn a_job_without_transport_security_gets_no_secret_while_its_plan_is_lost() {
    let mut simulation = JobSimulation::running();
    simulation.delete(&UserDeletion::Chunks);
    simulation.collect();
    simulation.crash();
    simulation.secure(true);
    simulation.settle();
    assert_eq!(secret(&simulation), None);
}

#[test]
fn what_somebody_does_to_the_secret_is_repaired_within_a_minute() {
    let damage: [fn(&JobSimulation); 3] = [
        |simulation| simulation.delete(&UserDeletion::Interface(Child::TransportSecret)),
        |simulation| edit_secret(simulation, |secret| secret.data = None),
        |simulation| {
            edit_secret(simulation, |secret| {
                let key = k8s_openapi::ByteString(b"another".to_vec());
                secret.data.as_mut().unwrap().insert(names::TRANSPORT_KEY.to_owned(), key);
            });
        },
    ];
    for damage in damage {
        let mut simulation = secure();
        let before = seen(&simulation);
        damage(&simulation);
        simulation.collect();
        let began = simulation.server.now();
        while seen_authority(&simulation) == before.0 {
            assert!(simulation.server.now().duration_since(began).as_secs() <= 65, "it takes too long");
            simulation.wait(5);
            simulation.reconcile();
        }
        simulation.settle();
        simulation.check_at_rest();
        assert_ne!(seen(&simulation).0, before.0, "the authority was lost");
        assert!(reasons(&simulation).contains("TransportAuthorityReplaced"));
    }
}

/// It could not be renewed, and nodes do not look at it any more.
#[test]
fn a_secret_that_somebody_makes_immutable_is_made_again_with_its_authority() {
    let copy = |simulation: &JobSimulation| {
        simulation.server.get::<Secret>(&key().sibling(&names::transport_copy(&key().name)))
    };
    // The process ends with the write after so many, which has its effect: that of the copy, the deletion, the Secret,
    // the deletion of the copy.
    for crash in [None, Some(0), Some(1), Some(2), Some(3)] {
        let mut simulation = secure();
        let before = seen(&simulation);
        edit_secret(&simulation, |secret| {
            secret.immutable = Some(true);
            secret.metadata.labels.get_or_insert_default().insert("mine".to_owned(), "yes".to_owned());
        });
        simulation.wait(61);
        if let Some(after) = crash {
            simulation.crash_at_write(after, true);
        }
        simulation.settle();
        simulation.check_at_rest();
        let after = seen(&simulation);
        assert_eq!((&after.0, after.1), (&before.0, before.1), "{crash:?}");
        assert!(after.2 != before.2 && copy(&simulation).is_none(), "{crash:?}");
        let secret = secret(&simulation).unwrap();
        assert_eq!(secret.immutable, None, "{crash:?}");
        // A process that has found nothing but the copy knows no labels.
        assert_eq!(secret.metadata.labels.unwrap().contains_key("mine"), crash != Some(1), "{crash:?}");
        assert!(!reasons(&simulation).contains("TransportAuthorityReplaced"), "{crash:?}");
    }
}

#[test]
fn an_immutable_secret_that_is_due_is_renewed_and_whoever_insists_is_named() {
    let mut simulation = secure();
    let before = seen(&simulation);
    let freeze = |simulation: &JobSimulation| edit_secret(simulation, |secret| secret.immutable = Some(true));
    freeze(&simulation);
    simulation.wait(20 * DAY);
    simulation.settle();
    simulation.check_at_rest();
    let renewed = seen(&simulation);
    assert!(renewed.0 == before.0 && renewed.1 > before.1, "{before:?} {renewed:?}");
    for _ in 0..3 {
        freeze(&simulation);
        simulation.wait(61);
        for _ in 0..6 {
            simulation.reconcile();
        }
        assert_eq!(secret(&simulation).unwrap().immutable, None);
    }
    let contended = condition::get(&simulation.status().conditions, condition::CONTENDED).cloned().unwrap();
    assert!(contended.message.contains("immutable of Secret job-transport"), "{contended:?}");
}

fn seen_authority(simulation: &JobSimulation) -> String {
    simulation.status().transport.and_then(|transport| transport.authority).unwrap_or_default()
}

fn edit_secret(simulation: &JobSimulation, edit: impl FnOnce(&mut Secret)) {
    simulation.server.edit(&key().sibling(&names::transport_secret(&key().name)), edit);
}

#[test]
fn no_status_event_or_annotation_has_a_part_of_a_key() {
    let simulation = secure();
    let data = secret(&simulation).unwrap().data.unwrap();
    let mut said = serde_json::to_string(&simulation.server.get::<Job>(&key()).unwrap()).unwrap();
    said.push_str(&serde_json::to_string(&secret(&simulation).unwrap().metadata).unwrap());
    said.push_str(&format!("{:?}", simulation.server.announced()));
    for name in [names::TRANSPORT_KEY, "authority.key"] {
        let pem = String::from_utf8(data[name].0.clone()).unwrap();
        let line = pem.lines().nth(1).unwrap();
        assert!(line.len() > 32 && !said.contains(&line[..32]), "{name}");
    }
}

#[test]
fn a_submission_that_has_failed_for_good_is_not_looked_at_again() {
    let mut simulation = JobSimulation::new();
    simulation.services.change(|services| services.refuses = true);
    simulation.secure(true);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.reconcile(), Some(Outcome::Done));
}

#[test]
fn another_choice_before_the_first_generation_leaves_nothing_behind() {
    let mut simulation = JobSimulation::new();
    simulation.no_step_after("Secret");
    simulation.secure(true);
    simulation.until(|simulation| secret(simulation).is_some());
    simulation.steps_again();
    simulation.secure(false);
    simulation.settle();
    simulation.check_at_rest();
    assert!(secret(&simulation).is_none() && simulation.generation().settled.transport == TransportSecurity::None);
}

#[test]
fn a_running_job_keeps_what_it_was_submitted_with() {
    let mut simulation = secure();
    // The schema refuses it.
    simulation.secure(false);
    simulation.settle();
    simulation.check_at_rest();
    let warning = condition::get(&simulation.status().conditions, condition::WARNING).cloned().unwrap();
    assert!(warning.message.contains("transportSecurityType"), "{warning:?}");
    let of_pes: BTreeSet<_> =
        simulation.pes().values().map(|pe| pe.spec.options.transport_security_type.name()).collect();
    assert_eq!(of_pes.into_iter().collect::<Vec<_>>(), ["TLSv1.2"]);
}

#[test]
fn a_secret_of_somebody_else_is_left_alone_and_told() {
    let simulation = JobSimulation::new();
    let mut foreign = Secret::default();
    foreign.metadata.name = Some(names::transport_secret(&key().name));
    foreign.metadata.namespace = Some(key().namespace.to_string());
    simulation.server.create(&foreign);
    let mut simulation = simulation;
    simulation.secure(true);
    simulation.until(|simulation| {
        condition::get(&simulation.status().conditions, condition::SUBMITTED).is_some_and(|c| c.reason == "NameTaken")
    });
    assert!(secret(&simulation).unwrap().data.is_none());
}

/// A neighbour's, one that an earlier job of the name has left behind, or the job's own that cannot go.
#[test]
fn a_copy_that_stays_is_in_nobodys_way() {
    let copy_of = |simulation: &JobSimulation, is_own: bool| {
        let mut copy = Secret::default();
        copy.metadata.name = Some(names::transport_copy(&key().name));
        copy.metadata.namespace = Some(key().namespace.to_string());
        if is_own {
            copy.metadata.owner_references = secret(simulation).unwrap().metadata.owner_references;
            copy.metadata.finalizers = Some(vec!["example.com/keep".to_owned()]);
        }
        simulation.server.create(&copy);
    };
    // it is there before the submission, it is the job's
    for (is_before, is_own) in [(true, false), (false, false), (false, true)] {
        let mut simulation = JobSimulation::new();
        if is_before {
            copy_of(&simulation, is_own);
        }
        simulation.secure(true);
        simulation.settle();
        if !is_before {
            copy_of(&simulation, is_own);
            // Whoever begins to lead looks for one.
            simulation.crash();
            simulation.settle();
        }
        simulation.check_at_rest();
        let what = format!("{is_before} {is_own}");
        assert!(simulation.server.get::<Secret>(&key().sibling(&names::transport_copy(&key().name))).is_some());
        let calls = simulation.leader.connection.calls();
        let outcome = simulation.reconcile();
        assert!(matches!(outcome, Some(Outcome::Again(delay)) if delay.as_secs() > 1), "{what}: {outcome:?}");
        assert_eq!(simulation.leader.connection.calls(), calls, "{what}");
        assert_eq!(simulation.leader.decided().0, JobDecision::Work(Vec::new()), "{what}");
    }
}
