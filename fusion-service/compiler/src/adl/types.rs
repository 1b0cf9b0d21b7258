//! Tuple types (rule language-13).
//!
//! The structure below `tuple` is read with a stack of its own, so that the nesting of a document never becomes
//! recursion.

use super::values::token;
use super::xml::{Reader, Vocabulary, XmlElement};
use crate::error::{Error, Place, excerpt};
use crate::logical::{Attribute, Type};

/// An element that stands for one type: written in an attribute, or as a child.
struct TypeSlot {
    name: String,
    place: Place,
    bound: Option<i64>,
    scalar: Option<String>,
    tuple: Option<Type>,
    list: Option<Type>,
    map: Option<Type>,
    optional: Option<Type>,
    set: Option<Type>,
}

/// An open element.
enum OpenElement {
    Tuple(Vec<Attribute>),
    Attribute(TypeSlot),
    Optional(TypeSlot),
    List(TypeSlot),
    Set(TypeSlot),
    Key(TypeSlot),
    Value(TypeSlot),
    Map { place: Place, bound: Option<i64>, scalars: [Option<Type>; 2], key: Option<Type>, value: Option<Type> },
    Unknown,
}

/// Reads the attributes of the `tuple` element that was just opened, and closes it.
pub(crate) fn tuple(reader: &mut Reader<'_>, optional: bool) -> Result<Vec<Attribute>, Error> {
    let mut stack = vec![OpenElement::Tuple(Vec::new())];
    loop {
        if let Some(element) = reader.child()? {
            let open = open(reader, &element, stack.last(), optional);
            stack.push(open);
            continue;
        }
        match (stack.pop(), stack.last_mut()) {
            (Some(closed), Some(parent)) => close(reader, closed, parent),
            (Some(OpenElement::Tuple(attributes)), None) => return Ok(attributes),
            _ => return Ok(Vec::new()),
        }
    }
}

fn open<'a>(
    reader: &mut Reader<'a>,
    element: &XmlElement<'a>,
    parent: Option<&OpenElement>,
    optional: bool,
) -> OpenElement {
    if element.vocabulary != Vocabulary::TupleType {
        return OpenElement::Unknown;
    }
    match (element.name, parent) {
        ("attr", Some(OpenElement::Tuple(_))) => {
            let name = reader.required_token(element, "name");
            OpenElement::Attribute(TypeSlot { name, ..slot(reader, element, "type") })
        }
        (
            kind,
            Some(
                OpenElement::Attribute(_)
                | OpenElement::Optional(_)
                | OpenElement::List(_)
                | OpenElement::Set(_)
                | OpenElement::Key(_)
                | OpenElement::Value(_),
            ),
        ) => match kind {
            "tuple" => OpenElement::Tuple(Vec::new()),
            "list" => OpenElement::List(slot(reader, element, "elementType")),
            "set" => OpenElement::Set(slot(reader, element, "elementType")),
            "optional" if optional => OpenElement::Optional(slot(reader, element, "type")),
            "map" => OpenElement::Map {
                place: element.place,
                bound: reader.optional_integer(element, "bound"),
                scalars: ["keyType", "valueType"].map(|name| element.optional_token(name).map(Type::Scalar)),
                key: None,
                value: None,
            },
            _ => OpenElement::Unknown,
        },
        ("key", Some(OpenElement::Map { .. })) => OpenElement::Key(slot(reader, element, "")),
        ("value", Some(OpenElement::Map { .. })) => OpenElement::Value(slot(reader, element, "")),
        _ => OpenElement::Unknown,
    }
}

fn slot<'a>(reader: &mut Reader<'a>, element: &XmlElement<'a>, scalar: &str) -> TypeSlot {
    TypeSlot {
        name: element.name.to_owned(),
        place: element.place,
        bound: reader.optional_integer(element, "bound"),
        scalar: element.attribute(scalar).map(|text| token(text)),
        tuple: None,
        list: None,
        map: None,
        optional: None,
        set: None,
    }
}

/// The type of a slot: of several, the first in this order.
fn resolve(reader: &mut Reader<'_>, slot: TypeSlot) -> (String, Option<i64>, Type) {
    let TypeSlot { name, place, bound, scalar, tuple, list, map, optional, set } = slot;
    let found = scalar.map(Type::Scalar).or(tuple).or(list).or(map).or(optional).or(set);
    if found.is_none() {
        reader.problem(place, format!("tuple type: the type of {} is missing", excerpt(&name)));
    }
    (name, bound, found.unwrap_or(Type::Scalar(String::new())))
}

fn close(reader: &mut Reader<'_>, closed: OpenElement, parent: &mut OpenElement) {
    let closed = match closed {
        OpenElement::Unknown => return,
        OpenElement::Tuple(attributes) => Type::Tuple(attributes),
        OpenElement::Attribute(slot) => {
            let (name, _, r#type) = resolve(reader, slot);
            if let OpenElement::Tuple(attributes) = parent {
                attributes.push(Attribute { name, r#type });
            }
            return;
        }
        OpenElement::Key(slot) => {
            if let OpenElement::Map { key, scalars: [None, _], .. } = parent {
                *key = Some(resolve(reader, slot).2);
            }
            return;
        }
        OpenElement::Value(slot) => {
            if let OpenElement::Map { value, scalars: [_, None], .. } = parent {
                *value = Some(resolve(reader, slot).2);
            }
            return;
        }
        OpenElement::Optional(slot) => Type::Optional(Box::new(resolve(reader, slot).2)),
        OpenElement::List(slot) => {
            let (_, bound, element) = resolve(reader, slot);
            Type::List(Box::new(element), bound)
        }
        OpenElement::Set(slot) => {
            let (_, bound, element) = resolve(reader, slot);
            Type::Set(Box::new(element), bound)
        }
        OpenElement::Map { place, bound, scalars: [key_type, value_type], key, value } => {
            let mut part = |part: Option<Type>, name: &str| {
                if part.is_none() {
                    reader.problem(place, format!("<map>: the type of its {name} is missing"));
                }
                Box::new(part.unwrap_or(Type::Scalar(String::new())))
            };
            Type::Map(part(key_type.or(key), "keys"), part(value_type.or(value), "values"), bound)
        }
    };
    if let OpenElement::Attribute(slot)
    | OpenElement::Optional(slot)
    | OpenElement::List(slot)
    | OpenElement::Set(slot)
    | OpenElement::Key(slot)
    | OpenElement::Value(slot) = parent
    {
        let slot = match closed {
            Type::Tuple(_) | Type::Scalar(_) => &mut slot.tuple,
            Type::List(..) => &mut slot.list,
            Type::Map(..) => &mut slot.map,
            Type::Optional(_) => &mut slot.optional,
            Type::Set(..) => &mut slot.set,
        };
        *slot = Some(closed);
    }
}
