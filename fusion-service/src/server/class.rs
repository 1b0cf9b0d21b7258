//! Kinds of calls: tickets, workers and memory are given out by them.
//!
//! Knows: which kind is more urgent. Must not know: methods, what is given out.

/// Kinds of work, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CallClass {
    /// A running job waits for it.
    Resize,
    /// Short work, but where a job has to be restored: the second half of a resize or of a submission.
    Render,
    /// Needed once for a job, and the longest work.
    Submit,
    /// Nothing waits for it but the caller.
    DryRun,
}

impl CallClass {
    pub(crate) const ALL: [Self; 4] = [Self::Resize, Self::Render, Self::Submit, Self::DryRun];

    /// Whether its work is long, and makes way for work that is not.
    pub(crate) fn is_long(self) -> bool {
        match self {
            Self::Resize | Self::Render => false,
            Self::Submit | Self::DryRun => true,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Resize => "resize",
            Self::Render => "render",
            Self::Submit => "submit",
            Self::DryRun => "dry_run",
        }
    }
}

/// A value per class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PerClass<T> {
    pub(crate) resize: T,
    pub(crate) render: T,
    pub(crate) submit: T,
    pub(crate) dry_run: T,
}

impl<T> PerClass<T> {
    pub(crate) fn of(&self, class: CallClass) -> &T {
        match class {
            CallClass::Resize => &self.resize,
            CallClass::Render => &self.render,
            CallClass::Submit => &self.submit,
            CallClass::DryRun => &self.dry_run,
        }
    }

    pub(crate) fn of_mut(&mut self, class: CallClass) -> &mut T {
        match class {
            CallClass::Resize => &mut self.resize,
            CallClass::Render => &mut self.render,
            CallClass::Submit => &mut self.submit,
            CallClass::DryRun => &mut self.dry_run,
        }
    }
}
