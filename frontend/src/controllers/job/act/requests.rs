//! Writes about requests: their statuses, and the widths that they bring into specs.
//!
//! Each is a compare-and-swap on what was observed. Knows: the API server. Must not know: why something is written.

use super::Actor;
use super::order::WRITES;
use super::turn::CONCURRENT;
use crate::controllers::job::child::Child;
use crate::controllers::job::memory::FullRequest;
use crate::controllers::job::off_thread::{not_computed, off_thread_if_many};
use crate::controllers::job::owned::Owned;
use crate::controllers::job::requests::admission::{GENERATION_MISMATCH, TOO_MANY_REQUESTS, admit_all, age, ended};
use crate::controllers::job::requests::amount;
use crate::controllers::job::requests::in_part::without_regions;
use crate::controllers::job::requests::observe::ToTell;
use crate::controllers::job::requests::standing::{Circumstances, has_ended_without_widths};
use crate::controllers::job::tasks::Failure;
use crate::controllers::job::widths::OUT_OF_BOUNDS;
use crate::controllers::traces;
use crate::made_by_job::is_region_of;
use crate::mirrors::{ByOwner as _, trim};
use futures::{StreamExt as _, stream};
use kube::ResourceExt as _;
use kube::api::{ListParams, PropagationPolicy};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use streams_api::resize::RESIZES_KEPT;
use streams_api::{Job, ParallelRegion, RequestedWidths, Resize, ResizePhase, ResizeStatus, UnwrittenWidth, names};
use streams_kubernetes::Error;
use streams_kubernetes::cluster::{Cluster, Manager, SMALL_PAGE};
use streams_kubernetes::error::{is_not_found, written};
use streams_kubernetes::events::Notice;
use streams_kubernetes::gate::Priority;
use streams_kubernetes::ownership::is_controlled_by;
use streams_kubernetes::watch::version;
use tracing::{Instrument as _, field};

/// Most regions that an admission reads one by one, however few the job has.
const READ_ONE_BY_ONE: usize = 16;

/// Whether an admission reads so many regions of a job with so many one by one. Several are read at the same time; the
/// pages of a list, which has all regions, one after the other, and nobody is admitted before the last.
fn are_read_one_by_one(named: usize, all: usize) -> bool {
    let pages = all / usize::try_from(SMALL_PAGE).unwrap_or(usize::MAX);
    named <= pages.saturating_add(READ_ONE_BY_ONE)
}

impl<C: Cluster> Actor<'_, C> {
    /// Admits the requests that are new, in the trace of the newest of them.
    pub(super) async fn admit(&self) -> Result<(), Error> {
        let requests = self.reconciler.read_requests(&self.snapshot.key, &self.snapshot.job).await?;
        let span = tracing::info_span!("admit", trace_id = field::Empty);
        let has_number = |request: &Resize| request.status.as_ref().is_some_and(|status| status.number.is_some());
        let new = requests.iter().filter(|request| !request.phase().is_final() && !has_number(request));
        let newest = new.max_by_key(|request| age(request));
        if let Some(trace) = newest.and_then(|request| traces::carried_by(&**request)) {
            traces::continue_context(&span, &trace);
        }
        let named = self.regions_of(&requests);
        let known = requests.iter().filter_map(|request| request.uid()).collect();
        // Other jobs with large ones need not wait for the API server.
        drop(requests);
        self.admit_against_regions(named, known).instrument(span).await
    }

    /// Admits the requests that are new and known, against the regions that they name, by their indexes, as these are
    /// at this moment. Of a request that comes later a region may have been changed before, and be read as it was.
    async fn admit_against_regions(&self, named: Vec<u64>, known: BTreeSet<String>) -> Result<(), Error> {
        let job = &*self.snapshot.job;
        let mut regions = self.read_regions(named).await?;
        let requests = self.reconciler.read_requests(&self.snapshot.key, &self.snapshot.job).await?;
        // An object that the next look does not see yet, like this one, would be taken for deleted after the admission.
        let is_seen = |region: &ParallelRegion| {
            let seen = self.observed.requests.keys.get(&region.spec.name);
            seen.is_some_and(|seen| region.metadata.uid.as_ref() == Some(&seen.uid))
        };
        regions.retain(|region| {
            let stays = region.metadata.deletion_timestamp.is_none();
            stays && is_controlled_by(&region.metadata, job) && is_seen(region)
        });
        let given = self.remember(|entry| entry.last_resize);
        let last = self.observed.status.admitted_resizes.max(self.observed.requests.last_number).max(given);
        let now = self.reconciler.cluster.now();
        let (job, status) = (Arc::clone(&self.snapshot.job), self.observed.status.clone());
        let amount = regions.len() + amount(requests.iter().map(|request| &**request));
        let judged = off_thread_if_many(amount, move || {
            let is_known = |request: &&Resize| request.uid().is_some_and(|uid| known.contains(&uid));
            let requests: Vec<_> = requests.iter().map(|request| &**request).filter(is_known).collect();
            let regions: Vec<_> = regions.iter().collect();
            let of = Circumstances::new(&job.spec, &status, &regions, &requests);
            // The oldest ones. The others are judged when these are written.
            let judged = admit_all(&of, last, now).into_iter().take(WRITES);
            judged.map(|(request, status)| Resize { status: Some(status), ..request.clone() }).collect::<Vec<_>>()
        });
        let judged = judged.await.map_err(not_computed)?;
        let judged = self.without_outdated(judged).await?;
        if judged.is_empty() {
            // What becomes of them depends on others, or on a later state of the job, whose changes wake the job.
            return Ok(());
        }
        let number = |request: &Resize| request.status.as_ref().and_then(|status| status.number);
        let greatest = judged.iter().filter_map(number).max();
        self.remember(|entry| entry.last_resize = entry.last_resize.max(greatest.unwrap_or_default()));
        // Nobody is admitted because of what another one of them wants, so each may be written or not.
        let is_surplus = |request: &Resize| {
            let reason = request.status.as_ref().and_then(|status| status.reason.as_deref());
            reason == Some(TOO_MANY_REQUESTS)
        };
        let (surplus, others): (Vec<Resize>, Vec<Resize>) = judged.into_iter().partition(is_surplus);
        self.put_requests(&others).await?;
        // A flood: nobody goes first for what is refused because of it.
        Priority::Normal.of(self.put_requests(&surplus)).await?;
        if surplus.is_empty() {
            self.has_advanced.store(true, Ordering::Relaxed);
        } else {
            // There may be many more. Other jobs have their turns first.
            self.look_again(Duration::ZERO);
        }
        Ok(())
    }

    /// Writes the statuses of these requests, several at the same time, until a write is not answered: the next ones
    /// would not be either, and each would take its time.
    async fn put_requests(&self, requests: &[Resize]) -> Result<(), Error> {
        let is_over = AtomicBool::new(false);
        let writes = requests.iter().map(|request| {
            let is_over = &is_over;
            async move {
                if is_over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let result = self.put_request(request).await;
                if result.as_ref().is_err_and(Error::is_unanswered) {
                    is_over.store(true, Ordering::Relaxed);
                }
                result
            }
        });
        let writes: Vec<_> = writes.collect();
        let written: Vec<_> = stream::iter(writes).buffer_unordered(CONCURRENT).collect().await;
        written.into_iter().collect()
    }

    /// Leaves out who would be refused because of bounds or a generation that are not those of the job any more:
    /// whoever has changed the job before the request was made must not be told that it is as before.
    async fn without_outdated(&self, judged: Vec<Resize>) -> Result<Vec<Resize>, Error> {
        let by_job = |request: &Resize| {
            let reason = request.status.as_ref().and_then(|status| status.reason.as_deref());
            matches!(reason, Some(OUT_OF_BOUNDS | GENERATION_MISMATCH))
        };
        if !judged.iter().any(by_job) {
            return Ok(judged);
        }
        let now: Option<Job> = self.reconciler.cluster.get(&self.snapshot.key).await?;
        let is_as_observed = now.is_some_and(|now| {
            let generation = now.status.as_ref().and_then(|status| status.generation);
            now.metadata.generation == self.snapshot.job.metadata.generation
                && generation == self.observed.status.generation
        });
        Ok(if is_as_observed { judged } else { judged.into_iter().filter(|request| !by_job(request)).collect() })
    }

    /// The indexes of the regions that requests name which are not over.
    fn regions_of(&self, requests: &[Arc<Resize>]) -> Vec<u64> {
        let Some(generation) = &self.snapshot.committed else { return Vec::new() };
        let concerned = requests.iter().filter(|request| !request.phase().is_final());
        let named: BTreeSet<&str> =
            concerned.flat_map(|request| &request.spec.regions).map(|wanted| wanted.name.as_str()).collect();
        let of_job = &generation.plan.parallel_regions;
        of_job.iter().filter(|region| named.contains(region.name.as_str())).map(|region| region.index).collect()
    }

    /// The regions with these indexes, as the API server has them at this moment. A few are read one by one: a list
    /// waits until the API server's own cache has caught up with what was written last, whatever that was, and that may
    /// take a tenth of a second.
    async fn read_regions(&self, named: Vec<u64>) -> Result<Vec<ParallelRegion>, Error> {
        let (cluster, key, job) = (&self.reconciler.cluster, &self.snapshot.key, &*self.snapshot.job);
        let all = self.snapshot.committed.as_ref().map_or(0, |generation| generation.plan.parallel_regions.len());
        let mut regions = Vec::new();
        if !are_read_one_by_one(named.len(), all) {
            // Anybody may label as many regions as he likes: a small page of them is there at a time.
            let of_job = format!("{}={}", names::LABEL_JOB, key.name);
            let of_job = ListParams::default().labels(&of_job).limit(SMALL_PAGE);
            let named: BTreeSet<_> = named.iter().map(|index| names::parallel_region(&key.name, *index)).collect();
            let keep = |page: Vec<ParallelRegion>| {
                let is_wanted = |region: &ParallelRegion| {
                    named.contains(&region.name_any()) && is_controlled_by(&region.metadata, job)
                };
                regions.extend(page.into_iter().filter(is_wanted));
            };
            cluster.each_page(Some(&*key.namespace), &of_job, keep).await?;
            return Ok(regions);
        }
        let reads = named.into_iter().map(|index| {
            let key = key.sibling(&names::parallel_region(&key.name, index));
            async move { cluster.get::<ParallelRegion>(&key).await }
        });
        let reads: Vec<_> = reads.collect();
        let mut reads = stream::iter(reads).buffered(CONCURRENT);
        while let Some(read) = reads.next().await {
            regions.extend(read?.filter(|region| is_controlled_by(&region.metadata, job)));
        }
        Ok(regions)
    }

    fn request(&self, name: &str) -> Option<Arc<Resize>> {
        self.reconciler.request(&self.snapshot.key, &self.snapshot.job, name)
    }

    /// Lets a request say this of itself. If it is another one by now, or says something else, the change that made it
    /// so brings the next look.
    pub(super) async fn tell(&self, name: &str, told: &ToTell) -> Result<(), Error> {
        let request = self.request(name).filter(|request| request.metadata.resource_version == told.version);
        let Some(request) = request else { return Ok(()) };
        let told = Resize { status: Some(told.status.clone()), ..(*request).clone() };
        self.put_request(&told).await
    }

    /// Refuses the request with this number, which the compiler refuses, unless it has ended.
    pub(super) async fn refuse_request(&self, number: u64, name: &str, failure: &Failure) -> Result<(), Error> {
        let is_it = |request: &Resize| request.status.as_ref().and_then(|status| status.number) == Some(number);
        let request = self.request(name).filter(|request| is_it(request) && !request.phase().is_final());
        let Some(request) = request else { return Ok(()) };
        let mut refused = (*request).clone();
        let before = refused.status.take().unwrap_or_default();
        let now = self.reconciler.cluster.now();
        let status = ended(before, ResizePhase::Refused, &failure.reason, &failure.message, now);
        refused.status = Some(ResizeStatus { stage: failure.stage.clone(), code: failure.code.clone(), ..status });
        tracing::info!(job = %self.snapshot.key, request = name, reason = failure.reason, "refused");
        self.put_request(&refused).await?;
        let regions = request.spec.regions.iter().map(|wanted| &wanted.name);
        self.remember(|entry| entry.verdicts.note_fault(regions));
        Ok(())
    }

    /// Writes the status of a request, unless somebody has written the request since it was observed. One that has no
    /// room for its status holds up nothing else: it is left alone until somebody changes it, or it has been there for
    /// too long.
    async fn put_request(&self, request: &Resize) -> Result<(), Error> {
        // What is refused because there are too many was not read as a whole.
        let whole = request.spec.regions.is_empty().then(|| self.request(&request.name_any())).flatten();
        let is_same = |whole: &Arc<Resize>| whole.metadata.resource_version == request.metadata.resource_version;
        let whole = whole.filter(is_same).map(|whole| Resize { spec: whole.spec.clone(), ..request.clone() });
        let request = whole.as_ref().unwrap_or(request);
        let mut written = match self.writer().replace_status_if_unchanged(request).await {
            Err(error) if error.is_too_large() => {
                let meta = &request.metadata;
                let created = meta.creation_timestamp.as_ref().map(|at| at.0);
                let full = FullRequest { name: request.name_any(), version: version(meta), created };
                let uid = meta.uid.clone().unwrap_or_default();
                self.remember(|entry| entry.full_requests.insert(uid, full));
                let note = "the object is so large that it has no room for a status: nothing becomes of the request";
                self.reconciler.cluster.announce(request, &Notice::warning("TooLarge", note));
                return Ok(());
            }
            written => written?,
        };
        // Kept until the mirror shows it: as the mirror has it, without what may be large.
        trim::request_meta(&mut written.metadata);
        let (name, has_ended) = (written.name_any(), has_ended_without_widths(&written));
        let written = if has_ended { without_regions(Arc::new(written)) } else { Arc::new(written) };
        self.remember(|entry| entry.requests.insert(name, written));
        Ok(())
    }

    /// Deletes the requests that have no room for a status and are as old as others become that have ended: nobody can
    /// let them say that they end, and each has a place of those that the job may have (rule elasticity-18). The next
    /// look comes when the next one is due.
    pub(super) async fn delete_full_requests(&self) -> Result<(), Error> {
        let now = self.reconciler.cluster.now();
        for (uid, full) in self.remember(|entry| entry.full_requests.clone()) {
            let created = full.created.unwrap_or(now);
            let age = Duration::try_from(now.duration_since(created)).unwrap_or_default();
            let left = RESIZES_KEPT.saturating_sub(age);
            if !left.is_zero() {
                self.look_again(left);
                continue;
            }
            let (version, background) = (full.version.to_string(), PropagationPolicy::Background);
            match self.writer().delete_if_unchanged::<Resize>(&full.name, &uid, &version, background).await {
                // It is another one by now, or going; that wakes the job.
                Err(error) if error.is_conflict() => {}
                deleted => deleted?,
            }
        }
        Ok(())
    }

    /// Writes a width in force into the spec of its region. If another client has changed the region since it was
    /// observed, nothing is written: that change starts a new reconcile.
    pub(super) async fn write_width(&self, write: &UnwrittenWidth) -> Result<(), Error> {
        let index = write.index;
        let key = self.snapshot.key.sibling(&names::parallel_region(&self.snapshot.key.name, index));
        let child = Child::Region(index);
        if self.remember(|entry| entry.own_writes.has(&Owned::Child(child))) {
            // The API server would refuse a write of the state that the mirror still shows.
            return Ok(());
        }
        let mirrored = self.reconciler.mirrors.parallel_regions.get(&key);
        let Some(region) = mirrored.filter(|region| is_controlled_by(&region.metadata, &*self.snapshot.job)) else {
            return Ok(());
        };
        let trace = self.observed.requests.traces.get(&write.number);
        let patch = region.with_width_of(write.number, write.width, trace.map(String::as_str));
        let elasticity = Manager(names::ELASTICITY_MANAGER);
        match self.reconciler.cluster.merge::<ParallelRegion>(elasticity, &key, &patch).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.note_version(child, None, String::new(), version(&region.metadata).saturating_add(1));
                Ok(())
            }
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(written(&*region, error)),
            Ok(region) => {
                self.note_version(child, None, String::new(), version(&region.metadata));
                Ok(())
            }
        }
    }

    /// Writes the requested width into the region's spec (rule elasticity-5). If another client has changed the region
    /// since it was observed, nothing is written, and it is decided again.
    pub(super) async fn take_over(&self, index: u64, width: u32) -> Result<(), Error> {
        let name = names::parallel_region(&self.snapshot.key.name, index);
        let mirrored = self.reconciler.mirrors.parallel_regions.get(&self.snapshot.key.sibling(&name));
        let Some(region) = mirrored.filter(|region| is_controlled_by(&region.metadata, &*self.snapshot.job)) else {
            return Ok(());
        };
        let regions: Vec<_> = self.reconciler.mirrors.parallel_regions.of_job(&self.snapshot.key).collect();
        let regions = regions.iter().map(|region| &**region);
        let request = RequestedWidths::read(regions.filter(|region| is_region_of(region, &self.snapshot.job)));
        let Some(request) = request.filter(|request| request.pending(&region) == Some(width)) else { return Ok(()) };
        let patch = region.with_width(width, request.trace_parent.as_deref());
        let key = self.snapshot.key.sibling(&name);
        let elasticity = Manager(names::ELASTICITY_MANAGER);
        match self.reconciler.cluster.merge::<ParallelRegion>(elasticity, &key, &patch).await {
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(written(&*region, error)),
            Ok(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_list_of_all_regions_is_read_for_the_few_that_many_requests_name() {
        // regions that requests name, regions of the job -> whether they are read one by one
        let table = [
            (0, 0, true),
            (16, 16, true),
            (17, 17, true),
            (17, 200, true),
            (36, 200, true),
            (37, 200, false),
            (100, 1_000, true),
            (117, 1_000, false),
            (20, 20, false),
        ];
        for (named, all, expected) in table {
            assert_eq!(are_read_one_by_one(named, all), expected, "{named} of {all}");
        }
    }
}
