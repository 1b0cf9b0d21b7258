//! Runs the stages: to submit a job, to resize it, and to restore it from its layout.
//!
//! ```text
//! Source, Request --submit--> Compiled --resize--> Compiled        Compiled: Plan (for a controller), render (texts)
//!                             Compiled --record--> layout bytes --restore--> Compiled
//! ```
//!
//! [`submit()`], [`resize()`], [`replay()`] and [`restore()`] are pure functions. [`check()`] finds the problems of all
//! stages, as far as they are no consequence of another problem (rule layout-15). A [`Plan`] lists the PEs, what each
//! needs besides its document, and the fate of each. [`Compiled::render`] writes the texts later, for a job that was
//! restored from its layout as well. The [`Layout`] keeps numbers stable: operator indexes, splitters, host pools, PE
//! ids, PE port ids. A change of a document restarts its PE only if a running PE can observe it.
//!
//! * `request` is the input; `assemble` is the common second half of these functions: a topology and its PEs become a
//!   compiled job;
//! * `resize` (with [`replay()`]) and `restore` start from a job that exists; `check` goes on past problems;
//! * `element` is a PE of a plan, with its `placement`; `plan_texts` bounds their texts; `consistent` has
//!   the consistent regions of a plan;
//! * `change` decides what a resize does to each PE, `reason` explains why, `closed` notes which take nothing new;
//! * `layout` is the type; `record` makes one from a compiled job; `layout_bytes` encodes and decodes it,
//!   and `layout_counts` bounds what is decoded.
//!
//! What an operator as written says (its regions, annotations, locations, variables) is asked once per `OperatorId`,
//! for all its copies and connections: there may be very much of it, and of these.
//!
//! Knows: all stages. Must not know: gRPC, files, Kubernetes, anything about a job that is not in its arguments.
//!
//! Invariants: the same arguments give the same plan, bytes included. A job from [`restore()`] renders the same texts
//! as the job that made the layout. A refusal begins with the first problem of the first failing stage; the stages
//! behind `fuse` report together (rule layout-14).

mod assemble;
mod change;
mod check;
mod closed;
mod consistent;
mod element;
mod layout;
mod layout_bytes;
mod layout_counts;
mod placement;
mod plan_texts;
mod reason;
mod record;
mod request;
mod resize;
mod restore;
#[cfg(test)]
mod tests;

pub use crate::elements::{InUse, PortsInUse};
pub use check::{Checked, check};
pub use consistent::{PlannedConsistentRegion, RegionMember, Trigger};
pub use element::{ExportedPort, Fate, ImportedPort, PlannedElement, PortLabel, ProcessingElement};
pub use layout::{
    Digest, Layout, LayoutElement, LayoutError, LayoutInputPort, LayoutOutputPort, RestoreError, SplitterTree,
};
pub use placement::Placement;
pub use reason::{Reason, SomeOperators};
pub use request::{FusionOption, Request, Source};
pub use resize::{Policy, Replay, replay, resize};
pub use restore::restore;

use crate::aadl::{WriteError, Writer};
use crate::budget::Budget;
use crate::elements::Elements;
use crate::error::Error;
use crate::fuser::{AutomaticFusion, Fusion, Graph};
use crate::heap;
use crate::logical::submission::Bindings;
use crate::logical::{Dialect, HostPool};
use crate::topology::{ChangedOperatorNames, Region, Topology};
use get_size2::GetSize;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// Version of this compiler, as plans record it.
pub const COMPILER: &str = env!("CARGO_PKG_VERSION");

/// The result of a compilation (rule layout-10).
#[derive(Clone, Debug, PartialEq, GetSize)]
pub struct Plan {
    /// Version of the compiler.
    pub compiler: String,
    /// SHA-256 of the ADL.
    pub adl: Digest,
    /// The vocabulary of the ADL.
    pub dialect: Dialect,
    /// Name of the application.
    pub application_name: String,
    /// Its scope.
    pub application_scope: String,
    /// Parallel regions, ascending index.
    pub regions: Vec<PlannedRegion>,
    /// Host pools, ascending index.
    pub host_pools: Vec<HostPool>,
    /// Consistent regions, ascending index.
    pub consistent_regions: Vec<PlannedConsistentRegion>,
    /// PEs, ascending id.
    pub elements: Vec<PlannedElement>,
    /// Operators that want a host for their PE alone, with the id of that PE, sorted.
    pub isolated: Vec<(String, u64)>,
    /// The figures of automatic fusion, if it computed the number of PEs for this plan.
    pub automatic: Option<AutomaticFusion>,
    /// What a resize changed; none for a submission.
    pub change: Option<ResizeChange>,
    /// What a user should know, although the compilation succeeded.
    pub warnings: Vec<Warning>,
}

/// A parallel region of a plan.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct PlannedRegion {
    /// Index, name and width.
    pub region: Region,
    /// Each channel has PEs that no other channel and nothing outside shares (rule layout-10).
    pub channels_have_own_pes: bool,
    /// Operators of a consistent region are inside, or connected to one that is.
    pub touches_consistent_region: bool,
}

/// What a resize changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, GetSize)]
pub struct ResizeChange {
    /// Operators, by name.
    pub operators: ChangedOperatorNames,
    /// PEs that are gone, ascending id.
    pub removed: Vec<RemovedElement>,
    /// PEs that were to take nothing new, ascending id.
    pub closed: Vec<u64>,
}

/// What the caller of a resize knows of the running job, and its layout does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobState {
    /// Ids that are not to be given to others.
    pub in_use: InUse,
    /// Ids of PEs that take no new operators, because they will not run again by themselves (rule fusion-29).
    pub closed: BTreeSet<u64>,
}

/// A PE that a resize removes.
#[derive(Clone, Debug, PartialEq, Eq, GetSize)]
pub struct RemovedElement {
    /// Id.
    pub id: u64,
    /// SHA-256 of its document.
    pub content_id: Digest,
    /// SHA-256 of what could be observed of its document.
    pub runtime_id: Digest,
    /// Why, if anything but its id is known.
    pub reason: Option<Reason>,
}

/// A part of the request that has no effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, GetSize)]
pub struct Warning {
    /// A word for conditions and Events.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
}

impl Plan {
    /// The PE of this id.
    pub fn element(&self, id: u64) -> Option<&PlannedElement> {
        let position = self.elements.binary_search_by_key(&id, |element| element.id).ok()?;
        self.elements.get(position)
    }

    /// Operators of other PEs that want a host for their PE alone, sorted. The pod of this PE keeps away from their
    /// pods.
    pub fn isolation_labels(&self, id: u64) -> impl Iterator<Item = &str> {
        self.isolated.iter().filter(move |(_, pe)| *pe != id).map(|(name, _)| name.as_str())
    }
}

/// A compiled job: its plan, and everything that writing its documents or resizing it needs.
#[derive(Debug)]
pub struct Compiled {
    source: Source,
    request: Arc<Request>,
    bindings: Bindings,
    elements: Elements,
    writer: Writer,
    plan: Plan,
    /// The number of PEs that automatic fusion computed at the submission.
    automatic_count: Option<u32>,
}

impl Compiled {
    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The PEs with their operators and ports.
    pub fn elements(&self) -> &Elements {
        &self.elements
    }

    /// The application as it runs.
    pub fn topology(&self) -> &Arc<Topology> {
        self.elements.topology()
    }

    /// What was asked for.
    pub fn request(&self) -> &Arc<Request> {
        &self.request
    }

    /// Submission-time values, as they are bound.
    pub(crate) fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// How operators are grouped, with the number of PEs that automatic fusion computed for the job. `graph` must be
    /// that of its topology.
    pub(crate) fn fusion(&self, graph: &Graph<'_>) -> Result<Fusion, Error> {
        let checked = self.request.fusion.check(self.request.fusion_type, self.automatic_count)?;
        Ok(checked.resolve(graph)?.fusion)
    }

    /// Passes the document of a PE to `sink` as this version of the compiler writes it. If another version made the
    /// layout, the text may differ from the one that the layout names.
    pub(crate) fn write(&self, id: u64, sink: &mut dyn io::Write, budget: &Budget) -> Result<Digest, RenderError> {
        let pe = self.elements.find(id).ok_or(RenderError::UnknownElement(id))?;
        let (content_id, _) = self.writer.render(&self.elements, pe, sink, budget)?;
        Ok(content_id)
    }

    /// Passes the document of a PE to `sink`, in pieces.
    ///
    /// # Errors
    ///
    /// The plan has no such PE, the text is not the one that the plan names (rule layout-6), or it cannot be written.
    pub fn render(&self, id: u64, sink: &mut dyn io::Write, budget: &Budget) -> Result<(), RenderError> {
        let element = self.plan.element(id).ok_or(RenderError::UnknownElement(id))?;
        let content_id = self.write(id, sink, budget)?;
        if content_id == element.content_id { Ok(()) } else { Err(RenderError::OtherText(id)) }
    }

    /// The application that the job was compiled from, which it holds.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Bytes of memory that the job takes without its application, but with everything that its caller gave. Takes time
    /// linear in the size of the job.
    pub fn weight(&self) -> u64 {
        let Self { source: _, request, bindings, elements, writer, plan, automatic_count: _ } = self;
        // Every generation counts the whole, because the other generations may be dropped first.
        let asked = heap::once(|| {
            let given = size_of::<Request>() + heap::size(&**request) + heap::size(bindings);
            given + heap::size(elements) + heap::size(writer) + heap::size(plan)
        });
        // An allocator rounds up and keeps books.
        let taken = asked + asked / 8 + size_of::<Self>();
        taken as u64
    }
}

/// Why a document was not rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The plan has no such PE.
    #[error("the plan has no PE {0}")]
    UnknownElement(u64),
    /// The layout was made from something else, or by another compiler; the bytes that were passed on are of no use.
    #[error("the text of PE {0} is not the one that the plan names")]
    OtherText(u64),
    /// It could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Compiles an application for a new job.
///
/// # Errors
///
/// The problems of the first stage that has any. The stages behind fusion report theirs together. [`check()`] finds
/// more.
pub fn submit(source: &Source, request: &Arc<Request>, budget: &Budget) -> Result<Compiled, Error> {
    let fusion = request.fusion.check(request.fusion_type, None)?;
    let bound = request::BoundRequest::new(source, request, budget)?;
    let topology = bound.expand(source, request.widths.clone(), budget)?;
    let compiled = assemble::from_scratch(bound, topology, &fusion, budget)?;
    compiled.finish(source, request, budget)
}
