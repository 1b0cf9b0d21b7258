//! How much of the requests of a job is in memory while they are looked at.
//!
//! A request names up to 256 regions, whose names may be long, and the mirror keeps it packed. There are a thousand of
//! a job, and any number of those that were refused: all of them together may be larger than this process may become.
//! So they are read one after another, and of each is kept what somebody needs:
//!
//! | a request | what is kept of it |
//! |---|---|
//! | has ended without its widths | no regions |
//! | is rolled out | the regions for which it is the newest such request, if an older request is open |
//! | is admitted, and goes on | all |
//! | is new | all; no regions if it is one too many, or names more than there is room for |
//!
//! What becomes of a new request without regions is known: it is refused (rule elasticity-16). No other new one is
//! without.
//!
//! Pure. Knows: requests. Must not know: where they are kept, what becomes of them.

use super::admission::age;
use super::standing::is_new;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use streams_api::resize::RESIZES_MAX;
use streams_api::{Resize, ResizePhase};
use streams_kubernetes::Key;
use streams_kubernetes::watch::Kept;

/// Room for the regions of the requests of a job that go on: for as many as there may be, with names as they are.
const ROOM: usize = 16 << 20;
/// What a region takes besides its name.
const OF_REGION: usize = 32;
/// Regions that take no more than the rest of a request are read with that at once.
const OF_REST: usize = 512;
/// Where the requests of a job take so much, one job is looked at at a time.
pub(crate) const LARGE: usize = 256 << 10;
/// Where there is so much to read of the requests of a job, whatever is kept of it, one job is read at a time: it takes
/// some 10 ms or more.
pub(crate) const MUCH: usize = 4 << 20;

/// A request of which the regions are not read, or are those that it has here.
#[derive(Clone)]
pub(crate) struct InPart {
    request: Arc<Resize>,
    /// All of it, if regions are to be read.
    kept: Option<Kept<Resize>>,
    /// What its regions take.
    room: usize,
}

impl InPart {
    /// What the mirror keeps of a request.
    pub(crate) fn of(kept: Kept<Resize>) -> Option<Self> {
        let request = kept.read()?;
        let room = room(&request);
        if room <= OF_REST {
            return Some(Self { request, kept: None, room });
        }
        Some(Self { request: without_regions(request), kept: Some(kept), room })
    }

    /// A request that is not in the mirror.
    pub(crate) fn whole(request: Arc<Resize>) -> Self {
        Self { room: room(&request), request, kept: None }
    }

    /// The request; perhaps without its regions.
    pub(crate) fn request(&self) -> &Resize {
        &self.request
    }

    fn read(self) -> Arc<Resize> {
        self.kept.and_then(|kept| kept.read()).unwrap_or(self.request)
    }
}

/// Octets that are to be read of these requests.
pub(crate) fn octets_of(requests: &[(Key, Kept<Resize>)]) -> usize {
    requests.iter().map(|(_, kept)| kept.octets()).sum()
}

/// What the regions of these requests take that are read by [`with_regions`], about.
pub(crate) fn room_of(requests: &[InPart]) -> usize {
    requests.iter().filter(|part| !part.request.phase().is_final()).map(|part| part.room).sum::<usize>().min(ROOM)
}

/// All requests of a job, each with the regions that somebody needs.
pub(crate) fn with_regions(requests: Vec<InPart>) -> Vec<Arc<Resize>> {
    let (new, others): (Vec<_>, Vec<_>) = requests.into_iter().partition(|part| is_new(&part.request));
    let regular = RESIZES_MAX.saturating_sub(others.len());
    let (open, ended): (Vec<_>, Vec<_>) = others.into_iter().partition(|part| !part.request.phase().is_final());
    let mut room = ROOM.saturating_sub(open.iter().map(|part| part.room).sum());
    let oldest = open.iter().filter_map(|part| number(&part.request)).min();
    let mut all: Vec<Arc<Resize>> = open.into_iter().map(InPart::read).collect();
    all.extend(with_newest_regions(ended, oldest));
    let mut new: Vec<_> = new.into_iter().map(|part| (age(&part.request), part)).collect();
    new.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (order, (_, part)) in new.into_iter().enumerate() {
        let left = room.checked_sub(part.room).filter(|_| order < regular);
        all.push(match left {
            Some(left) => {
                room = left;
                part.read()
            }
            None => without_regions(part.request),
        });
    }
    all
}

/// What is kept of requests that the mirror shows as they were before, or not at all: what somebody may need of those
/// that have a number or have ended. New ones come with the mirror.
pub(crate) fn until_shown(requests: Vec<Arc<Resize>>) -> Vec<Arc<Resize>> {
    let known = requests.into_iter().filter(|request| !is_new(request));
    let (open, ended): (Vec<_>, Vec<_>) = known.partition(|request| !request.phase().is_final());
    let ended = ended.into_iter().map(InPart::whole).collect();
    open.into_iter().chain(with_newest_regions(ended, Some(0))).collect()
}

/// Of those that have ended: each that is newer than the oldest open one with the regions for which it is the newest
/// that came through.
fn with_newest_regions(ended: Vec<InPart>, oldest: Option<u64>) -> Vec<Arc<Resize>> {
    let is_newer =
        |request: &Resize| oldest.is_some_and(|oldest| number(request).is_some_and(|number| number > oldest));
    let counts = |part: &InPart| part.request.phase() == ResizePhase::RolledOut && is_newer(&part.request);
    let (mut rolled_out, over): (Vec<_>, Vec<_>) = ended.into_iter().partition(counts);
    rolled_out.sort_by_key(|part| Reverse(number(&part.request)));
    let mut known = BTreeSet::new();
    let rolled_out = rolled_out.into_iter().map(|part| {
        let mut request = Arc::unwrap_or_clone(part.read());
        request.spec.regions.retain(|wanted| known.insert(wanted.name.clone()));
        request.spec.regions.shrink_to_fit();
        if let Some(status) = &mut request.status {
            status.regions = Vec::new();
        }
        Arc::new(request)
    });
    let rolled_out: Vec<_> = rolled_out.collect();
    rolled_out.into_iter().chain(over.into_iter().map(|part| without_regions(part.request))).collect()
}

/// A request without what it wants of regions.
pub(crate) fn without_regions(request: Arc<Resize>) -> Arc<Resize> {
    let of_status = request.status.as_ref().map_or(0, |status| status.regions.len());
    if request.spec.regions.is_empty() && of_status == 0 {
        return request;
    }
    let mut request = Arc::unwrap_or_clone(request);
    request.spec.regions = Vec::new();
    if let Some(status) = &mut request.status {
        status.regions = Vec::new();
    }
    Arc::new(request)
}

fn number(request: &Resize) -> Option<u64> {
    request.status.as_ref()?.number
}

fn room(request: &Resize) -> usize {
    request.spec.regions.iter().map(|wanted| wanted.name.len().saturating_add(OF_REGION)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use streams_api::{DesiredWidth, ResizeSpec, ResizeStatus};

    /// A request with this phase and number, or a new one, made in this second, for these regions.
    fn request(phase: Option<ResizePhase>, number: u64, second: i64, regions: &[&str]) -> InPart {
        let wanted = regions.iter().map(|name| DesiredWidth { name: (*name).to_owned(), ..DesiredWidth::default() });
        let mut request =
            Resize::new(&format!("r{number}"), ResizeSpec { regions: wanted.collect(), ..ResizeSpec::default() });
        request.metadata.creation_timestamp = Timestamp::from_second(second).ok().map(Time);
        let status = ResizeStatus { phase, number: Some(number), ..ResizeStatus::default() };
        request.status = phase.map(|_| status);
        InPart::whole(Arc::new(request))
    }

    fn shown(requests: Vec<InPart>) -> Vec<(String, String)> {
        let of = |request: Arc<Resize>| {
            let regions: Vec<_> = request.spec.regions.iter().map(|wanted| wanted.name.as_str()).collect();
            (request.metadata.name.clone().unwrap(), regions.join(" "))
        };
        let mut all: Vec<_> = with_regions(requests).into_iter().map(of).collect();
        all.sort();
        all
    }

    #[test]
    fn of_what_has_ended_those_regions_are_kept_that_outdo_somebody() {
        use ResizePhase::{Cancelled, Pending, Refused, RolledOut, Superseded, Written};
        let row = |phase, number, regions: &[&str]| request(Some(phase), number, 0, regions);
        let all = vec![
            row(RolledOut, 1, &["a", "b"]),
            row(Pending, 2, &["a"]),
            row(RolledOut, 3, &["a", "b"]),
            row(RolledOut, 4, &["b", "c"]),
            row(Written, 5, &["c"]),
            row(Refused, 6, &["a"]),
            row(Superseded, 7, &["b"]),
            row(Cancelled, 8, &["c"]),
        ];
        let expected = ["", "a", "a", "b c", "c", "", "", ""];
        let expected: Vec<_> = (1..).zip(expected).map(|(number, of)| (format!("r{number}"), of.to_owned())).collect();
        assert_eq!(shown(all.clone()), expected);
        let without_open = all.into_iter().filter(|part| part.request.phase().is_final()).collect();
        assert!(shown(without_open).iter().all(|(_, regions)| regions.is_empty()), "nobody is older");
    }

    #[test]
    fn until_the_mirror_shows_them_no_region_is_kept_of_two_that_came_through() {
        use ResizePhase::{Pending, Refused, RolledOut};
        let row = |phase, number, regions: &[&str]| request(phase, number, 0, regions).request;
        let all = vec![
            row(Some(Pending), 1, &["a", "b"]),
            row(Some(RolledOut), 2, &["a", "b"]),
            row(Some(RolledOut), 3, &["b"]),
            row(Some(Refused), 4, &["a"]),
            row(None, 5, &["a"]),
        ];
        let mut kept: Vec<_> = until_shown(all)
            .into_iter()
            .map(|request| {
                let regions: Vec<_> = request.spec.regions.iter().map(|wanted| wanted.name.clone()).collect();
                (request.metadata.name.clone().unwrap(), regions.join(" "))
            })
            .collect();
        kept.sort();
        let expected = [("r1", "a b"), ("r2", "a"), ("r3", "b"), ("r4", "")];
        assert_eq!(kept, expected.map(|(name, regions)| (name.to_owned(), regions.to_owned())));
    }

    #[test]
    fn new_requests_are_read_oldest_first_as_far_as_there_is_room() {
        // requests that are there already, new ones, length of the names of these -> new ones that are read
        let table =
            [(0, 10, 10, 10), (998, 10, 10, 2), (1_000, 10, 10, 0), (0, 20, 1 << 20, 15), (990, 20, 1 << 20, 10)];
        for (there, count, length, expected) in table {
            let name = "x".repeat(length);
            let before = (0..there).map(|number| request(Some(ResizePhase::Refused), number, 0, &[&name[..1]]));
            // The youngest is the first.
            let new =
                (0..count).map(|number| request(None, 5_000 + number, 100 - i64::try_from(number).unwrap(), &[&name]));
            let read = shown(before.chain(new).collect()).into_iter().filter(|(_, regions)| !regions.is_empty());
            let read: Vec<_> = read.map(|(name, _)| name).collect();
            let oldest: Vec<_> = (0..count).rev().take(expected).map(|number| format!("r{}", 5_000 + number)).collect();
            assert_eq!(read, oldest.into_iter().rev().collect::<Vec<_>>(), "{there} {length}");
        }
    }
}
