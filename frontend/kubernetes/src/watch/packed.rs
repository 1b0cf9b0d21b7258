//! JSON of the objects of a kind, compressed (rule call-6).
//!
//! An object is too small to be compressed well by itself, but the objects of a kind resemble each other: names of
//! fields, labels, owners and conditions are the same in all of them. So a mirror compresses each with a *dictionary*,
//! which is the JSON of some that it saw before. What is left of an object is about a tenth: digests, uids, times.
//!
//! What the first objects of a mirror look like is not what most of them will look like later: they have no status yet.
//! So the dictionary is made anew when there have been many times as many objects. What is packed has the dictionary
//! that it was packed with.
//!
//! Invariants:
//! * what is packed is unpacked as it was, whatever became of the mirror's dictionary since;
//! * it takes no more room than before: what does not get smaller stays as it is, and so does what comes before the
//!   first dictionary;
//! * memory for unpacking is that of the original, which the packed form tells, and a few contexts of bounded size.
//!
//! Knows: bytes. Must not know: that they are JSON of objects.

use parking_lot::Mutex;
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;
use zstd::zstd_safe::{self, CCtx, CDict, CompressionLevel, DCtx, DDict};

/// Bytes of a dictionary.
const DICTIONARY: usize = 16 * 1024;
/// The fastest of zstd's ordinary levels: with a dictionary the others gain nothing.
const LEVEL: CompressionLevel = 1;
/// A dictionary is made anew after so many times as many arrivals.
const RENEWED_AFTER: u64 = 16;
/// Contexts of each sort that wait for the next use, at most. More are made when more are used at the same time, which
/// more threads than processors seldom do.
const SPARE: usize = 4;
/// What is larger is unpacked into memory of its own.
const BUFFER: usize = 64 * 1024;

static SPARES: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(SPARE, |all| all.get().min(SPARE)));

static READERS: Pool<Reader> = Pool::new();
static WRITERS: Pool<CCtx<'static>> = Pool::new();

/// Packs the objects of one mirror.
#[derive(Default)]
pub(super) struct Packer(Mutex<Dictionaries>);

#[derive(Default)]
struct Dictionaries {
    arrivals: u64,
    /// The next dictionary begins after so many arrivals.
    renewed_after: u64,
    /// What there is of the next dictionary.
    begun: Vec<u8>,
    current: Option<Arc<Dictionary>>,
}

/// A dictionary in the form in which it is used for packing, and for unpacking.
struct Dictionary {
    packing: CDict<'static>,
    unpacking: Arc<DDict<'static>>,
}

/// Bytes that were packed. Cheap to clone.
#[derive(Clone)]
pub(super) struct Packed {
    bytes: Arc<[u8]>,
    /// `None`: they are as they were.
    dictionary: Option<Arc<DDict<'static>>>,
}

impl Packer {
    /// Packs an object that has arrived.
    pub(super) fn pack(&self, plain: &[u8]) -> Packed {
        let dictionary = self.0.lock().after(plain);
        let compressed = dictionary.and_then(|dictionary| dictionary.pack(plain));
        compressed.unwrap_or_else(|| Packed { bytes: plain.into(), dictionary: None })
    }
}

impl Dictionaries {
    /// The dictionary for an arrival, which may become a part of the next one.
    fn after(&mut self, plain: &[u8]) -> Option<Arc<Dictionary>> {
        let current = self.current.clone();
        self.arrivals = self.arrivals.saturating_add(1);
        if self.arrivals > self.renewed_after {
            let room = DICTIONARY.saturating_sub(self.begun.len());
            self.begun.extend(plain.iter().take(room));
            if self.begun.len() >= DICTIONARY {
                let complete = std::mem::take(&mut self.begun);
                self.current = Dictionary::new(&complete).map(Arc::new).or(self.current.take());
                self.renewed_after = self.arrivals.saturating_mul(RENEWED_AFTER);
            }
        }
        current
    }
}

impl Dictionary {
    /// `None` if zstd has no memory for it, or takes the content for something else than a text.
    fn new(content: &[u8]) -> Option<Self> {
        let unpacking = Arc::new(DDict::try_create(content)?);
        Some(Self { packing: CDict::try_create(content, LEVEL)?, unpacking })
    }

    /// `None` if it does not get smaller.
    fn pack(&self, plain: &[u8]) -> Option<Packed> {
        let mut context = WRITERS.take().or_else(CCtx::try_create)?;
        let mut compressed = Vec::with_capacity(zstd_safe::compress_bound(plain.len()));
        let result = context.compress_using_cdict(&mut compressed, plain, &self.packing);
        WRITERS.give(context);
        let is_smaller = result.is_ok() && compressed.len() < plain.len();
        is_smaller.then(|| Packed { bytes: compressed.into(), dictionary: Some(Arc::clone(&self.unpacking)) })
    }
}

impl Packed {
    /// Calls `read` with what was packed. `None` if it cannot be unpacked, which is not possible while there is memory.
    pub(super) fn unpacked<T>(&self, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let Some(dictionary) = &self.dictionary else { return Some(read(&self.bytes)) };
        let mut reader = READERS.take().or_else(Reader::new)?;
        let result = reader.unpack(&self.bytes, dictionary).map(read);
        if reader.buffer.capacity() <= BUFFER {
            READERS.give(reader);
        }
        result
    }

    /// How many bytes were packed. None is unpacked.
    pub(super) fn plain_len(&self) -> usize {
        let compressed = self.dictionary.as_ref().and_then(|_| plain_len(&self.bytes));
        compressed.unwrap_or(self.bytes.len())
    }

    /// Whether both were packed at once.
    pub(super) fn is_identical(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes)
    }

    /// Whether both are of the same bytes.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let same_dictionary = match (&self.dictionary, &other.dictionary) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        if same_dictionary {
            return self.bytes == other.bytes;
        }
        let is_same = self.unpacked(|one| other.unpacked(|other| one == other));
        is_same.flatten().unwrap_or(false)
    }
}

/// What unpacks, one after another.
struct Reader {
    context: DCtx<'static>,
    buffer: Vec<u8>,
}

impl Reader {
    fn new() -> Option<Self> {
        Some(Self { context: DCtx::try_create()?, buffer: Vec::new() })
    }

    fn unpack(&mut self, bytes: &[u8], dictionary: &DDict<'_>) -> Option<&[u8]> {
        self.buffer.clear();
        self.buffer.try_reserve(plain_len(bytes)?).ok()?;
        self.context.decompress_using_ddict(&mut self.buffer, bytes, dictionary).ok()?;
        Some(&self.buffer)
    }
}

/// How many bytes were compressed to these.
fn plain_len(compressed: &[u8]) -> Option<usize> {
    let size = zstd_safe::get_frame_content_size(compressed).ok()??;
    usize::try_from(size).ok()
}

/// Contexts that are not in use: they are large, and take a while to make.
struct Pool<T>(Mutex<Vec<T>>);

impl<T> Pool<T> {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn take(&self) -> Option<T> {
        self.0.lock().pop()
    }

    fn give(&self, spare: T) {
        let mut spares = self.0.lock();
        if spares.len() < *SPARES {
            spares.push(spare);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn object(number: usize) -> Vec<u8> {
        let word = |part: usize| (number * 7919 + part * 104_729).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let status = if number.is_multiple_of(2) { r#""phase":"Running","ready":true"# } else { "" };
        let text = format!(
            r#"{{"metadata":{{"name":"object-{number}","uid":"{:x}{:x}","labels":{{"app":"streams","svc":"pe"}},
            "ownerReferences":[{{"apiVersion":"streams.ibm.com/v1","kind":"Job","name":"flow","controller":true}}]}},
            "status":{{{status}}}}}"#,
            word(0),
            word(1),
        );
        text.into_bytes()
    }

    fn unpacked(packed: &Packed) -> Vec<u8> {
        packed.unpacked(<[u8]>::to_vec).unwrap()
    }

    #[test]
    fn objects_that_resemble_each_other_take_a_fraction_of_their_size() {
        let packer = Packer::default();
        let objects: Vec<_> = (0..2_000).map(object).collect();
        let packed: Vec<_> = objects.iter().map(|object| packer.pack(object)).collect();
        assert!(packed.iter().map(unpacked).eq(objects.iter().cloned()));
        assert!(packed.iter().map(Packed::plain_len).eq(objects.iter().map(Vec::len)));
        let bytes = |packed: &[Packed]| packed.iter().map(|packed| packed.bytes.len()).sum::<usize>();
        let (plain, packed) = (objects.iter().skip(1_000).map(Vec::len).sum::<usize>(), bytes(&packed[1_000..]));
        assert!(packed * 4 < plain, "{packed} of {plain}");
    }

    #[test]
    fn a_dictionary_is_made_anew_after_many_times_as_many_arrivals() {
        let packer = Packer::default();
        let mut dictionaries = Vec::new();
        for number in 0..20_000 {
            if let Some(dictionary) = packer.pack(&object(number)).dictionary
                && dictionaries.last().is_none_or(|(_, last)| !Arc::ptr_eq(last, &dictionary))
            {
                dictionaries.push((number, dictionary));
            }
        }
        let after: Vec<usize> = dictionaries.iter().map(|(number, _)| *number).collect();
        let [first, second, third] = after[..] else { panic!("{after:?}") };
        assert!(first < 100 && second > 16 * first && third > 16 * second, "{after:?}");
    }

    #[test]
    fn what_does_not_get_smaller_stays_as_it_is() {
        let packer = Packer::default();
        for number in 0..200 {
            packer.pack(&object(number));
        }
        for plain in [&b""[..], b"7", b"null"] {
            let packed = packer.pack(plain);
            assert_eq!((&*packed.bytes, packed.dictionary.is_some()), (plain, false));
        }
    }

    #[test]
    fn the_same_bytes_are_the_same_whatever_they_were_packed_with() {
        let packers = [Packer::default(), Packer::default()];
        let early = packers[0].pack(&object(1));
        for number in 0..200 {
            packers[0].pack(&object(number));
            packers[1].pack(&object(number + 1_000));
        }
        let [one, other] = [&packers[0], &packers[1]].map(|packer| packer.pack(&object(1)));
        assert!(early.dictionary.is_none() && one.dictionary.is_some() && other.dictionary.is_some());
        let changed = packers[1].pack(&object(2));
        let all = [early, one, other];
        for (one, other) in all.iter().flat_map(|one| all.iter().map(move |other| (one, other))) {
            assert!(one.is_same(other));
            assert!(!one.is_same(&changed) && !changed.is_same(one));
        }
    }

    #[test]
    fn large_objects_leave_no_large_buffers_behind() {
        let packer = Packer::default();
        for number in 0..200 {
            packer.pack(&object(number));
        }
        let large = object(1).repeat(10_000);
        let packed = packer.pack(&large);
        assert!(packed.bytes.len() * 10 < large.len());
        assert_eq!(unpacked(&packed), large);
        let spare = READERS.0.lock();
        assert!(spare.iter().all(|reader| reader.buffer.capacity() <= BUFFER));
    }

    proptest! {
        /// With any dictionary: whatever arrived before is one.
        #[test]
        fn what_is_packed_is_unpacked_as_it_was(
            arrivals in vec(prop_oneof![vec(any::<u8>(), 0..3_000), any::<usize>().prop_map(|n| object(n % 64))], 1..120),
        ) {
            let packer = Packer::default();
            let packed: Vec<_> = arrivals.iter().map(|plain| packer.pack(plain)).collect();
            for (packed, plain) in packed.iter().zip(&arrivals) {
                prop_assert!(packed.bytes.len() <= plain.len());
                prop_assert_eq!(&unpacked(packed), plain);
            }
        }

        /// A dictionary of zstd's own form, which no object has, is a dictionary or none.
        #[test]
        fn a_dictionary_may_look_like_one_of_zstd(content in vec(any::<u8>(), 0..2_000), plain in vec(any::<u8>(), 0..2_000)) {
            let content = [&[0x37, 0xa4, 0x30, 0xec][..], &content].concat();
            if let Some(packed) = Dictionary::new(&content).and_then(|dictionary| dictionary.pack(&plain)) {
                prop_assert_eq!(unpacked(&packed), plain);
            }
        }
    }
}
