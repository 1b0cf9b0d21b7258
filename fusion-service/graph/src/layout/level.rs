//! One cluster: boxes with sockets and the links between them, before and after they have their places.

use super::path::Path;

/// The boxes of one cluster and the links between them, before they have places.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(super) items: Vec<Item>,
    pub(super) outputs: Vec<Output>,
    pub(super) inputs: Vec<Input>,
    pub(super) links: Vec<Link>,
    /// Space at the left and right border.
    pub(super) padding: f64,
    pub(super) least_width: f64,
}

/// A box.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A socket at the right side of a box, where lines begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    pub(super) item: usize,
    /// From the top of the box.
    pub(super) y: f64,
    /// A line goes on to the right border.
    pub(super) leaves: bool,
}

/// A socket at the left side of a box, where lines end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub(super) item: usize,
    /// From the top of the box.
    pub(super) y: f64,
    /// A line comes from the left border.
    pub(super) enters: bool,
}

/// A link from an output socket to an input socket, both by position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) output: usize,
    pub(super) input: usize,
}

/// The places of boxes and lines. The top left corner is (0, 0).
#[derive(Debug)]
pub(super) struct Arranged {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Top left corners.
    pub(super) items: Vec<(f64, f64)>,
    /// By output: the height at which its line passes the right border.
    pub(super) leave: Vec<f64>,
    /// By input: the height at which its line passes the left border.
    pub(super) enter: Vec<f64>,
    pub(super) strokes: Vec<Stroke>,
}

/// A line to draw.
#[derive(Debug)]
pub(super) struct Stroke {
    pub(super) line: LineKind,
    pub(super) path: Path,
}

/// The part of an output, an input or a link that a line draws.
#[derive(Clone, Debug)]
pub(super) enum LineKind {
    /// The part that several lines of an output have in common.
    Trunk {
        output: usize,
        /// The links that share it.
        links: Vec<usize>,
        /// A line to the right border shares it, too.
        leaves: bool,
    },
    /// The rest of a link.
    Branch(usize),
    /// From an output, or its trunk, to the right border.
    Leave(usize),
    /// From the left border to an input.
    Enter(usize),
}
