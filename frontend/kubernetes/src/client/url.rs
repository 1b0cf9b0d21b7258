//! What the URL of a call asks for, and whether that is what the call was made for (rule call-31).
//!
//! kube puts names into URLs as they are. A name comes from an object, or from a request of somebody, and may be any
//! text: `?watch=true` would be a watch of all objects instead of one of them. So what a call is, is what kube made it
//! as, and what its path has in it must fit to that.
//!
//! Knows: the URLs of the API server. Must not know: what is called, and why.

use http::Request;
use kube::client::Body;

/// A call that asks for something else than it was made for.
#[derive(Debug, thiserror::Error)]
#[error("what is asked for has a name that no object can have: {0}")]
pub(super) struct Misnamed(String);

/// What kube made the call as, such as `get`. What it does not make itself has none.
fn made_as(request: &Request<Body>) -> Option<&'static str> {
    request.extensions().get::<&'static str>().copied()
}

/// A call whose answer has no end.
pub(crate) fn is_watch(request: &Request<Body>) -> bool {
    matches!(made_as(request), Some("watch" | "watch_metadata" | "log_stream"))
}

/// Refuses a call that asks for something else than it was made for.
pub(super) fn check(request: &Request<Body>) -> Result<(), Misnamed> {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let count = rest(path).len();
    let is_complete = match made_as(request) {
        Some("list" | "list_metadata" | "create" | "delete_collection" | "watch" | "watch_metadata") => count == 1,
        Some("get" | "get_metadata" | "replace" | "patch" | "patch_metadata" | "delete") => count == 2,
        _ => count <= 3,
    };
    // In values of a query these are escaped: what has them was part of the path.
    let has_query_in_path = query.contains(['/', '?']);
    if is_complete && !has_query_in_path && path.split('/').skip(1).all(is_plain) {
        return Ok(());
    }
    Err(Misnamed(path.to_owned()))
}

/// Whether a part of a path can be a name: it means nothing else, and nothing in it is escaped.
fn is_plain(part: &str) -> bool {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
    !matches!(part, "" | "." | "..") && part.bytes().all(is_inside)
}

/// What a path has behind the version of its API and the namespace: a resource, the name of an object, a sub-resource.
fn rest(path: &str) -> Vec<&str> {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    // `api/VERSION/...` or `apis/GROUP/VERSION/...`
    let skipped = if segments.next() == Some("apis") { 2 } else { 1 };
    let mut rest: Vec<&str> = segments.skip(skipped).collect();
    if rest.len() > 2 && rest.first() == Some(&"namespaces") {
        rest.drain(..2);
    }
    rest
}

/// What a call does and to which resource, from its method and path; for metrics only. Whatever names there are in the
/// path, there are few resources.
pub(super) fn named(request: &Request<Body>) -> (&'static str, String) {
    let rest = rest(request.uri().path());
    let resource = match *rest.as_slice() {
        [] => String::new(),
        [resource] | [resource, _] => resource.to_owned(),
        [resource, _, sub_resource @ ("status" | "scale")] => format!("{resource}/{sub_resource}"),
        [resource, ..] => format!("{resource}/other"),
    };
    let verb = match request.method().as_str() {
        "GET" if is_watch(request) => "watch",
        "GET" if rest.len() > 1 => "get",
        "GET" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    };
    (verb, resource)
}

/// The path of a call without the names in it: there are few such templates.
pub(super) fn template(path: &str) -> String {
    let mut segments: Vec<&str> = path.split('/').collect();
    // `/api/VERSION/...` or `/apis/GROUP/VERSION/...`
    let mut at = if segments.get(1) == Some(&"apis") { 4 } else { 3 };
    if segments.len() > at + 2 && segments.get(at) == Some(&"namespaces") {
        if let Some(namespace) = segments.get_mut(at + 1) {
            *namespace = "{namespace}";
        }
        at += 2;
    }
    if let Some(name) = segments.get_mut(at + 1) {
        *name = "{name}";
    }
    segments.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, made_as: Option<&'static str>, uri: &str) -> Request<Body> {
        let mut request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
        if let Some(made_as) = made_as {
            request.extensions_mut().insert(made_as);
        }
        request
    }

    #[test]
    fn calls_are_named_by_what_they_do() {
        let streams = "/apis/streams.ibm.com/v1/namespaces/n";
        let table = [
            ("GET", None, "/api/v1/namespaces/n/pods/p".to_owned(), "get", "pods"),
            ("GET", None, "/api/v1/namespaces/n/pods?limit=5".to_owned(), "list", "pods"),
            ("GET", Some("watch"), "/api/v1/pods?watch=true&limit=5".to_owned(), "watch", "pods"),
            ("GET", Some("get"), "/api/v1/pods/p?watch=true".to_owned(), "get", "pods"),
            ("GET", None, "/api/v1/namespaces/n".to_owned(), "get", "namespaces"),
            ("GET", None, "/api/v1/namespaces".to_owned(), "list", "namespaces"),
            ("POST", None, format!("{streams}/streamsjobs"), "create", "streamsjobs"),
            ("PUT", None, format!("{streams}/streamsjobs/j/status"), "update", "streamsjobs/status"),
            ("PATCH", None, format!("{streams}/streamspes/j-0"), "patch", "streamspes"),
            ("GET", None, format!("{streams}/streamsprs/j/scale"), "get", "streamsprs/scale"),
            ("GET", None, format!("{streams}/streamsprs/j/x17"), "get", "streamsprs/other"),
            ("GET", None, format!("{streams}/streamsprs/j/status/x17"), "get", "streamsprs/other"),
            ("DELETE", None, "/api/v1/namespaces/n/configmaps/c".to_owned(), "delete", "configmaps"),
        ];
        for (method, made_as, uri, verb, resource) in table {
            assert_eq!(named(&call(method, made_as, &uri)), (verb, resource.to_owned()), "{method} {uri}");
        }
    }

    #[test]
    fn calls_to_objects_of_one_kind_have_one_template() {
        let group = "/apis/streams.ibm.com/v1";
        let table = [
            ("/api/v1/namespaces/n/pods/p".to_owned(), "/api/v1/namespaces/{namespace}/pods/{name}".to_owned()),
            ("/api/v1/namespaces/n/pods".to_owned(), "/api/v1/namespaces/{namespace}/pods".to_owned()),
            ("/api/v1/pods".to_owned(), "/api/v1/pods".to_owned()),
            ("/api/v1/nodes/m".to_owned(), "/api/v1/nodes/{name}".to_owned()),
            ("/api/v1/namespaces/n".to_owned(), "/api/v1/namespaces/{name}".to_owned()),
            ("/api/v1/namespaces".to_owned(), "/api/v1/namespaces".to_owned()),
            (
                format!("{group}/namespaces/n/streamsjobs/j/status"),
                format!("{group}/namespaces/{{namespace}}/streamsjobs/{{name}}/status"),
            ),
            ("/version".to_owned(), "/version".to_owned()),
            ("/".to_owned(), "/".to_owned()),
        ];
        for (path, expected) in table {
            assert_eq!(template(&path), expected);
        }
    }

    #[test]
    fn a_call_asks_for_what_it_was_made_for() {
        let table = [
            (Some("list"), "/api/v1/pods?&limit=5&continue=a%2Fb%3F", true),
            (Some("list"), "/api/v1/namespaces/n/pods?", true),
            (Some("list"), "/api/v1/namespaces/n/pods/p?", false),
            (Some("list"), "/api/v1/namespaces/n/m/pods?", false),
            (Some("get"), "/api/v1/nodes/m", true),
            (Some("get"), "/api/v1/namespaces/n", true),
            (Some("get"), "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node", true),
            (Some("get"), "/apis/streams.ibm.com/v1/namespaces/n/streamsresizes/?watch=true&x", false),
            (Some("get"), "/apis/streams.ibm.com/v1/namespaces/n/streamsresizes/r/status", false),
            (Some("get"), "/apis/streams.ibm.com/v1/namespaces/a/pods?/streamsresizes/r", false),
            (Some("get"), "/api/v1/namespaces/n/pods/..", false),
            (Some("get"), "/api/v1/namespaces/n/pods/%2e%2e", false),
            (Some("replace_status"), "/api/v1/namespaces/n/pods/p/status?&fieldManager=m", true),
            (Some("replace_status"), "/api/v1/namespaces/n/pods/p/q/status?", false),
            (None, "/api/v1/namespaces/n/configmaps?&fieldManager=m", true),
            (None, "/version", true),
        ];
        for (made_as, uri, expected) in table {
            assert_eq!(check(&call("GET", made_as, uri)).is_ok(), expected, "{made_as:?} {uri}");
        }
    }
}
