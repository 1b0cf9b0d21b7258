//! Reads the ADL document from a file, which is an ADL or a bundle.

use super::CommandFailure;
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _};
use std::path::Path;
use streams_bundle::{Bundle, ReadOptions};
use streams_compiler::budget::Budget;
use streams_compiler::error::{Error, Problem, Stage, code};

/// What a file holds.
pub(super) struct Document {
    /// The ADL as it is compiled, or what is wrong with the bundle.
    pub(super) adl: Result<Vec<u8>, Error>,
    /// The bundle, if it is a whole one.
    pub(super) bundle: Option<Bundle>,
}

/// Reads a file: an ADL, or a bundle with one.
///
/// # Errors
///
/// The file cannot be read.
pub(super) fn read(path: &Path, budget: &Budget) -> Result<Document, CommandFailure> {
    let unreadable = |error: std::io::Error| CommandFailure::at(path, error);
    let mut file = File::open(path).map_err(unreadable)?;
    let mut begin = Vec::new();
    file.by_ref().take(4).read_to_end(&mut begin).map_err(unreadable)?;
    if streams_bundle::is_bundle(&begin) {
        file.rewind().map_err(unreadable)?;
        let mut options = ReadOptions::default();
        options.limits.adl = budget.limits.adl_bytes;
        let refused = |error: &streams_bundle::Error| {
            let problem = Problem::new(Stage::LogicalModel, error.to_string());
            // A document that is no ADL has the same code in a bundle as outside of one (rule service-19).
            let is_adl = matches!(error, streams_bundle::Error::Adl(_));
            Err(if is_adl { problem.code(code::UNEXPECTED) } else { problem }.into())
        };
        return match Bundle::read(BufReader::new(file), &options) {
            Ok(bundle) => {
                let adl = bundle.adl_for_submission();
                let adl = adl.map_or_else(|error| refused(&error), |adl| Ok(adl.into_bytes()));
                Ok(Document { adl, bundle: Some(bundle) })
            }
            Err(streams_bundle::Error::Io(error)) => Err(unreadable(error)),
            Err(error) => Ok(Document { adl: refused(&error), bundle: None }),
        };
    }
    // Reads one byte more than is allowed, so that the parser refuses a document that is too large.
    let most = budget.limits.adl_bytes.saturating_add(1);
    let mut document = begin;
    let rest = most.saturating_sub(document.len() as u64);
    file.take(rest).read_to_end(&mut document).map_err(unreadable)?;
    Ok(Document { adl: Ok(document), bundle: None })
}
