//! A place in memory for one bundle (rule fetch-6), and the threads that work on that bundle.
//!
//! A thread goes on when nobody waits for it any more, and so does what it holds in memory. So the place belongs to the
//! threads as well as to whoever fetches: a job that is edited again and again, or deleted, begins no more work at a
//! time than one that waits.
//!
//! Knows: threads. Must not know: what they do, who shares places.

use super::error::BundleError;
use std::any::Any;
use std::sync::Arc;
use streams_process::background;
use tokio::task::spawn_blocking;

/// A place, held by everybody who works on its bundle. Cheap to clone.
#[derive(Clone)]
pub(super) struct Place(Arc<dyn Any + Send + Sync>);

impl Place {
    /// A place that is given back when this is dropped.
    pub(super) fn new(held: impl Send + Sync + 'static) -> Self {
        Self(Arc::new(held))
    }

    /// Does something that takes its time on a thread that serves nobody else.
    pub(super) async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, BundleError> + Send + 'static,
    ) -> Result<T, BundleError> {
        let place = self.clone();
        let done = spawn_blocking(move || place.hold_during(work)).await;
        done.map_err(|error| BundleError::unread(&error))?
    }

    /// The same on a thread that makes way for others, for what nobody waits for but a submission.
    pub(super) async fn in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, BundleError> + Send + 'static,
    ) -> Result<T, BundleError> {
        let place = self.clone();
        let done = background::spawn(move || place.hold_during(work)).await;
        done.map_err(|error| BundleError::unread(&error))?
    }

    fn hold_during<T>(self, work: impl FnOnce() -> T) -> T {
        let Self(held) = self;
        let done = work();
        drop(held);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::sync::mpsc;
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn a_place_is_taken_until_the_thread_has_ended_although_nobody_waits() {
        for in_background in [false, true] {
            let places = Arc::new(Semaphore::new(1));
            let place = Place::new(Arc::clone(&places).try_acquire_owned().unwrap());
            let (go_on, waits) = mpsc::channel::<()>();
            let work = move || waits.recv().map_err(|_| BundleError::unavailable("nobody told it to go on"));
            let given_up = if in_background {
                place.in_background(work).now_or_never()
            } else {
                place.off_thread(work).now_or_never()
            };
            assert!(given_up.is_none());
            drop(place);
            assert_eq!(places.available_permits(), 0, "in background: {in_background}");
            go_on.send(()).unwrap();
            drop(places.acquire().await.unwrap());
        }
    }
}
