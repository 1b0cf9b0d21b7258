//! The PEs of a job in its parallel regions, as a tree or for Graphviz.
//!
//! The objects say where an operator is: its name has the regions around it and its channel in each, counted over all
//! channels of the regions around (`Score[1].Model[3].Filter`). Who sends to whom they do not say: `fusion-service
//! graph` draws that from the ADL.

use super::lists::listed;
use super::named::named;
use super::options::{GraphFormat, GraphOptions};
use super::status::phase;
use super::words::{one_line, unseen};
use kube::api::ListParams;
use kube::{Client, ResourceExt as _};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use streams_api::{Job, ProcessingElement, names};

/// Operators that are named of a PE.
const OPERATORS: usize = 3;

/// A channel of a region, or the job: the PEs that are in it as a whole and in none of its channels, and its channels.
#[derive(Default)]
struct Place<'a> {
    pes: Vec<&'a ProcessingElement>,
    channels: BTreeMap<(String, u32), Place<'a>>,
}

/// Prints the job.
pub(crate) async fn show(client: Client, namespace: &str, options: &GraphOptions) -> anyhow::Result<()> {
    let name = &options.job;
    let job: Job = named(&client, namespace, "job", name).await?;
    let of_job = ListParams::default().labels(&format!("{}={name}", names::LABEL_JOB));
    let pes = listed(&client, namespace, &of_job, |_: &ProcessingElement| true).await?;
    let text = match options.output {
        GraphFormat::Tree => tree(&job, &pes),
        GraphFormat::Dot => dot(&job, &pes),
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// The channels that an operator is in, from the outside: names of regions without numbers, and numbers.
fn channels(operator: &str) -> Vec<(String, u32)> {
    let (mut found, mut name, mut rest) = (Vec::new(), String::new(), operator);
    while let Some((before, after)) = rest.split_once('[') {
        let Some((number, after)) = after.split_once(']') else { break };
        let Ok(number) = number.parse() else { break };
        name.push_str(before);
        found.push((name.clone(), number));
        rest = after;
    }
    found
}

/// Each PE at the innermost place that all operators which it names are in.
fn places(pes: &[ProcessingElement]) -> Place<'_> {
    let mut all = Place::default();
    let mut pes: Vec<&ProcessingElement> = pes.iter().collect();
    pes.sort_by_key(|pe| pe.spec.id);
    for pe in pes {
        let mut operators = pe.spec.operators.iter().map(|operator| channels(operator));
        let mut common = operators.next().unwrap_or_default();
        for other in operators {
            let same = common.iter().zip(&other).take_while(|(a, b)| a == b).count();
            common.truncate(same);
        }
        let mut place = &mut all;
        for channel in common {
            place = place.channels.entry(channel).or_default();
        }
        place.pes.push(pe);
    }
    all
}

/// A PE in words.
fn words(pe: &ProcessingElement) -> String {
    let state = phase(pe).map_or_else(|| "-".to_owned(), |phase| format!("{phase:?}"));
    let named: Vec<String> = pe.spec.operators.iter().take(OPERATORS).map(|name| one_line(name)).collect();
    let all = usize::try_from(pe.spec.operator_count).unwrap_or(usize::MAX).max(pe.spec.operators.len());
    let more = match all - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("PE {} {state}: {}{more}", pe.spec.id, named.join(", "))
}

fn title(job: &Job) -> String {
    let status = job.status.clone().unwrap_or_default();
    let generation = status.generation.map_or_else(String::new, |generation| format!(", generation {generation}"));
    match status.phase {
        Some(phase) => format!("{} {}{generation}", job.name_any(), phase.name()),
        None => format!("{}: {}", job.name_any(), unseen("job")),
    }
}

fn tree(job: &Job, pes: &[ProcessingElement]) -> String {
    let mut text = format!("{}\n", title(job));
    branches(&places(pes), "", &mut text);
    text
}

/// What is in a place, each line after what stands before it in all of them.
fn branches(place: &Place<'_>, before: &str, text: &mut String) {
    let mut left = place.pes.len() + place.channels.len();
    let mut fork = || {
        left -= 1;
        if left == 0 { ("└─ ", "   ") } else { ("├─ ", "│  ") }
    };
    for pe in &place.pes {
        let (fork, _) = fork();
        let _ = writeln!(text, "{before}{fork}{}", words(pe));
    }
    for ((region, channel), inner) in &place.channels {
        let (fork, below) = fork();
        let _ = writeln!(text, "{before}{fork}{}[{channel}]", one_line(region));
        branches(inner, &format!("{before}{below}"), text);
    }
}

fn dot(job: &Job, pes: &[ProcessingElement]) -> String {
    let mut text =
        format!("digraph {} {{\n  label={};\n  node [shape=box];\n", quoted(&job.name_any()), quoted(&title(job)));
    let mut clusters = 0;
    cluster(&places(pes), 1, &mut clusters, &mut text);
    text.push_str("}\n");
    text
}

fn cluster(place: &Place<'_>, depth: usize, clusters: &mut u32, text: &mut String) {
    let indent = "  ".repeat(depth);
    for pe in &place.pes {
        let _ = writeln!(text, "{indent}pe{} [label={}];", pe.spec.id, quoted(&words(pe)));
    }
    for ((region, channel), inner) in &place.channels {
        let _ = writeln!(text, "{indent}subgraph cluster_{clusters} {{");
        *clusters += 1;
        let _ = writeln!(text, "{indent}  label={};", quoted(&format!("{region}[{channel}]")));
        cluster(inner, depth + 1, clusters, text);
        let _ = writeln!(text, "{indent}}}");
    }
}

/// A string of DOT.
fn quoted(text: &str) -> String {
    format!("\"{}\"", one_line(text).replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use streams_api::ProcessingElementSpec;

    fn pe(id: u64, phase: &str, operators: &[&str]) -> ProcessingElement {
        let operators: Vec<String> = operators.iter().map(|name| (*name).to_owned()).collect();
        let operator_count = u32::try_from(operators.len()).unwrap();
        let spec = ProcessingElementSpec { id, operators, operator_count, ..ProcessingElementSpec::default() };
        let object = json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "ProcessingElement", "metadata": {"name": "p"},
            "spec": spec, "status": {"phase": phase},
        });
        serde_json::from_value(object).unwrap()
    }

    fn sample() -> (Job, Vec<ProcessingElement>) {
        let job = json!({
            "apiVersion": "streams.ibm.com/v1", "kind": "Job", "metadata": {"name": "sensors"},
            "spec": {"bundle": {"file": "f"}}, "status": {"phase": "Running", "generation": 3},
        });
        let pes = vec![
            pe(5, "Running", &["Score[1].Best", "Score[1].Model[2]", "Score[1].Model[3]"]),
            pe(
                4,
                "Starting",
                &["Score[1].Model[2].A", "Score[1].Model[2].B", "Score[1].Model[2].C", "Score[1].Model[2].D"],
            ),
            pe(0, "Running", &["Source"]),
            pe(2, "Running", &["Clean[0]", "Clean[1]"]),
            pe(3, "BackOff", &["Clean[1].\"x\""]),
        ];
        (serde_json::from_value(job).unwrap(), pes)
    }

    #[test]
    fn a_pe_stands_in_the_innermost_channel_that_has_all_of_it() {
        let (job, pes) = sample();
        let expected = [
            "sensors Running, generation 3",
            "├─ PE 0 Running: Source",
            "├─ PE 2 Running: Clean[0], Clean[1]",
            "├─ Clean[1]",
            "│  └─ PE 3 BackOff: Clean[1].\"x\"",
            "└─ Score[1]",
            "   ├─ PE 5 Running: Score[1].Best, Score[1].Model[2], Score[1].Model[3]",
            "   └─ Score.Model[2]",
            "      └─ PE 4 Starting: Score[1].Model[2].A, Score[1].Model[2].B, Score[1].Model[2].C and 1 more",
        ];
        assert_eq!(tree(&job, &pes).lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn graphviz_gets_a_cluster_for_each_channel() {
        let (job, pes) = sample();
        let expected = [
            "digraph \"sensors\" {",
            "  label=\"sensors Running, generation 3\";",
            "  node [shape=box];",
            "  pe0 [label=\"PE 0 Running: Source\"];",
            "  pe2 [label=\"PE 2 Running: Clean[0], Clean[1]\"];",
            "  subgraph cluster_0 {",
            "    label=\"Clean[1]\";",
            "    pe3 [label=\"PE 3 BackOff: Clean[1].\\\"x\\\"\"];",
            "  }",
        ];
        let text = dot(&job, &pes);
        assert_eq!(text.lines().take(expected.len()).collect::<Vec<_>>(), expected);
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
