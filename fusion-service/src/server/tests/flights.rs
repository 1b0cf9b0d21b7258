//! Calls that want the same at the same time: what is computed once, for whom, and what becomes of it when one of them
//! leaves.

use super::*;
use crate::server::class::{CallClass, PerClass};
use crate::server::memory::SMALL;
use std::collections::BTreeMap;
use tokio::task::JoinHandle;
use tonic::Code;

type Submitted = JoinHandle<Result<pb::Plan, Status>>;

/// A submission, begun in a task of its own.
async fn begin(replica: &Replica, job: &str, adl: &str) -> Submitted {
    let (mut client, job, adl) = (replica.client().await, job.to_owned(), adl.to_owned());
    tokio::spawn(async move { submit(&mut client, &job, &adl).await })
}

/// A resize of `job`, begun in a task of its own.
async fn begin_resize(replica: &Replica, layout: &Bytes, width: i64) -> JoinHandle<Result<(), Status>> {
    let (mut client, layout) = (replica.client().await, layout.clone());
    tokio::spawn(async move { soon(client.resize(full_resize("job", "2 10", &layout, width))).await.map(drop) })
}

/// So many calls wait, or have waited, for a result of this kind that another one computes.
async fn riding(replica: &Replica, kind: &'static str, expected: u64) {
    eventually(kind, || replica.server.calls.metrics.rides(kind) == expected).await;
}

/// How often each step was begun.
fn steps(replica: &Replica) -> BTreeMap<String, usize> {
    let mut steps = BTreeMap::new();
    for step in replica.gate.begun() {
        *steps.entry(step).or_default() += 1;
    }
    steps
}

/// The same submission, three times; the first one has begun to compile.
async fn three(replica: &Replica) -> [Submitted; 3] {
    replica.gate.hold("submit");
    let first = begin(replica, "job", "3 10").await;
    replica.begun("submit job").await;
    let others = [begin(replica, "job", "3 10").await, begin(replica, "job", "3 10").await];
    riding(replica, "submit", 2).await;
    let [second, third] = others;
    [first, second, third]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_submission_is_compiled_once() {
    let replica = replica(Settings { workers: count(4), ..settings() }).await;
    let calls = three(&replica).await;
    // Those who wait hold no worker.
    let admission = &replica.server.calls.admission;
    assert_eq!(admission.working(), PerClass { submit: 1, ..Default::default() });
    assert_eq!(admission.waiting(), PerClass::default());
    replica.gate.release("submit");
    let mut plans = Vec::new();
    for call in calls {
        plans.push(soon(call).await.unwrap().unwrap());
    }
    assert_eq!(steps(&replica), [("parse ".to_owned(), 1), ("submit job".to_owned(), 1)].into());
    let (_, metrics) = replica.page("/metrics").await;
    assert!(metrics.contains(r#"fusion_rides_total{of="submit"} 2"#), "{metrics}");
    assert!(metrics.contains(r#"fusion_rides_total{of="resize"} 0"#), "{metrics}");
    assert!(metrics.contains(r#"fusion_stage_duration_seconds_count{stage="ride"} 2"#), "{metrics}");
    // What a replica answers to one caller is the same.
    let alone = super::replica(settings()).await;
    plans.push(submit(&mut alone.client().await, "job", "3 10").await.unwrap());
    assert!(plans.windows(2).all(|pair| pair[0] == pair[1]));
    eventually("all memory was given back", || replica.server.calls.memory.taken().0 == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_caller_may_leave() {
    let replica = replica(settings()).await;
    let [first, second, third] = three(&replica).await;
    first.abort();
    eventually("it has left", || replica.server.calls.in_flight.len() == 2).await;
    replica.gate.release("submit");
    soon(second).await.unwrap().unwrap();
    soon(third).await.unwrap().unwrap();
    assert_eq!((steps(&replica)["submit job"], replica.gate.ended_early()), (1, Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_goes_on_when_all_have_left() {
    let replica = replica(settings()).await;
    for call in three(&replica).await {
        call.abort();
    }
    replica.idle().await;
    assert_eq!(replica.gate.ended_early(), ["submit job"]);
    eventually("all memory was given back", || replica.server.calls.memory.taken().0 == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_rides_along_keeps_its_deadline() {
    let replica = replica(settings()).await;
    let calls = three(&replica).await;
    let mut client = replica.client().await;
    // A machine that does much else may take longer to see that the request is the same.
    let mut timeout = Duration::from_millis(100);
    while replica.server.calls.metrics.rides("submit") < 3 {
        timeout *= 2;
        let mut request = tonic::Request::new(submit_request("job", "3 10"));
        request.set_timeout(timeout);
        let status = soon(client.submit(request)).await.unwrap_err();
        // Whichever of the two timers the caller heard of first.
        assert!([Code::DeadlineExceeded, Code::Cancelled].contains(&status.code()), "{status}");
    }
    replica.gate.release("submit");
    for call in calls {
        soon(call).await.unwrap().unwrap();
    }
    assert_eq!(replica.gate.ended_early(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_everybodys_and_a_panic_is_not() {
    for (adl, code, parsed) in [("nonsense", Code::InvalidArgument, 1), ("panic", Code::Internal, 3)] {
        let replica = replica(Settings { workers: count(4), ..settings() }).await;
        replica.gate.hold("parse");
        let first = begin(&replica, "job", adl).await;
        replica.begun("parse ").await;
        let calls = [first, begin(&replica, "job", adl).await, begin(&replica, "job", adl).await];
        riding(&replica, "submit", 2).await;
        replica.gate.release("parse");
        for call in calls {
            assert_eq!(soon(call).await.unwrap().unwrap_err().code(), code, "{adl}");
        }
        assert_eq!(steps(&replica)["parse "], parsed, "{adl}");
        replica.idle().await;
        submit(&mut replica.client().await, "job", "1 1").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_met_a_panic_does_not_ride_into_it_again() {
    let replica = replica(Settings { workers: count(4), ..settings() }).await;
    let resizes = 6;
    replica.gate.hold("parse");
    let layout = Bytes::from_static(b"layout");
    let mut calls = Vec::new();
    for number in 0..resizes {
        let (mut client, layout) = (replica.client().await, layout.clone());
        let call = async move { soon(client.resize(full_resize("job", "panic", &layout, 3))).await.map(drop) };
        calls.push(tokio::spawn(call));
        if number == 0 {
            replica.begun("parse ").await;
        }
    }
    riding(&replica, "resize", resizes - 1).await;
    replica.gate.release("parse");
    for call in calls {
        assert_eq!(soon(call).await.unwrap().unwrap_err().code(), Code::Internal);
    }
    // Each has met its own panic, after one that it shared.
    assert_eq!(steps(&replica), [("parse ".to_owned(), usize::try_from(resizes).unwrap())].into());
    let rides = ["resize", "job", "application"].map(|kind| replica.server.calls.metrics.rides(kind));
    assert_eq!(rides, [resizes - 1, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_is_parsed_once_for_all_its_jobs() {
    let replica = replica(Settings { workers: count(4), ..settings() }).await;
    replica.gate.hold("parse");
    let mut calls = vec![begin(&replica, "a", "1 1").await];
    replica.begun("parse ").await;
    for job in ["b", "c", "d"] {
        calls.push(begin(&replica, job, "1 1").await);
    }
    riding(&replica, "application", 3).await;
    replica.gate.release("parse");
    for call in calls {
        soon(call).await.unwrap().unwrap();
    }
    let steps = steps(&replica);
    assert_eq!(steps["parse "], 1);
    assert!(["a", "b", "c", "d"].iter().all(|job| steps[&format!("submit {job}")] == 1), "{steps:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_restored_once_for_all_who_need_it() {
    let layout = submit(&mut replica(settings()).await.client().await, "job", "2 10").await.unwrap().layout;
    let replica = replica(Settings { workers: count(4), ..settings() }).await;
    replica.gate.hold("restore");
    let first = begin_resize(&replica, &layout, 3).await;
    replica.begun("restore job").await;
    // Another width, a rendering and a dry run.
    let second = begin_resize(&replica, &layout, 4).await;
    let rendering = {
        let (mut client, layout) = (replica.client().await, layout.clone());
        tokio::spawn(async move { texts(&mut client, render_request("job", "2 10", &layout, &[0, 1])).await.map(drop) })
    };
    let dry_run = {
        let (mut client, layout) = (replica.client().await, layout.clone());
        let what = Some(pb::plan_request::What::Resize(full_resize("job", "2 10", &layout, 5)));
        let request = pb::PlanRequest { what, include_plan: true };
        tokio::spawn(async move { soon(client.plan(request)).await.map(drop) })
    };
    riding(&replica, "job", 3).await;
    replica.gate.release("restore");
    for call in [first, second, rendering, dry_run] {
        soon(call).await.unwrap().unwrap();
    }
    let steps = steps(&replica);
    assert_eq!((steps["parse "], steps["restore job"], steps["resize job"]), (1, 1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_for_which_there_is_no_memory_is_restored_once_for_all_who_need_it() {
    let settings = Settings { memory_bytes: 16 * SMALL, cache_bytes: 2 * SMALL, workers: count(4), ..settings() };
    let replica = replica(settings).await;
    replica.gate.weigh(9 * SMALL);
    let others = replica.server.calls.memory.share(CallClass::Resize);
    others.take(8 * SMALL).await.unwrap();
    replica.gate.hold("restore");
    let layout = Bytes::from_static(b"layout of job");
    let first = begin_resize(&replica, &layout, 3).await;
    replica.begun("restore job").await;
    // Exactly the same, another width, and a rendering.
    let same = begin_resize(&replica, &layout, 3).await;
    let wider = begin_resize(&replica, &layout, 4).await;
    let rendering = {
        let (mut client, layout) = (replica.client().await, layout.clone());
        tokio::spawn(async move { texts(&mut client, render_request("job", "2 10", &layout, &[0, 1])).await.map(drop) })
    };
    riding(&replica, "resize", 1).await;
    riding(&replica, "job", 2).await;
    replica.gate.release("restore");
    for call in [first, same, wider, rendering] {
        assert_eq!(soon(call).await.unwrap().unwrap_err().code(), Code::ResourceExhausted);
    }
    assert_eq!(steps(&replica)["restore job"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_does_not_wait_for_what_a_dry_run_makes() {
    let layout = submit(&mut replica(settings()).await.client().await, "job", "2 10").await.unwrap().layout;
    let replica = replica(Settings { workers: count(2), ..settings() }).await;
    replica.gate.hold("restore");
    let dry_run = {
        let (mut client, layout) = (replica.client().await, layout.clone());
        let what = Some(pb::plan_request::What::Resize(full_resize("job", "2 10", &layout, 5)));
        tokio::spawn(async move { soon(client.plan(pb::PlanRequest { what, include_plan: false })).await.map(drop) })
    };
    replica.begun("restore job").await;
    let resize = begin_resize(&replica, &layout, 3).await;
    let both = PerClass { resize: 1, dry_run: 1, ..Default::default() };
    eventually("it restores by itself", || replica.server.calls.admission.working() == both).await;
    replica.gate.release("restore");
    soon(resize).await.unwrap().unwrap();
    soon(dry_run).await.unwrap().unwrap();
    assert_eq!(replica.server.calls.metrics.rides("job"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_needs_its_memory_once_however_many_share_it() {
    let replica = replica(Settings { memory_bytes: 2 * SMALL, workers: count(4), ..settings() }).await;
    replica.gate.hold("submit");
    // About two megabytes of plan.
    let adl = "25000 1";
    let first = begin(&replica, "job", adl).await;
    replica.begun("submit job").await;
    let mut calls = vec![first];
    for _ in 0..7 {
        calls.push(begin(&replica, "job", adl).await);
    }
    riding(&replica, "submit", 7).await;
    replica.gate.release("submit");
    for call in calls {
        assert_eq!(soon(call).await.unwrap().unwrap().processing_elements.len(), 25_000);
    }
    assert_eq!(steps(&replica)["submit job"], 1);
    eventually("all memory was given back", || replica.server.calls.memory.taken().0 == 0).await;
    let (_, most) = replica.server.calls.memory.taken();
    assert!(most > SMALL / 8 && most < SMALL / 2, "{most}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_is_compared_with_its_digest_although_another_call_has_it() {
    let replica = replica(Settings { workers: count(1), ..settings() }).await;
    let calls = three(&replica).await;
    let mut request = submit_request("job", "3 10");
    request.compilation.as_mut().unwrap().adl.as_mut().unwrap().content = Some(Bytes::from_static(b"something else"));
    let status = soon(replica.client().await.submit(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    replica.gate.release("submit");
    for call in calls {
        soon(call).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_rides_along_hears_that_the_replica_goes_away() {
    let replica = replica(settings()).await;
    let calls = three(&replica).await;
    let gate = Arc::clone(&replica.gate);
    let stopping = replica.server.stop(Duration::ZERO, Duration::from_millis(50));
    let ended = async {
        for call in calls {
            assert_eq!(soon(call).await.unwrap().unwrap_err().code(), Code::Unavailable);
        }
    };
    tokio::join!(soon(stopping), ended);
    eventually("the work has ended", || gate.ended_early() == ["submit job"]).await;
}
