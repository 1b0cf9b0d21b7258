//! Requests that the mirror does not show (rule elasticity-30).
//!
//! Another frontend may have made such a request just now, so the API server is asked for it. But whoever calls may
//! also have made up its name. So few are asked for at the same time, and of a namespace fewer: what else this frontend
//! has to do with the API server is not behind them.
//!
//! Knows: namespaces, callers. Must not know: what a request is asked for.
//!
//! Invariants: all namespaces without jobs are one. A question that was put has its place and its turn until it is
//! answered, also if nobody waits for it any more. Whoever perhaps has no right takes neither from anybody who has.

use super::view::ClusterView;
use super::{Elasticity, errors, requests};
use crate::fair_semaphore::{FairPermit, FairSemaphore};
use crate::grpc::places::{CallerName, NOTHING, Place, Places, turns_of};
use std::time::Duration;
use streams_api::Resize;
use streams_kubernetes::queue::Owner;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Status;

/// Requests that are asked for at the same time, in all and of one namespace.
const AT_ONCE: usize = 8;
pub(super) const AT_ONCE_OF_ONE: usize = 2;
/// Calls that wait for one, in all and of one namespace; further ones are refused.
const WAITING_MAX: usize = 256;
pub(super) const WAITING_OF_ONE_MAX: usize = 64;
/// The same for callers that perhaps have no right: at the same time in all and of one, and those that wait in all, of
/// one caller a quarter at most.
const OF_CALLERS_AT_ONCE: usize = 2;
const OF_CALLERS_AT_ONCE_OF_ONE: usize = 1;
const OF_CALLERS_WAITING_MAX: usize = 64;
/// How long a turn of theirs lasts after the answer that there is no such request.
pub(super) const REST: Duration = Duration::from_millis(100);
/// The longest that a call waits for one: so long a call of the API server takes at most.
const LONGEST: Duration = Duration::from_secs(10);

const WHAT: &str = "the API server to say whether there is such a request";

/// Whose turn it is, and who waits. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Lookups {
    places: Places,
    turns: FairSemaphore,
    /// Of callers of whom nobody knows yet whether they have a right, by their names.
    places_of_callers: Places,
    turns_of_callers: FairSemaphore,
}

impl Lookups {
    /// Nothing is asked for.
    pub(super) fn new() -> Self {
        Self {
            places: Places::new(WAITING_MAX, WAITING_OF_ONE_MAX),
            turns: FairSemaphore::new(AT_ONCE, AT_ONCE_OF_ONE),
            places_of_callers: Places::new(OF_CALLERS_WAITING_MAX, OF_CALLERS_WAITING_MAX),
            turns_of_callers: FairSemaphore::new(OF_CALLERS_AT_ONCE, OF_CALLERS_AT_ONCE_OF_ONE),
        }
    }
}

/// Which request is asked for, and until when its caller waits.
struct Question<'a> {
    namespace: &'a str,
    name: &'a str,
    /// Its name, if the caller asks for it again; else empty.
    perhaps: &'a str,
    deadline: Instant,
}

impl<V: ClusterView> Elasticity<V> {
    /// The request of this name, as the API server has it. Callers of a namespace take turns. `perhaps` is its name, if
    /// the caller asks for it again: whatever keeps it from being looked up, it may be there. Else it is empty.
    ///
    /// # Errors
    /// Too many wait, this one has waited for too long, or this frontend is to stop.
    pub(super) async fn look_up(
        &self,
        namespace: &str,
        name: &str,
        perhaps: &str,
        caller: Option<&CallerName>,
        deadline: Instant,
    ) -> Result<Option<Resize>, Status> {
        let Lookups { places, turns, .. } = &self.lookups;
        let place = self.place_among(places, namespace, None, caller);
        let place = place.map_err(|full| errors::too_many_lookups(perhaps, &full))?;
        let group = if self.view.has_jobs(namespace) { namespace } else { NOTHING };
        let turn = turns.acquire_for(Owner { namespace: group.into(), object: turns_of(caller) });
        self.ask(Question { namespace, name, perhaps, deadline }, place, turn, Duration::ZERO).await
    }

    /// The same for somebody who perhaps has no right in the namespace (rule elasticity-29): that takes nobody's place
    /// and nobody's turn who has. Callers take turns, and whoever makes up names has few.
    ///
    /// # Errors
    /// The same.
    pub(super) async fn look_up_for(
        &self,
        namespace: &str,
        name: &str,
        caller: Option<&CallerName>,
        deadline: Instant,
    ) -> Result<Option<Resize>, Status> {
        let Lookups { places_of_callers, turns_of_callers, .. } = &self.lookups;
        let of_caller = turns_of(caller);
        let place = places_of_callers.take_for_caller(&of_caller);
        let place = place.map_err(|full| errors::too_many_lookups("", &full))?;
        let turn = turns_of_callers.acquire(&of_caller);
        self.ask(Question { namespace, name, perhaps: "", deadline }, place, turn, REST).await
    }

    /// Asks the API server once it is the turn of the caller. The turn lasts longer by `rest` if there is no such
    /// request.
    async fn ask(
        &self,
        Question { namespace, name, perhaps, deadline }: Question<'_>,
        place: Place,
        turn: impl Future<Output = FairPermit>,
        rest: Duration,
    ) -> Result<Option<Resize>, Status> {
        let (client, namespace, name) = (self.client.clone(), namespace.to_owned(), name.to_owned());
        let of_request = perhaps.to_owned();
        let found = async {
            let held = (place, turn.await);
            let put = tokio::spawn(async move {
                let unheard = |why: &str| errors::not_looked_up(&of_request, why);
                let found = requests::get(&client, &namespace, &name, unheard).await;
                if matches!(found, Ok(None)) && !rest.is_zero() {
                    tokio::spawn(async move {
                        sleep(rest).await;
                        drop(held);
                    });
                }
                found
            });
            put.await.unwrap_or_else(|_| Err(errors::not_looked_up(perhaps, "this frontend stops")))
        };
        let until = deadline.min(Instant::now() + LONGEST);
        let late = |_| {
            let why = if until < deadline {
                errors::not_looked_up(perhaps, "it takes too long")
            } else {
                errors::still_waiting_to(perhaps, WHAT)
            };
            Err(why)
        };
        tokio::select! {
            biased;
            found = timeout_at(until, found) => found.unwrap_or_else(late),
            () = self.stopping.cancelled() => Err(errors::shutting_down_while(perhaps, WHAT)),
        }
    }
}
