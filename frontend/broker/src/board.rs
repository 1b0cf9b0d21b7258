//! The board: all exports and imports of a namespace, and the matches between them.
//!
//! Invariants: a match stands on both sides; what matches is what [`matches`] says of every export with every import,
//! though only those are tried that have a key in common (rule import-2); after a change, the PEs that are named are
//! those whose routes have become others, and no more.

use crate::fact::{Export, Fact, Import, matches};
use crate::port::{Pe, Port};
use crate::routes::{Published, Publisher, Routes, Subscribed, Subscriber};
use crate::side::{Id, Side};
use std::collections::BTreeSet;

/// All exports and imports of a namespace.
#[derive(Debug, Default)]
pub struct Board {
    exports: Side<Export>,
    imports: Side<Import>,
}

impl Board {
    /// The export is there, in the place of what its port had before. Returns the PEs whose routes have changed.
    pub fn put_export(&mut self, export: Export) -> BTreeSet<Pe> {
        put(&mut self.exports, &mut self.imports, export, matches)
    }

    /// The import is there, in the place of what its port had before. Returns the PEs whose routes have changed.
    pub fn put_import(&mut self, import: Import) -> BTreeSet<Pe> {
        put(&mut self.imports, &mut self.exports, import, |import, export| matches(export, import))
    }

    /// The output port is exported no longer. Returns the PEs whose routes have changed.
    pub fn remove_export(&mut self, port: &Port) -> BTreeSet<Pe> {
        remove(&mut self.exports, &mut self.imports, port)
    }

    /// The input port imports no longer. Returns the PEs whose routes have changed.
    pub fn remove_import(&mut self, port: &Port) -> BTreeSet<Pe> {
        remove(&mut self.imports, &mut self.exports, port)
    }

    /// Whether somebody receives what the output port exports.
    #[must_use]
    pub fn has_importers(&self, port: &Port) -> bool {
        is_matched(&self.exports, port)
    }

    /// Whether somebody exports what the input port asks for.
    #[must_use]
    pub fn has_exporters(&self, port: &Port) -> bool {
        is_matched(&self.imports, port)
    }

    /// Input ports that receive what the output port exports, at most so many; and how many there are.
    #[must_use]
    pub fn importers(&self, port: &Port, most: usize) -> (Vec<Port>, usize) {
        others(&self.exports, &self.imports, port, most)
    }

    /// Output ports that send to the input port, at most so many; and how many there are.
    #[must_use]
    pub fn exporters(&self, port: &Port, most: usize) -> (Vec<Port>, usize) {
        others(&self.imports, &self.exports, port, most)
    }

    /// The output ports of a PE that are exported.
    pub fn exports_of(&self, pe: &Pe) -> impl Iterator<Item = &Port> {
        self.exports.of(pe).map(|placed| &placed.fact.port)
    }

    /// The input ports of a PE that import.
    pub fn imports_of(&self, pe: &Pe) -> impl Iterator<Item = &Port> {
        self.imports.of(pe).map(|placed| &placed.fact.port)
    }

    /// Number of exports and of imports.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.exports.len(), self.imports.len())
    }

    /// What a PE is told. A PE without exports and imports, or that nobody knows, has no routes.
    #[must_use]
    pub fn routes(&self, pe: &Pe) -> Routes {
        let exports = self.exports.of(pe).filter(|placed| !placed.matched.is_empty()).map(|placed| {
            let to = placed.matched.iter().filter_map(|id| self.imports.get(*id));
            let entries = to.map(|to| (to.fact.port.to_string(), Subscriber::of(&to.fact)));
            let port = &placed.fact.port;
            (port.to_string(), Published { port_id: port.id, entries: entries.collect() })
        });
        let imports = self.imports.of(pe).filter(|placed| !placed.matched.is_empty()).map(|placed| {
            let from = placed.matched.iter().filter_map(|id| self.exports.get(*id));
            let entries = from.map(|from| (from.fact.port.to_string(), Publisher::of(&from.fact)));
            let port = &placed.fact.port;
            (port.to_string(), Subscribed { port_id: port.id, entries: entries.collect() })
        });
        Routes { exports: exports.collect(), imports: imports.collect() }
    }
}

fn is_matched<F: Fact>(side: &Side<F>, port: &Port) -> bool {
    side.id(port).and_then(|id| side.get(id)).is_some_and(|placed| !placed.matched.is_empty())
}

/// The ports of the far side that a port matches, at most so many, in order; and how many there are.
fn others<F: Fact, G: Fact>(near: &Side<F>, far: &Side<G>, port: &Port, most: usize) -> (Vec<Port>, usize) {
    let Some(placed) = near.id(port).and_then(|id| near.get(id)) else { return (Vec::new(), 0) };
    let some = placed.matched.iter().take(most).filter_map(|id| far.get(*id));
    let mut ports: Vec<Port> = some.map(|other| other.fact.port().clone()).collect();
    ports.sort();
    (ports, placed.matched.len())
}

/// Puts a fact on the near side, and its matches on both.
fn put<F: Fact, G: Fact>(
    near: &mut Side<F>,
    far: &mut Side<G>,
    fact: F,
    is_match: impl Fn(&F, &G) -> bool,
) -> BTreeSet<Pe> {
    let keys = fact.keys();
    let mut now = far.having(&keys);
    now.retain(|id| far.get(*id).is_some_and(|other| is_match(&fact, &other.fact)));
    let shown = fact.shown();
    let is_shown_alike = near.id(fact.port()).and_then(|id| near.get(id)).is_some_and(|old| old.fact.shown() == shown);
    let pe = fact.port().pe.clone();
    let id = near.put(fact, keys);
    let before = near.replace_matched(id, now.clone());
    let changed: Vec<Id> = before.symmetric_difference(&now).copied().collect();
    for other in &changed {
        far.note(*other, id, now.contains(other));
    }
    let mut touched = BTreeSet::new();
    if !changed.is_empty() {
        touched.insert(pe);
    }
    // Those that stay matched see what is shown of the fact.
    let told = if is_shown_alike { changed } else { before.union(&now).copied().collect() };
    touched.extend(pes(far, told));
    touched
}

fn remove<F: Fact, G: Fact>(near: &mut Side<F>, far: &mut Side<G>, port: &Port) -> BTreeSet<Pe> {
    let Some((id, placed)) = near.remove(port) else { return BTreeSet::new() };
    for other in &placed.matched {
        far.note(*other, id, false);
    }
    let mut touched = BTreeSet::new();
    if !placed.matched.is_empty() {
        touched.insert(port.pe.clone());
    }
    touched.extend(pes(far, placed.matched));
    touched
}

fn pes<F: Fact>(side: &Side<F>, ids: impl IntoIterator<Item = Id>) -> impl Iterator<Item = Pe> {
    ids.into_iter().filter_map(|id| side.get(id)).map(|placed| placed.fact.port().pe.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::{Application, NamedStream, Subscription};
    use proptest::prelude::*;
    use proptest::sample::select;
    use spl_expression::{Expression, Limits, Properties, Value};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const SUBSCRIPTIONS: [&str; 8] = [
        "n == 1",
        "n == 1.0 && t == \"a\"",
        "n > 0 || t == \"b\"",
        "\"a\" in l",
        "1 == 1",
        "!(n == 2)",
        "false",
        "n in l || t == \"a\" && n < 2",
    ];

    fn port() -> impl Strategy<Value = Port> {
        (select(vec!["a", "b"]), 0u64..3, 0u32..2)
            .prop_map(|(job, id, port)| Port { pe: Pe { job: job.into(), id }, id: port })
    }

    fn text(of: &'static [&'static str]) -> impl Strategy<Value = Arc<str>> {
        select(of).prop_map(Arc::from)
    }

    fn properties() -> impl Strategy<Value = Properties> {
        let number = prop_oneof![
            (0i64..3).prop_map(|n| Value::Int64(n.into())),
            (0i64..3).prop_map(|n| Value::Float64(n as f64)),
        ];
        let word = text(&["a", "b"]).prop_map(Value::Rstring);
        let list = prop::collection::vec(text(&["a", "b"]), 0..3)
            .prop_map(|texts| Value::List(spl_expression::List::Rstring(texts.into())));
        (prop::option::of(number), prop::option::of(word), prop::option::of(list)).prop_map(|(n, t, l)| {
            let all = [("n", n), ("t", t), ("l", l)];
            all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
        })
    }

    fn export() -> impl Strategy<Value = Export> {
        let application = (text(&["x", "y"]), text(&["Default", "s"]));
        let application = application.prop_map(|(name, scope)| Application { name, scope });
        let name = prop::option::of(text(&["out", "in"]));
        (port(), 1u64..3, application, name, prop::option::of(properties()), any::<bool>()).prop_map(
            |(port, job_id, application, name, properties, allows_filter)| Export {
                port,
                job_id,
                application,
                name,
                properties,
                allows_filter,
            },
        )
    }

    fn import() -> impl Strategy<Value = Import> {
        let scope = || text(&["Default", "s"]);
        let named = (prop::option::of(text(&["x", "y"])), scope(), text(&["out", "in"]))
            .prop_map(|(application, scope, stream)| NamedStream { application, scope, stream });
        let subscription = (scope(), select(&SUBSCRIPTIONS[..])).prop_map(|(scope, text)| Subscription {
            scope,
            expression: Expression::parse(text, &Limits::default()).unwrap(),
        });
        let named = prop::collection::vec(named, 0..2);
        (port(), 1u64..3, 0u32..2, named, prop::option::of(subscription), prop::option::of(text(&["", "f", "g"])))
            .prop_map(|(port, job_id, port_index, named, subscription, filter)| Import {
                port,
                job_id,
                port_index,
                named,
                subscription,
                filter,
            })
    }

    #[derive(Clone, Debug)]
    enum Change {
        PutExport(Export),
        PutImport(Import),
        RemoveExport(Port),
        RemoveImport(Port),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            3 => export().prop_map(Change::PutExport),
            3 => import().prop_map(Change::PutImport),
            1 => port().prop_map(Change::RemoveExport),
            1 => port().prop_map(Change::RemoveImport),
        ]
    }

    /// The routes of all PEs, by trying every export with every import.
    fn from_scratch(exports: &BTreeMap<Port, Export>, imports: &BTreeMap<Port, Import>) -> BTreeMap<Pe, Routes> {
        let mut routes: BTreeMap<Pe, Routes> = BTreeMap::new();
        for (export, import) in exports.values().flat_map(|export| imports.values().map(move |import| (export, import)))
        {
            if !matches(export, import) {
                continue;
            }
            let (from, to) = (&export.port, &import.port);
            let published = routes.entry(from.pe.clone()).or_default().exports.entry(from.to_string());
            let published = published.or_insert(Published { port_id: from.id, entries: BTreeMap::new() });
            published.entries.insert(to.to_string(), Subscriber::of(import));
            let subscribed = routes.entry(to.pe.clone()).or_default().imports.entry(to.to_string());
            let subscribed = subscribed.or_insert(Subscribed { port_id: to.id, entries: BTreeMap::new() });
            subscribed.entries.insert(from.to_string(), Publisher::of(export));
        }
        routes
    }

    proptest! {
        #[test]
        fn after_every_change_the_board_is_that_of_what_is_there_and_names_whose_routes_changed(
            changes in prop::collection::vec(change(), 1..60)
        ) {
            let mut board = Board::default();
            let (mut exports, mut imports) = (BTreeMap::new(), BTreeMap::new());
            let mut before = BTreeMap::new();
            for change in changes {
                let touched = match change.clone() {
                    Change::PutExport(export) => {
                        exports.insert(export.port.clone(), export.clone());
                        board.put_export(export)
                    }
                    Change::PutImport(import) => {
                        imports.insert(import.port.clone(), import.clone());
                        board.put_import(import)
                    }
                    Change::RemoveExport(port) => {
                        exports.remove(&port);
                        board.remove_export(&port)
                    }
                    Change::RemoveImport(port) => {
                        imports.remove(&port);
                        board.remove_import(&port)
                    }
                };
                let now = from_scratch(&exports, &imports);
                let pes: BTreeSet<&Pe> = before.keys().chain(now.keys()).collect();
                let changed: BTreeSet<Pe> =
                    pes.into_iter().filter(|pe| before.get(*pe) != now.get(*pe)).cloned().collect();
                prop_assert_eq!(touched, changed, "{:?}", change);
                for pe in exports.keys().chain(imports.keys()).map(|port| &port.pe) {
                    prop_assert_eq!(board.routes(pe), now.get(pe).cloned().unwrap_or_default());
                }
                for port in exports.keys() {
                    let of_port = now.get(&port.pe).and_then(|routes| routes.exports.get(&port.to_string()));
                    let others: Vec<&String> = of_port.iter().flat_map(|of_port| of_port.entries.keys()).collect();
                    prop_assert_eq!(board.has_importers(port), !others.is_empty());
                    let (ports, count) = board.importers(port, usize::MAX);
                    let labels: Vec<String> = ports.iter().map(ToString::to_string).collect();
                    prop_assert_eq!((labels.iter().collect::<Vec<_>>(), count), (others, labels.len()));
                    let (some, count) = board.importers(port, 1);
                    prop_assert_eq!((some.len(), count), (labels.len().min(1), labels.len()));
                }
                for port in imports.keys() {
                    let of_port = now.get(&port.pe).and_then(|routes| routes.imports.get(&port.to_string()));
                    let others: Vec<&String> = of_port.iter().flat_map(|of_port| of_port.entries.keys()).collect();
                    prop_assert_eq!(board.has_exporters(port), !others.is_empty());
                    let (ports, count) = board.exporters(port, usize::MAX);
                    let labels: Vec<String> = ports.iter().map(ToString::to_string).collect();
                    prop_assert_eq!((labels.iter().collect::<Vec<_>>(), count), (others, labels.len()));
                    let (some, count) = board.exporters(port, 1);
                    prop_assert_eq!((some.len(), count), (labels.len().min(1), labels.len()));
                }
                prop_assert_eq!(board.size(), (exports.len(), imports.len()));
                before = now;
            }
            for port in exports.keys() {
                board.remove_export(port);
            }
            for port in imports.keys() {
                board.remove_import(port);
            }
            prop_assert!(board.exports.is_empty() && board.imports.is_empty(), "{board:?}");
        }
    }
}
