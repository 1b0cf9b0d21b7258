//! Writes a topology as text, one line per region, pool, operator, port and connection, for people and for comparisons.

use super::{AnnotationValue, Connection, PhysicalOperator, Splitter, Topology};
use crate::logical::{Primitive, SplitterKind};
use std::fmt::{self, Formatter};

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut rest = self.connections.as_slice();
        for (node, operator) in &self.operators {
            let count = rest.iter().take_while(|connection| connection.source == node).count();
            let (own, others) = rest.split_at(count);
            rest = others;
            self.operator(f, operator, own)?;
        }
        writeln!(f, "app.parallelRegions:")?;
        for region in &self.regions {
            let (index, width, most) = (region.index, region.width, region.global_max);
            writeln!(f, "  {index} name={} lc=0 lmax={width} gc=0 gmax={most}", region.name)?;
        }
        writeln!(f, "app.hostpools:")?;
        for pool in &self.host_pools {
            let size = pool.size.map_or_else(|| "null".to_owned(), |size| size.to_string());
            let (tags, hosts) = (List(&pool.tags), List(&pool.hosts));
            writeln!(f, "  {} {} idx={} tags={tags} hosts={hosts} size={size}", pool.index, pool.name, pool.index)?;
        }
        Ok(())
    }
}

impl Topology {
    fn operator(&self, f: &mut Formatter<'_>, operator: &PhysicalOperator, connections: &[Connection]) -> fmt::Result {
        let logical = &self.application.operators[operator.logical];
        let PhysicalOperator { index, name, .. } = operator;
        write!(f, "node {index} logical={} name={name} lname={}", logical.index, logical.logical_name)?;
        for (at, channel) in operator.channels.iter().enumerate() {
            write!(f, "{}", if at == 0 { " regions=[" } else { ", " })?;
            let region = self.regions.iter().find(|region| region.index == channel.region);
            write!(f, "{}:{}", channel.region, region.map_or("", |region| region.name.as_str()))?;
            write!(f, "(lc={}/{} gc={}/{})", channel.local, channel.local_max, channel.global, channel.global_max)?;
        }
        if !operator.channels.is_empty() {
            f.write_str("]")?;
        }
        match &operator.resources.pool {
            Some(pool) => write!(f, " pool={}", pool.pool)?,
            None => f.write_str(" pool=null")?,
        }
        if let Some(host) = &operator.resources.host {
            write!(f, " host={host}")?;
        }
        let (resources, partition) = (&operator.resources, &operator.partition);
        write!(f, " coloc={} exloc={}", List(&resources.co_locations), List(&resources.ex_locations))?;
        write!(f, " pcoloc={} pexloc={}", List(&partition.co_locations), List(&partition.ex_locations))?;
        writeln!(f, " cc={}", operator.consistent_region.is_some())?;
        for (at, annotation) in operator.annotations.iter().enumerate() {
            f.write_str(if at == 0 { "    annots [" } else { ", " })?;
            f.write_str(&annotation.tag)?;
            values(f, &annotation.values)?;
        }
        if !operator.annotations.is_empty() {
            f.write_str("]\n")?;
        }
        let Some(primitive) = operator.primitive(&self.application) else { return Ok(()) };
        self.inputs(f, operator, primitive)?;
        for (position, (port, written)) in operator.outputs.iter().zip(&primitive.outputs).enumerate() {
            let (name, stream, logical) = (&written.port.name, &port.stream_name, &written.stream_name);
            write!(f, "    out{position} name={name} stream={stream} lstream={logical}")?;
            if let Some(export) = &port.export {
                write!(f, " export={}", export.operator_name)?;
                export.name.iter().try_for_each(|name| write!(f, " as {name}"))?;
                for property in export.properties.iter().flatten() {
                    write!(f, " {}:{}={}", property.name, property.r#type, List(&property.values))?;
                }
            }
            f.write_str("\n")?;
            tree(f, &port.splitters)?;
            for connection in connections.iter().filter(|connection| connection.source_port as usize == position) {
                let target = &self.operators[connection.target];
                write!(f, "      -> {}.in{}  ({})", target.index, connection.target_port, target.name)?;
                if let Some(via) = connection.via() {
                    write!(f, " via splitter {} ch {}", via.splitter, via.channel)?;
                }
                f.write_str("\n")?;
            }
        }
        Ok(())
    }

    fn inputs(&self, f: &mut Formatter<'_>, operator: &PhysicalOperator, primitive: &Primitive) -> fmt::Result {
        for (position, (port, written)) in operator.inputs.iter().zip(&primitive.inputs).enumerate() {
            let mergers: Vec<String> = port.mergers.iter().map(|m| format!("{}:r{}", m.index, m.region)).collect();
            write!(f, "    in{position} name={} mergers={}", written.port.name, List(&mergers))?;
            if written.threaded.is_some() {
                f.write_str(" threadedPort")?;
            }
            if let Some(imports) = &port.imports {
                for import in &imports.by_name {
                    let (application, scope) = (&import.application_name, &import.application_scope);
                    write!(f, " import={} {application}/{scope}/{}", import.operator_name, import.stream_name)?;
                }
                if let Some(import) = &imports.by_properties {
                    write!(f, " import={} {}/{}", import.operator_name, import.application_scope, import.subscription)?;
                }
                imports.filter.iter().try_for_each(|filter| write!(f, " filter={filter}"))?;
            }
            f.write_str("\n")?;
        }
        Ok(())
    }
}

/// Writes splitters, each with its channels and nested splitters. It uses a stack of its own, because a tree may be
/// deep.
fn tree(f: &mut Formatter<'_>, splitters: &[Splitter]) -> fmt::Result {
    enum Line<'a> {
        Splitter(&'a Splitter, usize),
        Channel(&'a Splitter, u32, usize),
    }
    let mut stack: Vec<Line<'_>> = splitters.iter().rev().map(|splitter| Line::Splitter(splitter, 6)).collect();
    while let Some(line) = stack.pop() {
        match line {
            Line::Splitter(splitter, indent) => {
                let Splitter { index, input_port, region, .. } = splitter;
                let kind = match splitter.kind {
                    SplitterKind::RoundRobin => "RoundRobin",
                    SplitterKind::Hash => "Hash",
                    SplitterKind::Broadcast => "Broadcast",
                };
                let (drop, attributes) = (splitter.drop_window_punctuation, List(&splitter.attributes));
                write!(f, "{:indent$}splitter#{index} iport={input_port} kind={kind} region={region}", "")?;
                writeln!(f, " dropPuncts={drop} attrs={attributes}")?;
                stack.extend((0..splitter.width).rev().map(|channel| Line::Channel(splitter, channel, indent + 2)));
            }
            Line::Channel(splitter, channel, indent) => {
                writeln!(f, "{:indent$}ch{channel}", "")?;
                let start = splitter.nested.partition_point(|(other, _)| *other < channel);
                let below = splitter.nested.iter().skip(start).take_while(|(other, _)| *other == channel);
                let below: Vec<&Splitter> = below.map(|(_, nested)| nested).collect();
                stack.extend(below.into_iter().rev().map(|nested| Line::Splitter(nested, indent + 2)));
            }
        }
    }
    Ok(())
}

fn values(f: &mut Formatter<'_>, all: &[(String, AnnotationValue)]) -> fmt::Result {
    f.write_str("[")?;
    for (at, (key, value)) in all.iter().enumerate() {
        f.write_str(if at == 0 { "" } else { ", " })?;
        write!(f, "{key}=")?;
        self::value(f, value)?;
    }
    f.write_str("]")
}

fn value(f: &mut Formatter<'_>, value: &AnnotationValue) -> fmt::Result {
    match value {
        AnnotationValue::Text(text) => write!(f, "\"{text}\""),
        AnnotationValue::Tuple(all) => values(f, all),
        AnnotationValue::List(list) => {
            f.write_str("[")?;
            for (at, entry) in list.iter().enumerate() {
                f.write_str(if at == 0 { "" } else { ", " })?;
                self::value(f, entry)?;
            }
            f.write_str("]")
        }
    }
}

/// Texts in brackets.
struct List<'a>(&'a [String]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.0.join(", "))
    }
}
