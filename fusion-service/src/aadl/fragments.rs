//! What many documents of a job have in common, escaped once.
//!
//! A PE's document mostly repeats the application: all tuple types, all host pools, and for every operator what its channels share. These
//! pieces are made here once per job, so that writing a document is copying bytes and formatting numbers.

use super::channels::Channels;
use super::same::{Generations, refers_to_distant_operators};
use super::sheet::{Fragment, Sheet};
use super::tuple_type;
use crate::budget::Budget;
use crate::error::{Error, Problem, Stage, excerpt};
use crate::heap::heap_fields;
use crate::logical::{self, Checkpointing, OperatorKind, Primitive, Runtime};
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

/// Pieces that all channels of an operator share.
#[derive(Debug)]
pub(super) struct Operator {
    /// Attributes.
    pub(super) attributes: Fragment,
    /// `sharedObject`.
    pub(super) shared_object: Fragment,
    /// `checkpointing`, or nothing.
    pub(super) checkpointing: Fragment,
    /// `jvmArguments`, or nothing.
    pub(super) jvm_arguments: Fragment,
    /// Input ports, by position.
    pub(super) inputs: Vec<Port>,
    /// Positions of the input ports by ADL index, in which order they are written.
    pub(super) input_order: Vec<u32>,
    /// Output ports, by position.
    pub(super) outputs: Vec<Port>,
    /// Positions of the output ports by ADL index.
    pub(super) output_order: Vec<u32>,
    /// Position of its definition in the table.
    pub(super) definition: usize,
}

/// Pieces of a port.
#[derive(Debug)]
pub(super) struct Port {
    /// Attributes of the operator port.
    pub(super) attributes: Fragment,
    /// `encoding` and `transport` of PE ports made from it.
    pub(super) pe_port: Fragment,
    /// Position of its tuple type in the table; none if the ADL does not declare it.
    pub(super) tuple_type: Option<usize>,
    /// Input ports: congestion policy and queue size of the threaded port as written.
    pub(super) threaded: Option<Fragment>,
}

heap_fields! {
    Fragments { job, channels }
    Job { root, head, toolkits, tuple_types, definitions, capabilities, metrics, operators }
    Operator {
        attributes, shared_object, checkpointing, jvm_arguments, inputs, input_order, outputs, output_order, definition,
    }
    Port { attributes, pe_port, tuple_type, threaded }
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

/// Attributes of the root that all PEs of the job share (aadl 2.1).
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
        // The runtime needs the attribute, whatever the ADL says (decisions, "aadl 4, 5").
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

/// Children of the root that come first and are the same everywhere (aadl 2.2, rows 1 to 4).
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

/// Host pools are for placement; a running PE does not look (aadl 2.2.1, 3.11).
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
    let mut tags: Vec<&str> = pool.tags.iter().map(String::as_str).collect();
    tags.sort_unstable();
    for tag in tags {
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

/// `operDefinition` (aadl 2.8).
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

impl Operator {
    /// Nothing if its definition does not exist, which the topology refuses.
    fn new(
        application: &logical::Application,
        operator: &logical::Operator,
        primitive: &Primitive,
    ) -> Result<Option<Self>, char> {
        let Ok(position) = application.definitions.binary_search_by_key(&primitive.definition, |d| d.index) else {
            return Ok(None);
        };
        let toolkit = application.definitions.get(position).and_then(|d| d.toolkit);
        let attributes = Fragment::new(|s| {
            s.markup(b" class=\"");
            s.string(&primitive.class);
            s.markup(b"\" definitionIndex=\"");
            s.wide(primitive.definition);
            s.markup(b"\" restartable=\"");
            s.hidden_boolean(primitive.restartable);
            s.markup(b"\" relocatable=\"");
            s.hidden_boolean(primitive.relocatable);
            s.markup(b"\" launchCount=\"1\" logicalName=\"");
            s.string(&operator.logical_name);
            s.markup(b"\" logicalIndex=\"");
            s.hidden_wide(operator.index);
            s.markup(b"\"");
            s.observe(toolkit.is_some());
            if let Some(toolkit) = toolkit {
                s.markup(b" toolkitIndex=\"");
                s.wide(toolkit);
                s.markup(b"\"");
            }
        })?;
        let shared_object = Fragment::new(|s| {
            s.markup(b"<sharedObject><wrapper>");
            s.string(&primitive.wrapper);
            s.markup(b"</wrapper><sharedObjectUri>");
            s.string(&primitive.shared_object);
            s.markup(b"</sharedObjectUri></sharedObject>");
        })?;
        let inputs = primitive
            .inputs
            .iter()
            .map(|input| {
                let threaded = input.threaded.as_ref().map(threaded_port).transpose()?;
                Port::new(application, &input.port, threaded, |s| {
                    s.markup(b"\" isControl=\"");
                    s.boolean(input.control);
                })
            })
            .collect::<Result<_, _>>()?;
        let outputs = primitive
            .outputs
            .iter()
            .map(|output| {
                Port::new(application, &output.port, None, |s| {
                    s.markup(b"\" viewable=\"");
                    s.hidden_boolean(output.viewable);
                    s.markup(b"\" logicalStreamName=\"");
                    s.hidden_string(&output.stream_name);
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Some(Self {
            attributes,
            shared_object,
            checkpointing: checkpointing(primitive.checkpointing.as_ref())?,
            jvm_arguments: jvm_arguments(primitive.jvm_arguments.as_deref())?,
            input_order: order(primitive.inputs.iter().map(|input| input.port.index)),
            inputs,
            output_order: order(primitive.outputs.iter().map(|output| output.port.index)),
            outputs,
            definition: position,
        }))
    }
}

/// Positions by ascending index.
fn order(indexes: impl Iterator<Item = u64>) -> Vec<u32> {
    let mut order: Vec<(u64, u32)> = indexes.zip(0..).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, position)| position).collect()
}

impl Port {
    fn new(
        application: &logical::Application,
        port: &logical::Port,
        threaded: Option<Fragment>,
        more: impl FnOnce(&mut Page<'_>),
    ) -> Result<Self, char> {
        Ok(Self {
            attributes: Fragment::new(|s| {
                s.markup(b" index=\"");
                s.wide(port.index);
                s.markup(b"\" name=\"");
                s.string(&port.name);
                s.markup(b"\" isMutable=\"");
                s.boolean(port.mutable);
                s.markup(b"\" tupleTypeIndex=\"");
                s.wide(port.tuple_type);
                more(s);
                s.markup(b"\"");
            })?,
            pe_port: Fragment::new(|s| {
                s.markup(b"\" encoding=\"");
                s.string(&port.encoding);
                s.markup(b"\" transport=\"");
                s.string(&port.transport);
            })?,
            tuple_type: application.tuple_types.binary_search_by_key(&port.tuple_type, |t| t.index).ok(),
            threaded,
        })
    }
}

fn threaded_port(port: &logical::ThreadedPort) -> Result<Fragment, char> {
    Fragment::new(|s| {
        s.markup(b"<threadedPort congestionPolicy=\"");
        s.string(&port.congestion_policy);
        s.markup(b"\"");
        s.observe(port.queue_size.is_some());
        if let Some(size) = port.queue_size {
            s.markup(b" queueSize=\"");
            s.wide(size);
            s.markup(b"\"");
        }
    })
}

fn checkpointing(checkpointing: Option<&Checkpointing>) -> Result<Fragment, char> {
    Fragment::new(|s| match checkpointing {
        None => s.mark(0),
        Some(Checkpointing::OperatorDriven) => {
            s.mark(1);
            s.markup(b"<checkpointing policy=\"operatorDriven\"/>");
        }
        Some(Checkpointing::Periodic(period)) => {
            s.mark(2);
            s.markup(b"<checkpointing policy=\"periodic\"");
            if let Some(period) = period {
                s.markup(b" period=\"");
                s.double(*period);
                s.markup(b"\"");
            }
            s.markup(b"/>");
        }
    })
}

fn jvm_arguments(arguments: Option<&[String]>) -> Result<Fragment, char> {
    Fragment::new(|s| {
        s.observe(arguments.is_some());
        let Some(arguments) = arguments else { return };
        s.markup(b"<phy:jvmArguments>");
        for argument in arguments {
            s.markup(b"<phy:jvmArgument>");
            s.mark(b'j');
            s.string(argument);
            s.markup(b"</phy:jvmArgument>");
        }
        s.markup(b"</phy:jvmArguments>");
    })
}
