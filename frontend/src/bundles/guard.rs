//! Which hosts may be connected to: the addresses of a name are checked when the connection is made (rule fetch-11).
//!
//! Knows: names, how they are resolved, the API server. Must not know: requests, tokens.
//!
//! Invariants: the addresses that are checked are those that are connected to, so that a name cannot lead elsewhere
//! meanwhile. A name with one address that is refused is refused. Literal addresses, which no resolver is asked for,
//! are checked by [`Guard::check_literal`].

use super::addresses::AddressRules;
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use url::{Host, Url};

/// Finds the addresses of names.
pub(super) trait Lookup: Send + Sync {
    /// The addresses of a host.
    fn lookup(&self, host: String) -> BoxFuture<'_, std::io::Result<Vec<IpAddr>>>;
}

/// Asks the resolver of the system.
pub(super) struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, host: String) -> BoxFuture<'_, std::io::Result<Vec<IpAddr>>> {
        async move { Ok(tokio::net::lookup_host((host, 0)).await?.map(|found| found.ip()).collect()) }.boxed()
    }
}

/// Why no connection is made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Barred {
    /// An address that must not be connected to. Always the same words: it says nothing about what is there.
    #[error("the frontend does not connect to its address (option --allow-bundle-address)")]
    Refused,
    /// The name has no address.
    #[error("its host has no address")]
    NoAddress,
    /// It is not known which addresses are those of the API server.
    #[error("the addresses that must not be connected to cannot be told")]
    Unknown,
}

/// Decides which hosts may be connected to. Cheap to clone.
#[derive(Clone)]
pub(super) struct Guard {
    rules: Arc<AddressRules>,
    lookup: Arc<dyn Lookup>,
    api_server: Arc<[String]>,
}

impl Guard {
    pub(super) fn new(rules: AddressRules, lookup: Arc<dyn Lookup>, api_server: &[String]) -> Self {
        let api_server = api_server.iter().map(|host| host.trim_matches(['[', ']']).to_lowercase()).collect();
        Self { rules: Arc::new(rules), lookup, api_server }
    }

    /// Checks what a URL says of its host without being resolved: literal addresses, and the names of the API server.
    ///
    /// # Errors
    /// When that must not be connected to.
    pub(super) async fn check_literal(&self, url: &Url) -> Result<(), Barred> {
        match url.host() {
            Some(Host::Ipv4(address)) => self.check(&[address.into()]).await,
            Some(Host::Ipv6(address)) => self.check(&[address.into()]).await,
            Some(Host::Domain(name)) => {
                let name = name.trim_end_matches('.');
                if self.api_server.iter().any(|host| host == name) { Err(Barred::Refused) } else { Ok(()) }
            }
            None => Err(Barred::NoAddress),
        }
    }

    /// The addresses of a name, if all of them may be connected to.
    async fn addresses(&self, name: String) -> Result<Vec<IpAddr>, Barred> {
        let addresses = self.lookup.lookup(name).await.map_err(|error| {
            tracing::debug!(%error, "the host of a bundle cannot be resolved");
            Barred::NoAddress
        })?;
        if addresses.is_empty() {
            return Err(Barred::NoAddress);
        }
        self.check(&addresses).await?;
        Ok(addresses)
    }

    async fn check(&self, addresses: &[IpAddr]) -> Result<(), Barred> {
        let mut api_server = Vec::new();
        for host in &*self.api_server {
            match host.parse() {
                Ok(address) => api_server.push(address),
                Err(_) => api_server.extend(self.lookup.lookup(host.clone()).await.map_err(|_| Barred::Unknown)?),
            }
        }
        let api_server: Vec<IpAddr> = api_server.iter().map(IpAddr::to_canonical).collect();
        let permitted = addresses.iter().all(|address| self.rules.permit(*address, &api_server));
        if permitted { Ok(()) } else { Err(Barred::Refused) }
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let addresses = guard.addresses(name.as_str().to_owned()).await?;
            // The port is that of the URL.
            Ok(Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Names and their addresses.
    pub(in super::super) struct Names(pub(in super::super) HashMap<&'static str, Vec<&'static str>>);

    impl Lookup for Names {
        fn lookup(&self, host: String) -> BoxFuture<'_, std::io::Result<Vec<IpAddr>>> {
            let found = self.0.get(host.as_str()).ok_or_else(|| std::io::ErrorKind::NotFound.into());
            let found = found.map(|found| found.iter().map(|address| address.parse().unwrap()).collect());
            async move { found }.boxed()
        }
    }

    fn guard(api_server: &[&str]) -> Guard {
        let names = [
            ("public", vec!["8.8.8.8", "2001:4860:4860::8888"]),
            ("metadata", vec!["169.254.169.254"]),
            ("mixed", vec!["8.8.8.8", "127.0.0.1"]),
            ("mapped", vec!["::ffff:127.0.0.1"]),
            ("nowhere", vec![]),
            ("api", vec!["10.96.0.1"]),
            ("alias-of-api", vec!["10.96.0.1"]),
        ];
        let api_server: Vec<String> = api_server.iter().map(|host| (*host).to_owned()).collect();
        Guard::new(AddressRules::new(&[], &[]), Arc::new(Names(names.into())), &api_server)
    }

    #[tokio::test]
    async fn a_name_is_refused_with_any_of_its_addresses() {
        let table = [
            ("public", Ok(2)),
            ("metadata", Err(Barred::Refused)),
            ("mixed", Err(Barred::Refused)),
            ("mapped", Err(Barred::Refused)),
            ("nowhere", Err(Barred::NoAddress)),
            ("unknown", Err(Barred::NoAddress)),
            ("alias-of-api", Err(Barred::Refused)),
        ];
        for (name, expected) in table {
            let found = guard(&["api"]).addresses(name.to_owned()).await.map(|found| found.len());
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(guard(&["10.96.0.1"]).addresses("alias-of-api".to_owned()).await, Err(Barred::Refused));
        assert_eq!(guard(&["lost"]).addresses("public".to_owned()).await, Err(Barred::Unknown));
    }

    #[tokio::test]
    async fn a_literal_address_is_checked_however_it_is_written() {
        let guard = guard(&["api", "10.96.0.1", "[fd00::1]"]);
        let table = [
            ("https://8.8.8.8/", Ok(())),
            ("https://127.0.0.1/", Err(Barred::Refused)),
            ("https://127.1/", Err(Barred::Refused)),
            ("https://0x7f000001/", Err(Barred::Refused)),
            ("https://2130706433/", Err(Barred::Refused)),
            ("https://0177.0.0.1/", Err(Barred::Refused)),
            ("https://127.0.0.1./", Err(Barred::Refused)),
            ("https://①②⑦.0.0.1/", Err(Barred::Refused)),
            ("https://[::1]/", Err(Barred::Refused)),
            ("https://[::ffff:a9fe:a9fe]/", Err(Barred::Refused)),
            ("https://[64:ff9b::7f00:1]/", Err(Barred::Refused)),
            ("https://10.96.0.1:6443/", Err(Barred::Refused)),
            ("https://[fd00::1]/", Err(Barred::Refused)),
            ("https://API./", Err(Barred::Refused)),
            ("https://other/", Ok(())),
        ];
        for (url, expected) in table {
            assert_eq!(guard.check_literal(&Url::parse(url).unwrap()).await, expected, "{url}");
        }
    }
}
