//! What many documents of a job have in common, escaped once.
//!
//! A PE's document mostly repeats the application: all tuple types, all host pools, and for every operator what its
//! channels share. These pieces are made once per job, so that writing a document is copying bytes and formatting
//! numbers. Those of an operator and its ports are in [`super::operator_fragments`].

use super::channels::Channels;
use super::operator_fragments::Operator;
use super::same::{Generations, refers_to_distant_operators};
use super::sheet::{Fragment, Sheet};
use super::tuple_type;
use crate::budget::Budget;
use crate::error::{Error, Problem, Stage, excerpt};
use crate::heap::heap_fields;
use crate::logical::{self, OperatorKind, Runtime};
use crate::shared::Shared;
use crate::topology::Topology;
use cranelift_entity::PrimaryMap;
use std::ops::Deref;

type Page<'a> = Sheet<'a, true>;

/// Pieces of the documents of one generation of a job.
#[derive(Debug)]
pub(crate) struct Fragments {
    /// Those that do not depend on widths.
    job: Shared<Job>,
    /// What some channels share.
    channels: Channels,
}

/// Pieces that all generations of a job have.
#[derive(Debug)]
pub(crate) struct Job {
    /// From behind the document's numbers to the end of the root's start tag.
    pub(super) root: Fragment,
    /// `libraries`, `hostpools`, `tupleTypes`, `envVars`.
    pub(super) head: Fragment,
    /// `toolkitsMap`.
    pub(super) toolkits: Fragment,
    /// `aug:tupleType` of PE ports, by position in the table.
    pub(super) tuple_types: Vec<Fragment>,
    /// `operDefinition`, by position in the table.
    pub(super) definitions: Vec<Fragment>,
    /// `capability` elements of a definition, by position in the table.
    pub(super) capabilities: Vec<Fragment>,
    /// `customMetric`, by position in the table.
    pub(super) metrics: Vec<Fragment>,
    /// What the channels of an operator share.
    operators: PrimaryMap<logical::OperatorId, Option<Box<Operator>>>,
}

heap_fields! {
    Fragments { job, channels }
    Job { root, head, toolkits, tuple_types, definitions, capabilities, metrics, operators }
}

impl Fragments {
    /// Makes the pieces. Errors: a text that XML cannot hold (stage `aadl`).
    pub(super) fn new(topology: &Topology, job_name: &str, job_id: u64, budget: &Budget) -> Result<Self, Error> {
        let job = Shared::new(Job::new(topology, job_name, job_id, budget)?);
        Ok(Self { job, channels: Channels::new(topology, budget)? })
    }

    /// The pieces for another generation of the same job.
    pub(super) fn again(&self, generations: &Generations<'_>, budget: &Budget) -> Result<Self, Error> {
        let topology = generations.now;
        let channels = match refers_to_distant_operators(&topology.application) {
            true => Channels::new(topology, budget)?,
            false => self.channels.again(generations, budget)?,
        };
        Ok(Self { job: self.job.clone(), channels })
    }

    /// What an operator shares with some of its channels.
    pub(super) fn channels(&self) -> &Channels {
        &self.channels
    }
}

impl Deref for Fragments {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}

impl Job {
    fn new(topology: &Topology, job_name: &str, job_id: u64, budget: &Budget) -> Result<Self, Error> {
        let application = &*topology.application;
        let whole = |what: &'static str| move |illegal| unwritable(what, illegal);
        let tuple_contents = application
            .tuple_types
            .iter()
            .map(|t| tuple_type::content(t).map_err(|c| unwritable(&format!("tuple type {}", t.index), c)))
            .collect::<Result<Vec<_>, _>>()?;
        let tuple_types = application
            .tuple_types
            .iter()
            .zip(&tuple_contents)
            .map(|(t, content)| {
                Fragment::new(|s| {
                    s.markup(b"<aug:tupleType index=\"");
                    s.mark(b't');
                    s.wide(t.index);
                    s.markup(b"\">");
                    s.fragment(content);
                    s.markup(b"</aug:tupleType>");
                })
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(whole("a tuple type"))?;
        let mut pace = budget.pace();
        let mut operators = PrimaryMap::with_capacity(application.operators.len());
        for operator in application.operators.values() {
            pace.steps(16)?;
            let pieces = match &operator.kind {
                OperatorKind::Primitive(primitive) => Operator::new(application, operator, primitive)
                    .map_err(|c| unwritable(&format!("operator {}", excerpt(&operator.logical_name)), c))?,
                _ => None,
            };
            operators.push(pieces.map(Box::new));
        }
        Ok(Self {
            root: root(topology, job_name, job_id).map_err(whole("the job's name or the application's attributes"))?,
            head: head(topology, &tuple_contents).map_err(whole("a host pool"))?,
            toolkits: toolkits(application).map_err(whole("a toolkit"))?,
            tuple_types,
            definitions: application
                .definitions
                .iter()
                .map(definition)
                .collect::<Result<_, _>>()
                .map_err(whole("an operator definition"))?,
            capabilities: application
                .definitions
                .iter()
                .map(capabilities)
                .collect::<Result<_, _>>()
                .map_err(whole("a capability"))?,
            metrics: application
                .custom_metrics
                .iter()
                .map(metric)
                .collect::<Result<_, _>>()
                .map_err(whole("a custom metric"))?,
            operators,
        })
    }

    /// What the channels of an operator share; nothing if the ADL does not say what the operator is.
    pub(super) fn operator(&self, operator: logical::OperatorId) -> Option<&Operator> {
        self.operators.get(operator)?.as_deref()
    }

    /// Bytes that every document has at least.
    pub(super) fn bytes_per_document(&self) -> u64 {
        (self.root.len() + self.head.len() + self.toolkits.len()) as u64
    }
}

/// A text that no XML document can hold.
pub(super) fn unwritable(what: &str, illegal: char) -> Problem {
    Problem::new(Stage::Aadl, format!("{what}: the character U+{:04X} cannot be written to XML", u32::from(illegal)))
}

/// Attributes of the root that all PEs of the job share (rule aadl-7).
fn root(topology: &Topology, job_name: &str, job_id: u64) -> Result<Fragment, char> {
    let application = &*topology.application;
    Fragment::new(|s| {
        s.markup(b"\" jobId=\"");
        s.wide(job_id);
        s.markup(b"\" jobName=\"");
        s.string(job_name);
        s.markup(b"\" user=\"user\" applicationScope=\"");
        s.string(&application.scope);
        s.markup(b"\" class=\"\" language=\"Java\" launchCount=\"0\"");
        s.observe(topology.data_directory.is_some());
        if let Some(directory) = &topology.data_directory {
            s.markup(b" dataDirectory=\"");
            s.string(directory);
            s.markup(b"\"");
        }
        s.markup(b" applicationDirectory=\"");
        s.string(&application.application_directory);
        s.markup(b"\" outputDirectory=\"");
        s.string(&application.output_directory);
        // The runtime needs the attribute, whatever the ADL says.
        s.markup(b"\" checkpointDirectory=\"");
        s.string(application.checkpoint_directory.as_deref().unwrap_or_default());
        s.markup(b"\" display=\"");
        s.hidden_string(&topology.display);
        s.markup(b"\" buildId=\"");
        s.hidden_string(&application.build_id);
        s.markup(b"\" bundle=\"");
        s.hidden_string(&application.bundle);
        s.markup(b"\" profileDirectory=\"\" version=\"");
        s.string(&application.product_version.replace('.', ""));
        s.markup(b"\" applicationName=\"");
        s.string(&application.name);
        s.markup(b"\" jobGroup=\"default\" avoidRuntimeYield=\"");
        s.string(&application.avoid_runtime_yield);
        s.markup(b"\" execStreamsVersion=\"4.2.4.0\" genId=\"0\">");
    })
}

/// Children of the root that come first and are the same everywhere (rule aadl-6).
fn head(topology: &Topology, tuple_contents: &[Fragment]) -> Result<Fragment, char> {
    Fragment::new(|s| {
        s.markup(b"<libraries/><hostpools>");
        for pool in &topology.host_pools {
            host_pool(s, pool);
        }
        s.markup(b"</hostpools><tupleTypes>");
        for (tuple_type, content) in topology.application.tuple_types.iter().zip(tuple_contents) {
            s.markup(b"<tupleType index=\"");
            s.mark(b'T');
            s.wide(tuple_type.index);
            s.markup(b"\">");
            s.fragment(content);
            s.markup(b"</tupleType>");
        }
        s.markup(b"</tupleTypes><aug:envVars/>");
    })
}

/// Host pools are for placement; a running PE does not read them (rule aadl-9).
fn host_pool(s: &mut Page<'_>, pool: &logical::HostPool) {
    s.markup(b"<hostpool name=\"");
    s.hidden_string(&pool.name);
    s.markup(b"\" index=\"");
    s.hidden_wide(pool.index);
    s.markup(if pool.exclusive { b"\" membershipMode=\"exclusive\"" } else { b"\" membershipMode=\"shared\"" });
    if let Some(size) = pool.size {
        s.markup(b" size=\"");
        s.hidden_wide(size);
        s.markup(b"\"");
    }
    s.markup(b">");
    for host in &pool.hosts {
        s.markup(b"<host hostname=\"");
        s.hidden_string(host);
        s.markup(b"\"/>");
    }
    for tag in pool.sorted_tags() {
        s.markup(b"<tag name=\"");
        s.hidden_string(tag);
        s.markup(b"\"/>");
    }
    s.markup(b"</hostpool>");
}

fn toolkits(application: &logical::Application) -> Result<Fragment, char> {
    Fragment::new(|s| {
        s.markup(b"<aug:toolkitsMap>");
        for toolkit in &application.toolkits {
            s.markup(b"<phy:toolkitMap index=\"");
            s.mark(b'k');
            s.wide(toolkit.index);
            s.markup(b"\" name=\"");
            s.string(&toolkit.name);
            s.markup(b"\"/>");
        }
        s.markup(b"</aug:toolkitsMap>");
    })
}

/// `operDefinition` (rule aadl-17).
fn definition(definition: &logical::OperatorDefinition) -> Result<Fragment, char> {
    Fragment::new(|s| {
        s.markup(b"<operDefinition kind=\"");
        s.mark(b'd');
        s.string(&definition.kind);
        s.markup(b"\" index=\"");
        s.wide(definition.index);
        let c_plus_plus = definition.runtime == Runtime::CPlusPlus;
        s.observe(c_plus_plus);
        s.markup(if c_plus_plus { b"\" runtimeType=\"SPL_CPlusPlus\"" } else { b"\" runtimeType=\"SPL_Java\"" });
        if definition.custom_metrics.is_empty() {
            s.markup(b"/>");
            return;
        }
        s.markup(b"><customMetricIndicies>");
        for metric in &definition.custom_metrics {
            s.markup(b"<customMetricIndex>");
            s.mark(b'm');
            s.wide(*metric);
            s.markup(b"</customMetricIndex>");
        }
        s.markup(b"</customMetricIndicies></operDefinition>");
    })
}

fn capabilities(definition: &logical::OperatorDefinition) -> Result<Fragment, char> {
    Fragment::new(|s| {
        for capability in &definition.capabilities {
            s.markup(b"<aug:capability>");
            s.hidden_string(capability);
            s.markup(b"</aug:capability>");
        }
    })
}

fn metric(metric: &logical::CustomMetric) -> Result<Fragment, char> {
    Fragment::new(|s| {
        s.markup(b"<customMetric index=\"");
        s.mark(b'M');
        s.wide(metric.index);
        s.markup(b"\" name=\"");
        s.string(&metric.name);
        s.markup(b"\" kind=\"");
        s.string(&metric.kind);
        s.markup(b"\"><description>");
        s.string(&metric.description);
        s.markup(b"</description></customMetric>");
    })
}
