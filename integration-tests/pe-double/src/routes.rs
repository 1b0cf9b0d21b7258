//! Dynamic connections: messages about them (UDP on port 10000), and the question that is asked at the start and after
//! a minute without message. Each document says all routes of the PE; what differs from the one before is done.
//!
//! As in the runtime, a message of more than 16,384 bytes is cut, and an answer 404 ends all exports and no import.
//! What has a label that was there before is no new route, though it leads to another job: an export has another
//! filter, if it leads where it did, an import stays what it was. What goes is taken to lead where the last document
//! said.

use crate::api::Api;
use crate::connections::{Connections, lock};
use crate::control::{Change, Control};
use crate::peers::PortLabel;
use crate::status::{ExportRoute, ImportRoute, RoutesStatus};
use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The UDP port for messages about routes.
pub const ROUTES_PORT: u16 = 10_000;
/// Longest message.
const MESSAGE: usize = 16_384;
/// The message that asks the PE to get its routes.
const GET_THEM: &[u8] = b"deadbeef";

/// All routes of a PE.
#[derive(Debug, Deserialize)]
struct Document {
    exports: BTreeMap<String, Port<ExportRoute>>,
    imports: BTreeMap<String, Port<ImportRoute>>,
}

/// The routes of one of its ports.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port<E> {
    port_id: u32,
    entries: BTreeMap<String, E>,
}

/// Whoever looks after the routes of a PE.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) api: Api,
    pub(crate) job: String,
    pub(crate) pe: u64,
    pub(crate) poll: Duration,
    pub(crate) status: Arc<Mutex<RoutesStatus>>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) control: mpsc::Sender<Control>,
}

impl Routes {
    /// Goes on until it is dropped.
    pub(crate) async fn run(self, socket: UdpSocket) {
        self.get().await;
        let mut message = vec![0; MESSAGE];
        loop {
            match timeout(self.poll, socket.recv(&mut message)).await {
                Ok(Ok(length)) => {
                    let message = message.get(..length).unwrap_or_default();
                    {
                        let mut status = lock(&self.status);
                        status.datagrams += 1;
                        status.last_datagram = Some(String::from_utf8_lossy(message).into_owned());
                    }
                    if message == GET_THEM {
                        lock(&self.status).asked_to_poll += 1;
                        self.get().await;
                    } else {
                        self.read(message).await;
                    }
                }
                Ok(Err(error)) => self.connections.problem(format!("no messages about routes: {error}")),
                Err(_) => self.get().await,
            }
        }
    }

    async fn get(&self) {
        lock(&self.status).polls += 1;
        match self.api.get(&format!("/api/subscriptions/job/{}/pe/{}", self.job, self.pe)).await {
            Ok(answer) if answer.status == 200 => self.read(answer.body.as_bytes()).await,
            Ok(answer) if answer.status == 404 => {
                lock(&self.status).absent += 1;
                self.export(&BTreeMap::new()).await;
            }
            Ok(answer) => {
                self.connections.problem(format!("the routes cannot be had: {} {}", answer.status, answer.body));
            }
            Err(error) => self.connections.problem(format!("the routes cannot be had: {error:#}")),
        }
    }

    async fn read(&self, document: &[u8]) {
        match parse(document) {
            Ok(document) => {
                self.export(&document.exports).await;
                self.import(document.imports);
            }
            Err(error) => {
                lock(&self.status).malformed += 1;
                self.connections.problem(format!("{error:#}"));
            }
        }
    }

    async fn export(&self, wanted: &BTreeMap<String, Port<ExportRoute>>) {
        let changes = {
            let mut status = lock(&self.status);
            let changes = difference(&status.exports, wanted);
            status.exports = wanted.iter().map(|(own, port)| (own.clone(), port.entries.clone())).collect();
            changes
        };
        for change in changes {
            if self.control.send(Control::Route(change)).await.is_err() {
                return;
            }
        }
    }

    fn import(&self, wanted: BTreeMap<String, Port<ImportRoute>>) {
        let imports: Imports = wanted.into_iter().map(|(label, port)| (label, port.entries)).collect();
        let known = std::mem::replace(&mut lock(&self.status).imports, imports.clone());
        self.connections.import(|senders| follow(senders, &known, &imports));
    }
}

type Imports = BTreeMap<String, BTreeMap<String, ImportRoute>>;

/// Adds whose label is new, and removes whose label has gone.
fn follow(senders: &mut BTreeSet<PortLabel>, known: &Imports, wanted: &Imports) {
    let has = |imports: &Imports, own: &str, other: &str| imports.get(own).is_some_and(|of| of.contains_key(other));
    for (own, entries) in wanted {
        senders.extend(entries.iter().filter(|(other, _)| !has(known, own, other)).map(|(_, entry)| entry.label()));
    }
    for (own, entries) in known {
        for (_, entry) in entries.iter().filter(|(other, _)| !has(wanted, own, other)) {
            senders.remove(&entry.label());
        }
    }
}

fn parse(document: &[u8]) -> Result<Document> {
    serde_json::from_slice(document).with_context(|| {
        let text = String::from_utf8_lossy(document.get(..200).unwrap_or(document)).into_owned();
        format!("no document of routes: {text:?}")
    })
}

type Known = BTreeMap<String, BTreeMap<String, ExportRoute>>;

fn difference(known: &Known, wanted: &BTreeMap<String, Port<ExportRoute>>) -> Vec<Change> {
    let mut changes = Vec::new();
    for (own, port) in wanted {
        for (other, route) in &port.entries {
            match known.get(own).and_then(|entries| entries.get(other)) {
                None => changes.push(Change::Add { port: port.port_id, own: own.clone(), route: route.clone() }),
                Some(known) if known != route => {
                    changes.push(Change::Filter { key: (own.clone(), route.label()), filter: route.filter.clone() });
                }
                Some(_) => {}
            }
        }
    }
    for (own, entries) in known {
        for (other, route) in entries {
            if !wanted.get(own).is_some_and(|port| port.entries.contains_key(other)) {
                changes.push(Change::Remove { key: (own.clone(), route.label()) });
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::{Document, Imports, Known, difference, follow, parse};
    use crate::control::Change;
    use crate::peers::PortLabel;
    use crate::status::ImportRoute;
    use std::collections::{BTreeMap, BTreeSet};

    const ONE: &str = r#"{"exports":{"exporter-0-0":{"portId":0,"entries":{"importer-0-0":{"jobId":1,"peId":0,"portId":0,"portIndex":0,"filter":""}}}},"imports":{}}"#;

    #[test]
    fn the_difference_of_two_documents_is_what_is_done() {
        let (own, to) = ("exporter-0-0".to_owned(), PortLabel { pe: 0, port: 0, job_id: 1 });
        let one = parse(ONE.as_bytes()).unwrap();
        let nothing = BTreeMap::new();
        let added = difference(&nothing, &one.exports);
        assert!(matches!(&added[..], [Change::Add { port: 0, own: of, .. }] if *of == own), "{added:?}");
        let known = as_known(&one);
        assert_eq!(difference(&known, &one.exports), []);

        let filter = |text: &str| ONE.replace(r#""filter":"""#, &format!(r#""filter":"{text}""#));
        let filtered = parse(filter("a == 1").as_bytes()).unwrap();
        let changed = |to| [Change::Filter { key: (own.clone(), to), filter: "a == 1".to_owned() }];
        assert_eq!(difference(&known, &filtered.exports), changed(to));
        // The same label, another job: no route leads there, and none is made.
        let other = parse(filter("a == 1").replace(r#""jobId":1"#, r#""jobId":2"#).as_bytes()).unwrap();
        let there = PortLabel { job_id: 2, ..to };
        assert_eq!(difference(&known, &other.exports), changed(there));

        assert_eq!(difference(&known, &BTreeMap::new()), [Change::Remove { key: (own.clone(), to) }]);
        assert_eq!(difference(&as_known(&other), &BTreeMap::new()), [Change::Remove { key: (own, there) }]);
    }

    fn as_known(document: &Document) -> Known {
        document.exports.iter().map(|(own, port)| (own.clone(), port.entries.clone())).collect()
    }

    #[test]
    fn an_import_stays_what_it_was_as_long_as_its_label_does() {
        let label = |job_id| PortLabel { pe: 0, port: 0, job_id };
        let of = |entries: &[(&str, u64)]| -> Imports {
            let entry = |(other, job_id): &(&str, u64)| {
                ((*other).to_owned(), ImportRoute { job_id: *job_id, pe_id: 0, port_id: 0 })
            };
            [("importer-0-0".to_owned(), entries.iter().map(entry).collect())].into()
        };
        // documents -> senders that are missed
        let table: [(&[&[(&str, u64)]], &[u64]); 4] = [
            (&[&[("a", 1)], &[("a", 1), ("b", 2)]], &[1, 2]),
            (&[&[("a", 1)], &[], &[("a", 3)]], &[3]),
            (&[&[("a", 1)], &[("a", 3)]], &[1]),
            (&[&[("a", 1)], &[("a", 3)], &[]], &[1]),
        ];
        for (documents, expected) in table {
            let (mut senders, mut known) = (BTreeSet::new(), Imports::new());
            for document in documents {
                let wanted = of(document);
                follow(&mut senders, &known, &wanted);
                known = wanted;
            }
            let expected: BTreeSet<PortLabel> = expected.iter().copied().map(label).collect();
            assert_eq!(senders, expected, "{documents:?}");
        }
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for text in ["", "null", "{}", r#"{"exports":{}}"#, &ONE[..ONE.len() - 1]] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse(br#"{"exports":{},"imports":{}}"#).is_ok());
    }
}
