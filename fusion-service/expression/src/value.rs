//! Typed values: literals of expressions, properties of exported streams, results (rule expression-4).
//!
//! Invariants: a list holds elements of one type; an integer has at most 1,024 bits; the text of an rstring is what
//! stands between the quotes, escapes as written, because the language compares texts without decoding them.
//!
//! Knows: types of values. Must not know: operators of the language.

use crate::integer::Integer;
use crate::java::{hash_of_boolean, hash_of_double, hash_of_list, hash_of_text, java_double};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Bytes that an allocator adds to what is asked of it.
const ALLOCATION: usize = 16;
/// Bytes of a text or a list that is shared, beside its own: they have the counts of those who share it.
const SHARED: usize = ALLOCATION + 2 * size_of::<usize>();
/// Bytes of a property beside its name and its value: a node of the map may be filled by half.
const PROPERTY: usize = 2 * (size_of::<String>() + size_of::<Value>());

/// A type without structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScalarType {
    /// `boolean`
    Boolean,
    /// `int64`
    Int64,
    /// `float64`
    Float64,
    /// `rstring`
    Rstring,
}

impl ScalarType {
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "boolean" => Self::Boolean,
            "int64" => Self::Int64,
            "float64" => Self::Float64,
            "rstring" => Self::Rstring,
            _ => return None,
        })
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Int64 => "int64",
            Self::Float64 => "float64",
            Self::Rstring => "rstring",
        }
    }
}

/// The type of a property: one of eight (rule expression-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PropertyType {
    /// A single value.
    Scalar(ScalarType),
    /// `list<...>`
    List(ScalarType),
}

impl fmt::Display for PropertyType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(scalar) => formatter.write_str(scalar.word()),
            Self::List(scalar) => write!(formatter, "list<{}>", scalar.word()),
        }
    }
}

/// Why a property cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The type is none of the eight.
    #[error("{0:?} is no type of a property; the types are boolean, int64, float64, rstring and list<...> of these")]
    UnknownType(String),
    /// A text that is no value of the type.
    #[error("{text:?} is no value of type {expected}")]
    Malformed {
        /// The type that was declared.
        expected: &'static str,
        /// The beginning of the text.
        text: String,
    },
    /// A property that is no list has exactly one value.
    #[error("a property of type {declared} has one value, not {count}")]
    Count {
        /// The type that was declared.
        declared: PropertyType,
        /// How many values were given.
        count: usize,
    },
}

impl FromStr for PropertyType {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let element = text.strip_prefix("list<").and_then(|rest| rest.strip_suffix('>'));
        element
            .map_or_else(
                || ScalarType::from_word(text).map(Self::Scalar),
                |word| ScalarType::from_word(word).map(Self::List),
            )
            .ok_or_else(|| ValueError::UnknownType(beginning_of(text)))
    }
}

/// The elements of a list. Copies share the elements.
#[derive(Clone, Debug, PartialEq)]
pub enum List {
    /// `list<boolean>`
    Boolean(Arc<[bool]>),
    /// `list<int64>`
    Int64(Arc<[Integer]>),
    /// `list<float64>`
    Float64(Arc<[f64]>),
    /// `list<rstring>`
    Rstring(Arc<[Arc<str>]>),
}

impl List {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Boolean(elements) => elements.len(),
            Self::Int64(elements) => elements.len(),
            Self::Float64(elements) => elements.len(),
            Self::Rstring(elements) => elements.len(),
        }
    }

    fn element_type(&self) -> ScalarType {
        match self {
            Self::Boolean(_) => ScalarType::Boolean,
            Self::Int64(_) => ScalarType::Int64,
            Self::Float64(_) => ScalarType::Float64,
            Self::Rstring(_) => ScalarType::Rstring,
        }
    }

    /// The element at a position, counted from 0.
    pub(crate) fn get(&self, index: usize) -> Option<Value> {
        match self {
            Self::Boolean(elements) => elements.get(index).copied().map(Value::Boolean),
            Self::Int64(elements) => elements.get(index).cloned().map(Value::Int64),
            Self::Float64(elements) => elements.get(index).copied().map(Value::Float64),
            Self::Rstring(elements) => elements.get(index).cloned().map(Value::Rstring),
        }
    }
}

/// A value of the expression language. Copies of texts and lists share their content.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `true` or `false`.
    Boolean(bool),
    /// An integer.
    Int64(Integer),
    /// A double.
    Float64(f64),
    /// A text: what stands between the quotes, escapes as written.
    Rstring(Arc<str>),
    /// A list.
    List(List),
}

impl Value {
    /// Reads a property: its type and its values as they stand in the ADL, texts with their quotes (rule expression-5).
    ///
    /// # Errors
    ///
    /// [`ValueError`] when a text is no value of the type, or a property that is no list has not exactly one value.
    pub fn parse<T: AsRef<str>>(declared: PropertyType, values: &[T]) -> Result<Self, ValueError> {
        match (declared, values) {
            (PropertyType::Scalar(ScalarType::Boolean), [value]) => boolean(value.as_ref()).map(Self::Boolean),
            (PropertyType::Scalar(ScalarType::Int64), [value]) => integer(value.as_ref()).map(Self::Int64),
            (PropertyType::Scalar(ScalarType::Float64), [value]) => float(value.as_ref()).map(Self::Float64),
            (PropertyType::Scalar(ScalarType::Rstring), [value]) => quoted(value.as_ref()).map(Self::Rstring),
            (PropertyType::Scalar(_), _) => Err(ValueError::Count { declared, count: values.len() }),
            (PropertyType::List(element), _) => {
                let values = values.iter().map(AsRef::as_ref);
                Ok(Self::List(match element {
                    ScalarType::Boolean => List::Boolean(values.map(boolean).collect::<Result<_, _>>()?),
                    ScalarType::Int64 => List::Int64(values.map(integer).collect::<Result<_, _>>()?),
                    ScalarType::Float64 => List::Float64(values.map(float).collect::<Result<_, _>>()?),
                    ScalarType::Rstring => List::Rstring(values.map(quoted).collect::<Result<_, _>>()?),
                }))
            }
        }
    }

    /// The type of the value.
    #[must_use]
    pub fn property_type(&self) -> PropertyType {
        match self {
            Self::Boolean(_) => PropertyType::Scalar(ScalarType::Boolean),
            Self::Int64(_) => PropertyType::Scalar(ScalarType::Int64),
            Self::Float64(_) => PropertyType::Scalar(ScalarType::Float64),
            Self::Rstring(_) => PropertyType::Scalar(ScalarType::Rstring),
            Self::List(list) => PropertyType::List(list.element_type()),
        }
    }

    /// Octets or elements that an operation on the value may have to look at.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Boolean(_) | Self::Float64(_) => 1,
            Self::Int64(integer) => 1 + integer.size(),
            Self::Rstring(text) => 1 + text.len(),
            Self::List(List::Rstring(elements)) => 1 + elements.iter().map(|text| 1 + text.len()).sum::<usize>(),
            Self::List(List::Int64(elements)) => 1 + elements.iter().map(|integer| 1 + integer.size()).sum::<usize>(),
            Self::List(list) => 1 + list.len(),
        }
    }

    /// Bytes of the heap that the value takes.
    fn memory(&self) -> usize {
        let of_elements = |elements: usize, each: usize| SHARED + elements * each;
        match self {
            Self::Boolean(_) | Self::Float64(_) => 0,
            Self::Int64(integer) => ALLOCATION + integer.memory(),
            Self::Rstring(text) => SHARED + text.len(),
            Self::List(List::Boolean(elements)) => of_elements(elements.len(), size_of::<bool>()),
            Self::List(List::Float64(elements)) => of_elements(elements.len(), size_of::<f64>()),
            Self::List(List::Int64(elements)) => {
                let numbers = elements.iter().map(|integer| ALLOCATION + integer.memory()).sum::<usize>();
                of_elements(elements.len(), size_of::<Integer>()) + numbers
            }
            Self::List(List::Rstring(elements)) => {
                let texts = elements.iter().map(|text| SHARED + text.len()).sum::<usize>();
                of_elements(elements.len(), size_of::<Arc<str>>()) + texts
            }
        }
    }

    /// Writes what tells the value from all others.
    fn write(&self, write: &mut impl FnMut(&[u8])) {
        fn text(text: &str, write: &mut impl FnMut(&[u8])) {
            write(&text.len().to_le_bytes());
            write(text.as_bytes());
        }
        text(&self.property_type().to_string(), write);
        match self {
            Self::Boolean(value) => write(&[u8::from(*value)]),
            Self::Int64(value) => value.write(write),
            Self::Float64(value) => write(&value.to_bits().to_le_bytes()),
            Self::Rstring(value) => text(value, write),
            Self::List(list) => {
                write(&list.len().to_le_bytes());
                match list {
                    List::Boolean(elements) => elements.iter().for_each(|element| write(&[u8::from(*element)])),
                    List::Int64(elements) => elements.iter().for_each(|element| element.write(write)),
                    List::Float64(elements) => {
                        elements.iter().for_each(|element| write(&element.to_bits().to_le_bytes()));
                    }
                    List::Rstring(elements) => elements.iter().for_each(|element| text(element, write)),
                }
            }
        }
    }

    /// Whether the language has a literal for the value: not for lists, negative or infinite floats, NaN, and texts
    /// with quotes of both kinds.
    pub(crate) fn has_literal(&self) -> bool {
        #[cfg(test)]
        LOOKS_FOR_LITERALS.set(looks_for_literals() + 1);
        match self {
            Self::Boolean(_) | Self::Int64(_) => true,
            Self::Float64(value) => value.is_finite() && value.is_sign_positive(),
            Self::Rstring(text) => quote_for(text).is_some(),
            Self::List(_) => false,
        }
    }

    /// Java's `hashCode` of the value, which is what `hash()` gives (rule expression-6).
    pub(crate) fn java_hash(&self) -> i32 {
        match self {
            Self::Boolean(value) => hash_of_boolean(*value),
            Self::Int64(value) => value.java_hash(),
            Self::Float64(value) => hash_of_double(*value),
            Self::Rstring(text) => hash_of_text(text),
            Self::List(List::Boolean(elements)) => hash_of_list(elements.iter().copied().map(hash_of_boolean)),
            Self::List(List::Int64(elements)) => hash_of_list(elements.iter().map(Integer::java_hash)),
            Self::List(List::Float64(elements)) => hash_of_list(elements.iter().copied().map(hash_of_double)),
            Self::List(List::Rstring(elements)) => hash_of_list(elements.iter().map(|text| hash_of_text(text))),
        }
    }
}

/// The value as a literal where the language has one, else as SPL would write it: `-1.5`, `[1,2]`.
impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn sequence<T>(
            formatter: &mut fmt::Formatter<'_>,
            elements: &[T],
            write: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
        ) -> fmt::Result {
            formatter.write_str("[")?;
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    formatter.write_str(",")?;
                }
                write(formatter, element)?;
            }
            formatter.write_str("]")
        }
        fn text(formatter: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
            let quote = quote_for(text).unwrap_or('"');
            write!(formatter, "{quote}{text}{quote}")
        }
        match self {
            Self::Boolean(value) => value.fmt(formatter),
            Self::Int64(value) => value.fmt(formatter),
            Self::Float64(value) => formatter.write_str(&java_double(*value)),
            Self::Rstring(value) => text(formatter, value),
            Self::List(List::Boolean(elements)) => sequence(formatter, elements, |out, value| value.fmt(out)),
            Self::List(List::Int64(elements)) => sequence(formatter, elements, |out, value| value.fmt(out)),
            Self::List(List::Float64(elements)) => {
                sequence(formatter, elements, |out, value| out.write_str(&java_double(*value)))
            }
            Self::List(List::Rstring(elements)) => sequence(formatter, elements, |out, value| text(out, value)),
        }
    }
}

#[cfg(test)]
std::thread_local! {
    static LOOKS_FOR_LITERALS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How often this thread has asked whether a value has a literal.
#[cfg(test)]
pub(crate) fn looks_for_literals() -> usize {
    LOOKS_FOR_LITERALS.get()
}

/// The quote that can stand around a text, double ones if possible. Nothing if the text has unescaped quotes of both
/// kinds or ends within an escape.
fn quote_for(text: &str) -> Option<char> {
    let (mut single, mut double) = (false, false);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => _ = characters.next()?,
            '\'' => single = true,
            '"' => double = true,
            _ => {}
        }
    }
    match (double, single) {
        (false, _) => Some('"'),
        (true, false) => Some('\''),
        (true, true) => None,
    }
}

/// The beginning of a text for a message.
pub(crate) fn beginning_of(text: &str) -> String {
    const SHOWN: usize = 40;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn malformed(expected: ScalarType, text: &str) -> ValueError {
    ValueError::Malformed { expected: expected.word(), text: beginning_of(text) }
}

fn boolean(text: &str) -> Result<bool, ValueError> {
    text.parse().map_err(|_| malformed(ScalarType::Boolean, text))
}

fn integer(text: &str) -> Result<Integer, ValueError> {
    Integer::parse(text).ok_or_else(|| malformed(ScalarType::Int64, text))
}

fn float(text: &str) -> Result<f64, ValueError> {
    parse_float(text).ok_or_else(|| malformed(ScalarType::Float64, text))
}

fn quoted(text: &str) -> Result<Arc<str>, ValueError> {
    let content = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    content.map(Arc::from).ok_or_else(|| malformed(ScalarType::Rstring, text))
}

/// A decimal number, `NaN` or `Infinity`, with an optional sign; not Rust's other spellings of the last two.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let known = matches!(unsigned, "NaN" | "Infinity")
        || unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    if known { text.parse().ok() } else { None }
}

/// The properties of an exported stream, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties {
    by_name: BTreeMap<String, Value>,
    /// What it takes to look at all of them once.
    size: usize,
}

impl Properties {
    /// No properties.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a property; one of the same name is replaced.
    pub fn insert(&mut self, name: impl Into<String>, value: Value) {
        self.size += value.size();
        if let Some(before) = self.by_name.insert(name.into(), value) {
            self.size -= before.size();
        }
    }

    /// Octets and elements of all values.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn memory(&self) -> usize {
        let each = self.by_name.iter().map(|(name, value)| PROPERTY + name.len() + value.memory());
        size_of::<Self>() + each.sum::<usize>()
    }

    /// Writes, piece by piece, what tells these properties from all others.
    pub fn write(&self, write: &mut impl FnMut(&[u8])) {
        for (name, value) in &self.by_name {
            write(&name.len().to_le_bytes());
            write(name.as_bytes());
            value.write(write);
        }
    }

    /// All of them, ordered by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.by_name.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The property of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.by_name.get(name)
    }
}

impl<N: Into<String>> FromIterator<(N, Value)> for Properties {
    fn from_iter<I: IntoIterator<Item = (N, Value)>>(properties: I) -> Self {
        let mut all = Self::new();
        for (name, value) in properties {
            all.insert(name, value);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(declared: &str, values: &[&str]) -> Result<String, ValueError> {
        Value::parse(declared.parse()?, values).map(|value| value.to_string())
    }

    #[test]
    fn properties_as_the_adl_writes_them() {
        let table: &[(&str, &[&str], &str)] = &[
            ("boolean", &["true"], "true"),
            ("int64", &["-1"], "-1"),
            ("float64", &["2.5"], "2.5"),
            ("float64", &["-3"], "-3.0"),
            ("float64", &["1e10"], "1.0E10"),
            ("rstring", &["\"tech\""], "\"tech\""),
            ("rstring", &["\"a<b>&\\\"c\\\"\""], "\"a<b>&\\\"c\\\"\""),
            ("rstring", &["\"\""], "\"\""),
            ("list<boolean>", &["true", "false"], "[true,false]"),
            ("list<int64>", &["1", "2", "3"], "[1,2,3]"),
            ("list<int64>", &[], "[]"),
            ("list<float64>", &["0.5"], "[0.5]"),
            ("list<rstring>", &["\"A\"", "\"B, C\""], "[\"A\",\"B, C\"]"),
        ];
        for (declared, values, printed) in table {
            assert_eq!(parse(declared, values).as_deref(), Ok(*printed), "{declared} {values:?}");
            let declared: PropertyType = declared.parse().unwrap();
            assert_eq!(Value::parse(declared, values).unwrap().property_type(), declared);
            assert_eq!(declared.to_string().parse(), Ok(declared));
        }
    }

    #[test]
    fn malformed_properties() {
        let table: &[(&str, &[&str], &str)] = &[
            ("int32", &["1"], "\"int32\" is no type of a property"),
            ("list<list<int64>>", &["1"], "\"list<list<int64>>\" is no type of a property"),
            ("boolean", &["TRUE"], "\"TRUE\" is no value of type boolean"),
            ("int64", &["1.5"], "\"1.5\" is no value of type int64"),
            ("int64", &[""], "\"\" is no value of type int64"),
            ("float64", &["inf"], "\"inf\" is no value of type float64"),
            ("float64", &["0x10"], "\"0x10\" is no value of type float64"),
            ("rstring", &["tech"], "\"tech\" is no value of type rstring"),
            ("rstring", &["\""], "\"\\\"\" is no value of type rstring"),
            ("list<rstring>", &["\"A\"", "B"], "\"B\" is no value of type rstring"),
            ("int64", &[], "a property of type int64 has one value, not 0"),
            ("int64", &["1", "2"], "a property of type int64 has one value, not 2"),
        ];
        for (declared, values, message) in table {
            let error = parse(declared, values).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
        let long = "x".repeat(1_000);
        assert!(parse("int64", &[&long]).unwrap_err().to_string().len() < 100);
    }

    #[test]
    fn what_is_written_of_properties_tells_them_from_all_others() {
        let text = |text: &str| Value::Rstring(text.into());
        let texts = |texts: &[&str]| Value::List(List::Rstring(texts.iter().map(|text| Arc::from(*text)).collect()));
        let numbers = |numbers: &[i64]| Value::List(List::Int64(numbers.iter().map(|n| (*n).into()).collect()));
        // each is another one
        let table: [&[(&str, Value)]; 18] = [
            &[],
            &[("a", text(""))],
            &[("a", text("b"))],
            &[("ab", text(""))],
            &[("a", text("")), ("b", text(""))],
            &[("a", texts(&[]))],
            &[("a", texts(&["b"]))],
            &[("a", texts(&["b", "c"]))],
            &[("a", texts(&["bc", ""]))],
            &[("a", texts(&["b\", \"c"]))],
            &[("a", Value::Boolean(true))],
            &[("a", Value::Int64(1.into()))],
            &[("a", Value::Int64((-1).into()))],
            &[("a", Value::Int64(255.into()))],
            &[("a", Value::Float64(1.0))],
            &[("a", numbers(&[1]))],
            &[("a", numbers(&[1, 1]))],
            &[("a", numbers(&[257]))],
        ];
        let written = |row: &[(&str, Value)]| {
            let properties: Properties = row.iter().map(|(name, value)| (*name, value.clone())).collect();
            let mut all = Vec::new();
            properties.write(&mut |octets| all.extend_from_slice(octets));
            all
        };
        for (at, row) in table.iter().enumerate() {
            assert_eq!(written(row), written(row));
            let same = table.iter().enumerate().filter(|(_, other)| written(other) == written(row));
            assert_eq!(same.map(|(at, _)| at).collect::<Vec<_>>(), [at], "{row:?}");
        }
    }

    #[test]
    fn memory_is_what_is_kept_and_not_what_is_written() {
        let of = |value: Value| Properties::from_iter([("a", value)]).memory();
        let nothing = of(Value::Boolean(true));
        let texts = |count: usize| Value::List(List::Rstring((0..count).map(|_| Arc::from("x")).collect()));
        let numbers = |count: usize| Value::List(List::Int64((0..count).map(|_| 7.into()).collect()));
        // value -> octets of it beside those of a boolean
        let table = [
            (Value::Float64(1.5), 0),
            (Value::Rstring("x".repeat(1_000).into()), SHARED + 1_000),
            (texts(1_000), SHARED + 1_000 * (16 + SHARED + 1)),
            (numbers(1_000), SHARED + 1_000 * (size_of::<Integer>() + ALLOCATION + 8)),
            (Value::List(List::Float64([1.5; 1_000].into())), SHARED + 8_000),
        ];
        for (value, expected) in table {
            assert_eq!(of(value.clone()) - nothing, expected, "{}", value.property_type());
        }
    }

    #[test]
    fn quotes() {
        let table = [
            ("a", Some('"')),
            ("it's", Some('"')),
            ("a\"b", Some('\'')),
            ("a\\\"b", Some('"')),
            ("'\"", None),
            ("a\\", None),
        ];
        for (text, quote) in table {
            assert_eq!(quote_for(text), quote, "{text}");
        }
    }
}
