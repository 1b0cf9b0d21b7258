//! Who wants what is being compiled for a resize.

use super::Entry;
use crate::controllers::job::generation::Target;
use crate::controllers::job::requests::observe::Requests;
use crate::controllers::job::tasks::Slot;
use crate::controllers::job::widths::Widths;
use std::collections::BTreeMap;
use streams_process::telemetry::TraceContext;

impl Entry {
    /// The widths that are being compiled for a resize.
    pub(crate) fn compiled_widths(&self) -> Option<&BTreeMap<String, u32>> {
        match &self.tasks.compile {
            Slot::Running(request) | Slot::Done(request, _) => match &request.target {
                Target::Resize { widths, .. } => Some(widths),
                Target::Submission { .. } => None,
            },
            Slot::Idle | Slot::Failed(..) => None,
        }
    }

    /// Notes which open requests have their widths in what is being compiled for a resize, and in what is desired,
    /// which is about to be. `compiled` are the widths that the look at the requests has taken for the former. Returns
    /// whether a request that it was begun for, or that has come since, was withdrawn, deleted or refused, or a width
    /// of it is refused.
    pub(crate) fn note_compiled_for(
        &mut self,
        compiled: Option<&BTreeMap<String, u32>>,
        requests: &Requests,
        widths: &Widths,
    ) -> bool {
        let present = self.compiled_widths().cloned();
        let mut before = std::mem::take(&mut self.compiled_for);
        let mut desired = before.remove(&widths.desired).unwrap_or_default();
        desired.extend(&requests.desired_for);
        let Some(present) = present else {
            self.compiled_for.insert(widths.desired.clone(), desired);
            return false;
        };
        let is_desired = present == widths.desired;
        let mut begun = if is_desired { desired.clone() } else { before.remove(&present).unwrap_or_default() };
        if compiled == Some(&present) {
            begun.numbers.extend(&requests.compiled_for);
        }
        let mut refused = widths.refused.iter();
        let is_withdrawn = !requests.are_standing(&begun.numbers)
            || refused.any(|(region, refused)| present.get(region) == Some(&refused.width));
        if is_withdrawn && !is_desired && !begun.is_withdrawn {
            begun.is_withdrawn = true;
            self.verdicts.note_withdrawal();
        }
        if !is_desired {
            self.compiled_for.insert(widths.desired.clone(), desired);
        }
        self.compiled_for.insert(present, begun);
        is_withdrawn
    }

    /// The trace that a compilation for these widths continues, as it was when they were desired last.
    pub(crate) fn trace_of(&self, widths: &BTreeMap<String, u32>) -> Option<TraceContext> {
        self.compiled_for.get(widths)?.trace.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::memory::plans::Plans;
    use crate::controllers::job::requests::Verdicts;
    use crate::controllers::job::tasks::CompileRequest;

    #[test]
    fn a_compilation_that_is_withdrawn_counts_once_and_not_if_others_want_the_same() {
        let widths = |width: u32| BTreeMap::from([("A".to_owned(), width)]);
        let plans = Plans::new(1_000);
        // width that is desired by now, requests that were begun with and are not there any more -> withdrawn, counted
        for (desired, begun, is_withdrawn, count) in
            [(6, vec![1], true, 1), (5, vec![1], true, 0), (6, vec![], false, 0)]
        {
            let mut entry = Entry::new(plans.of_job("u"));
            let target = Target::Resize { widths: widths(5), rebalances: false };
            entry.tasks.compile = Slot::Running(CompileRequest { generation: 1, target });
            let mut requests = Requests::default();
            requests.compiled_for = begun;
            let desired = Widths { desired: widths(desired), ..Widths::default() };
            for _ in 0..2 {
                assert_eq!(entry.note_compiled_for(Some(&widths(5)), &requests, &desired), is_withdrawn);
            }
            let mut expected = Verdicts::default();
            (0..count).for_each(|_| expected.note_withdrawal());
            assert_eq!(entry.verdicts, expected, "{desired:?}");
        }
    }

    #[test]
    fn what_is_compiled_keeps_the_trace_that_was_known_when_it_was_asked_for() {
        let widths = |width: u32| BTreeMap::from([("A".to_owned(), width)]);
        let mut entry = Entry::new(Plans::new(1_000).of_job("u"));
        let look = |entry: &mut Entry, width, trace: Option<&str>| {
            let mut requests = Requests::default();
            requests.desired_for.trace =
                trace.map(|parent| TraceContext { parent: parent.to_owned(), ..TraceContext::default() });
            let desired = Widths { desired: widths(width), ..Widths::default() };
            entry.note_compiled_for(None, &requests, &desired);
        };
        look(&mut entry, 5, Some("first"));
        let target = Target::Resize { widths: widths(5), rebalances: false };
        entry.tasks.compile = Slot::Running(CompileRequest { generation: 1, target });
        look(&mut entry, 6, Some("second"));
        let known = [5, 6, 7].map(|width| entry.trace_of(&widths(width)).map(|trace| trace.parent));
        assert_eq!(known, [Some("first".to_owned()), Some("second".to_owned()), None]);
    }
}
