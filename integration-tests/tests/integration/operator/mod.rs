//! The operator on a real control plane: what it promises, a file per question.
//!
//! Each test has a namespace of its own, with replicas of the fusion service and of the frontend that look at nothing
//! else; [`rights`] has two, as it is about what one of them takes from the other. Where a test needs the operator to
//! be in the middle of something, it does not race with it: a [`quota`] on the namespace lets it come so far and no
//! farther, or a policy does that refuses some objects ([`refused_texts`]).

mod bundle_server;
pub(crate) mod fixture;
mod https;
mod metrics_api;
mod quota;
mod refused_texts;

mod autoscaler;
mod bad_bundles;
mod bad_resizes;
mod balancer;
mod bundles;
mod callers;
mod calls;
mod checkpoints;
mod crash_points;
mod crowds;
mod deletion;
mod dialects;
mod drift;
mod edits;
mod elasticity;
mod elasticity_lists;
mod elasticity_streams;
mod frontend_killed;
mod fusion_down;
mod fusion_endpoints;
mod histories;
mod hostile_objects;
mod interfaces;
mod leadership;
mod neighbours;
mod placements;
mod plugin;
mod pods;
mod refused_specs;
mod repair;
mod requests;
mod resizes;
mod rights;
mod stopped;
mod submission;
mod submission_clock;
mod subscriptions;
mod suspension;
mod tables;
mod tokens;
mod traces;
mod transport;
mod vectors;
mod walk_through;
mod waves;
