//! Label and field selectors, as far as they are used: `a=b`, `a!=b`, `a`, joined by commas.

use serde_json::Value;

/// Whether the labels of an object match.
pub(crate) fn by_labels(selector: &str, object: &Value) -> bool {
    matches(selector, |name| object["metadata"]["labels"][name].as_str())
}

/// Whether the fields of an object match.
pub(crate) fn by_fields(selector: &str, object: &Value) -> bool {
    matches(selector, |path| {
        let found = path.split('.').fold(object, |value, name| &value[name]);
        Some(found.as_str().unwrap_or_default())
    })
}

fn matches<'a>(selector: &str, value: impl Fn(&str) -> Option<&'a str>) -> bool {
    selector.split(',').map(str::trim).filter(|part| !part.is_empty()).all(|part| {
        if let Some((name, unwanted)) = part.split_once("!=") {
            value(name) != Some(unwanted)
        } else if let Some((name, wanted)) = part.split_once('=') {
            value(name) == Some(wanted.trim_start_matches('='))
        } else {
            value(part).is_some()
        }
    })
}
