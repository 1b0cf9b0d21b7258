//! Compiled jobs that calls have while no worker works on them: in whose memory they are.

use super::memory::released;
use super::*;
use crate::server::class::{CallClass, PerClass};
use crate::server::memory::SMALL;
use tokio::task::JoinSet;
use tonic::Code;
use tonic_types::StatusExt;

/// A client with room for little that it has not read.
async fn slow_reader(replica: &Replica) -> Client {
    let url = format!("http://{}", replica.server.address);
    let endpoint = tonic::transport::Endpoint::from_shared(url).unwrap();
    let channel = endpoint.initial_stream_window_size(64 << 10).connect().await.unwrap();
    Client::new(channel).max_decoding_message_size(64 << 20)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_no_cache_has_is_in_the_memory_of_the_calls_that_have_it() {
    let (bytes, job) = (16 * SMALL, 9 * SMALL);
    let settings = Settings { memory_bytes: bytes, cache_bytes: 2 * SMALL, ..settings() };
    let replica = replica(settings).await;
    let mut client = replica.client().await;
    // A job is larger than the cache, and a text than what may wait in memory, so rendering waits for the reader.
    replica.gate.weigh(job);
    let adl = "1 20000000";
    let layout = submit(&mut client, "job", adl).await.unwrap().layout;
    released(&replica).await;
    let mut slow = slow_reader(&replica).await;
    let request = || render_request("job", adl, &layout, &[0]);
    let mut stream = soon(slow.render(request())).await.unwrap().into_inner();
    soon(stream.message()).await.unwrap().unwrap();
    assert!(replica.server.calls.memory.taken().0 >= job);
    // There is no room for another one, for whatever call.
    let rendering = render_request("other", adl, b"layout of other", &[0]);
    let status = texts(&mut client, rendering).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(status.get_details_error_info().unwrap().reason, "OVERLOADED");
    let status = soon(client.resize(full_resize("third", adl, b"layout of third", 2))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    drop(stream);
    released(&replica).await;
    soon(client.resize(full_resize("job", adl, &layout, 2))).await.unwrap();
    released(&replica).await;
    assert_eq!(texts(&mut client, request()).await.unwrap().len(), 1);
    released(&replica).await;
    // One that is larger than what a call may have was accepted, too.
    replica.gate.weigh(bytes);
    assert_eq!(texts(&mut client, request()).await.unwrap().len(), 1);
    released(&replica).await;
    soon(client.resize(full_resize("job", adl, &layout, 2))).await.unwrap();
    released(&replica).await;
    let (_, most) = replica.server.calls.memory.taken();
    assert!(most <= bytes, "{most}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_known_to_be_large_is_not_restored_without_memory_for_it() {
    let settings = Settings { memory_bytes: 16 * SMALL, cache_bytes: 2 * SMALL, workers: count(1), ..settings() };
    let replica = replica(settings).await;
    let mut client = replica.client().await;
    replica.gate.weigh(9 * SMALL);
    let layout = submit(&mut client, "job", "1 1").await.unwrap().layout;
    released(&replica).await;
    let others = replica.server.calls.memory.share(CallClass::Resize);
    others.take(8 * SMALL).await.unwrap();
    let status = soon(client.resize(full_resize("job", "1 1", &layout, 2))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.get_details_retry_info().is_some(), "{status}");
    assert!(!replica.gate.begun().contains(&"restore job".to_owned()), "{:?}", replica.gate.begun());
    drop(others);
    soon(client.resize(full_resize("job", "1 1", &layout, 2))).await.unwrap();
    released(&replica).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_waits_without_a_worker_for_a_job_that_turns_out_to_be_large() {
    let settings = Settings { memory_bytes: 16 * SMALL, cache_bytes: 2 * SMALL, workers: count(1), ..settings() };
    let replica = replica(settings).await;
    let mut client = replica.client().await;
    replica.gate.weigh(9 * SMALL);
    let others = replica.server.calls.memory.share(CallClass::Resize);
    others.take(8 * SMALL).await.unwrap();
    // Nobody has made this job before.
    let request = full_resize("job", "1 1", b"layout of job", 2);
    let resize = tokio::spawn(async move { soon(client.resize(request)).await.map(drop) });
    replica.begun("restore job").await;
    eventually("it waits without a worker", || {
        let calls = &replica.server.calls;
        let waits = calls.memory.waiting() == 1 && calls.admission.working() == PerClass::default();
        waits || resize.is_finished()
    })
    .await;
    drop(others);
    resize.await.unwrap().unwrap();
    assert_eq!(replica.gate.begun().iter().filter(|step| *step == "restore job").count(), 2);
    released(&replica).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_the_cache_drops_counts_with_the_calls_that_have_it() {
    let job = SMALL;
    // Of the cache, jobs have eleven sixteenths: room for one.
    let settings = Settings { cache_bytes: 2 * SMALL, ..settings() };
    let replica = replica(settings).await;
    let mut client = replica.client().await;
    replica.gate.weigh(job);
    let adl = "1 20000000";
    let layout = submit(&mut client, "job", adl).await.unwrap().layout;
    released(&replica).await;
    let mut slow = slow_reader(&replica).await;
    let mut stream = soon(slow.render(render_request("job", adl, &layout, &[0]))).await.unwrap().into_inner();
    soon(stream.message()).await.unwrap().unwrap();
    // The cache has it.
    assert!(replica.server.calls.memory.taken().0 < job);
    submit(&mut client, "other", "1 1").await.unwrap();
    assert!(replica.server.calls.memory.taken().0 >= job);
    drop(stream);
    released(&replica).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_have_more_than_their_memory_get_no_further_jobs() {
    const CALLS: usize = 12;
    // There is room for the texts of all calls and for one or two jobs, and in the cache for one job.
    let (bytes, cache, job) = (CALLS as u64 * SMALL, 2 * SMALL, SMALL);
    let replica = replica(Settings { memory_bytes: bytes, cache_bytes: cache, ..settings() }).await;
    replica.gate.weigh(job);
    replica.gate.hold("restore");
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let mut slow = slow_reader(&replica).await;
        let name = format!("job{number}");
        let request = render_request(&name, "1 20000000", format!("layout of {name}").as_bytes(), &[0]);
        calls.spawn(async move {
            let mut stream = slow.render(request).await?.into_inner();
            stream.message().await?;
            Ok::<_, Status>((slow, stream))
        });
    }
    eventually("all calls are there", || replica.server.calls.admission.waiting().render == CALLS - 2).await;
    replica.gate.release("restore");
    let (mut streams, mut refused) = (Vec::new(), 0);
    while let Some(call) = soon(calls.join_next()).await {
        match call.unwrap() {
            Ok(stream) => streams.push(stream),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && !streams.is_empty(), "{refused}");
    let memory = &replica.server.calls.memory;
    eventually("no more than was in the cache is above the memory", || memory.taken().0 <= bytes + cache).await;
    drop(streams);
    released(&replica).await;
}
