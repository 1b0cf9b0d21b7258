//! The client side of the fusion service.
//!
//! * [`Client`] — `submit`, `resize`, `plan`, `render`: every call has a deadline and goes to another replica when
//!   one fails.
//! * `tries` — one call, tried until a replica answers.
//! * `trace` — how each try shows in a trace.
//! * `replicas` — which replicas there are, and how they are.
//! * `rest` — for how long one is left alone.
//! * `preference` — pure: which one a call goes to.
//! * [`FusionError`] — what went wrong, told apart by what the caller should do: correct the job, try later, compile
//!   anew.
//!
//! Knows: the contract in `proto/streams/fusion/v1`. Must not know: Kubernetes objects, queues, when to call.
//!
//! Nothing is kept between calls but connections: after a crash the same request gives the same answer.

mod client;
mod error;
mod preference;
mod render;
mod replicas;
mod rest;
#[cfg(test)]
mod tests;
mod trace;
mod tries;

pub(crate) use client::MAX_TEXT;
pub use client::{Client, ClientOptions};
pub use error::{FusionError, Problem};
pub use render::RenderedText;
pub use replicas::{Endpoint, Endpoints};
