//! What PEs report, until it is stored (rule consistent-region-3).
//!
//! A thousand PEs report within a moment. So reports of what PEs were told to do wait for others, until as many have
//! come as the region waits for, or [`TOGETHER`] has passed: one write stores all of them. Whoever reports is answered
//! after that.
//!
//! A report that is not stored is lost: PEs report once. Of which regions that may have happened, with this replica or
//! with the leader before, is remembered until the region has made up for it: the next leader has to know (rule
//! consistent-region-14). What came here before this replica led concerned the leader of that time.
//!
//! Invariants: a PE has few reports here, the same one once; nothing is taken as long as nobody drives the regions;
//! what cannot be stored goes back, in front of what came later; no report waits for others that the region does not
//! wait for; however a report that was heard goes without being stored, its region has a gap, if it is there; only what
//! was lost before is made up for.
//!
//! Knows: regions, their PEs, what these report. Must not know: HTTP, how a report is stored.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use streams_api::ConsistentRegion;
use streams_consistent_region::Event;
use streams_kubernetes::Key;
use streams_kubernetes::queue::Queue;
use streams_kubernetes::watch::Watch;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How long a report waits for others at most. The runtime waits for a second.
pub(crate) const TOGETHER: Duration = Duration::from_millis(50);
/// Reports of a PE about a region that may wait at the same time. One that follows the contract has two.
const OF_PE_MAX: usize = 4;

/// A report that waits.
pub(crate) struct Waiting {
    /// The PE that has sent it.
    pub(crate) pe: u64,
    /// What it says.
    pub(crate) event: Event,
    /// When it came.
    since: Instant,
    answers: Vec<oneshot::Sender<()>>,
    heard: Heard,
}

impl Waiting {
    /// Says that what came of it is stored.
    pub(crate) fn answer(mut self) {
        self.heard.is_done = true;
        for answer in self.answers {
            // Whoever has given up is not interested.
            let _ = answer.send(());
        }
    }
}

/// Which of the losses of this replica; later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Loss(u64);

/// Regions of which something may be lost that PEs have reported, and for which nobody has made up yet.
#[derive(Debug, Default)]
struct Gaps {
    /// With the leader before.
    inherited: BTreeSet<Key>,
    /// With this replica: the last time.
    own: BTreeMap<Key, Loss>,
    last: Loss,
}

/// Which regions are there, and which of them have gaps.
#[derive(Clone)]
struct OfThoseThere {
    regions: Watch<ConsistentRegion>,
    gaps: Arc<Mutex<Gaps>>,
}

impl OfThoseThere {
    fn lose(&self, region: &Key) {
        let mut gaps = self.gaps();
        // Asked under the lock: whoever forgets it takes that, too, after it has gone.
        if self.regions.contains(region) {
            let loss = Loss(gaps.last.0.saturating_add(1));
            gaps.last = loss;
            gaps.own.insert(region.clone(), loss);
        }
    }

    fn gaps(&self) -> MutexGuard<'_, Gaps> {
        lock(&self.gaps)
    }
}

/// A report, from when its first bytes have come until it is stored. However it goes before, it leaves a gap: also if
/// its PE gives up before the rest has come.
#[must_use = "the region has a gap when this is dropped"]
pub(crate) struct Heard {
    region: Key,
    gaps: OfThoseThere,
    is_done: bool,
}

impl Heard {
    /// It may be lost.
    pub(crate) fn leave_gap(&self) {
        self.gaps.lose(&self.region);
    }

    /// Nothing is lost without it.
    pub(crate) fn comes_to_nothing(mut self) {
        self.is_done = true;
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        if !self.is_done {
            self.leave_gap();
        }
    }
}

/// Why a report is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotTaken {
    /// Another replica drives the regions.
    #[error("another replica drives the consistent regions")]
    NotDriven,
    /// The PE reports faster than anything can be stored.
    #[error("the PE has too many reports that are not stored yet")]
    TooMany,
    /// Nothing came of it.
    #[error("the region is gone")]
    Gone,
}

/// Reports by region. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Reports {
    inner: Arc<Mutex<Inner>>,
    /// Whoever has their lock does not wait for the other one.
    gaps: OfThoseThere,
}

#[derive(Default)]
struct Inner {
    queue: Option<Queue<Key>>,
    regions: HashMap<Key, OfRegion>,
    /// They have been taken, until now or earlier.
    were_taken: bool,
}

/// What is known of the reports of a region.
#[derive(Default)]
struct OfRegion {
    /// The first has waited for longest.
    waiting: Vec<Waiting>,
    /// How many more lead the region on, as far as is stored.
    missing: usize,
}

impl OfRegion {
    /// How much longer what waits does for other reports.
    fn wait(&self) -> Duration {
        let is_asked = self.waiting.iter().any(|report| !matches!(report.event, Event::Report(..)));
        let first = self.waiting.first().filter(|_| !is_asked && self.waiting.len() < self.missing);
        first.map_or(Duration::ZERO, |first| TOGETHER.saturating_sub(first.since.elapsed()))
    }
}

impl Reports {
    /// Nothing yet. What is kept of a region ends when it leaves this mirror.
    pub(crate) fn following(regions: &Watch<ConsistentRegion>) -> Self {
        let gaps = OfThoseThere { regions: regions.clone(), gaps: Arc::default() };
        let reports = Self { inner: Arc::default(), gaps };
        let following = reports.clone();
        regions.subscribe_to_departures(move |region, _| following.forget(&Key::of(region)));
        reports
    }

    /// From now on reports are taken; their regions are put into this queue. Of these regions some may be lost, that
    /// were sent to the leader before. What came to this replica earlier does not count: nobody was led here, and the
    /// leader of that time has made up for it, or says that it has not.
    pub(crate) fn open(&self, queue: Queue<Key>, regions: impl IntoIterator<Item = Key>) {
        let mut inner = self.inner();
        let mut gaps = self.gaps.gaps();
        gaps.own.clear();
        gaps.inherited.extend(regions);
        drop(gaps);
        inner.queue = Some(queue);
        inner.were_taken = true;
    }

    /// Nobody takes reports any more.
    pub(crate) fn close(&self) {
        let mut inner = self.inner();
        *inner = Inner { were_taken: inner.were_taken, ..Inner::default() };
    }

    /// Whether reports are taken.
    pub(crate) fn are_taken(&self) -> bool {
        self.inner().queue.is_some()
    }

    /// Regions of which a report may be lost. Of those that the leader before has driven this is known once reports are
    /// taken.
    pub(crate) fn gaps(&self) -> BTreeSet<Key> {
        let gaps = self.gaps.gaps();
        gaps.inherited.iter().chain(gaps.own.keys()).cloned().collect()
    }

    /// Whether reports are taken, or were.
    pub(crate) fn were_taken(&self) -> bool {
        self.inner().were_taken
    }

    /// The last loss of this replica of which its region has not made up yet.
    pub(crate) fn loss(&self, region: &Key) -> Option<Loss> {
        self.gaps.gaps().own.get(region).copied()
    }

    /// This replica has taken a region over: whatever was lost with the leader before is made up for.
    pub(crate) fn take_over(&self, region: &Key) {
        self.make_up(|gaps| _ = gaps.inherited.remove(region));
    }

    /// A region has made up for what this replica had lost of it when this was the last loss.
    pub(crate) fn make_up_for(&self, region: &Key, loss: Loss) {
        self.make_up(|gaps| {
            if gaps.own.get(region).is_some_and(|last| *last <= loss) {
                gaps.own.remove(region);
            }
        });
    }

    /// Unless nobody takes reports any more: what is lost since then is up to the next leader.
    fn make_up(&self, made_up: impl FnOnce(&mut Gaps)) {
        let inner = self.inner();
        if inner.queue.is_some() {
            made_up(&mut self.gaps.gaps());
        }
    }

    /// A report about this region has begun to come.
    pub(crate) fn heard(&self, region: &Key) -> Heard {
        Heard { region: region.clone(), gaps: self.gaps.clone(), is_done: false }
    }

    /// Waits until what comes of a report is stored. Who stops waiting has reported nevertheless.
    ///
    /// # Errors
    /// It is not taken, or the region has gone.
    pub(crate) async fn report(&self, heard: Heard, pe: u64, event: Event) -> Result<(), NotTaken> {
        let stored = {
            let region = heard.region.clone();
            let mut inner = self.inner();
            let Some(queue) = inner.queue.clone() else { return Err(NotTaken::NotDriven) };
            let of_region = inner.regions.entry(region.clone()).or_default();
            let waiting = &mut of_region.waiting;
            let (answer, stored) = oneshot::channel();
            if let Some(same) = waiting.iter_mut().find(|other| other.pe == pe && other.event == event) {
                same.answers.retain(|answer| !answer.is_closed());
                same.answers.push(answer);
                // It is stored with that one, or goes with it.
                heard.comes_to_nothing();
            } else if waiting.iter().filter(|other| other.pe == pe).count() < OF_PE_MAX {
                waiting.push(Waiting { pe, event, since: Instant::now(), answers: vec![answer], heard });
            } else {
                return Err(NotTaken::TooMany);
            }
            queue.add_urgent_later(region, of_region.wait());
            stored
        };
        stored.await.map_err(|_| if self.are_taken() { NotTaken::Gone } else { NotTaken::NotDriven })
    }

    /// Takes all that waits for a region, unless it waits for more. Then the region comes back.
    pub(crate) fn take(&self, region: &Key) -> Vec<Waiting> {
        let mut inner = self.inner();
        let Inner { queue, regions, .. } = &mut *inner;
        let Some(of_region) = regions.get_mut(region) else { return Vec::new() };
        let wait = of_region.wait();
        if wait.is_zero() {
            return std::mem::take(&mut of_region.waiting);
        }
        // The queue keeps one delay of a region, and that may have been the one of earlier reports.
        if let Some(queue) = queue {
            queue.add_urgent_later(region.clone(), wait);
        }
        Vec::new()
    }

    /// So many reports lead the region on from what is stored now. None, if it waits for something else.
    pub(crate) fn expect(&self, region: &Key, missing: usize) {
        let mut inner = self.inner();
        let Some(queue) = inner.queue.clone() else { return };
        let of_region = inner.regions.entry(region.clone()).or_default();
        of_region.missing = missing;
        if !of_region.waiting.is_empty() {
            queue.add_urgent_later(region.clone(), of_region.wait());
        }
    }

    /// Puts back what could not be stored, unless the region that it was about is gone: `is_there` says it. Another one
    /// of its name has got no reports yet.
    pub(crate) fn put_back(&self, region: &Key, mut earlier: Vec<Waiting>, is_there: impl FnOnce() -> bool) {
        if earlier.is_empty() {
            return;
        }
        let mut inner = self.inner();
        if inner.queue.is_none() {
            return;
        }
        // Asked under the lock: whoever forgets it takes that, too, after it has gone.
        if !is_there() {
            earlier.into_iter().for_each(|report| report.heard.comes_to_nothing());
            return;
        }
        let of_region = inner.regions.entry(region.clone()).or_default();
        earlier.append(&mut of_region.waiting);
        of_region.waiting = earlier;
    }

    /// The region is gone. Whoever waits for an answer about it hears so.
    pub(crate) fn forget(&self, region: &Key) {
        self.inner().regions.remove(region);
        let mut gaps = self.gaps.gaps();
        gaps.inherited.remove(region);
        gaps.own.remove(region);
    }

    /// Reports that wait for a region.
    #[cfg(test)]
    pub(crate) fn waiting(&self, region: &Key) -> usize {
        self.inner().regions.get(region).map_or(0, |of_region| of_region.waiting.len())
    }

    /// Regions of which something is kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.inner().regions.len()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::indexes;
    use streams_api::ConsistentRegionSpec;
    use streams_consistent_region::{Member, Progress};
    use streams_kubernetes::metrics::Metrics;
    use streams_kubernetes::queue::{BackOff, InProgress, Sharing};
    use tokio::time::{sleep, timeout};

    /// Two regions are there.
    struct Fixture {
        regions: Watch<ConsistentRegion>,
        reports: Reports,
        queue: Queue<Key>,
    }

    impl Fixture {
        fn new() -> Self {
            let regions = [key(), another()].map(|key| {
                let mut region = ConsistentRegion::new(&key.name, ConsistentRegionSpec::default());
                region.metadata.namespace = Some(key.namespace.to_string());
                region
            });
            let regions = Watch::filled(indexes(), regions);
            let reports = Reports::following(&regions);
            let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
            reports.open(queue.clone(), []);
            Self { regions, reports, queue }
        }

        /// A PE reports, and waits for its answer.
        async fn report(&self, pe: u64) {
            let event = Event::Report(Member { pe, launch: 1 }, Progress::CheckpointDone { sequence: 1 });
            let reports = self.reports.clone();
            tokio::spawn(async move { reports.report(reports.heard(&key()), pe, event).await });
            tokio::task::yield_now().await;
        }

        /// The region comes within so many milliseconds, with so many reports.
        async fn comes(&self, within: u64, taken: usize) -> InProgress<Key> {
            let begun = Instant::now();
            let next = timeout(Duration::from_millis(within), self.queue.next()).await;
            let next = next.unwrap_or_else(|_| panic!("nothing came within {within} ms")).unwrap();
            assert_eq!(self.reports.take(&key()).len(), taken, "after {:?}", begun.elapsed());
            next
        }
    }

    fn key() -> Key {
        Key::new("n", "flow-cr0")
    }

    fn another() -> Key {
        Key::new("n", "flow-cr1")
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_waits_for_as_many_as_the_region_does_and_not_for_long() {
        let it = Fixture::new();
        it.reports.expect(&key(), 2);
        it.report(0).await;
        assert!(timeout(Duration::from_millis(45), it.queue.next()).await.is_err(), "another one may come");
        drop(it.comes(6, 1).await);
        it.report(0).await;
        it.report(1).await;
        drop(it.comes(1, 2).await);
        it.reports.expect(&key(), 0);
        it.report(2).await;
        drop(it.comes(1, 1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_region_that_waits_for_more_than_was_known_comes_back() {
        let it = Fixture::new();
        let in_progress = {
            it.report(0).await;
            it.comes(1, 1).await
        };
        // While it is looked at another one comes, and it turns out that more are missing.
        it.report(1).await;
        it.reports.expect(&key(), 3);
        drop(in_progress);
        drop(it.comes(1, 0).await);
        drop(it.comes(51, 1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_does_not_count_on_what_was_to_look_at_earlier_ones() {
        let it = Fixture::new();
        it.reports.expect(&key(), 2);
        it.report(0).await;
        sleep(Duration::from_millis(30)).await;
        it.report(1).await;
        drop(it.comes(1, 2).await);
        it.reports.expect(&key(), 2);
        sleep(Duration::from_millis(15)).await;
        it.report(2).await;
        // What was to look at the first one comes, and takes nothing.
        drop(it.comes(6, 0).await);
        drop(it.comes(46, 1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_stored_does_not_wait_again() {
        let it = Fixture::new();
        it.reports.expect(&key(), 2);
        it.report(0).await;
        let in_progress = timeout(Duration::from_millis(51), it.queue.next()).await.unwrap();
        let taken = it.reports.take(&key());
        it.report(1).await;
        it.reports.put_back(&key(), taken, || true);
        assert_eq!(it.reports.take(&key()).iter().map(|report| report.pe).collect::<Vec<_>>(), [0, 1]);
        drop(in_progress);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_reported_of_a_region_that_is_gone_is_no_concern_of_another_one() {
        let it = Fixture::new();
        it.report(0).await;
        let in_progress = timeout(Duration::from_millis(51), it.queue.next()).await.unwrap();
        let taken = it.reports.take(&key());
        it.reports.forget(&key());
        it.reports.put_back(&key(), taken, || false);
        assert_eq!((it.reports.waiting(&key()), it.reports.len()), (0, 0));
        drop(in_progress);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_hears_whether_the_region_is_gone_or_nobody_drives_it_any_more() {
        let table: [(fn(&Reports), NotTaken); 2] =
            [(|it| it.forget(&key()), NotTaken::Gone), (|it| it.close(), NotTaken::NotDriven)];
        for (goes, expected) in table {
            let it = Fixture::new();
            let event = Event::Report(Member { pe: 0, launch: 1 }, Progress::CheckpointDone { sequence: 1 });
            let reports = it.reports.clone();
            let told = tokio::spawn(async move { reports.report(reports.heard(&key()), 0, event).await });
            tokio::task::yield_now().await;
            assert_eq!(it.reports.waiting(&key()), 1);
            goes(&it.reports);
            assert_eq!(told.await.unwrap(), Err(expected));
        }
    }

    /// What becomes of a report, which is taken or not, and whether its region has a gap then.
    #[tokio::test(start_paused = true)]
    async fn a_report_that_is_not_stored_leaves_a_gap_however_it_goes() {
        let table: [(bool, fn(&Reports, Vec<Waiting>), bool); 8] = [
            (true, |_, taken| taken.into_iter().for_each(Waiting::answer), false),
            (true, |_, taken| drop(taken), true),
            (true, |it, taken| it.put_back(&key(), taken, || true), false),
            (true, |it, taken| it.put_back(&key(), taken, || false), false),
            (
                true,
                |it, taken| {
                    it.close();
                    it.put_back(&key(), taken, || true);
                },
                true,
            ),
            (
                true,
                |it, taken| {
                    // What was under way when the replica was asked to end is stored after all.
                    it.close();
                    taken.into_iter().for_each(Waiting::answer);
                },
                false,
            ),
            (false, |it, _| it.close(), true),
            (false, |it, _| it.forget(&key()), false),
        ];
        for (number, (is_taken, becomes, expected)) in table.into_iter().enumerate() {
            let it = Fixture::new();
            it.report(0).await;
            let taken = if is_taken { it.reports.take(&key()) } else { Vec::new() };
            assert_eq!((taken.len(), it.reports.gaps().len()), (usize::from(is_taken), 0), "{number}");
            becomes(&it.reports, taken);
            assert_eq!(it.reports.gaps().contains(&key()), expected, "{number}");
        }
    }

    /// However far it has come.
    #[tokio::test(start_paused = true)]
    async fn a_report_that_was_heard_and_did_not_come_so_far_leaves_a_gap() {
        let it = Fixture::new();
        let has_gap = |it: &Fixture| it.reports.gaps().contains(&key());
        it.reports.heard(&key()).comes_to_nothing();
        assert!(!has_gap(&it));
        // The same again is stored with the one that waits.
        it.report(0).await;
        it.report(0).await;
        it.reports.take(&key()).into_iter().for_each(Waiting::answer);
        assert!(!has_gap(&it));
        drop(it.reports.heard(&key()));
        assert!(has_gap(&it));
        it.reports.make_up_for(&key(), it.reports.loss(&key()).unwrap());
        for number in 0..=OF_PE_MAX as u64 {
            assert!(!has_gap(&it), "{number}");
            let event = Event::Report(Member { pe: 0, launch: 1 }, Progress::CheckpointDone { sequence: number });
            let reported = it.reports.report(it.reports.heard(&key()), 0, event);
            let _ = timeout(Duration::from_millis(1), reported).await;
        }
        assert!(has_gap(&it), "one is too many");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_leader_before_may_have_lost_is_a_gap_until_this_one_has_made_up_for_it() {
        let it = Fixture::new();
        it.reports.open(it.queue.clone(), [key(), another()]);
        it.reports.take_over(&key());
        assert_eq!(it.reports.gaps(), [another()].into());
        it.reports.close();
        // Nobody makes up for what is lost from here on.
        it.report(0).await;
        it.reports.make_up_for(&key(), it.reports.loss(&key()).unwrap());
        it.reports.take_over(&another());
        assert_eq!(it.reports.gaps(), [key(), another()].into());
        it.reports.forget(&key());
        assert_eq!(it.reports.gaps().len(), 1);
    }

    #[test]
    fn what_this_replica_loses_is_made_up_for_by_what_follows_it() {
        let it = Fixture::new();
        it.reports.open(it.queue.clone(), [key()]);
        assert_eq!(it.reports.loss(&key()), None, "the leader before may have lost something");
        drop(it.reports.heard(&key()));
        let first = it.reports.loss(&key()).unwrap();
        it.reports.take_over(&key());
        assert_eq!(it.reports.gaps(), [key()].into());
        drop(it.reports.heard(&key()));
        it.reports.make_up_for(&key(), first);
        assert_eq!(it.reports.gaps(), [key()].into(), "something else was lost meanwhile");
        it.reports.make_up_for(&key(), it.reports.loss(&key()).unwrap());
        assert!(it.reports.gaps().is_empty());
    }

    #[test]
    fn what_came_to_this_replica_before_it_led_is_no_loss_of_its_own() {
        let it = Fixture::new();
        for (before, after) in [(true, false), (true, true), (false, true), (false, false)] {
            it.reports.close();
            if before {
                drop(it.reports.heard(&key()));
            }
            it.reports.open(it.queue.clone(), []);
            if after {
                drop(it.reports.heard(&key()));
            }
            assert_eq!(it.reports.loss(&key()).is_some(), after, "{before} {after}");
        }
    }

    #[test]
    fn what_is_lost_of_a_region_that_is_gone_is_no_gap() {
        let it = Fixture::new();
        let heard = it.reports.heard(&key());
        it.regions.remove(&key());
        heard.leave_gap();
        drop(heard);
        assert!(it.reports.gaps().is_empty());
    }
}
