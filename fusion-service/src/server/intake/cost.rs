//! Tells from the bytes of a request how much memory it takes when it is decoded, before it is.
//!
//! A message may be small on the wire and large in memory: an entry of a list takes two bytes there and a hundred here.
//! So the fields are counted first. What a field costs is an upper bound, with room for lists that grow by doubling.
//!
//! A message that is not well-formed has no cost and is not decoded: whoever reads it might read on where the count has
//! stopped. What is skipped here is what the decoder skips, so both see the same fields.
//!
//! Knows: the wire format, which fields of requests have content or messages. Must not know: what they mean.
//!
//! Invariants: each message that can be decoded is well-formed here, and its cost is at least what decoding allocates,
//! beside a kilobyte for lists that are shorter than the smallest allocation; no more memory is used to find it than a
//! few bytes and a stack of bounded depth.

use crate::server::class::CallClass;
use bytes::{Buf, Bytes};

/// For a field with a number: an entry of a list, of which the first one has room for three more.
const NUMBER: u64 = 32;
/// For a field with bytes: an entry of a list or a map, and the text with its own allocation.
const ENTRY: u64 = 128;
/// For a byte of a packed list of numbers.
const PACKED: u64 = 16;
/// For a byte of content, beside that byte itself: the application that is parsed from an ADL.
const PER_CONTENT: u64 = 4;
/// Messages in messages that are looked into.
const DEPTH: usize = 4;
/// Groups in groups. The decoder refuses what is deeper.
const GROUPS: u32 = 100;

/// What a message is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Bytes that its fields take, without content.
    pub(super) fields: u64,
    /// Bytes of content: of an ADL, of a layout.
    pub(super) content: u64,
}

impl Cost {
    /// Bytes that the message takes when it is decoded and parsed, beside itself.
    pub(super) fn bytes(self) -> u64 {
        self.fields.saturating_add(self.parsed())
    }

    /// Those of them that are for what is parsed of its content.
    pub(super) fn parsed(self) -> u64 {
        PER_CONTENT.saturating_mul(self.content)
    }
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
    fn field(self, number: u32) -> Field {
        match (self, number) {
            (Self::Submit | Self::Resize | Self::Render, 1) => Field::Message(Self::Compilation),
            (Self::Resize | Self::Render, 2) | (Self::Compilation, 1) => Field::Message(Self::Blob),
            (Self::DryRun, 1) => Field::Message(Self::Submit),
            (Self::DryRun, 2) => Field::Message(Self::Resize),
            (Self::Resize, 6) => Field::Message(Self::Ports),
            (Self::Resize, 3) | (Self::Compilation, 5 | 7 | 8) => Field::Message(Self::Entry),
            (Self::Blob, 2) => Field::Content,
            (Self::Resize, 5 | 7) | (Self::Render, 4) | (Self::Ports, 2 | 3) => Field::Packed,
            _ => Field::Other,
        }
    }
}

/// What the message of a call of this class costs, of which the pieces may still be coming. `None`: it is not
/// well-formed, so it must not be decoded.
pub(super) fn cost(class: CallClass, pieces: impl Iterator<Item = Bytes>) -> Option<Cost> {
    let shape = match class {
        CallClass::Submit => Shape::Submit,
        CallClass::Resize => Shape::Resize,
        CallClass::Render => Shape::Render,
        CallClass::DryRun => Shape::DryRun,
    };
    let mut message = Reader { pieces, current: Bytes::new(), position: 0 };
    count(&mut message, shape)
}

/// Counts the fields of a message and of those in it. `None`: the message is not well-formed.
fn count(message: &mut Reader<impl Iterator<Item = Bytes>>, shape: Shape) -> Option<Cost> {
    let mut cost = Cost::default();
    // Shape and end of the message around this one, and so on. The outermost ends where there are no more bytes.
    let mut around = [(shape, u64::MAX); DEPTH + 1];
    let mut depth: usize = 0;
    loop {
        let (shape, end) = *around.get(depth)?;
        if message.position >= end {
            if message.position > end {
                return None;
            }
            depth = depth.checked_sub(1)?;
            continue;
        }
        if depth == 0 && message.is_at_end() {
            return Some(cost);
        }
        let (number, kind) = message.key()?;
        if kind != 2 {
            message.skip_field(number, kind, GROUPS)?;
            cost.fields = cost.fields.saturating_add(NUMBER);
            continue;
        }
        let length = message.number()?;
        let next = message.position.checked_add(length).filter(|next| *next <= end)?;
        let field = shape.field(number);
        if let Field::Message(inner) = field {
            cost.fields = cost.fields.saturating_add(ENTRY);
            depth += 1;
            *around.get_mut(depth)? = (inner, next);
            continue;
        }
        message.skip(length)?;
        match field {
            Field::Content => cost.content += length,
            Field::Packed => cost.fields = cost.fields.saturating_add(ENTRY + PACKED * length),
            Field::Message(_) | Field::Other => cost.fields = cost.fields.saturating_add(ENTRY + 2 * length),
        }
    }
}

/// Reads bytes that are in several pieces.
struct Reader<I> {
    pieces: I,
    current: Bytes,
    position: u64,
}

impl<I: Iterator<Item = Bytes>> Reader<I> {
    fn fill(&mut self) -> Option<()> {
        while self.current.is_empty() {
            self.current = self.pieces.next()?;
        }
        Some(())
    }

    fn is_at_end(&mut self) -> bool {
        self.fill().is_none()
    }

    /// A number with seven bits in each byte, at most 64 together.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            self.fill()?;
            let byte = self.current.get_u8();
            self.position += 1;
            if shift == 63 && byte > 1 {
                return None;
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// The number of a field, and how it is written.
    fn key(&mut self) -> Option<(u32, u32)> {
        let key = u32::try_from(self.number()?).ok()?;
        let number = key >> 3;
        (number > 0).then_some((number, key & 7))
    }

    /// Passes what comes after a key, as the decoder passes fields that it does not know: nothing of a group is read as
    /// a field of the message around it. There are no groups in the contract.
    fn skip_field(&mut self, number: u32, kind: u32, groups: u32) -> Option<()> {
        match kind {
            0 => self.number().map(drop),
            1 => self.skip(8),
            2 => {
                let length = self.number()?;
                self.skip(length)
            }
            3 => {
                let groups = groups.checked_sub(1)?;
                loop {
                    match self.key()? {
                        (ends, 4) => return (ends == number).then_some(()),
                        (inner, kind) => self.skip_field(inner, kind, groups)?,
                    }
                }
            }
            5 => self.skip(4),
            _ => None,
        }
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
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::strategy::Union;
    use prost::Message;
    use prost::encoding::encode_varint;
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
        let cost = cost(class, [whole.clone()].into_iter());
        // However it is cut.
        for size in [1, 7, 1000] {
            assert_eq!(super::cost(class, whole.chunks(size).map(Bytes::copy_from_slice)), cost);
        }
        cost.unwrap()
    }

    fn of_bytes(class: CallClass, message: &[u8]) -> Option<Cost> {
        cost(class, [Bytes::copy_from_slice(message)].into_iter())
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
        let cases: [(&str, usize, Change); 6] = [
            ("widths", 64, |r, n| r.widths = vec![pb::RegionWidth::default(); n]),
            ("widths of the job", 64, |r, n| {
                r.compilation.get_or_insert_default().widths = vec![pb::RegionWidth::default(); n];
            }),
            ("ids", 16, |r, n| r.pe_ids_in_use = vec![0; n]),
            ("closed PEs", 16, |r, n| r.closed_pe_ids = vec![0; n]),
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
        let plain = of_bytes(CallClass::Resize, &message).unwrap();
        // Groups of an unknown field, with what would be a compilation that is longer than the message.
        let cases: [(&str, &[u8]); 4] = [
            ("an empty group", b"\xfb\x01\xfc\x01"),
            ("a compilation", b"\xfb\x01\x0a\x01\xff\xfc\x01"),
            ("a group in a group", b"\xfb\x01\x83\x02\x0a\x01\xff\x84\x02\xfc\x01"),
            ("all that may be in a group", b"\xfb\x01\x08\xff\x01\x0912345678\x0a\x01\xff\x0d1234\xfc\x01"),
        ];
        for (name, group) in cases {
            let hidden = [group, &message].concat();
            let decoded = pb::ResizeRequest::decode(&*hidden);
            assert!(decoded.is_ok_and(|decoded| decoded.widths.len() == 10_000), "{name}");
            let found = of_bytes(CallClass::Resize, &hidden).unwrap();
            assert!(found.fields >= plain.fields && found.content == plain.content, "{name}: {found:?} {plain:?}");
        }
    }

    #[test]
    fn what_is_not_well_formed_has_no_cost() {
        let nested = |groups: usize| [[0x0b].repeat(groups), [0x0c].repeat(groups)].concat();
        let cases: [(&str, &[u8], bool); 14] = [
            ("nothing", b"", true),
            ("no length", b"\x0a", false),
            ("a length beyond all", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", false),
            ("half a key", b"\xff\xff", false),
            ("an unknown kind", b"\x0f", false),
            ("a key without end", &[0xff; 64], false),
            ("field 0", b"\x00\x00", false),
            ("a field longer than its message", b"\x0a\x02\x0a\x05\x0a\x03abc", false),
            ("the end of no group", b"\xfc\x01", false),
            ("a group without end", b"\xfb\x01\x08\x01", false),
            ("the end of another group", b"\xfb\x01\x0c", false),
            ("a group longer than its message", b"\x0a\x01\x0b\x0c", false),
            ("groups in groups", &nested(100), true),
            ("too many of them", &nested(101), false),
        ];
        for (name, message, expected) in cases {
            assert_eq!(of_bytes(CallClass::Resize, message).is_some(), expected, "{name}");
        }
    }

    /// Bytes that lists and texts of a request have.
    fn allocated(request: &pb::ResizeRequest) -> usize {
        fn list<T>(list: &Vec<T>, of_each: impl Fn(&T) -> usize) -> usize {
            list.capacity() * size_of::<T>() + list.iter().map(of_each).sum::<usize>()
        }
        let widths = |widths| list(widths, |width: &pb::RegionWidth| width.region.capacity());
        let compilation = request.compilation.as_ref().map_or(0, |compilation| {
            let values = &compilation.submission_values;
            let pair = size_of::<(String, String)>() + 1;
            let texts = values.iter().map(|(name, value)| name.capacity() + value.capacity());
            let settings = compilation.configuration.as_ref();
            let settings = settings.map_or([None, None, None], |settings| {
                [&settings.threading_model, &settings.tracing, &settings.data_directory].map(Option::as_ref)
            });
            compilation.job_name.capacity()
                + 2 * pair * values.len()
                + texts.sum::<usize>()
                + settings.into_iter().flatten().map(String::capacity).sum::<usize>()
                + widths(&compilation.widths)
                + list(&compilation.channel_counts, |count| count.region.capacity())
        });
        let ports = list(&request.ports_in_use, |ports| {
            list(&ports.input_port_ids, |_| 0) + list(&ports.output_port_ids, |_| 0)
        });
        let ids = list(&request.pe_ids_in_use, |_| 0) + list(&request.closed_pe_ids, |_| 0);
        compilation + widths(&request.widths) + ids + ports
    }

    type Bits = BoxedStrategy<Vec<u8>>;

    /// A field as it is on the wire.
    fn written(number: u32, kind: u32, what: &[u8]) -> Vec<u8> {
        let mut field = Vec::new();
        encode_varint(u64::from(number << 3 | kind), &mut field);
        if kind == 2 {
            encode_varint(what.len() as u64, &mut field);
        }
        field.extend_from_slice(what);
        if kind == 3 {
            encode_varint(u64::from(number << 3 | 4), &mut field);
        }
        field
    }

    fn field(number: u32, kind: u32, what: impl Strategy<Value = Vec<u8>> + 'static) -> Bits {
        what.prop_map(move |what| written(number, kind, &what)).boxed()
    }

    /// Some of these fields, and some that the contract does not have, in any order.
    fn message(most: usize, fields: impl IntoIterator<Item = Bits>) -> Bits {
        let hidden = || vec(any::<u8>(), 0..4);
        // What looks like fields of the contract, and need not be whole: it is in a field that nobody knows.
        let hides = prop_oneof![hidden(), Just(b"\x0a\x01\xff".to_vec()), Just(b"\x32\x00".to_vec())];
        let unknown = prop_oneof![
            number().prop_map(|number| written(30, 0, &number)),
            Just(written(31, 1, b"12345678")),
            Just(written(32, 5, b"1234")),
            hides.clone().prop_map(|hides| written(33, 2, &hides)),
            hides.prop_map(|hides| written(34, 3, &hides)),
        ];
        let fields = fields.into_iter().map(|field| (4, field)).chain([(1, unknown.boxed())]);
        vec(Union::new_weighted(fields.collect()), 0..most).prop_map(|fields| fields.concat()).boxed()
    }

    fn number() -> impl Strategy<Value = Vec<u8>> {
        (0..0x80_u8).prop_map(|number| [number].to_vec())
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        "[a-z]{0,9}".prop_map(String::into_bytes)
    }

    fn resizes() -> Bits {
        let numbers = || vec(0..0x80_u8, 0..9);
        let blob = || message(3, [field(1, 2, text()), field(2, 2, text())]);
        let width = || message(3, [field(1, 2, text()), field(2, 0, number())]);
        let value = message(3, [field(1, 2, text()), field(2, 2, text())]);
        let compilation = message(
            20,
            [
                field(1, 2, blob()),
                field(2, 2, text()),
                field(3, 0, number()),
                field(5, 2, value),
                field(7, 2, width()),
                field(8, 2, width()),
            ],
        );
        let ports = [field(1, 0, number()), field(2, 0, number()), field(2, 2, numbers()), field(3, 2, numbers())];
        let fields = [
            field(1, 2, compilation),
            field(2, 2, blob()),
            field(3, 2, width()),
            field(5, 0, number()),
            field(5, 2, numbers()),
            field(6, 2, message(4, ports)),
            field(6, 2, Just(Vec::new())),
            field(7, 0, number()),
            field(7, 2, numbers()),
        ];
        // And what is cut somewhere.
        (message(60, fields), any::<prop::sample::Index>(), prop::bool::weighted(0.2))
            .prop_map(
                |(message, index, cut)| if cut { message[..index.index(message.len() + 1)].to_vec() } else { message },
            )
            .boxed()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..Default::default() })]

        #[test]
        fn what_can_be_decoded_costs_at_least_what_is_allocated(message in resizes()) {
            if let Ok(decoded) = pb::ResizeRequest::decode(&*message) {
                let found = of_bytes(CallClass::Resize, &message);
                let bytes = found.map(Cost::bytes);
                let least = allocated(&decoded) as u64;
                prop_assert!(bytes.is_some_and(|bytes| bytes + 1024 >= least), "{bytes:?} {least} {decoded:?}");
            }
        }
    }
}
