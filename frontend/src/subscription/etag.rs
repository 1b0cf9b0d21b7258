//! Names what is in force of an export or import: another name whenever that, or what the application says, is another
//! (rule import-9). Pure.
//!
//! The version of the object would be another one with every new condition.

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use streams_api::{Export, Import};

/// Hexadecimal digits of a name.
const DIGITS: usize = 20;

/// Of an export.
pub(super) fn of_export(export: &Export) -> String {
    let at_run_time = export.status.as_ref().and_then(|status| status.run_time.as_ref());
    name(&(&export.metadata.uid, export.spec.export_type, &export.spec.stream, at_run_time))
}

/// Of an import.
pub(super) fn of_import(import: &Import) -> String {
    let at_run_time = import.status.as_ref().and_then(|status| status.run_time.as_ref());
    name(&(&import.metadata.uid, &import.spec.streams, at_run_time))
}

fn name(of: &impl Serialize) -> String {
    // Texts, lists and sorted maps can be written.
    let text = serde_json::to_vec(of).unwrap_or_default();
    let mut digits = hex::encode(Sha256::digest(text));
    digits.truncate(DIGITS);
    digits
}
