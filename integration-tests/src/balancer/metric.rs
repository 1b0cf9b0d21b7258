//! Reads a metric from the text that Prometheus scrapes.

use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Samples: those of a metric that have these labels, e.g. `backlog{region="Clean"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    name: String,
    labels: BTreeMap<String, String>,
}

impl FromStr for Metric {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (metric, rest) = series(text.trim())?;
        if metric.name.is_empty() || !rest.trim().is_empty() {
            bail!("'{text}' is not NAME{{LABEL=\"VALUE\",...}}");
        }
        Ok(metric)
    }
}

impl Metric {
    /// The sum of its samples.
    ///
    /// # Errors
    /// There is none, or one cannot be read.
    pub fn sum(&self, text: &str) -> Result<f64> {
        let mut sum = None;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (sample, rest) = series(line)?;
            let is_one = sample.name == self.name
                && self.labels.iter().all(|(label, value)| sample.labels.get(label) == Some(value));
            if is_one {
                // A time may follow.
                let value = rest.split_whitespace().next().with_context(|| format!("no value: {line}"))?;
                let value: f64 = value.parse().with_context(|| format!("no number: {line}"))?;
                sum = Some(sum.unwrap_or(0.0) + value);
            }
        }
        sum.with_context(|| format!("there is no sample of {} with these labels", self.name))
    }
}

/// What the text begins with, and the rest.
fn series(text: &str) -> Result<(Metric, &str)> {
    let end = text.find(|c: char| c == '{' || c.is_whitespace()).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside.trim_start();
        while !rest.starts_with('}') {
            let (label, quoted) = rest.split_once("=\"").with_context(|| format!("no label: {text}"))?;
            let (value, after) = unquoted(quoted).with_context(|| format!("a label without end: {text}"))?;
            labels.insert(label.trim().to_owned(), value);
            rest = after.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    Ok((Metric { name: name.to_owned(), labels }, rest))
}

/// The text before the closing quote, and the rest.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP backlog What waits.\n# TYPE backlog gauge\n\
        backlog{region=\"Clean\",pe=\"1\"} 10\nbacklog{pe=\"2\", region=\"Clean\",} 2.5 1700000000\n\
        backlog{region=\"Score\",why=\"a \\\"b\\\", c}\"} 7\nbacklog_total 1e3\nplain 4\n";

    #[test]
    fn samples_are_found_by_name_and_labels() {
        // metric -> sum
        let table = [
            (r#"backlog{region="Clean"}"#, 12.5),
            (r#"backlog{region="Clean",pe="2"}"#, 2.5),
            (r#"backlog{why="a \"b\", c}"}"#, 7.0),
            ("backlog", 19.5),
            ("backlog_total", 1000.0),
            ("plain", 4.0),
        ];
        for (metric, expected) in table {
            let sum = metric.parse::<Metric>().unwrap().sum(TEXT).unwrap();
            assert!((sum - expected).abs() < f64::EPSILON, "{metric}: {sum}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for metric in [r#"backlog{region="Clean"} 3"#, r#"backlog{region="Clean"#, "backlog{region}", "", "{}"] {
            assert!(metric.parse::<Metric>().is_err(), "{metric}");
        }
        for (metric, text) in [(r#"backlog{region="X"}"#, TEXT), ("a", "a"), ("a", "a many")] {
            assert!(metric.parse::<Metric>().unwrap().sum(text).is_err(), "{metric} {text}");
        }
    }
}
