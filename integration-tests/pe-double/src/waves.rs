//! How a drain or a reset goes through the operators of a consistent region in one PE: each operator turns when a
//! marker has come over all its connections, and the PE is done when all have turned. The first operators of the
//! region turn when they are told.
//!
//! Knows: connections, markers. Must not know: tuples, state, messages. Invariants: a wave that is over, or that
//! another one has replaced, does not begin again; nor does a reset whose attempt is not higher than that of the last
//! one, until a drain is done.

use crate::aadl::{Operator, Origin};
use crate::frame::Wave;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Waves that are remembered after their end.
const PAST: usize = 64;

/// One region in one PE.
#[derive(Debug, Default)]
pub(crate) struct Alignment {
    members: BTreeMap<u32, Member>,
    current: Option<Running>,
    past: VecDeque<Wave>,
    /// Of the last reset since a drain was done.
    attempt: Option<u64>,
}

#[derive(Debug)]
struct Member {
    start: bool,
    /// Input port and what is connected there.
    awaited: BTreeSet<(u32, Origin)>,
}

#[derive(Debug)]
struct Running {
    wave: Wave,
    /// Operators that have not turned, with the connections over which no marker has come.
    open: BTreeMap<u32, BTreeSet<(u32, Origin)>>,
}

impl Alignment {
    /// Adds an operator of the region.
    pub(crate) fn add(&mut self, operator: &Operator, start: bool, autonomous: &[u32]) {
        let ports = (0..).zip(&operator.inputs).filter(|(port, _)| !autonomous.contains(port));
        let awaited = ports.flat_map(|(port, origins)| origins.iter().map(move |origin| (port, *origin))).collect();
        self.members.insert(operator.index, Member { start, awaited });
    }

    /// The operators of the region.
    pub(crate) fn members(&self) -> impl Iterator<Item = u32> {
        self.members.keys().copied()
    }

    /// Whether the region starts in this PE.
    pub(crate) fn starts_here(&self) -> bool {
        self.members.values().any(|member| member.start)
    }

    /// Begins a wave if it is new: gives the first operators of the region, which turn at once.
    pub(crate) fn begin(&mut self, wave: Wave) -> Vec<u32> {
        if !self.is_new(wave) {
            return Vec::new();
        }
        self.replace(wave);
        self.members.iter().filter(|(_, member)| member.start).map(|(operator, _)| *operator).collect()
    }

    /// A marker has come to an input port of an operator: says whether the operator turns.
    pub(crate) fn arrive(&mut self, operator: u32, port: u32, origin: Origin, wave: Wave) -> bool {
        if !self.members.get(&operator).is_some_and(|member| !member.start && member.awaited.contains(&(port, origin)))
        {
            return false;
        }
        if self.is_new(wave) {
            self.replace(wave);
        }
        let Some(running) = self.current.as_mut().filter(|running| running.wave == wave) else { return false };
        let Some(awaited) = running.open.get_mut(&operator) else { return false };
        awaited.remove(&(port, origin));
        awaited.is_empty()
    }

    /// An operator has turned: says whether that was the last one of the PE.
    pub(crate) fn turned(&mut self, operator: u32) -> bool {
        let Some(running) = &mut self.current else { return false };
        running.open.remove(&operator);
        if !running.open.is_empty() {
            return false;
        }
        if matches!(running.wave, Wave::Drain { .. }) {
            self.attempt = None;
        }
        self.end();
        true
    }

    fn is_new(&self, wave: Wave) -> bool {
        if let (Wave::Reset { attempt, .. }, Some(last)) = (wave, self.attempt)
            && attempt <= last
        {
            return false;
        }
        self.current.as_ref().is_none_or(|running| running.wave != wave) && !self.past.contains(&wave)
    }

    fn replace(&mut self, wave: Wave) {
        self.end();
        if let Wave::Reset { attempt, .. } = wave {
            self.attempt = Some(attempt);
        }
        let open = self.members.iter().map(|(operator, member)| (*operator, member.awaited.clone())).collect();
        self.current = Some(Running { wave, open });
    }

    fn end(&mut self) {
        if let Some(running) = self.current.take() {
            self.past.push_back(running.wave);
            if self.past.len() > PAST {
                self.past.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Alignment;
    use crate::aadl::{Operator, Origin};
    use crate::frame::Wave;

    const DRAIN: Wave = Wave::Drain { seq: 1 };
    const RESET: Wave = Wave::Reset { seq: 0, attempt: 0 };

    fn origin(operator: u32) -> Origin {
        Origin { operator, port: 0, lane: None }
    }

    fn operator(index: u32, from: &[u32]) -> Operator {
        let inputs = if from.is_empty() { Vec::new() } else { vec![from.iter().map(|from| origin(*from)).collect()] };
        let (name, logical_name) = (index.to_string(), index.to_string());
        Operator { index, name, logical_name, inputs, outputs: Vec::new(), region: None }
    }

    #[test]
    fn an_operator_turns_when_markers_have_come_over_all_connections() {
        let mut region = Alignment::default();
        region.add(&operator(3, &[1, 2]), false, &[]);
        assert!(!region.arrive(3, 0, origin(1), DRAIN));
        assert!(!region.arrive(3, 0, origin(1), DRAIN), "the same again");
        assert!(!region.arrive(3, 0, origin(7), DRAIN), "not connected");
        assert!(region.arrive(3, 0, origin(2), DRAIN));
        assert!(region.turned(3));
        assert!(!region.arrive(3, 0, origin(1), DRAIN), "it is over");
    }

    #[test]
    fn a_wave_that_another_one_replaced_does_not_come_back() {
        let mut region = Alignment::default();
        region.add(&operator(3, &[1, 2]), false, &[]);
        assert!(!region.arrive(3, 0, origin(1), DRAIN));
        assert!(!region.arrive(3, 0, origin(1), RESET));
        assert!(!region.arrive(3, 0, origin(2), DRAIN), "the drain is void");
        assert!(region.arrive(3, 0, origin(2), RESET));
    }

    #[test]
    fn a_reset_whose_attempt_is_not_higher_does_not_begin_until_a_drain_is_done() {
        let reset = |seq, attempt| Wave::Reset { seq, attempt };
        let mut region = Alignment::default();
        region.add(&operator(0, &[]), true, &[]);
        // wave -> whether it begins
        let table = [
            (reset(0, 1), true),
            (reset(0, 0), false),
            (reset(2, 1), false),
            (reset(0, 2), true),
            (DRAIN, true),
            (reset(1, 0), true),
            (reset(0, 0), false),
        ];
        for (wave, expected) in table {
            let begins = !region.begin(wave).is_empty();
            assert_eq!(begins, expected, "{wave:?}");
            if begins {
                assert!(region.turned(0), "{wave:?}");
            }
        }
    }

    #[test]
    fn the_first_operators_turn_when_they_are_told_and_the_pe_is_done_with_the_last_one() {
        let mut region = Alignment::default();
        region.add(&operator(0, &[]), true, &[]);
        region.add(&operator(1, &[0]), false, &[]);
        assert_eq!(region.begin(DRAIN), [0]);
        assert_eq!(region.begin(DRAIN), [0_u32; 0], "told again");
        assert!(!region.turned(0));
        assert!(region.arrive(1, 0, origin(0), DRAIN));
        assert!(region.turned(1));
    }
}
