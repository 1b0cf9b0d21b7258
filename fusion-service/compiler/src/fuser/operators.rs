//! Operators as fusion sees them.
//!
//! An application may have thousands of channels. Almost all channels of an operator are the same to fusion. So a
//! [`FusionOperator`] holds only index, name and channels, and the channels of a logical operator share everything else
//! as [`Traits`]. What follows from traits alone is computed once for all operators that share them: the stages of
//! fusion call [`Operators::having`], or remember their results by [`TraitsId`].
//!
//! Invariants: every operator has traits. The same id means the same traits; equal traits may have different ids.

use super::symbols::Symbol;
use crate::error::Place;
use crate::logical::PoolLocation;
use crate::topology::{Channel, Node};
use cranelift_entity::{PrimaryMap, entity_impl};
use smallvec::SmallVec;

/// The part of an operator that it shares with no other.
#[derive(Clone, Copy, Debug)]
pub struct FusionOperator<'a> {
    /// Operator index.
    pub index: u32,
    /// Physical name.
    pub name: &'a str,
    /// Channels it is in, one per enclosing parallel region.
    pub channels: &'a [Channel],
}

/// The part of an operator that others may share: its ports, and what the application demands of its PE and host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Input ports, by position.
    pub inputs: SmallVec<[InputPortTraits; 4]>,
    /// Output ports, by position.
    pub outputs: SmallVec<[OutputPortTraits; 4]>,
    /// Ids of groups that share a PE.
    pub co_locations: Box<[Symbol]>,
    /// Ids of groups whose members are in different PEs.
    pub ex_locations: Box<[Symbol]>,
    /// Has a PE of its own, together with what it is co-located with.
    pub isolated: bool,
    /// Labels that operators of a PE agree on where they have one (JVM arguments).
    pub provisional: Box<[Label]>,
    /// Labels that all operators of a PE have alike, or none has (consistent region).
    pub soft_segregated: Box<[Label]>,
    /// May be restarted.
    pub restartable: bool,
    /// May be moved.
    pub relocatable: bool,
    /// As the ADL says.
    pub single_threaded_on_outputs: bool,
    /// Threading models it is annotated with.
    pub threading: Threading,
    /// Explicit host.
    pub host: Option<Symbol>,
    /// Host pool by index, and the host within it.
    pub pool: Option<PoolLocation>,
    /// Ids of groups that share a host.
    pub host_co_locations: Box<[Symbol]>,
    /// Ids of groups whose members are on different hosts.
    pub host_ex_locations: Box<[Symbol]>,
    /// Shares its host with no other PE.
    pub host_isolated: bool,
    /// Where it is written, for problems.
    pub place: Option<Place>,
}

impl Traits {
    /// Whether these traits cause constraints on PEs (see [`super::constraints()`]). Constraints on channels have other
    /// causes.
    pub(super) fn constrain(&self) -> bool {
        self.isolated
            || !self.restartable
            || !self.relocatable
            || [&self.co_locations, &self.ex_locations].iter().any(|ids| !ids.is_empty())
            || [&self.provisional, &self.soft_segregated].iter().any(|labels| !labels.is_empty())
    }
}

/// Traits, by position in [`Operators`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraitsId(u32);
entity_impl!(TraitsId, "traits");

/// The operators of an application, each with its traits.
#[derive(Clone, Debug, Default)]
pub struct Operators<'a> {
    list: PrimaryMap<Node, FusionOperator<'a>>,
    traits_of: PrimaryMap<Node, TraitsId>,
    traits: PrimaryMap<TraitsId, Traits>,
}

impl<'a> Operators<'a> {
    /// An empty list with room for this many operators.
    pub fn with_capacity(operators: usize) -> Self {
        Self {
            list: PrimaryMap::with_capacity(operators),
            traits_of: PrimaryMap::with_capacity(operators),
            traits: PrimaryMap::new(),
        }
    }

    /// Adds traits, for operators to come.
    pub fn add_traits(&mut self, traits: Traits) -> TraitsId {
        self.traits.push(traits)
    }

    /// Adds an operator, with traits that were added here.
    pub fn push(&mut self, operator: FusionOperator<'a>, traits: TraitsId) -> Node {
        self.traits_of.push(traits);
        self.list.push(operator)
    }

    /// The operators, in order.
    pub fn list(&self) -> &PrimaryMap<Node, FusionOperator<'a>> {
        &self.list
    }

    /// The traits of an operator.
    pub fn traits(&self, operator: Node) -> &Traits {
        &self.traits[self.traits_of[operator]]
    }

    pub(super) fn traits_id(&self, operator: Node) -> TraitsId {
        self.traits_of[operator]
    }

    pub(super) fn all_traits(&self) -> &PrimaryMap<TraitsId, Traits> {
        &self.traits
    }

    /// Operators with traits that are `wanted`, in order. Traits are asked once, not once per operator.
    pub(super) fn having(&self, wanted: impl Fn(&Traits) -> bool) -> impl Iterator<Item = (Node, &Traits)> {
        let wanted: PrimaryMap<TraitsId, bool> = self.traits.values().map(wanted).collect();
        let any = wanted.values().any(|&wanted| wanted);
        let operators = any.then_some(&self.traits_of).into_iter().flat_map(PrimaryMap::iter);
        operators.filter(move |(_, id)| wanted[**id]).map(|(node, &id)| (node, &self.traits[id]))
    }
}

/// A value that an operator carries under a key; which keys separate operators, and how, is said by
/// [`super::Constraint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// Key.
    pub key: Symbol,
    /// Value.
    pub value: Symbol,
}

/// An input port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputPortTraits {
    /// Has a threaded port of its own in the ADL.
    pub threaded: bool,
    /// Is fed by an Import.
    pub imported: bool,
}

/// An output port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputPortTraits {
    /// Feeds an Export.
    pub exported: bool,
}

/// Threading models that an operator is annotated with (rule element-9). Other models behave like none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threading {
    /// `manual`
    pub manual: bool,
    /// `dynamic`
    pub dynamic: bool,
    /// `dedicated`
    pub dedicated: bool,
}

impl Threading {
    /// Adds a model by the name it has in annotations.
    pub fn add(&mut self, model: &str) {
        match model {
            "manual" => self.manual = true,
            "dynamic" => self.dynamic = true,
            "dedicated" => self.dedicated = true,
            _ => {}
        }
    }
}
