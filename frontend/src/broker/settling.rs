//! Finds out what matches, namespace by namespace, where whoever was told of a change has not (rule import-10).
//!
//! ```text
//!  line ─► turn: trials of a namespace ─► tried, on a thread that makes way ─► learnt ─┬─► not settled: looks, line
//!                                                                                      └─► settled: told
//! ```
//!
//! In a turn some of the exports and imports are looked at that wait for it, on a thread as fast as others. One that
//! takes longer than a turn is looked at beside the turns, after those of other namespaces that do.
//!
//! Knows: what is to be tried, whose turn it is. Must not know: who is told, what was changed.
//!
//! Invariants:
//! * A thread that makes way for others has no lock: nobody waits for it. It has copies of what it tries. A turn in
//!   which nothing is to be tried needs none.
//! * The lock of a namespace is held for about [`LEARNT_AT_A_TIME`] outcomes, to take [`TRIALS`], or to put what was
//!   read.
//! * Whoever waits for a namespace is told in a turn of it that finds it settled. So a namespace that was not settled
//!   has such a turn, whoever settled it.
//! * No turn has a look that takes longer than a turn. A namespace that waits for one has its next turn after it. A
//!   turn with an object that may take long waits until nobody reads another such one of its namespace.

use crate::broker::allowance::SLICE;
use crate::broker::boards::Boards;
use crate::broker::namespace::SharedNamespace;
use std::sync::Arc;
use streams_broker::{Trial, Tried};
use streams_process::background;
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::sync::CancellationToken;

/// Pairs that are taken at a time.
const TRIALS: usize = 512;
/// Outcomes that a board learns at a time: it takes some 50 µs.
const LEARNT_AT_A_TIME: usize = 64;

/// A namespace whose turn it is.
struct Turn {
    name: Arc<str>,
    /// `None`: it is gone.
    namespace: Option<Arc<SharedNamespace>>,
    looks: Looks,
}

/// What is still to be looked at of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looks {
    None,
    /// First something that fits into a turn, or what a job exports and imports is to be listed.
    InTurn,
    /// First something that takes longer than a turn.
    Long,
}

impl Boards {
    /// Settles namespaces, one slice of each at a time, until it is stopped. It ends before only if something is wrong
    /// with this program.
    pub(crate) async fn settle(&self, stop: &CancellationToken) {
        tokio::select! {
            () = self.settle_in_turns(stop) => {}
            () = self.look_at_long_ones(stop) => {}
        }
    }

    async fn settle_in_turns(&self, stop: &CancellationToken) {
        loop {
            while !stop.is_cancelled()
                && let Some((turn, trials)) = self.next_turn()
            {
                let tried = tried_in_background(trials).await;
                let boards = self.clone();
                let ended = match tried.map(|tried| self.is_settled_by(&turn, tried)) {
                    Ok(is_settled) if is_settled || turn.looks == Looks::InTurn => {
                        spawn_blocking(move || boards.end(&turn, is_settled)).await
                    }
                    Ok(_) => Ok(()),
                    Err(error) => Err(error),
                };
                if let Err(error) = ended {
                    tracing::error!(%error, "boards are not settled any more");
                    return;
                }
            }
            tokio::select! {
                () = self.shared.is_any_unsettled.notified() => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// The turn of one namespace, and what takes longer than a turn, for whoever has no task that settles. Whether
    /// there was something to do.
    pub(crate) fn settle_a_slice(&self) -> bool {
        let had_a_turn = self.settle_in_a_turn();
        let mut had_a_look = false;
        while let Some(name) = self.next_long() {
            self.look_at_long(&name);
            had_a_look = true;
        }
        had_a_turn || had_a_look
    }

    fn settle_in_a_turn(&self) -> bool {
        let Some((turn, trials)) = self.next_turn() else { return false };
        let is_settled = self.is_settled_by(&turn, tried_in_a_slice(trials));
        self.end(&turn, is_settled);
        true
    }

    /// Looks at what takes longer than a turn, so that only those wait for it who have such objects themselves.
    async fn look_at_long_ones(&self, stop: &CancellationToken) {
        loop {
            while !stop.is_cancelled()
                && let Some(name) = self.next_long()
            {
                let boards = self.clone();
                if let Err(error) = spawn_blocking(move || boards.look_at_long(&name)).await {
                    tracing::error!(%error, "long exports and imports are not looked at any more");
                    return;
                }
            }
            tokio::select! {
                () = self.shared.is_any_long.notified() => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// The next namespace with something that takes longer than a turn.
    fn next_long(&self) -> Option<Arc<str>> {
        self.long_line().next()
    }

    /// What comes of the look is tried and told in turns like others.
    fn look_at_long(&self, name: &Arc<str>) {
        self.look_at_waiting(name, true);
        self.have_a_turn(name);
    }

    /// The namespace whose turn it is, and what is to be tried there.
    fn next_turn(&self) -> Option<(Turn, Vec<Trial>)> {
        let name = self.line().next()?;
        let namespace = self.namespaces().get(&name).cloned();
        let taken = namespace.as_ref().map(|namespace| {
            let namespace = namespace.lock();
            (namespace.board.trials(TRIALS), namespace.next_to_look_at(), !namespace.waiting_jobs.is_empty())
        });
        let (trials, next, has_jobs) = taken.unwrap_or_default();
        let looks = match next {
            None if !has_jobs => Looks::None,
            Some(object) if self.is_beyond_turns(&name, &object) => Looks::Long,
            _ => Looks::InTurn,
        };
        Some((Turn { name, namespace, looks }, trials))
    }

    /// Takes over what came of a turn. Whether all is known now; if not, the namespace will have another turn.
    fn is_settled_by(&self, turn: &Turn, tried: Vec<Tried>) -> bool {
        let Some(namespace) = &turn.namespace else { return true };
        let mut tried = tried.into_iter().peekable();
        while tried.peek().is_some() {
            let mut namespace = namespace.lock();
            let changes = namespace.board.learn(tried.by_ref().take(LEARNT_AT_A_TIME));
            let touched = namespace.numbered(changes, &self.shared.last_version);
            namespace.untold.extend(touched);
        }
        let mut namespace = namespace.lock();
        let (is_settled, is_tried) = (namespace.is_settled(), namespace.board.is_settled());
        if !is_settled {
            namespace.forget_old();
        }
        drop(namespace);
        let has_more = match turn.looks {
            Looks::None => !is_settled,
            Looks::InTurn => true,
            Looks::Long => {
                self.long_line().join(&turn.name);
                self.shared.is_any_long.notify_one();
                !is_tried
            }
        };
        if has_more {
            self.line().join(&turn.name);
        }
        is_settled
    }

    /// Tells all if the turn found the namespace settled, and looks at what waits for that.
    fn end(&self, turn: &Turn, is_settled: bool) {
        if is_settled {
            self.tell_all(turn);
        }
        if turn.looks == Looks::InTurn {
            self.look_at_waiting(&turn.name, false);
        }
    }

    /// Tells all that have waited for the namespace.
    fn tell_all(&self, turn: &Turn) {
        if let Some(namespace) = &turn.namespace {
            // If it is not settled any more, it has another turn.
            let untold = std::mem::take(&mut namespace.lock().untold);
            self.tell(&turn.name, untold);
        }
        self.tell_settled(&turn.name);
    }
}

/// What comes of the first of these, on a thread that makes way for others. Where nothing is to be tried, nobody waits
/// for such a thread: PEs may be waiting for the turn.
async fn tried_in_background(trials: Vec<Trial>) -> Result<Vec<Tried>, JoinError> {
    if trials.is_empty() { Ok(Vec::new()) } else { background::spawn(move || tried_in_a_slice(trials)).await }
}

/// What comes of the first of these, as many as a slice has room for.
fn tried_in_a_slice(trials: Vec<Trial>) -> Vec<Tried> {
    let mut steps = 0;
    let each = trials.into_iter().map_while(|trial| {
        let tried = (steps < SLICE).then(|| trial.run())?;
        steps += tried.steps();
        Some(tried)
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::answers::{Standing, Untold};
    use crate::broker::testing::{
        Followed, costly_namespace, export, import, job, long_export, many_ports, remove_costly_namespace, suspend,
    };
    use futures::FutureExt as _;
    use serde_json::json;
    use std::time::Duration;
    use streams_api::Import;
    use streams_broker::{Pe, Routes};
    use streams_kubernetes::Key;

    fn pe(job: &str, id: u64) -> Pe {
        Pe { job: job.into(), id }
    }

    #[test]
    fn what_a_namespace_asks_for_is_tried_a_little_at_a_time_and_told_when_all_is_known() {
        let followed = Followed::new();
        let boards = &followed.boards;
        costly_namespace(&followed.mirrors, "m", 100);
        // Whoever was told of the changes has tried a slice, and no more.
        assert!(!boards.is_settled("m"));
        assert_eq!(boards.routes("m", &pe("out", 0)), Err(Untold::Unsettled));
        assert_eq!(boards.message("m", &pe("out", 0), None), Err(Untold::Unsettled));
        let mut slices = 0;
        while !boards.is_settled("m") {
            boards.settle_a_slice();
            slices += 1;
        }
        assert!(slices > 20, "{slices}");
        assert_eq!(boards.routes("m", &pe("out", 0)), Ok(Routes::default()));
        assert!(boards.line().waiting().is_empty());
        let key = Key::new("m", "out-0-0");
        let Standing::Limited { is_connected: false, limit } =
            boards.import(&followed.mirrors.imports.get(&key).unwrap())
        else {
            panic!("nothing is said of the cost");
        };
        let words = "the subscription costs too much to evaluate for the properties of out-0-0 and 99 more exports";
        assert!(limit.to_string().starts_with(words), "{limit}");
        // What has not changed is not tried again.
        let mut same = Import::clone(&followed.mirrors.imports.get(&key).unwrap());
        same.status = serde_json::from_value(json!({"observedGeneration": 7})).unwrap();
        followed.mirrors.imports.insert(same);
        assert!(boards.is_settled("m"));
    }

    #[test]
    fn namespaces_that_are_not_settled_have_turns_and_whoever_is_is_not_held_up() {
        let followed = Followed::new();
        let boards = &followed.boards;
        costly_namespace(&followed.mirrors, "l", 20);
        costly_namespace(&followed.mirrors, "m", 20);
        let mut turns = String::new();
        for _ in 0..6 {
            turns.extend(boards.line().waiting().chars().next());
            boards.settle_a_slice();
        }
        assert_eq!(turns, "lmlmlm");
        followed.mirrors.jobs.insert(job("out", "u1", Some(1)));
        followed.mirrors.exports.insert(export("out-0-0", "out", "u1", 1));
        followed.mirrors.imports.insert(import("in-0-0", "in", "u2", 2));
        followed.mirrors.jobs.insert(job("in", "u2", Some(2)));
        assert_eq!((boards.is_settled("n"), followed.receivers(), boards.is_settled("m")), (true, 1, false));
    }

    #[test]
    fn a_turn_in_which_nothing_is_to_be_tried_waits_for_no_thread_that_makes_way() {
        let tried = tried_in_background(Vec::new()).now_or_never();
        assert!(tried.is_some_and(|tried| tried.is_ok_and(|tried| tried.is_empty())));
    }

    #[tokio::test]
    async fn whoever_waits_for_a_namespace_hears_when_it_is_settled() {
        let followed = Followed::new();
        let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
        followed.boards.subscribe(move |pe| _ = told.send(pe.clone()));
        let stop = CancellationToken::new();
        let settling = tokio::spawn({
            let (boards, stop) = (followed.boards.clone(), stop.clone());
            async move { boards.settle(&stop).await }
        });
        costly_namespace(&followed.mirrors, "m", 20);
        while !followed.boards.is_settled("m") {
            hears.recv().await.unwrap();
        }
        stop.cancel();
        settling.await.unwrap();
    }

    #[tokio::test]
    async fn whoever_settles_a_namespace_looks_at_what_waits_for_that() {
        let followed = Followed::new();
        many_ports(&followed, 600, 1);
        let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
        followed.boards.subscribe_to_settled(move |namespace| _ = told.send(namespace.to_owned()));
        suspend(&followed);
        assert!(!followed.boards.is_settled("n"));
        let stop = CancellationToken::new();
        let settling = tokio::spawn({
            let (boards, stop) = (followed.boards.clone(), stop.clone());
            async move { boards.settle(&stop).await }
        });
        let heard = tokio::time::timeout(Duration::from_secs(60), hears.recv()).await;
        assert_eq!(heard, Ok(Some("n".to_owned())));
        stop.cancel();
        settling.await.unwrap();
        assert_eq!(followed.receivers(), 0);
    }

    #[test]
    fn what_takes_longer_than_a_turn_holds_up_no_other_namespace() {
        let followed = Followed::new();
        let (boards, mirrors) = (&followed.boards, &followed.mirrors);
        many_ports(&followed, 600, 1);
        let mut exporter = job("out", "u1", Some(1));
        exporter.metadata.namespace = Some("m".to_owned());
        mirrors.jobs.insert(exporter);
        let mut long = long_export("out-0-0", "out", "u1", 1);
        long.metadata.namespace = Some("m".to_owned());
        mirrors.exports.insert(long.clone());
        suspend(&followed);
        for _ in 0..20 {
            boards.settle_in_a_turn();
        }
        assert_eq!((boards.is_settled("n"), followed.receivers()), (true, 0));
        assert_eq!((boards.export(&long), boards.line().waiting()), (Standing::Unknown, String::new()));
        assert_eq!((boards.is_settled("m"), boards.long_line().waiting()), (false, "m".to_owned()));
        boards.settle_a_slice();
        assert_eq!((boards.export(&long), boards.is_settled("m")), (Standing::Alone, true));
    }

    #[tokio::test]
    async fn whoever_settles_a_namespace_looks_at_what_takes_longer_than_a_turn() {
        let followed = Followed::new();
        let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
        followed.boards.subscribe_to_settled(move |namespace| _ = told.send(namespace.to_owned()));
        followed.mirrors.jobs.insert(job("out", "u1", Some(1)));
        let long = long_export("out-0-0", "out", "u1", 1);
        followed.mirrors.exports.insert(long.clone());
        let stop = CancellationToken::new();
        let settling = tokio::spawn({
            let (boards, stop) = (followed.boards.clone(), stop.clone());
            async move { boards.settle(&stop).await }
        });
        let heard = tokio::time::timeout(Duration::from_secs(60), hears.recv()).await;
        assert_eq!((heard, followed.boards.export(&long)), (Ok(Some("n".to_owned())), Standing::Alone));
        stop.cancel();
        settling.await.unwrap();
    }

    #[test]
    fn a_namespace_is_there_for_others_while_it_is_tried() {
        let followed = Followed::new();
        let (boards, mirrors) = (&followed.boards, &followed.mirrors);
        costly_namespace(mirrors, "m", 20);
        let (turn, trials) = boards.next_turn().unwrap();
        assert!(!trials.is_empty());
        // Nobody is waited for: this thread has the lock, if anybody has.
        let asked = mirrors.imports.get(&Key::new("m", "out-0-0")).unwrap();
        assert!(matches!(boards.import(&asked), Standing::Limited { is_connected: false, .. }));
        let mut other = Import::clone(&asked);
        other.spec.streams.property_based_import.as_mut().unwrap().subscription = "a != \"y\"".to_owned();
        mirrors.imports.insert(other.clone());
        // What was tried counts no more: the import asks for something else now.
        boards.is_settled_by(&turn, tried_in_a_slice(trials));
        while !boards.is_settled("m") {
            boards.settle_a_slice();
        }
        assert_eq!(boards.exporters(&other, 0).1, 20);
    }

    #[test]
    fn all_are_told_together_when_all_is_known() {
        let followed = Followed::new();
        let boards = &followed.boards;
        costly_namespace(&followed.mirrors, "m", 20);
        assert_eq!(followed.told().len(), 20, "each as it came");
        boards.settle_a_slice();
        assert_eq!((followed.told(), boards.is_settled("m")), (Vec::new(), false));
        // A PE that the board does not know any more needs no routes.
        followed.mirrors.exports.remove(&Key::new("m", "out-7-0"));
        assert_eq!(followed.told(), ["out-7"]);
        while !boards.is_settled("m") {
            boards.settle_a_slice();
        }
        assert_eq!(followed.told().len(), 19);
        assert_eq!(followed.told(), [""; 0]);
    }

    #[test]
    fn whoever_settles_a_namespace_all_hear_of_it() {
        let followed = Followed::new();
        let boards = &followed.boards;
        costly_namespace(&followed.mirrors, "m", 20);
        followed.told();
        // Without the import nothing is left to be tried.
        followed.mirrors.imports.remove(&Key::new("m", "out-0-0"));
        assert_eq!((followed.told(), boards.is_settled("m")), (Vec::new(), true));
        boards.settle_a_slice();
        assert!(followed.told().contains(&"out-0".to_owned()));
        assert!(boards.line().waiting().is_empty());
    }

    #[test]
    fn a_namespace_that_goes_and_comes_back_has_one_turn() {
        let followed = Followed::new();
        let boards = &followed.boards;
        costly_namespace(&followed.mirrors, "l", 20);
        for _ in 0..3 {
            costly_namespace(&followed.mirrors, "m", 20);
            remove_costly_namespace(&followed.mirrors, "m", 20);
            assert!(!boards.namespaces().contains_key("m"));
        }
        costly_namespace(&followed.mirrors, "m", 20);
        assert_eq!(boards.line().waiting(), "lm");
        for _ in 0..4 {
            boards.settle_a_slice();
        }
        assert_eq!(boards.line().waiting(), "lm");
    }
}
