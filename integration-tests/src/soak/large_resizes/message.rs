//! Messages of a given size, in pieces that many of them share: so many callers do not need so many times the memory.
//!
//! A third of a message is an ADL, a third a layout, and the rest a field that no version of the contract has, which a
//! reader ignores (rule service-12). The ADL is the sample application with tuple types that nothing uses, and which
//! have to be parsed all the same; the layout is that of the job, followed by a frame of zstd that is to be skipped.
//!
//! Knows: the wire format, the sample application. Must not know: who sends a message, and to whom.

use crate::sample::{ADL, CLEAN};
use anyhow::Result;
use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::io::Write as _;
use streams_proto::fusion::v1 as pb;

/// Width that every resize asks for.
pub(super) const WIDTH: u32 = 3;
/// Where tuple types are added.
const TUPLE_TYPES: &str = "</tupleTypes>";
/// Indexes of tuple types that the sample application does not have.
const FIRST_INDEX: usize = 1000;
/// Digits of the index in the name of an attribute. With short names, parsing takes most of the time of a run.
const LONG_NAME: usize = 80;
/// Most bytes of one tuple type as it is written here.
const LONGEST_TUPLE_TYPE: usize = 1 << 10;
/// Bytes of the comment at the end of an ADL, which only one job has.
const TAIL: usize = 64;
/// The first bytes of a frame of zstd that is to be skipped, before its length.
const SKIPPED: u32 = 0x184D_2A50;
/// Number of a field that no message has.
const FILLER: u64 = 1000;
/// Most bytes of the head of a field.
const HEAD: usize = 8;
/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
const GZIP_LEVEL: u32 = 1;
const ZSTD_LEVEL: i32 = 1;

/// How a message is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

impl Encoding {
    /// Its name in the head of a call.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// What messages of a size have in common.
pub(super) struct Sizes {
    /// Bytes of a message.
    bytes: usize,
    /// An ADL but for its last bytes, and what has been computed of its digest.
    adl: (Bytes, Sha256),
    zeros: Bytes,
}

impl Sizes {
    /// For messages of so many bytes.
    pub(super) fn of(bytes: usize) -> Self {
        let adl = Bytes::from(adl(bytes / 3 - TAIL));
        let digest = Sha256::new_with_prefix(&adl);
        Self { bytes, adl: (adl, digest), zeros: Bytes::from(vec![0; bytes]) }
    }
}

/// The sample application with so many tuple types that it has nearly `bytes`.
fn adl(bytes: usize) -> String {
    let (before, after) = ADL.split_once(TUPLE_TYPES).unwrap_or((ADL, ""));
    let mut adl = String::with_capacity(bytes);
    adl.push_str(before);
    let most = bytes.saturating_sub(TUPLE_TYPES.len() + after.len() + LONGEST_TUPLE_TYPE);
    for index in FIRST_INDEX.. {
        if adl.len() > most {
            break;
        }
        // Writing to a text cannot fail.
        let _ = write!(adl, "<tupleType index=\"{index}\"><tuple>");
        for attribute in ["sensor", "place", "value", "variance", "reading", "quality"] {
            let _ = write!(adl, "<tt:attr name=\"{attribute}{index:0>LONG_NAME$}\" type=\"float64\"/>");
        }
        adl.push_str("</tuple></tupleType>\n");
    }
    adl.push_str(TUPLE_TYPES);
    adl.push_str(after);
    let missing = bytes.saturating_sub(adl.len());
    adl.extend(std::iter::repeat_n('\n', missing));
    adl
}

/// The job of one caller.
pub(super) struct Job {
    bytes: usize,
    number: usize,
    zeros: Bytes,
    adl: [Bytes; 2],
    adl_digest: Bytes,
    layout: Bytes,
}

impl Job {
    /// A job with an application of its own.
    pub(super) fn new(sizes: &Sizes, number: usize) -> Self {
        let (adl, digest) = &sizes.adl;
        let comment = format!("<!-- {number} -->");
        let tail = Bytes::from(format!("{comment:<TAIL$}"));
        let digest = digest.clone().chain_update(&tail).finalize();
        Self {
            bytes: sizes.bytes,
            number,
            zeros: sizes.zeros.clone(),
            adl: [adl.clone(), tail],
            adl_digest: Bytes::copy_from_slice(&digest),
            layout: Bytes::new(),
        }
    }

    /// The same job after its submission.
    pub(super) fn with_layout(self, layout: &Bytes) -> Self {
        Self { layout: layout.clone(), ..self }
    }

    fn compilation(&self) -> Pieces {
        let adl = blob(&self.adl_digest, self.adl.iter().cloned());
        let rest = pb::Compilation {
            job_name: format!("large-{}", self.number),
            job_id: self.number as u64,
            fusion: Some(pb::Fusion { mode: Some(pb::fusion::Mode::Legacy(pb::fusion::Legacy {})), r#type: 0 }),
            ..pb::Compilation::default()
        };
        let mut compilation = field(1, adl);
        compilation.add(rest.encode_to_vec().into());
        compilation
    }

    /// The layout with so many bytes more that it has a third of the message; or as many bytes that are none.
    fn padded_layout(&self, broken: bool) -> Pieces {
        let third = self.bytes / 3;
        if broken {
            return blob(&Sha256::digest(self.zeros.slice(..third)), [self.zeros.slice(..third)]);
        }
        let missing = third.saturating_sub(self.layout.len() + 2 * size_of::<u32>());
        let mut skipped = BytesMut::new();
        skipped.put_u32_le(SKIPPED);
        skipped.put_u32_le(u32::try_from(missing).unwrap_or_default());
        let content = [self.layout.clone(), skipped.freeze(), self.zeros.slice(..missing)];
        let digest = content.iter().fold(Sha256::new(), |digest, piece| digest.chain_update(piece)).finalize();
        blob(&digest, content)
    }
}

/// A message as it is sent, with what comes before it.
#[derive(Clone)]
pub(super) struct Message {
    pub(super) encoding: Encoding,
    pieces: Vec<Bytes>,
    length: usize,
}

impl Message {
    /// The submission of a job.
    pub(super) fn submit(job: &Job) -> Self {
        Self::plain(field(1, job.compilation()))
    }

    /// The resize of a job.
    ///
    /// # Errors
    /// When it cannot be compressed.
    pub(super) fn resize(job: &Job, broken: bool, encoding: Encoding) -> Result<Self> {
        let mut message = field(1, job.compilation());
        message.append(field(2, job.padded_layout(broken)));
        let rest = pb::ResizeRequest {
            widths: vec![pb::RegionWidth { region: CLEAN.to_owned(), width: WIDTH.into() }],
            ..pb::ResizeRequest::default()
        };
        message.add(rest.encode_to_vec().into());
        let missing = job.bytes.saturating_sub(message.bytes + HEAD);
        message.append(field(FILLER, Pieces::from_iter([job.zeros.slice(..missing)])));
        if encoding == Encoding::Identity { Ok(Self::plain(message)) } else { Self::compressed(&message, encoding) }
    }

    fn plain(message: Pieces) -> Self {
        Self { encoding: Encoding::Identity, pieces: message.pieces, length: message.bytes }
    }

    fn compressed(message: &Pieces, encoding: Encoding) -> Result<Self> {
        let compressed = if encoding == Encoding::Gzip {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL));
            message.pieces.iter().try_for_each(|piece| encoder.write_all(piece))?;
            encoder.finish()?
        } else {
            let mut encoder = zstd::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
            message.pieces.iter().try_for_each(|piece| encoder.write_all(piece))?;
            encoder.finish()?
        };
        let compressed = Bytes::from(compressed);
        Ok(Self { encoding, length: compressed.len(), pieces: vec![compressed] })
    }

    /// Bytes that are sent.
    pub(super) fn sent(&self) -> usize {
        PREFIX + self.length
    }

    /// Everything that is sent, in order.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Bytes> {
        let mut prefix = BytesMut::with_capacity(PREFIX);
        prefix.put_u8(u8::from(self.encoding != Encoding::Identity));
        prefix.put_u32(u32::try_from(self.length).unwrap_or(u32::MAX));
        std::iter::once(prefix.freeze()).chain(self.pieces.clone())
    }
}

/// Part of a message.
#[derive(Debug, Default)]
struct Pieces {
    pieces: Vec<Bytes>,
    bytes: usize,
}

impl Pieces {
    fn add(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        self.pieces.push(piece);
    }

    fn append(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.pieces.extend(other.pieces);
    }
}

impl FromIterator<Bytes> for Pieces {
    fn from_iter<T: IntoIterator<Item = Bytes>>(pieces: T) -> Self {
        pieces.into_iter().fold(Self::default(), |mut all, piece| {
            all.add(piece);
            all
        })
    }
}

fn blob(digest: &[u8], content: impl IntoIterator<Item = Bytes>) -> Pieces {
    let mut blob = field(1, Pieces::from_iter([Bytes::copy_from_slice(digest)]));
    blob.append(field(2, Pieces::from_iter(content)));
    blob
}

/// A field with bytes.
fn field(number: u64, value: Pieces) -> Pieces {
    const BYTES: u64 = 2;
    let mut head = BytesMut::with_capacity(HEAD);
    prost::encoding::encode_varint(number << 3 | BYTES, &mut head);
    prost::encoding::encode_varint(value.bytes as u64, &mut head);
    let mut field = Pieces::from_iter([head.freeze()]);
    field.append(value);
    field
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    const BYTES: usize = 300 << 10;

    fn whole(message: &Message) -> Vec<u8> {
        let all = message.pieces().fold(Vec::new(), |mut all, piece| {
            all.extend_from_slice(&piece);
            all
        });
        assert_eq!(all.len(), message.sent());
        let mut plain = Vec::new();
        match message.encoding {
            Encoding::Identity => plain.extend_from_slice(&all[PREFIX..]),
            Encoding::Gzip => drop(flate2::read::GzDecoder::new(&all[PREFIX..]).read_to_end(&mut plain).unwrap()),
            Encoding::Zstd => plain = zstd::decode_all(&all[PREFIX..]).unwrap(),
        }
        plain
    }

    #[test]
    fn a_message_has_its_size_and_honest_digests_however_it_is_sent() {
        let layout = Bytes::from_static(b"a layout");
        let job = Job::new(&Sizes::of(BYTES), 7).with_layout(&layout);
        let plain = whole(&Message::resize(&job, false, Encoding::Identity).unwrap());
        assert!((BYTES - HEAD..=BYTES).contains(&plain.len()), "{}", plain.len());
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            assert!(whole(&Message::resize(&job, false, encoding).unwrap()) == plain, "{encoding:?}");
        }
        let message = pb::ResizeRequest::decode(&*plain).unwrap();
        let compilation = message.compilation.unwrap();
        assert_eq!((compilation.job_name.as_str(), compilation.job_id), ("large-7", 7));
        let (adl, layout_sent) = (compilation.adl.unwrap(), message.layout.unwrap());
        for blob in [&adl, &layout_sent] {
            let content = blob.content.as_ref().unwrap();
            assert_eq!(content.len(), BYTES / 3);
            assert_eq!(blob.sha256, Sha256::digest(content).to_vec());
        }
        assert!(layout_sent.content.unwrap().starts_with(&layout));
        let submission = pb::SubmitRequest::decode(&*whole(&Message::submit(&job))).unwrap();
        assert_eq!(submission.compilation.unwrap().adl.unwrap(), adl);
    }

    #[test]
    fn a_broken_layout_is_broken_and_nothing_else() {
        let job = Job::new(&Sizes::of(BYTES), 7).with_layout(&Bytes::from_static(b"a layout"));
        let broken = pb::ResizeRequest::decode(&*whole(&Message::resize(&job, true, Encoding::Identity).unwrap()));
        let layout = broken.unwrap().layout.unwrap();
        let content = layout.content.unwrap();
        assert!(content.len() == BYTES / 3 && content.iter().all(|byte| *byte == 0));
        assert_eq!(layout.sha256, Sha256::digest(&content).to_vec());
    }
}
