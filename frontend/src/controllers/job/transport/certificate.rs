//! Makes the certificate authority of a job and the certificate that it signs, and inspects them.
//!
//! The runtime reads the certificate and its key anew for every connection, presents the first certificate of the file,
//! and trusts all that are in it. It does not compare names. The file therefore has the certificate and, after it, the
//! authority: whoever has read an older file of the same authority trusts a renewed certificate. Both keys are of the
//! curve P-256; the key usage `keyAgreement` lets old versions of OpenSSL use them, which choose no curve by
//! themselves.
//!
//! Knows: certificates and keys. Must not know: Secrets, when they are renewed.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use streams_kubernetes::Key;
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// How long an authority is valid: longer than any job.
const AUTHORITY_DAYS: i64 = 36_500;
/// Clocks of nodes may be behind by as much.
const SKEW: SignedDuration = SignedDuration::from_mins(5);
/// The clock of the frontend may be ahead by as much when it makes an authority. While another one replaces it PEs
/// would not trust each other, and nothing depends on when it begins.
const AUTHORITY_SKEW: SignedDuration = SignedDuration::from_hours(24);
const DAY: i64 = 86_400;
/// Longest common name (`ub-common-name` of RFC 5280).
const COMMON_NAME_MAX: usize = 64;

/// Certificates and keys, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Material {
    /// The certificate of the PEs, and the authority that has signed it.
    pub(crate) certificates: String,
    /// The key of the certificate.
    pub(crate) key: String,
    /// The key of the authority.
    pub(crate) authority_key: String,
}

/// Says nothing of keys.
impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Material")
    }
}

/// What usable certificates say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificates {
    /// SHA-256 of the authority, lower-case hexadecimal.
    pub(crate) authority: String,
    /// When the certificate was made.
    pub(crate) issued_at: Timestamp,
    /// From when it is valid.
    not_before: Timestamp,
    /// Until when it is valid.
    pub(crate) not_after: Timestamp,
    /// From when the authority is valid, and until when.
    authority_valid: (Timestamp, Timestamp),
}

impl Certificates {
    /// When it is to be renewed if it is to be valid for so many days: after two thirds of them; at once if it was made
    /// for another number of days.
    pub(crate) fn renew_at(&self, days: u32) -> Timestamp {
        let validity = self.not_after.duration_since(self.issued_at);
        if validity != SignedDuration::from_secs(i64::from(days) * DAY) {
            return self.issued_at;
        }
        self.issued_at.checked_add(validity / 3 * 2).unwrap_or(Timestamp::MAX)
    }

    /// Whether the authority is valid at this time. One that is not yet was made by a clock that was ahead.
    pub(crate) fn has_valid_authority(&self, now: Timestamp) -> bool {
        let (from, until) = self.authority_valid;
        from <= now && now <= until
    }

    /// Whether PEs can use the certificate, and it is not due yet. One that is not valid yet was made by a clock that
    /// was ahead, and would be due long after two thirds of its validity.
    pub(crate) fn is_good(&self, days: u32, now: Timestamp) -> bool {
        self.has_valid_authority(now) && self.not_before <= now && now < self.renew_at(days)
    }
}

/// The common name of the authority of a job.
fn authority_name(job: &str) -> String {
    let name = format!("{job} authority");
    if name.len() <= COMMON_NAME_MAX { name } else { format!("{job:.61} CA") }
}

/// What certificates of a job are called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    job: &'a str,
    namespace: &'a str,
}

impl<'a> Names<'a> {
    /// Of this job.
    pub(crate) fn of(job: &'a Key) -> Self {
        Self { job: &job.name, namespace: &job.namespace }
    }
}

/// Certificates could not be made, or cannot be used. The text has no part of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("certificates: {0}")]
pub(crate) struct CertificateError(String);

impl CertificateError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl From<rcgen::Error> for CertificateError {
    fn from(error: rcgen::Error) -> Self {
        Self(error.to_string())
    }
}

/// A new authority, and a certificate that it signs.
///
/// # Errors
/// The library refuses something, or there is no randomness.
pub(crate) fn issue(names: Names<'_>, days: u32, now: Timestamp) -> Result<Material, CertificateError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = validity(now, AUTHORITY_SKEW, AUTHORITY_DAYS)?;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, authority_name(names.job));
    params.distinguished_name.push(DnType::OrganizationName, "Streams");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = params.self_signed(&key)?;
    let authority_key = key.serialize_pem();
    signed(&Issuer::new(params, key), &authority.pem(), authority_key, names, days, now)
}

/// A new certificate of the same authority.
///
/// # Errors
/// The authority cannot be used, the library refuses something, or there is no randomness.
pub(crate) fn renew(
    before: &Material,
    names: Names<'_>,
    days: u32,
    now: Timestamp,
) -> Result<Material, CertificateError> {
    let [_, authority] = certificates(before)?;
    let key = KeyPair::from_pem(&before.authority_key)?;
    let issuer = Issuer::from_ca_cert_der(&authority, key)?;
    let pem = before.certificates.split_inclusive(END).nth(1).unwrap_or_default().trim_start();
    signed(&issuer, &format!("{pem}\n"), before.authority_key.clone(), names, days, now)
}

/// Ends a certificate in PEM.
const END: &str = "-----END CERTIFICATE-----";

fn signed(
    issuer: &Issuer<'_, KeyPair>,
    authority: &str,
    authority_key: String,
    names: Names<'_>,
    days: u32,
    now: Timestamp,
) -> Result<Material, CertificateError> {
    let key = KeyPair::generate()?;
    // PEs come and go, so that they cannot be listed. Services of other jobs have such names, too, but their PEs do not
    // trust this authority.
    let mut params = CertificateParams::new([format!("*.{}.svc", names.namespace)])?;
    (params.not_before, params.not_after) = validity(now, SKEW, i64::from(days))?;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, names.job);
    params.distinguished_name.push(DnType::OrganizationName, "Streams");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyAgreement];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, issuer)?;
    let certificates = format!("{}{authority}", certificate.pem());
    Ok(Material { certificates, key: key.serialize_pem(), authority_key })
}

/// From now, or a little earlier, for so many days; in whole seconds, as certificates have them.
fn validity(
    now: Timestamp,
    earlier: SignedDuration,
    days: i64,
) -> Result<(OffsetDateTime, OffsetDateTime), CertificateError> {
    let end = now.as_second().saturating_add(days.saturating_mul(DAY));
    let time = |second: i64| {
        OffsetDateTime::from_unix_timestamp(second).map_err(|error| CertificateError::new(error.to_string()))
    };
    Ok((time(now.as_second().saturating_sub(earlier.as_secs()))?, time(end)?))
}

/// The two certificates of the file: that of the PEs, and the authority.
fn certificates(material: &Material) -> Result<[CertificateDer<'static>; 2], CertificateError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(material.certificates.as_bytes()).collect();
    let all = all.map_err(|_| CertificateError::new("the file is no PEM"))?;
    all.try_into().map_err(|_| CertificateError::new("the file has not two certificates"))
}

/// What the certificates say, if they and their keys belong together and the authority can sign.
///
/// # Errors
/// They do not.
pub(crate) fn inspect(material: &Material) -> Result<Certificates, CertificateError> {
    let unreadable = |what: &'static str| CertificateError::new(format!("the {what} cannot be read"));
    let [certificate, authority] = certificates(material)?;
    let parse = |der| X509Certificate::from_der(der).map(|(_, certificate)| certificate);
    let leaf = parse(&certificate).map_err(|_| unreadable("certificate"))?;
    let root = parse(&authority).map_err(|_| unreadable("authority"))?;
    if !root.is_ca() || leaf.verify_signature(Some(root.public_key())).is_err() {
        return Err(CertificateError::new("the authority has not signed the certificate"));
    }
    let is_key_of = |pem: &str, of: &X509Certificate<'_>| {
        KeyPair::from_pem(pem).is_ok_and(|key| key.subject_public_key_info() == of.public_key().raw)
    };
    if !is_key_of(&material.key, &leaf) || !is_key_of(&material.authority_key, &root) {
        return Err(CertificateError::new("a key is of another certificate"));
    }
    let time = |at: x509_parser::time::ASN1Time| Timestamp::from_second(at.timestamp()).map_err(|_| unreadable("time"));
    let not_before = time(leaf.validity().not_before)?;
    Ok(Certificates {
        authority: hex::encode(Sha256::digest(&authority)),
        issued_at: not_before.checked_add(SKEW).map_err(|_| unreadable("time"))?,
        not_before,
        not_after: time(leaf.validity().not_after)?,
        authority_valid: (time(root.validity().not_before)?, time(root.validity().not_after)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
    use std::sync::Arc;
    use std::time::Duration;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + days * DAY).unwrap()
    }

    fn job() -> Key {
        Key::new("n", "flow")
    }

    fn issued(days: u32, now: Timestamp) -> Material {
        issue(Names::of(&job()), days, now).unwrap()
    }

    /// Whether somebody who has read `trusted` trusts whoever presents `presented`.
    fn trusts(trusted: &Material, presented: &Material, now: Timestamp) -> bool {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        let [_, authority] = certificates(trusted).unwrap();
        roots.add(authority).unwrap();
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let [certificate, _] = certificates(presented).unwrap();
        let name = ServerName::try_from("flow-3.n.svc").unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().try_into().unwrap()));
        verifier.verify_server_cert(&certificate, &[], &name, &[], now).is_ok()
    }

    #[test]
    fn a_certificate_is_trusted_by_whoever_has_read_any_file_of_its_authority() {
        let first = issued(30, at(0));
        let renewed = renew(&first, Names::of(&job()), 30, at(20)).unwrap();
        let other = issued(30, at(0));
        assert!(trusts(&first, &first, at(0)) && trusts(&first, &renewed, at(25)) && trusts(&renewed, &first, at(25)));
        assert!(!trusts(&first, &first, at(31)), "it ends");
        assert!(trusts(&first, &renewed, at(49)) && !trusts(&first, &renewed, at(51)));
        assert!(!trusts(&other, &first, at(1)) && !trusts(&first, &other, at(1)), "jobs do not trust each other");
        let (before, after) = (inspect(&first).unwrap(), inspect(&renewed).unwrap());
        assert_eq!((before.authority, after.authority == inspect(&other).unwrap().authority), (after.authority, false));
        assert_eq!((after.issued_at, after.not_after), (at(20), at(50)));
        assert_ne!(first.key, renewed.key);
        assert_eq!(first.authority_key, renewed.authority_key);
    }

    #[test]
    fn the_files_are_pem_as_the_runtime_reads_it() {
        let material = issued(30, at(0));
        assert_eq!(material.certificates.matches("-----BEGIN CERTIFICATE-----\n").count(), 2);
        assert!(material.certificates.ends_with("-----END CERTIFICATE-----\n"));
        assert!(material.key.starts_with("-----BEGIN PRIVATE KEY-----\n"), "PKCS#8");
        let renewed = renew(&material, Names::of(&job()), 30, at(0)).unwrap();
        assert!(!renewed.certificates.contains('\r') && renewed.certificates.ends_with("-----END CERTIFICATE-----\n"));
        let authority = |material: &Material| certificates(material).unwrap()[1].clone();
        assert_eq!(authority(&material), authority(&renewed));
    }

    #[test]
    fn two_pes_talk_by_tls_1_2() {
        let material = issued(30, Timestamp::now());
        let [certificate, authority] = certificates(&material).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(material.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("flow-3.n.svc").unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut bytes.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            let mut bytes = Vec::new();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut bytes.as_slice()).unwrap();
            client.process_new_packets().unwrap();
        }
        assert_eq!(client.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_2));
    }

    #[test]
    fn what_does_not_belong_together_cannot_be_used() {
        let (one, other) = (issued(30, at(0)), issued(30, at(0)));
        let leaf = |material: &Material| material.certificates.split_inclusive(END).next().unwrap().to_owned();
        let mixed = format!("{}{}", leaf(&one), other.certificates.split_inclusive(END).nth(1).unwrap());
        let table = [
            (Material { certificates: String::new(), ..one.clone() }, "not two certificates"),
            (Material { certificates: leaf(&one), ..one.clone() }, "not two certificates"),
            (Material { certificates: mixed, ..one.clone() }, "has not signed"),
            (Material { key: other.key.clone(), ..one.clone() }, "another certificate"),
            (Material { authority_key: other.authority_key.clone(), ..one.clone() }, "another certificate"),
            (Material { key: "?".to_owned(), ..one.clone() }, "another certificate"),
        ];
        for (material, expected) in table {
            let message = inspect(&material).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        assert!(inspect(&one).is_ok());
    }

    #[test]
    fn nothing_prints_a_key() {
        let material = issued(1, at(0));
        assert_eq!(format!("{material:?}"), "Material");
    }

    #[test]
    fn it_is_renewed_after_two_thirds_of_its_validity_or_when_another_is_wanted() {
        let certificates = inspect(&issued(3, at(0))).unwrap();
        assert_eq!(certificates.renew_at(3), at(2));
        assert_eq!(certificates.renew_at(4), at(0));
    }

    #[test]
    fn what_a_clock_made_that_was_ahead_cannot_be_used_before_it_is_valid() {
        let first = issued(30, at(0));
        let renewed = renew(&first, Names::of(&job()), 30, at(5)).unwrap();
        let minutes = |days: i64, minutes: i64| at(days) + SignedDuration::from_mins(minutes);
        // certificates, time of who looks -> the authority is valid, the certificate is good
        let table = [
            (&first, at(0), true, true),
            (&first, minutes(0, -5), true, true),
            (&first, minutes(0, -6), true, false),
            (&first, at(-1), true, false),
            (&first, minutes(-1, -1), false, false),
            (&first, at(20), true, false),
            (&first, at(AUTHORITY_DAYS + 1), false, false),
            (&renewed, at(4), true, false),
            (&renewed, at(5), true, true),
        ];
        for (material, now, valid, good) in table {
            let certificates = inspect(material).unwrap();
            assert_eq!((certificates.has_valid_authority(now), certificates.is_good(30, now)), (valid, good), "{now}");
            // As PEs see it.
            assert!(!good || trusts(material, material, now), "{now}");
        }
    }

    #[test]
    fn the_name_of_an_authority_is_no_longer_than_a_name_may_be() {
        // length of the name of the job -> its authority is called after it
        for (length, ending) in [(4, " authority"), (54, " authority"), (55, " CA"), (56, " CA"), (61, " CA")] {
            let name = "j".repeat(length);
            let material = issue(Names::of(&Key::new("n", &name)), 30, at(0)).unwrap();
            let [_, authority] = certificates(&material).unwrap();
            let (_, authority) = X509Certificate::from_der(&authority).unwrap();
            let called: Vec<&str> =
                authority.subject().iter_common_name().map(|called| called.as_str().unwrap()).collect();
            assert_eq!(called, [format!("{name}{ending}")], "{length}");
            assert!(called.iter().all(|called| called.len() <= COMMON_NAME_MAX), "{length}");
        }
    }
}
