//! What the gRPC services of the frontend have in common.
//!
//! | Module | What it does |
//! |---|---|
//! | [`server`] | one listener for all of them: reflection, shutdown |
//! | [`health`] | who hears of health, and how long |
//! | [`access`] | who calls, and whether they may |
//! | [`transport`] | connections and streams, and their bounds |
//! | [`arrival`] | when and from where a call has arrived |
//! | [`certificate`] | who a certificate says that calls |
//! | [`deadline`] | how long a caller waits |
//! | [`message`] | what a request takes in memory |
//! | [`pages`] | lists in pages |
//! | [`places`] | how much may go on at the same time, in all, of one namespace or job, and for one caller |
//! | [`status`] | statuses with `google.rpc` details that fit into trailers |
//! | [`subject`] | somebody whom the cluster knows |
//!
//! Knows: gRPC. Must not know: any service of ours, kinds of objects.

pub(crate) mod access;
pub(crate) mod arrival;
pub(crate) mod certificate;
pub(crate) mod deadline;
mod health;
pub(crate) mod message;
pub(crate) mod pages;
pub(crate) mod places;
pub(crate) mod server;
pub(crate) mod status;
pub(crate) mod subject;
pub(crate) mod transport;
