//! A job walked from its submission to the end, in a world that is a few maps.
//!
//! [`world`] has the API server, the fusion service, the PE controller and the user; a crash may follow any write.

mod interleavings;
mod table;
mod walks;
mod world;
