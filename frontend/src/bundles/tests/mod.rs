//! Fetching over real connections: servers on loopback that speak HTTP and HTTPS, names that lead to them, Secrets.

mod repository;
mod site;

use self::site::{GIT, METADATA, OTHER, Seen, Site, content, loopback, options, redirect, status};
use super::addresses::AddressRules;
use super::error::BundleError;
use super::fetcher::{Fetcher, Wanted};
use super::guard::{Guard, tests::Names};
use super::hosts::Hosts;
use super::options::FetchOptions;
use super::proofs::PROVEN;
use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use streams_api::{BundleReference, PullPolicy};
use url::Url;

/// A bundle whose application has this name.
fn sab(name: &str) -> Vec<u8> {
    let adl = format!(
        "<applicationSet xmlns='http://www.ibm.com/xmlns/prod/streams/application/v4200'>\
         <splApplication name='{name}' buildId='' outputDirectory='demo' applicationDirectory='kit'/></applicationSet>"
    );
    let application = streams_bundle::Application {
        name: format!("demo.{name}"),
        output_directory: "demo".to_owned(),
        toolkit: "demo".to_owned(),
        toolkit_version: "1.0.0".to_owned(),
        adl,
    };
    streams_bundle::Builder::new(application).build().unwrap()
}

/// The Secrets of a cluster: namespace, name, version, token, hosts.
type Secrets = [(&'static str, &'static str, &'static str, &'static str, Option<String>)];

fn kubernetes(secrets: &Secrets) -> kube::Client {
    let secrets = secrets.iter().map(|(namespace, name, version, token, hosts)| {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let hosts = hosts.as_ref().map(|hosts| k8s_openapi::ByteString(hosts.clone().into_bytes()));
        let data = serde_json::json!({"token": k8s_openapi::ByteString(token.as_bytes().to_vec()), "hosts": hosts});
        let metadata =
            serde_json::json!({"name": name, "uid": format!("{namespace}-{name}"), "resourceVersion": version});
        let data: serde_json::Map<_, _> =
            data.as_object().unwrap().clone().into_iter().filter(|(_, value)| !value.is_null()).collect();
        (path, serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}))
    });
    let secrets: std::collections::HashMap<_, _> = secrets.collect();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let found = secrets.get(request.uri().path()).cloned();
        let (code, body) = found.map_or_else(
            || (404, serde_json::json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})),
            |secret| (200, secret),
        );
        let body = kube::client::Body::from(body.to_string().into_bytes());
        async move { Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap()) }
    });
    kube::Client::new(service, "default")
}

fn url(url: &str) -> BundleReference {
    BundleReference { url: Some(url.to_owned()), ..BundleReference::default() }
}

fn private(url_of: &str, secret: &str) -> BundleReference {
    BundleReference { secret: Some(secret.to_owned()), ..url(url_of) }
}

fn always(bundle: BundleReference) -> BundleReference {
    BundleReference { pull_policy: PullPolicy::Always, ..bundle }
}

/// Fetches for the namespace `a`, in a cluster without Secrets.
async fn fetch(fetcher: &Fetcher, bundle: &BundleReference) -> Result<super::Application, BundleError> {
    fetcher.fetch(bundle, "a", &kubernetes(&[])).await
}

async fn fails(fetcher: &Fetcher, bundle: &BundleReference) -> (&'static str, bool, String) {
    let error = fetch(fetcher, bundle).await.unwrap_err();
    (error.reason(), error.is_transient(), error.to_string())
}

/// A private bundle: for whoever has the token.
fn for_token(token: &'static str) -> impl Fn(&Seen) -> Response + Send + Sync {
    move |seen| match seen.header("authorization") {
        Some(sent) if sent == format!("token {token}") => content(sab("Private"), None),
        _ => status(StatusCode::FORBIDDEN),
    }
}

#[tokio::test]
async fn a_private_bundle_is_for_the_namespace_that_has_the_secret() {
    let site = Site::start(for_token("t0")).await;
    let fetcher = site.fetcher();
    let hosts = Some(format!("{GIT}:{}", site.https));
    let kubernetes = kubernetes(&[("a", "s", "1", "t0", hosts.clone()), ("c", "s", "1", "wrong", hosts)]);
    let private = private(&site.https(GIT, "/app.sab"), "s");
    let public = url(&site.https(GIT, "/app.sab"));
    // namespace, bundle -> reason, requests
    let table = [
        ("a", &private, None, 1),
        ("a", &private, None, 0),
        ("b", &public, Some("BundleRefused"), 1),
        ("b", &private, Some("SecretNotFound"), 0),
        ("c", &private, Some("BundleRefused"), 1),
        ("a", &public, Some("BundleRefused"), 1),
        ("a", &private, None, 0),
    ];
    for (number, (namespace, bundle, reason, requests)) in table.into_iter().enumerate() {
        let fetched = fetcher.fetch(bundle, namespace, &kubernetes).await;
        assert_eq!(fetched.err().map(|error| error.reason()), reason, "{number}");
        assert_eq!(site.requests(), requests, "{number}");
    }
}

#[tokio::test]
async fn a_store_that_does_not_answer_holds_up_nobody_for_ever() {
    let site = Site::start(|seen| content(sab(if seen.path == "/stuck.sab" { "Stuck" } else { "App" }), None)).await;
    let [stuck, other] = ["/stuck.sab", "/app.sab"].map(|path| url(&site.http(GIT, path)));
    let store = tempfile::tempdir().unwrap();
    let sha256 = fetch(&site.fetcher(), &stuck).await.unwrap().bundle_sha256;
    // Who opens a pipe waits for somebody at its other end.
    let pipe = store.path().join(format!("{sha256}.sab"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let options = FetchOptions {
        at_once: 2,
        time_out: Duration::from_secs(2),
        store: Some(store.path().to_owned()),
        allowed: loopback(),
        ..options()
    };
    let fetcher = site.fetcher_with(options, PROVEN);
    let kubernetes = kubernetes(&[]);
    // Two namespaces have all places.
    let (in_a, in_b) = (fetcher.fetch(&stuck, "a", &kubernetes), fetcher.fetch(&stuck, "b", &kubernetes));
    let in_c = fetcher.fetch(&other, "c", &kubernetes);
    let all = tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(in_a, in_b, in_c) }).await;
    // The server is back.
    let other_end = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    std::fs::remove_file(&pipe).unwrap();
    drop(other_end);
    let (in_a, in_b, in_c) = all.expect("nobody waits for ever");
    in_c.unwrap();
    for error in [in_a.unwrap_err(), in_b.unwrap_err()] {
        assert_eq!((error.reason(), error.is_transient()), ("BundleNotStored", true));
        assert!(error.to_string().ends_with("the volume does not answer"), "{error}");
    }
    fetch(&fetcher, &stuck).await.unwrap();
    assert_eq!(std::fs::read(&pipe).unwrap(), sab("Stuck"));
}

#[tokio::test]
async fn another_version_of_a_secret_proves_nothing() {
    let site = Site::start(for_token("t0")).await;
    let fetcher = site.fetcher();
    let hosts = Some(format!("{GIT}:{}", site.https));
    let bundle = private(&site.https(GIT, "/app.sab"), "s");
    for (version, token, reason) in [("1", "t0", None), ("2", "revoked", Some("BundleRefused")), ("3", "t0", None)] {
        let kubernetes = kubernetes(&[("a", "s", version, token, hosts.clone())]);
        let fetched = fetcher.fetch(&bundle, "a", &kubernetes).await;
        assert_eq!(fetched.err().map(|error| error.reason()), reason, "{version}");
        assert_eq!(site.requests(), 1, "{version}");
    }
}

#[tokio::test]
async fn a_token_goes_by_https_to_listed_hosts_only() {
    let site = Site::start(for_token("t0")).await;
    let port = site.https;
    let listed = Some(format!("{OTHER}:{port}"));
    let kubernetes = kubernetes(&[("a", "open", "1", "t0", None), ("a", "listed", "1", "t0", listed)]);
    let by_option =
        FetchOptions { token_hosts: Hosts::lines(&format!("{GIT}:{port}")).unwrap(), allowed: loopback(), ..options() };
    let by_option = site.fetcher_with(by_option, PROVEN);
    let fetcher = site.fetcher();
    let git = site.https(GIT, "/app.sab");
    let table = [
        (&fetcher, private(&git, "open"), Some(format!("the key hosts of secret open does not list {GIT}:{port}"))),
        (&fetcher, private(&git, "listed"), Some(format!("the key hosts of secret listed does not list {GIT}:{port}"))),
        (&fetcher, private(&site.http(OTHER, "/app.sab"), "listed"), Some("by https only".to_owned())),
        (&fetcher, private(&site.https(OTHER, "/app.sab"), "listed"), None),
        (&by_option, private(&git, "open"), None),
        (&by_option, private(&git, "listed"), Some("does not list".to_owned())),
    ];
    for (number, (fetcher, bundle, words)) in table.into_iter().enumerate() {
        let fetched = fetcher.fetch(&bundle, "a", &kubernetes).await;
        let seen = site.take();
        match words {
            None => assert!(fetched.is_ok() && seen.len() == 1, "{number}: {fetched:?}"),
            Some(words) => {
                let error = fetched.unwrap_err();
                assert!(error.reason() == "BundleRefused" && error.to_string().contains(&words), "{number}: {error}");
                assert!(seen.is_empty(), "{number}: nothing is sent: {seen:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_redirect_does_not_carry_a_token_to_hosts_that_are_not_listed() {
    let ports = Arc::new(Mutex::new(0_u16));
    let known = Arc::clone(&ports);
    let site = Site::start(move |seen| {
        let port = *known.lock();
        match (seen.host.as_str(), seen.path.as_str()) {
            (GIT, "/app.sab") => redirect(&format!("https://{OTHER}:{port}/app.sab")),
            (OTHER, "/app.sab") => redirect(&format!("https://{GIT}:{port}/back.sab")),
            (GIT, "/near.sab") => redirect("/back.sab"),
            _ => content(sab("App"), None),
        }
    })
    .await;
    *ports.lock() = site.https;
    let kubernetes = kubernetes(&[("a", "s", "1", "t0", Some(format!("{GIT}:{}", site.https)))]);
    let table = [
        ("/app.sab", vec![(GIT, "/app.sab", true), (OTHER, "/app.sab", false), (GIT, "/back.sab", false)]),
        ("/near.sab", vec![(GIT, "/near.sab", true), (GIT, "/back.sab", true)]),
    ];
    for (path, expected) in table {
        site.fetcher().fetch(&private(&site.https(GIT, path), "s"), "a", &kubernetes).await.unwrap();
        let seen = site.take();
        let seen: Vec<_> = seen
            .iter()
            .map(|seen| (seen.host.as_str(), seen.path.as_str(), seen.header("authorization") == Some("token t0")))
            .collect();
        assert_eq!(seen, expected);
    }
}

#[tokio::test]
async fn user_and_password_of_a_url_go_no_further_than_its_host() {
    let site = Site::start(|seen| match seen.path.strip_prefix("/to?") {
        Some(to) => redirect(to),
        None => content(sab("App"), None),
    })
    .await;
    for (to, sent) in [
        (site.http(OTHER, "/app.sab"), false),
        (site.http("u:hidden@files.example.net", "/app.sab"), false),
        ("/app.sab".to_owned(), true),
    ] {
        let from = site.http("user:hidden@git.example.com", &format!("/to?{to}"));
        fetch(&site.fetcher(), &url(&from)).await.unwrap();
        let seen: Vec<bool> = site.take().iter().map(|seen| seen.header("authorization").is_some()).collect();
        assert_eq!(seen, [true, sent], "{to}");
    }
}

#[tokio::test]
async fn internal_addresses_are_refused_at_every_hop_in_the_same_words() {
    let site = Site::start(|seen| match seen.path.strip_prefix("/to?") {
        Some(to) => redirect(to),
        None => content(sab("App"), None),
    })
    .await;
    let (open, fetcher) = (site.fetcher(), site.fetcher_with(options(), PROVEN));
    // Loopback by name and by literal: nothing is sent.
    for host in [GIT, METADATA, "127.0.0.1", "127.1", "2130706433", "[::1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]"] {
        for address in [site.http(host, "/app.sab"), site.https(host, "/app.sab")] {
            let (reason, transient, message) = fails(&fetcher, &url(&address)).await;
            assert_eq!((reason, transient), ("BundleRefused", false), "{address}: {message}");
            assert!(message.contains(": the frontend does not connect to its address ("), "{message}");
        }
    }
    assert_eq!(site.requests(), 0);
    // The first hop is allowed, the second is not: whether somebody listens there makes no difference.
    let mut messages = std::collections::BTreeSet::new();
    for to in [
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        format!("http://{METADATA}/app.sab"),
        site.http("127.0.0.2", "/app.sab"),
        "http://127.0.0.2:1/app.sab".to_owned(),
        site.http("[::1]", "/app.sab"),
        "https://[fd00:ec2::254]/app.sab".to_owned(),
    ] {
        let (reason, _, message) = fails(&open, &url(&site.http(GIT, &format!("/to?{to}")))).await;
        assert_eq!(reason, "BundleRefused", "{to}: {message}");
        messages.insert(message);
        assert_eq!(site.requests(), 1, "{to}");
    }
    assert_eq!(messages.len(), 1, "{messages:?}");
}

#[tokio::test]
async fn the_api_server_is_refused_by_name_and_by_address() {
    let site = Site::start(|_| content(sab("App"), None)).await;
    let fetcher = |api_server: &str| {
        // Its address is refused because it is that of the API server, not because of the block.
        let guard = FetchOptions { api_server: vec![api_server.to_owned()], ..options() };
        site.fetcher_with(guard, PROVEN)
    };
    for (api_server, host) in [(METADATA, METADATA), ("10.96.0.1", "10.96.0.1"), ("10.96.0.1", "[::ffff:10.96.0.1]")] {
        let (reason, _, message) = fails(&fetcher(api_server), &url(&format!("http://{host}/app.sab"))).await;
        assert_eq!(reason, "BundleRefused", "{message}");
    }
    let guard = Guard::new(AddressRules::new(&[], &[]), Arc::new(Names([].into())), &["10.96.0.1".to_owned()]);
    assert!(guard.check_literal(&Url::parse("https://10.96.0.2/").unwrap()).await.is_ok());
}

#[tokio::test]
async fn the_base_url_may_have_any_address_but_not_what_it_redirects_to() {
    let site = Site::start(|seen| match seen.path.as_str() {
        "/b/moved.sab" => redirect("http://127.0.0.2/app.sab"),
        "/b/near.sab" => redirect("/b/app.sab"),
        _ => content(sab("App"), None),
    })
    .await;
    let base = Url::parse(&site.http("127.0.0.1", "/b/")).unwrap();
    let fetcher = site.fetcher_with(FetchOptions { base_url: Some(base), allow_http: false, ..options() }, PROVEN);
    let named = |name: &str| BundleReference { name: Some(name.to_owned()), ..BundleReference::default() };
    fetch(&fetcher, &named("app.sab")).await.unwrap();
    fetch(&fetcher, &named("near.sab")).await.unwrap();
    assert_eq!(fails(&fetcher, &named("moved.sab")).await.0, "BundleRefused");
    let same = url(&site.http("127.0.0.1", "/b/app.sab"));
    assert_eq!(fails(&fetcher, &same).await.0, "BundleRefused", "only what is asked for by name is exempt");
}

#[tokio::test]
async fn a_name_means_the_file_as_long_as_nobody_says_that_there_is_none() {
    let site = Site::start(|seen| match seen.path.as_str() {
        "/app.sab" => content(sab("Url"), None),
        _ => status(StatusCode::NOT_FOUND),
    })
    .await;
    let parent = tempfile::tempdir().unwrap();
    let files = parent.path().join("files");
    let options = |directory: Option<&std::path::Path>| FetchOptions {
        base_url: Some(Url::parse(&site.http("127.0.0.1", "/")).unwrap()),
        directory: directory.map(std::path::Path::to_owned),
        max_bytes: 1 << 20,
        ..options()
    };
    let named = |name: &str| BundleReference { name: Some(name.to_owned()), ..BundleReference::default() };
    let app = named("app.sab");
    let of_url = fetch(&site.fetcher_with(options(None), PROVEN), &app).await.unwrap();
    assert_eq!(site.requests(), 1, "there is no directory");

    let fetcher = site.fetcher_with(options(Some(&files)), PROVEN);
    let (reason, transient, message) = fails(&fetcher, &app).await;
    assert_eq!((reason, transient, site.requests()), ("BundleUnreadable", true, 0), "{message}");
    std::fs::create_dir(&files).unwrap();
    assert_eq!(fetch(&fetcher, &app).await.unwrap(), of_url, "there is no such file");
    assert_eq!(site.requests(), 1);
    std::fs::write(files.join("app.sab"), vec![0; (1 << 20) + 1]).unwrap();
    assert_eq!((fails(&fetcher, &app).await.0, site.requests()), ("BundleTooLarge", 0));
    std::fs::write(files.join("app.sab"), sab("File")).unwrap();
    assert_ne!(fetch(&fetcher, &app).await.unwrap(), of_url);
    assert_eq!(site.requests(), 0);

    // A job that was submitted with that of the URL still gets it, and no other one.
    let again = async |bundle: &BundleReference| {
        let fetcher = site.fetcher_with(options(Some(&files)), PROVEN);
        let (turn, wanted) = (fetcher.turn("a").await.unwrap(), Wanted::Digest(of_url.bundle_sha256.clone()));
        fetcher.again(turn, bundle, "a", &kubernetes(&[]), &wanted).await.map(|held| held.content.sha256)
    };
    assert_eq!(again(&app).await, Ok(of_url.bundle_sha256.clone()));
    std::fs::write(files.join("other.sab"), sab("File")).unwrap();
    let error = again(&named("other.sab")).await.unwrap_err();
    assert!(error.to_string().starts_with("other.sab was replaced"), "{error}");
    let error = again(&named("none.sab")).await.unwrap_err();
    assert!(error.reason() == "BundleNotFound" && error.to_string().contains("the server answers 404"), "{error}");
}

#[tokio::test]
async fn what_is_no_bundle_is_not_stored() {
    let site = Site::start(|seen| match seen.path.as_str() {
        "/app.sab" => content(sab("App"), None),
        _ => content(b"noise".to_vec(), Some("\"noise\"")),
    })
    .await;
    let (store, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(files.path().join("file.sab"), "noise").unwrap();
    let options = FetchOptions {
        store: Some(store.path().to_owned()),
        directory: Some(files.path().to_owned()),
        allowed: loopback(),
        ..options()
    };
    let fetcher = site.fetcher_with(options, PROVEN);
    let stored = || std::fs::read_dir(store.path()).unwrap().count();
    let file = BundleReference { file: Some("file.sab".to_owned()), ..BundleReference::default() };
    for bundle in [url(&site.http(GIT, "/noise.sab")), file] {
        assert_eq!((fails(&fetcher, &bundle).await.0, stored()), ("BundleInvalid", 0));
    }
    let application = fetch(&fetcher, &url(&site.http(GIT, "/app.sab"))).await.unwrap();
    assert!(std::str::from_utf8(&application.adl).unwrap().contains("name='App'"));
    assert_eq!(stored(), 1);
}

#[tokio::test]
async fn a_server_is_asked_again_conditionally_and_only_for_what_it_gave_to_the_same_namespace() {
    let version = Arc::new(Mutex::new("\"v1\""));
    let current = Arc::clone(&version);
    let site = Site::start(move |seen| {
        let etag = *current.lock();
        if seen.header("if-none-match") == Some(etag) {
            return status(StatusCode::NOT_MODIFIED);
        }
        content(sab(if etag == "\"v1\"" { "One" } else { "Two" }), Some(etag))
    })
    .await;
    let address = url(&site.http(GIT, "/app.sab"));
    let asked = || site.take().iter().map(|seen| seen.header("if-none-match").map(str::to_owned)).collect::<Vec<_>>();
    let v1 = || Some("\"v1\"".to_owned());

    let fetcher = site.fetcher();
    let first = fetch(&fetcher, &address).await.unwrap();
    assert_eq!(asked(), [None]);
    assert_eq!(fetch(&fetcher, &address).await.unwrap(), first);
    assert!(asked().is_empty(), "it is proven");
    assert_eq!(fetch(&fetcher, &always(address.clone())).await.unwrap(), first);
    assert_eq!(asked(), [v1()], "Always asks, and the server need not send it again");
    assert_eq!(fetcher.fetch(&address, "b", &kubernetes(&[])).await.unwrap(), first);
    assert_eq!(asked(), [None], "what a server called it for somebody else proves nothing");
    *version.lock() = "\"v2\"";
    let second = fetch(&fetcher, &always(address.clone())).await.unwrap();
    assert_eq!(asked(), [v1()]);
    assert_ne!(second.bundle_sha256, first.bundle_sha256);
    assert_ne!(second.sab_name, first.sab_name);
    assert_eq!(fetch(&fetcher, &address).await.unwrap(), second);
    assert!(asked().is_empty());

    // A proof that is too old: the server is asked, conditionally.
    *version.lock() = "\"v1\"";
    let fetcher = site.fetcher_with(FetchOptions { allowed: loopback(), ..options() }, Duration::ZERO);
    for expected in [[None], [v1()]] {
        assert_eq!(fetch(&fetcher, &address).await.unwrap(), first);
        assert_eq!(asked(), expected);
    }

    // The bytes are gone: nothing conditional is asked.
    let fetcher = site.fetcher_with(FetchOptions { cache_bytes: 0, allowed: loopback(), ..options() }, PROVEN);
    for _ in 0..2 {
        assert_eq!(fetch(&fetcher, &address).await.unwrap(), first);
        assert_eq!(asked(), [None]);
    }
}

#[tokio::test]
async fn a_bundle_that_failed_and_was_corrected_at_its_url_is_seen_at_once() {
    let bundle = Arc::new(Mutex::new(("\"broken\"", b"PK, but no more".to_vec())));
    let current = Arc::clone(&bundle);
    let site = Site::start(move |seen| {
        let (etag, bytes) = current.lock().clone();
        if seen.header("if-none-match") == Some(etag) {
            return status(StatusCode::NOT_MODIFIED);
        }
        content(bytes, Some(etag))
    })
    .await;
    let address = url(&site.http(GIT, "/app.sab"));
    let asked = || site.take().iter().map(|seen| seen.header("if-none-match").map(str::to_owned)).collect::<Vec<_>>();
    let tagged = |etag: &str| Some(etag.to_owned());

    let fetcher = site.fetcher();
    assert_eq!(fails(&fetcher, &address).await.0, "BundleInvalid");
    assert_eq!(asked(), [None]);
    assert_eq!(fails(&fetcher, &address).await.0, "BundleInvalid");
    assert_eq!(asked(), [None], "what is no bundle is not kept");
    *bundle.lock() = ("\"refused\"", sab("One"));
    let refused = fetch(&fetcher, &address).await.unwrap();
    assert_eq!(asked(), [None]);
    assert_eq!(fetch(&fetcher, &address).await.unwrap(), refused);
    assert!(asked().is_empty(), "it is proven");

    // It can be read, but what is in it cannot be compiled.
    fetcher.note_unusable("a", &refused.bundle_sha256);
    *bundle.lock() = ("\"good\"", sab("Two"));
    let good = fetch(&fetcher, &address).await.unwrap();
    assert_eq!(asked(), [tagged("\"refused\"")]);
    assert_ne!(good.bundle_sha256, refused.bundle_sha256);
    assert_eq!(fetch(&fetcher, &address).await.unwrap(), good);
    assert!(asked().is_empty(), "it is proven");
}

#[tokio::test]
async fn bytes_that_are_lost_before_the_answer_are_asked_for_unconditionally() {
    let store = tempfile::tempdir().unwrap();
    let directory = store.path().to_owned();
    let site = Site::start(move |seen| match seen.header("if-none-match") {
        None => content(sab("App"), Some("\"v1\"")),
        Some(_) => {
            for file in std::fs::read_dir(&directory).unwrap() {
                std::fs::write(file.unwrap().path(), "damaged").unwrap();
            }
            status(StatusCode::NOT_MODIFIED)
        }
    })
    .await;
    let options =
        FetchOptions { store: Some(store.path().to_owned()), cache_bytes: 0, allowed: loopback(), ..options() };
    let fetcher = site.fetcher_with(options, PROVEN);
    let bundle = always(url(&site.http(GIT, "/app.sab")));
    let first = fetch(&fetcher, &bundle).await.unwrap();
    assert_eq!(fetch(&fetcher, &bundle).await.unwrap(), first);
    let asked: Vec<bool> = site.take().iter().map(|seen| seen.header("if-none-match").is_some()).collect();
    assert_eq!(asked, [false, true, false]);
}

#[tokio::test]
async fn not_modified_is_no_answer_to_a_request_without_condition() {
    let site = Site::start(|_| status(StatusCode::NOT_MODIFIED)).await;
    let (reason, transient, _) = fails(&site.fetcher(), &url(&site.http(GIT, "/app.sab"))).await;
    assert_eq!((reason, transient), ("BundleUnavailable", true));
}

#[tokio::test]
async fn a_bundle_that_appears_later_is_found() {
    let there = Arc::new(AtomicUsize::new(0));
    let is_there = Arc::clone(&there);
    let site = Site::start(move |_| match is_there.load(Ordering::Relaxed) {
        0 => status(StatusCode::NOT_FOUND),
        _ => content(sab("App"), None),
    })
    .await;
    let (fetcher, bundle) = (site.fetcher(), url(&site.http(GIT, "/app.sab?key=hidden")));
    let (reason, transient, message) = fails(&fetcher, &bundle).await;
    assert_eq!((reason, transient), ("BundleNotFound", true));
    assert!(message.contains("/app.sab") && !message.contains("hidden"), "{message}");
    there.store(1, Ordering::Relaxed);
    let application = fetch(&fetcher, &bundle).await.unwrap();
    assert_eq!(application.sab_name, format!("app-{}.sab", &application.bundle_sha256[..16]));
    // Gone again: the proof goes with it.
    there.store(0, Ordering::Relaxed);
    assert_eq!(fails(&fetcher, &always(bundle.clone())).await.0, "BundleNotFound");
    assert_eq!(fails(&fetcher, &bundle).await.0, "BundleNotFound");
}

#[tokio::test]
async fn answers_of_a_server_are_told_apart_and_none_shows_a_secret() {
    let site = Site::start(|seen| match seen.path.split('?').next().unwrap() {
        "/large" => content(vec![0; 4096], None),
        "/chunked" => Response::new(Body::from_stream(futures::stream::iter(
            (0..8).map(|_| Ok::<_, Infallible>(vec![0_u8; 512])),
        ))),
        "/loop" => redirect("/loop"),
        "/down" => redirect(&format!("ftp://{GIT}/?hidden")),
        "/nowhere" => redirect("https://no-such-name.example/?hidden"),
        "/broken" => redirect("https://[/?hidden"),
        "/busy" => status(StatusCode::SERVICE_UNAVAILABLE),
        "/many" => status(StatusCode::TOO_MANY_REQUESTS),
        "/forbidden" => status(StatusCode::FORBIDDEN),
        "/gone" => status(StatusCode::GONE),
        "/text" => content(b"no bundle".to_vec(), None),
        "/made" => status(StatusCode::ACCEPTED),
        "/nothing" => status(StatusCode::NO_CONTENT),
        "/part" => status(StatusCode::PARTIAL_CONTENT),
        _ => status(StatusCode::NOT_FOUND),
    })
    .await;
    let fetcher = site.fetcher_with(FetchOptions { max_bytes: 1024, allowed: loopback(), ..options() }, PROVEN);
    for (path, reason, transient) in [
        ("/large", "BundleTooLarge", false),
        ("/chunked", "BundleTooLarge", false),
        ("/loop", "BundleRefused", false),
        ("/down", "BundleRefused", false),
        ("/broken", "BundleRefused", false),
        ("/nowhere", "BundleUnavailable", true),
        ("/busy", "BundleUnavailable", true),
        ("/many", "BundleUnavailable", true),
        ("/forbidden", "BundleRefused", false),
        ("/gone", "BundleNotFound", true),
        ("/missing", "BundleNotFound", true),
        ("/text", "BundleInvalid", false),
        ("/made", "BundleUnavailable", true),
        ("/nothing", "BundleUnavailable", true),
        ("/part", "BundleUnavailable", true),
    ] {
        let address = site.http("user:hidden@git.example.com", &format!("{path}?token=hidden#hidden"));
        let (was, again, message) = fails(&fetcher, &url(&address)).await;
        assert_eq!((was, again), (reason, transient), "{path}: {message}");
        assert!(!message.contains("hidden"), "{message}");
    }
    let closed = fails(&fetcher, &url(&format!("http://{GIT}:1/app.sab"))).await;
    assert_eq!((closed.0, closed.1), ("BundleUnavailable", true), "{closed:?}");
    let stranger = site.https("127.0.0.1", "/app.sab");
    let (reason, _, message) = fails(&fetcher, &url(&stranger)).await;
    assert!(reason == "BundleUnavailable" && message.ends_with("its certificate is for another host"), "{message}");
}

#[tokio::test]
async fn a_download_has_a_time() {
    let site =
        Site::start(|_| Response::new(Body::from_stream(futures::stream::pending::<io::Result<Vec<u8>>>()))).await;
    let options = FetchOptions { time_out: Duration::from_millis(200), allowed: loopback(), ..options() };
    let (reason, transient, message) =
        fails(&site.fetcher_with(options, PROVEN), &url(&site.http(GIT, "/app.sab"))).await;
    assert_eq!((reason, transient), ("BundleUnavailable", true));
    assert!(message.ends_with("was not fetched within 0.2 s"), "{message}");
}

#[tokio::test]
async fn the_github_contents_api_is_asked_for_the_file_itself() {
    let site = Site::start(|_| content(sab("App"), None)).await;
    fetch(&site.fetcher(), &url(&site.http(GIT, "/app.sab?ref=v1"))).await.unwrap();
    let seen = site.take();
    assert_eq!(
        (seen[0].path.as_str(), seen[0].header("accept")),
        ("/app.sab?ref=v1", Some("application/vnd.github.v3.raw"))
    );
    assert_eq!(seen[0].header("authorization"), None);
}

#[tokio::test]
async fn with_a_proxy_names_are_its_business_and_literals_are_refused_all_the_same() {
    let proxy = Site::start(|_| content(sab("App"), None)).await;
    let url_of_proxy = Url::parse(&proxy.http("127.0.0.1", "/")).unwrap();
    let fetcher = proxy.fetcher_with(FetchOptions { proxy: Some(url_of_proxy), ..options() }, PROVEN);
    fetch(&fetcher, &url("http://only.the.proxy.knows/app.sab")).await.unwrap();
    assert_eq!(proxy.take()[0].host, "only.the.proxy.knows");
    assert_eq!(fails(&fetcher, &url("http://169.254.169.254/app.sab")).await.0, "BundleRefused");
    assert_eq!(proxy.requests(), 0);
}

#[tokio::test]
async fn a_bundle_that_is_kept_outlives_its_url_and_this_process() {
    let site = Site::start(|_| content(sab("App"), None)).await;
    let store = tempfile::tempdir().unwrap();
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("file.sab"), sab("File")).unwrap();
    let with_store = || FetchOptions {
        store: Some(store.path().to_owned()),
        directory: Some(files.path().to_owned()),
        allowed: loopback(),
        ..options()
    };
    let file = BundleReference { file: Some("file.sab".to_owned()), ..BundleReference::default() };
    for bundle in [url(&site.http(GIT, "/app.sab")), file] {
        let used = fetch(&site.fetcher_with(with_store(), PROVEN), &bundle).await.unwrap();
        let next = site.fetcher_with(with_store(), PROVEN);
        assert_eq!(next.kept(&bundle, "a", &used.bundle_sha256).await.unwrap(), Some(used.clone()));
        assert_eq!(next.kept(&bundle, "a", &used.adl_sha256).await.unwrap(), None);
        assert_eq!(next.kept(&bundle, "a", "../../etc/passwd").await.unwrap(), None);
        assert_eq!(site.fetcher().kept(&bundle, "a", &used.bundle_sha256).await.unwrap(), None, "without a store");
    }
}

#[tokio::test]
async fn no_more_bundles_are_in_memory_than_there_are_places() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counters = (Arc::clone(&now), Arc::clone(&most));
    let site = Site::start(move |_| {
        let (now, most) = (Arc::clone(&counters.0), Arc::clone(&counters.1));
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let bytes = sab("App");
        Response::new(Body::from_stream(futures::stream::once(async move {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Infallible>(bytes)
        })))
    })
    .await;
    let bundles: Vec<_> = (0..8).map(|number| url(&site.http(GIT, &format!("/{number}.sab")))).collect();
    let kubernetes = kubernetes(&[]);
    // namespaces that take turns, places -> bundles at the same time
    for (namespaces, at_once, expected) in [(&["a"][..], 2, 1), (&["a"][..], 4, 2), (&["a", "b", "c"][..], 2, 2)] {
        let fetcher = site.fetcher_with(FetchOptions { at_once, allowed: loopback(), ..options() }, PROVEN);
        let fetches = bundles.iter().zip(namespaces.iter().cycle());
        let fetches = fetches.map(|(bundle, namespace)| fetcher.fetch(bundle, namespace, &kubernetes));
        let fetched = futures::future::join_all(fetches).await;
        assert!(fetched.iter().all(Result::is_ok), "{fetched:?}");
        assert_eq!(most.swap(0, Ordering::SeqCst), expected, "{namespaces:?} {at_once}");
    }
}

#[tokio::test]
async fn the_adl_is_taken_out_as_it_is_compiled_and_has_a_limit() {
    let files = tempfile::tempdir().unwrap();
    let bytes = sab("App");
    std::fs::write(files.path().join("demo.App.sab"), &bytes).unwrap();
    std::fs::write(files.path().join("part.sab"), &bytes[..100]).unwrap();
    let file = |name: &str| BundleReference { file: Some(name.to_owned()), ..BundleReference::default() };
    let options = FetchOptions { directory: Some(files.path().to_owned()), ..options() };
    let fetcher = Fetcher::new(options.clone()).unwrap();
    let application = fetch(&fetcher, &file("demo.App.sab")).await.unwrap();
    assert!(std::str::from_utf8(&application.adl).unwrap().contains("/tmp/assets/demo"));
    assert_eq!(application.sab_name, format!("demo.App-{}.sab", &application.bundle_sha256[..16]));
    let (reason, _, message) = fails(&fetcher, &file("part.sab")).await;
    assert!(reason == "BundleInvalid" && message.starts_with("part.sab is not a usable bundle"), "{message}");
    let small = Fetcher::new(FetchOptions { max_adl_bytes: 100, ..options }).unwrap();
    assert_eq!(fails(&small, &file("demo.App.sab")).await.0, "BundleTooLarge");
}
