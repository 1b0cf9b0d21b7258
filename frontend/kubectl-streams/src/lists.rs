//! Lists of objects, page by page.
//!
//! Jobs may have thousands of PEs, and namespaces thousands of requests: in one answer these would be many megabytes,
//! for the API server and for this program, of which people are shown a few lines. Pages are as large as those of the
//! frontend (rule call-1).
//!
//! Knows: pages. Must not know: what is listed, or what for.

use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Objects in an answer of the API server.
const PAGE: u32 = 100;

/// The objects of a namespace that are selected, but for those that `keep` does not want.
///
/// # Errors
/// The API server does not give a page of them.
pub(crate) async fn listed<K>(
    client: &Client,
    namespace: &str,
    selection: &ListParams,
    keep: impl Fn(&K) -> bool,
) -> kube::Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let (mut parameters, mut kept) = (selection.clone().limit(PAGE), Vec::new());
    loop {
        let page = api.list(&parameters).await?;
        kept.extend(page.items.into_iter().filter(&keep));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::ResourceExt as _;
    use kube::client::Body;
    use serde_json::{Value, json};
    use std::convert::Infallible;
    use std::sync::mpsc::channel;
    use streams_api::Resize;

    #[tokio::test]
    async fn a_long_list_comes_in_pages_and_what_nobody_wants_of_it_is_not_kept() {
        let (log, asked) = channel();
        let server = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let (names, next) = match query.split('&').find_map(|part| part.strip_prefix("continue=")) {
                None => (["a", "b"], "second"),
                Some("second") => (["c", "d"], "third"),
                // The last page of the API server has an empty token, or none.
                Some(_) => (["e", "f"], ""),
            };
            log.send(query).unwrap();
            let item = |(name, job): (&str, &str)| {
                let spec = json!({"jobName": job, "regions": [{"name": "R", "width": 3}]});
                json!({"metadata": {"name": name}, "spec": spec})
            };
            let items: Vec<Value> = names.into_iter().zip(["flow", "other"]).map(item).collect();
            let page = json!({"apiVersion": "v1", "kind": "List", "metadata": {"continue": next}, "items": items});
            let answer = Response::builder().status(200).body(Body::from(page.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(answer.expect("it has a code and a body")) }
        });
        let client = Client::new(server, "n");
        let of_job = |request: &Resize| request.spec.job_name == "flow";
        let found = listed(&client, "n", &ListParams::default().labels("a=b"), of_job).await.unwrap();
        assert_eq!(found.iter().map(|request| request.name_any()).collect::<Vec<_>>(), ["a", "c", "e"]);
        let asked: Vec<String> = asked.try_iter().collect();
        assert_eq!(asked.len(), 3, "{asked:?}");
        let has = |query: &String, part: &str| query.split('&').any(|found| found == part);
        assert!(asked.iter().all(|query| has(query, "limit=100") && has(query, "labelSelector=a%3Db")), "{asked:?}");
    }
}
