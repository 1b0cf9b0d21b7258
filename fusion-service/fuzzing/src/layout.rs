//! Layouts from outside: refused, or restored to a consistent job that can be resized.
//!
//! Input: a layout; or, if it does not begin like one, the message inside, which is then packed and made to name the
//! fixed application and job, so that mutations reach what is behind those two checks.

use crate::compilation;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use streams_compiler::plan::{self, FusionOption, JobState, Layout, Policy, RenderError, Request, Source};
use streams_compiler::topology;

pub(crate) const ADL: &str = include_str!("../../tests/golden/orders/app.adl");
pub(crate) const MAGIC: &[u8] = b"SPLL\x01";

/// The fixed job.
pub(crate) struct Job {
    pub(crate) source: Source,
    pub(crate) request: Arc<Request>,
    adl: [u8; 32],
    digest: [u8; 32],
}

pub(crate) static JOB: LazyLock<Job> = LazyLock::new(|| {
    let source = Source::parse(ADL.as_bytes(), &compilation::budget()).expect("the application can be read");
    let request = Arc::new(compilation::request(&source, FusionOption::Manual(5)));
    let compiled = plan::submit(&source, &request, &compilation::budget()).expect("the application can be compiled");
    let Layout { adl, request: digest, .. } = compiled.layout();
    Job { source, request, adl, digest }
});

/// A layout with this message. Of a repeated field the last counts, so the digests are appended.
fn packed(message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    message.extend([0x0a, 32]);
    message.extend(JOB.adl);
    message.extend([0xb2, 0x01, 32]);
    message.extend(JOB.digest);
    let mut bytes = MAGIC.to_vec();
    bytes.extend(zstd::encode_all(message.as_slice(), 1).expect("memory can be compressed"));
    bytes
}

/// Runs one input; panics when something does not hold.
pub fn run(data: &[u8]) {
    let bytes = if data.starts_with(b"SPLL") { data.to_vec() } else { packed(data) };
    let budget = compilation::budget();
    let Ok(layout) = Layout::from_bytes(&bytes, &budget) else { return };
    let canonical = layout.to_bytes();
    assert_eq!(Layout::from_bytes(&canonical, &budget).as_ref(), Ok(&layout), "a layout changes when it is written");
    let Ok(job) = plan::restore(&JOB.source, &JOB.request, &bytes, &budget) else { return };
    assert_eq!(job.layout(), layout);
    assert_eq!(job.layout().to_bytes(), canonical);
    topology::verify(job.topology()).unwrap();
    // Documents are either those that the layout names, or an error says that they are not.
    for element in &job.plan().elements {
        let mut text = Vec::new();
        match job.render(element.id, &mut text, &budget) {
            Ok(()) | Err(RenderError::OtherText(_)) => {}
            Err(error) => panic!("PE {}: {error}", element.id),
        }
    }
    let widths: BTreeMap<&str, u32> = job.topology().regions.iter().map(|r| (r.name.as_str(), r.width)).collect();
    for (region, width) in widths {
        for (width, policy) in
            [(width + 1, Policy::Sticky), (width - 1, Policy::Sticky), (width + 1, Policy::Rebalance)]
        {
            let widths = [(region.to_owned(), i128::from(width))];
            let Ok(next) = plan::resize(&job, &widths, policy, &JobState::default(), &budget) else { continue };
            topology::verify(next.topology()).unwrap();
            let layout = Layout::from_bytes(&next.layout().to_bytes(), &budget).expect("a new layout can be read");
            assert_eq!(layout, next.layout());
            let again = plan::restore(&JOB.source, &JOB.request, &next.layout().to_bytes(), &budget);
            assert_eq!(again.expect("a new layout can be restored").layout().to_bytes(), next.layout().to_bytes());
        }
    }
}
