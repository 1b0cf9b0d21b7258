//! What properties must have for an expression to be true (rule expression-14).
//!
//! Whoever has many expressions and many sets of properties need not try each with each: an expression that is true for
//! some properties has one of its needs met by them. `kind == "a" && n > 3` needs a property `kind` that is `"a"`;
//! `n > 3 || b` needs `n` or `b`; `1 == 1` needs nothing. A need that is met says nothing: only evaluating does.
//!
//! Knows: trees. Must not know: who has the properties, how they are found.
//!
//! Invariant: properties for which an expression is true meet one of its needs.

use crate::expression::{Expression, Kind, Node, NodeId};
use crate::operation::Binary;
use crate::value::{Properties, Value};
use std::rc::Rc;
use std::sync::Arc;

/// An expression with more alternatives than these has none that are worth looking up.
const ALTERNATIVES_MAX: usize = 256;

/// What properties can have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// A property of this name.
    Property(Arc<str>),
    /// A property of this name that is this value, or a list with it.
    Value(Arc<str>, Scalar),
}

/// A value that is no list. Numbers that the language takes for equal are the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scalar {
    /// A boolean.
    Boolean(bool),
    /// The bits of the number as a double; of zero, those of the positive one.
    Number(u64),
    /// A text.
    Text(Arc<str>),
}

impl Scalar {
    /// Nothing for lists, and for what equals nothing.
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Boolean(value) => Some(Self::Boolean(*value)),
            Value::Int64(value) => Self::number(value.to_float()),
            Value::Float64(value) => Self::number(*value),
            Value::Rstring(text) => Some(Self::Text(text.clone())),
            Value::List(_) => None,
        }
    }

    fn number(value: f64) -> Option<Self> {
        // The sum makes a negative zero positive.
        (!value.is_nan()).then(|| Self::Number((value + 0.0).to_bits()))
    }
}

/// What an expression needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Needs {
    /// It may be true for any properties.
    Nothing,
    /// One of these, without order, perhaps twice; none of none: it is never true.
    OneOf(Vec<Need>),
}

/// What a part of an expression needs. Every operator around the part has it again: nothing is copied until the end, or
/// long lists in long expressions would take time that nobody has given.
#[derive(Clone)]
enum Sought {
    /// See [`Needs::Nothing`].
    Nothing,
    /// See [`Needs::OneOf`].
    OneOf(Rc<Alternatives>),
}

/// Alternatives, at most [`ALTERNATIVES_MAX`].
struct Alternatives {
    /// How many of them are names without a value, and how many there are.
    breadth: (usize, usize),
    parts: Parts,
}

enum Parts {
    None,
    One(Need),
    /// Neither has none. So they are nested less deep than there are alternatives.
    Two(Rc<Alternatives>, Rc<Alternatives>),
}

impl Sought {
    fn none() -> Self {
        Self::OneOf(Rc::new(Alternatives { breadth: (0, 0), parts: Parts::None }))
    }

    fn one(need: Need) -> Self {
        let breadth = (usize::from(matches!(need, Need::Property(_))), 1);
        Self::OneOf(Rc::new(Alternatives { breadth, parts: Parts::One(need) }))
    }

    /// One of these or of those.
    fn either(self, other: Self) -> Self {
        let (Self::OneOf(these), Self::OneOf(those)) = (self, other) else { return Self::Nothing };
        let (names, all) = (these.breadth.0 + those.breadth.0, these.breadth.1 + those.breadth.1);
        match (these.breadth.1, those.breadth.1) {
            _ if all > ALTERNATIVES_MAX => Self::Nothing,
            (0, _) => Self::OneOf(those),
            (_, 0) => Self::OneOf(these),
            _ => Self::OneOf(Rc::new(Alternatives { breadth: (names, all), parts: Parts::Two(these, those) })),
        }
    }

    /// One of these and one of those are needed: those that fewer properties meet.
    fn both(self, other: Self) -> Self {
        if self.breadth() <= other.breadth() { self } else { other }
    }

    /// The larger, the more properties are expected to meet them.
    fn breadth(&self) -> (usize, usize) {
        match self {
            Self::OneOf(alternatives) => alternatives.breadth,
            Self::Nothing => (usize::MAX, usize::MAX),
        }
    }

    fn listed(&self) -> Needs {
        let Self::OneOf(all) = self else { return Needs::Nothing };
        let mut needs = Vec::with_capacity(all.breadth.1);
        let mut left = vec![all];
        while let Some(alternatives) = left.pop() {
            match &alternatives.parts {
                Parts::None => {}
                Parts::One(need) => needs.push(need.clone()),
                Parts::Two(these, those) => left.extend([those, these]),
            }
        }
        Needs::OneOf(needs)
    }
}

/// What a tree needs.
struct Tree {
    /// To have a value.
    known: Sought,
    /// To be true.
    holds: Sought,
}

impl Tree {
    fn known(needs: Sought) -> Self {
        Self { known: needs.clone(), holds: needs }
    }
}

impl Expression {
    /// What properties must have for [`Expression::matches`] to be true of them.
    #[must_use]
    pub fn needs(&self) -> Needs {
        let mut trees: Vec<Tree> = Vec::new();
        for node in &self.nodes {
            let tree = match &node.kind {
                Kind::Word(range) => match self.word(range) {
                    "true" => Tree::known(Sought::Nothing),
                    "false" => Tree { known: Sought::Nothing, holds: Sought::none() },
                    name => Tree::known(Sought::one(Need::Property(name.into()))),
                },
                // It is put in before; then nobody knows it.
                Kind::Intrinsic(_) => Tree::known(Sought::none()),
                Kind::Literal(_) => Tree::known(Sought::Nothing),
                Kind::Group(_) => trees.pop().unwrap_or_else(|| Tree::known(Sought::Nothing)),
                Kind::Hash(_) | Kind::Prefix { .. } | Kind::Cast { .. } => {
                    Tree::known(trees.pop().map_or(Sought::Nothing, |operand| operand.known))
                }
                Kind::Subscript { .. } | Kind::Binary { .. } => {
                    let right = trees.pop().unwrap_or_else(|| Tree::known(Sought::Nothing));
                    let left = trees.pop().unwrap_or_else(|| Tree::known(Sought::Nothing));
                    self.two(node, left, right)
                }
            };
            trees.push(tree);
        }
        trees.pop().map_or(Needs::Nothing, |root| root.holds.listed())
    }

    fn two(&self, node: &Node, left: Tree, right: Tree) -> Tree {
        let Kind::Binary { operator, left: left_id, right: right_id } = &node.kind else {
            return Tree::known(left.known.both(right.known));
        };
        match operator {
            // One side that is known may decide.
            Binary::And => Tree { known: left.known.either(right.known), holds: left.holds.both(right.holds) },
            Binary::Or => Tree { known: left.known.either(right.known), holds: left.holds.either(right.holds) },
            Binary::Equal | Binary::In => {
                let value = self.value_of(*left_id, *right_id);
                let value = value.or_else(|| self.value_of(*right_id, *left_id).filter(|_| *operator == Binary::Equal));
                let known = left.known.both(right.known);
                Tree { holds: value.map_or_else(|| known.clone(), Sought::one), known }
            }
            _ => Tree::known(left.known.both(right.known)),
        }
    }

    /// The need for this property with this value, if the one is a property and the other one a value.
    fn value_of(&self, value: NodeId, property: NodeId) -> Option<Need> {
        let value = match self.inside(value) {
            Kind::Literal(value) => Scalar::of(value)?,
            Kind::Word(range) => Scalar::Boolean(self.word(range).parse().ok()?),
            _ => return None,
        };
        match self.inside(property) {
            Kind::Word(range) => {
                let name = self.word(range);
                (!matches!(name, "true" | "false")).then(|| Need::Value(name.into(), value))
            }
            _ => None,
        }
    }

    /// The node without the brackets around it.
    fn inside(&self, id: NodeId) -> &Kind {
        let mut kind = &self.nodes[id.index()].kind;
        while let Kind::Group(inner) = kind {
            kind = &self.nodes[inner.index()].kind;
        }
        kind
    }
}

impl Properties {
    /// Everything that these properties have, in order; what a list has several times is said several times.
    pub fn met(&self) -> impl Iterator<Item = Need> {
        self.iter().flat_map(|(name, value)| {
            let name: Arc<str> = name.into();
            let property = Need::Property(name.clone());
            let values = scalars(value).map(move |scalar| Need::Value(name.clone(), scalar));
            std::iter::once(property).chain(values)
        })
    }
}

/// The value, or the elements of the list.
fn scalars(value: &Value) -> impl Iterator<Item = Scalar> {
    let elements = match value {
        Value::List(list) => list.len(),
        _ => 1,
    };
    (0..elements).filter_map(move |index| match value {
        Value::List(list) => list.get(index).and_then(|element| Scalar::of(&element)),
        value => Scalar::of(value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::value::List;
    use std::time::Instant;

    fn described(needs: &Needs) -> String {
        let Needs::OneOf(needs) = needs else { return "nothing".to_owned() };
        let of = |need: &Need| match need {
            Need::Property(name) => name.to_string(),
            Need::Value(name, Scalar::Boolean(value)) => format!("{name}={value}"),
            Need::Value(name, Scalar::Number(bits)) => format!("{name}={}", f64::from_bits(*bits)),
            Need::Value(name, Scalar::Text(text)) => format!("{name}='{text}'"),
        };
        needs.iter().map(of).collect::<Vec<_>>().join(" or ")
    }

    #[test]
    fn an_expression_needs_what_it_cannot_be_true_without() {
        let many: Vec<String> = (0..300).map(|n| format!("x == {n}")).collect();
        let many = many.join(" || ");
        // expression, what it needs
        let table = [
            ("kind == \"a\" && n > 3", "kind='a'"),
            ("n > 3 && \"a\" == kind", "kind='a'"),
            ("n > 3 || b", "n or b"),
            ("n > 3 && b", "n"),
            ("1 == 1", "nothing"),
            ("1 == 1 || n == 3", "nothing"),
            ("1 == 1 && n == 3", "n=3"),
            ("true", "nothing"),
            ("false", ""),
            ("false || a == 1", "a=1"),
            ("flag", "flag"),
            ("flag == true", "flag=true"),
            ("!flag", "flag"),
            ("!(a == 1 || b == 2)", "a or b"),
            ("!(a == 1 && b == 2)", "a or b"),
            ("n == 2.0", "n=2"),
            ("(n) == ((2))", "n=2"),
            ("\"IBM\" in tickers && m == n", "tickers='IBM'"),
            ("ticker in tickers", "ticker"),
            ("n in 3", "n"),
            ("list[0] == 1", "list"),
            ("(int64)text == 1", "text"),
            ("hash(a) == hash(b)", "a"),
            ("a != 1", "a"),
            ("a == b", "a"),
            ("getChannel() == 1", ""),
            ("(a == 1 || b == 2) && c", "a=1 or b=2"),
            (&many, "nothing"),
            ("a == 1 || getChannel() == 1 || b", "a=1 or b"),
            ("!(a == 1 || getChannel() == 1)", "a"),
            ("(a || b || c) && (d || e) || f", "d or e or f"),
        ];
        for (text, expected) in table {
            let expression = Expression::parse(text, &Limits::default()).unwrap();
            assert_eq!(described(&expression.needs()), expected, "{text}");
        }
    }

    /// Each operator around a list of alternatives has it again.
    #[test]
    fn what_many_operators_need_takes_no_longer_when_it_is_much() {
        let (sums, alternatives) = ("+1".repeat(31_000), vec!["\"\"in a"; ALTERNATIVES_MAX].join("||"));
        let took = |first: &str| {
            let expression = Expression::parse(&format!("({first}){sums}"), &Limits::default()).unwrap();
            let tries = (0..10).map(|_| {
                let begun = Instant::now();
                assert!(matches!(expression.needs(), Needs::OneOf(_)));
                begun.elapsed()
            });
            tries.min().unwrap()
        };
        let (few, many) = (took("\"\"in a"), took(&alternatives));
        // If each operator had them again it would be as many times as long; a busy machine makes less of a difference.
        assert!(many < few * 32, "{few:?} {many:?}");
    }

    #[test]
    fn properties_meet_a_name_each_and_their_values() {
        let list =
            |elements: &[&str]| Value::List(List::Rstring(elements.iter().map(|text| Arc::from(*text)).collect()));
        let properties: Properties = [
            ("n", Value::Int64(2.into())),
            ("f", Value::Float64(-0.0)),
            ("nan", Value::Float64(f64::NAN)),
            ("b", Value::Boolean(true)),
            ("l", list(&["x", "y"])),
            ("none", list(&[])),
        ]
        .into_iter()
        .collect();
        let met = properties.met().map(|need| described(&Needs::OneOf(vec![need]))).collect::<Vec<_>>();
        assert_eq!(met, ["b", "b=true", "f", "f=0", "l", "l='x'", "l='y'", "n", "n=2", "nan", "none"]);
    }
}
