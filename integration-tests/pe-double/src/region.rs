//! Consistent regions: messages about them (UDP on port 10001, and a question every five seconds), and reports.
//!
//! As in the runtime, a message of more than 128 bytes is cut, a document that cannot be read ends the PE, what was
//! said last is forgotten with the next document, a message that equals the last one is dropped, and only a PE in which
//! a region starts acts. The others follow the markers between tuples. A report is sent once: one that is not taken is
//! lost.

use crate::api::Api;
use crate::connections::Connections;
use crate::control::{Control, Report, Told};
use crate::frame::Wave;
use crate::options::CheckpointStyle;
use crate::scope::Scope;
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

/// The UDP port for messages about consistent regions.
pub const REGIONS_PORT: u16 = 10_001;
/// How the reason begins for which a PE ends that is told what it cannot read.
pub const UNREADABLE: &str = "no document of regions";
/// Longest message.
const MESSAGE: usize = 128;
/// With checkpoints in two steps: the time between both.
const WRITING: Duration = Duration::from_millis(100);

/// The last message about a region.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Message {
    #[serde(rename = "type")]
    kind: String,
    message: String,
}

/// Whoever listens to messages about the regions of a PE.
#[derive(Debug)]
pub(crate) struct Regions {
    pub(crate) api: Api,
    pub(crate) pe: u64,
    pub(crate) poll: Duration,
    pub(crate) connections: Arc<Connections>,
    pub(crate) control: mpsc::Sender<Control>,
    pub(crate) scope: Scope,
}

impl Regions {
    /// Goes on until it is dropped, or the PE ends because of what it is told.
    pub(crate) async fn run(self, socket: UdpSocket) {
        let mut last = BTreeMap::new();
        let mut message = vec![0; MESSAGE];
        let mut next_poll = Instant::now();
        loop {
            let document = match timeout_at(next_poll, socket.recv(&mut message)).await {
                Ok(Ok(length)) => {
                    // Whoever hears something does not ask.
                    next_poll = Instant::now() + self.poll;
                    message.get(..length).map(<[u8]>::to_vec)
                }
                Ok(Err(error)) => {
                    self.connections.problem(format!("no messages about regions: {error}"));
                    sleep(self.poll).await;
                    None
                }
                Err(_) => {
                    next_poll = Instant::now() + self.poll;
                    self.get().await
                }
            };
            let Some(document) = document else { continue };
            match serde_json::from_slice::<BTreeMap<u32, Message>>(&document) {
                Ok(document) => {
                    for (region, message) in &document {
                        if last.get(region) != Some(message) {
                            self.hear(*region, message).await;
                        }
                    }
                    last = document;
                }
                Err(error) => {
                    let text = String::from_utf8_lossy(&document).into_owned();
                    let why = format!("{UNREADABLE}: {text:?}: {error}");
                    self.connections.problem(why.clone());
                    return self.scope.end(why);
                }
            }
        }
    }

    async fn get(&self) -> Option<Vec<u8>> {
        match self.api.get(&format!("/api/consistentregion/pe/{}", self.pe)).await {
            Ok(answer) if answer.status == 200 => Some(answer.body.into_bytes()),
            Ok(answer) if answer.status == 404 => None,
            Ok(answer) => {
                self.connections.problem(format!("messages about regions: {} {}", answer.status, answer.body));
                None
            }
            Err(error) => {
                self.connections.problem(format!("messages about regions: {error:#}"));
                None
            }
        }
    }

    async fn hear(&self, region: u32, message: &Message) {
        match read(message) {
            Ok(told) => {
                let text = format!("{} {}", message.kind, message.message);
                // The engine is there as long as this task is.
                let _ = self.control.send(Control::Region { region, told, text }).await;
            }
            Err(error) => self.connections.problem(format!("{error:#}")),
        }
    }
}

fn read(message: &Message) -> Result<Told> {
    let wrong = || format!("no message about a region: {} {:?}", message.kind, message.message);
    let names: &[&str] = match message.kind.as_str() {
        "triggerDrain" | "drained" | "resetFailed" => &["seqId"],
        "triggerReset" => &["seqId", "resetAttempt"],
        "resumeSubmission" => &["seqId", "retId", "pendCkpt"],
        _ => bail!(wrong()),
    };
    let parts: Vec<&str> = message.message.split(';').collect();
    if parts.len() != names.len() {
        bail!(wrong());
    }
    let value = |(part, name): (&&str, &&str)| part.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok();
    let values: Option<Vec<u64>> = parts.iter().zip(names).map(value).collect();
    match (message.kind.as_str(), values.with_context(wrong)?.as_slice()) {
        ("triggerDrain", [seq]) => Ok(Told::Wave(Wave::Drain { seq: *seq })),
        ("triggerReset", [seq, attempt]) => Ok(Told::Wave(Wave::Reset { seq: *seq, attempt: *attempt })),
        ("resumeSubmission", [seq, retire, pending @ (0 | 1)]) => {
            Ok(Told::Wave(Wave::Resume { seq: *seq, retire: *retire, pending: *pending == 1 }))
        }
        ("drained", [_]) => Ok(Told::Drained),
        ("resetFailed", [_]) => Ok(Told::Failed),
        _ => bail!(wrong()),
    }
}

/// Whoever reports.
#[derive(Debug)]
pub(crate) struct Reporter {
    pub(crate) api: Api,
    pub(crate) pe: u64,
    pub(crate) style: CheckpointStyle,
    pub(crate) connections: Arc<Connections>,
    pub(crate) control: mpsc::Sender<Control>,
}

impl Reporter {
    /// Goes on until nobody has anything to report.
    pub(crate) async fn run(self, mut reports: mpsc::Receiver<Report>) {
        while let Some(report) = reports.recv().await {
            match report {
                Report::Checkpoint { region, seq } => {
                    if self.style == CheckpointStyle::Blocking {
                        self.report(region, "blockingcheckpoint", seq.to_string()).await;
                        sleep(WRITING).await;
                    }
                    self.report(region, "checkpoint", seq.to_string()).await;
                }
                Report::DrainBegun { region, seq, operator } => {
                    let request = json!({"request": {"seqId": seq.to_string(), "operator": operator}});
                    self.put(region, "drain", &format!("region/{region}/drain"), request.to_string()).await;
                }
                Report::ResetWanted { region, operator } => {
                    let request = json!({"request": {"operator": operator, "force": "false"}});
                    self.put(region, "reset", &format!("region/{region}/reset"), request.to_string()).await;
                }
                Report::Reset { region, seq, attempt } => {
                    let progress = format!(r#"{{"progress":{{"seqId":"{seq}","resetAttempt":"{attempt}"}}}}"#);
                    self.report(region, "reset", progress).await;
                }
            }
        }
    }

    /// Says how far this PE is.
    async fn report(&self, region: u32, what: &str, body: String) {
        let taken = self.put(region, what, &format!("region/{region}/pe/{}/{what}", self.pe), body).await;
        let _ = self.control.send(Control::Reported { region, taken }).await;
    }

    async fn put(&self, region: u32, what: &str, path: &str, body: String) -> bool {
        match self.api.put(&format!("/api/consistentregion/{path}"), body).await {
            Ok(answer) if answer.status == 204 => true,
            Ok(answer) => {
                self.connections.problem(format!("{what} of region {region}: {}", answer.status));
                false
            }
            Err(error) => {
                self.connections.problem(format!("{what} of region {region}: {error:#}"));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Message, read};
    use crate::control::Told;
    use crate::frame::Wave;

    #[test]
    fn messages_are_read_as_they_are_written() {
        for (kind, message, told) in [
            ("triggerDrain", "seqId=3", Some(Told::Wave(Wave::Drain { seq: 3 }))),
            ("triggerReset", "seqId=2;resetAttempt=1", Some(Told::Wave(Wave::Reset { seq: 2, attempt: 1 }))),
            (
                "resumeSubmission",
                "seqId=4;retId=2;pendCkpt=1",
                Some(Told::Wave(Wave::Resume { seq: 4, retire: 2, pending: true })),
            ),
            ("drained", "seqId=3", Some(Told::Drained)),
            ("resetFailed", "seqId=3", Some(Told::Failed)),
            ("triggerReset", "resetAttempt=1;seqId=2", None),
            ("triggerDrain", "seqId=3;", None),
            ("triggerDrain", "seqId= 3", None),
            ("resumeSubmission", "seqId=4;retId=2", None),
            ("resume", "seqId=4", None),
        ] {
            let message = Message { kind: kind.to_owned(), message: message.to_owned() };
            assert_eq!(read(&message).ok(), told, "{message:?}");
        }
    }
}
