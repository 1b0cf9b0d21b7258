//! The token of a call: the metadata `authorization: Bearer TOKEN`. Pure.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest as _, Sha256};

/// Longest token that is looked at. Those of service accounts have about 1 KiB.
const LONGEST: usize = 8 << 10;
const SCHEME: &str = "bearer";

/// Stands for a token: its SHA-256.
pub(super) type Digest = [u8; 32];

/// A token. Whoever has it can do what its owner can, so nothing prints it.
pub(crate) struct Token(String);

/// Why a call has no token that is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// There is none.
    Missing,
    /// What is there cannot be a token.
    Malformed,
    /// It is known to nobody, expired, or for somebody else.
    Nobodys,
}

impl Token {
    /// Its text.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// What stands for it.
    pub(super) fn digest(&self) -> Digest {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

/// The token of a call with these headers.
///
/// # Errors
/// There is none, or it cannot be one.
pub(super) fn of(headers: &HeaderMap) -> Result<Token, Unusable> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let first = all.next().ok_or(Unusable::Missing)?;
    let text = first.to_str().map_err(|_| Unusable::Malformed)?.trim();
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return Err(Unusable::Missing);
    }
    let token = token.trim_start();
    let is_of_a_token = |byte: u8| byte.is_ascii_graphic();
    if all.next().is_some() || token.is_empty() || token.len() > LONGEST || !token.bytes().all(is_of_a_token) {
        return Err(Unusable::Malformed);
    }
    Ok(Token(token.to_owned()))
}

#[cfg(test)]
impl Token {
    /// This one.
    pub(super) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bearer_token_is_needed() {
        let long = format!("Bearer {}", "t".repeat(LONGEST));
        let too_long = format!("{long}t");
        let table: [(&[&str], Result<&str, Unusable>); 13] = [
            (&["Bearer abc.def-1_2~+/="], Ok("abc.def-1_2~+/=")),
            (&["bearer abc"], Ok("abc")),
            (&["BEARER   abc "], Ok("abc")),
            (&[&long], Ok(&long["Bearer ".len()..])),
            (&[], Err(Unusable::Missing)),
            (&[""], Err(Unusable::Missing)),
            (&["Basic YTpi"], Err(Unusable::Missing)),
            (&["abc"], Err(Unusable::Missing)),
            (&["Bearer"], Err(Unusable::Malformed)),
            (&["Bearer a b"], Err(Unusable::Malformed)),
            (&["Bearer a\u{e9}"], Err(Unusable::Malformed)),
            (&["Bearer a", "Bearer b"], Err(Unusable::Malformed)),
            (&[&too_long], Err(Unusable::Malformed)),
        ];
        for (sent, expected) in table {
            let mut headers = HeaderMap::new();
            for value in sent {
                headers.append(AUTHORIZATION, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            let found = of(&headers);
            assert_eq!(found.as_ref().map(Token::text).map_err(|why| *why), expected, "{sent:?}");
        }
    }

    #[test]
    fn a_token_has_a_digest_of_its_own() {
        let digest = hex::encode(Token::new("abc").digest());
        assert_eq!(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
