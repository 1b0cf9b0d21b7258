//! Bounds the texts that a plan has of its PEs (rule service-13).
//!
//! Operators share texts where channels or PEs have the same; a plan has them of each PE. So a small document can ask
//! for a large plan: an environment variable of a megabyte, once for each of 10,000 channels. The texts of a PE are
//! counted before they are copied.

use crate::budget::Limits;
use crate::error::{Problem, Stage};
use crate::topology::{EvaluatedExport, EvaluatedImports};

/// The texts of a plan so far.
pub(super) struct PlanTexts {
    bytes: u64,
    most: u64,
}

impl PlanTexts {
    /// What a text takes besides its bytes.
    const PER_TEXT: u64 = 64;

    pub(super) fn new(limits: &Limits) -> Self {
        Self { bytes: 0, most: limits.plan_bytes() }
    }

    /// Adds texts of this many bytes together.
    ///
    /// # Errors
    ///
    /// There are too many. The message is the same wherever that is found.
    pub(super) fn add(&mut self, bytes: u64) -> Result<(), Problem> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes <= self.most {
            return Ok(());
        }
        let message = format!(
            "the plan has more than {} bytes of names of operators, placements, environment variables, exports, \
             imports and host pools",
            self.most
        );
        Err(Problem::new(Stage::Topology, message))
    }
}

/// What these texts count for.
pub(super) fn bytes_of<'t>(texts: impl IntoIterator<Item = &'t str>) -> u64 {
    texts.into_iter().map(|text| text.len() as u64 + PlanTexts::PER_TEXT).sum()
}

/// What the texts of an export count for.
pub(super) fn bytes_of_export(export: &EvaluatedExport) -> u64 {
    let EvaluatedExport { operator_name, name, properties, allow_filter: _, drop_connection: _ } = export;
    let properties = properties.iter().flatten().map(|property| {
        let texts = [&property.name, &property.r#type].into_iter().chain(&property.values);
        bytes_of(texts.map(String::as_str))
    });
    bytes_of([operator_name.as_str()].into_iter().chain(name.as_deref())) + properties.sum::<u64>()
}

/// What the texts of imports count for.
pub(super) fn bytes_of_imports(imports: &EvaluatedImports) -> u64 {
    let EvaluatedImports { filter, by_name, by_properties } = imports;
    let names = by_name.iter().flat_map(|import| {
        [&import.operator_name, &import.application_name, &import.application_scope, &import.stream_name]
    });
    let properties = by_properties
        .iter()
        .flat_map(|import| [&import.operator_name, &import.application_scope, &import.subscription]);
    bytes_of(filter.iter().chain(names).chain(properties).map(String::as_str))
}
