//! Where fuzzing of the gRPC APIs begins: calls as callers make them, and some that are refused.

use super::api_server::FATES;
use super::{BODY, CALLER, METHODS, REPAIR};
use prost::Message;
use streams_proto::elasticity::v1::resize_request::{DesiredWidth, Policy, WaitFor};
use streams_proto::elasticity::v1::{
    CancelRequest, GetRegionRequest, GetResizeRequest, ListRegionsRequest, ListResizesRequest, ResizeName,
    ResizeRequest, WatchRegionsRequest, WatchResizeRequest,
};
use streams_proto::subscription::v1::update_export_request::Change as OfExport;
use streams_proto::subscription::v1::update_import_request::Change as OfImport;
use streams_proto::subscription::v1::{
    EditImportedStreams, EditProperties, GetExportRequest, GetImportRequest, ImportedStreams, ListExportsRequest,
    ListImportsRequest, NamedStream, Properties, Property, Reset, Subscription, UpdateExportRequest,
    UpdateImportRequest,
};

/// The places of callers among those who call.
const SOME: u8 = 2;
const NOBODY: u8 = 3;

/// All of them.
pub(crate) fn all() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = (0..FATES).map(requests).collect();
    all.extend([regions(), exports(), imports(), other_callers(), no_messages()]);
    all
}

/// A call of who may do everything.
fn call(method: &str, message: &impl Message) -> Vec<u8> {
    call_with(method, REPAIR, &message.encode_to_vec())
}

fn call_with(method: &str, flags: u8, content: &[u8]) -> Vec<u8> {
    let number = METHODS.iter().position(|known| *known == method).expect("a method");
    let (number, length) = (u8::try_from(number).unwrap(), u16::try_from(content.len()).unwrap());
    [&[number | flags][..], &length.to_be_bytes(), content].concat()
}

fn input(fate: u8, calls: &[Vec<u8>]) -> Vec<u8> {
    [vec![fate], calls.concat()].concat()
}

/// A request to resize that is asked for, looked at and withdrawn.
fn requests(fate: u8) -> Vec<u8> {
    let width = |region: &str, width| DesiredWidth { region: region.into(), width, expected_width: Some(2) };
    let resize = ResizeRequest {
        regions: vec![width("R", 5), width("S", 1)],
        wait_for: WaitFor::RolledOut.into(),
        idempotency_key: "k".into(),
        expected_generation: Some(4),
        policy: Policy::Rebalance.into(),
        ..ResizeRequest::default()
    };
    let name = Some(ResizeName { idempotency_key: "k".into(), ..ResizeName::default() });
    let list = ListResizesRequest { job: "a".into(), page_size: 2, ..ListResizesRequest::default() };
    let calls = [
        call("Resize", &resize),
        call("GetResize", &GetResizeRequest { name: name.clone() }),
        call("WatchResize", &WatchResizeRequest { name: name.clone() }),
        call("Cancel", &CancelRequest { name }),
        call("ListResizes", &list),
        call("Resize", &ResizeRequest { wait_for: WaitFor::Accepted.into(), ..ResizeRequest::default() }),
    ];
    input(fate, &calls)
}

/// Regions that are there, are not seen, and are not there; a page; a dry run.
fn regions() -> Vec<u8> {
    let region = |region: &str| GetRegionRequest { region: region.into(), ..GetRegionRequest::default() };
    let token: String =
        br#"{"list":"regions of n/a","after":["a","Q","a-0"]}"#.iter().map(|byte| format!("{byte:02x}")).collect();
    let page = ListRegionsRequest { job: "a".into(), page_size: 1, page_token: token, ..ListRegionsRequest::default() };
    let calls = [
        call("GetRegion", &region("R")),
        call("GetRegion", &region("S")),
        call("GetRegion", &region("none")),
        call("ListRegions", &page),
        call("WatchRegions", &WatchRegionsRequest { job: "a".into(), ..WatchRegionsRequest::default() }),
        call("Resize", &ResizeRequest { dry_run: true, ..ResizeRequest::default() }),
    ];
    input(0, &calls)
}

fn exports() -> Vec<u8> {
    let property = |name: &str, kind: &str, values: &[&str]| Property {
        name: name.into(),
        r#type: kind.into(),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    };
    let update = |change, etag: &str| {
        let request =
            UpdateExportRequest { expected_etag: etag.into(), change: Some(change), ..UpdateExportRequest::default() };
        call("UpdateExport", &request)
    };
    let kinds = property("kinds", "list<rstring>", &[r#""a""#, r#""b\n""#]);
    let edit = EditProperties {
        add: vec![property("flag", "boolean", &["true"])],
        replace: vec![property("prop", "float64", &["2.5"])],
        remove: vec!["kinds".to_owned()],
    };
    let calls = [
        update(OfExport::Set(Properties { properties: vec![property("prop", "int64", &["-3"]), kinds] }), ""),
        update(OfExport::Edit(edit), ""),
        call("GetExport", &GetExportRequest::default()),
        call("ListExports", &ListExportsRequest { page_size: 1, ..ListExportsRequest::default() }),
        update(OfExport::Reset(Reset {}), "another"),
        update(OfExport::Reset(Reset {}), ""),
    ];
    input(0, &calls)
}

fn imports() -> Vec<u8> {
    let subscribe =
        |expression: &str| Some(Subscription { expression: expression.to_owned(), ..Subscription::default() });
    let update = |change| {
        let request = UpdateImportRequest { change: Some(change), ..UpdateImportRequest::default() };
        call("UpdateImport", &request)
    };
    let edit = |subscription, filter: Option<&str>| {
        update(OfImport::Edit(EditImportedStreams { subscription, filter: filter.map(str::to_owned) }))
    };
    let stream = NamedStream { application: "A".into(), stream: "Out".into(), ..NamedStream::default() };
    let set = ImportedStreams {
        named_streams: vec![stream],
        subscription: subscribe(r#"prop > 3 && "a" in kinds || !flag"#),
        filter: r#"x == 1 && name != "b""#.to_owned(),
    };
    let calls = [
        update(OfImport::Set(set)),
        // The export that it would get forbids filters.
        edit(subscribe("prop == 1"), Some("x > 2")),
        edit(subscribe("prop =="), None),
        edit(None, Some(" ")),
        call("GetImport", &GetImportRequest::default()),
        call("ListImports", &ListImportsRequest { page_size: 1, ..ListImportsRequest::default() }),
    ];
    input(0, &calls)
}

/// Calls of who may do some of it, and of nobody.
fn other_callers() -> Vec<u8> {
    let nothing = |method, caller: u8| call_with(method, REPAIR | (caller << CALLER), &[]);
    let calls = [
        nothing("Resize", SOME),
        nothing("Cancel", SOME),
        nothing("ListRegions", SOME),
        nothing("UpdateImport", SOME),
        nothing("GetExport", NOBODY),
        nothing("Resize", NOBODY),
    ];
    input(3, &calls)
}

/// What is compressed, too long, shorter than it says, no message, or two of them; and one without a namespace.
fn no_messages() -> Vec<u8> {
    let calls = [
        call_with("Resize", BODY, &[1, 0, 0, 0, 1, 0]),
        call_with("GetRegion", BODY, &[0, 0xff, 0xff, 0xff, 0xff]),
        call_with("ListExports", BODY, &[0, 0, 0, 0, 9, 10]),
        call_with("UpdateExport", BODY, &[]),
        call_with("GetImport", BODY, &[0; 10]),
        call_with("WatchRegions", 0, &[]),
    ];
    input(0, &calls)
}
