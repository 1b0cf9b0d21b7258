//! The volumes of a pod, as directories, and what a container sees of them.
//!
//! A process has no mounts of its own. So each container has a directory that stands for its root; where a volume would
//! be mounted there is a link to the directory of the volume. Whoever runs in it has to be told where its root is.
//!
//! | volume | directory |
//! |---|---|
//! | `configMap`, `secret`, `projected` | of the pod, written again when the objects change; tokens are left out |
//! | `emptyDir` | of the pod |
//! | `hostPath` | that one |
//! | `persistentVolumeClaim` | of the agent, one for each claim |

use crate::environment::field;
use crate::objects::Objects;
use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Container, KeyToPath, Pod, Volume};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Component, Path, PathBuf};

/// Where volumes are.
#[derive(Clone, Debug)]
pub(crate) struct Directories {
    /// Of the pod.
    pub(crate) pod: PathBuf,
    /// Of claims in the pod's namespace.
    pub(crate) claims: PathBuf,
}

impl Directories {
    fn volume(&self, name: &str) -> PathBuf {
        self.pod.join("volumes").join(name)
    }

    /// What stands for the root of a container.
    pub(crate) fn root(&self, container: &str) -> PathBuf {
        self.pod.join("roots").join(container)
    }
}

/// Writes all volumes of a pod. Says whether any of them may change.
///
/// # Errors
/// When an object is not there, a volume is of another kind, or a file cannot be written.
pub(crate) async fn write(
    pod: &Pod,
    address: Ipv4Addr,
    directories: &Directories,
    objects: &Objects<'_>,
) -> Result<bool> {
    let mut may_change = false;
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let written = write_one(volume, pod, address, directories, objects).await;
        may_change |= written.with_context(|| format!("volume {}", volume.name))?;
    }
    Ok(may_change)
}

async fn write_one(
    volume: &Volume,
    pod: &Pod,
    address: Ipv4Addr,
    directories: &Directories,
    objects: &Objects<'_>,
) -> Result<bool> {
    let directory = directories.volume(&volume.name);
    if let Some(source) = &volume.config_map {
        let found = objects.config_map(&source.name, source.optional).await?;
        put(&directory, select(found.entries, source.items.as_deref(), source.optional)?)?;
        return Ok(found.may_change);
    }
    if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let entries = objects.secret(name, source.optional).await?;
        put(&directory, select(entries, source.items.as_deref(), source.optional)?)?;
        return Ok(true);
    }
    if let Some(source) = &volume.projected {
        let mut files = BTreeMap::new();
        for source in source.sources.iter().flatten() {
            if let Some(source) = &source.config_map {
                let found = objects.config_map(&source.name, source.optional).await?;
                files.extend(select(found.entries, source.items.as_deref(), source.optional)?);
            }
            if let Some(source) = &source.secret {
                let entries = objects.secret(&source.name, source.optional).await?;
                files.extend(select(entries, source.items.as_deref(), source.optional)?);
            }
            for item in source.downward_api.iter().flat_map(|source| source.items.iter().flatten()) {
                let path = item.field_ref.as_ref().map(|field| field.field_path.as_str()).unwrap_or_default();
                files.insert(item.path.clone(), field(path, pod, address)?.into_bytes());
            }
        }
        put(&directory, files)?;
        return Ok(true);
    }
    if volume.empty_dir.is_some() {
        fs::create_dir_all(&directory)?;
    } else if let Some(source) = &volume.host_path {
        fs::create_dir_all(&source.path)?;
        link(Path::new(&source.path), &directory)?;
    } else if let Some(source) = &volume.persistent_volume_claim {
        let claim = directories.claims.join(&source.claim_name);
        fs::create_dir_all(&claim)?;
        link(&claim, &directory)?;
    } else {
        bail!("it is of a kind that is not supported");
    }
    Ok(false)
}

/// The entries that items name, under the names that they give them; all entries if there are no items.
fn select(
    mut entries: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
) -> Result<BTreeMap<String, Vec<u8>>> {
    let Some(items) = items.filter(|items| !items.is_empty()) else { return Ok(entries) };
    let mut selected = BTreeMap::new();
    for item in items {
        match entries.remove(&item.key) {
            Some(value) => drop(selected.insert(item.path.clone(), value)),
            None if optional == Some(true) => {}
            None => bail!("there is no key {}", item.key),
        }
    }
    Ok(selected)
}

/// Makes a directory have these files and no others. A file is the old one or the new one, never a part.
fn put(directory: &Path, files: BTreeMap<String, Vec<u8>>) -> Result<()> {
    fs::create_dir_all(directory)?;
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !files.keys().any(|path| path.split('/').next() == Some(&name)) {
            let old = directory.join(&name);
            let removed = if old.is_dir() { fs::remove_dir_all(&old) } else { fs::remove_file(&old) };
            removed.with_context(|| format!("cannot remove {}", old.display()))?;
        }
    }
    for (path, content) in files {
        let is_inside = Path::new(&path).components().all(|part| matches!(part, Component::Normal(_)));
        ensure!(is_inside, "the path {path} leads out of the volume");
        let path = directory.join(path);
        if fs::read(&path).is_ok_and(|old| old == content) {
            continue;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let part = path.with_file_name(format!("..{}", path.file_name().unwrap_or_default().to_string_lossy()));
        fs::write(&part, content).with_context(|| format!("cannot write {}", part.display()))?;
        fs::rename(&part, &path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn link(to: &Path, at: &Path) -> Result<()> {
    if let Some(parent) = at.parent() {
        fs::create_dir_all(parent)?;
    }
    match std::os::unix::fs::symlink(to, at) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        result => result.with_context(|| format!("cannot link {}", at.display())),
    }
}

/// Makes what stands for the root of a container.
///
/// # Errors
/// When a volume is not there or a link cannot be made.
pub(crate) fn mount(container: &Container, directories: &Directories) -> Result<PathBuf> {
    let root = directories.root(&container.name);
    fs::create_dir_all(&root)?;
    for mount in container.volume_mounts.iter().flatten() {
        let mut volume = directories.volume(&mount.name);
        ensure!(volume.exists(), "there is no volume {}", mount.name);
        if let Some(path) = &mount.sub_path {
            volume = volume.join(path);
            if !volume.exists() {
                fs::create_dir_all(&volume)?;
            }
        }
        link(&volume, &root.join(mount.mount_path.trim_start_matches('/')))?;
    }
    Ok(root)
}

/// A text in which paths of mounts are those below the root of the container.
pub(crate) fn paths_replaced(text: &str, container: &Container, root: &Path) -> String {
    let mut mounts: Vec<&str> =
        container.volume_mounts.iter().flatten().map(|mount| mount.mount_path.as_str()).collect();
    // Of two mounts that begin alike the longer one first; what has been replaced is not looked at again.
    mounts.sort_unstable_by_key(|path| std::cmp::Reverse(path.len()));
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let ends =
            |after: &str| !after.starts_with(|next: char| next.is_alphanumeric() || matches!(next, '-' | '_' | '.'));
        match mounts.iter().find(|path| rest.strip_prefix(**path).is_some_and(ends)) {
            Some(path) => {
                replaced.push_str(&root.join(path.trim_start_matches('/')).to_string_lossy());
                rest = rest.get(path.len()..).unwrap_or_default();
            }
            None => {
                replaced.push(next);
                rest = rest.get(next.len_utf8()..).unwrap_or_default();
            }
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::{paths_replaced, put, select};
    use k8s_openapi::api::core::v1::{Container, KeyToPath, VolumeMount};
    use std::collections::BTreeMap;
    use std::path::Path;

    #[test]
    fn paths_of_mounts_are_replaced_and_no_others() {
        let mount = |path: &str| VolumeMount { mount_path: path.to_owned(), ..VolumeMount::default() };
        let mounts = ["/etc/config/pe", "/etc/config/pe-packed", "/data"].map(mount);
        let container = Container { volume_mounts: Some(mounts.into()), ..Container::default() };
        for (text, expected) in [
            (
                "gzip -dc '/etc/config/pe-packed/a.gz' > '/etc/config/pe/a'",
                "gzip -dc '/r/etc/config/pe-packed/a.gz' > '/r/etc/config/pe/a'",
            ),
            ("/database /data", "/database /r/data"),
            ("/etc/passwd", "/etc/passwd"),
        ] {
            assert_eq!(paths_replaced(text, &container, Path::new("/r")), expected);
        }
    }

    #[test]
    fn items_choose_and_rename() {
        let entries = || BTreeMap::from([("a".to_owned(), vec![1]), ("b".to_owned(), vec![2])]);
        let item = |key: &str, path: &str| KeyToPath { key: key.to_owned(), path: path.to_owned(), mode: None };
        assert_eq!(select(entries(), None, None).unwrap(), entries());
        assert_eq!(
            select(entries(), Some(&[item("b", "c")]), None).unwrap(),
            BTreeMap::from([("c".to_owned(), vec![2])])
        );
        assert!(select(entries(), Some(&[item("x", "c")]), None).is_err());
        assert!(select(entries(), Some(&[item("x", "c")]), Some(true)).unwrap().is_empty());
    }

    #[test]
    fn a_directory_has_the_files_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let files = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), name.as_bytes().to_vec())).collect();
        let listed = || {
            let entries = std::fs::read_dir(directory.path()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort_unstable();
            names
        };
        put(directory.path(), files(&["a", "d/b"])).unwrap();
        assert_eq!(listed(), ["a", "d"]);
        put(directory.path(), files(&["c"])).unwrap();
        assert_eq!(listed(), ["c"]);
        assert!(put(directory.path(), files(&["../x"])).is_err());
    }
}
