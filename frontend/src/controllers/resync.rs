//! Looks at every object again from time to time, although nothing has happened to it (rule call-21).
//!
//! Controllers are woken by changes, and by what they wait for. Should ever a wake-up be missing, for whatever reason,
//! the resync comes after it. It costs a look at the mirrors per object, and no call if nothing is to be done. What is
//! in a namespace that could not be read is looked at as soon as it can be (rule call-33).
//!
//! Knows: mirrors, queues. Must not know: what becomes of a key.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use streams_kubernetes::Key;
use streams_kubernetes::queue::Queue;
use streams_kubernetes::watch::{Mirrored, Watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Time between two portions.
const TICK: Duration = Duration::from_secs(1);
/// Most objects in a portion, for each kind. With more than this many times the seconds of the interval, a round takes
/// longer than the interval.
const PORTION: usize = 100;

/// Adds every object of the mirror to the queue once in about `interval`, until `stop`; and those of a namespace that
/// may be read again.
pub(crate) async fn run<K: Mirrored>(mirror: Watch<K>, queue: Queue<Key>, interval: Duration, stop: CancellationToken) {
    let (objects, woken) = (mirror.clone(), queue.clone());
    mirror.refusals().subscribe(move |namespace| {
        let of_namespace = objects.keys().into_iter().filter(|key| *key.namespace == *namespace);
        of_namespace.for_each(|key| woken.add(key));
    });
    let rounds = async {
        loop {
            round(&mirror, &queue, interval).await;
        }
    };
    tokio::select! {
        () = rounds => {}
        () = stop.cancelled() => {}
    }
}

/// One round: all objects that there are when it begins, in random order, evenly over the interval.
async fn round<K: Mirrored>(mirror: &Watch<K>, queue: &Queue<Key>, interval: Duration) {
    let random = RandomState::new();
    let keys = shuffled(mirror, &random);
    let portions = portions(keys.len(), jittered(interval, random.hash_one(())));
    let mut keys = keys.into_iter();
    for portion in portions {
        sleep(TICK).await;
        for key in keys.by_ref().take(portion) {
            queue.add(key);
        }
    }
}

fn shuffled<K: Mirrored>(mirror: &Watch<K>, random: &RandomState) -> Vec<Key> {
    let mut keys = mirror.keys();
    keys.sort_by_cached_key(|key| random.hash_one(key));
    keys
}

/// The interval, up to a tenth shorter or longer.
fn jittered(interval: Duration, random: u64) -> Duration {
    let part = u32::try_from(random % 201).unwrap_or(100);
    (interval / 1000).saturating_mul(900 + part)
}

/// How many keys are added at each tick of a round that takes this long, or longer if there are many.
fn portions(keys: usize, round: Duration) -> Vec<usize> {
    let ticks = usize::try_from(round.as_secs()).unwrap_or(usize::MAX).max(keys.div_ceil(PORTION)).max(1);
    // After so many ticks, so many keys were added.
    let until = |tick: usize| usize::try_from((keys as u128) * (tick as u128) / (ticks as u128)).unwrap_or(keys);
    (0..ticks).map(|tick| until(tick + 1) - until(tick)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::indexes;
    use k8s_openapi::api::core::v1::Service;
    use kube::core::ObjectMeta;
    use std::collections::BTreeMap;
    use streams_kubernetes::metrics::Metrics;
    use streams_kubernetes::queue::{BackOff, Sharing};

    #[test]
    fn a_round_takes_the_interval_and_no_portion_is_too_large() {
        // keys, seconds -> ticks, largest portion
        let table =
            [(0, 60, 60, 0), (6, 60, 60, 1), (600, 60, 60, 10), (6_001, 60, 61, 99), (100_000, 600, 1_000, 100)];
        for (keys, seconds, ticks, largest) in table {
            let portions = portions(keys, Duration::from_secs(seconds));
            assert_eq!(portions.iter().sum::<usize>(), keys);
            assert_eq!((portions.len(), portions.iter().max()), (ticks, Some(&largest)), "{keys} {seconds}");
        }
    }

    #[test]
    fn the_interval_varies_by_a_tenth() {
        let interval = Duration::from_secs(600);
        for (random, seconds) in [(0, 540), (100, 600), (200, 660), (201, 540)] {
            assert_eq!(jittered(interval, random), Duration::from_secs(seconds));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_object_is_looked_at_once_a_round_until_the_end() {
        let service = |number: usize| Service {
            metadata: ObjectMeta {
                namespace: Some("n".to_owned()),
                name: Some(format!("s-{number}")),
                ..ObjectMeta::default()
            },
            ..Service::default()
        };
        let mirror = Watch::filled(indexes(), (0..50).map(service));
        let queue: Queue<Key> = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
        let stop = CancellationToken::new();
        let running = tokio::spawn(run(mirror, queue.clone(), Duration::from_secs(100), stop.clone()));
        let mut seen = BTreeMap::new();
        let looked = tokio::time::timeout(Duration::from_secs(335), async {
            while let Some(taken) = queue.next().await {
                *seen.entry(taken.key().clone()).or_insert(0) += 1;
            }
        });
        assert!(looked.await.is_err());
        assert_eq!(seen.len(), 50);
        assert!(seen.values().all(|times| (2..=4).contains(times)), "{seen:?}");
        stop.cancel();
        running.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_in_a_namespace_that_may_be_read_again_is_looked_at() {
        let service = |namespace: &str| Service {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some("s".to_owned()),
                ..ObjectMeta::default()
            },
            ..Service::default()
        };
        let mirror = Watch::filled(indexes(), [service("m"), service("n")]);
        let queue: Queue<Key> = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
        let stop = CancellationToken::new();
        let running = tokio::spawn(run(mirror.clone(), queue.clone(), Duration::from_secs(1_000), stop.clone()));
        sleep(Duration::from_millis(100)).await;
        mirror.refuse("n");
        mirror.permit("n");
        assert_eq!(queue.depth(), 1);
        assert_eq!(queue.next().await.map(|taken| taken.key().to_string()), Some("n/s".to_owned()));
        stop.cancel();
        running.await.unwrap();
    }
}
