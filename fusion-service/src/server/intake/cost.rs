//! Tells from the bytes of a request how much memory it takes when it is decoded, before it is.
//!
//! A message may be small on the wire and large in memory: an entry of a list takes two bytes there and a hundred here.
//! So the fields are counted first. What a field costs is an upper bound, with room for lists that grow by doubling.
//!
//! Knows: the wire format, which fields of requests have content or messages. Must not know: what they mean.
//!
//! Invariants: the result is at least what decoding allocates; no more memory is used to find it than a few bytes.

use crate::server::class::CallClass;
use bytes::{Buf, Bytes};

/// For a field with a number: an entry of a list.
const NUMBER: u64 = 16;
/// For a field with bytes: an entry of a list or a map, and the text with its own allocation.
const ENTRY: u64 = 128;
/// For a byte of a packed list of numbers.
const PACKED: u64 = 16;
/// Messages in messages that are looked into.
const DEPTH: usize = 4;

/// What a message is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Bytes that its fields take, without content.
    pub(super) fields: u64,
    /// Bytes of content: of an ADL, of a layout.
    pub(super) content: u64,
}

/// A message as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Submit,
    Resize,
    Render,
    DryRun,
    Compilation,
    Blob,
    Entry,
    Ports,
}

/// What a field has.
enum Field {
    Message(Shape),
    Content,
    Packed,
    Other,
}

impl Shape {
    fn field(self, number: u64) -> Field {
        match (self, number) {
            (Self::Submit | Self::Resize | Self::Render, 1) => Field::Message(Self::Compilation),
            (Self::Resize | Self::Render, 2) | (Self::Compilation, 1) => Field::Message(Self::Blob),
            (Self::DryRun, 1) => Field::Message(Self::Submit),
            (Self::DryRun, 2) => Field::Message(Self::Resize),
            (Self::Resize, 6) => Field::Message(Self::Ports),
            (Self::Resize, 3) | (Self::Compilation, 5 | 7 | 8) => Field::Message(Self::Entry),
            (Self::Blob, 2) => Field::Content,
            (Self::Resize, 5) | (Self::Render, 4) | (Self::Ports, 2 | 3) => Field::Packed,
            _ => Field::Other,
        }
    }
}

/// What the message of a call of this class costs. What is not well-formed ends the count: decoding ends there, too.
pub(super) fn cost(class: CallClass, pieces: &[Bytes]) -> Cost {
    let shape = match class {
        CallClass::Submit => Shape::Submit,
        CallClass::Resize => Shape::Resize,
        CallClass::Render => Shape::Render,
        CallClass::DryRun => Shape::DryRun,
    };
    let mut message = Reader { pieces, current: &[], position: 0 };
    let length = pieces.iter().map(|piece| piece.len() as u64).sum();
    let mut cost = Cost::default();
    let _ = count(&mut message, shape, length, &mut cost);
    cost
}

/// Counts the fields of a message and of those in it.
fn count(message: &mut Reader<'_>, shape: Shape, end: u64, cost: &mut Cost) -> Option<()> {
    // Shape and end of the message around this one, and so on.
    let mut around = [(shape, end); DEPTH + 1];
    let mut depth = 0;
    loop {
        let (shape, end) = *around.get(depth)?;
        if message.position >= end {
            if message.position > end || depth == 0 {
                return None;
            }
            depth -= 1;
            continue;
        }
        let key = message.number()?;
        match key & 7 {
            0 => {
                message.number()?;
                cost.fields += NUMBER;
            }
            1 => {
                message.skip(8)?;
                cost.fields += NUMBER;
            }
            2 => {
                let length = message.number()?;
                let next = message.position.checked_add(length).filter(|next| *next <= end)?;
                match shape.field(key >> 3) {
                    Field::Message(inner) => {
                        cost.fields += ENTRY;
                        depth += 1;
                        *around.get_mut(depth)? = (inner, next);
                    }
                    field => {
                        message.skip(length)?;
                        match field {
                            Field::Content => cost.content += length,
                            Field::Packed => cost.fields += ENTRY + PACKED * length,
                            Field::Message(_) | Field::Other => cost.fields += ENTRY + 2 * length,
                        }
                    }
                }
            }
            // The fields of a group count as those of the message around it. There are none in the contract.
            3 | 4 => cost.fields += NUMBER,
            5 => {
                message.skip(4)?;
                cost.fields += NUMBER;
            }
            _ => return None,
        }
    }
}

/// Reads bytes that are in several pieces.
struct Reader<'a> {
    pieces: &'a [Bytes],
    current: &'a [u8],
    position: u64,
}

impl Reader<'_> {
    fn fill(&mut self) -> Option<()> {
        while self.current.is_empty() {
            let (first, rest) = self.pieces.split_first()?;
            (self.current, self.pieces) = (first, rest);
        }
        Some(())
    }

    /// A number with seven bits in each byte.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            self.fill()?;
            let byte = self.current.get_u8();
            self.position += 1;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn skip(&mut self, mut bytes: u64) -> Option<()> {
        self.position = self.position.checked_add(bytes)?;
        while bytes > 0 {
            self.fill()?;
            let here = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.current.len());
            self.current.advance(here);
            bytes -= here as u64;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use streams_proto::fusion::v1 as pb;

    fn blob(bytes: usize) -> Option<pb::Blob> {
        Some(pb::Blob { sha256: vec![1; 32].into(), content: Some(vec![0xff; bytes].into()) })
    }

    fn resize() -> pb::ResizeRequest {
        let compilation = pb::Compilation { adl: blob(10_000), job_name: "job".into(), ..Default::default() };
        pb::ResizeRequest { compilation: Some(compilation), layout: blob(500), ..Default::default() }
    }

    fn of(class: CallClass, message: &impl Message) -> Cost {
        let whole = Bytes::from(message.encode_to_vec());
        let cost = cost(class, std::slice::from_ref(&whole));
        // However it is cut.
        for size in [1, 7, 1000] {
            let pieces: Vec<Bytes> = whole.chunks(size).map(Bytes::copy_from_slice).collect();
            assert_eq!(super::cost(class, &pieces), cost);
        }
        cost
    }

    #[test]
    fn content_is_found_in_every_request() {
        let resize = resize();
        let submit = pb::SubmitRequest { compilation: resize.compilation.clone() };
        let render = pb::RenderRequest {
            compilation: resize.compilation.clone(),
            layout: resize.layout.clone(),
            ..Default::default()
        };
        let plan = pb::PlanRequest { what: Some(pb::plan_request::What::Submit(submit.clone())), include_plan: true };
        let explain = pb::ExplainRequest { what: Some(pb::explain_request::What::Resize(resize.clone())) };
        let found = [
            of(CallClass::Submit, &submit),
            of(CallClass::Resize, &resize),
            of(CallClass::Render, &render),
            of(CallClass::DryRun, &plan),
            of(CallClass::DryRun, &explain),
        ];
        assert_eq!(found.map(|cost| cost.content), [10_000, 10_500, 10_500, 10_000, 10_500]);
        for cost in found {
            assert!(cost.fields < 2_000, "{cost:?}");
        }
    }

    #[test]
    fn what_is_small_on_the_wire_and_large_in_memory_costs_what_it_takes() {
        let entries = 10_000;
        type Change = fn(&mut pb::ResizeRequest, usize);
        let cases: [(&str, usize, Change); 5] = [
            ("widths", 64, |r, n| r.widths = vec![pb::RegionWidth::default(); n]),
            ("widths of the job", 64, |r, n| {
                r.compilation.get_or_insert_default().widths = vec![pb::RegionWidth::default(); n];
            }),
            ("ids", 16, |r, n| r.pe_ids_in_use = vec![0; n]),
            ("ports", 112, |r, n| r.ports_in_use = vec![Default::default(); n]),
            ("ports of one", 8, |r, n| {
                let ports = pb::resize_request::PortsInUse { input_port_ids: vec![0; n], ..Default::default() };
                r.ports_in_use = vec![ports];
            }),
        ];
        for (name, bytes_each, change) in cases {
            let mut request = resize();
            change(&mut request, entries);
            let cost = of(CallClass::Resize, &request);
            assert!(cost.fields >= (entries * bytes_each) as u64, "{name}: {cost:?}");
            assert!(cost.fields <= (entries * 256) as u64, "{name}: {cost:?}");
        }
    }

    #[test]
    fn nothing_is_hidden_behind_fields_that_are_skipped() {
        let mut request = resize();
        request.widths = vec![pb::RegionWidth::default(); 10_000];
        let message = request.encode_to_vec();
        let plain = cost(CallClass::Resize, &[Bytes::from(message.clone())]);
        // A group of an unknown field: begin and end.
        let mut hidden = vec![0xfb, 0x01, 0xfc, 0x01];
        hidden.extend_from_slice(&message);
        assert!(pb::ResizeRequest::decode(&*hidden).is_ok_and(|decoded| decoded.widths.len() == 10_000));
        let found = cost(CallClass::Resize, &[Bytes::from(hidden)]);
        assert!(found.fields >= plain.fields && found.content == plain.content, "{found:?} {plain:?}");
    }

    #[test]
    fn nonsense_ends_the_count() {
        let cases: [&[u8]; 6] =
            [b"", b"\x0a", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xff\xff", b"\x0f", &[0xff; 64]];
        for case in cases {
            let cost = cost(CallClass::Resize, &[Bytes::copy_from_slice(case)]);
            assert_eq!((cost.fields, cost.content), (0, 0), "{case:?}");
        }
    }
}
