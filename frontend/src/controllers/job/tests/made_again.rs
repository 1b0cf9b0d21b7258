//! PEs that a user deletes, and that are made again (rules job-27 and pe-6).

use super::simulation::{JobSimulation, UserDeletion};
use futures::FutureExt as _;
use kube::ResourceExt;
use kube::core::{ObjectMeta, Status};
use streams_api::{ProcessingElement, names};
use streams_kubernetes_fake::{Fault, Verb};

/// Ids of the PEs that say that they were made again.
fn made_again(simulation: &JobSimulation) -> Vec<u64> {
    let says_so = |pe: &ProcessingElement| pe.annotations().contains_key(names::ANNOTATION_MADE_AGAIN);
    simulation.pes().into_iter().filter(|(_, pe)| says_so(pe)).map(|(id, _)| id).collect()
}

/// Somebody makes a PE again as it was.
fn create_again(simulation: &JobSimulation, before: ProcessingElement) {
    let ObjectMeta { name, namespace, labels, annotations, owner_references, .. } = before.metadata;
    let metadata = ObjectMeta { name, namespace, labels, annotations, owner_references, ..ObjectMeta::default() };
    simulation.server.create(&ProcessingElement { metadata, status: None, ..before });
}

/// While the job is suspended, its PE gets no pod; when it gets one, other generations are committed.
#[test]
fn a_pe_that_is_made_again_says_so_whatever_is_applied_to_it_later() {
    let mut simulation = JobSimulation::running();
    assert_eq!(made_again(&simulation), [0; 0]);
    simulation.change_spec(|spec| spec.suspend = true);
    simulation.settle();
    simulation.delete(&UserDeletion::ProcessingElement(1));
    simulation.settle();
    assert_eq!(made_again(&simulation), [1]);
    for width in [4, 1] {
        simulation.resize(0, width);
        simulation.settle();
        assert_eq!(made_again(&simulation), [1], "those that the job gets do not say it");
    }
    assert!(simulation.pe(1).unwrap().spec.generation > 0, "it was applied");
    simulation.crash();
    simulation.change_spec(|spec| spec.suspend = false);
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(made_again(&simulation), [1]);
    let version = simulation.server.version();
    simulation.settle();
    assert_eq!(simulation.server.version(), version, "nobody restores what says it");
}

#[test]
fn a_pe_that_the_mirror_does_not_show_yet_says_so_if_it_was_made_again_and_not_if_it_was_there() {
    // it is made again by a call that is not answered, or by somebody else as it was; whether it can be read then
    // -> it says so
    let table = [(true, true, vec![1]), (true, false, vec![1]), (false, true, vec![]), (false, false, vec![])];
    for (is_unanswered, is_readable, expected) in table {
        let mut simulation = JobSimulation::running();
        let before = simulation.pe(1).unwrap();
        simulation.delete(&UserDeletion::ProcessingElement(1));
        simulation.collect();
        simulation.leader.catch_up();
        if is_unanswered {
            let fault = Fault { after: 0, of_writes: true, has_effect: true, is_last: false };
            simulation.leader.connection.fail(fault);
            simulation.reconcile_behind([0; 6]);
            simulation.leader.connection.stop_failing();
        } else {
            create_again(&simulation, before);
        }
        assert!(simulation.pe(1).is_some(), "{is_unanswered} {is_readable}");
        simulation.server.refuse(move |call| {
            let is_read = call.verb == Verb::Get && call.kind == "ProcessingElement";
            (is_read && !is_readable).then(|| *Status::failure("etcd is slow", "InternalError").with_code(500).boxed())
        });
        simulation.reconcile_behind([0; 6]);
        simulation.server.refuse(|_| None);
        assert!(simulation.leader.shown(1).is_none(), "{is_unanswered} {is_readable}");
        assert_eq!(made_again(&simulation), expected, "{is_unanswered} {is_readable}");
        simulation.settle();
        simulation.check_at_rest();
        assert_eq!(made_again(&simulation), expected, "{is_unanswered} {is_readable}");
    }
}

/// Somebody has made it again as it was, and deletes it while the API server is asked what it is.
#[test]
fn a_pe_that_goes_while_it_is_asked_for_says_so_once_it_is_made_again() {
    let mut simulation = JobSimulation::running();
    let before = simulation.pe(1).unwrap();
    simulation.delete(&UserDeletion::ProcessingElement(1));
    simulation.collect();
    simulation.leader.catch_up();
    create_again(&simulation, before);
    let server = simulation.server.clone();
    simulation.leader.connection.meanwhile(move |call| {
        if call.verb == Verb::Get && call.kind == "ProcessingElement" {
            server.remove::<ProcessingElement>(&call.key);
        }
        async {}.boxed()
    });
    simulation.reconcile_behind([0; 6]);
    simulation.leader.connection.alone();
    assert_eq!(simulation.pe(1), None, "it is looked at again");
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(made_again(&simulation), [1]);
}
