//! How many objects may be rewritten because this version of the frontend wants another form of them (rule job-45).
//!
//! Knows: a number per second, for the whole process. Must not know: the objects.

use k8s_openapi::jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

/// Counts rewrites of the present second.
#[derive(Debug)]
pub(crate) struct Rewrites {
    per_second: usize,
    /// The second, and rewrites in it.
    made: Mutex<(i64, usize)>,
}

impl Rewrites {
    /// So many each second.
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: per_second as usize, made: Mutex::new((0, 0)) }
    }

    /// How many are left in this second.
    pub(crate) fn left(&self, now: Timestamp) -> usize {
        self.per_second.saturating_sub(self.in_this_second(now).1)
    }

    /// One is made, if one is left.
    pub(crate) fn take(&self, now: Timestamp) -> bool {
        let mut made = self.in_this_second(now);
        let is_left = made.1 < self.per_second;
        made.1 += usize::from(is_left);
        is_left
    }

    fn in_this_second(&self, now: Timestamp) -> MutexGuard<'_, (i64, usize)> {
        let mut made = self.made.lock();
        if made.0 != now.as_second() {
            *made = (now.as_second(), 0);
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_made_each_second() {
        let rewrites = Rewrites::new(2);
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!([1, 1, 1, 2].map(|second| rewrites.take(at(second))), [true, true, false, true]);
        assert_eq!((rewrites.left(at(2)), rewrites.left(at(3))), (1, 2));
    }
}
