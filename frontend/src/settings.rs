//! Settings of the frontend that apply to all jobs.
//!
//! Knows: options and their defaults. Must not know: how they are used.

use crate::bundles;
use crate::option_values::{part, seconds, seconds_or_none};
use clap::Args;
use ipnet::IpNet;
use std::path::PathBuf;
use std::time::Duration;
use streams_api::BuildType;

/// How pods are made, where a PE's own options do not say it.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Pods")]
pub struct PodSettings {
    /// Registry of the runtime image
    #[arg(long, env = "STREAMS_IMAGE_REGISTRY", default_value = "docker.io", value_name = "HOST")]
    pub image_registry: String,

    /// Name of the runtime image in the registry
    #[arg(long, env = "STREAMS_IMAGE_NAME", default_value = "openstreams/streams-runtime", value_name = "NAME")]
    pub image_name: String,

    /// Version of the runtime image; its tag is this, a dot, and the build
    #[arg(long, env = "STREAMS_IMAGE_VERSION", default_value = "6", value_name = "VERSION")]
    pub image_version: String,

    /// Build of the runtime, where a PE's options name none
    #[arg(long, env = "STREAMS_BUILD_TYPE", value_enum, default_value = "debug", value_name = "TYPE")]
    pub build_type: BuildType,

    /// Directory of the node that PEs see as their data directory, where their options name none
    #[arg(long, env = "STREAMS_DATA_PATH", value_name = "PATH")]
    pub data_path: Option<String>,

    /// Directory of the node for checkpoints, where a PE's options name no volume
    #[arg(long, env = "STREAMS_CHECKPOINT_PATH", value_name = "PATH")]
    pub checkpoint_path: Option<String>,
}

impl Default for PodSettings {
    fn default() -> Self {
        Self {
            image_registry: "docker.io".to_owned(),
            image_name: "openstreams/streams-runtime".to_owned(),
            image_version: "6".to_owned(),
            build_type: BuildType::Debug,
            data_path: None,
            checkpoint_path: None,
        }
    }
}

impl PodSettings {
    /// The runtime image of this build.
    pub fn image(&self, build_type: BuildType) -> String {
        format!("{}/{}:{}.{}", self.image_registry, self.image_name, self.image_version, build_type.name())
    }
}

/// How jobs are submitted and resized.
#[derive(Clone, Debug, PartialEq, Args)]
#[command(next_help_heading = "Jobs")]
pub struct JobSettings {
    /// How long a pod must have been running before the roll-out of a generation goes on
    #[arg(long, env = "STREAMS_MIN_READY_SECONDS", default_value = "0", value_name = "SECONDS", value_parser = seconds_or_none)]
    pub min_ready_seconds: Duration,

    /// How often a job is submitted before it has failed
    #[arg(long, env = "STREAMS_SUBMISSION_ATTEMPTS", default_value = "3", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub submission_attempts: u32,

    /// How long a resize may take before the job says that it is delayed
    #[arg(long, env = "STREAMS_RESIZE_SECONDS", default_value = "300", value_name = "SECONDS", value_parser = seconds)]
    pub resize_seconds: Duration,

    /// Part of the cluster's free CPU that a job with automatic fusion may take
    #[arg(long, env = "STREAMS_CPU_SHARE", default_value = "0.5", value_name = "PART", value_parser = part)]
    pub cpu_share: f64,

    /// Keys that each controller works on at the same time
    #[arg(long, env = "STREAMS_WORKERS", default_value = "24", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: u16,

    /// Calls of controllers to the API server that are under way at the same time; two thirds of them for a namespace
    /// that is alone, a quarter for each beside others
    #[arg(long, env = "STREAMS_CONCURRENT_CALLS", default_value = "24", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub concurrent_calls: u16,

    /// Bundles that are fetched at the same time; half of them for one namespace at most
    #[arg(long, env = "STREAMS_DOWNLOAD_WORKERS", default_value = "4", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub download_workers: u16,

    /// Jobs that are compiled or whose texts are written at the same time; half of them for one namespace at most
    #[arg(long, env = "STREAMS_LONG_WORKERS", default_value = "4", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub long_workers: u16,

    /// Submit applications whose ADL has version v4000, which newer runtimes do not understand
    #[arg(long, env = "STREAMS_ALLOW_ADL_V4000")]
    pub allow_adl_v4000: bool,

    /// How often every object is looked at again although nothing has happened to it, about
    #[arg(long, env = "STREAMS_RESYNC_SECONDS", default_value = "600", value_name = "SECONDS", value_parser = seconds)]
    pub resync_seconds: Duration,

    /// Objects of jobs that nobody has changed which are rewritten in a second, after another version of the frontend
    #[arg(long, env = "STREAMS_REWRITES_PER_SECOND", default_value = "20", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rewrites_per_second: u32,

    /// AADL text that is written for one generation, at most
    #[arg(long, env = "STREAMS_MAX_GENERATION_MIB", default_value = "4096", value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub max_generation_mib: u64,

    /// Largest plan of a generation, before compression
    #[arg(long, env = "STREAMS_MAX_PLAN_MIB", default_value = "64", value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(1..=4095))]
    pub max_plan_mib: u64,

    /// Plans of jobs that are kept in memory
    #[arg(long, env = "STREAMS_PLAN_CACHE_MIB", default_value = "128", value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(0..=1 << 20))]
    pub plan_cache_mib: u64,

    /// ADL of jobs that is kept in memory
    #[arg(long, env = "STREAMS_ADL_CACHE_MIB", default_value = "64", value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(0..=1 << 20))]
    pub adl_cache_mib: u64,
}

impl Default for JobSettings {
    fn default() -> Self {
        Self {
            min_ready_seconds: Duration::ZERO,
            submission_attempts: 3,
            resize_seconds: Duration::from_secs(300),
            cpu_share: 0.5,
            workers: 24,
            concurrent_calls: 24,
            download_workers: 4,
            long_workers: 4,
            allow_adl_v4000: false,
            resync_seconds: Duration::from_secs(600),
            rewrites_per_second: 20,
            max_generation_mib: 4096,
            max_plan_mib: 64,
            plan_cache_mib: 128,
            adl_cache_mib: 64,
        }
    }
}

/// Where bundles come from, and how large they may be.
#[derive(Clone, Debug, PartialEq, Args)]
#[command(next_help_heading = "Bundles")]
pub struct BundleSettings {
    /// Directory that `bundle.file` and `file` URLs of jobs refer to; without it they are refused
    #[arg(long, env = "STREAMS_BUNDLE_DIRECTORY", value_name = "DIRECTORY")]
    pub bundle_directory: Option<PathBuf>,

    /// Address that the name of a bundle without url or file is appended to; it may have any address
    #[arg(long, env = "STREAMS_BUNDLE_BASE_URL", value_name = "URL")]
    pub bundle_base_url: Option<url::Url>,

    /// Directory, on a volume that all replicas share, that keeps every bundle that a job uses
    #[arg(long, env = "STREAMS_BUNDLE_STORE", value_name = "DIRECTORY")]
    pub bundle_store: Option<PathBuf>,

    /// Fetch bundles by `http` too, not only by `https`
    #[arg(long, env = "STREAMS_ALLOW_HTTP_BUNDLES")]
    pub allow_http_bundles: bool,

    /// Host that tokens may go to where a Secret has no key `hosts`, besides api.github.com; may be repeated
    #[arg(
        long = "bundle-token-host",
        env = "STREAMS_BUNDLE_TOKEN_HOSTS",
        value_name = "HOST[:PORT]",
        value_delimiter = ','
    )]
    pub bundle_token_hosts: Vec<bundles::Host>,

    /// Addresses that bundles may be fetched from although they are refused otherwise; may be repeated
    #[arg(
        long = "allow-bundle-address",
        env = "STREAMS_ALLOW_BUNDLE_ADDRESSES",
        value_name = "CIDR",
        value_delimiter = ','
    )]
    pub allow_bundle_addresses: Vec<IpNet>,

    /// Addresses that no bundle is fetched from, besides those that are always refused; may be repeated
    #[arg(
        long = "deny-bundle-address",
        env = "STREAMS_DENY_BUNDLE_ADDRESSES",
        value_name = "CIDR",
        value_delimiter = ','
    )]
    pub deny_bundle_addresses: Vec<IpNet>,

    /// Proxy of all downloads; variables like HTTPS_PROXY are not looked at
    #[arg(long, env = "STREAMS_BUNDLE_PROXY", value_name = "URL")]
    pub bundle_proxy: Option<url::Url>,

    /// Longest download, and longest wait for a file of the bundle directory or the bundle store
    #[arg(long, env = "STREAMS_BUNDLE_SECONDS", default_value = "120", value_name = "SECONDS", value_parser = seconds)]
    pub bundle_seconds: Duration,

    /// Largest bundle
    #[arg(long, env = "STREAMS_MAX_BUNDLE_MIB", default_value = "128", value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub max_bundle_mib: u64,

    /// Largest ADL
    #[arg(long, env = "STREAMS_MAX_ADL_MIB", default_value = "64", value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(1..=64))]
    pub max_adl_mib: u64,

    /// Bundles that are kept in memory
    #[arg(long, env = "STREAMS_BUNDLE_CACHE_MIB", default_value = "64", value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(0..=1 << 20))]
    pub bundle_cache_mib: u64,

    /// Directory for bundles that PEs are served; it need not outlive the process
    #[arg(long, env = "STREAMS_BUNDLE_REPOSITORY_DIRECTORY", default_value = "/tmp", value_name = "DIRECTORY")]
    pub bundle_repository_directory: PathBuf,

    /// Bundles in that directory
    #[arg(long, env = "STREAMS_BUNDLE_REPOSITORY_MIB", default_value = "1024", value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub bundle_repository_mib: u64,
}

impl Default for BundleSettings {
    fn default() -> Self {
        Self {
            bundle_directory: None,
            bundle_base_url: None,
            bundle_store: None,
            allow_http_bundles: false,
            bundle_token_hosts: Vec::new(),
            allow_bundle_addresses: Vec::new(),
            deny_bundle_addresses: Vec::new(),
            bundle_proxy: None,
            bundle_seconds: Duration::from_secs(120),
            max_bundle_mib: 128,
            max_adl_mib: 64,
            bundle_cache_mib: 64,
            bundle_repository_directory: PathBuf::from("/tmp"),
            bundle_repository_mib: 1024,
        }
    }
}

impl BundleSettings {
    /// What PEs are served; `grace` is what transfers have at the end.
    pub fn repository(&self, grace: Duration) -> bundles::RepositoryOptions {
        bundles::RepositoryOptions {
            directory: self.bundle_repository_directory.clone(),
            max_bytes: self.bundle_repository_mib << 20,
            server: streams_bundle_repository::Settings { grace, ..streams_bundle_repository::Settings::default() },
            ..bundles::RepositoryOptions::default()
        }
    }

    /// The options of the fetcher. `api_server` has the names and addresses of the API server, `at_once` says how many
    /// bundles are fetched at the same time.
    pub fn fetcher(&self, api_server: Vec<String>, at_once: u16) -> bundles::FetchOptions {
        bundles::FetchOptions {
            directory: self.bundle_directory.clone(),
            base_url: self.bundle_base_url.clone(),
            store: self.bundle_store.clone(),
            allow_http: self.allow_http_bundles,
            token_hosts: self.bundle_token_hosts.iter().cloned().collect(),
            allowed: self.allow_bundle_addresses.clone(),
            denied: self.deny_bundle_addresses.clone(),
            api_server,
            proxy: self.bundle_proxy.clone(),
            time_out: self.bundle_seconds,
            max_bytes: usize::try_from(self.max_bundle_mib << 20).unwrap_or(usize::MAX),
            max_adl_bytes: self.max_adl_mib << 20,
            cache_bytes: self.bundle_cache_mib << 20,
            at_once: at_once.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct All {
        #[command(flatten)]
        pods: PodSettings,
        #[command(flatten)]
        jobs: JobSettings,
        #[command(flatten)]
        bundles: BundleSettings,
    }

    fn parse(arguments: &[&str]) -> Result<All, String> {
        All::try_parse_from(["program"].iter().chain(arguments)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_of_the_options_are_those_of_the_types() {
        let all = parse(&[]).unwrap();
        assert_eq!(all.pods, PodSettings::default());
        assert_eq!(all.jobs, JobSettings::default());
        assert_eq!(all.bundles, BundleSettings::default());
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        // arguments -> part of the error
        let table: [(&[&str], &str); 14] = [
            (&["--max-plan-mib", "0"], "0 is not in 1..=4095"),
            (&["--min-ready-seconds", "soon"], "not a number of seconds"),
            (&["--min-ready-seconds=-1"], "'--min-ready-seconds <SECONDS>': -1 is not between 0 and 86400 seconds"),
            (&["--resize-seconds", "0"], "'--resize-seconds <SECONDS>': 0 is not between 0.1 and 86400 seconds"),
            (&["--resync-seconds", "0"], "'--resync-seconds <SECONDS>': 0 is not between 0.1"),
            (&["--bundle-seconds", "0"], "'--bundle-seconds <SECONDS>': 0 is not between 0.1"),
            (&["--bundle-seconds", "1e19"], "and 86400 seconds"),
            (&["--cpu-share", "1.5"], "not between 0 and 1"),
            (&["--workers", "0"], "0 is not in 1"),
            (&["--build-type", "fast"], "possible values: debug, release"),
            (&["--bundle-base-url", "here"], "relative URL"),
            (&["--bundle-token-host", "https://h/"], "not a host[:port]"),
            (&["--deny-bundle-address", "10.0.0.0"], "invalid IP address syntax"),
            (&["--max-adl-mib", "65"], "65 is not in 1..=64"),
        ];
        for (arguments, expected) in table {
            let error = parse(arguments).unwrap_err();
            assert!(error.contains(expected), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn the_image_follows_from_registry_name_version_and_build() {
        let image = PodSettings::default().image(BuildType::Release);
        assert_eq!(image, "docker.io/openstreams/streams-runtime:6.release");
    }
}
