//! Connections between the PEs of a job, before a change and after it.

use std::collections::{BTreeMap, BTreeSet};
use streams_pe_double::PortLabel;
use streams_pe_double::status::Status;

/// What the PEs of a job say of themselves, by their numbers.
pub type Statuses = BTreeMap<u64, Status>;

/// Connections between PEs that were there before a change and after it, in the same launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stayed {
    /// How many there were before.
    pub connections: usize,
    /// Those that broke or are gone, in words.
    pub broken: Vec<String>,
}

impl Stayed {
    /// Compares what the PEs of a job said before and after.
    #[must_use]
    pub fn between(before: &Statuses, after: &Statuses) -> Self {
        let same = |pe: &u64| before.get(pe).zip(after.get(pe)).is_some_and(|(a, b)| a.launch == b.launch);
        let pes: BTreeSet<u64> = before.keys().copied().filter(same).collect();
        let mut stayed = Self::default();
        for (pe, was, now) in pes.iter().filter_map(|pe| Some((pe, before.get(pe)?, after.get(pe)?))) {
            let leads_to_one =
                |to: &str| to.parse().is_ok_and(|to: PortLabel| to.job_id == was.job_id && pes.contains(&to.pe));
            for was in was.outputs.iter().filter(|output| output.connected) {
                let Some(to) = was.to.as_deref().filter(|to| leads_to_one(to)) else { continue };
                stayed.connections += 1;
                match now.outputs.iter().find(|output| output.port == was.port && output.to == was.to) {
                    Some(now) if now.connected && now.opened == was.opened && now.closed == was.closed => {}
                    now => stayed.broken.push(format!("from PE {pe} to {to}: {now:?}")),
                }
            }
        }
        stayed
    }
}

#[cfg(test)]
mod tests {
    use super::{Statuses, Stayed};
    use crate::running::ledger::tests::status;
    use streams_pe_double::status::{OutputStatus, Status};

    /// A PE with connections: the label of the other end, and how often it came to be.
    fn pe(pe: u64, launch: u64, outputs: &[(&str, u64)]) -> Status {
        let output = |(to, opened): &(&str, u64)| OutputStatus {
            to: Some((*to).to_owned()),
            connected: true,
            opened: *opened,
            closed: opened - 1,
            ..OutputStatus::default()
        };
        Status { outputs: outputs.iter().map(output).collect(), ..status(pe, launch, &[], &[]) }
    }

    #[test]
    fn connections_of_pes_that_stayed_are_compared() {
        let all = |statuses: &[Status]| statuses.iter().map(|status| (status.pe, status.clone())).collect::<Statuses>();
        let before = all(&[pe(0, 1, &[("1.0@1", 1), ("2.0@1", 1), ("1.0@2", 1)]), pe(1, 1, &[]), pe(2, 1, &[])]);
        for (what, now, connections, broken) in [
            ("nothing happened", all(&[pe(0, 1, &[("1.0@1", 1), ("2.0@1", 1)]), pe(1, 1, &[]), pe(2, 1, &[])]), 2, 0),
            ("it broke", all(&[pe(0, 1, &[("1.0@1", 2), ("2.0@1", 1)]), pe(1, 1, &[]), pe(2, 1, &[])]), 2, 1),
            ("it is gone", all(&[pe(0, 1, &[("2.0@1", 1)]), pe(1, 1, &[]), pe(2, 1, &[])]), 2, 1),
            ("one end restarted", all(&[pe(0, 1, &[("1.0@1", 2), ("2.0@1", 1)]), pe(1, 2, &[]), pe(2, 1, &[])]), 1, 0),
            ("one end was removed", all(&[pe(0, 1, &[("2.0@1", 1)]), pe(2, 1, &[])]), 1, 0),
            ("all restarted", all(&[pe(0, 2, &[]), pe(1, 2, &[]), pe(2, 2, &[])]), 0, 0),
        ] {
            let stayed = Stayed::between(&before, &now);
            assert_eq!((stayed.connections, stayed.broken.len()), (connections, broken), "{what}: {stayed:?}");
        }
    }
}
