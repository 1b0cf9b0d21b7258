//! Consistent regions: drains, checkpoints and resets.

use crate::world::{Job, SOON, World, arrived, called, lock, of, reaches};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use streams_compiler::plan::FusionOption;
use streams_pe_double::{Double, REGIONS_PORT, Status, UNREADABLE};
use streams_test_support::application::Sketch;
use tokio::time::{sleep, timeout};

/// A source, three channels, a sink, all in one consistent region.
fn job(world: &World) -> Result<Job> {
    in_one_region(world, "steady", &Sketch::steady(3, "10", "180", "5"))
}

/// The operator takes whatever PEs of the region say.
fn in_one_region(world: &World, name: &str, sketch: &Sketch) -> Result<Job> {
    let job = world.job(name, 9, sketch, FusionOption::Legacy)?;
    for pe in job.pes.keys() {
        for report in ["checkpoint", "blockingcheckpoint", "reset"] {
            world.answer(format!("PUT /api/consistentregion/region/0/pe/{pe}/{report}"), 204, "");
        }
    }
    world.answer("PUT /api/consistentregion/region/0/drain".to_owned(), 204, "");
    Ok(job)
}

/// Tells the PE with the first operator something, and nobody else: the others follow the markers.
async fn tell(world: &World, source: &Double, kind: &str, message: &str) -> Result<()> {
    let message = format!(r#"{{"0":{{"type":"{kind}","message":"{message}"}}}}"#);
    world.tell(source, REGIONS_PORT, message.as_bytes()).await
}

async fn all_have(doubles: &BTreeMap<u64, Double>, what: &str, has: impl Fn(&Status) -> bool) -> Result<()> {
    for double in doubles.values() {
        reaches(double, what, &has).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_checkpoint_is_made_and_a_reset_goes_back_to_it() -> Result<()> {
    let world = World::new().await?;
    let job = job(&world)?;
    let limit = ["--limit=1500", "--rate=500"];
    let mut doubles = world.start_all(&job, &limit).await?;
    let (source, sink, work) = (job.pe_of("Source")?, job.pe_of("Sink")?, job.pe_of("Work[1]")?);
    reaches(of(&doubles, sink)?, "tuples flow", |status| arrived(status).0 > 50).await?;

    tell(&world, of(&doubles, source)?, "triggerDrain", "seqId=1").await?;
    all_have(&doubles, "the checkpoint is reported", |status| status.regions[&0].reports == 1).await?;
    let host = "streams-steady-consistentregion-api.ns:10000";
    // Whoever has asked for the drain: the operator with which the region starts says that it has begun.
    let begun = format!(
        r#"PUT http://{host}/api/consistentregion/region/0/drain application/json {{"request":{{"operator":"Source","seqId":"1"}}}}"#
    );
    assert_eq!(world.calls("region/0/drain"), [begun]);
    for pe in job.pes.keys() {
        let call = format!("PUT http://{host}/api/consistentregion/region/0/pe/{pe}/checkpoint application/json 1");
        assert_eq!(world.calls(&format!("/pe/{pe}/checkpoint")), [call]);
    }
    // All that was sent has arrived, and nothing more is sent.
    let made = of(&doubles, source)?.status().operators[0].made;
    assert_eq!(arrived(&of(&doubles, sink)?.status()), (made, 0, 0));
    assert!(of(&doubles, source)?.status().regions[&0].paused);

    tell(&world, of(&doubles, source)?, "resumeSubmission", "seqId=2;retId=0;pendCkpt=0").await?;
    let more = |status: &Status| arrived(status).0 > made + 50;
    reaches(of(&doubles, sink)?, "it goes on", more).await?;

    // A channel dies: tuples are lost, until the region goes back.
    drop(doubles.remove(&work).context("no channel")?);
    let missing = |status: &Status| arrived(status).1 > 0;
    reaches(of(&doubles, sink)?, "tuples are lost", missing).await?;
    doubles.insert(work, world.start(&job, work, 2, &limit).await?);
    let connected = |status: &Status| status.outputs.iter().all(|output| output.connected) && status.started;
    all_have(&doubles, "all are connected", connected).await?;

    tell(&world, of(&doubles, source)?, "triggerReset", "seqId=1;resetAttempt=0").await?;
    all_have(&doubles, "the reset is reported", |status| status.regions[&0].reset == Some((1, 0))).await?;
    for pe in job.pes.keys() {
        let call = format!(
            "PUT http://{host}/api/consistentregion/region/0/pe/{pe}/reset application/json \
             {{\"progress\":{{\"seqId\":\"1\",\"resetAttempt\":\"0\"}}}}"
        );
        assert_eq!(called(&world, &format!("/pe/{pe}/reset"), 1).await?, [call]);
    }
    assert_eq!(arrived(&of(&doubles, sink)?.status()), (made, 0, 0), "as at the checkpoint");

    tell(&world, of(&doubles, source)?, "resumeSubmission", "seqId=3;retId=0;pendCkpt=0").await?;
    let status = reaches(of(&doubles, sink)?, "all have arrived", |status| arrived(status).0 == 1500).await?;
    assert_eq!((arrived(&status), status.sinks[0].source.as_str()), ((1500, 0, 0), "9/Source"));

    tell(&world, of(&doubles, source)?, "triggerDrain", "seqId=3").await?;
    all_have(&doubles, "another checkpoint", |status| status.regions[&0].checkpoint == Some(3)).await?;
    assert_eq!(of(&doubles, sink)?.status().regions[&0].kept, [1, 3]);
    tell(&world, of(&doubles, source)?, "resumeSubmission", "seqId=4;retId=1;pendCkpt=0").await?;
    all_have(&doubles, "the first one is gone", |status| status.regions[&0].kept == [3]).await?;
    Ok(())
}

#[tokio::test]
async fn a_source_that_comes_again_waits_until_it_is_told_and_goes_on_where_the_checkpoint_was() -> Result<()> {
    let world = World::new().await?;
    let job = job(&world)?;
    let limit = ["--limit=800", "--rate=500", "--region-poll-ms=100"];
    let mut doubles = world.start_all(&job, &limit).await?;
    let (source, sink) = (job.pe_of("Source")?, job.pe_of("Sink")?);
    reaches(of(&doubles, sink)?, "tuples flow", |status| arrived(status).0 > 50).await?;
    // Without datagrams: what a PE asks for says the same.
    let say = |kind: &str, message: &str| {
        let answer = format!(r#"{{"0":{{"type":"{kind}","message":"{message}"}}}}"#);
        world.answer(format!("GET /api/consistentregion/pe/{source}"), 200, &answer);
    };
    say("triggerDrain", "seqId=1");
    all_have(&doubles, "the checkpoint is made", |status| status.regions[&0].checkpoint == Some(1)).await?;
    say("resumeSubmission", "seqId=2;retId=0;pendCkpt=0");
    let resumed = |status: &Status| !status.regions[&0].paused;
    reaches(of(&doubles, source)?, "it goes on", resumed).await?;

    drop(doubles.remove(&source).context("no source")?);
    lock(&world.operator.answers).remove(&format!("GET /api/consistentregion/pe/{source}"));
    doubles.insert(source, world.start(&job, source, 2, &limit).await?);
    let waits = |status: &Status| status.started && status.regions[&0].paused;
    let status = reaches(of(&doubles, source)?, "it waits", waits).await?;
    assert_eq!(status.operators[0].made, 0);
    say("triggerReset", "seqId=1;resetAttempt=0");
    all_have(&doubles, "all are reset", |status| status.regions[&0].reset == Some((1, 0))).await?;
    say("resumeSubmission", "seqId=3;retId=0;pendCkpt=0");
    let status = reaches(of(&doubles, sink)?, "all have arrived", |status| arrived(status).0 == 800).await?;
    assert_eq!(arrived(&status), (800, 0, 0));
    Ok(())
}

#[tokio::test]
async fn a_checkpoint_in_two_steps_is_reported_in_two() -> Result<()> {
    let world = World::new().await?;
    let job = job(&world)?;
    let doubles = world.start_all(&job, &["--checkpoint-style=blocking", "--limit=10"]).await?;
    let (source, sink) = (job.pe_of("Source")?, job.pe_of("Sink")?);
    reaches(of(&doubles, sink)?, "tuples flow", |status| arrived(status).0 == 10).await?;
    tell(&world, of(&doubles, source)?, "triggerDrain", "seqId=1").await?;
    all_have(&doubles, "both are reported", |status| status.regions[&0].reports == 2).await?;
    let path = format!("http://streams-steady-consistentregion-api.ns:10000/api/consistentregion/region/0/pe/{sink}");
    let calls = ["blockingcheckpoint", "checkpoint"].map(|step| format!("PUT {path}/{step} application/json 1"));
    assert_eq!(world.calls(&format!("region/0/pe/{sink}/")), calls);
    Ok(())
}

/// As an operator of the runtime does in a call that waits until its checkpoint is complete.
#[tokio::test]
async fn a_source_may_rest_until_its_checkpoint_is_complete() -> Result<()> {
    let world = World::new().await?;
    let job = job(&world)?;
    let doubles = world.start_all(&job, &["--checkpoint-style=blocking", "--rests", "--rate=500"]).await?;
    let (source, sink) = (of(&doubles, job.pe_of("Source")?)?, of(&doubles, job.pe_of("Sink")?)?);
    reaches(sink, "tuples flow", |status| arrived(status).0 > 10).await?;
    tell(&world, source, "triggerDrain", "seqId=1").await?;
    all_have(&doubles, "both are reported", |status| status.regions[&0].reports == 2).await?;
    let made = source.status().operators[0].made;
    tell(&world, source, "resumeSubmission", "seqId=2;retId=0;pendCkpt=1").await?;
    let told = |text: &'static str| move |status: &Status| status.regions[&0].last_message.as_deref() == Some(text);
    reaches(source, "it has heard it", told("resumeSubmission seqId=2;retId=0;pendCkpt=1")).await?;
    // It would make 500 tuples a second.
    sleep(Duration::from_millis(100)).await;
    assert_eq!((source.status().operators[0].made, source.status().regions[&0].paused), (made, true));
    // One that never hears of the end drains again, and makes nothing.
    tell(&world, source, "triggerDrain", "seqId=2").await?;
    all_have(&doubles, "another checkpoint", |status| status.regions[&0].checkpoint == Some(2)).await?;
    assert_eq!(source.status().operators[0].made, made);
    tell(&world, source, "resumeSubmission", "seqId=3;retId=1;pendCkpt=1").await?;
    tell(&world, source, "drained", "seqId=2").await?;
    reaches(sink, "it goes on", |status| arrived(status).0 > made + 10).await?;
    all_have(&doubles, "the first one is gone", |status| status.regions[&0].kept == [2]).await?;
    Ok(())
}

#[tokio::test]
async fn an_operator_begins_to_drain_and_says_so_and_another_one_asks_for_a_reset() -> Result<()> {
    let world = World::new().await?;
    // The source says when the region is drained.
    let job = in_one_region(&world, "driven", &Sketch::driven(3, "180", "5"))?;
    world.answer("PUT /api/consistentregion/region/0/reset".to_owned(), 204, "");
    let doubles = world.start_all(&job, &["--rate=500", "--drain-every=100", "--reset-every=150"]).await?;
    let (source, sink) = (of(&doubles, job.pe_of("Source")?)?, of(&doubles, job.pe_of("Sink")?)?);
    let host = "http://streams-driven-consistentregion-api.ns:10000/api/consistentregion/region/0";
    let wish = |what: &str, body: &str| format!(r#"PUT {host}/{what} application/json {{"request":{{{body}}}}}"#);

    all_have(&doubles, "nobody has told them", |status| status.regions[&0].checkpoint == Some(1)).await?;
    let begun = |seq: u64| wish("drain", &format!(r#""operator":"Source","seqId":"{seq}""#));
    assert_eq!(called(&world, "region/0/drain", 1).await?, [begun(1)]);
    assert_eq!(arrived(&sink.status()), (100, 0, 0));
    assert!(source.status().regions[&0].paused && world.calls("region/0/reset").is_empty());

    // It goes on, but does not drain again before all is written of the last time.
    tell(&world, source, "resumeSubmission", "seqId=2;retId=0;pendCkpt=1").await?;
    reaches(sink, "no more tuples come", |status| arrived(status).0 == 200).await?;
    assert_eq!(called(&world, "region/0/reset", 1).await?, [wish("reset", r#""force":"false","operator":"Sink""#)]);
    // It would at its next tuple, of which there are 500 a second.
    sleep(Duration::from_millis(200)).await;
    assert_eq!(world.calls("region/0/drain"), [begun(1)]);
    let of_source = &source.status().regions[&0];
    assert_eq!((of_source.paused, of_source.checkpoint), (false, Some(1)));
    tell(&world, source, "drained", "seqId=1").await?;
    all_have(&doubles, "the second drain", |status| status.regions[&0].checkpoint == Some(2)).await?;
    assert_eq!(called(&world, "region/0/drain", 2).await?, [begun(1), begun(2)]);

    // Where it goes back to it does not drain again.
    tell(&world, source, "triggerReset", "seqId=1;resetAttempt=0").await?;
    all_have(&doubles, "the reset", |status| status.regions[&0].reset == Some((1, 0))).await?;
    tell(&world, source, "resumeSubmission", "seqId=3;retId=0;pendCkpt=0").await?;
    all_have(&doubles, "the third drain", |status| status.regions[&0].checkpoint == Some(3)).await?;
    assert_eq!(arrived(&sink.status()), (200, 0, 0));
    assert_eq!(called(&world, "region/0/drain", 3).await?.last(), Some(&begun(3)));
    Ok(())
}

#[tokio::test]
async fn a_document_that_is_cut_ends_it() -> Result<()> {
    let world = World::new().await?;
    let job = job(&world)?;
    let doubles = world.start_all(&job, &["--limit=10"]).await?;
    let source = of(&doubles, job.pe_of("Source")?)?;
    // 128 bytes of it are read.
    let spaces = " ".repeat(128);
    let document = format!(r#"{{"0":{{"type":"drained","message":"seqId=1"}}{spaces}}}"#);
    world.tell(source, REGIONS_PORT, document.as_bytes()).await?;
    let why = timeout(SOON, source.ended()).await?;
    assert!(why.starts_with(UNREADABLE), "{why}");
    assert!(source.status().problems.last.contains(&why));
    Ok(())
}

#[tokio::test]
async fn a_message_that_comes_again_is_dropped() -> Result<()> {
    let world = World::new().await?;
    let job = job(&world)?;
    let doubles = world.start_all(&job, &["--limit=10"]).await?;
    let source = of(&doubles, job.pe_of("Source")?)?;
    reaches(of(&doubles, job.pe_of("Sink")?)?, "tuples flow", |status| arrived(status).0 == 10).await?;
    for _ in 0..2 {
        tell(&world, source, "triggerDrain", "seqId=1").await?;
    }
    tell(&world, source, "drained", "seqId=1").await?;
    let told = |status: &Status| status.regions[&0].last_message.as_deref() == Some("drained seqId=1");
    let status = reaches(source, "it has heard all", told).await?;
    assert_eq!((status.regions[&0].messages, status.regions[&0].repeated), (2, 0));
    // After another message the first one is new again, as for the runtime; what it asks for is done already.
    tell(&world, source, "triggerDrain", "seqId=1").await?;
    reaches(source, "it has heard it again", |status| status.regions[&0].messages == 3).await?;
    all_have(&doubles, "one checkpoint", |status| status.regions[&0].checkpoints == 1).await?;
    Ok(())
}

/// As the runtime, which has a handle of libcurl each for routes and for what regions say.
#[tokio::test]
async fn a_connection_is_kept_for_the_next_question() -> Result<()> {
    let world = World::new().await?;
    let job = in_one_region(&world, "kept", &Sketch::steady(1, "10", "180", "5"))?;
    let pe = job.pe_of("Source")?;
    let _doubles = world.start_all(&job, &["--limit=10", "--region-poll-ms=50", "--routes-poll-ms=50"]).await?;
    for path in [format!("/api/consistentregion/pe/{pe}"), format!("/api/subscriptions/job/kept/pe/{pe}")] {
        let since = Instant::now();
        while world.calls(&path).len() < 6 {
            ensure!(since.elapsed() < SOON, "{path} is not asked again and again");
            sleep(Duration::from_millis(20)).await;
        }
        // A call that is not answered in time ends it.
        let connections = world.connections(&path);
        assert!((1..=2).contains(&connections), "{connections} connections for {path}");
    }
    Ok(())
}
