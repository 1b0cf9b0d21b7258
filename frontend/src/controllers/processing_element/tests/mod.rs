//! The controller over a fake API server: scenarios, and whatever else may happen.

mod properties;
mod scenarios;
mod simulation;
