//! The input of a compilation: an application, and what a job adds to it.
//!
//! Knows: the application, what may be asked of it. Must not know: stages after the topology, but how many PEs
//! automatic fusion wants; who asks.

use super::{Digest, Warning};
use crate::adl;
use crate::budget::Budget;
use crate::error::{Error, excerpt};
use crate::fuser::{AutomaticFusion, Cpus, Fusion, FusionType, Graph, automatic};
use crate::heap::{self, sorted_map};
use crate::logical::Application;
use crate::logical::submission::{Bindings, bind_within};
use crate::topology::{self, ChannelCount, Configuration, Parameters, RegionsByName, Topology};
use get_size2::GetSize;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// An application with the digest of its ADL.
#[derive(Clone, Debug)]
pub struct Source {
    /// The application as written.
    pub application: Arc<Application>,
    /// SHA-256 of the ADL.
    pub digest: Digest,
    /// Bytes of the ADL.
    pub bytes: usize,
}

impl Source {
    /// Reads an ADL document.
    ///
    /// # Errors
    ///
    /// Stage `logical-model`, as for [`crate::adl::parse`].
    pub fn parse(document: &[u8], budget: &Budget) -> Result<Self, Error> {
        let application = Arc::new(adl::parse(document, budget)?);
        Ok(Self { application, digest: Sha256::digest(document).into(), bytes: document.len() })
    }
}

/// What a job adds to its application. The same for the whole life of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, GetSize)]
pub struct Request {
    /// Name of the job, part of every document.
    pub job_name: String,
    /// Number of the job, part of every document and of port labels.
    pub job_id: u64,
    /// How operators are grouped.
    #[get_size(ignore)]
    pub fusion: FusionOption,
    /// What channels of parallel regions mean for that.
    #[get_size(ignore)]
    pub fusion_type: FusionType,
    /// Submission-time values by name.
    #[get_size(size_fn = sorted_map)]
    pub submission_values: BTreeMap<String, String>,
    /// Threading, tracing, directories.
    #[get_size(size_fn = texts)]
    pub configuration: Configuration,
    /// Widths at submission: pattern of region names -> width, in the order of the job.
    pub widths: Vec<(String, i128)>,
    /// Whether operators of regions ask for the number of channels: pattern of region names -> whether, in the order of
    /// the job. They may where nothing is said.
    pub channel_counts: Vec<(String, ChannelCount)>,
}

impl Request {
    /// Checks the parts of the request that do not depend on the application.
    ///
    /// # Errors
    ///
    /// Stage `fusion-option`: the number of PEs is invalid.
    pub fn check(&self) -> Result<(), Error> {
        self.fusion.check(self.fusion_type, None).map(|_| ())
    }

    /// Digest of everything in the request that documents and their ids show, apart from widths and PEs (rule
    /// layout-5). Layouts keep it, so it must stay the same from release to release. A new field is only hashed if the
    /// job sets it.
    pub(super) fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        let mut add = |key: &str, text: &str| {
            for part in [key, text] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        };
        add("job name", &self.job_name);
        add("job id", &self.job_id.to_string());
        for (name, value) in &self.submission_values {
            add("submission value", name);
            add("is", value);
        }
        let Configuration { threading_model, thread_count, elastic, trace_level, data_directory } = &self.configuration;
        for (key, value) in [
            ("threading model", threading_model.as_deref()),
            ("threads", thread_count.as_deref()),
            ("elastic", elastic.as_deref()),
            ("tracing", trace_level.map(|level| level.name())),
            ("data directory", data_directory.as_deref()),
        ] {
            if let Some(value) = value {
                add(key, value);
            }
        }
        for (pattern, count) in &self.channel_counts {
            add("channel count", pattern);
            add("is", count.name());
        }
        hash.finalize().into()
    }
}

/// Bytes of the texts of a configuration.
fn texts(configuration: &Configuration) -> usize {
    let Configuration { threading_model, thread_count, elastic, trace_level: _, data_directory } = configuration;
    [threading_model, thread_count, elastic, data_directory].map(heap::size).iter().sum()
}

/// How operators are grouped, as asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FusionOption {
    /// Only operators that must be together share a PE.
    #[default]
    Legacy,
    /// This many PEs. A number below 1 is a problem of the job.
    Manual(i128),
    /// As many PEs as automatic fusion computes from the application and the cluster.
    Automatic {
        /// What the cluster has.
        cpus: Cpus,
        /// The number of PEs that was computed at the submission, if there was one. It stays the same.
        count: Option<u64>,
    },
}

/// A valid fusion option.
pub(super) enum CheckedFusion {
    Known(ResolvedFusion),
    Automatic(Cpus, FusionType),
}

/// How operators are grouped.
#[derive(Clone, Copy)]
pub(super) struct ResolvedFusion {
    pub(super) fusion: Fusion,
    /// The number of PEs that automatic fusion computed, now or before. It is the same at every resize of the job.
    pub(super) automatic_count: Option<u32>,
    /// The figures of automatic fusion, if it computed the number now.
    pub(super) automatic: Option<AutomaticFusion>,
}

impl ResolvedFusion {
    fn known(fusion: Fusion) -> Self {
        Self { fusion, automatic_count: None, automatic: None }
    }
}

impl FusionOption {
    /// `automatic_count` is the number of PEs that automatic fusion gave the job, if it has done so (rule fusion-23).
    ///
    /// # Errors
    ///
    /// Stage `fusion-option`: the number of PEs is invalid.
    pub(super) fn check(&self, kind: FusionType, automatic_count: Option<u32>) -> Result<CheckedFusion, Error> {
        Ok(match self {
            Self::Legacy => CheckedFusion::Known(ResolvedFusion::known(Fusion::Legacy)),
            Self::Manual(count) => CheckedFusion::Known(ResolvedFusion::known(Fusion::manual(*count, kind)?)),
            Self::Automatic { cpus, count } => match count.or(automatic_count.map(u64::from)) {
                Some(count) => CheckedFusion::Known(ResolvedFusion {
                    automatic_count: Some(u32::try_from(count).unwrap_or(u32::MAX)),
                    ..ResolvedFusion::known(Fusion::manual(i128::from(count), kind)?)
                }),
                None => CheckedFusion::Automatic(*cpus, kind),
            },
        })
    }
}

impl CheckedFusion {
    /// Computes the number of PEs for automatic fusion, unless it is known.
    pub(super) fn resolve(&self, graph: &Graph<'_>) -> Result<ResolvedFusion, Error> {
        match self {
            Self::Known(fusion) => Ok(*fusion),
            Self::Automatic(cpus, kind) => {
                let automatic = automatic(graph, cpus);
                let fusion = Fusion::manual(i128::from(automatic.count), *kind)?;
                Ok(ResolvedFusion { fusion, automatic_count: Some(automatic.count), automatic: Some(automatic) })
            }
        }
    }
}

/// A request whose submission-time values are bound.
pub(super) struct BoundRequest {
    pub(super) bindings: Bindings,
    request: Arc<Request>,
}

impl BoundRequest {
    /// Binds the submission-time values of a request.
    ///
    /// # Errors
    ///
    /// Stage `logical-model`, as for [`crate::logical::submission::bind`]. The budget ends.
    pub(super) fn new(source: &Source, request: &Arc<Request>, budget: &Budget) -> Result<Self, Error> {
        Ok(Self::with_bindings(bind_within(&source.application, &request.submission_values, budget)?, request))
    }

    /// A request whose values have been bound before.
    pub(super) fn with_bindings(bindings: Bindings, request: &Arc<Request>) -> Self {
        Self { bindings, request: Arc::clone(request) }
    }

    /// Expands the application for these widths.
    ///
    /// # Errors
    ///
    /// As for [`topology::expand`].
    pub(super) fn expand(
        &self,
        source: &Source,
        widths: Vec<(String, i128)>,
        budget: &Budget,
    ) -> Result<Topology, Error> {
        topology::expand(&source.application, &self.parameters(widths), budget)
    }

    /// Expands the application for other widths and keeps the numbers of `before`.
    pub(super) fn expand_again(
        &self,
        before: &Topology,
        widths: Vec<(String, i128)>,
        budget: &Budget,
    ) -> Result<Topology, Error> {
        topology::expand_again(before, &self.parameters(widths), budget)
    }

    fn parameters(&self, widths: Vec<(String, i128)>) -> Parameters {
        let Self { bindings, request } = self;
        let Request { configuration, channel_counts, .. } = &**request;
        Parameters {
            bindings: bindings.clone(),
            configuration: configuration.clone(),
            widths,
            channel_counts: channel_counts.clone(),
        }
    }
}

/// Warns of parts of the request without effect. Without a topology, it does not check regions (rule layout-16).
///
/// # Errors
///
/// The budget ends.
pub(super) fn warnings(
    request: &Request,
    bindings: &Bindings,
    topology: Option<&Topology>,
    budget: &Budget,
) -> Result<Vec<Warning>, Error> {
    let mut warnings = Vec::new();
    let mut pace = budget.pace();
    for name in bindings.ignored() {
        pace.step()?;
        let message = format!("the application has no submission-time value {}", excerpt(name));
        warnings.push(Warning { reason: "UnknownSubmissionValue", message });
    }
    if let Some(topology) = topology {
        let regions = RegionsByName::new(&topology.regions);
        let counts = request.channel_counts.iter().map(|(pattern, _)| pattern);
        let mut known = HashSet::new();
        for pattern in request.widths.iter().map(|(pattern, _)| pattern).chain(counts) {
            if known.insert(pattern.as_str()) && !regions.has_match(pattern, &mut pace)? {
                let message = format!("no parallel region matches \"{}\"", excerpt(pattern));
                warnings.push(Warning { reason: "UnmatchedRegion", message });
            }
        }
    }
    if request.fusion == FusionOption::Legacy && request.fusion_type != FusionType::NoChannelInfluence {
        let message = format!("the fusion type {} has no effect on legacy fusion", request.fusion_type.name());
        warnings.push(Warning { reason: "FusionTypeWithoutEffect", message });
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::submit;
    use streams_test_support::application::Sketch;

    #[test]
    fn patterns_without_effect_are_found_within_the_budget() {
        let adl = Sketch::row(&["S", "P", "T"]).parallel("P", 2).adl();
        let source = Source::parse(adl.as_bytes(), &Budget::default()).unwrap();
        let job = submit(&source, &Arc::new(Request::default()), &Budget::default()).unwrap();
        let widths = ["P", "*", "Q", "Q", "R*", "?"].map(|pattern| (pattern.to_owned(), 2));
        let warned = |widths: &[(String, i128)], budget: &Budget| {
            let channel_counts = vec![("Q".to_owned(), ChannelCount::Ignored), ("U".to_owned(), ChannelCount::Ignored)];
            let request = Request { widths: widths.to_vec(), channel_counts, ..Request::default() };
            let warnings = warnings(&request, job.bindings(), Some(job.topology()), budget)?;
            Ok(warnings.into_iter().map(|warning| warning.message).collect::<Vec<_>>())
        };
        let expected = ["Q", "R*", "?", "U"].map(|pattern| format!("no parallel region matches \"{pattern}\""));
        assert_eq!(warned(&widths, &Budget::default()), Ok(expected.to_vec()));
        let many: Vec<_> = (0..10_000).map(|number| (format!("*x{number}"), 2)).collect();
        assert_eq!(warned(&many, &Budget::cancelled()), Err(Error::Cancelled));
    }
}
