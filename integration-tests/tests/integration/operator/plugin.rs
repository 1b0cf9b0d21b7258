//! The kubectl plug-in, as people use it: what it says, and its exit statuses.

use super::fixture::{WITHIN, until_taken, with_system};
use anyhow::{Result, ensure};
use integration_tests::sample::CLEAN;
use streams_api::Resize;
use streams_proto::elasticity::v1::ResizeRequest;
use streams_proto::elasticity::v1::resize_request::WaitFor;

#[tokio::test]
async fn people_foresee_a_resize_and_ask_for_it_with_a_key() -> Result<()> {
    with_system("plugin", async |it| {
        let job = it.submitted().await?;
        let endpoint = format!("http://{}", it.frontend()?.elasticity());
        let plan = ["plan", "sensors", "Clean=3", "--endpoint", endpoint.as_str()];
        let (status, shown, told) = it.kubectl_streams(&plan).await?;
        ensure!(status == Some(0) && shown.starts_with("generation 1 would come: "), "{shown}{told}");
        let has = |words: &[&str]| shown.lines().any(|line| words.iter().all(|word| line.contains(word)));
        ensure!(has(&["added", "Clean[2]"]) && has(&["restarted", "Readings"]), "{shown}");
        let compiler = it.system.fusion_addresses().next().map(|address| address.to_string()).unwrap_or_default();
        let refused: [(&[&str], &str); 3] = [
            (&["plan", "sensors", "Clean=3", "--endpoint", &compiler], "is not the elasticity API"),
            (&["plan", "sensors", "Clean=3", "--expect", "Clean=7", "--endpoint", &endpoint], "is 2, not 7"),
            (&["plan", "sensors", "Clean=3", "--endpoint", "http://127.0.0.1:1"], "port-forward"),
        ];
        for (arguments, named) in refused {
            let (status, shown, told) = it.kubectl_streams(arguments).await?;
            ensure!(status == Some(1) && told.contains(named), "{arguments:?}: {status:?} {shown}{told}");
        }
        // Nothing was written; the request with a key is made once, over whichever door.
        ensure!(job.list::<Resize>().await?.is_empty() && job.status().await?.generation == Some(0));
        let resize = ["resize", "sensors", "Clean=3", "--key", "k"];
        let (status, made, told) = it.kubectl_streams(&resize).await?;
        ensure!(status == Some(0) && made.contains(" created"), "{made}{told}");
        let (status, again, told) = it.kubectl_streams(&resize).await?;
        ensure!(status == Some(0) && again == made.replace(" created", " exists"), "{again}{told}");
        let (status, _, told) = it.kubectl_streams(&["resize", "sensors", "Clean=4", "--key", "k"]).await?;
        ensure!(status == Some(1) && told.contains("the key is that of another request"), "{told}");
        let request =
            ResizeRequest { idempotency_key: "k".to_owned(), ..job.resize_request(&[(CLEAN, 3)], WaitFor::RolledOut) };
        let answer = until_taken(it.frontend()?.balancer().await?, request, WITHIN).await?;
        ensure!(made.contains(&answer.request) && answer.generation == Some(1), "{answer:?}");
        // It is too late to withdraw it.
        let (status, _, told) = it.kubectl_streams(&["cancel", &answer.request]).await?;
        ensure!(status == Some(1) && told.contains("it is too late"), "{told}");
        let (status, shown, told) = it.kubectl_streams(&["graph", "sensors"]).await?;
        ensure!(status == Some(0) && shown.starts_with("sensors Running, generation 1"), "{shown}{told}");
        let channels = shown.lines().filter(|line| line.contains("─ Score.Model[")).count();
        ensure!(channels == 4 && shown.contains("─ Clean[2]"), "{shown}");
        let (status, dot, _) = it.kubectl_streams(&["graph", "sensors", "--output", "dot"]).await?;
        ensure!(status == Some(0) && dot.starts_with("digraph \"sensors\" {") && dot.ends_with("}\n"), "{dot}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn people_see_a_job_resize_it_and_hear_what_becomes_of_that() -> Result<()> {
    with_system("plugin", async |it| {
        it.submitted().await?;
        let (status, shown, _) = it.kubectl_streams(&["status", "sensors"]).await?;
        ensure!(status == Some(0), "{shown}");
        let has_row = |first: &str, rest: &[&str]| {
            let is_row = |line: &str| line.split_whitespace().eq([first].iter().chain(rest).copied());
            shown.lines().any(is_row)
        };
        ensure!(has_row("Phase:", &["Running"]) && has_row("Generation:", &["0,", "rolled", "out"]), "{shown}");
        ensure!(
            has_row("Clean", &["2", "2", "AllRunning"]) && has_row("Score.Model", &["2", "2", "AllRunning"]),
            "{shown}"
        );
        ensure!(!shown.contains("PE  "), "every PE runs: {shown}");

        let (status, made, told) = it.kubectl_streams(&["resize", "sensors", "Clean=3", "--expect", "Clean=2"]).await?;
        ensure!(status == Some(0) && made.starts_with("streamsresize.streams.ibm.com/sensors-"), "{made}{told}");
        let last = told.lines().last().unwrap_or_default();
        ensure!(last.starts_with("generation 1 is rolled out: ") && last.contains(" 1 added, 0 removed"), "{told}");

        // What was refused; who waits for nothing; what nobody can ask for.
        let table: [(&[&str], i32, &str); 5] = [
            (&["resize", "sensors", "Clean=4", "--expect", "Clean=7"], 1, "refused: "),
            (&["resize", "sensors", "Nowhere=4"], 1, "refused: "),
            (&["resize", "strangers", "Clean=4"], 1, "there is no job strangers in namespace"),
            (&["resize", "sensors", "Clean=0"], 1, "the request was not taken"),
            (&["resize", "sensors", "Clean"], 2, "REGION=WIDTH is needed"),
        ];
        for (arguments, expected, named) in table {
            let (status, made, told) = it.kubectl_streams(arguments).await?;
            ensure!(status == Some(expected) && told.contains(named), "{arguments:?}: {status:?} {made}{told}");
        }
        let (_, shown, _) = it.kubectl_streams(&["status", "sensors"]).await?;
        ensure!(shown.contains("Clean=4") && shown.contains("refused: "), "{shown}");

        // Whoever reads nothing of it, as `| true`, has it done and waited for, and its exit status.
        for (arguments, expected) in [(["resize", "sensors", "Clean=2"], 0), (["resize", "sensors", "Nowhere=4"], 1)] {
            let status = it.kubectl_streams_unread(&arguments).await?;
            ensure!(status == Some(expected), "{arguments:?}: {status:?}");
        }
        let (_, shown, _) = it.kubectl_streams(&["status", "sensors"]).await?;
        ensure!(shown.contains("2, rolled out"), "{shown}");

        // Without the fusion service nothing becomes of a request, until somebody withdraws it.
        for replica in it.system.fusion() {
            replica.kill().await?;
        }
        let (status, made, told) = it.kubectl_streams(&["resize", "sensors", "Clean=5", "--timeout", "3s"]).await?;
        ensure!(status == Some(3) && told.contains("the time is over; the request goes on"), "{status:?} {told}");
        let made = made.split_once('/').and_then(|(_, rest)| rest.split_once(' ')).map(|(name, _)| name.to_owned());
        let name = made.unwrap_or_default();
        let (status, withdrawn, told) = it.kubectl_streams(&["cancel", &name]).await?;
        ensure!(status == Some(0) && withdrawn.contains("withdrawn"), "{told}");
        let status = it.kubectl_streams_unread(&["cancel", &name]).await?;
        ensure!(status == Some(0), "it is withdrawn, and nobody reads it: {status:?}");
        streams_control_plane::wait::eventually("it is cancelled", WITHIN, || async {
            let (_, shown, _) = it.kubectl_streams(&["status", "sensors"]).await?;
            let row = shown.lines().find(|line| line.starts_with(&name)).unwrap_or_default().to_owned();
            ensure!(row.contains("cancelled"), "{row}");
            Ok(())
        })
        .await
    })
    .await
}
