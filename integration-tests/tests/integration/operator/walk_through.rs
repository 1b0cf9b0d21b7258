//! Pages with commands, typed as they stand: what a page says is answered, is answered.

use super::fixture::{Fixture, JOB, WITHIN, with_system};
use crate::support::control_plane;
use anyhow::{Context as _, Result, ensure};
use std::path::Path;
use std::process::Stdio;
use streams_control_plane::binaries::Tool;
use tokio::process::Command;
use tokio::time::timeout;

/// A command of the page, and the lines that it says are answered, in their order.
struct Step<'a> {
    command: &'a str,
    answered: Vec<&'a str>,
}

/// The commands in blocks of `console`.
fn steps(page: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut is_console = false;
    for line in page.lines() {
        match (line.strip_prefix("```"), line.strip_prefix("$ ")) {
            (Some(language), _) => is_console = language == "console",
            (None, Some(command)) if is_console => steps.push(Step { command, answered: Vec::new() }),
            (None, None) if is_console && line != "..." => {
                if let Some(step) = steps.last_mut() {
                    step.answered.push(line.trim());
                }
            }
            _ => {}
        }
    }
    steps
}

/// The first of these lines that the text does not have, after those before it.
fn missing<'a>(text: &str, lines: &[&'a str]) -> Option<&'a str> {
    let mut rest = text.lines();
    lines.iter().copied().find(|wanted| !rest.by_ref().any(|line| line.trim().starts_with(wanted)))
}

/// Types the commands of a page of `docs`, at least so many, and compares what is answered.
pub(super) async fn typed(it: &Fixture, page: &str, least: usize) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let steps = steps(&page);
    ensure!(steps.len() >= least && steps.iter().all(|step| !step.answered.is_empty()), "{} steps", steps.len());
    let grpcurl = control_plane().await?.executable(Tool::Grpcurl).display().to_string();
    for Step { command, answered } in &steps {
        let typed = command
            .replacen("grpcurl", &grpcurl, 1)
            .replace("localhost:50052", &it.frontend()?.elasticity().to_string())
            .replace(r#""namespace": "default""#, &format!(r#""namespace": "{}""#, it.namespace));
        ensure!(typed.contains(&it.namespace), "not of this namespace: {command}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{typed} 2>&1")]).stdin(Stdio::null()).kill_on_drop(true);
        for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            shell.env_remove(name);
        }
        let output = timeout(WITHIN, shell.output()).await.context("it does not end")??;
        let text = String::from_utf8(output.stdout)?;
        let missing = missing(&text, answered);
        ensure!(missing.is_none(), "{command}\nshould answer {missing:?}, and answers\n{text}");
    }
    Ok(())
}

#[tokio::test]
async fn the_page_for_load_balancers_says_what_is_answered() -> Result<()> {
    with_system("walk", async |it| {
        ensure!(it.submitted().await?.name() == JOB, "the page is about another job");
        typed(it, "load-balancers.md", 10).await
    })
    .await
}
