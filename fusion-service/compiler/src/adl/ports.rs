//! Ports, which both dialects write in several forms: a container, in it an element for each port, in that what belongs
//! to the port.

use super::xml::{Element, Reader, Vocabulary};
use crate::error::Error;

/// Reads the ports of the container that was just opened, in the order of the document. `new` makes a port from the
/// attributes of its element `name`, `child` reads a child of that element into it.
pub(crate) fn ports<'a, P>(
    reader: &mut Reader<'a>,
    vocabulary: Vocabulary,
    name: &str,
    mut new: impl FnMut(&mut Reader<'a>, &Element<'a>) -> P,
    mut child: impl FnMut(&mut Reader<'a>, &Element<'a>, &mut P) -> Result<(), Error>,
) -> Result<Vec<P>, Error> {
    reader.list(vocabulary, name, |reader, element| {
        let mut port = new(reader, element);
        reader.children_of(vocabulary, |reader, element| child(reader, &element, &mut port))?;
        Ok(port)
    })
}
