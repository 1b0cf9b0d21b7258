//! Asks the API server whose a token is, and what somebody may: by TokenReview and SubjectAccessReview, which leave
//! nothing behind.
//!
//! Knows: the reviews of Kubernetes. Must not know: how often they are made, for which calls.

use super::token::Token;
use crate::grpc::subject::Subject;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use streams_kubernetes::error::with_causes;

/// What may be done to which objects of a namespace.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Right {
    pub(super) verb: &'static str,
    pub(super) group: Cow<'static, str>,
    pub(super) version: Cow<'static, str>,
    pub(super) resource: Cow<'static, str>,
    /// Empty: the object itself.
    pub(super) sub_resource: &'static str,
    pub(super) namespace: String,
    /// Empty: all of them.
    pub(super) name: String,
}

/// The API server has not answered; why, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreviewed(pub(crate) String);

/// Who knows callers, and what they may.
pub(crate) trait Reviewer: Send + Sync {
    /// Whom tokens have to be for: one of these.
    fn audiences(&self) -> &[String];

    /// Whose token this is; `None` if nobody's.
    fn whose(self: Arc<Self>, token: Token) -> BoxFuture<'static, Result<Option<Arc<Subject>>, Unreviewed>>;

    /// Whether somebody has this right; `None` if not.
    fn may(self: Arc<Self>, subject: Arc<Subject>, right: Right) -> BoxFuture<'static, Result<Option<()>, Unreviewed>>;
}

impl Right {
    /// To do this to all objects of a kind in a namespace, or to their sub-resource.
    pub(crate) fn to<K: Resource<DynamicType = ()>>(
        verb: &'static str,
        sub_resource: &'static str,
        namespace: &str,
    ) -> Self {
        Self {
            verb,
            group: K::group(&()),
            version: K::version(&()),
            resource: K::plural(&()),
            sub_resource,
            namespace: namespace.to_owned(),
            name: String::new(),
        }
    }

    /// The same for one of the objects.
    pub(super) fn for_one(&self, name: String) -> Self {
        Self { name, ..self.clone() }
    }

    /// The resource as RBAC has it.
    pub(super) fn of(&self) -> String {
        let slash = if self.sub_resource.is_empty() { "" } else { "/" };
        format!("{}{slash}{}", self.resource, self.sub_resource)
    }
}

/// The API server.
pub(crate) struct ApiServerReviewer {
    client: Client,
    audiences: Vec<String>,
    /// Whether the last review was answered: what goes on failing is told once.
    is_failing: AtomicBool,
}

impl ApiServerReviewer {
    /// The API server of this client. Tokens have to be for one of these audiences.
    pub(crate) fn new(client: Client, audiences: Vec<String>) -> Self {
        Self { client, audiences, is_failing: AtomicBool::new(false) }
    }

    async fn create<K>(&self, review: K) -> Result<K, Unreviewed>
    where
        K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>,
        K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let answer = Api::<K>::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let has_failed = self.is_failing.swap(answer.is_err(), Ordering::Relaxed);
        answer.map_err(|error| {
            let error = with_causes(&error);
            if !has_failed {
                tracing::warn!(error, "callers of the gRPC APIs cannot be reviewed: {}", K::kind(&()));
            }
            Unreviewed(error)
        })
    }
}

impl Reviewer for ApiServerReviewer {
    fn audiences(&self) -> &[String] {
        &self.audiences
    }

    fn whose(self: Arc<Self>, token: Token) -> BoxFuture<'static, Result<Option<Arc<Subject>>, Unreviewed>> {
        Box::pin(async move {
            let spec =
                TokenReviewSpec { audiences: Some(self.audiences.clone()), token: Some(token.text().to_owned()) };
            let answer = self.create(TokenReview { spec, ..TokenReview::default() }).await?;
            Ok(answer.status.and_then(|status| owner(status, &self.audiences)).map(Arc::new))
        })
    }

    fn may(self: Arc<Self>, subject: Arc<Subject>, right: Right) -> BoxFuture<'static, Result<Option<()>, Unreviewed>> {
        Box::pin(async move {
            let spec = access(&subject, &right);
            let answer = self.create(SubjectAccessReview { spec, ..SubjectAccessReview::default() }).await?;
            Ok(answer.status.filter(|status| status.allowed && status.denied != Some(true)).map(drop))
        })
    }
}

/// Who a review says that the token belongs to, if it is good for one of these audiences. An API server that knows
/// nothing of audiences names none, and has looked only whether the token is good for itself.
fn owner(status: TokenReviewStatus, audiences: &[String]) -> Option<Subject> {
    let is_for_us = status.audiences.unwrap_or_default().iter().any(|audience| audiences.contains(audience));
    let is_good = status.authenticated == Some(true) && is_for_us;
    status.user.filter(|_| is_good).and_then(Subject::of)
}

fn access(subject: &Subject, right: &Right) -> SubjectAccessReviewSpec {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let resource_attributes = ResourceAttributes {
        group: given(&right.group),
        version: given(&right.version),
        resource: given(&right.resource),
        subresource: given(right.sub_resource),
        verb: given(right.verb),
        namespace: given(&right.namespace),
        name: given(&right.name),
        ..ResourceAttributes::default()
    };
    SubjectAccessReviewSpec {
        user: Some(subject.name.0.to_string()),
        uid: subject.uid.clone(),
        groups: Some(subject.groups.clone()),
        extra: Some(subject.extra.clone()),
        resource_attributes: Some(resource_attributes),
        non_resource_attributes: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use streams_api::ParallelRegion;

    /// A reviewer whose API server answers this status, and what it was asked.
    fn reviewer(status: Value) -> (Arc<ApiServerReviewer>, Arc<Mutex<Vec<(String, Value)>>>) {
        let asked = Arc::<Mutex<Vec<(String, Value)>>>::default();
        let noted = Arc::clone(&asked);
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let (noted, status) = (Arc::clone(&noted), status.clone());
            async move {
                let path = request.uri().path().to_owned();
                let bytes = request.into_body().collect_bytes().await.unwrap();
                let mut review: Value = serde_json::from_slice(&bytes).unwrap();
                noted.lock().push((path, review["spec"].clone()));
                let code = if status.get("code").is_some() { 403 } else { 201 };
                review["status"] = status.clone();
                let answer = if code == 403 { status } else { review };
                let answer = http::Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, std::io::Error>(answer.unwrap())
            }
        });
        let audiences = vec!["a".to_owned(), "b".to_owned()];
        (Arc::new(ApiServerReviewer::new(Client::new(server, "default"), audiences)), asked)
    }

    fn forbidden() -> Value {
        json!({"kind": "Status", "status": "Failure", "message": "you may not", "reason": "Forbidden", "code": 403})
    }

    #[tokio::test]
    async fn a_token_is_good_if_the_api_server_says_so_for_one_of_the_audiences() {
        let user = json!({"username": "me", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}});
        let table = [
            (json!({"authenticated": true, "user": user, "audiences": ["b"]}), Some("me")),
            (json!({"authenticated": true, "user": user, "audiences": ["c"]}), None),
            // It knows nothing of audiences.
            (json!({"authenticated": true, "user": user}), None),
            (json!({"authenticated": false, "user": user, "audiences": ["b"]}), None),
            (json!({"user": user, "audiences": ["b"]}), None),
            (json!({"authenticated": true, "user": {"username": ""}, "audiences": ["b"]}), None),
            (json!({"authenticated": true, "audiences": ["b"]}), None),
            (json!({"error": "it has expired"}), None),
        ];
        for (status, expected) in table {
            let (reviewer, asked) = reviewer(status.clone());
            let found = reviewer.whose(Token::new("secret")).await.unwrap();
            assert_eq!(found.map(|subject| subject.name.0.to_string()).as_deref(), expected, "{status}");
            let sent =
                ("/apis/authentication.k8s.io/v1/tokenreviews", json!({"audiences": ["a", "b"], "token": "secret"}));
            assert_eq!(*asked.lock(), [(sent.0.to_owned(), sent.1)]);
        }
        let (reviewer, _) = reviewer(forbidden());
        assert_eq!(reviewer.whose(Token::new("secret")).await, Err(Unreviewed("you may not".to_owned())));
    }

    #[tokio::test]
    async fn a_right_is_asked_for_with_all_that_is_known_of_the_subject() {
        let user = json!({"username": "me", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}});
        let subject = Arc::new(Subject::of(serde_json::from_value(user).unwrap()).unwrap());
        let of_all = Right::to::<ParallelRegion>("update", "scale", "n");
        let attributes = json!({"group": "streams.ibm.com", "version": "v1", "resource": "streamsprs",
            "subresource": "scale", "verb": "update", "namespace": "n"});
        let mut of_one = attributes.clone();
        of_one["name"] = "flow-0".into();
        let table = [
            (of_all.clone(), attributes, json!({"allowed": true}), Some(())),
            (of_all.for_one("flow-0".to_owned()), of_one, json!({"allowed": false, "reason": "no"}), None),
        ];
        for (right, attributes, status, expected) in table {
            let (reviewer, asked) = reviewer(status);
            assert_eq!(reviewer.may(Arc::clone(&subject), right).await, Ok(expected));
            let spec = json!({"user": "me", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]},
                "resourceAttributes": attributes});
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned();
            assert_eq!(*asked.lock(), [(path, spec)]);
        }
        let denied = json!({"allowed": true, "denied": true});
        let (reviewer, _) = reviewer(denied);
        assert_eq!(reviewer.may(subject, of_all).await, Ok(None));
    }
}
