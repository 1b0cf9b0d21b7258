//! What PEs of an earlier job of a name do to a later one: nothing.

use super::objects::{by_properties, importing, job, leave_behind, metadata, subscribed};
use super::regions::{new_region, region, stored};
use super::{Cluster, Exchange, NEIGHBOUR, SUBSCRIPTIONS, names, properties, property, send};
use axum::http::Method;
use serde_json::from_value;
use streams_api::{ConsistentRegion, Export, Import, Job, ProcessingElement};
use streams_consistent_region::{Event, Member, Progress};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes_fake::Server;

/// Job `srcjob` is deleted, and applied again with number 3. Its PEs are those of the earlier one, which it has left
/// behind, or which are yet to go.
fn made_again(server: &Server, are_left_behind: bool) -> Job {
    if are_left_behind {
        leave_behind(server);
    } else {
        server.remove::<Job>(&Key::new("n", "srcjob"));
    }
    server.create(&job("srcjob", 3))
}

/// The region of the earlier job has gone before its PEs, and the later job has made its own.
fn region_made_again(server: &Server, are_left_behind: bool) -> Job {
    let later = made_again(server, are_left_behind);
    server.remove::<ConsistentRegion>(&Key::new("n", "srcjob-cr0"));
    let mut region = new_region(server, 3, "operatorDriven");
    region.spec.trigger_operators = vec!["A.B".to_owned()];
    server.create(&region);
    later
}

#[tokio::test(start_paused = true)]
async fn a_region_takes_nothing_from_pes_of_an_earlier_job_of_the_name() {
    let reports = [
        ("pe/1/checkpoint", "500"),
        ("pe/1/blockingcheckpoint", "500"),
        ("pe/1/reset", r#"{"progress":{"seqId":"2","resetAttempt":"1"}}"#),
        ("drain", r#"{"request":{"seqId":"500","operator":"A.B"}}"#),
        ("reset", r#"{"request":{"operator":"A.B","force":"true"}}"#),
        // It is not even asked for, and no pod of the job that this replica does not know yet.
        ("pe/7/checkpoint", "500"),
    ];
    for are_left_behind in [true, false] {
        let mut cluster = Cluster::with(|server| region(server, "operatorDriven"));
        let events = stored(&cluster);
        let later = region_made_again(&cluster.server, are_left_behind);
        cluster.mirrors.deliver_all();
        for (path, body) in reports {
            let path = format!("/api/consistentregion/region/0/{path}");
            let since = tokio::time::Instant::now();
            cluster.expect(send(Method::PUT, &path, body), 403, "may say so").await;
            assert!(since.elapsed().as_millis() >= 1_500, "the runtime has given up before");
            assert!(events.lock().is_empty(), "{path}");
            assert!(cluster.regions.reports.gaps().is_empty(), "{path}: the next leader need not hear of it");
        }
        // Its own PE is heard.
        cluster.server.edit::<ProcessingElement>(&Key::new("n", "srcjob-0"), |pe| {
            (pe.metadata.owner_references, pe.spec.job_id) = (Some(vec![controlled_by(&later)]), 3);
        });
        cluster.mirrors.deliver_all();
        let path = "/api/consistentregion/region/0/pe/0/checkpoint";
        cluster.expect(Exchange { from: NEIGHBOUR, ..send(Method::PUT, path, "1") }, 204, "").await;
        let report = Event::Report(Member { pe: 0, launch: 2 }, Progress::CheckpointDone { sequence: 1 });
        assert_eq!(*events.lock(), [report]);
    }
}

/// Only the mirror of regions is behind.
#[tokio::test(start_paused = true)]
async fn a_report_about_a_region_that_is_not_shown_yet_leaves_a_gap() {
    let mut cluster = Cluster::with(|server| region(server, "operatorDriven"));
    stored(&cluster);
    let later = region_made_again(&cluster.server, false);
    cluster.server.edit::<ProcessingElement>(&Key::new("n", "srcjob-1"), |pe| {
        (pe.metadata.owner_references, pe.spec.job_id) = (Some(vec![controlled_by(&later)]), 3);
    });
    cluster.mirrors.jobs.deliver(usize::MAX);
    cluster.mirrors.processing_elements.deliver(usize::MAX);
    let report = send(Method::PUT, "/api/consistentregion/region/0/pe/1/checkpoint", "1");
    let (status, words) = cluster.answer_as_shown(report).await;
    assert_eq!((status.as_u16(), cluster.regions.reports.gaps().len()), (403, 1), "{words}");
}

#[tokio::test(start_paused = true)]
async fn a_report_that_was_begun_about_the_region_of_an_earlier_job_is_not_taken() {
    for (path, body) in [("pe/1/checkpoint", "500"), ("reset", r#"{"request":{"operator":"A.B","force":"true"}}"#)] {
        let mut cluster = Cluster::with(|server| region(server, "operatorDriven"));
        let events = stored(&cluster);
        let path = format!("/api/consistentregion/region/0/{path}");
        let remake = |cluster: &mut Cluster| {
            region_made_again(&cluster.server, false);
            cluster.mirrors.deliver_all();
        };
        let (status, words) = cluster.answer_in_parts(send(Method::PUT, &path, body), remake).await;
        assert_eq!((status.as_u16(), &*words), (404, "the region is gone"), "{path}");
        assert!(events.lock().is_empty() && cluster.regions.reports.gaps().is_empty(), "{path}");
    }
}

fn with_export_and_import(server: &Server) {
    by_properties(server);
    importing(server, "srcjob-1-10", "srcjob", 1, 10, &subscribed("a == 1"));
}

/// The export and import of port 10 of PE 1, made again for the present job `srcjob`, which has number 3.
fn ports_made_again(server: &Server) {
    let key = Key::new("n", "srcjob-1-10");
    let meta = || from_value(metadata(server, "Job", "srcjob-1-10", "srcjob")).unwrap();
    let (export, import) = (server.get::<Export>(&key).unwrap(), server.get::<Import>(&key).unwrap());
    server.remove::<Export>(&key);
    server.remove::<Import>(&key);
    let (mut export, mut import) = (Export { metadata: meta(), ..export }, Import { metadata: meta(), ..import });
    (export.spec.job_id, import.spec.job_id) = (3, 3);
    server.create(&export);
    server.create(&import);
}

#[tokio::test]
async fn a_change_by_a_pod_of_an_earlier_job_is_not_made_to_the_object_of_a_later_one() {
    let (export, import) = (format!("{SUBSCRIPTIONS}/export/10"), format!("{SUBSCRIPTIONS}/import/10"));
    let (all, one) = (format!("{export}/properties"), format!("{export}/property/prop0"));
    let (streams, filter) = (format!("{import}/streams"), format!("{import}/filter"));
    let (others, other) = (properties(&[("prop0", "x")]), property("prop0", "int64", "7"));
    let (more, listed) = (properties(&[("more", "x")]), names(&["prop0"]));
    let asked = r#"<importedStreams><propertyBasedImport subscription="b == 1"/></importedStreams>"#;
    let changes = [
        (Method::PUT, &all, &*more),
        (Method::PATCH, &all, &*others),
        (Method::DELETE, &all, &*listed),
        (Method::PATCH, &one, &*other),
        (Method::PUT, &streams, asked),
        (Method::PUT, &filter, "b == 1"),
    ];
    // The later job is there when the rest of the body comes; or before, and only the mirror of jobs does not show it.
    for shows_later_job in [true, false] {
        for (method, path, body) in &changes {
            let said = format!("{method} {path} {shows_later_job}");
            let mut cluster = Cluster::with(with_export_and_import);
            let exchange = send(method.clone(), path, body);
            let (status, words) = if shows_later_job {
                let remake = |cluster: &mut Cluster| {
                    made_again(&cluster.server, false);
                    ports_made_again(&cluster.server);
                    cluster.mirrors.deliver_all();
                };
                cluster.answer_in_parts(exchange, remake).await
            } else {
                made_again(&cluster.server, false);
                ports_made_again(&cluster.server);
                cluster.mirrors.exports.deliver(usize::MAX);
                cluster.mirrors.imports.deliver(usize::MAX);
                cluster.answer_as_shown(exchange).await
            };
            assert_eq!(status.as_u16(), 404, "{said}: {words}");
            let key = Key::new("n", "srcjob-1-10");
            let (export, import) = (cluster.server.get::<Export>(&key), cluster.server.get::<Import>(&key));
            let is_export_changed = export.unwrap().status.is_some_and(|status| status.run_time.is_some());
            let is_import_changed = import.unwrap().status.is_some_and(|status| status.run_time.is_some());
            assert!(!is_export_changed && !is_import_changed, "{said}");
            assert_eq!(cluster.connection.writes(), 0, "{said}");
        }
    }
}
