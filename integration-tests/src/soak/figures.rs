//! Durations, and percentiles of them.

use std::time::Duration;

/// Durations of one kind of thing.
#[derive(Debug, Clone, Default)]
pub struct Durations(Vec<Duration>);

impl Durations {
    /// One more.
    pub fn add(&mut self, duration: Duration) {
        self.0.push(duration);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The durations that this part of all does not exceed, each 0 to 100 per cent, by the nearest-rank method: one
    /// that was measured. `None` without any.
    pub fn percentiles<const N: usize>(&self, per_cent: [usize; N]) -> Option<[Duration; N]> {
        let mut sorted = self.0.clone();
        sorted.sort();
        let last = sorted.len().checked_sub(1)?;
        let ranked = per_cent.map(|part| {
            let rank = (sorted.len() * part).div_ceil(100).saturating_sub(1);
            sorted.get(rank.min(last)).copied().unwrap_or_default()
        });
        Some(ranked)
    }
}

#[cfg(test)]
mod tests {
    use super::Durations;
    use std::time::Duration;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut durations = Durations::default();
        assert_eq!(durations.percentiles([50]), None);
        for second in [5, 1, 4, 2, 3] {
            durations.add(Duration::from_secs(second));
        }
        let seconds = durations.percentiles([0, 20, 50, 90, 100]).unwrap().map(|duration| duration.as_secs());
        assert_eq!(seconds, [1, 1, 3, 5, 5]);
        assert_eq!(durations.count(), 5);
    }
}
