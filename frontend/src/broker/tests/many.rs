//! Jobs with many exports and imports that change again and again (rule import-10).

use crate::broker::testing::{Followed, job, many_ports, suspend};
use std::sync::Arc;
use std::time::Duration;

/// How many exports and imports wait for a look, and how many jobs for a list of theirs.
fn waiting(followed: &Followed) -> (usize, usize) {
    let namespace = Arc::clone(&followed.boards.namespaces()["n"]);
    let namespace = namespace.lock();
    (namespace.waiting.len(), namespace.waiting_jobs.len())
}

#[tokio::test(start_paused = true)]
async fn whoever_changes_a_job_again_and_again_has_nothing_looked_at_by_that() {
    // imports, whether all of them are looked at by one event
    for (imports, are_few) in [(600, false), (150, true)] {
        let followed = Followed::new();
        many_ports(&followed, imports, 1);
        let all = imports as usize;
        // A job that waits stands for all that it imports.
        let waiting = || {
            let (waiting, jobs) = waiting(&followed);
            if jobs == 0 { waiting } else { all }
        };
        let resume = || followed.mirrors.jobs.insert(job("in", "u2", Some(2)));
        suspend(&followed);
        assert_eq!((waiting() == 0, waiting() < all), (are_few, true), "{imports}");
        // The second event has what the first one left.
        resume();
        assert_eq!((waiting() > 0, waiting() < all), (true, are_few), "{imports}");
        for _ in 0..3 {
            suspend(&followed);
            assert_eq!(waiting(), all);
            resume();
            assert_eq!(waiting(), all);
        }
        // Also if turns come as fast.
        for _ in 0..3 {
            followed.settle();
            suspend(&followed);
            assert_eq!(waiting(), all);
            followed.settle();
            resume();
            assert_eq!(waiting(), all);
        }
        followed.settle();
        assert_eq!(followed.receivers(), all);
        tokio::time::advance(Duration::from_secs(1)).await;
        suspend(&followed);
        assert_eq!((waiting() == 0, waiting() < all), (are_few, true), "{imports}: a second later");
        followed.settle();
        assert_eq!(followed.receivers(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_job_has_that_changes_again_and_again_is_listed_once() {
    let followed = Followed::new();
    many_ports(&followed, 600, 1);
    suspend(&followed);
    let (left, _) = waiting(&followed);
    assert!((300..400).contains(&left), "{left}");
    for _ in 0..10 {
        followed.mirrors.jobs.insert(job("in", "u2", Some(2)));
        assert_eq!(waiting(&followed), (left, 1));
        suspend(&followed);
        assert_eq!((waiting(&followed), followed.boards.is_settled("n")), ((left, 1), false));
    }
    followed.settle();
    assert_eq!((waiting(&followed), followed.receivers()), ((0, 0), 0));
    // Also if nothing waits, and nothing more may be looked at within the second.
    followed.mirrors.jobs.insert(job("in", "u2", Some(2)));
    assert_eq!((waiting(&followed), followed.boards.line().waiting()), ((0, 1), "n".to_owned()));
    followed.settle();
    assert_eq!((waiting(&followed), followed.receivers()), ((0, 0), 600));
}
