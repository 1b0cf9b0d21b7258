//! Where the programs of the control plane come from: `KUBEBUILDER_ASSETS`, else the cache directory, else built with
//! Go into the cache directory.
//!
//! Each program is looked up by itself, because a `KUBEBUILDER_ASSETS` folder as others make it holds etcd,
//! kube-apiserver and kubectl only. The cache is keyed by all that goes into a build, so several versions of this
//! repository can share one.
//!
//! Knows: folders, Go. Must not know: what the programs do.

mod build;

use crate::process::Supervisor;
use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Folder with ready programs, as the tools of kubebuilder use it.
const ASSETS: &str = "KUBEBUILDER_ASSETS";
/// Overrides the cache directory; default `$XDG_CACHE_HOME/streams-operator/control-plane`, `~/.cache/...`.
const CACHE: &str = "STREAMS_CONTROL_PLANE_CACHE";

/// A program of the control plane, or a client of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tool {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    KubeApiserver,
    /// kube-controller-manager.
    KubeControllerManager,
    /// kube-scheduler.
    KubeScheduler,
    /// kwok.
    Kwok,
    /// kubectl.
    Kubectl,
    /// grpcurl.
    Grpcurl,
}

impl Tool {
    /// All of them; the cheap ones to build last, as they share most with those before.
    pub const ALL: [Self; 7] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kubectl,
        Self::Kwok,
        Self::Grpcurl,
    ];

    /// The name of the executable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Kubectl => "kubectl",
            Self::Grpcurl => "grpcurl",
        }
    }

    /// The Go package of its `main`: the `tool` line of go.mod.
    const fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::KubeScheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::Kwok => "sigs.k8s.io/kwok/cmd/kwok",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Grpcurl => "github.com/fullstorydev/grpcurl/cmd/grpcurl",
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Executables of all [`Tool`]s.
#[derive(Debug, Clone)]
pub struct Binaries(BTreeMap<Tool, PathBuf>);

impl Binaries {
    /// Finds the executables and builds those that are missing, which takes about six minutes once on two cores and is
    /// shown on stderr.
    ///
    /// # Errors
    /// When something has to be built and Go is missing, too old, or does not succeed; when the cache directory cannot
    /// be used.
    pub async fn find_or_build(supervisor: &Supervisor) -> Result<Self> {
        let assets = std::env::var_os(ASSETS).filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let cache = cache_directory()?.join(cache_key());
        let mut found = find(assets.as_deref(), &cache);
        let missing: Vec<Tool> = Tool::ALL.into_iter().filter(|tool| !found.contains_key(tool)).collect();
        if !missing.is_empty() {
            found.extend(build::build(supervisor, &cache, &missing).await?);
        }
        Ok(Self(found))
    }

    /// The executable of `tool`.
    #[must_use]
    pub fn path(&self, tool: Tool) -> &Path {
        // There is an entry for each: see find_or_build.
        self.0.get(&tool).map_or_else(|| Path::new(tool.name()), PathBuf::as_path)
    }
}

fn find(assets: Option<&Path>, cache: &Path) -> BTreeMap<Tool, PathBuf> {
    let cached = build::folder(cache);
    let folders: Vec<&Path> = assets.into_iter().chain([cached.as_path()]).collect();
    Tool::ALL
        .into_iter()
        .filter_map(|tool| {
            let executable = folders.iter().map(|folder| folder.join(tool.name())).find(|path| path.is_file())?;
            Some((tool, executable))
        })
        .collect()
}

fn cache_directory() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(cache) = set(CACHE) {
        return Ok(cache);
    }
    // The base directory specification: a relative XDG_CACHE_HOME is to be ignored.
    let base = set("XDG_CACHE_HOME").filter(|path| path.is_absolute()).or_else(|| Some(set("HOME")?.join(".cache")));
    let base = base.with_context(|| format!("no place for built programs: set HOME, XDG_CACHE_HOME or {CACHE}"))?;
    Ok(base.join("streams-operator").join("control-plane"))
}

/// Names what a build would give: the modules, the flags, the system.
fn cache_key() -> String {
    let mut hash = Sha256::new();
    for part in [build::GO_MOD, build::GO_SUM, &build::linker_flags(), std::env::consts::OS, std::env::consts::ARCH] {
        hash.update(part);
        hash.update([0]);
    }
    let mut key = hex::encode(hash.finalize());
    key.truncate(16);
    key
}

#[cfg(test)]
mod tests {
    use super::{Tool, build, find};
    use std::fs;

    #[test]
    fn assets_go_before_the_cache_program_by_program() {
        let folder = tempfile::tempdir().unwrap();
        let (assets, cache) = (folder.path().join("assets"), folder.path().join("cache"));
        for (directory, tools) in
            [(&assets, &[Tool::Etcd, Tool::Kubectl][..]), (&build::folder(&cache), &[Tool::Etcd, Tool::Kwok])]
        {
            fs::create_dir_all(directory).unwrap();
            for tool in tools {
                fs::write(directory.join(tool.name()), "").unwrap();
            }
        }
        let found: Vec<_> = find(Some(&assets), &cache).into_iter().collect();
        let cached = build::folder(&cache);
        assert_eq!(
            found,
            [
                (Tool::Etcd, assets.join("etcd")),
                (Tool::Kwok, cached.join("kwok")),
                (Tool::Kubectl, assets.join("kubectl")),
            ]
        );
        assert_eq!(find(None, &cache).into_values().collect::<Vec<_>>(), [cached.join("etcd"), cached.join("kwok")]);
    }

    #[test]
    fn go_mod_names_every_tool() {
        for tool in Tool::ALL {
            assert!(build::GO_MOD.lines().any(|line| line.trim() == tool.package()), "{tool}");
        }
    }
}
