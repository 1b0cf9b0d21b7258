//! What whoever runs the frontend allows: where bundles may come from, and how large they may be.
//!
//! Knows: plain values and their defaults. Must not know: how bundles are fetched.
//!
//! Invariant: the defaults fit the memory that the manifests give the frontend, whatever users submit (rule fetch-6).

use super::hosts::Hosts;
use ipnet::IpNet;
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// Where bundles may come from (rule fetch-3), and how large they may be (rule fetch-6).
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Directory that `file` and plain names refer to.
    pub directory: Option<PathBuf>,
    /// Address that plain names are appended to when there is no such file.
    pub base_url: Option<Url>,
    /// Directory that keeps every bundle that a job uses (rule fetch-14).
    pub store: Option<PathBuf>,
    /// Whether `http` is allowed besides `https`.
    pub allow_http: bool,
    /// Hosts that tokens may go to where a Secret lists none, besides the API host of GitHub (rule fetch-8).
    pub token_hosts: Hosts,
    /// Addresses that may be connected to although they are refused otherwise (rule fetch-11).
    pub allowed: Vec<IpNet>,
    /// Addresses that must not be connected to, besides those that never are (rule fetch-11).
    pub denied: Vec<IpNet>,
    /// Names or addresses of the API server (rule fetch-11).
    pub api_server: Vec<String>,
    /// Proxy of all downloads (rule fetch-12).
    pub proxy: Option<Url>,
    /// Longest download, and longest wait for a file.
    pub time_out: Duration,
    /// Largest bundle in bytes.
    pub max_bytes: usize,
    /// Largest ADL in bytes.
    pub max_adl_bytes: u64,
    /// Bytes of downloaded bundles that are kept for later submissions.
    pub cache_bytes: u64,
    /// Bundles that are fetched at the same time. They are unpacked one after the other.
    pub at_once: usize,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            directory: None,
            base_url: None,
            store: None,
            allow_http: false,
            token_hosts: Hosts::default(),
            allowed: Vec::new(),
            denied: Vec::new(),
            api_server: Vec::new(),
            proxy: None,
            time_out: Duration::from_secs(120),
            max_bytes: 128 << 20,
            max_adl_bytes: 64 << 20,
            cache_bytes: 64 << 20,
            at_once: 4,
        }
    }
}

impl FetchOptions {
    /// Where the token of a Secret may go that lists no hosts.
    pub(super) fn default_hosts(&self) -> Hosts {
        Hosts::github().and(&self.token_hosts)
    }
}
