//! An expression of a subscription, or of what the compiler folds: parsed, printed, folded, evaluated.
//!
//! Input: the text.

use spl_expression::{
    Evaluation, Expression, Intrinsics, Limits, List, Properties, PropertyType, RegionChannel, ScalarType, Selected,
    Value, substitute_intrinsics, substitute_location,
};

const REGIONS: [RegionChannel; 2] = [
    RegionChannel { global_channel: 7, global_max_channels: 12, local_channel: 1, local_max_channels: 3 },
    RegionChannel { global_channel: 2, global_max_channels: 4, local_channel: 2, local_max_channels: 4 },
];

fn properties(floats: bool) -> Properties {
    let mut properties: Properties = [
        ("a", Value::Int64(3.into())),
        ("b", Value::Boolean(true)),
        ("c", Value::Rstring("x".into())),
        ("l", Value::List(List::Int64(vec![1.into(), (-7).into()].into()))),
    ]
    .into_iter()
    .collect();
    if floats {
        properties.insert("d", Value::Float64(2.5));
    }
    properties
}

/// Whether a float may take part; folding is exact for everything else only (rule expression-10).
fn floats(text: &str) -> bool {
    let digit_then_e =
        text.as_bytes().windows(2).any(|pair| pair[0].is_ascii_digit() && matches!(pair[1], b'e' | b'E'));
    digit_then_e || text.contains('.') || text.contains("float") || text.contains('d')
}

/// Runs one input; panics when something does not hold.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Texts that are no expressions.
    for regions in [&REGIONS[..], &[]] {
        _ = substitute_location(text, regions, usize::MAX);
        if let Ok(filled) = substitute_location(text, regions, text.len()) {
            assert!(filled.len() <= text.len(), "a location is longer than there is room for");
        }
    }
    for scalar in [ScalarType::Boolean, ScalarType::Int64, ScalarType::Float64, ScalarType::Rstring] {
        _ = Value::parse(PropertyType::Scalar(scalar), &[text]).map(|value| value.to_string());
        _ = Value::parse(PropertyType::List(scalar), &text.split(',').collect::<Vec<_>>())
            .map(|value| value.to_string());
    }
    let limits = Limits { length: 4096, depth: 64, ..Limits::default() };
    let Ok(written) = Expression::parse(text, &limits) else { return };
    let printed = written.to_string();
    let wide = Limits { depth: 1 << 10, ..Limits::default() };
    let again = Expression::parse(&printed, &wide).expect("what was printed can be read");
    assert_eq!(again.to_string(), printed, "printing is not final");
    let floats = floats(text);
    let properties = properties(floats);
    assert_eq!(
        comparable(&again.evaluate(&properties)),
        comparable(&written.evaluate(&properties)),
        "printed: {printed}"
    );

    let intrinsics = Intrinsics::of(&REGIONS);
    let substituted = substitute_intrinsics(text, &intrinsics);
    let Ok(folded) = written.substitute_and_fold(&intrinsics) else { return };
    let final_text = folded.to_string();
    let again = Expression::parse(&final_text, &wide).expect("what was folded can be read");
    assert_eq!(again.to_string(), final_text, "printing is not final");
    let twice = again.substitute_and_fold(&intrinsics).expect("what was folded can be folded");
    assert_eq!(twice.to_string(), final_text, "folding is not final");
    // A channel function within quotes is no call in an expression. What costs too much may not do so once it is
    // folded.
    if !floats
        && !text.contains(['"', '\''])
        && let Ok(written) = Expression::parse(&substituted, &limits)
        && written.select(&properties).selected != Selected::TooCostly
    {
        assert_eq!(
            comparable(&written.evaluate(&properties)),
            comparable(&folded.evaluate(&properties)),
            "folded: {folded}"
        );
    }
}

/// An evaluation as it is compared: without places, which printing and folding move, and with NaN equal to itself.
fn comparable(evaluation: &Evaluation) -> String {
    match evaluation {
        Evaluation::Error(_) => "error".to_owned(),
        other => format!("{other:?}"),
    }
}
