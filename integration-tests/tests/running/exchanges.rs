//! Exchanges with PEs as they are written down, byte for byte, between processes: what PEs ask the frontend over HTTP
//! and the Redis protocol, and what it tells them. Which exchange is checked where says `docs/exchanges.md`.

use crate::fixture::{Fixture, WITHIN, sketched, with_running_pes};
use anyhow::{Context as _, Result, ensure};
use integration_tests::running::pes::ANSWERS_WITHIN;
use integration_tests::sample;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, StatusCode};
use std::net::IpAddr;
use streams_control_plane::wait::eventually;
use streams_pe_double::BUNDLE_PORT;
use streams_test_support::application::Sketch;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::timeout;

/// A question and its answer: method, path, type and body; status, type and body. What the contract leaves open is not
/// there. `GIVER` and `TAKER` are the numbers of the jobs, `NAMESPACE` is their namespace.
type Row = (Method, &'static str, &'static str, &'static str, u16, Option<(&'static str, &'static str)>);

const XML: &str = "application/xml";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain";
/// What PEs are told of their routes, in a datagram and when they ask.
const ROUTES_OF_GIVER: &str = concat!(
    r#"{"exports":{"giver-0-0":{"portId":0,"entries":{"taker-0-0":{"jobId":TAKER,"peId":0,"portId":0,"portIndex":0,"#,
    r#""filter":""}}}},"imports":{}}"#
);
const FILTERED: &str = concat!(
    r#"{"exports":{"giver-0-0":{"portId":0,"entries":{"taker-0-0":{"jobId":TAKER,"peId":0,"portId":0,"portIndex":0,"#,
    r#""filter":"i == 1"}}}},"imports":{}}"#
);
const ROUTES_OF_TAKER: &str = concat!(
    r#"{"exports":{},"imports":{"taker-0-0":{"portId":0,"entries":{"giver-0-0":{"jobId":GIVER,"peId":0,"portId":0}}}"#,
    r#"}}"#
);
/// What the importing PE imports.
const STREAMS: &str = concat!(
    r#"<importedStreams xmlns="http://www.ibm.com/xmlns/prod/streams/application"><propertyBasedImport "#,
    r#"subscription="kind == &quot;result&quot;" importOperName="Import" index="0" applicationScope="Default"/>"#,
    r#"</importedStreams>"#
);
const LANE_7: &str = concat!(
    r#"<streamProperty xmlns="http://www.ibm.com/xmlns/prod/streams/application" name="lane" type="int64">"#,
    r#"<value>7</value></streamProperty>"#
);
const LANE_8: &str = concat!(
    r#"<streamProperty xmlns="http://www.ibm.com/xmlns/prod/streams/application" name="lane" type="int64">"#,
    r#"<value>8</value></streamProperty>"#
);
const MORE: &str = concat!(
    r#"<streamProperty xmlns="http://www.ibm.com/xmlns/prod/streams/application" name="more" type="boolean">"#,
    r#"<value>true</value></streamProperty>"#
);
const NAMES: &str = concat!(
    r#"<streamPropertyNames xmlns="http://www.ibm.com/xmlns/prod/streams/runtime/sam" scope="listed">"#,
    r#"<name><name>lane</name></name><name><name>more</name></name></streamPropertyNames>"#
);
const PROPERTIES: &str = concat!(
    r#"<streamProperties xmlns="http://www.ibm.com/xmlns/prod/streams/application">"#,
    r#"<property name="lane" type="int64"><value>8</value></property>"#,
    r#"<property name="more" type="boolean"><value>true</value></property></streamProperties>"#
);
/// Where the importing PE can be reached.
const WEB: &str = r#"{"canonicalName":"","port":8080,"protocol":"TCP"}"#;
const WEB_FOUND: &str = r#"{"canonicalName":"taker-0.NAMESPACE","port":8080,"protocol":"TCP"}"#;

/// What the importing PE asks.
fn of_taker() -> Vec<Row> {
    let connectivity = "/api/state/job/taker/pe/0/connectivity";
    let filter = "/api/subscriptions/job/taker/pe/0/import/0/filter";
    let streams = "/api/subscriptions/job/taker/pe/0/import/0/streams";
    let endpoint = "/api/endpoints/job/taker/pe/0/endpoint/web";
    let found = "/api/endpoints/job/taker/endpoint/web";
    vec![
        (Method::GET, "/api/state/job/by-id/TAKER/name", "", "", 200, Some((TEXT, "taker"))),
        (Method::GET, "/api/state/job/by-id/99/name", "", "", 400, None),
        (Method::GET, connectivity, "", "", 200, Some((JSON, "\"Full\""))),
        (Method::PUT, connectivity, JSON, "\"Full\"", 204, Some(("", ""))),
        (Method::GET, "/api/subscriptions/job/taker/pe/0", "", "", 200, Some((JSON, ROUTES_OF_TAKER))),
        (Method::GET, filter, "", "", 404, None),
        (Method::PUT, filter, TEXT, "i == 1", 204, Some(("", ""))),
        (Method::GET, filter, "", "", 200, Some((TEXT, "i == 1"))),
        (Method::GET, "/api/subscriptions/job/giver/pe/0", "", "", 200, Some((JSON, FILTERED))),
        (Method::PUT, filter, TEXT, "", 204, Some(("", ""))),
        (Method::GET, filter, "", "", 404, None),
        (Method::GET, streams, "", "", 200, Some((XML, STREAMS))),
        (Method::GET, found, "", "", 404, None),
        (Method::DELETE, endpoint, "", "", 400, None),
        (Method::PUT, endpoint, JSON, WEB, 204, Some(("", ""))),
        (Method::GET, found, "", "", 200, Some((JSON, WEB_FOUND))),
        (Method::DELETE, endpoint, "", "", 204, Some(("", ""))),
    ]
}

/// What the exporting PE asks.
fn of_giver() -> Vec<Row> {
    let lane = "/api/subscriptions/job/giver/pe/0/export/0/property/lane";
    let more = "/api/subscriptions/job/giver/pe/0/export/0/property/more";
    let all = "/api/subscriptions/job/giver/pe/0/export/0/properties";
    vec![
        (Method::GET, "/api/subscriptions/job/giver/pe/0", "", "", 200, Some((JSON, ROUTES_OF_GIVER))),
        (Method::GET, "/api/subscriptions/job/nobody/pe/0", "", "", 400, None),
        (Method::GET, lane, "", "", 200, Some((XML, LANE_7))),
        (Method::PATCH, lane, XML, LANE_8, 204, Some(("", ""))),
        (Method::GET, more, "", "", 404, None),
        (Method::PUT, more, XML, MORE, 204, Some(("", ""))),
        (Method::POST, all, XML, NAMES, 200, Some((XML, PROPERTIES))),
        (Method::DELETE, more, "", "", 204, Some(("", ""))),
        (Method::DELETE, more, "", "", 400, None),
    ]
}

/// Two jobs of one PE each, and the frontend that they talk to.
struct Peers<'a> {
    it: &'a Fixture,
    /// What stands for what.
    names: Vec<(&'static str, String)>,
}

impl Peers<'_> {
    /// A text with the numbers and the name that it stands for.
    fn real(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, real)| text.replace(name, real))
    }

    async fn address(&self, job: &str) -> Result<IpAddr> {
        let statuses = self.it.pes.statuses(job).await?;
        Ok(statuses.get(&0).with_context(|| format!("PE 0 of {job} does not run"))?.address)
    }

    /// Asks from the pod of a job what is in the rows, one after the other.
    async fn check(&self, job: &str, rows: Vec<Row>) -> Result<()> {
        let pod = self.address(job).await?;
        let client = reqwest::Client::builder().no_proxy().local_address(pod).build()?;
        for (method, path, kind, body, status, answer) in rows {
            let (what, path) = (format!("{method} {path} {body}"), self.real(path));
            let url = format!("http://{}{path}", self.it.system.frontend()?.pe_api());
            // What is deleted twice is answered otherwise.
            let is_repeatable = method != Method::DELETE;
            let within = if is_repeatable { ANSWERS_WITHIN } else { WITHIN };
            let response = eventually(&format!("the frontend has time for {what}"), WITHIN, || async {
                let request = client.request(method.clone(), &url).timeout(within).body(body);
                let request = if kind.is_empty() { request } else { request.header(CONTENT_TYPE, kind) };
                let response = request.send().await?;
                let is_too_slow = response.status() == StatusCode::SERVICE_UNAVAILABLE;
                ensure!(!(is_repeatable && is_too_slow), "{}", response.status());
                Ok(response)
            })
            .await?;
            let found = response.status().as_u16();
            let header = response.headers().get(CONTENT_TYPE).map(|kind| kind.to_str().map(str::to_owned));
            let found_kind = header.transpose()?.unwrap_or_default();
            let found_body = response.text().await?;
            ensure!(found == status, "{what}: {found} {found_body}");
            if let Some((kind, body)) = answer {
                ensure!(found_body == self.real(body), "{what}:\n{found_body} instead of\n{}", self.real(body));
                ensure!(found_kind.split(';').next() == Some(kind), "{what}: {found_kind} instead of {kind}");
            }
        }
        Ok(())
    }

    /// Waits until the last datagram that the PE of a job got is this one.
    async fn until_told(&self, job: &str, expected: &str) -> Result<()> {
        let expected = self.real(expected);
        eventually(&format!("PE 0 of {job} is told"), WITHIN, || async {
            let statuses = self.it.pes.statuses(job).await?;
            let told = statuses.get(&0).and_then(|status| status.routes.last_datagram.clone());
            ensure!(told.as_ref() == Some(&expected), "{told:?} instead of {expected:?}");
            Ok(())
        })
        .await
    }

    /// Asks for the bundle as the bootstrap of a PE does.
    async fn check_bundle(&self, job: &str, expected: &[u8]) -> Result<()> {
        let statuses = self.it.pes.statuses(job).await?;
        let status = statuses.get(&0).context("it does not run")?;
        let name = &status.bundle.as_ref().context("it has no bundle")?.name;
        let socket = TcpSocket::new_v4()?;
        socket.bind((status.address, 0).into())?;
        let frontend = self.it.system.frontend()?.pe_api().ip();
        let mut stream = socket.connect((frontend, BUNDLE_PORT).into()).await?;
        let question = format!("*3\r\n$4\r\nHGET\r\n$4\r\napps\r\n${}\r\n{name}\r\n", name.len());
        stream.write_all(question.as_bytes()).await?;
        let answer = [format!("${}\r\n", expected.len()).as_bytes(), expected, b"\r\n"].concat();
        let mut found = vec![0; answer.len()];
        timeout(ANSWERS_WITHIN, stream.read_exact(&mut found)).await.context("no answer")??;
        ensure!(found == answer, "{}", found.escape_ascii());
        Ok(())
    }
}

#[tokio::test]
async fn exchanges_between_processes_are_as_they_are_written_down() -> Result<()> {
    with_running_pes("running-exchanges", async |it| {
        let properties = concat!(
            "<properties><property name='kind' type='rstring'><value>\"result\"</value></property>",
            "<property name='lane' type='int64'><value>7</value></property></properties>"
        );
        let giver = Sketch::new().op("Out", 0, 1).export("Export", properties, "").chain(&["Out", "Export"]);
        let subscription = "<propertyBasedImport subscription='kind == \"result\"'/>";
        let taker = Sketch::new().import("Import", subscription, "").op("In", 1, 0).chain(&["Import", "In"]);
        let bundle = sample::bundle_of(&giver.adl())?;
        // A PE that runs is told of a route; one that starts later asks.
        let taker = sketched(it, "taker", &taker).await?;
        let giver = sketched(it, "giver", &giver).await?;
        let mut names = vec![("NAMESPACE", it.namespace.clone())];
        for (name, job) in [("GIVER", &giver), ("TAKER", &taker)] {
            names.push((name, job.status().await?.job_id.context("no number")?.to_string()));
        }
        let peers = Peers { it, names };
        it.pes.until_connected(&taker, WITHIN).await?;
        peers.until_told("taker", ROUTES_OF_TAKER).await?;
        peers.check("giver", of_giver()).await?;
        peers.check("taker", of_taker()).await?;
        // The filter came, and went again.
        peers.until_told("giver", ROUTES_OF_GIVER).await?;
        peers.check_bundle("giver", &bundle).await
    })
    .await
}
