//! Who follows regions.

use super::{deadline, is_silent, key, names, next, server, service};
use crate::controllers::tests::LateMirrors;
use std::collections::BTreeMap;
use std::pin::pin;
use streams_api::ParallelRegion;
use streams_proto::elasticity::v1::WatchRegionsResponse;
use tonic::{Code, Status};

#[tokio::test(start_paused = true)]
async fn regions_are_told_all_at_first_and_then_what_changes() {
    for job in [Some("flow".to_owned()), None] {
        let server = server(3);
        let mut mirrors = LateMirrors::of(&server);
        let service = service(&mirrors);
        let mut stream = pin!(service.follow_regions("n".to_owned(), job, None, deadline()).unwrap());
        let told = next(&mut stream).await.unwrap().unwrap();
        assert_eq!(names(&told), (vec![("R0", 2), ("R1", 2), ("R2", 2)], vec![], true));
        is_silent(&mut stream).await;
        let wants = |index: u64, width| {
            server.edit::<ParallelRegion>(&key(&format!("flow-{index}")), |region| region.spec.width = width);
        };
        // Three edits of one region, and one that changes nothing of what is shown.
        for width in [3, 4, 5] {
            wants(1, width);
        }
        server.edit::<ParallelRegion>(&key("flow-2"), |region| {
            region.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
        });
        mirrors.deliver_all();
        assert_eq!(names(&next(&mut stream).await.unwrap().unwrap()), (vec![("R1", 5)], vec![], true));
        is_silent(&mut stream).await;
        server.remove::<ParallelRegion>(&key("flow-0"));
        wants(2, 7);
        mirrors.deliver_all();
        assert_eq!(names(&next(&mut stream).await.unwrap().unwrap()), (vec![("R2", 7)], vec![], false));
        assert_eq!(names(&next(&mut stream).await.unwrap().unwrap()), (vec![], vec!["R0"], true));
        is_silent(&mut stream).await;
    }
}

#[tokio::test(start_paused = true)]
async fn many_regions_are_told_in_parts_and_none_at_all_as_well() {
    for (regions, parts) in [(600, vec![256, 256, 88]), (0, vec![0])] {
        let server = server(regions);
        let mirrors = LateMirrors::of(&server);
        let service = service(&mirrors);
        let mut stream = pin!(service.follow_regions("n".to_owned(), None, None, deadline()).unwrap());
        for (position, part) in parts.iter().enumerate() {
            let told = next(&mut stream).await.unwrap().unwrap();
            assert_eq!((told.regions.len(), told.complete), (*part, position + 1 == parts.len()), "{regions}");
        }
        is_silent(&mut stream).await;
    }
}

/// Who reads slowly is no reason to keep more than what there is now.
#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_a_message_is_told_as_it_is_when_there_is_room_for_it() {
    let server = server(600);
    let mut mirrors = LateMirrors::of(&server);
    let service = service(&mirrors);
    let follow = || service.follow_regions("n".to_owned(), None, None, deadline()).unwrap();
    let mut slow = pin!(follow());
    let mut other = pin!(follow());
    let mut seen = BTreeMap::new();
    let mut heard = |told: Option<Result<WatchRegionsResponse, Status>>| {
        let told = told.unwrap().unwrap();
        seen.extend(told.regions.iter().map(|region| (region.name.clone(), region.desired_width)));
        told.deleted.iter().for_each(|gone| assert!(seen.remove(&gone.name).is_some()));
        let first = told.regions.first().map(|region| region.name.clone()).unwrap_or_default();
        let others = seen.iter().filter(|(_, width)| **width != 2).map(|(name, width)| (name.clone(), *width));
        ((first, told.regions.len(), told.deleted.len(), told.complete), seen.len(), others.collect::<Vec<_>>())
    };
    // By name: R0, R1, R10, R100, R101 and so on; R599 is near the end.
    let message = |first: &str, regions, deleted, complete| (first.to_owned(), regions, deleted, complete);
    assert_eq!(heard(next(&mut slow).await), (message("R0", 256, 0, false), 256, vec![]));
    // Of those that were told one changes and one goes, and of those that were not.
    for (index, width) in [(0, 7), (599, 8)] {
        server.edit::<ParallelRegion>(&key(&format!("flow-{index}")), |region| region.spec.width = width);
    }
    ["flow-1", "flow-598"].into_iter().for_each(|name| server.remove::<ParallelRegion>(&key(name)));
    mirrors.deliver_all();
    // Somebody else looks.
    while !next(&mut other).await.unwrap().unwrap().complete {}
    // What was not told, as it is now; then what is gone; then what has changed since it was told.
    let (last, all) = ([("R599".to_owned(), 8)], [("R0".to_owned(), 7), ("R599".to_owned(), 8)]);
    assert_eq!(heard(next(&mut slow).await), (message("R329", 256, 0, false), 512, vec![]));
    assert_eq!(heard(next(&mut slow).await), (message("R56", 87, 0, false), 599, last.to_vec()));
    assert_eq!(heard(next(&mut slow).await), (message("", 0, 1, false), 598, last.to_vec()));
    assert_eq!(heard(next(&mut slow).await), (message("R0", 1, 0, true), 598, all.to_vec()));
    is_silent(&mut slow).await;
    is_silent(&mut other).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_makes_room() {
    let server = server(1);
    let mirrors = LateMirrors::of(&server);
    let service = service(&mirrors);
    let follow = || service.follow_regions("n".to_owned(), Some("flow".to_owned()), None, deadline());
    let mut streams: Vec<_> = std::iter::from_fn(|| follow().ok()).collect();
    assert_eq!(follow().err().unwrap().code(), Code::ResourceExhausted);
    streams.pop();
    assert!(follow().is_ok());
}
