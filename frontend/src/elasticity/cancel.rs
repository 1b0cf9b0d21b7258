//! Withdraws requests (rule elasticity-22).
//!
//! A request is committed by a write of its job, and withdrawn by an annotation of its own; no write can have both. So
//! the annotation only asks, and the controller, which makes both writes, decides: a call answers what has become of
//! the request then. It never says that a request is cancelled which a generation has.

use super::outcome;
use super::state::{phase, state};
use super::view::ClusterView;
use super::writes::{Unanswered, Write, WriteCalls};
use super::{Elasticity, errors, requests};
use crate::grpc::places::CallerName;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use streams_api::resize::name_of_key;
use streams_api::{Resize, names};
use streams_kubernetes::Key;
use streams_kubernetes::delivered::Delivered;
use streams_kubernetes::error::is_not_found;
use streams_kubernetes::watch::version;
use streams_proto::elasticity::v1::{ResizeName, ResizePhase, ResizeState};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

/// How long to wait after a request was written between a look at it and the write that asks to cancel it.
const PAUSE: Duration = Duration::from_millis(100);

/// What somebody waits for who withdraws a request.
const WAITING_FOR: &str = "the request to be cancelled";

/// The name of a request, as a call has it or as it follows from a key.
struct Named {
    namespace: String,
    request: String,
    /// The job that it has to be a request of, if the call says that.
    job: String,
}

impl Named {
    /// What was found under this name, if it is a request of that job.
    fn checked(&self, found: Option<Arc<Resize>>) -> Result<Arc<Resize>, Status> {
        let is_it = |found: &Arc<Resize>| self.job.is_empty() || found.spec.job_name == self.job;
        found.filter(is_it).ok_or_else(|| errors::resize_not_found(&self.namespace, &self.request))
    }
}

impl<V: ClusterView> Elasticity<V> {
    /// The request of this name or key: what the mirror shows; if it shows none, what the API server has, for which
    /// this caller waits until `deadline` at most.
    ///
    /// # Errors
    /// There is none, or the name is none; or it is not known now.
    pub(super) async fn named(
        &self,
        name: Option<ResizeName>,
        caller: Option<&CallerName>,
        deadline: Instant,
    ) -> Result<Arc<Resize>, Status> {
        let named = self.name_of(name)?;
        let found = match self.view.resize(&named.namespace, &named.request) {
            Some(found) => Some(found),
            // Another frontend may have made it just now.
            None => self.look_up(&named.namespace, &named.request, "", caller, deadline).await?.map(Arc::new),
        };
        named.checked(found)
    }

    /// The same for somebody who perhaps has no right in the namespace.
    ///
    /// # Errors
    /// The same.
    pub(super) async fn named_for(
        &self,
        name: Option<ResizeName>,
        caller: Option<&CallerName>,
        deadline: Instant,
    ) -> Result<Arc<Resize>, Status> {
        let named = self.name_of(name)?;
        let found = match self.view.resize(&named.namespace, &named.request) {
            Some(found) => Some(found),
            None => self.look_up_for(&named.namespace, &named.request, caller, deadline).await?.map(Arc::new),
        };
        named.checked(found)
    }

    fn name_of(&self, name: Option<ResizeName>) -> Result<Named, Status> {
        let name = name.ok_or_else(|| errors::invalid_request("name", "a request is to be named"))?;
        let ResizeName { namespace, job, request, idempotency_key } = name;
        super::service::check_namespace("name.namespace", &namespace)?;
        match (request.is_empty(), idempotency_key.is_empty()) {
            (false, true) => super::service::check_name("name.request", &request)?,
            (true, false) => {
                super::service::check_name("name.job", &job)?;
                requests::check_key("name.idempotency_key", &idempotency_key)?;
            }
            _ => {
                let message = "either the name of a request is needed, or its job and key";
                return Err(errors::invalid_request("name.request", message));
            }
        }
        self.sees(&namespace)?;
        let request =
            if request.is_empty() { name_of_key(&*self.job(&namespace, &job)?, &idempotency_key) } else { request };
        Ok(Named { namespace, request, job })
    }

    /// A request as the API shows it.
    pub(super) fn state_of(&self, request: &Resize) -> ResizeState {
        state(request, self.job_around(request).as_deref())
    }

    /// Withdraws a request, and waits until it is cancelled.
    ///
    /// # Errors
    /// It is committed, or ended otherwise; or it is not known yet.
    pub(super) async fn withdraw(
        &self,
        found: Arc<Resize>,
        caller: Option<&CallerName>,
        deadline: Instant,
    ) -> Result<ResizeState, Status> {
        let (namespace, name) = (found.namespace().unwrap_or_default(), found.name_any());
        let mut changes = self.view.changes(&namespace, &found.spec.job_name);
        let followed = self.followed.request(&Key::of(&*found));
        let mut presence = self.presence_of(&found, caller, deadline);
        let mut place = None;
        let mut latest = found;
        loop {
            changes.mark_unchanged();
            let shown = followed.now(&*self.view).map(|shown| shown.request);
            let shown = shown.filter(|shown| shown.metadata.uid == latest.metadata.uid);
            let is_gone = presence.is_gone(shown.is_some());
            // The mirror may be older than what the API server has answered.
            let shown = shown.filter(|shown| version(&shown.metadata) >= version(&latest.metadata));
            let request = shown.unwrap_or_else(|| Arc::clone(&latest));
            latest = Arc::clone(&request);
            // Finalizers may hold its object for long.
            let is_gone = is_gone || request.metadata.deletion_timestamp.is_some();
            let job = self.job_around(&request);
            let is_going = job.as_ref().is_some_and(|job| job.metadata.deletion_timestamp.is_some());
            match phase(&request, job.as_deref()) {
                ResizePhase::Cancelled => return Ok(self.state_of(&self.whole(&request))),
                ended @ (ResizePhase::Refused | ResizePhase::Superseded) => {
                    let phase = if ended == ResizePhase::Refused { "Refused" } else { "Superseded" };
                    return Err(errors::already_ended(&name, phase, &self.state_of(&self.whole(&request)).message));
                }
                ResizePhase::Committed | ResizePhase::RolledOut => {
                    let status = job.and_then(|job| job.status.clone()).unwrap_or_default();
                    let generation = outcome::committed(&request, &status).map_or(0, |(generation, _)| generation);
                    return Err(errors::already_committed(&name, generation));
                }
                _ if is_gone => return Err(errors::resize_not_found(&namespace, &name)),
                // Nobody looks at its requests any more.
                _ if is_going => return Err(errors::job_goes(&namespace, &request.spec.job_name, &name)),
                ResizePhase::Unspecified | ResizePhase::Pending | ResizePhase::Planned => {}
            }
            // Without a job nobody looks at it for a while, and it stays withdrawn.
            if presence.is_decided()
                && request.is_withdrawn()
                && self.view.job(&namespace, &request.spec.job_name).is_none()
            {
                return Err(errors::job_not_found(&namespace, &request.spec.job_name, &name));
            }
            if place.is_none() {
                let taken = self.withdrawing.take(&namespace, Some(&request.spec.job_name), caller);
                place = Some(taken.map_err(|full| errors::too_many_waiting("withdrawals", &full))?);
            }
            if !request.is_withdrawn() {
                let asked = async {
                    let asked = self.ask_to_cancel(&request, caller, deadline).await;
                    if asked.as_ref().is_ok_and(|asked| !asked.is_withdrawn()) {
                        tokio::time::sleep(PAUSE).await;
                    }
                    asked
                };
                latest = tokio::select! {
                    biased;
                    asked = asked => asked?,
                    () = self.stopping.cancelled() => return Err(errors::shutting_down_while(&name, WAITING_FOR)),
                    () = tokio::time::sleep_until(deadline) => return Err(errors::still_waiting_to(&name, WAITING_FOR)),
                };
                continue;
            }
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return Err(errors::shutting_down_while(&name, WAITING_FOR)),
                () = presence.gone_unseen() => {}
                changed = timeout_at(deadline, changes.changed()) => match changed {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Err(errors::shutting_down_while(&name, WAITING_FOR)),
                    Err(_) => return Err(errors::still_waiting_to(&name, WAITING_FOR)),
                },
            }
        }
    }

    /// All of a request, of which what is kept for who follows it has no regions.
    fn whole(&self, request: &Arc<Resize>) -> Arc<Resize> {
        let shown = self.view.resize(&request.namespace().unwrap_or_default(), &request.name_any());
        let is_it = |shown: &Arc<Resize>| {
            let (shown, meta) = (&shown.metadata, &request.metadata);
            shown.uid == meta.uid && version(shown) >= version(meta)
        };
        shown.filter(is_it).unwrap_or_else(|| Arc::clone(request))
    }

    /// What there is of a request after [`asked_to_cancel`], once it was the turn of the caller.
    async fn ask_to_cancel(
        &self,
        request: &Arc<Resize>,
        caller: Option<&CallerName>,
        deadline: Instant,
    ) -> Result<Arc<Resize>, Status> {
        let (name, job) = (request.name_any(), Key::of(&**request).sibling(&request.spec.job_name));
        let asked = |calls| asked_to_cancel(self.client.clone(), Arc::clone(request), calls);
        self.write(Write::Withdraw, &job, caller, deadline, asked).await.unwrap_or_else(|unanswered| {
            Err(match unanswered {
                Unanswered::NotSent => errors::still_waiting_unwritten(&name, WAITING_FOR),
                Unanswered::Stopping => errors::shutting_down_unwritten(&name, WAITING_FOR),
                Unanswered::Late => errors::still_waiting_to(&name, WAITING_FOR),
                Unanswered::Lost => errors::shutting_down_while(&name, WAITING_FOR),
            })
        })
    }
}

/// Asks the controller to cancel a request, unless somebody has written the request since it was seen; then what is
/// there now.
async fn asked_to_cancel(client: Client, request: Arc<Resize>, mut calls: WriteCalls) -> Result<Arc<Resize>, Status> {
    let (namespace, name) = (request.namespace().unwrap_or_default(), request.name_any());
    let api: Api<Delivered<Resize>> = Api::namespaced(client.clone(), &namespace);
    let patch = json!({"metadata": {
        "uid": request.uid(),
        "resourceVersion": request.resource_version(),
        "annotations": {names::ANNOTATION_CANCEL_REQUESTED: names::ELASTICITY_MANAGER},
    }});
    let parameters =
        PatchParams { field_manager: Some(names::ELASTICITY_MANAGER.to_owned()), ..PatchParams::default() };
    let asked = calls.make(api.patch(&name, &parameters, &Patch::Merge(&patch))).await;
    match asked.and_then(Delivered::readable) {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let unheard = |why: &str| errors::not_looked_up(&name, why);
            let found = calls.make(requests::get(&client, &namespace, &name, unheard)).await;
            let found = found.map_err(|status| errors::perhaps_withdrawn(&name, status.message()))?;
            let found = found.filter(|found| found.uid() == request.uid());
            found.map(Arc::new).ok_or_else(|| errors::resize_not_found(&namespace, &name))
        }
        Err(error) if is_not_found(&error) => Err(errors::resize_not_found(&namespace, &name)),
        Err(error) => {
            let unheard = |why: &str| errors::perhaps_withdrawn(&name, why);
            Err(requests::from_kubernetes(error, "name", unheard))
        }
        Ok(asked) => Ok(Arc::new(asked)),
    }
}
