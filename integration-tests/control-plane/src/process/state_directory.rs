//! The directory in which a group of programs keeps its files. It is removed once this process is gone, or is done with
//! it, and the programs have ended.

use super::{Supervisor, supervisor};
use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::time::Duration;
use tokio::sync::watch;

/// Environment variable that makes state directories stay, for a look at logs after a failure.
const KEEP: &str = "STREAMS_KEEP_STATE";
/// Unix sockets in the directory must fit into 107 bytes; this leaves room for their names.
const LONGEST_PARENT: usize = 60;
/// How long its removal may take, including the end of the programs that use it.
const REMOVED_WITHIN: Duration = Duration::from_secs(60);

/// A directory below that for temporary files, with a short path, readable by this user only.
///
/// With `STREAMS_KEEP_STATE=1` in the environment it stays.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    lock: PathBuf,
    /// To the process that keeps the directory; dropping it asks for the removal.
    keeper: Mutex<Option<ChildStdin>>,
    keeper_ended: watch::Receiver<bool>,
}

impl StateDirectory {
    /// Makes one. `supervisor` will remove it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(supervisor: &Supervisor) -> Result<Self> {
        let parent = Some(std::env::temp_dir()).filter(|parent| parent.as_os_str().len() <= LONGEST_PARENT);
        let parent = parent.unwrap_or_else(|| PathBuf::from("/tmp"));
        let mut command = supervisor.command("keep");
        command.arg("--parent").arg(parent).args(["--prefix", "streams-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().with_context(|| supervisor.unusable())?;
        let keeper = child.stdin.take();
        let mut answer = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut answer).context("cannot hear the supervisor")?;
        }
        let path = PathBuf::from(answer.trim_end());
        let (send, keeper_ended) = watch::channel(false);
        std::thread::spawn(move || {
            let _ = child.wait();
            send.send_replace(true);
        });
        if !path.is_dir() {
            bail!("the supervisor could not make a directory for temporary files");
        }
        let directory = Self { lock: path.join(supervisor::LOCK), path, keeper: Mutex::new(keeper), keeper_ended };
        if std::env::var_os(KEEP).is_some_and(|value| !value.is_empty() && value != "0") {
            directory.leave();
        }
        Ok(directory)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the program called `name` writes its log.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.log"))
    }

    /// Locked (shared) by whoever uses the directory.
    pub(super) fn lock(&self) -> &Path {
        &self.lock
    }

    /// Makes it stay where it is, and says so on stderr.
    pub fn leave(&self) {
        let mut keeper = self.keeper.lock();
        if let Some(mut stdin) = keeper.take() {
            let _ = writeln!(stdin, "{}", supervisor::LEAVE);
            crate::progress::line(&format!("state and logs stay in {}", self.path.display()));
        }
    }

    /// Removes it and waits for that. The programs that use it must have been told to end.
    ///
    /// # Errors
    /// When they have not ended within a minute, or files cannot be removed.
    pub async fn remove(self) -> Result<()> {
        let mut ended = self.keeper_ended.clone();
        let path = self.path.clone();
        let left = self.keeper.lock().is_none();
        drop(self);
        let done = tokio::time::timeout(REMOVED_WITHIN + Duration::from_secs(5), ended.wait_for(|ended| *ended)).await;
        if done.is_err() || (path.exists() && !left) {
            bail!("{} could not be removed", path.display());
        }
        Ok(())
    }
}

/// Command lines in which `directory` appears, of all processes that still execute something: what has not ended of the
/// programs that use it. Only where there is a `/proc`.
///
/// # Errors
/// When there is none, or the path is not text.
pub fn processes_of(directory: &Path) -> Result<Vec<String>> {
    let directory = directory.to_str().context("not a path of text")?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        // Of a process that has just ended there is nothing to read; of one that waits to be reaped, an empty line.
        let Ok(line) = std::fs::read(entry?.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(directory) {
            found.push(line);
        }
    }
    Ok(found)
}
