//! What runs inside a supervising process. There are three roles, told apart by the first argument:
//!
//! ```text
//!   harness --stdin--> run   (one per program)  --forks--> exec: becomes the program
//!      |                 holds the state directory's lock (shared) as long as the program runs
//!      +-----stdin---> keep  (one per state directory): makes it, removes it once nobody holds the lock
//! ```
//!
//! *run* starts the program in a process group of its own and kills the group when its stdin ends or when it gets a
//! signal itself. *exec* asks the kernel to be killed when *run* dies, then replaces itself by the program, so that not
//! even the death of the supervisor leaves the program behind. (To ask between fork and exec would take unsafe code.)
//! That part exists on Linux only.
//!
//! The roles run in a process group of their own: Ctrl-C in a terminal reaches the harness alone, which may want to end
//! things in order.

use super::protocol::{Exit, Order, Report};
use anyhow::{Context as _, Result, anyhow, bail};
use clap::Parser;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{BufRead as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// First argument of a supervising process. Programs that supervise have no other use for it.
pub(super) const FIRST_ARGUMENT: &str = "__supervise";
/// Name of the lock file in a state directory.
pub(super) const LOCK: &str = ".lock";
/// Line by which *keep* is told to leave the state directory alone.
pub(super) const LEAVE: &str = "leave";

/// How long *keep* waits for the last program to end before it leaves the directory where it is.
const PROGRAMS_END_WITHIN: Duration = Duration::from_secs(60);
/// Exit code when the program cannot be executed, as shells have it.
const CANNOT_EXECUTE: u8 = 127;

#[derive(Parser, Debug)]
#[command(name = FIRST_ARGUMENT)]
enum Role {
    Run(SupervisedRun),
    Exec(Exec),
    Keep(Keep),
}

/// Starts a program and ends it with whoever holds the other end of stdin.
#[derive(Parser, Debug)]
struct SupervisedRun {
    /// Held (shared) as long as the program runs.
    #[arg(long)]
    lock: PathBuf,
    /// Where the program's output goes; appended to.
    #[arg(long)]
    log: PathBuf,
    /// The program's stderr stays that of the supervisor.
    #[arg(long)]
    inherit_stderr: bool,
    #[command(flatten)]
    target: Target,
}

/// Becomes a program that dies with its parent.
#[derive(Parser, Debug)]
struct Exec {
    /// Process id of the parent, to notice that it died before it was watched.
    #[arg(long)]
    parent: u32,
    #[command(flatten)]
    target: Target,
}

/// Makes a state directory, says where it is, and removes it when stdin has ended and nobody holds its lock.
#[derive(Parser, Debug)]
struct Keep {
    /// Folder in which to make it.
    #[arg(long)]
    parent: PathBuf,
    #[arg(long)]
    prefix: String,
}

#[derive(Parser, Debug)]
struct Target {
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Target {
    fn command(&self) -> Result<Command> {
        let (program, arguments) = self.command.split_first().ok_or_else(|| anyhow!("no program given"))?;
        let mut command = Command::new(program);
        command.args(arguments);
        Ok(command)
    }
}

/// Makes this process a supervising one if it was started as such, and gives the exit code with which it has to end.
///
/// To be called first thing in the `main` of every program that is used as a [`Supervisor`](super::Supervisor).
#[must_use]
pub fn supervise_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.peek().is_none_or(|argument| argument != FIRST_ARGUMENT) {
        return None;
    }
    let done = match Role::try_parse_from(arguments) {
        Ok(Role::Run(run)) => run.supervise(),
        Ok(Role::Exec(exec)) => exec.become_program(),
        Ok(Role::Keep(keep)) => keep.directory(),
        Err(wrong) => Err(wrong.into()),
    };
    Some(done.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "{error:#}");
        ExitCode::FAILURE
    }))
}

fn report(report: &Report) {
    // Nobody may be there to read it any more.
    let mut stdout = std::io::stdout().lock();
    let _ = serde_json::to_writer(&mut stdout, report);
    let _ = stdout.write_all(b"\n").and_then(|()| stdout.flush());
}

impl SupervisedRun {
    fn supervise(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match runtime.block_on(self.run()) {
            Ok(()) => {}
            Err(error) => report(&Report::Refused(format!("{error:#}"))),
        }
        // Not by dropping the runtime: the thread that reads stdin cannot be ended.
        std::process::exit(0)
    }

    async fn run(self) -> Result<()> {
        let lock = File::open(&self.lock).with_context(|| format!("cannot open {}", self.lock.display()))?;
        match lock.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("{} is being removed", self.lock.display()),
            Err(TryLockError::Error(error)) => return Err(error).context("cannot lock the state directory"),
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("cannot write {}", self.log.display()))?;

        let mut signals = Signals::new()?;
        let mut orders = orders();

        let mut command = Command::new(this_program()?);
        command.args([FIRST_ARGUMENT, "exec", "--parent", &std::process::id().to_string(), "--"]);
        command.args(&self.target.command).process_group(0).stdin(Stdio::null());
        command.stderr(if self.inherit_stderr { Stdio::inherit() } else { Stdio::from(log.try_clone()?) });
        command.stdout(log);
        // The kernel ties the program's life to this thread: it must be the main one, and is, as the runtime has no
        // other.
        let mut child = tokio::process::Command::from(command).spawn().context("cannot start a process")?;
        let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).context("the process has no id")?;
        report(&Report::Started(group.as_raw_nonzero().get().unsigned_abs()));

        loop {
            tokio::select! {
                status = child.wait() => {
                    report(&Report::Ended(Exit::from(status?)));
                    return Ok(());
                }
                order = orders.recv() => match order {
                    Some(Order::Signal(signal)) => {
                        if let Some(signal) = Signal::from_named_raw(signal) {
                            // Nobody there any more: the program has just ended, which is reported next.
                            let _ = kill_process_group(group, signal);
                        }
                    }
                    None => break,
                },
                () = signals.any() => break,
            }
        }
        let _ = kill_process_group(group, Signal::KILL);
        report(&Report::Ended(Exit::from(child.wait().await?)));
        Ok(())
    }
}

/// The orders that come in; the channel closes with stdin.
fn orders() -> mpsc::Receiver<Order> {
    let (send, receive) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if let Ok(order) = serde_json::from_str(&line)
                && send.blocking_send(order).is_err()
            {
                break;
            }
        }
    });
    receive
}

struct Signals([tokio::signal::unix::Signal; 3]);

impl Signals {
    fn new() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?]))
    }

    async fn any(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// The file of the running program, also after another build has replaced it.
fn this_program() -> Result<PathBuf> {
    let linux = Path::new("/proc/self/exe");
    if linux.exists() {
        Ok(linux.to_owned())
    } else {
        std::env::current_exe().context("cannot find the running program")
    }
}

impl Exec {
    fn become_program(self) -> Result<ExitCode> {
        #[cfg(target_os = "linux")]
        {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get().unsigned_abs());
            if parent != Some(self.parent) {
                bail!("the supervisor {} has died", self.parent);
            }
        }
        let error = self.target.command()?.exec();
        let program = self.target.command.first().cloned().unwrap_or_default();
        let _ = writeln!(std::io::stderr(), "cannot execute {}: {error}", program.display());
        Ok(ExitCode::from(CANNOT_EXECUTE))
    }
}

impl Keep {
    fn directory(self) -> Result<ExitCode> {
        // There will be keys in it.
        let own = Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().prefix(&self.prefix).permissions(own).tempdir_in(&self.parent);
        let directory =
            directory.with_context(|| format!("cannot make a directory in {}", self.parent.display()))?.keep();
        let lock = File::create(directory.join(LOCK))?;
        let mut stdout = std::io::stdout();
        let _ = writeln!(stdout, "{}", directory.display()).and_then(|()| stdout.flush());

        for line in std::io::stdin().lock().lines() {
            match line {
                Ok(line) if line == LEAVE => return Ok(ExitCode::SUCCESS),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let deadline = Instant::now() + PROGRAMS_END_WITHIN;
        while lock.try_lock().is_err() {
            if Instant::now() > deadline {
                bail!("programs in {} did not end", directory.display());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        std::fs::remove_dir_all(&directory).with_context(|| format!("cannot remove {}", directory.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
