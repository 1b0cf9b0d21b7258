//! Memory that callers take, for what they send and for what they are answered (rules pe-api-7 and pe-api-11).
//!
//! Knows: who takes it, bytes. Must not know: what the bytes say.
//!
//! Invariant: a namespace, and an address, leave memory to others.

use super::callers::{Asker, Tenant};
use super::refusal::Refusal;
use axum::body::Bytes;
use std::net::IpAddr;
use streams_places::{Full, Place, Places};

/// How much there is of some memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// What takes it, for people.
    pub(super) what: &'static str,
    /// Bytes for which a place is taken, and for each of the further ones.
    pub(super) block: usize,
    /// Blocks in all; of one namespace a quarter at most.
    pub(super) blocks: usize,
    /// Blocks of one address.
    pub(super) blocks_of_address: usize,
}

/// Some memory. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Memory {
    places: Places<Tenant, IpAddr>,
    bounds: Bounds,
}

/// What is taken of it, until this is dropped.
#[must_use = "memory is counted for as long as this lives"]
pub(super) struct Share {
    memory: Memory,
    asker: Asker,
    bytes: usize,
    blocks: Vec<Place<Tenant, IpAddr>>,
}

impl Memory {
    /// Nothing is taken.
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { places: Places::new(bounds.blocks, bounds.blocks_of_address), bounds }
    }

    /// Nothing yet, for who asks.
    pub(super) fn share(&self, asker: Asker) -> Share {
        Share { memory: self.clone(), asker, bytes: 0, blocks: Vec::new() }
    }

    /// How many bytes are taken, in whole blocks.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.places.taken() * self.bounds.block
    }
}

impl Share {
    /// So many bytes more.
    ///
    /// # Errors
    /// There is no memory for them now.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), Refusal> {
        let Memory { places, bounds } = &self.memory;
        self.bytes = self.bytes.saturating_add(bytes);
        while self.blocks.len() < self.bytes.div_ceil(bounds.block) {
            let block = places.take(&self.asker.namespace, &self.asker.address);
            let words = |full| {
                let (what, whose) = (bounds.what, whose(full));
                Refusal::Later(format!("the {what} {whose} take too much memory now, try again"))
            };
            self.blocks.push(block.map_err(words)?);
        }
        Ok(())
    }
}

/// Who has taken what there is.
pub(super) fn whose(full: Full) -> &'static str {
    match full {
        Full::InAll(_) => "of all callers",
        Full::OfGroup(_) => "of callers of this namespace",
        Full::OfOne(_) | Full::OfUser(_) => "of this address",
    }
}

/// Bytes of an answer that hold something until they were written to the caller, or are dropped with the connection.
pub(super) fn holding(bytes: impl Into<Box<[u8]>>, held: impl Send + Sync + 'static) -> Bytes {
    struct Holding<T> {
        bytes: Box<[u8]>,
        _held: T,
    }
    impl<T> AsRef<[u8]> for Holding<T> {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    Bytes::from_owner(Holding { bytes: bytes.into(), _held: held })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const BOUNDS: Bounds = Bounds { what: "answers", block: 10, blocks: 16, blocks_of_address: 3 };

    fn asker(namespace: &str, last: u8) -> Asker {
        Asker { namespace: Some(Arc::from(namespace)), address: [10, 0, 0, last].into() }
    }

    #[test]
    fn memory_is_taken_in_whole_blocks_and_what_is_full_is_said() {
        let memory = Memory::new(BOUNDS);
        let mut share = memory.share(asker("n", 1));
        for (more, taken) in [(0, 0), (1, 10), (9, 10), (1, 20), (10, 30)] {
            share.add(more).unwrap();
            assert_eq!(memory.taken(), taken);
        }
        let mut others = [memory.share(asker("n", 1)), memory.share(asker("n", 2)), memory.share(asker("m", 1))];
        let said = others.each_mut().map(|share| share.add(11).err().map(|refusal| refusal.to_string()));
        let said = said.map(Option::unwrap_or_default);
        let words = |whose| format!("the answers of {whose} take too much memory now, try again");
        assert_eq!(said, [words("this address"), words("callers of this namespace"), String::new()]);
        drop((share, others));
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn bytes_hold_what_they_were_given_until_the_last_of_them_is_gone() {
        let memory = Memory::new(BOUNDS);
        let mut share = memory.share(asker("n", 1));
        share.add(3).unwrap();
        let mut bytes = holding(*b"abc", share);
        let rest = bytes.split_off(1);
        drop(bytes);
        assert_eq!((&*rest, memory.taken()), (&b"bc"[..], 10));
        drop(rest);
        assert_eq!(memory.taken(), 0);
    }
}
