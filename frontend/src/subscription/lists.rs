//! Exports and imports in pages, by job, PE and port, and long ones (rule import-8).
//!
//! A namespace may have thousands, which the mirrors keep packed, and each is asked for at its board; and one of a
//! megabyte takes as long as hundreds. So both are made beside the threads that serve everybody ([`long_objects`]).
//!
//! Invariants: so many calls wait for their lists. Callers of a namespace that are known take turns. No change waits
//! for a list.
//!
//! [`long_objects`]: crate::long_objects

use super::service::{check_name, check_namespace};
use super::{SubscriptionApi, errors, shown};
use crate::grpc::pages::Page;
use crate::grpc::places::{CallerName, NOTHING, Places, turns_of};
use crate::long_objects::LongObjects;
use crate::mirrors::ByOwner as _;
use std::sync::Arc;
use streams_kubernetes::Key;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::queue::Owner;
use streams_kubernetes::watch::{Mirrored, Watch};
use streams_proto::subscription::v1::{
    ListExportsRequest, ListExportsResponse, ListImportsRequest, ListImportsResponse,
};
use tokio::time::Instant;
use tonic::Status;

/// Calls that wait for a list or have one, of one namespace a quarter at most; further ones are refused.
const WAITING_MAX: usize = 4_096;
pub(super) const WAITING_OF_ONE_MAX: usize = 1_024;
/// Entries of a page if the caller does not say: an entry may be large.
const OF_A_PAGE: usize = 100;

/// Where an entry is in its list: job, PE, port; and the name, if several objects say that they are of one port.
type Place = (String, u64, u32, String);

/// Whose turn it is, and who waits.
pub(super) struct Lists {
    pub(super) waiting: Places,
    pub(super) long_objects: LongObjects,
}

impl Lists {
    /// Nobody asks for any.
    pub(super) fn new() -> Self {
        Self { waiting: Places::new(WAITING_MAX, WAITING_OF_ONE_MAX), long_objects: LongObjects::new() }
    }
}

impl<C: Cluster> SubscriptionApi<C> {
    /// A page of exports, if it can be made in time.
    pub(super) async fn exports_in_pages(
        &self,
        request: ListExportsRequest,
        caller: Option<&CallerName>,
        until: Instant,
    ) -> Result<ListExportsResponse, Status> {
        let ListExportsRequest { namespace, job, page_size, page_token } = request;
        let page = self.page("exports", &namespace, &job, page_size, &page_token)?;
        let list = move |api: &Self, namespace: &str| {
            let all = objects(&api.shared.mirrors.exports, namespace, &job).into_iter().map(|object| {
                let spec = &object.spec;
                let name = object.metadata.name.clone().unwrap_or_default();
                ((spec.job_name.clone(), spec.pe_id, spec.port_id, name), object)
            });
            page.cut(all.collect(), |object| shown::export(&object, &api.shared.boards))
        };
        let (exports, next_page_token) = self.listed(namespace, caller, until, list).await?;
        Ok(ListExportsResponse { exports, next_page_token })
    }

    /// A page of imports, if it can be made in time.
    pub(super) async fn imports_in_pages(
        &self,
        request: ListImportsRequest,
        caller: Option<&CallerName>,
        until: Instant,
    ) -> Result<ListImportsResponse, Status> {
        let ListImportsRequest { namespace, job, page_size, page_token } = request;
        let page = self.page("imports", &namespace, &job, page_size, &page_token)?;
        let list = move |api: &Self, namespace: &str| {
            let all = objects(&api.shared.mirrors.imports, namespace, &job).into_iter().map(|object| {
                let spec = &object.spec;
                let name = object.metadata.name.clone().unwrap_or_default();
                ((spec.job_name.clone(), spec.pe_id, spec.port_id, name), object)
            });
            page.cut(all.collect(), |object| shown::import(&object, &api.shared.boards))
        };
        let (imports, next_page_token) = self.listed(namespace, caller, until, list).await?;
        Ok(ListImportsResponse { imports, next_page_token })
    }

    /// What `list` makes of the objects of a namespace, on a thread that serves nobody else. It goes on if the caller
    /// leaves.
    ///
    /// # Errors
    /// Too many wait, this one has waited for too long, or this frontend is to stop; or `list` panicked.
    pub(super) async fn listed<T: Send + 'static>(
        &self,
        namespace: String,
        caller: Option<&CallerName>,
        until: Instant,
        list: impl FnOnce(&Self, &str) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let _place = self.place_among(&self.shared.lists.waiting, &namespace, caller)?;
        let work = self.in_turn(&self.shared.lists.long_objects, &namespace, caller, list);
        self.in_time(until, "other lists to be made", work).await
    }

    /// The same among these turns, for a call that has its place, and is waited for by somebody else.
    ///
    /// # Errors
    /// `make` panicked, or this frontend ends.
    pub(super) async fn in_turn<T: Send + 'static>(
        &self,
        long_objects: &LongObjects,
        namespace: &str,
        caller: Option<&CallerName>,
        make: impl FnOnce(&Self, &str) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let group = if self.has_any(namespace) { namespace } else { NOTHING };
        let owner = Owner { namespace: group.into(), object: turns_of(caller) };
        let (api, namespace) = (self.clone(), namespace.to_owned());
        let done = long_objects.aside(owner, move || make(&api, &namespace)).await;
        done.map_err(|_| Status::internal("what was asked for could not be looked at"))
    }

    /// What is asked for of a list; of all jobs of the namespace, if none is named.
    ///
    /// # Errors
    /// A name is none, there is no such job, or the token is of another list.
    fn page(&self, of: &str, namespace: &str, job: &str, size: u32, token: &str) -> Result<Page<Place>, Status> {
        check_namespace("namespace", namespace)?;
        if !job.is_empty() {
            check_name("job", job)?;
            if !self.shared.mirrors.jobs.contains(&Key::new(namespace, job)) {
                return Err(errors::job_not_found(namespace, job));
            }
        }
        let list = format!("{of} of {namespace}/{job}");
        Page::of(list, size, token, Some(OF_A_PAGE)).map_err(errors::bad_token)
    }
}

/// The objects of a job, or of all jobs of the namespace.
fn objects<K: Mirrored>(mirror: &Watch<K>, namespace: &str, job: &str) -> Vec<Arc<K>> {
    if job.is_empty() {
        return mirror.of_namespace(namespace).collect();
    }
    mirror.of_job(&Key::new(namespace, job)).collect()
}
