//! Which application bundle a job runs (rule fetch-1).

use super::schema;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The application bundle (a `.sab` file). At least one of `name`, `url` and `file` is needed; `url` and `file` exclude
/// each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.name) || has(self.url) || has(self.file)")
        .message("a bundle needs a name, a url or a file").reason(Reason::FieldValueRequired),
    validation = Rule::new("!(has(self.url) && has(self.file))")
        .message("url and file exclude each other"),
    validation = Rule::new("!has(self.secret) || has(self.url)")
        .message("a secret is only meaningful with a url"),
    validation = Rule::new("!has(self.url) || self.url.matches('^(https?://[^/?#]+|file://)/[^?#]')")
        .message("url must be an https, http or file URL with a path").field_path(".url"),
    validation = Rule::new("!has(self.file) || (!self.file.startsWith('/') && !self.file.split('/').exists(s, s == '..'))")
        .message("file must be a path inside the frontend's bundle directory: relative and without '..'").field_path(".file")
)]
pub struct BundleReference {
    /// Name of the bundle, e.g. `apps.parallel.Parallel.sab`. Default: the last segment of the path of `url` or `file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9_][A-Za-z0-9._-]*$"))]
    pub name: Option<String>,
    /// Where the bundle is fetched from: an `https` URL, an `http` URL (if the frontend allows it), or a `file` URL
    /// inside the frontend's bundle directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub url: Option<String>,
    /// Path of the bundle in the frontend's bundle directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub file: Option<String>,
    /// Whether a bundle that the server gave to this namespace within ten minutes is used without asking again.
    #[serde(default)]
    pub pull_policy: PullPolicy,
    /// Secret of the job's namespace whose key `token` is sent to the server of `url`, by https, if its key `hosts`
    /// (one host[:port] a line) lists that server. Default of `hosts`: the API host of GitHub.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new(schema::OBJECT_NAME).message(schema::OBJECT_NAME_SAYS))]
    pub secret: Option<String>,
}

/// Longest name of a bundle in bytes.
const MAX_NAME: usize = 200;
/// Digits of the SHA-256 in a name.
const DIGITS: usize = 16;
const EXTENSION: &str = ".sab";

impl BundleReference {
    /// The name given to PEs (rule fetch-2): `<stem>-<16 hex digits>.sab`, with the first digits of the bundle's
    /// SHA-256 (lower-case hexadecimal).
    pub fn sab_name(&self, sha256: &str) -> Option<String> {
        let digits = sha256.get(..DIGITS).unwrap_or(sha256);
        Some(format!("{}-{digits}{EXTENSION}", self.stem()?))
    }

    /// What messages call the bundle: its name without a digest.
    pub fn title(&self) -> Option<String> {
        Some(format!("{}{EXTENSION}", self.stem()?))
    }

    /// `name`, else the last segment of the path of `file` or `url`: without extension, of letters, digits and `._-`,
    /// not too long. A query, which may hold secrets, is no part of it.
    fn stem(&self) -> Option<String> {
        let path = || self.file.as_deref().or_else(|| self.url.as_deref().and_then(path));
        let last = || path()?.rsplit('/').next();
        let segment = self.name.as_deref().or_else(last)?;
        let stem = segment.strip_suffix(EXTENSION).unwrap_or(segment);
        let is_safe = |at: usize, c: char| c.is_ascii_alphanumeric() || c == '_' || (at > 0 && (c == '.' || c == '-'));
        let longest = MAX_NAME - DIGITS - EXTENSION.len() - 1;
        let safe = stem.chars().take(longest).enumerate().map(|(at, c)| if is_safe(at, c) { c } else { '_' });
        Some(safe.collect()).filter(|stem: &String| !stem.is_empty())
    }
}

/// The path of a URL, without query and fragment.
fn path(url: &str) -> Option<&str> {
    let url = url.split(['?', '#']).next()?;
    let (_, rest) = url.split_once("://")?;
    rest.split_once('/').map(|(_, path)| path)
}

/// When a server is asked for a bundle that it gave before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// Unless it gave the bundle to this namespace, with the same Secret, within ten minutes.
    #[default]
    IfNotPresent,
    /// At every submission.
    Always,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_given_to_pes_has_a_stem_and_a_digest() {
        let reference = |name: Option<&str>, url: Option<&str>, file: Option<&str>| BundleReference {
            name: name.map(str::to_owned),
            url: url.map(str::to_owned),
            file: file.map(str::to_owned),
            ..BundleReference::default()
        };
        let url = |url| reference(None, Some(url), None);
        let long = format!("https://h/{}.sab", "ä".repeat(300));
        let table = [
            (reference(Some("a.sab"), Some("https://h/b.sab"), None), Some("a")),
            (reference(Some("a"), None, None), Some("a")),
            (reference(None, None, Some("dir/c.sab")), Some("c")),
            (reference(None, None, Some("what is it?#1.sab")), Some("what_is_it__1")),
            (url("https://h/x/demo.Main-1_2.sab"), Some("demo.Main-1_2")),
            (url("https://h/b.sab?token=hidden"), Some("b")),
            (url("https://h/b.sab?path=/c.sab"), Some("b")),
            (url("https://h/b.sab#/c.sab"), Some("b")),
            (url("https://h/b%20c.sab"), Some("b_20c")),
            (url("https://h/..sab"), Some("_")),
            (url("https://h/-rf.sab"), Some("_rf")),
            (url("https://h/b.zip"), Some("b.zip")),
            (url("file:///x/b.sab"), Some("b")),
            (url(&long), Some(&"_".repeat(179))),
            (url("https://h/"), None),
            (url("https://h/.sab"), None),
            (url("https://h"), None),
            (reference(None, None, None), None),
        ];
        let sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for (bundle, stem) in table {
            let name = bundle.sab_name(sha256);
            assert_eq!(name, stem.map(|stem| format!("{stem}-0123456789abcdef.sab")), "{bundle:?}");
            assert!(name.unwrap_or_default().len() <= 200);
            assert_eq!(bundle.title(), stem.map(|stem| format!("{stem}.sab")), "{bundle:?}");
        }
    }
}
