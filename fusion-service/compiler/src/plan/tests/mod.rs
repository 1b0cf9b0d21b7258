//! The promises of plans, checked over small applications that the tests write themselves.

mod channel_counts;
mod costs;
mod errors;
mod helpers;
mod layouts;
mod placements;
mod resizes;

use super::{Compiled, FusionOption, Request, Source, submit};
use crate::budget::Budget;
use std::collections::BTreeMap;
use std::sync::Arc;
use streams_test_support::application::Sketch;

fn source(sketch: &Sketch) -> Source {
    Source::parse(sketch.adl().as_bytes(), &Budget::default()).expect("the test's ADL is well-formed")
}

fn request(fusion: FusionOption) -> Arc<Request> {
    Arc::new(Request { job_name: "job".to_owned(), job_id: 7, fusion, ..Request::default() })
}

fn submitted(sketch: &Sketch, fusion: FusionOption) -> Compiled {
    submit(&source(sketch), &request(fusion), &Budget::default()).expect("the test's application compiles")
}

/// All documents by PE id.
fn texts(compiled: &Compiled) -> BTreeMap<u64, String> {
    let text = |id: u64| {
        let mut bytes = Vec::new();
        compiled.render(id, &mut bytes, &Budget::default()).expect("it renders");
        String::from_utf8(bytes).expect("it is UTF-8")
    };
    compiled.plan().elements.iter().map(|element| (element.id, text(element.id))).collect()
}
