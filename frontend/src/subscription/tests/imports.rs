//! Subscriptions, named streams and filters of imports.

use super::{Cluster, EXPORT, IMPORT, edit_streams, key, metadata, of_import, set_streams, subscribe, why};
use streams_api::{Export, Import};
use streams_proto::subscription::v1::update_import_request::Change as OfImport;
use streams_proto::subscription::v1::{Reset, Standing};
use tonic::Code;

#[tokio::test(start_paused = true)]
async fn subscriptions_and_filters_are_set_edited_and_reset() {
    let a = "kind == \"a\"";
    // changes -> subscription, filter, streams by name, whether somebody sends, whether it was changed at run time
    type Row<'a> = (Vec<Option<OfImport>>, Option<&'a str>, &'a str, &'a [&'a str], bool, bool);
    let back = || Some(OfImport::Reset(Reset {}));
    let table: [Row<'_>; 12] = [
        (vec![edit_streams(subscribe("n > 1"), None)], Some("n > 1"), "", &[], false, true),
        (vec![edit_streams(None, Some("x == 1"))], Some(a), "x == 1", &[], true, true),
        (vec![edit_streams(None, Some("x == 1")), edit_streams(None, Some(""))], Some(a), "", &[], true, true),
        (vec![edit_streams(None, Some("x == 1")), edit_streams(None, Some(" \t"))], Some(a), "", &[], true, true),
        (vec![edit_streams(None, Some("hash < -1.5"))], Some(a), "hash < -1.5", &[], true, true),
        (
            vec![edit_streams(subscribe("n"), Some("x")), edit_streams(subscribe(a), None)],
            Some(a),
            "x",
            &[],
            true,
            true,
        ),
        (vec![set_streams(&["s", "t"], None, "")], None, "", &["s", "t"], false, true),
        (vec![set_streams(&["s"], subscribe(a), "x")], Some(a), "x", &["s"], true, true),
        (vec![set_streams(&["s"], None, "x"), edit_streams(subscribe(a), None)], Some(a), "x", &["s"], true, true),
        (vec![set_streams(&["s"], None, "x"), back()], Some(a), "", &[], true, false),
        (vec![back()], Some(a), "", &[], true, false),
        (vec![set_streams(&[], subscribe(a), "")], Some(a), "", &[], true, false),
    ];
    for (changes, subscription, filter, named, is_sent, is_changed) in table {
        let mut cluster = Cluster::new();
        let mut answer = cluster.import().await;
        for change in &changes {
            answer = cluster.update_import(of_import(change.clone())).await.unwrap();
        }
        let streams = answer.streams.clone().unwrap();
        let asked = streams.subscription.as_ref().map(|asked| &*asked.expression);
        assert_eq!((asked, &*streams.filter), (subscription, filter), "{changes:?}");
        let names: Vec<&str> = streams.named_streams.iter().map(|named| &*named.stream).collect();
        assert_eq!(names, named, "{changes:?}");
        assert_eq!((answer.exporter_count, answer.standing() == Standing::Connected), (is_sent.into(), is_sent));
        assert_eq!(answer.exporters.len(), usize::from(is_sent), "{changes:?}");
        assert_eq!(answer.application_streams.clone().unwrap().subscription.unwrap().expression, a);
        // What a request does not say is as before, or as if an application had not said it.
        let scopes = streams.named_streams.iter().map(|named| &*named.application_scope);
        let mut scopes = scopes.chain(streams.subscription.iter().map(|asked| &*asked.application_scope));
        assert!(scopes.all(|scope| scope == "Default"), "{streams:?}");
        assert_eq!(cluster.import().await, answer, "what is read after a change is what was answered");
        let stored = cluster.server.get::<Import>(&key(IMPORT)).unwrap().status.and_then(|status| status.run_time);
        assert_eq!((stored.is_some(), answer.changed_at_run_time), (is_changed, is_changed), "{changes:?}");
    }
    // The operator and the place among the imports stay as well.
    let mut cluster = Cluster::new();
    cluster.update_import(of_import(edit_streams(subscribe("n > 1"), None))).await.unwrap();
    let stored = cluster.server.get::<Import>(&key(IMPORT)).unwrap();
    let subscription = stored.streams().property_based_import.clone().unwrap();
    assert_eq!((&*subscription.import_oper_name, subscription.index), ("In", 3));
}

#[tokio::test(start_paused = true)]
async fn streams_that_cannot_be_are_refused_with_their_place_and_nothing_is_written() {
    let long = "x".repeat(65_537);
    // change -> reason, field, offset in the text
    let table = [
        (None, "INVALID_REQUEST", "change", ""),
        (edit_streams(None, None), "INVALID_REQUEST", "edit", ""),
        (edit_streams(subscribe("n >"), None), "INVALID_EXPRESSION", "edit.subscription.expression", "3"),
        (edit_streams(subscribe(""), None), "INVALID_EXPRESSION", "edit.subscription.expression", "0"),
        (edit_streams(subscribe(&long), None), "INVALID_REQUEST", "edit.subscription.expression", ""),
        (edit_streams(subscribe("n"), Some("a = 1")), "INVALID_EXPRESSION", "edit.filter", "2"),
        (edit_streams(None, Some("a == b")), "INVALID_EXPRESSION", "edit.filter", "2"),
        (edit_streams(None, Some("a == 1 && true")), "INVALID_EXPRESSION", "edit.filter", "10"),
        (set_streams(&["s"], None, "false"), "INVALID_EXPRESSION", "set.filter", "0"),
        (set_streams(&["s"], None, "(int64)a == 1"), "INVALID_EXPRESSION", "set.filter", "0"),
        (edit_streams(None, Some(&long)), "INVALID_REQUEST", "edit.filter", ""),
        (set_streams(&[], subscribe("1 == )"), ""), "INVALID_EXPRESSION", "set.subscription.expression", "5"),
        (set_streams(&["s", ""], None, ""), "INVALID_REQUEST", "set.named_streams[1].stream", ""),
        (set_streams(&vec!["s"; 1_025], None, ""), "INVALID_REQUEST", "set.named_streams", ""),
    ];
    let mut cluster = Cluster::new();
    for (change, reason, field, offset) in table {
        let status = cluster.update_import(of_import(change)).await.unwrap_err();
        assert_eq!(why(&status), (Code::InvalidArgument, reason.to_owned(), field.to_owned()), "{status:?}");
        assert_eq!(metadata(&status, "offset"), offset, "{status:?}");
    }
    assert_eq!(cluster.connection.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_filter_is_forbidden_by_what_sends_to_the_port_after_the_change() {
    let (a, b) = ("kind == \"a\"", "kind == \"b\"");
    // changes, of which the last sets a filter -> whether it is forbidden. The export, whose kind is "a", forbids
    // filters.
    let table: [(&[Option<OfImport>], bool); 8] = [
        (&[edit_streams(None, Some("x"))], true),
        (&[edit_streams(subscribe(b), Some("x"))], false),
        (&[edit_streams(subscribe(b), None), edit_streams(subscribe(a), Some("x"))], true),
        (&[edit_streams(subscribe(b), None), edit_streams(None, Some("x"))], false),
        (&[set_streams(&["s"], None, "x")], false),
        (&[set_streams(&["s"], None, ""), set_streams(&["s"], subscribe(a), "x")], true),
        // A filter that stays is not set.
        (&[edit_streams(subscribe(b), Some("x")), edit_streams(subscribe(a), None)], false),
        // What sends nothing only because of the filter before does not allow another one.
        (
            &[edit_streams(subscribe(b), Some("x")), edit_streams(subscribe(a), None), edit_streams(None, Some("y"))],
            true,
        ),
    ];
    for (changes, is_forbidden) in table {
        let mut cluster = Cluster::new();
        cluster.server.edit::<Export>(&key(EXPORT), |export| export.spec.stream.allow_filter = false);
        cluster.mirrors.deliver_all();
        let Some((last, before)) = changes.split_last() else { continue };
        for change in before {
            cluster.update_import(of_import(change.clone())).await.unwrap();
        }
        let writes = cluster.connection.writes();
        let answer = cluster.update_import(of_import(last.clone())).await;
        assert_eq!(answer.is_err(), is_forbidden, "{changes:?}: {answer:?}");
        assert_eq!(cluster.connection.writes() - writes, usize::from(!is_forbidden), "{changes:?}");
        if let Err(status) = answer {
            assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::FailedPrecondition, "FILTER_FORBIDDEN"));
            assert_eq!(metadata(&status, "export"), EXPORT, "{changes:?}");
        }
    }
}
