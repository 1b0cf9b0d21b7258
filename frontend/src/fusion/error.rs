//! Errors of the fusion service, decoded from `google.rpc` details, told apart by what to do (rule call-17).

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;
use std::{fmt, io, iter};
use tonic::{Code, ConnectError, Status, TimeoutExpired};
use tonic_types::StatusExt;

/// One thing that is wrong with an application or a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Stage of the compilation, and the place in the ADL: `stage[:line:column]`.
    pub field: String,
    /// `[code ]message`.
    pub description: String,
}

/// Why a call gave no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FusionError {
    /// The application or the request is wrong. The same request will never succeed.
    Rejected {
        /// Stage of the first problem.
        stage: String,
        /// Code of the first problem, if it has one.
        code: Option<String>,
        /// One sentence.
        message: String,
        /// Every problem that the stage saw.
        problems: Vec<Problem>,
    },
    /// The layout is damaged, of an unknown version, or of another application.
    LayoutRejected(String),
    /// The plan was made by another compiler than those running: compile anew.
    OtherCompiler(String),
    /// Content is needed that the caller did not have.
    InputMissing(String),
    /// The answer is larger than any that is taken, or the request is. It will be next time.
    TooLarge(String),
    /// No replica could answer now.
    Unavailable(String),
    /// Replicas ended while they worked on it, perhaps because of it.
    ReplicasLost(String),
    /// The deadline passed.
    DeadlineExceeded(String),
    /// A replica answered against the contract, or failed inside.
    Internal(String),
}

impl FusionError {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::ReplicasLost(_) | Self::DeadlineExceeded(_) | Self::Internal(_))
    }
}

impl fmt::Display for FusionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected { code, message, .. } => match code {
                // Most messages name their code, behind the place.
                Some(code) if !message.contains(code.as_str()) => write!(f, "{code} {message}"),
                _ => f.write_str(message),
            },
            Self::LayoutRejected(m) => write!(f, "the layout of the running generation was refused: {m}"),
            Self::OtherCompiler(m) => write!(f, "the plan was made by another compiler: {m}"),
            Self::InputMissing(m) => write!(f, "the fusion service asks for content that is not known: {m}"),
            Self::TooLarge(m) => f.write_str(m),
            Self::Unavailable(m) => write!(f, "the fusion service is not available: {m}"),
            Self::ReplicasLost(m) => write!(f, "the fusion service may not survive this request: {m}"),
            Self::DeadlineExceeded(m) => write!(f, "the fusion service did not answer in time: {m}"),
            Self::Internal(m) => write!(f, "the fusion service failed: {m}"),
        }
    }
}

impl Error for FusionError {}

/// How the transport says that an answer is larger than it may be after decompression.
const TOO_LARGE_UNPACKED: &str = "Error decompressing: size limit";
/// What precedes a status of HTTP where the transport says that what came is no message.
const NO_MESSAGE: &str = "while receiving response with status: ";
/// What precedes the number of a status of HTTP where the transport says that no replica has answered.
const NO_STATUS: &str = "grpc-status header missing, mapped from HTTP status code ";

/// What to do about a failed attempt.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Give up: the answer would be the same everywhere.
    Final(FusionError),
    /// It would be the same everywhere, if the replica has no defect. It does not say so in the words of the contract:
    /// ask another one.
    Unconfirmed(FusionError),
    /// The replica lacks inputs: send them.
    SendContent(FusionError),
    /// The replica has another compiler: it did well, and asking it again is of no use.
    OtherCompiler(FusionError),
    /// The replica failed inside: it, or the request, has a defect.
    Defect(FusionError),
    /// The replica has enough to do, and says for how long: ask another one.
    Overloaded(FusionError, Option<Duration>),
    /// There is no connection, so nothing was sent; or the replica took back what it was about to say.
    Unreachable(FusionError),
    /// It shows a certificate that is not trusted or is of another name: nothing was sent.
    Untrusted(FusionError),
    /// The connection broke, or nothing came through it any more, after the request was sent.
    Lost(FusionError),
    /// Ask another replica.
    Elsewhere(FusionError),
}

impl Verdict {
    /// In one or two words, for traces.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Final(_) | Self::Unconfirmed(_) => "refused",
            Self::SendContent(_) => "content missing",
            Self::OtherCompiler(_) => "other compiler",
            Self::Overloaded(..) => "overloaded",
            Self::Unreachable(_) => "unreachable",
            Self::Untrusted(_) => "not trusted",
            Self::Lost(_) => "lost",
            Self::Defect(_) | Self::Elsewhere(_) => "failed",
        }
    }

    /// The replica did not do what a replica does.
    pub(super) fn is_failure(&self) -> bool {
        match self {
            Self::Final(_) | Self::Unconfirmed(_) | Self::SendContent(_) | Self::OtherCompiler(_) => false,
            Self::Unreachable(_) | Self::Untrusted(_) | Self::Lost(_) => true,
            Self::Defect(_) | Self::Overloaded(..) | Self::Elsewhere(_) => true,
        }
    }

    /// A replica did not answer in the time that a try has.
    pub(super) fn silent(replica: SocketAddr) -> Self {
        Self::Elsewhere(FusionError::DeadlineExceeded(format!("{replica} did not answer")))
    }
}

/// Reads a status by the rules at the top of `fusion.proto`.
pub(super) fn verdict(status: &Status) -> Verdict {
    if let Some(source) = status.source() {
        return of_transport(status, source);
    }
    if let Some(http) = of_gateway(status) {
        return Verdict::Elsewhere(FusionError::Unavailable(format!("HTTP {http}")));
    }
    let details = status.get_error_details();
    let reason = details.error_info().map_or("", |info| info.reason.as_str());
    let message = status.message().to_owned();
    match (status.code(), reason) {
        (_, "INPUT_MISSING") => Verdict::SendContent(FusionError::InputMissing(message)),
        (_, "OTHER_COMPILER") => Verdict::OtherCompiler(FusionError::OtherCompiler(message)),
        (Code::InvalidArgument, "LAYOUT_REJECTED") => Verdict::Final(FusionError::LayoutRejected(message)),
        (Code::InvalidArgument, reason) => {
            let metadata = |key: &str| details.error_info().and_then(|info| info.metadata.get(key).cloned());
            let problems = details.bad_request().map_or_else(Vec::new, |bad| {
                bad.field_violations
                    .iter()
                    .map(|v| Problem { field: v.field.clone(), description: v.description.clone() })
                    .collect()
            });
            let stage = metadata("stage").unwrap_or_default();
            let refusal = FusionError::Rejected { stage, code: metadata("code"), message, problems };
            // A replica that looks at a request says why it refuses it.
            if reason.is_empty() { Verdict::Unconfirmed(refusal) } else { Verdict::Final(refusal) }
        }
        // The client's bound of an answer, or a replica's of a request, which all replicas have.
        (Code::OutOfRange, _) => too_large(&message),
        (Code::ResourceExhausted, _) if message.starts_with(TOO_LARGE_UNPACKED) => too_large(&message),
        (Code::ResourceExhausted, _) => {
            let delay = details.retry_info().and_then(|info| info.retry_delay);
            Verdict::Overloaded(FusionError::Unavailable(message), delay)
        }
        // Our own cancellation never gets here: the future is gone. A server that cancels is going away.
        (Code::Unavailable | Code::Cancelled | Code::Aborted | Code::Unknown, _) => {
            Verdict::Elsewhere(FusionError::Unavailable(message))
        }
        // Of the try; there may be time for another one.
        (Code::DeadlineExceeded, _) => Verdict::Elsewhere(FusionError::DeadlineExceeded(message)),
        (Code::Internal | Code::DataLoss, _) => Verdict::Defect(FusionError::Internal(message)),
        _ => Verdict::Elsewhere(FusionError::Internal(message)),
    }
}

/// The status of HTTP with which something in between has answered in place of a replica: with a page, or with nothing.
/// A replica that refuses a request quotes what its author has written, and always says more by details.
fn of_gateway(status: &Status) -> Option<&str> {
    let message = status.message();
    let of_page = || message.rsplit_once(NO_MESSAGE).filter(|_| status.code() == Code::Internal).map(|(_, http)| http);
    let http = message.strip_prefix(NO_STATUS).or_else(of_page).filter(|_| status.details().is_empty())?;
    (!http.starts_with("200")).then_some(http)
}

/// It would be as large everywhere, unless a replica has a defect: lengths are what a defect spoils first.
fn too_large(message: &str) -> Verdict {
    let message = format!(
        "what the fusion service would say of the job, or be asked, is more than a message may have; use fewer PEs \
         ({message})"
    );
    Verdict::Unconfirmed(FusionError::TooLarge(message))
}

/// Reads a status that no replica has sent: the transport made it, from this error.
fn of_transport(status: &Status, source: &(dyn Error + 'static)) -> Verdict {
    let chain = || iter::successors(Some(source), |error: &&'_ (dyn Error + 'static)| Error::source(*error));
    let last = chain().last().map_or_else(String::new, ToString::to_string);
    let message = if last.is_empty() || status.message().contains(&last) {
        status.message().to_owned()
    } else {
        format!("{}: {last}", status.message())
    };
    if chain().any(|error| error.is::<TimeoutExpired>()) {
        return Verdict::Elsewhere(FusionError::DeadlineExceeded(message));
    }
    if chain().any(is_of_certificate) {
        return Verdict::Untrusted(FusionError::Unavailable(message));
    }
    // What was still waiting for a connection is cancelled when there is none.
    if status.code() == Code::Cancelled || chain().any(|error| error.is::<ConnectError>()) {
        return Verdict::Unreachable(FusionError::Unavailable(message));
    }
    Verdict::Lost(FusionError::Unavailable(message))
}

/// Whether this says that a replica shows a certificate that is not trusted, or is of another name.
fn is_of_certificate(error: &(dyn Error + 'static)) -> bool {
    // An error of TLS is within one of input and output, which does not name it as its source.
    let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let within = within.and_then(|within| within.downcast_ref::<rustls::Error>());
    matches!(within.or_else(|| error.downcast_ref()), Some(rustls::Error::InvalidCertificate(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::CertificateError;
    use tonic_types::ErrorDetails;

    fn info(reason: &str, metadata: &[(&str, &str)]) -> ErrorDetails {
        let metadata = metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        ErrorDetails::with_error_info(
            reason,
            streams_proto::fusion::ERROR_DOMAIN,
            metadata.collect::<std::collections::HashMap<_, _>>(),
        )
    }

    #[test]
    fn a_rejected_application_names_stage_code_and_problems() {
        let mut details = info("APPLICATION_REJECTED", &[("stage", "topology"), ("code", "CDISR1164E")]);
        details.add_bad_request_violation("topology:12:3", "CDISR1164E width 0");
        let status = Status::with_error_details(Code::InvalidArgument, "CDISR1164E width 0", details);
        let Verdict::Final(error) = verdict(&status) else { panic!("not final") };
        assert!(!error.is_transient());
        assert_eq!(error.to_string(), "CDISR1164E width 0");
        let FusionError::Rejected { stage, code, problems, .. } = error else { panic!("not rejected") };
        assert_eq!((stage.as_str(), code.as_deref()), ("topology", Some("CDISR1164E")));
        assert_eq!(problems[0].field, "topology:12:3");
    }

    #[test]
    fn statuses_are_told_apart_by_what_to_do() {
        let with = |code, reason| Status::with_error_details(code, "m", info(reason, &[]));
        let of_tls = |error| -> Box<dyn Error + Send + Sync> {
            io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(error)).into()
        };
        for (status, expected) in [
            (with(Code::FailedPrecondition, "INPUT_MISSING"), "send content"),
            (with(Code::FailedPrecondition, "OTHER_COMPILER"), "other compiler"),
            (with(Code::InvalidArgument, "LAYOUT_REJECTED"), "final"),
            (with(Code::ResourceExhausted, "OVERLOADED"), "overloaded"),
            (Status::unavailable("m"), "elsewhere"),
            (Status::unknown("transport error"), "elsewhere"),
            (Status::resource_exhausted("m"), "overloaded"),
            (Status::resource_exhausted("Error decompressing: size limit, of 9 bytes, exceeded"), "unconfirmed"),
            (Status::out_of_range("m"), "unconfirmed"),
            (Status::invalid_argument("m"), "unconfirmed"),
            (with(Code::InvalidArgument, "APPLICATION_REJECTED"), "final"),
            (Status::internal("m"), "defect"),
            (Status::internal("flag: 60, while receiving response with status: 200 OK"), "defect"),
            (Status::internal("flag: 60, while receiving response with status: 503 Service Unavailable"), "elsewhere"),
            (Status::internal("grpc-status header missing, mapped from HTTP status code 400"), "elsewhere"),
            (
                Status::with_error_details(
                    Code::InvalidArgument,
                    "unknown kind \"while receiving response with status: 503\"",
                    info("APPLICATION_REJECTED", &[]),
                ),
                "final",
            ),
            (Status::data_loss("m"), "defect"),
            (Status::unimplemented("m"), "elsewhere"),
            (Status::deadline_exceeded("m"), "elsewhere"),
            (Status::from_error(ConnectError("refused".into()).into()), "unreachable"),
            (Status::from_error(ConnectError(of_tls(CertificateError::UnknownIssuer)).into()), "not trusted"),
            (Status::from_error(ConnectError(of_tls(CertificateError::NotValidForName)).into()), "not trusted"),
            (
                Status::from_error(ConnectError(io::Error::other(rustls::Error::DecryptError).into()).into()),
                "unreachable",
            ),
            (Status::from_error(TimeoutExpired(()).into()), "elsewhere"),
            (Status::from_error(io::Error::from(io::ErrorKind::BrokenPipe).into()), "lost"),
        ] {
            let verdict = match verdict(&status) {
                Verdict::Final(_) => "final",
                Verdict::Unconfirmed(_) => "unconfirmed",
                Verdict::SendContent(_) => "send content",
                Verdict::OtherCompiler(_) => "other compiler",
                Verdict::Defect(_) => "defect",
                Verdict::Overloaded(..) => "overloaded",
                Verdict::Unreachable(_) => "unreachable",
                Verdict::Untrusted(_) => "not trusted",
                Verdict::Lost(_) => "lost",
                Verdict::Elsewhere(_) => "elsewhere",
            };
            assert_eq!(verdict, expected, "{status:?}");
        }
    }

    #[test]
    fn an_overloaded_replica_says_when() {
        let mut details = info("OVERLOADED", &[]);
        details.set_retry_info(Some(Duration::from_millis(300)));
        let Verdict::Overloaded(_, delay) = verdict(&Status::with_error_details(Code::ResourceExhausted, "m", details))
        else {
            panic!("final")
        };
        assert_eq!(delay, Some(Duration::from_millis(300)));
    }
}
