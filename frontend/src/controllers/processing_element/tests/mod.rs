//! The controller over a fake API server: scenarios with a crash at every call, and random walks.

mod crowds;
mod memories;
mod metadata;
mod properties;
mod scenarios;
mod simulation;
mod strays;
mod texts;
