//! Lists of regions and requests, in pages (rule elasticity-21).
//!
//! Knows: the order of lists, tokens of pages. Must not know: how a region or a request is shown, who calls.

use super::Elasticity;
use super::errors;
use super::ready::ReadyWidths;
use super::region::{self, JobOfRegions, Wanted};
use super::service::{check_name, check_namespace};
use super::state::state;
use super::view::ClusterView;
use crate::grpc::pages::Page;
use crate::mirrors::job_of;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use streams_api::{Job, ParallelRegion, Resize};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes::watch::Kept;
use streams_proto::elasticity::v1::{
    ListRegionsRequest, ListRegionsResponse, ListResizesRequest, ListResizesResponse, Region,
};
use tonic::Status;

/// Requests of a page if the caller does not say: all of them. An entry may be large, so this page is cut like others
/// where it has as many bytes as a page may have.
const ALL_RESIZES: usize = usize::MAX;

/// What is seen of a job at one moment, as far as its regions are shown by it.
pub(super) struct Sight {
    name: String,
    job: Option<JobOfRegions>,
    wanted: Wanted,
    ready: Arc<ReadyWidths>,
}

/// How old ready widths may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    /// Found out now: who tells of them looks again only after a change.
    Now,
    /// Found out a moment ago.
    Lately,
}

impl Sight {
    /// A region of this job.
    pub(super) fn region(&self, object: &ParallelRegion) -> Region {
        region::region(object, self.job.as_ref(), &self.wanted, &self.ready)
    }
}

/// Where a request is in a list: newer ones first. Those of one second go by their numbers; one that has none yet is
/// the newest, and may be listed again when it has got one.
#[derive(Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(super) struct Place {
    created: Reverse<Option<Timestamp>>,
    number: Reverse<u64>,
    name: String,
}

/// What a list of requests is ordered by, of a request that may be large.
#[derive(Deserialize)]
struct Ordered {
    metadata: ObjectMeta,
    status: Option<Numbered>,
}

#[derive(Deserialize)]
struct Numbered {
    number: Option<u64>,
}

impl Place {
    fn of(Ordered { metadata, status }: &Ordered) -> Self {
        Self {
            created: Reverse(metadata.creation_timestamp.as_ref().map(|at| at.0)),
            number: Reverse(status.as_ref().and_then(|status| status.number).unwrap_or(u64::MAX)),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

/// Where a region is in a list: name of the job, of the region, of the object, since several objects may say that they
/// are of one region. A token of an earlier release has no object.
#[derive(Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(super) struct RegionPlace(String, String, #[serde(default)] String);

impl RegionPlace {
    fn of(region: &ParallelRegion) -> Self {
        Self(region.spec.job_name.clone(), region.spec.name.clone(), region.name_any())
    }
}

/// A page of the list of a job, or of all jobs of a namespace.
pub(super) struct Asked<K> {
    pub(super) namespace: String,
    pub(super) job: Option<String>,
    page: Page<K>,
}

impl<V: ClusterView> Elasticity<V> {
    /// What is seen of a job that has these regions. It takes a while ([`Elasticity::look_off_thread`]).
    pub(super) fn sight(&self, namespace: &str, name: &str, regions: &[Arc<ParallelRegion>]) -> Sight {
        self.sight_of(namespace, name, regions, Age::Lately)
    }

    fn sight_of(&self, namespace: &str, name: &str, regions: &[Arc<ParallelRegion>], age: Age) -> Sight {
        // Whoever lists a namespace looks at all of its jobs.
        let job = self.view.job_in_passing(namespace, name);
        let ready = job.as_deref().map(|job| self.ready(namespace, name, job, age)).unwrap_or_default();
        self.sight_with(namespace, name, regions, job, ready)
    }

    /// What is seen of a job, without looking at its PEs, for answers that nobody must wait longer for than needed. The
    /// requests that have not ended are read for it.
    pub(super) fn sight_at_once(&self, Key { namespace, name }: &Key) -> Sight {
        let job = self.view.job(namespace, name);
        let ready = job.as_deref().and_then(ReadyWidths::by_job).unwrap_or_default();
        let home = self.view.first_region(namespace, name);
        self.sight_with(namespace, name, home.as_slice(), job, Arc::new(ready))
    }

    /// Who is ready, by the PEs of a generation, is found out once for all who ask within a moment.
    fn ready(&self, namespace: &str, name: &str, job: &Job, age: Age) -> Arc<ReadyWidths> {
        if let Some(ready) = ReadyWidths::by_job(job) {
            return Arc::new(ready);
        }
        let generation = job.status.as_ref().and_then(|status| status.generation);
        let of = (Key::new(namespace, name), generation);
        if let Some(ready) = self.ready.get(&of).filter(|_| age == Age::Lately) {
            return ready;
        }
        let begun = Instant::now();
        let ready = Arc::new(ReadyWidths::by_pes(job, self.view.processing_elements(namespace, name)));
        self.ready.put(of, &ready, begun.elapsed());
        ready
    }

    fn sight_with(
        &self,
        namespace: &str,
        name: &str,
        regions: &[Arc<ParallelRegion>],
        job: Option<Arc<Job>>,
        ready: Arc<ReadyWidths>,
    ) -> Sight {
        let wanted = Wanted::of(regions, self.view.open_resizes(namespace, name));
        Sight { name: name.to_owned(), job: job.map(JobOfRegions::of), wanted, ready }
    }

    /// The job of a request, if it is there. Another one of its name, whose requests have the same numbers, says
    /// nothing of it.
    pub(super) fn job_around(&self, request: &Resize) -> Option<Arc<Job>> {
        let job = self.view.job(&request.namespace().unwrap_or_default(), &request.spec.job_name);
        job.filter(|job| is_controlled_by(&request.metadata, &**job))
    }

    /// The regions of a job, or of all jobs of a namespace, as they are now, by names of job, region and object; none
    /// if they are too many. It takes a while ([`Elasticity::look_off_thread`]).
    pub(super) fn regions_now(&self, namespace: &str, job: Option<&str>) -> Option<Vec<Region>> {
        let mut objects = self.view.regions(namespace, job)?;
        objects.sort_by(|a, b| {
            let (spec, other) = (&a.spec, &b.spec);
            (&spec.job_name, &spec.name, &a.metadata.name).cmp(&(&other.job_name, &other.name, &b.metadata.name))
        });
        let (mut regions, by_job) = (Vec::with_capacity(objects.len()), by_job(&objects));
        for objects in objects.chunk_by(|a, b| a.spec.job_name == b.spec.job_name) {
            let Some(name) = objects.first().map(|first| first.spec.job_name.as_str()) else { continue };
            let sight = self.sight_of(namespace, name, by_job.get(name).map_or(&[], Vec::as_slice), Age::Now);
            regions.extend(objects.iter().map(|object| sight.region(object)));
        }
        Some(regions)
    }

    /// Of which job something is to be listed; `None`: of all jobs of the namespace.
    ///
    /// # Errors
    /// There is no such job, or a name is none; the namespace may not be read.
    pub(super) fn scope(&self, namespace: &str, job: String) -> Result<Option<String>, Status> {
        check_namespace("namespace", namespace)?;
        if !job.is_empty() {
            check_name("job", &job)?;
        }
        self.sees(namespace)?;
        if job.is_empty() {
            return Ok(None);
        }
        self.job(namespace, &job)?;
        Ok(Some(job))
    }

    /// Which page of regions is asked for.
    ///
    /// # Errors
    /// There is no such job, a name is none, or the token is of another list.
    pub(super) fn page_of_regions(&self, request: ListRegionsRequest) -> Result<Asked<RegionPlace>, Status> {
        let ListRegionsRequest { namespace, job, page_size, page_token } = request;
        let job = self.scope(&namespace, job)?;
        let list = format!("regions of {namespace}/{}", job.as_deref().unwrap_or_default());
        let page = Page::of(list, page_size, &page_token, None).map_err(errors::bad_token)?;
        Ok(Asked { namespace, job, page })
    }

    /// This page of regions; none if all of them are too many. It takes a while ([`Elasticity::look_off_thread`]).
    pub(super) fn regions_in(&self, asked: Asked<RegionPlace>) -> Option<ListRegionsResponse> {
        let Asked { namespace, job, page } = asked;
        let objects = self.view.regions(&namespace, job.as_deref())?;
        let all = objects.iter().map(|object| (RegionPlace::of(object), Arc::clone(object)));
        let (by_job, all) = (by_job(&objects), all.collect());
        let mut sight: Option<Sight> = None;
        let (regions, next_page_token) = page.cut(all, |object| {
            // The regions of a job follow each other.
            let name = &object.spec.job_name;
            let known = sight.take().filter(|sight| sight.name == *name);
            let look = || self.sight(&namespace, name, by_job.get(name.as_str()).map_or(&[], Vec::as_slice));
            sight.insert(known.unwrap_or_else(look)).region(&object)
        });
        Some(ListRegionsResponse { regions, next_page_token })
    }

    /// Which page of requests is asked for.
    ///
    /// # Errors
    /// There is no such job, a name is none, or the token is of another list.
    pub(super) fn page_of_requests(&self, request: ListResizesRequest) -> Result<Asked<Place>, Status> {
        let ListResizesRequest { namespace, job, page_size, page_token } = request;
        let job = self.scope(&namespace, job)?;
        let list = format!("requests of {namespace}/{}", job.as_deref().unwrap_or_default());
        let page = page_of_resizes(list, page_size, &page_token).map_err(errors::bad_token)?;
        Ok(Asked { namespace, job, page })
    }

    /// This page of requests. It takes a while ([`Elasticity::look_off_thread`]).
    pub(super) fn requests_in(&self, asked: Asked<Place>) -> ListResizesResponse {
        let Asked { namespace, job, page } = asked;
        let requests = self.view.resizes(&namespace, job.as_deref());
        // Each is read by itself: all of them together may be a thousand times as large as a page.
        let all = requests.into_iter().filter_map(|kept| Some((Place::of(&kept.read_part()?), kept)));
        let show = |kept: Kept<Resize>| {
            let shown = kept.read().map(|request| state(&request, self.job_around(&request).as_deref()));
            shown.unwrap_or_default()
        };
        let (resizes, next_page_token) = page.cut(all.collect(), show);
        ListResizesResponse { resizes, next_page_token }
    }
}

/// A page of requests that somebody asks for.
///
/// # Errors
/// The token is none, or of another list: why it is refused.
fn page_of_resizes(list: String, size: u32, token: &str) -> Result<Page<Place>, &'static str> {
    Page::of(list, size, token, Some(ALL_RESIZES))
}

/// Regions by the name of the job that has them.
fn by_job(regions: &[Arc<ParallelRegion>]) -> HashMap<Arc<str>, Vec<Arc<ParallelRegion>>> {
    let mut by_job: HashMap<Arc<str>, Vec<Arc<ParallelRegion>>> = HashMap::new();
    for region in regions {
        if let Some(job) = job_of(&**region) {
            by_job.entry(job.name).or_default().push(Arc::clone(region));
        }
    }
    by_job
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_proto::elasticity::v1::ResizeState;

    /// A page of so many requests with so many bytes each: which of them, and the token of the next page.
    fn page(count: u64, bytes: usize, size: u32, token: &str) -> (Vec<u64>, String) {
        let place = |number| Place { created: Reverse(None), number: Reverse(number), name: String::new() };
        let show = |number: u64| ResizeState {
            request: number.to_string(),
            message: "x".repeat(bytes),
            ..ResizeState::default()
        };
        let page = page_of_resizes("of n/flow".to_owned(), size, token).unwrap();
        let (shown, token) = page.cut((0..count).map(|number| (place(number), number)).collect(), show);
        (shown.iter().map(|state| state.request.parse().unwrap()).collect(), token)
    }

    #[test]
    fn without_a_size_all_requests_are_listed_as_far_as_an_answer_holds_them() {
        // requests, bytes of each, size that is asked for -> requests on the pages
        let table: [(u64, usize, u32, &[usize]); 6] = [
            (1_500, 100, 0, &[1_500]),
            (0, 0, 0, &[0]),
            (250, 100, 100, &[100, 100, 50]),
            (1_500, 100, u32::MAX, &[1_000, 500]),
            (5, 400 << 10, 0, &[3, 2]),
            (2, 3 << 20, 0, &[1, 1]),
        ];
        for (count, bytes, size, expected) in table {
            let (mut token, mut pages, mut listed) = (String::new(), Vec::new(), Vec::new());
            loop {
                let (shown, next) = page(count, bytes, size, &token);
                pages.push(shown.len());
                listed.extend(shown);
                token = next;
                if token.is_empty() {
                    break;
                }
            }
            assert_eq!(pages, expected, "{count} requests of {bytes} bytes, {size} a page");
            assert!(listed.into_iter().eq((0..count).rev()), "the newest first, and each once");
        }
    }
}
