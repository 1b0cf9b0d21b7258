//! Dynamic connections: messages about them (UDP on port 10000), and the question that is asked at the start and after
//! a minute without message. Each document says all routes of the PE; what differs from the one before is done.
//!
//! As in the runtime, a message of more than 16,384 bytes is cut, an answer 404 ends all exports and no import, and of
//! a route that is there already only the filter changes.

use crate::api::Api;
use crate::connections::{Connections, lock};
use crate::control::{Change, Control};
use crate::peers::PortLabel;
use crate::status::{ExportRoute, ImportRoute, RoutesStatus};
use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
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
            status.exports = apply(&status.exports, wanted);
            changes
        };
        for change in changes {
            if self.control.send(Control::Route(change)).await.is_err() {
                return;
            }
        }
    }

    fn import(&self, wanted: BTreeMap<String, Port<ImportRoute>>) {
        let imports: BTreeMap<_, _> = wanted.into_iter().map(|(label, port)| (label, port.entries)).collect();
        let entries = imports.values().flat_map(BTreeMap::values);
        let senders: BTreeSet<PortLabel> =
            entries.map(|entry| PortLabel { pe: entry.pe_id, port: entry.port_id, job_id: entry.job_id }).collect();
        lock(&self.status).imports = imports;
        self.connections.import(senders);
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
    for (own, entries) in known {
        for other in entries.keys() {
            if !wanted.get(own).is_some_and(|port| port.entries.contains_key(other)) {
                changes.push(Change::Remove { key: (own.clone(), other.clone()) });
            }
        }
    }
    for (own, port) in wanted {
        for (other, route) in &port.entries {
            let key = (own.clone(), other.clone());
            match known.get(own).and_then(|entries| entries.get(other)) {
                None => changes.push(Change::Add { port: port.port_id, key, route: route.clone() }),
                Some(known) if known != route => {
                    changes.push(Change::Filter { key, filter: route.filter.clone() });
                }
                Some(_) => {}
            }
        }
    }
    changes
}

/// What is known after the changes: of routes that were there before, only the filter is new.
fn apply(known: &Known, wanted: &BTreeMap<String, Port<ExportRoute>>) -> Known {
    let kept = |own: &str, other: &str, route: &ExportRoute| match known.get(own).and_then(|known| known.get(other)) {
        Some(known) => ExportRoute { filter: route.filter.clone(), ..known.clone() },
        None => route.clone(),
    };
    let entries = |own: &str, port: &Port<ExportRoute>| {
        port.entries.iter().map(|(other, route)| (other.clone(), kept(own, other, route))).collect()
    };
    wanted.iter().map(|(own, port)| (own.clone(), entries(own, port))).collect()
}

#[cfg(test)]
mod tests {
    use super::{apply, difference, parse};
    use crate::control::Change;
    use std::collections::BTreeMap;

    const ONE: &str = r#"{"exports":{"exporter-0-0":{"portId":0,"entries":{"importer-0-0":{"jobId":1,"peId":0,"portId":0,"portIndex":0,"filter":""}}}},"imports":{}}"#;

    #[test]
    fn the_difference_of_two_documents_is_what_is_done() {
        let key = ("exporter-0-0".to_owned(), "importer-0-0".to_owned());
        let one = parse(ONE.as_bytes()).unwrap();
        let nothing = BTreeMap::new();
        let added = difference(&nothing, &one.exports);
        assert!(matches!(&added[..], [Change::Add { port: 0, key: of, .. }] if *of == key), "{added:?}");
        let known = apply(&nothing, &one.exports);
        assert_eq!(difference(&known, &one.exports), []);

        let filtered = parse(
            ONE.replace(r#""filter":"""#, r#""filter":"a == 1""#).replace(r#""peId":0"#, r#""peId":5"#).as_bytes(),
        );
        let filtered = filtered.unwrap();
        let filter = "a == 1".to_owned();
        assert_eq!(
            difference(&known, &filtered.exports),
            [Change::Filter { key: key.clone(), filter: filter.clone() }]
        );
        let route = apply(&known, &filtered.exports)["exporter-0-0"]["importer-0-0"].clone();
        assert_eq!((route.filter, route.pe_id), (filter, 0), "only the filter is new");

        assert_eq!(difference(&known, &BTreeMap::new()), [Change::Remove { key }]);
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for text in ["", "null", "{}", r#"{"exports":{}}"#, &ONE[..ONE.len() - 1]] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse(br#"{"exports":{},"imports":{}}"#).is_ok());
    }
}
