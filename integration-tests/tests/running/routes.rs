//! Imports meet exports while jobs run: routes come, follow what is changed, and go.

use crate::fixture::{Fixture, WITHIN, sketched, sketched_as, with_running_pes};
use anyhow::{Context as _, Result, ensure};
use integration_tests::running::pes::ANSWERS_WITHIN;
use integration_tests::sample;
use integration_tests::system::job::ObservedJob;
use kube::api::DeleteParams;
use reqwest::{Method, StatusCode};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Instant;
use streams_api::{Export, FusionOptions, Import, Job, MaxUnavailable, RolloutOptions, condition};
use streams_control_plane::wait::eventually;
use streams_pe_double::PortLabel;
use streams_test_support::application::Sketch;

/// Sensors, lanes that import and export, alarms.
const TELEMETRY: &str = include_str!("../../../fusion-service/tests/applications/telemetry.adl");

async fn telemetry(it: &Fixture, name: &str) -> Result<ObservedJob> {
    let adl = TELEMETRY.replace("<tag name=\"gpu\"/><tag name=\"fast\"/>", "");
    let adl = adl.replace("<replicateHostTag name=\"gpu\"/>", "").replace("tag=\"consistentRegion", "tag=\"other");
    std::fs::write(it.system.bundles().join("telemetry.sab"), sample::bundle_of(&adl)?)?;
    let mut job = it.sample(name);
    job.spec.bundle.file = Some("telemetry.sab".to_owned());
    let job = ObservedJob::create(&it.client, &job).await?;
    job.until_condition(condition::READY, true, WITHIN).await?;
    Ok(job)
}

/// How many routes lead from the exports of one job to another, as the PEs of the former know them.
async fn routes(it: &Fixture, from: &str, to: u64) -> Result<usize> {
    let statuses = it.pes.statuses(from).await?;
    let routes = statuses.values().flat_map(|status| status.routes.exports.values()).flatten();
    Ok(routes.filter(|(_, route)| route.job_id == to).count())
}

/// A PE of a job.
type Pe<'a> = (&'a str, u64);

/// A request with XML ([`request_of`]).
async fn request(it: &Fixture, from: Pe<'_>, about: Pe<'_>, what: (Method, &str), body: &str) -> Result<StatusCode> {
    request_of(it, from, about, what, ("application/xml", body)).await
}

/// A request that the pod of one PE sends about another one, or itself. `path` goes on where that of the PE's
/// subscriptions ends. It asks again if the frontend answers that it cannot for now: the API server may be slow.
async fn request_of(
    it: &Fixture,
    from: Pe<'_>,
    (job, pe): Pe<'_>,
    (method, path): (Method, &str),
    (kind, body): (&str, &str),
) -> Result<StatusCode> {
    let statuses = it.pes.statuses(from.0).await?;
    let pod = statuses.get(&from.1).context("the PE does not run")?.address;
    let client = reqwest::Client::builder().no_proxy().local_address(pod).timeout(ANSWERS_WITHIN).build()?;
    let url = format!("http://{}/api/subscriptions/job/{job}/pe/{pe}{path}", it.system.frontend()?.pe_api());
    eventually("the frontend has time for a request", WITHIN, || async {
        let request = client.request(method.clone(), &url).header("content-type", kind).body(body.to_owned());
        let status = request.send().await?.status();
        ensure!(status != StatusCode::SERVICE_UNAVAILABLE, "{status}");
        Ok(status)
    })
    .await
}

/// Waits until so many routes lead from the exports of one job to another, and each carries tuples.
async fn until_routes(it: &Fixture, from: &str, to: u64, count: usize) -> Result<()> {
    eventually(&format!("{count} routes lead from {from} to job {to} and carry tuples"), WITHIN, || async {
        let statuses = it.pes.statuses(from).await?;
        let label = format!("@{to}");
        let outputs = statuses.values().flat_map(|status| &status.outputs);
        let of_routes = outputs.filter(|output| output.kind == "route");
        let there: Vec<_> =
            of_routes.filter(|output| output.to.as_ref().is_some_and(|to| to.ends_with(&label))).collect();
        let known = routes(it, from, to).await?;
        ensure!(known == count, "{known} routes");
        let carry = there.iter().filter(|output| output.connected && output.sent > 0).count();
        ensure!(carry == count, "{carry} of {count} carry tuples: {there:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn routes_follow_what_pes_change_and_jobs_that_come_and_go() -> Result<()> {
    with_running_pes("running-routes", async |it| {
        let first = telemetry(it, "first").await?;
        it.pes.until_connected(&first, WITHIN).await?;
        let second = telemetry(it, "second").await?;
        it.pes.until_connected(&second, WITHIN).await?;
        let (first_id, second_id) = (first.status().await?.job_id, second.status().await?.job_id);
        let (first_id, second_id) = (first_id.context("no number")?, second_id.context("no number")?);
        let imports = second.list::<Import>().await?;
        let import = &imports.first().context("nothing is imported")?.spec;
        let exports = first.list::<Export>().await?;
        let of_lane = |lane: &str| {
            let has = |export: &&Export| export.spec.stream.properties.iter().any(|property| property.values == [lane]);
            exports.iter().filter(has).collect::<Vec<_>>()
        };
        let (ones, changed) = (of_lane("1").len(), of_lane("1").first().context("no such export")?.spec.clone());
        ensure!(ones > 1 && routes(it, "first", second_id).await? == 0, "{ones} exports");

        // An importing PE asks for something else: both jobs export that.
        let streams = format!("/import/{}/streams", import.port_id);
        let asked = r#"<importedStreams><propertyBasedImport subscription="lane == 1"/></importedStreams>"#;
        let (importer, exporter) = (("second", import.pe_id), ("first", changed.pe_id));
        let status = request(it, exporter, importer, (Method::PUT, &streams), asked).await?;
        ensure!(status == StatusCode::FORBIDDEN, "a PE changes what another job imports: {status}");
        let status = request(it, importer, importer, (Method::PUT, &streams), asked).await?;
        ensure!(status == StatusCode::NO_CONTENT, "{status}");
        until_routes(it, "first", second_id, ones).await?;
        until_routes(it, "second", second_id, ones).await?;
        let polls: u64 = it.pes.statuses("first").await?.values().map(|status| status.routes.datagrams).sum();
        ensure!(polls > 0, "nobody was told");

        // An exporting PE changes a property: it sends no more.
        let property = format!("/export/{}/property/lane", changed.port_id);
        let lane = r#"<streamProperty name="lane" type="int64"><value>7</value></streamProperty>"#;
        let status = request(it, exporter, exporter, (Method::PATCH, &property), lane).await?;
        ensure!(status == StatusCode::NO_CONTENT, "{status}");
        until_routes(it, "first", second_id, ones - 1).await?;

        // Objects say how they stand.
        eventually("exports and imports say how they stand", WITHIN, || async {
            let ready =
                |conditions: Vec<_>| condition::get(&conditions, condition::READY).map(|one| one.reason.clone());
            let exports = first.list::<Export>().await?.into_iter();
            let exports = exports.filter_map(|export| ready(export.status?.conditions)).collect::<Vec<_>>();
            let connected = exports.iter().filter(|reason| *reason == "Connected").count();
            ensure!(connected == ones - 1, "{exports:?}");
            let imports = second.list::<Import>().await?.into_iter();
            let imports = imports.filter_map(|import| ready(import.status?.conditions)).collect::<BTreeSet<_>>();
            ensure!(imports == ["Connected", "NoExports"].map(str::to_owned).into(), "{imports:?}");
            Ok(())
        })
        .await?;

        // The importing job goes.
        second.api::<Job>().delete("second", &DeleteParams::foreground()).await?;
        until_routes(it, "first", second_id, 0).await?;
        ensure!(routes(it, "first", first_id).await? == 0, "nothing else was connected");
        Ok(())
    })
    .await
}

/// A source, lanes, and what each lane exports: its stream by name, and by properties.
fn exporter() -> Sketch {
    let properties = "<properties><property name='lane' type='int64'><value>getChannel()</value></property><property \
                      name='kind' type='rstring'><value>\"result\"</value></property></properties>";
    Sketch::new()
        .op("Out", 0, 1)
        .composite("Lane", 1, 0)
        .op("Lane.Work", 1, 2)
        .export("Lane.Named", "", "streamName='results'")
        .export("Lane.Described", properties, "")
        .chain(&["Out", "Lane", "Lane.Work", "Lane.Named"])
        .connect("Lane.Work:1", "Lane.Described:0")
        .parallel("Lane", 2)
}

/// Sinks that import what lanes export: by name, by property, and that with a filter; and takers, of which each
/// imports one lane.
fn importer() -> Sketch {
    let by_name = "<nameBasedImport applicationName='Main' streamName='results'/>";
    let by_property = |subscription: &str| format!("<propertyBasedImport subscription='{subscription}'/>");
    Sketch::new()
        .import("Names", by_name, "")
        .op("ByName", 1, 0)
        .chain(&["Names", "ByName"])
        .import("Kinds", &by_property("kind == \"result\""), "")
        .op("ByProperty", 1, 0)
        .chain(&["Kinds", "ByProperty"])
        .import("Thirds", &by_property("kind == \"result\""), "filter='i % 3 == 0'")
        .op("Filtered", 1, 0)
        .chain(&["Thirds", "Filtered"])
        .composite("Taker", 0, 0)
        .import("Taker.Lane", &by_property("lane == getChannel()"), "")
        .op("Taker.Sink", 1, 0)
        .chain(&["Taker.Lane", "Taker.Sink"])
        .parallel("Taker", 2)
}

/// Two jobs, of which one imports what the other exports.
struct Joined<'a> {
    it: &'a Fixture,
    exporter: ObservedJob,
    importer: ObservedJob,
}

impl Joined<'_> {
    /// Waits until so many routes lead to each importing operator and carry tuples, and both jobs are whole.
    async fn until_routes(&self, what: &str, expected: &[(&str, usize)]) -> Result<()> {
        let since = Instant::now();
        let expected: BTreeMap<String, usize> =
            expected.iter().map(|(operator, count)| ((*operator).to_owned(), *count)).collect();
        eventually(&format!("{what}: routes are {expected:?}"), WITHIN, || async {
            let operators = self.importer.operators().await?;
            let importer = self.importer.status().await?.job_id.context("no number")?;
            let mut carrying = BTreeMap::new();
            for status in self.it.pes.statuses(self.exporter.name()).await?.values() {
                let known = status.routes.exports.values().map(BTreeMap::len).sum::<usize>();
                let routes: Vec<_> = status.outputs.iter().filter(|output| output.kind == "route").collect();
                ensure!(routes.len() == known, "PE {} knows {known} routes: {routes:?}", status.pe);
                for route in routes {
                    let to: PortLabel = route.to.as_deref().context("a route leads nowhere")?.parse()?;
                    ensure!(to.job_id == importer && route.connected && route.sent > 0, "{route:?}");
                    let operator = operators.get(&to.pe).with_context(|| format!("a route leads to PE {}", to.pe))?;
                    *carrying.entry(operator.clone()).or_default() += 1;
                }
            }
            ensure!(carrying == expected, "{carrying:?}");
            Ok(())
        })
        .await?;
        for job in [&self.exporter, &self.importer] {
            self.it.pes.until_connected(job, WITHIN).await?;
        }
        println!("{what}: {} routes carry tuples after {:.1?}", expected.values().sum::<usize>(), since.elapsed());
        Ok(())
    }

    /// Changes a width, and waits until the job is ready with it.
    async fn resize(&self, job: &ObservedJob, region: &str, width: u32) -> Result<()> {
        job.set_width(region, width).await?;
        eventually("the width is applied", WITHIN, || async {
            let applied = job.region(region).await?.status.and_then(|status| status.width);
            ensure!(applied == Some(width), "{applied:?}");
            Ok(())
        })
        .await?;
        job.until_condition(condition::READY, true, WITHIN).await.map(drop)
    }

    /// Launches of the PEs of a job, which show whether one was restarted.
    async fn launches(&self, job: &ObservedJob) -> Result<BTreeMap<u64, u64>> {
        let statuses = self.it.pes.statuses(job.name()).await?;
        Ok(statuses.into_iter().map(|(pe, status)| (pe, status.launch)).collect())
    }

    /// The routes to one PE of the importing job.
    async fn routes_to(&self, pe: u64) -> Result<RoutesTo> {
        let mut routes = RoutesTo::default();
        let statuses = self.it.pes.statuses(self.exporter.name()).await?;
        for output in statuses.values().flat_map(|status| &status.outputs).filter(|output| output.kind == "route") {
            let to: PortLabel = output.to.as_deref().context("a route leads nowhere")?.parse()?;
            if to.pe == pe {
                routes.sent += output.sent;
                routes.held_back += output.filtered;
                routes.opened += output.opened;
                routes.filters.insert(output.filter.clone().unwrap_or_default());
            }
        }
        Ok(routes)
    }

    /// Tuples that have arrived at a sink of the importing job.
    async fn arrived(&self, pe: u64) -> Result<u64> {
        let statuses = self.it.pes.statuses(self.importer.name()).await?;
        let status = statuses.get(&pe).context("it does not run")?;
        Ok(status.sinks.iter().map(|sink| sink.received).sum())
    }

    /// A filter holds back what it is to hold back, and nothing else; another one comes into force while tuples flow,
    /// without another connection.
    async fn filters_decide_what_passes(&self) -> Result<()> {
        let [filtered, unfiltered] = [self.importer.pe("Filtered").await?, self.importer.pe("ByProperty").await?];
        let [filtered, unfiltered] = [filtered.spec.id, unfiltered.spec.id];
        let all = self.routes_to(unfiltered).await?;
        ensure!(all.sent > 0 && all.held_back == 0 && all.filters == [String::new()].into(), "{all:?}");
        let enough = |routes: &RoutesTo| routes.sent + routes.held_back > 150;
        let thirds = eventually("a third of the tuples passes", WITHIN, || async {
            let routes = self.routes_to(filtered).await?;
            ensure!(enough(&routes), "{routes:?}");
            Ok(routes)
        })
        .await?;
        ensure!(thirds.filters == ["i % 3 == 0".to_owned()].into(), "{thirds:?}");
        ensure!((thirds.held_back / 2).abs_diff(thirds.sent) <= thirds.sent / 4, "{thirds:?}");

        let imports = self.importer.list::<Import>().await?;
        let import = imports.iter().find(|import| import.spec.pe_id == filtered).context("it imports nothing")?;
        let path = format!("/import/{}/filter", import.spec.port_id);
        let pe = (self.importer.name(), filtered);
        let status = request_of(self.it, pe, pe, (Method::PUT, &path), ("text/plain", "i < 0")).await?;
        ensure!(status == StatusCode::NO_CONTENT, "{status}");
        let in_force = eventually("the new filter is in force", WITHIN, || async {
            let routes = self.routes_to(filtered).await?;
            ensure!(routes.filters == ["i < 0".to_owned()].into(), "{routes:?}");
            Ok(routes)
        })
        .await?;
        // What was on the way arrives; then nothing more does, however much is held back.
        let seen = Cell::new((in_force.held_back, u64::MAX));
        let (later, arrived) = eventually("nothing arrives any more", WITHIN, || async {
            let (routes, arrived) = (self.routes_to(filtered).await?, self.arrived(filtered).await?);
            let (held_back, before) = seen.get();
            if arrived != before {
                seen.set((routes.held_back, arrived));
            }
            ensure!(arrived == before && routes.held_back > held_back + 60, "{routes:?}, {arrived} arrived");
            Ok((routes, arrived))
        })
        .await?;
        ensure!(later.opened == thirds.opened, "{thirds:?}, then {later:?}");
        // Without a filter all pass again.
        let status = request_of(self.it, pe, pe, (Method::PUT, &path), ("text/plain", "")).await?;
        ensure!(status == StatusCode::NO_CONTENT, "{status}");
        eventually("tuples pass again", WITHIN, || async {
            let (routes, now) = (self.routes_to(filtered).await?, self.arrived(filtered).await?);
            ensure!(now > arrived && routes.opened == thirds.opened, "{routes:?}, {now} of {arrived} arrived");
            Ok(())
        })
        .await
    }
}

/// What is sent on routes.
#[derive(Debug, Default)]
struct RoutesTo {
    sent: u64,
    held_back: u64,
    /// How often connections were made.
    opened: u64,
    filters: BTreeSet<String>,
}

#[tokio::test]
async fn routes_by_name_by_property_and_with_filters_follow_resizes_of_both_jobs() -> Result<()> {
    with_running_pes("running-joined", async |it| {
        let exporter = sketched(it, "exporter", &exporter()).await?;
        let importer = sketched(it, "importer", &importer()).await?;
        let joined = Joined { it, exporter: exporter.clone(), importer: importer.clone() };
        let takers = ["Taker[0].Sink", "Taker[1].Sink", "Taker[2].Sink"];
        let routes = |lanes: usize, takers: &[&'static str]| {
            let to_all = ["ByName", "ByProperty", "Filtered"].map(|operator| (operator, lanes));
            to_all.into_iter().chain(takers.iter().map(|taker| (*taker, 1))).collect::<Vec<_>>()
        };
        joined.until_routes("two lanes", &routes(2, &takers[..2])).await?;

        // The exporting job is resized: nothing of the other one restarts.
        let importing = joined.launches(&importer).await?;
        joined.resize(&exporter, "Lane", 4).await?;
        joined.until_routes("four lanes", &routes(4, &takers[..2])).await?;
        ensure!(joined.launches(&importer).await? == importing, "a PE of the importing job has restarted");
        joined.filters_decide_what_passes().await?;

        // The importing job is resized, too; then the exporting one has a lane less than there are takers.
        joined.resize(&importer, "Taker", 3).await?;
        joined.until_routes("three takers", &routes(4, &takers)).await?;
        joined.resize(&exporter, "Lane", 2).await?;
        joined.until_routes("two lanes again", &routes(2, &takers[..2])).await?;
        Ok(())
    })
    .await
}

/// New lanes go into PEs that are there, which are restarted one after the other. A PE that is told of a port that it
/// does not have ends.
#[tokio::test]
async fn a_pe_that_gets_another_exported_port_is_told_of_it_when_it_has_it() -> Result<()> {
    with_running_pes("running-added-ports", async |it| {
        let edit = |job: &mut Job| {
            job.spec.fusion = Some(FusionOptions { manual: NonZeroU32::new(2), ..FusionOptions::default() });
            let max_unavailable = MaxUnavailable::Count(1);
            job.spec.rollout = Some(RolloutOptions { max_unavailable, min_ready_seconds: Some(3) });
        };
        let exporter = sketched_as(it, "exporter", &exporter(), edit).await?;
        let importer = sketched(it, "importer", &importer()).await?;
        let joined = Joined { it, exporter: exporter.clone(), importer };
        let takers = ["Taker[0].Sink", "Taker[1].Sink"].map(|taker| (taker, 1));
        let routes = |lanes: usize| {
            let to_all = ["ByName", "ByProperty", "Filtered"].map(|operator| (operator, lanes));
            to_all.into_iter().chain(takers).collect::<Vec<_>>()
        };
        joined.until_routes("two lanes", &routes(2)).await?;
        let before = joined.launches(&exporter).await?;
        // Not a multiple of 3: tuples go round the lanes, and the filter lets every third one through.
        joined.resize(&exporter, "Lane", 5).await?;
        joined.until_routes("five lanes", &routes(5)).await?;
        let after = joined.launches(&exporter).await?;
        ensure!(after.keys().eq(before.keys()), "{before:?}, then {after:?}");
        ensure!(after.iter().all(|(pe, launch)| *launch <= before[pe] + 1), "{before:?}, then {after:?}");
        joined.resize(&exporter, "Lane", 2).await?;
        joined.until_routes("two lanes again", &routes(2)).await?;
        let last = joined.launches(&exporter).await?;
        ensure!(last.iter().all(|(pe, launch)| *launch <= before[pe] + 2), "{before:?}, then {last:?}");
        Ok(())
    })
    .await
}
