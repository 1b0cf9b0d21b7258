//! What has to hold of the answer to a call, and the calls that show whether it does.
//!
//! Knows: what the contracts promise. Must not know: how the APIs do anything.

use super::api_server::ALL;
use super::{Answer, Apis, Call};
use prost::Message;
use streams_proto::elasticity::v1::{
    GetResizeResponse, ListRegionsRequest, ListRegionsResponse, ResizePhase, ResizeRequest, WatchRegionsRequest,
    WatchRegionsResponse, WatchResizeResponse,
};
use streams_proto::subscription::v1::update_export_request::Change as OfExport;
use streams_proto::subscription::v1::{
    UpdateExportRequest, UpdateExportResponse, UpdateImportRequest, UpdateImportResponse,
};
use tonic::Code;

/// Entries of a page that has all.
const MANY: u32 = 1_000;

/// A page of any list: all have the same form.
#[derive(Clone, PartialEq, Message)]
struct Page {
    #[prost(bytes = "vec", repeated, tag = "1")]
    entries: Vec<Vec<u8>>,
    #[prost(string, tag = "2")]
    next_page_token: String,
}

/// Makes a call, and those that show whether its answer holds. Gives the code of the answer.
pub(super) async fn check(apis: &mut Apis, call: &Call) -> Code {
    let before = apis.server.version();
    let answer = apis.answer(call).await;
    let has_written = apis.server.version() != before;
    assert!(!has_written || may_have_written(call, &answer), "{call:?}: {answer:?}, and something was written");
    if let Some(message) = &call.message {
        check_again(apis, call, message, &answer).await;
    }
    answer.code
}

/// Whether a call with this answer may have written something. One that is late may, and so may one that is told how
/// its request ended, since that was stored before. Whoever withdraws a request that has ended, or has the key of
/// another one, is told its name as well, and has written nothing.
fn may_have_written(call: &Call, answer: &Answer) -> bool {
    let names_request = answer.told.metadata.contains_key("request") && answer.told.reason != "KEY_REUSED";
    let has_ended = call.method == "Resize" && names_request;
    call.is_change() && (has_ended || matches!(answer.code, Code::Ok | Code::DeadlineExceeded))
}

/// Makes the calls that show whether an answer to this message holds.
async fn check_again(apis: &mut Apis, call: &Call, message: &[u8], answer: &Answer) {
    let is_done = answer.code == Code::Ok;
    match call.method {
        "GetRegion" | "GetResize" | "GetExport" | "GetImport" => {
            assert_eq!(apis.answer(call).await, *answer, "{call:?}");
        }
        "ListRegions" | "ListResizes" | "ListExports" | "ListImports" => {
            assert_eq!(apis.answer(call).await, *answer, "{call:?}");
            if is_done {
                check_pages(apis, call, &ListRegionsRequest::decode(message).unwrap()).await;
            }
        }
        "Resize" => {
            let has_key = ResizeRequest::decode(message).is_ok_and(|request| !request.idempotency_key.is_empty());
            if call.is_change() && has_key && !answer.request().is_empty() {
                let before = apis.server.version();
                let again = apis.answer(call).await;
                let heard = |answer: &Answer| (answer.code, answer.told.reason.clone(), answer.request());
                assert_eq!(heard(&again), heard(answer), "{call:?}");
                assert_eq!(apis.server.version(), before, "{call:?}: it was stored twice");
            }
        }
        "Cancel" if is_done => assert_eq!(apis.answer_again(call).await, *answer, "{call:?}"),
        "WatchResize" => check_followed_request(apis, call, answer).await,
        "WatchRegions" => {
            check_followed_regions(apis, call, WatchRegionsRequest::decode(message).unwrap(), answer).await;
        }
        "UpdateExport" if is_done => {
            let made = answer.message::<UpdateExportResponse>().export.expect("an export");
            let mut request = UpdateExportRequest::decode(message).unwrap();
            // What was edited cannot be edited again: a property that was added is there.
            if !matches!(request.change, Some(OfExport::Edit(_))) {
                request.expected_etag = made.etag.clone();
                let again = apis.answer_again(&call.with(&request)).await.message::<UpdateExportResponse>().export;
                let again = again.expect("an export");
                assert_eq!((again.etag, again.properties), (made.etag, made.properties), "{call:?}");
            }
        }
        "UpdateImport" if is_done => {
            let made = answer.message::<UpdateImportResponse>().import.expect("an import");
            let mut request = UpdateImportRequest::decode(message).unwrap();
            request.expected_etag = made.etag.clone();
            let again = apis.answer_again(&call.with(&request)).await.message::<UpdateImportResponse>().import;
            let again = again.expect("an import");
            assert_eq!((again.etag, again.streams), (made.etag, made.streams), "{call:?}");
        }
        _ => {}
    }
}

/// From where a list begins there is the same page by page as at once.
async fn check_pages(apis: &mut Apis, call: &Call, request: &ListRegionsRequest) {
    let at_once = ListRegionsRequest { page_size: MANY, ..request.clone() };
    let all: Page = apis.answer_again(&call.with(&at_once)).await.message();
    assert_eq!(all.next_page_token, "", "{call:?}: not all at once");
    let mut next = ListRegionsRequest { page_size: 1 + request.page_size % 3, ..request.clone() };
    let mut listed = Vec::new();
    loop {
        let page: Page = apis.answer_again(&call.with(&next)).await.message();
        let (size, count) = (usize::try_from(next.page_size).unwrap(), page.entries.len());
        assert!(count <= size && (count > 0 || page.next_page_token.is_empty()), "{next:?}: {count} entries");
        listed.extend(page.entries);
        if page.next_page_token.is_empty() || listed.len() > all.entries.len() {
            break;
        }
        next.page_token = page.next_page_token;
    }
    assert_eq!(listed, all.entries, "{call:?}");
}

/// Whether a stream has begun; one that has not tells nothing.
fn has_begun(call: &Call, answer: &Answer) -> bool {
    let has_begun = matches!(answer.code, Code::Ok | Code::DeadlineExceeded);
    assert!(has_begun || answer.messages.is_empty(), "{call:?}: {answer:?}");
    has_begun
}

/// A request is told once, as a read shows it, and the stream ends by itself if the request has ended.
async fn check_followed_request(apis: &mut Apis, call: &Call, answer: &Answer) {
    if !has_begun(call, answer) {
        return;
    }
    let read = Call { method: "GetResize", caller: ALL, ..call.clone() };
    let shown = apis.answer_again(&read).await.message::<GetResizeResponse>().resize.expect("a request");
    let has_ended = shown.phase() >= ResizePhase::RolledOut;
    assert_eq!(answer.code == Code::Ok, has_ended, "{call:?}: {answer:?}");
    let told = answer.messages.iter().map(|message| WatchResizeResponse::decode(message.as_slice()).unwrap().resize);
    assert_eq!(told.collect::<Vec<_>>(), [Some(shown)], "{call:?}");
}

/// All regions are told once, as a list shows them, until the time of the caller is over.
async fn check_followed_regions(apis: &mut Apis, call: &Call, followed: WatchRegionsRequest, answer: &Answer) {
    if !has_begun(call, answer) {
        return;
    }
    assert_eq!(answer.code, Code::DeadlineExceeded, "{call:?}: the stream ended by itself");
    let WatchRegionsRequest { namespace, job } = followed;
    let list = ListRegionsRequest { namespace, job, page_size: MANY, ..ListRegionsRequest::default() };
    let read = Call { method: "ListRegions", caller: ALL, ..call.clone() }.with(&list);
    let shown = apis.answer_again(&read).await.message::<ListRegionsResponse>().regions;
    let told = answer.messages.iter().map(|message| WatchRegionsResponse::decode(message.as_slice()).unwrap());
    let told: Vec<WatchRegionsResponse> = told.collect();
    let is_all = told.last().is_some_and(|last| last.complete) && told.iter().all(|part| part.deleted.is_empty());
    assert!(is_all, "{call:?}: {told:?}");
    assert_eq!(told.into_iter().flat_map(|part| part.regions).collect::<Vec<_>>(), shown, "{call:?}");
}
