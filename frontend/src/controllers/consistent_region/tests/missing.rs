//! PEs that were missing, or not connected, for a moment at which nobody looked, or no step was taken (rule
//! consistent-region-2). What was lost then is in no checkpoint that follows.

use super::{DRAIN, Fixture, PERIOD, RESET, both, key, pe, says, start};
use crate::start_hash::Starts as _;
use k8s_openapi::api::core::v1::Pod;
use kube::core::ObjectMeta;
use serde_json::json;
use std::time::Duration;
use streams_api::{ConsistentRegion, ProcessingElement, names};
use streams_consistent_region::Progress;
use streams_kubernetes::Key;
use streams_kubernetes::queue::Outcome;

impl Fixture {
    /// PE 1 loses a connection, and has it again, before the region is looked at.
    async fn loses_a_connection_for_a_moment(&self) {
        for state in ["Partial", "Full"] {
            says(&self.server, 1, state);
            self.late.lock().await.deliver_all();
        }
    }

    /// PE 1 and its pod go.
    fn loses_a_pe(&self) -> ProcessingElement {
        let lost = self.server.get(&pe(1)).unwrap();
        self.server.remove::<Pod>(&Key::new("n", "flow-1-1"));
        self.server.remove::<ProcessingElement>(&pe(1));
        lost
    }

    /// The PE is made again, with a pod of the same launch.
    fn has_it_again(&self, lost: ProcessingElement) {
        let ObjectMeta { name, namespace, labels, owner_references, .. } = lost.metadata;
        let metadata = ObjectMeta { name, namespace, labels, owner_references, ..ObjectMeta::default() };
        self.server.create(&ProcessingElement { metadata, spec: lost.spec, status: None });
        start(&self.server, 1, 1);
    }
}

#[tokio::test]
async fn who_takes_over_resets_a_region_whose_connections_broke_before_it_took_a_step() {
    let fixture = Fixture::processing().await.taken_over_without_pes();
    for state in ["Partial", "Full"] {
        says(&fixture.server, 1, state);
        assert_eq!(fixture.settle().await, Outcome::Again(Duration::from_secs(1)), "{state}");
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("PROCESSING", vec![]), "{state}");
    }
    (0..2).for_each(|number| fixture.comes(number));
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", both(1, RESET)));
}

#[tokio::test]
async fn who_takes_over_resets_a_region_of_which_a_pe_was_made_again_before_it_took_a_step() {
    let fixture = Fixture::processing().await.taken_over_without_pes();
    let lost = fixture.loses_a_pe();
    fixture.settle().await;
    fixture.has_it_again(lost);
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("PROCESSING", vec![]));
    (0..2).for_each(|number| fixture.comes(number));
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", both(1, RESET)), "it has no state");
}

#[tokio::test]
async fn what_happened_while_nobody_led_is_known_by_its_number() {
    // how often PE 1 has lost connections when somebody takes over -> the state
    for (interruptions, expected) in [(0, "PROCESSING"), (1, "RESETTING")] {
        let fixture = Fixture::processing().await;
        fixture.server.edit::<ProcessingElement>(&pe(1), |pe| {
            pe.status.as_mut().unwrap().connectivity.as_mut().unwrap().interruptions = interruptions;
        });
        let fixture = fixture.taken_over();
        fixture.settle().await;
        assert_eq!(fixture.state(), expected, "{interruptions}");
        // Who leads next finds it as it is.
        let record = fixture.region().status.unwrap().record.unwrap().to_string();
        assert_eq!(record.contains(r#"{"1":[0],"1.1":[1]}"#), interruptions > 0, "{record}");
    }
}

#[tokio::test]
async fn a_connection_that_broke_between_two_looks_is_a_reason_for_one_reset() {
    let fixture = Fixture::processing().await;
    fixture.loses_a_connection_for_a_moment().await;
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", both(1, RESET)));
    fixture.server.advance(Duration::from_secs(2));
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", vec![]), "it has seen that");
}

#[tokio::test]
async fn what_is_reported_after_a_connection_broke_completes_no_checkpoint() {
    let fixture = Fixture::processing().await;
    fixture.server.advance(PERIOD);
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("DRAINING", both(1, DRAIN)));
    fixture.loses_a_connection_for_a_moment().await;
    fixture.report([1, 1], Progress::CheckpointDone { sequence: 1 }).await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", both(1, RESET)));
    assert_eq!(fixture.region().status.unwrap().last_completed_checkpoint, Some(0));
}

/// Its spec is changed by somebody else, or its record cannot be read, for longer than that.
#[tokio::test]
async fn a_region_that_takes_no_step_misses_no_connection_that_broke() {
    let changes: [fn(&mut ConsistentRegion); 3] = [
        |region| region.spec.pe_ids.clear(),
        |region| region.spec.period_milliseconds = Some(0),
        |region| region.status.as_mut().unwrap().record = Some(json!({"sequence": "many"})),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for breaks in [false, true] {
            let fixture = Fixture::processing().await;
            fixture.server.edit::<ConsistentRegion>(&key(), |region| {
                let hash = (names::ANNOTATION_START_HASH.to_owned(), region.spec.start_hash());
                region.metadata.annotations.get_or_insert_default().extend([hash]);
            });
            fixture.settle().await;
            let ConsistentRegion { spec, status, .. } = fixture.region();
            fixture.server.edit::<ConsistentRegion>(&key(), change);
            fixture.settle().await;
            if breaks {
                fixture.loses_a_connection_for_a_moment().await;
            }
            fixture.settle().await;
            assert_eq!((fixture.state().as_str(), fixture.said().0.as_str()), ("PROCESSING", "False"), "{number}");
            fixture.server.edit::<ConsistentRegion>(&key(), |region| {
                region.spec = spec.clone();
                region.status.as_mut().unwrap().record = status.clone().unwrap().record;
            });
            fixture.settle().await;
            let expected = if breaks { ("RESETTING", both(1, RESET)) } else { ("PROCESSING", vec![]) };
            assert_eq!((fixture.state().as_str(), fixture.sent()), expected, "{number} {breaks}");
        }
    }
}
