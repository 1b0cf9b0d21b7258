//! PEs that do not come here, though they run: somebody has changed the slices that lead them (rule
//! consistent-region-14).

use super::{Fixture, PERIOD, RESET, both, key, service, start};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;
use std::time::Duration;
use streams_api::names;
use streams_kubernetes::Key;

impl Fixture {
    /// PEs are led here by slices, of which somebody deletes one.
    async fn loses_its_slice(&self) {
        service(&self.server, "10.96.0.7");
        self.late.lock().await.deliver_all();
        self.leads().await;
        let name = format!("{}-ipv4", names::consistent_region_service("flow"));
        assert!(self.server.get::<EndpointSlice>(&Key::new("n", &name)).is_some());
        self.server.remove::<EndpointSlice>(&Key::new("n", &name));
    }

    /// Whether the slices are compared now, and written because of it.
    async fn has_written_slices(&self) -> bool {
        let before = self.connection.writes();
        self.leads().await;
        self.connection.writes() > before
    }

    /// So much time passes for PEs.
    async fn hears_nothing_for(&self, seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        self.settle().await;
    }
}

#[tokio::test]
async fn what_is_not_reported_in_time_makes_the_slices_be_compared() {
    let fixture = Fixture::processing().await;
    fixture.loses_its_slice().await;
    fixture.server.advance(PERIOD);
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.has_written_slices().await), ("DRAINING", false));
    // Its time is up; and so is that of the reset, which PEs have heard as well.
    for expected in [true, false] {
        fixture.server.advance(Duration::from_secs(60));
        fixture.settle().await;
        assert_eq!((fixture.state().as_str(), fixture.has_written_slices().await), ("RESETTING", expected));
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_may_have_drained_a_region_whose_pes_did_not_come_for_long() {
    let fixture = Fixture::new(json!({"trigger": "operatorDriven", "triggerOperators": ["o"]}));
    for number in 0..2 {
        start(&fixture.server, number, 1);
    }
    fixture.settle().await;
    fixture.loses_its_slice().await;
    (0..2).for_each(|number| fixture.comes(number));
    fixture.hears_nothing_for(75).await;
    // One of them is enough to know that they are led here.
    fixture.comes(1);
    fixture.hears_nothing_for(75).await;
    assert_eq!((fixture.has_written_slices().await, fixture.regions.last_words().as_deref()), (false, Some("")));
    fixture.hears_nothing_for(10).await;
    assert!(fixture.has_written_slices().await);
    assert_eq!(fixture.regions.last_words().as_deref(), Some("n/flow-cr0"), "the next leader has to know");
    for number in 0..2 {
        fixture.hears_nothing_for(1).await;
        assert_eq!((fixture.state().as_str(), fixture.sent()), ("PROCESSING", vec![]), "{number}");
        fixture.comes(number);
    }
    fixture.settle().await;
    assert_eq!((fixture.state().as_str(), fixture.sent()), ("RESETTING", both(1, RESET)));
    assert_eq!(fixture.regions.last_words().as_deref(), Some(""), "it is made up for");
    assert_eq!(fixture.regions.reports.loss(&key()), None);
}
