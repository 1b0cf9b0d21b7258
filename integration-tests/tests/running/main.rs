//! Jobs that run: the PEs are processes, with addresses of their own, that move tuples and talk to the frontend as the
//! runtime does.
//!
//! A control plane of its own, in which a node agent plays the kubelet and doubles play the runtime. As root on Linux:
//! the agent adds a route to this machine. Elsewhere the tests say that they test nothing.

mod bundles;
mod exchanges;
mod fixture;
mod namespaces;
mod pods;
mod regions;
mod resizes;
mod routes;
