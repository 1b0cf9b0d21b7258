//! A write of a deposed leader arrives after the next leader has finished; a leader that sees requests later than jobs.

use super::simulation::{JOB, JobSimulation, NAMESPACE, Snapshot, UserDeletion, key, wait_for};
use crate::controllers::job::reconciler::rewrites::Rewrites;
use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use kube::core::Status;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use streams_api::{
    CommittedResizes, InitialWidth, Job, ParallelRegion, ParallelRegionSpec, PeOptions, ProcessingElement, Resize,
    ResizePhase, TraceLevel, condition, names,
};
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes_fake::{Fault, Verb};

/// Rounds that a leader gets until its write must have come.
const ROUNDS: usize = 40;

/// Lets a leader go on with `action` until the write after so many. While that write is on its way another one takes
/// over and does `then`; then the write arrives, and nothing later. `None`: there is no such write.
fn with_a_late_write(
    start: &Snapshot,
    action: fn(&JobSimulation),
    then: fn(&mut JobSimulation),
    after: usize,
) -> Option<JobSimulation> {
    let mut simulation = JobSimulation::resume(start);
    action(&simulation);
    let mut deposed = simulation.new_leader();
    let connection = deposed.connection.clone();
    let simulation = Arc::new(Mutex::new(simulation));
    let writes = Mutex::new(0);
    connection.meanwhile({
        let (simulation, connection) = (Arc::clone(&simulation), connection.clone());
        move |call| {
            let mut writes = writes.lock();
            if call.verb.is_write() {
                if *writes == after {
                    let mut simulation = simulation.lock();
                    then(&mut simulation);
                    simulation.set_late(true);
                    connection.fail(Fault { after: 0, of_writes: true, has_effect: true, is_last: true });
                }
                *writes += 1;
            }
            async {}.boxed()
        }
    });
    for _ in 0..ROUNDS {
        deposed.catch_up();
        let _ = wait_for(deposed.reconcile());
        for kind in deposed.running() {
            wait_for(deposed.work(kind));
        }
        if connection.is_broken() {
            break;
        }
        let simulation = simulation.lock();
        simulation.run_pods();
        simulation.collect();
    }
    let was_late = connection.is_broken();
    // It has the simulation, and the simulation its connection.
    connection.meanwhile(|_| async {}.boxed());
    drop(deposed);
    let simulation = Arc::into_inner(simulation).expect("nobody else has it").into_inner();
    simulation.set_late(false);
    was_late.then_some(simulation)
}

const SCENARIOS: [(&str, fn() -> JobSimulation, fn(&JobSimulation)); 4] = [
    ("submission", JobSimulation::new, |_| {}),
    ("growth", JobSimulation::running, |w| w.resize(0, 4)),
    ("shrinking", JobSimulation::running, |w| w.resize(0, 1)),
    ("two regions at once", JobSimulation::running, |w| w.resize_both([3, 1])),
];

#[test]
fn a_write_of_a_deposed_leader_arrives_late() {
    for (name, start, action) in SCENARIOS {
        let start = start().snapshot();
        let mut end = JobSimulation::resume(&start);
        action(&end);
        end.settle();
        let mut writes = 0;
        while let Some(mut simulation) = with_a_late_write(&start, action, JobSimulation::settle, writes) {
            simulation.settle();
            simulation.check_at_rest();
            assert_eq!(simulation.shape(), end.shape(), "{name}: the write after {writes}");
            writes += 1;
        }
        assert!(writes > 10, "{name}");
        println!("{name}: {writes} writes of a deposed leader that arrive late, one end");
    }
}

/// The user wants another width of a region of a job that is not committed yet. The leader goes on until it has
/// recorded a plan with that.
fn propose_another_width(simulation: &mut JobSimulation) {
    if simulation.status().generation.is_some() {
        return simulation.settle();
    }
    simulation.change_spec(|spec| {
        let name = Some("R".to_owned());
        spec.parallel_regions = vec![InitialWidth { name, width: Some(3), ..InitialWidth::default() }];
    });
    let edited = simulation.server.get::<Job>(&key()).and_then(|job| job.metadata.generation);
    for _ in 0..100 {
        let proposal = simulation.status().proposal;
        if proposal.is_some_and(|proposal| Some(proposal.spec_generation) == edited) {
            return;
        }
        simulation.round();
        simulation.work();
        simulation.collect();
    }
    panic!("it is never proposed");
}

#[test]
fn a_write_for_an_earlier_spec_arrives_while_the_next_plan_is_written() {
    let start = JobSimulation::new().snapshot();
    let mut writes = 0;
    while let Some(mut simulation) = with_a_late_write(&start, |_| {}, propose_another_width, writes) {
        simulation.settle();
        simulation.check_at_rest();
        let is_edited = !simulation.server.get::<Job>(&key()).unwrap().spec.parallel_regions.is_empty();
        let expected = if is_edited { 3 } else { 2 };
        let region = simulation.region(0).unwrap();
        let seen = (simulation.status().generation, region.spec.width);
        assert_eq!(seen, (Some(0), expected), "the write after {writes}");
        writes += 1;
    }
    assert!(writes > 10, "{writes}");
}

/// The mirror shows it only after it was to be created.
#[test]
fn a_region_of_an_earlier_plan_is_made_again_before_the_commit() {
    for (name, is_late) in [("R", false), ("R", true), ("T", false), ("T", true)] {
        let mut simulation = JobSimulation::new();
        while simulation.status().proposal.is_none() {
            simulation.round();
            simulation.work();
        }
        let spec = ParallelRegionSpec { job_name: JOB.to_owned(), index: 0, name: name.to_owned(), width: 7 };
        let mut region = ParallelRegion::new(&names::parallel_region(JOB, 0), spec);
        region.metadata.namespace = Some(NAMESPACE.to_owned());
        region.metadata.labels = Some(names::job_labels(JOB));
        region.metadata.owner_references = Some(vec![controlled_by(&simulation.server.get::<Job>(&key()).unwrap())]);
        simulation.server.create(&region);
        if is_late {
            let _ = wait_for(simulation.leader.round());
        }
        simulation.settle();
        simulation.check_at_rest();
        let made = simulation.region(0).unwrap().spec;
        assert_eq!(
            (simulation.status().generation, made.name.as_str(), made.width),
            (Some(0), "R", 2),
            "{name} {is_late}"
        );
    }
}

/// A leader goes on with a request until `is_reached`, and dies. The next one sees all of that but the request, which
/// it sees as it was before anybody had looked at it.
fn with_late_requests(is_reached: impl Fn(&JobSimulation) -> bool) -> JobSimulation {
    let mut simulation = JobSimulation::running();
    simulation.request("asked", &[("R", 4)]);
    let mut first = simulation.new_leader();
    while !is_reached(&simulation) {
        first.catch_up();
        let _ = wait_for(first.round());
        for kind in first.running() {
            wait_for(first.work(kind));
        }
    }
    simulation
}

/// The next leader goes on until `is_reached`.
fn go_on(simulation: &mut JobSimulation, is_reached: impl Fn(&JobSimulation) -> bool) {
    for _ in 0..40 {
        if is_reached(simulation) {
            return;
        }
        simulation.leader.catch_up_but_with_requests();
        let _ = wait_for(simulation.leader.round());
        for kind in simulation.leader.running() {
            wait_for(simulation.leader.work(kind));
        }
    }
    panic!("{:?}", simulation.status());
}

fn came_to_generation_one(simulation: &mut JobSimulation) {
    simulation.settle();
    simulation.check_at_rest();
    let outcome = simulation.outcome("asked");
    assert_eq!((outcome.phase, outcome.generation), (Some(ResizePhase::RolledOut), Some(1)), "{outcome:?}");
}

#[test]
fn a_leader_that_does_not_see_the_request_of_a_proposal_yet_does_not_abandon_it() {
    let mut simulation = with_late_requests(|simulation| simulation.status().proposes(1));
    go_on(&mut simulation, |simulation| {
        let status = simulation.status();
        assert!(status.proposal.is_some() || status.generation == Some(1), "it was abandoned");
        status.generation == Some(1)
    });
    came_to_generation_one(&mut simulation);
}

#[test]
fn a_leader_that_does_not_see_a_committed_request_yet_does_not_forget_it() {
    let mut simulation = with_late_requests(|simulation| simulation.status().commit_of(1).is_some());
    // The next step is for an edit of the same region.
    simulation.resize(0, 3);
    go_on(&mut simulation, |simulation| simulation.status().proposal.is_some());
    came_to_generation_one(&mut simulation);
}

/// All of them together may be larger than this process may become.
#[test]
fn of_requests_that_the_mirror_lacks_no_more_is_kept_than_somebody_needs() {
    let mut simulation = JobSimulation::running();
    let long = "x".repeat(1 << 16);
    let refused = |number: usize| format!("refused-{number}");
    (0..20).for_each(|number| simulation.request(&refused(number), &[(&*long, 3)]));
    simulation.request("asked", &[("R", 4)]);
    let mut first = simulation.new_leader();
    for _ in 0..40 {
        if simulation.status().proposes(1) {
            break;
        }
        first.catch_up();
        let _ = wait_for(first.round());
        for kind in first.running() {
            wait_for(first.work(kind));
        }
    }
    assert_eq!(simulation.outcome("asked").phase.map(|phase| phase.is_final()), Some(false));
    for number in 0..20 {
        assert_eq!(simulation.outcome(&refused(number)).phase, Some(ResizePhase::Refused), "{number}");
        simulation.server.edit(&key().sibling(&refused(number)), |request: &mut Resize| {
            request.annotations_mut().insert("note".to_owned(), long.clone());
        });
    }
    simulation.request("new", &[(&*long, 3)]);
    simulation.leader.catch_up_but_with_requests();
    let _ = wait_for(simulation.leader.round());
    let uid = simulation.server.get::<Job>(&key()).unwrap().metadata.uid.unwrap();
    let kept = simulation.leader.reconciler.memory.find(&key(), &uid, |entry| entry.requests.clone()).unwrap();
    assert_eq!((kept.len(), kept["asked"].spec.regions.len()), (21, 1), "a new one comes with the mirror");
    for number in 0..20 {
        let request = &kept[&refused(number)];
        assert_eq!((request.spec.regions.len(), request.annotations().len()), (0, 0), "{number}");
    }
    came_to_generation_one(&mut simulation);
    let refused = simulation.server.get::<Resize>(&key().sibling(&refused(0))).unwrap();
    assert_eq!(refused.spec.regions.len(), 1, "what it wants stays");
}

#[test]
fn a_job_that_is_rolled_out_names_no_requests_any_more_and_what_is_gone_is_asked_for_once() {
    let mut simulation = JobSimulation::running();
    simulation.request("asked", &[("R", 3)]);
    simulation.settle();
    assert_eq!(simulation.status().committed_resizes, []);
    // An older version of the frontend left it there.
    let named = CommittedResizes { generation: 1, resizes: vec![1], ..CommittedResizes::default() };
    simulation.server.edit(&key(), |job: &mut Job| job.status.as_mut().unwrap().committed_resizes = vec![named]);
    simulation.server.delete::<Resize>(&key().sibling("asked"), &DeleteParams::background());
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    simulation.server.refuse(move |call| {
        counted.fetch_add(usize::from(call.verb == Verb::List && call.kind == "Resize"), Ordering::Relaxed);
        None
    });
    simulation.crash();
    for _ in 0..5 {
        simulation.reconcile();
        simulation.wait(60);
    }
    assert_eq!(lists.load(Ordering::Relaxed), 1);
}

/// The look that sees the edit for the first time takes a step for something else, and writes none of it.
#[test]
fn an_edit_that_nobody_has_carried_out_is_carried_out_at_once_by_the_next_leader_whatever_was_recorded() {
    let mut simulation = JobSimulation::running();
    simulation.services.change(|services| services.widest = 4);
    simulation.resize(0, 5);
    simulation.reconcile();
    simulation.work();
    let options = PeOptions { runtime_trace_level: TraceLevel::Debug, ..PeOptions::default() };
    simulation.change_spec(|spec| spec.processing_element = Some(options));
    simulation.round();
    assert!(simulation.status().rejected_resize.is_some(), "that is the step");
    let is_written = |pe: &ProcessingElement| pe.spec.options.runtime_trace_level == TraceLevel::Debug;
    assert!(!simulation.pes().values().any(is_written));
    simulation.crash();
    // It may write nothing of what is only rewritten.
    Arc::get_mut(&mut simulation.leader.reconciler).unwrap().rewrites = Rewrites::new(0);
    simulation.settle();
    assert!(simulation.pes().values().all(is_written));
    assert_eq!(simulation.status().observed_generation, Some(2));
    simulation.check_at_rest();
}

/// Nothing is written of what is only rewritten.
fn rewrites_nothing(simulation: &mut JobSimulation) {
    Arc::get_mut(&mut simulation.leader.reconciler).unwrap().rewrites = Rewrites::new(0);
}

fn has_new_options(pe: &ProcessingElement) -> bool {
    pe.spec.options.runtime_trace_level == TraceLevel::Debug
}

/// The reason of `Ready`.
fn ready(simulation: &JobSimulation) -> String {
    let status = simulation.status();
    condition::get(&status.conditions, condition::READY).unwrap().reason.clone()
}

/// A job whose plan is lost, as is that of its proposal if it has one, and that a user has edited since. With the
/// chunks of the committed plan, which somebody has kept.
fn edited_while_the_plan_is_lost(has_proposal: bool, looked_before: bool) -> (JobSimulation, Vec<ConfigMap>) {
    let mut simulation = JobSimulation::running();
    let kept: Vec<ConfigMap> = simulation.config_maps(&[names::PART_ADL, names::PART_PLAN]);
    if has_proposal {
        simulation.resize(0, 4);
        simulation.until(|simulation| simulation.status().proposal.is_some());
        assert!(simulation.status().proposal.is_some());
    }
    simulation.delete(&UserDeletion::Chunks);
    simulation.collect();
    simulation.crash();
    if looked_before {
        simulation.reconcile();
    }
    let options = PeOptions { runtime_trace_level: TraceLevel::Debug, ..PeOptions::default() };
    simulation.change_spec(|spec| spec.processing_element = Some(options));
    simulation.reconcile();
    assert_eq!((ready(&simulation), simulation.status().observed_generation), ("PlanLost".to_owned(), Some(2)));
    assert!(!simulation.pes().values().any(has_new_options));
    (simulation, kept)
}

/// Somebody makes these ConfigMaps again.
fn make_again(simulation: &JobSimulation, kept: Vec<ConfigMap>) {
    for mut map in kept {
        map.metadata.resource_version = None;
        map.metadata.managed_fields = None;
        map.metadata.uid = None;
        simulation.server.create(&map);
    }
}

#[test]
fn an_edit_while_the_plan_is_lost_is_carried_out_at_once_when_it_is_there_again_whoever_leads_then() {
    type Then = fn(&mut JobSimulation);
    let partly: Then = |simulation| {
        simulation.server.refuse(|call| {
            let is_late = call.kind == "ProcessingElement" && !call.key.name.ends_with("-0");
            is_late.then(|| *Status::failure("not now", "InternalError").with_code(500).boxed())
        });
        simulation.reconcile();
        simulation.server.refuse(|_| None);
        assert_eq!(simulation.pes().values().filter(|pe| has_new_options(pe)).count(), 1);
        simulation.crash();
    };
    // The plan of the proposal is still lost.
    let step: Then = |simulation| {
        simulation.round();
        assert_eq!((simulation.status().proposal, ready(simulation)), (None, "PlanLost".to_owned()));
        assert!(!simulation.pes().values().any(has_new_options));
        simulation.crash();
    };
    // what happens after the plan is there again, there is a proposal, the process has looked before the edit, too
    let table: [(&str, Then, bool, bool); 5] = [
        ("nothing", |_| {}, false, false),
        ("nothing", |_| {}, false, true),
        ("another one leads", JobSimulation::crash, false, false),
        ("it is carried out in part", partly, false, false),
        ("a step is taken", step, true, false),
    ];
    for (happens, then, has_proposal, looked_before) in table {
        let row = format!("{happens} {looked_before}");
        let (mut simulation, kept) = edited_while_the_plan_is_lost(has_proposal, looked_before);
        make_again(&simulation, kept);
        rewrites_nothing(&mut simulation);
        then(&mut simulation);
        rewrites_nothing(&mut simulation);
        for _ in 0..3 {
            simulation.reconcile();
        }
        assert!(simulation.pes().values().all(has_new_options), "{row}");
        simulation.settle();
        assert_eq!(simulation.status().observed_generation, Some(2), "{row}");
        simulation.check_at_rest();
    }
}

/// Another version leads by then, which wants another form of all PEs.
#[test]
fn a_plan_that_is_there_again_without_an_edit_is_no_reason_to_write_everything_at_once() {
    let mut simulation = JobSimulation::running();
    let kept: Vec<ConfigMap> = simulation.config_maps(&[names::PART_ADL, names::PART_PLAN]);
    let old = "of an older version";
    for id in simulation.pes().into_keys() {
        let name = key().sibling(&names::processing_element(JOB, id));
        simulation.server.edit(&name, |pe: &mut ProcessingElement| {
            pe.annotations_mut().insert(names::ANNOTATION_APPLIED_HASH.to_owned(), old.to_owned());
        });
    }
    simulation.delete(&UserDeletion::Chunks);
    simulation.collect();
    simulation.crash();
    simulation.reconcile();
    assert_eq!((ready(&simulation), simulation.status().observed_generation), ("PlanLost".to_owned(), Some(1)));
    make_again(&simulation, kept);
    simulation.crash();
    rewrites_nothing(&mut simulation);
    for _ in 0..3 {
        simulation.reconcile();
    }
    assert_eq!(ready(&simulation), "AllRunning");
    let is_old =
        |pe: &ProcessingElement| pe.annotations().get(names::ANNOTATION_APPLIED_HASH).is_some_and(|of| of == old);
    assert!(simulation.pes().values().all(is_old));
}

/// At each write of the look that carries it out.
#[test]
fn an_edit_while_the_plan_is_lost_is_carried_out_at_once_by_the_next_leader_wherever_this_one_ends() {
    let mut writes = 0;
    loop {
        let (mut simulation, kept) = edited_while_the_plan_is_lost(false, false);
        make_again(&simulation, kept);
        rewrites_nothing(&mut simulation);
        simulation.crash_at_write(writes, writes % 2 == 0);
        simulation.leader.catch_up();
        let _ = wait_for(simulation.leader.reconcile());
        if !simulation.take_over_from_the_dead() {
            break;
        }
        rewrites_nothing(&mut simulation);
        for _ in 0..3 {
            simulation.reconcile();
        }
        assert!(simulation.pes().values().all(has_new_options), "{writes}");
        writes += 1;
    }
    assert!(writes > 8, "{writes}");
}
