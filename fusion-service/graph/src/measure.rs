//! Sizes of boxes, computed from their texts, for layout and SVG writer alike.

use super::drawing::{Cluster, Node};
use super::text;

/// Font size of names.
pub(super) const NAME: f64 = 12.0;

/// Font size of remarks.
pub(super) const REMARK: f64 = 10.0;

/// Height of a line of a name, and of a remark.
pub(super) const NAME_LINE: f64 = 16.0;
pub(super) const REMARK_LINE: f64 = 13.0;

/// Space between a text and the side of its box.
pub(super) const SIDE: f64 = 10.0;

/// Space above and below texts of a node.
const ABOVE: f64 = 5.0;

/// Least distance between ports.
const PORTS: f64 = 9.0;

/// How much wider bold text is.
const BOLD: f64 = 1.07;

/// Width and height of a node.
pub(super) fn node(node: &Node) -> (f64, f64) {
    let width = texts(&node.heading(), &node.details);
    let height = NAME_LINE + node.details.len() as f64 * REMARK_LINE + 2.0 * ABOVE;
    let ports = f64::from(node.inputs.max(node.outputs)) * PORTS;
    ((width + 2.0 * SIDE).ceil().max(56.0), height.max(ports))
}

/// Base line of the name of a node, from its top, and of its first remark.
pub(super) fn base_lines(node: &Node, height: f64) -> (f64, f64) {
    let texts = NAME_LINE + node.details.len() as f64 * REMARK_LINE;
    let top = (height - texts) / 2.0;
    (top + 12.0, top + NAME_LINE + 10.0)
}

/// Height of a port, from the top of its node.
pub(super) fn port(of: &Node, port: u32, output: bool) -> f64 {
    let count = if output { of.outputs } else { of.inputs };
    let (_, height) = node(of);
    (height * (f64::from(port.min(count.saturating_sub(1))) + 1.0) / (f64::from(count.max(1)) + 1.0)).round()
}

/// Least width of a cluster, and the height of what is above its contents.
pub(super) fn heading(cluster: &Cluster) -> (f64, f64) {
    let width = texts(&cluster.heading(), &cluster.details);
    let height = NAME_LINE + cluster.details.len() as f64 * REMARK_LINE + 10.0;
    ((width + 2.0 * SIDE).ceil(), height)
}

fn texts(heading: &str, details: &[String]) -> f64 {
    let remarks = details.iter().map(|detail| text::width(detail) * REMARK);
    remarks.fold(text::width(heading) * NAME * BOLD, f64::max)
}
