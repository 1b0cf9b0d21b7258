//! The answers of the methods, on one replica and on several.

use super::*;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic_types::StatusExt;

fn missing(status: &Status) -> Vec<String> {
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.reason, "INPUT_MISSING");
    info.metadata["sha256"].split(',').map(str::to_owned).collect()
}

fn digest(content: &[u8]) -> String {
    Digest::of(content).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_first_and_its_texts_later() {
    let replica = replica(settings()).await;
    let mut client = replica.client().await;
    let plan = submit(&mut client, "job", "5 600000").await.unwrap();
    assert_eq!(plan.processing_elements.len(), 5);
    let order = [3, 0, 4];
    let texts = texts(&mut client, render_request("job", "5 600000", &plan.layout, &order)).await.unwrap();
    assert_eq!(texts.iter().map(|(id, _)| *id).collect::<Vec<_>>(), order);
    for (id, text) in &texts {
        assert_eq!(text.len(), 600_000);
        assert!(text.starts_with(format!("job layout of job {id}\n").as_bytes()));
    }
    // What was submitted here is known here.
    assert!(!replica.gate.begun().iter().any(|step| step.starts_with("restore")), "{:?}", replica.gate.begun());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_of_any_size_arrives_whole() {
    let replica = replica(Settings { workers: count(1), ..settings() }).await;
    let mut client = replica.client().await;
    for bytes in [0, 1, 256 << 10, (256 << 10) + 1, 20 << 20] {
        let adl = format!("2 {bytes}");
        let layout = submit(&mut client, "job", &adl).await.unwrap().layout;
        let texts = texts(&mut client, render_request("job", &adl, &layout, &[1, 0])).await.unwrap();
        assert_eq!(texts.iter().map(|(id, text)| (*id, text.len())).collect::<Vec<_>>(), [(1, bytes), (0, bytes)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_asked_for_once() {
    let replica = replica(settings()).await;
    let mut client = replica.client().await;
    let adl = "2 10";
    let request = pb::SubmitRequest { compilation: Some(lean_compilation("a", adl)) };
    let status = soon(client.submit(request)).await.unwrap_err();
    assert_eq!(missing(&status), [digest(adl.as_bytes())]);
    let first = submit(&mut client, "a", adl).await.unwrap();
    // Another job of the same application.
    let request = pb::SubmitRequest { compilation: Some(lean_compilation("b", adl)) };
    soon(client.submit(request)).await.unwrap();
    assert_eq!(replica.gate.begun().iter().filter(|step| step.starts_with("parse")).count(), 1);

    soon(client.resize(lean_resize("a", adl, &first.layout, 2))).await.unwrap();
    let status = soon(client.resize(lean_resize("a", adl, b"layout P=7", 2))).await.unwrap_err();
    assert_eq!(missing(&status), [digest(b"layout P=7")]);
    let status = soon(client.resize(lean_resize("a", "9 9", b"layout P=7", 2))).await.unwrap_err();
    assert_eq!(missing(&status), [digest(b"9 9"), digest(b"layout P=7")]);
    // The layout is known, although it is one of another job.
    soon(client.resize(lean_resize("b", adl, &first.layout, 2))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn any_replica_can_go_on_where_another_began() {
    let (one, two) = (replica(settings()).await, replica(settings()).await);
    let (mut first, mut second) = (one.client().await, two.client().await);
    let adl = "3 1000";
    let plan = submit(&mut first, "job", adl).await.unwrap();
    assert_eq!(submit(&mut second, "other", "1 1").await.unwrap().processing_elements.len(), 1);

    let status = soon(second.resize(lean_resize("job", adl, &plan.layout, 4))).await.unwrap_err();
    assert_eq!(missing(&status).len(), 2);
    let there = soon(second.resize(full_resize("job", adl, &plan.layout, 4))).await.unwrap().into_inner();
    let here = soon(first.resize(lean_resize("job", adl, &plan.layout, 4))).await.unwrap().into_inner();
    assert_eq!(here, there);

    let layout = here.plan.unwrap().layout;
    let request = render_request("job", adl, &layout, &[0, 1, 2]);
    let here = texts(&mut first, request.clone()).await.unwrap();
    let there = texts(&mut second, request.clone()).await.unwrap();
    assert_eq!(here, there);
    // A replica that has seen nothing of it.
    let third = replica(Settings { cache_bytes: 0, ..settings() }).await;
    assert_eq!(texts(&mut third.client().await, request).await.unwrap(), here);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_depends_on_the_cache() {
    let replica = replica(settings()).await;
    let mut client = replica.client().await;
    let adl = "2 10";
    let layout = submit(&mut client, "job", adl).await.unwrap().layout;
    // Known or not, content is compared with its digest.
    let wrong = pb::Blob { sha256: Digest::of(adl.as_bytes()).to_bytes(), content: Some(Bytes::from_static(b"9 9")) };
    let mut submit = submit_request("job", adl);
    submit.compilation.as_mut().unwrap().adl = Some(wrong.clone());
    let status = soon(client.submit(submit)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let mut render = render_request("job", adl, &layout, &[0]);
    render.compilation.as_mut().unwrap().adl = Some(wrong.clone());
    let status = texts(&mut client, render).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let mut resize = full_resize("job", adl, &layout, 3);
    resize.layout = Some(pb::Blob { sha256: Digest::of(&layout).to_bytes(), content: Some(Bytes::from_static(b"x")) });
    let status = soon(client.resize(resize)).await.unwrap_err();
    let violations = status.get_details_bad_request().unwrap().field_violations;
    assert_eq!(violations[0].field, "layout.sha256");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_compressions_both_ways() {
    let replica = replica(settings()).await;
    for encoding in [CompressionEncoding::Gzip, CompressionEncoding::Zstd] {
        let mut client = replica.client().await.send_compressed(encoding).accept_compressed(encoding);
        let answer = soon(client.submit(submit_request("job", "300 10"))).await.unwrap();
        let used = answer.metadata().get("grpc-encoding").unwrap().to_str().unwrap().to_owned();
        assert_eq!(used, if encoding == CompressionEncoding::Gzip { "gzip" } else { "zstd" });
        let layout = answer.into_inner().plan.unwrap().layout;
        texts(&mut client, render_request("job", "300 10", &layout, &[299])).await.unwrap();
        // What is large is sent as it is.
        let answer = soon(client.submit(submit_request("large", "3000 10"))).await.unwrap();
        assert_eq!(answer.metadata().get("grpc-encoding"), None);
        assert_eq!(answer.into_inner().plan.unwrap().processing_elements.len(), 3000);
    }
}
