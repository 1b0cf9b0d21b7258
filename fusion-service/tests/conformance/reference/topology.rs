//! Expansion and resizes against the dumps of the reference implementation (corpus, `topology/`): operators, names,
//! channels, streams, splitters, mergers, connections, host pools, locations, annotations, imports, exports, and what a
//! resize changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use streams_compiler::budget::Budget;
use streams_compiler::logical::Application;
use streams_compiler::logical::submission::Bindings;
use streams_compiler::topology::{self, EvaluatedImports, Numbering, Parameters, Topology};
use streams_test_support::table::Set;

/// One state of a dump: its headline, and its lines.
struct Block {
    head: String,
    lines: Vec<String>,
}

fn blocks(dump: &str) -> (Vec<(String, i128)>, Vec<Block>) {
    let mut widths = Vec::new();
    let mut blocks: Vec<Block> = Vec::new();
    let mut on = false;
    for line in dump.lines() {
        if let Some((_, arguments)) = line.strip_prefix("# adl=").and_then(|rest| rest.split_once("args:")) {
            let initial = arguments.strip_prefix(' ').unwrap_or(arguments).split(' ').next().unwrap_or_default();
            widths = pairs(initial, ',');
        } else if line.starts_with("#####") {
            blocks.push(Block { head: line.to_owned(), lines: Vec::new() });
            on = true;
        } else if ["pe ", "widths", "PE diff", "CR ", "# "].iter().any(|start| line.starts_with(start)) {
            on = false;
        } else if let Some(block) = blocks.last_mut().filter(|_| on)
            && !["DIFFCHECK", "   want", "   got"].iter().any(|start| line.starts_with(start))
        {
            block.lines.push(line.trim_end().to_owned());
        }
    }
    (widths, blocks)
}

/// `a=1,b=2`
fn pairs(text: &str, separator: char) -> Vec<(String, i128)> {
    let pair = |pair: &str| {
        let (name, width) = pair.trim().split_once('=')?;
        Some((name.to_owned(), width.parse().ok()?))
    };
    text.split(separator).filter_map(pair).collect()
}

/// A dump in the form that both sides have: sets sorted, what later stages add left out.
fn normalised(lines: &[String]) -> Vec<String> {
    let mut normalised = Vec::new();
    for line in lines {
        let mut line = line.clone();
        if line.starts_with("node") {
            for key in [" coloc=[", " exloc=[", " pcoloc=[", " pexloc=["] {
                line = sorted(&line, key);
            }
            // The reference implementation's own view of consistent regions for fusion (rule expansion-29).
            if let (Some(from), Some(to)) = (line.find(" soft={"), line.find(" cc=")) {
                line.replace_range(from..to, "");
            }
        }
        // Fusion of the reference implementation injects threaded ports, and they stay over resizes (rule element-13).
        line = line.trim_end_matches(" threadedPort").to_owned();
        if line.contains(" idx=") {
            line = sorted(&line, " tags=[");
        }
        normalised.push(line.trim_end().to_owned());
    }
    normalised
}

fn sorted(line: &str, key: &str) -> String {
    let Some(from) = line.find(key).map(|at| at + key.len()) else { return line.to_owned() };
    // Ids may hold brackets themselves.
    let end = [" exloc=[", " pcoloc=[", " pexloc=[", " soft=", " cc=", " hosts="];
    let to = end.iter().filter_map(|end| line[from..].find(end)).min().map_or(line.len(), |at| from + at);
    let mut entries: Vec<&str> = line[from..to].trim_end_matches(']').split(", ").collect();
    entries.retain(|entry| !entry.starts_with("StreamsIUO_"));
    entries.sort_unstable();
    format!("{}{}]{}", &line[..from], entries.join(", "), &line[to..])
}

/// Our print in the notation of the dumps.
fn printed(topology: &Topology) -> Vec<String> {
    let mut imports: BTreeMap<(u32, usize), &EvaluatedImports> = BTreeMap::new();
    let mut exports: BTreeMap<(u32, usize), &topology::EvaluatedExport> = BTreeMap::new();
    for operator in topology.operators.values() {
        for (position, port) in operator.inputs.iter().enumerate() {
            imports.extend(port.imports.as_deref().map(|found| ((operator.index, position), found)));
        }
        for (position, port) in operator.outputs.iter().enumerate() {
            exports.extend(port.export.as_deref().map(|found| ((operator.index, position), found)));
        }
    }
    let mut node = 0;
    let mut lines = Vec::new();
    for line in topology.to_string().lines() {
        let mut line = line.to_owned();
        if let Some(rest) = line.strip_prefix("node ") {
            node = rest.split(' ').next().unwrap().parse().unwrap();
        }
        let port = |start: &str| line.strip_prefix(start)?.split(' ').next()?.parse::<usize>().ok();
        if let Some(found) = port("    in").and_then(|port| imports.get(&(node, port))) {
            line = format!("{} IMPORT {}", &line[..line.find(" import=").unwrap()], import(found));
        } else if let Some(found) = port("    out").and_then(|port| exports.get(&(node, port))) {
            line = format!("{} EXPORT {}", &line[..line.find(" export=").unwrap()], export(found));
        }
        lines.push(line.trim_end().to_owned());
    }
    lines
}

fn import(imports: &EvaluatedImports) -> String {
    let filter = imports.filter.as_ref().map(|filter| format!(" filter=\"{filter}\"")).unwrap_or_default();
    let mut text = format!("<importedStreams{filter}> ");
    for import in &imports.by_name {
        text += &format!(
            "<nameBasedImport importOperName=\"{}\" streamName=\"{}\" applicationName=\"{}\" applicationScope=\"{}\"/> ",
            import.operator_name, import.stream_name, import.application_name, import.application_scope
        );
    }
    if let Some(import) = &imports.by_properties {
        text += &format!(
            "<propertyBasedImport index=\"{}\" importOperName=\"{}\" subscription=\"{}\" applicationScope=\"{}\"/> ",
            import.index, import.operator_name, import.subscription, import.application_scope
        );
    }
    text + "</importedStreams>"
}

fn export(export: &topology::EvaluatedExport) -> String {
    let policy = if export.drop_connection { "dropConnection" } else { "wait" };
    let name = export.name.as_ref().map(|name| format!(" name=\"{name}\"")).unwrap_or_default();
    let head = format!(
        "<exportedStream exportOperName=\"{}\" allowFilter=\"{}\" congestionPolicy=\"{policy}\"{name}",
        export.operator_name, export.allow_filter
    );
    let Some(properties) = &export.properties else { return format!("{head}/>") };
    let mut text = format!("{head}> <streamProperties> ");
    for property in properties {
        text += &format!("<streamProperty name=\"{}\" type=\"{}\"> ", property.name, property.r#type);
        property.values.iter().for_each(|value| text += &format!("<value>{value}</value> "));
        text += "</streamProperty> ";
    }
    text + "</streamProperties> </exportedStream>"
}

fn expand(application: &Arc<Application>, widths: &[(String, i128)]) -> Topology {
    let bindings: Bindings =
        streams_compiler::logical::submission::bind(application, &BTreeMap::new()).expect("values bind");
    let parameters = Parameters { bindings, widths: widths.to_vec(), ..Parameters::default() };
    let topology = topology::expand(application, &parameters, &Budget::default()).expect("expands");
    topology::verify(&topology).expect("is sound");
    topology
}

/// What the reference implementation says otherwise, and what we say instead.
fn corrected(file: &str, head: &str, line: &str) -> Option<&'static str> {
    let (shows, why) = match file {
        "T.txt" => (
            line.contains("threading["),
            "every channel of a parallel composite has the composite's threading model (rule expansion-21)",
        ),
        "N4.txt" => (
            line.contains("IMPORT <importedStreams"),
            "an import without filter does not clear the filter of another one on the port (rule expansion-26)",
        ),
        _ => (
            head.contains("resize") && line.contains(" idx="),
            "exactly the host pools of the current widths are there (rule expansion-25)",
        ),
    };
    shows.then_some(why)
}

fn compare(file: &str, head: &str, ours: &[String], theirs: &[String]) -> Vec<String> {
    let keep = |lines: &[String]| -> Vec<String> {
        normalised(lines).into_iter().filter(|line| corrected(file, head, line).is_none()).collect()
    };
    let (ours, theirs) = (keep(ours), keep(theirs));
    let differing =
        ours.iter().zip(&theirs).filter(|(a, b)| a != b).map(|(a, b)| format!("  ours   {a}\n  theirs {b}"));
    let mut differences: Vec<String> = differing.take(5).collect();
    if ours.len() != theirs.len() {
        differences.push(format!("  {} lines instead of {}", ours.len(), theirs.len()));
    }
    differences
}

/// Topologies are those of the reference implementation, at a submission and after resizes.
pub(crate) fn topologies(corpus: &Path) -> Set {
    let mut set = Set::new("topologies and resizes of them");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(corpus.join("topology")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    for path in files {
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let dump = std::fs::read_to_string(&path).unwrap();
        let adl = dump.lines().find_map(|line| line.strip_prefix("# adl=")?.split(' ').next()).unwrap();
        let place = ["topology", "samples"].iter().map(|folder| corpus.join(folder).join(adl));
        let document = std::fs::read(place.into_iter().find(|path| path.is_file()).unwrap()).unwrap();
        let application = Arc::new(streams_compiler::adl::parse(&document, &Budget::default()).expect("parses"));
        let (mut widths, blocks) = blocks(&dump);
        for block in blocks {
            let ours = match block.head.strip_prefix("##### resize ") {
                None => printed(&expand(&application, &widths)),
                Some(rest) => {
                    let region = rest.split(' ').next().unwrap();
                    let next = pairs(rest.split_once("-> {").unwrap().1.trim_end_matches('}'), ',');
                    let prior = expand(&application, &widths);
                    let fresh = expand(&application, &next);
                    widths = next;
                    assert!(topology::find_region(&fresh.regions, region).is_ok());
                    let result = topology::relabel(fresh, &Numbering::of(&prior));
                    let difference =
                        topology::difference(&prior, &result, &Budget::default()).expect("the budget never ends");
                    topology::verify(&result).expect("is sound");
                    let list = |names: &[String]| format!("[{}]", names.join(", "));
                    let mut lines = vec![
                        format!("changed={}", list(&difference.changed)),
                        format!("added={}", list(&difference.added)),
                        format!("removed={}", list(&difference.removed)),
                    ];
                    lines.extend(printed(&result));
                    lines
                }
            };
            let name = format!("{file} {}", block.head);
            let differences = compare(&file, &block.head, &ours, &block.lines);
            set.add(&name, (!differences.is_empty()).then(|| differences.join("\n")));
            let (ours, theirs) = (normalised(&ours), normalised(&block.lines));
            let differing = theirs.iter().filter(|line| !ours.contains(line));
            for why in differing.filter_map(|line| corrected(&file, &block.head, line)) {
                set.correct(why, &file);
            }
        }
    }
    set
}
