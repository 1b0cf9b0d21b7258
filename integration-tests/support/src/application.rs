//! Applications in few words, as ADL: operators by dotted name, connections by `name:port`, regions by name.
//!
//! ```
//! use streams_test_support::application::Sketch;
//!
//! let row = Sketch::row(&["Source", "Work", "Sink"]).parallel("Work", 3);
//! let nested = Sketch::new()
//!     .op("Source", 0, 1)
//!     .composite("Lane", 1, 1)
//!     .op("Lane.Work", 1, 1)
//!     .connect("Source:0", "Lane:0")
//!     .connect("Lane:0", "Lane.Work:0")
//!     .connect("Lane.Work:0", "Lane:0")
//!     .parallel("Lane", 2);
//! assert!(row.adl().contains("'Work'") && nested.adl().contains("'Lane.Work'"));
//! ```
//!
//! A connection between a composite and something inside is at the composite's input if it leads inside, else at its
//! output. Which one is meant follows from the names.
//!
//! Invariants: the same sketch gives the same text; operators are numbered in the order in which they were added,
//! primitive ones first, the main composite last. What a sketch says need not be sound: tests of errors are written
//! with it, too.
//!
//! Knows: ADL. Must not know: what the compiler makes of it.

use std::collections::BTreeMap;
use std::fmt::Write;

/// An application, and how it is to be compiled.
#[derive(Clone, Default)]
pub struct Sketch {
    operators: Vec<Operator>,
    /// The one that is described further.
    current: usize,
    connections: Vec<(End, End)>,
    regions: Vec<Region>,
    values: String,
    pools: String,
    /// Annotations of the main composite, as XML.
    main: String,
    /// Submission-time values to compile it with.
    pub given: BTreeMap<String, String>,
    /// Widths to compile it with, by region name or pattern.
    pub widths: Vec<(String, i128)>,
}

#[derive(Clone)]
struct Region {
    operator: String,
    /// Child of `parallelWidth`, as XML.
    width: String,
    /// Kind of its splitters.
    kind: String,
    /// Further children, as XML.
    extra: String,
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

/// As ADL: what a failing property shows.
impl std::fmt::Debug for Sketch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.adl())
    }
}

impl Sketch {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Operators of which each feeds the next: the first has no input, the last no output.
    pub fn row(names: &[&str]) -> Self {
        let ends = |at: usize| (usize::from(at > 0), usize::from(at + 1 < names.len()));
        let operators = names.iter().enumerate().fold(Self::new(), |sketch, (at, name)| {
            let (inputs, outputs) = ends(at);
            sketch.op(name, inputs, outputs)
        });
        operators.chain(names)
    }

    fn add(mut self, kind: Kind, name: &str, inputs: usize, outputs: usize, extra: &str, attributes: &str) -> Self {
        self.current = self.operators.len();
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

    /// An operator with so many input and output ports. The name says which composites it is in.
    pub fn op(self, name: &str, inputs: usize, outputs: usize) -> Self {
        self.add(Kind::Primitive, name, inputs, outputs, "", "")
    }

    /// A composite with so many input and output ports.
    pub fn composite(self, name: &str, inputs: usize, outputs: usize) -> Self {
        self.add(Kind::Composite, name, inputs, outputs, "", "")
    }

    /// An import: children and attributes of its element, as XML.
    pub fn import(self, name: &str, what: &str, attributes: &str) -> Self {
        self.add(Kind::Import, name, 0, 1, what, attributes)
    }

    /// An export: children and attributes of its element, as XML.
    pub fn export(self, name: &str, what: &str, attributes: &str) -> Self {
        self.add(Kind::Export, name, 1, 0, what, attributes)
    }

    /// What follows is about this operator, which is there already. Without it, it is about the one added last.
    pub fn of(mut self, name: &str) -> Self {
        self.current = self.operators.iter().position(|operator| operator.name == name).unwrap();
        self
    }

    fn change(mut self, change: impl FnOnce(&mut Operator)) -> Self {
        change(&mut self.operators[self.current]);
        self
    }

    /// Further children of its element, as XML.
    pub fn with(self, extra: &str) -> Self {
        self.change(|operator| operator.extra.push_str(extra))
    }

    /// What is inside `resources`, as XML.
    pub fn resources(self, resources: &str) -> Self {
        self.change(|operator| resources.clone_into(&mut operator.resources))
    }

    /// Logical stream name of one of its output ports.
    pub fn stream(self, port: usize, name: &str) -> Self {
        self.change(|operator| {
            operator.streams.insert(port, name.to_owned());
        })
    }

    /// The annotation `consistentRegionEntry`, in which these are true, separated by spaces.
    pub fn consistent(self, region: u64, keys: &str) -> Self {
        let keys = keys.split_whitespace().map(|key| format!("<value key='{key}' type=''>true</value>"));
        let keys: String = keys.collect();
        self.with(&format!(
            "<splAnnotation tag='consistentRegionEntry'><value key='index' type=''>{region}</value>{keys}\
             </splAnnotation>"
        ))
    }

    /// The annotation `consistentRegion` on the main composite.
    pub fn declare(self, region: u64, trigger: &str) -> Self {
        self.declare_with(region, trigger, &[("drainTimeout", "180"), ("resetTimeout", "1.5")])
    }

    /// The same with these further values.
    pub fn declare_with(mut self, region: u64, trigger: &str, further: &[(&str, &str)]) -> Self {
        let index = region.to_string();
        let all = [("index", index.as_str()), ("trigger", trigger)].into_iter().chain(further.iter().copied());
        let values: String = all.map(|(key, value)| format!("<value key='{key}' type=''>{value}</value>")).collect();
        let _ = write!(self.main, "<splAnnotation tag='consistentRegion'>{values}</splAnnotation>");
        self
    }

    /// A source, so many channels of `Work` and a sink, all in consistent region 0, which is periodic. The period, and
    /// what a checkpoint and a reset may take, are in seconds.
    pub fn steady(channels: u32, period: &str, timeout: &str, attempts: &str) -> Self {
        let values = [
            ("period", period),
            ("drainTimeout", timeout),
            ("resetTimeout", timeout),
            ("maxConsecutiveResetAttempts", attempts),
        ];
        Self::in_one_region(channels, "periodic", &values, "isStartOfRegion")
    }

    /// The same, and beside it a source and a sink in region 1, which is like the other one. The sources share a PE,
    /// and so do the sinks: these are in both regions.
    pub fn overlapping(channels: u32, period: &str, timeout: &str, attempts: &str) -> Self {
        let values = [
            ("period", period),
            ("drainTimeout", timeout),
            ("resetTimeout", timeout),
            ("maxConsecutiveResetAttempts", attempts),
        ];
        let together = |id: &str| format!("<partitions><coLocation colocId='{id}'/></partitions>");
        let (sources, sinks) = (together("sources"), together("sinks"));
        let both = Self::steady(channels, period, timeout, attempts)
            .declare_with(1, "periodic", &values)
            .op("OtherSource", 0, 1)
            .consistent(1, "isStartOfRegion")
            .with(&sources)
            .op("OtherSink", 1, 0)
            .consistent(1, "isEndOfRegion")
            .with(&sinks)
            .connect("OtherSource:0", "OtherSink:0");
        both.of("Source").with(&sources).of("Sink").with(&sinks)
    }

    /// The same as the first, but for the region: the source says when it is drained.
    pub fn driven(channels: u32, timeout: &str, attempts: &str) -> Self {
        let values = [("drainTimeout", timeout), ("resetTimeout", timeout), ("maxConsecutiveResetAttempts", attempts)];
        Self::in_one_region(channels, "operatorDriven", &values, "isStartOfRegion isTriggerOperator")
    }

    fn in_one_region(channels: u32, trigger: &str, values: &[(&str, &str)], source: &str) -> Self {
        let row = Self::row(&["Source", "Work", "Sink"]).parallel("Work", channels).declare_with(0, trigger, values);
        let row = row.of("Source").consistent(0, source);
        row.of("Work").consistent(0, "").of("Sink").consistent(0, "isEndOfRegion")
    }

    /// Further children of the main composite, as XML.
    pub fn main(mut self, xml: &str) -> Self {
        self.main.push_str(xml);
        self
    }

    /// A connection: `connect("A:0", "B:1")`.
    pub fn connect(mut self, from: &str, to: &str) -> Self {
        let end = |text: &str| {
            let (name, port) = text.split_once(':').unwrap();
            End { name: name.to_owned(), port: port.parse().unwrap() }
        };
        self.connections.push((end(from), end(to)));
        self
    }

    /// A chain of single connections, port 0 everywhere.
    pub fn chain(mut self, names: &[&str]) -> Self {
        for pair in names.windows(2) {
            self = self.connect(&format!("{}:0", pair[0]), &format!("{}:0", pair[1]));
        }
        self
    }

    /// An operator or composite is a region of this width, with round-robin splitters.
    pub fn parallel(self, name: &str, width: impl std::fmt::Display) -> Self {
        self.parallel_by(name, &format!("<constantWidth>{width}</constantWidth>"), "RoundRobin", "")
    }

    /// A region with any width element, kind of splitters, and further children.
    pub fn parallel_by(mut self, name: &str, width: &str, kind: &str, extra: &str) -> Self {
        let [operator, width, kind, extra] = [name, width, kind, extra].map(str::to_owned);
        self.regions.push(Region { operator, width, kind, extra });
        self
    }

    /// Operators and composites that are regions, in the order in which this was said.
    pub fn regions(&self) -> impl Iterator<Item = &str> {
        self.regions.iter().map(|region| region.operator.as_str())
    }

    /// A submission-time value of the main composite.
    pub fn value(mut self, index: u64, name: &str, rest: &str) -> Self {
        let _ = write!(
            self.values,
            "<submissionTimeValue index='{index}' kind='named' compositeName='Main' name='{name}' {rest}/>"
        );
        self
    }

    /// A host pool. Number 0 is there already.
    pub fn pool(mut self, index: u64, name: &str, tags: &[&str]) -> Self {
        let tags: String = tags.iter().map(|tag| format!("<tag name='{tag}'/>")).collect();
        let _ = write!(self.pools, "<hostpool index='{index}' name='{name}' membershipMode='shared'>{tags}</hostpool>");
        self
    }

    /// It is compiled with this width of the regions of this name or pattern.
    pub fn override_width(mut self, pattern: &str, width: i128) -> Self {
        self.widths.push((pattern.to_owned(), width));
        self
    }

    /// Primitives first, then everything else, the main composite last.
    fn index(&self, name: &str) -> usize {
        let order = |primitive: bool| self.operators.iter().filter(move |o| (o.kind == Kind::Primitive) == primitive);
        order(true).chain(order(false)).position(|o| o.name == name).unwrap_or(self.operators.len())
    }

    fn region(&self, number: usize, region: &Region, text: &mut String) {
        let Region { operator, width, kind, extra } = region;
        let inputs = self.operators.iter().find(|o| o.name == *operator).map_or(0, |o| o.inputs);
        let index = self.index(operator);
        let _ = write!(text, "<parallelRegion index='{number}' name='x'><parallelOperator operIndex='{index}'>");
        for port in 0..inputs {
            let _ = write!(
                text,
                "<splitter kind='{kind}' iportIndex='{port}'><attributes><attribute name='k'/></attributes></splitter>"
            );
        }
        let _ = write!(text, "</parallelOperator><parallelWidth>{width}</parallelWidth>{extra}</parallelRegion>");
    }

    /// The ADL document.
    pub fn adl(&self) -> String {
        let main = self.operators.len();
        let mut regions = String::new();
        for (number, region) in self.regions.iter().enumerate() {
            self.region(number, region, &mut regions);
        }
        let mut composites = String::new();
        self.contents("", &mut composites);
        format!(
            "<applicationSet xmlns='http://www.ibm.com/xmlns/prod/streams/application/v4200' \
             xmlns:tt='http://www.ibm.com/xmlns/prod/streams/spl/tupleType'>\n<splApplication name='Main' \
             applicationScope='Default' applicationDirectory='a' outputDirectory='o' buildId='' bundle='b' \
             productVersion='4.3.0.0' avoidRuntimeYield='auto'>\n<hostpools><hostpool index='0' name='$default' \
             membershipMode='shared'/>{}</hostpools><tupleTypes><tupleType index='0'><tuple><tt:attr name='i' \
             type='int32'/></tuple></tupleType></tupleTypes><primitiveOperDefinitions><primitiveOperDefinition \
             index='0' kind='k' runtimeType='SPL_CPlusPlus' toolkitIndex='0'/></primitiveOperDefinitions><toolkits>\
             <toolkit index='0' name='t' version='1'/></toolkits>\n<composites><sourceUris><uri index='0' \
             path='file:///Main.spl'/></sourceUris><compositeOperDefinitions>\
             <compositeOperDefinition index='0' kind='c'/></compositeOperDefinitions><compositeOperInstances>\
             <compositeOperInstance definitionIndex='0' index='{main}' name='Main' sourceIndex='0'>{}{composites}\
             </compositeOperInstance></compositeOperInstances></composites>\n<parallelRegions>{}</parallelRegions>\
             <submissionTimeValues>{}</submissionTimeValues></splApplication></applicationSet>",
            self.pools, self.main, regions, self.values
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
        let _ = write!(
            text,
            "\n<{element} definitionIndex='0' index='{index}' name='{name}' optimized='true' relocatable='true' \
             restartable='true' singleThreadedOnOutputs='true' sourceIndex='0' startLine='1' endLine='2' \
             {attributes}><inputPorts>"
        );
        let port = |number: usize, side: &str, rest: &str| {
            format!(
                "<port index='{number}' name='{side}{number}' tupleTypeIndex='0' encoding='LE' isMutable='true' \
                 transport='TCP' {rest}><connections>"
            )
        };
        for number in 0..leaf.inputs {
            let end = End { name: name.clone(), port: number };
            text.push_str(&port(number, "In", ""));
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
            text.push_str(&port(number, "Out", &format!("streamName='{stream}'")));
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
                "<resources>{resources}</resources><runtimeConstants/><sharedObject class='{class}'>\
                 <wrapper>none</wrapper><uri>u</uri></sharedObject>"
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
        let (index, End { name, port }) = (self.index(&far.name), far);
        let kind = if input { "input" } else { "output" };
        let _ =
            write!(text, "<connection operIndex='{index}' portIndex='{port}' portKind='{kind}' operName='{name}'/>");
    }
}
