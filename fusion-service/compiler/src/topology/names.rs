//! Physical names of operators and streams (rules expansion-11 and expansion-12).
//!
//! A name has the global channel behind every component that introduces a region. A stream that leaves composites
//! carries the name of the scope it is visible in, with the *local* channels of what it left, outermost first.

use super::Channel;
use super::shape::Shape;
use crate::error::{Problem, Stage, code, excerpt};
use crate::logical::{Application, OperatorId};
use get_size2::GetSize;

/// A name with holes for channels.
#[derive(Clone, Debug, Default, GetSize)]
pub(super) struct Template {
    /// Texts, each with the channel that follows it. Level 0 is the innermost region.
    parts: Vec<(String, Hole)>,
    /// The text behind the last channel.
    tail: String,
}

#[derive(Clone, Copy, Debug, GetSize)]
enum Hole {
    Global(usize),
    Local(usize),
}

impl Template {
    /// The name in one channel, with the channels of its operator.
    pub(super) fn fill(&self, channels: &[Channel]) -> String {
        let of = |hole: &Hole| match hole {
            Hole::Global(level) => channels.get(*level).map_or(0, |channel| channel.global),
            Hole::Local(level) => channels.get(*level).map_or(0, |channel| channel.local),
        };
        // Digits besides the first, which the least length has.
        let more = self.parts.iter().map(|(_, hole)| of(hole).checked_ilog10().unwrap_or_default() as usize);
        let mut name = String::with_capacity(self.len() + more.sum::<usize>());
        let mut digits = itoa::Buffer::new();
        for (text, hole) in &self.parts {
            name.push_str(text);
            name.push('[');
            name.push_str(digits.format(of(hole)));
            name.push(']');
        }
        name.push_str(&self.tail);
        name
    }

    /// The least length of a name.
    pub(super) fn len(&self) -> usize {
        let parts: usize = self.parts.iter().map(|(text, _)| text.len() + "[0]".len()).sum();
        parts + self.tail.len()
    }

    fn push_str(&mut self, text: &str) {
        self.tail.push_str(text);
    }

    fn push_hole(&mut self, hole: Hole) {
        self.parts.push((std::mem::take(&mut self.tail), hole));
    }
}

/// The path from below the main composite down to an operator.
fn path(application: &Application, id: OperatorId) -> Vec<OperatorId> {
    let mut path = Vec::new();
    let mut at = Some(id);
    while let Some(id) = at {
        let operator = &application.operators[id];
        if operator.owner.is_some() {
            path.push(id);
        }
        at = operator.owner;
    }
    path.reverse();
    path
}

/// The physical name of an operator; `inner` is the number of regions that are further in than the operator, counted
/// from the operator whose channels fill the template.
pub(super) fn operator(shape: &Shape<'_>, id: OperatorId, inner: usize) -> Template {
    let path = path(shape.application, id);
    let regions = path.iter().filter(|id| shape.region_of[**id].is_some()).count();
    let mut template = Template::default();
    let mut level = inner + regions;
    for (at, id) in path.iter().enumerate() {
        if at > 0 {
            template.push_str(".");
        }
        template.push_str(&shape.application.operators[*id].name);
        if shape.region_of[*id].is_some() {
            level -= 1;
            template.push_hole(Hole::Global(level));
        }
    }
    template
}

/// The physical name of the composite around an operator, with a dot, for names in its scope (rule expansion-20).
pub(super) fn scope_of(shape: &Shape<'_>, id: OperatorId) -> Template {
    let Some(owner) = shape.application.operators[id].owner else { return Template::default() };
    let mut template = operator(shape, owner, usize::from(shape.region_of[id].is_some()));
    if shape.application.operators[owner].owner.is_some() {
        template.push_str(".");
    }
    template
}

/// The logical name of the composite around an operator, with a dot.
pub(super) fn logical_scope_of(application: &Application, id: OperatorId) -> String {
    let owner = application.operators[id].owner.map(|owner| &application.operators[owner]);
    owner.filter(|owner| owner.owner.is_some()).map(|owner| format!("{}.", owner.logical_name)).unwrap_or_default()
}

/// The physical name of the stream of an output port with this logical stream name.
pub(super) fn stream(shape: &Shape<'_>, id: OperatorId, logical: &str) -> Result<Template, Problem> {
    let application = shape.application;
    let (scope, leaf) = logical.rsplit_once('.').unwrap_or(("", logical));
    let mut left = Vec::new();
    let mut level = 0;
    if shape.region_of[id].is_some() {
        left.push(level);
        level += 1;
    }
    let mut at = application.operators[id].owner;
    while let Some(id) = at {
        let composite = &application.operators[id];
        let name = if composite.owner.is_some() { composite.logical_name.as_str() } else { "" };
        if name == scope {
            let mut template = operator(shape, id, level);
            if composite.owner.is_some() {
                template.push_str(".");
            }
            template.push_str(leaf);
            for level in left.into_iter().rev() {
                template.push_hole(Hole::Local(level));
            }
            return Ok(template);
        }
        if shape.region_of[id].is_some() {
            left.push(level);
            level += 1;
        }
        at = composite.owner;
    }
    let operator = &application.operators[id];
    let (stream, name) = (excerpt(logical), excerpt(&operator.logical_name));
    let message = format!("{name}: no composite around it declares the stream {stream}");
    Err(Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(operator.place))
}
