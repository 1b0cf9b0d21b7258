//! What is compiled: an application and what a job adds to it.

use super::{Digest, Warning};
use crate::adl;
use crate::budget::Budget;
use crate::error::{Error, excerpt};
use crate::fuser::{Automatic, Cpus, Fusion, FusionType, Graph, automatic};
use crate::logical::Application;
use crate::logical::submission::{Bindings, bind};
use crate::topology::{self, Configuration, Parameters, Topology};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use streams_region_names::Pattern;

/// An application with the digest of its ADL.
#[derive(Clone, Debug)]
pub struct Source {
    /// The application as written.
    pub application: Arc<Application>,
    /// SHA-256 of the ADL.
    pub digest: Digest,
}

impl Source {
    /// Reads an ADL document. Errors at stage `logical-model`.
    pub fn parse(document: &[u8], budget: &Budget) -> Result<Self, Error> {
        let application = Arc::new(adl::parse(document, budget)?);
        Ok(Self { application, digest: Sha256::digest(document).into() })
    }
}

/// What a job adds to its application. The same for the whole life of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Name of the job, part of every document.
    pub job_name: String,
    /// Number of the job, part of every document and of port labels.
    pub job_id: u64,
    /// How operators are grouped.
    pub fusion: FusionOption,
    /// What channels of parallel regions mean for that.
    pub fusion_type: FusionType,
    /// Submission-time values by name.
    pub submission_values: BTreeMap<String, String>,
    /// Threading, tracing, directories.
    pub configuration: Configuration,
    /// Widths at submission: pattern of region names -> width, in the order of the job.
    pub widths: Vec<(String, i128)>,
}

impl Request {
    /// Says what is wrong whatever the application is. Errors at stage `fusion-option`.
    pub fn check(&self) -> Result<(), Error> {
        self.fusion.check(self.fusion_type, None).map(|_| ())
    }

    /// Digest of what shows in the documents besides widths and PEs (rule layout-5). Layouts keep it, so it must stay
    /// the same from release to release: what is new is only added where a job has it.
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
        hash.finalize().into()
    }
}

/// How operators are grouped, as asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FusionOption {
    /// Only what must be together is.
    #[default]
    Legacy,
    /// This many PEs; fewer than one is a user error.
    Manual(i128),
    /// A number that follows from the application and the cluster.
    Automatic {
        /// What the cluster has.
        cpus: Cpus,
        /// The number that was found at the submission; it stays the same.
        resolved: Option<u64>,
    },
}

/// A fusion option that is not wrong in itself.
pub(super) enum CheckedFusion {
    Known(ResolvedFusion),
    Automatic(Cpus, FusionType),
}

/// How operators are grouped.
#[derive(Clone, Copy)]
pub(super) struct ResolvedFusion {
    pub(super) fusion: Fusion,
    /// The number of PEs, if it is to be the same at every resize of this job.
    pub(super) automatic_count: Option<u32>,
    /// How it was found.
    pub(super) automatic: Option<Automatic>,
}

impl ResolvedFusion {
    fn known(fusion: Fusion) -> Self {
        Self { fusion, automatic_count: None, automatic: None }
    }
}

impl FusionOption {
    /// `automatic_count` is the number of PEs that automatic fusion gave the job, if it has done so (rule fusion-23).
    /// Errors at stage `fusion-option`.
    pub(super) fn check(&self, kind: FusionType, automatic_count: Option<u32>) -> Result<CheckedFusion, Error> {
        Ok(match self {
            Self::Legacy => CheckedFusion::Known(ResolvedFusion::known(Fusion::Legacy)),
            Self::Manual(count) => CheckedFusion::Known(ResolvedFusion::known(Fusion::manual(*count, kind)?)),
            Self::Automatic { cpus, resolved } => match resolved.or(automatic_count.map(u64::from)) {
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
    /// Counts PEs where the application has to be known for it.
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
pub(super) struct Bound {
    pub(super) bindings: Bindings,
    pub(super) configuration: Configuration,
}

impl Bound {
    /// Errors at stage `logical-model`.
    pub(super) fn new(source: &Source, request: &Request) -> Result<Self, Error> {
        let bindings = bind(&source.application, &request.submission_values)?;
        Ok(Self { bindings, configuration: request.configuration.clone() })
    }

    /// The application as it runs with these widths. Errors at stage `topology`.
    pub(super) fn expand(
        &self,
        source: &Source,
        widths: Vec<(String, i128)>,
        budget: &Budget,
    ) -> Result<Topology, Error> {
        topology::expand(&source.application, &self.parameters(widths), budget)
    }

    /// The same with the numbers of the application as it runs.
    pub(super) fn expand_again(
        &self,
        before: &Topology,
        widths: Vec<(String, i128)>,
        budget: &Budget,
    ) -> Result<Topology, Error> {
        topology::expand_again(before, &self.parameters(widths), budget)
    }

    fn parameters(&self, widths: Vec<(String, i128)>) -> Parameters {
        Parameters { bindings: self.bindings.clone(), configuration: self.configuration.clone(), widths }
    }
}

/// What of a request had no effect, as far as it is known: without a topology nothing is said about regions
/// (rule layout-16).
pub(super) fn warnings(request: &Request, bindings: &Bindings, topology: Option<&Topology>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for name in bindings.ignored() {
        let message = format!("the application has no submission-time value {}", excerpt(name));
        warnings.push(Warning { reason: "UnknownSubmissionValue", message });
    }
    for (pattern, topology) in request.widths.iter().filter_map(|(pattern, _)| Some((pattern, topology?))) {
        let parsed = Pattern::parse(pattern).ok();
        let matches = |name: &str| parsed.as_ref().is_some_and(|pattern| pattern.matches(name));
        if !topology.regions.iter().any(|region| matches(&region.name)) {
            let message = format!("no parallel region matches \"{}\"", excerpt(pattern));
            warnings.push(Warning { reason: "UnmatchedRegion", message });
        }
    }
    if request.fusion == FusionOption::Legacy && request.fusion_type != FusionType::NoChannelInfluence {
        let message = format!("the fusion type {} has no effect on legacy fusion", request.fusion_type.name());
        warnings.push(Warning { reason: "FusionTypeWithoutEffect", message });
    }
    warnings
}
