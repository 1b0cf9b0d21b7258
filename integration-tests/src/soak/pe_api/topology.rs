//! Which PEs are connected: of the sample application, and of the application with a consistent region. Each operator
//! has a PE of its own, so operators stand for PEs.
//!
//! Knows: names of operators, widths. Must not know: who runs.

use crate::sample::Widths;
use std::collections::BTreeSet;

/// An application with these widths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topology {
    /// The sample application.
    Sensors(Widths),
    /// A source, so many channels, a sink.
    Region(u32),
}

/// The operators that an operator is connected with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Peers {
    /// Those that send to it.
    pub(super) inputs: BTreeSet<String>,
    /// Those that it sends to.
    pub(super) outputs: BTreeSet<String>,
}

impl Topology {
    /// The peers of an operator; none, if there is no such operator.
    pub(super) fn peers(self, operator: &str) -> Peers {
        match self {
            Self::Sensors(widths) => sensors(widths, operator),
            Self::Region(channels) => {
                let work = || (0..channels).map(|channel| format!("Work[{channel}]"));
                match operator {
                    "Source" => peers([], work()),
                    "Sink" => peers(work(), []),
                    _ => peers(["Source".to_owned()], ["Sink".to_owned()]),
                }
            }
        }
    }
}

fn peers(inputs: impl IntoIterator<Item = String>, outputs: impl IntoIterator<Item = String>) -> Peers {
    Peers { inputs: inputs.into_iter().collect(), outputs: outputs.into_iter().collect() }
}

fn sensors(Widths { clean, score, model }: Widths, operator: &str) -> Peers {
    let cleaners = || (0..clean).map(|channel| format!("Clean[{channel}]"));
    let of_scores = |name: &'static str| (0..score).map(move |channel| format!("Score[{channel}].{name}"));
    // Channels of the region inside are counted over all channels of the one around.
    let models = |channel: u32| {
        let numbers = channel.saturating_mul(model)..channel.saturating_add(1).saturating_mul(model);
        numbers.map(move |number| format!("Score[{channel}].Model[{number}]"))
    };
    if operator == "Readings" {
        return peers([], cleaners());
    }
    if operator.starts_with("Clean[") {
        return peers(["Readings".to_owned()], of_scores("Window"));
    }
    if operator == "Alarms" {
        return peers(of_scores("Best"), []);
    }
    let Some((channel, inside)) = operator.strip_prefix("Score[").and_then(|rest| rest.split_once("].")) else {
        return Peers::default();
    };
    let Ok(number) = channel.parse() else { return Peers::default() };
    let other = |name: &str| [format!("Score[{channel}].{name}")];
    match inside {
        "Window" => peers(cleaners(), models(number)),
        "Best" => peers(models(number), ["Alarms".to_owned()]),
        _ => peers(other("Window"), other("Best")),
    }
}

#[cfg(test)]
mod tests {
    use super::Topology;
    use crate::sample::Widths;

    #[test]
    fn whoever_sends_to_another_is_one_of_its_inputs() {
        let widths = Widths { clean: 3, score: 2, model: 2 };
        let region = ["Source", "Work[0]", "Work[1]", "Sink"].map(str::to_owned);
        for (topology, operators) in
            [(Topology::Sensors(widths), widths.operators()), (Topology::Region(2), region.into())]
        {
            for operator in &operators {
                let peers = topology.peers(operator);
                assert!(peers.outputs.union(&peers.inputs).count() > 0, "{operator}");
                for output in &peers.outputs {
                    assert!(operators.contains(output), "{operator} sends to {output}");
                    assert!(topology.peers(output).inputs.contains(operator), "{operator} sends to {output}");
                }
                for input in &peers.inputs {
                    assert!(topology.peers(input).outputs.contains(operator), "{operator} gets from {input}");
                }
            }
        }
    }

    #[test]
    fn the_wide_region_meets_in_one_operator() {
        let topology = Topology::Sensors(Widths { clean: 995, score: 1, model: 1 });
        let sizes = |operator: &str| {
            let peers = topology.peers(operator);
            (peers.inputs.len(), peers.outputs.len())
        };
        let all =
            ["Readings", "Clean[7]", "Score[0].Window", "Score[0].Model[0]", "Score[0].Best", "Alarms"].map(sizes);
        assert_eq!(all, [(0, 995), (1, 1), (995, 1), (1, 1), (1, 1), (1, 0)]);
    }
}
