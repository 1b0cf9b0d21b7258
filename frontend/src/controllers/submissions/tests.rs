//! Who is waited for, for how long, and who is woken when.

use super::*;
use crate::mirrors::indexes;
use k8s_openapi::api::core::v1::PodStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::core::ObjectMeta;
use std::collections::BTreeMap;
use streams_api::{BundleReference, JobSpec, JobStatus, ProposedPlan, names};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn job(namespace: &str, name: &str) -> Job {
    let mut job = Job::new(name, JobSpec::of(BundleReference::default()));
    job.metadata.namespace = Some(namespace.to_owned());
    job.metadata.creation_timestamp = Some(Time(at(1_000)));
    job
}

/// What is kept of these jobs.
fn submissions_of(jobs: impl IntoIterator<Item = Job>) -> Arc<Submissions> {
    Submissions::of(&Watch::filled(indexes(), jobs), &Watch::filled(indexes(), []))
}

/// The job has committed its first generation at 1,100 s, and gets so many PEs.
fn commit(mut job: Job, pes: u32) -> Job {
    let rollout = Rollout { added: pes, started_at: Some(MicroTime(at(1_100))), ..Rollout::default() };
    job.status = Some(JobStatus { generation: Some(0), rollout: Some(rollout), ..JobStatus::default() });
    job
}

/// A pod of a PE of this job.
fn pod(namespace: &str, job: &str, pe: u64, phase: &str) -> Pod {
    let metadata = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(format!("{job}-{pe}-pod")),
        labels: Some(names::pe_labels(job, pe)),
        ..ObjectMeta::default()
    };
    let status = PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() };
    Pod { metadata, status: Some(status), ..Pod::default() }
}

/// What PEs are woken by, as far as they were.
fn woken_of(submissions: &Submissions) -> Arc<Mutex<BTreeMap<String, Woken>>> {
    let woken = Arc::<Mutex<BTreeMap<String, Woken>>>::default();
    let log = Arc::clone(&woken);
    submissions.wake_by(move |pe, why| {
        log.lock().insert(pe.to_string(), why);
    });
    woken
}

fn rollout(job: &mut Job) -> &mut Rollout {
    job.status.get_or_insert_default().rollout.get_or_insert_default()
}

#[test]
fn a_job_is_waited_for_until_it_is_rolled_out_or_cannot_be_committed() {
    type Edit = fn(&mut Job);
    let table: [(&str, bool, Edit); 11] = [
        ("new", true, |_| {}),
        ("numbered", true, |job| job.status = Some(JobStatus { job_id: Some(0), ..JobStatus::default() })),
        ("committed", true, |job| *job = commit(job.clone(), 1)),
        ("without PEs", false, |job| *job = commit(job.clone(), 0)),
        ("rolled out", false, |job| {
            *job = commit(job.clone(), 1);
            rollout(job).finished_at = Some(MicroTime(at(1_101)));
        }),
        ("resized", false, |job| {
            *job = commit(job.clone(), 1);
            rollout(job).generation = 1;
        }),
        ("of an older frontend", false, |job| {
            job.status = Some(JobStatus { generation: Some(0), ..JobStatus::default() });
        }),
        ("failed", false, |job| {
            job.status = Some(JobStatus { phase: Some(JobPhase::Failed), ..JobStatus::default() });
        }),
        ("without bundle", false, |job| {
            let conditions = &mut job.status.get_or_insert_default().conditions;
            condition::set(conditions, condition::BUNDLE_UNAVAILABLE, true, "NotFound", "", None, at(1_000));
        }),
        ("suspended", false, |job| job.spec.suspend = true),
        ("going", false, |job| job.metadata.deletion_timestamp = Some(Time(at(1_000)))),
    ];
    for (what, expected, edit) in table {
        let mut job = job("n", "a");
        edit(&mut job);
        let submissions = submissions_of([job]);
        assert_eq!(submissions.until("n", at(1_001)).is_some(), expected, "{what}");
        assert_eq!(submissions.until("m", at(1_001)), None, "{what}");
    }
}

#[test]
fn a_job_is_not_waited_for_longer_than_ten_minutes() {
    // when its submission began, if it has, now -> it is waited for
    let table = [
        (None, 999, true),
        (None, 1_599, true),
        (None, 1_600, false),
        (Some(1_500), 1_600, true),
        (Some(1_500), 2_100, false),
    ];
    for (begun, now, expected) in table {
        let mut job = job("n", "a");
        let submission_started_at = begun.map(|begun| Time(at(begun)));
        job.status = Some(JobStatus { submission_started_at, ..JobStatus::default() });
        let submissions = submissions_of([job]);
        let until = at(begun.unwrap_or(1_000) + 600);
        assert_eq!(submissions.until("n", at(now)), expected.then_some(until), "{begun:?} {now}");
    }
}

#[test]
fn pes_wait_for_all_such_jobs_of_their_namespace_and_for_no_other() {
    let mirror = Watch::filled(indexes(), [job("n", "a"), job("n", "b"), job("m", "c")]);
    let submissions = Submissions::of(&mirror, &Watch::filled(indexes(), []));
    let woken = woken_of(&submissions);
    let [one, two, gone, other] = ["one", "two", "gone", "other"].map(|name| Key::new("n", name));
    for (pe, job) in [(&one, "x"), (&two, "y"), (&gone, "y")] {
        assert!(submissions.wait(pe, job));
    }
    submissions.forget(&gone, "y");
    mirror.remove(&Key::new("n", "a"));
    mirror.remove(&Key::new("m", "c"));
    assert!(submissions.until("n", at(1_001)).is_some() && submissions.until("m", at(1_001)).is_none());
    assert_eq!(*woken.lock(), BTreeMap::new());
    mirror.remove(&Key::new("n", "b"));
    let expected = ["n/one", "n/two"].map(|pe| (pe.to_owned(), Woken::OthersRun));
    assert_eq!(*woken.lock(), expected.into());
    assert!(!submissions.wait(&other, "x"));
    assert_eq!(submissions.len(), 0);
}

#[test]
fn pes_whose_own_job_is_to_be_changed_do_not_wait() {
    let mirror = Watch::filled(indexes(), [job("n", "b")]);
    let submissions = Submissions::of(&mirror, &Watch::filled(indexes(), []));
    let woken = woken_of(&submissions);
    let [one, two] = ["one", "two"].map(|name| Key::new("n", name));
    assert!(submissions.wait(&one, "x") && submissions.wait(&two, "y"));
    let mut changed = job("n", "x");
    // committed generation, another one is proposed -> PEs that were woken by then
    let table = [(0, false, 0), (0, true, 1), (1, false, 1)];
    for (generation, is_proposed, expected) in table {
        let proposal = is_proposed.then(ProposedPlan::default);
        changed.status = Some(JobStatus { generation: Some(generation), proposal, ..JobStatus::default() });
        mirror.insert(changed.clone());
        let expected = [("n/one".to_owned(), Woken::JobGoesOn)].into_iter().take(expected);
        assert_eq!(*woken.lock(), expected.collect(), "{generation} {is_proposed}");
    }
    assert_eq!(submissions.len(), 2, "the job, and the PE of another one");
}

#[test]
fn pods_of_a_job_are_waited_for_from_its_commit_until_all_of_them_run_but_not_for_long() {
    type Pods<'a> = &'a [(u64, &'a str)];
    // its PEs, its pods, seconds since the commit -> it is waited for
    let table: [(u32, Pods<'_>, i64, bool); 9] = [
        (2, &[], 0, true),
        (2, &[], 9, true),
        (2, &[], 10, false),
        (2, &[(0, "Running")], 1, true),
        (2, &[(0, "Running"), (0, "Running")], 1, true),
        (2, &[(0, "Running"), (1, "Pending")], 1, true),
        (2, &[(0, "Running"), (1, "Running")], 1, false),
        // They have run, or are on a node that does not answer.
        (3, &[(0, "Failed"), (1, "Succeeded"), (2, "Unknown")], 1, false),
        (1_000, &[], 10, false),
    ];
    for (pes, of_job, seconds, expected) in table {
        let others = [pod("n", "other", 0, "Running"), pod("m", "a", 1, "Running")];
        let pods = of_job.iter().map(|(pe, phase)| pod("n", "a", *pe, phase)).chain(others);
        let (jobs, pods) = (Watch::filled(indexes(), [commit(job("n", "a"), pes)]), Watch::filled(indexes(), pods));
        let submissions = Submissions::of(&jobs, &pods);
        let until = expected.then_some(at(1_110));
        assert_eq!(submissions.until("n", at(1_100 + seconds)), until, "{pes} {of_job:?} {seconds}");
        // What the job says meanwhile changes nothing: not all of its PEs have said that their pods run.
        let mut told = commit(job("n", "a"), pes);
        rollout(&mut told).pending = 1;
        jobs.insert(told);
        assert_eq!(submissions.until("n", at(1_100 + seconds)), until, "{pes} {of_job:?} {seconds}");
    }
}

#[test]
fn many_pes_of_a_job_wait_for_each_other_the_longer_the_more_they_are() {
    // PEs, tenths of a second since the commit -> they wait for each other
    let table =
        [(63, 0, false), (64, 0, true), (64, 112, true), (64, 113, false), (1_000, 299, true), (1_000, 300, false)];
    for (pes, tenths, expected) in table {
        let submissions = submissions_of([commit(job("n", "a"), pes)]);
        let now = Timestamp::from_millisecond(1_100_000 + 100 * tenths).unwrap();
        assert_eq!(submissions.own_until("n", "a", now).is_some(), expected, "{pes} {tenths}");
        assert_eq!(submissions.own_until("n", "b", now), None);
    }
}

#[test]
fn pes_are_woken_when_all_pods_run_and_not_later_than_some_time_after_the_last_commit() {
    let (jobs, pods) = (Watch::filled(indexes(), [job("n", "a"), job("n", "b")]), Watch::filled(indexes(), []));
    let submissions = Submissions::of(&jobs, &pods);
    let woken = woken_of(&submissions);
    assert!(submissions.wait(&Key::new("n", "one"), "x"));
    let assert_woken = |expected: Option<Woken>, what: &str| {
        let expected = expected.map(|why| ("n/one".to_owned(), why));
        assert_eq!(std::mem::take(&mut *woken.lock()), expected.into_iter().collect(), "{what}");
    };
    jobs.insert(commit(job("n", "a"), 1));
    assert_woken(None, "b is not committed");
    jobs.insert(commit(job("n", "b"), 1));
    assert_woken(Some(Woken::OthersAreCommitted), "both are");
    pods.insert(pod("n", "a", 0, "Running"));
    assert_woken(None, "that of b does not run");
    pods.insert(pod("n", "b", 0, "Pending"));
    assert_woken(None, "it is on its way");
    pods.insert(pod("n", "b", 0, "Running"));
    assert_woken(Some(Woken::OthersRun), "both run");
    assert!(!submissions.wait(&Key::new("n", "two"), "x"), "there is nobody to wait for");
    let mut rolled_out = commit(job("n", "a"), 1);
    rollout(&mut rolled_out).finished_at = Some(MicroTime(at(1_120)));
    jobs.insert(rolled_out);
    jobs.remove(&Key::new("n", "b"));
    assert_eq!(submissions.len(), 0);
}

#[test]
fn a_job_whose_pods_never_run_keeps_no_pe_of_later_jobs_from_being_woken() {
    let mut earlier = commit(job("n", "a"), 2);
    rollout(&mut earlier).started_at = Some(MicroTime(at(1_090)));
    let (jobs, pods) = (Watch::filled(indexes(), [earlier, job("n", "b")]), Watch::filled(indexes(), []));
    let submissions = Submissions::of(&jobs, &pods);
    let woken = woken_of(&submissions);
    assert!(submissions.wait(&Key::new("n", "one"), "x"));
    jobs.insert(commit(job("n", "b"), 1));
    woken.lock().clear();
    pods.insert(pod("n", "b", 0, "Running"));
    assert_eq!(*woken.lock(), [("n/one".to_owned(), Woken::OthersRun)].into());
}

#[test]
fn pes_of_a_large_job_are_woken_when_its_own_pods_run() {
    let (jobs, pods) =
        (Watch::filled(indexes(), [commit(job("n", "a"), CROWD), job("n", "b")]), Watch::filled(indexes(), []));
    let submissions = Submissions::of(&jobs, &pods);
    let woken = woken_of(&submissions);
    assert!(submissions.wait(&Key::new("n", "one"), "a") && submissions.wait(&Key::new("n", "two"), "x"));
    for pe in 0..u64::from(CROWD) {
        assert_eq!(*woken.lock(), BTreeMap::new(), "{pe}");
        pods.insert(pod("n", "a", pe, "Running"));
    }
    assert_eq!(*woken.lock(), [("n/one".to_owned(), Woken::OthersRun)].into());
    assert_eq!(submissions.own_until("n", "a", at(1_100)), None);
}
