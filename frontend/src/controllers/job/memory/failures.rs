//! Failures in a row of long work. Pure.

/// Failures in a row of one kind of long work, for one spec of the job.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    spec_generation: Option<i64>,
    count: u32,
}

impl Failures {
    /// Counts another failure. Gives how many there were before.
    pub(crate) fn another(&mut self, spec_generation: Option<i64>) -> u32 {
        if self.spec_generation != spec_generation {
            *self = Self { spec_generation, count: 0 };
        }
        let before = self.count;
        self.count = before.saturating_add(1);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_for_one_spec() {
        let mut failures = Failures::default();
        // generation of the spec -> failures before
        for (generation, before) in [(1, 0), (1, 1), (1, 2), (2, 0)] {
            assert_eq!(failures.another(Some(generation)), before, "{generation}");
        }
    }
}
