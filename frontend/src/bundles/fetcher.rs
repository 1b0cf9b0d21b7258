//! Fetches the bundle that a job refers to, and extracts the application.

use super::BundleError;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use moka::sync::Cache;
use reqwest::{StatusCode, header};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::Duration;
use streams_api::{BundleReference, PullPolicy};
use streams_kubernetes::error::with_causes;
use url::Url;

/// How long a connection may take (rule fetch-5).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 5;
/// Key of the token in a Secret (rule fetch-8).
const TOKEN_KEY: &str = "token";
/// Media type that makes the GitHub contents API send the file itself.
const ACCEPT: &str = "application/vnd.github.v3.raw";

/// Where bundles may come from (rule fetch-3), and how large they may be (rule fetch-6).
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Directory that `file` and plain names refer to.
    pub directory: Option<PathBuf>,
    /// Address that plain names are appended to when there is no such file.
    pub base_url: Option<Url>,
    /// Whether `http` is allowed besides `https`.
    pub allow_http: bool,
    /// Longest download.
    pub time_out: Duration,
    /// Largest bundle in bytes.
    pub max_bytes: usize,
    /// Bytes of downloaded bundles that are kept for later submissions.
    pub cache_bytes: u64,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            directory: None,
            base_url: None,
            allow_http: false,
            time_out: Duration::from_secs(120),
            max_bytes: 512 << 20,
            cache_bytes: 256 << 20,
        }
    }
}

/// What a job needs of its bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// File name of the bundle, as PEs ask for it.
    pub sab_name: String,
    /// The ADL as it is compiled: build id and directories set.
    pub adl: Bytes,
    /// SHA-256 of the ADL, lower-case hexadecimal.
    pub adl_sha256: String,
    /// SHA-256 of the whole bundle, lower-case hexadecimal.
    pub bundle_sha256: String,
}

/// Fetches bundles. Cheap to clone.
#[derive(Clone)]
pub struct Fetcher {
    options: FetchOptions,
    http: reqwest::Client,
    /// Downloaded bundles by URL (rule fetch-7). A cache only: what is lost is fetched again.
    cache: Cache<String, Bytes>,
}

/// Where the bytes of a bundle are.
#[derive(Debug, PartialEq, Eq)]
enum BundleLocation {
    File(PathBuf),
    Web(Url),
}

impl Fetcher {
    /// A fetcher with these options.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(options: FetchOptions) -> anyhow::Result<Self> {
        // Fails only if there is a provider already, which then serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let allow_http = options.allow_http;
        let redirects = reqwest::redirect::Policy::custom(move |attempt| {
            if attempt.previous().len() > MAX_REDIRECTS {
                attempt.error("too many redirects")
            } else if attempt.url().scheme() != "https" && !allow_http {
                attempt.error("redirected to an address that is not https")
            } else {
                attempt.follow()
            }
        });
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(options.time_out)
            .redirect(redirects)
            .user_agent(concat!("streams-operator/", env!("CARGO_PKG_VERSION")))
            .build()?;
        let cache = Cache::builder()
            .weigher(|_: &String, bundle: &Bytes| u32::try_from(bundle.len()).unwrap_or(u32::MAX))
            .max_capacity(options.cache_bytes)
            .build();
        Ok(Self { options, http, cache })
    }

    /// Fetches the bundle of a job in `namespace` and takes the ADL out. `kubernetes` reads the Secret, if one is
    /// named.
    ///
    /// # Errors
    /// See [`BundleError`]: what the user must correct, and what may work later.
    pub async fn fetch(
        &self,
        bundle: &BundleReference,
        namespace: &str,
        kubernetes: &kube::Client,
    ) -> Result<Application, BundleError> {
        let sab_name =
            bundle.sab_name().ok_or_else(|| BundleError::permanent("BundleInvalid", "the bundle has no name"))?;
        let bytes = match self.source(bundle).await? {
            BundleLocation::File(path) => self.read(&path).await?,
            BundleLocation::Web(url) => {
                let cached = self.cache.get(url.as_str()).filter(|_| bundle.pull_policy == PullPolicy::IfNotPresent);
                match cached {
                    Some(bytes) => bytes,
                    None => {
                        let token = match &bundle.secret {
                            Some(secret) => Some(token(kubernetes, namespace, secret).await?),
                            None => None,
                        };
                        let bytes = self.download(&url, token.as_deref()).await?;
                        self.cache.insert(url.to_string(), bytes.clone());
                        bytes
                    }
                }
            }
        };
        let name = sab_name.to_owned();
        // Inflating is a matter of seconds for a large bundle: not on a thread that serves others.
        let extracted = tokio::task::spawn_blocking(move || extract(name, &bytes)).await;
        extracted.map_err(|error| BundleError::transient("BundleUnreadable", format!("reading {sab_name}: {error}")))?
    }

    async fn source(&self, bundle: &BundleReference) -> Result<BundleLocation, BundleError> {
        if let Some(file) = &bundle.file {
            return self.inside_directory(Path::new(file)).await.map(BundleLocation::File);
        }
        if let Some(url) = &bundle.url {
            let parsed = Url::parse(url)
                .map_err(|error| BundleError::permanent("BundleInvalid", format!("{url} is not a URL: {error}")))?;
            return match parsed.scheme() {
                "https" => Ok(BundleLocation::Web(parsed)),
                "http" if self.options.allow_http => Ok(BundleLocation::Web(parsed)),
                "http" => {
                    Err(BundleError::permanent("BundleRefused", format!("{url}: http is not allowed, use https")))
                }
                "file" => self.inside_directory(Path::new(parsed.path())).await.map(BundleLocation::File),
                scheme => Err(BundleError::permanent("BundleInvalid", format!("{url}: {scheme} is not supported"))),
            };
        }
        let name = bundle.sab_name().unwrap_or_default();
        match (self.inside_directory(Path::new(name)).await, &self.options.base_url) {
            (Ok(path), _) => Ok(BundleLocation::File(path)),
            (Err(_), Some(base)) => base
                .join(name)
                .map(BundleLocation::Web)
                .map_err(|error| BundleError::permanent("BundleInvalid", format!("{name} makes no URL: {error}"))),
            (Err(error), None) => Err(error),
        }
    }

    /// The real path of a file, which must lie inside the bundle directory after links are followed (rule fetch-4). An
    /// absolute path is taken as it is if it lies there, and relative to the directory otherwise.
    async fn inside_directory(&self, file: &Path) -> Result<PathBuf, BundleError> {
        let shown = file.display();
        let Some(directory) = &self.options.directory else {
            return Err(BundleError::permanent(
                "BundleRefused",
                format!("bundle {shown}: this frontend has no bundle directory; use a url"),
            ));
        };
        let root = tokio::fs::canonicalize(directory).await.map_err(|error| {
            BundleError::transient("BundleUnreadable", format!("the bundle directory cannot be read: {error}"))
        })?;
        let relative = file.strip_prefix(&root).or_else(|_| file.strip_prefix("/")).unwrap_or(file);
        let missing = |error: std::io::Error| {
            let message = format!("bundle {shown} cannot be read: {error}");
            match error.kind() {
                std::io::ErrorKind::NotFound => BundleError::permanent("BundleNotFound", message),
                _ => BundleError::transient("BundleUnreadable", message),
            }
        };
        let path = tokio::fs::canonicalize(root.join(relative)).await.map_err(missing)?;
        if !path.starts_with(&root) {
            return Err(BundleError::permanent(
                "BundleRefused",
                format!("bundle {shown} is outside the bundle directory"),
            ));
        }
        Ok(path)
    }

    async fn read(&self, path: &Path) -> Result<Bytes, BundleError> {
        let name = path.file_name().unwrap_or_default().display();
        let unreadable =
            |error| BundleError::transient("BundleUnreadable", format!("bundle {name} cannot be read: {error}"));
        let metadata = tokio::fs::metadata(path).await.map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(BundleError::permanent("BundleInvalid", format!("bundle {name} is not a file")));
        }
        if metadata.len() > self.options.max_bytes as u64 {
            return Err(self.too_large(&name.to_string()));
        }
        tokio::fs::read(path).await.map(Bytes::from).map_err(unreadable)
    }

    fn too_large(&self, name: &str) -> BundleError {
        BundleError::permanent(
            "BundleTooLarge",
            format!("bundle {name} has more than {} bytes", self.options.max_bytes),
        )
    }

    async fn download(&self, url: &Url, token: Option<&str>) -> Result<Bytes, BundleError> {
        let mut request = self.http.get(url.clone()).header(header::ACCEPT, ACCEPT);
        if let Some(token) = token {
            // Not sent on to another host when redirected: reqwest takes it off.
            request = request.header(header::AUTHORIZATION, format!("token {token}"));
        }
        let failed = |error: reqwest::Error| {
            let error = error.without_url();
            let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source());
            let message = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
            let message = format!("{} cannot be fetched: {message}", shown(url));
            match error.is_redirect() {
                true => BundleError::permanent("BundleRefused", message),
                false => BundleError::transient("BundleUnavailable", message),
            }
        };
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        if !status.is_success() {
            let message = format!("{} cannot be fetched: the server answers {status}", shown(url));
            let temporary = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
            return Err(match status {
                StatusCode::NOT_FOUND | StatusCode::GONE => BundleError::permanent("BundleNotFound", message),
                _ if status.is_client_error() && !temporary => BundleError::permanent("BundleRefused", message),
                _ => BundleError::transient("BundleUnavailable", message),
            });
        }
        if response.content_length().is_some_and(|length| length > self.options.max_bytes as u64) {
            return Err(self.too_large(&shown(url)));
        }
        let mut body = BytesMut::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(failed)?;
            if body.len() + chunk.len() > self.options.max_bytes {
                return Err(self.too_large(&shown(url)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }
}

/// The URL without user, password and query, which may hold secrets (rule fetch-9).
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Fails only for URLs that cannot have a user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

async fn token(kubernetes: &kube::Client, namespace: &str, name: &str) -> Result<String, BundleError> {
    let api: kube::Api<Secret> = kube::Api::namespaced(kubernetes.clone(), namespace);
    let secret = api.get_opt(name).await.map_err(|error| {
        BundleError::transient("SecretUnreadable", format!("secret {name} cannot be read: {}", with_causes(&error)))
    })?;
    let secret =
        secret.ok_or_else(|| BundleError::transient("SecretNotFound", format!("there is no secret {name}")))?;
    let token = secret.data.unwrap_or_default().remove(TOKEN_KEY).map(|bytes| String::from_utf8(bytes.0));
    match token {
        Some(Ok(token)) => Ok(token.trim().to_owned()),
        _ => Err(BundleError::transient("SecretInvalid", format!("secret {name} has no key {TOKEN_KEY} with text"))),
    }
}

fn extract(sab_name: String, bytes: &Bytes) -> Result<Application, BundleError> {
    let options = streams_bundle::ReadOptions::default();
    let invalid = |error: streams_bundle::Error| {
        BundleError::permanent("BundleInvalid", format!("{sab_name} is not a usable bundle: {error}"))
    };
    let bundle = streams_bundle::Bundle::read(std::io::Cursor::new(bytes), &options).map_err(invalid)?;
    let adl = Bytes::from(bundle.adl_for_submission().map_err(invalid)?);
    Ok(Application {
        adl_sha256: hex::encode(Sha256::digest(&adl)),
        bundle_sha256: hex::encode(Sha256::digest(bytes)),
        adl,
        sab_name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(url: Option<&str>, file: Option<&str>, name: Option<&str>) -> BundleReference {
        let own = |text: Option<&str>| text.map(str::to_owned);
        BundleReference { url: own(url), file: own(file), name: own(name), ..BundleReference::default() }
    }

    #[tokio::test]
    async fn files_come_from_inside_the_bundle_directory_only() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("bundles");
        std::fs::create_dir_all(directory.join("sub")).unwrap();
        std::fs::write(parent.path().join("secret.sab"), "x").unwrap();
        std::fs::write(directory.join("sub/app.sab"), "x").unwrap();
        std::os::unix::fs::symlink(parent.path().join("secret.sab"), directory.join("link.sab")).unwrap();
        let options = FetchOptions { directory: Some(directory.clone()), ..FetchOptions::default() };
        let fetcher = Fetcher::new(options).unwrap();
        let real = std::fs::canonicalize(directory.join("sub/app.sab")).unwrap();
        let inside = format!("file://{}", real.display());
        let outside = format!("file://{}/secret.sab", parent.path().display());
        for (bundle, expected) in [
            (reference(None, Some("sub/app.sab"), None), Ok(())),
            (reference(Some("file:///sub/app.sab"), None, None), Ok(())),
            (reference(Some(&inside), None, None), Ok(())),
            (reference(None, None, Some("sub/app.sab")), Ok(())),
            (reference(Some(&outside), None, None), Err("BundleNotFound")),
            (reference(None, Some("../secret.sab"), None), Err("BundleRefused")),
            (reference(None, Some("link.sab"), None), Err("BundleRefused")),
            (reference(None, Some("gone.sab"), None), Err("BundleNotFound")),
            (reference(Some("http://example.com/app.sab"), None, None), Err("BundleRefused")),
            (reference(Some("ftp://example.com/app.sab"), None, None), Err("BundleInvalid")),
        ] {
            let source = fetcher.source(&bundle).await;
            let reason = source.as_ref().map(|source| assert_eq!(*source, BundleLocation::File(real.clone())));
            assert_eq!(reason.map_err(|error| error.reason()), expected, "{bundle:?}");
        }
    }

    #[tokio::test]
    async fn without_a_directory_only_urls_work() {
        let fetcher = Fetcher::new(FetchOptions::default()).unwrap();
        let error = fetcher.source(&reference(None, Some("app.sab"), None)).await.unwrap_err();
        assert_eq!(error.reason(), "BundleRefused");
        let url = reference(Some("https://example.com/app.sab"), None, None);
        assert!(matches!(fetcher.source(&url).await, Ok(BundleLocation::Web(_))));
    }

    /// A web server with one answer per path; returns its address.
    async fn server() -> String {
        use axum::Router;
        use axum::http::HeaderMap;
        use axum::response::Redirect;
        use axum::routing::get;
        let whoami = |headers: HeaderMap| async move {
            let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("-").to_owned();
            format!("{} {}", header("accept"), header("authorization"))
        };
        let router = Router::new()
            .route("/whoami", get(whoami))
            .route("/large", get(|| async { vec![0_u8; 4096] }))
            .route("/loop", get(|| async { Redirect::temporary("/loop") }))
            .route("/busy", get(|| async { StatusCode::SERVICE_UNAVAILABLE }))
            .route("/forbidden", get(|| async { StatusCode::FORBIDDEN }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}")
    }

    #[tokio::test]
    async fn answers_of_a_server_are_told_apart() {
        let base = server().await;
        let fetcher =
            Fetcher::new(FetchOptions { allow_http: true, max_bytes: 1024, ..FetchOptions::default() }).unwrap();
        for (path, reason, transient) in [
            ("/large", "BundleTooLarge", false),
            ("/loop", "BundleRefused", false),
            ("/busy", "BundleUnavailable", true),
            ("/forbidden", "BundleRefused", false),
            ("/missing", "BundleNotFound", false),
        ] {
            let url = Url::parse(&format!("{base}{path}?token=hidden")).unwrap();
            let error = fetcher.download(&url, None).await.unwrap_err();
            assert_eq!((error.reason(), error.is_transient()), (reason, transient), "{path}: {error}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
        let url = Url::parse(&format!("{base}/whoami")).unwrap();
        let seen = fetcher.download(&url, Some("t0")).await.unwrap();
        assert_eq!(seen, format!("{ACCEPT} token t0"));
    }

    #[test]
    fn the_adl_is_taken_out_as_it_is_compiled() {
        let adl = "<applicationSet xmlns='http://www.ibm.com/xmlns/prod/streams/application/v4200'>\
                   <splApplication buildId='' outputDirectory='demo' applicationDirectory='kit'/></applicationSet>";
        let application = streams_bundle::Application {
            name: "demo.Main".to_owned(),
            output_directory: "demo".to_owned(),
            toolkit: "demo".to_owned(),
            toolkit_version: "1.0.0".to_owned(),
            adl: adl.to_owned(),
        };
        let bytes = Bytes::from(streams_bundle::Builder::new(application).build().unwrap());
        let application = extract("demo.Main.sab".to_owned(), &bytes).unwrap();
        assert_eq!(application.adl_sha256, hex::encode(Sha256::digest(&application.adl)));
        assert!(std::str::from_utf8(&application.adl).unwrap().contains("/tmp/assets/demo"));
        let error = extract("demo.Main.sab".to_owned(), &bytes.slice(..100)).unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("BundleInvalid", false));
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_tried_again() {
        let fetcher = Fetcher::new(FetchOptions { allow_http: true, ..FetchOptions::default() }).unwrap();
        let error = fetcher.download(&Url::parse("http://127.0.0.1:1/a.sab").unwrap(), None).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
}
