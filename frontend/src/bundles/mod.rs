//! Fetching application bundles.
//!
//! A job names its bundle by URL, by file, or by name alone; [`Fetcher`] turns that into bytes and [`Application`] is
//! what a job needs of them. A bundle is fetched once per submission: the ADL is pinned afterwards, so nothing here is
//! needed to resize.
//!
//! Knows: URLs, files, tokens in Secrets, limits. Must not know: jobs and their state, what is in an ADL.
//!
//! What a job can make the frontend read is bounded: files only inside the bundle directory, `http` only if allowed,
//! sizes, times, redirects.

mod error;
mod fetcher;

pub use error::BundleError;
pub use fetcher::{Application, FetchOptions, Fetcher};
