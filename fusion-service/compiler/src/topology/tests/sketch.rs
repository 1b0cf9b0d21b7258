//! Applications in few words, for tests: operators by dotted name, connections by `name:port`, regions by name.
//!
//! `in` and `out` of a composite's own ports are told apart by where the other end is.

use crate::adl;
use crate::budget::Budget;
use crate::error::Error;
use crate::logical::Application;
use crate::logical::submission::bind;
use crate::topology::{Parameters, Topology, expand};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

#[derive(Clone, Default)]
pub(super) struct Sketch {
    operators: Vec<Operator>,
    connections: Vec<(End, End)>,
    regions: String,
    region_count: usize,
    values: String,
    pools: String,
    /// Annotations of the main composite, as XML.
    main: String,
    pub(super) given: BTreeMap<String, String>,
    pub(super) widths: Vec<(String, i128)>,
}

#[derive(Clone, PartialEq)]
struct End {
    name: String,
    port: usize,
}

#[derive(Clone)]
struct Operator {
    kind: Kind,
    name: String,
    inputs: usize,
    outputs: usize,
    /// Children of its element, as XML.
    extra: String,
    /// Attributes of its element.
    attributes: String,
    streams: BTreeMap<usize, String>,
    resources: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Primitive,
    Composite,
    Import,
    Export,
}

impl std::fmt::Debug for Sketch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.adl())
    }
}

impl Sketch {
    pub(super) fn new() -> Self {
        Self::default()
    }

    fn add(mut self, kind: Kind, name: &str, inputs: usize, outputs: usize, extra: &str, attributes: &str) -> Self {
        self.operators.push(Operator {
            kind,
            name: name.to_owned(),
            inputs,
            outputs,
            extra: extra.to_owned(),
            attributes: attributes.to_owned(),
            streams: BTreeMap::new(),
            resources: "<poolLocation poolIndex='0'/>".to_owned(),
        });
        self
    }

    pub(super) fn op(self, name: &str, inputs: usize, outputs: usize) -> Self {
        self.add(Kind::Primitive, name, inputs, outputs, "", "")
    }

    pub(super) fn composite(self, name: &str, inputs: usize, outputs: usize) -> Self {
        self.add(Kind::Composite, name, inputs, outputs, "", "")
    }

    pub(super) fn import(self, name: &str, what: &str, attributes: &str) -> Self {
        self.add(Kind::Import, name, 0, 1, what, attributes)
    }

    pub(super) fn export(self, name: &str, what: &str, attributes: &str) -> Self {
        self.add(Kind::Export, name, 1, 0, what, attributes)
    }

    fn last(mut self, change: impl FnOnce(&mut Operator)) -> Self {
        if let Some(operator) = self.operators.last_mut() {
            change(operator);
        }
        self
    }

    /// Children of the last operator.
    pub(super) fn with(self, extra: &str) -> Self {
        self.last(|operator| operator.extra.push_str(extra))
    }

    /// `resources` of the last operator.
    pub(super) fn resources(self, resources: &str) -> Self {
        self.last(|operator| resources.clone_into(&mut operator.resources))
    }

    /// Logical stream name of an output port of the last operator.
    pub(super) fn stream(self, port: usize, name: &str) -> Self {
        self.last(|operator| {
            operator.streams.insert(port, name.to_owned());
        })
    }

    /// `consistentRegionEntry` on the last operator.
    pub(super) fn consistent(self, region: u64, key: &str) -> Self {
        let key = match key {
            "" => String::new(),
            key => format!("<value key='{key}' type=''>true</value>"),
        };
        self.with(&format!(
            "<splAnnotation tag='consistentRegionEntry'><value key='index' type=''>{region}</value>{key}</splAnnotation>"
        ))
    }

    /// `consistentRegion` on the main composite.
    pub(super) fn declare(mut self, region: u64, trigger: &str) -> Self {
        let value = |key: &str, value: &str| format!("<value key='{key}' type=''>{value}</value>");
        let values = [
            value("index", &region.to_string()),
            value("trigger", trigger),
            value("drainTimeout", "180"),
            value("resetTimeout", "1.5"),
        ];
        let _ = write!(self.main, "<splAnnotation tag='consistentRegion'>{}</splAnnotation>", values.concat());
        self
    }

    pub(super) fn main(mut self, xml: &str) -> Self {
        self.main.push_str(xml);
        self
    }

    /// `"A:0" -> "B:1"`
    pub(super) fn connect(mut self, from: &str, to: &str) -> Self {
        let end = |text: &str| {
            let (name, port) = text.split_once(':').unwrap();
            End { name: name.to_owned(), port: port.parse().unwrap() }
        };
        self.connections.push((end(from), end(to)));
        self
    }

    /// A chain of single connections, port 0 everywhere.
    pub(super) fn chain(mut self, names: &[&str]) -> Self {
        for pair in names.windows(2) {
            self = self.connect(&format!("{}:0", pair[0]), &format!("{}:0", pair[1]));
        }
        self
    }

    pub(super) fn parallel(self, name: &str, width: impl std::fmt::Display) -> Self {
        self.parallel_by(name, &format!("<constantWidth>{width}</constantWidth>"), "RoundRobin", "")
    }

    /// A region with any width element, kind of splitters, and further children.
    pub(super) fn parallel_by(mut self, name: &str, width: &str, kind: &str, extra: &str) -> Self {
        let inputs = self.operators.iter().find(|o| o.name == name).map_or(0, |o| o.inputs);
        let mut splitters = String::new();
        for port in 0..inputs {
            let _ = write!(
                splitters,
                "<splitter kind='{kind}' iportIndex='{port}'><attributes><attribute name='k'/></attributes></splitter>"
            );
        }
        let index = self.region_count;
        self.region_count += 1;
        let operator = self.index(name);
        let _ = write!(
            self.regions,
            "<parallelRegion index='{index}' name='x'><parallelOperator operIndex='{operator}'>{splitters}</parallelOperator>\
             <parallelWidth>{width}</parallelWidth>{extra}</parallelRegion>"
        );
        self
    }

    pub(super) fn value(mut self, index: u64, name: &str, rest: &str) -> Self {
        let _ = write!(
            self.values,
            "<submissionTimeValue index='{index}' kind='named' compositeName='Main' name='{name}' {rest}/>"
        );
        self
    }

    pub(super) fn pool(mut self, index: u64, name: &str, tags: &[&str]) -> Self {
        let tags: String = tags.iter().map(|tag| format!("<tag name='{tag}'/>")).collect();
        let _ = write!(self.pools, "<hostpool index='{index}' name='{name}' membershipMode='shared'>{tags}</hostpool>");
        self
    }

    pub(super) fn override_width(mut self, pattern: &str, width: i128) -> Self {
        self.widths.push((pattern.to_owned(), width));
        self
    }

    /// Primitives first, then everything else, the main composite last.
    fn index(&self, name: &str) -> usize {
        let order = |primitive: bool| self.operators.iter().filter(move |o| (o.kind == Kind::Primitive) == primitive);
        order(true).chain(order(false)).position(|o| o.name == name).unwrap_or(self.operators.len())
    }

    pub(super) fn adl(&self) -> String {
        let main = self.operators.len();
        let mut composites = String::new();
        self.contents("", &mut composites);
        format!(
            "<applicationSet xmlns='http://www.ibm.com/xmlns/prod/streams/application/v4200' \
             xmlns:tt='http://www.ibm.com/xmlns/prod/streams/spl/tupleType'>\n<splApplication name='Main' \
             applicationScope='Default' applicationDirectory='a' outputDirectory='o' buildId='' bundle='b' \
             productVersion='4.3.0.0' avoidRuntimeYield='auto'>\n<hostpools><hostpool index='0' name='$default' \
             membershipMode='shared'/>{}</hostpools><tupleTypes><tupleType index='0'><tuple><tt:attr name='i' \
             type='int32'/></tuple></tupleType></tupleTypes><primitiveOperDefinitions><primitiveOperDefinition index='0' \
             kind='k' runtimeType='SPL_CPlusPlus' toolkitIndex='0'/></primitiveOperDefinitions><toolkits><toolkit index='0' \
             name='t' version='1'/></toolkits>\n<composites><sourceUris/><compositeOperDefinitions>\
             <compositeOperDefinition index='0' kind='c'/></compositeOperDefinitions><compositeOperInstances>\
             <compositeOperInstance definitionIndex='0' index='{main}' name='Main' sourceIndex='0'>{}{composites}\
             </compositeOperInstance></compositeOperInstances></composites>\n<parallelRegions>{}</parallelRegions>\
             <submissionTimeValues>{}</submissionTimeValues></splApplication></applicationSet>",
            self.pools, self.main, self.regions, self.values
        )
    }

    fn contents(&self, owner: &str, text: &mut String) {
        let inside = |o: &&Operator| o.name.rsplit_once('.').map_or("", |(owner, _)| owner) == owner;
        for composite in self.operators.iter().filter(inside).filter(|o| o.kind == Kind::Composite) {
            let (name, index) = (&composite.name, self.index(&composite.name));
            let _ = write!(text, "\n<compositeOperInstance definitionIndex='0' index='{index}' name='{name}'>");
            for (ports, count) in [("inputPorts", composite.inputs), ("outputPorts", composite.outputs)] {
                let _ = write!(text, "<{ports}>");
                for port in 0..count {
                    let end = End { name: name.clone(), port };
                    let input = ports == "inputPorts";
                    let _ = write!(text, "<port index='{port}'><incomingConnections>");
                    for (from, to) in
                        self.connections.iter().filter(|(from, to)| *to == end && self.meets(from, to, input))
                    {
                        self.connection(from, to, false, text);
                    }
                    let _ = write!(text, "</incomingConnections><outgoingConnections>");
                    for (from, to) in
                        self.connections.iter().filter(|(from, to)| *from == end && self.leaves(from, to, input))
                    {
                        self.connection(from, to, true, text);
                    }
                    let _ = write!(text, "</outgoingConnections></port>");
                }
                let _ = write!(text, "</{ports}>");
            }
            text.push_str(&composite.extra);
            self.contents(name, text);
            text.push_str("</compositeOperInstance>");
        }
        for leaf in self.operators.iter().filter(inside).filter(|o| o.kind != Kind::Composite) {
            self.leaf(leaf, text);
        }
    }

    fn leaf(&self, leaf: &Operator, text: &mut String) {
        let (name, index, attributes) = (&leaf.name, self.index(&leaf.name), &leaf.attributes);
        let element = match leaf.kind {
            Kind::Import => "primitiveImportOperInstance",
            Kind::Export => "primitiveExportOperInstance",
            _ => "primitiveOperInstance",
        };
        let _ =
            write!(text, "\n<{element} definitionIndex='0' index='{index}' name='{name}' {attributes}><inputPorts>");
        let port = |number: usize, rest: &str| {
            format!(
                "<port index='{number}' name='p' tupleTypeIndex='0' encoding='LE' transport='TCP' {rest}><connections>"
            )
        };
        for number in 0..leaf.inputs {
            let end = End { name: name.clone(), port: number };
            text.push_str(&port(number, ""));
            for (from, to) in self.connections.iter().filter(|(_, to)| *to == end) {
                self.connection(from, to, false, text);
            }
            text.push_str("</connections></port>");
        }
        text.push_str("</inputPorts><outputPorts>");
        for number in 0..leaf.outputs {
            let end = End { name: name.clone(), port: number };
            let own = if number == 0 { name.clone() } else { format!("{name}_{number}") };
            let stream = leaf.streams.get(&number).unwrap_or(&own);
            text.push_str(&port(number, &format!("streamName='{stream}'")));
            for (from, to) in self.connections.iter().filter(|(from, _)| *from == end) {
                self.connection(from, to, true, text);
            }
            text.push_str("</connections></port>");
        }
        text.push_str("</outputPorts>");
        if leaf.kind == Kind::Primitive {
            let (resources, class) = (&leaf.resources, &leaf.name);
            let _ = write!(
                text,
                "<resources>{resources}</resources><runtimeConstants/><sharedObject class='{class}'><wrapper>none</wrapper>\
                 <uri>u</uri></sharedObject>"
            );
        }
        let _ = write!(text, "{}</{element}>", leaf.extra);
    }

    fn is_composite(&self, end: &End) -> bool {
        self.operators.iter().any(|o| o.name == end.name && o.kind == Kind::Composite)
    }

    fn inside(&self, inner: &End, outer: &End) -> bool {
        inner.name.rsplit_once('.').is_some_and(|(owner, _)| owner == outer.name)
    }

    /// Whether a connection that ends at a composite ends at its input (from outside) or its output (from inside).
    fn meets(&self, from: &End, to: &End, input: bool) -> bool {
        let from_inside = self.inside(from, to) || from.name == to.name;
        from_inside != input
    }

    /// Whether a connection that begins at a composite begins at its input (to inside) or its output (to outside).
    fn leaves(&self, from: &End, to: &End, input: bool) -> bool {
        let to_inside = self.inside(to, from) || from.name == to.name;
        to_inside == input
    }

    fn connection(&self, from: &End, to: &End, downstream: bool, text: &mut String) {
        let far = if downstream { to } else { from };
        let input = match (downstream, self.is_composite(far)) {
            (true, false) => true,
            (false, false) => false,
            (true, true) => self.meets(from, to, true),
            (false, true) => self.leaves(from, to, true),
        };
        let (index, port, kind) = (self.index(&far.name), far.port, if input { "input" } else { "output" });
        let _ = write!(text, "<connection operIndex='{index}' portIndex='{port}' portKind='{kind}'/>");
    }

    pub(super) fn application(&self) -> Result<Arc<Application>, Error> {
        adl::parse(self.adl().as_bytes(), &Budget::default()).map(Arc::new)
    }

    pub(super) fn expand_within(&self, budget: &Budget) -> Result<Topology, Error> {
        let application = self.application()?;
        let bindings = bind(&application, &self.given)?;
        let parameters = Parameters { bindings, widths: self.widths.clone(), ..Parameters::default() };
        expand(&application, &parameters, budget)
    }

    /// The topology for other widths, made from the one that is running.
    pub(super) fn expand_again(&self, before: &Topology) -> Result<Topology, Error> {
        let bindings = bind(&before.application, &self.given)?;
        let parameters = Parameters { bindings, widths: self.widths.clone(), ..Parameters::default() };
        crate::topology::expand_again(before, &parameters, &Budget::default())
    }

    pub(super) fn expand(&self) -> Result<Topology, Error> {
        self.expand_within(&Budget::default())
    }
}
