//! Reads requests from messages that have been checked.

use crate::server::request::Resize;
use std::collections::BTreeMap;
use streams_compiler::error::Error;
use streams_compiler::fuser::{Cpus, FusionType};
use streams_compiler::plan::{FusionOption, InUse, JobState, Policy, PortsInUse, Request};
use streams_compiler::topology::{ChannelCount, Configuration};
use streams_proto::fusion::v1 as pb;

/// What a job adds to its application.
///
/// # Errors
///
/// Stage `logical-model`, as for the properties of a job.
pub(super) fn request(compilation: &pb::Compilation) -> Result<Request, Error> {
    let fusion = compilation.fusion.as_ref();
    Ok(Request {
        job_name: compilation.job_name.clone(),
        job_id: compilation.job_id,
        fusion: fusion.and_then(|fusion| fusion.mode.as_ref()).map_or(FusionOption::Legacy, option),
        fusion_type: fusion.map_or(FusionType::NoChannelInfluence, |fusion| kind(fusion.r#type())),
        submission_values: compilation.submission_values.clone(),
        configuration: configuration(compilation.configuration.as_ref())?,
        widths: widths(&compilation.widths),
        channel_counts: compilation.channel_counts.iter().map(channel_count).collect(),
    })
}

/// Reads widths, policy, the ids that new PEs and ports must not get, and the PEs that take nothing new.
pub(super) fn resize(resize: &Resize) -> (Vec<(String, i128)>, Policy, JobState) {
    let policy = match resize.policy {
        pb::resize_request::Policy::Unspecified | pb::resize_request::Policy::Sticky => Policy::Sticky,
        pb::resize_request::Policy::Rebalance => Policy::Rebalance,
    };
    let ports = resize.ports_in_use.iter().map(|ports| {
        let inputs = ports.input_port_ids.iter().copied().collect();
        let outputs = ports.output_port_ids.iter().copied().collect();
        (ports.pe_id, PortsInUse { inputs, outputs })
    });
    let in_use = InUse { elements: resize.pe_ids_in_use.iter().copied().collect(), ports: ports.collect() };
    (widths(&resize.widths), policy, JobState { in_use, closed: resize.closed_pe_ids.iter().copied().collect() })
}

fn option(mode: &pb::fusion::Mode) -> FusionOption {
    match mode {
        pb::fusion::Mode::Legacy(_) => FusionOption::Legacy,
        pb::fusion::Mode::Manual(count) => FusionOption::Manual(i128::from(*count)),
        pb::fusion::Mode::Automatic(automatic) => FusionOption::Automatic {
            cpus: Cpus {
                limit: automatic.cpu_limit,
                request: automatic.cpu_request,
                job_wide: false,
                free: automatic.cpu_free,
                share: automatic.share,
            },
            count: automatic.resolved,
        },
    }
}

fn kind(kind: pb::FusionType) -> FusionType {
    match kind {
        pb::FusionType::Unspecified | pb::FusionType::NoChannelInfluence => FusionType::NoChannelInfluence,
        pb::FusionType::ChannelIsolation => FusionType::ChannelIsolation,
        pb::FusionType::ChannelExlocation => FusionType::ChannelExlocation,
    }
}

/// Reads the configuration by the keys of a job's properties.
fn configuration(configuration: Option<&pb::Configuration>) -> Result<Configuration, Error> {
    let Some(configuration) = configuration else { return Ok(Configuration::default()) };
    let pb::Configuration { threading_model, dynamic_thread_count, dynamic_elastic, tracing, data_directory } =
        configuration;
    let properties = [
        ("threadingModel", threading_model.clone()),
        ("dynamicThreadingThreadCount", dynamic_thread_count.map(|count| count.to_string())),
        ("dynamicThreadingElastic", dynamic_elastic.map(|elastic| elastic.to_string())),
        ("tracing", tracing.clone()),
        ("data-directory", data_directory.clone()),
    ];
    let properties = properties.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Configuration::read(&properties.collect::<BTreeMap<_, _>>())
}

fn widths(widths: &[pb::RegionWidth]) -> Vec<(String, i128)> {
    widths.iter().map(|width| (width.region.clone(), i128::from(width.width))).collect()
}

fn channel_count(said: &pb::RegionChannelCount) -> (String, ChannelCount) {
    let count = match said.channel_count() {
        pb::ChannelCount::Unspecified | pb::ChannelCount::Observed => ChannelCount::Observed,
        pb::ChannelCount::Ignored => ChannelCount::Ignored,
    };
    (said.region.clone(), count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_compiler::logical::TraceLevel;

    #[test]
    fn everything_that_a_compilation_says_is_read() {
        let automatic = pb::fusion::Automatic {
            cpu_limit: Some(2000),
            cpu_request: Some(500),
            cpu_free: Some(7000),
            share: 250,
            resolved: Some(3),
        };
        let compilation = pb::Compilation {
            adl: None,
            job_name: "job".into(),
            job_id: 7,
            fusion: Some(pb::Fusion {
                mode: Some(pb::fusion::Mode::Automatic(automatic)),
                r#type: pb::FusionType::ChannelExlocation as i32,
            }),
            submission_values: [("a".to_owned(), "1".to_owned())].into(),
            configuration: Some(pb::Configuration {
                threading_model: Some("dynamic".into()),
                dynamic_thread_count: Some(5),
                dynamic_elastic: Some(false),
                tracing: Some("debug".into()),
                data_directory: Some("/data".into()),
            }),
            widths: vec![pb::RegionWidth { region: "P*".into(), width: 4 }],
            channel_counts: [(0, "P"), (1, "Q"), (2, "R*")]
                .map(|(channel_count, region)| pb::RegionChannelCount { region: region.into(), channel_count })
                .to_vec(),
        };
        let expected = Request {
            job_name: "job".into(),
            job_id: 7,
            fusion: FusionOption::Automatic {
                cpus: Cpus { limit: Some(2000), request: Some(500), job_wide: false, free: Some(7000), share: 250 },
                count: Some(3),
            },
            fusion_type: FusionType::ChannelExlocation,
            submission_values: [("a".to_owned(), "1".to_owned())].into(),
            configuration: Configuration {
                threading_model: Some("dynamic".into()),
                thread_count: Some("5".into()),
                elastic: Some("false".into()),
                trace_level: Some(TraceLevel::Debug),
                data_directory: Some("/data".into()),
            },
            widths: vec![("P*".into(), 4)],
            channel_counts: vec![
                ("P".into(), ChannelCount::Observed),
                ("Q".into(), ChannelCount::Observed),
                ("R*".into(), ChannelCount::Ignored),
            ],
        };
        assert_eq!(request(&compilation), Ok(expected));
        let loud = pb::Configuration { tracing: Some("loud".into()), ..Default::default() };
        assert!(request(&pb::Compilation { configuration: Some(loud), ..compilation }).is_err());
    }

    #[test]
    fn what_is_in_use_is_kept_apart_by_direction_and_from_what_is_closed() {
        let ports = pb::resize_request::PortsInUse { pe_id: 3, input_port_ids: vec![1, 2], output_port_ids: vec![9] };
        let request = Resize {
            widths: vec![pb::RegionWidth { region: "P".into(), width: -1 }],
            policy: pb::resize_request::Policy::Rebalance,
            pe_ids_in_use: vec![8, 4],
            ports_in_use: vec![ports],
            closed_pe_ids: vec![5, 1],
            max_text_bytes: 0,
        };
        let (widths, policy, state) = resize(&request);
        assert_eq!((widths, policy), (vec![("P".to_owned(), -1)], Policy::Rebalance));
        let ports = PortsInUse { inputs: [1, 2].into(), outputs: [9].into() };
        let in_use = InUse { elements: [4, 8].into(), ports: [(3, ports)].into() };
        assert_eq!(state, JobState { in_use, closed: [1, 5].into() });
    }
}
