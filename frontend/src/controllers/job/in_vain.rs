//! Actions that came to nothing and say that others would, too: the namespace is being deleted, or a write was not
//! answered, perhaps because an admission webhook is down. Each such call may take as long as a call may, so a turn ends
//! with the first of them, and the next turn goes on after it: what fails alone keeps nothing else from being done.
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

/// Lets a turn begin with the action that comes after `last`, if it has that.
pub(super) fn go_on_after(actions: &mut [&JobAction], last: Option<&JobAction>) {
    let at = last.and_then(|last| actions.iter().position(|action| *action == last));
    if let Some(at) = at {
        actions.rotate_left(at + 1);
    }
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
}
