//! The tables of an application that both dialects write in the same way (rule language-8): host pools, tuple types,
//! toolkits, metrics, parallel regions, submission-time values; and the annotations and connections that occur in many
//! places.
//!
//! Every function is called with its element just opened; what it leaves unread is skipped by the caller.

use super::types;
use super::values::owned;
use super::xml::{Reader, Vocabulary, XmlElement};
use crate::error::Error;
use crate::logical::{
    Annotation, ConnectionEnd, CustomMetric, Dialect, HostPool, LogicalSplitter, ParallelRegion, PortKind,
    SplitterKind, SubmissionValue, Text, Toolkit, TupleType, Width,
};

/// A table of the document. If its container or an index occurs twice, the last one counts.
pub(crate) struct Table<T> {
    /// Whether the document has the container.
    pub(crate) present: bool,
    rows: Vec<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { present: false, rows: Vec::new() }
    }
}

impl<T> Table<T> {
    /// Reads the rows `name` of the container that was just opened.
    pub(crate) fn read<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        vocabulary: Vocabulary,
        name: &str,
        row: impl FnMut(&mut Reader<'a>, &XmlElement<'a>) -> Result<T, Error>,
    ) -> Result<(), Error> {
        self.present = true;
        self.rows = reader.list(vocabulary, name, row)?;
        Ok(())
    }

    /// The rows, ascending and unique by `index`; of equal ones the last.
    pub(crate) fn sorted(self, index: impl Fn(&T) -> u64) -> Vec<T> {
        let mut rows = self.rows;
        rows.reverse();
        rows.sort_by_key(&index);
        rows.dedup_by_key(|row| index(row));
        rows
    }

    /// The rows in the order of the document.
    pub(crate) fn into_rows(self) -> Vec<T> {
        self.rows
    }
}

/// `hostpool`.
pub(crate) fn host_pool<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<HostPool, Error> {
    let mut pool = HostPool {
        index: reader.required_index(element, "index"),
        name: reader.required_token(element, "name"),
        exclusive: reader
            .choice(element, "membershipMode", &[("shared", false), ("exclusive", true)])
            .unwrap_or_default(),
        size: reader.optional_index(element, "size"),
        hosts: Vec::new(),
        tags: Vec::new(),
    };
    let vocabulary = element.vocabulary;
    reader.children_of(vocabulary, |reader, child| {
        match child.name {
            "host" => pool.hosts.push(reader.required_text(&child, "hostname")),
            "tag" => pool.tags.push(reader.required_text(&child, "name")),
            _ => {}
        }
        Ok(())
    })?;
    Ok(pool)
}

/// `tupleType`.
pub(crate) fn tuple_type<'a>(
    reader: &mut Reader<'a>,
    element: &XmlElement<'a>,
    dialect: Dialect,
) -> Result<TupleType, Error> {
    let index = reader.required_index(element, "index");
    let mut attributes = None;
    let vocabulary = element.vocabulary;
    reader.children(|reader, child| {
        if child.name == "tuple" && (child.vocabulary == vocabulary || child.vocabulary == Vocabulary::TupleType) {
            attributes = Some(types::tuple(reader, dialect == Dialect::V4200)?);
        }
        Ok(())
    })?;
    if attributes.is_none() {
        reader.lacks(element.place, element.name, "tuple");
    }
    Ok(TupleType { index, attributes })
}

/// `toolkit`.
pub(crate) fn toolkit<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<Toolkit, Error> {
    Ok(Toolkit { index: reader.required_index(element, "index"), name: reader.required_text(element, "name") })
}

/// `customMetric`.
pub(crate) fn custom_metric<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<CustomMetric, Error> {
    let mut metric = CustomMetric {
        index: reader.required_index(element, "index"),
        name: reader.required_token(element, "name"),
        kind: reader.word(element, "kind", &["Gauge", "Counter", "Time"]),
        description: String::new(),
    };
    let vocabulary = element.vocabulary;
    reader.children_of(vocabulary, |reader, child| {
        if child.name == "description" {
            metric.description = owned(reader.text()?);
        }
        Ok(())
    })?;
    Ok(metric)
}

/// `submissionTimeValue`.
pub(crate) fn submission_value<'a>(
    reader: &mut Reader<'a>,
    element: &XmlElement<'a>,
) -> Result<SubmissionValue, Error> {
    Ok(SubmissionValue {
        index: reader.required_index(element, "index"),
        list: reader.choice(element, "kind", &[("named", false), ("namedList", true)]).unwrap_or_default(),
        composite: reader.required_text(element, "compositeName"),
        name: reader.required_text(element, "name"),
        required: element.boolean("required"),
        default: element.optional_text("defaultValue"),
        place: element.place,
    })
}

/// `parallelRegion` (rule language-12).
pub(crate) fn parallel_region<'a>(
    reader: &mut Reader<'a>,
    element: &XmlElement<'a>,
    dialect: Dialect,
) -> Result<ParallelRegion, Error> {
    let vocabulary = element.vocabulary;
    let mut region = ParallelRegion {
        index: reader.required_index(element, "index"),
        operator: 0,
        width: Width::Absent,
        splitters: Vec::new(),
        replicate_tags: Vec::new(),
        place: element.place,
    };
    let (mut operator, mut width) = (false, false);
    reader.children_of(vocabulary, |reader, child| {
        match child.name {
            "parallelOperator" => {
                operator = true;
                region.operator = reader.required_index(&child, "operIndex");
                let mut splitters = Table::default();
                splitters.read(reader, vocabulary, "splitter", |reader, element| splitter(reader, element, dialect))?;
                region.splitters = splitters.sorted(|splitter: &LogicalSplitter| splitter.input_port);
            }
            "parallelWidth" => {
                width = true;
                region.width = parallel_width(reader, vocabulary)?;
            }
            "replicateHostTag" => region.replicate_tags.push(reader.required_text(&child, "name")),
            _ => {}
        }
        Ok(())
    })?;
    if !operator {
        reader.lacks_target(element.place, element.name, "parallelOperator");
    }
    if !width {
        reader.lacks_target(element.place, element.name, "parallelWidth");
    }
    Ok(region)
}

/// `parallelWidth`: should both sources be there, the submission-time value wins.
fn parallel_width(reader: &mut Reader<'_>, vocabulary: Vocabulary) -> Result<Width, Error> {
    let (mut constant, mut value) = (None, None);
    reader.children_of(vocabulary, |reader, child| {
        match child.name {
            "constantWidth" => {
                // The expansion refuses a number that is no width (rule expansion-1).
                let text = reader.text()?;
                let digits = text.trim().trim_start_matches(['+', '-']);
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    reader.wrong_text(&child, &text, "an integer");
                }
                let limit = if text.trim().starts_with('-') { i64::MIN } else { i64::MAX };
                constant = Some(text.trim().parse().unwrap_or(limit));
            }
            "submissionTimeParameterIndexForWidth" => value = Some(reader.index_text(&child)?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(value.map(Width::SubmissionValue).or(constant.map(Width::Constant)).unwrap_or(Width::Absent))
}

/// `splitter`. An unknown kind reads as `Hash` in the current dialect (rule language-4).
fn splitter<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>, dialect: Dialect) -> Result<LogicalSplitter, Error> {
    let vocabulary = element.vocabulary;
    let kind = match (dialect, element.attribute("kind").map(|kind| kind.as_ref())) {
        (_, Some("RoundRobin")) => SplitterKind::RoundRobin,
        (Dialect::V4200, Some("Broadcast")) => SplitterKind::Broadcast,
        (Dialect::V4200, Some(_)) => SplitterKind::Hash,
        _ => reader
            .choice(element, "kind", &[("RoundRobin", SplitterKind::RoundRobin), ("Hash", SplitterKind::Hash)])
            .unwrap_or(SplitterKind::Hash),
    };
    let mut splitter =
        LogicalSplitter { input_port: reader.required_index(element, "iportIndex"), kind, attributes: Vec::new() };
    reader.children_of(vocabulary, |reader, child| {
        if child.name == "attributes" {
            let name = |reader: &mut Reader<'a>, element: &XmlElement<'a>| Ok(reader.required_text(element, "name"));
            splitter.attributes = reader.list(vocabulary, "attribute", name)?;
        }
        Ok(())
    })?;
    Ok(splitter)
}

/// `splAnnotation` (rule language-14).
pub(crate) fn annotation<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>) -> Result<Annotation, Error> {
    let tag = reader.required_token(element, "tag");
    let values = reader.list(element.vocabulary, "value", |reader, child| {
        let key = reader.required_token(child, "key");
        let submission_value = reader.optional_index(child, "submissionTimeValueIndex");
        Ok((key, Text { literal: owned(reader.text()?), submission_value }))
    })?;
    Ok(Annotation { tag, values, place: element.place })
}

/// The `connection` elements of the container that was just opened (rule language-10).
pub(crate) fn connections<'a>(reader: &mut Reader<'a>, vocabulary: Vocabulary) -> Result<Vec<ConnectionEnd>, Error> {
    reader.list(vocabulary, "connection", |reader, child| {
        // Whatever is not `input` reads as `output` (rule language-4).
        let kind = match child.attribute("portKind") {
            Some(kind) if kind == "input" => PortKind::Input,
            Some(_) => PortKind::Output,
            None => {
                reader.required_name(child, "portKind");
                PortKind::Output
            }
        };
        Ok(ConnectionEnd {
            operator: reader.required_index(child, "operIndex"),
            port: reader.required_index(child, "portIndex"),
            kind,
            place: child.place,
        })
    })
}
