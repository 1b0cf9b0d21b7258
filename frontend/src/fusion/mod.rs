//! The client side of the fusion service.
//!
//! * [`Client`] — `submit`, `resize`, `render`: every call has a deadline and goes to another replica when one fails.
//! * [`replicas`] — which replicas there are, and which one to ask next.
//! * [`FusionError`] — what went wrong, told apart by what the caller should do: correct the job, try later, compile
//!   anew.
//!
//! Knows: the contract in `proto/streams/fusion/v1`. Must not know: Kubernetes objects, queues, when to call.
//!
//! Nothing is kept between calls but connections: after a crash the same request gives the same answer.

mod client;
mod error;
mod render;
pub mod replicas;
#[cfg(test)]
mod tests;

pub use client::{Client, ClientOptions};
pub use error::{FusionError, Problem};
pub use render::RenderedText;
