//! What a PE matches, taken off the board: whoever makes its routes of that holds up nobody who looks at the board, or
//! changes it (rule import-10).
//!
//! Invariant: it stays what it was, whatever becomes of the board.

use crate::fact::{Export, Import};
use crate::routes::{Published, Publisher, Routes, Subscribed, Subscriber};
use std::sync::Arc;

/// Exports of a PE that somebody receives, each with the imports that do.
pub type Receivers = Vec<(Arc<Export>, Vec<Arc<Import>>)>;

/// Imports of a PE to which somebody sends, each with the exports that do.
pub type Senders = Vec<(Arc<Import>, Vec<Arc<Export>>)>;

/// The exports and imports of a PE that match something, and what they match.
#[derive(Clone, Debug, Default)]
pub struct Matched {
    /// Where the tuples of its exports go.
    pub receivers: Receivers,
    /// Where those of its imports come from.
    pub senders: Senders,
}

impl Matched {
    /// The routes of the PE.
    #[must_use]
    pub fn routes(&self) -> Routes {
        let exports = self.receivers.iter().map(|(export, to)| {
            let entries = to.iter().map(|import| (import.port.to_string(), Subscriber::of(import)));
            let port = &export.port;
            (port.to_string(), Published { port_id: port.id, entries: entries.collect() })
        });
        let imports = self.senders.iter().map(|(import, from)| {
            let entries = from.iter().map(|export| (export.port.to_string(), Publisher::of(export)));
            let port = &import.port;
            (port.to_string(), Subscribed { port_id: port.id, entries: entries.collect() })
        });
        Routes { exports: exports.collect(), imports: imports.collect() }
    }
}
