//! Expansion seen from outside: small applications, what becomes of them, and what is refused.

mod errors;
mod hostile;
mod properties;
mod regrowth;
mod results;
mod sketch;
