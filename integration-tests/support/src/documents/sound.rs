//! Soundness of a step: what must hold between its documents, whatever the expected result is.
//!
//! Every operator is in one PE, once per combination of channels of the regions around it. Every connection is listed
//! at both ends, with the same splitter and channel, as inside or outside of a PE as its ends are. A splitter has one
//! channel per channel of its region and leads to that channel's operators. PE ports, static connections and port
//! references agree with each other and with the connections. The context says the same as the documents.

use super::context;
use super::step::Step;
use super::tree::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// One end of every connection: (from, port, to, port) -> splitter and channel.
type Ends = BTreeMap<(u64, u64, u64, u64), (String, String)>;

/// What is wrong with the step in this folder.
pub fn problems(folder: &Path) -> Vec<String> {
    if folder.join("error.json").exists() {
        return vec!["the step failed".to_owned()];
    }
    match Step::read(folder) {
        Ok(step) => of(&step),
        Err(problem) => vec![problem],
    }
}

/// What is wrong with a step that was read.
pub fn of(step: &Step) -> Vec<String> {
    let mut check = Check { step, problems: step.problems.clone(), needed: BTreeMap::new() };
    let (into, out_of) = (check.inputs(), check.outputs());
    if into != out_of {
        let differ = |a: &Ends, b: &Ends| a.iter().find(|(key, via)| b.get(key) != Some(via)).map(|(key, _)| *key);
        let (at_end, at_beginning) = (differ(&into, &out_of), differ(&out_of, &into));
        check.problems.push(format!("connections differ at their ends: {at_end:?} {at_beginning:?}"));
    }
    check.channels();
    check.ports();
    check.context();
    check.problems
}

struct Check<'s> {
    step: &'s Step,
    problems: Vec<String>,
    /// Peers that a PE port must have: (PE, what it stands for) -> the same of the peers.
    needed: BTreeMap<(u64, String), BTreeSet<String>>,
}

fn via(node: &Node) -> (String, String) {
    let part = |name| node.get(name).unwrap_or("-").to_owned();
    (part("splitterIndex"), part("channelIndex"))
}

fn number(node: &Node, name: &str) -> u64 {
    node.number(name).unwrap_or(u64::MAX)
}

fn is_connection(node: &Node) -> bool {
    matches!(node.tag.as_str(), "app:interPeConnection" | "app:intraPeConnection")
}

impl Check<'_> {
    fn inputs(&mut self) -> Ends {
        let mut ends = Ends::new();
        for (&pe, root) in &self.step.documents {
            for operator in root.all("app:operInstance") {
                let index = number(operator, "index");
                for port in operator.list("app:inputPorts") {
                    for end in port.children.iter().filter(|child| is_connection(child)) {
                        let key =
                            (number(end, "operInstanceIndex"), number(end, "oportIndex"), index, number(port, "index"));
                        if ends.insert(key, via(end)).is_some() {
                            self.problems.push(format!("connection {key:?} is there twice"));
                        }
                        let (splitter, channel) = via(end);
                        let mine = format!("input {index}.{}", number(port, "index"));
                        let peer = format!("output {}.{} s{splitter} c{channel}", key.0, key.1);
                        self.place(pe, end, mine, &peer);
                    }
                }
            }
        }
        ends
    }

    fn outputs(&mut self) -> Ends {
        let mut ends = Ends::new();
        for (&pe, root) in &self.step.documents {
            for operator in root.all("app:operInstance") {
                let index = number(operator, "index");
                for port in operator.list("app:outputPorts") {
                    let direct = ("-".to_owned(), "-".to_owned());
                    self.leaves(pe, (index, number(port, "index")), port, direct, &[], &mut ends);
                }
            }
        }
        ends
    }

    /// Connections below a port or a channel.
    fn leaves(
        &mut self,
        pe: u64,
        from: (u64, u64),
        node: &Node,
        via: (String, String),
        channels: &[(u64, u64)],
        ends: &mut Ends,
    ) {
        for child in &node.children {
            if is_connection(child) {
                let (to, port) = (number(child, "operInstanceIndex"), number(child, "iportIndex"));
                let key = (from.0, from.1, to, port);
                if ends.insert(key, via.clone()).is_some() {
                    self.problems.push(format!("connection {key:?} begins twice"));
                }
                let mine = format!("output {}.{} s{} c{}", from.0, from.1, via.0, via.1);
                self.place(pe, child, mine, &format!("input {to}.{port}"));
                self.channel(to, channels);
            } else if child.tag == "app:splitter" {
                let region = number(child, "regionIndex");
                let own = child.children.iter().filter(|inner| inner.tag == "app:parallelChannel");
                let listed: Vec<u64> = own.clone().map(|channel| number(channel, "index")).collect();
                let width = self.width(region);
                if !listed.iter().copied().eq(0..width.unwrap_or(0)) {
                    self.problems.push(format!("a splitter of region {region} has channels {listed:?}, not {width:?}"));
                }
                for channel in own {
                    let number = number(channel, "index");
                    let via = (child.get("index").unwrap_or_default().to_owned(), number.to_string());
                    let channels: Vec<(u64, u64)> = channels.iter().copied().chain([(region, number)]).collect();
                    self.leaves(pe, from, channel, via, &channels, ends);
                }
            }
        }
    }

    fn width(&self, region: u64) -> Option<u64> {
        let regions = context::list(&self.step.context, "parallelRegions");
        regions.iter().find(|r| r["index"].as_u64() == Some(region))?["width"].as_u64()
    }

    /// An operator behind a channel of a splitter is in that channel.
    fn channel(&mut self, operator: u64, channels: &[(u64, u64)]) {
        let Some(root) = self.step.owner.get(&operator).and_then(|pe| self.step.documents.get(pe)) else { return };
        let found = root.list("aug:operInstances").iter().find(|o| number(o, "index") == operator);
        let own: BTreeMap<u64, u64> = (found.map_or(&[][..], |found| found.list("phy:parallelRegions")).iter())
            .map(|region| (number(region, "regionIndex"), number(region, "localChannelIndex")))
            .collect();
        for (region, channel) in channels {
            if own.get(region).is_some_and(|own| own != channel) {
                self.problems.push(format!("channel {channel} of region {region} leads to operator {operator}"));
            }
        }
    }

    /// Inside or outside, and the PE ports that it needs.
    fn place(&mut self, pe: u64, end: &Node, mine: String, peer: &str) {
        let other = self.step.owner.get(&number(end, "operInstanceIndex")).copied();
        let inter = end.tag == "app:interPeConnection";
        if (other != Some(pe)) != inter {
            self.problems.push(format!("PE {pe}, {mine}: a connection to PE {other:?} is {}", end.tag));
        }
        if inter {
            let peer = format!("pe-{} {peer}", other.unwrap_or(u64::MAX));
            if end.get("pePortIndex") != Some(peer.as_str()) {
                self.problems.push(format!("PE {pe}, {mine}: pePortIndex leads to {:?}", end.get("pePortIndex")));
            }
            self.needed.entry((pe, mine)).or_default().insert(peer);
        }
    }

    /// All channels of an operator exist, each once.
    fn channels(&mut self) {
        let mut operators: BTreeMap<u64, Vec<Vec<(u64, u64)>>> = BTreeMap::new();
        for root in self.step.documents.values() {
            for operator in root.list("aug:operInstances") {
                let regions = operator.list("phy:parallelRegions").iter();
                let channels = regions.map(|r| (number(r, "regionIndex"), number(r, "localChannelIndex")));
                operators.entry(number(operator, "logicalIndex")).or_default().push(channels.collect());
            }
        }
        for (logical, mut copies) in operators {
            copies.sort_unstable();
            let all = copies.len();
            copies.dedup();
            let regions: BTreeSet<Vec<u64>> = copies.iter().map(|c| c.iter().map(|(r, _)| *r).collect()).collect();
            let expected: u64 =
                regions.first().into_iter().flatten().map(|region| self.width(*region).unwrap_or(0)).product();
            if regions.len() != 1 || copies.len() != all || all as u64 != expected {
                self.problems.push(format!("operator {logical} of the ADL: {all} channels instead of {expected}"));
            }
        }
    }

    fn ports(&mut self) {
        let mut seen = BTreeSet::new();
        for (&pe, root) in &self.step.documents {
            for (tag, id) in [("aug:inputPort", "oportId"), ("aug:outputPort", "iportId")] {
                for port in root.all(tag) {
                    let name = port.get("id").unwrap_or_default();
                    let key = (pe, name.split_once(' ').map_or("", |(_, port)| port).to_owned());
                    let peers: Vec<String> = (port.all("aug:staticConnection").iter())
                        .map(|peer| peer.get(id).unwrap_or_default().to_owned())
                        .collect();
                    let distinct: BTreeSet<String> = peers.iter().cloned().collect();
                    if distinct.len() != peers.len() || self.needed.get(&key).cloned().unwrap_or_default() != distinct {
                        self.problems.push(format!("PE {pe}, {name}: static connections to {distinct:?}"));
                    }
                    let imports = port.child("aug:importedStreams");
                    let dynamic = imports.is_some_and(|i| !i.children.is_empty() || !i.attributes.is_empty())
                        || port.child("aug:exportedStream").is_some();
                    if peers.is_empty() && !dynamic {
                        self.problems.push(format!("PE {pe}, {name}: a port without connections"));
                    }
                    if port.get("peId") != Some(&pe.to_string()) {
                        self.problems.push(format!("PE {pe}, {name}: peId is {:?}", port.get("peId")));
                    }
                    seen.insert(key);
                }
            }
        }
        for key in self.needed.keys().filter(|key| !seen.contains(*key)) {
            self.problems.push(format!("PE {} has no port {}", key.0, key.1));
        }
    }

    fn context(&mut self) {
        self.problems.extend(context::own(self.step, None));
        let mut operators: BTreeMap<u64, BTreeSet<(u64, String)>> = BTreeMap::new();
        for (name, (index, pe)) in self.step.operators() {
            operators.entry(pe).or_default().insert((index, name));
        }
        for pe in context::list(&self.step.context, "pes") {
            let own = pe["id"].as_u64().and_then(|id| operators.get(&id)).cloned().unwrap_or_default();
            let names: BTreeSet<&str> = own.iter().map(|(_, name)| name.as_str()).collect();
            let said: BTreeSet<&str> = context::list(pe, "operators").iter().filter_map(|name| name.as_str()).collect();
            let indexes = own.iter().map(|(index, _)| Some(*index));
            if names != said || !context::list(pe, "operatorIndexes").iter().map(|i| i.as_u64()).eq(indexes) {
                self.problems.push(format!("context.json: operators of PE {}", pe["id"]));
            }
        }
    }
}
