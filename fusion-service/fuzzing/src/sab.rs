//! Bundles, as a whole and part by part.
//!
//! Input: an archive; or one byte and a part, which is put into a sound bundle, because checksums and compression keep
//! mutations of a whole archive from going deep: `I` the description, `T` the tar, `A` the ADL.

use std::io::{Cursor, Write};
use streams_bundle::{Application, BuildId, BuildIdPolicy, Builder, Bundle, Error, Limits, ReadOptions};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

const LIMITS: Limits =
    Limits { bundle: 1 << 20, info: 64 << 10, payload: 4 << 20, ratio: 200, entries: 1_000, adl: 256 << 10 };

fn options(build_id: BuildIdPolicy) -> ReadOptions {
    ReadOptions { limits: LIMITS, build_id }
}

/// Name, toolkit and folder of the sound parts.
fn application(adl: String) -> Application {
    Application {
        name: "x".to_owned(),
        output_directory: "out".to_owned(),
        toolkit: "apps".to_owned(),
        toolkit_version: "1".to_owned(),
        adl,
    }
}

/// An archive of the two parts that count, not compressed.
pub(crate) fn archive(info: &[u8], tar: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, octets) in [("bundleInfo.xml", info), ("tar/bundle.tar", tar)] {
        zip.start_file(name, options).expect("memory can be written");
        zip.write_all(octets).expect("memory can be written");
    }
    zip.finish().expect("memory can be written").into_inner()
}

/// An entry of an archive made by the builder.
pub(crate) fn part(sab: &[u8], name: &str) -> Vec<u8> {
    let mut archive = zip::ZipArchive::new(Cursor::new(sab)).expect("the builder makes archives");
    let mut entry = archive.by_name(name).expect("the entry is there");
    let mut octets = Vec::new();
    std::io::Read::read_to_end(&mut entry, &mut octets).expect("memory can be read");
    octets
}

/// A sound bundle, with a name that is too long for a plain tar header.
pub(crate) fn bundle(adl: &str) -> Vec<u8> {
    let long = format!("data/{}x", "long/".repeat(40));
    let builder = Builder::new(application(adl.to_owned())).executable("bin/run", vec![7; 700]);
    builder.file(long, b"1".to_vec()).build().expect("the bundle can be built")
}

/// Runs one input; panics when something does not hold.
pub fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind {
        b'I' => read(&archive(rest, &SOUND.1)),
        b'T' => read(&archive(&SOUND.0, rest)),
        b'A' => match std::str::from_utf8(rest) {
            Ok(adl) => round_trip(&application(adl.to_owned()), None),
            Err(_) => {
                let built = Builder::new(application(String::new())).file("y", rest.to_vec()).build();
                read(&built.expect("any content can be bundled"));
            }
        },
        _ => read(data),
    }
}

static SOUND: std::sync::LazyLock<(Vec<u8>, Vec<u8>)> = std::sync::LazyLock::new(|| {
    let sab = bundle("<a/>");
    (part(&sab, "bundleInfo.xml"), part(&sab, "tar/bundle.tar"))
});

fn read(octets: &[u8]) {
    let bundle = Bundle::read(Cursor::new(octets), &options(BuildIdPolicy::Report));
    let quick = Bundle::read(Cursor::new(octets), &options(BuildIdPolicy::Skip));
    let strict = Bundle::read(Cursor::new(octets), &options(BuildIdPolicy::Require));
    let Ok(bundle) = bundle else {
        assert!(strict.is_err(), "a damaged bundle was read");
        return;
    };
    let quick = quick.expect("reading less cannot fail");
    assert_eq!((quick.info(), quick.adl()), (bundle.info(), bundle.adl()));
    match (bundle.build_id(), strict) {
        (BuildId::Verified, Ok(strict)) => assert_eq!(strict, bundle),
        (BuildId::Differs { actual }, Err(Error::BuildId { actual: told, .. })) => assert_eq!(*actual, told),
        (build_id, strict) => panic!("{build_id:?} and {strict:?}"),
    }
    let info = bundle.info();
    let name = info.adl_file.strip_suffix(".adl");
    if let Some(name) = name {
        let application = Application {
            name: name.to_owned(),
            output_directory: info.output_directory.clone(),
            toolkit: info.application_directory.clone(),
            toolkit_version: "1".to_owned(),
            adl: bundle.adl().to_owned(),
        };
        round_trip(&application, Some(&bundle));
    }
}

/// Builds and reads a bundle. What comes from a bundle may have names that are not built.
fn round_trip(application: &Application, from: Option<&Bundle>) {
    let built = match (Builder::new(application.clone()).build(), from) {
        (Ok(built), _) => built,
        (Err(_), Some(_)) => return,
        (Err(error), None) => panic!("{error}"),
    };
    let bundle = match Bundle::read(Cursor::new(&built), &options(BuildIdPolicy::Require)) {
        Ok(bundle) => bundle,
        Err(error) if application.adl.len() as u64 > LIMITS.adl => return drop(error),
        Err(error) => panic!("what was built cannot be read: {error}"),
    };
    assert_eq!(bundle.adl(), application.adl);
    assert_eq!(bundle.info().output_directory, application.output_directory);
    let Ok(rewritten) = bundle.adl_for_submission() else { return };
    // It is longer, and a tag has a limit.
    if rewritten.len() > 64 << 10 {
        return;
    }
    let again = Application { adl: rewritten.clone(), ..application.clone() };
    let again = Builder::new(again).build().expect("what was bundled can be bundled");
    let limits = Limits { adl: u64::MAX, bundle: u64::MAX, payload: u64::MAX, ..LIMITS };
    let again = Bundle::read(Cursor::new(&again), &ReadOptions { limits, build_id: BuildIdPolicy::Skip });
    again.expect("what was built can be read").adl_for_submission().expect("what was rewritten can be rewritten");
}
