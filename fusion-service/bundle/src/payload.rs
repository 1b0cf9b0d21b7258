//! The tar with the application (rule bundle-3), streamed in search of the ADL (rule bundle-4).
//!
//! Headers are read one by one rather than through the convenience of the tar crate, which would read a long name into
//! memory whatever its size. Links are entries like others: not files, so never the ADL, and never followed.

use crate::container::payload_error;
use crate::name::{Unsafe, normalized, shown};
use crate::{BundleInfo, Error, Limits, PAYLOAD};
use sha2::{Digest, Sha224};
use std::io::{self, Read};
use tar::{Archive, Entry, PaxExtensions};

/// Octets of a name or link in a record of its own.
const MAXIMUM_NAME: u64 = 64 << 10;

#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) adl: String,
    /// The SHA-224 of the whole tar, if the caller wants it compared.
    pub(crate) sha224: Option<String>,
}

/// Finds the ADL; reads on to the end only if the tar is to be hashed.
pub(crate) fn find_adl(tar: &mut dyn Read, info: &BundleInfo, limits: &Limits, hash: bool) -> Result<Found, Error> {
    let mut archive = Archive::new(Hashing { inner: tar, hasher: hash.then(Sha224::new) });
    let octets = search(&mut archive, info, limits)?.ok_or_else(|| Error::NoAdl(shown(info.adl_path().as_bytes())))?;
    let mut rest = archive.into_inner();
    let sha224 = if hash {
        io::copy(&mut rest, &mut io::sink()).map_err(|error| payload_error(&error))?;
        rest.hasher.map(|hasher| hex::encode(hasher.finalize()))
    } else {
        None
    };
    let adl = String::from_utf8(octets)
        .map_err(|error| Error::Adl(format!("not UTF-8 at offset {}", error.utf8_error().valid_up_to())))?;
    Ok(Found { adl, sha224 })
}

fn search(archive: &mut Archive<Hashing<'_>>, info: &BundleInfo, limits: &Limits) -> Result<Option<Vec<u8>>, Error> {
    let wanted = info.adl_path().into_bytes();
    let suffix = format!("/{}", info.adl_file).into_bytes();
    let mut fallback = None;
    let mut extension = Extension::default();
    let entries = archive.entries().map_err(|error| payload_error(&error))?.raw(true);
    for (count, entry) in (1..).zip(entries) {
        if count > limits.entries {
            return Err(Error::limit(PAYLOAD, limits.entries, "entries"));
        }
        let mut entry = entry.map_err(|error| payload_error(&error))?;
        if extension.take_in(&mut entry)? {
            continue;
        }
        let name = std::mem::take(&mut extension).name.unwrap_or_else(|| entry.path_bytes().into_owned());
        let name = normalized(&name).map_err(|Unsafe(name)| Error::UnsafeName { archive: PAYLOAD, name })?;
        // Old archives mark a folder by its name only, which then ends with a slash, and give it no content.
        if !entry.header().entry_type().is_file() {
            continue;
        }
        if name == wanted {
            // Two of them are not in memory at the same time.
            drop(fallback.take());
            return content(&mut entry, &name, limits).map(Some);
        }
        if fallback.is_none() && (name.ends_with(&suffix) || name == suffix[1..]) {
            fallback = Some(content(&mut entry, &name, limits)?);
        }
    }
    Ok(fallback)
}

fn content<R: Read>(entry: &mut Entry<'_, R>, name: &[u8], limits: &Limits) -> Result<Vec<u8>, Error> {
    if entry.size() > limits.adl {
        return Err(Error::limit(shown(name), limits.adl, "octets"));
    }
    whole(entry, name)
}

/// All octets of an entry, whose size was checked.
fn whole<R: Read>(entry: &mut Entry<'_, R>, name: &[u8]) -> Result<Vec<u8>, Error> {
    let size = entry.size();
    // Its size is known, so it is not moved while it grows, which takes more memory.
    let mut octets = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    entry.read_to_end(&mut octets).map_err(|error| payload_error(&error))?;
    if octets.len() as u64 != size {
        return Err(Error::damaged(&shown(name), format_args!("{} of {size} octets", octets.len())));
    }
    Ok(octets)
}

/// What records before an entry say of it.
#[derive(Default)]
struct Extension {
    name: Option<Vec<u8>>,
}

impl Extension {
    /// Whether the entry is such a record.
    fn take_in<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Result<bool, Error> {
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() {
            let mut name = record(entry)?;
            name.truncate(name.iter().position(|octet| *octet == 0).unwrap_or(name.len()));
            self.name = Some(name);
        } else if kind.is_pax_local_extensions() {
            let pairs = record(entry)?;
            for pair in PaxExtensions::new(&pairs) {
                let pair = pair.map_err(|error| Error::damaged(PAYLOAD, error))?;
                match pair.key_bytes() {
                    b"path" => self.name = Some(pair.value_bytes().to_owned()),
                    b"size" => return Err(unsupported("a file of more than 8 GiB")),
                    key if key.starts_with(b"GNU.sparse.") => return Err(unsupported("a sparse file")),
                    _ => {}
                }
            }
        } else if kind.is_gnu_sparse() {
            return Err(unsupported("a sparse file"));
        } else {
            return Ok(kind.is_gnu_longlink() || kind.is_pax_global_extensions());
        }
        Ok(true)
    }
}

fn unsupported(reason: &str) -> Error {
    Error::Unsupported { entry: PAYLOAD.to_owned(), reason: reason.to_owned() }
}

fn record<R: Read>(entry: &mut Entry<'_, R>) -> Result<Vec<u8>, Error> {
    if entry.size() > MAXIMUM_NAME {
        return Err(Error::limit(format!("a name in {PAYLOAD}"), MAXIMUM_NAME, "octets"));
    }
    whole(entry, PAYLOAD.as_bytes())
}

/// A reader that hashes what it reads.
struct Hashing<'t> {
    inner: &'t mut dyn Read,
    hasher: Option<Sha224>,
}

impl Read for Hashing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if let (Some(hasher), Some(octets)) = (&mut self.hasher, buffer.get(..read)) {
            hasher.update(octets);
        }
        Ok(read)
    }
}
