//! Exports and imports: what is known of them, and what matches what (rule import-1).
//!
//! Knows: subscriptions, properties, names. Must not know: the board, which other facts there are.
//!
//! Invariant: whether two facts match depends on these two alone.

use crate::port::Port;
use serde_json::Value as Json;
use spl_expression::{Expression, Need, Needs, Properties, Selected};
use std::sync::Arc;

/// Steps for a pair that is tried, besides those of its subscription: it is found, and what comes of it is noted.
pub(crate) const PAIR_STEPS: usize = 256;
/// Steps for a name that is compared.
const NAME_STEPS: usize = 32;
/// Keys of the properties of an export, and of the streams that an import names. An export with more properties and
/// values is tried with all subscriptions of its scope, and an import of more streams with all exports that have a
/// name: it costs less to try a few more than to keep a hundred thousand keys, each of which takes hundreds of bytes.
pub(crate) const KEYS_MAX: usize = 32;
/// Octets of a filter that weigh as much as an entry of routes without one.
const ENTRY_OCTETS: usize = 128;

/// An application, as imports name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// Its name.
    pub name: Arc<str>,
    /// The scope within which its exports are found.
    pub scope: Arc<str>,
}

/// An exported stream.
#[derive(Clone, Debug)]
pub struct Export {
    /// The output port.
    pub port: Port,
    /// Number of the job in its namespace.
    pub job_id: u64,
    /// The application that exports.
    pub application: Application,
    /// The name under which it is found.
    pub name: Option<Arc<str>>,
    /// The properties by which it is found: none is something else than no properties.
    pub properties: Option<Arc<Properties>>,
    /// Whether importers may have tuples filtered before they are sent.
    pub allows_filter: bool,
}

/// What an input port asks for.
#[derive(Clone, Debug)]
pub struct Import {
    /// The input port.
    pub port: Port,
    /// Number of the job in its namespace.
    pub job_id: u64,
    /// The number by which exporting PEs count what they send to the port.
    pub port_index: u32,
    /// Streams by name.
    pub named: Arc<[NamedStream]>,
    /// Streams by their properties.
    pub subscription: Option<Subscription>,
    /// Which tuples it wants, for the exporting PE to read.
    pub filter: Option<Arc<str>>,
}

impl Export {
    /// The same port, of which nobody gets anything.
    #[must_use]
    pub fn for_nobody(self) -> Self {
        Self { name: None, properties: None, ..self }
    }
}

impl Import {
    /// The same port, which gets nothing.
    #[must_use]
    pub fn of_nothing(self) -> Self {
        Self { named: Arc::default(), subscription: None, filter: None, ..self }
    }
}

/// Those who share their properties need not look at all of them.
fn is_alike(one: Option<&Arc<Properties>>, other: Option<&Arc<Properties>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// A stream that is asked for by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedStream {
    /// Of this application only.
    pub application: Option<Arc<str>>,
    /// Of applications of this scope.
    pub scope: Arc<str>,
    /// The name under which it is exported.
    pub stream: Arc<str>,
}

/// Streams that are asked for by their properties.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Of applications of this scope.
    pub scope: Arc<str>,
    /// What must be true of the properties.
    pub expression: Arc<Expression>,
}

impl PartialEq for Subscription {
    /// Those who share a tree need not look at all of it.
    fn eq(&self, other: &Self) -> bool {
        let is_same = || Arc::ptr_eq(&self.expression, &other.expression) || self.expression == other.expression;
        self.scope == other.scope && is_same()
    }
}

/// What comes of trying an export with an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The tuples of the export go to the import.
    Matches,
    /// They do not.
    Differs,
    /// They do not, because it would cost too much to find out.
    TooCostly,
}

/// Whether the tuples of the export go to the import.
#[must_use]
pub fn matches(export: &Export, import: &Import) -> bool {
    tried(export, import).0 == Outcome::Matches
}

/// Tries an export with an import; says besides how many steps it took. Both depend on these two only.
pub(crate) fn tried(export: &Export, import: &Import) -> (Outcome, usize) {
    let is_named = |named: &NamedStream| {
        export.name.as_ref() == Some(&named.stream)
            && named.scope == export.application.scope
            && named.application.as_ref().is_none_or(|application| *application == export.application.name)
    };
    if import.filter.is_some() && !export.allows_filter {
        return (Outcome::Differs, PAIR_STEPS);
    }
    let steps = PAIR_STEPS + NAME_STEPS * import.named.len();
    if import.named.iter().any(is_named) {
        return (Outcome::Matches, steps);
    }
    let subscription = import.subscription.as_ref().filter(|asked| asked.scope == export.application.scope);
    let (Some(subscription), Some(properties)) = (subscription, &export.properties) else {
        return (Outcome::Differs, steps);
    };
    let selection = subscription.expression.select(properties);
    let outcome = match selection.selected {
        Selected::Yes => Outcome::Matches,
        Selected::No => Outcome::Differs,
        Selected::TooCostly => Outcome::TooCostly,
    };
    (outcome, steps + selection.steps)
}

/// Under what an export or import is found by the other side. What matches has a key in common (rule import-2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// This scope, this stream.
    Name(Arc<str>, Arc<str>),
    /// A stream with a name, or more names than are worth a key each.
    AnyName,
    /// This scope, whatever the properties.
    Properties(Arc<str>),
    /// This scope, a property.
    Property(Arc<str>, Need),
    /// This scope, more properties than are worth a key each.
    Many(Arc<str>),
}

/// One side of a match.
pub(crate) trait Fact {
    /// What others are told of it.
    type Shown: PartialEq;

    fn port(&self) -> &Port;

    fn shown(&self) -> Self::Shown;

    /// What an entry for it weighs in the routes of others.
    fn weight(&self) -> usize;

    /// Whether it matches exactly what the other one matches, as far as can be seen without trying.
    fn matches_like(&self, other: &Self) -> bool;

    fn keys(&self) -> Vec<Key>;
}

impl Fact for Export {
    type Shown = u64;

    fn port(&self) -> &Port {
        &self.port
    }

    fn shown(&self) -> u64 {
        self.job_id
    }

    fn weight(&self) -> usize {
        1
    }

    fn matches_like(&self, other: &Self) -> bool {
        self.application == other.application
            && self.name == other.name
            && is_alike(self.properties.as_ref(), other.properties.as_ref())
            && self.allows_filter == other.allows_filter
    }

    fn keys(&self) -> Vec<Key> {
        let scope = &self.application.scope;
        let name = self.name.iter().flat_map(|name| [Key::Name(scope.clone(), name.clone()), Key::AnyName]);
        let properties = self.properties.iter().flat_map(|properties| {
            let each = properties.met().map(|need| Key::Property(scope.clone(), need));
            let mut each: Vec<Key> = each.take(KEYS_MAX + 1).collect();
            if each.len() > KEYS_MAX {
                each = vec![Key::Many(scope.clone())];
            }
            std::iter::once(Key::Properties(scope.clone())).chain(each)
        });
        name.chain(properties).collect()
    }
}

impl Fact for Import {
    // Nobody is told whether there is an empty filter or none.
    type Shown = (u64, u32, Arc<str>);

    fn port(&self) -> &Port {
        &self.port
    }

    fn shown(&self) -> Self::Shown {
        (self.job_id, self.port_index, self.filter.clone().unwrap_or_default())
    }

    fn weight(&self) -> usize {
        // As long as it is written: it may have characters that JSON writes as six.
        let written = self.filter.as_deref().map_or(0, |filter| Json::from(filter).to_string().len());
        1 + written / ENTRY_OCTETS
    }

    fn matches_like(&self, other: &Self) -> bool {
        (Arc::ptr_eq(&self.named, &other.named) || self.named == other.named)
            && self.subscription == other.subscription
            && self.filter.is_some() == other.filter.is_some()
    }

    fn keys(&self) -> Vec<Key> {
        let has_many = self.named.len() > KEYS_MAX;
        let each = self.named.iter().filter(|_| !has_many);
        let named = each.map(|named| Key::Name(named.scope.clone(), named.stream.clone()));
        let named = named.chain(has_many.then_some(Key::AnyName));
        let subscribed =
            self.subscription.iter().flat_map(|Subscription { scope, expression }| match expression.needs() {
                Needs::Nothing => vec![Key::Properties(scope.clone())],
                Needs::OneOf(needs) if needs.is_empty() => Vec::new(),
                Needs::OneOf(needs) => {
                    let each = needs.into_iter().map(|need| Key::Property(scope.clone(), need));
                    each.chain([Key::Many(scope.clone())]).collect()
                }
            });
        named.chain(subscribed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Pe;
    use spl_expression::{Limits, Value};

    fn port(job: &str) -> Port {
        Port { pe: Pe { job: job.into(), id: 0 }, id: 0 }
    }

    fn export(name: Option<&str>, properties: Option<&[(&str, i64)]>, allows_filter: bool) -> Export {
        let value = |(name, value): &(&str, i64)| ((*name).to_owned(), Value::Int64((*value).into()));
        Export {
            port: port("exporter"),
            job_id: 1,
            application: Application { name: "demo::Exporter".into(), scope: "Default".into() },
            name: name.map(Arc::from),
            properties: properties.map(|properties| Arc::new(properties.iter().map(value).collect())),
            allows_filter,
        }
    }

    fn import(
        named: &[(Option<&str>, &str, &str)],
        subscription: Option<(&str, &str)>,
        filter: Option<&str>,
    ) -> Import {
        let named = named.iter().map(|(application, scope, stream)| NamedStream {
            application: application.map(Arc::from),
            scope: (*scope).into(),
            stream: (*stream).into(),
        });
        let subscription = subscription.map(|(scope, text)| Subscription {
            scope: scope.into(),
            expression: Expression::parse(text, &Limits::default()).unwrap().into(),
        });
        Import {
            port: port("importer"),
            job_id: 2,
            port_index: 0,
            named: named.collect(),
            subscription,
            filter: filter.map(Arc::from),
        }
    }

    #[test]
    fn an_import_gets_the_streams_that_it_asks_for() {
        let named = || export(Some("out"), None, true);
        let with = |properties: &[(&str, i64)]| export(None, Some(properties), true);
        let both = || export(Some("out"), Some(&[("n", 1)]), true);
        let by_name = |application, scope, stream| import(&[(application, scope, stream)], None, None);
        let by = |text| import(&[], Some(("Default", text)), None);
        // what is asked, the export, the import, whether they match
        let table = [
            ("by name", named(), by_name(None, "Default", "out"), true),
            ("another name", named(), by_name(None, "Default", "ou"), false),
            ("of the application", named(), by_name(Some("demo::Exporter"), "Default", "out"), true),
            ("of another application", named(), by_name(Some("demo::exporter"), "Default", "out"), false),
            ("of another scope", named(), by_name(None, "default", "out"), false),
            ("second name", named(), import(&[(None, "Default", "a"), (None, "Default", "out")], None, None), true),
            ("a name, but it has none", with(&[]), by_name(None, "Default", "out"), false),
            ("properties", with(&[("n", 1)]), by("n == 1"), true),
            ("other properties", with(&[("n", 2)]), by("n == 1"), false),
            ("no properties", with(&[]), by("1 == 1"), true),
            ("none at all", named(), by("1 == 1"), false),
            ("properties of another scope", with(&[("n", 1)]), import(&[], Some(("a", "n == 1")), None), false),
            ("an error is no match", with(&[("n", 1)]), by("n / 0 == 1"), false),
            ("an integer is no boolean", with(&[("n", 1)]), by("n"), false),
            ("either", both(), by("n == 1"), true),
            ("either", both(), by_name(None, "Default", "out"), true),
            ("nothing", both(), import(&[], None, None), false),
            ("of nothing", both(), by("1 == 1").of_nothing(), false),
            ("for nobody", both().for_nobody(), by("1 == 1"), false),
            ("for nobody, by name", both().for_nobody(), by_name(None, "Default", "out"), false),
            ("a filter", named(), import(&[(None, "Default", "out")], None, Some("x > 1")), true),
            (
                "a filter that is not allowed",
                export(Some("out"), None, false),
                import(&[(None, "Default", "out")], None, Some("x > 1")),
                false,
            ),
        ];
        let filtered = import(&[(None, "Default", "out")], Some(("Default", "1 == 1")), Some("x > 1"));
        assert_eq!(filtered.of_nothing().filter, None, "nobody is told a filter of what matches nothing");
        for (asked, export, import, expected) in table {
            assert_eq!(matches(&export, &import), expected, "{asked}: {export:?} {import:?}");
            let has_common = export.keys().iter().any(|key| import.keys().contains(key));
            assert!(has_common || !expected, "{asked}: nothing would try them");
        }
    }
}
