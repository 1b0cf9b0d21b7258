//! From a reply to bytes (rule repository-1).
//!
//! Knows: both versions of the protocol. Must not know: what is replied when.
//!
//! Invariant: a reply is one frame, whatever the texts in it are.

use bytes::Bytes;
use resp_rs::{resp2, resp3};

/// The version of the protocol that a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Version 2, with which every connection begins.
    #[default]
    Two,
    /// Version 3.
    Three,
}

/// A reply that is in memory as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A word like `OK`.
    Simple(&'static str),
    /// What is wrong; the first word says of which kind it is.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    Bulk(Bytes),
    /// Nothing.
    Null,
    /// Several replies.
    Array(Vec<Reply>),
    /// Replies by others; version 2 has them one after the other.
    Map(Vec<(Reply, Reply)>),
}

/// Most bytes of an error.
const MAX_ERROR: usize = 512;

impl Reply {
    /// A text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Bulk(text.into().into())
    }

    /// The bytes of the reply.
    pub fn bytes(self, protocol: Protocol) -> Bytes {
        match protocol {
            Protocol::Two => resp2::frame_to_bytes(&self.two()),
            Protocol::Three => resp3::frame_to_bytes(&self.three()),
        }
    }

    fn two(self) -> resp2::Frame {
        match self {
            Self::Simple(word) => resp2::Frame::SimpleString(Bytes::from_static(word.as_bytes())),
            Self::Error(text) => resp2::Frame::Error(line(&text)),
            Self::Integer(number) => resp2::Frame::Integer(number),
            Self::Bulk(bytes) => resp2::Frame::BulkString(Some(bytes)),
            Self::Null => resp2::Frame::BulkString(None),
            Self::Array(replies) => resp2::Frame::Array(Some(replies.into_iter().map(Self::two).collect())),
            Self::Map(pairs) => {
                let flat = pairs.into_iter().flat_map(|(key, value)| [key, value]);
                resp2::Frame::Array(Some(flat.map(Self::two).collect()))
            }
        }
    }

    fn three(self) -> resp3::Frame {
        match self {
            Self::Simple(word) => resp3::Frame::SimpleString(Bytes::from_static(word.as_bytes())),
            Self::Error(text) => resp3::Frame::Error(line(&text)),
            Self::Integer(number) => resp3::Frame::Integer(number),
            Self::Bulk(bytes) => resp3::Frame::BulkString(Some(bytes)),
            Self::Null => resp3::Frame::Null,
            Self::Array(replies) => resp3::Frame::Array(Some(replies.into_iter().map(Self::three).collect())),
            Self::Map(pairs) => {
                resp3::Frame::Map(pairs.into_iter().map(|(key, value)| (key.three(), value.three())).collect())
            }
        }
    }
}

/// A text that ends where its line ends: not too long, with blanks for ends of lines.
fn line(text: &str) -> Bytes {
    let end = text.floor_char_boundary(MAX_ERROR);
    let text = text.get(..end).unwrap_or_default();
    text.replace(['\r', '\n'], " ").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_own_bytes() {
        let map = Reply::Map(vec![(Reply::text("a"), Reply::Integer(-1))]);
        let array = Reply::Array(vec![Reply::Simple("OK"), Reply::Null]);
        // reply, version 2, version 3
        let table = [
            (Reply::Simple("OK"), "+OK\r\n", "+OK\r\n"),
            (Reply::Error("ERR a\r\n+OK".to_owned()), "-ERR a  +OK\r\n", "-ERR a  +OK\r\n"),
            (Reply::Integer(7), ":7\r\n", ":7\r\n"),
            (Reply::text("a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"),
            (Reply::text(""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (Reply::Null, "$-1\r\n", "_\r\n"),
            (array, "*2\r\n+OK\r\n$-1\r\n", "*2\r\n+OK\r\n_\r\n"),
            (Reply::Array(Vec::new()), "*0\r\n", "*0\r\n"),
            (map, "*2\r\n$1\r\na\r\n:-1\r\n", "%1\r\n$1\r\na\r\n:-1\r\n"),
        ];
        for (reply, two, three) in table {
            assert_eq!(reply.clone().bytes(Protocol::Two), two, "{reply:?}");
            assert_eq!(reply.clone().bytes(Protocol::Three), three, "{reply:?}");
        }
    }

    #[test]
    fn an_error_is_one_short_line() {
        let bytes = Reply::Error("ä".repeat(1000)).bytes(Protocol::Two);
        assert_eq!(bytes.len(), 1 + MAX_ERROR + 2);
    }
}
