//! A namespace with frontends of its own that die, freeze and fail as their referee says, and a job that lives through
//! all operations again and again, struck in another place each time.
//!
//! Knows: frontends as processes, operations. Must not know: which call is struck.

use super::operations::{Operation, Pace};
use super::referee::{Blow, Counted, Referee, Watches};
use crate::faults::SOCKET;
use crate::sample;
use crate::system::job::ObservedJob;
use crate::system::picture::{Likeness, Picture};
use crate::system::rights::FrontendRights;
use crate::system::{Programs, System, SystemOptions};
use anyhow::{Context as _, Result, ensure};
use futures::future::{Either, select, try_join_all};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams};
use parking_lot::Mutex;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;
use streams_api::ProcessingElement;
use streams_control_plane::process::Supervisor;
use streams_control_plane::wait::eventually;
use streams_control_plane::{Component, ControlPlane};
use tokio::sync::watch;

const WITHIN: Duration = Duration::from_secs(60);
/// Far more than an operation takes if watches tell everything at once.
const OPERATION_WITHIN: Duration = Duration::from_secs(120);
/// How often an operation waits, at most, for what a watch tells: PEs restart one after the other, and each waits some
/// seven times.
const WAITS_OF_OPERATION: u32 = 120;
/// A job that is settled changes no more than this between two looks.
const UNCHANGED_FOR: Duration = Duration::from_secs(1);
const JOB: &str = "flow";
/// The counter of job ids; texts have the id in them.
const JOB_IDS: &str = "streams-job-ids";
/// Calls are short, so that one that nobody answers does not take five seconds. A frontend that is the only one of its
/// namespace goes on leading.
const ALONE: [&str; 8] =
    ["--lease-seconds", "60", "--renew-deadline-seconds", "50", "--renew-seconds", "2", "--call-seconds", "4"];
/// Of several, another one leads soon.
const ONE_OF_SEVERAL: [&str; 8] =
    ["--lease-seconds", "8", "--renew-deadline-seconds", "6", "--renew-seconds", "1", "--call-seconds", "4"];
/// By then another one leads, if the one that is frozen has led.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(20);
/// How far the new leader comes, every second time, before the old one goes on.
const HEAD_START: Duration = Duration::from_millis(1500);

/// What a job has come to after an operation.
#[derive(Debug, Clone, PartialEq)]
struct Reached {
    picture: Picture,
    job_id: Option<u64>,
    generation: Option<u64>,
    /// How often each PE was launched since the operation began.
    launches: BTreeMap<u64, u64>,
}

/// What every operation comes to when nothing disturbs it, and the calls that it takes.
#[derive(Debug, Clone, Default)]
pub(super) struct Undisturbed {
    reached: BTreeMap<Operation, Reached>,
    /// The same if edits do not follow each other at once: no more generations and launches than these.
    apart: BTreeMap<Operation, Reached>,
    /// Writes of each operation, and all calls.
    pub(super) writes: BTreeMap<Operation, usize>,
    pub(super) calls: BTreeMap<Operation, usize>,
}

/// A point in an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The operation.
    pub operation: Operation,
    /// Which of its writes, or, for a fault, of its calls; from 1 on.
    pub number: usize,
    /// What happens there.
    pub blow: Blow,
}

/// What became of a point.
#[derive(Debug)]
pub enum Passed {
    /// The job came to the same end.
    Yes,
    /// The operation had fewer calls this time.
    NotReached,
    /// It did not.
    No {
        /// The call that was struck.
        struck: String,
        /// What was wrong.
        what: String,
    },
}

/// A lane.
pub(super) struct Lane<'a> {
    control_plane: &'a ControlPlane,
    client: Client,
    job: ObservedJob,
    system: System,
    referee: Referee,
    /// How often PEs had been launched when the operation began. Operations before may differ in that, and be right.
    before: Mutex<BTreeMap<u64, u64>>,
}

impl<'a> Lane<'a> {
    /// Starts so many frontends in a new namespace.
    pub(super) async fn start(
        control_plane: &'a ControlPlane,
        supervisor: &Supervisor,
        programs: &Programs,
        frontends: usize,
    ) -> Result<Self> {
        let namespace = control_plane.namespace("crash-points").await?;
        let referee = Referee::start()?;
        let client = control_plane.client().await?;
        let rights = FrontendRights::give(control_plane).await?;
        rights.lease_in(&client, &namespace).await?;
        let options = SystemOptions {
            kubeconfig: rights.kubeconfig().to_owned(),
            namespace: Some(namespace.clone()),
            fusion_replicas: 1,
            frontend_replicas: frontends,
            frontend_arguments: if frontends > 1 { ONE_OF_SEVERAL } else { ALONE }.map(str::to_owned).into(),
            pe_api: Vec::new(),
            environment: vec![(SOCKET.to_owned(), referee.socket().display().to_string())],
        };
        let system = System::start(supervisor, programs, &options).await?;
        sample::write_bundle(system.bundles())?;
        let job = ObservedJob::new(&client, &namespace, JOB);
        Ok(Self { control_plane, client, job, system, referee, before: Mutex::default() })
    }

    /// The ends of the logs.
    pub(super) fn last_lines(&self) -> String {
        self.system.last_lines(20)
    }

    /// Its namespace.
    pub(super) fn namespace(&self) -> &str {
        self.job.namespace()
    }

    /// Watches are like this from now on: the frontends are started anew.
    pub(super) async fn watches(&self, watches: Watches) -> Result<()> {
        self.referee.watches(watches);
        for frontend in self.system.frontends() {
            frontend.process().kill().await?;
        }
        self.revive().await
    }

    /// Does all operations without a disturbance.
    pub(super) async fn undisturbed(&self) -> Result<Undisturbed> {
        let mut undisturbed = Undisturbed::default();
        for pace in [Pace::Apart, Pace::AtOnce] {
            for operation in Operation::ALL {
                let (counted, result) = self.one(operation, pace, None).await;
                result.with_context(|| format!("{operation}, undisturbed"))?;
                undisturbed.writes.insert(operation, counted.writes);
                undisturbed.calls.insert(operation, counted.calls.len());
                if operation != Operation::Deletion {
                    let reached = self.reached().await?;
                    let at_this_pace = match pace {
                        Pace::AtOnce => &mut undisturbed.reached,
                        Pace::Apart => &mut undisturbed.apart,
                    };
                    at_this_pace.insert(operation, reached);
                }
            }
            self.forget().await?;
        }
        Ok(undisturbed)
    }

    /// A life of the job, struck at these points, one for each operation at most, up to the last one that is.
    pub(super) async fn live(
        &self,
        points: &BTreeMap<Operation, Point>,
        undisturbed: &Undisturbed,
        mut tell: impl AsyncFnMut(Point, Passed),
    ) -> Result<()> {
        let last = points.keys().next_back().copied();
        for operation in Operation::ALL {
            // Nothing more is to be learned from this life.
            let is_over = last.is_none_or(|last| operation > last) && operation != Operation::Deletion;
            if is_over {
                continue;
            }
            let point = points.get(&operation);
            let strike = point.map(|point| (point.number, point.blow));
            let (counted, mut result) = self.one(operation, Pace::AtOnce, strike).await;
            if result.is_ok() && operation != Operation::Deletion {
                result = self.like(operation, undisturbed).await;
            }
            match (point, counted.struck, result) {
                (None, _, result) => {
                    // An operation before may have left something that shows only now.
                    if let Err(error) = result {
                        self.clean_up().await?;
                        return Err(error.context(format!("{operation}, undisturbed, after others that were struck")));
                    }
                }
                (Some(point), None, Ok(())) => tell(*point, Passed::NotReached).await,
                (Some(point), Some(_), Ok(())) => tell(*point, Passed::Yes).await,
                (Some(point), struck, Err(error)) => {
                    let struck = struck.unwrap_or_else(|| "nothing".to_owned());
                    tell(*point, Passed::No { struck, what: format!("{error:#}") }).await;
                    return self.clean_up().await;
                }
            }
        }
        self.forget().await
    }

    /// Does an operation, and strikes.
    async fn one(&self, operation: Operation, pace: Pace, strikes_at: Option<(usize, Blow)>) -> (Counted, Result<()>) {
        match self.launches().await {
            Ok(launches) => *self.before.lock() = launches,
            Err(error) => return (Counted::default(), Err(error)),
        }
        self.referee.begin(strikes_at);
        let within = OPERATION_WITHIN + self.referee.lateness() * WAITS_OF_OPERATION;
        let has_begun = watch::Sender::new(false);
        let done = async {
            operation.begin(pace, &self.job, self.system.frontends(), &self.client, within).await?;
            has_begun.send_replace(true);
            operation.finish(&self.job, within).await
        };
        let striking = self.strike(strikes_at, &has_begun);
        let all = async {
            match select(pin!(done), pin!(striking)).await {
                Either::Left((result, striking)) => {
                    let counted = self.referee.end();
                    let helped = if counted.struck.is_some() { striking.await } else { Ok(()) };
                    (counted, result.and(helped))
                }
                Either::Right((helped, done)) => {
                    let result = done.await;
                    (self.referee.end(), result.and(helped))
                }
            }
        };
        let reviving = try_join_all(self.system.frontends().iter().map(|frontend| async {
            let process = frontend.process();
            loop {
                process.ended().await;
                process.start_again().await?;
            }
            #[allow(unreachable_code, reason = "says the type")]
            Ok::<_, anyhow::Error>(())
        }));
        let (counted, result) = tokio::select! {
            ended = all => ended,
            result = reviving => (self.referee.end(), result.map(drop)),
        };
        // It may have been struck when all was done already.
        match self.revive().await {
            Ok(()) => (counted, result),
            Err(error) => (counted, result.and(Err(error))),
        }
    }

    /// What the frontend cannot do to itself. Ends at once where there is no such thing to do; else when it is done.
    async fn strike(&self, strikes_at: Option<(usize, Blow)>, has_begun: &watch::Sender<bool>) -> Result<()> {
        let Some((number, blow)) = strikes_at else { return Ok(()) };
        let component = match blow {
            Blow::Frozen => return self.thaw(number).await,
            Blow::ApiServerKilled => Component::KubeApiserver,
            Blow::EtcdKilled => Component::Etcd,
            _ => return Ok(()),
        };
        self.referee.strikes().await;
        // What is done to the job is not part of the trial.
        let _ = has_begun.subscribe().wait_for(|has_begun| *has_begun).await;
        let process = self.control_plane.process(component)?;
        process.kill().await?;
        self.referee.is_out();
        process.start_again().await
    }

    /// Lets the frontend that froze go on, once another one leads: what it was about to write arrives late.
    async fn thaw(&self, number: usize) -> Result<()> {
        self.referee.strikes().await;
        let frozen = self.leader().await?;
        let taken_over = eventually("another one leads", TAKEN_OVER_WITHIN, || async {
            ensure!(self.leader().await? != frozen, "{frozen:?} does");
            Ok(())
        });
        // If not, it was not the leader who froze.
        if taken_over.await.is_ok() && number.is_multiple_of(2) {
            tokio::time::sleep(HEAD_START).await;
        }
        for frontend in self.system.frontends().iter().filter(|frontend| frontend.process().id().is_some()) {
            frontend.process().signal(Signal::CONT)?;
        }
        Ok(())
    }

    async fn leader(&self) -> Result<Option<String>> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), self.job.namespace());
        let leases = leases.list(&ListParams::default()).await?;
        Ok(leases.items.into_iter().find_map(|lease| lease.spec?.holder_identity))
    }

    async fn revive(&self) -> Result<()> {
        for frontend in self.system.frontends() {
            // One that was frozen ends when it notices that it does not lead any more.
            eventually("the frontend is ready", WITHIN, || async {
                if frontend.process().id().is_none() {
                    frontend.process().start_again().await?;
                }
                frontend.ready().await
            })
            .await?;
        }
        Ok(())
    }

    async fn look(&self) -> Result<Reached> {
        let picture = Picture::of(&self.client, self.job.namespace(), JOB).await?;
        let status = self.job.status().await?;
        let launches = self.launches().await?;
        let before = self.before.lock();
        // A PE that was removed and comes again is counted from the beginning.
        let since = |(pe, now): (u64, u64)| (pe, now.checked_sub(before.get(&pe).copied().unwrap_or(0)).unwrap_or(now));
        let launches = launches.into_iter().map(since).collect();
        Ok(Reached { picture, job_id: status.job_id, generation: status.generation, launches })
    }

    /// How often each PE of the job was launched until now.
    async fn launches(&self) -> Result<BTreeMap<u64, u64>> {
        let pes = self.job.list::<ProcessingElement>().await?;
        Ok(pes.into_iter().map(|pe| (pe.spec.id, pe.status.unwrap_or_default().launch_count)).collect())
    }

    /// What the job has come to once nothing changes any more: some objects follow its status.
    async fn reached(&self) -> Result<Reached> {
        let mut last = self.look().await?;
        loop {
            tokio::time::sleep(UNCHANGED_FOR).await;
            let now = self.look().await?;
            if now == last {
                return Ok(now);
            }
            last = now;
        }
    }

    /// The job has come to what it comes to undisturbed.
    async fn like(&self, operation: Operation, undisturbed: &Undisturbed) -> Result<()> {
        let of = |reached: &BTreeMap<Operation, Reached>| reached.get(&operation).cloned();
        let expected = of(&undisturbed.reached).context("nothing to compare with")?;
        let most = of(&undisturbed.apart).context("nothing to compare with")?;
        eventually("the same end as undisturbed", WITHIN, || async {
            let reached = self.look().await?;
            let is_same_job = reached.job_id == expected.job_id;
            // An id that is lost between the counter and the record is allowed to be; all texts have it in them.
            let is_determined = operation.is_determined(self.referee.watches_are_good());
            let likeness = if is_determined && is_same_job { Likeness::Whole } else { Likeness::Operators };
            let differences = reached.picture.differences(&expected.picture, likeness);
            ensure!(differences.is_empty(), "{}", differences.join("; "));
            if is_determined {
                // However many generations the edits were when nothing disturbed them, they may be one.
                let apart = operation.edits() - 1;
                let once_at_least =
                    |(pe, launches): (&u64, &u64)| (*pe, launches.saturating_sub(apart).max(1).min(*launches));
                let least: BTreeMap<u64, u64> = most.launches.iter().map(once_at_least).collect();
                let (have, most_launches) = (&reached.launches, &most.launches);
                let is_between = have.keys().eq(least.keys())
                    && have.iter().all(|(pe, have)| least.get(pe) <= Some(have) && Some(have) <= most_launches.get(pe));
                ensure!(is_between, "PEs were launched so often: {have:?}, not {least:?} to {most_launches:?}");
                let least = most.generation.map(|most| most.saturating_sub(apart));
                let (have, most) = (reached.generation, most.generation);
                ensure!(least <= have && have <= most, "generation {have:?}, not {least:?} to {most:?}");
            }
            Ok(())
        })
        .await
    }

    /// The next job gets the same id.
    async fn forget(&self) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), self.job.namespace());
        match maps.delete(JOB_IDS, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error).context("the counter of job ids"),
        }
    }

    /// After a failure: the next life begins from nothing.
    async fn clean_up(&self) -> Result<()> {
        let (_, result) = self.one(Operation::Deletion, Pace::AtOnce, None).await;
        result.context("a job that failed cannot be cleaned up")?;
        self.forget().await
    }
}
