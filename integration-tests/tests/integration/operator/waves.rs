//! Roll-outs in waves: which PEs are down at the same time, and in which order they get their texts (rule job-49). What
//! has happened is read afterwards, from the history of the objects.

use super::fixture::{Fixture, JOB, Moment, WITHIN, resize_of_clean, with_options, with_system};
use super::quota::{Limited, Quota};
use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use streams_api::{MaxUnavailable, PeOptions, PePhase, ProcessingElement, RolloutOptions, condition, names};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use tokio::task::JoinHandle;

/// The sample, of whose PEs a resize may take down so many at once, running.
async fn submitted(it: &Fixture, max_unavailable: MaxUnavailable, options: PeOptions) -> Result<ObservedJob> {
    let mut job = it.sample(JOB);
    job.spec.rollout = Some(RolloutOptions { max_unavailable, min_ready_seconds: Some(0) });
    job.spec.processing_element = Some(options);
    let job = ObservedJob::create(&it.client, &job).await?;
    job.settled(Widths::default(), WITHIN).await?;
    Ok(job)
}

fn version<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// What becomes of the job's objects of a kind. It is written down while it happens, because the API server keeps no
/// version for long.
struct History<K> {
    job: ObservedJob,
    /// The version that it begins with.
    since: u64,
    seen: Arc<Mutex<Seen<K>>>,
    watching: JoinHandle<()>,
}

struct Seen<K> {
    /// Each version, and whether it is the last one.
    versions: Vec<(K, bool)>,
    /// Why there are no more of them.
    ended: Option<anyhow::Error>,
}

impl<K> History<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// From now on.
    async fn begin(job: &ObservedJob) -> Result<Self> {
        let list = job.api::<K>().list_metadata(&ListParams::default()).await?;
        let version = list.metadata.resource_version.context("a list without a version")?;
        let since = version.parse()?;
        let seen = Arc::new(Mutex::new(Seen { versions: Vec::new(), ended: None }));
        let watching = tokio::spawn({
            let (job, seen) = (job.clone(), Arc::clone(&seen));
            async move {
                let ended = watch(&job, version, |version| seen.lock().versions.push(version)).await;
                seen.lock().ended = ended.err();
            }
        });
        Ok(Self { job: job.clone(), since, seen, watching })
    }

    /// Until now.
    async fn read(&self) -> Result<Vec<(K, bool)>> {
        let newest = self.job.list::<K>().await?.iter().map(version).max().context("there is nothing")?;
        if newest <= self.since {
            return Ok(Vec::new());
        }
        eventually("the history is as long as it has to be", WITHIN, || async {
            let seen = self.seen.lock();
            let last = seen.versions.last().map_or(0, |(object, _)| version(object));
            ensure!(last >= newest, "{last} of {newest}: {:?}", seen.ended);
            Ok(seen.versions.clone())
        })
        .await
    }
}

impl<K> Drop for History<K> {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Tells each version of the job's objects of a kind since this one, and whether it is the last one of its object.
async fn watch<K>(job: &ObservedJob, mut since: String, mut tell: impl FnMut((K, bool))) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let (api, selector) = (job.api::<K>(), format!("{}={}", names::LABEL_JOB, job.name()));
    let parameters = WatchParams::default().labels(&selector);
    // The API server ends a watch after some minutes.
    loop {
        let mut events = api.watch(&parameters, &since).await?.boxed();
        while let Some(event) = events.next().await {
            let (object, is_gone) = match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(bookmark) => {
                    since = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => anyhow::bail!("the watch ended: {status:?}"),
            };
            since = version(&object).to_string();
            tell((object, is_gone));
        }
    }
}

/// The PEs that have been down at the same time, for each moment when it was more than one.
async fn down_together(job: &ObservedJob, before: &Moment, pods: &History<Pod>) -> Result<Vec<BTreeSet<u64>>> {
    let mut up: BTreeMap<u64, String> = before.pods.0.iter().map(|(id, pod)| (*id, pod.name.clone())).collect();
    let all: BTreeSet<u64> = up.keys().copied().collect();
    let removed: BTreeSet<u64> = {
        let now = job.operators().await?;
        all.iter().copied().filter(|id| !now.contains_key(id)).collect()
    };
    let mut together = Vec::new();
    for (pod, is_gone) in pods.read().await? {
        let id: u64 = pod.labels().get(names::LABEL_PE).context("a pod of no PE")?.parse()?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase == Some("Running") && pod.metadata.deletion_timestamp.is_none() && !is_gone {
            up.insert(id, pod.name_any());
        } else if up.get(&id) == Some(&pod.name_any()) {
            up.remove(&id);
        }
        let down: BTreeSet<u64> =
            all.iter().filter(|id| !up.contains_key(id) && !removed.contains(id)).copied().collect();
        if down.len() > 1 {
            together.push(down);
        }
    }
    Ok(together)
}

/// PEs in the order in which they were given the texts of a generation.
async fn order(pes: &History<ProcessingElement>, generation: u64) -> Result<Vec<u64>> {
    let mut order = Vec::new();
    for (pe, _) in pes.read().await? {
        if pe.spec.generation == generation && !order.contains(&pe.spec.id) {
            order.push(pe.spec.id);
        }
    }
    Ok(order)
}

#[tokio::test]
async fn one_after_the_other_after_the_new_ones_and_before_the_removal() -> Result<()> {
    with_system("waves", async |it| {
        let job = submitted(it, MaxUnavailable::Count(1), PeOptions::default()).await?;
        let mut before = Moment::of(&job).await?;
        for (generation, from, to) in [(1, 2, 4), (2, 4, 2)] {
            let (pods, pes) = (History::<Pod>::begin(&job).await?, History::<ProcessingElement>::begin(&job).await?);
            it.resize(&job, &[(CLEAN, to)], WaitFor::RolledOut).await?;
            job.settled(Widths { clean: to, ..Widths::default() }, WITHIN).await?;
            let after = Moment::of(&job).await?;
            let changed = after.since(&before)?;
            ensure!(changed == resize_of_clean(from, to), "{changed:#?}");
            let together = down_together(&job, &before, &pods).await?;
            ensure!(together.is_empty(), "{from} -> {to}: {together:?}");
            let order = order(&pes, generation).await?;
            let new = order.iter().position(|id| before.pods.0.contains_key(id)).context("nothing was restarted")?;
            let are_new = order.iter().take(new).all(|id| !before.pods.0.contains_key(id));
            ensure!(are_new && new == changed.added.len(), "{order:?}");
            before = after;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pe_that_is_down_already_goes_first() -> Result<()> {
    with_system("waves", async |it| {
        let options = PeOptions { restart_failed_pod: Some(false), ..PeOptions::default() };
        let job = submitted(it, MaxUnavailable::Count(1), options).await?;
        // Not the first by its id.
        let down = job.pe("Score[1].Window").await?;
        let pod = down.status.as_ref().and_then(|status| status.pod_name.clone()).context("no pod")?;
        let fail = Patch::Merge(json!({"metadata": {"annotations": {"streams-test/fail": "3"}}}));
        job.api::<Pod>().patch(&pod, &PatchParams::default(), &fail).await?;
        eventually("the PE is down", WITHIN, || async {
            let status = job.pe("Score[1].Window").await?.status.unwrap_or_default();
            ensure!(status.phase == Some(PePhase::Failed), "{:?}", status.phase);
            Ok(())
        })
        .await?;
        let pes = History::<ProcessingElement>::begin(&job).await?;
        it.resize(&job, &[(CLEAN, 1)], WaitFor::RolledOut).await?;
        let order = order(&pes, 1).await?;
        ensure!(order.first() == Some(&down.spec.id) && order.len() == 4, "{} first: {order:?}", down.spec.id);
        let widths = Widths { clean: 1, ..Widths::default() };
        job.settled(widths, WITHIN).await?;
        Ok(())
    })
    .await
}

/// No pod can be created any more: the first PE that is restarted does not come back.
#[tokio::test]
async fn a_pe_that_does_not_come_back_stops_the_roll_out_and_says_so() -> Result<()> {
    with_system("waves", async |it| {
        let job = submitted(it, MaxUnavailable::Count(1), PeOptions::default()).await?;
        let before = Moment::of(&job).await?;
        let quota = Quota::none(it, Limited::Pods).await?;
        it.resize(&job, &[(CLEAN, 1)], WaitFor::Committed).await?;
        let message = job
            .until("the roll-out has stopped", WITHIN, |status| {
                let said = condition::get(&status.conditions, condition::PROGRESSING).context("no condition")?;
                let is_told = said.message.contains("(QuotaExceeded)") && said.message.contains("(RestartedLater)");
                ensure!(is_told, "{}: {}", said.reason, said.message);
                Ok(said.message.clone())
            })
            .await?;
        let gone = |now: &Moment| -> Vec<u64> {
            before.pods.0.iter().filter(|(id, pod)| now.pods.0.get(id) != Some(pod)).map(|(id, _)| *id).collect()
        };
        let down = gone(&Moment::of(&job).await?);
        ensure!(down.len() == 1 && message.contains(&format!("PE {}", down[0])), "{down:?}: {message}");

        // Another frontend knows as much, and the next generation does not wait for this one.
        it.frontend()?.process().kill().await?;
        it.frontend()?.start_again().await?;
        it.resize(&job, &[(CLEAN, 2)], WaitFor::Committed).await?;
        eventually("the PE has its next text", WITHIN, || async {
            let pes = job.list::<ProcessingElement>().await?;
            let pe = pes.iter().find(|pe| pe.spec.id == down[0]).context("it is gone")?;
            ensure!(pe.spec.generation == 2, "generation {}", pe.spec.generation);
            Ok(())
        })
        .await?;
        let down_now = gone(&Moment::of(&job).await?);
        ensure!(down_now == down, "{down_now:?} are down by now, {down:?} were");
        quota.lift().await?;
        job.settled(Widths::default(), WITHIN).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn new_pes_that_get_no_pod_are_waited_for_until_the_time_out() -> Result<()> {
    with_options("waves", &["--resize-seconds", "8"], &[], async |it| {
        let job = submitted(it, MaxUnavailable::default(), PeOptions::default()).await?;
        let before = Moment::of(&job).await?;
        let quota = Quota::after(it, Limited::Pods, 0).await?;
        let (pods, pes) = (History::<Pod>::begin(&job).await?, History::<ProcessingElement>::begin(&job).await?);
        it.resize(&job, &[(CLEAN, 3)], WaitFor::Committed).await?;
        job.until_told(condition::RESIZE_DELAYED, &["QuotaExceeded"], WITHIN).await?;
        let restarted = resize_of_clean(2, 3).restarted.len();
        eventually("the others have their texts", WITHIN, || async {
            let order = order(&pes, 1).await?;
            ensure!(order.len() == 1 + restarted && !before.pods.0.contains_key(&order[0]), "{order:?}");
            Ok(())
        })
        .await?;
        // Nothing that ran was touched before.
        let started = job.status().await?.rollout.and_then(|rollout| rollout.started_at).context("no roll-out")?.0;
        let deleted_at = |(pod, _): &(Pod, bool)| {
            let gone_by = pod.metadata.deletion_timestamp.as_ref()?.0.as_second();
            Some(gone_by - pod.metadata.deletion_grace_period_seconds.unwrap_or_default())
        };
        let first = eventually("a pod is restarted", WITHIN, || async {
            let first = pods.read().await?.iter().filter_map(deleted_at).min();
            first.context("none was deleted")
        })
        .await?;
        ensure!(first >= started.as_second() + 8, "restarted at {first}, committed at {started}");
        quota.lift().await?;
        job.settled(Widths { clean: 3, ..Widths::default() }, WITHIN).await?;
        Ok(())
    })
    .await
}
