//! Uids as they are kept of thousands of objects.

/// The uid of an object. Kubernetes gives UUIDs: as a number one takes a third of the memory that its text takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Uid {
    /// A UUID as Kubernetes writes it.
    Number([u8; 16]),
    /// Whatever else somebody may take for a uid.
    Text(Box<str>),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        number(text).map_or_else(|| Self::Text(text.into()), Self::Number)
    }
}

impl Uid {
    /// Whether this is its text.
    pub(crate) fn is(&self, text: &str) -> bool {
        match self {
            Self::Number(own) => number(text).as_ref() == Some(own),
            Self::Text(own) => **own == *text,
        }
    }

    /// Bytes that it takes beside its own.
    pub(crate) fn bytes_beside(&self) -> usize {
        match self {
            Self::Number(_) => 0,
            Self::Text(text) => text.len(),
        }
    }
}

/// The number of a UUID in lower case. The same number written in another way is another uid.
fn number(text: &str) -> Option<[u8; 16]> {
    let is_written_so = |(place, octet): (usize, u8)| match place {
        8 | 13 | 18 | 23 => octet == b'-',
        _ => matches!(octet, b'0'..=b'9' | b'a'..=b'f'),
    };
    if text.len() != 36 || !text.bytes().enumerate().all(is_written_so) {
        return None;
    }
    let digits = text.chars().filter_map(|digit| digit.to_digit(16));
    Some(digits.fold(0, |number: u128, digit| (number << 4) | u128::from(digit)).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_its_text_and_no_other_and_a_number_if_kubernetes_writes_it_so() {
        // text -> whether it is kept as a number
        let table = [
            ("0b5c1f54-6c7e-4a53-9dfd-0242ac110002", true),
            ("0b5c1f54-6c7e-4a53-9dfd-0242ac110003", true),
            ("00000000-0000-0000-0000-000000000000", true),
            ("ffffffff-ffff-ffff-ffff-ffffffffffff", true),
            ("0B5C1F54-6C7E-4A53-9DFD-0242AC110002", false),
            ("0b5c1f546c7e4a539dfd0242ac110002", false),
            ("0b5c1f54-6c7e-4a53-9dfd0242-ac110002", false),
            ("0b5c1f54-6c7e-4a53-9dfd-0242ac11000g", false),
            ("0b5c1f54-6c7e-4a53-9dfd-0242ac1100021", false),
            ("0b5c1f54-6c7e-4a53-9dfd-0242ac1100é", false),
            ("", false),
            ("u", false),
        ];
        for (text, is_number) in table {
            let uid = Uid::from(text);
            assert_eq!(matches!(uid, Uid::Number(_)), is_number, "{text}");
            for (other, _) in table {
                assert_eq!((uid.is(other), uid == Uid::from(other)), (text == other, text == other), "{text} {other}");
            }
        }
    }
}
