//! Asks for widths and follows the request; withdraws one.

use super::options::{CancelOptions, ResizeOptions};
use super::progress::{has_come_to, tell};
use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, ObjectMeta, PartialObjectMetaExt as _, Patch, PatchParams, PostParams};
use kube::runtime::watcher::watch_object;
use kube::{Client, ResourceExt as _};
use std::pin::pin;
use streams_api::{DesiredWidth, Job, Resize, ResizePhase, ResizeSpec, names};
use tokio::time::{Instant, timeout_at};

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Good,
    /// It was refused, superseded or cancelled.
    Bad,
    /// The time is over; it goes on.
    StillGoing,
}

/// Makes a request and follows it as far as the options say.
pub(crate) async fn resize(client: Client, namespace: &str, options: ResizeOptions) -> anyhow::Result<Ending> {
    let deadline = Instant::now() + options.timeout;
    let wait = options.wait.phase();
    let job = options.job.clone();
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    if jobs.get_opt(&job).await?.is_none() {
        bail!("there is no job {job} in namespace {namespace}");
    }
    let requests: Api<Resize> = Api::namespaced(client, namespace);
    let made =
        requests.create(&PostParams::default(), &request(options)?).await.context("the request was not taken")?;
    let name = made.name_any();
    println!("streamsresize.streams.ibm.com/{name} created");
    let Some(phase) = wait else { return Ok(Ending::Good) };
    match timeout_at(deadline, follow(requests, jobs, &job, &name, phase)).await {
        Ok(ending) => ending,
        Err(_) => {
            eprintln!("the time is over; the request goes on: kubectl get streamsresize {name}");
            Ok(Ending::StillGoing)
        }
    }
}

/// The object to create; the API server completes its name.
fn request(options: ResizeOptions) -> anyhow::Result<Resize> {
    let ResizeOptions { job, widths, expect, expect_generation, policy, .. } = options;
    let mut regions: Vec<_> =
        widths.into_iter().map(|(name, width)| DesiredWidth { name, width, expected_width: None }).collect();
    for (name, width) in expect {
        let region = regions.iter_mut().find(|region| region.name == name);
        let region = region.with_context(|| format!("--expect names {name}, for which no width is wanted"))?;
        region.expected_width = Some(width);
    }
    let metadata = ObjectMeta { generate_name: Some(format!("{job}-")), ..ObjectMeta::default() };
    let spec = ResizeSpec { job_name: job, regions, expected_generation: expect_generation, policy: policy.into() };
    Ok(Resize { metadata, spec, status: None })
}

/// Tells what becomes of a request until it has come to a phase, or ends without.
async fn follow(
    requests: Api<Resize>,
    jobs: Api<Job>,
    job: &str,
    name: &str,
    phase: ResizePhase,
) -> anyhow::Result<Ending> {
    let mut requests = pin!(watch_object(requests, name).fuse());
    let mut jobs = pin!(watch_object(jobs, job).fuse());
    let (mut request, mut job_now, mut told) = (None::<Resize>, None::<Job>, String::new());
    loop {
        tokio::select! {
            changed = requests.try_next() => match changed {
                Ok(Some(Some(changed))) => request = Some(changed),
                // The cache of the API server may be behind the creation.
                Ok(Some(None)) if request.is_none() => {}
                Ok(Some(None)) => bail!("the request was deleted: it is kept for a while after its end only"),
                Ok(None) => bail!("the watch of the request ended"),
                Err(error) => eprintln!("watching again: {error}"),
            },
            changed = jobs.try_next() => match changed {
                Ok(Some(changed)) => job_now = changed,
                Ok(None) => bail!("the watch of the job ended"),
                Err(error) => eprintln!("watching again: {error}"),
            },
        }
        let Some(request) = &request else { continue };
        let sentence = tell(request, job_now.as_ref());
        if sentence != told {
            eprintln!("{sentence}");
            told = sentence;
        }
        if let Some(is_good) = has_come_to(request, phase) {
            return Ok(if is_good { Ending::Good } else { Ending::Bad });
        }
    }
}

/// Withdraws a request.
pub(crate) async fn cancel(client: Client, namespace: &str, options: &CancelOptions) -> anyhow::Result<()> {
    let requests: Api<Resize> = Api::namespaced(client, namespace);
    let name = &options.request;
    let Some(request) = requests.get_opt(name).await? else {
        bail!("there is no request {name} in namespace {namespace}");
    };
    if request.phase() >= ResizePhase::Written {
        bail!("it is too late: {}", tell(&request, None));
    }
    let annotations = [(names::ANNOTATION_CANCEL_REQUESTED, "kubectl streams")];
    let metadata = ObjectMeta {
        annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        ..ObjectMeta::default()
    };
    let patch = Patch::Merge(metadata.into_request_partial::<Resize>());
    requests.patch_metadata(name, &PatchParams::default(), &patch).await?;
    println!("streamsresize.streams.ibm.com/{name} withdrawn");
    Ok(())
}
