//! The tree of operators (rule language-9): composites, and in each its primitives, imports and exports in document
//! order.
//!
//! The tree is read with a stack of its own, so that the nesting of a document never becomes recursion. What a
//! primitive looks like differs between the dialects; a function of the dialect reads it.
//!
//! Knows: what both dialects have in common. Must not know: how a dialect writes a primitive.

use super::parts::consistent_entry;
use super::ports::ports;
use super::tables::{Table, annotation, connections};
use super::xml::{Reader, Vocabulary, XmlElement};
use crate::error::{Error, Place, Problem, Stage};
use crate::logical::{
    Annotation, Composite, CompositePort, DefinitionThreading, Dialect, Operator, OperatorId, OperatorKind,
};
use cranelift_entity::PrimaryMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The composites of an application.
#[derive(Default)]
pub(crate) struct Composites {
    /// Whether the document has the container.
    pub(crate) present: bool,
    /// Every operator, in document order.
    pub(crate) operators: PrimaryMap<OperatorId, Operator>,
    /// The dotted names of primitives, imports and exports as written.
    pub(crate) names: Vec<(String, OperatorId)>,
    /// Toolkits of primitives, where the dialect has them here.
    pub(crate) toolkits: BTreeMap<OperatorId, u64>,
    definitions: Table<(u64, Option<Annotation>)>,
    /// Composite instances and the index of their definition.
    instances: Vec<(OperatorId, u64)>,
    /// Threading models that primitives give to the composite around them.
    threading: Vec<(OperatorId, Annotation)>,
    /// Bytes of all logical names.
    name_bytes: u64,
}

/// A primitive, import or export, as the function of its dialect reads it.
pub(crate) struct Leaf {
    /// What it is.
    pub(crate) kind: OperatorKind,
    /// All its annotations.
    pub(crate) annotations: Vec<Annotation>,
    /// Index of its toolkit, where the dialect has it here.
    pub(crate) toolkit: Option<u64>,
}

/// Reads a leaf from its element, which was just opened; none if the element is something else.
type ReadLeaf = for<'r, 'a> fn(&'r mut Reader<'a>, &'r XmlElement<'a>) -> Result<Option<Leaf>, Error>;

impl Composites {
    /// Reads the `composites` element that was just opened.
    pub(crate) fn read<'a>(
        reader: &mut Reader<'a>,
        dialect: Dialect,
        vocabulary: Vocabulary,
        leaf: ReadLeaf,
    ) -> Result<Self, Error> {
        let mut all = Self { present: true, ..Self::default() };
        let definition = match dialect {
            Dialect::V4200 => ("compositeOperDefinitions", "compositeOperDefinition"),
            Dialect::V4000 => ("compositeOpers", "compositeOper"),
        };
        reader.children_of(vocabulary, |reader, element| {
            if element.name == definition.0 {
                let mut table = Table::default();
                table.read(reader, vocabulary, definition.1, |reader, element| {
                    composite_definition(reader, element, dialect)
                })?;
                all.definitions = table;
            } else if element.name == "compositeOperInstances" {
                all.operators.clear();
                all.names.clear();
                all.toolkits.clear();
                all.instances.clear();
                all.threading.clear();
                reader.children(|reader, element| {
                    let first = all.operators.is_empty();
                    if first && element.vocabulary == vocabulary && element.name == "compositeOperInstance" {
                        all.instance(reader, &element, dialect, leaf)?;
                    }
                    Ok(())
                })?;
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// Reads the main composite, which was just opened, with everything in it, and closes it.
    fn instance<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        element: &XmlElement<'a>,
        dialect: Dialect,
        leaf: ReadLeaf,
    ) -> Result<(), Error> {
        let vocabulary = element.vocabulary;
        let main = self.open(reader, element, dialect, None)?;
        let mut stack = vec![main];
        while let Some(&owner) = stack.last() {
            let Some(child) = reader.child()? else {
                stack.pop();
                continue;
            };
            if child.vocabulary != vocabulary {
                reader.skip()?;
                continue;
            }
            match child.name {
                "compositeOperInstance" => {
                    let id = self.open(reader, &child, dialect, Some(owner))?;
                    if let OperatorKind::Composite(composite) = &mut self.operators[owner].kind {
                        composite.composites.push(id);
                    }
                    stack.push(id);
                }
                "inputPorts" | "outputPorts" => {
                    let ports = composite_ports(reader, vocabulary)?;
                    if let OperatorKind::Composite(composite) = &mut self.operators[owner].kind {
                        *(if child.name == "inputPorts" { &mut composite.inputs } else { &mut composite.outputs }) =
                            ports;
                    }
                }
                "splAnnotation" => {
                    let annotation = annotation(reader, &child)?;
                    if annotation.tag == "consistentRegion" && annotation.index().is_none() {
                        let message = "@consistentRegion: its index is not an unsigned integer".to_owned();
                        reader.problem(annotation.place, message);
                    }
                    let operator = &mut self.operators[owner];
                    if let (Dialect::V4200, "threading", OperatorKind::Composite(composite)) =
                        (dialect, annotation.tag.as_str(), &mut operator.kind)
                    {
                        composite.threading = Some(annotation.clone());
                    }
                    operator.annotations.push(annotation);
                }
                _ => match leaf(reader, &child)? {
                    Some(leaf) => self.leaf(reader, &child, dialect, owner, leaf)?,
                    None => reader.skip()?,
                },
            }
        }
        Ok(())
    }

    /// Adds a composite whose element was just opened.
    fn open<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        element: &XmlElement<'a>,
        dialect: Dialect,
        owner: Option<OperatorId>,
    ) -> Result<OperatorId, Error> {
        let definition = match dialect {
            Dialect::V4200 => "definitionIndex",
            Dialect::V4000 => "compositeOperIndex",
        };
        let definition = reader.required_index(element, definition);
        let kind = OperatorKind::Composite(Composite::default());
        let (id, _) = self.add(reader, element, owner, Vec::new(), kind)?;
        self.instances.push((id, definition));
        Ok(id)
    }

    fn leaf<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        element: &XmlElement<'a>,
        dialect: Dialect,
        owner: OperatorId,
        leaf: Leaf,
    ) -> Result<(), Error> {
        let Leaf { mut kind, annotations, toolkit } = leaf;
        let mut kept = Vec::with_capacity(annotations.len());
        for annotation in annotations {
            match (annotation.tag.as_str(), &mut kind) {
                ("consistentRegionEntry", OperatorKind::Primitive(primitive)) => {
                    primitive.consistent = Some(consistent_entry(reader, annotation));
                }
                ("threading", _) if dialect == Dialect::V4200 => self.threading.push((owner, annotation)),
                _ => kept.push(annotation),
            }
        }
        let (id, name) = self.add(reader, element, Some(owner), kept, kind)?;
        self.names.push((name, id));
        if let Some(toolkit) = toolkit {
            self.toolkits.insert(id, toolkit);
        }
        if let OperatorKind::Composite(composite) = &mut self.operators[owner].kind {
            composite.primitives.push(id);
        }
        Ok(())
    }

    fn add<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        element: &XmlElement<'a>,
        owner: Option<OperatorId>,
        annotations: Vec<Annotation>,
        kind: OperatorKind,
    ) -> Result<(OperatorId, String), Error> {
        let full = reader.required_name(element, "name");
        let name = full.rsplit('.').next().unwrap_or_default().to_owned();
        let prefix = owner.map(|owner| &self.operators[owner]).filter(|owner| owner.owner.is_some());
        let prefix_bytes = prefix.map_or(0, |owner| owner.logical_name.len() as u64 + 1);
        self.name_bytes += prefix_bytes + name.len() as u64;
        reader.check_name_bytes(self.name_bytes, element.place)?;
        let logical_name = match prefix {
            Some(owner) => format!("{}.{name}", owner.logical_name),
            None => name.clone(),
        };
        let index = reader.required_index(element, "index");
        let place = element.place;
        let id = self.operators.push(Operator { index, name, logical_name, owner, annotations, place, kind });
        Ok((id, full))
    }

    /// The main composite, once everything has been read. Gives composites the threading models of their definitions
    /// and of their primitives (rule expansion-21), and drops what only reading needed.
    pub(crate) fn finish(&mut self) -> Option<OperatorId> {
        let definitions = std::mem::take(&mut self.definitions).sorted(|(index, _)| *index);
        // One definition may have very many instances, and its annotation be large.
        let shared = |(index, annotation): (u64, Option<Annotation>)| (index, annotation.map(Arc::new));
        let threading: BTreeMap<u64, Option<Arc<Annotation>>> = definitions.into_iter().map(shared).collect();
        for (id, definition) in std::mem::take(&mut self.instances) {
            if let OperatorKind::Composite(composite) = &mut self.operators[id].kind {
                composite.definition_threading = match threading.get(&definition) {
                    Some(Some(annotation)) => DefinitionThreading::Model(Arc::clone(annotation)),
                    Some(None) => DefinitionThreading::Unset,
                    None => DefinitionThreading::Undefined(definition),
                };
            }
        }
        for (id, annotation) in std::mem::take(&mut self.threading) {
            if let OperatorKind::Composite(composite) = &mut self.operators[id].kind {
                composite.threading = Some(annotation);
            }
        }
        self.operators.keys().next()
    }
}

impl Reader<'_> {
    /// Refuses names that are too long together. A logical name repeats the names of all composites around its
    /// operator, so a small document can ask for a lot of memory (rule language-5).
    fn check_name_bytes(&self, bytes: u64, place: Place) -> Result<(), Error> {
        const PER_BYTE_OF_DOCUMENT: u64 = 2;
        let most = self.limits().adl_bytes.saturating_mul(PER_BYTE_OF_DOCUMENT);
        if bytes <= most {
            return Ok(());
        }
        let message = format!("the qualified names of all operators have more than {most} bytes");
        Err(Problem::new(Stage::LogicalModel, message).at(place).into())
    }
}

/// A definition of a composite: its index and its threading model.
fn composite_definition<'a>(
    reader: &mut Reader<'a>,
    element: &XmlElement<'a>,
    dialect: Dialect,
) -> Result<(u64, Option<Annotation>), Error> {
    let vocabulary = element.vocabulary;
    let index = reader.required_index(element, "index");
    let mut threading = None;
    reader.children(|reader, child| {
        if dialect == Dialect::V4200 && child.vocabulary == vocabulary && child.name == "splAnnotation" {
            let annotation = annotation(reader, &child)?;
            if annotation.tag == "threading" {
                threading = Some(annotation);
            }
        }
        Ok(())
    })?;
    Ok((index, threading))
}

fn composite_ports(reader: &mut Reader<'_>, vocabulary: Vocabulary) -> Result<Vec<CompositePort>, Error> {
    ports(
        reader,
        vocabulary,
        "port",
        |reader, element| CompositePort {
            index: reader.required_index(element, "index"),
            incoming: Vec::new(),
            outgoing: Vec::new(),
        },
        |reader, child, port| {
            match child.name {
                "incomingConnections" => port.incoming = connections(reader, vocabulary)?,
                "outgoingConnections" => port.outgoing = connections(reader, vocabulary)?,
                _ => {}
            }
            Ok(())
        },
    )
}
