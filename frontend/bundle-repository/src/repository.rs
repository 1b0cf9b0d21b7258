//! What is served, and to whom (rules repository-2 and repository-3).
//!
//! Knows: names, contents, reasons. Must not know: how a reply is written.

use bytes::Bytes;
use std::fmt;
use std::future::Future;
use std::io::Cursor;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::AsyncRead;

/// Whose client it is. Those of whom nothing is known are one tenant together.
pub type Tenant = Option<Arc<str>>;

/// The bundles, as clients see them.
pub trait Repository: Send + Sync + 'static {
    /// Whose client this is: clients of one tenant leave most of what there is to others.
    fn tenant(&self, peer: IpAddr) -> Tenant;

    /// Waits until it is known whose client this is: a pod may be faster than the news of its address. It may last for
    /// ever.
    fn known(&self, _peer: IpAddr) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// The bundle that this client knows by this name.
    ///
    /// # Errors
    /// When it may not have it, or cannot have it now.
    fn find(&self, peer: IpAddr, name: &str) -> impl Future<Output = Result<Found, Refusal>> + Send;

    /// The names of all bundles that this client may have.
    ///
    /// # Errors
    /// When nothing is known of this client, or not yet.
    fn names(&self, peer: IpAddr) -> impl Future<Output = Result<Vec<String>, Refusal>> + Send;
}

/// A bundle that was found.
pub struct Found {
    pub(crate) length: u64,
    pub(crate) content: Content,
}

/// Where the bytes are.
pub(crate) enum Content {
    /// In memory, shared with whoever else sends it.
    Whole(Bytes),
    /// To be read, piece by piece.
    Pieces(Pin<Box<dyn AsyncRead + Send>>),
}

impl Found {
    /// Bytes that are in memory already. Nothing copies them as a whole.
    pub fn whole(bytes: Bytes) -> Self {
        Self { length: bytes.len() as u64, content: Content::Whole(bytes) }
    }

    /// This many bytes, which are read while they are sent. If there are fewer, the connection breaks.
    pub fn pieces(length: u64, reader: impl AsyncRead + Send + 'static) -> Self {
        Self { length, content: Content::Pieces(Box::pin(reader)) }
    }

    /// The number of bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The bytes.
    pub fn into_reader(self) -> Pin<Box<dyn AsyncRead + Send>> {
        match self.content {
            Content::Whole(bytes) => Box::pin(Cursor::new(bytes)),
            Content::Pieces(reader) => reader,
        }
    }
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Found({} bytes)", self.length)
    }
}

/// Why a client does not get a bundle. The text is one sentence. A client that only looks is sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It may not have it.
    Forbidden(String),
    /// There is no such bundle for it.
    Unknown(String),
    /// It may have it later.
    NotNow(String),
}

impl Refusal {
    /// The first word of the reply, and the text.
    pub(crate) fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Forbidden(text) => ("NOPERM", text),
            Self::Unknown(text) => ("ERR", text),
            Self::NotNow(text) => ("TRYAGAIN", text),
        }
    }
}
