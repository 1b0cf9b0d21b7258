//! Small applications as ADL: operators and composites in a row or fanned out, any of them a parallel region.

use proptest::prelude::*;
use std::fmt::Write as _;

/// An operator or composite of the main composite, or of another one.
#[derive(Clone, Debug, Default)]
pub(super) struct Item {
    /// Name; unique within its composite.
    pub(super) name: String,
    /// Width, if it is a parallel region.
    pub(super) width: Option<u32>,
    /// Kind of the splitter in front of it.
    pub(super) kind: &'static str,
    /// Which items before it, in the same composite, feed it; -1 is the input of the composite.
    pub(super) from: Vec<isize>,
    /// What it contains, if it is a composite.
    pub(super) inside: Vec<Item>,
    /// XML inside `partitions`.
    pub(super) partitions: String,
    /// XML inside `resources`.
    pub(super) resources: String,
    /// XML inside `envVars`.
    pub(super) environment: String,
    /// XML of annotations.
    pub(super) annotations: String,
}

/// An operator fed by the item before it.
pub(super) fn operator(name: &str) -> Item {
    Item { name: name.to_owned(), kind: "RoundRobin", from: vec![], ..Item::default() }
}

impl Item {
    pub(super) fn from(mut self, items: &[isize]) -> Self {
        self.from = items.to_vec();
        self
    }

    pub(super) fn parallel(mut self, width: u32) -> Self {
        self.width = Some(width);
        self
    }

    pub(super) fn hash(mut self) -> Self {
        self.kind = "Hash";
        self
    }

    pub(super) fn partitions(mut self, xml: &str) -> Self {
        xml.clone_into(&mut self.partitions);
        self
    }

    pub(super) fn resources(mut self, xml: &str) -> Self {
        xml.clone_into(&mut self.resources);
        self
    }

    pub(super) fn environment(mut self, xml: &str) -> Self {
        xml.clone_into(&mut self.environment);
        self
    }

    pub(super) fn annotations(mut self, xml: &str) -> Self {
        xml.clone_into(&mut self.annotations);
        self
    }
}

/// A row: each operator feeds the next.
pub(super) fn row(items: Vec<Item>) -> Vec<Item> {
    let link = |(at, item): (usize, Item)| match item.from.is_empty() && at > 0 {
        true => item.from(&[at as isize - 1]),
        false => item,
    };
    items.into_iter().enumerate().map(link).collect()
}

/// One end of a connection.
#[derive(Clone, Copy)]
struct End {
    operator: usize,
    kind: &'static str,
}

/// Indexes: primitives first, in order of appearance, then composites; the last one is the main composite.
struct Writer {
    primitives: usize,
    composites: usize,
    regions: String,
    region_count: usize,
}

/// The document. The main composite has the items; host pool 1 has the tag `gpu`.
pub(super) fn document(items: &[Item]) -> String {
    document_with(items, "")
}

/// The same with annotations on the main composite.
pub(super) fn document_with(items: &[Item], annotations: &str) -> String {
    let count = count_primitives(items);
    let mut writer = Writer { primitives: 0, composites: count, regions: String::new(), region_count: 0 };
    let body = writer.items(items, "", None);
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<applicationSet xmlns="http://www.ibm.com/xmlns/prod/streams/application/v4200" xmlns:tt="http://www.ibm.com/xmlns/prod/streams/spl/tupleType" name="t.appset">
<splApplication applicationDirectory="toolkits/t" applicationScope="Default" avoidRuntimeYield="auto" buildId="b" bundle="./t.sab" name="t::Main" outputDirectory="output" productVersion="4.3.0.0" version="1.0.0">
<libraries/><hostpools><hostpool index="0" membershipMode="shared" name="$default"/><hostpool index="1" membershipMode="shared" name="Gpus"><tag name="gpu"/></hostpool></hostpools>
<tupleTypes><tupleType index="0"><attribute name="i" type="uint64"/><tuple><tt:attr name="i" type="uint64"/></tuple></tupleType></tupleTypes>
<primitiveOperDefinitions><primitiveOperDefinition index="0" kind="spl.utility::Custom" runtimeType="SPL_CPlusPlus" toolkitIndex="0"/></primitiveOperDefinitions>
<composites><sourceUris><uri index="0" path="file:///t.spl"/></sourceUris><compositeOperDefinitions><compositeOperDefinition index="0" kind="t::Main" numberOfInputPorts="0" numberOfOutputPorts="0" sourceIndex="0" startLine="1" endLine="9" toolkitIndex="0"/></compositeOperDefinitions>
<compositeOperInstances><compositeOperInstance definitionIndex="0" index="{main}" name="t::Main" sourceIndex="0" startLine="1" endLine="9">{annotations}{body}</compositeOperInstance></compositeOperInstances></composites>
<toolkits><toolkit index="0" name="t" uri="file:///t" version="1.0.0"/></toolkits>
<parallelRegions>{regions}</parallelRegions>
</splApplication>
</applicationSet>"#,
        main = writer.composites,
        regions = writer.regions,
    )
}

fn count_primitives(items: &[Item]) -> usize {
    items.iter().map(|item| if item.inside.is_empty() { 1 } else { count_primitives(&item.inside) }).sum()
}

fn connections(element: &str, ends: &[End]) -> String {
    let mut xml = format!("<{element}>");
    for End { operator, kind } in ends {
        let _ = write!(xml, r#"<connection operIndex="{operator}" operName="x" portIndex="0" portKind="{kind}"/>"#);
    }
    let _ = write!(xml, "</{element}>");
    xml
}

impl Writer {
    /// XML of the items of one composite: composites, then primitives.
    fn items(&mut self, items: &[Item], prefix: &str, owner: Option<usize>) -> String {
        // Indexes first, so that connections can name them.
        let mut own = Vec::with_capacity(items.len());
        for item in items {
            if item.inside.is_empty() {
                own.push(self.primitives);
                self.primitives += 1;
            } else {
                own.push(self.composites);
                self.composites += 1;
            }
        }
        let last = items.len() - 1;
        let (mut composites, mut primitives) = (String::new(), String::new());
        for (at, item) in items.iter().enumerate() {
            let index = own[at];
            let name = if prefix.is_empty() { item.name.clone() } else { format!("{prefix}.{}", item.name) };
            let source = |&from: &isize| match usize::try_from(from) {
                Ok(before) => Some(End { operator: own[before], kind: "output" }),
                Err(_) => owner.map(|operator| End { operator, kind: "input" }),
            };
            let incoming: Vec<End> = item.from.iter().filter_map(source).collect();
            let mut outgoing: Vec<End> = (items.iter().enumerate())
                .filter(|(_, other)| other.from.contains(&(at as isize)))
                .map(|(other, _)| End { operator: own[other], kind: "input" })
                .collect();
            if at == last
                && let Some(operator) = owner
            {
                outgoing.push(End { operator, kind: "output" });
            }
            if let Some(width) = item.width {
                let (number, kind) = (self.region_count, item.kind);
                let attributes = if kind == "Hash" { r#"<attributes><attribute name="i"/></attributes>"# } else { "" };
                let splitter = if incoming.is_empty() {
                    String::new()
                } else {
                    format!(r#"<splitter iportIndex="0" kind="{kind}">{attributes}</splitter>"#)
                };
                let _ = write!(
                    self.regions,
                    r#"<parallelRegion index="{number}" name="{name}"><parallelOperator operIndex="{index}">{splitter}</parallelOperator><parallelWidth><constantWidth>{width}</constantWidth></parallelWidth><replicateHostTag name="gpu"/></parallelRegion>"#
                );
                self.region_count += 1;
            }
            if item.inside.is_empty() {
                primitives.push_str(&primitive(item, index, &name, &incoming, &outgoing));
                continue;
            }
            // Inside: what takes the composite's input, and its last item, which feeds the composite's output.
            let inner = Self { regions: String::new(), ..*self };
            let mut inner = inner;
            let body = inner.items(&item.inside, &name, Some(index));
            let (first_primitive, first_composite) = (self.primitives, self.composites);
            let end = |inner_at: usize, kind: &'static str| {
                let composites_before = item.inside[..inner_at].iter().filter(|i| !i.inside.is_empty()).count();
                let primitives_before = inner_at - composites_before;
                let operator = if item.inside[inner_at].inside.is_empty() {
                    first_primitive + primitives_before
                } else {
                    first_composite + composites_before
                };
                End { operator, kind }
            };
            let heads: Vec<End> = (item.inside.iter().enumerate())
                .filter(|(_, inside)| inside.from.contains(&-1))
                .map(|(inner_at, _)| end(inner_at, "input"))
                .collect();
            let tail = [end(item.inside.len() - 1, "output")];
            self.regions.push_str(&inner.regions);
            (self.primitives, self.composites, self.region_count) =
                (inner.primitives, inner.composites, inner.region_count);
            let _ = write!(
                composites,
                r#"<compositeOperInstance definitionIndex="0" index="{index}" name="{name}" sourceIndex="0" startLine="1" endLine="9"><inputPorts><port index="0">{}{}</port></inputPorts><outputPorts><port index="0">{}{}</port></outputPorts>{body}</compositeOperInstance>"#,
                connections("incomingConnections", &incoming),
                connections("outgoingConnections", &heads),
                connections("incomingConnections", &tail),
                connections("outgoingConnections", &outgoing),
            );
        }
        composites + &primitives
    }
}

fn primitive(item: &Item, index: usize, name: &str, incoming: &[End], outgoing: &[End]) -> String {
    let input = if incoming.is_empty() {
        String::new()
    } else {
        format!(
            r#"<inputPorts><port encoding="LE" index="0" isMutable="false" name="In" transport="TCP" tupleTypeIndex="0">{}</port></inputPorts>"#,
            connections("connections", incoming)
        )
    };
    let output = if outgoing.is_empty() {
        String::new()
    } else {
        format!(
            r#"<outputPorts><port encoding="LE" index="0" isMutable="true" name="Out" streamName="{name}" transport="TCP" tupleTypeIndex="0">{}</port></outputPorts>"#,
            connections("connections", outgoing)
        )
    };
    let Item { partitions, resources, environment, annotations, .. } = item;
    let resources = if resources.is_empty() { r#"<poolLocation poolIndex="0"/>"# } else { resources };
    let partitions =
        if partitions.is_empty() { String::new() } else { format!("<partitions>{partitions}</partitions>") };
    format!(
        r#"<primitiveOperInstance definitionIndex="0" index="{index}" name="{name}" optimized="true" relocatable="true" restartable="true" singleThreadedOnOutputs="true" sourceIndex="0" startLine="1" endLine="2">{annotations}{input}{output}<envVars>{environment}</envVars>{partitions}<resources>{resources}</resources><runtimeConstants/><sharedObject class="{name}"><wrapper>none</wrapper><uri>bin/{name}.so</uri></sharedObject><tracing level="error"/></primitiveOperInstance>"#
    )
}

/// Any small application: up to two levels of composites, regions anywhere but on sources, several connections.
pub(super) fn any_application() -> impl Strategy<Value = Vec<Item>> {
    let leaf = || {
        (prop::option::of(1..4_u32), any::<bool>(), any::<u8>()).prop_map(|(width, hash, seed)| {
            let item = Item { width, from: vec![isize::from(seed)], ..operator("") };
            if hash { item.hash() } else { item }
        })
    };
    let composite = (prop::collection::vec(leaf(), 1..4), prop::option::of(1..4_u32), any::<u8>()).prop_map(
        |(inside, width, seed)| Item {
            width,
            from: vec![isize::from(seed)],
            inside: linked(inside, true),
            ..operator("")
        },
    );
    let nested = (prop::collection::vec(prop_oneof![leaf(), composite], 1..4), prop::option::of(1..3_u32), any::<u8>())
        .prop_map(|(inside, width, seed)| Item {
            width,
            from: vec![isize::from(seed)],
            inside: linked(inside, true),
            ..operator("")
        });
    prop::collection::vec(prop_oneof![3 => leaf(), 2 => nested], 2..6).prop_map(|mut items| {
        let mut source = operator("");
        source.from = Vec::new();
        items.insert(0, source);
        linked(items, false)
    })
}

/// Names the items and turns their random numbers into connections from earlier items.
fn linked(items: Vec<Item>, in_composite: bool) -> Vec<Item> {
    let link = |(at, mut item): (usize, Item)| {
        item.name = format!("O{at}");
        let seed = item.from.first().copied().unwrap_or(0);
        item.from = match (at, in_composite) {
            (0, true) => vec![-1],
            (0, false) => Vec::new(),
            _ => {
                let at = at as isize;
                let mut from = vec![at - 1];
                // Now and then a second connection, from somewhere earlier.
                if seed % 3 == 0 && seed % at != at - 1 {
                    from.push(seed % at);
                }
                from
            }
        };
        item
    };
    items.into_iter().enumerate().map(link).collect()
}
