//! A service behind its guard: it is reached only by saying which right a call takes.

use super::reviewer::Right;
use super::{Access, Patience, Reviews, errors, token};
use crate::grpc::message::RequestMessage;
use crate::grpc::subject::Subject;
use crate::grpc::{deadline, transport};
use std::future::{Ready, ready};
use std::sync::Arc;
use tonic::{Request, Status};

/// Longest name of a namespace, or of an object.
const NAME_MAX: usize = 253;

/// The service. Whoever implements the methods of its contract for it has to ask the guard first.
pub(crate) struct Guarded<S> {
    service: S,
    access: Access,
    domain: &'static str,
}

/// What a right for single objects is worth nothing for, such as a list.
pub(crate) fn of_all<S>(_: &S) -> Ready<Result<Vec<String>, Status>> {
    ready(Ok(Vec::new()))
}

impl<S: Sync> Guarded<S> {
    /// This service, for callers that have the rights. `domain` is that of the details of its errors.
    pub(crate) fn new(service: S, access: Access, domain: &'static str) -> Self {
        Self { service, access, domain }
    }

    /// The service, for a call whose caller has this right: for all objects of the namespace, or for each of those that
    /// the call is about, whose names `named` finds; it finds none if not all of them are there.
    ///
    /// All that has to be found out for it together takes no longer than the call may wait. The message is counted
    /// before.
    ///
    /// # Errors
    /// The caller has not, or that is not known now; or there is no room for the message.
    pub(crate) async fn admit<'a, T: RequestMessage, F>(
        &'a self,
        call: &Request<T>,
        right: Right,
        named: impl FnOnce(&'a S) -> F + Send,
    ) -> Result<&'a S, Status>
    where
        F: Future<Output = Result<Vec<String>, Status>> + Send,
    {
        transport::count(call.extensions(), size_of::<T>() + call.get_ref().in_memory())?;
        let Access::Reviewed(reviews) = &self.access else { return Ok(&self.service) };
        // Without one, rights would be those in the whole cluster.
        if right.namespace.is_empty() || right.namespace.len() > NAME_MAX {
            return Err(errors::no_namespace(self.domain, T::NAMESPACE));
        }
        let unknown = || errors::unauthenticated(self.domain, token::Unusable::Missing, reviews.reviewer.audiences());
        let subject = call.extensions().get::<Arc<Subject>>().ok_or_else(unknown)?;
        let patience = Patience::of(deadline::wait_of(call));
        if self.has(reviews, patience, subject, &right).await? {
            return Ok(&self.service);
        }
        let named = named(&self.service);
        let names = reviews.in_time(patience, async { Ok(named.await) }).await;
        let names = names.map_err(|why| errors::unanswered(self.domain, "what the call is about", &why))??;
        if names.is_empty() || names.iter().any(|name| name.len() > NAME_MAX) {
            return Err(errors::access_denied(self.domain, subject, &right));
        }
        for name in names {
            let right = right.for_one(name);
            if !self.has(reviews, patience, subject, &right).await? {
                return Err(errors::access_denied(self.domain, subject, &right));
            }
        }
        Ok(&self.service)
    }

    async fn has(
        &self,
        reviews: &Reviews,
        patience: Patience,
        subject: &Arc<Subject>,
        right: &Right,
    ) -> Result<bool, Status> {
        let what = "the API server to say what the caller may";
        let answer = reviews.may(subject, right, patience).await;
        answer.map_err(|why| errors::unanswered(self.domain, what, &why))
    }
}
