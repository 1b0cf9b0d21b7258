//! The project's own sample application, packed as a bundle, and what it becomes.
//!
//! ```text
//! Readings -> Clean x2 -> Score x2 { Window -> Model x2 -> Best } -> Alarms
//! ```
//!
//! With legacy fusion every operator has a PE of its own, so what a generation must consist of follows from the widths
//! alone ([`Widths::operators`]): an answer that owes nothing to the programs under test.

use anyhow::{Context as _, Result};
use kube::api::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use streams_api::{
    BundleReference, CheckpointRepository, FileSystemCheckpoints, FusionOptions, InitialWidth, Job, JobSpec, PeOptions,
    RegionWidth,
};
use streams_bundle::{Application, Builder};

/// File name of the bundle.
pub const SAB: &str = "demo.sensors.Sensors.sab";
/// Logical name of the region of the source's neighbours, which is next to [`SCORE`].
pub const CLEAN: &str = "Clean";
/// Logical name of the region whose channels have a region inside.
pub const SCORE: &str = "Score";
/// Logical name of the region inside each channel of [`SCORE`].
pub const MODEL: &str = "Score.Model";

/// Name of the operator in which all tuples end.
pub const SINK: &str = "Alarms";

/// The ADL.
pub const ADL: &str = include_str!("../applications/sensors/demo.sensors.Sensors.adl");

/// Widths of the regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Widths {
    /// Of [`CLEAN`].
    pub clean: u32,
    /// Of [`SCORE`].
    pub score: u32,
    /// Of [`MODEL`], in each channel of [`SCORE`].
    pub model: u32,
}

impl Default for Widths {
    /// As the application says.
    fn default() -> Self {
        Self { clean: 2, score: 2, model: 2 }
    }
}

impl Widths {
    /// The widths of a status; regions that it does not list are as the application says.
    pub fn applied(widths: &[RegionWidth]) -> Self {
        let mut applied = Self::default();
        for RegionWidth { region, width } in widths {
            applied.set(region, *width);
        }
        applied
    }

    /// Changes the width of one region. Nothing happens for other names.
    pub fn set(&mut self, region: &str, width: u32) {
        match region {
            CLEAN => self.clean = width,
            SCORE => self.score = width,
            MODEL => self.model = width,
            _ => {}
        }
    }

    /// By name of the region.
    pub fn by_region(&self) -> BTreeMap<String, u32> {
        [(CLEAN, self.clean), (SCORE, self.score), (MODEL, self.model)].map(|(name, w)| (name.to_owned(), w)).into()
    }

    /// Names of all operators; each is the only one of its PE. Channels are counted over all channels of the regions
    /// around.
    pub fn operators(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::from(["Readings".to_owned(), "Alarms".to_owned()]);
        names.extend((0..self.clean).map(|channel| format!("Clean[{channel}]")));
        for channel in 0..self.score {
            names.extend([format!("Score[{channel}].Window"), format!("Score[{channel}].Best")]);
            let models = channel * self.model..(channel + 1) * self.model;
            names.extend(models.map(|model| format!("Score[{channel}].Model[{model}]")));
        }
        names
    }

    /// Number of PEs.
    pub fn processing_elements(&self) -> usize {
        self.operators().len()
    }
}

/// A job that runs the application with legacy fusion.
pub fn job(namespace: &str, name: &str) -> Job {
    let bundle = BundleReference { file: Some(SAB.to_owned()), ..BundleReference::default() };
    let mut spec = JobSpec::of(bundle);
    spec.fusion = Some(FusionOptions { legacy: Some(true), ..FusionOptions::default() });
    Job {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

/// What a job's `spec.parallelRegions` says to begin with this width.
pub fn initial_width(region: &str, width: u32) -> InitialWidth {
    InitialWidth { name: Some(region.to_owned()), width: Some(width), ..InitialWidth::default() }
}

/// What a job's `spec.processingElement` says to have checkpoints kept in the directory of the frontend's option
/// `--checkpoint-path`.
pub fn checkpoints() -> PeOptions {
    let file_system = FileSystemCheckpoints::default();
    PeOptions {
        checkpoint_repository: Some(CheckpointRepository { file_system: Some(file_system), redis: None }),
        ..PeOptions::default()
    }
}

/// The bundle's bytes.
///
/// # Errors
/// When the application cannot be packed.
pub fn bundle() -> Result<Vec<u8>> {
    bundle_of(ADL)
}

/// The bytes of a bundle that is like the sample's but for the text of its ADL.
///
/// # Errors
/// When it cannot be packed.
pub fn bundle_of(adl: &str) -> Result<Vec<u8>> {
    let application = Application {
        name: SAB.trim_end_matches(".sab").to_owned(),
        output_directory: "demo.sensors".to_owned(),
        toolkit: "demo.sensors".to_owned(),
        toolkit_version: "1.0.0".to_owned(),
        adl: adl.to_owned(),
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

#[cfg(test)]
mod tests {
    use super::Widths;

    #[test]
    fn operators_are_counted_by_channels() {
        // source and sink, cleaners, per scorer a window, models and the best of them
        for (widths, expected) in [(Widths::default(), 12), (Widths { clean: 10, score: 3, model: 1 }, 21)] {
            assert_eq!(widths.processing_elements(), expected, "{widths:?}");
        }
        let names = Widths { clean: 1, score: 2, model: 2 }.operators();
        let models: Vec<_> = names.iter().filter(|name| name.contains("Model")).collect();
        assert_eq!(
            models,
            ["Score[0].Model[0]", "Score[0].Model[1]", "Score[1].Model[2]", "Score[1].Model[3]"],
            "channels of a region inside another are numbered through"
        );
    }
}
