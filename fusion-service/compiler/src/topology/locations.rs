//! Host placement and fusion constraints of each channel (rules expansion-23 and expansion-24).

use super::Channel;
use super::shape::Shape;
use super::texts::TextBudget;
use crate::budget::Pace;
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use crate::heap::share;
use crate::logical::{HostPool, OperatorId, PartitionConstraints, PoolLocation, Primitive, Resources};
use get_size2::GetSize;
use spl_expression::{LocationError, RegionChannel, substitute_location};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;

/// The locations in one channel, or a message about their placeholders.
type ChannelLocations = Result<(Arc<Resources>, Arc<PartitionConstraints>), String>;

/// The locations of one logical operator. All channels share them unless they depend on the channel.
#[derive(Debug, GetSize)]
pub(super) struct Locations {
    #[get_size(size_fn = share)]
    resources: Arc<Resources>,
    #[get_size(size_fn = share)]
    partition: Arc<PartitionConstraints>,
    resources_vary: bool,
    partition_varies: bool,
}

impl Locations {
    pub(super) fn of(primitive: &Primitive) -> Self {
        // Every placeholder ends with a parenthesis.
        let varies = |texts: &[String]| texts.iter().any(|text| text.contains(')'));
        let (resources, partition) = (&primitive.resources, &primitive.partition);
        Self {
            resources_vary: resources.host.as_deref().is_some_and(|host| host.contains(')'))
                || varies(&resources.co_locations)
                || varies(&resources.ex_locations),
            partition_varies: varies(&partition.co_locations) || varies(&partition.ex_locations),
            resources: Arc::new(resources.clone()),
            partition: Arc::new(partition.clone()),
        }
    }

    /// Whether they may differ between channels, placement in copies of host pools included.
    pub(super) fn vary(&self, shape: &Shape<'_>, id: OperatorId) -> bool {
        self.resources_vary || self.partition_varies || may_replicate(shape, id, &self.resources)
    }

    /// The locations in one channel. Placeholders are substituted outside all regions too (rule expansion-23).
    ///
    /// # Errors
    ///
    /// The texts of all operators are too long, or the budget ends.
    pub(super) fn fill(
        &self,
        channels: &[Channel],
        texts: &mut TextBudget,
        pace: &mut Pace<'_>,
    ) -> Result<ChannelLocations, Error> {
        if !self.resources_vary && !self.partition_varies {
            return Ok(Ok((self.resources.clone(), self.partition.clone())));
        }
        let regions: Vec<RegionChannel> = channels.iter().map(region_channel).collect();
        let mut fill = || {
            let mut text = |text: &String| {
                pace.steps(substitution_steps(text)).map_err(Unfilled::Ended)?;
                // Little may become of a long text that has to be read in each channel: it counts as it is written.
                texts.charge(text.len() + TextBudget::PER_TEXT).map_err(Unfilled::Ended)?;
                let most = text.len().saturating_add(texts.left());
                let filled = substitute_location(text, &regions, most).map_err(|error| match error {
                    LocationError::TooLong(_) => Unfilled::Ended(texts.exceeded()),
                    wrong => Unfilled::Placeholder(wrong.to_string()),
                })?;
                texts.charge(filled.len().saturating_sub(text.len())).map_err(Unfilled::Ended)?;
                Ok::<String, Unfilled>(filled.into_owned())
            };
            let mut all = |texts: &[String]| texts.iter().map(&mut text).collect::<Result<Vec<String>, Unfilled>>();
            let (mut resources, mut partition) = (self.resources.clone(), self.partition.clone());
            if self.partition_varies {
                partition = Arc::new(PartitionConstraints {
                    co_locations: all(&self.partition.co_locations)?,
                    ex_locations: all(&self.partition.ex_locations)?,
                    isolation: self.partition.isolation,
                });
            }
            if self.resources_vary {
                let co_locations = all(&self.resources.co_locations)?;
                let ex_locations = all(&self.resources.ex_locations)?;
                let host = self.resources.host.as_ref().map(&mut text).transpose()?;
                let isolation = self.resources.isolation;
                resources =
                    Arc::new(Resources { host, pool: self.resources.pool, co_locations, ex_locations, isolation });
            }
            Ok((resources, partition))
        };
        match fill() {
            Ok(filled) => Ok(Ok(filled)),
            Err(Unfilled::Placeholder(message)) => Ok(Err(message)),
            Err(Unfilled::Ended(error)) => Err(error),
        }
    }
}

/// How long it takes to put channels into a text, in steps of a [`Pace`]: it is read several times.
fn substitution_steps(text: &str) -> u32 {
    const BYTES_A_STEP: usize = 8;
    u32::try_from(1 + text.len() / BYTES_A_STEP).unwrap_or(u32::MAX)
}

/// Why locations were not filled in.
enum Unfilled {
    /// What is wrong with a placeholder.
    Placeholder(String),
    /// The texts of all operators are too long, or the budget has ended.
    Ended(Error),
}

/// The channel of an operator as the expression language sees it.
pub(super) fn region_channel(channel: &Channel) -> RegionChannel {
    RegionChannel {
        global_channel: u64::from(channel.global),
        global_max_channels: u64::from(channel.global_max),
        local_channel: u64::from(channel.local),
        local_max_channels: u64::from(channel.local_max),
    }
}

/// The host pools of an application with the copies that its channels need.
pub(super) struct HostPools<'a> {
    /// Pools of the ADL, then copies in the order in which channels first needed them.
    pub(super) pools: Vec<HostPool>,
    /// Those of the ADL.
    declared: &'a [HostPool],
    /// The next index to try.
    next: u64,
    /// (pool, region, global channels) -> index of the copy.
    copies: HashMap<(u64, u64, Vec<u32>), u64>,
    /// (pool, region) -> the tags of the pool that the region replicates. Many operators ask for them.
    replicated: HashMap<(u64, u64), HashSet<&'a str>>,
    of_pools: TagSets<'a>,
    of_regions: TagSets<'a>,
}

impl<'a> HostPools<'a> {
    pub(super) fn new(declared: &'a [HostPool]) -> Self {
        let (pools, next) = (declared.to_vec(), declared.len() as u64);
        let (copies, replicated) = (HashMap::new(), HashMap::new());
        let [of_pools, of_regions] = [TagSets::default(), TagSets::default()];
        Self { pools, declared, next, copies, replicated, of_pools, of_regions }
    }

    /// The pool of an operator in a channel: a copy if a tag of the pool is replicated by the innermost region. Copies
    /// are numbered in the order of the calls, which is that of the walk (rule expansion-24).
    pub(super) fn replicate(
        &mut self,
        (shape, id): (&Shape<'a>, OperatorId),
        location: PoolLocation,
        channels: &[Channel],
        texts: &mut TextBudget,
        problems: &mut Problems,
        pace: &mut Pace<'_>,
    ) -> Result<PoolLocation, Error> {
        let declared = self.declared;
        let Ok(at) = declared.binary_search_by_key(&location.pool, |pool| pool.index) else {
            let operator = &shape.application.operators[id];
            let (name, pool) = (excerpt(&operator.logical_name), location.pool);
            let message = format!("{name}: there is no host pool {pool}");
            problems.push(Problem::new(Stage::Topology, message).code(code::INCONSISTENT).at(operator.place));
            return Ok(location);
        };
        let (Some(pool), Some(innermost)) = (declared.get(at), channels.first()) else { return Ok(location) };
        let tags = match self.replicated.entry((location.pool, innermost.region)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let of_pool = (location.pool, pool.tags.as_slice());
                let of_region = (innermost.region, replicated_tags(shape, id));
                unknown.insert(common_tags((&mut self.of_pools, of_pool), (&mut self.of_regions, of_region), pace)?)
            }
        };
        if tags.is_empty() {
            return Ok(location);
        }
        let globals: Vec<u32> = channels.iter().map(|channel| channel.global).collect();
        let key = (location.pool, innermost.region, globals);
        if let Some(copy) = self.copies.get(&key) {
            return Ok(PoolLocation { pool: *copy, ..location });
        }
        let mut next = self.next;
        while declared.binary_search_by_key(&next, |pool| pool.index).is_ok() {
            next += 1;
        }
        let mut suffix = String::new();
        for global in &key.2 {
            // Writing to a string cannot fail.
            let _ = write!(suffix, "_{global}");
        }
        let copied = |tag: &String| if tags.contains(tag.as_str()) { format!("{tag}{suffix}") } else { tag.clone() };
        let copy = HostPool {
            index: next,
            name: format!("{}_{}{suffix}", pool.name, innermost.region),
            tags: pool.tags.iter().map(copied).collect(),
            ..pool.clone()
        };
        let strings = copy.hosts.iter().chain(&copy.tags);
        texts.charge(copy.name.len() + strings.map(|text| text.len() + TextBudget::PER_TEXT).sum::<usize>())?;
        self.pools.push(copy);
        self.next = next + 1;
        self.copies.insert(key, next);
        Ok(PoolLocation { pool: next, ..location })
    }
}

/// Sets of tags by index of their pool or region. Each is made once: many pools and regions may ask for it.
#[derive(Default)]
struct TagSets<'a>(HashMap<u64, HashSet<&'a str>>);

impl<'a> TagSets<'a> {
    fn of(&mut self, index: u64, tags: &'a [String], pace: &mut Pace<'_>) -> Result<&HashSet<&'a str>, Error> {
        match self.0.entry(index) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(unknown) => {
                let mut set = HashSet::new();
                for tag in tags {
                    pace.step()?;
                    set.insert(tag.as_str());
                }
                Ok(unknown.insert(set))
            }
        }
    }
}

/// The tags that a pool and a region have in common. The fewer are looked up in the more: nothing bounds how many tags
/// there are, nor how many pools one region meets.
fn common_tags<'a>(
    (of_pools, (pool, pool_tags)): (&mut TagSets<'a>, (u64, &'a [String])),
    (of_regions, (region, region_tags)): (&mut TagSets<'a>, (u64, &'a [String])),
    pace: &mut Pace<'_>,
) -> Result<HashSet<&'a str>, Error> {
    let (few, many) = if pool_tags.len() <= region_tags.len() {
        (pool_tags, of_regions.of(region, region_tags, pace)?)
    } else {
        (region_tags, of_pools.of(pool, pool_tags, pace)?)
    };
    let mut common = HashSet::new();
    for tag in few {
        pace.step()?;
        if many.contains(tag.as_str()) {
            common.insert(tag.as_str());
        }
    }
    Ok(common)
}

/// What a copy of resources is charged for.
pub(super) fn copied_bytes(resources: &Resources) -> usize {
    let texts = resources.host.iter().chain(&resources.co_locations).chain(&resources.ex_locations);
    texts.map(|text| text.len() + TextBudget::PER_TEXT).sum()
}

/// Whether an operator asks for a pool in a region that has replicated tags. Only there does the expansion report an
/// unknown pool; elsewhere fusion reports it.
pub(super) fn may_replicate(shape: &Shape<'_>, id: OperatorId, resources: &Resources) -> bool {
    resources.pool.is_some() && !replicated_tags(shape, id).is_empty()
}

/// The tags that the innermost region around an operator replicates; tags of outer regions do not count
/// (rule expansion-24).
fn replicated_tags<'a>(shape: &Shape<'a>, id: OperatorId) -> &'a [String] {
    let region = shape.scopes[shape.scope_of[id]].region;
    region.map_or(&[], |region| shape.application.regions[region].replicate_tags.as_slice())
}
