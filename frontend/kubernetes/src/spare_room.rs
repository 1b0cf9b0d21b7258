//! Room of maps: one that was emptied keeps room for the most that it ever had, after a crowd for thousands of keys.
//!
//! Knows: how many entries a map has, and for how many it has room. Must not know: what they are.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Room for so many entries is never given back.
const SMALL: usize = 64;

/// Gives back room that is not needed, to be called after entries were removed. An entry costs a constant on average:
/// after that as many have to be added, or half of those that are left removed, before anything is moved again.
pub fn give_back<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if map.capacity() > SMALL && map.len() * 4 < map.capacity() {
        map.shrink_to(map.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_back_when_most_entries_are_gone_and_seldom() {
        let mut map: HashMap<u32, u32> = (0..10_000).map(|number| (number, number)).collect();
        let mut moves = 0;
        for number in 0..10_000 {
            map.remove(&number);
            let before = map.capacity();
            give_back(&mut map);
            moves += usize::from(map.capacity() != before);
            assert!(map.capacity() <= SMALL || map.len() * 4 >= map.capacity(), "{} of {}", map.len(), map.capacity());
        }
        assert!(map.capacity() <= SMALL && moves <= 9, "room for {}, {moves} moves", map.capacity());
    }
}
