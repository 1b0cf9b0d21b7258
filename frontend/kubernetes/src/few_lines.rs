//! How often people are told of something in the log that others can bring about as often as they like.
//!
//! Knows: times. Must not know: what is told.

use std::time::Duration;
use tokio::time::Instant;

/// Most lines within [`WINDOW`].
const MOST: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// Lines of one kind.
#[derive(Debug, Default)]
pub struct FewLines {
    /// When the window began, and what was to be told since.
    window: Option<(Instant, u32)>,
}

impl FewLines {
    /// There is something to be told. Whether it is, as not many others were lately.
    pub fn has_room(&mut self, now: Instant) -> bool {
        let (since, count) = self.window.filter(|(since, _)| now.duration_since(*since) < WINDOW).unwrap_or((now, 0));
        self.window = Some((since, count.saturating_add(1)));
        count < MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_few_lines_in_a_window_and_as_many_in_the_next_one() {
        let (mut lines, begun) = (FewLines::default(), Instant::now());
        for window in 0..2 {
            let now = begun + WINDOW * window;
            let told = (0..1_000).filter(|_| lines.has_room(now)).count();
            assert_eq!(u32::try_from(told), Ok(MOST), "{window}");
        }
    }
}
