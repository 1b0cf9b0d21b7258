//! One replica of the fusion service as it is deployed, with the arguments and the memory limit of its manifest.

use crate::soak::memory;
use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use streams_control_plane::process::{Process, Program, StateDirectory, Supervisor, free_port, serves_grpc};

const MANIFEST: &str = include_str!("../../../../deploy/base/fusion-service.yaml");
const SERVICE: &str = "streams.fusion.v1.FusionService";
/// Arguments of which every process needs its own.
const ADDRESSES: [&str; 2] = ["--listen=", "--http-listen="];
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A running replica. It ends with this value.
pub(super) struct Replica {
    address: SocketAddr,
    process: Process,
    /// Where its log is.
    _state: StateDirectory,
}

impl Replica {
    /// Starts it, and waits until it serves.
    ///
    /// # Errors
    /// When it does not, with the end of its log.
    pub(super) async fn start(supervisor: &Supervisor, executable: &Path) -> Result<Self> {
        let state = StateDirectory::create(supervisor)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let program = Program::new("fusion-service", executable)
            .arguments(arguments()?)
            .arguments(["--listen", &address.to_string()])
            .without_proxy();
        let process = Process::start(supervisor, &state, program).await?;
        process.ready(READY_WITHIN, || serves_grpc(address, SERVICE)).await?;
        Ok(Self { address, process, _state: state })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The most memory that it has had, in bytes.
    ///
    /// # Errors
    /// When it has ended: it may have had more than there is.
    pub(super) fn most_memory(&self) -> Result<u64> {
        let most = self.process.id().and_then(memory::most_resident);
        let most = most.with_context(|| format!("the service has ended:\n{}", self.process.last_lines(10)))?;
        Ok(most << 10)
    }
}

/// Arguments of the service in its manifest, but for addresses.
///
/// # Errors
/// When the manifest has another form.
pub(super) fn arguments() -> Result<Vec<String>> {
    let mut arguments = container()?.args.unwrap_or_default();
    arguments.retain(|argument| !ADDRESSES.iter().any(|address| argument.starts_with(address)));
    Ok(arguments)
}

/// The memory limit of its pod, in bytes.
///
/// # Errors
/// When the manifest has another form.
pub(super) fn limit() -> Result<u64> {
    let limits = container()?.resources.and_then(|resources| resources.limits).unwrap_or_default();
    let limit = limits.get("memory").context("the manifest has no memory limit")?;
    let gibibytes = limit.0.strip_suffix("Gi").and_then(|number| number.parse::<u64>().ok());
    Ok(gibibytes.with_context(|| format!("cannot read the memory limit {}", limit.0))? << 30)
}

fn container() -> Result<Container> {
    let objects: Vec<serde_json::Value> = serde_saphyr::from_multiple(MANIFEST).context("cannot read the manifest")?;
    let deployment = objects.into_iter().find(|object| object["kind"] == "Deployment");
    let deployment: Deployment = serde_json::from_value(deployment.context("the manifest has no Deployment")?)?;
    let pod = deployment.spec.and_then(|spec| spec.template.spec);
    pod.and_then(|pod| pod.containers.into_iter().next()).context("the manifest has no container")
}

#[cfg(test)]
mod tests {
    use super::{arguments, limit};

    #[test]
    fn the_manifest_has_arguments_and_a_limit() {
        let arguments = arguments().unwrap();
        assert_eq!(arguments.first().map(String::as_str), Some("serve"));
        // What the limit was measured with; the number of cores is another one elsewhere.
        for option in ["--memory-mib=", "--cache-mib=", "--workers="] {
            assert!(arguments.iter().any(|argument| argument.starts_with(option)), "{option}: {arguments:?}");
        }
        assert!(arguments.iter().all(|argument| !argument.contains("listen")), "{arguments:?}");
        assert!(limit().unwrap() >= 1 << 30);
    }
}
