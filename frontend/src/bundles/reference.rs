//! What the reference in a job names: a file, or an address (rules fetch-1 and fetch-3).
//!
//! Knows: schemes, which options permit which, what of a URL may be shown. Must not know: how files are read, how
//! addresses are asked, who may.
//!
//! Invariant: nothing of a query, a fragment, a user or a password leaves here in a message (rule fetch-9).

use super::error::BundleError;
use super::options::FetchOptions;
use std::path::{Path, PathBuf};
use streams_api::BundleReference;
use url::Url;

/// Where the bytes are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BundleLocation {
    /// A path that the bundle directory is asked for.
    File(PathBuf),
    /// An address that the job names.
    Web(Url),
    /// A file of the bundle directory, else the name appended to the base URL of the frontend.
    Named(PathBuf, Url),
}

/// What a reference names, as far as the options permit it.
///
/// # Errors
/// What no edit of anything but the job could put right.
pub(super) fn source(bundle: &BundleReference, options: &FetchOptions) -> Result<BundleLocation, BundleError> {
    if let Some(file) = &bundle.file {
        return Ok(BundleLocation::File(file.into()));
    }
    let Some(url) = &bundle.url else { return named(bundle.name.as_deref().unwrap_or_default(), options) };
    // What cannot be parsed cannot be stripped of what must not be shown.
    let invalid = |error| BundleError::permanent("BundleInvalid", format!("bundle.url is not a URL: {error}"));
    let url = Url::parse(url).map_err(invalid)?;
    match url.scheme() {
        "file" => Ok(BundleLocation::File(Path::new(url.path()).to_owned())),
        "https" | "http" => {
            check_scheme(&url, options)?;
            if bundle.secret.is_some() && has_user(&url) {
                let message = format!("{}: a URL with a user or password cannot have a secret as well", shown(&url));
                return Err(BundleError::permanent("BundleInvalid", message));
            }
            Ok(BundleLocation::Web(url))
        }
        scheme => Err(BundleError::permanent("BundleInvalid", format!("{}: {scheme} is not supported", shown(&url)))),
    }
}

fn named(name: &str, options: &FetchOptions) -> Result<BundleLocation, BundleError> {
    let Some(base) = &options.base_url else { return Ok(BundleLocation::File(name.into())) };
    match base.join(name) {
        Ok(url) => Ok(BundleLocation::Named(name.into(), url)),
        Err(error) => Err(BundleError::permanent("BundleInvalid", format!("{name} makes no URL: {error}"))),
    }
}

/// Whether a URL is `https`, or `http` where that is allowed.
///
/// # Errors
/// When it is not; `https` is what helps.
pub(super) fn check_scheme(url: &Url, options: &FetchOptions) -> Result<(), BundleError> {
    match url.scheme() {
        "https" => Ok(()),
        "http" if options.allow_http => Ok(()),
        scheme => {
            let message = format!("{}: {scheme} is not allowed, use https", shown(url));
            Err(BundleError::permanent("BundleRefused", message))
        }
    }
}

/// Whether a URL has a user or a password.
pub(super) fn has_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// The URL without user and password.
pub(super) fn without_user(mut url: Url) -> Url {
    // Fails only for URLs that cannot have a user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// The URL without user, password, query and fragment, which may hold secrets (rule fetch-9).
pub(super) fn shown(url: &Url) -> String {
    let mut url = without_user(url.clone());
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(url: &str) -> BundleReference {
        BundleReference { url: Some(url.to_owned()), ..BundleReference::default() }
    }

    #[test]
    fn a_reference_names_a_file_or_an_address() {
        let web = |text: &str| Ok(BundleLocation::Web(Url::parse(text).unwrap()));
        let file = |path: &str| Ok(BundleLocation::File(path.into()));
        let own = |text: &str| Some(text.to_owned());
        let named = BundleReference { name: own("a.sab"), ..BundleReference::default() };
        let base = FetchOptions { base_url: Some(Url::parse("http://bundles/b/").unwrap()), ..FetchOptions::default() };
        let http = FetchOptions { allow_http: true, ..FetchOptions::default() };
        let none = FetchOptions::default();
        let secret = BundleReference { secret: own("s"), ..url("https://u:p@h/a.sab") };
        // reference, options -> source or reason
        let table = [
            (BundleReference { file: own("d/a.sab"), ..BundleReference::default() }, &none, file("d/a.sab")),
            (url("file:///d/a.sab"), &none, file("/d/a.sab")),
            (url("https://h/a.sab?ref=v1"), &none, web("https://h/a.sab?ref=v1")),
            (url("https://u:p@h/a.sab"), &none, web("https://u:p@h/a.sab")),
            (secret, &none, Err("BundleInvalid")),
            (url("http://h/a.sab"), &none, Err("BundleRefused")),
            (url("http://h/a.sab"), &http, web("http://h/a.sab")),
            (url("ftp://h/a.sab"), &none, Err("BundleInvalid")),
            (url("https://[/a.sab"), &none, Err("BundleInvalid")),
            (named.clone(), &none, file("a.sab")),
            (named, &base, Ok(BundleLocation::Named("a.sab".into(), Url::parse("http://bundles/b/a.sab").unwrap()))),
        ];
        for (bundle, options, expected) in table {
            let found = source(&bundle, options);
            assert_eq!(
                found.as_ref().map_err(BundleError::reason),
                expected.as_ref().map_err(|reason| *reason),
                "{bundle:?}"
            );
        }
    }

    #[test]
    fn no_message_shows_a_secret() {
        for text in [
            "http://user:hidden@h/a.sab?token=hidden#hidden",
            "ftp://user:hidden@h/a.sab?token=hidden",
            "https://user:hidden@[/?hidden",
            "https://hidden:port/?hidden",
        ] {
            let error = source(&url(text), &FetchOptions::default()).unwrap_err();
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
    }
}
