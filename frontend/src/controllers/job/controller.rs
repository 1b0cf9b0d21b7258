//! Runs the reconciler: wakes jobs when objects change, and runs the workers.
//!
//! Knows: the mirrors, the queue, which changes somebody waits for. Must not know: what a look at a job finds.
//!
//! Invariant: every change of an object of a job is followed by a look at the job, however urgent it is.

use super::hurries::Hurries;
use super::long_work;
use super::reconciler::JobReconciler;
use super::services::{Bundles, Fusion};
use crate::controllers::known_launches::KnownLaunches;
use crate::controllers::pe_api_names::PeApiNames;
use crate::controllers::reconciler::reconcile;
use crate::controllers::remembered::Remembered;
use crate::mirrors::{Mirrors, job_of};
use crate::owner::owner_of_job;
use crate::settings::JobSettings;
use futures::future;
use kube::ResourceExt as _;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use streams_api::{ParallelRegion, Resize, names};
use streams_kubernetes::Key;
use streams_kubernetes::cluster::{ApiServer, troubles_of};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::ownership::controller;
use streams_kubernetes::queue::{self, BackOff, Queue, Sharing};
use streams_kubernetes::watch::{Mirrored, Watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// The job controller, to be run by the leader.
pub(crate) struct JobController {
    reconciler: JobReconciler<ApiServer>,
    queue: Queue<Key>,
    workers: usize,
}

impl JobController {
    /// A controller of the jobs of these mirrors. From now on changes wake it; nothing is written before
    /// [`JobController::run`].
    pub(crate) fn new(
        cluster: ApiServer,
        mirrors: &Mirrors,
        bundles: Arc<dyn Bundles>,
        fusion: Arc<dyn Fusion>,
        known_launches: KnownLaunches,
        metrics: &Metrics,
        settings: &JobSettings,
    ) -> Self {
        let queue = Queue::new("job", BackOff::default(), Sharing::among(settings.workers, owner_of_job), metrics)
            .with_troubles(troubles_of(&cluster));
        let queue = mirrors.refusals.hold_back(queue);
        let reconciler =
            JobReconciler::new(cluster, mirrors, bundles, fusion, known_launches, settings.clone(), metrics);
        wake(mirrors, &queue, &reconciler.looks, &reconciler.hurries);
        Self { reconciler, queue, workers: settings.workers.into() }
    }

    /// By which the jobs hear that somebody else has the Service under which PEs reach the frontend.
    pub(crate) fn pe_api_names(&self) -> PeApiNames {
        self.reconciler.pe_api_names.clone()
    }

    /// Keys that are to be looked at.
    pub(crate) fn queue(&self) -> &Queue<Key> {
        &self.queue
    }

    /// Runs until `stop`, then finishes the reconciles that are under way. Long work that is under way is dropped; the
    /// next leader does it again. The mirrors must be filled before.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { reconciler, queue, workers } = self;
        let reconciler = Arc::new(reconciler);
        let (jobs, long_work) = (queue.clone(), Arc::clone(&reconciler));
        let close = {
            let (jobs, stop) = (jobs.clone(), stop.clone());
            async move {
                stop.cancelled().await;
                jobs.close();
                long_work.downloads.close();
                long_work.long_work.close();
            }
        };
        let work = {
            let work = long_work::run(Arc::clone(&reconciler), jobs);
            async move {
                tokio::select! {
                    () = work => {}
                    () = stop.cancelled() => {}
                }
            }
        };
        let reconciles = queue::run(queue, workers, move |key: Key| {
            let reconciler = Arc::clone(&reconciler);
            async move {
                let span = tracing::info_span!("reconcile", job = %key);
                reconcile(&*reconciler, &key).instrument(span).await
            }
        });
        future::join3(close, work, reconciles).await;
    }
}

/// What a look at a job takes, so many times is the pause before the next one that an object of many asks for.
const PAUSE_PER_LOOK: u32 = 16;
/// The longest such pause, and the shortest: below it a pause costs more than it saves.
const PAUSES: RangeInclusive<Duration> = Duration::from_millis(20)..=Duration::from_millis(500);

/// How long a change of one of many objects of a job waits for others, given how long the last look at the job took
/// (rule call-24).
fn pause(look: Duration) -> Duration {
    let pause = look.saturating_mul(PAUSE_PER_LOOK).min(*PAUSES.end());
    if pause < *PAUSES.start() { Duration::ZERO } else { pause }
}

/// How long the job waits for more of the same when an object appears or changes that only the job controller writes:
/// mostly it has just been written, the work that wrote it goes on by itself, and another look finds nothing to do.
const ECHO: Duration = Duration::from_millis(500);

/// Who writes objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrittenBy {
    /// Others, too: what they write is what the job waits for.
    Others,
    /// The job controller. A change by anybody else is undone.
    ThisController,
}

impl WrittenBy {
    /// How long a change waits for others, given that of an object of many.
    fn pause(self, is_gone: bool, pause: Duration) -> Duration {
        match self {
            Self::ThisController if !is_gone => pause.max(ECHO),
            _ => pause,
        }
    }
}

/// Queues a job whenever one of its many objects of this kind changes.
fn wake_by_one_of_many<K: Mirrored>(
    mirror: &Watch<K>,
    written_by: WrittenBy,
    mirrors: &Mirrors,
    jobs: &Queue<Key>,
    looks: &Remembered<Duration>,
) {
    let (there, jobs, looks, objects) = (mirrors.jobs.clone(), jobs.clone(), looks.clone(), mirror.clone());
    mirror.subscribe(move |object| {
        let Some(job) = job_of(object) else { return };
        let uid = there.get(&job).and_then(|job| job.uid()).unwrap_or_default();
        let pause = looks.find(&job, &uid, |look| pause(*look)).unwrap_or_default();
        let pause = written_by.pause(!objects.contains(&Key::of(object)), pause);
        if pause.is_zero() { jobs.add(job) } else { jobs.add_after(job, pause) }
    });
}

/// Queues a job whenever an object that belongs to it changes.
fn wake(mirrors: &Mirrors, jobs: &Queue<Key>, looks: &Remembered<Duration>, hurries: &Hurries) {
    mirrors.jobs.wake(jobs, |job| [Key::of(job)]);
    use WrittenBy::{Others, ThisController};
    wake_by_one_of_many(&mirrors.processing_elements, Others, mirrors, jobs, looks);
    wake_by_one_of_many(&mirrors.services, ThisController, mirrors, jobs, looks);
    wake_by_one_of_many(&mirrors.config_maps, ThisController, mirrors, jobs, looks);
    wake_by_one_of_many(&mirrors.host_pools, ThisController, mirrors, jobs, looks);
    wake_by_one_of_many(&mirrors.exports, ThisController, mirrors, jobs, looks);
    wake_by_one_of_many(&mirrors.imports, ThisController, mirrors, jobs, looks);
    wake_by_one_of_many(&mirrors.consistent_regions, ThisController, mirrors, jobs, looks);
    // Somebody waits for a request to resize, and may wait for the end of a turn.
    let (requests, there, hurries) = (jobs.clone(), mirrors.resizes.clone(), hurries.clone());
    let asked: Remembered<Option<Asked>> = Remembered::default();
    asked.end_with(&mirrors.resizes);
    mirrors.resizes.subscribe(move |request| {
        let Some(job) = job_of(request) else { return };
        let (key, uid) = (Key::of(request), request.uid().unwrap_or_default());
        if request.phase().is_final() {
            asked.forget(&key, &uid);
            return requests.add(job);
        }
        let has_number = request.status.as_ref().is_some_and(|status| status.number.is_some());
        let is_asked = !there.contains(&key) || is_new(&asked, &key, &uid, Asked::of(request));
        if is_asked {
            hurries.hurry(&job);
        }
        // One with a number has mostly just been written by the job itself.
        if is_asked || !has_number { requests.add_urgent(job) } else { requests.add(job) }
    });
    // A changed region is urgent: somebody waits for the resize. What a region says of itself changes nothing.
    let (regions, there) = (jobs.clone(), mirrors.parallel_regions.clone());
    let wishes: Remembered<Option<Wish>> = Remembered::default();
    wishes.end_with(&mirrors.parallel_regions);
    mirrors.parallel_regions.subscribe(move |region| {
        let Some(job) = job_of(region) else { return };
        let (key, uid) = (Key::of(region), region.uid().unwrap_or_default());
        if !there.contains(&key) || is_new(&wishes, &key, &uid, Wish::of(region)) {
            regions.add_urgent(job);
        } else {
            regions.add(job);
        }
    });
}

/// Whether this was not known of the object with this uid. By now it is.
fn is_new<W: Clone + PartialEq>(known: &Remembered<Option<W>>, key: &Key, uid: &str, wish: W) -> bool {
    let wish = Some(wish);
    known.with(key, uid, || None, |known| std::mem::replace(known, wish.clone()) != wish)
}

/// What others than this controller change of a request: what it wants stays as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Asked {
    is_of_job: bool,
    is_withdrawn: bool,
}

impl Asked {
    fn of(request: &Resize) -> Self {
        Self { is_of_job: controller(&request.metadata).is_some(), is_withdrawn: request.is_withdrawn() }
    }
}

/// The part of a region that somebody waits for.
#[derive(Clone, Debug, PartialEq)]
struct Wish {
    width: u32,
    request: Option<String>,
    deleting: bool,
}

impl Wish {
    fn of(region: &ParallelRegion) -> Self {
        Self {
            width: region.spec.width,
            request: region.annotations().get(names::ANNOTATION_REQUESTED_WIDTHS).cloned(),
            deleting: region.metadata.deletion_timestamp.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::ObjectMeta;
    use streams_api::consistent_region::GIVEN_UP;
    use streams_api::{
        BundleReference, ConsistentRegion, ConsistentRegionSpec, ConsistentRegionStatus, Job, JobSpec, ResizePhase,
        ResizeSpec, ResizeStatus,
    };
    use tokio::time::timeout;

    const UID: &str = "job's";

    /// Mirrors with a job, its queue, and who is in a hurry.
    fn wakened() -> (Mirrors, Queue<Key>, Hurries) {
        let metrics = Metrics::new("test");
        let mirrors = Mirrors::new(&metrics);
        let queue = Queue::new("job", BackOff::default(), Sharing::none(), &metrics);
        let hurries = Hurries::new(&mirrors.jobs);
        wake(&mirrors, &queue, &Remembered::default(), &hurries);
        let mut job = Job::new("job", JobSpec::of(BundleReference::default()));
        (job.metadata.namespace, job.metadata.uid) = (Some("n".to_owned()), Some(UID.to_owned()));
        mirrors.jobs.insert(job);
        (mirrors, queue, hurries)
    }

    /// A request of the job with this number that has come so far.
    fn request(number: Option<u64>, phase: ResizePhase, is_withdrawn: bool) -> Resize {
        let spec = ResizeSpec { job_name: "job".to_owned(), ..ResizeSpec::default() };
        let withdrawn = [(names::ANNOTATION_CANCEL_REQUESTED.to_owned(), "yes".to_owned())];
        let metadata = ObjectMeta {
            name: Some("r".to_owned()),
            namespace: Some("n".to_owned()),
            uid: Some("request's".to_owned()),
            labels: Some([(names::LABEL_JOB.to_owned(), "job".to_owned())].into()),
            annotations: is_withdrawn.then(|| withdrawn.into()),
            ..ObjectMeta::default()
        };
        let status = number.map(|_| ResizeStatus { number, phase: Some(phase), ..ResizeStatus::default() });
        Resize { metadata, status, ..Resize::new("r", spec) }
    }

    #[tokio::test]
    async fn a_job_goes_first_and_its_turn_ends_early_for_what_others_ask_and_not_for_what_it_says_itself() {
        use ResizePhase::{Pending, Planned, RolledOut, Written};
        let (mirrors, queue, hurries) = wakened();
        let (job, other) = (Key::new("n", "job"), Key::new("n", "other"));
        let next = async || queue.next().await.map(|taken| taken.key().clone());
        assert_eq!(next().await.as_ref(), Some(&job));
        let is_in_a_hurry = || hurries.since_last_look(&job, UID).is_cancelled();
        // number, phase, is withdrawn -> somebody asks: the job goes before one that waited already, and who is in a
        // hurry does not wait for the end of its turn
        let table = [
            (None, Pending, false, true),
            (Some(1), Pending, false, false),
            (Some(1), Planned, false, false),
            (Some(1), Planned, true, true),
            (Some(1), Written, true, false),
            (Some(1), RolledOut, true, false),
        ];
        for (number, phase, is_withdrawn, expected) in table {
            hurries.begin(&job, UID);
            queue.add(other.clone());
            mirrors.resizes.insert(request(number, phase, is_withdrawn));
            let taken = [next().await, next().await].map(Option::unwrap);
            let in_order = if expected { [&job, &other] } else { [&other, &job] };
            let case = format!("{number:?} {phase:?} {is_withdrawn}");
            assert_eq!((taken.each_ref(), is_in_a_hurry()), (in_order, expected), "{case}");
        }
    }

    /// It may have given up (rule job-56).
    #[tokio::test(start_paused = true)]
    async fn a_job_is_looked_at_when_a_consistent_region_of_it_says_something() {
        let (mirrors, queue, _) = wakened();
        drop(queue.next().await);
        for state in ["RESETTING", GIVEN_UP] {
            let mut region = ConsistentRegion::new("job-cr0", ConsistentRegionSpec::default());
            region.metadata.namespace = Some("n".to_owned());
            region.metadata.labels = Some([(names::LABEL_JOB.to_owned(), "job".to_owned())].into());
            region.status = Some(ConsistentRegionStatus { state: Some(state.to_owned()), ..Default::default() });
            mirrors.consistent_regions.insert(region);
            let taken = timeout(Duration::from_secs(1), queue.next()).await.ok().flatten();
            assert_eq!(taken.map(|taken| taken.key().clone()), Some(Key::new("n", "job")), "{state}");
        }
    }

    #[test]
    fn whoever_takes_a_request_away_is_in_a_hurry() {
        let (mirrors, _, hurries) = wakened();
        let job = Key::new("n", "job");
        mirrors.resizes.insert(request(Some(1), ResizePhase::Written, false));
        hurries.begin(&job, UID);
        mirrors.resizes.remove(&Key::new("n", "r"));
        assert!(hurries.since_last_look(&job, UID).is_cancelled(), "nobody wants it any more");
        mirrors.jobs.remove(&job);
        assert_eq!(hurries.len(), 0);
    }

    #[test]
    fn a_job_that_takes_long_to_look_at_is_looked_at_less_often() {
        // milliseconds of a look -> of the pause
        for (look, expected) in [(0, 0), (1, 0), (2, 32), (10, 160), (30, 480), (125, 500), (3000, 500)] {
            assert_eq!(pause(Duration::from_millis(look)), Duration::from_millis(expected), "{look}");
        }
    }

    #[test]
    fn what_the_controller_has_just_written_asks_for_no_look_at_once() {
        let milliseconds = Duration::from_millis;
        let table = [
            // whose, is gone, pause -> pause
            (WrittenBy::Others, false, 0, 0),
            (WrittenBy::Others, false, 32, 32),
            (WrittenBy::Others, true, 32, 32),
            (WrittenBy::ThisController, false, 0, 500),
            (WrittenBy::ThisController, false, 480, 500),
            (WrittenBy::ThisController, true, 0, 0),
            (WrittenBy::ThisController, true, 32, 32),
        ];
        for (whose, is_gone, pause, expected) in table {
            assert_eq!(whose.pause(is_gone, milliseconds(pause)), milliseconds(expected), "{whose:?} {is_gone}");
        }
    }
}
