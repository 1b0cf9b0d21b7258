//! Parts of operators that both dialects write in the same way (rules language-9, language-10 and language-11).
//!
//! Every function is called with its element just opened; what it leaves unread is skipped by the caller.

use super::values::{boolean, index, owned};
use super::xml::{Reader, XmlElement};
use crate::error::Error;
use crate::logical::{
    Annotation, Checkpointing, ConsistentEntry, PartitionConstraints, PoolLocation, Property, Resources, Text,
    ThreadedPortSettings, TraceLevel,
};

/// `resources` (rule model-13).
pub(crate) fn resources<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<Resources, Error> {
    let vocabulary = element.vocabulary;
    let mut resources = Resources { isolation: element.boolean("isolation"), ..Resources::default() };
    reader.children_of(vocabulary, |reader, child| {
        match child.name {
            "hostLocation" => resources.host = Some(reader.required_text(&child, "hostname")),
            "poolLocation" => {
                resources.pool = Some(PoolLocation {
                    pool: reader.required_index(&child, "poolIndex"),
                    in_pool: reader.optional_index(&child, "inpoolIndex"),
                });
            }
            "coLocation" => resources.co_locations.push(reader.required_name(&child, "colocId")),
            "exLocation" => resources.ex_locations.push(reader.required_name(&child, "exlocId")),
            _ => {}
        }
        Ok(())
    })?;
    Ok(resources)
}

/// `partitions`.
pub(crate) fn partitions<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<PartitionConstraints, Error> {
    let vocabulary = element.vocabulary;
    let mut partition =
        PartitionConstraints { isolation: element.boolean("isolation"), ..PartitionConstraints::default() };
    reader.children_of(vocabulary, |reader, child| {
        match child.name {
            "coLocation" => partition.co_locations.push(reader.required_name(&child, "colocId")),
            "exLocation" => partition.ex_locations.push(reader.required_name(&child, "exlocId")),
            _ => {}
        }
        Ok(())
    })?;
    Ok(partition)
}

/// `runtimeConstants`. A constant that refers to a submission-time value needs no text.
pub(crate) fn runtime_constants<'a>(
    reader: &mut Reader<'a>,
    element: &XmlElement<'a>,
) -> Result<Vec<(String, Text)>, Error> {
    reader.list(element.vocabulary, "runtimeConstant", |reader, child| {
        let name = reader.required_token(child, "name");
        let submission_value = reader.optional_index(child, "submissionTimeValueIndex");
        let literal = match submission_value {
            Some(_) => child.optional_text("value").unwrap_or_default(),
            None => reader.required_text(child, "value"),
        };
        Ok((name, Text { literal, submission_value }))
    })
}

/// `checkpointing`.
pub(crate) fn checkpointing<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Option<Checkpointing> {
    let period = reader.optional_number(element, "period");
    let periodic = reader.choice(element, "policy", &[("periodic", true), ("operatorDriven", false)])?;
    Some(if periodic { Checkpointing::Periodic(period) } else { Checkpointing::OperatorDriven })
}

/// `threadedPort`.
pub(crate) fn threaded_port<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> ThreadedPortSettings {
    ThreadedPortSettings {
        congestion_policy: reader.word(element, "congestionPolicy", &["wait", "dropFirst", "dropLast"]),
        queue_size: reader.optional_index(element, "queueSize"),
    }
}

/// `tracing`.
pub(crate) fn trace_level<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> TraceLevel {
    use TraceLevel::{Debug, Error, Info, Off, Trace, Warn};
    let levels = [Off, Error, Warn, Info, Debug, Trace].map(|level| (level.name(), level));
    reader.choice(element, "level", &levels).unwrap_or(Error)
}

/// `envVars`.
pub(crate) fn environment<'a>(
    reader: &mut Reader<'a>,
    element: &XmlElement<'a>,
) -> Result<Vec<(String, String)>, Error> {
    let vocabulary = element.vocabulary;
    let mut variables = Vec::new();
    reader.children_of(vocabulary, |_, child| {
        if child.name == "envVar" {
            // A variable without a name cannot be set.
            if let Some(name) = child.optional_text("name") {
                variables.push((name, child.optional_text("value").unwrap_or_default()));
            }
        }
        Ok(())
    })?;
    Ok(variables)
}

/// `properties` of an exported stream.
pub(crate) fn properties<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<Vec<Property>, Error> {
    let vocabulary = element.vocabulary;
    reader.list(vocabulary, "property", |reader, child| {
        Ok(Property {
            name: reader.required_token(child, "name"),
            r#type: reader.required_token(child, "type"),
            values: reader.list(vocabulary, "value", |reader, _| Ok(owned(reader.text()?)))?,
        })
    })
}

/// The meaning of a `consistentRegionEntry` annotation (rule model-14).
pub(crate) fn consistent_entry(reader: &mut Reader<'_>, annotation: Annotation) -> ConsistentEntry {
    let mut entry = ConsistentEntry {
        region: 0,
        is_start: false,
        is_end: false,
        values: Vec::new(),
        autonomous_inputs: Vec::new(),
        place: annotation.place,
    };
    for (key, text) in annotation.values {
        match key.as_str() {
            "index" => match index(&text.literal) {
                Some(region) => entry.region = region,
                None => {
                    let message = "@consistentRegionEntry: its index is not an unsigned integer".to_owned();
                    reader.problem(annotation.place, message);
                }
            },
            "isStartOfRegion" => entry.is_start = boolean(&text.literal),
            "isEndOfRegion" => entry.is_end = boolean(&text.literal),
            "autonomousInputPort" => entry.autonomous_inputs.push(text),
            _ => entry.values.push((key, text)),
        }
    }
    entry
}
