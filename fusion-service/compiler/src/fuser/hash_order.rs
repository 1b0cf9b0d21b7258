//! Iteration order of Java 8 hash sets (rule fusion-18).
//!
//! The work list of manual fusion begins in the order in which the reference implementation iterates a hash set, and
//! the partition depends on that order. Only this module knows it. It is exact as long as no bucket holds more than
//! eight entries. Units of single operators never reach that, because their hashes are consecutive numbers. Units of
//! several operators could: their hashes are sums.

/// Positions of the items in the order in which a hash set copied from them is iterated. `hashes` are the items' hash
/// codes, in order of insertion.
pub(super) fn copied_set_order(hashes: &[u32]) -> Vec<u32> {
    let mask = capacity_of_copy(hashes.len()) - 1;
    let bucket = |hash: u32| (hash ^ (hash >> 16)) as usize & mask;
    let mut order: Vec<u32> = (0_u32..).take(hashes.len()).collect();
    order.sort_by_key(|&item| bucket(hashes[item as usize]));
    order
}

/// Table size of a set that is made from a collection of `items` (the rule before JDK 19).
fn capacity_of_copy(items: usize) -> usize {
    (items * 4 / 3 + 1).max(16).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_follow_the_old_rule() {
        for (items, capacity) in [(0, 16), (1, 16), (11, 16), (12, 32), (13, 32), (23, 32), (24, 64), (48, 128)] {
            assert_eq!(capacity_of_copy(items), capacity, "{items} items");
        }
    }

    #[test]
    fn order_is_by_bucket_then_insertion() {
        // Five operators, hashes 62..66: buckets 14, 15, 0, 1, 2 (the example of rule fusion-18).
        assert_eq!(copied_set_order(&[62, 63, 64, 65, 66]), [2, 3, 4, 0, 1]);
        assert_eq!(copied_set_order(&[16, 32, 0, 1]), [0, 1, 2, 3]);
        // The upper half of a hash takes part.
        assert_eq!(copied_set_order(&[0x0003_0000, 1]), [1, 0]);
    }
}
