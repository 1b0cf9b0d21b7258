//! The harness itself: what the other tests rely on.

mod access;
mod building;
mod garbage;
mod nothing_stays;
mod pods;
mod processes;
mod restarts;
