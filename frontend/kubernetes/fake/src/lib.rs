//! An API server in memory, for tests of what talks to one.
//!
//! A [`Server`] has the objects. A [`Connection`] is how one process reaches it: it implements the port
//! ([`Cluster`](streams_kubernetes::Cluster)) and can be made to fail. A [`Mirror`] fills a watch with the changes of
//! one kind, as late as a test wants. Nothing happens by itself: time passes, garbage is collected and mirrors hear of
//! changes when a test says so, and everything is counted (uids, versions), so that the same calls always lead to the
//! same state.
//!
//! # What it assumes of an API server
//!
//! The table in [`conformance`] states most of this as cases. It holds for this server (`tests/conformance.rs`) and for
//! a real one (`integration-tests`), so an assumption that is wrong fails there.
//!
//! *Objects.* A name is unique per kind and namespace; an existing one cannot be created (409 `AlreadyExists`), and
//! whatever needs one that does not exist is answered with 404. Uids are never used twice. `metadata` fields of the
//! system (uid, times, generation, version) cannot be written. In custom resources `null` is a value like others;
//! elsewhere a field that is `null` is not there.
//!
//! *Versions.* Every change gives the object a new `resourceVersion`, greater than all before. A write that changes
//! nothing gives none. A write that carries a version, or a uid, is refused if the object has another one (409
//! `Conflict`); custom resources cannot be replaced without a version. Deletions have the same preconditions.
//!
//! *Generation and status.* Custom resources have a `status` sub-resource: creating, replacing, patching and applying
//! ignore the status, and writing the status changes nothing else. `metadata.generation` starts at 1 and counts changes
//! of everything but metadata and status, and the beginning of a deletion.
//!
//! *Fields and their owners.* An apply owns the fields that it sets, in the name of its manager. A field that another
//! manager owns with another value is a conflict (409), unless the apply forces it; then the field changes its owner. A
//! field that a manager has applied and applies no more is removed, unless another manager owns it, too. Creating,
//! replacing and patching take over the fields that they change. Lists are values as a whole, except owner references
//! (by uid), finalizers (a set), conditions (by type) and ports of Services (by number and protocol). The selector of a
//! Service is a value as a whole. Who owns what is shown by `metadata.managedFields`, of ConfigMaps only.
//!
//! *Deletion.* An object with finalizers gets a deletion timestamp and stays until the last finalizer is removed; none
//! can be added then. A pod that runs on a node gets a deletion timestamp, in the future by its grace period, and stays
//! until its kubelet says that it has ended. Everything else is gone at once. Before a pod goes, watches hear that its
//! grace period is 0.
//!
//! *Garbage.* The collector runs later than the deletion. It deletes objects of which no owner (by uid) exists, removes
//! references to owners that are gone from the others, ends a foreground deletion when no dependent blocks it, and
//! removes the references to an orphaning owner.
//!
//! # What it does not do
//!
//! * Namespaces, permissions, schemas, CEL rules, defaults and admission do not exist; [`Server::refuse`] stands for
//!   all refusals but that of fields that a definition does not declare ([`Server::does_not_declare`]). Only immutable
//!   ConfigMaps and Secrets are checked.
//! * No `generateName`, dry run, JSON or strategic merge patch, deletion of collections, or sub-resources other than
//!   `status`.
//! * No watches over the wire: a [`Mirror`] takes the place of the connection that delivers them.
//!
//! Knows: an API server as its clients see it. Must not know: any controller, custom resources but by their names and
//! what a test declares.

pub mod conformance;
mod connection;
mod delete;
mod error;
mod fields;
mod kind;
mod mirror;
mod select;
mod server;
mod state;
mod write;

pub use self::connection::{Connection, Fault};
pub use self::mirror::Mirror;
pub use self::server::{Announced, Call, Server, Verb};
