//! Tuple types in both vocabularies: the flat attribute list and the structured `tuple` (rule aadl-8).

use super::element::{self, Element, HasAttributes};
use super::hashing_writer::{Fragment, HashingWriter, StartTag, Unwritable};
use super::size::Room;
use super::vocabulary::{
    StructureAttribute, StructureKey, StructureList, StructureMap, StructureOptional, StructureSet, StructureTuple,
    StructureValue, TupleAttribute, TupleStructure,
};
use crate::logical::{Attribute, TupleType, Type};

type FragmentWriter<'a> = HashingWriter<'a, true>;

/// Content of `app:tupleType` and of `aug:tupleType`: attributes, then the structure. Nothing where the ADL has no
/// structure. It has this room.
pub(super) fn content(tuple_type: &TupleType, room: Room<'_>) -> Result<Fragment, Unwritable> {
    Fragment::within(room, |w| {
        let attributes = tuple_type.attributes.as_deref().unwrap_or_default();
        let mut flat = String::new();
        w.each(attributes, |w, attribute| {
            flat.clear();
            spell(&attribute.r#type, &mut flat);
            w.start(TupleAttribute)
                .attribute(TupleAttribute::NAME, &attribute.name)
                .attribute(TupleAttribute::TYPE, &flat)
                .close();
        });
        w.open(TupleStructure);
        members(w, attributes);
        w.end(TupleStructure);
    })
}

/// `list<map<int32,tuple<rstring a,boolean b>>>[3]`.
fn spell(r#type: &Type, out: &mut String) {
    let bound = |out: &mut String, bound: &Option<i64>| {
        if let Some(bound) = bound {
            out.push('[');
            out.push_str(itoa::Buffer::new().format(*bound));
            out.push(']');
        }
    };
    match r#type {
        Type::Scalar(name) => out.push_str(name),
        Type::List(element, most) | Type::Set(element, most) => {
            out.push_str(if matches!(r#type, Type::List(..)) { "list<" } else { "set<" });
            spell(element, out);
            out.push('>');
            bound(out, most);
        }
        Type::Map(key, value, most) => {
            out.push_str("map<");
            spell(key, out);
            out.push(',');
            spell(value, out);
            out.push('>');
            bound(out, most);
        }
        Type::Optional(inner) => {
            out.push_str("optional<");
            spell(inner, out);
            out.push('>');
        }
        Type::Tuple(attributes) => {
            out.push_str("tuple<");
            for (at, attribute) in attributes.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                spell(&attribute.r#type, out);
                out.push(' ');
                out.push_str(&attribute.name);
            }
            out.push('>');
        }
    }
}

fn members(w: &mut FragmentWriter<'_>, attributes: &[Attribute]) {
    w.each(attributes, |w, attribute| {
        let tag = w.start(StructureAttribute).attribute(StructureAttribute::NAME, &attribute.name);
        close(tag, StructureAttribute, &attribute.r#type, StructureAttribute::TYPE);
    });
}

/// Ends a start tag for something of type `r#type`: scalars are an attribute, everything else is a child.
fn close<E: Element>(tag: StartTag<'_, '_, E, true>, element: E, r#type: &Type, scalar: element::ElementAttribute<E>) {
    match r#type {
        Type::Scalar(name) => tag.attribute(scalar, name).close(),
        nested => {
            let w = tag.open();
            structure(w, nested);
            w.end(element);
        }
    }
}

fn structure(w: &mut FragmentWriter<'_>, r#type: &Type) {
    match r#type {
        // Scalars are attributes of what holds them.
        Type::Scalar(_) => {}
        Type::List(element, most) => {
            let tag = bound(w.start(StructureList), StructureList::BOUND, *most);
            close(tag, StructureList, element, StructureList::ELEMENT_TYPE);
        }
        Type::Set(element, most) => {
            let tag = bound(w.start(StructureSet), StructureSet::BOUND, *most);
            close(tag, StructureSet, element, StructureSet::ELEMENT_TYPE);
        }
        Type::Map(key, value, most) => {
            let mut tag = bound(w.start(StructureMap), StructureMap::BOUND, *most);
            for (part, attribute) in [(key, StructureMap::KEY_TYPE), (value, StructureMap::VALUE_TYPE)] {
                if let Type::Scalar(name) = &**part {
                    tag = tag.attribute(attribute, name);
                }
            }
            let w = tag.open();
            if !matches!(**key, Type::Scalar(_)) {
                w.open(StructureKey);
                structure(w, key);
                w.end(StructureKey);
            }
            if !matches!(**value, Type::Scalar(_)) {
                w.open(StructureValue);
                structure(w, value);
                w.end(StructureValue);
            }
            w.end(StructureMap);
        }
        Type::Optional(inner) => {
            close(w.start(StructureOptional), StructureOptional, inner, StructureOptional::TYPE);
        }
        Type::Tuple(attributes) => {
            w.open(StructureTuple);
            members(w, attributes);
            w.end(StructureTuple);
        }
    }
}

/// The bound of a collection, if it has one.
fn bound<'w, 's, E: HasAttributes<E>>(
    tag: StartTag<'w, 's, E, true>,
    attribute: element::ElementAttribute<E>,
    bound: Option<i64>,
) -> StartTag<'w, 's, E, true> {
    match bound {
        Some(bound) => tag.attribute(attribute, itoa::Buffer::new().format(bound)),
        None => tag,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(name: &str) -> Type {
        Type::Scalar(name.to_owned())
    }

    fn attribute(name: &str, r#type: Type) -> Attribute {
        Attribute { name: name.to_owned(), r#type }
    }

    #[test]
    fn spelled_types() {
        let inner = Type::Tuple(vec![attribute("a", scalar("rstring[8]")), attribute("b", scalar("enum{x,y}"))]);
        for (r#type, text) in [
            (scalar("uint64"), "uint64"),
            (Type::List(Box::new(scalar("int8")), Some(3)), "list<int8>[3]"),
            (Type::Set(Box::new(Type::Optional(Box::new(scalar("int8")))), None), "set<optional<int8>>"),
            (
                Type::Map(Box::new(scalar("int8")), Box::new(inner), Some(2)),
                "map<int8,tuple<rstring[8] a,enum{x,y} b>>[2]",
            ),
        ] {
            let mut out = String::new();
            spell(&r#type, &mut out);
            assert_eq!(out, text);
        }
    }
}
