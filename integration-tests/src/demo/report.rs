//! What the demo says at the end.

use crate::system::snapshot::Difference;
use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, Table, presets};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

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
            format!("{:.2} s", step.took.as_secs_f64()),
        ]);
    }
    for column in 1..7 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// What one needs to go on with a running demo.
#[derive(Debug, Clone)]
pub struct Handles {
    /// Shell variables: name and value.
    pub variables: Vec<(&'static str, String)>,
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
        let [elasticity, fusion] = ["ELASTICITY", "FUSION"].map(|name| self.get(name));
        let body = format!(
            r#"{{"namespace": "{namespace}", "job": "{job}", "regions": [{{"region": "{region}", "width": 6}}], "wait_for": "WAIT_FOR_ROLLED_OUT"}}"#
        );
        format!(
            "export KUBECONFIG={kubeconfig}
{kubectl} -n {namespace} get streamsjobs,streamspes,streamsprs,pods
{kubectl} -n {namespace} describe streamsjob {job}
{kubectl} -n {namespace} get events --sort-by=.lastTimestamp
{kubectl} -n {namespace} wait --for=condition=Ready streamsjob/{job}
{grpcurl} -plaintext {elasticity} describe streams.elasticity.v1.ElasticityService
{grpcurl} -plaintext -d '{body}' {elasticity} streams.elasticity.v1.ElasticityService/Resize
{grpcurl} -plaintext {fusion} describe streams.fusion.v1.FusionService
"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Handles;

    #[test]
    fn variables_survive_a_shell() {
        let handles = Handles { variables: vec![("JOB", "it's".to_owned()), ("REGION", "a b".to_owned())] };
        let script = format!("{}printf '%s|%s' \"$JOB\" \"$REGION\"", handles.shell());
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "it's|a b");
    }
}
