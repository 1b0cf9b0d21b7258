//! How much memory a value takes besides itself: what it has on the heap.
//!
//! Caches of compiled jobs are bounded by this, so it is counted and not guessed. A struct lists all its fields here,
//! or beside its definition where they are private: with a new field, the list does not compile until it is counted
//! too. What several values share is counted in parts, to each of them its share.
//!
//! Knows: the sizes of things. Must not know: what they are for.

use crate::{fuser, logical, plan, topology};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use smallvec::{Array, SmallVec};
use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::Arc;

/// A value with memory on the heap.
pub(crate) trait Heap {
    /// Bytes that were asked of the allocator for it, itself not included. Linear in its parts.
    fn heap_bytes(&self) -> usize;
}

/// Counts a struct by its fields.
macro_rules! heap_fields {
    ($($type:ty { $($field:ident),* $(,)? })*) => {$(
        impl $crate::heap::Heap for $type {
            fn heap_bytes(&self) -> usize {
                let Self { $($field),* } = self;
                0 $(+ $crate::heap::Heap::heap_bytes($field))*
            }
        }
    )*};
}

/// Says that values of these types have nothing on the heap.
macro_rules! no_heap {
    ($($type:ty),* $(,)?) => {$(
        impl $crate::heap::Heap for $type {
            fn heap_bytes(&self) -> usize {
                0
            }
        }
    )*};
}

pub(crate) use {heap_fields, no_heap};

no_heap!(bool, u8, u32, u64, usize, f64, &'static str, [u8; 32], [u32; 3]);

impl Heap for String {
    fn heap_bytes(&self) -> usize {
        self.capacity()
    }
}

impl Heap for str {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl<T: Heap> Heap for [T] {
    fn heap_bytes(&self) -> usize {
        self.iter().map(Heap::heap_bytes).sum()
    }
}

impl<T: Heap> Heap for Vec<T> {
    fn heap_bytes(&self) -> usize {
        self.capacity() * size_of::<T>() + self.as_slice().heap_bytes()
    }
}

impl<A: Array<Item: Heap>> Heap for SmallVec<A> {
    fn heap_bytes(&self) -> usize {
        let own = if self.spilled() { self.capacity() * size_of::<A::Item>() } else { 0 };
        own + self.as_slice().heap_bytes()
    }
}

impl<K: EntityRef, V: Heap> Heap for PrimaryMap<K, V> {
    fn heap_bytes(&self) -> usize {
        self.len() * size_of::<V>() + self.as_values_slice().heap_bytes()
    }
}

impl<K: EntityRef, V: Heap + Clone> Heap for SecondaryMap<K, V> {
    fn heap_bytes(&self) -> usize {
        self.capacity() * size_of::<V>() + self.values().map(Heap::heap_bytes).sum::<usize>()
    }
}

impl<K: Heap, V: Heap> Heap for BTreeMap<K, V> {
    fn heap_bytes(&self) -> usize {
        // Nodes are between half full and full.
        let entries = self.len() * (size_of::<K>() + size_of::<V>()) * 4 / 3;
        entries + self.iter().map(|(key, value)| key.heap_bytes() + value.heap_bytes()).sum::<usize>()
    }
}

impl<T: Heap> Heap for Option<T> {
    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, Heap::heap_bytes)
    }
}

impl<T: cranelift_entity::packed_option::ReservedValue> Heap for PackedOption<T> {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl<T: Heap> Heap for Box<T> {
    fn heap_bytes(&self) -> usize {
        size_of::<T>() + (**self).heap_bytes()
    }
}

impl<T: Heap + ?Sized> Heap for Arc<T> {
    /// Its share. The counters are left out.
    fn heap_bytes(&self) -> usize {
        (size_of_val::<T>(self) + (**self).heap_bytes()) / Arc::strong_count(self)
    }
}

impl<A: Heap, B: Heap> Heap for (A, B) {
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes() + self.1.heap_bytes()
    }
}

impl<A: Heap, B: Heap, C: Heap> Heap for (A, B, C) {
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes() + self.1.heap_bytes() + self.2.heap_bytes()
    }
}

impl Heap for logical::Application {
    /// Nothing: it belongs to whoever parsed it, and all jobs of the application refer to the same one.
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl Heap for topology::AnnotationValue {
    /// The nesting is that of the ADL's annotation values, at most a list of tuples.
    fn heap_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.heap_bytes(),
            Self::List(values) => values.heap_bytes(),
            Self::Tuple(values) => values.heap_bytes(),
        }
    }
}

no_heap!(
    logical::OperatorId,
    logical::PoolLocation,
    logical::SplitterKind,
    logical::TraceLevel,
    topology::Channel,
    topology::Connection,
    topology::Merger,
    topology::Node,
    topology::Via,
    fuser::Automatic,
    fuser::Pe,
    plan::Fate,
    plan::InputPort,
    plan::OutputPort,
    plan::PortLabel,
    plan::Trigger,
);

heap_fields! {
    logical::HostPool { index, name, exclusive, size, hosts, tags }
    logical::Resources { host, pool, co_locations, ex_locations, isolation }
    logical::Partition { co_locations, ex_locations, isolation }
    logical::Property { name, r#type, values }

    topology::Region { index, name, width, global_max }
    topology::ConsistentRegion { index, logical_index, declaration, members }
    topology::Operator {
        index, logical, name, channels, annotations, resources, partition, consistent_region, threading_model,
        trace_level, runtime_constants, inputs, outputs,
    }
    topology::Annotation { tag, values }
    topology::InputPort { imports, mergers }
    topology::Imports { filter, by_name, by_properties }
    topology::NameImport { operator_name, application_name, application_scope, stream_name }
    topology::PropertyImport { operator_name, application_scope, subscription, index }
    topology::OutputPort { stream_name, export, splitters }
    topology::Export { operator_name, name, allow_filter, drop_connection, properties }
    topology::Splitter { index, input_port, kind, region, drop_window_punctuation, attributes, width, nested }
    topology::Identity { logical_index, channels }
    topology::Numbering { operators, splitters, host_pools }
    topology::NumberedSplitter { source, source_port, target, target_port, index }
    topology::Difference { added, changed, removed }

    plan::Layout { adl, request, compiler, automatic, widths, numbering, splitter_trees, elements }
    plan::SplitterTree { operator, port, indexes }
    plan::Element { id, content_id, runtime_id, bytes, operators, inputs, outputs }
    plan::Plan {
        compiler, adl, application_name, application_scope, regions, host_pools, consistent_regions, elements,
        isolated, automatic, change, warnings,
    }
    plan::PlannedRegion { region, channels_have_own_pes, touches_consistent_region }
    plan::Change { operators, removed }
    plan::RemovedElement { id, content_id, runtime_id, reason }
    plan::Warning { reason, message }
    plan::ProcessingElement {
        operators, operator_indexes, restartable, port_labels, exports, imports, placement, environment,
        consistent_regions,
    }
    plan::ExportedPort { port_id, operator_index, operator_port, via, export }
    plan::ImportedPort { port_id, operator_index, operator_port, imports }
    plan::Placement { host, co_locations, ex_locations, isolation, pool }
    plan::ConsistentRegion {
        index, logical_index, trigger, drain_timeout, reset_timeout, max_consecutive_reset_attempts, pe_ids, members,
    }
    plan::Member { operator, is_start, is_trigger }
}
