//! Paths of lines: straight segments and curves.

/// A line: where it begins, then its segments.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Path {
    pub(in super::super) begin: (f64, f64),
    pub(in super::super) segments: Vec<Segment>,
}

/// A segment of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Segment {
    /// To this point.
    Straight((f64, f64)),
    /// By two control points to the third.
    Curve((f64, f64), (f64, f64), (f64, f64)),
}

impl Segment {
    /// Where it ends.
    pub(in super::super) fn end(self) -> (f64, f64) {
        match self {
            Self::Straight(end) | Self::Curve(_, _, end) => end,
        }
    }
}

impl Path {
    /// A path that only begins.
    pub(super) fn new(begin: (f64, f64)) -> Self {
        Self { begin, segments: Vec::new() }
    }

    /// Where the path ends so far.
    pub(super) fn end(&self) -> (f64, f64) {
        self.segments.last().map_or(self.begin, |segment| segment.end())
    }

    /// Goes straight to `x`.
    pub(super) fn straight(&mut self, x: f64) {
        let (from, y) = self.end();
        if from != x {
            self.segments.push(Segment::Straight((x, y)));
        }
    }

    /// Curves that begin and end level.
    pub(super) fn curve(&mut self, x: f64, y: f64) {
        let (from, level) = self.end();
        if level == y {
            return self.straight(x);
        }
        let middle = (from + x) / 2.0;
        self.segments.push(Segment::Curve((middle, level), (middle, y), (x, y)));
    }

    /// Turns round, out to `x` and back.
    pub(super) fn u_turn(&mut self, x: f64, y: f64) {
        let (from, level) = self.end();
        self.segments.push(Segment::Curve((x, level), (x, y), (from, y)));
    }

    /// The path elsewhere.
    pub(super) fn moved(&self, (x, y): (f64, f64)) -> Self {
        let moved = |point: (f64, f64)| (point.0 + x, point.1 + y);
        let segments = self.segments.iter().map(|segment| match *segment {
            Segment::Straight(end) => Segment::Straight(moved(end)),
            Segment::Curve(first, second, end) => Segment::Curve(moved(first), moved(second), moved(end)),
        });
        Self { begin: moved(self.begin), segments: segments.collect() }
    }
}
