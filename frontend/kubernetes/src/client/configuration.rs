//! Which API server a program on somebody's machine talks to, and through which proxy.
//!
//! A proxy is chosen as kubectl chooses it: the `proxy-url` of the kubeconfig; without one, `HTTPS_PROXY` (for a server
//! without TLS `HTTP_PROXY`), but not for the machine itself and not for what `NO_PROXY` names. kube's own choice takes
//! `NO_PROXY` for the names of proxies, not of API servers. It is made wherever kube makes a configuration of a
//! kubeconfig, and fails if there is an entry of `NO_PROXY` that kube cannot read, also where no proxy is needed: so
//! this is done here, too.
//!
//! Knows: the kubeconfig, the environment. Must not know: calls.

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::{AuthInfo, Cluster, Context, ExecAuthCluster, Kubeconfig, KubeconfigError};
use std::env;
use std::net::IpAddr;

/// Reads the kubeconfig. Takes the name of a context; without one, the current context is taken.
///
/// # Errors
/// There is no kubeconfig, it cannot be read, or it does not have the context.
pub fn from_kubeconfig(context: Option<&str>) -> Result<Config, KubeconfigError> {
    of_context(&Kubeconfig::read()?, context, &Environment::read())
}

/// The configuration of a context, or of the current one.
fn of_context(
    kubeconfig: &Kubeconfig,
    context: Option<&str>,
    environment: &Environment,
) -> Result<Config, KubeconfigError> {
    let name = context.or(kubeconfig.current_context.as_deref()).ok_or(KubeconfigError::CurrentContextNotSet)?;
    let context = context_of(kubeconfig, name).ok_or_else(|| KubeconfigError::LoadContext(name.to_owned()))?;
    let cluster = cluster_of(kubeconfig, &context.cluster);
    let cluster = cluster.ok_or_else(|| KubeconfigError::LoadClusterOfContext(context.cluster.clone()))?;
    let server = cluster.server.as_deref().ok_or(KubeconfigError::MissingClusterUrl)?;
    let mut config = Config::new(server.parse().map_err(KubeconfigError::ParseClusterUrl)?);
    config.proxy_url = match cluster.proxy_url.as_deref().filter(|proxy| !proxy.is_empty()) {
        Some(proxy) => Some(proxy.parse().map_err(KubeconfigError::ParseProxyUrl)?),
        None => environment.proxy_of(&config.cluster_url).map_err(KubeconfigError::ParseProxyUrl)?,
    };
    if let Some(namespace) = &context.namespace {
        config.default_namespace.clone_from(namespace);
    }
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.disable_compression = cluster.disable_compression.unwrap_or(false);
    config.tls_server_name.clone_from(&cluster.tls_server_name);
    // Whoever logs in by a command may be told all of the cluster, with the certificates of its authority.
    let told = ExecAuthCluster::try_from(cluster)?;
    config.root_cert = told.certificate_authority_data.as_deref().map(certificates).transpose()?;
    // kubectl needs no user either.
    config.auth_info = context.user.as_deref().and_then(|user| user_of(kubeconfig, user)).unwrap_or_default();
    if let Some(command) = config.auth_info.exec.as_mut().filter(|command| command.provide_cluster_info) {
        command.cluster = Some(told);
    }
    Ok(config)
}

fn context_of<'a>(kubeconfig: &'a Kubeconfig, name: &str) -> Option<&'a Context> {
    kubeconfig.contexts.iter().find(|context| context.name == name)?.context.as_ref()
}

fn cluster_of<'a>(kubeconfig: &'a Kubeconfig, name: &str) -> Option<&'a Cluster> {
    kubeconfig.clusters.iter().find(|cluster| cluster.name == name)?.cluster.as_ref()
}

fn user_of(kubeconfig: &Kubeconfig, name: &str) -> Option<AuthInfo> {
    kubeconfig.auth_infos.iter().find(|user| user.name == name)?.auth_info.clone()
}

/// The certificates in a text, as DER.
fn certificates(text: &[u8]) -> Result<Vec<Vec<u8>>, KubeconfigError> {
    let parts = pem::parse_many(text).map_err(KubeconfigError::ParseCertificates)?;
    let certificates = parts.into_iter().filter(|part| part.tag() == "CERTIFICATE");
    Ok(certificates.map(pem::Pem::into_contents).collect())
}

/// What the environment says about proxies.
#[derive(Debug, Default)]
struct Environment {
    http: String,
    https: String,
    none_for: String,
}

impl Environment {
    fn read() -> Self {
        let first = |names: [&str; 2]| {
            names.into_iter().filter_map(|name| env::var(name).ok()).find(|value| !value.is_empty()).unwrap_or_default()
        };
        Self {
            http: first(["HTTP_PROXY", "http_proxy"]),
            https: first(["HTTPS_PROXY", "https_proxy"]),
            none_for: first(["NO_PROXY", "no_proxy"]),
        }
    }

    /// The proxy to an API server. It keeps what the variable says of user and password. Fails if it is no URL.
    fn proxy_of(&self, server: &Uri) -> Result<Option<Uri>, http::uri::InvalidUri> {
        let proxy = match server.scheme_str() {
            Some("http") => &self.http,
            _ => &self.https,
        };
        if proxy.is_empty() || is_this_machine(server) {
            return Ok(None);
        }
        // A proxy without a scheme is spoken to without TLS, as programs in Go do.
        let proxy = if proxy.contains("://") { proxy.parse()? } else { format!("http://{proxy}").parse()? };
        let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
        let none_for: Vec<_> = self.none_for.split(',').filter_map(|entry| at_port(entry.trim(), port)).collect();
        // The matcher is asked only whether the server is left out: it would cut user and password off.
        let matcher = Matcher::builder().all("http://any").no(none_for.join(",")).build();
        Ok(matcher.intercept(server).is_some().then_some(proxy))
    }
}

/// What an entry of `NO_PROXY` names at this port, in words that the matcher knows: it knows no ports, and no asterisk
/// before a domain.
fn at_port(entry: &str, port: u16) -> Option<&str> {
    let entry = entry.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(entry);
    match entry.rsplit_once(':') {
        // Another colon makes it an address of IPv6, unless brackets are around that.
        Some((host, at)) if !host.contains(':') || host.ends_with(']') => {
            (at.parse() == Ok(port)).then_some(host.trim_matches(['[', ']']))
        }
        _ => Some(entry.trim_matches(['[', ']'])),
    }
}

fn is_this_machine(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::{Environment, from_kubeconfig, of_context};
    use kube::Config;
    use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
    use std::env::current_exe;
    use std::fs::write;
    use std::process::Command;

    #[test]
    fn a_proxy_of_the_environment() {
        let table = [
            // API server, HTTP_PROXY, HTTPS_PROXY, NO_PROXY, proxy
            ("https://cluster.example.com:6443", "", "", "", None),
            ("https://cluster.example.com:6443", "", "http://proxy:3128", "", Some("http://proxy:3128/")),
            ("https://cluster.example.com:6443", "", "proxy:3128", "", Some("http://proxy:3128/")),
            (
                "https://cluster.example.com:6443",
                "",
                "http://me:secret@proxy:3128",
                "",
                Some("http://me:secret@proxy:3128/"),
            ),
            ("https://cluster.example.com:6443", "", "socks5://proxy:1080", "", Some("socks5://proxy:1080/")),
            ("https://cluster.example.com:6443", "http://proxy:3128", "", "", None),
            ("https://cluster.example.com:6443", "", "http://proxy:3128", "example.com", None),
            ("https://cluster.example.com:6443", "", "http://proxy:3128", ".example.com", None),
            ("https://cluster.example.com:6443", "", "http://proxy:3128", "proxy", Some("http://proxy:3128/")),
            ("https://cluster.example.com:6443", "", "http://proxy:3128", "*", None),
            ("https://cluster.example.com:6443", "", "proxy:3128", "a, cluster.example.com:6443", None),
            (
                "https://cluster.example.com:6443",
                "",
                "proxy:3128",
                "cluster.example.com:443",
                Some("http://proxy:3128/"),
            ),
            ("https://cluster.example.com", "", "proxy:3128", "cluster.example.com:443", None),
            ("https://cluster.example.com:6443", "", "proxy:3128", "*.example.com,", None),
            ("https://[fd00::1]:6443", "", "proxy:3128", "fd00::1", None),
            ("https://[fd00::1]:6443", "", "proxy:3128", "[fd00::1]:6443", None),
            ("https://[fd00::1]:6443", "", "proxy:3128", "[fd00::1]:443", Some("http://proxy:3128/")),
            ("https://10.1.2.3:6443", "", "proxy:3128", "10.1.2.3:6443", None),
            ("https://10.1.2.3", "", "http://proxy:3128", "10.0.0.0/8", None),
            ("https://10.1.2.3", "", "http://proxy:3128", "192.168.0.0/16", Some("http://proxy:3128/")),
            ("http://cluster:8080", "http://proxy:3128", "", "", Some("http://proxy:3128/")),
            ("http://cluster:8080", "", "http://proxy:3128", "", None),
            ("https://localhost:6443", "", "http://proxy:3128", "", None),
            ("https://127.0.0.1:6443", "", "http://proxy:3128", "", None),
            ("https://[::1]:6443", "", "http://proxy:3128", "", None),
        ];
        for (server, http, https, none_for, expected) in table {
            let environment =
                Environment { http: http.to_owned(), https: https.to_owned(), none_for: none_for.to_owned() };
            let proxy = environment.proxy_of(&server.parse().unwrap()).unwrap();
            let proxy = proxy.map(|proxy| proxy.to_string());
            assert_eq!(proxy.as_deref(), expected, "{server} {http} {https} {none_for}");
        }
        let wrong = Environment { https: "http://a proxy".to_owned(), ..Environment::default() };
        assert!(wrong.proxy_of(&"https://cluster".parse().unwrap()).is_err());
    }

    const KUBECONFIG: &str = "
        current-context: near
        clusters:
        - {name: near, cluster: {server: 'https://near'}}
        - {name: far, cluster: {server: 'https://far', proxy-url: 'http://proxy'}}
        - {name: empty, cluster: {server: 'https://empty', proxy-url: ''}}
        - {name: odd, cluster: {server: 'https://odd', proxy-url: 'http://a proxy'}}
        - {name: unnamed, cluster: {proxy-url: 'http://proxy'}}
        - name: whole
          cluster:
            server: https://whole:6443
            certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFRSUQKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQotLS0tLUJFR0lOIE9USEVSLS0tLS0KQkFVRwotLS0tLUVORCBPVEhFUi0tLS0tCg==
            insecure-skip-tls-verify: true
            disable-compression: true
            tls-server-name: other
        contexts:
        - {name: near, context: {cluster: near}}
        - {name: far, context: {cluster: far, user: nobody}}
        - {name: empty, context: {cluster: empty}}
        - {name: odd, context: {cluster: odd}}
        - {name: unnamed, context: {cluster: unnamed}}
        - {name: lost, context: {cluster: nowhere}}
        - {name: whole, context: {cluster: whole, user: me, namespace: mine}}
        - {name: told, context: {cluster: whole, user: command}}
        users:
        - {name: me, user: {token: secret}}
        - name: command
          user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: login, provideClusterInfo: true}}
        ";

    #[test]
    fn a_proxy_of_a_kubeconfig() {
        let kubeconfig = Kubeconfig::from_yaml(KUBECONFIG).unwrap();
        let environment = Environment { https: "http://other".to_owned(), ..Environment::default() };
        let other = Ok(Some("http://other/"));
        // context -> proxy
        let table = [
            (None, other),
            (Some("near"), other),
            (Some("far"), Ok(Some("http://proxy/"))),
            (Some("empty"), other),
            (Some("odd"), Err("failed to parse proxy url")),
            (Some("unnamed"), Err("cluster url is missing")),
            (Some("lost"), Err("failed to load the cluster of context: nowhere")),
            (Some("unknown"), Err("failed to load current context: unknown")),
        ];
        for (context, expected) in table {
            let found = of_context(&kubeconfig, context, &environment);
            match (found, expected) {
                (Ok(config), Ok(expected)) => {
                    let proxy = config.proxy_url.map(|proxy| proxy.to_string());
                    assert_eq!(proxy.as_deref(), expected, "{context:?}");
                }
                (Err(error), Err(expected)) => assert!(error.to_string().starts_with(expected), "{error}"),
                (found, expected) => panic!("{context:?}: {found:?} {expected:?}"),
            }
        }
        let nothing = of_context(&Kubeconfig::default(), None, &environment);
        assert!(matches!(nothing, Err(KubeconfigError::CurrentContextNotSet)), "{nothing:?}");
    }

    #[tokio::test]
    async fn but_for_the_proxy_it_is_what_kube_makes_of_a_kubeconfig() {
        let kubeconfig = Kubeconfig::from_yaml(KUBECONFIG).unwrap();
        for context in ["near", "far", "empty", "whole", "told"] {
            let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
            let mut by_kube = match Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await {
                // Of whoever runs the test.
                Err(KubeconfigError::ParseNoProxy(_)) => return,
                config => config.unwrap(),
            };
            let mut config = of_context(&kubeconfig, Some(context), &Environment::default()).unwrap();
            (by_kube.proxy_url, config.proxy_url) = (None, None);
            assert_eq!(format!("{config:?}"), format!("{by_kube:?}"), "{context}");
        }
        let whole = of_context(&kubeconfig, Some("whole"), &Environment::default()).unwrap();
        assert_eq!(whole.root_cert, Some(vec![vec![1, 2, 3]]));
    }

    /// In processes of their own: variables cannot be set where there are threads.
    #[test]
    fn entries_of_no_proxy_that_mean_nothing_end_nobody() {
        const NEAR: &str = "https://cluster.example.com:6443";
        let used = "proxy: Some(http://proxy:3128/)";
        // API server, HTTPS_PROXY, NO_PROXY -> what is found
        let table = [
            (NEAR, "http://proxy:3128", "*.example.com,", "proxy: None"),
            (NEAR, "http://proxy:3128", "*.example.org,", used),
            (NEAR, "http://proxy:3128", "a,,cluster.example.com", "proxy: None"),
            (NEAR, "http://proxy:3128", "/var/run/docker.sock,<local>", used),
            (NEAR, "http://proxy:3128", "a b", used),
            (NEAR, "http://proxy:3128", " ", used),
            ("https://127.0.0.1:6443", "http://proxy:3128", ",", "proxy: None"),
            ("https://127.0.0.1:6443", "http://a proxy", "", "proxy: None"),
            ("http://cluster:8080", "http://a proxy", "", "proxy: None"),
            (NEAR, "http://a proxy", "", "failed to parse proxy url"),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        for (server, proxy, none_for, expected) in table {
            let cluster = format!("clusters: [{{name: c, cluster: {{server: '{server}'}}}}]");
            let context = "current-context: c\ncontexts: [{name: c, context: {cluster: c}}]";
            write(&path, format!("{cluster}\n{context}\n")).unwrap();
            let mut process = Command::new(current_exe().unwrap());
            process.args(["--ignored", "--exact", "client::configuration::tests::of_this_process", "--nocapture"]);
            for name in ["HTTP_PROXY", "http_proxy", "https_proxy", "no_proxy"] {
                process.env_remove(name);
            }
            process.env("KUBECONFIG", &path).env("HTTPS_PROXY", proxy).env("NO_PROXY", none_for);
            let output = process.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains(expected), "{server} {proxy} {none_for}: {said}");
        }
    }

    #[test]
    #[ignore = "says what it finds: the test above runs it with variables of its own"]
    fn of_this_process() {
        match from_kubeconfig(None) {
            Ok(config) => println!("proxy: {:?}", config.proxy_url),
            Err(error) => println!("{error}"),
        }
    }
}
