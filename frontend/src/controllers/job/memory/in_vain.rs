//! Actions that came to nothing or were refused, and make way for others.
//!
//! Some say that others would come to nothing, too (rule call-7): the namespace is being deleted, or a write was not
//! answered, perhaps because an admission webhook is down for objects of its kind. Each such call may take as long as a
//! call may, so a turn ends with the first of them. The next turn begins with all other kinds, and goes on within the
//! kind after what has failed: what fails keeps nothing else from being done.
//!
//! An action that was refused with an answer says nothing of others. But it is there again at the next turn, and if a
//! turn has not all that there is to do, those that are refused could be all that it has, again and again. So the turn
//! after one that has left something out goes on after them in the same way (rule job-3).
//!
//! Knows: actions and errors. Must not know: how an action is carried out. Pure.

use crate::controllers::job::child::Child;
use crate::controllers::job::decide::{JobAction, StoredDocument, WhichGeneration};
use crate::controllers::job::owned::Owned;
use crate::controllers::job::tasks::Failure;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::Resource;
use std::borrow::Cow;
use streams_api::{ConsistentRegion, Export, HostPool, Import, ParallelRegion, ProcessingElement, Resize};
use streams_kubernetes::Error;

/// What came to nothing in the last turns, or was refused. The writes and the deletions of a turn end each for
/// themselves.
#[derive(Debug, Default)]
pub(crate) struct InVain {
    /// Of writes.
    pub(crate) writes: MakesWay,
    /// Of deletions.
    pub(crate) deletions: MakesWay,
}

impl InVain {
    /// Why something was refused that is to be tried again: it is still in the way.
    pub(in super::super) fn failure(&self) -> Option<Failure> {
        self.writes.failure().or_else(|| self.deletions.failure()).cloned()
    }

    /// The proposal is another one, or none: nobody tries again what was refused to it.
    pub(in super::super) fn forget_proposal(&mut self) {
        self.writes.refused.retain(|(last, _)| !is_for_the_proposal(last));
    }
}

/// What became of an action that was tried.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) enum Tried {
    /// It is done, or passes by itself.
    Done,
    /// It failed for this reason, and others need not.
    Refused(Failure),
    /// It came to nothing, and says that others would, too.
    InVain,
}

impl Tried {
    /// What this result says, given how to say why an action failed; of an error that passes by itself nothing is said.
    pub(in super::super) fn of(result: &Result<(), Error>, failure: impl FnOnce(&Error) -> Option<Failure>) -> Self {
        match result {
            Err(error) if is_in_vain(error) => Self::InVain,
            Err(error) => failure(error).map_or(Self::Done, Self::Refused),
            Ok(()) => Self::Done,
        }
    }
}

/// Whether the second action says something of the first.
type IsOf = fn(&JobAction, &JobAction) -> bool;

/// What comes last in the next turn. What has just failed is the last of each list.
#[derive(Debug, Default)]
pub(crate) struct MakesWay {
    /// The last action of each kind that came to nothing, as long as none of the kind was answered since.
    in_vain: Vec<JobAction>,
    /// The last action of each group that was refused in a turn which had not tried everything, and why, until it is
    /// tried again or is not due any more. It comes last of its group, so all others that were refused with it are
    /// tried before.
    refused: Vec<(JobAction, Failure)>,
}

impl MakesWay {
    /// Whether nothing came to nothing. What is refused does not count: a turn is what it always is.
    pub(in super::super) fn is_none_in_vain(&self) -> bool {
        self.in_vain.is_empty()
    }

    /// Why what was refused last was refused.
    fn failure(&self) -> Option<&Failure> {
        self.refused.last().map(|(_, failure)| failure)
    }

    /// Puts the actions of a turn in order: groups of which something was refused come after the others, and kinds that
    /// came to nothing last come last, each beginning with the action after the one that failed. Before all others come
    /// those that concern requests to resize: somebody waits for them, and a turn may come to no more than a few.
    pub(in super::super) fn put_last(&self, actions: &mut [&JobAction]) {
        if self.in_vain.is_empty() && self.refused.is_empty() {
            return;
        }
        // From 1; 0 if nothing like it has failed.
        let place = |action: &JobAction| {
            let of_kind = self.in_vain.iter().position(|last| kind(last) == kind(action));
            let of_group = || self.refused.iter().position(|(last, _)| is_of_group(last, action));
            of_kind.map(|at| self.refused.len() + at + 1).or_else(|| Some(of_group()? + 1)).unwrap_or(0)
        };
        actions.sort_by_cached_key(|action| (place(action), !concerns_requests(action)));
        for alike in actions.chunk_by_mut(|one, other| place(one) == place(other)) {
            let last = alike.first().and_then(|action| place(action).checked_sub(1));
            let last = last.and_then(|at| self.refused.iter().map(|(last, _)| last).chain(&self.in_vain).nth(at));
            if let Some(at) = last.and_then(|last| alike.iter().position(|action| is_same(last, action))) {
                alike.rotate_left(at + 1);
            }
        }
    }

    /// Of these actions, which were all that there were to do, those in `tried` were tried, each with what became of
    /// it, in the order of the turn.
    pub(in super::super) fn note(&mut self, actions: &[&JobAction], tried: &[(&JobAction, Tried)]) {
        let is_of_kind = |last: &JobAction, action: &JobAction| kind(last) == kind(action);
        // What of a group is written says nothing of what was refused of it.
        self.in_vain.retain(|last| stays(last, actions, tried, is_of_kind));
        self.refused.retain(|(last, _)| stays(last, actions, tried, is_same));
        let were_all_tried = tried.len() == actions.len();
        for (action, became) in tried {
            match became {
                Tried::InVain => {
                    self.in_vain.retain(|last| !is_of_kind(last, action));
                    self.in_vain.push((*action).clone());
                }
                // An admission is of no group: it is one action.
                Tried::Refused(failure) if !were_all_tried && is_of_group(action, action) => {
                    self.refused.retain(|(last, _)| !is_of_group(last, action));
                    self.refused.push(((*action).clone(), failure.clone()));
                }
                Tried::Refused(_) | Tried::Done => {}
            }
        }
    }
}

/// Whether this is the error of an action that came to nothing. An answer that cannot be read says nothing of other
/// actions: somebody has spoilt that object.
pub(in super::super) fn is_in_vain(error: &Error) -> bool {
    matches!(error, Error::NamespaceTerminating { .. }) || (error.is_unanswered() && !error.is_unreadable())
}

/// Whether the action is still due, and none was tried that answers it.
fn stays(last: &JobAction, actions: &[&JobAction], tried: &[(&JobAction, Tried)], answers: IsOf) -> bool {
    actions.iter().any(|action| answers(last, action)) && !tried.iter().any(|(action, _)| answers(last, action))
}

/// It is due as long as there is this proposal.
fn is_for_the_proposal(action: &JobAction) -> bool {
    use WhichGeneration::Proposed;
    matches!(action, JobAction::Apply(_, Proposed) | JobAction::StoreAgain(StoredDocument::Plan(Proposed)))
}

/// Somebody who asks for widths waits for it, whatever becomes of the objects of the job.
fn concerns_requests(action: &JobAction) -> bool {
    matches!(action, JobAction::Admit | JobAction::Tell(..) | JobAction::WriteWidth(_) | JobAction::TakeOver { .. })
}

/// Whether an action is of the group of one that was refused: of the same kind, and for the same generation, as
/// somebody may wait for the next one; what requests are told is apart from all else. There is one admission only.
fn is_of_group(last: &JobAction, action: &JobAction) -> bool {
    let group = |action: &JobAction| (kind(action), is_for_the_proposal(action), concerns_requests(action));
    *last != JobAction::Admit && *action != JobAction::Admit && group(last) == group(action)
}

/// Whether an action is another try of what was tried last. What a request is told says when that was found, and
/// somebody may want another width meanwhile: that is no other action.
fn is_same(last: &JobAction, action: &JobAction) -> bool {
    match (last, action) {
        (JobAction::Tell(last, _), JobAction::Tell(name, _)) => last == name,
        (JobAction::WriteWidth(last), JobAction::WriteWidth(unwritten)) => last.index == unwritten.index,
        (JobAction::TakeOver { region: last, .. }, JobAction::TakeOver { region, .. }) => last == region,
        _ => last == action,
    }
}

/// The kind of the objects that an action writes or deletes. `None` for the start of long work, which writes for
/// itself.
fn kind(action: &JobAction) -> Option<Cow<'static, str>> {
    Some(match action {
        JobAction::Start(_) => return None,
        JobAction::Apply(child, _) | JobAction::Delete(Owned::Child(child), _) => match child {
            Child::ProcessingElement(_) => ProcessingElement::kind(&()),
            Child::Service(_) | Child::ConsistentRegionService => Service::kind(&()),
            Child::Region(_) => ParallelRegion::kind(&()),
            Child::HostPool(_) => HostPool::kind(&()),
            Child::JobConfigMap => ConfigMap::kind(&()),
            Child::Export(_) => Export::kind(&()),
            Child::Import(_) => Import::kind(&()),
            Child::ConsistentRegion(_) => ConsistentRegion::kind(&()),
            Child::TransportSecret => Secret::kind(&()),
        },
        JobAction::RestoreMetadata(_) | JobAction::StoreAgain(_) | JobAction::Delete(Owned::ConfigMap(_), _) => {
            ConfigMap::kind(&())
        }
        JobAction::EndPods(_) => Pod::kind(&()),
        JobAction::Admit | JobAction::Tell(..) => Resize::kind(&()),
        JobAction::WriteWidth(_) | JobAction::TakeOver { .. } => ParallelRegion::kind(&()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::decide::Propagation;
    use crate::controllers::job::requests::observe::ToTell;
    use crate::controllers::job::tasks::Remedy;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use kube::Error as KubeError;
    use kube::core::Status;
    use streams_api::{ResizeStatus, UnwrittenWidth};

    fn config_map(name: &str) -> JobAction {
        JobAction::RestoreMetadata(name.to_owned())
    }

    fn apply(child: Child) -> JobAction {
        JobAction::Apply(child, WhichGeneration::Proposed)
    }

    /// The request of this name is told that it ended at this second.
    fn tell(name: &str, second: i64) -> JobAction {
        let finished_at = Timestamp::from_second(second).ok().map(Time);
        let status = ResizeStatus { finished_at, ..ResizeStatus::default() };
        JobAction::Tell(name.to_owned(), Box::new(ToTell { version: Some(second.to_string()), status }))
    }

    fn write_width(index: u64, width: u32) -> JobAction {
        JobAction::WriteWidth(UnwrittenWidth { index, width, ..UnwrittenWidth::default() })
    }

    fn failure(reason: &str) -> Failure {
        let (remedy, reason) = (Remedy::Retry(Timestamp::MAX), reason.to_owned());
        Failure { remedy, reason, message: String::new(), stage: None, code: None }
    }

    fn in_vain(actions: &[&JobAction]) -> MakesWay {
        MakesWay { in_vain: actions.iter().map(|action| (*action).clone()).collect(), refused: Vec::new() }
    }

    fn refused(actions: &[&JobAction]) -> MakesWay {
        let refused = actions.iter().map(|action| ((*action).clone(), failure("R"))).collect();
        MakesWay { in_vain: Vec::new(), refused }
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_an_answer() {
        let of_answer = |text: &str| Error::from(KubeError::SerdeError(serde_json::from_str::<u8>(text).unwrap_err()));
        let of_status = |code| Error::from(KubeError::Api(Status::failure("no", "R").with_code(code).boxed()));
        let table = [
            (of_answer(r#"{"kind": "Export"}"#), false),
            // It is not from the API server, or not all of it.
            (of_answer("<html>"), true),
            (of_answer(""), true),
            (of_status(503), true),
            (of_status(403), false),
        ];
        for (error, expected) in table {
            assert_eq!(is_in_vain(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn a_turn_goes_on_after_what_came_to_nothing() {
        let all: Vec<_> = ["a", "b", "c"].into_iter().map(config_map).collect();
        let gone = config_map("d");
        // last one that came to nothing -> order
        let table = [
            (None, [0, 1, 2]),
            (Some(&all[0]), [1, 2, 0]),
            (Some(&all[1]), [2, 0, 1]),
            (Some(&all[2]), [0, 1, 2]),
            (Some(&gone), [0, 1, 2]),
        ];
        for (last, expected) in table {
            let mut actions: Vec<_> = all.iter().collect();
            in_vain(last.as_slice()).put_last(&mut actions);
            assert_eq!(actions, expected.map(|at: usize| &all[at]), "{last:?}");
        }
        in_vain(&[&gone]).put_last(&mut []);
    }

    #[test]
    fn what_is_of_a_kind_that_came_to_nothing_comes_after_all_else_and_requests_come_before_objects() {
        let (map, other_map, pe) = (config_map("a"), config_map("b"), apply(Child::ProcessingElement(1)));
        let (service, of_regions) = (apply(Child::Service(1)), apply(Child::ConsistentRegionService));
        let (admit, width) = (JobAction::Admit, JobAction::TakeOver { region: 0, width: 2 });
        let all = [&map, &admit, &service, &pe, &other_map, &of_regions, &width];
        // what came to nothing, the last one last -> order
        let table: [(&[&JobAction], [&JobAction; 7]); 6] = [
            (&[], all),
            (&[&map], [&admit, &width, &service, &pe, &of_regions, &other_map, &map]),
            (&[&service], [&admit, &width, &map, &pe, &other_map, &of_regions, &service]),
            (&[&admit], [&width, &map, &service, &pe, &other_map, &of_regions, &admit]),
            (&[&width], [&admit, &map, &service, &pe, &other_map, &of_regions, &width]),
            (&[&of_regions, &map], [&admit, &width, &pe, &service, &of_regions, &other_map, &map]),
        ];
        for (last, expected) in table {
            let mut actions = all;
            in_vain(last).put_last(&mut actions);
            assert_eq!(actions, expected, "{last:?}");
        }
    }

    #[test]
    fn a_kind_comes_last_until_an_action_of_it_succeeds_or_there_is_none() {
        let (service, other, pe, map) =
            (apply(Child::Service(1)), apply(Child::Service(2)), apply(Child::ProcessingElement(1)), config_map("a"));
        let gone = JobAction::Delete(Owned::Child(Child::Service(3)), Propagation::Background);
        let all = [&service, &other, &pe, &map];
        // what came to nothing before, what there is to do, what was tried and whether that came to nothing -> what
        // comes last
        let table: [(&[&JobAction], &[&JobAction], &[(&JobAction, bool)], &[&JobAction]); 8] = [
            (&[], &all, &[(&service, true), (&pe, false)], &[&service]),
            (&[], &all, &[(&service, true), (&pe, true), (&other, true)], &[&pe, &other]),
            (&[&service], &all, &[(&pe, false), (&map, true)], &[&service, &map]),
            (&[&service, &pe], &all, &[(&map, false), (&other, true)], &[&pe, &other]),
            (&[&service], &all, &[(&other, false)], &[]),
            (&[&service], &all, &[(&other, false), (&service, true)], &[&service]),
            (&[&service, &pe], &[&pe, &map], &[], &[&pe]),
            (&[&gone], &all, &[], &[&gone]),
        ];
        for (before, actions, tried, expected) in table {
            let became = |is_in_vain: &bool| if *is_in_vain { Tried::InVain } else { Tried::Done };
            let tried: Vec<_> = tried.iter().map(|(action, is_in_vain)| (*action, became(is_in_vain))).collect();
            let mut last = in_vain(before);
            last.note(actions, &tried);
            assert_eq!(last.in_vain, in_vain(expected).in_vain, "{before:?} {tried:?}");
            assert_eq!(last.failure(), None, "{before:?} {tried:?}");
        }
    }

    #[test]
    fn a_group_of_which_something_was_refused_comes_after_the_others_and_goes_on_after_that() {
        let service = |id, of| JobAction::Apply(Child::Service(id), of);
        let (committed, proposed) = (WhichGeneration::Committed, WhichGeneration::Proposed);
        let (new, one, two) = (service(9, proposed), service(1, committed), service(2, committed));
        let (pe, map) = (JobAction::Apply(Child::ProcessingElement(1), committed), config_map("a"));
        let (admit, width) = (JobAction::Admit, JobAction::TakeOver { region: 0, width: 2 });
        let all = [&new, &width, &admit, &one, &pe, &two, &map];
        // what was refused, the last one last, what came to nothing -> order
        let table: [(&[&JobAction], &[&JobAction], [&JobAction; 7]); 6] = [
            (&[], &[], all),
            (&[&one], &[], [&width, &admit, &new, &pe, &map, &two, &one]),
            (&[&new], &[], [&width, &admit, &one, &pe, &two, &map, &new]),
            (&[&two, &map], &[], [&width, &admit, &new, &pe, &one, &two, &map]),
            (&[&one], &[&pe], [&width, &admit, &new, &map, &two, &one, &pe]),
            (&[&one], &[&two], [&width, &admit, &pe, &map, &new, &one, &two]),
        ];
        for (of_answers, without_answer, expected) in table {
            let mut actions = all;
            let last = MakesWay { in_vain: in_vain(without_answer).in_vain, ..refused(of_answers) };
            last.put_last(&mut actions);
            assert_eq!(actions, expected, "{of_answers:?} {without_answer:?}");
            assert_eq!(last.is_none_in_vain(), without_answer.is_empty(), "what is refused makes no turn smaller");
        }
    }

    /// Time has passed since, and somebody wants another width.
    #[test]
    fn what_was_refused_is_found_again_though_it_says_something_else_by_now() {
        let take_over = |region, width| JobAction::TakeOver { region, width };
        let [a, b, c] = ["a", "b", "c"].map(|name| [tell(name, 1), tell(name, 2)]);
        let (one, two) = ([write_width(1, 2), write_width(1, 3)], [write_width(2, 2), write_width(2, 2)]);
        let (three, four) = ([take_over(1, 2), take_over(1, 3)], [take_over(2, 2), take_over(2, 4)]);
        // what is due, as it was and as it is now; which of them was refused -> order
        let table: [(&[&[JobAction; 2]], usize, &[usize]); 4] = [
            (&[&a, &b, &c], 1, &[2, 0, 1]),
            (&[&a, &b, &c], 2, &[0, 1, 2]),
            (&[&one, &two], 0, &[1, 0]),
            (&[&one, &two, &three, &four], 2, &[3, 0, 1, 2]),
        ];
        for (due, at, expected) in table {
            let now: Vec<_> = due.iter().map(|[_, now]| now).collect();
            let mut last = refused(&[&due[at][0]]);
            let mut actions = now.clone();
            last.put_last(&mut actions);
            assert_eq!(actions, expected.iter().map(|at| now[*at]).collect::<Vec<_>>(), "{at} {due:?}");
            last.note(&now, &[]);
            assert!(last.failure().is_some(), "it is not tried: {at} {due:?}");
            last.note(&now, &[(now[at], Tried::Done)]);
            assert_eq!(last.failure(), None, "it is done: {at} {due:?}");
        }
    }

    #[test]
    fn what_was_refused_is_remembered_if_not_everything_was_tried_until_it_is_tried_again_or_not_due() {
        use Tried::{Done, InVain};
        let refused_now = || Tried::Refused(failure("R"));
        let (service, other, pe, map) =
            (apply(Child::Service(1)), apply(Child::Service(2)), apply(Child::ProcessingElement(1)), config_map("a"));
        let all = [&service, &other, &pe, &map];
        // what was refused before, what there is to do, what was tried and what became of it -> what is remembered
        let table: [(&[&JobAction], &[&JobAction], &[(&JobAction, Tried)], &[&JobAction]); 11] = [
            (&[], &all, &[(&service, refused_now()), (&other, Done)], &[&service]),
            (&[], &all, &[(&service, refused_now()), (&pe, refused_now()), (&other, refused_now())], &[&pe, &other]),
            (&[], &all, &[(&service, refused_now()), (&other, refused_now()), (&pe, Done), (&map, Done)], &[]),
            (&[], &all, &[(&service, InVain)], &[]),
            (&[&service], &all, &[(&pe, Done), (&map, Done)], &[&service]),
            (&[&service], &all, &[(&pe, Done), (&map, refused_now())], &[&service, &map]),
            (&[&service], &all, &[(&pe, Done), (&other, Done)], &[&service]),
            (&[&service], &all, &[(&other, Done), (&service, Done)], &[]),
            (&[&service], &all, &[(&other, refused_now())], &[&other]),
            (&[&service], &[&other, &pe, &map], &[(&pe, Done)], &[]),
            (&[&service], &[&pe, &map], &[(&pe, Done)], &[]),
        ];
        for (before, actions, tried, expected) in table {
            let mut last = refused(before);
            last.note(actions, tried);
            assert_eq!(last.refused, refused(expected).refused, "{before:?} {tried:?}");
        }
    }

    #[test]
    fn what_was_refused_last_is_said_until_it_is_tried_again_or_its_proposal_is_gone() {
        let service = |id, of| JobAction::Apply(Child::Service(id), of);
        let [new, old] = [WhichGeneration::Proposed, WhichGeneration::Committed].map(|of| service(1, of));
        let (map, deletion) =
            (config_map("a"), JobAction::Delete(Owned::ConfigMap("b".to_owned()), Propagation::Background));
        let refused_as = |reason| Tried::Refused(failure(reason));
        let mut all = InVain::default();
        let reason = |all: &InVain| all.failure().map(|failure| failure.reason);
        all.deletions.note(&[&deletion, &deletion], &[(&deletion, refused_as("a deletion"))]);
        assert_eq!(reason(&all).as_deref(), Some("a deletion"));
        let writes = [&old, &map, &new];
        all.writes.note(&writes, &[(&old, refused_as("old")), (&new, refused_as("new"))]);
        assert_eq!(reason(&all).as_deref(), Some("new"));
        all.writes.note(&writes, &[(&map, Tried::Done)]);
        assert_eq!(reason(&all).as_deref(), Some("new"));
        all.forget_proposal();
        assert_eq!(reason(&all).as_deref(), Some("old"));
        all.writes.note(&writes, &[(&old, Tried::Done)]);
        assert_eq!(reason(&all).as_deref(), Some("a deletion"));
    }
}
