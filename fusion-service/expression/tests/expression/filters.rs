//! Filters as the parser of PEs has them (rule expression-15): each can be read here, and is printed as it is meant.
//!
//! The filters are made by the grammar, each beside its canonical text, of the bytes of a test.

use proptest::prelude::*;
use spl_expression::{Expression, Limits, java_double};

/// What is left of the bytes. When there are none, all choices are the first ones.
struct Choices<'b>(&'b [u8]);

impl Choices<'_> {
    fn below(&mut self, count: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % count
    }

    fn of<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len())]
    }

    fn digits(&mut self, least: usize) -> String {
        let count = least + self.below(4);
        (0..count).map(|_| char::from(b'0' + self.below(10) as u8)).collect()
    }

    fn blank(&mut self) -> &'static str {
        self.of(&[" ", "", "", "\t", "\r\n", "\u{b}", " \u{c} "])
    }

    fn is_so(&mut self) -> bool {
        self.below(2) == 1
    }
}

/// A part of a filter, as somebody writes it and as it is printed.
#[derive(Clone, Debug)]
struct Part {
    written: String,
    printed: String,
}

impl Part {
    fn alike(text: &str) -> Self {
        Self { written: text.to_owned(), printed: text.to_owned() }
    }

    fn of_word(choices: &mut Choices<'_>, words: &[&str]) -> Self {
        Self::alike(choices.of(words))
    }

    /// Both, with an operator in between.
    fn joined(self, choices: &mut Choices<'_>, operator: &str, right: &Self) -> Self {
        // `in` is a word: nothing separates it from another one but a blank.
        let least = if operator == "in" { " " } else { "" };
        let (before, after) = (choices.blank(), choices.blank());
        let written = format!("{}{before}{least}{operator}{least}{after}{}", self.written, right.written);
        Self { written, printed: format!("{} {operator} {}", self.printed, right.printed) }
    }

    fn in_parentheses(self, choices: &mut Choices<'_>) -> Self {
        let (before, after) = (choices.blank(), choices.blank());
        Self { written: format!("({before}{}{after})", self.written), printed: format!("({})", self.printed) }
    }

    fn after(self, choices: &mut Choices<'_>, prefix: &str) -> Self {
        let blank = choices.blank();
        Self { written: format!("{prefix}{blank}{}", self.written), printed: format!("{prefix}{}", self.printed) }
    }
}

fn integer(choices: &mut Choices<'_>) -> Part {
    let sign = choices.of(&["", "-", "+"]);
    let digits = match choices.below(8) {
        0 => "9223372036854775807".to_owned(),
        _ => choices.digits(1),
    };
    let suffix = choices.of(&["", "", "l"]);
    let printed = format!("{sign}{digits}").parse::<i64>().unwrap();
    Part { written: format!("{sign}{digits}{suffix}"), printed: printed.to_string() }
}

fn float(choices: &mut Choices<'_>) -> Part {
    let sign = choices.of(&["-", "", "+"]);
    let (whole, fraction) = (choices.digits(1), choices.digits(1));
    let exponent = choices.of(&["e5", "E-05", "e+10", "e-300", "E0"]);
    let written = match choices.below(6) {
        0 => format!("{sign}{whole}.{fraction}"),
        1 => format!("{sign}{whole}."),
        2 => format!("{sign}.{fraction}"),
        3 => format!("{sign}{whole}{exponent}"),
        4 => format!("{sign}{whole}.{exponent}"),
        _ => format!("{sign}{whole}.{fraction}{exponent}"),
    };
    let printed = java_double(written.parse().unwrap());
    Part { written, printed }
}

fn number(choices: &mut Choices<'_>) -> Part {
    if choices.is_so() { float(choices) } else { integer(choices) }
}

fn literal(choices: &mut Choices<'_>) -> Part {
    match choices.below(5) {
        0 | 1 => number(choices),
        2 => Part::of_word(choices, &["18446744073709551615", "9223372036854775808"]),
        3 => Part::of_word(choices, &[r#""""#, r#""a b""#, r#""\"q\" \x41 \u00e9""#, "\"\u{e9}'\""]),
        _ => Part::of_word(choices, &["true", "false"]),
    }
}

fn attribute(choices: &mut Choices<'_>) -> Part {
    Part::of_word(choices, &["a", "hash", "_x1", "getChannel", "insert", "E1", "truth", "l"])
}

/// An attribute, or an element of one.
fn element(choices: &mut Choices<'_>) -> Part {
    let attribute = attribute(choices);
    if choices.below(3) > 0 {
        return attribute;
    }
    let index = integer(choices);
    let blanks = [choices.blank(), choices.blank(), choices.blank()];
    Part {
        written: format!("{}{}[{}{}{}]", attribute.written, blanks[0], blanks[1], index.written, blanks[2]),
        printed: format!("{}[{}]", attribute.printed, index.printed),
    }
}

/// How tightly the outermost operator of a value binds, and whether it is made by arithmetic.
type Value = (Part, usize, bool);

const OPERATORS: [&[&str]; 6] = [&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"], &["*", "/", "%"]];
/// That of what has no operator around it.
const TIGHTEST: usize = OPERATORS.len();

fn value(choices: &mut Choices<'_>, depth: usize) -> Value {
    let kind = if depth == 0 { 0 } else { choices.below(6) };
    match kind {
        0 | 1 => (element(choices), TIGHTEST, false),
        2 => {
            let (inner, _, is_number) = value(choices, depth - 1);
            (inner.in_parentheses(choices), TIGHTEST, is_number)
        }
        3 => match (value(choices, depth - 1), choices.is_so()) {
            ((inner, _, true), true) => (inner.in_parentheses(choices).after(choices, "~"), TIGHTEST, true),
            ((inner, _, is_number), _) => (inner.in_parentheses(choices).after(choices, "!"), TIGHTEST, is_number),
        },
        4 => (element(choices).after(choices, "~"), TIGHTEST, true),
        _ => {
            let (inner, binds, _) = value(choices, depth - 1);
            let precedence = choices.below(TIGHTEST);
            let operator = choices.of(OPERATORS[precedence]);
            let left = if binds < precedence { inner.in_parentheses(choices) } else { inner };
            // The right side of `+` may be a float, that of `<<` may not.
            let right = if precedence >= 4 { number(choices) } else { integer(choices) };
            (left.joined(choices, operator, &right), precedence, true)
        }
    }
}

/// How tightly the outermost operator of a condition binds: `||`, `&&`, or something else.
fn condition(choices: &mut Choices<'_>, depth: usize) -> (Part, usize) {
    let kind = if depth == 0 { choices.below(3) } else { choices.below(7) };
    match kind {
        0 => {
            let (left, binds, _) = value(choices, 3);
            let left = if binds < 3 { left.in_parentheses(choices) } else { left };
            let comparison = choices.of(&["<", "<=", ">", ">=", "==", "!="]);
            let right = literal(choices);
            (left.joined(choices, comparison, &right), 2)
        }
        1 => {
            let (left, right) = (literal(choices), element(choices));
            (left.joined(choices, "in", &right), 2)
        }
        2 => {
            let element = element(choices);
            (if choices.is_so() { element.after(choices, "!") } else { element }, 2)
        }
        3 => (condition(choices, depth - 1).0.in_parentheses(choices), 2),
        4 => (condition(choices, depth - 1).0.in_parentheses(choices).after(choices, "!"), 2),
        kind => {
            let operator = kind - 5;
            let side = |choices: &mut Choices<'_>, least: usize| {
                let (part, binds) = condition(choices, depth - 1);
                if binds < least { part.in_parentheses(choices) } else { part }
            };
            let (left, right) = (side(choices, operator), side(choices, operator + 1));
            (left.joined(choices, ["||", "&&"][operator], &right), operator)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2_000), ..ProptestConfig::default() })]

    #[test]
    fn what_the_grammar_of_pes_has_is_read_and_printed_as_it_is_meant(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut choices = Choices(&bytes);
        let Part { written, printed } = condition(&mut choices, 4).0;
        let written = format!("{}{written}{}", choices.blank(), choices.blank());
        let filter = Expression::parse_filter(&written, &Limits::default());
        prop_assert_eq!(filter.map(|filter| filter.to_string()), Ok(printed.clone()), "{}", written);
        let again = Expression::parse_filter(&printed, &Limits::default());
        prop_assert_eq!(again.map(|filter| filter.to_string()), Ok(printed));
    }
}
