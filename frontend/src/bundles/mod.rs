//! Fetching application bundles, and giving them to PEs.
//!
//! A job names its bundle by URL, by file, or by name alone; [`Fetcher`] turns that into bytes and [`Application`] is
//! what a job needs of them. A bundle is fetched once per submission: the ADL is pinned afterwards, so nothing here is
//! needed to resize. Its PEs get the same bundle from a [`BundleRepository`].
//!
//! | Module | Subject |
//! |---|---|
//! | [`options`] | what whoever runs the frontend allows |
//! | [`reference`] | what a reference in a job names |
//! | [`directory`] | files of the bundle directory |
//! | [`hosts`], [`secret`] | tokens, and where they may go |
//! | [`addresses`], [`guard`] | which addresses may be connected to |
//! | [`http`] | requests and redirects |
//! | [`proofs`] | who has shown lately that a server gives them a bundle |
//! | [`volume`] | files of volumes that may not answer |
//! | [`contents`] | bundles by digest, in memory and in the store |
//! | [`place`], [`places`] | a place in memory, and the threads that hold it; whose bundle is fetched next |
//! | [`application`] | from a bundle to its ADL |
//! | [`fetcher`] | all of it in order |
//! | [`repository`] | serving PEs the bundles of their jobs |
//! | [`error`] | why a bundle could not be had |
//!
//! Knows: URLs, files, tokens in Secrets, limits. Must not know: how jobs come to their state
//! (a repository reads what is recorded there), what is in an ADL.
//!
//! What a job can make the frontend read and ask is bounded: files only inside the bundle directory, addresses,
//! `http` only if allowed, tokens, sizes, times, redirects.

mod addresses;
mod application;
mod contents;
mod directory;
mod error;
mod fetcher;
mod guard;
mod hosts;
mod http;
mod options;
mod place;
mod places;
mod proofs;
mod reference;
pub mod repository;
mod secret;
#[cfg(test)]
mod tests;
mod volume;

pub use application::Application;
pub use error::BundleError;
pub use fetcher::Fetcher;
pub use hosts::{Host, Hosts};
pub use options::FetchOptions;
pub use repository::{BundleRepository, RepositoryOptions};
