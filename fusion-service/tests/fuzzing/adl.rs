//! An ADL document, of either dialect, through the whole compiler.
//!
//! Input: the document. How it is fused follows from its length.

use crate::compilation;
use fusion_service::fuser::{Cpus, FusionType};
use fusion_service::plan::{FusionOption, Policy, Request, Source};
use std::sync::Arc;

/// Every fusion option, and both policies of a resize.
fn options(length: usize) -> (FusionOption, FusionType, Policy) {
    let (sticky, rebalance) = (Policy::Sticky, Policy::Rebalance);
    match length % 7 {
        0 => (FusionOption::Legacy, FusionType::NoChannelInfluence, sticky),
        1 => (FusionOption::Manual(2), FusionType::NoChannelInfluence, sticky),
        2 => (FusionOption::Manual(5), FusionType::ChannelIsolation, sticky),
        3 => (FusionOption::Manual(3), FusionType::ChannelExlocation, sticky),
        4 => (FusionOption::Manual(4), FusionType::NoChannelInfluence, rebalance),
        5 => (FusionOption::Legacy, FusionType::NoChannelInfluence, rebalance),
        _ => {
            let cpus = Cpus { limit: Some(2_000), request: None, job_wide: false, free: Some(16_000), share: 500 };
            (FusionOption::Automatic { cpus, resolved: None }, FusionType::NoChannelInfluence, sticky)
        }
    }
}

pub(crate) fn run(data: &[u8]) {
    let Ok(source) = Source::parse(data, &compilation::budget()) else { return };
    let (fusion, fusion_type, policy) = options(data.len());
    let request = Arc::new(Request { fusion_type, ..compilation::request(&source, fusion) });
    if let Some(compiled) = compilation::submitted_twice(&source, &request) {
        compilation::resized(&compiled, &source, &request, policy);
    }
}
