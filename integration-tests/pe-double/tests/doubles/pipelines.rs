//! Static connections, splitters and mergers; PEs that end and come again.

use crate::world::{World, arrived, called, of, reaches};
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::time::Duration;
use streams_compiler::plan::FusionOption;
use streams_pe_double::question;
use streams_pe_double::status::{Connectivity, Status};
use streams_test_support::application::Sketch;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A source, a region of three channels, a sink.
fn row() -> Sketch {
    Sketch::row(&["Source", "Work", "Sink"]).parallel("Work", 3)
}

fn taken(status: &Status) -> u64 {
    status.operators.iter().map(|operator| operator.taken).sum()
}

#[tokio::test]
async fn every_tuple_arrives_once_and_all_channels_get_the_same() -> Result<()> {
    let world = World::new().await?;
    let job = world.job("row", 7, &row(), FusionOption::Legacy)?;
    let doubles = world.start_all(&job, &["--limit=600", "--rate=400"]).await?;
    let sink = of(&doubles, job.pe_of("Sink")?)?;
    let status = reaches(sink, "the sink has all tuples", |status| arrived(status).0 == 600).await?;
    assert_eq!(arrived(&status), (600, 0, 0));
    assert_eq!(status.sinks[0].source, "7/Source#1");
    assert_eq!(status.sinks[0].path, "7:Source 7:Work");
    for channel in 0..3 {
        let work = of(&doubles, job.pe_of(&format!("Work[{channel}]"))?)?.status();
        assert_eq!((taken(&work), work.outputs[0].sent, work.outputs[0].dropped), (200, 200, 0), "channel {channel}");
    }
    for double in doubles.values() {
        let status = reaches(double, "it has reported", |status| status.reported == Some(Connectivity::Full)).await?;
        assert!(status.started && status.bundle.as_ref().is_some_and(|bundle| bundle.bytes == 12), "{status:?}");
        assert_eq!(status.problems.last.iter().filter(|problem| !problem.contains("has no address")).count(), 0);
    }
    Ok(())
}

#[tokio::test]
async fn it_asks_as_the_contract_says() -> Result<()> {
    let world = World::new().await?;
    let job = world.job("row", 7, &row(), FusionOption::Legacy)?;
    let doubles = world.start_all(&job, &["--limit=1"]).await?;
    assert_eq!(world.asked_for_bundles(), b"*3\r\n$4\r\nHGET\r\n$4\r\napps\r\n$7\r\napp.sab\r\n");
    assert_eq!(world.asked_for_bundles(), question("app.sab"));
    let (source, host) = (job.pe_of("Source")?, "streams-api.ns:10000");
    reaches(of(&doubles, source)?, "it is connected", |status| status.connectivity == Connectivity::Full).await?;
    for (part, call) in [
        ("by-id", format!("GET http://{host}/api/state/job/by-id/7/name")),
        (
            &format!("pe/{source}/connectivity application/json \"Full\""),
            format!("PUT http://{host}/api/state/job/row/pe/{source}/connectivity application/json \"Full\""),
        ),
        (
            &format!("subscriptions/job/row/pe/{source}"),
            format!("GET http://{host}/api/subscriptions/job/row/pe/{source}"),
        ),
    ] {
        assert_eq!(called(&world, part, 1).await?[0], call);
    }
    Ok(())
}

#[tokio::test]
async fn a_channel_that_ends_is_missed_and_taken_back() -> Result<()> {
    let world = World::new().await?;
    let job = world.job("row", 7, &row(), FusionOption::Legacy)?;
    let mut doubles = world.start_all(&job, &["--rate=300"]).await?;
    let (source, sink, work) = (job.pe_of("Source")?, job.pe_of("Sink")?, job.pe_of("Work[1]")?);
    reaches(of(&doubles, sink)?, "tuples flow", |status| arrived(status).0 > 100).await?;

    drop(doubles.remove(&work).context("no channel")?);
    for pe in [source, sink] {
        let partial = |status: &Status| status.reported == Some(Connectivity::Partial);
        reaches(of(&doubles, pe)?, "a connection is missed", partial).await?;
    }
    let before = arrived(&of(&doubles, sink)?.status()).0;
    let others = |status: &Status| arrived(status).0 > before + 100;
    reaches(of(&doubles, sink)?, "the other channels go on", others).await?;

    doubles.insert(work, world.start(&job, work, 2, &[]).await?);
    for pe in [source, sink] {
        let full = |status: &Status| status.reported == Some(Connectivity::Full);
        reaches(of(&doubles, pe)?, "the connection is back", full).await?;
    }
    let back = |status: &Status| taken(status) > 50;
    reaches(of(&doubles, work)?, "the channel works again", back).await?;

    let at_source = of(&doubles, source)?.status();
    let to = format!("{work}.0@7");
    let link = at_source.outputs.iter().find(|output| output.to.as_ref() == Some(&to)).context("no connection")?;
    assert_eq!((link.opened, link.closed, link.connected), (2, 1, true));
    assert!(link.dropped > 0);
    let at_sink = of(&doubles, sink)?.status();
    let from = at_sink.inputs.iter().find(|input| input.from == to).context("no connection")?;
    assert_eq!((from.opened, from.closed, from.connected), (2, 1, true));
    let (_, lost, doubled) = arrived(&at_sink);
    assert!(lost > 0 && doubled == 0, "{lost} lost, {doubled} doubled");
    Ok(())
}

/// However operators are put together, each tuple takes one way.
#[tokio::test]
async fn regions_inside_and_behind_regions_keep_every_tuple() -> Result<()> {
    let nested = || {
        Sketch::new()
            .op("Source", 0, 1)
            .composite("Lane", 1, 1)
            .op("Lane.Work", 1, 1)
            .op("Sink", 1, 0)
            .connect("Source:0", "Lane:0")
            .connect("Lane:0", "Lane.Work:0")
            .connect("Lane.Work:0", "Lane:0")
            .connect("Lane:0", "Sink:0")
            .parallel("Lane", 2)
            .parallel("Lane.Work", 3)
    };
    let adjacent = || Sketch::row(&["Source", "A", "B", "Sink"]).parallel("A", 2).parallel("B", 3);
    let by_key = || {
        let attributes = "<attributes><attribute name='a'/></attributes>";
        let width = "<constantWidth>4</constantWidth>";
        Sketch::row(&["Source", "A", "Sink"]).parallel_by("A", width, "Hash", attributes)
    };
    let mut table = String::new();
    for (name, sketch) in [("nested", nested()), ("adjacent", adjacent()), ("keyed", by_key())] {
        for (how, fusion) in
            [("legacy", FusionOption::Legacy), ("two", FusionOption::Manual(2)), ("one", FusionOption::Manual(1))]
        {
            let world = World::new().await?;
            let job = match world.job(name, 3, &sketch, fusion) {
                Ok(job) => job,
                Err(error) => {
                    writeln!(table, "{name} {how}: {error}")?;
                    continue;
                }
            };
            let doubles = world.start_all(&job, &["--limit=300", "--rate=1000"]).await?;
            let sink = of(&doubles, job.pe_of("Sink")?)?;
            let status = reaches(sink, "the sink has all tuples", |status| arrived(status).0 == 300).await?;
            writeln!(table, "{name} {how}: {} PEs {:?}", job.pes.len(), arrived(&status))?;
        }
    }
    let expected = "nested legacy: 8 PEs (300, 0, 0)\n\
                    nested two: 2 PEs (300, 0, 0)\n\
                    nested one: 1 PEs (300, 0, 0)\n\
                    adjacent legacy: 7 PEs (300, 0, 0)\n\
                    adjacent two: 2 PEs (300, 0, 0)\n\
                    adjacent one: 1 PEs (300, 0, 0)\n\
                    keyed legacy: 6 PEs (300, 0, 0)\n\
                    keyed two: 2 PEs (300, 0, 0)\n\
                    keyed one: 1 PEs (300, 0, 0)\n";
    assert_eq!(table, expected);
    Ok(())
}

#[tokio::test]
async fn its_status_page_says_what_it_counts() -> Result<()> {
    let world = World::new().await?;
    let job = world.job("row", 7, &row(), FusionOption::Manual(1))?;
    let double = world.start(&job, 0, 1, &["--limit=30"]).await?;
    reaches(&double, "the sink has all tuples", |status| arrived(status).0 == 30).await?;
    let mut page = TcpStream::connect((double.status().address, 9696)).await?;
    page.write_all(b"GET /status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    page.read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
    let status: Status = serde_json::from_str(body)?;
    assert_eq!((arrived(&status), status.connectivity), ((30, 0, 0), Connectivity::Full));
    Ok(())
}

#[tokio::test]
async fn all_of_a_double_ends_with_it() -> Result<()> {
    let world = World::new().await?;
    let job = world.job("row", 7, &row(), FusionOption::Legacy)?;
    let pe = job.pe_of("Sink")?;
    let double = world.start(&job, pe, 1, &[]).await?;
    let address = double.status().address;
    drop(TcpStream::connect((address, 10_000)).await?);
    drop(double);
    tokio::time::timeout(Duration::from_secs(5), async {
        while TcpStream::connect((address, 10_000)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .context("somebody still listens")
}

#[tokio::test]
async fn what_is_missing_or_wrong_is_named() -> Result<()> {
    let world = World::new().await?;
    let job = world.job("row", 7, &row(), FusionOption::Legacy)?;
    let error = |result: Result<_>| result.map(|_: streams_pe_double::Double| ()).map_err(|error| format!("{error:#}"));
    let missing = error(world.start(&job, 77, 1, &[]).await).unwrap_err();
    assert!(missing.starts_with("cannot read ") && missing.contains("aadl.xml"), "{missing}");
    let bundle = error(world.start(&job, 0, 1, &["--namespace=other"]).await).unwrap_err();
    assert!(bundle.contains("the bundle \"app.sab\" cannot be had from streams-api.other:6379"), "{bundle}");
    Ok(())
}

/// As the bootstrap of the runtime, which ends at the first command that fails.
#[tokio::test]
async fn a_bundle_is_asked_for_once_and_whatever_else_comes_ends_the_pod() -> Result<()> {
    let world = World::new().await?;
    let job = world.job("row", 7, &row(), FusionOption::Legacy)?;
    let pe = job.pe_of("Sink")?;
    for (said, expected) in [
        (&b"-TRYAGAIN it is being fetched\r\n"[..], "what came is no bundle: TRYAGAIN it is being fetched"),
        (b"$-1\r\n", "it is not there"),
        (b"$100\r\n123", "the answer is cut"),
        (b"", "the server closed the connection"),
    ] {
        world.answer_bundles(said);
        let asked = world.bundle_requests();
        let error = world.start(&job, pe, 1, &[]).await.map(|_| ()).map_err(|error| format!("{error:#}")).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert_eq!(world.bundle_requests() - asked, 1, "{expected}");
    }
    Ok(())
}
