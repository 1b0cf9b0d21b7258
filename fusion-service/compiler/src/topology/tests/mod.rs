//! Tests of the expansion as a whole: the topologies of small applications, and applications that are refused.

mod costs;
mod errors;
mod hostile;
mod properties;
mod results;
mod reuse;
mod sketch;
