//! TLS, with and without certificates of callers.

use super::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use std::fs;
use streams_process::tls::{Pair, ServerFiles};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Certificate and key.
    fn sign(&self, usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_callers_with_a_certificate_are_answered() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let (certificate, key) = authority.sign(ExtendedKeyUsagePurpose::ServerAuth);
    let (certificate, key, ca) =
        (file("cert.pem", &certificate), file("key.pem", &key), file("ca.pem", &authority.pem()));
    let tls = ServerFiles { pair: Pair { certificate, key }, client_authority: Some(ca) };
    let replica = replica(Settings { tls: Some(tls), ..settings() }).await;
    let port = replica.server.address.port();

    let call = async |tls: Option<ClientTlsConfig>| -> Result<pb::Plan, Status> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://localhost:{port}")).unwrap();
        let endpoint = match tls {
            Some(tls) => endpoint.tls_config(tls).unwrap(),
            None => endpoint,
        };
        let channel = soon(endpoint.connect()).await.map_err(|error| Status::unavailable(error.to_string()))?;
        submit(&mut Client::new(channel), "job", "1 1").await
    };
    let trusting = || ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority.pem()));
    let known = authority.sign(ExtendedKeyUsagePurpose::ClientAuth);
    let stranger = Authority::new().sign(ExtendedKeyUsagePurpose::ClientAuth);
    call(Some(trusting().identity(Identity::from_pem(known.0, known.1)))).await.unwrap();
    call(Some(trusting())).await.unwrap_err();
    call(Some(trusting().identity(Identity::from_pem(stranger.0, stranger.1)))).await.unwrap_err();
    call(None).await.unwrap_err();
    assert_eq!(replica.gate.begun(), ["parse ", "submit job"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_read_are_named() {
    let pair = Pair { certificate: "/nowhere/c".into(), key: "/nowhere/k".into() };
    let tls = ServerFiles { pair, client_authority: None };
    let error = Server::start(&Settings { tls: Some(tls), ..settings() }, Toy::default()).await.err().unwrap();
    assert!(format!("{error:#}").contains("/nowhere/c"), "{error:#}");
}
