//! Resizes that are asked of a second replica because the first one takes long.

use super::super::replicas::Lane;
use super::super::rest::REST;
use super::super::{Client, FusionError};
use super::{Behaviour, HEDGE, LATE, LONG, SLOW, client_of_first, client_that_hedges, compilation_of};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use streams_proto::fusion::v1::ResizeRequest;

async fn resize(client: &Client, application: u8) -> Result<(), FusionError> {
    let request = ResizeRequest { compilation: compilation_of(application), ..ResizeRequest::default() };
    client.resize(request).await.map(drop)
}

/// A resize, which takes less time than a try alone would have.
async fn soon(client: &Client, application: u8) -> Result<(), FusionError> {
    let begun = Instant::now();
    let answer = resize(client, application).await;
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    answer
}

fn counts(calls: &[Arc<AtomicUsize>]) -> Vec<usize> {
    calls.iter().map(|calls| calls.load(Ordering::SeqCst)).collect()
}

#[tokio::test]
async fn a_replica_that_is_silent_while_another_one_answers_is_left_alone() {
    use Behaviour::{Forgetful, Good, Rejecting, Silent};
    // the second replica, how often it is called by the first resize, whether it takes the application
    for (second, calls_each, is_good) in [(Good, 1, true), (Forgetful, 2, true), (Rejecting, 1, false)] {
        loop {
            let (client, calls, application) = client_of_first(&[Silent, second], LONG).await;
            let begun = Instant::now();
            assert_eq!(soon(&client, application).await.is_ok(), is_good);
            assert_eq!(counts(&calls), [1, calls_each]);
            let again = Instant::now();
            assert_eq!(soon(&client, application).await.is_ok(), is_good);
            // Later the silent one has rested, and a resize that takes longer is asked of it as well.
            if begun.elapsed() < REST && again.elapsed() < HEDGE {
                assert_eq!(counts(&calls), [1, 2 * calls_each], "the silent one was asked again");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_replica_that_was_asked_later_than_the_one_that_answers_has_not_failed() {
    let (client, calls, application) = client_of_first(&[Behaviour::Slow, Behaviour::Silent], LONG).await;
    soon(&client, application).await.unwrap();
    assert_eq!(counts(&calls), [1, 1]);
    let adl = compilation_of(application).and_then(|compilation| compilation.adl).unwrap();
    let replicas = client.replicas();
    let preferred = replicas.choose(&adl.sha256, Lane::Resizes, &BTreeSet::new()).await.unwrap();
    let other = replicas.spare(&adl.sha256, Lane::Resizes, &[preferred.address()].into());
    assert!(other.is_some(), "it is left alone");
}

#[tokio::test]
async fn a_second_replica_is_asked_as_soon_as_one_has_room() {
    let (client, calls, application) = client_of_first(&[Behaviour::Silent, Behaviour::Good], LONG).await;
    let adl = compilation_of(application).and_then(|compilation| compilation.adl).unwrap();
    let replicas = client.replicas();
    let first = replicas.choose(&adl.sha256, Lane::Resizes, &BTreeSet::new()).await.unwrap().address();
    let second = replicas.choose(&adl.sha256, Lane::Resizes, &[first].into()).await.unwrap();
    let (begun, rest) = (Instant::now(), HEDGE * 4);
    second.has_enough(rest);
    drop(second);
    soon(&client, application).await.unwrap();
    assert_eq!(counts(&calls), [1, 1]);
    assert!(begun.elapsed() >= rest, "{:?}: it was to rest", begun.elapsed());
}

#[tokio::test]
async fn one_that_failed_before_is_asked_while_the_only_other_one_is_silent() {
    let (client, calls, application) = client_of_first(&[Behaviour::Silent, Behaviour::Good], LONG).await;
    let adl = compilation_of(application).and_then(|compilation| compilation.adl).unwrap();
    let replicas = client.replicas();
    let first = replicas.choose(&adl.sha256, Lane::Resizes, &BTreeSet::new()).await.unwrap().address();
    let second = replicas.choose(&adl.sha256, Lane::Resizes, &[first].into()).await.unwrap();
    // It is back by now, and nobody knows.
    second.failed_for(LONG);
    drop(second);
    soon(&client, application).await.unwrap();
    assert_eq!(counts(&calls), [1, 1]);
}

#[tokio::test]
async fn when_the_second_replica_fails_a_third_one_is_asked() {
    use Behaviour::{Busy, Dies, Good, Overloaded, Silent, Unavailable};
    let table: [(&[Behaviour], &[usize]); 5] = [
        (&[Silent, Unavailable, Good], &[1, 1, 1]),
        (&[Silent, Overloaded, Good], &[1, 1, 1]),
        (&[Silent, Dies, Good], &[1, 1, 1]),
        (&[Silent, Unavailable, Busy], &[1, 1, 2]),
        // There is no third one: the second is asked again once it has rested.
        (&[Silent, Busy], &[1, 2]),
    ];
    for (behaviours, expected) in table {
        let (client, calls, application) = client_of_first(behaviours, LONG).await;
        soon(&client, application).await.unwrap();
        assert_eq!(counts(&calls), expected, "{expected:?}");
    }
}

#[tokio::test]
async fn replicas_that_are_lost_or_fail_inside_do_not_end_the_work_of_another_one() {
    use Behaviour::{BusyThenSlower, Defect, Dies, FailsLate, Good, Slow, Slower};
    // replicas -> how often each is called, what comes of it
    type Row = (&'static [Behaviour], &'static [usize], fn(&Result<(), FusionError>) -> bool);
    let table: [Row; 7] = [
        (&[Slow, Dies, Dies], &[1, 1, 1], Result::is_ok),
        // Nobody else is asked any more.
        (&[Slow, Dies, Dies, Good], &[1, 1, 1, 0], Result::is_ok),
        (&[FailsLate, Dies, Dies, Good], &[1, 1, 1, 0], |answer| matches!(answer, Err(FusionError::ReplicasLost(_)))),
        // Nor is one that was lost, even once it has rested.
        (&[Slower, Dies], &[1, 1], Result::is_ok),
        // Nor in the next round.
        (&[BusyThenSlower, Dies], &[2, 1], Result::is_ok),
        (&[Dies, Slow, Dies, Good], &[1, 1, 1, 0], Result::is_ok),
        // Nor is one that failed inside, which would then count as two.
        (&[Slow, Defect], &[1, 1], Result::is_ok),
    ];
    for (behaviours, expected, is_expected) in table {
        let (client, calls, application) = client_of_first(behaviours, LONG).await;
        let answer = soon(&client, application).await;
        assert!(is_expected(&answer), "{expected:?}: {answer:?}");
        assert_eq!(counts(&calls), expected);
    }
}

#[tokio::test]
async fn the_time_after_which_a_second_replica_is_asked_begins_when_the_first_one_is() {
    use Behaviour::{FailsLate, Good, Slow};
    let hedge = LATE + SLOW / 2;
    loop {
        let (client, calls, application) = client_that_hedges(&[FailsLate, Slow, Good], LONG, hedge).await;
        let begun = Instant::now();
        soon(&client, application).await.unwrap();
        if begun.elapsed() < LATE + hedge {
            assert_eq!(counts(&calls), [1, 1, 0], "the one that was asked last has not been silent for so long");
            break;
        }
    }
}
