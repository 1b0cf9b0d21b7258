//! What pods were answered that asked for their bundles, as the statuses of PEs have it (rule repository-11).

use super::objects::{element, job, jobs};
use super::{Cluster, NEIGHBOUR, PE, STRANGER, TOOL};
use crate::broker::Boards;
use crate::bundles::BundleError;
use crate::bundles::repository::Pods as _;
use crate::consistent_regions::ConsistentRegions;
use crate::controllers::tests::LateMirrors;
use crate::mirrors::Mirrors;
use crate::pe_api::{Callers, PeApi};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use streams_api::{Connectivity, Job, PePhase, ProcessingElement, ReportedConnectivity, UnavailableBundle, names};
use streams_kubernetes::Key;
use streams_kubernetes::leadership::Term;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes_fake::Server;
use tokio::time::{sleep, timeout};

const REPLACED: &str = "demo.sab was replaced: the job was submitted with the bundle 12 (SHA-256), now it is 34";

impl Cluster {
    /// The pod with this address has asked for its bundle; it cannot be had for this reason, or is given.
    fn is_answered(&self, from: &str, unavailable: Option<&str>) {
        let error = unavailable.map(|why| BundleError::transient("BundleUnavailable", why));
        self.api.answered(from.parse().unwrap(), error.as_ref().map_or(Ok(()), Err));
    }

    /// The same once a second.
    async fn is_answered_for(&mut self, seconds: u64, from: &str, unavailable: Option<&str>) {
        for _ in 0..seconds {
            self.is_answered(from, unavailable);
            self.passes(1).await;
        }
    }

    async fn passes(&mut self, seconds: u64) {
        for _ in 0..20 * seconds {
            sleep(Duration::from_millis(50)).await;
            self.mirrors.deliver_all();
        }
    }

    /// What the API server has of a PE.
    fn unavailable(&self, pe: &str) -> Option<UnavailableBundle> {
        let pe = self.server.get::<ProcessingElement>(&Key::new("n", pe)).unwrap();
        pe.status.unwrap_or_default().bundle_unavailable.map(|unavailable| *unavailable)
    }

    fn message(&self, pe: &str) -> Option<String> {
        self.unavailable(pe).map(|unavailable| unavailable.message)
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_faster_than_the_news_of_its_address_is_waited_for() {
    let mut cluster = Cluster::with(jobs);
    let pod = Key::new("n", "srcjob-1-x");
    cluster.server.edit::<Pod>(&pod, |pod| pod.status.as_mut().unwrap().pod_ip = Some(TOOL.to_owned()));
    let api = cluster.api.clone();
    let mut known = Box::pin(api.known(TOOL.parse().unwrap()));
    assert!(timeout(Duration::from_secs(30), &mut known).await.is_err(), "the mirror does not show it yet");
    cluster.mirrors.deliver_all();
    timeout(Duration::from_millis(1), known).await.unwrap();
    assert!(cluster.api.job_at(TOOL.parse().unwrap()).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_of_no_other_job_of_the_name_and_waits_until_its_own_is_known() {
    type Edit = fn(&mut ProcessingElement);
    // The PE of another job than the mirror of jobs shows, one that its job has left behind, or is about to.
    let table: [(&str, Edit, bool); 3] = [
        ("a later job", |pe| pe.metadata.owner_references.as_mut().unwrap()[0].uid = "later".to_owned(), false),
        ("left behind by an earlier job", |pe| (pe.metadata.owner_references, pe.spec.job_id) = (None, 7), false),
        ("while the job is deleted alone", |pe| pe.metadata.owner_references = None, true),
    ];
    let address = PE.parse().unwrap();
    for (what, edit, is_of_job) in table {
        let mut cluster = Cluster::with(jobs);
        let there = cluster.server.get::<Job>(&Key::new("n", "srcjob")).unwrap();
        cluster.server.edit::<ProcessingElement>(&Key::new("n", "srcjob-1"), edit);
        cluster.mirrors.deliver_all();
        let uid = cluster.api.job_at(address).map(|job| job.metadata.uid.clone());
        assert_eq!(uid, is_of_job.then_some(there.metadata.uid), "{what}");
        let api = cluster.api.clone();
        let known = timeout(Duration::from_secs(30), api.known(address));
        assert_eq!(known.await.is_ok(), is_of_job, "{what}");
    }
    // The mirror of jobs shows the later one as well.
    let mut cluster = Cluster::with(jobs);
    let api = cluster.api.clone();
    cluster.server.remove::<Job>(&Key::new("n", "srcjob"));
    let later = cluster.server.create(&job("srcjob", 3));
    let of_later = |pe: &mut ProcessingElement| {
        pe.metadata.owner_references.as_mut().unwrap()[0].uid = later.metadata.uid.clone().unwrap();
    };
    cluster.server.edit::<ProcessingElement>(&Key::new("n", "srcjob-1"), of_later);
    cluster.mirrors.processing_elements.deliver(usize::MAX);
    assert!(timeout(Duration::from_secs(30), api.known(address)).await.is_err());
    cluster.mirrors.deliver_all();
    timeout(Duration::from_secs(1), api.known(address)).await.unwrap();
    assert_eq!(api.job_at(address).unwrap().metadata.uid, later.metadata.uid);
}

#[tokio::test(start_paused = true)]
async fn a_pod_may_ask_by_the_name_that_it_was_told_and_by_that_of_its_pe() {
    type Edit = fn(&mut Cluster);
    let edit_pe: Edit = |cluster| {
        let name = |pe: &mut ProcessingElement| pe.spec.options.sab_name = Some("of-pe.sab".to_owned());
        cluster.server.edit::<ProcessingElement>(&Key::new("n", "srcjob-1"), name);
    };
    let edit_pod: Edit = |cluster| {
        let told = |pod: &mut Pod| {
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert(names::ANNOTATION_SAB_NAME.to_owned(), "told.sab".to_owned());
        };
        cluster.server.edit::<Pod>(&Key::new("n", "srcjob-1-x"), told);
    };
    // what is done -> the names
    let table: [(&[Edit], &[&str]); 3] =
        [(&[], &[]), (&[edit_pe], &["of-pe.sab"]), (&[edit_pe, edit_pod], &["told.sab", "of-pe.sab"])];
    for (edits, expected) in table {
        let mut cluster = Cluster::with(jobs);
        edits.iter().for_each(|edit| edit(&mut cluster));
        cluster.mirrors.deliver_all();
        assert_eq!(cluster.api.names_at(PE.parse().unwrap()), expected);
        assert!(cluster.api.names_at(TOOL.parse().unwrap()).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_known_before_the_mirrors_are_filled() {
    let metrics = Metrics::new("test");
    let mirrors = Mirrors::new(&metrics);
    let (boards, callers) = (Boards::of(&mirrors), Callers::of(&mirrors));
    let regions = ConsistentRegions::of(&mirrors, Term::endless());
    let server = Server::new();
    jobs(&server);
    let connection = server.connect();
    let (of_a_kind, shared) = (|| connection.clone(), connection.clone());
    let api = PeApi::new(of_a_kind, shared, boards, callers, regions, Arc::new(|| false), &metrics);
    let mut known = Box::pin(api.known(PE.parse().unwrap()));
    assert!(timeout(Duration::from_secs(30), &mut known).await.is_err());
    let _mirrors = LateMirrors::fill(&server, mirrors);
    timeout(Duration::from_secs(1), known).await.unwrap();
}

fn connected(launch_count: u64) -> Option<ReportedConnectivity> {
    Some(ReportedConnectivity { state: Connectivity::Full, launch_count, interruptions: 0 })
}

#[tokio::test(start_paused = true)]
async fn a_pe_says_why_it_has_not_got_its_bundle_until_it_has_with_two_writes() {
    let mut cluster = Cluster::with(jobs);
    cluster.is_answered_for(1, PE, Some(REPLACED)).await;
    assert_eq!(cluster.unavailable("srcjob-1"), Some(UnavailableBundle::new("BundleUnavailable", REPLACED)));
    assert_eq!(cluster.unavailable("srcjob-0"), None, "of this PE only");
    cluster.is_answered_for(30, PE, Some(REPLACED)).await;
    assert_eq!(cluster.connection.writes(), 1, "nothing has changed");
    // Another replica gives it.
    let mut other = cluster.another();
    other.is_answered_for(1, PE, None).await;
    assert_eq!((cluster.unavailable("srcjob-1"), other.connection.writes()), (None, 1));
    other.is_answered_for(10, PE, None).await;
    cluster.passes(10).await;
    assert_eq!((cluster.connection.writes(), other.connection.writes()), (1, 1));
    assert_eq!((cluster.api.bundle_waits.known(), other.api.bundle_waits.known()), (0, 0), "nothing is kept");
}

#[tokio::test(start_paused = true)]
async fn however_often_it_is_otherwise_a_pe_is_written_every_five_seconds_and_the_last_counts() {
    let mut cluster = Cluster::with(jobs);
    for number in 0..60 {
        let other = format!("it is {number}");
        cluster.is_answered_for(1, PE, [Some(&*other), None][number % 2]).await;
    }
    let writes = cluster.connection.writes();
    assert!((2..=13).contains(&writes), "{writes}");
    cluster.is_answered(PE, None);
    cluster.is_answered(PE, Some("the last"));
    cluster.passes(10).await;
    assert_eq!(cluster.message("srcjob-1").as_deref(), Some("the last"));
    cluster.is_answered(PE, Some("no"));
    cluster.is_answered(PE, None);
    cluster.passes(10).await;
    assert_eq!((cluster.message("srcjob-1"), cluster.api.bundle_waits.known()), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_told_to_others_than_a_pod_that_may_wait_is_not_written() {
    type Edit = fn(&mut ProcessingElement);
    let later: Edit = |pe| pe.status.as_mut().unwrap().launch_count = 3;
    let completed: Edit = |pe| pe.status.as_mut().unwrap().phase = Some(PePhase::Completed);
    let running: Edit = |pe| pe.status.as_mut().unwrap().connectivity = connected(2);
    let earlier: Edit = |pe| pe.status.as_mut().unwrap().connectivity = connected(1);
    // who was told so, what the PE has besides -> whether it is written. The pod is that of launch 2.
    let table: [(&str, &str, Edit, bool); 6] = [
        ("its pod", PE, |_| {}, true),
        ("its pod, and an earlier one was connected", PE, earlier, true),
        ("no pod", TOOL, |_| {}, false),
        ("an earlier pod", PE, later, false),
        ("a pod that is connected", PE, running, false),
        ("a pod that has completed", PE, completed, false),
    ];
    for (what, from, edit, expected) in table {
        let mut cluster = Cluster::with(jobs);
        cluster.server.edit::<ProcessingElement>(&Key::new("n", "srcjob-1"), edit);
        cluster.mirrors.deliver_all();
        cluster.is_answered_for(3, from, Some(REPLACED)).await;
        cluster.passes(10).await;
        assert_eq!(cluster.unavailable("srcjob-1").is_some(), expected, "{what}");
        assert_eq!(cluster.connection.writes(), usize::from(expected), "{what}");
        assert_eq!(cluster.api.bundle_waits.known(), 0, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_pods_that_share_an_address_nobody_knows_which_one_asks() {
    let mut cluster = Cluster::with(|server| {
        jobs(server);
        element(server, "srcjob", 2, PE);
    });
    cluster.is_answered_for(3, PE, Some(REPLACED)).await;
    cluster.passes(5).await;
    assert_eq!((cluster.connection.writes(), cluster.api.bundle_waits.known()), (0, 0));
    // Now there is one.
    cluster.server.remove::<Pod>(&Key::new("n", "srcjob-2-x"));
    cluster.mirrors.deliver_all();
    cluster.is_answered_for(3, PE, Some(REPLACED)).await;
    assert_eq!(cluster.message("srcjob-1").as_deref(), Some(REPLACED));
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_is_when_the_api_server_is_back_if_it_still_counts() {
    // seconds for which the API server refuses, answers by then -> what is written when it is back
    let table: [(u64, &[Option<&str>], Option<&str>); 4] = [
        (20, &[Some(REPLACED)], Some(REPLACED)),
        // Nobody has asked again: perhaps another replica has given it.
        (200, &[Some(REPLACED)], None),
        (20, &[Some(REPLACED), None], None),
        (20, &[None, Some(REPLACED)], Some(REPLACED)),
    ];
    for (seconds, answers, expected) in table {
        let mut cluster = Cluster::with(jobs);
        let refuses = Arc::new(AtomicBool::new(true));
        cluster.server.refuse({
            let refuses = Arc::clone(&refuses);
            move |call| {
                let refuses = call.verb.is_write() && refuses.load(Ordering::SeqCst);
                refuses.then(|| kube::core::Status::failure("etcd does not answer", "InternalError").with_code(500))
            }
        });
        for answer in answers {
            cluster.is_answered_for(1, PE, *answer).await;
        }
        cluster.passes(seconds).await;
        refuses.store(false, Ordering::SeqCst);
        cluster.passes(200).await;
        assert_eq!(cluster.message("srcjob-1").as_deref(), expected, "{seconds} {answers:?}");
        assert_eq!(cluster.api.bundle_waits.known(), 0, "{seconds} {answers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_pods_wait_all_at_once_costs_one_write_of_each_and_holds_up_no_other() {
    let address = |pe: u64| format!("10.0.1.{pe}");
    let mut cluster = Cluster::with(|server| {
        jobs(server);
        (2..40).for_each(|pe| element(server, "srcjob", pe, &address(pe)));
    });
    let slow = Duration::from_millis(400);
    cluster.connection.meanwhile(move |call| {
        let takes = if call.verb.is_write() { slow } else { Duration::ZERO };
        Box::pin(sleep(takes))
    });
    for _ in 0..20 {
        for pe in 2..40 {
            cluster.is_answered(&address(pe), Some(REPLACED));
        }
        cluster.is_answered(STRANGER, Some(REPLACED));
        cluster.is_answered(NEIGHBOUR, None);
        cluster.passes(1).await;
        if cluster.unavailable("srcjob-39").is_none() {
            assert!(cluster.connection.writes() < 40, "it is not written again");
        }
    }
    assert!((2..40).all(|pe| cluster.message(&format!("srcjob-{pe}")).as_deref() == Some(REPLACED)));
    assert_eq!(cluster.message("dstjob-0").as_deref(), Some(REPLACED));
    assert_eq!(cluster.connection.writes(), 39);
}

#[tokio::test(start_paused = true)]
async fn a_pe_that_is_gone_is_forgotten() {
    let mut cluster = Cluster::with(jobs);
    cluster.connection.meanwhile(|_| Box::pin(sleep(Duration::from_millis(100))));
    cluster.is_answered(PE, Some(REPLACED));
    cluster.server.remove::<ProcessingElement>(&Key::new("n", "srcjob-1"));
    cluster.passes(10).await;
    assert_eq!(cluster.api.bundle_waits.known(), 0);
}

/// A job that was deleted and applied again has a PE of the same name.
#[tokio::test(start_paused = true)]
async fn what_a_pod_was_told_is_not_written_into_another_pe_of_the_name() {
    let key = Key::new("n", "srcjob-1");
    // whether the mirror shows that the PE has gone before it shows the other one
    for is_shown_to_go in [true, false] {
        let mut cluster = Cluster::with(jobs);
        cluster.is_answered_for(1, PE, Some(REPLACED)).await;
        assert_eq!(cluster.message("srcjob-1").as_deref(), Some(REPLACED));
        // This waits for the end of the pause.
        cluster.is_answered(PE, Some("another reason"));
        let before = cluster.server.get::<ProcessingElement>(&key).unwrap();
        cluster.server.remove::<ProcessingElement>(&key);
        cluster.server.remove::<Pod>(&Key::new("n", "srcjob-1-x"));
        if is_shown_to_go {
            cluster.mirrors.deliver_all();
        }
        element(&cluster.server, "srcjob", 1, PE);
        cluster.mirrors.deliver_all();
        let after = cluster.server.get::<ProcessingElement>(&key).unwrap();
        assert_ne!(before.metadata.uid, after.metadata.uid);
        cluster.passes(20).await;
        assert_eq!(cluster.message("srcjob-1"), None, "{is_shown_to_go}");
        assert_eq!(cluster.api.bundle_waits.known(), 0, "{is_shown_to_go}");
        // What its own pod is told counts.
        cluster.is_answered_for(1, PE, Some(REPLACED)).await;
        assert_eq!(cluster.message("srcjob-1").as_deref(), Some(REPLACED), "{is_shown_to_go}");
    }
}
