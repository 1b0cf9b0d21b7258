//! What is done to a job between its creation and its end, and what it must have come to afterwards.

use crate::sample::{self, CLEAN, MODEL, Widths};
use crate::system::Frontend;
use crate::system::job::ObservedJob;
use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;
use streams_api::{DesiredWidth, Job, PePhase, ProcessingElement, Resize, ResizePhase, ResizeSpec, names};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::ResizeRequest;
use streams_proto::elasticity::v1::resize_request::WaitFor;

/// Name of a request that is made as an object.
const REQUEST: &str = "narrower-and-wider";
/// One call of the elasticity API; it is made again until it was accepted.
const CALL_WITHIN: Duration = Duration::from_secs(10);

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// The job is created.
    Submit,
    /// A region gets a channel more.
    Grow,
    /// A PE is asked to restart.
    Restart,
    /// A pod fails.
    PodFails,
    /// Somebody makes a request to resize two regions, as an object.
    Request,
    /// Two regions are resized by one request to the elasticity API.
    TwoRegions,
    /// They get their former widths, by one edit each.
    Shrink,
    /// A width is changed and taken back at once.
    RollBack,
    /// A PE completes.
    Completion,
    /// The job is deleted.
    Deletion,
}

/// How the two edits of an operation follow each other. They are one generation or two, and what both change restarts
/// once or twice: that depends on when the frontend hears of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// The second one at once.
    AtOnce,
    /// The second one when the first has come to its end.
    Apart,
}

impl Operation {
    /// All, in the order in which they are done.
    pub const ALL: [Self; 10] = [
        Self::Submit,
        Self::Grow,
        Self::Restart,
        Self::PodFails,
        Self::Request,
        Self::TwoRegions,
        Self::Shrink,
        Self::RollBack,
        Self::Completion,
        Self::Deletion,
    ];

    /// The widths afterwards.
    fn widths(self) -> Widths {
        let (clean, model) = match self {
            Self::Grow | Self::Restart | Self::PodFails => (2, 1),
            Self::Request => (1, 3),
            Self::TwoRegions => (3, 2),
            _ => (1, 1),
        };
        Widths { clean, score: 1, model }
    }

    /// Whether ids of PEs and texts afterwards follow from what was done, whenever it was done.
    pub fn is_determined(self, watches_are_good: bool) -> bool {
        match self {
            Self::RollBack | Self::Completion => false,
            Self::Shrink => watches_are_good,
            _ => true,
        }
    }

    /// Edits that may become a generation each, or one together, undisturbed as well.
    pub(super) fn edits(self) -> u64 {
        match self {
            Self::Shrink | Self::RollBack => 2,
            _ => 1,
        }
    }

    /// Does it, at a pace that matters to those of two edits. What has not happened `within` that time is stuck.
    ///
    /// # Errors
    /// When the API server or the frontend does not take it.
    pub(super) async fn begin(
        self,
        pace: Pace,
        job: &ObservedJob,
        frontends: &[Frontend],
        client: &kube::Client,
        within: Duration,
    ) -> Result<()> {
        match self {
            Self::Submit => {
                let mut object = sample::job(job.namespace(), job.name());
                object.spec.parallel_regions =
                    [CLEAN, sample::SCORE, MODEL].map(|r| sample::initial_width(r, 1)).into();
                ObservedJob::create(client, &object).await.map(drop)
            }
            Self::Grow => job.set_width(CLEAN, 2).await,
            Self::Shrink => {
                job.set_width(CLEAN, 1).await?;
                if pace == Pace::Apart {
                    job.settled(Widths { clean: 1, ..Self::TwoRegions.widths() }, within).await?;
                }
                job.set_width(MODEL, 1).await
            }
            Self::RollBack => {
                job.set_width(CLEAN, 2).await?;
                job.set_width(CLEAN, 1).await
            }
            Self::Restart => {
                let name = job.pe("Alarms").await?.name_any();
                let patch = json!({"metadata": {"annotations": {names::ANNOTATION_RESTART_REQUESTED: "asked"}}});
                job.api::<ProcessingElement>().patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
                Ok(())
            }
            Self::PodFails => tell(job, "Readings", json!({"streams-test/fail": "3"})).await,
            Self::Completion => tell(job, "Alarms", json!({"streams-test/succeed": "yes"})).await,
            Self::Request => {
                let regions = [(CLEAN, 1), (MODEL, 3)].map(|(name, width)| DesiredWidth {
                    name: name.to_owned(),
                    width,
                    expected_width: None,
                });
                let spec =
                    ResizeSpec { job_name: job.name().to_owned(), regions: regions.into(), ..ResizeSpec::default() };
                job.api::<Resize>().create(&PostParams::default(), &Resize::new(REQUEST, spec)).await?;
                Ok(())
            }
            Self::TwoRegions => {
                // Whoever is killed or frozen does not answer: a load balancer asks the next one.
                let mut next = frontends.iter().cycle();
                eventually("the request is accepted", within, || {
                    let frontend = next.next();
                    async move {
                        let mut request = tonic::Request::new(ResizeRequest {
                            // However often it is asked, it is one request.
                            idempotency_key: "two regions".to_owned(),
                            ..job.resize_request(&[(CLEAN, 3), (MODEL, 2)], WaitFor::Accepted)
                        });
                        request.set_timeout(CALL_WITHIN);
                        frontend.context("no frontend")?.balancer().await?.resize(request).await?;
                        Ok(())
                    }
                })
                .await
            }
            Self::Deletion => {
                job.api::<Job>().delete(job.name(), &DeleteParams::foreground()).await?;
                Ok(())
            }
        }
    }

    /// Waits until the job is as it must be afterwards. What has not happened `within` that time is stuck.
    pub(super) async fn finish(self, job: &ObservedJob, within: Duration) -> Result<()> {
        match self {
            Self::Restart => {
                eventually("the PE was restarted", within, || async {
                    let status = job.pe("Alarms").await?.status.unwrap_or_default();
                    ensure!(status.restart_requested.as_deref() == Some("asked"), "{:?}", status.restart_requested);
                    Ok(())
                })
                .await?;
            }
            Self::PodFails => {
                eventually("the end of the pod was recorded", within, || async {
                    let status = job.pe("Readings").await?.status.unwrap_or_default();
                    ensure!(status.last_termination.is_some_and(|end| end.exit_code == Some(3)), "it was not");
                    Ok(())
                })
                .await?;
            }
            Self::Request => {
                eventually("the request is rolled out", within, || async {
                    let request = job.api::<Resize>().get(REQUEST).await?;
                    ensure!(request.phase() == ResizePhase::RolledOut, "{:?}", request.status);
                    Ok(())
                })
                .await?;
            }
            Self::Completion => return completed(job, within).await,
            Self::Deletion => return gone(job, within).await,
            _ => {}
        }
        job.settled(self.widths(), within).await.map(drop)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Submit => "submit",
            Self::Grow => "grow",
            Self::Restart => "restart",
            Self::PodFails => "pod failure",
            Self::Request => "request",
            Self::TwoRegions => "two regions at once",
            Self::Shrink => "shrink",
            Self::RollBack => "roll back",
            Self::Completion => "completion",
            Self::Deletion => "deletion",
        })
    }
}

/// Directs the pod of an operator.
async fn tell(job: &ObservedJob, operator: &str, annotations: Value) -> Result<()> {
    let status = job.pe(operator).await?.status.unwrap_or_default();
    let name = status.pod_name.with_context(|| format!("the PE of {operator} has no pod"))?;
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    job.api::<Pod>().patch(&name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// One PE has completed and stays so, all others run.
async fn completed(job: &ObservedJob, within: Duration) -> Result<()> {
    eventually("one PE has completed", within, || async {
        for pe in job.list::<ProcessingElement>().await? {
            let expected = if pe.spec.operators == ["Alarms"] { PePhase::Completed } else { PePhase::Running };
            let phase = pe.status.unwrap_or_default().phase;
            ensure!(phase == Some(expected), "{:?} is {phase:?}", pe.spec.operators);
        }
        let pods = job.list::<Pod>().await?.len();
        ensure!(pods == Widths { clean: 1, score: 1, model: 1 }.processing_elements(), "{pods} pods");
        Ok(())
    })
    .await
}

async fn gone(job: &ObservedJob, within: Duration) -> Result<()> {
    eventually("nothing is left of the job", within, || async {
        if job.api::<Job>().get_opt(job.name()).await?.is_some() {
            bail!("the job is");
        }
        let left = job.inventory().await?.names();
        ensure!(left.is_empty(), "{}", left.join(", "));
        Ok(())
    })
    .await
}
