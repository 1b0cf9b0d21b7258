//! Numbers for the texts that fusion only compares.

use cranelift_entity::{EntityRef, entity_impl};
use indexmap::IndexSet;
use std::collections::BTreeSet;

/// An interned text: a location id, a host, a tag, a set of JVM arguments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(u32);
entity_impl!(Symbol, "symbol");

/// The texts behind [`Symbol`]s.
#[derive(Clone, Debug, Default)]
pub struct Symbols(IndexSet<String>);

impl Symbols {
    /// The symbol of a text; equal texts have equal symbols.
    pub fn intern(&mut self, text: &str) -> Symbol {
        let position = self.0.get_index_of(text).unwrap_or_else(|| self.0.insert_full(text.to_owned()).0);
        Symbol::new(position)
    }

    /// The symbol of a set of texts; it reads like `["-Xmx1g"]`.
    pub fn intern_set<'t>(&mut self, texts: impl IntoIterator<Item = &'t str>) -> Symbol {
        let set: BTreeSet<&str> = texts.into_iter().collect();
        let list: Vec<&str> = set.into_iter().collect();
        self.intern(&format!("{list:?}"))
    }

    /// The text of a symbol.
    pub fn text(&self, symbol: Symbol) -> &str {
        self.0.get_index(symbol.index()).map_or("", String::as_str)
    }
}
