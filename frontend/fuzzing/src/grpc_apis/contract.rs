//! What the contracts say of errors, read from their `.proto` files: these are the documentation of the APIs.
//!
//! Knows: how these files list reasons. Must not know: which call an error is of.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;
use streams_proto::{elasticity, subscription};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

pub(super) static ELASTICITY: LazyLock<Contract> = LazyLock::new(|| {
    let text = include_str!("../../../../proto/streams/elasticity/v1/elasticity.proto");
    Contract::of("streams.elasticity.v1.ElasticityService", elasticity::ERROR_DOMAIN, text)
});
pub(super) static SUBSCRIPTION: LazyLock<Contract> = LazyLock::new(|| {
    let text = include_str!("../../../../proto/streams/subscription/v1/subscription.proto");
    Contract::of("streams.subscription.v1.SubscriptionService", subscription::ERROR_DOMAIN, text)
});

/// Beginnings of reasons that no call may have here: one call is made at a time, and nothing of the cluster fails.
const OF_TROUBLE: [&str; 9] = [
    "TOO_MANY_",
    "NOT_TAKEN",
    "NOT_REVIEWED",
    "NOT_CURRENT",
    "NOT_PERMITTED",
    "SHUTTING_DOWN",
    "QUOTA_EXCEEDED",
    "NAMESPACE_TERMINATING",
    "DEFINITIONS_OUTDATED",
];

/// What a contract says.
#[derive(Debug)]
pub(super) struct Contract {
    /// Name of the service.
    pub(super) service: &'static str,
    domain: &'static str,
    /// What is said of each reason, beginning with its code.
    reasons: BTreeMap<String, String>,
    /// What is said behind that, also of errors of any reason.
    besides: String,
}

/// An error as a program understands it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Told {
    pub(super) reason: String,
    pub(super) metadata: HashMap<String, String>,
}

impl Contract {
    fn of(service: &'static str, domain: &'static str, proto: &str) -> Self {
        let lines = proto.lines().filter_map(|line| line.strip_prefix("//"));
        let text = lines.flat_map(str::split_whitespace).collect::<Vec<&str>>().join(" ");
        let (_, mut rest) = text.split_once("`reason` = one of").expect("a list of reasons");
        let is_reason = |name: &&str| !name.is_empty() && name.bytes().all(|c| c.is_ascii_uppercase() || c == b'_');
        let mut reasons = BTreeMap::new();
        while let Some((names, after)) = rest.split_once('(') {
            let names: Vec<&str> = names.split(',').map(str::trim).collect();
            if !names.iter().all(is_reason) {
                break;
            }
            let (said, after) = after.split_once(')').expect("an end of what is said of a reason");
            reasons.extend(names.into_iter().map(|name| (name.to_owned(), said.to_owned())));
            rest = after;
        }
        Self { service, domain, reasons, besides: rest.to_owned() }
    }

    /// Whether an error of this reason may have metadata of this name.
    fn allows(&self, reason: &str, name: &str) -> bool {
        let of_reason = self.reasons.get(reason).and_then(|said| said.split_once("metadata"));
        of_reason.is_some_and(|(_, names)| names.contains(&format!("`{name}`")))
            || self.besides.contains(&format!("With metadata `{name}`"))
    }

    /// Checks that a status is one of those of the contract, with its details, and says which. `is_readable`: a message
    /// was sent that can be read; else gRPC itself may refuse it.
    pub(super) fn check(&self, status: &Status, is_readable: bool) -> Told {
        // Of work that has panicked.
        assert!(!status.message().contains("came to no end"), "{status:?}");
        if status.code() == Code::Ok {
            return Told::default();
        }
        let details = status.get_error_details();
        let Some(info) = details.error_info() else {
            let is_of_grpc = matches!(status.code(), Code::Internal | Code::OutOfRange | Code::Unimplemented);
            assert!(is_of_grpc && !is_readable, "no details: {status:?}");
            return Told::default();
        };
        assert_eq!(info.domain, self.domain, "{status:?}");
        let said = self.reasons.get(&info.reason).unwrap_or_else(|| panic!("not in the contract: {status:?}"));
        let code = said.split(';').next().unwrap_or_default().trim().replace('_', "");
        assert!(format!("{:?}", status.code()).eq_ignore_ascii_case(&code), "not {code}: {status:?}");
        for (detail, is_there) in [
            ("RetryInfo", details.retry_info().is_some()),
            ("ResourceInfo", details.resource_info().is_some()),
            ("BadRequest", details.bad_request().is_some()),
        ] {
            assert_eq!(is_there, said.contains(detail), "{detail}: {status:?}");
        }
        for name in info.metadata.keys() {
            assert!(self.allows(&info.reason, name), "metadata {name}: {status:?}");
        }
        assert!(!OF_TROUBLE.iter().any(|beginning| info.reason.starts_with(beginning)), "{status:?}");
        Told { reason: info.reason.clone(), metadata: info.metadata.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_read_from_the_first_to_the_last() {
        let code = |contract: &Contract, reason: &str| {
            contract.reasons.get(reason).and_then(|said| said.split(';').next()).map(str::to_owned)
        };
        let table = [
            (&*ELASTICITY, "JOB_NOT_FOUND", "NOT_FOUND"),
            (&*ELASTICITY, "REGION_NOT_FOUND", "NOT_FOUND"),
            (&*ELASTICITY, "ALREADY_ENDED", "FAILED_PRECONDITION"),
            (&*SUBSCRIPTION, "JOB_NOT_FOUND", "NOT_FOUND"),
            (&*SUBSCRIPTION, "INVALID_TOKEN", "UNAUTHENTICATED"),
            (&*SUBSCRIPTION, "STILL_WAITING", "DEADLINE_EXCEEDED"),
        ];
        for (contract, reason, expected) in table {
            assert_eq!(code(contract, reason).as_deref(), Some(expected), "{reason} of {}", contract.service);
        }
    }

    #[test]
    fn metadata_belongs_to_the_reasons_that_are_said_to_have_it() {
        let table = [
            (&*ELASTICITY, "ALREADY_COMMITTED", "generation", true),
            (&*ELASTICITY, "JOB_NOT_FOUND", "generation", false),
            (&*ELASTICITY, "JOB_NOT_FOUND", "request", true),
            (&*ELASTICITY, "WIDTH_MISMATCH", "expected_width", false),
            (&*ELASTICITY, "ACCESS_DENIED", "name", true),
            (&*SUBSCRIPTION, "ETAG_MISMATCH", "etag", true),
            (&*SUBSCRIPTION, "EXPORT_NOT_FOUND", "etag", false),
            (&*SUBSCRIPTION, "JOB_NOT_FOUND", "request", false),
        ];
        for (contract, reason, name, expected) in table {
            assert_eq!(contract.allows(reason, name), expected, "{name} of {reason} of {}", contract.service);
        }
    }
}
