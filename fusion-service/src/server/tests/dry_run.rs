//! Plan and Explain: they answer as the real calls do, have no effects, and get a worker after all other calls.

use super::*;
use crate::server::class::PerClass;
use crate::server::library::Library;
use std::collections::BTreeSet;
use streams_compiler::error::code;
use tonic::Code;
use tonic_types::StatusExt;

const ADL: &str = include_str!("../../../../integration-tests/applications/sensors/demo.sensors.Sensors.adl");

fn plan_submit(compilation: pb::Compilation) -> pb::PlanRequest {
    let submit = pb::SubmitRequest { compilation: Some(compilation) };
    pb::PlanRequest { what: Some(pb::plan_request::What::Submit(submit)), include_plan: false }
}

fn plan_resize(request: pb::ResizeRequest) -> pb::PlanRequest {
    pb::PlanRequest { what: Some(pb::plan_request::What::Resize(request)), include_plan: true }
}

fn explain_submit(compilation: pb::Compilation) -> pb::ExplainRequest {
    let submit = pb::SubmitRequest { compilation: Some(compilation) };
    pb::ExplainRequest { what: Some(pb::explain_request::What::Submit(submit)) }
}

fn explain_resize(request: pb::ResizeRequest) -> pb::ExplainRequest {
    pb::ExplainRequest { what: Some(pb::explain_request::What::Resize(request)) }
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().unwrap_or_else(|| panic!("no details: {status}")).reason
}

/// A resize of `Clean`.
fn resize(compilation: pb::Compilation, layout: Option<&[u8]>, width: i64) -> pb::ResizeRequest {
    pb::ResizeRequest {
        compilation: Some(compilation),
        layout: layout.map(blob),
        widths: vec![pb::RegionWidth { region: "Clean".into(), width }],
        ..Default::default()
    }
}

/// As somebody asks who has no tool for digests.
fn by_hand(compilation: pb::Compilation) -> pb::Compilation {
    let adl = compilation.adl.map(|adl| pb::Blob { sha256: Bytes::new(), ..adl });
    pb::Compilation { adl, ..compilation }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_comes_of_a_dry_run() {
    let replica = replica(settings()).await;
    let mut client = replica.client().await;
    let summary = soon(client.plan(plan_submit(compilation("job", "3 10")))).await.unwrap().into_inner().summary;
    let summary = summary.unwrap();
    assert_eq!((summary.processing_elements, summary.aadl_bytes, summary.added), (3, 30, vec![0, 1, 2]));
    // The ADL is known now, the layout that would have come of it is not.
    let layout = b"layout of job";
    let status = soon(client.resize(lean_resize("job", "3 10", layout, 2))).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::FailedPrecondition, "INPUT_MISSING"));
    let missing = &status.get_details_error_info().unwrap().metadata["sha256"];
    assert_eq!(*missing, Digest::of(layout).to_string());

    // What a resize begins from is remembered, as by a resize.
    let answer = soon(client.plan(plan_resize(full_resize("job", "3 10", layout, 2)))).await.unwrap().into_inner();
    assert_eq!(answer.plan.unwrap().layout, "layout of job P=2");
    soon(client.resize(lean_resize("job", "3 10", layout, 2))).await.unwrap();
    assert_eq!(replica.gate.begun(), ["parse ", "submit job", "restore job", "resize job", "resize job"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_else_goes_first() {
    let replica = replica(Settings { workers: count(1), ..settings() }).await;
    let mut client = replica.client().await;
    replica.gate.hold("submit");
    let ask = |name: &'static str| {
        let mut client = client.clone();
        tokio::spawn(async move { client.plan(plan_submit(compilation(name, "1 1"))).await.map(|_| ()) })
    };
    let submitting = |name: &'static str| {
        let mut client = client.clone();
        tokio::spawn(async move { submit(&mut client, name, "1 1").await.map(|_| ()) })
    };
    let first = submitting("first");
    replica.begun("submit first").await;
    let waiting = |dry_run, submit| PerClass { dry_run, submit, ..Default::default() };
    let dry = ask("dry");
    eventually("it waits", || replica.server.calls.admission.waiting() == waiting(1, 0)).await;
    let second = submitting("second");
    eventually("both wait", || replica.server.calls.admission.waiting() == waiting(1, 1)).await;
    replica.gate.release("submit");
    for call in [first, dry, second] {
        soon(call).await.unwrap().unwrap();
    }
    let begun: Vec<String> = replica.gate.begun().into_iter().filter(|step| step.starts_with("submit")).collect();
    assert_eq!(begun, ["submit first", "submit second", "submit dry"]);
    soon(client.plan(plan_submit(compilation("again", "1 1")))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_dry_runs_keeps_nobody_out() {
    let replica = replica(Settings { workers: count(2), max_dry_runs: count(1), ..settings() }).await;
    let mut client = replica.client().await;
    replica.gate.hold("explain");
    let first = {
        let mut client = client.clone();
        tokio::spawn(async move { client.explain(explain_submit(compilation("first", "1 1"))).await })
    };
    replica.begun("explain first").await;
    let status = soon(client.plan(plan_submit(compilation("second", "1 1")))).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::ResourceExhausted, "OVERLOADED"));
    assert!(status.get_details_retry_info().unwrap().retry_delay.is_some());
    // The other worker is kept free for it.
    soon(client.resize(full_resize("job", "1 1", b"layout of job", 2))).await.unwrap();
    replica.gate.release("explain");
    assert_eq!(soon(first).await.unwrap().unwrap().into_inner().text, "nothing -> layout of first");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_a_dry_run() {
    let replica = replica(Settings { workers: count(1), longest_call: Duration::from_secs(1), ..settings() }).await;
    replica.gate.hold("explain");
    let mut client = replica.client().await;
    // On a machine that does much else, the time may be over before the work begins.
    while !replica.gate.begun().contains(&"explain a".to_owned()) {
        let status = soon(client.explain(explain_submit(compilation("a", "1 1")))).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    }
    eventually("it has ended", || replica.gate.ended_early() == ["explain a"]).await;
    replica.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_dry_runs() {
    let replica = replica(settings()).await;
    let mut client = replica.client().await;
    for (request, field) in [
        (pb::PlanRequest::default(), "what"),
        (
            plan_submit(pb::Compilation { job_name: String::new(), ..compilation("", "1 1") }),
            "submit.compilation.job_name",
        ),
        (plan_resize(pb::ResizeRequest::default()), "resize.compilation"),
    ] {
        let status = soon(client.plan(request)).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "APPLICATION_REJECTED"));
        assert_eq!(status.get_details_bad_request().unwrap().field_violations[0].field, field);
    }
    let status = soon(client.explain(explain_submit(lean_compilation("job", "7 7")))).await.unwrap_err();
    assert_eq!(reason(&status), "INPUT_MISSING");
    assert_eq!(replica.gate.begun(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_the_real_call_would() {
    let replica = start(&settings(), Library, Arc::default()).await;
    let mut client = replica.client().await;
    let job = compilation("sensors", ADL);
    let request = pb::PlanRequest { include_plan: true, ..plan_submit(by_hand(job.clone())) };
    let dry = soon(client.plan(request)).await.unwrap().into_inner();
    let real = pb::SubmitRequest { compilation: Some(job.clone()) };
    let real = soon(client.submit(real)).await.unwrap().into_inner().plan.unwrap();
    assert_eq!(dry.plan.as_ref(), Some(&real));
    let summary = dry.summary.as_ref().unwrap();
    assert_eq!(summary.application_name, "demo.sensors::Sensors");
    assert_eq!(summary.parallel_regions, real.parallel_regions);
    assert_eq!(summary.added.len() as u64, summary.processing_elements);

    // Of a running job, and of one that would be submitted now.
    let real = soon(client.resize(resize(job.clone(), Some(&real.layout), 4))).await.unwrap().into_inner();
    for layout in [Some(&*plan_layout(&dry)), None] {
        let request = resize(by_hand(job.clone()), layout, 4);
        let dry = soon(client.plan(plan_resize(request))).await.unwrap().into_inner();
        assert_eq!(dry.plan, real.plan);
        let summary = dry.summary.unwrap();
        let changed = (summary.added_operators, summary.removed_operators, summary.changed_operators);
        let operators = [&real.added_operators, &real.removed_operators, &real.changed_operators];
        assert_eq!(changed, (operators[0].len() as u64, operators[1].len() as u64, operators[2].len() as u64));
        let with = |fate| {
            let elements = real.plan.iter().flat_map(|plan| &plan.processing_elements);
            elements.filter(|pe| pe.fate() == fate).map(|pe| pe.id).collect::<Vec<u64>>()
        };
        assert_eq!(summary.kept, with(pb::Fate::Kept));
        assert_eq!(summary.restarted, with(pb::Fate::Restarted));
        assert_eq!(summary.added, with(pb::Fate::Added));
        assert!(!summary.restarted.is_empty() && !summary.added.is_empty() && summary.removed.is_empty());
    }
}

fn plan_layout(answer: &pb::PlanResponse) -> Bytes {
    answer.plan.as_ref().unwrap().layout.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_accounts_for_every_pe() {
    let replica = start(&settings(), Library, Arc::default()).await;
    let mut client = replica.client().await;
    let job = compilation("sensors", ADL);
    let submitted = soon(client.explain(explain_submit(by_hand(job.clone())))).await.unwrap().into_inner();
    assert!(submitted.text.starts_with("Application  demo.sensors::Sensors\n"), "{}", submitted.text);
    let explanation = submitted.explanation.unwrap();
    assert!(explanation.groups.iter().all(|group| group.fate() == pb::Fate::Unspecified));

    let request = pb::SubmitRequest { compilation: Some(job.clone()) };
    let plan = soon(client.submit(request)).await.unwrap().into_inner().plan.unwrap();
    let request = resize(job.clone(), Some(&plan.layout), 4);
    let resized = soon(client.resize(request.clone())).await.unwrap().into_inner().plan.unwrap();
    let answer = soon(client.explain(explain_resize(request))).await.unwrap().into_inner();
    let explanation = answer.explanation.unwrap();
    assert_eq!(explanation.group_count, explanation.groups.len() as u64);
    let planned: BTreeSet<(u64, pb::Fate)> =
        explanation.groups.iter().flat_map(|group| group.pe_ids.iter().map(|id| (*id, group.fate()))).collect();
    let real: BTreeSet<(u64, pb::Fate)> = resized.processing_elements.iter().map(|pe| (pe.id, pe.fate())).collect();
    assert_eq!(planned, real);
    let region = explanation.regions.iter().find(|region| region.name == "Clean").unwrap();
    assert_eq!((region.width_before, region.width, region.origin.as_str()), (Some(2), 4, "resize"));
    let restarted: Vec<_> = explanation.groups.iter().filter(|group| group.fate() == pb::Fate::Restarted).collect();
    assert!(!restarted.is_empty());
    for group in restarted {
        let change = &group.changes[0];
        assert!(change.observable && change.path.starts_with('/') && change.before != change.after, "{change:?}");
    }
    assert!(answer.text.contains("because"), "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_has_the_details_of_the_real_call() {
    let replica = start(&settings(), Library, Arc::default()).await;
    let mut client = replica.client().await;
    let job = compilation("sensors", ADL);
    let details = |status: &Status| {
        let info = status.get_details_error_info().unwrap();
        (status.code(), info.metadata.get("stage").cloned(), info.metadata.get("code").cloned())
    };
    let width = |stage: &str, code: &str| (Code::InvalidArgument, Some(stage.to_owned()), Some(code.to_owned()));
    let status = soon(client.plan(plan_resize(resize(job.clone(), None, 0)))).await.unwrap_err();
    assert_eq!(details(&status), width("topology", code::WIDTH));
    let broken = pb::Compilation { adl: Some(blob(b"<adl")), ..job.clone() };
    let status = soon(client.explain(explain_submit(broken))).await.unwrap_err();
    assert_eq!(details(&status), width("logical-model", code::UNEXPECTED));
    let status = soon(client.explain(explain_resize(resize(job, Some(b"damaged"), 3)))).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "LAYOUT_REJECTED"));
}
