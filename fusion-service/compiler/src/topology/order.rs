//! Computes the number of each copy of an operator without copying anything (rule expansion-9).
//!
//! An operator in channel 0 keeps the index of the ADL. Other copies are numbered channel by channel. Within a copy of
//! a composite its nested composites come before its primitives, and each of these two lists begins with the operators
//! as written. A copy's number is therefore a sum of offsets along its path. So is its position in the walk over the
//! expanded application (rule expansion-24).

use super::count::Count;
use super::shape::{ScopeId, Shape};
use crate::budget::{Limits, Pace};
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use crate::logical::{OperatorId, OperatorKind};
use cranelift_entity::SecondaryMap;

/// Offsets of an operator within one copy of its owner.
#[derive(Clone, Copy, Default)]
struct Offsets {
    /// Leaves in one copy of the operator.
    size: u64,
    /// Where channel 0 begins.
    first: u64,
    /// Where channel 1 begins; the others follow.
    replicas: u64,
}

impl Offsets {
    fn channel(&self, channel: u32) -> u64 {
        match channel.checked_sub(1) {
            None => self.first,
            Some(before) => self.replicas + u64::from(before) * self.size,
        }
    }
}

/// The number of every copy of every real operator: (operator index, operator, global channel), ascending.
pub(super) type Numbered = Vec<(u32, OperatorId, u32)>;

/// Numbers of all copies.
pub(super) struct Order {
    /// Counting real operators only.
    physical: SecondaryMap<OperatorId, Offsets>,
    /// Counting imports and exports as well.
    walk: SecondaryMap<OperatorId, Offsets>,
    /// First number of the copies 1.. of a parallel operator.
    base: SecondaryMap<OperatorId, u64>,
}

/// The number of a copy, per global channel of a scope: none while all channels are 0, where operators keep their own
/// index.
type Positions = Vec<Option<u64>>;

impl Order {
    /// Computes the numbers. Checks the number of operators.
    pub(super) fn new(shape: &Shape<'_>, limits: &Limits) -> Result<Self, Error> {
        let operators = &shape.application.operators;
        let mut order = Self { physical: SecondaryMap::new(), walk: SecondaryMap::new(), base: SecondaryMap::new() };
        let mut primitives = 0_u64;
        for (id, operator) in operators.iter().rev() {
            match operator.kind {
                OperatorKind::Primitive(_) => {
                    (order.physical[id].size, order.walk[id].size) = (1, 1);
                    primitives += 1;
                }
                OperatorKind::Import(_) | OperatorKind::Export(_) => order.walk[id].size = 1,
                OperatorKind::Composite(_) => {}
            }
            if let Some(owner) = operator.owner {
                let copies = u64::from(shape.copies(id));
                for sizes in [&mut order.physical, &mut order.walk] {
                    let all = sizes[id].size.saturating_mul(copies);
                    sizes[owner].size = sizes[owner].size.saturating_add(all);
                }
            }
        }
        let (mut real, mut others) = (Count::default(), Count::default());
        for (id, _) in operators.iter().filter(|(_, operator)| operator.owner == Some(shape.application.main)) {
            let (copies, physical) = (u64::from(shape.copies(id)), order.physical[id].size);
            real.add(id, physical, copies);
            others.add(id, order.walk[id].size.saturating_sub(physical), copies);
        }
        real.check(shape.application, "operators", limits.operators)?;
        others.check(shape.application, "imports and exports", limits.operators)?;
        for (id, operator) in operators.iter() {
            if let OperatorKind::Composite(_) = operator.kind {
                for sizes in [&mut order.physical, &mut order.walk] {
                    place_children(shape, id, sizes);
                }
            }
        }
        let mut next = primitives;
        for &id in &shape.parallel {
            order.base[id] = next;
            next += order.physical[id].size * u64::from(shape.copies(id) - 1);
        }
        Ok(order)
    }

    /// Real operators in one copy of an operator.
    pub(super) fn size(&self, id: OperatorId) -> u64 {
        self.physical[id].size
    }

    /// The number of every copy of every real operator: (operator index, operator, global channel), ascending.
    pub(super) fn numbered(&self, shape: &Shape<'_>) -> Result<Numbered, Error> {
        let mut numbered = Vec::with_capacity(usize::try_from(self.size(shape.application.main)).unwrap_or_default());
        let mut problems = Problems::default();
        let mut positions: SecondaryMap<ScopeId, Positions> = SecondaryMap::new();
        positions[ScopeId::ROOT] = vec![None];
        // Sum of the offsets of composites between an operator and the parallel operator around it.
        let mut offsets: SecondaryMap<OperatorId, u64> = SecondaryMap::new();
        for (id, operator) in shape.application.operators.iter() {
            if self.size(id) == 0 {
                continue;
            }
            let scope = shape.scope_of[id];
            let around = operator.owner.map_or(0, |owner| offsets[owner]);
            if shape.region_of[id].is_some() {
                positions[scope] = self.enter(shape, id, around, &positions[shape.scopes[scope].parent]);
            } else {
                offsets[id] = around + if operator.owner.is_some() { self.physical[id].first } else { 0 };
            }
            if let OperatorKind::Primitive(_) = operator.kind {
                for (position, channel) in positions[scope].iter().zip(0..) {
                    let index = position.map_or(operator.index, |position| position + offsets[id]);
                    match u32::try_from(index) {
                        Ok(index) if index < u32::MAX => numbered.push((index, id, channel)),
                        _ => {
                            let message = format!("the operator index {index} is too large");
                            let problem = Problem::new(Stage::Topology, message).code(code::INCONSISTENT);
                            problems.push(problem.at(operator.place));
                        }
                    }
                }
            }
        }
        numbered = in_order(numbered);
        for pair in numbered.windows(2) {
            if let [(one, _, _), (other, id, _)] = pair
                && one == other
            {
                let operator = &shape.application.operators[*id];
                let name = excerpt(&operator.logical_name);
                let message = format!("the indexes of operators have gaps: {one} is the index of {name} and of a copy");
                problems.push(Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(operator.place));
            }
        }
        problems.into_result().map(|()| numbered)
    }

    /// The numbers of the channels of a parallel operator, from those of the channels around it.
    fn enter(&self, shape: &Shape<'_>, id: OperatorId, around: u64, outer: &Positions) -> Positions {
        let width = shape.copies(id);
        let offsets = &self.physical[id];
        let mut inner = Vec::with_capacity(outer.len() * width as usize);
        for position in outer {
            inner.extend((0..width).map(|channel| match (position, channel.checked_sub(1)) {
                (Some(position), _) => Some(position + around + offsets.channel(channel)),
                (None, None) => None,
                (None, Some(before)) => Some(self.base[id] + u64::from(before) * offsets.size),
            }));
        }
        inner
    }

    /// The place of a copy of a leaf in the walk over the expanded application: nested composites first, then
    /// primitives, in the order of the lists (rule expansion-24).
    pub(super) fn walk_position(
        &self,
        shape: &Shape<'_>,
        id: OperatorId,
        global_channel: u32,
        pace: &mut Pace<'_>,
    ) -> Result<u64, Error> {
        let (mut position, mut rest, mut at) = (0, global_channel, Some(id));
        while let Some(id) = at {
            // Composites within each other are bounded by nothing but the bytes of their names.
            pace.step()?;
            let operator = &shape.application.operators[id];
            if operator.owner.is_some() {
                let width = shape.copies(id);
                let channel = if shape.region_of[id].is_some() { rest % width } else { 0 };
                rest /= width;
                position += self.walk[id].channel(channel);
            }
            at = operator.owner;
        }
        Ok(position)
    }
}

/// Sorts by number. Numbers mostly have no gaps, and then each number is its own position.
fn in_order(mut numbered: Numbered) -> Numbered {
    let mut places = vec![None; numbered.len()];
    for one in &numbered {
        match places.get_mut(one.0 as usize) {
            Some(place @ None) => *place = Some(*one),
            _ => {
                numbered.sort_unstable();
                return numbered;
            }
        }
    }
    places.into_iter().flatten().collect()
}

/// Lists of a composite after expansion: originals in the order of the ADL, then copies region by region; composites
/// before primitives (rule expansion-9).
fn place_children(shape: &Shape<'_>, id: OperatorId, sizes: &mut SecondaryMap<OperatorId, Offsets>) {
    let OperatorKind::Composite(composite) = &shape.application.operators[id].kind else { return };
    let mut next = 0;
    for children in [&composite.composites, &composite.primitives] {
        for child in children {
            sizes[*child].first = next;
            next += sizes[*child].size;
        }
        for child in children {
            sizes[*child].replicas = next;
            next += sizes[*child].size * u64::from(shape.copies(*child) - 1);
        }
    }
}
