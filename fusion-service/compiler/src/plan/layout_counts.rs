//! Tells from the bytes of a layout's message what it is about and how much it has, before anything is made of it
//! (rule layout-3).
//!
//! A message may be small as bytes and large in memory: a splitter takes two bytes there and twenty here, a number one
//! and eight. So entries are counted first, and compared with what a job within the limits can have.
//!
//! Knows: the wire format, the numbers of the fields. Must not know: what the fields mean together.
//!
//! Invariant: what is skipped here is what the decoder skips, so both see the same fields.

use super::layout::{Digest, LayoutError};
use crate::budget::Limits;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// PE ports that a layout may have. Each takes several hundred bytes of AADL, which is limited to a few gigabytes.
pub(super) const MOST_PORTS: u32 = 10_000_000;

/// What a message is about, and how many entries each of its fields has.
pub(super) struct Outline {
    /// SHA-256 of the ADL.
    pub(super) adl: Digest,
    /// Digest of the request.
    pub(super) request: Digest,
    /// By number of the field.
    entries: [u64; FIELDS],
    /// Numbers in splitter trees.
    tree_numbers: u64,
}

const ADL: u32 = 1;
const SPLITTERS: u32 = 10;
const TREES: u32 = 11;
const POOLS: u32 = 12;
const REQUEST: u32 = 22;
/// One more than the last number of a field.
const FIELDS: usize = 23;

impl Outline {
    /// Reads the outline. `None`: this is no message, or its digests are no digests.
    pub(super) fn of(mut message: &[u8]) -> Option<Self> {
        let (mut adl, mut request): (&[u8], &[u8]) = (&[], &[]);
        let (mut entries, mut tree_numbers) = ([0_u64; FIELDS], 0_u64);
        while !message.is_empty() {
            let (field, kind) = decode_key(&mut message).ok()?;
            let mut added = 1;
            if kind == WireType::LengthDelimited {
                let length = usize::try_from(decode_varint(&mut message).ok()?).ok()?;
                let (content, rest) = message.split_at_checked(length)?;
                message = rest;
                match field {
                    // Of a repeated field the last counts.
                    ADL => adl = content,
                    REQUEST => request = content,
                    TREES => tree_numbers += numbers(content),
                    SPLITTERS | POOLS => {}
                    _ => added = numbers(content),
                }
            } else {
                skip_field(kind, field, &mut message, DecodeContext::default()).ok()?;
            }
            if let Some(entries) = entries.get_mut(field as usize) {
                *entries += added;
            }
        }
        Some(Self { adl: adl.try_into().ok()?, request: request.try_into().ok()?, entries, tree_numbers })
    }

    /// Refuses what no job within the limits has.
    pub(super) fn check(&self, limits: &Limits) -> Result<(), LayoutError> {
        // A region or a host pool of the ADL is not shorter. Copies of pools are made for operators.
        let rows = (limits.adl_bytes / 32).saturating_add(limits.operators);
        // The operator and port of a tree, its length, and the keys of all three.
        let in_trees = limits.splitters().saturating_mul(7);
        let bounds: [(&[usize], u64, &'static str); 8] = [
            (&[3, 4], rows, "it has too many regions"),
            (&[5, 6, 8, 9], limits.operators, "it has too many operators"),
            (&[7], limits.regions_around_operators(), "too many regions are around its operators"),
            (&[10, 11], limits.splitters(), "it has too many splitters"),
            (&[12], rows, "it has too many host pools"),
            (&[13, 16, 17, 19], limits.operators, "it has too many PEs"),
            (&[18], 4 * u64::from(MOST_PORTS), "it has too many input ports"),
            (&[20], 6 * u64::from(MOST_PORTS), "it has too many output ports"),
        ];
        for (fields, most, message) in bounds {
            if fields.iter().filter_map(|field| self.entries.get(*field)).any(|entries| *entries > most) {
                return Err(LayoutError::Damaged(message));
            }
        }
        if self.tree_numbers > in_trees {
            return Err(LayoutError::Damaged("it has too many splitters"));
        }
        Ok(())
    }
}

/// Numbers that are packed into these bytes: each ends with a byte that has no continuation bit.
fn numbers(packed: &[u8]) -> u64 {
    packed.iter().filter(|byte| **byte < 0x80).count() as u64
}
