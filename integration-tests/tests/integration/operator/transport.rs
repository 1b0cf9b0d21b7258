//! Transport security of PEs: what they are given, that a TLS library accepts it, and what keeps it so.

use super::fixture::{JOB, Moment, WITHIN, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::{CLEAN, Widths};
use integration_tests::system::job::ObservedJob;
use integration_tests::system::rights::Secrets;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use std::sync::Arc;
use streams_api::{Job, TransportStatus, condition, names};
use streams_control_plane::wait::eventually;

/// The files that PEs see.
struct Files {
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

async fn files(job: &ObservedJob) -> Result<Files> {
    let secret = job.api::<Secret>().get(&names::transport_secret(job.name())).await?;
    let data = secret.data.unwrap_or_default();
    let text = |key: &str| data.get(key).map(|value| value.0.clone()).with_context(|| format!("no {key}"));
    let certificates = CertificateDer::pem_slice_iter(&text("transport.cert")?).collect::<Result<_, _>>()?;
    Ok(Files { certificates, key: PrivateKeyDer::from_pem_slice(&text("transport.key")?)? })
}

/// A PE that presents `presented` is trusted by one that has read `trusted`, as a TLS library sees it.
fn trusts(trusted: &Files, presented: &Files, namespace: &str) -> Result<()> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let [certificate, _] = presented.certificates.as_slice() else { anyhow::bail!("not certificate and authority") };
    let [_, authority] = trusted.certificates.as_slice() else { anyhow::bail!("not certificate and authority") };
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
    let name = ServerName::try_from(format!("{JOB}-0.{namespace}.svc"))?;
    verifier.verify_server_cert(certificate, &[], &name, &[], UnixTime::now())?;
    // The key is that of the certificate.
    let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    server.with_no_client_auth().with_single_cert(vec![certificate.clone()], presented.key.clone_key())?;
    Ok(())
}

async fn transport(job: &ObservedJob) -> Result<TransportStatus> {
    job.status().await?.transport.context("the status says nothing of certificates")
}

/// Waits until the status speaks of another certificate than `before`.
async fn changed(job: &ObservedJob, what: &str, before: &TransportStatus) -> Result<TransportStatus> {
    eventually(what, WITHIN, || async {
        let now = transport(job).await?;
        let is_other = (&now.authority, now.not_after.as_ref()) != (&before.authority, before.not_after.as_ref());
        ensure!(now.not_after.is_some() && is_other, "it is still {now:?}");
        Ok(now)
    })
    .await
}

/// What the contract with the runtime says of a pod: the variable, and where the files are.
fn is_as_the_runtime_expects(pod: &Pod) -> Result<()> {
    let spec = pod.spec.as_ref().context("no spec")?;
    let container = spec.containers.first().context("no container")?;
    let security = container.env.iter().flatten().find(|variable| variable.name == "STREAMS_TRANSPORT_SECURITY_TYPE");
    ensure!(security.and_then(|variable| variable.value.as_deref()) == Some("TLSv1.2"), "{security:?}");
    let mount = container.volume_mounts.iter().flatten().find(|mount| mount.mount_path == "/etc/config/job");
    let volume = mount.context("no mount at /etc/config/job")?;
    let volume = spec.volumes.iter().flatten().find(|other| other.name == volume.name).context("no volume")?;
    let sources = serde_json::to_value(volume.projected.as_ref().context("it is not projected")?)?;
    let items = json!([
        {"key": "transport.cert", "path": "transport.cert"}, {"key": "transport.key", "path": "transport.key"},
    ]);
    let expected = json!([
        {"configMap": {"name": JOB}}, {"secret": {"name": names::transport_secret(JOB), "items": items}},
    ]);
    ensure!(sources["sources"] == expected, "{sources}");
    Ok(())
}

async fn edit(job: &ObservedJob, spec: Value) -> Result<Result<(), String>> {
    let patch = Patch::Merge(json!({ "spec": spec }));
    match job.api::<Job>().patch(job.name(), &PatchParams::default(), &patch).await {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(Err(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

#[tokio::test]
async fn pes_have_a_certificate_that_is_kept_renewed_and_restored() -> Result<()> {
    with_system("transport", async |it| {
        let mut job = it.sample(JOB);
        job.spec.processing_element = Some(serde_json::from_value(json!({"transportSecurityType": "TLSv1.2"}))?);
        let job = ObservedJob::create(&it.client, &job).await?;
        // Whoever runs the cluster has to permit it.
        eventually("the job says that the Secret cannot be written", WITHIN, || async {
            let status = job.status().await?;
            let submitted = condition::get(&status.conditions, condition::SUBMITTED).context("no condition")?;
            ensure!(submitted.reason == "Forbidden" && submitted.message.contains("secrets"), "{submitted:?}");
            Ok(())
        })
        .await?;
        Secrets::OfTransport.permit(&it.client, &it.namespace).await?;
        job.settled(Widths::default(), WITHIN).await?;
        for pod in job.list::<Pod>().await? {
            is_as_the_runtime_expects(&pod).with_context(|| pod.name_any())?;
        }
        let first = files(&job).await?;
        trusts(&first, &first, &it.namespace)?;
        let said = changed(&job, "the status says what certificate there is", &TransportStatus::default()).await?;

        // Kept over a resize.
        job.set_width(CLEAN, 3).await?;
        job.settled(Widths { clean: 3, ..Widths::default() }, WITHIN).await?;
        ensure!(transport(&job).await? == said, "a resize changed the certificate");
        let before = Moment::of(&job).await?;

        // Renewed by the same authority: whoever has read the old file trusts the new one.
        let taken = edit(&job, json!({"transportCertificateValidityInDays": 2})).await?;
        ensure!(taken == Ok(()), "{taken:?}");
        let renewed = changed(&job, "the certificate is renewed", &said).await?;
        ensure!(renewed.authority == said.authority && renewed.not_after < said.not_after, "{said:?} {renewed:?}");
        let second = files(&job).await?;
        trusts(&first, &second, &it.namespace)?;
        trusts(&second, &first, &it.namespace)?;

        // One that somebody has made immutable is made again, of the same authority.
        let name = names::transport_secret(JOB);
        let immutable = Patch::Merge(json!({"immutable": true}));
        job.api::<Secret>().patch(&name, &PatchParams::default(), &immutable).await?;
        let taken = edit(&job, json!({"transportCertificateValidityInDays": 3})).await?;
        ensure!(taken == Ok(()), "{taken:?}");
        let again = changed(&job, "the certificate is renewed in another Secret", &renewed).await?;
        ensure!(again.authority == said.authority && again.not_after > renewed.not_after, "{renewed:?} {again:?}");
        trusts(&first, &files(&job).await?, &it.namespace)?;
        ensure!(job.api::<Secret>().get(&name).await?.immutable.is_none(), "it is immutable");
        eventually("the copy is gone", WITHIN, || async {
            ensure!(job.api::<Secret>().get_opt(&names::transport_copy(JOB)).await?.is_none(), "it is there");
            Ok(())
        })
        .await?;

        // Restored: the authority is lost, and people hear of it.
        job.api::<Secret>().delete(&name, &DeleteParams::default()).await?;
        let restored = changed(&job, "the Secret is back", &again).await?;
        ensure!(restored.authority != said.authority, "{restored:?}");
        let third = files(&job).await?;
        trusts(&third, &third, &it.namespace)?;
        ensure!(trusts(&first, &third, &it.namespace).is_err(), "another authority is trusted");
        eventually("Events tell of both", WITHIN, || async {
            let events = job.events().await?;
            for (kind, reason) in [("Normal", "TransportCertificateRenewed"), ("Warning", "TransportAuthorityReplaced")]
            {
                ensure!(events.iter().any(|event| (&*event.0, &*event.1) == (kind, reason)), "{reason}: {events:?}");
            }
            Ok(())
        })
        .await?;
        // Nothing of it touched a pod.
        job.settled(Widths { clean: 3, ..Widths::default() }, WITHIN).await?;
        ensure!(Moment::of(&job).await?.pods == before.pods, "pods were touched");

        // PEs with and without it do not understand each other.
        let refused = edit(&job, json!({"processingElement": {"transportSecurityType": "none"}})).await?;
        ensure!(
            refused.as_ref().is_err_and(|message| message.contains("transportSecurityType cannot be edited")),
            "{refused:?}"
        );

        job.api::<Job>().delete(JOB, &DeleteParams::background()).await?;
        eventually("nothing is left", WITHIN, || async {
            let left = job.inventory().await?.names();
            ensure!(left.is_empty(), "{}", left.join(", "));
            Ok(())
        })
        .await
    })
    .await
}
