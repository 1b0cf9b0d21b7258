//! Whom requests belong to, and when they end.

use super::*;
use crate::controllers::reconciler::reconcile;
use crate::controllers::tests::LateMirrors;
use futures::executor::block_on;
use kube::core::Status;
use streams_api::{BundleReference, DesiredWidth, JobSpec, JobStatus, ParallelRegion, ResizeSpec};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{BackOff, Sharing};
use streams_kubernetes_fake::{Server, Verb};

fn key(name: &str) -> Key {
    Key::new("n", name)
}

fn request(server: &Server) {
    let regions = vec![DesiredWidth { name: "R".to_owned(), width: 3, expected_width: None }];
    let mut request = Resize::new("r", ResizeSpec { job_name: "flow".to_owned(), regions, ..ResizeSpec::default() });
    request.metadata.namespace = Some("n".to_owned());
    server.create(&request);
}

fn job(server: &Server) -> Job {
    let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
    job.metadata.namespace = Some("n".to_owned());
    server.create(&job)
}

/// Reconciles the request once, in a process that has seen everything.
fn look(server: &Server) -> Outcome {
    let mirrors = LateMirrors::of(server);
    let reconciler = ResizeReconciler { cluster: server.connect(), mirrors: mirrors.mirrors.clone() };
    block_on(reconcile(&reconciler, &key("r"))).unwrap()
}

fn present(server: &Server) -> Option<Resize> {
    server.get(&key("r"))
}

#[test]
fn a_request_belongs_to_its_job_whichever_comes_first() {
    let server = Server::new();
    request(&server);
    assert!(matches!(look(&server), Outcome::Again(_)), "there is no job yet");
    let job = job(&server);
    look(&server);
    assert_eq!(present(&server).unwrap().metadata.owner_references, Some(vec![controlled_by(&job)]));
    let version = server.version();
    look(&server);
    assert_eq!(server.version(), version, "nothing is written twice");
}

#[test]
fn a_new_job_wakes_the_requests_that_name_it_and_no_others() {
    let metrics = Metrics::new("test");
    let mirrors = Mirrors::new(&metrics);
    let request = |namespace: &str, name: &str, job: &str| {
        let mut request = Resize::new(name, ResizeSpec { job_name: job.to_owned(), ..ResizeSpec::default() });
        request.metadata.namespace = Some(namespace.to_owned());
        request
    };
    for (namespace, name, job) in [("n", "a", "flow"), ("n", "b", "other"), ("m", "c", "flow"), ("n", "d", "flow")] {
        mirrors.resizes.insert(request(namespace, name, job));
    }
    let queue: Queue<Key> = Queue::new("test", BackOff::default(), Sharing::none(), &metrics);
    let woken = || {
        let taken = (0..queue.depth()).filter_map(|_| block_on(queue.next())).map(|taken| taken.key().to_string());
        taken.collect::<Vec<_>>().join(" ")
    };
    subscribe(&mirrors, &queue);
    assert_eq!(woken(), "m/c n/a n/b n/d");
    let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
    job.metadata.namespace = Some("n".to_owned());
    mirrors.jobs.insert(job);
    assert_eq!(woken(), "n/a n/d");
}

#[test]
fn a_conflict_that_no_watch_tells_of_is_decided_again() {
    let server = Server::new();
    request(&server);
    let job = job(&server);
    server.refuse(|call| {
        (call.verb == Verb::Merge).then(|| *Status::failure("not now", "Conflict").with_code(409).boxed())
    });
    assert_eq!(look(&server), Outcome::Conflict);
    server.refuse(|_| None);
    assert_eq!(look(&server), Outcome::Done);
    assert_eq!(present(&server).unwrap().metadata.owner_references, Some(vec![controlled_by(&job)]));
}

#[test]
fn a_request_that_is_said_to_be_gone_and_is_not_is_looked_at_again() {
    let server = Server::new();
    request(&server);
    let job = job(&server);
    server.refuse(|call| {
        (call.verb == Verb::Merge).then(|| *Status::failure("nothing here", "NotFound").with_code(404).boxed())
    });
    assert_eq!(look(&server), Outcome::Conflict);
    server.refuse(|_| None);
    assert_eq!(look(&server), Outcome::Done);
    assert_eq!(present(&server).unwrap().metadata.owner_references, Some(vec![controlled_by(&job)]));
}

#[test]
fn a_request_whose_job_never_comes_is_refused_and_goes() {
    let server = Server::new();
    request(&server);
    server.advance(RESIZES_KEPT);
    look(&server);
    let status = present(&server).unwrap().status.unwrap();
    assert_eq!((status.phase, status.reason.as_deref()), (Some(ResizePhase::Refused), Some("JobNotFound")));
    server.advance(RESIZES_KEPT - Duration::from_secs(1));
    look(&server);
    assert!(present(&server).is_some(), "it is kept for a while");
    server.advance(Duration::from_secs(1));
    look(&server);
    server.collect_garbage();
    assert_eq!(present(&server), None);
}

#[test]
fn a_request_whose_roll_out_does_not_end_goes_once_nobody_waits_for_it() {
    // generation of the job, its roll-out is late, seconds since the request was written -> it is kept
    let table = [
        (3, false, 100_000, true),
        (3, true, 599, true),
        (3, true, 600, false),
        (4, false, 599, true),
        (4, false, 600, false),
    ];
    for (generation, is_late, seconds, is_kept) in table {
        let server = Server::new();
        request(&server);
        job(&server);
        look(&server);
        // It was compiled for a long time.
        server.advance(RESIZES_KEPT * 2);
        let now = server.now();
        server.edit::<Resize>(&key("r"), |request| {
            let (phase, written_at) = (Some(ResizePhase::Written), Some(Time(now)));
            request.status = Some(ResizeStatus { phase, generation: Some(3), written_at, ..ResizeStatus::default() });
        });
        server.edit::<Job>(&key("flow"), |job| {
            let mut status = JobStatus { generation: Some(generation), ..JobStatus::default() };
            let kind = condition::RESIZE_DELAYED;
            if is_late {
                condition::set(&mut status.conditions, kind, true, "TimedOut", "", None, now);
            }
            job.status = Some(status);
        });
        server.advance(Duration::from_secs(seconds));
        let outcome = look(&server);
        server.collect_garbage();
        assert_eq!(present(&server).is_some(), is_kept, "{generation} {is_late} {seconds}");
        assert_eq!(matches!(outcome, Outcome::Again(_)), is_kept, "it is looked at again");
    }
}

#[test]
fn what_goes_on_is_kept_however_long_it_takes() {
    let server = Server::new();
    request(&server);
    job(&server);
    look(&server);
    for (phase, is_kept) in
        [(ResizePhase::Pending, true), (ResizePhase::Written, true), (ResizePhase::RolledOut, false)]
    {
        server.edit::<Resize>(&key("r"), |request| {
            let finished_at = phase.is_final().then(|| request.creation_timestamp().unwrap());
            request.status = Some(ResizeStatus { phase: Some(phase), finished_at, ..ResizeStatus::default() });
        });
        server.advance(RESIZES_KEPT * 2);
        look(&server);
        server.collect_garbage();
        assert_eq!(present(&server).is_some(), is_kept, "{phase:?}");
    }
}

#[test]
fn a_request_that_something_else_controls_is_refused_and_one_without_its_label_gets_it() {
    let other = |api_version: &str, kind: &str, name: &str| {
        let (api_version, uid) = (api_version.to_owned(), "u".to_owned());
        let (kind, name) = (kind.to_owned(), name.to_owned());
        OwnerReference { api_version, kind, name, uid, controller: Some(true), block_owner_deletion: None }
    };
    let (version, kind) = (Job::api_version(&()), Job::kind(&()));
    // controller (else the job itself) -> reason, labelled
    let table = [
        (Some(other("apps/v1", "Deployment", "flow")), Some("OwnedByOther"), false),
        (Some(other(&version, &kind, "another")), Some("OwnedByOther"), false),
        // Somebody else's kind of the same name.
        (Some(other("batch/v1", &kind, "flow")), Some("OwnedByOther"), false),
        // The API server takes names of any length.
        (Some(other("apps/v1", "Deployment", &"x".repeat(5_000))), Some("OwnedByOther"), false),
        (None, None, true),
    ];
    for (controller, reason, is_labelled) in table {
        let server = Server::new();
        request(&server);
        let job = job(&server);
        let controller = controller.unwrap_or_else(|| controlled_by(&job));
        server.edit::<Resize>(&key("r"), |request| {
            request.metadata.owner_references = Some(vec![controller.clone()]);
        });
        look(&server);
        let found = present(&server).unwrap();
        let status = found.status.unwrap_or_default();
        assert_eq!(status.reason.as_deref(), reason, "{controller:?}");
        assert!(status.message.is_none_or(|message| message.len() <= MESSAGE_MAX), "{controller:?}");
        assert_eq!(status.finished_at.is_some(), reason.is_some(), "{controller:?}");
        let label = found.metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_JOB));
        assert_eq!(label.is_some(), is_labelled, "{controller:?}");
        assert_eq!(found.metadata.owner_references, Some(vec![controller]));
    }
}

/// A job of the same name adopts nothing that another one has left behind.
#[test]
fn a_request_of_a_job_that_is_gone_is_not_one_of_the_next_job() {
    // phase, number, seconds since it was written -> the reason that it ends with, and whether it is kept
    let table = [
        (ResizePhase::Pending, None, 0, None, true),
        (ResizePhase::Pending, Some(3), 0, Some("JobNotFound"), true),
        (ResizePhase::Planned, Some(3), 0, Some("JobNotFound"), true),
        (ResizePhase::Written, Some(3), 599, None, true),
        (ResizePhase::Written, Some(3), 600, None, false),
    ];
    for (phase, number, seconds, reason, is_kept) in table {
        let server = Server::new();
        request(&server);
        let job = job(&server);
        let now = server.now();
        server.edit::<Resize>(&key("r"), |request| {
            let written_at = (phase == ResizePhase::Written).then_some(Time(now));
            request.status = Some(ResizeStatus { phase: Some(phase), number, written_at, ..ResizeStatus::default() });
        });
        server.advance(Duration::from_secs(seconds));
        look(&server);
        server.collect_garbage();
        let found = present(&server);
        assert_eq!(found.is_some(), is_kept, "{phase:?} {number:?} {seconds}");
        let Some(found) = found else { continue };
        let status = found.status.unwrap_or_default();
        assert_eq!(status.reason.as_deref(), reason, "{phase:?} {number:?}");
        let owners = number.is_none().then(|| vec![controlled_by(&job)]);
        assert_eq!(found.metadata.owner_references, owners, "{phase:?} {number:?}");
    }
}

/// Somebody has removed the reference to the job, which is still there.
#[test]
fn a_request_without_its_owner_gets_it_back_from_the_job_that_has_numbered_it() {
    // seconds between job and request, the region that it was admitted for is the job's -> the reason that it ends with
    let table = [(1, false, None), (0, true, None), (0, false, Some("JobNotFound"))];
    for (seconds, is_region_its_own, reason) in table {
        let server = Server::new();
        let job = job(&server);
        let mut region = ParallelRegion::new("flow-0", Default::default());
        region.spec.name = "R".to_owned();
        region.metadata.namespace = Some("n".to_owned());
        region.metadata.labels = Some([(names::LABEL_JOB.to_owned(), "flow".to_owned())].into());
        region.metadata.owner_references = is_region_its_own.then(|| vec![controlled_by(&job)]);
        let uid = server.create(&region).metadata.uid.unwrap();
        server.advance(Duration::from_secs(seconds));
        request(&server);
        server.edit::<Resize>(&key("r"), |request| {
            let regions = vec![AdmittedRegion { name: "R".to_owned(), uid: uid.clone(), edited: 1 }];
            request.status = Some(ResizeStatus { number: Some(3), regions, ..ResizeStatus::default() });
        });
        look(&server);
        let found = present(&server).unwrap();
        assert_eq!(found.status.unwrap().reason.as_deref(), reason, "{seconds} {is_region_its_own}");
        let owners = reason.is_none().then(|| vec![controlled_by(&job)]);
        assert_eq!(found.metadata.owner_references, owners, "{seconds} {is_region_its_own}");
    }
}
