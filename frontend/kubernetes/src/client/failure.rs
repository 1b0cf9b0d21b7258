//! Failures whose answer is no status: a gateway has answered for the API server, or the API server without having
//! looked at an object, e.g. because it does not serve the kind. kube takes any JSON for a status, of code 0 if it has
//! none, the whole of any other text for its message, and what leads elsewhere (3xx) for a success (rule call-4).
//!
//! Knows: the form of a status. Must not know: what a call is for.

use crate::error::{NOT_A_STATUS, wordless};
use axum::body::Body as AnyBody;
use bytes::Bytes;
use http::{Response, StatusCode};
use kube::core::Status;
use serde::Deserialize;

/// Most bytes of what people are told of such an answer.
const WORDS_MAX: usize = 1 << 10;

/// What tells a status from other JSON, and what it says. Admission webhooks may put words of their own into the rest.
#[derive(Deserialize)]
struct Said {
    kind: String,
    code: u16,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

/// JSON as gateways answer with it.
#[derive(Deserialize)]
struct Told {
    message: String,
}

/// Whether the call has come to nothing, as far as is known, also because whoever answers leads elsewhere.
pub(super) fn is_failure(code: StatusCode) -> bool {
    !code.is_success()
}

/// The answer as the client library reads it: it takes 4xx and 5xx alone for failures. The code stays in the status.
pub(super) fn as_read(mut answer: Response<AnyBody>) -> Response<AnyBody> {
    let code = answer.status();
    if is_failure(code) && !code.is_client_error() && !code.is_server_error() {
        *answer.status_mut() = StatusCode::BAD_GATEWAY;
    }
    answer
}

/// The status that stands for an answer with this body; `None` if the answer is one itself that the client library can
/// read.
pub(super) fn as_status(code: StatusCode, body: &[u8]) -> Option<Bytes> {
    let said = serde_json::from_slice::<Said>(body).ok().filter(|said| said.kind == "Status" && said.code != 0);
    let status = match said {
        Some(_) if serde_json::from_slice::<Status>(body).is_ok() => return None,
        Some(said) => Status::failure(&said.message, &said.reason).with_code(said.code),
        None => Status::failure(&words(code, body), NOT_A_STATUS).with_code(code.as_u16()),
    };
    serde_json::to_vec(&status).ok().map(Bytes::from)
}

/// The code, and a line of what the answer says.
fn words(code: StatusCode, body: &[u8]) -> String {
    let mut message = wordless(code.as_u16());
    let line = line(body);
    if !line.is_empty() {
        message.push_str(": ");
        message.push_str(&line);
    }
    message.truncate(message.floor_char_boundary(WORDS_MAX));
    message
}

/// The first line of what an answer says; nothing of a page for browsers.
fn line(body: &[u8]) -> String {
    let told = serde_json::from_slice::<Told>(body).map(|told| told.message).unwrap_or_default();
    let text = if told.trim().is_empty() {
        String::from_utf8_lossy(body.get(..WORDS_MAX).unwrap_or(body)).into_owned()
    } else {
        told
    };
    let line = text.trim().lines().next().unwrap_or_default().trim_end();
    if line.starts_with('<') {
        return String::new();
    }
    line.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{CallOptions, stack};
    use crate::error::{is_unanswered, with_causes};
    use crate::metrics::Metrics;
    use http::Request;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{DeleteParams, PostParams, WatchParams};
    use kube::client::{Body, ClientBuilder};
    use tower::BoxError;

    /// What people are told of a redirection that comes with JSON.
    const FOUND: &str = r#"HTTP 302 Found: {"kind": "ConfigMap", "metadata": {"name": "a"}}"#;

    fn status_of(code: u16, body: &str) -> Option<Status> {
        let told = as_status(StatusCode::from_u16(code).unwrap(), body.as_bytes())?;
        Some(serde_json::from_slice(&told).unwrap())
    }

    #[test]
    fn what_is_no_status_becomes_one_with_the_code_of_the_answer_and_one_short_line() {
        let page = "<html>\r\n<head><title>503 Service Temporarily Unavailable</title></head>\r\n</html>\r\n";
        let large = format!("<html>{}</html>", "x".repeat(100_000));
        let table = [
            (503, "", "HTTP 503 Service Unavailable"),
            (503, " \r\n", "HTTP 503 Service Unavailable"),
            (503, page, "HTTP 503 Service Unavailable"),
            (500, large.as_str(), "HTTP 500 Internal Server Error"),
            (520, "", "HTTP 520"),
            (404, "404 page not found\n", "HTTP 404 Not Found: 404 page not found"),
            (502, "\none\ttwo\r\nthree", "HTTP 502 Bad Gateway: one two"),
            (503, r#"{"message": "no healthy upstream"}"#, "HTTP 503 Service Unavailable: no healthy upstream"),
            (503, "{}", "HTTP 503 Service Unavailable: {}"),
            (503, r#"{"error": "reset", "code": 7}"#, r#"HTTP 503 Service Unavailable: {"error": "reset", "code": 7}"#),
            (404, r#"{"code": 404, "message": "no route"}"#, "HTTP 404 Not Found: no route"),
            (404, r#"{"kind": "Status", "reason": "NotFound", "message": "no"}"#, "HTTP 404 Not Found: no"),
            (404, r#"{"kind": "Error", "code": 404, "message": "no"}"#, "HTTP 404 Not Found: no"),
        ];
        for (code, body, expected) in table {
            let status = status_of(code, body).unwrap();
            let said = (status.code, status.reason.as_str(), status.message.as_str());
            assert_eq!(said, (code, NOT_A_STATUS, expected), "{body}");
        }
        let long = status_of(500, &"\u{e9}".repeat(4_000)).unwrap().message;
        assert!((WORDS_MAX - 2..=WORDS_MAX).contains(&long.len()), "{}", long.len());
    }

    #[test]
    fn what_a_webhook_says_in_other_words_stays_a_refusal_of_the_api_server() {
        let body = r#"{"kind": "Status", "apiVersion": "v1", "status": "Denied", "message": "no", "code": 400}"#;
        let status = status_of(400, body).unwrap();
        assert_eq!((status.code, &*status.reason, &*status.message), (400, "", "no"));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_calls_hears_the_code_of_the_answer_and_no_page() {
        // code, body -> whether its effect is known, what people are told
        let table = [
            (404_u16, "<html>\n</html>", true, "HTTP 404 Not Found"),
            (503, r#"{"error": "reset"}"#, false, r#"HTTP 503 Service Unavailable: {"error": "reset"}"#),
            (503, "", false, "HTTP 503 Service Unavailable"),
            // It was not done, and whoever does not read the answer must not take it for done.
            (302, "<html>\n</html>", true, "HTTP 302 Found"),
            (302, r#"{"kind": "ConfigMap", "metadata": {"name": "a"}}"#, true, FOUND),
            (308, "", true, "HTTP 308 Permanent Redirect"),
            (304, "", true, "HTTP 304 Not Modified"),
            (101, "", true, "HTTP 101 Switching Protocols"),
        ];
        for (code, body, is_known, expected) in table {
            let server = tower::service_fn(move |_: Request<Body>| async move {
                Ok::<_, BoxError>(Response::builder().status(code).body(AnyBody::from(body)).unwrap())
            });
            let client = stack(ClientBuilder::new(server, "n"), CallOptions::default(), &Metrics::new("test"));
            let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
            let watched = api.watch(&WatchParams::default(), "0").await.map(drop);
            let requests = kube::core::Request::new(api.resource_url());
            let mut deletion = requests.delete("a", &DeleteParams::default()).unwrap();
            deletion.extensions_mut().insert("delete");
            let creation = requests.create(&PostParams::default(), Vec::new()).unwrap();
            let unread = [client.request_text(deletion).await, client.request_text(creation).await];
            let errors = [api.get("a").await.unwrap_err(), watched.unwrap_err()];
            for error in errors.into_iter().chain(unread.map(Result::unwrap_err)) {
                assert_eq!((!is_unanswered(&error), &*with_causes(&error)), (is_known, expected), "{error}");
                assert!(matches!(&error, kube::Error::Api(status) if status.code == code), "{error}");
            }
        }
    }

    #[test]
    fn what_the_api_server_says_stays_as_it_is() {
        for body in [
            r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}"#,
            r#"{"kind": "Status", "status": "Failure", "message": "exceeded quota: q", "code": 403}"#,
        ] {
            assert_eq!(status_of(404, body), None, "{body}");
        }
    }
}
