//! A frontend that was given its rights namespace by namespace goes on in one when those in another are taken away,
//! also if it begins then; and in the other one when they are back (rule call-33).

use super::fixture::{JOB, Moment, WITHIN, as_if_undisturbed, reason, until_taken};
use crate::support::{control_plane, frontend_rights, programs, supervisor};
use anyhow::{Result, bail, ensure};
use integration_tests::sample::{self, CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use integration_tests::system::rights::RightsInSome;
use integration_tests::system::{Frontend, LONG_LEASE, System, SystemOptions};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{DeleteParams, ListParams};
use streams_api::Job;
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use tonic::Code;

const WIDTH: u32 = 5;
const LINES_SHOWN: usize = 25;
/// The kinds that are watched.
const KINDS: usize = 11;

/// So many kinds may not be read in a namespace, and the frontend is ready.
async fn is_refused(frontend: &Frontend, namespace: &str, kinds: usize) -> Result<()> {
    eventually(&format!("{kinds} kinds of {namespace} are refused"), WITHIN, || async {
        let figures = frontend.metrics().await?;
        let line = format!("streams_frontend_refused_kinds{{namespace=\"{namespace}\"}} {kinds}\n");
        ensure!(figures.contains(&line), "there is no {line}");
        Ok(())
    })
    .await?;
    let (status, text) = frontend.readiness().await?;
    let words = format!("[+] the API server does not let this frontend read namespace {namespace}: ");
    ensure!(status == 200 && text.contains(&words) == (kinds > 0), "{status} {text}");
    Ok(())
}

/// The job gets this width by a resize.
async fn resized(frontend: &Frontend, job: &ObservedJob, width: u32, generation: u64) -> Result<()> {
    let wanted = job.resize_request(&[(CLEAN, width)], WaitFor::RolledOut);
    let answer = until_taken(frontend.balancer().await?, wanted, WITHIN).await?;
    ensure!(answer.generation == Some(generation), "{answer:?}");
    Ok(())
}

/// Who asks for a resize of the job hears that its namespace is not seen.
async fn is_not_seen(frontend: &Frontend, job: &ObservedJob) -> Result<()> {
    let wanted = job.resize_request(&[(CLEAN, WIDTH)], WaitFor::Committed);
    match until_taken(frontend.balancer().await?, wanted, WITHIN).await {
        Ok(answer) => bail!("it is resized: {answer:?}"),
        Err(status) => {
            ensure!(status.code() == Code::Unavailable && reason(&status) == "NOT_CURRENT", "{status:?}");
            ensure!(status.message().contains(job.namespace()), "{status:?}");
            Ok(())
        }
    }
}

async fn rights_go_and_come_back(
    client: &Client,
    rights: &RightsInSome,
    [kept, lost]: [&str; 2],
    system: &System,
) -> Result<()> {
    let frontend = system.frontend()?;
    let kept = ObservedJob::create(client, &sample::job(kept, JOB)).await?;
    let other = ObservedJob::create(client, &sample::job(lost, JOB)).await?;
    kept.settled(Widths::default(), WITHIN).await?;
    other.settled(Widths::default(), WITHIN).await?;
    let before = Moment::of(&other).await?;

    rights.take_in(lost).await?;
    is_refused(frontend, lost, KINDS).await?;
    is_not_seen(frontend, &other).await?;
    resized(frontend, &kept, WIDTH, 1).await?;

    // What it knew of the other namespace is forgotten.
    frontend.process().kill().await?;
    frontend.start_again().await?;
    is_refused(frontend, lost, KINDS).await?;
    is_not_seen(frontend, &other).await?;
    resized(frontend, &kept, 2, 2).await?;
    kept.settled(Widths::default(), WITHIN).await?;
    let pods = other.api::<Pod>().list(&ListParams::default()).await?.items.len();
    ensure!(pods == Widths::default().processing_elements(), "{pods} pods");

    rights.give_in(lost).await?;
    is_refused(frontend, lost, 0).await?;
    resized(frontend, &other, WIDTH, 1).await?;
    as_if_undisturbed(&other, &before, WIDTH).await?;
    for job in [kept, other] {
        job.api::<Job>().delete(JOB, &DeleteParams::background()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn rights_that_go_in_one_namespace_take_nothing_from_another() -> Result<()> {
    let control_plane = control_plane().await?;
    let (kept, lost) = (control_plane.namespace("rights-kept").await?, control_plane.namespace("rights-lost").await?);
    let rights = RightsInSome::none(control_plane, frontend_rights().await?, &kept).await?;
    rights.give_in(&kept).await?;
    rights.give_in(&lost).await?;
    let of_namespaces = ["--namespace", &kept, "--namespace", &lost, "--lease-namespace", &kept];
    let options = SystemOptions {
        kubeconfig: rights.kubeconfig().to_owned(),
        namespace: None,
        fusion_replicas: 1,
        frontend_replicas: 1,
        pe_api: Vec::new(),
        frontend_arguments: LONG_LEASE.into_iter().chain(of_namespaces).map(str::to_owned).collect(),
        environment: Vec::new(),
    };
    let system = System::start(&supervisor(), programs().await?, &options).await?;
    sample::write_bundle(system.bundles())?;
    let client = control_plane.client().await?;
    let done = rights_go_and_come_back(&client, &rights, [&kept, &lost], &system).await;
    done.map_err(|error| error.context(format!("the ends of the logs:\n{}", system.last_lines(LINES_SHOWN))))
}
