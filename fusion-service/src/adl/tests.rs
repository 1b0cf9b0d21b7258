//! Whole documents in, applications and problems out.
