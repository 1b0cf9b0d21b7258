//! Files of a volume whose server may not answer (rule fetch-5).
//!
//! A thread that asks such a volume waits in the kernel until the server is back, and nothing ends it. So whoever waits
//! for the thread goes on after a while, and takes back what was lent to it: a thread that is stuck has one piece of a
//! bundle, and neither the bundle nor its place in memory (rule fetch-6).
//!
//! Knows: threads, pieces of files. Must not know: which files, what is in them.
//!
//! Invariants: nobody waits for longer than the patience, be it for a thread that is free or for what it does. There
//! are never more threads than were agreed on, however often a volume is asked that does not answer.

use bytes::Bytes;
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Bytes that are read or written at once.
const PIECE: usize = 256 << 10;

/// A volume. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Volume {
    threads: Arc<Semaphore>,
    patience: Duration,
}

/// Nothing came back in time, or so much is stuck already that nothing more could be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the volume does not answer")]
pub(super) struct Silent;

/// What is lent to a thread, as long as somebody waits for the thread.
pub(super) struct Lent<T>(Arc<Mutex<Option<T>>>);

/// What was lent: it is taken back by whoever gives up.
struct Loan<T>(Arc<Mutex<Option<T>>>);

impl Volume {
    /// One that so many threads ask at a time, those included for which nobody waits any more.
    pub(super) fn new(threads: usize, patience: Duration) -> Self {
        Self { threads: Arc::new(Semaphore::new(threads)), patience }
    }

    /// Does something with its files, on a thread that has what is `lent` to it. Gives that back with the result. If
    /// all threads are taken, one is waited for: perhaps by callers that are gone, and it ends soon if the volume
    /// answers.
    ///
    /// # Errors
    /// It does not answer. That may pass.
    pub(super) async fn ask<L: Send + 'static, T: Send + 'static>(
        &self,
        lent: L,
        work: impl FnOnce(&Lent<L>) -> T + Send + 'static,
    ) -> Result<(T, L), Silent> {
        let lent = Arc::new(Mutex::new(Some(lent)));
        let (loan, lent) = (Loan(Arc::clone(&lent)), Lent(lent));
        let done = async {
            let thread = Arc::clone(&self.threads).acquire_owned().await.map_err(|_| Silent)?;
            let done = spawn_blocking(move || {
                let done = work(&lent);
                drop(thread);
                done
            });
            // A thread that ended in any other way has not answered either.
            done.await.map_err(|_| Silent)
        };
        let done = timeout(self.patience, done).await.map_err(|_| Silent)??;
        loan.take().map(|lent| (done, lent)).ok_or(Silent)
    }
}

impl<T> Lent<T> {
    /// Uses it. Nothing that takes its time may be done meanwhile: whoever gives up waits for that.
    ///
    /// # Errors
    /// Nobody waits any more.
    pub(super) fn with<R>(&self, used: impl FnOnce(&mut T) -> R) -> io::Result<R> {
        let mut lent = self.0.lock();
        lent.as_mut().map(used).ok_or_else(|| io::Error::new(ErrorKind::TimedOut, Silent))
    }
}

impl<T> Loan<T> {
    fn take(&self) -> Option<T> {
        self.0.lock().take()
    }
}

impl<T> Drop for Loan<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Reads a file of `length` bytes, and no more than `most` of it if it has grown since.
///
/// # Errors
/// It cannot be read, or nobody waits any more.
pub(super) fn read(file: &mut File, length: u64, most: usize, lent: &Lent<Vec<u8>>) -> io::Result<()> {
    // Never moved while it grows as announced, which would take twice the memory. What is not written takes none.
    lent.with(|bytes| bytes.reserve_exact(usize::try_from(length).unwrap_or(most).min(most)))?;
    let (mut piece, mut left) = (Vec::with_capacity(PIECE), most as u64);
    loop {
        piece.clear();
        let read = Read::by_ref(file).take(left.min(PIECE as u64)).read_to_end(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        lent.with(|bytes| {
            bytes.reserve_exact(read);
            bytes.extend_from_slice(&piece);
        })?;
        left = left.saturating_sub(read as u64);
    }
}

/// Writes all of it to a file.
///
/// # Errors
/// It cannot be written, or nobody waits any more.
pub(super) fn write(file: &mut impl Write, lent: &Lent<Bytes>) -> io::Result<()> {
    let mut piece = Vec::with_capacity(PIECE);
    loop {
        piece.clear();
        lent.with(|bytes| piece.extend_from_slice(&bytes.split_to(PIECE.min(bytes.len()))))?;
        if piece.is_empty() {
            return Ok(());
        }
        file.write_all(&piece)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const IMPATIENT: Duration = Duration::from_millis(20);
    const PATIENT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn whoever_gives_up_takes_back_what_he_lent_and_no_more_threads_are_stuck() {
        let mut volume = Volume::new(2, IMPATIENT);
        let bundle = Arc::new(());
        let (went_on, ends) = mpsc::channel();
        let stuck = || {
            let (go_on, waits) = mpsc::channel::<()>();
            let went_on = went_on.clone();
            let work = move |lent: &Lent<Arc<()>>| {
                let _ = waits.recv();
                let _ = went_on.send(lent.with(|_| ()).map_err(|error| error.kind()));
            };
            (go_on, work)
        };
        let ((first, work), (second, next)) = (stuck(), stuck());
        assert_eq!(volume.ask(Arc::clone(&bundle), work).await.err(), Some(Silent));
        assert_eq!(Arc::strong_count(&bundle), 1, "although the thread is stuck");
        assert_eq!(volume.ask(Arc::clone(&bundle), next).await.err(), Some(Silent));
        let (never, asked) = mpsc::channel();
        assert_eq!(volume.ask((), move |_| asked.try_recv()).await.err(), Some(Silent), "both threads are stuck");
        assert!(never.send(()).is_err(), "nobody was asked");
        for go_on in [first, second] {
            go_on.send(()).unwrap();
            assert_eq!(ends.recv_timeout(PATIENT).unwrap(), Err(ErrorKind::TimedOut));
        }
        while volume.threads.available_permits() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        volume.patience = PATIENT;
        assert_eq!(volume.ask("lent", |_| "done").await, Ok(("done", "lent")), "it answers again");
    }

    #[tokio::test]
    async fn whoever_is_gone_has_taken_back_what_he_lent() {
        let volume = Volume::new(1, PATIENT);
        let bundle = Arc::new(());
        let (go_on, waits) = mpsc::channel::<()>();
        let lent = Arc::clone(&bundle);
        let asked = timeout(IMPATIENT, volume.ask(lent, move |_| waits.recv().is_ok()));
        assert!(asked.await.is_err());
        assert_eq!((Arc::strong_count(&bundle), volume.threads.available_permits()), (1, 0));
        drop(go_on);
    }

    #[tokio::test]
    async fn threads_of_those_who_are_gone_are_waited_for() {
        let volume = Volume::new(2, PATIENT);
        let (go_on, waits) = mpsc::channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        for _ in 0..2 {
            let waits = Arc::clone(&waits);
            let asked = volume.ask((), move |_| waits.lock().recv().is_ok());
            assert!(timeout(IMPATIENT, asked).await.is_err());
        }
        assert_eq!(volume.threads.available_permits(), 0);
        let ends = async {
            tokio::time::sleep(IMPATIENT).await;
            drop(go_on);
        };
        let (asked, ()) = tokio::join!(volume.ask("lent", |_| "done"), ends);
        assert_eq!(asked, Ok(("done", "lent")), "the volume answers");
    }

    #[tokio::test]
    async fn files_are_read_and_written_in_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let volume = Volume::new(1, PATIENT);
        // bytes of the file, most that are read
        for (length, most) in [(0, 10), (10, 10), (11, 10), (PIECE, 2 * PIECE), (2 * PIECE + 1, 3 * PIECE)] {
            let bytes: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let (path, lent) = (directory.path().join(length.to_string()), Bytes::from(bytes.clone()));
            let (to, from) = (path.clone(), path.clone());
            let written = volume.ask(lent, move |lent| write(&mut File::create(to).unwrap(), lent)).await;
            assert!(written.unwrap().0.is_ok());
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
            let announced = length as u64 / 2;
            let work = move |lent: &Lent<Vec<u8>>| read(&mut File::open(from).unwrap(), announced, most, lent);
            let (outcome, read) = volume.ask(Vec::new(), work).await.unwrap();
            assert!(outcome.is_ok());
            assert_eq!(read, bytes.get(..length.min(most)).unwrap(), "{length}");
        }
    }
}
