//! XML in: ADL documents of both dialects become one [`logical::Application`](crate::logical::Application).
//!
//! ```text
//! bytes --xml--> elements --values, parts, types, tables--> rows and operators
//!                         --composites, v4200 | v4000--> Application
//! ```
//!
//! * `xml` and `characters` make sure that the document is well-formed; `xml` knows places.
//! * `values` turns texts into numbers, words and names, with the tolerance of the format.
//! * `tables`, `types`, `parts`, `ports` read what both dialects share; `v4200` and `v4000` what they do not;
//!   `composites` the tree.
//!
//! Knows: XML, the names of elements and attributes, and which of them are required. Must not know: what elements mean
//! together. An index that leads nowhere is reported by the stage that follows it.
//!
//! Children come in any order, unknown elements and attributes are ignored, and of repeated single elements the last
//! counts (rule language-3). Some known parts of the format are not read at all (rule language-16). A document that is
//! not well-formed is refused at its first fault (rule language-2). All problems of a well-formed document are listed
//! (rule language-6). Only the first application of a document and its first top-level composite count
//! (rule language-1). [`parse`] only gives an application without problems. [`read`] also gives the readable part of an
//! application with problems, so that the caller can check that part with later stages.

mod characters;
mod composites;
mod parts;
mod ports;
mod tables;
mod types;
mod v4000;
mod v4200;
mod values;
mod xml;

use crate::budget::Budget;
use crate::error::{Error, Problem, Problems, Stage, code, excerpt};
use crate::logical::{Application, Dialect, Operator, OperatorDefinition, OperatorId, OperatorKind};
use composites::Composites;
use cranelift_entity::PrimaryMap;
use tables::Table;
use xml::{Reader, Vocabulary, XmlElement};

/// Reads an ADL document.
///
/// # Errors
///
/// Stage `logical-model`: the document is no well-formed XML or no ADL (code `CDISA5089E`), or parts of it are missing
/// or malformed.
pub fn parse(document: &[u8], budget: &Budget) -> Result<Application, Error> {
    match read(document, budget)? {
        Reading { application: Some(application), problems, .. } if problems.is_empty() => Ok(application),
        Reading { problems, .. } => Err(Error::Rejected(problems)),
    }
}

/// A document as far as it can be read.
#[derive(Debug)]
pub struct Reading {
    /// The application, with defaults for what is missing or malformed; none if the document does not get that far.
    pub application: Option<Application>,
    /// What is wrong, in the order in which it counts. Stage `logical-model`, as for [`parse`].
    pub problems: Vec<Problem>,
    /// The indexes, names and tables by which parts refer to each other have no problems. Then problems that later
    /// stages find do not follow from these.
    pub coherent: bool,
    /// Nothing is wrong with the declarations of submission-time values.
    pub values_coherent: bool,
}

/// Reads what can be read of an ADL document.
///
/// # Errors
///
/// The budget ends.
pub fn read(document: &[u8], budget: &Budget) -> Result<Reading, Error> {
    let mut problems = Problems::default();
    let refused = |problems: Problems| {
        Ok(Reading { application: None, problems: problems.into_vec(), coherent: false, values_coherent: false })
    };
    let Some(mut reader) = problems.keep(Reader::new(document, budget))? else { return refused(problems) };
    let draft = problems.keep(draft(&mut reader))?;
    let values_coherent = draft.as_ref().is_some_and(|draft| draft.values_coherent);
    let application = draft.map(|draft| draft.finish(&mut reader, budget)).transpose()?.flatten();
    // The problem that ended the reading comes first: the document is not well-formed, or no ADL.
    let coherent = problems.is_empty() && reader.coherent;
    problems.extend(std::mem::take(&mut reader.problems));
    Ok(Reading { application, problems: problems.into_vec(), coherent, values_coherent })
}

/// Reads the parts of the application. Stops with an error where the document turns out to be no ADL.
fn draft(reader: &mut Reader<'_>) -> Result<Draft, Error> {
    let root = reader.root()?;
    let (dialect, name) = match (root.vocabulary, root.name) {
        (Vocabulary::V4200, "applicationSet") => (Dialect::V4200, "splApplication"),
        (Vocabulary::V4000, "applicationSet") => (Dialect::V4000, "application"),
        (_, name) => {
            let message = format!("<{}> is not the root of an ADL document of a known version", excerpt(name));
            return Err(Problem::new(Stage::LogicalModel, message).code(code::UNEXPECTED).at(root.place).into());
        }
    };
    let mut draft = None;
    reader.children(|reader, element| {
        if draft.is_none() && element.vocabulary == root.vocabulary && element.name == name {
            draft = Some(Draft::read(reader, &element, dialect)?);
        }
        Ok(())
    })?;
    reader.finish()?;
    let none = || Problem::new(Stage::LogicalModel, format!("there is no <{name}>")).at(root.place).into();
    draft.ok_or_else(none)
}

/// An application as far as it has been read.
struct Draft {
    application: Application,
    place: crate::error::Place,
    element: &'static str,
    composites: Composites,
    host_pools: Table<crate::logical::HostPool>,
    tuple_types: Table<crate::logical::TupleType>,
    definitions: Table<OperatorDefinition>,
    toolkits: Table<crate::logical::Toolkit>,
    custom_metrics: Table<crate::logical::CustomMetric>,
    regions: Table<crate::logical::ParallelRegion>,
    submission_values: Table<crate::logical::SubmissionValue>,
    /// The submission-time values have no problems.
    values_coherent: bool,
    pes: Table<v4000::Pe>,
}

impl Draft {
    /// Reads the application element that was just opened.
    fn read<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>, dialect: Dialect) -> Result<Self, Error> {
        let mut draft = Self {
            application: header(reader, element, dialect),
            place: element.place,
            element: if dialect == Dialect::V4200 { "splApplication" } else { "application" },
            composites: Composites::default(),
            host_pools: Table::default(),
            tuple_types: Table::default(),
            definitions: Table::default(),
            toolkits: Table::default(),
            custom_metrics: Table::default(),
            regions: Table::default(),
            submission_values: Table::default(),
            values_coherent: true,
            pes: Table::default(),
        };
        let vocabulary = element.vocabulary;
        reader.children(|reader, child| {
            if child.vocabulary == vocabulary {
                draft.table(reader, &child, dialect)?;
            }
            Ok(())
        })?;
        Ok(draft)
    }

    fn table<'a>(&mut self, reader: &mut Reader<'a>, child: &XmlElement<'a>, dialect: Dialect) -> Result<(), Error> {
        let v = child.vocabulary;
        match (child.name, dialect) {
            ("hostpools", _) => self.host_pools.read(reader, v, "hostpool", tables::host_pool),
            ("tupleTypes", _) => {
                self.tuple_types.read(reader, v, "tupleType", |reader, row| tables::tuple_type(reader, row, dialect))
            }
            ("toolkits", _) => self.toolkits.read(reader, v, "toolkit", tables::toolkit),
            ("customMetrics", _) => self.custom_metrics.read(reader, v, "customMetric", tables::custom_metric),
            ("parallelRegions", _) => self
                .regions
                .read(reader, v, "parallelRegion", |reader, row| tables::parallel_region(reader, row, dialect)),
            ("submissionTimeValues", _) => {
                let before = reader.problems.len();
                self.submission_values.read(reader, v, "submissionTimeValue", tables::submission_value)?;
                self.values_coherent = reader.problems.len() == before;
                Ok(())
            }
            ("primitiveOperDefinitions", Dialect::V4200) => {
                self.definitions.read(reader, v, "primitiveOperDefinition", v4200::definition)
            }
            ("operDefinitions", Dialect::V4000) => {
                self.definitions.read(reader, v, "operDefinition", v4000::definition)
            }
            ("pes", Dialect::V4000) => self.pes.read(reader, v, "pe", v4000::pe),
            ("composites", _) => {
                let leaf = if dialect == Dialect::V4200 { v4200::leaf } else { v4000::leaf };
                self.composites = Composites::read(reader, dialect, v, leaf)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Puts the parts together and notes what is missing. Fails if the budget ends.
    fn finish(self, reader: &mut Reader<'_>, budget: &Budget) -> Result<Option<Application>, Error> {
        let Self { mut application, place, element, mut composites, .. } = self;
        let (definitions, pes) = match application.dialect {
            Dialect::V4200 => ("primitiveOperDefinitions", true),
            Dialect::V4000 => ("operDefinitions", self.pes.present),
        };
        for (present, child) in [
            (self.host_pools.present, "hostpools"),
            (self.tuple_types.present, "tupleTypes"),
            (self.definitions.present, definitions),
            (pes, "pes"),
            (composites.present, "composites"),
            (self.toolkits.present, "toolkits"),
        ] {
            match (present, child) {
                (true, _) => {}
                // Nothing but their own names depends on them.
                (false, "toolkits") => reader.lacks(place, element, child),
                (false, _) => reader.lacks_target(place, element, child),
            }
        }
        application.host_pools = self.host_pools.sorted(|row| row.index);
        application.tuple_types = self.tuple_types.sorted(|row| row.index);
        application.definitions = self.definitions.sorted(|row| row.index);
        application.toolkits = self.toolkits.sorted(|row| row.index);
        application.custom_metrics = self.custom_metrics.sorted(|row| row.index);
        application.regions = self.regions.sorted(|row| row.index);
        application.submission_values = self.submission_values.sorted(|row| row.index);
        if application.dialect == Dialect::V4000 {
            v4000::merge(reader, self.pes.into_rows(), &mut composites, &mut application.definitions, budget)?;
        }
        let main = composites.finish();
        if main.is_none() && composites.present {
            reader.problem(place, "there is no main composite: <compositeOperInstances> is empty".to_owned());
        }
        budget.check()?;
        check_names(reader, &composites.operators);
        application.operators = composites.operators;
        Ok(main.map(|main| Application { main, ..application }))
    }
}

/// Refuses a name that two operators have, and names with brackets (rule language-15). Physical names identify
/// operators and regions, and their brackets hold channels. Imports and exports have no physical names.
fn check_names(reader: &mut Reader<'_>, operators: &PrimaryMap<OperatorId, Operator>) {
    // Missing names were reported before.
    let all_named = reader.problems.is_empty();
    for operator in operators.values() {
        if operator.name.contains(['[', ']']) {
            reader.problem(operator.place, format!("the name of operator {} has a bracket", excerpt(&operator.name)));
        }
    }
    let named = operators.iter().filter(|(_, operator)| {
        operator.owner.is_some() && matches!(operator.kind, OperatorKind::Primitive(_) | OperatorKind::Composite(_))
    });
    let mut names: Vec<(&str, OperatorId)> = named.map(|(id, operator)| (operator.logical_name.as_str(), id)).collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        if let [(first, _), (second, id)] = pair
            && first == second
            && (all_named || !operators[*id].name.is_empty())
        {
            reader.problem(operators[*id].place, format!("two operators have the name {}", excerpt(second)));
        }
    }
}

/// The attributes of the application element (rule language-8); its tables are still empty.
fn header<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>, dialect: Dialect) -> Application {
    Application {
        dialect,
        name: reader.required_token(element, "name"),
        scope: reader.required_text(element, "applicationScope"),
        version: element.optional_token("version"),
        data_directory: element.optional_text("dataDirectory"),
        application_directory: reader.required_text(element, "applicationDirectory"),
        output_directory: reader.required_text(element, "outputDirectory"),
        checkpoint_directory: element.optional_text("checkpointDirectory"),
        adl_path: element.optional_text("adlPath"),
        build_id: reader.required_text(element, "buildId"),
        bundle: reader.required_text(element, "bundle"),
        // The older dialect has neither (rule language-17).
        product_version: match dialect {
            Dialect::V4200 => reader.required_token(element, "productVersion"),
            Dialect::V4000 => "4.1.0.0".to_owned(),
        },
        avoid_runtime_yield: match dialect {
            Dialect::V4200 => reader.word(element, "avoidRuntimeYield", &["auto", "yes", "no"]),
            Dialect::V4000 => "auto".to_owned(),
        },
        host_pools: Vec::new(),
        tuple_types: Vec::new(),
        toolkits: Vec::new(),
        definitions: Vec::new(),
        custom_metrics: Vec::new(),
        submission_values: Vec::new(),
        regions: Vec::new(),
        operators: PrimaryMap::new(),
        main: cranelift_entity::EntityRef::new(0),
    }
}

#[cfg(test)]
mod tests;
