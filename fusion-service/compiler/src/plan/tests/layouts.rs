//! Layouts: their bytes, jobs restored from them, and layouts that are refused.

use super::super::layout::{LayoutElement, LayoutInputPort, LayoutOutputPort, SplitterTree};
use super::super::{FusionOption, Layout, LayoutError, RestoreError, restore};
use super::{request, source, submitted, texts};
use crate::budget::{Budget, Limits};
use crate::error::Error;
use crate::topology::{Identity, NumberedSplitter, Numbering, Via};
use proptest::prelude::*;
use streams_test_support::application::Sketch;
use streams_test_support::generated;

/// Layouts that have their invariants, of no application in particular.
fn any_layout() -> impl Strategy<Value = Layout> {
    let identity = || {
        (any::<u16>(), prop::collection::vec(0..9_u32, 0..3)).prop_map(|(logical_index, channels)| Identity {
            logical_index: logical_index.into(),
            channels: channels.into(),
        })
    };
    (
        prop::collection::btree_map(identity(), any::<u64>(), 1..20),
        prop::collection::btree_map(any::<u32>(), any::<u32>(), 0..4),
        any::<[u8; 32]>(),
        prop::option::of(any::<u32>()),
        prop::collection::vec(any::<u32>(), 8),
    )
        .prop_map(|(operators, widths, digest, automatic_count, seeds)| {
            let count = operators.len() as u32;
            let elements = 1 + seeds[0] % count;
            let mut list: Vec<LayoutElement> = (0..elements)
                .map(|n| LayoutElement {
                    id: u64::from(n) * u64::from(seeds[1] % 9 + 1) + u64::from(seeds[2]),
                    content_id: digest,
                    runtime_id: [n as u8; 32],
                    bytes: u64::from(seeds[3]),
                    operators: vec![],
                    inputs: vec![],
                    outputs: vec![],
                })
                .collect();
            let mut numbered: Vec<(Identity, u32)> = Vec::new();
            for (position, (identity, _)) in (0..).zip(operators) {
                let index = position * 2 + seeds[4] % 2;
                numbered.push((identity, index));
                let element = &mut list[(position % elements) as usize];
                let at = element.inputs.len() as u32;
                element.operators.push(index);
                element.inputs.push(LayoutInputPort { operator: index, port: 0, id: at });
                element.inputs.push(LayoutInputPort { operator: index, port: 1, id: at + 1 });
                let at = element.outputs.len() as u32 + seeds[5] % 5;
                element.outputs.push(LayoutOutputPort { operator: index, port: 0, via: None, id: at });
                for channel in 0..seeds[6] % 5 {
                    let via = Some(Via { splitter: seeds[7] % 3, channel });
                    element.outputs.push(LayoutOutputPort { operator: index, port: 0, via, id: at + 1 + channel });
                }
            }
            Layout {
                adl: digest,
                request: [7; 32],
                compiler: "1.2.3".to_owned(),
                automatic_count,
                widths: widths.into_iter().map(|(region, width)| (region.into(), width)).collect(),
                numbering: Numbering {
                    splitters: vec![NumberedSplitter {
                        source: 0,
                        source_port: 0,
                        target: count - 1,
                        target_port: 1,
                        index: seeds[7],
                    }],
                    host_pools: vec![("a".to_owned(), 3), ("b".to_owned(), 1)],
                    operators: numbered,
                },
                splitter_trees: vec![SplitterTree { operator: 0, port: 2, indexes: vec![3, 1, 2] }],
                elements: list,
            }
        })
}

proptest! {
    #[test]
    fn bytes_give_the_layout_back(layout in any_layout()) {
        let bytes = layout.to_bytes();
        prop_assert_eq!(Layout::from_bytes(&bytes, &Budget::default()), Ok(layout.clone()));
        prop_assert_eq!(layout.to_bytes(), bytes);
    }

    #[test]
    fn damaged_layouts_are_refused_or_whole(layout in any_layout(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = layout.to_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(read) = Layout::from_bytes(&bytes, &Budget::default()) {
            prop_assert!(read.verify(&Budget::default()).is_ok());
        }
        bytes.truncate(at);
        prop_assert!(Layout::from_bytes(&bytes, &Budget::default()).is_err());
    }

    #[test]
    fn other_bytes_are_refused(packed in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = b"SPLL\x01".to_vec();
        // What is inside a well-formed frame is hostile as well.
        bytes.extend(zstd::encode_all(packed.as_slice(), 1).unwrap());
        if let Ok(read) = Layout::from_bytes(&bytes, &Budget::default()) {
            prop_assert!(read.verify(&Budget::default()).is_ok());
        }
        prop_assert!(Layout::from_bytes(&packed, &Budget::default()).is_err());
    }

    #[test]
    fn a_restored_job_has_the_same_texts(sketch in generated::rows(), manual in 0..4_i128) {
        let fusion = if manual == 0 { FusionOption::Legacy } else { FusionOption::Manual(manual) };
        let job = submitted(&sketch, fusion.clone());
        let again = restore(&source(&sketch), &request(fusion), &job.layout().to_bytes(), &Budget::default()).unwrap();
        prop_assert_eq!(texts(&again), texts(&job));
        prop_assert_eq!(again.layout(), job.layout());
    }
}

#[test]
fn large_layouts_are_small() {
    let sketch = Sketch::row(&["S", "P", "Q", "T"]).parallel("P", 300).parallel("Q", 300);
    let job = submitted(&sketch, FusionOption::Legacy);
    let ports: usize = job.layout().elements.iter().map(|e| e.inputs.len() + e.outputs.len()).sum();
    assert!(ports > 90_000);
    // Two digests for each of 602 PEs, which nothing can compress, and little else.
    let bytes = job.layout().to_bytes().len();
    assert!(bytes < 602 * 64 + 12_000, "{bytes} bytes");
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let sketch = Sketch::row(&["S", "P", "T"]).parallel("P", 2);
    let job = submitted(&sketch, FusionOption::Legacy);
    let request = request(FusionOption::Legacy);
    let budget = Budget::default();
    let refused = |what: &str, layout: &Layout| match restore(&source(&sketch), &request, &layout.to_bytes(), &budget) {
        Err(RestoreError::Layout(error)) => error,
        Err(RestoreError::Compilation(error)) => panic!("{what}: {error}"),
        Ok(_) => panic!("accepted: {what}"),
    };

    let other = Sketch::row(&["S", "P", "T"]).parallel("P", 3);
    let error = restore(&source(&other), &request, &job.layout().to_bytes(), &budget).unwrap_err();
    assert!(matches!(error, RestoreError::Layout(LayoutError::Foreign(_))), "{error}");

    type Edit = fn(&mut Layout);
    let edits: [(&str, Edit); 8] = [
        ("another ADL", |layout| layout.adl[0] ^= 1),
        ("another job", |layout| layout.request[0] ^= 1),
        ("an unknown region", |layout| layout.widths[0].0 = 9),
        ("a missing region", |layout| layout.widths.clear()),
        ("another width", |layout| layout.widths[0].1 = 1),
        ("a splitter that is not there", |layout| layout.numbering.splitters[0].index = 5),
        ("a host pool that is not there", |layout| layout.numbering.host_pools.push(("Zoo".to_owned(), 9))),
        ("a missing port", |layout| layout.elements[0].outputs.clear()),
    ];
    for (what, edit) in edits {
        let mut layout = job.layout();
        edit(&mut layout);
        let error = refused(what, &layout);
        assert!(matches!(error, LayoutError::Foreign(_)), "{what}: {error}");
    }

    let inconsistent: [(&str, Edit); 5] = [
        ("an operator in two PEs", |layout| {
            layout.elements[0].operators = layout.elements[1].operators.clone();
        }),
        ("a PE without operators", |layout| layout.elements[0].operators.clear()),
        ("PEs out of order", |layout| layout.elements.swap(0, 1)),
        ("an operator index twice", |layout| layout.numbering.operators[0].1 = layout.numbering.operators[1].1),
        ("a port id twice", |layout| layout.elements[0].outputs[0].id = layout.elements[0].outputs[1].id),
    ];
    for (what, edit) in inconsistent {
        let mut layout = job.layout();
        edit(&mut layout);
        assert!(layout.verify(&Budget::default()).is_err(), "{what}");
    }
}

/// A message of a layout, field by field.
#[derive(Clone)]
struct RawMessage(Vec<u8>);

impl RawMessage {
    /// With both digests, of nothing in particular.
    fn new() -> Self {
        Self(Vec::new()).field(1, &[1; 32]).field(22, &[2; 32])
    }

    fn field(mut self, number: u32, content: &[u8]) -> Self {
        prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut self.0);
        prost::encoding::encode_varint(content.len() as u64, &mut self.0);
        self.0.extend_from_slice(content);
        self
    }

    /// The same field so many times, empty.
    fn fields(mut self, number: u32, times: usize) -> Self {
        let empty = Self(Vec::new()).field(number, &[]);
        self.0.extend(empty.0.repeat(times));
        self
    }

    fn read(&self, limits: Limits) -> Result<Layout, RestoreError> {
        let mut bytes = b"SPLL\x01".to_vec();
        bytes.extend(zstd::encode_all(self.0.as_slice(), 1).unwrap());
        Layout::from_bytes(&bytes, &Budget::with_limits(limits))
    }
}

/// One PE with one operator in this many regions.
fn one_operator(depth: u8) -> RawMessage {
    let message = RawMessage::new().field(5, &[0]).field(6, &[depth]).field(7, &vec![0; depth.into()]).field(8, &[0]);
    let message = message.field(9, &[0]).field(13, &[0]).field(14, &[3; 32]).field(15, &[4; 32]);
    message.field(16, &[0]).field(17, &[0]).field(19, &[0])
}

/// Few bytes may ask for very much memory. They are refused before anything is made of them.
#[test]
fn layouts_with_more_than_a_job_can_have_are_refused() {
    let limits = Limits { operators: 4, connections: 64, adl_bytes: 0, depth: 100, ..Limits::default() };
    let whole = one_operator(60);
    let splitter = [0x18, 0];
    assert_eq!(whole.read(limits.clone()).unwrap().numbering.operators.len(), 1);
    assert!(whole.clone().field(10, &splitter).read(limits.clone()).is_ok());
    let many = |fields: &[u32]| fields.iter().fold(RawMessage::new(), |message, field| message.field(*field, &[0; 5]));
    let trees = (0..8).fold(RawMessage::new(), |message, _| message.field(11, &[&[0x1a, 120][..], &[0; 120]].concat()));
    for (what, message, expected) in [
        ("operators", many(&[5, 6, 8, 9]), "it has too many operators"),
        ("PEs", many(&[13, 16, 17, 19]), "it has too many PEs"),
        ("regions", many(&[3, 4]), "it has too many regions"),
        ("splitters", whole.clone().fields(10, 65), "it has too many splitters"),
        ("trees", whole.clone().fields(11, 65), "it has too many splitters"),
        ("numbers in trees", trees, "it has too many splitters"),
        ("pools", whole.clone().fields(12, 5), "it has too many host pools"),
        ("channels", RawMessage::new().field(7, &[0; 65]), "too many regions are around its operators"),
        ("depth", one_operator(101), "too many regions are around its operators"),
        ("no digests", RawMessage(Vec::new()), "it is no message"),
        ("a field that ends early", RawMessage(vec![0x0a, 9]), "it is no message"),
    ] {
        let error = message.read(limits.clone()).expect_err(what);
        assert_eq!(error, LayoutError::Damaged(expected).into(), "{what}");
    }
    let misfit = RestoreError::Layout(LayoutError::Damaged("its parts do not fit together"));
    let deep = Limits { operators: 100, depth: 100, ..Limits::default() };
    assert_eq!(one_operator(101).read(deep), Err(misfit.clone()), "deeper than regions nest");
    let beyond = one_operator(1).field(10, &[0x18, 1]);
    assert_eq!(beyond.read(Limits::default()), Err(misfit), "a splitter of an operator that is not there");
    // With the default limits as well: 5 MB of splitters would be 50.
    let error = RawMessage::new().fields(10, 2_500_001).read(Limits::default()).unwrap_err();
    assert_eq!(error, LayoutError::Damaged("it has too many splitters").into());
}

#[test]
fn a_window_that_no_layout_needs_is_refused() {
    let mut bytes = b"SPLL\x01".to_vec();
    let mut encoder = zstd::Encoder::new(&mut bytes, 1).unwrap();
    encoder.window_log(27).unwrap();
    std::io::Write::write_all(&mut encoder, &one_operator(1).0).unwrap();
    encoder.finish().unwrap();
    let error = Layout::from_bytes(&bytes, &Budget::default()).unwrap_err();
    assert_eq!(error, LayoutError::Damaged("it cannot be unpacked").into());
}

#[test]
fn nobody_waits_for_a_layout() {
    let bytes = submitted(&Sketch::row(&["S", "T"]), FusionOption::Legacy).layout().to_bytes();
    let error = Layout::from_bytes(&bytes, &Budget::cancelled()).unwrap_err();
    assert_eq!(error, RestoreError::Compilation(Error::Cancelled));
}

/// What a layout belongs to is known before the rest of it is read.
#[test]
fn a_layout_of_something_else_is_not_read() {
    let sketch = Sketch::row(&["S", "T"]);
    let mut damaged = b"SPLL\x01".to_vec();
    damaged.extend(zstd::encode_all(RawMessage::new().fields(10, 1).0.as_slice(), 1).unwrap());
    let result = restore(&source(&sketch), &request(FusionOption::Legacy), &damaged, &Budget::default());
    assert!(matches!(result, Err(RestoreError::Layout(LayoutError::Foreign(_)))));
}

#[test]
fn versions_are_told_apart() {
    let sketch = Sketch::row(&["S", "T"]);
    let mut bytes = submitted(&sketch, FusionOption::Legacy).layout().to_bytes();
    bytes[4] = 9;
    assert_eq!(Layout::from_bytes(&bytes, &Budget::default()), Err(LayoutError::Version(9).into()));
}
