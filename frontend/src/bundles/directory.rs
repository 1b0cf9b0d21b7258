//! The bundle directory of the frontend (rule fetch-4).
//!
//! Knows: paths and links. Must not know: what else a reference may name.
//!
//! Invariant: nothing outside of the directory is read, whatever the path and the links in the directory say.

use super::error::BundleError;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tokio::fs::File;
use tokio::io::AsyncReadExt;

/// The bytes of a file in the directory `root`. An absolute path is taken as it is if it lies there, and relative to
/// the directory otherwise.
///
/// # Errors
/// When there is no directory or no such file in it, it has more than `max_bytes`, or cannot be read.
pub(super) async fn read(root: Option<&Path>, file: &Path, max_bytes: usize) -> Result<Vec<u8>, BundleError> {
    let path = inside(root, file).await?;
    let name = path.file_name().unwrap_or_default().display();
    let unreadable =
        |error| BundleError::transient("BundleUnreadable", format!("bundle {name} cannot be read: {error}"));
    let metadata = tokio::fs::metadata(&path).await.map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(BundleError::permanent("BundleInvalid", format!("bundle {name} is not a file")));
    }
    if metadata.len() > max_bytes as u64 {
        return Err(BundleError::too_large(&name.to_string(), max_bytes));
    }
    // It may grow while it is read.
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(max_bytes));
    let limit = max_bytes as u64 + 1;
    File::open(&path).await.map_err(unreadable)?.take(limit).read_to_end(&mut bytes).await.map_err(unreadable)?;
    if bytes.len() > max_bytes { Err(BundleError::too_large(&name.to_string(), max_bytes)) } else { Ok(bytes) }
}

/// The real path of a file, which must lie inside the directory after links are followed.
async fn inside(root: Option<&Path>, file: &Path) -> Result<PathBuf, BundleError> {
    let shown = file.display();
    let Some(root) = root else {
        let message = format!("bundle {shown}: this frontend has no bundle directory; use a url");
        return Err(BundleError::permanent("BundleRefused", message));
    };
    let root = tokio::fs::canonicalize(root).await.map_err(|error| {
        BundleError::transient("BundleUnreadable", format!("the bundle directory cannot be read: {error}"))
    })?;
    let relative = file.strip_prefix(&root).or_else(|_| file.strip_prefix("/")).unwrap_or(file);
    let path = tokio::fs::canonicalize(root.join(relative)).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => BundleError::not_found(format!("there is no bundle {shown} in the bundle directory")),
        _ => BundleError::transient("BundleUnreadable", format!("bundle {shown} cannot be read: {error}")),
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
        for (file, expected) in table {
            let bytes = read(Some(&root), file, 5).await;
            let outcome = bytes.as_ref().map(|bytes| assert_eq!(bytes, b"bytes"));
            assert_eq!(outcome.map_err(BundleError::reason), expected, "{file:?}");
        }
        assert_eq!(read(None, Path::new("app.sab"), 5).await.unwrap_err().reason(), "BundleRefused");
    }
}
