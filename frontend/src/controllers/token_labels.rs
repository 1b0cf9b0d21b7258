//! Labels of pods for the tokens of their PEs, by which the scheduler puts PEs together, or apart (rule placement-7).
//! Tokens are any text, so labels carry their hash.
//!
//! Knows: tokens. Must not know: which pods have the labels, what the scheduler is told.

use sha2::{Digest, Sha256};

/// Digits of the hash of a token.
const DIGITS: usize = 20;

/// Kinds of tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// PEs with the same one are together.
    CoLocation,
    /// PEs with the same one are apart.
    ExLocation,
    /// An index of a host pool without hosts: PEs with the same one are together.
    PoolIndex,
}

impl Kind {
    /// How keys of labels for such tokens begin. The annotation with this key shows the tokens to people.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::CoLocation => "streams.ibm.com/hostcolocation",
            Self::ExLocation => "streams.ibm.com/hostexlocation",
            Self::PoolIndex => "streams.ibm.com/hostpoolindex",
        }
    }
}

/// Key of the label for a token.
pub(crate) fn key(kind: Kind, token: &str) -> String {
    let digest = hex::encode(Sha256::digest(token));
    format!("{}.{}", kind.prefix(), digest.get(..DIGITS).unwrap_or_default())
}

/// The value that the label with this key has.
pub(crate) fn value(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or_default()
}

/// The token for an index of a host pool.
pub(crate) fn pool_index(pool: u64, index: u64) -> String {
    format!("{pool}[{index}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_as_long_as_labels_may_be_whatever_the_token() {
        for token in ["", "a b", "Sink[1]", &"x".repeat(1_024)] {
            for kind in [Kind::CoLocation, Kind::ExLocation, Kind::PoolIndex] {
                let key = key(kind, token);
                let (prefix, name) = key.split_once('/').unwrap();
                assert!(prefix == "streams.ibm.com" && name.len() <= 63, "{key}");
                assert!(value(&key).len() == DIGITS && key.ends_with(value(&key)), "{key}");
            }
        }
        assert_eq!(key(Kind::PoolIndex, &pool_index(1, 4)), key(Kind::PoolIndex, "1[4]"));
    }
}
