//! Others write at the same time, or have written what the mirrors do not show yet.

use super::{
    Cluster, EXPORT, asked, create_import, edit, edit_streams, key, metadata, number, of_export, of_import, property,
    set, shown, why,
};
use streams_api::Export;
use streams_kubernetes_fake::Verb;
use streams_proto::subscription::v1::subscription_service_server::SubscriptionService as _;
use streams_proto::subscription::v1::update_export_request::Change as OfExport;
use streams_proto::subscription::v1::update_import_request::Change as OfImport;
use streams_proto::subscription::v1::{GetImportRequest, Reset, Standing, UpdateExportRequest, UpdateImportRequest};
use tonic::{Code, Request};

#[tokio::test(start_paused = true)]
async fn who_has_not_seen_the_last_change_does_not_overwrite_it() {
    let mut cluster = Cluster::new();
    let seen = cluster.export().await.etag;
    // A condition is nothing that callers want.
    cluster.server.edit::<Export>(&key(EXPORT), |export| {
        export.status.get_or_insert_default().observed_generation = Some(7);
    });
    cluster.mirrors.deliver_all();
    let expecting = |etag: &str, value: &str| UpdateExportRequest {
        expected_etag: etag.to_owned(),
        ..of_export(set(&[number("n", value)]))
    };
    let first = cluster.update_export(expecting(&seen, "1")).await.unwrap();
    let status = cluster.update_export(expecting(&seen, "2")).await.unwrap_err();
    assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::FailedPrecondition, "ETAG_MISMATCH"));
    assert_eq!(metadata(&status, "etag"), first.etag);
    assert_eq!(cluster.stored(), Some(vec!["n=1".to_owned()]));
    cluster.update_export(expecting(&first.etag, "2")).await.unwrap();
    assert_eq!(cluster.stored(), Some(vec!["n=2".to_owned()]));
    // The same of imports.
    let seen = cluster.import().await.etag;
    let expecting = |change| UpdateImportRequest { expected_etag: seen.clone(), ..of_import(change) };
    cluster.update_import(expecting(edit_streams(None, Some("x")))).await.unwrap();
    let status = cluster.update_import(expecting(Some(OfImport::Reset(Reset {})))).await.unwrap_err();
    assert_eq!(why(&status).1, "ETAG_MISMATCH");
}

#[tokio::test(start_paused = true)]
async fn what_a_pe_writes_at_the_same_time_is_not_lost() {
    let add = || edit(&[], &[], &[number("n", "2")]);
    // the change, whether it says what it has seen, what the PE adds -> properties stored, or the reason
    let table: [(Option<OfExport>, bool, &str, Result<&[&str], &str>); 5] = [
        (add(), false, "pe", Ok(&["kind=\"a\"", "pe=1", "n=2"])),
        (add(), false, "n", Err("PROPERTY_EXISTS")),
        (add(), true, "pe", Err("ETAG_MISMATCH")),
        (set(&[number("n", "2")]), false, "pe", Ok(&["n=2"])),
        (set(&[number("n", "2")]), true, "pe", Err("ETAG_MISMATCH")),
    ];
    for (change, says_what_it_has_seen, added, expected) in table {
        let mut cluster = Cluster::new();
        let etag = cluster.export().await.etag;
        let expected_etag = if says_what_it_has_seen { etag } else { String::new() };
        let (server, name) = (cluster.server.clone(), added.to_owned());
        let once = std::sync::Once::new();
        cluster.connection.meanwhile(move |call| {
            if call.verb == Verb::ReplaceStatus {
                once.call_once(|| Cluster::somebody_adds(&server, &name));
            }
            Box::pin(async {})
        });
        let answer = cluster.update_export(UpdateExportRequest { expected_etag, ..of_export(change.clone()) }).await;
        let stored = cluster.stored().unwrap();
        match expected {
            Ok(expected) => {
                assert_eq!((shown(answer.unwrap().properties), &*stored), (stored.clone(), &*strings(expected)))
            }
            Err(reason) => {
                assert_eq!(why(&answer.unwrap_err()).1, reason, "{change:?}");
                assert_eq!(stored, strings(&["kind=\"a\"", &format!("{added}=1")]), "{change:?}");
            }
        }
    }
}

fn strings(of: &[&str]) -> Vec<String> {
    of.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_the_mirror_does_not_show_yet_counts() {
    // Another replica has written; this one is asked for what it still shows, by somebody who has seen the other's.
    let mut cluster = Cluster::new();
    Cluster::somebody_adds(&cluster.server, "pe");
    let back = cluster.update_export(of_export(set(&[property("kind", "rstring", "\"a\"")]))).await.unwrap();
    assert_eq!((shown(back.properties), cluster.stored()), (strings(&["kind=\"a\""]), Some(strings(&["kind=\"a\""]))));
    // One that was made just now is there.
    cluster.mirrors.deliver_all();
    create_import(&cluster.server, "in", 5, 0, &asked("1 == 1"));
    let (api, name) = (cluster.api.clone(), "in-5-0");
    let found = api.get_import(Request::new(GetImportRequest { namespace: "n".into(), name: name.into() })).await;
    let found = found.unwrap().into_inner().import.unwrap();
    assert_eq!((&*found.name, found.standing()), (name, Standing::NotOfJob), "the board does not know it yet");
    let request = UpdateImportRequest { name: name.into(), ..of_import(edit_streams(None, Some("x"))) };
    assert_eq!(cluster.update_import(request).await.unwrap().streams.unwrap().filter, "x");
    // One that is gone is gone.
    cluster.server.remove::<Export>(&key(EXPORT));
    let status = cluster.update_export(of_export(set(&[]))).await.unwrap_err();
    assert_eq!((why(&status).0, why(&status).1.as_str()), (Code::NotFound, "EXPORT_NOT_FOUND"));
}
