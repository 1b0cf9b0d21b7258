//! What the demo says at the end.

use super::tuples::{Flow, Rate};
use crate::running::connections::Stayed;
use crate::running::pes::STATUS_PORT;
use crate::system::snapshot::Difference;
use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, Table, presets};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use streams_api::names;

/// One step of the demo.
#[derive(Debug, Clone)]
pub struct Step {
    /// What was done.
    pub name: String,
    /// What became of the PEs, where any were there.
    pub difference: Option<Difference>,
    /// Pods that run afterwards.
    pub running: Option<usize>,
    /// How long it took.
    pub took: Duration,
    /// What became of tuples, where the PEs run.
    pub flow: Option<Flow>,
}

/// The steps as a table.
pub fn table(steps: &[Step]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["step", "kept", "restarted", "added", "removed", "pods running", "took"]);
    for step in steps {
        let count = |of: fn(&Difference) -> &Vec<u64>| {
            step.difference.as_ref().map_or_else(|| "-".to_owned(), |difference| of(difference).len().to_string())
        };
        table.add_row([
            step.name.clone(),
            count(|d| &d.kept),
            count(|d| &d.restarted),
            count(|d| &d.added),
            count(|d| &d.removed),
            step.running.map_or_else(|| "-".to_owned(), |running| running.to_string()),
            seconds(step.took),
        ]);
    }
    numbers_to_the_right(&mut table);
    table.to_string()
}

/// What became of tuples in the steps, a column for each; nothing if PEs did not run.
pub fn tuples(steps: &[Step]) -> Option<String> {
    let flows: Vec<(&str, &Flow)> =
        steps.iter().filter_map(|step| Some((step.name.as_str(), step.flow.as_ref()?))).collect();
    if flows.is_empty() {
        return None;
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header([""].into_iter().chain(flows.iter().map(|(name, _)| *name)));
    let mut row = |title: &str, cell: &dyn Fn(&Flow) -> String| {
        table.add_row([title.to_owned()].into_iter().chain(flows.iter().map(|(_, flow)| cell(flow))));
    };
    let rate =
        |rate: Option<Rate>, of: fn(Rate) -> f64| rate.map_or_else(|| "-".to_owned(), |r| format!("{:.0}", of(r)));
    for (title, of) in [("made", (|rate| rate.made) as fn(Rate) -> f64), ("arrived", |rate| rate.arrived)] {
        row(&format!("tuples {title} a second, before"), &|flow| rate(flow.before, of));
        row("    until every PE had tuples again", &|flow| rate(flow.during, of));
        row("    after that", &|flow| rate(Some(flow.after), of));
    }
    row("every PE had its connections after", &|flow| seconds(flow.connected));
    row("every PE had tuples after", &|flow| seconds(flow.moving));
    row("connections broken between PEs that stayed", &|flow| {
        let Stayed { connections, broken } = &flow.stayed;
        if *connections == 0 { "-".to_owned() } else { format!("{} of {connections}", broken.len()) }
    });
    row("tuples lost", &|flow| format!("{} of {}", flow.tuples.lost, flow.tuples.made));
    numbers_to_the_right(&mut table);
    let broken = flows.iter().flat_map(|(name, flow)| flow.stayed.broken.iter().map(move |one| (name, one)));
    let mut text = format!(
        "{table}\nThe PEs are doubles, which move numbered tuples. Lost are those that were in a PE that restarted, or \
         on the way to it.\n"
    );
    for (name, connection) in broken {
        let _ = writeln!(text, "Broken in {name}: {connection}");
    }
    Some(text)
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// All columns but the first one.
fn numbers_to_the_right(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// What one needs to go on with a running demo.
#[derive(Debug, Clone)]
pub struct Handles {
    /// Shell variables: name and value.
    pub variables: Vec<(&'static str, String)>,
    /// The PE in which tuples end, where the PEs run.
    pub sink: Option<u64>,
}

impl Handles {
    /// The variables as lines that a POSIX shell can read.
    pub fn shell(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.variables {
            let quoted = value.replace('\'', r"'\''");
            let _ = writeln!(text, "{name}='{quoted}'");
        }
        text
    }

    /// Writes the variables to a file: whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let wrong = || format!("cannot write {}", path.display());
        let file = tempfile::NamedTempFile::new_in(directory).with_context(wrong)?;
        std::fs::write(file.path(), self.shell()).with_context(wrong)?;
        file.persist(path).with_context(wrong)?;
        Ok(())
    }

    fn get(&self, name: &str) -> &str {
        self.variables.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// Lines to type.
    pub fn commands(&self) -> String {
        let [kubeconfig, kubectl, grpcurl] = ["KUBECONFIG", "KUBECTL", "GRPCURL"].map(|name| self.get(name));
        let [job, namespace, region] = ["JOB", "NAMESPACE", "REGION"].map(|name| self.get(name));
        let [elasticity, fusion, plugin] = ["ELASTICITY", "FUSION", "KUBECTL_STREAMS"].map(|name| self.get(name));
        let [metrics, fusion_metrics, bundles] = ["METRICS", "FUSION_METRICS", "BUNDLES"].map(|name| self.get(name));
        let body = format!(
            r#"{{"namespace": "{namespace}", "job": "{job}", "regions": [{{"region": "{region}", "width": 6}}], "wait_for": "WAIT_FOR_ROLLED_OUT"}}"#
        );
        // What the double of the PE says of itself.
        let look = self.sink.map_or_else(String::new, |pe| {
            let labels = format!("{}={job},{}={pe}", names::LABEL_JOB, names::LABEL_PE);
            let address =
                format!("{kubectl} -n {namespace} get pods -l {labels} -o jsonpath={{.items[0].status.podIP}}");
            format!("curl --noproxy '*' http://$({address}):{STATUS_PORT}/status\n")
        });
        format!(
            "export KUBECONFIG={kubeconfig}
{kubectl} -n {namespace} get streamsjobs,streamspes,streamsprs,pods
{kubectl} -n {namespace} describe streamsjob {job}
{kubectl} -n {namespace} get events --sort-by=.metadata.creationTimestamp
{kubectl} -n {namespace} wait --for=condition=Ready streamsjob/{job}
{look}{plugin} -n {namespace} status {job}
{plugin} -n {namespace} plan {job} {region}=6 --endpoint {elasticity}
{grpcurl} -plaintext {elasticity} describe streams.elasticity.v1.ElasticityService
{grpcurl} -plaintext -d '{body}' {elasticity} streams.elasticity.v1.ElasticityService/Resize
{grpcurl} -plaintext {fusion} describe streams.fusion.v1.FusionService
curl --noproxy '*' http://{metrics}/metrics    # of the frontend; /healthz and /readyz as well
curl --noproxy '*' http://{fusion_metrics}/metrics    # of a fusion service
ls {bundles}    # what `spec.bundle.file` of a job can name: put others there
"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Handles;

    #[test]
    fn variables_survive_a_shell() {
        let handles = Handles { variables: vec![("JOB", "it's".to_owned()), ("REGION", "a b".to_owned())], sink: None };
        let script = format!("{}printf '%s|%s' \"$JOB\" \"$REGION\"", handles.shell());
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "it's|a b");
    }

    #[test]
    fn the_lines_to_type_have_the_addresses_and_paths_of_this_machine() {
        let names = [
            ("KUBECTL_STREAMS", "/bin/plugin"),
            ("JOB", "sensors"),
            ("NAMESPACE", "n"),
            ("REGION", "Clean"),
            ("ELASTICITY", "127.0.0.1:1"),
            ("METRICS", "127.0.0.1:2"),
            ("FUSION_METRICS", "127.0.0.1:3"),
            ("BUNDLES", "/bundles"),
        ];
        let variables = names.map(|(name, value)| (name, value.to_owned())).into();
        let lines = Handles { variables, sink: None }.commands();
        for expected in [
            "\n/bin/plugin -n n status sensors\n",
            "\n/bin/plugin -n n plan sensors Clean=6 --endpoint 127.0.0.1:1\n",
            " http://127.0.0.1:2/metrics ",
            " http://127.0.0.1:3/metrics ",
            "\nls /bundles ",
        ] {
            assert!(lines.contains(expected), "{expected:?} is not in\n{lines}");
        }
    }
}
