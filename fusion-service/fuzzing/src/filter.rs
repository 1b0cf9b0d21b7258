//! A filter: what is accepted can be read by PEs, also when it was printed or freed of its constants.
//!
//! Input: the text.

use spl_expression::{Expression, Limits, List, Properties, Value, is_no_filter};

/// No text: PEs and the expression language have different meanings of `!` before one.
fn properties() -> Properties {
    [
        ("a", Value::Int64(3.into())),
        ("b", Value::Boolean(true)),
        ("d", Value::Float64(-1.5)),
        ("hash", Value::Boolean(false)),
        ("l", Value::List(List::Int64(vec![1.into(), (-7).into()].into()))),
    ]
    .into_iter()
    .collect()
}

/// Runs one input; panics when something does not hold.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let limits = Limits { length: 4096, depth: 64, ..Limits::default() };
    let Ok(filter) = Expression::parse_filter(text, &limits) else { return };
    assert!(!is_no_filter(text), "it is none");
    assert!(is_read_by_pes(text), "PEs do not read it");
    let printed = filter.to_string();
    let again = read_again(&printed);
    let is_meant = filter.check_meaning().is_ok();
    assert_eq!(again.check_meaning().is_ok(), is_meant, "printed: {printed}");
    let properties = properties();
    assert_eq!(again.matches(&properties), filter.matches(&properties), "printed: {printed}");

    let without = filter.without_constants();
    let told = without.to_string();
    let again = read_again(&told);
    assert_eq!(again.without_constants().to_string(), told, "there are more constants");
    assert_eq!(again.constant(), without.constant(), "told: {told}");
    assert_eq!(again.matches(&properties), filter.matches(&properties), "told: {told}");
    assert!(!is_meant || told == printed, "nothing was to be left out: {told}");
}

/// What was printed, as a filter.
fn read_again(printed: &str) -> Expression {
    assert!(is_read_by_pes(printed), "PEs do not read what is printed: {printed}");
    let wide = Limits { depth: 1 << 10, ..Limits::default() };
    let again = Expression::parse_filter(printed, &wide).expect("what was printed can be read");
    assert_eq!(again.to_string(), printed, "printing is not final");
    again
}

/// Whether the parser of PEs comes to the end of the text. It tries what may stand at a place in a fixed order and
/// takes the first that does, whatever follows.
fn is_read_by_pes(text: &str) -> bool {
    any(text.as_bytes()).is_some_and(|rest| skipped(rest).is_empty())
}

/// What is left of a text when a part of it has been read.
type Rest<'t> = Option<&'t [u8]>;

fn skipped(text: &[u8]) -> &[u8] {
    let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t'..=b'\r');
    &text[text.iter().take_while(is_blank).count()..]
}

fn symbol<'t>(text: &'t [u8], symbol: &str) -> Rest<'t> {
    skipped(text).strip_prefix(symbol.as_bytes())
}

fn one_of<'t>(text: &'t [u8], symbols: &[&str]) -> Rest<'t> {
    symbols.iter().find_map(|which| symbol(text, which))
}

fn single<'t>(text: &'t [u8], one: &str, two: &str) -> Rest<'t> {
    if symbol(text, two).is_some() { None } else { symbol(text, one) }
}

/// `first`, and then any number of times what `more` reads.
fn repeated<'t>(first: Rest<'t>, more: impl Fn(&'t [u8]) -> Rest<'t>) -> Rest<'t> {
    let mut rest = first?;
    while let Some(after) = more(rest) {
        rest = after;
    }
    Some(rest)
}

fn any(text: &[u8]) -> Rest<'_> {
    repeated(all(text), |rest| symbol(rest, "||").and_then(all))
}

fn all(text: &[u8]) -> Rest<'_> {
    repeated(bit_or(text), |rest| symbol(rest, "&&").and_then(bit_or))
}

fn bit_or(text: &[u8]) -> Rest<'_> {
    repeated(bit_xor(text), |rest| single(rest, "|", "||").and_then(bit_xor))
}

fn bit_xor(text: &[u8]) -> Rest<'_> {
    repeated(bit_and(text), |rest| symbol(rest, "^").and_then(bit_and))
}

fn bit_and(text: &[u8]) -> Rest<'_> {
    repeated(membership(text), |rest| single(rest, "&", "&&").and_then(membership))
}

fn membership(text: &[u8]) -> Rest<'_> {
    let searched = literal(text).and_then(|rest| symbol(rest, "in")).and_then(comparison);
    searched.or_else(|| comparison(text))
}

fn comparison(text: &[u8]) -> Rest<'_> {
    let left = shift(text)?;
    one_of(left, &["<=", "<", ">=", ">", "==", "!="]).and_then(literal).or(Some(left))
}

fn shift(text: &[u8]) -> Rest<'_> {
    repeated(sum(text), |rest| one_of(rest, &["<<", ">>"]).and_then(integer))
}

fn sum(text: &[u8]) -> Rest<'_> {
    repeated(product(text), |rest| one_of(rest, &["+", "-"]).and_then(number))
}

fn product(text: &[u8]) -> Rest<'_> {
    repeated(element(text), |rest| one_of(rest, &["%", "/", "*"]).and_then(number))
}

fn element(text: &[u8]) -> Rest<'_> {
    let list = one_of(text, &["!", "~"]).and_then(primary).or_else(|| primary(text))?;
    let index = symbol(list, "[").and_then(integer).and_then(|rest| symbol(rest, "]"));
    index.or(Some(list))
}

fn primary(text: &[u8]) -> Rest<'_> {
    let group = || symbol(text, "(").and_then(any).and_then(|rest| symbol(rest, ")"));
    attribute(text).or_else(|| literal(text)).or_else(group)
}

fn attribute(text: &[u8]) -> Rest<'_> {
    let name = skipped(text);
    let length = name.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    let is_name = name.first().is_some_and(|first| !first.is_ascii_digit());
    (length > 0 && is_name).then(|| &name[length..])
}

fn literal(text: &[u8]) -> Rest<'_> {
    number(text).or_else(|| quoted(text)).or_else(|| one_of(text, &["true", "false"]))
}

fn number(text: &[u8]) -> Rest<'_> {
    float(text).or_else(|| integer(text))
}

fn sign(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text)
}

/// Digits whose number fits into a double; nothing is read of others.
fn digits(text: &[u8]) -> Rest<'_> {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&text[..length]).ok()?.parse::<f64>().ok()?;
    number.is_finite().then(|| &text[length..])
}

/// Either a point or an exponent makes a float of a number.
fn float(text: &[u8]) -> Rest<'_> {
    let text = sign(skipped(text));
    let whole = digits(text);
    let point = whole.unwrap_or(text).strip_prefix(b".");
    let rest = match point {
        Some(rest) => digits(rest).or_else(|| whole.map(|_| rest))?,
        None => whole?,
    };
    match rest.first() {
        Some(b'e' | b'E') => digits(sign(&rest[1..])),
        _ => point.map(|_| rest),
    }
}

/// One of 64 bits with a sign may end with `l`, one that only fits without a sign may not.
fn integer(text: &[u8]) -> Rest<'_> {
    let text = skipped(text);
    let unsigned = sign(text);
    let rest = &unsigned[unsigned.iter().take_while(|byte| byte.is_ascii_digit()).count()..];
    let written = std::str::from_utf8(&text[..text.len() - rest.len()]).ok()?;
    match (written.parse::<i64>(), written.parse::<u64>()) {
        (Ok(_), _) => Some(rest.strip_prefix(b"l").unwrap_or(rest)),
        (_, Ok(_)) => Some(rest),
        _ => None,
    }
}

fn quoted(text: &[u8]) -> Rest<'_> {
    let mut rest = symbol(text, "\"")?;
    loop {
        rest = match rest {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', _, rest @ ..] | [_, rest @ ..] => rest,
            [] => return None,
        };
    }
}
