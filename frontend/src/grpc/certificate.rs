//! Who a certificate says that calls, as Kubernetes reads certificates of clients: the common name of its subject is
//! the user, its organizations are the groups (rule elasticity-31).
//!
//! Knows: X.509. Must not know: tokens, rights.

use super::places::CallerName;
use streams_process::tls::Shown;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The certificate that was shown on the connection of a call. It travels with the call.
pub(crate) struct Certificate {
    shown: Shown,
    owner: Option<Owner>,
}

/// Whose a certificate is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) name: CallerName,
    pub(crate) groups: Vec<String>,
}

/// Why a certificate does not say who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worthless {
    /// Its subject has no common name, or what cannot be read.
    Nameless,
    /// It has expired since it was shown, or whoever has signed it may not sign any more.
    Untrusted,
}

impl Certificate {
    /// One that was shown.
    pub(crate) fn new(shown: Shown) -> Self {
        let owner = owner(shown.der());
        Self { shown, owner }
    }

    /// Whose it is, for a call that is made now.
    ///
    /// # Errors
    /// It does not say so, or is not trusted any more.
    pub(crate) fn owner(&self) -> Result<&Owner, Worthless> {
        let owner = self.owner.as_ref().ok_or(Worthless::Nameless)?;
        if self.shown.is_trusted() { Ok(owner) } else { Err(Worthless::Untrusted) }
    }
}

/// Whose this certificate is, if it names somebody. Of several common names the last one counts, as in the API server.
fn owner(der: &[u8]) -> Option<Owner> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().last()?.as_str().ok().filter(|name| !name.is_empty())?;
    // A group that cannot be read may be what a right is refused by.
    let groups: Result<Vec<_>, _> = subject.iter_organization().map(|name| name.as_str().map(str::to_owned)).collect();
    let mut groups = groups.ok()?;
    let says_so = groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
    if name != ANONYMOUS && !says_so {
        groups.push(AUTHENTICATED.to_owned());
    }
    Some(Owner { name: CallerName(name.into()), groups })
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
        // subject -> user: groups
        let table: [(&[(&DnType, DnValue)], Option<&str>); 11] = [
            (&[(&cn, text("me"))], Some("me: system:authenticated")),
            (&[(&o, text("a")), (&cn, text("me"))], Some("me: a, system:authenticated")),
            (&[(&cn, text("me")), (&o, text("a")), (&again_o, text("b"))], Some("me: a, b, system:authenticated")),
            (&[(&cn, text("me")), (&again_cn, text("you"))], Some("you: system:authenticated")),
            (&[(&cn, text("me")), (&o, text(AUTHENTICATED))], Some("me: system:authenticated")),
            (&[(&cn, text(ANONYMOUS))], Some("system:anonymous: ")),
            (&[], None),
            (&[(&o, text("a"))], None),
            (&[(&cn, text(""))], None),
            (&[(&cn, unreadable())], None),
            (&[(&cn, text("me")), (&o, unreadable())], None),
        ];
        for (subject, expected) in table {
            let mut params = CertificateParams::new(vec!["not.the.name".to_owned()]).unwrap();
            params.distinguished_name = DistinguishedName::new();
            for (kind, value) in subject {
                params.distinguished_name.push((*kind).clone(), value.clone());
            }
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let found =
                owner(certificate.der()).map(|Owner { name, groups }| format!("{}: {}", name.0, groups.join(", ")));
            assert_eq!(found.as_deref(), expected, "{subject:?}");
        }
        assert_eq!(owner(b"no certificate"), None);
    }
}
