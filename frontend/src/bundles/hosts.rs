//! Which hosts a token may go to (rule fetch-8).
//!
//! Knows: lists of `host[:port]`, and whether a URL is on one. Must not know: tokens.
//!
//! Invariant: only `https` URLs are on a list, and only with the very host and port of a line.

use std::str::FromStr;
use url::Url;

/// The API host of GitHub: where tokens go when nobody says otherwise.
const GITHUB: &str = "api.github.com";

/// A list of hosts that are asked by `https`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<Host>);

/// A host as URLs write it, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
    port: u16,
}

impl Hosts {
    /// The API host of GitHub.
    pub(super) fn github() -> Self {
        Self(vec![Host { name: GITHUB.to_owned(), port: 443 }])
    }

    /// The hosts of a text with one in each line.
    ///
    /// # Errors
    /// A line that is no `host[:port]`. The text is not part of the message.
    pub(super) fn lines(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(str::parse).collect::<Result<_, _>>().map(Self)
    }

    /// These hosts and those of another list.
    pub(super) fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// Whether a URL is `https`, with the host and port of this list.
    pub(super) fn list(&self, url: &Url) -> bool {
        url.scheme() == "https"
            && self
                .0
                .iter()
                .any(|host| url.host_str() == Some(&host.name) && url.port_or_known_default() == Some(host.port))
    }
}

impl FromIterator<Host> for Hosts {
    fn from_iter<T: IntoIterator<Item = Host>>(hosts: T) -> Self {
        Self(hosts.into_iter().collect())
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "not a host[:port]".to_owned();
        // A path, a user or a wildcard are no part of a host; the parser writes it as it writes those of bundles.
        if text.is_empty() || text.contains(['/', '\\', '?', '#', '@', '*', ' ', '\t', '%']) {
            return Err(wrong());
        }
        let url = Url::parse(&format!("https://{text}/")).map_err(|_| wrong())?;
        match (url.host_str(), url.port_or_known_default()) {
            (Some(name), Some(port)) => Ok(Self { name: name.to_owned(), port }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_listed_by_its_very_host_and_port_and_by_https_only() {
        let hosts = Hosts::lines("\n git.example.com \nGIT.example.org:8443\r\n[2001:db8::1]\n").unwrap();
        let table = [
            ("https://git.example.com/a.sab", true),
            ("https://git.example.com:443/a.sab", true),
            ("https://GIT.example.com/a.sab", true),
            ("http://git.example.com/a.sab", false),
            ("http://git.example.com:443/a.sab", false),
            ("https://git.example.com:8443/a.sab", false),
            ("https://sub.git.example.com/a.sab", false),
            ("https://git.example.com.evil.net/a.sab", false),
            ("https://git.example.com@evil.net/a.sab", false),
            ("https://example.com/a.sab", false),
            ("https://git.example.org:8443/a.sab", true),
            ("https://git.example.org/a.sab", false),
            ("https://[2001:db8:0::1]/a.sab", true),
            ("https://api.github.com/a.sab", false),
        ];
        for (url, expected) in table {
            assert_eq!(hosts.list(&Url::parse(url).unwrap()), expected, "{url}");
        }
        assert!(Hosts::github().list(&Url::parse("https://api.github.com/repos/o/r/contents/a.sab").unwrap()));
        assert!(!Hosts::lines("").unwrap().list(&Url::parse("https://api.github.com/").unwrap()));
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in ["https://h", "h/path", "*.h", "u@h", "h:port", "h:70000", "a b", ":443", "h?x", "h#x", "h%2fx"] {
            assert!(Hosts::lines(text).is_err(), "{text}");
        }
    }
}
