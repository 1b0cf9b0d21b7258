//! Which calls get a worker, when the worker is free again, and which calls are refused.

use super::*;
use crate::server::class::PerClass;
use std::time::Duration;
use tokio::task::JoinHandle;
use tonic::Code;
use tonic_types::StatusExt;

/// Submits jobs of these names, all at once.
async fn crowd(replica: &Replica, names: &[&'static str]) -> Vec<JoinHandle<Result<pb::Plan, Status>>> {
    let client = replica.client().await;
    names
        .iter()
        .map(|name| {
            let (mut client, name) = (client.clone(), *name);
            tokio::spawn(async move { submit(&mut client, name, "1 1").await })
        })
        .collect()
}

async fn waiting(replica: &Replica, expected: PerClass<usize>) {
    eventually("the queue", || replica.server.calls.admission.waiting() == expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_does_not_wait_for_submissions() {
    let replica = replica(Settings { workers: count(2), ..settings() }).await;
    let mut client = replica.client().await;
    let layout = submit(&mut client, "job", "1 1").await.unwrap().layout;
    replica.gate.hold("submit");
    let crowd = crowd(&replica, &["a", "b", "c", "d"]).await;
    waiting(&replica, PerClass { submit: 3, ..Default::default() }).await;

    let resized = soon(client.resize(lean_resize("job", "1 1", &layout, 2))).await.unwrap();
    let layout = resized.into_inner().plan.unwrap().layout;
    texts(&mut client, render_request("job", "1 1", &layout, &[0])).await.unwrap();
    assert_eq!(replica.server.calls.admission.waiting().submit, 3);

    replica.gate.release("submit");
    for submission in crowd {
        soon(submission).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_does_not_wait_for_those_that_take_long() {
    let replica = replica(Settings { workers: count(2), ..settings() }).await;
    let mut client = replica.client().await;
    let mut layouts = Vec::new();
    for job in ["one", "two", "small", "smaller"] {
        layouts.push((job, submit(&mut client, job, "1 1").await.unwrap().layout));
    }
    let small = layouts.split_off(2);
    replica.gate.hold("resize one");
    replica.gate.hold("resize two");
    let mut long = Vec::new();
    for (job, layout) in layouts {
        let mut client = client.clone();
        long.push(tokio::spawn(async move { client.resize(lean_resize(job, "1 1", &layout, 2)).await.map(drop) }));
        replica.begun(&format!("resize {job}")).await;
    }
    // As many as there are workers.
    for (job, layout) in small {
        soon(client.resize(lean_resize(job, "1 1", &layout, 2))).await.unwrap();
    }
    // Nobody has ended for that.
    assert!(long.iter().all(|resize| !resize.is_finished()) && replica.gate.ended_early().is_empty());
    replica.gate.release("resize one");
    replica.gate.release("resize two");
    for resize in long {
        soon(resize).await.unwrap().unwrap();
    }
    replica.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_says_how_long_it_was_worked_on_without_the_time_in_which_others_were() {
    let replica = replica(Settings { workers: count(1), ..settings() }).await;
    replica.gate.hold("submit");
    let call = async |name: &'static str| {
        let mut client = replica.client().await;
        let call = async move { client.submit(submit_request(name, "1 1")).await.unwrap() };
        let begun = Instant::now();
        let answer = tokio::spawn(soon(call));
        (answer, begun)
    };
    let (first, _) = call("first").await;
    replica.begun("submit first").await;
    let (second, begun) = call("second").await;
    waiting(&replica, PerClass { submit: 1, ..Default::default() }).await;
    // While the second one waits, the first one is worked on.
    let from = Instant::now();
    eventually("some time has passed", || from.elapsed() >= Duration::from_millis(20)).await;
    let held = from.elapsed();
    replica.gate.release("submit");
    let worked = |answer: &tonic::Response<pb::SubmitResponse>| {
        let told = answer.metadata().get(streams_proto::fusion::WORKED).unwrap();
        Duration::from_millis(told.to_str().unwrap().parse().unwrap())
    };
    let moment = Duration::from_millis(1);
    assert!(worked(&first.await.unwrap()) + moment >= held);
    let answer = second.await.unwrap();
    assert!(worked(&answer) + held <= begun.elapsed() + moment, "{answer:?}");
}

/// A replica with one worker, which works on the submission `long` until the test releases it, and the layout of a job.
async fn with_a_long_submission(settings: Settings) -> (Replica, Client, Bytes, JoinHandle<Result<pb::Plan, Status>>) {
    let replica = replica(Settings { workers: count(1), ..settings }).await;
    let mut client = replica.client().await;
    let layout = submit(&mut client, "job", "1 1").await.unwrap().layout;
    replica.gate.hold("submit");
    let long = crowd(&replica, &["long"]).await.remove(0);
    replica.begun("submit long").await;
    (replica, client, layout, long)
}

#[tokio::test(flavor = "multi_thread")]
async fn on_one_worker_a_submission_stands_aside_for_resizes_and_renderings() {
    let (replica, mut client, layout, long) = with_a_long_submission(settings()).await;
    let crowd = crowd(&replica, &["a", "b"]).await;
    waiting(&replica, PerClass { submit: 2, ..Default::default() }).await;

    let resized = soon(client.resize(lean_resize("job", "1 1", &layout, 2))).await.unwrap();
    let layout = resized.into_inner().plan.unwrap().layout;
    texts(&mut client, render_request("job", "1 1", &layout, &[0])).await.unwrap();
    // It has its worker again, and those who came after it have not begun.
    let working = PerClass { submit: 1, ..Default::default() };
    eventually("the worker is back", || replica.server.calls.admission.working() == working).await;
    assert_eq!(replica.server.calls.admission.waiting().submit, 2);

    replica.gate.release("submit");
    soon(long).await.unwrap().unwrap();
    for submission in crowd {
        soon(submission).await.unwrap().unwrap();
    }
    let (_, metrics) = replica.page("/metrics").await;
    assert!(metrics.contains(r#"fusion_stage_duration_seconds_count{stage="aside"}"#), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_stands_aside_too() {
    let replica = replica(Settings { workers: count(1), ..settings() }).await;
    let mut client = replica.client().await;
    let layout = submit(&mut client, "job", "1 1").await.unwrap().layout;
    replica.gate.hold("explain");
    let dry_run = {
        let mut client = client.clone();
        let what = pb::explain_request::What::Submit(submit_request("long", "1 1"));
        tokio::spawn(async move { client.explain(pb::ExplainRequest { what: Some(what) }).await })
    };
    replica.begun("explain long").await;
    soon(client.resize(lean_resize("job", "1 1", &layout, 2))).await.unwrap();
    replica.gate.release("explain");
    soon(dry_run).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stands_aside_keeps_its_memory_and_its_deadline() {
    let settings = Settings { longest_call: Duration::from_secs(10), ..settings() };
    let (replica, client, layout, long) = with_a_long_submission(settings).await;
    replica.gate.hold("resize");
    let memory = replica.server.calls.memory.taken().0;
    assert!(memory > 0);
    let resize = {
        let mut client = client.clone();
        tokio::spawn(async move { client.resize(lean_resize("job", "1 1", &layout, 2)).await.map(drop) })
    };
    replica.begun("resize job").await;
    assert!(replica.server.calls.admission.has_aside());
    assert!(replica.server.calls.memory.taken().0 > memory);
    // The resize came later, so it is worked on while the deadline of the submission passes.
    let status = soon(long).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    eventually("nobody stands aside", || !replica.server.calls.admission.has_aside()).await;
    eventually("it has ended", || replica.gate.ended_early().iter().any(|step| step == "submit long")).await;
    replica.gate.release("resize");
    let _ = soon(resize).await.unwrap();
    replica.idle().await;
    eventually("all memory was given back", || replica.server.calls.memory.taken().0 == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_away_while_standing_aside_does_not_come_back() {
    let (replica, client, layout, long) = with_a_long_submission(settings()).await;
    replica.gate.hold("resize");
    let resize = {
        let mut client = client.clone();
        tokio::spawn(async move { client.resize(lean_resize("job", "1 1", &layout, 2)).await.map(drop) })
    };
    replica.begun("resize job").await;
    let others = crowd(&replica, &["next"]).await;
    waiting(&replica, PerClass { submit: 1, ..Default::default() }).await;
    long.abort();
    eventually("nobody stands aside", || !replica.server.calls.admission.has_aside()).await;
    eventually("it has ended", || replica.gate.ended_early() == ["submit long"]).await;
    replica.gate.release("resize");
    soon(resize).await.unwrap().unwrap();
    // The worker goes to who waits.
    replica.begun("submit next").await;
    replica.gate.release("submit");
    for submission in others {
        soon(submission).await.unwrap().unwrap();
    }
    replica.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_the_work() {
    let replica = replica(Settings { workers: count(1), longest_call: Duration::from_secs(1), ..settings() }).await;
    replica.gate.hold("submit");
    let mut client = replica.client().await;
    // On a machine that does much else, the time may be over before the work begins.
    while replica.gate.begun().is_empty() {
        let status = submit(&mut client, "a", "1 1").await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    }
    eventually("it has ended", || replica.gate.ended_early() == ["submit a"]).await;
    replica.idle().await;
    replica.gate.release("submit");
    sooner_or_later(async || submit(&mut client, "b", "1 1").await.map(drop)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_callers_deadline_counts_if_it_is_sooner() {
    let replica = replica(Settings { workers: count(1), ..settings() }).await;
    replica.gate.hold("submit");
    let mut client = replica.client().await;
    let mut request = tonic::Request::new(submit_request("a", "1 1"));
    request.set_timeout(Duration::from_millis(300));
    let status = soon(client.submit(request)).await.unwrap_err();
    // Whichever of the two timers the caller heard of first.
    assert!([Code::DeadlineExceeded, Code::Cancelled].contains(&status.code()), "{status}");
    replica.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expired_while_it_waited_is_never_begun() {
    let replica = replica(Settings { workers: count(1), ..settings() }).await;
    replica.gate.hold("submit");
    let first = crowd(&replica, &["first"]).await;
    replica.begun("submit first").await;
    let mut timeout = Duration::from_millis(100);
    let waits = || replica.server.calls.admission.waiting().submit == 1;
    loop {
        let mut request = tonic::Request::new(submit_request("late", "1 1"));
        request.set_timeout(timeout);
        let mut client = replica.client().await;
        let late = tokio::spawn(async move { client.submit(request).await.map(drop) });
        eventually("it waits, or its time is over", || waits() || late.is_finished()).await;
        let has_waited = waits();
        soon(late).await.unwrap().unwrap_err();
        if has_waited {
            break;
        }
        timeout *= 2;
    }
    waiting(&replica, PerClass::default()).await;
    replica.gate.release("submit");
    for submission in first {
        soon(submission).await.unwrap().unwrap();
    }
    assert!(!replica.gate.begun().contains(&"submit late".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_goes_away_frees_the_worker() {
    let replica = replica(Settings { workers: count(1), ..settings() }).await;
    replica.gate.hold("submit");
    let gone = crowd(&replica, &["gone"]).await;
    replica.begun("submit gone").await;
    gone.iter().for_each(JoinHandle::abort);
    replica.idle().await;
    assert_eq!(replica.gate.ended_early(), ["submit gone"]);
    eventually("the call is counted", || replica.server.calls.in_flight.is_empty()).await;
    let (_, metrics) = replica.page("/metrics").await;
    assert!(metrics.contains(r#"fusion_calls_total{method="Submit",code="CANCELLED"} 1"#), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rendering_stops_when_nobody_reads() {
    let replica = replica(Settings { workers: count(1), ..settings() }).await;
    let mut client = replica.client().await;
    let adl = "50 1000000";
    let layout = submit(&mut client, "job", adl).await.unwrap().layout;
    let all: Vec<u64> = (0..50).collect();
    let mut stream = soon(client.render(render_request("job", adl, &layout, &all))).await.unwrap().into_inner();
    soon(stream.message()).await.unwrap().unwrap();
    // A reader who does not read holds no worker.
    submit(&mut client, "other", "1 1").await.unwrap();
    drop(stream);
    replica.idle().await;
    eventually("the call has ended", || replica.server.calls.in_flight.is_empty()).await;
    let rendered = replica.gate.begun().iter().filter(|step| step.starts_with("render")).count();
    assert!(rendered < 50, "rendered all {rendered}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_rendering_asks_for_is_looked_up_by_a_worker() {
    let replica = replica(Settings { workers: count(1), ..settings() }).await;
    let mut client = replica.client().await;
    let layout = submit(&mut client, "job", "2 10").await.unwrap().layout;
    replica.gate.hold("resize");
    let resize = {
        let (mut client, layout) = (client.clone(), layout.clone());
        tokio::spawn(async move { client.resize(lean_resize("job", "2 10", &layout, 2)).await.map(drop) })
    };
    replica.begun("resize job").await;
    let request = render_request("job", "2 10", &layout, &[0, 2]);
    let unknown = tokio::spawn(async move { texts(&mut client, request).await });
    waiting(&replica, PerClass { render: 1, ..Default::default() }).await;
    replica.gate.release("resize");
    soon(resize).await.unwrap().unwrap();
    let status = soon(unknown).await.unwrap().unwrap_err();
    assert_eq!(status.get_details_bad_request().unwrap().field_violations[0].field, "pe_ids[1]", "{status}");
    // Nothing was rendered before.
    assert!(!replica.gate.begun().iter().any(|step| step.starts_with("render")));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_slowly_holds_no_worker() {
    use pb::render_response::Part;
    let replica = replica(Settings { workers: count(1), ..settings() }).await;
    let mut client = replica.client().await;
    // One text that is larger than what may wait in memory, so that rendering waits for its reader.
    let adl = "1 20000000";
    let layout = submit(&mut client, "job", adl).await.unwrap().layout;
    let url = format!("http://{}", replica.server.address);
    let endpoint = tonic::transport::Endpoint::from_shared(url).unwrap();
    let channel = endpoint.initial_stream_window_size(64 << 10).connect().await.unwrap();
    let mut slow = Client::new(channel).max_decoding_message_size(64 << 20);
    let mut stream = soon(slow.render(render_request("job", adl, &layout, &[0]))).await.unwrap().into_inner();
    let mut bytes = 0;
    for number in 0_usize.. {
        let Some(message) = soon(stream.message()).await.unwrap() else { break };
        if let Some(Part::Chunk(chunk)) = message.part {
            bytes += chunk.len();
        }
        if [1, 20, 40].contains(&number) {
            replica.idle().await;
            soon(client.resize(lean_resize("job", adl, &layout, 2))).await.unwrap();
        }
    }
    assert_eq!(bytes, 20_000_000);
    replica.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_past_its_deadline_says_so() {
    let replica = replica(Settings { workers: count(1), longest_call: Duration::from_secs(1), ..settings() }).await;
    let mut client = replica.client().await;
    let mut layout = Bytes::new();
    sooner_or_later(async || submit(&mut client, "job", "2 1000").await.map(|plan| layout = plan.layout)).await;
    replica.gate.hold("render");
    let status = texts(&mut client, render_request("job", "2 1000", &layout, &[0, 1])).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    replica.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_house_says_when_to_come_again() {
    let replica = replica(Settings { workers: count(1), max_submits: count(2), ..settings() }).await;
    let mut client = replica.client().await;
    let layout = submit(&mut client, "job", "1 1").await.unwrap().layout;
    eventually("all places are free", || replica.server.calls.in_flight.is_empty()).await;
    replica.gate.hold("submit");
    let crowd = crowd(&replica, &["a", "b"]).await;
    waiting(&replica, PerClass { submit: 1, ..Default::default() }).await;

    let status = submit(&mut client, "c", "1 1").await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.get_details_error_info().unwrap().reason, "OVERLOADED");
    let delay = status.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert!(delay >= Duration::from_millis(100) && delay <= Duration::from_secs(30), "{delay:?}");
    // Resizes have places of their own.
    soon(client.resize(lean_resize("job", "1 1", &layout, 2))).await.unwrap();

    replica.gate.release("submit");
    for submission in crowd {
        soon(submission).await.unwrap().unwrap();
    }
    eventually("all places are free", || replica.server.calls.in_flight.is_empty()).await;
    submit(&mut client, "c", "1 1").await.unwrap();
}
