//! Where fuzzing of the gRPC APIs begins: calls as callers make them, and some that are refused; and how far each gets.

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
use tonic::Code;

/// The places of callers among those who call.
const SOME: u8 = 2;
const NOBODY: u8 = 3;

/// Most entries of lists of an export or import, and of regions of a request to resize; longest names and texts.
const ENTRIES_MAX: usize = 1_024;
const REGIONS_MAX: usize = 256;
const NAME_MAX: usize = 1_024;
const TEXT_MAX: usize = 65_536;
/// Operands and operators of a subscription.
const OPERANDS_MAX: usize = 8_192;

/// Where fuzzing begins.
pub(crate) struct Seed {
    pub(crate) input: Vec<u8>,
    /// What its calls are answered.
    pub(super) codes: Vec<Code>,
}

impl Seed {
    /// Calls, each with its answer, and what becomes of requests to resize.
    fn of<const CALLS: usize>(fate: u8, calls: [(Vec<u8>, Code); CALLS]) -> Self {
        let (calls, codes): (Vec<Vec<u8>>, Vec<Code>) = calls.into_iter().unzip();
        Self { input: [vec![fate], calls.concat()].concat(), codes }
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Seed> {
    let mut all: Vec<Seed> = (0..FATES).map(requests).collect();
    all.extend([regions(), exports(), imports(), long_texts(), too_much(), other_callers(), no_messages()]);
    all
}

/// A call of who may do everything.
fn call(method: &str, message: &impl Message) -> Vec<u8> {
    call_with(method, REPAIR, &message.encode_to_vec())
}

fn call_with(method: &str, flags: u8, content: &[u8]) -> Vec<u8> {
    let number = METHODS.iter().position(|known| *known == method).expect("a method");
    let number = u8::try_from(number).unwrap();
    let [highest, length @ ..] = u32::try_from(content.len()).unwrap().to_be_bytes();
    assert_eq!(highest, 0, "{} bytes", content.len());
    [&[number | flags][..], &length, content].concat()
}

fn update_export(change: OfExport, etag: &str) -> Vec<u8> {
    let request =
        UpdateExportRequest { expected_etag: etag.into(), change: Some(change), ..UpdateExportRequest::default() };
    call("UpdateExport", &request)
}

fn update_import(change: OfImport) -> Vec<u8> {
    let request = UpdateImportRequest { change: Some(change), ..UpdateImportRequest::default() };
    call("UpdateImport", &request)
}

fn edit_import(subscription: Option<&str>, filter: Option<&str>) -> Vec<u8> {
    let subscription = subscription.map(subscribe);
    update_import(OfImport::Edit(EditImportedStreams { subscription, filter: filter.map(str::to_owned) }))
}

fn subscribe(expression: &str) -> Subscription {
    Subscription { expression: expression.to_owned(), ..Subscription::default() }
}

fn property(name: &str, kind: &str, values: &[&str]) -> Property {
    Property {
        name: name.into(),
        r#type: kind.into(),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    }
}

fn set(properties: Vec<Property>) -> OfExport {
    OfExport::Set(Properties { properties })
}

/// A request to resize that is asked for, looked at and withdrawn.
fn requests(fate: u8) -> Seed {
    // What callers are told who wait until the widths are rolled out, who follow the request, who withdraw it, and who
    // wait until it is accepted.
    let [rolled_out, followed, withdrawn, accepted] = match fate {
        0 | 1 => [Code::DeadlineExceeded, Code::DeadlineExceeded, Code::Ok, Code::Ok],
        2 => [Code::DeadlineExceeded, Code::DeadlineExceeded, Code::FailedPrecondition, Code::Ok],
        3 => [Code::Ok, Code::Ok, Code::FailedPrecondition, Code::Ok],
        4 | 5 => [Code::FailedPrecondition, Code::Ok, Code::FailedPrecondition, Code::FailedPrecondition],
        6 => [Code::NotFound, Code::Ok, Code::FailedPrecondition, Code::NotFound],
        7 => [Code::Aborted, Code::Ok, Code::FailedPrecondition, Code::Aborted],
        _ => [Code::Aborted, Code::Ok, Code::Ok, Code::Aborted],
    };
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
    let to_be_accepted = ResizeRequest { wait_for: WaitFor::Accepted.into(), ..ResizeRequest::default() };
    let calls = [
        (call("Resize", &resize), rolled_out),
        (call("GetResize", &GetResizeRequest { name: name.clone() }), Code::Ok),
        (call("WatchResize", &WatchResizeRequest { name: name.clone() }), followed),
        (call("Cancel", &CancelRequest { name }), withdrawn),
        (call("ListResizes", &list), Code::Ok),
        (call("Resize", &to_be_accepted), accepted),
    ];
    Seed::of(fate, calls)
}

/// Regions that are there, are not seen, and are not there; a page; a dry run.
fn regions() -> Seed {
    let region = |region: &str| GetRegionRequest { region: region.into(), ..GetRegionRequest::default() };
    let token: String =
        br#"{"list":"regions of n/a","after":["a","Q","a-0"]}"#.iter().map(|byte| format!("{byte:02x}")).collect();
    let page = ListRegionsRequest { job: "a".into(), page_size: 1, page_token: token, ..ListRegionsRequest::default() };
    let watched = WatchRegionsRequest { job: "a".into(), ..WatchRegionsRequest::default() };
    let calls = [
        (call("GetRegion", &region("R")), Code::Ok),
        (call("GetRegion", &region("S")), Code::Unavailable),
        (call("GetRegion", &region("none")), Code::NotFound),
        (call("ListRegions", &page), Code::Ok),
        (call("WatchRegions", &watched), Code::DeadlineExceeded),
        // It needs a plan, and there is none.
        (call("Resize", &ResizeRequest { dry_run: true, ..ResizeRequest::default() }), Code::Unavailable),
    ];
    Seed::of(0, calls)
}

fn exports() -> Seed {
    let kinds = property("kinds", "list<rstring>", &[r#""a""#, r#""b\n""#]);
    let edit = EditProperties {
        add: vec![property("flag", "boolean", &["true"])],
        replace: vec![property("prop", "float64", &["2.5"])],
        remove: vec!["kinds".to_owned()],
    };
    let list = ListExportsRequest { page_size: 1, ..ListExportsRequest::default() };
    let calls = [
        (update_export(set(vec![property("prop", "int64", &["-3"]), kinds]), ""), Code::Ok),
        (update_export(OfExport::Edit(edit), ""), Code::Ok),
        (call("GetExport", &GetExportRequest::default()), Code::Ok),
        (call("ListExports", &list), Code::Ok),
        (update_export(OfExport::Reset(Reset {}), "another"), Code::FailedPrecondition),
        (update_export(OfExport::Reset(Reset {}), ""), Code::Ok),
    ];
    Seed::of(0, calls)
}

fn imports() -> Seed {
    let stream = NamedStream { application: "A".into(), stream: "Out".into(), ..NamedStream::default() };
    let set = ImportedStreams {
        named_streams: vec![stream],
        subscription: Some(subscribe(r#"prop > 3 && "a" in kinds || !flag"#)),
        filter: r#"x == 1 && name != "b""#.to_owned(),
    };
    let list = ListImportsRequest { page_size: 1, ..ListImportsRequest::default() };
    let calls = [
        (update_import(OfImport::Set(set)), Code::Ok),
        // The export that it would get forbids filters.
        (edit_import(Some("prop == 1"), Some("x > 2")), Code::FailedPrecondition),
        (edit_import(Some("prop =="), None), Code::InvalidArgument),
        (edit_import(None, Some(" ")), Code::Ok),
        (call("GetImport", &GetImportRequest::default()), Code::Ok),
        (call("ListImports", &list), Code::Ok),
    ];
    Seed::of(0, calls)
}

/// The longest property that there may be, which an import asks for; and texts that are too long.
pub(super) fn long_texts() -> Seed {
    let (longest, name) = (format!("\"{}\"", "x".repeat(TEXT_MAX - 2)), "n".repeat(NAME_MAX + 1));
    let operands = "a||".repeat(OPERANDS_MAX) + "a";
    let long = set(vec![property("prop", "int64", &["7"]), property("long", "rstring", &[longest.as_str()])]);
    let add = vec![property(&name, "boolean", &["true"])];
    let calls = [
        (edit_import(Some("prop > 5"), None), Code::Ok),
        (update_export(long, ""), Code::Ok),
        (call("GetExport", &GetExportRequest::default()), Code::Ok),
        (edit_import(Some(&operands), None), Code::InvalidArgument),
        (update_export(OfExport::Edit(EditProperties { add, ..EditProperties::default() }), ""), Code::InvalidArgument),
        (call("GetRegion", &GetRegionRequest { region: name, ..GetRegionRequest::default() }), Code::InvalidArgument),
    ];
    Seed::of(0, calls)
}

/// Lists that are as long as they may be, and longer ones; a text with a character more than there may be.
fn too_much() -> Seed {
    let properties =
        |count: usize| set((0..count).map(|number| property(&number.to_string(), "boolean", &["true"])).collect());
    let values = set(vec![property("list", "list<int64>", &["1"; ENTRIES_MAX + 1])]);
    let stream = NamedStream { stream: "s".into(), ..NamedStream::default() };
    let streams = ImportedStreams { named_streams: vec![stream; ENTRIES_MAX + 1], ..ImportedStreams::default() };
    let width = |number: usize| DesiredWidth { region: number.to_string(), width: 1, ..DesiredWidth::default() };
    let resize = ResizeRequest { regions: (0..=REGIONS_MAX).map(width).collect(), ..ResizeRequest::default() };
    let calls = [
        (update_export(properties(ENTRIES_MAX), ""), Code::Ok),
        (update_export(properties(ENTRIES_MAX + 1), ""), Code::InvalidArgument),
        (update_export(values, ""), Code::InvalidArgument),
        (update_import(OfImport::Set(streams)), Code::InvalidArgument),
        (edit_import(None, Some(&"x".repeat(TEXT_MAX + 1))), Code::InvalidArgument),
        (call("Resize", &resize), Code::InvalidArgument),
    ];
    Seed::of(0, calls)
}

/// Calls of who may do some of it, and of nobody.
fn other_callers() -> Seed {
    let nothing = |method, caller: u8| call_with(method, REPAIR | (caller << CALLER), &[]);
    let calls = [
        (nothing("Resize", SOME), Code::Ok),
        (nothing("Cancel", SOME), Code::Ok),
        (nothing("ListRegions", SOME), Code::PermissionDenied),
        (nothing("UpdateImport", SOME), Code::InvalidArgument),
        (nothing("GetExport", NOBODY), Code::Unauthenticated),
        (nothing("Resize", NOBODY), Code::Unauthenticated),
    ];
    Seed::of(3, calls)
}

/// What is compressed, too long, shorter than it says, no message, or two of them; and one without a namespace.
fn no_messages() -> Seed {
    let calls = [
        (call_with("Resize", BODY, &[1, 0, 0, 0, 1, 0]), Code::Internal),
        (call_with("GetRegion", BODY, &[0, 0xff, 0xff, 0xff, 0xff]), Code::OutOfRange),
        (call_with("ListExports", BODY, &[0, 0, 0, 0, 9, 10]), Code::Internal),
        (call_with("UpdateExport", BODY, &[]), Code::Internal),
        (call_with("GetImport", BODY, &[0; 10]), Code::InvalidArgument),
        (call_with("WatchRegions", 0, &[]), Code::InvalidArgument),
    ];
    Seed::of(0, calls)
}
