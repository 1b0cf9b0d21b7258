//! Pictures of an application: as written, as it runs, and as PEs; of a resize as a difference.
//!
//! ```text
//! Application ─► logical ─┐                                    ┌─► dot
//!                         ├─► Outline ─fold─► Drawing ─────────┼─► mermaid
//! Compiled ─► running ────┘                                    └─layout─► svg
//! ```
//!
//! A view makes an [`outline`]: all that could be drawn. [`fold`] makes a [`Drawing`] of bounded size of it. Writers
//! know nothing of applications; [`layout`] gives every box a place, and only the SVG writer needs one.
//!
//! Knows: the application, topologies, plans. Must not know: files, arguments, AADL.
//!
//! Invariants: the same arguments give the same bytes; whatever names an application has, a text is well-formed; all
//! operators of the application are in some node; boxes do not overlap and are inside the box of their cluster.

mod boundary;
mod dot;
mod drawing;
mod fold;
mod layout;
mod logical;
mod measure;
mod mermaid;
mod outline;
mod running;
mod subject;
mod svg;
#[cfg(test)]
mod tests;
mod text;

pub use drawing::{Cluster, ClusterId, ClusterKind, Drawing, Edge, End, Mark, Node, NodeId, NodeKind};
pub use logical::Widths;

use streams_compiler::budget::Budget;
use streams_compiler::error::Error;
use streams_compiler::logical::Application;
use streams_compiler::plan::Compiled;

/// Most lines that Mermaid draws on a page that is not configured otherwise.
pub const MOST_MERMAID_EDGES: usize = 500;

/// How much is drawn; what is more is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawingLimits {
    /// Boxes: nodes and clusters.
    pub boxes: usize,
    /// Lines. Where the last two nodes have more ports than that, more are drawn.
    pub edges: usize,
}

impl DrawingLimits {
    /// Boxes that people can still find their way through.
    pub const BOXES: u32 = 150;

    /// So many boxes, and as many lines as can be followed between them.
    pub fn of_boxes(boxes: usize) -> Self {
        Self { boxes, edges: boxes.saturating_mul(2) }
    }
}

impl Default for DrawingLimits {
    fn default() -> Self {
        Self::of_boxes(Self::BOXES as usize)
    }
}

/// The application as written.
///
/// # Errors
///
/// The budget ends.
pub fn logical(
    application: &Application,
    widths: Widths<'_>,
    limits: DrawingLimits,
    budget: &Budget,
) -> Result<Drawing, Error> {
    logical::logical(application, widths, limits, budget)
}

/// The application as it runs, with composites, parallel regions and channels. `before` is what was resized to get
/// `now`, if the picture is to show the difference.
///
/// # Errors
///
/// The budget ends.
pub fn physical(
    now: &Compiled,
    before: Option<&Compiled>,
    limits: DrawingLimits,
    budget: &Budget,
) -> Result<Drawing, Error> {
    running::physical(&subject::Subject::new(now, before), limits, budget)
}

/// The application as PEs. `before` as for [`physical`].
///
/// # Errors
///
/// The budget ends.
pub fn fused(
    now: &Compiled,
    before: Option<&Compiled>,
    limits: DrawingLimits,
    budget: &Budget,
) -> Result<Drawing, Error> {
    running::fused(&subject::Subject::new(now, before), limits, budget)
}

impl Drawing {
    /// The drawing for Graphviz.
    pub fn to_dot(&self) -> String {
        dot::write(self)
    }

    /// The drawing for Mermaid.
    pub fn to_mermaid(&self) -> String {
        mermaid::write(self)
    }

    /// The drawing as a picture of its own.
    pub fn to_svg(&self) -> String {
        svg::write(self)
    }
}
