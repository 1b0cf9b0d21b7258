//! Requests to resize: what is wanted of the regions of a job, by whom, and what becomes of it (rules elasticity-15 to
//! elasticity-18).
//!
//! ```text
//! regions, requests, status --standing--> what is in force, proposed, open, over
//!                                             |
//!                    wishes: edits, then requests, oldest first
//!                                             |
//!                    search: the set to compile next, or who is at fault
//! ```
//!
//! | Module | What it is |
//! |---|---|
//! | [`standing`] | how far each request has come, and which widths are still to be written into specs |
//! | [`known_regions`] | regions by name, with what the job says of each |
//! | [`wishes`] | edits and requests in their order, and the widths that a number of them want together |
//! | [`search`] | which of them is at fault when the compiler refuses a set; what it said about sets |
//! | [`faults`] | which wishes were refused while the next generation is looked for |
//! | [`apart`] | wishes with which compilations come to no end |
//! | [`admission`] | whether a request is admitted, and as what |
//! | [`refused_edits`] | widths in specs that the compiler refused, and what they were refused for |
//! | [`named`] | requests that the status names, and the mirror may not show yet |
//! | [`without_generation`] | requests of a job that has no generation |
//! | [`observe`] | all of it for one look at a job |
//! | [`in_part`] | how much of them is read for that |
//!
//! All of it is pure. Knows: requests, regions, the status of the job. Must not know: plans, clients.
//!
//! Invariants:
//! * a request is committed by the write that commits the generation: `status.proposal.resizes` become
//!   `status.committedResizes` then, so no crash can part the two;
//! * `spec.width` is written for a request only when its widths are in force;
//! * nothing is written to a request whose phase is final.

pub(crate) mod admission;
pub(crate) mod apart;
mod faults;
pub(crate) mod in_part;
pub(crate) mod known_regions;
pub(crate) mod named;
pub(crate) mod observe;
pub(crate) mod refused_edits;
pub(crate) mod search;
pub(crate) mod standing;
pub(crate) mod wishes;
pub(crate) mod without_generation;

pub(crate) use self::observe::Requests;
pub(crate) use self::search::Verdicts;

use streams_api::Resize;

/// How many regions a request is taken to have at least that was not read yet.
const REGIONS_OF_UNREAD: usize = 16;
/// Octets of the JSON of a request that take as long to read as a region takes to be looked at.
const OF_A_REGION: usize = 64;

/// How much there is to look at in these requests.
pub(crate) fn amount<'a>(requests: impl Iterator<Item = &'a Resize>) -> usize {
    requests.map(|request| request.spec.regions.len().max(1)).sum()
}

/// The same in so many requests that were not read yet, and have so many octets together.
pub(crate) fn amount_of_unread(requests: usize, octets: usize) -> usize {
    requests.saturating_mul(REGIONS_OF_UNREAD).max(octets / OF_A_REGION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_requests_that_are_long_are_as_much_to_read_as_many_that_are_short() {
        // requests, octets of each -> as many regions
        for (requests, octets, expected) in [(0, 0, 0), (1, 700, 16), (128, 1_000, 2_048), (2, 1 << 20, 32_768)] {
            assert_eq!(amount_of_unread(requests, requests * octets), expected, "{requests} of {octets}");
        }
    }
}
