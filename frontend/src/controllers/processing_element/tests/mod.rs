//! The reconciler in a world that is a few maps: an API server, kubelets, a user, mirrors that lag behind, and crashes at every call.

mod properties;
mod walks;
mod world;
