//! Expands a message that was compressed, a piece at a time (rule service-16). Before that, finds out what comes of it:
//! nothing else of a compressed message says how large it is.
//!
//! Knows: gzip, zstd, pieces. Must not know: what is in the message, where memory comes from.
//!
//! Invariant: measuring takes no more memory than a piece and the state of a decoder, however large a message is.

use super::Pieces;
use super::cost::{Cost, cost};
use crate::server::class::CallClass;
use bytes::{Buf, Bytes};
use flate2::bufread::GzDecoder;
use http::HeaderMap;
use std::io::{self, BufRead, Read};

/// The largest window of a zstd frame, as a power of two: what RFC 8878 asks every decoder for. It bounds what a few
/// bytes can make the decoder allocate.
const WINDOW: u32 = 23;

/// Bytes that are looked at together while a message is measured.
const LOOK: usize = 64 << 10;

/// What a message is when it is expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) length: usize,
    /// `None`: it is not well-formed.
    pub(super) cost: Option<Cost>,
}

/// How a message is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

impl Encoding {
    /// The encoding that the head names, if it is one that is accepted.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        match headers.get("grpc-encoding").map(|value| value.as_bytes()) {
            None | Some(b"identity") => Some(Self::Identity),
            Some(b"gzip") => Some(Self::Gzip),
            Some(b"zstd") => Some(Self::Zstd),
            Some(_) => None,
        }
    }
}

/// A message that is being expanded.
pub(super) struct Expander {
    decoder: Box<dyn Read + Send>,
}

impl Expander {
    /// `None`: it is not compressed.
    pub(super) fn new(encoding: Encoding, compressed: Pieces) -> io::Result<Option<Self>> {
        let compressed = Compressed(compressed);
        let decoder: Box<dyn Read + Send> = match encoding {
            Encoding::Identity => return Ok(None),
            Encoding::Gzip => Box::new(GzDecoder::new(compressed)),
            Encoding::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(compressed)?;
                decoder.window_log_max(WINDOW)?;
                Box::new(decoder)
            }
        };
        Ok(Some(Self { decoder }))
    }

    /// The next `bytes`; fewer only at the end.
    pub(super) fn next(&mut self, bytes: usize) -> io::Result<Bytes> {
        let mut piece = Vec::with_capacity(bytes);
        self.decoder.by_ref().take(bytes as u64).read_to_end(&mut piece)?;
        piece.shrink_to_fit();
        Ok(piece.into())
    }
}

/// Measures a message of a call of this class. `None`: it has more than `most` bytes.
///
/// # Errors
///
/// It is damaged.
pub(super) fn measure(
    class: CallClass,
    encoding: Encoding,
    compressed: Pieces,
    most: usize,
) -> io::Result<Option<Measured>> {
    let mut looks = Looks { expander: Expander::new(encoding, compressed)?, most, length: 0, ended: Ok(()) };
    let cost = cost(class, &mut looks);
    // The count may have ended early.
    looks.by_ref().for_each(drop);
    looks.ended?;
    Ok((looks.length <= most).then_some(Measured { length: looks.length, cost }))
}

/// What comes out of an expander, up to the first piece that is more than `most` bytes away.
struct Looks {
    /// `None` at the end.
    expander: Option<Expander>,
    most: usize,
    length: usize,
    ended: io::Result<()>,
}

impl Iterator for Looks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let piece = match self.expander.as_mut()?.next(LOOK) {
            Ok(piece) => piece,
            Err(error) => {
                (self.expander, self.ended) = (None, Err(error));
                return None;
            }
        };
        self.length += piece.len();
        if piece.len() < LOOK || self.length > self.most {
            self.expander = None;
        }
        Some(piece)
    }
}

/// What is left of the compressed bytes. Pieces that were read are given up.
struct Compressed(Pieces);

impl Read for Compressed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let from = self.fill_buf()?;
        let count = from.len().min(to.len());
        to[..count].copy_from_slice(&from[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Compressed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.0.front().is_some_and(Bytes::is_empty) {
            self.0.pop_front();
        }
        Ok(self.0.front().map_or(&[], |piece| piece))
    }

    fn consume(&mut self, count: usize) {
        if let Some(piece) = self.0.front_mut() {
            piece.advance(count.min(piece.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use std::io::Write;
    use streams_proto::fusion::v1 as pb;

    fn cut(bytes: &[u8], size: usize) -> Pieces {
        bytes.chunks(size).map(Bytes::copy_from_slice).collect()
    }

    fn expanded(encoding: Encoding, compressed: &[u8]) -> io::Result<Vec<u8>> {
        let mut expander = Expander::new(encoding, cut(compressed, 100))?.unwrap();
        let mut all = Vec::new();
        loop {
            let piece = expander.next(1000)?;
            all.extend_from_slice(&piece);
            if piece.len() < 1000 {
                return Ok(all);
            }
        }
    }

    #[test]
    fn both_compressions() {
        for length in [0_usize, 1, 999, 1000, 1001, 50_000] {
            let plain: Vec<u8> = (0..length).map(|i| (i * i / 7) as u8).collect();
            let zstd = zstd::encode_all(&*plain, 3).unwrap();
            assert_eq!(expanded(Encoding::Zstd, &zstd).unwrap(), plain);
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(&plain).unwrap();
            let gzip = gzip.finish().unwrap();
            assert_eq!(expanded(Encoding::Gzip, &gzip).unwrap(), plain);
            for broken in [&zstd[..zstd.len() - 1], b"nonsense"] {
                expanded(Encoding::Zstd, broken).unwrap_err();
            }
            for broken in [&gzip[..gzip.len() - 1], b"nonsense"] {
                expanded(Encoding::Gzip, broken).unwrap_err();
            }
        }
    }

    #[test]
    fn what_comes_out_is_known_before() {
        let content = vec![7; 100_000];
        let blob = pb::Blob { sha256: vec![1; 32].into(), content: Some(content.into()) };
        let request = pb::ResizeRequest { layout: Some(blob), ..Default::default() }.encode_to_vec();
        let zstd = zstd::encode_all(&*request, 3).unwrap();
        let length = request.len();
        let class = CallClass::Resize;
        for (most, expected) in [(length, Some(length)), (usize::MAX, Some(length)), (length - 1, None), (10, None)] {
            let measured = measure(class, Encoding::Zstd, cut(&zstd, 100), most).unwrap();
            assert_eq!(measured.map(|measured| measured.length), expected, "{most}");
            if let Some(measured) = measured {
                assert_eq!(measured.cost, cost(class, [Bytes::from(request.clone())].into_iter()));
                assert_eq!(measured.cost.unwrap().content, 100_000);
            }
        }
        measure(class, Encoding::Zstd, cut(&zstd[..zstd.len() - 1], 100), usize::MAX).unwrap_err();
        measure(class, Encoding::Gzip, cut(&zstd, 100), usize::MAX).unwrap_err();
        // What is no message has a length all the same.
        let nonsense = zstd::encode_all(&[0xff; 200_000][..], 3).unwrap();
        let measured = measure(class, Encoding::Zstd, cut(&nonsense, 100), usize::MAX).unwrap();
        assert_eq!(measured, Some(Measured { length: 200_000, cost: None }));
    }

    #[test]
    fn a_frame_that_asks_for_a_huge_window_is_refused() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&[7; 100_000]).unwrap();
        let frame = encoder.finish().unwrap();
        expanded(Encoding::Zstd, &frame).unwrap_err();
    }
}
