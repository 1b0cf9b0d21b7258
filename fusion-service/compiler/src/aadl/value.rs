//! The types of values that the writer can write, and the form of each in the observed stream (rule aadl-5).

use super::escape::{double, escape};

/// Something that can be an attribute's value or an element's text.
pub(super) trait Value {
    /// Adds it to the text. Stores a character that XML cannot hold in `illegal`.
    fn write(&self, text: &mut Vec<u8>, illegal: &mut Option<char>);

    /// Adds it to the observed stream.
    fn observe(&self, stream: &mut Vec<u8>);
}

impl Value for u32 {
    #[inline]
    fn write(&self, text: &mut Vec<u8>, _: &mut Option<char>) {
        text.extend_from_slice(itoa::Buffer::new().format(*self).as_bytes());
    }

    #[inline]
    fn observe(&self, stream: &mut Vec<u8>) {
        stream.extend_from_slice(&self.to_le_bytes());
    }
}

impl Value for u64 {
    #[inline]
    fn write(&self, text: &mut Vec<u8>, _: &mut Option<char>) {
        text.extend_from_slice(itoa::Buffer::new().format(*self).as_bytes());
    }

    #[inline]
    fn observe(&self, stream: &mut Vec<u8>) {
        stream.extend_from_slice(&self.to_le_bytes());
    }
}

impl Value for bool {
    #[inline]
    fn write(&self, text: &mut Vec<u8>, _: &mut Option<char>) {
        text.extend_from_slice(if *self { b"true" } else { b"false" });
    }

    #[inline]
    fn observe(&self, stream: &mut Vec<u8>) {
        stream.push(u8::from(*self));
    }
}

/// A `xs:double`.
impl Value for f64 {
    fn write(&self, text: &mut Vec<u8>, _: &mut Option<char>) {
        double(text, *self);
    }

    fn observe(&self, stream: &mut Vec<u8>) {
        stream.extend_from_slice(&self.to_bits().to_le_bytes());
    }
}

impl Value for &str {
    #[inline]
    fn write(&self, text: &mut Vec<u8>, illegal: &mut Option<char>) {
        let found = escape(text, self);
        *illegal = illegal.or(found);
    }

    #[inline]
    fn observe(&self, stream: &mut Vec<u8>) {
        stream.extend_from_slice(&(self.len() as u64).to_le_bytes());
        stream.extend_from_slice(self.as_bytes());
    }
}

impl Value for &String {
    #[inline]
    fn write(&self, text: &mut Vec<u8>, illegal: &mut Option<char>) {
        self.as_str().write(text, illegal);
    }

    #[inline]
    fn observe(&self, stream: &mut Vec<u8>) {
        self.as_str().observe(stream);
    }
}

/// One of a few words. The observed stream has it as a number.
pub(super) struct Word(pub(super) &'static str, pub(super) u8);

impl Value for Word {
    fn write(&self, text: &mut Vec<u8>, _: &mut Option<char>) {
        text.extend_from_slice(self.0.as_bytes());
    }

    fn observe(&self, stream: &mut Vec<u8>) {
        stream.push(self.1);
    }
}

/// A value that is always the same word. The observed stream has nothing of it, because its presence says everything.
pub(super) struct OnlyWord(pub(super) &'static str);

impl Value for OnlyWord {
    fn write(&self, text: &mut Vec<u8>, _: &mut Option<char>) {
        text.extend_from_slice(self.0.as_bytes());
    }

    fn observe(&self, _: &mut Vec<u8>) {}
}
