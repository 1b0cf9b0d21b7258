//! What a double says of itself: its connectivity to the operator, and everything on its status page.

use crate::api::Api;
use crate::connections::{Connections, lock};
use crate::operators::Operators;
use crate::status::{BundleStatus, Connectivity, RoutesStatus, Status};
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

/// Changes within this time are one.
const TOGETHER: Duration = Duration::from_millis(50);
/// Pauses after calls that failed: the first one, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Everything that can be said of a double.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) namespace: String,
    pub(crate) job: String,
    pub(crate) job_id: u64,
    pub(crate) pe: u64,
    pub(crate) launch: u64,
    pub(crate) address: IpAddr,
    pub(crate) bundle: Option<BundleStatus>,
    pub(crate) started: Arc<AtomicBool>,
    pub(crate) reported: Mutex<Option<Connectivity>>,
    pub(crate) routes: Arc<Mutex<RoutesStatus>>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) operators: Arc<Mutex<Operators>>,
}

impl Facts {
    /// All of it.
    pub(crate) fn status(&self) -> Status {
        let (operators, sinks, regions) = lock(&self.operators).status();
        let (outputs, inputs, problems) = self.connections.status();
        Status {
            namespace: self.namespace.clone(),
            job: self.job.clone(),
            job_id: self.job_id,
            pe: self.pe,
            launch: self.launch,
            address: self.address,
            bundle: self.bundle.clone(),
            started: self.started.load(Ordering::Acquire),
            connectivity: self.connections.connectivity(),
            reported: *lock(&self.reported),
            outputs,
            inputs,
            operators,
            sinks,
            routes: lock(&self.routes).clone(),
            regions,
            problems,
        }
    }
}

/// Reports the connectivity whenever it is another one. A PE that has just started is taken to have none.
pub(crate) async fn connectivity(api: Api, facts: Arc<Facts>) {
    let path = format!("/api/state/job/{}/pe/{}/connectivity", facts.job, facts.pe);
    let mut changes = facts.connections.changes();
    // Nothing after a call without an answer: it may have had its effect, or not.
    let mut said = Some(Connectivity::None);
    let mut pause = PAUSES.0;
    loop {
        changes.borrow_and_update();
        let is = facts.connections.connectivity();
        if Some(is) != said {
            match api.put(&path, format!("\"{is}\"")).await {
                Ok(answer) => {
                    said = Some(is);
                    pause = PAUSES.0;
                    if answer.status == 204 {
                        *lock(&facts.reported) = Some(is);
                    } else {
                        // As the runtime: another answer is noted, and that is all.
                        let problem = format!("the connectivity {is}: {} {}", answer.status, answer.body);
                        facts.connections.problem(problem);
                    }
                }
                Err(error) => {
                    said = None;
                    facts.connections.problem(format!("the connectivity {is}: {error:#}"));
                    let _ = timeout(pause, changes.changed()).await;
                    pause = (pause * 2).min(PAUSES.1);
                    sleep(TOGETHER).await;
                    continue;
                }
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
        sleep(TOGETHER).await;
    }
}

/// Serves the status page.
pub(crate) async fn page(listener: TcpListener, facts: Arc<Facts>) {
    let status = move || {
        let status = serde_json::to_string(&facts.status());
        async move { ([(CONTENT_TYPE, "application/json")], status.unwrap_or_default()) }
    };
    // Serves until it is dropped.
    let _ = axum::serve(listener, Router::new().route("/status", get(status))).await;
}
