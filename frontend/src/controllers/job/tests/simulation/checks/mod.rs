//! The invariants, checked before each write of the controller and at rest.
//!
//! A check before a write looks at the cluster as it is at that moment, and at the write.
//!
//! * this file — names of what a generation has;
//! * [`writes`] — what comes to be checked, before each write;
//! * [`statuses`] — steps of the job and what requests are told: what is committed was wanted, and is all there;
//! * [`objects`] — children that are written: for a stored generation, and nothing that runs before the commit;
//! * [`restarts`] — PEs that run and are to be restarted: few at the same time, after those that are new;
//! * [`deletions`] — objects that are deleted: nobody refers to them;
//! * [`at_rest`] — what must hold when nothing happens any more;
//! * [`visible`] — what there is, to compare ends of different ways.
//!
//! Knows: generations, names, what the [`journal`](super::journal) has. Must not know: how the controller decides.

mod at_rest;
mod deletions;
mod objects;
mod restarts;
mod statuses;
mod visible;
mod writes;

use super::JOB;
use crate::controllers::job::documents::chunks::Document;
use crate::controllers::job::generation::Generation;
use std::collections::BTreeSet;
use streams_api::names;
use streams_kubernetes::cluster::Object;
use streams_kubernetes_fake::Server;

fn names_of<K: Object>(server: &Server) -> BTreeSet<String> {
    server.list::<K>().iter().map(|object| object.meta().name.clone().unwrap_or_default()).collect()
}

/// Texts that PEs of the generation may refer to.
fn texts_of(generation: &Generation) -> BTreeSet<String> {
    let texts = generation.members().flat_map(|(pe, origin)| {
        [&pe.content_id, &origin.content_id].map(|content| names::aadl_config_map(JOB, pe.id, content))
    });
    texts.collect()
}

fn names_of_chunks(document: &Document, sha256: &str, chunks: u32) -> BTreeSet<String> {
    (0..chunks).map(|index| document.chunk_name(JOB, sha256, index)).collect()
}
