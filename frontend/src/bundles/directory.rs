//! The bundle directory of the frontend (rule fetch-4).
//!
//! Knows: paths and links. Must not know: what else a reference may name.
//!
//! Invariant: nothing outside of the directory is read, whatever the path and the links in the directory say.

use super::error::BundleError;
use super::volume::{self, Lent, Volume};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The bytes of a file in the directory `root`, which is in this volume. An absolute path is taken as it is if it lies
/// there, and relative to the directory otherwise.
///
/// # Errors
/// When there is no directory or no such file in it, it has more than `max_bytes`, or cannot be read.
pub(super) async fn read(
    volume: &Volume,
    root: Option<&Path>,
    file: &Path,
    max_bytes: usize,
) -> Result<Vec<u8>, BundleError> {
    let Some(root) = root.map(Path::to_owned) else {
        let message = format!("bundle {}: this frontend has no bundle directory; use a url", file.display());
        return Err(BundleError::permanent("BundleRefused", message));
    };
    let path = file.to_owned();
    match volume.ask(Vec::new(), move |bytes| read_inside(&root, &path, max_bytes, bytes)).await {
        Ok((outcome, bytes)) => outcome.map(|()| bytes),
        Err(silent) => Err(unreadable(file, &silent)),
    }
}

fn read_inside(root: &Path, file: &Path, max_bytes: usize, bytes: &Lent<Vec<u8>>) -> Result<(), BundleError> {
    let path = inside(root, file)?;
    let name = Path::new(path.file_name().unwrap_or_default());
    let unreadable = |error: io::Error| unreadable(name, &error);
    let metadata = std::fs::metadata(&path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(BundleError::permanent("BundleInvalid", format!("bundle {} is not a file", name.display())));
    }
    let too_large = || BundleError::too_large(&name.display().to_string(), max_bytes);
    if metadata.len() > max_bytes as u64 {
        return Err(too_large());
    }
    // It may grow while it is read.
    let most = max_bytes.saturating_add(1);
    let read = || -> io::Result<usize> {
        volume::read(&mut File::open(&path)?, metadata.len(), most, bytes)?;
        bytes.with(|bytes| bytes.len())
    };
    if read().map_err(unreadable)? > max_bytes { Err(too_large()) } else { Ok(()) }
}

fn unreadable(file: &Path, error: &dyn std::error::Error) -> BundleError {
    BundleError::transient("BundleUnreadable", format!("bundle {} cannot be read: {error}", file.display()))
}

/// The real path of a file, which must lie inside the directory after links are followed.
fn inside(root: &Path, file: &Path) -> Result<PathBuf, BundleError> {
    let shown = file.display();
    let root = std::fs::canonicalize(root).map_err(|error| {
        BundleError::transient("BundleUnreadable", format!("the bundle directory cannot be read: {error}"))
    })?;
    let relative = file.strip_prefix(&root).or_else(|_| file.strip_prefix("/")).unwrap_or(file);
    let path = std::fs::canonicalize(root.join(relative)).map_err(|error| match error.kind() {
        ErrorKind::NotFound => BundleError::not_found(format!("there is no bundle {shown} in the bundle directory")),
        _ => unreadable(file, &error),
    })?;
    if !path.starts_with(&root) {
        return Err(BundleError::permanent("BundleRefused", format!("bundle {shown} is outside the bundle directory")));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    #[tokio::test]
    async fn files_come_from_inside_the_directory_only() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("bundles");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(parent.path().join("secret.sab"), "x").unwrap();
        std::fs::write(root.join("sub/app.sab"), "bytes").unwrap();
        std::fs::write(root.join("large.sab"), "too many").unwrap();
        symlink(parent.path().join("secret.sab"), root.join("link.sab")).unwrap();
        let absolute = std::fs::canonicalize(root.join("sub/app.sab")).unwrap();
        let outside = parent.path().join("secret.sab");
        // file -> reason
        let table = [
            (Path::new("sub/app.sab"), Ok(())),
            (Path::new("/sub/app.sab"), Ok(())),
            (&absolute, Ok(())),
            (&outside, Err("BundleNotFound")),
            (Path::new("../secret.sab"), Err("BundleRefused")),
            (Path::new("link.sab"), Err("BundleRefused")),
            (Path::new("gone.sab"), Err("BundleNotFound")),
            (Path::new("sub"), Err("BundleInvalid")),
            (Path::new("large.sab"), Err("BundleTooLarge")),
        ];
        let volume = Volume::new(1, Duration::from_secs(60));
        for (file, expected) in table {
            let bytes = read(&volume, Some(&root), file, 5).await;
            let outcome = bytes.as_ref().map(|bytes| assert_eq!(bytes, b"bytes"));
            assert_eq!(outcome.map_err(BundleError::reason), expected, "{file:?}");
        }
        let file = Path::new("sub/app.sab");
        assert_eq!(read(&volume, None, file, 5).await.unwrap_err().reason(), "BundleRefused");
        let stuck = Volume::new(0, Duration::from_millis(20));
        let error = read(&stuck, Some(&root), file, 5).await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("BundleUnreadable", true));
        assert_eq!(error.to_string(), "bundle sub/app.sab cannot be read: the volume does not answer");
    }
}
