//! What a job says of its consistent regions that have given up (rule job-56). Pure.
//!
//! Knows: which they are. Must not know: which conditions say it.

use std::collections::BTreeSet;
use streams_api::names;

/// Regions that are listed.
const LISTED: usize = 10;

/// Which consistent regions of the job of this name have given up, and what helps; nothing, if none has.
pub(super) fn words(job: &str, indexes: &BTreeSet<u64>) -> Option<String> {
    let listed = indexes.iter().take(LISTED).map(|index| names::consistent_region(job, *index));
    let mut which = listed.collect::<Vec<_>>().join(", ");
    let (regions, have, them) = match indexes.len() {
        0 => return None,
        1 => ("region", "has", "it"),
        _ => ("regions", "have", "each of them"),
    };
    if let Some(more @ 1..) = indexes.len().checked_sub(LISTED) {
        which.push_str(&format!(" and {more} more"));
    }
    let ask = names::ANNOTATION_RESET_REQUESTED;
    Some(format!(
        "consistent {regions} {which} {have} given up, as too many resets in a row have failed: no checkpoint is made \
         until somebody finds out which PE or operator fails, and annotates {them} with a new value of {ask}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_many_regions_are_listed() {
        // how many have given up -> a part of what is said
        let table = [
            (0, None),
            (1, Some("consistent region job-cr0 has given up")),
            (2, Some("consistent regions job-cr0, job-cr1 have given up")),
            (10, Some("job-cr8, job-cr9 have given up")),
            (13, Some("job-cr8, job-cr9 and 3 more have given up")),
        ];
        for (count, expected) in table {
            let said = words("job", &(0..count).collect());
            assert_eq!(said.is_some(), expected.is_some(), "{count}");
            let said = said.unwrap_or_default();
            assert!(said.contains(expected.unwrap_or_default()), "{count}: {said}");
        }
    }
}
