//! Ports of jobs that were made again under their names (rule import-11).
//!
//! A PE tells its routes by labels, which have the name of a job and not its number. If a label that it knows comes
//! with another number, the runtime goes on with the route that it has, and takes the other end of it for the one
//! before; so it must have seen a document without the label in between. Datagrams get lost. So what comes under the
//! label of a port that went a while ago is left out of what a PE gets, until its own pod was answered once without it.
//! A pod that is younger than the job that has the label now knows of no other.
//!
//! Knows: labels, numbers of jobs, what PEs were answered. Must not know: objects, who asks.
//!
//! Invariants: nothing is kept of a port for longer than [`REMEMBERED`] after it has gone, or after it became known
//! what matches; by then each PE has asked. Of a port at most [`JOBS`] are kept, each job once, however often it goes;
//! of all ports at most [`MOST`], the latest ones.
//! Of PEs only those are kept that were answered without something that they match, each once, and at most [`MOST`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use streams_broker::{Matched, Pe, Port};
use tokio::time::Instant;

/// A PE asks for its routes when it has heard nothing for 60 seconds.
pub(super) const REMEMBERED: Duration = Duration::from_secs(65);
/// Most jobs that are remembered of a port, the latest ones. Only the latest may be there again, and who has not been
/// answered since an earlier one went has not been since a later one.
const JOBS: usize = 4;
/// Most that are remembered of all ports, each with one of its jobs: some 7 MB; and of PEs. A namespace may not be
/// settled for as long as somebody changes something all the time, and under ever new names any number of ports may go
/// meanwhile.
const MOST: usize = 16_384;

/// Input and output ports are numbered apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Export,
    Import,
}

/// A port that has gone with one of its jobs.
#[derive(Debug)]
struct Gone {
    /// Number of the job.
    job_id: u64,
    at: Instant,
    /// How many had gone before it.
    number: u64,
}

/// The ports of a namespace that went a while ago.
#[derive(Debug, Default)]
pub(super) struct Predecessors {
    /// By what has gone, the earliest first; never empty.
    gone: BTreeMap<(Side, Port), VecDeque<Gone>>,
    /// The same: when which port went, and with which job.
    order: BTreeSet<(Instant, (Side, Port), u64)>,
    /// How many have gone.
    count: u64,
    /// PEs that were answered without something: how many had gone by then. What a PE was answered was all that it
    /// matched but that, so of what had gone it knows nothing any more, whether it matched that or not.
    answered: BTreeMap<Pe, u64>,
    /// When it was not known last what matches: nobody could ask then.
    unsettled: Option<Instant>,
}

/// What was left out of the routes of a PE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// How much.
    count: usize,
    /// How many ports had gone by then.
    gone: u64,
}

impl LeftOut {
    /// Whether nothing was.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Predecessors {
    /// A port is of another job from now on, or of none.
    pub(super) fn note(&mut self, side: Side, port: &Port, before: Option<u64>, after: Option<u64>, now: Instant) {
        let key = (side, port.clone());
        if let Some(job_id) = after {
            // It is what it was. PEs may know others before it still.
            self.forget(&key, job_id);
        }
        if let Some(job_id) = before.filter(|_| after != before) {
            self.forget(&key, job_id);
            let gone = self.gone.entry(key.clone()).or_default();
            gone.push_back(Gone { job_id, at: now, number: self.count });
            self.count += 1;
            let oldest = gone.front().filter(|_| gone.len() > JOBS).map(|oldest| oldest.job_id);
            self.order.insert((now, key.clone(), job_id));
            if let Some(oldest) = oldest {
                self.forget(&key, oldest);
            }
            if self.order.len() > MOST {
                self.forget_first();
            }
        }
    }

    /// Forgets what has gone before all others.
    fn forget_first(&mut self) {
        if let Some((_, key, job_id)) = self.order.pop_first() {
            self.forget(&key, job_id);
        }
    }

    /// Forgets that a port has gone with this job.
    fn forget(&mut self, key: &(Side, Port), job_id: u64) {
        let Some(gone) = self.gone.get_mut(key) else { return };
        let Some(at) = gone.iter().position(|gone| gone.job_id == job_id) else { return };
        if let Some(forgotten) = gone.remove(at) {
            self.order.remove(&(forgotten.at, key.clone(), job_id));
        }
        if gone.is_empty() {
            self.gone.remove(key);
        }
    }

    /// It is not known what matches.
    pub(super) fn is_unsettled(&mut self, now: Instant) {
        self.unsettled = Some(now);
    }

    /// Forgets what went too long ago to matter.
    pub(super) fn forget_old(&mut self, now: Instant) {
        let unsettled = self.unsettled;
        let is_old = |at: Instant| unsettled.map_or(at, |unsettled| unsettled.max(at)) + REMEMBERED <= now;
        while self.order.first().is_some_and(|(at, ..)| is_old(*at)) {
            self.forget_first();
        }
        if self.order.is_empty() {
            self.answered.clear();
        }
    }

    /// Whether no port has gone.
    pub(super) fn are_none(&self) -> bool {
        self.gone.is_empty()
    }

    /// Takes what a PE must not be told yet out of what it matches. `knows_no_other`: of the job of this name the PE
    /// can know no label but its own.
    pub(super) fn leave_out(&self, matched: &mut Matched, pe: &Pe, knows_no_other: impl Fn(&str) -> bool) -> LeftOut {
        if self.are_none() {
            return LeftOut::default();
        }
        let mut count = 0;
        let mut stays = |side: Side, port: &Port, job_id: u64| {
            let Some(gone) = self.gone.get(&(side, port.clone())) else { return true };
            let stays = !self.is_any_unseen(gone, pe, job_id) || knows_no_other(&port.pe.job);
            count += usize::from(!stays);
            stays
        };
        for (_, to) in &mut matched.receivers {
            to.retain(|import| stays(Side::Import, &import.port, import.job_id));
        }
        for (_, from) in &mut matched.senders {
            from.retain(|export| stays(Side::Export, &export.port, export.job_id));
        }
        matched.receivers.retain(|(_, to)| !to.is_empty());
        matched.senders.retain(|(_, from)| !from.is_empty());
        LeftOut { count, gone: self.count }
    }

    /// Whether something of what a PE matches must not be told to it yet. It is gone through what has gone, and not
    /// through what the PE matches, which may be thousands of ports: `met` is the number of the job of a port if the PE
    /// matches that.
    pub(super) fn hold_back_any(
        &self,
        pe: &Pe,
        met: impl Fn(Side, &Port) -> Option<u64>,
        knows_no_other: impl Fn(&str) -> bool,
    ) -> bool {
        self.gone.iter().any(|((side, port), gone)| {
            let is_answered = gone.iter().all(|gone| self.is_answered(pe, gone));
            let job_id = if is_answered { None } else { met(*side, port) };
            job_id.is_some_and(|job_id| self.is_any_unseen(gone, pe, job_id)) && !knows_no_other(&port.pe.job)
        })
    }

    /// The pod of a PE was answered without this.
    pub(super) fn answered(&mut self, pe: &Pe, left_out: LeftOut) {
        if left_out.is_empty() || self.are_none() {
            return;
        }
        // Those that are forgotten are answered without something once more.
        if self.answered.len() >= MOST && !self.answered.contains_key(pe) {
            self.answered.clear();
        }
        let answered = self.answered.entry(pe.clone()).or_default();
        *answered = left_out.gone.max(*answered);
    }

    /// Whether a PE was answered since this has gone, with all that it matched then but what had the label of that.
    fn is_answered(&self, pe: &Pe, gone: &Gone) -> bool {
        self.answered.get(pe).is_some_and(|answered| gone.number < *answered)
    }

    /// Whether a port has gone with another job of which a PE may know still.
    fn is_any_unseen(&self, gone: &VecDeque<Gone>, pe: &Pe, job_id: u64) -> bool {
        gone.iter().any(|gone| gone.job_id != job_id && !self.is_answered(pe, gone))
    }

    /// How much is remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let len = self.gone.values().map(VecDeque::len).sum();
        assert_eq!(self.order.len(), len);
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const SECOND: Duration = Duration::from_secs(1);

    fn port(job: &str) -> Port {
        Port { pe: Pe { job: job.into(), id: 0 }, id: 0 }
    }

    fn matched(importers: &[(&str, u64)]) -> Matched {
        let import = |(job, job_id): &(&str, u64)| streams_broker::Import {
            port: port(job),
            job_id: *job_id,
            port_index: 0,
            named: Arc::default(),
            subscription: None,
            filter: None,
        };
        let export = streams_broker::Export {
            port: port("out"),
            job_id: 1,
            application: streams_broker::Application { name: "A".into(), scope: "Default".into() },
            name: None,
            properties: None,
            allows_filter: true,
        };
        let imports = importers.iter().map(|importer| import(importer).into()).collect();
        Matched { receivers: vec![(export.into(), imports)], senders: Vec::new() }
    }

    #[test]
    fn what_has_the_label_of_another_job_is_left_out_until_a_pe_was_answered_without_it() {
        let (begun, mut known) = (Instant::now(), Predecessors::default());
        let (one, other) = (port("out").pe, port("other").pe);
        let told = |known: &Predecessors, pe: &Pe, importers: &[(&str, u64)]| {
            let mut matched = matched(importers);
            let left_out = known.leave_out(&mut matched, pe, |_| false);
            let told: usize = matched.receivers.iter().map(|(_, to)| to.len()).sum();
            assert!(matched.receivers.iter().all(|(_, to)| !to.is_empty()));
            (told, left_out)
        };
        known.note(Side::Import, &port("in"), Some(1), None, begun);
        known.note(Side::Export, &port("second"), Some(1), None, begun);
        let both = [("in", 2), ("second", 2)];
        let (count, left_out) = told(&known, &one, &both);
        assert_eq!((count, left_out.count), (1, 1), "an export of the label is another port");
        assert_eq!(told(&known, &one, &[("in", 2)]).0, 0);
        assert_eq!(told(&known, &one, &[("in", 1)]).0, 1, "the same job, which is there again");
        known.answered(&one, left_out);
        assert_eq!((told(&known, &one, &both).0, told(&known, &other, &both).0), (2, 1));
        // It is made again once more: who was answered before has to be once more.
        let (_, before) = told(&known, &other, &both);
        known.note(Side::Import, &port("in"), Some(2), Some(3), begun + SECOND);
        known.answered(&other, before);
        for pe in [&one, &other] {
            assert_eq!(told(&known, pe, &[("in", 3)]).0, 0);
        }
    }

    #[test]
    fn a_port_that_is_gone_for_a_moment_does_not_hide_the_job_before() {
        let begun = Instant::now();
        let pe = port("out").pe;
        // what the port is of one after the other, a second each -> how many jobs are remembered of it
        let table: [(&[Option<u64>], usize); 5] = [
            (&[Some(1), None, Some(2)], 1),
            (&[Some(1), Some(2), None, Some(2)], 1),
            (&[Some(1), None, Some(2), None, Some(2), None, Some(2)], 1),
            (&[Some(1), Some(2), Some(1), Some(2)], 1),
            (&[Some(1), Some(2), Some(3), Some(4), Some(5), Some(6), None, Some(6)], 3),
        ];
        for (jobs, expected) in table {
            let mut known = Predecessors::default();
            let mut now = begun;
            for change in jobs.windows(2) {
                now += SECOND;
                known.note(Side::Import, &port("in"), change[0], change[1], now);
            }
            let Some(Some(job_id)) = jobs.last() else { panic!("{jobs:?}") };
            let told = |known: &Predecessors| {
                let mut matched = matched(&[("in", *job_id)]);
                let left_out = known.leave_out(&mut matched, &pe, |_| false);
                (matched.receivers.len(), left_out)
            };
            let (count, left_out) = told(&known);
            assert_eq!((count, left_out.count, known.len()), (0, 1, expected), "{jobs:?}");
            known.answered(&pe, left_out);
            assert_eq!(told(&known).0, 1, "{jobs:?}");
            // The port is gone for a moment once more: who was answered knows nothing of the job before.
            known.note(Side::Import, &port("in"), Some(*job_id), None, now + SECOND);
            known.note(Side::Import, &port("in"), None, Some(*job_id), now + SECOND);
            assert_eq!(told(&known).0, 1, "{jobs:?}");
            known.forget_old(now + SECOND + REMEMBERED);
            assert_eq!((known.len(), known.are_none()), (0, true), "{jobs:?}");
        }
    }

    #[test]
    fn what_went_is_forgotten_when_every_pe_has_asked() {
        let begun = Instant::now();
        // when the port went once more, when it was not known last what matches -> known after 64, 65 and 75 s
        let table = [(None, None, [1, 0, 0]), (Some(10), None, [2, 1, 0]), (None, Some(10), [1, 1, 0])];
        for (again, unsettled, expected) in table {
            let mut known = Predecessors::default();
            known.note(Side::Import, &port("in"), Some(1), None, begun);
            if let Some(again) = again {
                known.note(Side::Import, &port("in"), Some(2), None, begun + again * SECOND);
            }
            if let Some(unsettled) = unsettled {
                known.is_unsettled(begun + unsettled * SECOND);
            }
            for (after, expected) in [64, 65, 75].into_iter().zip(expected) {
                known.forget_old(begun + after * SECOND);
                assert_eq!(known.len(), expected, "{again:?} {unsettled:?} {after}");
            }
        }
        let mut known = Predecessors::default();
        known.note(Side::Import, &port("in"), Some(1), None, begun);
        known.note(Side::Import, &port("in"), None, Some(1), begun);
        known.forget_old(begun + REMEMBERED);
        assert_eq!(known.len(), 0);
    }

    #[test]
    fn who_knows_no_other_job_of_a_name_is_told_at_once() {
        let (begun, mut known) = (Instant::now(), Predecessors::default());
        for job in ["old", "new"] {
            known.note(Side::Import, &port(job), Some(1), Some(2), begun);
        }
        let importers = [("old", 2), ("new", 2)];
        // jobs of which the PE can know no label -> how many it is told of
        for (none, expected) in [(&[][..], 0), (&["new"][..], 1), (&["old", "new"][..], 2)] {
            let (mut matched, knows_no_other) = (matched(&importers), |job: &str| none.contains(&job));
            let left_out = known.leave_out(&mut matched, &port("out").pe, knows_no_other);
            let told: usize = matched.receivers.iter().map(|(_, to)| to.len()).sum();
            assert_eq!((told, left_out.count), (expected, 2 - expected), "{none:?}");
            let met = |side, port: &Port| {
                let of = importers.iter().find(|(job, _)| side == Side::Import && *port.pe.job == **job);
                of.map(|(_, job_id)| *job_id)
            };
            assert_eq!(known.hold_back_any(&port("out").pe, met, knows_no_other), expected < 2, "{none:?}");
            known.answered(&port("another").pe, left_out);
        }
        let nobody = |_: Side, _: &Port| None;
        assert!(!known.hold_back_any(&port("out").pe, nobody, |_| false), "it matches none of them");
        let both = |_: Side, _: &Port| Some(2);
        assert!(!known.hold_back_any(&port("another").pe, both, |_| false), "it was answered without them");
        assert!(!known.hold_back_any(&port("out").pe, |_, _| Some(1), |_| false), "the job that was there before");
    }

    #[test]
    fn a_port_that_comes_and_goes_all_the_time_takes_no_more_than_one_that_has_gone_once() {
        let mut known = Predecessors::default();
        let mut now = Instant::now();
        for _ in 0..1_000 {
            now += SECOND / 100;
            // Somebody keeps the namespace from being settled: nothing is forgotten because of its age.
            known.is_unsettled(now);
            known.note(Side::Import, &port("in"), Some(1), None, now);
            known.forget_old(now);
            assert_eq!(known.len(), 1);
            known.note(Side::Import, &port("in"), None, Some(1), now);
            assert_eq!(known.len(), 0);
        }
        for job_id in 0..1_000 {
            now += SECOND / 100;
            known.note(Side::Import, &port("in"), Some(job_id), Some(job_id + 1), now);
        }
        assert_eq!(known.len(), JOBS);
    }

    #[test]
    fn a_pe_that_is_answered_without_many_ports_is_remembered_once() {
        let (mut known, now) = (Predecessors::default(), Instant::now());
        let names: Vec<String> = (0..1_000).map(|number| format!("in-{number}")).collect();
        names.iter().for_each(|name| known.note(Side::Import, &port(name), Some(1), Some(2), now));
        let importers: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 2)).collect();
        let left_out = |known: &Predecessors, pe: &Pe| {
            let left_out = known.leave_out(&mut matched(&importers), pe, |_| false);
            (left_out.count, left_out)
        };
        for id in 0..9 {
            let pe = Pe { id, ..port("out").pe };
            let (count, without) = left_out(&known, &pe);
            known.answered(&pe, without);
            assert_eq!((count, left_out(&known, &pe).0, known.answered.len()), (1_000, 0, id as usize + 1));
        }
        // What goes after an answer was made is another matter.
        let pe = port("late").pe;
        let (_, before) = left_out(&known, &pe);
        known.note(Side::Import, &port(&names[7]), Some(0), Some(2), now);
        known.answered(&pe, before);
        assert_eq!(left_out(&known, &pe).0, 1);
        known.forget_old(now + REMEMBERED);
        assert!(known.are_none() && known.answered.is_empty(), "nothing is kept");
    }

    #[test]
    fn as_many_pes_as_are_remembered_may_be_answered_again_and_again() {
        let (mut known, now) = (Predecessors::default(), Instant::now());
        known.note(Side::Import, &port("in"), Some(1), Some(2), now);
        let answer = |known: &mut Predecessors, id: usize| {
            let pe = Pe { id: id as u64, ..port("out").pe };
            let left_out = known.leave_out(&mut matched(&[("in", 2), ("other", 2)]), &port("another").pe, |_| false);
            known.answered(&pe, left_out);
            known.answered.len()
        };
        (0..MOST).for_each(|id| assert_eq!(answer(&mut known, id), id + 1));
        known.note(Side::Import, &port("other"), Some(1), Some(2), now);
        for id in [0, 7, MOST - 1] {
            assert_eq!(answer(&mut known, id), MOST, "nobody is forgotten for {id}");
        }
        assert_eq!(answer(&mut known, MOST), 1, "one more than there is room for");
    }

    #[test]
    fn of_ports_that_go_under_ever_new_names_the_latest_are_remembered() {
        let (mut known, mut now) = (Predecessors::default(), Instant::now());
        let named = |number: usize| port(&format!("in-{number}"));
        for number in 0..2 * MOST {
            now += SECOND / 1_000;
            known.is_unsettled(now);
            known.note(Side::Import, &named(number), Some(1), None, now);
            known.forget_old(now);
            assert!(known.order.len() <= MOST, "{number}");
        }
        let remembered = |number: usize| known.gone.contains_key(&(Side::Import, named(number)));
        let at = [0, MOST - 1, MOST, 2 * MOST - 1].map(remembered);
        assert_eq!((known.len(), at), (MOST, [false, false, true, true]));
    }
}
