//! Where the container of a PE sees its volumes (rule pod-9), and what else of its file system it needs. The runtime
//! knows these paths.
//!
//! Checkpoints in a file system are the one volume whose place users choose. It must not be that of another one: the
//! API server refuses a pod with two mounts at one path, and where it does not see that two texts are one path, one
//! volume would cover the other. Nor must it cover what the runtime and its image have: all PEs of a job share the
//! volume of checkpoints, and there each of them has files of its own.
//!
//! Knows: paths. Must not know: what is at them.

use std::collections::BTreeSet;

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
/// Where the runtime image has the runtime.
pub const INSTALL: &str = "/usr/local/streams";
/// The runtime makes this file once it has started, which is after it has got its bundle, and removes it if it cannot
/// stop.
pub const LIVE: &str = "/tmp/live";
/// Where the runtime unpacks the bundle.
const BUNDLE: &str = "/tmp/assets";

/// Places that are taken by themselves, whether a PE has the volume or not: whether it has follows from options that
/// can be edited. What is above of them and of the others is taken as well.
const PLACES: [&str; 9] = [DATA, "/bin", "/lib", "/lib64", "/sbin", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/sbin"];
/// Places that are taken with all that is in them: nothing can be mounted in some, and must not be in others.
const WHOLE: [&str; 10] =
    [TEXT, JOB, APP_PROPERTIES, RESTRICTED_PROPERTIES, INSTALL, LIVE, BUNDLE, "/dev", "/proc", "/sys"];

/// The place, or the root of the file system, that this path stands for, if it cannot be that of checkpoints. A slash
/// at its end, two in a row and `.` mean nothing, and `..` leads back: a job may have it that was stored before the API
/// server refused it.
pub fn taken(path: &str) -> Option<String> {
    let mut resolved = Vec::new();
    for part in parts(path) {
        if part == ".." {
            resolved.pop();
        } else {
            resolved.push(part);
        }
    }
    let path = format!("/{}", resolved.join("/"));
    let is_in = |place: &&str| path.strip_prefix(*place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let whole = WHOLE.into_iter().find(is_in).map(str::to_owned);
    whole.or_else(|| (path == "/" || alone().contains(&path)).then_some(path))
}

/// Paths that are taken, and of which what is in them is not: but for the root.
fn alone() -> BTreeSet<String> {
    let mut alone: BTreeSet<String> = PLACES.into_iter().map(str::to_owned).collect();
    for place in PLACES.into_iter().chain(WHOLE) {
        let mut path = String::new();
        let parts: Vec<_> = parts(place).collect();
        for part in parts.iter().take(parts.len().saturating_sub(1)) {
            path = format!("{path}/{part}");
            alone.insert(path.clone());
        }
    }
    alone
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
    let joined = |place: &str| parts(place).collect::<Vec<_>>().join(between);
    let alone: Vec<String> = alone().iter().map(|place| joined(place)).collect();
    let whole: Vec<String> = WHOLE.iter().map(|place| joined(place)).collect();
    format!("^{between}(({})(/+[.])*/*|({})(/[^:]*)?|[.]?)$", alone.join("|"), whole.join("|"))
}

/// What [`free`] says.
pub(crate) fn free_says() -> kube::core::Message {
    let (alone, whole) = (Vec::from_iter(alone()).join(", "), WHOLE.join(", "));
    kube::core::Message::Message(format!(
        "must be a place of its own: not /, {alone}, nor {whole} or what is in them, where PEs have other files"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// path -> place
    const TABLE: [(&str, Option<&str>); 55] = [
        ("/checkpoint", None),
        ("/data/checkpoints", None),
        ("/database", None),
        ("/etc/config/pe-packed", None),
        ("/etc/checkpoints", None),
        ("/tmp/checkpoints", None),
        ("/tmp/liver", None),
        ("/tmp/live2/x", None),
        ("/usr/local/checkpoints", None),
        ("/usr/local/streams2", None),
        ("/usr/lib/checkpoints", None),
        ("/var/lib", None),
        ("/mnt/dev", None),
        ("/device", None),
        ("/data", Some("/data")),
        ("/data/", Some("/data")),
        ("//data", Some("/data")),
        ("/./etc//config/./pe/.", Some("/etc/config/pe")),
        ("/etc/config/pe/x", Some("/etc/config/pe")),
        ("/etc/config/job", Some("/etc/config/job")),
        ("/etc/config/app/", Some("/etc/config/app")),
        ("/etc/config/app/./x/y", Some("/etc/config/app")),
        ("/etc/config/restricted", Some("/etc/config/restricted")),
        ("/etc/config", Some("/etc/config")),
        ("/etc/./config/.", Some("/etc/config")),
        ("/etc", Some("/etc")),
        ("/tmp", Some("/tmp")),
        ("/tmp/", Some("/tmp")),
        ("/tmp/live", Some("/tmp/live")),
        ("/tmp/live/x", Some("/tmp/live")),
        ("/tmp/assets", Some("/tmp/assets")),
        ("/tmp//assets//x", Some("/tmp/assets")),
        ("/usr", Some("/usr")),
        ("/usr/local", Some("/usr/local")),
        ("/usr/local/streams", Some("/usr/local/streams")),
        ("/usr/local/./streams/system/impl", Some("/usr/local/streams")),
        ("/usr/bin", Some("/usr/bin")),
        ("/usr/lib64/", Some("/usr/lib64")),
        ("/bin", Some("/bin")),
        ("/lib", Some("/lib")),
        ("/lib64", Some("/lib64")),
        ("/sbin", Some("/sbin")),
        ("/dev", Some("/dev")),
        ("/dev/shm", Some("/dev")),
        ("/proc", Some("/proc")),
        ("/sys/fs", Some("/sys")),
        ("/", Some("/")),
        ("//.", Some("/")),
        // What leads back, the API server refuses by itself.
        ("/checkpoint/../data", Some("/data")),
        ("/../etc/x/./../config/pe", Some("/etc/config/pe")),
        ("/checkpoint/..", Some("/")),
        ("/tmp/x/..", Some("/tmp")),
        ("/data/../checkpoint", None),
        ("/data/..a", None),
        ("/usr/local/streams/../x", None),
    ];

    #[test]
    fn a_path_is_taken_however_it_is_written() {
        for (path, place) in TABLE {
            assert_eq!(taken(path).as_deref(), place, "{path}");
        }
    }

    /// Each place as the parts of its path, between which slashes and dots mean nothing.
    #[test]
    fn the_api_server_is_told_the_same() {
        let slash = "/+([.]/+)*";
        let etc = format!("etc{slash}config");
        let usr = format!("usr{slash}");
        let alone =
            format!("bin|data|etc|{etc}|lib|lib64|sbin|tmp|usr|{usr}bin|{usr}lib|{usr}lib64|{usr}local|{usr}sbin");
        let config = ["pe", "job", "app", "restricted"].map(|name| format!("{etc}{slash}{name}")).join("|");
        let tmp = format!("tmp{slash}");
        let whole = format!("{config}|{usr}local{slash}streams|{tmp}live|{tmp}assets|dev|proc|sys");
        assert_eq!(free(), format!("!self.matches('^{slash}(({alone})(/+[.])*/*|({whole})(/[^:]*)?|[.]?)$')"));
    }
}
