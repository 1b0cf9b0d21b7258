//! Which API server a program on somebody's machine talks to, and through which proxy.
//!
//! A proxy is chosen as kubectl chooses it: the `proxy-url` of the kubeconfig; without one, `HTTPS_PROXY` (for a server
//! without TLS `HTTP_PROXY`), but not for the machine itself and not for what `NO_PROXY` names. kube's own choice takes
//! `NO_PROXY` for the names of proxies, not of API servers.
//!
//! Knows: the kubeconfig, the environment. Must not know: calls.

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use std::env;
use std::net::IpAddr;

/// Reads the kubeconfig.
///
/// Takes the name of a context; without one, the current context is taken. Fails if there is no kubeconfig, if it
/// cannot be read, or if it does not have the context.
pub async fn from_kubeconfig(context: Option<String>) -> Result<Config, KubeconfigError> {
    let kubeconfig = Kubeconfig::read()?;
    let own_proxy = own_proxy(&kubeconfig, context.as_deref()).map(str::to_owned);
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.proxy_url = match own_proxy {
        Some(proxy) => Some(proxy.parse().map_err(KubeconfigError::ParseProxyUrl)?),
        None => Environment::read().proxy_of(&config.cluster_url).map_err(KubeconfigError::ParseProxyUrl)?,
    };
    Ok(config)
}

/// The proxy that a kubeconfig names for the cluster of a context.
fn own_proxy<'a>(kubeconfig: &'a Kubeconfig, context: Option<&str>) -> Option<&'a str> {
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == name)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster)?.cluster.as_ref()?;
    cluster.proxy_url.as_deref().filter(|proxy| !proxy.is_empty())
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
    use super::{Environment, own_proxy};
    use kube::config::Kubeconfig;

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

    #[test]
    fn a_proxy_of_a_kubeconfig() {
        let kubeconfig = Kubeconfig::from_yaml(
            "
            current-context: near
            clusters:
            - {name: near, cluster: {server: 'https://near'}}
            - {name: far, cluster: {server: 'https://far', proxy-url: 'http://proxy'}}
            - {name: empty, cluster: {server: 'https://empty', proxy-url: ''}}
            contexts:
            - {name: near, context: {cluster: near}}
            - {name: far, context: {cluster: far}}
            - {name: empty, context: {cluster: empty}}
            - {name: lost, context: {cluster: nowhere}}
            ",
        )
        .unwrap();
        let table = [
            (None, None),
            (Some("near"), None),
            (Some("far"), Some("http://proxy")),
            (Some("empty"), None),
            (Some("lost"), None),
            (Some("unknown"), None),
        ];
        for (context, expected) in table {
            assert_eq!(own_proxy(&kubeconfig, context), expected, "{context:?}");
        }
    }
}
