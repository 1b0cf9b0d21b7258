//! Requests as objects (rule elasticity-10): makes a `Resize`, or finds the one that an earlier call with the same key
//! has made. The object outlives the call, the caller and this process.
//!
//! Invariants: the name of an object is known before its creation is tried first, so that a creation that is tried
//! again makes no second one (rule call-10), and whoever hears nothing of it knows what to look for. A key that names
//! an object which the mirror shows costs no call of the API server, and another one that makes no object a turn (rule
//! elasticity-30).
//!
//! Knows: the API server, callers. Must not know: what becomes of a request.

use super::view::ClusterView;
use super::writes::{Unanswered, Write, WriteCalls};
use super::{Elasticity, errors, outcome};
use crate::grpc::places::CallerName;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use streams_api::resize::{KEY_MAX, RESIZES_MAX, name_of_key, new_name};
use streams_api::{DesiredWidth, Job, JobStatus, Resize, ResizePolicy, ResizeSpec, names};
use streams_kubernetes::delivered::Delivered;
use streams_kubernetes::error::{absent, is_not_found, with_causes, written};
use streams_kubernetes::ownership::{controlled_by, is_controlled_by};
use streams_kubernetes::{Error, Key};
use streams_process::telemetry::{self, TraceContext};
use streams_proto::elasticity::v1::ResizeRequest;
use streams_proto::elasticity::v1::resize_request::Policy;
use tokio::time::Instant;
use tonic::{Code, Status};

/// Hex digits of the digest of its name that stand for a caller.
const CALLER_DIGITS: usize = 20;

/// What is waited for before a request is sent, and then.
const TURN: &str = "its turn to be stored";
const ANSWER: &str = "the request to be stored";

/// Why there is no object of a request.
#[derive(Debug)]
pub(super) enum Unmade {
    /// Nothing was to be stored, and no turn was waited for.
    Refused(Status),
    /// It was to be stored, in its turn. Perhaps it did not come to that.
    NotStored(Status),
}

/// What came of storing a request.
enum Stored {
    /// It is a new object.
    Made(Resize),
    /// There was one of its name; what it is, if that was asked for, and it was still there.
    There(Option<Resize>),
}

impl<V: ClusterView> Elasticity<V> {
    /// The request that the key of a call names, if there is one and the mirror shows it.
    pub(super) fn shown(&self, Key { namespace, .. }: &Key, job: &Job, request: &ResizeRequest) -> Option<Resize> {
        if request.idempotency_key.is_empty() {
            return None;
        }
        let wanted = object(job, request);
        let shown = self.view.resize(namespace, &wanted.name_any())?;
        judged(job, &wanted, Resize::clone(&shown)).ok()
    }

    /// The object of this request to resize a job: a new one, or the one that its key names. It is waited for until
    /// `deadline`.
    ///
    /// # Errors
    /// There is none, or it is not known now whether there is one; then the name that it would have is said.
    pub(super) async fn requested(
        &self,
        key: &Key,
        job: &Job,
        request: &ResizeRequest,
        caller: Option<&CallerName>,
        deadline: Instant,
    ) -> Result<Resize, Unmade> {
        let (mut wanted, has_key) = (object(job, request), !request.idempotency_key.is_empty());
        if let Some(caller) = caller {
            wanted.annotations_mut().insert(names::ANNOTATION_REQUESTED_BY.to_owned(), digits_of(caller));
        }
        match self.found(key, job, &wanted, has_key, caller, deadline).await.map_err(Unmade::Refused)? {
            Some(found) => Ok(found),
            None => self.made(key, job, wanted, has_key, caller, deadline).await.map_err(Unmade::NotStored),
        }
    }

    /// The object that is there of a wanted request, if it has a key. The controller refuses what is too many, but that
    /// leaves an object behind, too; so only what is there already is found once there are as many as are kept.
    ///
    /// # Errors
    /// None may be made, or it is not known now whether there is one.
    async fn found(
        &self,
        key: &Key,
        job: &Job,
        wanted: &Resize,
        has_key: bool,
        caller: Option<&CallerName>,
        deadline: Instant,
    ) -> Result<Option<Resize>, Status> {
        let (namespace, name) = (&*key.namespace, wanted.name_any());
        let shown = if has_key { self.view.resize(namespace, &name) } else { None };
        // It only goes on from there.
        let found = shown.as_ref().and_then(|shown| judged(job, wanted, Resize::clone(shown)).ok());
        if found.is_some() {
            return Ok(found);
        }
        let too_many = self.too_many(key, caller);
        let is_full = too_many.is_some();
        // What is shown may be gone, and what is not shown may be there.
        if shown.is_some() || (is_full && has_key) {
            let found = self.look_up(namespace, &name, &name, caller, deadline).await?;
            if let Some(found) = found {
                return judged(job, wanted, found).map(Some);
            }
        }
        too_many.map_or(Ok(None), Err)
    }

    /// The object that is made of a wanted request, or was made of it meanwhile, once it is the turn of the caller.
    async fn made(
        &self,
        key: &Key,
        job: &Job,
        wanted: Resize,
        has_key: bool,
        caller: Option<&CallerName>,
        deadline: Instant,
    ) -> Result<Resize, Status> {
        let (namespace, name) = (&*key.namespace, wanted.name_any());
        let (view, client, namespace_of) = (Arc::clone(&self.view), self.client.clone(), Arc::clone(&key.namespace));
        let to_store = wanted.clone();
        let stored = |calls| async move {
            // Another call with this key may have stored it before it was the turn of this one.
            let shown = if has_key { view.resize(&namespace_of, &to_store.name_any()) } else { None };
            let is_same = |shown: &Arc<Resize>| {
                shown.metadata.deletion_timestamp.is_none() && shown.spec.wants_the_same_as(&to_store.spec)
            };
            match shown.filter(is_same) {
                Some(shown) => Ok(Stored::There(Some(Resize::clone(&shown)))),
                None => stored(client, namespace_of, to_store, has_key, calls).await,
            }
        };
        let found = match self.write(Write::Store, key, caller, deadline, stored).await {
            Ok(stored) => match stored? {
                Stored::Made(made) => {
                    say(&made, caller);
                    return Ok(made);
                }
                Stored::There(Some(found)) => Some(found),
                // There is an object of this name, whatever comes of asking for it.
                Stored::There(None) => {
                    let found = self.look_up(namespace, &name, &name, caller, deadline).await;
                    found.map_err(|status| match status.code() {
                        Code::DeadlineExceeded => errors::still_waiting_unheard(&name, ANSWER),
                        _ => errors::perhaps_taken(&name, status.message()),
                    })?
                }
            },
            Err(Unanswered::NotSent) => return Err(errors::still_waiting_unwritten("", TURN)),
            Err(Unanswered::Stopping) => return Err(errors::shutting_down_unwritten("", TURN)),
            Err(Unanswered::Late) => return Err(errors::still_waiting_unheard(&name, ANSWER)),
            Err(Unanswered::Lost) => return Err(errors::perhaps_taken(&name, "the call came to no end")),
        };
        let found = found.ok_or_else(|| errors::not_taken("the request of this name was deleted just now"))?;
        let found = judged(job, &wanted, found)?;
        if !has_key {
            // The first try has made it.
            say(&found, caller);
        }
        Ok(found)
    }

    /// Why nobody, or not this caller, may ask for more of a job. When the first of its requests goes is said by these
    /// themselves, which nobody reads for a refusal.
    fn too_many(&self, Key { namespace, name }: &Key, caller: Option<&CallerName>) -> Option<Status> {
        let left = RESIZES_MAX.saturating_sub(self.view.count_resizes(namespace, name));
        if left == 0 {
            return Some(errors::too_many_requests(name, RESIZES_MAX));
        }
        // A request is kept for long after its end, whatever has become of it.
        let caller = caller?;
        let of_caller = self.view.count_resizes_by(namespace, name, &digits_of(caller));
        (of_caller >= left).then(|| errors::too_many_requests_by(&caller.0, name, of_caller))
    }
}

/// Writes into the log that somebody has asked. Once for each request: whoever asks again with a key costs nothing, and
/// could fill the log.
fn say(made: &Resize, caller: Option<&CallerName>) {
    tracing::info!(request = made.name_any(), caller = caller.map(|CallerName(name)| &**name), "widths desired");
}

/// Stands for a caller, whose name may be long.
fn digits_of(CallerName(name): &CallerName) -> String {
    let mut digits = hex::encode(Sha256::digest(name.as_bytes()));
    digits.truncate(CALLER_DIGITS);
    digits
}

/// Makes this object, unless there is one of its name.
async fn stored(
    client: Client,
    namespace: Arc<str>,
    wanted: Resize,
    has_key: bool,
    mut calls: WriteCalls,
) -> Result<Stored, Status> {
    let (api, name): (Api<Resize>, _) = (Api::namespaced(client.clone(), &namespace), wanted.name_any());
    let parameters = PostParams { field_manager: Some(names::ELASTICITY_MANAGER.to_owned()), ..PostParams::default() };
    let unheard = |why: &str| errors::perhaps_taken(&name, why);
    match calls.make(api.create(&parameters, &wanted)).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        // This is said of the last try. One before may have made it, and have used up the quota; policies refuse
        // with any of these.
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            let refused = from_kubernetes(kube::Error::Api(status), "regions", unheard);
            return match calls.make(find(&client, &namespace, &name)).await {
                Ok(Some(found)) => Ok(Stored::There(Some(found))),
                Ok(None) => Err(refused),
                Err(_) => Err(unheard(refused.message())),
            };
        }
        made => return made.map(Stored::Made).map_err(|error| from_kubernetes(error, "regions", unheard)),
    }
    // Its key names it, or the first try has made it, and nobody heard of that.
    let found = if has_key { Ok(None) } else { calls.make(find(&client, &namespace, &name)).await };
    found.map(Stored::There).map_err(|error| from_kubernetes(error, "regions", unheard))
}

/// What was found under the name of a wanted request, if it is the same one.
fn judged(job: &Job, wanted: &Resize, found: Resize) -> Result<Resize, Status> {
    let name = wanted.name_any();
    let found = same(job, wanted, found).ok_or_else(|| errors::key_reused(&name))?;
    let none = JobStatus::default();
    if outcome::is_deleted_uncommitted(&found, job.status.as_ref().unwrap_or(&none)) {
        // Its name is free once its finalizers are gone.
        return Err(errors::not_taken(&format!("the request of this name, {name}, is being deleted")));
    }
    Ok(found)
}

/// The request that was found under the name of a wanted one, if it is the same request of the job. One that nobody
/// controls yet becomes the job's as soon as the job controller sees it (rule elasticity-10).
fn same(job: &Job, wanted: &Resize, mut found: Resize) -> Option<Resize> {
    let owners = found.metadata.owner_references.get_or_insert_default();
    if owners.iter().all(|owner| owner.controller != Some(true)) {
        owners.push(controlled_by(job));
    }
    (found.spec.wants_the_same_as(&wanted.spec) && is_controlled_by(&found.metadata, job)).then_some(found)
}

/// The object. Everything that the job controller needs to look at it at once is in it.
pub(super) fn object(job: &Job, request: &ResizeRequest) -> Resize {
    let name =
        if request.idempotency_key.is_empty() { new_name(job) } else { name_of_key(job, &request.idempotency_key) };
    let mut object = Resize::new(&name, spec(job, request));
    let meta = &mut object.metadata;
    meta.owner_references = Some(vec![controlled_by(job)]);
    meta.labels = Some([(names::LABEL_JOB.to_owned(), job.name_any())].into());
    meta.annotations = telemetry::trace_context().map(|TraceContext { parent, state }| {
        let state = state.map(|state| (names::ANNOTATION_TRACE_STATE.to_owned(), state));
        [(names::ANNOTATION_TRACE_PARENT.to_owned(), parent)].into_iter().chain(state).collect()
    });
    object
}

/// The request of this name, as the API server has it. `unheard` is what it is if the API server does not say.
pub(super) async fn get(
    client: &Client,
    namespace: &str,
    name: &str,
    unheard: impl FnOnce(&str) -> Status,
) -> Result<Option<Resize>, Status> {
    find(client, namespace, name).await.map_err(|error| from_kubernetes(error, "name", unheard))
}

async fn find(client: &Client, namespace: &str, name: &str) -> kube::Result<Option<Resize>> {
    let api: Api<Delivered<Resize>> = Api::namespaced(client.clone(), namespace);
    // kube's `get_opt` takes every 404 for an object that is not there.
    absent(api.get(name).await)?.map(Delivered::readable).transpose()
}

/// Refuses a key that is too long.
pub(super) fn check_key(field: &str, key: &str) -> Result<(), Status> {
    if key.len() > KEY_MAX {
        return Err(errors::invalid_request(field, &format!("a key has at most {KEY_MAX} bytes")));
    }
    Ok(())
}

fn spec(job: &Job, request: &ResizeRequest) -> ResizeSpec {
    let regions = request.regions.iter().map(|desired| DesiredWidth {
        name: desired.region.clone(),
        width: desired.width,
        expected_width: desired.expected_width,
    });
    ResizeSpec {
        job_name: job.name_any(),
        regions: regions.collect(),
        expected_generation: request.expected_generation,
        policy: match request.policy() {
            Policy::Unspecified | Policy::Sticky => ResizePolicy::Sticky,
            Policy::Rebalance => ResizePolicy::Rebalance,
        },
    }
}

/// What an answer of the API server to a call about a request is to the caller (rule elasticity-13), who has said what
/// may be refused in this field. `unheard` is what it is if the API server does not say what it makes of the call.
pub(super) fn from_kubernetes(error: kube::Error, field: &str, unheard: impl FnOnce(&str) -> Status) -> Status {
    let request = Resize::new("", ResizeSpec::default());
    let error = written(&request, error);
    let message = match &error {
        Error::Call(error) => with_causes(error),
        Error::Refused { message, .. } => message.clone(),
        other => other.to_string(),
    };
    match &error {
        Error::NamespaceTerminating { .. } => errors::namespace_goes(&message),
        Error::Refused { .. } => errors::invalid_request(field, &message),
        _ if error.is_of_quota() => errors::over_quota(&message),
        _ if error.is_forbidden() => errors::not_permitted(&message),
        // Of calls that name no object that could be missing, and of a kind that is served: the namespace is gone.
        Error::Call(error) if is_not_found(error) => errors::namespace_goes(&message),
        _ => unheard(&message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::traces::carried_by;
    use crate::elasticity::tests::{service_with, with_retries};
    use crate::elasticity::writes::STORED_AT_ONCE_OF_ONE;
    use crate::mirrors::{Mirrors, trim};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
    use k8s_openapi::jiff::Timestamp;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::time::Duration;
    use streams_api::{BundleReference, CommittedResizes, JobSpec, ResizePhase, ResizeStatus};
    use streams_kubernetes::error::NOT_A_STATUS;
    use streams_kubernetes::metrics::Metrics;
    use streams_process::telemetry::testing;
    use streams_proto::elasticity::v1::resize_request;
    use tonic_types::StatusExt as _;

    /// An API server that has requests by name, and whose answers to the first creations are lost.
    #[derive(Default)]
    struct Forgetful {
        requests: BTreeMap<String, Resize>,
        creations: usize,
        reads: usize,
        unheard: usize,
        /// Only so many may be there; what comes of others.
        quota: Option<(usize, u16)>,
    }

    impl Forgetful {
        fn answer(&mut self, is_creation: bool, path: &str, body: &[u8]) -> (u16, serde_json::Value) {
            let status = |code: u16, reason: &str| {
                (code, json!({"kind": "Status", "status": "Failure", "reason": reason, "message": "", "code": code}))
            };
            if !is_creation {
                self.reads += 1;
                let name = path.rsplit('/').next().unwrap_or_default();
                let found = self.requests.get(name);
                return found.map_or_else(|| status(404, "NotFound"), |found| (200, json!(found)));
            }
            self.creations += 1;
            // This is looked at before the name is.
            if let Some((quota, code)) = self.quota
                && self.requests.len() >= quota
            {
                return (
                    code,
                    json!({"kind": "Status", "status": "Failure", "message": "exceeded quota: q", "code": code}),
                );
            }
            let mut made: Resize = serde_json::from_slice(body).unwrap();
            if self.requests.contains_key(&made.name_any()) {
                return status(409, "AlreadyExists");
            }
            made.metadata.uid = Some(format!("uid-{}", self.requests.len()));
            self.requests.insert(made.name_any(), made.clone());
            if self.creations <= self.unheard { status(503, "ServiceUnavailable") } else { (201, json!(made)) }
        }

        /// A client with the retries of the frontend.
        fn client(self) -> (Arc<Mutex<Self>>, Client) {
            let it = Arc::new(Mutex::new(self));
            let of_client = Arc::clone(&it);
            let server = tower::service_fn(move |request: http::Request<Body>| {
                let it = Arc::clone(&of_client);
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect_bytes().await.unwrap();
                    let is_creation = head.method == http::Method::POST;
                    let (code, answer) = it.lock().answer(is_creation, head.uri.path(), &body);
                    let answer = Body::from(serde_json::to_vec(&answer).unwrap());
                    Ok::<_, tower::BoxError>(http::Response::builder().status(code).body(answer).unwrap())
                }
            });
            (it, with_retries(server))
        }
    }

    /// What becomes of a request for a job, of which the mirror shows these requests.
    async fn requested(
        client: &Client,
        shown: &[Resize],
        job: &Job,
        request: &ResizeRequest,
    ) -> Result<Resize, Status> {
        let mirrors = Mirrors::new(&Metrics::new("test"));
        shown.iter().for_each(|shown| mirrors.resizes.insert(shown.clone()));
        let service = service_with(client.clone(), mirrors);
        let deadline = Instant::now() + Duration::from_secs(60);
        let made = service.requested(&Key::new("n", "flow"), job, request, None, deadline).await;
        made.map_err(|(Unmade::Refused(status) | Unmade::NotStored(status))| status)
    }

    /// What the caller expects would be judged against its own width.
    #[tokio::test(start_paused = true)]
    async fn a_creation_whose_answer_is_lost_makes_one_request_with_and_without_a_key() {
        let wanted =
            |expected_width| vec![resize_request::DesiredWidth { region: "R".to_owned(), width: 5, expected_width }];
        for key in ["", "k"] {
            for expected_width in [None, Some(2)] {
                let regions = wanted(expected_width);
                let request = ResizeRequest { idempotency_key: key.into(), regions, ..ResizeRequest::default() };
                let (server, client) = Forgetful { unheard: 1, ..Forgetful::default() }.client();
                let made = requested(&client, &[], &job(), &request).await.unwrap();
                let server = server.lock();
                assert_eq!(server.creations, 2, "{key} {expected_width:?}");
                let there: Vec<_> = server.requests.values().map(|request| &request.metadata.uid).collect();
                assert_eq!(there, [&made.metadata.uid], "{key} {expected_width:?}");
            }
        }
    }

    /// The first try takes the last place that the quota, or a policy, has.
    #[tokio::test(start_paused = true)]
    async fn a_creation_that_is_refused_after_one_that_was_not_heard_of_is_there_nevertheless() {
        for key in ["", "k"] {
            let request = ResizeRequest { idempotency_key: key.into(), ..ResizeRequest::default() };
            let table = [
                (1, (1, 403), None),
                (0, (1, 403), None),
                (0, (0, 403), Some("QUOTA_EXCEEDED")),
                (1, (1, 422), None),
                (0, (0, 422), Some("INVALID_REQUEST")),
                (1, (1, 400), None),
            ];
            for (unheard, quota, expected) in table {
                let (server, client) = Forgetful { unheard, quota: Some(quota), ..Forgetful::default() }.client();
                let made = requested(&client, &[], &job(), &request).await;
                let why =
                    made.as_ref().err().map(|status| status.get_error_details().error_info().unwrap().reason.clone());
                assert_eq!(why.as_deref(), expected, "{key} {unheard} {quota:?}");
                let server = server.lock();
                let there: Vec<_> = server.requests.values().map(|request| &request.metadata.uid).collect();
                let found: Vec<_> = made.iter().map(|made| &made.metadata.uid).collect();
                assert_eq!(found, there, "{key} {unheard} {quota:?}");
            }
        }
    }

    /// Nothing becomes of it, and finalizers may hold its object for long.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_being_deleted_is_the_same_one_only_if_something_became_of_it() {
        // it is being deleted, phase, the job says that it is committed -> it is found
        let table = [
            (false, ResizePhase::Pending, false, true),
            (true, ResizePhase::Pending, false, false),
            (true, ResizePhase::Planned, true, true),
            (true, ResizePhase::Written, false, true),
            (true, ResizePhase::Superseded, false, true),
        ];
        let request = ResizeRequest { idempotency_key: "k".into(), ..ResizeRequest::default() };
        for (is_deleted, phase, is_committed, is_found) in table {
            let mut found = object(&job(), &request);
            found.metadata.deletion_timestamp = is_deleted.then_some(Time(Timestamp::UNIX_EPOCH));
            let (number, generation) = (Some(3), Some(4));
            found.status = Some(ResizeStatus { phase: Some(phase), number, generation, ..ResizeStatus::default() });
            found.metadata.namespace = Some("n".to_owned());
            let requests = [(found.name_any(), found.clone())].into();
            let (_, client) = Forgetful { requests, ..Forgetful::default() }.client();
            let mut job = job();
            let resizes = is_committed.then_some(3).into_iter().collect();
            let committed = CommittedResizes { generation: 4, resizes, ..CommittedResizes::default() };
            job.status = Some(JobStatus { committed_resizes: vec![committed], ..JobStatus::default() });
            // The mirror is behind, or not.
            for shown in [&[], std::slice::from_ref(&found)] {
                let said = requested(&client, shown, &job, &request).await;
                let said = said.as_ref().map_err(Status::code).map(|found| found.name_any());
                let expected = if is_found { Ok(found.name_any()) } else { Err(Code::Unavailable) };
                assert_eq!(said, expected, "{is_deleted} {phase:?} {is_committed} {}", shown.len());
            }
        }
    }

    /// Each call with a key that is known would ask twice otherwise, and there may be thousands.
    #[tokio::test(start_paused = true)]
    async fn what_the_mirror_shows_of_a_key_is_not_asked_for() {
        let request = |width| {
            let regions = vec![resize_request::DesiredWidth { region: "R".into(), width, expected_width: None }];
            ResizeRequest { idempotency_key: "k".into(), regions, ..ResizeRequest::default() }
        };
        let mut there = object(&job(), &request(5));
        there.metadata.namespace = Some("n".to_owned());
        let shown = std::slice::from_ref(&there);
        // what the mirror shows, whether it is there, the width -> the code, creations, reads
        let table: [(&[Resize], bool, u32, Result<(), Code>, (usize, usize)); 6] = [
            (shown, true, 5, Ok(()), (0, 0)),
            (&[], true, 5, Ok(()), (1, 1)),
            (&[], false, 5, Ok(()), (1, 0)),
            (shown, true, 6, Err(Code::AlreadyExists), (0, 1)),
            (&[], true, 6, Err(Code::AlreadyExists), (1, 1)),
            // It is not there any more.
            (shown, false, 6, Ok(()), (1, 1)),
        ];
        for (shown, is_there, width, expected, calls) in table {
            let requests = is_there.then(|| (there.name_any(), there.clone())).into_iter().collect();
            let (server, client) = Forgetful { requests, ..Forgetful::default() }.client();
            let said = requested(&client, shown, &job(), &request(width)).await;
            assert_eq!(said.map(drop).map_err(|status| status.code()), expected, "{} {is_there} {width}", shown.len());
            let server = server.lock();
            assert_eq!((server.creations, server.reads), calls, "{} {is_there} {width}", shown.len());
        }
    }

    /// A crowd of calls with one key would ask once each, though the first of them has made it.
    #[tokio::test(start_paused = true)]
    async fn what_is_stored_while_a_call_waits_for_its_turn_is_not_stored_again() {
        let request = ResizeRequest { idempotency_key: "k".into(), ..ResizeRequest::default() };
        let mirrors = Mirrors::new(&Metrics::new("test"));
        let (server, client) = Forgetful::default().client();
        let service = service_with(client, mirrors.clone());
        let mut turns = Vec::new();
        for _ in 0..STORED_AT_ONCE_OF_ONE {
            turns.push(service.writes.storing.of_namespace.acquire("n").await);
        }
        let (key, job, deadline) = (Key::new("n", "flow"), job(), Instant::now() + Duration::from_secs(60));
        let mut waiting = std::pin::pin!(service.requested(&key, &job, &request, None, deadline));
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut waiting).await.is_err());
        let mut made = object(&job, &request);
        (made.metadata.namespace, made.metadata.uid) = (Some("n".to_owned()), Some("u".to_owned()));
        mirrors.resizes.insert(made);
        drop(turns);
        assert_eq!(waiting.await.unwrap().metadata.uid.as_deref(), Some("u"));
        assert_eq!(server.lock().creations, 0);
    }

    /// A job with as many requests as are kept has another answer for those that are there, and no call for others but
    /// one that takes its turn.
    #[tokio::test(start_paused = true)]
    async fn of_a_job_with_as_many_requests_as_are_kept_those_that_are_there_are_found() {
        let request = |key: &str| ResizeRequest { idempotency_key: key.to_owned(), ..ResizeRequest::default() };
        let of_key = |key: &str| {
            let mut made = object(&job(), &request(key));
            made.metadata.namespace = Some("n".to_owned());
            made
        };
        let shown: Vec<_> = (0..RESIZES_MAX).map(|number| of_key(&number.to_string())).collect();
        let other = of_key("other");
        // key -> the code, reads
        let table = [
            ("7", Ok(()), 0),
            ("other", Ok(()), 1),
            ("new", Err(Code::ResourceExhausted), 1),
            ("", Err(Code::ResourceExhausted), 0),
        ];
        for (key, expected, reads) in table {
            let requests = [(other.name_any(), other.clone())].into();
            let (server, client) = Forgetful { requests, ..Forgetful::default() }.client();
            let said = requested(&client, &shown, &job(), &request(key)).await;
            assert_eq!(said.map(drop).map_err(|status| status.code()), expected, "{key}");
            let server = server.lock();
            assert_eq!((server.creations, server.reads), (0, reads), "{key}");
        }
    }

    /// Each is kept for ten minutes after its end, and one caller could take the place of each that goes.
    #[tokio::test(start_paused = true)]
    async fn a_caller_that_is_known_leaves_requests_of_its_job_to_others() {
        let [me, you] = ["me", "you"].map(|name| CallerName(name.into()));
        let of = |caller: Option<&CallerName>, number: usize| {
            let mut made = object(&job(), &ResizeRequest::default());
            (made.metadata.namespace, made.metadata.name) = (Some("n".to_owned()), Some(format!("r{number}")));
            if let Some(caller) = caller {
                made.annotations_mut().insert(names::ANNOTATION_REQUESTED_BY.to_owned(), digits_of(caller));
            }
            trim::request(&mut made);
            made
        };
        // requests of me, of others; who asks -> whether it may
        let table = [
            (499, 0, Some(&me), true),
            (500, 0, Some(&me), false),
            (500, 0, Some(&you), true),
            (500, 0, None, true),
            (300, 400, Some(&me), false),
            (299, 400, Some(&me), true),
            (0, 999, Some(&me), true),
            (0, 1_000, Some(&me), false),
        ];
        for (mine, others, caller, may) in table {
            let mirrors = Mirrors::new(&Metrics::new("test"));
            let requests = (0..mine + others).map(|number| of((number < mine).then_some(&me), number));
            requests.for_each(|request| mirrors.resizes.insert(request));
            let (server, client) = Forgetful::default().client();
            let service = service_with(client, mirrors);
            let deadline = Instant::now() + Duration::from_secs(60);
            let (key, request) = (Key::new("n", "flow"), ResizeRequest::default());
            let made = service.requested(&key, &job(), &request, caller, deadline).await;
            let is_refused =
                |made: &Unmade| matches!(made, Unmade::Refused(status) if status.code() == Code::ResourceExhausted);
            assert!(made.as_ref().map_or_else(|unmade| !may && is_refused(unmade), |_| may), "{made:?}");
            let server = server.lock();
            let noted = server.requests.values().map(|made| made.annotations().get(names::ANNOTATION_REQUESTED_BY));
            let expected = may.then_some(caller.map(digits_of));
            assert_eq!(noted.map(Option::<&String>::cloned).next(), expected, "{mine} {others} {caller:?}");
        }
    }

    #[test]
    fn a_request_with_a_key_has_its_name_and_another_one_has_its_own() {
        let keyed = ResizeRequest { idempotency_key: "k".into(), ..ResizeRequest::default() };
        let name = |request: &ResizeRequest| object(&job(), request).name_any();
        assert_eq!(name(&keyed), "flow-9d96789a340ffdb657e9");
        let request = ResizeRequest::default();
        assert_ne!(name(&request), name(&request));
    }

    #[test]
    fn a_request_carries_the_whole_context_of_whoever_asked() {
        let _collected = testing::collect(&[]);
        let (parent, state) = ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "rojo=1,congo=2");
        for state in [None, Some(state)] {
            let span = tracing::info_span!("resize");
            telemetry::continue_context(
                &span,
                &TraceContext { parent: parent.into(), state: state.map(str::to_owned) },
            );
            let object = span.in_scope(|| object(&job(), &ResizeRequest::default()));
            let carried = carried_by(&object).unwrap();
            assert_eq!(carried.parent.split('-').nth(1), parent.split('-').nth(1));
            assert_eq!(carried.state.as_deref(), state);
        }
        assert_eq!(carried_by(&object(&job(), &ResizeRequest::default())), None);
    }

    fn job() -> Job {
        let mut job = Job::new("flow", JobSpec::of(BundleReference::default()));
        job.metadata.namespace = Some("n".to_owned());
        job.metadata.uid = Some("u1".to_owned());
        job
    }

    #[test]
    fn a_request_under_the_name_of_a_key_is_the_same_if_it_wants_the_same_and_nobody_else_controls_it() {
        let request = ResizeRequest { idempotency_key: "k".into(), ..ResizeRequest::default() };
        let wanted = object(&job(), &request);
        let owned_by = |owners: Vec<OwnerReference>| {
            let mut found = wanted.clone();
            found.metadata.owner_references = (!owners.is_empty()).then_some(owners);
            found
        };
        let of_another_job = OwnerReference { uid: "u2".to_owned(), ..controlled_by(&job()) };
        let of_nobody = OwnerReference { controller: None, ..of_another_job.clone() };
        let mut other = wanted.clone();
        other.spec.expected_generation = Some(3);
        let table = [
            (wanted.clone(), true),
            (owned_by(vec![]), true),
            (owned_by(vec![of_nobody]), true),
            (owned_by(vec![of_another_job]), false),
            (other, false),
        ];
        for (found, expected) in table {
            let same = same(&job(), &wanted, found.clone());
            assert_eq!(same.is_some(), expected, "{found:?}");
            assert!(same.is_none_or(|same| is_controlled_by(&same.metadata, &job())), "{found:?}");
        }
    }

    #[test]
    fn every_answer_of_the_api_server_has_a_reason_and_says_when_to_come_back_if_that_can_help() {
        let of_reason = |code: u16, reason: &str, message: &str| {
            kube::Error::Api(kube::core::Status::failure(message, reason).with_code(code).boxed())
        };
        let answer = |code: u16, message: &str, cause: Option<&str>| {
            let causes: Vec<_> = cause.map(|cause| json!({"reason": cause, "message": message})).into_iter().collect();
            let status = json!({"status": "Failure", "message": message, "code": code, "details": {"causes": causes}});
            let status: kube::core::Status = serde_json::from_value(status).unwrap();
            kube::Error::Api(status.boxed())
        };
        let going = Some("NamespaceTerminating");
        let table = [
            (
                answer(403, "because it is being terminated", going),
                Code::FailedPrecondition,
                "NAMESPACE_TERMINATING",
                false,
            ),
            (
                of_reason(404, "NotFound", "namespaces \"n\" not found"),
                Code::FailedPrecondition,
                "NAMESPACE_TERMINATING",
                false,
            ),
            // The kind is not served, or a gateway has answered.
            (of_reason(404, NOT_A_STATUS, "404 page not found"), Code::Unavailable, "NOT_TAKEN", true),
            (of_reason(422, NOT_A_STATUS, "HTTP 422"), Code::Unavailable, "NOT_TAKEN", true),
            (answer(403, "exceeded quota: q", None), Code::ResourceExhausted, "QUOTA_EXCEEDED", true),
            (answer(403, "policy", None), Code::PermissionDenied, "NOT_PERMITTED", false),
            (answer(422, "spec.regions: Too many", None), Code::InvalidArgument, "INVALID_REQUEST", false),
            (answer(413, "too large", None), Code::InvalidArgument, "INVALID_REQUEST", false),
            (answer(429, "later", None), Code::Unavailable, "NOT_TAKEN", true),
            (answer(500, "no leader", None), Code::Unavailable, "NOT_TAKEN", true),
            (kube::Error::LinesCodecMaxLineLengthExceeded, Code::Unavailable, "NOT_TAKEN", true),
        ];
        for (error, code, reason, again) in table {
            let status = from_kubernetes(error, "regions", errors::not_taken);
            let details = status.get_error_details();
            let said = details.error_info().map(|info| info.reason.as_str());
            assert_eq!((status.code(), said), (code, Some(reason)), "{status:?}");
            assert_eq!(details.retry_info().is_some(), again, "{status:?}");
        }
    }
}
