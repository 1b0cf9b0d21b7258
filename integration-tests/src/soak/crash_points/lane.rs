//! A namespace with a frontend of its own that dies and fails as its referee says, and a job that lives through all
//! operations again and again, struck in another place each time.

use super::operations::Operation;
use super::referee::{Blow, Counted, Referee, Watches};
use crate::faults::SOCKET;
use crate::sample;
use crate::system::job::ObservedJob;
use crate::system::picture::{Likeness, Picture};
use crate::system::rights::FrontendRights;
use crate::system::{Programs, System, SystemOptions};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams};
use std::collections::BTreeMap;
use std::time::Duration;
use streams_api::ProcessingElement;
use streams_control_plane::ControlPlane;
use streams_control_plane::process::Supervisor;
use streams_control_plane::wait::eventually;

const WITHIN: Duration = Duration::from_secs(60);
/// A job that is settled changes no more than this between two looks.
const UNCHANGED_FOR: Duration = Duration::from_secs(1);
const JOB: &str = "flow";
/// The counter of job ids; texts have the id in them.
const JOB_IDS: &str = "streams-job-ids";
/// Calls are short, so that one that nobody answers does not take five seconds. The frontend is the only one of its
/// namespace: it goes on leading.
const ARGUMENTS: [&str; 8] =
    ["--lease-seconds", "60", "--renew-deadline-seconds", "50", "--renew-seconds", "2", "--call-seconds", "4"];

/// What a job has come to after an operation.
#[derive(Debug, Clone, PartialEq)]
struct Reached {
    picture: Picture,
    job_id: Option<u64>,
    generation: Option<u64>,
    launches: BTreeMap<u64, u64>,
}

/// What every operation comes to when nothing disturbs it, and the calls that it takes.
#[derive(Debug, Clone, Default)]
pub(super) struct Undisturbed {
    reached: BTreeMap<Operation, Reached>,
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
pub(super) struct Lane {
    client: Client,
    job: ObservedJob,
    system: System,
    referee: Referee,
}

impl Lane {
    pub(super) async fn start(
        control_plane: &ControlPlane,
        supervisor: &Supervisor,
        programs: &Programs,
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
            frontend_replicas: 1,
            frontend_arguments: ARGUMENTS.map(str::to_owned).into(),
            environment: vec![(SOCKET.to_owned(), referee.socket().display().to_string())],
        };
        let system = System::start(supervisor, programs, &options).await?;
        sample::write_bundle(system.bundles())?;
        let job = ObservedJob::new(&client, &namespace, JOB);
        Ok(Self { client, job, system, referee })
    }

    /// The ends of the logs.
    pub(super) fn last_lines(&self) -> String {
        self.system.last_lines(20)
    }

    /// Its namespace.
    pub(super) fn namespace(&self) -> &str {
        self.job.namespace()
    }

    /// Watches are like this from now on: the frontend is started anew.
    pub(super) async fn watches(&self, watches: Watches) -> Result<()> {
        self.referee.watches(watches);
        let process = self.system.frontend()?.process();
        process.kill().await?;
        self.revive().await
    }

    /// Does all operations without a disturbance.
    pub(super) async fn undisturbed(&self) -> Result<Undisturbed> {
        let mut undisturbed = Undisturbed::default();
        for operation in Operation::ALL {
            let (counted, result) = self.one(operation, None).await;
            result.with_context(|| format!("{operation}, undisturbed"))?;
            undisturbed.writes.insert(operation, counted.writes);
            undisturbed.calls.insert(operation, counted.calls.len());
            if operation != Operation::Deletion {
                undisturbed.reached.insert(operation, self.reached().await?);
            }
        }
        self.forget().await?;
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
            let (counted, mut result) = self.one(operation, point.map(|point| (point.number, point.blow))).await;
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
    async fn one(&self, operation: Operation, strikes_at: Option<(usize, Blow)>) -> (Counted, Result<()>) {
        self.referee.begin(strikes_at);
        let done = async {
            let frontend = self.system.frontend()?;
            operation.begin(&self.job, frontend, &self.client).await?;
            operation.finish(&self.job).await
        };
        let reviving = async {
            let process = self.system.frontend()?.process();
            loop {
                process.ended().await;
                process.start_again().await?;
            }
        };
        let result = tokio::select! {
            result = done => result,
            result = reviving => result,
        };
        let counted = self.referee.end();
        // It may have been struck when all was done already.
        match self.revive().await {
            Ok(()) => (counted, result),
            Err(error) => (counted, result.and(Err(error))),
        }
    }

    async fn revive(&self) -> Result<()> {
        let frontend = self.system.frontend()?;
        if frontend.process().id().is_none() {
            frontend.process().start_again().await?;
        }
        frontend.ready().await
    }

    async fn look(&self) -> Result<Reached> {
        let picture = Picture::of(&self.client, self.job.namespace(), JOB).await?;
        let status = self.job.status().await?;
        let pes = self.job.list::<ProcessingElement>().await?;
        let launches = pes.iter().map(|pe| (pe.spec.id, pe.status.clone().unwrap_or_default().launch_count));
        Ok(Reached { picture, job_id: status.job_id, generation: status.generation, launches: launches.collect() })
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
        let expected = undisturbed.reached.get(&operation).context("nothing to compare with")?;
        eventually("the same end as undisturbed", WITHIN, || async {
            let reached = self.look().await?;
            let is_same_job = reached.job_id == expected.job_id;
            // An id that is lost between the counter and the record is allowed to be; all texts have it in them.
            let likeness = if operation.is_determined() && is_same_job { Likeness::Whole } else { Likeness::Operators };
            let differences = reached.picture.differences(&expected.picture, likeness);
            ensure!(differences.is_empty(), "{}", differences.join("; "));
            if operation.is_determined() {
                let (have, want) = (&reached.launches, &expected.launches);
                ensure!(have == want, "PEs were launched so often: {have:?}, not {want:?}");
                let (have, want) = (reached.generation, expected.generation);
                ensure!(have == want, "generation {have:?}, not {want:?}");
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
        let (_, result) = self.one(Operation::Deletion, None).await;
        result.context("a job that failed cannot be cleaned up")?;
        self.forget().await
    }
}
