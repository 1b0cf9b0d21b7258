//! Writes the files of one step into its folder.

use super::context::Context;
use super::failure;
use crate::command::CommandFailure;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use streams_compiler::budget::Budget;
use streams_compiler::error::Error;
use streams_compiler::plan::Compiled;

/// A folder for one step, without files of an earlier run.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder and deletes files of an earlier run, so that all files in it belong together.
    pub(super) fn open(path: &Path) -> Result<Self, CommandFailure> {
        let failed = |error: std::io::Error| CommandFailure::at(path, error);
        fs::create_dir_all(path).map_err(failed)?;
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if name.to_str().is_some_and(is_ours) {
                fs::remove_file(entry.path()).map_err(|error| CommandFailure::at(&entry.path(), error))?;
            }
        }
        Ok(Self(path.to_owned()))
    }

    /// Documents first, `context.json` last.
    pub(super) fn plan(&self, compiled: &Compiled, budget: &Budget) -> Result<(), CommandFailure> {
        for element in &compiled.plan().elements {
            let path = self.0.join(format!("pe-{}.aadl.xml", element.id));
            let failed = |error: &dyn std::fmt::Display| CommandFailure::at(&path, error);
            let mut file = File::create(&path).map_err(|error| failed(&error))?;
            compiled.render(element.id, &mut file, budget).map_err(|error| failed(&error))?;
        }
        self.json("context.json", &Context::new(compiled))
    }

    pub(super) fn failure(&self, error: &Error) -> Result<(), CommandFailure> {
        self.json("error.json", &failure::ErrorFile::new(error))
    }

    fn json(&self, name: &str, content: &impl Serialize) -> Result<(), CommandFailure> {
        let path = self.0.join(name);
        let failed = |error: &dyn std::fmt::Display| CommandFailure::at(&path, error);
        let mut file = BufWriter::new(File::create(&path).map_err(|error| failed(&error))?);
        serde_json::to_writer_pretty(&mut file, content).map_err(|error| failed(&error))?;
        file.write_all(b"\n").and_then(|()| file.flush()).map_err(|error| failed(&error))
    }
}

/// Names that the command writes.
fn is_ours(name: &str) -> bool {
    let document = name.strip_prefix("pe-").and_then(|rest| rest.strip_suffix(".aadl.xml"));
    matches!(name, "context.json" | "error.json")
        || document.is_some_and(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()))
}
