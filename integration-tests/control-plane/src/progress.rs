//! What a long step is doing, on stderr: a bar in a terminal, now and then a line elsewhere.
//!
//! Lines go past the capture of the test harness, so that a first `cargo test`, which may build for minutes, shows what
//! it is doing.

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Time between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(20);

/// A step that takes long. Ends with [`Progress::done`], or silently when dropped.
#[derive(Debug)]
pub struct Progress {
    title: String,
    start: Instant,
    bar: ProgressBar,
    last_line: Mutex<Instant>,
}

impl Progress {
    /// Begins a step called `title`.
    pub fn begin(title: impl Into<String>) -> Self {
        let title = title.into();
        let bar = ProgressBar::new_spinner();
        // The template is fixed; should indicatif refuse it, its own default style does.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix}: {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.set_prefix(title.clone());
        if bar.is_hidden() {
            line(&title);
        } else {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Self { title, start: Instant::now(), bar, last_line: Mutex::new(Instant::now()) }
    }

    /// Says how far the step is, e.g. "831 of 2340 packages".
    pub fn at(&self, message: impl Into<String>) {
        let message = message.into();
        if self.bar.is_hidden() {
            let mut last = self.last_line.lock();
            if last.elapsed() >= LINE_EVERY {
                *last = Instant::now();
                line(&format!("{}: {message} ({} s)", self.title, self.start.elapsed().as_secs()));
            }
        } else {
            self.bar.set_message(message);
        }
    }

    /// Ends the step and says how long it took.
    pub fn done(self) {
        self.bar.finish_and_clear();
        line(&format!("{}: done ({:.1} s)", self.title, self.start.elapsed().as_secs_f64()));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// One line on stderr. Unlike `eprintln!` it is not captured by the test harness, and a closed stderr is no reason to
/// panic.
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
