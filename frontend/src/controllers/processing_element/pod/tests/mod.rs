//! Pods, whole and in parts.

mod placements;
mod template;

use super::*;
use streams_api::{PeOptions, ProcessingElementSpec};

/// PE 3 of job `flow`, with every option at its default.
fn pe() -> ProcessingElement {
    let spec = ProcessingElementSpec {
        job_name: "flow".to_owned(),
        job_id: 7,
        id: 3,
        generation: 2,
        content_id: "c0ffee".to_owned(),
        runtime_id: "r0".to_owned(),
        config_map: AadlConfigMap { name: "flow-3-c0ffee".to_owned(), compressed: false },
        options: PeOptions { sab_name: Some("app.Main.sab".to_owned()), ..PeOptions::default() },
        ..ProcessingElementSpec::default()
    };
    let mut pe = ProcessingElement::new("flow-3", spec);
    pe.metadata.namespace = Some("ns".to_owned());
    pe.metadata.uid = Some("11111111-2222-3333-4444-555555555555".to_owned());
    pe
}

fn with(edit: impl FnOnce(&mut ProcessingElementSpec)) -> ProcessingElement {
    let mut pe = pe();
    edit(&mut pe.spec);
    pe
}

fn settings() -> PodSettings {
    PodSettings::default()
}

fn parts<'a>(pe: &'a ProcessingElement, settings: &'a PodSettings) -> Parts<'a> {
    Parts { pe, pool: None, redis: None, settings }
}
