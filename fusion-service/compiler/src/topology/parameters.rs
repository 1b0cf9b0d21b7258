//! What a job adds to its application: bound values, configuration, widths.

use super::ChannelCount;
use crate::error::{Error, Problem, Stage, excerpt};
use crate::logical::TraceLevel;
use crate::logical::submission::Bindings;
use std::collections::BTreeMap;

/// Everything besides the application that the expansion depends on.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    /// Submission-time values.
    pub bindings: Bindings,
    /// Configuration of the job.
    pub configuration: Configuration,
    /// Widths that replace those of the application: pattern of region names -> width, in the order of the job
    /// (rule expansion-2).
    pub widths: Vec<(String, i128)>,
    /// Whether operators of regions ask for the number of channels: pattern of region names -> whether, in the order of
    /// the job.
    pub channel_counts: Vec<(String, ChannelCount)>,
}

/// The configuration of a job, as far as the compiler reads it (rule model-1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Threading model of the main composite if the application gives it none; any word.
    pub threading_model: Option<String>,
    /// `threads` of that model.
    pub thread_count: Option<String>,
    /// `elastic` of that model.
    pub elastic: Option<String>,
    /// Trace level of all operators.
    pub trace_level: Option<TraceLevel>,
    /// Data directory.
    pub data_directory: Option<String>,
}

impl Configuration {
    /// Reads the flat properties of a job; unknown keys have no effect.
    ///
    /// # Errors
    ///
    /// Stage `logical-model`: `tracing` does not begin with a trace level.
    pub fn read(properties: &BTreeMap<String, String>) -> Result<Self, Error> {
        let text = |key: &str| properties.get(key).cloned();
        let trace_level = match properties.get("tracing") {
            None => None,
            Some(tracing) => {
                // What follows a colon is for the runtime.
                let level = tracing.split(':').next().unwrap_or_default();
                let Some(level) = TraceLevel::parse(level) else {
                    let message = format!("config: tracing \"{}\" is no trace level", excerpt(level));
                    return Err(Problem::new(Stage::LogicalModel, message).into());
                };
                Some(level)
            }
        };
        Ok(Self {
            threading_model: text("threadingModel").filter(|model| model != "notSpecified"),
            thread_count: text("dynamicThreadingThreadCount"),
            elastic: text("dynamicThreadingElastic"),
            trace_level,
            data_directory: text("data-directory"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracing_is_a_level_and_the_rest_is_text() {
        let read = |key: &str, value: &str| Configuration::read(&[(key.to_owned(), value.to_owned())].into());
        for (value, expected) in
            [("debug", Some(TraceLevel::Debug)), ("info:x=y", Some(TraceLevel::Info)), ("loud", None), ("", None)]
        {
            assert_eq!(read("tracing", value).ok().and_then(|c| c.trace_level), expected, "{value}");
        }
        assert_eq!(read("threadingModel", "notSpecified").unwrap(), Configuration::default());
        assert_eq!(read("parallelRegionConfig", "x").unwrap(), Configuration::default());
        assert_eq!(read("threadingModel", "own").unwrap().threading_model.as_deref(), Some("own"));
    }
}
