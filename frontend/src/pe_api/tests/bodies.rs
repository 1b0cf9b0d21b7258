//! Documents that are not read: too many entries, another element.

use super::objects::{by_properties, importing, subscribed};
use super::{Cluster, SUBSCRIPTIONS, get, names, properties, send};
use axum::http::Method;

/// One has no more, and to compare more with those that are there would hold up everybody.
#[tokio::test]
async fn a_list_of_properties_or_names_has_as_many_entries_as_an_export_may_have() {
    let path = format!("{SUBSCRIPTIONS}/export/10/properties");
    for (count, is_too_long) in [(1_024, false), (1_025, true)] {
        let numbers: Vec<String> = (0..count).map(|number| format!("p{number}")).collect();
        let all: Vec<&str> = numbers.iter().map(String::as_str).collect();
        let listed: Vec<(&str, &str)> = all.iter().map(|name| (*name, "x")).collect();
        let (names, properties) = (names(&all), properties(&listed));
        // method, body -> the answer if it is not too long: an export of that many more would have too many
        let table = [
            (Method::POST, &names, 200, ""),
            (Method::PATCH, &properties, 400, "there is no property p0"),
            (Method::DELETE, &names, 400, "there is no property p0"),
        ];
        for (method, body, status, words) in table {
            let mut cluster = Cluster::with(by_properties);
            let (status, words) = if is_too_long { (400, ", more than 1024") } else { (status, words) };
            cluster.expect(send(method, &path, body), status, words).await;
        }
        let mut cluster = Cluster::with(by_properties);
        let (status, words) = cluster.answer(send(Method::PUT, &path, &properties)).await;
        assert_eq!(status.as_u16() == 400 && words.ends_with(", more than 1024"), is_too_long, "{count}: {words}");
    }
}

/// They would be taken for documents that say nothing.
#[tokio::test]
async fn documents_with_another_element_change_nothing() {
    let mut cluster = Cluster::with(|server| {
        by_properties(server);
        importing(server, "srcjob-1-10", "srcjob", 1, 10, &subscribed("some == 1"));
    });
    let properties = format!("{SUBSCRIPTIONS}/export/10/properties");
    let property = format!("{SUBSCRIPTIONS}/export/10/property/prop0");
    let streams = format!("{SUBSCRIPTIONS}/import/10/streams");
    let table = [
        (Method::PUT, &streams, "<streamProperties/>"),
        (Method::PUT, &streams, "<a/>"),
        (Method::PUT, &streams, "<importedStreams/>junk"),
        (Method::PUT, &properties, "<importedStreams/>"),
        (Method::PATCH, &properties, "<streamPropertyNames/>"),
        (Method::DELETE, &properties, "<streamProperties scope=\"all\"/>"),
        (Method::POST, &properties, "<streamProperties/>"),
        (Method::PATCH, &property, "<property name=\"prop0\" type=\"int64\"><value>1</value></property>"),
    ];
    for (method, path, body) in table {
        cluster.expect(send(method, path, body), 400, "the body cannot be read").await;
    }
    assert_eq!(cluster.connection.writes(), 0);
    cluster.expect(get(&streams), 200, "subscription=\"some == 1\"").await;
}
