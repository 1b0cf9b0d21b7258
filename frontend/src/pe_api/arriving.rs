//! Bodies of requests as they arrive, and the memory that they take (rule pe-api-7).
//!
//! Nothing is read of a body before its handler asks for it, which it does when it knows that there is what the path
//! names, and that the caller may say such a thing of it. What arrives then is counted as long as the handler needs it,
//! with what is made of it.
//!
//! Knows: addresses, namespaces, bytes. Must not know: what bodies say.
//!
//! Invariants: of a body that is longer than its handler permits, or for which there is no memory, the rest is not
//! read. A namespace, and an address, leave memory to others. For what is short, which is nearly all that PEs say,
//! there is always some: whoever sends much takes none of that.

use super::PeApi;
use super::memory::{self, Bounds, Memory};
use super::refusal::Refusal;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use futures::StreamExt;
use std::net::SocketAddr;

/// Longest body that says one thing: a number, a state, an endpoint, an operator.
pub(super) const SHORT: usize = 16 << 10;
/// Longest filter: 65,536 characters.
pub(super) const FILTER: usize = 256 << 10;
/// Longest XML document.
pub(super) const DOCUMENT: usize = 512 << 10;
/// Tags of an XML document.
pub(super) const TAGS_MAX: usize = 16_384;

/// Bytes for which a body takes a place. The first of them are those of its connection, which has one body at a time:
/// 32 MiB for all connections.
const BLOCK: usize = 4 << 10;
/// Further blocks in all: 64 MiB. Of one namespace a quarter at most.
const BLOCKS: usize = 16 << 10;
/// Further blocks of one address: 8 MiB, which is more than the largest document takes.
const BLOCKS_OF_ADDRESS: usize = 2 << 10;
/// Bytes in memory for each that has arrived: a buffer that grows has them three times for a moment, and so has
/// whoever makes texts of them, and something new of these.
const FOLD: usize = 3;
/// Bytes in memory for each tag of an XML document: what is made of the smallest element.
const TAG: usize = 384;

/// The body of a request, of which nothing was read.
pub(super) struct Unread {
    body: Body,
    media: Media,
    share: Share,
}

/// The form of a body, as its sender says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Media {
    /// XML, or it is not said.
    Xml,
    /// Another one.
    Other,
}

/// What a body takes, until it is dropped.
#[must_use = "memory is counted for as long as this lives"]
pub(super) struct Share {
    /// Bytes that are left of the first block.
    left_of_first: usize,
    further: memory::Share,
}

/// The memory that bodies take beside the first block of each.
pub(super) fn memory() -> Memory {
    Memory::new(Bounds { what: "bodies", block: BLOCK, blocks: BLOCKS, blocks_of_address: BLOCKS_OF_ADDRESS })
}

impl Share {
    /// Nothing yet; what does not fit into the first block is taken of this.
    fn new(further: memory::Share) -> Self {
        Self { left_of_first: BLOCK, further }
    }

    /// So many bytes more.
    ///
    /// # Errors
    /// There is no memory for them now.
    fn add(&mut self, bytes: usize) -> Result<(), Refusal> {
        let of_first = bytes.min(self.left_of_first);
        self.left_of_first -= of_first;
        self.further.add(bytes - of_first)
    }
}

impl Unread {
    /// This body, of which nothing was read.
    pub(super) fn new(body: Body, media: Media, share: Share) -> Self {
        Self { body, media, share }
    }

    /// Its form.
    pub(super) fn media(&self) -> Media {
        self.media
    }

    /// The text, of so many bytes at most.
    ///
    /// # Errors
    /// The body is longer, is no text, or does not come to its end; or there is no memory for it.
    pub(super) async fn text(mut self, most: usize) -> Result<(String, Share), Refusal> {
        if self.body.size_hint().lower() > most as u64 {
            return Err(Refusal::TooLong(most));
        }
        let mut text = Vec::new();
        let mut parts = self.body.into_data_stream();
        while let Some(part) = parts.next().await {
            let part: Bytes = part.map_err(|_| Refusal::Invalid("the body does not come to its end".to_owned()))?;
            if part.len() > most - text.len() {
                return Err(Refusal::TooLong(most));
            }
            self.share.add(FOLD * part.len())?;
            text.extend_from_slice(&part);
        }
        let text = String::from_utf8(text).map_err(|_| Refusal::Invalid("the body is not UTF-8".to_owned()))?;
        Ok((text, self.share))
    }

    /// The text of an XML document, with memory for what is made of it.
    ///
    /// # Errors
    /// As of [`Unread::text`]; or it has too many tags.
    pub(super) async fn document(self) -> Result<(String, Share), Refusal> {
        let (text, mut share) = self.text(DOCUMENT).await?;
        let tags = text.bytes().filter(|byte| *byte == b'<').count();
        if tags > TAGS_MAX {
            return Err(Refusal::Invalid(format!("the body has {tags} tags, more than {TAGS_MAX}")));
        }
        share.add(TAG * tags)?;
        Ok((text, share))
    }
}

impl FromRequest<PeApi> for Unread {
    type Rejection = Refusal;

    async fn from_request(request: Request, api: &PeApi) -> Result<Self, Refusal> {
        let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketAddr>>() else {
            return Err(Refusal::Forbidden("nobody knows who asks".to_owned()));
        };
        let share = Share::new(api.memory.share(api.callers.asker(peer.ip())));
        let media = media(request.headers());
        Ok(Self::new(request.into_body(), media, share))
    }
}

fn media(headers: &HeaderMap) -> Media {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("application/xml");
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if matches!(&*kind, "application/xml" | "text/xml") { Media::Xml } else { Media::Other }
}

#[cfg(test)]
mod tests {
    use super::super::callers::Asker;
    use super::*;
    use futures::{poll, stream};
    use std::convert::Infallible;
    use std::net::IpAddr;
    use std::pin::pin;
    use std::sync::Arc;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn asker(namespace: &str, address: IpAddr) -> Asker {
        Asker { namespace: Some(Arc::from(namespace)), address }
    }

    /// A body of which these parts have arrived, and no more comes.
    fn unfinished(memory: &Memory, parts: &[usize]) -> Unread {
        let parts: Vec<_> = parts.iter().map(|bytes| Ok::<_, Infallible>(vec![b'x'; *bytes])).collect();
        let body = Body::from_stream(stream::iter(parts).chain(stream::pending()));
        Unread::new(body, Media::Other, Share::new(memory.share(asker("n", ADDRESS))))
    }

    fn whole(memory: &Memory, text: &str) -> Unread {
        Unread::new(Body::from(text.to_owned()), Media::Xml, Share::new(memory.share(asker("n", ADDRESS))))
    }

    #[tokio::test]
    async fn what_has_arrived_is_counted_until_nobody_needs_it() {
        let memory = memory();
        {
            let mut reading = pin!(unfinished(&memory, &[1, BLOCK, 1]).text(SHORT));
            assert_eq!(memory.taken(), 0, "nothing is read before somebody asks");
            assert!(poll!(&mut reading).is_pending());
            assert_eq!(memory.taken(), 3 * BLOCK, "three times two bytes and a block, but for the first block");
        }
        assert_eq!(memory.taken(), 0);
        let (text, share) = whole(&memory, "3").text(SHORT).await.unwrap();
        assert_eq!((text.as_str(), memory.taken()), ("3", 0), "it fits into the first block");
        drop(share);
        let document = "<a/>".repeat(1_000);
        let (_, share) = whole(&memory, &document).document().await.unwrap();
        assert_eq!(memory.taken(), (3 * document.len() + 1_000 * TAG).next_multiple_of(BLOCK) - BLOCK);
        drop(share);
        assert_eq!(memory.taken(), 0);
    }

    #[tokio::test]
    async fn of_a_body_that_is_too_long_the_rest_is_not_read() {
        let memory = memory();
        let announced = whole(&memory, &"x".repeat(SHORT + 1)).text(SHORT).await;
        assert!(matches!(announced, Err(Refusal::TooLong(SHORT))));
        let arrived = unfinished(&memory, &[SHORT, 1]).text(SHORT).await;
        assert!(matches!(arrived, Err(Refusal::TooLong(SHORT))));
        assert!(whole(&memory, &"x".repeat(SHORT)).text(SHORT).await.is_ok());
        for (tags, is_fine) in [(TAGS_MAX, true), (TAGS_MAX + 1, false)] {
            assert_eq!(whole(&memory, &"<a/>".repeat(tags)).document().await.is_ok(), is_fine, "{tags}");
        }
        let largest = format!("{}{}", "<a/>".repeat(TAGS_MAX), " ".repeat(DOCUMENT - 4 * TAGS_MAX));
        assert!(whole(&memory, &largest).document().await.is_ok(), "an address has memory for the largest document");
        assert_eq!(memory.taken(), 0);
    }

    #[tokio::test]
    async fn an_address_and_a_namespace_leave_memory_to_others() {
        let memory = memory();
        let taking = |address| {
            let mut share = memory.share(asker("n", address));
            while share.add(BLOCK).is_ok() {}
            share
        };
        let of_address = taking(ADDRESS);
        assert_eq!(memory.taken(), BLOCKS_OF_ADDRESS * BLOCK);
        let Err(refusal) = whole(&memory, &"3".repeat(BLOCK)).text(SHORT).await else { panic!("there is memory") };
        assert_eq!(refusal.to_string(), "the bodies of this address take too much memory now, try again");
        let of_namespace = taking(OTHER);
        assert_eq!(memory.taken(), BLOCKS * BLOCK / 4);
        assert!(memory.share(asker("m", ADDRESS)).add(1).is_ok(), "another namespace has some");
        for short in ["3".to_owned(), "3".repeat(BLOCK / FOLD)] {
            assert!(whole(&memory, &short).text(SHORT).await.is_ok(), "what is short takes none of it");
        }
        drop((of_address, of_namespace));
        assert_eq!(memory.taken(), 0);
    }
}
