//! Characters, names and references of XML 1.0: what is legal, and what references stand for.

use std::borrow::Cow;

/// White space of XML.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// XML 1.0, production 2.
fn is_character(c: char) -> bool {
    !matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}')
}

/// Offset of the first character outside production 2 of XML 1.0.
pub(crate) fn illegal_character(text: &str) -> Option<usize> {
    let suspicious = |b: u8| (b < 0x20 && !is_space(b)) || b == 0xef;
    let mut from = 0;
    while let Some(found) = text.as_bytes().get(from..)?.iter().position(|b| suspicious(*b)) {
        let offset = from + found;
        match text.get(offset..)?.chars().next() {
            Some(c) if is_character(c) => from = offset + c.len_utf8(),
            _ => return Some(offset),
        }
    }
    None
}

/// XML 1.0, production 5.
pub(crate) fn is_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(starts_name) && characters.all(continues_name)
}

/// A name, or two names with a colon between them (Namespaces in XML 1.0, production 7).
pub(crate) fn is_qualified_name(name: &str) -> bool {
    match name.split_once(':') {
        None => is_name(name),
        Some((prefix, local)) => is_name(prefix) && is_name(local),
    }
}

fn starts_name(c: char) -> bool {
    matches!(c, 'A'..='Z' | 'a'..='z' | '_'
        | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}'
        | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}'
        | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

fn continues_name(c: char) -> bool {
    starts_name(c) || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}

/// A qualified name without its prefix.
pub(crate) fn local(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, local)| local)
}

/// The text of a reference `&name;`: one of the five entities or a legal character.
pub(crate) fn resolve(name: &str) -> Option<Cow<'static, str>> {
    let entity = match name {
        "amp" => "&",
        "lt" => "<",
        "gt" => ">",
        "quot" => "\"",
        "apos" => "'",
        _ => {
            let number = name.strip_prefix('#')?;
            let (digits, radix) = number.strip_prefix('x').map_or((number, 10), |hex| (hex, 16));
            if !digits.chars().all(|c| c.is_digit(radix)) {
                return None;
            }
            let c = char::from_u32(u32::from_str_radix(digits, radix).ok()?)?;
            return is_character(c).then(|| Cow::Owned(c.to_string()));
        }
    };
    Some(Cow::Borrowed(entity))
}

/// An attribute value with references resolved and white space turned into blanks (XML 1.0, 3.3.3).
pub(crate) fn normalised(raw: Cow<'_, str>) -> Option<Cow<'_, str>> {
    if memchr::memchr3(b'&', b'\n', b'\t', raw.as_bytes()).is_none() && !raw.contains('\r') {
        return Some(raw);
    }
    let mut value = String::with_capacity(raw.len());
    let mut rest: &str = &raw;
    while let Some(at) = rest.find(['&', '\n', '\t', '\r']) {
        let (before, special) = rest.split_at(at);
        value.push_str(before);
        if let Some(reference) = special.strip_prefix('&') {
            let (name, after) = reference.split_once(';')?;
            value.push_str(&resolve(name)?);
            rest = after;
        } else {
            value.push(' ');
            rest = special.strip_prefix("\r\n").or_else(|| special.get(1..))?;
        }
    }
    value.push_str(rest);
    Some(Cow::Owned(value))
}
