//! The ADL document that a file is, or that a bundle holds.

use super::Failure;
use crate::budget::Budget;
use crate::error::{Error, Problem, Stage};
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _};
use std::path::Path;
use streams_bundle::{Bundle, ReadOptions};

/// The ADL: of the file, or of the bundle that the file is. The outer error is about the file, the inner one about what is in it.
pub(super) fn read(path: &Path, budget: &Budget) -> Result<Result<Vec<u8>, Error>, Failure> {
    let unreadable = |error: std::io::Error| Failure::at(path, error);
    let mut file = File::open(path).map_err(unreadable)?;
    let mut begin = Vec::new();
    file.by_ref().take(4).read_to_end(&mut begin).map_err(unreadable)?;
    if streams_bundle::is_bundle(&begin) {
        file.rewind().map_err(unreadable)?;
        let mut options = ReadOptions::default();
        options.limits.adl = budget.limits.adl_bytes;
        let adl = Bundle::read(BufReader::new(file), &options).and_then(|bundle| bundle.adl_for_submission());
        return match adl {
            Ok(adl) => Ok(Ok(adl.into_bytes())),
            Err(streams_bundle::Error::Io(error)) => Err(unreadable(error)),
            Err(error) => Ok(Err(Problem::new(Stage::LogicalModel, error.to_string()).into())),
        };
    }
    // One byte more than is allowed: the parser says so.
    let most = budget.limits.adl_bytes.saturating_add(1);
    let mut document = begin;
    let rest = most.saturating_sub(document.len() as u64);
    file.take(rest).read_to_end(&mut document).map_err(unreadable)?;
    Ok(Ok(document))
}
