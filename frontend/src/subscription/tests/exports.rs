//! Properties of exports.

use super::{
    Cluster, EXPORT, create_export, create_job, edit, key, metadata, number, of_export, property, set, shown, why,
};
use crate::subscription::MANAGER;
use serde_json::json;
use streams_api::{Export, ExportAtRunTime, StreamProperty};
use streams_kubernetes_fake::Server;
use streams_proto::subscription::v1::update_export_request::Change as OfExport;
use streams_proto::subscription::v1::{Property, Reset, Standing};
use tonic::Code;

#[tokio::test(start_paused = true)]
async fn properties_are_set_edited_and_reset() {
    // what was set before, change -> properties afterwards, whether that is written
    let extra = || number("n", "1");
    let kind = || property("kind", "rstring", "\"a\"");
    let table: [(Option<OfExport>, Option<OfExport>, &[&str], bool); 9] = [
        (None, set(&[extra()]), &["n=1"], true),
        (None, set(&[]), &[], true),
        (None, set(&[kind()]), &["kind=\"a\""], false),
        (None, edit(&[], &[], &[extra()]), &["kind=\"a\"", "n=1"], true),
        (None, edit(&["kind"], &[], &[extra()]), &["n=1"], true),
        (set(&[extra(), kind()]), edit(&["kind"], &[number("n", "2")], &[number("m", "3")]), &["n=2", "m=3"], true),
        (set(&[extra()]), edit(&[], &[extra()], &[]), &["n=1"], false),
        (set(&[extra()]), Some(OfExport::Reset(Reset {})), &["kind=\"a\""], true),
        (None, Some(OfExport::Reset(Reset {})), &["kind=\"a\""], false),
    ];
    for (first, change, expected, is_written) in table {
        let mut cluster = Cluster::new();
        if first.is_some() {
            cluster.update_export(of_export(first.clone())).await.unwrap();
        }
        let (writes, before) = (cluster.connection.writes(), cluster.export().await);
        cluster.server.inspect(|call| assert!(!call.verb.is_write() || call.manager == MANAGER.0, "{call}"));
        let answer = cluster.update_export(of_export(change.clone())).await.unwrap();
        assert_eq!(shown(answer.properties.clone()), expected, "{first:?} {change:?}");
        assert_eq!(cluster.connection.writes() - writes, usize::from(is_written), "{first:?} {change:?}");
        assert_eq!(before.etag != answer.etag, is_written, "{first:?} {change:?}");
        assert_eq!(shown(answer.application_properties.clone()), ["kind=\"a\""]);
        let is_reset = matches!(change, Some(OfExport::Reset(_)));
        assert_eq!(cluster.stored().is_some(), !is_reset && (is_written || first.is_some()), "{change:?}");
        assert_eq!(answer.changed_at_run_time, cluster.stored().is_some(), "{change:?}");
        // The board of this replica knows it already.
        let is_matched = expected.contains(&"kind=\"a\"");
        assert_eq!((answer.importer_count, answer.importers.len()), (is_matched.into(), is_matched.into()));
        assert_eq!(answer.standing() == Standing::Connected, is_matched, "{answer:?}");
        assert_eq!(cluster.export().await, answer, "what is read after a change is what was answered");
    }
}

#[tokio::test(start_paused = true)]
async fn properties_that_cannot_be_are_refused_with_their_place_and_nothing_is_written() {
    use Code::{FailedPrecondition as Failed, InvalidArgument as Invalid};
    let many: Vec<Property> = (0..1_025).map(|position| number(&format!("p{position}"), "1")).collect();
    let (n, m) = (|| number("n", "1"), || number("m", "1"));
    // change -> code, reason, field
    let table = [
        (None, Invalid, "INVALID_REQUEST", "change"),
        (set(&[n(), number("", "1")]), Invalid, "INVALID_REQUEST", "set.properties[1].name"),
        (set(&[n(), number(&"x".repeat(1_025), "1")]), Invalid, "INVALID_REQUEST", "set.properties[1].name"),
        (set(&[property("n", &"x".repeat(65), "1")]), Invalid, "INVALID_REQUEST", "set.properties[0].type"),
        (set(&[number("n", &"1".repeat(65_537))]), Invalid, "INVALID_REQUEST", "set.properties[0].values[0]"),
        (set(&many), Invalid, "INVALID_REQUEST", "set.properties"),
        (set(&[n(), m(), n()]), Invalid, "INVALID_PROPERTY", "set.properties[2]"),
        (set(&[n(), number("m", "one")]), Invalid, "INVALID_PROPERTY", "set.properties[1]"),
        (set(&[property("n", "int", "1")]), Invalid, "INVALID_PROPERTY", "set.properties[0]"),
        (edit(&[], &[], &[]), Invalid, "INVALID_REQUEST", "edit"),
        (edit(&["kind"], &[], &[property("kind", "int64", "1")]), Invalid, "INVALID_REQUEST", "edit.add[0]"),
        (edit(&["kind", "kind"], &[], &[]), Invalid, "INVALID_REQUEST", "edit.remove[1]"),
        (edit(&[], &[property("kind", "int64", "x")], &[]), Invalid, "INVALID_PROPERTY", "edit.replace[0]"),
        (edit(&[], &[], &[n(), number("m", "x")]), Invalid, "INVALID_PROPERTY", "edit.add[1]"),
        (edit(&[], &[], &[n(), property("kind", "int64", "1")]), Failed, "PROPERTY_EXISTS", ""),
        (edit(&[], &[n()], &[]), Failed, "PROPERTY_NOT_FOUND", ""),
        (edit(&["kind", "n"], &[], &[]), Failed, "PROPERTY_NOT_FOUND", ""),
    ];
    let mut cluster = Cluster::new();
    for (change, code, reason, field) in table {
        let status = cluster.update_export(of_export(change.clone())).await.unwrap_err();
        assert_eq!(why(&status), (code, reason.to_owned(), field.to_owned()), "{status:?}");
    }
    // What somebody else has spoiled is nobody's field.
    cluster.server.edit::<Export>(&key(EXPORT), |export| {
        let malformed = StreamProperty { name: "x".into(), property_type: "int64".into(), values: vec![] };
        export.status.get_or_insert_default().run_time = Some(ExportAtRunTime { properties: vec![malformed] });
    });
    cluster.mirrors.deliver_all();
    let status = cluster.update_export(of_export(edit(&[], &[], &[n()]))).await.unwrap_err();
    assert_eq!(why(&status), (Invalid, "INVALID_PROPERTY".to_owned(), "edit".to_owned()));
    assert_eq!(metadata(&status, "property"), "x");
    let export = cluster.export().await;
    assert_eq!((export.standing(), export.problem.contains("property x")), (Standing::Malformed, true), "{export:?}");
    assert_eq!(cluster.connection.writes(), 0);
    cluster.update_export(of_export(edit(&["x"], &[], &[n()]))).await.unwrap();
    assert_eq!(cluster.stored(), Some(vec!["n=1".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_exported_by_its_name_has_no_properties() {
    let server = Server::new();
    create_job(&server, "out", 1);
    create_export(&server, "out", 1, 10, &json!({"type": "ByName", "stream": {"exportOperName": "Out", "name": "s"}}));
    let mut cluster = Cluster::of(server);
    let export = cluster.export().await;
    assert_eq!((export.properties, export.application_properties, export.stream.as_deref()), (None, None, Some("s")));
    for change in [set(&[]), edit(&["n"], &[], &[]), Some(OfExport::Reset(Reset {}))] {
        let status = cluster.update_export(of_export(change)).await.unwrap_err();
        assert_eq!(why(&status).1, "EXPORTED_BY_NAME", "{status:?}");
    }
}
