//! The REST contract with running PEs (the rules of `docs/rules/pe-api.md`).
//!
//! The runtime in a pod asks its frontend for the names of jobs and for its routes, and tells of its connections. Its
//! paths name no namespace and it can present no token, so the address of the pod says who asks.
//!
//! ```text
//!  connection ── server ──► caller ──► handler ──┬─► reads: mirrors, boards
//!                bounds     who asks             └─► body ─► writes: status of one object, until the mirror has it
//! ```
//!
//! | Module | What it does |
//! |---|---|
//! | [`server`] | the listener, and its bounds |
//! | [`callers`] | which pod an address belongs to |
//! | [`caller`] | who asks, and what it may do |
//! | [`memory`] | the memory that callers take |
//! | [`arriving`] | bodies of requests, and what they take of it |
//! | [`refusal`] | why something is not done, as a status code |
//! | [`lookup`] | finds what a path names |
//! | [`job_names`] | which job has a number |
//! | [`left_behind`] | PEs whose job was deleted without them |
//! | [`write`] | changes a status so that the next read sees it |
//! | [`reports`] | what PEs tell of their connections, until it is written |
//! | [`bundle_waits`] | which PEs have not got their bundles, until it is written |
//! | [`workers`] | the tasks that write both, and whether they go on |
//! | [`state`] | names of jobs, connectivity, widths |
//! | [`endpoints`] | ports that operators open under a name |
//! | [`endpoint_names`] | which PE has an endpoint of a name |
//! | [`reservations`] | of two PEs that register a name, one has it |
//! | [`unsettled`] | names that may be reserved for PEs that do not have them |
//! | [`subscriptions`] | routes; properties of exports; subscriptions and filters of imports |
//! | [`consistent_region`] | what PEs are told by their regions, and what they report |
//! | [`instance`] | the state of the instance, piece by piece |
//! | [`documents`] | that state as XML or JSON |
//! | [`bodies`] | what the XML of requests and answers says |
//!
//! Every replica serves it. Writes reach the controllers through the API server only.
//!
//! Knows: HTTP, what the runtime expects. Must not know: what controllers make of what is written.
//!
//! Invariants: nothing is answered from a mirror that is not filled; a write that was answered with 204 is in the
//! mirror and on the board of this replica; nothing blocks a thread, and what takes long is not done on one that serves
//! others.

mod arriving;
mod bodies;
mod bundle_waits;
mod caller;
mod callers;
mod consistent_region;
mod documents;
mod endpoint_names;
mod endpoints;
mod instance;
mod job_names;
mod left_behind;
mod lookup;
mod memory;
mod refusal;
mod reports;
mod reservations;
pub(crate) mod server;
mod state;
mod subscriptions;
#[cfg(test)]
mod tests;
mod unsettled;
mod workers;
mod write;

use self::bundle_waits::BundleWaits;
pub(crate) use self::callers::Callers;
use self::endpoint_names::EndpointNames;
use self::instance::Captures;
use self::job_names::JobNames;
use self::left_behind::LeftBehind;
use self::memory::Memory;
pub(crate) use self::reports::LedAway;
use self::reports::Reports;
use self::subscriptions::RouteDocuments;
use self::write::{Changes, ClusterChanges};
use crate::broker::Boards;
use crate::consistent_regions::ConsistentRegions;
use crate::long_objects::LongObjects;
use crate::mirrors::Mirrors;
use crate::status_changes::{Basis, StatusChanges, Turns};
use axum::Router;
use axum::response::Json;
use axum::routing::get;
use std::future::Future;
use std::sync::Arc;
use streams_kubernetes::cluster::{Cluster, Manager};
use streams_kubernetes::gate::Priority;
use streams_kubernetes::leadership::Term;
use streams_kubernetes::metrics::Metrics;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Field manager of what PEs tell.
const MANAGER: Manager = Manager("streams-pe-api");
/// Calls of the API server at the same time that PEs cause for one kind of the objects that they change. Those of each
/// kind have a gate of their own: they are in front of nothing that the controllers do, nor of calls for another kind.
/// What PEs tell of their connections is not among them: a thousand may tell at once, and the processors of the API
/// server are shared, whatever gate a call has passed.
pub(crate) const CALLS_OF_A_KIND: usize = 4;

/// What the handlers need. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PeApi {
    /// Where writes go.
    changes: Arc<dyn Changes>,
    /// What waits to be written of the connections of PEs.
    reports: Reports,
    /// What waits to be written of PEs that wait for their bundles.
    bundle_waits: BundleWaits,
    /// Whose turn it is to change an object.
    turns: Turns,
    /// Where long exports and imports are read and written as answers. They are changed elsewhere.
    long_objects: LongObjects,
    /// Where changes of them are decided.
    #[cfg(test)]
    long_changes: LongObjects,
    /// What there is.
    mirrors: Mirrors,
    /// Routes.
    boards: Boards,
    /// Who has which address.
    callers: Callers,
    /// Who has which endpoint.
    endpoint_names: EndpointNames,
    /// Which job has a number.
    job_names: JobNames,
    /// PEs without a job.
    left_behind: LeftBehind,
    /// Consistent regions.
    regions: ConsistentRegions,
    /// Which captures of the state go on.
    captures: Captures,
    /// Routes that are put together, or were not read yet.
    route_documents: RouteDocuments,
    /// The memory of bodies.
    memory: Memory,
}

impl PeApi {
    /// What the mirrors of these regions show, and writes to their cluster: those of each kind of objects to one that
    /// `of_a_kind` makes, whose calls wait for none of another kind. What PEs tell of their connections is written to
    /// `shared`, the cluster of the controllers, by tasks of the runtime around, unless `are_led_away`; and so is which
    /// PEs wait for their bundles.
    pub(crate) fn new<C: Cluster>(
        of_a_kind: impl Fn() -> C,
        shared: C,
        boards: Boards,
        callers: Callers,
        regions: ConsistentRegions,
        are_led_away: LedAway,
        metrics: &Metrics,
    ) -> Self {
        let mirrors = regions.mirrors.clone();
        let (turns, of_changes) = (Turns::default(), LongObjects::new());
        let statuses = |cluster| {
            let (basis, priority) = (Basis::Mirror, Priority::Normal);
            let (turns, long_objects) = (turns.clone(), of_changes.clone());
            StatusChanges { cluster, manager: MANAGER, basis, priority, turns, long_objects }
        };
        let (shared, elements) = (statuses(shared), &mirrors.processing_elements);
        let bundle_waits = BundleWaits::new(&shared, elements.clone(), metrics);
        let reports = Reports::new(shared, elements.clone(), are_led_away, metrics);
        regions.losses.are_known_by(reports.regions_with_losses(regions.members.clone()));
        let changes = Arc::new(ClusterChanges::new(mirrors.clone(), || statuses(of_a_kind())));
        let (endpoint_names, captures) = (EndpointNames::of(&mirrors.processing_elements), Captures::default());
        let (job_names, left_behind) = (JobNames::of(&mirrors.jobs), LeftBehind::of(&mirrors.processing_elements));
        Self {
            changes,
            reports,
            bundle_waits,
            turns,
            long_objects: LongObjects::new(),
            #[cfg(test)]
            long_changes: of_changes,
            mirrors,
            boards,
            callers,
            endpoint_names,
            job_names,
            left_behind,
            regions,
            captures,
            route_documents: RouteDocuments::default(),
            memory: arriving::memory(),
        }
    }

    /// Waits until one of its tasks has ended, because it has panicked or nobody has the API any more. Whoever waits
    /// does not have it.
    pub(crate) fn task_ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let (reports, bundle_waits) = (self.reports.ended(), self.bundle_waits.ended());
        async move {
            tokio::select! {
                () = reports => {}
                () = bundle_waits => {}
            }
        }
    }

    /// The turns of its changes, for others that change the same objects.
    pub(crate) fn turns(&self) -> Turns {
        self.turns.clone()
    }
}

/// What the OpenAPI document says beside the paths.
#[derive(utoipa::OpenApi)]
#[openapi(info(
    title = "PE API",
    description = "What running PEs ask of the frontend. The address of the calling pod says its namespace and job."
))]
struct Description;

/// The API over a cluster and what these mirrors show of it. Nobody drives the consistent regions. The mirrors are
/// filled after that. Some writes are made by tasks of the runtime around. Nothing settles the boards but the function
/// that is given besides: it gives one namespace its turn, and says whether one had it.
pub fn of_mirrors<C: Cluster>(
    cluster: C,
    mirrors: &Mirrors,
    metrics: &Metrics,
) -> (Router, impl Fn() -> bool + use<C>) {
    let regions = ConsistentRegions::of(mirrors, Term::endless());
    let (boards, callers, shared) = (Boards::of(mirrors), Callers::of(mirrors), cluster.clone());
    let of_a_kind = || cluster.clone();
    let api = PeApi::new(of_a_kind, shared, boards.clone(), callers, regions, Arc::new(|| false), metrics);
    (router(api), move || boards.settle_a_slice())
}

/// All paths, and their description under `/openapi.json`.
fn router(api: PeApi) -> Router {
    let (router, document) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(instance::capture))
        .routes(routes!(state::job_name))
        .routes(routes!(state::connectivity, state::set_connectivity))
        .routes(routes!(state::width, state::set_width))
        .routes(routes!(endpoints::of_pe))
        .routes(routes!(endpoints::of_job))
        .routes(routes!(endpoints::register, endpoints::unregister))
        .routes(routes!(subscriptions::routes_of_pe))
        .routes(routes!(subscriptions::exports::object))
        .routes(routes!(
            subscriptions::exports::read,
            subscriptions::exports::add,
            subscriptions::exports::replace,
            subscriptions::exports::remove
        ))
        .routes(routes!(
            subscriptions::exports::read_one,
            subscriptions::exports::add_one,
            subscriptions::exports::replace_one,
            subscriptions::exports::remove_one
        ))
        .routes(routes!(subscriptions::imports::object))
        .routes(routes!(subscriptions::imports::filter, subscriptions::imports::set_filter))
        .routes(routes!(subscriptions::imports::streams, subscriptions::imports::set_streams))
        .routes(routes!(consistent_region::told::of_pe))
        .routes(routes!(consistent_region::told::of_pe_and_region))
        .routes(routes!(consistent_region::told::state))
        .routes(routes!(consistent_region::told::last_completed))
        .routes(routes!(consistent_region::told::period))
        .routes(routes!(consistent_region::told::drain_timeout))
        .routes(routes!(consistent_region::told::reset_timeout))
        .routes(routes!(consistent_region::told::reset_attempts))
        .routes(routes!(consistent_region::told::trigger))
        .routes(routes!(consistent_region::reports::checkpoint))
        .routes(routes!(consistent_region::reports::blocking_checkpoint))
        .routes(routes!(consistent_region::reports::reset_done))
        .routes(routes!(consistent_region::reports::drain))
        .routes(routes!(consistent_region::reports::reset))
        .with_state(api)
        .split_for_parts();
    router.route("/openapi.json", get(async move || Json(document)))
}
