//! Do documents, alerts and dashboards name figures that there are?
//!
//! What there is, is read from the rules, which list every figure with its labels, and these are compared with what the
//! programs register. Figures of others (kubelets, kube-state-metrics) are listed here; those that kube-state-metrics
//! makes of the custom resources are in a sample of its configuration.

use crate::deployment::{OPERATIONS, SIZING, file};
use crate::files::{assert_none, line_at, read, root};
use crate::markdown::{anchors, headings};
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;

const ALERTS: &str = "deploy/helm/streams-operator/files/alerts.yaml";
/// For promtool: figures, and which alerts fire of them.
const ALERT_TESTS: &str = "integration-tests/prometheus/alerts.test.yaml";
const DASHBOARDS: &str = "deploy/helm/streams-operator/files/dashboards";
const PROMETHEUS_RULE: &str = "deploy/components/monitoring/prometheus-rule.yaml";
const KUBE_STATE_METRICS: &str = "deploy/samples/kube-state-metrics.yaml";
/// Chapters that list figures, and what the names in them begin with.
const CHAPTERS: [(&str, &str, &str); 4] = [
    ("docs/rules/call.md", "### call-29:", "streams_frontend_"),
    ("docs/rules/consistent-region.md", "### consistent-region-12:", "streams_frontend_consistent_region_"),
    ("docs/rules/repository.md", "### repository-8:", ""),
    ("docs/rules/service.md", "### service-14:", "fusion_"),
];
/// Figures of kubelets and of kube-state-metrics, with those of their labels that are used.
const OF_OTHERS: [(&str, &[&str]); 6] = [
    ("container_cpu_usage_seconds_total", &["container"]),
    ("container_memory_working_set_bytes", &["container"]),
    ("kube_deployment_spec_replicas", &["deployment"]),
    ("kube_deployment_status_replicas_available", &["deployment"]),
    ("kube_pod_container_resource_limits", &["container", "resource"]),
    ("kube_pod_container_status_restarts_total", &["container"]),
];
/// Labels that Prometheus adds, by where figures were read, and that of buckets.
const ADDED: [&str; 3] = ["namespace", "pod", "le"];

/// Names of figures, each with its labels.
type Figures = BTreeMap<String, BTreeSet<String>>;

/// The figures of both services, as the rules have them.
fn of_rules() -> &'static Figures {
    static FIGURES: LazyLock<Figures> = LazyLock::new(|| {
        let word = Regex::new("`([a-z_]+)`").unwrap();
        let mut figures = Figures::new();
        for (chapter, heading, prefix) in CHAPTERS {
            let text = file(chapter).text.split(heading).nth(1).unwrap();
            let text = text.split("\n### ").next().unwrap();
            for row in text.lines().filter(|line| line.starts_with("| `")) {
                let cells: Vec<&str> = row.split('|').map(str::trim).collect();
                // Some tables have no column of labels.
                let labels: BTreeSet<String> = match chapter {
                    "docs/rules/consistent-region.md" => ["namespace", "consistent_region"].map(str::to_owned).into(),
                    "docs/rules/repository.md" => {
                        cells[1].contains("by `end`").then(|| "end".to_owned()).into_iter().collect()
                    }
                    _ => cells[2].split(", ").filter(|label| !label.is_empty()).map(str::to_owned).collect(),
                };
                let names = cells[1].split(", by").next().unwrap();
                for found in word.captures_iter(names) {
                    figures.insert(format!("{prefix}{}", &found[1]), labels.clone());
                }
            }
        }
        // Said in words.
        figures.get_mut("fusion_build_info").unwrap().insert("version".to_owned());
        assert!(figures.len() > 40, "only {} figures", figures.len());
        figures
    });
    &FIGURES
}

/// The figures that kube-state-metrics makes with the sample of its configuration.
fn of_resources() -> Figures {
    let configuration: Value = serde_saphyr::from_str(&file(KUBE_STATE_METRICS).text).unwrap();
    let mut figures = Figures::new();
    for resource in configuration["spec"]["resources"].as_array().unwrap() {
        let of_resource = resource["labelsFromPath"].as_object().unwrap().keys();
        let of_resource: BTreeSet<String> = of_resource.cloned().collect();
        for metric in resource["metrics"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let mut labels = of_resource.clone();
            labels.extend(metric["each"]["stateSet"]["labelName"].as_str().map(str::to_owned));
            let name = format!("{}_{}", text(&resource["metricNamePrefix"]), text(&metric["name"]));
            figures.insert(name, labels);
        }
    }
    figures
}

/// Everything that may be named.
fn known() -> &'static Figures {
    static KNOWN: LazyLock<Figures> = LazyLock::new(|| {
        let mut known = of_rules().clone();
        known.extend(of_resources());
        let labels = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect();
        known.extend(OF_OTHERS.map(|(name, of_name)| (name.to_owned(), labels(of_name))));
        known
    });
    &KNOWN
}

/// The figure that a series belongs to: those of times have series of buckets, sums and counts only.
fn figure_of(series: &str) -> Option<&'static str> {
    let suffix = ["_bucket", "_sum", "_count"].into_iter().find_map(|suffix| series.strip_suffix(suffix));
    let name = suffix.unwrap_or(series);
    let is_histogram = name.ends_with("_seconds");
    let (figure, _) = known().get_key_value(name)?;
    (suffix.is_some() == is_histogram).then_some(figure.as_str())
}

/// Names of figures in an expression, and what of it is wrong.
fn read_expression(expression: &str) -> (BTreeSet<&'static str>, Vec<String>) {
    static SERIES: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#"\b((?:streams|fusion|kube|container)_[a-z_]+)\s*(?:\{((?:"[^"]*"|[^}"])*)\})?"#).unwrap()
    });
    static MATCHER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"([a-z_]+)\s*(?:=~|!=|!~|=)\s*"[^"]*""#).unwrap());
    static BY: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bby \(([a-z_, ]*)\)").unwrap());
    static RATE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b(?:rate|increase)\(([a-z_]+)").unwrap());
    let (mut figures, mut labels, mut problems) = (BTreeSet::new(), BTreeSet::from(ADDED), Vec::new());
    for found in SERIES.captures_iter(expression) {
        let Some(figure) = figure_of(&found[1]) else {
            problems.push(format!("there is no {}", &found[1]));
            continue;
        };
        let of_figure = &known()[figure];
        figures.insert(figure);
        labels.extend(of_figure.iter().map(String::as_str));
        let matchers = found.get(2).map_or("", |matchers| matchers.as_str());
        let unknown = MATCHER.captures_iter(matchers).map(|found| found[1].to_owned());
        let unknown = unknown.filter(|label| !ADDED.contains(&label.as_str()) && !of_figure.contains(label));
        problems.extend(unknown.map(|label| format!("{figure} has no label {label}")));
    }
    if figures.is_empty() {
        problems.push(format!("no figure in {expression}"));
    }
    for found in BY.captures_iter(expression) {
        let unknown = found[1].split(", ").filter(|label| !labels.contains(label));
        problems.extend(unknown.map(|label| format!("no label {label} in {expression}")));
    }
    let counters = ["_total", "_bucket", "_sum", "_count"];
    let rates = RATE.captures_iter(expression).map(|found| found[1].to_owned());
    let rates = rates.filter(|series| !counters.iter().any(|ending| series.ends_with(ending)));
    problems.extend(rates.map(|series| format!("{series} does not only grow")));
    (figures, problems)
}

/// The alerts.
fn alerts() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&file(ALERTS).text).unwrap();
    assert_eq!(rules.as_object().unwrap().keys().collect::<Vec<_>>(), ["groups"]);
    let groups = rules["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The dashboards, by the name of their file.
fn dashboards() -> BTreeMap<String, Value> {
    let entries = fs::read_dir(root().join(DASHBOARDS)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let json = paths.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    let dashboards = json.map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
    });
    dashboards.collect()
}

/// Panels of a dashboard that show something.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row")
}

/// Queries of a panel: the expression, and the legend.
fn queries(panel: &Value) -> impl Iterator<Item = (&str, &str)> {
    let targets = panel["targets"].as_array().unwrap().iter();
    targets.map(|target| (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap()))
}

#[test]
fn the_rules_list_the_figures_that_programs_register() {
    let registered =
        Regex::new(r#"\.register(?:_with_unit)?\(\s*"([a-z_]+)"(?:,\s*[^,]+,\s*Unit::([A-Z][a-z]+))?"#).unwrap();
    let of_regions = Regex::new(r#"\(\s*"([a-z_]+)",\s*"[^"]+",\s*\|figures\|"#).unwrap();
    let mut in_code = BTreeSet::new();
    for source in read().iter().filter(|file| file.ending() == "rs" && !file.path.contains("/tests/")) {
        let prefix = match source.path.split('/').next().unwrap() {
            "frontend" => "streams_frontend_",
            "fusion-service" => "fusion_",
            _ => continue,
        };
        for found in registered.captures_iter(&source.text) {
            let unit = found.get(2).map(|unit| format!("_{}", unit.as_str().to_lowercase())).unwrap_or_default();
            in_code.insert(format!("{prefix}{}{unit}", &found[1]));
        }
        if source.path.ends_with("/consistent_region/figures.rs") {
            let found = of_regions.captures_iter(&source.text);
            in_code.extend(found.map(|found| format!("{prefix}consistent_region_{}", &found[1])));
        }
    }
    // Endings that the text for Prometheus adds to names of counters, and to that of the program.
    let name = |figure: &String| figure.trim_end_matches("_total").trim_end_matches("_info").to_owned();
    let in_rules: BTreeSet<String> = of_rules().keys().map(name).collect();
    assert_eq!(in_rules, in_code);
}

#[test]
fn documents_name_figures_of_the_rules() {
    let series = Regex::new(r"\b(?:streams_frontend|fusion)_[a-z_]*[a-z]\b").unwrap();
    let (mut problems, mut count) = (Vec::new(), 0);
    for path in [OPERATIONS, SIZING] {
        let document = file(path);
        for found in series.find_iter(&document.text) {
            count += 1;
            // A document may speak of the figure of a time without its series.
            if !known().contains_key(found.as_str()) && figure_of(found.as_str()).is_none() {
                let place = document.place(line_at(&document.text, found.start()));
                problems.push(format!("{place}: {}", found.as_str()));
            }
        }
    }
    assert!(count > 4, "only {count} figures");
    assert_none("figures that no rule has", problems);
}

#[test]
fn alerts_are_about_figures_that_there_are_and_are_explained() {
    let text = &file(OPERATIONS).text;
    let anchors = anchors(text);
    let explained: BTreeSet<String> = headings(text).into_iter().map(|heading| heading.text).collect();
    let (mut problems, mut names) = (Vec::new(), BTreeSet::new());
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap().to_owned();
        let (_, wrong) = read_expression(alert["expr"].as_str().unwrap());
        problems.extend(wrong.into_iter().map(|problem| format!("{name}: {problem}")));
        let annotation = |key: &str| alert["annotations"][key].as_str().unwrap_or_default().to_owned();
        if annotation("summary").is_empty() || annotation("description").is_empty() {
            problems.push(format!("{name}: no summary, or no description"));
        }
        if !["warning", "critical"].contains(&alert["labels"]["severity"].as_str().unwrap_or_default()) {
            problems.push(format!("{name}: no severity"));
        }
        let link = annotation("runbook_url");
        let anchor = link.strip_prefix(&format!("{OPERATIONS}#")).unwrap_or_default();
        if anchor != name.to_lowercase() || !anchors.contains(anchor) || !explained.contains(&name) {
            problems.push(format!("{name}: {link} does not lead to its explanation"));
        }
        if !names.insert(name.clone()) {
            problems.push(format!("{name}: there are two"));
        }
    }
    assert!(names.len() > 15, "only {} alerts", names.len());
    let of_alert = Regex::new("^(?:Streams|Fusion)[A-Z][A-Za-z]+$").unwrap();
    let gone = explained.iter().filter(|heading| of_alert.is_match(heading) && !names.contains(*heading));
    problems.extend(gone.map(|heading| format!("{OPERATIONS} explains {heading}, which is no alert")));
    assert_none("alerts", problems);
}

/// Promtool, which runs the tests, has nothing to say of an alert without one, nor of one that is not there and does
/// not fire.
#[test]
fn each_alert_is_tested_with_figures_of_which_it_fires_and_with_others() {
    let as_series = Regex::new(r#"^ALERTS\{alertname="([A-Za-z]+)",alertstate="firing"\}$"#).unwrap();
    let tests: Value = serde_saphyr::from_str(&file(ALERT_TESTS).text).unwrap();
    let (mut fires, mut says, mut is_silent) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut problems = Vec::new();
    for group in tests["tests"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap();
        let list = |key: &str| group[key].as_array().into_iter().flatten();
        for series in list("input_series") {
            let (_, wrong) = read_expression(series["series"].as_str().unwrap());
            problems.extend(wrong.into_iter().map(|problem| format!("{name}: {problem}")));
        }
        for case in list("alert_rule_test") {
            let alert = case["alertname"].as_str().unwrap().to_owned();
            if case["exp_alerts"].as_array().unwrap().is_empty() {
                is_silent.insert(alert);
            } else {
                says.insert(alert.clone());
                fires.insert(alert);
            }
        }
        for case in list("promql_expr_test") {
            let expression = case["expr"].as_str().unwrap();
            let Some(found) = as_series.captures(expression) else {
                problems.push(format!("{name}: {expression} does not ask whether an alert fires"));
                continue;
            };
            let is_there = !case["exp_samples"].as_array().unwrap().is_empty();
            if is_there { &mut fires } else { &mut is_silent }.insert(found[1].to_owned());
        }
    }
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        if !fires.remove(name) {
            problems.push(format!("no test lets {name} fire"));
        }
        if !is_silent.remove(name) {
            problems.push(format!("no test asks when {name} does not fire"));
        }
        if alert["annotations"].to_string().contains("$value") && !says.contains(name) {
            problems.push(format!("no test asks what {name} says of its figure"));
        }
    }
    problems.extend(fires.union(&is_silent).map(|name| format!("{name} is tested, and is no alert")));
    assert_none("tests of alerts", problems);
}

/// Why the alert of an expression would end, begin anew or tell something else only because another replica leads.
///
/// A figure that goes up and down is of one replica, unless it is put together at once. Of a region only the one that
/// leads has figures, and those of the next one are read some time after the last ones of that before. `absent` is 1
/// where there is nothing, which is no figure that a description could tell.
fn unsteady(expression: &str) -> Vec<String> {
    static FIGURE: LazyLock<Regex> = LazyLock::new(|| {
        let around = r"(?:(?:by \([a-z_, ]*\) |absent)\()?(?:last_over_time\()?";
        Regex::new(&format!(r"{around}\b(?:streams_frontend|fusion)_[a-z_]+")).unwrap()
    });
    let grows = ["_total", "_bucket", "_sum", "_count"];
    let mut problems = Vec::new();
    for found in FIGURE.find_iter(expression).map(|found| found.as_str()) {
        if grows.iter().any(|ending| found.ends_with(ending)) {
            continue;
        }
        if !found.starts_with("by (") && !found.starts_with("absent(") {
            problems.push(format!("{found} is of one replica"));
        }
        if found.contains("_consistent_region_") && !found.contains("(last_over_time(") {
            problems.push(format!("{found} is not there for a while"));
        }
    }
    if expression.matches("absent(").count() > expression.matches("0 * absent(").count() {
        problems.push("absent is 1".to_owned());
    }
    problems
}

#[test]
fn alerts_go_on_when_another_replica_leads() {
    let mut problems = Vec::new();
    for alert in alerts() {
        let wrong = unsteady(alert["expr"].as_str().unwrap());
        problems.extend(wrong.into_iter().map(|problem| format!("{}: {problem}", alert["alert"])));
    }
    assert_none("alerts", problems);
}

#[test]
fn what_is_unsteady() {
    let table = [
        ("max by (class) (fusion_queue_depth) == 5", ""),
        ("sum by (class) (rate(fusion_refused_calls_total[5m])) > 0", ""),
        ("(sum by (pod) (fusion_queue_depth) or 0 * absent(fusion_queue_depth)) != 1", ""),
        ("fusion_queue_depth == 5", "fusion_queue_depth is of one replica"),
        ("sum(rate(fusion_defects_total[5m])) > fusion_queue_depth", "fusion_queue_depth is of one replica"),
        ("sum by (pod) (fusion_queue_depth) != 1 or absent(fusion_queue_depth)", "absent is 1"),
        ("max by (namespace) (last_over_time(streams_frontend_consistent_region_state[5m])) == 5", ""),
        ("max by (pod) (streams_frontend_consistent_region_state) == 5", "state is not there for a while"),
    ];
    for (expression, expected) in table {
        let problems = unsteady(expression).join("\n");
        assert!(problems.contains(expected) && problems.is_empty() == expected.is_empty(), "{expression}: {problems}");
    }
}

#[test]
fn the_rule_of_the_component_has_the_alerts() {
    let groups = file(ALERTS).text.split_once("\ngroups:\n").unwrap().1;
    let path = root().join(PROMETHEUS_RULE);
    let text = fs::read_to_string(&path).unwrap();
    let (head, _) = text.split_once("\n  groups:\n").unwrap();
    let indented = groups.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") });
    let expected = format!("{head}\n  groups:\n{}", indented.collect::<String>());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &expected).unwrap();
    } else {
        assert!(text == expected, "{PROMETHEUS_RULE} is another one than {ALERTS}: UPDATE_EXPECT=1 writes it");
    }
}

#[test]
fn dashboards_show_figures_that_there_are() {
    let legend = Regex::new(r"\{\{([a-z_]+)\}\}").unwrap();
    let by = Regex::new(r"\bby \(([a-z_, ]*)\)").unwrap();
    let mut problems = Vec::new();
    for (name, dashboard) in dashboards() {
        for panel in panels(&dashboard) {
            let place = format!("{name}: {}", panel["title"]);
            for (expression, text) in queries(panel) {
                let (_, wrong) = read_expression(expression);
                problems.extend(wrong.into_iter().map(|problem| format!("{place}: {problem}")));
                let grouped: BTreeSet<String> = (by.captures_iter(expression))
                    .flat_map(|found| found[1].split(", ").map(str::to_owned).collect::<Vec<_>>())
                    .collect();
                let lost = legend.captures_iter(text).map(|found| found[1].to_owned());
                let lost = lost.filter(|label| !grouped.contains(label));
                problems.extend(lost.map(|label| format!("{place}: no label {label} is left for the legend")));
            }
        }
    }
    assert_none("dashboards", problems);
}

#[test]
fn each_figure_is_on_a_dashboard() {
    let dashboards = dashboards();
    let expressions = dashboards.values().flat_map(panels).flat_map(queries);
    let shown: BTreeSet<&str> = expressions.flat_map(|(expression, _)| read_expression(expression).0).collect();
    let figures = of_rules().keys().cloned().chain(of_resources().into_keys());
    let hidden = figures.filter(|figure| !shown.contains(figure.as_str()));
    assert_none("figures that no dashboard shows", hidden.collect());
}

#[test]
fn dashboards_can_be_put_beside_each_other() {
    let mut uids = BTreeSet::new();
    for (name, dashboard) in dashboards() {
        assert!(uids.insert(dashboard["uid"].as_str().unwrap().to_owned()), "{name}: its uid is taken");
        assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 36, "{name}");
        let all = dashboard["panels"].as_array().unwrap();
        let ids: BTreeSet<u64> = all.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), all.len(), "{name}: ids of panels");
        let mut taken = BTreeSet::new();
        for panel in all {
            let number = |key: &str| panel["gridPos"][key].as_u64().unwrap();
            let places = (number("y")..number("y") + number("h"))
                .flat_map(|y| (number("x")..number("x") + number("w")).map(move |x| (x, y)));
            for place in places {
                assert!(place.0 < 24 && taken.insert(place), "{name}: {} covers another panel", panel["title"]);
            }
        }
        // Whoever has them chooses where figures are read.
        for panel in panels(&dashboard) {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}: {}", panel["title"]);
        }
    }
    let kustomization: Value = serde_saphyr::from_str(&file(&format!("{DASHBOARDS}/kustomization.yaml")).text).unwrap();
    let listed = kustomization["configMapGenerator"][0]["files"].as_array().unwrap();
    let listed: BTreeSet<&str> = listed.iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(listed, dashboards().keys().map(String::as_str).collect());
}

#[test]
fn kube_state_metrics_reads_fields_that_there_are() {
    let configuration: Value = serde_saphyr::from_str(&file(KUBE_STATE_METRICS).text).unwrap();
    let mut count = 0;
    for resource in configuration["spec"]["resources"].as_array().unwrap() {
        let plural = resource["resourcePlural"].as_str().unwrap();
        let definition: Value = serde_saphyr::from_str(&file(&format!("deploy/crds/{plural}.yaml")).text).unwrap();
        let version = &definition["spec"]["versions"][0];
        let kind = &resource["groupVersionKind"];
        assert_eq!(kind["group"], definition["spec"]["group"], "{plural}");
        assert_eq!(kind["version"], version["name"], "{plural}");
        assert_eq!(kind["kind"], definition["spec"]["names"]["kind"], "{plural}");
        let field = |path: &Value| {
            path.as_array().unwrap().iter().fold(&version["schema"]["openAPIV3Schema"], |schema, name| {
                let found = &schema["properties"][name.as_str().unwrap()];
                assert!(!found.is_null(), "{plural} has no {path}");
                found
            })
        };
        let labels = resource["labelsFromPath"].as_object().unwrap().values();
        for path in labels.filter(|path| path[0] != "metadata") {
            assert_eq!(field(path)["type"], "string", "{plural}: {path}");
        }
        for metric in resource["metrics"].as_array().unwrap() {
            count += 1;
            let each = &metric["each"];
            if each["type"] == "StateSet" {
                assert_eq!(field(&each["stateSet"]["path"])["enum"], each["stateSet"]["list"], "{plural}");
            } else {
                assert_eq!(each["type"], "Gauge", "{plural}");
                assert_eq!(field(&each["gauge"]["path"])["type"], "integer", "{plural}");
            }
        }
    }
    assert!(count > 4, "only {count} figures");
}

#[test]
fn what_is_wrong_with_an_expression() {
    let table = [
        (r#"sum by (kind) (rate(streams_frontend_watch_errors_total{namespace="n"}[5m])) > 1"#, ""),
        ("sum by (le, queue) (rate(streams_frontend_queue_wait_seconds_bucket[5m]))", ""),
        ("sum(streams_frontend_guessed)", "there is no streams_frontend_guessed"),
        ("sum(streams_frontend_queue_wait_seconds)", "there is no streams_frontend_queue_wait_seconds"),
        ("sum(streams_frontend_leader_count)", "there is no streams_frontend_leader_count"),
        (r#"fusion_queue_depth{ queue =~ "a|{b}" }"#, "fusion_queue_depth has no label queue"),
        ("sum by (queue) (fusion_queue_depth)", "no label queue in"),
        ("rate(fusion_queue_depth[5m])", "fusion_queue_depth does not only grow"),
        ("up == 0", "no figure in up == 0"),
    ];
    for (expression, expected) in table {
        let problems = read_expression(expression).1.join("\n");
        assert!(problems.contains(expected) && problems.is_empty() == expected.is_empty(), "{expression}: {problems}");
    }
}
