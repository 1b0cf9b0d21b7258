//! What people and scripts call without a cluster: one module per command of the program.

pub mod fuse;
pub mod plan;
