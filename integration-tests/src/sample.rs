//! The project's own sample application, packed as a bundle.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use streams_bundle::{Application, Builder};

/// File name of the bundle.
pub const SAB: &str = "demo.sensors.Sensors.sab";
/// Logical name of the region whose width the demo changes: 2 channels by default, next to another region.
pub const REGION: &str = "Clean";
/// PEs of the application with its default widths and legacy fusion: a source, 2 cleaners, 2 times 4 of the scoring, a sink.
pub const PROCESSING_ELEMENTS: usize = 12;

/// The ADL.
pub const ADL: &str = include_str!("../applications/sensors/demo.sensors.Sensors.adl");

/// The bundle's bytes.
///
/// # Errors
/// When the application cannot be packed.
pub fn bundle() -> Result<Vec<u8>> {
    let application = Application {
        name: SAB.trim_end_matches(".sab").to_owned(),
        output_directory: "demo.sensors".to_owned(),
        toolkit: "demo.sensors".to_owned(),
        toolkit_version: "1.0.0".to_owned(),
        adl: ADL.to_owned(),
    };
    Builder::new(application).build().context("cannot pack the sample application")
}

/// Writes the bundle into a directory and gives its path.
///
/// # Errors
/// When it cannot be written.
pub fn write_bundle(directory: &Path) -> Result<PathBuf> {
    let path = directory.join(SAB);
    std::fs::write(&path, bundle()?).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
