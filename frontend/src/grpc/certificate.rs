//! Who a certificate says that calls, as Kubernetes reads certificates of clients: the common name of its subject is
//! the user, its organizations are the groups (rule elasticity-31).
//!
//! Knows: X.509. Must not know: tokens, rights.

use super::places::CallerName;
use super::subject::Subject;
use std::sync::Arc;
use streams_process::tls::Shown;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Bytes of a name and its groups, at most: all calls hold them, reviews and errors say them.
const NAMES_MAX: usize = 8 << 10;
/// Bytes that a group counts beside those of its name, as a field of a head does in HTTP/2.
const GROUP: usize = 32;

/// The certificate that was shown on the connection of a call. It travels with the call.
pub(crate) struct Certificate {
    shown: Shown,
    owner: Result<Arc<Subject>, Worthless>,
}

/// Travels with the calls of a connection on which a certificate was asked for, and none was shown. Libraries keep one
/// back that no authority has signed which the frontend names, and nobody but the frontend could say so to the caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unshown;

/// Why a certificate does not say who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worthless {
    /// Its subject has no common name, or what cannot be read.
    Nameless,
    /// Its subject says more than is kept.
    Oversized,
    /// It has expired since it was shown, or whoever has signed it may not sign any more.
    Untrusted,
}

impl Certificate {
    /// One that was shown.
    pub(crate) fn new(shown: Shown) -> Self {
        let owner = owner(shown.der()).map(Arc::new);
        Self { shown, owner }
    }

    /// Whose it is, for a call that is made now; all calls of the connection share it.
    ///
    /// # Errors
    /// It does not say so, or is not trusted any more.
    pub(crate) fn owner(&self) -> Result<&Arc<Subject>, Worthless> {
        let owner = self.owner.as_ref().map_err(|why| *why)?;
        if self.shown.is_trusted() { Ok(owner) } else { Err(Worthless::Untrusted) }
    }
}

/// Whose this certificate is, if it names somebody. Of several common names the last one counts, as in the API server.
fn owner(der: &[u8]) -> Result<Subject, Worthless> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| Worthless::Nameless)?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().last().and_then(|name| name.as_str().ok());
    let name = name.filter(|name| !name.is_empty()).ok_or(Worthless::Nameless)?;
    // A group that cannot be read may be what a right is refused by.
    let groups: Result<Vec<_>, _> = subject.iter_organization().map(|name| name.as_str()).collect();
    let groups = groups.map_err(|_| Worthless::Nameless)?;
    if name.len() + groups.iter().map(|group| group.len() + GROUP).sum::<usize>() > NAMES_MAX {
        return Err(Worthless::Oversized);
    }
    let mut groups: Vec<String> = groups.into_iter().map(str::to_owned).collect();
    let says_so = groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
    if name != ANONYMOUS && !says_so {
        groups.push(AUTHENTICATED.to_owned());
    }
    Ok(Subject::new(CallerName(name.into()), groups))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::string::BmpString;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    #[test]
    fn a_certificate_says_who_calls_by_common_name_and_organizations() {
        let (cn, o) = (DnType::CommonName, DnType::OrganizationName);
        // The same attributes: rcgen has each type once.
        let [again_cn, again_o] = [3, 10].map(|last| DnType::CustomDnType(vec![2, 5, 4, last]));
        let text = |text: &str| DnValue::Utf8String(text.to_owned());
        let unreadable = || DnValue::BmpString(BmpString::try_from("me").unwrap());
        let [longest, too_long] = [NAMES_MAX, NAMES_MAX + 1].map(|bytes| "x".repeat(bytes));
        let of_longest = format!("{longest}: system:authenticated");
        // Beside a name of one byte, and the 32 bytes that a group counts in any case (rule elasticity-27).
        let [longest_group, too_long_group] = [33, 32].map(|less| "x".repeat(NAMES_MAX - less));
        let of_longest_group = format!("m: {longest_group}, system:authenticated");
        // subject -> user: groups
        let table: [(&[(&DnType, DnValue)], Result<&str, Worthless>); 15] = [
            (&[(&cn, text("me"))], Ok("me: system:authenticated")),
            (&[(&o, text("a")), (&cn, text("me"))], Ok("me: a, system:authenticated")),
            (&[(&cn, text("me")), (&o, text("a")), (&again_o, text("b"))], Ok("me: a, b, system:authenticated")),
            (&[(&cn, text("me")), (&again_cn, text("you"))], Ok("you: system:authenticated")),
            (&[(&cn, text("me")), (&o, text(AUTHENTICATED))], Ok("me: system:authenticated")),
            (&[(&cn, text(ANONYMOUS))], Ok("system:anonymous: ")),
            (&[(&cn, text(&longest))], Ok(&of_longest)),
            (&[(&cn, text(&too_long))], Err(Worthless::Oversized)),
            (&[(&cn, text("m")), (&o, text(&longest_group))], Ok(&of_longest_group)),
            (&[(&cn, text("m")), (&o, text(&too_long_group))], Err(Worthless::Oversized)),
            (&[], Err(Worthless::Nameless)),
            (&[(&o, text("a"))], Err(Worthless::Nameless)),
            (&[(&cn, text(""))], Err(Worthless::Nameless)),
            (&[(&cn, unreadable())], Err(Worthless::Nameless)),
            (&[(&cn, text("me")), (&o, unreadable())], Err(Worthless::Nameless)),
        ];
        for (subject, expected) in table {
            let mut params = CertificateParams::new(vec!["not.the.name".to_owned()]).unwrap();
            params.distinguished_name = DistinguishedName::new();
            for (kind, value) in subject {
                params.distinguished_name.push((*kind).clone(), value.clone());
            }
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let found = owner(certificate.der());
            let found = found.map(|found| format!("{}: {}", found.name.0, found.groups.join(", ")));
            assert_eq!(found, expected.map(str::to_owned), "{subject:?}");
        }
        assert_eq!(owner(b"no certificate"), Err(Worthless::Nameless));
    }
}
