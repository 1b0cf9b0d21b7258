//! Which application bundle a job runs (rule fetch-1).

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
    /// Name of the bundle, e.g. `apps.parallel.Parallel.sab`. Default: the last segment of `url` or `file`.
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
    /// Whether a cached bundle may be used.
    #[serde(default)]
    pub pull_policy: PullPolicy,
    /// Secret of the job's namespace whose key `token` is sent to the server of `url` (GitHub contents API).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret: Option<String>,
}

impl BundleReference {
    /// The name given to PEs (rule fetch-2): `name`, else the last segment of `url` or `file`.
    pub fn sab_name(&self) -> Option<&str> {
        let path = self.file.as_deref().or(self.url.as_deref());
        let last = || path.and_then(|path| path.rsplit('/').next()).filter(|segment| !segment.is_empty());
        self.name.as_deref().or_else(last)
    }
}

/// When a bundle is fetched although there is a cached one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// Only if there is no cached one.
    #[default]
    IfNotPresent,
    /// At every submission.
    Always,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_given_to_pes_defaults_to_the_last_segment() {
        let reference = |name: Option<&str>, url: Option<&str>, file: Option<&str>| BundleReference {
            name: name.map(str::to_owned),
            url: url.map(str::to_owned),
            file: file.map(str::to_owned),
            ..BundleReference::default()
        };
        let table = [
            (reference(Some("a.sab"), Some("https://h/b.sab"), None), Some("a.sab")),
            (reference(None, Some("https://h/x/b.sab"), None), Some("b.sab")),
            (reference(None, None, Some("dir/c.sab")), Some("c.sab")),
            (reference(None, Some("https://h/"), None), None),
            (reference(None, None, None), None),
        ];
        for (bundle, expected) in table {
            assert_eq!(bundle.sab_name(), expected, "{bundle:?}");
        }
    }
}
