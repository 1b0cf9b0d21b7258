//! An ADL document, of either dialect, through the whole compiler.
//!
//! Input: the document. How it is fused follows from its length; what of it is explained and drawn, from its bytes.

use crate::people::Choice;
use crate::{compilation, people};
use std::sync::Arc;
use streams_compiler::fuser::{Cpus, FusionType};
use streams_compiler::plan::{Compiled, FusionOption, Policy, Request, Source};

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
            (FusionOption::Automatic { cpus, count: None }, FusionType::NoChannelInfluence, sticky)
        }
    }
}

/// Runs one input; panics when something does not hold.
pub fn run(data: &[u8]) {
    let mut choice = Choice::of(data);
    let (fusion, fusion_type, policy) = options(data.len());
    let source = Source::parse(data, &compilation::budget());
    let request = match &source {
        Ok(source) => Request { fusion_type, ..compilation::request(source, fusion) },
        Err(_) => Request { job_name: "fuzz".to_owned(), fusion, fusion_type, ..Request::default() },
    };
    let request = Arc::new(request);
    if choice.below(4) == 0 {
        people::checked_with_a_fault(data, &request, &mut choice);
    }
    let source = match source {
        Ok(source) => source,
        Err(error) => return people::checked(data, &request, Err(&error)),
    };
    let compiled = compilation::submitted_twice(&source, &request);
    people::checked(data, &request, compiled.as_ref());
    let Ok(compiled) = compiled else { return };
    let mut told = |now: &Compiled, before: Option<&Compiled>| match choice.below(4) {
        0 => people::explained(now, before),
        1 => people::drawn(now, before, &mut choice),
        _ => {}
    };
    told(&compiled, None);
    compilation::resized(&compiled, &source, &request, policy, |now, before| told(now, Some(before)));
}
