//! Controllers.
pub(crate) mod job;
