//! Tuple types in both vocabularies: the flat attribute list and the structured `tuple` (rule aadl-8).

use super::sheet::{Fragment, Sheet};
use crate::logical::{Attribute, TupleType, Type};

type Page<'a> = Sheet<'a, true>;

/// Content of `app:tupleType` and of `aug:tupleType`: attributes, then the structure. Nothing where the ADL has no
/// structure.
pub(super) fn content(tuple_type: &TupleType) -> Result<Fragment, char> {
    Fragment::new(|s| {
        let attributes = tuple_type.attributes.as_deref().unwrap_or_default();
        let mut flat = String::new();
        for attribute in attributes {
            s.markup(b"<attribute name=\"");
            s.mark(b'a');
            s.string(&attribute.name);
            s.markup(b"\" type=\"");
            flat.clear();
            spell(&attribute.r#type, &mut flat);
            s.string(&flat);
            s.markup(b"\"/>");
        }
        // The structure says the same as the spelled types, so it need not be observed.
        s.markup(b"<tuple>");
        members(s, attributes);
        s.markup(b"</tuple>");
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

fn members(s: &mut Page<'_>, attributes: &[Attribute]) {
    for attribute in attributes {
        s.markup(b"<tt:attr name=\"");
        s.hidden_string(&attribute.name);
        s.markup(b"\"");
        close(s, b"</tt:attr>", &attribute.r#type, b" type=\"");
    }
}

/// Ends a start tag for something of type `r#type`: scalars are an attribute, everything else is a child.
fn close(s: &mut Page<'_>, end: &'static [u8], r#type: &Type, scalar: &'static [u8]) {
    match r#type {
        Type::Scalar(name) => {
            s.markup(scalar);
            s.hidden_string(name);
            s.markup(b"\"/>");
        }
        nested => {
            s.markup(b">");
            structure(s, nested);
            s.markup(end);
        }
    }
}

fn structure(s: &mut Page<'_>, r#type: &Type) {
    let bound = |s: &mut Page<'_>, bound: &Option<i64>| {
        if let Some(bound) = bound {
            s.markup(b" bound=\"");
            s.hidden_string(itoa::Buffer::new().format(*bound));
            s.markup(b"\"");
        }
    };
    match r#type {
        // Scalars are attributes of what holds them.
        Type::Scalar(_) => {}
        Type::List(element, most) => {
            s.markup(b"<tt:list");
            bound(s, most);
            close(s, b"</tt:list>", element, b" elementType=\"");
        }
        Type::Set(element, most) => {
            s.markup(b"<tt:set");
            bound(s, most);
            close(s, b"</tt:set>", element, b" elementType=\"");
        }
        Type::Map(key, value, most) => {
            s.markup(b"<tt:map");
            bound(s, most);
            for (part, attribute) in [(key, b" keyType=\"".as_slice()), (value, b" valueType=\"".as_slice())] {
                if let Type::Scalar(name) = &**part {
                    s.markup(attribute);
                    s.hidden_string(name);
                    s.markup(b"\"");
                }
            }
            s.markup(b">");
            if !matches!(**key, Type::Scalar(_)) {
                s.markup(b"<tt:key>");
                structure(s, key);
                s.markup(b"</tt:key>");
            }
            if !matches!(**value, Type::Scalar(_)) {
                s.markup(b"<tt:value>");
                structure(s, value);
                s.markup(b"</tt:value>");
            }
            s.markup(b"</tt:map>");
        }
        Type::Optional(inner) => {
            s.markup(b"<tt:optional");
            close(s, b"</tt:optional>", inner, b" type=\"");
        }
        Type::Tuple(attributes) => {
            s.markup(b"<tt:tuple>");
            members(s, attributes);
            s.markup(b"</tt:tuple>");
        }
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
