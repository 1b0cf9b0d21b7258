//! What of a plan does not fit the objects that are made of it (rule job-22): the bounds of their schemas, and of an
//! object as a whole. Pure.
//!
//! What is only shown is cut instead ([objects](super)). Schemas count characters.
//!
//! Knows: plans, bounds. Must not know: what becomes of a plan that does not fit.

use super::{NAME_MAX, OBJECT_BYTES};
use crate::controllers::job::generation::places::members;
use prost::Message;
use std::collections::BTreeSet;
use streams_api::condition;
use streams_proto::fusion::v1::{ConsistentRegion, Export, HostPool, Import, ParallelRegion, Plan, ProcessingElement};

/// Longest expression or value.
const EXPRESSION_MAX: usize = 65_536;
/// Longest value of an environment variable.
const VARIABLE_MAX: usize = 32_768;
/// Longest name of a type.
const TYPE_MAX: usize = 64;
/// Most items of a list or map.
const ITEMS_MAX: usize = 1_024;
/// Most tags of a host pool.
const TAGS_MAX: usize = 64;
/// Most consistent regions of a PE.
const REGIONS_MAX: usize = 4_096;
/// Most PEs of a consistent region.
const MEMBERS_MAX: usize = 65_536;
/// Greatest number: the API server reads integers as signed ones, and takes a greater one for none.
const NUMBER_MAX: u64 = u64::MAX / 2;
/// From here on milliseconds are more than that.
const MILLISECONDS_END: f64 = 9_223_372_036_854_775_808.0;
/// As much of a name as is said.
const SAID_MAX: usize = 64;

/// The first thing that does not fit, in words. `previous`: the plan in force.
pub(in super::super) fn oversized(plan: &Plan, previous: Option<&Plan>) -> Option<String> {
    // A long name that a job has had from when it was only cut does not keep it from being resized.
    let known: BTreeSet<&str> = previous.iter().flat_map(|plan| &plan.host_pools).map(|pool| &*pool.name).collect();
    members(plan)
        .find_map(of_pe)
        .or_else(|| plan.host_pools.iter().find_map(|pool| of_pool(pool, known.contains(&*pool.name))))
        .or_else(|| plan.parallel_regions.iter().find_map(of_region))
        .or_else(|| plan.consistent_regions.iter().find_map(of_consistent_region))
}

fn of_pe(pe: &ProcessingElement) -> Option<String> {
    let what = || {
        let placed = pe.placement.as_ref();
        let of_kinds =
            placed.map(|placed| [("co-location", &placed.co_locations), ("ex-location", &placed.ex_locations)]);
        for (kind, tokens) in of_kinds.into_iter().flatten() {
            if tokens.len() > ITEMS_MAX {
                return Some(format!("{} tokens of {kind}, more than {ITEMS_MAX}", tokens.len()));
            }
            if let Some(token) = tokens.iter().find(|token| !fits(token, NAME_MAX)) {
                return Some(format!("a token of {kind} of more than {NAME_MAX} characters: {} ...", said(token)));
            }
        }
        let in_pool = placed.and_then(|placed| placed.pool.as_ref()).and_then(|pool| pool.in_pool_index);
        if let Some(place) = in_pool.filter(|place| *place > NUMBER_MAX) {
            return Some(format!("the place {place} in its host pool, more than {NUMBER_MAX}"));
        }
        let environment = &pe.environment;
        if environment.len() > ITEMS_MAX {
            return Some(format!("{} environment variables, more than {ITEMS_MAX}", environment.len()));
        }
        if let Some((name, _)) = environment.iter().find(|(_, value)| !fits(value, VARIABLE_MAX)) {
            return Some(format!("a value of more than {VARIABLE_MAX} characters in {}", said(name)));
        }
        let variables: usize = environment.iter().map(|(name, value)| name.len().saturating_add(value.len())).sum();
        let bytes = variables.saturating_add(placed.map_or(0, Message::encoded_len));
        if bytes > OBJECT_BYTES {
            return Some(format!("{bytes} bytes of environment variables and tokens, more than one object"));
        }
        let regions = pe.consistent_regions.len();
        (regions > REGIONS_MAX).then(|| format!("{regions} consistent regions, more than {REGIONS_MAX}"))
    };
    let export = || pe.exports.iter().find(|export| !does_export_fit(export));
    let import = || pe.imports.iter().find(|import| !does_import_fit(import));
    let id = pe.id;
    what()
        .map(|what| format!("PE {id} has {what}"))
        .or_else(|| Some(format!("what output port {} of PE {id} exports does not fit one object", export()?.port_id)))
        .or_else(|| Some(format!("what input port {} of PE {id} imports does not fit one object", import()?.port_id)))
}

fn does_export_fit(export: &Export) -> bool {
    let properties = &export.properties;
    let mut values = properties.iter().flat_map(|property| &property.values);
    fits(&export.export_operator_name, NAME_MAX)
        && export.name.as_ref().is_none_or(|name| fits(name, NAME_MAX))
        && properties.len() <= ITEMS_MAX
        && properties.iter().all(|property| is_name(&property.name) && fits(&property.r#type, TYPE_MAX))
        && properties.iter().all(|property| property.values.len() <= ITEMS_MAX)
        && values.all(|value| fits(value, EXPRESSION_MAX))
        && export.encoded_len() <= OBJECT_BYTES / 2
}

fn does_import_fit(import: &Import) -> bool {
    let names = import.by_name.iter().flat_map(|by_name| {
        [&by_name.application_name, &by_name.application_scope, &by_name.stream_name, &by_name.import_operator_name]
    });
    let by_properties = import.by_properties.iter();
    let more = by_properties.clone().flat_map(|by| [&by.application_scope, &by.import_operator_name]);
    let mut expressions = import.filter.iter().chain(by_properties.map(|by| &by.subscription));
    import.by_name.len() <= ITEMS_MAX
        && names.chain(more).all(|name| fits(name, NAME_MAX))
        && expressions.all(|expression| fits(expression, EXPRESSION_MAX))
        && import.encoded_len() <= OBJECT_BYTES / 2
}

fn of_pool(HostPool { index, name, size, hosts, tags, .. }: &HostPool, is_known: bool) -> Option<String> {
    let size = || too_great(&format!("the size of host pool {index}, {},", said(name)), (*size)?);
    misnamed("host pool", *index, name)
        .filter(|_| !is_known)
        .or_else(|| too_great("the index of a host pool", *index))
        .or_else(size)
        .or_else(|| (hosts.len() > ITEMS_MAX).then(|| too_many("hosts", "host pool", *index, ITEMS_MAX)))
        .or_else(|| (tags.len() > TAGS_MAX).then(|| too_many("tags", "host pool", *index, TAGS_MAX)))
}

fn of_region(ParallelRegion { index, name, .. }: &ParallelRegion) -> Option<String> {
    misnamed("parallel region", *index, name).or_else(|| too_great("the index of a parallel region", *index))
}

fn of_consistent_region(region: &ConsistentRegion) -> Option<String> {
    let ConsistentRegion { index, logical_index, period, drain_timeout, reset_timeout, pe_ids, .. } = region;
    let times = [("the period", period), ("drainTimeout", drain_timeout), ("resetTimeout", reset_timeout)];
    let too_long = || {
        let (what, seconds) = times.into_iter().find(|(_, seconds)| **seconds * 1_000.0 >= MILLISECONDS_END)?;
        Some(format!("{what} of consistent region {index} is {seconds:?} s, more than {NUMBER_MAX} ms"))
    };
    (pe_ids.len() > MEMBERS_MAX)
        .then(|| too_many("PEs", "consistent region", *index, MEMBERS_MAX))
        .or_else(|| too_great("the index of a consistent region", (*index).max(*logical_index)))
        .or_else(too_long)
}

fn misnamed(what: &str, index: u64, name: &str) -> Option<String> {
    let message = || format!("the name of {what} {index} has not 1 to {NAME_MAX} characters: {}", said(name));
    (!is_name(name)).then(message)
}

fn too_many(what: &str, of: &str, index: u64, most: usize) -> String {
    format!("{of} {index} has more than {most} {what}")
}

fn too_great(what: &str, number: u64) -> Option<String> {
    (number > NUMBER_MAX).then(|| format!("{what} is {number}, more than {NUMBER_MAX}"))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && fits(text, NAME_MAX)
}

/// Whether a text has at most so many characters.
fn fits(text: &str, most: usize) -> bool {
    text.len() <= most || text.chars().count() <= most
}

fn said(text: &str) -> &str {
    condition::cut(text, SAID_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_proto::fusion::v1::export::Property;
    use streams_proto::fusion::v1::import::ByName;
    use streams_proto::fusion::v1::placement::Pool;
    use streams_proto::fusion::v1::{Fate, Placement};

    /// With something of everything.
    fn plan() -> Plan {
        let property =
            Property { name: "topic".to_owned(), r#type: "rstring".to_owned(), values: vec!["\"tech\"".to_owned()] };
        let pe = ProcessingElement {
            id: 3,
            fate: Fate::Added.into(),
            exports: vec![Export { port_id: 2, properties: vec![property], ..Export::default() }],
            imports: vec![Import { port_id: 1, by_name: vec![ByName::default()], ..Import::default() }],
            placement: Some(Placement::default()),
            environment: [("A".to_owned(), "b".to_owned())].into(),
            ..ProcessingElement::default()
        };
        Plan {
            processing_elements: vec![pe],
            host_pools: vec![HostPool { index: 4, name: "p".to_owned(), ..HostPool::default() }],
            parallel_regions: vec![ParallelRegion { index: 5, name: "R".to_owned(), ..ParallelRegion::default() }],
            consistent_regions: vec![ConsistentRegion { index: 6, ..ConsistentRegion::default() }],
            ..Plan::default()
        }
    }

    fn pe(plan: &mut Plan) -> &mut ProcessingElement {
        &mut plan.processing_elements[0]
    }

    fn placed(plan: &mut Plan) -> &mut Placement {
        pe(plan).placement.as_mut().unwrap()
    }

    fn long(characters: usize) -> String {
        "\u{e9}".repeat(characters)
    }

    /// `count` different texts of this many characters.
    fn texts(count: usize, characters: usize) -> Vec<String> {
        (0..count).map(|number| format!("{number:0>characters$}")).collect()
    }

    #[test]
    fn what_does_not_fit_the_schema_is_told_before_anything_is_written() {
        // change -> part of the message
        type Change = fn(&mut Plan);
        let table: [(Change, Option<&str>); 47] = [
            (|_| (), None),
            (|plan| pe(plan).exports[0].name = Some(long(1_024)), None),
            (|plan| pe(plan).exports[0].name = Some(long(1_025)), Some("output port 2 of PE 3")),
            (|plan| pe(plan).exports[0].properties = vec![Property::default(); 1_025], Some("output port 2")),
            (|plan| pe(plan).exports[0].properties[0].values = texts(10, 60_000), Some("output port 2")),
            (|plan| pe(plan).exports[0].properties[0].name.clear(), Some("output port 2")),
            (|plan| pe(plan).exports[0].properties[0].r#type = long(65), Some("output port 2")),
            (|plan| pe(plan).imports[0].filter = Some("f".repeat(65_536)), None),
            (|plan| pe(plan).imports[0].filter = Some("f".repeat(65_537)), Some("input port 1 of PE 3")),
            (|plan| pe(plan).imports[0].by_name = vec![ByName::default(); 1_025], Some("input port 1")),
            (|plan| pe(plan).imports[0].by_name[0].stream_name = long(1_025), Some("input port 1")),
            (|plan| placed(plan).co_locations = texts(1_024, 8), None),
            (|plan| placed(plan).co_locations = texts(1_025, 8), Some("PE 3 has 1025 tokens of co-location")),
            (|plan| placed(plan).co_locations = vec![long(1_024)], None),
            (
                |plan| placed(plan).co_locations = vec![long(1_025)],
                Some("PE 3 has a token of co-location of more than"),
            ),
            (|plan| placed(plan).ex_locations = texts(1_025, 8), Some("PE 3 has 1025 tokens of ex-location")),
            (|plan| placed(plan).ex_locations = vec![long(1_025)], Some("PE 3 has a token of ex-location of more")),
            (|plan| placed(plan).ex_locations = texts(1_000, 1_024), Some("bytes of environment variables and tokens")),
            (
                |plan| pe(plan).environment = texts(1_025, 4).into_iter().map(|name| (name, String::new())).collect(),
                Some("PE 3 has 1025 environment variables"),
            ),
            (|plan| drop(pe(plan).environment.insert("A".to_owned(), long(32_768))), None),
            (|plan| drop(pe(plan).environment.insert("A".to_owned(), long(32_769))), Some("32768 characters in A")),
            (
                |plan| pe(plan).environment = texts(31, 4).into_iter().map(|name| (name, "v".repeat(32_768))).collect(),
                Some("bytes of environment variables and tokens"),
            ),
            (|plan| pe(plan).consistent_regions = (0..4_096).collect(), None),
            (|plan| pe(plan).consistent_regions = (0..4_097).collect(), Some("PE 3 has 4097 consistent regions")),
            (|plan| plan.host_pools[0].name.clear(), Some("the name of host pool 4")),
            (|plan| plan.host_pools[0].name = long(1_024), None),
            (|plan| plan.host_pools[0].name = long(1_025), Some("the name of host pool 4")),
            (|plan| plan.host_pools[0].hosts = texts(1_025, 8), Some("host pool 4 has more than 1024 hosts")),
            (|plan| plan.host_pools[0].tags = texts(64, 8), None),
            (|plan| plan.host_pools[0].tags = texts(65, 8), Some("host pool 4 has more than 64 tags")),
            (|plan| plan.parallel_regions[0].name = long(1_024), None),
            (|plan| plan.parallel_regions[0].name = long(1_025), Some("the name of parallel region 5")),
            (|plan| plan.parallel_regions[0].name.clear(), Some("the name of parallel region 5")),
            (
                |plan| plan.consistent_regions[0].pe_ids = vec![0; 65_537],
                Some("consistent region 6 has more than 65536"),
            ),
            (|plan| plan.host_pools[0].size = Some(NUMBER_MAX), None),
            (
                |plan| plan.host_pools[0].size = Some(u64::MAX),
                Some("the size of host pool 4, p, is 18446744073709551615, more than 9223372036854775807"),
            ),
            (|plan| plan.host_pools[0].index = NUMBER_MAX + 1, Some("the index of a host pool is 9223372036854775808")),
            (|plan| placed(plan).pool = Some(Pool { index: 4, in_pool_index: Some(NUMBER_MAX) }), None),
            (
                |plan| placed(plan).pool = Some(Pool { index: 4, in_pool_index: Some(NUMBER_MAX + 1) }),
                Some("PE 3 has the place 9223372036854775808 in its host pool"),
            ),
            (|plan| plan.parallel_regions[0].index = u64::MAX, Some("the index of a parallel region")),
            (|plan| plan.consistent_regions[0].index = u64::MAX, Some("the index of a consistent region")),
            (|plan| plan.consistent_regions[0].logical_index = u64::MAX, Some("the index of a consistent region")),
            (|plan| plan.consistent_regions[0].period = 9e15, None),
            (|plan| plan.consistent_regions[0].period = -1e300, None),
            (
                |plan| plan.consistent_regions[0].period = 1e300,
                Some("the period of consistent region 6 is 1e300 s, more than 9223372036854775807 ms"),
            ),
            (|plan| plan.consistent_regions[0].drain_timeout = 9.3e15, Some("drainTimeout of consistent region 6")),
            (|plan| plan.consistent_regions[0].reset_timeout = 1e39, Some("resetTimeout of consistent region 6")),
        ];
        for (number, (change, expected)) in table.into_iter().enumerate() {
            let mut plan = plan();
            change(&mut plan);
            let message = oversized(&plan, None);
            assert_eq!(message.is_some(), expected.is_some(), "{number}: {message:?}");
            let message = message.unwrap_or_default();
            assert!(message.contains(expected.unwrap_or_default()), "{number}: {message}");
            // What goes need not fit.
            plan.host_pools.clear();
            plan.parallel_regions.clear();
            plan.consistent_regions.clear();
            pe(&mut plan).set_fate(Fate::Removed);
            assert_eq!(oversized(&plan, None), None, "{number}");
        }
    }

    #[test]
    fn a_job_that_has_a_pool_with_a_long_name_is_resized_as_long_as_there_is_none_more() {
        let with_pools = |names: &[&str], hosts: usize| {
            let hosts = texts(hosts, 8);
            let pool = |name: &&str| HostPool { name: (*name).to_owned(), hosts: hosts.clone(), ..HostPool::default() };
            Plan { host_pools: names.iter().map(pool).collect(), ..Plan::default() }
        };
        let [short, longer, longest] = [1_024, 1_025, 1_026].map(long);
        let (short, longer, longest) = (short.as_str(), longer.as_str(), longest.as_str());
        // names in force, if the job runs; those of the plan, hosts of each -> part of the message
        let table = [
            (None, vec![longer], 1, Some("the name of host pool 0")),
            (Some(vec![short, longer]), vec![longer, short], 1, None),
            (Some(vec![longer]), vec![longer, longest], 1, Some("the name of host pool 0")),
            (Some(vec![short]), vec![longer], 1, Some("the name of host pool 0")),
            // Nobody has ever had so many.
            (Some(vec![longer]), vec![longer], 1_025, Some("more than 1024 hosts")),
        ];
        for (number, (previous, names, hosts, expected)) in table.into_iter().enumerate() {
            let previous = previous.map(|names| with_pools(&names, 1));
            let message = oversized(&with_pools(&names, hosts), previous.as_ref());
            assert_eq!(message.is_some(), expected.is_some(), "{number}: {message:?}");
            assert!(message.unwrap_or_default().contains(expected.unwrap_or_default()), "{number}");
        }
    }
}
