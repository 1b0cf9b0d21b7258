//! Tuple types (rule language-13).
//!
//! The structure below `tuple` is read with a stack of its own, so that the nesting of a document never becomes
//! recursion.

use super::values::token;
use super::xml::{Element, Reader, Vocabulary};
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
enum Open {
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
    let mut stack = vec![Open::Tuple(Vec::new())];
    loop {
        if let Some(element) = reader.child()? {
            let open = open(reader, &element, stack.last(), optional);
            stack.push(open);
            continue;
        }
        match (stack.pop(), stack.last_mut()) {
            (Some(closed), Some(parent)) => close(reader, closed, parent),
            (Some(Open::Tuple(attributes)), None) => return Ok(attributes),
            _ => return Ok(Vec::new()),
        }
    }
}

fn open<'a>(reader: &mut Reader<'a>, element: &Element<'a>, parent: Option<&Open>, optional: bool) -> Open {
    if element.vocabulary != Vocabulary::TupleType {
        return Open::Unknown;
    }
    match (element.name, parent) {
        ("attr", Some(Open::Tuple(_))) => {
            let name = reader.required_token(element, "name");
            Open::Attribute(TypeSlot { name, ..slot(reader, element, "type") })
        }
        (
            kind,
            Some(Open::Attribute(_) | Open::Optional(_) | Open::List(_) | Open::Set(_) | Open::Key(_) | Open::Value(_)),
        ) => match kind {
            "tuple" => Open::Tuple(Vec::new()),
            "list" => Open::List(slot(reader, element, "elementType")),
            "set" => Open::Set(slot(reader, element, "elementType")),
            "optional" if optional => Open::Optional(slot(reader, element, "type")),
            "map" => Open::Map {
                place: element.place,
                bound: reader.optional_integer(element, "bound"),
                scalars: ["keyType", "valueType"].map(|name| element.optional_token(name).map(Type::Scalar)),
                key: None,
                value: None,
            },
            _ => Open::Unknown,
        },
        ("key", Some(Open::Map { .. })) => Open::Key(slot(reader, element, "")),
        ("value", Some(Open::Map { .. })) => Open::Value(slot(reader, element, "")),
        _ => Open::Unknown,
    }
}

fn slot<'a>(reader: &mut Reader<'a>, element: &Element<'a>, scalar: &str) -> TypeSlot {
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

fn close(reader: &mut Reader<'_>, closed: Open, parent: &mut Open) {
    let closed = match closed {
        Open::Unknown => return,
        Open::Tuple(attributes) => Type::Tuple(attributes),
        Open::Attribute(slot) => {
            let (name, _, r#type) = resolve(reader, slot);
            if let Open::Tuple(attributes) = parent {
                attributes.push(Attribute { name, r#type });
            }
            return;
        }
        Open::Key(slot) => {
            if let Open::Map { key, scalars: [None, _], .. } = parent {
                *key = Some(resolve(reader, slot).2);
            }
            return;
        }
        Open::Value(slot) => {
            if let Open::Map { value, scalars: [_, None], .. } = parent {
                *value = Some(resolve(reader, slot).2);
            }
            return;
        }
        Open::Optional(slot) => Type::Optional(Box::new(resolve(reader, slot).2)),
        Open::List(slot) => {
            let (_, bound, element) = resolve(reader, slot);
            Type::List(Box::new(element), bound)
        }
        Open::Set(slot) => {
            let (_, bound, element) = resolve(reader, slot);
            Type::Set(Box::new(element), bound)
        }
        Open::Map { place, bound, scalars: [key_type, value_type], key, value } => {
            let mut part = |part: Option<Type>, name: &str| {
                if part.is_none() {
                    reader.problem(place, format!("<map>: the type of its {name} is missing"));
                }
                Box::new(part.unwrap_or(Type::Scalar(String::new())))
            };
            Type::Map(part(key_type.or(key), "keys"), part(value_type.or(value), "values"), bound)
        }
    };
    if let Open::Attribute(slot)
    | Open::Optional(slot)
    | Open::List(slot)
    | Open::Set(slot)
    | Open::Key(slot)
    | Open::Value(slot) = parent
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
