//! Whole bundles.

mod hostile;
mod random;
mod whole;

use super::*;
use sha2::{Digest, Sha224};
use std::io::{Cursor, Write};
use tar::{EntryType, Header};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

const ADL: &str = r#"<applicationSet xmlns="http://www.ibm.com/xmlns/prod/streams/application/v4200"><splApplication
    name="apps::Main" buildId="" outputDirectory="out" applicationDirectory="toolkits/apps"/></applicationSet>"#;

fn application(name: &str) -> Application {
    Application {
        name: name.to_owned(),
        output_directory: "out".to_owned(),
        toolkit: "apps".to_owned(),
        toolkit_version: "1.0.0".to_owned(),
        adl: ADL.to_owned(),
    }
}

fn read(sab: &[u8]) -> Result<Bundle, Error> {
    Bundle::read(Cursor::new(sab), &ReadOptions::default())
}

/// What is wrong with a bundle, as it is said.
fn refusal(sab: &[u8]) -> String {
    read(sab).unwrap_err().to_string()
}

fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    for (name, octets) in entries {
        zip.start_file(*name, options).unwrap();
        zip.write_all(octets).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn info(output_directory: &str, adl_file: &str, tar: &[u8]) -> Vec<u8> {
    let info = BundleInfo {
        bundle_version: "4300".to_owned(),
        build_id: hex::encode(Sha224::digest(tar)),
        build_date: 1,
        application_directory: "apps".to_owned(),
        output_directory: output_directory.to_owned(),
        adl_file: adl_file.to_owned(),
        execution_mode: ExecutionMode::Distributed,
        toolkits: Vec::new(),
        output_files: Vec::new(),
    };
    info.to_xml().unwrap()
}

/// A bundle with this tar, whose ADL is `out/x.adl`.
fn sab(tar: &[u8]) -> Vec<u8> {
    zip(&[(INFO, &info("out", "x.adl", tar)), (PAYLOAD, tar)])
}

/// A tar of entries as they come, names written as they are.
fn tar(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, kind, octets) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_size(octets.len() as u64);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        tar.append(&header, *octets).unwrap();
    }
    tar.into_inner().unwrap()
}

fn file<'t>(name: &'t str, octets: &'t str) -> (&'t str, EntryType, &'t [u8]) {
    (name, EntryType::Regular, octets.as_bytes())
}
