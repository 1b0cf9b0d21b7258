//! What is looked at while it is waited for the news of who asks.

use super::super::caller::Caller;
use super::super::refusal::Refusal;
use super::*;
use axum::extract::FromRequestParts as _;
use tokio::time::sleep;

/// Who asks from this address, in namespace `n`.
async fn caller(api: &PeApi, from: &str) -> Caller {
    let request = Request::put("/").header("host", "streams-api.n:10000");
    let request = request.extension(ConnectInfo::<SocketAddr>(format!("{from}:1").parse().unwrap()));
    Caller::from_request_parts(&mut request.body(()).unwrap().into_parts().0, api).await.unwrap()
}

/// Somebody has written an object.
fn is_written(server: &Server, kind: &str, name: &str, number: u32) {
    let (key, number) = (Key::new("n", name), number.to_string());
    match kind {
        "PE" => server.edit::<ProcessingElement>(&key, |pe| pe.status.as_mut().unwrap().node_name = Some(number)),
        "job" => server.edit::<Job>(&key, |job| job.metadata.labels = Some([("number".to_owned(), number)].into())),
        _ => server.edit::<Pod>(&key, |pod| pod.status.as_mut().unwrap().pod_ip = Some(format!("10.0.3.{number}"))),
    };
}

#[tokio::test(start_paused = true)]
async fn nobody_makes_a_pe_be_read_again_while_only_others_change() {
    // who asks for PE 1 of `srcjob`, what changes 10 times meanwhile -> how often somebody looks
    let table = [
        (STRANGER, None, 1),
        (STRANGER, Some(("PE", "dstjob-0")), 1),
        (STRANGER, Some(("PE", "srcjob-0")), 1),
        (STRANGER, Some(("job", "dstjob")), 1),
        (STRANGER, Some(("pod", "srcjob-0-x")), 1),
        (TOOL, Some(("PE", "srcjob-0")), 1),
        (STRANGER, Some(("PE", "srcjob-1")), 11),
        (STRANGER, Some(("job", "srcjob")), 11),
        // The caller has another address from the first time on.
        (STRANGER, Some(("pod", "dstjob-0-x")), 2),
    ];
    for (from, changes, expected) in table {
        let mut cluster = Cluster::with(jobs);
        let (api, looks) = (cluster.api.clone(), AtomicUsize::new(0));
        let caller = caller(&api, from).await;
        let look = || {
            looks.fetch_add(1, Ordering::SeqCst);
            Err::<(), _>(Refusal::Later("not yet".to_owned()))
        };
        let changing = async {
            for number in 0..10 {
                sleep(Duration::from_millis(40)).await;
                changes.iter().for_each(|(kind, name)| is_written(&cluster.server, kind, name, number));
                cluster.mirrors.deliver_all();
            }
        };
        let since = tokio::time::Instant::now();
        let (found, ()) = tokio::join!(api.found_soon(&caller, ("srcjob", 1), look), changing);
        let said = format!("{from} {changes:?}");
        assert!(found.is_err(), "{said}");
        assert_eq!(looks.load(Ordering::SeqCst), expected, "{said}");
        assert!((500..510).contains(&since.elapsed().as_millis()), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_at_the_last_moment_is_found() {
    let mut cluster = Cluster::with(jobs);
    let api = cluster.api.clone();
    let caller = caller(&api, STRANGER).await;
    let pe = Key::new("n", "srcjob-1");
    let look = || {
        let pe = api.mirrors.processing_elements.get(&pe).and_then(|pe| pe.status.as_ref()?.node_name.clone());
        pe.ok_or_else(|| Refusal::Later("not yet".to_owned()))
    };
    let changing = async {
        // Others have changed a moment before.
        for (after, name) in [(490, "srcjob-0"), (5, "srcjob-1")] {
            sleep(Duration::from_millis(after)).await;
            is_written(&cluster.server, "PE", name, 7);
            cluster.mirrors.deliver_all();
        }
    };
    let (found, ()) = tokio::join!(api.found_soon(&caller, ("srcjob", 1), look), changing);
    assert_eq!(found.unwrap(), "7");
}
