//! Ports. Both dialects write them in several forms. In all of them, a container has one element for each port, and the
//! children of that element describe the port.

use super::xml::{Reader, Vocabulary, XmlElement};
use crate::error::Error;

/// Reads the ports of the container that was just opened, in the order of the document. `new` makes a port from the
/// attributes of its element `name`, `child` reads a child of that element into it.
pub(crate) fn ports<'a, P>(
    reader: &mut Reader<'a>,
    vocabulary: Vocabulary,
    name: &str,
    mut new: impl FnMut(&mut Reader<'a>, &XmlElement<'a>) -> P,
    mut child: impl FnMut(&mut Reader<'a>, &XmlElement<'a>, &mut P) -> Result<(), Error>,
) -> Result<Vec<P>, Error> {
    reader.list(vocabulary, name, |reader, element| {
        let mut port = new(reader, element);
        reader.children_of(vocabulary, |reader, element| child(reader, &element, &mut port))?;
        Ok(port)
    })
}
