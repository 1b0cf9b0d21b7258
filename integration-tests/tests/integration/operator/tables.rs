//! What `kubectl` shows, and waits for.

use super::fixture::{JOB, WITHIN, with_system};
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::Widths;

/// Header of the table that begins with NAME in each block of lines.
fn headers(output: &str) -> Vec<Vec<&str>> {
    output.lines().filter(|line| line.starts_with("NAME ")).map(|line| line.split_whitespace().collect()).collect()
}

/// Cells of the line of `name`, split at blanks.
fn cells<'a>(output: &'a str, name: &str) -> Result<Vec<&'a str>> {
    let line = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut line = line.filter(|cells| cells.first() == Some(&name));
    line.next().with_context(|| format!("{name} is not in\n{output}"))
}

#[tokio::test]
async fn every_kind_has_its_columns() -> Result<()> {
    with_system("tables", async |it| {
        it.submitted().await?;
        let output = it.kubectl(&["get", "streamsjobs,streamspes,streamsprs,pods"]).await?;
        let expected: [&[&str]; 4] = [
            &["NAME", "PHASE", "GENERATION", "PES", "READY", "COMPLETED", "AGE"],
            &["NAME", "JOB", "PE", "PHASE", "CONNECTIVITY", "LAUNCH", "OPERATORS", "AGE"],
            &["NAME", "JOB", "REGION", "WIDTH", "DESIRED", "READY", "AGE"],
            &["NAME", "READY", "STATUS", "RESTARTS", "AGE"],
        ];
        ensure!(headers(&output) == expected, "{output}");
        let job = cells(&output, "job.streams.ibm.com/sensors")?;
        ensure!(job[1..5] == ["Running", "0", "12", "12"], "{job:?}");
        let pe = cells(&output, "processingelement.streams.ibm.com/sensors-0")?;
        ensure!(pe[1..6] == [JOB, "0", "Running", "1", "1"], "{pe:?}");
        let region = cells(&output, "parallelregion.streams.ibm.com/sensors-1")?;
        ensure!(region[1..6] == [JOB, "Score.Model", "2", "2", "True"], "{region:?}");
        let running = output.lines().filter(|line| line.starts_with("pod/sensors-") && line.contains(" Running "));
        ensure!(running.count() == 12, "{output}");

        let wide = it.kubectl(&["get", "stj,stp,stpr", "--output=wide"]).await?;
        let wide = headers(&wide).into_iter().map(|columns| columns[columns.len() - 4..].join(" ")).collect::<Vec<_>>();
        let expected =
            ["BUNDLE ID FUSION SUBMITTED", "APPLICATION POD RESTARTS CONTENT", "READY AGE GENERATION REJECTED"];
        ensure!(wide == expected, "{wide:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn kubectl_waits_for_conditions_and_scales_regions() -> Result<()> {
    with_system("tables", async |it| {
        let job = it.submitted().await?;
        let seconds = format!("--timeout={}s", WITHIN.as_secs());
        it.kubectl(&["wait", "--for=condition=Ready", "streamsjob/sensors", &seconds]).await?;
        let region = job.region("Clean").await?.metadata.name.context("no name")?;
        let region = format!("streamspr/{region}");
        it.kubectl(&["scale", &region, "--replicas=5"]).await?;
        it.kubectl(&["wait", "--for=jsonpath={.status.width}=5", &region, &seconds]).await?;
        it.kubectl(&["wait", "--for=condition=Ready", "streamsjob/sensors", &seconds]).await?;
        job.settled(Widths { clean: 5, ..Widths::default() }, WITHIN).await?;
        let refused = it.kubectl(&["scale", &region, "--replicas=0"]).await;
        let refused = refused.err().context("a width of 0 was taken")?.to_string();
        ensure!(refused.contains("spec.width") && refused.contains('1'), "{refused}");
        Ok(())
    })
    .await
}
