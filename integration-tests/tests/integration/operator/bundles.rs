//! Bundles from a server: who gets a private one, what becomes of one that is not there yet, what PEs and the status
//! call it (rules fetch-2, fetch-7, fetch-8, fetch-10 and fetch-11).

use super::bundle_server::BundleServer;
use super::fixture::{Fixture, WITHIN, with_options};
use crate::support::control_plane;
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{self, Widths};
use integration_tests::system::job::ObservedJob;
use integration_tests::system::rights::Secrets;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use sha2::{Digest, Sha256};
use streams_api::{JobPhase, condition};
use streams_control_plane::wait::eventually;

const TOKEN: &str = "token-of-the-first-namespace";

/// The sample under this name, from a URL.
async fn create(it: &Fixture, namespace: &str, name: &str, url: String, secret: Option<&str>) -> Result<ObservedJob> {
    let mut job = sample::job(namespace, name);
    job.spec.bundle.file = None;
    job.spec.bundle.url = Some(url);
    job.spec.bundle.secret = secret.map(str::to_owned);
    ObservedJob::create(&it.client, &job).await
}

/// Reason and message of the condition `Submitted`, once the submission has this phase and this reason.
async fn says(job: &ObservedJob, phase: JobPhase, reason: &str) -> Result<String> {
    job.until(&format!("the reason is {reason}"), WITHIN, |status| {
        let submitted = condition::get(&status.conditions, condition::SUBMITTED).context("no condition")?;
        ensure!(status.phase == Some(phase) && submitted.reason == reason, "{:?} {submitted:?}", status.phase);
        Ok(submitted.message.clone())
    })
    .await
}

/// Whoever knows the URL of a private bundle has nothing of it that others have fetched with their Secret.
#[tokio::test]
async fn a_private_bundle_stays_private() -> Result<()> {
    let server = BundleServer::start().await?;
    server.has(sample::bundle()?, Some(TOKEN));
    let certificate = server.certificate().display().to_string();
    let other = control_plane().await?.namespace("bundles-other").await?;
    let arguments = ["--allow-bundle-address", "127.0.0.1/32", "--namespace", &other];
    with_options("bundles", &arguments, &[("SSL_CERT_FILE", &certificate)], async |it| {
        Secrets::OfBundles.permit(&it.client, &it.namespace).await?;
        let secrets: Api<Secret> = Api::namespaced(it.client.clone(), &it.namespace);
        for (name, hosts) in [("listed", Some(server.host())), ("unlisted", None)] {
            let data = [("token", Some(TOKEN.to_owned())), ("hosts", hosts)];
            let data = data.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            let secret = Secret { metadata, string_data: Some(data), ..Secret::default() };
            secrets.create(&PostParams::default(), &secret).await?;
        }
        let url = || server.url("private/app.sab?key=hidden");
        let first = create(it, &it.namespace, "first", url(), Some("listed")).await?;
        first.settled(Widths::default(), WITHIN).await?;
        let asked = server.requests().len();
        ensure!(server.requests().iter().all(|sent| sent.contains(TOKEN)), "{:?}", server.requests());

        // The same URL in another namespace, which has no Secret.
        let second = create(it, &other, "second", url(), None).await?;
        let message = says(&second, JobPhase::Failed, "BundleRefused").await?;
        ensure!(message.contains("403") && !message.contains("hidden"), "{message}");
        ensure!(server.requests().len() == asked + 1, "its own request decides: {:?}", server.requests());
        ensure!(second.status().await?.adl.is_none(), "it has the application");

        // A Secret whose token must not go there: the server is not even asked.
        let third = create(it, &it.namespace, "third", url(), Some("unlisted")).await?;
        let message = says(&third, JobPhase::Failed, "BundleRefused").await?;
        for word in ["secret unlisted", "key hosts", &server.host()] {
            ensure!(message.contains(word), "{message:?} does not name {word}");
        }
        ensure!(server.requests().len() == asked + 1, "the token was sent: {:?}", server.requests());

        // The first is not concerned; what it is called says nothing of the query.
        let status = first.status().await?;
        let adl = status.adl.context("no ADL")?;
        let sha256 = hex::encode(Sha256::digest(sample::bundle()?));
        ensure!(adl.bundle_sha256.as_ref() == Some(&sha256) && status.phase == Some(JobPhase::Running), "{adl:?}");
        let name = format!("app-{}.sab", &sha256[..16]);
        ensure!(adl.sab_name == name, "{adl:?}");
        for pod in first.list::<Pod>().await? {
            let spec = serde_json::to_string(&pod.spec)?;
            ensure!(spec.contains(&name) && !spec.contains("hidden"), "{spec}");
        }
        Ok(())
    })
    .await
}

/// A bundle that is not there yet is asked for again, and found without an edit.
#[tokio::test]
async fn a_bundle_that_is_uploaded_later_is_found() -> Result<()> {
    let server = BundleServer::start().await?;
    let certificate = server.certificate().display().to_string();
    let arguments = ["--allow-bundle-address", "127.0.0.1/32"];
    with_options("bundles", &arguments, &[("SSL_CERT_FILE", &certificate)], async |it| {
        let job = create(it, &it.namespace, "early", server.url("app.sab?key=hidden"), None).await?;
        let message = says(&job, JobPhase::Submitting, "BundleNotFound").await?;
        ensure!(message.contains("404") && message.contains("so since 2") && !message.contains("hidden"), "{message}");
        eventually("an Event says so, too", WITHIN, || async {
            let events = job.events().await?;
            ensure!(events.iter().any(|(_, event, note)| event == "BundleNotFound" && *note == message), "{events:?}");
            Ok(())
        })
        .await?;
        let generation = job.get().await?.metadata.generation;
        server.has(sample::bundle()?, None);
        job.settled(Widths::default(), WITHIN).await?;
        ensure!(job.get().await?.metadata.generation == generation, "somebody edited it");
        Ok(())
    })
    .await
}

/// Without an option, no job can make the frontend ask its own host.
#[tokio::test]
async fn the_host_of_the_frontend_is_not_asked() -> Result<()> {
    let server = BundleServer::start().await?;
    server.has(sample::bundle()?, None);
    let certificate = server.certificate().display().to_string();
    with_options("bundles", &[], &[("SSL_CERT_FILE", &certificate)], async |it| {
        let job = create(it, &it.namespace, "inside", server.url("app.sab"), None).await?;
        let message = says(&job, JobPhase::Failed, "BundleRefused").await?;
        ensure!(message.contains("does not connect to its address"), "{message}");
        ensure!(server.requests().is_empty(), "{:?}", server.requests());
        Ok(())
    })
    .await
}
