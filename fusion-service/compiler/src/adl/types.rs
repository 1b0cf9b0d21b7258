//! Tuple types (rule language-13).
//!
//! The structure below `tuple` is read with a stack of its own, so that the nesting of a document never becomes
//! recursion.

use super::values::token;
use super::xml::{Element, Reader, Vocabulary};
use crate::error::{Error, Place, excerpt};
use crate::logical::{Attribute, Type};

/// An element that stands for one type: written in an attribute, or as a child.
struct Holder {
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
    Attribute(Holder),
    Optional(Holder),
    List(Holder),
    Set(Holder),
    Key(Holder),
    Value(Holder),
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
            Open::Attribute(Holder { name, ..holder(reader, element, "type") })
        }
        (
            kind,
            Some(Open::Attribute(_) | Open::Optional(_) | Open::List(_) | Open::Set(_) | Open::Key(_) | Open::Value(_)),
        ) => match kind {
            "tuple" => Open::Tuple(Vec::new()),
            "list" => Open::List(holder(reader, element, "elementType")),
            "set" => Open::Set(holder(reader, element, "elementType")),
            "optional" if optional => Open::Optional(holder(reader, element, "type")),
            "map" => Open::Map {
                place: element.place,
                bound: reader.optional_integer(element, "bound"),
                scalars: ["keyType", "valueType"].map(|name| element.optional_token(name).map(Type::Scalar)),
                key: None,
                value: None,
            },
            _ => Open::Unknown,
        },
        ("key", Some(Open::Map { .. })) => Open::Key(holder(reader, element, "")),
        ("value", Some(Open::Map { .. })) => Open::Value(holder(reader, element, "")),
        _ => Open::Unknown,
    }
}

fn holder<'a>(reader: &mut Reader<'a>, element: &Element<'a>, scalar: &str) -> Holder {
    Holder {
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

/// The type of a holder: of several, the first in this order.
fn resolve(reader: &mut Reader<'_>, holder: Holder) -> (String, Option<i64>, Type) {
    let Holder { name, place, bound, scalar, tuple, list, map, optional, set } = holder;
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
        Open::Attribute(holder) => {
            let (name, _, r#type) = resolve(reader, holder);
            if let Open::Tuple(attributes) = parent {
                attributes.push(Attribute { name, r#type });
            }
            return;
        }
        Open::Key(holder) => {
            if let Open::Map { key, scalars: [None, _], .. } = parent {
                *key = Some(resolve(reader, holder).2);
            }
            return;
        }
        Open::Value(holder) => {
            if let Open::Map { value, scalars: [_, None], .. } = parent {
                *value = Some(resolve(reader, holder).2);
            }
            return;
        }
        Open::Optional(holder) => Type::Optional(Box::new(resolve(reader, holder).2)),
        Open::List(holder) => {
            let (_, bound, element) = resolve(reader, holder);
            Type::List(Box::new(element), bound)
        }
        Open::Set(holder) => {
            let (_, bound, element) = resolve(reader, holder);
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
    if let Open::Attribute(holder)
    | Open::Optional(holder)
    | Open::List(holder)
    | Open::Set(holder)
    | Open::Key(holder)
    | Open::Value(holder) = parent
    {
        let slot = match closed {
            Type::Tuple(_) | Type::Scalar(_) => &mut holder.tuple,
            Type::List(..) => &mut holder.list,
            Type::Map(..) => &mut holder.map,
            Type::Optional(_) => &mut holder.optional,
            Type::Set(..) => &mut holder.set,
        };
        *slot = Some(closed);
    }
}
