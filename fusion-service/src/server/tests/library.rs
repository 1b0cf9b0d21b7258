//! The real compiler behind real sockets.

use super::*;
use crate::server::library::Library;
use prost::Message as _;
use std::collections::BTreeMap;
use streams_compiler::error::code;
use streams_compiler::plan::COMPILER;
use streams_test_support::application::Sketch;
use tonic::Code;
use tonic_types::StatusExt;

const ADL: &str = include_str!("../../../../integration-tests/applications/sensors/demo.sensors.Sensors.adl");

async fn replica() -> Replica {
    start(&settings(), Library, Arc::default()).await
}

fn manual(pes: u64) -> pb::Compilation {
    let mode = Some(pb::fusion::Mode::Manual(pes));
    pb::Compilation { fusion: Some(pb::Fusion { mode, r#type: 0 }), ..compilation("sensors", ADL) }
}

fn blob_of(bytes: &[u8]) -> Option<pb::Blob> {
    Some(blob(bytes))
}

fn resize(compilation: &pb::Compilation, layout: &[u8], widths: &[(&str, i64)]) -> pb::ResizeRequest {
    let widths = widths.iter().map(|(region, width)| pb::RegionWidth { region: (*region).to_owned(), width: *width });
    pb::ResizeRequest {
        compilation: Some(compilation.clone()),
        layout: blob_of(layout),
        widths: widths.collect(),
        ..Default::default()
    }
}

fn render(compilation: &pb::Compilation, plan: &pb::Plan) -> pb::RenderRequest {
    let present = plan.processing_elements.iter().filter(|pe| pe.fate() != pb::Fate::Removed);
    pb::RenderRequest {
        compilation: Some(compilation.clone()),
        layout: blob_of(&plan.layout),
        compiler: plan.compiler.clone(),
        pe_ids: present.map(|pe| pe.id).collect(),
    }
}

fn fates(plan: &pb::Plan) -> BTreeMap<pb::Fate, usize> {
    let mut fates = BTreeMap::new();
    for pe in &plan.processing_elements {
        *fates.entry(pe.fate()).or_default() += 1;
    }
    fates
}

/// The plan's texts, checked against what the plan says of them.
async fn check_texts(client: &mut Client, compilation: &pb::Compilation, plan: &pb::Plan) -> Vec<(u64, Vec<u8>)> {
    let texts = texts(client, render(compilation, plan)).await.unwrap();
    for (id, text) in &texts {
        let pe = plan.processing_elements.iter().find(|pe| pe.id == *id).unwrap();
        assert_eq!((pe.size, &pe.content_id), (text.len() as u64, &hex::encode(sha2::Sha256::digest(text))));
        assert!(std::str::from_utf8(text).unwrap().contains("<augmentedPE") || text.starts_with(b"<"), "PE {id}");
    }
    texts
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_is_submitted_resized_and_rendered_by_any_replica() {
    let (one, two) = (replica().await, replica().await);
    let (mut first, mut second) = (one.client().await, two.client().await);
    let compilation = manual(4);
    let request = pb::SubmitRequest { compilation: Some(compilation.clone()) };
    let submitted = soon(first.submit(request.clone())).await.unwrap().into_inner();
    assert_eq!(submitted, soon(second.submit(request)).await.unwrap().into_inner());
    let plan = submitted.plan.unwrap();
    assert_eq!(plan.compiler, COMPILER);
    assert_eq!(plan.adl_sha256, Digest::of(ADL.as_bytes()).to_bytes());
    assert_eq!(plan.application_name, "demo.sensors::Sensors");
    assert_eq!(plan.processing_elements.len(), 4);
    let regions: Vec<_> = plan.parallel_regions.iter().map(|r| (r.name.as_str(), r.width)).collect();
    assert_eq!(regions, [("Score", 2), ("Score.Model", 2), ("Clean", 2)]);
    let here = check_texts(&mut first, &compilation, &plan).await;

    // A replica that was started later knows nothing of it, and gives the same.
    let three = replica().await;
    let mut third = three.client().await;
    assert_eq!(check_texts(&mut third, &compilation, &plan).await, here);

    let mut layout = plan.layout.clone();
    for widths in [[("Score", 4)], [("Clean", 5)], [("Score", 1)], [("Score.Model", 3)]] {
        let request = resize(&compilation, &layout, &widths);
        let fresh = replica().await;
        let resized = soon(first.resize(request.clone())).await.unwrap().into_inner();
        let elsewhere = soon(fresh.client().await.resize(request)).await.unwrap().into_inner();
        assert_eq!(resized, elsewhere, "{widths:?}");
        let plan = resized.plan.unwrap();
        let here = check_texts(&mut first, &compilation, &plan).await;
        assert_eq!(check_texts(&mut third, &compilation, &plan).await, here, "{widths:?}");
        let region = plan.parallel_regions.iter().find(|r| r.name == widths[0].0).unwrap();
        assert_eq!(i64::from(region.width), widths[0].1);
        layout = plan.layout;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn small_texts_of_what_a_resize_changes_come_with_its_answer() {
    let replica = replica().await;
    let mut client = replica.client().await;
    let compilation = compilation("sensors", ADL);
    let request = pb::SubmitRequest { compilation: Some(compilation.clone()) };
    let layout = soon(client.submit(request)).await.unwrap().into_inner().plan.unwrap().layout;
    let request = resize(&compilation, &layout, &[("Clean", 3)]);
    let without = soon(client.resize(request.clone())).await.unwrap().into_inner();
    assert!(without.texts.is_empty(), "nobody has asked for them");
    let plan = without.plan.as_ref().unwrap();
    let is_changed = |pe: &pb::ProcessingElement| matches!(pe.fate(), pb::Fate::Added | pb::Fate::Restarted);
    let changed: Vec<u64> = plan.processing_elements.iter().filter(|pe| is_changed(pe)).map(|pe| pe.id).collect();
    let mut expected = check_texts(&mut client, &compilation, plan).await;
    expected.retain(|(id, _)| changed.contains(id));
    let bytes: usize = expected.iter().map(|(_, text)| text.len()).sum();
    // bytes that the answer may have of texts -> whether they come
    for (most, comes) in [(0, false), (bytes as u64 - 1, false), (bytes as u64, true), (64 << 10, true)] {
        let request = pb::ResizeRequest { max_text_bytes: most, ..request.clone() };
        let mut answer = soon(client.resize(request)).await.unwrap().into_inner();
        let texts = std::mem::take(&mut answer.texts).into_iter().map(|text| (text.pe_id, text.content.to_vec()));
        let texts: Vec<_> = texts.collect();
        assert_eq!(texts, if comes { expected.clone() } else { Vec::new() }, "{most} of {bytes}");
        assert_eq!(answer, without, "{most}");
    }
    // An answer does not become a large one by them.
    let mut comes = Vec::new();
    for width in [3, 6, 12, 24, 200] {
        let request = resize(&compilation, &layout, &[("Clean", width)]);
        let request = pb::ResizeRequest { max_text_bytes: u64::MAX, ..request };
        let answer = soon(client.resize(request)).await.unwrap().into_inner();
        assert!(answer.texts.is_empty() || answer.encoded_len() <= 64 << 10, "{width}");
        comes.push(!answer.texts.is_empty());
    }
    assert!(comes[0] && !comes[4], "{comes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_cores_change_no_byte() {
    // Enough for all that is shared.
    let sketch = Sketch::row(&["S", "P", "Q", "T"]).parallel("P", 2100).parallel("Q", 3);
    let mut answers = Vec::new();
    for workers in [1, 2, 4] {
        let settings = Settings { workers: count(workers), ..settings() };
        let replica = start(&settings, Library, Arc::default()).await;
        let mut client = replica.client().await;
        let compilation = compilation("sketch", &sketch.adl());
        let request = pb::SubmitRequest { compilation: Some(compilation.clone()) };
        let plan = soon(client.submit(request)).await.unwrap().into_inner().plan.unwrap();
        replica.idle().await;
        let request = resize(&compilation, &plan.layout, &[("P", 2101)]);
        let resized = soon(client.resize(request)).await.unwrap().into_inner();
        let texts = check_texts(&mut client, &compilation, resized.plan.as_ref().unwrap()).await;
        answers.push((resized, texts));
        let (_, metrics) = replica.page("/metrics").await;
        let lent = format!("fusion_lent_cores_total {}", workers - 1);
        assert!(metrics.lines().any(|line| line == lent), "no '{lent}' in\n{metrics}");
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
    let restarted = fates(answers[0].0.plan.as_ref().unwrap())[&pb::Fate::Restarted];
    assert!(restarted > 300, "{restarted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_to_the_same_width_keeps_everything() {
    let replica = replica().await;
    let mut client = replica.client().await;
    let compilation = compilation("sensors", ADL);
    let request = pb::SubmitRequest { compilation: Some(compilation.clone()) };
    let plan = soon(client.submit(request)).await.unwrap().into_inner().plan.unwrap();
    assert_eq!(fates(&plan), [(pb::Fate::Added, plan.processing_elements.len())].into());
    let resized = soon(client.resize(resize(&compilation, &plan.layout, &[("Clean", 2)]))).await.unwrap().into_inner();
    let after = resized.plan.unwrap();
    assert_eq!(fates(&after), [(pb::Fate::Kept, plan.processing_elements.len())].into());
    assert_eq!((after.layout, resized.changed_operators), (plan.layout, Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_compiler_can_refuse() {
    let replica = replica().await;
    let mut client = replica.client().await;
    let compilation = manual(3);
    let request = |change: fn(&mut pb::Compilation)| {
        let mut compilation = compilation.clone();
        change(&mut compilation);
        pb::SubmitRequest { compilation: Some(compilation) }
    };
    let details = |status: Status| {
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        let info = status.get_details_error_info().unwrap();
        let of = |key: &str| info.metadata.get(key).cloned().unwrap_or_default();
        (info.reason.clone(), of("stage"), of("code"))
    };
    let rejected = |stage: &str, code: &str| ("APPLICATION_REJECTED".to_owned(), stage.to_owned(), code.to_owned());
    type Change = fn(&mut pb::Compilation);
    let cases: [(Change, &str, &str); 4] = [
        (|c| c.adl = blob_of(b"<adl"), "logical-model", code::UNEXPECTED),
        (|c| c.widths.push(pb::RegionWidth { region: "Clean".into(), width: 0 }), "topology", code::WIDTH),
        (|c| c.fusion.as_mut().unwrap().mode = Some(pb::fusion::Mode::Manual(0)), "fusion-option", ""),
        (|c| c.configuration.get_or_insert_default().tracing = Some("loud".into()), "logical-model", ""),
    ];
    for (change, stage, code) in cases {
        let status = soon(client.submit(request(change))).await.unwrap_err();
        assert_eq!(details(status), rejected(stage, code));
    }
    let layout = soon(client.submit(request(|_| {}))).await.unwrap().into_inner().plan.unwrap().layout;
    let status = soon(client.resize(resize(&compilation, &layout, &[("Nothing", 2)]))).await.unwrap_err();
    assert_eq!(details(status), rejected("transfer", code::NO_REGION));
    let status = soon(client.resize(resize(&compilation, &layout, &[("Clean", 10_001)]))).await.unwrap_err();
    assert_eq!(details(status).1, "topology");
}

#[tokio::test(flavor = "multi_thread")]
async fn layouts_are_not_trusted() {
    let replica = replica().await;
    let mut client = replica.client().await;
    let compilation = manual(3);
    let request = pb::SubmitRequest { compilation: Some(compilation.clone()) };
    let plan = soon(client.submit(request)).await.unwrap().into_inner().plan.unwrap();
    let reason = |status: &Status| status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    for position in (0..plan.layout.len()).step_by(7) {
        let mut damaged = plan.layout.to_vec();
        damaged[position] ^= 1 << (position % 8);
        match soon(client.resize(resize(&compilation, &damaged, &[("Clean", 3)]))).await {
            Ok(_) => {}
            Err(status) => {
                assert_eq!(status.code(), Code::InvalidArgument, "byte {position}: {status}");
                assert!(["LAYOUT_REJECTED", "APPLICATION_REJECTED"].contains(&reason(&status).as_str()), "{status}");
            }
        }
    }
    let other = pb::Compilation { job_name: "another".into(), ..compilation.clone() };
    let status = texts(&mut client, render(&other, &plan)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "LAYOUT_REJECTED"));
    let changed = ADL.replace("demo.sensors::Sensors", "demo.sensors::Others");
    let other = pb::Compilation { adl: blob_of(changed.as_bytes()), ..compilation };
    let status = soon(client.resize(resize(&other, &plan.layout, &[("Clean", 3)]))).await.unwrap_err();
    assert_eq!(reason(&status), "LAYOUT_REJECTED");
}
