//! Filters: what PEs can read (rule expression-15).
//!
//! The filter of an import is evaluated by the PEs that export to it, tuple by tuple, in a language of their own: a
//! part of the expression language, but for numbers with a sign and for blanks. Whoever hands a filter on asks here
//! first, because a PE ends that is sent one which it cannot read. So it is refused here what their parser does not
//! read to its end, what it takes for no condition, or for two, and texts whose escapes it cannot decode. What it
//! reads and can make nothing of, such as the name of an attribute that there is not, is not known here. But there is
//! what the text alone tells that PEs take it for something else, and would send other tuples: whoever hands a filter
//! on asks for [`Expression::check_meaning`] besides.
//!
//! Knows: what may stand where. Must not know: attributes, their types, how a filter is evaluated.
//!
//! Invariants: what is printed of a filter is one, and so is what [`Expression::without_constants`] makes of it.

use crate::expression::{Expression, Kind, Node, NodeId};
use crate::integer::Integer;
use crate::operation::{Binary, Precedence, Prefix};
use crate::token::{Dialect, FILTER_BLANKS};
use crate::value::Value;
use crate::{Error, Limits};

/// What a part of a filter is to what stands around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// An integer of 64 bits with a sign.
    Integer,
    /// An integer of 64 bits that only fits without a sign.
    Unsigned,
    Float,
    Text,
    /// `true` or `false`: a literal where one has to stand, else the name of an attribute.
    Truth,
    /// An attribute, or an element of one. It is a condition on its own, or can be compared.
    Attribute,
    /// An attribute with `!` before it, or in parentheses: likewise, but it stands in no place for an attribute only.
    Wrapped,
    /// What is made of an attribute by arithmetic: it has to be compared.
    Number,
    Condition,
}

impl Part {
    fn is_literal(self) -> bool {
        matches!(self, Self::Integer | Self::Unsigned | Self::Float | Self::Text | Self::Truth)
    }

    fn is_condition(self) -> bool {
        matches!(self, Self::Truth | Self::Attribute | Self::Wrapped | Self::Condition)
    }

    fn is_of_attribute(self) -> bool {
        matches!(self, Self::Truth | Self::Attribute | Self::Wrapped | Self::Number)
    }
}

/// What a part of a filter is to a `!` before it, as PEs take it: that turns the next condition that they make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// An attribute, or an element of one.
    Attribute,
    /// What is made of an attribute by arithmetic.
    Arithmetic,
    /// One comparison.
    Comparison,
    /// Something else, or something with a `!` already.
    Other,
}

/// What is left of a node when constants are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `true` or `false`.
    Constant(bool),
    /// The node at this place: itself, or an operand of it.
    Node(usize),
}

/// Levels of brackets of a filter at most. Parsers of PEs recurse, and count levels in a way that is only good for
/// some sixty of them; what PEs write themselves has few.
const DEPTH: usize = 32;

/// Whether a text stands for no filter: PEs take blanks off both ends before they look whether anything is there.
#[must_use]
pub fn is_no_filter(text: &str) -> bool {
    text.trim_matches(FILTER_BLANKS).is_empty()
}

impl Expression {
    /// Reads a filter.
    ///
    /// # Errors
    /// PEs cannot read the text, or it stands for no filter ([`is_no_filter`]), or it is longer or deeper than the
    /// limits, or deeper than PEs can count.
    pub fn parse_filter(text: &str, limits: &Limits) -> Result<Self, Error> {
        // PEs read up to the first of them.
        if let Some(offset) = text.find('\0') {
            return Err(Error { message: "a filter has no zero characters".to_owned(), offset });
        }
        let limits = Limits { depth: limits.depth.min(DEPTH), ..*limits };
        let filter = Self::read(text, Dialect::Filters, &limits)?;
        filter.check_as_filter().map(|()| filter)
    }

    fn check_as_filter(&self) -> Result<(), Error> {
        let mut parts = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let part = self.part(node, &parts).map_err(|problem| refused(node, problem))?;
            parts.push(part);
        }
        match (parts.last(), self.nodes.last()) {
            (Some(part), Some(node)) if !part.is_condition() => Err(refused(node, "a filter is a condition")),
            _ => Ok(()),
        }
    }

    /// Whether PEs take a filter for what it says. The expression has to be a filter.
    ///
    /// # Errors
    /// They take it for something else, or refuse it and send all tuples.
    pub fn check_meaning(&self) -> Result<(), Error> {
        self.check_constants()?;
        let mut shapes = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let shape = self.shape(node, &shapes).map_err(|problem| refused(node, problem))?;
            shapes.push(shape);
        }
        Ok(())
    }

    /// What a node is to a `!` before it, given what its operands are. The problem is one sentence without a full stop.
    fn shape(&self, node: &Node, shapes: &[Shape]) -> Result<Shape, &'static str> {
        const NOT: &str = "! stands before one attribute or one comparison in a filter";
        match &node.kind {
            Kind::Word(range) => {
                if after_constant_and_in(self.word(range)).is_some() {
                    Err("PEs read a name that begins so as a constant and in")
                } else {
                    Ok(Shape::Attribute)
                }
            }
            Kind::Group(inner) => Ok(shapes[inner.index()]),
            Kind::Subscript { list, index } => match self.integer(*index) {
                Some(index) if index.is_negative() => Err("PEs have no elements with negative indexes"),
                _ => Ok(shapes[list.index()]),
            },
            Kind::Prefix { operator: Prefix::Not, operand } => match shapes[operand.index()] {
                Shape::Attribute | Shape::Comparison => Ok(Shape::Other),
                Shape::Arithmetic | Shape::Other => Err(NOT),
            },
            Kind::Prefix { operator: Prefix::Complement, .. } => Ok(Shape::Arithmetic),
            Kind::Binary { operator, left, right } => {
                let is_plain = matches!(shapes[left.index()], Shape::Attribute | Shape::Arithmetic);
                match operator.precedence() {
                    Precedence::Or | Precedence::And | Precedence::In => Ok(Shape::Other),
                    Precedence::Relational if is_plain => Ok(Shape::Comparison),
                    Precedence::Relational => Ok(Shape::Other),
                    _ if !is_plain => Err(NOT),
                    _ => match (operator, self.integer(*right)) {
                        (_, None) => Err("PEs calculate with integers only"),
                        (Binary::Divide | Binary::Remainder, Some(divisor)) if divisor.is_zero() => {
                            Err("PEs do not divide by zero")
                        }
                        _ => Ok(Shape::Arithmetic),
                    },
                }
            }
            Kind::Literal(_) | Kind::Intrinsic(_) | Kind::Hash(_) | Kind::Cast { .. } => Ok(Shape::Other),
        }
    }

    /// The integer that a node is, if it is one.
    fn integer(&self, id: NodeId) -> Option<&Integer> {
        match &self.nodes[id.index()].kind {
            Kind::Literal(Value::Int64(integer)) => Some(integer),
            _ => None,
        }
    }

    /// Whether no `true` or `false` of a filter stands where a condition or an attribute does: PEs take it for the name
    /// of an attribute there.
    fn check_constants(&self) -> Result<(), Error> {
        let mut is_literal = vec![false; self.nodes.len()];
        for node in &self.nodes {
            let Kind::Binary { operator, left, right } = &node.kind else { continue };
            match operator.precedence() {
                Precedence::Relational => is_literal[right.index()] = true,
                Precedence::In => is_literal[left.index()] = true,
                _ => {}
            }
        }
        let mut misplaced = self.nodes.iter().zip(is_literal).filter(|(node, is_literal)| {
            let is_truth = self.truth(node).is_some();
            is_truth && !is_literal
        });
        let problem = "PEs take true and false for names of attributes where a condition stands";
        misplaced.next().map_or(Ok(()), |(node, _)| Err(refused(node, problem)))
    }

    /// A filter without the `true` and `false` that decide nothing, or that decide: `a && true` is `a`, `a || true` is
    /// `true`. The expression has to be a filter.
    #[must_use]
    pub fn without_constants(&self) -> Self {
        let mut forms: Vec<Form> = Vec::with_capacity(self.nodes.len());
        for (place, node) in self.nodes.iter().enumerate() {
            forms.push(self.form(place, node, &forms));
        }
        // What other operators take stays as it is written.
        let stays = |id: NodeId| match forms[id.index()] {
            Form::Constant(_) => id.index(),
            Form::Node(place) => place,
        };
        let mut is_kept = vec![false; self.nodes.len()];
        match (forms.last(), self.nodes.last()) {
            (Some(Form::Node(root)), _) => is_kept[*root] = true,
            (Some(Form::Constant(truth)), Some(root)) => {
                let constant = Node { kind: Kind::Literal(Value::Boolean(*truth)), offset: root.offset };
                return Self { source: self.source.clone(), nodes: vec![constant] };
            }
            (None, _) | (_, None) => {}
        }
        for (place, node) in self.nodes.iter().enumerate().rev() {
            if is_kept[place] {
                node.kind.operands().into_iter().flatten().for_each(|operand| is_kept[stays(operand)] = true);
            }
        }
        let mut nodes = Vec::new();
        let mut places = vec![NodeId::before(0); self.nodes.len()];
        for (place, node) in self.nodes.iter().enumerate().filter(|(place, _)| is_kept[*place]) {
            let kind = node.kind.with_operands(|operand| places[stays(operand)]);
            nodes.push(Node { kind, offset: node.offset });
            places[place] = NodeId::before(nodes.len());
        }
        Self { source: self.source.clone(), nodes }
    }

    /// What is left of a node, given what is left of its operands.
    fn form(&self, place: usize, node: &Node, forms: &[Form]) -> Form {
        let of = |id: &NodeId| forms[id.index()];
        match &node.kind {
            Kind::Word(_) | Kind::Literal(_) => self.truth(node).map_or(Form::Node(place), Form::Constant),
            Kind::Group(inner) => match of(inner) {
                constant @ Form::Constant(_) => constant,
                Form::Node(_) => Form::Node(place),
            },
            Kind::Prefix { operator: Prefix::Not, operand } => match of(operand) {
                Form::Constant(truth) => Form::Constant(!truth),
                Form::Node(_) => Form::Node(place),
            },
            Kind::Binary { operator: operator @ (Binary::And | Binary::Or), left, right } => {
                let decides = *operator == Binary::Or;
                match (of(left), of(right)) {
                    (Form::Constant(truth), other) | (other, Form::Constant(truth)) => {
                        if truth == decides {
                            Form::Constant(truth)
                        } else {
                            other
                        }
                    }
                    _ => Form::Node(place),
                }
            }
            _ => Form::Node(place),
        }
    }

    /// Which one a node is of `true` and `false`.
    fn truth(&self, node: &Node) -> Option<bool> {
        match &node.kind {
            Kind::Word(range) => match self.word(range) {
                "true" => Some(true),
                "false" => Some(false),
                _ => None,
            },
            Kind::Literal(Value::Boolean(truth)) => Some(*truth),
            _ => None,
        }
    }

    /// Which one it is, if it is nothing but `true` or `false`.
    #[must_use]
    pub fn constant(&self) -> Option<bool> {
        match &*self.nodes {
            [constant] => self.truth(constant),
            _ => None,
        }
    }

    /// What a node is, given what its operands are. The problem is one sentence without a full stop.
    fn part(&self, node: &Node, parts: &[Part]) -> Result<Part, &'static str> {
        match &node.kind {
            Kind::Word(range) => match self.word(range) {
                "true" | "false" => Ok(Part::Truth),
                word if word.starts_with('$') => Err("the name of an attribute begins with a letter or _"),
                // They stop behind the number.
                word if after_constant_and_in(word)
                    .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) =>
                {
                    Err("PEs read a name that begins so as a constant, in and a number")
                }
                _ => Ok(Part::Attribute),
            },
            Kind::Literal(value) => self.literal(node, value),
            Kind::Intrinsic(_) => Err("a filter has no channel functions"),
            Kind::Hash(_) => Err("a filter has no hash"),
            Kind::Cast { .. } => Err("a filter has no casts"),
            Kind::Group(inner) => match parts[inner.index()] {
                part @ (Part::Number | Part::Condition) => Ok(part),
                Part::Truth | Part::Attribute | Part::Wrapped => Ok(Part::Wrapped),
                _ => Err("a filter has no literals in parentheses"),
            },
            Kind::Subscript { list, index } => {
                let is_element = match &self.nodes[list.index()].kind {
                    Kind::Word(_) => true,
                    Kind::Prefix { operand, .. } => matches!(self.nodes[operand.index()].kind, Kind::Word(_)),
                    _ => false,
                };
                match (is_element, parts[index.index()]) {
                    (false, _) => Err("only attributes have elements in a filter"),
                    (true, Part::Integer) => Ok(match parts[list.index()] {
                        // With an index it is no literal: PEs stop behind the word.
                        Part::Truth => Part::Attribute,
                        part => part,
                    }),
                    (true, _) => Err("the index of an element is an integer in a filter"),
                }
            }
            Kind::Prefix { operator, operand } => match (operator, parts[operand.index()]) {
                (Prefix::Not, part @ (Part::Number | Part::Condition)) => Ok(part),
                (Prefix::Not, Part::Truth | Part::Attribute | Part::Wrapped) => Ok(Part::Wrapped),
                (Prefix::Not, _) => Err("! stands before no literal in a filter"),
                (Prefix::Complement, Part::Attribute | Part::Number) => Ok(Part::Number),
                (Prefix::Complement, _) => Err("~ stands before an attribute, or arithmetic with one, in a filter"),
            },
            Kind::Binary { operator, left, right } => {
                let (left, right) = (parts[left.index()], parts[right.index()]);
                match operator.precedence() {
                    Precedence::Or | Precedence::And if left.is_condition() && right.is_condition() => {
                        Ok(Part::Condition)
                    }
                    Precedence::Or | Precedence::And => Err("both sides have to be conditions"),
                    Precedence::In if left.is_literal() && right == Part::Attribute => Ok(Part::Condition),
                    Precedence::In => Err("a filter looks for a literal in an attribute"),
                    _ if !left.is_of_attribute() => Err("the left side has to be an attribute, or arithmetic with one"),
                    Precedence::Relational if right.is_literal() => Ok(Part::Condition),
                    Precedence::Relational => Err("the right side has to be a literal in a filter"),
                    Precedence::Additive | Precedence::Multiplicative
                        if matches!(right, Part::Integer | Part::Float) =>
                    {
                        Ok(Part::Number)
                    }
                    Precedence::Additive | Precedence::Multiplicative => {
                        Err("the right side has to be a number in a filter")
                    }
                    Precedence::Shift | Precedence::BitAnd | Precedence::BitXor | Precedence::BitOr => match right {
                        Part::Integer => Ok(Part::Number),
                        _ => Err("the right side has to be an integer in a filter"),
                    },
                }
            }
        }
    }

    fn literal(&self, node: &Node, value: &Value) -> Result<Part, &'static str> {
        match value {
            Value::Boolean(_) => Ok(Part::Truth),
            Value::Int64(integer) => integer_part(integer),
            Value::Float64(_) => Ok(Part::Float),
            Value::Rstring(_) if self.source.as_bytes().get(node.offset as usize) != Some(&b'"') => {
                Err("a filter has texts between \" only")
            }
            Value::Rstring(text) => check_escapes(text).map(|()| Part::Text),
            Value::List(_) => Err("a filter has no lists"),
        }
    }
}

/// What follows in a name that begins with `true` or `false` and `in`: PEs look for these before they look for a name.
fn after_constant_and_in(word: &str) -> Option<&str> {
    let rest = word.strip_prefix("truein").or_else(|| word.strip_prefix("falsein"))?;
    (!rest.is_empty()).then_some(rest)
}

fn refused(node: &Node, problem: &'static str) -> Error {
    Error { message: problem.to_owned(), offset: node.offset as usize }
}

fn integer_part(integer: &Integer) -> Result<Part, &'static str> {
    let written = integer.to_string();
    if written.parse::<i64>().is_ok() {
        Ok(Part::Integer)
    } else if written.parse::<u64>().is_ok() {
        Ok(Part::Unsigned)
    } else {
        Err("a filter has integers of 64 bits")
    }
}

/// Whether PEs can decode what stands behind each backslash of a text.
fn check_escapes(text: &str) -> Result<(), &'static str> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('\\') {
        rest = match after.chars().next() {
            Some('x' | 'X') => {
                let digits = after.bytes().skip(1).take(2).take_while(u8::is_ascii_hexdigit).count();
                // They are characters with a sign.
                let is_character = after
                    .get(1..1 + digits)
                    .is_some_and(|digits| u8::from_str_radix(digits, 16).is_ok_and(|code| code.is_ascii()));
                if !is_character {
                    return Err("behind \\x stands the code of an ASCII character in a filter");
                }
                after.get(1 + digits..).unwrap_or_default()
            }
            Some('u') => after_utf16(after).ok_or("behind \\u stand four digits of UTF-16 in a filter")?,
            Some(escaped) if escaped.is_ascii_graphic() => after.get(1..).unwrap_or_default(),
            _ => return Err("behind \\ stands a printable ASCII character in a filter"),
        };
    }
    Ok(())
}

/// What follows a character of one or two UTF-16 units; the text begins behind the backslash of the first.
fn after_utf16(text: &str) -> Option<&str> {
    let unit = |text: &str| {
        let digits =
            text.strip_prefix('u')?.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        u16::from_str_radix(digits?, 16).ok()
    };
    let first = unit(text)?;
    let after = text.get(5..)?;
    if char::decode_utf16([first]).all(|decoded| decoded.is_ok()) {
        return Some(after);
    }
    let second = after.strip_prefix('\\')?;
    let is_pair = char::decode_utf16([first, unit(second)?]).all(|decoded| decoded.is_ok());
    second.get(5..).filter(|_| is_pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> Option<(usize, String)> {
        Expression::parse_filter(text, &Limits::default()).err().map(|error| (error.offset, error.message))
    }

    #[test]
    fn what_pes_read_is_a_filter() {
        for text in [
            "a == 1",
            "a==1",
            "price > 10.5",
            "a < 1e3",
            "a == .5",
            "a == -9223372036854775808",
            "a == 18446744073709551615",
            "s == \"x y\"",
            r#"s <= "ahi\na""#,
            r#"s == "\"q\" \\ \' \x7f \x7 \377 \q""#,
            "s == \"\\u00e9 \\ud83d\\ude00 \u{e9}\"",
            "sym == \"IBM\" && n < 4",
            "a == true",
            "a != false",
            "a",
            "!a",
            "!a[0]",
            "(a)",
            "(a) == 1",
            "true",
            "false",
            "a && true",
            "a == 1 && b == 2 || !(c == 3)",
            "(a == 1 || b == 2) && c",
            "a[6] == 5.0",
            "~a == 6",
            "~a[1] == 6",
            "~(a + 1) == 6",
            "!a == 1",
            "!(a + 1) == 3",
            "5.5 in al || a == 3 && c == \"a\"",
            "\"x\" in a[1]",
            "true in flags",
            "a + 2 == 14",
            "((a + 2) * 3) == 14",
            "a % 5 == 0",
            "a * 1.5 > 3",
            "a - 1 - -1 == 2",
            "a << 1 >> 2 == 3",
            "(a & 1) == 1",
            "((a & 1) | 2) != 0",
            // As PEs write them.
            "x < -1.5",
            "x > -0.5",
            "x > -1e-05",
            "-1.5 in l",
            "(a + -1.5) > 2",
            "x == -0",
            "x != +1.5E+3",
            "a[+1] == +7",
            "a -1 == 0",
            "a--1==-.5",
            "a == 007",
            "a == 010.5",
            "a == -12l",
            "5lin l",
            "hash == 5",
            "hash",
            "5 in hash[1]",
            "!(hash + 1) == 2",
            "\u{b}a\u{b}== 1\u{b}",
        ] {
            assert_eq!(problem(text), None, "{text}");
            let printed = Expression::parse_filter(text, &Limits::default()).unwrap().to_string();
            let again = Expression::parse_filter(&printed, &Limits::default()).map(|filter| filter.to_string());
            assert_eq!(again.as_deref(), Ok(&*printed), "{text}");
        }
    }

    #[test]
    fn what_is_printed_of_a_filter_has_the_same_numbers() {
        let table = [
            ("x<-1.5", "x < -1.5"),
            ("x > -1e-05", "x > -1.0E-5"),
            ("-0.5 in l", "-0.5 in l"),
            ("a -1 - -1 == +007", "a - 1 - -1 == 7"),
            ("a == -0", "a == 0"),
            ("a == -0.", "a == -0.0"),
            ("a == 12l", "a == 12"),
            ("a == 0e308", "a == 0.0"),
            ("a == 00e-0308", "a == 0.0"),
        ];
        for (text, expected) in table {
            assert_eq!(Expression::parse_filter(text, &Limits::default()).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn blanks_only_are_no_filter() {
        for (text, expected) in [("", true), (" \t\r\n\u{b}\u{c}", true), (" a ", false), ("\u{a0}", false)] {
            assert_eq!(is_no_filter(text), expected, "{text:?}");
        }
        assert_eq!(problem(" "), Some((1, "an operand is missing at the end".to_owned())));
    }

    #[test]
    fn constants_go_and_those_that_are_left_are_found() {
        let misplaced = "PEs take true and false for names of attributes where a condition stands";
        // filter -> what is left of it, where a constant is left
        let table = [
            ("a == 1", "a == 1", None),
            ("true", "true", Some(0)),
            ("!(true)", "false", Some(0)),
            ("a == 1 && true", "a == 1", None),
            ("true && a == 1", "a == 1", None),
            ("a == true && true", "a == true", None),
            ("true in a || false", "true in a", None),
            ("a || b || false", "a || b", None),
            ("false || (true && (a || b[1] == 2)) && !false", "((a || b[1] == 2))", None),
            ("x && (true && y - 1 == 2 || false) && z[0]", "x && (y - 1 == 2) && z[0]", None),
            ("!(a && true) || false && b", "!(a)", None),
            ("a && (b || true)", "a", None),
            ("a == 1 && false", "false", Some(0)),
            ("a || !false", "true", Some(0)),
            // What others would take, they take for attributes.
            ("true == 1", "true == 1", Some(0)),
            ("(true) == 1 && true", "(true) == 1", Some(1)),
            ("a && false == true", "a && false == true", Some(5)),
        ];
        for (text, expected, left) in table {
            let without = Expression::parse_filter(text, &Limits::default()).unwrap().without_constants();
            let printed = without.to_string();
            assert_eq!(printed, expected, "{text}");
            let again = Expression::parse_filter(&printed, &Limits::default()).unwrap();
            assert_eq!(again.without_constants().to_string(), printed, "{text}");
            let found = again.check_meaning().err().map(|error| (error.offset, error.message));
            assert_eq!(found, left.map(|offset| (offset, misplaced.to_owned())), "{text}");
            assert_eq!(without.constant(), expected.parse().ok(), "{text}");
        }
    }

    #[test]
    fn what_pes_take_for_something_else_is_found() {
        let not = "! stands before one attribute or one comparison in a filter";
        // filter -> where and why, if PEs take it for something else
        let table = [
            ("a + -1 > 2", None),
            ("a * 1.5 > 3", Some((2, "PEs calculate with integers only"))),
            ("(a + -1.5) > 2", Some((3, "PEs calculate with integers only"))),
            ("a < -1.5 && b == 2.5", None),
            ("a % 0 == 1", Some((2, "PEs do not divide by zero"))),
            ("a / -0 == 1", Some((2, "PEs do not divide by zero"))),
            ("a - 0 == 1 && a % -2 == 0", None),
            ("a[-1] == 1", Some((1, "PEs have no elements with negative indexes"))),
            ("a[+0] == 1", None),
            ("!a && !a[0] && !(b) && !((b[1]))", None),
            ("!(a == 1)", None),
            ("!((a + 1) * 2 == 6) || b", None),
            ("!a == 1", None),
            ("!(a == 1 && b == 2)", Some((0, not))),
            ("b && !(a || b)", Some((5, not))),
            ("!(5 in l) && a == 1", Some((0, not))),
            ("!(!(a == 1))", Some((0, not))),
            ("!(!a == 1)", Some((0, not))),
            ("!(!a)", Some((0, not))),
            ("!(a + 1) == 3", Some((0, not))),
            ("!a + 1 == 3", Some((3, not))),
            ("trueinstance == 1", Some((0, "PEs read a name that begins so as a constant and in"))),
            ("a && falsein_", Some((5, "PEs read a name that begins so as a constant and in"))),
            ("truein == 1 && untrueinside", None),
            ("true == 1", Some((0, "PEs take true and false for names of attributes where a condition stands"))),
        ];
        for (text, expected) in table {
            let filter = Expression::parse_filter(text, &Limits::default()).unwrap();
            let found = filter.check_meaning().err().map(|error| (error.offset, error.message));
            assert_eq!(found, expected.map(|(offset, message)| (offset, message.to_owned())), "{text}");
        }
    }

    #[test]
    fn filters_are_no_deeper_than_pes_can_count() {
        let nested = |levels: usize| format!("{}a{}", "(".repeat(levels), ")".repeat(levels));
        assert_eq!(problem(&nested(DEPTH)), None);
        let (_, message) = problem(&nested(DEPTH + 1)).unwrap();
        assert!(message.contains("32"), "{message}");
    }

    #[test]
    fn what_ends_a_pe_is_none() {
        let table = [
            ("a =", 2, "unexpected character '='; equality is written =="),
            ("a == b", 2, "the right side has to be a literal in a filter"),
            ("a == (1)", 5, "a filter has no literals in parentheses"),
            ("a == 1 + 2", 7, "the left side has to be an attribute, or arithmetic with one"),
            ("a == trueish", 2, "the right side has to be a literal in a filter"),
            ("a <= false[0]", 2, "the right side has to be a literal in a filter"),
            ("true[0] in a", 8, "a filter looks for a literal in an attribute"),
            ("5 == a", 2, "the left side has to be an attribute, or arithmetic with one"),
            ("5 == 5", 2, "the left side has to be an attribute, or arithmetic with one"),
            ("2 * a == 4", 2, "the left side has to be an attribute, or arithmetic with one"),
            ("a + b == 4", 2, "the right side has to be a number in a filter"),
            ("a + (1 - 2) == 4", 7, "the left side has to be an attribute, or arithmetic with one"),
            ("a + 18446744073709551615 == 4", 2, "the right side has to be a number in a filter"),
            ("a << 1.5 == 4", 2, "the right side has to be an integer in a filter"),
            ("(a & 1 | 2 ^ 3) != 0", 11, "the left side has to be an attribute, or arithmetic with one"),
            ("(a & b) == 4", 3, "the right side has to be an integer in a filter"),
            ("a & 1 == 1", 6, "the left side has to be an attribute, or arithmetic with one"),
            ("(a == 1) == true", 9, "the left side has to be an attribute, or arithmetic with one"),
            ("a == - 1", 5, "an operand is expected instead of -"),
            ("a == --1", 5, "an operand is expected instead of -"),
            ("-a == 1", 0, "an operand is expected instead of -"),
            ("a == -.", 5, "unexpected character '.'"),
            ("a < -1e308e", 10, "an operator or the end is expected instead of e"),
            ("a < -10e308", 4, "-10e308 is beyond the range of float64"),
            ("a == 18446744073709551615l", 25, "an operator or the end is expected instead of l"),
            ("a == 1.5l", 8, "an operator or the end is expected instead of l"),
            ("(int64)a == 1", 0, "a filter has no casts"),
            ("hash(a) == 1", 0, "a filter has no hash"),
            ("a hash", 2, "an operator or the end is expected instead of hash; the word is reserved"),
            ("a == getChannel()", 5, "a filter has no channel functions"),
            ("'x' == s", 0, "a filter has texts between \" only"),
            ("s == 'x'", 5, "a filter has texts between \" only"),
            ("a in b", 2, "a filter looks for a literal in an attribute"),
            ("5 in (a)", 2, "a filter looks for a literal in an attribute"),
            ("5 in !a", 2, "a filter looks for a literal in an attribute"),
            ("5 in a == 3", 2, "a filter looks for a literal in an attribute"),
            ("a == 1 in b", 7, "a filter looks for a literal in an attribute"),
            ("$a == 1", 0, "the name of an attribute begins with a letter or _"),
            ("falsein18y == 1", 0, "PEs read a name that begins so as a constant, in and a number"),
            ("a > 1 || truein1", 9, "PEs read a name that begins so as a constant, in and a number"),
            ("a[b] == 1", 1, "the index of an element is an integer in a filter"),
            ("a[1 + 1] == 1", 4, "the left side has to be an attribute, or arithmetic with one"),
            ("(a)[1] == 1", 3, "only attributes have elements in a filter"),
            ("a == 18446744073709551616", 5, "a filter has integers of 64 bits"),
            ("a == -9223372036854775809", 5, "a filter has integers of 64 bits"),
            // They read it, and find no condition, or two.
            ("5", 0, "a filter is a condition"),
            ("a + 1", 2, "a filter is a condition"),
            ("~a", 0, "a filter is a condition"),
            ("a && 5", 2, "both sides have to be conditions"),
            ("a || b + 1", 2, "both sides have to be conditions"),
            ("!5", 0, "! stands before no literal in a filter"),
            ("~(a == 1)", 0, "~ stands before an attribute, or arithmetic with one, in a filter"),
            ("(a == 1) & 1", 9, "the left side has to be an attribute, or arithmetic with one"),
            // They cannot decode the text.
            ("s == \"a\0\"", 7, "a filter has no zero characters"),
            (r#"s == "a\xgg""#, 5, "behind \\x stands the code of an ASCII character in a filter"),
            (r#"s == "\x80""#, 5, "behind \\x stands the code of an ASCII character in a filter"),
            (r#"s == "\x""#, 5, "behind \\x stands the code of an ASCII character in a filter"),
            (r#"s == "\u12""#, 5, "behind \\u stand four digits of UTF-16 in a filter"),
            (r#"s == "\ud83d""#, 5, "behind \\u stand four digits of UTF-16 in a filter"),
            (r#"s == "\ude00\ud83d""#, 5, "behind \\u stand four digits of UTF-16 in a filter"),
            (r#"s == "\ ""#, 5, "behind \\ stands a printable ASCII character in a filter"),
            ("s == \"\\\u{e9}\"", 5, "behind \\ stands a printable ASCII character in a filter"),
        ];
        for (text, offset, message) in table {
            assert_eq!(problem(text), Some((offset, message.to_owned())), "{text}");
        }
    }

    #[test]
    fn floats_have_as_many_digits_as_pes_can_count() {
        let nines = "9".repeat(308);
        let zeros = "0".repeat(400);
        for part in [format!("0.{nines}"), format!("0.{zeros}{nines}"), format!("{zeros}.5"), format!("1e-{zeros}2")] {
            assert_eq!(problem(&format!("x > {part}")), None, "{part}");
        }
        for part in ["1e309", "0e400", "-0.000001e310", "1E-309", "0.00001e-308"] {
            let (offset, message) = problem(&format!("x > {part}")).unwrap();
            assert_eq!((offset, message), (4, format!("{part} has an exponent beyond 308")));
        }
        for part in [format!("0.{nines}9"), format!("-{nines}9.0e-9"), format!("1e-{nines}9"), format!("0e{nines}9")] {
            let (offset, message) = problem(&format!("x > {part}")).unwrap();
            assert!(offset == 4 && message.ends_with("... has more than 308 digits in a row"), "{message}");
        }
    }
}
