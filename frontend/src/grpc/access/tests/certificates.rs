//! Callers that show certificates, by connections with TLS.

use super::Fake;
use super::methods::services;
use crate::call_figures::ServedCalls;
use crate::grpc::server;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;
use streams_kubernetes::metrics::Metrics;
use streams_process::tls::{Acceptor, Pair, ServerFiles};
use streams_proto::elasticity::v1::GetRegionRequest;
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Request;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

/// Longer than anything here takes.
const LATEST: Duration = Duration::from_secs(30);

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Certificate and key; without a common name if that is empty.
    fn sign(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        if !name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// By whose name a right is missing, or why it is not known who calls.
async fn heard(channel: Channel, token: Option<&str>) -> String {
    let n = || "n".to_owned();
    let mut request = Request::new(GetRegionRequest { namespace: n(), job: n(), region: n() });
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let status = ElasticityServiceClient::new(channel).get_region(request).await.unwrap_err();
    let details = status.get_error_details();
    let Some(info) = details.error_info() else { return "no answer".to_owned() };
    info.metadata.get("user").unwrap_or(&info.reason).clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_is_known_by_its_certificate_and_without_one_by_its_token() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let (certificate, key) = authority.sign("frontend");
    let pair = Pair { certificate: file("cert.pem", &certificate), key: file("key.pem", &key) };
    let files = ServerFiles { pair, client_authority: Some(file("ca.pem", &authority.0.pem())) };
    let fake = Fake::new(&[]);
    let metrics = Metrics::new("test");
    let services = services(&fake.access()).secured(Some(Acceptor::asking(files).unwrap()));
    let services = services.counted(ServedCalls::among(&metrics));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = std::future::pending();
    tokio::spawn(server::serve(listener, services, || None, CancellationToken::new(), stop, Duration::ZERO));
    let connect = async |shown: Option<&(String, String)>| {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority.0.pem()));
        let tls = match shown {
            Some((certificate, key)) => tls.identity(Identity::from_pem(certificate, key)),
            None => tls,
        };
        let endpoint = Endpoint::from_shared(format!("https://localhost:{port}")).unwrap();
        endpoint.tls_config(tls).unwrap().connect().await
    };
    let (me, nameless, stranger) = (authority.sign("me"), authority.sign(""), Authority::new().sign("me"));
    // certificate, token -> who that is
    let table = [
        (None, None, "NO_TOKEN"),
        (None, Some("you"), "you"),
        (Some(&me), None, "me"),
        (Some(&me), Some("you"), "me"),
        (Some(&me), Some("bad"), "me"),
        (Some(&nameless), None, "INVALID_CERTIFICATE"),
        (Some(&nameless), Some("you"), "you"),
        (Some(&stranger), Some("you"), "no answer"),
    ];
    for (shown, token, expected) in table {
        let heard = match connect(shown).await {
            Ok(channel) => heard(channel, token).await,
            Err(_) => "no answer".to_owned(),
        };
        assert_eq!(heard, expected, "{:?} {token:?}", shown.map(|(certificate, _)| certificate));
    }
    assert!(!fake.asked().contains(&"bad".to_owned()), "nobody is asked about a token that does not matter");
    // Whoever believes to show a certificate hears that it is not there, and not only of a token.
    let n = || "n".to_owned();
    let request = GetRegionRequest { namespace: n(), job: n(), region: n() };
    let status = ElasticityServiceClient::new(connect(None).await.unwrap()).get_region(request).await.unwrap_err();
    assert!(status.message().starts_with("no certificate was shown "), "{status}");
    HealthClient::new(connect(None).await.unwrap()).check(HealthCheckRequest::default()).await.unwrap();

    // A connection that there is does not keep a caller known whose authority has gone.
    let channel = connect(Some(&me)).await.unwrap();
    assert_eq!(heard(channel.clone(), None).await, "me");
    file("ca.pem", &Authority::new().0.pem());
    let begun = Instant::now();
    while heard(channel.clone(), None).await != "INVALID_CERTIFICATE" {
        assert!(begun.elapsed() < LATEST, "it stays known");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(heard(channel, Some("you")).await, "you");
    // Those of the stranger.
    let text = metrics.text().unwrap();
    let failed = text.lines().find_map(|line| line.strip_prefix("test_tls_handshakes_failed_total "));
    assert!(failed.is_some_and(|failed| failed != "0"), "{text}");
}
