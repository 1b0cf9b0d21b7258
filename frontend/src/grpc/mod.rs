//! What the gRPC services of the frontend have in common.
//!
//! | Module | What it does |
//! |---|---|
//! | [`server`] | one listener for all of them: health, reflection, shutdown |
//! | [`transport`] | connections and streams, and their bounds |
//! | [`deadline`] | how long a caller waits |
//! | [`pages`] | lists in pages |
//! | [`places`] | how much may go on at the same time, in all and of one namespace or job |
//! | [`status`] | statuses with `google.rpc` details that fit into trailers |
//!
//! Knows: gRPC. Must not know: any service of ours, kinds of objects.

pub(crate) mod deadline;
pub(crate) mod pages;
pub(crate) mod places;
pub(crate) mod server;
pub(crate) mod status;
pub(crate) mod transport;
