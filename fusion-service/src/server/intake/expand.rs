//! Expands a message that was compressed, a piece at a time (rule service-16).
//!
//! Knows: gzip, zstd, pieces. Must not know: what is in the message, where memory comes from.

use super::Pieces;
use bytes::{Buf, Bytes};
use flate2::bufread::GzDecoder;
use http::HeaderMap;
use std::io::{self, BufRead, Read};

/// The largest window of a zstd frame, as a power of two: what RFC 8878 asks every decoder for. It bounds what a few
/// bytes can make the decoder allocate.
const WINDOW: u32 = 23;

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
    use std::io::Write;

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
    fn a_frame_that_asks_for_a_huge_window_is_refused() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&[7; 100_000]).unwrap();
        let frame = encoder.finish().unwrap();
        expanded(Encoding::Zstd, &frame).unwrap_err();
    }
}
