//! Moves what arrives through the operators and on to other PEs, and makes tuples at a rate.
//!
//! Nothing moves before all connections to other PEs of the job have been there once, or a time is over: tuples that
//! nobody can take would be lost otherwise.

use crate::connections::{Connections, lock};
use crate::control::{Change, Control, Report, RouteKey, Told};
use crate::filter::Filter;
use crate::frame::Frame;
use crate::link::{Link, Network, Target};
use crate::operators::{Effect, Operators};
use crate::scope::Scope;
use crate::status::OutputStatus;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// How often sources are looked at.
const TICK: Duration = Duration::from_millis(5);
/// Tuples that a source may make up for.
const LEFT_OVER: f64 = 100.0;

/// Everything that moves tuples in a PE.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) operators: Arc<Mutex<Operators>>,
    /// By their ids.
    pub(crate) ports: BTreeMap<u32, Port>,
    pub(crate) scope: Scope,
    pub(crate) network: Arc<Network>,
    pub(crate) reports: mpsc::Sender<Report>,
    pub(crate) started: Arc<AtomicBool>,
    pub(crate) rate: f64,
    pub(crate) start_wait: Duration,
}

/// An output port.
#[derive(Debug)]
pub(crate) struct Port {
    /// The names of those attributes of its tuples that are whole numbers.
    pub(crate) attributes: Vec<String>,
    /// Where it leads.
    pub(crate) links: Vec<Way>,
}

/// Where an output port leads.
#[derive(Debug)]
pub(crate) struct Way {
    /// Which route it is; none of a static connection.
    route: Option<RouteKey>,
    filter: Filter,
    link: Link,
}

impl Way {
    /// A static connection.
    pub(crate) fn fixed(link: Link) -> Self {
        Self { route: None, filter: Filter::default(), link }
    }

    /// Sends a frame, unless the filter holds it back. Routes lead out of consistent regions, whose markers stay there.
    async fn send(&self, frame: &Frame, attributes: &[String]) {
        let passes = match frame {
            Frame::Tuple(tuple) => self.filter.passes(tuple.number, attributes),
            Frame::Marker(_) if self.route.is_some() => return,
            _ => true,
        };
        if passes {
            self.link.send(frame.clone()).await;
        } else {
            self.link.output.filtered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Engine {
    /// Goes on until nobody controls it.
    pub(crate) async fn run(mut self, mut arrived: mpsc::Receiver<(u32, Frame)>, mut control: mpsc::Receiver<Control>) {
        let sources = lock(&self.operators).sources();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ready = wait_for_connections(Arc::clone(&self.network.connections), self.start_wait);
        tokio::pin!(ready);
        let mut started = false;
        let (mut due, mut last) = (0.0, Instant::now());
        loop {
            tokio::select! {
                biased;
                told = control.recv() => match told {
                    Some(told) => self.control(told).await,
                    None => return,
                },
                () = &mut ready, if !started => {
                    started = true;
                    last = Instant::now();
                    self.started.store(true, Ordering::Release);
                }
                _ = tick.tick(), if started && !sources.is_empty() => {
                    due = (due + last.elapsed().as_secs_f64() * self.rate).min(LEFT_OVER);
                    last = Instant::now();
                    while due >= 1.0 {
                        due -= 1.0;
                        for source in &sources {
                            let effects = lock(&self.operators).make(*source);
                            self.carry_out(effects).await;
                        }
                    }
                }
                Some((port, frame)) = arrived.recv(), if started => {
                    let effects = lock(&self.operators).arrive(port, frame);
                    self.carry_out(effects).await;
                }
            }
        }
    }

    async fn control(&mut self, told: Control) {
        match told {
            Control::Route(change) => self.route(change),
            Control::Region { region, told, text } => {
                let effects = {
                    let mut operators = lock(&self.operators);
                    operators.note(region, |status| {
                        if status.last_message.as_ref() == Some(&text) {
                            status.repeated += 1;
                        } else {
                            status.messages += 1;
                        }
                        status.last_message = Some(text);
                        status.failed = told == Told::Failed;
                    });
                    match told {
                        Told::Wave(wave) => operators.tell(region, wave),
                        Told::Drained => operators.all_is_written(region),
                        Told::Failed => Vec::new(),
                    }
                };
                self.carry_out(effects).await;
            }
            Control::Reported { region, taken } => lock(&self.operators).note(region, |status| {
                if taken {
                    status.reports += 1;
                } else {
                    status.reports_lost += 1;
                }
            }),
        }
    }

    fn route(&mut self, change: Change) {
        match change {
            Change::Add { port, own, route } => {
                let label = route.label();
                let Some(filter) = self.filter(&route.filter) else { return };
                let Some(links) = self.ports.get_mut(&port).map(|port| &mut port.links) else {
                    // The runtime ends.
                    return self.end(format!("a route from the port {port}, which is not there"));
                };
                let described = OutputStatus {
                    port,
                    kind: "route".to_owned(),
                    to: Some(label.to_string()),
                    port_index: Some(route.port_index),
                    filter: Some(route.filter),
                    ..OutputStatus::default()
                };
                let link = Link::open(&self.scope, &self.network, Target::Port(label), described);
                links.push(Way { route: Some((own, label)), filter, link });
            }
            Change::Filter { key, filter: text } => {
                let mut ways = self.ports.values().flat_map(|port| &port.links);
                if !ways.any(|way| way.route.as_ref() == Some(&key)) {
                    return;
                }
                let Some(filter) = self.filter(&text) else { return };
                let ways = self.ports.values_mut().flat_map(|port| &mut port.links);
                for way in ways.filter(|way| way.route.as_ref() == Some(&key)) {
                    way.filter.clone_from(&filter);
                    lock(&way.link.output.described).filter = Some(text.clone());
                }
            }
            Change::Remove { key } => {
                for port in self.ports.values_mut() {
                    port.links.retain(|way| way.route.as_ref() != Some(&key));
                }
            }
        }
    }

    /// The filter that a text is. One that cannot be read ends the PE.
    fn filter(&self, text: &str) -> Option<Filter> {
        Filter::new(text).map_err(|error| self.end(format!("{error:#}"))).ok()
    }

    /// The PE ends for this reason.
    fn end(&self, why: String) {
        self.network.connections.problem(why.clone());
        self.scope.end(why);
    }

    async fn carry_out(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { port, frame } => {
                    let Some(port) = self.ports.get(&port) else { continue };
                    for way in &port.links {
                        way.send(&frame, &port.attributes).await;
                    }
                }
                Effect::Problem(problem) => self.network.connections.problem(problem),
                Effect::Report(report) => {
                    if let Err(error) = self.reports.try_send(report) {
                        self.network.connections.problem(format!("too much to report: {:?}", error.into_inner()));
                    }
                }
            }
        }
    }
}

async fn wait_for_connections(connections: Arc<Connections>, at_most: Duration) {
    let mut changes = connections.changes();
    let all = async { while !connections.have_all_been_there() && changes.changed().await.is_ok() {} };
    if timeout(at_most, all).await.is_err() {
        connections.problem(format!("it begins although a connection has not been there within {at_most:?}"));
    }
}
