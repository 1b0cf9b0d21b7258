//! Names of parallel regions, and the patterns that select regions by name.
//!
//! A job says things of its parallel regions: the width that each begins with, and the bounds of later widths. It names
//! a region or gives a pattern. The compiler looks up widths, the frontend looks up bounds, and both must find the same
//! entry for a region: this crate is where they look (rule expansion-2).
//!
//! ```
//! use streams_region_names::Patterns;
//!
//! let (patterns, _) = Patterns::parse(["*", "Main.*", "Main.Work"]);
//! assert_eq!(patterns.position("Main.Work"), Some(2));
//! assert_eq!(patterns.position("Main.Parse"), Some(1));
//! assert_eq!(patterns.position("Other"), Some(0));
//! ```
//!
//! Knows: which characters a name may have, how a pattern matches, which of several patterns counts. Must not know:
//! widths, bounds, jobs, where names come from.
//!
//! Invariants: pure functions that accept any text; a pattern without a star matches exactly one name, its own; the
//! answer does not depend on blanks in a pattern.

use std::collections::HashMap;
use std::convert::Infallible;

/// Whether the name of a region may have this character. No pattern could select a region whose name has another one.
pub fn is_name_character(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '.')
}

/// A pattern of region names: the characters of names, `[`, `]`, and `*` for any text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// Has no two stars in a row: they say no more than one, and each would have to be looked at in each comparison.
    text: String,
}

/// A pattern has a character that is in no name and means nothing in a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("region pattern \"{pattern}\": unexpected character {character:?}")]
pub struct UnexpectedCharacter {
    /// The pattern without its blanks.
    pub pattern: String,
    /// The first such character.
    pub character: char,
}

impl Pattern {
    /// Reads a pattern. The blanks of ASCII are dropped, wherever they stand.
    ///
    /// # Errors
    ///
    /// The pattern has an unexpected character; blanks beyond ASCII are such characters.
    pub fn parse(text: &str) -> Result<Self, UnexpectedCharacter> {
        let text: String = text.chars().filter(|character| !is_blank(*character)).collect();
        match text.chars().find(|character| !is_pattern_character(*character)) {
            None => Ok(Self { text: with_single_stars(text) }),
            Some(character) => Err(UnexpectedCharacter { pattern: text, character }),
        }
    }

    /// Its bytes. Comparing a name with it takes as long as both are.
    pub fn length(&self) -> usize {
        self.text.len()
    }

    /// Whether the pattern can match only one name: it has no star.
    pub fn is_exact(&self) -> bool {
        !self.text.contains('*')
    }

    /// The only name that the pattern can match, if it has no star.
    pub fn exact_name(&self) -> Option<&str> {
        self.is_exact().then_some(self.text.as_str())
    }

    /// Whether the pattern matches the whole of `name`. A star stands for any text, also for none.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.text.split('*');
        let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        let Some(mut rest) = rest.strip_suffix(last) else { return false };
        for part in parts {
            let Some((_, after)) = rest.split_once(part) else { return false };
            rest = after;
        }
        true
    }
}

/// Patterns in the order in which a job lists them.
///
/// A region belongs to the pattern that is its exact name. If there is none, it belongs to the last pattern that
/// matches. Of equal names the last counts, too.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    /// Positions of the patterns without a star. Each matches the name that equals it and nothing else, so it is looked
    /// up.
    names: HashMap<String, usize>,
    /// The other patterns with their positions, ascending.
    patterns: Vec<(usize, Pattern)>,
}

impl Patterns {
    /// Reads patterns. Those with an unexpected character select nothing; they are listed beside the others, in order.
    pub fn parse<'t>(texts: impl IntoIterator<Item = &'t str>) -> (Self, Vec<UnexpectedCharacter>) {
        let (mut all, mut malformed) = (Self::default(), Vec::new());
        for (position, text) in texts.into_iter().enumerate() {
            match Pattern::parse(text) {
                Ok(pattern) if pattern.is_exact() => _ = all.names.insert(pattern.text, position),
                Ok(pattern) => all.patterns.push((position, pattern)),
                Err(unexpected) => malformed.push(unexpected),
            }
        }
        (all, malformed)
    }

    /// The position of the pattern that counts for the region `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        match self.try_position(name, |_| Ok::<(), Infallible>(())) {
            Ok(position) => position,
            Err(never) => match never {},
        }
    }

    /// The same for a caller who may have to stop: calls `before` with a pattern before it compares the name with it. A
    /// job may have very many patterns with a star, and long ones, and each has to be tried.
    ///
    /// # Errors
    ///
    /// The one of `before`, which ends the search.
    pub fn try_position<E>(
        &self,
        name: &str,
        mut before: impl FnMut(&Pattern) -> Result<(), E>,
    ) -> Result<Option<usize>, E> {
        if let Some(position) = self.names.get(name) {
            return Ok(Some(*position));
        }
        for (position, pattern) in self.patterns.iter().rev() {
            before(pattern)?;
            if pattern.matches(name) {
                return Ok(Some(*position));
            }
        }
        Ok(None)
    }
}

/// The text with one star where several are in a row.
fn with_single_stars(mut text: String) -> String {
    if text.contains("**") {
        let mut follows_star = false;
        text.retain(|character| !std::mem::replace(&mut follows_star, character == '*') || character != '*');
    }
    text
}

fn is_pattern_character(character: char) -> bool {
    is_name_character(character) || matches!(character, '[' | ']' | '*')
}

/// Space, tab, line feed, vertical tab, form feed, carriage return.
fn is_blank(character: char) -> bool {
    character.is_ascii_whitespace() || character == '\x0b'
}

#[cfg(test)]
mod tests;
