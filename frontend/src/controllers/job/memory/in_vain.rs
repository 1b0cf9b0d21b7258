//! Actions that came to nothing and say that others would, too (rule call-7): the namespace is being deleted, or a
//! write was not answered, perhaps because an admission webhook is down for objects of its kind. Each such call may
//! take as long as a call may, so a turn ends with the first of them. The next turn begins with all other kinds, and
//! goes on within the kind after what has failed: what fails keeps nothing else from being done.
//!
//! Knows: actions and errors. Must not know: how an action is carried out. Pure.

use crate::controllers::job::child::Child;
use crate::controllers::job::decide::JobAction;
use crate::controllers::job::owned::Owned;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::Resource;
use std::borrow::Cow;
use streams_api::{ConsistentRegion, Export, HostPool, Import, ParallelRegion, ProcessingElement, Resize};
use streams_kubernetes::Error;

/// What came to nothing in the last turns. The writes and the deletions of a turn end each for themselves.
#[derive(Debug, Default)]
pub(crate) struct InVain {
    /// Of writes.
    pub(crate) writes: LastInVain,
    /// Of deletions.
    pub(crate) deletions: LastInVain,
}

/// The last action of each kind that came to nothing, as long as none of the kind has succeeded since. What has just
/// failed is the last.
#[derive(Debug, Default)]
pub(crate) struct LastInVain(Vec<JobAction>);

impl LastInVain {
    /// There is none.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts the actions of a turn in order: those of kinds that came to nothing last come last, each kind beginning
    /// with the action after the one that failed. Before all others come those that concern requests to resize:
    /// somebody waits for them, and a turn may come to no more than a few.
    pub(in super::super) fn put_last(&self, actions: &mut [&JobAction]) {
        if self.is_empty() {
            return;
        }
        // From 1; 0 if nothing of the kind came to nothing.
        let place = |action: &JobAction| {
            let of_kind = self.0.iter().zip(1..).find(|(last, _)| kind(last) == kind(action));
            of_kind.map_or(0, |(_, place)| place)
        };
        actions.sort_by_cached_key(|action| (place(action), !concerns_requests(action)));
        for alike in actions.chunk_by_mut(|one, other| kind(one) == kind(other)) {
            if let Some(at) = alike.iter().position(|action| self.0.contains(action)) {
                alike.rotate_left(at + 1);
            }
        }
    }

    /// Of these actions, which were all that there were to do, those in `tried` were tried, each with whether it came
    /// to nothing, in the order of the turn.
    pub(in super::super) fn note(&mut self, actions: &[&JobAction], tried: &[(&JobAction, bool)]) {
        let is_of = |last: &JobAction, action: &JobAction| kind(last) == kind(action);
        self.0.retain(|last| {
            actions.iter().any(|action| is_of(last, action)) && !tried.iter().any(|(action, _)| is_of(last, action))
        });
        for (action, _) in tried.iter().filter(|(_, is_in_vain)| *is_in_vain) {
            self.0.retain(|last| !is_of(last, action));
            self.0.push((*action).clone());
        }
    }
}

/// Whether this is the error of an action that came to nothing. An answer that cannot be read says nothing of other
/// actions: somebody has spoilt that object.
pub(in super::super) fn is_in_vain(error: &Error) -> bool {
    matches!(error, Error::NamespaceTerminating { .. }) || (error.is_unanswered() && !error.is_unreadable())
}

/// Somebody who asks for widths waits for it, whatever becomes of the objects of the job.
fn concerns_requests(action: &JobAction) -> bool {
    matches!(action, JobAction::Admit | JobAction::Tell(..) | JobAction::WriteWidth(_) | JobAction::TakeOver { .. })
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
        JobAction::Admit | JobAction::Tell(..) => Resize::kind(&()),
        JobAction::WriteWidth(_) | JobAction::TakeOver { .. } => ParallelRegion::kind(&()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::job::decide::{Propagation, WhichGeneration};
    use kube::Error as KubeError;
    use kube::core::Status;

    fn config_map(name: &str) -> JobAction {
        JobAction::RestoreMetadata(name.to_owned())
    }

    fn apply(child: Child) -> JobAction {
        JobAction::Apply(child, WhichGeneration::Proposed)
    }

    fn in_vain(actions: &[&JobAction]) -> LastInVain {
        LastInVain(actions.iter().map(|action| (*action).clone()).collect())
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
            let mut last = in_vain(before);
            last.note(actions, tried);
            assert_eq!(last.0, in_vain(expected).0, "{before:?} {tried:?}");
        }
    }
}
