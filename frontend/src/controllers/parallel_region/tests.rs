//! The status of a region, and that it is written once, whichever call fails.

use super::*;
use crate::controllers::reconciler::reconcile;
use crate::controllers::tests::LateMirrors;
use futures::executor::block_on;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::SignedDuration;
use kube::api::DeleteParams;
use streams_api::{
    BundleReference, CommittedRegion, InitialWidth, JobSpec, JobStatus, LastResize, ParallelRegionSpec, RefusedEdit,
    RegionWidth, RejectedResize, RejectedWidth, Rollout,
};
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes_fake::{Connection, Fault, Server};

fn key(name: &str) -> Key {
    Key::new("n", name)
}

fn width(width: u32) -> RegionWidth {
    RegionWidth { region: "A.R".to_owned(), width }
}

/// A job of generation 4 that runs with width 2, and its region.
fn server() -> Server {
    let server = Server::new();
    let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
    job.metadata.namespace = Some("n".to_owned());
    let mut status = JobStatus { generation: Some(4), applied_widths: vec![width(2)], ..JobStatus::default() };
    condition::set(&mut status.conditions, condition::READY, true, "R", "", None, Timestamp::UNIX_EPOCH);
    job.status = Some(status);
    let job = server.create(&job);
    let spec = ParallelRegionSpec {
        job_name: "flow".to_owned(),
        name: "A.R".to_owned(),
        width: 2,
        ..ParallelRegionSpec::default()
    };
    let mut region = ParallelRegion::new("flow-0", spec);
    region.metadata.namespace = Some("n".to_owned());
    region.metadata.owner_references = Some(vec![controlled_by(&job)]);
    server.create(&region);
    server
}

/// A user wants width 3, and the compiler refuses it.
fn refuse(server: &Server) {
    server.edit::<ParallelRegion>(&key("flow-0"), |region| region.spec.width = 3);
    refuses(server, &[("A.R", "no")]);
}

/// The job says that width 3 of these regions was refused, with these words.
fn refuses(server: &Server, refused: &[(&str, &str)]) {
    let uid = server.get::<ParallelRegion>(&key("flow-0")).unwrap().metadata.uid.unwrap();
    let reason = || "ApplicationRejected".to_owned();
    let refused_edits: Vec<RefusedEdit> = refused
        .iter()
        .map(|(region, message)| RefusedEdit {
            region: (*region).to_owned(),
            width: 3,
            uid: uid.clone(),
            reason: reason(),
            message: (*message).to_owned(),
            ..RefusedEdit::default()
        })
        .collect();
    let newest = refused_edits.last().map(|newest| RejectedResize {
        widths: refused_edits.iter().map(|edit| RegionWidth { region: edit.region.clone(), width: 3 }).collect(),
        reason: reason(),
        message: newest.message.clone(),
        ..RejectedResize::default()
    });
    server.edit::<Job>(&key("flow"), |job| {
        let status = job.status.get_or_insert_default();
        (status.refused_edits, status.rejected_resize) = (refused_edits, newest);
    });
}

/// A process with the controller, whose mirrors are up to date.
struct RegionProcess {
    reconciler: RegionReconciler<Connection>,
    mirrors: LateMirrors,
}

impl RegionProcess {
    fn start(server: &Server) -> Self {
        let mirrors = LateMirrors::of(server);
        let (cluster, shown) = (server.connect(), mirrors.mirrors.clone());
        let submissions = Submissions::of(&shown.jobs, &shown.pods);
        Self { reconciler: RegionReconciler { cluster, mirrors: shown, submissions }, mirrors }
    }

    fn reconcile(&self) -> Result<Outcome, Error> {
        block_on(reconcile(&self.reconciler, &key("flow-0")))
    }

    /// Reconciles until no change wakes the process. A process that has died is replaced by a new one.
    fn settle(&mut self, server: &Server) {
        loop {
            let result = self.reconcile();
            let heard = self.mirrors.deliver_all();
            if self.reconciler.cluster.is_broken() {
                *self = Self::start(server);
            } else if result.is_ok() && heard == 0 {
                return;
            }
        }
    }
}

fn says(server: &Server) -> (Option<u32>, Option<RejectedWidth>, String) {
    let status = server.get::<ParallelRegion>(&key("flow-0")).unwrap().status.unwrap();
    let ready = condition::get(&status.conditions, condition::READY).unwrap();
    (status.width, status.rejected.clone(), ready.reason.clone())
}

#[test]
fn a_refused_width_is_said_once_whichever_call_fails() {
    let faults = [(0, false, false), (0, true, false), (0, false, true), (0, true, true), (9, false, true)];
    for (after, has_effect, is_last) in faults {
        let server = server();
        let mut process = RegionProcess::start(&server);
        process.settle(&server);
        assert_eq!(says(&server), (Some(2), None, "AllRunning".to_owned()));
        refuse(&server);
        process.mirrors.deliver_all();
        process.reconciler.cluster.fail(Fault { after, of_writes: false, has_effect, is_last });
        process.settle(&server);
        let (in_force, rejected, ready) = says(&server);
        assert_eq!(
            (in_force, rejected.map(|rejected| rejected.width), ready),
            (Some(2), Some(3), "Rejected".to_owned())
        );
        // Nobody hears of a status whose answer was lost; of one that was written, people hear once.
        let expected = usize::from(after > 0 || !has_effect);
        let announced = server.announced();
        assert_eq!(announced.len(), expected, "{announced:?}");
        for announced in announced {
            assert!(announced.notice.warning);
            assert_eq!(announced.notice.reason, "ParallelRegionWidthChangeFailure");
        }
        // Whoever leads next finds nothing to do.
        let mut next = RegionProcess::start(&server);
        next.settle(&server);
        assert_eq!((next.reconciler.cluster.writes(), server.announced().len()), (0, 0));
        // Another width comes into force, and nobody hears of the refusal again.
        server.edit::<Job>(&key("flow"), |job| job.status.get_or_insert_default().applied_widths = vec![width(1)]);
        next.mirrors.deliver_all();
        next.settle(&server);
        let (in_force, rejected, _) = says(&server);
        assert_eq!((in_force, rejected.is_some(), server.announced().len()), (Some(1), true, 0));
    }
}

/// A user raises a bound, and then scales the region. The mirror of regions shows that first.
#[test]
fn a_width_is_not_refused_by_a_bound_that_its_job_does_not_have_any_more() {
    let bound = |server: &Server, max_width: u32| {
        let name = Some("A.R".to_owned());
        let bounds = InitialWidth { name, max_width: Some(max_width), ..InitialWidth::default() };
        server.edit::<Job>(&key("flow"), |job| job.spec.parallel_regions = vec![bounds]);
    };
    // the bound of the job by then -> what the region says, Events
    for (max_width, expected, events) in [(8, "Resizing", 0), (5, "Rejected", 1)] {
        let server = server();
        bound(&server, 4);
        let mut process = RegionProcess::start(&server);
        process.settle(&server);
        bound(&server, max_width);
        server.edit::<ParallelRegion>(&key("flow-0"), |region| region.spec.width = 8);
        process.mirrors.parallel_regions.deliver(usize::MAX);
        assert_eq!(process.reconcile().unwrap(), Outcome::Done);
        assert_eq!((says(&server).2.as_str(), server.announced().len()), (expected, events), "{max_width}");
        process.mirrors.deliver_all();
        process.settle(&server);
        assert_eq!((says(&server).2.as_str(), server.announced().len()), (expected, 0), "{max_width}");
    }
}

#[test]
fn a_refusal_of_another_region_is_none_of_this_one() {
    let server = server();
    let mut process = RegionProcess::start(&server);
    refuse(&server);
    process.mirrors.deliver_all();
    process.settle(&server);
    let said = says(&server);
    assert_eq!(said.1.as_ref().map(|rejected| rejected.message.as_str()), Some("no"));
    assert_eq!(server.announced().len(), 1);
    // Another region is refused for another reason, and corrected.
    for refused in [&[("A.R", "no"), ("A.S", "never")][..], &[("A.R", "no")]] {
        refuses(&server, refused);
        process.mirrors.deliver_all();
        process.settle(&server);
        assert_eq!((says(&server), server.announced().len()), (said.clone(), 0), "{refused:?}");
    }
}

#[test]
fn a_region_that_somebody_else_wrote_meanwhile_is_looked_at_again() {
    let server = server();
    let mut process = RegionProcess::start(&server);
    server.edit::<ParallelRegion>(&key("flow-0"), |region| region.spec.width = 5);
    assert_eq!(process.reconcile().unwrap(), Outcome::Conflict);
    assert_eq!(server.get::<ParallelRegion>(&key("flow-0")).unwrap().status, None);
    process.settle(&server);
    assert_eq!(says(&server), (Some(2), None, "Resizing".to_owned()));
}

#[test]
fn nothing_is_said_of_a_region_that_goes_or_belongs_to_another_job() {
    let stay = |region: &mut ParallelRegion| region.metadata.finalizers = Some(vec!["x.test/stays".to_owned()]);
    for goes in [true, false] {
        let server = server();
        if goes {
            server.edit(&key("flow-0"), stay);
            server.delete::<ParallelRegion>(&key("flow-0"), &DeleteParams::default());
        } else {
            server.edit::<ParallelRegion>(&key("flow-0"), |region| {
                region.metadata.owner_references.iter_mut().flatten().for_each(|owner| owner.uid = "gone".to_owned());
            });
        }
        let version = server.version();
        RegionProcess::start(&server).settle(&server);
        assert_eq!(server.version(), version, "{goes}");
    }
}

#[test]
fn a_region_that_was_made_by_hand_is_reported_once() {
    // there is a job of the name
    for has_job in [true, false] {
        let server = server();
        server.edit::<ParallelRegion>(&key("flow-0"), |region| region.metadata.owner_references = None);
        if !has_job {
            server.remove::<Job>(&key("flow"));
        }
        RegionProcess::start(&server).settle(&server);
        assert_eq!(says(&server), (None, None, "JobMissing".to_owned()));
        RegionProcess::start(&server).settle(&server);
        let announced: Vec<_> = server.announced().into_iter().map(|announced| announced.notice.reason).collect();
        assert_eq!(announced, ["JobMissing"], "a job of the name: {has_job}");
    }
}

#[test]
fn a_copy_of_a_region_says_so_once_and_wants_nothing() {
    let server = server();
    let original = server.get::<ParallelRegion>(&key("flow-0")).unwrap();
    server.remove::<ParallelRegion>(&key("flow-0"));
    let mut copy = ParallelRegion { status: None, ..original };
    copy.metadata.name = Some("flow-0b".to_owned());
    (copy.metadata.resource_version, copy.metadata.uid, copy.spec.width) = (None, None, 5);
    server.create(&copy);
    let mut process = RegionProcess::start(&server);
    for _ in 0..3 {
        process.mirrors.deliver_all();
        block_on(reconcile(&process.reconciler, &key("flow-0b"))).unwrap();
    }
    let status = server.get::<ParallelRegion>(&key("flow-0b")).unwrap().status.unwrap();
    let ready = condition::get(&status.conditions, condition::READY).unwrap();
    assert_eq!(
        (ready.reason.as_str(), ready.message.as_str()),
        ("JobMissing", "it is a copy of flow-0; it has no effect")
    );
    let announced: Vec<_> = server.announced().into_iter().map(|announced| announced.notice.reason).collect();
    assert_eq!(announced, ["JobMissing"]);
}

#[test]
fn a_region_that_nothing_controls_says_what_has_become_of_it() {
    // there is a job of the name, seconds that the region is older, a job has given it a width -> what it says
    let table = [
        (false, 0, true, "it was made by hand, or its job was deleted and has left it behind"),
        (true, 10, true, "an earlier job of the name was deleted and has left it behind"),
        (true, 0, true, "its owner reference was removed"),
        (true, 0, false, "it was made by hand"),
    ];
    for (has_job, older, had_width, expected) in table {
        let server = server();
        if had_width {
            RegionProcess::start(&server).settle(&server);
        }
        let created = Time(server.now() - Duration::from_secs(older));
        server.edit::<ParallelRegion>(&key("flow-0"), |region| {
            (region.metadata.owner_references, region.metadata.creation_timestamp) = (None, Some(created));
        });
        if !has_job {
            server.remove::<Job>(&key("flow"));
        }
        RegionProcess::start(&server).settle(&server);
        let status = server.get::<ParallelRegion>(&key("flow-0")).unwrap().status.unwrap();
        let ready = condition::get(&status.conditions, condition::READY).unwrap();
        assert_eq!(ready.message, format!("no job controls the region: {expected}; it has no effect"));
    }
}

#[test]
fn a_region_says_nothing_of_the_roll_out_of_another_unless_that_takes_long() {
    let rolls_out = |server: &Server, generation: u64, applied: u32, started: Timestamp| {
        server.edit::<Job>(&key("flow"), |job| {
            let status = job.status.get_or_insert_default();
            status.generation = Some(generation);
            status.applied_widths = vec![width(applied)];
            status.rollout = Some(Rollout { generation, started_at: Some(MicroTime(started)), ..Rollout::default() });
            condition::set(&mut status.conditions, condition::READY, false, "RollingOut", "", None, started);
        });
    };
    let runs = |server: &Server| {
        let now = server.now();
        server.edit::<Job>(&key("flow"), |job| {
            let status = job.status.get_or_insert_default();
            status.rollout.as_mut().unwrap().finished_at = Some(MicroTime(now));
            condition::set(&mut status.conditions, condition::READY, true, "AllRunning", "", None, now);
        });
    };
    // width in force, milliseconds since the commit -> milliseconds until it is looked at again, what it says, Events
    // once all run
    let table = [
        (2, 0, Some(2_000), "AllRunning", 0),
        (2, 1_500, Some(500), "AllRunning", 0),
        (2, 2_000, None, "RollingOut", 0),
        // The clock of the leader that has committed it was ahead.
        (2, -3_600_000, None, "RollingOut", 0),
        (3, 0, None, "RollingOut", 1),
    ];
    for (applied, age, again, expected, events) in table {
        let server = server();
        let mut process = RegionProcess::start(&server);
        process.settle(&server);
        if applied == 3 {
            server.edit::<ParallelRegion>(&key("flow-0"), |region| region.spec.width = 3);
        }
        rolls_out(&server, 5, applied, server.now() - SignedDuration::from_millis(age));
        process.mirrors.deliver_all();
        let outcome = process.reconcile().unwrap();
        let again = again.map_or(Outcome::Done, |left| Outcome::Again(Duration::from_millis(left)));
        assert_eq!((outcome, says(&server).2.as_str()), (again, expected), "{applied} {age}");
        runs(&server);
        process.mirrors.deliver_all();
        process.settle(&server);
        assert_eq!(says(&server).2, "AllRunning");
        let announced = server.announced();
        assert_eq!(announced.len(), events, "of its own width only: {announced:?}");
    }
}

#[test]
fn a_region_says_nothing_of_a_submission_until_its_pes_run_unless_that_takes_long() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Submission {
        Begun,
        Committed,
        Ready,
        Resized,
    }
    use Submission::*;
    // seconds since it was created, in a crowd, how far it is, another job is being submitted -> seconds until it is
    // looked at again, what it says
    let table = [
        (0, false, Begun, false, Some(10), None),
        (10, false, Begun, false, None, Some("Submitting")),
        (10, true, Begun, false, Some(10), None),
        // The clock of the API server is ahead.
        (-3_600, false, Begun, false, None, Some("Submitting")),
        (-3_600, true, Ready, false, None, Some("AllRunning")),
        (175, true, Begun, false, Some(5), None),
        (180, true, Begun, false, None, Some("Submitting")),
        (4, false, Committed, false, Some(6), None),
        (10, false, Committed, false, None, Some("RollingOut")),
        (10, true, Committed, false, Some(10), None),
        (0, false, Ready, false, None, Some("AllRunning")),
        (0, true, Ready, false, Some(3), None),
        (55, true, Ready, false, Some(3), None),
        (58, true, Ready, false, Some(2), None),
        (60, true, Ready, false, None, Some("AllRunning")),
        (0, false, Ready, true, None, Some("AllRunning")),
        (0, true, Ready, true, Some(10), None),
        (60, true, Ready, true, Some(10), None),
        (175, true, Ready, true, Some(5), None),
        (180, true, Ready, true, None, Some("AllRunning")),
        (0, true, Resized, false, None, Some("Resizing")),
    ];
    for (age, is_crowded, submission, is_another, again, expected) in table {
        let server = server();
        if is_another {
            let mut job = Job::new("another", JobSpec::of(BundleReference::default()));
            job.metadata.namespace = Some("n".to_owned());
            server.create(&job);
        }
        let created = server.now() - SignedDuration::from_secs(age);
        server.edit::<ParallelRegion>(&key("flow-0"), |region| {
            region.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
        });
        server.edit::<Job>(&key("flow"), |job| match submission {
            Begun => job.status = None,
            Committed | Resized => job.status.get_or_insert_default().conditions.clear(),
            Ready => {}
        });
        if submission == Resized {
            server.edit::<ParallelRegion>(&key("flow-0"), |region| region.spec.width = 5);
        }
        let process = RegionProcess::start(&server);
        process.reconciler.cluster.crowd(is_crowded);
        let outcome = process.reconcile().unwrap();
        assert_eq!(
            outcome,
            again.map_or(Outcome::Done, |left| Outcome::Again(Duration::from_secs(left))),
            "{age} {submission:?} {is_another}"
        );
        let status = server.get::<ParallelRegion>(&key("flow-0")).unwrap().status;
        let ready = status.and_then(|status| condition::get(&status.conditions, condition::READY).cloned());
        assert_eq!(ready.map(|ready| ready.reason).as_deref(), expected, "{age} {submission:?} {is_another}");
    }
}

#[test]
fn a_region_that_was_resized_before_it_said_anything_says_so_at_once() {
    // its width before that generation -> seconds until it is looked at again, from which width it was resized
    let table = [(Some(3), None, Some(3)), (None, Some(10), None)];
    for (width_before, again, from) in table {
        let server = server();
        let started_at = Some(MicroTime(server.now()));
        server.edit::<Job>(&key("flow"), |job| {
            let status = job.status.get_or_insert_default();
            status.conditions.clear();
            status.regions = vec![CommittedRegion { width_before, ..CommittedRegion::default() }];
            let started_at = started_at.clone();
            status.rollout = Some(Rollout { generation: 4, started_at, ..Rollout::default() });
        });
        let process = RegionProcess::start(&server);
        process.reconciler.cluster.crowd(true);
        let outcome = process.reconcile().unwrap();
        assert_eq!(outcome, again.map_or(Outcome::Done, |left| Outcome::Again(Duration::from_secs(left))));
        let status = server.get::<ParallelRegion>(&key("flow-0")).unwrap().status.unwrap_or_default();
        let last = status.last_resize.map(|last| (last.generation, last.from, last.to));
        assert_eq!(last, from.map(|from| (4, from, 2)));
    }
}

/// The clock of the leader that has committed the generation was ahead.
#[test]
fn a_width_that_has_changed_in_the_future_has_changed_when_somebody_sees_that() {
    let server = server();
    let (now, hour) = (server.now(), SignedDuration::from_hours(1));
    server.edit::<ParallelRegion>(&key("flow-0"), |region| {
        let committed_at = Some(MicroTime(now + hour));
        let last_resize = Some(LastResize { generation: 4, from: 1, to: 2, committed_at, rolled_out_at: None });
        region.status = Some(ParallelRegionStatus { width: Some(2), last_resize, ..ParallelRegionStatus::default() });
    });
    let mut process = RegionProcess::start(&server);
    for _ in 0..2 {
        process.settle(&server);
        let last = server.get::<ParallelRegion>(&key("flow-0")).unwrap().status.unwrap().last_resize.unwrap();
        assert_eq!(last.committed_at, Some(MicroTime(now)), "it stays for so long after that");
        server.advance(Duration::from_secs(10));
    }
}

#[test]
fn a_region_tells_that_a_width_is_rolled_out_unless_it_was_made_again_since() {
    let runs = || vec!["all PEs of width 2 run"];
    // seconds from the roll-out until the region was created, the width that it has said -> what people hear
    let table = [
        (-60, None, runs()),
        (0, None, runs()),
        (60, None, vec![]),
        (-60, Some(3), runs()),
        // The clock of the leader is behind that of the API server.
        (60, Some(3), runs()),
    ];
    for (age, said, expected) in table {
        let server = server();
        if said.is_some() {
            let status = ParallelRegionStatus { width: said, ..ParallelRegionStatus::default() };
            server.edit::<ParallelRegion>(&key("flow-0"), |region| region.status = Some(status));
        }
        let region = server.get::<ParallelRegion>(&key("flow-0")).unwrap();
        let created = region.metadata.creation_timestamp.unwrap().0;
        let finished_at = MicroTime(created - SignedDuration::from_secs(age));
        server.edit::<Job>(&key("flow"), |job| {
            let status = job.status.get_or_insert_default();
            status.regions = vec![CommittedRegion { width_before: Some(3), ..CommittedRegion::default() }];
            let finished_at = Some(finished_at.clone());
            status.rollout = Some(Rollout { generation: 4, finished_at, ..Rollout::default() });
        });
        let process = RegionProcess::start(&server);
        assert_eq!(process.reconcile().unwrap(), Outcome::Done);
        let last = server.get::<ParallelRegion>(&key("flow-0")).unwrap().status.unwrap().last_resize.unwrap();
        assert_eq!((last.from, last.to, last.rolled_out_at), (3, 2, Some(finished_at)), "{age} {said:?}");
        let told: Vec<String> = server.announced().into_iter().map(|announced| announced.notice.note).collect();
        assert_eq!(told, expected, "{age} {said:?}");
    }
}
