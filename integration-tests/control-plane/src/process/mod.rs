//! Programs that run beside this one and never outlive it.
//!
//! [`Supervisor`] says which program is used to supervise, [`StateDirectory`] is where a group of programs keeps files
//! and logs, [`Program`] is what to run, [`Process`] is it running: it can be killed, signalled, started again, and
//! waited for. How a supervising process works: `supervisor`.
//!
//! Everything here is driven by threads, not by the asynchronous runtime, which may be gone before the programs are.
//!
//! Knows: processes, signals, files. Must not know: which programs there are.
//!
//! Invariant: however this process ends, no program that it has started goes on.

mod protocol;
mod readiness;
mod state_directory;
mod supervisor;

use anyhow::{Context as _, Result, anyhow, bail};
use parking_lot::Mutex;
use rustix::process::Signal;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;
use tokio::sync::watch;

pub use protocol::Exit;
use protocol::{Order, Report};
pub use readiness::{accepts_connections, free_port, serves_grpc};
pub use state_directory::{StateDirectory, processes_of};
pub use supervisor::supervise_if_asked;

/// How long the supervisor may take to start a program, or to see it end after SIGKILL. Both take milliseconds; the
/// machine may be busy.
const SUPERVISOR_ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// How much of a log is looked at for its last lines.
const LOG_TAIL_BYTES: u64 = 16 * 1024;

/// A program that can supervise others: its `main` begins with [`supervise_if_asked`].
#[derive(Debug, Clone)]
pub struct Supervisor(PathBuf);

impl Supervisor {
    /// The program at `path`; in tests `env!("CARGO_BIN_EXE_...")` of a program of the same package.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The running program itself.
    ///
    /// # Errors
    /// When the system does not say which file that is.
    pub fn this_program() -> Result<Self> {
        std::env::current_exe().map(Self).context("cannot find the running program")
    }

    /// A command that runs this supervisor in `role`, apart from the terminal's process group.
    fn command(&self, role: &str) -> Command {
        let mut command = Command::new(&self.0);
        command.args([supervisor::FIRST_ARGUMENT, role]).process_group(0);
        command
    }

    /// The error for a supervisor that could not even be started.
    fn unusable(&self) -> String {
        format!("cannot start the supervisor {}", self.0.display())
    }
}

/// What to run. Its log is `<name>.log` in the state directory.
#[derive(Debug, Clone)]
pub struct Program {
    name: String,
    executable: PathBuf,
    arguments: Vec<OsString>,
    /// `None`: removed from the environment that this process hands down.
    environment: Vec<(OsString, Option<OsString>)>,
    directory: Option<PathBuf>,
    show_stderr: bool,
}

impl Program {
    /// The program `executable`, called `name` in messages and in the name of its log.
    pub fn new(name: impl Into<String>, executable: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            executable: executable.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            show_stderr: false,
        }
    }

    /// One more argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn arguments<I: IntoIterator<Item: Into<OsString>>>(mut self, arguments: I) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable. The others are those of this process.
    #[must_use]
    pub fn environment(mut self, name: impl AsRef<OsStr>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.as_ref().to_owned(), Some(value.into())));
        self
    }

    /// Removes an environment variable.
    #[must_use]
    pub fn without(mut self, name: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), None));
        self
    }

    /// Removes what would send calls on the loopback interface through a proxy.
    #[must_use]
    pub fn without_proxy(mut self) -> Self {
        for name in ["http_proxy", "https_proxy", "all_proxy"] {
            self = self.without(name).without(name.to_uppercase());
        }
        self
    }

    /// Runs it in this directory.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Shows its stderr on that of this process instead of writing it to the log.
    #[must_use]
    pub fn show_stderr(mut self) -> Self {
        self.show_stderr = true;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A started program. It is killed when this value is dropped, and when the process that holds it ends, however that
/// happens.
#[derive(Debug)]
pub struct Process {
    program: Program,
    supervisor: Supervisor,
    lock: PathBuf,
    log: PathBuf,
    run: Mutex<ProcessRun>,
}

/// One run of the program: from a start to its end.
#[derive(Debug)]
struct ProcessRun {
    /// To the supervisor; dropping it kills the program.
    orders: Option<ChildStdin>,
    state: watch::Receiver<State>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Starting,
    Running(u32),
    Refused(String),
    Ended(Exit),
}

impl Process {
    /// Starts `program`; returns when it runs, which does not mean that it is ready ([`Process::ready`]).
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(supervisor: &Supervisor, state: &StateDirectory, program: Program) -> Result<Self> {
        let lock = state.lock().to_owned();
        let log = state.log(&program.name);
        let run = Mutex::new(ProcessRun::start(supervisor, &lock, &log, &program)?);
        let process = Self { program, supervisor: supervisor.clone(), lock, log, run };
        process.started().await?;
        Ok(process)
    }

    /// Starts the program again after it has ended, with the same arguments. The log goes on.
    ///
    /// # Errors
    /// When it still runs, or cannot be started.
    pub async fn start_again(&self) -> Result<()> {
        {
            let mut run = self.run.lock();
            if matches!(*run.state.borrow(), State::Starting | State::Running(_)) {
                bail!("{} still runs", self.program.name);
            }
            *run = ProcessRun::start(&self.supervisor, &self.lock, &self.log, &self.program)?;
        }
        self.started().await
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// Its process id while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        match *self.run.lock().state.borrow() {
            State::Running(id) => Some(id),
            _ => None,
        }
    }

    /// Where its output goes.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Sends a signal to it, e.g. `Signal::STOP` to make it hang.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let mut run = self.run.lock();
        let name = &self.program.name;
        if !matches!(*run.state.borrow(), State::Running(_)) {
            bail!("{name} does not run");
        }
        let orders = run.orders.as_mut().ok_or_else(|| anyhow!("{name} does not run"))?;
        let mut order = serde_json::to_vec(&Order::Signal(signal.as_raw()))?;
        order.push(b'\n');
        orders.write_all(&order).with_context(|| format!("{name} has ended with its supervisor"))
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// When it does not run, or does not end.
    pub async fn kill(&self) -> Result<Exit> {
        self.signal(Signal::KILL)?;
        let exit = tokio::time::timeout(SUPERVISOR_ANSWERS_WITHIN, self.ended()).await;
        exit.map_err(|_| anyhow!("{} did not end after SIGKILL", self.program.name))
    }

    /// Asks it to end (SIGTERM), waits up to `grace`, then kills it.
    ///
    /// # Errors
    /// When it does not run, or does not end.
    pub async fn stop(&self, grace: Duration) -> Result<Exit> {
        self.signal(Signal::TERM)?;
        match tokio::time::timeout(grace, self.ended()).await {
            Ok(exit) => Ok(exit),
            Err(_) => self.kill().await,
        }
    }

    /// Waits until it has ended by itself or was ended. Has no deadline of its own.
    pub async fn ended(&self) -> Exit {
        let mut state = self.run.lock().state.clone();
        let ended = state.wait_for(|state| matches!(state, State::Ended(_) | State::Refused(_))).await;
        match ended.as_deref() {
            Ok(State::Ended(exit)) => *exit,
            _ => Exit::Unknown,
        }
    }

    /// The last `lines` lines of its log, or a remark in their place.
    #[must_use]
    pub fn last_lines(&self, lines: usize) -> String {
        match last_lines(&self.log, lines) {
            Ok(text) if text.is_empty() => "(its log is empty)".to_owned(),
            Ok(text) => text,
            Err(error) => format!("(its log {} cannot be read: {error})", self.log.display()),
        }
    }

    async fn started(&self) -> Result<()> {
        let name = &self.program.name;
        let mut state = self.run.lock().state.clone();
        let started = state.wait_for(|state| *state != State::Starting);
        let started = tokio::time::timeout(SUPERVISOR_ANSWERS_WITHIN, started).await;
        let started = started.map_err(|_| anyhow!("the supervisor of {name} does not answer"))?;
        match started.as_deref() {
            Ok(State::Refused(reason)) => bail!("cannot start {name}: {reason}"),
            Ok(_) => Ok(()),
            Err(_) => bail!("the supervisor of {name} has ended"),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.program.name)
    }
}

impl ProcessRun {
    fn start(supervisor: &Supervisor, lock: &Path, log: &Path, program: &Program) -> Result<Self> {
        let mut command = supervisor.command("run");
        command.arg("--lock").arg(lock).arg("--log").arg(log);
        if program.show_stderr {
            command.arg("--inherit-stderr");
        } else {
            // What a supervisor itself complains about belongs to the log as well; and a stderr handed down would
            // keep whoever reads ours waiting.
            let log = std::fs::OpenOptions::new().create(true).append(true).open(log);
            command.stderr(log.context("cannot write a log")?);
        }
        command.arg("--").arg(&program.executable).args(&program.arguments);
        for (name, value) in &program.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = &program.directory {
            command.current_dir(directory);
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().with_context(|| supervisor.unusable())?;
        let orders = child.stdin.take();
        let reports = child.stdout.take().context("the supervisor has no stdout")?;
        let (send, state) = watch::channel(State::Starting);
        std::thread::spawn(move || {
            for line in BufReader::new(reports).lines() {
                let Ok(line) = line else { break };
                send.send_replace(match serde_json::from_str(&line) {
                    Ok(Report::Started(id)) => State::Running(id),
                    Ok(Report::Refused(reason)) => State::Refused(reason),
                    Ok(Report::Ended(exit)) => State::Ended(exit),
                    Err(_) => State::Refused(line),
                });
            }
            // Reaps it. Its exit code says nothing that its reports have not said.
            let _ = child.wait();
            send.send_if_modified(|state| match state {
                State::Starting => {
                    *state = State::Refused("its supervisor ended".to_owned());
                    true
                }
                State::Running(_) => {
                    *state = State::Ended(Exit::Unknown);
                    true
                }
                State::Refused(_) | State::Ended(_) => false,
            });
        });
        Ok(Self { orders, state })
    }
}

/// The last `lines` lines of the file at `path`, as far as they fit into its last 16 KiB.
fn last_lines(path: &Path, lines: usize) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut last: Vec<&str> = text.lines().rev().take(lines).collect();
    last.reverse();
    Ok(last.join("\n"))
}
