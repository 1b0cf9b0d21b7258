//! What a mirror has of an export or import, read, and what a board knows of it (rules import-5 and import-10).
//!
//! An object may have lists that take long to be read. So it is read, and what a board knows is made of it, before
//! anybody has to wait for its namespace.
//!
//! Knows: both kinds, how each is read and put on a board. Must not know: which objects count, what is on a board.

use crate::broker::facts::{self, Problem};
use crate::broker::predecessors::Side;
use crate::mirrors::Mirrors;
use kube::core::ObjectMeta;
use streams_broker::{Board, Changes, Export, Import, Port};
use streams_kubernetes::watch::{Kept, Mirrored, Watch};

/// How exports, or imports, are read and put on the board.
pub(super) struct Handling<K: 'static, F> {
    pub(super) side: Side,
    pub(super) mirror: fn(&Mirrors) -> &Watch<K>,
    /// What it takes to read an object, besides unpacking it.
    pub(super) steps: fn(&K) -> usize,
    pub(super) port: fn(&K) -> Port,
    pub(super) job_id: fn(&K) -> u64,
    pub(super) fact: fn(&K) -> Result<F, Problem>,
    /// The same port, which matches nothing.
    pub(super) at_rest: fn(F) -> F,
    /// Number of the job that the board knows of a port.
    pub(super) job_before: fn(&Board, &Port) -> Option<u64>,
    pub(super) put: fn(&mut Board, F) -> Changes,
    pub(super) remove: fn(&mut Board, &Port) -> Changes,
}

pub(super) const EXPORTS: Handling<streams_api::Export, Export> = Handling {
    side: Side::Export,
    mirror: |mirrors| &mirrors.exports,
    steps: facts::steps_of_export,
    port: facts::output_port,
    job_id: |object| object.spec.job_id,
    fact: facts::export,
    at_rest: Export::for_nobody,
    job_before: Board::job_of_export,
    put: Board::put_export,
    remove: Board::remove_export,
};

pub(super) const IMPORTS: Handling<streams_api::Import, Import> = Handling {
    side: Side::Import,
    mirror: |mirrors| &mirrors.imports,
    steps: facts::steps_of_import,
    port: facts::input_port,
    job_id: |object| object.spec.job_id,
    fact: facts::import,
    at_rest: Import::of_nothing,
    job_before: Board::job_of_import,
    put: Board::put_import,
    remove: Board::remove_import,
};

/// What a mirror had of an object.
pub(super) struct Arrival<K, F> {
    kept: Option<Kept<K>>,
    /// What it has taken to read it, in steps of evaluations.
    pub(super) steps: usize,
    /// `None`: it has gone.
    pub(super) seen: Option<Seen<F>>,
}

/// An object that was read.
pub(super) struct Seen<F> {
    pub(super) meta: ObjectMeta,
    pub(super) port: Port,
    pub(super) job_id: u64,
    /// What a board knows of it, or why it cannot.
    pub(super) fact: Result<F, Problem>,
}

impl<K: Mirrored, F> Arrival<K, F> {
    /// Reads what a mirror has of an object.
    pub(super) fn read(handling: &Handling<K, F>, kept: Option<Kept<K>>) -> Self {
        let object = kept.as_ref().and_then(Kept::read);
        let steps = facts::least_steps(octets(kept.as_ref())) + object.as_deref().map_or(0, handling.steps);
        let seen = object.map(|object| Seen {
            meta: object.meta().clone(),
            port: (handling.port)(&object),
            job_id: (handling.job_id)(&object),
            fact: (handling.fact)(&object),
        });
        Self { kept, steps, seen }
    }

    /// Whether it is what a mirror has now.
    pub(super) fn is(&self, now: Option<&Kept<K>>) -> bool {
        match (&self.kept, now) {
            (None, None) => true,
            (Some(kept), Some(now)) => kept.is_identical(now),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }
}

/// Octets of what is read for a look at an object; none if it has gone.
pub(super) fn octets<K: Mirrored>(kept: Option<&Kept<K>>) -> usize {
    kept.map_or(0, Kept::octets)
}
