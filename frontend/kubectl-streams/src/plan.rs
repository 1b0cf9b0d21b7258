//! What a resize would do: asks the elasticity API for a dry run.
//!
//! Only the frontend can say it, so this is the one subcommand that needs more than the API server: the address of the
//! elasticity API, which `kubectl port-forward` makes known on this machine.

use super::options::{PlanOptions, TlsOptions};
use super::words::{self, one_line, pes};
use anyhow::{Context as _, anyhow, bail, ensure};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::error::Error;
use std::io::Write as _;
use std::iter::successors;
use std::path::Path;
use std::time::Duration;
use streams_proto::elasticity::v1::dry_run::{Fate, PlannedChange};
use streams_proto::elasticity::v1::elasticity_service_client::ElasticityServiceClient;
use streams_proto::elasticity::v1::resize_request::DesiredWidth;
use streams_proto::elasticity::v1::{Changes, ResizeRequest, ResizeResponse};
use tabwriter::TabWriter;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, TimeoutExpired};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Where a token comes from.
const TOKEN: &str = "kubectl create token SERVICEACCOUNT --audience streams-frontend > FILE makes one";
/// How the elasticity API is reached.
const REACH: &str =
    "to reach the elasticity API: kubectl -n streams-system port-forward service/streams-frontend 50052";
/// What is said when TLS cannot even begin, of which the library does not say whose fault it is.
const OWN_FILES: &str = "TLS to the elasticity API by --tls-ca, --tls-cert and --tls-key (keys that can be used: \
                         P-256, P-384, Ed25519, RSA of 2048 to 4096 bits)";
/// Longest answer, in bytes: a thousand PEs, each with short texts.
const ANSWER_MAX: usize = 16 << 20;

/// Prints what would become of the PEs. An error if the resize would be refused.
pub(crate) async fn plan(namespace: &str, options: PlanOptions) -> anyhow::Result<()> {
    let (address, tls) = secured(options.endpoint.clone(), &options.tls)?;
    let mut endpoint = Endpoint::from_shared(address.clone()).context("--endpoint")?.connect_timeout(CONNECT);
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls).context(OWN_FILES)?;
    }
    let channel = endpoint.connect().await.with_context(|| not_reached(&address))?;
    let (timeout, token) = (options.timeout, options.token_file.as_deref().map(bearer).transpose()?);
    let mut request = Request::new(request(namespace, options)?);
    request.set_timeout(timeout);
    let shows_token = token.is_some();
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", token);
    }
    let mut client = ElasticityServiceClient::new(channel).max_decoding_message_size(ANSWER_MAX);
    let answer = client.resize(request).await.map_err(|status| failure(status, &address, shows_token))?;
    let mut columns = TabWriter::new(std::io::stdout().lock());
    columns.write_all(text(&answer.into_inner()).as_bytes())?;
    columns.flush()?;
    Ok(())
}

/// The address with its scheme, and the TLS that is spoken there, if it is.
fn secured(address: String, tls: &TlsOptions) -> anyhow::Result<(String, Option<ClientTlsConfig>)> {
    let TlsOptions { tls_ca, tls_server_name, tls_cert, tls_key } = tls;
    let Some(authority) = tls_ca else {
        if address.starts_with("https://") {
            bail!("--endpoint {address}: name a file with the authority of its certificate by --tls-ca");
        }
        return Ok((address, None));
    };
    let pem = |file: &Path| std::fs::read(file).with_context(|| file.display().to_string());
    let trusted = pem(authority)?;
    // The library takes what has none, and then trusts nobody.
    let has_one = CertificateDer::pem_slice_iter(&trusted).next().is_some_and(|found| found.is_ok());
    ensure!(has_one, "--tls-ca {}: there is no certificate in it", authority.display());
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(trusted));
    if let Some(name) = tls_server_name {
        config = config.domain_name(name);
    }
    // The options allow neither without the other.
    if let (Some(certificate), Some(key)) = (tls_cert, tls_key) {
        config = config.identity(Identity::from_pem(pem(certificate)?, pem(key)?));
    }
    let address = match address.strip_prefix("http://") {
        Some(rest) => format!("https://{rest}"),
        None => address,
    };
    Ok((address, Some(config)))
}

fn not_reached(address: &str) -> String {
    // What speaks TLS ends connections in plain text, and those that show a certificate that it does not trust. It does
    // say why, but the library often writes before it has read that, and then knows only that the connection has ended.
    let tls = if address.starts_with("https://") {
        "do both sides trust the certificates, and are these still good (--tls-ca, --tls-cert: openssl x509 -noout \
         -subject -issuer -dates -in FILE)? is that of the frontend for this name (--tls-server-name)? the log of the \
         frontend says why a handshake failed there;"
    } else {
        "does it speak TLS (--tls-ca)?"
    };
    format!("nothing answers at {address}, or not like this: {tls} {REACH}")
}

/// Why there is no plan: the words of the frontend, or what keeps it from answering.
fn failure(status: Status, address: &str, shows_token: bool) -> anyhow::Error {
    // Servers may say nothing but a code.
    let said = match one_line(status.message()) {
        nothing if nothing.trim().is_empty() => status.code().description().to_owned(),
        said => said,
    };
    let is_time_over = match status.source() {
        Some(cause) => is_caused_by_time(cause),
        // What the frontend has said has no cause here. Nobody withdraws the call but the time that it was given.
        None => matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled),
    };
    if is_time_over {
        anyhow!("no answer in time ({said}): are there other dry runs, do the fusion service and the frontend answer?")
    } else if let Some(cause) = status.source() {
        anyhow!(words::of_error(cause)).context(not_reached(address))
    } else if status.code() == Code::Unimplemented {
        // The frontend does answer: this is another server, such as the fusion service.
        anyhow!("{address} is not the elasticity API ({said}); {REACH}")
    } else if status.code() == Code::Unauthenticated && !shows_token {
        // What the frontend says is for programs: it names metadata of a call, which is not to be typed here. Of a
        // certificate it says what is wrong with it.
        let or = if address.starts_with("https://") { ", or a certificate by --tls-cert and --tls-key" } else { "" };
        anyhow!("the frontend asks who calls ({said}): name a file with a token by --token-file{or}; {TOKEN}")
    } else if status.code() == Code::Unauthenticated {
        anyhow!("the token in --token-file is not taken ({said}); {TOKEN}")
    } else {
        anyhow!("{said}")
    }
}

fn is_caused_by_time(error: &(dyn Error + 'static)) -> bool {
    let mut causes = successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    causes.any(|error| error.is::<TimeoutExpired>())
}

/// What is shown of the token in this file.
fn bearer(file: &Path) -> anyhow::Result<AsciiMetadataValue> {
    let named = || format!("--token-file {}", file.display());
    let token = std::fs::read_to_string(file).with_context(named)?;
    let (token, is_of_a_token) = (token.trim(), |byte: u8| byte.is_ascii_graphic());
    if token.is_empty() || !token.bytes().all(is_of_a_token) {
        bail!("{}: there is no token in it", named());
    }
    format!("Bearer {token}").parse().with_context(named)
}

fn request(namespace: &str, options: PlanOptions) -> anyhow::Result<ResizeRequest> {
    let PlanOptions { job, widths, expect, policy, .. } = options;
    let wanted = super::resize::desired(widths, expect)?.into_iter().map(|wanted| DesiredWidth {
        region: wanted.name,
        width: wanted.width,
        expected_width: wanted.expected_width,
    });
    Ok(ResizeRequest {
        namespace: namespace.to_owned(),
        job,
        regions: wanted.collect(),
        policy: policy.of_api().into(),
        dry_run: true,
        ..ResizeRequest::default()
    })
}

/// What is printed, with tabs between columns.
fn text(answer: &ResizeResponse) -> String {
    let generation = answer.generation.unwrap_or_default();
    let Some(Changes { kept, restarted, added, removed }) = answer.changes else {
        return format!("nothing would change: generation {generation} has these widths\n");
    };
    let mut text = format!(
        "generation {generation} would come: {} kept, {restarted} restarted, {added} added, {removed} removed\n",
        pes(kept)
    );
    let dry_run = answer.dry_run.clone().unwrap_or_default();
    for warning in &dry_run.warnings {
        text.push_str(&format!("warning: {}\n", one_line(warning)));
    }
    if !dry_run.processing_elements.is_empty() {
        text.push_str("\nPE\tWHAT\tWHY\tOPERATORS\n");
    }
    for pe in &dry_run.processing_elements {
        text.push_str(&of_pe(pe));
    }
    if dry_run.unlisted > 0 {
        text.push_str(&format!("and {} more\n", dry_run.unlisted));
    }
    text
}

fn of_pe(pe: &PlannedChange) -> String {
    let what = match pe.fate() {
        Fate::Added => "added",
        Fate::Removed => "removed",
        Fate::Restarted => "restarted",
        Fate::Unspecified => "changed",
    };
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { one_line(&text) };
    format!("{}\t{what}\t{}\t{}\n", pe.id, or_none(pe.reason.clone()), or_none(pe.operators.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::options::{Arguments, Command};
    use super::*;
    use clap::Parser as _;
    use streams_proto::elasticity::v1::DryRun;

    #[test]
    fn a_file_with_a_token_is_shown_as_it_is_asked_for() {
        let file = std::env::temp_dir().join(format!("kubectl-streams-{}-token", std::process::id()));
        for (text, expected) in [("abc.def\n", Some("Bearer abc.def")), ("", None), ("\n", None), ("a b\n", None)] {
            std::fs::write(&file, text).unwrap();
            let shown = bearer(&file).ok();
            assert_eq!(shown.as_ref().map(|shown| shown.to_str().unwrap()), expected, "{text:?}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(bearer(&file).unwrap_err().to_string().contains("--token-file"));
    }

    #[test]
    fn whoever_names_an_authority_speaks_tls() {
        let authority = std::env::temp_dir().join(format!("kubectl-streams-{}-authority", std::process::id()));
        std::fs::write(&authority, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        let empty = std::env::temp_dir().join(format!("kubectl-streams-{}-no-authority", std::process::id()));
        std::fs::write(&empty, "").unwrap();
        let tls = |tls_ca: Option<&Path>| TlsOptions {
            tls_ca: tls_ca.map(Path::to_owned),
            tls_server_name: None,
            tls_cert: None,
            tls_key: None,
        };
        let table = [
            ("http://a:1", None, Some(("http://a:1", false))),
            ("https://a:1", None, None),
            ("http://a:1", Some(authority.as_path()), Some(("https://a:1", true))),
            ("https://a:1", Some(authority.as_path()), Some(("https://a:1", true))),
            ("https://a:1", Some(Path::new("/nowhere")), None),
            ("https://a:1", Some(empty.as_path()), None),
        ];
        for (address, ca, expected) in table {
            let found = secured(address.to_owned(), &tls(ca)).ok();
            let found = found.as_ref().map(|(address, tls)| (address.as_str(), tls.is_some()));
            assert_eq!(found, expected, "{address} {ca:?}");
        }
        for file in [authority, empty] {
            std::fs::remove_file(file).unwrap();
        }
    }

    /// Somebody takes the connection and ends it, as `kubectl port-forward` does when its pod is gone.
    #[tokio::test]
    async fn a_connection_that_ends_is_told_with_what_to_do() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok(taken) = listener.accept().await {
                drop(taken)
            }
        });
        let line = ["kubectl-streams", "plan", "sensors", "Clean=4", "--endpoint", &address];
        let Command::Plan(options) = Arguments::parse_from(line).command else { panic!("{line:?}") };
        let told = words::of_error(plan("n", options).await.unwrap_err().as_ref());
        assert!(told.starts_with("nothing answers at http://127.0.0.1:") && told.contains("port-forward"), "{told}");
    }

    /// Somebody takes the connection and says nothing.
    #[tokio::test]
    async fn of_a_frontend_that_says_nothing_it_is_told_what_keeps_it_from_answering() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let line = ["kubectl-streams", "plan", "sensors", "Clean=4", "--timeout", "20ms", "--endpoint", &address];
        let Command::Plan(options) = Arguments::parse_from(line).command else { panic!("{line:?}") };
        let told = words::of_error(plan("n", options).await.unwrap_err().as_ref());
        drop(listener);
        assert!(told.starts_with("no answer in time (Timeout expired): are there other dry runs"), "{told}");
    }

    #[test]
    fn what_the_frontend_says_is_told_apart_from_silence() {
        let table = [
            (Status::failed_precondition("is 2,\nnot 7"), "is 2, not 7"),
            (Status::unavailable("the fusion service is gone"), "the fusion service is gone"),
            (Status::permission_denied("u may not create it"), "u may not create it"),
            (Status::internal(""), "Internal error"),
            (Status::resource_exhausted("\n"), "Some resource has been exhausted"),
            (
                Status::unimplemented(""),
                "http://a is not the elasticity API (Operation is not implemented or not supported); to reach the elasticity API: kubectl -n streams-system port-forward service/streams-frontend 50052",
            ),
            (
                Status::cancelled("Timeout expired"),
                "no answer in time (Timeout expired): are there other dry runs, do the fusion service and the frontend answer?",
            ),
        ];
        for (status, expected) in table {
            for shows_token in [false, true] {
                assert_eq!(failure(status.clone(), "http://a", shows_token).to_string(), expected);
            }
        }
    }

    #[test]
    fn whoever_needs_a_token_hears_of_the_option_and_where_to_get_one() {
        let made = "kubectl create token SERVICEACCOUNT --audience streams-frontend > FILE makes one";
        let asks = "the frontend asks who calls (send it): name a file with a token by --token-file";
        let asks_over_tls = format!("{asks}, or a certificate by --tls-cert and --tls-key");
        for (address, shows_token, expected) in [
            ("http://a", false, asks),
            ("https://a", false, asks_over_tls.as_str()),
            ("http://a", true, "the token in --token-file is not taken (send it)"),
        ] {
            let told = failure(Status::unauthenticated("send it"), address, shows_token).to_string();
            assert_eq!(told, format!("{expected}; {made}"));
        }
    }

    #[test]
    fn what_would_become_of_pes_is_told_line_by_line() {
        let pe = |id, fate: Fate, reason: &str, operators: &[&str]| PlannedChange {
            id,
            fate: fate.into(),
            reason: reason.to_owned(),
            operators: operators.iter().map(|name| (*name).to_owned()).collect(),
        };
        let dry_run = DryRun {
            processing_elements: vec![
                pe(1, Fate::Restarted, "a port\tis new", &["Source"]),
                pe(7, Fate::Added, "", &["Clean[2]", "Clean[2].A"]),
                pe(9, Fate::Removed, "", &[]),
            ],
            unlisted: 4,
            warnings: vec!["hm".to_owned()],
        };
        let mut answer = ResizeResponse {
            generation: Some(3),
            changes: Some(Changes { kept: 9, restarted: 3, added: 2, removed: 2 }),
            dry_run: Some(dry_run),
            ..ResizeResponse::default()
        };
        let expected = [
            "generation 3 would come: 9 PEs kept, 3 restarted, 2 added, 2 removed",
            "warning: hm",
            "",
            "PE\tWHAT\tWHY\tOPERATORS",
            "1\trestarted\ta port is new\tSource",
            "7\tadded\t-\tClean[2], Clean[2].A",
            "9\tremoved\t-\t-",
            "and 4 more",
        ];
        assert_eq!(text(&answer).lines().collect::<Vec<_>>(), expected);
        answer.changes = None;
        assert_eq!(text(&answer), "nothing would change: generation 3 has these widths\n");
    }
}
