//! Making bundles (rule bundle-9).
//!
//! What is made depends on nothing but what is put in: entries are sorted, times and owners are fixed.

use crate::name::{Unsafe, normalized};
use crate::{BundleInfo, Error, ExecutionMode, INFO, PAYLOAD, Toolkit};
use sha2::{Digest, Sha224};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Cursor, Write};
use tar::{EntryType, Header};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, System, ZipWriter};

/// The application to be bundled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// The name of its files: `<name>.adl` in `<name>.sab`.
    pub name: String,
    /// The top folder in the tar; `outputDirectory` of the ADL.
    pub output_directory: String,
    /// The name of its toolkit; the last component of `applicationDirectory` of the ADL.
    pub toolkit: String,
    /// The version of its toolkit.
    pub toolkit_version: String,
    /// The ADL.
    pub adl: String,
}

/// A bundle to be made: the ADL, a link `etc/adl` to it, and files as they are added.
#[derive(Clone, Debug)]
pub struct Builder {
    application: Application,
    build_date: u64,
    /// By path below the top folder.
    contents: BTreeMap<String, Content>,
    /// The first path that was added twice.
    conflict: Option<String>,
}

#[derive(Clone, Debug)]
enum Content {
    File { octets: Vec<u8>, executable: bool },
    Link { target: String },
}

impl Builder {
    /// A bundle with the ADL alone.
    #[must_use]
    pub fn new(application: Application) -> Self {
        let adl = format!("{}.adl", application.name);
        let octets = application.adl.clone().into_bytes();
        Self { application, build_date: 0, contents: BTreeMap::new(), conflict: None }
            .link("etc/adl", format!("../{adl}"))
            .file(adl, octets)
    }

    /// When the application was compiled, in seconds since 1970; 0 unless set.
    #[must_use]
    pub fn build_date(mut self, seconds: u64) -> Self {
        self.build_date = seconds;
        self
    }

    /// Adds a file at a path below the top folder. Files below `toolkits/<name of the toolkit>` become files of the
    /// toolkit, others outside of `bin`, `etc`, `java`, `toolkits` and `usr` become output files of the description.
    #[must_use]
    pub fn file(self, path: impl Into<String>, octets: Vec<u8>) -> Self {
        self.add(path.into(), Content::File { octets, executable: false })
    }

    /// Adds a file that may be executed.
    #[must_use]
    pub fn executable(self, path: impl Into<String>, octets: Vec<u8>) -> Self {
        self.add(path.into(), Content::File { octets, executable: true })
    }

    /// Adds a symbolic link; the target is relative to the folder of the link.
    #[must_use]
    pub fn link(self, path: impl Into<String>, target: impl Into<String>) -> Self {
        self.add(path.into(), Content::Link { target: target.into() })
    }

    fn add(mut self, path: String, content: Content) -> Self {
        match self.contents.entry(path) {
            Entry::Vacant(place) => _ = place.insert(content),
            Entry::Occupied(place) => _ = self.conflict.get_or_insert_with(|| place.key().clone()),
        }
        self
    }

    /// The octets of the bundle.
    ///
    /// # Errors
    ///
    /// When a path is unsafe, is there twice or is also the folder of another, or something is too large for its
    /// format.
    pub fn build(&self) -> Result<Vec<u8>, Error> {
        if let Some(path) = &self.conflict {
            return Err(Error::Conflict(path.clone()));
        }
        let tar = self.tar()?;
        let info = self.info(hex::encode(Sha224::digest(&tar)));
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(6))
            .last_modified_time(DateTime::default())
            .system(System::Unix)
            .unix_permissions(0o644);
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        let entries = [
            ("META-INF/MANIFEST.MF", self.manifest(&info.build_id).into_bytes()),
            (INFO, info.to_xml()?),
            (PAYLOAD, tar),
        ];
        for (name, octets) in entries {
            zip.start_file(name, options).map_err(|error| Error::Io(error.into()))?;
            zip.write_all(&octets).map_err(Error::Io)?;
        }
        let octets = zip.finish().map_err(|error| Error::Io(error.into()))?;
        Ok(octets.into_inner())
    }

    fn info(&self, build_id: String) -> BundleInfo {
        let toolkit = format!("toolkits/{}/", self.application.toolkit);
        let adl_file = format!("{}.adl", self.application.name);
        let own = ["bin/", "etc/", "java/", "toolkits/", "usr/"];
        let (mut toolkit_files, mut output_files) = (Vec::new(), Vec::new());
        for path in self.contents.keys() {
            if let Some(file) = path.strip_prefix(&toolkit) {
                toolkit_files.push(file.to_owned());
            } else if *path != adl_file && !own.iter().any(|folder| path.starts_with(folder)) {
                output_files.push(path.clone());
            }
        }
        BundleInfo {
            bundle_version: "4300".to_owned(),
            build_id,
            build_date: self.build_date,
            application_directory: self.application.toolkit.clone(),
            output_directory: self.application.output_directory.clone(),
            adl_file,
            execution_mode: ExecutionMode::Distributed,
            toolkits: vec![Toolkit {
                name: self.application.toolkit.clone(),
                version: self.application.toolkit_version.clone(),
                compile_root: ".".to_owned(),
                files: toolkit_files,
            }],
            output_files,
        }
    }

    fn manifest(&self, build_id: &str) -> String {
        let lines = [
            ("Manifest-Version", "1.0"),
            ("Created-By", concat!("streams-bundle ", env!("CARGO_PKG_VERSION"))),
            ("StreamsBundleFile", &format!("{}.sab", self.application.name)),
            ("BuildId", build_id),
        ];
        let mut manifest = String::new();
        for (name, value) in lines {
            fold_line(&mut manifest, &format!("{name}: {value}"));
        }
        manifest.push_str("\r\n");
        manifest
    }

    fn tar(&self) -> Result<Vec<u8>, Error> {
        let mut tar = tar::Builder::new(Vec::new());
        // Folders before what they hold, everything in the order of the paths.
        let mut entries: BTreeMap<String, Option<&Content>> = BTreeMap::new();
        for (path, content) in &self.contents {
            let path = checked(&format!("{}/{path}", self.application.output_directory), path)?;
            for (end, _) in path.match_indices('/') {
                if entries.entry(path[..end].to_owned()).or_insert(None).is_some() {
                    return Err(Error::Conflict(path[..end].to_owned()));
                }
            }
            if entries.insert(path.clone(), Some(content)).is_some() {
                return Err(Error::Conflict(path));
            }
        }
        for (path, content) in entries {
            append(&mut tar, &path, content).map_err(Error::Io)?;
        }
        tar.into_inner().map_err(Error::Io)
    }
}

/// The path as it is given, if it is within the bundle and in its simplest form.
fn checked(path: &str, given: &str) -> Result<String, Error> {
    let unsafe_name = |name: String| Error::UnsafeName { archive: "the bundle", name };
    let normal = normalized(path.as_bytes()).map_err(|Unsafe(name)| unsafe_name(name))?;
    if given.is_empty() || normal != path.as_bytes() {
        return Err(unsafe_name(path.to_owned()));
    }
    Ok(path.to_owned())
}

fn append(tar: &mut tar::Builder<Vec<u8>>, path: &str, content: Option<&Content>) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    match content {
        None => {
            header.set_entry_type(EntryType::Directory);
            header.set_mode(0o755);
            tar.append_data(&mut header, format!("{path}/"), io::empty())
        }
        Some(Content::File { octets, executable }) => {
            header.set_entry_type(EntryType::Regular);
            header.set_mode(if *executable { 0o755 } else { 0o644 });
            header.set_size(octets.len() as u64);
            tar.append_data(&mut header, path, octets.as_slice())
        }
        Some(Content::Link { target }) => {
            header.set_entry_type(EntryType::Symlink);
            header.set_mode(0o777);
            tar.append_link(&mut header, path, target)
        }
    }
}

/// Writes a line of a manifest: at most 72 octets with its end, the rest on lines that begin with a blank.
fn fold_line(manifest: &mut String, line: &str) {
    let mut room = 70;
    for character in line.chars() {
        if character.len_utf8() > room {
            manifest.push_str("\r\n ");
            room = 69;
        }
        manifest.push(character);
        room -= character.len_utf8();
    }
    manifest.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_manifest() {
        let mut manifest = String::new();
        fold_line(&mut manifest, "short");
        fold_line(&mut manifest, &"x".repeat(70));
        fold_line(&mut manifest, &"é".repeat(100));
        let lines: Vec<&str> = manifest.split_terminator("\r\n").collect();
        assert_eq!(lines[..2], ["short", &"x".repeat(70)]);
        assert!(lines.iter().all(|line| line.len() <= 70));
        assert_eq!(lines[2..].iter().map(|line| line.trim_start()).collect::<String>(), "é".repeat(100));
        assert!(lines[3..].iter().all(|line| line.starts_with(' ')));
    }
}
