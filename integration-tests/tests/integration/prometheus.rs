//! What Prometheus makes of the alerts, of the queries of the dashboards, and of what the services show at `/metrics`.
//!
//! Prometheus and promtool are built from the Go module proxy (`integration-tests/prometheus`) into the target
//! directory, which takes minutes once; the variable `PROMETHEUS` may name a folder that has both. So these tests run
//! when they are asked for, after changes of figures, alerts or dashboards:
//!
//! ```text
//!   cargo test --workspace --test integration prometheus -- --ignored
//! ```
//!
//! When each alert fires, and what it says then, is in `integration-tests/prometheus/alerts.test.yaml`. What can be
//! seen without Prometheus is seen by `monitoring` of the tests of the repository, at every change.

use crate::operator::fixture::{Fixture, WITHIN, with_system};
use crate::support::supervisor;
use anyhow::{Context as _, Result, anyhow, ensure};
use integration_tests::sample::CLEAN;
use integration_tests::system::metrics;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use streams_control_plane::process::{Process, Program, StateDirectory, free_port};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use tokio::sync::OnceCell;

/// The module of which Prometheus is built, with the tests of the alerts.
const PROMETHEUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/prometheus");
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/helm/streams-operator/files");
const PACKAGE: &str = "github.com/prometheus/prometheus/cmd";
/// What stands for the variables of the dashboards: `namespace` is all of them, or those that somebody has chosen.
const NAMESPACES: [&str; 2] = [".*", "(one|two)"];
/// Of Grafana: at least four times what lies between two reads.
const RATE_INTERVAL: &str = "1m";
/// The exit code of promtool when it has read all figures and does not like some.
const COMPLAINS: i32 = 3;
/// A request to Prometheus takes milliseconds.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
/// Titles of panels that show something of a job that was submitted and resized, however it went. Others are of what
/// others make figures of, of what may happen, and of what the job does not have.
const FILLED: [&str; 28] = [
    "Calls for submissions and texts, by their end",
    "Calls of Resize, by their end",
    "Calls, by method",
    "Calls, by method and end",
    "Calls, by resource",
    "Compilations for resizes, by their end",
    "Defects",
    "Defects of the compiler",
    "Events that were dropped",
    "How long calls of Resize take",
    "How long calls take",
    "How long compilations for resizes take",
    "How long keys of resizes wait in queues",
    "How long keys wait",
    "How long stages take",
    "How long they take",
    "How long work takes",
    "Jobs",
    "Keys that wait",
    "Objects, by kind",
    "PEs",
    "Parallel regions",
    "Pods that were asked for, by why",
    "Replicas that lead",
    "Replicas, by version",
    "What calls spend their time on",
    "Who leads",
    "Work, by its end",
];

/// The folder with Prometheus and promtool, built if need be.
async fn programs() -> Result<&'static Path> {
    static BUILT: OnceCell<Result<PathBuf, String>> = OnceCell::const_new();
    let built = BUILT.get_or_init(|| async { build().map_err(|error| format!("{error:#}")) });
    built.await.as_deref().map_err(|error| anyhow!("no Prometheus: {error}"))
}

/// Without what finds targets in clouds, which would be most of it.
fn build() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("PROMETHEUS") {
        return Ok(folder.into());
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prometheus");
    fs::create_dir_all(&folder)?;
    let mut go = Command::new("go");
    go.args(["build", "-trimpath", "-tags", "remove_all_sd", "-ldflags", "-s -w", "-o"]).arg(&folder);
    go.args(["prometheus", "promtool"].map(|program| format!("{PACKAGE}/{program}")));
    go.current_dir(PROMETHEUS).env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=readonly -buildvcs=false");
    let output = go.env("GOWORK", "off").output().context("cannot run go")?;
    ensure!(output.status.success(), "{go:?} ended with {}:\n{}", output.status, said(&output));
    Ok(folder)
}

/// What a program has said, to whomever.
fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).join("\n")
}

/// Runs promtool with this input to its end.
async fn promtool(arguments: &[&str], input: &str) -> Result<Output> {
    let mut command = Command::new(programs().await?.join("promtool"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run promtool")?;
    // It reads to the end before it says anything.
    child.stdin.take().context("no input")?.write_all(input.as_bytes())?;
    Ok(child.wait_with_output()?)
}

/// A query of a panel, as Grafana asks it.
struct Query {
    place: String,
    title: String,
    expression: String,
}

/// The dashboards, by their file.
fn dashboards() -> Result<BTreeMap<String, Value>> {
    let mut dashboards = BTreeMap::new();
    for entry in fs::read_dir(Path::new(FILES).join("dashboards"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            let name = path.file_name().context("no name")?.to_string_lossy().into_owned();
            dashboards.insert(name, serde_json::from_str(&fs::read_to_string(path)?)?);
        }
    }
    Ok(dashboards)
}

/// The queries of all panels, with `namespace` for the variable of that name.
fn queries(namespace: &str) -> Result<Vec<Query>> {
    let mut queries = Vec::new();
    for (file, dashboard) in dashboards()? {
        for panel in dashboard["panels"].as_array().context("no panels")? {
            let title = panel["title"].as_str().context("no title")?.to_owned();
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().context("no query")?;
                let expression = expression.replace("$namespace", namespace).replace("$__rate_interval", RATE_INTERVAL);
                ensure!(!expression.contains('$'), "{file}: {title}: a variable is left in {expression}");
                queries.push(Query { place: format!("{file}: {title}"), title: title.clone(), expression });
            }
        }
    }
    ensure!(queries.len() > 80, "only {} queries", queries.len());
    Ok(queries)
}

/// The figures of a service in the older form of text, which the linter of promtool reads: there a counter has its
/// ending in the name, and neither units nor figures that say what something is have a line of their own.
fn in_older_form(text: &str) -> String {
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let kinds: BTreeMap<&str, &str> = kinds.collect();
    let lines = text.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT "));
    let older = lines.map(|line| {
        let Some((what, name, rest)) = line.strip_prefix("# ").and_then(|line| {
            let (what, line) = line.split_once(' ')?;
            let (name, rest) = line.split_once(' ')?;
            Some((what, name, rest))
        }) else {
            return format!("{line}\n");
        };
        let (ending, kind) = match kinds.get(name) {
            Some(&"counter") => ("_total", "counter"),
            Some(&"info") => ("_info", "gauge"),
            Some(&kind) => ("", kind),
            None => ("", rest),
        };
        format!("# {what} {name}{ending} {}\n", if what == "TYPE" { kind } else { rest })
    });
    older.collect()
}

/// Runs `body` beside a job that was submitted and resized, so that the services have figures of it.
async fn with_figures(purpose: &str, body: impl AsyncFnOnce(&Fixture) -> Result<()>) -> Result<()> {
    with_system(purpose, async |it| {
        let job = it.submitted().await?;
        it.resize(&job, &[(CLEAN, 3)], WaitFor::RolledOut).await?;
        body(it).await
    })
    .await
}

/// A running Prometheus that reads the services and evaluates the alerts.
struct Server {
    address: String,
    _process: Process,
    _state: StateDirectory,
}

impl Server {
    async fn start(it: &Fixture) -> Result<Self> {
        let target = |kind: &str, number: usize, address: String| {
            let labels = json!({"namespace": it.namespace, "pod": format!("{kind}-{number}")});
            json!({"targets": [address], "labels": labels})
        };
        let frontends = it.system.frontends().iter().map(|frontend| frontend.http().to_string()).enumerate();
        let frontends = frontends.map(|(number, address)| target("streams-frontend", number, address));
        let fusion = it.system.fusion_pages().map(|address| address.to_string()).enumerate();
        let fusion = fusion.map(|(number, address)| target("fusion-service", number, address));
        let targets: Vec<Value> = frontends.chain(fusion).collect();
        let configuration = json!({
            "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"},
            "rule_files": [format!("{FILES}/alerts.yaml")],
            // As docs/operations.md asks for.
            "scrape_configs": [{"job_name": "streams", "honor_labels": true, "static_configs": targets}],
        });
        let state = StateDirectory::create(&supervisor())?;
        let file = state.path().join("prometheus.yaml");
        fs::write(&file, configuration.to_string())?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let program = Program::new("prometheus", programs().await?.join("prometheus"))
            .arguments(["--config.file".into(), file])
            .arguments(["--storage.tsdb.path".into(), state.path().join("data")])
            .arguments(["--web.listen-address", &address])
            .directory(state.path())
            .without_proxy();
        let process = Process::start(&supervisor(), &state, program).await?;
        process.ready(WITHIN, || get(format!("http://{address}/-/ready"))).await?;
        Ok(Self { address, _process: process, _state: state })
    }

    /// What its API answers. It says in words beside the answer where a query looks like a mistake.
    async fn ask(&self, what: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let url = reqwest::Url::parse_with_params(&format!("http://{}/api/v1/{what}", self.address), parameters)?;
        let answer: Value = serde_json::from_str(&get(url).await?)?;
        let is_doubted = ["warnings", "infos"].iter().any(|doubts| !answer[*doubts].is_null());
        ensure!(answer["status"] == "success" && !is_doubted, "{what} {parameters:?}: {answer}");
        Ok(answer["data"].clone())
    }

    /// Names of alerts that are not at rest. Fails for as long as one could not be evaluated.
    async fn alerts(&self) -> Result<BTreeSet<String>> {
        let rules = self.ask("rules", &[]).await?;
        let groups = rules["groups"].as_array().context("no groups")?.iter();
        let rules: Vec<&Value> = groups.flat_map(|group| group["rules"].as_array().into_iter().flatten()).collect();
        ensure!(rules.len() > 15, "only {} alerts", rules.len());
        let mut at_work = BTreeSet::new();
        for rule in rules {
            ensure!(rule["health"] == "ok", "{rule}");
            if rule["state"] != "inactive" {
                at_work.insert(rule["name"].as_str().context("no name")?.to_owned());
            }
        }
        Ok(at_work)
    }
}

/// The answer to `GET`; an error says what was answered instead.
async fn get(url: impl reqwest::IntoUrl) -> Result<String> {
    let client = reqwest::Client::builder().no_proxy().timeout(ANSWERS_WITHIN).build()?;
    let answer = client.get(url).send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(status.is_success(), "{status}: {text}");
    Ok(text)
}

#[tokio::test]
#[ignore = "builds Prometheus, which takes minutes: see the head of the file"]
async fn alerts_are_rules_and_do_what_their_tests_say() -> Result<()> {
    let (alerts, tests) = (format!("{FILES}/alerts.yaml"), format!("{PROMETHEUS}/alerts.test.yaml"));
    for arguments in [&["check", "rules", "--lint=all", "--lint-fatal", &alerts][..], &["test", "rules", &tests]] {
        let output = promtool(arguments, "").await?;
        ensure!(output.status.success(), "{arguments:?} ended with {}:\n{}", output.status, said(&output));
    }
    Ok(())
}

#[tokio::test]
#[ignore = "builds Prometheus, which takes minutes: see the head of the file"]
async fn queries_of_dashboards_are_promql() -> Result<()> {
    let mut problems = Vec::new();
    let mut expressions: Vec<(String, String)> = Vec::new();
    for namespace in NAMESPACES {
        expressions.extend(queries(namespace)?.into_iter().map(|query| (query.place, query.expression)));
    }
    // Of values of variables Grafana asks by itself: label_values(figure, label).
    for (file, dashboard) in dashboards()? {
        for variable in dashboard["templating"]["list"].as_array().into_iter().flatten() {
            let Some(query) = variable["query"]["query"].as_str() else { continue };
            let asked = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (figure, label) = asked.and_then(|asked| asked.split_once(", ")).with_context(|| query.to_owned())?;
            expressions.push((format!("{file}: {}", variable["name"]), format!("count by ({label}) ({figure})")));
        }
    }
    for (place, expression) in expressions {
        let output = promtool(&["--experimental", "promql", "format", &expression], "").await?;
        if !output.status.success() {
            problems.push(format!("{place}: {expression}\n{}", said(&output)));
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

#[tokio::test]
#[ignore = "builds Prometheus, which takes minutes: see the head of the file"]
async fn the_linter_has_no_complaint_of_what_services_show() -> Result<()> {
    // It does complain: of the unit of figures of consistent regions, which this job has none of, and whose names are
    // those of the reference implementation.
    let regions = "# HELP a_milliseconds Help.\n# TYPE a_milliseconds gauge\na_milliseconds 1\n# EOF\n";
    let output = promtool(&["check", "metrics"], &in_older_form(regions)).await?;
    ensure!(output.status.code() == Some(COMPLAINS) && said(&output).contains("milliseconds"), "{}", said(&output));

    with_figures("linter", async |it| {
        let pages = it.system.frontends().iter().map(|frontend| frontend.http()).chain(it.system.fusion_pages());
        for page in pages {
            let text = metrics(page).await?;
            ensure!(text.ends_with("# EOF\n"), "the text of {page} has no end");
            let output = promtool(&["check", "metrics"], &in_older_form(&text)).await?;
            ensure!(output.status.success(), "{}:\n{}", output.status, said(&output));
        }
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "builds Prometheus, which takes minutes: see the head of the file"]
async fn prometheus_reads_the_services_and_answers_the_dashboards() -> Result<()> {
    with_figures("prometheus", async |it| {
        let server = Server::start(it).await?;
        eventually("all services are read", WITHIN, || async {
            let targets = server.ask("targets", &[]).await?;
            let targets = targets["activeTargets"].as_array().context("no targets")?;
            ensure!(targets.len() == 3 && targets.iter().all(|target| target["health"] == "up"), "{targets:#?}");
            Ok(())
        })
        .await?;

        // It knows of each figure what it is.
        let known = server.ask("metadata", &[]).await?;
        let known = known.as_object().context("no figures")?;
        let of_services = |name: &str| name.starts_with("streams_frontend_") || name.starts_with("fusion_");
        let figures: Vec<_> = known.iter().filter(|(name, _)| of_services(name)).collect();
        ensure!(figures.len() > 30, "only {} figures", figures.len());
        for (name, of_figure) in figures {
            let kind = of_figure[0]["type"].as_str().unwrap_or_default();
            ensure!(["counter", "gauge", "histogram", "info"].contains(&kind), "{name}: {of_figure}");
            ensure!(of_figure[0]["help"] != "", "{name}: {of_figure}");
        }

        eventually("the dashboards show what there is", WITHIN, || async {
            let (mut shown, mut empty) = (BTreeSet::new(), BTreeSet::new());
            for query in queries(&it.namespace)? {
                let found = server.ask("query", &[("query", &query.expression)]).await.context(query.place)?;
                let is_empty = found["result"].as_array().context("no result")?.is_empty();
                if is_empty { &mut empty } else { &mut shown }.insert(query.title);
            }
            let missing = FILLED.iter().filter(|title| !shown.contains(**title) || empty.contains(**title));
            let missing: Vec<_> = missing.collect();
            ensure!(missing.is_empty(), "nothing is in {missing:?}");
            Ok(())
        })
        .await?;

        // Everything is well; then nobody leads.
        eventually("no alert is at work", WITHIN, || async {
            let at_work = server.alerts().await?;
            ensure!(at_work.is_empty(), "{at_work:?}");
            Ok(())
        })
        .await?;
        it.frontend()?.process().kill().await?;
        eventually("an alert says that nobody leads", WITHIN, || async {
            let at_work = server.alerts().await?;
            ensure!(at_work.contains("StreamsLeader"), "{at_work:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[test]
fn the_older_form_has_all_figures() {
    let text = "# HELP a Help.\n# TYPE a counter\na_total{b=\"c\"} 1\n# HELP d_seconds Help.\n# TYPE d_seconds gauge\n\
                # UNIT d_seconds seconds\nd_seconds 2\n# HELP e Help.\n# TYPE e info\ne_info{v=\"1\"} 1\n# EOF\n";
    let older = "# HELP a_total Help.\n# TYPE a_total counter\na_total{b=\"c\"} 1\n# HELP d_seconds Help.\n\
                 # TYPE d_seconds gauge\nd_seconds 2\n# HELP e_info Help.\n# TYPE e_info gauge\ne_info{v=\"1\"} 1\n";
    assert_eq!(in_older_form(text), older);
}
