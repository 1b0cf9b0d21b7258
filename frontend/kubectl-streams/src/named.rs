//! Objects that people name.
//!
//! Knows: how the API server says that there is none. Must not know: what an object is shown for.

use anyhow::Context as _;
use kube::api::Api;
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use streams_kubernetes::error::absent;

/// The object of this name; `what` is its kind in words for people.
///
/// # Errors
/// There is none, or the API server does not say. kube's `get_opt` takes every 404 for an object that is not there,
/// also that of a gateway, or of an API server that does not serve the kind.
pub(crate) async fn named<K>(client: &Client, namespace: &str, what: &str, name: &str) -> anyhow::Result<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    absent(api.get(name).await)?.with_context(|| format!("there is no {what} {name} in namespace {namespace}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::of_error;
    use http::{Request, Response};
    use kube::client::Body;
    use std::convert::Infallible;
    use streams_api::Job;

    #[tokio::test]
    async fn only_the_api_server_says_that_there_is_no_job() {
        let missing = r#"{"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "message": "no", "code": 404}"#;
        let table = [
            (missing, "there is no job j in namespace n"),
            ("404 page not found\n", "404 page not found"),
            (r#"{"message": "no route", "code": 404}"#, "no route"),
        ];
        for (body, expected) in table {
            let server = tower::service_fn(move |_: Request<Body>| async move {
                let answer = Response::builder().status(404).body(Body::from(body.as_bytes().to_vec()));
                Ok::<_, Infallible>(answer.expect("it has a code and a body"))
            });
            let error = named::<Job>(&Client::new(server, "n"), "n", "job", "j").await.unwrap_err();
            assert_eq!(of_error(error.as_ref()), expected);
        }
    }
}
