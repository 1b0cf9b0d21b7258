//! Properties that hold for every expression and every text.

use proptest::prelude::*;
use spl_expression::{Evaluation, Expression, Intrinsics, Limits, Needs, Properties, Value};

const INTRINSICS: Intrinsics = Intrinsics { channel: 5, max_channels: 12, local_channel: 2, local_max_channels: 3 };

#[derive(Clone, Copy, PartialEq)]
enum Floats {
    Yes,
    No,
}

fn leaf(floats: Floats) -> impl Strategy<Value = String> {
    let float = if floats == Floats::Yes { 1 } else { 0 };
    prop_oneof![
        3 => "[a-d]",
        1 => Just("true".to_owned()),
        1 => Just("false".to_owned()),
        3 => (-20i64..20).prop_map(|value| value.to_string()),
        1 => any::<i64>().prop_map(|value| value.to_string()),
        float => (0u32..2_000).prop_map(|value| format!("{}.{}", value / 100, value % 100)),
        float => "[1-9][0-9]{0,2}e-?[0-9]{1,2}",
        1 => "'([a-c\"é]|\\\\.){0,4}'",
        1 => "\"([a-c'é]|\\\\.){0,4}\"",
        1 => prop::sample::select(vec!["getChannel()", "getLocalChannel()", "getMaxChannels()", "getLocalMaxChannels()"])
            .prop_map(str::to_owned),
    ]
}

/// Any expression of the grammar: sub-expressions in parentheses, chains of operators without.
fn expression(floats: Floats) -> impl Strategy<Value = String> {
    let types = match floats {
        Floats::Yes => vec!["boolean", "int64", "float64", "rstring"],
        Floats::No => vec!["boolean", "int64", "rstring"],
    };
    let operand = leaf(floats).prop_recursive(6, 64, 4, move |inner| {
        let operator = prop::sample::select(vec!["||", "&&", "|", "^", "&", "<<", ">>", "+", "-", "*", "/", "%"]);
        let chain = (inner.clone(), prop::collection::vec((operator, inner.clone()), 0..5)).prop_map(|(first, rest)| {
            rest.into_iter().fold(first, |text, (operator, operand)| format!("{text} {operator} {operand}"))
        });
        let comparison = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">=", "in"]);
        prop_oneof![
            3 => chain.prop_map(|chain| format!("({chain})")),
            2 => (inner.clone(), comparison, inner.clone()).prop_map(|(left, operator, right)| format!("({left} {operator} {right})")),
            1 => inner.clone().prop_map(|inner| format!("hash({inner})")),
            1 => (prop::sample::select(vec!["!", "~"]), inner.clone()).prop_map(|(prefix, inner)| format!("({prefix}({inner}))")),
            1 => (prop::sample::select(types.clone()), inner.clone()).prop_map(|(target, inner)| format!("(({target}){inner})")),
            1 => (inner.clone(), inner).prop_map(|(list, index)| format!("(({list})[({index})])")),
        ]
    });
    let joined = prop::sample::select(vec![" || ", " && ", " | ", " & ", " + ", " - ", " * ", " / "]);
    (joined, prop::collection::vec(operand, 1..4)).prop_map(|(operator, operands)| operands.join(operator))
}

fn parse(text: &str) -> Result<Expression, spl_expression::Error> {
    Expression::parse(text, &Limits::default())
}

fn properties(floats: Floats) -> impl Strategy<Value = Properties> {
    let float = if floats == Floats::Yes { 1 } else { 0 };
    let value = || {
        prop_oneof![
            1 => any::<bool>().prop_map(Value::Boolean),
            2 => (-20i64..20).prop_map(|value| Value::Int64(value.into())),
            float => (-20i64..20).prop_map(|value| Value::Float64(value as f64 / 4.0)),
            1 => "[a-c]{0,2}".prop_map(|text| Value::Rstring(text.into())),
        ]
    };
    ([value(), value(), value()]).prop_map(|[a, b, c]| [("a", a), ("b", b), ("c", c)].into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(1_000), ..ProptestConfig::default() })]

    #[test]
    fn printing_and_parsing_is_a_fixpoint(text in expression(Floats::Yes)) {
        let printed = parse(&text).unwrap().to_string();
        prop_assert_eq!(parse(&printed).unwrap().to_string(), printed.as_str());
    }

    #[test]
    fn folding_is_final_and_prints_an_expression(text in expression(Floats::Yes)) {
        if let Ok(folded) = parse(&text).unwrap().substitute_and_fold(&INTRINSICS) {
            let printed = folded.to_string();
            let again = parse(&printed).unwrap();
            prop_assert_eq!(again.to_string(), printed.as_str());
            prop_assert_eq!(again.substitute_and_fold(&INTRINSICS).unwrap().to_string(), printed.as_str());
        }
    }

    /// Without floats: `x + 1 + 2` and `x + 3` differ for a float x that is large enough.
    #[test]
    fn folding_keeps_the_meaning(text in expression(Floats::No), properties in properties(Floats::No)) {
        let text = spl_expression::substitute_intrinsics(&text, &INTRINSICS);
        let written = parse(&text).unwrap();
        match written.substitute_and_fold(&INTRINSICS) {
            Ok(folded) => match (written.evaluate(&properties), folded.evaluate(&properties)) {
                (Evaluation::Error(_), Evaluation::Error(_)) => {}
                (before, after) => prop_assert_eq!(before, after, "{} and {}", written, folded),
            },
            // Refused for a constant part without a value, although another part might have decided.
            Err(error) => prop_assert!(error.offset < text.len()),
        }
    }

    #[test]
    fn any_text_is_answered(text in ".{0,60}") {
        _ = parse(&text).map(|expression| expression.substitute_and_fold(&INTRINSICS));
    }

    #[test]
    fn any_sequence_of_tokens_is_answered(
        tokens in prop::collection::vec(prop::sample::select(vec![
            "a", "1", "-1", "0", "1.5", ".5", "1e", "'", "\"", "\\", "(", ")", "[", "]", "!", "~", "&&", "||", "&", "|", "^", "<<",
            ">>", "<", ">", "=", "==", "+", "-", "*", "/", "%", "in", "hash", "int64", "(rstring)", "getChannel()", " ", "é", "$", "true",
        ]), 0..30),
        properties in properties(Floats::Yes),
    ) {
        if let Ok(expression) = parse(&tokens.concat()) {
            let printed = expression.to_string();
            prop_assert_eq!(parse(&printed).unwrap().to_string(), printed);
            _ = expression.evaluate(&properties);
            _ = expression.substitute_and_fold(&INTRINSICS);
        }
    }

    #[test]
    fn what_is_true_has_its_needs_met(text in expression(Floats::Yes), properties in properties(Floats::Yes)) {
        let expression = parse(&text).unwrap();
        if expression.matches(&properties) && let Needs::OneOf(needs) = expression.needs() {
            prop_assert!(properties.met().any(|met| needs.contains(&met)), "{needs:?}");
        }
    }
}
