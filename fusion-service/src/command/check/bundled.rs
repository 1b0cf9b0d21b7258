//! Translates places in the compiled ADL into places in the ADL of the bundle.
//!
//! The two differ, because a submission sets attributes of the application element. Messages name places in the bundle,
//! because people look there. An element begins before or behind these attributes, never within one.

use super::excerpt::Lines;
use std::collections::BTreeMap;
use streams_compiler::error::Place;

/// The lines of both texts, and how many bytes they share at the beginning and at the end.
pub(super) struct BundlePlaces<'d> {
    compiled: Lines<'d>,
    bundled: Lines<'d>,
    shared: BTreeMap<u32, (usize, usize)>,
}

impl<'d> BundlePlaces<'d> {
    /// Prepares for these places in the compiled text.
    pub(super) fn new(compiled: &'d [u8], bundled: &'d [u8], places: impl Iterator<Item = Place> + Clone) -> Self {
        Self {
            compiled: Lines::find(compiled, places.clone()),
            bundled: Lines::find(bundled, places),
            shared: BTreeMap::new(),
        }
    }

    /// The same place in the bundle.
    pub(super) fn in_bundle(&mut self, place: Place) -> Place {
        let (compiled, bundled) = (self.compiled.line(place.line), self.bundled.line(place.line));
        let (before, behind) = *self.shared.entry(place.line).or_insert_with(|| {
            let equal = |(a, b): &(&u8, &u8)| a == b;
            let before = compiled.iter().zip(bundled).take_while(equal).count();
            let rest = compiled.len().min(bundled.len()) - before;
            let ends = compiled.iter().rev().zip(bundled.iter().rev());
            (before, ends.take(rest).take_while(equal).count())
        });
        let at = (place.column as usize).saturating_sub(1);
        let at = match at.checked_sub(compiled.len().saturating_sub(behind)) {
            Some(behind_edit) => bundled.len() - behind + behind_edit,
            None => at.min(before),
        };
        Place { column: u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1), ..place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_moves_what_is_behind_it() {
        let bundled = b"<set><app id='' dir='x'/><op/>\n<op/></set>";
        let compiled = b"<set><app id='4711' dir='/tmp/x'/><op/>\n<op/></set>";
        let places: Vec<Place> =
            [(1, 1), (1, 6), (1, 35), (2, 1), (2, 6)].map(|(line, column)| Place { line, column }).into();
        let mut places_in_bundle = BundlePlaces::new(compiled, bundled, places.iter().copied());
        let moved: Vec<_> =
            places.into_iter().map(|place| places_in_bundle.in_bundle(place)).map(|p| (p.line, p.column)).collect();
        assert_eq!(moved, [(1, 1), (1, 6), (1, 26), (2, 1), (2, 6)]);
    }
}
