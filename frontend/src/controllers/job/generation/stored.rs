//! The form in which a generation is stored, with its plan as the fusion service has written it.
//!
//! What an earlier frontend has not stored is read as 0 or as empty. What this one writes an earlier one may read,
//! which leads again.
//!
//! Knows: fields and their numbers. Must not know: what a generation means.

use super::added_ports::{AddedPort, AddedPorts};
use super::places::{groups, members};
use super::{Generation, Origin, Settled, Target};
use prost::{Message, encode_length_delimiter, length_delimiter_len};
use std::collections::BTreeMap;
use streams_api::TransportSecurity;
use streams_proto::fusion::v1::{Compilation, Plan, Warning};

/// Version of the stored form.
pub(super) const FORMAT: u32 = 1;
/// What is before the plan in the stored form: the number of its field, and that its length follows.
const PLAN_KEY: usize = (4 << 3) | 2;

/// A stored generation that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored plan cannot be read: {0}")]
pub(crate) struct Unreadable(String);

impl Generation {
    /// The stored form. The same generation gives the same bytes, and one that was read those that it was read from.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (before, after) = self.stored_beside_plan();
        let mut bytes = Vec::with_capacity(self.size_with(&before, &after));
        // A vector has room for any message.
        bytes.extend(before.encode_to_vec());
        encode_length_delimiter(PLAN_KEY, &mut bytes).unwrap_or_default();
        self.plan.encode_length_delimited(&mut bytes).unwrap_or_default();
        bytes.extend(after.encode_to_vec());
        bytes
    }

    /// How many bytes the stored form has.
    pub(crate) fn encoded_len(&self) -> usize {
        let (before, after) = self.stored_beside_plan();
        self.size_with(&before, &after)
    }

    fn size_with(&self, before: &StoredGeneration, after: &StoredGeneration) -> usize {
        let plan = self.plan.encoded_len();
        let plan = length_delimiter_len(PLAN_KEY) + length_delimiter_len(plan) + plan;
        before.encoded_len() + plan + after.encoded_len()
    }

    /// What is stored before the plan, and what after it: the plan is too large to be copied.
    pub(super) fn stored_beside_plan(&self) -> (StoredGeneration, StoredGeneration) {
        let (inputs, widths, rebalances) = match &self.target {
            Target::Submission { inputs } => (Some(inputs.clone()), BTreeMap::new(), false),
            Target::Resize { widths, rebalances } => (None, widths.clone(), *rebalances),
        };
        let mut origins: Vec<Origin> = self.origins.values().cloned().collect();
        if self.stores_no_groups {
            origins.iter_mut().for_each(|origin| origin.group.clear());
        }
        let before = StoredGeneration {
            format: FORMAT,
            number: self.number,
            compilation: Some(self.compilation.clone()),
            ..StoredGeneration::default()
        };
        let after = StoredGeneration {
            inputs,
            widths,
            rebalances,
            origins,
            nodes: self.nodes.clone(),
            warnings: self.warnings.clone(),
            trace_parent: self.trace_parent.clone(),
            redis: self.settled.redis.clone(),
            transport: self.settled.transport != TransportSecurity::None,
            added_ports: self.added_ports.stored(),
            ..StoredGeneration::default()
        };
        (before, after)
    }

    /// Reads the stored form and checks it.
    ///
    /// # Errors
    /// The bytes are damaged, or of another format.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let unreadable = |message: &str| Unreadable(message.to_owned());
        let stored = StoredGeneration::decode(bytes).map_err(|error| Unreadable(error.to_string()))?;
        if stored.format != FORMAT {
            return Err(Unreadable(format!("format {} is not known", stored.format)));
        }
        let plan = stored.plan.ok_or_else(|| unreadable("no plan"))?;
        let origins: BTreeMap<u64, Origin> = stored.origins.into_iter().map(|origin| (origin.pe_id, origin)).collect();
        if !members(&plan).map(|pe| pe.id).eq(origins.keys().copied()) {
            return Err(unreadable("PEs and origins do not belong together"));
        }
        let target = match stored.inputs {
            Some(inputs) => Target::Submission { inputs },
            None => Target::Resize { widths: stored.widths, rebalances: stored.rebalances },
        };
        let mut generation = Self {
            number: stored.number,
            compilation: stored.compilation.ok_or_else(|| unreadable("no compilation"))?,
            plan,
            target,
            origins,
            nodes: stored.nodes,
            warnings: stored.warnings,
            trace_parent: stored.trace_parent,
            settled: Settled {
                redis: stored.redis,
                transport: if stored.transport { TransportSecurity::Tls12 } else { TransportSecurity::None },
            },
            added_ports: AddedPorts::of_stored(stored.added_ports),
            stores_no_groups: false,
        };
        // An earlier frontend stored none. Pods that there are stay where they are: the next ones are put by them.
        let mut groups = groups(&generation.plan, |pe| generation.is_put_by(pe.id), |_| true);
        let has_none = generation.origins.values().all(|origin| origin.group.is_empty());
        generation.stores_no_groups = has_none && !groups.labels.is_empty();
        for (id, origin) in &mut generation.origins {
            origin.group = groups.labels.remove(id).unwrap_or_default();
        }
        Ok(generation)
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StoredGeneration {
    #[prost(uint32, tag = "1")]
    pub(super) format: u32,
    #[prost(uint64, tag = "2")]
    pub(super) number: u64,
    #[prost(message, optional, tag = "3")]
    pub(super) compilation: Option<Compilation>,
    #[prost(message, optional, tag = "4")]
    pub(super) plan: Option<Plan>,
    #[prost(string, optional, tag = "5")]
    pub(super) inputs: Option<String>,
    #[prost(btree_map = "string, uint32", tag = "6")]
    pub(super) widths: BTreeMap<String, u32>,
    #[prost(message, repeated, tag = "7")]
    pub(super) origins: Vec<Origin>,
    #[prost(btree_map = "string, string", tag = "8")]
    pub(super) nodes: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "9")]
    pub(super) warnings: Vec<Warning>,
    #[prost(string, tag = "10")]
    pub(super) trace_parent: String,
    #[prost(string, tag = "11")]
    pub(super) redis: String,
    #[prost(bool, tag = "12")]
    pub(super) transport: bool,
    #[prost(bool, tag = "14")]
    pub(super) rebalances: bool,
    #[prost(message, repeated, tag = "15")]
    pub(super) added_ports: Vec<AddedPort>,
}
