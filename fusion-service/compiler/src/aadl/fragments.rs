//! Fragments: parts of the text that many documents of a job have in common, escaped once.
//!
//! A PE's document mostly repeats the application: all tuple types, all host pools, and for every operator what its
//! channels share. The compiler makes these fragments once per job, so that writing a document is copying bytes and
//! formatting numbers. The fragments of an operator and its ports are in [`super::operator_fragments`].
//!
//! Knows: the application, the topology. Must not know: PEs.

use super::channels::ChannelFragments;
use super::hashing_writer::{Fragment, HashingWriter, Unwritable};
use super::operator_fragments::OperatorFragments;
use super::size::{FragmentSize, Room};
use super::tuple_type;
use super::value::Word;
use super::vocabulary::{
    AugmentedPe, Capability, CustomMetric, CustomMetricIndex, CustomMetricIndexes, EnvironmentVariables, HostPool,
    HostPools, Libraries, MetricDescription, OperDefinition, PoolHost, PoolTag, PortTupleType, ToolkitMap, ToolkitsMap,
    TupleType, TupleTypes,
};
use crate::budget::{Budget, Pace};
use crate::error::{Error, excerpt};
use crate::heap::primary_map;
use crate::logical::{self, OperatorKind, Runtime};
use crate::shared::Shared;
use crate::topology::{Generations, IgnoredCounts, Topology};
use cranelift_entity::PrimaryMap;
use get_size2::GetSize;
use std::ops::Deref;

/// The fragments of one generation of a job.
#[derive(Debug, GetSize)]
pub(crate) struct Fragments {
    /// Fragments that do not depend on widths.
    job: Shared<JobFragments>,
    /// Fragments that channels of an operator may share.
    channels: ChannelFragments,
    /// Numbers of channels that are not observed.
    ignored_counts: IgnoredCounts,
}

/// Fragments that all generations of a job share.
#[derive(Debug, GetSize)]
pub(crate) struct JobFragments {
    /// Attributes of the root that follow those of the PE.
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
    #[get_size(size_fn = primary_map)]
    operators: PrimaryMap<logical::OperatorId, Option<Box<OperatorFragments>>>,
    /// What they count for among all fragments of a generation.
    counted: u64,
}

impl Fragments {
    /// Makes the fragments, or takes over those of the generation `before` that are the same.
    ///
    /// # Errors
    ///
    /// Stage `aadl`: XML cannot hold a text. Stage `topology`: the fragments are too large.
    pub(super) fn new(
        topology: &Topology,
        job_name: &str,
        job_id: u64,
        before: Option<(&Self, &Generations<'_>)>,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let mut size = FragmentSize::new(&budget.limits);
        let job = match before.filter(|(_, generations)| generations.share_repeated_parts()) {
            Some((before, _)) => {
                size.add(before.job.counted, || "what the generation before has".to_owned())?;
                before.job.clone()
            }
            None => Shared::new(JobFragments::new(topology, job_name, job_id, &mut size, budget)?),
        };
        let before = before.map(|(before, generations)| (&before.channels, generations));
        let ignored_counts = IgnoredCounts::new(&topology.regions);
        let channels = ChannelFragments::new(topology, before, &mut size, budget)?;
        Ok(Self { job, channels, ignored_counts })
    }

    /// Numbers of channels that are not observed (rule aadl-22).
    pub(super) fn ignored_counts(&self) -> &IgnoredCounts {
        &self.ignored_counts
    }

    /// What an operator shares with some of its channels.
    pub(super) fn channels(&self) -> &ChannelFragments {
        &self.channels
    }
}

impl Deref for Fragments {
    type Target = JobFragments;

    fn deref(&self) -> &JobFragments {
        &self.job
    }
}

impl JobFragments {
    /// Makes the fragments, which are the first to be added to `size`.
    fn new(
        topology: &Topology,
        job_name: &str,
        job_id: u64,
        size: &mut FragmentSize,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let application = &*topology.application;
        let whole = |what: &'static str| move |unwritable: Unwritable| unwritable.error(what);
        let mut tables = Tables { size, budget, pace: budget.pace() };
        // Each is here, in the head, and in what ports have.
        let type_of = |t: &logical::TupleType| format!("tuple type {}", t.index);
        let tuple_contents = tables.entries(&application.tuple_types, 3, type_of, tuple_type::content)?;
        let tuple_types = application
            .tuple_types
            .iter()
            .zip(&tuple_contents)
            .map(|(t, content)| {
                Fragment::new(|w| {
                    w.start(PortTupleType).attribute(PortTupleType::INDEX, t.index).open();
                    w.fragment(content);
                    w.end(PortTupleType);
                })
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(whole("a tuple type"))?;
        let mut operators = PrimaryMap::with_capacity(application.operators.len());
        for operator in application.operators.values() {
            tables.pace.steps(16)?;
            let what = || format!("operator {}", excerpt(&operator.logical_name));
            let pieces = match &operator.kind {
                OperatorKind::Primitive(primitive) => {
                    let room = tables.size.room(1, budget);
                    let pieces = OperatorFragments::new(application, operator, primitive, room);
                    pieces.map_err(|unwritable| unwritable.error(&what()))?
                }
                _ => None,
            };
            tables.add(pieces.as_ref().map_or(0, OperatorFragments::len), what)?;
            operators.push(pieces.map(Box::new));
        }
        let root = root(topology, job_name, job_id);
        let root = root.map_err(whole("the job's name or the application's attributes"))?;
        let head = head(topology, &tuple_contents, &mut tables)?;
        let toolkits = toolkits(application, tables.size.room(1, budget)).map_err(whole("a toolkit"))?;
        tables.add(toolkits.len(), || "toolkits".to_owned())?;
        let definition_of = |one: &logical::OperatorDefinition| format!("operator definition {}", one.index);
        Ok(Self {
            root,
            head,
            toolkits,
            tuple_types,
            definitions: tables.entries(&application.definitions, 1, definition_of, definition)?,
            capabilities: tables.entries(
                &application.definitions,
                1,
                |one| format!("a capability of {}", definition_of(one)),
                capabilities,
            )?,
            metrics: tables.entries(
                &application.custom_metrics,
                1,
                |one| format!("custom metric {}", one.index),
                |one, _| metric(one),
            )?,
            operators,
            counted: tables.size.bytes(),
        })
    }

    /// What the channels of an operator share; nothing if the ADL does not say what the operator is.
    pub(super) fn operator(&self, operator: logical::OperatorId) -> Option<&OperatorFragments> {
        self.operators.get(operator)?.as_deref()
    }

    /// Bytes that every document has at least.
    pub(super) fn bytes_per_document(&self) -> u64 {
        (self.root.len() + self.head.len() + self.toolkits.len()) as u64
    }
}

/// Counts the fragments of tables while they are made: nothing else bounds how many entries a document has, nor how
/// long they become when they are escaped.
struct Tables<'s, 'b> {
    size: &'s mut FragmentSize,
    budget: &'b Budget,
    pace: Pace<'b>,
}

impl<'b> Tables<'_, 'b> {
    /// Makes the fragments of a table, each within the room that there is for it. It is kept so many times. `what`
    /// names an entry.
    fn entries<T>(
        &mut self,
        table: &[T],
        times: usize,
        what: impl Fn(&T) -> String,
        make: impl Fn(&T, Room<'b>) -> Result<Fragment, Unwritable>,
    ) -> Result<Vec<Fragment>, Error> {
        let fragments = table.iter().map(|entry| {
            let room = self.size.room(times as u64, self.budget);
            let fragment = make(entry, room).map_err(|unwritable| unwritable.error(&what(entry)))?;
            self.add(times * fragment.len(), || what(entry))?;
            Ok(fragment)
        });
        fragments.collect()
    }

    fn add(&mut self, bytes: usize, what: impl FnOnce() -> String) -> Result<(), Error> {
        self.pace.steps(1 + u32::try_from(bytes / 1024).unwrap_or(u32::MAX / 2))?;
        Ok(self.size.add(bytes as u64, what)?)
    }
}

/// Attributes of the root that all PEs of the job share (rule aadl-7).
fn root(topology: &Topology, job_name: &str, job_id: u64) -> Result<Fragment, Unwritable> {
    let application = &*topology.application;
    // The runtime needs the attribute, whatever the ADL says.
    let checkpoint_directory = application.checkpoint_directory.as_deref().unwrap_or_default();
    Fragment::attributes::<AugmentedPe>(|tag| {
        tag.attribute(AugmentedPe::JOB_ID, job_id)
            .attribute(AugmentedPe::JOB_NAME, job_name)
            .fixed(AugmentedPe::USER)
            .attribute(AugmentedPe::APPLICATION_SCOPE, &application.scope)
            .fixed(AugmentedPe::CLASS)
            .fixed(AugmentedPe::LANGUAGE)
            .fixed(AugmentedPe::LAUNCH_COUNT)
            .optional(AugmentedPe::DATA_DIRECTORY, topology.data_directory.as_ref())
            .attribute(AugmentedPe::APPLICATION_DIRECTORY, &application.application_directory)
            .attribute(AugmentedPe::OUTPUT_DIRECTORY, &application.output_directory)
            .attribute(AugmentedPe::CHECKPOINT_DIRECTORY, checkpoint_directory)
            .attribute(AugmentedPe::DISPLAY, &topology.display)
            .attribute(AugmentedPe::BUILD_ID, &application.build_id)
            .attribute(AugmentedPe::BUNDLE, &application.bundle)
            .fixed(AugmentedPe::PROFILE_DIRECTORY)
            .attribute(AugmentedPe::VERSION, &application.product_version.replace('.', ""))
            .attribute(AugmentedPe::APPLICATION_NAME, &application.name)
            .fixed(AugmentedPe::JOB_GROUP)
            .attribute(AugmentedPe::AVOID_RUNTIME_YIELD, &application.avoid_runtime_yield)
            .fixed(AugmentedPe::EXEC_STREAMS_VERSION)
            .fixed(AugmentedPe::GENERATION_ID)
    })
}

/// Children of the root that come first and are the same everywhere (rule aadl-6).
fn head(topology: &Topology, tuple_contents: &[Fragment], tables: &mut Tables<'_, '_>) -> Result<Fragment, Error> {
    let mut counted = Ok(());
    let room = Room { budget: Some(tables.budget), ..Room::ENOUGH };
    let head = Fragment::within(room, |w| {
        w.fixed(Libraries);
        w.open(HostPools);
        for pool in &topology.host_pools {
            let before = w.bytes();
            w.limit(tables.size.room(1, tables.budget).bytes);
            host_pool(w, pool);
            counted = tables.add((w.bytes() - before) as usize, || format!("host pool {}", excerpt(&pool.name)));
            if counted.is_err() {
                return;
            }
        }
        // Tuple types are counted already.
        w.limit(usize::MAX);
        w.end(HostPools);
        w.open(TupleTypes);
        for (tuple_type, content) in topology.application.tuple_types.iter().zip(tuple_contents) {
            w.start(TupleType).attribute(TupleType::INDEX, tuple_type.index).open();
            w.fragment(content);
            w.end(TupleType);
        }
        w.end(TupleTypes);
        w.fixed(EnvironmentVariables);
    });
    counted?;
    head.map_err(|unwritable| unwritable.error("a host pool"))
}

/// `hostpool` (rule aadl-9).
fn host_pool(w: &mut HashingWriter<'_, true>, pool: &logical::HostPool) {
    let tag = w
        .start(HostPool)
        .attribute(HostPool::NAME, &pool.name)
        .attribute(HostPool::INDEX, pool.index)
        .attribute(HostPool::MEMBERSHIP_MODE, if pool.exclusive { "exclusive" } else { "shared" });
    match pool.size {
        Some(size) => tag.attribute(HostPool::SIZE, size).open(),
        None => tag.open(),
    };
    w.each(&pool.hosts, |w, host| w.start(PoolHost).attribute(PoolHost::HOST_NAME, host).close());
    w.each(pool.sorted_tags(), |w, tag| w.start(PoolTag).attribute(PoolTag::NAME, tag).close());
    w.end(HostPool);
}

fn toolkits(application: &logical::Application, room: Room<'_>) -> Result<Fragment, Unwritable> {
    Fragment::within(room, |w| {
        w.open(ToolkitsMap);
        w.each(&application.toolkits, |w, toolkit| {
            w.start(ToolkitMap)
                .attribute(ToolkitMap::INDEX, toolkit.index)
                .attribute(ToolkitMap::NAME, &toolkit.name)
                .close();
        });
        w.end(ToolkitsMap);
    })
}

/// `operDefinition` (rule aadl-17).
fn definition(definition: &logical::OperatorDefinition, room: Room<'_>) -> Result<Fragment, Unwritable> {
    let runtime = match definition.runtime {
        Runtime::CPlusPlus => Word("SPL_CPlusPlus", 1),
        Runtime::Java => Word("SPL_Java", 0),
    };
    Fragment::within(room, |w| {
        let tag = w
            .start(OperDefinition)
            .attribute(OperDefinition::KIND, &definition.kind)
            .attribute(OperDefinition::INDEX, definition.index)
            .attribute(OperDefinition::RUNTIME_TYPE, runtime);
        if definition.custom_metrics.is_empty() {
            tag.close();
            return;
        }
        tag.open();
        w.open(CustomMetricIndexes);
        w.each(&definition.custom_metrics, |w, metric| w.leaf(CustomMetricIndex, *metric));
        w.end(CustomMetricIndexes);
        w.end(OperDefinition);
    })
}

fn capabilities(definition: &logical::OperatorDefinition, room: Room<'_>) -> Result<Fragment, Unwritable> {
    Fragment::within(room, |w| w.each(&definition.capabilities, |w, capability| w.leaf(Capability, capability)))
}

fn metric(metric: &logical::CustomMetric) -> Result<Fragment, Unwritable> {
    Fragment::new(|w| {
        w.start(CustomMetric)
            .attribute(CustomMetric::INDEX, metric.index)
            .attribute(CustomMetric::NAME, &metric.name)
            .attribute(CustomMetric::KIND, &metric.kind)
            .open();
        w.leaf(MetricDescription, &metric.description);
        w.end(CustomMetric);
    })
}
