//! Layouts as bytes: `SPLL`, a version, then a compressed message (rule layout-3).
//!
//! The message stores numbers by column, as differences where neighbours are alike, and stores PE ports with
//! consecutive ids as one entry. So the layout of a job with millions of ports stays small. The same layout always
//! gives the same bytes. Reading trusts no length or number in the bytes: [`super::layout_counts`] compares them with
//! the limits first.
//!
//! Knows: layouts, bounds of their numbers. Must not know: what a layout is used for.

use super::layout::{
    Digest, Layout, LayoutElement, LayoutError, LayoutInputPort, LayoutOutputPort, RestoreError, SplitterTree, VERSION,
};
use super::layout_counts::{MOST_PORTS, Outline};
use crate::budget::Budget;
use crate::topology::{Identity, NumberedSplitter, Numbering, Via};
use prost::Message as _;
use std::io::Read as _;

const MAGIC: &[u8; 4] = b"SPLL";
/// Good compression at little cost.
const LEVEL: i32 = 3;
/// Unpacked size that is accepted. The largest job that is supported needs less.
const MOST: u64 = 96 << 20;
/// Logarithm of the window of the compression that is accepted: 8 MiB. [`LEVEL`] needs less.
const WINDOW: u32 = 23;

/// Version 1. Fields are only added.
#[derive(Clone, PartialEq, prost::Message)]
struct Version1 {
    #[prost(bytes = "vec", tag = "1")]
    adl: Vec<u8>,
    #[prost(string, tag = "2")]
    compiler: String,
    #[prost(uint64, repeated, tag = "3")]
    region: Vec<u64>,
    #[prost(uint32, repeated, tag = "4")]
    width: Vec<u32>,
    /// Operators, sorted by identity. Differences to the operator before.
    #[prost(sint64, repeated, tag = "5")]
    logical_index: Vec<i64>,
    #[prost(uint32, repeated, tag = "6")]
    depth: Vec<u32>,
    /// Channels of all operators; differences to the same level of the operator before.
    #[prost(sint64, repeated, tag = "7")]
    channel: Vec<i64>,
    #[prost(sint64, repeated, tag = "8")]
    index: Vec<i64>,
    /// Position of the operator's PE; differences.
    #[prost(sint64, repeated, tag = "9")]
    element: Vec<i64>,
    #[prost(message, repeated, tag = "10")]
    splitters: Vec<Splitter1>,
    #[prost(message, repeated, tag = "11")]
    trees: Vec<Tree1>,
    #[prost(message, repeated, tag = "12")]
    pools: Vec<Pool1>,
    /// PEs, ascending id; differences.
    #[prost(uint64, repeated, tag = "13")]
    id: Vec<u64>,
    #[prost(bytes = "vec", tag = "14")]
    content_ids: Vec<u8>,
    #[prost(bytes = "vec", tag = "15")]
    runtime_ids: Vec<u8>,
    #[prost(uint64, repeated, tag = "16")]
    bytes: Vec<u64>,
    /// Runs of input ports: how many per PE; operator index, port, number of consecutive ports, first id.
    #[prost(uint32, repeated, tag = "17")]
    inputs: Vec<u32>,
    #[prost(uint32, repeated, tag = "18")]
    input: Vec<u32>,
    /// Runs of output ports: how many per PE; operator index, port, splitter + 1 or 0, first channel, number of
    /// consecutive channels, first id.
    #[prost(uint32, repeated, tag = "19")]
    outputs: Vec<u32>,
    #[prost(uint32, repeated, tag = "20")]
    output: Vec<u32>,
    #[prost(uint32, optional, tag = "21")]
    automatic_count: Option<u32>,
    #[prost(bytes = "vec", tag = "22")]
    request: Vec<u8>,
}

/// A splitter; operators by position in the sorted list.
#[derive(Clone, PartialEq, prost::Message)]
struct Splitter1 {
    #[prost(uint32, tag = "1")]
    source: u32,
    #[prost(uint32, tag = "2")]
    source_port: u32,
    #[prost(uint32, tag = "3")]
    target: u32,
    #[prost(uint32, tag = "4")]
    target_port: u32,
    #[prost(uint32, tag = "5")]
    index: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Tree1 {
    #[prost(uint32, tag = "1")]
    operator: u32,
    #[prost(uint32, tag = "2")]
    port: u32,
    #[prost(uint32, repeated, tag = "3")]
    indexes: Vec<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Pool1 {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    index: u64,
}

impl Layout {
    /// Writes the layout as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let message = self.to_message().encode_to_vec();
        // Mostly digests, which cannot be compressed.
        let mut bytes = Vec::with_capacity(message.len());
        bytes.extend_from_slice(MAGIC);
        bytes.push(VERSION);
        // Compressing memory to memory cannot fail; if it did, the result would be refused when it is read.
        compress(&message, bytes).unwrap_or_default()
    }

    /// Reads a layout from bytes.
    ///
    /// # Errors
    ///
    /// The bytes are no layout of a version that this compiler reads, have more than a job within the limits, or break
    /// an invariant; or the budget ends.
    pub fn from_bytes(bytes: &[u8], budget: &Budget) -> Result<Self, RestoreError> {
        PackedLayout::open(bytes, budget)?.read(budget)
    }

    fn to_message(&self) -> Version1 {
        let (operators, elements) = (self.numbering.operators.len(), self.elements.len());
        let mut message = Version1 {
            logical_index: Vec::with_capacity(operators),
            depth: Vec::with_capacity(operators),
            channel: Vec::with_capacity(operators),
            index: Vec::with_capacity(operators),
            element: Vec::with_capacity(operators),
            id: Vec::with_capacity(elements),
            content_ids: Vec::with_capacity(elements * size_of::<Digest>()),
            runtime_ids: Vec::with_capacity(elements * size_of::<Digest>()),
            bytes: Vec::with_capacity(elements),
            adl: self.adl.to_vec(),
            request: self.request.to_vec(),
            compiler: self.compiler.clone(),
            automatic_count: self.automatic_count,
            region: self.widths.iter().map(|(region, _)| *region).collect(),
            width: self.widths.iter().map(|(_, width)| *width).collect(),
            ..Version1::default()
        };
        let mut element_of: Vec<(u32, u64)> = Vec::with_capacity(operators);
        for (position, element) in (0..).zip(&self.elements) {
            element_of.extend(element.operators.iter().map(|&index| (index, position)));
        }
        element_of.sort_unstable();
        let element_of = |operator: u32| {
            let found = element_of.binary_search_by_key(&operator, |(index, _)| *index);
            found.ok().and_then(|found| element_of.get(found)).map_or(0, |(_, position)| *position)
        };
        let mut logical = DeltaEncoder::default();
        let mut index = DeltaEncoder::default();
        let mut element = DeltaEncoder::default();
        let mut levels: Vec<DeltaEncoder> = Vec::new();
        for (identity, number) in &self.numbering.operators {
            message.logical_index.push(logical.to(identity.logical_index));
            message.depth.push(identity.channels.len() as u32);
            levels.resize(levels.len().max(identity.channels.len()), DeltaEncoder::default());
            message.channel.extend(identity.channels.iter().zip(&mut levels).map(|(c, level)| level.to(u64::from(*c))));
            message.index.push(index.to(u64::from(*number)));
            message.element.push(element.to(element_of(*number)));
        }
        message.splitters = (self.numbering.splitters.iter())
            .map(|&NumberedSplitter { source, source_port, target, target_port, index }| Splitter1 {
                source,
                source_port,
                target,
                target_port,
                index,
            })
            .collect();
        message.trees = (self.splitter_trees.iter())
            .map(|t| Tree1 { operator: t.operator, port: t.port, indexes: t.indexes.clone() })
            .collect();
        message.pools = (self.numbering.host_pools.iter())
            .map(|(name, index)| Pool1 { name: name.clone(), index: *index })
            .collect();
        let mut last = 0;
        for element in &self.elements {
            message.id.push(element.id - last);
            last = element.id;
            message.content_ids.extend_from_slice(&element.content_id);
            message.runtime_ids.extend_from_slice(&element.runtime_id);
            message.bytes.push(element.bytes);
            message.inputs.push(input_runs(&element.inputs, &mut message.input));
            message.outputs.push(output_runs(&element.outputs, &mut message.output));
        }
        message
    }
}

/// A layout of which only the outline has been read. All that it has is within the limits.
pub(super) struct PackedLayout {
    message: Vec<u8>,
    outline: Outline,
}

impl PackedLayout {
    /// Unpacks the message and reads its outline.
    ///
    /// # Errors
    ///
    /// The bytes are no layout of a version that this compiler reads, or have more than a job within the limits; or the
    /// budget ends.
    pub(super) fn open(bytes: &[u8], budget: &Budget) -> Result<Self, RestoreError> {
        let damaged = LayoutError::Damaged;
        let rest = bytes.strip_prefix(MAGIC).ok_or(damaged("it does not begin like one"))?;
        let (&version, packed) = rest.split_first().ok_or(damaged("it ends early"))?;
        if version != VERSION {
            return Err(LayoutError::Version(version).into());
        }
        let mut decoder = zstd::Decoder::new(packed).map_err(|_| damaged("it cannot be unpacked"))?;
        decoder.window_log_max(WINDOW).map_err(|_| damaged("it cannot be unpacked"))?;
        let mut message = Vec::new();
        decoder.take(MOST + 1).read_to_end(&mut message).map_err(|_| damaged("it cannot be unpacked"))?;
        if message.len() as u64 > MOST {
            return Err(damaged("it is too large").into());
        }
        budget.check()?;
        let outline = Outline::of(&message).ok_or(damaged("it is no message"))?;
        outline.check(&budget.limits)?;
        Ok(Self { message, outline })
    }

    /// SHA-256 of the ADL that it was made from.
    pub(super) fn adl(&self) -> Digest {
        self.outline.adl
    }

    /// Digest of the request that it was made for.
    pub(super) fn request(&self) -> Digest {
        self.outline.request
    }

    /// Reads the whole layout.
    ///
    /// # Errors
    ///
    /// It breaks an invariant, or the budget ends.
    pub(super) fn read(self, budget: &Budget) -> Result<Layout, RestoreError> {
        let damaged = LayoutError::Damaged;
        budget.check()?;
        let decoded = Version1::decode(self.message.as_slice()).map_err(|_| damaged("it is no message"))?;
        drop(self.message);
        budget.check()?;
        let depth = budget.limits.depth;
        let layout = from_message(decoded, depth).ok_or(damaged("its parts do not fit together"))?;
        layout.verify(budget)?;
        Ok(layout)
    }
}

/// Appends the message, compressed.
fn compress(message: &[u8], bytes: Vec<u8>) -> std::io::Result<Vec<u8>> {
    use std::io::Write as _;
    let mut encoder = zstd::Encoder::new(bytes, LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.write_all(message)?;
    encoder.finish()
}

/// Appends ports of one operator with consecutive numbers and ids as one run each. Gives the number of runs.
fn input_runs(ports: &[LayoutInputPort], runs: &mut Vec<u32>) -> u32 {
    let mut number = 0;
    let mut last: Option<[u32; 4]> = None;
    for port in ports {
        match &mut last {
            Some([operator, first, count, id])
                if (*operator, *first + *count, *id + *count) == (port.operator, port.port, port.id) =>
            {
                *count += 1;
            }
            _ => {
                number += 1;
                runs.extend(last.replace([port.operator, port.port, 1, port.id]).into_iter().flatten());
            }
        }
    }
    runs.extend(last.into_iter().flatten());
    number
}

/// Appends channels of one splitter with consecutive numbers and ids as one run each. Gives the number of runs.
fn output_runs(ports: &[LayoutOutputPort], runs: &mut Vec<u32>) -> u32 {
    let mut number = 0;
    let mut last: Option<[u32; 6]> = None;
    for port in ports {
        let (splitter, channel) = port.via.map_or((0, 0), |via| (via.splitter.saturating_add(1), via.channel));
        match &mut last {
            Some([operator, of, run, first, count, id])
                if splitter > 0
                    && (*operator, *of, *run, *first + *count, *id + *count)
                        == (port.operator, port.port, splitter, channel, port.id) =>
            {
                *count += 1;
            }
            _ => {
                number += 1;
                let run = [port.operator, port.port, splitter, channel, 1, port.id];
                runs.extend(last.replace(run).into_iter().flatten());
            }
        }
    }
    runs.extend(last.into_iter().flatten());
    number
}

/// Makes a layout of a message whose numbers of entries are within the limits. Regions nest as elements of the ADL do,
/// so at most `most_depth` are around an operator.
fn from_message(mut message: Version1, most_depth: u32) -> Option<Layout> {
    let count = message.index.len();
    let alike = [message.logical_index.len(), message.depth.len(), message.element.len()];
    let elements = message.id.len();
    let per_element = [message.bytes.len(), message.inputs.len(), message.outputs.len()];
    if alike.iter().any(|len| *len != count)
        || per_element.iter().any(|len| *len != elements)
        || message.region.len() != message.width.len()
    {
        return None;
    }
    let mut layout_elements = elements_of(&message)?;
    // The columns of ports may be large, and are not needed any more.
    (message.input, message.output) = (Vec::new(), Vec::new());
    let (mut logical, mut index, mut element) =
        (DeltaDecoder::default(), DeltaDecoder::default(), DeltaDecoder::default());
    let mut levels: Vec<DeltaDecoder> = Vec::new();
    let mut channels = message.channel.iter();
    let mut operators = Vec::with_capacity(count);
    for at in 0..count {
        let logical_index = logical.add(*message.logical_index.get(at)?)?;
        let depth = *message.depth.get(at)?;
        if depth > most_depth || depth as usize > channels.len() {
            return None;
        }
        let depth = depth as usize;
        levels.resize(levels.len().max(depth), DeltaDecoder::default());
        let channels = levels
            .iter_mut()
            .take(depth)
            .map(|level| u32::try_from(level.add(*channels.next()?)?).ok())
            .collect::<Option<_>>()?;
        let number = u32::try_from(index.add(*message.index.get(at)?)?).ok()?;
        let position = usize::try_from(element.add(*message.element.get(at)?)?).ok()?;
        layout_elements.get_mut(position)?.operators.push(number);
        operators.push((Identity { logical_index, channels }, number));
    }
    if channels.next().is_some() {
        return None;
    }
    for element in &mut layout_elements {
        element.operators.sort_unstable();
    }
    let known = |position: u32| (position as usize) < operators.len();
    let splitters = (message.splitters.into_iter())
        .map(|Splitter1 { source, source_port, target, target_port, index }| {
            let splitter = NumberedSplitter { source, source_port, target, target_port, index };
            (known(source) && known(target)).then_some(splitter)
        })
        .collect::<Option<_>>()?;
    Some(Layout {
        adl: Digest::try_from(message.adl.as_slice()).ok()?,
        request: Digest::try_from(message.request.as_slice()).ok()?,
        compiler: message.compiler,
        automatic_count: message.automatic_count,
        widths: message.region.into_iter().zip(message.width).collect(),
        numbering: Numbering {
            splitters,
            host_pools: message.pools.into_iter().map(|pool| (pool.name, pool.index)).collect(),
            operators,
        },
        splitter_trees: (message.trees.into_iter())
            .map(|t| SplitterTree { operator: t.operator, port: t.port, indexes: t.indexes })
            .collect(),
        elements: layout_elements,
    })
}

/// PEs without their operators.
fn elements_of(message: &Version1) -> Option<Vec<LayoutElement>> {
    let digests = |bytes: &[u8]| -> Option<Vec<Digest>> {
        let (digests, rest) = bytes.as_chunks::<32>();
        (rest.is_empty() && digests.len() == message.id.len()).then(|| digests.to_vec())
    };
    let (content_ids, runtime_ids) = (digests(&message.content_ids)?, digests(&message.runtime_ids)?);
    let (inputs, rest) = message.input.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    let (outputs, rest) = message.output.as_chunks::<6>();
    if !rest.is_empty() {
        return None;
    }
    let (mut inputs, mut outputs) = (inputs.iter(), outputs.iter());
    // What runs may unpack to.
    let mut left = MOST_PORTS;
    let mut id = 0_u64;
    let mut elements = Vec::with_capacity(message.id.len());
    for (at, difference) in message.id.iter().enumerate() {
        id = id.checked_add(*difference)?;
        let mut element = LayoutElement {
            id,
            content_id: *content_ids.get(at)?,
            runtime_id: *runtime_ids.get(at)?,
            bytes: *message.bytes.get(at)?,
            operators: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
        };
        for _ in 0..*message.inputs.get(at)? {
            let &[operator, port, count, id] = inputs.next()?;
            left = left.checked_sub(count)?;
            port.checked_add(count)?;
            id.checked_add(count)?;
            element.inputs.extend((0..count).map(|n| LayoutInputPort { operator, port: port + n, id: id + n }));
        }
        for _ in 0..*message.outputs.get(at)? {
            let &[operator, port, splitter, channel, count, id] = outputs.next()?;
            left = left.checked_sub(count)?;
            channel.checked_add(count)?;
            id.checked_add(count)?;
            element.outputs.extend((0..count).map(|n| {
                let via = splitter.checked_sub(1).map(|splitter| Via { splitter, channel: channel + n });
                LayoutOutputPort { operator, port, via, id: id + n }
            }));
        }
        elements.push(element);
    }
    (inputs.next().is_none() && outputs.next().is_none()).then_some(elements)
}

/// Numbers as differences.
#[derive(Clone, Copy, Default)]
struct DeltaEncoder(u64);

impl DeltaEncoder {
    fn to(&mut self, number: u64) -> i64 {
        let difference = number.wrapping_sub(self.0).cast_signed();
        self.0 = number;
        difference
    }
}

/// Numbers from differences.
#[derive(Clone, Copy, Default)]
struct DeltaDecoder(u64);

impl DeltaDecoder {
    fn add(&mut self, difference: i64) -> Option<u64> {
        self.0 = self.0.wrapping_add(difference.cast_unsigned());
        Some(self.0)
    }
}
