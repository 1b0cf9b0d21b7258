//! The Secret of a job's bundle: a token, and the hosts that it may go to (rule fetch-8).
//!
//! Knows: the keys of such a Secret. Must not know: what is asked with the token.
//!
//! Invariant: the token is in no message, and in nothing that can be printed.

use super::error::BundleError;
use super::hosts::Hosts;
use k8s_openapi::api::core::v1::Secret;
use streams_kubernetes::delivered::Delivered;
use streams_kubernetes::error::{absent, with_causes};

/// Key of the token.
const TOKEN: &str = "token";
/// Key of the hosts that the token may go to, one in each line.
const HOSTS: &str = "hosts";

/// A Secret as it was read for one request. It is never kept.
pub(super) struct BundleSecret {
    /// Name of the Secret.
    pub(super) name: String,
    /// Its uid and version: another content has another.
    pub(super) identity: (String, String),
    /// The token.
    pub(super) token: String,
    /// Where it may go.
    pub(super) hosts: Hosts,
}

impl BundleSecret {
    /// Reads a Secret. Where it lists no hosts, its token may go to `default`.
    ///
    /// # Errors
    /// When it is missing, cannot be read, or lacks what it should have. All of it may pass.
    pub(super) async fn read(
        kubernetes: &kube::Client,
        namespace: &str,
        name: &str,
        default: &Hosts,
    ) -> Result<Self, BundleError> {
        // A client would write what it cannot read into the log.
        let api: kube::Api<Delivered<Secret>> = kube::Api::namespaced(kubernetes.clone(), namespace);
        // kube's `get_opt` takes every 404 for a Secret that is not there.
        let secret = absent(api.get(name).await).and_then(|secret| secret.map(Delivered::readable).transpose());
        let secret = secret.map_err(|error| {
            BundleError::transient("SecretUnreadable", format!("secret {name} cannot be read: {}", with_causes(&error)))
        })?;
        let secret =
            secret.ok_or_else(|| BundleError::transient("SecretNotFound", format!("there is no secret {name}")))?;
        Self::of(name, secret, default)
    }

    fn of(name: &str, secret: Secret, default: &Hosts) -> Result<Self, BundleError> {
        let invalid = |what: String| BundleError::transient("SecretInvalid", format!("secret {name} {what}"));
        let Secret { metadata, data, .. } = secret;
        let mut data = data.unwrap_or_default();
        let mut text = |key| data.remove(key).map(|bytes| String::from_utf8(bytes.0));
        let token = text(TOKEN).and_then(Result::ok).map(|token| token.trim().to_owned());
        // A header has no other characters.
        let is_token = |token: &String| !token.is_empty() && token.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        let token = token.filter(is_token).ok_or_else(|| invalid(format!("has no key {TOKEN} with a token")))?;
        let hosts = match text(HOSTS) {
            None => default.clone(),
            Some(lines) => lines
                .map_err(|_| ())
                .and_then(|lines| Hosts::lines(&lines).map_err(|_| ()))
                .map_err(|()| invalid(format!("has a line in its key {HOSTS} that is not a host[:port]")))?,
        };
        let identity = (metadata.uid.unwrap_or_default(), metadata.resource_version.unwrap_or_default());
        Ok(Self { name: name.to_owned(), identity, token, hosts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use url::Url;

    fn read(data: &[(&str, &str)]) -> Result<BundleSecret, BundleError> {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        BundleSecret::of("s", Secret { data: Some(data.collect()), ..Secret::default() }, &Hosts::github())
    }

    #[test]
    fn a_secret_says_where_its_token_may_go() {
        let github = Url::parse("https://api.github.com/a").unwrap();
        let own = Url::parse("https://git.example.com:8443/a").unwrap();
        let secret = read(&[("token", " t0\n")]).ok().unwrap();
        assert_eq!((secret.token.as_str(), secret.hosts.list(&github), secret.hosts.list(&own)), ("t0", true, false));
        let secret = read(&[("token", "t0"), ("hosts", "git.example.com:8443\n")]).ok().unwrap();
        assert_eq!((secret.hosts.list(&github), secret.hosts.list(&own)), (false, true));
        let secret = read(&[("token", "t0"), ("hosts", "")]).ok().unwrap();
        assert!(!secret.hosts.list(&github), "an empty list lists nothing");
    }

    #[test]
    fn what_is_wrong_with_a_secret_is_said_without_what_is_in_it() {
        for data in [
            &[("hosts", "h")][..],
            &[("token", "")],
            &[("token", "hidden\nhidden")],
            &[("token", "t0"), ("hosts", "https://hidden/")],
        ] {
            let error = read(data).err().unwrap();
            assert_eq!((error.reason(), error.is_transient()), ("SecretInvalid", true), "{data:?}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
    }
}
