//! Where the container of a PE sees its volumes (rule pod-9). The runtime knows these paths.
//!
//! Checkpoints in a file system are the one volume whose place users choose. It must not be that of another one: the
//! API server refuses a pod with two mounts at one path, and where it does not see that two texts are one path, one
//! volume would cover the other.
//!
//! Knows: paths. Must not know: what is at them.

/// The text of the PE.
pub const TEXT: &str = "/etc/config/pe";
/// What all PEs of the job share.
pub const JOB: &str = "/etc/config/job";
/// The data directory.
pub const DATA: &str = "/data";
/// Application properties.
pub const APP_PROPERTIES: &str = "/etc/config/app";
/// Restricted properties.
pub const RESTRICTED_PROPERTIES: &str = "/etc/config/restricted";

/// All of them, whether a PE has the volume or not: whether it has follows from options that can be edited.
const ALL: [&str; 5] = [TEXT, JOB, DATA, APP_PROPERTIES, RESTRICTED_PROPERTIES];

/// The place, or the root of the file system, that this path stands for, if it cannot be that of checkpoints. A slash
/// at its end, two in a row and `.` mean nothing, and `..` leads back: a job may have it that was stored before the API
/// server refused it.
pub fn taken(path: &str) -> Option<&'static str> {
    let mut resolved = Vec::new();
    for part in parts(path) {
        if part == ".." {
            resolved.pop();
        } else {
            resolved.push(part);
        }
    }
    if resolved.is_empty() {
        return Some("/");
    }
    ALL.into_iter().find(|place| parts(place).eq(resolved.iter().copied()))
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !matches!(*part, "" | "."))
}

/// [`taken`] as a rule for the API server: the text, which has no `..`, must be another path (rule job-38). It is a
/// regular expression, because the API server takes what splits and joins texts for too expensive.
pub(crate) fn free() -> String {
    format!("!self.matches('{}')", pattern())
}

/// Matches the paths that are [`taken`].
fn pattern() -> String {
    // What is between two parts of a path.
    let between = "/+([.]/+)*";
    let places: Vec<String> = ALL.iter().map(|place| parts(place).collect::<Vec<_>>().join(between)).collect();
    format!("^{between}(({})(/+[.])*/*|[.]?)$", places.join("|"))
}

/// What [`free`] says.
pub(crate) fn free_says() -> kube::core::Message {
    let places = ALL.join(", ");
    kube::core::Message::Message(format!(
        "must be a place of its own: not /, nor where PEs see other volumes ({places})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_however_it_is_written() {
        // path -> place
        let table = [
            ("/checkpoint", None),
            ("/etc/config", None),
            ("/data/checkpoints", None),
            ("/database", None),
            ("/etc/config/pe-packed", None),
            ("/data", Some("/data")),
            ("/data/", Some("/data")),
            ("//data", Some("/data")),
            ("/./etc//config/./pe/.", Some("/etc/config/pe")),
            ("/etc/config/job", Some("/etc/config/job")),
            ("/etc/config/app/", Some("/etc/config/app")),
            ("/etc/config/restricted", Some("/etc/config/restricted")),
            ("/", Some("/")),
            ("//.", Some("/")),
            ("/checkpoint/../data", Some("/data")),
            ("/../etc/x/./../config/pe", Some("/etc/config/pe")),
            ("/checkpoint/..", Some("/")),
            ("/data/../checkpoint", None),
            ("/data/..a", None),
        ];
        for (path, place) in table {
            assert_eq!(taken(path), place, "{path}");
        }
    }

    #[test]
    fn the_api_server_is_told_all_places() {
        let slash = "/+([.]/+)*";
        let config = format!("etc{slash}config{slash}");
        let places = format!("{config}pe|{config}job|data|{config}app|{config}restricted");
        assert_eq!(free(), format!("!self.matches('^{slash}(({places})(/+[.])*/*|[.]?)$')"));
    }
}
