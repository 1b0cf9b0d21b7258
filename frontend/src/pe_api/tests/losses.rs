//! What PEs of consistent regions tell of connections that they lost (rules pe-api-4 and consistent-region-2).

use super::reports::{OTHERS, Told, many};
use crate::consistent_regions::members::Members;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use streams_api::{Connectivity, ProcessingElement, ReportedConnectivity};
use streams_kubernetes::Key;
use tokio::time::sleep;

/// Many PEs, of which the last one is in a region or not.
fn with_last(is_in_region: bool) -> Told {
    Told::of(|server| {
        many(server);
        let regions = if is_in_region { vec![0] } else { Vec::new() };
        server.edit::<ProcessingElement>(&last(), |pe| pe.spec.consistent_regions = regions.clone());
    })
}

fn last() -> Key {
    Key::new("n", "srcjob-13")
}

/// What is stored of the last one.
fn stored(told: &Told) -> ReportedConnectivity {
    let pe = told.cluster.server.get::<ProcessingElement>(&last()).unwrap();
    pe.status.unwrap_or_default().connectivity.unwrap()
}

/// How often it has lost connections.
fn interruptions(told: &Told) -> u32 {
    stored(told).interruptions
}

/// Its consistent region would not hear of what was lost with the connections.
#[tokio::test(start_paused = true)]
async fn a_pe_of_a_region_that_has_connections_again_before_its_turn_has_lost_them_nevertheless() {
    // whether it is in a region, whether others are being written before, what it tells -> how often it has lost some
    let table: [(bool, bool, &[&str], u32); 9] = [
        (false, true, &["Partial", "Full"], 0),
        (true, true, &["Full"], 0),
        (true, true, &["Partial", "Full"], 1),
        (true, true, &["Partial", "Full", "Full"], 1),
        (true, true, &["Partial", "None", "Full"], 1),
        (true, true, &["Partial"], 1),
        (true, false, &["Full", "Full"], 0),
        (true, false, &["Partial", "Full"], 1),
        (true, false, &["Partial", "Full", "Full"], 1),
    ];
    for (is_in_region, is_late, words, expected) in table {
        let said = format!("{is_in_region} {is_late} {words:?}");
        let mut told = with_last(is_in_region);
        // One that has connections for the first time has lost none.
        for state in ["None", "Partial", "Full"] {
            assert_eq!(told.answers(vec![told.tells(0, 13, state)]).await, [204], "{said}");
        }
        assert_eq!(interruptions(&told), 0, "{said}");
        told.slow.store(100, Ordering::SeqCst);
        let others = OTHERS.take(if is_late { 11 } else { 0 }).map(|pe| told.tells(0, pe, "Full"));
        let words = words.iter().zip(1..).map(|(state, after)| told.tells(after, 13, state));
        let all: Vec<_> = others.chain(words).collect();
        let count = all.len();
        assert_eq!(told.answers(all).await, vec![204; count], "{said}");
        assert_eq!(interruptions(&told), expected, "{said}");
    }
}

/// It tells another replica only what is so now.
#[tokio::test(start_paused = true)]
async fn what_a_pe_of_a_region_has_lost_is_written_though_pes_are_led_away() {
    // whether it is in a region, what it tells -> how often it has lost connections
    let table: [(bool, &[&str], u32); 4] = [
        (false, &["Partial", "Full"], 0),
        (true, &["Full"], 0),
        (true, &["Partial"], 1),
        (true, &["Partial", "Full"], 1),
    ];
    for (is_in_region, words, expected) in table {
        let said = format!("{is_in_region} {words:?}");
        let mut told = with_last(is_in_region);
        assert_eq!(told.answers(vec![told.tells(0, 13, "Full")]).await, [204], "{said}");
        // Longer than anybody waits, so nobody does when it is its turn.
        told.slow.store(1_000, Ordering::SeqCst);
        let others = OTHERS.take(11).map(|pe| told.tells(0, pe, "Full"));
        let words = words.iter().zip(1..).map(|(state, after)| told.tells(after, 13, state));
        let all: Vec<_> = others.chain(words).collect();
        let count = all.len();
        assert_eq!(told.answers(all).await, vec![503; count], "{said}");
        told.cluster.are_led_away.store(true, Ordering::SeqCst);
        told.passes(10).await;
        // Its last word it may have told another replica.
        assert_eq!(stored(&told).state, Connectivity::Full, "{said}");
        assert_eq!(told.cluster.reports.waiting(), 0, "{said}");
        told.cluster.are_led_away.store(false, Ordering::SeqCst);
        told.slow.store(0, Ordering::SeqCst);
        assert_eq!(told.answers(vec![told.tells(0, 13, "Full")]).await, [204], "{said}");
        assert_eq!(interruptions(&told), expected, "{said}");
    }
}

/// The last one is in a region, and has told so much that its next word waits for some seconds.
async fn in_a_pause() -> Told {
    let mut told = with_last(true);
    for state in ["Full", "Partial"].into_iter().cycle().take(41) {
        // Some are answered too late.
        told.answers(vec![told.tells(0, 13, state)]).await;
    }
    for _ in 0..20 {
        if told.cluster.reports.waiting() > 0 {
            told.passes(1).await;
        }
    }
    assert_eq!(stored(&told).state, Connectivity::Full);
    told
}

/// The region would drain and complete a checkpoint in the pause.
#[tokio::test(start_paused = true)]
async fn a_pe_of_a_region_that_has_told_too_much_has_lost_connections_at_once() {
    // whether it has them again before its turn
    for is_late in [false, true] {
        let mut told = in_a_pause().await;
        let before = interruptions(&told);
        // Those of a namespace that are written at a time are others.
        told.slow.store(100, Ordering::SeqCst);
        let others = OTHERS.take(if is_late { 4 } else { 0 }).map(|pe| told.tells(0, pe, "Full"));
        let all = others.chain([told.tells(1, 13, "Partial"), told.tells(2, 13, "Full")]).collect();
        told.answers(all).await;
        assert_eq!(interruptions(&told), before + 1, "{is_late}");
        told.passes(10).await;
        let expected = ReportedConnectivity { state: Connectivity::Full, launch_count: 2, interruptions: before + 1 };
        assert_eq!(stored(&told), expected, "{is_late}");
        assert_eq!(told.cluster.reports.waiting(), 0, "{is_late}");
    }
}

/// The API server refuses all writes, as long as this is so.
fn refusing(told: &Told) -> Arc<AtomicBool> {
    let refuses = Arc::new(AtomicBool::new(true));
    told.cluster.server.refuse({
        let refuses = Arc::clone(&refuses);
        move |call| {
            let refuses = call.verb.is_write() && refuses.load(Ordering::SeqCst);
            refuses.then(|| kube::core::Status::failure("etcd does not answer", "InternalError").with_code(500))
        }
    });
    refuses
}

/// It goes on with that for two seconds only, and the pause is longer.
#[tokio::test(start_paused = true)]
async fn a_replica_that_ends_writes_what_a_pe_has_lost_in_a_pause() {
    let mut told = in_a_pause().await;
    let before = interruptions(&told);
    let refuses = refusing(&told);
    told.cluster.are_led_away.store(true, Ordering::SeqCst);
    let both = vec![told.tells(0, 13, "Partial"), told.tells(10, 13, "Full")];
    assert_eq!(told.answers(both).await, [503, 503]);
    refuses.store(false, Ordering::SeqCst);
    // It is tried again within two seconds, and the mirror shows it a moment later.
    for _ in 0..10 {
        sleep(Duration::from_millis(250)).await;
        told.cluster.mirrors.deliver_all();
    }
    assert_eq!((stored(&told).state, interruptions(&told)), (Connectivity::Full, before + 1));
    assert!(told.cluster.regions.losses.regions().is_empty());
}

/// The replica does not end before they are stored, and the next leader hears of those that are not.
#[tokio::test(start_paused = true)]
async fn regions_whose_losses_are_not_stored_are_known_until_they_are() {
    for (is_in_region, expected) in [(false, vec![]), (true, vec![Key::new("n", "srcjob-cr0")])] {
        let mut told = with_last(is_in_region);
        assert_eq!(told.answers(vec![told.tells(0, 13, "Full")]).await, [204]);
        let losses = told.cluster.regions.losses.clone();
        assert!(losses.regions().is_empty(), "{is_in_region}");
        let refuses = refusing(&told);
        let both = vec![told.tells(0, 13, "Partial"), told.tells(10, 13, "Full")];
        // Where no loss is counted, it is stored already.
        assert_eq!(told.answers(both).await, [503, if is_in_region { 503 } else { 204 }]);
        assert_eq!(Vec::from_iter(losses.regions()), expected);
        let of_nobody = told.cluster.reports.regions_with_losses(Members::default());
        assert!(of_nobody().is_empty(), "the PEs that the mirror shows are not read");
        let stored = tokio::spawn({
            let losses = losses.clone();
            async move { losses.stored().await }
        });
        told.passes(1).await;
        assert_eq!(stored.is_finished(), !is_in_region);
        refuses.store(false, Ordering::SeqCst);
        told.passes(3).await;
        assert!(stored.is_finished() && losses.regions().is_empty(), "{is_in_region}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_pe_of_a_region_has_lost_is_written_as_soon_as_the_api_server_is_back() {
    let mut told = with_last(true);
    assert_eq!(told.answers(vec![told.tells(0, 13, "Full")]).await, [204]);
    let refuses = refusing(&told);
    let both = vec![told.tells(0, 13, "Partial"), told.tells(10, 13, "Full")];
    assert_eq!(told.answers(both).await, [503, 503]);
    told.passes(35).await;
    assert_eq!(interruptions(&told), 0);
    refuses.store(false, Ordering::SeqCst);
    told.passes(3).await;
    assert_eq!((stored(&told).state, interruptions(&told)), (Connectivity::Full, 1));
    assert_eq!(told.cluster.reports.waiting(), 0);
}
