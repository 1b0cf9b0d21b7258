//! Actions that came to nothing and say that others would, too (rule call-7): the namespace is being deleted, or a
//! write was not answered, perhaps because an admission webhook is down. Each such call may take as long as a call may,
//! so a turn ends with the first of them, and the next turn goes on after it: what fails alone keeps nothing else from
//! being done.
//!
//! Knows: actions and errors. Must not know: how an action is carried out. Pure.

use super::decide::JobAction;
use streams_kubernetes::Error;

/// The last such actions of a turn. The writes and the deletions of a turn end each for themselves.
#[derive(Debug, Default)]
pub(crate) struct InVain {
    /// A write.
    pub(crate) write: Option<JobAction>,
    /// A deletion.
    pub(crate) deletion: Option<JobAction>,
}

/// Whether this is the error of such an action.
pub(super) fn is_in_vain(error: &Error) -> bool {
    matches!(error, Error::NamespaceTerminating { .. }) || error.is_unanswered()
}

/// Lets a turn begin with the action that comes after `last`, if it has that. What concerns requests to resize comes
/// before all objects of the job if one of these came to nothing, and the other way round: a turn may come to no more
/// than a few of either.
pub(super) fn go_on_after(actions: &mut [&JobAction], last: Option<&JobAction>) {
    let Some(last) = last else { return };
    let is_of_request = concerns_requests(last);
    actions.sort_by_key(|action| concerns_requests(action) == is_of_request);
    let of_others = actions.partition_point(|action| concerns_requests(action) != is_of_request);
    let alike = &mut actions[of_others..];
    if let Some(at) = alike.iter().position(|action| *action == last) {
        alike.rotate_left(at + 1);
    }
}

/// Somebody who asks for widths waits for it, whatever becomes of the objects of the job.
fn concerns_requests(action: &JobAction) -> bool {
    matches!(action, JobAction::Admit | JobAction::Tell(..) | JobAction::WriteWidth(_) | JobAction::TakeOver { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_goes_on_after_what_came_to_nothing() {
        let all: Vec<_> = ["a", "b", "c"].into_iter().map(|name| JobAction::RestoreMetadata(name.to_owned())).collect();
        let gone = JobAction::RestoreMetadata("d".to_owned());
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
            go_on_after(&mut actions, last);
            assert_eq!(actions, expected.map(|at: usize| &all[at]), "{last:?}");
        }
        go_on_after(&mut [], Some(&gone));
    }

    #[test]
    fn requests_do_not_wait_for_objects_that_cannot_be_written_nor_objects_for_requests() {
        let object = |name: &str| JobAction::RestoreMetadata(name.to_owned());
        let (a, b, admit, width) =
            (object("a"), object("b"), JobAction::Admit, JobAction::TakeOver { region: 0, width: 2 });
        let table = [
            // last one that came to nothing -> order
            (None, [&a, &admit, &b, &width]),
            (Some(&a), [&admit, &width, &b, &a]),
            (Some(&b), [&admit, &width, &a, &b]),
            (Some(&admit), [&a, &b, &width, &admit]),
            (Some(&width), [&a, &b, &admit, &width]),
        ];
        for (last, expected) in table {
            let mut actions = [&a, &admit, &b, &width];
            go_on_after(&mut actions, last);
            assert_eq!(actions, expected, "{last:?}");
        }
    }
}
