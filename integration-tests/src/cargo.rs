//! Builds programs of this workspace: with the cargo that runs this process, for the same profile, into the same target
//! directory, so that what has been built is not built again.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use streams_control_plane::process::{Process, Program, StateDirectory, Supervisor};

/// The whole workspace from nothing takes minutes on two cores.
const BUILT_WITHIN: Duration = Duration::from_secs(3600);

/// What cargo tells about itself to the programs it runs. Build scripts that watch such a variable would run, and their
/// packages be compiled, again.
const OF_THIS_PROCESS: [&str; 5] =
    ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"];

/// Builds the programs of `packages` and gives the executables by name. Shows cargo's own progress on stderr.
///
/// # Errors
/// When cargo is missing or does not succeed; the compiler's messages are on stderr then.
pub async fn build(
    supervisor: &Supervisor,
    state: &StateDirectory,
    packages: &[&str],
) -> Result<BTreeMap<String, PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut program = Program::new("cargo-build", cargo)
        .arguments(["build", "--bins", "--message-format=json-render-diagnostics"])
        .directory(workspace())
        .show_stderr();
    for package in packages {
        program = program.arguments(["--package", package]);
    }
    if let Some((target, profile)) = std::env::current_exe().ok().as_deref().and_then(target_and_profile) {
        program = program.arguments(["--profile", &profile]);
        if std::env::var_os("CARGO_BUILD_TARGET").is_none() {
            program = program.argument("--target-dir").argument(target);
        }
    }
    for (name, _) in std::env::vars_os() {
        if OF_THIS_PROCESS.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes())) {
            program = program.without(name);
        }
    }
    // Several builds in one state directory: each reads its own messages only.
    let _ = std::fs::remove_file(state.log("cargo-build"));
    let process = Process::start(supervisor, state, program).await?;
    let exit = tokio::time::timeout(BUILT_WITHIN, process.ended()).await;
    let exit = exit.with_context(|| format!("cargo build did not end within {BUILT_WITHIN:?}"))?;
    if !exit.is_success() {
        bail!("cargo build of {} ended with {exit}", packages.join(", "));
    }
    executables(&std::fs::read_to_string(process.log())?)
}

/// The root of the workspace from which this crate was compiled.
fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// The profile that this process was built with, if its path says so.
pub(crate) fn profile() -> Option<String> {
    std::env::current_exe().ok().as_deref().and_then(target_and_profile).map(|(_, profile)| profile)
}

/// Of `target/debug/deps/test-0123` and `target/debug/demo` the target directory and the profile.
fn target_and_profile(executable: &Path) -> Option<(PathBuf, String)> {
    let mut folder = executable.parent()?;
    if folder.file_name()? == "deps" {
        folder = folder.parent()?;
    }
    let profile = match folder.file_name()?.to_str()? {
        // The only profile whose folder has another name.
        "debug" => "dev",
        name => name,
    };
    Some((folder.parent()?.to_owned(), profile.to_owned()))
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// The executables that cargo's messages, a line of JSON each, name.
fn executables(messages: &str) -> Result<BTreeMap<String, PathBuf>> {
    let mut executables = BTreeMap::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line).context("cannot read a message of cargo")?;
        if let (Some(target), Some(executable)) = (message.target, message.executable)
            && message.reason == "compiler-artifact"
        {
            executables.insert(target.name, executable);
        }
    }
    Ok(executables)
}

#[cfg(test)]
mod tests {
    use super::{executables, target_and_profile};
    use std::path::Path;

    #[test]
    fn target_directory_and_profile_follow_from_the_running_program() {
        for (executable, target, profile) in [
            ("/w/target/debug/deps/integration-0123", "/w/target", "dev"),
            ("/w/target/debug/demo", "/w/target", "dev"),
            ("/elsewhere/release/soak", "/elsewhere", "release"),
            ("/w/target/soak/soak", "/w/target", "soak"),
        ] {
            let found = target_and_profile(Path::new(executable)).unwrap();
            assert_eq!(found, (target.into(), profile.into()), "{executable}");
        }
    }

    #[test]
    fn executables_are_those_of_artifacts_that_have_one() {
        let messages = [
            r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"frontend"},"executable":null}"#,
            r#"{"reason":"build-script-executed","package_id":"x"}"#,
            r#"{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"frontend"},"executable":"/t/debug/frontend"}"#,
            r#"{"reason":"build-finished","success":true}"#,
        ];
        let found = executables(&messages.join("\n")).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [("frontend".to_owned(), "/t/debug/frontend".into())]);
    }
}
