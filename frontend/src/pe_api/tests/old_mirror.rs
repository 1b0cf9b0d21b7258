//! What only an old mirror shows is no reason to do nothing, or to refuse.

use super::objects::{by_properties, importing, jobs, region, reservations, subscribed, with_endpoints};
use super::{Cluster, Exchange, NEIGHBOUR, property, registration, send};
use axum::http::Method;
use streams_api::ParallelRegion;
use streams_kubernetes::Key;

#[tokio::test]
async fn what_only_an_old_mirror_shows_is_no_reason_to_do_nothing_or_to_refuse() {
    let path = |pe: u64| format!("/api/endpoints/job/srcjob/pe/{pe}/endpoint/test");
    let (of_0, of_1) = (path(0), path(1));
    let one = "/api/subscriptions/job/srcjob/pe/1/export/10/property/prop0";
    let filter = "/api/subscriptions/job/srcjob/pe/1/import/10/filter";
    let (a, b) = (property("prop0", "rstring", "\"a\""), property("prop0", "rstring", "\"b\""));
    let neighbour = |exchange| Exchange { from: NEIGHBOUR, ..exchange };
    let http = "{\"port\": 80}";
    // before; what another replica does then, of which the mirror of this one knows nothing; what the PE asks this one
    let table: [(&[Exchange<'_>], Exchange<'_>, Exchange<'_>); 8] = [
        (&[send(Method::PATCH, one, &a)], send(Method::PATCH, one, &b), send(Method::PATCH, one, &a)),
        (&[], send(Method::DELETE, one, ""), send(Method::PUT, one, &a)),
        (&[send(Method::DELETE, one, "")], send(Method::PUT, one, &a), send(Method::DELETE, one, "")),
        (&[send(Method::PUT, filter, "c == 1")], send(Method::PUT, filter, ""), send(Method::PUT, filter, "c == 1")),
        (&[registration(1)], send(Method::DELETE, &of_1, ""), registration(1)),
        (&[registration(1)], send(Method::DELETE, &of_1, ""), neighbour(send(Method::PUT, &of_0, http))),
        (&[], registration(1), send(Method::DELETE, &of_1, "")),
        (
            &[registration(1)],
            send(Method::DELETE, &of_1, ""),
            send(Method::PUT, "/api/endpoints/job/srcjob/pe/1/endpoint/more", http),
        ),
    ];
    for (number, (before, elsewhere, here)) in table.into_iter().enumerate() {
        let mut cluster = Cluster::with(|server| {
            by_properties(server);
            importing(server, "srcjob-1-10", "srcjob", 1, 10, &subscribed("a == 1"));
        });
        let mut other = cluster.another();
        for exchange in before {
            let Exchange { from, path, body, .. } = *exchange;
            other.expect(Exchange { from, method: exchange.method.clone(), path, body }, 204, "").await;
        }
        cluster.mirrors.deliver_all();
        other.expect(elsewhere, 204, "").await;
        let before = cluster.server.version();
        cluster.expect(here, 204, "").await;
        assert!(cluster.server.version() > before, "row {number} is not written");
        assert!(reservations(&cluster.server).len() == with_endpoints(&cluster.server).len(), "row {number}");
    }
}

#[tokio::test]
async fn a_width_that_is_so_already_is_not_written_and_one_that_only_an_old_mirror_shows_is() {
    let mut cluster = Cluster::with(|server| {
        jobs(server);
        region(server);
    });
    let (path, key) = ("/api/state/job/srcjob/pr/R/width", Key::new("n", "srcjob-0"));
    cluster.expect(send(Method::PUT, path, "2"), 204, "").await;
    assert_eq!(cluster.connection.writes(), 0);
    cluster.server.edit::<ParallelRegion>(&key, |region| region.spec.width = 3);
    cluster.expect(send(Method::PUT, path, "2"), 204, "").await;
    assert_eq!(cluster.server.get::<ParallelRegion>(&key).unwrap().spec.width, 2);
}
