//! One turn of the work for a job: which actions are tried, how many at the same time, and when the next turn comes.
//!
//! Knows: what came of each action. Must not know: how one is carried out.

use super::order::{LeftOutOfTurn, is_deletion};
use super::{Actor, failure_of};
use crate::controllers::job::decide::{JobAction, WhichGeneration};
use crate::controllers::job::memory::in_vain::{InVain, Tried, is_in_vain};
use crate::controllers::job::refusals::pause::{Going, Pause};
use crate::controllers::reconciler::Next;
use futures::{StreamExt, future, stream};
use k8s_openapi::jiff::Timestamp;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use streams_kubernetes::Error;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::gate::Priority;
use streams_kubernetes::queue::Outcome;

/// Most actions that run at the same time.
pub(super) const CONCURRENT: usize = 16;
/// After a turn that ended because others would have come to nothing: whatever is tried may take as long as a call may.
const FEW: usize = 4;
/// When objects may be rewritten again for which there was no more room in this second.
const NEXT_SECOND: Duration = Duration::from_secs(1);

/// Whether an object is written, whose name one that is being deleted may have.
fn is_apply(action: &JobAction) -> bool {
    matches!(action, JobAction::Apply(..))
}

/// Actions that were tried, in their order, and what came of each.
#[derive(Default)]
struct Done<'a>(Vec<(&'a JobAction, Result<(), Error>)>);

impl<'a> Done<'a> {
    fn add(&mut self, later: Self) {
        self.0.extend(later.0);
    }

    /// One shows that others would come to nothing.
    fn is_in_vain(&self) -> bool {
        self.0.iter().any(|(_, result)| result.as_ref().is_err_and(is_in_vain))
    }

    /// The actions, each with what became of it.
    fn tried(&self) -> Vec<(&'a JobAction, Tried)> {
        self.0.iter().map(|(action, result)| (*action, Tried::of(result, failure_of))).collect()
    }

    /// One has succeeded.
    fn is_any_done(&self) -> bool {
        self.0.iter().any(|(_, result)| result.is_ok())
    }

    /// The namespace is being deleted.
    fn is_refused(&self) -> bool {
        self.0.iter().any(|(_, result)| matches!(result, Err(Error::NamespaceTerminating { .. })))
    }

    fn errors(self) -> impl Iterator<Item = Error> {
        self.0.into_iter().filter_map(|(_, result)| result.err())
    }
}

impl<C: Cluster> Actor<'_, C> {
    /// Carries out all actions, several at the same time. A failed action does not stop the others, unless they would
    /// come to nothing as well, and take long: others come first in the next turn. In a namespace that is being deleted
    /// nothing but deletions is tried until a pause is over.
    pub(super) async fn work(&self, actions: &[JobAction]) -> Result<Next, Error> {
        // On the heap: both would have room for all of it.
        let next = Box::pin(self.turn(actions)).await;
        self.note_early_end(actions);
        next
    }

    async fn turn(&self, actions: &[JobAction]) -> Result<Next, Error> {
        let (all_deletions, all_others): (Vec<_>, Vec<_>) = actions.iter().partition(|action| is_deletion(action));
        let now = self.reconciler.cluster.now();
        self.note_what_is_to_be_written(actions);
        let before = self.remember(|entry| entry.pause);
        let is_paused = before.is_some_and(|pause| pause.left(now).is_some());
        let mut deletions = all_deletions.clone();
        let mut others = if is_paused { Vec::new() } else { all_others.clone() };
        let concurrent = self.remember(|entry| {
            let InVain { writes, deletions: of_deletions } = &entry.in_vain;
            writes.put_last(&mut others);
            of_deletions.put_last(&mut deletions);
            if writes.is_none_in_vain() && of_deletions.is_none_in_vain() { CONCURRENT } else { FEW }
        });
        let rolls_out_after = self.put_off_roll_out(&mut others, &mut deletions, now);
        let admits = others.iter().any(|action| matches!(action, JobAction::Admit));
        // The rest comes with the next turn, after those of other jobs.
        let LeftOutOfTurn { is_cut, leaves_for_commit, after_admission } =
            self.cut(&mut others, &mut deletions, admits, now);
        let is_put_off = self.put_off_rewrites(&mut others, now);
        let prepares = others.iter().any(|action| matches!(action, JobAction::Apply(_, WhichGeneration::Proposed)));
        let (mut deleted, written) = future::join(
            Priority::Freeing.of(self.several(&deletions, concurrent)),
            self.until_refused(others, before, concurrent),
        )
        .await;
        if !self.has_advanced.load(Ordering::Relaxed) {
            deleted.add(Priority::Freeing.of(self.several(&after_admission, concurrent)).await);
        }
        let of_requests = Box::pin(Priority::Freeing.of(self.delete_full_requests()));
        let of_requests = self.unless_in_a_hurry(of_requests).await.and_then(Result::err);
        self.remember(|entry| {
            entry.in_vain.writes.note(&all_others, &written.tried());
            entry.in_vain.deletions.note(&all_deletions, &deleted.tried());
        });
        let (mut failed, mut refused, mut going) = (None, None, None);
        // Of a turn that tries nothing, because all of it is left to the next look, nothing is known.
        let has_tried = !written.0.is_empty();
        // What else comes and goes, such as an admission, has no name that something else could have.
        let tried = written.0.iter().filter(|(action, _)| is_apply(action)).count();
        let of_all = (tried, all_others.iter().filter(|action| is_apply(action)).count());
        let is_any_done = deleted.is_any_done() || written.is_any_done();
        for error in deleted.errors().chain(of_requests).chain(written.errors()) {
            match error {
                Error::Terminating { .. } => going = Some(error),
                Error::NamespaceTerminating { .. } => refused = Some(error),
                // One that passes by itself says nothing of the others.
                error if failed.as_ref().is_none_or(Error::is_conflict) => failed = Some(error),
                _ => {}
            }
        }
        let going_for = self.going_for(going.is_some(), of_all, now);
        // Where nothing can be done before something is gone, a turn at once may find it again.
        let goes_on = is_cut && (going.is_none() || is_any_done);
        let pause = self.remember(|entry| {
            match (&refused, has_tried) {
                (Some(_), _) => entry.pause = Some(Pause::after(before, now)),
                (None, true) => entry.pause = None,
                (None, false) => {}
            }
            match failed.as_ref().or(refused.as_ref()).or(going.as_ref()) {
                Some(_) => entry.refusals.failed(),
                // Long work that has failed may be refused still.
                None if prepares && entry.failures.is_empty() => entry.refusals.wrote(),
                None => {}
            }
            let failure = [&failed, &refused, &going].into_iter().flatten().find_map(failure_of);
            if !is_paused || failed.is_some() {
                // What was refused, and has made way for others, is still in the way.
                entry.last_failure = failure.or_else(|| entry.in_vain.failure());
            }
            entry.pause.and_then(|pause| pause.left(now))
        });
        if failed.is_none() && going.is_none() && pause.is_none() && self.early_end.has_left() {
            // Whoever is in a hurry waits for the next look, which decides anew on what was left.
            return Ok(Next::Observe);
        }
        if failed.is_none() && pause.is_none() && (admits || !is_cut) && self.has_advanced.load(Ordering::Relaxed) {
            // The next step may be due; no mirror has to show first what the API server has answered.
            return Ok(Next::Observe);
        }
        let describe = Box::pin(self.describe());
        let described = if failed.is_some() { Some(describe.await) } else { self.unless_in_a_hurry(describe).await };
        let Some(described) = described else { return Ok(Next::Observe) };
        let described = described?;
        if let (None, None, Some(after), Next::Rest(_)) = (&failed, pause, rolls_out_after, &described) {
            return Ok(Next::Rest(Outcome::Later(after)));
        }
        let described = match (pause, going_for, described) {
            (None, Some(left), Next::Rest(outcome)) => Next::Rest(self.at_the_latest(outcome, left)),
            (_, _, described) => described,
        };
        match (failed, pause, described) {
            (Some(error), ..) => Err(error),
            (None, Some(left), Next::Rest(Outcome::Again(delay))) => Ok(Next::Rest(Outcome::Again(delay.min(left)))),
            (None, Some(left), Next::Rest(Outcome::Done)) => Ok(Next::Rest(Outcome::Again(left))),
            (None, _, Next::Rest(_)) if goes_on && leaves_for_commit => Ok(Next::Rest(Outcome::Again(Duration::ZERO))),
            // Jobs that somebody waits for go first, however many turns it takes.
            (None, _, Next::Rest(_)) if goes_on => Ok(Next::Rest(Outcome::Later(Duration::ZERO))),
            (None, _, Next::Rest(_)) if is_put_off => Ok(Next::Rest(Outcome::Again(NEXT_SECOND))),
            (None, _, described) => Ok(described),
        }
    }

    /// After how long what is being deleted is looked for again, if something is (`is_going`): if no mirror shows it,
    /// nothing tells that it is gone (rule job-30). Of all objects that there are to write so many were tried.
    fn going_for(&self, is_going: bool, (tried, all): (usize, usize), now: Timestamp) -> Option<Duration> {
        self.remember(|entry| {
            if !is_going {
                entry.going = entry.going.and_then(|going| going.not_found(tried, all));
                return None;
            }
            let going = Going::found(entry.going, tried, all, now);
            entry.going = Some(going);
            going.left(now)
        })
    }

    /// The same outcome, and a look after so long for what is being deleted. Finalizers may keep that for months, so it
    /// goes after what others wait for, unless somebody waits for this job: nobody does that for so long. A look that
    /// comes before it for another reason is as urgent as without it.
    fn at_the_latest(&self, outcome: Outcome, left: Duration) -> Outcome {
        match outcome {
            Outcome::Again(delay) if delay <= left => Outcome::Again(delay),
            Outcome::Again(_) | Outcome::Done if self.is_waited_for => Outcome::Again(left),
            Outcome::Again(_) | Outcome::Done => Outcome::Later(left),
            outcome => outcome,
        }
    }

    /// Carries these actions out, so many at the same time, until one shows that others would come to nothing.
    async fn several<'b>(&self, actions: &[&'b JobAction], concurrent: usize) -> Done<'b> {
        let is_over = AtomicBool::new(false);
        let carried_out = actions.iter().zip(0_usize..).map(|(action, number)| {
            let is_over = &is_over;
            async move {
                if is_over.load(Ordering::Relaxed) {
                    return None;
                }
                let result = self.one(action).await?;
                if result.as_ref().is_err_and(is_in_vain) {
                    is_over.store(true, Ordering::Relaxed);
                }
                Some((number, *action, result))
            }
        });
        let carried_out: Vec<_> = carried_out.collect();
        let tried = stream::iter(carried_out).buffer_unordered(concurrent).filter_map(future::ready);
        let mut tried: Vec<_> = tried.collect().await;
        tried.sort_by_key(|(number, ..)| *number);
        Done(tried.into_iter().map(|(_, action, result)| (action, result)).collect())
    }

    /// Carries these actions out until one shows that others would come to nothing. In a namespace that is being
    /// deleted (rule job-37) that is the first, which is carried out alone; so is each of them after such a refusal.
    async fn until_refused<'b>(
        &self,
        actions: Vec<&'b JobAction>,
        before: Option<Pause>,
        concurrent: usize,
    ) -> Done<'b> {
        let alone = match before {
            Some(_) => actions.len(),
            // Somebody waits for a resize, and hardly in a namespace that is being deleted.
            None if self.is_waited_for => 0,
            // One alone would be the first of those that fail, if it is they that are left.
            None if concurrent == FEW => 0,
            None => 1,
        };
        // The start of long work is no write. It goes last, where it would be for nothing if a write is refused.
        let (mut starts, writes): (Vec<_>, Vec<_>) =
            actions.into_iter().partition(|action| matches!(action, JobAction::Start(_)));
        let mut done = Done::default();
        if before.is_none() && self.is_waited_for {
            done.add(self.several(&std::mem::take(&mut starts), CONCURRENT).await);
        }
        let (first, rest) = writes.split_at(alone.min(writes.len()));
        for (actions, concurrent) in [(first, 1), (rest, concurrent)] {
            if !done.is_in_vain() {
                done.add(self.several(actions, concurrent).await);
            }
        }
        if !done.is_refused() {
            done.add(self.several(&starts, CONCURRENT).await);
        }
        done
    }

    /// Carries the action out, unless it is left to the next look.
    async fn one(&self, action: &JobAction) -> Option<Result<(), Error>> {
        // On the heap: everything around it would have room for the largest of all actions on the stack.
        let carried_out = Box::pin(self.carry_out(action));
        if self.is_awaited(action) {
            return Some(Priority::Awaited.of(carried_out).await);
        }
        self.unless_it_makes_way(action, carried_out).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn what_passes_by_itself_makes_way_for_nothing() {
        let of_status = |code| Error::from(kube::Error::Api(Status::failure("no", "R").with_code(code).boxed()));
        let conflict = Error::Conflict { kind: "Service".to_owned(), name: "a".to_owned() };
        // result -> whether it came to nothing, and the reason that it was refused for
        let table = [
            (Ok(()), (false, None)),
            (Err(conflict), (false, None)),
            (Err(of_status(503)), (true, None)),
            (Err(of_status(403)), (false, Some("Forbidden"))),
        ];
        for (result, expected) in table {
            let tried = Tried::of(&result, failure_of);
            let reason = if let Tried::Refused(failure) = &tried { Some(failure.reason.as_str()) } else { None };
            assert_eq!((tried == Tried::InVain, reason), expected, "{result:?}");
        }
    }
}
