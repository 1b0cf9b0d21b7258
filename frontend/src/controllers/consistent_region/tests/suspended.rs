//! Regions of jobs that are suspended: nobody is called because of them (rule consistent-region-12).

use super::{Fixture, key};
use serde_json::json;
use std::time::Duration;
use streams_api::Job;
use streams_kubernetes::Key;
use streams_kubernetes::queue::{BackOff, Queue, Sharing};
use tokio::time::timeout;

/// There is no pod that goes, or comes back, and would have the region looked at.
#[tokio::test]
async fn a_job_without_pods_that_is_suspended_has_no_figures_until_it_is_resumed() {
    let fixture = Fixture::new(json!({}));
    let queue = Queue::new("test", BackOff::default(), Sharing::none(), &fixture.metrics);
    super::super::subscribe(&fixture.regions, &queue);
    let woken = async || timeout(Duration::from_millis(200), queue.next()).await.ok().flatten();
    let has_figures = || fixture.metrics.text().unwrap().contains(r#"consistent_region="flow-cr0"}"#);
    fixture.settle().await;
    assert!(has_figures());
    // whether it is suspended -> whether that is news, and whether it has figures then
    for (suspend, is_news, expected) in [(true, true, false), (true, false, false), (false, true, true)] {
        // Whatever has happened before.
        while woken().await.is_some() {}
        fixture.server.edit::<Job>(&Key::new("n", "flow"), |job| {
            job.spec.suspend = suspend;
            job.metadata.labels.get_or_insert_default().insert("edited".to_owned(), suspend.to_string());
        });
        fixture.late.lock().await.deliver_all();
        assert_eq!(woken().await.map(|next| next.key().clone()), is_news.then(key), "{suspend}");
        fixture.settle().await;
        assert_eq!(has_figures(), expected, "{suspend}");
    }
}
