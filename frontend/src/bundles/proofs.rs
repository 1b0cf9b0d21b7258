//! Who has shown lately that a server gives them a bundle (rule fetch-7).
//!
//! Knows: namespaces, Secrets by uid and version, addresses, digests, time. Must not know: bytes, tokens.
//!
//! Invariants: a proof is of one namespace, one content of one Secret and one URL, and none of them can be told from
//! what is kept. The number of proofs is bounded.

use moka::sync::Cache;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, Instant};
use url::Url;

/// How long a proof counts.
pub(super) const PROVEN: Duration = Duration::from_secs(600);
/// How long it is known what the server called what it gave.
const KNOWN: Duration = Duration::from_secs(24 * 3600);
/// Proofs that are kept; each has less than 2 KiB.
const MAX_PROOFS: u64 = 8192;
/// Longest ETag that is kept.
const MAX_ETAG: usize = 1024;

/// Whose a proof is, and of what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ProofKey([u8; 32]);

impl ProofKey {
    /// Of a namespace, the uid and version of the Secret that is used, if any, and a URL.
    pub(super) fn new(namespace: &str, secret: Option<&(String, String)>, url: &Url) -> Self {
        let (uid, version) = secret.map_or(("", ""), |(uid, version)| (uid, version));
        let kind = if secret.is_some() { "secret" } else { "none" };
        let mut hash = Sha256::new();
        for part in [namespace, kind, uid, version, url.as_str()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

/// What a server called what it gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Validator {
    /// The header `ETag`.
    pub(super) etag: String,
    /// Which address said so: another one may mean something else by it.
    at: [u8; 32],
}

impl Validator {
    /// What the server at this address said; `None` if it is too long to be kept.
    pub(super) fn new(url: &Url, etag: &str) -> Option<Self> {
        (etag.len() <= MAX_ETAG).then(|| Self { etag: etag.to_owned(), at: address(url) })
    }

    /// The ETag, if it is for the server at this address.
    pub(super) fn etag_for(&self, url: &Url) -> Option<&str> {
        (self.at == address(url)).then_some(&*self.etag)
    }
}

fn address(url: &Url) -> [u8; 32] {
    Sha256::digest(url.as_str()).into()
}

/// What was given for a proof.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    /// SHA-256 of the bundle, lower-case hexadecimal.
    pub(super) sha256: String,
    /// What the server called it.
    pub(super) validator: Option<Validator>,
    at: Instant,
}

impl Proof {
    /// The server gave this just now, or said that it still has it.
    pub(super) fn new(sha256: String, validator: Option<Validator>) -> Self {
        Self { sha256, validator, at: Instant::now() }
    }

    /// Whether the server need not be asked again.
    pub(super) fn counts(&self, proven: Duration) -> bool {
        self.at.elapsed() < proven
    }
}

/// All proofs. Those of a process end with it.
#[derive(Clone)]
pub(super) struct Proofs {
    proofs: Cache<ProofKey, Proof>,
    /// Namespaces, and contents that a submission there could not use. Whoever put them there may correct them: the
    /// server is asked each time.
    unusable: Cache<(Arc<str>, String), ()>,
}

impl Proofs {
    /// Proofs that count so long.
    pub(super) fn new(proven: Duration) -> Self {
        Self {
            proofs: Cache::builder().max_capacity(MAX_PROOFS).time_to_live(KNOWN).build(),
            unusable: Cache::builder().max_capacity(MAX_PROOFS).time_to_live(proven).build(),
        }
    }

    pub(super) fn get(&self, key: &ProofKey) -> Option<Proof> {
        self.proofs.get(key)
    }

    pub(super) fn put(&self, key: ProofKey, proof: Proof) {
        self.proofs.insert(key, proof);
    }

    /// The server does not give it any more.
    pub(super) fn forget(&self, key: &ProofKey) {
        self.proofs.invalidate(key);
    }

    /// A submission in this namespace failed because of this content.
    pub(super) fn note_unusable(&self, namespace: &str, sha256: &str) {
        self.unusable.insert((namespace.into(), sha256.to_owned()), ());
    }

    /// Whether this content is worth another question to the server, by somebody in this namespace.
    pub(super) fn is_unusable(&self, namespace: &str, sha256: &str) -> bool {
        self.unusable.contains_key(&(namespace.into(), sha256.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_namespace_one_secret_and_one_url() {
        let url = |text: &str| Url::parse(text).unwrap();
        let secret = |uid: &str, version: &str| (uid.to_owned(), version.to_owned());
        let (first, a) = (secret("u", "1"), url("https://h/a.sab"));
        let keys = [
            ProofKey::new("n", Some(&first), &a),
            ProofKey::new("m", Some(&first), &a),
            ProofKey::new("n", None, &a),
            ProofKey::new("n", Some(&secret("", "")), &a),
            ProofKey::new("n", Some(&secret("u", "2")), &a),
            ProofKey::new("n", Some(&secret("v", "1")), &a),
            ProofKey::new("n", Some(&secret("u1", "")), &a),
            ProofKey::new("n", Some(&first), &url("https://h/a.sab?x")),
        ];
        for (i, left) in keys.iter().enumerate() {
            for (j, right) in keys.iter().enumerate() {
                assert_eq!(left == right, i == j, "{i} {j}");
            }
        }
        assert_eq!(keys[0], ProofKey::new("n", Some(&first), &a));
    }

    #[test]
    fn a_proof_counts_for_a_while_and_an_etag_only_where_it_comes_from() {
        let url = Url::parse("https://h/a.sab").unwrap();
        let proof = Proof::new("d".to_owned(), Validator::new(&url, "\"v1\""));
        assert!(proof.counts(PROVEN) && !proof.counts(Duration::ZERO));
        let validator = proof.validator.unwrap();
        assert_eq!(validator.etag_for(&url), Some("\"v1\""));
        assert_eq!(validator.etag_for(&Url::parse("https://other/a.sab").unwrap()), None);
        assert_eq!(Validator::new(&url, &"x".repeat(MAX_ETAG + 1)), None);
    }
}
