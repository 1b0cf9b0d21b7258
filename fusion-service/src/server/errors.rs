//! Why a call failed, and the gRPC status that the caller gets.
//!
//! The code of the server returns [`Failure`]. Only [`Failure::status`] makes a status of it, with `google.rpc` details
//! as the contract documents them (rule service-4).
//!
//! Knows: errors of the compiler, the contract. Must not know: how a call is worked on.
//!
//! Invariants: details fit into the 8 KiB of headers that common gRPC libraries accept, however many problems there
//! are. A status repeats no more of a request than the messages of the compiler do. Equal failures give equal bytes.

use super::digest::Digest;
use prost::Message as _;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use streams_compiler::error::{Error, Problem, excerpt};
use streams_proto::fusion::ERROR_DOMAIN;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, ErrorInfo, StatusExt, pb};

/// Bytes that the texts of one status may have (rule service-5). Details travel in base64 and the message is escaped,
/// so this is about half of what is sent.
const TEXT: usize = 3 << 10;

/// Why a call has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The compiler's answer: the input is wrong, or nobody waits any more.
    Compiler(Error),
    /// The message breaks the rules of the contract.
    Malformed(Malformed),
    /// Content that this replica does not have.
    InputMissing(Vec<Digest>),
    /// The layout cannot be read, or belongs to something else.
    LayoutRejected(String),
    /// A plan of another compiler.
    OtherCompiler {
        /// As the caller named it.
        theirs: String,
        /// The version of this one.
        ours: &'static str,
    },
    /// Too many requests of this class.
    Overloaded(Overloaded),
    /// There is no memory for the job that the call begins from.
    NoRoomForJob(Overloaded),
    /// The body of the request arrives more slowly than it may.
    SlowRequest,
    /// The answer was not read for longer than it may be kept.
    UnreadAnswer,
    /// The call has been open for as long as it may be.
    OpenTooLong,
    /// The server is shutting down. The caller should use another replica.
    ShuttingDown,
    /// A defect of the compiler: it panicked, or its results contradict each other (rule service-17). Details are in
    /// the log and not in the status.
    Defect(&'static str),
}

/// There is no room for another request of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overloaded {
    /// When there is likely to be room again.
    pub(crate) retry_after: Duration,
}

/// What is wrong with a message, with the path of its field (`compilation.job_name`).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// The first ones.
    pub(crate) violations: Vec<(String, String)>,
    /// How many there are beyond those.
    more: usize,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Compiler(error)
    }
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<Overloaded> for Failure {
    fn from(overloaded: Overloaded) -> Self {
        Self::Overloaded(overloaded)
    }
}

impl Failure {
    /// One thing that is wrong with a message.
    pub(crate) fn malformed(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self::Malformed(Malformed { violations: vec![(field.into(), description.into())], more: 0 })
    }

    /// The same failure for another call, if every call with this request would get it: it says something about the
    /// request, and nothing about when and where it was worked on. Or all who wait would need the same memory for the
    /// same job, each for itself, and restore that again to find that it is not there.
    pub(crate) fn of_every_such_request(&self) -> Option<Self> {
        match self {
            Self::Compiler(error @ Error::Rejected(_)) => Some(Self::Compiler(error.clone())),
            Self::LayoutRejected(message) => Some(Self::LayoutRejected(message.clone())),
            Self::NoRoomForJob(overloaded) => Some(Self::NoRoomForJob(*overloaded)),
            Self::Compiler(Error::DeadlineExceeded | Error::Cancelled)
            // What is wrong with a message, or missing, is found before anything is computed.
            | Self::Malformed(_)
            | Self::InputMissing(_)
            | Self::OtherCompiler { .. }
            | Self::Overloaded(_)
            | Self::SlowRequest
            | Self::UnreadAnswer
            | Self::OpenTooLong
            | Self::ShuttingDown
            | Self::Defect(_) => None,
        }
    }

    /// The status that the caller sees.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Compiler(Error::Rejected(problems)) => rejected(problems),
            Self::Compiler(error @ Error::DeadlineExceeded) => Status::deadline_exceeded(error.to_string()),
            Self::Compiler(error @ Error::Cancelled) => Status::cancelled(error.to_string()),
            Self::Malformed(malformed) => malformed.status(),
            Self::InputMissing(digests) => {
                let list = digests.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
                let message = format!("content is needed of {list}");
                with_reason(Code::FailedPrecondition, message, "INPUT_MISSING", [("sha256", list)])
            }
            Self::LayoutRejected(message) => {
                with_reason(Code::InvalidArgument, cut(message, TEXT), "LAYOUT_REJECTED", [])
            }
            Self::OtherCompiler { theirs, ours } => {
                let message = format!("the plan was made by compiler '{}', this is '{ours}'", excerpt(theirs));
                let metadata = [("compiler", (*ours).to_owned())];
                with_reason(Code::FailedPrecondition, message, "OTHER_COMPILER", metadata)
            }
            Self::Overloaded(Overloaded { retry_after }) | Self::NoRoomForJob(Overloaded { retry_after }) => {
                let mut details = reason("OVERLOADED", []);
                details.set_retry_info(Some(*retry_after));
                let message = "too many requests wait already; try another replica";
                detailed(Code::ResourceExhausted, message, details)
            }
            Self::SlowRequest => Status::deadline_exceeded("the request arrives too slowly"),
            Self::UnreadAnswer => Status::deadline_exceeded("the answer was not read in time"),
            Self::OpenTooLong => Status::deadline_exceeded("the call was open for as long as it may be"),
            Self::ShuttingDown => {
                let mut details = ErrorDetails::new();
                details.set_retry_info(Some(Duration::ZERO));
                let message = "this replica is shutting down; try another one";
                Status::with_error_details(Code::Unavailable, message, details)
            }
            Self::Defect(_) => Status::internal("a defect of the compiler ended this request; the log has details"),
        }
    }
}

impl Malformed {
    /// Violations that are kept: more than fit in a status.
    const KEPT: usize = 32;

    pub(crate) fn add(&mut self, field: impl Into<String>, description: impl Into<String>) {
        if self.violations.len() < Self::KEPT {
            self.violations.push((field.into(), description.into()));
        } else {
            self.more += 1;
        }
    }

    /// The same violations for a message that has this one in the field `outer`.
    pub(crate) fn under(mut self, outer: &str) -> Self {
        for (field, _) in &mut self.violations {
            field.insert(0, '.');
            field.insert_str(0, outer);
        }
        self
    }

    fn status(&self) -> Status {
        let mut details = reason("APPLICATION_REJECTED", [("stage", "request".to_owned())]);
        add_violations(&mut details, self.violations.iter().cloned(), self.more);
        let message = match self.violations.first() {
            None => "malformed".to_owned(),
            Some((field, text)) if field.is_empty() => format!("the request {text}"),
            Some((field, text)) => format!("{field}: {text}"),
        };
        let message = cut(&message, TEXT / 3);
        detailed(Code::InvalidArgument, message, details)
    }
}

fn rejected(problems: &[Problem]) -> Status {
    let mut metadata = HashMap::new();
    if let Some(first) = problems.first() {
        metadata.insert("stage", first.stage.name().to_owned());
        metadata.extend(first.code.map(|code| ("code", code.to_owned())));
        metadata.extend(first.place.map(|place| ("place", place.to_string())));
    }
    let mut details = reason("APPLICATION_REJECTED", metadata);
    let violations = problems.iter().map(|problem| {
        let field = problem.place.map_or(problem.stage.to_string(), |place| format!("{}:{place}", problem.stage));
        let description = problem.code.map_or(problem.message.clone(), |code| format!("{code} {}", problem.message));
        (field, description)
    });
    add_violations(&mut details, violations, 0);
    let mut message = problems.first().map_or("rejected".to_owned(), |first| cut(&first.to_string(), TEXT / 3));
    if problems.len() > 1 {
        message.push_str(&format!(" (and {} more)", problems.len() - 1));
    }
    detailed(Code::InvalidArgument, message, details)
}

/// Adds the first violation, as many others as fit, and the number of those left out, which includes `more`.
fn add_violations(
    details: &mut ErrorDetails,
    violations: impl ExactSizeIterator<Item = (String, String)>,
    mut more: usize,
) {
    let count = violations.len();
    let mut room = TEXT;
    for (number, (field, description)) in violations.enumerate() {
        let field = cut(&field, TEXT / 8);
        let description = cut(&description, TEXT / 2);
        let size = field.len() + description.len() + 8;
        if size > room {
            more += count - number;
            break;
        }
        room -= size;
        details.add_bad_request_violation(field, description);
    }
    if more > 0 {
        details.add_bad_request_violation("", format!("and {more} more"));
    }
}

fn with_reason<'a>(
    code: Code,
    message: impl Into<String>,
    name: &str,
    metadata: impl IntoIterator<Item = (&'a str, String)>,
) -> Status {
    detailed(code, message, reason(name, metadata))
}

/// The status with these details. The metadata of a reason is written in the order of its keys: its type keeps it in
/// that of a hash table, which differs from call to call, and all replicas give the same bytes (rule service-1).
fn detailed(code: Code, message: impl Into<String>, details: ErrorDetails) -> Status {
    let info = details.error_info().cloned();
    let status = Status::with_error_details(code, message, details);
    let (Some(info), Ok(mut written)) = (info, pb::Status::decode(status.details())) else { return status };
    let in_order = in_order(info);
    for detail in written.details.iter_mut().filter(|detail| detail.type_url == ErrorInfo::TYPE_URL) {
        detail.value.clone_from(&in_order);
    }
    Status::with_details(code, status.message(), written.encode_to_vec().into())
}

/// The bytes of a reason, with its metadata in the order of the keys. Messages that follow each other are one that has
/// the fields of all, so each entry is written as a message of its own.
fn in_order(info: ErrorInfo) -> Vec<u8> {
    let ErrorInfo { reason, domain, metadata } = info;
    let mut bytes = pb::ErrorInfo { reason, domain, metadata: HashMap::new() }.encode_to_vec();
    for entry in BTreeMap::from_iter(metadata) {
        bytes.extend(pb::ErrorInfo { metadata: [entry].into(), ..Default::default() }.encode_to_vec());
    }
    bytes
}

fn reason<'a>(name: &str, metadata: impl IntoIterator<Item = (&'a str, String)>) -> ErrorDetails {
    let metadata: HashMap<String, String> = metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    ErrorDetails::with_error_info(name, ERROR_DOMAIN, metadata)
}

/// The text, or at most `most` bytes of its beginning and a sign that it goes on.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(most)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams_compiler::error::{Place, Stage, code};

    #[test]
    fn what_is_wrong_with_a_whole_message_has_no_path() {
        for (field, expected) in [("", "the request is cut short"), ("layout", "layout: is cut short")] {
            assert_eq!(Failure::malformed(field, "is cut short").status().message(), expected);
        }
    }

    #[test]
    fn a_rejected_application_says_where_and_why() {
        let problems = vec![
            Problem::new(Stage::Topology, "operator 7: unknown host pool 3")
                .code(code::INCONSISTENT)
                .at(Place { line: 120, column: 15 }),
            Problem::new(Stage::Topology, "region 'P' has no width"),
        ];
        let status = Failure::from(Error::Rejected(problems)).status();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.message(), "120:15: CDISR1358E operator 7: unknown host pool 3 (and 1 more)");
        let info = status.get_details_error_info().unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("APPLICATION_REJECTED", ERROR_DOMAIN));
        let expected = [("stage", "topology"), ("code", "CDISR1358E"), ("place", "120:15")];
        assert_eq!(info.metadata, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        let violations = status.get_details_bad_request().unwrap().field_violations;
        let violations: Vec<_> = violations.iter().map(|v| (v.field.as_str(), v.description.as_str())).collect();
        assert_eq!(
            violations,
            [
                ("topology:120:15", "CDISR1358E operator 7: unknown host pool 3"),
                ("topology", "region 'P' has no width")
            ]
        );
    }

    /// A hash table has another order whenever it is made.
    #[test]
    fn the_same_failure_has_the_same_bytes() {
        let status = || {
            let problem = Problem::new(Stage::Topology, "operator 7: unknown host pool 3");
            let problem = problem.code(code::INCONSISTENT).at(Place { line: 120, column: 15 });
            Failure::from(Error::Rejected(vec![problem])).status()
        };
        let first = status();
        for _ in 0..50 {
            assert_eq!(status().details(), first.details());
        }
        let keys = ["code", "place", "stage"].map(|key| {
            let key = key.as_bytes();
            first.details().windows(key.len()).rposition(|bytes| bytes == key).unwrap()
        });
        assert!(keys.is_sorted(), "{keys:?}");
        let details = first.get_error_details();
        assert_eq!(details.error_info().unwrap().metadata.len(), 3);
        assert_eq!(details.bad_request().unwrap().field_violations.len(), 1);
    }

    #[test]
    fn many_problems_fit_in_headers() {
        let problem = |i: usize| Problem::new(Stage::LogicalModel, format!("value {i} {}", "ä".repeat(5000)));
        for count in [1, 2, 1000] {
            let status = Failure::from(Error::Rejected((0..count).map(problem).collect())).status();
            let mut headers = http::HeaderMap::new();
            status.add_header(&mut headers).unwrap();
            let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
            assert!(size < 8 << 10, "{size} bytes for {count} problems");
            assert!(!status.get_details_bad_request().unwrap().field_violations.is_empty());
        }
    }

    #[test]
    fn each_failure_has_its_code_and_reason() {
        let digest = Digest::of(b"");
        let overloaded = Overloaded { retry_after: Duration::from_millis(1500) };
        let cases = [
            (Failure::from(Error::DeadlineExceeded), Code::DeadlineExceeded, None),
            (Failure::from(Error::Cancelled), Code::Cancelled, None),
            (Failure::malformed("pe_ids", "unknown"), Code::InvalidArgument, Some("APPLICATION_REJECTED")),
            (Failure::InputMissing(vec![digest]), Code::FailedPrecondition, Some("INPUT_MISSING")),
            (Failure::LayoutRejected("damaged".into()), Code::InvalidArgument, Some("LAYOUT_REJECTED")),
            (
                Failure::OtherCompiler { theirs: "9".into(), ours: "8" },
                Code::FailedPrecondition,
                Some("OTHER_COMPILER"),
            ),
            (Failure::Overloaded(overloaded), Code::ResourceExhausted, Some("OVERLOADED")),
            (Failure::NoRoomForJob(overloaded), Code::ResourceExhausted, Some("OVERLOADED")),
            (Failure::SlowRequest, Code::DeadlineExceeded, None),
            (Failure::UnreadAnswer, Code::DeadlineExceeded, None),
            (Failure::OpenTooLong, Code::DeadlineExceeded, None),
            (Failure::ShuttingDown, Code::Unavailable, None),
            (Failure::Defect(""), Code::Internal, None),
        ];
        for (failure, code, reason) in cases {
            let status = failure.status();
            assert_eq!(status.code(), code, "{failure:?}");
            let found = status.get_details_error_info().map(|info| info.reason);
            assert_eq!(found.as_deref(), reason, "{failure:?}");
        }
        let status = Failure::Overloaded(overloaded).status();
        assert_eq!(status.get_details_retry_info().unwrap().retry_delay, Some(overloaded.retry_after));
        let status = Failure::InputMissing(vec![digest]).status();
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.metadata["sha256"], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
