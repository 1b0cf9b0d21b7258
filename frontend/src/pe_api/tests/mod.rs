//! The exchanges with PEs, over a fake API server.

mod arriving;
mod bodies;
mod bundle_waits;
mod caller;
mod earlier_jobs;
mod endpoints;
mod losses;
mod objects;
mod old_mirror;
mod regions;
mod reports;
mod serving;
mod state;
mod subscriptions;
mod turns;
mod widths;

use super::reports::Reports;
use super::{Callers, PeApi, router};
use crate::broker::Boards;
use crate::consistent_regions::ConsistentRegions;
use crate::controllers::tests::LateMirrors;
use crate::mirrors::Mirrors;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use futures::channel::mpsc::unbounded;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use streams_kubernetes::leadership::Term;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes_fake::{Connection, Server};
use tower::ServiceExt as _;

const PE: &str = "10.0.0.1";
const NEIGHBOUR: &str = "10.0.0.2";
const STRANGER: &str = "10.0.0.3";
const TOOL: &str = "10.0.0.9";
const SUBSCRIPTIONS: &str = "/api/subscriptions/job/srcjob/pe/1";

struct Cluster {
    server: Server,
    connection: Connection,
    mirrors: LateMirrors,
    regions: ConsistentRegions,
    reports: Reports,
    api: PeApi,
    /// Whether PEs are led to another replica.
    are_led_away: Arc<AtomicBool>,
    router: Router,
}

/// A request, and what is expected.
struct Exchange<'a> {
    from: &'a str,
    method: Method,
    path: &'a str,
    body: &'a str,
}

fn get<'a>(path: &'a str) -> Exchange<'a> {
    Exchange { from: PE, method: Method::GET, path, body: "" }
}

fn send<'a>(method: Method, path: &'a str, body: &'a str) -> Exchange<'a> {
    Exchange { from: PE, method, path, body }
}

fn request(exchange: &Exchange<'_>, body: Body) -> Request<Body> {
    let peer: SocketAddr = format!("{}:40000", exchange.from).parse().unwrap();
    let kind = if exchange.body.starts_with('<') { "application/xml" } else { "application/json" };
    let request = Request::builder()
        .method(exchange.method.clone())
        .uri(exchange.path)
        .header("host", "streams-api.n:10000")
        .header("content-type", kind)
        .extension(ConnectInfo(peer));
    request.body(body).unwrap()
}

async fn read(response: Response) -> (StatusCode, String) {
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

impl Cluster {
    /// A cluster with these objects.
    fn with(objects: impl FnOnce(&Server)) -> Self {
        let server = Server::new();
        objects(&server);
        Self::of(server)
    }

    /// Another replica of the frontend in the same cluster.
    fn another(&self) -> Self {
        Self::of(self.server.clone())
    }

    fn of(server: Server) -> Self {
        let connection = server.connect();
        Self::with_calls(server, &connection, || connection.clone())
    }

    /// The calls for each kind of objects that PEs change go to a connection that `of_a_kind` makes.
    fn with_calls(server: Server, connection: &Connection, of_a_kind: impl Fn() -> Connection) -> Self {
        let metrics = Metrics::new("test");
        let mirrors = Mirrors::new(&metrics);
        let boards = Boards::of(&mirrors);
        let callers = Callers::of(&mirrors);
        let regions = ConsistentRegions::of(&mirrors, Term::endless());
        let mirrors = LateMirrors::fill(&server, mirrors);
        let connection = connection.clone();
        let are_led_away = Arc::new(AtomicBool::new(false));
        let led_away = Arc::clone(&are_led_away);
        let led_away = Arc::new(move || led_away.load(Ordering::SeqCst));
        let api = PeApi::new(of_a_kind, connection.clone(), boards, callers, regions.clone(), led_away, &metrics);
        let reports = api.reports.clone();
        Self { server, connection, mirrors, regions, reports, are_led_away, router: router(api.clone()), api }
    }

    /// Sends a request; the mirrors show what it has written while it waits.
    async fn answer(&mut self, exchange: Exchange<'_>) -> (StatusCode, String) {
        let request = request(&exchange, Body::from(exchange.body.to_owned()));
        let response = Box::pin(self.router.clone().oneshot(request));
        self.answered(response).await
    }

    /// Sends a request, and the rest of its body after this has happened.
    async fn answer_in_parts(
        &mut self,
        exchange: Exchange<'_>,
        meanwhile: impl FnOnce(&mut Self),
    ) -> (StatusCode, String) {
        let (body, parts) = unbounded::<Result<String, Infallible>>();
        let (first, rest) = exchange.body.split_at(1);
        body.unbounded_send(Ok(first.to_owned())).unwrap();
        let mut response = Box::pin(self.router.clone().oneshot(request(&exchange, Body::from_stream(parts))));
        tokio::select! {
            biased;
            _ = &mut response => panic!("it is answered before its body has come"),
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
        }
        meanwhile(self);
        body.unbounded_send(Ok(rest.to_owned())).unwrap();
        drop(body);
        self.answered(response).await
    }

    /// The answer; the mirrors show what is written while it is waited for.
    async fn answered(
        &mut self,
        mut response: impl Future<Output = Result<Response, Infallible>> + Unpin,
    ) -> (StatusCode, String) {
        let response = loop {
            tokio::select! {
                biased;
                response = &mut response => break response.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(1)) => { self.mirrors.deliver_all(); }
            }
        };
        read(response).await
    }

    /// Sends a request; the mirrors stay as they are.
    async fn answer_as_shown(&self, exchange: Exchange<'_>) -> (StatusCode, String) {
        let request = request(&exchange, Body::from(exchange.body.to_owned()));
        read(self.router.clone().oneshot(request).await.unwrap()).await
    }

    async fn expect(&mut self, exchange: Exchange<'_>, status: u16, part: &str) {
        let said = format!("{} {} {}", exchange.from, exchange.method, exchange.path);
        let (actual, body) = self.answer(exchange).await;
        assert_eq!(actual.as_u16(), status, "{said}: {body}");
        assert!(body.contains(part), "{said}: {body} has not {part}");
        assert!(status != 204 || body.is_empty(), "{said}: {body}");
    }
}

fn property(name: &str, kind: &str, value: &str) -> String {
    let namespace = "http://www.ibm.com/xmlns/prod/streams/application";
    format!(
        "<streamProperty xmlns=\"{namespace}\" name=\"{name}\" type=\"{kind}\"><value>{value}</value></streamProperty>"
    )
}

fn properties(of: &[(&str, &str)]) -> String {
    let each = |(name, value): &(&str, &str)| {
        format!("<a:property name=\"{name}\" type=\"rstring\"><a:value>\"{value}\"</a:value></a:property>")
    };
    let all: String = of.iter().map(each).collect();
    format!(
        "<a:streamProperties xmlns:a=\"http://www.ibm.com/xmlns/prod/streams/application\">{all}</a:streamProperties>"
    )
}

fn names(of: &[&str]) -> String {
    let scope = if of.is_empty() { "all" } else { "listed" };
    let all: String = of.iter().map(|name| format!("<name>{name}</name>")).collect();
    format!("<streamPropertyNames scope=\"{scope}\">{all}</streamPropertyNames>")
}

/// Registers endpoint `test` for the PE of the job.
fn registration(pe: u64) -> Exchange<'static> {
    let (from, path) = match pe {
        0 => (NEIGHBOUR, "/api/endpoints/job/srcjob/pe/0/endpoint/test"),
        _ => (PE, "/api/endpoints/job/srcjob/pe/1/endpoint/test"),
    };
    Exchange { from, ..send(Method::PUT, path, "{\"port\": 80}") }
}
