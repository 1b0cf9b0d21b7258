//! The ZIP archive around everything (rule bundle-1).
//!
//! Read through its directory, entry by entry, without an index in memory. Of the entries only two matter; the names of
//! the others are checked all the same.

use crate::name::{Unsafe, normalized};
use crate::{Error, INFO, Limits, PAYLOAD};
use std::io::{self, Read, Seek, SeekFrom};
use zip::ZipReadOptions;
use zip::read::{ArchiveOffset, Config, OwnedZipFileEntry};
use zip::result::ZipError;
use zip::unstable::read::ZipIterable;

/// Octets that a tar may have, however small it is compressed (rule bundle-6).
const RATIO_FREE: u64 = 16 << 20;

pub(crate) struct Container<R> {
    reader: R,
    /// Octets of the bundle.
    size: u64,
    info: OwnedZipFileEntry,
    payload: OwnedZipFileEntry,
}

impl<R: Read + Seek> Container<R> {
    /// Reads the directory.
    pub(crate) fn open(mut reader: R, limits: &Limits) -> Result<Self, Error> {
        let size = reader.seek(SeekFrom::End(0)).map_err(Error::Io)?;
        if size > limits.bundle {
            return Err(Error::limit("the bundle", limits.bundle, "octets"));
        }
        let (mut info, mut payload) = (None, None);
        // A bundle is an archive without anything before it.
        let config = Config { archive_offset: ArchiveOffset::Known(0) };
        let mut directory = ZipIterable::try_new(&mut reader, config).map_err(|error| container(&error))?;
        if directory.len() as u64 > limits.entries {
            return Err(Error::limit("the directory of the bundle", limits.entries, "entries"));
        }
        for entry in directory.files().map_err(|error| container(&error))? {
            let entry = entry.map_err(|error| container(&error))?;
            let name = normalized(entry.name_raw())
                .map_err(|Unsafe(name)| Error::UnsafeName { archive: "the bundle", name })?;
            let (known, place) = match name.as_slice() {
                name if name == INFO.as_bytes() => (INFO, &mut info),
                name if name == PAYLOAD.as_bytes() => (PAYLOAD, &mut payload),
                _ => continue,
            };
            if place.replace(OwnedZipFileEntry::from(entry)).is_some() {
                return Err(Error::Duplicate(known));
            }
        }
        let info = info.ok_or(Error::Missing(INFO))?;
        let payload = payload.ok_or(Error::Missing(PAYLOAD))?;
        Ok(Self { reader, size, info, payload })
    }

    /// The octets of the description.
    pub(crate) fn info(&mut self, limits: &Limits) -> Result<Vec<u8>, Error> {
        let mut octets = Vec::new();
        let entry = open(&mut self.reader, &self.info, INFO, limits.info)?;
        let read = entry.take(limits.info + 1).read_to_end(&mut octets);
        read.map_err(|error| Error::damaged(INFO, error))?;
        if octets.len() as u64 > limits.info {
            return Err(Error::limit(INFO, limits.info, "octets"));
        }
        Ok(octets)
    }

    /// Streams the tar, which fails where it exceeds the limits.
    pub(crate) fn payload<T>(
        &mut self,
        limits: &Limits,
        read: impl FnOnce(&mut dyn Read) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // The directory may say anything, but no more is read than there is.
        let compressed = self.payload.compressed_size().min(self.size);
        let by_ratio = compressed.saturating_mul(limits.ratio).saturating_add(RATIO_FREE);
        let limit = limits.payload.min(by_ratio);
        let entry = open(&mut self.reader, &self.payload, PAYLOAD, limit)?;
        read(&mut Bounded { inner: entry, left: limit, limit })
    }
}

fn open<'a, R: Read + Seek>(
    reader: &'a mut R,
    entry: &'a OwnedZipFileEntry,
    name: &'static str,
    limit: u64,
) -> Result<impl Read + use<'a, R>, Error> {
    if entry.size() > limit {
        return Err(Error::limit(name, limit, "octets"));
    }
    entry.as_ref().with_reader(reader, ZipReadOptions::new()).map_err(|error| match error {
        ZipError::Io(error) => Error::damaged(name, error),
        ZipError::UnsupportedArchive(reason) => {
            Error::Unsupported { entry: name.to_owned(), reason: reason.to_owned() }
        }
        ZipError::CompressionMethodNotSupported(method) => {
            Error::Unsupported { entry: name.to_owned(), reason: format!("compression method {method}") }
        }
        other => Error::damaged(name, other),
    })
}

fn container(error: &ZipError) -> Error {
    match error {
        ZipError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Error::Container("the archive is cut off".to_owned())
        }
        ZipError::Io(error) => Error::Container(error.to_string()),
        ZipError::InvalidArchive(reason) => Error::Container(reason.to_string()),
        other => Error::Container(other.to_string()),
    }
}

/// A reader that fails behind a number of octets.
struct Bounded<R> {
    inner: R,
    left: u64,
    limit: u64,
}

/// The tar is larger than allowed; travels in an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("more than {0} octets")]
struct Exceeded(u64);

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => return Err(io::Error::other(Exceeded(self.limit))),
        }
        Ok(read)
    }
}

/// What an error while streaming the tar means.
pub(crate) fn payload_error(error: &io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Exceeded>()) {
        Some(Exceeded(limit)) => Error::limit(PAYLOAD, *limit, "octets"),
        None => Error::damaged(PAYLOAD, error),
    }
}
