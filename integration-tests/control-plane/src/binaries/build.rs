//! Builds the programs with Go, from the module proxy. `go.mod` and `go.sum` are compiled in.
//!
//! Layout below the cache directory of this very version:
//!
//! ```text
//!   lock         held by the process that builds
//!   build/       go.mod, go.sum and half-built programs; emptied by whoever holds the lock
//!   bin/         finished programs, moved here one by one, so that an interrupted build goes on where it was
//! ```

use super::{ASSETS, Tool};
use crate::process::{Process, Program, StateDirectory, Supervisor};
use crate::progress::Progress;
use anyhow::{Context as _, Result, bail};
use std::collections::{BTreeMap, HashSet};
use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) const GO_MOD: &str = include_str!("../../go.mod");
pub(super) const GO_SUM: &str = include_str!("../../go.sum");

/// Six minutes on two idle cores; a busy machine and a slow network may take many times that.
const BUILT_WITHIN: Duration = Duration::from_secs(3600);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Where finished programs are.
pub(super) fn folder(cache: &Path) -> PathBuf {
    cache.join("bin")
}

/// Without a version the programs would call themselves `v0.0.0-master+$Format:%H$`, which clients cannot parse.
/// Symbols and debug information, a third of each file, are left out.
pub(super) fn linker_flags() -> String {
    format!("-s -w -X k8s.io/component-base/version.gitVersion={}", version_of("k8s.io/kubernetes"))
}

/// The version that go.mod requires of `module`, and "v0.0.0" if it is not there.
fn version_of(module: &str) -> &'static str {
    let mut words = GO_MOD.split_whitespace().skip_while(|word| *word != module);
    words.nth(1).unwrap_or("v0.0.0")
}

/// The version of Go that go.mod asks for.
fn needed_go() -> &'static str {
    GO_MOD.lines().find_map(|line| line.strip_prefix("go ")).unwrap_or_default()
}

/// Builds those of `tools` that are not in the cache by then.
pub(super) async fn build(supervisor: &Supervisor, cache: &Path, tools: &[Tool]) -> Result<BTreeMap<Tool, PathBuf>> {
    let unusable = || format!("cannot use the cache directory {}", cache.display());
    let bin = folder(cache);
    std::fs::create_dir_all(&bin).with_context(unusable)?;
    let deadline = Instant::now() + BUILT_WITHIN;
    let _lock = lock(cache, deadline).await.with_context(unusable)?;
    // Another process may have built them while this one waited.
    let missing: Vec<Tool> = tools.iter().copied().filter(|tool| !bin.join(tool.name()).is_file()).collect();
    if !missing.is_empty() {
        let workshop = cache.join("build");
        let _ = std::fs::remove_dir_all(&workshop);
        std::fs::create_dir_all(&workshop).with_context(unusable)?;
        std::fs::write(workshop.join("go.mod"), GO_MOD).with_context(unusable)?;
        std::fs::write(workshop.join("go.sum"), GO_SUM).with_context(unusable)?;
        let go = Go { supervisor, logs: StateDirectory::create(supervisor)?, workshop, deadline };
        go.check().await?;
        go.build(&missing, &bin).await?;
        let _ = std::fs::remove_dir_all(&go.workshop);
    }
    Ok(tools.iter().map(|tool| (*tool, bin.join(tool.name()))).collect())
}

/// The lock of the cache directory: released with the file, also by a process that dies.
async fn lock(cache: &Path, deadline: Instant) -> Result<File> {
    let lock = File::create(cache.join("lock"))?;
    let mut waiting = None;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::Error(error)) => return Err(error).context("cannot lock it"),
            Err(TryLockError::WouldBlock) => {}
        }
        if Instant::now() > deadline {
            bail!("another process has been building in it for {BUILT_WITHIN:?}");
        }
        waiting.get_or_insert_with(|| {
            Progress::begin("Waiting for the control plane's programs, which another process builds")
        });
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Go, at work in one folder.
struct Go<'a> {
    supervisor: &'a Supervisor,
    logs: StateDirectory,
    workshop: PathBuf,
    deadline: Instant,
}

impl Go<'_> {
    /// Runs `go` with `arguments` to its end. `watch` gets what it has written so far, each time there is more.
    async fn run(&self, name: &str, arguments: &[&str], mut watch: impl FnMut(&str)) -> Result<String> {
        let program = Program::new(name, "go")
            .arguments(arguments)
            .directory(&self.workshop)
            .environment("CGO_ENABLED", "0")
            .environment("GOFLAGS", "-mod=readonly -buildvcs=false")
            .environment("GOWORK", "off")
            // The programs are for this machine.
            .without("GOOS")
            .without("GOARCH");
        let process = Process::start(self.supervisor, &self.logs, program).await?;
        let mut log = File::open(process.log())?;
        let mut text = String::new();
        let exit = loop {
            let exit = tokio::time::timeout(LOOK_EVERY, process.ended()).await;
            if read_more(&mut log, &mut text)? {
                watch(&text);
            }
            match exit {
                Ok(exit) => break exit,
                Err(_) if Instant::now() > self.deadline => {
                    bail!("`go {}` did not end within {BUILT_WITHIN:?}", arguments.join(" "))
                }
                Err(_) => {}
            }
        };
        if !exit.is_success() {
            bail!("`go {}` ended with {exit}:\n{}", arguments.join(" "), process.last_lines(20));
        }
        Ok(text)
    }

    /// Fails with advice when there is no Go that can build this module. A Go of another version may fetch the right
    /// one by itself.
    async fn check(&self) -> Result<()> {
        let needed = needed_go();
        self.run("go-check", &["list", "-m"], |_| {}).await.map(drop).with_context(|| {
            format!(
                "Go {needed} or newer is needed to build the control plane for tests and demo (once; about six minutes on two cores). \
                 Install it from https://go.dev/dl and put it on the PATH, or set {ASSETS} to a folder with {}",
                Tool::ALL.map(Tool::name).join(", ")
            )
        })
    }

    /// Builds `tools` one after the other and moves each into `bin`.
    async fn build(&self, tools: &[Tool], bin: &Path) -> Result<()> {
        let start = Instant::now();
        crate::progress::line(&format!(
            "Building the control plane (Kubernetes {}, {}) with Go, once; the result is kept in {}",
            version_of("k8s.io/kubernetes"),
            tools.iter().map(|tool| tool.name()).collect::<Vec<_>>().join(", "),
            bin.display(),
        ));
        let packages = self.packages(tools).await?;
        let total = packages.values().flatten().collect::<HashSet<_>>().len();
        let mut compiled: HashSet<&str> = HashSet::new();
        for (position, tool) in tools.iter().enumerate() {
            let own: HashSet<&str> = packages.get(tool).into_iter().flatten().map(String::as_str).collect();
            let progress = Progress::begin(format!("[{}/{}] {tool}", position + 1, tools.len()));
            let half = self.workshop.join(tool.name());
            let flags = linker_flags();
            let output = half.to_string_lossy();
            let arguments = ["build", "-v", "-trimpath", "-ldflags", &flags, "-o", &output, tool.package()];
            self.run(&format!("go-build-{tool}"), &arguments, |text| {
                // `go build -v` writes the path of each package that it compiles.
                let new = text.lines().filter(|line| own.contains(line) && !compiled.contains(line)).count();
                let last = text.lines().next_back().unwrap_or_default();
                progress.at(format!("{} of {total} packages, {last}", compiled.len() + new));
            })
            .await?;
            compiled.extend(own);
            std::fs::rename(&half, bin.join(tool.name()))
                .with_context(|| format!("cannot write to {}", bin.display()))?;
            progress.done();
        }
        crate::progress::line(&format!("The control plane is built ({} s)", start.elapsed().as_secs()));
        Ok(())
    }

    /// The packages of which each of `tools` consists. Downloads them.
    async fn packages(&self, tools: &[Tool]) -> Result<BTreeMap<Tool, HashSet<String>>> {
        let progress = Progress::begin("Downloading Go modules");
        let mut arguments = vec!["list", "-f", r#"{{.ImportPath}} {{join .Deps " "}}"#];
        arguments.extend(tools.iter().map(|tool| tool.package()));
        let listed = self
            .run("go-list", &arguments, |text| {
                let downloads = text.lines().filter(|line| line.starts_with("go: downloading")).count();
                progress.at(format!("{downloads} so far"));
            })
            .await?;
        progress.done();
        let packages = tools.iter().map(|tool| {
            let of_tool = listed.lines().find(|line| line.split(' ').next() == Some(tool.package()));
            (*tool, of_tool.unwrap_or_default().split(' ').map(str::to_owned).collect())
        });
        Ok(packages.collect())
    }
}

/// Appends what has been added to `file` since the last time; whether that was anything. Cuts no character in two.
fn read_more(file: &mut File, text: &mut String) -> Result<bool> {
    let mut bytes = Vec::new();
    let position = file.stream_position()?;
    file.read_to_end(&mut bytes)?;
    let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    file.seek(SeekFrom::Start(position + complete as u64))?;
    text.push_str(&String::from_utf8_lossy(bytes.get(..complete).unwrap_or_default()));
    Ok(complete > 0)
}

#[cfg(test)]
mod tests {
    use super::{linker_flags, needed_go, version_of};

    #[test]
    fn versions_come_from_go_mod() {
        assert!(needed_go().starts_with("1."), "{}", needed_go());
        assert!(version_of("k8s.io/kubernetes").starts_with("v1."));
        assert!(linker_flags().ends_with(version_of("k8s.io/kubernetes")));
        assert_eq!(version_of("example.com/nothing"), "v0.0.0");
    }
}
