//! Writes `operator_port_labels.properties`. In this file a running PE finds the PE port behind an operator's input
//! port (rule job-13).
//!
//! The PE runtime reads the file from the job's ConfigMap (again at most every 10 s) and looks up
//! `<job>.<operator>.<port>`; the value is `<pe>.<port id>@<job>`. The format is Java properties.
//!
//! While a generation is prepared, the file already has the labels of its new operators, which no running PE looks up
//! yet. Labels of operators that move to another PE change with the commit. So a PE of the new generation finds every
//! label when it starts, and a PE of the running generation never finds a PE that does not run.

use std::collections::BTreeMap;
use std::fmt::Write;
use streams_proto::fusion::v1::Plan;

/// Key of the job's ConfigMap.
pub(crate) const FILE: &str = "operator_port_labels.properties";

/// The content of the file: one line per label, sorted by operator label, so that the same plans give the same bytes.
pub(crate) fn render(committed: Option<&Plan>, proposed: Option<&Plan>) -> String {
    let mut labels = BTreeMap::new();
    // Later entries win: the committed plan is in force.
    for plan in proposed.into_iter().chain(committed) {
        for label in plan.processing_elements.iter().flat_map(|pe| &pe.port_labels) {
            labels.insert(label.operator_port_label.as_str(), label.pe_port_label.as_str());
        }
    }
    let mut text = String::new();
    for (operator, pe) in labels {
        escape(&mut text, operator, true);
        text.push('=');
        escape(&mut text, pe, false);
        text.push('\n');
    }
    text
}

/// Writes a key or a value as `java.util.Properties.store` does. A blank is escaped in a key, and at the beginning of a
/// value.
fn escape(out: &mut String, text: &str, key: bool) {
    for (index, c) in text.chars().enumerate() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\u{c}' => out.push_str("\\f"),
            '=' | ':' | '#' | '!' => {
                out.push('\\');
                out.push(c);
            }
            ' ' if key || index == 0 => out.push_str("\\ "),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String does not fail.
                    let _ = write!(out, "\\u{unit:04X}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_proto::fusion::v1::{PortLabel, ProcessingElement};

    fn plan(labels: &[(&str, &str)]) -> Plan {
        let port_labels = labels
            .iter()
            .map(|(operator, pe)| PortLabel {
                operator_port_label: (*operator).to_owned(),
                pe_port_label: (*pe).to_owned(),
                port_id: 0,
            })
            .collect();
        Plan {
            processing_elements: vec![ProcessingElement { port_labels, ..Default::default() }],
            ..Default::default()
        }
    }

    #[test]
    fn one_sorted_line_per_label() {
        let plan = plan(&[("7.2.0", "1.0@7"), ("7.10.0", "0.1@7"), ("7.1.1", "0.0@7")]);
        assert_eq!(render(Some(&plan), None), "7.1.1=0.0@7\n7.10.0=0.1@7\n7.2.0=1.0@7\n");
        assert_eq!(render(None, None), "");
    }

    #[test]
    fn new_labels_come_with_the_proposal_and_labels_move_with_the_commit() {
        let old = plan(&[("7.0.0", "0.0@7"), ("7.1.0", "1.0@7")]);
        let new = plan(&[("7.1.0", "2.0@7"), ("7.2.0", "2.1@7")]);
        assert_eq!(render(Some(&old), Some(&new)), "7.0.0=0.0@7\n7.1.0=1.0@7\n7.2.0=2.1@7\n");
        assert_eq!(render(Some(&new), None), "7.1.0=2.0@7\n7.2.0=2.1@7\n");
    }

    #[test]
    fn what_java_would_misread_is_escaped() {
        let plan = plan(&[(" a=b:c#!\\", " x y=\u{e9}\u{1F600}\n")]);
        assert_eq!(render(Some(&plan), None), "\\ a\\=b\\:c\\#\\!\\\\=\\ x y\\=\\u00E9\\uD83D\\uDE00\\n\n");
    }
}
