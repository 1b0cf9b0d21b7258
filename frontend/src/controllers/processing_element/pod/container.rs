//! The container of a PE (rules pod-6 and pod-7), and the one that unpacks its text (rule pod-10).

use super::environment::{self, INSTALL};
use super::{Parts, volumes};
use crate::bundles::RepositoryOptions;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ExecAction, Probe, ResourceRequirements, SecurityContext, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;
use std::time::Duration;
use streams_api::PeOptions;
use streams_api::mounts::LIVE;

/// The program that the runtime image starts for a PE.
const BOOTSTRAP: &str = "system/impl/bin/streams-k8s-bootstrap";
/// Name of the container of the PE.
pub(crate) const PE: &str = "pe";

/// The container of the PE.
pub(super) fn pe(parts: Parts<'_>, launch_count: u64, mounts: Vec<VolumeMount>) -> Container {
    let options = &parts.pe.spec.options;
    let liveness = probe(options, options.probe_failure_threshold);
    let capabilities = Capabilities { add: Some(vec!["SYS_PTRACE".to_owned()]), drop: None };
    Container {
        name: PE.to_owned(),
        args: Some(vec![format!("{INSTALL}/{BOOTSTRAP}")]),
        env: Some(environment::variables(parts, launch_count)),
        security_context: options
            .allow_ptrace()
            .then(|| SecurityContext { capabilities: Some(capabilities), ..SecurityContext::default() }),
        startup_probe: Some(probe(options, failures_at_start(options, RepositoryOptions::default().longest()))),
        liveness_probe: Some(liveness),
        volume_mounts: Some(mounts),
        ..bare(parts)
    }
}

/// Looks whether the PE is alive; so many failures kill it.
fn probe(options: &PeOptions, failures: i32) -> Probe {
    Probe {
        exec: Some(ExecAction { command: Some(vec!["cat".to_owned(), LIVE.to_owned()]) }),
        initial_delay_seconds: Some(options.initial_probe_delay_in_seconds),
        period_seconds: Some(options.probe_interval_in_seconds),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

/// How often a PE may be found that has not started. It waits for its bundle before, so long at most, and nobody may
/// kill it for that; what it has then is what a PE has that waits for nothing.
fn failures_at_start(options: &PeOptions, longest_wait: Duration) -> i32 {
    let interval = u64::try_from(options.probe_interval_in_seconds).unwrap_or_default().max(1);
    let waiting = i32::try_from(longest_wait.as_secs().div_ceil(interval)).unwrap_or(i32::MAX);
    waiting.saturating_add(options.probe_failure_threshold)
}

/// The container that unpacks the text before the PE starts. It needs no more than the PE, so it costs nothing.
pub(super) fn unpack(parts: Parts<'_>, mounts: Vec<VolumeMount>) -> Container {
    let script = format!(
        "gzip -dc '{packed}/aadl.xml.gz' > '{unpacked}/aadl.xml.part' && mv '{unpacked}/aadl.xml.part' '{unpacked}/aadl.xml'",
        packed = volumes::PACKED_TEXT,
        unpacked = volumes::TEXT,
    );
    Container {
        name: "unpack".to_owned(),
        command: Some(vec!["/bin/sh".to_owned(), "-c".to_owned(), script]),
        volume_mounts: Some(mounts),
        ..bare(parts)
    }
}

/// What both have in common.
fn bare(parts: Parts<'_>) -> Container {
    let options = &parts.pe.spec.options;
    let image = || parts.settings.image(options.build_type(parts.settings.build_type));
    Container {
        image: Some(options.image.clone().unwrap_or_else(image)),
        image_pull_policy: Some(options.image_pull_policy.unwrap_or_default().name().to_owned()),
        resources: Some(options.resources.clone().unwrap_or_else(default_resources)),
        // The end of the log is what people ask for first when a PE has failed.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// Resources of a PE for which neither it nor its job says anything (rule pod-4).
fn default_resources() -> ResourceRequirements {
    let requests = [("cpu", "100m"), ("memory", "128Mi")];
    let requests: BTreeMap<_, _> =
        requests.map(|(name, quantity)| (name.to_owned(), Quantity(quantity.to_owned()))).into();
    ResourceRequirements { requests: Some(requests), ..ResourceRequirements::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::BundleSettings;

    #[test]
    fn no_probe_kills_a_pe_that_waits_for_its_bundle() {
        // interval, failures that kill a PE -> failures that kill one that starts, if a bundle may take 1,890 s
        let table = [(10, 1, 190), (10, 3, 192), (1, 1, 1_891), (1_000, 1, 3), (86_400, 1_000, 1_001), (0, 1, 1_891)];
        for (interval, failures, expected) in table {
            let options = PeOptions {
                probe_interval_in_seconds: interval,
                probe_failure_threshold: failures,
                ..PeOptions::default()
            };
            let found = failures_at_start(&options, Duration::from_secs(1_890));
            assert_eq!(found, expected, "{interval} {failures}");
        }
        assert_eq!(failures_at_start(&PeOptions::default(), Duration::MAX), i32::MAX);
        // What the frontend serves with.
        let served = BundleSettings::default().repository(Duration::ZERO);
        assert_eq!(served.longest(), RepositoryOptions::default().longest());
        assert!(served.longest() > served.patience);
    }
}
