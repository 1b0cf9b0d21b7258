//! Asks for widths and follows the request; withdraws one.
//!
//! Knows: objects of requests. Must not know: the elasticity API, how widths come into force.

use super::named::named;
use super::options::{CancelOptions, ResizeOptions};
use super::progress::{has_come_to, is_unseen, tell};
use super::{output, words};
use anyhow::{Context as _, anyhow, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, ObjectMeta, PartialObjectMetaExt as _, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Client, ResourceExt as _};
use std::collections::BTreeSet;
use std::error::Error;
use std::pin::pin;
use std::time::Duration;
use streams_api::resize::{name_of_key, new_name};
use streams_api::{DesiredWidth, Job, Resize, ResizePhase, ResizeSpec, names};
use streams_kubernetes::error::absent;
use tokio::time::{Instant, sleep, timeout_at};

/// How long a frontend may say nothing of a request before that is told.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is said of a request that is not there any more.
const DELETED: &str = "the request was deleted: it is kept for a while after its end only";

/// Words about watches that fail: some of them have times, or numbers of versions.
const FAILURES_TOLD: usize = 20;

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
    let of: Job = named(&client, namespace, "job", &job).await?;
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let requests: Api<Resize> = Api::namespaced(client, namespace);
    let has_key = options.key.is_some();
    let (name, is_new) = make(&requests, &request(&of, options)?).await?;
    // Without a key nobody else has made it: an answer was lost, and the client has tried again.
    let how = if is_new || !has_key { "created" } else { "exists" };
    output::print(&format!("streamsresize.streams.ibm.com/{name} {how}"))?;
    let Some(phase) = wait else { return Ok(Ending::Good) };
    match timeout_at(deadline, follow(requests, jobs, &job, &name, phase, PATIENCE)).await {
        Ok(ending) => ending,
        Err(_) => {
            output::tell(&format!("the time is over; the request goes on: kubectl get streamsresize {name}"));
            Ok(Ending::StillGoing)
        }
    }
}

/// Makes a request, or finds the one that its key names. Returns its name, and whether it is new. The client tries a
/// creation again whose answer is lost: it finds then what the first try has made.
async fn make(requests: &Api<Resize>, wanted: &Resize) -> anyhow::Result<(String, bool)> {
    let refused = match requests.create(&PostParams::default(), wanted).await {
        Ok(made) => return Ok((made.name_any(), true)),
        Err(refused) => refused,
    };
    if matches!(&refused, kube::Error::Api(status) if status.is_already_exists()) {
        let name = wanted.name_any();
        let found = requests.get(&name).await.context("the request of this name")?;
        if !found.spec.wants_the_same_as(&wanted.spec) {
            bail!("the key is that of another request of the job, {name}, which wants something else");
        }
        return Ok((name, false));
    }
    Err(refused).context("the request was not taken")
}

/// The object to create. Its name is that of its key, or one that no other request has.
fn request(of: &Job, options: ResizeOptions) -> anyhow::Result<Resize> {
    let ResizeOptions { job, widths, expect, expect_generation, policy, key, .. } = options;
    let regions = desired(widths, expect)?;
    let name = key.map_or_else(|| new_name(of), |key| name_of_key(of, &key));
    let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
    let spec = ResizeSpec { job_name: job, regions, expected_generation: expect_generation, policy: policy.into() };
    Ok(Resize { metadata, spec, status: None })
}

/// Widths that are wanted, with those that are expected.
///
/// # Errors
/// A width is expected of a region for which none is wanted.
pub(crate) fn desired(widths: Vec<(String, u32)>, expect: Vec<(String, u32)>) -> anyhow::Result<Vec<DesiredWidth>> {
    let mut regions: Vec<_> =
        widths.into_iter().map(|(name, width)| DesiredWidth { name, width, expected_width: None }).collect();
    for (name, width) in expect {
        let region = regions.iter_mut().find(|region| region.name == name);
        let region = region.with_context(|| format!("--expect names {name}, for which no width is wanted"))?;
        region.expected_width = Some(width);
    }
    Ok(regions)
}

/// Tells what becomes of a request until it has come to a phase, or ends without. Of a request of which nothing is seen
/// the API server is asked each time that `patience` is over: it may have been deleted before the watch could show it.
async fn follow(
    api: Api<Resize>,
    jobs: Api<Job>,
    job: &str,
    name: &str,
    phase: ResizePhase,
    patience: Duration,
) -> anyhow::Result<Ending> {
    let mut requests = pin!(watch_object(api.clone(), name).default_backoff().fuse());
    let mut jobs = pin!(watch_object(jobs, job).default_backoff().fuse());
    let mut failures = Failures::default();
    let (mut end_of_patience, mut is_patient) = (pin!(sleep(patience)), true);
    let (mut request, mut job_now, mut told) = (None::<Resize>, None::<Job>, String::new());
    let mut is_shown = false;
    loop {
        tokio::select! {
            changed = requests.try_next() => match changed {
                Ok(Some(Some(changed))) => (request, is_shown) = (Some(changed), true),
                // The cache of the API server may be behind the creation.
                Ok(Some(None)) if !is_shown => {}
                Ok(Some(None)) => bail!(DELETED),
                Ok(None) => bail!("the watch of the request ended"),
                Err(error) => failures.tell(&error),
            },
            changed = jobs.try_next() => match changed {
                Ok(Some(changed)) => job_now = changed,
                Ok(None) => bail!("the watch of the job ended"),
                Err(error) => failures.tell(&error),
            },
            () = &mut end_of_patience, if is_patient || !is_shown => {
                is_patient = false;
                if !is_shown {
                    match absent(api.get(name).await) {
                        Ok(Some(found)) => request = Some(found),
                        Ok(None) => bail!(DELETED),
                        Err(error) => failures.tell(&error),
                    }
                    end_of_patience.as_mut().reset(Instant::now() + patience);
                }
            }
        }
        let Some(request) = &request else { continue };
        if is_patient && is_unseen(request) {
            continue;
        }
        let sentence = words::one_line(&tell(request, job_now.as_ref()));
        if sentence != told {
            output::tell(&sentence);
            told = sentence;
        }
        if let Some(is_good) = has_come_to(request, phase) {
            return Ok(if is_good { Ending::Good } else { Ending::Bad });
        }
        if is_deleted(request) {
            bail!("the request was deleted");
        }
    }
}

/// Withdraws a request, and waits until it is cancelled or turns out to be committed (rule elasticity-22).
pub(crate) async fn cancel(client: Client, namespace: &str, options: &CancelOptions) -> anyhow::Result<Ending> {
    let deadline = Instant::now() + options.timeout;
    let name = &options.request;
    let request: Resize = named(&client, namespace, "request", name).await?;
    let requests: Api<Resize> = Api::namespaced(client, namespace);
    if let Some(decided) = withdrawn(&request) {
        return decided;
    }
    let annotations = [(names::ANNOTATION_CANCEL_REQUESTED, "kubectl streams")];
    let metadata = ObjectMeta {
        annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        ..ObjectMeta::default()
    };
    let patch = Patch::Merge(metadata.into_request_partial::<Resize>());
    requests.patch_metadata(name, &PatchParams::default(), &patch).await?;
    match timeout_at(deadline, until_decided(requests, name)).await {
        Ok(decided) => {
            let decided = decided?;
            withdrawn(&decided).unwrap_or(Ok(Ending::StillGoing))
        }
        Err(_) => {
            output::tell(&format!("the time is over; it may still be withdrawn: kubectl get streamsresize {name}"));
            Ok(Ending::StillGoing)
        }
    }
}

/// What has become of a request that is withdrawn, once that is decided: it is cancelled, by whomever, or it is too
/// late.
fn withdrawn(request: &Resize) -> Option<anyhow::Result<Ending>> {
    match request.phase() {
        ResizePhase::Pending | ResizePhase::Planned => None,
        ResizePhase::Cancelled => {
            let printed = output::print(&format!("streamsresize.streams.ibm.com/{} withdrawn", request.name_any()));
            Some(printed.map(|()| Ending::Good).map_err(Into::into))
        }
        ResizePhase::Written | ResizePhase::RolledOut | ResizePhase::Refused | ResizePhase::Superseded => {
            Some(Err(anyhow!("it is too late: {}", tell(request, None))))
        }
    }
}

/// Whether somebody has deleted a request before it said that it was committed. Finalizers may hold its object.
fn is_deleted(request: &Resize) -> bool {
    request.metadata.deletion_timestamp.is_some() && request.phase() < ResizePhase::Written
}

/// Waits until a request is committed, or has ended.
async fn until_decided(requests: Api<Resize>, name: &str) -> anyhow::Result<Resize> {
    let mut requests = pin!(watch_object(requests, name).default_backoff());
    let mut failures = Failures::default();
    loop {
        match requests.try_next().await {
            Ok(Some(Some(request))) if request.phase() >= ResizePhase::Written => return Ok(request),
            Ok(Some(Some(request))) if !is_deleted(&request) => {}
            Ok(Some(_)) => bail!("the request was deleted"),
            Ok(None) => bail!("the watch of the request ended"),
            Err(error) => failures.tell(&error),
        }
    }
}

/// What was said of watches that fail, and are tried again and again.
#[derive(Default)]
struct Failures {
    told: BTreeSet<String>,
}

impl Failures {
    /// Says why a watch fails, once.
    fn tell(&mut self, error: &(dyn Error + 'static)) {
        let why = words::of_error(error);
        if self.is_new(&why) {
            output::tell(&format!("watching again: {why}"));
        }
    }

    fn is_new(&mut self, why: &str) -> bool {
        self.told.len() < FAILURES_TOLD && self.told.insert(why.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Arguments, Command};
    use clap::Parser as _;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;
    use std::future::pending;
    use streams_api::{BundleReference, JobSpec};
    use tokio::time::timeout;

    /// The client tries a creation again whose answer is lost; the API server would choose another name each time.
    #[test]
    fn each_request_has_its_name_before_it_is_made() {
        let job = Job::new("flow", JobSpec::of(BundleReference::default()));
        let name = |key: &[&str]| {
            let arguments = ["kubectl-streams", "resize", "flow", "R=3"].into_iter().chain(key.iter().copied());
            let Command::Resize(options) = Arguments::try_parse_from(arguments).unwrap().command else { panic!() };
            request(&job, options).unwrap().metadata.name.unwrap()
        };
        let with_key = ["--key", "k"];
        assert_eq!(name(&with_key), name_of_key(&job, "k"));
        assert!(name(&[]) != name(&[]) && name(&[]).starts_with("flow-"));
    }

    #[test]
    fn what_goes_on_failing_is_told_once() {
        let mut failures = Failures::default();
        let told = ["refused", "refused", "forbidden", "refused"].map(|why| failures.is_new(why));
        assert_eq!(told, [true, false, true, false]);
        let more = (0..100).filter(|number| failures.is_new(&number.to_string())).count();
        assert_eq!(more, FAILURES_TOLD - 2);
    }

    /// The watch shows nothing, as where somebody has deleted the request before it began, or as long as the API server
    /// that it asks is behind the creation.
    #[tokio::test]
    async fn a_request_that_no_watch_shows_is_asked_for() {
        let missing = r#"{"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "message": "no", "code": 404}"#;
        let spec = r#""metadata": {"name": "r"}, "spec": {"jobName": "flow", "regions": [{"name": "R", "width": 3}]}"#;
        let ended = |phase: &str| format!(r#"{{{spec}, "status": {{"phase": "{phase}"}}}}"#);
        // what the API server says of it -> what becomes of it
        let table = [
            (404_u16, missing.to_owned(), Err(DELETED)),
            (200, ended("RolledOut"), Ok(Ending::Good)),
            (200, ended("Refused"), Ok(Ending::Bad)),
        ];
        for (code, said, expected) in table {
            let server = tower::service_fn(move |asked: Request<Body>| {
                let said = said.clone();
                async move {
                    if asked.uri().query().is_some_and(|query| query.contains("watch=")) {
                        pending::<()>().await;
                    }
                    let list =
                        r#"{"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}"#;
                    let is_named = asked.uri().path().ends_with("/r");
                    let (code, said) = if is_named { (code, said) } else { (200, list.to_owned()) };
                    let answer = Response::builder().status(code).body(Body::from(said.into_bytes()));
                    Ok::<_, Infallible>(answer.expect("it has a code and a body"))
                }
            });
            let client = Client::new(server, "n");
            let (requests, jobs) = (Api::namespaced(client.clone(), "n"), Api::namespaced(client, "n"));
            let patience = Duration::from_millis(1);
            let followed = follow(requests, jobs, "flow", "r", ResizePhase::RolledOut, patience);
            let ending = timeout(Duration::from_secs(30), followed).await.expect("nobody is waited for in vain");
            assert_eq!(ending.map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{code}");
        }
    }

    #[test]
    fn a_request_is_withdrawn_once_and_that_is_good_every_time() {
        // phase -> it is decided, and good
        for (phase, expected) in [
            ("Pending", None),
            ("Planned", None),
            ("Cancelled", Some(true)),
            ("Written", Some(false)),
            ("RolledOut", Some(false)),
            ("Refused", Some(false)),
            ("Superseded", Some(false)),
        ] {
            let request: Resize = serde_json::from_value(json!({
                "metadata": {"name": "r"}, "spec": {"jobName": "flow", "regions": [{"name": "R", "width": 3}]},
                "status": {"phase": phase},
            }))
            .unwrap();
            let decided = withdrawn(&request).map(|decided| decided.is_ok_and(|ending| ending == Ending::Good));
            assert_eq!(decided, expected, "{phase}");
        }
    }

    #[test]
    fn a_request_that_is_deleted_is_waited_for_only_once_it_is_committed() {
        // it is being deleted, phase -> nothing becomes of it
        let table = [
            (false, "Pending", false),
            (true, "Pending", true),
            (true, "Planned", true),
            (true, "Written", false),
            (true, "Cancelled", false),
        ];
        for (is_going, phase, expected) in table {
            let at = is_going.then_some("2026-11-26T00:00:00Z");
            let request: Resize = serde_json::from_value(json!({
                "metadata": {"name": "r", "deletionTimestamp": at},
                "spec": {"jobName": "flow", "regions": [{"name": "R", "width": 3}]}, "status": {"phase": phase},
            }))
            .unwrap();
            assert_eq!(is_deleted(&request), expected, "{is_going} {phase}");
        }
    }
}
